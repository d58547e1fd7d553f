/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cairnd for the figures of clients: started beside this program, over a directory of the scratch place, listening on
 * a socket file and on loopback; and what its clients do to be measured.
 * Threads: one. Memory: the places' names; a child process.
 * Invariant: the child is ended and waited for before the directory goes, and the kernel ends it should we be killed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/cli.h"

#define DAEMON_READY_S 120.0 /* memory is touched first, and a large catalog read */
#define DAEMON_END_S   60.0

/* ---- its life ---------------------------------------------------------------------------------------------------- */

unsigned bench_port(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	unsigned port = 0;

	if (fd >= 0 && !bind(fd, (struct sockaddr *)&address, sizeof address) &&
	    !getsockname(fd, (struct sockaddr *)&address, &length))
		port = ntohs(address.sin_port);
	if (fd >= 0)
		close(fd);
	return port;
}

/* Its configuration, as a file: all that matters is said. 0, or CLI_ERROR after a message. */
static int daemon_configure(const char *file, const char *dir, const struct bench_plan *plan,
                            const struct bench_daemon *daemon)
{
	FILE *to = fopen(file, "w");

	if (!to)
		return say_error("%s: %s", say_name(file), strerror(errno));
	fprintf(to, "dir: \"%s\"\nlisten: [\"%s\", \"%s\", \"%s\"]\nfree_floor: 1\n", dir, daemon->local,
	        daemon->remote, daemon->secure);
	if (plan->memory_bytes)
		fprintf(to, "memory: %llu\n", (unsigned long long)plan->memory_bytes);
	if (plan->catalog_bytes)
		fprintf(to, "catalog: %llu\n", (unsigned long long)plan->catalog_bytes);
	if (plan->no_flash) /* there is a device, and next to nothing may be written to it */
		fprintf(to, "write_budget: 1\n");
	if (plan->peer) /* it may be busy with something else */
		fprintf(to, "peers: [\"%s\"]\npeer_wait_ms: 1000\n", plan->peer);
	if (plan->no_flash || plan->flash_bytes)
		fprintf(to, "flash: [{path: \"%s\", budget: %llu}]\n", dir,
		        (unsigned long long)(plan->flash_bytes ? plan->flash_bytes : (uint64_t)256 << 20));
	return fclose(to) ? say_error("%s: %s", say_name(file), strerror(errno)) : 0;
}

static void daemon_exec(const char *file, const char *log, pid_t parent)
{
	char own[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", own, sizeof own - sizeof "cairnd");
	char *slash = length > 0 ? (own[length] = '\0', strrchr(own, '/')) : NULL;
	int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	if (fd >= 0) {
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
	}
	if (slash) {
		memcpy(slash + 1, "cairnd", sizeof "cairnd");
		execl(own, "cairnd", file, (char *)NULL);
	}
	execlp("cairnd", "cairnd", file, (char *)NULL);
	fprintf(stderr, "cairnd can not be run: %s; it is installed beside this program\n", strerror(errno));
	_exit(127);
}

/* The last line that it said. */
static void daemon_last_words(const char *log, char *text, size_t max)
{
	FILE *file = fopen(log, "r");

	snprintf(text, max, "it said nothing");
	while (file && fgets(text, (int)max, file))
		text[strcspn(text, "\n")] = '\0';
	if (file)
		fclose(file);
}

static void daemon_pause(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* Until it answers, or has ended. 0, or CLI_ERROR after a message. */
static int daemon_await(struct bench_daemon *daemon, const char *log)
{
	double until = bench_now() + DAEMON_READY_S;
	char text[400];
	cairn *store;
	int status;

	while (!say_stopped) {
		if (waitpid(daemon->pid, &status, WNOHANG) == daemon->pid) {
			daemon->pid = 0;
			daemon_last_words(log, text, sizeof text);
			return say_error("the cairnd to be measured has ended: %s", text);
		}
		if (!cairn_open(daemon->local, &(struct cairn_options){.size = sizeof(struct cairn_options)}, &store)) {
			cairn_close(store);
			return 0;
		}
		if (bench_now() > until)
			return say_error("the cairnd to be measured does not answer: %s", cairn_error_text());
		daemon_pause();
	}
	return CLI_ERROR;
}

/* A token for what is encrypted, in a file of our own. 0, or CLI_ERROR after a message. */
static int daemon_token(const char *dir, const char *path)
{
	struct cairn_token_desc desc = {.size = sizeof desc};
	char text[CAIRN_TOKEN_TEXT];

	if (cairn_token_new(dir, &desc, text))
		return say_error("%s", cairn_error_text());
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return say_error("%s: %s", say_name(path), strerror(errno));
	int error = dprintf(fd, "%s\n", text) < 0;
	return close(fd) || error ? say_error("%s: %s", say_name(path), strerror(errno)) : 0;
}

int bench_daemon_start(struct bench *bench, const char *name, const struct bench_plan *plan,
                       struct bench_daemon *daemon)
{
	char *base = realpath(bench->dir, NULL), *dir, *file, *log;
	unsigned port = bench_port(), other = bench_port();
	pid_t parent = getpid();

	if (!base || !port) {
		free(base);
		return say_error("no place for a cairnd to be measured: %s", strerror(errno));
	}
	if (asprintf(&dir, "%s/%s", base, name) < 0 || asprintf(&file, "%s/%s.yaml", base, name) < 0 ||
	    asprintf(&log, "%s/%s.log", base, name) < 0 || asprintf(&daemon->local, "unix:%s/%s.sock", base, name) < 0 ||
	    asprintf(&daemon->remote, "tcp+plain://127.0.0.1:%u", port) < 0 ||
	    asprintf(&daemon->secure, "tcp://127.0.0.1:%u", other) < 0 ||
	    asprintf(&daemon->token, "%s/%s.token", base, name) < 0)
		abort();
	int error = daemon_configure(file, dir, plan, daemon);
	fflush(NULL);
	if (!error && (daemon->pid = fork()) < 0) {
		daemon->pid = 0;
		error = say_error("a process can not be made: %s", strerror(errno));
	}
	if (!error && !daemon->pid)
		daemon_exec(file, log, parent);
	if (!error)
		error = daemon_await(daemon, log);
	if (!error)
		error = daemon_token(dir, daemon->token);
	free(base);
	free(dir);
	free(file);
	free(log);
	return error;
}

void bench_daemon_end(struct bench_daemon *daemon)
{
	double until = bench_now() + DAEMON_END_S;
	int status;

	if (daemon->pid) {
		kill(daemon->pid, SIGTERM);
		while (waitpid(daemon->pid, &status, WNOHANG) == 0) {
			if (bench_now() > until)
				kill(daemon->pid, SIGKILL);
			daemon_pause();
		}
	}
	daemon->pid = 0;
	free(daemon->local);
	free(daemon->remote);
	free(daemon->secure);
	free(daemon->token);
	daemon->local = daemon->remote = daemon->secure = daemon->token = NULL;
}

double bench_daemon_cpu(const struct bench_daemon *daemon)
{
	struct timespec used = {0};
	clockid_t clock;

	if (daemon->pid && !clock_getcpuclockid(daemon->pid, &clock))
		clock_gettime(clock, &used);
	return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

/* ---- its clients ------------------------------------------------------------------------------------------------- */

int bench_connect(const char *place, const char *token, cairn **ret_store, cairn_space **ret_space)
{
	struct cairn_options options = {.size = sizeof options, .token_file = token};
	struct cairn_space_desc desc;

	bench_desc(&desc);
	if (cairn_open(place, &options, ret_store)) {
		*ret_store = NULL;
		return say_error("%s", cairn_error_text());
	}
	if (!cairn_describe(*ret_store, &desc, ret_space))
		return 0;
	say_error("%s", cairn_error_text());
	cairn_close(*ret_store);
	*ret_store = NULL;
	return CLI_ERROR;
}

uint64_t bench_cold_bytes(const struct bench *bench, uint64_t areas)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), free = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
	long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
	uint64_t bytes = 4 * (cache > 0 ? (uint64_t)cache : (uint64_t)64 << 20), least = (uint64_t)64 << 20;

	if (bench->quick)
		bytes = (uint64_t)256 << 20;
	bytes = bytes > free / (2 * areas) ? free / (2 * areas) : bytes;
	bytes = bytes < least ? least : bytes;
	return bytes / (BENCH_BATCH * BENCH_PART_BYTES) * (BENCH_BATCH * BENCH_PART_BYTES);
}

struct parts_batch {
	struct cairn_item items[BENCH_BATCH];
	struct cairn_buf bufs[BENCH_BATCH];
};

static void parts_name(struct parts_batch *batch, uint8_t *memory, uint64_t first, uint64_t at, uint32_t count,
                       uint32_t flags)
{
	memset(batch->items, 0, sizeof batch->items);
	for (uint32_t i = 0; i < count; i++) {
		batch->bufs[i] = cairn_buf_of(memory + (at + i) * BENCH_PART_BYTES, BENCH_PART_BYTES);
		batch->items[i].bufs = &batch->bufs[i];
		batch->items[i].nbufs = 1;
		batch->items[i].flags = flags;
		bench_key(first + at + i, &batch->items[i].key);
	}
}

double bench_put_parts(cairn *store, cairn_space *space, uint8_t *memory, uint64_t first, uint64_t parts,
                       uint32_t batch)
{
	struct parts_batch work;
	double start = bench_now();

	for (uint64_t at = 0; at < parts; at += batch) {
		parts_name(&work, memory, first, at, batch, 0);
		if (cairn_put(store, space, work.items, batch, NULL) != (long)batch)
			return say_error("a put failed: %s", cairn_error_text()), 0;
		for (uint32_t i = 0; i < batch; i++)
			if (work.items[i].status != CAIRN_OK)
				return say_error("a part that was to be put was there already"), 0;
	}
	return (double)(parts * BENCH_PART_BYTES) / 1e9 / (bench_now() - start);
}

double bench_get_parts(cairn *store, cairn_space *space, uint8_t *memory, uint64_t first, uint64_t parts,
                       uint32_t batch, int flags)
{
	struct parts_batch work;
	double start = bench_now();

	for (uint64_t at = 0; at < parts; at += batch) {
		parts_name(&work, memory, first, at, batch, flags & BENCH_UNCHECKED ? CAIRN_ITEM_UNCHECKED : 0);
		if (cairn_get(store, space, work.items, batch, NULL) != (long)batch)
			return say_error("a get failed: %s", cairn_error_text()), 0;
	}
	return (double)(parts * BENCH_PART_BYTES) / 1e9 / (bench_now() - start);
}

/* ---- a daemon with parts in its memory --------------------------------------------------------------------------- */

int bench_rig_start(struct bench *bench, const char *name, int far, uint32_t areas, struct bench_rig *rig)
{
	struct bench_plan plan = {.no_flash = 1};

	rig->bytes = bench_cold_bytes(bench, 4);
	rig->parts = rig->bytes / BENCH_PART_BYTES;
	rig->from = bench_map(rig->bytes);
	rig->to = rig->from ? bench_map(rig->bytes) : NULL;
	if (!rig->to)
		return CLI_ERROR;
	bench_fill_random(bench, rig->from, rig->bytes);
	plan.memory_bytes = areas * rig->bytes + rig->bytes / 8 + ((uint64_t)64 << 20);
	int error = bench_daemon_start(bench, name, &plan, &rig->daemon);
	error = error ? error : bench_connect(far ? rig->daemon.remote : rig->daemon.local, NULL, &rig->store, &rig->space);
	if (error)
		return error;
	return bench_put_parts(rig->store, rig->space, rig->from, 0, rig->parts, BENCH_BATCH) > 0 ? 0 : CLI_ERROR;
}

void bench_rig_done(struct bench_rig *rig)
{
	if (rig->store)
		cairn_close(rig->store);
	bench_daemon_end(&rig->daemon);
	bench_unmap(rig->from, rig->bytes);
	bench_unmap(rig->to, rig->bytes);
}

/* ---- what it takes ----------------------------------------------------------------------------------------------- */

void bench_cpu_begin(struct bench_cpu_sum *sum, const struct bench_daemon *daemon)
{
	sum->client_s -= bench_cpu();
	sum->daemon_s -= bench_daemon_cpu(daemon);
}

void bench_cpu_end(struct bench_cpu_sum *sum, const struct bench_daemon *daemon, uint64_t bytes)
{
	sum->client_s += bench_cpu();
	sum->daemon_s += bench_daemon_cpu(daemon);
	sum->gb += (double)bytes / 1e9;
}

void bench_cpu_note(struct bench *bench, const char *name, const struct bench_cpu_sum *sum)
{
	struct bench_result *result = bench_find(bench, name);
	char client[24], daemon[24];

	if (result && sum->gb > 0)
		snprintf(result->note, sizeof result->note, "CPU seconds a GB: client %s, cairnd %s",
		         bench_number(sum->client_s / sum->gb, client, sizeof client),
		         bench_number(sum->daemon_s / sum->gb, daemon, sizeof daemon));
}
