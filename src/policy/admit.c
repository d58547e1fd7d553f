/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission to flash under a write budget. See admit.h.
 * Threads: one owner. Memory: the caller's.
 */
#include "policy/admit.h"

#include "base/check.h"

#define DAY_S 86400.0

void admit_budget_init(struct admit_budget *budget, uint64_t bytes_day, uint64_t least_bytes, uint64_t now_ns)
{
	double rate = (double)bytes_day / DAY_S, max = rate * ADMIT_WINDOW_S;
	if (max < (double)least_bytes)
		max = (double)least_bytes;
	*budget = (struct admit_budget){.rate_bytes_s = rate, .max_bytes = max, .left_bytes = max, .time_ns = now_ns};
}

void admit_budget_fill(struct admit_budget *budget, uint64_t now_ns)
{
	if (now_ns <= budget->time_ns)
		return;
	budget->left_bytes += budget->rate_bytes_s * ((double)(now_ns - budget->time_ns) / 1e9);
	budget->time_ns = now_ns;
	if (budget->left_bytes > budget->max_bytes)
		budget->left_bytes = budget->max_bytes;
}

void admit_budget_charge(struct admit_budget *budget, uint64_t bytes)
{
	if (budget->rate_bytes_s > 0)
		budget->left_bytes -= (double)bytes;
}

double admit_budget_left(const struct admit_budget *budget)
{
	if (!(budget->rate_bytes_s > 0))
		return 1;
	double left = budget->left_bytes / budget->max_bytes;
	return left < 0 ? 0 : left;
}

double admit_odds(double left, int returned)
{
	double odds = returned ? 2 * left : 2 * left - 1;
	return odds < 0 ? 0 : odds > 1 ? 1 : odds;
}

static uint64_t mix(uint64_t value)
{
	value += 0x9e3779b97f4a7c15u;
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
	value = (value ^ value >> 27) * 0x94d049bb133111ebu;
	return value ^ value >> 31;
}

double admit_lot(uint64_t root, int returned, uint64_t seed)
{
	return (double)(mix(mix(root ^ seed) + (returned ? 2 : 1)) >> 11) * 0x1p-53;
}

int admit_chain(struct admit *admit, uint64_t root, int returned, double left)
{
	check(admit->ncells >= ADMIT_WAYS && admit->ncells % ADMIT_WAYS == 0);
	uint64_t hash = mix(root ^ ~admit->seed);
	struct admit_cell *set = &admit->cells[hash % (admit->ncells / ADMIT_WAYS) * ADMIT_WAYS], *cell = &set[0];
	uint32_t tag = (uint32_t)(hash >> 32) | 1;
	uint8_t draw = returned ? 2 : 1;
	for (int i = 0; i < ADMIT_WAYS; i++) {
		if (set[i].tag == tag) {
			cell = &set[i];
			break;
		}
		uint16_t age = (uint16_t)(admit->clock - set[i].age), oldest = (uint16_t)(admit->clock - cell->age);
		if (cell->tag && (!set[i].tag || age > oldest))
			cell = &set[i];
	}
	/* A chain that is in keeps its place when it returns: only one that was refused has something to win. */
	if (cell->tag != tag || (cell->drawn < draw && !cell->verdict)) {
		cell->verdict = admit_lot(root, returned, admit->seed) < admit_odds(left, returned);
		cell->drawn = draw;
		cell->tag = tag;
	}
	cell->age = ++admit->clock;
	return cell->verdict;
}
