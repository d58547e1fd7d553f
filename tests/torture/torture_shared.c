/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight processes open one directory at the same moment, with CAIRN_OPEN_SHARED: one cairnd serves them all, and ends
 * when the last of them has; the next ones find what was put. Then that cairnd is killed, again and again, while eight
 * put: the next call of any of them starts another one, one for all, and what was acknowledged is there.
 *
 *     torture_shared DIRECTORY ROUNDS
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
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
	LENGTH = 30000,
	KILLS = 3,
	PARTS = 50,       /* of a process, between two kills */
	CALL_MS = 30000,  /* a call may take, in which another one is started */
	COUNT_TRIES = 500 /* of 10 ms: those that came second have gone by then */
};

static struct gate {
	int opened;         /* processes that have the store */
	int put[PROCESSES]; /* parts that were acknowledged */
	int kills;          /* done so far */
	int failed;         /* one of them has ended early */
} * gate;

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static long ms_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int store_open(const char *directory, cairn **ret_store, cairn_space **ret_space)
{
	static const cairn_digest weights = {{4}};
	struct cairn_flash flash = {.budget_bytes = 128u << 20};
	struct cairn_options options = {.size = sizeof options,
	                                .flags = CAIRN_OPEN_CREATE | CAIRN_OPEN_SHARED,
	                                .memory_bytes = 16u << 20,
	                                .flash = &flash,
	                                .nflash = 1};
	struct cairn_space_desc desc = {
		.size = sizeof desc, .model = "m", .weights = &weights, .kv_dtype = "f16", .block_tokens = 16};
	if (cairn_open(directory, &options, ret_store) || cairn_describe(*ret_store, &desc, ret_space))
		return fprintf(stderr, "torture_shared: %s\n", cairn_error_text()), 1;
	return 0;
}

static int process(const char *directory, uint32_t round, uint32_t number)
{
	static uint8_t bytes[LENGTH], got[LENGTH];
	cairn *store;
	cairn_space *space;
	if (store_open(directory, &store, &space))
		return 1;
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

/* One part of a process, put until it is acknowledged; or got: then `bytes` are what shall come. Calls that met the end
 * of a cairnd fail; the next one finds another. */
static int part_done(cairn *store, cairn_space *space, uint32_t who, int part, uint8_t *bytes, int put)
{
	struct cairn_call call = {.size = sizeof call, .durability = CAIRN_DURABLE_FLASH};
	static uint8_t got[LENGTH];
	cairn_key key = {{(uint8_t)part, (uint8_t)(part >> 8), (uint8_t)who, 99}};
	memset(bytes, (int)who * 31 + part, LENGTH);
	for (int tries = 0; tries < 10; tries++) {
		struct cairn_buf buf = cairn_buf_of(put ? bytes : got, LENGTH);
		struct cairn_item item = {.key = key, .bufs = &buf, .nbufs = 1};
		long begun = ms_now();
		long n = put ? cairn_put(store, space, &item, 1, &call) : cairn_get(store, space, &item, 1, NULL);
		long took = ms_now() - begun;
		if (took > CALL_MS)
			return fprintf(stderr, "torture_shared: a call took %ld ms\n", took), -1;
		if (n == 1 && !put && memcmp(bytes, got, LENGTH) != 0)
			return fprintf(stderr, "torture_shared: part %d of %u has other bytes\n", part, who), -1;
		if (n == 1)
			return 0;
		if (item.status == CAIRN_MISS && !put)
			return fprintf(stderr, "torture_shared: part %d of %u was acknowledged, and is lost\n", part, who), -1;
	}
	return fprintf(stderr, "torture_shared: no call succeeds: %s\n", cairn_error_text()), -1;
}

static int survivor(const char *directory, uint32_t number)
{
	static uint8_t bytes[LENGTH];
	cairn *store;
	cairn_space *space;
	int failed = store_open(directory, &store, &space);
	__atomic_fetch_add(&gate->opened, 1, __ATOMIC_SEQ_CST);
	for (int part = 0, kills = 0; !failed && !__atomic_load_n(&gate->failed, __ATOMIC_SEQ_CST) && kills < KILLS;) {
		int put = part < PARTS * (kills + 1); /* else it goes on with what it has */
		failed = part_done(store, space, number, put ? part : part - 1, bytes, put);
		if (put && !failed)
			__atomic_store_n(&gate->put[number], ++part, __ATOMIC_SEQ_CST);
		pause_ms(5);
		kills = __atomic_load_n(&gate->kills, __ATOMIC_SEQ_CST);
	}
	for (uint32_t who = 0; who < PROCESSES; who++) {
		int n = __atomic_load_n(&gate->put[who], __ATOMIC_SEQ_CST);
		for (int part = 0; part < n && !failed; part++)
			failed = part_done(store, space, who, part, bytes, 0);
	}
	if (failed)
		__atomic_store_n(&gate->failed, 1, __ATOMIC_SEQ_CST);
	else
		failed = cairn_close(store);
	return failed != 0;
}

/* The private cairnds of the directory; *ret_pid is that of one. */
static int cairnds(const char *directory, pid_t *ret_pid)
{
	DIR *all = opendir("/proc");
	int n = 0;
	for (struct dirent *entry; all && (entry = readdir(all));) {
		char path[300], words[4096] = "";
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t length = fd < 0 ? 0 : read(fd, words, sizeof words - 1);
		if (fd >= 0)
			close(fd);
		for (ssize_t i = 0; i < length; i++)
			words[i] = words[i] ? words[i] : ' ';
		if (!strncmp(words, "cairnd --private ", 17) && strstr(words, directory)) {
			*ret_pid = (pid_t)atoi(entry->d_name);
			n++;
		}
	}
	if (all)
		closedir(all);
	return n;
}

/* Waits until exactly one is there, and has stayed alone for a moment. 0, or its pid. */
static pid_t cairnd_one(const char *directory)
{
	pid_t pid = 0, before = 0;
	for (int tries = 0, same = 0; tries < COUNT_TRIES; tries++, pause_ms(10)) {
		same = cairnds(directory, &pid) == 1 && pid == before ? same + 1 : 0;
		before = pid;
		if (same == 10)
			return pid;
	}
	fprintf(stderr, "torture_shared: %d cairnds\n", cairnds(directory, &pid));
	return 0;
}

static int sum(void)
{
	int n = 0;
	for (uint32_t i = 0; i < PROCESSES; i++)
		n += __atomic_load_n(&gate->put[i], __ATOMIC_SEQ_CST);
	return n;
}

/* Kills it KILLS times, each time after something new was acknowledged. */
static int killed(const char *directory)
{
	int failed = 0, status, before = 0;
	pid_t pids[PROCESSES];
	memset(gate, 0, sizeof *gate);
	for (uint32_t i = 0; i < PROCESSES; i++)
		if (!(pids[i] = fork()))
			_exit(survivor(directory, i));
	while (__atomic_load_n(&gate->opened, __ATOMIC_SEQ_CST) < PROCESSES)
		pause_ms(1);
	for (int i = 0; i < KILLS && !failed && !__atomic_load_n(&gate->failed, __ATOMIC_SEQ_CST); i++) {
		pid_t pid = cairnd_one(directory);
		for (int tries = 0; pid && sum() == before && tries < 3000; tries++)
			pause_ms(10);
		failed = !pid || sum() == before || kill(pid, SIGKILL);
		before = sum();
		if (failed)
			fprintf(stderr, "torture_shared: after %d kills nothing goes on\n", i);
		__atomic_fetch_add(&gate->kills, 1, __ATOMIC_SEQ_CST);
	}
	if (failed)
		__atomic_store_n(&gate->failed, 1, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < PROCESSES; i++) {
		waitpid(pids[i], &status, 0);
		failed |= status != 0;
	}
	printf("%d parts acknowledged, killed %d times\n", sum(), KILLS);
	return failed;
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
	failed = failed || killed(argv[1]);
	return failed != 0; /* its script waits for the end of the cairnd */
}
