/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks an index table learns from: when each was used last, whether it is still there or was evicted since, so
 * that uses that never come again count too.
 *
 * At first every block is watched. When the cells are full, those that nobody waits for go, and then half of all keys,
 * chosen by their hash; each of the rest stands for twice as many from then on. So the sample is what the cells can
 * hold, and what was learned at a higher rate keeps its weight.
 *
 * Threads: one owner. Memory: the caller's, given at init; WATCH_CELL_BYTES a cell.
 * Invariant: a watched key's hash is a multiple of `share`, but in the middle of watch_use.
 */
#ifndef CAIRN_POLICY_WATCH_H
#define CAIRN_POLICY_WATCH_H

#include "policy/index.h"

#define WATCH_UNITS_S 16.0 /* times are in sixteenths of a second since any start: 32 bits last eight years */

static inline uint32_t watch_time(uint64_t ns)
{
	return (uint32_t)(ns / (1000000000 / (uint64_t)WATCH_UNITS_S));
}

struct watch_cell {
	uint64_t print;   /* of the block's key; 0: free */
	uint32_t next;    /* of its bucket, or of the free cells: cell + 1 */
	uint32_t used;    /* last use */
	uint8_t class;
	uint8_t seen;     /* buckets of its age that the table knows of */
	uint16_t reserved;
	uint32_t bucket;  /* not of this cell: the first of the bucket of this number, cell + 1 */
};
#define WATCH_CELL_BYTES sizeof(struct watch_cell)
_Static_assert(sizeof(struct watch_cell) == 24, "what DESIGN allows for");

struct watch {
	struct watch_cell *cells;
	uint32_t ncells;   /* a power of two */
	uint32_t free;     /* cell + 1 */
	uint32_t watched;
	uint32_t share;    /* one of so many keys is watched: a power of two */
	uint32_t minute;   /* when the last one ended */
	struct index_table table;
};

/* `cells`: ncells zeroed cells, ncells a power of two of 16 at least. */
void watch_init(struct watch *watch, struct watch_cell *cells, uint32_t ncells, uint32_t now);
/* The low bits choose the sample and the high ones the bucket: they must not be the same. */
static inline uint64_t watch_mixed(uint64_t print)
{
	print = (print ^ print >> 32) * 0xd6e8feb86659fd93ull;
	return (print ^ print >> 32) * 0xd6e8feb86659fd93ull;
}
/* Whether a block is in the sample: of one that is not, watch_use need not be told. */
static inline int watch_wants(const struct watch *watch, uint64_t print)
{
	return !(watch_mixed(print + !print) & (watch->share - 1));
}
/* A block is used, and is of `class` from now on. */
void watch_use(struct watch *watch, uint64_t print, uint32_t class, uint32_t now);
/* Makes the index anew for each minute that has ended by `now`. Returns their number. */
uint32_t watch_minutes(struct watch *watch, uint32_t now);

#endif
