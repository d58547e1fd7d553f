/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants: who they are, what each may have and what is kept for it, and what is counted. Who evicts for whom is
 * decided where room is made: memory in slot_take (entry.c) and tier/memory.c, flash in host.c.
 *
 * Threads: under the store's lock. Memory: the named limits, and an owner for each segment, taken at open.
 * Invariant: a tenant's flash_bytes are those of the segments that it owns, whatever lives in them.
 */
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/remote.h"
#include "store/store.h"

#define SHARE_DEFAULT 100u
#define SHARE_MAX 10000u

/* ---- who --------------------------------------------------------------------------------------------------------- */

static const struct tenant_limits *limits_of(const cairn *store, const uint8_t digest[32])
{
	for (uint32_t i = 0; i < store->nnamed; i++)
		if (!memcmp(store->named[i].digest, digest, 32))
			return &store->named[i].limits;
	return &store->unnamed;
}

static void limits_apply(cairn *store, uint32_t tenant)
{
	struct tenant *t = &store->tenants[tenant];
	t->limits = *limits_of(store, t->digest);
	if (!t->limits.share)
		t->limits.share = SHARE_DEFAULT;
	struct memory_limits memory = {.quota_bytes = t->limits.memory_quota_bytes,
	                               .reserved_bytes = t->limits.memory_reserved_bytes};
	if (store->memory)
		memory_limit(store->memory, tenant, &memory);
	for (uint32_t i = 0; i < store->ndevices; i++)
		if (store->devices[i].flash)
			flash_share(store->devices[i].flash, tenant, t->limits.share);
}

uint32_t tenant_find(const cairn *store, const uint8_t digest[16])
{
	for (uint32_t i = 0; i < store->ntenants; i++)
		if (!memcmp(store->tenants[i].digest, digest, 16))
			return i;
	return TENANT_NONE;
}

static uint64_t segment_bytes(const struct device *device)
{
	return (uint64_t)device->pages_per_segment * FMT_PAGE;
}

static void owner_set(cairn *store, uint32_t device, uint32_t segment, uint32_t tenant)
{
	struct device *d = &store->devices[device];
	struct owner *owner = &d->owners[segment];
	if (owner->tenant) {
		store->tenants[owner->tenant - 1].segments[device]--;
		store->tenants[owner->tenant - 1].flash_bytes -= segment_bytes(d);
	}
	owner->tenant = (uint8_t)(tenant == TENANT_NONE ? 0 : tenant + 1);
	if (tenant != TENANT_NONE) {
		store->tenants[tenant].segments[device]++;
		store->tenants[tenant].flash_bytes += segment_bytes(d);
	}
}

void tenant_own(cairn *store, uint32_t device, uint32_t segment, const uint8_t *digest)
{
	struct device *d = &store->devices[device];
	check(segment < d->nsegments);
	memset(d->owners[segment].digest, 0, 16);
	if (digest)
		memcpy(d->owners[segment].digest, digest, 16);
	owner_set(store, device, segment, digest ? tenant_find(store, digest) : (uint32_t)TENANT_NONE);
}

int store_tenant(cairn *store, const uint8_t digest[32])
{
	for (uint32_t i = 0; i < store->ntenants; i++)
		if (!memcmp(store->tenants[i].digest, digest, 32))
			return (int)i;
	if (store->ntenants == CAIRN_TENANTS_MAX)
		return err_set(CAIRN_E_BUSY, "%u tenants have memory already: that is the limit", CAIRN_TENANTS_MAX);
	uint32_t tenant = store->ntenants++;
	memcpy(store->tenants[tenant].digest, digest, 32);
	limits_apply(store, tenant);
	/* Segments that were found before its first description. */
	for (uint32_t d = 0; d < store->ndevices; d++)
		for (uint32_t s = 0; store->devices[d].owners && s < store->devices[d].nsegments; s++)
			if (!memcmp(store->devices[d].owners[s].digest, digest, 16))
				owner_set(store, d, s, tenant);
	return (int)tenant;
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static const char *name_of(const struct cairn_tenant_limits *limits)
{
	return limits->tenant ? limits->tenant : "all others";
}

static int limits_check_one(const struct cairn_tenant_limits *limits, uint32_t n, uint32_t index)
{
	const struct cairn_tenant_limits *one = &limits[index];
	if (one->tenant && (!one->tenant[0] || strlen(one->tenant) > 255))
		return err_set(CAIRN_E_INVAL, "limits: a tenant's name has 1 to 255 bytes");
	if (one->share > SHARE_MAX)
		return err_set(CAIRN_E_INVAL, "limits of %s: a share of %u; at most %u", name_of(one), one->share, SHARE_MAX);
	if ((one->memory_quota_bytes && one->memory_reserved_bytes > one->memory_quota_bytes) ||
	    (one->flash_quota_bytes && one->flash_reserved_bytes > one->flash_quota_bytes))
		return err_set(CAIRN_E_INVAL, "limits of %s: more is reserved than its quota allows", name_of(one));
	if (!one->tenant && (one->memory_reserved_bytes || one->flash_reserved_bytes))
		return err_set(CAIRN_E_INVAL, "limits of all others: what is reserved is reserved for a tenant by name");
	for (uint32_t i = index + 1; i < n; i++)
		if (one->tenant == limits[i].tenant ||
		    (one->tenant && limits[i].tenant && !strcmp(one->tenant, limits[i].tenant)))
			return err_set(CAIRN_E_INVAL, "limits of %s are given twice", name_of(one));
	return 0;
}

static int limits_check(const cairn *store, const struct cairn_tenant_limits *limits, uint32_t n)
{
	struct memory_stat memory;
	uint64_t extent = memory_extent_bytes(store->memory), extents = 0, reserved = 0, flash = 0;
	memory_stat(store->memory, &memory);
	if (n > CAIRN_TENANTS_MAX || (n && !limits))
		return err_set(CAIRN_E_INVAL, "limits of %u tenants: at most %d", n, CAIRN_TENANTS_MAX);
	for (uint32_t i = 0; i < n; i++) {
		int error = limits_check_one(limits, n, i);
		if (error)
			return error;
		if (limits[i].memory_reserved_bytes > memory.capacity_bytes)
			return err_set(CAIRN_E_INVAL, "limits of %s: more memory is reserved than there is: %llu bytes",
			               name_of(&limits[i]), (unsigned long long)memory.capacity_bytes);
		extents += (limits[i].memory_reserved_bytes + extent - 1) / extent;
		reserved = reserved + limits[i].flash_reserved_bytes < reserved ? UINT64_MAX
		                                                               : reserved + limits[i].flash_reserved_bytes;
	}
	for (uint32_t i = 0; i < store->ident.ndevices; i++)
		flash += store->ident.device[i].budget_bytes;
	if (extents * extent > memory.capacity_bytes)
		return err_set(CAIRN_E_INVAL,
		               "limits: the memory that all reserve, each in whole extents of %llu bytes, is %llu bytes; the "
		               "tier has %llu: reserve less, or raise memory_bytes",
		               (unsigned long long)extent, (unsigned long long)(extents * extent),
		               (unsigned long long)memory.capacity_bytes);
	if (reserved && store->path && reserved > flash / 8 * 7)
		return err_set(CAIRN_E_INVAL,
		               "limits: all together reserve %llu bytes of flash; at most 7/8 of its %llu can be",
		               (unsigned long long)reserved, (unsigned long long)flash);
	return 0;
}

static void named_free(struct tenant_named *named, uint32_t n)
{
	for (uint32_t i = 0; i < n && named; i++)
		mem_free(named[i].name);
	mem_free(named);
}

int tenant_limits(cairn *store, const struct cairn_tenant_limits *limits, uint32_t n)
{
	int error = limits_check(store, limits, n);
	struct tenant_named *named = error ? NULL : mem_array(n + 1, sizeof(*named));
	struct tenant_limits unnamed = {0};
	uint32_t used = 0;
	if (error)
		return error;
	for (uint32_t i = 0; i < n && named; i++) {
		struct tenant_limits of = {.memory_quota_bytes = limits[i].memory_quota_bytes,
		                           .memory_reserved_bytes = limits[i].memory_reserved_bytes,
		                           .flash_quota_bytes = limits[i].flash_quota_bytes,
		                           .flash_reserved_bytes = limits[i].flash_reserved_bytes,
		                           .share = limits[i].share};
		if (!limits[i].tenant) {
			unnamed = of;
			continue;
		}
		named[used].limits = of;
		key_tenant_digest(limits[i].tenant, strlen(limits[i].tenant), named[used].digest);
		named[used].name = mem_copy_string(limits[i].tenant);
		error |= !named[used++].name;
	}
	if (error || !named) {
		named_free(named, used);
		return err_set(CAIRN_E_NOMEM, "no memory for the limits of %u tenants", n);
	}
	named_free(store->named, store->nnamed);
	store->named = named;
	store->nnamed = used;
	store->unnamed = unnamed;
	for (uint32_t i = 0; i < store->ntenants; i++)
		limits_apply(store, i);
	return 0;
}

void tenant_done(cairn *store)
{
	named_free(store->named, store->nnamed);
	for (uint32_t i = 0; i < store->ndevices; i++) {
		mem_free(store->devices[i].accounts);
		mem_free(store->devices[i].owners);
	}
}

/* What a tenant has in memory over a new quota. Returns whether there may be more. */
static int memory_trim(cairn *store, uint32_t tenant)
{
	for (int i = 0; i < STORE_SWEEP; i++) {
		uint32_t victim = memory_over(store->memory, tenant, 0) ? memory_victim(store->memory, tenant) : 0;
		if (!victim)
			return 0;
		entry_memory_clear(store, memory_slot(store->memory, victim)->entry, CAIRN_WHY_EVICTED);
	}
	return 1;
}

CAIRN_API int cairn_limits(cairn *store, const struct cairn_tenant_limits *tenants, size_t ntenants)
{
	if (!store || (ntenants && !tenants))
		return err_set(CAIRN_E_INVAL, "limits: no store, or no limits");
	if (store->remote)
		return err_set(CAIRN_E_ACCESS, "limits: those of a cairnd are in its configuration");
	pthread_mutex_lock(&store->lock);
	int error = tenant_limits(store, tenants, ntenants > UINT32_MAX ? UINT32_MAX : (uint32_t)ntenants);
	(void)watch_now(store);
	for (uint32_t i = 0; i < store->ntenants && !error; i++)
		while (memory_trim(store, i)) { /* others get a turn */
			pthread_mutex_unlock(&store->lock);
			pthread_mutex_lock(&store->lock);
		}
	pthread_mutex_unlock(&store->lock);
	return error;
}

/* ---- what may be taken ------------------------------------------------------------------------------------------- */

int tenant_flash_full(const cairn *store, uint32_t device, uint32_t tenant)
{
	const struct device *d = &store->devices[device];
	uint64_t all = 0, segment = segment_bytes(d);
	if (tenant == TENANT_NONE || !store->tenants[tenant].limits.flash_quota_bytes)
		return 0;
	for (uint32_t i = 0; i < store->ndevices; i++)
		all += store->devices[i].flash ? store->devices[i].budget_bytes : 0;
	/* Each device has its part of the quota, as it has of the budget: what is over it here can only go here. */
	double part = all ? (double)d->budget_bytes / (double)all : 1;
	uint64_t segments = (uint64_t)((double)store->tenants[tenant].limits.flash_quota_bytes * part) / segment;
	return store->tenants[tenant].segments[device] >= (segments < 2 ? 2 : segments);
}

int tenant_flash_guarded(const cairn *store, uint32_t device, uint32_t tenant)
{
	if (tenant == TENANT_NONE)
		return 0;
	const struct tenant *t = &store->tenants[tenant];
	return t->limits.flash_reserved_bytes &&
	       t->flash_bytes < t->limits.flash_reserved_bytes + segment_bytes(&store->devices[device]);
}

int tenant_entry_guarded(const cairn *store, const struct catalog_entry *e, uint32_t tenant)
{
	uint32_t owner = store->spaces[e->space - 1]->tenant;
	const struct tenant_limits *limits = &store->tenants[owner].limits;
	if (owner == tenant || (e->flags & CATALOG_GHOST))
		return 0;
	return (e->flags & CATALOG_FLASH && tenant_flash_guarded(store, e->device, owner)) ||
	       (e->slot && limits->memory_reserved_bytes &&
	        memory_tenant_used(store->memory, owner) <= limits->memory_reserved_bytes);
}

int tenant_may_ask(const cairn *store, uint32_t tenant)
{
	return store->tenants[tenant].reqs < 4 * (STORE_REQS - store->reqs_used);
}

int tenant_may_dirty(const cairn *store, uint32_t tenant, uint64_t bytes)
{
	uint64_t left = store->dirty_bytes < store->dirty_max ? store->dirty_max - store->dirty_bytes : 0;
	return store->tenants[tenant].dirty_bytes + bytes <= 4 * left;
}

struct store_req *tenant_req_take(cairn *store, uint32_t tenant, uint64_t deadline_ns)
{
	while (!tenant_may_ask(store, tenant))
		if (store_wait(store, deadline_ns))
			return NULL;
	struct store_req *req = store_req_take(store, deadline_ns);
	if (req) {
		req->tenant = tenant + 1;
		store->tenants[tenant].reqs++;
	}
	return req;
}

int tenant_never(const cairn *store, uint32_t tenant, uint64_t bytes)
{
	uint64_t quota = store->tenants[tenant].limits.memory_quota_bytes;
	return quota && bytes > quota;
}

int32_t tenant_refuse(cairn *store, uint32_t tenant, uint64_t bytes, int32_t error, const char *what)
{
	struct tenant *t = &store->tenants[tenant];
	uint32_t length = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
	if (!memory_over(store->memory, tenant, length))
		return err_set(error, "%s: memory is full of leases and of writes under way: try again", what);
	t->stat.quota_refused++;
	return err_set(error == CAIRN_E_BUSY ? CAIRN_E_QUOTA : error,
	               "%s: %llu bytes more are over the tenant's memory quota of %llu, and nothing of its own may be "
	               "evicted now: release leases, or raise the quota",
	               what, (unsigned long long)bytes, (unsigned long long)t->limits.memory_quota_bytes);
}

/* ---- what is told ------------------------------------------------------------------------------------------------ */

static void stat_of(const cairn *store, uint32_t tenant, struct cairn_tenant_stat *to)
{
	const struct tenant *t = &store->tenants[tenant];
	*to = t->stat;
	to->size = sizeof(*to);
	to->tenant = "";
	for (uint32_t i = 0; i < store->nnamed; i++)
		if (!memcmp(store->named[i].digest, t->digest, 32))
			to->tenant = store->named[i].name;
	to->memory_bytes = memory_tenant_used(store->memory, tenant);
	to->flash_bytes = t->flash_bytes;
	to->leased_bytes = t->leased_bytes;
	to->memory_quota_bytes = t->limits.memory_quota_bytes;
	to->memory_reserved_bytes = t->limits.memory_reserved_bytes;
	to->flash_quota_bytes = t->limits.flash_quota_bytes;
	to->flash_reserved_bytes = t->limits.flash_reserved_bytes;
	to->share = t->limits.share;
	for (uint32_t i = 0; i < store->nspaces; i++) {
		const struct cairn_space *space = store->spaces[i];
		if (space->tenant != tenant || (!space->described && !space->manifest))
			continue;
		to->flash_live_bytes += space->flash_bytes;
		to->flash_parts += space->flash_parts;
		if (space->described && !to->tenant[0])
			to->tenant = space->space.desc.tenant;
	}
}

CAIRN_API long cairn_list_tenants(cairn *store, int (*each)(void *arg, const struct cairn_tenant_stat *stat), void *arg)
{
	if (!store || !each)
		return err_set(CAIRN_E_INVAL, "tenants: no store, or nothing to call back");
	if (store->remote)
		return remote_list_tenants(store, each, arg);
	struct cairn_tenant_stat *all = mem_array(CAIRN_TENANTS_MAX, sizeof(*all));
	char(*names)[256] = mem_array(CAIRN_TENANTS_MAX, sizeof(*names));
	long calls = 0;
	uint32_t n = 0;
	if (!all || !names) {
		mem_free(all);
		mem_free(names);
		return err_set(CAIRN_E_NOMEM, "no memory to list tenants");
	}
	pthread_mutex_lock(&store->lock);
	for (; n < store->ntenants; n++) {
		stat_of(store, n, &all[n]);
		strncat(names[n], all[n].tenant, sizeof(names[n]) - 1);
		all[n].tenant = names[n];
	}
	pthread_mutex_unlock(&store->lock);
	for (uint32_t i = 0; i < n; i++) {
		calls++;
		if (each(arg, &all[i]))
			break;
	}
	mem_free(all);
	mem_free(names);
	return calls;
}
