/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client may see and do: that of its own tenant, and reading and putting in "public". The tenant is that of the
 * connection's token; whatever a request says of it is written over before the store is asked, so that another's exact
 * key is looked up as one's own, and misses as any other key does. See daemon.h.
 */
#include <string.h>

#include "base/err.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "fmt/key.h"
#include "store/store.h"

const char *may_enter(struct conn *conn, const struct wire_hello *hello, struct who *ret_who)
{
	struct tokens *tokens = conn->daemon->tokens;
	*ret_who = (struct who){.all = 1};
	/* On this server the socket's permission bits have decided; a plain place asks nobody who does not say it. */
	if (link_shares(conn->net) || (!hello->has_token && !link_is_private(conn->net)))
		return NULL;
	const char *wrong = !tokens ? "this cairnd takes none" : !hello->has_token ? "none was sent" : NULL;
	if (!wrong) {
		(void)tokens_refresh(tokens);
		wrong = tokens_check(tokens, hello->token, hello->secret, ret_who);
	}
	if (!wrong)
		return NULL;
	char id[2 * TOKEN_ID_BYTES + 1];
	token_hex_make(hello->token, TOKEN_ID_BYTES, id);
	LOG(LOG_WARNING, "a token was refused", LOG_TEXT("peer", conn->peer), LOG_TEXT("token", id),
	    LOG_TEXT("why", wrong));
	if (!hello->has_token)
		return "a token is needed here: cairn token new, on the cairnd's server, makes one";
	/* Later, for who tries many; this thread is the only one that waits. */
	(void)link_wait(conn->net, (int)(conn->daemon->wrong_ms ? conn->daemon->wrong_ms : DAEMON_WRONG_MS));
	return "the token is not good here: unknown, expired or revoked; cairn token new, on the cairnd's server, makes "
	       "one";
}

static const struct who *who_of(const struct conn *conn)
{
	return &conn->client->who;
}

int may_see_tenant(const struct conn *conn, const char *tenant)
{
	return who_of(conn)->all || (tenant && !strcmp(tenant, who_of(conn)->tenant));
}

void may_describe(const struct conn *conn, struct cairn_space_desc *desc)
{
	if (who_of(conn)->all || (desc->tenant && !strcmp(desc->tenant, TENANT_PUBLIC)))
		return;
	desc->tenant = who_of(conn)->tenant;
}

void may_name(const struct conn *conn, struct cairn_session_name *name)
{
	if (!who_of(conn)->all)
		name->tenant = who_of(conn)->tenant;
}

const char *may_list(const struct conn *conn, const char *asked)
{
	return who_of(conn)->all ? asked : who_of(conn)->tenant;
}

/* 2: its own (or everybody's is); 1: public; 0: there is no such space for this client. */
static int space_rank(const struct conn *conn, const cairn_digest *id)
{
	static const char public[] = TENANT_PUBLIC;
	cairn *store = conn->daemon->store;
	uint8_t digest[32];
	int rank = 0;
	if (who_of(conn)->all)
		return 2;
	key_tenant_digest(public, strlen(public), digest);
	pthread_mutex_lock(&store->lock);
	const struct cairn_space *space = store_space_by_id(store, id->bytes, 0);
	if (space && space->described)
		rank = !memcmp(space->space.tenant_digest, who_of(conn)->digest, 32) ? 2
		       : !memcmp(space->space.tenant_digest, digest, 32)             ? 1
		                                                                     : 0;
	pthread_mutex_unlock(&store->lock);
	return rank;
}

int may_see(const struct conn *conn, const cairn_digest *id)
{
	return space_rank(conn, id) > 0;
}

int may_drop(const struct conn *conn, const cairn_digest *id)
{
	return space_rank(conn, id) == 2;
}

int may_hint(const struct conn *conn, const cairn_space *space, uint32_t hint)
{
	cairn_digest id;
	cairn_space_get_id(space, &id);
	/* That one tenant does not come back to what is everybody's says nothing. */
	return hint != CAIRN_HINT_CLOSE || may_drop(conn, &id);
}

void may_stat(const struct conn *conn, struct cairn_stat *stat)
{
	if (who_of(conn)->all)
		return;
	/* How large the store is, and no more: what others do there is not this client's to know. */
	struct cairn_stat seen = {.size = stat->size};
	for (int i = 0; i < CAIRN_TIERS; i++)
		seen.tier[i].capacity_bytes = stat->tier[i].capacity_bytes;
	*stat = seen;
}

void may_event(const struct conn *conn, struct cairn_event *event)
{
	if (may_see(conn, &event->space_id))
		return;
	/* Its number stays, or the next one would look as if events had been missed. */
	*event = (struct cairn_event){.sequence = event->sequence, .life = event->life};
}
