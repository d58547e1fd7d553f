/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog: (space, key, part) -> where it lies. One entry a part; buckets by key prefix, so that all parts of a key
 * and a miss cost one probe. Entries are indexes + 1 (0: none) into one array; freed entries are reused.
 *
 * Threads: under the store's lock. Memory: all taken at open. 62 bytes a part: 60 of entry, 2 of bucket.
 * Invariant: an entry is in memory (slot), in flash (FLASH), being written (slot FILLING), or a ghost: the head of
 * children that are not gone yet.
 */
#ifndef CAIRN_STORE_CATALOG_H
#define CAIRN_STORE_CATALOG_H

#include <stddef.h>
#include <stdint.h>

#include "cairn/cairn.h"

enum {
	CATALOG_FLASH = 1u << 0,    /* page and device hold a place in flash */
	CATALOG_DURABLE = 1u << 1,  /* and it is known to be flushed */
	CATALOG_TAIL = 1u << 2,
	CATALOG_MANIFEST = 1u << 3,
	CATALOG_KEPT = 1u << 4,     /* of a pinned session, or one with a time to live */
	CATALOG_GHOST = 1u << 5,    /* gone; remembered as the parent of its children */
	CATALOG_CLOSED = 1u << 6,   /* hint: will not return */
	CATALOG_USED = 1u << 7,     /* used since it was put */
};

enum { CATALOG_USES_MAX = 31 };

struct catalog_entry {
	uint8_t prefix[16];   /* of the key */
	uint32_t check[2];    /* stored check (fmt/segment.h): proves the full key when the bytes are read */
	uint32_t birth_low;   /* birth: 48 bits */
	uint16_t birth_high;
	uint16_t part : 7;    /* 0..63 */
	uint16_t device : 4;
	uint16_t uses : 5;    /* times it was used, its put included; saturates at CATALOG_USES_MAX */
	uint32_t next;        /* bucket chain */
	uint32_t page;        /* in flash: page of the device's segments area */
	uint32_t length;      /* bytes */
	uint32_t slot;        /* memory slot; 0: none */
	uint32_t parent;      /* entry of the block before it in its chain (any part of it); 0: none known */
	uint16_t space;       /* number of the space in the store */
	uint16_t used;        /* last use, in ticks of the store (policy/evict.h) */
	uint16_t children;    /* entries whose parent this is; saturates, and then stays */
	uint8_t holds;        /* matches that hold it; saturates: BUSY */
	uint8_t flags;
};
_Static_assert(sizeof(struct catalog_entry) == 60, "the catalog's bound");

struct catalog;

/* As many entries as fit budget_bytes. 0 or CAIRN_E_NOMEM. */
int catalog_open(uint64_t budget_bytes, struct catalog **ret_catalog);
void catalog_close(struct catalog *catalog);

static inline uint64_t catalog_birth(const struct catalog_entry *e)
{
	return (uint64_t)e->birth_high << 32 | e->birth_low;
}
static inline void catalog_set_birth(struct catalog_entry *e, uint64_t birth)
{
	e->birth_low = (uint32_t)birth;
	e->birth_high = (uint16_t)(birth >> 32);
}
static inline uint64_t catalog_check_of(const struct catalog_entry *e)
{
	return (uint64_t)e->check[1] << 32 | e->check[0];
}
static inline void catalog_set_check(struct catalog_entry *e, uint64_t check)
{
	e->check[0] = (uint32_t)check;
	e->check[1] = (uint32_t)(check >> 32);
}

struct catalog_entry *catalog_at(struct catalog *catalog, uint32_t entry);
/* All entries: number N is at N - 1. For loops over numbers that were just looked up. */
struct catalog_entry *catalog_entries(struct catalog *catalog);
/* The same for an entry that may have been freed since: NULL then. */
struct catalog_entry *catalog_peek(struct catalog *catalog, uint32_t entry);
/* The entry of a part, ghosts included; 0: none. */
uint32_t catalog_find(struct catalog *catalog, uint32_t space, const uint8_t prefix[16], uint32_t part);
/* The entry number `guess`, which may be any number at all, if it is part 0 of that key now (ghosts included); else
 * NULL. It saves a look into the buckets: blocks of a chain are often put one after the other, and stand side by side.
 * Asks the processor for the one CATALOG_AHEAD steps on, as its own prefetch ends with each page. */
#define CATALOG_AHEAD 24u
const struct catalog_entry *catalog_guess(const struct catalog *catalog, uint32_t guess, uint32_t step, uint32_t space,
                                          const uint8_t prefix[16]);
/* Any entry of the key that is not a ghost, lowest part first; else a ghost; 0: none. The parent of a child. */
uint32_t catalog_find_any(struct catalog *catalog, uint32_t space, const uint8_t prefix[16]);
/* Masks of a block's parts that are READY in memory (as told by `ready`), and in flash but for the devices in the mask
 * `shut`; tails are none. One probe.
 * Returns an entry that shows in a mask; 0: none does. */
uint32_t catalog_presence(struct catalog *catalog, uint32_t space, const uint8_t prefix[16],
                          int (*ready)(void *arg, uint32_t slot), void *arg, uint32_t shut, uint64_t *ret_memory,
                          uint64_t *ret_flash);
/* Asks the processor for what a look at these keys will need, all at once: their misses overlap then. No effect else.
 * At most CATALOG_WARM keys. */
#define CATALOG_WARM 32u
void catalog_warm(const struct catalog *catalog, uint32_t space, const cairn_key *keys, size_t nkeys);
/* A new zeroed entry with space, prefix, part set. It must not exist, unless as a ghost: that one comes back to life,
 * zeroed but for its parent and children. 0: the catalog is full (evict, try again). */
uint32_t catalog_insert(struct catalog *catalog, uint32_t space, const uint8_t prefix[16], uint32_t part);
/* A ghost for a parent that was not met yet; the key must have no entry. Give it its first child at once. 0: full. */
uint32_t catalog_insert_ghost(struct catalog *catalog, uint32_t space, const uint8_t prefix[16]);
/* Sets the parent (0: none) and counts the children of both; a ghost that loses its last child is freed. A parent that
 * would close a circle counts as none. */
void catalog_set_parent(struct catalog *catalog, uint32_t entry, uint32_t parent);
/* Removes an entry; with children it becomes a ghost (no slot, no flash), else it is freed, and ghost parents that lose
 * their last child with it. Its holds must be 0. Does not touch the slot or the segment's accounts. A ghost whose count
 * of children is saturated stays until the store is opened anew. */
void catalog_remove(struct catalog *catalog, uint32_t entry);
/* Whether its chain is broken: its parent is a ghost. One step is enough for who removes orphans until there are no
 * more, since each removed one is a ghost to its own children. A ghost is no orphan. */
int catalog_orphan(struct catalog *catalog, uint32_t entry);
/* The entries after index `from` (0: from the start) that are in use, ghosts included; 0: no more. */
uint32_t catalog_next(struct catalog *catalog, uint32_t from);
/* The same, that looks at no more than *steps of them, and takes off how many it did. 0 with *steps left: no more;
 * else it goes on from *ret_at. */
uint32_t catalog_next_within(struct catalog *catalog, uint32_t from, uint32_t *steps, uint32_t *ret_at);

struct catalog_stat {
	uint64_t bytes; /* of entries and buckets, taken or not; the remembered keys are an eighth on top */
	uint64_t capacity, entries, ghosts; /* entries: ghosts included */
};
void catalog_stat(const struct catalog *catalog, struct catalog_stat *ret_stat);
/* Recomputes and checks all that is kept incrementally (tests, simulation). */
void catalog_verify(struct catalog *catalog);

/* Remembered keys: why and when a part went. A table of 16-byte cells, 4-way, oldest replaced; about one for two
 * entries. To remember with reason 0 is to forget. */
struct catalog_memory {
	uint32_t reason; /* enum cairn_reason, at most 255; 0: nothing is remembered */
	uint32_t tier;   /* at most 255 */
	uint32_t uses;   /* saturates at 65,535 */
	uint64_t when_s;
};
/* `print` is gone_print (fmt/gone.h) of the part. */
void catalog_remember(struct catalog *catalog, uint64_t print, const struct catalog_memory *memory);
void catalog_recall(const struct catalog *catalog, uint64_t print, struct catalog_memory *ret_memory);
/* The next remembered key from *cursor (0: from the start) on; 0: no more. */
uint32_t catalog_memories(const struct catalog *catalog, uint32_t *cursor, uint64_t *ret_print,
                          struct catalog_memory *ret_memory);

#endif
