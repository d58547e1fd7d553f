/* SPDX-License-Identifier: Apache-2.0 */
/* A cairnd in this process, over a store in a directory of its own. For test_*.c; after cmocka.h. */
#ifndef CAIRN_TESTS_UNIT_SERVED_LIB_H
#define CAIRN_TESTS_UNIT_SERVED_LIB_H

#include <pthread.h>
#include <sys/socket.h>

#include "lib/serving.h"
#include "unit/store_lib.h"

struct served {
	struct place place;
	union {
		struct serving serving;
		struct daemon daemon; /* its first member */
	};
	char socket[160], place_text[170];
	int tcp; /* 0: unix; 1: TCP; 2: with TLS */
};

/* Over place, which is made: also a second time, over what is there. */
static inline void served_start(struct served *served)
{
	cairn *own;
	snprintf(served->socket, sizeof served->socket, "%s/cairn.sock", served->place.path);
	int error = store_open_own(served->place.path, &served->place.options, &own);
	if (error)
		fail_msg("open: %d %s", error, cairn_error_text());
	assert_int_equal(serving_start(&served->serving, own, served->socket, served->tcp), 0);
	snprintf(served->place_text, sizeof served->place_text, "%s", served->serving.place);
}

static inline void served_stop(struct served *served)
{
	cairn *own = served->daemon.store;
	serving_stop(&served->serving);
	verify(own);
	assert_int_equal(cairn_close(own), 0);
}

/* A place with 128 MiB of flash, and a daemon over it; tcp: as in struct served. */
static inline void served_begin(struct served *served, uint64_t memory_bytes, int tcp)
{
	memset(served, 0, sizeof *served);
	place_init(&served->place, 128 * MIB, memory_bytes);
	served->tcp = tcp;
	served_start(served);
}

static inline void served_end(struct served *served)
{
	served_stop(served);
	place_done(&served->place);
}

static inline cairn *served_client(struct served *served)
{
	cairn *store = NULL;
	struct cairn_options options = {.size = sizeof options,
	                                .token_file = served->serving.token[0] ? served->serving.token : NULL};
	int error = store_open_own(served->place_text, &options, &store);
	if (error)
		fail_msg("open %s: %d %s", served->place_text, error, cairn_error_text());
	return store;
}

static inline cairn_lease *served_lease(cairn *store, const cairn_space *space, uint64_t chain, uint64_t index)
{
	struct cairn_item item = {.key = key_at(chain, index)};
	cairn_lease *lease;
	int status = cairn_lease_take(store, space, &item, NULL, &lease);
	if (status)
		fail_msg("lease: %d %s", status, cairn_error_text());
	return lease;
}

/* Waits until the daemon has no more than `n` connections. */
static inline void served_wait(struct served *served, uint32_t n)
{
	pthread_mutex_lock(&served->daemon.lock);
	while (served->daemon.nconns > n)
		pthread_cond_wait(&served->daemon.ended, &served->daemon.lock);
	pthread_mutex_unlock(&served->daemon.lock);
}

#endif
