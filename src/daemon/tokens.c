/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens that a cairnd takes. See tokens.h. */
#include "daemon/tokens.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "daemon/log.h"
#include "fmt/key.h"

struct tokens {
	pthread_mutex_t lock;
	const struct clock *clock;
	char directory[PATH_MAX];
	struct stat seen; /* st_ino 0: there was no file */
	struct token *list;
	uint32_t n;
	uint64_t changes, expired; /* how many of the list have, when it was looked at last */
};

struct tokens *tokens_open(const char *directory, const struct clock *clock)
{
	struct tokens *tokens = mem_alloc(sizeof(*tokens));
	if (!tokens)
		return NULL;
	pthread_mutex_init(&tokens->lock, NULL);
	tokens->clock = clock;
	snprintf(tokens->directory, sizeof(tokens->directory), "%s", directory);
	(void)tokens_refresh(tokens);
	return tokens;
}

void tokens_close(struct tokens *tokens)
{
	if (!tokens)
		return;
	pthread_mutex_destroy(&tokens->lock);
	mem_free(tokens->list);
	mem_free(tokens);
}

static int is_same(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static int has_expired(const struct tokens *tokens, const struct token *token)
{
	return token->expires_s && clock_wall_s(tokens->clock) >= token->expires_s;
}

/* The lock is held. */
static void list_read(struct tokens *tokens)
{
	mem_free(tokens->list);
	if (token_list_read(tokens->directory, &tokens->list, &tokens->n)) {
		tokens->list = NULL;
		tokens->n = 0;
		LOG(LOG_ERROR, "the list of tokens can not be read: none is taken", LOG_TEXT("why", err_text()));
	} else {
		LOG(LOG_INFO, "tokens read", LOG_NUMBER("tokens", tokens->n));
	}
}

uint64_t tokens_refresh(struct tokens *tokens)
{
	char path[PATH_MAX + sizeof(TOKEN_FILE) + 1];
	struct stat now;
	uint64_t expired = 0;
	snprintf(path, sizeof(path), "%s/" TOKEN_FILE, tokens->directory);
	pthread_mutex_lock(&tokens->lock);
	if (lstat(path, &now))
		memset(&now, 0, sizeof(now));
	if (!is_same(&now, &tokens->seen)) {
		tokens->seen = now; /* before it is read: what comes in between is seen the next time */
		list_read(tokens);
		tokens->changes++;
	}
	for (uint32_t i = 0; i < tokens->n; i++)
		expired += (uint64_t)has_expired(tokens, &tokens->list[i]);
	tokens->changes += expired != tokens->expired;
	tokens->expired = expired;
	uint64_t changes = tokens->changes;
	pthread_mutex_unlock(&tokens->lock);
	return changes;
}

static const struct token *find(const struct tokens *tokens, const uint8_t id[TOKEN_ID_BYTES])
{
	for (uint32_t i = 0; i < tokens->n; i++)
		if (!memcmp(tokens->list[i].id, id, TOKEN_ID_BYTES))
			return &tokens->list[i];
	return NULL;
}

const char *tokens_check(struct tokens *tokens, const uint8_t id[TOKEN_ID_BYTES],
                         const uint8_t secret[TOKEN_SECRET_BYTES], struct who *ret_who)
{
	static const struct token nobody;
	uint8_t hash[32];
	const char *wrong = NULL;
	digest_sha256(secret, TOKEN_SECRET_BYTES, hash);
	pthread_mutex_lock(&tokens->lock);
	const struct token *found = find(tokens, id), *token = found ? found : &nobody;
	/* In the same time, however much of it is right, and for an id that there is not. */
	int same = digest_same(hash, token->hash, sizeof(hash));
	if (!found)
		wrong = "unknown or revoked";
	else if (!same)
		wrong = "another secret";
	else if (has_expired(tokens, token))
		wrong = "expired";
	if (!wrong) {
		memset(ret_who, 0, sizeof(*ret_who));
		ret_who->has_token = 1;
		ret_who->all = (token->rights & TOKEN_ADMIN) != 0;
		memcpy(ret_who->token, token->id, TOKEN_ID_BYTES);
		memcpy(ret_who->hash, token->hash, sizeof(hash));
		memcpy(ret_who->tenant, token->tenant, sizeof(ret_who->tenant));
		key_tenant_digest(token->tenant, strlen(token->tenant), ret_who->digest);
	}
	pthread_mutex_unlock(&tokens->lock);
	return wrong;
}

int tokens_hold(struct tokens *tokens, const struct who *who)
{
	pthread_mutex_lock(&tokens->lock);
	const struct token *token = find(tokens, who->token);
	int holds = token && !has_expired(tokens, token) && !memcmp(token->hash, who->hash, sizeof(who->hash)) &&
	            !strcmp(token->tenant, who->tenant) && ((token->rights & TOKEN_ADMIN) != 0) == (int)who->all;
	pthread_mutex_unlock(&tokens->lock);
	return holds;
}
