/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device as fsck sees it: reads that survive bad sectors and cut-off files, the label and its copy, and the search
 * for a device's geometry where both are lost.
 *
 * The search: pages of a ledger name their device and their place in an area, so they tell where areas begin; the
 * salts in the ledger tell at which size of segments its groups are genuine.
 *
 * Threads: the caller's. Memory: the label's two pages; struct fsck's chunk.
 */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "cairn/cairn.h"
#include "fsck/fsck_in.h"

enum {
	STARTS_MAX = 64,
	LEDGER_BYTES_MIN = 128 << 10, /* of an area, as stores make them: doubled up to ... */
	LEDGER_BYTES_MAX = 64 << 20,
	SEGMENTS_ALIGN = 1 << 20,
};
#define SEARCH_BYTES (2 * FMT_PAGE + 4ull * LEDGER_BYTES_MAX)

/* ---- reading and writing ----------------------------------------------------------------------------------------- */

uint32_t disk_read(struct disk *disk, void *bytes, uint64_t length, uint64_t offset)
{
	uint64_t end = disk->size / FMT_PAGE * FMT_PAGE, have = offset < end ? end - offset : 0;
	uint8_t *to = bytes;
	uint32_t bad = 0;
	check(length % FMT_PAGE == 0 && offset % FMT_PAGE == 0);
	have = have < length ? have : length;
	memset(to + have, 0, length - have);
	if (have && disk->io->ops->pread(disk->io, to, have, offset)) {
		for (uint64_t at = 0; at < have; at += FMT_PAGE) { /* one bad sector must not hide its neighbours */
			if (!disk->io->ops->pread(disk->io, to + at, FMT_PAGE, offset + at))
				continue;
			memset(to + at, DISK_UNREADABLE, FMT_PAGE);
			bad++;
		}
		disk->fsck->report->io_errors += bad;
	}
	disk->fsck->report->bytes_read += have;
	return bad;
}

int disk_write(struct disk *disk, const void *bytes, uint64_t length, uint64_t offset)
{
	check(disk->fsck->options.repair);
	int error = disk->io->ops->pwrite(disk->io, bytes, length, offset);
	if (error)
		return err_set(err_from_errno(-error), "cannot write %s: %s", disk->path, strerror(-error));
	if (offset + length > disk->size)
		disk->size = offset + length;
	return 0;
}

int disk_sync(struct disk *disk)
{
	int error = disk->io->ops->sync(disk->io);
	return error ? err_set(err_from_errno(-error), "cannot flush %s: %s", disk->path, strerror(-error)) : 0;
}

int disk_open(struct disk *disk)
{
	struct fsck *fsck = disk->fsck;
	uint64_t free, all;
	uint32_t flags = IO_OPEN_LOCK | (fsck->options.repair ? 0 : IO_OPEN_READONLY);
	const char *slash = strrchr(disk->path, '/');
	disk->name = slash ? slash + 1 : disk->path;
	int error = fsck->maker->open(fsck->maker->arg, disk->path, flags | IO_OPEN_BLOCKING, 1, &disk->io);
	if (error) {
		disk->io = NULL;
		int code = error == -EWOULDBLOCK ? CAIRN_E_OWNED : err_from_errno(-error);
		if (code == CAIRN_E_OWNED)
			return err_set(code, "the device %s is open in another store: end that first", disk->path);
		if (code == CAIRN_E_ACCESS || code == CAIRN_E_RDONLY || code == CAIRN_E_NOMEM)
			return err_set(code, "cannot open the device %s: %s", disk->path, strerror(-error));
		fsck_tell(fsck, FSCK_STUCK, disk, FSCK_NO_OFFSET, "the device can not be opened: %s; its blocks are missing",
		          strerror(-error));
		return 0;
	}
	if (disk->io->ops->space(disk->io, &disk->size, &free, &all))
		disk->size = 0;
	fsck->report->bytes_all += disk->size;
	return 0;
}

void disk_close(struct disk *disk)
{
	if (disk->io)
		disk->io->ops->close(disk->io);
	disk->io = NULL;
}

uint32_t disk_segments(const struct disk *disk)
{
	/* As an open counts them: what the budget allows or what is there, but no more than the ledger has room for. */
	const struct fmt_label *label = &disk->label;
	uint64_t budget = disk->fsck->ident.device[disk->index].budget_bytes, most = label->ledger_bytes / 64 / 4;
	uint64_t room = budget > label->segments_offset ? (budget - label->segments_offset) / label->segment_bytes : 0;
	uint64_t there = disk->size > label->segments_offset
	                     ? (disk->size - label->segments_offset + label->segment_bytes - 1) / label->segment_bytes
	                     : 0;
	uint64_t n = room > there ? room : there;
	return (uint32_t)(n < most ? n : most);
}

/* ---- label ------------------------------------------------------------------------------------------------------- */

static int label_read(struct disk *disk, uint8_t *pages, int result[2], struct fmt_label label[2])
{
	(void)disk_read(disk, pages, 2 * FMT_PAGE, 0);
	for (int copy = 0; copy < 2; copy++) {
		result[copy] = segment_label_decode(pages + copy * FMT_PAGE, &label[copy]);
		if (result[copy] == FMT_NEWER ||
		    (result[copy] == FMT_OK && label[copy].bits.ro_compat & ~FMT_RO_COMPAT_KNOWN && disk->fsck->options.repair))
			return err_set(CAIRN_E_VERSION, "%s was written by a newer cairn: use that one's fsck", disk->path);
	}
	return 0;
}

int disk_label_peek(struct disk *disk, struct fmt_label *ret_label)
{
	uint8_t *pages = mem_aligned(FMT_PAGE, 2 * FMT_PAGE);
	struct fmt_label label[2];
	int result[2];
	if (!pages)
		return err_set(CAIRN_E_NOMEM, "no memory to check %s", disk->path);
	int error = label_read(disk, pages, result, label);
	mem_free(pages);
	for (int copy = 0; copy < 2 && !error; copy++)
		if (result[copy] == FMT_OK) {
			*ret_label = label[copy];
			return 1;
		}
	return error;
}

/* ---- finding a device again -------------------------------------------------------------------------------------- */

struct search {
	uint64_t start[STARTS_MAX]; /* where areas may begin */
	uint32_t nstarts;
	uint8_t device_id[16];
	int any; /* device_id is to be found, too */
};

static int search_pages(struct disk *disk, struct search *search)
{
	struct fsck *fsck = disk->fsck;
	uint64_t end = disk->size < SEARCH_BYTES ? disk->size : SEARCH_BYTES;
	int error = fsck_step(fsck, disk, "search for its label", end);
	for (uint64_t offset = 2 * FMT_PAGE; offset < end && !error; offset += DISK_CHUNK) {
		(void)disk_read(disk, fsck->chunk, DISK_CHUNK, offset);
		for (uint32_t at = 0; at < DISK_CHUNK; at += FMT_PAGE) {
			struct ledger_page head;
			if (ledger_page_open(fsck->chunk + at, &head) != FMT_OK ||
			    (uint64_t)head.index * FMT_PAGE + 2 * FMT_PAGE > offset + at)
				continue;
			if (search->any) {
				memcpy(search->device_id, head.device_id, 16);
				search->any = 0;
			}
			uint64_t start = offset + at - (uint64_t)head.index * FMT_PAGE;
			int known = memcmp(search->device_id, head.device_id, 16) != 0;
			for (uint32_t i = 0; i < search->nstarts; i++)
				known |= search->start[i] == start;
			if (!known && search->nstarts < STARTS_MAX)
				search->start[search->nstarts++] = start;
		}
		error = fsck_advance(fsck, DISK_CHUNK);
	}
	return error;
}

int disk_find_id(struct disk *disk, uint8_t ret_id[16])
{
	struct search search = {.any = 1};
	int error = search_pages(disk, &search);
	if (error || search.any)
		return error;
	memcpy(ret_id, search.device_id, 16);
	return 1;
}

/* Whether all starts are the beginnings of areas of this size behind the labels. */
static int search_fits(const struct search *search, uint64_t ledger_bytes)
{
	for (uint32_t i = 0; i < search->nstarts; i++) {
		uint64_t from = search->start[i] - 2 * FMT_PAGE;
		if (from % ledger_bytes || from / ledger_bytes >= 4)
			return 0;
	}
	return 1;
}

/* What segments of this size would prove: how many of the ledger's segments begin with a genuine group there. */
static uint32_t search_score(struct disk *disk, uint32_t segment_bytes, uint32_t *ret_last)
{
	enum { TRIES = 64 };
	uint32_t score = 0, tried = 0;
	*ret_last = 0;
	for (uint32_t i = 0; i < disk->log.nsegments; i++) {
		const struct log_segment *segment = &disk->log.segments[i];
		if (!segment->life)
			continue;
		*ret_last = i + 1;
		if (tried < TRIES && (segment->state == LEDGER_OPEN || segment->state == LEDGER_SEALED)) {
			tried++;
			score += walk_proves(disk, segment, i, segment_bytes / FMT_PAGE) != 0;
		}
	}
	return score;
}

static uint32_t pow2_down(uint64_t value)
{
	uint32_t power = 1;
	while ((uint64_t)power * 2 <= value && power < (1u << 30))
		power *= 2;
	return power;
}

/* The size of segments of the label that is being tried: proven by groups, else by the file's size, else as a store
 * with this budget makes them (nothing is in them then). Returns how well it is proven. */
static uint32_t search_segments(struct disk *disk, uint64_t budget_bytes)
{
	uint32_t best = 0, best_bytes = 0, last = 0;
	uint64_t there = disk->size > disk->label.segments_offset ? disk->size - disk->label.segments_offset : 0;
	uint32_t plan = pow2_down(budget_bytes / 16);
	plan = plan < (1u << 20) ? 1u << 20 : plan > (128u << 20) ? 128u << 20 : plan;
	for (uint32_t bytes = FMT_SEGMENT_BYTES_MIN; bytes <= FMT_SEGMENT_BYTES_MAX; bytes *= 2) {
		/* A file grows by whole segments, in their order. */
		uint32_t score = search_score(disk, bytes, &last) * 4;
		score += last && there == (uint64_t)last * bytes ? 2 : 0;
		score += bytes == plan;
		if (score > best) {
			best = score;
			best_bytes = bytes;
		}
	}
	disk->label.segment_bytes = best_bytes ? best_bytes : plan;
	return best;
}

/* Both labels are lost. 1: disk->label is what they said, as far as it can be told; 0: there is no ledger. */
static int label_search(struct disk *disk)
{
	struct fsck *fsck = disk->fsck;
	const struct ident_device *ident = &fsck->ident.device[disk->index];
	struct search search = {0};
	struct fmt_label best_label = {0};
	uint32_t best = 0;
	memcpy(search.device_id, ident->device_id, 16);
	int error = search_pages(disk, &search);
	for (uint64_t bytes = LEDGER_BYTES_MIN; bytes <= LEDGER_BYTES_MAX && search.nstarts && !error; bytes *= 2) {
		if (!search_fits(&search, bytes))
			continue;
		struct fmt_label *label = &disk->label;
		memset(label, 0, sizeof(*label));
		label->version = FMT_VERSION;
		memcpy(label->store_id, fsck->ident.store_id, 16);
		memcpy(label->device_id, ident->device_id, 16);
		label->device_index = disk->index;
		label->ledger_offset = 2 * FMT_PAGE;
		label->ledger_bytes = (uint32_t)bytes;
		label->segments_offset = BYTES_ROUND_UP(label->ledger_offset + 4 * bytes, SEGMENTS_ALIGN);
		label->segment_bytes = FMT_SEGMENT_BYTES_MIN; /* so that no record of the ledger is passed over */
		error = log_read(disk, 0);
		if (error)
			break;
		uint32_t score = 1 + search_segments(disk, ident->budget_bytes);
		log_free(&disk->log);
		if (score > best) {
			best = score;
			best_label = *label;
		}
	}
	disk->label = best_label;
	return error ? error : best > 0;
}

int disk_label(struct disk *disk)
{
	struct fsck *fsck = disk->fsck;
	const struct ident_device *ident = &fsck->ident.device[disk->index];
	struct fmt_label label[2];
	int result[2], found = 0;
	uint8_t *pages = mem_aligned(FMT_PAGE, 2 * FMT_PAGE);
	if (!pages)
		return err_set(CAIRN_E_NOMEM, "no memory to check %s", disk->path);
	int error = label_read(disk, pages, result, label), differ = memcmp(pages, pages + FMT_PAGE, FMT_PAGE);
	int blank = fsck_blank(pages, 2 * FMT_PAGE);
	mem_free(pages);
	if (error)
		return error;
	for (int copy = 0; copy < 2; copy++) {
		disk->label_good[copy] = result[copy] == FMT_OK && !(copy && found && differ);
		if (disk->label_good[copy] && !found) {
			disk->label = label[copy];
			found = 1;
		}
	}
	if (!found) {
		found = label_search(disk);
		if (found < 0)
			return found;
		if (blank && (!found || disk->size <= disk->label.segments_offset)) {
			fsck_tell(fsck, FSCK_NOTE, disk, 0, "its making was cut off: the next open makes it anew");
			disk->unfinished = 1;
			disk_close(disk);
			return 0;
		}
		if (found)
			fsck_tell(fsck, FSCK_MENDABLE, disk, 0, "both labels are damaged; its ledger tells what they said");
		else
			fsck_tell(fsck, FSCK_STUCK, disk, 0, "both labels and the ledger are damaged: its blocks are lost");
		fsck->report->label_copies_damaged += 2;
	} else if (memcmp(disk->label.store_id, fsck->ident.store_id, 16) ||
	           memcmp(disk->label.device_id, ident->device_id, 16)) {
		fsck_tell(fsck, FSCK_STUCK, disk, 0, "belongs to another store, and is left alone");
		found = 0;
	} else {
		for (int copy = 0; copy < 2; copy++)
			if (!disk->label_good[copy]) {
				fsck->report->label_copies_damaged++;
				fsck_tell(fsck, FSCK_MENDABLE, disk, (uint64_t)copy * FMT_PAGE, "%s is damaged; the other copy is good",
				          copy ? "the label's copy" : "the label");
			}
	}
	if (!found) {
		disk_close(disk);
		return 0;
	}
	uint32_t entries = disk->label.segment_bytes / 8192;
	disk->entries_max = entries < 128 ? 128 : entries > 32768 ? 32768 : entries;
	disk->segment_pages = disk->label.segment_bytes / FMT_PAGE;
	return 0;
}

int disk_label_mend(struct disk *disk)
{
	struct fsck *fsck = disk->fsck;
	if (disk->label_good[0] && disk->label_good[1])
		return 0;
	uint8_t *page = mem_aligned(FMT_PAGE, FMT_PAGE);
	if (!page)
		return err_set(CAIRN_E_NOMEM, "no memory to mend %s", disk->path);
	segment_label_encode(&disk->label, page);
	int lost = !disk->label_good[0] && !disk->label_good[1], error = 0;
	for (int copy = 0; copy < 2 && !error; copy++) {
		if (disk->label_good[copy])
			continue;
		error = disk_write(disk, page, FMT_PAGE, (uint64_t)copy * FMT_PAGE);
		if (!error)
			error = disk_sync(disk);
		if (error)
			break;
		disk->label_good[copy] = 1;
		fsck->report->repaired_copies += !lost;
		fsck_tell(fsck, FSCK_DONE, disk, (uint64_t)copy * FMT_PAGE, "%s is %s", copy ? "the label's copy" : "the label",
		          lost ? "made anew" : "restored from the other");
	}
	fsck->report->rebuilt += lost && !error;
	mem_free(page);
	return error;
}
