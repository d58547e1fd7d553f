/* SPDX-License-Identifier: Apache-2.0 */
/* Time, replaceable by the simulator. */
#ifndef CAIRN_BASE_CLOCK_H
#define CAIRN_BASE_CLOCK_H

#include <stdint.h>

struct clock {
	uint64_t (*mono_ns)(void *arg); /* never goes back */
	uint64_t (*wall_s)(void *arg);  /* seconds since 1970; may jump */
	void *arg;
};
extern const struct clock clock_real;

static inline uint64_t clock_mono_ns(const struct clock *clock) { return clock->mono_ns(clock->arg); }
static inline uint64_t clock_wall_s(const struct clock *clock) { return clock->wall_s(clock->arg); }

#endif
