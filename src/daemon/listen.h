/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The places where cairnd listens, and the directory's file `daemon` that tells of the first socket.
 * Threads: the main one. Memory: one fixed table.
 */
#ifndef CAIRN_DAEMON_LISTEN_H
#define CAIRN_DAEMON_LISTEN_H

#include <stdint.h>

#include "daemon/conf.h"
#include "net/link.h"

struct listener {
	struct link_place place;
	struct link_listener *link;
};
struct listeners {
	struct listener at[CONF_LISTEN];
	uint32_t n;
};

/* Opens all places of a complete configuration. 0, or -1: ret_fault is one line, and nothing is left open. */
int listeners_open(const struct conf *conf, struct listeners *ret_listeners, char ret_fault[CONF_FAULT_BYTES]);
/* Closes what the new configuration has not, opens what is new, sets the socket files' mode; what is in both goes on.
 * A place that can not be opened is said, and left out. */
void listeners_change(struct listeners *listeners, const struct conf *conf);
void listeners_close(struct listeners *listeners);

/* The file by which those who are given the directory find the socket. 0 or -1. */
int place_tell(const char *dir, const char *path);
void place_forget(const char *dir);

#endif
