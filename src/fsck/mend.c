/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `repair` writes into a device's segments. In this order, each step flushed before the next:
 *   1. the label;
 *   2. indexes that are damaged, from the footer, while the footer still is what it was;
 *   3. footers that list exactly the good parts, over damaged ones and behind the groups of open segments;
 *   4. the ledger: as a snapshot, where a segment changed its state or the ledger has holes.
 * Cut off anywhere, each segment is what it was or what it shall be, and the ledger is the old one or the new one.
 *
 * Threads: the caller's. Memory: the entries of one segment, and its footer.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "cairn/cairn.h"
#include "fsck/fsck_in.h"

/* Those of a segment's entries that its footer will name, in place: the good ones, or all where it stays as it is.
 * Returns their number. */
static uint32_t kept_entries(const struct disk *disk, const struct seg *seg, struct fmt_entry *entries)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < seg->nparts; i++)
		if (!seg->renew || disk->parts[seg->first_part + i].state == PART_GOOD)
			entries[n++] = entries[i];
	return n;
}

static int entries_load(struct disk *disk, uint32_t segment, struct fmt_entry **ret_entries, uint32_t *ret_n)
{
	const struct seg *seg = &disk->segs[segment];
	struct fmt_entry *entries = mem_array(seg->nparts ? seg->nparts : 1, sizeof(*entries));
	if (!entries)
		return err_set(CAIRN_E_NOMEM, "no memory to mend %s", disk->path);
	int error = walk_entries(disk, segment, entries);
	if (error) {
		mem_free(entries);
		return error;
	}
	*ret_n = kept_entries(disk, seg, entries);
	*ret_entries = entries;
	return 0;
}

/* ---- indexes ----------------------------------------------------------------------------------------------------- */

static uint32_t entry_end(const struct fmt_entry *entry)
{
	return entry->page + disk_pages_of(entry->stored_length);
}

static void sort_by_page(struct fmt_entry *entries, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) { /* they are nearly in order */
		struct fmt_entry entry = entries[i];
		uint32_t at = i;
		for (; at > 0 && entries[at - 1].page > entry.page; at--)
			entries[at] = entries[at - 1];
		entries[at] = entry;
	}
}

/* How many of entries[0..n), whose first payload lies behind an index at `from`, that index is to name: as many as it
 * can, or, with `apart`, only what lies before the next place for an index. Payloads that lie without room between them
 * belong to one group. 0: it has no room. */
static uint32_t group_length(const struct fmt_entry *entries, uint32_t n, uint32_t from, int apart)
{
	uint32_t room = entries[0].page > from ? entries[0].page - from : 0, length = 0;
	for (uint32_t i = 0; i < n;) {
		uint32_t run = 1;
		while (i + run < n && entries[i + run].page <= entry_end(&entries[i + run - 1]))
			run++;
		if (apart && i && segment_index_pages(run < FMT_GROUP_ENTRIES_MAX ? run : FMT_GROUP_ENTRIES_MAX) <=
		             entries[i].page - entry_end(&entries[i - 1]))
			break;
		if (i + run > FMT_GROUP_ENTRIES_MAX || segment_index_pages(i + run) > room)
			break;
		i += run;
		length = i;
	}
	return length;
}

static int index_write(struct disk *disk, const struct gap *gap, struct fmt_entry *entries, uint32_t n, uint32_t from,
                       uint64_t sequence)
{
	const struct log_segment *life = &disk->log.segments[gap->segment];
	struct fmt_group group = {
		.version = disk->label.version,
		.segment = gap->segment,
		.life = life->life,
		.sequence = sequence,
		.flushed_through = gap->flushed_through,
		.ledger_sequence = gap->ledger_sequence,
		.first_page = from,
		.index_pages = segment_index_pages(n),
		.total_pages = entry_end(&entries[n - 1]) - from,
		.nentries = n,
	};
	memcpy(group.tenant, life->tenant, 16);
	uint8_t *pages = mem_aligned(FMT_PAGE, (size_t)group.index_pages * FMT_PAGE);
	if (!pages)
		return err_set(CAIRN_E_NOMEM, "no memory to mend %s", disk->path);
	segment_group_encode(&group, entries, life->salt, pages);
	int error = disk_write(disk, pages, (uint64_t)group.index_pages * FMT_PAGE, disk_offset(disk, gap->segment, from));
	mem_free(pages);
	if (!error) {
		disk->fsck->report->rebuilt_groups++;
		fsck_tell(disk->fsck, FSCK_DONE, disk, disk_offset(disk, gap->segment, from),
		          "segment %u, page %u: the group's index is made anew from the footer", gap->segment, from);
	}
	return error;
}

/* Whether all of them can be named by indexes in the gap, with sequences of their own. */
static int gap_fits(const struct gap *gap, const struct fmt_entry *entries, uint32_t n, int apart)
{
	uint32_t from = gap->from;
	uint64_t sequence = gap->before;
	for (uint32_t i = 0; i < n;) {
		uint32_t length = group_length(entries + i, n - i, from, apart);
		if (!length || ++sequence == gap->after || entry_end(&entries[i + length - 1]) > gap->to)
			return 0;
		for (uint32_t e = i; e < i + length; e++) /* foreign ones may overlap */
			if (entry_end(&entries[e]) > entry_end(&entries[i + length - 1]))
				return 0;
		i += length;
		from = entry_end(&entries[i - 1]);
	}
	return 1;
}

static int gap_mend(struct disk *disk, const struct gap *gap)
{
	struct fmt_entry *entries;
	uint32_t all, n = 0, from = gap->from;
	uint64_t sequence = gap->before;
	int error = entries_load(disk, gap->segment, &entries, &all);
	if (error)
		return error;
	for (uint32_t i = 0; i < all; i++)
		if (entries[i].page >= gap->from && entries[i].page < gap->to)
			entries[n++] = entries[i];
	sort_by_page(entries, n);
	int apart = !gap_fits(gap, entries, n, 0); /* removed parts leave room between those of one group, too */
	if (apart && !gap_fits(gap, entries, n, 1)) {
		fsck_tell(disk->fsck, FSCK_STUCK, disk, disk_offset(disk, gap->segment, gap->from),
		          "segment %u, page %u: there is no room for an index; the footer serves", gap->segment, gap->from);
		n = 0;
	}
	for (uint32_t i = 0; i < n && !error;) {
		uint32_t length = group_length(entries + i, n - i, from, apart);
		error = index_write(disk, gap, entries + i, length, from, ++sequence);
		i += length;
		from = entry_end(&entries[i - 1]);
	}
	mem_free(entries);
	return error;
}

/* ---- footers ----------------------------------------------------------------------------------------------------- */

static int footer_write(struct disk *disk, uint32_t segment, const struct fmt_entry *entries, uint32_t n)
{
	const struct seg *seg = &disk->segs[segment];
	const struct log_segment *life = &disk->log.segments[segment];
	uint32_t pages = segment_footer_entry_pages(n), last = disk->segment_pages - 1;
	struct fmt_footer footer = {
		.version = disk->label.version,
		.segment = segment,
		.life = life->life,
		.first_sequence = seg->first_sequence,
		.last_sequence = seg->last_sequence,
		.flushed_through = disk->flushed_through,
		.nentries = n,
		.entries_page = seg->entries_page,
		.entries_pages = pages,
		.used_pages = seg->used_pages,
	};
	memcpy(footer.tenant, life->tenant, 16);
	uint8_t *bytes = mem_aligned(FMT_PAGE, (size_t)(pages + 1) * FMT_PAGE);
	if (!bytes)
		return err_set(CAIRN_E_NOMEM, "no memory to mend %s", disk->path);
	segment_footer_encode(&footer, entries, life->salt, bytes, bytes + (size_t)pages * FMT_PAGE);
	int error = disk_write(disk, bytes, (uint64_t)pages * FMT_PAGE, disk_offset(disk, segment, seg->entries_page));
	if (!error)
		error = disk_write(disk, bytes + (size_t)pages * FMT_PAGE, FMT_PAGE, disk_offset(disk, segment, last));
	mem_free(bytes);
	return error;
}

static uint64_t removed_parts(const struct disk *disk, const struct seg *seg)
{
	uint64_t n = 0;
	for (uint32_t i = 0; i < seg->nparts; i++) {
		uint8_t state = disk->parts[seg->first_part + i].state;
		n += state == PART_DAMAGED || state == PART_DOUBTFUL;
	}
	return n;
}

static int segment_renew(struct disk *disk, uint32_t segment)
{
	struct fsck *fsck = disk->fsck;
	struct log_segment *life = &disk->log.segments[segment];
	const struct seg *seg = &disk->segs[segment];
	struct fmt_entry *entries;
	uint32_t n;
	int error = entries_load(disk, segment, &entries, &n);
	if (error)
		return error;
	/* The writer set room aside for all entries; foreign bytes may not have. */
	while (n && (n > seg->used_pages ||
	             seg->entries_page + segment_footer_entry_pages(n) > disk->segment_pages - 1))
		n--;
	if (!n) {
		life->state = LEDGER_FREE;
		fsck->report->freed_segments++;
		fsck_tell(fsck, FSCK_DONE, disk, disk_offset(disk, segment, 0), "segment %u has no good part, and is free",
		          segment);
	} else {
		error = footer_write(disk, segment, entries, n);
		if (!error) {
			life->state = LEDGER_SEALED;
			fsck->report->rewritten_footers++;
			fsck_tell(fsck, FSCK_DONE, disk, disk_offset(disk, segment, disk->segment_pages - 1),
			          "segment %u has a new footer, of %u good parts", segment, n);
		}
	}
	if (!error)
		fsck->report->removed_parts += removed_parts(disk, seg);
	disk->log.anew = 1;
	mem_free(entries);
	return error;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

int mend_run(struct disk *disk)
{
	uint32_t renewed = 0;
	int error = disk_label_mend(disk);
	for (uint32_t i = 0; i < disk->ngaps && !error; i++)
		error = gap_mend(disk, &disk->gaps[i]);
	if (!error && disk->ngaps)
		error = disk_sync(disk);
	for (uint32_t i = 0; i < disk->log.nsegments && !error; i++) {
		if (!disk->segs[i].renew)
			continue;
		error = segment_renew(disk, i);
		renewed++;
	}
	if (!error && renewed)
		error = disk_sync(disk);
	if (!error)
		error = disk->log.anew ? pen_snapshot(disk) : pen_copies(disk);
	return error;
}
