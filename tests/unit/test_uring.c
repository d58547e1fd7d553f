/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What io_uring alone can do or get wrong (src/io/uring.c, src/io/real.c), beside test_engine.c: a loop that moves to
 * another thread, buffers that are registered and go, and a kernel that refuses it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#include "io/file.h"
#include "store_lib.h"

#define PAGE 4096u
#define SECOND 1000000000ull
#define BYTES (64u * PAGE)
#define TMPFS 0x01021994

static char path[300];
static _Alignas(4096) uint8_t pool[BYTES], other[BYTES];

static int setup(void **state)
{
	(void)state;
	const char *tmp = getenv("TMPDIR");
	snprintf(path, sizeof path, "%s/cairn-uring-XXXXXX", tmp ? tmp : "/tmp");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	for (uint32_t i = 0; i < BYTES; i++)
		pool[i] = (uint8_t)(i * 7 + i / PAGE);
	assert_int_equal(pwrite(fd, pool, BYTES, 0), BYTES);
	close(fd);
	memset(other, 0, sizeof other);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	file_limit_call(0);
	file_fail_fdatasync(0);
	return unlink(path);
}

static struct io *open_it(void)
{
	struct io *io = NULL;
	assert_int_equal(io_maker_uring.open(NULL, path, IO_OPEN_LOCK, 4, &io), 0);
	assert_string_equal(io->ops->name, "io_uring");
	return io;
}

static int done;

static void req_done(struct io_req *req)
{
	*(int *)req->owner = ++done;
}

static struct io_req req_of(uint32_t op, void *bytes, uint32_t length, uint64_t offset, int *order)
{
	struct io_req req = {.op = op, .offset = offset, .nvec = op != IO_FLUSH, .done = req_done, .owner = order};
	req.vec[0] = (struct io_vec){bytes, length};
	*order = 0;
	return req;
}

static void drain(struct io *io, int n)
{
	for (int tries = 0; n > 0; tries++) {
		assert_true(tries < 1000); /* a poll may also end by a wake */
		n -= io->ops->poll(io, 10 * SECOND);
	}
	assert_int_equal(n, 0);
}

/* ---- another thread ---------------------------------------------------------------------------------------------- */

struct hand {
	struct io *io;
	struct io_req reqs[8];
	int order[8];
	int delivered;
};

/* About as long as a thread needs to leave. */
static void brief_work(struct io_req *req)
{
	volatile uint32_t left = (uint32_t)(req->offset / PAGE) * 500;
	while (left)
		left = left - 1;
}

/* Begins requests and goes, before it has seen the end of any but the first. */
static void *begin_and_leave(void *arg)
{
	struct hand *hand = arg;
	struct io_req first;
	int order;
	first = req_of(IO_READ, other, PAGE, 0, &order);
	hand->io->ops->submit(hand->io, &first);
	while (!order)
		(void)hand->io->ops->poll(hand->io, SECOND);
	for (int i = 0; i < 8; i++) {
		uint8_t *bytes = i % 2 ? other + (size_t)i * PAGE : pool + (size_t)i * PAGE;
		hand->reqs[i] = req_of(i % 2 ? IO_READ : IO_WRITE, bytes, PAGE, (uint64_t)i * PAGE, &hand->order[i]);
		hand->reqs[i].work = brief_work;
		hand->io->ops->submit(hand->io, &hand->reqs[i]);
	}
	hand->delivered = hand->io->ops->poll(hand->io, 0);
	hand->io->ops->leave(hand->io);
	return NULL;
}

static void test_uring__loop_goes_on_when_another_thread_takes_it(void **state)
{
	(void)state;
	struct hand hand = {.io = open_it()};
	for (int round = 0; round < 500; round++) {
		pthread_t thread;
		assert_int_equal(pthread_create(&thread, NULL, begin_and_leave, &hand), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
		drain(hand.io, 8 - hand.delivered);
		for (int i = 0; i < 8; i++) {
			assert_true(hand.order[i] > 0);
			assert_int_equal(hand.reqs[i].result, 0);
			if (i % 2)
				assert_memory_equal(other + (size_t)i * PAGE, pool + (size_t)i * PAGE, PAGE);
		}
		hand.io->ops->leave(hand.io);
	}
	hand.io->ops->close(hand.io);
}

static void *wake_only(void *arg)
{
	struct io *io = arg;
	(void)io->ops->poll(io, 1000000);
	io->ops->wake(io);
	io->ops->leave(io);
	return NULL;
}

static void test_uring__wake_is_kept_when_the_thread_leaves(void **state)
{
	(void)state;
	struct io *io = open_it();
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, wake_only, io), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	uint64_t start = clock_mono_ns(io->clock);
	assert_int_equal(io->ops->poll(io, 60 * SECOND), 0);
	assert_true(clock_mono_ns(io->clock) - start < 30 * SECOND);
	io->ops->close(io);
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

static void *map_new(void *at)
{
	int fd = memfd_create("cairn-test", MFD_CLOEXEC);
	assert_true(fd >= 0 && ftruncate(fd, BYTES) == 0);
	void *base = mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
	assert_ptr_not_equal(base, MAP_FAILED);
	close(fd);
	return base;
}

/* The kernel holds the pages of the old memory; a read into the new at the same address must not go there. */
static void test_uring__bytes_arrive_when_a_buffer_was_mapped_anew(void **state)
{
	(void)state;
	struct io *io = open_it();
	uint8_t *base = map_new(NULL);
	struct io_vec vec[2] = {{base, BYTES}, {other, BYTES}};
	int order;
	io->ops->buffers(io, vec, 2);
	struct io_req req = req_of(IO_READ, base, BYTES, 0, &order);
	io->ops->submit(io, &req);
	drain(io, 1);
	assert_int_equal(req.result, 0);
	assert_memory_equal(base, pool, BYTES);

	io->ops->buffer_gone(io, base);
	assert_ptr_equal(map_new(base), base);
	req = req_of(IO_READ, base, BYTES, 0, &order);
	io->ops->submit(io, &req);
	drain(io, 1);
	assert_memory_equal(base, pool, BYTES);
	(void)io->ops->poll(io, 0);
	memset(base, 0x3c, BYTES);
	req = req_of(IO_WRITE, base, BYTES, 0, &order);
	io->ops->submit(io, &req);
	drain(io, 1);
	req = req_of(IO_READ, other, BYTES, 0, &order); /* this one is registered still */
	io->ops->submit(io, &req);
	drain(io, 1);
	assert_memory_equal(other, base, BYTES);
	munmap(base, BYTES);
	io->ops->close(io);
}

static void test_uring__short_transfers_go_on_when_buffers_are_registered(void **state)
{
	(void)state;
	struct io *io = open_it();
	struct io_vec vec = {other, BYTES};
	int order;
	io->ops->buffers(io, &vec, 1);
	for (uint64_t limit = 3 * PAGE; limit >= 1000; limit -= 3 * PAGE - 1000) {
		file_limit_call(limit); /* 1000 bytes: not by O_DIRECT */
		memset(other, 0, BYTES);
		struct io_req req = req_of(IO_READ, other, BYTES, 0, &order);
		io->ops->submit(io, &req);
		drain(io, 1);
		assert_int_equal(req.result, 0);
		assert_memory_equal(other, pool, BYTES);
		if (limit == 1000)
			break;
	}
	io->ops->close(io);
}

/* Long vectors go as pieces of their own, short ones together, and none twice or not at all. */
static void test_uring__bytes_are_whole_when_long_and_short_vectors_mix(void **state)
{
	(void)state;
	static const uint32_t pages[] = {1, 1300, 2, 3, 64, 63, 1, 2200, 1};
	enum { VECTORS = sizeof pages / sizeof pages[0], ALL = 1300 + 2200 + 64 + 63 + 8 };
	struct io *io = open_it();
	uint8_t *from, *back;
	int order;
	assert_int_equal(posix_memalign((void **)&from, PAGE, (size_t)ALL * PAGE), 0);
	assert_int_equal(posix_memalign((void **)&back, PAGE, (size_t)ALL * PAGE), 0);
	for (size_t i = 0; i < (size_t)ALL * PAGE / 8; i++)
		memcpy(from + i * 8, &i, 8);
	memset(back, 0, (size_t)ALL * PAGE);
	struct io_vec whole[2] = {{from, ALL * PAGE}, {back, 2000 * PAGE}}; /* the last long one is not registered */
	io->ops->buffers(io, whole, 2);
	for (int reads = 0; reads < 2; reads++) {
		struct io_req req = req_of(reads ? IO_READ : IO_WRITE, NULL, 0, 0, &order);
		uint32_t at = 0;
		for (uint32_t i = 0; i < VECTORS; at += pages[i++])
			req.vec[i] = (struct io_vec){(reads ? back : from) + (size_t)at * PAGE, pages[i] * PAGE};
		assert_int_equal(at, ALL);
		req.nvec = VECTORS;
		io->ops->submit(io, &req);
		drain(io, 1);
		assert_int_equal(req.result, 0);
	}
	assert_memory_equal(from, back, (size_t)ALL * PAGE);
	io->ops->close(io);
	free(from);
	free(back);
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

enum { MANY = 150, FEW = 8 };

static void test_uring__urgent_requests_pass_when_many_wait_in_the_background(void **state)
{
	(void)state;
	static struct io_req many[MANY], few[FEW];
	static int order[MANY], urgent[FEW];
	struct io *io = open_it();
	done = 0;
	for (int i = 0; i < MANY; i++) {
		many[i] = req_of(IO_READ, other, PAGE, (uint64_t)(i % 64) * PAGE, &order[i]);
		many[i].background = 1;
		io->ops->submit(io, &many[i]);
	}
	for (int i = 0; i < FEW; i++) {
		few[i] = req_of(IO_READ, other, PAGE, (uint64_t)i * PAGE, &urgent[i]);
		io->ops->submit(io, &few[i]);
	}
	drain(io, MANY + FEW);
	int last = 0;
	for (int i = 0; i < FEW; i++)
		last = urgent[i] > last ? urgent[i] : last;
	if (last > FEW + MANY / 2)
		fail_msg("the last urgent request was number %d", last);
	io->ops->close(io);
}

static void test_uring__device_can_be_opened_when_it_was_just_closed(void **state)
{
	(void)state;
	int order;
	for (int i = 0; i < 30; i++) { /* a ring outlives its descriptor a little: nothing of ours may hang on it */
		struct io *io = open_it(), *again = NULL;
		struct io_req req = req_of(IO_READ, other, BYTES, 0, &order);
		assert_int_equal(io_maker_threads.open(NULL, path, IO_OPEN_READONLY, 1, &again), 0);
		again->ops->close(again);
		io->ops->submit(io, &req);
		io->ops->close(io);
		int fd = open(path, O_RDWR | O_CLOEXEC);
		assert_int_equal(lockf(fd, F_TEST, 0), 0);
		close(fd);
	}
}

/* ---- where it is refused ----------------------------------------------------------------------------------------- */

/* In a child, since a filter stays. 0: all as it should be. */
static int in_refused_world(int errnum)
{
	struct place place;
	struct io *io = NULL;
	cairn *store = NULL;
	if (engine_forbid_uring(errnum))
		return 10;
	if (io_maker_uring.open(NULL, path, 0, 2, &io) != -ENOSYS || io)
		return 11;
	if (io_maker_real.open(NULL, path, 0, 2, &io) || strcmp(io->ops->name, "threads") != 0)
		return 12;
	io->ops->close(io);
	place_init(&place, 32 * MIB, 8 * MIB);
	place.options.io_engine = CAIRN_IO_URING;
	if (cairn_open(place.path, &place.options, &store) != CAIRN_E_ACCESS || !strstr(cairn_error_text(), "io_uring"))
		return 13;
	place.options.io_engine = CAIRN_IO_BEST;
	cairn_key key = key_at(1, 1);
	for (int round = 0; round < 2; round++) {
		store = place_open(&place);
		if (strcmp(stat_of(store).device[0].io_engine, "threads") != 0)
			return 14;
		cairn_space *space = space_named(store, NULL, "refused");
		if (!round)
			put_good(store, space, &key, NULL, 100000, CAIRN_DURABLE_FLASH);
		if (get_status(store, space, &key, 100000) != CAIRN_OK)
			return 15;
		if (cairn_close(store))
			return 16;
	}
	place_done(&place);
	return 0;
}

static void any_work(struct io_req *req)
{
	((uint8_t *)req->vec[0].address)[1]++;
}

/* In a child as well: the second ring is refused, and the loop goes on without one. */
static int without_ring(void)
{
	struct io *io = open_it();
	struct io_req reqs[4];
	int order[4], seen = 0;
	if (engine_forbid_uring(EPERM))
		return 10;
	io->ops->leave(io);
	for (int i = 0; i < 4; i++) {
		reqs[i] = req_of(i == 3 ? IO_FLUSH : IO_READ, other + (size_t)i * PAGE, PAGE, (uint64_t)i * PAGE, &order[i]);
		reqs[i].work = i == 3 ? NULL : any_work;
		io->ops->submit(io, &reqs[i]);
	}
	for (int tries = 0; seen < 4 && tries < 1000; tries++)
		seen += io->ops->poll(io, SECOND);
	for (int i = 0; i < 3; i++)
		if (!order[i] || reqs[i].result || other[i * PAGE + 1] != (uint8_t)(pool[i * PAGE + 1] + 1))
			return 11;
	if (!order[3] || reqs[3].result)
		return 12;
	io->ops->wake(io);
	uint64_t start = clock_mono_ns(io->clock);
	if (io->ops->poll(io, 60 * SECOND) || clock_mono_ns(io->clock) - start > 30 * SECOND)
		return 13;
	io->ops->close(io);
	return 0;
}

static void test_uring__loop_goes_on_when_the_next_ring_is_refused(void **state)
{
	(void)state;
	int status = 0;
	fflush(NULL);
	pid_t child = fork();
	if (!child)
		_exit(without_ring());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

static void test_uring__store_opens_with_threads_when_io_uring_is_refused(void **state)
{
	(void)state;
	const int refusals[] = {EPERM, ENOSYS, EACCES, ENOMEM};
	for (int i = 0; i < 4; i++) {
		int status = 0;
		fflush(NULL);
		pid_t child = fork();
		if (!child)
			_exit(in_refused_world(refusals[i]));
		assert_int_equal(waitpid(child, &status, 0), child);
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			fail_msg("refused with errno %d: status %x", refusals[i], (unsigned)status);
	}
}

static void test_uring__store_says_what_it_uses_when_asked(void **state)
{
	(void)state;
	struct place place;
	const char *const names[] = {"io_uring", "threads", "io_uring"};
	place_init(&place, 32 * MIB, 8 * MIB);
	for (uint32_t engine = 0; engine < 3; engine++) {
		place.options.io_engine = engine;
		cairn *store = place_open(&place);
		struct cairn_stat stat = stat_of(store);
		assert_string_equal(stat.device[0].io_engine, names[engine]);
		assert_int_equal(cairn_close(store), 0);
	}
	place.options.io_engine = 3;
	cairn *store = NULL;
	assert_int_equal(cairn_open(place.path, &place.options, &store), CAIRN_E_INVAL);
	place_done(&place);
}

/* tmpfs took no O_DIRECT before Linux 6.6: where it takes none, the store must work and say so. */
static void test_uring__device_is_buffered_when_the_file_system_has_no_direct(void **state)
{
	(void)state;
	struct statfs system;
	struct io *io = NULL;
	if (statfs("/dev/shm", &system) || system.f_type != TMPFS)
		skip();
	char name[] = "/dev/shm/cairn-uring-XXXXXX";
	int order, fd = mkstemp(name);
	assert_true(fd >= 0);
	int refuses = fcntl(fd, F_SETFL, O_DIRECT) != 0;
	close(fd);
	assert_int_equal(io_maker_uring.open(NULL, name, 0, 2, &io), 0);
	assert_int_equal(io->direct, !refuses);
	struct io_req req = req_of(IO_WRITE, pool, BYTES, 0, &order);
	io->ops->submit(io, &req);
	drain(io, 1);
	assert_int_equal(req.result, 0);
	req = req_of(IO_READ, other, BYTES, 0, &order);
	io->ops->submit(io, &req);
	drain(io, 1);
	assert_memory_equal(other, pool, BYTES);
	io->ops->close(io);
	assert_int_equal(unlink(name), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_uring__loop_goes_on_when_another_thread_takes_it, setup, teardown),
		cmocka_unit_test_setup_teardown(test_uring__wake_is_kept_when_the_thread_leaves, setup, teardown),
		cmocka_unit_test_setup_teardown(test_uring__bytes_arrive_when_a_buffer_was_mapped_anew, setup, teardown),
		cmocka_unit_test_setup_teardown(test_uring__short_transfers_go_on_when_buffers_are_registered, setup, teardown),
		cmocka_unit_test_setup_teardown(test_uring__bytes_are_whole_when_long_and_short_vectors_mix, setup, teardown),
		cmocka_unit_test_setup_teardown(test_uring__loop_goes_on_when_the_next_ring_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_uring__urgent_requests_pass_when_many_wait_in_the_background, setup,
		                                teardown),
		cmocka_unit_test_setup_teardown(test_uring__device_can_be_opened_when_it_was_just_closed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_uring__store_says_what_it_uses_when_asked, setup, teardown),
		cmocka_unit_test_setup_teardown(test_uring__device_is_buffered_when_the_file_system_has_no_direct, setup,
		                                teardown),
		cmocka_unit_test_setup_teardown(test_uring__store_opens_with_threads_when_io_uring_is_refused, setup, teardown),
	};
	if (engine_uring_refused())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
