/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sample of blocks that the index learns from. See watch.h.
 * Threads: one owner. Memory: the caller's.
 */
#include "policy/watch.h"

#include "base/check.h"

#define MINUTE ((uint32_t)(60 * WATCH_UNITS_S))
#define MINUTES_MAX 240u /* made up for after a long pause: by then half of everything has faded anyway */

static uint32_t *bucket_of(struct watch *watch, uint64_t print)
{
	return &watch->cells[watch_mixed(print) >> 40 & (watch->ncells - 1)].bucket;
}

static double age_of(const struct watch_cell *cell, uint32_t now)
{
	return (uint32_t)(now - cell->used) / WATCH_UNITS_S;
}

void watch_init(struct watch *watch, struct watch_cell *cells, uint32_t ncells, uint32_t now)
{
	check(ncells >= 16 && !(ncells & (ncells - 1)) && ncells <= 1u << 24);
	*watch = (struct watch){.cells = cells, .ncells = ncells, .share = 1, .minute = now};
	for (uint32_t i = 0; i < ncells; i++)
		cells[i].next = i + 2 <= ncells ? i + 2 : 0;
	watch->free = 1;
	index_init(&watch->table);
}

static void forget(struct watch *watch, uint32_t index)
{
	struct watch_cell *cell = &watch->cells[index];
	uint32_t *link = bucket_of(watch, cell->print);
	while (*link != index + 1)
		link = &watch->cells[*link - 1].next;
	*link = cell->next;
	cell->print = 0;
	cell->next = watch->free;
	watch->free = index + 1;
	watch->watched--;
}

static void make_room(struct watch *watch)
{
	for (int again = 0; watch->watched > watch->ncells / 4 * 3; again++) {
		watch->share *= again ? 2 : 1;
		for (uint32_t i = 0; i < watch->ncells; i++) {
			const struct watch_cell *cell = &watch->cells[i];
			if (cell->print && (cell->seen == INDEX_AGES || !watch_wants(watch, cell->print)))
				forget(watch, i);
		}
	}
}

void watch_use(struct watch *watch, uint64_t print, uint32_t class, uint32_t now)
{
	check(class < INDEX_CLASSES);
	print += !print;
	if (!watch_wants(watch, print))
		return;
	uint32_t at = *bucket_of(watch, print);
	while (at && watch->cells[at - 1].print != print)
		at = watch->cells[at - 1].next;
	if (at) {
		const struct watch_cell *cell = &watch->cells[at - 1];
		index_again(&watch->table, cell->class, age_of(cell, now), cell->seen, watch->share);
	} else {
		if (!watch->free)
			make_room(watch);
		if (!watch_wants(watch, print))
			return;
		at = watch->free;
		uint32_t *bucket = bucket_of(watch, print);
		watch->free = watch->cells[at - 1].next;
		watch->cells[at - 1].print = print;
		watch->cells[at - 1].next = *bucket;
		*bucket = at;
		watch->watched++;
	}
	watch->cells[at - 1].used = now;
	watch->cells[at - 1].class = (uint8_t)class;
	watch->cells[at - 1].seen = 0;
}

uint32_t watch_minutes(struct watch *watch, uint32_t now)
{
	uint32_t minutes = (uint32_t)(now - watch->minute) / MINUTE;
	if (minutes > MINUTES_MAX) {
		watch->minute = now - MINUTES_MAX * MINUTE;
		minutes = MINUTES_MAX;
	}
	for (uint32_t i = 0; i < minutes; i++) {
		watch->minute += MINUTE;
		/* A use may be younger than a minute that ended before it was told. */
		for (uint32_t c = 0; c < watch->ncells; c++) {
			struct watch_cell *cell = &watch->cells[c];
			if (cell->print && cell->seen < INDEX_AGES && (int32_t)(watch->minute - cell->used) >= 0)
				index_reach(&watch->table, cell->class, age_of(cell, watch->minute), &cell->seen, watch->share);
		}
		index_minute(&watch->table);
	}
	return minutes;
}
