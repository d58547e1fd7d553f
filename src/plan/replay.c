/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaying a trace through one tier. See replay.h.
 *
 * Lists are rings over block numbers: `newer` and `older` of the places 0..nblocks - 1, and one place after them for
 * each list, its head: newer of the head is its oldest block, older its newest.
 */
#include "plan/replay.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "cairn/cairn.h"
#include "policy/watch.h"

enum { LIST_CLOSED = INDEX_CLASSES, LISTS };
#define NOBODY UINT32_MAX
#define WATCHED 65536u /* what a store of this size or more has */
#define US_PER_UNIT (1000000 / (uint64_t)WATCH_UNITS_S)

struct block {
	uint32_t newer, older;
	uint32_t used;    /* last use, as watch.h counts time */
	uint32_t request; /* the last that used it, counted from 1 */
	uint32_t uses;
	uint8_t class;
	uint8_t list;     /* its class, or LIST_CLOSED */
	uint8_t here;     /* in the tier, in `list` */
};

struct replay {
	const struct trace *trace;
	const struct replay_options *options;
	struct block *blocks; /* nblocks, and LISTS heads */
	struct watch_cell *cells;
	uint8_t *last;        /* by place in refs: said to be the block's last use; NULL: no hints */
	struct watch watch;
	uint32_t tails[LISTS]; /* the oldest block of each list's newest request; NOBODY: not known */
	uint32_t now, used;
	struct replay_result result;
};

static void list_out(struct replay *replay, uint32_t number)
{
	struct block *b = &replay->blocks[number];
	if (replay->tails[b->list] == number)
		replay->tails[b->list] = b->newer < replay->trace->nblocks ? b->newer : NOBODY;
	replay->blocks[b->newer].older = b->older;
	replay->blocks[b->older].newer = b->newer;
}

/* At the newest end, or (closed) at the oldest. */
static void list_in(struct replay *replay, uint32_t number, uint32_t list, int oldest)
{
	struct block *b = &replay->blocks[number];
	uint32_t head = replay->trace->nblocks + list, newest = replay->blocks[head].older;
	if (newest == head || replay->blocks[newest].request != b->request)
		replay->tails[list] = number;
	b->list = (uint8_t)list;
	b->newer = oldest ? replay->blocks[head].newer : head;
	b->older = oldest ? head : newest;
	replay->blocks[b->newer].older = number;
	replay->blocks[b->older].newer = number;
}

static uint32_t class_of(const struct replay *replay, const struct block *b, int tail)
{
	return replay->options->policy == REPLAY_INDEX ? index_class(b->uses, tail) : 1;
}

/* The oldest block of the newest request of a list; NOBODY: the list is empty. */
static uint32_t newest_tail(struct replay *replay, uint32_t list)
{
	uint32_t head = replay->trace->nblocks + list, at = replay->blocks[head].older, older;
	if (at == head || replay->tails[list] != NOBODY)
		return at == head ? NOBODY : replay->tails[list];
	while ((older = replay->blocks[at].older) != head && replay->blocks[older].request == replay->blocks[at].request)
		at = older;
	return replay->tails[list] = at;
}

static void evict_one(struct replay *replay)
{
	uint32_t at[INDEX_CANDIDATES], head = replay->trace->nblocks + LIST_CLOSED, victim = replay->blocks[head].newer;
	struct index_candidate candidates[INDEX_CANDIDATES];
	if (victim == head && replay->options->policy == REPLAY_LRU) {
		victim = replay->blocks[replay->trace->nblocks + 1].newer;
	} else if (victim == head) {
		for (uint32_t i = 0; i < INDEX_CANDIDATES; i++) {
			uint32_t class = i / 2, tail = newest_tail(replay, class);
			if (!(i % 2 && replay->options->policy == REPLAY_INDEX) && tail != NOBODY)
				tail = replay->blocks[replay->trace->nblocks + class].newer;
			at[i] = tail;
			candidates[i].class = class;
			candidates[i].age_s = tail == NOBODY ? -1 : (replay->now - replay->blocks[at[i]].used) / WATCH_UNITS_S;
		}
		victim = at[index_choose(&replay->watch.table, candidates, INDEX_CANDIDATES)];
	}
	list_out(replay, victim);
	replay->blocks[victim].here = 0;
	replay->used--;
	replay->result.evictions++;
}

static void use_block(struct replay *replay, uint32_t number, uint32_t request, int tail, int last)
{
	struct block *b = &replay->blocks[number];
	if (b->here)
		list_out(replay, number);
	b->uses++;
	b->class = (uint8_t)class_of(replay, b, tail);
	b->used = replay->now;
	b->request = request;
	if (replay->options->policy != REPLAY_LRU)
		watch_use(&replay->watch, number + 1, b->class, replay->now);
	replay->used += !b->here;
	b->here = 1;
	list_in(replay, number, last ? LIST_CLOSED : b->class, 0);
}

static void one_request(struct replay *replay, const struct trace_request *request, uint32_t number)
{
	const uint32_t *refs = replay->trace->refs + request->first;
	uint32_t run = 0;
	replay->now = (uint32_t)(request->time_us / US_PER_UNIT);
	if (replay->options->policy != REPLAY_LRU)
		(void)watch_minutes(&replay->watch, replay->now);
	while (run < request->nblocks && replay->blocks[refs[run]].here)
		run++;
	replay->result.hit_tokens += trace_tokens(request, run);
	for (uint32_t i = request->nblocks; i-- > 0;)
		use_block(replay, refs[i], number, request->partial && i == request->nblocks - 1,
		          replay->last ? replay->last[request->first + i] : 0);
	while (replay->used > replay->options->blocks)
		evict_one(replay);
}

int replay_hints(const struct trace *trace, uint32_t percent, uint64_t seed, uint8_t *ret_last)
{
	uint32_t *uses = mem_array(trace->nblocks + 1, sizeof(*uses)), *all = mem_array(trace->nblocks + 1, sizeof(*all));
	struct random random;
	int error = uses && all ? 0 : err_set(CAIRN_E_NOMEM, "no memory for the hints");
	random_init(&random, seed);
	for (uint64_t i = 0; !error && i < trace->nrefs; i++)
		all[trace->refs[i]]++;
	for (size_t r = 0; !error && r < trace->nrequests; r++) {
		const struct trace_request *request = &trace->requests[r];
		int wrong = random_below(&random, 100) >= percent;
		for (uint64_t i = request->first; i < request->first + request->nblocks; i++) {
			uint32_t block = trace->refs[i];
			ret_last[i] = ++uses[block] == all[block];
			if (wrong && uses[block] < 3)
				ret_last[i] = !ret_last[i];
		}
	}
	mem_free(uses);
	mem_free(all);
	return error;
}

static int replay_init(struct replay *replay)
{
	const struct replay_options *options = replay->options;
	uint32_t nblocks = replay->trace->nblocks, ncells = options->watched ? options->watched : WATCHED;
	replay->blocks = mem_array((size_t)nblocks + LISTS, sizeof(*replay->blocks));
	replay->cells = mem_array(ncells, sizeof(*replay->cells));
	replay->last = options->hint_percent ? mem_alloc(replay->trace->nrefs + 1) : NULL;
	if (!replay->blocks || !replay->cells || (options->hint_percent && !replay->last))
		return err_set(CAIRN_E_NOMEM, "no memory for a replay");
	for (uint32_t list = 0; list < LISTS; list++) {
		replay->blocks[nblocks + list].newer = replay->blocks[nblocks + list].older = nblocks + list;
		replay->tails[list] = NOBODY;
	}
	watch_init(&replay->watch, replay->cells, ncells, 0);
	return replay->last ? replay_hints(replay->trace, options->hint_percent, options->seed, replay->last) : 0;
}

int replay_run(const struct trace *trace, const struct replay_options *options, struct replay_result *ret_result)
{
	struct replay replay = {.trace = trace, .options = options};
	if (!options->blocks || options->hint_percent > 100 || options->policy > REPLAY_INDEX_ONE)
		return err_set(CAIRN_E_INVAL, "replay: no room, no such policy, or hints right in over 100 percent");
	int error = replay_init(&replay);
	for (size_t r = 0; !error && r < trace->nrequests; r++)
		one_request(&replay, &trace->requests[r], (uint32_t)r + 1);
	mem_free(replay.blocks);
	mem_free(replay.cells);
	mem_free(replay.last);
	if (error)
		return error;
	replay.result.tokens = trace->tokens;
	replay.result.hit_percent = trace->tokens ? 100.0 * (double)replay.result.hit_tokens / (double)trace->tokens : 0;
	*ret_result = replay.result;
	return 0;
}
