/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn-llama: keeps the KV cache of a llama.cpp context in cairn, for any program that links libllama.
 *
 * A prompt is cut into blocks of 256 tokens. What a store has of its beginning is restored, the program computes the
 * rest, and new blocks are stored. A session is saved by name, with its tokens and its last, partial block.
 *
 * Read these caveats first.
 *
 *  - llama.cpp accepts damaged state and state of another model without a word. So every byte is checked before it gets
 *    there, and everything that decides what the bytes mean is in the identity of the space (docs/LLAMA.md). What the
 *    public API of llama.cpp does not tell must be told here truly: `params`, the model's file, adapters, `variant`.
 *  - The context must have n_seq_max >= 2 and kv_unified = true: one sequence, the last unless told, is the scratch
 *    through which blocks go, and belongs to cairn-llama. llama.cpp can give and take the state of a whole sequence
 *    only.
 *  - Models with sliding windows, recurrent or hybrid ones, diffusion, encoders and M-RoPE are refused at open.
 *  - Leave at least the last token of a prompt to llama_decode, or there are no logits: restore does.
 *  - Bits depend on how a prompt was cut into batches, in llama.cpp as such. What is restored has the bits with
 *    which it was stored.
 *
 * Threads: an object belongs to the thread that uses its context. Errors: CAIRN_E_... as in cairn.h, and one line of
 * text.
 */
#ifndef CAIRN_LLAMA_H
#define CAIRN_LLAMA_H

#include <llama.h>

#include "cairn/cairn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn_llama cairn_llama; /* a context bound to a store */

struct cairn_llama_adapter {
	const char *path; /* the GGUF file of the LoRA adapter */
	float scale;
};

struct cairn_llama_options {
	size_t size;
	const struct llama_context_params *params; /* those that the context was made with; required */
	const char *model_path;         /* the GGUF file, or the first of its splits; NULL only with `weights` */
	const cairn_digest *weights;    /* digest of the weights (cairn_weights_digest), where the program knows it */
	const char *model;              /* label; NULL: the model's own name */
	const char *tenant;             /* NULL: "default" */
	const struct cairn_llama_adapter *adapters; /* those set on the context, in any order */
	size_t nadapters;
	const char *variant;            /* what else shapes the KV: metadata overrides, control vectors ...; NULL: none */
	uint32_t block_tokens;          /* 0: 256, or less where a block would be over 32 MiB. Part of the identity */
	llama_seq_id scratch;           /* 0: the last sequence of the context */
	double cost_a_s, cost_b_s;      /* recompute cost of n tokens: a n + b n^2 seconds; 0, 0: always load */
};

/* Binds `ctx`, which must stay, to `store`. Decodes one token in the scratch sequence, to see the shape of its state:
 * logits of an earlier decode are lost. Reads the weights once for their digest, and keeps that in the user's cache
 * directory ($CAIRN_CACHE, $XDG_CACHE_HOME/cairn or ~/.cache/cairn) for the next time.
 * Errors: INVAL (an argument, or the context's settings: the text says which), VERSION (a state format or a kind of
 * model that this version does not know), SIZE (a block is over 64 MiB: give fewer block_tokens), NOENT, ACCESS, IO
 * (model files), NOMEM, FULL. */
CAIRN_API int cairn_llama_open(cairn *store, struct llama_context *ctx, const struct cairn_llama_options *options,
                               cairn_llama **ret_llama);
CAIRN_API void cairn_llama_close(cairn_llama *llama); /* before cairn_close and llama_free; NULL is allowed */
/* One line on this thread's last failure of a function of this header. Valid until the next one. */
CAIRN_API const char *cairn_llama_error_text(void);

struct cairn_llama_info {
	cairn_space *space;
	uint32_t block_tokens;
	uint64_t block_bytes;
	uint64_t token_bytes; /* each token more in a block */
	llama_seq_id scratch;
};
CAIRN_API void cairn_llama_get_info(const cairn_llama *llama, struct cairn_llama_info *ret_info);

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

typedef struct cairn_llama_session cairn_llama_session; /* what was saved, loaded: a copy */

/* Loads the session `name` of `owner` (NULL: "") of this space. Names belong to a space: two models in one store, or
 * two settings of one model, each have their own session of that name.
 * Returns 0, CAIRN_DAMAGED, or NOENT (where one of that name exists for another space, the text says what differs), IO,
 * NOMEM. The caller frees it. */
CAIRN_API int cairn_llama_session_open(cairn_llama *llama, const char *owner, const char *name,
                                       cairn_llama_session **ret_session);
/* All tokens of the conversation as saved, in order. The first `ret_kept` of them have their KV saved with them. */
CAIRN_API const llama_token *cairn_llama_session_tokens(const cairn_llama_session *session, size_t *ret_ntokens,
                                                        size_t *ret_kept);
CAIRN_API void cairn_llama_session_free(cairn_llama_session *session); /* NULL is allowed */
CAIRN_API int cairn_llama_session_forget(cairn_llama *llama, const char *owner, const char *name);

/* ---- restore ----------------------------------------------------------------------------------------------------- */

struct cairn_llama_restored {
	uint64_t tokens;                  /* the sequence now holds tokens[0..tokens) and nothing else: decode from there */
	uint64_t loaded_tokens;           /* those that this call brought */
	uint64_t tail_tokens;             /* of them, from the session's tail */
	uint64_t blocks;
	uint64_t bytes;                   /* of state, given to llama.cpp */
	uint64_t tier_bytes[CAIRN_TIERS]; /* the same by where it was when this call began to ask for it */
	uint64_t lost;                    /* blocks that the match promised and that were damaged or gone */
	double match_s, load_s;
};
/* Brings into sequence `seq` the longest stored prefix of `tokens`, but never the last token. The first `have` tokens
 * are in the sequence already (0: it is emptied); they stay, and nothing happens to them on a miss or an error.
 * `session` may be NULL; else its tail is used as far as the prompt goes along with it.
 * A block that is damaged, gone or not of the right shape ends what is restored: a miss, not an error.
 * Errors: INVAL, NOMEM, BUSY, IO: `ret_restored` is written all the same, and its `tokens` holds. */
CAIRN_API int cairn_llama_restore(cairn_llama *llama, llama_seq_id seq, const llama_token *tokens, size_t ntokens,
                                  size_t have, const cairn_llama_session *session,
                                  struct cairn_llama_restored *ret_restored);

/* ---- store and save ---------------------------------------------------------------------------------------------- */

struct cairn_llama_stored {
	uint64_t blocks;      /* that were put */
	uint64_t bytes;
	uint64_t had_blocks;  /* that the store had */
	uint64_t had_bytes;
	uint64_t tail_bytes;  /* save only */
};
/* Puts the full blocks of tokens[0..ntokens), whose KV sequence `seq` holds, as far as the store does not have them.
 * Not durable by itself: on flash soon. Takes time in which nothing can be decoded (0.05 s for 1,000 tokens of a model
 * of 30 layers and 3 KV heads). Errors: those of cairn_put, of the first block that failed; those before it are stored.
 * INVAL: the sequence does not hold these tokens. */
CAIRN_API int cairn_llama_store(cairn_llama *llama, llama_seq_id seq, const llama_token *tokens, size_t ntokens,
                                struct cairn_llama_stored *ret_stored);

struct cairn_llama_save {
	size_t size;
	const char *owner;        /* NULL: "" */
	const char *name;         /* 1..255 bytes */
	uint64_t ttl_s;           /* as in struct cairn_save */
	uint32_t pin;
	uint32_t durability;      /* enum cairn_durability; default: flash */
};
/* Stores, and saves all as a session that can go on after kill -9: blocks, tail and tokens. `tokens` is the whole
 * conversation (at most 262,000 tokens), of which the sequence holds the first `kept` >= 1.
 * Errors: those of cairn_session_save and cairn_llama_store. `ret_stored` may be NULL. */
CAIRN_API int cairn_llama_session_save(cairn_llama *llama, llama_seq_id seq, const llama_token *tokens, size_t ntokens,
                                       size_t kept, const struct cairn_llama_save *save,
                                       struct cairn_llama_stored *ret_stored);

#ifdef __cplusplus
}
#endif
#endif
