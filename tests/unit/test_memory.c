/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of tier/memory.c: runs against a map of cells that the test keeps itself, contents by a pattern, the recency
 * list against an array, seals against the kernel. One thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/random.h"
#include "cairn/cairn.h"
#include "tier/memory.h"

#define MIB (1u << 20)
#define BUDGET (8 * MIB)
#define EXTENT (2 * MIB)
#define TENANTS 5u
#define PARTS_MAX 2048u
#define CELLS (BUDGET / MEMORY_CELL)

static struct memory *open_memory(uint64_t budget)
{
	struct memory *memory = NULL;
	assert_int_equal(memory_open(budget, &memory), 0);
	memory_check(memory);
	return memory;
}

static uint32_t take_ready(struct memory *memory, uint32_t tenant, uint32_t length)
{
	uint32_t slot = memory_take(memory, tenant, length);
	if (!slot)
		return 0;
	struct memory_slot *s = memory_slot(memory, slot);
	assert_int_equal(s->state, MEMORY_FILLING);
	assert_int_equal(s->refs, 1);
	assert_int_equal(s->tenant, tenant);
	assert_int_equal(s->length, length);
	s->state = MEMORY_READY;
	s->refs = 0;
	memory_touch(memory, slot, 0);
	return slot;
}

static void free_all(struct memory *memory, uint32_t tenant)
{
	uint32_t slot;
	while ((slot = memory_victim(memory, tenant)))
		memory_free(memory, slot);
}

/* Takes for a tenant as the store does: its own victims first, then those of others. The number evicted is added up. */
static uint32_t take_evicting(struct memory *memory, uint32_t tenant, uint32_t length, uint32_t *evicted)
{
	for (;;) {
		uint32_t slot = take_ready(memory, tenant, length);
		if (slot)
			return slot;
		uint32_t victim = memory_victim(memory, tenant);
		if (!victim)
			victim = memory_victim_elsewhere(memory, tenant);
		if (!victim)
			return 0;
		memory_free(memory, victim);
		memory_check(memory);
		++*evicted;
	}
}

/* ---- the model -------------------------------------------------------------------------------------------------- */

struct part {
	uint32_t slot, length, tenant, listed;
	uint8_t fill;
};

struct model {
	struct random random;
	struct memory *memory;
	struct part parts[PARTS_MAX];
	uint32_t nparts;
	uint32_t order[2][TENANTS][PARTS_MAX]; /* slots, oldest first; [1]: of what is closed, which goes first */
	uint32_t norder[2][TENANTS];
	uint32_t cells[CELLS];              /* slot that lies there, or 0 */
	uint64_t used_bytes;
};

static uint32_t room_of(uint32_t length)
{
	if (length > MEMORY_PAGE / 2)
		return (length + MEMORY_PAGE - 1) / MEMORY_PAGE * MEMORY_PAGE;
	uint32_t room = MEMORY_CELL;
	while (room < length)
		room *= 2;
	return room;
}

static void mark_cells(struct model *model, const struct part *part, uint32_t from, uint32_t to)
{
	uint32_t first = memory_slot(model->memory, part->slot)->cell, n = room_of(part->length) / MEMORY_CELL;
	assert_true(first + n <= CELLS);
	assert_int_equal(first / (EXTENT / MEMORY_CELL), (first + n - 1) / (EXTENT / MEMORY_CELL));
	for (uint32_t cell = first; cell < first + n; cell++) {
		assert_int_equal(model->cells[cell], from);
		model->cells[cell] = to;
	}
}

/* The first and last bytes, and one in each 512 between. */
static void fill(struct model *model, const struct part *part)
{
	uint8_t *bytes = memory_address(model->memory, part->slot);
	assert_int_equal((uintptr_t)bytes % MEMORY_CELL, 0);
	for (uint32_t i = 0; i < part->length; i += 512)
		bytes[i] = (uint8_t)(part->fill + i / 512);
	bytes[part->length - 1] = part->fill;
}

static void assert_filled(struct model *model, const struct part *part)
{
	const uint8_t *bytes = memory_address(model->memory, part->slot);
	for (uint32_t i = 0; i + 1 < part->length; i += 512)
		assert_int_equal(bytes[i], (uint8_t)(part->fill + i / 512));
	assert_int_equal(bytes[part->length - 1], part->fill);
}

static void order_remove(struct model *model, uint32_t tenant, uint32_t slot)
{
	for (int closed = 0; closed < 2; closed++) {
		uint32_t *order = model->order[closed][tenant], n = model->norder[closed][tenant], i = 0;
		while (i < n && order[i] != slot)
			i++;
		if (i == n)
			continue;
		memmove(order + i, order + i + 1, (n - i - 1) * sizeof *order);
		model->norder[closed][tenant]--;
	}
}

static void order_add(struct model *model, uint32_t tenant, uint32_t slot, int closed)
{
	order_remove(model, tenant, slot);
	model->order[closed][tenant][model->norder[closed][tenant]++] = slot;
}

static uint32_t order_victim(struct model *model, uint32_t tenant)
{
	for (int closed = 2; closed-- > 0;)
		for (uint32_t n = model->norder[closed][tenant]; n; n--) {
			uint32_t slot = model->order[closed][tenant][0];
			if (!memory_slot(model->memory, slot)->refs)
				return slot;
			order_add(model, tenant, slot, closed);
		}
	return 0;
}

static uint32_t random_length(struct random *random)
{
	switch (random_below(random, 8)) {
	case 0:
		return 1 + (uint32_t)random_below(random, EXTENT);
	case 1:
	case 2:
		return 1 + (uint32_t)random_below(random, 4 * MEMORY_PAGE);
	case 3:
		return MEMORY_CELL << random_below(random, 6);
	default:
		return 1 + (uint32_t)random_below(random, MEMORY_PAGE);
	}
}

static void model_take(struct model *model)
{
	struct part *part = &model->parts[model->nparts];
	*part = (struct part){.tenant = (uint32_t)random_below(&model->random, TENANTS)};
	part->length = random_length(&model->random);
	part->fill = (uint8_t)random_next(&model->random);
	part->slot = memory_take(model->memory, part->tenant, part->length);
	if (!part->slot) {
		order_victim(model, part->tenant); /* take may have looked for one, which moves those in use */
		assert_int_equal(memory_victim(model->memory, part->tenant), order_victim(model, part->tenant));
		return;
	}
	model->nparts++;
	model->used_bytes += room_of(part->length);
	mark_cells(model, part, 0, part->slot);
	fill(model, part);
	if (random_chance(&model->random, 900000)) {
		struct memory_slot *s = memory_slot(model->memory, part->slot);
		s->state = MEMORY_READY;
		s->refs = (uint16_t)random_below(&model->random, 2);
		memory_touch(model->memory, part->slot, 0);
		order_add(model, part->tenant, part->slot, 0);
		part->listed = 1;
	}
}

static void model_free(struct model *model, uint32_t i)
{
	struct part part = model->parts[i];
	assert_filled(model, &part);
	mark_cells(model, &part, part.slot, 0);
	order_remove(model, part.tenant, part.slot);
	model->used_bytes -= room_of(part.length);
	memory_slot(model->memory, part.slot)->refs = (uint16_t)random_below(&model->random, 2);
	memory_free(model->memory, part.slot);
	model->parts[i] = model->parts[--model->nparts];
}

static uint32_t model_find(const struct model *model, uint32_t slot)
{
	for (uint32_t i = 0; i < model->nparts; i++) {
		if (model->parts[i].slot == slot)
			return i;
	}
	fail_msg("slot %u is not one that was taken", slot);
	return 0;
}

static void model_victim(struct model *model, uint32_t tenant)
{
	uint32_t slot = memory_victim(model->memory, tenant);
	assert_int_equal(slot, order_victim(model, tenant));
	if (slot)
		model_free(model, model_find(model, slot));
}

static void model_elsewhere(struct model *model, uint32_t tenant)
{
	uint32_t slot = memory_victim_elsewhere(model->memory, tenant);
	if (!slot)
		return;
	const struct memory_slot *s = memory_slot(model->memory, slot);
	assert_true(s->tenant != tenant && s->state == MEMORY_READY && !s->refs);
	assert_true(memory_tenant_bytes(model->memory, s->tenant) > memory_tenant_bytes(model->memory, tenant));
	model_free(model, model_find(model, slot));
}

/* takes: of 16 steps, how many take. */
static void model_step(struct model *model, uint64_t takes)
{
	uint64_t what = random_below(&model->random, 16);
	uint32_t i = (uint32_t)random_below(&model->random, model->nparts);
	struct part *part = &model->parts[i];
	if (what < takes || !model->nparts) {
		if (model->nparts < PARTS_MAX)
			model_take(model);
	} else if (what < 9) {
		model_free(model, i);
	} else if (what < 11) {
		model_victim(model, (uint32_t)random_below(&model->random, TENANTS));
	} else if (what < 12) {
		model_elsewhere(model, (uint32_t)random_below(&model->random, TENANTS));
	} else if (part->listed && what < 15) {
		if (what < 14)
			memory_touch(model->memory, part->slot, 0);
		else
			memory_touch(model->memory, part->slot, MEMORY_CLOSED);
		order_add(model, part->tenant, part->slot, what >= 14);
	} else if (part->listed) {
		memory_slot(model->memory, part->slot)->refs ^= 1;
	}
}

static void assert_extents_apart(struct model *model)
{
	uint32_t tenants[BUDGET / EXTENT];
	memset(tenants, 0xff, sizeof tenants);
	for (uint32_t i = 0; i < model->nparts; i++) {
		uint32_t *tenant = &tenants[memory_slot(model->memory, model->parts[i].slot)->cell / (EXTENT / MEMORY_CELL)];
		assert_true(*tenant == UINT32_MAX || *tenant == model->parts[i].tenant);
		*tenant = model->parts[i].tenant;
	}
	struct memory_stat stat;
	memory_stat(model->memory, &stat);
	assert_int_equal(stat.used_bytes, model->used_bytes);
	assert_int_equal(stat.slots, model->nparts);
}

static void run_model(uint64_t seed, uint32_t steps)
{
	struct model *model = calloc(1, sizeof *model);
	assert_non_null(model);
	random_init(&model->random, seed);
	model->memory = open_memory(BUDGET);
	for (uint32_t step = 0; step < steps; step++) {
		model_step(model, step / 300 % 2 ? 5 : 9); /* fuller and emptier by turns */
		memory_check(model->memory);
		assert_extents_apart(model);
	}
	while (model->nparts)
		model_free(model, model->nparts - 1);
	/* All of it is found again, in one piece per extent. */
	for (uint32_t i = 0; i < BUDGET / EXTENT; i++)
		assert_int_not_equal(memory_take(model->memory, i % 2, EXTENT), 0);
	memory_check(model->memory);
	assert_int_equal(memory_take(model->memory, 0, 1), 0);
	memory_close(model->memory);
	free(model);
}

/* ---- tests ------------------------------------------------------------------------------------------------------ */

static void test_memory__runs_never_overlap_when_random(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 6; seed++)
		run_model(seed, 2500);
}

static void test_memory__open_rounds_the_budget_when_odd(void **state)
{
	static const struct {
		uint64_t budget, capacity;
		uint32_t part_max;
	} table[] = {
		{8 * MIB, 8 * MIB, 2 * MIB},
		{8 * MIB + 1, 8 * MIB, 2 * MIB},
		{9 * MIB, 9 * MIB, 9 * MIB / 4},
		{9 * MIB + 4 * MEMORY_PAGE - 1, 9 * MIB, 9 * MIB / 4},
		{64 * MIB, 64 * MIB, 16 * MIB},
	};
	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct memory *memory = open_memory(table[i].budget);
		struct memory_stat stat;
		memory_stat(memory, &stat);
		assert_int_equal(stat.capacity_bytes, table[i].capacity);
		assert_int_equal(stat.slots_max, table[i].budget / 16384 > 1024 ? table[i].budget / 16384 : 1024);
		assert_int_equal(memory_part_max(memory), table[i].part_max);
		for (int extent = 0; extent < 4; extent++)
			assert_int_not_equal(memory_take(memory, 0, table[i].part_max), 0);
		assert_int_equal(memory_take(memory, 0, 1), 0);
		memory_check(memory);
		memory_close(memory);
	}
}

static void test_memory__open_refuses_when_too_small_or_too_large(void **state)
{
	struct memory *memory = NULL;
	(void)state;
	assert_int_equal(memory_open(8 * MIB - 1, &memory), CAIRN_E_INVAL);
	assert_int_equal(memory_open(UINT64_MAX, &memory), CAIRN_E_INVAL);
	assert_null(memory);
	memory_close(NULL);
}

static void test_memory__open_leaves_nothing_when_allocation_fails(void **state)
{
	(void)state;
	for (uint64_t n = 1;; n++) {
		struct memory *memory = NULL;
		mem_fail_at(n, 0);
		int status = memory_open(BUDGET, &memory);
		int failed = mem_failed();
		mem_fail_at(0, 0);
		if (!failed) {
			assert_int_equal(status, 0);
			memory_close(memory);
			break;
		}
		assert_int_equal(status, CAIRN_E_NOMEM);
		assert_null(memory);
	}
}

static struct rlimit limit_to(int resource, rlim_t value)
{
	struct rlimit old, new;
	assert_int_equal(getrlimit(resource, &old), 0);
	new = old;
	new.rlim_cur = value;
	assert_int_equal(setrlimit(resource, &new), 0);
	return old;
}

static void test_memory__open_leaves_nothing_when_the_system_refuses(void **state)
{
	struct memory *memory = NULL;
	int next = dup(0);
	(void)state;
	assert_true(next >= 0);
	close(next);
	for (int extents = 0; extents < 4; extents++) {
		struct rlimit old = limit_to(RLIMIT_NOFILE, (rlim_t)(next + extents));
		int status = memory_open(BUDGET, &memory);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
		assert_int_equal(status, CAIRN_E_NOMEM);
	}
	void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
	struct rlimit old = limit_to(RLIMIT_FSIZE, EXTENT - 1);
	int status = memory_open(BUDGET, &memory);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	signal(SIGXFSZ, handler);
	assert_int_equal(status, CAIRN_E_NOMEM);
	assert_null(memory);
	int again = dup(0); /* no file was left open */
	assert_int_equal(again, next);
	close(again);
}

static void test_memory__extent_is_zeroed_when_it_cannot_be_made_anew(void **state)
{
	struct memory *memory = open_memory(BUDGET);
	uint32_t slot[4];
	(void)state;
	for (int i = 0; i < 4; i++) {
		slot[i] = take_ready(memory, 0, EXTENT);
		memset(memory_address(memory, slot[i]), 0x77, EXTENT);
	}
	memory_free(memory, slot[2]);
	struct rlimit old = limit_to(RLIMIT_NOFILE, 3);
	uint32_t taken = memory_take(memory, 1, EXTENT);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_not_equal(taken, 0);
	const uint8_t *bytes = memory_address(memory, taken);
	for (uint32_t i = 0; i < EXTENT; i++)
		assert_int_equal(bytes[i], 0);
	memory_check(memory);
	memory_close(memory);
}

static void test_memory__take_refuses_when_longer_than_an_extent(void **state)
{
	struct memory *memory = open_memory(BUDGET);
	(void)state;
	assert_int_equal(memory_take(memory, 0, memory_part_max(memory) + 1), 0);
	assert_int_equal(memory_take(memory, 0, UINT32_MAX), 0);
	assert_int_not_equal(memory_take(memory, 0, memory_part_max(memory)), 0);
	memory_close(memory);
}

static void test_memory__small_parts_share_a_page_when_of_one_class(void **state)
{
	static const struct {
		uint32_t length, in_page;
	} table[] = {{1, 16}, {4096, 16}, {4097, 8}, {8192, 8}, {8193, 4}, {16385, 2}, {32768, 2}, {32769, 1}, {65536, 1}};
	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct memory *memory = open_memory(BUDGET);
		struct memory_stat stat;
		uint32_t n = 0;
		while (n < 20 * table[i].in_page && take_ready(memory, 3, table[i].length))
			n++;
		memory_check(memory);
		memory_stat(memory, &stat);
		assert_int_equal(n, 20 * table[i].in_page);
		assert_int_equal(stat.used_bytes, 20 * MEMORY_PAGE);
		free_all(memory, 3);
		memory_check(memory);
		memory_close(memory);
	}
}

static void test_memory__take_stops_when_slots_run_out(void **state)
{
	struct memory *memory = open_memory(BUDGET);
	uint32_t evicted = 0;
	(void)state;
	for (uint32_t i = 0; i < 1024; i++)
		assert_int_not_equal(take_ready(memory, 0, 100), 0);
	assert_int_equal(take_ready(memory, 0, 100), 0);
	/* One that has nothing gets a slot from the tenant that has the most. */
	assert_int_equal(memory_victim(memory, 1), 0);
	assert_int_not_equal(take_evicting(memory, 1, 100, &evicted), 0);
	assert_int_equal(evicted, 1);
	memory_check(memory);
	memory_close(memory);
}

static void test_memory__victim_is_the_oldest_when_not_in_use(void **state)
{
	struct memory *memory = open_memory(BUDGET);
	uint32_t slot[4];
	(void)state;
	assert_int_equal(memory_victim(memory, 0), 0);
	uint32_t filling = memory_take(memory, 0, 100);
	assert_int_equal(memory_victim(memory, 0), 0);
	for (int i = 0; i < 4; i++)
		slot[i] = take_ready(memory, 0, 100000);
	assert_int_equal(memory_victim(memory, 0), slot[0]);
	assert_int_equal(memory_victim(memory, 1), 0);
	memory_slot(memory, slot[0])->refs = 1;
	assert_int_equal(memory_victim(memory, 0), slot[1]);
	memory_slot(memory, slot[0])->refs = 0; /* went to the young end when met */
	memory_touch(memory, slot[1], 0);
	assert_int_equal(memory_victim(memory, 0), slot[2]);
	memory_touch(memory, slot[3], MEMORY_CLOSED);
	assert_int_equal(memory_victim(memory, 0), slot[3]);
	uint32_t other = memory_take(memory, 1, 100); /* into an empty list, from its old end */
	memory_slot(memory, other)->state = MEMORY_READY;
	memory_slot(memory, other)->refs = 0;
	memory_touch(memory, other, MEMORY_CLOSED);
	memory_touch(memory, other, MEMORY_CLOSED);
	assert_int_equal(memory_victim(memory, 1), other);
	for (int i = 0; i < 4; i++)
		memory_slot(memory, slot[i])->refs = 1;
	assert_int_equal(memory_victim(memory, 0), 0);
	memory_check(memory);
	memory_slot(memory, filling)->state = MEMORY_FAILED;
	memory_free(memory, filling);
	memory_check(memory);
	memory_close(memory);
}

static void test_memory__victim_is_found_when_many_are_in_use(void **state)
{
	struct memory *memory = open_memory(512ull * MIB);
	uint32_t n = 0, last = 0, slot;
	(void)state;
	while (n < 30000 && (slot = take_ready(memory, 0, 4096))) {
		memory_slot(memory, slot)->refs = 1;
		last = slot;
		n++;
	}
	assert_int_equal(n, 30000);
	memory_slot(memory, last)->refs = 0;
	/* A call takes a bounded number of steps, and the next goes on from there. */
	assert_int_equal(memory_victim(memory, 0), 0);
	assert_int_equal(memory_victim(memory, 0), last);
	memory_check(memory);
	memory_close(memory);
}

static void test_memory__extent_changes_hands_when_others_hold_all(void **state)
{
	struct memory *memory = open_memory(BUDGET);
	uint32_t n = 0, evicted = 0, slot;
	(void)state;
	while ((slot = take_ready(memory, 0, 60000))) {
		memset(memory_address(memory, slot), 0x5a, 60000);
		n++;
	}
	assert_int_equal(n, BUDGET / MEMORY_PAGE);
	assert_int_equal(memory_tenant_bytes(memory, 0), BUDGET);
	slot = take_evicting(memory, 1, 5000, &evicted);
	assert_int_not_equal(slot, 0);
	assert_int_equal(evicted, EXTENT / MEMORY_PAGE); /* one extent, no more */
	assert_int_equal(memory_tenant_bytes(memory, 0), BUDGET - EXTENT);
	assert_int_equal(memory_tenant_bytes(memory, 1), EXTENT);
	/* Nothing of the last tenant is in it. */
	int fd;
	uint64_t offset;
	memory_place(memory, slot, &fd, &offset);
	uint8_t *bytes = mmap(NULL, EXTENT, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(bytes, MAP_FAILED);
	for (uint32_t i = 0; i < EXTENT; i++)
		assert_int_equal(bytes[i], 0);
	((uint8_t *)memory_address(memory, slot))[17] = 9;
	assert_int_equal(bytes[offset + 17], 9);
	munmap(bytes, EXTENT);
	/* The fair share of two is half: the second extent comes, a third does not. */
	assert_int_not_equal(memory_victim_elsewhere(memory, 1), 0);
	assert_int_equal(memory_victim_elsewhere(memory, 0), 0);
	evicted = 0;
	for (uint32_t i = 1; i < EXTENT / MEMORY_PAGE + 1; i++) {
		uint32_t victim;
		while (!(slot = take_ready(memory, 1, 60000)) && (victim = memory_victim_elsewhere(memory, 1))) {
			memory_free(memory, victim);
			evicted++;
		}
		assert_int_not_equal(slot, 0);
	}
	assert_int_equal(memory_tenant_bytes(memory, 1), 2 * EXTENT);
	assert_int_equal(evicted, EXTENT / MEMORY_PAGE);
	assert_int_equal(memory_victim_elsewhere(memory, 1), 0);
	memory_check(memory);
	memory_close(memory);
}

static void test_memory__drain_takes_another_extent_when_parts_are_in_use(void **state)
{
	struct memory *memory = open_memory(BUDGET);
	uint32_t slot, held = 0, evicted = 0, count[4] = {0};
	(void)state;
	/* Of each extent but the third one part is leased. */
	while ((slot = take_ready(memory, 0, MEMORY_PAGE))) {
		uint32_t extent = memory_slot(memory, slot)->cell / (EXTENT / MEMORY_CELL);
		if (!count[extent]++ && extent != 2) {
			memory_slot(memory, slot)->refs = 1;
			held++;
		}
	}
	assert_int_equal(held, 3);
	slot = take_evicting(memory, 1, MEMORY_PAGE, &evicted);
	assert_int_equal(evicted, EXTENT / MEMORY_PAGE);
	assert_int_equal(memory_slot(memory, slot)->cell / (EXTENT / MEMORY_CELL), 2);
	memory_check(memory);
	memory_close(memory);
}

static void test_memory__drain_waits_for_the_last_part_when_all_are_in_use(void **state)
{
	struct memory *memory = open_memory(BUDGET);
	uint32_t slot, held[4] = {0}, evicted = 0, n = 0;
	(void)state;
	while ((slot = take_ready(memory, 0, n % 3 ? MEMORY_PAGE : 5000))) {
		uint32_t extent = memory_slot(memory, slot)->cell / (EXTENT / MEMORY_CELL);
		if (!held[extent]) {
			held[extent] = slot;
			memory_slot(memory, slot)->refs = 1;
		}
		n++;
	}
	assert_int_equal(take_evicting(memory, 1, 100, &evicted), 0);
	memory_check(memory);
	/* What the donor takes and evicts meanwhile does not go into the extent in drain. */
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t none = 0;
		assert_int_not_equal(take_evicting(memory, 0, i % 2 ? 5000 : 70000, &none), 0);
		memory_check(memory);
	}
	for (uint32_t i = 0; i < 4; i++)
		memory_slot(memory, held[i])->refs = 0;
	evicted = 0;
	slot = take_evicting(memory, 1, 100, &evicted);
	assert_int_not_equal(slot, 0);
	assert_int_equal(evicted, 1);
	memory_check(memory);
	memory_close(memory);
}

static void test_memory__drain_ends_when_its_tenant_has_nothing_else(void **state)
{
	struct memory *memory = open_memory(BUDGET);
	uint32_t slot, kept[BUDGET / MEMORY_PAGE], n = 0;
	(void)state;
	while ((slot = take_ready(memory, 0, MEMORY_PAGE)))
		kept[n++] = slot;
	/* The drain has begun, then all that is left comes into use. */
	slot = memory_victim_elsewhere(memory, 1);
	assert_int_not_equal(slot, 0);
	memory_free(memory, slot);
	for (uint32_t i = 0; i < n; i++) {
		if (kept[i] != slot)
			memory_slot(memory, kept[i])->refs = 1;
	}
	assert_int_equal(memory_take(memory, 1, 100), 0);
	assert_int_equal(memory_victim_elsewhere(memory, 1), 0);
	assert_int_not_equal(memory_take(memory, 0, 100), 0);
	memory_check(memory);
	memory_close(memory);
}

static void test_memory__drain_moves_when_another_holds_more(void **state)
{
	struct memory *memory = open_memory(BUDGET);
	uint32_t slot, evicted = 0;
	(void)state;
	/* Two extents each; one of tenant 0 is in drain for tenant 2. Then its other one goes to tenant 1. */
	for (uint32_t i = 0; i < 2 * EXTENT / 5000 && (slot = take_ready(memory, 0, 5000)); i++) {
		if (memory_tenant_bytes(memory, 0) == 2 * EXTENT)
			break;
	}
	for (int i = 0; i < 2; i++)
		assert_int_not_equal(take_ready(memory, 1, EXTENT), 0);
	uint32_t drained = memory_victim_elsewhere(memory, 2);
	assert_int_equal(memory_slot(memory, drained)->tenant, 0);
	uint32_t extent = memory_slot(memory, drained)->cell / (EXTENT / MEMORY_CELL);
	for (uint32_t more = 1; more;) {
		more = 0;
		slot = memory_victim(memory, 0);
		if (memory_slot(memory, slot)->cell / (EXTENT / MEMORY_CELL) != extent) {
			memory_free(memory, slot);
			more = 1;
		}
	}
	assert_int_not_equal(take_ready(memory, 1, EXTENT), 0);
	assert_int_equal(memory_tenant_bytes(memory, 1), 3 * EXTENT);
	slot = take_evicting(memory, 2, EXTENT, &evicted);
	assert_int_not_equal(slot, 0);
	assert_int_equal(evicted, 1);
	assert_int_equal(memory_tenant_bytes(memory, 1), 2 * EXTENT);
	memory_check(memory);
	memory_close(memory);
}

static void test_memory__turns_end_when_tenants_outnumber_extents(void **state)
{
	struct memory *memory = open_memory(BUDGET);
	struct random random;
	(void)state;
	random_init(&random, 7);
	for (uint32_t i = 0; i < 600; i++) {
		uint32_t tenant = (uint32_t)random_below(&random, MEMORY_TENANTS_MAX), evicted = 0;
		assert_int_not_equal(take_evicting(memory, tenant, random_length(&random), &evicted), 0);
		memory_check(memory);
	}
	memory_close(memory);
}

static void test_memory__seals_prevent_writing_and_shrinking_when_shared(void **state)
{
	struct memory *memory = open_memory(BUDGET);
	int fd;
	uint64_t offset;
	(void)state;
	for (int again = 0; again < 2; again++) { /* also of an extent that was made anew */
		uint32_t slot = take_ready(memory, (uint32_t)again, EXTENT), evicted = 0;
		if (!slot)
			slot = take_evicting(memory, (uint32_t)again, EXTENT, &evicted);
		memory_place(memory, slot, &fd, &offset);
		assert_int_equal(offset, 0);
		memcpy(memory_address(memory, slot), "ours", 5); /* the first mapping still writes */
		assert_ptr_equal(mmap(NULL, EXTENT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
		assert_int_equal(errno, EPERM);
		assert_int_equal(pwrite(fd, "x", 1, 0), -1);
		assert_int_equal(errno, EPERM);
		assert_int_equal(ftruncate(fd, EXTENT / 2), -1);
		assert_int_equal(errno, EPERM);
		assert_int_equal(ftruncate(fd, 2 * EXTENT), -1);
		assert_int_equal(errno, EPERM);
		assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, EXTENT), -1);
		assert_int_equal(errno, EPERM);
		/* Nor by a way round: another description of the same file, a change of the mapping's rights. */
		char path[64];
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		int other = open(path, O_RDWR | O_CLOEXEC);
		if (other >= 0) {
			assert_ptr_equal(mmap(NULL, EXTENT, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0), MAP_FAILED);
			close(other);
		}
		char *reader = mmap(NULL, EXTENT, PROT_READ, MAP_SHARED, fd, 0);
		assert_ptr_not_equal(reader, MAP_FAILED);
		assert_string_equal(reader, "ours");
		assert_int_equal(mprotect(reader, EXTENT, PROT_READ | PROT_WRITE), -1);
		munmap(reader, EXTENT);
		int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
		assert_int_equal(fcntl(fd, F_GET_SEALS) & seals, seals);
		assert_int_not_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
		while (take_ready(memory, (uint32_t)again, EXTENT)) {
		}
	}
	memory_close(memory);
}

static void test_memory__address_and_place_agree_when_read_through_the_fd(void **state)
{
	struct memory *memory = open_memory(BUDGET);
	struct random random;
	(void)state;
	random_init(&random, 3);
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t tenant = i % 3, evicted = 0, slot = take_evicting(memory, tenant, random_length(&random), &evicted);
		uint64_t mark = random_next(&random), seen = 0, offset;
		int fd;
		assert_int_not_equal(slot, 0);
		memcpy(memory_address(memory, slot), &mark, sizeof mark);
		memory_place(memory, slot, &fd, &offset);
		assert_int_equal(offset % MEMORY_CELL, 0);
		assert_int_equal(pread(fd, &seen, sizeof seen, (off_t)offset), sizeof seen);
		assert_true(seen == mark);
	}
	memory_close(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory__runs_never_overlap_when_random),
		cmocka_unit_test(test_memory__open_rounds_the_budget_when_odd),
		cmocka_unit_test(test_memory__open_refuses_when_too_small_or_too_large),
		cmocka_unit_test(test_memory__open_leaves_nothing_when_allocation_fails),
		cmocka_unit_test(test_memory__open_leaves_nothing_when_the_system_refuses),
		cmocka_unit_test(test_memory__extent_is_zeroed_when_it_cannot_be_made_anew),
		cmocka_unit_test(test_memory__take_refuses_when_longer_than_an_extent),
		cmocka_unit_test(test_memory__small_parts_share_a_page_when_of_one_class),
		cmocka_unit_test(test_memory__take_stops_when_slots_run_out),
		cmocka_unit_test(test_memory__victim_is_the_oldest_when_not_in_use),
		cmocka_unit_test(test_memory__victim_is_found_when_many_are_in_use),
		cmocka_unit_test(test_memory__extent_changes_hands_when_others_hold_all),
		cmocka_unit_test(test_memory__drain_takes_another_extent_when_parts_are_in_use),
		cmocka_unit_test(test_memory__drain_waits_for_the_last_part_when_all_are_in_use),
		cmocka_unit_test(test_memory__drain_ends_when_its_tenant_has_nothing_else),
		cmocka_unit_test(test_memory__drain_moves_when_another_holds_more),
		cmocka_unit_test(test_memory__turns_end_when_tenants_outnumber_extents),
		cmocka_unit_test(test_memory__seals_prevent_writing_and_shrinking_when_shared),
		cmocka_unit_test(test_memory__address_and_place_agree_when_read_through_the_fd),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
