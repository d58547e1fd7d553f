/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens: by what a client says over a network who it is. Two texts: the token itself, which the client has, and the
 * list of them that a cairnd has, which holds no secret. docs/SERVE.md has both formats.
 *
 * Threads: any; pure. Memory: the caller's.
 */
#ifndef CAIRN_FMT_TOKEN_H
#define CAIRN_FMT_TOKEN_H

#include <stddef.h>
#include <stdint.h>

#define TOKEN_ID_BYTES       8u
#define TOKEN_SECRET_BYTES   32u
#define TOKEN_PIN_BYTES      32u
#define TOKEN_TEXT_MAX       160u  /* of a token, its final 0 included */
#define TOKEN_TENANT_MAX     256u  /* its final 0 included */
#define TOKEN_LIST_MAX       4096u /* tokens of one list */
#define TOKEN_LIST_BYTES_MAX (2u << 20)

/* "cairn1_ID_SECRET" and, where the server's key is known, "_PIN"; in hexadecimal. */
struct token_text {
	uint8_t id[TOKEN_ID_BYTES];
	uint8_t secret[TOKEN_SECRET_BYTES];
	int has_pin;
	uint8_t pin[TOKEN_PIN_BYTES]; /* SHA-256 of the server's public key */
};
void token_text_make(const struct token_text *token, char ret_text[TOKEN_TEXT_MAX]);
/* White space around it is no part of it. 0, or -1: not a token. */
int token_text_take(const char *text, size_t length, struct token_text *ret_token);

enum {
	TOKEN_ADMIN = 1u << 0
}; /* sees and does everything, of all tenants */

struct token {
	uint8_t id[TOKEN_ID_BYTES];
	uint8_t hash[32];           /* SHA-256 of the secret */
	uint32_t rights;            /* TOKEN_... */
	uint64_t made_s, expires_s; /* 0: never */
	char tenant[TOKEN_TENANT_MAX];
};
/* 1 to 255 bytes, none of them below a blank: a line holds it. */
int token_tenant_fits(const char *tenant);

/* A list: a first line, then a line for each. */
struct token_list {
	const char *at, *end;
};
/* 0, or -1: this is no list. */
int token_list_begin(const char *bytes, size_t length, struct token_list *ret_list);
/* Takes the next token. 1; 0: there is no more; -1: the list is damaged. */
int token_list_take(struct token_list *list, struct token *ret_token);
#define TOKEN_LIST_HEAD "cairn tokens 1\n"
#define TOKEN_LINE_MAX  512u
/* The line of a token; its length. */
size_t token_line_make(const struct token *token, char ret_line[TOKEN_LINE_MAX]);

int token_hex_take(const char *text, uint8_t *ret_bytes, size_t bytes);   /* 2 * bytes digits of [0-9a-f]. 0 or -1 */
void token_hex_make(const uint8_t *bytes, size_t length, char *ret_text); /* with a final 0 */

#endif
