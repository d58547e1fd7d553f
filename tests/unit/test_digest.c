/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 and XXH3-64 against published vectors and the library's own; streams, both widths, the checked copy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <xxhash.h>

#include "base/digest.h"
#include "base/digest_avx2.h"

#define LARGE 300000u

static uint8_t large[LARGE], copied[LARGE];

static void fill_large(void)
{
	for (size_t i = 0; i < LARGE; i++)
		large[i] = (uint8_t)(i * 7 + i / 251);
}

static void assert_hex(const uint8_t digest[32], const char *want)
{
	char text[65];

	for (int i = 0; i < 32; i++)
		snprintf(text + 2 * i, 3, "%02x", digest[i]);
	assert_string_equal(text, want);
}

static void test_digest__sha256_gives_published_vectors(void **state)
{
	static uint8_t million[1000000];
	uint8_t digest[32];

	(void)state;
	digest_sha256("", 0, digest);
	assert_hex(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	digest_sha256("abc", 3, digest);
	assert_hex(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	memset(million, 'a', sizeof million);
	digest_sha256(million, sizeof million, digest);
	assert_hex(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void test_digest__sha_stream_equals_whole(void **state)
{
	uint8_t whole[32], pieces[32];
	struct digest_sha sha;

	(void)state;
	fill_large();
	for (size_t step = 1; step < 3000; step = step * 5 + 2) {
		digest_sha256(large, 10000, whole);
		digest_sha_init(&sha);
		for (size_t at = 0; at < 10000; at += step)
			digest_sha_add(&sha, large + at, at + step < 10000 ? step : 10000 - at);
		digest_sha_done(&sha, pieces);
		assert_memory_equal(whole, pieces, 32);
	}
}

static void test_digest__xxh3_never_changes(void **state)
{
	(void)state;
	fill_large();
	assert_int_equal(digest_xxh3("", 0, 0), UINT64_C(0x2d06800538d394c2));
	assert_int_equal(digest_xxh3("abc", 3, 42), UINT64_C(0xd8438def21bbdcc3));
	assert_int_equal(digest_xxh3(large, 100000, 0), UINT64_C(0x4e16d63e05fac6ed));
	assert_int_equal(digest_xxh3(large, 100000, UINT64_C(0x123456789abcdef0)), UINT64_C(0x19621b3147e3373a));
}

static void test_digest__xxh3_equals_the_library(void **state)
{
	static const uint64_t seeds[] = {0, 1, UINT64_C(0x8000000000000000), UINT64_MAX};

	(void)state;
	fill_large();
	for (unsigned s = 0; s < 4; s++)
		for (size_t length = 0; length < LARGE - 4; length += length < 1200 ? 1 : length / 7)
			assert_int_equal(digest_xxh3(large + s, length, seeds[s]),
			                 XXH3_64bits_withSeed(large + s, length, seeds[s]));
}

static void test_digest__avx2_equals_the_library(void **state)
{
	(void)state;
	if (!digest_avx2_present())
		skip();
	fill_large();
	for (size_t length = 0; length < LARGE; length += length < 1200 ? 1 : length / 7)
		assert_int_equal(digest_avx2_xxh3(large, length, 77), XXH3_64bits_withSeed(large, length, 77));
}

static void test_digest__xxh_stream_equals_whole(void **state)
{
	static const uint64_t seeds[] = {0, UINT64_C(0x5a17c0ffee15600d)};
	struct digest_xxh xxh;

	(void)state;
	fill_large();
	/* Pieces on both sides of the length at which the wide code takes over, in one stream. */
	for (unsigned s = 0; s < 2; s++) {
		for (size_t length = 0; length < 5000; length = length * 2 + 1) {
			for (size_t step = 1; step < 3000; step = step * 3 + 1) {
				digest_xxh_init(&xxh, seeds[s]);
				for (size_t at = 0; at < length; at += step)
					digest_xxh_add(&xxh, large + at, at + step < length ? step : length - at);
				assert_int_equal(digest_xxh_done(&xxh), digest_xxh3(large, length, seeds[s]));
			}
		}
		digest_xxh_init(&xxh, seeds[s]);
		for (size_t at = 0, step = 1; at < LARGE; at += step, step = (step * 13 + 7) % 1500 + 1)
			digest_xxh_add(&xxh, large + at, at + step < LARGE ? step : LARGE - at);
		assert_int_equal(digest_xxh_done(&xxh), digest_xxh3(large, LARGE, seeds[s]));
	}
}

static void test_digest__xxh_done_leaves_the_stream_as_it_was(void **state)
{
	struct digest_xxh xxh;

	(void)state;
	fill_large();
	digest_xxh_init(&xxh, 1);
	digest_xxh_add(&xxh, large, 1000);
	assert_int_equal(digest_xxh_done(&xxh), digest_xxh_done(&xxh));
	digest_xxh_add(&xxh, NULL, 0);
	digest_xxh_add(&xxh, large + 1000, 1000);
	assert_int_equal(digest_xxh_done(&xxh), digest_xxh3(large, 2000, 1));
	digest_xxh_init(&xxh, 2); /* used before */
	digest_xxh_add(&xxh, large, 2000);
	assert_int_equal(digest_xxh_done(&xxh), digest_xxh3(large, 2000, 2));
}

static void test_digest__copy_copies_and_hashes(void **state)
{
	static const size_t lengths[] = {0, 1, 511, 65535, 65536, 65537, 131072, LARGE};
	struct digest_xxh xxh;

	(void)state;
	fill_large();
	for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		memset(copied, 0xee, sizeof copied);
		digest_xxh_init(&xxh, 0);
		digest_xxh_copy(&xxh, copied, large, lengths[i]);
		assert_memory_equal(copied, large, lengths[i]);
		if (lengths[i] < LARGE)
			assert_int_equal(copied[lengths[i]], 0xee);
		assert_int_equal(digest_xxh_done(&xxh), digest_xxh3(large, lengths[i], 0));
	}
	/* Of several runs, as an engine's block is. */
	digest_xxh_init(&xxh, 0);
	for (size_t at = 0; at < LARGE; at += 777)
		digest_xxh_copy(&xxh, copied + at, large + at, at + 777 < LARGE ? 777 : LARGE - at);
	assert_int_equal(digest_xxh_done(&xxh), digest_xxh3(large, LARGE, 0));
	assert_memory_equal(copied, large, LARGE);
}

static void test_digest__random_differs_when_called_again(void **state)
{
	uint8_t a[32] = {0}, b[32] = {0};

	(void)state;
	digest_random(a, sizeof a);
	digest_random(b, sizeof b);
	assert_memory_not_equal(a, b, sizeof a);
	digest_random(large, LARGE); /* more than one call of the system gives */
	digest_random(NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_digest__sha256_gives_published_vectors),
		cmocka_unit_test(test_digest__sha_stream_equals_whole),
		cmocka_unit_test(test_digest__xxh3_never_changes),
		cmocka_unit_test(test_digest__xxh3_equals_the_library),
		cmocka_unit_test(test_digest__avx2_equals_the_library),
		cmocka_unit_test(test_digest__xxh_stream_equals_whole),
		cmocka_unit_test(test_digest__xxh_done_leaves_the_stream_as_it_was),
		cmocka_unit_test(test_digest__copy_copies_and_hashes),
		cmocka_unit_test(test_digest__random_differs_when_called_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
