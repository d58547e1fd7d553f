/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening: refuses what this version cannot keep truly, learns the shape of the state from one token, describes the
 * space, and takes all memory that a restore needs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama_in.h"

enum {
	BLOCK_TOKENS = 256,
	BLOCK_TOKENS_MAX = 65536,
	BLOCK_BYTES_WANTED = 32 << 20,
};

/* A sequence of such a model is more, or less, than its tokens' rows in one KV cache. */
static int check_model(const struct llama_model *model)
{
	const char *what = NULL;
	enum llama_rope_type rope = llama_model_rope_type(model);

	if (llama_model_is_recurrent(model))
		what = "it is recurrent: its state cannot be cut into blocks";
	else if (llama_model_is_hybrid(model))
		what = "it is hybrid: a part of its state is recurrent and cannot be cut into blocks";
	else if (llama_model_n_swa(model) > 0)
		what = "it has sliding-window layers: llama.cpp leaves the masked cells out of the state";
	else if (llama_model_is_diffusion(model))
		what = "it is a diffusion model: it has no prefix to keep";
	else if (llama_model_has_encoder(model) || !llama_model_has_decoder(model))
		what = "it has an encoder: its state is not that of a prefix of tokens";
	else if (rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE || rope == LLAMA_ROPE_TYPE_VISION)
		what = "it has positions in several dimensions (M-RoPE)";
	if (!what)
		return 0;
	return cllama_fail(CAIRN_E_VERSION, "this model is not supported: %s", what);
}

static int check_context(struct llama_context *ctx, const struct llama_context_params *params)
{
	if (LLAMA_STATE_SEQ_VERSION != 3)
		return cllama_fail(CAIRN_E_VERSION, "state format %d of llama.cpp is not known to this version of cairn-llama",
		                   LLAMA_STATE_SEQ_VERSION);
	if (llama_n_seq_max(ctx) < 2)
		return cllama_fail(CAIRN_E_INVAL, "the context was made with n_seq_max = %u; set it to 2 or more, one is the "
		                   "scratch", llama_n_seq_max(ctx));
	if (!params->kv_unified)
		return cllama_fail(CAIRN_E_INVAL, "the context was made with kv_unified = false; set it to true");
	if (params->ctx_type != LLAMA_CONTEXT_TYPE_DEFAULT || params->ctx_other)
		return cllama_fail(CAIRN_E_INVAL, "the context is of a special type, or shares another's memory");
	if (!llama_get_causal_attn(ctx) || params->attention_type == LLAMA_ATTENTION_TYPE_NON_CAUSAL)
		return cllama_fail(CAIRN_E_INVAL, "the context's attention is not causal: a prefix has no KV of its own");
	if (!llama_get_memory(ctx))
		return cllama_fail(CAIRN_E_VERSION, "this model is not supported: it keeps no KV");
	return 0;
}

static int check_options(const struct cairn_llama_options *options)
{
	if (!options || options->size != sizeof *options)
		return cllama_fail(CAIRN_E_INVAL, "options->size is not that of this version");
	if (!options->params)
		return cllama_fail(CAIRN_E_INVAL, "options->params is required: what the context was made with");
	if (!options->model_path && !options->weights)
		return cllama_fail(CAIRN_E_INVAL, "options->model_path or options->weights is required");
	if (options->block_tokens > BLOCK_TOKENS_MAX)
		return cllama_fail(CAIRN_E_INVAL, "options->block_tokens is %u; at most %d", options->block_tokens,
		                   BLOCK_TOKENS_MAX);
	if (options->tenant && strlen(options->tenant) > 255)
		return cllama_fail(CAIRN_E_INVAL, "options->tenant has more than 255 bytes");
	return 0;
}

/* Decodes one token in the scratch sequence: with fewer, the state says nothing of its tensors. */
static int decode_one(struct cairn_llama *llama)
{
	const struct llama_vocab *vocab = llama_model_get_vocab(llama_get_model(llama->ctx));
	llama_token token = llama_vocab_bos(vocab);
	struct llama_batch batch = llama_batch_init(1, 0, 1);
	int rc;

	if (!batch.token)
		return cllama_fail(CAIRN_E_NOMEM, "out of memory for a batch of one token");
	batch.n_tokens = 1;
	batch.token[0] = token == LLAMA_TOKEN_NULL ? 0 : token;
	batch.pos[0] = 0;
	batch.n_seq_id[0] = 1;
	batch.seq_id[0][0] = llama->scratch;
	batch.logits[0] = 1;
	rc = llama_decode(llama->ctx, batch);
	llama_batch_free(batch);
	if (rc)
		return cllama_fail(CAIRN_E_INVAL, "llama_decode of one token failed (%d): is the context full?", rc);
	return 0;
}

static int learn_shape(struct cairn_llama *llama)
{
	const char *why = NULL;
	uint8_t *state = NULL;
	size_t length;
	int rc;

	llama_memory_seq_rm(llama->memory, llama->scratch, -1, -1);
	rc = decode_one(llama);
	if (rc)
		return rc;
	length = llama_state_seq_get_size(llama->ctx, llama->scratch);
	state = malloc(length ? length : 1);
	if (!state)
		rc = cllama_fail(CAIRN_E_NOMEM, "out of memory for a state of %zu bytes", length);
	else if (llama_state_seq_get_data(llama->ctx, state, length, llama->scratch) != length || length == 0)
		rc = cllama_fail(CAIRN_E_VERSION, "llama.cpp does not give the state of one token");
	llama_memory_seq_rm(llama->memory, llama->scratch, -1, -1);
	if (rc == 0) {
		rc = cllama_shape_learn(state, length, 1, &llama->shape, &why);
		if (rc)
			cllama_fail(rc, "this model is not supported: its state has an unknown form (%s)",
			            why ? why : "out of memory");
	}
	free(state);
	return rc;
}

/* What the program said of the context must agree with what the state shows. */
static int check_shape(const struct cairn_llama *llama, const struct llama_context_params *params)
{
	const struct shape *shape = &llama->shape;

	for (uint32_t i = 0; i < shape->nk + shape->nv; i++) {
		enum ggml_type said = i < shape->nk ? params->type_k : params->type_v;

		if (shape->tensors[i].type != (int32_t)said)
			return cllama_fail(CAIRN_E_INVAL, "options->params are not those of the context: its %s are %s, not %s",
			                   i < shape->nk ? "keys" : "values",
			                   ggml_type_name((enum ggml_type)shape->tensors[i].type), ggml_type_name(said));
	}
	return 0;
}

static int choose_block(struct cairn_llama *llama, uint32_t wanted)
{
	uint32_t tokens = wanted ? wanted : BLOCK_TOKENS;

	if (!wanted) {
		while (tokens > 1 && cllama_shape_bytes(&llama->shape, tokens) > BLOCK_BYTES_WANTED)
			tokens /= 2;
	}
	llama->block_tokens = tokens;
	llama->block_bytes = cllama_shape_bytes(&llama->shape, tokens);
	if (llama->block_bytes > CAIRN_PART_MAX_BYTES)
		return cllama_fail(CAIRN_E_SIZE, "a block of %u tokens has %llu bytes, more than a part may have; give fewer "
		                   "block_tokens", tokens, (unsigned long long)llama->block_bytes);
	return 0;
}

/* Touched here, so that no page fault is left for later. */
static int take_stages(struct cairn_llama *llama)
{
	llama->order = calloc(llama->block_tokens, sizeof *llama->order);
	if (!llama->order)
		return cllama_fail(CAIRN_E_NOMEM, "out of memory");
	for (int i = 0; i < LLAMA_STAGES; i++) {
		void *bytes;

		if (posix_memalign(&bytes, 4096, llama->block_bytes) != 0)
			return cllama_fail(CAIRN_E_NOMEM, "out of memory for a block of %llu bytes",
			                   (unsigned long long)llama->block_bytes);
		memset(bytes, 0, llama->block_bytes);
		llama->stages[i].bytes = bytes;
	}
	return 0;
}

static int open_all(struct cairn_llama *llama, const struct cairn_llama_options *options)
{
	int rc = check_context(llama->ctx, options->params);

	if (rc)
		return rc;
	rc = check_model(llama_get_model(llama->ctx));
	if (rc)
		return rc;
	llama->memory = llama_get_memory(llama->ctx);
	llama->scratch = options->scratch > 0 ? options->scratch : (llama_seq_id)llama_n_seq_max(llama->ctx) - 1;
	if ((uint32_t)llama->scratch >= llama_n_seq_max(llama->ctx))
		return cllama_fail(CAIRN_E_INVAL, "options->scratch is sequence %d of %u", (int)llama->scratch,
		                   llama_n_seq_max(llama->ctx));
	rc = learn_shape(llama);
	if (rc == 0)
		rc = check_shape(llama, options->params);
	if (rc == 0)
		rc = choose_block(llama, options->block_tokens);
	if (rc == 0)
		rc = cllama_space_describe(llama, options);
	if (rc == 0)
		rc = take_stages(llama);
	return rc;
}

int cairn_llama_open(cairn *store, struct llama_context *ctx, const struct cairn_llama_options *options,
                     cairn_llama **ret_llama)
{
	struct cairn_llama *llama;
	int rc;

	if (!store || !ctx || !ret_llama)
		return cllama_fail(CAIRN_E_INVAL, "store, ctx and ret_llama are required");
	rc = check_options(options);
	if (rc)
		return rc;
	llama = calloc(1, sizeof *llama);
	if (!llama)
		return cllama_fail(CAIRN_E_NOMEM, "out of memory");
	llama->store = store;
	llama->ctx = ctx;
	snprintf(llama->tenant, sizeof llama->tenant, "%s", options->tenant ? options->tenant : "default");
	rc = open_all(llama, options);
	if (rc) {
		cairn_llama_close(llama);
		return rc;
	}
	*ret_llama = llama;
	return 0;
}

void cairn_llama_close(cairn_llama *llama)
{
	if (!llama)
		return;
	for (int i = 0; i < LLAMA_STAGES; i++)
		free(llama->stages[i].bytes);
	free(llama->order);
	cllama_shape_done(&llama->shape);
	free(llama);
}

void cairn_llama_get_info(const cairn_llama *llama, struct cairn_llama_info *ret_info)
{
	ret_info->space = llama->space;
	ret_info->block_tokens = llama->block_tokens;
	ret_info->block_bytes = llama->block_bytes;
	ret_info->token_bytes = llama->shape.token_bytes;
	ret_info->scratch = llama->scratch;
}
