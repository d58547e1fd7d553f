/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading on: an engine that was told how much of a chain there is asks for all of it, from its head on. What it asks
 * for next is read from flash, or fetched from a peer, while what it has asked for travels.
 *
 * Threads: the caller's, under the store's lock. Memory: that of what is read.
 * Invariant: never more ahead than a share of memory, and nothing goes for it that was used since the match was taken.
 */
#include <string.h>

#include "store/match.h"
#include "store/peer.h"

#define READ_ON_BYTES (8u << 20)
/* A peer has requests of some MiB under way in each of its workers; each should find the next one waiting. */
#define FETCH_ON_BYTES (32u << 20)
enum { READ_ON_SEARCH = 4096 };

static uint64_t ahead_bytes(const cairn *store, uint64_t most, uint64_t share)
{
	struct memory_stat memory;
	memory_stat(store->memory, &memory);
	return memory.capacity_bytes / share < most ? memory.capacity_bytes / share : most;
}

/* Where a match holds a part, + 1; 0: nowhere. The next one, if the engine asks block by block, is looked at first. */
static uint32_t held_find(const struct match_answer *match, uint32_t entry, uint32_t *steps)
{
	if (match->read && match->held[match->read - 1].entry == entry)
		return match->read;
	for (uint32_t i = match->nheld; i && *steps < READ_ON_SEARCH; i--, ++*steps)
		if (match->held[i - 1].entry == entry)
			return i;
	return 0;
}

void match_read_on(cairn *store, const struct cairn_space *space, uint32_t entry)
{
	struct match_answer *match = NULL;
	uint32_t at = 0, steps = 0;
	if (!catalog_at(store->catalog, entry)->holds)
		return;
	for (struct list *node = store->matches.next; node != &store->matches && !at; node = node->next) {
		match = LIST_OF(node, struct match_answer, link);
		at = match->expired ? 0 : held_find(match, entry, &steps);
	}
	if (!at)
		return;
	uint64_t left = ahead_bytes(store, READ_ON_BYTES, 16);
	match->read = at - 1;
	for (uint32_t i = at - 1; i-- > 0;) { /* held is tail first */
		const struct catalog_entry *e = catalog_peek(store->catalog, match->held[i].entry);
		if (!e || catalog_birth(e) != match->held[i].birth || (e->flags & CATALOG_GHOST) || e->length > left)
			return;
		left -= e->length;
		if (e->slot)
			continue; /* there, or on its way */
		cairn_key key;
		memcpy(key.bytes, e->prefix, 16);
		memcpy(key.bytes + 16, match->held[i].rest, 16);
		if (!read_ahead(store, space, match->held[i].entry, &key, match->since))
			return;
	}
}

/* The same of a part that a peer has: from the one that was asked for last on, towards the chain's end, and round. */
static uint32_t far_find(const struct match_answer *match, const struct peer_name *name, uint32_t *steps)
{
	for (uint32_t n = 0, i = match->far_seen; n < match->nfar && *steps < READ_ON_SEARCH; n++, ++*steps) {
		i = i ? i - 1 : match->nfar - 1;
		if (match->far[i].part == name->part && !memcmp(match->far[i].key.bytes, name->key->bytes, 32))
			return i + 1;
	}
	return 0;
}

void match_fetch_on(cairn *store, const struct peer_name *name)
{
	struct match_answer *match = NULL;
	uint32_t at = 0, steps = 0;
	for (struct list *node = store->matches.next; node != &store->matches && !at; node = node->next) {
		match = LIST_OF(node, struct match_answer, link);
		at = match->expired || match->space != name->space ? 0 : far_find(match, name, &steps);
	}
	if (!at)
		return;
	uint64_t left = ahead_bytes(store, FETCH_ON_BYTES, 8);
	match->far_seen = at;
	for (uint32_t i = at - 1; i-- > 0;) {
		const struct match_far_part *far = &match->far[i];
		struct peer_name next = {name->space, &far->key, far->part};
		if (far->length > left)
			return;
		left -= far->length;
		if (i >= match->far_read)
			continue; /* was asked for */
		if (!peer_ahead(store, &next, match->since))
			return;
		match->far_read = i;
	}
}
