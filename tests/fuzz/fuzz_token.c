/* SPDX-License-Identifier: Apache-2.0 */
/* A token, and a list of them. Input: either, as text. What is taken is made again, to the letter. */
#include "fmt/token.h"

#include "fuzz/fuzz.h"

static void try_text(const char *text, size_t length)
{
	struct token_text token, again;
	char made[TOKEN_TEXT_MAX] = "";
	if (token_text_take(text, length, &token))
		return;
	token_text_make(&token, made);
	check(length >= strlen(made) && !token_text_take(made, strlen(made), &again));
	check(again.has_pin == token.has_pin && !memcmp(again.secret, token.secret, sizeof(token.secret)));
}

static void try_list(const char *text, size_t length)
{
	struct token_list list;
	struct token token;
	char line[TOKEN_LINE_MAX];
	if (token_list_begin(text, length, &list))
		return;
	for (const char *from = list.at; token_list_take(&list, &token) == 1; from = list.at) {
		size_t made = token_line_make(&token, line);
		check(made == (size_t)(list.at - from) && !memcmp(line, from, made));
		check(token_tenant_fits(token.tenant) && list.at <= list.end);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* On the heap, so that a byte read beyond it is found. */
	char *text = malloc(size ? size : 1);
	check(text);
	if (size)
		memcpy(text, data, size);
	try_text(text, size);
	try_list(text, size);
	free(text);
	return 0;
}
