/* SPDX-License-Identifier: Apache-2.0 */
/* src/store/ranks.c: one answer for many ranks, in one process and over a cairnd; what they agree on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "store/match.h"
#include "store/remote.h"
#include "unit/served_lib.h"

enum {
	RANKS = 8,
	BLOCKS = 20,
	LENGTH = 60000,
	ALL = BLOCKS * 16
};

/* ---- where it is tried: a store in this process, or a cairnd that all ranks ask, each as a client of its own ----- */

struct team {
	struct served served;
	int remote;
	cairn *store[RANKS + 1]; /* of each rank; the last is the scheduler's */
	cairn_space *space[RANKS + 1];
};
enum {
	SCHEDULER = RANKS
};
static const char *const places[] = {"embedded", "unix", "tcp"};

static void team_start(struct team *team, int kind)
{
	memset(team, 0, sizeof *team);
	place_init(&team->served.place, 64 * MIB, 8 * MIB);
	team->served.tcp = kind == 2;
	team->remote = kind != 0;
	if (team->remote)
		served_start(&team->served);
	for (int i = 0; i <= RANKS; i++) {
		team->store[i] = team->remote ? served_client(&team->served)
		                 : i          ? team->store[0]
		                              : place_open(&team->served.place);
		team->space[i] = space_named(team->store[i], NULL, "m");
	}
}

static void team_done(struct team *team)
{
	for (int i = 0; i <= RANKS && team->remote; i++)
		assert_int_equal(cairn_close(team->store[i]), 0);
	if (team->remote)
		served_stop(&team->served);
	else
		assert_int_equal(cairn_close(team->store[0]), 0);
	place_done(&team->served.place);
}

static cairn_match *match_of(cairn *store, cairn_space *space, uint32_t n, uint32_t timeout_ms,
                             struct cairn_ticket *ret_ticket)
{
	cairn_key keys[BLOCKS];
	cairn_match *match;
	for (uint32_t i = 0; i < n; i++)
		keys[i] = key_at(1, i);
	struct cairn_chain chain = {0, keys, n};
	assert_int_equal(cairn_match_take(store, space, &chain, 1, 0, timeout_ms, &match), 0);
	cairn_match_ticket(match, ret_ticket);
	return match;
}

static cairn_match *join(struct team *team, int rank, const struct cairn_ticket *ticket)
{
	cairn_match *match = NULL;
	int error = cairn_match_join(team->store[rank], team->space[rank], ticket, &match);
	if (error)
		fail_msg("join: %d %s", error, cairn_error_text());
	return match;
}

static int join_status(struct team *team, int rank, const struct cairn_ticket *ticket)
{
	cairn_match *match = NULL;
	int error = cairn_match_join(team->store[rank], team->space[rank], ticket, &match);
	assert_true(!error == (match != NULL));
	cairn_match_release(team->store[rank], match);
	return error;
}

/* Other chains come, as many bytes as there is memory twice over. */
static void pressure(struct team *team, uint64_t *chain)
{
	for (int i = 0; i < 40; i++, ++*chain) {
		cairn_key key = key_at(*chain, 0);
		int status = put_status(team->store[SCHEDULER], team->space[SCHEDULER], &key, NULL, 400000, 0);
		assert_true(status == CAIRN_OK || status == CAIRN_E_BUSY || status == CAIRN_E_FULL);
	}
}

static uint64_t holds(struct team *team)
{
	cairn *store = team->remote ? team->served.daemon.store : team->store[0];
	cairn_space *space = space_named(store, NULL, "m");
	cairn_key key = key_at(1, 0);
	pthread_mutex_lock(&store->lock);
	uint32_t entry = catalog_find(store->catalog, space->number, key.bytes, 0);
	uint64_t n = entry ? catalog_at(store->catalog, entry)->holds : 0;
	pthread_mutex_unlock(&store->lock);
	return n;
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

static void test_ranks__see_one_answer_when_they_join(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3; kind++) {
		struct team team;
		struct cairn_ticket ticket, again;
		struct cairn_match_info first, info;
		cairn_match *ranks[RANKS];
		uint64_t chain = 100;
		team_start(&team, kind);
		assert_int_equal(put_chain(team.store[SCHEDULER], team.space[SCHEDULER], 1, 0, BLOCKS, LENGTH, 0), BLOCKS);
		cairn_match *match = match_of(team.store[SCHEDULER], team.space[SCHEDULER], BLOCKS, 60000, &ticket);
		cairn_match_get_info(match, &first);
		assert_int_equal(first.tokens, BLOCKS * 16);
		/* What the answer would be by now does not matter: the chain has grown, and memory turns over. */
		for (int i = 0; i < RANKS; i++) {
			pressure(&team, &chain);
			ranks[i] = join(&team, i, &ticket);
			cairn_match_get_info(ranks[i], &info);
			assert_memory_equal(&info, &first, sizeof info);
			cairn_match_ticket(ranks[i], &again);
			assert_memory_equal(&again, &ticket, sizeof ticket);
			assert_int_equal(holds(&team), 1);
		}
		/* The scheduler goes, and one rank after the other; the last one still has it. */
		cairn_match_release(team.store[SCHEDULER], match);
		for (int i = 0; i < RANKS; i++) {
			pressure(&team, &chain);
			for (uint32_t b = 0; b < BLOCKS; b++) {
				cairn_key key = key_at(1, b);
				assert_int_equal(get_status(team.store[i], team.space[i], &key, LENGTH), CAIRN_OK);
			}
			assert_int_equal(holds(&team), 1);
			assert_int_equal(cairn_match_agree(team.store[i], ranks[i], 1, ALL, 1000), ALL);
			cairn_match_release(team.store[i], ranks[i]);
		}
		if (team.remote) /* a release is one way: what is asked over the same connection comes after it */
			(void)stat_of(team.store[RANKS - 1]);
		assert_int_equal(holds(&team), 0);
		assert_int_equal(stat_of(team.store[0]).matches, 0);
		assert_int_equal(join_status(&team, 0, &ticket), CAIRN_E_NOENT);
		team_done(&team);
		print_message("%s\n", places[kind]);
	}
}

/* One text for all that may not join, whatever the reason. */
static void test_ranks__are_told_the_same_when_ticket_is_no_good(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3; kind++) {
		struct team team;
		struct cairn_ticket ticket, old;
		char text[400];
		team_start(&team, kind);
		put_chain(team.store[SCHEDULER], team.space[SCHEDULER], 1, 0, BLOCKS, LENGTH, 0);
		cairn_match *match = match_of(team.store[SCHEDULER], team.space[SCHEDULER], BLOCKS, 60000, &ticket);
		/* Forged: any bit is enough. */
		for (uint32_t bit = 0; bit < 256; bit += 15) {
			struct cairn_ticket forged = ticket;
			forged.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_int_equal(join_status(&team, 0, &forged), CAIRN_E_NOENT);
		}
		snprintf(text, sizeof text, "%s", cairn_error_text());
		/* Another tenant's, and another space's. */
		cairn_space *own = team.space[1];
		team.space[1] = space_named(team.store[1], "another", "m");
		assert_int_equal(join_status(&team, 1, &ticket), CAIRN_E_NOENT);
		assert_string_equal(cairn_error_text(), text);
		team.space[1] = space_named(team.store[1], NULL, "other");
		assert_int_equal(join_status(&team, 1, &ticket), CAIRN_E_NOENT);
		assert_string_equal(cairn_error_text(), text);
		team.space[1] = own;
		assert_int_equal(holds(&team), 1);
		/* Released. */
		cairn_match_release(team.store[SCHEDULER], match);
		(void)stat_of(team.store[SCHEDULER]);
		assert_int_equal(join_status(&team, 2, &ticket), CAIRN_E_NOENT);
		assert_string_equal(cairn_error_text(), text);
		/* Over its deadline: also while somebody has a handle on it. */
		old = ticket;
		match = match_of(team.store[SCHEDULER], team.space[SCHEDULER], BLOCKS, 500, &ticket);
		assert_memory_not_equal(&old, &ticket, sizeof old);
		cairn_match *early = join(&team, 3, &ticket);
		usleep(510000);
		assert_int_equal(join_status(&team, 2, &ticket), CAIRN_E_NOENT);
		assert_string_equal(cairn_error_text(), text);
		assert_int_equal(holds(&team), 0);
		/* Whoever was early learns it as well. */
		assert_int_equal(cairn_match_agree(team.store[3], early, RANKS, ALL, 0), 0);
		cairn_match_release(team.store[3], early);
		cairn_match_release(team.store[SCHEDULER], match);
		team_done(&team);
	}
}

/* ---- agreeing ---------------------------------------------------------------------------------------------------- */

struct rank {
	struct team *team;
	cairn_match *match;
	pthread_t thread;
	uint32_t number, timeout_ms;
	uint64_t tokens;
	long told;
};

static void *rank_agrees(void *arg)
{
	struct rank *rank = arg;
	rank->told = cairn_match_agree(rank->team->store[rank->number], rank->match, RANKS, rank->tokens, rank->timeout_ms);
	return NULL;
}

static void ranks_start(struct team *team, struct rank ranks[RANKS], const struct cairn_ticket *ticket, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		ranks[i] = (struct rank){.team = team, .number = i, .tokens = ALL, .timeout_ms = 20000, .told = 1234};
		ranks[i].match = join(team, (int)i, ticket);
	}
}

static void ranks_agree(struct rank ranks[RANKS], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_agrees, &ranks[i]), 0);
	for (uint32_t i = 0; i < n; i++)
		pthread_join(ranks[i].thread, NULL);
}

static void ranks_release(struct team *team, struct rank ranks[RANKS], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		cairn_match_release(team->store[ranks[i].number], ranks[i].match);
}

static void test_ranks__agree_on_the_least_when_one_has_less(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3; kind++) {
		struct team team;
		struct cairn_ticket ticket;
		struct rank ranks[RANKS];
		team_start(&team, kind);
		put_chain(team.store[SCHEDULER], team.space[SCHEDULER], 1, 0, BLOCKS, LENGTH, 0);
		for (int bad = -1; bad < RANKS; bad += 3) {
			cairn_match *match = match_of(team.store[SCHEDULER], team.space[SCHEDULER], BLOCKS, 60000, &ticket);
			ranks_start(&team, ranks, &ticket, RANKS);
			long want = bad < 0 ? ALL : bad == 2 ? 0 : 16 * bad;
			if (bad >= 0)
				ranks[bad].tokens = (uint64_t)want;
			ranks_agree(ranks, RANKS);
			for (int i = 0; i < RANKS; i++)
				assert_int_equal(ranks[i].told, want);
			/* Again it is the same, and who comes now cannot believe anything else. */
			assert_int_equal(cairn_match_agree(team.store[2], ranks[2].match, RANKS, 16, 1000), want);
			assert_int_equal(join_status(&team, 0, &ticket), want ? CAIRN_OK : CAIRN_E_NOENT);
			assert_int_equal(cairn_match_agree(team.store[2], ranks[2].match, RANKS + 1, ALL, 1000), CAIRN_E_INVAL);
			ranks_release(&team, ranks, RANKS);
			cairn_match_release(team.store[SCHEDULER], match);
		}
		team_done(&team);
	}
}

static void test_ranks__give_up_together_when_one_is_missing(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3; kind++) {
		struct team team;
		struct cairn_ticket ticket;
		struct rank ranks[RANKS];
		team_start(&team, kind);
		put_chain(team.store[SCHEDULER], team.space[SCHEDULER], 1, 0, BLOCKS, LENGTH, 0);
		/* One waits less long than the others: it speaks for all. */
		cairn_match *match = match_of(team.store[SCHEDULER], team.space[SCHEDULER], BLOCKS, 60000, &ticket);
		ranks_start(&team, ranks, &ticket, RANKS);
		ranks[3].timeout_ms = 50;
		ranks_agree(ranks, RANKS - 1);
		for (int i = 0; i < RANKS - 1; i++)
			assert_int_equal(ranks[i].told, 0);
		assert_int_equal(cairn_match_agree(team.store[RANKS - 1], ranks[RANKS - 1].match, RANKS, ALL, 0), 0);
		ranks_release(&team, ranks, RANKS);
		cairn_match_release(team.store[SCHEDULER], match);
		/* One goes without a word. */
		match = match_of(team.store[SCHEDULER], team.space[SCHEDULER], BLOCKS, 60000, &ticket);
		ranks_start(&team, ranks, &ticket, RANKS);
		cairn_match_release(team.store[5], ranks[5].match);
		ranks[5] = ranks[RANKS - 1];
		ranks_agree(ranks, RANKS - 1);
		for (int i = 0; i < RANKS - 1; i++)
			assert_int_equal(ranks[i].told, 0);
		ranks_release(&team, ranks, RANKS - 1);
		cairn_match_release(team.store[SCHEDULER], match);
		team_done(&team);
	}
}

/* As kill -9 does: its sockets end. */
static void die(struct team *team, int rank)
{
	struct remote *remote = team->store[rank]->remote;
	struct list *all[] = {&remote->idle, &remote->idle_bulk};
	for (int i = 0; i < 2; i++)
		for (struct list *node = all[i]->next; node != all[i]; node = node->next)
			link_stop(LIST_OF(node, struct remote_link, link)->net, LINK_STOP_ALL);
}

static void test_ranks__keep_answer_when_others_die(void **state)
{
	(void)state;
	for (int kind = 1; kind < 3; kind++) {
		struct team team;
		struct cairn_ticket ticket;
		struct rank ranks[RANKS];
		uint64_t chain = 100;
		team_start(&team, kind);
		put_chain(team.store[SCHEDULER], team.space[SCHEDULER], 1, 0, BLOCKS, LENGTH, 0);
		cairn_match *match = match_of(team.store[SCHEDULER], team.space[SCHEDULER], BLOCKS, 60000, &ticket);
		ranks_start(&team, ranks, &ticket, RANKS);
		die(&team, SCHEDULER);
		die(&team, 4);
		served_wait(&team.served, RANKS - 1);
		pressure(&team, &chain); /* the scheduler came back: another client */
		assert_int_equal(holds(&team), 1);
		for (uint32_t b = 0; b < BLOCKS; b++) {
			cairn_key key = key_at(1, b);
			assert_int_equal(get_status(team.store[0], team.space[0], &key, LENGTH), CAIRN_OK);
		}
		/* A rank less: at once they know that they can not all have it. */
		ranks[4].number = RANKS - 1;
		struct rank last = ranks[RANKS - 1];
		cairn_match *dead = ranks[4].match;
		ranks[4] = last;
		ranks_agree(ranks, RANKS - 1);
		for (int i = 0; i < RANKS - 1; i++)
			assert_int_equal(ranks[i].told, 0);
		ranks_release(&team, ranks, RANKS - 1);
		cairn_match_release(team.store[4], dead);
		cairn_match_release(team.store[SCHEDULER], match);
		for (int i = 0; i < RANKS; i++)
			(void)stat_of(team.store[i]);
		assert_int_equal(holds(&team), 0);
		team_done(&team);
	}
}

/* Dropped meanwhile: the answer stays what it is, a get says miss, and the ranks find out together. */
static void test_ranks__find_out_together_when_block_is_dropped(void **state)
{
	(void)state;
	struct team team;
	struct cairn_ticket ticket;
	struct cairn_match_info first, info;
	struct rank ranks[RANKS];
	team_start(&team, 1);
	put_chain(team.store[SCHEDULER], team.space[SCHEDULER], 1, 0, BLOCKS, LENGTH, 0);
	cairn_match *match = match_of(team.store[SCHEDULER], team.space[SCHEDULER], BLOCKS, 60000, &ticket);
	cairn_match_get_info(match, &first);
	cairn_key key = key_at(1, 7);
	ranks_start(&team, ranks, &ticket, RANKS / 2);
	for (int i = 0; i < RANKS; i++) {
		if (i == RANKS / 2) {
			assert_int_equal(cairn_drop(team.store[SCHEDULER], team.space[SCHEDULER], &key, 1), 1);
			for (int k = RANKS / 2; k < RANKS; k++)
				ranks[k] = (struct rank){.team = &team,
				                         .number = (uint32_t)k,
				                         .timeout_ms = 20000,
				                         .tokens = ALL,
				                         .match = join(&team, k, &ticket)};
		}
		cairn_match_get_info(ranks[i].match, &info);
		assert_memory_equal(&info, &first, sizeof info);
		ranks[i].tokens = get_status(team.store[i], team.space[i], &key, LENGTH) == CAIRN_OK ? ALL : 7 * 16;
		assert_int_equal(ranks[i].tokens, i < RANKS / 2 ? ALL : 7 * 16);
	}
	ranks_agree(ranks, RANKS);
	for (int i = 0; i < RANKS; i++)
		assert_int_equal(ranks[i].told, 7 * 16);
	ranks_release(&team, ranks, RANKS);
	cairn_match_release(team.store[SCHEDULER], match);
	team_done(&team);
}

/* Until a call is at work with a client's match. */
static void agree_has_begun(struct daemon *daemon)
{
	uint32_t lent = 0;
	for (int64_t until = link_now_ms() + 20000; !lent && link_now_ms() < until; usleep(1000)) {
		pthread_mutex_lock(&daemon->lock);
		for (struct list *node = daemon->clients.next; node != &daemon->clients; node = node->next) {
			struct client *client = LIST_OF(node, struct client, link);
			pthread_mutex_lock(&client->lock);
			for (uint32_t i = 0; i < client->nmatches; i++)
				lent |= client->matches[i].lent;
			pthread_mutex_unlock(&client->lock);
		}
		pthread_mutex_unlock(&daemon->lock);
	}
	assert_int_equal(lent, 1);
}

/* A match that a call waits with is released by another connection of the same client. */
static void test_ranks__survive_when_match_is_released_under_a_call(void **state)
{
	(void)state;
	struct team team;
	struct cairn_ticket ticket;
	struct rank rank;
	team_start(&team, 1);
	put_chain(team.store[SCHEDULER], team.space[SCHEDULER], 1, 0, BLOCKS, LENGTH, 0);
	cairn_match *match = match_of(team.store[SCHEDULER], team.space[SCHEDULER], BLOCKS, 60000, &ticket);
	rank =
		(struct rank){.team = &team, .number = 0, .tokens = ALL, .timeout_ms = 1000, .match = join(&team, 0, &ticket)};
	assert_int_equal(pthread_create(&rank.thread, NULL, rank_agrees, &rank), 0);
	agree_has_begun(&team.served.daemon);
	remote_match_release(team.store[0], rank.match->remote);
	pthread_join(rank.thread, NULL);
	assert_int_equal(rank.told, 0);
	assert_int_equal(cairn_match_agree(team.store[0], rank.match, RANKS, ALL, 100), CAIRN_E_INVAL); /* it is gone */
	cairn_match_release(team.store[0], rank.match);
	cairn_match_release(team.store[SCHEDULER], match);
	(void)stat_of(team.store[SCHEDULER]);
	assert_int_equal(holds(&team), 0);
	team_done(&team);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranks__see_one_answer_when_they_join),
		cmocka_unit_test(test_ranks__are_told_the_same_when_ticket_is_no_good),
		cmocka_unit_test(test_ranks__agree_on_the_least_when_one_has_less),
		cmocka_unit_test(test_ranks__give_up_together_when_one_is_missing),
		cmocka_unit_test(test_ranks__keep_answer_when_others_die),
		cmocka_unit_test(test_ranks__find_out_together_when_block_is_dropped),
		cmocka_unit_test(test_ranks__survive_when_match_is_released_under_a_call),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
