/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of cairn-llama, shared by its files.
 *
 * Everything that is not static begins with cllama_ or cairn_llama_: this is linked into programs of others.
 *
 * Threads: everything belongs to the thread that uses the context. Memory: staging buffers are taken at open and
 * touched there, so that a restore meets no page fault in them.
 */
#ifndef CAIRN_LLAMA_IN_H
#define CAIRN_LLAMA_IN_H

#include "cairn_llama.h"

enum {
	LLAMA_LAYERS_MAX = 4096,
	LLAMA_STAGES = 2, /* a block as llama.cpp gives it, and the same in order */
	LLAMA_SESSION_TOKENS_MAX = 262000, /* what fits, with its header, into the 1 MiB of a session's own bytes */
};

/* ---- shape.c: what the state of a sequence looks like ---------------------------------------------------------- */

/* One tensor of the state: all K of a layer, or all V. */
struct shape_tensor {
	int32_t type;        /* enum ggml_type */
	uint64_t row_bytes;  /* of a token */
	uint32_t element_bytes, elements; /* transposed V only */
};

struct shape {
	uint32_t v_trans;
	uint32_t nk, nv;                /* layers with K; with V */
	struct shape_tensor *tensors;   /* K of each layer, then V of each */
	uint64_t fixed_bytes;           /* of a state with any tokens */
	uint64_t token_bytes;           /* for each of its tokens */
};

/* Learns the shape from a state with `ntokens` tokens. 0, NOMEM, or VERSION: `*ret_why` says what is odd. */
int cllama_shape_learn(const uint8_t *state, size_t length, uint32_t ntokens, struct shape *ret_shape,
                       const char **ret_why);
void cllama_shape_done(struct shape *shape);
uint64_t cllama_shape_bytes(const struct shape *shape, uint32_t ntokens);
/* Whether a state has this shape and holds exactly the positions [first, first + ntokens), in order. Reads headers and
 * positions only. NULL: it does; else what is wrong. */
const char *cllama_shape_check(const struct shape *shape, const uint8_t *state, size_t length, uint32_t first,
                        uint32_t ntokens);
/* Writes sequence 0 over the sequence ids, which llama.cpp ignores when it reads: so the bytes do not depend on which
 * sequence was the scratch. */
void cllama_shape_forget_sequence(uint8_t *state, uint32_t ntokens);
/* Brings a state whose cells lie in another order than their positions, as in a cache that several sequences fill, into
 * that order: from one buffer into another. `order` has room for ntokens. NULL, or what is wrong. */
const char *cllama_shape_sort(const struct shape *shape, const uint8_t *from, size_t length, uint32_t first,
                              uint32_t ntokens, uint32_t *order, uint8_t *to);
/* Tensors as text, "k=f16:384x30 v=f16:384x30". Returns the length it needs without the 0. */
size_t cllama_shape_text(const struct shape *shape, char *text, size_t max);

/* ---- the object ------------------------------------------------------------------------------------------------ */

struct stage {
	uint8_t *bytes;
	struct cairn_buf buf;
	struct cairn_item item;
};

struct cairn_llama {
	cairn *store;
	struct llama_context *ctx;
	llama_memory_t memory;
	llama_seq_id scratch;
	cairn_space *space;
	char owner_prefix[40]; /* "llama-" and 32 hex digits of the space's id, which makes names of sessions its own */
	struct shape shape;
	uint32_t block_tokens;
	uint64_t block_bytes;
	struct stage stages[LLAMA_STAGES];
	uint32_t *order;       /* of block_tokens */
	char tenant[256];
};

/* ---- error.c --------------------------------------------------------------------------------------------------- */

/* Sets this thread's text; returns `code`. */
int cllama_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with the text of libcairn: "WHAT: its text". */
int cllama_fail_cairn(int code, const char *what);

double cllama_now_s(void);

/* ---- space.c, digest.c ----------------------------------------------------------------------------------------- */

int cllama_space_describe(struct cairn_llama *llama, const struct cairn_llama_options *options);
/* The digest of the weights in `path`, or in all splits of which it is the first. */
int cllama_digest_weights(const char *path, cairn_digest *ret_digest);

/* ---- keys.c ---------------------------------------------------------------------------------------------------- */

struct keys {
	cairn_key *blocks;  /* of the full blocks */
	size_t nblocks;
	cairn_key tail;     /* of the rest */
	uint32_t tail_tokens; /* 0: there is no rest */
};
int cllama_keys_derive(const struct cairn_llama *llama, const llama_token *tokens, size_t ntokens,
                       struct keys *ret_keys);
void cllama_keys_done(struct keys *keys);

/* ---- session.c ------------------------------------------------------------------------------------------------- */

struct cairn_llama_session {
	llama_token *tokens;
	size_t ntokens, kept;
	cairn_key tail_key;
	uint32_t tail_tokens; /* 0: it has no tail */
};
/* The session's own bytes: a header and all tokens. The caller frees `*ret_state`. */
int cllama_session_encode(const struct cairn_llama *llama, const llama_token *tokens, size_t ntokens, size_t kept,
                          uint8_t **ret_state, size_t *ret_length);
/* The owner under which the store knows a session of this space. The caller frees it. NULL: out of memory. */
char *cllama_session_owner(const struct cairn_llama *llama, const char *owner);

#endif
