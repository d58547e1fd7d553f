/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn-llama's API with a real model, where the demo does not go: refusals, a sequence that is partly there, a
 * cache that several sequences fill out of order, a tail of which a prompt needs a part, a context that is too
 * small, and states of foreign shape. Built and run by tests/e2e/ci_llama_api.sh:  test_api MODEL STORE-DIRECTORY
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama_in.h"

#define CHECK(condition)                                                                                             \
	do {                                                                                                             \
		if (!(condition)) {                                                                                          \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, cairn_llama_error_text());   \
			exit(1);                                                                                                 \
		}                                                                                                            \
	} while (0)

enum { TOKENS = 1000 };

static struct llama_model *model;
static const char *model_path;
static cairn *store;
static llama_token tokens[TOKENS];

static struct llama_context_params params_of(uint32_t n_ctx, uint32_t n_seq_max)
{
	struct llama_context_params params = llama_context_default_params();

	params.n_ctx = n_ctx;
	params.n_batch = params.n_ubatch = 256;
	params.n_seq_max = n_seq_max;
	params.n_threads = params.n_threads_batch = 1; /* tests run side by side */
	params.kv_unified = true;
	return params;
}

static struct llama_context *context(const struct llama_context_params *params)
{
	struct llama_context *ctx = llama_init_from_model(model, *params);

	CHECK(ctx);
	return ctx;
}

static int bind(struct llama_context *ctx, const struct llama_context_params *params, cairn_llama **ret)
{
	struct cairn_llama_options options = {.size = sizeof options, .params = params, .model_path = model_path};

	return cairn_llama_open(store, ctx, &options, ret);
}

static void decode(struct llama_context *ctx, llama_seq_id seq, size_t from, size_t to)
{
	struct llama_batch batch = llama_batch_init(256, 0, 1);

	while (from < to) {
		batch.n_tokens = 0;
		for (; from < to && batch.n_tokens < 256; from++, batch.n_tokens++) {
			batch.token[batch.n_tokens] = tokens[from];
			batch.pos[batch.n_tokens] = (llama_pos)from;
			batch.n_seq_id[batch.n_tokens] = 1;
			batch.seq_id[batch.n_tokens][0] = seq;
			batch.logits[batch.n_tokens] = from + 1 == to;
		}
		CHECK(llama_decode(ctx, batch) == 0);
	}
	llama_batch_free(batch);
}

static uint64_t conflicts(void)
{
	static struct cairn_stat stat;

	stat.size = sizeof stat;
	CHECK(cairn_stat(store, &stat) == 0);
	return stat.put_conflicts;
}

static void refuse(uint32_t n_seq_max, int unified, enum ggml_type said, const char *word)
{
	struct llama_context_params params = params_of(512, n_seq_max);
	struct llama_context *ctx;
	cairn_llama *llama = NULL;

	params.kv_unified = unified;
	ctx = context(&params);
	params.type_k = said;
	CHECK(bind(ctx, &params, &llama) == CAIRN_E_INVAL);
	CHECK(strstr(cairn_llama_error_text(), word) != NULL);
	llama_free(ctx);
}

static void test_refusals(void)
{
	struct llama_context_params params = params_of(512, 2);
	struct cairn_llama_options options = {.size = sizeof options, .params = &params};
	struct llama_context *ctx = context(&params);
	cairn_llama *llama = NULL;

	refuse(1, 1, GGML_TYPE_F16, "n_seq_max");
	refuse(2, 0, GGML_TYPE_F16, "kv_unified");
	refuse(2, 1, GGML_TYPE_BF16, "not those of the context");
	CHECK(cairn_llama_open(store, ctx, &options, &llama) == CAIRN_E_INVAL); /* no model_path, no weights */
	options.model_path = "/nowhere/model.gguf";
	CHECK(cairn_llama_open(store, ctx, &options, &llama) == CAIRN_E_NOENT);
	options.model_path = model_path;
	options.scratch = 2;
	CHECK(cairn_llama_open(store, ctx, &options, &llama) == CAIRN_E_INVAL);
	llama_free(ctx);
}

/* Cells of one sequence lie out of order where another one left a hole. The bytes must be those of a tidy cache. */
static void test_order(void)
{
	struct llama_context_params params = params_of(2048, 3);
	struct llama_context *ctx = context(&params), *other = context(&params);
	struct cairn_llama_restored restored;
	struct cairn_llama_stored stored;
	cairn_llama *llama, *tidy;
	uint64_t before;

	CHECK(bind(ctx, &params, &llama) == 0);
	CHECK(bind(other, &params, &tidy) == 0);
	decode(ctx, 1, 0, 100);
	decode(ctx, 0, 0, 150);
	CHECK(llama_memory_seq_rm(llama_get_memory(ctx), 1, -1, -1));
	decode(ctx, 0, 150, 600);
	CHECK(cairn_llama_store(llama, 0, tokens, 600, &stored) == 0);
	CHECK(stored.blocks == 2 && stored.had_blocks == 0);

	/* Restored, it is in order; put again, piece by piece, it has the same bytes. */
	CHECK(cairn_llama_restore(tidy, 1, tokens, TOKENS, 0, NULL, &restored) == 0);
	CHECK(restored.tokens == 512 && restored.blocks == 2 && restored.lost == 0);
	before = conflicts();
	{
		struct keys keys;
		struct cairn_item item = {0};
		struct cairn_buf buf;
		uint8_t *state = malloc(tidy->block_bytes);

		CHECK(state && cllama_keys_derive(tidy, tokens, 512, &keys) == 0);
		llama_memory_seq_cp(tidy->memory, 1, tidy->scratch, 256, 512);
		CHECK(llama_state_seq_get_data(other, state, tidy->block_bytes, tidy->scratch) == tidy->block_bytes);
		llama_memory_seq_rm(tidy->memory, tidy->scratch, -1, -1);
		cllama_shape_forget_sequence(state, 256);
		buf = cairn_buf_of(state, tidy->block_bytes);
		item = (struct cairn_item){.key = keys.blocks[1], .parent = &keys.blocks[0], .bufs = &buf, .nbufs = 1};
		CHECK(cairn_put(store, tidy->space, &item, 1, NULL) == 1 && item.status == CAIRN_EXISTED);
		cllama_keys_done(&keys);
		free(state);
	}
	CHECK(conflicts() == before);
	cairn_llama_close(llama);
	cairn_llama_close(tidy);
	llama_free(ctx);
	llama_free(other);
}

/* Sequences that hold a part already, and prompts of which nothing is stored. */
static void test_have(void)
{
	struct llama_context_params params = params_of(2048, 2);
	struct llama_context *ctx = context(&params);
	llama_memory_t memory = llama_get_memory(ctx);
	struct cairn_llama_restored restored;
	cairn_llama *llama;
	llama_token strange[TOKENS];

	CHECK(bind(ctx, &params, &llama) == 0);
	decode(ctx, 0, 0, 300);
	CHECK(cairn_llama_restore(llama, 0, tokens, 600, 300, NULL, &restored) == 0);
	CHECK(restored.tokens == 512 && restored.loaded_tokens == 212 && restored.blocks == 1);
	CHECK(llama_memory_seq_pos_max(memory, 0) == 511);

	/* Nothing better is there: what the sequence holds of the prompt stays, and no more than that. */
	for (size_t i = 0; i < TOKENS; i++)
		strange[i] = i < 100 ? tokens[i] : tokens[TOKENS - 1 - i];
	CHECK(cairn_llama_restore(llama, 0, strange, TOKENS, 100, NULL, &restored) == 0);
	CHECK(restored.tokens == 100 && restored.loaded_tokens == 0 && llama_memory_seq_pos_max(memory, 0) == 99);
	CHECK(cairn_llama_restore(llama, 0, strange, TOKENS, 0, NULL, &restored) == 0);
	CHECK(restored.tokens == 0 && llama_memory_seq_pos_max(memory, 0) == -1);

	/* The last token is left to decode; claims that are not so, the scratch, and nothing at all. */
	CHECK(cairn_llama_restore(llama, 0, tokens, 512, 0, NULL, &restored) == 0 && restored.tokens == 511);
	CHECK(cairn_llama_restore(llama, 0, tokens, 600, 513, NULL, &restored) == CAIRN_E_INVAL);
	CHECK(cairn_llama_restore(llama, 1, tokens, 600, 0, NULL, &restored) == CAIRN_E_INVAL);
	CHECK(cairn_llama_restore(llama, 0, tokens, 0, 0, NULL, &restored) == 0 && restored.tokens == 0);
	CHECK(cairn_llama_restore(llama, 0, tokens, 1, 0, NULL, &restored) == 0 && restored.tokens == 0);
	cairn_llama_close(llama);
	llama_free(ctx);
}

/* Everything that may be leased is leased by others: blocks come as copies. */
static void test_no_lease(void)
{
	enum { LEASES_MAX = 64 };
	struct llama_context_params params = params_of(2048, 2);
	struct llama_context *ctx = context(&params);
	struct cairn_llama_restored restored;
	cairn_lease *leases[LEASES_MAX];
	cairn_llama *llama;
	struct keys keys;
	size_t n = 0;
	int rc = 0;

	CHECK(bind(ctx, &params, &llama) == 0);
	CHECK(cllama_keys_derive(llama, tokens, 512, &keys) == 0);
	while (n < LEASES_MAX && rc == 0) {
		struct cairn_item item = {.key = keys.blocks[n % 2]};

		rc = cairn_lease_take(store, llama->space, &item, NULL, &leases[n]);
		n += rc == 0;
	}
	CHECK(rc == CAIRN_E_BUSY && n >= 2);
	CHECK(cairn_llama_restore(llama, 0, tokens, TOKENS, 0, NULL, &restored) == 0);
	CHECK(restored.tokens == 512 && restored.blocks == 2 && restored.lost == 0);
	while (n > 0)
		cairn_lease_release(store, leases[--n]);
	cllama_keys_done(&keys);
	cairn_llama_close(llama);
	llama_free(ctx);
}

static void test_sessions(void)
{
	struct llama_context_params params = params_of(2048, 2);
	struct llama_context *ctx = context(&params);
	struct cairn_llama_save save = {.size = sizeof save, .name = "talk", .owner = "me"};
	struct cairn_llama_restored restored;
	struct cairn_llama_stored stored;
	cairn_llama_session *session = NULL;
	cairn_llama *llama;
	llama_token other[TOKENS];
	size_t n, kept;

	CHECK(bind(ctx, &params, &llama) == 0);
	CHECK(cairn_llama_session_open(llama, "me", "talk", &session) == CAIRN_E_NOENT);
	CHECK(cairn_llama_session_save(llama, 0, tokens, 0, 0, &save, NULL) == CAIRN_E_INVAL);
	decode(ctx, 0, 0, 600);
	CHECK(cairn_llama_session_save(llama, 0, tokens, 610, 600, &save, &stored) == 0);
	CHECK(stored.had_blocks == 2 && stored.tail_bytes == cllama_shape_bytes(&llama->shape, 88));
	CHECK(cairn_llama_session_save(llama, 0, tokens, 610, 601, &save, &stored) == CAIRN_E_INVAL);
	CHECK(cairn_llama_session_open(llama, "", "talk", &session) == CAIRN_E_NOENT);
	CHECK(cairn_llama_session_open(llama, "me", "talk", &session) == 0);
	CHECK(memcmp(cairn_llama_session_tokens(session, &n, &kept), tokens, 610 * sizeof tokens[0]) == 0);
	CHECK(n == 610 && kept == 600);

	CHECK(cairn_llama_restore(llama, 0, tokens, 700, 0, session, &restored) == 0);
	CHECK(restored.tokens == 600 && restored.tail_tokens == 88 && restored.blocks == 2);
	/* All of it is there: nothing is read. */
	CHECK(cairn_llama_restore(llama, 0, tokens, 700, 600, session, &restored) == 0);
	CHECK(restored.tokens == 600 && restored.bytes == 0);
	/* The blocks are there, the tail is not. */
	CHECK(cairn_llama_restore(llama, 0, tokens, 700, 512, session, &restored) == 0);
	CHECK(restored.tokens == 600 && restored.blocks == 0 && restored.tail_tokens == 88);
	/* A prompt that leaves the session within its tail, and one that does before it. */
	memcpy(other, tokens, sizeof other);
	other[550] = tokens[550] + 1;
	CHECK(cairn_llama_restore(llama, 0, other, 700, 0, session, &restored) == 0);
	CHECK(restored.tokens == 550 && restored.tail_tokens == 38 && llama_memory_seq_pos_max(llama->memory, 0) == 549);
	other[300] = tokens[300] + 1;
	CHECK(cairn_llama_restore(llama, 0, other, 700, 0, session, &restored) == 0);
	CHECK(restored.tokens == 256 && restored.tail_tokens == 0);
	cairn_llama_session_free(session);

	/* Without a full block there is still a session; and one with nothing but full blocks. */
	CHECK(cairn_llama_session_save(llama, 0, tokens, 100, 100, &save, &stored) == 0);
	CHECK(cairn_llama_session_open(llama, "me", "talk", &session) == 0);
	CHECK(cairn_llama_restore(llama, 0, tokens, 700, 0, session, &restored) == 0 && restored.tokens >= 100);
	cairn_llama_session_free(session);
	CHECK(cairn_llama_restore(llama, 0, tokens, 700, 0, NULL, &restored) == 0 && restored.tokens == 512);
	CHECK(cairn_llama_session_save(llama, 0, tokens, 512, 512, &save, &stored) == 0 && stored.tail_bytes == 0);
	CHECK(cairn_llama_session_open(llama, "me", "talk", &session) == 0);
	CHECK(cairn_llama_restore(llama, 0, tokens, 513, 0, session, &restored) == 0 && restored.tokens == 512);
	cairn_llama_session_free(session);
	CHECK(cairn_llama_session_forget(llama, "me", "talk") == 0);
	CHECK(cairn_llama_session_open(llama, "me", "talk", &session) == CAIRN_E_NOENT);
	cairn_llama_close(llama);
	llama_free(ctx);
}

/* A context with room for one block and a bit: that comes, and the text says why no more did. */
static void test_small_context(void)
{
	struct llama_context_params params = params_of(512, 3);
	struct llama_context *ctx = context(&params);
	struct cairn_llama_restored restored;
	cairn_llama *llama;

	CHECK(bind(ctx, &params, &llama) == 0);
	decode(ctx, 1, 0, 100);
	CHECK(cairn_llama_restore(llama, 0, tokens, 600, 0, NULL, &restored) == CAIRN_E_FULL);
	CHECK(restored.tokens == 256 && llama_memory_seq_pos_max(llama->memory, 0) == 255);
	CHECK(strstr(cairn_llama_error_text(), "free cells") != NULL);
	CHECK(llama_memory_seq_pos_max(llama->memory, 1) == 99);
	cairn_llama_close(llama);
	llama_free(ctx);
}

/* States with damage in what is not payload: never taken for good, never a crash. */
static void test_shapes(void)
{
	struct llama_context_params params = params_of(1024, 2);
	struct llama_context *ctx = context(&params);
	struct shape learned;
	const char *why;
	cairn_llama *llama;
	uint8_t *state, *bent;
	uint32_t random = 1;
	size_t length, accepted = 0, head = 16 + 40 * 12 + 8 + 12;

	CHECK(bind(ctx, &params, &llama) == 0);
	decode(ctx, 0, 0, 40);
	length = llama_state_seq_get_size(ctx, 0);
	state = malloc(length);
	CHECK(state && llama_state_seq_get_data(ctx, state, length, 0) == length);
	CHECK(cllama_shape_check(&llama->shape, state, length, 0, 40) == NULL);
	CHECK(cllama_shape_check(&llama->shape, state, length, 1, 40) != NULL);
	CHECK(cllama_shape_check(&llama->shape, state, length - 1, 0, 40) != NULL);
	CHECK(cllama_shape_check(&llama->shape, state, length, 0, 39) != NULL);
	for (int i = 0; i < 20000; i++) {
		size_t at, cut;

		random = random * 1664525 + 1013904223;
		at = (random >> 8) % head;
		cut = i % 4 ? length : (random >> 3) % length;
		bent = malloc(cut + 1); /* of its own size, so that a sanitizer sees a step too far */
		CHECK(bent);
		memcpy(bent, state, cut);
		if (at < cut)
			bent[at] ^= (uint8_t)(1u << (random & 7));
		why = cllama_shape_check(&llama->shape, bent, cut, 0, 40);
		accepted += why == NULL;
		/* Sequence ids are the one thing there that means nothing. */
		CHECK(why || cut < length || (at >= 4 && at < 8) || (at >= 16 && at < 16 + 40 * 12 && (at - 16) % 12 >= 8));
		if (cllama_shape_learn(bent, cut, 40, &learned, &why) == 0)
			cllama_shape_done(&learned);
		free(bent);
	}
	CHECK(accepted > 0);
	free(state);
	cairn_llama_close(llama);
	llama_free(ctx);
}

static void quiet(enum ggml_log_level level, const char *text, void *arg)
{
	(void)level;
	(void)text;
	(void)arg;
}

int main(int argc, char **argv)
{
	struct cairn_options options = {.size = sizeof options, .flags = CAIRN_OPEN_CREATE, .memory_bytes = 64 << 20};

	if (argc != 3)
		return 2;
	model_path = argv[1];
	llama_log_set(quiet, NULL);
	llama_backend_init();
	model = llama_model_load_from_file(model_path, llama_model_default_params());
	CHECK(model);
	CHECK(cairn_open(argv[2], &options, &store) == 0);
	for (size_t i = 0; i < TOKENS; i++)
		tokens[i] = (llama_token)(1000 + i * 7919 % 40000);
	test_refusals();
	test_order();
	test_have();
	test_no_lease();
	test_sessions();
	test_small_context();
	test_shapes();
	CHECK(cairn_close(store) == 0);
	llama_model_free(model);
	llama_backend_free();
	puts("ok");
	return 0;
}
