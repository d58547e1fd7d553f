/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes from memory to flash under a write budget: whole chains, for half a chain is worth next to nothing. A chain
 * is known by its root, the first block after a branching. It is drawn once and keeps its lot for life; when it returns
 * it is drawn once more, with better odds. docs/POLICY.md says why.
 *
 * The lot is a hash of the root, so that replays repeat, and so that a chain whose verdict was forgotten draws the same
 * number again.
 *
 * Threads: one owner. Memory: the caller's.
 * Invariant: what must go (durable puts, saved sessions) goes without asking, and is charged all the same.
 */
#ifndef CAIRN_POLICY_ADMIT_H
#define CAIRN_POLICY_ADMIT_H

#include <stddef.h>
#include <stdint.h>

#define ADMIT_WINDOW_S 300.0 /* of the budget can be saved up */

/* The write budget, as a bucket that fills with time. */
struct admit_budget {
	double rate_bytes_s;
	double max_bytes;   /* ADMIT_WINDOW_S of it, but at least what the caller writes at once */
	double left_bytes;  /* below 0 where what must go was more than there was */
	uint64_t time_ns;   /* up to which it was filled */
};
/* Full. bytes_day 0: no limit. least_bytes: the largest thing that is written at once. */
void admit_budget_init(struct admit_budget *budget, uint64_t bytes_day, uint64_t least_bytes, uint64_t now_ns);
void admit_budget_fill(struct admit_budget *budget, uint64_t now_ns);
void admit_budget_charge(struct admit_budget *budget, uint64_t bytes);
/* How full it is, 0..1; 1 without a limit. */
double admit_budget_left(const struct admit_budget *budget);

/* With which probability a chain is written. */
double admit_odds(double left, int returned);
/* Its lot, 0 <= lot < 1; the second draw is another one. */
double admit_lot(uint64_t root, int returned, uint64_t seed);

struct admit_cell {
	uint32_t tag;      /* of the root; 0: free */
	uint16_t age;      /* of the cell among those of its set: the oldest is replaced */
	uint8_t drawn;     /* 1: once; 2: again, as it returned */
	uint8_t verdict;
};
/* Verdicts of the chains met last. `cells`: zeroed, a multiple of ADMIT_WAYS. */
enum { ADMIT_WAYS = 4 };
struct admit {
	struct admit_cell *cells;
	uint32_t ncells;
	uint64_t seed;
	uint16_t clock;
};
/* Whether the chain of this root goes to flash: 1 or 0. left: admit_budget_left. */
int admit_chain(struct admit *admit, uint64_t root, int returned, double left);

#endif
