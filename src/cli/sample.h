/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store's figures at one moment, and what they grew by since another: for `cairn top` and `cairn stat --watch`.
 * Threads: one. Memory: a sample's lists are malloced; sample_done frees them.
 */
#ifndef CAIRN_CLI_SAMPLE_H
#define CAIRN_CLI_SAMPLE_H

#include "cli/cli.h"

enum {
	SAMPLE_ROWS = 4096
}; /* most spaces, tenants, clients */

/* A tenant, a space or a client: what they have in common, so that they are shown and sorted alike. */
struct sample_row {
	uint8_t id[32]; /* tells it in another sample */
	char name[64], more[64];
	uint64_t memory_bytes, flash_bytes, quota_bytes;
	uint64_t read_bytes, written_bytes, misses; /* so far */
	uint64_t requests;
	uint32_t leases, pid;
};
struct sample_list {
	struct sample_row *rows;
	size_t count;
};
struct sample {
	double at_s;
	struct cairn_stat stat;
	struct sample_list tenants, spaces, clients;
};

/* all: with the lists. 0, or CLI_ERROR after a message. */
int sample_take(cairn *store, int all, struct sample *ret_sample);
void sample_done(struct sample *sample);

/* Growth a second since `before` (NULL, or of another life of the store: since its start, as nothing). */
double sample_rate(uint64_t now, uint64_t before, double seconds);
uint64_t sample_read(const struct cairn_stat *stat); /* bytes delivered, from whatever tier */
uint64_t sample_hits(const struct cairn_stat *stat);
const struct sample_row *sample_find(const struct sample_list *list, const uint8_t id[32]); /* NULL: not there */
/* Waits so long, or until a signal ends the work. */
void sample_wait(double seconds);

#endif
