/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a match is worth loading: from the tiers' own measurements and what is under way there now, against the
 * declared cost of computing. The model is policy/worth.h's.
 *
 * Of a prefix that lies on one set of media loading is linear and computing convex, so the best end of a prefix is
 * where the media change, or where a medium that was faster becomes the slowest: that is looked for in steps.
 * Threads: under the store's lock. Memory: none.
 */
#include <string.h>

#include "store/match_worth.h"

enum {
	WORTH_STEPS = 64
}; /* ends of prefixes that are looked at, all runs together */

/* ---- where things lie -------------------------------------------------------------------------------------------- */

struct match_place match_place(const struct match_work *work, const struct catalog_entry *e,
                               const struct peer_part *far, uint32_t *ret_tier)
{
	cairn *store = work->store;
	if (e && e->slot && memory_slot(store->memory, e->slot)->state == MEMORY_READY) {
		*ret_tier = CAIRN_TIER_MEMORY;
		return (struct match_place){WORTH_MEMORY, e->length};
	}
	if (e) {
		*ret_tier = CAIRN_TIER_FLASH;
		return (struct match_place){WORTH_FLASH + e->device, e->length};
	}
	const struct peer *peer = &store->peers->peer[far->peer - 1];
	struct match_place place = {WORTH_PEER + peer->number, far->length};
	/* Its flash, where that is slower than the network, makes the bytes as dear as more of them. */
	if (far->tier == CAIRN_TIER_FLASH && peer->flash_bytes_s > 0) {
		double net = rate_bytes_s(&peer->rate, PEER_FIRST_BYTES_S, clock_mono_ns(store->clock));
		place.bytes *= net > peer->flash_bytes_s ? net / peer->flash_bytes_s : 1;
	}
	*ret_tier = CAIRN_TIER_PEER;
	return place;
}

/* The run that a block belongs to; NULL: there is no room for one more, of another group. */
static struct match_run *run_of(struct match_work *work, uint32_t group, uint64_t block, uint64_t lanes)
{
	struct match_run *run = work->nruns ? &work->runs[work->nruns - 1] : NULL;
	int fits = run && run->group == group && run->from == block + 1;
	/* With no room for another run they are blurred into one. */
	if (!fits || (run->lanes != lanes && work->nruns < MATCH_RUNS)) {
		if (work->nruns == MATCH_RUNS)
			return NULL;
		run = &work->runs[work->nruns++];
		*run = (struct match_run){.group = group, .to = block + 1};
	}
	run->lanes |= lanes;
	run->from = block;
	return run;
}

void match_count(struct match_work *work, uint32_t group, uint64_t block, const struct match_place *places, uint32_t n)
{
	uint64_t lanes = 0;
	for (uint32_t i = 0; i < n; i++)
		lanes |= 1ull << places[i].lane;
	struct match_run *run = match_group(work, group)->rule == CAIRN_RULE_ALL ? run_of(work, group, block, lanes) : NULL;
	for (uint32_t i = 0; i < n; i++)
		(run ? &run->load : &work->load)->bytes[places[i].lane] += places[i].bytes;
}

/* ---- what a prefix takes ----------------------------------------------------------------------------------------- */

static void lanes_of(const struct match_work *work, struct worth_lane lanes[WORTH_LANES])
{
	cairn *store = work->store;
	uint64_t now = clock_mono_ns(store->clock);
	memset(lanes, 0, WORTH_LANES * sizeof(*lanes));
	lanes[WORTH_MEMORY].bytes_s = rate_bytes_s(&store->copies, STORE_COPY_BYTES_S, now);
	for (uint32_t i = 0; i < store->ndevices; i++)
		lanes[WORTH_FLASH + i] =
			(struct worth_lane){.wait_s = rate_wait_s(&store->devices[i].reads, STORE_FLASH_BYTES_S, now),
		                        .bytes_s = rate_bytes_s(&store->devices[i].reads, STORE_FLASH_BYTES_S, now)};
	for (uint32_t i = 0; store->peers && i < store->peers->n; i++) {
		const struct peer *peer = &store->peers->peer[i];
		double first_s = peer->rate.first_s > 0 ? 0 : peer->ask_s;
		lanes[WORTH_PEER + i] =
			(struct worth_lane){.wait_s = first_s + peer->wait_s + rate_wait_s(&peer->rate, PEER_FIRST_BYTES_S, now),
		                        .bytes_s = rate_bytes_s(&peer->rate, PEER_FIRST_BYTES_S, now)};
	}
}

/* A block's parts of a group of another rule than ALL. */
static void block_load(const struct match_work *work, uint32_t g, uint64_t block, struct worth_load *load)
{
	cairn *store = work->store;
	for (uint32_t part = 0; part < work->space->space.desc.nparts; part++) {
		uint32_t tier;
		if (work->parts && !(work->parts >> part & 1))
			continue;
		uint32_t entry = catalog_find(store->catalog, work->space->number, work->chains[g]->keys[block].bytes, part);
		const struct catalog_entry *e = entry ? catalog_at(store->catalog, entry) : NULL;
		const struct peer_part *far = match_far(work, g, block, part);
		if (e && (e->flags & CATALOG_GHOST))
			e = NULL;
		if (!e && !far)
			continue;
		struct match_place place = match_place(work, e, far, &tier);
		load->bytes[place.lane] += place.bytes;
	}
}

static void prefix_load(const struct match_work *work, uint64_t tokens, struct worth_load *load)
{
	memset(load, 0, sizeof(*load));
	for (uint32_t i = 0; i < work->nruns; i++) {
		const struct match_run *run = &work->runs[i];
		uint64_t blocks = tokens / match_group(work, run->group)->block_tokens;
		if (blocks <= run->from)
			continue;
		double share = blocks >= run->to ? 1 : (double)(blocks - run->from) / (double)(run->to - run->from);
		for (uint64_t lanes = run->lanes; lanes; lanes &= lanes - 1)
			load->bytes[__builtin_ctzll(lanes)] += share * run->load.bytes[__builtin_ctzll(lanes)];
	}
	for (uint32_t g = 0; g < work->space->space.ngroups; g++) {
		const struct cairn_group *group = match_group(work, g);
		if (!work->chains[g] || group->rule == CAIRN_RULE_ALL)
			continue;
		for (uint64_t b = match_first_block(group, tokens); b < tokens / group->block_tokens; b++)
			block_load(work, g, b, load);
	}
}

/* ---- the best one ------------------------------------------------------------------------------------------------ */

struct worth_best {
	struct worth_lane lanes[WORTH_LANES];
	double a, b, gain_s;
	uint64_t tokens;
	struct worth_time time;
};

static void best_try(struct worth_best *best, uint64_t tokens, const struct worth_load *load)
{
	struct worth_time time = worth_time(best->lanes, load);
	double gain_s = worth_cost_s(best->a, best->b, tokens) - time.all_s;
	if (gain_s <= best->gain_s)
		return;
	best->gain_s = gain_s;
	best->tokens = tokens;
	best->time = time;
}

static void best_shorter(const struct match_work *work, struct worth_best *best, uint64_t all)
{
	uint64_t step = match_step(work), last = all;
	uint64_t steps = WORTH_STEPS / (work->nruns ? work->nruns : 1);
	struct worth_load load;
	for (uint32_t i = 0; i < work->nruns; i++) {
		const struct match_run *run = &work->runs[i];
		uint64_t block = match_group(work, run->group)->block_tokens, n = run->to - run->from;
		uint64_t of = n < steps ? n : steps ? steps : 1;
		for (uint64_t s = of; s-- > 0;) {
			uint64_t tokens = (run->from + n * s / of) * block / step * step;
			if (!tokens || tokens >= all || tokens == last)
				continue;
			last = tokens;
			int holds = 1;
			for (uint32_t g = 0; g < work->space->space.ngroups && holds; g++)
				holds = !work->chains[g] || match_rule_holds(work, g, tokens);
			if (!holds)
				continue;
			prefix_load(work, tokens, &load);
			best_try(best, tokens, &load);
		}
	}
}

void match_judge(const struct match_work *work, struct cairn_match_info *info)
{
	struct worth_best best = {.a = work->space->space.desc.cost_a_s, .b = work->space->space.desc.cost_b_s};
	int declared = best.a > 0 || best.b > 0;
	struct worth_load load = work->load;
	for (uint32_t i = 0; i < work->nruns; i++)
		for (int lane = 0; lane < WORTH_LANES; lane++)
			load.bytes[lane] += work->runs[i].load.bytes[lane];
	lanes_of(work, best.lanes);
	best_try(&best, info->tokens, &load);
	if (declared) {
		best_shorter(work, &best, info->tokens);
	} else { /* nothing to compare with: all of it */
		best.tokens = info->tokens;
		best.time = worth_time(best.lanes, &load);
	}
	info->worth_tokens = best.tokens;
	info->load_s = best.time.all_s;
	info->recompute_s = worth_cost_s(best.a, best.b, best.tokens);
	info->tier_s[CAIRN_TIER_MEMORY] = best.time.memory_s;
	info->tier_s[CAIRN_TIER_FLASH] = best.time.flash_s;
	info->tier_s[CAIRN_TIER_PEER] = best.time.peer_s;
}
