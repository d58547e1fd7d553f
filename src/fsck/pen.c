/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `repair` writes into a ledger: copies of pages, or all of the state as a snapshot of a higher epoch into the
 * area that is not in use. Until that snapshot is whole in a copy the old area counts, so a crash undoes it.
 *
 * Threads: the caller's. Memory: one area.
 */
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "cairn/cairn.h"
#include "fsck/fsck_in.h"

/* Whether page `index` of the area in use is good in this copy. */
static int copy_good(const struct disk *disk, const uint8_t *page, uint32_t index)
{
	struct ledger_page head;
	return ledger_page_open(page, &head) == FMT_OK && head.index == index && head.epoch == disk->log.area_epoch &&
	       !memcmp(head.device_id, disk->label.device_id, 16);
}

int pen_copies(struct disk *disk)
{
	struct fsck *fsck = disk->fsck;
	uint8_t *pages = mem_aligned(FMT_PAGE, 2 * FMT_PAGE);
	uint32_t written = 0;
	int error = pages ? 0 : err_set(CAIRN_E_NOMEM, "no memory to mend %s", disk->path);
	for (uint32_t i = 0; i < disk->log.extent && !error; i++) {
		for (uint32_t copy = 0; copy < 2; copy++)
			(void)disk_read(disk, pages + copy * FMT_PAGE, FMT_PAGE, disk_ledger_offset(disk, disk->log.area, copy, i));
		if (!memcmp(pages, pages + FMT_PAGE, FMT_PAGE))
			continue;
		uint32_t bad = copy_good(disk, pages, i) ? 1 : 0;
		if (!copy_good(disk, pages + (bad ^ 1) * FMT_PAGE, i))
			continue; /* a hole: not mended by a copy */
		uint64_t offset = disk_ledger_offset(disk, disk->log.area, bad, i);
		error = disk_write(disk, pages + (bad ^ 1) * FMT_PAGE, FMT_PAGE, offset);
		if (error)
			break;
		written++;
		fsck->report->repaired_copies++;
		fsck_tell(fsck, FSCK_DONE, disk, offset, "page %u of the ledger is restored from its other copy", i);
	}
	if (!error && written)
		error = disk_sync(disk);
	mem_free(pages);
	return error;
}

struct snapshot {
	struct disk *disk;
	uint8_t *bytes;
	uint32_t pages, used, max;
	uint64_t epoch, sequence;
	int full;
};

static void snapshot_close(struct snapshot *snapshot, uint32_t flags)
{
	struct ledger_page head = {
		.version = snapshot->disk->label.version,
		.flags = LEDGER_PAGE_SNAPSHOT | flags,
		.epoch = snapshot->epoch,
		.sequence = ++snapshot->sequence,
		.index = snapshot->pages,
		.used = snapshot->used,
	};
	memcpy(head.device_id, snapshot->disk->label.device_id, 16);
	ledger_page_seal(&head, snapshot->bytes + (size_t)snapshot->pages * FMT_PAGE);
	snapshot->pages++;
	snapshot->used = 0;
}

static void snapshot_add(struct snapshot *snapshot, const struct ledger_record *record)
{
	for (int again = 0; again < 2 && !snapshot->full; again++) {
		uint8_t *page = snapshot->bytes + (size_t)snapshot->pages * FMT_PAGE;
		uint32_t used = ledger_record_add(record, page + LEDGER_HEAD_BYTES, snapshot->used);
		if (used) {
			snapshot->used = used;
			return;
		}
		if (snapshot->pages + 1 == snapshot->max)
			snapshot->full = 1;
		else
			snapshot_close(snapshot, 0);
	}
}

static void snapshot_segments(struct snapshot *snapshot, const struct log *log)
{
	for (uint32_t i = 0; i < log->nsegments; i++) {
		const struct log_segment *segment = &log->segments[i];
		struct ledger_record record = {.type = LEDGER_SEGMENT};
		if (!segment->life)
			continue;
		record.u.segment.segment = i;
		/* A checkpoint knows nothing of this repair. */
		record.u.segment.state = segment->state == LEDGER_CHECKPOINT ? LEDGER_FREE : segment->state;
		record.u.segment.life = segment->life;
		record.u.segment.salt = segment->salt;
		record.u.segment.start_sequence = segment->start_sequence;
		memcpy(record.u.segment.tenant, segment->tenant, 16);
		snapshot_add(snapshot, &record);
	}
}

static void snapshot_spaces(struct snapshot *snapshot, const struct log *log)
{
	enum { PIECE = 3072 };
	for (uint32_t i = 0; i < log->nspaces; i++)
		for (uint32_t at = 0; at < log->spaces[i].length; at += PIECE) {
			struct ledger_record record = {.type = LEDGER_SPACE};
			uint32_t left = log->spaces[i].length - at;
			memcpy(record.u.space.id, log->spaces[i].id, 32);
			record.u.space.offset = at;
			record.u.space.total = log->spaces[i].length;
			record.u.space.bytes = log->spaces[i].canon + at;
			record.u.space.length = (uint16_t)(left < PIECE ? left : PIECE);
			snapshot_add(snapshot, &record);
		}
}

/* The counters, above everything that was seen. */
static struct ledger_record mark_now(const struct disk *disk)
{
	const struct log *log = &disk->log;
	struct ledger_record mark = log->mark;
	mark.type = LEDGER_MARK;
	mark.u.mark.checkpoint_segment = UINT32_MAX;
	mark.u.mark.checkpoint_bytes = 0;
	if (disk->max_birth >= mark.u.mark.next_birth && disk->max_birth != UINT64_MAX)
		mark.u.mark.next_birth = disk->max_birth + 1;
	if (disk->max_sequence >> 32 > mark.u.mark.group_epoch)
		mark.u.mark.group_epoch = disk->max_sequence >> 32;
	if (disk->flushed_through > mark.u.mark.flushed_through)
		mark.u.mark.flushed_through = disk->flushed_through;
	/* What doubt discarded may have been dropped: to a device that was away, those drops are as if forgotten. */
	uint64_t doubt = log->doubt_through < mark.u.mark.next_birth ? log->doubt_through : mark.u.mark.next_birth - 1;
	if (doubt > mark.u.mark.dropped_through)
		mark.u.mark.dropped_through = doubt;
	return mark;
}

int pen_snapshot(struct disk *disk)
{
	struct fsck *fsck = disk->fsck;
	struct log *log = &disk->log;
	struct snapshot snapshot = {
		.disk = disk,
		.bytes = mem_aligned(FMT_PAGE, disk->label.ledger_bytes),
		.max = disk->label.ledger_bytes / FMT_PAGE,
		.epoch = log->epoch + 1,
		.sequence = log->sequence > disk->max_ledger_sequence ? log->sequence : disk->max_ledger_sequence,
	};
	const struct log_table *tables[] = {&log->drops, &log->sessions, &log->quarantine};
	struct ledger_record mark = mark_now(disk);
	uint32_t area = log->area ^ 1;
	if (!snapshot.bytes)
		return err_set(CAIRN_E_NOMEM, "no memory to mend %s", disk->path);
	snapshot_segments(&snapshot, log);
	snapshot_spaces(&snapshot, log);
	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
		for (uint32_t i = 0; i < tables[t]->used; i++)
			snapshot_add(&snapshot, &tables[t]->records[i]);
	snapshot_add(&snapshot, &mark);
	if (snapshot.full) {
		fsck_tell(fsck, FSCK_STUCK, disk, disk_ledger_offset(disk, area, 0, 0),
		          "the ledger has no room for what it must hold: forget sessions, then repair again");
		mem_free(snapshot.bytes);
		return 0;
	}
	snapshot_close(&snapshot, LEDGER_PAGE_SNAPSHOT_END);
	int error = 0;
	for (uint32_t copy = 0; copy < 2 && !error; copy++)
		error = disk_write(disk, snapshot.bytes, (uint64_t)snapshot.pages * FMT_PAGE,
		                   disk_ledger_offset(disk, area, copy, 0));
	if (!error)
		error = disk_sync(disk);
	if (!error) {
		log->area = area;
		log->epoch = log->area_epoch = snapshot.epoch;
		log->sequence = snapshot.sequence;
		log->extent = snapshot.pages;
		log->anew = 0;
		fsck->report->rewritten_ledgers++;
		fsck_tell(fsck, FSCK_DONE, disk, disk_ledger_offset(disk, area, 0, 0), "the ledger is written anew");
	}
	mem_free(snapshot.bytes);
	return error;
}
