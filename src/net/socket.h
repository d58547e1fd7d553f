/* SPDX-License-Identifier: Apache-2.0 */
/* What transports over sockets have in common: connecting, waiting, and what an errno means. Threads: any. */
#ifndef CAIRN_NET_SOCKET_H
#define CAIRN_NET_SOCKET_H

#include "net/link.h"

/* The first address of the host that works; tuned: small frames leave at once, a dead peer is noticed. 0 or -errno. */
int socket_connect_tcp(const struct link_place *place, int64_t deadline_ms, int *ret_fd);
int socket_listen_tcp(const struct link_place *place, int *ret_fd);
int socket_accept_tcp(int listener); /* the descriptor or -errno */
/* Waits until the socket can be read or written (poll's words). */
int socket_wait(int fd, short what, int64_t deadline_ms);
/* The same until more of a payload is there, of which `left` bytes are still to come for certain: to be woken for each
 * packet costs more than to take it. */
int socket_wait_payload(int fd, size_t left, int64_t deadline_ms);
/* After a transfer that failed at once, by errno: 0 when it may be tried again, or -errno. */
int socket_retry(int fd, short what, int64_t deadline_ms);
void socket_stop(int fd, enum link_stop how);

#endif
