/* SPDX-License-Identifier: Apache-2.0 */
/* A session's manifest. Input: its bytes. */
#include "fmt/manifest.h"

#include "fuzz/fuzz.h"

static struct manifest_chain chains[MANIFEST_CHAINS_MAX];
static struct manifest_tail tails[MANIFEST_TAILS_MAX];

static void try(const uint8_t *bytes, size_t size)
{
	struct manifest manifest;
	volatile uint8_t sum = 0;
	uint8_t *again;

	if (manifest_decode(bytes, size, &manifest, chains, tails) != FMT_OK)
		return;
	for (uint32_t i = 0; i < manifest.nchains; i++)
		for (size_t k = 0; k < (size_t)chains[i].nkeys * 32; k++)
			sum = (uint8_t)(sum + chains[i].keys[k]);
	again = malloc(size);
	check(again && manifest_size(&manifest) == size);
	manifest_encode(&manifest, again);
	check(manifest_decode(again, size, &manifest, chains, tails) == FMT_OK);
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *bytes;

	try(data, size);
	if (size < FRAME_BYTES + 8)
		return 0;
	bytes = malloc(size);
	check(bytes);
	memcpy(bytes, data, size);
	bytes_set64(bytes + 32, size);
	frame_seal(bytes, size, frame_seed("CAIRNMAN"));
	try(bytes, size);
	free(bytes);
	return 0;
}
