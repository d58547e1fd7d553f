/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames over stream sockets: one sender and one receiver at a time per socket.
 *
 * Threads: a socket belongs to one at a time. Memory: a buffer grows to the largest body it took, at most
 * WIRE_BODY_MAX.
 * Errors are -errno: -ETIMEDOUT (not there in time), -ECONNRESET (the peer is gone), -EPROTO (what came is no frame).
 * After any error but a timeout before the first byte the socket is of no use.
 */
#ifndef CAIRN_NET_LINK_H
#define CAIRN_NET_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "fmt/wire.h"

#define LINK_FRAME_MS 30000 /* a frame that began comes to its end, or its sender is given up */
#define LINK_FOREVER (-1)

struct link_buffer {
	uint8_t *bytes;
	size_t room;
};
int link_buffer_fit(struct link_buffer *buffer, size_t bytes); /* 0 or -ENOMEM; what was in it is kept */
void link_buffer_done(struct link_buffer *buffer);

/* A socket file of up to LINK_PATH_MAX bytes, also where that is longer than an address may be. 0 or -errno; listening,
 * the file is made with `mode`, in place of one that nobody listens on (-EADDRINUSE: somebody does). */
#define LINK_PATH_MAX 1024u
int link_connect(const char *path, int *ret_fd);
int link_listen(const char *path, uint32_t mode, int *ret_fd);

/* A host (name or address) and a port. Small frames leave at once; a peer that says nothing more is noticed in
 * LINK_DEAD_MS, also when nothing is sent. */
#define LINK_DEAD_MS 10000
int link_connect_tcp(const char *host, const char *port, int *ret_fd);
int link_listen_tcp(const char *host, const char *port, int *ret_fd);
int link_tcp_tune(int fd); /* of an accepted one */

/* Bytes behind a frame, as its header says. 0 or -errno. */
int link_send_bytes(int fd, const void *bytes, size_t length);
int link_receive_bytes(int fd, void *bytes, size_t length);

/* Sends a frame, with file descriptors where there are any (unix only). */
int link_send(int fd, const struct wire_head *head, const void *body, const int *fds, uint32_t nfds);
/* Receives one. Waits timeout_ms for its first byte. The descriptors that came are the caller's: ret_head->nfds of them
 * in ret_fds (room for WIRE_FDS_MAX). */
int link_receive(int fd, int timeout_ms, struct wire_head *ret_head, struct link_buffer *body,
                 int ret_fds[WIRE_FDS_MAX]);

#endif
