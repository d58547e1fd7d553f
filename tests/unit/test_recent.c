/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of tier/recent.c: lists of classes and the choice between them, against a plain reading of the rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "policy/watch.h"
#include "tier/memory.h"

#define MIB (1u << 20)
enum { UNITS = (int)WATCH_UNITS_S, PARTS = 200 };

static struct index_table table;

/* Newcomers (class 1) are worth less than what was used twice, at any age. It falls with age, but in odd classes what
 * is very young is worth least: nobody thinks that fast. */
static void table_make(void)
{
	index_init(&table);
	for (uint32_t class = 0; class < INDEX_CLASSES; class++)
		for (uint32_t a = 0; a < INDEX_AGES; a++)
			table.index[class][a] =
				(class == 1 ? 1.0 : class == 2 ? 100.0 : 30.0) / (class % 2 && a < 3 ? 100 : a + 1);
}

static struct memory *open_memory(void)
{
	struct memory *memory;
	assert_int_equal(memory_open(8 * MIB, &memory), 0);
	table_make();
	memory_policy(memory, &(struct memory_policy){.table = &table});
	return memory;
}

static uint32_t take(struct memory *memory, uint32_t list)
{
	uint32_t slot = memory_take(memory, 0, 4096);
	assert_int_not_equal(slot, 0);
	memory_slot(memory, slot)->state = MEMORY_READY;
	memory_slot(memory, slot)->refs = 0;
	memory_touch(memory, slot, list);
	return slot;
}

static void test_recent__newest_request_goes_from_its_tail(void **state)
{
	struct memory *memory = open_memory();
	uint32_t old[3], new[3];
	(void)state;
	memory_time(memory, 0);
	for (int i = 0; i < 3; i++)
		old[i] = take(memory, 2);
	uint32_t older = take(memory, 1); /* worth more than what is very young */
	memory_time(memory, 100 * UNITS);
	for (int i = 0; i < 3; i++)
		new[i] = take(memory, 1); /* tail first */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(memory_victim(memory, 0), new[i]);
		memory_free(memory, new[i]);
		memory_check(memory);
	}
	assert_int_equal(memory_victim(memory, 0), older);
	memory_free(memory, older);
	assert_int_equal(memory_victim(memory, 0), old[0]);
	memory_close(memory);
}

static void test_recent__newest_request_stays_when_its_tail_is_in_use(void **state)
{
	struct memory *memory = open_memory();
	(void)state;
	memory_time(memory, 0);
	uint32_t old = take(memory, 3);
	memory_time(memory, 2 * UNITS);
	uint32_t tail = take(memory, 1), head = take(memory, 1);
	memory_slot(memory, tail)->refs = 1;
	/* The oldest of its list is in use too: it moves to the young end, and its head is the oldest then. */
	assert_int_equal(memory_victim(memory, 0), head);
	memory_slot(memory, head)->refs = 1;
	assert_int_equal(memory_victim(memory, 0), old);
	memory_check(memory);
	memory_close(memory);
}

static void test_recent__closed_ones_go_first_and_in_order(void **state)
{
	struct memory *memory = open_memory();
	uint32_t slot[4];
	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		memory_time(memory, i * 50 * UNITS);
		slot[i] = take(memory, i % 2 + 1);
	}
	memory_touch(memory, slot[3], MEMORY_CLOSED);
	memory_touch(memory, slot[1], MEMORY_CLOSED);
	assert_int_equal(memory_victim(memory, 0), slot[3]);
	memory_free(memory, slot[3]);
	assert_int_equal(memory_victim(memory, 0), slot[1]);
	memory_touch(memory, slot[1], 2); /* it came back all the same */
	assert_int_equal(memory_victim(memory, 0), slot[0]);
	memory_check(memory);
	memory_close(memory);
}

/* ---- against a plain reading ------------------------------------------------------------------------------------- */

struct part {
	uint32_t slot, list, used;
	uint64_t order; /* in its list: higher is younger */
};
struct model {
	struct part parts[PARTS];
	uint32_t n, now;
	uint64_t order;
};

static const struct part *end_of(const struct model *model, uint32_t list, int newest)
{
	const struct part *end = NULL;
	for (uint32_t i = 0; i < model->n; i++) {
		const struct part *p = &model->parts[i];
		if (p->list == list && (!end || (newest ? p->order > end->order : p->order < end->order)))
			end = p;
	}
	return end;
}

/* The oldest of those that were used together with the newest. Times never go back, so they lie side by side. */
static const struct part *tail_of(const struct model *model, uint32_t list)
{
	const struct part *newest = end_of(model, list, 1), *tail = newest;
	for (uint32_t i = 0; newest && i < model->n; i++) {
		const struct part *p = &model->parts[i];
		if (p->list == list && p->used == newest->used && p->order < tail->order)
			tail = p;
	}
	return tail;
}

static uint32_t model_victim(const struct model *model)
{
	const struct part *best = end_of(model, MEMORY_CLOSED, 0);
	double least = 0, best_age = 0;
	if (best)
		return best->slot;
	for (uint32_t i = 0; i < 2 * INDEX_CLASSES; i++) {
		const struct part *p = i % 2 ? tail_of(model, i / 2) : end_of(model, i / 2, 0);
		double age = p ? (model->now - p->used) / WATCH_UNITS_S : 0;
		double index = p ? table.index[i / 2][index_bucket(age)] : 0;
		if (p && (!best || index < least || (index == least && age > best_age))) {
			best = p;
			least = index;
			best_age = age;
		}
	}
	return best ? best->slot : 0;
}

static void model_step(struct model *model, struct memory *memory, struct random *random)
{
	uint64_t what = random_below(random, 10);
	struct part *part = &model->parts[random_below(random, model->n ? model->n : 1)];
	if (random_below(random, 4) == 0)
		memory_time(memory, model->now += (uint32_t)random_below(random, 40));
	if (!model->n || (what < 4 && model->n < PARTS)) {
		uint32_t list = (uint32_t)random_below(random, INDEX_CLASSES);
		model->parts[model->n++] = (struct part){take(memory, list), list, model->now, ++model->order << 20};
	} else if (what < 6) {
		part->list = (uint32_t)random_below(random, INDEX_CLASSES);
		part->used = model->now;
		part->order = ++model->order << 20;
		memory_touch(memory, part->slot, part->list);
	} else if (what < 7) {
		const struct part *ahead = &model->parts[random_below(random, model->n)];
		if (ahead == part)
			return;
		memory_touch_behind(memory, part->slot, ahead->slot);
		part->order = 0; /* out of the way, while what lies behind is looked for */
		uint64_t behind = 0;
		for (uint32_t i = 0; i < model->n; i++)
			if (model->parts[i].list == ahead->list && model->parts[i].order < ahead->order &&
			    model->parts[i].order > behind)
				behind = model->parts[i].order;
		part->list = ahead->list;
		part->used = ahead->used;
		part->order = behind + (ahead->order - behind) / 2;
	} else if (what < 8) {
		if (random_below(random, 4) || part->list == MEMORY_CLOSED)
			return;
		memory_touch(memory, part->slot, MEMORY_CLOSED);
		part->list = MEMORY_CLOSED;
		part->used = model->now;
		part->order = ++model->order << 20;
	} else {
		uint32_t victim = memory_victim(memory, 0), i = 0;
		assert_int_equal(victim, model_victim(model));
		while (model->parts[i].slot != victim)
			i++;
		memory_free(memory, victim);
		model->parts[i] = model->parts[--model->n];
	}
}

static void test_recent__victims_are_those_of_the_rules_when_random(void **state)
{
	static struct model model;
	struct random random;
	(void)state;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct memory *memory = open_memory();
		model = (struct model){.now = 1000};
		memory_time(memory, 1000);
		random_init(&random, seed);
		for (int i = 0; i < 6000; i++) {
			model_step(&model, memory, &random);
			if (i % 16 == 0)
				memory_check(memory);
		}
		memory_close(memory);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_recent__newest_request_goes_from_its_tail),
		cmocka_unit_test(test_recent__newest_request_stays_when_its_tail_is_in_use),
		cmocka_unit_test(test_recent__closed_ones_go_first_and_in_order),
		cmocka_unit_test(test_recent__victims_are_those_of_the_rules_when_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
