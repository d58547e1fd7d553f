/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of one urgency that wait for a device: in order for each tenant, and among tenants by their shares.
 * Threads: the loop's; the weights may be changed by others at any time. Memory: the requests' own.
 */
#ifndef CAIRN_TIER_LANE_H
#define CAIRN_TIER_LANE_H

#include "policy/share.h"
#include "tier/tier.h"

struct lane {
	struct share share;
	struct list flows[SHARE_FLOWS];
	const uint32_t *weights; /* by flow */
};

void lane_init(struct lane *lane, const uint32_t weights[SHARE_FLOWS]);
int lane_empty(const struct lane *lane);
void lane_push(struct lane *lane, struct tier_req *req);
/* Whose turn it is, but for the flows in `without`; NULL: nobody waits. It stays in the lane. */
struct tier_req *lane_first(const struct lane *lane, uint64_t without);
/* Out of the lane; it is the first of its flow. */
void lane_take(struct lane *lane, struct tier_req *req);
/* The ticket of the one that waits longest; UINT64_MAX: nobody waits. */
uint64_t lane_oldest(const struct lane *lane);
/* The first of all flows, out of the lane, whoever's turn it is; NULL: none. */
struct tier_req *lane_drain(struct lane *lane);

#endif
