/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire: what a client and a cairnd say to each other, as bytes. docs/WIRE.md is the format; the numbers are here.
 * One frame is a header of 64 bytes, a body, and for a remote client's payload a bulk of bytes behind it.
 *
 * Threads: any; pure. Memory: none; what is taken points into the frame.
 * Invariant: whatever the bytes, a taker stays within them; a body that is too short, too long or out of bounds leaves
 * its reader failed.
 */
#ifndef CAIRN_FMT_WIRE_H
#define CAIRN_FMT_WIRE_H

#include "base/bytes.h"
#include "cairn/cairn.h"

#define WIRE_VERSION 1u
#define WIRE_HEAD_BYTES 64u
#define WIRE_BODY_MAX (16u << 20)
#define WIRE_FDS_MAX 16u     /* file descriptors with one frame */
#define WIRE_ITEMS_MAX 128u  /* of one batch */
#define WIRE_CHAINS_MAX 16u
#define WIRE_TAILS_MAX 1024u
#define WIRE_TEXT_MAX 1024u  /* bytes of a text, its final 0 included */
#define WIRE_STATE_MAX (1u << 20)
#define WIRE_BULK_MAX ((256ull << 20) + WIRE_BODY_MAX) /* behind one frame: a batch, or one part of the largest size */

enum wire_type {
	WIRE_HELLO = 1,
	WIRE_DESCRIBE = 2,
	WIRE_PUT = 3,
	WIRE_GET = 4,
	WIRE_LEASE = 5,
	WIRE_RELEASE = 6, /* one way */
	WIRE_MATCH = 7,
	WIRE_MATCH_RELEASE = 8, /* one way */
	WIRE_HINT = 9,
	WIRE_SAVE = 10,
	WIRE_RESUME = 11,
	WIRE_FORGET = 12,
	WIRE_CLOSE = 13,
	WIRE_PIN = 14,
	WIRE_SESSIONS = 15,
	WIRE_SPACES = 16,
	WIRE_PARTS = 17,
	WIRE_EXPLAIN = 18,
	WIRE_DROP = 19,
	WIRE_STAT = 20,
	WIRE_EVENTS = 21,
	WIRE_SYNC = 22,
	WIRE_STAGE = 23, /* with an fd: the sender's staging memory from here on */
	WIRE_SPACE = 24, /* a space's description, by its id */
	WIRE_FETCH = 25, /* a batch whose bytes come as the reply's bulk */
	WIRE_MATCH_JOIN = 26,
	WIRE_MATCH_AGREE = 27,
	WIRE_TENANTS = 28,
	WIRE_PRESENCE = 29, /* which of these keys' parts the daemon has itself */
	WIRE_CLIENTS = 30,
	WIRE_SNAPSHOT = 31,
	WIRE_TYPES = 32,
	WIRE_ENDING = 0xffff, /* from cairnd alone, in place of a reply: it is ending, and what was asked was not done */
};

enum {
	WIRE_REPLY = 1u << 0,
	WIRE_MORE = 1u << 1, /* another frame of this reply follows */
	WIRE_HERE = 1u << 2, /* request: from the daemon's own tiers alone, its peers are not asked in turn */
	WIRE_LATER = 1u << 3, /* reply: too much is under way; what is busy was not looked at, and may be asked again */
};

struct wire_head {
	uint16_t version, type, flags, nfds;
	uint64_t id;
	int64_t result;       /* reply: a count or a status of cairn.h */
	uint32_t body_bytes;
	uint32_t timeout_ms;  /* request; 0: none */
	uint64_t bulk_bytes;  /* follow the body, not in the checksum: each part has its own */
};

void wire_head_encode(const struct wire_head *head, const void *body, uint8_t ret[WIRE_HEAD_BYTES]);
/* Bounds only. 0, or -1: not a frame, or one of another version (ret_head->version is set). */
int wire_head_decode(const uint8_t bytes[WIRE_HEAD_BYTES], struct wire_head *ret_head);
/* Whether header and body are what was sent. */
int wire_is_whole(const uint8_t head[WIRE_HEAD_BYTES], const void *body, size_t length);

/* ---- pieces of bodies -------------------------------------------------------------------------------------------- */

/* Cut at WIRE_TEXT_MAX - 1 bytes. */
void wire_add_text(struct bytes_writer *w, const char *text);
/* A copy with a final 0; fails where it holds a 0. */
void wire_take_text(struct bytes_reader *r, char ret_text[WIRE_TEXT_MAX]);

/* A part of a batch. Offset and length are of the sender's staging memory, or of the frame's bulk. */
#define WIRE_ITEM_CHECK (1u << 31) /* fetch: it came damaged; look at it before it is sent again */
#define WIRE_ITEM_SOON (1u << 30) /* fetch: it is asked for later; what is in flash may be read already */
struct wire_item {
	cairn_key key, parent;
	uint32_t has_parent, flags;
	uint16_t group, part;
	uint64_t offset, length;
	uint32_t hash_bytes; /* of a put: the engine's hash; not among the item's own 96 bytes, see wire_batch */
	uint8_t hash[CAIRN_HASH_MAX];
};
void wire_add_item(struct bytes_writer *w, const struct wire_item *item);
void wire_take_item(struct bytes_reader *r, struct wire_item *ret_item);

/* What became of it. A lease also has a number, and lies in an extent, at an offset. */
struct wire_result {
	int32_t status;
	uint32_t tier;
	uint64_t bytes, check;
	uint64_t lease, extent, offset;
};
void wire_add_result(struct bytes_writer *w, const struct wire_result *result);
void wire_take_result(struct bytes_reader *r, struct wire_result *ret_result);

struct wire_chain {
	uint32_t group;
	uint64_t nkeys;
	const cairn_key *keys; /* in the frame */
};
void wire_add_chain(struct bytes_writer *w, const struct cairn_chain *chain);
void wire_take_chain(struct bytes_reader *r, struct wire_chain *ret_chain);

/* A session's name: the tenant is that of the connection. */
struct wire_name {
	char tenant[WIRE_TEXT_MAX], owner[WIRE_TEXT_MAX], name[WIRE_TEXT_MAX];
};
void wire_add_name(struct bytes_writer *w, const struct wire_name *name);
void wire_take_name(struct bytes_reader *r, struct wire_name *ret_name);
void wire_name_view(const struct wire_name *name, struct cairn_session_name *ret_view);

/* A struct of cairn.h that holds numbers alone, as it lies in memory (64-bit, little endian), its size first. A shorter
 * one leaves the rest 0; of a longer one the rest is not taken. */
void wire_add_struct(struct bytes_writer *w, const void *bytes, size_t size);
void wire_take_struct(struct bytes_reader *r, void *ret_bytes, size_t size);

/* ---- bodies of requests ------------------------------------------------------------------------------------------ */

struct wire_hello {
	char program[WIRE_TEXT_MAX];
	uint8_t client[16]; /* zeros: a new one; else another connection of that client */
	uint32_t has_token;
	uint8_t token[8], secret[32]; /* fmt/token.h; zeros without one */
};
struct wire_describe {
	double cost_a_s, cost_b_s;
	uint32_t length;
	const uint8_t *canon; /* in the frame */
};
/* Behind the items, where one of them has an engine's hash: those of all. */
struct wire_batch { /* put, get, lease, fetch */
	uint32_t space, durability, background, nitems;
	struct wire_item items[WIRE_ITEMS_MAX];
};
struct wire_match {
	uint32_t space, nchains;
	uint64_t parts;
	struct wire_chain chains[WIRE_CHAINS_MAX];
};
struct wire_join {
	uint32_t space;
	struct cairn_ticket ticket;
};
struct wire_agree {
	uint64_t match, tokens;
	uint32_t ranks;
};
struct wire_hint {
	uint32_t space, hint;
	struct wire_chain chain;
};
struct wire_save {
	uint32_t space, nchains, ntails, pin, durability;
	uint64_t tokens, ttl_s;
	struct wire_name name;
	struct wire_chain chains[WIRE_CHAINS_MAX];
	uint32_t state_bytes;
	const uint8_t *state; /* in the frame */
	struct bytes_reader tails; /* ntails of wire_take_item */
};
struct wire_pin {
	struct wire_name name;
	uint32_t pin;
	uint64_t ttl_s;
};
struct wire_list { /* sessions, parts */
	char tenant[WIRE_TEXT_MAX]; /* "": all that the client may see */
	uint32_t has_space;
	cairn_digest space;
};
struct wire_explain {
	cairn_digest space;
	cairn_key key;
	uint32_t part;
};
enum { WIRE_DROP_KEYS = 0, WIRE_DROP_SPACE = 1, WIRE_DROP_TENANT = 2 };
struct wire_drop {
	uint32_t scope, space;
	cairn_digest id;
	char tenant[WIRE_TEXT_MAX];
	struct wire_chain keys;
};
struct wire_events {
	uint64_t after;
	uint32_t max;
};

#define WIRE_PRESENCE_KEYS 65536u /* of one request */
struct wire_presence {
	cairn_digest space;
	uint64_t parts; /* mask, not 0 */
	uint32_t tails; /* 1: tails count as parts */
	struct wire_chain keys; /* of any groups: its group is 0 */
};

/* A part that a presence reply tells of. */
struct wire_found {
	uint32_t key; /* index in the request */
	uint16_t part;
	uint8_t tier, tail;
	uint32_t length;
	uint64_t check; /* stored check: proves bytes, key, space, part and length */
};
/* The reply's body behind its text. The parts are in order of their keys. */
struct wire_present {
	double wait_s;      /* until the daemon's flash gets to what would be asked now */
	double flash_bytes_s; /* what it reads a second; 0: not measured */
	uint32_t nfound;
	struct bytes_reader found; /* nfound of wire_take_found */
};
#define WIRE_FOUND_BYTES 20u
void wire_add_found(struct bytes_writer *w, const struct wire_found *found);
void wire_take_found(struct bytes_reader *r, struct wire_found *ret_found);
void wire_add_present(struct bytes_writer *w, double wait_s, double flash_bytes_s, uint32_t nfound);
/* Takes the rest of the body, and looks at all that is in it: parts of `nkeys` keys, memory or flash, lengths that a
 * part may have. Else the reader is failed. */
void wire_take_present(struct bytes_reader *r, uint32_t nkeys, struct wire_present *ret_present);

/* Any request, taken from its body. */
struct wire_request {
	uint32_t type;
	union {
		struct wire_hello hello;
		struct wire_describe describe;
		struct wire_batch batch;
		struct {
			uint32_t n;
			const uint8_t *numbers; /* u64 each, in the frame: leases or matches */
		} release;
		struct wire_match match;
		struct wire_join join;
		struct wire_agree agree;
		struct wire_hint hint;
		struct wire_save save;
		struct wire_name name; /* resume, forget, close */
		struct wire_pin pin;
		struct wire_list list;
		struct wire_explain explain;
		struct wire_drop drop;
		struct wire_events events;
		struct wire_presence presence;
		uint64_t stage_bytes;
		cairn_digest space; /* WIRE_SPACE */
	} u;
};
void wire_request_encode(const struct wire_request *request, struct bytes_writer *w);
/* 0, or -1: the body is not one of this type. */
int wire_request_decode(uint32_t type, const void *body, size_t length, struct wire_request *ret_request);

#endif
