/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of the parts that lie on a device are to be served, and whether their bytes are what their checks say.
 *
 * Threads: the caller's. Memory: struct fsck's chunk.
 */
#include <string.h>

#include "base/digest.h"
#include "cairn/cairn.h"
#include "fsck/fsck_in.h"

static uint64_t part_offset(const struct disk *disk, const struct part *part)
{
	return disk_offset(disk, part->segment, part->page);
}

static int part_proves(const struct disk *disk, const struct part *part, uint64_t stored_xxh3)
{
	return segment_stored_check(part->key, disk->fsck->spaces[part->space], part->part, part->raw_length,
	                            part->stored_length, part->codec, stored_xxh3) == part->check;
}

/* Reads a payload chunk by chunk. 1: good; 0: not; *ret_error: CANCELED. */
static int part_good(struct disk *disk, const struct part *part, int tell_progress, int *ret_error)
{
	struct fsck *fsck = disk->fsck;
	struct digest_xxh xxh;
	uint64_t bytes = (uint64_t)disk_pages_of(part->stored_length) * FMT_PAGE, left = part->stored_length;
	uint32_t bad = 0;
	digest_xxh_init(&xxh, 0);
	for (uint64_t at = 0; at < bytes && !*ret_error; at += DISK_CHUNK) {
		uint64_t length = bytes - at < DISK_CHUNK ? bytes - at : DISK_CHUNK, hashed = left < length ? left : length;
		bad += disk_read(disk, fsck->chunk, length, part_offset(disk, part) + at);
		digest_xxh_add(&xxh, fsck->chunk, hashed);
		left -= hashed;
		if (tell_progress)
			*ret_error = fsck_advance(fsck, length);
	}
	return !*ret_error && !bad && part_proves(disk, part, digest_xxh_done(&xxh));
}

static void judge(struct disk *disk, struct part *part)
{
	const struct log *log = &disk->log;
	const uint8_t *space = disk->fsck->spaces[part->space];
	if (part->state != PART_LIVE)
		return;
	if (part->birth <= log->doubt_through || log->missed)
		part->state = PART_DOUBTFUL;
	if (log_dropped(log, space, log->segments[part->segment].tenant, part->key, part->birth) ||
	    log_quarantined(log, space, part->key, part->part, part->birth))
		part->state = PART_DROPPED;
}

static void tell_damaged(struct disk *disk, const struct part *part)
{
	static const char digits[] = "0123456789abcdef";
	char key[17];
	for (int i = 0; i < 8; i++) {
		key[2 * i] = digits[part->key[i] >> 4];
		key[2 * i + 1] = digits[part->key[i] & 15];
	}
	key[16] = 0;
	fsck_tell(disk->fsck, FSCK_LOST, disk, part_offset(disk, part),
	          "the bytes of a part are damaged: key %s..., part %u", key, part->part);
}

static void part_check(struct disk *disk, struct part *part, int *ret_error)
{
	const struct log *log = &disk->log;
	if (part_good(disk, part, 1, ret_error) || *ret_error) {
		part->state = PART_GOOD;
		return;
	}
	if (part_good(disk, part, 0, ret_error)) { /* the wire and not the medium */
		part->state = PART_GOOD;
		return;
	}
	int promised = !part->sequence || part->sequence <= disk->flushed_through || log->mark.u.mark.clean ||
	               log->segments[part->segment].state == LEDGER_SEALED;
	part->state = promised ? PART_DAMAGED : PART_UNFLUSHED;
	if (promised) {
		disk->segs[part->segment].renew = 1;
		tell_damaged(disk, part);
	}
}

static void count(struct disk *disk, const struct part *part)
{
	struct fsck_report *report = disk->fsck->report;
	report->parts += part->state == PART_GOOD || part->state == PART_DAMAGED;
	report->parts_good += part->state == PART_GOOD;
	report->parts_damaged += part->state == PART_DAMAGED;
	report->parts_unflushed += part->state == PART_UNFLUSHED;
	report->parts_dropped += part->state == PART_DROPPED;
	report->parts_doubtful += part->state == PART_DOUBTFUL;
}

int parts_run(struct disk *disk)
{
	uint64_t all = 0, doubtful = 0;
	int error = 0;
	log_index(&disk->log);
	for (uint32_t i = 0; i < disk->nparts; i++) {
		struct part *part = &disk->parts[i];
		judge(disk, part);
		if (part->state == PART_LIVE)
			all += (uint64_t)disk_pages_of(part->stored_length) * FMT_PAGE;
		if (part->state == PART_DOUBTFUL && part->birth <= disk->log.doubt_through) {
			disk->segs[part->segment].renew = 1;
			doubtful++;
		}
	}
	if (doubtful)
		fsck_tell(disk->fsck, FSCK_LOST, disk, FSCK_NO_OFFSET,
		          "%llu parts could be covered by a drop that is lost, and are not served",
		          (unsigned long long)doubtful);
	if (disk->log.missed)
		fsck_tell(disk->fsck, FSCK_NOTE, disk, FSCK_NO_OFFSET,
		          "drops were decided while it was away, and no device that knows them is here: it serves nothing");
	error = fsck_step(disk->fsck, disk, "payloads", all);
	for (uint32_t i = 0; i < disk->nparts && !error; i++) {
		if (disk->parts[i].state == PART_LIVE)
			part_check(disk, &disk->parts[i], &error);
		count(disk, &disk->parts[i]);
	}
	return error;
}

int parts_load(struct disk *disk, const struct part *part, uint8_t *bytes)
{
	uint64_t length = (uint64_t)disk_pages_of(part->stored_length) * FMT_PAGE;
	if (disk_read(disk, bytes, length, part_offset(disk, part)))
		return -1;
	return part_proves(disk, part, digest_xxh3(bytes, part->stored_length, 0)) ? 0 : -1;
}
