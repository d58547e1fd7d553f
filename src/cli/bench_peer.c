/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes through the peer tier: parts that lie in flash alone of one cairnd, got by a client of another one whose
 * peer it is, over loopback TCP; beside the slower of the two ways that they take, the first one's flash and network.
 * Threads: one; get batches in flight are the library's. Memory: a destination; both daemons' pools.
 * Invariant: bytes count only where the first had them in flash alone and the second not at all when the clock started,
 * the match said so, and each part came from the peer tier and is the one that was put.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/cli.h"

enum {
	PEER_AHEAD = 16,
	PEER_FLIGHT = 4, /* batches */
};
#define PEER_ANSWERS_S 20.0

static const struct bench_figure peer_figures[] = {
	{"peer.flash", "GB/s", "the slower of flash and network", "parts in flash of a cairnd's peer, by match and get", 0,
     0.9, 0, 0},
};

struct peer_batch {
	struct cairn_item items[BENCH_BATCH];
	struct cairn_buf bufs[BENCH_BATCH];
};
struct peer_side {
	struct bench_daemon daemon;
	cairn *store;
	cairn_space *space;
};
struct peer_work {
	struct peer_side there, here; /* `here` has the other one as its peer */
	cairn *remote;                /* there, over TCP */
	cairn_space *remote_space;
	struct bench_pump pump;
	cairn_queue *queue;
	uint64_t parts, cursor; /* parts of a round; where the next ones are looked for */
	uint64_t *numbers, count;
	cairn_key *keys;
	uint8_t *to;
	struct peer_batch batches[PEER_FLIGHT];
	double cpu_s, gb; /* of this process and both daemons, in all rounds that count */
	double flash[BENCH_ROUNDS + 1], network[BENCH_ROUNDS + 1];
};

static uint64_t peer_bytes(const struct bench *bench)
{
	uint64_t bytes = bench_cold_bytes(bench, 4);

	return bytes < bench->size ? bytes : bench->size;
}

static uint64_t peer_disk(const struct bench *bench)
{
	return peer_bytes(bench) / 4 * 9 + ((uint64_t)512 << 20);
}

/* ---- what lies where --------------------------------------------------------------------------------------------- */

/* The tier that has it, CAIRN_TIER_NONE: it is not there. */
static uint32_t peer_tier(const struct peer_side *side, uint64_t number)
{
	struct cairn_explanation found = {.size = sizeof found};
	cairn_digest space;
	cairn_key key;

	bench_key(number, &key);
	cairn_space_get_id(side->space, &space);
	int error = cairn_explain(side->store, &space, &key, 0, &found);
	return error || found.reason != CAIRN_WHY_PRESENT ? CAIRN_TIER_NONE : found.tier;
}

/* Parts in that tier there, and (away) not here, from the cursor on; at most those of a round. 0, or CLI_ERROR after a
 * message: there are too few. */
static int peer_choose(struct peer_work *work, uint32_t tier, int away)
{
	work->count = 0;
	for (uint64_t i = 0; i < work->pump.next && work->count < work->parts && !say_stopped; i++) {
		uint64_t number = (work->cursor + i) % work->pump.next;

		if (peer_tier(&work->there, number) == tier && (!away || peer_tier(&work->here, number) == CAIRN_TIER_NONE))
			work->numbers[work->count++] = number;
	}
	if (say_stopped)
		return CLI_ERROR;
	work->count = work->count / BENCH_BATCH * BENCH_BATCH;
	if (work->count < work->parts / 4)
		return say_error("too few parts lie where they must to be read; give a larger --size");
	work->cursor = (work->numbers[work->count - 1] + 1) % work->pump.next;
	return 0;
}

/* ---- start ------------------------------------------------------------------------------------------------------- */

/* Until a match here finds a part that lies there: they know each other now. */
static int peer_await(struct peer_work *work)
{
	double until = bench_now() + PEER_ANSWERS_S;
	struct cairn_match_info info = {0};
	cairn_key key;

	bench_key(work->pump.next - 1, &key);
	while (!say_stopped && bench_now() < until) {
		struct cairn_chain chain = {.keys = &key, .nkeys = 1};
		cairn_match *match;

		if (cairn_match_take(work->here.store, work->here.space, &chain, 1, 0, 0, &match))
			return say_error("a match failed: %s", cairn_error_text());
		cairn_match_get_info(match, &info);
		cairn_match_release(work->here.store, match);
		if (info.tier_bytes[CAIRN_TIER_PEER] == BENCH_PART_BYTES)
			return 0;
	}
	return say_stopped ? CLI_ERROR : say_error("a cairnd does not find what its peer has");
}

/* Its flash is a medium, not the page cache. */
static int peer_direct(struct peer_work *work)
{
	struct cairn_stat *stat = calloc(1, sizeof *stat);

	if (!stat)
		return say_error("out of memory; free some and try again");
	stat->size = sizeof *stat;
	int error = cairn_stat(work->there.store, stat);
	int direct = !error && stat->ndevices == 1 && stat->device[0].direct;
	free(stat);
	return direct ? 0 : say_error("flash can not be read directly; give a STORE on a file system that allows O_DIRECT");
}

static int peer_connect(struct peer_work *work)
{
	int error = bench_connect(work->there.daemon.local, NULL, &work->there.store, &work->there.space);

	error = error ? error : bench_connect(work->there.daemon.remote, NULL, &work->remote, &work->remote_space);
	error = error ? error : bench_connect(work->here.daemon.local, NULL, &work->here.store, &work->here.space);
	if (!error && cairn_queue_open(work->here.store, PEER_FLIGHT, &work->queue))
		error = say_error("%s", cairn_error_text());
	return error;
}

static int peer_start(struct bench *bench)
{
	struct peer_work *work = bench->work = calloc(1, sizeof *work);
	uint64_t bytes = peer_bytes(bench), pool = bytes / 8 * 3;
	struct bench_plan there = {.flash_bytes = bytes / 4 * 9, .memory_bytes = pool};
	struct bench_plan here = {.no_flash = 1, .memory_bytes = pool};

	if (!work)
		return say_error("out of memory; free some and try again");
	work->parts = bytes / BENCH_PART_BYTES / 2;
	work->numbers = calloc(work->parts, sizeof *work->numbers);
	work->keys = calloc(work->parts, sizeof *work->keys);
	work->to = bench_map(work->parts * BENCH_PART_BYTES);
	if (!work->numbers || !work->keys || !work->to)
		return say_error("out of memory; free some and try again");
	int error = bench_daemon_start(bench, "there", &there, &work->there.daemon);
	here.peer = work->there.daemon.remote;
	error = error ? error : bench_daemon_start(bench, "here", &here, &work->here.daemon);
	error = error ? error : peer_connect(work);
	error = error ? error : peer_direct(work);
	error = error ? error : bench_pump_start(bench, &work->pump, work->there.store, work->there.space);
	if (error)
		return error;
	work->pump.durability = CAIRN_DURABLE_FLASH;
	error = bench_pump_write(&work->pump, bytes / BENCH_PART_BYTES * 3 / 2);
	return error ? error : peer_await(work);
}

/* ---- the limits -------------------------------------------------------------------------------------------------- */

/* By the first one's own client: hinted at some way ahead, leased one after the other. GB/s; 0 after a message. */
static double peer_flash(struct peer_work *work)
{
	uint64_t hinted = 0;

	if (peer_choose(work, CAIRN_TIER_FLASH, 0))
		return 0;
	double start = bench_now();
	for (uint64_t part = 0; part < work->count; part++) {
		struct cairn_item item = {0};
		cairn_lease *lease;

		if (part + PEER_AHEAD / 2 >= hinted && hinted < work->count) {
			cairn_key keys[PEER_AHEAD];
			struct cairn_chain chain = {.keys = keys};

			for (; hinted < part + PEER_AHEAD && hinted < work->count && chain.nkeys < PEER_AHEAD; hinted++)
				bench_key(work->numbers[hinted], &keys[chain.nkeys++]);
			cairn_hint(work->there.store, work->there.space, &chain, CAIRN_HINT_RESUME);
		}
		bench_key(work->numbers[part], &item.key);
		if (cairn_lease_take(work->there.store, work->there.space, &item, NULL, &lease))
			return say_error("a part could not be read: %s", cairn_error_text()), 0;
		cairn_lease_release(work->there.store, lease);
		if (item.ret_bytes != BENCH_PART_BYTES)
			return say_error("a lease is not of what was put"), 0;
	}
	return (double)(work->count * BENCH_PART_BYTES) / 1e9 / (bench_now() - start);
}

/* Names the parts of a batch, from the `at`-th of this round on. */
static void peer_name(struct peer_work *work, struct peer_batch *batch, uint64_t at, uint32_t flags)
{
	memset(batch->items, 0, sizeof batch->items);
	for (uint32_t i = 0; i < BENCH_BATCH; i++) {
		batch->bufs[i] = cairn_buf_of(work->to + (at + i) * BENCH_PART_BYTES, BENCH_PART_BYTES);
		batch->items[i].bufs = &batch->bufs[i];
		batch->items[i].nbufs = 1;
		batch->items[i].flags = flags;
		bench_key(work->numbers[at + i], &batch->items[i].key);
	}
}

/* All of a batch came, whole, from that tier. 0, or CLI_ERROR after a message. */
static int peer_came(const struct peer_batch *batch, long result, uint32_t tier)
{
	for (uint32_t i = 0; i < BENCH_BATCH; i++) {
		const struct cairn_item *item = &batch->items[i];

		if (item->status)
			return say_error("a get failed: %s", cairn_status_text(item->status));
		if (item->ret_tier != tier || item->ret_bytes != BENCH_PART_BYTES)
			return say_error("a part came from another tier than the one that has it");
	}
	return result == BENCH_BATCH ? 0 : say_error("a get failed: %s", cairn_status_text((int)result));
}

/* Each is the part that was asked for: the pump put its number in front. */
static int peer_same(const struct peer_work *work)
{
	for (uint64_t i = 0; i < work->count; i++)
		if (memcmp(work->to + i * BENCH_PART_BYTES, &work->numbers[i], sizeof work->numbers[i]))
			return say_error("what was got is not what was put");
	return 0;
}

/* remote.get, of what is in the first one's memory now. GB/s; 0 after a message. */
static double peer_network(struct peer_work *work)
{
	struct peer_batch *batch = &work->batches[0];

	if (peer_choose(work, CAIRN_TIER_MEMORY, 0))
		return 0;
	memset(work->to, 0, work->count * BENCH_PART_BYTES);
	double start = bench_now();
	for (uint64_t at = 0; at < work->count; at += BENCH_BATCH) {
		peer_name(work, batch, at, CAIRN_ITEM_UNCHECKED);
		long result = cairn_get(work->remote, work->remote_space, batch->items, BENCH_BATCH, NULL);
		if (peer_came(batch, result, CAIRN_TIER_MEMORY))
			return 0;
	}
	double seconds = bench_now() - start;
	return peer_same(work) ? 0 : (double)(work->count * BENCH_PART_BYTES) / 1e9 / seconds;
}

/* ---- the figure -------------------------------------------------------------------------------------------------- */

/* Gets what was matched, several batches at a time. 0, or CLI_ERROR after a message. */
static int peer_get(struct peer_work *work)
{
	uint64_t at = 0;
	uint32_t flying = 0;
	int error = 0;

	while (flying || (at < work->count && !error)) {
		struct cairn_completion done;

		for (; at < work->count && at / BENCH_BATCH < PEER_FLIGHT && !error; at += BENCH_BATCH, flying++) {
			peer_name(work, &work->batches[at / BENCH_BATCH], at, 0);
			if (cairn_get_submit(work->queue, work->here.space, work->batches[at / BENCH_BATCH].items, BENCH_BATCH,
			                     NULL, at / BENCH_BATCH))
				return say_error("a get failed: %s", cairn_error_text());
		}
		if (cairn_queue_wait(work->queue, &done, 1, -1) != 1)
			return say_error("waiting for a get failed: %s", cairn_error_text());
		flying--;
		struct peer_batch *batch = &work->batches[done.tag];
		error = error ? error : peer_came(batch, done.result, CAIRN_TIER_PEER);
		if (error || at >= work->count)
			continue;
		peer_name(work, batch, at, 0);
		if (cairn_get_submit(work->queue, work->here.space, batch->items, BENCH_BATCH, NULL, done.tag))
			error = say_error("a get failed: %s", cairn_error_text());
		else
			at += BENCH_BATCH, flying++;
	}
	return error;
}

static double peer_cpu(const struct peer_work *work)
{
	return bench_cpu() + bench_daemon_cpu(&work->there.daemon) + bench_daemon_cpu(&work->here.daemon);
}

/* GB/s; 0 after a message. */
static double peer_value(struct peer_work *work, int counts)
{
	struct cairn_chain chain = {.keys = work->keys};
	struct cairn_match_info info = {0};
	cairn_match *match;

	if (peer_choose(work, CAIRN_TIER_FLASH, 1))
		return 0;
	for (; chain.nkeys < work->count; chain.nkeys++)
		bench_key(work->numbers[chain.nkeys], &work->keys[chain.nkeys]);
	memset(work->to, 0, work->count * BENCH_PART_BYTES);
	double start = bench_now(), cpu = peer_cpu(work);
	if (cairn_match_take(work->here.store, work->here.space, &chain, 1, 0, 0, &match))
		return say_error("a match failed: %s", cairn_error_text()), 0;
	cairn_match_get_info(match, &info);
	int error = info.tier_bytes[CAIRN_TIER_PEER] == work->count * BENCH_PART_BYTES &&
	                    info.bytes == info.tier_bytes[CAIRN_TIER_PEER]
	                ? peer_get(work)
	                : say_error("a match does not find all that the peer has");
	double seconds = bench_now() - start;
	work->cpu_s += counts ? peer_cpu(work) - cpu : 0;
	work->gb += counts ? (double)(work->count * BENCH_PART_BYTES) / 1e9 : 0;
	cairn_match_release(work->here.store, match);
	return error || peer_same(work) ? 0 : (double)(work->count * BENCH_PART_BYTES) / 1e9 / seconds;
}

static int peer_round(struct bench *bench, uint32_t round)
{
	struct peer_work *work = bench->work;
	double value = 0;

	/* Network is last but for the figure, or last of all: what flash gave is in memory then. */
	if (!(round % 2) && !((value = peer_value(work, round > 0)) > 0))
		return CLI_ERROR;
	if (!((work->flash[round] = peer_flash(work)) > 0) || !((work->network[round] = peer_network(work)) > 0))
		return CLI_ERROR;
	if (round % 2 && !((value = peer_value(work, round > 0)) > 0))
		return CLI_ERROR;
	bench_add(bench, round, "peer.flash", value,
	          work->flash[round] < work->network[round] ? work->flash[round] : work->network[round]);
	return 0;
}

static int peer_finish(struct bench *bench)
{
	struct peer_work *work = bench->work;
	struct bench_result *result = bench_find(bench, "peer.flash");
	char flash[24], network[24], cpu[24];

	snprintf(result->note, sizeof result->note,
	         "flash %s GB/s, network %s GB/s; CPU seconds a GB, client and both cairnds: %s",
	         bench_number(bench_quantile(work->flash + 1, bench->rounds, 0.5), flash, sizeof flash),
	         bench_number(bench_quantile(work->network + 1, bench->rounds, 0.5), network, sizeof network),
	         bench_number(work->gb > 0 ? work->cpu_s / work->gb : 0, cpu, sizeof cpu));
	return 0;
}

static void peer_done(struct bench *bench)
{
	struct peer_work *work = bench->work;

	if (!work)
		return;
	if (work->queue)
		cairn_queue_close(work->queue);
	bench_pump_done(&work->pump);
	if (work->remote)
		cairn_close(work->remote);
	if (work->here.store)
		cairn_close(work->here.store);
	if (work->there.store)
		cairn_close(work->there.store);
	bench_daemon_end(&work->here.daemon);
	bench_daemon_end(&work->there.daemon);
	bench_unmap(work->to, work->parts * BENCH_PART_BYTES);
	free(work->numbers);
	free(work->keys);
	free(work);
}

const struct bench_family bench_peer = {
	.name = "peer",
	.figures = peer_figures,
	.nfigures = sizeof peer_figures / sizeof peer_figures[0],
	.disk_bytes = peer_disk,
	.start = peer_start,
	.round = peer_round,
	.finish = peer_finish,
	.done = peer_done,
};
