/* SPDX-License-Identifier: Apache-2.0 */
/* src/store/session.c: save, replace, resume, list, pin, forget, expire, and what is kept for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/store_lib.h"

enum {
	LENGTH = 50000,
	TAIL = 777
};

struct save_one {
	const char *name, *owner, *tenant;
	uint64_t chain, ttl_s;
	uint32_t blocks, tail, pin, durability;
	const void *state;
	uint64_t state_bytes;
};

static int save_status(cairn *store, const cairn_space *space, const struct save_one *one)
{
	cairn_key keys[64];
	for (uint32_t i = 0; i < one->blocks; i++)
		keys[i] = key_at(one->chain, i);
	struct cairn_chain chain = {0, keys, one->blocks};
	uint8_t bytes[TAIL];
	struct cairn_buf buf = cairn_buf_of(bytes, sizeof bytes);
	struct cairn_item tail = {.key = key_at(one->chain, 1000 + one->blocks), .bufs = &buf, .nbufs = 1};
	if (one->blocks)
		tail.parent = &keys[one->blocks - 1];
	pattern_fill(bytes, sizeof bytes, &tail.key, 0, 0);
	struct cairn_save save = {.size = sizeof save,
	                          .name = {one->tenant, one->owner, one->name},
	                          .chains = &chain,
	                          .nchains = one->blocks ? 1 : 0,
	                          .tails = &tail,
	                          .ntails = one->tail,
	                          .state = one->state,
	                          .state_bytes = one->state_bytes,
	                          .tokens = one->blocks * 16 + 5,
	                          .ttl_s = one->ttl_s,
	                          .pin = one->pin,
	                          .durability = one->durability};
	return cairn_session_save(store, space, &save);
}

static struct cairn_session_name name_of(const char *name)
{
	return (struct cairn_session_name){NULL, NULL, name};
}

/* Resumes a session and checks that all of it is there. Returns its epoch; 0: no such session. */
static uint64_t resume_whole(cairn *store, const char *name, uint64_t chain, uint32_t blocks)
{
	struct cairn_session_name of = name_of(name);
	cairn_session *session;
	cairn_space *space;
	struct cairn_session_info info;
	int error = cairn_session_resume(store, &of, &session);
	if (error == CAIRN_E_NOENT)
		return 0;
	if (error)
		fail_msg("resume: %d %s", error, cairn_error_text());
	cairn_session_get_info(session, &info);
	assert_string_equal(info.name, name);
	assert_string_equal(info.tenant, "default");
	assert_int_equal(info.tokens, blocks * 16 + 5);
	assert_int_equal(cairn_session_space(store, session, &space), 0);
	assert_int_equal(info.nchains, blocks ? 1 : 0);
	for (uint32_t i = 0; i < blocks; i++) {
		struct cairn_chain of_keys;
		assert_int_equal(cairn_session_chain(session, 0, &of_keys), 0);
		cairn_key key = key_at(chain, i);
		assert_memory_equal(&of_keys.keys[i], &key, 32);
		assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	}
	for (uint32_t i = 0; i < info.ntails; i++) {
		struct cairn_tail_info tail;
		assert_int_equal(cairn_session_tail(session, i, &tail), 0);
		assert_int_equal(tail.bytes, TAIL);
		assert_int_equal(get_status(store, space, &tail.key, TAIL), CAIRN_OK);
	}
	cairn_session_free(session);
	return info.epoch;
}

static void test_session__comes_back_when_machine_dies(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct world world;
		world_init(&world, seed, 32 * MIB, 8 * MIB);
		cairn *store = world_open(&world);
		cairn_space *space = space_named(store, NULL, "m");
		put_chain(store, space, 1, 0, 10, LENGTH, CAIRN_DURABLE_NONE);
		struct save_one one = {
			.name = "chat", .chain = 1, .blocks = 10, .tail = 1, .state = "engine", .state_bytes = 6};
		assert_int_equal(save_status(store, space, &one), 0);
		store = world_reopen_dead(&world, store, seed % 2);
		assert_int_equal(resume_whole(store, "chat", 1, 10), 1);
		cairn_session *session;
		struct cairn_session_name name = name_of("chat");
		assert_int_equal(cairn_session_resume(store, &name, &session), 0);
		uint64_t bytes;
		assert_memory_equal(cairn_session_state(session, &bytes), "engine", 6);
		assert_int_equal(bytes, 6);
		struct cairn_chain chain;
		struct cairn_tail_info tail;
		assert_int_equal(cairn_session_chain(session, 1, &chain), CAIRN_E_INVAL);
		assert_int_equal(cairn_session_tail(session, 1, &tail), CAIRN_E_INVAL);
		cairn_session_free(session);
		store_abandon(store);
		world_done(&world);
	}
}

static void test_session__is_replaced_when_saved_again(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 2, 32 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	struct save_one one = {.name = "chat", .chain = 1, .tail = 1};
	for (uint32_t n = 1; n <= 6; n++) {
		put_chain(store, space, 1, n - 1, 1, LENGTH, CAIRN_DURABLE_NONE);
		one.blocks = n;
		assert_int_equal(save_status(store, space, &one), 0);
		assert_int_equal(resume_whole(store, "chat", 1, n), n);
		if (n % 2)
			store = n % 3 ? world_reopen(&world, store) : world_reopen_dead(&world, store, 1);
		space = space_named(store, NULL, "m");
		assert_int_equal(resume_whole(store, "chat", 1, n), n);
		assert_int_equal(stat_of(store).sessions, 1);
	}
	/* A block that is in no tier any more: refused, and the session stays what it was. */
	one.blocks = 9;
	assert_int_equal(save_status(store, space, &one), CAIRN_E_NOENT);
	assert_non_null(strstr(cairn_error_text(), "block 6"));
	assert_int_equal(resume_whole(store, "chat", 1, 6), 6);
	assert_int_equal(stat_of(store).lost_sessions, 0);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static int list_count(void *arg, const struct cairn_session_info *info)
{
	*(uint64_t *)arg += info->tokens;
	return 0;
}

/* Field bugs 41, 129: an empty session, one that is not there, and a table of them as units. */
static void test_session__is_a_unit_when_listed_and_forgotten(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 3, 32 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m"), *acme = space_named(store, "acme", "m");
	struct save_one one = {.name = "empty"};
	assert_int_equal(save_status(store, space, &one), 0);
	assert_int_equal(resume_whole(store, "empty", 1, 0), 1);
	assert_int_equal(resume_whole(store, "missing", 1, 0), 0);
	struct cairn_session_name missing = name_of("missing"), bad = name_of(""), name = name_of("empty");
	assert_int_equal(cairn_session_forget(store, &missing), CAIRN_E_NOENT);
	assert_int_equal(cairn_session_close(store, &missing), CAIRN_E_NOENT);
	assert_int_equal(cairn_session_pin(store, &missing, 1, 0), CAIRN_E_NOENT);
	assert_int_equal(cairn_session_forget(store, &bad), CAIRN_E_INVAL);
	/* Names are never paths, and tenants and owners tell sessions apart. */
	put_chain(store, acme, 2, 0, 3, LENGTH, CAIRN_DURABLE_NONE);
	one = (struct save_one){.name = "../../etc/passwd", .tenant = "acme", .chain = 2, .blocks = 3};
	assert_int_equal(save_status(store, space, &one), CAIRN_E_INVAL); /* the tenant is not the space's */
	assert_int_equal(save_status(store, acme, &one), 0);
	one.owner = "ann";
	one.blocks = 2;
	assert_int_equal(save_status(store, acme, &one), 0);
	uint64_t tokens = 0;
	assert_int_equal(cairn_session_list(store, NULL, list_count, &tokens), 3);
	assert_int_equal(tokens, 5 + 53 + 37);
	tokens = 0;
	assert_int_equal(cairn_session_list(store, "acme", list_count, &tokens), 2);
	assert_int_equal(tokens, 53 + 37);
	assert_int_equal(cairn_session_list(store, "nobody", list_count, &tokens), 0);
	assert_int_equal(cairn_session_forget(store, &name), 0);
	assert_int_equal(resume_whole(store, "empty", 1, 0), 0);
	store = world_reopen_dead(&world, store, 1);
	assert_int_equal(resume_whole(store, "empty", 1, 0), 0);
	assert_int_equal(cairn_session_list(store, NULL, list_count, &tokens), 2);
	/* A tenant that goes takes its sessions along, for good. */
	assert_true(cairn_drop_tenant(store, "acme") >= 3);
	assert_int_equal(stat_of(store).sessions, 0);
	store = world_reopen_dead(&world, store, 1);
	assert_int_equal(cairn_session_list(store, NULL, list_count, &tokens), 0);
	acme = space_named(store, "acme", "m");
	assert_int_equal(match_tokens(store, acme, 2, 3), 0);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_session__ends_when_its_time_is_over(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 4, 32 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 4, LENGTH, CAIRN_DURABLE_NONE);
	struct save_one one = {.name = "short", .chain = 1, .blocks = 4, .tail = 1, .ttl_s = 2};
	assert_int_equal(save_status(store, space, &one), 0);
	one.name = "long";
	one.ttl_s = 1000;
	assert_int_equal(save_status(store, space, &one), 0);
	assert_int_equal(resume_whole(store, "short", 1, 4), 1);
	/* The wall clock is set back an hour: while the store is open that buys no time. */
	sim_step_wall(world.sim, -3600);
	sim_advance(world.sim, 3000000000ull);
	assert_int_equal(resume_whole(store, "short", 1, 4), 0);
	world_run(&world, store, 10);
	assert_int_equal(stat_of(store).sessions, 1);
	assert_int_equal(resume_whole(store, "long", 1, 4), 1);
	/* And it stays gone after a reopen, though the clock says that it has not ended yet. */
	assert_int_equal(cairn_sync(store), 0);
	world_run(&world, store, 10);
	store = world_reopen_dead(&world, store, 1);
	assert_int_equal(resume_whole(store, "short", 1, 4), 0);
	assert_int_equal(resume_whole(store, "long", 1, 4), 1);
	/* Killed while it ends: the clock goes on meanwhile. */
	sim_step_wall(world.sim, 3600 + 2000);
	store = world_reopen_dead(&world, store, 0);
	assert_int_equal(resume_whole(store, "long", 1, 4), 0);
	uint64_t tokens = 0;
	assert_int_equal(cairn_session_list(store, NULL, list_count, &tokens), 0);
	/* Its blocks are blocks as others. */
	space = space_named(store, NULL, "m");
	assert_int_equal(match_tokens(store, space, 1, 4), 64);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Field bug 104: what is kept survives ten times the capacity; what is not goes; pins cannot fill the tier. */
static void test_session__keeps_blocks_when_pinned_or_with_time_to_live(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 5, 32 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	static const char *const names[] = {"pinned", "ttl", "plain"};
	for (uint64_t c = 0; c < 3; c++) {
		put_chain(store, space, c, 0, 20, LENGTH, CAIRN_DURABLE_NONE);
		struct save_one one = {
			.name = names[c], .chain = c, .blocks = 20, .tail = 1, .pin = c == 0, .ttl_s = c == 1 ? 100000 : 0};
		assert_int_equal(save_status(store, space, &one), 0);
	}
	for (uint64_t chain = 10; chain < 330; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 20, LENGTH, CAIRN_DURABLE_NONE), 20);
	assert_int_equal(cairn_sync(store), 0);
	assert_int_equal(resume_whole(store, "pinned", 0, 20), 1);
	assert_int_equal(resume_whole(store, "ttl", 1, 20), 1);
	assert_true(match_tokens(store, space, 2, 20) < 320);
	struct cairn_stat stat = stat_of(store);
	assert_true(stat.device[0].moved_bytes > 0);
	assert_true((double)stat.device[0].written_bytes < 1.25 * (double)stat.tier[CAIRN_TIER_FLASH].written_bytes);
	store = world_reopen_dead(&world, store, 1);
	assert_int_equal(resume_whole(store, "pinned", 0, 20), 1);
	assert_int_equal(resume_whole(store, "ttl", 1, 20), 1);
	/* Unpinned, it is as others; the one with a time to live is so when that is over. */
	struct cairn_session_name name = name_of("pinned");
	assert_int_equal(cairn_session_pin(store, &name, 0, 0), 0);
	sim_step_wall(world.sim, 200000);
	space = space_named(store, NULL, "m");
	for (uint64_t chain = 400; chain < 520; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 20, LENGTH, CAIRN_DURABLE_NONE), 20);
	assert_true(match_tokens(store, space, 0, 20) < 320);
	assert_true(match_tokens(store, space, 1, 20) < 320);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

static void test_session__is_refused_when_quota_is_used_up(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 6, 32 * MIB, 8 * MIB);
	world.options.pin_share_percent = 25; /* 8 MiB: 8 sessions of 20 blocks */
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	char text[16];
	for (uint64_t c = 0; c < 12; c++) {
		put_chain(store, space, c, 0, 20, LENGTH, CAIRN_DURABLE_NONE);
		snprintf(text, sizeof text, "s%llu", (unsigned long long)c);
		struct save_one one = {.name = text, .chain = c, .blocks = 20, .pin = 1};
		int error = save_status(store, space, &one);
		assert_true(error == 0 || error == CAIRN_E_QUOTA);
		assert_int_equal(error == 0, c < 8);
		if (!error) /* again costs nothing more */
			assert_int_equal(save_status(store, space, &one), 0);
		one.pin = 0;
		if (error)
			assert_int_equal(save_status(store, space, &one), 0);
	}
	struct cairn_session_name last = name_of("s11"), first = name_of("s0");
	assert_int_equal(cairn_session_pin(store, &last, 1, 0), CAIRN_E_QUOTA);
	assert_int_equal(cairn_session_forget(store, &first), 0);
	assert_int_equal(cairn_session_pin(store, &last, 1, 0), 0);
	assert_int_equal(stat_of(store).sessions, 11);
	/* Everything goes on around what is pinned. */
	for (uint64_t chain = 100; chain < 160; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 20, LENGTH, CAIRN_DURABLE_FLASH), 20);
	for (uint64_t c = 1; c < 8; c++) {
		snprintf(text, sizeof text, "s%llu", (unsigned long long)c);
		assert_int_equal(resume_whole(store, text, c, 20), 2);
	}
	assert_int_equal(resume_whole(store, "s11", 11, 20), 1);
	verify(store);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* A part that may be missing does not end the keeping of those behind it. */
static void test_session__keeps_all_parts_when_optional_one_is_missing(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 7, 32 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_of_parts(store, "parts", 3, 2);
	for (uint32_t i = 0; i < 5; i++)
		for (uint32_t part = 0; part < 3; part += 2) {
			struct put_one put = {.key = key_at(1, i), .part = part, .length = LENGTH};
			assert_int_equal(put_item(store, space, &put).status, CAIRN_OK);
		}
	struct save_one one = {.name = "kept", .chain = 1, .blocks = 5, .pin = 1};
	assert_int_equal(save_status(store, space, &one), 0);
	cairn_space *other = space_named(store, NULL, "m");
	for (uint64_t chain = 10; chain < 60; chain++)
		assert_int_equal(put_chain(store, other, chain, 0, 20, LENGTH, CAIRN_DURABLE_FLASH), 20);
	for (uint32_t i = 0; i < 5; i++) {
		cairn_key key = key_at(1, i);
		assert_int_equal(get_item(store, space, &key, 0, LENGTH).status, CAIRN_OK);
		assert_int_equal(get_item(store, space, &key, 2, LENGTH).status, CAIRN_OK);
	}
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* The manifest rots: the session is damaged, and the store and its blocks are not. */
static void test_session__is_damaged_when_its_manifest_rots(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 8, 32 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 4, LENGTH, CAIRN_DURABLE_NONE);
	struct save_one one = {.name = "chat", .chain = 1, .blocks = 4};
	assert_int_equal(save_status(store, space, &one), 0);
	uint32_t page = 0;
	const cairn *own = served_inside(store);
	for (uint32_t e = catalog_next(own->catalog, 0); e; e = catalog_next(own->catalog, e))
		if (catalog_at(own->catalog, e)->flags & CATALOG_MANIFEST)
			page = catalog_at(own->catalog, e)->page;
	uint64_t size;
	struct fmt_label label;
	assert_int_equal(segment_label_decode(sim_file_bytes(world.sim, WORLD_FLASH, &size), &label), FMT_OK);
	assert_int_equal(cairn_close(store), 0);
	sim_rot(world.sim, WORLD_FLASH, label.segments_offset + (uint64_t)page * FMT_PAGE + 40, 1);
	store = world_open(&world);
	struct cairn_session_name name = name_of("chat");
	cairn_session *session;
	assert_int_equal(cairn_session_resume(store, &name, &session), CAIRN_DAMAGED);
	uint64_t tokens = 0;
	assert_int_equal(cairn_session_list(store, NULL, list_count, &tokens), 0);
	space = space_named(store, NULL, "m");
	assert_int_equal(match_tokens(store, space, 1, 4), 64);
	assert_int_equal(save_status(store, space, &one), 0);
	assert_int_equal(resume_whole(store, "chat", 1, 4), 2);
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

/* Field bug 148: two models take turns; the sessions of both are whole. */
static void test_session__survives_when_models_take_turns(void **state)
{
	(void)state;
	struct world world;
	world_init(&world, 9, 64 * MIB, 8 * MIB);
	cairn *store = world_open(&world);
	char text[16];
	for (int turn = 0; turn < 4; turn++) {
		cairn_space *space = space_named(store, NULL, turn % 2 ? "B" : "A");
		for (uint64_t s = 0; s < 3; s++) {
			uint64_t chain = (turn % 2) * 10 + s;
			snprintf(text, sizeof text, "%c%llu", turn % 2 ? 'B' : 'A', (unsigned long long)s);
			if (turn < 2) {
				put_chain(store, space, chain, 0, 8, LENGTH, CAIRN_DURABLE_NONE);
				struct save_one one = {.name = text, .chain = chain, .blocks = 8, .tail = 1};
				assert_int_equal(save_status(store, space, &one), 0);
			} else {
				assert_int_equal(resume_whole(store, text, chain, 8), 1);
				assert_int_equal(match_tokens(store, space, chain, 8), 128);
			}
		}
		store = turn % 2 ? world_reopen_dead(&world, store, 0) : world_reopen(&world, store);
	}
	assert_int_equal(cairn_close(store), 0);
	world_done(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_session__comes_back_when_machine_dies),
		cmocka_unit_test(test_session__is_replaced_when_saved_again),
		cmocka_unit_test(test_session__is_a_unit_when_listed_and_forgotten),
		cmocka_unit_test(test_session__ends_when_its_time_is_over),
		cmocka_unit_test(test_session__keeps_blocks_when_pinned_or_with_time_to_live),
		cmocka_unit_test(test_session__is_refused_when_quota_is_used_up),
		cmocka_unit_test(test_session__keeps_all_parts_when_optional_one_is_missing),
		cmocka_unit_test(test_session__is_damaged_when_its_manifest_rots),
		cmocka_unit_test(test_session__survives_when_models_take_turns),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
