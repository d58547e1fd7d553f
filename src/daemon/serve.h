/* SPDX-License-Identifier: Apache-2.0 */
/* What the requests of serve.c and fetch.c share. See daemon.h. */
#ifndef CAIRN_DAEMON_SERVE_H
#define CAIRN_DAEMON_SERVE_H

#include "daemon/daemon.h"
#include "store/store.h"

struct batch_work {
	struct cairn_item items[WIRE_ITEMS_MAX];
	struct cairn_buf bufs[WIRE_ITEMS_MAX];
	struct wire_result results[WIRE_ITEMS_MAX];
};

struct batch_work *batch_work(struct conn *conn); /* the connection's own; NULL: no memory */
/* A reply that is a result and, for a failure, its text. 0 or -1. */
int reply_plain(struct conn *conn, const struct wire_head *head, int64_t result);
cairn_space *space_of(struct conn *conn, uint32_t number); /* NULL, with a text: it is not one of the client's */
/* The items of a batch; stage: over the connection's staging memory. 0 or INVAL. */
int batch_items(struct conn *conn, const struct wire_batch *batch, int stage, struct batch_work *work);
void result_of(const struct cairn_item *item, struct wire_result *to);
struct store_call call_of(const struct conn *conn, const struct wire_head *head, const struct wire_batch *batch);
/* What the client has read by a batch, or written. */
void count_moved(struct conn *conn, const struct wire_batch *batch, uint32_t type, const struct batch_work *work);

/* fetch.c */
int serve_fetch(struct conn *conn, const struct wire_head *head, const struct wire_request *request);

#endif
