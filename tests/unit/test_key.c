/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys: what must and must not change one, by way of the public functions; sessions and the weights digest. That they
 * are the right ones is for test_key_golden.c. One thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cairn/cairn.h"
#include "fmt/key.h"

static const cairn_digest weights_1 = {{0x11}}, weights_2 = {{0x12}}, adapter_1 = {{0xa1}}, adapter_2 = {{0xa2}};

static struct cairn_space_desc small_desc(uint32_t block_tokens)
{
	return (struct cairn_space_desc){.size = sizeof(struct cairn_space_desc), .weights = &weights_1, .kv_dtype = "bf16",
	                                 .block_tokens = block_tokens};
}

static cairn_derive *start(const struct cairn_space_desc *desc, uint32_t group)
{
	cairn_derive *derive;

	if (cairn_derive_start_desc(desc, group, &derive))
		fail_msg("%s", cairn_error_text());
	return derive;
}

/* The keys of a whole prompt. */
static long derive_all(const struct cairn_space_desc *desc, const uint32_t *tokens, size_t ntokens,
                       const struct cairn_extra *extras, size_t nextras, cairn_key *keys, size_t max)
{
	cairn_derive *derive = start(desc, 0);
	long count = cairn_derive_tokens(derive, tokens, ntokens, extras, nextras, keys, max);

	cairn_derive_free(derive);
	return count;
}

static int same(const cairn_key *a, const cairn_key *b)
{
	return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

/* xorshift64*: the same tests every time. */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1du;
}

/* ---- extras --------------------------------------------------------------------------------------------------- */

static int key_order(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(cairn_key));
}

static void assert_all_distinct(cairn_key *keys, size_t count)
{
	qsort(keys, count, sizeof *keys, key_order);
	for (size_t i = 1; i < count; i++)
		assert_memory_not_equal(keys[i - 1].bytes, keys[i].bytes, 16); /* 128 bits already tell them apart */
}

enum { VARIANTS = 70000, VARIANT_TOKENS = 512 };

/* Adds the key of 512 tokens with an image whose 256-bit identity has up to three bits flipped; 256: none. */
static size_t add_variant(cairn_key *keys, size_t count, unsigned a, unsigned b, unsigned c)
{
	static const uint32_t tokens[VARIANT_TOKENS];
	struct cairn_space_desc desc = small_desc(VARIANT_TOKENS);
	const unsigned flips[3] = {a, b, c};
	uint8_t identity[32];
	struct cairn_extra extra = {0, identity, sizeof identity};

	if (count == VARIANTS)
		return count;
	memset(identity, 0x5a, sizeof identity);
	for (int i = 0; i < 3; i++)
		if (flips[i] < 256)
			identity[31 - flips[i] / 8] ^= (uint8_t)(0x80 >> flips[i] % 8); /* the top bits first */
	assert_int_equal(derive_all(&desc, tokens, VARIANT_TOKENS, &extra, 1, &keys[count], 1), 1);
	return count + 1;
}

static void test_key__differs_when_any_bit_of_70000_extras_does(void **state)
{
	cairn_key *keys = malloc(VARIANTS * sizeof *keys);
	size_t count = 0;

	(void)state;
	assert_non_null(keys);
	count = add_variant(keys, count, 256, 256, 256);
	for (unsigned a = 0; a < 256; a++)
		count = add_variant(keys, count, a, 256, 256);
	for (unsigned a = 0; a < 256; a++)
		for (unsigned b = a + 1; b < 256; b++)
			count = add_variant(keys, count, a, b, 256);
	for (unsigned a = 0; a < 256; a++)
		for (unsigned b = a + 1; b < 256; b++)
			for (unsigned c = b + 1; c < 256; c++)
				count = add_variant(keys, count, a, b, c);
	assert_int_equal(count, VARIANTS);
	assert_all_distinct(keys, count);
	free(keys);
}

static void test_key__changes_from_its_block_on_when_an_extra_begins_there(void **state)
{
	static const uint8_t image_1[32] = {1}, image_2[32] = {2};
	static uint32_t tokens[64];
	struct cairn_space_desc desc = small_desc(16);
	cairn_key none[4], first[4], second[4];

	(void)state;
	derive_all(&desc, tokens, 64, NULL, 0, none, 4);
	for (uint64_t token = 16; token < 32; token++) {
		struct cairn_extra extra = {token, image_1, 32}, other = {token, image_2, 32};

		derive_all(&desc, tokens, 64, &extra, 1, first, 4);
		derive_all(&desc, tokens, 64, &other, 1, second, 4);
		assert_true(same(&none[0], &first[0]) && same(&none[0], &second[0]));
		for (int block = 1; block < 4; block++)
			assert_true(!same(&none[block], &first[block]) && !same(&first[block], &second[block]) &&
			            !same(&none[block], &second[block]));
	}
}

static void test_key__differs_when_an_extra_moves_splits_or_is_empty(void **state)
{
	static const struct cairn_extra sets[][2] = {
		{{0, NULL, 0}, {0, NULL, 0}},  {{0, "", 0}, {1, "", 0}},    {{0, "a", 1}, {0, "b", 1}},
		{{0, "b", 1}, {0, "a", 1}},    {{0, "ab", 2}, {0, "", 0}},  {{0, "", 0}, {0, "ab", 2}},
		{{1, "a", 1}, {1, "b", 1}},    {{0, "a", 1}, {1, "b", 1}},  {{0, "a\0", 2}, {0, "b", 1}},
		{{0, "a", 1}, {0, "\0b", 2}},  {{0, "\0", 1}, {0, "", 0}},  {{15, "", 0}, {15, "", 0}},
	};
	enum { SETS = sizeof sets / sizeof sets[0] };
	static uint32_t tokens[16];
	struct cairn_space_desc desc = small_desc(16);
	cairn_key keys[SETS * 2 + 1];
	size_t count = 0;

	(void)state;
	derive_all(&desc, tokens, 16, NULL, 0, &keys[count++], 1);
	for (size_t i = 0; i < SETS; i++)
		assert_int_equal(derive_all(&desc, tokens, 16, sets[i], 2, &keys[count++], 1), 1);
	static const struct cairn_extra one[] = {{0, "", 0}, {1, "", 0}, {0, "a", 1}, {0, "a\0", 2}};
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(derive_all(&desc, tokens, 16, &one[i], 1, &keys[count++], 1), 1);
	assert_all_distinct(keys, count);
}

static void test_key__is_of_its_salt_alone_when_salts_take_turns(void **state)
{
	static const struct cairn_extra salt_a = {0, "tenant A", 8}, salt_b = {0, "tenant B", 8};
	static uint32_t tokens[32];
	struct cairn_space_desc desc = small_desc(16);
	cairn_key a[2], b[2], again[2];

	(void)state;
	derive_all(&desc, tokens, 32, &salt_a, 1, a, 2);
	derive_all(&desc, tokens, 32, &salt_b, 1, b, 2);
	derive_all(&desc, tokens, 32, &salt_a, 1, again, 2);
	assert_memory_equal(a, again, sizeof a);
	assert_true(!same(&a[0], &b[0]) && !same(&a[1], &b[1]));
}

static void test_key__is_refused_and_nothing_taken_when_extras_are_wrong(void **state)
{
	static uint32_t tokens[100];
	static uint8_t large[KEY_EXTRAS_MAX_BYTES];
	struct cairn_space_desc desc = small_desc(16);
	cairn_derive *derive = start(&desc, 0);
	cairn_key keys[6], expected[6];
	const struct {
		struct cairn_extra extras[2];
	} bad[] = {
		{{{9, "a", 1}, {10, "a", 1}}},                    /* before the tokens of this call */
		{{{12, "a", 1}, {11, "a", 1}}},                   /* out of order */
		{{{12, "a", 1}, {50, "a", 1}}},                   /* after them */
		{{{12, "a", 1}, {UINT64_MAX, "a", 1}}},
		{{{12, NULL, 1}, {12, "a", 1}}},
		{{{12, large, sizeof large - 15}, {12, "", 0}}},  /* one byte too many in one block */
		{{{12, large, UINT32_MAX}, {20, "a", 1}}},
	};

	(void)state;
	assert_int_equal(derive_all(&desc, tokens, 50, NULL, 0, expected, 6), 3);
	assert_int_equal(cairn_derive_tokens(derive, tokens, 10, NULL, 0, keys, 0), 0);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_int_equal(cairn_derive_tokens(derive, tokens + 10, 40, bad[i].extras, 2, keys, 6), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_tokens(derive, tokens + 10, 40, NULL, 0, keys, 2), CAIRN_E_SIZE);
	assert_int_equal(cairn_derive_tokens(derive, NULL, 0, bad[0].extras, 1, keys, 6), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_tokens(derive, NULL, 1, NULL, 0, keys, 6), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_tokens(derive, tokens, 1, NULL, 1, keys, 6), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_tokens(derive, tokens, 1, NULL, 0, NULL, 6), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_tokens(NULL, tokens, 1, NULL, 0, keys, 6), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_tokens(derive, tokens + 10, 40, NULL, 0, keys, 3), 3);
	assert_memory_equal(keys, expected, 3 * sizeof keys[0]);

	/* The limit is of a block, however the calls cut it. */
	struct cairn_extra half = {50, large, sizeof large / 2 - 8}, rest = {51, large, sizeof large / 2 - 8};
	struct cairn_extra more = {52, "", 0}, next = {64, large, sizeof large - 8};
	assert_int_equal(cairn_derive_tokens(derive, tokens, 1, &half, 1, keys, 6), 0);
	assert_int_equal(cairn_derive_tokens(derive, tokens, 1, &rest, 1, keys, 6), 0);
	assert_int_equal(cairn_derive_tokens(derive, tokens, 1, &more, 1, keys, 6), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_tokens(derive, tokens, 28, &next, 1, keys, 6), 2);
	cairn_derive_free(derive);
}

/* ---- chains --------------------------------------------------------------------------------------------------- */

static void test_key__is_the_same_when_tokens_come_in_random_cuts(void **state)
{
	static const uint32_t sizes[] = {1, 2, 3, 16, 64, 200, 1500};
	enum { TOKENS = 1000, EXTRAS = 40 };
	uint64_t seed = 4711;
	uint32_t tokens[TOKENS];
	uint8_t bytes[EXTRAS][700];
	struct cairn_extra extras[EXTRAS];
	cairn_key whole[TOKENS], parts[TOKENS], whole_tail, part_tail;

	(void)state;
	for (int round = 0; round < 140; round++) {
		struct cairn_space_desc desc = small_desc(sizes[round % 7]);
		cairn_derive *one = start(&desc, 0), *many = start(&desc, 0);
		size_t taken = 0, given = 0, nextras = next_random(&seed) % EXTRAS;
		uint32_t left_one = 0, left_many = 0;
		long count = 0;

		for (size_t i = 0; i < TOKENS; i++)
			tokens[i] = (uint32_t)next_random(&seed);
		for (size_t i = 0; i < nextras; i++) {
			extras[i] = (struct cairn_extra){i * TOKENS / nextras, bytes[i], (uint32_t)(next_random(&seed) % 700)};
			memset(bytes[i], (int)next_random(&seed), sizeof bytes[i]);
		}
		long all = cairn_derive_tokens(one, tokens, TOKENS, extras, nextras, whole, TOKENS);
		assert_int_equal(all, TOKENS / sizes[round % 7]);
		while (taken < TOKENS) {
			size_t n = next_random(&seed) % (round % 3 ? 40 : 400), begin = given;

			n = n < TOKENS - taken ? n : TOKENS - taken;
			while (given < nextras && extras[given].token < taken + n)
				given++;
			long got = cairn_derive_tokens(many, tokens + taken, n, extras + begin, given - begin, parts + count,
			                               (size_t)(TOKENS - count));
			assert_true(got >= 0);
			count += got;
			taken += n;
		}
		assert_int_equal(count, all);
		assert_memory_equal(whole, parts, (size_t)all * sizeof *whole);
		int rc = cairn_derive_tail(one, &whole_tail, &left_one);
		assert_int_equal(rc, TOKENS % sizes[round % 7] ? 0 : CAIRN_E_INVAL);
		assert_int_equal(cairn_derive_tail(many, &part_tail, &left_many), rc);
		assert_int_equal(left_one, left_many);
		assert_true(rc || same(&whole_tail, &part_tail));
		cairn_derive_free(one);
		cairn_derive_free(many);
	}
}

static void test_key__is_unique_over_10000_chains(void **state)
{
	enum { CHAINS = 10000, BLOCKS = 3 };
	struct cairn_space_desc desc = small_desc(4);
	cairn_key *keys = malloc((CHAINS * BLOCKS + 1) * sizeof *keys);

	(void)state;
	assert_non_null(keys);
	for (uint32_t i = 0; i < CHAINS; i++) {
		uint32_t tokens[12] = {i & 0xff, i >> 8, 0, 0, i & 1, 0, 0, 0, 5, 5, 5, 5};

		assert_int_equal(derive_all(&desc, tokens, 12, NULL, 0, keys + i * BLOCKS, BLOCKS), BLOCKS);
	}
	assert_all_distinct(keys, CHAINS * BLOCKS);
	free(keys);
}

static void test_key__differs_when_the_space_does(void **state)
{
	static const uint8_t generation[16] = {7};
	static uint32_t tokens[32];
	struct cairn_space_desc descs[10];
	cairn_key keys[10 * 2], tails[10], hashes[3];

	(void)state;
	for (int i = 0; i < 10; i++)
		descs[i] = small_desc(16);
	descs[1].adapter = &adapter_1;
	descs[2].adapter = &adapter_2;
	descs[3].adapter = &adapter_1;
	descs[3].adapter_scale = "0.5";
	descs[4].adapter = &adapter_1;
	descs[4].adapter_scale = "1.0";
	descs[5].kv_dtype = "f16";
	descs[6].weights = &weights_2;
	descs[7].weights = NULL;
	descs[8].generation = generation;
	descs[9].tenant = "other";
	for (int i = 0; i < 10; i++) {
		cairn_derive *derive = start(&descs[i], 0);
		uint32_t left;

		assert_int_equal(cairn_derive_tokens(derive, tokens, 32, NULL, 0, keys + 2 * i, 2), 2);
		assert_int_equal(cairn_derive_tokens(derive, tokens, 3, NULL, 0, NULL, 0), 0);
		assert_int_equal(cairn_derive_tail(derive, &tails[i], &left), 0);
		assert_int_equal(left, 3);
		cairn_derive_free(derive);
	}
	assert_all_distinct(keys, 20);
	assert_all_distinct(tails, 10);
	for (int i = 0; i < 3; i++) { /* the engine's hash alone is never the key */
		descs[i].scheme = "sglang/1";
		cairn_derive *derive = start(&descs[i], 0);
		assert_int_equal(cairn_derive_hash(derive, tokens, 32, &hashes[i]), 0);
		cairn_derive_free(derive);
	}
	assert_all_distinct(hashes, 3);
}

static void test_key__differs_when_the_group_does(void **state)
{
	struct cairn_group groups[2] = {{.name = "a", .block_tokens = 16}, {.name = "b", .block_tokens = 16}};
	static uint32_t tokens[20];
	struct cairn_space_desc desc = small_desc(0);
	cairn_key keys[6];

	(void)state;
	desc.groups = groups;
	desc.ngroups = 2;
	for (uint32_t group = 0; group < 2; group++) {
		cairn_derive *derive = start(&desc, group);
		uint32_t left;

		cairn_derive_parent(derive, &keys[3 * group]);
		assert_int_equal(cairn_derive_tokens(derive, tokens, 20, NULL, 0, &keys[3 * group + 1], 1), 1);
		assert_int_equal(cairn_derive_tail(derive, &keys[3 * group + 2], &left), 0);
		cairn_derive_free(derive);
	}
	assert_all_distinct(keys, 6);
	cairn_derive *derive = NULL;
	assert_int_equal(cairn_derive_start_desc(&desc, 2, &derive), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_start_desc(&desc, UINT32_MAX, &derive), CAIRN_E_INVAL);
	assert_null(derive);
}

/* Whatever a block shares with a tail, their keys have nothing in common. */
static void test_key__of_a_tail_is_never_that_of_a_block(void **state)
{
	enum { BLOCK = 256 };
	static uint32_t tokens[2 * BLOCK];
	struct cairn_space_desc desc = small_desc(BLOCK), fine = small_desc(64);
	cairn_key keys[2 * BLOCK + 40], parent;
	size_t count = 0;

	(void)state;
	for (uint32_t i = 0; i < 2 * BLOCK; i++)
		tokens[i] = i;
	for (uint32_t length = 1; length < BLOCK; length++) { /* 255 of 256 too */
		cairn_derive *derive = start(&desc, 0);
		uint32_t left;

		assert_int_equal(cairn_derive_tokens(derive, tokens, length, NULL, 0, keys, 0), 0);
		assert_int_equal(cairn_derive_tail(derive, &keys[count++], &left), 0);
		assert_int_equal(left, length);
		cairn_derive_free(derive);
	}
	cairn_derive *derive = start(&desc, 0);
	uint32_t left;
	cairn_derive_parent(derive, &keys[count++]);
	assert_int_equal(cairn_derive_tail(derive, &parent, &left), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_tokens(derive, tokens, BLOCK + 64, NULL, 0, &keys[count++], 1), 1);
	cairn_derive_parent(derive, &parent);
	assert_true(same(&parent, &keys[count - 1]));
	assert_int_equal(cairn_derive_tail(derive, &keys[count++], &left), 0);
	assert_int_equal(left, 64);
	assert_int_equal(cairn_derive_tokens(derive, tokens + BLOCK + 64, BLOCK - 64, NULL, 0, &keys[count++], 1), 1);
	assert_int_equal(cairn_derive_tail(derive, &parent, &left), CAIRN_E_INVAL);
	cairn_derive_free(derive);
	count += (size_t)derive_all(&fine, tokens, 2 * BLOCK, NULL, 0, keys + count, 8);
	assert_int_equal(count, 255 + 4 + 8);
	assert_all_distinct(keys, count);
}

static void test_key__is_refused_when_the_scheme_is_another(void **state)
{
	struct cairn_space_desc tokens = small_desc(16), engine = small_desc(16), file = {.size = sizeof file};
	cairn_derive *derive;
	cairn_key key;
	uint32_t left, token = 0;
	uint8_t hash[KEY_HASH_MAX + 1] = {0};

	(void)state;
	engine.scheme = "lmcache/blake3";
	file.scheme = "file/1";
	derive = start(&tokens, 0);
	assert_int_equal(cairn_derive_hash(derive, hash, 32, &key), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_bytes(derive, hash, 32, &key), CAIRN_E_INVAL);
	cairn_derive_free(derive);
	derive = start(&engine, 0);
	assert_int_equal(cairn_derive_tokens(derive, &token, 1, NULL, 0, &key, 1), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_bytes(derive, hash, 32, &key), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_tail(derive, &key, &left), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_hash(derive, hash, KEY_HASH_MIN - 1, &key), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_hash(derive, hash, KEY_HASH_MAX + 1, &key), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_hash(derive, NULL, 32, &key), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_hash(derive, hash, KEY_HASH_MIN, &key), 0);
	assert_int_equal(cairn_derive_hash(derive, hash, KEY_HASH_MAX, &key), 0);
	cairn_derive_free(derive);
	derive = start(&file, 0);
	assert_int_equal(cairn_derive_tokens(derive, &token, 1, NULL, 0, &key, 1), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_hash(derive, hash, 32, &key), CAIRN_E_INVAL);
	cairn_derive_free(derive);
	cairn_derive_free(NULL);
}

static void test_key__of_a_file_chains_and_ends_when_a_block_is_short(void **state)
{
	static uint8_t bytes[KEY_FILE_BLOCK_BYTES + 1];
	struct cairn_space_desc file = {.size = sizeof file, .scheme = "file/1"};
	cairn_derive *derive = start(&file, 0), *other = start(&file, 0);
	cairn_key keys[4], key;

	(void)state;
	assert_int_equal(cairn_derive_bytes(derive, bytes, sizeof bytes, &key), CAIRN_E_SIZE);
	assert_int_equal(cairn_derive_bytes(derive, bytes, 0, &key), CAIRN_E_INVAL);
	assert_int_equal(cairn_derive_bytes(derive, bytes, KEY_FILE_BLOCK_BYTES, &keys[0]), 0);
	assert_int_equal(cairn_derive_bytes(derive, bytes, KEY_FILE_BLOCK_BYTES, &keys[1]), 0);
	assert_int_equal(cairn_derive_bytes(derive, bytes, 1, &keys[2]), 0);
	assert_int_equal(cairn_derive_bytes(derive, bytes, 1, &key), CAIRN_E_INVAL);
	cairn_derive_parent(derive, &key);
	assert_true(same(&key, &keys[2]));
	assert_int_equal(cairn_derive_bytes(other, bytes, KEY_FILE_BLOCK_BYTES - 1, &keys[3]), 0);
	assert_all_distinct(keys, 4);
	cairn_derive_free(derive);
	cairn_derive_free(other);
}

/* ---- sessions ------------------------------------------------------------------------------------------------- */

static void test_key__of_sessions_differs_when_any_part_of_a_name_does(void **state)
{
	static const char *const names[][3] = {
		{"t", "", "ab"}, {"t", "a", "b"}, {"t", "ab", ""}, {"t", "b", "a"}, {"ta", "", "b"}, {"u", "", "ab"},
		{"t", "", ".."}, {"t", "", "/etc/passwd"}, {"t", "", "a/../b"}, {"t", "..", "ab"}, {"t", "", "\xff\xfe"},
	};
	enum { NAMES = sizeof names / sizeof names[0] };
	cairn_key ids[NAMES * 4];
	size_t count = 0;
	uint8_t tenant[32], null_owner[32];

	(void)state;
	for (size_t i = 0; i < NAMES; i++) {
		key_tenant_digest(names[i][0], strlen(names[i][0]), tenant);
		key_session_id(tenant, names[i][1], names[i][2], ids[count].bytes);
		key_manifest(ids[count].bytes, 1, ids[count + 1].bytes);
		key_manifest(ids[count].bytes, 2, ids[count + 2].bytes);
		count += 3;
	}
	key_session_id(tenant, NULL, "\xff\xfe", null_owner);
	assert_memory_equal(null_owner, ids[count - 3].bytes, 32);
	key_manifest_space(tenant, ids[count++].bytes);
	memcpy(ids[count++].bytes, tenant, 32);
	assert_all_distinct(ids, count);
}

/* ---- weights digest, names and memory ------------------------------------------------------------------------- */

struct progress {
	uint64_t done, all;
	unsigned calls, stop_at;
};

static int on_progress(void *arg, uint64_t done, uint64_t all)
{
	struct progress *progress = arg;

	progress->done = done;
	progress->all = all;
	return ++progress->calls == progress->stop_at;
}

static void write_file(const char *path, size_t length, int byte)
{
	FILE *file = fopen(path, "wb");

	assert_non_null(file);
	for (size_t i = 0; i < length; i++)
		fputc(byte, file);
	assert_int_equal(fclose(file), 0);
}

static void test_key__of_weights_follows_names_and_bytes_and_not_places(void **state)
{
	char folder[] = "/tmp/cairn-test-key-XXXXXX", a[64], b[64], sub[64], moved[96], fifo[64];
	cairn_digest digest, other;
	struct progress progress = {0};

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(a, sizeof a, "%s/a", folder);
	snprintf(b, sizeof b, "%s/b", folder);
	snprintf(sub, sizeof sub, "%s/sub", folder);
	snprintf(moved, sizeof moved, "%s/a", sub);
	snprintf(fifo, sizeof fifo, "%s/fifo", folder);
	write_file(a, 3000000, 'a');
	write_file(b, 10, 'b');
	assert_int_equal(mkdir(sub, 0700), 0);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	const char *both[] = {a, b}, *turned[] = {b, a}, *elsewhere[] = {moved, b}, *twice[] = {a, moved};
	const char *missing[] = {a, "/nonexistent/x"}, *directory[] = {sub}, *pipe_path[] = {fifo}, *null[] = {NULL};
	const char *slash[] = {"/tmp/"};

	assert_int_equal(cairn_weights_digest(both, 2, on_progress, &progress, &digest), 0);
	assert_int_equal(progress.done, 3000010);
	assert_int_equal(progress.all, 3000010);
	assert_int_equal(cairn_weights_digest(turned, 2, NULL, NULL, &other), 0);
	assert_memory_equal(&digest, &other, sizeof digest);
	assert_int_equal(symlink(a, moved), 0); /* model hubs keep files behind links */
	assert_int_equal(cairn_weights_digest(elsewhere, 2, NULL, NULL, &other), 0);
	assert_memory_equal(&digest, &other, sizeof digest);
	assert_int_equal(cairn_weights_digest(both, 1, NULL, NULL, &other), 0);
	assert_memory_not_equal(&digest, &other, sizeof digest);
	write_file(b, 10, 'c');
	assert_int_equal(cairn_weights_digest(both, 2, NULL, NULL, &other), 0);
	assert_memory_not_equal(&digest, &other, sizeof digest);

	progress = (struct progress){.stop_at = 2};
	assert_int_equal(cairn_weights_digest(both, 2, on_progress, &progress, &other), CAIRN_E_CANCELED);
	assert_int_equal(cairn_weights_digest(twice, 2, NULL, NULL, &other), CAIRN_E_INVAL);
	assert_int_equal(cairn_weights_digest(missing, 2, NULL, NULL, &other), CAIRN_E_NOENT);
	assert_non_null(strstr(cairn_error_text(), "/nonexistent/x"));
	assert_int_equal(cairn_weights_digest(directory, 1, NULL, NULL, &other), CAIRN_E_INVAL);
	assert_int_equal(cairn_weights_digest(pipe_path, 1, NULL, NULL, &other), CAIRN_E_INVAL);
	assert_int_equal(cairn_weights_digest(null, 1, NULL, NULL, &other), CAIRN_E_INVAL);
	assert_int_equal(cairn_weights_digest(slash, 1, NULL, NULL, &other), CAIRN_E_INVAL);
	assert_int_equal(cairn_weights_digest(both, 0, NULL, NULL, &other), CAIRN_E_INVAL);
	for (uint64_t n = 1, failed = 1; failed; n++) {
		mem_fail_at(n, 0);
		int rc = cairn_weights_digest(both, 2, NULL, NULL, &other);
		failed = (uint64_t)mem_failed();
		mem_fail_at(0, 0);
		assert_int_equal(rc, failed ? CAIRN_E_NOMEM : 0);
	}
	unlink(a);
	unlink(b);
	unlink(moved);
	unlink(fifo);
	rmdir(sub);
	rmdir(folder);
}

static void test_key__takes_nothing_when_memory_is_short(void **state)
{
	static uint32_t tokens[40];
	static const struct cairn_extra extra = {20, "image", 5};
	struct cairn_space_desc desc = small_desc(16);
	cairn_derive *derive = NULL;
	cairn_key expected[2], keys[2], tail, expected_tail;
	uint32_t left;

	(void)state;
	for (uint64_t n = 1, failed = 1; failed; n++) {
		mem_fail_at(n, 0);
		int rc = cairn_derive_start_desc(&desc, 0, &derive);
		failed = (uint64_t)mem_failed();
		mem_fail_at(0, 0);
		assert_int_equal(rc, failed ? CAIRN_E_NOMEM : 0);
	}
	assert_int_equal(cairn_derive_tokens(derive, tokens, 24, &extra, 1, expected, 2), 1);
	assert_int_equal(cairn_derive_tail(derive, &expected_tail, &left), 0);
	cairn_derive_free(derive);

	derive = start(&desc, 0);
	mem_fail_at(1, 0);
	assert_int_equal(cairn_derive_tokens(derive, tokens, 24, &extra, 1, keys, 2), CAIRN_E_NOMEM);
	mem_fail_at(0, 0);
	assert_int_equal(cairn_derive_tokens(derive, tokens, 24, &extra, 1, keys, 2), 1);
	assert_int_equal(cairn_derive_tail(derive, &tail, &left), 0);
	assert_true(same(&keys[0], &expected[0]) && same(&tail, &expected_tail));
	cairn_derive_free(derive);
}

static void test_key__names_every_status_and_reason(void **state)
{
	(void)state;
	assert_string_equal(cairn_version(), CAIRN_VERSION);
	assert_string_equal(cairn_status_name(CAIRN_MISS), "miss");
	assert_string_equal(cairn_status_name(CAIRN_E_BUSY), "busy");
	assert_non_null(cairn_status_text(-9999));
	for (uint32_t i = 0; i <= CAIRN_WHY_EXPIRED; i++)
		for (uint32_t j = 0; j <= i; j++)
			assert_int_equal(strcmp(cairn_reason_name(i), cairn_reason_name(j)) == 0, i == j);
	assert_string_equal(cairn_reason_name(CAIRN_WHY_EVICTED), "evicted");
	assert_string_equal(cairn_reason_name(CAIRN_WHY_EXPIRED + 1), cairn_reason_name(UINT32_MAX));
	assert_int_equal(cairn_check("", 0), 0x2d06800538d394c2u); /* XXH3-64 of nothing */
	assert_int_equal(cairn_derive_start_desc(NULL, 0, NULL), CAIRN_E_INVAL);
	assert_true(strlen(cairn_error_text()) > 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_key__differs_when_any_bit_of_70000_extras_does),
		cmocka_unit_test(test_key__changes_from_its_block_on_when_an_extra_begins_there),
		cmocka_unit_test(test_key__differs_when_an_extra_moves_splits_or_is_empty),
		cmocka_unit_test(test_key__is_of_its_salt_alone_when_salts_take_turns),
		cmocka_unit_test(test_key__is_refused_and_nothing_taken_when_extras_are_wrong),
		cmocka_unit_test(test_key__is_the_same_when_tokens_come_in_random_cuts),
		cmocka_unit_test(test_key__is_unique_over_10000_chains),
		cmocka_unit_test(test_key__differs_when_the_space_does),
		cmocka_unit_test(test_key__differs_when_the_group_does),
		cmocka_unit_test(test_key__of_a_tail_is_never_that_of_a_block),
		cmocka_unit_test(test_key__is_refused_when_the_scheme_is_another),
		cmocka_unit_test(test_key__of_a_file_chains_and_ends_when_a_block_is_short),
		cmocka_unit_test(test_key__of_sessions_differs_when_any_part_of_a_name_does),
		cmocka_unit_test(test_key__of_weights_follows_names_and_bytes_and_not_places),
		cmocka_unit_test(test_key__takes_nothing_when_memory_is_short),
		cmocka_unit_test(test_key__names_every_status_and_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
