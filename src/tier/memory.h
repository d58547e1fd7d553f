/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory tier: a budget of extents (one sealed memfd each), each of one tenant for its life, cut into runs of
 * 64 KiB pages (parts of at most 32 KiB share a page: a power of two of 4 KiB cells each). A part lies in one run: its
 * address is 4 KiB aligned and its room a multiple of 4 KiB, so that the flash tier reads and writes it in place.
 *
 * Threads: everything here is called under the store's lock, except that the bytes of a slot are read and written by
 * its holders (refs > 0) outside of it. Memory: all taken at open; nothing is allocated later.
 * Invariant: a slot is freed only with refs 0; a slot in a recency list (recent.c) is READY.
 */
#ifndef CAIRN_TIER_MEMORY_H
#define CAIRN_TIER_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "policy/index.h"

#define MEMORY_PAGE 65536u
#define MEMORY_CELL 4096u
#define MEMORY_TENANTS_MAX 64u
#define MEMORY_CLOSED INDEX_CLASSES /* the list of what will not return; those before it are of the index's classes */
#define MEMORY_LEAVING (INDEX_CLASSES + 1) /* of what goes before all others: its owner is ready for that */
#define MEMORY_LISTS (INDEX_CLASSES + 2)

enum memory_state {
	MEMORY_UNUSED = 0,
	MEMORY_FILLING = 1, /* its bytes are on their way in: from a writer or a lower tier */
	MEMORY_READY = 2,
	MEMORY_FAILED = 3,  /* they will not come; freed when the last waiter lets go */
};

struct memory_slot {
	uint8_t key_rest[16];  /* the second half of the key (the catalog entry has the first) */
	uint64_t raw_check;    /* XXH3-64 of the bytes, when READY */
	uint32_t entry;        /* catalog index + 1; 0: no longer in the catalog */
	uint32_t newer, older; /* recency list: slot numbers; 0: none */
	uint32_t cell;         /* first cell of 4 KiB, counted over all extents */
	uint32_t length;       /* bytes asked for */
	uint16_t refs;         /* readers, writers, leases, pending writes to flash: not evictable while > 0 */
	uint8_t state;         /* enum memory_state */
	uint8_t tenant;
	int16_t error;         /* FAILED: the status for those who wait */
	uint8_t dirty;         /* 1: on its way to flash */
	uint8_t leased;        /* leases on it, 255 at most */
	uint32_t used;         /* last use, as policy/watch.h counts time; of those used together the same */
	uint8_t list;          /* which recency list it is in, where it is in one */
	uint8_t far;           /* it came from a peer, and nobody has been given it yet */
	uint8_t reserved[2];
};
_Static_assert(sizeof(struct memory_slot) == 64, "a memory-only part costs this and a catalog entry");

/* How victims are chosen. */
struct memory_policy {
	const struct index_table *table;         /* NULL: the oldest of all lists goes */
	int (*held)(void *arg, uint32_t slot);   /* whether a slot with refs 0 may not go now; NULL: none is held */
	void *arg;
};

/* What a tenant may have, and what others may not take from it. */
struct memory_limits {
	uint64_t quota_bytes;    /* of its parts; 0: none */
	uint64_t reserved_bytes; /* rounded up to whole extents; 0: nothing */
};

struct memory;

/* budget_bytes is rounded down to extents of a quarter of it (2 MiB..1 GiB, at least one extent). All memory is
 * touched. 0, CAIRN_E_NOMEM, CAIRN_E_INVAL (budget below 8 MiB). */
int memory_open(uint64_t budget_bytes, struct memory **ret_memory);
void memory_close(struct memory *memory);

/* Room for `length` bytes for a tenant: a slot number > 0, FILLING, refs 1; or 0: no room without eviction, or it would
 * be over its quota. May give an unassigned extent to the tenant. */
uint32_t memory_take(struct memory *memory, uint32_t tenant, uint32_t length);
/* The slot to evict next for this tenant, or 0: of those that are leaving, else the longest closed one, else that of
 * least index among each list's oldest and the tail of its newest request (policy/index.h). Those in use that it meets
 * at an old end go to the young one. The caller removes it from the catalog and frees it, then tries again. */
uint32_t memory_victim(struct memory *memory, uint32_t tenant);
/* The same, but none of those that are in the list MEMORY_LEAVING already; and bytes of the parts in that. */
uint32_t memory_next(struct memory *memory, uint32_t tenant);
uint64_t memory_leaving(const struct memory *memory, uint32_t tenant);
/* When a tenant has no victim left: one slot of the tenant that is furthest over its fair share (what is reserved is
 * not taken, and a tenant that has less than that takes from whom has more), so that its extent drains and changes
 * hands; 0: none, or its quota forbids more. memory_take moves an extent that became empty. */
uint32_t memory_victim_elsewhere(struct memory *memory, uint32_t tenant);
/* From now on; what a tenant has over a new quota is the caller's to evict (memory_over, memory_victim). */
void memory_limit(struct memory *memory, uint32_t tenant, const struct memory_limits *limits);
/* Whether a part of `length` bytes more would be over the tenant's quota (0: whether it is over it now). */
int memory_over(const struct memory *memory, uint32_t tenant, uint32_t length);
/* Whether it has less than what is reserved for it: it takes from others before it evicts its own. */
int memory_owed(const struct memory *memory, uint32_t tenant);
/* Bytes of its parts, as its quota counts them. */
uint64_t memory_tenant_used(const struct memory *memory, uint32_t tenant);
/* Bytes of extents; what all reserve must fit. */
uint64_t memory_extent_bytes(const struct memory *memory);
/* refs must be 0 or the caller's only one; takes it out of the recency list. */
void memory_free(struct memory *memory, uint32_t slot);
/* Most bytes one part can have here (an extent). */
uint32_t memory_part_max(const struct memory *memory);

struct memory_slot *memory_slot(struct memory *memory, uint32_t slot);
uint32_t memory_slot_after(const struct memory *memory, uint32_t slot); /* the next one in use; 0: there is none */
void *memory_address(struct memory *memory, uint32_t slot);
/* The memfd behind a slot and the offset in it. */
void memory_place(const struct memory *memory, uint32_t slot, int *ret_fd, uint64_t *ret_offset);
/* What memory_victim goes by from now on. The table stays the caller's. */
void memory_policy(struct memory *memory, const struct memory_policy *policy);
/* The time of the uses that follow. */
void memory_time(struct memory *memory, uint32_t now);
/* Used now: to the youngest end of a list of its tenant (READY only). What is used at one time in one list counts as
 * one request: touch its tail first. */
void memory_touch(struct memory *memory, uint32_t slot, uint32_t list);
/* Just behind (older than) `ahead`, in its list and as if used with it; `ahead` is in a list of the same tenant. */
void memory_touch_behind(struct memory *memory, uint32_t slot, uint32_t ahead);
/* Changes whenever an extent's memory is given up for new memory. */
uint64_t memory_generation(const struct memory *memory);
/* The memfd of an extent, by number; -1: there are no more. */
int memory_extent_fd(const struct memory *memory, uint32_t extent);
/* The extents, by number: their address and length; NULL: there are no more. */
void *memory_extent_at(const struct memory *memory, uint32_t extent, uint64_t *ret_length);
/* `gone` is called, under the store's lock, before an extent's address is given up while the memory is open. */
void memory_watch(struct memory *memory, void (*gone)(void *arg, const void *address), void *arg);

struct memory_stat {
	uint64_t capacity_bytes, used_bytes, slots, slots_max;
};
void memory_stat(const struct memory *memory, struct memory_stat *ret_stat);
/* Bytes of memory (extents) that a tenant holds, and its fair share (budget / tenants with memory). */
uint64_t memory_tenant_bytes(const struct memory *memory, uint32_t tenant);
/* Recomputes everything that is kept incrementally and checks it (tests, simulation). */
void memory_check(const struct memory *memory);

#endif
