/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cairnd in the test's own process, and tests of the store that run over one: with CAIRN_TEST_PLACE "unix", "tcp"
 * "tls" or "ucx" every store that a test opens is put behind a cairnd of its own, and what the test gets is its client.
 *
 * Threads: those of daemon.h, and one that accepts; the functions here are called by the test's thread. Memory: freed
 * with the store. For test programs alone; the library reads no variables.
 */
#ifndef CAIRN_TESTS_LIB_SERVING_H
#define CAIRN_TESTS_LIB_SERVING_H

#include "daemon/daemon.h"

struct serving {
	struct daemon daemon;
	char socket[160], place[170];
	char dir[180];   /* tls: with its key and tokens; removed at the end */
	char token[200]; /* tls: the file of an admin's token, for clients */
	struct link_listener *listener;
	int kind;
	pthread_t thread;
	int stopping;
};

/* Serves `own` at a socket file (tcp 0), at a port of 127.0.0.1 (1), there with TLS (2), or over UCX (3); `place` is
 * how a client opens it. 0 or an error. */
int serving_start(struct serving *serving, cairn *own, const char *socket, int tcp);
/* Ends all connections; the store stays open. */
void serving_stop(struct serving *serving);

enum {
	SERVED_NOT = 0,
	SERVED_UNIX,
	SERVED_TCP,
	SERVED_TLS,
	SERVED_UCX
};
int served_kind(void); /* what CAIRN_TEST_PLACE says */

/* Puts a store behind a cairnd, where tests are to run over one; else *ret_store is `own`. `options` are the client's.
 * 0 or an error, and then `own` is closed. */
int served_open(cairn *own, const struct cairn_options *options, cairn **ret_store);
/* The store itself, of what served_open gave: to look inside, when nothing is under way. */
cairn *served_inside(cairn *store);
cairn_space *served_space(cairn *store, const cairn_space *space);
/* Ends the client and its cairnd. The store itself, open still; `store` where there is none in between. */
cairn *served_leave(cairn *store);
/* Closes both; the result is that of the store itself. */
int served_close(cairn *store);

#endif
