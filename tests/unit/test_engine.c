/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that both engines of real I/O must pass (src/io/work.c, src/io/uring.c), on a real file of the temporary
 * directory. Each test makes and removes its own. They run over both, or over the one that CAIRN_TEST_IO names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/random.h"
#include "io/file.h"
#include "io/io.h"
#include "lib/engine.h"

#define PAGE 4096u
#define SECOND 1000000000ull
#define POOL_PAGES 256u

static char folder[256], path[300];
static _Alignas(4096) uint8_t pool[POOL_PAGES * PAGE], other[POOL_PAGES * PAGE];

static int setup(void **state)
{
	(void)state;
	const char *tmp = getenv("TMPDIR");
	snprintf(folder, sizeof(folder), "%s/cairn-engine-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/device", folder);
	memset(pool, 0, sizeof(pool));
	memset(other, 0, sizeof(other));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	file_fail_at(0, 0, 0);
	file_fail_fdatasync(0);
	file_limit_call(0);
	mem_fail_at(0, 0);
	(void)unlink(path);
	return rmdir(folder);
}

static const struct io_maker *maker;

static int by_threads(void)
{
	return maker == &io_maker_threads;
}

static int dev_open(const char *name, uint32_t flags, uint32_t threads, struct io **ret_io)
{
	return maker->open(maker->arg, name, flags, threads, ret_io);
}

static struct io *open_new(uint32_t threads)
{
	struct io *io = NULL;
	assert_int_equal(dev_open(path, IO_OPEN_CREATE | IO_OPEN_EXCLUSIVE, threads, &io), 0);
	return io;
}

static void fill(uint8_t *bytes, uint64_t length, uint64_t seed)
{
	struct random random;
	random_init(&random, seed);
	for (uint64_t i = 0; i < length; i += 8) {
		uint64_t value = random_next(&random);
		memcpy(bytes + i, &value, 8);
	}
}

/* A request that notes its completion. */
struct call {
	struct io_req req;
	int done, worked;
	int order; /* in which it was completed, from 1 */
	sem_t *started, *go;
	pthread_t worker;
};

static int completed;

static void call_done(struct io_req *req)
{
	struct call *call = req->owner;
	call->done++;
	call->order = ++completed;
}

static void call_work(struct io_req *req)
{
	struct call *call = req->owner;
	call->worked++;
	call->worker = pthread_self();
	if (call->started)
		sem_post(call->started);
	while (call->go && sem_wait(call->go) != 0)
		;
}

static struct call *call_init(struct call *call, uint32_t op, void *bytes, uint32_t length, uint64_t offset)
{
	memset(call, 0, sizeof(*call));
	call->req = (struct io_req){.op = op, .offset = offset, .done = call_done, .work = call_work, .owner = call};
	call->req.nvec = op == IO_FLUSH ? 0 : 1;
	call->req.vec[0] = (struct io_vec){bytes, length};
	call->req.result = 12345; /* must be overwritten */
	return call;
}

static void drain(struct io *io, int count)
{
	while (count > 0) {
		int now = io->ops->poll(io, 10 * SECOND);
		assert_true(now > 0);
		count -= now;
	}
	assert_int_equal(count, 0);
}

static int run_call(struct io *io, uint32_t op, void *bytes, uint32_t length, uint64_t offset)
{
	struct call call;
	io->ops->submit(io, &call_init(&call, op, bytes, length, offset)->req);
	drain(io, 1);
	assert_int_equal(call.done, 1);
	assert_int_equal(call.worked, 1);
	return call.req.result;
}

/* Keeps a worker busy until plug_out. io_uring has its workers for `work` alone, and uses them where there is more than
 * one request: there the plug comes with a companion that goes on until it has begun. */
struct plug {
	struct call call, companion;
	struct io *io;
	sem_t started, go;
};

static void companion_done(struct io_req *req)
{
	struct plug *plug = req->owner;
	int begun = 0;
	plug->companion.done = sem_getvalue(&plug->started, &begun) == 0 && begun > 0;
	if (!plug->companion.done)
		plug->io->ops->submit(plug->io, req);
}

static void plug_in(struct plug *plug, struct io *io, uint32_t op)
{
	call_init(&plug->call, op, pool, PAGE, 0);
	assert_int_equal(sem_init(&plug->started, 0, 0) + sem_init(&plug->go, 0, 0), 0);
	plug->io = io;
	plug->call.started = &plug->started;
	plug->call.go = &plug->go;
	io->ops->submit(io, &plug->call.req);
	if (!by_threads()) {
		call_init(&plug->companion, IO_READ, other, PAGE, 0);
		plug->companion.req.work = NULL;
		plug->companion.req.done = companion_done;
		plug->companion.req.owner = plug;
		io->ops->submit(io, &plug->companion.req);
		while (!plug->companion.done)
			(void)io->ops->poll(io, SECOND);
	}
	while (sem_wait(&plug->started) != 0)
		;
}

static void plug_out(struct plug *plug)
{
	sem_post(&plug->go);
}

static void plug_done(struct plug *plug)
{
	assert_int_equal(plug->call.done, 1);
	sem_destroy(&plug->started);
	sem_destroy(&plug->go);
}

/* --- */

static void test_engine__bytes_come_back_when_spread_over_64_vectors(void **state)
{
	(void)state;
	struct io *io = open_new(3);
	struct call call;
	assert_int_equal(io->threaded, 1);
	fill(pool, sizeof(pool), 1);
	call_init(&call, IO_WRITE, NULL, 0, 8 * PAGE);
	call.req.nvec = IO_VEC_MAX;
	for (uint32_t i = 0; i < IO_VEC_MAX; i++) /* backwards in memory, 1 to 3 pages each */
		call.req.vec[i] = (struct io_vec){pool + (IO_VEC_MAX - 1 - i) * 3 * PAGE, (1 + i % 3) * PAGE};
	io->ops->submit(io, &call.req);
	drain(io, 1);
	assert_int_equal(call.req.result, 0);
	if (by_threads())
		assert_false(pthread_equal(call.worker, pthread_self()));

	uint32_t total = 0;
	for (uint32_t i = 0; i < IO_VEC_MAX; i++)
		total += call.req.vec[i].length;
	assert_int_equal(run_call(io, IO_READ, other, total, 8 * PAGE), 0);
	for (uint32_t i = 0, at = 0; i < IO_VEC_MAX; at += call.req.vec[i++].length)
		assert_memory_equal(other + at, call.req.vec[i].address, call.req.vec[i].length);
	assert_int_equal(run_call(io, IO_FLUSH, NULL, 0, 0), 0);
	io->ops->close(io);
}

static void test_engine__bytes_come_back_when_the_calls_are_blocking(void **state)
{
	(void)state;
	struct io *io = open_new(1);
	fill(pool, sizeof(pool), 2);
	assert_int_equal(io->ops->pwrite(io, pool, sizeof(pool), PAGE), 0);
	assert_int_equal(io->ops->sync(io), 0);
	assert_int_equal(io->ops->pread(io, other, sizeof(other), PAGE), 0);
	assert_memory_equal(pool, other, sizeof(pool));
	assert_int_equal(io->ops->pread(io, other, 0, 1u << 30), 0);
	io->ops->close(io);
}

static void transfer_in_pieces(uint64_t limit)
{
	struct io *io = open_new(2);
	fill(pool, sizeof(pool), limit);
	file_limit_call(limit);
	assert_int_equal(run_call(io, IO_WRITE, pool, sizeof(pool), PAGE), 0);
	assert_int_equal(run_call(io, IO_READ, other, sizeof(other), PAGE), 0);
	assert_memory_equal(pool, other, sizeof(pool));
	memset(other, 0, sizeof(other));
	assert_int_equal(io->ops->pread(io, other, sizeof(other), PAGE), 0);
	assert_memory_equal(pool, other, sizeof(pool));
	io->ops->close(io);
}

static void test_engine__transfers_go_on_when_the_kernel_moves_less(void **state)
{
	(void)state;
	transfer_in_pieces(3 * PAGE);
}

/* Whether the file system takes O_DIRECT, but not for 1000 bytes (tmpfs takes any). */
static int direct_is_choosy(void)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, pool, PAGE, 0), PAGE);
	int choosy = fcntl(fd, F_SETFL, O_DIRECT) == 0 && pread(fd, other, PAGE, 0) == PAGE;
	choosy = choosy && pread(fd, other, 1000, 0) < 0;
	close(fd);
	assert_int_equal(unlink(path), 0);
	return choosy;
}

static void test_engine__device_becomes_buffered_when_direct_is_refused(void **state)
{
	(void)state;
	if (!direct_is_choosy())
		skip();
	transfer_in_pieces(1000);
	struct io *io;
	file_limit_call(0);
	assert_int_equal(dev_open(path, 0, 1, &io), 0);
	assert_int_equal(run_call(io, IO_READ, other, PAGE, PAGE), 0);
	assert_int_equal(io->direct, 1);
	file_limit_call(1000);
	assert_int_equal(run_call(io, IO_READ, other, PAGE, PAGE), 0);
	assert_memory_equal(pool, other, PAGE);
	assert_int_equal(io->direct, 0);
	io->ops->close(io);
}

static void test_engine__read_fails_when_it_passes_the_end(void **state)
{
	(void)state;
	struct io *io = open_new(1);
	assert_int_equal(run_call(io, IO_WRITE, pool, 2 * PAGE, 0), 0);
	assert_int_equal(run_call(io, IO_READ, other, 2 * PAGE, 0), 0);
	assert_int_equal(run_call(io, IO_READ, other, 2 * PAGE, PAGE), -EIO);
	assert_int_equal(run_call(io, IO_READ, other, PAGE, 64 * PAGE), -EIO);
	assert_int_equal(io->ops->pread(io, other, 2 * PAGE, PAGE), -EIO);
	assert_int_equal(truncate(path, PAGE + 100), 0); /* an end that is not aligned */
	assert_int_equal(run_call(io, IO_READ, other, PAGE, 0), 0);
	assert_int_equal(run_call(io, IO_READ, other, 2 * PAGE, 0), -EIO);
	assert_int_equal(run_call(io, IO_READ, other, PAGE, UINT64_MAX / PAGE * PAGE), -EINVAL);
	io->ops->close(io);
}

static void test_engine__urgent_requests_go_first_when_all_wait(void **state)
{
	(void)state;
	if (!by_threads())
		skip(); /* they are carried out at once: see test_uring */
	struct io *io = open_new(1);
	struct plug plug;
	struct call calls[6];
	plug_in(&plug, io, IO_WRITE);
	completed = 0;
	for (int i = 0; i < 6; i++) {
		call_init(&calls[i], i == 3 ? IO_FLUSH : IO_WRITE, pool, PAGE, 0);
		calls[i].req.background = i < 3;
		io->ops->submit(io, &calls[i].req);
	}
	plug_out(&plug);
	drain(io, 7);
	plug_done(&plug);
	const int order[6] = {5, 6, 7, 2, 3, 4};
	for (int i = 0; i < 6; i++) {
		assert_int_equal(calls[i].req.result, 0);
		assert_int_equal(calls[i].order, order[i]);
	}
	io->ops->close(io);
}

static void test_engine__poll_returns_at_once_when_the_wake_came_before(void **state)
{
	(void)state;
	struct io *io = open_new(1);
	uint64_t start = clock_mono_ns(io->clock);
	io->ops->wake(io);
	assert_int_equal(io->ops->poll(io, 60 * SECOND), 0);
	assert_true(clock_mono_ns(io->clock) - start < 30 * SECOND);
	start = clock_mono_ns(io->clock); /* and it is used up */
	assert_int_equal(io->ops->poll(io, 30000000), 0);
	assert_true(clock_mono_ns(io->clock) - start >= 29000000);
	assert_int_equal(io->ops->poll(io, 0), 0);
	io->ops->close(io);
}

static void *wake_later(void *arg)
{
	struct io *io = arg;
	usleep(20000);
	io->ops->wake(io);
	return NULL;
}

static void test_engine__poll_returns_when_another_thread_wakes_it(void **state)
{
	(void)state;
	struct io *io = open_new(1);
	pthread_t thread;
	uint64_t start = clock_mono_ns(io->clock);
	assert_int_equal(pthread_create(&thread, NULL, wake_later, io), 0);
	assert_int_equal(io->ops->poll(io, UINT64_MAX), 0);
	assert_true(clock_mono_ns(io->clock) - start < 30 * SECOND);
	pthread_join(thread, NULL);
	io->ops->close(io);
}

static void test_engine__completions_run_when_the_device_closes(void **state)
{
	(void)state;
	struct io *io = open_new(2);
	struct call calls[20];
	for (int i = 0; i < 20; i++)
		io->ops->submit(io, &call_init(&calls[i], IO_WRITE, pool, PAGE, (uint64_t)i * PAGE)->req);
	io->ops->close(io);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(calls[i].done, 1);
		assert_int_equal(calls[i].req.result, 0);
	}
}

static void double_result(struct io_req *req)
{
	req->result = -7;
}

static void test_engine__result_changes_when_work_changes_it(void **state)
{
	(void)state;
	struct io *io = open_new(1);
	struct call call;
	call_init(&call, IO_WRITE, pool, PAGE, 0);
	call.req.work = double_result;
	io->ops->submit(io, &call.req);
	drain(io, 1);
	assert_int_equal(call.req.result, -7);
	call_init(&call, IO_READ, pool, PAGE, 0);
	call.req.work = NULL;
	io->ops->submit(io, &call.req);
	drain(io, 1);
	assert_int_equal(call.req.result, 0);
	io->ops->close(io);
}

static void test_engine__flushes_in_flight_fail_when_one_fails(void **state)
{
	(void)state;
	struct io *io = open_new(1);
	struct plug plug;
	struct call calls[3];
	plug_in(&plug, io, IO_READ);
	for (int i = 0; i < 3; i++) {
		call_init(&calls[i], IO_FLUSH, NULL, 0, 0);
		calls[i].req.background = i == 2;
		io->ops->submit(io, &calls[i].req);
	}
	file_fail_fdatasync(EIO);
	plug_out(&plug);
	drain(io, 4);
	plug_done(&plug);
	for (int i = 0; i < 3; i++)
		assert_int_equal(calls[i].req.result, -EIO);
	assert_int_equal(run_call(io, IO_FLUSH, NULL, 0, 0), 0);
	io->ops->close(io);
}

static void test_engine__flush_fails_when_a_failure_is_undelivered(void **state)
{
	(void)state;
	struct io *io = open_new(1);
	struct plug plug;
	struct call first, second;
	sem_t worked;
	sem_init(&worked, 0, 0);
	file_fail_fdatasync(ENOSPC);
	if (by_threads()) {
		call_init(&first, IO_FLUSH, NULL, 0, 0)->started = &worked;
		io->ops->submit(io, &first.req);
		while (sem_wait(&worked) != 0)
			;
	} else {
		plug_in(&plug, io, IO_FLUSH);
	}
	io->ops->submit(io, &call_init(&second, IO_FLUSH, NULL, 0, 0)->req);
	assert_int_equal(io->ops->sync(io), -ENOSPC);
	if (!by_threads())
		plug_out(&plug);
	drain(io, 2);
	assert_int_equal(by_threads() ? first.req.result : plug.call.req.result, -ENOSPC);
	assert_int_equal(second.req.result, -ENOSPC);
	if (!by_threads())
		plug_done(&plug);
	assert_int_equal(io->ops->sync(io), 0);
	assert_int_equal(run_call(io, IO_FLUSH, NULL, 0, 0), 0);
	sem_destroy(&worked);
	io->ops->close(io);
}

static void test_engine__write_fails_when_a_flush_fails_beside_it(void **state)
{
	(void)state;
	struct io *io = open_new(2);
	struct plug plug;
	struct call flush;
	plug_in(&plug, io, IO_WRITE); /* written, and not yet complete */
	file_fail_fdatasync(EIO);
	io->ops->submit(io, &call_init(&flush, IO_FLUSH, NULL, 0, 0)->req);
	drain(io, 1);
	assert_int_equal(flush.req.result, -EIO);
	plug_out(&plug);
	drain(io, 1);
	plug_done(&plug);
	assert_int_equal(plug.call.req.result, -EIO);
	assert_int_equal(run_call(io, IO_WRITE, pool, PAGE, 0), 0);
	io->ops->close(io);
}

static void test_engine__undelivered_write_fails_when_sync_fails(void **state)
{
	(void)state;
	struct io *io = open_new(1);
	struct plug plug;
	struct call call;
	if (by_threads()) /* one worker: the write is complete when the sync is */
		io->ops->submit(io, &call_init(&call, IO_WRITE, pool, PAGE, 0)->req);
	else
		plug_in(&plug, io, IO_WRITE);
	file_fail_fdatasync(EIO);
	assert_int_equal(io->ops->sync(io), -EIO);
	if (!by_threads())
		plug_out(&plug);
	drain(io, 1);
	assert_int_equal(by_threads() ? call.req.result : plug.call.req.result, -EIO);
	if (!by_threads())
		plug_done(&plug);
	assert_int_equal(io->ops->sync(io), 0);
	io->ops->close(io);
}

/* Every kind of I/O once. Returns the number that failed; all must be 0 or -EDOM. */
static int every_io(struct io *io)
{
	int results[8] = {
		run_call(io, IO_WRITE, pool, PAGE, 0),
		run_call(io, IO_READ, other, PAGE, 0),
		run_call(io, IO_FLUSH, NULL, 0, 0),
		io->ops->pwrite(io, pool, PAGE, 0),
		io->ops->pread(io, other, PAGE, 0),
		io->ops->sync(io),
		io->ops->allocate(io, 0, PAGE),
		io->ops->punch(io, PAGE, PAGE),
	};
	int failed = 0;
	for (int i = 0; i < 8; i++) {
		assert_true(results[i] == 0 || results[i] == -EDOM || (i == 7 && results[i] == -EOPNOTSUPP));
		failed += results[i] == -EDOM;
	}
	return failed;
}

static void test_engine__exactly_the_nth_fails_when_told(void **state)
{
	(void)state;
	struct io *io = open_new(2);
	assert_int_equal(every_io(io), 0);
	for (uint64_t n = 1; n <= 8; n++) {
		file_fail_at(n, EDOM, 0);
		assert_false(file_failed());
		assert_int_equal(every_io(io), 1);
		assert_true(file_failed());
		file_fail_at(n, EDOM, 1);
		assert_int_equal(every_io(io), 9 - n);
	}
	file_fail_at(9, EDOM, 0);
	assert_int_equal(every_io(io), 0);
	assert_false(file_failed());
	io->ops->close(io);
}

static void test_engine__open_fails_when_memory_or_the_path_is_wrong(void **state)
{
	(void)state;
	struct io *io = NULL, *again;
	char link[320];
	assert_int_equal(dev_open(path, 0, 1, &io), -ENOENT);
	assert_int_equal(dev_open(path, IO_OPEN_READONLY, 1, &io), -ENOENT);
	assert_int_equal(dev_open(folder, IO_OPEN_READONLY, 1, &io), -EINVAL);
	mem_fail_at(1, 0);
	assert_int_equal(dev_open(path, IO_OPEN_CREATE, 1, &io), -ENOMEM);
	mem_fail_at(0, 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_null(io);
	io = open_new(1);
	assert_int_equal(dev_open(path, IO_OPEN_CREATE | IO_OPEN_EXCLUSIVE, 1, &again), -EEXIST);
	assert_int_equal(dev_open(path, IO_OPEN_CREATE, 1, &again), 0);
	again->ops->close(again);
	io->ops->close(io);
	snprintf(link, sizeof(link), "%s/link", folder);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(dev_open(link, 0, 1, &io), -ELOOP);
	assert_int_equal(unlink(link), 0);
	assert_int_equal(mkfifo(link, 0600), 0);
	assert_int_equal(dev_open(link, IO_OPEN_READONLY, 1, &io), -EINVAL); /* and does not hang */
	assert_int_equal(unlink(link), 0);
}

static void test_engine__nothing_is_written_when_readonly(void **state)
{
	(void)state;
	struct io *io = open_new(1);
	assert_int_equal(run_call(io, IO_WRITE, pool, PAGE, 0), 0);
	io->ops->close(io);
	assert_int_equal(dev_open(path, IO_OPEN_READONLY, 1, &io), 0);
	assert_int_equal(run_call(io, IO_WRITE, pool, PAGE, 0), -EROFS);
	assert_int_equal(io->ops->pwrite(io, pool, PAGE, 0), -EROFS);
	assert_int_equal(io->ops->allocate(io, 0, 2 * PAGE), -EROFS);
	assert_int_equal(io->ops->punch(io, 0, PAGE), -EROFS);
	assert_int_equal(run_call(io, IO_READ, other, PAGE, 0), 0);
	io->ops->close(io);
}

static void test_engine__space_follows_when_blocks_come_and_go(void **state)
{
	(void)state;
	struct io *io = open_new(1);
	uint64_t size, room, all;
	struct stat file;
	assert_int_equal(io->ops->space(io, &size, &room, &all), 0);
	assert_int_equal(size, 0);
	assert_true(room <= all && all > 0);
	assert_int_equal(io->ops->allocate(io, 0, sizeof(pool)), 0);
	assert_int_equal(io->ops->space(io, &size, &room, &all), 0);
	assert_int_equal(size, sizeof(pool));
	assert_int_equal(io->ops->allocate(io, 0, PAGE), 0); /* does not shrink */
	assert_int_equal(io->ops->allocate(io, INT64_MAX, PAGE), -EINVAL);
	fill(pool, sizeof(pool), 3);
	assert_int_equal(run_call(io, IO_WRITE, pool, sizeof(pool), 0), 0);
	int punched = io->ops->punch(io, PAGE, 128 * PAGE);
	if (punched != -EOPNOTSUPP) {
		assert_int_equal(punched, 0);
		assert_int_equal(run_call(io, IO_READ, other, sizeof(other), 0), 0);
		memset(pool + PAGE, 0, 128 * PAGE);
		assert_memory_equal(other, pool, sizeof(pool));
		assert_int_equal(stat(path, &file), 0);
		assert_true((uint64_t)file.st_blocks * 512 <= sizeof(pool) - 100 * PAGE);
	}
	assert_int_equal(io->ops->space(io, &size, &room, &all), 0);
	assert_int_equal(size, sizeof(pool));
	io->ops->close(io);
}

static void test_engine__descriptor_is_closed_when_a_program_is_executed(void **state)
{
	(void)state;
	struct stat file, found;
	struct io *io = open_new(1);
	assert_int_equal(stat(path, &file), 0);
	assert_int_equal(file.st_mode & 0777, 0600);
	int seen = 0;
	for (int fd = 3; fd < 1024; fd++)
		if (fstat(fd, &found) == 0 && found.st_ino == file.st_ino && found.st_dev == file.st_dev) {
			seen++;
			assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
			assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
		}
	assert_int_equal(seen, 1);
	io->ops->close(io);
}

/* Requests that submit their successors from `done`: each cell is written, flushed, read and compared. */
struct chain {
	struct call call;
	struct io *io;
	uint32_t cell, round, step;
	struct random random;
};

static int chains_left;

static void chain_done(struct io_req *req)
{
	struct chain *chain = req->owner;
	uint8_t *mine = pool + chain->cell * PAGE, *back = other + chain->cell * PAGE;
	assert_int_equal(req->result, 0);
	if (chain->step == 3) {
		assert_memory_equal(mine, back, PAGE);
		chain->step = 0;
		if (++chain->round == 20) {
			chains_left--;
			return;
		}
	}
	if (chain->step == 0)
		fill(mine, PAGE, random_next(&chain->random));
	const uint32_t ops[3] = {IO_WRITE, IO_FLUSH, IO_READ};
	call_init(&chain->call, ops[chain->step], chain->step == 2 ? back : mine, PAGE, chain->cell * PAGE);
	chain->call.req.owner = chain;
	chain->call.req.done = chain_done;
	chain->call.req.work = NULL;
	chain->call.req.background = random_below(&chain->random, 2) != 0;
	chain->step++;
	chain->io->ops->submit(chain->io, &chain->call.req);
}

static void *wake_often(void *arg)
{
	struct io *io = arg;
	for (int i = 0; i < 200; i++) {
		io->ops->wake(io);
		usleep(100);
	}
	return NULL;
}

static void test_engine__all_is_well_when_many_requests_and_threads_mix(void **state)
{
	(void)state;
	struct io *io = open_new(8);
	static struct chain chains[64];
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, wake_often, io), 0);
	chains_left = 64;
	for (uint32_t i = 0; i < 64; i++) {
		chains[i] = (struct chain){.io = io, .cell = i};
		random_init(&chains[i].random, i);
		chains[i].call.req.owner = &chains[i];
		chain_done(&chains[i].call.req);
	}
	while (chains_left > 0)
		(void)io->ops->poll(io, SECOND);
	pthread_join(thread, NULL);
	io->ops->close(io);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_engine__bytes_come_back_when_spread_over_64_vectors, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__bytes_come_back_when_the_calls_are_blocking, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__transfers_go_on_when_the_kernel_moves_less, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__device_becomes_buffered_when_direct_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__read_fails_when_it_passes_the_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__urgent_requests_go_first_when_all_wait, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__poll_returns_at_once_when_the_wake_came_before, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__poll_returns_when_another_thread_wakes_it, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__completions_run_when_the_device_closes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__result_changes_when_work_changes_it, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__flushes_in_flight_fail_when_one_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__flush_fails_when_a_failure_is_undelivered, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__write_fails_when_a_flush_fails_beside_it, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__undelivered_write_fails_when_sync_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__exactly_the_nth_fails_when_told, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__open_fails_when_memory_or_the_path_is_wrong, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__nothing_is_written_when_readonly, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__space_follows_when_blocks_come_and_go, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__descriptor_is_closed_when_a_program_is_executed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_engine__all_is_well_when_many_requests_and_threads_mix, setup, teardown),
	};
	int failed = 0;
	engine_or_skip();
	for (uint32_t engine = CAIRN_IO_THREADS; engine <= CAIRN_IO_URING; engine++) {
		if (engine_wanted() != CAIRN_IO_BEST && engine_wanted() != engine)
			continue;
		if (engine == CAIRN_IO_URING && engine_uring_refused())
			continue; /* it was said */
		maker = engine == CAIRN_IO_URING ? &io_maker_uring : &io_maker_threads;
		printf("engine: %s\n", engine == CAIRN_IO_URING ? "io_uring" : "threads");
		failed += cmocka_run_group_tests(tests, NULL, NULL);
	}
	return failed;
}
