/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How devices are opened for real: by io_uring, or by threads where it is refused, as in a default container.
 *
 * Threads: the opening one. Memory: none. Invariant: an open never fails because of io_uring unless it was asked for.
 */
#include <errno.h>

#include "io/io.h"

static int real_open(void *arg, const char *path, uint32_t flags, uint32_t threads, struct io **ret_io)
{
	int refused = 0;
	(void)arg;
	if (flags & IO_OPEN_BLOCKING)
		return work_open(path, flags, 1, ret_io);
	int result = uring_open(path, flags, threads, &refused, ret_io);
	return refused ? work_open(path, flags, threads, ret_io) : result;
}

static int threads_open(void *arg, const char *path, uint32_t flags, uint32_t threads, struct io **ret_io)
{
	(void)arg;
	return work_open(path, flags, threads, ret_io);
}

static int uring_only_open(void *arg, const char *path, uint32_t flags, uint32_t threads, struct io **ret_io)
{
	int refused = 0;
	(void)arg;
	if (flags & IO_OPEN_BLOCKING)
		return work_open(path, flags, 1, ret_io);
	int result = uring_open(path, flags, threads, &refused, ret_io);
	return refused ? -ENOSYS : result;
}

const struct io_maker io_maker_real = {.open = real_open, .clock = &clock_real, .threaded = 1};
const struct io_maker io_maker_threads = {.open = threads_open, .clock = &clock_real, .threaded = 1};
const struct io_maker io_maker_uring = {.open = uring_only_open, .clock = &clock_real, .threaded = 1};
