/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests of sessions: golden file, damage, newer versions, every bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "golden/same.h"

static uint8_t bytes[SAMPLE_FILE_MAX];
static struct manifest_chain chains[MANIFEST_CHAINS_MAX];
static struct manifest_tail tails[MANIFEST_TAILS_MAX];

static void manifest_reseal(size_t length)
{
	frame_seal(bytes, length, frame_seed("CAIRNMAN"));
}

static void same_text(const char *text, uint32_t length, const char *want)
{
	assert_int_equal(length, strlen(want));
	assert_memory_equal(text, want, length);
}

static void same_manifest(const struct manifest *a, const struct manifest *b)
{
	assert_int_equal(a->tenant_length, b->tenant_length);
	assert_int_equal(a->owner_length, b->owner_length);
	assert_int_equal(a->name_length, b->name_length);
	assert_memory_equal(a->tenant, b->tenant, b->tenant_length);
	assert_memory_equal(a->owner, b->owner, b->owner_length);
	assert_memory_equal(a->name, b->name, b->name_length);
	assert_memory_equal(a->space, b->space, 32);
	assert_int_equal(a->epoch, b->epoch);
	assert_int_equal(a->tokens, b->tokens);
	assert_int_equal(a->bytes, b->bytes);
	assert_int_equal(a->saved_at_s, b->saved_at_s);
	assert_int_equal(a->nchains, b->nchains);
	for (uint32_t i = 0; i < b->nchains; i++) {
		assert_int_equal(a->chains[i].group, b->chains[i].group);
		assert_int_equal(a->chains[i].nkeys, b->chains[i].nkeys);
		assert_memory_equal(a->chains[i].keys, b->chains[i].keys, 32 * (size_t)b->chains[i].nkeys);
	}
	assert_int_equal(a->ntails, b->ntails);
	for (uint32_t i = 0; i < b->ntails; i++) {
		assert_memory_equal(a->tails[i].key, b->tails[i].key, 32);
		assert_int_equal(a->tails[i].group, b->tails[i].group);
		assert_int_equal(a->tails[i].part, b->tails[i].part);
		assert_int_equal(a->tails[i].bytes, b->tails[i].bytes);
	}
	assert_int_equal(a->state_bytes, b->state_bytes);
	if (b->state_bytes)
		assert_memory_equal(a->state, b->state, b->state_bytes);
}

static void test_manifest__decodes_golden(void **state)
{
	struct manifest want = sample_manifest(), got;
	size_t length;

	(void)state;
	length = same_golden("manifest.v1.bin", sample_manifest_file, bytes);
	assert_memory_equal(bytes, "CAIRNMAN", 8);
	assert_int_equal(bytes_get32(bytes + 8), 1);
	assert_int_equal(bytes_get64(bytes + 32), 429);
	assert_int_equal(bytes_get64(bytes + 40), 2);
	assert_int_equal(bytes_get64(bytes + 48), 4097);
	assert_int_equal(bytes_get64(bytes + 56), UINT64_C(0x123456789a));
	assert_int_equal(bytes_get64(bytes + 64), 1800000000);
	assert_memory_equal(bytes + 72, want.space, 32);
	assert_int_equal(bytes_get32(bytes + 104), 2);
	assert_int_equal(bytes_get32(bytes + 108), 2);
	assert_int_equal(bytes_get32(bytes + 112), 12);
	assert_int_equal(bytes_get16(bytes + 116), 7);
	assert_int_equal(bytes_get16(bytes + 118), 0);
	assert_int_equal(bytes_get16(bytes + 120), 10);
	assert_int_equal(bytes_get32(bytes + 128), 0);
	assert_int_equal(bytes_get32(bytes + 132), 3);
	assert_int_equal(bytes_get32(bytes + 136), 1);
	assert_int_equal(bytes_get32(bytes + 140), 2);
	assert_memory_equal(bytes + 144 + 48, want.tails[1].key, 32);
	assert_int_equal(bytes_get64(bytes + 144 + 80), 64 << 20);
	assert_int_equal(bytes_get32(bytes + 144 + 88), 1);
	assert_int_equal(bytes_get32(bytes + 144 + 92), 63);
	assert_memory_equal(bytes + 240, want.chains[0].keys, 160);
	assert_memory_equal(bytes + 400, "engine statedefaultSitzung \xc3\xbc", 29);

	assert_int_equal(manifest_decode(bytes, length, &got, chains, tails), FMT_OK);
	same_manifest(&got, &want);
	assert_ptr_equal(got.chains, chains);
	assert_ptr_equal(got.tails, tails);
	same_text(got.name, got.name_length, "Sitzung \xc3\xbc");
}

static void test_manifest__is_bad_when_any_byte_differs(void **state)
{
	struct manifest got;
	size_t length = sample_manifest_file(bytes);

	(void)state;
	for (size_t i = 0; i < length; i++) {
		bytes[i] ^= (uint8_t)(1u << i % 8);
		assert_int_equal(manifest_decode(bytes, length, &got, chains, tails), FMT_BAD);
		bytes[i] ^= (uint8_t)(1u << i % 8);
	}
	assert_int_equal(manifest_decode(bytes, length, &got, chains, tails), FMT_OK);
}

static void test_manifest__is_bad_when_cut_or_longer(void **state)
{
	struct manifest got;
	size_t length = sample_manifest_file(bytes);
	static uint8_t exact[SAMPLE_FILE_MAX];

	(void)state;
	memset(bytes + length, 0, 64);
	for (size_t cut = 0; cut < length + 64; cut++) {
		uint8_t *at = exact + sizeof exact - cut;

		if (cut == length)
			continue;
		memcpy(at, bytes, cut);
		assert_int_equal(manifest_decode(at, cut, &got, chains, tails), FMT_BAD);
		/* With a checksum, and the length, that are right. */
		if (cut >= 40)
			bytes_set64(at + 32, cut);
		if (cut >= FRAME_BYTES)
			frame_seal(at, cut, frame_seed("CAIRNMAN"));
		assert_int_equal(manifest_decode(at, cut, &got, chains, tails), FMT_BAD);
	}
}

static void test_manifest__is_bad_when_out_of_bounds(void **state)
{
	static const struct {
		const char *what;
		uint32_t offset, width;
		uint64_t value;
		int result;
	} changes[] = {
		{"the next version", 8, 4, FMT_VERSION + 1, FMT_NEWER},
		{"no version", 8, 4, 0, FMT_BAD},
		{"an incompat bit", 20, 4, 1, FMT_NEWER},
		{"compat and ro_compat bits", 12, 8, UINT64_MAX, FMT_OK},
		{"reserved bytes", 122, 4, 1, FMT_OK},
		{"another length", 32, 8, 428, FMT_BAD},
		{"one chain less", 104, 4, 1, FMT_BAD},
		{"too many chains", 104, 4, MANIFEST_CHAINS_MAX + 1, FMT_BAD},
		{"chains at the end of numbers", 104, 4, UINT32_MAX, FMT_BAD},
		{"too many tails", 108, 4, MANIFEST_TAILS_MAX + 1, FMT_BAD},
		{"more tails than bytes", 108, 4, MANIFEST_TAILS_MAX, FMT_BAD},
		{"too much state", 112, 4, MANIFEST_STATE_MAX + 1, FMT_BAD},
		{"one byte of state more", 112, 4, 13, FMT_BAD},
		{"a tenant too long", 116, 2, 256, FMT_BAD},
		{"an owner too long", 118, 2, 65535, FMT_BAD},
		{"a name too long", 120, 2, 256, FMT_BAD},
		{"a name split otherwise", 118, 4, 9u << 16 | 1, FMT_OK},
		{"no name", 118, 4, 10, FMT_BAD},
		{"group 16", 128, 4, 16, FMT_BAD},
		{"a key less", 132, 4, 2, FMT_BAD},
		{"keys at the end of numbers", 132, 4, UINT32_MAX, FMT_BAD},
		{"keys that wrap around 32 bits", 132, 4, 3u + (1u << 27), FMT_BAD},
		{"keys split otherwise", 132, 8, UINT64_C(0x100000005), FMT_BAD},
		{"a tail of group 16", 144 + 40, 4, 16, FMT_BAD},
		{"a tail's part 64", 144 + 44, 4, 64, FMT_BAD},
		{"a tail of no bytes", 144 + 32, 8, 0, FMT_BAD},
		{"a tail of too many bytes", 144 + 32, 8, (64u << 20) + 1, FMT_BAD},
		{"a 0 in the name", 428, 1, 0, FMT_BAD},
		{"a 0 in the tenant", 412, 1, 0, FMT_BAD},
		{"a 0 in the state", 400, 1, 0, FMT_OK},
	};
	struct manifest got, untouched;

	(void)state;
	memset(&untouched, 0x5a, sizeof untouched);
	for (unsigned i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		size_t length = sample_manifest_file(bytes);

		memcpy(bytes + changes[i].offset, &changes[i].value, changes[i].width);
		manifest_reseal(length);
		memset(&got, 0x5a, sizeof got);
		if (manifest_decode(bytes, length, &got, chains, tails) != changes[i].result)
			fail_msg("%s", changes[i].what);
		if (changes[i].result != FMT_OK)
			assert_memory_equal(&got, &untouched, sizeof got);
	}
}

static void test_manifest__comes_back_when_smallest(void **state)
{
	struct manifest want = {.name = "n", .name_length = 1, .tenant = "", .owner = ""}, got;

	(void)state;
	assert_int_equal(manifest_size(&want), 129);
	manifest_encode(&want, bytes);
	assert_int_equal(manifest_decode(bytes, 129, &got, chains, tails), FMT_OK);
	same_manifest(&got, &want);
	assert_null(got.state);
	/* NULL is as good as "" where there is nothing. */
	want.tenant = want.owner = NULL;
	manifest_encode(&want, bytes);
	assert_int_equal(manifest_decode(bytes, 129, &got, chains, tails), FMT_OK);
}

static void test_manifest__comes_back_when_largest(void **state)
{
	static struct manifest_chain many_chains[MANIFEST_CHAINS_MAX];
	static struct manifest_tail many_tails[MANIFEST_TAILS_MAX];
	static uint8_t keys[1000 * 32], engine[MANIFEST_STATE_MAX];
	char name[256];
	struct manifest want = {.chains = many_chains, .tails = many_tails, .state = engine}, got;
	uint8_t *large;
	size_t length;

	(void)state;
	memset(name, 'n', 255);
	sample_fill(keys, sizeof keys, 1);
	sample_fill(engine, sizeof engine, 2);
	want.tenant = want.owner = want.name = name;
	want.tenant_length = want.owner_length = want.name_length = 255;
	want.nchains = MANIFEST_CHAINS_MAX;
	want.ntails = MANIFEST_TAILS_MAX;
	want.state_bytes = MANIFEST_STATE_MAX;
	for (uint32_t i = 0; i < MANIFEST_CHAINS_MAX; i++)
		many_chains[i] = (struct manifest_chain){i, i == 3 ? 0 : 1000 - i, keys + 32 * i};
	for (uint32_t i = 0; i < MANIFEST_TAILS_MAX; i++) {
		many_tails[i].bytes = 1 + i;
		many_tails[i].part = i % 64;
		many_tails[i].group = i % 16;
		sample_fill(many_tails[i].key, 32, i);
	}
	length = manifest_size(&want);
	large = malloc(length);
	assert_non_null(large);
	manifest_encode(&want, large);
	assert_int_equal(manifest_decode(large, length, &got, chains, tails), FMT_OK);
	same_manifest(&got, &want);
	free(large);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_manifest__decodes_golden),
		cmocka_unit_test(test_manifest__is_bad_when_any_byte_differs),
		cmocka_unit_test(test_manifest__is_bad_when_cut_or_longer),
		cmocka_unit_test(test_manifest__is_bad_when_out_of_bounds),
		cmocka_unit_test(test_manifest__comes_back_when_smallest),
		cmocka_unit_test(test_manifest__comes_back_when_largest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
