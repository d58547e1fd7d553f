/* SPDX-License-Identifier: Apache-2.0 */
/* Describing spaces, regions, and the answers about the store as a whole: lists, statistics, events.
 * Threads: the caller's, under the store's lock. Memory: spaces are kept until close. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/identity.h"
#include "store/peer.h"
#include "store/remote.h"
#include "store/store.h"

/* ---- spaces ------------------------------------------------------------------------------------------------------ */

/* Puts the description into every device's ledger, so that the store can tell later what its parts are. */
static int space_keep(cairn *store, struct cairn_space *space)
{
	enum { CHUNK = 3072 };
	const struct key_space *key = &space->space;
	for (size_t offset = 0; offset < key->canon_length; offset += CHUNK) {
		struct ledger_record record = {.type = LEDGER_SPACE};
		memcpy(record.u.space.id, space->id, 32);
		record.u.space.offset = (uint32_t)offset;
		record.u.space.total = (uint32_t)key->canon_length;
		record.u.space.bytes = key->canon + offset;
		size_t left = key->canon_length - offset;
		record.u.space.length = (uint16_t)(left < CHUNK ? left : CHUNK);
		int error = store_decide(store, &record);
		if (error)
			return error;
	}
	return 0;
}

/* A space of the tenant that the token is of; "public" is everybody's. */
static int describe_remote(const cairn *store, const struct cairn_space_desc *desc, struct cairn_space_desc *ret_own)
{
	const char *tenant = NULL;
	if (!desc->size || desc->size > 4096)
		return err_set(CAIRN_E_INVAL, "cairn_space_desc: set size to sizeof(struct cairn_space_desc)");
	*ret_own = (struct cairn_space_desc){0};
	memcpy(ret_own, desc, desc->size < sizeof(*ret_own) ? desc->size : sizeof(*ret_own));
	ret_own->size = sizeof(*ret_own);
	if (ret_own->tenant && !strcmp(ret_own->tenant, "public"))
		return 0;
	int error = remote_tenant(store, ret_own->tenant, &tenant);
	ret_own->tenant = tenant;
	return error;
}

CAIRN_API int cairn_describe(cairn *store, const struct cairn_space_desc *desc, cairn_space **ret_space)
{
	cairn_digest id;
	if (!store || !desc || !ret_space)
		return err_set(CAIRN_E_INVAL, "describe: no store, no description or no place for the result");
	struct cairn_space_desc own;
	int error = store->remote ? describe_remote(store, desc, &own) : 0;
	desc = store->remote ? &own : desc;
	if (!error)
		error = cairn_space_id(desc, &id);
	if (error)
		return error;
	pthread_mutex_lock(&store->lock);
	struct cairn_space *space = store_space_by_id(store, id.bytes, 1);
	if (!space) {
		error = err_set(CAIRN_E_NOMEM, "no memory for another space (or %d are in use)", STORE_SPACES);
	} else if (!space->described) {
		error = key_space_from_desc(desc, &space->space);
		int tenant = error ? 0 : store_tenant(store, space->space.tenant_digest);
		if (!error && tenant < 0) {
			key_space_done(&space->space);
			error = tenant;
		}
		if (!error) {
			space->tenant = (uint8_t)tenant;
			space->misses = space->space.kind != KEY_FILE && !space->space.desc.weights;
			space->described = 1;
		}
	}
	if (!error && (desc->cost_a_s != 0 || desc->cost_b_s != 0)) { /* not said: what was said before stays */
		space->space.desc.cost_a_s = desc->cost_a_s;
		space->space.desc.cost_b_s = desc->cost_b_s;
	}
	if (!error && store->remote) {
		pthread_mutex_unlock(&store->lock);
		error = remote_describe(store, space);
		if (!error)
			*ret_space = space;
		return error;
	}
	if (!error && !space->kept && !space->misses && store_has_flash(store) && !(store->flags & CAIRN_OPEN_READONLY)) {
		/* A device that fails now costs the text of `cairn ls`, not the blocks: it is tried again next time. */
		int kept = space_keep(store, space);
		space->kept = kept == 0;
		if (kept == CAIRN_E_FULL)
			error = kept;
	}
	pthread_mutex_unlock(&store->lock);
	if (!error)
		*ret_space = space;
	return error;
}

CAIRN_API void cairn_space_get_id(const cairn_space *space, cairn_digest *ret_id)
{
	memcpy(ret_id->bytes, space->id, 32);
}

CAIRN_API size_t cairn_space_text(const cairn_space *space, char *text, size_t max)
{
	if (space->described)
		return key_space_text(&space->space.desc, text, max);
	if (max)
		text[0] = 0;
	return 0;
}

CAIRN_API int cairn_derive_start(const cairn_space *space, uint32_t group, cairn_derive **ret_derive)
{
	if (!space || !space->described || !ret_derive)
		return err_set(CAIRN_E_INVAL, "derive: the space is not described, or no place for the result");
	return identity_derive_start(&space->space, group, ret_derive);
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

CAIRN_API int cairn_region_register(cairn *store, const struct cairn_region_desc *desc, cairn_region **ret_region)
{
	if (!store || !desc || !ret_region || desc->size < sizeof(*desc) || !desc->length)
		return err_set(CAIRN_E_INVAL, "region: no description, or a length of 0");
	if (desc->kind != CAIRN_REGION_HOST)
		return err_set(CAIRN_E_INVAL, "region: kind %u is not in this version (host memory is)", desc->kind);
	struct cairn_region *region = mem_alloc(sizeof(*region));
	if (!region)
		return err_set(CAIRN_E_NOMEM, "no memory for a region");
	region->address = desc->address;
	region->length = desc->length;
	region->fence = desc->fence;
	region->fence_arg = desc->fence_arg;
	if (desc->fd >= 0) {
		void *mapped = mmap(NULL, desc->length, PROT_READ | PROT_WRITE, MAP_SHARED, desc->fd, (off_t)desc->fd_offset);
		if (mapped == MAP_FAILED) {
			mem_free(region);
			return err_set(CAIRN_E_INVAL, "region: the fd cannot be mapped at %llu",
			               (unsigned long long)desc->fd_offset);
		}
		region->address = mapped;
		region->mapped = 1;
	}
	if (!region->address) {
		mem_free(region);
		return err_set(CAIRN_E_INVAL, "region: neither an fd nor an address");
	}
	*ret_region = region;
	return 0;
}

CAIRN_API int cairn_region_unregister(cairn *store, cairn_region *region)
{
	if (!store || !region)
		return err_set(CAIRN_E_INVAL, "region: none given");
	if (__atomic_load_n(&region->uses, __ATOMIC_ACQUIRE))
		return err_set(CAIRN_E_BUSY, "region: a call uses it: wait for it first");
	if (region->mapped)
		munmap(region->address, region->length);
	mem_free(region);
	return 0;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

CAIRN_API long cairn_list_spaces(cairn *store, int (*each)(void *arg, const struct cairn_space_info *info), void *arg)
{
	enum { TEXT = 16384 };
	if (store->remote)
		return remote_list_spaces(store, each, arg);
	char *text = mem_alloc(TEXT);
	if (!text)
		return err_set(CAIRN_E_NOMEM, "no memory to list spaces");
	long calls = 0;
	int stop = 0;
	pthread_mutex_lock(&store->lock);
	for (uint32_t i = 0; i < store->nspaces && !stop; i++) {
		struct cairn_space *space = store->spaces[i];
		struct cairn_space_info info = {.size = sizeof(info), .text = text};
		if (space->manifest || space->internal || (space->described && space->misses))
			continue;
		memcpy(info.id.bytes, space->id, 32);
		(void)cairn_space_text(space, text, TEXT);
		info.parts = space->count.parts;
		info.bytes = space->count.bytes;
		memcpy(info.tier_parts, space->count.tier_parts, sizeof(info.tier_parts));
		memcpy(info.tier_bytes, space->count.tier_bytes, sizeof(info.tier_bytes));
		memcpy(info.hits, space->count.hits, sizeof(info.hits));
		memcpy(info.hit_bytes, space->count.hit_bytes, sizeof(info.hit_bytes));
		info.misses = space->count.misses;
		info.written_parts = space->count.written_parts;
		info.written_bytes = space->count.written_bytes;
		info.evicted_parts = space->count.evicted_parts;
		info.evicted_bytes = space->count.evicted_bytes;
		pthread_mutex_unlock(&store->lock);
		stop = each(arg, &info);
		calls++;
		pthread_mutex_lock(&store->lock);
	}
	pthread_mutex_unlock(&store->lock);
	mem_free(text);
	return calls;
}

CAIRN_API long cairn_list_parts(cairn *store, const cairn_digest *space_id,
                                int (*each)(void *arg, const struct cairn_part_info *info), void *arg)
{
	if (store->remote)
		return remote_list_parts(store, space_id, each, arg);
	long calls = 0;
	int stop = 0;
	pthread_mutex_lock(&store->lock);
	for (uint32_t entry = catalog_next(store->catalog, 0); entry && !stop;
	     entry = catalog_next(store->catalog, entry)) {
		const struct catalog_entry *e = catalog_at(store->catalog, entry);
		const struct cairn_space *space = store->spaces[e->space - 1];
		if ((e->flags & CATALOG_GHOST) || space->internal ||
		    (space_id ? memcmp(space->id, space_id->bytes, 32) != 0 : space->manifest))
			continue;
		int memory = e->slot && memory_slot(store->memory, e->slot)->state == MEMORY_READY;
		int flash = (e->flags & CATALOG_FLASH) != 0;
		if (!memory && !flash)
			continue;
		struct cairn_part_info info = {
		    .size = sizeof(info),
		    .part = e->part,
		    .tail = (e->flags & CATALOG_TAIL) != 0,
		    .in_memory = (uint32_t)memory,
		    .in_flash = (uint32_t)flash,
		    .device = e->device,
		    .bytes = e->length,
		    .birth = catalog_birth(e),
		};
		memcpy(info.space_id.bytes, space->id, 32);
		memcpy(info.key_prefix, e->prefix, 16);
		pthread_mutex_unlock(&store->lock);
		stop = each(arg, &info);
		calls++;
		pthread_mutex_lock(&store->lock);
	}
	pthread_mutex_unlock(&store->lock);
	return calls;
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

static void device_stat(cairn *store, uint32_t index, struct cairn_device_stat *to)
{
	const struct device *device = &store->devices[index];
	memset(to, 0, sizeof(*to));
	if (device->flash)
		device->ops->stat(device->flash, to);
	else
		to->state = 2;
	size_t length = strlen(device->path);
	memcpy(to->path, device->path, length < sizeof(to->path) ? length + 1 : sizeof(to->path));
	to->path[sizeof(to->path) - 1] = 0;
	to->budget_bytes = device->budget_bytes;
	to->live_bytes = device->live_bytes;
}

CAIRN_API int cairn_stat(cairn *store, struct cairn_stat *ret_stat)
{
	if (!store || !ret_stat || !ret_stat->size || ret_stat->size > sizeof(struct cairn_stat))
		return err_set(CAIRN_E_INVAL, "stat: set size to sizeof(struct cairn_stat)");
	if (store->remote)
		return remote_stat(store, ret_stat);
	struct cairn_stat *stat = mem_alloc(sizeof(*stat));
	if (!stat)
		return err_set(CAIRN_E_NOMEM, "no memory for statistics");
	pthread_mutex_lock(&store->lock);
	*stat = store->stat;
	stat->size = ret_stat->size;
	struct memory_stat memory;
	struct catalog_stat catalog;
	memory_stat(store->memory, &memory);
	catalog_stat(store->catalog, &catalog);
	struct cairn_tier_stat *m = &stat->tier[CAIRN_TIER_MEMORY], *f = &stat->tier[CAIRN_TIER_FLASH];
	m->capacity_bytes = memory.capacity_bytes;
	m->used_bytes = memory.used_bytes;
	m->parts = memory.slots;
	stat->ndevices = store->ndevices;
	for (uint32_t i = 0; i < store->ndevices; i++) {
		device_stat(store, i, &stat->device[i]);
		f->capacity_bytes += stat->device[i].budget_bytes;
		f->used_bytes += stat->device[i].used_bytes;
		f->parts += store->devices[i].live_parts;
	}
	stat->leased_bytes = store->leased_bytes;
	stat->sessions = store->nsessions;
	stat->matches = store->nmatches;
	stat->catalog_bytes = catalog.bytes;
	stat->catalog_entries = catalog.entries;
	stat->catalog_capacity = catalog.capacity;
	stat->alarms = store_alarms(store);
	stat->alarm_minutes = store->alarm.minutes;
	peers_stat(store, stat);
	pthread_mutex_unlock(&store->lock);
	memcpy(ret_stat, stat, ret_stat->size);
	mem_free(stat);
	return 0;
}
