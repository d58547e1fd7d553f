/* SPDX-License-Identifier: Apache-2.0 */
/* What this store tells its peers of itself: presence of parts in memory and flash. See peer.h. */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "store/peer.h"

#define HERE_CHUNK     256u /* keys looked at before others get the lock */
#define HERE_FOUND_MAX ((WIRE_BODY_MAX - 4096u) / WIRE_FOUND_BYTES)

void flash_pace(const cairn *store, double *ret_wait_s, double *ret_bytes_s)
{
	uint64_t now = clock_mono_ns(store->clock);
	*ret_wait_s = *ret_bytes_s = 0;
	for (uint32_t i = 0; i < store->ndevices; i++) {
		const struct device *device = &store->devices[i];
		if (!device->flash)
			continue;
		double wait_s = rate_wait_s(&device->reads, STORE_FLASH_BYTES_S, now);
		*ret_bytes_s += rate_bytes_s(&device->reads, STORE_FLASH_BYTES_S, now);
		*ret_wait_s = wait_s > *ret_wait_s ? wait_s : *ret_wait_s;
	}
}

struct here_work {
	cairn *store;
	const struct wire_presence *ask;
	const struct cairn_space *space;
	struct wire_found *found;
	size_t n, room;
};

/* One part, if it is here. 0 or NOMEM. */
static int here_part(struct here_work *work, uint32_t key, uint32_t part)
{
	cairn *store = work->store;
	const uint8_t *bytes = work->ask->keys.keys[key].bytes;
	uint32_t entry = catalog_find(store->catalog, work->space->number, bytes, part);
	const struct catalog_entry *e = entry ? catalog_at(store->catalog, entry) : NULL;
	if (!e || (e->flags & (CATALOG_GHOST | CATALOG_MANIFEST)) || ((e->flags & CATALOG_TAIL) && !work->ask->tails))
		return 0;
	const struct memory_slot *s = e->slot ? memory_slot(store->memory, e->slot) : NULL;
	int memory = s && s->state == MEMORY_READY && !memcmp(s->key_rest, bytes + 16, 16);
	if (!memory && !(e->flags & CATALOG_FLASH))
		return 0;
	if (work->n == work->room) {
		size_t room = work->room ? 2 * work->room : 256;
		struct wire_found *grown = mem_grow(work->found, room * sizeof(*grown));
		if (!grown)
			return err_set(CAIRN_E_NOMEM, "no memory for an answer");
		work->found = grown;
		work->room = room;
	}
	work->found[work->n++] = (struct wire_found){.key = key,
	                                             .part = (uint16_t)part,
	                                             .tier = memory ? CAIRN_TIER_MEMORY : CAIRN_TIER_FLASH,
	                                             .tail = (e->flags & CATALOG_TAIL) != 0,
	                                             .length = e->length,
	                                             .check = catalog_check_of(e)};
	return 0;
}

long store_presence(cairn *store, const struct wire_presence *ask, struct wire_found **ret_found, double *ret_wait_s,
                    double *ret_flash_bytes_s)
{
	struct here_work work = {.store = store, .ask = ask};
	int error = 0;
	pthread_mutex_lock(&store->lock);
	work.space = store_space_by_id(store, ask->space.bytes, 0);
	uint32_t nparts = work.space && work.space->described && !work.space->misses ? work.space->space.desc.nparts : 0;
	for (uint32_t key = 0; key < ask->keys.nkeys && nparts && !error; key++) {
		if (key && key % HERE_CHUNK == 0) {
			pthread_mutex_unlock(&store->lock);
			pthread_mutex_lock(&store->lock);
		}
		if (key % CATALOG_WARM == 0) {
			size_t left = ask->keys.nkeys - key;
			catalog_warm(store->catalog, work.space->number, ask->keys.keys + key,
			             left < CATALOG_WARM ? left : CATALOG_WARM);
		}
		if (work.n + nparts > HERE_FOUND_MAX)
			break;
		for (uint32_t part = 0; part < nparts && !error; part++)
			if (ask->parts >> part & 1)
				error = here_part(&work, key, part);
	}
	flash_pace(store, ret_wait_s, ret_flash_bytes_s);
	pthread_mutex_unlock(&store->lock);
	if (error) {
		mem_free(work.found);
		return error;
	}
	*ret_found = work.found;
	return (long)work.n;
}
