/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the memory tier: what memory.c (extents, pages, slots) and recent.c (recency lists) share.
 * Threads: under the store's lock.
 */
#ifndef CAIRN_TIER_MEMORY_IN_H
#define CAIRN_TIER_MEMORY_IN_H

#include "tier/memory.h"

#define MEMORY_CLASSES 4u /* of shared pages: 1, 2, 4, 8 cells a part */

/* Pages and cells are counted over all extents. */
struct memory_page {
	uint32_t next, prev; /* partial list: page + 1; 0: none */
	uint16_t cells;      /* SHARED: mask of taken cells */
	uint8_t kind;        /* enum page_kind */
	uint8_t class;       /* SHARED: log2 of the cells that a part takes */
};

struct memory_extent {
	uint8_t *base;
	uint64_t *bits;     /* a bit a page: taken; those past the end are set */
	int fd;
	uint32_t tenant;    /* NOBODY: never had one, its bytes are zeros */
	uint32_t used;      /* pages */
	uint32_t next;      /* page at which the next search starts */
	uint32_t hopeless;  /* no run of as many pages or more is free; UINT32_MAX: unknown */
};

/* A recency list. */
struct memory_list {
	uint32_t newest, oldest;   /* 0: empty */
	uint32_t tail;             /* the oldest of those used together with the newest; 0: to be looked for */
};

struct memory_tenant {
	struct memory_list lists[MEMORY_LISTS];
	uint32_t partial[MEMORY_CLASSES]; /* pages with free cells: page + 1 */
	uint64_t leaving_bytes;    /* in the list MEMORY_LEAVING */
	uint64_t used_bytes;       /* of its parts, in cells */
	struct memory_limits limits;
	uint32_t extents, slots;   /* numbers of */
	uint32_t current;          /* extent to search first */
};

struct memory {
	struct memory_slot *slots; /* by slot number; [0] is not used */
	struct memory_page *pages;
	uint32_t *owner;           /* by cell: the slot whose run begins there, or 0 */
	struct memory_extent *extents;
	uint64_t *bits;
	uint64_t extent_bytes, used_bytes;
	uint32_t nextents, extent_pages, words; /* words: of an extent's bitmap */
	uint32_t nslots, fresh, free_slots, used_slots; /* fresh: highest slot ever used; free_slots: a list by `older` */
	uint32_t empty;            /* extents without a used page */
	uint32_t drain;            /* extent in drain + 1; 0: none */
	void (*gone)(void *arg, const void *address); /* NULL: nobody asks */
	void *gone_arg;
	uint64_t generation;       /* of the extents: see memory_generation */
	uint32_t drain_cell;       /* where the search for its next victim goes on, a cell of the extent */
	uint32_t now;              /* time of uses, as policy/watch.h counts it */
	struct memory_policy policy;
	struct memory_tenant tenants[MEMORY_TENANTS_MAX];
};

/* recent.c */
int recent_has(const struct memory *memory, uint32_t slot);
void recent_remove(struct memory *memory, uint32_t slot);
/* Whether it may not go now: it is in use, or the owner of the policy says so. */
int recent_busy(const struct memory *memory, uint32_t slot);
/* Checks a tenant's lists; returns how many slots are in them. */
uint32_t recent_check(const struct memory *memory, uint32_t tenant);

#endif
