/* SPDX-License-Identifier: Apache-2.0 */
/* What a store writes down before it ends. Threads: the one that ends it. */
#ifndef CAIRN_STORE_LEAVE_H
#define CAIRN_STORE_LEAVE_H

#include "store/store.h"

struct leave_limit {
	uint64_t deadline_ns;     /* of the store's clock; what is on its way then still goes */
	int (*enough)(void *arg); /* asked in between, under the store's lock: whether to stop; NULL: never */
	void *arg;
};
struct leave_report {
	uint64_t parts, bytes, left; /* written (or there already); parts for which there was no time */
};
/* Writes what is in memory alone to flash, best first. Nobody else calls the store any more; cairn_close follows. 0, or
 * an error of the devices. */
int store_leave(cairn *store, const struct leave_limit *limit, struct leave_report *ret_report);

#endif
