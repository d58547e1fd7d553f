/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recency lists of the memory tier: one for each class of the index and tenant, one of what was closed; and the choice
 * of what is evicted. docs/POLICY.md has the rules.
 *
 * Threads: under the store's lock. Memory: the slots' own.
 * Invariant: a list's `tail`, where it is known, is the last from the newest on with the newest's time of use.
 */
#include "base/check.h"
#include "policy/watch.h"
#include "tier/memory_in.h"

/* Steps that memory_victim takes over parts in use: about a millisecond. */
#define VICTIM_STEPS 16384u

static struct memory_list *list_of(struct memory *memory, const struct memory_slot *s)
{
	return &memory->tenants[s->tenant].lists[s->list];
}

int recent_has(const struct memory *memory, uint32_t slot)
{
	const struct memory_slot *s = &memory->slots[slot];
	return s->newer || s->older || memory->tenants[s->tenant].lists[s->list].newest == slot;
}

void recent_remove(struct memory *memory, uint32_t slot)
{
	struct memory_slot *s = &memory->slots[slot];
	struct memory_list *list = list_of(memory, s);
	if (list->tail == slot)
		list->tail = s->newer;
	if (s->list == MEMORY_LEAVING)
		memory->tenants[s->tenant].leaving_bytes -= s->length;
	if (s->newer)
		memory->slots[s->newer].older = s->older;
	else
		list->newest = s->older;
	if (s->older)
		memory->slots[s->older].newer = s->newer;
	else
		list->oldest = s->newer;
	s->newer = s->older = 0;
}

int recent_busy(const struct memory *memory, uint32_t slot)
{
	const struct memory_policy *policy = &memory->policy;
	return memory->slots[slot].refs || (policy->held && policy->held(policy->arg, slot));
}

void memory_policy(struct memory *memory, const struct memory_policy *policy)
{
	memory->policy = *policy;
}

void memory_time(struct memory *memory, uint32_t now)
{
	memory->now = now;
}

void memory_touch(struct memory *memory, uint32_t slot, uint32_t list)
{
	struct memory_slot *s = memory_slot(memory, slot);
	check(s->state == MEMORY_READY && list < MEMORY_LISTS);
	if (recent_has(memory, slot))
		recent_remove(memory, slot);
	s->list = (uint8_t)list;
	s->used = memory->now;
	struct memory_list *l = list_of(memory, s);
	if (list == MEMORY_LEAVING)
		memory->tenants[s->tenant].leaving_bytes += s->length;
	if (!l->newest || memory->slots[l->newest].used != s->used)
		l->tail = slot;
	s->older = l->newest;
	if (l->newest)
		memory->slots[l->newest].newer = slot;
	else
		l->oldest = slot;
	l->newest = slot;
}

void memory_touch_behind(struct memory *memory, uint32_t slot, uint32_t ahead)
{
	struct memory_slot *s = memory_slot(memory, slot), *a = memory_slot(memory, ahead);
	check(s->state == MEMORY_READY && a->state == MEMORY_READY && a->tenant == s->tenant && slot != ahead);
	check(recent_has(memory, ahead) && a->list != MEMORY_LEAVING);
	if (recent_has(memory, slot))
		recent_remove(memory, slot);
	struct memory_list *list = list_of(memory, a);
	s->list = a->list;
	s->used = a->used;
	s->newer = ahead;
	s->older = a->older;
	if (a->older)
		memory->slots[a->older].newer = slot;
	else
		list->oldest = slot;
	a->older = slot;
	if (list->tail == ahead)
		list->tail = slot;
}

/* ---- choice ------------------------------------------------------------------------------------------------------ */

/* The oldest of a list that may go, or 0; those on the way are younger now. */
static uint32_t oldest_free(struct memory *memory, uint32_t tenant, uint32_t list, uint32_t *steps)
{
	const struct memory_list *l = &memory->tenants[tenant].lists[list];
	uint32_t first = 0; /* the first one moved: met again, a whole lap was in use */
	for (uint32_t slot; (slot = l->oldest) && slot != first && *steps < VICTIM_STEPS; ++*steps) {
		check(memory->slots[slot].state == MEMORY_READY);
		if (!recent_busy(memory, slot))
			return slot;
		memory_touch(memory, slot, list);
		first = first ? first : slot;
	}
	return 0;
}

/* The tail of a list's newest request. 0: it is in use, and then what comes before it in the chain must stay too. */
static uint32_t newest_free(struct memory *memory, uint32_t tenant, uint32_t list)
{
	struct memory_list *l = &memory->tenants[tenant].lists[list];
	if (!l->newest)
		return 0;
	if (!l->tail) {
		l->tail = l->newest;
		for (uint32_t older; (older = memory->slots[l->tail].older); l->tail = older)
			if (memory->slots[older].used != memory->slots[l->tail].used)
				break;
	}
	return recent_busy(memory, l->tail) ? 0 : l->tail;
}

uint64_t memory_leaving(const struct memory *memory, uint32_t tenant)
{
	check(tenant < MEMORY_TENANTS_MAX);
	return memory->tenants[tenant].leaving_bytes;
}

uint32_t memory_victim(struct memory *memory, uint32_t tenant)
{
	uint32_t steps = 0;
	check(tenant < MEMORY_TENANTS_MAX);
	uint32_t slot = oldest_free(memory, tenant, MEMORY_LEAVING, &steps);
	return slot ? slot : memory_next(memory, tenant);
}

uint32_t memory_next(struct memory *memory, uint32_t tenant)
{
	struct index_candidate candidates[INDEX_CANDIDATES];
	uint32_t slots[INDEX_CANDIDATES], steps = 0, oldest = 0;
	check(tenant < MEMORY_TENANTS_MAX);
	uint32_t closed = oldest_free(memory, tenant, MEMORY_CLOSED, &steps);
	if (closed)
		return closed;
	for (uint32_t class = 0; class < INDEX_CLASSES; class++) {
		slots[2 * class] = oldest_free(memory, tenant, class, &steps);
		slots[2 * class + 1] = memory->policy.table ? newest_free(memory, tenant, class) : 0;
	}
	for (uint32_t i = 0; i < INDEX_CANDIDATES; i++) {
		/* A use may be told a little after a later one: then it is of now. */
		int32_t age = slots[i] ? (int32_t)(memory->now - memory->slots[slots[i]].used) : 0;
		candidates[i].class = i / 2;
		candidates[i].age_s = slots[i] ? (age > 0 ? age : 0) / WATCH_UNITS_S : -1;
		if (slots[i] && (!oldest || candidates[i].age_s > candidates[oldest - 1].age_s))
			oldest = i + 1;
	}
	if (!memory->policy.table)
		return oldest ? slots[oldest - 1] : 0;
	int choice = index_choose(memory->policy.table, candidates, INDEX_CANDIDATES);
	return choice < 0 ? 0 : slots[choice];
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

uint32_t recent_check(const struct memory *memory, uint32_t tenant)
{
	const struct memory_tenant *t = &memory->tenants[tenant];
	uint32_t listed = 0;
	uint64_t leaving = 0;
	for (uint32_t list = 0; list < MEMORY_LISTS; list++) {
		const struct memory_list *l = &t->lists[list];
		uint32_t tail = 0;
		for (uint32_t slot = l->newest, newer = 0; slot; newer = slot, slot = memory->slots[slot].older) {
			const struct memory_slot *s = &memory->slots[slot];
			check(s->newer == newer && s->state == MEMORY_READY && s->tenant == tenant && s->list == list);
			check(++listed <= t->slots && (s->older || l->oldest == slot));
			leaving += list == MEMORY_LEAVING ? s->length : 0;
			if (tail == newer && s->used == memory->slots[l->newest].used)
				tail = slot;
		}
		check(l->newest ? !l->tail || l->tail == tail : !l->oldest && !l->tail);
	}
	check(leaving == t->leaving_bytes);
	return listed;
}
