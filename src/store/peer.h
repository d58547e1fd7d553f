/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peer tier: other cairnds, asked for what is not here. A match, or a get that finds nothing, asks all of them at
 * once what they have (peer_ask.c); what they said is kept for a while, and a get fetches from the one that should be
 * fastest (peer_fetch.c). What comes lands in this store's memory and becomes a part like one that was put.
 *
 * Threads: each peer has a few workers, started with its first request; only they wait for the network. Whoever calls
 * waits on the store's lock, with a deadline. One more thread (the watch) cuts connections of requests that take too
 * long, so that no worker hangs. All state here is under the store's lock.
 * Memory: tables at open; an ask allocates, and so does what is answered.
 * Invariant: nothing depends on a peer. Each wait for one ends by a deadline of ours; bytes are delivered only after
 * their checksum was verified here; a request that came from a peer is never passed on to another.
 */
#ifndef CAIRN_STORE_PEER_H
#define CAIRN_STORE_PEER_H

#include "fmt/wire.h"
#include "net/link.h"
#include "policy/breaker.h"
#include "policy/rate.h"
#include "store/store.h"

enum {
	PEER_MAX = 16,
	PEER_WORKERS = 4,     /* of each peer; the first answers asks alone, so that bulk never holds them back */
	PEER_FETCHES = 1024,  /* parts on their way, of all peers */
	PEER_BATCH = 32,      /* parts of one request */
	PEER_ASKS = 64,       /* waiting at one peer */
	PEER_HOLDERS = 3,     /* peers remembered for a part */
	PEER_CELLS = 65536,   /* parts remembered: 4 MiB */
	PEER_BUCKETS = 256,
};
#define PEER_BATCH_BYTES (8u << 20)
#define PEER_WAIT_MS 20u
#define PEER_DEAD_NS 1000000000ull     /* an ask that is not answered by then: the peer is ill */
#define PEER_REMEMBER_NS 60000000000ull
#define PEER_FIRST_BYTES_S 0.5e9       /* before a peer was measured */
/* A part may take four times what was expected of it, and this on top, before another peer is tried. */
#define PEER_PATIENCE_NS 1000000000ull
#define PEER_PATIENCE_MAX_NS 30000000000ull

struct peers;

/* Which part; of whose chain. */
struct peer_name {
	const struct cairn_space *space;
	const cairn_key *key;
	uint32_t part;
};

/* "PLACE", or but for unix: "PLACE TOKEN_FILE". 0 or INVAL. ret_token: in the text; NULL: none is given. */
int peer_place_take(const char *text, struct link_place *ret_place, const char **ret_token);
int peers_open(cairn *store, const struct cairn_options *options);
/* Ends the workers; waits for them, which is short: their connections are cut. Before memory goes. */
void peers_stop(cairn *store);
void peers_stat(cairn *store, struct cairn_stat *stat);

/* ---- peer_ask.c: who has what; the store's lock is held, and let go of while waiting ----------------------------- */

/* What a peer said of one part. */
struct peer_part {
	uint32_t length; /* 0: nobody has it */
	uint8_t peer;    /* number + 1 */
	uint8_t tier;
	uint8_t tail;
};

struct peer_ask;
/* Asks all peers that are well which of these parts they have: a mask of parts, the same for all keys; tails: of
 * sessions too. `parents` may be NULL; else the key before each in its chain, or NULL. Waits until all have answered,
 * or budget_ns is over. NULL: nobody to ask, or no memory. */
struct peer_ask *peer_ask(cairn *store, const struct cairn_space *space, const cairn_key *const *keys,
                          const cairn_key *const *parents, size_t nkeys, uint64_t parts, int tails,
                          uint64_t budget_ns);
/* The best of what was answered, by key and part: parts[key * nparts + part], zeroed before. */
void peer_ask_best(cairn *store, const struct peer_ask *ask, uint32_t nparts, struct peer_part *parts);
void peer_ask_drop(struct peer_ask *ask); /* NULL is allowed */
/* Asks for those items that are not here and of which nothing is known. */
void peer_ask_items(cairn *store, const struct cairn_space *space, const struct cairn_item *items, size_t n,
                    const struct store_call *call);
/* A session that is not here, from the peer that saved it last; its space is described here then. Without the lock.
 * 0, or NOENT with a text. */
int peer_resume(cairn *store, const struct cairn_session_name *name, cairn_session **ret_session);
/* Budget of an ask that should save the computing of these tokens behind `have`. */
uint64_t peer_budget_ns(const cairn *store, const struct cairn_space *space, uint64_t have, uint64_t tokens);

/* ---- peer_fetch.c: parts on their way ---------------------------------------------------------------------------- */

/* A part that is not here: joins its fetch if it is on its way, else begins one from the peer that should be fastest.
 * 0: a slot with one ref for the caller; MISS: nobody is known to have it; BUSY: no room now. */
int32_t peer_want(cairn *store, const struct peer_name *name, uint32_t *ret_slot, uint64_t *ret_bytes);
/* Begins to fetch a part that nobody waits for yet, if there is room without evicting what was used since `since`
 * (watch_now); what is waited for goes first. 0: not now. A part that is here, or that nobody has, is passed over. */
int peer_ahead(cairn *store, const struct peer_name *name, uint32_t since);
/* Waits for a slot of peer_want until it is READY or FAILED: 0, or LATE at the deadline. Its peer is given up when it
 * takes too long: the slot is FAILED then, and peer_want knows who is next. */
int peer_await(cairn *store, const struct peer_name *name, uint32_t slot, uint64_t deadline_ns);
/* A reader has it: links it to the block before it in its chain, which may have come after it. */
void peer_link(cairn *store, const struct peer_name *name);

/* ---- peer_here.c: what others are told --------------------------------------------------------------------------- */

/* Which of these parts this store has itself; never by way of its own peers. ret_found: the caller's. The number of
 * them, or NOMEM. */
long store_presence(cairn *store, const struct wire_presence *ask, struct wire_found **ret_found, double *ret_wait_s,
                    double *ret_flash_bytes_s);
/* Of all devices together: seconds until what would be asked now is begun, and bytes a second; 0: not measured. */
void flash_pace(const cairn *store, double *ret_wait_s, double *ret_bytes_s);

/* ---- inside ------------------------------------------------------------------------------------------------------ */

struct peer_holder {
	uint8_t peer; /* number + 1; 0: none */
	uint8_t tier;
};
/* What is known of one part; in sets of 4 by its key. */
struct peer_cell {
	uint8_t prefix[16], parent[16];
	uint64_t check; /* stored check (fmt/segment.h): what comes must be this */
	uint64_t seen_ns;
	uint32_t length;
	uint16_t space;
	uint8_t part, tail;
	struct peer_holder holders[PEER_HOLDERS];
};

enum fetch_state { FETCH_FREE = 0, FETCH_WAITING = 1, FETCH_RUNNING = 2 };
struct peer_fetch {
	struct list link;   /* free, or waiting at its peer */
	struct list bucket; /* by key; not linked: given up, or free */
	const struct cairn_space *space;
	cairn_key key;
	uint64_t check, until_ns;
	uint32_t slot, length;
	uint8_t state, part, peer, tail;
	uint8_t ahead; /* nobody has asked for it yet */
	uint8_t parent[16];
};

struct peer_answer {
	struct list link; /* waiting at its peer */
	struct peer_ask *ask;
	struct wire_found *found; /* while it is taken in */
	cairn_session *session;   /* to who asked */
	uint32_t nfound, turn;
	uint8_t done;
};
struct peer_ask {
	const struct cairn_space *space;
	uint64_t parts;
	int tails;
	uint32_t refs, waiting; /* peers that are to answer yet */
	uint32_t nkeys;
	cairn_key *keys;
	uint8_t (*parents)[16];
	struct wire_name *session; /* what is asked for is a session; else NULL */
	struct peer_answer answers[PEER_MAX];
};

struct peer_worker {
	struct peer *peer;
	pthread_t thread;
	uint32_t number;
	int started, busy, cut;
	uint64_t until_ns; /* of what it is at */
	cairn *client;     /* its own: cut by the watch, under the lock */
};
struct peer {
	cairn *store;
	uint32_t number;
	char *place;
	const char *token_file; /* NULL: as any client's */
	char *text;             /* as it was given */
	struct breaker breaker;
	struct rate rate;       /* parts from there */
	double ask_s;           /* smoothed time to an answer */
	double wait_s, flash_bytes_s; /* its own words: of its flash */
	pthread_cond_t work;
	struct list asks, fetches, ahead;
	uint32_t nasks;         /* waiting, and being asked */
	uint64_t asked_ns;      /* since when the oldest of those is being asked; 0: none is */
	uint64_t answers, failures, late, hits, hit_bytes, damaged;
	struct peer_worker workers[PEER_WORKERS];
};
struct peers {
	cairn *store;
	struct peer peer[PEER_MAX];
	uint32_t n;
	uint64_t wait_ns;
	int stopping;
	pthread_t watch;
	pthread_cond_t watched;
	int watching;
	struct peer_cell *cells;
	struct peer_fetch *fetches;
	struct list fetches_free;
	struct list buckets[PEER_BUCKETS];
};

/* Whether it would be stepped over now. */
int peer_shut(const struct peer *peer);
/* Wakes a worker, or starts one. 0: none could be started, and none runs. */
int peer_wake(struct peer *peer, int for_asks);
/* What a worker does: the lock is held before and after. A turn's end is said to the breaker. */
void peer_ask_run(struct peer_worker *worker, struct peer_answer *answer);
void peer_fetch_run(struct peer_worker *worker);
void peer_fetch_drop(struct peers *peers, struct peer_fetch *fetch);
/* Begins, and ends, what may be cut when it takes longer than until_ns. */
void peer_busy(struct peer_worker *worker, uint64_t until_ns);
void peer_idle(struct peer_worker *worker);
/* The cell of a part; NULL: nothing is known, or it is too old. */
struct peer_cell *peer_cell(cairn *store, const struct peer_name *name);
/* That peer has it not, after all. */
void peer_cell_not(struct peer_cell *cell, uint32_t peer);
/* What was dropped here, as far as that is remembered, does not come back by way of others. */
int peer_dropped(cairn *store, const struct peer_name *name);
/* Seconds until a part of `length` bytes would be here. */
double peer_seconds(const struct peer *peer, uint32_t tier, uint64_t length);

#endif
