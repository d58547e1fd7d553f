/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One fixed scenario, in which each I/O fails in its turn, once or with all after it; and which dies at each I/O in its
 * turn, by a kill or a power loss. It ends when the scenario has passed untouched.
 */
#include <string.h>

#include "sim/run.h"

static void end(struct run *run)
{
	life_end(run, 0);
	life_open(run, 0);
}

static void put_durable(struct run *run)
{
	int32_t blocks[4], parent = -1;
	for (int i = 0; i < 4; i++) {
		struct block *block = block_new(run, 0, parent, 0);
		if (!block)
			return;
		blocks[i] = parent = (int32_t)block_number(run, block);
	}
	op_put_items(run, blocks, 4, CAIRN_DURABLE_FLASH, 0);
}

static struct run *scenario(uint64_t seed, int verbose, struct tally *tally, uint64_t fail, int all, uint64_t crash,
                            int kill)
{
	static void (*const ops[])(struct run * run) = {
		put_durable, op_put,       op_save, op_get,    op_drop,   op_save, op_resume, put_durable, op_sync,
		end,         op_match,     op_put,  op_resume, op_forget, op_pin,  op_save,   op_drop,     op_get,
		put_durable, op_drop_wide, op_put,  op_save,   op_sync,   end,     op_get,    op_resume,
	};
	struct run *run = run_start(seed, verbose, 0, tally);
	struct config *config = &run->config;
	memset(config, 0, sizeof(*config));
	config->ndevices = 2;
	config->budget_bytes[0] = config->budget_bytes[1] = 16 << 20;
	config->memory_bytes = 8 << 20;
	config->catalog_bytes = 1 << 20;
	config->nspaces = 1;
	config->ntenants = 1;
	config->part_bytes = 60000;
	config->free_floor_bytes = 1 << 20;
	memcpy(run->paths[1], "/dev/flash1", 12);
	for (uint32_t s = 0; s < SESSIONS; s++)
		run->sessions[s].tenant = 0;
	memset(&run->spaces[0], 0, sizeof(run->spaces[0]));
	run->spaces[0].nparts = 1;
	random_init(&run->random, seed);
	life_open(run, 0);
	run->armed = 1;
	sim_fail_at(run->world, fail, all);
	sim_crash_at(run->world, crash, kill);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]) && !run->dead; i++)
		ops[i](run);
	run_note(run, "%llu I/Os", (unsigned long long)sim_count(run->world));
	return run;
}

/* Faults stopped: within seconds it takes durable puts again. */
static void healed(struct run *run)
{
	sim_fail_at(run->world, 0, 0);
	for (int second = 0; second < 10 && !run->dead; second++) {
		sim_advance(run->world, 1000000000);
		op_sync(run);
	}
	run->trouble_ns = 0;
	if (!run->dead)
		put_durable(run);
}

int every_io(int verbose)
{
	struct tally tally = {0};
	uint64_t runs = 0;
	for (int all = 0; all < 2; all++)
		for (uint64_t n = 1, more = 1; more; n++) {
			struct run *run = scenario(1, verbose, &tally, n, all, 0, 0);
			more = sim_stats(run->world)->failed;
			run->step = (uint32_t)n;
			run_note(run, "I/O %llu %s", (unsigned long long)n, all ? "and all after it" : "");
			healed(run);
			run_finish(run);
			runs++;
		}
	printf("cairn-sim: every I/O failed in its turn: %llu runs pass\n", (unsigned long long)runs);
	return 0;
}

int every_crash(int verbose)
{
	struct tally tally = {0};
	uint64_t runs = 0;
	for (int kill = 0; kill < 2; kill++)
		for (uint64_t n = 1, more = 1; more; n++) {
			struct run *run = scenario(2, verbose, &tally, 0, 0, n, kill);
			const struct sim_stats *stats = sim_stats(run->world);
			more = stats->crashes + stats->kills;
			run->step = (uint32_t)n;
			run_note(run, "death at I/O %llu", (unsigned long long)n);
			run_finish(run);
			runs++;
		}
	printf("cairn-sim: death at every I/O in its turn: %llu runs pass\n", (unsigned long long)runs);
	return 0;
}
