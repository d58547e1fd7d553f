/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine can do without cairn: fio for the medium, memcpy for memory.
 * Threads: one. Memory: none that stays.
 * Invariant: fio works on a file that the caller made, of whole blocks, and never makes one.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/cli.h"

static int limit_present(const char *program)
{
	const char *path = getenv("PATH");
	char file[1024];

	for (const char *at = path ? path : "/usr/bin:/bin"; *at;) {
		size_t length = strcspn(at, ":");

		snprintf(file, sizeof file, "%.*s/%s", (int)length, at, program);
		if (length && !access(file, X_OK))
			return 1;
		at += length + (at[length] == ':');
	}
	return 0;
}

int bench_fio_present(void)
{
	return limit_present("fio");
}

/* Its exit status, 127 where it could not be run. Its words go to `log`. */
static int fio_exec(char *const *argv, const char *log)
{
	int status;
	pid_t child = fork();

	if (child < 0)
		return 127;
	if (!child) {
		int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

		if (fd >= 0) {
			dup2(fd, STDOUT_FILENO);
			dup2(fd, STDERR_FILENO);
		}
		execvp(argv[0], argv);
		_exit(127);
	}
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return 127;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int fio_parse(const char *path, const struct bench_fio *fio, double *ret_gb_s, double *ret_cpu_s_gb)
{
	json_t *all = json_load_file(path, 0, NULL);
	json_t *job = json_array_get(json_object_get(all, "jobs"), 0);
	json_t *side = json_object_get(job, fio->write ? "write" : "read");
	double bytes = json_number_value(json_object_get(side, "io_bytes"));
	double seconds = json_number_value(json_object_get(side, "runtime")) / 1e3;
	double cpu =
		json_number_value(json_object_get(job, "usr_cpu")) + json_number_value(json_object_get(job, "sys_cpu"));
	int bad = !(bytes > 0) || !(seconds > 0);

	if (!bad) {
		*ret_gb_s = bytes / 1e9 / seconds;
		*ret_cpu_s_gb = cpu / 100 * seconds / (bytes / 1e9);
	}
	json_decref(all);
	return bad ? -1 : 0;
}

static int fio_once(struct bench *bench, const struct bench_fio *fio, const char *engine, double *ret_gb_s,
                    double *ret_cpu_s_gb)
{
	char file[4200], size[48], depth[32], flush[32], output[4200], ioengine[32];
	char *report = bench_path(bench, "fio.json"), *log = bench_path(bench, "fio.log");
	int status = -1;

	snprintf(file, sizeof file, "--filename=%s", fio->file);
	snprintf(size, sizeof size, "--size=%llu", (unsigned long long)fio->bytes);
	snprintf(depth, sizeof depth, "--iodepth=%u", fio->depth);
	snprintf(flush, sizeof flush, "--fdatasync=%u", fio->flush_each);
	snprintf(output, sizeof output, "--output=%s", report);
	snprintf(ioengine, sizeof ioengine, "--ioengine=%s", engine);
	char *argv[] = {"fio",
	                "--name=limit",
	                file,
	                size,
	                depth,
	                flush,
	                output,
	                ioengine,
	                "--bs=2m",
	                "--direct=1",
	                "--output-format=json",
	                "--allow_file_create=0",
	                "--overwrite=0",
	                "--randrepeat=1",
	                fio->write ? "--rw=write" : "--rw=read",
	                fio->write ? "--end_fsync=0" : "--readonly",
	                NULL};
	if (!fio_exec(argv, log))
		status = fio_parse(report, fio, ret_gb_s, ret_cpu_s_gb);
	free(report);
	free(log);
	return status;
}

int bench_fio(struct bench *bench, const struct bench_fio *fio, double *ret_gb_s, double *ret_cpu_s_gb)
{
	if (bench->engine && !fio_once(bench, fio, bench->engine, ret_gb_s, ret_cpu_s_gb))
		return 0;
	if (!bench->engine) {
		static const char *const engines[] = {"io_uring", "libaio"};

		for (size_t i = 0; i < 2 && !say_stopped; i++)
			if (!fio_once(bench, fio, engines[i], ret_gb_s, ret_cpu_s_gb)) {
				bench->engine = engines[i];
				return 0;
			}
	}
	if (say_stopped)
		return CLI_ERROR; /* it had the same signal */
	return say_error("fio can not %s %s directly; give a STORE on a file system that allows O_DIRECT, not tmpfs",
	                 fio->write ? "write" : "read", say_name(fio->file));
}

double bench_memcpy(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
	double start = bench_now();

	for (uint64_t at = 0; at < bytes; at += BENCH_PART_BYTES)
		memcpy(to + at, from + at, BENCH_PART_BYTES);
	__asm__ __volatile__("" : : : "memory");
	return (double)bytes / 1e9 / (bench_now() - start);
}

enum {
	LIMIT_THREADS = 32
};
struct limit_copy {
	uint8_t *to;
	const uint8_t *from;
	uint64_t bytes, done;
	double until;
};

static void *limit_copy(void *arg)
{
	struct limit_copy *copy = arg;

	while (bench_now() < copy->until) {
		(void)bench_memcpy(copy->to, copy->from, copy->bytes);
		copy->done += copy->bytes;
	}
	return NULL;
}

double bench_memcpy_threads(uint8_t *to, const uint8_t *from, uint64_t bytes, uint32_t threads, double seconds)
{
	struct limit_copy copies[LIMIT_THREADS];
	pthread_t ids[LIMIT_THREADS];
	uint64_t done = 0;
	double start = bench_now();

	threads = threads < LIMIT_THREADS ? threads : LIMIT_THREADS;
	uint64_t share = bytes / threads / BENCH_PART_BYTES * BENCH_PART_BYTES;
	for (uint32_t i = 0; i < threads; i++) {
		copies[i] = (struct limit_copy){to + i * share, from + i * share, share, 0, start + seconds};
		if (pthread_create(&ids[i], NULL, limit_copy, &copies[i]))
			threads = i;
	}
	for (uint32_t i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		done += copies[i].done;
	}
	return (double)done / 1e9 / (bench_now() - start);
}

/* ---- iperf3 ------------------------------------------------------------------------------------------------------ */

static double iperf3_parse(const char *path)
{
	json_t *all = json_load_file(path, 0, NULL);
	json_t *sum = json_object_get(json_object_get(all, "end"), "sum_received");
	double gb_s = json_number_value(json_object_get(sum, "bits_per_second")) / 8e9;

	json_decref(all);
	return gb_s;
}

double bench_iperf3(struct bench *bench)
{
	char port[16];
	char *log = bench_path(bench, "iperf3.json"), *other = bench_path(bench, "iperf3.log");
	char *serve[] = {"iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port, NULL};
	char *ask[] = {"iperf3", "-c", "127.0.0.1", "-p", port, "-J", "-t", "1", NULL};
	double gb_s = 0;
	pid_t server = -1, parent = getpid();

	snprintf(port, sizeof port, "%u", bench_port());
	fflush(NULL);
	if (limit_present("iperf3"))
		server = fork();
	if (!server) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		int fd = open(other, O_WRONLY | O_CREAT | O_TRUNC, 0600);

		if (fd >= 0) {
			dup2(fd, STDOUT_FILENO);
			dup2(fd, STDERR_FILENO);
		}
		if (getppid() == parent)
			execvp(serve[0], serve);
		_exit(127);
	}
	/* It listens in a moment. */
	for (int tries = 0; server > 0 && tries < 20 && !(gb_s > 0) && !say_stopped; tries++) {
		usleep(50000);
		if (!fio_exec(ask, log))
			gb_s = iperf3_parse(log);
	}
	if (server > 0) {
		kill(server, SIGTERM);
		waitpid(server, NULL, 0);
	}
	free(log);
	free(other);
	return gb_s;
}
