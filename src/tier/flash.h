/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flash tier: one device (a file), its log of segments and its ledger. DESIGN: docs/FORMAT.md.
 *
 * Life: flash_open (label, ledger) -> the store reconciles the ledgers of all devices -> flash_recover (reports what is
 * there by host->found) -> flash_start -> tier requests -> flash_close.
 */
#ifndef CAIRN_TIER_FLASH_H
#define CAIRN_TIER_FLASH_H

#include "io/io.h"
#include "tier/ledger.h"
#include "tier/tier.h"

struct flash;

struct flash_config {
	const char *path;
	uint32_t device;          /* number in the store */
	uint8_t store_id[16];
	uint8_t device_id[16];
	uint32_t create;          /* 1: make it anew (the file must not exist) */
	uint32_t readonly;
	uint64_t budget_bytes;
	uint64_t free_floor_bytes; /* 0: 5 % of the file system, at most 10 GiB */
	uint32_t segment_bytes;   /* create only; 0: fits the budget */
	uint32_t io_threads;
	uint32_t write_version;
	const struct io_maker *maker;
	const struct tier_host *host;
};

/* Errors: NOENT (device is gone), ACCESS, RDONLY, FULL, NOTSTORE (no label), VERSION, CORRUPT (label of another store
 * or damaged in both copies), IO, NOMEM, INVAL (budget too small). */
int flash_open(const struct flash_config *config, struct flash **ret_flash);
struct ledger *flash_ledger(struct flash *flash); /* until flash_start; then the loop's */
struct flash_recovery {
	uint64_t read_bytes, payload_bytes;
	uint64_t found_parts, lost_groups, bad_payloads, doubtful_parts, dropped_parts;
	uint64_t next_birth; /* above every birth seen */
};
int flash_recover(struct flash *flash, struct flash_recovery *ret_recovery);
/* Begins a new run: durable counters, wiped tails. After it the loop owns the device. next_birth: of the store. */
int flash_start(struct flash *flash, uint64_t next_birth);
/* The weight of a flow (tier_req.flow); 0: SHARE_WEIGHT. Any thread. */
void flash_share(struct flash *flash, uint32_t flow, uint32_t weight);
/* Memory that parts lie in: once, before the loop starts. And, from any thread, that a piece of it is about to be
 * unmapped. */
void flash_buffers(struct flash *flash, const struct io_vec *vec, uint32_t nvec);
void flash_buffer_gone(struct flash *flash, const void *address);
/* Finishes what is queued, flushes; `checkpoint` writes the device's part of the catalog by calling back for each part.
 * Then frees all. Returns the first error. */
struct flash_checkpoint {
	void *arg;
	uint64_t (*count)(void *arg, uint32_t device);
	/* The next part after *cursor (0: first); 0: no more. Fills key and parent prefixes, space, part, flags, lengths,
	 * stored check, birth, and the page. */
	int (*next)(void *arg, uint32_t device, uint32_t *cursor, struct fmt_entry *ret_entry, uint32_t *ret_page);
};
int flash_close(struct flash *flash, uint64_t next_birth, const struct flash_checkpoint *checkpoint);
/* Frees without writing anything: a failed open, or the simulator's dead process. */
void flash_abandon(struct flash *flash);

/* Most bytes of one part, from the segment's size. */
uint32_t flash_part_max(const struct flash *flash);
uint32_t flash_pages_per_segment(const struct flash *flash);
uint32_t flash_segments(const struct flash *flash);

extern const struct tier_ops flash_ops;

#endif
