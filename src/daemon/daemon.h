/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of cairnd: one store, many clients. A client is a process that opened the store over a socket; it has one or
 * more connections, each with a thread of its own here, so that a slow one holds back nobody.
 *
 * Threads: main accepts and waits for signals; one thread a connection. Lock order: daemon's, client's, the
 * store's own.
 * Invariant: what a client holds (leases, matches) is given back when its last connection has ended, however it ended.
 */
#ifndef CAIRN_DAEMON_DAEMON_H
#define CAIRN_DAEMON_DAEMON_H

#include <pthread.h>
#include <stdint.h>

#include "base/list.h"
#include "cairn/cairn.h"
#include "daemon/metrics.h"
#include "daemon/tokens.h"
#include "daemon/traffic.h"
#include "net/link.h"

enum {
	DAEMON_CONNS = 2048,
	DAEMON_CLIENT_CONNS = 1024, /* of one client: it leaves room for others */
	DAEMON_REFUSED = 64, /* beyond them, who are told so; others just find the connection closed */
	DAEMON_STRANGERS = 256,    /* of them, from other servers and without their hello yet */
	DAEMON_STRANGERS_FROM = 64, /* of those, from one address */
	DAEMON_HELLO_MS = 10000,   /* a stranger who has not said hello by then is sent away */
	DAEMON_WRONG_MS = 1000,    /* a wrong token is answered so much later */
	DAEMON_PEER_BYTES = 64,
	DAEMON_LEASES = 65536,  /* of one client */
	DAEMON_MATCHES = 1024,
	DAEMON_SPACES = 4096,
	DAEMON_STAGE_MAX = 256 << 20, /* bytes of one connection's staging memory */
};

struct client {
	struct list link;
	uint8_t id[16];
	struct who who; /* the same for all of its connections */
	uint32_t conns; /* under the daemon's lock */
	pthread_mutex_t lock;
	/* A number given out is index + 1 in its low half and a count in its high half: an old one finds nothing. */
	struct held {
		void *what; /* cairn_lease or cairn_match; NULL: free */
		uint32_t count;
		uint32_t lent; /* 1: a call is at work with it; 2: and it was taken meanwhile */
	} *leases, *matches;
	uint32_t nleases, nmatches;
	cairn_space **spaces; /* by number, 1.. */
	uint32_t nspaces;
	/* Who it is, of its first connection; and what it did. */
	char program[64], address[64];
	uint64_t number, since_s;
	uint32_t pid, uid;
	atomic_ullong requests, failed, read_bytes, written_bytes;
	uint64_t under_way, refused; /* traffic.h; under the daemon's lock */
};

struct daemon {
	cairn *store;
	struct tokens *tokens;   /* NULL: none are taken: who has to have one is refused */
	uint64_t tokens_changes; /* when connections were looked at last; the main thread's */
	uint32_t wrong_ms;       /* 0: DAEMON_WRONG_MS */
	pthread_mutex_t lock;
	pthread_cond_t ended; /* a connection did */
	struct list clients, conns;
	uint64_t client_last; /* the number of the last one that came */
	uint32_t nconns;
	int stopping;
	atomic_int ready; /* serves, and does not end yet */
	struct metrics metrics;
	struct traffic traffic; /* under `lock` */
	uint64_t arriving; /* bytes that are being received straight into the memory tier; atomic */
};

struct conn {
	struct list link;
	struct daemon *daemon;
	struct client *client; /* NULL before its hello; set under the daemon's lock */
	struct link *net;
	int pidfd; /* of the process that connected; -1: not known, and its end is the connection's alone */
	char peer[DAEMON_PEER_BYTES]; /* the other server's address; "": this one */
	int tcp; /* another server's: no memory is shared */
	int refused; /* there are too many: its hello is answered with that */
	struct link_buffer in, out;
	struct wire_request request; /* that is being answered */
	struct batch_work *batch;    /* serve.c: of the batch that is; NULL: none came yet */
	struct bytes_writer reply; /* into `out` */
	int fds[WIRE_FDS_MAX];     /* to go with the reply */
	uint32_t nfds;
	int failed;                /* the reply's result was an error */
	uint64_t *sent;            /* numbers of the extents that this connection has */
	uint32_t nsent, sent_room;
	uint64_t extents_told;     /* memory_generation + 1 of the list that this connection was told last; 0: none */
	uint8_t *stage;            /* the client's, mapped; tcp: our own, for what comes behind frames; NULL: none */
	uint64_t stage_bytes;
	int staged; /* tcp: something of it was written */
	/* traffic.h: of the request that is being answered; and what the buffers keep. */
	uint64_t under_way, kept;
	uint32_t small;
	int refusal; /* of the request's bytes: BUSY or SIZE */
	int later;   /* the next reply says WIRE_LATER */
};

/* conn.c: takes over `net`; starts its thread. 0, or -errno (it is closed). */
int conn_start(struct daemon *daemon, struct link *net);
uint32_t daemon_conns(struct daemon *daemon);
/* Ends the connections of processes that are dead, though a child of theirs may hold the sockets still. For now and
 * then; returns at once. */
void daemon_bury(struct daemon *daemon);
/* Ends the connections whose tokens are no longer good. For now and then; returns at once. */
void daemon_check_tokens(struct daemon *daemon);
/* Ends all connections after what they are at, telling the clients so, and waits until `deadline_ns`, or until `enough`
 * (NULL: never) says so; then they are cut. Returns how many are still there: calls that do not end. */
uint32_t daemon_stop(struct daemon *daemon, uint64_t deadline_ns, int (*enough)(void *arg), void *arg);

/* stop.c: ends connections, writes memory down, closes the store. 0 or an error of closing. */
struct daemon_end {
	int signals;      /* a signalfd: a second signal ends it at once */
	uint32_t seconds; /* it may take */
	void (*closing)(void *arg); /* called when the store is about to be closed; NULL: nobody is to know */
	void *arg;
	int hurried;
};
int daemon_end(struct daemon *daemon, struct daemon_end *end);

/* client.c */
/* One connection more of the client with this id, a new one where it is unknown or somebody else's.
 * ret_conns: how many that makes. */
struct client *client_find(struct daemon *daemon, const uint8_t id[16], const struct who *who, uint32_t *ret_conns);
/* Who is at the other end of the client's first connection. */
void client_name(struct daemon *daemon, struct client *client, const char *program, const struct link *net);
void client_leave(struct daemon *daemon, struct client *client);         /* one less; the last gives everything back */
uint64_t client_hold_lease(struct client *client, cairn_lease *lease);   /* its number; 0: too many */
uint64_t client_hold_match(struct client *client, cairn_match *match);
cairn_lease *client_take_lease(struct client *client, uint64_t number); /* out of the table; NULL: no such number */
cairn_match *client_take_match(struct client *client, uint64_t number); /* NULL also for one that is lent */
/* For one call, during which it stays in the table; NULL: no such number, or it is lent already. Whether it was taken
 * meanwhile: then it is the caller's to release. */
cairn_match *client_lend_match(struct client *client, uint64_t number);
int client_return_match(struct client *client, uint64_t number);
uint32_t client_space_number(struct client *client, cairn_space *space); /* 0: too many */
cairn_space *client_space(struct client *client, uint32_t number);       /* NULL: no such number */

/* may.c: what a client asks for, as it may. For those who act for all tenants nothing is changed. */
#define TENANT_PUBLIC "public"
/* Who says hello: by its token, where one was sent or has to be. NULL; or what the client is told: it is refused. */
const char *may_enter(struct conn *conn, const struct wire_hello *hello, struct who *ret_who);
int may_see_tenant(const struct conn *conn, const char *tenant);
void may_describe(const struct conn *conn, struct cairn_space_desc *desc);  /* the space is its own, or public */
void may_name(const struct conn *conn, struct cairn_session_name *name);    /* the session is its own */
const char *may_list(const struct conn *conn, const char *asked);        /* whose sessions are listed */
int may_see(const struct conn *conn, const cairn_digest *space_id);        /* 0: as if there were no such space */
int may_drop(const struct conn *conn, const cairn_digest *space_id);        /* not only public */
int may_hint(const struct conn *conn, const cairn_space *space, uint32_t hint); /* 0: it says nothing */
void may_stat(const struct conn *conn, struct cairn_stat *stat);
void may_event(const struct conn *conn, struct cairn_event *event);

/* serve.c: answers one request. 0: *ret_result and the body after the text are the reply (`reply` holds the text's
 * place); -1: the connection ends. */
int serve(struct conn *conn, const struct wire_head *head, struct wire_request *request, const int *fds);
/* serve_peer.c */
int serve_presence(struct conn *conn, const struct wire_head *head, const struct wire_request *request);
/* lists.c */
int serve_list(struct conn *conn, const struct wire_head *head, const struct wire_request *request);
int serve_clients(struct conn *conn, const struct wire_head *head);
int serve_snapshot(struct conn *conn, const struct wire_head *head);
/* Sends what `reply` holds. more: another frame follows. 0 or -1. */
int conn_reply(struct conn *conn, const struct wire_head *head, int64_t result, int more);
int conn_reply_bulk(struct conn *conn, const struct wire_head *head, int64_t result, int more, uint64_t bulk_bytes);
/* Begins a reply of at most `bytes` behind its text (NULL: none). 0 or -1. */
int conn_begin(struct conn *conn, const char *text, size_t bytes);

#endif
