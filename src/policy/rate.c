/* SPDX-License-Identifier: Apache-2.0 */
/* What a medium gives. See rate.h. */
#include "policy/rate.h"

#define RATE_WEIGHT 0.25 /* of the newest window */

static double smooth(double was, double now)
{
	return was > 0 ? was + (now - was) * RATE_WEIGHT : now;
}

/* A window has ended: what it tells. */
static void window_take(struct rate *rate, uint64_t bytes, uint64_t took_ns, uint64_t now_ns)
{
	double took_s = (double)took_ns / 1e9;
	if (!bytes || !took_ns)
		return;
	rate->seen_ns = now_ns;
	if (bytes >= RATE_WINDOW_BYTES) {
		double moving_s = took_s > 2 * rate->first_s ? took_s - rate->first_s : took_s / 2;
		rate->bytes_s = smooth(rate->bytes_s, (double)bytes / moving_s);
		return;
	}
	double moving_s = rate->bytes_s > 0 ? (double)bytes / rate->bytes_s : 0;
	rate->first_s = smooth(rate->first_s, took_s > moving_s ? took_s - moving_s : 0);
}

void rate_begin(struct rate *rate, uint64_t bytes, uint64_t now_ns)
{
	if (!rate->flying++) {
		rate->since_ns = now_ns;
		rate->done_bytes = 0;
	}
	rate->flying_bytes += bytes;
}

void rate_end(struct rate *rate, uint64_t bytes, uint64_t done_bytes, uint64_t now_ns)
{
	rate->flying--;
	rate->flying_bytes -= bytes;
	rate->done_bytes += done_bytes;
	if (rate->flying && now_ns - rate->since_ns < RATE_WINDOW_NS)
		return;
	window_take(rate, rate->done_bytes, now_ns - rate->since_ns, now_ns);
	rate->since_ns = now_ns;
	rate->done_bytes = 0;
}

void rate_tell(struct rate *rate, uint64_t bytes, uint64_t took_ns, uint64_t now_ns)
{
	if (bytes && took_ns) {
		rate->bytes_s = smooth(rate->bytes_s, (double)bytes * 1e9 / (double)took_ns);
		rate->seen_ns = now_ns;
	}
}

/* How much of what was measured is believed: 1, and half as much after each RATE_STALE_NS. */
static double belief(const struct rate *rate, uint64_t now_ns)
{
	uint64_t age_ns = now_ns > rate->seen_ns ? now_ns - rate->seen_ns : 0;
	double share = 1;
	for (uint64_t i = age_ns / RATE_STALE_NS; i && share > 1e-3; i--)
		share /= 2;
	return share;
}

double rate_bytes_s(const struct rate *rate, double first_bytes_s, uint64_t now_ns)
{
	if (rate->bytes_s <= 0 || rate->bytes_s >= first_bytes_s)
		return rate->bytes_s > 0 ? rate->bytes_s : first_bytes_s;
	double raised = rate->bytes_s / belief(rate, now_ns);
	return raised < first_bytes_s ? raised : first_bytes_s;
}

double rate_wait_s(const struct rate *rate, double first_bytes_s, uint64_t now_ns)
{
	return rate->first_s * belief(rate, now_ns) +
	       (double)rate->flying_bytes / rate_bytes_s(rate, first_bytes_s, now_ns);
}
