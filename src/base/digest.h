/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (identity: OpenSSL), XXH3-64 (checksums: xxhash) and random bytes. Threads: any; a state has one owner. */
#ifndef CAIRN_BASE_DIGEST_H
#define CAIRN_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

struct digest_sha {
	_Alignas(8) unsigned char state[128]; /* OpenSSL's SHA256_CTX */
};
void digest_sha_init(struct digest_sha *sha);
void digest_sha_add(struct digest_sha *sha, const void *bytes, size_t length);
void digest_sha_done(struct digest_sha *sha, uint8_t out[32]);
void digest_sha256(const void *bytes, size_t length, uint8_t out[32]);

struct digest_xxh {
	_Alignas(64) unsigned char state[640]; /* XXH3_state_t; on the caller's stack, no allocation */
};
void digest_xxh_init(struct digest_xxh *xxh, uint64_t seed);
void digest_xxh_add(struct digest_xxh *xxh, const void *bytes, size_t length);
uint64_t digest_xxh_done(const struct digest_xxh *xxh);
uint64_t digest_xxh3(const void *bytes, size_t length, uint64_t seed);

/* Copies and hashes the destination, chunk by chunk, in one pass over memory. */
void digest_xxh_copy(struct digest_xxh *xxh, void *to, const void *from, size_t length);

/* Fills with random bytes of the operating system. Never fails (crashes where there is no getrandom). */
void digest_random(void *bytes, size_t length);

/* Whether two secrets are the same, in a time that does not tell where they differ. */
int digest_same(const void *a, const void *b, size_t length);

#endif
