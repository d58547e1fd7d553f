/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame that every format of cairn's devices begins with: 32 bytes that keep their place and meaning in all
 * versions, so that an old program can tell a newer format from a damaged one. Pure.
 *
 *    0  u8[8] magic
 *    8  u32   version, from 1
 *   12  u32   compat bits    may be ignored
 *   16  u32   ro_compat bits not known: read, but write nothing
 *   20  u32   incompat bits  not known: do not read
 *   24  u64   checksum: XXH3-64, seeded, of all bytes of the structure with this field taken as zero
 */
#ifndef CAIRN_FMT_FRAME_H
#define CAIRN_FMT_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "fmt/segment.h"

#define FRAME_BYTES 32u

/* The seed of what lies outside segments: the magic as a number. In segments it is the salt of the life. */
static inline uint64_t frame_seed(const char magic[8]) { return bytes_get64(magic); }

/* Writes the frame, but for the checksum. `version` must be one that we write; `bits` may be NULL: none. */
void frame_start(uint8_t *bytes, const char magic[8], uint32_t version, const struct fmt_bits *bits);
/* Sets the checksum over `length` bytes, frame included. */
void frame_seal(uint8_t *bytes, size_t length, uint64_t seed);
/* Whether the frame claims what we do not know: a newer version, or an incompat bit. Means something once proven. */
int frame_newer(const uint8_t bytes[FRAME_BYTES]);
/* Proves `length` foreign bytes. The checksum comes before the version: a flipped bit in the version is damage, not the
 * future. FMT_OK, FMT_BAD or FMT_NEWER; ret_version and ret_bits (may be NULL) are set with FMT_OK only. */
int frame_open(const uint8_t *bytes, size_t length, const char magic[8], uint64_t seed, uint32_t *ret_version,
               struct fmt_bits *ret_bits);

#endif
