/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What peers have: asks, and what is remembered of the answers. See peer.h.
 * An ask belongs to who asked and to each peer that is to answer; the last of them frees it.
 */
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "policy/worth.h"
#include "store/peer.h"
#include "store/remote.h"

#define RESUME_WAITS 10u /* a session is worth waiting for: a user comes back */

/* ---- what is remembered ------------------------------------------------------------------------------------------ */

static struct peer_cell *cell_set(const struct peers *peers, const uint8_t prefix[16], uint32_t part)
{
	uint64_t word;
	memcpy(&word, prefix, 8); /* keys are digests */
	return &peers->cells[((word ^ part * 0x9e3779b97f4a7c15ull) % (PEER_CELLS / 4)) * 4];
}

static struct peer_cell *cell_find(const struct peers *peers, uint32_t space, const uint8_t prefix[16], uint32_t part)
{
	struct peer_cell *set = cell_set(peers, prefix, part);
	for (int i = 0; i < 4; i++)
		if (set[i].space == space && set[i].part == part && !memcmp(set[i].prefix, prefix, 16))
			return &set[i];
	return NULL;
}

struct peer_cell *peer_cell(cairn *store, const struct peer_name *name)
{
	struct peer_cell *cell = cell_find(store->peers, name->space->number, name->key->bytes, name->part);
	if (!cell || clock_mono_ns(store->clock) - cell->seen_ns > PEER_REMEMBER_NS || !cell->holders[0].peer)
		return NULL;
	return cell;
}

void peer_cell_not(struct peer_cell *cell, uint32_t peer)
{
	int kept = 0;
	for (int i = 0; i < PEER_HOLDERS; i++)
		if (cell->holders[i].peer && cell->holders[i].peer != peer + 1)
			cell->holders[kept++] = cell->holders[i];
	for (; kept < PEER_HOLDERS; kept++)
		cell->holders[kept] = (struct peer_holder){0};
}

/* A peer has a part. Of two that have other bytes the first is believed. */
static void cell_add(struct peers *peers, const struct peer_ask *ask, const struct wire_found *found, uint32_t peer,
                     uint64_t now)
{
	const uint8_t *prefix = ask->keys[found->key].bytes;
	struct peer_cell *cell = cell_find(peers, ask->space->number, prefix, found->part);
	int fresh = !cell || now - cell->seen_ns > PEER_REMEMBER_NS || !cell->holders[0].peer;
	if (!cell) {
		struct peer_cell *set = cell_set(peers, prefix, found->part);
		cell = set;
		for (int i = 1; i < 4; i++)
			if (set[i].seen_ns < cell->seen_ns)
				cell = &set[i];
	}
	if (fresh) {
		*cell = (struct peer_cell){.check = found->check,
		                           .length = found->length,
		                           .space = ask->space->number,
		                           .part = (uint8_t)found->part,
		                           .tail = found->tail};
		memcpy(cell->prefix, prefix, 16);
	} else if (cell->check != found->check || cell->length != found->length) {
		return;
	}
	cell->seen_ns = now;
	if (ask->parents)
		memcpy(cell->parent, ask->parents[found->key], 16);
	peer_cell_not(cell, peer);
	for (int i = 0; i < PEER_HOLDERS; i++)
		if (!cell->holders[i].peer) {
			cell->holders[i] = (struct peer_holder){.peer = (uint8_t)(peer + 1), .tier = found->tier};
			break;
		}
}

/* Remembers an answer: also what the peer has not any more. Lets go of the lock now and then. */
static void answer_remember(struct peers *peers, const struct peer_answer *answer, uint32_t peer)
{
	const struct peer_ask *ask = answer->ask;
	cairn *store = peers->store;
	uint64_t now = clock_mono_ns(store->clock);
	uint32_t at = 0;
	for (uint32_t key = 0; key < ask->nkeys; key++) {
		for (uint64_t parts = ask->parts; parts; parts &= parts - 1) {
			uint32_t part = (uint32_t)__builtin_ctzll(parts);
			struct peer_cell *cell = cell_find(peers, ask->space->number, ask->keys[key].bytes, part);
			if (cell)
				peer_cell_not(cell, peer);
		}
		for (; at < answer->nfound && answer->found[at].key == key; at++)
			cell_add(peers, ask, &answer->found[at], peer, now);
		if (key % 1024 == 1023) {
			pthread_mutex_unlock(&store->lock);
			pthread_mutex_lock(&store->lock);
		}
	}
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

struct answer_take {
	const struct peer_ask *ask;
	struct wire_present present;
	struct wire_found *found;
	int error;
};

static void answer_take(void *arg, struct remote_reply *reply)
{
	struct answer_take *take = arg;
	if (reply->head.result < 0)
		return;
	wire_take_present(&reply->body, take->ask->nkeys, &take->present);
	if (reply->body.failed)
		return;
	take->found = mem_array(take->present.nfound + 1, sizeof(*take->found));
	if (!take->found) {
		take->error = CAIRN_E_NOMEM;
		return;
	}
	for (uint32_t i = 0; i < take->present.nfound; i++)
		wire_take_found(&take->present.found, &take->found[i]);
}

void peer_ask_drop(struct peer_ask *ask)
{
	if (!ask || --ask->refs)
		return;
	for (int i = 0; i < PEER_MAX; i++)
		cairn_session_free(ask->answers[i].session);
	mem_free(ask->session);
	mem_free(ask->keys);
	mem_free(ask->parents);
	mem_free(ask);
}

/* Without the lock. */
static int presence_ask(cairn *client, const struct peer_ask *ask, struct answer_take *take)
{
	struct wire_request *request = mem_alloc(sizeof(*request));
	if (!request)
		return CAIRN_E_NOMEM;
	request->type = WIRE_PRESENCE;
	memcpy(request->u.presence.space.bytes, ask->space->id, 32);
	request->u.presence.parts = ask->parts;
	request->u.presence.tails = ask->tails != 0;
	request->u.presence.keys = (struct wire_chain){.nkeys = ask->nkeys, .keys = ask->keys};
	int64_t result = remote_ask(client->remote, request, (uint32_t)(PEER_DEAD_NS / 1000000), answer_take, take);
	mem_free(request);
	return result < 0 ? (int)result : take->error;
}

/* The same for a session: NOENT is an answer too, where somebody was there to say it. */
static int session_ask(cairn *store, cairn *client, const struct peer_ask *ask, cairn_session **ret_session)
{
	struct cairn_session_name name;
	struct cairn_space *there, *here;
	int error;
	struct remote_link *link = remote_link_take(client->remote, (uint32_t)(PEER_DEAD_NS / 1000000), &error);
	if (!link)
		return error;
	remote_link_drop(client->remote, link, 0);
	wire_name_view(ask->session, &name);
	error = remote_resume(client, &name, ret_session);
	if (error)
		return error == CAIRN_E_NOENT || error == CAIRN_DAMAGED ? 0 : error;
	struct cairn_session_info info;
	cairn_session_get_info(*ret_session, &info);
	error = remote_session_space(client, &info.space_id, &there);
	if (!error) {
		struct cairn_space_desc desc = there->space.desc;
		desc.size = sizeof(desc);
		desc.cost_a_s = desc.cost_b_s = 0;
		error = cairn_describe(store, &desc, &here);
	}
	if (error) {
		cairn_session_free(*ret_session);
		*ret_session = NULL;
	}
	return error == CAIRN_E_IO ? error : 0;
}

void peer_ask_run(struct peer_worker *worker, struct peer_answer *answer)
{
	struct peer *peer = worker->peer;
	cairn *store = peer->store;
	struct peer_ask *ask = answer->ask;
	struct answer_take take = {.ask = ask};
	uint64_t begun = clock_mono_ns(store->clock);
	if (!peer->asked_ns)
		peer->asked_ns = begun;
	peer_busy(worker, begun + PEER_DEAD_NS);
	pthread_mutex_unlock(&store->lock);
	cairn_session *session = NULL;
	int error = ask->session ? session_ask(store, worker->client, ask, &session)
	                         : presence_ask(worker->client, ask, &take);
	pthread_mutex_lock(&store->lock);
	uint64_t now = clock_mono_ns(store->clock);
	double seconds = (double)(now - begun) / 1e9;
	peer_idle(worker);
	peer->nasks--;
	peer->asked_ns = 0;
	peer->ask_s = peer->ask_s > 0 ? peer->ask_s + (seconds - peer->ask_s) / 4 : seconds;
	if (error) {
		peer->failures++;
		breaker_bad(&peer->breaker, answer->turn, now);
	} else {
		peer->answers++;
		peer->late += now - begun > store->peers->wait_ns;
		if (!ask->session) {
			peer->wait_s = take.present.wait_s;
			peer->flash_bytes_s = take.present.flash_bytes_s;
		}
		breaker_good(&peer->breaker, answer->turn);
		answer->found = take.found;
		answer->nfound = take.found ? take.present.nfound : 0;
		answer_remember(store->peers, answer, peer->number);
		answer->found = NULL;
	}
	mem_free(take.found);
	answer->session = session;
	if (!answer->done)
		ask->waiting--;
	answer->done = 1;
	peer_ask_drop(ask);
	store_changed(store);
}

/* Whether a caller should wait for this peer's answer: not for one that is being tried again after it failed, nor one
 * that hangs or has been too slow lately. They are asked all the same. */
static int answer_expected(const struct peer *peer, uint64_t budget_ns, uint64_t now)
{
	if (peer->breaker.state != BREAKER_CLOSED || peer->ask_s * 1e9 > (double)budget_ns)
		return 0;
	return !peer->asked_ns || now - peer->asked_ns < budget_ns;
}

/* Hands the ask to all peers that are well. */
static void ask_send(struct peers *peers, struct peer_ask *ask, uint64_t budget_ns)
{
	uint64_t now = clock_mono_ns(peers->store->clock);
	for (uint32_t p = 0; p < peers->n; p++) {
		struct peer *peer = &peers->peer[p];
		struct peer_answer *answer = &ask->answers[p];
		int expected = answer_expected(peer, budget_ns, now);
		if (peer->nasks >= (expected ? PEER_ASKS : 1) || !(answer->turn = breaker_ask(&peer->breaker, now)))
			continue;
		if (!peer_wake(peer, 1)) {
			breaker_give_back(&peer->breaker, answer->turn, now);
			continue;
		}
		answer->ask = ask;
		answer->done = !expected || peer->breaker.state != BREAKER_CLOSED;
		list_push_back(&peer->asks, &answer->link);
		peer->nasks++;
		ask->refs++;
		ask->waiting += !answer->done;
	}
}

static struct peer_ask *ask_new(const struct cairn_space *space, const cairn_key *const *keys,
                                const cairn_key *const *parents, size_t nkeys)
{
	struct peer_ask *ask = mem_alloc(sizeof(*ask));
	if (!ask)
		return NULL;
	ask->refs = 1;
	ask->space = space;
	ask->nkeys = (uint32_t)nkeys;
	ask->keys = mem_array(nkeys, sizeof(*ask->keys));
	ask->parents = parents ? mem_array(nkeys, sizeof(*ask->parents)) : NULL;
	if (!ask->keys || (parents && !ask->parents)) {
		peer_ask_drop(ask);
		return NULL;
	}
	for (size_t i = 0; i < nkeys; i++) {
		ask->keys[i] = *keys[i];
		if (parents && parents[i])
			memcpy(ask->parents[i], parents[i]->bytes, 16);
	}
	return ask;
}

/* Sends it, and waits. */
static void ask_all(struct peers *peers, struct peer_ask *ask, uint64_t budget_ns)
{
	ask_send(peers, ask, budget_ns);
	uint64_t until = clock_mono_ns(peers->store->clock) + budget_ns;
	while (ask->waiting && !store_wait(peers->store, until))
		continue;
	for (uint32_t p = 0; p < peers->n; p++)
		ask->answers[p].done = 1; /* who answers from now on is late */
	ask->waiting = 0;
}

static int text_copy(char to[WIRE_TEXT_MAX], const char *text)
{
	size_t length = text ? strlen(text) : 0;
	if (length >= WIRE_TEXT_MAX)
		return -1;
	memcpy(to, text ? text : "", length + 1);
	return 0;
}

struct peer_ask *peer_ask(cairn *store, const struct cairn_space *space, const cairn_key *const *keys,
                          const cairn_key *const *parents, size_t nkeys, uint64_t parts, int tails, uint64_t budget_ns)
{
	struct peers *peers = store->peers;
	if (!peers || !nkeys || !budget_ns)
		return NULL;
	struct peer_ask *ask = ask_new(space, keys, parents, nkeys < WIRE_PRESENCE_KEYS ? nkeys : WIRE_PRESENCE_KEYS);
	if (!ask)
		return NULL; /* without them, then */
	ask->parts = parts;
	ask->tails = tails;
	ask_all(peers, ask, budget_ns);
	return ask;
}

int peer_resume(cairn *store, const struct cairn_session_name *name, cairn_session **ret_session)
{
	struct peer_ask *ask = mem_alloc(sizeof(*ask));
	struct wire_name *words = mem_alloc(sizeof(*words));
	cairn_session **best = NULL;
	struct cairn_session_info info, most;
	int bad = !ask || !words || text_copy(words->tenant, name->tenant) || text_copy(words->owner, name->owner) ||
	          text_copy(words->name, name->name);
	if (bad) {
		mem_free(ask);
		mem_free(words);
		return err_set(CAIRN_E_NOENT, "there is no session of that name");
	}
	ask->refs = 1;
	ask->session = words;
	pthread_mutex_lock(&store->lock);
	ask_all(store->peers, ask, RESUME_WAITS * store->peers->wait_ns);
	for (uint32_t p = 0; p < store->peers->n; p++) {
		if (!ask->answers[p].session)
			continue;
		cairn_session_get_info(ask->answers[p].session, &info);
		if (best && (info.saved_at_s < most.saved_at_s ||
		             (info.saved_at_s == most.saved_at_s && info.epoch <= most.epoch)))
			continue;
		best = &ask->answers[p].session;
		most = info;
	}
	if (best) {
		*ret_session = *best;
		*best = NULL;
	}
	peer_ask_drop(ask);
	pthread_mutex_unlock(&store->lock);
	return best ? 0 : err_set(CAIRN_E_NOENT, "there is no session of that name, here or with a peer that answered");
}

void peer_ask_best(cairn *store, const struct peer_ask *ask, uint32_t nparts, struct peer_part *parts)
{
	struct peers *peers = store->peers;
	double best_s[PEER_MAX][2];
	for (uint32_t p = 0; p < peers->n; p++)
		for (uint32_t flash = 0; flash < 2; flash++)
			best_s[p][flash] =
				peer_seconds(&peers->peer[p], flash ? CAIRN_TIER_FLASH : CAIRN_TIER_MEMORY, PEER_BATCH_BYTES);
	for (uint32_t key = 0; key < ask->nkeys; key++)
		for (uint64_t mask = ask->parts; mask; mask &= mask - 1) {
			struct peer_name name = {ask->space, &ask->keys[key], (uint32_t)__builtin_ctzll(mask)};
			const struct peer_cell *cell = name.part < nparts ? peer_cell(store, &name) : NULL;
			if (cell && peer_dropped(store, &name))
				continue;
			double least = 0;
			for (int i = 0; cell && i < PEER_HOLDERS && cell->holders[i].peer; i++) {
				uint32_t p = cell->holders[i].peer - 1u;
				double seconds = best_s[p][cell->holders[i].tier == CAIRN_TIER_FLASH];
				struct peer_part *to = &parts[(size_t)key * nparts + name.part];
				if (peer_shut(&peers->peer[p]) || (to->length && seconds >= least))
					continue;
				least = seconds;
				*to = (struct peer_part){.length = cell->length,
				                         .peer = cell->holders[i].peer,
				                         .tier = cell->holders[i].tier,
				                         .tail = cell->tail};
			}
		}
}

uint64_t peer_budget_ns(const cairn *store, const struct cairn_space *space, uint64_t have, uint64_t tokens)
{
	const struct cairn_space_desc *desc = &space->space.desc;
	uint64_t budget_ns = store->peers->wait_ns;
	if (desc->cost_a_s <= 0 && desc->cost_b_s <= 0)
		return budget_ns;
	double save_s =
		worth_cost_s(desc->cost_a_s, desc->cost_b_s, tokens) - worth_cost_s(desc->cost_a_s, desc->cost_b_s, have);
	return save_s * 1e9 < (double)budget_ns ? (uint64_t)(save_s * 1e9) : budget_ns;
}

/* Whether an item is to be asked for. */
static int item_unknown(cairn *store, const struct cairn_space *space, const struct cairn_item *item)
{
	uint32_t nparts = space->space.desc.nparts ? space->space.desc.nparts : 1;
	struct peer_name name = {space, &item->key, item->part};
	uint32_t entry = item->part < nparts ? catalog_find(store->catalog, space->number, item->key.bytes, item->part) : 0;
	if (item->part >= nparts || (entry && !(catalog_at(store->catalog, entry)->flags & CATALOG_GHOST)))
		return 0;
	return !peer_cell(store, &name);
}

void peer_ask_items(cairn *store, const struct cairn_space *space, const struct cairn_item *items, size_t n,
                    const struct store_call *call)
{
	const cairn_key *keys[STORE_BATCH], *parents[STORE_BATCH];
	uint64_t parts = 0, tokens = 0;
	uint32_t nkeys = 0;
	if (!store->peers || call->here || !space->described || space->misses)
		return;
	check(n <= STORE_BATCH);
	for (size_t i = 0; i < n; i++) {
		if (!item_unknown(store, space, &items[i]))
			continue;
		parts |= 1ull << items[i].part;
		if (nkeys && !memcmp(keys[nkeys - 1]->bytes, items[i].key.bytes, 32))
			continue;
		keys[nkeys] = &items[i].key;
		parents[nkeys++] = items[i].parent;
		tokens += items[i].group < space->space.ngroups ? space->space.desc.groups[items[i].group].block_tokens : 0;
	}
	if (!nkeys)
		return;
	uint64_t now = clock_mono_ns(store->clock), budget = peer_budget_ns(store, space, 0, tokens);
	if (!tokens) /* of a scheme without tokens */
		budget = store->peers->wait_ns;
	if (call->deadline_ns <= now)
		return;
	if (call->deadline_ns - now < budget)
		budget = call->deadline_ns - now;
	peer_ask_drop(peer_ask(store, space, keys, parents, nkeys, parts, 1, budget));
}
