/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real clock.
 * Threads: any. Memory: none.
 * Invariant: mono_ns never goes back and is never 0, so that 0 can mean "not yet".
 */
#include "base/clock.h"

#include <stddef.h>
#include <time.h>

#include "base/check.h"

static uint64_t clock_real_mono_ns(void *arg)
{
	struct timespec now;

	(void)arg;
	check(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + 1;
}

static uint64_t clock_real_wall_s(void *arg)
{
	struct timespec now;

	(void)arg;
	check(clock_gettime(CLOCK_REALTIME, &now) == 0);
	return now.tv_sec > 0 ? (uint64_t)now.tv_sec : 0;
}

const struct clock clock_real = {clock_real_mono_ns, clock_real_wall_s, NULL};
