/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight clients and a cairnd for a long time: its memory, descriptors and threads stay what they are, and so do those
 * of the clients. Flash turns over many times; clients leave and come back, and one of them is killed again and again.
 *
 *     torture_soak CAIRND DIRECTORY SECONDS
 *
 * Anonymous memory, descriptors and threads of each process are looked at every half second. After a first quarter, in
 * which caches fill, a straight line is laid through what was seen: what it rises by in a run is the growth.
 */
#include <dirent.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "cairn/cairn.h"

enum {
	CLIENTS = 8,
	CHAINS = 400,
	BLOCKS = 8,
	LENGTH = 60000,
	SAMPLES = 20000,
	GROWTH_KIB = 3072, /* in a run, of one process; of what was there more than a fiftieth */
};

static struct done {
	uint64_t puts, gets, hits, leases, matches, saves, opens, failed;
} * done;
static char places[2][600];

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void pause_ms(uint64_t ms)
{
	nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

/* ---- a client ---------------------------------------------------------------------------------------------------- */

struct soaker {
	struct random random;
	cairn *store;
	cairn_space *space;
	cairn_key keys[BLOCKS];
	struct cairn_item items[BLOCKS];
	struct cairn_buf bufs[BLOCKS];
	uint8_t bytes[BLOCKS][LENGTH];
};

static void count(uint64_t *to, uint64_t n)
{
	__atomic_fetch_add(to, n, __ATOMIC_RELAXED);
}

static void chain_draw(struct soaker *s, int fill)
{
	struct random random;
	random_init(&random, 77 + random_below(&s->random, CHAINS));
	for (int i = 0; i < BLOCKS; i++) {
		for (int w = 0; w < 4; w++) {
			uint64_t word = random_next(&random);
			memcpy(s->keys[i].bytes + 8 * w, &word, 8);
		}
		s->bufs[i] = cairn_buf_of(s->bytes[i], LENGTH);
		s->items[i] = (struct cairn_item){
			.key = s->keys[i], .parent = i ? &s->keys[i - 1] : NULL, .bufs = &s->bufs[i], .nbufs = 1};
		for (uint32_t at = 0; fill && at < LENGTH; at++)
			s->bytes[i][at] = (uint8_t)(s->keys[i].bytes[at % 31] + at / 31);
	}
}

static int block_right(const uint8_t *bytes, const cairn_key *key)
{
	for (uint32_t at = 0; at < LENGTH; at++)
		if (bytes[at] != (uint8_t)(key->bytes[at % 31] + at / 31))
			return 0;
	return 1;
}

static void soaker_get(struct soaker *s)
{
	cairn_match *match = NULL;
	struct cairn_chain chain = {0, s->keys, BLOCKS};
	chain_draw(s, 0);
	if (!cairn_match_take(s->store, s->space, &chain, 1, 0, 0, &match))
		count(&done->matches, 1);
	(void)cairn_get(s->store, s->space, s->items, BLOCKS, NULL);
	for (int i = 0; i < BLOCKS; i++) {
		count(&done->gets, 1);
		if (s->items[i].status != CAIRN_OK)
			continue;
		count(&done->hits, 1);
		if (!block_right(s->bytes[i], &s->keys[i]))
			_exit(1);
	}
	cairn_match_release(s->store, match);
}

static void soaker_lease(struct soaker *s)
{
	cairn_lease *leases[BLOCKS] = {0};
	struct cairn_lease_info info;
	chain_draw(s, 0);
	for (int i = 0; i < BLOCKS; i++)
		if (!cairn_lease_take(s->store, s->space, &s->items[i], NULL, &leases[i]))
			count(&done->leases, 1);
	for (int i = 0; i < BLOCKS; i++) {
		if (!leases[i])
			continue;
		cairn_lease_get_info(leases[i], &info);
		if (!block_right(info.address, &s->keys[i]))
			_exit(1);
		cairn_lease_release(s->store, leases[i]);
	}
}

static void soaker_save(struct soaker *s)
{
	char name[16];
	cairn_session *session = NULL;
	chain_draw(s, 0);
	snprintf(name, sizeof name, "s%u", (uint32_t)random_below(&s->random, 50));
	struct cairn_chain chain = {0, s->keys, BLOCKS};
	struct cairn_save save = {.size = sizeof save,
	                          .name = {NULL, NULL, name},
	                          .chains = &chain,
	                          .nchains = 1,
	                          .state = name,
	                          .state_bytes = 2};
	if (!cairn_session_save(s->store, s->space, &save))
		count(&done->saves, 1);
	(void)cairn_session_resume(s->store, &save.name, &session);
	cairn_session_free(session);
	if (random_below(&s->random, 2))
		(void)cairn_session_forget(s->store, &save.name);
}

static void soaker_open(struct soaker *s, uint32_t number)
{
	static const cairn_digest weights = {{5}};
	struct cairn_space_desc desc = {
		.size = sizeof desc, .model = "soak", .weights = &weights, .kv_dtype = "f16", .block_tokens = 16};
	while (cairn_open(places[number % 2], NULL, &s->store))
		pause_ms(10);
	if (cairn_describe(s->store, &desc, &s->space))
		_exit(2);
	count(&done->opens, 1);
}

/* Until it is killed. Exit status 1: wrong bytes. */
static void soaker_main(uint32_t number, uint64_t seed)
{
	struct soaker *s = calloc(1, sizeof *s);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	random_init(&s->random, seed);
	soaker_open(s, number);
	for (;;) {
		uint64_t what = random_below(&s->random, 200);
		if (what < 60) {
			struct cairn_call call = {.size = sizeof call, .durability = what < 10 ? CAIRN_DURABLE_FLASH : 0};
			chain_draw(s, 1);
			long n = cairn_put(s->store, s->space, s->items, BLOCKS, &call);
			count(n < 0 ? &done->failed : &done->puts, n < 0 ? 1 : (uint64_t)n);
		} else if (what < 160) {
			soaker_get(s);
		} else if (what < 180) {
			soaker_lease(s);
		} else if (what < 188) {
			soaker_save(s);
		} else if (what < 190) {
			chain_draw(s, 0);
			(void)cairn_drop(s->store, s->space, s->keys, BLOCKS);
		} else if (what < 198) {
			struct cairn_stat stat = {.size = sizeof stat};
			(void)cairn_stat(s->store, &stat);
		} else {
			(void)cairn_close(s->store);
			soaker_open(s, number);
		}
	}
}

/* ---- what is looked at ------------------------------------------------------------------------------------------- */

enum {
	MEMORY,
	FDS,
	THREADS,
	KINDS
};

struct process {
	const char *name;
	pid_t pid;
	uint32_t n;
	double when[SAMPLES], seen[KINDS][SAMPLES];
};

static double entries_of(pid_t pid, const char *what)
{
	char path[64];
	int n = -2;
	snprintf(path, sizeof path, "/proc/%d/%s", pid, what);
	DIR *dir = opendir(path);
	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

/* Anonymous memory, in KiB; what is shared is the daemon's pool. */
static double memory_of(pid_t pid)
{
	char path[64], line[200];
	double kib = 0;
	snprintf(path, sizeof path, "/proc/%d/status", pid);
	FILE *in = fopen(path, "r");
	while (in && fgets(line, sizeof line, in))
		if (sscanf(line, "RssAnon: %lf", &kib) == 1)
			break;
	if (in)
		fclose(in);
	return kib;
}

static void look(struct process *p, double at)
{
	if (p->n == SAMPLES)
		return;
	p->when[p->n] = at;
	p->seen[MEMORY][p->n] = memory_of(p->pid);
	p->seen[FDS][p->n] = entries_of(p->pid, "fd");
	p->seen[THREADS][p->n] = entries_of(p->pid, "task");
	p->n++;
}

/* What the line through the last three quarters rises by from the first of them to the end. */
static double growth(const struct process *p, int kind, double *ret_mean)
{
	double n = 0, x = 0, y = 0, xx = 0, xy = 0;
	uint32_t from = p->n / 4;
	for (uint32_t i = from; i < p->n; i++) {
		n++;
		x += p->when[i];
		y += p->seen[kind][i];
		xx += p->when[i] * p->when[i];
		xy += p->when[i] * p->seen[kind][i];
	}
	double spread = n * xx - x * x;
	*ret_mean = n > 0 ? y / n : 0;
	return spread > 0 ? (n * xy - x * y) / spread * (p->when[p->n - 1] - p->when[from]) : 0;
}

/* Whether it grew. */
static int judge(const struct process *p)
{
	double mean[KINDS], grown[KINDS];
	for (int k = 0; k < KINDS; k++)
		grown[k] = growth(p, k, &mean[k]);
	double most = mean[MEMORY] / 50 > GROWTH_KIB ? mean[MEMORY] / 50 : GROWTH_KIB;
	/* Connections and their threads come and go: what leaks one in a hundred does so by the thousand. */
	int bad = grown[MEMORY] > most || grown[FDS] > 8 || grown[THREADS] > 8;
	printf("%-10s memory %.0f KiB %+.0f, descriptors %.1f %+.1f, threads %.1f %+.1f%s\n", p->name, mean[MEMORY],
	       grown[MEMORY], mean[FDS], grown[FDS], mean[THREADS], grown[THREADS], bad ? "  <- grows" : "");
	return bad;
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static int port_take(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) ||
	    getsockname(fd, (struct sockaddr *)&address, &length))
		return -1;
	close(fd);
	return ntohs(address.sin_port);
}

static pid_t start(uint32_t number, uint64_t seed)
{
	pid_t pid = fork();
	if (!pid)
		soaker_main(number, seed);
	return pid;
}

static int client_end(pid_t pid)
{
	int status;
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return 0;
	return fprintf(stderr, "torture_soak: a client ended with status %d: %s\n", status,
	               WIFEXITED(status) && WEXITSTATUS(status) == 1 ? "wrong bytes" : "it crashed");
}

/* Until the time is over. The last client is killed every few seconds. */
static int watch(struct process *all, double seconds)
{
	double begun = now_s(), next_kill = 3;
	uint64_t seed = 1000;
	int failed = 0, status;
	for (double at = 0; at < seconds && !failed; at = now_s() - begun) {
		for (int i = 0; i < CLIENTS; i++) /* but the one that is killed */
			look(&all[i], at);
		if (at > next_kill) {
			failed |= client_end(all[CLIENTS].pid) != 0;
			all[CLIENTS].pid = start(CLIENTS - 1 + (uint32_t)seed % 2, seed);
			seed++;
			next_kill = at + 3;
		}
		if (waitpid(all[0].pid, &status, WNOHANG))
			failed = fprintf(stderr, "torture_soak: the daemon ended with status %d\n", status);
		pause_ms(500);
	}
	return failed;
}

int main(int argc, char **argv)
{
	static struct process all[CLIENTS + 1];
	static const char *const names[] = {"daemon",   "client 1", "client 2", "client 3", "client 4",
	                                    "client 5", "client 6", "client 7", "client 8"};
	int failed, status;
	if (argc != 4)
		return fprintf(stderr, "torture_soak CAIRND DIRECTORY SECONDS\n"), 2;
	done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(places[0], sizeof places[0], "unix:%s.sock", argv[2]);
	snprintf(places[1], sizeof places[1], "tcp+plain://127.0.0.1:%d", port_take());
	all[0].pid = fork();
	if (!all[0].pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(argv[1], "cairnd", "--dir", argv[2], "--listen", places[0], "--listen", places[1], "--memory", "32MiB",
		      "--catalog", "1MiB", "--segment", "4MiB", "--flash", getenv("CAIRN_TORTURE_FLASH"), (char *)NULL);
		_exit(127);
	}
	for (uint32_t i = 0; i < CLIENTS; i++)
		all[i + 1].pid = start(i, i + 1);
	for (int i = 0; i <= CLIENTS; i++)
		all[i].name = names[i];
	failed = watch(all, atof(argv[3]));
	for (int i = 1; i <= CLIENTS; i++)
		failed |= client_end(all[i].pid) != 0;
	for (int i = 0; i < CLIENTS; i++)
		failed |= judge(&all[i]);
	kill(all[0].pid, SIGTERM);
	waitpid(all[0].pid, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		failed = fprintf(stderr, "torture_soak: the daemon ended with status %d\n", status);
	printf("%s s: %" PRIu64 " parts put, %" PRIu64 " of %" PRIu64 " got, %" PRIu64 " leases, %" PRIu64
	       " matches, %" PRIu64 " sessions, %" PRIu64 " opens, %" PRIu64 " puts failed\n",
	       argv[3], done->puts, done->hits, done->gets, done->leases, done->matches, done->saves, done->opens,
	       done->failed);
	if (!done->hits || !done->leases || !done->saves)
		failed = fprintf(stderr, "torture_soak: clients came to nothing\n");
	return failed != 0;
}
