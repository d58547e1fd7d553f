/* SPDX-License-Identifier: Apache-2.0 */
/* src/store/peer*.c: parts from other cairnds, and what becomes of those that are slow, gone, or wrong. Stores B and C
 * ask A through a proxy of this file, which can hold back, slow down, cut, and change what passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include "store/peer.h"
#include "unit/served_lib.h"

/* ---- a proxy ----------------------------------------------------------------------------------------------------- */

enum proxy_mode {
	PROXY_PASS,
	PROXY_HOLD,    /* takes connections and bytes, and passes nothing on */
	PROXY_GARBAGE, /* answers with what is no frame */
	PROXY_FLIP,    /* changes a byte in what comes back in bulk */
	PROXY_SLOW,    /* so many bytes a second come back */
	PROXY_CUT,     /* ends each connection in the middle of a large answer */
};

struct proxy {
	const char *target; /* the path of a socket */
	int mode;           /* atomic */
	uint64_t bytes_s;
	uint32_t conns; /* atomic: those that were taken */
	int listener, stop;
	char place[64];
	pthread_t thread, threads[256];
	struct proxy_conn {
		struct proxy *proxy;
		int here, there;
	} conn[256];
};

static void nap_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* What came from the target, back to who asked; 0: the connection ends. */
static int proxy_back(struct proxy_conn *conn, uint8_t *bytes, size_t n, uint64_t *total)
{
	struct proxy *proxy = conn->proxy;
	int mode = __atomic_load_n(&proxy->mode, __ATOMIC_ACQUIRE);
	if (mode == PROXY_GARBAGE)
		memset(bytes, 'x', n);
	if (mode == PROXY_FLIP && n > 20000)
		bytes[n / 2] ^= 1;
	*total += n;
	if (mode == PROXY_CUT && *total > 40000)
		return 0;
	while (mode == PROXY_HOLD && !__atomic_load_n(&proxy->stop, __ATOMIC_ACQUIRE)) {
		nap_ms(5);
		mode = __atomic_load_n(&proxy->mode, __ATOMIC_ACQUIRE);
	}
	for (size_t at = 0; at < n && !__atomic_load_n(&proxy->stop, __ATOMIC_ACQUIRE);) {
		size_t take = n - at;
		if (mode == PROXY_SLOW && take > proxy->bytes_s / 100)
			take = proxy->bytes_s / 100;
		ssize_t sent = send(conn->here, bytes + at, take, MSG_NOSIGNAL);
		if (sent <= 0)
			return 0;
		at += (size_t)sent;
		if (mode == PROXY_SLOW)
			nap_ms(10);
	}
	return 1;
}

static void *proxy_conn_main(void *arg)
{
	struct proxy_conn *conn = arg;
	static _Thread_local uint8_t bytes[65536];
	uint64_t total = 0;
	int good = 1;
	while (good && !__atomic_load_n(&conn->proxy->stop, __ATOMIC_ACQUIRE)) {
		struct pollfd polls[2] = {{.fd = conn->here, .events = POLLIN}, {.fd = conn->there, .events = POLLIN}};
		if (poll(polls, 2, 20) < 0)
			break;
		if (polls[0].revents) {
			ssize_t n = recv(conn->here, bytes, sizeof bytes, 0);
			good = n > 0 && send(conn->there, bytes, (size_t)n, MSG_NOSIGNAL) == n;
		}
		if (good && polls[1].revents) {
			ssize_t n = recv(conn->there, bytes, sizeof bytes, 0);
			good = n > 0 && proxy_back(conn, bytes, (size_t)n, &total);
		}
	}
	shutdown(conn->here, SHUT_RDWR);
	shutdown(conn->there, SHUT_RDWR);
	return NULL;
}

static void *proxy_main(void *arg)
{
	struct proxy *proxy = arg;
	int fd;
	while ((fd = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		uint32_t at = __atomic_load_n(&proxy->conns, __ATOMIC_ACQUIRE);
		int there = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		to.sin_port = htons((uint16_t)atoi(strrchr(proxy->target, ':') + 1));
		if (at == 256 || there < 0 || connect(there, (struct sockaddr *)&to, sizeof to)) {
			close(fd);
			close(there);
			continue;
		}
		proxy->conn[at] = (struct proxy_conn){proxy, fd, there};
		assert_int_equal(pthread_create(&proxy->threads[at], NULL, proxy_conn_main, &proxy->conn[at]), 0);
		__atomic_store_n(&proxy->conns, at + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void proxy_start(struct proxy *proxy, const struct served *target)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	memset(proxy, 0, sizeof *proxy);
	proxy->target = target->place_text;
	proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(proxy->listener, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(proxy->listener, 128), 0);
	assert_int_equal(getsockname(proxy->listener, (struct sockaddr *)&address, &length), 0);
	snprintf(proxy->place, sizeof proxy->place, "tcp+plain://127.0.0.1:%d", ntohs(address.sin_port));
	assert_int_equal(pthread_create(&proxy->thread, NULL, proxy_main, proxy), 0);
}

static void proxy_mode(struct proxy *proxy, enum proxy_mode mode)
{
	__atomic_store_n(&proxy->mode, mode, __ATOMIC_RELEASE);
}

static void proxy_stop(struct proxy *proxy)
{
	shutdown(proxy->listener, SHUT_RDWR);
	pthread_join(proxy->thread, NULL);
	close(proxy->listener);
	__atomic_store_n(&proxy->stop, 1, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < proxy->conns; i++) {
		pthread_join(proxy->threads[i], NULL);
		close(proxy->conn[i].here);
		close(proxy->conn[i].there);
	}
}

/* ---- worlds ------------------------------------------------------------------------------------------------------ */

enum {
	BLOCK = 50000
};

/* A cairnd over TCP, and one or more stores that have it as a peer. */
struct peers_world {
	struct served a;
	struct place place;
	const char *names[PEER_MAX];
	cairn *b;
	cairn_space *at_a, *at_b;
};

static void a_start(struct served *a)
{
	memset(a, 0, sizeof *a);
	place_init(&a->place, 64 * MIB, 32 * MIB);
	a->tcp = 1;
	served_start(a);
}

static void a_end(struct served *a)
{
	served_stop(a);
	place_done(&a->place);
}

static cairn *b_open(struct place *place, const char *const *names, uint32_t n, uint32_t wait_ms)
{
	place->options.peers = names;
	place->options.npeers = n;
	place->options.peer_wait_ms = wait_ms;
	return place_open(place);
}

static uint64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void world_begin(struct peers_world *w, const char *name, uint32_t wait_ms)
{
	a_start(&w->a);
	place_init(&w->place, 64 * MIB, 32 * MIB);
	w->names[0] = name ? name : w->a.place_text;
	w->b = b_open(&w->place, w->names, 1, wait_ms);
	w->at_a = space_named(w->a.daemon.store, NULL, "m");
	w->at_b = space_named(w->b, NULL, "m");
}

static void world_end(struct peers_world *w)
{
	verify(w->b);
	assert_int_equal(cairn_close(w->b), 0);
	place_done(&w->place);
	a_end(&w->a);
}

/* ---- what comes -------------------------------------------------------------------------------------------------- */

static void test_peer__a_get_finds_it_there_when_it_is_not_here(void **state)
{
	(void)state;
	struct peers_world w;
	world_begin(&w, NULL, 2000);
	cairn_key key = key_at(1, 0), none = key_at(1, 9);
	put_good(w.a.daemon.store, w.at_a, &key, NULL, BLOCK, CAIRN_DURABLE_NONE);
	struct cairn_item item = get_item(w.b, w.at_b, &key, 0, BLOCK);
	assert_int_equal(item.status, CAIRN_OK);
	assert_int_equal(item.ret_tier, CAIRN_TIER_PEER);
	assert_int_equal(get_status(w.b, w.at_b, &none, BLOCK), CAIRN_MISS);
	item = get_item(w.b, w.at_b, &key, 0, BLOCK);
	assert_int_equal(item.ret_tier, CAIRN_TIER_MEMORY);
	struct cairn_stat stat = stat_of(w.b);
	assert_int_equal(stat.tier[CAIRN_TIER_PEER].hits, 1);
	assert_int_equal(stat.tier[CAIRN_TIER_PEER].hit_bytes, BLOCK);
	assert_int_equal(stat.npeers, 1);
	assert_int_equal(stat.peer[0].hits, 1);
	world_end(&w);
}

/* Gets blocks [from, from + n) of a chain in one batch, checks them, and counts those that came from each tier. */
static long get_chain(cairn *store, const cairn_space *space, uint64_t chain, uint32_t from, uint32_t n,
                      uint32_t ret_tiers[CAIRN_TIERS])
{
	struct cairn_item *items = calloc(n, sizeof *items);
	struct cairn_buf *bufs = calloc(n, sizeof *bufs);
	uint8_t *bytes = malloc((size_t)n * BLOCK);
	memset(ret_tiers, 0, CAIRN_TIERS * sizeof *ret_tiers);
	for (uint32_t i = 0; i < n; i++) {
		bufs[i] = cairn_buf_of(bytes + (size_t)i * BLOCK, BLOCK);
		items[i] = (struct cairn_item){.key = key_at(chain, from + i), .bufs = &bufs[i], .nbufs = 1};
	}
	long good = cairn_get(store, space, items, n, NULL);
	for (uint32_t i = 0; i < n; i++) {
		if (items[i].status == CAIRN_OK)
			assert_true(pattern_is(bytes + (size_t)i * BLOCK, BLOCK, &items[i].key, 0, 0));
		ret_tiers[items[i].ret_tier]++;
	}
	free(items);
	free(bufs);
	free(bytes);
	return good;
}

static struct cairn_match_info info_of(cairn *store, const cairn_space *space, uint64_t chain, uint32_t n)
{
	cairn_key keys[256];
	struct cairn_chain of = {0, keys, n};
	struct cairn_match_info info;
	cairn_match *match;
	for (uint32_t i = 0; i < n; i++)
		keys[i] = key_at(chain, i);
	int error = cairn_match_take(store, space, &of, 1, 0, 0, &match);
	if (error)
		fail_msg("match: %d %s", error, cairn_error_text());
	cairn_match_get_info(match, &info);
	cairn_match_release(store, match);
	return info;
}

static void test_peer__a_match_counts_what_others_have(void **state)
{
	(void)state;
	struct peers_world w;
	uint32_t tiers[CAIRN_TIERS];
	world_begin(&w, NULL, 2000);
	put_chain(w.a.daemon.store, w.at_a, 1, 0, 100, BLOCK, CAIRN_DURABLE_NONE);
	put_chain(w.b, w.at_b, 1, 0, 30, BLOCK, CAIRN_DURABLE_NONE);
	put_chain(w.b, w.at_b, 1, 60, 10, BLOCK, CAIRN_DURABLE_NONE);
	struct cairn_match_info info = info_of(w.b, w.at_b, 1, 120);
	assert_int_equal(info.tokens, 100 * 16);
	assert_int_equal(info.worth_tokens, 100 * 16);
	assert_int_equal(info.bytes, 100ull * BLOCK);
	assert_int_equal(info.tier_bytes[CAIRN_TIER_PEER], 60ull * BLOCK);
	assert_int_equal(info.tier_bytes[CAIRN_TIER_MEMORY], 40ull * BLOCK);
	assert_true(info.tier_s[CAIRN_TIER_PEER] > 0 && info.load_s > info.tier_s[CAIRN_TIER_PEER]);
	assert_int_equal(get_chain(w.b, w.at_b, 1, 0, 100, tiers), 100);
	assert_int_equal(tiers[CAIRN_TIER_PEER], 60);
	assert_int_equal(tiers[CAIRN_TIER_MEMORY], 40);
	assert_int_equal(get_chain(w.b, w.at_b, 1, 0, 100, tiers), 100);
	assert_int_equal(tiers[CAIRN_TIER_MEMORY], 100); /* they are B's own now */
	/* And in its flash, as what is put is. */
	assert_int_equal(cairn_sync(w.b), 0);
	assert_true(stat_of(w.b).tier[CAIRN_TIER_FLASH].parts > 40);
	assert_int_equal(match_tokens(w.b, w.at_b, 1, 120), 100 * 16);
	world_end(&w);
}

/* The parts of A's blocks come in any order; each is linked to the one before it. */
static void test_peer__chains_stay_chains_when_their_parts_came_from_there(void **state)
{
	(void)state;
	struct peers_world w;
	uint32_t tiers[CAIRN_TIERS];
	world_begin(&w, NULL, 2000);
	put_chain(w.a.daemon.store, w.at_a, 1, 0, 60, BLOCK, CAIRN_DURABLE_NONE);
	(void)info_of(w.b, w.at_b, 1, 60);
	assert_int_equal(get_chain(w.b, w.at_b, 1, 0, 60, tiers), 60);
	pthread_mutex_lock(&w.b->lock);
	for (uint32_t i = 1; i < 60; i++) {
		cairn_key key = key_at(1, i), before = key_at(1, i - 1);
		uint32_t entry = catalog_find(w.b->catalog, w.at_b->number, key.bytes, 0);
		assert_true(entry);
		assert_int_equal(catalog_at(w.b->catalog, entry)->parent,
		                 catalog_find(w.b->catalog, w.at_b->number, before.bytes, 0));
	}
	pthread_mutex_unlock(&w.b->lock);
	world_end(&w);
}

/* What the engine asks for next is on its way while it takes what it has asked for; without a match nobody knows. */
static void test_peer__what_a_match_found_is_fetched_before_it_is_asked_for(void **state)
{
	(void)state;
	struct peers_world w;
	uint32_t tiers[CAIRN_TIERS];
	cairn_key keys[40];
	struct cairn_chain chain = {0, keys, 40};
	cairn_match *match;
	world_begin(&w, NULL, 2000);
	put_chain(w.a.daemon.store, w.at_a, 1, 0, 40, BLOCK, CAIRN_DURABLE_NONE);
	put_chain(w.a.daemon.store, w.at_a, 2, 0, 40, BLOCK, CAIRN_DURABLE_NONE);
	for (uint32_t i = 0; i < 40; i++)
		keys[i] = key_at(1, i);
	(void)info_of(w.b, w.at_b, 2, 40); /* released */
	assert_int_equal(get_chain(w.b, w.at_b, 2, 0, 3, tiers), 3);
	assert_int_equal(cairn_match_take(w.b, w.at_b, &chain, 1, 0, 0, &match), 0);
	assert_int_equal(get_chain(w.b, w.at_b, 1, 0, 3, tiers), 3);
	for (uint64_t until = now_ms() + 20000; stat_of(w.b).peer[0].hits < 43 && now_ms() < until;)
		nap_ms(2);
	assert_int_equal(stat_of(w.b).peer[0].hits, 43);
	assert_int_equal(get_chain(w.b, w.at_b, 1, 3, 37, tiers), 37);
	assert_int_equal(tiers[CAIRN_TIER_PEER], 37); /* whoever brought them, that is where they came from */
	cairn_match_release(w.b, match);
	assert_int_equal(stat_of(w.b).peer[0].hits, 43);
	world_end(&w);
}

static void test_peer__flash_of_others_is_as_good(void **state)
{
	(void)state;
	struct peers_world w;
	uint32_t tiers[CAIRN_TIERS];
	a_start(&w.a);
	w.at_a = space_named(w.a.daemon.store, NULL, "m");
	put_chain(w.a.daemon.store, w.at_a, 1, 0, 50, BLOCK, CAIRN_DURABLE_FLASH);
	served_stop(&w.a);
	served_start(&w.a); /* its memory is empty now */
	place_init(&w.place, 64 * MIB, 32 * MIB);
	w.names[0] = w.a.place_text;
	w.b = b_open(&w.place, w.names, 1, 2000);
	w.at_b = space_named(w.b, NULL, "m"); /* A knows the space from its ledger */
	assert_int_equal(info_of(w.b, w.at_b, 1, 50).tier_bytes[CAIRN_TIER_PEER], 50ull * BLOCK);
	assert_int_equal(get_chain(w.b, w.at_b, 1, 0, 50, tiers), 50);
	assert_int_equal(tiers[CAIRN_TIER_PEER], 50);
	assert_true(stat_of(w.a.daemon.store).tier[CAIRN_TIER_FLASH].hits > 0);
	world_end(&w);
}

struct getter {
	cairn *store;
	const cairn_space *space;
	pthread_t thread;
	int status;
};

static void *getter_main(void *arg)
{
	struct getter *getter = arg;
	cairn_key key = key_at(1, 0);
	getter->status = get_status(getter->store, getter->space, &key, BLOCK);
	return NULL;
}

static void test_peer__a_part_is_fetched_once_when_many_want_it(void **state)
{
	(void)state;
	struct peers_world w;
	struct getter getters[8];
	world_begin(&w, NULL, 2000);
	put_chain(w.a.daemon.store, w.at_a, 1, 0, 1, BLOCK, CAIRN_DURABLE_NONE);
	for (int i = 0; i < 8; i++) {
		getters[i] = (struct getter){.store = w.b, .space = w.at_b};
		assert_int_equal(pthread_create(&getters[i].thread, NULL, getter_main, &getters[i]), 0);
	}
	for (int i = 0; i < 8; i++) {
		pthread_join(getters[i].thread, NULL);
		assert_int_equal(getters[i].status, CAIRN_OK);
	}
	assert_int_equal(stat_of(w.a.daemon.store).tier[CAIRN_TIER_MEMORY].hits, 1);
	assert_int_equal(stat_of(w.b).peer[0].hits, 1);
	world_end(&w);
}

static void test_peer__nobody_is_asked_for_what_a_peer_asks(void **state)
{
	(void)state;
	struct served a, b;
	const char *to_b[1], *to_a[1];
	cairn_key key = key_at(1, 0), none = key_at(1, 1);
	/* Two that ask each other; the place of a socket file is known before it is there. */
	memset(&a, 0, sizeof a);
	memset(&b, 0, sizeof b);
	place_init(&a.place, 64 * MIB, 32 * MIB);
	place_init(&b.place, 64 * MIB, 32 * MIB);
	char name_a[200], name_b[200];
	snprintf(name_a, sizeof name_a, "unix:%s/cairn.sock", a.place.path);
	snprintf(name_b, sizeof name_b, "unix:%s/cairn.sock", b.place.path);
	to_a[0] = name_a;
	to_b[0] = name_b;
	a.place.options.peers = to_b;
	b.place.options.peers = to_a;
	a.place.options.npeers = b.place.options.npeers = 1;
	a.place.options.peer_wait_ms = b.place.options.peer_wait_ms = 2000;
	served_start(&a);
	served_start(&b);
	cairn_space *at_a = space_named(a.daemon.store, NULL, "m"), *at_b = space_named(b.daemon.store, NULL, "m");
	put_good(a.daemon.store, at_a, &key, NULL, BLOCK, CAIRN_DURABLE_NONE);
	assert_int_equal(get_status(b.daemon.store, at_b, &none, BLOCK), CAIRN_MISS);
	assert_int_equal(match_tokens(b.daemon.store, at_b, 1, 5), 16);
	assert_int_equal(cairn_drop(a.daemon.store, at_a, &key, 1), 1);
	assert_int_equal(get_status(b.daemon.store, at_b, &key, BLOCK), CAIRN_MISS); /* B believes that A has it */
	assert_true(stat_of(b.daemon.store).peer[0].answers >= 2);
	assert_int_equal(stat_of(a.daemon.store).peer[0].answers, 0);
	/* Clients of B get what A has: from A. */
	cairn *client = served_client(&b);
	cairn_space *there = space_named(client, NULL, "m");
	key = key_at(2, 0);
	put_good(a.daemon.store, at_a, &key, NULL, BLOCK, CAIRN_DURABLE_NONE);
	assert_int_equal(match_tokens(client, there, 2, 3), 16);
	struct cairn_item item = get_item(client, there, &key, 0, BLOCK);
	assert_int_equal(item.status, CAIRN_OK);
	assert_int_equal(item.ret_tier, CAIRN_TIER_PEER);
	assert_int_equal(stat_of(client).tier[CAIRN_TIER_PEER].hits, 1);
	assert_int_equal(cairn_close(client), 0);
	served_stop(&b);
	served_stop(&a);
	place_done(&b.place);
	place_done(&a.place);
}

static void test_peer__a_session_is_resumed_where_it_was_not_saved(void **state)
{
	(void)state;
	struct peers_world w;
	uint32_t tiers[CAIRN_TIERS];
	world_begin(&w, NULL, 2000);
	put_chain(w.a.daemon.store, w.at_a, 1, 0, 10, BLOCK, CAIRN_DURABLE_NONE);
	cairn_key keys[10], tail = key_at(1, 10);
	for (uint32_t i = 0; i < 10; i++)
		keys[i] = key_at(1, i);
	struct cairn_chain chain = {0, keys, 10};
	uint8_t bytes[500];
	pattern_fill(bytes, sizeof bytes, &tail, 0, 0);
	struct cairn_buf buf = cairn_buf_of(bytes, sizeof bytes);
	struct cairn_item tails = {.key = tail, .parent = &keys[9], .bufs = &buf, .nbufs = 1, .flags = CAIRN_ITEM_TAIL};
	struct cairn_save save = {.size = sizeof save, .name = {.name = "talk"}, .chains = &chain, .nchains = 1,
	                          .tails = &tails, .ntails = 1, .state = "state", .state_bytes = 5, .tokens = 165};
	assert_int_equal(cairn_session_save(w.a.daemon.store, w.at_a, &save), 0);

	/* B has not even heard of the space. */
	struct cairn_session_name name = {.name = "talk"}, other = {.name = "talk", .owner = "else"};
	cairn_session *session;
	struct place place;
	place_init(&place, 64 * MIB, 32 * MIB);
	cairn *fresh = b_open(&place, w.names, 1, 2000);
	assert_int_equal(cairn_session_resume(fresh, &other, &session), CAIRN_E_NOENT);
	assert_int_equal(cairn_session_resume(fresh, &name, &session), 0);
	struct cairn_session_info info = {.size = sizeof info};
	struct cairn_chain got;
	cairn_space *space;
	uint64_t length;
	cairn_session_get_info(session, &info);
	assert_int_equal(info.tokens, 165);
	assert_memory_equal(cairn_session_state(session, &length), "state", 5);
	assert_int_equal(cairn_session_chain(session, 0, &got), 0);
	assert_int_equal(got.nkeys, 10);
	assert_int_equal(cairn_session_space(fresh, session, &space), 0);
	assert_int_equal(get_chain(fresh, space, 1, 0, 10, tiers), 10);
	assert_int_equal(tiers[CAIRN_TIER_PEER], 10);
	assert_int_equal(get_status(fresh, space, &tail, 500), CAIRN_OK);
	assert_int_equal(match_tokens(fresh, space, 1, 11), 10 * 16); /* a tail is no block, a peer's neither */
	cairn_session_free(session);
	assert_int_equal(cairn_close(fresh), 0);
	place_done(&place);

	served_stop(&w.a);
	uint64_t begun = now_ms();
	assert_int_equal(cairn_session_resume(w.b, &name, &session), CAIRN_E_NOENT);
	assert_in_range(now_ms() - begun, 0, 1500);
	served_start(&w.a);
	world_end(&w);
}

static void test_peer__what_was_dropped_here_does_not_come_back(void **state)
{
	(void)state;
	struct peers_world w;
	world_begin(&w, NULL, 2000);
	cairn_key key = key_at(1, 0);
	put_good(w.a.daemon.store, w.at_a, &key, NULL, BLOCK, CAIRN_DURABLE_NONE);
	assert_int_equal(get_status(w.b, w.at_b, &key, BLOCK), CAIRN_OK);
	assert_int_equal(cairn_drop(w.b, w.at_b, &key, 1), 1);
	assert_int_equal(get_status(w.b, w.at_b, &key, BLOCK), CAIRN_MISS);
	assert_int_equal(match_tokens(w.b, w.at_b, 1, 1), 0);
	world_end(&w);
}

/* ---- what does not come ------------------------------------------------------------------------------------------ */

static void test_peer__one_that_holds_back_is_stepped_over_when_its_time_is_over(void **state)
{
	(void)state;
	struct served a;
	struct proxy proxy;
	struct place place;
	a_start(&a);
	proxy_start(&proxy, &a);
	proxy_mode(&proxy, PROXY_HOLD);
	place_init(&place, 64 * MIB, 32 * MIB);
	const char *names[] = {proxy.place};
	cairn *b = b_open(&place, names, 1, 50);
	cairn_space *at_a = space_named(a.daemon.store, NULL, "m"), *at_b = space_named(b, NULL, "m");
	cairn_key key = key_at(1, 0);
	put_good(a.daemon.store, at_a, &key, NULL, BLOCK, CAIRN_DURABLE_NONE);
	uint64_t begun = now_ms();
	assert_int_equal(get_status(b, at_b, &key, BLOCK), CAIRN_MISS);
	assert_in_range(now_ms() - begun, 40, 1000);
	begun = now_ms(); /* nobody waits for it a second time */
	for (int i = 0; i < 20; i++)
		assert_int_equal(get_status(b, at_b, &key, BLOCK), CAIRN_MISS);
	assert_in_range(now_ms() - begun, 0, 400);
	for (begun = now_ms(); !stat_of(b).peer[0].failures && now_ms() - begun < 5000;)
		nap_ms(10);
	/* It comes to its senses, and is found again. */
	proxy_mode(&proxy, PROXY_PASS);
	for (begun = now_ms(); get_status(b, at_b, &key, BLOCK) && now_ms() - begun < 20000;)
		nap_ms(20);
	assert_int_equal(get_status(b, at_b, &key, BLOCK), CAIRN_OK);
	assert_true(stat_of(b).peer[0].failures > 0);
	verify(b);
	assert_int_equal(cairn_close(b), 0);
	place_done(&place);
	proxy_stop(&proxy);
	a_end(&a);
}

/* Changes a part's bytes in memory; whole: its checksum too, as if other bytes had been put. */
static void damage(cairn *store, const cairn_space *space, const cairn_key *key, int whole)
{
	pthread_mutex_lock(&store->lock);
	uint32_t entry = catalog_find(store->catalog, space->number, key->bytes, 0);
	assert_true(entry && catalog_at(store->catalog, entry)->slot);
	uint32_t slot = catalog_at(store->catalog, entry)->slot;
	uint8_t *bytes = memory_address(store->memory, slot);
	bytes[BLOCK / 3] ^= 4;
	if (whole)
		memory_slot(store->memory, slot)->raw_check = cairn_check(bytes, BLOCK);
	pthread_mutex_unlock(&store->lock);
}

/* Bytes that are not what A was given; whole: but they agree with the checksum that A sends along. */
static void changed(int whole)
{
	struct peers_world w;
	world_begin(&w, NULL, 2000);
	cairn_key key = key_at(1, (uint64_t)whole);
	put_good(w.a.daemon.store, w.at_a, &key, NULL, BLOCK, CAIRN_DURABLE_NONE);
	damage(w.a.daemon.store, w.at_a, &key, whole);
	struct cairn_item item = get_item(w.b, w.at_b, &key, 0, BLOCK);
	if (!whole && item.status == CAIRN_OK) { /* A found a good one in its flash */
		assert_true(stat_of(w.a.daemon.store).tier[CAIRN_TIER_MEMORY].damaged_parts > 0);
	} else {
		assert_int_equal(item.status, CAIRN_MISS);
		assert_int_equal(stat_of(w.b).tier[CAIRN_TIER_PEER].damaged_parts, 1);
		assert_int_equal(stat_of(w.b).peer[0].damaged_parts, 1);
		assert_int_equal(why(w.b, w.at_b, &key), CAIRN_WHY_NONE);
	}
	world_end(&w);
}

static void test_peer__bytes_that_changed_are_never_delivered(void **state)
{
	(void)state;
	changed(0);
}

static void test_peer__bytes_of_another_part_are_never_delivered(void **state)
{
	(void)state;
	changed(1);
}

/* B has A behind a proxy, and C that has all that A has. */
static void next_best(enum proxy_mode mode, uint64_t bytes_s)
{
	struct served a, c;
	struct proxy proxy;
	struct place place;
	uint32_t tiers[CAIRN_TIERS];
	a_start(&a);
	a_start(&c);
	proxy_start(&proxy, &a);
	proxy.bytes_s = bytes_s;
	place_init(&place, 64 * MIB, 32 * MIB);
	const char *names[] = {proxy.place, c.place_text};
	cairn *b = b_open(&place, names, 2, 2000);
	cairn_space *at_a = space_named(a.daemon.store, NULL, "m"), *at_b = space_named(b, NULL, "m");
	cairn_space *at_c = space_named(c.daemon.store, NULL, "m");
	put_chain(a.daemon.store, at_a, 1, 0, 60, BLOCK, CAIRN_DURABLE_NONE);
	put_chain(c.daemon.store, at_c, 1, 0, 60, BLOCK, CAIRN_DURABLE_NONE);
	struct cairn_match_info info = info_of(b, at_b, 1, 60);
	assert_int_equal(info.tokens, 60 * 16);
	proxy_mode(&proxy, mode);
	uint64_t begun = now_ms();
	assert_int_equal(get_chain(b, at_b, 1, 0, 60, tiers), 60);
	assert_int_equal(tiers[CAIRN_TIER_PEER], 60);
	assert_in_range(now_ms() - begun, 0, 8000);
	verify(b);
	assert_int_equal(cairn_close(b), 0);
	place_done(&place);
	proxy_stop(&proxy);
	a_end(&c);
	a_end(&a);
}

static void test_peer__the_next_best_is_asked_when_one_holds_back(void **state)
{
	(void)state;
	next_best(PROXY_HOLD, 0);
}

static void test_peer__the_next_best_is_asked_when_one_says_garbage(void **state)
{
	(void)state;
	next_best(PROXY_GARBAGE, 0);
}

static void test_peer__the_next_best_is_asked_when_one_cuts_parts_short(void **state)
{
	(void)state;
	next_best(PROXY_CUT, 0);
}

static void test_peer__the_next_best_is_asked_when_bytes_change_on_their_way(void **state)
{
	(void)state;
	next_best(PROXY_FLIP, 0);
}

static void test_peer__the_next_best_is_asked_when_one_trickles(void **state)
{
	(void)state;
	next_best(PROXY_SLOW, 20000);
}

static void test_peer__one_that_is_gone_costs_no_time_and_is_found_again(void **state)
{
	(void)state;
	struct served a;
	struct place place;
	memset(&a, 0, sizeof a);
	place_init(&a.place, 64 * MIB, 32 * MIB);
	served_start(&a);
	place_init(&place, 64 * MIB, 32 * MIB);
	const char *names[] = {a.place_text};
	cairn *b = b_open(&place, names, 1, 500);
	cairn_space *at_a = space_named(a.daemon.store, NULL, "m"), *at_b = space_named(b, NULL, "m");
	put_chain(a.daemon.store, at_a, 1, 0, 20, BLOCK, CAIRN_DURABLE_FLASH);
	assert_int_equal(match_tokens(b, at_b, 1, 20), 20 * 16);
	served_stop(&a);
	cairn_key key = key_at(1, 0);
	uint64_t begun = now_ms();
	for (int i = 0; i < 30; i++)
		assert_int_equal(get_status(b, at_b, &key, BLOCK), CAIRN_MISS);
	assert_int_equal(match_tokens(b, at_b, 1, 20), 0);
	assert_in_range(now_ms() - begun, 0, 450);
	served_start(&a);
	for (begun = now_ms(); get_status(b, at_b, &key, BLOCK) && now_ms() - begun < 20000;)
		nap_ms(20);
	assert_int_equal(match_tokens(b, at_b, 1, 20), 20 * 16);
	assert_int_equal(cairn_close(b), 0);
	place_done(&place);
	a_end(&a);
}

static void test_peer__a_store_closes_soon_when_a_peer_hangs(void **state)
{
	(void)state;
	struct served a;
	struct proxy proxy;
	struct place place;
	a_start(&a);
	proxy_start(&proxy, &a);
	place_init(&place, 64 * MIB, 32 * MIB);
	const char *names[] = {proxy.place};
	cairn *b = b_open(&place, names, 1, 500);
	cairn_space *at_a = space_named(a.daemon.store, NULL, "m"), *at_b = space_named(b, NULL, "m");
	put_chain(a.daemon.store, at_a, 1, 0, 20, BLOCK, CAIRN_DURABLE_NONE);
	assert_int_equal(match_tokens(b, at_b, 1, 20), 20 * 16);
	proxy_mode(&proxy, PROXY_HOLD);
	cairn_key key = key_at(1, 0);
	uint64_t begun = now_ms();
	assert_int_equal(get_status(b, at_b, &key, BLOCK), CAIRN_MISS);
	assert_in_range(now_ms() - begun, 100, 4000);
	begun = now_ms();
	assert_int_equal(cairn_close(b), 0);
	assert_in_range(now_ms() - begun, 0, 1500);
	place_done(&place);
	proxy_stop(&proxy);
	a_end(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_peer__a_get_finds_it_there_when_it_is_not_here),
		cmocka_unit_test(test_peer__a_match_counts_what_others_have),
		cmocka_unit_test(test_peer__chains_stay_chains_when_their_parts_came_from_there),
		cmocka_unit_test(test_peer__what_a_match_found_is_fetched_before_it_is_asked_for),
		cmocka_unit_test(test_peer__flash_of_others_is_as_good),
		cmocka_unit_test(test_peer__a_part_is_fetched_once_when_many_want_it),
		cmocka_unit_test(test_peer__nobody_is_asked_for_what_a_peer_asks),
		cmocka_unit_test(test_peer__a_session_is_resumed_where_it_was_not_saved),
		cmocka_unit_test(test_peer__what_was_dropped_here_does_not_come_back),
		cmocka_unit_test(test_peer__one_that_holds_back_is_stepped_over_when_its_time_is_over),
		cmocka_unit_test(test_peer__bytes_that_changed_are_never_delivered),
		cmocka_unit_test(test_peer__bytes_of_another_part_are_never_delivered),
		cmocka_unit_test(test_peer__the_next_best_is_asked_when_one_holds_back),
		cmocka_unit_test(test_peer__the_next_best_is_asked_when_one_says_garbage),
		cmocka_unit_test(test_peer__the_next_best_is_asked_when_one_cuts_parts_short),
		cmocka_unit_test(test_peer__the_next_best_is_asked_when_bytes_change_on_their_way),
		cmocka_unit_test(test_peer__the_next_best_is_asked_when_one_trickles),
		cmocka_unit_test(test_peer__one_that_is_gone_costs_no_time_and_is_found_again),
		cmocka_unit_test(test_peer__a_store_closes_soon_when_a_peer_hangs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
