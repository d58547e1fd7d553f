/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conversation with a person that is still there the next time: each answer is saved in the session, and a new
 * process goes on where the last one ended, however that ended.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "demo.h"

static char *read_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	size_t length = 0, room = 65536, n;
	char *text = must(malloc(room));

	if (!file)
		die("can't read %s: %s", path, strerror(errno));
	while ((n = fread(text + length, 1, room - length - 1, file)) > 0) {
		length += n;
		if (room - length < 2)
			text = must(realloc(text, room *= 2));
	}
	if (ferror(file))
		die("can't read %s", path);
	fclose(file);
	text[length] = 0;
	return text;
}

/* Brings a saved session into the context. Returns whether there was one. */
static int go_on(struct engine *engine, struct talk *talk)
{
	const struct options *options = engine->options;
	struct cairn_llama_restored restored;
	cairn_llama_session *session;
	const llama_token *tokens;
	size_t ntokens;
	double begin_s = now_s();
	int rc = cairn_llama_session_open(engine->llama, NULL, options->session, &session);

	if (rc == CAIRN_E_NOENT) {
		say(options, "[%s: a new one begins]", cairn_llama_error_text());
		return 0;
	}
	if (rc)
		die("%s", cairn_llama_error_text());
	tokens = cairn_llama_session_tokens(session, &ntokens, NULL);
	talk_add(talk, tokens, ntokens);
	if (cairn_llama_restore(engine->llama, SESSION_SEQ, talk->tokens, talk->ntokens, 0, session, &restored) != 0)
		say(options, "[%s]", cairn_llama_error_text());
	cairn_llama_session_free(session);
	talk->kept = restored.tokens;
	say(options, "[session %s: %llu of %zu tokens restored in %.3f s, %.1f MB; %zu to compute]", options->session,
	    (unsigned long long)restored.tokens, ntokens, now_s() - begin_s, (double)restored.bytes / 1e6,
	    ntokens - (size_t)restored.tokens);
	return 1;
}

static void turn(struct engine *engine, struct talk *talk, const char *text)
{
	const struct options *options = engine->options;
	struct cairn_llama_stored stored = {0};
	double begin_s = now_s(), first_s;
	size_t from = talk->kept, prompt;

	talk_add_question(engine, talk, text);
	prompt = talk->ntokens;
	if (prompt + options->predict > llama_n_ctx(engine->ctx))
		die("the conversation is over --ctx %u", options->ctx);
	engine_decode(engine, talk, prompt);
	first_s = now_s() - begin_s;
	engine_answer(engine, talk, options->predict, NULL, 1);
	putchar('\n');
	if (engine->llama)
		engine_save(engine, talk, options->session, &stored);
	say(options, "[%zu tokens computed, first token after %.3f s; %.1f MB saved]", prompt - from, first_s,
	    (double)(stored.bytes + stored.tail_bytes) / 1e6);
}

int run_chat(const struct options *options)
{
	struct engine engine;
	struct talk talk = {0};
	char *line = NULL, *text = NULL;
	size_t room = 0;
	ssize_t n;
	int old;

	engine_open(&engine, options);
	old = engine.llama && go_on(&engine, &talk);
	if (!old && options->prompt_file)
		text = read_file(options->prompt_file);
	for (;;) {
		if (isatty(STDIN_FILENO)) {
			printf("> ");
			fflush(stdout);
		}
		n = getline(&line, &room, stdin);
		if (n <= 0)
			break;
		if (line[n - 1] == '\n')
			line[--n] = 0;
		if (n == 0)
			continue;
		if (text) {
			/* The first question follows the file. */
			size_t length = strlen(text);

			text = must(realloc(text, length + (size_t)n + 3));
			snprintf(text + length, (size_t)n + 3, "\n\n%s", line);
			turn(&engine, &talk, text);
			free(text);
			text = NULL;
		} else {
			turn(&engine, &talk, line);
		}
	}
	free(text);
	free(line);
	talk_done(&talk);
	engine_close(&engine);
	return 0;
}
