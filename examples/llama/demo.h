/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn-llama-demo: a small program on libllama that keeps its conversations in cairn through cairn-llama. It is an
 * example to read, and what tools/demo.sh and the end-to-end tests run.
 *
 *     main.c      options and subcommands          chat.c      a conversation with a person
 *     engine.c    the model: tokens, decode        prove.c     the steps of the proof: reference, keep, resume
 *     document.c  a long text, made from a seed    prompts.c   single prompts and many sessions, for tests
 *
 * Threads: one, beside those of llama.cpp and cairn. Errors: a line on stderr and exit status 1 (die).
 */
#ifndef CAIRN_LLAMA_DEMO_H
#define CAIRN_LLAMA_DEMO_H

#include <stdint.h>

#include "cairn_llama.h"

enum {
	PROOF_TOKENS_MAX = 256,
	ADAPTERS_MAX = 8,
	OVERRIDES_MAX = 8,
	SESSION_SEQ = 0, /* the sequence that the conversation is in */
};

struct options {
	const char *model;
	const char *store;       /* NULL: pure recompute */
	const char *session;
	const char *prompt_file;
	const char *kv_type;
	uint32_t ctx, batch, threads, block;
	uint32_t predict;        /* tokens of an answer */
	uint32_t tokens;         /* length of the document */
	uint32_t seed;
	uint32_t count;          /* sessions */
	uint32_t turns;          /* before the session is saved */
	uint64_t memory_bytes, budget_bytes;
	float rope_base;
	int flash_attention;     /* -1: let llama.cpp choose */
	int json, verbose, resume;
	uint32_t nadapters, noverrides;
	struct cairn_llama_adapter adapters[ADAPTERS_MAX];
	struct llama_model_kv_override overrides[OVERRIDES_MAX + 1];
	char variant[512];       /* the overrides as text: part of the identity */
};

/* ---- main.c ---------------------------------------------------------------------------------------------------- */

void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Progress: on stderr with --json, else on stdout. */
void say(const struct options *options, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *must(void *memory); /* dies where it is NULL */
double now_s(void);

/* ---- engine.c -------------------------------------------------------------------------------------------------- */

/* A conversation: its tokens, of which the first `kept` are in the context. */
struct talk {
	llama_token *tokens;
	size_t ntokens, room, kept;
};

/* What a process says: to be compared bit for bit with what another says. */
struct proof {
	uint64_t first;          /* XXH3-64 of the first token's logits */
	uint64_t all;            /* the same over those of every token, chained */
	llama_token tokens[PROOF_TOKENS_MAX];
	uint32_t ntokens;
};

struct engine {
	const struct options *options;
	struct llama_model_params model_params;
	struct llama_context_params params;
	struct llama_model *model;
	struct llama_context *ctx;
	const struct llama_vocab *vocab;
	llama_memory_t memory;
	struct llama_batch batch;
	int32_t nvocab;
	const float *logits;     /* of the last token that was decoded */
	/* with a store */
	cairn *store;
	cairn_llama *llama;
	double store_open_s;
};

void engine_open(struct engine *engine, const struct options *options);
void engine_close(struct engine *engine);
void engine_clear(struct engine *engine); /* forgets every sequence, and zeroes their memory */
void talk_done(struct talk *talk);
void talk_add(struct talk *talk, const llama_token *tokens, size_t ntokens);
/* Appends text. `special`: markers of the chat template count as such. */
void talk_add_text(struct engine *engine, struct talk *talk, const char *text, int first, int special);
/* Appends what a person says, in the model's chat template, up to where the answer begins. */
void talk_add_question(struct engine *engine, struct talk *talk, const char *question);
/* Decodes what is not kept yet, up to `end`. Batches end at multiples of options->batch, so that they have the same
 * borders wherever a process begins. */
void engine_decode(struct engine *engine, struct talk *talk, size_t end);
/* Continues greedily by at most `predict` tokens, each decoded alone. The last one stays undecoded; an end mark is not
 * kept. `proof` may be NULL. `print`: shows the text as it comes. */
void engine_answer(struct engine *engine, struct talk *talk, uint32_t predict, struct proof *proof, int print);
llama_token engine_best(const struct engine *engine);
size_t engine_piece(const struct engine *engine, llama_token token, char *text, size_t max);
void engine_save(struct engine *engine, struct talk *talk, const char *name, struct cairn_llama_stored *ret_stored);

/* ---- document.c ------------------------------------------------------------------------------------------------ */

/* Entry `index` of the log that `seed` makes: a short paragraph with its end of line. Returns its length. */
size_t document_entry(uint32_t seed, uint32_t index, char *text, size_t max);
/* Entries of about `ntokens` tokens in all, never fewer. The caller frees it. */
char *document_make(struct engine *engine, uint32_t seed, size_t ntokens);

/* ---- subcommands ----------------------------------------------------------------------------------------------- */

int run_chat(const struct options *options);
int run_reference(const struct options *options);
int run_keep(const struct options *options);
int run_resume(const struct options *options);
int run_prompt(const struct options *options);
int run_sessions(const struct options *options);

/* Prints ,"restored":...,"tail":...,"blocks":...,"bytes":...,"memory_bytes":...,"flash_bytes":...,"lost":... */
void json_restored(const struct cairn_llama_restored *restored);
/* Prints ,"first":...,"all":...,"ids":[...],"text":"..." */
void json_proof(const struct engine *engine, const struct proof *proof);

#endif
