/* SPDX-License-Identifier: Apache-2.0 */
/* src/daemon under clients that lie, flood, replay, and never end what they began: it stays, and keeps nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "store/remote.h"
#include "unit/served_lib.h"

enum {
	LENGTH = 50000
};

/* ---- clients that lie -------------------------------------------------------------------------------------------- */

/* Sends bytes, and waits until the daemon has ended the connection or answered. The answer's result, or INT32_MIN. */
static int64_t say_raw(struct link *net, const void *bytes, size_t length)
{
	struct wire_head head;
	struct link_buffer body = {0};
	int fds[WIRE_FDS_MAX];
	int64_t result = INT32_MIN;
	(void)link_send_bytes(net, bytes, length);
	link_stop(net, LINK_STOP_WRITE);
	if (!link_receive(net, 10000, &head, &body, fds)) {
		for (uint32_t i = 0; i < head.nfds; i++)
			close(fds[i]);
		result = head.result;
	}
	link_buffer_done(&body);
	link_close(net);
	return result;
}

static size_t frame_of(struct wire_request *request, uint8_t *to)
{
	struct bytes_writer w = bytes_writer_of(to + WIRE_HEAD_BYTES, 65536);
	wire_request_encode(request, &w);
	struct wire_head head = {
		.version = WIRE_VERSION, .type = (uint16_t)request->type, .id = 1, .body_bytes = (uint32_t)w.used};
	wire_head_encode(&head, to + WIRE_HEAD_BYTES, to);
	return WIRE_HEAD_BYTES + w.used;
}

static struct link *connected(const struct served *served)
{
	struct link_place place;
	struct link *net;
	assert_int_equal(link_place_take(served->place_text, &place), 0);
	assert_int_equal(link_connect(&place, NULL, 10000, &net), 0);
	return net;
}

/* A hello, then the request, on one connection. */
static int64_t say_after_hello(struct served *served, struct wire_request *request, uint8_t *bytes)
{
	struct wire_head head;
	struct link_buffer body = {0};
	int fds[WIRE_FDS_MAX];
	struct link *net = connected(served);
	struct wire_request hello = {.type = WIRE_HELLO};
	size_t length = frame_of(&hello, bytes);
	assert_int_equal(link_send_bytes(net, bytes, length), 0);
	assert_int_equal(link_receive(net, 10000, &head, &body, fds), 0);
	link_buffer_done(&body);
	return say_raw(net, bytes, frame_of(request, bytes));
}

static void test_hostile__stays_when_clients_lie(void **state)
{
	(void)state;
	struct served served;
	served_begin(&served, 16 * MIB, 0);
	cairn *good = served_client(&served);
	cairn_space *space = space_named(good, NULL, "m");
	put_chain(good, space, 1, 0, 10, LENGTH, 0);
	uint8_t *bytes = calloc(1, 70000);
	struct wire_request *request = calloc(1, sizeof *request);
	struct random random;
	random_init(&random, 4);
	for (int i = 0; i < 200; i++) { /* noise */
		for (int at = 0; at < 400; at++)
			bytes[at] = (uint8_t)random_next(&random);
		(void)say_raw(connected(&served), bytes, 1 + random_below(&random, 400));
	}
	request->type = WIRE_STAT; /* before its hello */
	assert_int_equal(say_raw(connected(&served), bytes, frame_of(request, bytes)), INT32_MIN);
	request->type = WIRE_HELLO; /* cut short, and with a bit changed, at every place */
	size_t length = frame_of(request, bytes);
	for (size_t at = 0; at < length; at++) {
		assert_int_equal(say_raw(connected(&served), bytes, at), INT32_MIN);
		bytes[at] ^= 0x10;
		assert_int_equal(say_raw(connected(&served), bytes, length), INT32_MIN);
		bytes[at] ^= 0x10;
	}
	request->type = WIRE_PUT; /* a space that it has not described, staging memory that it has not given */
	request->u.batch.nitems = 1;
	request->u.batch.space = 1;
	assert_int_equal(say_after_hello(&served, request, bytes), CAIRN_E_INVAL);
	request->type = WIRE_LEASE;
	request->u.batch.space = 77;
	assert_int_equal(say_after_hello(&served, request, bytes), CAIRN_E_INVAL);
	memset(request, 0, sizeof *request);
	request->type = WIRE_RELEASE; /* what is not its own, or nobody's: nothing happens, nothing is answered */
	uint64_t numbers[3] = {1, UINT64_MAX, 1ull << 32 | 1};
	request->u.release.n = 3;
	request->u.release.numbers = (const uint8_t *)numbers;
	cairn_lease *lease = served_lease(good, space, 1, 1);
	assert_int_equal(say_after_hello(&served, request, bytes), INT32_MIN);
	assert_int_equal(stat_of(good).leased_bytes, LENGTH);
	cairn_lease_release(good, lease);
	memset(request, 0, sizeof *request);
	request->type = WIRE_DESCRIBE;
	request->u.describe.canon = bytes + 66000;
	request->u.describe.length = 100;
	assert_int_equal(say_after_hello(&served, request, bytes), CAIRN_E_INVAL);
	memset(request, 0, sizeof *request);
	request->type = WIRE_STAGE; /* without a descriptor */
	request->u.stage_bytes = 1 << 20;
	assert_int_equal(say_after_hello(&served, request, bytes), INT32_MIN);
	/* The others saw nothing of it. */
	assert_int_equal(match_tokens(good, space, 1, 10), 160);
	cairn_key key = key_at(1, 9);
	assert_int_equal(get_status(good, space, &key, LENGTH), CAIRN_OK);
	free(request);
	free(bytes);
	assert_int_equal(cairn_close(good), 0);
	served_end(&served);
}

/* Offsets beyond the staging memory, and a number that was given back and is another lease's by now. */
static void test_hostile__takes_no_place_nor_number_that_is_not_the_clients(void **state)
{
	(void)state;
	struct served served;
	served_begin(&served, 16 * MIB, 0);
	cairn *store = served_client(&served);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 2, LENGTH, 0);
	int error;
	struct remote_reply reply;
	struct wire_request *request = calloc(1, sizeof *request);
	struct remote_link *link = remote_link_take(store->remote, 0, &error);
	assert_non_null(link);
	assert_int_equal(remote_stage_fit(store->remote, link, 1000), 0);
	static const uint64_t wrong[][2] = {
		{256u << 10, 1}, {UINT64_MAX, 2}, {0, (256u << 10) + 1}, {(256u << 10) - 10, 11}};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		for (uint32_t type = WIRE_PUT; type <= WIRE_GET; type++) {
			memset(request, 0, sizeof *request);
			request->type = type;
			assert_int_equal(remote_space_number(store->remote, link, space, &request->u.batch.space), 0);
			request->u.batch.nitems = 1;
			request->u.batch.items[0].key = key_at(1, 0);
			request->u.batch.items[0].offset = wrong[i][0];
			request->u.batch.items[0].length = wrong[i][1];
			assert_int_equal(remote_call(store->remote, link, request, 0, &reply), 0);
			assert_int_equal(reply.head.result, CAIRN_E_INVAL);
		}
	}
	remote_link_drop(store->remote, link, 0);
	free(request);
	struct cairn_item item = {.key = key_at(1, 0)};
	struct cairn_call call = {.size = sizeof call};
	struct cairn_lease_info info;
	uint64_t first, second;
	assert_int_equal(remote_lease_take(store, space, &item, &call, &info, &first), 0);
	remote_lease_release(store, first, info.fd);
	assert_int_equal(remote_lease_take(store, space, &item, &call, &info, &second), 0);
	assert_true(first != second);
	uint8_t number[12]; /* the old number again */
	bytes_set32(number, 1);
	bytes_set64(number + 4, first);
	struct wire_head head = {.version = WIRE_VERSION, .type = WIRE_RELEASE, .body_bytes = sizeof number};
	link = remote_link_take(store->remote, 0, &error);
	assert_int_equal(link_send(link->net, &head, number, NULL, 0), 0);
	remote_link_drop(store->remote, link, 0);
	assert_int_equal(stat_of(store).leased_bytes, LENGTH);
	remote_lease_release(store, second, info.fd);
	assert_int_equal(stat_of(store).leased_bytes, 0);
	assert_int_equal(cairn_close(store), 0);
	served_end(&served);
}

/* Staging memory that could shrink under the daemon's hands, or is smaller than said, is not taken. */
static void test_hostile__refuses_staging_memory_that_could_shrink(void **state)
{
	(void)state;
	struct served served;
	served_begin(&served, 16 * MIB, 0);
	struct wire_request request = {.type = WIRE_HELLO};
	struct wire_head head;
	struct link_buffer body = {0};
	int fds[WIRE_FDS_MAX], memory[4];
	struct link *net = connected(&served);
	uint8_t *bytes = calloc(1, 70000);
	size_t length = frame_of(&request, bytes);
	assert_int_equal(link_send_bytes(net, bytes, length), 0);
	assert_int_equal(link_receive(net, 10000, &head, &body, fds), 0);
	memory[0] = memfd_create("no seal", MFD_ALLOW_SEALING);
	memory[1] = memfd_create("too small", MFD_ALLOW_SEALING);
	memory[2] = open("/dev/zero", O_RDWR);
	assert_int_equal(ftruncate(memory[0], 1 << 20), 0);
	assert_int_equal(fallocate(memory[0], 0, 0, 1 << 20), 0);
	assert_int_equal(ftruncate(memory[1], 4096), 0);
	assert_int_equal(fcntl(memory[1], F_ADD_SEALS, F_SEAL_SHRINK), 0);
	memory[3] = memfd_create("a hole", MFD_ALLOW_SEALING); /* whose pages would be the daemon's */
	assert_int_equal(ftruncate(memory[3], 1 << 20), 0);
	assert_int_equal(fallocate(memory[3], 0, 0, (1 << 20) - 4096), 0);
	assert_int_equal(fcntl(memory[3], F_ADD_SEALS, F_SEAL_SHRINK), 0);
	for (int i = 0; i < 4; i++) {
		uint8_t text[8];
		bytes_set64(text, 1 << 20);
		struct wire_head stage = {.version = WIRE_VERSION, .type = WIRE_STAGE, .nfds = 1, .id = 2, .body_bytes = 8};
		assert_int_equal(link_send(net, &stage, text, &memory[i], 1), 0);
		assert_int_equal(link_receive(net, 10000, &head, &body, fds), 0);
		assert_int_equal(head.result, CAIRN_E_INVAL);
		close(memory[i]);
	}
	link_close(net);
	free(bytes);
	link_buffer_done(&body);
	served_end(&served);
}

/* ---- clients that are slow, or many, on purpose ------------------------------------------------------------------ */

/* Until the daemon has no more than `n` connections; it has so many ms. Whether it came to that. */
static int falls_to(struct served *served, uint32_t n, int64_t ms)
{
	int64_t until = link_now_ms() + ms;
	while (daemon_conns(&served->daemon) > n && link_now_ms() < until)
		usleep(2000);
	return daemon_conns(&served->daemon) <= n;
}

static uint32_t clients_of(struct served *served)
{
	uint32_t n = 0;
	pthread_mutex_lock(&served->daemon.lock);
	for (const struct list *node = served->daemon.clients.next; node != &served->daemon.clients; node = node->next)
		n++;
	pthread_mutex_unlock(&served->daemon.lock);
	return n;
}

static int descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Half a hello, and one that comes byte by byte: given up in the time of a frame. */
static void test_hostile__is_given_up_when_its_frame_does_not_end(void **state)
{
	(void)state;
	struct served served;
	uint8_t bytes[400];
	struct wire_request hello = {.type = WIRE_HELLO};
	for (int tcp = 0; tcp < 2; tcp++) {
		served_begin(&served, 16 * MIB, tcp);
		cairn *good = served_client(&served);
		link_frame_ms = 200;
		size_t length = frame_of(&hello, bytes);
		struct link *half = connected(&served), *slow = connected(&served);
		assert_int_equal(link_send_bytes(half, bytes, length / 2), 0);
		int64_t begun = link_now_ms();
		for (size_t at = 0; at < length && !link_send_bytes(slow, bytes + at, 1); at++)
			usleep(20000);
		assert_true(link_now_ms() - begun < 20ll * (int64_t)length); /* it was cut off before its end */
		assert_true(falls_to(&served, 1, 5000));
		assert_int_equal(stat_of(good).matches, 0); /* those who are idle between frames stay */
		link_frame_ms = 30000;
		link_close(half);
		link_close(slow);
		assert_int_equal(cairn_close(good), 0);
		served_end(&served);
	}
}

/* Asks and asks, and reads no answer: that is its own connection's matter, and for a bounded time. */
static void test_hostile__holds_back_nobody_when_it_reads_no_answers(void **state)
{
	(void)state;
	struct served served;
	uint8_t bytes[400];
	struct wire_head head;
	struct link_buffer body = {0};
	int fds[WIRE_FDS_MAX];
	for (int tcp = 0; tcp < 2; tcp++) {
		served_begin(&served, 16 * MIB, tcp);
		cairn *good = served_client(&served);
		cairn_space *space = space_named(good, NULL, "m");
		put_chain(good, space, 1, 0, 10, LENGTH, 0);
		link_frame_ms = 300;
		struct link *net = connected(&served);
		struct wire_request request = {.type = WIRE_HELLO};
		assert_int_equal(link_send_bytes(net, bytes, frame_of(&request, bytes)), 0);
		assert_int_equal(link_receive(net, 10000, &head, &body, fds), 0);
		memset(&request, 0, sizeof request);
		request.type = WIRE_STAT;
		size_t length = frame_of(&request, bytes);
		int sent = 0;
		while (sent < 100000 && !link_send_bytes(net, bytes, length))
			sent++;
		assert_true(sent < 100000); /* the daemon has stopped to read, or is gone already */
		for (uint32_t i = 0; i < 10; i++) {
			cairn_key key = key_at(1, i);
			assert_int_equal(get_status(good, space, &key, LENGTH), CAIRN_OK);
		}
		for (int tries = 0; tries < 2500 && clients_of(&served) > 1; tries++)
			usleep(2000);
		assert_int_equal(clients_of(&served), 1); /* it was given up */
		link_frame_ms = 30000;
		link_close(net);
		assert_int_equal(cairn_close(good), 0);
		served_end(&served);
	}
	link_buffer_done(&body);
}

/* More connections than there may be: who comes then is told so; those that are there go on; and it ends. */
static void test_hostile__leaves_others_a_clear_answer_when_it_floods(void **state)
{
	(void)state;
	struct served served;
	struct rlimit limit, more;
	static struct link *flood[DAEMON_CONNS];
	getrlimit(RLIMIT_NOFILE, &limit);
	more = (struct rlimit){limit.rlim_max, limit.rlim_max};
	if (limit.rlim_max < 3 * DAEMON_CONNS || setrlimit(RLIMIT_NOFILE, &more)) {
		print_message("skipped: %d descriptors are more than a process may have here\n", 3 * DAEMON_CONNS);
		skip();
	}
	served_begin(&served, 16 * MIB, 0);
	cairn *good = served_client(&served), *late = NULL;
	for (int i = 0; i < DAEMON_CONNS - 1; i++)
		flood[i] = connected(&served);
	while (daemon_conns(&served.daemon) < DAEMON_CONNS) /* the last of them are being accepted */
		usleep(1000);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(cairn_open(served.place_text, NULL, &late), CAIRN_E_BUSY);
		assert_non_null(strstr(cairn_error_text(), "connections"));
	}
	assert_int_equal(stat_of(good).matches, 0);
	for (int i = 0; i < DAEMON_CONNS - 1; i++)
		link_close(flood[i]);
	assert_true(falls_to(&served, 1, 10000));
	late = served_client(&served);
	assert_int_equal(stat_of(late).matches, 0);
	assert_int_equal(cairn_close(late), 0);
	assert_int_equal(cairn_close(good), 0);
	served_end(&served);
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* ---- clients that send what does not belong ---------------------------------------------------------------------- */

static void message_with_fds(int socket, const void *bytes, size_t length, int fd, uint32_t n)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(64 * sizeof(int))];
	} control;
	struct iovec part = {(void *)(uintptr_t)bytes, length};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = CMSG_SPACE(n * sizeof(int))};
	memset(&control, 0, sizeof control);
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(n * sizeof(int));
	for (uint32_t i = 0; i < n; i++)
		memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof fd);
	assert_int_equal(sendmsg(socket, &message, MSG_NOSIGNAL), (ssize_t)length);
}

/* Descriptors with frames that say nothing of them, or that are of no use: the connection ends, and none is kept. */
static void test_hostile__leaves_no_descriptors_when_it_sends_some(void **state)
{
	(void)state;
	struct served served;
	uint8_t bytes[400];
	served_begin(&served, 16 * MIB, 0);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), before = descriptors();
	static const uint32_t numbers[] = {1, 2, 16, 17, 40};
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		for (int said = 0; said < 2; said++) {
			struct wire_request hello = {.type = WIRE_HELLO};
			struct wire_head head;
			size_t length = frame_of(&hello, bytes);
			assert_int_equal(wire_head_decode(bytes, &head), 0);
			head.nfds = said ? (uint16_t)(numbers[i] < 16 ? numbers[i] : 16) : 0;
			wire_head_encode(&head, bytes + WIRE_HEAD_BYTES, bytes);
			struct link *net = connected(&served);
			message_with_fds(link_fd(net), bytes, length, null, numbers[i]);
			assert_int_equal(say_raw(net, bytes, 0), INT32_MIN);
		}
	assert_true(falls_to(&served, 0, 5000));
	assert_int_equal(descriptors(), before);
	close(null);
	served_end(&served);
}

/* A whole frame of any type, with a body and counts of the liar's own. */
static int64_t say_body(struct served *served, uint16_t type, const uint8_t *body, uint32_t length, uint64_t bulk)
{
	uint8_t bytes[WIRE_HEAD_BYTES + 1024];
	struct wire_request hello = {.type = WIRE_HELLO};
	struct wire_head head;
	struct link_buffer reply = {0};
	int fds[WIRE_FDS_MAX];
	struct link *net = connected(served);
	assert_int_equal(link_send_bytes(net, bytes, frame_of(&hello, bytes)), 0);
	assert_int_equal(link_receive(net, 10000, &head, &reply, fds), 0);
	link_buffer_done(&reply);
	head = (struct wire_head){.version = WIRE_VERSION, .type = type, .id = 2, .body_bytes = length, .bulk_bytes = bulk};
	memcpy(bytes + WIRE_HEAD_BYTES, body, length < 1024 ? length : 1024);
	wire_head_encode(&head, bytes + WIRE_HEAD_BYTES, bytes);
	return say_raw(net, bytes, WIRE_HEAD_BYTES + (length < 1024 ? length : 1024));
}

/* Counts that are larger than what comes, or than anything: the connection ends. A large one that may be is awaited,
 * and its memory is not there before its bytes are. */
static void test_hostile__ends_when_counts_are_huge(void **state)
{
	(void)state;
	struct served served;
	uint8_t body[1024];
	struct random random;
	random_init(&random, 9);
	for (int tcp = 0; tcp < 2; tcp++) {
		served_begin(&served, 16 * MIB, tcp);
		for (uint16_t type = 2; type < WIRE_TYPES; type++) {
			memset(body, 0xff, sizeof body);
			assert_int_equal(say_body(&served, type, body, 512, 0), INT32_MIN);
			for (int i = 0; i < 20; i++) {
				for (size_t at = 0; at < sizeof body; at++)
					body[at] = (uint8_t)(random_below(&random, 4) ? 0 : random_next(&random));
				(void)say_body(&served, type, body, (uint32_t)random_below(&random, 512), 0);
				(void)say_body(&served, type, body, (uint32_t)random_below(&random, 512),
				               1ull << random_below(&random, 64));
			}
		}
		assert_true(falls_to(&served, 0, 5000));
		assert_true(list_empty(&served.daemon.clients));
		assert_int_equal(stat_of(served.daemon.store).leased_bytes, 0);
		assert_int_equal(stat_of(served.daemon.store).matches, 0);
		served_end(&served);
	}
}

/* What a client sent, recorded and sent again: to the same daemon, over a connection of one's own. Numbers in it are
 * those of another client, and a second hello ends the connection. */
static void test_hostile__gains_nothing_when_it_replays(void **state)
{
	(void)state;
	struct served served;
	served_begin(&served, 16 * MIB, 1);
	cairn *good = served_client(&served);
	cairn_space *space = space_named(good, NULL, "m");
	put_chain(good, space, 1, 0, 10, LENGTH, CAIRN_DURABLE_FLASH);
	cairn_key keys[10];
	for (uint32_t i = 0; i < 10; i++)
		keys[i] = key_at(1, i);
	struct cairn_chain chain = {0, keys, 10};
	cairn_match *match;
	assert_int_equal(cairn_match_take(good, space, &chain, 1, 0, 600000, &match), 0);
	uint8_t *bytes = calloc(1, 70000);
	struct wire_request *request = calloc(1, sizeof *request);
	/* The good one's release of its match, by somebody else. */
	for (uint64_t number = 1; number < 4; number++) {
		uint64_t numbers[2] = {number, 1ull << 32 | number};
		memset(request, 0, sizeof *request);
		request->type = WIRE_MATCH_RELEASE;
		request->u.release.n = 2;
		request->u.release.numbers = (const uint8_t *)numbers;
		assert_int_equal(say_after_hello(&served, request, bytes), INT32_MIN); /* one way */
	}
	assert_int_equal(stat_of(good).matches, 1);
	/* Its get, whose space is not one of the other's. */
	memset(request, 0, sizeof *request);
	request->type = WIRE_FETCH;
	request->u.batch.space = 1;
	request->u.batch.nitems = 1;
	request->u.batch.items[0].key = keys[0];
	request->u.batch.items[0].length = LENGTH;
	assert_int_equal(say_after_hello(&served, request, bytes), CAIRN_E_INVAL);
	memset(request, 0, sizeof *request);
	request->type = WIRE_HELLO;
	assert_int_equal(say_after_hello(&served, request, bytes), INT32_MIN);
	cairn_match_release(good, match);
	assert_int_equal(stat_of(good).matches, 0);
	free(request);
	free(bytes);
	assert_int_equal(cairn_close(good), 0);
	served_end(&served);
}

/* ---- clients that are sent away and live on ---------------------------------------------------------------------- */

struct scribbler {
	uint8_t *bytes;
	size_t length;
	atomic_uint rounds, stop;
};

static void *scribble(void *arg)
{
	struct scribbler *scribbler = arg;
	while (!atomic_load(&scribbler->stop))
		memset(scribbler->bytes, (int)(atomic_fetch_add(&scribbler->rounds, 1) & 255), scribbler->length);
	return NULL;
}

static void scribble_on(struct scribbler *scribbler, uint32_t rounds)
{
	for (uint32_t until = atomic_load(&scribbler->rounds) + rounds; atomic_load(&scribbler->rounds) < until;)
		sched_yield();
}

/* Ends the connections of one client from the daemon's side. */
static uint32_t send_away(struct served *served, const uint8_t client[16])
{
	uint32_t n = 0;
	pthread_mutex_lock(&served->daemon.lock);
	for (struct list *node = served->daemon.conns.next; node != &served->daemon.conns; node = node->next) {
		struct conn *conn = LIST_OF(node, struct conn, link);
		if (!conn->client || memcmp(conn->client->id, client, 16) != 0)
			continue;
		link_stop(conn->net, LINK_STOP_ALL);
		n++;
	}
	pthread_mutex_unlock(&served->daemon.lock);
	return n;
}

/* A put over staging memory that is written to all the while; the connection ends in the middle of the last one. What
 * was stored is what was checked, and stays it, whatever the one who was sent away writes where its bytes came from. */
static void test_hostile__changes_no_bytes_when_it_was_sent_away(void **state)
{
	enum {
		BATCH = 8,
		ROUNDS = 12,
		BLOCKS = BATCH * ROUNDS
	};
	(void)state;
	struct served served;
	served_begin(&served, 32 * MIB, 0);
	cairn *bad = served_client(&served), *good = served_client(&served);
	cairn_space *space = space_named(bad, NULL, "m"), *same = space_named(good, NULL, "m");
	put_chain(good, same, 9, 0, 2, LENGTH, 0);
	cairn_lease *lease = served_lease(bad, space, 9, 0);
	assert_int_equal(stat_of(good).leased_bytes, LENGTH);
	int error;
	struct remote_reply reply;
	struct wire_request *request = calloc(1, sizeof *request);
	struct remote_link *link = remote_link_take(bad->remote, 0, &error);
	assert_non_null(link);
	assert_int_equal(remote_stage_fit(bad->remote, link, BATCH * LENGTH), 0);
	struct scribbler scribbler = {.bytes = link->stage, .length = BATCH * LENGTH};
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, scribble, &scribbler), 0);
	request->type = WIRE_PUT;
	assert_int_equal(remote_space_number(bad->remote, link, space, &request->u.batch.space), 0);
	request->u.batch.nitems = BATCH;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < BATCH; i++) {
			struct wire_item *item = &request->u.batch.items[i];
			item->key = key_at(1, (uint64_t)round * BATCH + i);
			item->offset = (uint64_t)i * LENGTH;
			item->length = LENGTH;
		}
		if (round + 1 < ROUNDS)
			assert_int_equal(remote_call(bad->remote, link, request, 0, &reply), 0);
		else
			assert_int_equal(remote_send(link, request, 0, 0), 0);
	}
	uint32_t others = daemon_conns(&served.daemon);
	others -= send_away(&served, bad->remote->client);
	served_wait(&served, others);
	assert_int_equal(stat_of(good).leased_bytes, 0);
	uint8_t *bytes = calloc(2 * BLOCKS, LENGTH);
	uint32_t there = 0;
	int32_t first[BLOCKS];
	for (uint32_t turn = 0; turn < 2; turn++, scribble_on(&scribbler, 3))
		for (uint32_t i = 0; i < BLOCKS; i++) {
			uint8_t *to = bytes + ((size_t)turn * BLOCKS + i) * LENGTH;
			struct cairn_buf buf = cairn_buf_of(to, LENGTH);
			struct cairn_item item = {.key = key_at(1, i), .bufs = &buf, .nbufs = 1};
			(void)cairn_get(good, same, &item, 1, NULL);
			first[i] = turn ? first[i] : item.status;
			assert_true(item.status == CAIRN_OK || (item.status == CAIRN_MISS && i >= BLOCKS - BATCH));
			assert_int_equal(item.status, first[i]);
			assert_true(item.status != CAIRN_OK || cairn_check(to, LENGTH) == item.ret_check);
			assert_true(!turn || !memcmp(to, to - (size_t)BLOCKS * LENGTH, LENGTH));
			there += item.status == CAIRN_OK;
		}
	assert_true(there >= 2 * (BLOCKS - BATCH));
	atomic_store(&scribbler.stop, 1);
	pthread_join(thread, NULL);
	remote_link_drop(bad->remote, link, 1);
	cairn_lease_release(bad, lease); /* nobody's by now, and not the next one's */
	free(bytes);
	free(request);
	assert_int_equal(cairn_close(bad), 0);
	assert_int_equal(cairn_close(good), 0);
	served_end(&served);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hostile__stays_when_clients_lie),
		cmocka_unit_test(test_hostile__takes_no_place_nor_number_that_is_not_the_clients),
		cmocka_unit_test(test_hostile__refuses_staging_memory_that_could_shrink),
		cmocka_unit_test(test_hostile__is_given_up_when_its_frame_does_not_end),
		cmocka_unit_test(test_hostile__holds_back_nobody_when_it_reads_no_answers),
		cmocka_unit_test(test_hostile__leaves_others_a_clear_answer_when_it_floods),
		cmocka_unit_test(test_hostile__leaves_no_descriptors_when_it_sends_some),
		cmocka_unit_test(test_hostile__ends_when_counts_are_huge),
		cmocka_unit_test(test_hostile__gains_nothing_when_it_replays),
		cmocka_unit_test(test_hostile__changes_no_bytes_when_it_was_sent_away),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
