/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin endpoint: /metrics, /healthz and /readyz over HTTP, for reading alone.
 *
 * Threads: two of libmicrohttpd's own; admin_open and admin_close from the main one. Memory: an answer at a time, each
 * bounded (text.h).
 * Invariant: nothing that a request says changes anything; an answer comes within a few seconds, whatever hangs.
 */
#ifndef CAIRN_DAEMON_ADMIN_H
#define CAIRN_DAEMON_ADMIN_H

#include "daemon/daemon.h"

#define ADMIN_PLACE "127.0.0.1:7411" /* the default */

struct admin;

/* Serves at "HOST:PORT" (port 0: any; admin_port tells). 0, or -errno: -EADDRINUSE, ... */
int admin_open(struct daemon *daemon, const char *place, struct admin **ret_admin);
void admin_close(struct admin *admin); /* NULL is allowed; waits for answers under way */
unsigned int admin_port(const struct admin *admin);

#endif
