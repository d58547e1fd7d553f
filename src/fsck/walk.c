/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a device's segments: every group's index, the footers of sealed segments, the checkpoint. Finds which parts a
 * reader would find, and which indexes are damaged. Payloads are parts.c's.
 *
 * In a segment with a good footer the footer says what is in it, and the groups are compared with it; in all others the
 * groups tell, and beyond a page that is no group the search goes on to the segment's end.
 *
 * Threads: the caller's. Memory: a window of pages while it runs; parts are struct disk's.
 * Invariant: what counts as a group or a footer has a salted checksum that proves the segment's present life.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "cairn/cairn.h"
#include "fmt/checkpoint.h"
#include "fsck/fsck_in.h"

enum {
	WINDOW_HOP = 4,      /* pages read at once where a group is expected ... */
	WINDOW_SCAN = 256,   /* ... and where one is searched for */
	EPOCHS_MAX = 1024,
};

struct epoch { /* how far the device was known to be flushed, in one open */
	uint64_t epoch, flushed_through;
};

struct hidden { /* groups behind a blank page, where a reader ends */
	uint32_t segment, page;
	uint32_t first_part, end_part;
	uint64_t sequence;
};

struct walk {
	struct disk *disk;
	uint32_t segment;
	const struct log_segment *life;
	uint32_t segment_pages;
	uint8_t *window; /* WINDOW_SCAN + FMT_INDEX_PAGES_MAX pages */
	uint32_t window_from, window_to, loaded_to;
	struct fmt_group group;
	struct fmt_entry *entries; /* FMT_GROUP_ENTRIES_MAX, of the group */
	uint8_t *footer_pages;
	struct fmt_footer footer;
	struct fmt_entry *footer_entries; /* disk->entries_max */
	int newer;
	struct epoch epochs[EPOCHS_MAX];
	uint32_t nepochs;
	struct hidden *hidden;
	uint32_t nhidden, hidden_room;
};

static int walk_open(struct walk *walk, struct disk *disk)
{
	memset(walk, 0, sizeof(*walk));
	walk->disk = disk;
	walk->segment_pages = disk->segment_pages;
	walk->window = mem_aligned(FMT_PAGE, (size_t)(WINDOW_SCAN + FMT_INDEX_PAGES_MAX) * FMT_PAGE);
	walk->entries = mem_array(FMT_GROUP_ENTRIES_MAX, sizeof(*walk->entries));
	walk->footer_pages = mem_aligned(FMT_PAGE, (size_t)(segment_footer_entry_pages(disk->entries_max) + 1) * FMT_PAGE);
	walk->footer_entries = mem_array(disk->entries_max, sizeof(*walk->footer_entries));
	return walk->window && walk->entries && walk->footer_pages && walk->footer_entries
	           ? 0
	           : err_set(CAIRN_E_NOMEM, "no memory to check %s", disk->path);
}

static void walk_close(struct walk *walk)
{
	mem_free(walk->window);
	mem_free(walk->entries);
	mem_free(walk->footer_pages);
	mem_free(walk->footer_entries);
	mem_free(walk->hidden);
}

static void walk_segment_set(struct walk *walk, uint32_t segment, const struct log_segment *life)
{
	walk->segment = segment;
	walk->life = life;
	walk->window_from = walk->window_to = 0;
}

static uint64_t walk_offset(const struct walk *walk, uint32_t page)
{
	return walk->disk->label.segments_offset + ((uint64_t)walk->segment * walk->segment_pages + page) * FMT_PAGE;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* A page of the segment; the window is moved so that it begins there where it is not inside. */
static const uint8_t *walk_page(struct walk *walk, uint32_t page, uint32_t want)
{
	if (page < walk->window_from || page >= walk->window_to) {
		uint32_t left = walk->segment_pages - page;
		want = want < left ? want : left;
		(void)disk_read(walk->disk, walk->window, (uint64_t)want * FMT_PAGE, walk_offset(walk, page));
		walk->window_from = page;
		walk->window_to = page + want;
	}
	return walk->window + (size_t)(page - walk->window_from) * FMT_PAGE;
}

/* Whether a group of this life begins at `page`. It is in walk->group and entries then. */
static int walk_group(struct walk *walk, uint32_t page, uint32_t want)
{
	const uint8_t *at = walk_page(walk, page, want);
	struct fmt_group *group = &walk->group;
	if (segment_group_peek(at, walk->segment_pages, group) != FMT_OK || group->first_page != page ||
	    group->segment != walk->segment || group->life != walk->life->life)
		return 0;
	uint32_t have = walk->window_to - page;
	if (group->index_pages > have) { /* there is room behind the window */
		if (page + group->index_pages > walk->segment_pages)
			return 0;
		(void)disk_read(walk->disk, walk->window + (size_t)(walk->window_to - walk->window_from) * FMT_PAGE,
		                (uint64_t)(group->index_pages - have) * FMT_PAGE, walk_offset(walk, walk->window_to));
	}
	int result = segment_group_decode(at, group->index_pages, walk->segment_pages, walk->life->salt, group,
	                                  walk->entries, FMT_GROUP_ENTRIES_MAX);
	walk->newer |= result == FMT_NEWER;
	return result == FMT_OK;
}

/* ---- footer ------------------------------------------------------------------------------------------------------ */

/* The trailer alone. */
static int walk_trailer(struct walk *walk, uint8_t *trailer)
{
	(void)disk_read(walk->disk, trailer, FMT_PAGE, walk_offset(walk, walk->segment_pages - 1));
	int result = segment_trailer_decode(trailer, walk->segment_pages, walk->life->salt, &walk->footer);
	walk->newer |= result == FMT_NEWER;
	return result == FMT_OK && walk->footer.segment == walk->segment && walk->footer.life == walk->life->life;
}

/* Whether the segment's footer is good. It is in walk->footer and footer_entries then. */
static int walk_footer(struct walk *walk)
{
	struct disk *disk = walk->disk;
	uint8_t *trailer = walk->footer_pages + (size_t)segment_footer_entry_pages(disk->entries_max) * FMT_PAGE;
	if (!walk_trailer(walk, trailer) || walk->footer.nentries > disk->entries_max)
		return 0;
	if (walk->footer.entries_pages)
		(void)disk_read(disk, walk->footer_pages, (uint64_t)walk->footer.entries_pages * FMT_PAGE,
		                walk_offset(walk, walk->footer.entries_page));
	int result = segment_footer_decode(&walk->footer, trailer, walk->footer_pages, walk->segment_pages,
	                                   walk->life->salt, walk->footer_entries);
	walk->newer |= result == FMT_NEWER;
	return result == FMT_OK;
}

int walk_proves(struct disk *disk, const struct log_segment *life, uint32_t segment, uint32_t segment_pages)
{
	struct walk walk = {.disk = disk, .segment_pages = segment_pages};
	uint8_t *memory = mem_aligned(FMT_PAGE, (size_t)(WINDOW_HOP + FMT_INDEX_PAGES_MAX) * FMT_PAGE);
	struct fmt_entry *entries = mem_array(FMT_GROUP_ENTRIES_MAX, sizeof(*entries));
	int proven = 0;
	walk.window = memory;
	walk.entries = entries;
	walk_segment_set(&walk, segment, life);
	if (memory && entries && walk_offset(&walk, 0) < disk->size)
		proven = walk_group(&walk, 0, WINDOW_HOP) || walk_trailer(&walk, memory);
	mem_free(memory);
	mem_free(entries);
	return proven;
}

/* ---- what is found ----------------------------------------------------------------------------------------------- */

static int part_add(struct walk *walk, const struct fmt_entry *entry, uint64_t sequence)
{
	struct disk *disk = walk->disk;
	void *parts = disk->parts;
	uint32_t space = fsck_space(disk->fsck, entry->space);
	if (space == UINT32_MAX)
		return CAIRN_E_NOMEM;
	int error = fsck_grow(&parts, disk->nparts, &disk->parts_room, sizeof(*disk->parts));
	disk->parts = parts;
	if (error)
		return error;
	struct part *part = &disk->parts[disk->nparts++];
	memset(part, 0, sizeof(*part));
	memcpy(part->key, entry->key, 32);
	memcpy(&part->check, entry->stored_check, 8);
	part->birth = entry->birth;
	part->sequence = sequence;
	part->space = space;
	part->segment = walk->segment;
	part->page = entry->page;
	part->raw_length = entry->raw_length;
	part->stored_length = entry->stored_length;
	part->part = entry->part;
	part->codec = entry->codec;
	part->flags = entry->flags;
	if (entry->birth > disk->max_birth)
		disk->max_birth = entry->birth;
	return 0;
}

static void epoch_note(struct walk *walk, uint64_t epoch, uint64_t through)
{
	for (uint32_t i = 0; i < walk->nepochs; i++)
		if (walk->epochs[i].epoch == epoch) {
			if (through > walk->epochs[i].flushed_through)
				walk->epochs[i].flushed_through = through;
			return;
		}
	if (walk->nepochs < EPOCHS_MAX)
		walk->epochs[walk->nepochs++] = (struct epoch){epoch, through};
}

/* Whether it was known, in the very open that wrote it, that this group had been flushed. */
static int epoch_promised(const struct walk *walk, uint64_t sequence)
{
	for (uint32_t i = 0; i < walk->nepochs; i++)
		if (walk->epochs[i].epoch == sequence >> 32)
			return walk->epochs[i].flushed_through >= sequence;
	return 0;
}

static void group_note(struct walk *walk)
{
	struct disk *disk = walk->disk;
	const struct fmt_group *group = &walk->group;
	disk->fsck->report->groups++;
	if (group->flushed_through > disk->flushed_through)
		disk->flushed_through = group->flushed_through;
	if (group->sequence > disk->max_sequence)
		disk->max_sequence = group->sequence;
	if (group->ledger_sequence > disk->max_ledger_sequence)
		disk->max_ledger_sequence = group->ledger_sequence;
	epoch_note(walk, group->sequence >> 32, group->flushed_through);
}

static void tell_group(struct walk *walk, uint32_t severity, uint32_t page, const char *what)
{
	fsck_tell(walk->disk->fsck, severity, walk->disk, walk_offset(walk, page), "segment %u, page %u: %s",
	          walk->segment, page, what);
}

/* ---- with a good footer ------------------------------------------------------------------------------------------ */

/* Pages [from, to) hold no group: was there one that the footer knows parts of? */
static int gap_sealed(struct walk *walk, uint32_t from, uint32_t to, const struct fmt_group *before, uint64_t after)
{
	struct disk *disk = walk->disk;
	int named = 0;
	for (uint32_t i = 0; i < walk->footer.nentries && !named; i++)
		named = walk->footer_entries[i].page >= from && walk->footer_entries[i].page < to;
	if (!named)
		return 0; /* what was there is no more */
	disk->fsck->report->groups_damaged++;
	tell_group(walk, FSCK_MENDABLE, from, "a group's index is damaged; the footer knows its parts");
	void *gaps = disk->gaps;
	int error = fsck_grow(&gaps, disk->ngaps, &disk->gaps_room, sizeof(*disk->gaps));
	disk->gaps = gaps;
	if (error)
		return error;
	disk->gaps[disk->ngaps++] = (struct gap){
		.segment = walk->segment,
		.from = from,
		.to = to,
		.before = before->sequence ? before->sequence : walk->footer.first_sequence - 1,
		.after = after,
		.flushed_through = before->flushed_through,
		.ledger_sequence = before->ledger_sequence,
	};
	return 0;
}

static int walk_sealed(struct walk *walk, struct seg *seg)
{
	struct fmt_group before = {0};
	uint32_t page = 0, gap = UINT32_MAX;
	int error = 0;
	seg->used_pages = walk->footer.used_pages;
	seg->entries_page = walk->footer.entries_page;
	seg->first_sequence = walk->footer.first_sequence;
	seg->last_sequence = walk->footer.last_sequence;
	if (walk->footer.last_sequence > walk->disk->max_sequence)
		walk->disk->max_sequence = walk->footer.last_sequence;
	for (uint32_t i = 0; i < walk->footer.nentries && !error; i++)
		error = part_add(walk, &walk->footer_entries[i], 0);
	while (page < walk->footer.used_pages && !error) {
		if (!walk_group(walk, page, gap == UINT32_MAX ? WINDOW_HOP : WINDOW_SCAN) ||
		    walk->group.sequence <= before.sequence) {
			gap = gap == UINT32_MAX ? page : gap;
			page++;
			continue;
		}
		if (gap != UINT32_MAX)
			error = gap_sealed(walk, gap, page, &before, walk->group.sequence);
		gap = UINT32_MAX;
		group_note(walk);
		before = walk->group;
		page += walk->group.total_pages;
	}
	if (gap != UINT32_MAX && !error)
		error = gap_sealed(walk, gap, walk->footer.used_pages, &before, 0);
	return error;
}

/* ---- all others: the groups tell --------------------------------------------------------------------------------- */

/* Behind the last group lie pages that are no group. What a crash left there is no damage. */
static void tail_open(struct walk *walk, struct seg *seg, uint32_t from)
{
	static const char magic[8] = {'C', 'A', 'I', 'R', 'N', 'G', 'R', 'P'};
	const uint8_t *page = walk_page(walk, from, WINDOW_HOP);
	int clean = walk->disk->log.mark.u.mark.clean, group = !memcmp(page, magic, sizeof(magic));
	if (fsck_blank(page, FMT_PAGE))
		return;
	if (walk->life->state == LEDGER_SEALED && !group)
		return; /* the footer's entries */
	if (!clean && walk->life->state == LEDGER_OPEN) {
		tell_group(walk, FSCK_NOTE, from, "what lies behind the last group was not finished when the store crashed");
		return;
	}
	walk->disk->fsck->report->groups_damaged++;
	seg->renew = 1;
	tell_group(walk, FSCK_LOST, from, "a group's index is damaged: its parts are lost");
}

static int hidden_add(struct walk *walk, uint32_t page, uint32_t first_part)
{
	void *hidden = walk->hidden;
	int error = fsck_grow(&hidden, walk->nhidden, &walk->hidden_room, sizeof(*walk->hidden));
	walk->hidden = hidden;
	if (!error)
		walk->hidden[walk->nhidden++] = (struct hidden){
			.segment = walk->segment,
			.page = page,
			.first_part = first_part,
			.end_part = walk->disk->nparts,
			.sequence = walk->group.sequence,
		};
	return error;
}

static int walk_open_segment(struct walk *walk, struct seg *seg)
{
	struct disk *disk = walk->disk;
	uint32_t page = 0, gap = UINT32_MAX, hidden = 0, first;
	int error = 0;
	while (page < walk->segment_pages - 1 && !error) {
		if (!walk_group(walk, page, gap == UINT32_MAX ? WINDOW_HOP : WINDOW_SCAN) ||
		    walk->group.sequence <= seg->last_sequence) {
			if (gap == UINT32_MAX) {
				gap = page;
				hidden |= fsck_blank(walk_page(walk, page, WINDOW_HOP), FMT_PAGE) != 0;
			}
			page++;
			continue;
		}
		first = disk->nparts;
		for (uint32_t i = 0; i < walk->group.nentries && !error; i++)
			if (disk->nparts - seg->first_part < disk->entries_max)
				error = part_add(walk, &walk->entries[i], walk->group.sequence);
		if (gap != UINT32_MAX && !hidden) {
			disk->fsck->report->groups_damaged++;
			seg->renew = 1;
			tell_group(walk, FSCK_LOST, gap, "a group's index is damaged, or a power loss tore it: its parts are lost");
		}
		if (hidden && !error)
			error = hidden_add(walk, gap == UINT32_MAX ? page : gap, first);
		gap = UINT32_MAX;
		group_note(walk);
		seg->first_sequence = seg->first_sequence ? seg->first_sequence : walk->group.sequence;
		seg->last_sequence = walk->group.sequence;
		page += walk->group.total_pages;
		seg->used_pages = seg->entries_page = page;
	}
	if (gap != UINT32_MAX && !hidden && !error)
		tail_open(walk, seg, seg->used_pages);
	return error;
}

/* Groups behind a blank page: a reader ends before it. That they were flushed proves that the page was an index; if
 * they never were, they are no part of the store. */
static void hidden_judge(struct walk *walk)
{
	struct disk *disk = walk->disk;
	uint64_t mark = disk->log.mark.u.mark.flushed_through;
	epoch_note(walk, disk->log.mark.u.mark.group_epoch, mark);
	for (uint32_t i = walk->nhidden; i-- > 0;) {
		const struct hidden *hidden = &walk->hidden[i];
		struct seg *seg = &disk->segs[hidden->segment];
		if (epoch_promised(walk, hidden->sequence)) {
			if (!seg->renew) {
				disk->fsck->report->groups_damaged++;
				walk_segment_set(walk, hidden->segment, &disk->log.segments[hidden->segment]);
				tell_group(walk, FSCK_LOST, hidden->page, "a group's index is blank, and flushed groups lie behind it");
			}
			seg->renew = 1;
		} else if (!seg->renew) { /* the last of its segment; a promised one behind it keeps them all */
			for (uint32_t p = hidden->first_part; p < hidden->end_part; p++)
				disk->parts[p].state = PART_UNFLUSHED;
			disk->fsck->report->groups--;
		}
	}
}

/* ---- checkpoint -------------------------------------------------------------------------------------------------- */

static int checkpoint_good(struct disk *disk, int *ret_error)
{
	const struct ledger_record *mark = &disk->log.mark;
	struct fsck *fsck = disk->fsck;
	uint32_t segment = mark->u.mark.checkpoint_segment;
	struct checkpoint_head head;
	struct digest_xxh check;
	if (segment >= disk->log.nsegments || disk->log.segments[segment].state != LEDGER_CHECKPOINT)
		return 0;
	uint64_t base = disk_offset(disk, segment, 0);
	(void)disk_read(disk, fsck->chunk, FMT_PAGE, base);
	if (checkpoint_head_decode(fsck->chunk, &head) != FMT_OK ||
	    memcmp(head.device_id, disk->label.device_id, 16) || head.sequence != mark->u.mark.checkpoint_sequence)
		return 0;
	uint64_t size = checkpoint_size(head.nlives, head.nspaces, head.nentries);
	if (size != mark->u.mark.checkpoint_bytes ||
	    size > (uint64_t)(disk->log.nsegments - segment) * disk->label.segment_bytes)
		return 0;
	digest_xxh_init(&check, CHECKPOINT_SEED);
	*ret_error = fsck_step(fsck, disk, "checkpoint", size);
	for (uint64_t at = FMT_PAGE; at < size && !*ret_error; at += DISK_CHUNK) {
		uint64_t length = size - at < DISK_CHUNK ? size - at : DISK_CHUNK;
		(void)disk_read(disk, fsck->chunk, length, base + at);
		digest_xxh_add(&check, fsck->chunk, length);
		*ret_error = fsck_advance(fsck, length);
	}
	return digest_xxh_done(&check) == head.body_check;
}

static int checkpoint_run(struct disk *disk)
{
	int error = 0;
	if (!disk->log.mark.u.mark.clean || disk->log.holes || disk->log.mark.u.mark.checkpoint_segment == UINT32_MAX)
		return 0; /* nobody would read it */
	if (checkpoint_good(disk, &error) || error)
		return error;
	disk->fsck->report->checkpoints_damaged++;
	disk->log.anew = 1;
	fsck_tell(disk->fsck, FSCK_MENDABLE, disk, FSCK_NO_OFFSET,
	          "the checkpoint is damaged: footers and indexes tell what it said");
	return 0;
}

/* ---- all segments ------------------------------------------------------------------------------------------------ */

static int walk_one(struct walk *walk, uint32_t segment)
{
	struct disk *disk = walk->disk;
	struct seg *seg = &disk->segs[segment];
	const struct log_segment *life = &disk->log.segments[segment];
	int error;
	walk_segment_set(walk, segment, life);
	seg->first_part = disk->nparts;
	if (walk_footer(walk)) { /* one that the ledger calls open was sealed when the store died */
		seg->footer = SEG_FOOTER_GOOD;
		error = walk_sealed(walk, seg);
	} else {
		if (life->state == LEDGER_SEALED) {
			seg->footer = SEG_FOOTER_BAD;
			seg->renew = 1;
			disk->fsck->report->footers_damaged++;
			fsck_tell(disk->fsck, FSCK_MENDABLE, disk, walk_offset(walk, walk->segment_pages - 1),
			          "segment %u: its footer is damaged; its groups tell what is in it", segment);
		}
		error = walk_open_segment(walk, seg);
	}
	seg->nparts = disk->nparts - seg->first_part;
	if (!error && walk->newer)
		error = err_set(CAIRN_E_VERSION, "%s was written by a newer cairn: use that one's fsck", disk->path);
	return error;
}

static void count_states(struct disk *disk)
{
	struct fsck_report *report = disk->fsck->report;
	for (uint32_t i = 0; i < disk->log.nsegments; i++) {
		const struct log_segment *segment = &disk->log.segments[i];
		report->segments_free += segment->life && segment->state == LEDGER_FREE;
		report->segments_open += segment->life && segment->state == LEDGER_OPEN;
		report->segments_sealed += segment->life && segment->state == LEDGER_SEALED;
		report->segments_checkpoint += segment->life && segment->state == LEDGER_CHECKPOINT;
	}
}

/* An end of the ledger before a page that a group knows to have been durable. */
static void ledger_cut(struct disk *disk)
{
	struct log *log = &disk->log;
	if (disk->max_ledger_sequence <= log->sequence)
		return;
	disk->fsck->report->ledger_pages_damaged_both++;
	fsck_tell(disk->fsck, FSCK_LOST, disk, FSCK_NO_OFFSET,
	          "the ledger ends %llu pages before what a group knows to have been written: what they decided is lost",
	          (unsigned long long)(disk->max_ledger_sequence - log->sequence));
	log->holes++;
	log->anew = 1;
	log->doubt_through = UINT64_MAX;
}

/* A segment that no record of the ledger names has never been written. If one begins like a group all the same, the
 * ledger lost its record, and the salt that could prove the group. */
static void ledger_strays(struct walk *walk)
{
	struct disk *disk = walk->disk;
	uint32_t strays = 0;
	for (uint32_t i = 0; i < disk->log.nsegments; i++) {
		struct log_segment *segment = &disk->log.segments[i];
		struct fmt_group group;
		if (segment->life || disk_offset(disk, i, 0) >= disk->size)
			continue;
		walk_segment_set(walk, i, segment);
		if (segment_group_peek(walk_page(walk, 0, 1), walk->segment_pages, &group) != FMT_OK || group.segment != i)
			continue;
		segment->state = LEDGER_FREE;
		segment->life = group.life && group.life < UINT64_MAX / 2 ? group.life : 1; /* the next one is above it */
		strays++;
	}
	if (!strays || disk->log.holes || disk->log.empty)
		return; /* known already */
	disk->fsck->report->ledger_pages_damaged_both++;
	fsck_tell(disk->fsck, FSCK_LOST, disk, FSCK_NO_OFFSET,
	          "%u segments were written that the ledger does not know: what they hold, and what it dropped, is lost",
	          strays);
	disk->log.holes++;
	disk->log.anew = 1;
	disk->log.doubt_through = UINT64_MAX;
}

int walk_run(struct disk *disk)
{
	struct walk *walk = mem_alloc(sizeof(*walk));
	uint32_t used = 0;
	disk->segs = mem_array(disk->log.nsegments ? disk->log.nsegments : 1, sizeof(*disk->segs));
	if (!walk || !disk->segs) {
		mem_free(walk);
		return err_set(CAIRN_E_NOMEM, "no memory to check %s", disk->path);
	}
	count_states(disk);
	disk->flushed_through = disk->log.mark.u.mark.flushed_through;
	for (uint32_t i = 0; i < disk->log.nsegments; i++)
		used += disk->log.segments[i].state == LEDGER_OPEN || disk->log.segments[i].state == LEDGER_SEALED;
	int error = walk_open(walk, disk);
	if (!error)
		error = fsck_step(disk->fsck, disk, "indexes", (uint64_t)used * disk->label.segment_bytes);
	for (uint32_t i = 0; i < disk->log.nsegments && !error; i++) {
		if (disk->log.segments[i].state != LEDGER_OPEN && disk->log.segments[i].state != LEDGER_SEALED)
			continue;
		error = walk_one(walk, i);
		if (!error)
			error = fsck_advance(disk->fsck, disk->label.segment_bytes);
	}
	if (!error)
		hidden_judge(walk);
	if (!error)
		ledger_strays(walk);
	if (!error)
		ledger_cut(disk);
	if (!error)
		error = checkpoint_run(disk);
	walk_close(walk);
	mem_free(walk);
	return error;
}

int walk_entries(struct disk *disk, uint32_t segment, struct fmt_entry *entries)
{
	const struct seg *seg = &disk->segs[segment];
	struct walk *walk = mem_alloc(sizeof(*walk));
	uint32_t n = 0, page = 0;
	uint64_t sequence = 0;
	int error = walk ? walk_open(walk, disk) : err_set(CAIRN_E_NOMEM, "no memory to mend %s", disk->path);
	if (!error) {
		walk_segment_set(walk, segment, &disk->log.segments[segment]);
		if (seg->footer == SEG_FOOTER_GOOD && walk_footer(walk))
			for (; n < walk->footer.nentries && n < seg->nparts; n++)
				entries[n] = walk->footer_entries[n];
		while (seg->footer != SEG_FOOTER_GOOD && page < seg->used_pages) {
			if (!walk_group(walk, page, WINDOW_HOP) || walk->group.sequence <= sequence) {
				page++;
				continue;
			}
			for (uint32_t i = 0; i < walk->group.nentries && n < seg->nparts; i++)
				entries[n++] = walk->entries[i];
			sequence = walk->group.sequence;
			page += walk->group.total_pages;
		}
		if (n != seg->nparts)
			error = err_set(CAIRN_E_IO, "%s reads otherwise than a moment ago: segment %u", disk->path, segment);
		for (uint32_t i = 0; i < n && !error; i++)
			if (memcmp(entries[i].key, disk->parts[seg->first_part + i].key, 32))
				error = err_set(CAIRN_E_IO, "%s reads otherwise than a moment ago: segment %u", disk->path, segment);
		walk_close(walk);
	}
	mem_free(walk);
	return error;
}
