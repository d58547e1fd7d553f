/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cairnd counts of its own, and /metrics: all figures as Prometheus reads them.
 * Threads: counting from any; atomics. Memory: fixed, and the text.
 */
#ifndef CAIRN_DAEMON_METRICS_H
#define CAIRN_DAEMON_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "fmt/wire.h"

enum {
	METRICS_BUCKETS = 20, /* of latencies; the last one takes all that is left */
	METRICS_SPACES = 100, /* the largest; the rest as one */
	METRICS_TYPES = 64,
};

struct metrics {
	struct metrics_request {
		atomic_ullong done, failed, ns;
		atomic_ullong buckets[METRICS_BUCKETS];
	} requests[METRICS_TYPES];
	atomic_ullong conns, conns_refused, clients, reloads, reloads_failed;
};

void metrics_request(struct metrics *metrics, uint32_t type, uint64_t ns, int failed);
/* The name of a request's type as docs/WIRE.md has it; never NULL. */
const char *metrics_type(uint32_t type);

struct daemon;
struct text;
void metrics_write(struct daemon *daemon, struct text *text);

#endif
