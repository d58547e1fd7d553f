/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of tenants, of one seed in three: quotas, reserves and shares, others now and then; and what they promise: a
 * tenant has no more than its quota, what is reserved for one is not evicted for another, and nobody is starved for
 * ever.
 *
 * What a tenant had over a quota that came later, or of a device that came back, it may keep, but it gets no more.
 */
#include <stdio.h>
#include <string.h>

#include "sim/run.h"
#include "store/store.h"
#include "tier/flash_in.h"

static uint64_t least_budget(const struct run *run)
{
	uint64_t all = 0;
	for (uint32_t i = 0; i < run->config.ndevices; i++)
		all += run->config.budget_bytes[i];
	return all;
}

/* In percent of what there is, so that they fit after it has changed. */
static void limits_draw(struct run *run)
{
	uint32_t left_memory = 80, left_flash = 50;
	for (uint32_t t = 0; t < TENANTS; t++) {
		struct limits *of = &run->limits[t];
		*of = (struct limits){.share = percent(run, 50) ? 1 + pick(run, 10000) : 0};
		of->memory_quota = percent(run, 60) ? 10 + pick(run, 90) : 0;
		of->flash_quota = percent(run, 60) ? 10 + pick(run, 90) : 0;
		if (t + 1 == TENANTS)
			break; /* all that are not named */
		uint32_t memory = percent(run, 50) ? 1 + pick(run, 40) : 0, flash = percent(run, 50) ? 1 + pick(run, 30) : 0;
		memory = of->memory_quota && memory > of->memory_quota ? of->memory_quota : memory;
		flash = of->flash_quota && flash > of->flash_quota ? of->flash_quota : flash;
		/* Whole extents, of which there are four. */
		uint32_t extents = (memory + 24) / 25 * 25;
		of->memory_reserved = extents <= left_memory ? memory : 0;
		left_memory -= of->memory_reserved ? extents : 0;
		of->flash_reserved = flash <= left_flash ? flash : 0;
		left_flash -= of->flash_reserved;
	}
}

void limits_start(struct run *run)
{
	struct random random = run->random;
	run->acting = -1;
	run->config.limited = run->seed % 3 == 1;
	if (!run->config.limited)
		return;
	/* Several tenants, and not enough memory for all of them. */
	run->config.ntenants = 2 + (uint32_t)(run->seed / 3 % 2);
	if (run->config.nspaces < run->config.ntenants)
		run->config.nspaces = run->config.ntenants;
	if (run->seed / 6 % 2) {
		run->config.memory_bytes = 8 << 20;
		run->config.part_bytes = 400000;
	}
	/* Of their own, so that the rest of the seed is what it would be without. */
	random_init(&run->random, run->seed ^ 0x11111);
	limits_draw(run);
	run->random = random;
}

/* As options take them: named ones, and one for all others. Returns how many. */
uint32_t limits_of(const struct run *run, struct cairn_tenant_limits ret[TENANTS])
{
	static const char *const names[TENANTS] = {"t0", "t1", NULL};
	uint64_t memory = run->config.memory_bytes, flash = least_budget(run);
	if (!run->config.limited)
		return 0;
	for (uint32_t t = 0; t < TENANTS; t++) {
		const struct limits *of = &run->limits[t];
		ret[t] = (struct cairn_tenant_limits){.tenant = names[t],
		                                      .memory_quota_bytes = memory / 100 * of->memory_quota,
		                                      .memory_reserved_bytes = memory / 100 * of->memory_reserved,
		                                      .flash_quota_bytes = flash / 100 * of->flash_quota,
		                                      .flash_reserved_bytes = flash / 100 * of->flash_reserved,
		                                      .share = of->share};
	}
	return TENANTS;
}

/* ---- what was before a call -------------------------------------------------------------------------------------- */

/* The tenant's number in the open store; -1: it has not been described yet. */
static int number_of(const struct run *run, uint32_t tenant)
{
	for (uint32_t i = 0; i < run->config.nspaces; i++)
		if (run->spaces[i].tenant == tenant && run->spaces[i].handle)
			return (int)run->spaces[i].handle->tenant;
	return -1;
}

static int dirty(const struct run *run, uint32_t tenant)
{
	for (uint32_t b = 0; b < run->nblocks; b++)
		for (uint32_t p = 0; p < run->blocks[b].nparts; p++)
			if (run->spaces[run->blocks[b].space].tenant == tenant && run->blocks[b].parts[p].memory &&
			    !run->blocks[b].parts[p].flash)
				return 1;
	return 0;
}

void limits_begin(struct run *run)
{
	if (!run->config.limited || !run->store || run->dead)
		return;
	for (uint32_t t = 0; t < run->config.ntenants; t++) {
		struct had *had = &run->had[t];
		int number = number_of(run, t);
		*had = (struct had){0};
		if (number < 0)
			continue;
		const struct tenant *of = &run->store->tenants[number];
		had->memory_bytes = memory_tenant_used(run->store->memory, (uint32_t)number);
		had->extents =
			memory_tenant_bytes(run->store->memory, (uint32_t)number) / memory_extent_bytes(run->store->memory);
		had->flash_bytes = of->flash_bytes;
		had->dirty = (uint8_t)dirty(run, t);
	}
}

/* An event of a tenant's part. */
void limits_event(struct run *run, const struct block *block, const struct cairn_event *e)
{
	uint32_t tenant = run->spaces[block->space].tenant;
	struct had *had = &run->had[tenant];
	int flash = e->tier != CAIRN_TIER_MEMORY;
	if (!run->config.limited || run->opening)
		return;
	if (e->kind == CAIRN_EVENT_STORED) {
		had->stored[flash] = 1;
		return;
	}
	/* A block that lost a part in flash has no use of what is left of it in memory. */
	for (uint32_t i = 0; i < block->nparts && !flash; i++)
		if (block->parts[i].removed_op == run->op && !block->parts[i].flash && !block->parts[i].memory)
			return;
	if (e->reason == CAIRN_WHY_EVICTED && !had->lost[flash])
		had->lost[flash] = 1 + block_number(run, block);
}

/* ---- judgements -------------------------------------------------------------------------------------------------- */

/* Whose own requests were under way may have evicted for itself. */
static void reserves_judge(struct run *run)
{
	uint64_t extent = memory_extent_bytes(run->store->memory);
	for (uint32_t t = 0; t < run->config.ntenants; t++) {
		const struct had *had = &run->had[t];
		int number = number_of(run, t);
		if (number < 0 || run->acting < 0 || (uint32_t)run->acting == t)
			continue;
		const struct tenant_limits *limits = &run->store->tenants[number].limits;
		uint64_t extents = (limits->memory_reserved_bytes + extent - 1) / extent;
		if (had->lost[0] && limits->memory_reserved_bytes && !had->stored[0] && had->extents <= extents &&
		    had->memory_bytes <= limits->memory_reserved_bytes)
			run_fail(run, "block %u of tenant %u left memory for tenant %d: of %llu reserved bytes it had %llu",
			         had->lost[0] - 1, t, run->acting, (unsigned long long)limits->memory_reserved_bytes,
			         (unsigned long long)had->memory_bytes);
		if (had->lost[1] && limits->flash_reserved_bytes && !had->stored[1] && !had->dirty &&
		    had->flash_bytes < limits->flash_reserved_bytes)
			run_fail(run, "block %u of tenant %u left flash for tenant %d: of %llu reserved bytes it had %llu",
			         had->lost[1] - 1, t, run->acting, (unsigned long long)limits->flash_reserved_bytes,
			         (unsigned long long)had->flash_bytes);
	}
}

/* Segments of a device that a quota of flash allows: the device has its part of it, and no less than two. */
static uint32_t segments_most(const struct run *run, uint32_t device, uint64_t quota)
{
	const cairn *store = run->store;
	const struct device *d = &store->devices[device];
	uint64_t all = 0;
	for (uint32_t i = 0; i < store->ndevices; i++)
		all += store->devices[i].flash ? store->devices[i].budget_bytes : 0;
	double part = (double)d->budget_bytes / (double)all;
	uint64_t segments = (uint64_t)((double)quota * part) / ((uint64_t)d->pages_per_segment * FMT_PAGE);
	return segments < 2 ? 2 : (uint32_t)segments;
}

static void quotas_judge(struct run *run)
{
	for (uint32_t t = 0; t < run->config.ntenants; t++) {
		int number = number_of(run, t);
		if (number < 0)
			continue;
		const struct tenant *of = &run->store->tenants[number];
		uint64_t memory = memory_tenant_used(run->store->memory, (uint32_t)number);
		uint64_t quota = of->limits.memory_quota_bytes, flash_quota = of->limits.flash_quota_bytes;
		uint64_t most = quota > run->over[t].memory_bytes ? quota : run->over[t].memory_bytes;
		if (quota && memory > most)
			run_fail(run, "tenant %u has %llu bytes of memory, and may have %llu", t, (unsigned long long)memory,
			         (unsigned long long)most);
		run->over[t].memory_bytes = memory;
		for (uint32_t d = 0; d < run->store->ndevices; d++) {
			const struct flash *flash = run->store->devices[d].flash;
			uint32_t *over = &run->over[t].segments[d];
			if (!flash)
				continue;
			/* What is carried over needs a place until that which is being freed is, and is not refused one. */
			uint32_t may = flash_quota ? segments_most(run, d, flash_quota) : UINT32_MAX, has = of->segments[d];
			if (flash_quota && *over != UINT32_MAX && has > (may > *over ? may : *over) + 1)
				run_fail(run, "tenant %u has %u segments of device %u, and may have %u", t, has, d, may);
			*over = has < *over ? has : *over;
		}
	}
}

void limits_end(struct run *run)
{
	if (!run->config.limited || run->dead || !run->store)
		return;
	if (!run->opening)
		reserves_judge(run);
	quotas_judge(run);
}

/* Limits, or what they are parts of, are others now: what is over them may stay. */
void limits_changed(struct run *run)
{
	for (uint32_t t = 0; t < run->config.ntenants && run->config.limited; t++) {
		int number = number_of(run, t);
		run->over[t].memory_bytes = UINT64_MAX; /* nothing is known of it yet */
		for (uint32_t d = 0; d < DEVICES; d++)
			run->over[t].segments[d] = UINT32_MAX;
		if (number < 0 || run->dead)
			continue;
		run->over[t].memory_bytes = memory_tenant_used(run->store->memory, (uint32_t)number);
		for (uint32_t d = 0; d < run->store->ndevices; d++)
			run->over[t].segments[d] = run->store->tenants[number].segments[d];
	}
}

/* Whether a status says that a tenant's quota was the reason, and it may have been. */
int limits_excuse(const struct run *run, uint32_t space, int memory)
{
	const struct limits *of =
		&run->limits[run->spaces[space].tenant < TENANTS - 1 ? run->spaces[space].tenant : TENANTS - 1];
	return run->config.limited && (memory ? of->memory_quota : of->flash_quota) != 0;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static void limits_change(struct run *run)
{
	struct cairn_tenant_limits limits[TENANTS];
	limits_draw(run);
	run_note(run, "other limits");
	run_begin(run);
	uint32_t n = limits_of(run, limits);
	int error = cairn_limits(run->store, limits, n);
	limits_changed(run);
	run_end(run, "limits");
	if (error && !run->dead)
		run_fail(run, "limits: %s: %s", cairn_status_name(error), cairn_error_text());
}

/* When nothing fails and nobody holds anything, each tenant can put a block, durably, and get it. */
void limits_fair(struct run *run)
{
	for (int i = 0; i < MATCHES; i++)
		match_end(run, &run->matches[i]);
	for (int i = 0; i < LEASES; i++)
		lease_end(run, &run->leases[i]);
	run_note(run, "each tenant puts and gets");
	for (uint32_t s = 0; s < run->config.nspaces && s < run->config.ntenants && !run->dead; s++) {
		struct block *block = block_new(run, s, -1, 0);
		if (!block)
			return;
		int32_t number = (int32_t)block_number(run, block);
		run->unfair = 1;
		op_put_items(run, &number, 1, CAIRN_DURABLE_FLASH, 0);
		if (!run->dead)
			op_get_block(run, (uint32_t)number);
		run->unfair = 0;
	}
}

void op_limits(struct run *run)
{
	if (!run->config.limited)
		return;
	if (percent(run, 40))
		limits_change(run);
	else if (!run_troubled(run) && !run->config.chaos && !run->config.full && !run->readonly)
		limits_fair(run);
}
