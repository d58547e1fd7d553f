/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restoring: match, then pieces (blocks, and a session's tail) in order through the scratch sequence.
 *
 * Pieces are leased and read in place; the next ones are asked for in time, so that flash is read while llama.cpp
 * takes a block. The one invariant: no byte reaches llama.cpp before its checksum was compared, and its headers and
 * positions are those of the piece; and a sequence grows by whole pieces, in order, without holes.
 */
#include <stdlib.h>
#include <string.h>

#include "llama_in.h"

enum {
	AHEAD = 3,                 /* pieces asked for before they are needed, the present one included */
	MATCH_TIMEOUT_MS = 600000, /* a long session from a slow disk */
};

/* A block or a tail. */
struct piece {
	cairn_key key;
	uint32_t first, ntokens; /* positions */
	uint32_t flags;          /* CAIRN_ITEM_... */
	uint32_t tier;           /* where it was before it was asked for */
};

struct restore {
	struct cairn_llama *llama;
	cairn_digest space_id;
	llama_seq_id seq;
	struct piece *pieces;
	size_t npieces;
	size_t reach;             /* tokens that the sequence holds */
	int tail;                 /* the session's tail is among them */
	struct cairn_llama_restored *ret;
};

/* Gives one checked piece to llama.cpp. 0, CAIRN_DAMAGED: it is not of our shape and was dropped, or FULL. */
static int give(struct restore *r, const struct piece *piece, const uint8_t *state, size_t length)
{
	struct cairn_llama *llama = r->llama;
	llama_seq_id scratch = llama->scratch;
	const char *why = cllama_shape_check(&llama->shape, state, length, piece->first, piece->ntokens);
	uint32_t end = piece->first + piece->ntokens;

	if (why) {
		/* Somebody else's bytes under our key. Out, so that the block computed anew can take the place. */
		cairn_drop(llama->store, llama->space, &piece->key, 1);
		return cllama_fail(CAIRN_DAMAGED, "a block at token %u is not this model's state: %s", piece->first, why);
	}
	if (llama_state_seq_set_data(llama->ctx, state, length, scratch) != length) {
		llama_memory_seq_rm(llama->memory, scratch, -1, -1);
		return cllama_fail(CAIRN_E_FULL, "llama.cpp did not take a block at token %u: the context has no %u free cells",
		                   piece->first, piece->ntokens);
	}
	if (llama_memory_seq_pos_min(llama->memory, scratch) != (llama_pos)piece->first ||
	    llama_memory_seq_pos_max(llama->memory, scratch) != (llama_pos)end - 1) {
		llama_memory_seq_rm(llama->memory, scratch, -1, -1);
		return cllama_fail(CAIRN_DAMAGED, "llama.cpp took a block at token %u for other positions", piece->first);
	}
	/* Only now: what the sequence had of this block stays until there is something better. */
	llama_memory_seq_rm(llama->memory, r->seq, (llama_pos)piece->first, -1);
	llama_memory_seq_cp(llama->memory, scratch, r->seq, -1, -1);
	llama_memory_seq_rm(llama->memory, scratch, -1, -1);
	r->reach = end;
	return 0;
}

static void account(struct restore *r, const struct piece *piece, uint64_t bytes)
{
	r->ret->bytes += bytes;
	r->ret->tier_bytes[piece->tier < CAIRN_TIERS ? piece->tier : CAIRN_TIER_NONE] += bytes;
	if (piece->flags & CAIRN_ITEM_TAIL)
		r->tail = 1;
	else
		r->ret->blocks++;
}

static struct cairn_item item_of(const struct piece *piece)
{
	struct cairn_item item = {.key = piece->key, .flags = piece->flags};

	return item;
}

/* What a piece's status means for the whole: 0 to go on, 1 to stop (a miss), or an error. */
static int judge(struct restore *r, int status)
{
	if (status == CAIRN_OK)
		return 0;
	r->ret->lost++;
	if (status == CAIRN_MISS || status == CAIRN_DAMAGED)
		return 1;
	return cllama_fail(status, "reading a block: %s", cairn_status_text(status));
}

/* ---- one piece ------------------------------------------------------------------------------------------------ */

static int lease_one(struct restore *r, const struct piece *piece)
{
	struct cairn_llama *llama = r->llama;
	struct cairn_item item = item_of(piece);
	struct cairn_lease_info info;
	cairn_lease *lease = NULL;
	int rc = cairn_lease_take(llama->store, llama->space, &item, NULL, &lease);

	if (rc == CAIRN_E_BUSY)
		return rc;
	if (rc)
		return judge(r, rc);
	cairn_lease_get_info(lease, &info);
	if (cairn_check(info.address, info.bytes) != info.check)
		rc = CAIRN_DAMAGED;
	else
		rc = give(r, piece, info.address, info.bytes);
	if (rc == 0)
		account(r, piece, info.bytes);
	cairn_lease_release(llama->store, lease);
	return rc == CAIRN_DAMAGED ? judge(r, rc) : rc;
}

/* Where others lease all that may be leased: a copy, which cairn_get checks. */
static int copy_one(struct restore *r, const struct piece *piece)
{
	struct cairn_llama *llama = r->llama;
	struct stage *stage = &llama->stages[0];
	int rc;

	stage->item = item_of(piece);
	stage->buf = cairn_buf_of(stage->bytes, cllama_shape_bytes(&llama->shape, piece->ntokens));
	stage->item.bufs = &stage->buf;
	stage->item.nbufs = 1;
	rc = (int)cairn_get(llama->store, llama->space, &stage->item, 1, NULL);
	rc = judge(r, rc < 0 ? rc : stage->item.status);
	if (rc)
		return rc;
	rc = give(r, piece, stage->bytes, stage->item.ret_bytes);
	if (rc == 0)
		account(r, piece, stage->item.ret_bytes);
	return rc == CAIRN_DAMAGED ? judge(r, rc) : rc;
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

/* Asks for what comes next, so that it is read while llama.cpp takes what is here. Few at a time: reads that run side
 * by side also end together, and then nothing is left to read meanwhile. A hint; nothing depends on it. */
static void ask_ahead(struct restore *r, size_t at, size_t *asked)
{
	for (; *asked < r->npieces && *asked < at + AHEAD; (*asked)++) {
		struct piece *piece = &r->pieces[*asked];
		struct cairn_chain chain = {0, &piece->key, 1};
		struct cairn_explanation where = {.size = sizeof where};

		/* Once it is asked for, it is in memory when it is taken, and that is no answer. */
		if (cairn_explain(r->llama->store, &r->space_id, &piece->key, 0, &where) == 0)
			piece->tier = where.tier;
		cairn_hint(r->llama->store, r->llama->space, &chain, CAIRN_HINT_RESUME);
	}
}

static int load(struct restore *r)
{
	size_t asked = 0;
	int rc = 0;

	for (size_t at = 0; at < r->npieces && rc == 0; at++) {
		ask_ahead(r, at, &asked);
		rc = lease_one(r, &r->pieces[at]);
		if (rc == CAIRN_E_BUSY)
			rc = copy_one(r, &r->pieces[at]);
	}
	return rc > 0 ? 0 : rc; /* a miss is not an error */
}

/* ---- what to load ---------------------------------------------------------------------------------------------- */

static size_t common_prefix(const llama_token *a, size_t na, const llama_token *b, size_t nb)
{
	size_t n = 0;

	while (n < na && n < nb && a[n] == b[n])
		n++;
	return n;
}

/* Whether the session's tail follows on what matched, and brings the sequence further than it is. */
static int wants_tail(const cairn_llama_session *session, size_t common, size_t matched, size_t have, size_t limit)
{
	size_t use = common < limit ? common : limit;

	return session && session->tail_tokens > 0 && session->kept - session->tail_tokens == matched && use > matched &&
	       use > have;
}

/* Lists the pieces that bring the sequence from `have` tokens towards `limit`. `matched` tokens are in the store. */
static int plan(struct restore *r, const struct keys *keys, const cairn_llama_session *session, size_t common,
                size_t matched, size_t have, size_t limit)
{
	uint32_t block = r->llama->block_tokens;
	size_t first = have / block, end = matched / block, needed = (limit + block - 1) / block;

	if (end > needed)
		end = needed;
	if (matched <= have || first > end)
		first = end;
	r->pieces = calloc(end - first + 1, sizeof *r->pieces);
	if (!r->pieces)
		return cllama_fail(CAIRN_E_NOMEM, "out of memory");
	for (size_t i = first; i < end; i++)
		r->pieces[r->npieces++] = (struct piece){keys->blocks[i], (uint32_t)i * block, block, 0, 0};
	if (wants_tail(session, common, matched, have, limit))
		r->pieces[r->npieces++] =
			(struct piece){session->tail_key, (uint32_t)matched, session->tail_tokens, CAIRN_ITEM_TAIL, 0};
	return 0;
}

static int check_sequence(struct cairn_llama *llama, llama_seq_id seq, size_t ntokens, size_t have)
{
	if (seq < 0 || (uint32_t)seq >= llama_n_seq_max(llama->ctx) || seq == llama->scratch)
		return cllama_fail(CAIRN_E_INVAL, "sequence %d is not one of the context's, or is the scratch", (int)seq);
	if (ntokens > INT32_MAX)
		return cllama_fail(CAIRN_E_INVAL, "%zu tokens are too many", ntokens);
	if (have > 0 && (have > ntokens || llama_memory_seq_pos_min(llama->memory, seq) != 0 ||
	                 llama_memory_seq_pos_max(llama->memory, seq) + 1 < (llama_pos)have))
		return cllama_fail(CAIRN_E_INVAL, "sequence %d does not hold the first %zu tokens", (int)seq, have);
	return 0;
}

static int restore_matched(struct restore *r, const struct keys *keys, const cairn_llama_session *session,
                           size_t common, size_t have, size_t limit, double begin_s)
{
	struct cairn_llama *llama = r->llama;
	struct cairn_chain chain = {0, keys->blocks, keys->nblocks};
	struct cairn_match_info info = {0};
	cairn_match *match = NULL;
	double matched_s;
	int rc = 0;

	if (keys->nblocks > 0) {
		rc = cairn_match_take(llama->store, llama->space, &chain, 1, 0, MATCH_TIMEOUT_MS, &match);
		if (rc)
			return cllama_fail_cairn(rc, "matching the prompt");
		cairn_match_get_info(match, &info);
	}
	matched_s = cllama_now_s();
	r->ret->match_s = matched_s - begin_s;
	rc = plan(r, keys, session, common, (size_t)info.worth_tokens, have, limit);
	if (rc == 0)
		rc = load(r);
	cairn_match_release(llama->store, match);
	/* Of a tail, what the prompt goes along with; and never the last token. */
	if (r->tail && common < limit)
		limit = common;
	if (r->reach > limit) {
		llama_memory_seq_rm(llama->memory, r->seq, (llama_pos)limit, -1);
		r->reach = limit;
	}
	if (r->tail)
		r->ret->tail_tokens = r->reach - (session->kept - session->tail_tokens);
	r->ret->load_s = cllama_now_s() - matched_s;
	return rc;
}

int cairn_llama_restore(cairn_llama *llama, llama_seq_id seq, const llama_token *tokens, size_t ntokens, size_t have,
                        const cairn_llama_session *session, struct cairn_llama_restored *ret_restored)
{
	struct restore r = {.llama = llama, .seq = seq, .ret = ret_restored};
	size_t limit = ntokens > 0 ? ntokens - 1 : 0, common = 0;
	double begin_s = cllama_now_s();
	struct keys keys;
	int rc;

	memset(ret_restored, 0, sizeof *ret_restored);
	rc = check_sequence(llama, seq, ntokens, have);
	if (rc)
		return rc;
	/* There must be a token left to decode. */
	have = have < limit ? have : limit;
	llama_memory_seq_rm(llama->memory, seq, have > 0 ? (llama_pos)have : -1, -1);
	cairn_space_get_id(llama->space, &r.space_id);
	r.reach = have;
	ret_restored->tokens = have;
	rc = cllama_keys_derive(llama, tokens, ntokens, &keys);
	if (rc)
		return rc;
	if (session)
		common = common_prefix(session->tokens, session->kept, tokens, ntokens);
	rc = restore_matched(&r, &keys, session, common, have, limit, begin_s);
	cllama_keys_done(&keys);
	free(r.pieces);
	ret_restored->tokens = r.reach;
	ret_restored->loaded_tokens = r.reach - have;
	return rc;
}
