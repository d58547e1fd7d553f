/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns by weight. See share.h.
 * Threads: one owner. Memory: the caller's.
 */
#include "policy/share.h"

#include "base/check.h"

#define SCALE 1024u /* virtual time a byte at weight 1: the heaviest still counts bytes in tenths */

void share_come(struct share *share, uint32_t flow)
{
	check(flow < SHARE_FLOWS && !(share->waiting >> flow & 1));
	share->waiting |= 1ull << flow;
	if (share->start[flow] < share->now)
		share->start[flow] = share->now;
}

uint32_t share_turn(const struct share *share, uint64_t without)
{
	uint32_t best = SHARE_NOBODY;
	for (uint64_t left = share->waiting & ~without; left; left &= left - 1) {
		uint32_t flow = (uint32_t)__builtin_ctzll(left);
		if (best == SHARE_NOBODY || share->start[flow] < share->start[best])
			best = flow;
	}
	return best;
}

void share_take(struct share *share, uint32_t flow, uint32_t weight, uint64_t bytes, int more)
{
	check(flow < SHARE_FLOWS && share->waiting >> flow & 1);
	if (share->start[flow] > share->now)
		share->now = share->start[flow];
	share->start[flow] += bytes * SCALE / (weight ? weight : SHARE_WEIGHT) + 1;
	if (!more)
		share->waiting &= ~(1ull << flow);
}
