/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One answer for many ranks: tickets to a match, and what the ranks agree on.
 *
 * Threads: any; under the store's lock. Memory: a handle.
 * Invariant: how much of an answer they use is settled once, and everybody is told the same.
 */
#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/match.h"
#include "store/remote.h"

CAIRN_API void cairn_match_ticket(const cairn_match *match, struct cairn_ticket *ret_ticket)
{
	*ret_ticket = match->ticket;
}

/* The answer that a ticket of this space is of; NULL: there is none, or none any more. All are looked at, whichever it
 * is. */
static struct match_answer *answer_find(cairn *store, const struct cairn_space *space,
                                        const struct cairn_ticket *ticket)
{
	struct match_answer *found = NULL;
	for (struct list *node = store->matches.next; node != &store->matches; node = node->next) {
		struct match_answer *answer = LIST_OF(node, struct match_answer, link);
		int same = digest_same(answer->ticket.bytes, ticket->bytes, sizeof(ticket->bytes));
		if (same & (answer->space == space) & !answer->expired &
		    !(answer->agreed && !answer->tokens && answer->info.tokens))
			found = answer;
	}
	return found;
}

static int join_here(cairn *store, const struct cairn_space *space, const struct cairn_ticket *ticket,
                     struct cairn_match *match)
{
	pthread_mutex_lock(&store->lock);
	match_expire(store);
	struct match_answer *answer = answer_find(store, space, ticket);
	int error =
		answer ? 0 : err_set(CAIRN_E_NOENT, "no match is open under that ticket: it has ended, or is not yours");
	if (answer && answer->holders == MATCH_HOLDERS_MAX)
		error = err_set(CAIRN_E_BUSY, "%d hold that match: release some", MATCH_HOLDERS_MAX);
	if (!error) {
		answer->holders++;
		match->answer = answer;
		match->info = answer->info;
		match->ticket = answer->ticket;
		match->joined = 1;
	}
	pthread_mutex_unlock(&store->lock);
	return error;
}

CAIRN_API int cairn_match_join(cairn *store, const struct cairn_space *space, const struct cairn_ticket *ticket,
                               cairn_match **ret_match)
{
	if (!store || !space || space->store != store || !space->described || !ticket || !ret_match)
		return err_set(CAIRN_E_INVAL, "match: no ticket, no place for the result, or a space of another store");
	struct cairn_match *match = mem_alloc(sizeof(*match));
	if (!match)
		return err_set(CAIRN_E_NOMEM, "no memory for a match");
	int error = store->remote ? remote_match_join(store, (struct cairn_space *)(uintptr_t)space, ticket, match)
	                          : join_here(store, space, ticket, match);
	if (error)
		mem_free(match);
	else
		*ret_match = match;
	return error;
}

/* One rank's word. 0 or INVAL. */
static int say(cairn *store, struct cairn_match *match, uint32_t ranks, uint64_t tokens)
{
	struct match_answer *answer = match->answer;
	if (answer->ranks && answer->ranks != ranks)
		return err_set(CAIRN_E_INVAL, "match: %u ranks, where another one said %u", ranks, answer->ranks);
	answer->ranks = ranks;
	if (match->said || answer->agreed)
		return 0;
	match->said = 1;
	if (tokens < answer->tokens)
		answer->tokens = tokens;
	if (++answer->said == ranks || !tokens) { /* the least is known */
		answer->agreed = 1;
		store_changed(store);
	}
	return 0;
}

CAIRN_API long cairn_match_agree(cairn *store, cairn_match *match, uint32_t ranks, uint64_t tokens, uint32_t timeout_ms)
{
	if (!store || !match || !ranks || ranks > MATCH_HOLDERS_MAX)
		return err_set(CAIRN_E_INVAL, "match: %u ranks: there are 1 to %d", ranks, MATCH_HOLDERS_MAX);
	if (!match->answer)
		return remote_match_agree(store, match->remote, ranks, tokens, timeout_ms);
	struct match_answer *answer = match->answer;
	pthread_mutex_lock(&store->lock);
	match_expire(store);
	uint64_t deadline = store_deadline(store, timeout_ms);
	int error = say(store, match, ranks, tokens);
	/* The answer's own deadline ends it for all; so does one that will not wait longer. */
	deadline = deadline < answer->deadline_ns ? deadline : answer->deadline_ns;
	while (!error && !answer->agreed)
		if (store_wait(store, deadline))
			match_leave(store, answer);
	long agreed = error ? error : (long)answer->tokens;
	pthread_mutex_unlock(&store->lock);
	return agreed;
}
