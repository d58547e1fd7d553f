/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger of one device: its authoritative state (segment table, drops, sessions, spaces, quarantine, counters), the
 * log that holds it, and compaction between its two areas. docs/FORMAT.md, "Ledger".
 *
 * Threads: the device's loop (the opening thread while it opens). Memory: tables grow with decisions, bounded by what a
 * snapshot may take in an area; appends allocate nothing.
 * Invariant: a record is applied to the state when it is added, and reported durable when both copies were flushed.
 */
#ifndef CAIRN_TIER_LEDGER_H
#define CAIRN_TIER_LEDGER_H

#include "fmt/ledger.h"
#include "io/io.h"

#define LEDGER_BATCH_PAGES 16u
/* Page flags, bits 8..23: position in its batch and pages of the batch, so that a torn last batch is not taken for a
 * hole. */
#define LEDGER_BATCH(position, count) ((uint32_t)(position) << 8 | (uint32_t)(count) << 16)
#define LEDGER_BATCH_POSITION(flags) ((flags) >> 8 & 0xffu)
#define LEDGER_BATCH_COUNT(flags) ((flags) >> 16 & 0xffu)

struct ledger_segment {
	uint64_t life, salt, start_sequence;
	uint8_t tenant[16];
	uint8_t state; /* enum ledger_segment_state */
};

struct ledger_space {
	uint8_t id[32];
	uint8_t *canon; /* owned */
	uint32_t length;
};

struct ledger_table { /* drops, sessions, quarantine: records in no order */
	struct ledger_record *records;
	uint32_t used, room;
};

struct ledger {
	struct io *io;
	uint8_t device_id[16];
	uint64_t offset;      /* of area A copy 1 */
	uint32_t area_bytes;  /* one copy of one area */
	uint32_t write_version;

	struct ledger_segment *segments;
	uint32_t nsegments;
	struct ledger_table drops, sessions, quarantine;
	struct ledger_space *spaces;
	uint32_t nspaces, spaces_room;
	struct ledger_record mark; /* u.mark is the state */

	uint32_t area;        /* 0: A, 1: B is current */
	uint64_t epoch;
	uint32_t next_index;  /* page of the current area to write next */
	uint64_t sequence;    /* of the last page written */
	uint64_t durable_sequence;

	/* What replay met. */
	uint32_t holes;         /* pages damaged in both copies */
	uint64_t doubt_through; /* births up to this may have lost a drop; 0: none */

	/* Appending: records gather in `gather`, move to `flight` when written. */
	uint8_t *gather, *flight; /* LEDGER_BATCH_PAGES pages each, page-aligned */
	uint32_t gather_pages, gather_used; /* full pages, bytes in the page after them */
	uint32_t flight_pages;
	uint32_t snapshot_next; /* after the batch in flight: a record was kept that no batch holds */
	uint8_t *compact;       /* one area, page-aligned: the snapshot being written */
	void *compact_memory;
};

int ledger_open(struct ledger *ledger, struct io *io, const struct fmt_label *label, uint32_t nsegments,
                uint32_t write_version);
void ledger_done(struct ledger *ledger);
/* A new ledger's first snapshot, written and flushed. */
int ledger_format(struct ledger *ledger);
/* Replays the newest area. 0; IO where nothing can be read. Damage is counted, not an error. `ret_read` bytes read. */
int ledger_replay(struct ledger *ledger, uint64_t *ret_read);

/* Whether a record can be added without the snapshot outgrowing its area. */
int ledger_fits(const struct ledger *ledger, const struct ledger_record *record);
/* Applies a record and gathers it for writing. 0, or FULL: the gather buffer is full (write first) . */
int ledger_add(struct ledger *ledger, const struct ledger_record *record);
/* Applies a record that cannot be written now: the next batch is a snapshot, which has it. 0 or NOMEM. */
int ledger_keep(struct ledger *ledger, const struct ledger_record *record);
int ledger_gathered(const struct ledger *ledger); /* whether records wait to be written */
/* Seals what was gathered into pages (or, when the area is full, a snapshot into the other area) and gives the two
 * writes to make: bytes, length, two offsets. After both and a flush, ledger_written. At most one batch at a time. */
struct ledger_batch {
	const void *bytes;
	uint32_t length;
	uint64_t offset[2];
};
void ledger_seal(struct ledger *ledger, struct ledger_batch *ret_batch);
void ledger_written(struct ledger *ledger);
/* The batch was not written: the next one is a snapshot into the other area, so that no hole is left. */
void ledger_failed(struct ledger *ledger);
/* The same at once, for opening and closing: add what was gathered, write, flush. 0 or -errno. */
int ledger_commit(struct ledger *ledger);

/* Whether a drop was nobody's decision, but keeps what is doubtful on this device from coming back: it names the half
 * of the tenant's digest that segments know, and concerns no other device. */
int ledger_drop_is_doubt(const struct ledger_record *drop);
/* Whether a drop in the table covers a part. Call ledger_index_drops once before many calls. */
void ledger_index_drops(struct ledger *ledger);
int ledger_dropped(const struct ledger *ledger, const uint8_t space[32], const uint8_t tenant[16],
                   const uint8_t key[32], uint64_t birth);
int ledger_quarantined(const struct ledger *ledger, const uint8_t space[32], const uint8_t key[32], uint16_t part,
                       uint64_t birth);
/* Forgets drops and quarantine that no segment can bring back. Counts them into mark.dropped_through. */
void ledger_forget_covered(struct ledger *ledger);

#endif
