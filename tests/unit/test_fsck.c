/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsck: each structure of a store is damaged in turn; what is reported, what a repair does, and what is served after.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/file.h>

#include "fsck_lib.h"

#define DEVICE "flash.cairn"

static struct box made; /* a store that the tests copy */
static struct map made_map;

static int setup(void **state)
{
	(void)state;
	box_init(&made, 1);
	box_fill(&made);
	map_open(&made_map, &made);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	map_close(&made_map);
	box_done(&made);
	return 0;
}

static void start(struct box *box)
{
	box_init(box, 1);
	box_copy(&made, box);
}

/* Damage is there; a repair mends it. After it exactly the blocks but `lost` are served, twice, and all is clean. */
static void repairs(struct box *box, struct fsck_report *report, uint32_t lost)
{
	struct fsck_report again;
	assert_int_equal(box_fsck(box, 0, report), FSCK_DAMAGED);
	assert_int_equal(box_fsck(box, 1, report), FSCK_REPAIRED);
	assert_int_equal(box_fsck(box, 0, &again), FSCK_CLEAN);
	assert_int_equal(again.problems, 0);
	assert_int_equal(again.parts_damaged + again.parts_doubtful, 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(box_serves(box), box->nblocks - 5 - lost);
	assert_int_equal(box_fsck(box, 0, &again), FSCK_CLEAN);
}

static int blocks_of(uint32_t segment)
{
	int n = 0;
	for (uint32_t i = 0; i < made.nblocks; i++)
		n += !made.blocks[i].dropped && map_lies_in(&made_map, &made.blocks[i], segment);
	return n;
}

/* ---- without damage ---------------------------------------------------------------------------------------------- */

static void test_fsck__leaves_every_byte_when_all_is_well(void **state)
{
	(void)state;
	struct fsck_report report;
	uint64_t before[3] = {file_hash(&made, DEVICE), file_hash(&made, "cairn.id"), file_hash(&made, "lock")};
	for (int repair = 0; repair < 2; repair++) {
		assert_int_equal(box_fsck(&made, repair, &report), FSCK_CLEAN);
		assert_int_equal(report.problems, 0);
		assert_int_equal(report.devices, 1);
		assert_int_equal(report.sessions, 1);
		assert_int_equal(report.sessions_broken, 0);
		assert_int_equal(report.parts, made.nblocks - 5 + 2); /* a tail and a manifest */
		assert_int_equal(report.parts_good, report.parts);
		assert_int_equal(report.parts_dropped, 5);
		assert_true(report.segments_sealed >= 3 && report.segments_open >= 1 && report.groups >= 20);
		assert_true(report.bytes_read > 4 * MIB_BYTES);
		uint64_t after[3] = {file_hash(&made, DEVICE), file_hash(&made, "cairn.id"), file_hash(&made, "lock")};
		assert_memory_equal(before, after, sizeof before);
	}
}

static void test_fsck__leaves_every_byte_when_not_asked_to_repair(void **state)
{
	(void)state;
	struct box box;
	start(&box);
	damage(&box, DEVICE, 0, 64);
	damage(&box, "cairn.id", 20, 64);
	damage(&box, DEVICE, disk_offset(made_map.disk, 0, 3), 64);
	uint64_t before[2] = {file_hash(&box, DEVICE), file_hash(&box, "cairn.id")};
	assert_int_equal(box_fsck(&box, 0, NULL), FSCK_DAMAGED);
	uint64_t after[2] = {file_hash(&box, DEVICE), file_hash(&box, "cairn.id")};
	assert_memory_equal(before, after, sizeof before);
	box_done(&box);
}

static void test_fsck__calls_a_crash_no_problem_when_nothing_is_damaged(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	box_init(&box, 1);
	box_copy(&made, &box);
	cairn *store = box_open(&box);
	box_put(&box, store, 20, 50000);
	struct box dead;
	box_init(&dead, 1);
	box_copy(&box, &dead); /* as kill -9 leaves it: all of it was durable */
	box_close(store);
	assert_int_equal(box_fsck(&dead, 0, &report), FSCK_CLEAN);
	assert_int_equal(report.parts_good, box.nblocks - 5 + 2);
	assert_int_equal(box_fsck(&dead, 1, &report), FSCK_CLEAN);
	assert_int_equal(box_serves(&dead), box.nblocks - 5);
	box_done(&dead);
	box_done(&box);
}

static void test_fsck__refuses_a_store_that_is_open(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	cairn *store = box_open(&box);
	for (int repair = 0; repair < 2; repair++) {
		struct fsck_options options = box_fsck_options(&box, repair);
		assert_int_equal(fsck_run(&options, &report), CAIRN_E_OWNED);
		assert_non_null(strstr(err_text(), "is open in process"));
	}
	box_close(store);
	/* Readers and a check get on with each other; a repair does not with either. */
	int fd = damage_open(&box, "lock");
	assert_int_equal(flock(fd, LOCK_SH | LOCK_NB), 0);
	assert_int_equal(box_fsck(&box, 0, NULL), FSCK_CLEAN);
	struct fsck_options options = box_fsck_options(&box, 1);
	assert_int_equal(fsck_run(&options, &report), CAIRN_E_OWNED);
	close(fd);
	box_done(&box);
}

static void test_fsck__says_what_is_no_store(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	box_init(&box, 1);
	struct fsck_options options = box_fsck_options(&box, 1);
	assert_int_equal(fsck_run(&options, &report), CAIRN_E_NOENT);
	box_shell(&box, "echo hello >'%s'/%s", "letter");
	assert_int_equal(fsck_run(&options, &report), CAIRN_E_NOTSTORE);
	assert_int_equal(access(box.path, F_OK), 0);
	char path[160];
	snprintf(path, sizeof path, "%s/letter", box.path);
	options.path = path;
	assert_int_equal(fsck_run(&options, &report), CAIRN_E_NOTSTORE);
	snprintf(path, sizeof path, "%s/nothing", box.path);
	assert_int_equal(fsck_run(&options, &report), CAIRN_E_NOENT);
	options.path = "";
	assert_int_equal(fsck_run(&options, &report), CAIRN_E_INVAL);
	options.size = 0;
	assert_int_equal(fsck_run(&options, &report), CAIRN_E_INVAL);
	snprintf(path, sizeof path, "%s/lock", box.path);
	assert_int_not_equal(access(path, F_OK), 0); /* nothing was written there */
	box_done(&box);
}

static void test_fsck__leaves_a_newer_store_alone(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	int fd = damage_open(&box, "cairn.id");
	uint8_t *bytes = malloc(IDENT_BYTES);
	struct fmt_ident ident;
	assert_int_equal(pread(fd, bytes, IDENT_BYTES, 0), IDENT_BYTES);
	assert_int_equal(ident_decode(bytes, IDENT_BYTES, &ident), FMT_OK);
	ident.bits.ro_compat = 1; /* may be read, and not be written */
	ident_encode(&ident, bytes);
	assert_int_equal(pwrite(fd, bytes, IDENT_BYTES, 0), IDENT_BYTES);
	free(bytes);
	close(fd);
	assert_int_equal(box_fsck(&box, 0, NULL), FSCK_CLEAN);
	struct fsck_options options = box_fsck_options(&box, 1);
	assert_int_equal(fsck_run(&options, &report), CAIRN_E_VERSION);
	box_done(&box);
}

static int stop_at_once(void *arg, const char *what, uint64_t done, uint64_t all)
{
	int *left = arg;
	assert_non_null(what);
	assert_true(done <= all);
	return --*left < 0;
}

static void test_fsck__stops_when_progress_says_so(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	damage(&box, DEVICE, 0, 64);
	for (int after = 0;; after++) {
		int left = after;
		struct fsck_options options = box_fsck_options(&box, 1);
		options.finding = NULL;
		options.progress = stop_at_once;
		options.arg = &left;
		int result = fsck_run(&options, &report);
		if (result == FSCK_REPAIRED)
			break;
		assert_int_equal(result, CAIRN_E_CANCELED);
	}
	assert_int_equal(box_fsck(&box, 0, NULL), FSCK_CLEAN);
	box_done(&box);
}

/* ---- identity and labels ----------------------------------------------------------------------------------------- */

static void test_fsck__restores_either_copy_of_the_identity(void **state)
{
	(void)state;
	for (uint32_t copy = 0; copy < 2; copy++) {
		struct box box;
		struct fsck_report report;
		start(&box);
		uint64_t before = file_hash(&box, "cairn.id");
		(void)before;
		damage(&box, "cairn.id", copy * IDENT_COPY_BYTES + 50, 8);
		repairs(&box, &report, 0);
		assert_int_equal(report.identity_copies_damaged, 1);
		assert_int_equal(report.repaired_copies, 1);
		box_done(&box);
	}
}

static void test_fsck__restores_the_identity_when_it_is_cut_short(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	int fd = damage_open(&box, "cairn.id");
	assert_int_equal(ftruncate(fd, IDENT_COPY_BYTES), 0);
	close(fd);
	repairs(&box, &report, 0);
	assert_int_equal(report.identity_copies_damaged, 1);
	box_done(&box);
}

static void test_fsck__makes_the_identity_anew_when_both_copies_are_lost(void **state)
{
	(void)state;
	for (int how = 0; how < 3; how++) {
		struct box box;
		struct fsck_report report;
		cairn *store = NULL;
		start(&box);
		if (how == 0)
			damage(&box, "cairn.id", 0, IDENT_BYTES);
		else if (how == 1)
			box_shell(&box, "rm '%s'/%s", "cairn.id");
		else
			box_shell(&box, "echo short >'%s'/%s", "cairn.id");
		assert_int_equal(cairn_open(box.path, &box.options, &store), CAIRN_E_CORRUPT);
		repairs(&box, &report, 0);
		assert_int_equal(report.identity_copies_damaged, 2);
		assert_int_equal(report.rebuilt, 1);
		box_done(&box);
	}
}

static void test_fsck__restores_either_copy_of_the_label(void **state)
{
	(void)state;
	for (uint32_t copy = 0; copy < 2; copy++) {
		struct box box;
		struct fsck_report report;
		start(&box);
		damage(&box, DEVICE, copy * FMT_PAGE + 70, 8);
		repairs(&box, &report, 0);
		assert_int_equal(report.label_copies_damaged, 1);
		assert_int_equal(report.repaired_copies, 1);
		box_done(&box);
	}
}

static void test_fsck__makes_the_label_anew_when_both_copies_are_lost(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	uint8_t before[2 * FMT_PAGE], after[2 * FMT_PAGE];
	int fd = damage_open(&box, DEVICE);
	assert_int_equal(pread(fd, before, sizeof before, 0), sizeof before);
	damage(&box, DEVICE, 0, 2 * FMT_PAGE);
	repairs(&box, &report, 0);
	assert_int_equal(report.label_copies_damaged, 2);
	assert_int_equal(report.rebuilt, 1);
	assert_int_equal(pread(fd, after, sizeof after, 0), sizeof after);
	assert_memory_equal(before, after, sizeof before);
	close(fd);
	box_done(&box);
}

static void test_fsck__makes_identity_and_label_anew_when_all_copies_are_lost(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	damage(&box, DEVICE, 0, 2 * FMT_PAGE);
	damage(&box, "cairn.id", 0, IDENT_BYTES);
	repairs(&box, &report, 0);
	assert_int_equal(report.rebuilt, 2);
	box_done(&box);
}

static void test_fsck__finds_the_geometry_of_every_size_of_segments(void **state)
{
	(void)state;
	for (uint32_t shift = 0; shift < 3; shift++)
		for (uint32_t blocks = 0; blocks <= 40; blocks += blocks ? 39 : 1) { /* none, one, several segments */
			struct box box;
			struct fsck_report report;
			uint8_t before[FMT_PAGE], after[FMT_PAGE];
			box_init(&box, 1);
			box.options.segment_bytes = (uint64_t)MIB_BYTES << shift;
			box.flash[0].budget_bytes = 64ull * MIB_BYTES << shift; /* an area of another size, too */
			cairn *store = box_open(&box);
			box_put(&box, store, blocks, 200000);
			box_close(store);
			int fd = damage_open(&box, DEVICE);
			assert_int_equal(pread(fd, before, sizeof before, 0), sizeof before);
			damage(&box, DEVICE, 0, 2 * FMT_PAGE);
			assert_int_equal(box_fsck(&box, 1, &report), FSCK_REPAIRED);
			assert_int_equal(pread(fd, after, sizeof after, 0), sizeof after);
			if (blocks)
				assert_memory_equal(before, after, sizeof before);
			close(fd);
			assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
			assert_int_equal(box_serves(&box), blocks);
			box_done(&box);
		}
}

static void test_fsck__serves_nothing_when_only_devices_are_there_that_missed_drops(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	int fd = damage_open(&box, "cairn.id");
	uint8_t *bytes = malloc(IDENT_BYTES);
	struct fmt_ident ident;
	assert_int_equal(pread(fd, bytes, IDENT_BYTES, 0), IDENT_BYTES);
	assert_int_equal(ident_decode(bytes, IDENT_BYTES, &ident), FMT_OK);
	ident.device[0].flags |= IDENT_DEVICE_MISSED;
	ident_encode(&ident, bytes);
	assert_int_equal(pwrite(fd, bytes, IDENT_BYTES, 0), IDENT_BYTES);
	free(bytes);
	close(fd);
	uint64_t before = file_hash(&box, DEVICE);
	(void)box_fsck(&box, 0, &report);
	assert_int_equal(report.parts, 0);
	assert_int_equal(report.parts_doubtful, made.nblocks - 5 + 2);
	assert_int_equal(report.stuck + report.footers_damaged + report.groups_damaged, 0);
	assert_true(before == file_hash(&box, DEVICE));
	box_done(&box);
}

static void test_fsck__makes_no_problem_of_a_device_that_was_never_finished(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	int fd = damage_open(&box, DEVICE);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(ftruncate(fd, 8 * FMT_PAGE), 0);
	close(fd);
	assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
	assert_int_equal(report.devices_missing, 0);
	box_done(&box);
}

static void test_fsck__tells_of_a_device_that_is_missing(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	box_shell(&box, "mv '%s'/flash.cairn '%s'/away", box.path);
	assert_int_equal(box_fsck(&box, 0, &report), FSCK_DAMAGED);
	assert_int_equal(report.devices_missing, 1);
	assert_int_equal(box_fsck(&box, 1, &report), FSCK_DAMAGED);
	assert_int_equal(report.stuck, 1);
	box_shell(&box, "mv '%s'/away '%s'/flash.cairn", box.path);
	assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
	assert_int_equal(box_serves(&box), box.nblocks - 5);
	box_done(&box);
}

static void test_fsck__leaves_the_device_of_another_store_alone(void **state)
{
	(void)state;
	struct box box, other;
	struct fsck_report report;
	start(&box);
	box_init(&other, 1);
	box_fill(&other);
	box_shell(&other, "cp '%s'/flash.cairn '%s'/flash.cairn", box.path);
	uint64_t before = file_hash(&box, DEVICE);
	assert_int_equal(box_fsck(&box, 1, &report), FSCK_DAMAGED);
	assert_int_equal(report.devices_missing, 1);
	assert_true(before == file_hash(&box, DEVICE));
	box_done(&other);
	box_done(&box);
}

/* ---- ledger ------------------------------------------------------------------------------------------------------ */

static uint64_t ledger_page_at(uint32_t copy, uint32_t index)
{
	return disk_ledger_offset(made_map.disk, made_map.disk->log.area, copy, index);
}

static void test_fsck__restores_pages_of_the_ledger_when_the_other_copy_is_good(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	assert_true(made_map.disk->log.extent >= 4);
	for (uint32_t i = 0; i < made_map.disk->log.extent; i++)
		damage(&box, DEVICE, ledger_page_at(i & 1, i) + 100, 16);
	repairs(&box, &report, 0);
	assert_int_equal(report.ledger_pages_damaged_one, made_map.disk->log.extent);
	assert_int_equal(report.repaired_copies, made_map.disk->log.extent);
	assert_int_equal(report.rewritten_ledgers, 0);
	box_done(&box);
}

/* A hole: nothing that could have been dropped is served, ever again; what was put after it is. */
static void test_fsck__discards_what_is_doubtful_when_a_page_is_lost_in_both_copies(void **state)
{
	(void)state;
	for (uint32_t page = 0; page + 1 < made_map.disk->log.extent; page++) {
		struct box box;
		struct fsck_report report, again;
		start(&box);
		for (uint32_t copy = 0; copy < 2; copy++)
			damage(&box, DEVICE, ledger_page_at(copy, page) + 100, 16);
		assert_int_equal(box_fsck(&box, 1, &report), FSCK_REPAIRED);
		assert_true(report.ledger_pages_damaged_both >= 1);
		assert_int_equal(report.rewritten_ledgers, 1);
		assert_int_equal(box_fsck(&box, 0, &again), FSCK_CLEAN);
		uint32_t served = box_serves(&box); /* fails when a dropped one is */
		assert_int_equal(box_serves(&box), served);
		assert_true(served <= box.nblocks - 5);
		assert_int_equal(box_fsck(&box, 0, &again), FSCK_CLEAN);
		cairn *store = box_open(&box);
		box_put(&box, store, 5, 10000);
		box_close(store);
		assert_int_equal(box_serves(&box), served + 5);
		box_done(&box);
	}
}

static void test_fsck__keeps_all_when_a_hole_can_not_have_held_a_drop(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	box_init(&box, 1);
	cairn *store = box_open(&box);
	box_put(&box, store, 40, 100000);
	box_close(store);
	struct map map;
	map_open(&map, &box);
	uint32_t area = map.disk->log.area, extent = map.disk->log.extent;
	assert_true(extent >= 4);
	/* Not the pages that tell segments' salts: the first snapshot of an empty store. */
	for (uint32_t copy = 0; copy < 2; copy++)
		damage(&box, DEVICE, disk_ledger_offset(map.disk, area, copy, 0) + 100, 16);
	map_close(&map);
	assert_int_equal(box_fsck(&box, 1, &report), FSCK_REPAIRED);
	assert_int_equal(report.parts_doubtful, 0);
	assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
	assert_int_equal(box_serves(&box), box.nblocks);
	box_done(&box);
}

static void test_fsck__loses_all_and_no_more_when_the_ledger_is_gone(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	damage(&box, DEVICE, made_map.disk->label.ledger_offset, 4 * made_map.disk->label.ledger_bytes);
	assert_int_equal(box_fsck(&box, 1, &report), FSCK_REPAIRED);
	assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
	assert_int_equal(box_serves(&box), 0);
	cairn *store = box_open(&box);
	box_put(&box, store, 5, 10000);
	box_close(store);
	assert_int_equal(box_serves(&box), 5);
	assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
	box_done(&box);
}

static void test_fsck__discards_all_when_the_ledger_ends_before_what_groups_know(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	for (uint32_t copy = 0; copy < 2; copy++)
		for (uint32_t page = 1; page < made_map.disk->log.extent; page++)
			blank(&box, DEVICE, ledger_page_at(copy, page), FMT_PAGE);
	assert_int_equal(box_fsck(&box, 1, &report), FSCK_REPAIRED);
	assert_true(report.ledger_pages_damaged_both > 0);
	assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
	assert_int_equal(box_serves(&box), 0);
	box_done(&box);
}

static void test_fsck__takes_a_torn_last_batch_for_what_a_crash_left(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	for (uint32_t copy = 0; copy < 2; copy++) {
		uint64_t from = ledger_page_at(0, made_map.disk->log.extent - 1);
		uint64_t to = ledger_page_at(copy, made_map.disk->log.extent);
		uint8_t page[FMT_PAGE];
		int fd = damage_open(&box, DEVICE);
		assert_int_equal(pread(fd, page, FMT_PAGE, (off_t)from), FMT_PAGE);
		assert_int_equal(pwrite(fd, page, 2048, (off_t)to), 2048);
		close(fd);
	}
	assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
	assert_int_equal(box_serves(&box), box.nblocks - 5);
	box_done(&box);
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

static void test_fsck__writes_a_footer_anew_when_it_is_damaged(void **state)
{
	(void)state;
	for (int entries = 0; entries < 2; entries++) {
		struct box box;
		struct fsck_report report;
		start(&box);
		for (uint32_t i = 0; i < 2; i++) {
			uint32_t segment = map_segment(&made_map, LEDGER_SEALED, i);
			uint32_t page = entries ? made_map.disk->segs[segment].entries_page : made_map.disk->segment_pages - 1;
			damage(&box, DEVICE, disk_offset(made_map.disk, segment, page) + 40, 8);
		}
		repairs(&box, &report, 0);
		assert_int_equal(report.footers_damaged, 2);
		assert_int_equal(report.rewritten_footers, 2);
		assert_int_equal(report.removed_parts, 0);
		box_done(&box);
	}
}

static void test_fsck__makes_an_index_anew_when_the_footer_knows_its_parts(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	uint32_t segment = map_segment(&made_map, LEDGER_SEALED, 0);
	damage(&box, DEVICE, disk_offset(made_map.disk, segment, 0) + 80, 8);
	repairs(&box, &report, 0);
	assert_int_equal(report.groups_damaged, 1);
	assert_int_equal(report.rebuilt_groups, 1);
	assert_int_equal(report.rewritten_ledgers, 0);
	/* Now the index serves when the footer goes. */
	damage(&box, DEVICE, disk_offset(made_map.disk, segment, made_map.disk->segment_pages - 1), 64);
	repairs(&box, &report, 0);
	assert_int_equal(report.footers_damaged, 1);
	assert_int_equal(report.groups_damaged, 0);
	box_done(&box);
}

static void test_fsck__makes_all_indexes_anew_when_a_segment_lost_them(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	const struct disk *disk = made_map.disk;
	uint32_t segment = map_segment(&made_map, LEDGER_SEALED, 1), page = 0;
	const struct seg *seg = &disk->segs[segment];
	/* Whatever is no payload is an index. */
	for (uint32_t p = 0; p < seg->used_pages; p++) {
		int payload = 0;
		for (uint32_t i = 0; i < seg->nparts; i++) {
			const struct part *part = &disk->parts[seg->first_part + i];
			payload |= p >= part->page && p < part->page + disk_pages_of(part->stored_length);
		}
		if (!payload) {
			blank(&box, DEVICE, disk_offset(disk, segment, p), FMT_PAGE);
			page++;
		}
	}
	assert_true(page >= 2);
	repairs(&box, &report, 0);
	assert_true(report.rebuilt_groups >= 1);
	damage(&box, DEVICE, disk_offset(disk, segment, disk->segment_pages - 1), 64);
	repairs(&box, &report, 0);
	box_done(&box);
}

static void test_fsck__loses_one_group_alone_when_index_and_footer_are_damaged(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	const struct disk *disk = made_map.disk;
	uint32_t segment = map_segment(&made_map, LEDGER_SEALED, 0), lost = 0, next = UINT32_MAX;
	/* The first group's parts lie before the second index, which is the first page behind a payload that none takes. */
	const struct seg *seg = &disk->segs[segment];
	uint32_t at = disk->parts[seg->first_part].page;
	for (uint32_t i = 0; i < seg->nparts && next == UINT32_MAX; i++) {
		const struct part *part = &disk->parts[seg->first_part + i];
		if (part->page != at)
			next = at;
		at = part->page + disk_pages_of(part->stored_length);
	}
	for (uint32_t i = 0; i < made.nblocks; i++) {
		const struct part *part = map_part(&made_map, &made.blocks[i].key);
		lost += part->segment == segment && part->page < next && !made.blocks[i].dropped;
	}
	assert_true(lost > 0 && lost < (uint32_t)blocks_of(segment));
	damage(&box, DEVICE, disk_offset(disk, segment, 0) + 80, 8);
	damage(&box, DEVICE, disk_offset(disk, segment, disk->segment_pages - 1), 64);
	repairs(&box, &report, lost);
	assert_int_equal(report.groups_damaged, 1);
	box_done(&box);
}

static void test_fsck__keeps_later_groups_when_an_open_segment_lost_an_index(void **state)
{
	(void)state;
	for (int zeros = 0; zeros < 2; zeros++) {
		struct box box;
		struct fsck_report report;
		struct map map;
		box_init(&box, 1);
		cairn *store = box_open(&box);
		for (int i = 0; i < 10; i++)
			box_put(&box, store, 1, 20000); /* a group each */
		box_close(store);
		map_open(&map, &box);
		uint32_t segment = map_segment(&map, LEDGER_OPEN, 0);
		const struct part *third = map_part(&map, &box.blocks[2].key);
		assert_int_equal(third->segment, segment);
		uint64_t index = disk_offset(map.disk, segment, third->page - 1);
		if (zeros)
			blank(&box, DEVICE, index, FMT_PAGE);
		else
			damage(&box, DEVICE, index, FMT_PAGE);
		map_close(&map);
		assert_int_equal(box_fsck(&box, 1, &report), FSCK_REPAIRED);
		assert_int_equal(report.groups_damaged, 1);
		assert_int_equal(report.rewritten_footers, 1);
		assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
		assert_int_equal(box_serves(&box), 9);
		assert_int_equal(box.blocks[2].status, CAIRN_MISS);
		assert_int_equal(box_serves(&box), 9);
		assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
		box_done(&box);
	}
}

static void test_fsck__takes_damaged_payloads_out_and_nothing_else(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	static const uint32_t hurt[] = {0, 7, 20, 21, 40, 59, 63}; /* sealed segments and the open one */
	const uint32_t n = sizeof hurt / sizeof hurt[0];
	for (uint32_t i = 0; i < n; i++) {
		const struct part *part = map_part(&made_map, &made.blocks[hurt[i]].key);
		damage(&box, DEVICE, disk_offset(made_map.disk, part->segment, part->page) + part->stored_length - 1, 1);
	}
	const struct part *dropped = map_part(&made_map, &made.blocks[31].key); /* not read, so not a problem */
	damage(&box, DEVICE, disk_offset(made_map.disk, dropped->segment, dropped->page), 1);
	repairs(&box, &report, n);
	assert_int_equal(report.parts_damaged, n);
	assert_int_equal(report.removed_parts, n);
	assert_true(report.sessions_broken == 1 && report.blocks_missing == 2); /* 0 and 7 */
	cairn *store = box_open(&box);
	(void)box_look(&box, store);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(box.blocks[hurt[i]].status, CAIRN_MISS);
	assert_int_equal(box_resume(store, "talk"), 0);
	/* Its key is free for a new one. */
	uint8_t *bytes = malloc(box.blocks[7].length);
	block_fill(&box.blocks[7].key, bytes, box.blocks[7].length);
	struct cairn_buf buf = cairn_buf_of(bytes, box.blocks[7].length);
	struct cairn_item item = {.key = box.blocks[7].key, .bufs = &buf, .nbufs = 1};
	struct cairn_call call = {.size = sizeof call, .durability = CAIRN_DURABLE_FLASH};
	assert_int_equal(cairn_put(store, box_space(store), &item, 1, &call), 1);
	free(bytes);
	box_close(store);
	assert_int_equal(box_serves(&box), box.nblocks - 5 - n + 1);
	box_done(&box);
}

static void test_fsck__frees_a_segment_when_nothing_good_is_in_it(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	uint32_t segment = map_segment(&made_map, LEDGER_SEALED, 1);
	damage(&box, DEVICE, disk_offset(made_map.disk, segment, 0), made_map.disk->label.segment_bytes);
	repairs(&box, &report, (uint32_t)blocks_of(segment));
	assert_int_equal(report.freed_segments, 1);
	box_done(&box);
}

static void test_fsck__keeps_what_is_left_when_the_file_is_cut_short(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	uint32_t segment = map_segment(&made_map, LEDGER_SEALED, 1);
	int fd = damage_open(&box, DEVICE);
	assert_int_equal(ftruncate(fd, (off_t)disk_offset(made_map.disk, segment, 10) + 100), 0);
	close(fd);
	assert_int_equal(box_fsck(&box, 1, &report), FSCK_REPAIRED);
	assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
	assert_true(box_serves(&box) >= (uint32_t)blocks_of(map_segment(&made_map, LEDGER_SEALED, 0)));
	box_done(&box);
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

static void test_fsck__forgets_a_session_when_its_manifest_is_damaged(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	start(&box);
	const struct part *manifest = NULL;
	for (uint32_t i = 0; i < made_map.disk->nparts; i++)
		if (made_map.disk->parts[i].flags & FMT_PART_MANIFEST)
			manifest = &made_map.disk->parts[i];
	assert_non_null(manifest);
	damage(&box, DEVICE, disk_offset(made_map.disk, manifest->segment, manifest->page) + 20, 8);
	repairs(&box, &report, 0); /* the blocks are served by their keys as ever */
	assert_int_equal(report.manifests_damaged, 1);
	assert_int_equal(report.forgotten_sessions, 1);
	cairn *store = box_open(&box);
	assert_int_equal(box_resume(store, "talk"), CAIRN_E_NOENT);
	box_save(&box, store, "talk", 3, 9);
	assert_int_equal(box_resume(store, "talk"), 0);
	box_close(store);
	assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
	assert_int_equal(report.sessions, 1);
	box_done(&box);
}

/* ---- two devices ------------------------------------------------------------------------------------------------- */

static void test_fsck__takes_drops_from_the_other_device_when_one_ledger_has_a_hole(void **state)
{
	(void)state;
	struct box box;
	struct fsck_report report;
	struct map map;
	struct box second;
	box_init(&box, 2);
	box_init(&second, 1);
	box.flash[1].path = second.path;
	box_fill(&box);
	assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
	assert_int_equal(report.devices, 2);
	map_open(&map, &box);
	for (uint32_t page = 3; page + 1 < map.disk->log.extent; page++)
		for (uint32_t copy = 0; copy < 2; copy++)
			damage(&box, DEVICE, disk_ledger_offset(map.disk, map.disk->log.area, copy, page) + 100, 16);
	map_close(&map);
	assert_int_equal(box_fsck(&box, 1, &report), FSCK_REPAIRED);
	assert_true(report.ledger_pages_damaged_both > 0);
	assert_int_equal(report.parts_doubtful, 0); /* the other ledger knows all drops */
	assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
	(void)box_serves(&box);
	(void)box_serves(&box);
	/* The identity knows a path that no label tells: it must be given. */
	damage(&box, "cairn.id", 0, IDENT_BYTES);
	const char *devices[] = {second.path};
	struct fsck_options options = box_fsck_options(&box, 1);
	options.devices = devices;
	options.ndevices = 1;
	assert_int_equal(fsck_run(&options, &report), FSCK_REPAIRED);
	assert_int_equal(report.devices, 2);
	assert_int_equal(report.devices_missing, 0);
	(void)box_serves(&box);
	assert_int_equal(box_fsck(&box, 0, &report), FSCK_CLEAN);
	box_done(&second);
	box_done(&box);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fsck__leaves_every_byte_when_all_is_well),
		cmocka_unit_test(test_fsck__leaves_every_byte_when_not_asked_to_repair),
		cmocka_unit_test(test_fsck__calls_a_crash_no_problem_when_nothing_is_damaged),
		cmocka_unit_test(test_fsck__refuses_a_store_that_is_open),
		cmocka_unit_test(test_fsck__says_what_is_no_store),
		cmocka_unit_test(test_fsck__leaves_a_newer_store_alone),
		cmocka_unit_test(test_fsck__stops_when_progress_says_so),
		cmocka_unit_test(test_fsck__restores_either_copy_of_the_identity),
		cmocka_unit_test(test_fsck__restores_the_identity_when_it_is_cut_short),
		cmocka_unit_test(test_fsck__makes_the_identity_anew_when_both_copies_are_lost),
		cmocka_unit_test(test_fsck__restores_either_copy_of_the_label),
		cmocka_unit_test(test_fsck__makes_the_label_anew_when_both_copies_are_lost),
		cmocka_unit_test(test_fsck__makes_identity_and_label_anew_when_all_copies_are_lost),
		cmocka_unit_test(test_fsck__finds_the_geometry_of_every_size_of_segments),
		cmocka_unit_test(test_fsck__serves_nothing_when_only_devices_are_there_that_missed_drops),
		cmocka_unit_test(test_fsck__makes_no_problem_of_a_device_that_was_never_finished),
		cmocka_unit_test(test_fsck__tells_of_a_device_that_is_missing),
		cmocka_unit_test(test_fsck__leaves_the_device_of_another_store_alone),
		cmocka_unit_test(test_fsck__restores_pages_of_the_ledger_when_the_other_copy_is_good),
		cmocka_unit_test(test_fsck__discards_what_is_doubtful_when_a_page_is_lost_in_both_copies),
		cmocka_unit_test(test_fsck__keeps_all_when_a_hole_can_not_have_held_a_drop),
		cmocka_unit_test(test_fsck__loses_all_and_no_more_when_the_ledger_is_gone),
		cmocka_unit_test(test_fsck__discards_all_when_the_ledger_ends_before_what_groups_know),
		cmocka_unit_test(test_fsck__takes_a_torn_last_batch_for_what_a_crash_left),
		cmocka_unit_test(test_fsck__writes_a_footer_anew_when_it_is_damaged),
		cmocka_unit_test(test_fsck__makes_an_index_anew_when_the_footer_knows_its_parts),
		cmocka_unit_test(test_fsck__makes_all_indexes_anew_when_a_segment_lost_them),
		cmocka_unit_test(test_fsck__loses_one_group_alone_when_index_and_footer_are_damaged),
		cmocka_unit_test(test_fsck__keeps_later_groups_when_an_open_segment_lost_an_index),
		cmocka_unit_test(test_fsck__takes_damaged_payloads_out_and_nothing_else),
		cmocka_unit_test(test_fsck__frees_a_segment_when_nothing_good_is_in_it),
		cmocka_unit_test(test_fsck__keeps_what_is_left_when_the_file_is_cut_short),
		cmocka_unit_test(test_fsck__forgets_a_session_when_its_manifest_is_damaged),
		cmocka_unit_test(test_fsck__takes_drops_from_the_other_device_when_one_ledger_has_a_hole),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
