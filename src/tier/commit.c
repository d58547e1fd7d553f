/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The write path of a flash device: commit groups, ledger batches, footers, and the one flush that covers them.
 *
 * A group goes IDLE -> WRITING -> WRITTEN (its parts are visible) -> FLUSHING -> durable, IDLE again. Whatever was
 * WRITTEN
 * when a flush was submitted is durable when that flush succeeds; when it fails all of it is withdrawn, as is what is
 * still being written, and the segments concerned are closed with a footer that names their good groups only.
 *
 * Threads: the loop's. Memory: none allocated.
 * Invariant: nothing is written into a segment before its new life is durable in the ledger.
 */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/digest.h"
#include "base/err.h"
#include "tier/flash_in.h"

#define SEAL_AGAIN_NS 100000000ull

/* ---- segments being written -------------------------------------------------------------------------------------- */

struct open_segment *commit_open_find(struct flash *flash, uint32_t segment)
{
	for (int i = 0; i < FLASH_OPEN; i++)
		if (flash->open[i].segment == segment)
			return &flash->open[i];
	return NULL;
}

int commit_segment_record(struct flash *flash, uint32_t segment, uint8_t state)
{
	const struct ledger_segment *now = &flash->ledger.segments[segment];
	struct ledger_record record = {.type = LEDGER_SEGMENT};
	record.u.segment.segment = segment;
	record.u.segment.state = state;
	record.u.segment.life = now->life;
	record.u.segment.salt = now->salt;
	record.u.segment.start_sequence = now->start_sequence;
	memcpy(record.u.segment.tenant, now->tenant, 16);
	return ledger_add(&flash->ledger, &record);
}

void commit_close_segment(struct flash *flash, uint32_t open)
{
	struct open_segment *closing = &flash->open[open];
	if (flash->segments[closing->segment].state == SEGMENT_OPEN)
		flash_segment_set(flash, closing->segment, SEGMENT_CLOSING);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static void group_withdraw(struct group *group, uint32_t reason)
{
	struct flash *flash = group->flash;
	uint32_t segment = flash->open[group->open].segment;
	for (uint32_t i = 0; i < group->head.nentries; i++) {
		const struct fmt_entry *entry = &group->entries[i];
		if (group->reqs[i]) {
			flash_finish(group->reqs[i], CAIRN_E_IO);
			group->reqs[i] = NULL;
		} else if (!group->unwanted[i]) {
			flash->host->removed(flash->host->arg, flash->device, entry, flash_page(flash, segment, entry->page),
			                     reason);
		}
	}
	struct open_segment *open = &flash->open[group->open];
	open->inflight--;
	open->reserved -= group->head.nentries;
	open->withdrawn = 1;
	flash->healing = 1;
	commit_close_segment(flash, group->open);
	group->state = GROUP_IDLE;
}

static void group_written(struct io_req *io)
{
	struct group *group = io->owner;
	struct flash *flash = group->flash;
	uint32_t segment = flash->open[group->open].segment;
	uint64_t took = flash_now(flash) - group->started_ns;
	if (io->result || group->failed) {
		int32_t status = io->result ? err_from_errno(-io->result) : CAIRN_E_IO;
		status = status == CAIRN_E_FULL ? status : CAIRN_E_IO;
		if (io->result)
			flash_device_error(flash, -io->result);
		for (uint32_t i = 0; i < group->head.nentries; i++) {
			flash_finish(group->reqs[i], status);
			group->reqs[i] = NULL;
			group->unwanted[i] = 1;
		}
		for (int i = 0; i < FLASH_GROUPS; i++) { /* those behind it in its segment cannot be found without it */
			struct group *later = &flash->groups[i];
			if (later->open != group->open || later->head.sequence <= group->head.sequence)
				continue;
			if (later->state == GROUP_WRITING)
				later->failed = 1;
			else if (later->state == GROUP_WRITTEN)
				group_withdraw(later, CAIRN_WHY_DEVICE);
		}
		group_withdraw(group, CAIRN_WHY_DEVICE);
		return;
	}
	for (uint32_t i = 0; i < group->head.nentries; i++) {
		const struct fmt_entry *entry = &group->entries[i];
		struct tier_req *req = group->reqs[i];
		if (!(entry->flags & FMT_PART_MOVED))
			group->unwanted[i] = !flash->host->stored(flash->host->arg, flash->device, entry,
			                                          flash_page(flash, segment, entry->page));
		else
			group->unwanted[i] = 0;
		if (!(entry->flags & FMT_PART_MOVED)) {
			group->reqs[i] = NULL;
			flash_finish(req, 0);
		}
	}
	int refused = flash_refused(flash);
	flash->failures = 0;
	group->state = GROUP_WRITTEN;
	if (!flash->unflushed_bytes)
		flash->unflushed_since_ns = flash_now(flash);
	flash->unflushed_bytes += group->bytes;
	evict_budget_earn(&flash->carry_budget, group->bytes);
	pthread_mutex_lock(&flash->lock);
	flash->stat.state = refused != 0;
	flash->stat.written_bytes += group->bytes;
	flash->stat.groups++;
	double rate = took ? (double)group->bytes / (double)took : 0; /* bytes a ns are GB a s */
	flash->stat.write_gb_s = flash->stat.write_gb_s > 0 ? flash->stat.write_gb_s * 0.9 + rate * 0.1 : rate;
	pthread_mutex_unlock(&flash->lock);
}

static struct group *group_idle(struct flash *flash)
{
	for (int i = 0; i < FLASH_GROUPS; i++)
		if (flash->groups[i].state == GROUP_IDLE)
			return &flash->groups[i];
	return NULL;
}

static void write_take(struct lane *lane, struct tier_req *req)
{
	if (lane)
		lane_take(lane, req);
	else
		list_remove(&req->link);
}

/* Takes requests of one flow of a lane (NULL: what is carried over) into the group; returns the payload pages. */
static uint32_t group_fill(struct group *group, struct open_segment *open, struct lane *lane, uint32_t flow)
{
	struct flash *flash = group->flash;
	const struct list *queue = lane ? &lane->flows[flow] : &flash->carried;
	uint32_t n = 0, payload = 0;
	group->ticket_low = UINT64_MAX;
	group->ticket_high = 0;
	while (!list_empty(queue) && n < FLASH_GROUP_PARTS) {
		struct tier_req *req = LIST_OF(queue->next, struct tier_req, link);
		uint32_t pages = flash_pages_of(req->entry.stored_length);
		if (memcmp(req->tenant, open->tenant, 16))
			break;
		if (n && (uint64_t)(payload + pages) * FMT_PAGE > FLASH_GROUP_BYTES)
			break;
		if (!(req->entry.flags & FMT_PART_MOVED) && room_carry_only(flash))
			break;
		if (room_pages_left(flash, open, n + 1) < segment_index_pages(n + 1) + payload + pages)
			break;
		write_take(lane, req);
		group->reqs[n] = req;
		group->entries[n] = req->entry;
		group->unwanted[n] = 0;
		group->ticket_low = req->ticket < group->ticket_low ? req->ticket : group->ticket_low;
		group->ticket_high = req->ticket > group->ticket_high ? req->ticket : group->ticket_high;
		payload += pages;
		n++;
	}
	group->head.nentries = n;
	return payload;
}

static void group_submit(struct group *group, struct open_segment *open, uint32_t payload)
{
	struct flash *flash = group->flash;
	uint32_t n = group->head.nentries, index_pages = segment_index_pages(n);
	const struct ledger_segment *life = &flash->ledger.segments[open->segment];
	check(index_pages <= FLASH_GROUP_PAGES);
	group->head = (struct fmt_group){
	    .version = flash->write_version,
	    .segment = open->segment,
	    .life = life->life,
	    .sequence = ++flash->sequence,
	    .flushed_through = flash->flushed_through,
	    .ledger_sequence = flash->ledger.durable_sequence,
	    .first_page = open->next_page,
	    .index_pages = index_pages,
	    .total_pages = index_pages + payload,
	    .nentries = n,
	};
	memcpy(group->head.tenant, open->tenant, 16);
	struct io_req *io = &group->io;
	io->vec[0] = (struct io_vec){group->index, index_pages * FMT_PAGE};
	uint32_t page = open->next_page + index_pages;
	for (uint32_t i = 0; i < n; i++) {
		struct tier_req *req = group->reqs[i];
		uint32_t length = req->entry.stored_length, pages = flash_pages_of(length);
		memset((uint8_t *)req->bytes + length, 0, (size_t)pages * FMT_PAGE - length);
		group->entries[i].page = page;
		io->vec[i + 1] = (struct io_vec){req->bytes, pages * FMT_PAGE};
		page += pages;
	}
	segment_group_encode(&group->head, group->entries, life->salt, group->index);
	io->op = IO_WRITE;
	io->background = group->reqs[0]->background;
	io->offset = flash_offset(flash, open->segment, open->next_page);
	io->nvec = n + 1;
	io->work = NULL;
	io->done = group_written;
	io->owner = group;
	group->bytes = (uint64_t)group->head.total_pages * FMT_PAGE;
	group->state = GROUP_WRITING;
	group->failed = 0;
	group->started_ns = flash_now(flash);
	group->open = (uint32_t)(open - flash->open);
	open->next_page = page;
	open->inflight++;
	open->reserved += n;
	open->used_at = group->head.sequence;
	if (!open->first_sequence)
		open->first_sequence = group->head.sequence;
	open->last_sequence = group->head.sequence;
	flash->segments[open->segment].used_pages = page;
	flash->io->ops->submit(flash->io, io);
}

static void fail_all(struct list *queue, int32_t status)
{
	struct list *node;
	while ((node = list_pop_front(queue)))
		flash_finish(LIST_OF(node, struct tier_req, link), status);
}

static void fail_writes(struct flash *flash, int32_t status)
{
	fail_all(&flash->carried, status);
	for (struct tier_req *req; (req = lane_drain(&flash->writes));)
		flash_finish(req, status);
	for (struct tier_req *req; (req = lane_drain(&flash->writes_background));)
		flash_finish(req, CAIRN_E_IO);
}

/* What is written next, and where: what is carried over, then the tenants by their shares. One that waits for room does
 * not hold up those who have some. NULL: nothing can go now; *ret_open NULL: it has no place. */
static struct tier_req *write_next(struct flash *flash, struct lane **ret_lane, struct open_segment **ret_open)
{
	enum room_why why;
	uint64_t without = 0;
	int another = 1;
	if (!list_empty(&flash->carried)) {
		struct tier_req *req = LIST_OF(flash->carried.next, struct tier_req, link);
		*ret_lane = NULL;
		*ret_open = room_find(flash, req, 1, &why);
		return *ret_open || why == ROOM_NONE ? req : NULL;
	}
	*ret_lane = &flash->writes;
	if (lane_empty(&flash->writes)) {
		*ret_lane = &flash->writes_background;
		/* Reads that are waited for go first, but for what a flush is waited for. */
		if (!lane_empty(&flash->reads_waiting) && list_empty(&flash->syncs) && !flash->closing)
			return NULL;
	}
	for (struct tier_req *req; (req = lane_first(*ret_lane, without)); without |= 1ull << req->flow) {
		*ret_open = room_find(flash, req, another, &why);
		if (*ret_open || why == ROOM_NONE)
			return req;
		another &= why == ROOM_OWN;
	}
	return NULL;
}

int commit_groups(struct flash *flash)
{
	int did = 0;
	if (flash->healing && flash_writes_wait(flash) && flash_refused(flash)) {
		fail_writes(flash, CAIRN_E_IO);
		return 1;
	}
	while (!flash->healing && flash_writes_wait(flash)) {
		struct lane *lane;
		struct open_segment *open;
		if (flash_refused(flash)) {
			fail_writes(flash, err_from_errno(flash->last_error) == CAIRN_E_FULL ? CAIRN_E_FULL : CAIRN_E_IO);
			return 1;
		}
		struct group *group = group_idle(flash);
		struct tier_req *first = group ? write_next(flash, &lane, &open) : NULL;
		if (!first)
			break;
		if (!open) {
			write_take(lane, first);
			flash_finish(first, clean_hopeless(flash, first->tenant) ? CAIRN_E_QUOTA : CAIRN_E_FULL);
			did = 1;
			continue;
		}
		if (!(first->entry.flags & FMT_PART_MOVED))
			flash->kept_rounds = 0;
		uint32_t payload = group_fill(group, open, lane, first->flow);
		check(group->head.nentries > 0);
		group_submit(group, open, payload);
		did = 1;
		/* The next segment is opened before this one is full, so that its ledger record is not waited for. */
		if (room_pages_left(flash, open, 0) < flash->segment_pages / 4) {
			int others = 0;
			for (int i = 0; i < FLASH_OPEN; i++)
				others += &flash->open[i] != open && flash->open[i].segment != UINT32_MAX &&
				          !memcmp(flash->open[i].tenant, open->tenant, 16) &&
				          flash->segments[flash->open[i].segment].state <= SEGMENT_OPEN;
			if (!others && clean_free_segments(flash) > 2 &&
			    flash->host->may_own(flash->host->arg, flash->device, open->tenant))
				(void)room_open(flash, open->tenant);
		}
	}
	return did;
}

/* ---- ledger ------------------------------------------------------------------------------------------------------ */

static void ledger_io_done(struct io_req *io)
{
	struct flash *flash = io->owner;
	if (io->result)
		flash->ledger_error = io->result;
	if (--flash->ledger_writes)
		return;
	if (!flash->ledger_error) {
		flash->ledger_state = LEDGER_WRITTEN;
		return;
	}
	flash_device_error(flash, -flash->ledger_error);
	ledger_failed(&flash->ledger);
	flash->ledger_state = LEDGER_IDLE;
	fail_all(&flash->deciding, CAIRN_E_IO);
}

/* Whether something that a drop covers may still get a sequence of its own: a write submitted before it, a part being
 * carried over. The drop takes its place in the log behind them, so that ledger_forget_covered can tell when it may
 * go. */
static int writes_before(const struct flash *flash, uint64_t ticket)
{
	return !list_empty(&flash->carried) || lane_oldest(&flash->writes) < ticket ||
	       lane_oldest(&flash->writes_background) < ticket;
}

int commit_decisions(struct flash *flash)
{
	int did = 0;
	while (!list_empty(&flash->decides)) {
		struct tier_req *req = LIST_OF(flash->decides.next, struct tier_req, link);
		int32_t status = 0;
		if (req->record.type == LEDGER_DROP && writes_before(flash, req->ticket))
			break;
		if (req->record.type == LEDGER_DROP)
			req->record.u.drop.sequence = flash->sequence;
		if (req->record.type == LEDGER_QUARANTINE)
			req->record.u.quarantine.sequence = flash->sequence;
		if (flash_refused(flash)) {
			/* Kept all the same, for the next snapshot: a ledger that took a later decision must have all before it. */
			status =
				ledger_fits(&flash->ledger, &req->record) ? ledger_keep(&flash->ledger, &req->record) : CAIRN_E_FULL;
			status = status ? status : CAIRN_E_IO;
		} else if (!ledger_fits(&flash->ledger, &req->record) && req->record.type != LEDGER_FORGET) {
			ledger_forget_covered(&flash->ledger); /* what the next snapshot will not hold is no reason to refuse */
			status = ledger_fits(&flash->ledger, &req->record) ? 0 : CAIRN_E_FULL;
		}
		if (!status) {
			int error = ledger_add(&flash->ledger, &req->record);
			if (error == CAIRN_E_FULL)
				break; /* the batch is full: after the next one */
			status = error;
		}
		list_remove(&req->link);
		did = 1;
		if (status)
			flash_finish(req, status);
		else
			list_push_back(&flash->gathered, &req->link);
	}
	return did;
}

int commit_ledger(struct flash *flash)
{
	if (flash->ledger_state != LEDGER_IDLE)
		return 0;
	int again = flash->ledger.next_index == UINT32_MAX && !flash_refused(flash); /* the last batch failed */
	if (!ledger_gathered(&flash->ledger) && !again)
		return 0;
	struct ledger_batch batch;
	ledger_seal(&flash->ledger, &batch);
	flash->ledger_batch++;
	struct list *node;
	while ((node = list_pop_front(&flash->gathered)))
		list_push_back(&flash->deciding, node);
	flash->ledger_state = LEDGER_WRITING;
	flash->ledger_error = 0;
	flash->ledger_writes = 2;
	for (int copy = 0; copy < 2; copy++) {
		struct io_req *io = &flash->ledger_io[copy];
		io->op = IO_WRITE;
		io->background = 0;
		io->offset = batch.offset[copy];
		/* The same bytes twice; const is dropped for a write. */
		io->vec[0] = (struct io_vec){(void *)(uintptr_t)batch.bytes, batch.length};
		io->nvec = 1;
		io->work = NULL;
		io->done = ledger_io_done;
		io->owner = flash;
		flash->io->ops->submit(flash->io, io);
	}
	return 1;
}

static void ledger_durable(struct flash *flash)
{
	ledger_written(&flash->ledger);
	flash->ledger_state = LEDGER_IDLE;
	for (int i = 0; i < FLASH_OPEN; i++) {
		struct open_segment *open = &flash->open[i];
		if (open->segment != UINT32_MAX && flash->segments[open->segment].state == SEGMENT_OPENING &&
		    open->ledger_batch < flash->ledger_batch)
			flash_segment_set(flash, open->segment, SEGMENT_OPEN);
	}
	struct list *node;
	while ((node = list_pop_front(&flash->deciding)))
		flash_finish(LIST_OF(node, struct tier_req, link), 0);
}

/* ---- footers ----------------------------------------------------------------------------------------------------- */

static void open_release(struct open_segment *open)
{
	open->segment = UINT32_MAX;
}

static void seal_end(struct flash *flash, int footer)
{
	struct open_segment *open = &flash->open[flash->seal_open];
	struct segment *segment = &flash->segments[open->segment];
	flash_segment_set(flash, open->segment, SEGMENT_SEALED);
	segment->footer = (uint8_t)footer;
	flash->nothing_to_clean = 0;
	if (!memcmp(flash->over_tenant, open->tenant, 16))
		flash->over_until_ns = 0; /* there is something of its own that may go */
	if (footer) /* where the ledger has no room now it stays OPEN there: reopen hops through its groups then */
		(void)commit_segment_record(flash, open->segment, LEDGER_SEALED);
	open_release(open);
	flash->seal_state = SEAL_IDLE;
}

static void seal_failed(struct flash *flash)
{
	if (!flash->open[flash->seal_open].withdrawn) {
		seal_end(flash, 0); /* its groups tell as well */
		return;
	}
	flash->seal_state = SEAL_IDLE; /* again, before anything else is written */
	flash->seal_again_ns = flash_now(flash) + SEAL_AGAIN_NS;
}

static void seal_io_done(struct io_req *io)
{
	struct flash *flash = io->owner;
	if (io->result)
		flash->seal_error = io->result;
	if (--flash->seal_writes)
		return;
	if (!flash->seal_error) {
		flash->seal_state = SEAL_WRITTEN;
		return;
	}
	flash_device_error(flash, -flash->seal_error);
	seal_failed(flash);
}

int commit_seal(struct flash *flash)
{
	if (flash->seal_state != SEAL_IDLE)
		return 0;
	int waiting = 0;
	for (uint32_t i = 0; i < FLASH_OPEN; i++) {
		struct open_segment *open = &flash->open[i];
		if (open->segment == UINT32_MAX || flash->segments[open->segment].state != SEGMENT_CLOSING)
			continue;
		int later = open->withdrawn && (flash_refused(flash) || flash_now(flash) < flash->seal_again_ns);
		waiting |= open->inflight > 0 || later;
		if (open->inflight || later)
			continue;
		flash->seal_open = i;
		if (!open->nentries && !open->withdrawn) { /* nothing came into it */
			flash_segment_set(flash, open->segment, SEGMENT_FREE);
			(void)commit_segment_record(flash, open->segment, LEDGER_FREE);
			open_release(open);
			return 1;
		}
		const struct ledger_segment *life = &flash->ledger.segments[open->segment];
		uint32_t pages = segment_footer_entry_pages(open->nentries);
		check(pages <= flash->footer_pages_max && open->next_page + pages < flash->segment_pages);
		struct fmt_footer footer = {
		    .version = flash->write_version,
		    .segment = open->segment,
		    .life = life->life,
		    .first_sequence = open->first_sequence,
		    .last_sequence = open->last_sequence,
		    .flushed_through = flash->flushed_through,
		    .nentries = open->nentries,
		    .entries_page = open->next_page,
		    .entries_pages = pages,
		    .used_pages = open->next_page,
		};
		memcpy(footer.tenant, open->tenant, 16);
		uint8_t *trailer = flash->footer + (size_t)pages * FMT_PAGE;
		segment_footer_encode(&footer, open->entries, life->salt, flash->footer, trailer);
		flash->seal_state = SEAL_WRITING;
		flash->seal_error = 0;
		flash->seal_writes = pages ? 2 : 1;
		for (int part = pages ? 0 : 1; part < 2; part++) {
			struct io_req *io = &flash->seal_io[part];
			io->op = IO_WRITE;
			io->background = 0;
			io->offset = flash_offset(flash, open->segment, part ? flash->segment_pages - 1 : open->next_page);
			io->vec[0] = (struct io_vec){part ? trailer : flash->footer, part ? FMT_PAGE : pages * FMT_PAGE};
			io->nvec = 1;
			io->work = NULL;
			io->done = seal_io_done;
			io->owner = flash;
			flash->io->ops->submit(flash->io, io);
		}
		pthread_mutex_lock(&flash->lock);
		flash->stat.written_bytes += (uint64_t)(pages + 1) * FMT_PAGE;
		pthread_mutex_unlock(&flash->lock);
		return 1;
	}
	/* All that a failed flush touched is sealed: go on. */
	if (flash->healing && !waiting) {
		flash->healing = 0;
		return 1;
	}
	return 0;
}

/* ---- flush ------------------------------------------------------------------------------------------------------- */

static void group_durable(struct group *group)
{
	struct flash *flash = group->flash;
	struct open_segment *open = &flash->open[group->open];
	for (uint32_t i = 0; i < group->head.nentries; i++) {
		const struct fmt_entry *entry = &group->entries[i];
		uint32_t page = flash_page(flash, open->segment, entry->page);
		if (group->unwanted[i])
			continue;
		if (group->reqs[i]) {
			struct tier_req *req = group->reqs[i];
			group->reqs[i] = NULL;
			if (!clean_carried(flash, req, page))
				continue;
		} else {
			flash->host->durable(flash->host->arg, flash->device, entry, page);
		}
		check(open->nentries < flash->entries_max);
		open->entries[open->nentries++] = *entry;
	}
	open->inflight--;
	open->reserved -= group->head.nentries;
	group->state = GROUP_IDLE;
}

static void flush_failed(struct flash *flash)
{
	for (int i = 0; i < FLASH_GROUPS; i++) {
		struct group *group = &flash->groups[i];
		if (group->state == GROUP_WRITING) {
			group->failed = 1;
			commit_close_segment(flash, group->open);
		} else if (group->state != GROUP_IDLE) {
			group_withdraw(group, CAIRN_WHY_DEVICE);
		}
	}
	flash->healing = 1;
	flash->unflushed_bytes = 0;
	if (flash->ledger_state >= LEDGER_WRITTEN) {
		ledger_failed(&flash->ledger);
		flash->ledger_state = LEDGER_IDLE;
		fail_all(&flash->deciding, CAIRN_E_IO);
	}
	if (flash->seal_state >= SEAL_WRITTEN)
		seal_failed(flash);
}

static void flush_done(struct io_req *io)
{
	struct flash *flash = io->owner;
	flash->flush_flight = 0;
	pthread_mutex_lock(&flash->lock);
	flash->stat.flushes++;
	flash->stat.failed_flushes += io->result != 0;
	pthread_mutex_unlock(&flash->lock);
	if (io->result) {
		flash_device_error(flash, -io->result);
		flush_failed(flash);
		return;
	}
	/* In the order of their sequences, so that a chain becomes durable head first. */
	for (;;) {
		struct group *next = NULL;
		for (int i = 0; i < FLASH_GROUPS; i++)
			if (flash->groups[i].state == GROUP_FLUSHING &&
			    (!next || flash->groups[i].head.sequence < next->head.sequence))
				next = &flash->groups[i];
		if (!next)
			break;
		group_durable(next);
	}
	uint64_t through = flash->sequence;
	flash->unflushed_bytes = 0;
	for (int i = 0; i < FLASH_GROUPS; i++) {
		const struct group *group = &flash->groups[i];
		if (group->state == GROUP_IDLE)
			continue;
		if (group->head.sequence - 1 < through)
			through = group->head.sequence - 1;
		if (group->state == GROUP_WRITTEN)
			flash->unflushed_bytes += group->bytes;
	}
	flash->flushed_through = through > flash->flushed_through ? through : flash->flushed_through;
	flash->unflushed_since_ns = flash_now(flash);
	if (flash->ledger_state == LEDGER_FLUSHING)
		ledger_durable(flash);
	if (flash->seal_state == SEAL_FLUSHING)
		seal_end(flash, 1);
}

/* Whether a waiting sync has nothing left to write, so that a flush now completes it. */
static int sync_wants_flush(const struct flash *flash)
{
	for (struct list *node = flash->syncs.next; node != &flash->syncs; node = node->next) {
		const struct tier_req *sync = LIST_OF(node, struct tier_req, link);
		int written = 0, writing = 0;
		for (int i = 0; i < FLASH_GROUPS; i++) {
			const struct group *group = &flash->groups[i];
			if (group->state == GROUP_IDLE || group->ticket_low > sync->ticket)
				continue;
			written |= group->state == GROUP_WRITTEN;
			writing |= group->state == GROUP_WRITING;
		}
		writing |= lane_oldest(&flash->writes) <= sync->ticket ||
		           lane_oldest(&flash->writes_background) <= sync->ticket;
		/* With writes stuck behind a segment that waits for room, flush what there is: cleaning may depend on it. */
		if (written && (!writing || !group_idle((struct flash *)(uintptr_t)flash)))
			return 1;
	}
	return 0;
}

/* A flush makes a group durable only with all groups before it in its segment: reopen hops from one to the next, and a
 * group that never landed would hide those behind it. */
static int group_ready(const struct flash *flash, const struct group *group)
{
	if (group->state != GROUP_WRITTEN)
		return 0;
	for (int i = 0; i < FLASH_GROUPS; i++)
		if (flash->groups[i].state == GROUP_WRITING && flash->groups[i].open == group->open &&
		    flash->groups[i].head.sequence < group->head.sequence)
			return 0;
	return 1;
}

int commit_flush(struct flash *flash)
{
	if (flash->flush_flight)
		return 0;
	int written = 0, carried = 0, all_written = 1;
	for (int i = 0; i < FLASH_GROUPS; i++) {
		const struct group *group = &flash->groups[i];
		int ready = group_ready(flash, group);
		written |= ready;
		all_written &= ready;
		for (uint32_t e = 0; ready && e < group->head.nentries; e++)
			carried |= group->entries[e].flags & FMT_PART_MOVED;
	}
	int ledger = flash->ledger_state == LEDGER_WRITTEN, seal = flash->seal_state == SEAL_WRITTEN;
	if (!written && !ledger && !seal)
		return 0;
	int closing = 0; /* a segment that waits to be sealed waits for its groups */
	for (int i = 0; i < FLASH_OPEN; i++)
		closing |= flash->open[i].segment != UINT32_MAX && flash->open[i].inflight &&
		           flash->segments[flash->open[i].segment].state == SEGMENT_CLOSING;
	int due = ledger || seal || carried || closing || all_written || flash->closing ||
	          flash->unflushed_bytes >= FLASH_UNFLUSHED_BYTES ||
	          flash_now(flash) - flash->unflushed_since_ns >= FLASH_UNFLUSHED_NS || sync_wants_flush(flash);
	if (!due)
		return 0;
	for (int i = 0; i < FLASH_GROUPS; i++)
		if (group_ready(flash, &flash->groups[i]))
			flash->groups[i].state = GROUP_FLUSHING;
	if (ledger)
		flash->ledger_state = LEDGER_FLUSHING;
	if (seal)
		flash->seal_state = SEAL_FLUSHING;
	flash->flush_flight = 1;
	struct io_req *io = &flash->flush;
	io->op = IO_FLUSH;
	io->background = 0;
	io->nvec = 0;
	io->work = NULL;
	io->done = flush_done;
	io->owner = flash;
	flash->io->ops->submit(flash->io, io);
	return 1;
}

int commit_syncs(struct flash *flash)
{
	int did = 0;
	for (struct list *node = flash->syncs.next, *next; node != &flash->syncs; node = next) {
		struct tier_req *sync = LIST_OF(node, struct tier_req, link);
		next = node->next;
		int waits = 0;
		for (int i = 0; i < FLASH_GROUPS; i++)
			waits |= flash->groups[i].state != GROUP_IDLE && flash->groups[i].ticket_low <= sync->ticket;
		waits |= lane_oldest(&flash->writes) <= sync->ticket || lane_oldest(&flash->writes_background) <= sync->ticket;
		if (waits)
			continue;
		list_remove(node);
		flash_finish(sync, 0);
		did = 1;
	}
	return did;
}

int commit_idle(const struct flash *flash)
{
	for (int i = 0; i < FLASH_GROUPS; i++)
		if (flash->groups[i].state != GROUP_IDLE)
			return 0;
	for (int i = 0; i < FLASH_OPEN; i++)
		if (flash->open[i].segment != UINT32_MAX && flash->segments[flash->open[i].segment].state != SEGMENT_OPEN)
			return 0;
	return !flash_writes_wait(flash) && list_empty(&flash->syncs) &&
	       list_empty(&flash->decides) && flash->ledger_state == LEDGER_IDLE && flash->seal_state == SEAL_IDLE &&
	       !flash->flush_flight && flash->victim == UINT32_MAX && !flash->healing;
}
