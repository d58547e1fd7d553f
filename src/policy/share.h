/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose turn it is: a device's bandwidth among tenants, by weight and bytes (start-time fair queueing). Each flow has a
 * virtual time at which its next request may begin, and the earliest goes. A flow that comes anew begins at the present
 * virtual time, so it is next whatever the others have waiting; one that is alone has everything; what a flow did not
 * use is not saved up.
 *
 * Threads: one owner. Memory: the caller's. The requests themselves are the caller's to keep, in order for each flow.
 * Invariant: over any time in which two flows always wait, what they got differs from their weights by less than one
 * request (or what was taken at once) of each.
 */
#ifndef CAIRN_POLICY_SHARE_H
#define CAIRN_POLICY_SHARE_H

#include <stdint.h>

#define SHARE_FLOWS 64u
#define SHARE_WEIGHT 100u /* where none was given */
#define SHARE_NOBODY UINT32_MAX

struct share {
	uint64_t now;                 /* virtual time: of what was taken last */
	uint64_t start[SHARE_FLOWS];  /* of what a flow has first, or will have */
	uint64_t waiting;             /* a bit a flow */
};

/* A flow that had nothing waiting has something. */
void share_come(struct share *share, uint32_t flow);
/* The flow whose turn it is, of those that wait and are not in `without` (a bit a flow); SHARE_NOBODY: none. */
uint32_t share_turn(const struct share *share, uint64_t without);
/* So many bytes of a flow were taken; `more`: it still has something waiting. weight 0: SHARE_WEIGHT. */
void share_take(struct share *share, uint32_t flow, uint32_t weight, uint64_t bytes, int more);

#endif
