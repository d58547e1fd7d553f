/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of a chain can be had: presence of its blocks by one probe a key, the rules of the groups, and what it costs
 * to load against what it costs to compute. Hints are here too.
 *
 * Threads: the caller's, under the store's lock. Memory: two allocations a match, and one for what peers have.
 * Invariant: the blocks of an answer are held (not evicted) until its last release or its deadline.
 */
#include "store/match.h"

#include <string.h>

#include "base/check.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/identity.h"
#include "store/match_worth.h"
#include "store/remote.h"

#define MATCH_DEFAULT_MS 30000u

static int slot_ready(void *arg, uint32_t slot)
{
	return memory_slot(((cairn *)arg)->memory, slot)->state == MEMORY_READY;
}

const struct peer_part *match_far(const struct match_work *work, uint32_t group, uint64_t block, uint32_t part)
{
	uint32_t at = work->asked[group] ? work->asked[group][block] : 0;
	if (!at || !work->far)
		return NULL;
	const struct peer_part *far = &work->far[(size_t)(at - 1) * work->space->space.desc.nparts + part];
	return far->length && !far->tail ? far : NULL;
}

static uint64_t far_mask(const struct match_work *work, uint32_t group, uint64_t block)
{
	uint64_t mask = 0;
	for (uint32_t part = 0; work->far && part < work->space->space.desc.nparts; part++)
		mask |= match_far(work, group, block, part) ? 1ull << part : 0;
	return mask;
}

/* Whether the wanted parts of a block can be had, from any tiers. ret_entry: one of them that is here; 0: none is. */
static int block_present(const struct match_work *work, uint32_t g, uint64_t block, uint32_t *ret_entry)
{
	const cairn_key *key = &work->chains[g]->keys[block];
	uint64_t memory, flash, all = work->space->space.desc.nparts >= 64 ? UINT64_MAX
	                                                                 : (1ull << work->space->space.desc.nparts) - 1;
	uint64_t wanted = work->parts ? work->parts & all : all;
	*ret_entry = catalog_presence(work->store->catalog, work->space->number, key->bytes, slot_ready, work->store,
	                              work->store->shut, &memory, &flash);
	uint64_t have = memory | flash;
	if ((have & wanted) != wanted)
		have |= far_mask(work, g, block);
	if (work->parts)
		return (have & wanted) == wanted;
	/* All parts are wanted: an optional one may be missing. */
	wanted &= work->space->space.required_parts;
	return (have & wanted) == wanted && have;
}

const struct cairn_group *match_group(const struct match_work *work, uint32_t group)
{
	return &work->space->space.desc.groups[group];
}

int match_rule_holds(const struct match_work *work, uint32_t g, uint64_t tokens)
{
	const struct cairn_group *group = match_group(work, g);
	const struct cairn_chain *chain = work->chains[g];
	uint64_t blocks = tokens / group->block_tokens;
	uint32_t entry;
	if (tokens % group->block_tokens || blocks > chain->nkeys)
		return 0;
	if (group->rule == CAIRN_RULE_ALL)
		return blocks <= work->good[g];
	uint64_t first = blocks;
	if (group->rule == CAIRN_RULE_SNAPSHOT)
		first = blocks ? blocks - 1 : 0;
	else if (tokens)
		first = (tokens > group->trailing_tokens ? tokens - group->trailing_tokens : 0) / group->block_tokens;
	for (uint64_t b = first; b < blocks; b++)
		if (!block_present(work, g, b, &entry))
			return 0;
	return 1;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	return b ? gcd(b, a % b) : a;
}

/* The same for a block of one part, by a guess where its entry is. 0: the guess was wrong. */
static int guess_present(const struct match_work *work, const cairn_key *key, uint32_t guess, uint32_t step)
{
	const struct catalog_entry *e =
		catalog_guess(work->store->catalog, guess, step, work->space->number, key->bytes);
	if (!e)
		return 0;
	return !(e->flags & (CATALOG_TAIL | CATALOG_GHOST)) &&
	       (entry_readable(work->store, e) || (e->slot && slot_ready(work->store, e->slot)));
}

/* Leading blocks of a chain that are present. What a look costs is waiting for memory: entries that stand in a row come
 * by themselves, others are asked for many at a time. */
static size_t leading_blocks(const struct match_work *work, uint32_t g)
{
	const struct cairn_chain *chain = work->chains[g];
	uint32_t entry = 0, step = 1, *found = work->found[g];
	size_t warm = 0; /* all before it are asked for */
	for (size_t b = 0; b < chain->nkeys; b++) {
		uint32_t last = entry;
		entry = last + step;
		if (!found || !guess_present(work, &chain->keys[b], entry, step)) {
			if (b >= warm) {
				size_t left = chain->nkeys - b < CATALOG_WARM ? chain->nkeys - b : CATALOG_WARM;
				catalog_warm(work->store->catalog, work->space->number, chain->keys + b, left);
				warm = b + left;
			}
			if (!block_present(work, g, b, &entry))
				return b;
			step = entry < last ? UINT32_MAX : 1; /* up or down: freed entries are taken again in reverse */
		}
		if (found)
			found[b] = entry;
	}
	return chain->nkeys;
}

uint64_t match_step(const struct match_work *work)
{
	uint64_t step = 1;
	for (uint32_t g = 0; g < work->space->space.ngroups; g++)
		if (work->chains[g])
			step = step / gcd(step, match_group(work, g)->block_tokens) * match_group(work, g)->block_tokens;
	return step;
}

/* The longest prefix at which every given group's rule holds. */
static uint64_t longest_prefix(struct match_work *work)
{
	uint64_t step = match_step(work), most = UINT64_MAX;
	for (uint32_t g = 0; g < work->space->space.ngroups; g++) {
		if (!work->chains[g])
			continue;
		uint64_t block = match_group(work, g)->block_tokens, have;
		work->good[g] = work->chains[g]->nkeys;
		if (match_group(work, g)->rule == CAIRN_RULE_ALL)
			work->good[g] = leading_blocks(work, g);
		have = work->good[g] * block;
		most = have < most ? have : most;
	}
	if (most == UINT64_MAX)
		return 0;
	for (uint64_t tokens = most / step * step; tokens; tokens -= step) {
		int holds = 1;
		for (uint32_t g = 0; g < work->space->space.ngroups && holds; g++)
			if (work->chains[g])
				holds = match_rule_holds(work, g, tokens);
		if (holds)
			return tokens;
	}
	return 0;
}

uint64_t match_first_block(const struct cairn_group *group, uint64_t tokens)
{
	uint64_t blocks = tokens / group->block_tokens;
	if (group->rule == CAIRN_RULE_SNAPSHOT)
		return blocks ? blocks - 1 : 0;
	if (group->rule == CAIRN_RULE_TRAILING)
		return (tokens > group->trailing_tokens ? tokens - group->trailing_tokens : 0) / group->block_tokens;
	return 0;
}

/* 0: as many matches as can be counted hold it already. */
static int hold(struct match_answer *match, struct catalog_entry *e, uint32_t entry, const cairn_key *key, uint32_t max)
{
	check(match->nheld < max);
	if (e->holds == UINT8_MAX)
		return 0;
	e->holds++;
	match->held[match->nheld].entry = entry;
	memcpy(match->held[match->nheld].rest, key->bytes + 16, 16);
	match->held[match->nheld++].birth = catalog_birth(e);
	return 1;
}

/* Adds up one group's blocks of the prefix, holds them, and makes their use the most recent. 0: one cannot be held. */
static int take_group(struct match_work *work, struct match_answer *match, uint32_t g, uint32_t max)
{
	cairn *store = work->store;
	const struct cairn_group *group = match_group(work, g);
	uint64_t blocks = match->info.tokens / group->block_tokens;
	struct catalog_entry *entries = catalog_entries(store->catalog);
	uint32_t now = watch_now(store);
	(void)watch_minutes(&store->watch, now);
	uint64_t first = match_first_block(group, match->info.tokens);
	for (uint64_t b = blocks; b-- > first;) { /* tail first: its head is youngest */
		struct match_place places[KEY_PARTS_MAX];
		uint32_t nplaces = 0;
		for (uint32_t part = 0; part < work->space->space.desc.nparts; part++) {
			if (work->parts && !(work->parts >> part & 1))
				continue;
			uint32_t tier, entry = work->found[g] ? work->found[g][b]
			                                      : catalog_find(store->catalog, work->space->number,
			                                                     work->chains[g]->keys[b].bytes, part);
			struct catalog_entry *e = entry ? &entries[entry - 1] : NULL;
			const struct peer_part *far = NULL;
			int memory = e && e->slot && slot_ready(store, e->slot);
			if (memory || (e && e->flags & CATALOG_FLASH)) {
				tier = memory ? CAIRN_TIER_MEMORY : CAIRN_TIER_FLASH;
				places[nplaces++] = (struct match_place){memory ? WORTH_MEMORY : WORTH_FLASH + e->device, e->length};
			} else { /* a ghost, or on its way in */
				e = NULL;
				if (!(far = match_far(work, g, b, part)))
					continue;
				places[nplaces++] = match_place(work, NULL, far, &tier);
			}
			uint32_t length = e ? e->length : far->length;
			match->info.bytes += length;
			match->info.tier_bytes[tier] += length;
			if (!e) { /* a peer's is not ours to hold */
				if (match->far && match->nfar < work->nfar)
					match->far[match->nfar++] =
						(struct match_far_part){work->chains[g]->keys[b], length, (uint8_t)part};
				continue;
			}
			if (!hold(match, e, entry, &work->chains[g]->keys[b], max))
				return 0;
			entry_count_at(store, e, now);
			if (b + 1 == blocks)
				entry_touch(store, entry, 1);
			else
				entry_use_at(store, e);
			if (memory)
				slot_touch(store, e->slot);
		}
		if (nplaces != 1 || !match_run_goes_on(work, g, b, &places[0]))
			match_count(work, g, b, places, nplaces);
	}
	return 1;
}

static int match_check(struct match_work *work, const struct cairn_chain *chains, size_t nchains, size_t *ret_parts)
{
	size_t blocks = 0;
	if (!work->store || !work->space || work->space->store != work->store || !work->space->described ||
	    (nchains && !chains))
		return err_set(CAIRN_E_INVAL, "match: no store, or a space that was not described to it");
	for (size_t i = 0; i < nchains; i++) {
		uint32_t g = chains[i].group;
		if (g >= work->space->space.ngroups || work->chains[g] || (chains[i].nkeys && !chains[i].keys))
			return err_set(CAIRN_E_INVAL,
			               "match: chain %zu names group %u, which the space has not or which was given twice", i, g);
		work->chains[g] = &chains[i];
		blocks += chains[i].nkeys;
	}
	*ret_parts = blocks * work->space->space.desc.nparts;
	return 0;
}

/* Room for the entries of the chains whose blocks have one part each, and which are looked at block by block. */
static void match_found(struct match_work *work, uint32_t *room)
{
	for (uint32_t g = 0; g < work->space->space.ngroups; g++)
		if (work->chains[g] && work->space->space.desc.nparts == 1 && match_group(work, g)->rule == CAIRN_RULE_ALL &&
		    (!work->parts || work->parts & 1)) {
			work->found[g] = room;
			room += work->chains[g]->nkeys;
		}
}

/* ---- what peers have --------------------------------------------------------------------------------------------- */

struct far_keys {
	const cairn_key **keys, **parents;
	size_t n, room;
};

/* Notes the blocks of a group that are not here, and those of other groups that a longer prefix would need. */
static void far_missing(struct match_work *work, uint32_t g, struct far_keys *missing)
{
	const struct cairn_chain *chain = work->chains[g];
	size_t from = match_group(work, g)->rule == CAIRN_RULE_ALL ? work->good[g] : 0;
	for (size_t b = from; b < chain->nkeys && missing->n < missing->room; b++) {
		uint32_t entry;
		if (b % CATALOG_WARM == from % CATALOG_WARM) {
			size_t left = chain->nkeys - b < CATALOG_WARM ? chain->nkeys - b : CATALOG_WARM;
			catalog_warm(work->store->catalog, work->space->number, chain->keys + b, left);
		}
		if (block_present(work, g, b, &entry))
			continue;
		missing->keys[missing->n] = &chain->keys[b];
		missing->parents[missing->n++] = b ? &chain->keys[b - 1] : NULL;
		work->asked[g][b] = (uint32_t)missing->n;
	}
}

static void far_free(struct match_work *work)
{
	for (uint32_t g = 0; g < MATCH_GROUPS; g++)
		mem_free(work->asked[g]);
	mem_free(work->far);
}

/* Asks all peers for what is not here behind `have` tokens. Whether anything came of it: the lock was let go of then,
 * and work->far says what there is. */
static int match_ask(struct match_work *work, uint64_t have)
{
	cairn *store = work->store;
	const struct cairn_space_desc *desc = &work->space->space.desc;
	struct far_keys missing = {.n = 0};
	uint64_t parts = desc->nparts >= 64 ? UINT64_MAX : (1ull << desc->nparts) - 1, all = UINT64_MAX;
	int good = 1;
	for (uint32_t g = 0; g < work->space->space.ngroups; g++) {
		if (!work->chains[g])
			continue;
		uint64_t tokens = work->chains[g]->nkeys * match_group(work, g)->block_tokens;
		all = tokens < all ? tokens : all;
		missing.room += work->chains[g]->nkeys;
		work->asked[g] = mem_array(work->chains[g]->nkeys + 1, sizeof(*work->asked[g]));
		good &= work->asked[g] != NULL;
	}
	if (all == UINT64_MAX || all / match_step(work) * match_step(work) <= have || !good)
		return 0;
	missing.room = missing.room < WIRE_PRESENCE_KEYS ? missing.room : WIRE_PRESENCE_KEYS;
	missing.keys = mem_array(missing.room, sizeof(*missing.keys));
	missing.parents = mem_array(missing.room, sizeof(*missing.parents));
	for (uint32_t g = 0; g < work->space->space.ngroups && missing.keys && missing.parents; g++)
		if (work->chains[g])
			far_missing(work, g, &missing);
	parts = work->parts ? work->parts & parts : parts;
	struct peer_ask *ask = missing.n && parts ? peer_ask(store, work->space, missing.keys, missing.parents, missing.n,
	                                                     parts, 0, peer_budget_ns(store, work->space, have, all))
	                                          : NULL;
	if (ask) {
		work->far = mem_array(missing.n * desc->nparts, sizeof(*work->far));
		if (work->far)
			peer_ask_best(store, ask, desc->nparts, work->far);
		work->nfar = missing.n * desc->nparts;
		peer_ask_drop(ask);
	}
	mem_free(missing.keys);
	mem_free(missing.parents);
	return ask != NULL;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

void match_leave(cairn *store, struct match_answer *answer)
{
	if (answer->agreed)
		return;
	answer->agreed = 1;
	answer->tokens = 0;
	store_changed(store);
}

void match_free(struct match_answer *answer)
{
	if (answer)
		mem_free(answer->far);
	mem_free(answer);
}

void match_let_go(cairn *store, struct match_answer *match)
{
	for (uint32_t i = 0; i < match->nheld; i++) {
		/* Dropped or damaged meanwhile, its entry may be nobody's or another part's by now. */
		struct catalog_entry *e = catalog_peek(store->catalog, match->held[i].entry);
		if (e && catalog_birth(e) == match->held[i].birth && e->holds)
			e->holds--;
	}
	match->nheld = 0;
	match->expired = 1;
	match_leave(store, match);
}

/* Tokens of the longest chain that was given. */
static uint64_t asked_tokens(const struct match_work *work)
{
	uint64_t most = 0;
	for (uint32_t g = 0; g < work->space->space.ngroups; g++) {
		uint64_t tokens = work->chains[g] ? work->chains[g]->nkeys * work->space->space.groups[g].block_tokens : 0;
		most = tokens > most ? tokens : most;
	}
	return most;
}

/* Finds the answer, holds its blocks and makes it known. 0 or BUSY. */
static int answer_make(struct match_work *work, struct match_answer *answer, uint32_t timeout_ms, uint32_t max)
{
	cairn *store = work->store;
	int held = 1;
	match_expire(store);
	answer->info.tokens = work->space->misses ? 0 : longest_prefix(work);
	if (store->peers && !work->space->misses && match_ask(work, answer->info.tokens))
		answer->info.tokens = longest_prefix(work);
	if (store->nmatches == STORE_MATCHES)
		return err_set(CAIRN_E_BUSY, "%d matches are open: release some", STORE_MATCHES);
	answer->deadline_ns = store_deadline(store, timeout_ms ? timeout_ms : MATCH_DEFAULT_MS);
	answer->far = work->far ? mem_grow(NULL, work->nfar * sizeof(*answer->far)) : NULL;
	for (uint32_t g = 0; g < work->space->space.ngroups && answer->info.tokens && held; g++)
		if (work->chains[g])
			held = take_group(work, answer, g, max);
	if (!held) {
		match_let_go(store, answer);
		return err_set(CAIRN_E_BUSY, "%u matches hold a block of this chain: release some", UINT8_MAX);
	}
	answer->since = watch_now(store);
	answer->read = answer->nheld;
	answer->far_read = answer->nfar;
	answer->tokens = answer->info.tokens;
	match_judge(work, &answer->info);
	count_lookup(store, asked_tokens(work), &answer->info);
	list_push_back(&store->matches, &answer->link);
	store->nmatches++;
	return 0;
}

static int take_here(struct match_work *work, uint32_t timeout_ms, size_t max, struct cairn_match *match)
{
	/* Not zeroed: of a long chain that would cost as much as looking it up. */
	struct match_answer *answer =
		mem_grow(NULL, sizeof(*answer) + max * (sizeof(answer->held[0]) + sizeof(uint32_t)));
	if (!answer)
		return err_set(CAIRN_E_NOMEM, "no memory for a match of %zu parts", max);
	memset(answer, 0, sizeof(*answer));
	answer->space = work->space;
	answer->holders = 1;
	digest_random(answer->ticket.bytes, sizeof(answer->ticket.bytes)); /* nobody guesses it */
	match_found(work, (uint32_t *)(void *)&answer->held[max]);
	pthread_mutex_lock(&work->store->lock);
	int error = answer_make(work, answer, timeout_ms, (uint32_t)max);
	pthread_mutex_unlock(&work->store->lock);
	far_free(work);
	if (error) {
		match_free(answer);
		return error;
	}
	match->answer = answer;
	match->info = answer->info;
	match->ticket = answer->ticket;
	return 0;
}

CAIRN_API int cairn_match_take(cairn *store, const struct cairn_space *space, const struct cairn_chain *chains,
                               size_t nchains, uint64_t parts, uint32_t timeout_ms, cairn_match **ret_match)
{
	struct match_work work = {.store = store, .space = space, .parts = parts};
	size_t max = 0;
	int error = !ret_match ? err_set(CAIRN_E_INVAL, "match: no place for the result")
	                       : match_check(&work, chains, nchains, &max);
	if (error)
		return error;
	struct cairn_match *match = mem_alloc(sizeof(*match));
	if (!match)
		return err_set(CAIRN_E_NOMEM, "no memory for a match");
	if (store->remote)
		error = remote_match_take(store, (struct cairn_space *)(uintptr_t)space, chains, nchains, parts, timeout_ms,
		                          match);
	else
		error = take_here(&work, timeout_ms, max, match);
	if (error)
		mem_free(match);
	else
		*ret_match = match;
	return error;
}

CAIRN_API void cairn_match_get_info(const cairn_match *match, struct cairn_match_info *ret_info)
{
	*ret_info = match->info;
}

void match_expire(cairn *store)
{
	uint64_t now = clock_mono_ns(store->clock);
	for (struct list *node = store->matches.next; node != &store->matches; node = node->next) {
		struct match_answer *answer = LIST_OF(node, struct match_answer, link);
		if (!answer->expired && now >= answer->deadline_ns)
			match_let_go(store, answer);
	}
}

CAIRN_API void cairn_match_release(cairn *store, cairn_match *match)
{
	if (!match)
		return;
	struct match_answer *answer = match->answer, *last = NULL;
	if (!answer) {
		remote_match_release(store, match->remote);
		mem_free(match);
		return;
	}
	pthread_mutex_lock(&store->lock);
	/* A rank that goes without a word has not got what it wanted. */
	if (match->joined && !match->said)
		match_leave(store, answer);
	if (--answer->holders == 0) {
		last = answer;
		match_let_go(store, answer);
		list_remove(&answer->link);
		store->nmatches--;
	}
	pthread_mutex_unlock(&store->lock);
	match_free(last);
	mem_free(match);
}

/* ---- hints ------------------------------------------------------------------------------------------------------- */

/* The entry of a part that is there; 0: it is not. */
static uint32_t hinted(cairn *store, const struct cairn_space *space, const cairn_key *key, uint32_t part)
{
	uint32_t entry = catalog_find(store->catalog, space->number, key->bytes, part);
	return entry && !(catalog_at(store->catalog, entry)->flags & CATALOG_GHOST) ? entry : 0;
}

/* Closes a part, or takes that back. */
static void hint_close(cairn *store, uint32_t entry, int close)
{
	struct catalog_entry *e = catalog_at(store->catalog, entry);
	if (e->children > 1 || !(e->flags & CATALOG_CLOSED) == !close)
		return; /* another chain goes on from this block, or nothing changes */
	e->flags ^= CATALOG_CLOSED;
	if (e->slot && slot_ready(store, e->slot))
		slot_touch(store, e->slot);
}

/* Every part that is in memory alone goes down, its head first. */
static void hint_down(cairn *store, const struct cairn_space *space, const struct cairn_chain *chain)
{
	static const struct store_call background = {.background = 1};
	for (size_t i = 0; i < chain->nkeys; i++)
		for (uint32_t part = 0; part < space->space.desc.nparts; part++) {
			uint32_t entry = hinted(store, space, &chain->keys[i], part);
			if (!entry || (catalog_at(store->catalog, entry)->flags & CATALOG_TAIL))
				continue;
			if (down_chain(store, entry, &background))
				return; /* so many requests are in flight that the rest must do without */
		}
}

CAIRN_API int cairn_hint(cairn *store, const struct cairn_space *space, const struct cairn_chain *chain, int hint)
{
	if (!store || !space || space->store != store || !chain || (chain->nkeys && !chain->keys) ||
	    hint < CAIRN_HINT_CLOSE || hint > CAIRN_HINT_RESUME)
		return err_set(CAIRN_E_INVAL, "hint: no chain, or hint %d is none", hint);
	if (store->remote)
		return remote_hint(store, (struct cairn_space *)(uintptr_t)space, chain, hint);
	pthread_mutex_lock(&store->lock);
	if (hint == CAIRN_HINT_RESUME)
		store_prefetch(store, space, chain->keys, chain->nkeys);
	for (size_t i = chain->nkeys; i-- > 0 && hint != CAIRN_HINT_RESUME;) /* tail first: it goes before its head */
		for (uint32_t part = 0; part < space->space.desc.nparts; part++) {
			uint32_t entry = hinted(store, space, &chain->keys[i], part);
			if (entry)
				hint_close(store, entry, hint == CAIRN_HINT_CLOSE);
		}
	if (hint == CAIRN_HINT_PAUSE && store_has_flash(store) && !(store->flags & CAIRN_OPEN_READONLY))
		hint_down(store, space, chain);
	pthread_mutex_unlock(&store->lock);
	return 0;
}
