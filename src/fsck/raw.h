/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preparing a raw block device for a store, for `cairn init`. What is on it is looked at first; nothing is written
 * before raw_prepare. While it is held open nobody can mount it.
 *
 * Threads: the caller's. Memory: some 1 MiB while a function runs.
 */
#ifndef CAIRN_FSCK_RAW_H
#define CAIRN_FSCK_RAW_H

#include <stdint.h>

struct io;

enum raw_state {
	RAW_EMPTY = 0,    /* zeros where all file systems, partition tables and the like have something */
	RAW_PREPARED = 1, /* by cairn init, and in no store yet */
	RAW_STORE = 2,    /* the device of a store: preparing it takes all that is on it */
	RAW_FOREIGN = 3,  /* something else: not to be touched */
};

struct raw {
	struct io *io;
	const char *path;
	uint64_t bytes;
	uint32_t state;        /* enum raw_state */
	uint64_t foreign_at;   /* where something else was found, bytes */
	uint8_t store_id[16];  /* RAW_STORE */
};

/* Least bytes of a device. */
#define RAW_LEAST_BYTES (64ull << 20)

/* 0; or a code of cairn.h, with a text: INVAL (no block device, or too small), OWNED (mounted or in use), NOENT,
 * ACCESS, IO, NOMEM. raw_close only after 0. `path` must outlive it. */
int raw_open(const char *path, struct raw *ret_raw);
/* Makes it ready: everything that was on it is lost for every reader. Not with RAW_FOREIGN. 0, IO or NOMEM. */
int raw_prepare(struct raw *raw);
void raw_close(struct raw *raw);

#endif
