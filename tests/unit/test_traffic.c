/* SPDX-License-Identifier: Apache-2.0 */
/* src/daemon/traffic.c: what is under way stays within its bound; what is larger goes in pieces, small ones always. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "store/remote.h"
#include "unit/served_lib.h"

#define BOUND (2 * MIB)
#define PART  (128u << 10)
enum {
	LARGE = 500000,
	BLOCKS = 32, /* of one put: twice the bound */
	CLIENTS = 3,
	THREADS = 4, /* of each */
};

/* ---- by itself --------------------------------------------------------------------------------------------------- */

struct alone {
	struct daemon daemon;
	struct client clients[3];
	struct conn conns[4]; /* the last two are the third client's */
};

static struct alone *alone_new(uint64_t max)
{
	struct alone *alone = calloc(1, sizeof *alone);
	pthread_mutex_init(&alone->daemon.lock, NULL);
	alone->daemon.traffic.max = max;
	for (int i = 0; i < 4; i++) {
		alone->conns[i].daemon = &alone->daemon;
		alone->conns[i].client = &alone->clients[i < 3 ? i : 2];
	}
	return alone;
}

static void alone_free(struct alone *alone)
{
	for (int i = 0; i < 4; i++)
		traffic_leave(&alone->conns[i]);
	assert_int_equal(alone->daemon.traffic.used, 0);
	assert_int_equal(alone->daemon.traffic.kept, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(alone->clients[i].under_way, 0);
	pthread_mutex_destroy(&alone->daemon.lock);
	free(alone);
}

static void test_traffic__leaves_room_for_others(void **state)
{
	(void)state;
	struct alone *alone = alone_new(10 * MIB);
	struct conn *a = &alone->conns[0], *b = &alone->conns[1];
	assert_int_equal(traffic_enter(a, 4 * MIB), 0);
	assert_int_equal(traffic_enter(a, 4 * MIB), 0); /* four fifths */
	assert_int_equal(traffic_enter(a, 1 * MIB), CAIRN_E_BUSY);
	assert_non_null(strstr(cairn_error_text(), "busy"));
	traffic_forget(&alone->daemon, a->client);
	assert_int_equal(traffic_enter(b, 1 * MIB), 0);
	/* By connections of one client it is no more. */
	assert_int_equal(traffic_enter(&alone->conns[2], MIB / 2), 0);
	assert_int_equal(traffic_enter(&alone->conns[3], MIB / 2), CAIRN_E_BUSY);
	assert_int_equal(alone->clients[2].refused, 1);
	assert_int_equal(alone->daemon.traffic.refused, 2);
	assert_true(alone->daemon.traffic.used <= 10 * MIB);
	alone_free(alone);
}

static void test_traffic__lets_small_ones_through_when_it_is_full(void **state)
{
	(void)state;
	struct alone *alone = alone_new(1 * MIB);
	alone->daemon.traffic.used = MIB;
	for (int i = 0; i < 100; i++) {
		assert_int_equal(traffic_enter(&alone->conns[1], 60000), 0);
		assert_int_equal(traffic_enter(&alone->conns[1], 60000), CAIRN_E_BUSY); /* of one request: no longer small */
		traffic_end(&alone->conns[1]);
	}
	assert_int_equal(alone->clients[1].under_way, 0);
	assert_int_equal(alone->daemon.traffic.used, MIB);
	alone->daemon.traffic.used = 0;
	alone_free(alone);
}

/* A large one among many small ones comes to its turn. */
static void test_traffic__keeps_room_for_who_waits(void **state)
{
	(void)state;
	struct alone *alone = alone_new(10 * MIB);
	struct conn *a = &alone->conns[0], *b = &alone->conns[1], *c = &alone->conns[2], *d = &alone->conns[3];
	assert_int_equal(traffic_enter(a, 3 * MIB), 0);
	assert_int_equal(traffic_enter(c, 1 * MIB), 0);
	assert_int_equal(traffic_enter(b, 7 * MIB), CAIRN_E_BUSY); /* waits from here on */
	assert_int_equal(traffic_enter(d, 1 * MIB), CAIRN_E_BUSY); /* which would fit */
	traffic_end(a);
	assert_int_equal(traffic_enter(d, 3 * MIB), CAIRN_E_BUSY);
	traffic_end(c);
	assert_int_equal(traffic_enter(b, 7 * MIB), 0);
	assert_int_equal(traffic_enter(d, 1 * MIB), 0); /* nobody waits any more */
	traffic_end(b);
	/* One that goes away, or does not come again, is not waited for. */
	assert_int_equal(traffic_enter(b, 7 * MIB), 0);
	assert_int_equal(traffic_enter(a, 7 * MIB), CAIRN_E_BUSY);
	assert_int_equal(traffic_enter(c, 1 * MIB), CAIRN_E_BUSY);
	alone->daemon.traffic.waiting.until_ms = link_now_ms();
	assert_int_equal(traffic_enter(c, MIB / 4), 0);
	assert_int_equal(traffic_enter(a, 9 * MIB), CAIRN_E_SIZE); /* never: it does not wait either */
	assert_non_null(strstr(cairn_error_text(), "raise in_flight"));
	alone_free(alone);
}

static void test_traffic__counts_what_buffers_keep(void **state)
{
	(void)state;
	struct alone *alone = alone_new(8 * MIB);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(link_buffer_fit(&alone->conns[i].in, 1 * MIB), 0);
		traffic_end(&alone->conns[i]);
	}
	/* A quarter of the bound at most: the others' are freed. */
	assert_true(alone->daemon.traffic.kept == alone->daemon.traffic.used);
	assert_int_equal(alone->daemon.traffic.kept, 2 * (MIB - TRAFFIC_SMALL));
	assert_true(alone->conns[0].in.room && alone->conns[1].in.room);
	assert_false(alone->conns[2].in.room || alone->conns[3].in.room);
	assert_int_equal(traffic_enter(&alone->conns[3], 6 * MIB), 0);
	alone_free(alone);
}

static void test_traffic__has_a_default_that_fits_the_memory(void **state)
{
	(void)state;
	assert_int_equal(traffic_default(0), 256 << 10);
	assert_int_equal(traffic_default(64 * MIB), 32 * MIB);
	assert_int_equal(traffic_default(256 * MIB), 128 * MIB);
	assert_int_equal(traffic_default(2048ull * MIB), 128 * MIB);
	assert_int_equal(traffic_default(65536ull * MIB), 4096ull * MIB);
}

/* ---- a cairnd ---------------------------------------------------------------------------------------------------- */

static struct traffic_stat traffic_of(struct served *served)
{
	struct traffic_stat stat;
	traffic_stat(&served->daemon, &stat);
	return stat;
}

/* When nothing is under way: an answer is sent before its bytes are given back. */
static void traffic_is_left(struct served *served)
{
	int64_t until = link_now_ms() + 10000;
	pthread_mutex_lock(&served->daemon.lock);
	while (served->daemon.traffic.used != served->daemon.traffic.kept && link_now_ms() < until) {
		pthread_mutex_unlock(&served->daemon.lock);
		usleep(1000);
		pthread_mutex_lock(&served->daemon.lock);
	}
	assert_int_equal(served->daemon.traffic.used, served->daemon.traffic.kept);
	pthread_mutex_unlock(&served->daemon.lock);
}

struct putter {
	pthread_t thread;
	cairn *store;
	cairn_space *space;
	uint64_t chain;
	int good;
};

/* Puts, twice (the second time it is all there), and gets; in one call each. */
static void *putter_main(void *arg)
{
	struct putter *putter = arg;
	struct cairn_item items[BLOCKS] = {0};
	struct cairn_buf bufs[BLOCKS];
	struct cairn_call call = {.size = sizeof call, .timeout_ms = 60000};
	uint8_t *bytes = malloc((size_t)BLOCKS * PART);
	long good = 0;
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < BLOCKS; i++) {
			bufs[i] = cairn_buf_of(bytes + (size_t)i * PART, PART);
			items[i] = (struct cairn_item){.key = key_at(putter->chain, i), .bufs = &bufs[i], .nbufs = 1};
			if (round < 2)
				memset(bytes + (size_t)i * PART, (int)(putter->chain * 7 + i), PART);
		}
		if (round < 2) {
			good += cairn_put(putter->store, putter->space, items, BLOCKS, &call);
			continue;
		}
		memset(bytes, 0, (size_t)BLOCKS * PART);
		good += cairn_get(putter->store, putter->space, items, BLOCKS, &call);
		for (uint32_t i = 0; i < BLOCKS; i++)
			for (uint32_t at = 0; at < PART; at += 4095)
				good -= bytes[(size_t)i * PART + at] != (uint8_t)(putter->chain * 7 + i);
	}
	putter->good = good == 3 * BLOCKS;
	if (!putter->good)
		print_message("chain %u: %ld: %s\n", (unsigned)putter->chain, good, cairn_error_text());
	free(bytes);
	return NULL;
}

/* Each call is twice as large as all that may be under way, and twelve are made at a time. */
static void test_traffic__large_calls_of_many_end_in_pieces(void **state)
{
	(void)state;
	struct served served;
	struct putter putters[CLIENTS * THREADS];
	cairn *stores[CLIENTS];
	served_begin(&served, 96 * MIB, 1);
	traffic_set(&served.daemon, BOUND);
	for (int i = 0; i < CLIENTS * THREADS; i++) {
		if (i % THREADS == 0)
			stores[i / THREADS] = served_client(&served);
		putters[i] = (struct putter){.store = stores[i / THREADS],
		                             .space = space_named(stores[i / THREADS], NULL, "m"),
		                             .chain = (uint64_t)i + 1};
	}
	for (int i = 0; i < CLIENTS * THREADS; i++)
		assert_int_equal(pthread_create(&putters[i].thread, NULL, putter_main, &putters[i]), 0);
	for (int i = 0; i < CLIENTS * THREADS; i++) {
		pthread_join(putters[i].thread, NULL);
		assert_true(putters[i].good);
	}
	struct cairn_stat stat = stat_of(stores[0]);
	assert_true(stat.in_flight_refused > 0);
	assert_int_equal(stat.in_flight_limit_bytes, BOUND);
	assert_true(served.daemon.traffic.most > 0 && served.daemon.traffic.most <= BOUND);
	traffic_is_left(&served);
	for (int i = 0; i < CLIENTS; i++)
		assert_int_equal(cairn_close(stores[i]), 0);
	served_wait(&served, 0);
	assert_int_equal(served.daemon.traffic.used, 0);
	served_end(&served);
}

/* Of a client that begins a put and does not go on. */
static struct link *half_put(struct served *served, uint64_t bulk_bytes)
{
	struct link_place place;
	struct link *net;
	struct wire_head head;
	struct link_buffer body = {0};
	int fds[WIRE_FDS_MAX];
	uint8_t bytes[8192];
	assert_int_equal(link_place_take(served->place_text, &place), 0);
	assert_int_equal(link_connect(&place, NULL, 10000, &net), 0);
	struct wire_request *request = calloc(1, sizeof *request);
	for (int i = 0; i < 2; i++) {
		struct bytes_writer w = bytes_writer_of(bytes, sizeof bytes);
		request->type = i ? WIRE_PUT : WIRE_HELLO;
		if (i) {
			memset(&request->u, 0, sizeof request->u);
			request->u.batch.nitems = 1;
			request->u.batch.items[0].length = bulk_bytes - 8;
		}
		wire_request_encode(request, &w);
		head = (struct wire_head){.version = WIRE_VERSION,
		                          .type = (uint16_t)request->type,
		                          .id = (uint64_t)i + 1,
		                          .body_bytes = (uint32_t)w.used,
		                          .bulk_bytes = i ? bulk_bytes : 0};
		assert_int_equal(link_send(net, &head, bytes, NULL, 0), 0);
		if (!i)
			assert_int_equal(link_receive(net, 10000, &head, &body, fds), 0);
	}
	free(request);
	link_buffer_done(&body);
	return net;
}

static void test_traffic__says_busy_and_serves_what_is_small(void **state)
{
	(void)state;
	struct served served;
	served_begin(&served, 32 * MIB, 1);
	traffic_set(&served.daemon, MIB);
	cairn *store = served_client(&served);
	cairn_space *space = space_named(store, NULL, "m");
	struct link *half = half_put(&served, 3 * MIB / 4);
	while (traffic_of(&served).used < MIB / 2)
		usleep(1000);
	assert_int_equal(put_chain(store, space, 1, 0, 8, 30000, 0), 8);
	for (uint32_t i = 0; i < 8; i++) {
		cairn_key key = key_at(1, i);
		assert_int_equal(get_status(store, space, &key, 30000), CAIRN_OK);
	}
	uint8_t *bytes = calloc(1, LARGE);
	struct cairn_buf buf = cairn_buf_of(bytes, LARGE);
	struct cairn_item item = {.key = key_at(2, 0), .bufs = &buf, .nbufs = 1};
	struct cairn_call call = {.size = sizeof call, .timeout_ms = 300};
	int64_t begun = link_now_ms();
	assert_int_equal(cairn_put(store, space, &item, 1, &call), CAIRN_E_BUSY);
	assert_int_equal(item.status, CAIRN_E_BUSY);
	assert_non_null(strstr(cairn_error_text(), "busy"));
	assert_true(link_now_ms() - begun < 5000);
	uint64_t refused = traffic_of(&served).refused;
	assert_true(refused > 0);
	/* It is its own end that gives its bytes back. */
	link_close(half);
	call.timeout_ms = 30000;
	assert_int_equal(cairn_put(store, space, &item, 1, &call), 1);
	assert_int_equal(cairn_get(store, space, &item, 1, &call), 1);
	/* A part that can never be under way is an answer at once. */
	traffic_set(&served.daemon, MIB / 2);
	assert_int_equal(cairn_get(store, space, &item, 1, &call), 0);
	assert_int_equal(item.status, CAIRN_E_SIZE);
	item.key = key_at(2, 1);
	assert_int_equal(cairn_put(store, space, &item, 1, &call), CAIRN_E_SIZE);
	assert_non_null(strstr(cairn_error_text(), "raise in_flight"));
	free(bytes);
	assert_int_equal(cairn_close(store), 0);
	served_end(&served);
}

/* Who has not said hello is given no memory for a body that is no hello. */
static void test_traffic__takes_no_large_body_of_a_stranger(void **state)
{
	(void)state;
	struct served served;
	served_begin(&served, 16 * MIB, 1);
	struct link_place place;
	struct link *net;
	struct wire_head head = {.version = WIRE_VERSION, .type = WIRE_HELLO, .body_bytes = WIRE_BODY_MAX};
	struct link_buffer body = {0};
	int fds[WIRE_FDS_MAX];
	uint8_t bytes[WIRE_HEAD_BYTES];
	static uint8_t zeros[WIRE_BODY_MAX];
	wire_head_encode(&head, zeros, bytes);
	assert_int_equal(link_place_take(served.place_text, &place), 0);
	assert_int_equal(link_connect(&place, NULL, 10000, &net), 0);
	assert_int_equal(link_send_bytes(net, bytes, sizeof bytes), 0);
	assert_int_equal(link_receive(net, 10000, &head, &body, fds), -ECONNRESET); /* before its body has come */
	link_buffer_done(&body);
	link_close(net);
	served_end(&served);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_traffic__leaves_room_for_others),
		cmocka_unit_test(test_traffic__lets_small_ones_through_when_it_is_full),
		cmocka_unit_test(test_traffic__keeps_room_for_who_waits),
		cmocka_unit_test(test_traffic__counts_what_buffers_keep),
		cmocka_unit_test(test_traffic__has_a_default_that_fits_the_memory),
		cmocka_unit_test(test_traffic__large_calls_of_many_end_in_pieces),
		cmocka_unit_test(test_traffic__says_busy_and_serves_what_is_small),
		cmocka_unit_test(test_traffic__takes_no_large_body_of_a_stranger),
	};
	return cmocka_run_group_tests_name("traffic", tests, NULL, NULL);
}
