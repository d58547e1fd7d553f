/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of the ledger at its edges (tests/faults/reopen.txt): when a drop may be forgotten, what a torn end means. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cairn/cairn.h"
#include "io/sim.h"
#include "tier/ledger.h"

enum { AREA = 32 * FMT_PAGE, SEGMENTS = 8 };

struct bench {
	struct sim_world *sim;
	struct io_maker maker;
	struct io *io;
	struct fmt_label label;
	struct ledger ledger;
};

static void bench_init(struct bench *b)
{
	memset(b, 0, sizeof *b);
	b->sim = sim_new(1);
	b->maker = sim_maker(b->sim);
	b->label = (struct fmt_label){.version = FMT_VERSION, .device_id = "device", .segment_bytes = 1 << 20,
	                              .ledger_bytes = AREA, .ledger_offset = 2 * FMT_PAGE, .segments_offset = 1 << 20};
	assert_int_equal(b->maker.open(b->maker.arg, "l", IO_OPEN_CREATE, 1, &b->io), 0);
	assert_int_equal(ledger_open(&b->ledger, b->io, &b->label, SEGMENTS, FMT_VERSION), 0);
	assert_int_equal(b->io->ops->allocate(b->io, 0, 1 << 20), 0);
	assert_int_equal(ledger_format(&b->ledger), 0);
}

static void bench_again(struct bench *b)
{
	uint64_t read = 0;
	b->io->ops->close(b->io);
	ledger_done(&b->ledger);
	assert_int_equal(b->maker.open(b->maker.arg, "l", 0, 1, &b->io), 0);
	assert_int_equal(ledger_open(&b->ledger, b->io, &b->label, SEGMENTS, FMT_VERSION), 0);
	assert_int_equal(ledger_replay(&b->ledger, &read), 0);
}

static void bench_done(struct bench *b)
{
	b->io->ops->close(b->io);
	ledger_done(&b->ledger);
	sim_free(b->sim);
}

static void segment_add(struct ledger *ledger, uint32_t segment, uint8_t state, uint64_t start_sequence)
{
	struct ledger_record record = {.type = LEDGER_SEGMENT};
	record.u.segment.segment = segment;
	record.u.segment.state = state;
	record.u.segment.life = 1;
	record.u.segment.start_sequence = start_sequence;
	assert_int_equal(ledger_add(ledger, &record), 0);
}

static void drop_add(struct ledger *ledger, uint32_t n, uint64_t sequence)
{
	struct ledger_record drop = {.type = LEDGER_DROP};
	drop.u.drop.scope = LEDGER_DROP_KEY;
	drop.u.drop.decision = 100 + n;
	drop.u.drop.sequence = sequence;
	memcpy(drop.u.drop.what, &n, sizeof n);
	assert_int_equal(ledger_add(ledger, &drop), 0);
}

static int dropped(const struct ledger *ledger, uint32_t n)
{
	const uint8_t space[32] = {0}, tenant[16] = {0};
	uint8_t key[32] = {0};
	memcpy(key, &n, sizeof n);
	return ledger_dropped(ledger, space, tenant, key, 1);
}

/* A drop that was decided when the oldest segment had its first group covers what is in that group. */
static void test_faults_ledger__keeps_drop_when_a_segment_is_as_old(void **state)
{
	(void)state;
	struct bench b;
	bench_init(&b);
	segment_add(&b.ledger, 0, LEDGER_SEALED, 10);
	segment_add(&b.ledger, 1, LEDGER_OPEN, 20);
	segment_add(&b.ledger, 2, LEDGER_FREE, 1); /* it can bring nothing back */
	drop_add(&b.ledger, 9, 9);
	drop_add(&b.ledger, 10, 10);
	drop_add(&b.ledger, 11, 11);
	struct ledger_record damage = {.type = LEDGER_QUARANTINE};
	damage.u.quarantine.birth = 5;
	damage.u.quarantine.sequence = 10;
	assert_int_equal(ledger_add(&b.ledger, &damage), 0);
	ledger_forget_covered(&b.ledger);
	ledger_index_drops(&b.ledger);
	assert_false(dropped(&b.ledger, 9));
	assert_true(dropped(&b.ledger, 10));
	assert_true(dropped(&b.ledger, 11));
	assert_true(ledger_quarantined(&b.ledger, damage.u.quarantine.space, damage.u.quarantine.key, 0, 5));
	assert_int_equal(b.ledger.mark.u.mark.dropped_through, 109);
	segment_add(&b.ledger, 0, LEDGER_FREE, 10); /* the next oldest began at 20 */
	ledger_forget_covered(&b.ledger);
	assert_int_equal(b.ledger.drops.used, 0);
	assert_int_equal(b.ledger.quarantine.used, 0);
	bench_done(&b);
}

/* Pages are missing at the start of the last batch, which was never acknowledged: nothing is doubtful for that. With a
 * batch behind it, which proves that it had been flushed, everything is. */
static void test_faults_ledger__doubts_nothing_when_last_batch_is_torn(void **state)
{
	(void)state;
	for (int behind = 0; behind < 2; behind++) {
		struct bench b;
		bench_init(&b);
		segment_add(&b.ledger, 0, LEDGER_SEALED, 1);
		drop_add(&b.ledger, 0, 50);
		assert_int_equal(ledger_commit(&b.ledger), 0);
		uint32_t first = b.ledger.next_index, area = b.ledger.area;
		for (uint32_t n = 1; n <= 120; n++)
			drop_add(&b.ledger, n, 50);
		assert_int_equal(ledger_commit(&b.ledger), 0);
		assert_true(b.ledger.next_index >= first + 3);
		if (behind) {
			drop_add(&b.ledger, 121, 50);
			assert_int_equal(ledger_commit(&b.ledger), 0);
		}
		assert_int_equal(b.ledger.area, area);
		for (uint32_t copy = 0; copy < 2; copy++)
			sim_rot(b.sim, "l", b.label.ledger_offset + (area * 2 + copy) * (uint64_t)AREA + first * (uint64_t)FMT_PAGE,
			        64);
		bench_again(&b);
		ledger_index_drops(&b.ledger);
		assert_true(dropped(&b.ledger, 0));
		assert_int_equal(b.ledger.doubt_through != 0, behind);
		assert_int_equal(b.ledger.holes != 0, behind);
		bench_done(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_faults_ledger__keeps_drop_when_a_segment_is_as_old),
		cmocka_unit_test(test_faults_ledger__doubts_nothing_when_last_batch_is_torn),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
