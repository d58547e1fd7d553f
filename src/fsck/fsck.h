/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checking and mending a store that no process has open. A library of its own: it reads the bytes of docs/FORMAT.md
 * through fmt and io, trusts nothing of what it reads, and shares no code with the store. docs/FSCK.md is the manual.
 *
 * Caveats first: it reads every live byte of the store (at the devices' speed), and holds the store's lock while it
 * runs: a directory that another process has open is OWNED. Without `repair` nothing at all is written. With `repair`
 * what is damaged beyond help is taken out of the store, so that it can not be served, and its room is used again.
 *
 * Threads: one call runs in the caller's thread; two stores may be checked at once.
 * Memory: about 120 bytes per part on flash, and the ledgers' tables; all freed before it returns.
 */
#ifndef CAIRN_FSCK_FSCK_H
#define CAIRN_FSCK_FSCK_H

#include <stddef.h>
#include <stdint.h>

enum fsck_result {
	FSCK_CLEAN = 0,    /* no problem */
	FSCK_REPAIRED = 1, /* problems, and all of them are mended: another run is clean */
	FSCK_DAMAGED = 2,  /* problems that are still there: `repair` was not asked for, or can not help (FSCK_STUCK) */
};

enum fsck_severity {
	FSCK_NOTE = 0,     /* worth knowing, no problem: what a crash left, a session whose blocks were evicted */
	FSCK_LOST = 1,     /* content that no repair brings back: a bad payload, a manifest. `repair` takes it out */
	FSCK_MENDABLE = 2, /* a structure that `repair` restores without loss: one of two copies, a footer */
	FSCK_STUCK = 3,    /* a problem that `repair` can do nothing about: a device that is missing */
	FSCK_DONE = 4,     /* no finding: what `repair` has just done */
};

#define FSCK_NO_DEVICE UINT32_MAX
#define FSCK_NO_OFFSET UINT64_MAX

/* One thing that was found (or done). */
struct fsck_finding {
	uint32_t severity; /* enum fsck_severity */
	uint32_t device;   /* index in cairn.id, or FSCK_NO_DEVICE: it is about the store */
	uint64_t offset;   /* bytes in the file `path`, or FSCK_NO_OFFSET */
	const char *path;  /* of the file it is about; valid during the callback */
	const char *text;  /* one line, without a newline; valid during the callback */
};

struct fsck_options {
	size_t size;      /* sizeof(struct fsck_options) */
	const char *path; /* of the store; "dir:" in front is allowed */
	int repair;       /* 1: mend. Only then anything is written */
	/* How far it is, at least 10 times a second while it works, and at each step's start and end. `what` names the step
	 * ("flash.cairn: payloads"); done and all are bytes of it. Non-zero stops: CANCELED, and the store is as it was, or
	 * mended in part; either way it opens. May be NULL. */
	int (*progress)(void *arg, const char *what, uint64_t done, uint64_t all);
	/* Each finding as it is made. May be NULL: the report counts them. */
	void (*finding)(void *arg, const struct fsck_finding *finding);
	void *arg;
	/* Paths of devices outside of the store's directory. Needed only when cairn.id is lost in both copies: it named
	 * them. */
	const char *const *devices;
	uint32_t ndevices;
};

/* Counters of what is there and of what is wrong with it. After a repair they still say what was found. */
struct fsck_report {
	/* what there is */
	uint64_t devices, devices_missing; /* named by cairn.id; of these, not there or not this store's */
	uint64_t segments_free, segments_open, segments_sealed, segments_checkpoint; /* that the ledgers name */
	uint64_t groups;             /* good ones, in open and sealed segments */
	uint64_t parts;              /* on flash and to be served: each is read and checked. A part that is there twice
	                                (moved, or put again) counts twice */
	uint64_t parts_good, parts_damaged; /* of them */
	uint64_t parts_dropped;      /* covered by a drop, or in quarantine: never served, not read */
	uint64_t parts_unflushed;    /* of a crash: written after the last flush and not whole; never promised */
	uint64_t parts_doubtful;     /* a drop that is lost could have covered them: not served */
	uint64_t sessions;           /* saved */
	uint64_t sessions_broken;    /* of them, with a good manifest that names blocks nobody has */
	uint64_t blocks_missing;     /* of those: how many */
	uint64_t bytes_read, bytes_all; /* bytes_all: of the store's files */
	/* what is wrong with it */
	uint64_t identity_copies_damaged;   /* of 2 */
	uint64_t label_copies_damaged;      /* of 2 per device */
	uint64_t ledger_pages_damaged_one;  /* in one of the two copies */
	uint64_t ledger_pages_damaged_both; /* holes: what they held is lost */
	uint64_t groups_damaged;            /* indexes that are damaged or torn */
	uint64_t footers_damaged;
	uint64_t checkpoints_damaged;       /* a hint only */
	uint64_t manifests_damaged;         /* of saved sessions: damaged, or not there */
	uint64_t io_errors;                 /* reads that failed */
	uint64_t problems;                  /* findings that are LOST, MENDABLE or STUCK */
	/* what `repair` did */
	uint64_t repaired_copies;    /* of identity, labels and ledger pages, from the good copy */
	uint64_t rebuilt;            /* identities and labels that were lost in both copies */
	uint64_t rebuilt_groups;     /* indexes, from the footer */
	uint64_t rewritten_footers;  /* they list exactly the parts that are good */
	uint64_t rewritten_ledgers;  /* as a snapshot in the area that was not in use */
	uint64_t freed_segments;     /* nothing good was in them */
	uint64_t removed_parts;      /* damaged or doubtful: they can not come back */
	uint64_t forgotten_sessions; /* whose manifest is damaged */
	uint64_t stuck;              /* problems that are still there after a repair */
};

/* Checks the store at options->path, and mends it with options->repair. `ret_report` is always filled, as far as it
 * came. Returns enum fsck_result, or a code of cairn.h, of which err_text (cairn_error_text) says more:
 *   OWNED     another process has the store open: end it, then try again
 *   NOENT     there is nothing at this path, or an empty directory
 *   NOTSTORE  a file, or a directory without any sign of a store
 *   VERSION   a newer cairn wrote it: use that one's fsck; nothing was changed
 *   ACCESS, RDONLY  no permission to read it, or to write what `repair` must write
 *   IO, FULL  what `repair` must write can not be written; what was mended before stays mended
 *   CANCELED  progress said so
 *   INVAL, NOMEM */
int fsck_run(const struct fsck_options *options, struct fsck_report *ret_report);

/* What a severity is called: "note", "lost", "mendable", "stuck", "done". Never NULL. */
const char *fsck_severity_name(uint32_t severity);

#endif
