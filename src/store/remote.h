/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store behind the same API, when a cairnd has it: each public call becomes a request over a socket of its own.
 * On one server payload goes through shared memory: parts are read in place from extents that the daemon hands out
 * read-only, and put from staging memory that it reads. From another server it travels behind the frames.
 *
 * Threads: any; a call takes a connection of its own, so calls wait for nobody. `lock` guards the idle connections and
 * the table of extents. Memory: a connection keeps its buffers and its staging; both grow to the largest batch.
 * Invariant: bytes that are read from an extent are checked in the reader's own copy before they are called good.
 */
#ifndef CAIRN_STORE_REMOTE_H
#define CAIRN_STORE_REMOTE_H

#include "net/link.h"
#include "store/store.h"

struct remote;

/* Connects `store` to the cairnd at a place (net/link.h), with the token in a file (NULL: where it is looked for, see
 * cairn.h). 0, NOENT (nobody listens), ACCESS, INVAL, ... */
int remote_open(cairn *store, const char *place, const char *token_file);
/* The same without a connection, for a peer's client: its requests are to be answered from there alone. */
int remote_open_peer(cairn *store, const char *place, const char *token_file);
/* Any thread: ends the connections that calls are waiting at, which fail then; and for good. */
void remote_cut(struct remote *remote);
void remote_stop(struct remote *remote);
void remote_close(struct remote *remote);
/* The tenant that a description or a session's name means over this connection: NULL is that of the token. ACCESS: the
 * token is another tenant's. */
int remote_tenant(const cairn *store, const char *named, const char **ret_tenant);

int remote_describe(cairn *store, struct cairn_space *space);
long remote_put(cairn *store, struct cairn_space *space, struct cairn_item *items, size_t n,
                const struct cairn_call *call);
long remote_get(cairn *store, struct cairn_space *space, struct cairn_item *items, size_t n,
                const struct cairn_call *call);
/* One lease; *ret_number is what remote_lease_release gives back. */
int remote_lease_take(cairn *store, struct cairn_space *space, struct cairn_item *item, const struct cairn_call *call,
                      struct cairn_lease_info *ret_info, uint64_t *ret_number);
void remote_lease_release(cairn *store, uint64_t number, int fd); /* fd: of its cairn_lease_info */
/* These two fill in what the daemon says of a match: its number, ticket and info. */
int remote_match_take(cairn *store, struct cairn_space *space, const struct cairn_chain *chains, size_t nchains,
                      uint64_t parts, uint32_t timeout_ms, struct cairn_match *match);
int remote_match_join(cairn *store, struct cairn_space *space, const struct cairn_ticket *ticket,
                      struct cairn_match *match);
long remote_match_agree(cairn *store, uint64_t number, uint32_t ranks, uint64_t tokens, uint32_t timeout_ms);
void remote_match_release(cairn *store, uint64_t number);
int remote_hint(cairn *store, struct cairn_space *space, const struct cairn_chain *chain, int hint);

int remote_save(cairn *store, struct cairn_space *space, const struct cairn_save *save);
int remote_resume(cairn *store, const struct cairn_session_name *name, cairn_session **ret_session);
/* WIRE_FORGET or WIRE_CLOSE */
int remote_session_end(cairn *store, uint32_t type, const struct cairn_session_name *name);
int remote_session_pin(cairn *store, const struct cairn_session_name *name, uint32_t pin, uint64_t ttl_s);
long remote_session_list(cairn *store, const char *tenant,
                         int (*each)(void *arg, const struct cairn_session_info *info), void *arg);
int remote_session_space(cairn *store, const cairn_digest *id, struct cairn_space **ret_space);

long remote_list_tenants(cairn *store, int (*each)(void *arg, const struct cairn_tenant_stat *stat), void *arg);
long remote_list_spaces(cairn *store, int (*each)(void *arg, const struct cairn_space_info *info), void *arg);
long remote_list_parts(cairn *store, const cairn_digest *space_id,
                       int (*each)(void *arg, const struct cairn_part_info *info), void *arg);
int remote_explain(cairn *store, const cairn_digest *space_id, const cairn_key *key, uint32_t part,
                   struct cairn_explanation *ret_explanation);
long remote_drop_keys(cairn *store, struct cairn_space *space, const cairn_key *keys, size_t nkeys);
long remote_drop_space(cairn *store, const cairn_digest *space_id);
long remote_drop_tenant(cairn *store, const char *tenant);
int remote_stat(cairn *store, struct cairn_stat *ret_stat);
long remote_list_clients(cairn *store, int (*each)(void *arg, const struct cairn_client_info *info), void *arg);
long remote_snapshot(cairn *store, uint64_t *ret_sequence, uint64_t *ret_life,
                     int (*each)(void *arg, const struct cairn_present *present), void *arg);
long remote_events(cairn *store, uint64_t after, struct cairn_event *events, size_t max);
int remote_sync(cairn *store);

/* ---- inside (remote.c, remote_data.c, remote_session.c) ---------------------------------------------------------- */

struct remote_link {
	struct list link;
	struct list used; /* while a call has it */
	int here;         /* its requests say WIRE_HERE */
	struct list *idle; /* of the remote: where it waits to be used again */
	struct link *net;
	uint64_t life;  /* of the daemon, as the client counts them */
	uint64_t next_id;
	int bounded;    /* net's time is that of the call that has it; else of each request */
	struct link_buffer send, body;
	struct data_work *work; /* of remote_data.c, between calls too; NULL: none yet */
	uint8_t *stage; /* shared with the daemon; NULL: none yet */
	uint64_t stage_bytes;
};

struct remote_extent {
	uint64_t id;
	uint64_t life, known; /* of which daemon, and the generation of its memory when it came */
	uint32_t readers;     /* leases here, and copies under way */
	uint32_t gone;        /* the daemon has given it up: unmapped with its last reader */
	uint8_t *address;
	uint64_t length;
	int fd;
};

#define REMOTE_STREAMS 4 /* connections of one large get, at most */

struct remote {
	cairn *store;
	struct link_place place;
	int tcp; /* another server: no memory is shared, payload travels */
	char *token_file;         /* NULL: where it is looked for */
	/* Who we are, as the first hello was told: all tenants (of an admin's token, or where nobody is asked), or one. */
	uint32_t told, all;
	char tenant[WIRE_TEXT_MAX];
	pthread_mutex_t hello_lock; /* one at a time says who we are; before `lock` */
	pthread_mutex_t lock;
	struct list idle, idle_bulk; /* payload travels over connections of its own, so that small calls have warm ones */
	struct remote_gauge {
		double gb_s[REMOTE_STREAMS]; /* of large gets by so many connections + 1; 0: not known */
		uint32_t calls;
	} gauge;
	uint32_t piece_bytes;     /* of a put, at a time: what the daemon had room for lately; 0: all. Atomic */
	int here;                 /* a peer's: see WIRE_HERE */
	pthread_mutex_t cut_lock; /* guards what follows; nothing is locked or waited for under it */
	struct list used;
	int stopped;
	uint8_t client[16];
	int ending;    /* it said that it ends; until another one answers. Atomic */
	int guessed;   /* it did not say so: a hello was cut. Atomic */
	uint64_t life; /* changes when the daemon is another one: numbers of spaces begin anew */
	struct remote_extent *extents;
	uint32_t nextents, extents_room;
	uint64_t generation, extents_life; /* of the newest list of extents that came */
	/* Of a directory that is shared: how a cairnd is started where it was killed. NULL: that is somebody else's. */
	struct autostart *start;
	int64_t missed_ms, started_ms; /* since when nobody is there, and when one was started last; 0: not. Atomic */
};

#define REMOTE_START_MS 60000       /* a store of many devices, touched memory: it takes its time to open */
#define REMOTE_START_AGAIN_MS 2000  /* after so long one more is started: the last may have been ending */
#define REMOTE_START_ENDED_MS 10000 /* whoever ends one may be about to start the next, and has so long */

struct remote_reply {
	struct wire_head head;
	struct bytes_reader body; /* behind the text; in the connection's buffer */
	char text[WIRE_TEXT_MAX];
	int fds[WIRE_FDS_MAX];
};

/* How long a daemon that does not answer is waited for: beyond a call's own deadline; for calls that can have none and
 * are answered at once; for those that wait for devices. Tests shorten them. */
extern uint32_t remote_grace_ms, remote_quick_ms, remote_slow_ms, remote_later_ms;

/* A connection, idle or new; NULL with the error text. Given back by remote_link_drop: `broken` ones are closed.
 * timeout_ms, where it is not 0: all that is done over it, until it is given back, ends by then (and the grace). */
struct remote_link *remote_link_take(struct remote *remote, uint32_t timeout_ms, int *ret_error);
/* The same for calls that carry payload. */
struct remote_link *remote_link_take_bulk(struct remote *remote, uint32_t timeout_ms, int *ret_error);
void remote_link_drop(struct remote *remote, struct remote_link *link, int broken);
/* After a call of which something failed: whether the daemon is ending or gone and there is time left to ask the next
 * one, after a pause; *ret_left_ms is how much. Without a deadline there is none. */
int remote_again(struct remote *remote, uint64_t begun_ns, uint32_t timeout_ms, uint32_t *ret_left_ms);
/* Sends and waits for the reply's first frame. 0, or an error of the connection: its text is set; give it back
 * broken. */
int remote_call(struct remote *remote, struct remote_link *link, const struct wire_request *request,
                uint32_t timeout_ms, struct remote_reply *ret_reply);
/* The two halves of a call: bulk_bytes follow the request, sent by the caller. remote_send: 0 or -errno.
 * remote_receive is also how the frames behind one that said WIRE_MORE come. */
int remote_send(struct remote_link *link, const struct wire_request *request, uint32_t timeout_ms, uint64_t bulk_bytes);
/* Of a send that failed with -errno: the error to return, IO, with its text. */
int remote_lost(struct remote *remote, struct remote_link *link, int error);
int remote_receive(struct remote *remote, struct remote_link *link, struct remote_reply *ret_reply);
/* The same for an earlier request; replies come in the order of requests. */
int remote_receive_of(struct remote *remote, struct remote_link *link, uint64_t id, struct remote_reply *ret_reply);
/* Whether a reply said that too much is under way there: nothing was done, and it may be asked again. */
int remote_is_later(const struct remote_reply *reply);
/* Waits before the next try, a little longer each time. Whether there is time left for one; until_ms: of link_now_ms,
 * 0: as long as remote_later_ms since the first. */
struct remote_patience {
	int64_t begun_ms, until_ms;
	uint32_t tries;
};
int remote_wait(struct remote_patience *patience);
/* A whole call whose reply is one frame without descriptors. 0: *ret_reply's body is `each`'s to read, in place; the
 * reply's own result is returned, with its text set where it is an error. */
int64_t remote_ask(struct remote *remote, const struct wire_request *request, uint32_t timeout_ms,
                   void (*take)(void *arg, struct remote_reply *reply), void *arg);
/* The daemon's number of a space, described to it anew where it is another one. 0 or an error. */
int remote_space_number(struct remote *remote, struct remote_link *link, struct cairn_space *space,
                        uint32_t *ret_number);
/* An item as a request has it, but for where its bytes lie; and its bytes, copied one buffer behind the other. */
void remote_item_name(const struct cairn_item *item, struct wire_item *to);
void remote_item_copy(uint8_t *to, const struct cairn_item *item);
/* Staging memory of at least so many bytes, known to the daemon. 0 or an error; INVAL never. */
int remote_stage_fit(struct remote *remote, struct remote_link *link, uint64_t bytes);

#endif
