/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drops and explanations. A drop removes parts from every tier at once and is durable in every device's ledger before
 * the
 * call returns; it covers all parts that were born before it, wherever a copy of them may still lie.
 *
 * Threads: the caller's, under the store's lock.
 */
#include <string.h>

#include "base/err.h"
#include "fmt/gone.h"
#include "store/remote.h"
#include "store/store.h"

static int drop_check(cairn *store)
{
	if (!store)
		return err_set(CAIRN_E_INVAL, "drop: no store");
	if (store->flags & CAIRN_OPEN_READONLY)
		return err_set(CAIRN_E_RDONLY, "drop: the store is open read-only");
	return 0;
}

CAIRN_API long cairn_drop(cairn *store, const struct cairn_space *space, const cairn_key *keys, size_t nkeys)
{
	struct ledger_record records[STORE_DECISIONS];
	int error = drop_check(store);
	if (!error && (!space || space->store != store || !space->described || (nkeys && !keys)))
		error = err_set(CAIRN_E_INVAL, "drop: a space of another store, or no keys");
	if (error)
		return error;
	if (store->remote)
		return remote_drop_keys(store, (struct cairn_space *)(uintptr_t)space, keys, nkeys);
	long removed = 0;
	pthread_mutex_lock(&store->lock);
	/* All go at once, before anybody can put one of them anew: that one is born after every decision of this drop. */
	for (size_t k = 0; k < nkeys; k++)
		for (uint32_t part = 0; part < space->space.desc.nparts; part++) {
			uint32_t entry = catalog_find(store->catalog, space->number, keys[k].bytes, part);
			if (!entry || (catalog_at(store->catalog, entry)->flags & CATALOG_GHOST))
				continue;
			entry_remove(store, entry, CAIRN_WHY_DROPPED);
			removed++;
		}
	store->stat.dropped_parts += (uint64_t)removed;
	uint64_t decision = store->next_birth;
	store->next_birth += nkeys;
	for (size_t from = 0; from < nkeys && !error; from += STORE_DECISIONS) {
		size_t n = nkeys - from < STORE_DECISIONS ? nkeys - from : STORE_DECISIONS;
		for (size_t i = 0; i < n; i++) {
			/* The end of a chain first, or what is left of it would go as orphans, uncounted. */
			const cairn_key *key = &keys[nkeys - 1 - from - i];
			memset(&records[i], 0, sizeof(records[i]));
			records[i].type = LEDGER_DROP;
			records[i].u.drop.scope = LEDGER_DROP_KEY;
			records[i].u.drop.decision = decision + from + i;
			memcpy(records[i].u.drop.space, space->id, 32);
			memcpy(records[i].u.drop.what, key->bytes, 32);
		}
		error = store_decide_all(store, records, n);
	}
	pthread_mutex_unlock(&store->lock);
	return error ? error : removed;
}

/* Removes every entry that `hit` says belongs to what is dropped. */
static long remove_spaces(cairn *store, int (*hit)(const struct cairn_space *space, const uint8_t *what),
                          const uint8_t *what)
{
	long removed = 0;
	for (uint32_t entry = catalog_next(store->catalog, 0); entry; entry = catalog_next(store->catalog, entry)) {
		const struct catalog_entry *e = catalog_at(store->catalog, entry);
		if ((e->flags & CATALOG_GHOST) || !hit(store->spaces[e->space - 1], what))
			continue;
		entry_remove(store, entry, CAIRN_WHY_DROPPED);
		removed++;
	}
	store->stat.dropped_parts += (uint64_t)removed;
	return removed;
}

static int hit_space(const struct cairn_space *space, const uint8_t *id)
{
	return !memcmp(space->id, id, 32);
}

static int hit_tenant(const struct cairn_space *space, const uint8_t *digest)
{
	uint8_t manifests[32];
	if (space->described)
		return !memcmp(space->space.tenant_digest, digest, 32);
	if (!space->manifest) /* without a description nobody can read it, and whose it is is not known before a reopen */
		return 1;
	key_manifest_space(digest, manifests);
	return !memcmp(space->id, manifests, 32);
}

CAIRN_API long cairn_drop_space(cairn *store, const cairn_digest *space_id)
{
	int error = drop_check(store);
	if (!error && !space_id)
		error = err_set(CAIRN_E_INVAL, "drop: no space");
	if (error)
		return error;
	if (store->remote)
		return remote_drop_space(store, space_id);
	pthread_mutex_lock(&store->lock);
	struct ledger_record record = {.type = LEDGER_DROP};
	record.u.drop.scope = LEDGER_DROP_SPACE;
	record.u.drop.decision = store->next_birth++;
	memcpy(record.u.drop.space, space_id->bytes, 32);
	long removed = remove_spaces(store, hit_space, space_id->bytes);
	error = session_forget_all(store, NULL, space_id->bytes);
	if (!error)
		error = store_decide(store, &record);
	pthread_mutex_unlock(&store->lock);
	return error ? error : removed;
}

CAIRN_API long cairn_drop_tenant(cairn *store, const char *tenant)
{
	int error = drop_check(store);
	if (error)
		return error;
	if (store->remote)
		return remote_drop_tenant(store, tenant);
	uint8_t digest[32];
	tenant = tenant ? tenant : "default";
	key_tenant_digest(tenant, strlen(tenant), digest);
	pthread_mutex_lock(&store->lock);
	struct ledger_record record = {.type = LEDGER_DROP};
	record.u.drop.scope = LEDGER_DROP_TENANT;
	record.u.drop.decision = store->next_birth++;
	memcpy(record.u.drop.what, digest, 32);
	long removed = remove_spaces(store, hit_tenant, digest);
	error = session_forget_all(store, digest, NULL);
	if (!error)
		error = store_decide(store, &record);
	pthread_mutex_unlock(&store->lock);
	return error ? error : removed;
}

/* ---- explain ----------------------------------------------------------------------------------------------------- */

CAIRN_API int cairn_explain(cairn *store, const cairn_digest *space_id, const cairn_key *key, uint32_t part,
                            struct cairn_explanation *ret_explanation)
{
	if (!store || !space_id || !key || !ret_explanation || part > 63)
		return err_set(CAIRN_E_INVAL, "explain: no store, space, key or place for the result, or a part over 63");
	if (store->remote)
		return remote_explain(store, space_id, key, part, ret_explanation);
	struct cairn_explanation found = {.size = sizeof(found)};
	pthread_mutex_lock(&store->lock);
	const struct cairn_space *space = store_space_by_id(store, space_id->bytes, 0);
	uint32_t entry = space ? catalog_find(store->catalog, space->number, key->bytes, part) : 0;
	const struct catalog_entry *e = entry ? catalog_at(store->catalog, entry) : NULL;
	if (e && !(e->flags & CATALOG_GHOST)) {
		int memory = e->slot && memory_slot(store->memory, e->slot)->state == MEMORY_READY;
		found.reason = CAIRN_WHY_PRESENT;
		found.tier = memory ? CAIRN_TIER_MEMORY : CAIRN_TIER_FLASH;
		found.uses = e->uses;
		found.bytes = e->length;
	} else {
		struct catalog_memory memory;
		catalog_recall(store->catalog, gone_print(space_id->bytes, key->bytes, part), &memory);
		found.reason = memory.reason;
		found.tier = memory.tier;
		found.uses = memory.uses;
		found.when_s = memory.when_s;
		for (uint32_t i = 0; i < store->ndevices && !found.reason; i++)
			if (!store->devices[i].flash) { /* perhaps there, on a device that is not */
				found.reason = CAIRN_WHY_DEVICE;
				found.tier = CAIRN_TIER_FLASH;
			}
	}
	pthread_mutex_unlock(&store->lock);
	*ret_explanation = found;
	return 0;
}
