/* SPDX-License-Identifier: Apache-2.0 */
/* What loading costs against computing. See worth.h. */
#include "policy/worth.h"

/* The slowest of lanes [from, to). */
static double slowest(const struct worth_lane *lanes, const struct worth_load *load, int from, int to, double *bytes)
{
	double most_s = 0;
	for (int i = from; i < to; i++) {
		if (load->bytes[i] <= 0)
			continue;
		double seconds = lanes[i].wait_s + load->bytes[i] / lanes[i].bytes_s;
		*bytes += load->bytes[i];
		most_s = seconds > most_s ? seconds : most_s;
	}
	return most_s;
}

struct worth_time worth_time(const struct worth_lane *lanes, const struct worth_load *load)
{
	struct worth_time time = {0};
	double bytes = load->bytes[WORTH_MEMORY];
	time.flash_s = slowest(lanes, load, WORTH_FLASH, WORTH_PEER, &bytes);
	time.peer_s = slowest(lanes, load, WORTH_PEER, WORTH_LANES, &bytes);
	if (bytes > 0)
		time.memory_s = lanes[WORTH_MEMORY].wait_s + bytes / lanes[WORTH_MEMORY].bytes_s;
	time.all_s = time.memory_s + (time.flash_s > time.peer_s ? time.flash_s : time.peer_s);
	return time;
}

double worth_cost_s(double a_s, double b_s, uint64_t tokens)
{
	double n = (double)tokens;
	return a_s * n + b_s * n * n;
}
