/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokens that a cairnd takes: the list in its directory, read anew whenever it has changed.
 *
 * Threads: any; one lock. Memory: one list.
 * Invariant: a list that can not be read is no token at all: what is doubtful opens no door.
 */
#ifndef CAIRN_DAEMON_TOKENS_H
#define CAIRN_DAEMON_TOKENS_H

#include "base/clock.h"
#include "store/token.h"

/* Who a connection is, as it was found out once. */
struct who {
	uint32_t all; /* acts for every tenant: by an admin's token, or without one where nobody is asked */
	uint32_t has_token;
	uint8_t token[TOKEN_ID_BYTES], hash[32];
	char tenant[TOKEN_TENANT_MAX]; /* "": without a token */
	uint8_t digest[32];            /* of the tenant's name */
};

struct tokens;
/* Of a directory; `clock` says when one has expired. NULL: no memory. */
struct tokens *tokens_open(const char *directory, const struct clock *clock);
void tokens_close(struct tokens *tokens);
/* Looks whether the list has changed, and reads it. Returns a number that changes with it (also when one expires). */
uint64_t tokens_refresh(struct tokens *tokens);
/* After a refresh. 0: *ret_who; or what is wrong with it, for the log: the client is told nothing of it. */
const char *tokens_check(struct tokens *tokens, const uint8_t id[TOKEN_ID_BYTES],
                         const uint8_t secret[TOKEN_SECRET_BYTES], struct who *ret_who);
/* Whether a token that was good still is. */
int tokens_hold(struct tokens *tokens, const struct who *who);

#endif
