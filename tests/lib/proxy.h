/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Something between a client and its cairnd that does what networks do: passes bytes on late, one at a time, changed,
 * with others among them, or not at all. Each connection has at most one fault, of a kind and at a place (in bytes of
 * one direction) that follow from the seed and the connection's number.
 *
 * Threads: one of its own; the functions here may be called by any. Memory: a few KiB a connection. Descriptors that
 * come with bytes of a socket file are passed on with them.
 */
#ifndef CAIRN_TESTS_LIB_PROXY_H
#define CAIRN_TESTS_LIB_PROXY_H

#include <stdint.h>

enum proxy_fault {
	PROXY_NONE = 0,
	PROXY_DELAY,     /* every piece waits for some milliseconds, from there on */
	PROXY_CUT,       /* both ends are closed there */
	PROXY_HALF_OPEN, /* from there on nothing comes through, either way; nobody is told */
	PROXY_DEAF,      /* the same, one way */
	PROXY_STALL,     /* one way nothing comes through for a while */
	PROXY_TRICKLE,   /* some hundreds of bytes come one at a time */
	PROXY_GARBAGE,   /* some bytes that nobody sent */
	PROXY_FLIP,      /* one bit is another */
	PROXY_FAULTS,
};
const char *proxy_fault_name(enum proxy_fault fault);

struct proxy;
/* Listens at a socket file, or (socket NULL) at a port of 127.0.0.1, and passes on to the same kind of place: a socket
 * file's path, or a port as text. Of a million connections `fault_ppm` get a fault of those in the mask (1 << fault).
 */
struct proxy *proxy_start(const char *socket, const char *to, uint64_t seed, uint32_t fault_ppm, uint32_t mask);
/* As cairn_open takes it. */
const char *proxy_place(const struct proxy *proxy);
/* From now on; 0: no more faults on new connections. */
void proxy_calm(struct proxy *proxy, uint32_t fault_ppm);
/* Faults that struck so far. */
uint64_t proxy_struck(const struct proxy *proxy, enum proxy_fault fault);
uint64_t proxy_connections(const struct proxy *proxy);
/* Ends all connections. */
void proxy_stop(struct proxy *proxy);

#endif
