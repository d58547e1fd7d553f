/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving a session: its blocks become as durable as asked, then tails, then the manifest, then the record in the
 * ledgers, which is what makes it visible and replaces the one before at once.
 *
 * Threads: the caller's, under the store's lock; one save at a time. Memory: for the call.
 * Invariant: nothing that a published record names is less durable than the record.
 */
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/remote.h"
#include "store/session.h"

#define SAVE_KEYS_MAX (1u << 20) /* 32 MiB of manifest */

struct save_work {
	cairn *store;
	const struct cairn_space *space;
	struct cairn_save save;
	uint8_t tenant[32], id[32];
	uint64_t deadline_ns, bytes;
	struct cairn_tail_info *tails;
	struct kept_key *kept;
	size_t nkept;
	int durable;
};

static int save_check(struct save_work *work)
{
	const struct cairn_save *save = &work->save;
	const struct cairn_space *space = work->space;
	int error = session_name_check(&save->name);
	if (error)
		return error;
	session_name_id(&save->name, work->tenant, work->id);
	if (space->misses)
		return err_set(CAIRN_E_UNKNOWN, "save: the weights digest of the space is unknown: give it first");
	if (memcmp(space->space.tenant_digest, work->tenant, 32))
		return err_set(CAIRN_E_INVAL, "save: the session's tenant is not the space's");
	if (save->nchains > MANIFEST_CHAINS_MAX || (save->nchains && !save->chains) || save->ntails > MANIFEST_TAILS_MAX ||
	    (save->ntails && !save->tails) || save->state_bytes > MANIFEST_STATE_MAX || (save->state_bytes && !save->state))
		return err_set(CAIRN_E_SIZE, "save: at most %u chains, %u tails and %u bytes of state", MANIFEST_CHAINS_MAX,
		               MANIFEST_TAILS_MAX, MANIFEST_STATE_MAX);
	size_t nkeys = 0;
	for (uint32_t i = 0; i < save->nchains; i++) {
		nkeys += save->chains[i].nkeys < SAVE_KEYS_MAX ? save->chains[i].nkeys : SAVE_KEYS_MAX;
		if (nkeys >= SAVE_KEYS_MAX)
			return err_set(CAIRN_E_SIZE, "save: at most %u blocks in a session", SAVE_KEYS_MAX - 1);
	}
	for (uint32_t i = 0; i < save->nchains; i++)
		if (save->chains[i].group >= space->space.ngroups || (save->chains[i].nkeys && !save->chains[i].keys))
			return err_set(CAIRN_E_INVAL, "save: chain %u names group %u, which the space has not", i,
			               save->chains[i].group);
	if (save->durability > CAIRN_DURABLE_FLASH)
		return err_set(CAIRN_E_INVAL, "save: durability %u: this store has memory and flash", save->durability);
	work->durable = save->durability != CAIRN_DURABLE_NONE;
	return 0;
}

/* What is to be kept is marked before anything is written, so that nothing of it is evicted in between. */
static int save_keep(struct save_work *work)
{
	cairn *store = work->store;
	const struct cairn_save *save = &work->save;
	uint64_t tails = 0, bytes;
	for (uint32_t i = 0; i < save->ntails; i++) {
		work->tails[i].key = save->tails[i].key;
		if (!buffers_check(&save->tails[i], &bytes))
			tails += bytes;
	}
	struct kept_key *kept = session_keys(save->chains, save->nchains, work->tails, save->ntails, &work->nkept);
	if (!kept)
		return err_set(CAIRN_E_NOMEM, "no memory to keep a session");
	int error = session_quota(store, session_unkept_bytes(store, work->space->number, kept, work->nkept) + tails);
	if (error) {
		mem_free(kept);
		return error;
	}
	work->kept = kept;
	session_mark(store, &(struct saved){.space = work->space->number, .kept = kept, .nkept = work->nkept}, 1);
	return 0;
}

/* The blocks: there, as durable as asked, and added up. */
static int save_blocks(struct save_work *work)
{
	cairn *store = work->store;
	for (uint32_t i = 0; i < work->save.nchains; i++) {
		const struct cairn_chain *chain = &work->save.chains[i];
		size_t missing = 0;
		int error = work->durable ? store_make_durable(store, work->space, chain->keys, chain->nkeys, work->deadline_ns,
		                                               &missing)
		                          : 0;
		for (size_t k = 0; k < chain->nkeys && !error; k++) {
			int any = 0;
			for (uint32_t part = 0; part < work->space->space.desc.nparts; part++) {
				uint32_t entry = catalog_find(store->catalog, work->space->number, chain->keys[k].bytes, part);
				if (!entry || (catalog_at(store->catalog, entry)->flags & CATALOG_GHOST))
					continue;
				work->bytes += catalog_at(store->catalog, entry)->length;
				any = 1;
			}
			if (!any) {
				missing = k;
				error = CAIRN_E_NOENT;
			}
		}
		if (error == CAIRN_E_NOENT)
			return err_set(error, "save: block %zu of group %u is in no tier any more: put it again", missing,
			               chain->group);
		if (error)
			return error;
	}
	return 0;
}

static int save_tails(struct save_work *work)
{
	const struct store_call call = {
	    .deadline_ns = work->deadline_ns,
	    .durability = work->durable ? CAIRN_DURABLE_FLASH : CAIRN_DURABLE_NONE,
	};
	for (uint32_t i = 0; i < work->save.ntails; i++) {
		struct cairn_item *tail = &work->save.tails[i];
		tail->flags |= CAIRN_ITEM_TAIL;
	}
	if (work->save.ntails)
		(void)store_put(work->store, work->space, work->save.tails, work->save.ntails, &call);
	for (uint32_t i = 0; i < work->save.ntails; i++) {
		const struct cairn_item *tail = &work->save.tails[i];
		if (tail->status < 0)
			return tail->status;
		work->tails[i].key = tail->key;
		work->tails[i].group = tail->group;
		work->tails[i].part = tail->part;
		work->tails[i].bytes = tail->ret_bytes;
		work->bytes += tail->ret_bytes;
	}
	return 0;
}

/* Device + 1 of the session's blocks, so that its manifest is lost with them alone; 0: any. */
static uint32_t save_device(const struct save_work *work)
{
	for (uint32_t i = 0; i < work->save.nchains; i++) {
		const struct cairn_chain *chain = &work->save.chains[i];
		uint32_t entry = chain->nkeys ? catalog_find_any(work->store->catalog, work->space->number,
		                                                 chain->keys[chain->nkeys - 1].bytes)
		                              : 0;
		if (entry && (catalog_at(work->store->catalog, entry)->flags & CATALOG_FLASH))
			return catalog_at(work->store->catalog, entry)->device + 1u;
	}
	return 0;
}

/* 0, CAIRN_EXISTED or CONFLICT: the rest of a save that did not end lies there under this epoch; or an error. */
static int save_manifest(struct save_work *work, uint64_t epoch, uint64_t saved_at_s, uint8_t ret_key[32])
{
	cairn *store = work->store;
	const struct cairn_save *save = &work->save;
	struct manifest_chain chains[MANIFEST_CHAINS_MAX];
	const char *tenant = save->name.tenant ? save->name.tenant : "default",
			   *owner = save->name.owner ? save->name.owner : "";
	struct manifest_tail *tails = mem_array(save->ntails ? save->ntails : 1, sizeof(*tails));
	if (!tails)
		return err_set(CAIRN_E_NOMEM, "no memory to save a session");
	for (uint32_t i = 0; i < save->nchains; i++)
		chains[i] = (struct manifest_chain){save->chains[i].group, (uint32_t)save->chains[i].nkeys,
		                                    (const uint8_t *)save->chains[i].keys};
	for (uint32_t i = 0; i < save->ntails; i++) {
		memcpy(tails[i].key, work->tails[i].key.bytes, 32);
		tails[i].group = work->tails[i].group;
		tails[i].part = work->tails[i].part;
		tails[i].bytes = work->tails[i].bytes;
	}
	struct manifest manifest = {
	    .tenant = tenant, .owner = owner, .name = save->name.name,
	    .tenant_length = (uint32_t)strlen(tenant), .owner_length = (uint32_t)strlen(owner),
	    .name_length = (uint32_t)strlen(save->name.name),
	    .epoch = epoch, .tokens = save->tokens, .bytes = work->bytes, .saved_at_s = saved_at_s,
	    .chains = chains, .nchains = save->nchains, .tails = tails, .ntails = save->ntails,
	    .state = save->state, .state_bytes = (uint32_t)save->state_bytes,
	};
	memcpy(manifest.space, work->space->id, 32);
	uint8_t id[32];
	key_manifest_space(work->tenant, id);
	key_manifest(work->id, epoch, ret_key);
	struct cairn_space *space = store_space_by_id(store, id, 1);
	size_t length = manifest_size(&manifest);
	uint8_t *bytes = mem_alloc(length);
	int error = 0;
	if (!space || !bytes) {
		error = err_set(CAIRN_E_NOMEM, "no memory to save a session of %zu bytes", length);
	} else {
		manifest_encode(&manifest, bytes);
		space->manifest = 1;
		space->tenant = work->space->tenant;
		struct cairn_buf buf = cairn_buf_of(bytes, length);
		struct cairn_item item = {.bufs = &buf, .nbufs = 1};
		memcpy(item.key.bytes, ret_key, 32);
		struct store_call call = {
		    .deadline_ns = work->deadline_ns,
		    .durability = work->durable ? CAIRN_DURABLE_FLASH : CAIRN_DURABLE_NONE,
		    .manifest = 1,
		    .device_hint = save_device(work),
		};
		(void)store_put(store, space, &item, 1, &call);
		error = item.status;
	}
	mem_free(bytes);
	mem_free(tails);
	return error;
}

/* The record was given to the ledgers, and is not known to be in them: what it would have replaced is given again, so
 * that it does not come out of them later. And nothing names its manifest. */
static void save_revoke(struct save_work *work, const struct ledger_record *record)
{
	cairn *store = work->store;
	const struct saved *before = session_find(store, work->id);
	struct ledger_record again = {.type = LEDGER_FORGET};
	uint32_t entry = session_manifest(store, &(struct saved){.record = *record});
	if (entry)
		entry_remove(store, entry, CAIRN_WHY_EXPIRED);
	memcpy(again.u.forget.id, work->id, 32);
	again.u.forget.decision = record->u.session.decision;
	if (before) {
		again = before->record;
		again.u.session.decision = store->next_birth++;
	}
	(void)store_decide(store, &again);
}

static int save_publish(struct save_work *work)
{
	cairn *store = work->store;
	const struct cairn_save *save = &work->save;
	struct saved *before = session_find(store, work->id);
	uint64_t epoch = before ? before->record.u.session.epoch + 1 : 1, now = clock_wall_s(store->clock);
	struct ledger_record record = {.type = LEDGER_SESSION};
	int error;
	while ((error = save_manifest(work, epoch, now, record.u.session.manifest)) == CAIRN_EXISTED ||
	       error == CAIRN_E_CONFLICT)
		epoch++;
	if (error)
		return error;
	record.u.session.decision = store->next_birth++;
	memcpy(record.u.session.id, work->id, 32);
	memcpy(record.u.session.tenant, work->tenant, 32);
	memcpy(record.u.session.space, work->space->id, 32);
	record.u.session.epoch = epoch;
	record.u.session.saved_at_s = now;
	record.u.session.expires_at_s = save->ttl_s ? now + save->ttl_s : 0;
	record.u.session.bytes = work->bytes;
	record.u.session.pinned = save->pin != 0;
	uint32_t manifest = session_manifest(store, &(struct saved){.record = record});
	record.u.session.manifest_birth = manifest ? catalog_birth(catalog_at(store->catalog, manifest)) : 0;
	error = store_decide(store, &record);
	if (error) {
		save_revoke(work, &record);
		return error;
	}
	/* Published. What it replaced goes. */
	before = session_find(store, work->id);
	uint32_t old = before ? session_manifest(store, before) : 0;
	if (old && memcmp(before->record.u.session.manifest, record.u.session.manifest, 32))
		entry_remove(store, old, CAIRN_WHY_EXPIRED);
	if (before)
		session_unkeep(store, before);
	error = session_load(store, &record);
	struct saved *saved = session_find(store, work->id);
	if (saved && session_wants_keeping(saved)) {
		saved->kept = work->kept;
		saved->nkept = work->nkept;
		saved->space = work->space->number;
		work->kept = NULL;
		session_mark(store, saved, 1);
	}
	return error;
}

CAIRN_API int cairn_session_save(cairn *store, const cairn_space *space, const struct cairn_save *given)
{
	struct save_work work = {.store = store, .space = space};
	if (!store || !space || space->store != store || !space->described || !given || !given->size || given->size > 4096)
		return err_set(CAIRN_E_INVAL, "save: no store, a space of another store, or cairn_save.size is not set");
	if (store->flags & CAIRN_OPEN_READONLY)
		return err_set(CAIRN_E_RDONLY, "save: the store is open read-only");
	memcpy(&work.save, given, given->size < sizeof(work.save) ? given->size : sizeof(work.save));
	if (store->remote)
		return remote_save(store, (struct cairn_space *)(uintptr_t)space, &work.save);
	int error = save_check(&work);
	if (error)
		return error;
	work.tails = mem_array(work.save.ntails ? work.save.ntails : 1, sizeof(*work.tails));
	if (!work.tails)
		return err_set(CAIRN_E_NOMEM, "no memory to save a session");
	pthread_mutex_lock(&store->lock);
	work.deadline_ns = store_deadline(store, work.save.timeout_ms);
	if (!store_has_flash(store) && work.durable)
		error = err_set(CAIRN_E_IO, "save: the store has no flash device that works");
	while (!error && store->saving) /* one at a time: an epoch is one save's */
		error = store_wait(store, work.deadline_ns);
	if (!error) {
		store->saving = 1;
		if (work.save.ttl_s || work.save.pin)
			error = save_keep(&work);
		if (!error)
			error = save_blocks(&work);
		if (!error)
			error = save_tails(&work);
		if (!error)
			error = save_publish(&work);
		if (work.kept) /* not saved */
			session_unkeep(store, &(struct saved){.space = space->number, .kept = work.kept, .nkept = work.nkept});
		store->saving = 0;
		store_changed(store);
	}
	pthread_mutex_unlock(&store->lock);
	mem_free(work.tails);
	return error;
}

