/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is counted: presence and use, per tier, space and tenant, why misses miss, and the alarms made of them.
 *
 * Threads: under the store's lock. Memory: none.
 * Invariant: what a space has per tier is what the catalog says (count_verify); what store_probe does is not counted.
 */
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "fmt/gone.h"
#include "store/remote.h"
#include "store/store.h"

static struct cairn_space *space_at(cairn *store, uint32_t number)
{
	check(number >= 1 && number <= store->nspaces);
	return store->spaces[number - 1];
}

static int in_memory(cairn *store, const struct catalog_entry *e)
{
	return e->slot && memory_slot(store->memory, e->slot)->state == MEMORY_READY;
}

/* A part that was evicted from memory, before it leaves its slot. */
static void count_evicted(cairn *store, const struct catalog_entry *e)
{
	const struct memory_slot *s = memory_slot(store->memory, e->slot);
	uint32_t now = watch_time(clock_mono_ns(store->clock));
	double age_s = (double)(int32_t)(now - s->used) / WATCH_UNITS_S, *mean = &store->stat.memory_age_s;
	age_s = age_s > 0 ? age_s : 0;
	*mean = *mean > 0 ? *mean + (age_s - *mean) / 64 : age_s;
	if (!(e->flags & (CATALOG_FLASH | CATALOG_TAIL | CATALOG_CLOSED)) && store_has_flash(store) &&
	    !down_budgeted(store))
		store->lost_bytes += e->length;
}

void count_presence(cairn *store, const struct catalog_entry *e, uint32_t kind, uint32_t tier, uint32_t reason)
{
	struct space_count *count = &space_at(store, e->space)->count;
	int elsewhere = tier == CAIRN_TIER_MEMORY ? (e->flags & CATALOG_FLASH) != 0 : in_memory(store, e);
	if (kind == CAIRN_EVENT_STORED) {
		count->tier_parts[tier]++;
		count->tier_bytes[tier] += e->length;
		count->parts += !elsewhere;
		count->bytes += elsewhere ? 0 : e->length;
		return;
	}
	check(count->tier_parts[tier] && count->tier_bytes[tier] >= e->length);
	count->tier_parts[tier]--;
	count->tier_bytes[tier] -= e->length;
	if (tier == CAIRN_TIER_MEMORY && reason == CAIRN_WHY_EVICTED)
		count_evicted(store, e);
	if (elsewhere)
		return;
	count->parts--;
	count->bytes -= e->length;
	if (reason == CAIRN_WHY_EVICTED || reason == CAIRN_WHY_ORPHAN) {
		count->evicted_parts++;
		count->evicted_bytes += e->length;
	}
}

void count_hit(cairn *store, const struct cairn_space *space, uint32_t tier, uint64_t bytes)
{
	struct space_count *count = &space_at(store, space->number)->count;
	entry_tick(store, bytes);
	if (space->internal)
		return;
	store->stat.tier[tier].hits++;
	store->stat.tier[tier].hit_bytes += bytes;
	count->hits[tier]++;
	count->hit_bytes[tier] += bytes;
	store->tenants[space->tenant].stat.hits[tier]++;
	store->tenants[space->tenant].stat.hit_bytes[tier] += bytes;
}

void count_written(cairn *store, const struct cairn_space *space, uint64_t bytes)
{
	struct space_count *count = &space_at(store, space->number)->count;
	if (space->internal)
		return;
	store->stat.tier[CAIRN_TIER_MEMORY].written_parts++;
	store->stat.tier[CAIRN_TIER_MEMORY].written_bytes += bytes;
	count->written_parts++;
	count->written_bytes += bytes;
	store->tenants[space->tenant].stat.written_parts++;
	store->tenants[space->tenant].stat.written_bytes += bytes;
}

void count_miss(cairn *store, const struct cairn_space *space, const cairn_key *key, uint32_t part)
{
	struct catalog_memory memory;
	if (space->internal)
		return;
	catalog_recall(store->catalog, gone_print(space->id, key->bytes, part), &memory);
	/* What is there now is on its way in, or a part of another key: not seen, as far as this reader is concerned. */
	uint32_t why = memory.reason < CAIRN_WHYS && memory.reason != CAIRN_WHY_PRESENT ? memory.reason : CAIRN_WHY_NONE;
	store->stat.misses++;
	store->stat.misses_why[why]++;
	space_at(store, space->number)->count.misses++;
	store->tenants[space->tenant].stat.misses++;
}

void count_lookup(cairn *store, uint64_t tokens, const struct cairn_match_info *info)
{
	struct cairn_stat *stat = &store->stat;
	stat->lookups++;
	stat->lookups_whole += info->tokens && info->tokens >= tokens;
	stat->lookups_part += info->tokens && info->tokens < tokens;
	stat->lookup_tokens += tokens;
	stat->found_tokens += info->tokens;
	for (uint32_t i = 0; i < CAIRN_TIERS; i++)
		stat->found_bytes[i] += info->tier_bytes[i];
}

void count_verify(cairn *store)
{
	uint64_t parts = 0, bytes = 0, spaces_parts = 0, spaces_bytes = 0;
	uint64_t tier_parts[CAIRN_TIERS] = {0}, spaces_tier_parts[CAIRN_TIERS] = {0};
	for (uint32_t entry = catalog_next(store->catalog, 0); entry; entry = catalog_next(store->catalog, entry)) {
		const struct catalog_entry *e = catalog_at(store->catalog, entry);
		int memory = in_memory(store, e), flash = (e->flags & CATALOG_FLASH) != 0;
		if (!memory && !flash)
			continue;
		parts++;
		bytes += e->length;
		tier_parts[CAIRN_TIER_MEMORY] += (uint64_t)memory;
		tier_parts[CAIRN_TIER_FLASH] += (uint64_t)flash;
	}
	for (uint32_t i = 0; i < store->nspaces; i++) {
		const struct space_count *count = &store->spaces[i]->count;
		spaces_parts += count->parts;
		spaces_bytes += count->bytes;
		for (uint32_t t = 0; t < CAIRN_TIERS; t++)
			spaces_tier_parts[t] += count->tier_parts[t];
	}
	check(parts == spaces_parts && bytes == spaces_bytes);
	for (uint32_t t = 0; t < CAIRN_TIERS; t++)
		check(tier_parts[t] == spaces_tier_parts[t]);
}

/* ---- alarms ------------------------------------------------------------------------------------------------------ */

_Static_assert((int)ALARM_WRITE_ONLY == CAIRN_ALARM_WRITE_ONLY && (int)ALARM_NO_DEMOTION == CAIRN_ALARM_NO_DEMOTION,
               "told as they are");

uint32_t store_alarms(cairn *store)
{
	const struct cairn_tier_stat *tier = store->stat.tier;
	struct alarm_totals totals = {
		.written_bytes = tier[CAIRN_TIER_MEMORY].written_bytes,
		.demoted_bytes = tier[CAIRN_TIER_FLASH].written_bytes,
		.lost_bytes = store->lost_bytes,
		.refused_bytes = store->stat.flash_refused_bytes,
		.errors = tier[CAIRN_TIER_FLASH].errors,
	};
	for (uint32_t i = 0; i < CAIRN_TIERS; i++)
		totals.read_bytes += tier[i].hit_bytes;
	return alarm_step(&store->alarm, clock_mono_ns(store->clock), &totals);
}

void store_alarm_minutes(cairn *store, uint32_t minutes)
{
	pthread_mutex_lock(&store->lock);
	alarm_set(&store->alarm, minutes);
	pthread_mutex_unlock(&store->lock);
}

CAIRN_API const char *cairn_alarm_name(uint32_t alarms)
{
	return alarms & CAIRN_ALARM_WRITE_ONLY ? "write_only" : alarms & CAIRN_ALARM_NO_DEMOTION ? "no_demotion" : "none";
}

/* ---- clients ----------------------------------------------------------------------------------------------------- */

CAIRN_API long cairn_list_clients(cairn *store, int (*each)(void *arg, const struct cairn_client_info *info), void *arg)
{
	if (!store || !each)
		return err_set(CAIRN_E_INVAL, "clients: no store or no callback");
	return store->remote ? remote_list_clients(store, each, arg) : 0;
}
