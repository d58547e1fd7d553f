/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens and lists of them, as text. See token.h. */
#include "fmt/token.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

static const char text_prefix[] = "cairn1_";
enum {
	PREFIX = sizeof(text_prefix) - 1,
	SECRET_AT = PREFIX + 2 * TOKEN_ID_BYTES + 1,
	PIN_AT = SECRET_AT + 2 * TOKEN_SECRET_BYTES + 1,
	LENGTH_BARE = PIN_AT - 1,
	LENGTH_PINNED = PIN_AT + 2 * TOKEN_PIN_BYTES,
	NUMBER_DIGITS = 19,
};
_Static_assert(LENGTH_PINNED < TOKEN_TEXT_MAX, "a token with its pin fits");

int token_hex_take(const char *text, uint8_t *ret_bytes, size_t bytes)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < bytes; i++) {
		const char *high = text[2 * i] ? strchr(digits, text[2 * i]) : NULL;
		const char *low = high && text[2 * i + 1] ? strchr(digits, text[2 * i + 1]) : NULL;
		if (!low)
			return -1;
		ret_bytes[i] = (uint8_t)((high - digits) << 4 | (low - digits));
	}
	return 0;
}

void token_hex_make(const uint8_t *bytes, size_t length, char *ret_text)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < length; i++) {
		ret_text[2 * i] = digits[bytes[i] >> 4];
		ret_text[2 * i + 1] = digits[bytes[i] & 15];
	}
	ret_text[2 * length] = 0;
}

/* ---- a token ----------------------------------------------------------------------------------------------------- */

void token_text_make(const struct token_text *token, char ret_text[TOKEN_TEXT_MAX])
{
	memcpy(ret_text, text_prefix, PREFIX);
	token_hex_make(token->id, TOKEN_ID_BYTES, ret_text + PREFIX);
	ret_text[SECRET_AT - 1] = '_';
	token_hex_make(token->secret, TOKEN_SECRET_BYTES, ret_text + SECRET_AT);
	if (!token->has_pin)
		return;
	ret_text[PIN_AT - 1] = '_';
	token_hex_make(token->pin, TOKEN_PIN_BYTES, ret_text + PIN_AT);
}

static int is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

int token_text_take(const char *text, size_t length, struct token_text *ret_token)
{
	struct token_text token = {0};
	char copy[TOKEN_TEXT_MAX] = "";
	while (length && is_space(text[length - 1]))
		length--;
	while (length && is_space(text[0])) {
		text++;
		length--;
	}
	if (length != LENGTH_BARE && length != LENGTH_PINNED)
		return -1;
	memcpy(copy, text, length);
	token.has_pin = length == LENGTH_PINNED;
	if (memcmp(copy, text_prefix, PREFIX) != 0 || copy[SECRET_AT - 1] != '_' ||
	    token_hex_take(copy + PREFIX, token.id, TOKEN_ID_BYTES) ||
	    token_hex_take(copy + SECRET_AT, token.secret, TOKEN_SECRET_BYTES) ||
	    (token.has_pin && (copy[PIN_AT - 1] != '_' || token_hex_take(copy + PIN_AT, token.pin, TOKEN_PIN_BYTES))))
		return -1;
	*ret_token = token;
	return 0;
}

/* ---- a list ------------------------------------------------------------------------------------------------------ */

int token_tenant_fits(const char *tenant)
{
	size_t length = strnlen(tenant, TOKEN_TENANT_MAX);
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)tenant[i] < ' ' || tenant[i] == 127)
			return 0;
	return length && length < TOKEN_TENANT_MAX;
}

/* ID MADE EXPIRES RIGHTS HASH TENANT */
size_t token_line_make(const struct token *token, char ret_line[TOKEN_LINE_MAX])
{
	char id[2 * TOKEN_ID_BYTES + 1], hash[2 * 32 + 1];
	check(token_tenant_fits(token->tenant));
	token_hex_make(token->id, TOKEN_ID_BYTES, id);
	token_hex_make(token->hash, 32, hash);
	int length = snprintf(ret_line, TOKEN_LINE_MAX, "%s %llu %llu %s %s %s\n", id, (unsigned long long)token->made_s,
	                      (unsigned long long)token->expires_s, token->rights & TOKEN_ADMIN ? "admin" : "use", hash,
	                      token->tenant);
	check(length > 0 && (size_t)length < TOKEN_LINE_MAX);
	return (size_t)length;
}

/* The next word of a line of so many bytes, NULL: none; its length. */
static const char *word_take(const char **at, const char *end, size_t *ret_length)
{
	const char *word = *at, *blank = memchr(word, ' ', (size_t)(end - word));
	if (!blank || blank == word)
		return NULL;
	*ret_length = (size_t)(blank - word);
	*at = blank + 1;
	return word;
}

static int take_hex(const char **at, const char *end, uint8_t *to, size_t bytes)
{
	size_t length;
	const char *word = word_take(at, end, &length);
	return word && length == 2 * bytes ? token_hex_take(word, to, bytes) : -1;
}

static int take_number(const char **at, const char *end, uint64_t *to)
{
	size_t length;
	const char *word = word_take(at, end, &length);
	if (!word || length > NUMBER_DIGITS || (word[0] == '0' && length > 1))
		return -1;
	*to = 0;
	for (size_t i = 0; i < length; i++) {
		if (word[i] < '0' || word[i] > '9')
			return -1;
		*to = *to * 10 + (uint64_t)(word[i] - '0');
	}
	return 0;
}

static int take_rights(const char **at, const char *end, uint32_t *to)
{
	size_t length;
	const char *word = word_take(at, end, &length);
	if (!word)
		return -1;
	*to = length == 5 && !memcmp(word, "admin", 5) ? TOKEN_ADMIN : 0;
	return *to || (length == 3 && !memcmp(word, "use", 3)) ? 0 : -1;
}

static int line_take(const char *at, const char *end, struct token *token)
{
	memset(token, 0, sizeof(*token));
	if (take_hex(&at, end, token->id, TOKEN_ID_BYTES) || take_number(&at, end, &token->made_s) ||
	    take_number(&at, end, &token->expires_s) || take_rights(&at, end, &token->rights) ||
	    take_hex(&at, end, token->hash, 32))
		return -1;
	size_t length = (size_t)(end - at);
	if (!length || length >= TOKEN_TENANT_MAX || memchr(at, 0, length))
		return -1;
	memcpy(token->tenant, at, length);
	return token_tenant_fits(token->tenant) ? 0 : -1;
}

int token_list_begin(const char *bytes, size_t length, struct token_list *ret_list)
{
	enum {
		HEAD = sizeof(TOKEN_LIST_HEAD) - 1
	};
	if (length < HEAD || memcmp(bytes, TOKEN_LIST_HEAD, HEAD) != 0)
		return -1;
	*ret_list = (struct token_list){bytes + HEAD, bytes + length};
	return 0;
}

int token_list_take(struct token_list *list, struct token *ret_token)
{
	if (list->at == list->end)
		return 0;
	const char *next = memchr(list->at, '\n', (size_t)(list->end - list->at));
	if (!next || line_take(list->at, next, ret_token))
		return -1;
	list->at = next + 1;
	return 1;
}
