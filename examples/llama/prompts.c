/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single prompts and many sessions. A prompt is exactly options->tokens of the document that options->seed makes:
 * what the store has of it is restored, the rest is computed, the last token alone, and what is new is stored. So
 * two runs of one prompt say the same, bit for bit, however much of it was restored (with --batch equal to --block,
 * the default).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "demo.h"

static void make_prompt(struct engine *engine, uint32_t seed, struct talk *talk)
{
	uint32_t tokens = engine->options->tokens;
	char *document = document_make(engine, seed, tokens + 64);

	talk->ntokens = 0;
	talk->kept = 0;
	talk_add_text(engine, talk, document, 1, 0);
	if (talk->ntokens < tokens)
		die("the document has %zu tokens only", talk->ntokens);
	talk->ntokens = tokens;
	free(document);
}

static void restore(struct engine *engine, struct talk *talk, const cairn_llama_session *session,
                    struct cairn_llama_restored *restored)
{
	memset(restored, 0, sizeof *restored);
	if (engine->llama && cairn_llama_restore(engine->llama, SESSION_SEQ, talk->tokens, talk->ntokens, 0, session,
	                                         restored) != 0)
		die("%s", cairn_llama_error_text());
	talk->kept = restored->tokens;
}

/* Up to the last token, which is left for its logits. */
static void compute_rest(struct engine *engine, struct talk *talk)
{
	if (talk->ntokens > 1 && talk->kept < talk->ntokens - 1)
		engine_decode(engine, talk, talk->ntokens - 1);
}

int run_prompt(const struct options *options)
{
	struct engine engine;
	struct talk talk = {0};
	struct proof proof = {0};
	struct cairn_llama_restored restored;
	struct cairn_llama_stored stored = {0};
	double begin_s, first_s;

	engine_open(&engine, options);
	make_prompt(&engine, options->seed, &talk);
	begin_s = now_s();
	restore(&engine, &talk, NULL, &restored);
	compute_rest(&engine, &talk);
	if (engine.llama && options->session)
		engine_save(&engine, &talk, options->session, &stored);
	else if (engine.llama && cairn_llama_store(engine.llama, SESSION_SEQ, talk.tokens, talk.kept, &stored) != 0)
		die("%s", cairn_llama_error_text());
	engine_decode(&engine, &talk, talk.ntokens);
	first_s = now_s() - begin_s;
	say(options, "  %llu of %u tokens restored (%.1f MB), %llu blocks stored and %llu had; first token after %.3f s",
	    (unsigned long long)restored.tokens, options->tokens, (double)restored.bytes / 1e6,
	    (unsigned long long)stored.blocks, (unsigned long long)stored.had_blocks, first_s);
	engine_answer(&engine, &talk, options->predict, &proof, !options->json);
	if (engine.store && cairn_sync(engine.store) != 0)
		die("%s", cairn_error_text());
	if (options->json) {
		printf("{\"tokens\":%u,\"first_s\":%.6f,\"new_blocks\":%llu,\"new_bytes\":%llu,\"had_blocks\":%llu",
		       options->tokens, first_s, (unsigned long long)stored.blocks,
		       (unsigned long long)(stored.bytes + stored.tail_bytes), (unsigned long long)stored.had_blocks);
		json_restored(&restored);
		json_proof(&engine, &proof);
		printf("}\n");
	} else {
		putchar('\n');
	}
	talk_done(&talk);
	engine_close(&engine);
	return 0;
}

/* Saves or resumes session number `index`, and says how it goes on. */
static void one_session(struct engine *engine, uint32_t index)
{
	const struct options *options = engine->options;
	cairn_llama_session *session = NULL;
	struct cairn_llama_restored restored;
	struct cairn_llama_stored stored = {0};
	struct talk talk = {0};
	struct proof proof = {0};
	const llama_token *tokens;
	char name[64];
	size_t ntokens;

	snprintf(name, sizeof name, "session-%u", index);
	engine_clear(engine);
	if (options->resume) {
		if (cairn_llama_session_open(engine->llama, NULL, name, &session) != 0)
			die("%s", cairn_llama_error_text());
		tokens = cairn_llama_session_tokens(session, &ntokens, NULL);
		talk_add(&talk, tokens, ntokens);
	} else {
		make_prompt(engine, options->seed + index, &talk);
	}
	restore(engine, &talk, session, &restored);
	compute_rest(engine, &talk);
	if (!options->resume)
		engine_save(engine, &talk, name, &stored);
	engine_decode(engine, &talk, talk.ntokens);
	engine_answer(engine, &talk, options->predict, &proof, 0);
	printf("{\"session\":\"%s\",\"tokens\":%zu,\"new_bytes\":%llu", name, talk.ntokens - proof.ntokens,
	       (unsigned long long)(stored.bytes + stored.tail_bytes));
	json_restored(&restored);
	json_proof(engine, &proof);
	printf("}\n");
	fflush(stdout);
	cairn_llama_session_free(session);
	talk_done(&talk);
}

int run_sessions(const struct options *options)
{
	struct engine engine;

	engine_open(&engine, options);
	for (uint32_t i = 0; i < options->count; i++)
		one_session(&engine, i);
	if (!options->resume) {
		printf("stored\n");
		fflush(stdout);
		for (;;)
			pause();
	}
	engine_close(&engine);
	return 0;
}
