/* SPDX-License-Identifier: Apache-2.0 */
/* Peers: their life, their workers, and the watch over both. See peer.h. */
#include "store/peer.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/mem.h"
#include "io/thread.h"
#include "store/remote.h"

static const struct breaker_rule peer_rule = {.failures = 1, .pause_ns = 200000000ull, .pause_max_ns = 10000000000ull};

/* ---- measures ---------------------------------------------------------------------------------------------------- */

int peer_shut(const struct peer *peer)
{
	return breaker_shut(&peer->breaker, clock_mono_ns(peer->store->clock));
}

double peer_seconds(const struct peer *peer, uint32_t tier, uint64_t length)
{
	uint64_t now = clock_mono_ns(peer->store->clock);
	double bytes_s = rate_bytes_s(&peer->rate, PEER_FIRST_BYTES_S, now);
	double seconds = rate_wait_s(&peer->rate, PEER_FIRST_BYTES_S, now) + (double)length / bytes_s;
	if (peer->rate.first_s <= 0)
		seconds += peer->ask_s;
	if (tier == CAIRN_TIER_FLASH)
		seconds += peer->wait_s + (double)length / (peer->flash_bytes_s > 0 ? peer->flash_bytes_s : PEER_FIRST_BYTES_S);
	return seconds;
}

/* ---- the watch: what takes too long is cut ----------------------------------------------------------------------- */

static void wait_until(cairn *store, pthread_cond_t *cond, uint64_t until_ns)
{
	struct timespec at = {.tv_sec = (time_t)(until_ns / 1000000000ull), .tv_nsec = (long)(until_ns % 1000000000ull)};
	if (until_ns == UINT64_MAX)
		pthread_cond_wait(cond, &store->lock);
	else
		pthread_cond_timedwait(cond, &store->lock, &at);
}

static void *watch_main(void *arg)
{
	struct peers *peers = arg;
	cairn *store = peers->store;
	pthread_mutex_lock(&store->lock);
	while (!peers->stopping) {
		uint64_t now = clock_mono_ns(store->clock), next = UINT64_MAX;
		for (uint32_t p = 0; p < peers->n; p++)
			for (uint32_t w = 0; w < PEER_WORKERS; w++) {
				struct peer_worker *worker = &peers->peer[p].workers[w];
				if (!worker->busy)
					continue;
				if (now < worker->until_ns) {
					next = worker->until_ns < next ? worker->until_ns : next;
					continue;
				}
				/* Again and again: it may have been between two connections. */
				if (worker->client)
					remote_cut(worker->client->remote);
				worker->cut = 1;
				next = now + 50000000 < next ? now + 50000000 : next;
			}
		wait_until(store, &peers->watched, next);
	}
	pthread_mutex_unlock(&store->lock);
	return NULL;
}

void peer_busy(struct peer_worker *worker, uint64_t until_ns)
{
	worker->busy = 1;
	worker->cut = 0;
	worker->until_ns = until_ns;
	pthread_cond_signal(&worker->peer->store->peers->watched);
}

void peer_idle(struct peer_worker *worker)
{
	worker->busy = 0;
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

/* The next thing to do; the lock is held, and let go of in it. Whether there was one. */
static int worker_step(struct peer_worker *worker)
{
	struct peer *peer = worker->peer;
	struct list *node = list_pop_front(&peer->asks);
	if (node) {
		peer_ask_run(worker, LIST_OF(node, struct peer_answer, link));
		return 1;
	}
	if (worker->number == 0 || (list_empty(&peer->fetches) && list_empty(&peer->ahead)))
		return 0;
	peer_fetch_run(worker);
	return 1;
}

static void *worker_main(void *arg)
{
	struct peer_worker *worker = arg;
	struct peer *peer = worker->peer;
	cairn *store = peer->store;
	struct cairn_options options = {.size = sizeof(options), .token_file = peer->token_file};
	cairn *client = NULL;
	pthread_mutex_lock(&store->lock);
	while (!store->peers->stopping) {
		if (!worker->client) {
			pthread_mutex_unlock(&store->lock);
			int error = store_open_peer(peer->place, store->maker, &options, &client);
			pthread_mutex_lock(&store->lock);
			if (error) /* no memory: tried again, and what waits is not held up for ever */
				wait_until(store, &peer->work, clock_mono_ns(store->clock) + PEER_DEAD_NS);
			else
				worker->client = client;
			continue; /* it may be over by now */
		}
		if (!worker_step(worker))
			pthread_cond_wait(&peer->work, &store->lock);
	}
	worker->client = NULL;
	pthread_mutex_unlock(&store->lock);
	if (client)
		(void)cairn_close(client);
	return NULL;
}

int peer_wake(struct peer *peer, int for_asks)
{
	struct peers *peers = peer->store->peers;
	int fit = 0, idle = 0;
	for (uint32_t w = for_asks ? 0 : 1; w < PEER_WORKERS; w++) {
		fit |= peer->workers[w].started;
		idle |= peer->workers[w].started && !peer->workers[w].busy;
	}
	for (uint32_t w = for_asks ? 0 : 1; w < PEER_WORKERS && !idle && !peers->stopping; w++) {
		struct peer_worker *worker = &peer->workers[w];
		if (worker->started)
			continue;
		if (thread_start(&worker->thread, worker_main, worker))
			break; /* those that run will do */
		worker->started = fit = 1;
		break;
	}
	/* All: one that does only asks may be the one that a signal wakes. */
	pthread_cond_broadcast(&peer->work);
	return fit;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

int peer_place_take(const char *text, struct link_place *ret_place, const char **ret_token)
{
	char place[LINK_PATH_MAX];
	const char *space = strncmp(text, "unix:", 5) ? strchr(text, ' ') : NULL;
	size_t length = space ? (size_t)(space - text) : strlen(text);
	if (length >= sizeof(place))
		return err_set(CAIRN_E_INVAL, "a place has at most %zu bytes", sizeof(place) - 1);
	memcpy(place, text, length);
	place[length] = 0;
	while (space && *space == ' ')
		space++;
	*ret_token = space && *space ? space : NULL;
	return link_place_take(place, ret_place);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void peers_free(struct peers *peers)
{
	for (uint32_t p = 0; p < peers->n; p++) {
		mem_free(peers->peer[p].place);
		mem_free(peers->peer[p].text);
		pthread_cond_destroy(&peers->peer[p].work);
	}
	pthread_cond_destroy(&peers->watched);
	mem_free(peers->cells);
	mem_free(peers->fetches);
	mem_free(peers);
}

static int peers_fill(struct peers *peers, const struct cairn_options *options)
{
	cairn *store = peers->store;
	struct link_place place;
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&peers->watched, &attributes);
	int error = 0;
	for (uint32_t p = 0; p < options->npeers && !error; p++) {
		struct peer *peer = &peers->peer[p];
		peer->text = options->peers[p] ? mem_copy_string(options->peers[p]) : NULL;
		peer->store = store;
		peer->number = p;
		breaker_init(&peer->breaker, &peer_rule);
		pthread_cond_init(&peer->work, &attributes);
		list_init(&peer->asks);
		list_init(&peer->fetches);
		list_init(&peer->ahead);
		for (uint32_t w = 0; w < PEER_WORKERS; w++)
			peer->workers[w] = (struct peer_worker){.peer = peer, .number = w};
		peers->n++;
		if (!options->peers[p])
			error = err_set(CAIRN_E_INVAL, "a peer without a place");
		else if (!peer->text)
			error = err_set(CAIRN_E_NOMEM, "no memory for peers");
		else
			error = peer_place_take(peer->text, &place, &peer->token_file);
		if (!error && !(peer->place = mem_copy_string(place.text)))
			error = err_set(CAIRN_E_NOMEM, "no memory for peers");
	}
	pthread_condattr_destroy(&attributes);
	peers->cells = mem_table(PEER_CELLS, sizeof(*peers->cells));
	peers->fetches = mem_array(PEER_FETCHES, sizeof(*peers->fetches));
	if (!error && (!peers->cells || !peers->fetches))
		error = err_set(CAIRN_E_NOMEM, "no memory for peers");
	for (uint32_t i = 0; i < PEER_FETCHES && !error; i++)
		list_push_back(&peers->fetches_free, &peers->fetches[i].link);
	return error;
}

int peers_open(cairn *store, const struct cairn_options *options)
{
	if (!options->npeers || !store->maker->threaded)
		return 0;
	if (options->npeers > PEER_MAX || !options->peers)
		return err_set(CAIRN_E_INVAL, "%u peers: at most %d", options->npeers, PEER_MAX);
	struct peers *peers = mem_alloc(sizeof(*peers));
	if (!peers)
		return err_set(CAIRN_E_NOMEM, "no memory for peers");
	peers->store = store;
	peers->wait_ns = (uint64_t)(options->peer_wait_ms ? options->peer_wait_ms : PEER_WAIT_MS) * 1000000;
	list_init(&peers->fetches_free);
	for (int i = 0; i < PEER_BUCKETS; i++)
		list_init(&peers->buckets[i]);
	int error = peers_fill(peers, options);
	if (!error && thread_start(&peers->watch, watch_main, peers))
		error = err_set(CAIRN_E_NOMEM, "cannot start a thread for peers");
	if (error) {
		peers_free(peers);
		return error;
	}
	store->peers = peers;
	return 0;
}

/* All of them before the first is waited for: one may be connecting. */
static void workers_stop(struct peers *peers)
{
	for (uint32_t p = 0; p < peers->n; p++) {
		struct peer *peer = &peers->peer[p];
		pthread_cond_broadcast(&peer->work);
		for (uint32_t w = 0; w < PEER_WORKERS; w++)
			if (peer->workers[w].client)
				remote_stop(peer->workers[w].client->remote);
	}
}

void peers_stop(cairn *store)
{
	struct peers *peers = store->peers;
	struct list *node;
	if (!peers)
		return;
	pthread_mutex_lock(&store->lock);
	peers->stopping = 1;
	pthread_cond_broadcast(&peers->watched);
	workers_stop(peers);
	pthread_mutex_unlock(&store->lock);
	pthread_join(peers->watch, NULL);
	for (uint32_t p = 0; p < peers->n; p++)
		for (uint32_t w = 0; w < PEER_WORKERS; w++)
			if (peers->peer[p].workers[w].started)
				pthread_join(peers->peer[p].workers[w].thread, NULL);
	pthread_mutex_lock(&store->lock);
	for (uint32_t p = 0; p < peers->n; p++) {
		while ((node = list_pop_front(&peers->peer[p].asks)))
			peer_ask_drop(LIST_OF(node, struct peer_answer, link)->ask);
		while ((node = list_pop_front(&peers->peer[p].fetches)))
			peer_fetch_drop(peers, LIST_OF(node, struct peer_fetch, link));
	}
	pthread_mutex_unlock(&store->lock);
	store->peers = NULL;
	peers_free(peers);
}

void peers_stat(cairn *store, struct cairn_stat *stat)
{
	const struct peers *peers = store->peers;
	for (uint32_t p = 0; peers && p < peers->n; p++) {
		const struct peer *peer = &peers->peer[p];
		struct cairn_peer_stat *to = &stat->peer[p];
		size_t length = strlen(peer->place);
		memcpy(to->place, peer->place, length < sizeof(to->place) ? length : sizeof(to->place) - 1);
		to->state = peer->breaker.state;
		to->answers = peer->answers;
		to->late = peer->late;
		to->failures = peer->failures;
		to->hits = peer->hits;
		to->hit_bytes = peer->hit_bytes;
		to->damaged_parts = peer->damaged;
		to->answer_s = peer->ask_s;
		to->read_gb_s = peer->rate.bytes_s / 1e9;
		stat->npeers = p + 1;
	}
}
