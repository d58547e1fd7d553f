/* SPDX-License-Identifier: Apache-2.0 */
/* A long random life of a simulated world, with all faults, lived twice: src/io/sim.c must replay it exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "io/sim.h"

#define PAGE 4096u
#define SECOND 1000000000ull

static _Alignas(4096) uint8_t pool[64 * PAGE], other[64 * PAGE];

struct call {
	struct io_req req;
	int done;
};

static void call_done(struct io_req *req)
{
	((struct call *)req->owner)->done++;
}

static void call_init(struct call *call, uint32_t op, void *bytes, uint32_t length, uint64_t offset)
{
	memset(call, 0, sizeof(*call));
	call->req = (struct io_req){.op = op, .offset = offset, .nvec = op != IO_FLUSH, .done = call_done, .owner = call};
	call->req.vec[0] = (struct io_vec){bytes, length};
}

static struct io *open_file(struct sim_world *world, const char *path, uint32_t flags)
{
	struct io_maker maker = sim_maker(world);
	struct io *io = NULL;
	assert_int_equal(maker.open(maker.arg, path, flags, 1, &io), 0);
	return io;
}

/* A random life of two files with all faults, deaths and reopenings; its trace. */
static char *random_life(uint64_t seed, size_t *ret_length, struct sim_stats *ret_stats)
{
	char *text = NULL;
	FILE *file = open_memstream(&text, ret_length);
	assert_non_null(file);
	struct sim_world *world = sim_new(seed);
	struct random random;
	static struct call calls[32];
	struct sim_faults faults = {20000, 20000, 50000, 50000, 10000, 10000, 10000, 10000, 20000, 3 * SECOND, 0};
	const char *names[2] = {"first", "second"};
	struct io *io[2] = {NULL, NULL};
	random_init(&random, ~seed);
	memset(calls, 0, sizeof(calls));
	memset(pool, 0, sizeof(pool));
	memset(other, 0, sizeof(other));
	for (int i = 0; i < 32; i++)
		calls[i].done = 1;
	sim_trace(world, file);
	sim_set_faults(world, NULL, &faults);
	sim_set_space(world, 40 * PAGE);
	for (int step = 0; step < 3000; step++) {
		uint64_t which = random_below(&random, 2), offset = random_below(&random, 24) * PAGE;
		uint32_t length = (uint32_t)(1 + random_below(&random, 8)) * PAGE;
		struct call *call = &calls[random_below(&random, 16) * 2 + which];
		if (!io[which])
			io[which] = open_file(world, names[which], IO_OPEN_CREATE);
		uint64_t what = random_below(&random, 100);
		uint8_t *bytes = (what < 40 ? pool : other) + (uintptr_t)(call - calls) * PAGE;
		if (what < 65 && call->done) {
			memset(bytes, step, PAGE);
			call_init(call, what < 40 ? IO_WRITE : what < 55 ? IO_READ : IO_FLUSH, bytes, length, offset);
			io[which]->ops->submit(io[which], &call->req);
		} else if (what < 90) {
			(void)io[which]->ops->poll(io[which], random_below(&random, 300000));
		} else if (what < 93) {
			(void)io[which]->ops->sync(io[which]);
		} else if (what < 96) {
			(void)io[which]->ops->punch(io[which], offset, length);
		} else if (what < 98) {
			(void)io[which]->ops->allocate(io[which], offset, length);
		} else if (what == 98 && random_below(&random, 4) == 0) {
			(random_below(&random, 2) ? sim_crash : sim_kill)(world);
			for (int i = 0; i < 2; i++) {
				if (io[i])
					io[i]->ops->close(io[i]);
				io[i] = NULL;
			}
		}
	}
	for (int i = 0; i < 2; i++) {
		if (io[i])
			io[i]->ops->close(io[i]);
		uint64_t size, sum = 0;
		const uint8_t *bytes = sim_file_bytes(world, names[i], &size);
		for (uint64_t at = 0; bytes && at < size; at++)
			sum = sum * 31 + bytes[at];
		fprintf(file, "%s %llu %llx\n", names[i], (unsigned long long)size, (unsigned long long)sum);
	}
	*ret_stats = *sim_stats(world);
	sim_free(world);
	assert_int_equal(fclose(file), 0);
	return text;
}

/* Whether each fault has struck. Field by field, so that a new one is seen here. */
static void check_struck(const struct sim_stats *all)
{
	const uint64_t *field = (const uint64_t *)(const void *)all;
	for (size_t i = 0; i < sizeof(*all) / sizeof(*field); i++)
		if (&field[i] != &all->failed)
			assert_true(field[i] > 0);
}

static void test_sim_replay__life_is_the_same_when_the_seed_is(void **state)
{
	(void)state;
	struct sim_stats all = {0}, stats;
	for (uint64_t seed = 0; seed < 10; seed++) {
		size_t length, again_length, else_length;
		char *text = random_life(seed, &length, &stats);
		for (size_t i = 0; i < sizeof(all) / sizeof(uint64_t); i++)
			((uint64_t *)(void *)&all)[i] += ((uint64_t *)(void *)&stats)[i];
		char *kept = malloc(12345); /* other addresses */
		char *again = random_life(seed, &again_length, &stats);
		char *elsewise = random_life(seed + 100, &else_length, &stats);
		assert_true(length > 10000);
		assert_int_equal(length, again_length);
		assert_memory_equal(text, again, length);
		assert_true(length != else_length || memcmp(text, elsewise, length) != 0);
		free(kept);
		free(text);
		free(again);
		free(elsewise);
	}
	check_struck(&all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sim_replay__life_is_the_same_when_the_seed_is),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
