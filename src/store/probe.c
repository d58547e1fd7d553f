/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the store works: a part is put, read back and taken away again, in a space that nobody else can name and that
 * is neither counted nor listed. And whether the devices' loops answer.
 *
 * Threads: any, one probe at a time; takes the store's lock. Memory: one space, at the first probe.
 * Invariant: a probe leaves nothing behind, in no tier; it writes nothing to flash.
 */
#include <string.h>

#include "base/digest.h"
#include "base/err.h"
#include "store/store.h"

enum {
	PROBE_BYTES = 4096
};

/* The lock is held. NULL: no memory, or too many tenants. */
static struct cairn_space *probe_space(cairn *store)
{
	static const cairn_digest weights = {{1}};
	struct cairn_group group = {.block_tokens = 1};
	uint8_t generation[16];
	if (store->probe)
		return store->probe;
	digest_random(generation, sizeof(generation)); /* nobody else describes the same */
	struct cairn_space_desc desc = {.size = sizeof(desc),
	                                .model = "probe",
	                                .weights = &weights,
	                                .kv_dtype = "bytes",
	                                .generation = generation,
	                                .groups = &group,
	                                .ngroups = 1};
	cairn_digest id;
	if (cairn_space_id(&desc, &id))
		return NULL;
	struct cairn_space *space = store_space_by_id(store, id.bytes, 1);
	if (!space || key_space_from_desc(&desc, &space->space))
		return NULL;
	/* Of whatever tenant has memory already: another one would take an extent from it. */
	int tenant = store->ntenants ? 0 : store_tenant(store, space->space.tenant_digest);
	if (tenant < 0) {
		key_space_done(&space->space);
		return NULL;
	}
	space->tenant = (uint8_t)tenant;
	space->internal = space->described = space->kept = 1;
	digest_random(store->probe_key.bytes, sizeof(store->probe_key.bytes));
	return store->probe = space;
}

static void probe_clean(cairn *store, struct cairn_space *space)
{
	pthread_mutex_lock(&store->lock);
	uint32_t entry = catalog_find(store->catalog, space->number, store->probe_key.bytes, 0);
	if (entry && !(catalog_at(store->catalog, entry)->flags & CATALOG_GHOST))
		entry_remove(store, entry, CAIRN_WHY_EXPIRED);
	pthread_mutex_unlock(&store->lock);
}

int store_probe(cairn *store, uint32_t timeout_ms)
{
	uint8_t bytes[PROBE_BYTES], back[PROBE_BYTES];
	uint64_t seed = clock_mono_ns(store->clock);
	pthread_mutex_lock(&store->lock);
	struct cairn_space *space = probe_space(store);
	pthread_mutex_unlock(&store->lock);
	if (!space)
		return err_set(CAIRN_E_NOMEM, "probe: no memory for a space");
	for (size_t i = 0; i < sizeof(bytes); i += sizeof(seed)) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		memcpy(bytes + i, &seed, sizeof(seed));
	}
	/* As a tail: those go to flash with their session alone. */
	struct cairn_buf buf = cairn_buf_of(bytes, sizeof(bytes));
	struct cairn_item item = {.key = store->probe_key, .bufs = &buf, .nbufs = 1, .flags = CAIRN_ITEM_TAIL};
	struct cairn_call call = {.size = sizeof(call), .timeout_ms = timeout_ms};
	long n = cairn_put(store, space, &item, 1, &call);
	int status = n < 0 ? (int)n : item.status;
	if (!status) {
		buf = cairn_buf_of(back, sizeof(back));
		item.bufs = &buf;
		n = cairn_get(store, space, &item, 1, &call);
		status = n < 0 ? (int)n : item.status;
	}
	if (!status && memcmp(bytes, back, sizeof(bytes)) != 0)
		status = err_set(CAIRN_DAMAGED, "probe: other bytes came back than were put");
	probe_clean(store, space);
	return status;
}

int store_probe_flash(cairn *store, uint32_t timeout_ms)
{
	if (store->flags & CAIRN_OPEN_READONLY)
		return 0;
	pthread_mutex_lock(&store->lock);
	int status = store_has_flash(store) ? store_sync(store, store_deadline(store, timeout_ms)) : 0;
	pthread_mutex_unlock(&store->lock);
	return status;
}

void store_load(cairn *store, struct store_load *ret_load)
{
	pthread_mutex_lock(&store->lock);
	uint32_t unused = 0;
	for (const struct list *node = store->reqs_free.next; node != &store->reqs_free; node = node->next)
		unused++;
	*ret_load = (struct store_load){.requests = STORE_REQS - unused,
	                                .requests_max = STORE_REQS,
	                                .dirty_bytes = store->dirty_bytes,
	                                .dirty_max_bytes = store->dirty_max,
	                                .events = store->event_last};
	pthread_mutex_unlock(&store->lock);
}
