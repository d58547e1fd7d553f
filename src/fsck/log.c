/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device's ledger as fsck reads it: which pages are good in which copy, the state they add up to, what a hole makes
 * doubtful, and what the ledgers of other devices know better. The rules are docs/FORMAT.md, part 10.
 *
 * Threads: the caller's. Memory: both copies of both areas while it reads; the state is struct log's.
 * Invariant: foreign records change nothing but the tables; what is in no bounds is passed over.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "cairn/cairn.h"
#include "fmt/key.h"
#include "fsck/fsck_in.h"

enum { BATCH_PAGES = 16 };

/* ---- state ------------------------------------------------------------------------------------------------------- */

static int table_add(struct log_table *table, const struct ledger_record *record)
{
	void *records = table->records;
	int error = fsck_grow(&records, table->used, &table->room, sizeof(*table->records));
	table->records = records;
	if (!error)
		table->records[table->used++] = *record;
	return error;
}

void log_remove(struct log_table *table, uint32_t index)
{
	table->records[index] = table->records[--table->used];
}

struct ledger_record *log_session(struct log *log, const uint8_t id[32])
{
	for (uint32_t i = 0; i < log->sessions.used; i++)
		if (!memcmp(log->sessions.records[i].u.session.id, id, 32))
			return &log->sessions.records[i];
	return NULL;
}

static struct log_space *space_of(const struct log *log, const uint8_t id[32])
{
	for (uint32_t i = 0; i < log->nspaces; i++)
		if (!memcmp(log->spaces[i].id, id, 32))
			return &log->spaces[i];
	return NULL;
}

static int apply_space(struct log *log, const struct ledger_record *record)
{
	struct log_space *space = space_of(log, record->u.space.id);
	uint32_t total = record->u.space.total, offset = record->u.space.offset, length = record->u.space.length;
	if (!total || total > KEY_CANON_MAX || offset > total || length > total - offset ||
	    (space && space->length != total))
		return 0;
	if (!space) {
		void *spaces = log->spaces;
		int error = fsck_grow(&spaces, log->nspaces, &log->spaces_room, sizeof(*log->spaces));
		log->spaces = spaces;
		uint8_t *canon = error ? NULL : mem_alloc(total);
		if (!canon)
			return error ? error : err_set(CAIRN_E_NOMEM, "no memory for a space of %u bytes", total);
		space = &log->spaces[log->nspaces++];
		memcpy(space->id, record->u.space.id, 32);
		space->canon = canon;
		space->length = total;
	}
	memcpy(space->canon + offset, record->u.space.bytes, length);
	return 0;
}

static void note_decision(struct log *log, uint64_t decision)
{
	if (decision > log->mark.u.mark.last_decision)
		log->mark.u.mark.last_decision = decision;
	if (decision >= log->mark.u.mark.next_birth && decision != UINT64_MAX)
		log->mark.u.mark.next_birth = decision + 1;
}

static int apply_drop(struct log *log, const struct ledger_record *record)
{
	for (uint32_t i = 0; i < log->drops.used && record->u.drop.scope != LEDGER_DROP_KEY; i++) {
		struct ledger_record *drop = &log->drops.records[i];
		if (drop->u.drop.scope != record->u.drop.scope || memcmp(drop->u.drop.space, record->u.drop.space, 32) ||
		    memcmp(drop->u.drop.what, record->u.drop.what, 32))
			continue;
		if (record->u.drop.decision > drop->u.drop.decision)
			*drop = *record;
		return 0;
	}
	return table_add(&log->drops, record);
}

static int apply(struct log *log, const struct ledger_record *record)
{
	struct ledger_record *session;
	switch (record->type) {
	case LEDGER_SEGMENT:
		if (record->u.segment.segment < log->nsegments) {
			struct log_segment *segment = &log->segments[record->u.segment.segment];
			segment->life = record->u.segment.life;
			segment->salt = record->u.segment.salt;
			segment->start_sequence = record->u.segment.start_sequence;
			segment->state = record->u.segment.state;
			memcpy(segment->tenant, record->u.segment.tenant, 16);
		}
		return 0;
	case LEDGER_DROP:
		note_decision(log, record->u.drop.decision);
		return apply_drop(log, record);
	case LEDGER_SESSION:
		note_decision(log, record->u.session.decision);
		session = log_session(log, record->u.session.id);
		if (!session)
			return table_add(&log->sessions, record);
		if (record->u.session.decision >= session->u.session.decision)
			*session = *record;
		return 0;
	case LEDGER_FORGET:
		note_decision(log, record->u.forget.decision);
		session = log_session(log, record->u.forget.id);
		if (session && session->u.session.decision <= record->u.forget.decision)
			log_remove(&log->sessions, (uint32_t)(session - log->sessions.records));
		return 0;
	case LEDGER_SPACE:
		return apply_space(log, record);
	case LEDGER_QUARANTINE:
		return table_add(&log->quarantine, record);
	case LEDGER_MARK:
		log->mark = *record;
		return 0;
	default:
		return 0;
	}
}

void log_free(struct log *log)
{
	for (uint32_t i = 0; i < log->nspaces; i++)
		mem_free(log->spaces[i].canon);
	mem_free(log->spaces);
	mem_free(log->segments);
	mem_free(log->drops.records);
	mem_free(log->sessions.records);
	mem_free(log->quarantine.records);
	memset(log, 0, sizeof(*log));
}

static int log_init(struct log *log, uint32_t nsegments)
{
	memset(log, 0, sizeof(*log));
	log->nsegments = nsegments;
	log->mark.type = LEDGER_MARK;
	log->mark.u.mark.next_birth = 1;
	log->mark.u.mark.checkpoint_segment = UINT32_MAX;
	log->segments = mem_array(nsegments ? nsegments : 1, sizeof(*log->segments));
	return log->segments ? 0 : err_set(CAIRN_E_NOMEM, "no memory for a ledger of %u segments", nsegments);
}

/* ---- areas ------------------------------------------------------------------------------------------------------- */

struct area {
	struct disk *disk;
	uint32_t number;
	uint8_t *copy[2];
	uint64_t epoch; /* newest that a page names; 0: none */
	uint32_t pages;
	int live;       /* its snapshot was finished */
};

/* A page of one copy as this device's, whatever its epoch. */
static int area_any(const struct area *area, uint32_t copy, uint32_t index, struct ledger_page *ret_head)
{
	int result = ledger_page_open(area->copy[copy] + (size_t)index * FMT_PAGE, ret_head);
	if (result != FMT_OK)
		return result;
	return ret_head->index == index && !memcmp(ret_head->device_id, area->disk->label.device_id, 16) ? FMT_OK : FMT_BAD;
}

static int area_good(const struct area *area, uint32_t copy, uint32_t index, struct ledger_page *ret_head)
{
	return area_any(area, copy, index, ret_head) == FMT_OK && ret_head->epoch == area->epoch;
}

static const uint8_t *area_page(const struct area *area, uint32_t index, struct ledger_page *ret_head)
{
	for (uint32_t copy = 0; copy < 2; copy++)
		if (area_good(area, copy, index, ret_head))
			return area->copy[copy] + (size_t)index * FMT_PAGE;
	return NULL;
}

static int area_load(struct area *area)
{
	struct disk *disk = area->disk;
	struct ledger_page head;
	area->pages = disk->label.ledger_bytes / FMT_PAGE;
	for (uint32_t copy = 0; copy < 2; copy++) {
		area->copy[copy] = mem_aligned(FMT_PAGE, disk->label.ledger_bytes);
		if (!area->copy[copy])
			return err_set(CAIRN_E_NOMEM, "no memory to read the ledger of %s", disk->path);
		(void)disk_read(disk, area->copy[copy], disk->label.ledger_bytes,
		                disk_ledger_offset(disk, area->number, copy, 0));
		int error = fsck_advance(disk->fsck, disk->label.ledger_bytes);
		if (error)
			return error;
		for (uint32_t i = 0; i < area->pages; i++) {
			int result = area_any(area, copy, i, &head);
			if (result == FMT_NEWER)
				return err_set(CAIRN_E_VERSION, "%s was written by a newer cairn: use that one's fsck", disk->path);
			if (result == FMT_OK && head.epoch > area->epoch)
				area->epoch = head.epoch;
		}
	}
	uint32_t whole = 0;
	for (uint32_t i = 0; i < area->pages && area->epoch; i++) {
		if (!area_page(area, i, &head))
			continue;
		whole += whole == i;
		/* A decision behind a snapshot proves that it had been flushed. */
		area->live |= !(head.flags & LEDGER_PAGE_SNAPSHOT) ||
		              ((head.flags & LEDGER_PAGE_SNAPSHOT_END) && whole == i + 1);
	}
	return 0;
}

static void area_free(struct area *area)
{
	mem_free(area->copy[0]);
	mem_free(area->copy[1]);
}

/* ---- replay ------------------------------------------------------------------------------------------------------ */

static int page_apply(struct log *log, const uint8_t *page, const struct ledger_page *head, int *ret_mark)
{
	struct ledger_record record;
	uint32_t at = 0;
	int error = 0;
	*ret_mark = 0;
	while (!error && ledger_record_next(page + LEDGER_HEAD_BYTES, head->used, &at, &record) == 1) {
		*ret_mark |= record.type == LEDGER_MARK;
		error = apply(log, &record);
	}
	return error;
}

static uint32_t batch_position(const struct ledger_page *head) { return head->flags >> 8 & 0xff; }
static uint32_t batch_count(const struct ledger_page *head) { return head->flags >> 16 & 0xff; }

/* Pages [from, to) are missing, page `to` is not: is it the last batch, which a crash tore before its flush? */
static int torn_batch(const struct area *area, uint32_t from, uint32_t to, const struct ledger_page *head)
{
	struct ledger_page later;
	uint32_t position = batch_position(head), count = batch_count(head);
	if (head->flags & LEDGER_PAGE_SNAPSHOT || position >= count || position > to || from < to - position)
		return 0;
	for (uint32_t i = to - position + count; i < area->pages; i++)
		if (area_page(area, i, &later))
			return 0;
	return 1;
}

/* Applies the pages of an area. A hole is bounded by the counters of the batch, or snapshot, that ends behind it: they
 * know the newest decision, whatever the order of the records before them. */
static int replay(const struct area *area, struct log *log)
{
	uint32_t missing = 0;
	int doubt = 0;
	log->area = area->number;
	for (uint32_t i = 0; i < area->pages && area->epoch; i++) {
		struct ledger_page head;
		const uint8_t *page = area_page(area, i, &head);
		int mark = 0;
		if (!page) {
			missing++;
			continue;
		}
		if (missing && torn_batch(area, i - missing, i, &head))
			break;
		if (missing) {
			log->holes += missing;
			missing = 0;
			doubt = 1;
		}
		uint64_t before = log->mark.u.mark.last_decision;
		int error = page_apply(log, page, &head, &mark);
		if (error)
			return error;
		if (mark && doubt) {
			uint64_t known = log->mark.u.mark.last_decision;
			log->doubt_through = known > log->doubt_through ? known : log->doubt_through;
			doubt = 0;
		}
		if (log->mark.u.mark.last_decision < before)
			log->mark.u.mark.last_decision = before;
		log->extent = i + 1;
		if (head.sequence > log->sequence)
			log->sequence = head.sequence;
	}
	if (doubt)
		log->doubt_through = UINT64_MAX;
	return 0;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

/* A page that nobody has written in this epoch: blank, or of an older one. */
static int unwritten(const struct area *area, uint32_t copy, uint32_t index)
{
	struct ledger_page head;
	return fsck_blank(area->copy[copy] + (size_t)index * FMT_PAGE, FMT_PAGE) ||
	       (area_any(area, copy, index, &head) == FMT_OK && head.epoch < area->epoch);
}

static void tell_page(struct disk *disk, const struct area *area, uint32_t index, uint32_t last_batch)
{
	struct fsck_report *report = disk->fsck->report;
	struct ledger_page head;
	int good[2];
	for (uint32_t copy = 0; copy < 2; copy++)
		good[copy] = area_good(area, copy, index, &head);
	if (!good[0] && !good[1]) {
		report->ledger_pages_damaged_both++;
		fsck_tell(disk->fsck, FSCK_LOST, disk, disk_ledger_offset(disk, area->number, 0, index),
		          "page %u of the ledger is damaged in both copies: what it decided is lost", index);
		return;
	}
	const uint8_t *bytes = area->copy[0] + (size_t)index * FMT_PAGE, *other = area->copy[1] + (size_t)index * FMT_PAGE;
	if (good[0] && good[1] && !memcmp(bytes, other, FMT_PAGE))
		return;
	uint32_t bad = good[0] ? 1 : 0;
	int crash = index >= last_batch && !disk->log.mark.u.mark.clean && unwritten(area, bad, index);
	report->ledger_pages_damaged_one += !crash;
	disk->log.halves++;
	fsck_tell(disk->fsck, crash ? FSCK_NOTE : FSCK_MENDABLE, disk, disk_ledger_offset(disk, area->number, bad, index),
	          crash ? "page %u of the ledger is in one copy alone: a crash came between"
	                : "page %u of the ledger is damaged in one copy; the other is good", index);
}

static void tell_area(struct disk *disk, const struct area *area, const struct area *other)
{
	const struct log *log = &disk->log;
	struct ledger_page head;
	if (!log->extent) {
		disk->fsck->report->ledger_pages_damaged_both++;
		fsck_tell(disk->fsck, FSCK_LOST, disk, disk_ledger_offset(disk, 0, 0, 0),
		          "no page of the ledger is good: what lies in the segments can not be proven, and is lost");
		return;
	}
	uint32_t last_batch = log->extent - 1;
	if (area_page(area, last_batch, &head)) {
		if (head.flags & LEDGER_PAGE_SNAPSHOT)
			last_batch = 0;
		else if (batch_position(&head) <= last_batch)
			last_batch -= batch_position(&head);
	}
	for (uint32_t i = 0; i < log->extent; i++)
		tell_page(disk, area, i, last_batch);
	if (!area->live) {
		disk->fsck->report->ledger_pages_damaged_both++;
		fsck_tell(disk->fsck, FSCK_LOST, disk, disk_ledger_offset(disk, area->number, 0, 0),
		          "the ledger has no whole snapshot: what it dropped is lost");
	}
	uint32_t behind = 0;
	for (uint32_t i = log->extent; i < area->pages && i < log->extent + BATCH_PAGES; i++)
		behind += !unwritten(area, 0, i) || !unwritten(area, 1, i);
	if (behind)
		fsck_tell(disk->fsck, FSCK_NOTE, disk, disk_ledger_offset(disk, area->number, 0, log->extent),
		          "behind the ledger's end lies a batch that was not finished, so it was not acknowledged");
	if (other->epoch > area->epoch)
		fsck_tell(disk->fsck, FSCK_NOTE, disk, disk_ledger_offset(disk, other->number, 0, 0),
		          "a snapshot of the ledger was not finished: the one before counts");
}

/* Segments whose records were in a hole may be known from the area that was in use before, if their groups prove it. */
static int adopt_older(struct disk *disk, const struct area *older)
{
	struct log before, *log = &disk->log;
	if (!older->epoch || older->epoch > log->epoch)
		return 0;
	int error = log_init(&before, log->nsegments);
	if (!error)
		error = replay(older, &before);
	for (uint32_t i = 0; i < log->nsegments && !error; i++) {
		const struct log_segment *segment = &before.segments[i];
		if (log->segments[i].life || !segment->life ||
		    (segment->state != LEDGER_OPEN && segment->state != LEDGER_SEALED) ||
		    !walk_proves(disk, segment, i, disk->segment_pages))
			continue;
		log->segments[i] = *segment;
		fsck_tell(disk->fsck, FSCK_NOTE, disk, disk_offset(disk, i, 0),
		          "segment %u: its record was lost, and is taken from the ledger's older area", i);
	}
	for (uint32_t i = 0; i < before.nspaces && !error; i++) {
		struct log_space *space = &before.spaces[i];
		void *spaces = log->spaces;
		if (space_of(log, space->id))
			continue;
		error = fsck_grow(&spaces, log->nspaces, &log->spaces_room, sizeof(*log->spaces));
		log->spaces = spaces;
		if (error)
			break;
		log->spaces[log->nspaces++] = *space;
		space->canon = NULL;
	}
	log_free(&before);
	return error;
}

int log_read(struct disk *disk, int tell)
{
	struct area area[2] = {{.disk = disk, .number = 0}, {.disk = disk, .number = 1}};
	struct log *log = &disk->log;
	uint32_t pick = 0;
	int error = fsck_step(disk->fsck, disk, "ledger", 4ull * disk->label.ledger_bytes);
	if (!error)
		error = log_init(log, tell ? disk_segments(disk) : disk->label.ledger_bytes / 64 / 4);
	for (int i = 0; i < 2 && !error; i++)
		error = area_load(&area[i]);
	if (!error) {
		uint32_t newest = area[1].epoch > area[0].epoch;
		pick = area[newest].live ? newest : newest ^ 1;
		if (!area[pick].live) { /* fragments: what they say counts, and what they do not say is doubtful */
			pick = newest;
			log->doubt_through = UINT64_MAX;
			log->holes++;
		}
		error = replay(&area[pick], log);
		log->epoch = area[newest].epoch;
		log->area_epoch = area[pick].epoch;
	}
	log->empty = !log->extent;
	log->anew = log->holes || log->empty;
	if (!error && tell)
		tell_area(disk, &area[pick], &area[pick ^ 1]);
	if (!error && tell && log->anew)
		error = adopt_older(disk, &area[pick ^ 1]);
	area_free(&area[0]);
	area_free(&area[1]);
	if (error)
		log_free(log);
	return error;
}

/* ---- reconciling ------------------------------------------------------------------------------------------------- */

struct log *log_authority(struct fsck *fsck)
{
	struct log *best = NULL;
	for (uint32_t i = 0; i < fsck->ndisks; i++) {
		struct log *log = &fsck->disks[i].log;
		if (!fsck->disks[i].io)
			continue;
		uint64_t last = log->mark.u.mark.last_decision;
		if (!best || last > best->mark.u.mark.last_decision ||
		    (last == best->mark.u.mark.last_decision && best->doubt_through && !log->doubt_through))
			best = log;
	}
	return best;
}

static int take_drops(struct log *to, const struct log *from, uint64_t after)
{
	int error = 0;
	for (uint32_t i = 0; i < from->drops.used && !error; i++) {
		struct ledger_record drop = from->drops.records[i];
		if (drop.u.drop.decision <= after)
			continue;
		/* Here it was decided only now: it stays until every segment of this device began later. */
		drop.u.drop.sequence = to->mark.u.mark.group_epoch << 32 | UINT32_MAX;
		error = apply(to, &drop);
	}
	return error;
}

static int take_spaces(struct log *to, const struct log *from)
{
	int error = 0;
	for (uint32_t i = 0; i < from->nspaces && !error; i++) {
		const struct log_space *space = &from->spaces[i];
		struct ledger_record record = {.type = LEDGER_SPACE};
		if (space_of(to, space->id))
			continue;
		memcpy(record.u.space.id, space->id, 32);
		record.u.space.total = space->length;
		for (uint32_t at = 0; at < space->length && !error; at += LEDGER_SPACE_PIECE_MAX) {
			uint32_t left = space->length - at;
			record.u.space.offset = at;
			record.u.space.bytes = space->canon + at;
			record.u.space.length = (uint16_t)(left < LEDGER_SPACE_PIECE_MAX ? left : LEDGER_SPACE_PIECE_MAX);
			error = apply_space(to, &record);
		}
	}
	return error;
}

static int take_sessions(struct log *to, struct log *from)
{
	int error = 0;
	for (uint32_t i = 0; i < to->sessions.used;) {
		const struct ledger_record *session = &to->sessions.records[i];
		if (log_session(from, session->u.session.id) ||
		    session->u.session.decision > from->mark.u.mark.last_decision)
			i++;
		else
			log_remove(&to->sessions, i);
	}
	for (uint32_t i = 0; i < from->sessions.used && !error; i++)
		error = apply(to, &from->sessions.records[i]);
	return error;
}

/* Every device that is here missed decisions while it was away: what they could cover is not served until one that
 * knows them is back. */
static void missed(struct fsck *fsck)
{
	int current = 0;
	for (uint32_t i = 0; i < fsck->ndisks; i++)
		current |= fsck->disks[i].io && !(fsck->ident.device[i].flags & IDENT_DEVICE_MISSED);
	for (uint32_t i = 0; i < fsck->ndisks && !current; i++)
		fsck->disks[i].log.missed = 1;
}

int log_reconcile(struct fsck *fsck)
{
	struct log *best = log_authority(fsck);
	int error = 0;
	missed(fsck);
	for (uint32_t i = 0; i < fsck->ndisks && !error; i++) {
		struct log *log = &fsck->disks[i].log;
		if (!fsck->disks[i].io)
			continue;
		uint64_t last = log->mark.u.mark.last_decision, doubt = log->doubt_through, forgotten = 0;
		int others = 0, behind = best->mark.u.mark.last_decision > last;
		for (uint32_t j = 0; j < fsck->ndisks && !error; j++) {
			const struct log *other = &fsck->disks[j].log;
			if (i == j || !fsck->disks[j].io)
				continue;
			others += !other->doubt_through && other->mark.u.mark.last_decision == best->mark.u.mark.last_decision;
			error = take_drops(log, other, doubt ? 0 : last);
			if (!error)
				error = take_spaces(log, other);
			if ((behind || doubt) && other->mark.u.mark.dropped_through > forgotten)
				forgotten = other->mark.u.mark.dropped_through;
		}
		if (log != best && !error)
			error = take_sessions(log, best);
		if (doubt && others)
			log->doubt_through = forgotten;
		else if (behind && forgotten > last && forgotten > log->doubt_through)
			log->doubt_through = forgotten;
	}
	return error;
}

/* ---- drops and quarantine ---------------------------------------------------------------------------------------- */

static int drop_order(const void *left, const void *right)
{
	const struct ledger_record *a = left, *b = right;
	if (a->u.drop.scope != b->u.drop.scope) /* wide scopes first: they are few, and searched one by one */
		return (int)b->u.drop.scope - (int)a->u.drop.scope;
	int order = memcmp(a->u.drop.what, b->u.drop.what, 32);
	if (!order)
		order = memcmp(a->u.drop.space, b->u.drop.space, 32);
	if (order)
		return order;
	return a->u.drop.decision > b->u.drop.decision ? -1 : a->u.drop.decision < b->u.drop.decision;
}

static int quarantine_order(const void *left, const void *right)
{
	const struct ledger_record *a = left, *b = right;
	int order = memcmp(a->u.quarantine.key, b->u.quarantine.key, 32);
	if (!order)
		order = memcmp(a->u.quarantine.space, b->u.quarantine.space, 32);
	if (!order)
		order = (int)a->u.quarantine.part - (int)b->u.quarantine.part;
	if (order)
		return order;
	return a->u.quarantine.birth < b->u.quarantine.birth ? -1 : a->u.quarantine.birth > b->u.quarantine.birth;
}

void log_index(struct log *log)
{
	if (log->drops.used)
		qsort(log->drops.records, log->drops.used, sizeof(struct ledger_record), drop_order);
	if (log->quarantine.used)
		qsort(log->quarantine.records, log->quarantine.used, sizeof(struct ledger_record), quarantine_order);
}

int log_dropped(const struct log *log, const uint8_t space[32], const uint8_t tenant[16], const uint8_t key[32],
                uint64_t birth)
{
	uint32_t low = 0, high = log->drops.used;
	for (; low < high && log->drops.records[low].u.drop.scope != LEDGER_DROP_KEY; low++) {
		const struct ledger_record *drop = &log->drops.records[low];
		int hit = drop->u.drop.scope == LEDGER_DROP_TENANT ? !memcmp(drop->u.drop.what, tenant, 16)
		                                                   : !memcmp(drop->u.drop.space, space, 32);
		if (hit && birth <= drop->u.drop.decision)
			return 1;
	}
	while (low < high) { /* the first of this key, which is its newest */
		uint32_t middle = low + (high - low) / 2;
		const struct ledger_record *drop = &log->drops.records[middle];
		int order = memcmp(drop->u.drop.what, key, 32);
		if (!order)
			order = memcmp(drop->u.drop.space, space, 32);
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == log->drops.used)
		return 0;
	const struct ledger_record *drop = &log->drops.records[low];
	return !memcmp(drop->u.drop.what, key, 32) && !memcmp(drop->u.drop.space, space, 32) &&
	       birth <= drop->u.drop.decision;
}

int log_quarantined(const struct log *log, const uint8_t space[32], const uint8_t key[32], uint16_t part,
                    uint64_t birth)
{
	struct ledger_record wanted = {.type = LEDGER_QUARANTINE};
	memcpy(wanted.u.quarantine.key, key, 32);
	memcpy(wanted.u.quarantine.space, space, 32);
	wanted.u.quarantine.part = part;
	wanted.u.quarantine.birth = birth;
	return log->quarantine.used && bsearch(&wanted, log->quarantine.records, log->quarantine.used,
	                                       sizeof(struct ledger_record), quarantine_order);
}
