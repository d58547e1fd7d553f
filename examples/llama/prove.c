/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of the proof that tools/demo.sh puts together, one process each:
 *
 *     reference   reads the document, answers, goes on: never killed, no store. Then reads all of it again from
 *     nothing,
 *                 for the time that takes.
 *     keep        the same up to the last question but one; saves the session, says "stored" and waits to be killed.
 *     resume      a new process: loads the session, asks the last question, answers. Twice: first from flash, then, its
 *                 context cleared, from cairn's memory. Then llama.cpp's own set-state call alone, for comparison.
 *
 * reference and resume decode the same batches from the last question on, so their logits must be equal bit for bit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "demo.h"

enum {
	TURN_TOKENS = 16, /* of an answer before the last */
	SET_STATE_RUNS = 3,
};

static const char *const questions[] = {
	"What goods were counted most often, and by whom?",
	"Name two towns that the log mentions, and one keeper.",
	"What was sent to Tarn Ford?",
	"Which store is mentioned in the first entry?",
};
static const char last_question[] =
	"Write a short letter to the warden of the bridge about the last entry of this log.";

static void ask(struct engine *engine, struct talk *talk, const char *question, uint32_t predict)
{
	talk_add_question(engine, talk, question);
	engine_decode(engine, talk, talk->ntokens);
	engine_answer(engine, talk, predict, NULL, 0);
}

/* All turns before the last question. */
static void converse(struct engine *engine, struct talk *talk)
{
	const struct options *options = engine->options;
	char *document = document_make(engine, options->seed, options->tokens), *text;
	size_t room = strlen(document) + 256;
	double begin_s = now_s();

	text = must(malloc(room));
	snprintf(text, room, "This is the log of a supply post.\n\n%s\n%s", document, questions[0]);
	ask(engine, talk, text, TURN_TOKENS);
	say(options, "  read a log of %u tokens and answered a question in %.2f s", options->tokens, now_s() - begin_s);
	for (uint32_t turn = 1; turn < options->turns; turn++)
		ask(engine, talk, questions[turn % (sizeof questions / sizeof questions[0])], TURN_TOKENS);
	say(options, "  %u turns, %zu tokens in all, %zu of them in the context", options->turns, talk->ntokens,
	    talk->kept);
	free(text);
	free(document);
}

void json_proof(const struct engine *engine, const struct proof *proof)
{
	char piece[256];

	printf(",\"first\":\"%016llx\",\"all\":\"%016llx\",\"ids\":[", (unsigned long long)proof->first,
	       (unsigned long long)proof->all);
	for (uint32_t i = 0; i < proof->ntokens; i++)
		printf("%s%d", i ? "," : "", (int)proof->tokens[i]);
	printf("],\"text\":\"");
	for (uint32_t i = 0; i < proof->ntokens; i++) {
		size_t n = engine_piece(engine, proof->tokens[i], piece, sizeof piece);

		/* A token may be half of a character, which JSON cannot hold: plain ASCII only. */
		for (size_t j = 0; j < n; j++) {
			unsigned char c = (unsigned char)piece[j];

			if (c < 0x20 || c > 0x7e || c == '"' || c == '\\')
				printf("\\u%04x", c);
			else
				putchar(c);
		}
	}
	putchar('"');
}

void json_restored(const struct cairn_llama_restored *r)
{
	printf(",\"restored\":%llu,\"tail\":%llu,\"blocks\":%llu,\"bytes\":%llu,\"memory_bytes\":%llu,\"flash_bytes\":%llu,"
	       "\"lost\":%llu,\"match_s\":%.6f,\"load_s\":%.6f", (unsigned long long)r->tokens, (unsigned long long)r->tail_tokens,
	       (unsigned long long)r->blocks, (unsigned long long)r->bytes,
	       (unsigned long long)r->tier_bytes[CAIRN_TIER_MEMORY], (unsigned long long)r->tier_bytes[CAIRN_TIER_FLASH],
	       (unsigned long long)r->lost, r->match_s, r->load_s);
}

int run_reference(const struct options *options)
{
	struct engine engine;
	struct talk talk = {0};
	struct proof proof = {0};
	double begin_s, first_s, recompute_s;
	size_t prompt;

	engine_open(&engine, options);
	converse(&engine, &talk);
	begin_s = now_s();
	talk_add_question(&engine, &talk, last_question);
	prompt = talk.ntokens;
	engine_decode(&engine, &talk, prompt);
	first_s = now_s() - begin_s;
	engine_answer(&engine, &talk, options->predict, &proof, !options->json);
	if (!options->json)
		putchar('\n');
	say(options, "  first token of the last answer after %.3f s: the process still has everything", first_s);

	engine_clear(&engine);
	talk.kept = 0;
	begin_s = now_s();
	engine_decode(&engine, &talk, prompt);
	engine_best(&engine);
	recompute_s = now_s() - begin_s;
	say(options, "  first token after %.3f s when all %zu tokens are computed again", recompute_s, prompt);
	if (options->json) {
		printf("{\"tokens\":%zu,\"live_s\":%.6f,\"recompute_s\":%.6f", prompt, first_s, recompute_s);
		json_proof(&engine, &proof);
		printf("}\n");
	}
	talk_done(&talk);
	engine_close(&engine);
	return 0;
}

int run_keep(const struct options *options)
{
	struct engine engine;
	struct talk talk = {0};
	struct cairn_llama_stored stored;
	double begin_s;

	engine_open(&engine, options);
	converse(&engine, &talk);
	begin_s = now_s();
	engine_save(&engine, &talk, options->session, &stored);
	say(options, "  saved session %s in %.3f s: %llu blocks and a tail, %.1f MB", options->session, now_s() - begin_s,
	    (unsigned long long)(stored.blocks + stored.had_blocks),
	    (double)(stored.bytes + stored.had_bytes + stored.tail_bytes) / 1e6);
	if (options->json)
		printf("{\"stored\":true,\"tokens\":%zu,\"kept\":%zu,\"bytes\":%llu,\"new_bytes\":%llu,\"save_s\":%.6f}\n",
		       talk.ntokens, talk.kept,
		       (unsigned long long)(stored.bytes + stored.had_bytes + stored.tail_bytes),
		       (unsigned long long)(stored.bytes + stored.tail_bytes), now_s() - begin_s);
	printf("stored\n");
	fflush(stdout);
	/* Nothing is closed and nothing flushed any more: what was acknowledged must be enough. */
	for (;;)
		pause();
}

/* What this process has read from block devices so far, by the kernel's count; 0 where it does not tell. */
static uint64_t device_bytes(void)
{
	FILE *file = fopen("/proc/self/io", "r");
	unsigned long long bytes = 0;
	char line[128];

	while (file && fgets(line, sizeof line, file))
		sscanf(line, "read_bytes: %llu", &bytes);
	if (file)
		fclose(file);
	return bytes;
}

/* One resume, from asking the store to the first token. */
struct resumed {
	double first_s;
	uint64_t device_bytes; /* read from the device for it */
	struct cairn_llama_restored restored;
	size_t prompt;
	struct proof proof;
};

static void resume_once(struct engine *engine, struct talk *talk, struct resumed *ret)
{
	const struct options *options = engine->options;
	cairn_llama_session *session;
	const llama_token *tokens;
	size_t ntokens;
	uint64_t before = device_bytes();
	double begin_s = now_s();

	memset(ret, 0, sizeof *ret);
	if (cairn_llama_session_open(engine->llama, NULL, options->session, &session) != 0)
		die("%s", cairn_llama_error_text());
	tokens = cairn_llama_session_tokens(session, &ntokens, NULL);
	talk->ntokens = 0;
	talk_add(talk, tokens, ntokens);
	talk_add_question(engine, talk, last_question);
	ret->prompt = talk->ntokens;
	if (cairn_llama_restore(engine->llama, SESSION_SEQ, talk->tokens, talk->ntokens, 0, session, &ret->restored) != 0)
		die("%s", cairn_llama_error_text());
	cairn_llama_session_free(session);
	talk->kept = ret->restored.tokens;
	engine_decode(engine, talk, ret->prompt);
	engine_best(engine);
	ret->first_s = now_s() - begin_s;
	ret->device_bytes = device_bytes() - before;
	engine_answer(engine, talk, options->predict, &ret->proof, !options->json);
	if (!options->json)
		putchar('\n');
}

/* llama.cpp's own call, on the same state in one piece: GB/s. */
static double time_set_state(struct engine *engine, size_t tokens, uint64_t *ret_bytes)
{
	uint8_t *state;
	size_t length;
	double best_s = 1e9;

	llama_memory_seq_rm(engine->memory, SESSION_SEQ, (llama_pos)tokens, -1);
	length = llama_state_seq_get_size(engine->ctx, SESSION_SEQ);
	state = must(malloc(length));
	if (llama_state_seq_get_data(engine->ctx, state, length, SESSION_SEQ) != length)
		die("llama.cpp does not give its state");
	for (int run = 0; run < SET_STATE_RUNS; run++) {
		double begin_s, end_s;

		llama_memory_clear(engine->memory, false);
		begin_s = now_s();
		if (llama_state_seq_set_data(engine->ctx, state, length, SESSION_SEQ) != length)
			die("llama.cpp does not take its own state");
		end_s = now_s();
		best_s = end_s - begin_s < best_s ? end_s - begin_s : best_s;
	}
	free(state);
	*ret_bytes = length;
	return (double)length / best_s / 1e9;
}

static void json_resumed(const struct engine *engine, const char *name, const struct resumed *resumed)
{
	const struct cairn_llama_restored *r = &resumed->restored;

	printf(",\"%s\":{\"first_s\":%.6f,\"gb_s\":%.4f", name, resumed->first_s,
	       r->load_s > 0 ? (double)r->bytes / r->load_s / 1e9 : 0);
	json_restored(r);
	printf(",\"device_bytes\":%llu", (unsigned long long)resumed->device_bytes);
	json_proof(engine, &resumed->proof);
	putchar('}');
}

static void say_resumed(const struct options *options, const char *what, const struct resumed *resumed)
{
	const struct cairn_llama_restored *r = &resumed->restored;

	say(options, "  %s: %llu of %zu tokens restored, %.1f MB in %.3f s (%.2f GB/s); first token after %.3f s", what,
	    (unsigned long long)r->tokens, resumed->prompt, (double)r->bytes / 1e6, r->load_s,
	    r->load_s > 0 ? (double)r->bytes / r->load_s / 1e9 : 0, resumed->first_s);
}

int run_resume(const struct options *options)
{
	struct engine engine;
	struct talk talk = {0};
	struct resumed flash, memory;
	uint64_t state_bytes;
	double set_gb_s;

	engine_open(&engine, options);
	resume_once(&engine, &talk, &flash);
	say_resumed(options, "from the store", &flash);
	engine_clear(&engine);
	resume_once(&engine, &talk, &memory);
	say_resumed(options, "once more", &memory);
	set_gb_s = time_set_state(&engine, flash.restored.tokens, &state_bytes);
	say(options, "  llama.cpp's own set-state call alone: %.2f GB/s", set_gb_s);
	if (options->json) {
		printf("{\"tokens\":%zu,\"open_s\":%.6f,\"set_state_gb_s\":%.4f,\"set_state_bytes\":%llu", flash.prompt,
		       engine.store_open_s, set_gb_s, (unsigned long long)state_bytes);
		json_resumed(&engine, "flash", &flash);
		json_resumed(&engine, "memory", &memory);
		printf("}\n");
	}
	talk_done(&talk);
	engine_close(&engine);
	return 0;
}
