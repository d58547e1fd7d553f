/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The identity file of a store: bytes <-> struct. docs/FORMAT.md draws it.
 * Threads: any; pure. Memory: the caller's.
 * Invariant: both copies are the same bytes, and each is enough.
 */
#include "fmt/ident.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "fmt/frame.h"

static const char ident_magic[8] = {'C', 'A', 'I', 'R', 'N', 'S', 'T', 'O'};

enum {
	IDENT_STORE_ID = 32,
	IDENT_CREATED_AT_S = 48,
	IDENT_MEMORY_BYTES = 56,
	IDENT_FREE_FLOOR_BYTES = 64,
	IDENT_NDEVICES = 72,
	IDENT_BIRTHS = 80,
	IDENT_DEVICES = 128,

	DEVICE_ID = 0,
	DEVICE_BUDGET_BYTES = 16,
	DEVICE_PATH_LENGTH = 24,
	DEVICE_FLAGS = 28,
	DEVICE_PATH = 32,
	DEVICE_BYTES = 320,
};
static_assert(DEVICE_PATH + IDENT_PATH_MAX + 1 <= DEVICE_BYTES, "device of an identity");
static_assert(IDENT_DEVICES + FMT_DEVICES_MAX * DEVICE_BYTES <= IDENT_COPY_BYTES, "identity");

void ident_encode(const struct fmt_ident *ident, uint8_t bytes[IDENT_BYTES])
{
	check(ident->ndevices <= FMT_DEVICES_MAX);
	memset(bytes, 0, IDENT_BYTES);
	frame_start(bytes, ident_magic, ident->version, &ident->bits);
	memcpy(bytes + IDENT_STORE_ID, ident->store_id, 16);
	bytes_set64(bytes + IDENT_CREATED_AT_S, ident->created_at_s);
	bytes_set64(bytes + IDENT_MEMORY_BYTES, ident->memory_bytes);
	bytes_set64(bytes + IDENT_FREE_FLOOR_BYTES, ident->free_floor_bytes);
	bytes_set32(bytes + IDENT_NDEVICES, ident->ndevices);
	bytes_set64(bytes + IDENT_BIRTHS, ident->births);
	for (uint32_t i = 0; i < ident->ndevices; i++) {
		const struct ident_device *device = &ident->device[i];
		uint8_t *at = bytes + IDENT_DEVICES + (size_t)i * DEVICE_BYTES;
		size_t length = strnlen(device->path, sizeof device->path);

		check(length <= IDENT_PATH_MAX);
		memcpy(at + DEVICE_ID, device->device_id, 16);
		bytes_set64(at + DEVICE_BUDGET_BYTES, device->budget_bytes);
		bytes_set32(at + DEVICE_PATH_LENGTH, (uint32_t)length);
		bytes_set32(at + DEVICE_FLAGS, device->flags);
		memcpy(at + DEVICE_PATH, device->path, length);
	}
	frame_seal(bytes, IDENT_COPY_BYTES, frame_seed(ident_magic));
	memcpy(bytes + IDENT_COPY_BYTES, bytes, IDENT_COPY_BYTES);
}

static int ident_copy_decode(const uint8_t bytes[IDENT_COPY_BYTES], struct fmt_ident *ret_ident)
{
	int result;

	memset(ret_ident, 0, sizeof *ret_ident);
	result = frame_open(bytes, IDENT_COPY_BYTES, ident_magic, frame_seed(ident_magic), &ret_ident->version,
	                    &ret_ident->bits);
	if (result != FMT_OK)
		return result;
	memcpy(ret_ident->store_id, bytes + IDENT_STORE_ID, 16);
	ret_ident->created_at_s = bytes_get64(bytes + IDENT_CREATED_AT_S);
	ret_ident->memory_bytes = bytes_get64(bytes + IDENT_MEMORY_BYTES);
	ret_ident->free_floor_bytes = bytes_get64(bytes + IDENT_FREE_FLOOR_BYTES);
	ret_ident->ndevices = bytes_get32(bytes + IDENT_NDEVICES);
	ret_ident->births = bytes_get64(bytes + IDENT_BIRTHS);
	if (ret_ident->ndevices > FMT_DEVICES_MAX)
		return FMT_BAD;
	for (uint32_t i = 0; i < ret_ident->ndevices; i++) {
		struct ident_device *device = &ret_ident->device[i];
		const uint8_t *at = bytes + IDENT_DEVICES + (size_t)i * DEVICE_BYTES;
		uint32_t length = bytes_get32(at + DEVICE_PATH_LENGTH);

		if (length > IDENT_PATH_MAX || memchr(at + DEVICE_PATH, 0, length))
			return FMT_BAD;
		memcpy(device->device_id, at + DEVICE_ID, 16);
		device->budget_bytes = bytes_get64(at + DEVICE_BUDGET_BYTES);
		device->flags = bytes_get32(at + DEVICE_FLAGS);
		memcpy(device->path, at + DEVICE_PATH, length);
	}
	return FMT_OK;
}

int ident_decode(const uint8_t *bytes, size_t length, struct fmt_ident *ret_ident)
{
	struct fmt_ident ident;
	int newer = 0;

	for (size_t at = 0; at < IDENT_BYTES && length >= at + IDENT_COPY_BYTES; at += IDENT_COPY_BYTES) {
		int result = ident_copy_decode(bytes + at, &ident);

		if (result == FMT_OK) {
			*ret_ident = ident;
			return FMT_OK;
		}
		newer |= result == FMT_NEWER;
	}
	return newer ? FMT_NEWER : FMT_BAD;
}
