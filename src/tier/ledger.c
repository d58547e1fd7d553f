/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger's state, its log and its compaction. See ledger.h for the contract and docs/FORMAT.md for the bytes.
 *
 * Damage: a page counts as lost only when both copies are bad. What may have been a drop then is not guessed:
 * doubt_through tells which births a lost drop could have covered.
 */
#include "tier/ledger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "cairn/cairn.h"

enum {
	/* Upper bounds of encoded records, for the snapshot's size. */
	SEGMENT_BYTES = 64,
	DROP_BYTES = 104,
	SESSION_BYTES = 224,
	QUARANTINE_BYTES = 104,
	SPACE_CHUNK = 3072,
	SPACE_OVERHEAD = 64,
	MARK_BYTES = 128,
};

/* Large buffers come lazily zeroed from the allocator and are touched only as far as they are used. */
static uint8_t *page_aligned(void *memory)
{
	return (uint8_t *)BYTES_ROUND_UP((uintptr_t)memory, (uintptr_t)FMT_PAGE);
}

int ledger_open(struct ledger *ledger, struct io *io, const struct fmt_label *label, uint32_t nsegments,
                uint32_t write_version)
{
	memset(ledger, 0, sizeof(*ledger));
	ledger->io = io;
	memcpy(ledger->device_id, label->device_id, 16);
	ledger->offset = label->ledger_offset;
	ledger->area_bytes = label->ledger_bytes;
	ledger->write_version = write_version;
	ledger->nsegments = nsegments;
	ledger->mark.type = LEDGER_MARK;
	ledger->mark.u.mark.next_birth = 1;
	ledger->mark.u.mark.checkpoint_segment = UINT32_MAX;
	ledger->segments = mem_array(nsegments, sizeof(*ledger->segments));
	ledger->gather = mem_aligned(FMT_PAGE, (size_t)LEDGER_BATCH_PAGES * FMT_PAGE);
	ledger->flight = mem_aligned(FMT_PAGE, (size_t)LEDGER_BATCH_PAGES * FMT_PAGE);
	ledger->compact_memory = mem_alloc((size_t)ledger->area_bytes + FMT_PAGE);
	ledger->compact = page_aligned(ledger->compact_memory);
	if (!ledger->segments || !ledger->gather || !ledger->flight || !ledger->compact_memory) {
		ledger_done(ledger);
		return err_set(CAIRN_E_NOMEM, "no memory for the ledger of %u segments", nsegments);
	}
	return 0;
}

void ledger_done(struct ledger *ledger)
{
	for (uint32_t i = 0; i < ledger->nspaces; i++)
		mem_free(ledger->spaces[i].canon);
	mem_free(ledger->spaces);
	mem_free(ledger->segments);
	mem_free(ledger->drops.records);
	mem_free(ledger->sessions.records);
	mem_free(ledger->quarantine.records);
	mem_free(ledger->gather);
	mem_free(ledger->flight);
	mem_free(ledger->compact_memory);
	memset(ledger, 0, sizeof(*ledger));
}

/* ---- state ------------------------------------------------------------------------------------------------------ */

static int table_add(struct ledger_table *table, const struct ledger_record *record)
{
	if (table->used == table->room) {
		uint32_t room = table->room ? table->room * 2 : 64;
		struct ledger_record *grown = mem_grow(table->records, (size_t)room * sizeof(*grown));
		if (!grown)
			return err_set(CAIRN_E_NOMEM, "no memory for %u ledger records", room);
		table->records = grown;
		table->room = room;
	}
	table->records[table->used++] = *record;
	return 0;
}

static void table_remove(struct ledger_table *table, uint32_t index)
{
	table->records[index] = table->records[--table->used];
}

static struct ledger_record *session_find(struct ledger *ledger, const uint8_t id[32])
{
	for (uint32_t i = 0; i < ledger->sessions.used; i++)
		if (!memcmp(ledger->sessions.records[i].u.session.id, id, 32))
			return &ledger->sessions.records[i];
	return NULL;
}

static int apply_space(struct ledger *ledger, const struct ledger_record *record)
{
	struct ledger_space *space = NULL;
	for (uint32_t i = 0; i < ledger->nspaces && !space; i++)
		if (!memcmp(ledger->spaces[i].id, record->u.space.id, 32))
			space = &ledger->spaces[i];
	uint32_t total = record->u.space.total, offset = record->u.space.offset, length = record->u.space.length;
	if (total == 0 || total > 65536 || offset > total || length > total - offset)
		return 0; /* foreign bytes that passed their checksum: not ours to crash on */
	if (space && space->length != total)
		return 0;
	if (!space) {
		if (ledger->nspaces == ledger->spaces_room) {
			uint32_t room = ledger->spaces_room ? ledger->spaces_room * 2 : 16;
			struct ledger_space *grown = mem_grow(ledger->spaces, room * sizeof(*grown));
			if (!grown)
				return err_set(CAIRN_E_NOMEM, "no memory for %u spaces", room);
			ledger->spaces = grown;
			ledger->spaces_room = room;
		}
		uint8_t *canon = mem_alloc(total);
		if (!canon)
			return err_set(CAIRN_E_NOMEM, "no memory for a space of %u bytes", total);
		space = &ledger->spaces[ledger->nspaces++];
		memset(space, 0, sizeof(*space));
		memcpy(space->id, record->u.space.id, 32);
		space->canon = canon;
		space->length = total;
	}
	if (space->canon + offset != record->u.space.bytes)
		memmove(space->canon + offset, record->u.space.bytes, length);
	return 0;
}

static int same_drop(const struct ledger_record *a, const struct ledger_record *b)
{
	return a->u.drop.scope == b->u.drop.scope && !memcmp(a->u.drop.space, b->u.drop.space, 32) &&
	       !memcmp(a->u.drop.what, b->u.drop.what, 32);
}

static void note_decision(struct ledger *ledger, uint64_t decision)
{
	if (decision > ledger->mark.u.mark.last_decision)
		ledger->mark.u.mark.last_decision = decision;
	if (decision >= ledger->mark.u.mark.next_birth)
		ledger->mark.u.mark.next_birth = decision + 1;
}

/* A drop of a space or a tenant takes its sessions too, also one whose save has failed and that nobody knows of. */
static void sessions_drop(struct ledger *ledger, const struct ledger_record *drop)
{
	for (uint32_t i = 0; i < ledger->sessions.used && drop->u.drop.scope != LEDGER_DROP_KEY;) {
		const struct ledger_record *session = &ledger->sessions.records[i];
		int hit = drop->u.drop.scope == LEDGER_DROP_TENANT
		              ? !memcmp(drop->u.drop.what, session->u.session.tenant, 32)
		              : !memcmp(drop->u.drop.space, session->u.session.space, 32);
		if (hit && session->u.session.decision <= drop->u.drop.decision)
			table_remove(&ledger->sessions, i);
		else
			i++;
	}
}

static int apply(struct ledger *ledger, const struct ledger_record *record)
{
	struct ledger_record *session;
	switch (record->type) {
	case LEDGER_SEGMENT:
		if (record->u.segment.segment < ledger->nsegments) {
			struct ledger_segment *segment = &ledger->segments[record->u.segment.segment];
			segment->life = record->u.segment.life;
			segment->salt = record->u.segment.salt;
			segment->start_sequence = record->u.segment.start_sequence;
			segment->state = record->u.segment.state;
			memcpy(segment->tenant, record->u.segment.tenant, 16);
		}
		return 0;
	case LEDGER_DROP:
		note_decision(ledger, record->u.drop.decision);
		sessions_drop(ledger, record);
		if (record->u.drop.scope != LEDGER_DROP_KEY) /* few: merged; key drops are not searched, they may be many */
			for (uint32_t i = 0; i < ledger->drops.used; i++)
				if (same_drop(&ledger->drops.records[i], record)) {
					if (record->u.drop.decision > ledger->drops.records[i].u.drop.decision)
						ledger->drops.records[i] = *record;
					return 0;
				}
		return table_add(&ledger->drops, record);
	case LEDGER_SESSION:
		note_decision(ledger, record->u.session.decision);
		session = session_find(ledger, record->u.session.id);
		if (!session)
			return table_add(&ledger->sessions, record);
		if (record->u.session.decision >= session->u.session.decision)
			*session = *record;
		return 0;
	case LEDGER_FORGET:
		note_decision(ledger, record->u.forget.decision);
		session = session_find(ledger, record->u.forget.id);
		if (session && session->u.session.decision <= record->u.forget.decision)
			table_remove(&ledger->sessions, (uint32_t)(session - ledger->sessions.records));
		return 0;
	case LEDGER_SPACE:
		return apply_space(ledger, record);
	case LEDGER_QUARANTINE:
		return table_add(&ledger->quarantine, record);
	case LEDGER_MARK:
		ledger->mark = *record;
		return 0;
	default:
		return 0; /* a newer version's compatible record */
	}
}

/* ---- size of a snapshot ------------------------------------------------------------------------------------------ */

static uint64_t snapshot_bytes(const struct ledger *ledger)
{
	uint64_t bytes = MARK_BYTES;
	bytes += (uint64_t)ledger->nsegments * SEGMENT_BYTES;
	bytes += (uint64_t)ledger->drops.used * DROP_BYTES;
	bytes += (uint64_t)ledger->sessions.used * SESSION_BYTES;
	bytes += (uint64_t)ledger->quarantine.used * QUARANTINE_BYTES;
	/* Twice: a piece that no longer fits a page leaves less than its size empty. */
	for (uint32_t i = 0; i < ledger->nspaces; i++)
		bytes += ledger->spaces[i].length * 2ull +
		         (uint64_t)SPACE_OVERHEAD * (1 + ledger->spaces[i].length / SPACE_CHUNK);
	return bytes + bytes / 8 + FMT_PAGE; /* records do not cross pages */
}

int ledger_fits(const struct ledger *ledger, const struct ledger_record *record)
{
	uint64_t more = SESSION_BYTES;
	if (record->type == LEDGER_SPACE)
		more = (uint64_t)record->u.space.total * 2 + SPACE_OVERHEAD * (1 + record->u.space.total / SPACE_CHUNK);
	/* Half an area at most, so that the other half takes decisions before the next compaction. */
	return snapshot_bytes(ledger) + more <= ledger->area_bytes / 2;
}

/* ---- appending --------------------------------------------------------------------------------------------------- */

static int gather_add(struct ledger *ledger, const struct ledger_record *record)
{
	if (ledger->gather_pages == LEDGER_BATCH_PAGES)
		return CAIRN_E_FULL;
	uint8_t *page = ledger->gather + (size_t)ledger->gather_pages * FMT_PAGE;
	uint32_t used = ledger_record_add(record, page + LEDGER_HEAD_BYTES, ledger->gather_used);
	if (!used) {
		check(ledger->gather_used > 0);
		if (ledger->gather_pages + 1 == LEDGER_BATCH_PAGES)
			return CAIRN_E_FULL; /* the last page is kept for the mark */
		bytes_set32(page, ledger->gather_used); /* until sealed: how much of the page is used */
		ledger->gather_pages++;
		ledger->gather_used = 0;
		page += FMT_PAGE;
		memset(page, 0, FMT_PAGE);
		used = ledger_record_add(record, page + LEDGER_HEAD_BYTES, 0);
		check(used);
	}
	ledger->gather_used = used;
	return 0;
}

int ledger_add(struct ledger *ledger, const struct ledger_record *record)
{
	/* Room for this record and the mark that ends a batch. */
	if (ledger->gather_pages + 2 >= LEDGER_BATCH_PAGES)
		return CAIRN_E_FULL;
	int error = apply(ledger, record);
	if (error)
		return error;
	if (record->type == LEDGER_MARK)
		return gather_add(ledger, &ledger->mark);
	return gather_add(ledger, record);
}

int ledger_keep(struct ledger *ledger, const struct ledger_record *record)
{
	int error = apply(ledger, record);
	if (!error && !ledger->flight_pages)
		ledger->next_index = UINT32_MAX;
	else if (!error)
		ledger->snapshot_next = 1; /* a batch is on its way: after it */
	return error;
}

int ledger_gathered(const struct ledger *ledger)
{
	return ledger->gather_pages > 0 || ledger->gather_used > 0;
}

static void seal_page(struct ledger *ledger, uint8_t *page, uint64_t epoch, uint32_t index, uint32_t used,
                      uint32_t flags)
{
	struct ledger_page head = {
	    .version = ledger->write_version,
	    .flags = flags,
	    .epoch = epoch,
	    .sequence = ++ledger->sequence,
	    .index = index,
	    .used = used,
	};
	memcpy(head.device_id, ledger->device_id, 16);
	ledger_page_seal(&head, page);
}

struct snapshot {
	struct ledger *ledger;
	uint32_t pages, used;
	uint64_t epoch;
};

static void snapshot_close_page(struct snapshot *snapshot, uint32_t flags)
{
	uint8_t *page = snapshot->ledger->compact + (size_t)snapshot->pages * FMT_PAGE;
	seal_page(snapshot->ledger, page, snapshot->epoch, snapshot->pages, snapshot->used, LEDGER_PAGE_SNAPSHOT | flags);
	snapshot->pages++;
	snapshot->used = 0;
}

static void snapshot_add(struct snapshot *snapshot, const struct ledger_record *record)
{
	for (int again = 0; again < 2; again++) {
		check((uint64_t)(snapshot->pages + 1) * FMT_PAGE <= snapshot->ledger->area_bytes);
		uint8_t *page = snapshot->ledger->compact + (size_t)snapshot->pages * FMT_PAGE;
		if (!snapshot->used)
			memset(page, 0, FMT_PAGE);
		uint32_t used = ledger_record_add(record, page + LEDGER_HEAD_BYTES, snapshot->used);
		if (used) {
			snapshot->used = used;
			return;
		}
		snapshot_close_page(snapshot, 0);
	}
	check(!"a record that fits no page");
}

static void snapshot_space(struct snapshot *snapshot, const struct ledger_space *space)
{
	for (uint32_t offset = 0; offset < space->length; offset += SPACE_CHUNK) {
		struct ledger_record record = {.type = LEDGER_SPACE};
		memcpy(record.u.space.id, space->id, 32);
		record.u.space.offset = offset;
		record.u.space.total = space->length;
		record.u.space.bytes = space->canon + offset;
		record.u.space.length = (uint16_t)(space->length - offset < SPACE_CHUNK ? space->length - offset : SPACE_CHUNK);
		snapshot_add(snapshot, &record);
	}
}

/* Writes the whole state into ledger->compact; returns its pages. */
static uint32_t snapshot_build(struct ledger *ledger, uint64_t epoch)
{
	struct snapshot snapshot = {.ledger = ledger, .epoch = epoch};
	ledger_forget_covered(ledger);
	for (uint32_t i = 0; i < ledger->nsegments; i++) {
		const struct ledger_segment *segment = &ledger->segments[i];
		if (segment->life == 0)
			continue; /* never used */
		struct ledger_record record = {.type = LEDGER_SEGMENT};
		record.u.segment.segment = i;
		record.u.segment.state = segment->state;
		record.u.segment.life = segment->life;
		record.u.segment.salt = segment->salt;
		record.u.segment.start_sequence = segment->start_sequence;
		memcpy(record.u.segment.tenant, segment->tenant, 16);
		snapshot_add(&snapshot, &record);
	}
	for (uint32_t i = 0; i < ledger->nspaces; i++)
		snapshot_space(&snapshot, &ledger->spaces[i]);
	const struct ledger_table *tables[] = {&ledger->drops, &ledger->sessions, &ledger->quarantine};
	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
		for (uint32_t i = 0; i < tables[t]->used; i++)
			snapshot_add(&snapshot, &tables[t]->records[i]);
	snapshot_add(&snapshot, &ledger->mark);
	snapshot_close_page(&snapshot, LEDGER_PAGE_SNAPSHOT_END);
	return snapshot.pages;
}

static uint64_t area_offset(const struct ledger *ledger, uint32_t area, uint32_t copy)
{
	return ledger->offset + (uint64_t)(area * 2 + copy) * ledger->area_bytes;
}

void ledger_seal(struct ledger *ledger, struct ledger_batch *ret_batch)
{
	check(ledger->flight_pages == 0);
	check(ledger_gathered(ledger) || ledger->epoch == 0 || ledger->next_index == UINT32_MAX);
	/* Each batch ends with the counters, so that a hole before it can be bounded. */
	int error = gather_add(ledger, &ledger->mark);
	check(!error);
	uint32_t pages = ledger->gather_pages + 1;
	uint32_t area = ledger->area, index = ledger->next_index;
	if (index == UINT32_MAX || ((uint64_t)index + pages) * FMT_PAGE > ledger->area_bytes) {
		area = ledger->area ^ 1;
		index = 0;
		ledger->epoch++;
		pages = snapshot_build(ledger, ledger->epoch);
		ret_batch->bytes = ledger->compact;
	} else {
		uint8_t *gathered = ledger->gather;
		ledger->gather = ledger->flight;
		ledger->flight = gathered;
		for (uint32_t i = 0; i < pages; i++) {
			uint8_t *page = ledger->flight + (size_t)i * FMT_PAGE;
			uint32_t used = i + 1 < pages ? bytes_get32(page) : ledger->gather_used;
			seal_page(ledger, page, ledger->epoch, index + i, used, LEDGER_BATCH(i, pages));
		}
		ret_batch->bytes = ledger->flight;
	}
	ledger->gather_pages = ledger->gather_used = 0;
	memset(ledger->gather, 0, FMT_PAGE);
	ledger->area = area;
	ledger->next_index = index;
	ledger->flight_pages = pages;
	ret_batch->length = pages * FMT_PAGE;
	for (uint32_t copy = 0; copy < 2; copy++)
		ret_batch->offset[copy] = area_offset(ledger, area, copy) + (uint64_t)index * FMT_PAGE;
}

void ledger_written(struct ledger *ledger)
{
	check(ledger->flight_pages > 0);
	ledger->next_index = ledger->snapshot_next ? UINT32_MAX : ledger->next_index + ledger->flight_pages;
	ledger->snapshot_next = 0;
	ledger->flight_pages = 0;
	ledger->durable_sequence = ledger->sequence;
}

void ledger_failed(struct ledger *ledger)
{
	check(ledger->flight_pages > 0);
	/* What lies there now is unknown. A failed snapshot must not be taken for the newest area when the other still is:
	 * the next one overwrites it, since `area` is turned back. */
	if (ledger->next_index == 0)
		ledger->area ^= 1;
	ledger->next_index = UINT32_MAX;
	ledger->flight_pages = 0;
}

int ledger_commit(struct ledger *ledger)
{
	if (!ledger_gathered(ledger) && ledger->epoch != 0 && ledger->next_index != UINT32_MAX)
		return 0;
	struct ledger_batch batch;
	ledger_seal(ledger, &batch);
	int error = 0;
	for (uint32_t copy = 0; copy < 2 && !error; copy++)
		error = ledger->io->ops->pwrite(ledger->io, batch.bytes, batch.length, batch.offset[copy]);
	if (!error)
		error = ledger->io->ops->sync(ledger->io);
	if (error) {
		ledger_failed(ledger);
		return error;
	}
	ledger_written(ledger);
	return 0;
}

int ledger_format(struct ledger *ledger)
{
	/* Area B takes the first snapshot (area is turned). A new file reads as zeros. */
	ledger->next_index = UINT32_MAX;
	return ledger_commit(ledger);
}

/* ---- replay ------------------------------------------------------------------------------------------------------ */

enum { REPLAY_CHUNK = 64 }; /* pages read at once */

struct replay {
	struct ledger *ledger;
	uint32_t area;
	uint8_t *memory[2], *copy[2]; /* the area's two copies, page-aligned; read as far as they are looked at */
	uint8_t *loaded;              /* per chunk */
	uint64_t epoch;
	uint32_t pages;
	uint64_t read_bytes;
	int live; /* its snapshot was finished: all of it is there, or a decision after it */
};

static const uint8_t *replay_copy(struct replay *replay, uint32_t index, int copy)
{
	struct ledger *ledger = replay->ledger;
	uint32_t chunk = index / REPLAY_CHUNK;
	if (!replay->loaded[chunk]) {
		uint32_t first = chunk * REPLAY_CHUNK;
		uint32_t n = replay->pages - first < REPLAY_CHUNK ? replay->pages - first : REPLAY_CHUNK;
		replay->loaded[chunk] = 1;
		for (uint32_t c = 0; c < 2; c++) {
			uint8_t *to = replay->copy[c] + (size_t)first * FMT_PAGE;
			uint64_t offset = area_offset(ledger, replay->area, c) + (uint64_t)first * FMT_PAGE;
			replay->read_bytes += (uint64_t)n * FMT_PAGE;
			if (!ledger->io->ops->pread(ledger->io, to, (uint64_t)n * FMT_PAGE, offset))
				continue;
			memset(to, 0xff, (size_t)n * FMT_PAGE); /* page by page: one bad sector must not hide the rest */
			for (uint32_t i = 0; i < n; i++)
				if (ledger->io->ops->pread(ledger->io, to + (size_t)i * FMT_PAGE, FMT_PAGE,
				                           offset + (uint64_t)i * FMT_PAGE))
					memset(to + (size_t)i * FMT_PAGE, 0xff, FMT_PAGE);
		}
	}
	return replay->copy[copy] + (size_t)index * FMT_PAGE;
}

static int replay_valid(const struct replay *replay, const uint8_t *page, uint32_t index, struct ledger_page *ret_head)
{
	return ledger_page_open(page, ret_head) == FMT_OK && ret_head->index == index &&
	       !memcmp(ret_head->device_id, replay->ledger->device_id, 16);
}

static const uint8_t *replay_page(struct replay *replay, uint32_t index, struct ledger_page *ret_head)
{
	for (int copy = 0; copy < 2; copy++) {
		const uint8_t *page = replay_copy(replay, index, copy);
		if (replay_valid(replay, page, index, ret_head) && (!replay->epoch || ret_head->epoch == replay->epoch))
			return page;
	}
	return NULL;
}

/* Whether a page was surely not written in this epoch: in both copies it is blank, or whole and of an older one. */
static int replay_untouched(struct replay *replay, uint32_t index)
{
	for (int copy = 0; copy < 2; copy++) {
		const uint8_t *page = replay_copy(replay, index, copy);
		struct ledger_page head;
		uint32_t i = 0;
		while (i < FMT_PAGE && !page[i])
			i++;
		if (i < FMT_PAGE && !(replay_valid(replay, page, index, &head) && head.epoch < replay->epoch))
			return 0;
	}
	return 1;
}

static void replay_highest_epoch(struct replay *replay, uint64_t *epoch)
{
	for (uint32_t i = 0; i < replay->pages; i++)
		for (int copy = 0; copy < 2; copy++) {
			struct ledger_page head;
			if (replay_valid(replay, replay_copy(replay, i, copy), i, &head) && head.epoch > *epoch)
				*epoch = head.epoch;
		}
}

static void replay_find_epoch(struct replay *replay)
{
	struct ledger_page head;
	replay->epoch = 0;
	/* Page 0 names it. Where it is bad in both copies the newest that any page names counts. */
	uint64_t newest = replay_page(replay, 0, &head) ? head.epoch : 0;
	for (uint32_t i = 1; !newest && i < replay->pages; i++)
		for (uint32_t j = i; j < replay->pages; j++)
			if (replay_page(replay, j, &head) && head.epoch > newest)
				newest = head.epoch;
	replay->epoch = newest;
	replay->live = 0;
	/* Whole from page 0 to its end; power loss can leave the end and lose the middle. A decision behind it proves that
	 * it had been flushed, whatever was damaged since. */
	uint32_t whole = 0;
	for (uint32_t i = 0; newest && i < replay->pages && !replay->live; i++) {
		if (!replay_page(replay, i, &head))
			continue;
		if (!(head.flags & LEDGER_PAGE_SNAPSHOT))
			replay->live = 1;
		whole += whole == i;
		if ((head.flags & LEDGER_PAGE_SNAPSHOT_END) && whole == i + 1)
			replay->live = 1;
	}
}

static int replay_records(struct ledger *ledger, const uint8_t *page, const struct ledger_page *head, int *ret_mark)
{
	uint32_t at = 0;
	struct ledger_record record;
	int more;
	*ret_mark = 0;
	while ((more = ledger_record_next(page + LEDGER_HEAD_BYTES, head->used, &at, &record)) == 1) {
		*ret_mark |= record.type == LEDGER_MARK;
		int error = apply(ledger, &record);
		if (error)
			return error;
	}
	return 0;
}

/* Pages [from, to) are missing and page `to` is not: is that the last batch, torn by a crash before its flush? It was
 * never acknowledged then. Whatever lies behind a batch proves that it had been flushed. */
static int replay_torn(struct replay *replay, uint32_t from, uint32_t to, const struct ledger_page *head)
{
	if (head->flags & LEDGER_PAGE_SNAPSHOT)
		return 0;
	uint32_t position = LEDGER_BATCH_POSITION(head->flags), count = LEDGER_BATCH_COUNT(head->flags);
	if (position >= count || position > to || from < to - position)
		return 0;
	for (uint32_t i = to - position + count; i < replay->pages; i++) {
		struct ledger_page later;
		if (replay_page(replay, i, &later))
			return 0;
	}
	return 1;
}

static int replay_area(struct replay *replay, uint32_t area)
{
	struct ledger *ledger = replay->ledger;
	uint32_t missing = 0;
	int doubt = 0, torn = 0;
	ledger->area = area;
	ledger->next_index = 0;
	for (uint32_t i = 0; i < replay->pages; i++) {
		struct ledger_page head;
		const uint8_t *page = replay_page(replay, i, &head);
		if (!page && !missing && replay_untouched(replay, i))
			break;
		if (!page) {
			missing++;
			continue;
		}
		if (missing && replay_torn(replay, i - missing, i, &head)) {
			torn = 1;
			break;
		}
		if (missing) { /* there is a later page: what is missing was not the end */
			ledger->holes += missing;
			missing = 0;
			doubt = 1;
		}
		uint64_t before = ledger->mark.u.mark.last_decision;
		ledger->mark.u.mark.last_decision = 0;
		int mark, error = replay_records(ledger, page, &head, &mark);
		if (error)
			return error;
		uint64_t after = ledger->mark.u.mark.last_decision;
		if (after < before)
			ledger->mark.u.mark.last_decision = before;
		/* The counters that end the batch or the snapshot bound the drops that the hole lost; the records before them
		 * need not be in the order of their decisions. */
		if (doubt && mark) {
			if (after > ledger->doubt_through)
				ledger->doubt_through = after;
			doubt = 0;
		}
		ledger->next_index = i + 1;
		if (head.sequence > ledger->sequence)
			ledger->sequence = head.sequence;
	}
	if (doubt)
		ledger->doubt_through = UINT64_MAX;
	if (torn)
		ledger->next_index = UINT32_MAX; /* a snapshot into the other area comes next */
	return 0;
}

int ledger_replay(struct ledger *ledger, uint64_t *ret_read)
{
	struct replay replay[2];
	int error = 0;
	memset(replay, 0, sizeof(replay));
	for (uint32_t area = 0; area < 2; area++) {
		struct replay *each = &replay[area];
		each->ledger = ledger;
		each->area = area;
		each->pages = ledger->area_bytes / FMT_PAGE;
		each->loaded = mem_array(each->pages / REPLAY_CHUNK + 1, 1);
		for (int copy = 0; copy < 2 && !error; copy++) {
			each->memory[copy] = mem_alloc((size_t)ledger->area_bytes + FMT_PAGE);
			each->copy[copy] = page_aligned(each->memory[copy]);
			if (!each->memory[copy] || !each->loaded)
				error = err_set(CAIRN_E_NOMEM, "no memory to read the ledger");
		}
		if (!error)
			replay_find_epoch(each);
	}
	if (!error) {
		int newest = replay[1].epoch > replay[0].epoch;
		int pick = replay[newest].live ? newest : newest ^ 1;
		uint64_t epoch = replay[newest].epoch;
		if (!replay[pick].live) { /* nothing but fragments: read what there is, doubt everything */
			pick = newest;
			ledger->doubt_through = UINT64_MAX;
			ledger->holes++;
		}
		error = replay_area(&replay[pick], (uint32_t)pick);
		ledger->epoch = epoch > ledger->epoch ? epoch : ledger->epoch;
		/* A snapshot that a crash cut short may have left pages anywhere: no later one may have its epoch. */
		for (int area = 0; area < 2 && !ledger->mark.u.mark.clean; area++)
			replay_highest_epoch(&replay[area], &ledger->epoch);
		/* Always begin anew in the other area: what was read may be what a failed flush left behind, which can be seen
		 * and yet never become durable. Behind such a page the next batch would make a hole of it. */
		ledger->next_index = UINT32_MAX;
		ledger->durable_sequence = ledger->sequence;
	}
	for (int area = 0; area < 2; area++) {
		*ret_read += replay[area].read_bytes;
		mem_free(replay[area].loaded);
		mem_free(replay[area].memory[0]);
		mem_free(replay[area].memory[1]);
	}
	return error;
}

/* ---- drops and quarantine ---------------------------------------------------------------------------------------- */

static int drop_order(const void *left, const void *right)
{
	const struct ledger_record *a = left, *b = right;
	if (a->u.drop.scope != b->u.drop.scope) /* wide scopes first: they are searched one by one */
		return (int)b->u.drop.scope - (int)a->u.drop.scope;
	int order = memcmp(a->u.drop.what, b->u.drop.what, 32);
	if (order)
		return order;
	order = memcmp(a->u.drop.space, b->u.drop.space, 32);
	if (order)
		return order;
	/* of one key the newest drop first */
	return a->u.drop.decision > b->u.drop.decision ? -1 : a->u.drop.decision < b->u.drop.decision;
}

int ledger_drop_is_doubt(const struct ledger_record *drop)
{
	static const uint8_t none[16];
	return drop->u.drop.scope == LEDGER_DROP_TENANT && !memcmp(drop->u.drop.what + 16, none, 16);
}

void ledger_index_drops(struct ledger *ledger)
{
	if (ledger->drops.used)
		qsort(ledger->drops.records, ledger->drops.used, sizeof(struct ledger_record), drop_order);
}

int ledger_dropped(const struct ledger *ledger, const uint8_t space[32], const uint8_t tenant[16],
                   const uint8_t key[32], uint64_t birth)
{
	uint32_t low = 0, high = ledger->drops.used;
	for (; low < high && ledger->drops.records[low].u.drop.scope != LEDGER_DROP_KEY; low++) {
		const struct ledger_record *drop = &ledger->drops.records[low];
		int hit = drop->u.drop.scope == LEDGER_DROP_TENANT ? !memcmp(drop->u.drop.what, tenant, 16)
		                                                   : !memcmp(drop->u.drop.space, space, 32);
		if (hit && birth <= drop->u.drop.decision)
			return 1;
	}
	while (low < high) { /* first drop of this key */
		uint32_t middle = low + (high - low) / 2;
		const struct ledger_record *drop = &ledger->drops.records[middle];
		int order = memcmp(drop->u.drop.what, key, 32);
		if (!order)
			order = memcmp(drop->u.drop.space, space, 32);
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == ledger->drops.used)
		return 0;
	const struct ledger_record *drop = &ledger->drops.records[low];
	return !memcmp(drop->u.drop.what, key, 32) && !memcmp(drop->u.drop.space, space, 32) &&
	       birth <= drop->u.drop.decision;
}

int ledger_quarantined(const struct ledger *ledger, const uint8_t space[32], const uint8_t key[32], uint16_t part,
                       uint64_t birth)
{
	for (uint32_t i = 0; i < ledger->quarantine.used; i++) {
		const struct ledger_record *q = &ledger->quarantine.records[i];
		if (q->u.quarantine.birth == birth && q->u.quarantine.part == part &&
		    !memcmp(q->u.quarantine.key, key, 32) && !memcmp(q->u.quarantine.space, space, 32))
			return 1;
	}
	return 0;
}

void ledger_forget_covered(struct ledger *ledger)
{
	/* A part that a drop covers can only lie in a segment whose life began before the drop. */
	uint64_t oldest = UINT64_MAX;
	for (uint32_t i = 0; i < ledger->nsegments; i++)
		if (ledger->segments[i].state == LEDGER_OPEN || ledger->segments[i].state == LEDGER_SEALED)
			if (ledger->segments[i].start_sequence < oldest)
				oldest = ledger->segments[i].start_sequence;
	for (uint32_t i = 0; i < ledger->drops.used;) {
		const struct ledger_record *drop = &ledger->drops.records[i];
		if (drop->u.drop.sequence >= oldest) {
			i++;
			continue;
		}
		if (drop->u.drop.decision > ledger->mark.u.mark.dropped_through && !ledger_drop_is_doubt(drop))
			ledger->mark.u.mark.dropped_through = drop->u.drop.decision;
		table_remove(&ledger->drops, i);
	}
	for (uint32_t i = 0; i < ledger->quarantine.used;)
		if (ledger->quarantine.records[i].u.quarantine.sequence < oldest)
			table_remove(&ledger->quarantine, i);
		else
			i++;
}
