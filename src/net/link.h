/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames between processes, over whatever carries them: a transport is one struct of functions (link_ops), which moves
 * bytes in order; what is a frame, and what a place means, is the same for all.
 *
 * Threads: a link belongs to one at a time, but for link_stop, which any may call while the link is open. Memory: a
 * buffer grows to the largest body it took, at most WIRE_BODY_MAX.
 * Errors are -errno: -ETIMEDOUT (not there in time), -ECONNRESET (the peer is gone), -EPROTO (what came is no frame).
 * After any error but a timeout before the first byte the link is of no use.
 */
#ifndef CAIRN_NET_LINK_H
#define CAIRN_NET_LINK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "fmt/wire.h"

/* A frame that began comes to its end in so long (30 s), or its sender is given up. Tests shorten it. */
extern _Atomic int link_frame_ms;
#define LINK_FRAME_MS link_frame_ms
#define LINK_DEAD_MS 10000  /* a peer that says nothing more is noticed in so long, also when nothing is sent */
#define LINK_FOREVER (-1)
#define LINK_PATH_MAX 1024u /* of a place, and of a socket file: also where that is longer than an address may be */
#define LINK_PORT "7410"    /* where a place names none */

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* unix:PATH, tcp://HOST:PORT, tcp+plain://HOST:PORT, ucx+plain://HOST:PORT; HOST is a name, an address, or an IPv6
 * address in brackets. */
struct link_place {
	const struct link_ops *ops;
	char text[LINK_PATH_MAX]; /* as given */
	char path[LINK_PATH_MAX]; /* unix */
	char host[256], port[8];  /* others */
};
/* 0, or INVAL: its text says what was expected. */
int link_place_take(const char *text, struct link_place *ret_place);
/* Whether the text begins as a place of a cairnd does: anything else is a directory. */
int link_place_is(const char *text);

/* ---- links ------------------------------------------------------------------------------------------------------- */

struct link {
	const struct link_ops *ops;
	int64_t until_ms; /* of link_now_ms: whatever is done on it ends by then; 0: there is no such time */
};

struct link_listener {
	const struct link_ops *ops;
	int fd; /* readable when somebody connects */
};

/* By what a client knows a server, where a transport asks: the pin of its key (tls.h); NULL: its certificate, by the
 * system's authorities and the host's name. */
struct link_trust {
	const uint8_t *pin;
};
/* Connects. trust NULL: without a pin. 0, or NOENT, ACCESS, ... with a text that says what to do. */
int link_connect(const struct link_place *place, const struct link_trust *trust, int timeout_ms,
                 struct link **ret_link);
void link_close(struct link *link);
/* Ends a link under whoever uses it: nothing more is received, nothing more is sent, or both. */
enum link_stop { LINK_STOP_READ, LINK_STOP_WRITE, LINK_STOP_ALL };
void link_stop(struct link *link, enum link_stop how);
/* Whether nothing has come and the peer is there: so is a link that waits for its next request. */
int link_is_idle(struct link *link);
/* File descriptors come with frames: both ends are on one server, and share memory. */
int link_shares(const struct link *link);
/* What is said stays between the two, and the client knows whom it talks to. */
int link_is_private(const struct link *link);
/* The socket beneath, to ask who the peer is; -1: there is none. */
int link_fd(const struct link *link);
/* Waits until something comes, or the end. 0 or -errno. */
int link_wait(struct link *link, int timeout_ms);

struct link_serving {
	uint32_t mode;                  /* of a socket file; it is made in place of one that nobody listens on */
	const char *certificate, *key;  /* files in PEM, where the transport has any; key NULL: in the same file */
};
/* Listens. 0, or a CAIRN_E_* with its text (OWNED: somebody listens there). */
int link_listen(const struct link_place *place, const struct link_serving *serving,
                struct link_listener **ret_listener);
/* Takes who has connected; waits for nobody. 0 or -errno. */
int link_accept(struct link_listener *listener, struct link **ret_link);
/* Of an accepted one, in the thread that will use it: what the two say to each other before the first frame. */
int link_greet(struct link *link, int timeout_ms); /* with a text */
/* Keys and certificates as they are now, for those who connect from now on. 0, or an error with its text: nothing has
 * changed. */
int link_listener_renew(struct link_listener *listener, const struct link_serving *serving);
void link_listener_close(struct link_listener *listener);

/* ---- frames ------------------------------------------------------------------------------------------------------ */

struct link_buffer {
	uint8_t *bytes;
	size_t room;
};
int link_buffer_fit(struct link_buffer *buffer, size_t bytes); /* 0 or -ENOMEM; what was in it is kept */
void link_buffer_done(struct link_buffer *buffer);

/* Sends a frame, with file descriptors where there are any (only where link_shares). */
int link_send(struct link *link, const struct wire_head *head, const void *body, const int *fds, uint32_t nfds);
/* Receives one. Waits timeout_ms for its first byte. The descriptors that came are the caller's: ret_head->nfds of them
 * in ret_fds (room for WIRE_FDS_MAX). */
int link_receive(struct link *link, int timeout_ms, struct wire_head *ret_head, struct link_buffer *body,
                 int ret_fds[WIRE_FDS_MAX]);
/* The same; `may` is asked before there is memory for the body. What it returns, -errno, is the result, if it is not 0:
 * then the body has not been received, nor are there descriptors. */
int link_receive_if(struct link *link, int timeout_ms, struct wire_head *ret_head, struct link_buffer *body,
                    int ret_fds[WIRE_FDS_MAX], int (*may)(void *arg, const struct wire_head *head), void *arg);
/* Bytes that nobody wants, in the time of a frame. */
int link_skip(struct link *link, uint64_t length);
/* Bytes behind a frame, as its header says; straight from and to where they lie. 0 or -errno. */
int link_send_bytes(struct link *link, const void *bytes, size_t length);
int link_send_parts(struct link *link, struct iovec *parts, size_t nparts); /* parts is changed */
int link_receive_bytes(struct link *link, void *bytes, size_t length);
int link_receive_by(struct link *link, void *bytes, size_t length, int64_t deadline_ms); /* of link_now_ms */

/* ---- transports (socket.c, tls.c, ucx.c) ------------------------------------------------------------------------- */

/* Deadlines are of link_now_ms; below 0: none. Functions return 0 or -errno. Who can say more of what failed than an
 * errno does writes it to `why`, which begins empty. */
#define LINK_WHY 256u
struct link_ops {
	const char *scheme; /* how its places begin */
	int shares;         /* see link_shares */
	int hosts;          /* its places name a host and a port; else a path */
	int is_private;     /* see link_is_private */
	int (*connect)(const struct link_place *place, const struct link_trust *trust, int64_t deadline_ms,
	               struct link **ret_link, char why[LINK_WHY]);
	int (*listen)(const struct link_place *place, const struct link_serving *serving,
	              struct link_listener **ret_listener, char why[LINK_WHY]);
	int (*accept)(struct link_listener *listener, struct link **ret_link);
	int (*greet)(struct link *link, int64_t deadline_ms, char why[LINK_WHY]); /* NULL: nothing to say */
	/* Sends all of `parts`, which it may change; descriptors come with the first byte. */
	int (*send)(struct link *link, struct iovec *parts, size_t nparts, const int *fds, uint32_t nfds,
	            int64_t deadline_ms);
	/* Receives so many bytes. Descriptors that come with them are added to `fds`, counted in *nfds; fds NULL: none are
	 * wanted. */
	int (*receive)(struct link *link, uint8_t *to, size_t length, int *fds, uint32_t *nfds, int64_t deadline_ms);
	int (*wait)(struct link *link, int64_t deadline_ms); /* until there is something to receive, or the end */
	int (*is_idle)(struct link *link);
	int (*fd)(const struct link *link);
	void (*stop)(struct link *link, enum link_stop how); /* any thread */
	void (*close)(struct link *link);
	/* With a text. NULL: there is nothing to renew. */
	int (*renew)(struct link_listener *listener, const struct link_serving *serving);
	void (*unlisten)(struct link_listener *listener);
};
extern const struct link_ops link_unix, link_tcp, link_tls, link_ucx;

int64_t link_now_ms(void);

#endif
