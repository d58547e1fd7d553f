/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256, XXH3-64 and random bytes.
 * Threads: any; a state belongs to one thread at a time. Memory: the caller's states; nothing is allocated.
 * Invariant: digest_xxh_copy hashes what arrived at the destination, not what it read from the source, so that a source
 * that changes under the copy, or a copy that went wrong, can not get a checksum that calls it good.
 */
#include "base/digest.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

/* The low-level calls, which OpenSSL 3 calls old: an EVP digest costs more than the hash of the 100 bytes of a key. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/crypto.h>
#include <openssl/sha.h>

/* From the header, so that the state can lie on the stack and short inputs cost no call. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "base/digest_avx2.h"

#define DIGEST_CHUNK_BYTES ((size_t)64 << 10) /* stays in the second-level cache between copy and hash */
#define DIGEST_STEP_BYTES  ((size_t)4 << 10)  /* hashed between two requests for what is copied next */
#define DIGEST_LINE_BYTES  64u
#define DIGEST_WIDE_BYTES  512u /* below it a call costs what wide registers save */

static_assert(sizeof(SHA256_CTX) <= sizeof(struct digest_sha), "state of SHA-256");
static_assert(_Alignof(SHA256_CTX) <= _Alignof(struct digest_sha), "alignment of SHA-256");
static_assert(sizeof(XXH3_state_t) <= sizeof(struct digest_xxh), "state of XXH3");
static_assert(_Alignof(XXH3_state_t) <= _Alignof(struct digest_xxh), "alignment of XXH3");

static SHA256_CTX *digest_sha_state(struct digest_sha *sha)
{
	return (SHA256_CTX *)(void *)sha->state;
}

void digest_sha_init(struct digest_sha *sha)
{
	check(SHA256_Init(digest_sha_state(sha)));
}

void digest_sha_add(struct digest_sha *sha, const void *bytes, size_t length)
{
	check(SHA256_Update(digest_sha_state(sha), bytes, length));
}

void digest_sha_done(struct digest_sha *sha, uint8_t out[32])
{
	check(SHA256_Final(out, digest_sha_state(sha)));
}

void digest_sha256(const void *bytes, size_t length, uint8_t out[32])
{
	struct digest_sha sha;

	digest_sha_init(&sha);
	digest_sha_add(&sha, bytes, length);
	digest_sha_done(&sha, out);
}

void digest_xxh_init(struct digest_xxh *xxh, uint64_t seed)
{
	XXH3_state_t *state = (XXH3_state_t *)(void *)xxh->state;

	/* Reset reads the seed that was there, and skips making the secret when it is the same one. */
	XXH3_INITSTATE(state);
	check(XXH3_64bits_reset_withSeed(state, seed) == XXH_OK);
}

void digest_xxh_add(struct digest_xxh *xxh, const void *bytes, size_t length)
{
	if (length >= DIGEST_WIDE_BYTES && digest_avx2_present())
		digest_avx2_add(xxh->state, bytes, length);
	else if (length)
		check(XXH3_64bits_update((XXH3_state_t *)(void *)xxh->state, bytes, length) == XXH_OK);
}

uint64_t digest_xxh_done(const struct digest_xxh *xxh)
{
	return XXH3_64bits_digest((const XXH3_state_t *)(const void *)xxh->state);
}

uint64_t digest_xxh3(const void *bytes, size_t length, uint64_t seed)
{
	if (length >= DIGEST_WIDE_BYTES && digest_avx2_present())
		return digest_avx2_xxh3(bytes, length, seed);
	return XXH3_64bits_withSeed(bytes, length, seed);
}

/* Hashes a chunk. The `next` bytes that are copied after it lie at `from`: they are asked for meanwhile, so that memory
 * does not rest while the processor computes. */
static void digest_xxh_chunk(struct digest_xxh *xxh, const uint8_t *chunk, size_t length, const uint8_t *from,
                             size_t next)
{
	for (size_t at = 0; at < length; at += DIGEST_STEP_BYTES) {
		size_t step = length - at < DIGEST_STEP_BYTES ? length - at : DIGEST_STEP_BYTES;

		for (size_t line = at; line < at + step && line < next; line += DIGEST_LINE_BYTES)
			__builtin_prefetch(from + line, 0, 2);
		digest_xxh_add(xxh, chunk + at, step);
	}
}

void digest_xxh_copy(struct digest_xxh *xxh, void *to, const void *from, size_t length)
{
	uint8_t *target = to;
	const uint8_t *source = from;

	while (length) {
		size_t chunk = length < DIGEST_CHUNK_BYTES ? length : DIGEST_CHUNK_BYTES;

		memcpy(target, source, chunk);
		/* Else the compiler might hash what it just stored from registers. */
		__asm__ __volatile__("" : : : "memory");
		digest_xxh_chunk(xxh, target, chunk, source + chunk, length - chunk);
		target += chunk;
		source += chunk;
		length -= chunk;
	}
}

void digest_random(void *bytes, size_t length)
{
	uint8_t *at = bytes;

	while (length) {
		ssize_t got = getrandom(at, length, 0);

		if (got < 0) {
			check(errno == EINTR);
			continue;
		}
		at += got;
		length -= (size_t)got;
	}
}

int digest_same(const void *a, const void *b, size_t length)
{
	return CRYPTO_memcmp(a, b, length) == 0;
}
