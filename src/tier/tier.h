/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tier below memory, as the store sees it: a documented struct of functions, and what it calls back (struct
 * tier_host).
 *
 * Threads: `submit` and `stat` from any; `step` and the host's calls in the tier's loop thread (in the opening thread
 * while it opens). The host takes the store's lock inside; a tier holds no lock of its own while it calls the host.
 * Ownership: a request belongs to the tier from submit to its `done`.
 */
#ifndef CAIRN_TIER_TIER_H
#define CAIRN_TIER_TIER_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "cairn/cairn.h"
#include "fmt/ledger.h"
#include "fmt/segment.h"
#include "policy/evict.h"

enum tier_op {
	TIER_WRITE = 1,  /* one part; visible by host->stored when its bytes are whole, host->durable when flushed */
	TIER_READ = 2,   /* one part, verified against `entry` and `check` */
	TIER_SYNC = 3,   /* done when every write submitted before it is durable or has failed */
	TIER_DECIDE = 4, /* a ledger record; done when it is durable */
};

struct tier_req {
	uint32_t op;
	uint32_t background;       /* 1: after urgent requests */
	struct fmt_entry entry;    /* write: identity, lengths, checks, birth; read: key, space, part, raw_length */
	uint8_t tenant[16];        /* write: whose segment */
	uint32_t flow;             /* whose share of the bandwidth it takes, below SHARE_FLOWS; each is in order */
	void *bytes;               /* page-aligned; room of stored_length rounded up to a page */
	uint32_t page;             /* read: place, asked of the host when the read begins */
	uint64_t check;            /* read: stored check that proves bytes and identity */
	struct ledger_record record; /* decide */
	void (*done)(struct tier_req *req); /* in the tier's loop thread, without locks */
	void *owner;
	/* 0, or a status of cairn.h: IO (passing), DAMAGED (quarantine it), MISS (another part lies there), FULL, RDONLY,
	 * QUOTA (its tenant's is used up, and nothing of its own may go) */
	int32_t result;
	uint64_t ticket;           /* the tier's: order of submission */
	struct list link;          /* the tier's */
};

enum tier_moved_result {
	TIER_GONE = 0,  /* the host no longer wants the part */
	TIER_MOVED = 1,
};

/* What a tier tells its store. `device` is the tier's number. Pages count 4 KiB from the start of the segments area. */
struct tier_host {
	void *arg;
	/* A part's bytes are whole at `page`. Returns 0: it is no longer wanted (dropped meanwhile). */
	int (*stored)(void *arg, uint32_t device, const struct fmt_entry *entry, uint32_t page);
	/* The part at `page` has been flushed. */
	void (*durable)(void *arg, uint32_t device, const struct fmt_entry *entry, uint32_t page);
	/* The part at `page` is no longer there: withdrawn, evicted, its device gone. Nothing if the host has it
	 * elsewhere. */
	void (*removed)(void *arg, uint32_t device, const struct fmt_entry *entry, uint32_t page, uint32_t reason);
	/* May the part at `page` be evicted? 0: it is not live there; else a verdict. Held parts answer KEEP. */
	int (*judge)(void *arg, uint32_t device, const struct fmt_entry *entry, uint32_t page,
	             enum evict_verdict *ret_verdict);
	/* Where the part of `entry` lies on this device at this moment; 0: no longer here. */
	int (*place)(void *arg, uint32_t device, const struct fmt_entry *entry, uint32_t *ret_page);
	/* It was carried over, durably, from old_page to page. */
	enum tier_moved_result (*moved)(void *arg, uint32_t device, const struct fmt_entry *entry, uint32_t old_page,
	                                uint32_t page);
	/* Lowest index among `n` segments (numbers in `segments`, oldest life first); the position, or -1: none can be
	 * freed. tenant: who needs the room (NULL: nobody yet); what is reserved for others is not taken for it. `own`: of
	 * that tenant's alone. */
	long (*choose)(void *arg, uint32_t device, const uint8_t *tenant, int own, const uint32_t *segments,
	               size_t n);
	/* A segment is a tenant's from now on; NULL: it is free. While opening: all that are not free. */
	void (*owned)(void *arg, uint32_t device, uint32_t segment, const uint8_t *tenant);
	/* Whether the tenant may have another segment; 0: it is at its quota, and must give one up first. */
	int (*may_own)(void *arg, uint32_t device, const uint8_t *tenant);
	/* Nothing in pages [from, to) can be read any more: all parts there are gone. */
	void (*lost)(void *arg, uint32_t device, uint32_t from, uint32_t to, uint32_t reason);
	/* Reads of this device are stepped over from now on (`shut`: it failed, or was too slow, several times in a row),
	 * or may be asked for again. hung: nor is there any use in waiting for those under way. */
	void (*shut)(void *arg, uint32_t device, int shut, int hung);
	/* While opening: a part that is in the medium. Durable once the tier has started. */
	void (*found)(void *arg, uint32_t device, const struct fmt_entry *entry, uint32_t page);
	/* While opening: `found` will be told of these next, at most TIER_COMING of them. Only a hint; may be NULL. */
	void (*coming)(void *arg, const struct fmt_entry *entries, size_t n);
};
enum { TIER_COMING = 32 };

struct tier_ops {
	const char *name;
	void (*submit)(void *tier, struct tier_req *req);
	/* Runs what is ready; waits up to timeout_ns for more. Returns whether anything was done. */
	int (*step)(void *tier, uint64_t timeout_ns);
	void (*wake)(void *tier);
	void (*stat)(void *tier, struct cairn_device_stat *ret_stat);
	/* The last call of a loop thread: another one goes on from here. */
	void (*leave)(void *tier);
};

#endif
