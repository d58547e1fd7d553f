/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of fsck, shared by its files:
 *   fsck.c     the run: lock, identity, steps, findings     disk.c   a device: reads, its label, finding it again
 *   log.c      a ledger: reading, replay, reconciling       pen.c    a ledger: mending its copies, writing it anew
 *   walk.c     segments: groups, footers, checkpoints       parts.c  which parts are to be served, and their bytes
 *   sessions.c manifests and the blocks they name           mend.c   what `repair` writes into segments
 *
 * Threads: the caller's. Memory: struct fsck owns all.
 * Invariant: nothing is written unless options.repair; a step that writes leaves, wherever it is cut off, a store that
 * opens and that a second repair finishes: footers and indexes first, the ledger that lets go of the old ones last.
 */
#ifndef CAIRN_FSCK_FSCK_IN_H
#define CAIRN_FSCK_FSCK_IN_H

#include "fmt/ident.h"
#include "fmt/ledger.h"
#include "fmt/manifest.h"
#include "fmt/segment.h"
#include "fsck/fsck.h"
#include "io/io.h"

enum {
	DISK_CHUNK = 1 << 20,  /* bytes of one read */
	DISK_UNREADABLE = 0xee, /* fills pages that can not be read: neither blank nor good */
};

/* ---- ledger ------------------------------------------------------------------------------------------------------ */

struct log_segment {
	uint64_t life, salt, start_sequence; /* life 0: no record */
	uint8_t tenant[16];
	uint8_t state; /* enum ledger_segment_state */
};

struct log_space {
	uint8_t id[32];
	uint8_t *canon; /* owned */
	uint32_t length;
};

struct log_table {
	struct ledger_record *records;
	uint32_t used, room;
};

/* What a ledger says. */
struct log {
	struct log_segment *segments;
	uint32_t nsegments;
	struct log_table drops, sessions, quarantine;
	struct log_space *spaces;
	uint32_t nspaces, spaces_room;
	struct ledger_record mark; /* u.mark */

	uint32_t area;      /* that is in use */
	uint32_t extent;    /* its pages, up to the last good one */
	uint64_t epoch;     /* highest of both areas ... */
	uint64_t area_epoch; /* ... and that of the one in use */
	uint64_t sequence;  /* of the last page */
	uint32_t holes;
	uint32_t halves;    /* pages that are in one copy alone */
	uint64_t doubt_through; /* births up to this may have lost a drop; 0: none */
	int empty;          /* no page of it is good */
	int missed;         /* decisions that nobody here knows were made without it: nothing on it may be served now */
	int anew;           /* it has to be written anew */
};

/* ---- parts ------------------------------------------------------------------------------------------------------- */

enum part_state {
	PART_LIVE = 0,
	PART_GOOD = 1,
	PART_DAMAGED = 2,   /* its payload is not what its check says, or can not be read */
	PART_UNFLUSHED = 3, /* the same, and it was never promised */
	PART_DROPPED = 4,   /* or in quarantine */
	PART_DOUBTFUL = 5,
};

/* A part that a footer or an index names. */
struct part {
	uint8_t key[32];
	uint64_t birth, check;
	uint64_t sequence; /* of its group; 0: from a footer, so it was flushed */
	uint32_t space;    /* number in fsck.spaces */
	uint32_t segment, page;
	uint32_t raw_length, stored_length;
	uint16_t part;
	uint8_t codec, flags;
	uint8_t state;     /* enum part_state */
};

/* Pages of a sealed segment in which no good group is, but parts of the footer are: an index to rebuild. */
struct gap {
	uint32_t segment, from, to; /* pages */
	uint64_t before, after;     /* sequences of the groups around it; after 0: none */
	uint64_t flushed_through, ledger_sequence; /* of the group before it */
};

enum seg_footer {
	SEG_FOOTER_NONE = 0,
	SEG_FOOTER_GOOD = 1,
	SEG_FOOTER_BAD = 2,
};

/* What was found in a segment. */
struct seg {
	uint8_t footer;      /* enum seg_footer */
	uint8_t renew;       /* it needs a footer (again) that lists its good parts alone */
	uint32_t used_pages; /* end of its last group, or as the footer says */
	uint32_t entries_page; /* where the footer's entries lie, or are to lie */
	uint64_t first_sequence, last_sequence;
	uint32_t first_part, nparts; /* in disk.parts */
};

/* ---- device ------------------------------------------------------------------------------------------------------ */

struct fsck;

struct disk {
	struct fsck *fsck;
	uint32_t index;
	char path[256];
	const char *name;     /* its last component, for progress */
	struct io *io;        /* NULL: missing, or not ours */
	uint64_t size;        /* bytes of the file */
	int unfinished;       /* it is still to be made: nothing is on it */
	struct fmt_label label;
	uint8_t label_good[2];
	uint32_t segment_pages, entries_max;
	struct log log;
	struct seg *segs;     /* log.nsegments */
	struct part *parts;   /* by segment, then in the order they were found */
	uint32_t nparts, parts_room;
	struct gap *gaps;
	uint32_t ngaps, gaps_room;
	uint64_t flushed_through; /* highest that any group or the ledger knows */
	uint64_t max_sequence, max_birth, max_ledger_sequence; /* that any group names */
};

struct fsck {
	struct fsck_options options;
	struct fsck_report *report;
	const struct io_maker *maker;
	char path[256]; /* of the store */
	int dir_fd, lock_fd;
	struct fmt_ident ident;
	uint8_t ident_good[2];
	int ident_lost;       /* no copy is good: `ident` was made up from the labels */
	struct disk disks[FMT_DEVICES_MAX];
	uint32_t ndisks;
	uint8_t (*spaces)[32]; /* ids of spaces that parts name */
	uint32_t nspaces, spaces_room;
	uint8_t *chunk;       /* DISK_CHUNK, page-aligned */
	/* progress */
	char what[96];
	uint64_t done, all, told_ns;
};

/* The same with another maker of devices (tests that cut off writes). */
int fsck_run_with(const struct fsck_options *options, const struct io_maker *maker, struct fsck_report *ret_report);

/* Tells a finding and counts it. `disk` NULL: it is about the store. */
void fsck_tell(struct fsck *fsck, uint32_t severity, const struct disk *disk, uint64_t offset, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* A step begins: `what` of `disk`; `all` bytes. 0, or CANCELED. */
int fsck_step(struct fsck *fsck, const struct disk *disk, const char *what, uint64_t all);
/* `bytes` more of the step are done. 0, or CANCELED. */
int fsck_advance(struct fsck *fsck, uint64_t bytes);
/* The number of a space; UINT32_MAX: no memory (the error is set). */
uint32_t fsck_space(struct fsck *fsck, const uint8_t id[32]);
int fsck_blank(const uint8_t *bytes, size_t length);
/* Room for one more; 0 or NOMEM with its error set. */
int fsck_grow(void **array, uint32_t used, uint32_t *room, size_t size);

/* ---- disk.c ------------------------------------------------------------------------------------------------------ */

/* Reads; what can not be read is filled with DISK_UNREADABLE, what lies behind the end of the file with zeros. Returns
 * the number of pages that can not be read. Alignment as of io.h. */
uint32_t disk_read(struct disk *disk, void *bytes, uint64_t length, uint64_t offset);
/* 0 or an error with its text set. */
int disk_write(struct disk *disk, const void *bytes, uint64_t length, uint64_t offset);
int disk_sync(struct disk *disk);
/* Opens the file; 0, with disk->io NULL where it is not there (told). ACCESS, NOMEM. */
int disk_open(struct disk *disk);
void disk_close(struct disk *disk);
/* Reads both copies of the label, tells what is wrong; where both are lost finds the geometry again. 0, with disk->io
 * NULL where it can not be used (told). VERSION, NOMEM, CANCELED. */
int disk_label(struct disk *disk);
/* Reads a label, whoever's it is (for a lost identity). 1, or 0: none; VERSION. */
int disk_label_peek(struct disk *disk, struct fmt_label *ret_label);
/* Without ident and label: the device's id from its ledger. 1, or 0: no sign of one. CANCELED, NOMEM. */
int disk_find_id(struct disk *disk, uint8_t ret_id[16]);
/* How many segments the store reads there. */
uint32_t disk_segments(const struct disk *disk);
int disk_label_mend(struct disk *disk);

static inline uint64_t disk_offset(const struct disk *disk, uint32_t segment, uint32_t page)
{
	return disk->label.segments_offset + ((uint64_t)segment * disk->segment_pages + page) * FMT_PAGE;
}
/* Where a page of a ledger's copy lies. */
static inline uint64_t disk_ledger_offset(const struct disk *disk, uint32_t area, uint32_t copy, uint32_t page)
{
	return disk->label.ledger_offset + (uint64_t)(area * 2 + copy) * disk->label.ledger_bytes +
	       (uint64_t)page * FMT_PAGE;
}
static inline uint32_t disk_pages_of(uint32_t bytes)
{
	return (bytes + FMT_PAGE - 1) / FMT_PAGE;
}

/* ---- log.c ------------------------------------------------------------------------------------------------------- */

/* Reads and replays the ledger of disk->label into disk->log; with `tell` counts and tells its damage. 0, NOMEM,
 * CANCELED, VERSION. */
int log_read(struct disk *disk, int tell);
void log_free(struct log *log);
/* What the other devices' ledgers know and one does not, as an open does it. 0, NOMEM. */
int log_reconcile(struct fsck *fsck);
void log_index(struct log *log); /* before many log_dropped */
int log_dropped(const struct log *log, const uint8_t space[32], const uint8_t tenant[16], const uint8_t key[32],
                uint64_t birth);
int log_quarantined(const struct log *log, const uint8_t space[32], const uint8_t key[32], uint16_t part,
                    uint64_t birth);
/* The ledger whose sessions count; NULL: there is none. */
struct log *log_authority(struct fsck *fsck);
struct ledger_record *log_session(struct log *log, const uint8_t id[32]);
void log_remove(struct log_table *table, uint32_t index);

/* ---- pen.c ------------------------------------------------------------------------------------------------------- */

/* Writes pages of the area in use that are bad in one copy from the other. 0 or an error. */
int pen_copies(struct disk *disk);
/* Writes the state as a snapshot of a higher epoch into the other area. 0 or an error. */
int pen_snapshot(struct disk *disk);

/* ---- walk.c ------------------------------------------------------------------------------------------------------ */

/* Whether a group of this life begins segment `segment`, or its footer is good, were segments of `segment_pages`. */
int walk_proves(struct disk *disk, const struct log_segment *life, uint32_t segment, uint32_t segment_pages);
/* Reads all indexes and footers: disk->segs and parts. 0, NOMEM, CANCELED, VERSION. */
int walk_run(struct disk *disk);
/* The entries of a segment, read again: entries[i] is that of disk->parts[segs[segment].first_part + i]; room for
 * nparts. 0; IO: it reads otherwise than before (the text says so), NOMEM. */
int walk_entries(struct disk *disk, uint32_t segment, struct fmt_entry *entries);

/* ---- parts.c ----------------------------------------------------------------------------------------------------- */

/* Judges the parts of a device by its ledger and reads those that are to be served. 0, CANCELED. */
int parts_run(struct disk *disk);
/* A good part's payload into `bytes` (whole pages); 0, or -1: it is not good any more. */
int parts_load(struct disk *disk, const struct part *part, uint8_t *bytes);

/* ---- sessions.c -------------------------------------------------------------------------------------------------- */

/* Reads manifests; on repair takes the sessions out of the ledgers whose manifest is no good. 0, NOMEM, CANCELED. */
int sessions_run(struct fsck *fsck);

/* ---- mend.c ------------------------------------------------------------------------------------------------------ */

/* Indexes, footers, then the ledger. 0 or an error. */
int mend_run(struct disk *disk);

#endif
