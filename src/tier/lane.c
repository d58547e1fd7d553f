/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that wait, by tenants. See lane.h. */
#include "tier/lane.h"

#include "base/check.h"

void lane_init(struct lane *lane, const uint32_t weights[SHARE_FLOWS])
{
	lane->share = (struct share){0};
	lane->weights = weights;
	for (uint32_t i = 0; i < SHARE_FLOWS; i++)
		list_init(&lane->flows[i]);
}

int lane_empty(const struct lane *lane)
{
	return !lane->share.waiting;
}

void lane_push(struct lane *lane, struct tier_req *req)
{
	check(req->flow < SHARE_FLOWS);
	if (list_empty(&lane->flows[req->flow]))
		share_come(&lane->share, req->flow);
	list_push_back(&lane->flows[req->flow], &req->link);
}

struct tier_req *lane_first(const struct lane *lane, uint64_t without)
{
	uint32_t flow = share_turn(&lane->share, without);
	return flow == SHARE_NOBODY ? NULL : LIST_OF(lane->flows[flow].next, struct tier_req, link);
}

void lane_take(struct lane *lane, struct tier_req *req)
{
	struct list *flow = &lane->flows[req->flow];
	check(flow->next == &req->link);
	list_remove(&req->link);
	share_take(&lane->share, req->flow, __atomic_load_n(&lane->weights[req->flow], __ATOMIC_RELAXED),
	           req->entry.stored_length, !list_empty(flow));
}

uint64_t lane_oldest(const struct lane *lane)
{
	uint64_t oldest = UINT64_MAX;
	for (uint64_t left = lane->share.waiting; left; left &= left - 1) {
		const struct list *flow = &lane->flows[__builtin_ctzll(left)];
		uint64_t ticket = LIST_OF(flow->next, const struct tier_req, link)->ticket;
		oldest = ticket < oldest ? ticket : oldest;
	}
	return oldest;
}

struct tier_req *lane_drain(struct lane *lane)
{
	struct tier_req *req = lane_first(lane, 0);
	if (req)
		lane_take(lane, req);
	return req;
}
