/* SPDX-License-Identifier: Apache-2.0 */
/* A saved session's manifest: what it is called, its chains, tails and engine state. Stored as a part. Pure. */
#ifndef CAIRN_FMT_MANIFEST_H
#define CAIRN_FMT_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

struct manifest_chain {
	uint32_t group;
	uint32_t nkeys;
	const uint8_t *keys; /* nkeys x 32 bytes */
};
struct manifest_tail {
	uint8_t key[32];
	uint32_t group, part; /* below FMT_GROUPS_MAX, FMT_PARTS_MAX */
	uint64_t bytes;       /* 1..FMT_PART_BYTES_MAX */
};
#define MANIFEST_CHAINS_MAX 16u
#define MANIFEST_TAILS_MAX 1024u
#define MANIFEST_STATE_MAX (1u << 20)
#define MANIFEST_NAME_MAX 255u

struct manifest {
	const char *tenant, *owner, *name; /* not 0-terminated after decode: see lengths */
	uint32_t tenant_length, owner_length, name_length; /* each at most 255; no byte is 0; name has at least 1 */
	uint8_t space[32];
	uint64_t epoch, tokens, bytes, saved_at_s;
	const struct manifest_chain *chains; /* encode */
	uint32_t nchains;
	const struct manifest_tail *tails; /* encode */
	uint32_t ntails;
	const void *state;
	uint32_t state_bytes;
};
/* Bytes that encode writes. Over FMT_PART_BYTES_MAX (too many keys) it can not be encoded: for the caller to refuse. */
size_t manifest_size(const struct manifest *manifest);
/* Encodes into exactly manifest_size bytes: magic, version, a checksum over all of it. */
void manifest_encode(const struct manifest *manifest, uint8_t *bytes);
/* Decodes foreign bytes. Pointers in the result lead into `bytes`, `chains` and `tails`.
 * FMT_OK, FMT_BAD or FMT_NEWER (fmt/segment.h). */
int manifest_decode(const uint8_t *bytes, size_t length, struct manifest *ret_manifest,
                    struct manifest_chain chains[MANIFEST_CHAINS_MAX], struct manifest_tail tails[MANIFEST_TAILS_MAX]);

#endif
