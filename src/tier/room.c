/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the next group goes: the open segments of a device, at most one of each tenant that takes parts, and how
 * another is opened when there is room for it (or made: clean.c).
 *
 * Threads: the loop's. Memory: none allocated.
 * Invariant: a segment holds one tenant's parts; none is opened for one that is at its quota.
 */
#include <errno.h>
#include <string.h>

#include "base/digest.h"
#include "tier/flash_in.h"

uint32_t room_pages_left(const struct flash *flash, const struct open_segment *open, uint32_t more)
{
	uint32_t entries = open->nentries + open->reserved + more;
	uint32_t aside = 1 + segment_footer_entry_pages(entries);
	uint32_t used = open->next_page + aside;
	return entries > flash->entries_max || used >= flash->segment_pages ? 0 : flash->segment_pages - used;
}

static int open_fits(const struct flash *flash, const struct open_segment *open, const struct tier_req *req)
{
	return room_pages_left(flash, open, 1) >= segment_index_pages(1) + flash_pages_of(req->entry.stored_length);
}

static uint32_t free_segment_find(struct flash *flash)
{
	uint32_t unbacked = UINT32_MAX;
	for (uint32_t i = 0; i < flash->nsegments; i++) {
		if (flash->segments[i].state != SEGMENT_FREE)
			continue;
		if (flash->segments[i].backed)
			return i;
		if (unbacked == UINT32_MAX)
			unbacked = i;
	}
	return clean_may_grow(flash) ? unbacked : UINT32_MAX;
}

int room_open(struct flash *flash, const uint8_t tenant[16])
{
	struct open_segment *place = NULL, *idlest = NULL;
	for (int i = 0; i < FLASH_OPEN; i++) {
		struct open_segment *open = &flash->open[i];
		if (open->segment == UINT32_MAX)
			place = open;
		else if (flash->segments[open->segment].state == SEGMENT_OPEN && (!idlest || open->used_at < idlest->used_at))
			idlest = open;
	}
	if (!place) {
		if (idlest)
			commit_close_segment(flash, (uint32_t)(idlest - flash->open));
		return 0;
	}
	uint32_t segment = free_segment_find(flash);
	if (segment == UINT32_MAX)
		return 0;
	struct segment *state = &flash->segments[segment];
	/* Also where it has blocks: a range that was given back has none. */
	int error = flash->io->ops->allocate(flash->io, flash_offset(flash, segment, 0), flash->label.segment_bytes);
	if (error) {
		flash->grow_after_ns = flash_now(flash) + 1000000000ull;
		flash->grow_room = 0;
		if (error != -ENOSPC && error != -EDQUOT && error != -EFBIG) /* full, or at the limit of ulimit -f */
			flash_device_error(flash, -error);
		return 0;
	}
	struct ledger_segment *record = &flash->ledger.segments[segment];
	struct ledger_segment old = *record;
	record->life++;
	record->start_sequence = flash->sequence + 1;
	memcpy(record->tenant, tenant, 16);
	digest_random(&record->salt, sizeof(record->salt));
	if (commit_segment_record(flash, segment, LEDGER_OPEN)) {
		*record = old; /* the ledger's buffer is full: its batch is on the way */
		return 0;
	}
	flash_segment_back(flash, segment, 1);
	flash_segment_set(flash, segment, SEGMENT_OPENING);
	state->footer = state->unread = state->spared = 0;
	state->used_pages = 0;
	struct fmt_entry *entries = place->entries;
	memset(place, 0, sizeof(*place));
	place->entries = entries;
	place->segment = segment;
	place->ledger_batch = flash->ledger_batch;
	place->used_at = flash->sequence;
	memcpy(place->tenant, tenant, 16);
	return 1;
}

int room_carry_only(const struct flash *flash)
{
	return flash->victim != UINT32_MAX && !clean_free_segments(flash);
}

/* Whether there is more in it than what was carried over, which would only be carried over once more. */
static int open_evictable(const struct open_segment *open)
{
	for (uint32_t i = 0; i < open->nentries; i++)
		if (!(open->entries[i].flags & FMT_PART_MOVED))
			return 1;
	return 0;
}

/* Whether a segment of the tenant is on its way to being sealed, and then can be cleaned. */
static int open_closing(const struct flash *flash, const uint8_t tenant[16])
{
	for (int i = 0; i < FLASH_OPEN; i++)
		if (flash->open[i].segment != UINT32_MAX && !memcmp(flash->open[i].tenant, tenant, 16) &&
		    flash->segments[flash->open[i].segment].state == SEGMENT_CLOSING)
			return 1;
	return 0;
}

/* A segment of a tenant at its quota is being freed: what is carried over from it goes before what is new, or it would
 * need yet another place, and another, beyond the quota. */
static int carry_first(const struct flash *flash, const uint8_t tenant[16])
{
	return flash->victim != UINT32_MAX && !memcmp(flash->ledger.segments[flash->victim].tenant, tenant, 16) &&
	       !flash->host->may_own(flash->host->arg, flash->device, tenant);
}

struct open_segment *room_find(struct flash *flash, const struct tier_req *req, int another, enum room_why *ret_why)
{
	struct open_segment *ready = NULL;
	int opening = 0, carried = (req->entry.flags & FMT_PART_MOVED) != 0;
	*ret_why = ROOM_WAITS;
	if (!carried && (room_carry_only(flash) || carry_first(flash, req->tenant)))
		return NULL;
	for (int i = 0; i < FLASH_OPEN; i++) {
		struct open_segment *open = &flash->open[i];
		if (open->segment == UINT32_MAX || memcmp(open->tenant, req->tenant, 16))
			continue;
		uint8_t state = flash->segments[open->segment].state;
		opening |= state == SEGMENT_OPENING;
		if (state == SEGMENT_OPEN && open_fits(flash, open, req))
			ready = open;
		else if (state == SEGMENT_OPEN)
			commit_close_segment(flash, (uint32_t)i);
	}
	if (ready || opening || !another)
		return ready;
	uint32_t reserve = carried ? 0 : clean_reserve(flash);
	int own = !carried && !flash->host->may_own(flash->host->arg, flash->device, req->tenant);
	if (!own && clean_free_segments(flash) > reserve && room_open(flash, req->tenant))
		return NULL;
	if (own && clean_hopeless(flash, req->tenant)) {
		*ret_why = open_closing(flash, req->tenant) ? ROOM_OWN : ROOM_NONE;
		return NULL;
	}
	if (!carried)
		clean_for(flash, req->tenant, own);
	if (own) {
		*ret_why = ROOM_OWN;
		return NULL;
	}
	/* A part that is carried over waits for its own victim: when nothing else can give it room, it is not to be had. */
	int moving = flash->seal_state != SEAL_IDLE || (flash->victim != UINT32_MAX && !carried) ||
	             ledger_gathered(&flash->ledger) || flash->ledger_state != LEDGER_IDLE;
	for (int i = 0; i < FLASH_OPEN && !moving; i++)
		moving = flash->open[i].segment != UINT32_MAX &&
		         flash->segments[flash->open[i].segment].state != SEGMENT_OPEN;
	if (!moving && carried)
		*ret_why = ROOM_NONE;
	else if (!moving && (flash->nothing_to_clean || flash_refused(flash))) {
		/* Last resort: other tenants' open segments can be sealed, and then be cleaned. */
		for (int i = 0; i < FLASH_OPEN && !moving; i++)
			if (flash->open[i].segment != UINT32_MAX && open_evictable(&flash->open[i])) {
				commit_close_segment(flash, (uint32_t)i);
				moving = 1;
			}
		*ret_why = moving ? ROOM_WAITS : ROOM_NONE;
	}
	return NULL;
}
