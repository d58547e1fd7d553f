/* SPDX-License-Identifier: Apache-2.0 */
/* src/tier/ledger.c: state, log, compaction, and what replay makes of damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/random.h"
#include "cairn/cairn.h"
#include "io/sim.h"
#include "tier/ledger.h"

enum {
	AREA = 16 * FMT_PAGE,
	SEGMENTS = 20
};

struct bench {
	struct sim_world *sim;
	struct io_maker maker;
	struct io *io;
	struct fmt_label label;
	struct ledger ledger;
};

static void bench_open(struct bench *b, uint32_t flags)
{
	assert_int_equal(b->maker.open(b->maker.arg, "l", flags, 1, &b->io), 0);
	assert_int_equal(ledger_open(&b->ledger, b->io, &b->label, SEGMENTS, FMT_VERSION), 0);
}

static void bench_init(struct bench *b, uint64_t seed, uint32_t area_bytes)
{
	memset(b, 0, sizeof *b);
	b->sim = sim_new(seed);
	b->maker = sim_maker(b->sim);
	b->label = (struct fmt_label){.version = FMT_VERSION,
	                              .device_id = "device",
	                              .segment_bytes = 1 << 20,
	                              .ledger_bytes = area_bytes,
	                              .ledger_offset = 2 * FMT_PAGE,
	                              .segments_offset = 1 << 20};
	bench_open(b, IO_OPEN_CREATE);
	assert_int_equal(b->io->ops->allocate(b->io, 0, 1 << 20), 0);
	assert_int_equal(ledger_format(&b->ledger), 0);
}

/* The process ends (with power: the machine) and another one replays. */
static void bench_again(struct bench *b, int crash)
{
	uint64_t read = 0;
	sim_crash_at(b->sim, 0, 0);
	if (crash)
		sim_crash(b->sim);
	b->io->ops->close(b->io);
	ledger_done(&b->ledger);
	bench_open(b, 0);
	assert_int_equal(ledger_replay(&b->ledger, &read), 0);
	assert_true(read > 0 && read <= 4ull * b->label.ledger_bytes);
}

static void bench_done(struct bench *b)
{
	b->io->ops->close(b->io);
	ledger_done(&b->ledger);
	sim_free(b->sim);
}

static struct ledger_record drop_of(uint32_t n, uint64_t decision)
{
	struct ledger_record drop = {.type = LEDGER_DROP};
	drop.u.drop.scope = LEDGER_DROP_KEY;
	drop.u.drop.decision = decision;
	drop.u.drop.sequence = decision;
	memset(drop.u.drop.space, 1, 32);
	memcpy(drop.u.drop.what, &n, sizeof n);
	return drop;
}

static int dropped(const struct ledger *ledger, uint32_t n, uint64_t birth)
{
	uint8_t space[32], tenant[16] = {0}, key[32] = {0};
	memset(space, 1, 32);
	memcpy(key, &n, sizeof n);
	return ledger_dropped(ledger, space, tenant, key, birth);
}

static void drop_commit(struct ledger *ledger, uint32_t n, uint64_t decision)
{
	struct ledger_record drop = drop_of(n, decision);
	assert_int_equal(ledger_add(ledger, &drop), 0);
	assert_int_equal(ledger_commit(ledger), 0);
}

/* Segment 0 began before all drops, so that none is forgotten. */
static void segment_hold(struct ledger *ledger)
{
	struct ledger_record segment = {.type = LEDGER_SEGMENT};
	segment.u.segment.segment = 0;
	segment.u.segment.state = LEDGER_SEALED;
	segment.u.segment.life = 3;
	segment.u.segment.salt = 77;
	segment.u.segment.start_sequence = 1;
	assert_int_equal(ledger_add(ledger, &segment), 0);
	assert_int_equal(ledger_commit(ledger), 0);
}

static void test_ledger__replays_all_kinds_when_reopened(void **state)
{
	(void)state;
	for (int crash = 0; crash < 2; crash++) {
		struct bench b;
		bench_init(&b, 1, AREA);
		segment_hold(&b.ledger);
		drop_commit(&b.ledger, 5, 10);
		struct ledger_record session = {.type = LEDGER_SESSION}, quarantine = {.type = LEDGER_QUARANTINE};
		session.u.session.decision = 11;
		session.u.session.epoch = 2;
		session.u.session.bytes = 123;
		session.u.session.pinned = 1;
		memset(session.u.session.id, 4, 32);
		assert_int_equal(ledger_add(&b.ledger, &session), 0);
		memset(session.u.session.id, 5, 32);
		session.u.session.decision = 12;
		assert_int_equal(ledger_add(&b.ledger, &session), 0);
		quarantine.u.quarantine.birth = 9;
		quarantine.u.quarantine.part = 3;
		quarantine.u.quarantine.sequence = 50;
		assert_int_equal(ledger_add(&b.ledger, &quarantine), 0);
		uint8_t canon[7000];
		for (size_t i = 0; i < sizeof canon; i++)
			canon[i] = (uint8_t)(i * 7);
		for (uint32_t at = 0; at < sizeof canon; at += 3000) {
			struct ledger_record space = {.type = LEDGER_SPACE};
			memset(space.u.space.id, 6, 32);
			space.u.space.offset = at;
			space.u.space.total = sizeof canon;
			space.u.space.bytes = canon + at;
			space.u.space.length = (uint16_t)(sizeof canon - at < 3000 ? sizeof canon - at : 3000);
			assert_int_equal(ledger_add(&b.ledger, &space), 0);
		}
		assert_int_equal(ledger_commit(&b.ledger), 0);
		struct ledger_record forget = {.type = LEDGER_FORGET};
		forget.u.forget.decision = 13;
		memset(forget.u.forget.id, 4, 32);
		assert_int_equal(ledger_add(&b.ledger, &forget), 0);
		assert_int_equal(ledger_commit(&b.ledger), 0);
		for (int round = 0; round < 40; round++) { /* through both areas, and again */
			bench_again(&b, crash);
			const struct ledger *l = &b.ledger;
			assert_int_equal(l->holes, 0);
			assert_int_equal(l->doubt_through, 0);
			assert_int_equal(l->segments[0].life, 3);
			assert_int_equal(l->segments[0].salt, 77);
			assert_int_equal(l->segments[0].state, LEDGER_SEALED);
			assert_int_equal(l->sessions.used, 1);
			assert_int_equal(l->sessions.records[0].u.session.decision, 12);
			assert_int_equal(l->sessions.records[0].u.session.pinned, 1);
			assert_int_equal(l->nspaces, 1);
			assert_memory_equal(l->spaces[0].canon, canon, sizeof canon);
			uint8_t none[32] = {0};
			assert_true(ledger_quarantined(l, none, none, 3, 9));
			assert_false(ledger_quarantined(l, none, none, 3, 10));
			ledger_index_drops(&b.ledger);
			assert_true(dropped(l, 5, 10));
			assert_false(dropped(l, 5, 11)); /* put anew after it */
			assert_false(dropped(l, 6, 10));
			assert_true(l->mark.u.mark.next_birth >= 14);
			assert_int_equal(l->mark.u.mark.last_decision, 13);
			struct ledger_record mark = l->mark;
			assert_int_equal(ledger_add(&b.ledger, &mark), 0);
			assert_int_equal(ledger_commit(&b.ledger), 0);
		}
		assert_true(b.ledger.epoch >= 3);
		bench_done(&b);
	}
}

static void test_ledger__keeps_what_was_committed_when_power_fails(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 150; seed++) {
		struct bench b;
		struct random random;
		random_init(&random, seed);
		bench_init(&b, seed, AREA);
		segment_hold(&b.ledger);
		uint32_t acked = 0, next = 1;
		for (int life = 0; life < 4; life++) {
			sim_crash_at(b.sim, 1 + random_below(&random, 40), 0);
			for (int i = 0; i < 30; i++) {
				uint32_t n = 1 + (uint32_t)random_below(&random, seed % 3 ? 3 : 90),
						 first = next; /* some of several pages */
				int error = 0;
				for (uint32_t k = 0; k < n && !error; k++) {
					struct ledger_record drop = drop_of(next, next + 100);
					if (!ledger_fits(&b.ledger, &drop))
						break;
					error = ledger_add(&b.ledger, &drop);
					next += error == 0;
				}
				if (next == first || ledger_commit(&b.ledger))
					break;
				acked = next - 1;
			}
			sim_crash_at(b.sim, 0, 0);
			bench_again(&b, 1);
			ledger_index_drops(&b.ledger);
			assert_int_equal(b.ledger.doubt_through, 0);
			assert_int_equal(b.ledger.holes, 0);
			for (uint32_t k = 1; k <= acked; k++)
				assert_true(dropped(&b.ledger, k, k + 100));
			next =
				(uint32_t)(b.ledger.mark.u.mark.last_decision > 100 ? b.ledger.mark.u.mark.last_decision - 100 : 0) + 1;
			next = next > acked ? next : acked + 1;
		}
		bench_done(&b);
	}
}

static uint64_t page_offset(const struct ledger *l, uint32_t copy, uint32_t page)
{
	return l->offset + ((uint64_t)l->area * 2 + copy) * l->area_bytes + (uint64_t)page * FMT_PAGE;
}

static void test_ledger__takes_either_copy_when_one_is_damaged(void **state)
{
	(void)state;
	struct bench b;
	bench_init(&b, 2, AREA);
	segment_hold(&b.ledger);
	for (uint32_t n = 1; n <= 8; n++)
		drop_commit(&b.ledger, n, 100 + n);
	uint32_t pages = b.ledger.next_index;
	for (uint32_t page = 0; page < pages; page++) /* now this copy, now that */
		sim_rot(b.sim, "l", page_offset(&b.ledger, page % 2, page) + 200, 1);
	bench_again(&b, 0);
	ledger_index_drops(&b.ledger);
	assert_int_equal(b.ledger.holes, 0);
	assert_int_equal(b.ledger.doubt_through, 0);
	for (uint32_t n = 1; n <= 8; n++)
		assert_true(dropped(&b.ledger, n, 100 + n));
	bench_done(&b);
}

static void test_ledger__doubts_when_both_copies_are_damaged(void **state)
{
	(void)state;
	for (uint32_t hole = 0; hole < 10; hole++) {
		struct bench b;
		bench_init(&b, 3, AREA);
		segment_hold(&b.ledger);
		uint32_t first = b.ledger.next_index;
		for (uint32_t n = 1; n <= 8; n++)
			drop_commit(&b.ledger, n, 100 + n);
		assert_int_equal(b.ledger.next_index, first + 8);
		for (uint32_t copy = 0; copy < 2; copy++)
			sim_rot(b.sim, "l", page_offset(&b.ledger, copy, hole) + 200, 1);
		bench_again(&b, 0);
		ledger_index_drops(&b.ledger);
		assert_true(b.ledger.holes >= 1 || hole == first + 7);
		for (uint32_t n = 1; n <= 8; n++) {
			int known = dropped(&b.ledger, n, 100 + n);
			/* What is not known any more is covered by the doubt; the last page's loss shows by what groups know. */
			assert_true(known || b.ledger.doubt_through >= 100 + n || hole == first + 7);
			assert_int_equal(known, first + n - 1 != hole);
		}
		if (hole >= first && hole < first + 7)
			assert_int_equal(b.ledger.doubt_through, 100 + hole - first + 2);
		/* What comes next is a whole snapshot: the doubt is over for those who ask later. */
		segment_hold(&b.ledger);
		drop_commit(&b.ledger, 50, 500);
		bench_again(&b, 1);
		ledger_index_drops(&b.ledger);
		assert_int_equal(b.ledger.holes, 0);
		assert_true(dropped(&b.ledger, 50, 500));
		bench_done(&b);
	}
}

static void test_ledger__doubts_everything_when_nothing_is_readable(void **state)
{
	(void)state;
	struct bench b;
	bench_init(&b, 4, AREA);
	drop_commit(&b.ledger, 1, 100);
	for (uint32_t area = 0; area < 2; area++)
		for (uint32_t copy = 0; copy < 2; copy++)
			for (uint32_t page = 0; page < AREA / FMT_PAGE; page++)
				sim_rot(b.sim, "l", b.ledger.offset + (uint64_t)(area * 2 + copy) * AREA + (uint64_t)page * FMT_PAGE,
				        64);
	bench_again(&b, 0);
	assert_true(b.ledger.doubt_through == UINT64_MAX);
	segment_hold(&b.ledger);
	drop_commit(&b.ledger, 2, 200);
	bench_again(&b, 1);
	ledger_index_drops(&b.ledger);
	assert_true(dropped(&b.ledger, 2, 200));
	bench_done(&b);
}

/* A snapshot that was cut short is not the newest area: the one before it has everything. */
static void test_ledger__uses_older_area_when_snapshot_is_torn(void **state)
{
	(void)state;
	for (uint32_t n = 1; n <= 12; n++) {
		struct bench b;
		bench_init(&b, n, AREA);
		segment_hold(&b.ledger);
		uint32_t at = 1;
		while (b.ledger.next_index < AREA / FMT_PAGE) {
			drop_commit(&b.ledger, at, 100 + at);
			at++;
		}
		struct ledger_record drop = drop_of(at, 100 + at);
		assert_int_equal(ledger_add(&b.ledger, &drop), 0);
		sim_crash_at(b.sim, 1 + n % 3, 0); /* in the write of either copy, or in the flush */
		assert_int_not_equal(ledger_commit(&b.ledger), 0);
		bench_again(&b, 1);
		ledger_index_drops(&b.ledger);
		assert_int_equal(b.ledger.doubt_through, 0);
		for (uint32_t k = 1; k < at; k++)
			assert_true(dropped(&b.ledger, k, 100 + k));
		for (uint32_t k = at + 1; k < at + 40; k++)
			drop_commit(&b.ledger, k, 100 + k);
		bench_again(&b, 1);
		ledger_index_drops(&b.ledger);
		for (uint32_t k = at + 1; k < at + 40; k++)
			assert_true(dropped(&b.ledger, k, 100 + k));
		bench_done(&b);
	}
}

/* A batch that failed is tried again as a snapshot elsewhere; it leaves no hole. */
static void test_ledger__leaves_no_hole_when_write_fails(void **state)
{
	(void)state;
	for (uint64_t n = 1; n <= 12; n++) {
		struct bench b;
		bench_init(&b, n, AREA);
		segment_hold(&b.ledger);
		uint32_t at = 1, failed = 0;
		for (; at < 60; at++) {
			struct ledger_record drop = drop_of(at, 100 + at);
			if (at % 7 == 0)
				sim_fail_at(b.sim, 1 + n % 3, 0);
			assert_int_equal(ledger_add(&b.ledger, &drop), 0);
			int error = ledger_commit(&b.ledger);
			failed += error != 0;
			if (error)
				assert_int_equal(ledger_commit(&b.ledger), 0);
		}
		assert_int_equal(failed, 8);
		bench_again(&b, 1);
		ledger_index_drops(&b.ledger);
		assert_int_equal(b.ledger.holes, 0);
		assert_int_equal(b.ledger.doubt_through, 0);
		for (uint32_t k = 1; k < at; k++)
			assert_true(dropped(&b.ledger, k, 100 + k));
		bench_done(&b);
	}
}

static void test_ledger__says_full_when_state_outgrows_it(void **state)
{
	(void)state;
	struct bench b;
	bench_init(&b, 5, AREA);
	segment_hold(&b.ledger);
	uint32_t n = 0;
	for (;; n++) {
		struct ledger_record drop = drop_of(n, 100 + n);
		if (!ledger_fits(&b.ledger, &drop))
			break;
		assert_int_equal(ledger_add(&b.ledger, &drop), 0);
		if (n % 20 == 19)
			assert_int_equal(ledger_commit(&b.ledger), 0);
	}
	assert_true(n > 100 && n < 1000);
	assert_int_equal(ledger_commit(&b.ledger), 0);
	/* When the segment's next life begins later than all of them they are forgotten, and there is room again. */
	struct ledger_record segment = {.type = LEDGER_SEGMENT};
	segment.u.segment.state = LEDGER_OPEN;
	segment.u.segment.life = 4;
	segment.u.segment.start_sequence = 100000;
	assert_int_equal(ledger_add(&b.ledger, &segment), 0);
	ledger_forget_covered(&b.ledger);
	assert_int_equal(b.ledger.drops.used, 0);
	assert_int_equal(b.ledger.mark.u.mark.dropped_through, 100 + n - 1);
	assert_int_equal(ledger_commit(&b.ledger), 0);
	bench_again(&b, 1);
	ledger_forget_covered(&b.ledger); /* the log still had them */
	struct ledger_record drop = drop_of(1, 5000);
	assert_true(ledger_fits(&b.ledger, &drop));
	/* One batch takes what its buffer takes, and says so before it breaks. */
	uint32_t added = 0;
	while (!ledger_add(&b.ledger, &drop))
		added++;
	assert_true(added > 300);
	assert_true(ledger_gathered(&b.ledger));
	bench_done(&b);
}

static void test_ledger__tells_scopes_apart_when_dropped(void **state)
{
	(void)state;
	struct bench b;
	bench_init(&b, 6, AREA);
	segment_hold(&b.ledger);
	struct ledger_record drop = {.type = LEDGER_DROP};
	drop.u.drop.scope = LEDGER_DROP_SPACE;
	drop.u.drop.decision = 20;
	drop.u.drop.sequence = 20;
	memset(drop.u.drop.space, 2, 32);
	assert_int_equal(ledger_add(&b.ledger, &drop), 0);
	drop.u.drop.decision = 30; /* merged */
	assert_int_equal(ledger_add(&b.ledger, &drop), 0);
	assert_int_equal(b.ledger.drops.used, 1);
	memset(&drop.u.drop.space, 0, 32);
	drop.u.drop.scope = LEDGER_DROP_TENANT;
	drop.u.drop.decision = 40;
	memset(drop.u.drop.what, 9, 32);
	assert_int_equal(ledger_add(&b.ledger, &drop), 0);
	for (uint32_t n = 50; n > 0; n--) {
		struct ledger_record key = drop_of(n, 100 + n);
		assert_int_equal(ledger_add(&b.ledger, &key), 0);
	}
	assert_int_equal(ledger_commit(&b.ledger), 0);
	bench_again(&b, 1);
	ledger_index_drops(&b.ledger);
	uint8_t one[32], two[32], tenant[16], other[16] = {0}, key[32] = {200};
	memset(one, 1, 32);
	memset(two, 2, 32);
	memset(tenant, 9, 16);
	assert_true(ledger_dropped(&b.ledger, two, other, key, 30));
	assert_false(ledger_dropped(&b.ledger, two, other, key, 31));
	assert_true(ledger_dropped(&b.ledger, two, tenant, key, 31));
	assert_true(ledger_dropped(&b.ledger, one, tenant, key, 40));
	assert_false(ledger_dropped(&b.ledger, one, tenant, key, 41));
	for (uint32_t n = 1; n <= 50; n++) {
		assert_true(dropped(&b.ledger, n, 100 + n));
		assert_false(dropped(&b.ledger, n, 101 + n));
	}
	bench_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ledger__replays_all_kinds_when_reopened),
		cmocka_unit_test(test_ledger__keeps_what_was_committed_when_power_fails),
		cmocka_unit_test(test_ledger__takes_either_copy_when_one_is_damaged),
		cmocka_unit_test(test_ledger__doubts_when_both_copies_are_damaged),
		cmocka_unit_test(test_ledger__doubts_everything_when_nothing_is_readable),
		cmocka_unit_test(test_ledger__uses_older_area_when_snapshot_is_torn),
		cmocka_unit_test(test_ledger__leaves_no_hole_when_write_fails),
		cmocka_unit_test(test_ledger__says_full_when_state_outgrows_it),
		cmocka_unit_test(test_ledger__tells_scopes_apart_when_dropped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
