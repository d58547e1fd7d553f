/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger of a device: pages of records. Pure encode and decode; tier/ledger.c keeps the state.
 *
 * Area: pages 0, 1, 2 ... of FMT_PAGE, each written whole, once, to both copies. A page: 96 bytes of head (frame with
 * checksum over the page, device, area epoch, sequence, number of record bytes, flags), then records. An area begins
 * with a snapshot: pages flagged SNAPSHOT, the last of them SNAPSHOT_END too; later pages are decisions.
 * A record: u16 type, u16 length of body, body; types of unknown number are passed over by length (compat), and so is
 * what a body has beyond the fields of this version.
 */
#ifndef CAIRN_FMT_LEDGER_H
#define CAIRN_FMT_LEDGER_H

#include <stddef.h>
#include <stdint.h>

#include "fmt/segment.h"

#define LEDGER_HEAD_BYTES 96u
#define LEDGER_BODY_BYTES (FMT_PAGE - LEDGER_HEAD_BYTES)

enum {
	LEDGER_PAGE_SNAPSHOT = 1u << 0,
	LEDGER_PAGE_SNAPSHOT_END = 1u << 1,
	LEDGER_PAGE_POSITION = 0xff << 8, /* of the page in its batch, from 0, and ... */
	LEDGER_PAGE_COUNT = 0xff << 16,   /* ... pages of the batch: what was written with one flush */
};

struct ledger_page {
	uint32_t version;
	uint32_t flags;
	uint64_t epoch;    /* of the area; the higher area is the newer */
	uint64_t sequence; /* of the page on this device, rises by 1 */
	uint32_t index;    /* of the page in its area */
	uint32_t used;     /* bytes of records */
	uint8_t device_id[16];
};
/* `page` holds records in [LEDGER_HEAD_BYTES, + used); the rest is zeroed. Fills head and checksum. */
void ledger_page_seal(const struct ledger_page *head, uint8_t page[FMT_PAGE]);
/* FMT_OK, FMT_BAD or FMT_NEWER. That device_id is this device's is the caller's to compare. */
int ledger_page_open(const uint8_t page[FMT_PAGE], struct ledger_page *ret_head);

enum ledger_type {
	LEDGER_SEGMENT = 1,  /* state of one segment */
	LEDGER_DROP = 2,
	LEDGER_SESSION = 3,  /* saved */
	LEDGER_FORGET = 4,   /* a session that is gone */
	LEDGER_SPACE = 5,    /* description; long ones are split: LEDGER_SPACE carries offset and total */
	LEDGER_QUARANTINE = 6,
	LEDGER_MARK = 7,     /* counters: births, decisions, clean close, checkpoint's place */
};

enum ledger_segment_state {
	LEDGER_FREE = 0,
	LEDGER_OPEN = 1,
	LEDGER_SEALED = 2,
	LEDGER_CHECKPOINT = 3,
};

enum ledger_scope {
	LEDGER_DROP_KEY = 1,    /* what: key (32), space */
	LEDGER_DROP_SPACE = 2,  /* space */
	LEDGER_DROP_TENANT = 3, /* what: tenant digest in the first 32 bytes */
};

struct ledger_record {
	uint16_t type; /* enum ledger_type, or unknown */
	union {
		struct {
			uint32_t segment;
			uint8_t state;
			uint64_t life, salt;
			uint64_t start_sequence; /* device sequence when this life began */
			uint8_t tenant[16];
		} segment;
		struct {
			uint8_t scope;
			uint64_t decision;   /* store-wide number, of the same counter as births: covers births up to it */
			uint64_t sequence;   /* device sequence at that time: when every segment's life began later it can go */
			uint8_t space[32];
			uint8_t what[32];
		} drop;
		struct {
			uint64_t decision;
			uint8_t id[32];      /* H(tenant, owner, name) */
			uint8_t tenant[32];  /* digest of the tenant's name */
			uint8_t space[32];
			uint8_t manifest[32]; /* key of the manifest part */
			uint64_t epoch, saved_at_s, expires_at_s, bytes;
			uint64_t manifest_birth; /* of the manifest part, 48 bits; 0: any */
			uint8_t pinned;
			uint8_t closed;
		} session;
		struct {
			uint64_t decision;
			uint8_t id[32];
		} forget;
		struct {
			uint8_t id[32];
			uint32_t offset, total; /* of `bytes` in the canonical form */
			const uint8_t *bytes;   /* into the page */
			uint16_t length;
		} space;
		struct {
			uint8_t key[32];
			uint8_t space[32];
			uint16_t part;
			uint64_t birth;
			uint64_t sequence; /* as for drops */
		} quarantine;
		struct {
			uint64_t next_birth;     /* births below were or may have been given */
			uint64_t last_decision;  /* newest decision this device knows */
			uint64_t dropped_through; /* drops up to this decision may have been forgotten */
			uint64_t group_epoch;    /* high half of device sequences of this open */
			uint8_t clean;           /* 1: closed cleanly; everything up to flushed_through is durable */
			uint64_t flushed_through;
			uint32_t checkpoint_segment; /* UINT32_MAX: none */
			uint32_t checkpoint_bytes;
			uint64_t checkpoint_sequence; /* groups after it are not in the checkpoint */
		} mark;
	} u;
};
/* Most bytes of one LEDGER_SPACE record; `total` is at most KEY_CANON_MAX. */
#define LEDGER_SPACE_PIECE_MAX (LEDGER_BODY_BYTES - 4u - 40u)
/* Appends a record to records[used..LEDGER_BODY_BYTES); returns the new used, or 0: no room. */
uint32_t ledger_record_add(const struct ledger_record *record, uint8_t *records, uint32_t used);
/* Reads the record at *at; moves *at on. Returns 1, 0: end, FMT_BAD. Of an unknown type only `type` is set. */
int ledger_record_next(const uint8_t *records, uint32_t used, uint32_t *at, struct ledger_record *ret_record);

#endif
