/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The identity of a store: the file `cairn.id` of its directory. The only file whose loss fails an open, so it is kept
 * twice in itself. Pure.
 */
#ifndef CAIRN_FMT_IDENT_H
#define CAIRN_FMT_IDENT_H

#include <stddef.h>
#include <stdint.h>

#include "fmt/segment.h"

#define IDENT_COPY_BYTES 8192u
#define IDENT_BYTES (2 * IDENT_COPY_BYTES) /* of the file, always */
#define IDENT_PATH_MAX 255u

enum {
	IDENT_DEVICE_AWAY = 1u << 0,   /* it was away when the store was opened last */
	IDENT_DEVICE_MISSED = 1u << 1, /* drops or forgets were decided while it was */
};

struct ident_device {
	uint8_t device_id[16];
	uint64_t budget_bytes;
	uint32_t flags; /* IDENT_DEVICE_...; others are kept as they are */
	char path[IDENT_PATH_MAX + 1]; /* 0-terminated; "": inside the directory */
};

struct fmt_ident {
	uint32_t version;
	struct fmt_bits bits;
	uint8_t store_id[16];
	uint64_t created_at_s; /* wall clock */
	uint64_t memory_bytes; /* remembered options; 0: the default */
	uint64_t free_floor_bytes;
	uint64_t births;   /* where those began that were given since a device was away; 0: none ever was */
	uint32_t ndevices; /* at most FMT_DEVICES_MAX */
	struct ident_device device[FMT_DEVICES_MAX];
};

void ident_encode(const struct fmt_ident *ident, uint8_t bytes[IDENT_BYTES]);
/* Decodes `length` foreign bytes; the first good copy counts. A file cut short may still hold the first. FMT_OK,
 * FMT_BAD, or FMT_NEWER: no copy can be read, and one of them is whole and newer. */
int ident_decode(const uint8_t *bytes, size_t length, struct fmt_ident *ret_ident);

#endif
