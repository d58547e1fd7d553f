/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the flash tier, shared by flash.c (life, reads), commit.c (groups, flushes, seals), clean.c (eviction) and
 * recover.c (reopen).
 *
 * Threads: all of it belongs to the loop thread, but the inbox (its mutex) and the published statistics (the same
 * mutex).
 * Memory: everything is allocated at open.
 */
#ifndef CAIRN_TIER_FLASH_IN_H
#define CAIRN_TIER_FLASH_IN_H

#include <pthread.h>

#include "policy/breaker.h"
#include "tier/flash.h"
#include "tier/lane.h"

enum {
	FLASH_GROUPS = 4,            /* in flight */
	FLASH_GROUP_PARTS = 63,      /* one vector is the index */
	FLASH_GROUP_PAGES = 4,       /* of index, at most */
	FLASH_GROUP_BYTES = 16 << 20, /* of payload, unless one part is longer */
	FLASH_OPEN = 8,              /* open segments */
	FLASH_READS = 64,            /* in flight */
	FLASH_READS_BACKGROUND = 32, /* of them */
	/* In flight, unless one part is longer: what waits here is shared out, there not. And many disks serve all that is
	 * in flight at once: with more than they need to be busy, all of it comes late, and at the same time. */
	FLASH_READS_BYTES = 12 << 20,
	FLASH_CARRY = 16,            /* parts carried over at once */
	FLASH_UNFLUSHED_BYTES = 64 << 20,
};
#define FLASH_UNFLUSHED_NS 1000000000ull /* longest that a `none` part stays unflushed */
#define FLASH_ILL_NS 5000000000ull       /* a read that takes longer, beside what its bytes may take, is a bad one */
#define FLASH_ILL_BYTES_NS 250ull        /* a byte in flight: 4 MB a second */
#define FLASH_REFUSE_NS 5000000000ull    /* after repeated failures writes are refused so long */

enum segment_state {
	SEGMENT_FREE = 0,
	SEGMENT_OPENING = 1, /* its new life is on its way into the ledger */
	SEGMENT_OPEN = 2,
	SEGMENT_CLOSING = 3, /* takes no more groups; waits for those in flight, then for its footer */
	SEGMENT_SEALED = 4,
	SEGMENT_CLEANING = 5,
	SEGMENT_CHECKPOINT = 6,
};

struct segment {
	uint8_t state;
	uint8_t backed;     /* has blocks in the file system */
	uint8_t footer;     /* 1: SEALED with a footer on the medium; 0: only its groups tell what is in it */
	uint8_t spared;     /* not a victim until another was freed */
	uint8_t unread;     /* times that a part of it could not be read to be carried over */
	uint32_t readers;
	uint32_t used_pages;
};

struct open_segment {
	uint32_t segment;      /* UINT32_MAX: this place is unused */
	uint8_t tenant[16];
	uint32_t next_page;
	uint32_t inflight;     /* groups written or flushing, not yet durable */
	uint32_t nentries;     /* durable entries, for the footer */
	uint32_t reserved;     /* entries of groups in flight */
	struct fmt_entry *entries;
	uint64_t first_sequence, last_sequence;
	uint64_t used_at;      /* sequence of the last group: the idlest goes first */
	uint64_t ledger_batch; /* OPENING: the ledger batch that holds its new life */
	uint8_t withdrawn;     /* a group of it failed: only a footer tells which are good */
};

enum group_state {
	GROUP_IDLE = 0,
	GROUP_WRITING = 1,
	GROUP_WRITTEN = 2,  /* visible, not flushed */
	GROUP_FLUSHING = 3, /* the flush in flight covers it */
};

struct group {
	uint8_t state;
	uint8_t failed;       /* withdraw it when its write comes back */
	uint32_t open;        /* index of its open segment */
	struct fmt_group head;
	struct fmt_entry entries[FLASH_GROUP_PARTS];
	struct tier_req *reqs[FLASH_GROUP_PARTS]; /* NULL once done */
	uint32_t wanted;      /* parts still wanted after the write */
	uint8_t unwanted[FLASH_GROUP_PARTS];
	uint64_t ticket_low, ticket_high;
	uint64_t bytes;
	uint64_t started_ns;
	uint8_t *index;       /* FLASH_GROUP_PAGES pages */
	struct io_req io;
	struct flash *flash;
};

struct read {
	struct io_req io;
	struct tier_req *req;
	struct flash *flash;
	uint32_t segment;
	uint64_t started_ns;
	uint8_t again; /* read a second time after a failed check */
	uint8_t bad;   /* the breaker was told that it takes too long */
	uint32_t turn; /* of the breaker */
	uint64_t ill_ns; /* when it takes too long */
	struct list link;
};

enum ledger_flight {
	LEDGER_IDLE = 0,
	LEDGER_WRITING = 1,
	LEDGER_WRITTEN = 2,
	LEDGER_FLUSHING = 3,
};

enum seal_state {
	SEAL_IDLE = 0,
	SEAL_WRITING = 1,
	SEAL_WRITTEN = 2,
	SEAL_FLUSHING = 3,
};

struct carry {
	struct tier_req req;
	uint32_t old_page;
	uint8_t must;  /* KEEP: the victim may not be freed without it */
	uint8_t state; /* 0 unused, 1 on its way */
};

/* A part in a segment without a footer, as its group's index told. */
struct loose {
	struct fmt_entry entry;
	uint32_t segment;
	uint64_t sequence; /* of its group */
	uint32_t index_page, index_pages;
};

struct flash {
	/* set at open */
	struct io *io;
	const struct clock *clock;
	const struct tier_host *host;
	char path[256];
	uint32_t device;
	uint32_t readonly;
	uint32_t unlabelled;       /* just made: flash_start writes the label, when the store's identity names the device */
	struct fmt_label label;
	uint32_t segment_pages;
	uint32_t nsegments;        /* that the label's ledger can hold and the budget, or what is there, asks for */
	uint32_t budget_segments;
	uint64_t budget_bytes, free_floor_bytes;
	uint32_t entries_max;      /* of one segment */
	uint32_t part_max;
	uint32_t write_version;
	struct ledger ledger;

	/* the loop's */
	struct segment *segments;
	uint32_t backed, free_backed, sealed; /* counts over segments */
	uint32_t grow_room;        /* segments that budget and file system still allow; refreshed each 100 ms */
	struct open_segment open[FLASH_OPEN];
	struct group groups[FLASH_GROUPS];
	struct read *reads;
	struct list reads_free;    /* struct read */
	struct lane reads_waiting, reads_background, writes, writes_background;
	struct list carried;       /* struct tier_req: writes that go before all others */
	uint32_t weights[SHARE_FLOWS]; /* relaxed: any thread may change them */
	struct breaker breaker;    /* of reads */
	uint32_t reading, reading_background; /* numbers in flight */
	uint64_t reading_bytes, ill_next_ns;
	int shut, hung;            /* as the host was told */
	struct list syncs;
	struct list decides, gathered, deciding; /* to be added to the ledger, added, in the batch in flight */
	uint64_t sequence;         /* of the last group */
	uint64_t flushed_through;
	uint64_t unflushed_bytes, unflushed_since_ns;
	uint32_t flush_flight;     /* 1: a flush is in flight */
	struct io_req flush;
	uint64_t flush_ticket;
	uint32_t ledger_state;
	uint32_t ledger_writes;    /* of the two, still in flight */
	uint64_t ledger_batch;     /* number of the batch that is gathering */
	int ledger_error;
	struct io_req ledger_io[2];
	uint32_t seal_state, seal_open, seal_writes; /* one footer at a time */
	int seal_error;
	uint64_t seal_again_ns;    /* a footer that must be written failed: not before */
	struct io_req seal_io[2];
	uint8_t *footer;           /* entry pages, then the trailer */
	uint32_t footer_pages_max;
	/* A write or a flush failed: no new groups until the segments it touched have their footers. The groups that failed
	 * lie below the flushed_through of every later one, and must be known by something else to be no good. */
	uint32_t healing;
	uint32_t failures;         /* writes or flushes failed in a row */
	uint64_t refuse_until_ns;
	uint64_t grow_after_ns;    /* the file system was full: do not try to grow before */
	uint64_t floor_check_ns;
	uint32_t closing;
	int last_error;

	/* cleaning */
	uint32_t victim;           /* UINT32_MAX: none */
	uint32_t victim_entries, victim_next;
	struct fmt_entry *victim_list; /* entries_max */
	uint8_t *bounce;
	uint32_t bounce_bytes;
	struct carry carry[FLASH_CARRY];
	uint32_t carrying;
	struct evict_budget carry_budget;
	uint32_t victim_punch;     /* give its blocks back instead of using it again */
	uint32_t victim_kept;      /* some of it had to be carried over */
	uint32_t kept_rounds;      /* victims like that, one after the other, since anything new was written */
	uint32_t nothing_to_clean; /* the last search found no victim */
	/* For whom room is made. `over`: it is at its quota, and gives up a segment of its own. */
	uint8_t room_for[16];
	uint32_t room_wanted, over;
	uint8_t over_tenant[16];   /* whose search among its own found nothing, not long ago */
	uint64_t over_until_ns;
	uint32_t announce;         /* owners of segments are told to the host */
	uint64_t search_again_ns;
	uint32_t *candidates;      /* nsegments: scratch of the search */
	uint32_t bounce_used;

	/* what reopen gathered from segments that were being written, until flash_recover */
	struct loose *loose;
	uint32_t nloose, loose_room;
	struct flash_recovery recovery;

	/* inbox and statistics: any thread, under the mutex */
	pthread_mutex_t lock;
	struct list inbox;
	uint64_t next_ticket;
	uint64_t inbox_count;
	struct cairn_device_stat stat;
};

static inline uint64_t flash_offset(const struct flash *flash, uint32_t segment, uint32_t page)
{
	return flash->label.segments_offset + ((uint64_t)segment * flash->segment_pages + page) * FMT_PAGE;
}
static inline uint32_t flash_page(const struct flash *flash, uint32_t segment, uint32_t page)
{
	return segment * flash->segment_pages + page;
}
static inline uint32_t flash_pages_of(uint32_t bytes)
{
	return (bytes + FMT_PAGE - 1) / FMT_PAGE;
}
static inline uint64_t flash_now(const struct flash *flash)
{
	return clock_mono_ns(flash->clock);
}

/* flash.c */
void flash_finish(struct tier_req *req, int32_t result);
void flash_device_error(struct flash *flash, int errnum); /* counts; opens the breaker */
void flash_segment_set(struct flash *flash, uint32_t segment, uint8_t state); /* keeps the counts */
void flash_segment_back(struct flash *flash, uint32_t segment, uint8_t backed);
int flash_refused(struct flash *flash);
int flash_writes_wait(const struct flash *flash); /* whether anything waits to be written */

/* commit.c: each returns whether it did anything */
int commit_groups(struct flash *flash);
int commit_ledger(struct flash *flash);
int commit_flush(struct flash *flash);
int commit_seal(struct flash *flash);
int commit_syncs(struct flash *flash);
int commit_decisions(struct flash *flash);
int commit_idle(const struct flash *flash); /* nothing queued or in flight */
void commit_close_segment(struct flash *flash, uint32_t open);
struct open_segment *commit_open_find(struct flash *flash, uint32_t segment);
uint32_t commit_entry_room(const struct flash *flash, const struct open_segment *open);
int commit_segment_record(struct flash *flash, uint32_t segment, uint8_t state);

enum room_why {
	ROOM_WAITS = 0, /* one is being opened, or room is made */
	ROOM_NONE = 1,  /* there is none to be had */
	ROOM_OWN = 2,   /* room is made of its tenant's own: it is at its quota */
};

/* room.c */
/* Pages left for groups when the footer of what is in the segment, and of `more` parts, is set aside. */
uint32_t room_pages_left(const struct flash *flash, const struct open_segment *open, uint32_t more);
/* Starts a new life of a free segment for a tenant. 1: begun; 0: none is to be had now. */
int room_open(struct flash *flash, const uint8_t tenant[16]);
/* The victim's parts that must stay have the last segment for themselves: what else came into it they would lack. */
int room_carry_only(const struct flash *flash);
/* The open segment that takes this part next; NULL: *ret_why says why. another: a new one may be opened for it. */
struct open_segment *room_find(struct flash *flash, const struct tier_req *req, int another, enum room_why *ret_why);

/* clean.c */
int clean_step(struct flash *flash);
/* A carried part is durable in its new place; 0: the host no longer wants it. */
int clean_carried(struct flash *flash, struct tier_req *req, uint32_t page);
int clean_wanted(const struct flash *flash);
/* A part of this tenant has no segment to go to. own: its quota is why. */
void clean_for(struct flash *flash, const uint8_t tenant[16], int own);
/* It is at its quota, and nothing of its own may go. */
int clean_hopeless(const struct flash *flash, const uint8_t tenant[16]);
uint32_t clean_reserve(const struct flash *flash); /* free segments that only carried parts may take */
uint32_t clean_free_segments(const struct flash *flash); /* free, or that may be grown into */
int clean_may_grow(struct flash *flash);
int clean_below_floor(struct flash *flash); /* the file system has less free than it must keep */
int clean_open(struct flash *flash); /* allocates; 0 or NOMEM */
void clean_done(struct flash *flash);

/* recover.c */
/* Reads the entries of a sealed segment into `entries` (entries_max); returns their number, or -errno / FMT_BAD. */
long recover_entries(struct flash *flash, uint32_t segment, struct fmt_entry *entries);
/* Opening, after the ledger was replayed: hops through the segments that have no footer. 0, NOMEM. */
int recover_gather(struct flash *flash);
/* Closing: the catalog's part for this device into free segments, when that saves work. 0 or -errno. */
int recover_checkpoint_write(struct flash *flash, const struct flash_checkpoint *source);
/* Blanks the page after the last group of each open segment, so that reopen knows the end. 0 or -errno. */
int recover_wipe_tails(struct flash *flash);

#endif
