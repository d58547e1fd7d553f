/* SPDX-License-Identifier: Apache-2.0 */
/* The identity file. Input: one copy, its zeros at the end left out; it runs as both copies, and as the second. */
#include "fmt/ident.h"

#include "fuzz/fuzz.h"

static void try(const uint8_t *bytes, size_t length)
{
	static uint8_t again[IDENT_BYTES], twice[IDENT_BYTES];
	static struct fmt_ident ident;

	if (ident_decode(bytes, length, &ident) != FMT_OK)
		return;
	for (uint32_t i = 0; i < FMT_DEVICES_MAX; i++)
		check(memchr(ident.device[i].path, 0, sizeof ident.device[i].path));
	ident_encode(&ident, again);
	check(ident_decode(again, IDENT_BYTES, &ident) == FMT_OK);
	ident_encode(&ident, twice);
	check(memcmp(again, twice, IDENT_BYTES) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[IDENT_BYTES];

	try(data, size);
	fuzz_take(&data, &size, bytes, IDENT_COPY_BYTES);
	frame_seal(bytes, IDENT_COPY_BYTES, frame_seed("CAIRNSTO"));
	memcpy(bytes + IDENT_COPY_BYTES, bytes, IDENT_COPY_BYTES);
	try(bytes, IDENT_BYTES);
	try(bytes, IDENT_COPY_BYTES);
	bytes[0] ^= 1;
	try(bytes, IDENT_BYTES);
	return 0;
}
