/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XXH3-64 once more, compiled for AVX2: the library is built for every x86-64, and picks at run time.
 * Threads: any. Memory: the caller's.
 * Invariant: the same header as digest.c gives the same layout of the state and the same sums; test_digest compares.
 */
#include "base/digest_avx2.h"

#include "base/check.h"

#if defined(__x86_64__)

/* Before the target changes, so that nothing of the C library is compiled for it. */
#include <stdlib.h>
#include <string.h>

#if defined(__clang__)
#include <immintrin.h>
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#define XXH_VECTOR 2 /* XXH_AVX2: clang's pragma does not set the macro that the header looks for */
/* Half a page on: what was just read from a device, or lies in a pool, is far away, and the processor's own prefetch
 * begins anew with each page. The header's 384 bytes are a quarter slower there, and no faster in the cache. */
#define XXH_PREFETCH_DIST 2048
#define XXH_INLINE_ALL
#include <xxhash.h>

void digest_avx2_add(void *state, const void *bytes, size_t length)
{
	check(XXH3_64bits_update(state, bytes, length) == XXH_OK);
}

uint64_t digest_avx2_xxh3(const void *bytes, size_t length, uint64_t seed)
{
	return XXH3_64bits_withSeed(bytes, length, seed);
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

int digest_avx2_present(void)
{
	return __builtin_cpu_supports("avx2");
}

#else

int digest_avx2_present(void)
{
	return 0;
}

void digest_avx2_add(void *state, const void *bytes, size_t length)
{
	(void)state, (void)bytes, (void)length;
	check(0);
}

uint64_t digest_avx2_xxh3(const void *bytes, size_t length, uint64_t seed)
{
	(void)bytes, (void)length, (void)seed;
	check(0);
	return 0;
}

#endif
