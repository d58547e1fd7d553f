/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight processes open one directory at the same moment, with CAIRN_OPEN_SHARED: one cairnd serves them all, and ends
 * when the last of them has; the next ones find what was put.
 *
 *     torture_shared DIRECTORY ROUNDS
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cairn/cairn.h"

enum {
	PROCESSES = 8,
	LENGTH = 30000
};

static struct gate {
	int opened; /* processes that have the store */
} *gate;

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static int process(const char *directory, uint32_t round, uint32_t number)
{
	static uint8_t bytes[LENGTH], got[LENGTH];
	static const cairn_digest weights = {{4}};
	struct cairn_flash flash = {.budget_bytes = 128u << 20};
	struct cairn_options options = {.size = sizeof options,
	                                .flags = CAIRN_OPEN_CREATE | CAIRN_OPEN_SHARED,
	                                .memory_bytes = 16u << 20,
	                                .flash = &flash,
	                                .nflash = 1};
	struct cairn_space_desc desc = {
		.size = sizeof desc, .model = "m", .weights = &weights, .kv_dtype = "f16", .block_tokens = 16};
	cairn *store;
	cairn_space *space;
	if (cairn_open(directory, &options, &store) || cairn_describe(store, &desc, &space))
		return fprintf(stderr, "torture_shared: %s\n", cairn_error_text()), 1;
	__atomic_fetch_add(&gate->opened, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&gate->opened, __ATOMIC_SEQ_CST) < PROCESSES) /* all have it at once */
		pause_ms(1);
	int wrong = 0;
	for (uint32_t of = 0; of <= round; of++) { /* own of this round, everybody's of the rounds before */
		for (uint32_t who = 0; who < PROCESSES; who++) {
			if (of == round && who != number)
				continue;
			cairn_key key = {{(uint8_t)of, (uint8_t)who, 77}};
			struct cairn_buf buf = cairn_buf_of(bytes, LENGTH);
			struct cairn_item item = {.key = key, .bufs = &buf, .nbufs = 1};
			struct cairn_call call = {.size = sizeof call, .durability = CAIRN_DURABLE_FLASH};
			memset(bytes, (int)(of * PROCESSES + who), LENGTH);
			if (of == round && cairn_put(store, space, &item, 1, &call) != 1)
				return fprintf(stderr, "torture_shared: put: %s\n", cairn_error_text()), 1;
			buf = cairn_buf_of(got, LENGTH);
			if (cairn_get(store, space, &item, 1, NULL) != 1 || memcmp(bytes, got, LENGTH) != 0)
				wrong++;
		}
	}
	if (wrong)
		fprintf(stderr, "torture_shared: %d parts of earlier processes are not there\n", wrong);
	return cairn_close(store) || wrong;
}

/* Whether the directory's lock can be had: the daemon has ended. */
static int ended(const char *directory)
{
	char path[600];
	snprintf(path, sizeof path, "%s/lock", directory);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	int free = fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB);
	if (fd >= 0)
		close(fd);
	return free;
}

int main(int argc, char **argv)
{
	int failed = 0, status;
	if (argc != 3)
		return fprintf(stderr, "torture_shared DIRECTORY ROUNDS\n"), 2;
	gate = mmap(NULL, sizeof *gate, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (uint32_t round = 0; round < (uint32_t)atoi(argv[2]) && !failed; round++) {
		gate->opened = 0;
		pid_t pids[PROCESSES];
		for (uint32_t i = 0; i < PROCESSES; i++)
			if (!(pids[i] = fork()))
				_exit(process(argv[1], round, i));
		for (uint32_t i = 0; i < PROCESSES; i++) {
			waitpid(pids[i], &status, 0);
			failed |= status != 0;
		}
		/* The next round begins while it ends, or after: both must do. */
		for (int tries = 0; round % 2 && !ended(argv[1]); tries++) {
			if (tries == 1000)
				failed = fprintf(stderr, "torture_shared: the cairnd has not ended with its last client\n");
			if (failed)
				break;
			pause_ms(10);
		}
	}
	printf("%s rounds of %d processes\n", argv[2], PROCESSES);
	return failed != 0;
}
