/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making room on a flash device: picks the sealed segment of least index, lets the host judge each of its live parts,
 * carries over what must or may stay, and frees the segment once nobody reads in it.
 *
 * Threads: the loop's. Memory: none allocated after open; carried parts go through one bounce buffer.
 * Invariant: a segment is freed only after every part that had to stay is durable elsewhere.
 */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/digest.h"
#include "base/mem.h"
#include "tier/flash_in.h"

enum { BOUNCE_MIN_BYTES = 8 << 20, UNREAD_MAX = 8 };
#define SEARCH_AGAIN_NS 200000000ull
#define FLOOR_CHECK_NS 100000000ull

int clean_open(struct flash *flash)
{
	flash->bounce_bytes = flash_pages_of(flash->part_max) * FMT_PAGE;
	if (flash->bounce_bytes < BOUNCE_MIN_BYTES && flash->label.segment_bytes > BOUNCE_MIN_BYTES)
		flash->bounce_bytes = BOUNCE_MIN_BYTES;
	flash->bounce = mem_aligned(FMT_PAGE, flash->bounce_bytes);
	flash->victim_list = mem_array(flash->entries_max, sizeof(*flash->victim_list));
	flash->candidates = mem_array(flash->nsegments, sizeof(*flash->candidates));
	flash->victim = UINT32_MAX;
	flash->carry_budget.max_bytes = flash->label.segment_bytes;
	flash->carry_budget.tokens_bytes = flash->label.segment_bytes / 4;
	return flash->bounce && flash->victim_list && flash->candidates ? 0 : CAIRN_E_NOMEM;
}

void clean_done(struct flash *flash)
{
	mem_free(flash->bounce);
	mem_free(flash->victim_list);
	mem_free(flash->candidates);
}

static uint64_t floor_of(const struct flash *flash, uint64_t all)
{
	if (flash->free_floor_bytes)
		return flash->free_floor_bytes;
	return all / 20 < (10ull << 30) ? all / 20 : 10ull << 30;
}

int clean_below_floor(struct flash *flash)
{
	uint64_t size, free, all;
	return !flash->io->ops->space(flash->io, &size, &free, &all) && free < floor_of(flash, all);
}

/* How far the device's file may still grow, and whether it must shrink: budget, and the free-space floor. */
static void floor_check(struct flash *flash)
{
	uint64_t now = flash_now(flash), size, free, all;
	if (flash->floor_check_ns && now - flash->floor_check_ns < FLOOR_CHECK_NS)
		return;
	flash->floor_check_ns = now;
	flash->grow_room = 0;
	flash->victim_punch = flash->backed > flash->budget_segments;
	if (flash->io->ops->space(flash->io, &size, &free, &all))
		return;
	uint64_t floor = floor_of(flash, all);
	if (free < floor)
		flash->victim_punch = 1;
	uint64_t room = free == UINT64_MAX ? UINT32_MAX : free > floor ? (free - floor) / flash->label.segment_bytes : 0;
	uint64_t budget = flash->budget_segments > flash->backed ? flash->budget_segments - flash->backed : 0;
	room = room < budget ? room : budget;
	flash->grow_room = now < flash->grow_after_ns ? 0 : (uint32_t)(room < UINT32_MAX ? room : UINT32_MAX);
}

/* Asked right before growing: others, our own devices too, may have taken the room since. */
int clean_may_grow(struct flash *flash)
{
	flash->floor_check_ns = 0;
	floor_check(flash);
	return flash->grow_room > 0;
}

uint32_t clean_free_segments(const struct flash *flash)
{
	return flash->free_backed + flash->grow_room;
}

uint32_t clean_reserve(const struct flash *flash)
{
	return flash->nsegments < 4 ? 0 : 1;
}

int clean_wanted(const struct flash *flash)
{
	if (flash->readonly || flash_refused((struct flash *)(uintptr_t)flash))
		return 0;
	if (flash->closing && !flash_writes_wait(flash))
		return 0;
	if (flash->victim_punch || flash->over)
		return 1;
	return clean_free_segments(flash) <= clean_reserve(flash);
}

void clean_for(struct flash *flash, const uint8_t tenant[16], int own)
{
	if (flash->over && memcmp(flash->room_for, tenant, 16))
		return; /* one after the other */
	if (memcmp(flash->room_for, tenant, 16) || !flash->room_wanted)
		flash->nothing_to_clean = 0; /* what was none for another may be one for it */
	memcpy(flash->room_for, tenant, 16);
	flash->room_wanted = 1;
	flash->over = (uint32_t)own;
}

int clean_hopeless(const struct flash *flash, const uint8_t tenant[16])
{
	return !memcmp(flash->over_tenant, tenant, 16) && flash_now(flash) < flash->over_until_ns;
}

static void give_back(struct flash *flash, uint32_t segment)
{
	if (flash->io->ops->punch(flash->io, flash_offset(flash, segment, 0), flash->label.segment_bytes) == 0)
		flash_segment_back(flash, segment, 0);
	flash->floor_check_ns = 0;
}

static void spared_forget(struct flash *flash)
{
	for (uint32_t i = 0; i < flash->nsegments; i++)
		flash->segments[i].spared = 0;
}

/* Freeing it would cost more than it gives, or is not possible now: others first. */
static void victim_spare(struct flash *flash)
{
	flash->segments[flash->victim].spared = 1;
	flash_segment_set(flash, flash->victim, SEGMENT_SEALED);
	flash->victim = UINT32_MAX;
}

/* Whether so much of the victim must stay that carrying it over would free next to nothing. */
static int victim_stays(struct flash *flash)
{
	uint64_t keep = 0;
	for (uint32_t i = 0; i < flash->victim_entries; i++) {
		enum evict_verdict verdict;
		const struct fmt_entry *entry = &flash->victim_list[i];
		if (flash->host->judge(flash->host->arg, flash->device, entry, flash_page(flash, flash->victim, entry->page),
		                       &verdict) &&
		    verdict == EVICT_KEEP)
			keep += (uint64_t)flash_pages_of(entry->stored_length) * FMT_PAGE;
	}
	return keep > flash->label.segment_bytes / 8 * 7;
}

/* So many victims, one after the other, whose parts that must stay went into the next: all is as dense as it gets. */
static uint32_t rounds_max(const struct flash *flash)
{
	return 2 * flash->backed + 2;
}

/* Nothing may go now. After a pause those that were spared are looked at again. */
static int victim_none(struct flash *flash, uint64_t now)
{
	spared_forget(flash);
	if (flash->over) {
		memcpy(flash->over_tenant, flash->room_for, 16);
		flash->over_until_ns = now + SEARCH_AGAIN_NS;
		flash->over = flash->room_wanted = 0;
		return 1;
	}
	flash->nothing_to_clean = 1;
	flash->search_again_ns = now + SEARCH_AGAIN_NS;
	return 0;
}

static int victim_choose(struct flash *flash)
{
	uint64_t now = flash_now(flash);
	int in_vain = flash->kept_rounds > rounds_max(flash);
	if ((flash->nothing_to_clean || in_vain) && now < flash->search_again_ns) {
		if (flash->over)
			return victim_none(flash, now);
		flash->nothing_to_clean = 1;
		return 0;
	}
	if (in_vain)
		flash->kept_rounds = 0; /* leases, sessions and drops change what must stay */
	size_t n = 0;
	for (uint32_t i = 0; i < flash->nsegments; i++) {
		if (flash->victim_punch && flash->segments[i].state == SEGMENT_FREE && flash->segments[i].backed &&
		    flash->free_backed > 1) {
			give_back(flash, i);
			return 1;
		}
		if (flash->segments[i].state == SEGMENT_SEALED && !flash->segments[i].spared)
			flash->candidates[n++] = i;
	}
	/* Oldest life first, so that equals are told apart by age. */
	for (size_t i = 1; i < n; i++) {
		uint32_t candidate = flash->candidates[i];
		uint64_t start = flash->ledger.segments[candidate].start_sequence;
		size_t at = i;
		for (; at > 0 && flash->ledger.segments[flash->candidates[at - 1]].start_sequence > start; at--)
			flash->candidates[at] = flash->candidates[at - 1];
		flash->candidates[at] = candidate;
	}
	const uint8_t *tenant = flash->room_wanted ? flash->room_for : NULL;
	long pick = n ? flash->host->choose(flash->host->arg, flash->device, tenant, (int)flash->over, flash->candidates, n)
	              : -1;
	if (pick < 0)
		return victim_none(flash, now);
	flash->nothing_to_clean = 0;
	uint32_t victim = flash->candidates[pick];
	long entries = recover_entries(flash, victim, flash->victim_list);
	flash->victim = victim;
	if (entries < 0 && ++flash->segments[victim].unread < UNREAD_MAX) {
		victim_spare(flash); /* what is in it cannot be told now; that may pass */
		return 1;
	}
	if (entries < 0) /* what it still holds is lost with it */
		entries = 0;
	flash->victim_entries = (uint32_t)entries;
	flash->victim_next = 0;
	flash->victim_kept = 0;
	flash->carrying = 0;
	flash->bounce_used = 0;
	flash_segment_set(flash, victim, SEGMENT_CLEANING);
	if (victim_stays(flash))
		victim_spare(flash);
	return 1;
}

static struct carry *carry_of(struct tier_req *req)
{
	return LIST_OF(req, struct carry, req);
}

/* A carried part that could not be written. */
static void carry_failed(struct tier_req *req)
{
	struct carry *carry = carry_of(req);
	struct flash *flash = req->owner;
	carry->state = 0;
	flash->carrying--;
	if (carry->must)
		flash->victim_next = UINT32_MAX; /* the victim stays: what had to be kept has no other place */
	else
		flash->host->removed(flash->host->arg, flash->device, &req->entry, carry->old_page, CAIRN_WHY_EVICTED);
}

int clean_carried(struct flash *flash, struct tier_req *req, uint32_t page)
{
	struct carry *carry = carry_of(req);
	int wanted = flash->host->moved(flash->host->arg, flash->device, &req->entry, carry->old_page, page) == TIER_MOVED;
	carry->state = 0;
	flash->carrying--;
	pthread_mutex_lock(&flash->lock);
	flash->stat.moved_bytes += (uint64_t)flash_pages_of(req->entry.stored_length) * FMT_PAGE;
	pthread_mutex_unlock(&flash->lock);
	return wanted;
}

/* Reads a part and checks it, more than once: the wire may be at fault, and not the medium. 0 or -errno. */
static int carry_read(struct flash *flash, const struct fmt_entry *entry, uint32_t page, uint8_t *to)
{
	int error = -EIO;
	uint64_t stored;
	memcpy(&stored, entry->stored_check, 8);
	for (int tries = 0; tries < 3 && error; tries++) {
		error = flash->io->ops->pread(flash->io, to, (uint64_t)flash_pages_of(entry->stored_length) * FMT_PAGE,
		                              flash_offset(flash, 0, page));
		if (!error &&
		    segment_stored_check(entry->key, entry->space, entry->part, entry->raw_length, entry->stored_length,
		                         entry->codec, digest_xxh3(to, entry->stored_length, 0)) != stored)
			error = -EBADMSG;
	}
	return error;
}

/* Reads one live part and queues it for another segment. 0: the bounce buffer is full. */
static int carry_start(struct flash *flash, const struct fmt_entry *entry, uint32_t old_page, int must)
{
	uint32_t bytes = flash_pages_of(entry->stored_length) * FMT_PAGE;
	struct carry *carry = NULL;
	for (int i = 0; i < FLASH_CARRY && !carry; i++)
		if (!flash->carry[i].state)
			carry = &flash->carry[i];
	if (!carry || bytes > flash->bounce_bytes - flash->bounce_used)
		return 0;
	uint8_t *at = flash->bounce + flash->bounce_used;
	int error = carry_read(flash, entry, old_page, at);
	if (error && error != -EBADMSG && must && ++flash->segments[flash->victim].unread < UNREAD_MAX) {
		flash->victim_next = UINT32_MAX; /* it may pass: the victim stays */
		return 0;
	}
	if (error) {
		/* It leaves with its segment; say why. What need not be carried is evicted as if it had not been tried. */
		flash->host->removed(flash->host->arg, flash->device, entry, old_page,
		                     error == -EBADMSG ? CAIRN_WHY_DAMAGED : must ? CAIRN_WHY_DEVICE : CAIRN_WHY_EVICTED);
		return 1;
	}
	memset(&carry->req, 0, sizeof(carry->req));
	carry->req.op = TIER_WRITE;
	carry->req.entry = *entry;
	carry->req.entry.flags |= FMT_PART_MOVED;
	memcpy(carry->req.tenant, flash->ledger.segments[flash->victim].tenant, 16);
	carry->req.bytes = at;
	carry->req.done = carry_failed; /* success comes by clean_carried */
	carry->req.owner = flash;
	carry->req.ticket = UINT64_MAX; /* no sync waits for it */
	carry->old_page = old_page;
	carry->must = (uint8_t)must;
	flash->victim_kept |= (uint32_t)must;
	carry->state = 1;
	flash->carrying++;
	flash->bounce_used += bytes;
	list_push_front(&flash->carried, &carry->req.link); /* ahead of writes that wait for the room it makes */
	return 1;
}

static int victim_judge(struct flash *flash)
{
	while (flash->victim_next < flash->victim_entries) {
		const struct fmt_entry *entry = &flash->victim_list[flash->victim_next];
		uint32_t page = flash_page(flash, flash->victim, entry->page);
		enum evict_verdict verdict = EVICT_DROP;
		if (!flash->host->judge(flash->host->arg, flash->device, entry, page, &verdict)) {
			flash->victim_next++;
			continue;
		}
		uint32_t bytes = flash_pages_of(entry->stored_length) * FMT_PAGE;
		/* A segment that is given back frees nothing if its parts need another: only what must stay is carried. */
		if (verdict == EVICT_CARRY && (flash->victim_punch || !evict_budget_spend(&flash->carry_budget, bytes)))
			verdict = EVICT_DROP;
		if (verdict == EVICT_DROP) {
			flash->host->removed(flash->host->arg, flash->device, entry, page, CAIRN_WHY_EVICTED);
		} else if (!carry_start(flash, entry, page, verdict == EVICT_KEEP)) {
			break;
		}
		flash->victim_next++;
	}
	return 1;
}

int clean_step(struct flash *flash)
{
	floor_check(flash);
	if (flash->victim == UINT32_MAX)
		return clean_wanted(flash) ? victim_choose(flash) : 0;
	if (flash->carrying)
		return 0;
	flash->bounce_used = 0;
	if (flash->victim_next == UINT32_MAX) {
		victim_spare(flash);
		return 1;
	}
	if (flash->victim_next < flash->victim_entries)
		return victim_judge(flash);
	if (flash->segments[flash->victim].readers)
		return 0;
	uint32_t victim = flash->victim;
	/* Of what no index told: nothing, where all could be read. */
	flash->host->lost(flash->host->arg, flash->device, flash_page(flash, victim, 0), flash_page(flash, victim + 1, 0),
	                  CAIRN_WHY_DAMAGED);
	flash_segment_set(flash, victim, SEGMENT_FREE);
	flash->over = flash->room_wanted = 0;
	flash->kept_rounds = flash->victim_kept ? flash->kept_rounds + 1 : 0;
	if (flash->kept_rounds > rounds_max(flash))
		flash->search_again_ns = flash_now(flash) + SEARCH_AGAIN_NS;
	spared_forget(flash);
	/* Not waited for, and not missed where the ledger has no room now: until the next life is in the ledger its parts
	 * could come back after a crash, whole and undropped. */
	(void)commit_segment_record(flash, victim, LEDGER_FREE);
	if (flash->victim_punch)
		give_back(flash, victim);
	flash->victim = UINT32_MAX;
	return 1;
}
