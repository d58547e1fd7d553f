/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of an engine for tests. Threads: one. Memory: none. */
#include "lib/engine.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

uint32_t engine_wanted(void)
{
	const char *name = getenv("CAIRN_TEST_IO");
	if (!name || !name[0])
		return CAIRN_IO_BEST;
	if (!strcmp(name, "threads"))
		return CAIRN_IO_THREADS;
	if (!strcmp(name, "uring"))
		return CAIRN_IO_URING;
	fprintf(stderr, "CAIRN_TEST_IO is threads or uring, not %s\n", name);
	exit(2);
}

const struct io_maker *engine_maker(void)
{
	const struct io_maker *makers[] = {&io_maker_real, &io_maker_threads, &io_maker_uring};
	return makers[engine_wanted()];
}

int engine_uring_refused(void)
{
	struct io *io;
	int refused = 0;
	char path[4096] = {0};
	if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0)
		return 1;
	int error = uring_open(path, IO_OPEN_READONLY, 1, &refused, &io);
	if (!error)
		io->ops->close(io);
	if (refused)
		printf("skipped: io_uring is refused here: %s\n", strerror(-error));
	return refused;
}

void engine_or_skip(void)
{
	if (engine_wanted() == CAIRN_IO_URING && engine_uring_refused())
		exit(77);
}

int engine_forbid_uring(int errnum)
{
	struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((uint32_t)errnum & SECCOMP_RET_DATA)),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return -errno;
	return 0;
}
