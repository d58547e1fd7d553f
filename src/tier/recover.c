/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reopening a flash device without reading its data: footers of sealed segments (or a checkpoint of a clean close), and
 * hopping from index to index in segments that were being written. Payloads are read only of groups above the highest
 * flushed_through that any group knew.
 *
 * Threads: the opening (and closing) thread. Memory: index buffers while it runs.
 * Invariant: what is reported has an index whose salted checksum proves the segment's present life; what could have
 * been
 * dropped by a decision that was lost is not reported.
 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "fmt/checkpoint.h"
#include "tier/flash_in.h"

enum { SCAN_PAGES = 64, UNREAD_PAGES = 16 };

struct hop {
	struct flash *flash;
	uint32_t segment;
	uint32_t page;       /* where the next group begins, or the segment's end */
	uint64_t sequence;   /* of the last group */
	struct fmt_group group;
	struct fmt_entry *entries; /* FMT_GROUP_ENTRIES_MAX */
	uint8_t *pages;      /* SCAN_PAGES + FMT_INDEX_PAGES_MAX */
	uint32_t unread;     /* pages that could not be read */
	int skipped;         /* something that is no group lay before this one */
};

/* An error that passes must not hide what is there. 0 or -errno. */
static int device_read(struct flash *flash, void *to, uint64_t length, uint64_t offset)
{
	int error = -EIO;
	for (int tries = 0; tries < 3 && error; tries++)
		error = flash->io->ops->pread(flash->io, to, length, offset);
	return error;
}

static int hop_open(struct hop *hop, struct flash *flash, uint32_t segment)
{
	memset(hop, 0, sizeof(*hop));
	hop->flash = flash;
	hop->segment = segment;
	hop->entries = mem_array(FMT_GROUP_ENTRIES_MAX, sizeof(*hop->entries));
	hop->pages = mem_aligned(FMT_PAGE, (size_t)(SCAN_PAGES + FMT_INDEX_PAGES_MAX) * FMT_PAGE);
	return hop->entries && hop->pages ? 0 : CAIRN_E_NOMEM;
}

static void hop_done(struct hop *hop)
{
	mem_free(hop->entries);
	mem_free(hop->pages);
}

static int blank(const uint8_t *page)
{
	for (uint32_t i = 0; i < FMT_PAGE; i++)
		if (page[i])
			return 0;
	return 1;
}

static int hop_read(struct hop *hop, uint8_t *to, uint32_t page, uint32_t npages)
{
	hop->flash->recovery.read_bytes += (uint64_t)npages * FMT_PAGE;
	return device_read(hop->flash, to, (uint64_t)npages * FMT_PAGE,
	                                  flash_offset(hop->flash, hop->segment, page));
}

/* Whether a group of this life, later than the last, begins at pages[0], which is `page` of the segment. */
static int hop_group_at(struct hop *hop, uint8_t *pages, uint32_t have, uint32_t page)
{
	struct flash *flash = hop->flash;
	const struct ledger_segment *life = &flash->ledger.segments[hop->segment];
	struct fmt_group *group = &hop->group;
	if (segment_group_peek(pages, flash->segment_pages, group) != FMT_OK || group->first_page != page ||
	    group->segment != hop->segment || group->life != life->life || group->sequence <= hop->sequence)
		return 0;
	if (group->index_pages > have && /* room for it behind the scanned pages */
	    hop_read(hop, pages + (size_t)have * FMT_PAGE, page + have, group->index_pages - have))
		return 0;
	return segment_group_decode(pages, group->index_pages, flash->segment_pages, life->salt, group, hop->entries,
	                            FMT_GROUP_ENTRIES_MAX) == FMT_OK;
}

/* Goes to the next group. 1: hop->group and entries hold it; 0: the end. A blank page is the end; anything else that is
 * no group is a torn or a damaged one, and a good one may lie behind it. */
static int hop_next(struct hop *hop)
{
	uint32_t end = hop->flash->segment_pages - 1;
	int scanning = 0;
	while (hop->page < end) {
		uint32_t want = scanning ? SCAN_PAGES : 4;
		want = want < end - hop->page ? want : end - hop->page;
		if (hop_read(hop, hop->pages, hop->page, want)) {
			if (want > 1) /* one bad sector must not hide its neighbours */
				want = 1;
			if (hop_read(hop, hop->pages, hop->page, 1)) {
				scanning = hop->skipped = 1;
				hop->page++;
				if (++hop->unread == UNREAD_PAGES) /* no bad sector: a device that does not answer */
					return 0;
				continue;
			}
		}
		for (uint32_t i = 0; i < want; i++) {
			uint8_t *at = hop->pages + (size_t)i * FMT_PAGE;
			if (hop_group_at(hop, at, want - i, hop->page + i)) {
				hop->page += i + hop->group.total_pages;
				hop->sequence = hop->group.sequence;
				return 1;
			}
			if (!scanning) {
				if (blank(at))
					return 0;
				scanning = hop->skipped = 1;
				want = i + 1; /* read on in larger steps */
			}
		}
		hop->page += want;
	}
	return 0;
}

/* ---- entries of one segment -------------------------------------------------------------------------------------- */

static long footer_entries(struct flash *flash, uint32_t segment, struct fmt_entry *entries, struct fmt_footer *footer)
{
	const struct ledger_segment *life = &flash->ledger.segments[segment];
	uint8_t *trailer = mem_aligned(FMT_PAGE, FMT_PAGE);
	uint8_t *pages = mem_aligned(FMT_PAGE, (size_t)(flash->footer_pages_max + 1) * FMT_PAGE);
	long n = FMT_BAD;
	if (trailer && pages &&
	    !device_read(flash, trailer, FMT_PAGE, flash_offset(flash, segment, flash->segment_pages - 1)) &&
	    segment_trailer_decode(trailer, flash->segment_pages, life->salt, footer) == FMT_OK &&
	    footer->segment == segment && footer->life == life->life && footer->nentries <= flash->entries_max &&
	    footer->entries_pages <= flash->footer_pages_max) {
		int error = footer->entries_pages
		                ? device_read(flash, pages, (uint64_t)footer->entries_pages * FMT_PAGE,
		                                        flash_offset(flash, segment, footer->entries_page))
		                : 0;
		flash->recovery.read_bytes += (uint64_t)(1 + footer->entries_pages) * FMT_PAGE;
		if (!error &&
		    segment_footer_decode(footer, trailer, pages, flash->segment_pages, life->salt, entries) == FMT_OK)
			n = footer->nentries;
	}
	mem_free(trailer);
	mem_free(pages);
	return n;
}

long recover_entries(struct flash *flash, uint32_t segment, struct fmt_entry *entries)
{
	struct fmt_footer footer;
	long n = flash->segments[segment].footer ? footer_entries(flash, segment, entries, &footer) : FMT_BAD;
	if (n >= 0 || n == -EIO)
		return n;
	struct hop hop;
	n = 0;
	if (hop_open(&hop, flash, segment))
		n = -ENOMEM;
	while (n >= 0 && hop_next(&hop))
		for (uint32_t i = 0; i < hop.group.nentries && n < (long)flash->entries_max; i++)
			entries[n++] = hop.entries[i];
	if (hop.unread && n >= 0)
		n = -EIO;
	hop_done(&hop);
	return n;
}

/* ---- gathering from segments without a footer -------------------------------------------------------------------- */

static int loose_add(struct flash *flash, const struct fmt_entry *entry, uint32_t segment,
                     const struct fmt_group *group)
{
	if (flash->nloose == flash->loose_room) {
		uint32_t room = flash->loose_room ? flash->loose_room * 2 : 256;
		struct loose *grown = mem_grow(flash->loose, (size_t)room * sizeof(*grown));
		if (!grown)
			return err_set(CAIRN_E_NOMEM, "no memory to reopen %s", flash->path);
		flash->loose = grown;
		flash->loose_room = room;
	}
	struct loose *loose = &flash->loose[flash->nloose++];
	loose->entry = *entry;
	loose->segment = segment;
	loose->sequence = group->sequence;
	loose->index_page = group->first_page;
	loose->index_pages = group->index_pages;
	return 0;
}

static int gather_segment(struct flash *flash, uint32_t segment, struct open_segment *open, uint32_t *ret_unread)
{
	struct hop hop;
	int error = hop_open(&hop, flash, segment);
	if (error)
		error = err_set(CAIRN_E_NOMEM, "no memory to reopen %s", flash->path);
	uint32_t end = 0;
	while (!error && hop_next(&hop)) {
		const struct fmt_group *group = &hop.group;
		end = hop.page;
		if (group->flushed_through > flash->flushed_through)
			flash->flushed_through = group->flushed_through;
		if (group->sequence > flash->sequence)
			flash->sequence = group->sequence;
		/* A group knows of a ledger page that was durable before it and is gone now. */
		if (group->ledger_sequence > flash->ledger.sequence) {
			flash->ledger.doubt_through = UINT64_MAX;
			flash->ledger.sequence = group->ledger_sequence;
			flash->ledger.next_index = UINT32_MAX;
			flash->ledger.holes++;
		}
		if (open) {
			open->first_sequence = open->first_sequence ? open->first_sequence : group->sequence;
			open->last_sequence = open->used_at = group->sequence;
		}
		for (uint32_t i = 0; i < group->nentries && !error; i++)
			error = loose_add(flash, &hop.entries[i], segment, group);
	}
	flash->recovery.lost_groups += hop.skipped != 0;
	*ret_unread = hop.unread;
	flash->segments[segment].used_pages = end;
	if (open)
		open->next_page = end;
	hop_done(&hop);
	return error;
}

/* Whether a whole footer of the present life is there: it leaves out what a failed write or flush withdrew. */
static int footer_there(struct flash *flash, uint32_t segment)
{
	struct fmt_footer footer;
	struct fmt_entry *entries = mem_array(flash->entries_max, sizeof(*entries));
	long n = entries ? footer_entries(flash, segment, entries, &footer) : FMT_BAD;
	mem_free(entries);
	return n >= 0;
}

int recover_gather(struct flash *flash)
{
	uint32_t opens = 0;
	flash->flushed_through = flash->ledger.mark.u.mark.flushed_through;
	for (uint32_t i = 0; i < flash->nsegments; i++) {
		const struct ledger_segment *record = &flash->ledger.segments[i];
		struct segment *segment = &flash->segments[i];
		/* A free one may have given its blocks back: it is taken for growth, which asks the file system first. */
		flash_segment_back(flash, i, record->life > 0 && record->state != LEDGER_FREE);
		if (record->state == LEDGER_SEALED) {
			flash_segment_set(flash, i, SEGMENT_SEALED);
			segment->footer = 1;
		} else if (record->state == LEDGER_CHECKPOINT) {
			flash_segment_set(flash, i, SEGMENT_CHECKPOINT);
		} else if (record->state == LEDGER_OPEN) {
			struct open_segment *open = NULL;
			uint32_t unread = 0;
			if (opens < FLASH_OPEN) {
				open = &flash->open[opens++];
				open->segment = i;
				memcpy(open->tenant, record->tenant, 16);
			}
			uint32_t before = flash->nloose;
			flash_segment_set(flash, i, open ? SEGMENT_OPEN : SEGMENT_SEALED);
			int error = gather_segment(flash, i, open, &unread);
			if (error)
				return error;
			if (footer_there(flash, i)) { /* sealed; only the ledger did not hear of it */
				flash->nloose = before;
				segment->footer = 1;
			}
			/* Where a page could not be read a group may be: nothing is written over it, and the next reopen tells. */
			if (segment->footer || unread) {
				flash_segment_set(flash, i, SEGMENT_SEALED);
				if (open) {
					opens--;
					open->segment = UINT32_MAX;
					open->next_page = 0;
					open->first_sequence = open->last_sequence = open->used_at = 0;
				}
			}
		}
	}
	return 0;
}

/* ---- reporting --------------------------------------------------------------------------------------------------- */

static int report(struct flash *flash, const struct fmt_entry *entry, uint32_t segment)
{
	struct flash_recovery *recovery = &flash->recovery;
	const struct ledger *ledger = &flash->ledger;
	if (entry->birth >= recovery->next_birth)
		recovery->next_birth = entry->birth + 1;
	if (entry->birth <= ledger->doubt_through) {
		recovery->doubtful_parts++;
		return 0;
	}
	if (ledger_dropped(ledger, entry->space, ledger->segments[segment].tenant, entry->key, entry->birth) ||
	    ledger_quarantined(ledger, entry->space, entry->key, entry->part, entry->birth)) {
		recovery->dropped_parts++;
		return 0;
	}
	recovery->found_parts++;
	flash->host->found(flash->host->arg, flash->device, entry, flash_page(flash, segment, entry->page));
	return 1;
}

/* The payload of a part that nobody knew to be flushed. */
static int payload_good(struct flash *flash, const struct loose *loose)
{
	const struct fmt_entry *entry = &loose->entry;
	uint32_t bytes = flash_pages_of(entry->stored_length) * FMT_PAGE;
	if (bytes > flash->bounce_bytes)
		return 0;
	uint64_t stored;
	memcpy(&stored, entry->stored_check, 8);
	flash->recovery.read_bytes += bytes;
	flash->recovery.payload_bytes += bytes;
	if (device_read(flash, flash->bounce, bytes, flash_offset(flash, loose->segment, entry->page)))
		return 0;
	return segment_stored_check(entry->key, entry->space, entry->part, entry->raw_length, entry->stored_length,
	                            entry->codec, digest_xxh3(flash->bounce, entry->stored_length, 0)) == stored;
}

/* Whether the bounce buffer holds the index that the part was found by. */
static int index_same(struct flash *flash, const struct loose *loose)
{
	struct fmt_group group;
	struct fmt_entry *entries = mem_array(FMT_GROUP_ENTRIES_MAX, sizeof(*entries));
	int same = entries &&
	           segment_group_decode(flash->bounce, loose->index_pages, flash->segment_pages,
	                                flash->ledger.segments[loose->segment].salt, &group, entries,
	                                FMT_GROUP_ENTRIES_MAX) == FMT_OK &&
	           group.sequence == loose->sequence;
	mem_free(entries);
	return same;
}

/* Writes a part that nobody knew to be flushed once more, from the bounce buffer, and its group's index: what is read
 * may be what a failed flush left behind, which no later flush makes durable. 0 or -errno. */
static int loose_again(struct flash *flash, const struct loose *loose, int index_too)
{
	uint32_t bytes = flash_pages_of(loose->entry.stored_length) * FMT_PAGE;
	uint64_t at = flash_offset(flash, loose->segment, loose->index_page);
	int error = flash->io->ops->pwrite(flash->io, flash->bounce, bytes,
	                                   flash_offset(flash, loose->segment, loose->entry.page));
	if (!error && index_too)
		error = device_read(flash, flash->bounce, (uint64_t)loose->index_pages * FMT_PAGE, at);
	/* It need not be what was read before: pages that a flush gave up leave the cache when they like. */
	if (!error && index_too && !index_same(flash, loose))
		return -EBADMSG;
	if (!error && index_too)
		error = flash->io->ops->pwrite(flash->io, flash->bounce, (uint64_t)loose->index_pages * FMT_PAGE, at);
	return error;
}

static int report_loose(struct flash *flash)
{
	int clean = flash->ledger.mark.u.mark.clean, error = 0;
	uint64_t again = 0; /* sequence of the group whose index was written once more */
	for (uint32_t i = 0; i < flash->nloose && !error; i++) {
		const struct loose *loose = &flash->loose[i];
		/* Where a footer is lost, its groups tell also of what a failed flush withdrew. */
		const struct segment *segment = &flash->segments[loose->segment];
		int unsure = (!clean && loose->sequence > flash->flushed_through) ||
		             (segment->state == SEGMENT_SEALED && !segment->footer);
		int good = !unsure || payload_good(flash, loose);
		if (good && unsure && !flash->readonly) {
			error = loose_again(flash, loose, loose->sequence != again);
			good = error != -EBADMSG;
			error = good ? error : 0;
			again = good ? loose->sequence : again;
		}
		if (!good) {
			flash->recovery.bad_payloads++;
			/* Later groups will say that all before them is flushed: its footer must name the good parts first. */
			for (uint32_t o = 0; o < FLASH_OPEN; o++)
				if (flash->open[o].segment == loose->segment) {
					flash->open[o].withdrawn = 1;
					commit_close_segment(flash, o);
				}
			continue;
		}
		struct open_segment *open = commit_open_find(flash, loose->segment);
		if (report(flash, &loose->entry, loose->segment) && open && open->nentries < flash->entries_max)
			open->entries[open->nentries++] = loose->entry;
	}
	mem_free(flash->loose);
	flash->loose = NULL;
	flash->nloose = flash->loose_room = 0;
	return error ? err_set(err_from_errno(-error), "cannot write %s: %s", flash->path, strerror(-error)) : 0;
}

static int report_sealed(struct flash *flash)
{
	struct fmt_entry *entries = mem_array(flash->entries_max, sizeof(*entries));
	if (!entries)
		return err_set(CAIRN_E_NOMEM, "no memory to reopen %s", flash->path);
	int error = 0;
	for (uint32_t s = 0; s < flash->nsegments && !error; s++) {
		struct fmt_footer footer = {0};
		uint32_t unread;
		if (flash->segments[s].state != SEGMENT_SEALED || !flash->segments[s].footer)
			continue;
		long n = footer_entries(flash, s, entries, &footer);
		flash->segments[s].used_pages = footer.used_pages;
		if (n < 0) { /* damaged footer: its groups tell too */
			flash->segments[s].footer = 0;
			flash->recovery.lost_groups++;
			error = gather_segment(flash, s, NULL, &unread);
			continue;
		}
		for (long i = 0; i < n; i++) {
			if (i % TIER_COMING == 0 && flash->host->coming)
				flash->host->coming(flash->host->arg, &entries[i], n - i < TIER_COMING ? (size_t)(n - i) : TIER_COMING);
			(void)report(flash, &entries[i], s);
		}
	}
	mem_free(entries);
	return error;
}

/* ---- checkpoint -------------------------------------------------------------------------------------------------- */

struct stream {
	struct flash *flash;
	uint64_t base;   /* device offset of the checkpoint */
	uint64_t at, size;
	uint32_t fill, have; /* in the bounce buffer */
	struct digest_xxh check;
	int error;
};

static const uint8_t *stream_take(struct stream *stream, uint32_t length)
{
	struct flash *flash = stream->flash;
	if (stream->error)
		return NULL;
	if (stream->fill == stream->have) {
		uint64_t left = stream->size - stream->at;
		stream->have = left < flash->bounce_bytes ? (uint32_t)left : flash->bounce_bytes;
		stream->fill = 0;
		if (!left || device_read(flash, flash->bounce, stream->have, stream->base + stream->at)) {
			stream->error = 1;
			return NULL;
		}
		digest_xxh_add(&stream->check, flash->bounce, stream->have);
		flash->recovery.read_bytes += stream->have;
		stream->at += stream->have;
	}
	const uint8_t *bytes = flash->bounce + stream->fill;
	stream->fill += length; /* cells of 16, 32, 64 bytes never cross a buffer of whole pages */
	return bytes;
}

static void stream_open(struct stream *stream, struct flash *flash, uint32_t segment, uint64_t size)
{
	memset(stream, 0, sizeof(*stream));
	stream->flash = flash;
	stream->base = flash_offset(flash, segment, 0);
	stream->at = FMT_PAGE;
	stream->size = size;
	digest_xxh_init(&stream->check, CHECKPOINT_SEED);
}

static void stream_page_end(struct stream *stream)
{
	stream->fill = (stream->fill + FMT_PAGE - 1) / FMT_PAGE * FMT_PAGE;
}

/* Entries of a checkpoint, some at a time, so that the host sees what comes. */
struct known {
	uint32_t n;
	uint32_t page[TIER_COMING];
	struct fmt_entry entries[TIER_COMING];
};

static void known_report(struct flash *flash, struct known *known)
{
	if (flash->host->coming)
		flash->host->coming(flash->host->arg, known->entries, known->n);
	for (uint32_t i = 0; i < known->n; i++)
		flash->host->found(flash->host->arg, flash->device, &known->entries[i], known->page[i]);
	known->n = 0;
}

static void known_add(struct flash *flash, struct known *known, const struct checkpoint_entry *from,
                      const uint8_t *spaces)
{
	struct fmt_entry *entry = &known->entries[known->n];
	memset(entry, 0, sizeof(*entry));
	memcpy(entry->key, from->key_prefix, 16);
	memcpy(entry->parent, from->parent_prefix, 16);
	memcpy(entry->space, spaces + (size_t)from->space_index * 32, 32);
	memcpy(entry->stored_check, &from->check, 8);
	entry->part = from->part;
	entry->group = from->group;
	entry->flags = from->flags;
	entry->raw_length = from->raw_length;
	entry->stored_length = from->stored_length;
	entry->birth = from->birth;
	if (entry->birth >= flash->recovery.next_birth)
		flash->recovery.next_birth = entry->birth + 1;
	flash->recovery.found_parts++;
	known->page[known->n++] = from->page;
	if (known->n == TIER_COMING)
		known_report(flash, known);
}

/* Reads a checkpoint twice: once to prove it, once to believe it. 1: used; 0: there is none, or it is no good. */
static int report_checkpoint(struct flash *flash)
{
	const struct ledger_record *mark = &flash->ledger.mark;
	uint32_t segment = mark->u.mark.checkpoint_segment;
	struct checkpoint_head head;
	if (!mark->u.mark.clean || flash->ledger.holes || segment >= flash->nsegments ||
	    flash->segments[segment].state != SEGMENT_CHECKPOINT ||
	    device_read(flash, flash->bounce, FMT_PAGE, flash_offset(flash, segment, 0)) ||
	    checkpoint_head_decode(flash->bounce, &head) != FMT_OK ||
	    memcmp(head.device_id, flash->label.device_id, 16) || head.sequence != mark->u.mark.checkpoint_sequence)
		return 0;
	uint64_t size = checkpoint_size(head.nlives, head.nspaces, head.nentries);
	if (size != mark->u.mark.checkpoint_bytes ||
	    size > (uint64_t)(flash->nsegments - segment) * flash->label.segment_bytes)
		return 0;
	struct stream stream;
	stream_open(&stream, flash, segment, size);
	while (stream.at < stream.size && !stream.error) {
		stream.fill = stream.have;
		(void)stream_take(&stream, 0);
	}
	if (stream.error || digest_xxh_done(&stream.check) != head.body_check)
		return 0;
	uint8_t *spaces = mem_array(head.nspaces ? head.nspaces : 1, CHECKPOINT_SPACE_BYTES);
	if (!spaces)
		return 0;
	stream_open(&stream, flash, segment, size);
	for (uint32_t i = 0; i < head.nlives; i++) /* the ledger is newer and right: a clean close changed no life since */
		(void)stream_take(&stream, CHECKPOINT_LIFE_BYTES);
	stream_page_end(&stream);
	for (uint32_t i = 0; i < head.nspaces; i++) {
		const uint8_t *bytes = stream_take(&stream, CHECKPOINT_SPACE_BYTES);
		if (bytes)
			memcpy(spaces + (size_t)i * 32, bytes, 32);
	}
	stream_page_end(&stream);
	struct known known = {.n = 0};
	for (uint32_t i = 0; i < head.nentries; i++) {
		const uint8_t *bytes = stream_take(&stream, CHECKPOINT_ENTRY_BYTES);
		struct checkpoint_entry from;
		if (!bytes ||
		    checkpoint_entry_decode(bytes, head.nspaces, (uint64_t)flash->nsegments * flash->segment_pages, &from))
			continue;
		uint32_t at = from.page / flash->segment_pages;
		if (flash->segments[at].state != SEGMENT_SEALED || !flash->segments[at].footer)
			continue; /* open segments told their own */
		known_add(flash, &known, &from, spaces);
	}
	known_report(flash, &known);
	mem_free(spaces);
	return 1;
}

int flash_recover(struct flash *flash, struct flash_recovery *ret_recovery)
{
	flash->recovery.next_birth = flash->ledger.mark.u.mark.next_birth;
	ledger_index_drops(&flash->ledger);
	/* A checkpoint was made after all decisions that count; doubt is for what was lost later. */
	int error = 0;
	if (flash->ledger.doubt_through || !report_checkpoint(flash))
		error = report_sealed(flash);
	if (!error)
		error = report_loose(flash);
	for (int i = 0; i < FLASH_OPEN && !error; i++) /* no place for another footer entry: seal it at once */
		if (flash->open[i].segment != UINT32_MAX && flash->open[i].nentries >= flash->entries_max)
			commit_close_segment(flash, (uint32_t)i);
	if (ret_recovery)
		*ret_recovery = flash->recovery;
	return error;
}

int recover_wipe_tails(struct flash *flash)
{
	uint8_t *page = mem_aligned(FMT_PAGE, FMT_PAGE);
	int error = page ? 0 : -ENOMEM, wiped = 0;
	for (int i = 0; i < FLASH_OPEN && !error; i++) {
		const struct open_segment *open = &flash->open[i];
		if (open->segment == UINT32_MAX || open->next_page >= flash->segment_pages - 1)
			continue;
		uint64_t offset = flash_offset(flash, open->segment, open->next_page);
		/* Past the end of the file, or unreadable: written all the same. */
		if (!device_read(flash, page, FMT_PAGE, offset) && blank(page))
			continue;
		memset(page, 0, FMT_PAGE);
		error = flash->io->ops->pwrite(flash->io, page, FMT_PAGE, offset);
		wiped = 1;
	}
	if (!error && wiped)
		error = flash->io->ops->sync(flash->io);
	mem_free(page);
	return error;
}

/* ---- writing a checkpoint ---------------------------------------------------------------------------------------- */

static void stream_put(struct stream *stream, const void *cell, uint32_t length)
{
	struct flash *flash = stream->flash;
	if (cell) {
		memcpy(flash->bounce + stream->fill, cell, length);
		stream->fill += length;
	} else { /* to the end of the page */
		uint32_t end = (stream->fill + FMT_PAGE - 1) / FMT_PAGE * FMT_PAGE;
		memset(flash->bounce + stream->fill, 0, end - stream->fill);
		stream->fill = end;
	}
	if (stream->fill < flash->bounce_bytes && !(stream->at + stream->fill == stream->size))
		return;
	digest_xxh_add(&stream->check, flash->bounce, stream->fill);
	if (!stream->error && stream->fill)
		stream->error = flash->io->ops->pwrite(flash->io, flash->bounce, stream->fill, stream->base + stream->at);
	stream->at += stream->fill;
	stream->fill = 0;
}

static uint32_t space_index(uint8_t *spaces, uint32_t *nspaces, uint32_t room, const uint8_t id[32], uint32_t *hint)
{
	if (*hint < *nspaces && !memcmp(spaces + (size_t)*hint * 32, id, 32))
		return *hint;
	for (uint32_t i = 0; i < *nspaces; i++)
		if (!memcmp(spaces + (size_t)i * 32, id, 32))
			return *hint = i;
	if (*nspaces == room)
		return UINT32_MAX;
	memcpy(spaces + (size_t)*nspaces * 32, id, 32);
	return *hint = (*nspaces)++;
}

/* A run of free segments for the checkpoint; UINT32_MAX: none. */
static uint32_t checkpoint_place(struct flash *flash, uint32_t segments)
{
	uint32_t run = 0;
	for (uint32_t i = 0; i < flash->nsegments; i++) {
		run = flash->segments[i].state == SEGMENT_FREE ? run + 1 : 0;
		if (run == segments)
			return i + 1 - segments;
	}
	return UINT32_MAX;
}

static void checkpoint_body(struct stream *stream, const struct flash_checkpoint *source, const uint8_t *spaces,
                            const struct checkpoint_head *head, uint8_t *table, uint32_t nspaces)
{
	struct flash *flash = stream->flash;
	for (uint32_t i = 0; i < flash->nsegments && head->nlives; i++) {
		if (!flash->ledger.segments[i].life)
			continue;
		uint8_t cell[CHECKPOINT_LIFE_BYTES];
		checkpoint_life_encode(&(struct checkpoint_life){i, flash->ledger.segments[i].life}, cell);
		stream_put(stream, cell, sizeof(cell));
	}
	stream_put(stream, NULL, 0);
	for (uint32_t i = 0; i < head->nspaces; i++)
		stream_put(stream, spaces + (size_t)i * 32, 32);
	stream_put(stream, NULL, 0);
	struct fmt_entry entry;
	uint32_t cursor = 0, page, hint = 0, written = 0;
	while (written < head->nentries && source->next(source->arg, flash->device, &cursor, &entry, &page)) {
		struct checkpoint_entry to = {
		    .birth = entry.birth,
		    .page = page,
		    .stored_length = entry.stored_length,
		    .raw_length = entry.raw_length,
		    .part = (uint8_t)entry.part,
		    .group = (uint8_t)entry.group,
		    .flags = entry.flags,
		};
		memcpy(to.key_prefix, entry.key, 16);
		memcpy(to.parent_prefix, entry.parent, 16);
		memcpy(&to.check, entry.stored_check, 8);
		to.space_index = (uint16_t)space_index(table, &nspaces, nspaces, entry.space, &hint);
		uint8_t cell[CHECKPOINT_ENTRY_BYTES];
		checkpoint_entry_encode(&to, cell);
		stream_put(stream, cell, sizeof(cell));
		written++;
	}
	if (written != head->nentries)
		stream->error = -EINVAL;
	stream_put(stream, NULL, 0);
}

int recover_checkpoint_write(struct flash *flash, const struct flash_checkpoint *source)
{
	enum { SPACES_ROOM = 1024, SEALED_MIN = 8 };
	struct ledger_record *mark = &flash->ledger.mark;
	mark->u.mark.checkpoint_segment = UINT32_MAX;
	uint64_t count = source ? source->count(source->arg, flash->device) : 0;
	/* A few footers are read as fast as it would be. */
	if (flash->sealed < SEALED_MIN || !count || count > CHECKPOINT_ENTRIES_MAX)
		return 0;
	uint8_t *spaces = mem_array(SPACES_ROOM, 32);
	if (!spaces)
		return 0;
	struct checkpoint_head head = {.version = flash->write_version, .sequence = flash->sequence,
	                               .nentries = (uint32_t)count};
	memcpy(head.device_id, flash->label.device_id, 16);
	struct fmt_entry entry;
	uint32_t cursor = 0, page, hint = 0;
	int fits = 1;
	while (fits && source->next(source->arg, flash->device, &cursor, &entry, &page))
		fits = space_index(spaces, &head.nspaces, SPACES_ROOM, entry.space, &hint) != UINT32_MAX;
	for (uint32_t i = 0; i < flash->nsegments; i++)
		head.nlives += flash->ledger.segments[i].life > 0;
	uint64_t size = checkpoint_size(head.nlives, head.nspaces, head.nentries);
	uint32_t segments = (uint32_t)((size + flash->label.segment_bytes - 1) / flash->label.segment_bytes);
	uint32_t first = fits ? checkpoint_place(flash, segments) : UINT32_MAX;
	if (first == UINT32_MAX || size > UINT32_MAX ||
	    flash->io->ops->allocate(flash->io, flash_offset(flash, first, 0),
	                             (uint64_t)segments * flash->label.segment_bytes)) {
		mem_free(spaces); /* no room for it: reopen reads the footers */
		return 0;
	}
	int error = 0;
	for (uint32_t i = first; i < first + segments && !error; i++) {
		flash->ledger.segments[i].life++;
		error = commit_segment_record(flash, i, LEDGER_CHECKPOINT);
		if (error == CAIRN_E_FULL)
			error = ledger_commit(&flash->ledger);
	}
	/* The new lives are durable before their bytes are overwritten, as for groups. */
	if (!error)
		error = ledger_commit(&flash->ledger);
	if (!error) {
		struct stream stream;
		stream_open(&stream, flash, first, size);
		checkpoint_body(&stream, source, spaces, &head, spaces, head.nspaces);
		error = stream.error;
		head.body_check = digest_xxh_done(&stream.check);
		if (!error) {
			checkpoint_head_encode(&head, flash->bounce);
			error = flash->io->ops->pwrite(flash->io, flash->bounce, FMT_PAGE, flash_offset(flash, first, 0));
		}
		if (!error)
			error = flash->io->ops->sync(flash->io);
	}
	if (!error) {
		mark->u.mark.checkpoint_segment = first;
		mark->u.mark.checkpoint_bytes = (uint32_t)size;
		mark->u.mark.checkpoint_sequence = head.sequence;
	}
	mem_free(spaces);
	return error;
}
