/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer to "how much of this chain can be had", and the handles on it: that of whoever asked, and those of the
 * ranks that joined.
 *
 * Threads: an answer is under the store's lock; a handle is its owner's. Memory: one allocation each.
 * Invariant: an answer lives as long as a handle on it; its blocks are held until the last handle or its deadline goes.
 */
#ifndef CAIRN_STORE_MATCH_H
#define CAIRN_STORE_MATCH_H

#include "store/store.h"

enum {
	MATCH_HOLDERS_MAX = 1024
};

struct match_answer {
	struct list link;
	struct cairn_ticket ticket;
	const struct cairn_space *space;
	struct cairn_match_info info;
	uint64_t deadline_ns;
	uint32_t holders; /* handles */
	uint32_t expired; /* its blocks are let go */
	uint32_t ranks;   /* that are to agree; 0: nobody has asked yet */
	uint32_t said;    /* of them, those that have said what they have */
	uint32_t agreed;  /* nothing changes `tokens` any more */
	uint64_t tokens;  /* the least that a rank has */
	uint32_t since;   /* when it was taken: watch_now */
	uint32_t read;    /* parts held[read..] were asked for, as far as is known */
	uint32_t far_read; /* the same of far[] */
	uint32_t far_seen; /* far[far_seen - 1] was asked for last by a reader; 0: none was */
	uint32_t nheld, nfar;
	struct match_far_part { /* parts that a peer has, tail first as held[] is; NULL: none, or no memory for them */
		cairn_key key;
		uint32_t length;
		uint8_t part;
	} *far;
	struct match_held {
		uint64_t birth;
		uint32_t entry;
		uint8_t rest[16]; /* of the key */
	} held[];
};

struct cairn_match {
	struct match_answer *answer; /* NULL: a cairnd has it */
	struct cairn_match_info info;
	struct cairn_ticket ticket;
	uint64_t remote; /* the cairnd's number of it */
	uint32_t joined; /* by a ticket */
	uint32_t said;
};

void match_free(struct match_answer *answer); /* NULL is allowed */
/* Lets go of the blocks. The lock is held, as in what follows. */
void match_let_go(cairn *store, struct match_answer *answer);
/* Not all ranks can use it: none does. Where they have agreed already it stays at that. */
void match_leave(cairn *store, struct match_answer *answer);

#endif
