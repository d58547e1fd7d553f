/* SPDX-License-Identifier: Apache-2.0 */
/* Events and snapshots as a router uses them: whatever is lost, doubled or late on the way, it ends with the truth. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "unit/store_lib.h"

#include "unit/served_lib.h"

/* ---- a router: what it believes is there ------------------------------------------------------------------------- */

enum {
	BELIEF_CELLS = 1 << 16
};
struct belief {
	cairn_digest space;
	uint8_t prefix[16], hash[CAIRN_HASH_MAX];
	uint32_t part, tiers, used, hash_bytes;
};
struct router {
	struct belief *cells;
	uint64_t sequence, life; /* of what it has applied; life 0: nothing */
	uint32_t resyncs;
};

static struct belief *belief_of(struct router *router, const cairn_digest *space, const uint8_t prefix[16],
                                uint32_t part)
{
	uint64_t at;
	memcpy(&at, prefix, 8);
	for (at = (at + part) % BELIEF_CELLS; router->cells[at].used; at = (at + 1) % BELIEF_CELLS)
		if (!memcmp(router->cells[at].prefix, prefix, 16) && router->cells[at].part == part &&
		    !memcmp(&router->cells[at].space, space, 32))
			return &router->cells[at];
	router->cells[at].used = 1;
	router->cells[at].space = *space;
	router->cells[at].part = part;
	memcpy(router->cells[at].prefix, prefix, 16);
	return &router->cells[at];
}

static int router_list(void *arg, const struct cairn_present *present)
{
	struct router *router = arg;
	struct belief *belief = belief_of(router, &present->space_id, present->key_prefix, present->part);
	belief->tiers = present->tiers;
	belief->hash_bytes = present->hash_bytes;
	memcpy(belief->hash, present->engine_hash, CAIRN_HASH_MAX);
	return 0;
}

static void router_resync(struct router *router, cairn *store)
{
	memset(router->cells, 0, BELIEF_CELLS * sizeof *router->cells);
	assert_true(cairn_snapshot(store, &router->sequence, &router->life, router_list, router) >= 0);
	router->resyncs++;
}

/* Takes one event from a wire that loses, doubles and reorders. */
static void router_take(struct router *router, cairn *store, const struct cairn_event *event)
{
	if (event->life == router->life && event->sequence <= router->sequence)
		return; /* seen, or part of the snapshot */
	if (event->life != router->life || event->sequence != router->sequence + 1) {
		router_resync(router, store);
		return;
	}
	struct belief *belief = belief_of(router, &event->space_id, event->key_prefix, event->part);
	if (event->kind == CAIRN_EVENT_STORED)
		belief->tiers |= 1u << event->tier;
	else
		belief->tiers &= ~(1u << event->tier);
	if (event->hash_bytes) {
		belief->hash_bytes = event->hash_bytes;
		memcpy(belief->hash, event->engine_hash, CAIRN_HASH_MAX);
	}
	router->sequence = event->sequence;
}

struct truth {
	struct router *router;
	uint64_t parts;
};
static int truth_check(void *arg, const struct cairn_part_info *info)
{
	struct truth *truth = arg;
	uint32_t tiers = (info->in_memory ? 1u << CAIRN_TIER_MEMORY : 0) | (info->in_flash ? 1u << CAIRN_TIER_FLASH : 0);
	assert_int_equal(belief_of(truth->router, &info->space_id, info->key_prefix, info->part)->tiers, tiers);
	truth->parts++;
	return 0;
}

static void router_is_right(struct router *router, cairn *store)
{
	struct truth truth = {.router = router};
	uint64_t believed = 0;
	assert_true(cairn_list_parts(store, NULL, truth_check, &truth) > 0);
	for (uint32_t i = 0; i < BELIEF_CELLS; i++)
		believed += router->cells[i].used && router->cells[i].tiers;
	assert_int_equal(believed, truth.parts);
}

/* The engine's hash of a block, from which the test tells that it is the right one. */
static void engine_hash(const cairn_key *key, uint8_t hash[CAIRN_HASH_MAX])
{
	for (int i = 0; i < CAIRN_HASH_MAX; i++)
		hash[i] = (uint8_t)(key->bytes[i] ^ 0x5a);
}

static int put_hashed(cairn *store, const cairn_space *space, const cairn_key *key, uint32_t length)
{
	uint8_t hash[CAIRN_HASH_MAX];
	uint8_t *bytes = malloc(length);
	engine_hash(key, hash);
	pattern_fill(bytes, length, key, 0, 0);
	struct cairn_buf buf = cairn_buf_of(bytes, length);
	struct cairn_item item = {
		.key = *key, .bufs = &buf, .nbufs = 1, .engine_hash = hash, .engine_hash_bytes = CAIRN_HASH_MAX};
	long n = cairn_put(store, space, &item, 1, NULL);
	free(bytes);
	return n < 0 ? (int)n : item.status;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Puts, drops, evictions and reads; a wire that loses, doubles and swaps one event in a hundred of each. */
static void test_events__router_knows_the_truth_when_events_are_lost(void **state)
{
	(void)state;
	struct world world;
	struct random random;
	world_init(&world, 1, 32 * MIB, 8 * MIB);
	world.options.event_hashes_bytes = MIB;
	cairn *store = NULL;
	assert_int_equal(store_open("s", &world.options, &world.maker, &store), 0);
	cairn_space *space = space_named(store, NULL, "m");
	struct router router = {.cells = calloc(BELIEF_CELLS, sizeof(struct belief))};
	static struct cairn_event events[512], held;
	uint64_t read = 0, lost = 0, doubled = 0, swapped = 0;
	int holding = 0;
	random_init(&random, 42);
	for (int step = 0; step < 6000; step++) {
		cairn_key key = key_at(1, random_next(&random) % 900);
		switch (random_next(&random) % 8) {
		case 0:
			assert_true(cairn_drop(store, space, &key, 1) >= 0);
			break;
		case 1:
			(void)get_status(store, space, &key, 50000);
			break;
		default:
			assert_true(put_hashed(store, space, &key, 50000) >= 0);
		}
		long n = cairn_events(store, read, events, 512);
		for (long i = 0; i < n; i++) {
			read = events[i].sequence;
			uint64_t chance = random_next(&random) % 100;
			if (chance == 0 && ++lost)
				continue;
			if (chance == 1 && !holding && ++swapped) {
				held = events[i]; /* comes behind the next one */
				holding = 1;
				continue;
			}
			router_take(&router, store, &events[i]);
			if (chance == 2 && ++doubled)
				router_take(&router, store, &events[i]);
			if (holding)
				router_take(&router, store, &held);
			holding = 0;
		}
		/* A router that hears nothing asks how far the store is: so it notices that the last one was lost. */
		if (step % 500 == 499) {
			if (router.sequence != store->event_last)
				router_resync(&router, store);
			router_is_right(&router, store);
		}
	}
	assert_true(lost > 20 && doubled > 20 && swapped > 20 && router.resyncs > 40);
	/* Every block that is there was put with its hash, and has it. */
	for (uint64_t i = 0; i < 900; i++) {
		cairn_key key = key_at(1, i);
		uint8_t hash[CAIRN_HASH_MAX];
		cairn_digest id;
		cairn_space_get_id(space, &id);
		struct belief *belief = belief_of(&router, &id, key.bytes, 0);
		engine_hash(&key, hash);
		if (!belief->tiers)
			continue;
		assert_int_equal(belief->hash_bytes, CAIRN_HASH_MAX);
		assert_memory_equal(belief->hash, hash, CAIRN_HASH_MAX);
	}
	free(router.cells);
	entry_verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Another life of the store: numbers begin anew, and nobody takes them for the old ones. */
static void test_events__tell_another_life_when_the_store_was_reopened(void **state)
{
	(void)state;
	struct world world;
	struct cairn_event events[16];
	uint64_t sequence, life;
	struct router router = {.cells = calloc(BELIEF_CELLS, sizeof(struct belief))};
	world_init(&world, 2, 32 * MIB, 8 * MIB);
	cairn *store = NULL;
	assert_int_equal(store_open("s", &world.options, &world.maker, &store), 0);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, 10, 1000, CAIRN_DURABLE_FLASH), 10);
	assert_int_equal(cairn_snapshot(store, &sequence, &life, router_list, &router), 10);
	assert_true(sequence >= 20 && life);
	assert_int_equal(cairn_close(store), 0);
	assert_int_equal(store_open("s", &world.options, &world.maker, &store), 0);
	long n = cairn_events(store, sequence, events, 16); /* of which this store knows nothing */
	assert_true(n > 0);
	assert_true(events[0].life != life);
	router.sequence = sequence;
	router.life = life;
	router_take(&router, store, &events[0]);
	assert_int_equal(router.resyncs, 1);
	router_is_right(&router, store);
	free(router.cells);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_events__hashes_are_bounded_when_there_are_more_blocks(void **state)
{
	(void)state;
	struct world world;
	static struct cairn_event events[4096];
	world_init(&world, 3, 64 * MIB, 16 * MIB);
	world.options.event_hashes_bytes = 56 * 400; /* 400 of them */
	cairn *store = NULL;
	assert_int_equal(store_open("s", &world.options, &world.maker, &store), 0);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint64_t i = 0; i < 1200; i++) {
		cairn_key key = key_at(7, i);
		assert_int_equal(put_hashed(store, space, &key, 1000), CAIRN_OK);
	}
	/* The event of the put itself has it, always. */
	long n = cairn_events(store, 0, events, 4096);
	uint32_t stored = 0;
	for (long i = 0; i < n; i++)
		if (events[i].kind == CAIRN_EVENT_STORED && events[i].tier == CAIRN_TIER_MEMORY) {
			assert_int_equal(events[i].hash_bytes, CAIRN_HASH_MAX);
			for (int k = 0; k < 16; k++)
				assert_int_equal(events[i].engine_hash[k], events[i].key_prefix[k] ^ 0x5a);
			stored++;
		}
	assert_int_equal(stored, 1200);
	uint64_t sequence, life;
	struct router router = {.cells = calloc(BELIEF_CELLS, sizeof(struct belief))};
	assert_int_equal(cairn_snapshot(store, &sequence, &life, router_list, &router), 1200);
	uint32_t known = 0;
	for (uint32_t i = 0; i < BELIEF_CELLS; i++)
		if (router.cells[i].hash_bytes) { /* never that of another block */
			assert_int_equal(router.cells[i].hash[3], router.cells[i].prefix[3] ^ 0x5a);
			known++;
		}
	assert_true(known > 300 && known <= 400);
	/* What is gone makes room first. */
	for (uint64_t i = 1150; i < 1200; i++) {
		cairn_key key = key_at(7, i);
		assert_int_equal(cairn_drop(store, space, &key, 1), 1);
	}
	struct cairn_item item = {.engine_hash = "x", .engine_hash_bytes = CAIRN_HASH_MAX + 1};
	assert_int_equal(cairn_put(store, space, &item, 1, NULL), CAIRN_E_INVAL);
	free(router.cells);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* The same over a cairnd, with its clients listed. */
static int keep_client(void *arg, const struct cairn_client_info *info)
{
	struct cairn_client_info *mine = arg;
	if (info->pid == (uint32_t)getpid() && !info->address[0] && info->written_bytes)
		*mine = *info;
	return 0;
}

static void test_events__are_the_same_when_asked_through_cairnd(void **state)
{
	(void)state;
	struct served served = {0};
	struct cairn_event event[4];
	place_init(&served.place, 64 * MIB, 16 * MIB);
	served.place.options.event_hashes_bytes = MIB;
	served_start(&served);
	cairn *store = served_client(&served);
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key key = key_at(1, 1);
	uint8_t hash[CAIRN_HASH_MAX];
	uint64_t sequence, life;
	struct router router = {.cells = calloc(BELIEF_CELLS, sizeof(struct belief))};
	assert_int_equal(cairn_snapshot(store, &sequence, &life, router_list, &router), 0);
	assert_int_equal(sequence, 0);
	assert_true(life != 0);
	assert_int_equal(put_hashed(store, space, &key, 1000), CAIRN_OK);
	engine_hash(&key, hash);
	assert_true(cairn_events(store, 0, event, 4) >= 1);
	assert_int_equal(event[0].hash_bytes, CAIRN_HASH_MAX);
	assert_memory_equal(event[0].engine_hash, hash, CAIRN_HASH_MAX);
	assert_true(event[0].life == life);
	for (uint64_t i = 0; i < 5000; i++) { /* some frames of it */
		key = key_at(2, i);
		assert_int_equal(put_hashed(store, space, &key, 100), CAIRN_OK);
	}
	assert_int_equal(cairn_snapshot(store, &sequence, &life, router_list, &router), 5001);
	assert_true(sequence >= 5001);
	struct cairn_client_info mine = {0};
	assert_true(cairn_list_clients(store, keep_client, &mine) >= 1);
	assert_int_equal(mine.written_bytes, 1000 + 5000 * 100);
	assert_true(mine.requests > 5000 && mine.connections >= 1 && mine.number >= 1 && !mine.failed);
	free(router.cells);
	assert_int_equal(cairn_close(store), 0);
	served_stop(&served);
	place_done(&served.place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_events__router_knows_the_truth_when_events_are_lost),
		cmocka_unit_test(test_events__tell_another_life_when_the_store_was_reopened),
		cmocka_unit_test(test_events__hashes_are_bounded_when_there_are_more_blocks),
		cmocka_unit_test(test_events__are_the_same_when_asked_through_cairnd),
	};
	return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
