/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many clients of one cairnd, over networks that fail: each client reaches it through a proxy (lib/proxy.h) that
 * delays, cuts, half opens, stalls, trickles, garbles. What they do, and what fails where, follows from the seed; how
 * threads take turns does not. Beside them a model says what must hold:
 *
 *  - bytes that come back are right, always;
 *  - what was acknowledged as durable is there, meanwhile, at the end, and after the store was opened anew;
 *  - what was dropped stays dropped;
 *  - every call ends within its deadline and a bound;
 *  - when the clients are gone, the daemon holds nothing for them: no connection, lease, match, descriptor or thread.
 *
 *     torture_net [--seeds A-B] [--clients N] [--ops N]
 */
#include <dirent.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/random.h"
#include "lib/engine.h"
#include "lib/proxy.h"
#include "lib/serving.h"
#include "store/remote.h"

enum {
	CLIENTS_MAX = 16,
	KEYS = 24, /* of one client */
	BATCH = 8,
	LENGTH_MAX = 60000,
	LEASES = 3,
	BOUND_MS = 10000, /* beyond a call's deadline; what hangs does so for thirty seconds or ever */
	GRACE_MS = 250,
	QUICK_MS = 700,
	PLACES = 3,
};
static const char *const place_names[PLACES] = {"by socket file", "over tcp", "over tls"};

/* What is known of a key. Its owner alone puts and drops it, and changes this before it drops and after it put. */
struct known {
	uint32_t state;              /* atomic: count << 2 | PROMISED | DROPPED */
	int put_unsure, drop_unsure; /* one may still be on its way, and come after what follows */
};
enum {
	PROMISED = 1,
	DROPPED = 2,
	CHANGE = 4
};

struct sim {
	uint64_t seed;
	uint32_t nclients, nops, failed; /* failed: atomic */
	char dir[190], socket[32]; /* a socket's path is short, wherever the store lies */
	struct cairn_options options;
	struct cairn_flash flash;
	struct serving served[PLACES]; /* the same store by socket file, by TCP, and by TLS with a token */
	struct proxy *proxies[PLACES];
	char places[PLACES][64]; /* of the proxies */
	struct known known[CLIENTS_MAX][KEYS];
	uint64_t calls, good, errors; /* atomics */
};

struct user {
	struct sim *sim;
	uint32_t number;
	pthread_t thread;
	struct random random;
	cairn *store;
	cairn_space *space;
	cairn_lease *leases[LEASES];
	cairn_key lease_keys[LEASES];
	int64_t begun_ms;
	int session, session_unsure;
	uint8_t bytes[BATCH][LENGTH_MAX];
	struct cairn_item items[BATCH];
	struct cairn_buf bufs[BATCH];
	cairn_key keys[KEYS];
	uint32_t owner[BATCH], index[BATCH], before[BATCH];
};

/* ---- keys and bytes ---------------------------------------------------------------------------------------------- */

static cairn_key key_of(uint64_t seed, uint32_t owner, uint32_t index)
{
	cairn_key key;
	struct random random;
	random_init(&random, (seed * 64 + owner) * 1000 + index);
	for (int i = 0; i < 4; i++) {
		uint64_t word = random_next(&random);
		memcpy(key.bytes + 8 * i, &word, 8);
	}
	return key;
}

static uint32_t length_of(const cairn_key *key)
{
	uint32_t word;
	memcpy(&word, key->bytes + 4, 4);
	return 1 + word % LENGTH_MAX;
}

static uint8_t byte_of(const cairn_key *key, uint32_t at)
{
	return (uint8_t)(key->bytes[at % 31] + at / 31);
}

static void fill(uint8_t *bytes, const cairn_key *key)
{
	uint32_t length = length_of(key);
	for (uint32_t i = 0; i < length; i++)
		bytes[i] = byte_of(key, i);
}

static int is_right(const uint8_t *bytes, const cairn_key *key)
{
	uint32_t length = length_of(key);
	for (uint32_t i = 0; i < length; i++)
		if (bytes[i] != byte_of(key, i))
			return 0;
	return 1;
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

static void fail(struct sim *sim, const char *what, long number)
{
	__atomic_fetch_add(&sim->failed, 1, __ATOMIC_SEQ_CST);
	fprintf(stderr, "torture_net: seed %" PRIu64 ": %s (%ld)\n", sim->seed, what, number);
}

static void begin(struct user *c)
{
	c->begun_ms = link_now_ms();
}

/* A call has come back. */
static void end(struct user *c, const char *what, uint32_t timeout_ms, long result)
{
	int64_t took = link_now_ms() - c->begun_ms;
	__atomic_fetch_add(&c->sim->calls, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(result < 0 ? &c->sim->errors : &c->sim->good, 1, __ATOMIC_RELAXED);
	if (took <= timeout_ms + BOUND_MS)
		return;
	char text[100];
	snprintf(text, sizeof text, "%s with %u ms took longer than it may, in ms", what, timeout_ms);
	fail(c->sim, text, took);
}

/* ---- what clients do --------------------------------------------------------------------------------------------- */

static uint32_t time_draw(struct user *c)
{
	return 100 + (uint32_t)random_below(&c->random, 700);
}

static int result_known(long result)
{
	return result == CAIRN_OK || result == CAIRN_EXISTED;
}

static void state_set(struct known *known, uint32_t what)
{
	uint32_t state = __atomic_load_n(&known->state, __ATOMIC_SEQ_CST);
	__atomic_store_n(&known->state, ((state | 3) + 1) | what, __ATOMIC_SEQ_CST);
}

static void put(struct user *c)
{
	struct sim *sim = c->sim;
	uint32_t n = 1 + (uint32_t)random_below(&c->random, BATCH), from = (uint32_t)random_below(&c->random, KEYS - n + 1);
	struct cairn_call call = {.size = sizeof call,
	                          .timeout_ms = time_draw(c),
	                          .durability = random_below(&c->random, 2) ? CAIRN_DURABLE_FLASH : CAIRN_DURABLE_NONE};
	for (uint32_t i = 0; i < n; i++) {
		struct known *known = &sim->known[c->number][from + i];
		if (__atomic_load_n(&known->state, __ATOMIC_SEQ_CST) & DROPPED)
			state_set(known, 0);
		fill(c->bytes[i], &c->keys[from + i]);
		c->bufs[i] = cairn_buf_of(c->bytes[i], length_of(&c->keys[from + i]));
		c->items[i] = (struct cairn_item){.key = c->keys[from + i], .bufs = &c->bufs[i], .nbufs = 1};
	}
	begin(c);
	long result = cairn_put(c->store, c->space, c->items, n, &call);
	end(c, "put", call.timeout_ms, result);
	for (uint32_t i = 0; i < n; i++) {
		struct known *known = &sim->known[c->number][from + i];
		if (!result_known(c->items[i].status))
			known->put_unsure = 1;
		else if (call.durability == CAIRN_DURABLE_FLASH && !known->drop_unsure)
			state_set(known, PROMISED);
	}
}

/* What a read gave for an item, against what was known before and still is. */
static void judge(struct user *c, uint32_t i, int status, const uint8_t *bytes)
{
	struct sim *sim = c->sim;
	struct known *known = &sim->known[c->owner[i]][c->index[i]];
	cairn_key key = key_of(sim->seed, c->owner[i], c->index[i]);
	uint32_t now = __atomic_load_n(&known->state, __ATOMIC_SEQ_CST);
	if (status == CAIRN_OK && !is_right(bytes, &key))
		fail(sim, "wrong bytes, key", c->index[i]);
	if (now != c->before[i])
		return;
	if (now & PROMISED && status > 0)
		fail(sim, "what was acknowledged is not there, status", status);
	if (now & DROPPED && status == CAIRN_OK)
		fail(sim, "what was dropped is there, key", c->index[i]);
}

static void draw_any(struct user *c, uint32_t i)
{
	struct sim *sim = c->sim;
	c->owner[i] = (uint32_t)random_below(&c->random, sim->nclients);
	c->index[i] = (uint32_t)random_below(&c->random, KEYS);
	c->before[i] = __atomic_load_n(&sim->known[c->owner[i]][c->index[i]].state, __ATOMIC_SEQ_CST);
}

static void get(struct user *c)
{
	uint32_t n = 1 + (uint32_t)random_below(&c->random, BATCH);
	struct cairn_call call = {.size = sizeof call, .timeout_ms = time_draw(c)};
	for (uint32_t i = 0; i < n; i++) {
		draw_any(c, i);
		c->bufs[i] = cairn_buf_of(c->bytes[i], LENGTH_MAX);
		c->items[i] =
			(struct cairn_item){.key = key_of(c->sim->seed, c->owner[i], c->index[i]), .bufs = &c->bufs[i], .nbufs = 1};
	}
	begin(c);
	long result = cairn_get(c->store, c->space, c->items, n, &call);
	end(c, "get", call.timeout_ms, result);
	for (uint32_t i = 0; i < n; i++)
		judge(c, i, c->items[i].status, c->bytes[i]);
}

static void lease_end(struct user *c, uint32_t i)
{
	struct cairn_lease_info info;
	if (!c->leases[i])
		return;
	cairn_lease_get_info(c->leases[i], &info);
	/* While the daemon lives it may not use the place for anything else; it does so when our connections have ended,
	 * and then the checksum tells. */
	if (cairn_check(info.address, info.bytes) == info.check && !is_right(info.address, &c->lease_keys[i]))
		fail(c->sim, "wrong bytes under a lease", i);
	begin(c);
	cairn_lease_release(c->store, c->leases[i]);
	end(c, "release", QUICK_MS, 0);
	c->leases[i] = NULL;
}

static void lease(struct user *c)
{
	uint32_t slot = (uint32_t)random_below(&c->random, LEASES);
	struct cairn_call call = {.size = sizeof call, .timeout_ms = time_draw(c)};
	struct cairn_lease_info info;
	lease_end(c, slot);
	draw_any(c, 0);
	struct cairn_item item = {.key = key_of(c->sim->seed, c->owner[0], c->index[0])};
	begin(c);
	int status = cairn_lease_take(c->store, c->space, &item, &call, &c->leases[slot]);
	end(c, "lease", call.timeout_ms, status);
	if (status) {
		c->leases[slot] = NULL;
		judge(c, 0, status, NULL);
		return;
	}
	c->lease_keys[slot] = item.key;
	cairn_lease_get_info(c->leases[slot], &info);
	if (info.bytes != length_of(&item.key))
		fail(c->sim, "a lease of another length", (long)info.bytes);
	else if (cairn_check(info.address, info.bytes) == info.check)
		judge(c, 0, CAIRN_OK, info.address);
}

static void match(struct user *c)
{
	cairn_match *match = NULL;
	struct cairn_chain chain = {0, c->keys, KEYS};
	uint32_t before[KEYS], whole = 0;
	for (uint32_t i = 0; i < KEYS; i++)
		before[i] = __atomic_load_n(&c->sim->known[c->number][i].state, __ATOMIC_SEQ_CST);
	while (whole < KEYS && before[whole] & PROMISED)
		whole++;
	begin(c);
	int error = cairn_match_take(c->store, c->space, &chain, 1, 0, 2000, &match);
	end(c, "match", QUICK_MS, error);
	if (error)
		return;
	struct cairn_match_info info;
	cairn_match_get_info(match, &info);
	if (info.tokens < 16ull * whole)
		fail(c->sim, "a match that misses what was acknowledged, blocks", (long)info.tokens / 16);
	if (random_below(&c->random, 2))
		get(c);
	begin(c);
	cairn_match_release(c->store, match);
	end(c, "match release", QUICK_MS, 0);
}

static void drop(struct user *c)
{
	uint32_t index = (uint32_t)random_below(&c->random, KEYS);
	struct known *known = &c->sim->known[c->number][index];
	state_set(known, 0);
	begin(c);
	long result = cairn_drop(c->store, c->space, &c->keys[index], 1);
	end(c, "drop", QUICK_MS, result);
	if (result < 0)
		known->drop_unsure = 1;
	else if (!known->put_unsure)
		state_set(known, DROPPED);
}

static void session(struct user *c)
{
	char name[16];
	snprintf(name, sizeof name, "client %u", c->number);
	struct cairn_save save = {.size = sizeof save,
	                          .name = {NULL, NULL, name},
	                          .state = name,
	                          .state_bytes = strlen(name),
	                          .timeout_ms = time_draw(c)};
	begin(c);
	int error = cairn_session_save(c->store, c->space, &save);
	end(c, "save", save.timeout_ms, error);
	c->session |= !error;
	cairn_session *there = NULL;
	begin(c);
	error = cairn_session_resume(c->store, &save.name, &there);
	end(c, "resume", QUICK_MS, error);
	if (!error) {
		uint64_t bytes;
		const void *state = cairn_session_state(there, &bytes);
		if (bytes != strlen(name) || memcmp(state, name, bytes) != 0)
			fail(c->sim, "another session's state", (long)bytes);
	} else if (c->session && (error > 0 || error == CAIRN_E_NOENT) && strstr(cairn_error_text(), "session")) {
		fail(c->sim, "a session that was saved is not there", error);
	}
	cairn_session_free(there);
}

static int count_part(void *arg, const struct cairn_part_info *info)
{
	(void)info;
	++*(uint32_t *)arg;
	return 0;
}

static void look(struct user *c)
{
	struct cairn_stat stat = {.size = sizeof stat};
	struct cairn_event events[8];
	uint32_t parts = 0;
	begin(c);
	long result = random_below(&c->random, 2)   ? cairn_stat(c->store, &stat)
	              : random_below(&c->random, 2) ? cairn_list_parts(c->store, NULL, count_part, &parts)
	                                            : cairn_events(c->store, random_below(&c->random, 100), events, 8);
	end(c, "look", QUICK_MS, result);
}

/* ---- a client's life --------------------------------------------------------------------------------------------- */

static void leave(struct user *c)
{
	for (uint32_t i = 0; i < LEASES; i++)
		lease_end(c, i);
	if (c->store)
		check(!cairn_close(c->store));
	c->store = NULL;
}

static int place_open(struct sim *sim, uint32_t place, const char *text, cairn **ret_store)
{
	const char *token = sim->served[place].token;
	struct cairn_options options = {.size = sizeof options, .token_file = token[0] ? token : NULL};
	return cairn_open(text, &options, ret_store);
}

/* Opens the place; again when what is in between does not let it. Whether it did. */
static int enter(struct user *c)
{
	static const cairn_digest weights = {{7}};
	struct cairn_space_desc desc = {
		.size = sizeof desc, .model = "net", .weights = &weights, .kv_dtype = "f16", .block_tokens = 16};
	uint32_t place = c->number % PLACES;
	for (int tries = 0; tries < 50; tries++) {
		begin(c);
		int error = place_open(c->sim, place, c->sim->places[place], &c->store);
		if (error)
			c->store = NULL;
		else if ((error = cairn_describe(c->store, &desc, &c->space)))
			leave(c);
		end(c, "open", 2 * QUICK_MS, error);
		if (!error)
			return 1;
	}
	fail(c->sim, "a client does not get in", c->number);
	return 0;
}

static void *client_main(void *arg)
{
	struct user *c = arg;
	random_init(&c->random, c->sim->seed * 100 + c->number);
	for (uint32_t i = 0; i < KEYS; i++)
		c->keys[i] = key_of(c->sim->seed, c->number, i);
	if (!enter(c))
		return NULL;
	for (uint32_t op = 0; op < c->sim->nops; op++) {
		uint64_t what = random_below(&c->random, 100);
		if (what < 30)
			put(c);
		else if (what < 65)
			get(c);
		else if (what < 75)
			lease(c);
		else if (what < 83)
			match(c);
		else if (what < 88)
			drop(c);
		else if (what < 90)
			session(c);
		else if (what < 93)
			look(c);
		else if (leave(c), !enter(c))
			return NULL;
	}
	leave(c);
	return NULL;
}

/* ---- the end of a seed ------------------------------------------------------------------------------------------- */

static int entries_of(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;
	check(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* What was promised is there, for whoever asks. */
static void read_back(struct sim *sim, cairn *store, const char *who)
{
	static const cairn_digest weights = {{7}};
	static uint8_t bytes[LENGTH_MAX];
	struct cairn_space_desc desc = {
		.size = sizeof desc, .model = "net", .weights = &weights, .kv_dtype = "f16", .block_tokens = 16};
	cairn_space *space;
	check(!cairn_describe(store, &desc, &space));
	for (uint32_t o = 0; o < sim->nclients; o++)
		for (uint32_t i = 0; i < KEYS; i++) {
			cairn_key key = key_of(sim->seed, o, i);
			struct cairn_buf buf = cairn_buf_of(bytes, sizeof bytes);
			struct cairn_item item = {.key = key, .bufs = &buf, .nbufs = 1};
			long n = cairn_get(store, space, &item, 1, NULL);
			if (n == 1 && !is_right(bytes, &key))
				fail(sim, "wrong bytes at the end", i);
			if (n != 1 && sim->known[o][i].state & PROMISED) {
				fprintf(stderr, "torture_net: %s: %s\n", who, cairn_status_name(item.status));
				fail(sim, "what was acknowledged is not there at the end", i);
			}
			if (n == 1 && sim->known[o][i].state & DROPPED)
				fail(sim, "what was dropped is there at the end", i);
		}
}

/* Until nothing of the clients is left in the daemons; they have five seconds. */
static void settle(struct sim *sim)
{
	int64_t until = link_now_ms() + 5000;
	for (int p = 0; p < PLACES; p++) {
		struct daemon *daemon = &sim->served[p].daemon;
		while (daemon_conns(daemon) && link_now_ms() < until)
			nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
		if (daemon_conns(daemon))
			fail(sim, "connections are left", daemon_conns(daemon));
		else if (!list_empty(&daemon->clients))
			fail(sim, "a client is left that has no connection", p);
	}
	struct cairn_stat stat = {.size = sizeof stat};
	check(!cairn_stat(sim->served[0].daemon.store, &stat));
	if (stat.leased_bytes)
		fail(sim, "bytes are leased by nobody", (long)stat.leased_bytes);
	if (stat.matches)
		fail(sim, "matches are open for nobody", (long)stat.matches);
}

static cairn *own_open(struct sim *sim)
{
	cairn *own;
	if (store_open_own(sim->dir, &sim->options, &own)) {
		fprintf(stderr, "torture_net: %s\n", cairn_error_text());
		exit(2);
	}
	return own;
}

static void clients_run(struct sim *sim)
{
	struct user *clients = calloc(sim->nclients, sizeof *clients);
	check(clients);
	for (uint32_t i = 0; i < sim->nclients; i++) {
		clients[i].sim = sim;
		clients[i].number = i;
		check(!pthread_create(&clients[i].thread, NULL, client_main, &clients[i]));
	}
	for (uint32_t i = 0; i < sim->nclients; i++)
		pthread_join(clients[i].thread, NULL);
	free(clients);
}

static void proxies_start(struct sim *sim)
{
	char socket[120];
	uint32_t mask = (1u << PROXY_FAULTS) - 1;
	snprintf(socket, sizeof socket, "%s/proxy", sim->socket);
	/* Half of the connections are bad, in some seeds nearly all. */
	uint32_t ppm = sim->seed % 4 == 3 ? 900000 : 500000;
	char to[120];
	snprintf(to, sizeof to, "%s/daemon", sim->socket);
	for (int p = 0; p < PLACES; p++) {
		const char *port = strrchr(sim->served[p].place, ':') + 1;
		sim->proxies[p] = proxy_start(p ? NULL : socket, p ? port : to, sim->seed + 500000ull * (uint64_t)p, ppm, mask);
		const char *place = proxy_place(sim->proxies[p]);
		if (p == 2) /* the proxy says what it is itself */
			snprintf(sim->places[p], sizeof sim->places[p], "tcp://127.0.0.1%s", strrchr(place, ':'));
		else
			snprintf(sim->places[p], sizeof sim->places[p], "%.60s", place);
	}
}

static int seed_run(uint64_t seed, uint32_t nclients, uint32_t nops)
{
	struct sim *sim = calloc(1, sizeof *sim);
	char path[300];
	check(sim);
	const char *base = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	*sim = (struct sim){.seed = seed, .nclients = nclients, .nops = nops};
	snprintf(sim->dir, sizeof sim->dir, "%.160s/cairn-net-XXXXXX", base);
	check(mkdtemp(sim->dir));
	snprintf(sim->socket, sizeof sim->socket, "/tmp/cairn-net-XXXXXX");
	check(mkdtemp(sim->socket));
	sim->flash.budget_bytes = 256 << 20;
	sim->options = (struct cairn_options){.size = sizeof sim->options,
	                                      .flags = CAIRN_OPEN_CREATE,
	                                      .memory_bytes = 8 << 20,
	                                      .catalog_bytes = 1 << 20,
	                                      .flash = &sim->flash,
	                                      .nflash = 1,
	                                      .free_floor_bytes = 1,
	                                      .segment_bytes = 4 << 20,
	                                      .io_engine = engine_wanted()};
	int fds = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
	cairn *own = own_open(sim);
	snprintf(path, sizeof path, "%s/daemon", sim->socket);
	for (int p = 0; p < PLACES; p++)
		check(!serving_start(&sim->served[p], own, path, p));
	proxies_start(sim);
	clients_run(sim);
	uint64_t struck[PROXY_FAULTS] = {0}, connections = 0;
	for (int p = 0; p < PLACES; p++) {
		for (int f = 1; f < PROXY_FAULTS; f++)
			struck[f] += proxy_struck(sim->proxies[p], (enum proxy_fault)f);
		connections += proxy_connections(sim->proxies[p]);
		proxy_stop(sim->proxies[p]);
	}
	settle(sim);
	for (uint32_t p = 0; p < PLACES; p++) {
		cairn *store;
		check(!place_open(sim, p, sim->served[p].place, &store));
		read_back(sim, store, place_names[p]);
		check(!cairn_close(store));
	}
	for (int p = 0; p < PLACES; p++)
		serving_stop(&sim->served[p]);
	check(!cairn_close(own));
	own = own_open(sim);
	read_back(sim, own, "opened anew");
	check(!cairn_close(own));
	for (int tries = 0; tries < 1000 && entries_of("/proc/self/task") > threads; tries++)
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); /* they have ended; the kernel tidies up */
	if (entries_of("/proc/self/fd") != fds)
		fail(sim, "descriptors are left", entries_of("/proc/self/fd") - fds);
	if (entries_of("/proc/self/task") != threads)
		fail(sim, "threads are left", entries_of("/proc/self/task") - threads);
	printf("seed %" PRIu64 ": %" PRIu64 " calls, %" PRIu64 " failed; %" PRIu64 " connections:", seed, sim->calls,
	       sim->errors, connections);
	for (int f = 1; f < PROXY_FAULTS; f++)
		printf(" %s %" PRIu64, proxy_fault_name((enum proxy_fault)f), struck[f]);
	printf("\n");
	if (sim->failed)
		fprintf(stderr, "run it again: torture_net --seeds %" PRIu64 "-%" PRIu64 " --clients %u --ops %u\n", seed, seed,
		        nclients, nops);
	snprintf(path, sizeof path, "rm -rf '%s' '%s'", sim->dir, sim->socket);
	check(!system(path));
	int failed = sim->failed != 0;
	free(sim);
	return failed;
}

static void *nothing(void *arg)
{
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t first; /* a sanitizer starts one of its own with the first */
	check(!pthread_create(&first, NULL, nothing, NULL) && !pthread_join(first, NULL));
	static const struct option options[] = {
		{"seeds", 1, NULL, 's'}, {"clients", 1, NULL, 'c'}, {"ops", 1, NULL, 'o'}, {0}};
	uint64_t from = 1, to = 4;
	uint32_t clients = 6, ops = 60;
	int failed = 0;
	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (o == 's' && sscanf(optarg, "%" SCNu64 "-%" SCNu64, &from, &to) != 2)
			return 2;
		else if (o == 'c')
			clients = (uint32_t)atoi(optarg);
		else if (o == 'o')
			ops = (uint32_t)atoi(optarg);
		else if (o == '?')
			return 2;
	}
	if (clients < 1 || clients > CLIENTS_MAX)
		return fprintf(stderr, "torture_net: 1 to %d clients\n", CLIENTS_MAX), 2;
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	remote_grace_ms = GRACE_MS;
	remote_quick_ms = remote_slow_ms = QUICK_MS;
	for (uint64_t seed = from; seed <= to && !failed; seed++)
		failed = seed_run(seed, clients, ops);
	return failed;
}
