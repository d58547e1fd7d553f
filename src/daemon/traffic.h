/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is under way: bytes of requests and replies that cairnd has in hand for its clients, over all connections. It
 * is bounded, and each client's part of it is, so that memory holds however many connections send at once. What is over
 * it is answered "busy" before anything of it is kept; what is small always goes through, and does not count.
 *
 * Threads: any; the daemon's lock guards the sums, a connection's own figures are its thread's.
 * Invariant: what a connection entered is left when its request has been answered, but for what its buffers keep; all
 * of it when the connection ends.
 */
#ifndef CAIRN_DAEMON_TRAFFIC_H
#define CAIRN_DAEMON_TRAFFIC_H

#include <stdint.h>

struct client;
struct conn;
struct daemon;

enum {
	TRAFFIC_SMALL = 64 << 10,   /* bytes of one request that do not count */
	TRAFFIC_STRANGER = 8 << 10, /* body of one that has not said hello */
	TRAFFIC_WAITING_MS = 2000,  /* for so long room is kept for one that was refused */
};

struct traffic {
	uint64_t max;        /* bytes under way; 0: traffic_default of the store's memory, set when it is first asked for */
	uint64_t used, kept; /* kept: by buffers between requests, and part of `used` */
	uint64_t most;       /* that `used` has been */
	/* Who was refused, and did not find another waiting: others leave it the room, or a large one would never come. */
	struct {
		const struct client *client;
		uint64_t bytes;
		int64_t until_ms;
	} waiting;
	uint64_t refused;
};

/* Of a store with so much memory: half of it, at most 128 MiB, or a sixteenth where that is more. */
uint64_t traffic_default(uint64_t memory_bytes);
/* A new bound; what is under way stays. */
void traffic_set(struct daemon *daemon, uint64_t max);
/* So many bytes more for the request that the connection is at. 0; or BUSY (not now), SIZE (never), with its text. */
int traffic_enter(struct conn *conn, uint64_t bytes);
/* The same without asking, for an answer to what has been done: others wait for it. */
void traffic_add(struct conn *conn, uint64_t bytes);
/* The request has been answered; the buffers may keep what is left over (see traffic.c). */
void traffic_end(struct conn *conn);
/* The connection has ended. */
void traffic_leave(struct conn *conn);
/* A client is about to be freed. The daemon's lock is held. */
void traffic_forget(struct daemon *daemon, const struct client *client);
struct traffic_stat {
	uint64_t max, used, refused;
};
void traffic_stat(struct daemon *daemon, struct traffic_stat *ret_stat);

#endif
