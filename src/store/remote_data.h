/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What remote_data.c, remote_fetch.c and remote_travel.c share: a batch that is on its way to a cairnd.
 * Threads: its call's own.
 */
#ifndef CAIRN_STORE_REMOTE_DATA_H
#define CAIRN_STORE_REMOTE_DATA_H

#include "store/remote.h"

#define TRAVEL_CHUNK (256u << 10) /* hashed and sent, or received and hashed, while it is in the cache */

struct data_work {
	struct remote *remote;
	struct remote_link *link;
	struct wire_request request;
	struct remote_reply reply;
	struct wire_result results[WIRE_ITEMS_MAX];
	uint32_t index[WIRE_ITEMS_MAX]; /* of the caller's item */
	int32_t refused[WIRE_ITEMS_MAX]; /* put: why the item can not be sent; it goes as one of no bytes */
	int broken;
	int64_t begun_ms;
};

/* A connection for the batch, and its space's number there. NULL with *ret_error. */
struct data_work *data_begin(cairn *store, struct cairn_space *space, uint32_t type, const struct cairn_call *call,
                             int *ret_error);
void data_end(struct data_work *work);
/* Of a call's time, one deadline for all that it asks. */
uint32_t data_time_left(const struct data_work *work, uint32_t timeout_ms);
int data_wrong(const struct remote *remote); /* IO, with its text: the answer is none */
/* What a batch's reply says: the results of n items are in work->results. 0 or an error, of all of them. */
int data_results(struct data_work *work, uint32_t n);
void data_item(struct cairn_item *item, const struct wire_result *result); /* the results that callers see */
void data_fail(struct cairn_item *items, size_t from, size_t n, int error);
/* Do the item's buffers have room for the part? 0, INVAL or SIZE. */
int data_room(const struct cairn_item *item, const struct wire_result *result);
/* The items that can be asked for; the others get their status. */
uint32_t data_with_room(struct cairn_item *items, size_t from, size_t to, uint32_t *ret_index);
/* remote_travel.c: sends a put's batch with its bytes to another server, and takes the reply. 0 or an error. */
int remote_travel(struct data_work *work, struct cairn_item *items, uint32_t timeout_ms);
/* remote_fetch.c: remote_get from another server */
long remote_fetch(cairn *store, struct cairn_space *space, struct cairn_item *items, size_t n,
                  const struct cairn_call *call);

#endif
