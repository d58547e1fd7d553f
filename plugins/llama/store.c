/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storing: blocks and the tail of a sequence, through the scratch sequence, into the store; and saving a session.
 *
 * The one invariant: what is put was checked to be the state of exactly these positions, in their order, and does not
 * depend on the number of the scratch sequence.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llama_in.h"

enum {
	PUT_TIMEOUT_MS = 30000,
	BUSY_TRIES = 2000,
	BUSY_WAIT_NS = 5000000,
};

/* The state of positions [first, first + ntokens) of `seq`, in `*ret_stage`. */
static int take_state(struct cairn_llama *llama, llama_seq_id seq, uint32_t first, uint32_t ntokens,
                      struct stage **ret_stage)
{
	struct stage *stage = &llama->stages[0];
	uint64_t bytes = cllama_shape_bytes(&llama->shape, ntokens);
	const char *why = "its length is another";
	size_t got = 0;

	llama_memory_seq_rm(llama->memory, llama->scratch, -1, -1);
	llama_memory_seq_cp(llama->memory, seq, llama->scratch, (llama_pos)first, (llama_pos)(first + ntokens));
	if (llama_state_seq_get_size(llama->ctx, llama->scratch) == bytes)
		got = llama_state_seq_get_data(llama->ctx, stage->bytes, bytes, llama->scratch);
	llama_memory_seq_rm(llama->memory, llama->scratch, -1, -1);
	if (got == bytes)
		why = cllama_shape_check(&llama->shape, stage->bytes, bytes, first, ntokens);
	if (got == bytes && why) {
		/* Where several sequences fill one cache, cells need not lie in order. */
		why = cllama_shape_sort(&llama->shape, stage->bytes, bytes, first, ntokens, llama->order,
		                        llama->stages[1].bytes);
		stage = &llama->stages[1];
		if (!why)
			why = cllama_shape_check(&llama->shape, stage->bytes, bytes, first, ntokens);
	}
	if (why)
		return cllama_fail(CAIRN_E_INVAL, "the state of sequence %d at token %u is not what it should be: %s", (int)seq,
		                   first, why);
	cllama_shape_forget_sequence(stage->bytes, ntokens);
	stage->buf = cairn_buf_of(stage->bytes, bytes);
	*ret_stage = stage;
	return 0;
}

static int put_block(struct cairn_llama *llama, llama_seq_id seq, const struct keys *keys, size_t index,
                     struct cairn_llama_stored *stored)
{
	struct cairn_call call = {.size = sizeof call, .timeout_ms = PUT_TIMEOUT_MS, .durability = CAIRN_DURABLE_NONE};
	const struct timespec pause = {0, BUSY_WAIT_NS};
	struct stage *stage;
	int rc = take_state(llama, seq, (uint32_t)index * llama->block_tokens, llama->block_tokens, &stage), tries = 0;

	if (rc)
		return rc;
	do {
		if (tries > 0)
			nanosleep(&pause, NULL);
		stage->item = (struct cairn_item){.key = keys->blocks[index], .bufs = &stage->buf, .nbufs = 1};
		stage->item.parent = index > 0 ? &keys->blocks[index - 1] : NULL;
		cairn_put(llama->store, llama->space, &stage->item, 1, &call);
		/* Memory is full of what is still on its way to flash. */
	} while (stage->item.status == CAIRN_E_BUSY && ++tries < BUSY_TRIES);
	if (stage->item.status == CAIRN_EXISTED) {
		stored->had_blocks++;
		stored->had_bytes += stage->buf.length;
	} else if (stage->item.status == CAIRN_OK) {
		stored->blocks++;
		stored->bytes += stage->buf.length;
	} else {
		return cllama_fail_cairn(stage->item.status, "putting a block");
	}
	return 0;
}

/* How many blocks of the chain the store has, from the first on. 0 where it cannot say. */
static size_t blocks_there(struct cairn_llama *llama, const struct keys *keys)
{
	struct cairn_chain chain = {0, keys->blocks, keys->nblocks};
	struct cairn_match_info info;
	cairn_match *match = NULL;

	if (keys->nblocks == 0 || cairn_match_take(llama->store, llama->space, &chain, 1, 0, 0, &match) != 0)
		return 0;
	cairn_match_get_info(match, &info);
	cairn_match_release(llama->store, match);
	return (size_t)(info.tokens / llama->block_tokens);
}

static int put_blocks(struct cairn_llama *llama, llama_seq_id seq, const struct keys *keys, int all,
                      struct cairn_llama_stored *stored)
{
	size_t there = all ? 0 : blocks_there(llama, keys);

	stored->had_blocks += there;
	stored->had_bytes += there * llama->block_bytes;
	for (size_t i = there; i < keys->nblocks; i++) {
		int rc = put_block(llama, seq, keys, i, stored);

		if (rc)
			return rc;
	}
	return 0;
}

static int check_holds(struct cairn_llama *llama, llama_seq_id seq, size_t ntokens)
{
	if (seq < 0 || (uint32_t)seq >= llama_n_seq_max(llama->ctx) || seq == llama->scratch)
		return cllama_fail(CAIRN_E_INVAL, "sequence %d is not one of the context's, or is the scratch", (int)seq);
	if (ntokens == 0 || ntokens > INT32_MAX || llama_memory_seq_pos_min(llama->memory, seq) != 0 ||
	    llama_memory_seq_pos_max(llama->memory, seq) + 1 < (llama_pos)ntokens)
		return cllama_fail(CAIRN_E_INVAL, "sequence %d does not hold the first %zu tokens", (int)seq, ntokens);
	return 0;
}

int cairn_llama_store(cairn_llama *llama, llama_seq_id seq, const llama_token *tokens, size_t ntokens,
                      struct cairn_llama_stored *ret_stored)
{
	struct keys keys;
	int rc;

	memset(ret_stored, 0, sizeof *ret_stored);
	rc = check_holds(llama, seq, ntokens);
	if (rc)
		return rc;
	rc = cllama_keys_derive(llama, tokens, ntokens, &keys);
	if (rc)
		return rc;
	rc = put_blocks(llama, seq, &keys, 0, ret_stored);
	cllama_keys_done(&keys);
	return rc;
}

/* The session with its tail, whose blocks were put. */
static int save_once(struct cairn_llama *llama, llama_seq_id seq, const struct keys *keys, size_t kept,
                     struct cairn_save *save, struct cairn_llama_stored *stored)
{
	struct cairn_chain chain = {0, keys->blocks, keys->nblocks};
	struct stage *stage;
	int rc;

	save->chains = &chain;
	save->nchains = keys->nblocks > 0;
	if (keys->tail_tokens) {
		rc = take_state(llama, seq, (uint32_t)(kept - keys->tail_tokens), keys->tail_tokens, &stage);
		if (rc)
			return rc;
		stage->item = (struct cairn_item){.key = keys->tail, .bufs = &stage->buf, .nbufs = 1, .flags = CAIRN_ITEM_TAIL};
		stage->item.parent = keys->nblocks ? &keys->blocks[keys->nblocks - 1] : NULL;
		save->tails = &stage->item;
		save->ntails = 1;
		stored->tail_bytes = stage->buf.length;
	}
	rc = cairn_session_save(llama->store, llama->space, save);
	return rc ? cllama_fail_cairn(rc, "saving the session") : 0;
}

static int save_all(struct cairn_llama *llama, llama_seq_id seq, const struct keys *keys, size_t kept,
                    struct cairn_save *save, struct cairn_llama_stored *stored)
{
	int rc = put_blocks(llama, seq, keys, 0, stored);

	if (rc)
		return rc;
	rc = save_once(llama, seq, keys, kept, save, stored);
	if (rc != CAIRN_E_NOENT)
		return rc;
	/* A block was evicted between its put, or its match, and the save. */
	memset(stored, 0, sizeof *stored);
	rc = put_blocks(llama, seq, keys, 1, stored);
	return rc ? rc : save_once(llama, seq, keys, kept, save, stored);
}

int cairn_llama_session_save(cairn_llama *llama, llama_seq_id seq, const llama_token *tokens, size_t ntokens,
                             size_t kept, const struct cairn_llama_save *save,
                             struct cairn_llama_stored *ret_stored)
{
	struct cairn_llama_stored stored = {0};
	struct cairn_save full = {.size = sizeof full};
	struct keys keys = {0};
	uint8_t *state = NULL;
	size_t length = 0;
	char *owner;
	int rc;

	if (!save || save->size != sizeof *save || !save->name)
		return cllama_fail(CAIRN_E_INVAL, "save->size is not that of this version, or save->name is missing");
	if (kept > ntokens || ntokens > LLAMA_SESSION_TOKENS_MAX)
		return cllama_fail(CAIRN_E_SIZE, "a session of %zu tokens; at most %d can be saved", ntokens,
		                   LLAMA_SESSION_TOKENS_MAX);
	rc = check_holds(llama, seq, kept);
	if (rc)
		return rc;
	owner = cllama_session_owner(llama, save->owner);
	rc = owner ? cllama_session_encode(llama, tokens, ntokens, kept, &state, &length)
	           : cllama_fail(CAIRN_E_NOMEM, "out of memory");
	if (rc == 0)
		rc = cllama_keys_derive(llama, tokens, kept, &keys);
	full.name = (struct cairn_session_name){llama->tenant, owner, save->name};
	full.state = state;
	full.state_bytes = length;
	full.tokens = ntokens;
	full.ttl_s = save->ttl_s;
	full.pin = save->pin;
	full.durability = save->durability;
	if (rc == 0)
		rc = save_all(llama, seq, &keys, kept, &full, &stored);
	cllama_keys_done(&keys);
	free(state);
	free(owner);
	if (ret_stored)
		*ret_stored = stored;
	return rc;
}
