/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of puts from another server. See arrive.c. */
#ifndef CAIRN_DAEMON_ARRIVE_H
#define CAIRN_DAEMON_ARRIVE_H

#include "daemon/daemon.h"
#include "store/store.h"

struct arrival {
	struct store_source source; /* for store_put_from */
	struct conn *conn;
	const struct wire_item *items;
	const struct cairn_item *batch; /* the same as the store sees them */
	uint32_t nitems, next;          /* next: the first that has not been received */
	int64_t deadline_ms;            /* of the whole payload */
	uint64_t counted;               /* bytes that count as being received into the tier */
	int broken;                     /* the connection is of no use any more */
	enum arrived {
		ARRIVED_NOT,
		ARRIVED_AWAY,
		ARRIVED_STAGED,
		ARRIVED_WRONG
	} state[WIRE_ITEMS_MAX];
	uint64_t check[WIRE_ITEMS_MAX];
};

/* Receives a whole payload into the connection's own memory. 0 or -1. */
int arrive_whole(struct conn *conn, uint64_t bytes);
/* The request has been answered: what was written of that memory goes. */
void arrive_end(struct conn *conn);
/* Begins to receive what comes behind a put's frame. 0, or -1: the connection ends. */
int arrival_begin(struct conn *conn, struct arrival *arrival, const struct wire_batch *batch,
                  const struct cairn_item *items, uint64_t bulk_bytes);
/* Whether the tails that a save brought are what was sent: a checksum for each lies behind them. 0, INVAL or IO. */
int arrive_tails_check(const struct conn *conn, const struct wire_item *items, uint32_t nitems, uint64_t bulk_bytes);
/* Receives the rest. 0, or -1: the connection ends. */
int arrival_end(struct arrival *arrival);

#endif
