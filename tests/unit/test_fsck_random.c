/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsck against damage anywhere, by seed, and against repairs that are cut off at every write. A model knows which
 * blocks have both their bytes and an index or footer left: each of them must be served after a repair.
 * In the environment, FSCK_TRIALS asks for more seeds, and FSCK_SEED for one alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "fsck_lib.h"

#define DEVICE "flash.cairn"
enum { GROUPS_MAX = 512, TRIALS = 200 };

struct index_place {
	uint32_t segment, first_page, index_pages, total_pages;
};

static struct box made;
static struct map made_map;
static struct index_place groups[GROUPS_MAX];
static uint32_t ngroups;
static uint8_t *original; /* the device's bytes */
static size_t original_bytes;

static uint8_t *device_load(const struct box *box, size_t *ret_bytes)
{
	struct stat info;
	int fd = damage_open(box, DEVICE);
	assert_int_equal(fstat(fd, &info), 0);
	uint8_t *bytes = calloc(1, (size_t)info.st_size > original_bytes ? (size_t)info.st_size : original_bytes);
	assert_int_equal(pread(fd, bytes, (size_t)info.st_size, 0), info.st_size);
	close(fd);
	*ret_bytes = (size_t)info.st_size;
	return bytes;
}

static int setup(void **state)
{
	(void)state;
	box_init(&made, 1);
	cairn *store = box_open(&made);
	box_put(&made, store, 60, 70000);
	box_save(&made, store, "talk", 0, 20);
	for (uint32_t i = 30; i < 35; i++)
		box_drop(&made, store, i);
	box_put(&made, store, 12, 9000);
	box_close(store);
	map_open(&made_map, &made);
	const struct disk *disk = made_map.disk;
	original = device_load(&made, &original_bytes);
	for (uint32_t s = 0; s < disk->log.nsegments; s++)
		for (uint32_t page = 0; disk->log.segments[s].life && page < disk->segs[s].used_pages;) {
			struct fmt_group group;
			const uint8_t *at = original + disk_offset(disk, s, page);
			assert_int_equal(segment_group_peek(at, disk->segment_pages, &group), FMT_OK);
			assert_true(ngroups < GROUPS_MAX);
			groups[ngroups++] = (struct index_place){s, page, group.index_pages, group.total_pages};
			page += group.total_pages;
		}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(original);
	map_close(&made_map);
	box_done(&made);
	return 0;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static int whole(const uint8_t *now, uint32_t segment, uint32_t page, uint64_t bytes)
{
	uint64_t offset = disk_offset(made_map.disk, segment, page);
	return !memcmp(now + offset, original + offset, bytes);
}

/* Whether a block must survive: its bytes, and its group's index or the segment's footer, are as they were. */
static int survives(const uint8_t *now, const struct block *block)
{
	const struct part *part = map_part(&made_map, &block->key);
	const struct seg *seg = &made_map.disk->segs[part->segment];
	uint32_t last = made_map.disk->segment_pages - 1;
	if (block->dropped || !whole(now, part->segment, part->page, part->stored_length))
		return 0;
	if (seg->footer == SEG_FOOTER_GOOD && whole(now, part->segment, last, FMT_PAGE) &&
	    whole(now, part->segment, seg->entries_page, (uint64_t)segment_footer_entry_pages(seg->nparts) * FMT_PAGE))
		return 1;
	for (uint32_t i = 0; i < ngroups; i++)
		if (groups[i].segment == part->segment && part->page >= groups[i].first_page &&
		    part->page < groups[i].first_page + groups[i].total_pages)
			return whole(now, part->segment, groups[i].first_page, (uint64_t)groups[i].index_pages * FMT_PAGE);
	fail_msg("a part without a group");
	return 0;
}

/* Whether a page of the ledger's area in use is damaged in both copies: what it decided is lost. */
static int ledger_lost(const uint8_t *now)
{
	const struct disk *disk = made_map.disk;
	for (uint32_t i = 0; i < disk->log.extent; i++) {
		int bad = 0;
		for (uint32_t copy = 0; copy < 2; copy++) {
			uint64_t at = disk_ledger_offset(disk, disk->log.area, copy, i);
			bad += memcmp(now + at, original + at, FMT_PAGE) != 0;
		}
		if (bad == 2)
			return 1;
	}
	return 0;
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

static void hurt(const struct box *box, struct random *random)
{
	const struct disk *disk = made_map.disk;
	uint32_t length = 1u << random_below(random, 14), copy = (uint32_t)random_below(random, 2);
	uint64_t offset = random_below(random, original_bytes - length), page, segment;
	switch (random_below(random, 9)) {
	case 0:
		offset = random_below(random, IDENT_BYTES - 512);
		damage(box, "cairn.id", offset, 1 + (uint32_t)random_below(random, 511));
		return;
	case 1: /* labels */
		offset = random_below(random, 2 * FMT_PAGE - 64);
		damage(box, DEVICE, offset, 64);
		return;
	case 2: /* one copy of a page of the ledger */
		page = random_below(random, disk->log.extent + 2u);
		offset = disk_ledger_offset(disk, disk->log.area, copy, (uint32_t)page);
		damage(box, DEVICE, offset + random_below(random, 4000), 40);
		return;
	case 3: /* a run of pages in one copy, or both */
		page = random_below(random, disk->log.extent);
		for (uint32_t c = copy; c < 1 + (random_below(random, 4) == 0); c++)
			blank(box, DEVICE, disk_ledger_offset(disk, disk->log.area, c, (uint32_t)page), FMT_PAGE);
		return;
	case 4: /* a footer */
		segment = random_below(random, disk->log.nsegments);
		offset = disk_offset(disk, (uint32_t)segment, disk->segment_pages - 1);
		if (offset + FMT_PAGE <= original_bytes)
			damage(box, DEVICE, offset + random_below(random, 100), 8);
		return;
	case 5:
	case 6: /* an index */
		page = random_below(random, ngroups);
		offset = disk_offset(disk, groups[page].segment, groups[page].first_page);
		if (random_below(random, 3))
			damage(box, DEVICE, offset + random_below(random, 600), 8);
		else
			blank(box, DEVICE, offset, FMT_PAGE);
		return;
	case 7:
		offset = offset / FMT_PAGE * FMT_PAGE;
		blank(box, DEVICE, offset, FMT_PAGE);
		return;
	default:
		damage(box, DEVICE, offset, length);
	}
}

/* After a repair: clean, opens, serves what it must; for some, once more. */
static void must_serve(struct box *box, const uint8_t *before, int doubtful, uint64_t seed)
{
	struct fsck_report report;
	uint32_t first = 0;
	for (int look = 0; look < (seed % 4 ? 1 : 2); look++) {
		int result = box_fsck(box, 0, &report);
		if (result != FSCK_CLEAN)
			fail_msg("seed %llu: not clean after a repair, look %d", (unsigned long long)seed, look);
		uint32_t served = box_serves(box);
		first = look ? first : served;
		assert_int_equal(served, first);
		for (uint32_t i = 0; i < box->nblocks && !doubtful; i++)
			if (survives(before, &box->blocks[i]) && box->blocks[i].status != CAIRN_OK) {
				const struct part *part = map_part(&made_map, &box->blocks[i].key);
				fail_msg("seed %llu: block %u, segment %u, page %u, is lost: %d", (unsigned long long)seed, i,
				         part->segment, part->page, box->blocks[i].status);
			}
	}
}

static void test_fsck_random__loses_nothing_that_is_whole_when_anything_is_damaged(void **state)
{
	(void)state;
	uint32_t repaired = 0, doubts = 0;
	const char *only = getenv("FSCK_SEED"), *more = getenv("FSCK_TRIALS");
	uint64_t trials = more ? strtoull(more, NULL, 10) : TRIALS;
	for (uint64_t seed = only ? strtoull(only, NULL, 10) : 0; only || seed < trials; seed++) {
		struct random random;
		struct box box;
		struct fsck_report report;
		size_t bytes;
		random_init(&random, seed);
		box_init(&box, 1);
		box_copy(&made, &box);
		for (uint64_t i = 0, n = 1 + random_below(&random, 5); i < n; i++)
			hurt(&box, &random);
		if (random_below(&random, 12) == 0) { /* the end of the file is gone */
			int fd = damage_open(&box, DEVICE);
			uint64_t pages = original_bytes / FMT_PAGE - 256;
			assert_int_equal(ftruncate(fd, (off_t)(FMT_PAGE * (256 + random_below(&random, pages)))), 0);
			close(fd);
		}
		uint8_t *before = device_load(&box, &bytes);
		int doubtful = ledger_lost(before), checked = box_fsck(&box, 0, &report), result = box_fsck(&box, 1, &report);
		if (result == FSCK_DAMAGED || (result == FSCK_REPAIRED) != (checked == FSCK_DAMAGED))
			fail_msg("seed %llu: a check ended with %d, a repair with %d", (unsigned long long)seed, checked, result);
		must_serve(&box, before, doubtful, seed);
		repaired += result == FSCK_REPAIRED;
		doubts += (uint32_t)doubtful;
		free(before);
		box_done(&box);
		if (only)
			break;
	}
	if (!only)
		assert_true(repaired > trials / 2 && doubts > 0 && doubts < trials / 4);
}

/* ---- repairs that are cut off ------------------------------------------------------------------------------------ */

struct cut {
	int left;  /* writes that still succeed */
	int fired;
};
struct cut_io {
	struct io io;
	struct io *real;
	struct io_ops ops;
	struct cut *cut;
};

static int cut_pread(struct io *io, void *bytes, uint64_t length, uint64_t offset)
{
	struct io *real = ((struct cut_io *)io)->real;
	return real->ops->pread(real, bytes, length, offset);
}

/* The one at which the power goes is written in part; none after it. */
static int cut_pwrite(struct io *io, const void *bytes, uint64_t length, uint64_t offset)
{
	struct cut_io *cut = (struct cut_io *)io;
	if (cut->cut->left-- > 0)
		return cut->real->ops->pwrite(cut->real, bytes, length, offset);
	if (!cut->cut->fired && length > FMT_PAGE)
		(void)cut->real->ops->pwrite(cut->real, bytes, length / 2 / FMT_PAGE * FMT_PAGE, offset);
	else if (!cut->cut->fired) {
		uint8_t *half = mem_aligned(FMT_PAGE, FMT_PAGE);
		if (!cut->real->ops->pread(cut->real, half, FMT_PAGE, offset)) {
			memcpy(half, bytes, FMT_PAGE / 2);
			(void)cut->real->ops->pwrite(cut->real, half, FMT_PAGE, offset);
		}
		mem_free(half);
	}
	cut->cut->fired = 1;
	return -EIO;
}

static int cut_sync(struct io *io)
{
	struct cut_io *cut = (struct cut_io *)io;
	return cut->cut->fired ? -EIO : cut->real->ops->sync(cut->real);
}

static int cut_space(struct io *io, uint64_t *size, uint64_t *free, uint64_t *all)
{
	struct io *real = ((struct cut_io *)io)->real;
	return real->ops->space(real, size, free, all);
}

static void cut_close(struct io *io)
{
	struct io *real = ((struct cut_io *)io)->real;
	real->ops->close(real);
	free(io);
}

static int cut_open(void *arg, const char *path, uint32_t flags, uint32_t threads, struct io **ret_io)
{
	struct cut_io *cut = calloc(1, sizeof *cut);
	int error = io_maker_real.open(NULL, path, flags, threads, &cut->real);
	if (error) {
		free(cut);
		return error;
	}
	cut->ops = (struct io_ops){.name = "cut", .pread = cut_pread, .pwrite = cut_pwrite, .sync = cut_sync,
	                           .space = cut_space, .close = cut_close};
	cut->io.ops = &cut->ops;
	cut->io.clock = &clock_real;
	cut->cut = arg;
	*ret_io = &cut->io;
	return 0;
}

/* Something of everything: labels, ledger, an index, a footer, payloads, the manifest's neighbour. */
static void hurt_all(const struct box *box, int hole, int identity)
{
	const struct disk *disk = made_map.disk;
	uint32_t first = map_segment(&made_map, LEDGER_SEALED, 0);
	damage(box, DEVICE, 0, 2 * FMT_PAGE);
	damage(box, DEVICE, disk_offset(disk, first, 0) + 200, 8);
	for (uint32_t i = 0; i < ngroups; i++)
		if (groups[i].segment == first && groups[i].first_page)
			damage(box, DEVICE, disk_offset(disk, first, groups[i].first_page) + 300, 8);
	for (uint32_t i = 2; i < box->nblocks; i += 11) {
		const struct part *part = map_part(&made_map, &box->blocks[i].key);
		damage(box, DEVICE, disk_offset(disk, part->segment, part->page), 1);
	}
	for (uint32_t copy = 0; copy < 1 + (uint32_t)hole; copy++)
		damage(box, DEVICE, disk_ledger_offset(disk, disk->log.area, copy, disk->log.extent / 2) + 50, 4);
	if (identity)
		damage(box, "cairn.id", 0, IDENT_BYTES);
}

static void test_fsck_random__finishes_a_repair_that_was_cut_off_at_any_write(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3; kind++) {
		struct box hurt_box;
		size_t bytes;
		box_init(&hurt_box, 1);
		box_copy(&made, &hurt_box);
		hurt_all(&hurt_box, kind == 1, kind == 2);
		uint8_t *before = device_load(&hurt_box, &bytes);
		int writes = 0;
		for (int done = 0; !done; writes++) {
			struct box box, opened;
			struct fsck_report report;
			struct cut cut = {.left = writes};
			struct io_maker maker = io_maker_real;
			maker.open = cut_open;
			maker.arg = &cut;
			box_init(&box, 1);
			box_copy(&hurt_box, &box);
			struct fsck_options options = box_fsck_options(&box, 1);
			int result = fsck_run_with(&options, &maker, &report);
			done = !cut.fired;
			assert_int_equal(result, done ? FSCK_REPAIRED : CAIRN_E_IO);
			/* Either it is opened as it is ... */
			box_init(&opened, 1);
			box_copy(&box, &opened);
			cairn *store = NULL;
			int error = cairn_open(opened.path, &opened.options, &store);
			if (error && (error != CAIRN_E_CORRUPT || kind != 2))
				fail_msg("cut at write %d: open: %d %s", writes, error, cairn_error_text());
			if (!error) {
				(void)box_look(&opened, store);
				box_close(store);
				assert_true(box_fsck(&opened, 1, &report) != FSCK_DAMAGED);
				(void)box_serves(&opened);
				assert_int_equal(box_fsck(&opened, 0, &report), FSCK_CLEAN);
			}
			box_done(&opened);
			/* ... or repaired again. */
			assert_true(box_fsck(&box, 1, &report) != FSCK_DAMAGED);
			must_serve(&box, before, kind == 1, (uint64_t)writes);
			box_done(&box);
		}
		assert_true(writes > 4);
		free(before);
		box_done(&hurt_box);
	}
}

/* ---- no memory --------------------------------------------------------------------------------------------------- */

static void test_fsck_random__fails_whole_when_any_allocation_fails(void **state)
{
	(void)state;
	struct box box;
	size_t bytes;
	box_init(&box, 1);
	box_copy(&made, &box);
	hurt_all(&box, 0, 0);
	uint8_t *before = device_load(&box, &bytes);
	for (uint64_t n = 1;; n += n < 100 ? 1 : 7) {
		struct fsck_report report;
		struct fsck_options options = box_fsck_options(&box, 1);
		mem_fail_at(n, 0);
		int result = fsck_run(&options, &report);
		int failed = mem_failed();
		mem_fail_at(0, 0);
		if (!failed)
			break;
		assert_true(result == CAIRN_E_NOMEM || result == FSCK_REPAIRED || result == FSCK_DAMAGED ||
		            result == FSCK_CLEAN);
	}
	assert_true(box_fsck(&box, 1, NULL) != FSCK_DAMAGED);
	must_serve(&box, before, 0, 0);
	free(before);
	box_done(&box);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fsck_random__loses_nothing_that_is_whole_when_anything_is_damaged),
		cmocka_unit_test(test_fsck_random__finishes_a_repair_that_was_cut_off_at_any_write),
		cmocka_unit_test(test_fsck_random__fails_whole_when_any_allocation_fails),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
