/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: a manifest (a part of its own, in the tenant's manifest space) and a ledger record that names it. The
 * record is
 * what makes a save visible, and what replaces the one before, at once.
 *
 * Threads: the caller's, under the store's lock; one save at a time. Memory: a table of records; keys of kept sessions.
 * Invariant: a session's record is in the ledgers only after its blocks, tails and manifest are as durable as asked.
 */
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/peer.h"
#include "store/remote.h"
#include "store/session.h"

struct cairn_session {
	struct cairn_session_info info;
	char *strings[3];
	struct cairn_chain chains[MANIFEST_CHAINS_MAX];
	struct cairn_tail_info *tails;
	void *state;
	uint64_t state_bytes;
	cairn_key *keys; /* of all chains */
};

struct saved *session_find(cairn *store, const uint8_t id[32])
{
	for (struct list *node = store->sessions.next; node != &store->sessions; node = node->next) {
		struct saved *saved = LIST_OF(node, struct saved, link);
		if (!memcmp(saved->record.u.session.id, id, 32))
			return saved;
	}
	return NULL;
}

static void saved_clock(cairn *store, struct saved *saved)
{
	uint64_t expires = saved->record.u.session.expires_at_s, wall = clock_wall_s(store->clock);
	uint64_t left = expires > wall ? expires - wall : 0;
	saved->expires_ns = !expires ? UINT64_MAX
	                    : left > UINT32_MAX ? UINT64_MAX
	                                        : clock_mono_ns(store->clock) + left * 1000000000ull;
}

/* A clock that was set back does not let it live longer while the store is open. */
static int saved_expired(cairn *store, const struct saved *saved)
{
	uint64_t expires = saved->record.u.session.expires_at_s;
	return expires && (clock_wall_s(store->clock) >= expires || clock_mono_ns(store->clock) >= saved->expires_ns);
}

uint32_t session_manifest(cairn *store, const struct saved *saved)
{
	uint8_t id[32];
	key_manifest_space(saved->record.u.session.tenant, id);
	const struct cairn_space *space = store_space_by_id(store, id, 0);
	uint32_t entry = space ? catalog_find(store->catalog, space->number, saved->record.u.session.manifest, 0) : 0;
	if (!entry || (catalog_at(store->catalog, entry)->flags & CATALOG_GHOST))
		return 0;
	/* Epochs begin anew when a session was forgotten, and so do keys: what is found may be of the one before. */
	uint64_t birth = saved->record.u.session.manifest_birth;
	return !birth || birth == catalog_birth(catalog_at(store->catalog, entry)) ? entry : 0;
}

int session_load(cairn *store, const struct ledger_record *record)
{
	struct saved *saved = session_find(store, record->u.session.id);
	if (!saved) {
		saved = mem_alloc(sizeof(*saved));
		if (!saved)
			return err_set(CAIRN_E_NOMEM, "no memory for a session");
		list_push_back(&store->sessions, &saved->link);
		store->nsessions++;
	}
	saved->record = *record;
	saved_clock(store, saved);
	return 0;
}

void session_done(cairn *store)
{
	struct list *node;
	while ((node = list_pop_front(&store->sessions))) {
		struct saved *saved = LIST_OF(node, struct saved, link);
		mem_free(saved->kept);
		mem_free(saved);
	}
}

/* ---- kept blocks ------------------------------------------------------------------------------------------------- */

void session_mark(cairn *store, const struct saved *saved, int kept)
{
	for (size_t i = 0; i < saved->nkept; i++)
		for (uint32_t part = 0; part < 64; part++) {
			uint32_t entry = catalog_find(store->catalog, saved->space, saved->kept[i].prefix, part);
			if (entry)
				entry_set_kept(store, entry, kept);
			else if (part)
				break;
		}
}

void session_unkeep(cairn *store, struct saved *saved)
{
	if (!saved->kept)
		return;
	session_mark(store, saved, 0);
	mem_free(saved->kept);
	saved->kept = NULL;
	saved->nkept = 0;
	/* Blocks that other kept sessions share stay kept. */
	for (struct list *node = store->sessions.next; node != &store->sessions; node = node->next)
		session_mark(store, LIST_OF(node, struct saved, link), 1);
}

int session_wants_keeping(const struct saved *saved)
{
	return saved->record.u.session.pinned || saved->record.u.session.expires_at_s;
}

/* Bytes of a session's keys that are not kept yet. */
uint64_t session_unkept_bytes(cairn *store, uint32_t space, const struct kept_key *keys, size_t n)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < n; i++)
		for (uint32_t part = 0; part < 64; part++) {
			uint32_t entry = catalog_find(store->catalog, space, keys[i].prefix, part);
			if (!entry && part)
				break;
			if (entry && !(catalog_at(store->catalog, entry)->flags & (CATALOG_KEPT | CATALOG_GHOST)))
				bytes += catalog_at(store->catalog, entry)->length;
		}
	return bytes;
}

int session_quota(cairn *store, uint64_t more)
{
	uint64_t kept = 0, budget = 0;
	for (uint32_t i = 0; i < store->ndevices; i++) {
		if (!store->devices[i].flash)
			continue;
		kept += store->devices[i].kept_bytes;
		budget += store->devices[i].budget_bytes;
	}
	uint64_t most = budget / 100 * store->pin_share_percent;
	if (kept + more > most)
		return err_set(CAIRN_E_QUOTA,
		               "session: %llu bytes more would be kept; pins and times to live may hold %llu of flash, "
		               "and hold %llu: forget some, or save without",
		               (unsigned long long)more, (unsigned long long)most, (unsigned long long)kept);
	return 0;
}

struct kept_key *session_keys(const struct cairn_chain *chains, uint32_t nchains,
                                  const struct cairn_tail_info *tails, uint32_t ntails, size_t *ret_n)
{
	size_t n = ntails, at = 0;
	for (uint32_t i = 0; i < nchains; i++)
		n += chains[i].nkeys;
	struct kept_key *keys = mem_array(n ? n : 1, sizeof(*keys));
	if (!keys)
		return NULL;
	for (uint32_t i = 0; i < nchains; i++)
		for (size_t k = 0; k < chains[i].nkeys; k++)
			memcpy(keys[at++].prefix, chains[i].keys[k].bytes, 16);
	for (uint32_t i = 0; i < ntails; i++)
		memcpy(keys[at++].prefix, tails[i].key.bytes, 16);
	*ret_n = n;
	return keys;
}

/* ---- reading a manifest ------------------------------------------------------------------------------------------ */

CAIRN_API void cairn_session_free(cairn_session *session)
{
	if (!session)
		return;
	for (int i = 0; i < 3; i++)
		mem_free(session->strings[i]);
	mem_free(session->tails);
	mem_free(session->state);
	mem_free(session->keys);
	mem_free(session);
}

static char *string_of(const char *text, uint32_t length)
{
	char *copy = mem_alloc(length + 1);
	if (copy && length)
		memcpy(copy, text, length);
	return copy;
}

static int session_build(cairn_session *session, const struct manifest *m, const struct manifest_tail *tails)
{
	size_t nkeys = 0, at = 0;
	for (uint32_t i = 0; i < m->nchains; i++)
		nkeys += m->chains[i].nkeys;
	session->strings[0] = string_of(m->tenant, m->tenant_length);
	session->strings[1] = string_of(m->owner, m->owner_length);
	session->strings[2] = string_of(m->name, m->name_length);
	session->keys = mem_array(nkeys ? nkeys : 1, sizeof(cairn_key));
	session->tails = mem_array(m->ntails ? m->ntails : 1, sizeof(*session->tails));
	session->state = mem_alloc(m->state_bytes ? m->state_bytes : 1);
	if (!session->strings[0] || !session->strings[1] || !session->strings[2] || !session->keys || !session->tails ||
	    !session->state)
		return CAIRN_E_NOMEM;
	for (uint32_t i = 0; i < m->nchains; i++) {
		session->chains[i] = (struct cairn_chain){m->chains[i].group, session->keys + at, m->chains[i].nkeys};
		if (m->chains[i].nkeys)
			memcpy(session->keys + at, m->chains[i].keys, (size_t)m->chains[i].nkeys * 32);
		at += m->chains[i].nkeys;
	}
	for (uint32_t i = 0; i < m->ntails; i++) {
		memcpy(session->tails[i].key.bytes, tails[i].key, 32);
		session->tails[i].group = tails[i].group;
		session->tails[i].part = tails[i].part;
		session->tails[i].bytes = tails[i].bytes;
	}
	if (m->state_bytes)
		memcpy(session->state, m->state, m->state_bytes);
	session->state_bytes = m->state_bytes;
	struct cairn_session_info *info = &session->info;
	info->size = sizeof(*info);
	info->tenant = session->strings[0];
	info->owner = session->strings[1];
	info->name = session->strings[2];
	info->epoch = m->epoch;
	info->tokens = m->tokens;
	info->bytes = m->bytes;
	info->saved_at_s = m->saved_at_s;
	info->nchains = m->nchains;
	info->ntails = m->ntails;
	memcpy(info->space_id.bytes, m->space, 32);
	return 0;
}

static int session_decode(const uint8_t *bytes, size_t length, const struct saved *saved, cairn_session *session)
{
	struct manifest manifest;
	struct manifest_chain chains[MANIFEST_CHAINS_MAX];
	struct manifest_tail *tails = mem_array(MANIFEST_TAILS_MAX, sizeof(*tails));
	if (!tails)
		return CAIRN_E_NOMEM;
	int result = manifest_decode(bytes, length, &manifest, chains, tails);
	manifest.chains = chains;
	if (result == FMT_NEWER)
		result = err_set(CAIRN_E_VERSION, "the session was saved by a newer cairn: upgrade this one");
	else if (result != FMT_OK || memcmp(manifest.space, saved->record.u.session.space, 32) ||
	         manifest.epoch != saved->record.u.session.epoch)
		result = CAIRN_DAMAGED;
	else
		result = session_build(session, &manifest, tails);
	session->info.pinned = saved->record.u.session.pinned;
	session->info.expires_at_s = saved->record.u.session.expires_at_s;
	mem_free(tails);
	return result;
}

int session_of_manifest(const uint8_t *bytes, size_t length, cairn_session **ret_session)
{
	struct manifest manifest;
	struct manifest_chain chains[MANIFEST_CHAINS_MAX];
	struct manifest_tail *tails = mem_array(MANIFEST_TAILS_MAX, sizeof(*tails));
	cairn_session *session = mem_alloc(sizeof(*session));
	int result = tails && session ? 0 : err_set(CAIRN_E_NOMEM, "no memory for a session");
	if (!result && manifest_decode(bytes, length, &manifest, chains, tails) != FMT_OK)
		result = err_set(CAIRN_E_IO, "what came is no session");
	if (!result) {
		manifest.chains = chains;
		result = session_build(session, &manifest, tails);
	}
	mem_free(tails);
	if (result)
		cairn_session_free(session);
	else
		*ret_session = session;
	return result;
}

int session_to_manifest(const cairn_session *session, uint8_t **ret_bytes, size_t *ret_length)
{
	const struct cairn_session_info *info = &session->info;
	struct manifest_chain chains[MANIFEST_CHAINS_MAX];
	struct manifest_tail *tails = mem_array(info->ntails ? info->ntails : 1, sizeof(*tails));
	struct manifest manifest = {
		.tenant = info->tenant,
		.owner = info->owner,
		.name = info->name,
		.tenant_length = (uint32_t)strlen(info->tenant),
		.owner_length = (uint32_t)strlen(info->owner),
		.name_length = (uint32_t)strlen(info->name),
		.epoch = info->epoch,
		.tokens = info->tokens,
		.bytes = info->bytes,
		.saved_at_s = info->saved_at_s,
		.chains = chains,
		.nchains = info->nchains,
		.tails = tails,
		.ntails = info->ntails,
		.state = session->state,
		.state_bytes = (uint32_t)session->state_bytes,
	};
	memcpy(manifest.space, info->space_id.bytes, 32);
	for (uint32_t i = 0; i < info->nchains; i++)
		chains[i] = (struct manifest_chain){session->chains[i].group, (uint32_t)session->chains[i].nkeys,
		                                    (const uint8_t *)session->chains[i].keys};
	for (uint32_t i = 0; i < info->ntails && tails; i++) {
		memcpy(tails[i].key, session->tails[i].key.bytes, 32);
		tails[i].group = session->tails[i].group;
		tails[i].part = session->tails[i].part;
		tails[i].bytes = session->tails[i].bytes;
	}
	*ret_length = tails ? manifest_size(&manifest) : 0;
	*ret_bytes = tails ? mem_alloc(*ret_length) : NULL;
	if (*ret_bytes)
		manifest_encode(&manifest, *ret_bytes);
	mem_free(tails);
	return *ret_bytes ? 0 : err_set(CAIRN_E_NOMEM, "no memory for a session");
}

void session_set_kept(cairn_session *session, uint32_t pinned, uint64_t expires_at_s)
{
	session->info.pinned = pinned;
	session->info.expires_at_s = expires_at_s;
}

/* Reads the manifest of one session. Called with the lock, which it lets go. */
static int session_read(cairn *store, const uint8_t id[32], cairn_session **ret_session)
{
	struct saved *found = session_find(store, id);
	if (!found || saved_expired(store, found))
		return err_set(CAIRN_E_NOENT, "there is no session of that name");
	struct saved saved = *found;
	uint32_t entry = session_manifest(store, found);
	if (!entry)
		return err_set(CAIRN_DAMAGED, store->device_away
		                                  ? "its manifest lies on a flash device that is gone, or was damaged"
		                                  : "its manifest was damaged");
	uint32_t length = catalog_at(store->catalog, entry)->length;
	const struct cairn_space *space = store->spaces[catalog_at(store->catalog, entry)->space - 1];
	uint8_t *bytes = mem_alloc(length);
	cairn_session *session = mem_alloc(sizeof(*session));
	int result = bytes && session ? 0 : err_set(CAIRN_E_NOMEM, "no memory for a session of %u bytes", length);
	if (!result) {
		struct cairn_buf buf = cairn_buf_of(bytes, length);
		struct cairn_item item = {.bufs = &buf, .nbufs = 1};
		memcpy(item.key.bytes, saved.record.u.session.manifest, 32);
		pthread_mutex_unlock(&store->lock);
		long got = cairn_get(store, space, &item, 1, NULL);
		pthread_mutex_lock(&store->lock);
		if (got == 1)
			result = session_decode(bytes, length, &saved, session);
		else if (got < 0)
			result = (int)got;
		else
			result = item.status == CAIRN_MISS ? CAIRN_DAMAGED : item.status;
		if (result == CAIRN_DAMAGED)
			err_set(CAIRN_DAMAGED, "its manifest is damaged");
	}
	mem_free(bytes);
	if (result)
		cairn_session_free(session);
	else
		*ret_session = session;
	return result;
}

/* Remembers the keys of a session that is to be kept, and marks them. */
static int keep(cairn *store, struct saved *saved, const cairn_session *session)
{
	const struct cairn_space *space = store_space_by_id(store, session->info.space_id.bytes, 0);
	if (!space || saved->kept)
		return 0;
	size_t n;
	struct kept_key *keys =
		session_keys(session->chains, session->info.nchains, session->tails, session->info.ntails, &n);
	if (!keys)
		return CAIRN_E_NOMEM;
	saved->kept = keys;
	saved->nkept = n;
	saved->space = space->number;
	session_mark(store, saved, 1);
	return 0;
}

void session_mark_kept(cairn *store)
{
	pthread_mutex_lock(&store->lock);
	/* Manifests that no record names were superseded, or their save never ended. */
	for (uint32_t entry = catalog_next(store->catalog, 0); entry; entry = catalog_next(store->catalog, entry)) {
		const struct catalog_entry *e = catalog_at(store->catalog, entry);
		int named = 0;
		for (struct list *node = store->sessions.next; node != &store->sessions && (e->flags & CATALOG_MANIFEST);
		     node = node->next) {
			const struct ledger_record *record = &LIST_OF(node, struct saved, link)->record;
			uint64_t birth = record->u.session.manifest_birth;
			named |= !memcmp(record->u.session.manifest, e->prefix, 16) && (!birth || birth == catalog_birth(e));
		}
		if ((e->flags & CATALOG_MANIFEST) && !named)
			entry_remove(store, entry, CAIRN_WHY_EXPIRED);
	}
	for (struct list *node = store->sessions.next, *next; node != &store->sessions; node = next) {
		struct saved *saved = LIST_OF(node, struct saved, link);
		next = node->next;
		if (!session_manifest(store, saved)) {
			store->stat.lost_sessions++;
			continue; /* its device may come back */
		}
		if (!session_wants_keeping(saved) || saved_expired(store, saved))
			continue;
		cairn_session *session;
		uint8_t id[32];
		memcpy(id, saved->record.u.session.id, 32);
		if (session_read(store, id, &session))
			continue;
		saved = session_find(store, id); /* the lock was let go; only expiry can have taken it */
		if (saved)
			(void)keep(store, saved, session);
		cairn_session_free(session);
		next = saved ? saved->link.next : store->sessions.next;
	}
	store->kept_known = 1;
	pthread_mutex_unlock(&store->lock);
}

/* ---- ending ------------------------------------------------------------------------------------------------------ */

/* Takes a session out of the table; its manifest goes, its tails can be evicted. */
static void saved_remove(cairn *store, struct saved *saved)
{
	uint32_t entry = session_manifest(store, saved);
	if (entry)
		entry_remove(store, entry, CAIRN_WHY_EXPIRED);
	list_remove(&saved->link);
	store->nsessions--;
	session_unkeep(store, saved);
	mem_free(saved);
}

static void expire_done(struct tier_req *tier)
{
	struct store_req *req = tier->owner;
	pthread_mutex_lock(&req->store->lock);
	store_req_drop(req);
	store_changed(req->store);
	pthread_mutex_unlock(&req->store->lock);
}

void session_expire(cairn *store)
{
	if ((store->flags & CAIRN_OPEN_READONLY) || !store->kept_known)
		return;
	for (struct list *node = store->sessions.next, *next; node != &store->sessions; node = next) {
		struct saved *saved = LIST_OF(node, struct saved, link);
		next = node->next;
		if (!saved_expired(store, saved))
			continue;
		struct ledger_record record = {.type = LEDGER_FORGET};
		memcpy(record.u.forget.id, saved->record.u.session.id, 32);
		record.u.forget.decision = store->next_birth++;
		/* Not waited for: after a crash it expires again. */
		for (uint32_t i = 0; i < store->ndevices && !list_empty(&store->reqs_free); i++) {
			if (!store->devices[i].flash)
				continue;
			struct store_req *req = store_req_take(store, 0);
			req->req.op = TIER_DECIDE;
			req->req.record = record;
			req->req.done = expire_done;
			store->devices[i].ops->submit(store->devices[i].flash, &req->req);
		}
		saved_remove(store, saved);
	}
}

static int forget_one(cairn *store, struct saved *saved)
{
	struct ledger_record record = {.type = LEDGER_FORGET};
	uint8_t id[32];
	memcpy(id, saved->record.u.session.id, 32);
	memcpy(record.u.forget.id, id, 32);
	record.u.forget.decision = store->next_birth++;
	int error = store_decide(store, &record);
	saved = session_find(store, id);
	if (!error && saved && saved->record.u.session.decision < record.u.forget.decision)
		saved_remove(store, saved);
	return error;
}

int session_forget_all(cairn *store, const uint8_t *tenant, const uint8_t *space)
{
	int error = 0;
	for (struct list *node = store->sessions.next; node != &store->sessions && !error;) {
		struct saved *saved = LIST_OF(node, struct saved, link);
		if ((tenant && memcmp(saved->record.u.session.tenant, tenant, 32)) ||
		    (space && memcmp(saved->record.u.session.space, space, 32))) {
			node = node->next;
			continue;
		}
		error = forget_one(store, saved);
		node = store->sessions.next; /* the lock was let go */
	}
	return error;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

int session_name_check(const struct cairn_session_name *name)
{
	if (!name || !name->name || !name->name[0] || strlen(name->name) > 255)
		return err_set(CAIRN_E_INVAL, "a session's name has 1 to 255 bytes");
	if ((name->owner && strlen(name->owner) > 255) ||
	    (name->tenant && (!name->tenant[0] || strlen(name->tenant) > 255)))
		return err_set(CAIRN_E_INVAL, "a session's owner has at most, its tenant 1 to, 255 bytes");
	return 0;
}

void session_name_id(const struct cairn_session_name *name, uint8_t tenant[32], uint8_t id[32])
{
	const char *text = name->tenant ? name->tenant : "default";
	key_tenant_digest(text, strlen(text), tenant);
	key_session_id(tenant, name->owner ? name->owner : "", name->name, id);
}

/* ---- resume and the rest ----------------------------------------------------------------------------------------- */

CAIRN_API int cairn_session_resume(cairn *store, const struct cairn_session_name *name, cairn_session **ret_session)
{
	if (!store || !ret_session)
		return err_set(CAIRN_E_INVAL, "resume: no store, or no place for the result");
	int error = session_name_check(name);
	if (error)
		return error;
	return store->remote ? remote_resume(store, name, ret_session) : session_resume(store, name, 0, ret_session);
}

int session_resume(cairn *store, const struct cairn_session_name *name, int here, cairn_session **ret_session)
{
	uint8_t tenant[32], id[32];
	session_name_id(name, tenant, id);
	cairn_session *session = NULL;
	pthread_mutex_lock(&store->lock);
	int result = session_read(store, id, &session);
	if (!result) {
		const struct cairn_space *space = store_space_by_id(store, session->info.space_id.bytes, 0);
		for (uint32_t i = 0; i < session->info.nchains && space && space->described; i++)
			store_prefetch(store, space, session->chains[i].keys, session->chains[i].nkeys);
	}
	pthread_mutex_unlock(&store->lock);
	if (result == CAIRN_E_NOENT && store->peers && !here)
		return peer_resume(store, name, ret_session);
	if (!result)
		*ret_session = session;
	return result;
}

CAIRN_API void cairn_session_get_info(const cairn_session *session, struct cairn_session_info *ret_info)
{
	*ret_info = session->info;
}

CAIRN_API int cairn_session_chain(const cairn_session *session, uint32_t index, struct cairn_chain *ret_chain)
{
	if (index >= session->info.nchains)
		return err_set(CAIRN_E_INVAL, "session: chain %u of %u", index, session->info.nchains);
	*ret_chain = session->chains[index];
	return 0;
}

CAIRN_API int cairn_session_tail(const cairn_session *session, uint32_t index, struct cairn_tail_info *ret_tail)
{
	if (index >= session->info.ntails)
		return err_set(CAIRN_E_INVAL, "session: tail %u of %u", index, session->info.ntails);
	*ret_tail = session->tails[index];
	return 0;
}

CAIRN_API const void *cairn_session_state(const cairn_session *session, uint64_t *ret_bytes)
{
	*ret_bytes = session->state_bytes;
	return session->state;
}

CAIRN_API int cairn_session_space(cairn *store, const cairn_session *session, cairn_space **ret_space)
{
	if (store->remote)
		return remote_session_space(store, &session->info.space_id, ret_space);
	pthread_mutex_lock(&store->lock);
	struct cairn_space *space = store_space_by_id(store, session->info.space_id.bytes, 0);
	int known = space && space->described;
	pthread_mutex_unlock(&store->lock);
	if (!known)
		return err_set(CAIRN_E_NOENT, "session: the store does not know its space's description: describe it");
	*ret_space = space;
	return 0;
}

/* Finds a session for a change. The lock is taken; on success it stays taken. */
static int saved_open(cairn *store, const struct cairn_session_name *name, struct saved **ret_saved)
{
	if (!store)
		return err_set(CAIRN_E_INVAL, "session: no store");
	int error = session_name_check(name);
	if (!error && (store->flags & CAIRN_OPEN_READONLY))
		error = err_set(CAIRN_E_RDONLY, "session: the store is open read-only");
	if (error)
		return error;
	uint8_t tenant[32], id[32];
	session_name_id(name, tenant, id);
	pthread_mutex_lock(&store->lock);
	*ret_saved = session_find(store, id);
	if (*ret_saved && !saved_expired(store, *ret_saved))
		return 0;
	pthread_mutex_unlock(&store->lock);
	return err_set(CAIRN_E_NOENT, "there is no session \"%s\"", name->name);
}

CAIRN_API int cairn_session_forget(cairn *store, const struct cairn_session_name *name)
{
	if (store && store->remote)
		return remote_session_end(store, WIRE_FORGET, name);
	struct saved *saved;
	int error = saved_open(store, name, &saved);
	if (error)
		return error;
	error = forget_one(store, saved);
	pthread_mutex_unlock(&store->lock);
	return error;
}

/* Writes a changed record of a session. 0 or an error. */
static int saved_change(cairn *store, const struct ledger_record *before, struct ledger_record *record)
{
	record->u.session.decision = store->next_birth++;
	int error = store_decide(store, record);
	struct saved *saved = session_find(store, record->u.session.id);
	/* Saved anew meanwhile: that one counts, and this change was for the old. */
	if (!error && saved && saved->record.u.session.epoch == before->u.session.epoch &&
	    saved->record.u.session.decision < record->u.session.decision) {
		saved->record = *record;
		saved_clock(store, saved);
	}
	return error;
}

CAIRN_API int cairn_session_close(cairn *store, const struct cairn_session_name *name)
{
	if (store && store->remote)
		return remote_session_end(store, WIRE_CLOSE, name);
	struct saved *saved;
	int error = saved_open(store, name, &saved);
	if (error)
		return error;
	struct ledger_record before = saved->record, record = saved->record;
	cairn_session *session = NULL;
	record.u.session.closed = 1;
	error = session_read(store, record.u.session.id, &session);
	if (!error)
		error = saved_change(store, &before, &record);
	const struct cairn_space *space = !error ? store_space_by_id(store, record.u.session.space, 0) : NULL;
	pthread_mutex_unlock(&store->lock);
	if (!error && !session_wants_keeping(&(struct saved){.record = record}) && space && space->described)
		for (uint32_t i = 0; i < session->info.nchains; i++)
			(void)cairn_hint(store, space, &session->chains[i], CAIRN_HINT_CLOSE);
	cairn_session_free(session);
	return error;
}

CAIRN_API int cairn_session_pin(cairn *store, const struct cairn_session_name *name, uint32_t pin, uint64_t ttl_s)
{
	if (store && store->remote)
		return remote_session_pin(store, name, pin, ttl_s);
	struct saved *saved;
	int error = saved_open(store, name, &saved);
	if (error)
		return error;
	struct ledger_record before = saved->record, record = saved->record;
	record.u.session.pinned = pin != 0;
	record.u.session.expires_at_s = ttl_s ? clock_wall_s(store->clock) + ttl_s : 0;
	int keeping = pin || ttl_s;
	cairn_session *session = NULL;
	if (keeping && !saved->kept) {
		error = session_read(store, record.u.session.id, &session);
		const struct cairn_space *space = !error ? store_space_by_id(store, record.u.session.space, 0) : NULL;
		size_t n = 0;
		struct kept_key *keys = error ? NULL : session_keys(session->chains, session->info.nchains, session->tails,
		                                                 session->info.ntails, &n);
		if (!error && (!keys || !space))
			error = keys ? CAIRN_E_NOENT : CAIRN_E_NOMEM;
		if (!error)
			error = session_quota(store, session_unkept_bytes(store, space->number, keys, n));
		mem_free(keys);
	}
	if (!error)
		error = saved_change(store, &before, &record);
	saved = session_find(store, record.u.session.id);
	if (!error && saved && keeping && session)
		error = keep(store, saved, session);
	else if (!error && saved && !keeping)
		session_unkeep(store, saved);
	pthread_mutex_unlock(&store->lock);
	cairn_session_free(session);
	return error;
}

CAIRN_API long cairn_session_list(cairn *store, const char *tenant,
                                  int (*each)(void *arg, const struct cairn_session_info *info), void *arg)
{
	if (!store || !each)
		return err_set(CAIRN_E_INVAL, "session list: no store or no callback");
	if (store->remote)
		return remote_session_list(store, tenant, each, arg);
	uint8_t digest[32];
	if (tenant)
		key_tenant_digest(tenant, strlen(tenant), digest);
	pthread_mutex_lock(&store->lock);
	uint32_t n = 0;
	uint8_t(*ids)[32] = mem_array(store->nsessions ? store->nsessions : 1, 32);
	for (struct list *node = store->sessions.next; ids && node != &store->sessions; node = node->next) {
		const struct saved *saved = LIST_OF(node, struct saved, link);
		if (!tenant || !memcmp(saved->record.u.session.tenant, digest, 32))
			memcpy(ids[n++], saved->record.u.session.id, 32);
	}
	long calls = ids ? 0 : err_set(CAIRN_E_NOMEM, "no memory to list %u sessions", store->nsessions);
	int stop = 0;
	for (uint32_t i = 0; i < n && !stop; i++) {
		cairn_session *session;
		if (session_read(store, ids[i], &session))
			continue; /* gone meanwhile, or its manifest is: stat.lost_sessions counts those */
		pthread_mutex_unlock(&store->lock);
		stop = each(arg, &session->info);
		calls++;
		cairn_session_free(session);
		pthread_mutex_lock(&store->lock);
	}
	pthread_mutex_unlock(&store->lock);
	mem_free(ids);
	return calls;
}
