/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens in files: a cairnd's list, and a client's own. The formats are in fmt/token.h. Threads: any. */
#ifndef CAIRN_STORE_TOKEN_H
#define CAIRN_STORE_TOKEN_H

#include "cairn/cairn.h"
#include "fmt/token.h"

#define TOKEN_FILE "tokens" /* the list, in a store's directory */

/* All tokens of a directory; no file is none of them. *ret_tokens is freed by mem_free. 0, CORRUPT, ACCESS, ... */
int token_list_read(const char *directory, struct token **ret_tokens, uint32_t *ret_n);

/* A client's token: from `file`, or where it is looked for when that is NULL (cairn.h, struct cairn_options). 1; 0:
 * there is none; ACCESS (others may read it), NOENT, INVAL. */
int token_file_read(const char *file, struct token_text *ret_token);

#endif
