/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame of all device formats: magic, version, feature bits, checksum.
 * Threads: any; pure. Memory: the caller's.
 * Invariant: place, seed and reach of the checksum never change with the version; only so may it be checked first.
 */
#include "fmt/frame.h"

#include "base/check.h"
#include "base/digest.h"

enum {
	FRAME_VERSION = 8,
	FRAME_COMPAT = 12,
	FRAME_RO_COMPAT = 16,
	FRAME_INCOMPAT = 20,
	FRAME_CHECKSUM = 24,
};

static uint64_t frame_sum(const uint8_t *bytes, size_t length, uint64_t seed)
{
	static const uint8_t none[8];
	struct digest_xxh xxh;

	digest_xxh_init(&xxh, seed);
	digest_xxh_add(&xxh, bytes, FRAME_CHECKSUM);
	digest_xxh_add(&xxh, none, sizeof none);
	digest_xxh_add(&xxh, bytes + FRAME_BYTES, length - FRAME_BYTES);
	return digest_xxh_done(&xxh);
}

void frame_start(uint8_t *bytes, const char magic[8], uint32_t version, const struct fmt_bits *bits)
{
	check(version >= 1 && version <= FMT_VERSION);
	check(!bits || !(bits->incompat & ~FMT_INCOMPAT_KNOWN));
	memcpy(bytes, magic, 8);
	bytes_set32(bytes + FRAME_VERSION, version);
	bytes_set32(bytes + FRAME_COMPAT, bits ? bits->compat : 0);
	bytes_set32(bytes + FRAME_RO_COMPAT, bits ? bits->ro_compat : 0);
	bytes_set32(bytes + FRAME_INCOMPAT, bits ? bits->incompat : 0);
	bytes_set64(bytes + FRAME_CHECKSUM, 0);
}

void frame_seal(uint8_t *bytes, size_t length, uint64_t seed)
{
	check(length >= FRAME_BYTES);
	bytes_set64(bytes + FRAME_CHECKSUM, frame_sum(bytes, length, seed));
}

int frame_newer(const uint8_t bytes[FRAME_BYTES])
{
	return bytes_get32(bytes + FRAME_VERSION) > FMT_VERSION ||
	       (bytes_get32(bytes + FRAME_INCOMPAT) & ~FMT_INCOMPAT_KNOWN);
}

int frame_open(const uint8_t *bytes, size_t length, const char magic[8], uint64_t seed, uint32_t *ret_version,
               struct fmt_bits *ret_bits)
{
	if (length < FRAME_BYTES || memcmp(bytes, magic, 8) != 0)
		return FMT_BAD;
	if (bytes_get64(bytes + FRAME_CHECKSUM) != frame_sum(bytes, length, seed))
		return FMT_BAD;

	if (frame_newer(bytes))
		return FMT_NEWER;

	uint32_t version = bytes_get32(bytes + FRAME_VERSION);
	if (!version)
		return FMT_BAD;
	*ret_version = version;
	if (ret_bits) {
		ret_bits->compat = bytes_get32(bytes + FRAME_COMPAT);
		ret_bits->ro_compat = bytes_get32(bytes + FRAME_RO_COMPAT);
		ret_bits->incompat = bytes_get32(bytes + FRAME_INCOMPAT);
	}
	return FMT_OK;
}
