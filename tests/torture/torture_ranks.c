/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight ranks and a scheduler, each a process of its own, over one cairnd (half of the ranks by its socket file, half
 * by TCP). Between the match and the fetches memory turns over, a block is dropped, the scheduler or a rank is killed;
 * whatever happens, all ranks see one answer and go on with the same number of tokens.
 *
 *     torture_ranks CAIRND DIRECTORY PORT ROUNDS
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cairn/cairn.h"

enum {
	RANKS = 8,
	BLOCKS = 24,
	LENGTH = 20000,
	TOKENS = BLOCKS * 16
};
enum {
	QUIET,
	SCHEDULER_DIES,
	RANK_DIES,
	DROPPED,
	KINDS
};

static struct shared {
	struct cairn_ticket ticket;
	struct cairn_match_info info;
	int matched, joined, go, differ;
	long told[RANKS];
} * shared;
static char places[2][600];

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static int load(const int *flag)
{
	return __atomic_load_n(flag, __ATOMIC_SEQ_CST);
}

static void wait_for(const int *flag, int value)
{
	while (load(flag) < value)
		pause_ms(1);
}

static cairn_key key_of(uint32_t chain, uint32_t block)
{
	cairn_key key = {{(uint8_t)chain, (uint8_t)(chain >> 8), (uint8_t)block, 1}};
	return key;
}

static void fill(uint8_t *bytes, uint32_t chain, uint32_t block, uint32_t part)
{
	for (uint32_t i = 0; i < LENGTH; i++)
		bytes[i] = (uint8_t)(i * 7 + chain * 31 + block * 5 + part);
}

static void open_it(const char *place, cairn **ret_store, cairn_space **ret_space)
{
	static const cairn_digest weights = {{5}};
	static const char *const names[RANKS] = {"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"};
	struct cairn_part parts[RANKS];
	for (uint32_t i = 0; i < RANKS; i++)
		parts[i] = (struct cairn_part){.name = names[i]};
	struct cairn_space_desc desc = {.size = sizeof desc,
	                                .model = "ranks",
	                                .weights = &weights,
	                                .kv_dtype = "f16",
	                                .block_tokens = 16,
	                                .parts = parts,
	                                .nparts = RANKS};
	for (int tries = 0; cairn_open(place, NULL, ret_store) || cairn_describe(*ret_store, &desc, ret_space); tries++) {
		if (tries == 2000) {
			fprintf(stderr, "torture_ranks: %s\n", cairn_error_text());
			_exit(1);
		}
		pause_ms(5);
	}
}

/* All parts of a chain. 0 or an error. */
static int put_chain(cairn *store, cairn_space *space, uint32_t chain)
{
	static uint8_t bytes[RANKS][LENGTH];
	for (uint32_t b = 0; b < BLOCKS; b++) {
		struct cairn_buf bufs[RANKS];
		struct cairn_item items[RANKS];
		cairn_key parent = key_of(chain, b ? b - 1 : 0);
		for (uint32_t p = 0; p < RANKS; p++) {
			fill(bytes[p], chain, b, p);
			bufs[p] = cairn_buf_of(bytes[p], LENGTH);
			items[p] = (struct cairn_item){.key = key_of(chain, b),
			                               .parent = b ? &parent : NULL,
			                               .bufs = &bufs[p],
			                               .nbufs = 1,
			                               .part = (uint16_t)p};
		}
		long n = cairn_put(store, space, items, RANKS, NULL);
		if (n < 0)
			return (int)n;
	}
	return 0;
}

static int scheduler(uint32_t chain)
{
	cairn *store;
	cairn_space *space;
	cairn_match *match;
	cairn_key keys[BLOCKS];
	open_it(places[0], &store, &space);
	for (uint32_t b = 0; b < BLOCKS; b++)
		keys[b] = key_of(chain, b);
	struct cairn_chain of = {0, keys, BLOCKS};
	if (put_chain(store, space, chain) || cairn_match_take(store, space, &of, 1, 0, 60000, &match))
		return fprintf(stderr, "torture_ranks: scheduler: %s\n", cairn_error_text()), 1;
	cairn_match_get_info(match, &shared->info);
	cairn_match_ticket(match, &shared->ticket);
	__atomic_store_n(&shared->matched, 1, __ATOMIC_SEQ_CST);
	wait_for(&shared->go, 1);
	cairn_match_release(store, match);
	return cairn_close(store) != 0;
}

static int rank(uint32_t number, uint32_t chain)
{
	static uint8_t bytes[LENGTH], want[LENGTH];
	cairn *store;
	cairn_space *space;
	cairn_match *match;
	struct cairn_match_info info;
	uint64_t tokens = 0;
	open_it(places[number % 2], &store, &space);
	wait_for(&shared->matched, 1);
	if (cairn_match_join(store, space, &shared->ticket, &match))
		return fprintf(stderr, "torture_ranks: join: %s\n", cairn_error_text()), 1;
	cairn_match_get_info(match, &info);
	if (memcmp(&info, &shared->info, sizeof info) != 0)
		__atomic_store_n(&shared->differ, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&shared->joined, 1, __ATOMIC_SEQ_CST);
	wait_for(&shared->go, 1);
	for (uint32_t b = 0; b < BLOCKS; b++, tokens += 16) {
		struct cairn_buf buf = cairn_buf_of(bytes, LENGTH);
		struct cairn_item item = {.key = key_of(chain, b), .bufs = &buf, .nbufs = 1, .part = (uint16_t)number};
		if (cairn_get(store, space, &item, 1, NULL) != 1)
			break;
		fill(want, chain, b, number);
		if (memcmp(bytes, want, LENGTH) != 0)
			return fprintf(stderr, "torture_ranks: wrong bytes\n"), 1;
	}
	shared->told[number] = cairn_match_agree(store, match, RANKS, tokens, 20000);
	cairn_match_release(store, match);
	return cairn_close(store) != 0;
}

/* What happens between the match and the fetches. Returns what all ranks must be told. */
static long meanwhile(int kind, uint32_t chain, const pid_t *pids)
{
	cairn *store;
	cairn_space *space;
	open_it(places[0], &store, &space);
	for (uint32_t other = 0; other < 12; other++) /* twice as much as there is memory */
		(void)put_chain(store, space, chain + 1000 * (other + 1));
	cairn_key key = key_of(chain, 9);
	long want = kind == RANK_DIES ? 0 : TOKENS;
	if (kind == DROPPED)
		want = cairn_drop(store, space, &key, 1) == RANKS ? 9 * 16 : -1;
	if (kind == SCHEDULER_DIES)
		kill(pids[RANKS], SIGKILL);
	if (kind == RANK_DIES)
		kill(pids[3], SIGKILL);
	cairn_close(store);
	return want;
}

/* Nothing is held once everybody is gone. */
static int all_given_back(void)
{
	cairn *store;
	cairn_space *space;
	struct cairn_stat stat = {.size = sizeof stat};
	open_it(places[0], &store, &space);
	int tries = 0;
	do {
		if (cairn_stat(store, &stat))
			return -1;
		pause_ms(5);
	} while ((stat.matches || stat.leased_bytes) && ++tries < 400);
	cairn_close(store);
	return stat.matches || stat.leased_bytes ? -1 : 0;
}

static int round_run(int round)
{
	int kind = round % KINDS, status, failed = 0;
	uint32_t chain = (uint32_t)round + 1;
	pid_t pids[RANKS + 1];
	memset(shared, 0, sizeof *shared);
	for (uint32_t i = 0; i <= RANKS; i++)
		if (!(pids[i] = fork()))
			_exit(i == RANKS ? scheduler(chain) : rank(i, chain));
	wait_for(&shared->joined, RANKS);
	long want = meanwhile(kind, chain, pids);
	__atomic_store_n(&shared->go, 1, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i <= RANKS; i++) {
		int dies = (kind == SCHEDULER_DIES && i == RANKS) || (kind == RANK_DIES && i == 3);
		waitpid(pids[i], &status, 0);
		if (dies ? !WIFSIGNALED(status) : !WIFEXITED(status) || WEXITSTATUS(status))
			failed = fprintf(stderr, "torture_ranks: process %u ended with status %d\n", i, status);
		if (i < RANKS && !dies && shared->told[i] != want)
			failed = fprintf(stderr, "torture_ranks: kind %d: rank %u was told %ld, not %ld\n", kind, i,
			                 shared->told[i], want);
	}
	if (shared->differ || shared->info.tokens != TOKENS)
		failed = fprintf(stderr, "torture_ranks: ranks saw different answers\n");
	if (all_given_back())
		failed = fprintf(stderr, "torture_ranks: something is held by nobody\n");
	return failed != 0;
}

int main(int argc, char **argv)
{
	int status, failed = 0;
	char listen[40];
	if (argc != 5)
		return fprintf(stderr, "torture_ranks CAIRND DIRECTORY PORT ROUNDS\n"), 2;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(places[0], sizeof places[0], "unix:%s/cairn.sock", argv[2]);
	snprintf(listen, sizeof listen, "tcp+plain://127.0.0.1:%s", argv[3]);
	memcpy(places[1], listen, sizeof listen);
	pid_t server = fork();
	if (!server) {
		execl(argv[1], "cairnd", "--dir", argv[2], "--listen", listen, "--memory", "24MiB", "--flash",
		      getenv("CAIRN_TORTURE_FLASH"), (char *)NULL);
		_exit(127);
	}
	for (int round = 0; round < atoi(argv[4]) && !failed; round++)
		failed = round_run(round);
	kill(server, SIGTERM);
	waitpid(server, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		failed = fprintf(stderr, "torture_ranks: the daemon ended with status %d\n", status);
	printf("%s rounds\n", argv[4]);
	return failed != 0;
}
