/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a medium gives, as it was seen to: seconds until the first byte, bytes a second after it, and what is under way
 * now. Flash devices, the network to a peer and copies in memory are all measured so, and docs/POLICY.md says what
 * matches make of it.
 *
 * A window begins when something is asked of an idle medium and ends when nothing is under way, or after
 * RATE_WINDOW_NS. One with at least RATE_WINDOW_BYTES tells bytes a second; a smaller one tells how long the first
 * byte takes. So requests that overlap count as the medium served them together. What was measured is believed for a
 * while, then less and less: a medium that was slow once, and is asked for nothing since, gets another chance.
 *
 * Threads: none of its own; pure, under the lock of whose it is. Memory: none.
 */
#ifndef CAIRN_POLICY_RATE_H
#define CAIRN_POLICY_RATE_H

#include <stdint.h>

#define RATE_WINDOW_BYTES (1u << 20)
#define RATE_WINDOW_NS    100000000ull
#define RATE_STALE_NS     10000000000ull /* after so long without a window half of it is believed, and so on */

struct rate {
	double bytes_s;                /* smoothed; 0: not measured yet */
	double first_s;                /* smoothed seconds to the first byte */
	uint64_t flying_bytes, flying; /* under way: bytes, requests */
	uint64_t since_ns;             /* when the window began */
	uint64_t done_bytes;           /* in it */
	uint64_t seen_ns;              /* when the last window that told something ended */
};

void rate_begin(struct rate *rate, uint64_t bytes, uint64_t now_ns);
/* done_bytes: of them came; 0: the request failed. */
void rate_end(struct rate *rate, uint64_t bytes, uint64_t done_bytes, uint64_t now_ns);
/* A window all at once: a copy. */
void rate_tell(struct rate *rate, uint64_t bytes, uint64_t took_ns, uint64_t now_ns);
/* Bytes a second, and seconds before the first of what would be asked now; first_bytes_s: before any measurement. */
double rate_bytes_s(const struct rate *rate, double first_bytes_s, uint64_t now_ns);
double rate_wait_s(const struct rate *rate, double first_bytes_s, uint64_t now_ns);

#endif
