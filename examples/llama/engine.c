/* SPDX-License-Identifier: Apache-2.0 */
/* The model: loading it, tokens, batches with fixed borders, greedy continuation; and its binding to a store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "demo.h"

enum { SEGMENT_BYTES = 32 << 20 };

/* ---- open ------------------------------------------------------------------------------------------------------ */

static void log_line(enum ggml_log_level level, const char *text, void *arg)
{
	const struct options *options = arg;

	if (options->verbose || level == GGML_LOG_LEVEL_ERROR)
		fputs(text, stderr);
}

static enum ggml_type kv_type(const char *name)
{
	for (int type = 0; type < GGML_TYPE_COUNT; type++) {
		const char *known = ggml_type_name((enum ggml_type)type);

		if (known && strcmp(known, name) == 0)
			return (enum ggml_type)type;
	}
	die("unknown KV type %s", name);
}

static void load_model(struct engine *engine)
{
	const struct options *options = engine->options;

	engine->model_params = llama_model_default_params();
	if (options->noverrides)
		engine->model_params.kv_overrides = options->overrides;
	engine->model = llama_model_load_from_file(options->model, engine->model_params);
	if (!engine->model)
		die("can't load the model %s", options->model);
	engine->vocab = llama_model_get_vocab(engine->model);
	engine->nvocab = llama_vocab_n_tokens(engine->vocab);
}

static void make_context(struct engine *engine)
{
	const struct options *options = engine->options;
	struct llama_context_params *params = &engine->params;

	*params = llama_context_default_params();
	params->n_ctx = options->ctx;
	params->n_batch = options->batch;
	params->n_ubatch = options->batch;
	params->n_threads = (int32_t)options->threads;
	params->n_threads_batch = (int32_t)options->threads;
	/* One sequence for the conversation, one for cairn-llama's blocks; in one cache, so that seq_cp copies nothing. */
	params->n_seq_max = 2;
	params->kv_unified = true;
	params->flash_attn_type = (enum llama_flash_attn_type)options->flash_attention;
	params->rope_freq_base = options->rope_base;
	if (options->kv_type)
		params->type_k = params->type_v = kv_type(options->kv_type);
	engine->ctx = llama_init_from_model(engine->model, *params);
	if (!engine->ctx)
		die("can't make a context of %u tokens", options->ctx);
	engine->memory = llama_get_memory(engine->ctx);
	engine->batch = llama_batch_init((int32_t)options->batch, 0, 1);
}

static void set_adapters(struct engine *engine)
{
	const struct options *options = engine->options;
	struct llama_adapter_lora *adapters[ADAPTERS_MAX];
	float scales[ADAPTERS_MAX];

	for (uint32_t i = 0; i < options->nadapters; i++) {
		adapters[i] = llama_adapter_lora_init(engine->model, options->adapters[i].path);
		if (!adapters[i])
			die("can't load the adapter %s", options->adapters[i].path);
		scales[i] = options->adapters[i].scale;
	}
	if (options->nadapters && llama_set_adapters_lora(engine->ctx, adapters, options->nadapters, scales) != 0)
		die("can't set the adapters");
}

static void open_store(struct engine *engine)
{
	const struct options *options = engine->options;
	struct cairn_flash flash = {.budget_bytes = options->budget_bytes};
	struct cairn_options store = {.size = sizeof store, .flags = CAIRN_OPEN_CREATE};
	struct cairn_llama_options llama = {.size = sizeof llama};
	double begin_s = now_s();

	store.memory_bytes = options->memory_bytes;
	if (options->budget_bytes) {
		store.flash = &flash;
		store.nflash = 1;
		/* A part takes less than half a segment, and a small budget would be cut into small ones. */
		store.segment_bytes = SEGMENT_BYTES;
	}
	if (cairn_open(options->store, &store, &engine->store) != 0)
		die("can't open the store: %s", cairn_error_text());
	engine->store_open_s = now_s() - begin_s;
	llama.params = &engine->params;
	llama.model_path = options->model;
	llama.adapters = options->adapters;
	llama.nadapters = options->nadapters;
	llama.variant = options->variant[0] ? options->variant : NULL;
	llama.block_tokens = options->block;
	if (cairn_llama_open(engine->store, engine->ctx, &llama, &engine->llama) != 0)
		die("%s", cairn_llama_error_text());
}

/* One decode before anything is timed: the model's pages are read then, and the compute buffers are touched. */
static void warm_up(struct engine *engine)
{
	struct talk talk = {0};
	llama_token token = 0;

	talk_add(&talk, &token, 1);
	engine_decode(engine, &talk, 1);
	talk_done(&talk);
	engine_clear(engine);
}

void engine_open(struct engine *engine, const struct options *options)
{
	memset(engine, 0, sizeof *engine);
	engine->options = options;
	llama_log_set(log_line, (void *)(uintptr_t)options);
	llama_backend_init();
	load_model(engine);
	make_context(engine);
	set_adapters(engine);
	if (options->store)
		open_store(engine);
	warm_up(engine);
}

void engine_close(struct engine *engine)
{
	cairn_llama_close(engine->llama);
	if (engine->store && cairn_close(engine->store) != 0)
		die("closing the store: %s", cairn_error_text());
	llama_batch_free(engine->batch);
	llama_free(engine->ctx);
	llama_model_free(engine->model);
	llama_backend_free();
}

void engine_clear(struct engine *engine)
{
	llama_memory_clear(engine->memory, true);
}

/* ---- tokens ---------------------------------------------------------------------------------------------------- */

void talk_done(struct talk *talk)
{
	free(talk->tokens);
	memset(talk, 0, sizeof *talk);
}

static void talk_room(struct talk *talk, size_t more)
{
	if (talk->ntokens + more <= talk->room)
		return;
	talk->room = (talk->ntokens + more) * 2;
	talk->tokens = must(realloc(talk->tokens, talk->room * sizeof *talk->tokens));
}

void talk_add(struct talk *talk, const llama_token *tokens, size_t ntokens)
{
	talk_room(talk, ntokens);
	memcpy(talk->tokens + talk->ntokens, tokens, ntokens * sizeof *tokens);
	talk->ntokens += ntokens;
}

void talk_add_text(struct engine *engine, struct talk *talk, const char *text, int first, int special)
{
	size_t length = strlen(text);
	int32_t n;

	talk_room(talk, length + 8);
	n = llama_tokenize(engine->vocab, text, (int32_t)length, talk->tokens + talk->ntokens, (int32_t)length + 8, first,
	                   special);
	if (n < 0)
		die("can't tokenize a text of %zu bytes", length);
	talk->ntokens += (size_t)n;
}

static char *apply_template(struct engine *engine, const struct llama_chat_message *messages, size_t n)
{
	const char *format = llama_model_chat_template(engine->model, NULL);
	size_t room = 4096;
	char *text;
	int32_t length;

	for (size_t i = 0; i < n; i++)
		room += strlen(messages[i].content) + 256;
	text = must(malloc(room));
	length = llama_chat_apply_template(format ? format : "chatml", messages, n, true, text, (int32_t)room - 1);
	if (length < 0 || (size_t)length >= room)
		die("the model's chat template is not one that llama.cpp knows");
	text[length] = 0;
	return text;
}

void talk_add_question(struct engine *engine, struct talk *talk, const char *question)
{
	const struct llama_chat_message first = {"user", question};
	/* What follows an answer does not depend on what was said before, so two stand-ins do for all that was. */
	const struct llama_chat_message later[] = {{"user", "a"}, {"assistant", "b"}, {"user", question}};
	char *text, *before;

	if (talk->ntokens == 0) {
		text = apply_template(engine, &first, 1);
		talk_add_text(engine, talk, text, 1, 1);
		free(text);
		return;
	}
	before = apply_template(engine, later, 1);
	text = apply_template(engine, later, 3);
	if (strncmp(text, before, strlen(before)) != 0 || text[strlen(before)] != 'b')
		die("the model's chat template can't be continued");
	talk_add_text(engine, talk, text + strlen(before) + 1, 0, 1);
	free(before);
	free(text);
}

size_t engine_piece(const struct engine *engine, llama_token token, char *text, size_t max)
{
	int32_t n = llama_token_to_piece(engine->vocab, token, text, (int32_t)max - 1, 0, false);

	n = n < 0 ? 0 : n;
	text[n] = 0;
	return (size_t)n;
}

/* ---- decode ---------------------------------------------------------------------------------------------------- */

void engine_decode(struct engine *engine, struct talk *talk, size_t end)
{
	struct llama_batch *batch = &engine->batch;
	uint32_t most = engine->options->batch;

	while (talk->kept < end) {
		size_t border = (talk->kept / most + 1) * most, stop = border < end ? border : end;

		batch->n_tokens = (int32_t)(stop - talk->kept);
		for (int32_t i = 0; i < batch->n_tokens; i++) {
			size_t at = talk->kept + (size_t)i;

			batch->token[i] = talk->tokens[at];
			batch->pos[i] = (llama_pos)at;
			batch->n_seq_id[i] = 1;
			batch->seq_id[i][0] = SESSION_SEQ;
			batch->logits[i] = at + 1 == end;
		}
		if (llama_decode(engine->ctx, *batch) != 0)
			die("llama_decode failed at token %zu: is --ctx %u too small?", talk->kept, engine->options->ctx);
		talk->kept = stop;
	}
	engine->logits = llama_get_logits_ith(engine->ctx, -1);
	if (!engine->logits)
		die("llama.cpp gives no logits");
}

llama_token engine_best(const struct engine *engine)
{
	llama_token best = 0;

	for (llama_token token = 1; token < engine->nvocab; token++) {
		if (engine->logits[token] > engine->logits[best])
			best = token;
	}
	return best;
}

static void proof_add(const struct engine *engine, struct proof *proof, llama_token token)
{
	uint64_t chain[2] = {proof->all, cairn_check(engine->logits, (size_t)engine->nvocab * sizeof(float))};

	if (proof->ntokens == 0)
		proof->first = chain[1];
	proof->all = cairn_check(chain, sizeof chain);
	if (proof->ntokens < PROOF_TOKENS_MAX)
		proof->tokens[proof->ntokens++] = token;
}

void engine_answer(struct engine *engine, struct talk *talk, uint32_t predict, struct proof *proof, int print)
{
	char piece[256];

	for (uint32_t i = 0; i < predict; i++) {
		llama_token token = engine_best(engine);

		if (proof)
			proof_add(engine, proof, token);
		if (llama_vocab_is_eog(engine->vocab, token))
			break;
		talk_add(talk, &token, 1);
		if (print && engine_piece(engine, token, piece, sizeof piece) > 0) {
			fputs(piece, stdout);
			fflush(stdout);
		}
		if (i + 1 < predict)
			engine_decode(engine, talk, talk->ntokens);
	}
}

void engine_save(struct engine *engine, struct talk *talk, const char *name, struct cairn_llama_stored *ret_stored)
{
	struct cairn_llama_save save = {.size = sizeof save, .name = name};

	if (cairn_llama_session_save(engine->llama, SESSION_SEQ, talk->tokens, talk->ntokens, talk->kept, &save,
	                             ret_stored) != 0)
		die("%s", cairn_llama_error_text());
}
