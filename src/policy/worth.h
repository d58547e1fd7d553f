/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What loading costs against computing. Media are lanes: each has its wait and its rate, and all bring at the same time
 * what lies with them; what they bring, and what is in memory already, is then copied to the reader, one byte after the
 * other. So a load takes as long as the slowest lane, and the copy.
 *
 * Threads: any; pure. Memory: none.
 */
#ifndef CAIRN_POLICY_WORTH_H
#define CAIRN_POLICY_WORTH_H

#include <stdint.h>

enum {
	WORTH_MEMORY = 0,
	WORTH_FLASH = 1, /* and a lane for each further device */
	WORTH_PEER = 17, /* and for each further peer */
	WORTH_LANES = 33,
};

struct worth_lane {
	double wait_s;  /* before the first byte of what would be asked now */
	double bytes_s; /* > 0 where the lane has bytes */
};

/* What lies where, of a prefix. */
struct worth_load {
	double bytes[WORTH_LANES];
};

/* Seconds to load; and of each kind of lane: copying, the slowest device, the slowest peer. */
struct worth_time {
	double all_s, memory_s, flash_s, peer_s;
};
struct worth_time worth_time(const struct worth_lane *lanes, const struct worth_load *load);
/* Declared seconds to compute so many tokens. */
double worth_cost_s(double a_s, double b_s, uint64_t tokens);

#endif
