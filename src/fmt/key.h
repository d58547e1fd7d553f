/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identity (docs/KEY.md): canonical form of a space, its id, keys of all schemes, session ids. The structs of the
 * public header are the in-memory form. Pure: no I/O, no globals.
 * Threads: any; a struct has one owner. Memory: struct key_space and struct key_derive own what they allocate, nothing
 * else allocates. space.c holds the canonical form, the text and the differences; key.c the hashes.
 */
#ifndef CAIRN_FMT_KEY_H
#define CAIRN_FMT_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "cairn/cairn.h"

#define KEY_CANON_MAX 65536u
#define KEY_STRING_MAX 1024u            /* bytes of a string of a description ... */
#define KEY_NAME_MAX 255u               /* ... but of tenant, scheme and the names of groups, parts and fields */
#define KEY_SCALE_MAX 64u               /* characters of adapter_scale */
#define KEY_GROUPS_MAX 16u
#define KEY_PARTS_MAX 64u
#define KEY_FIELDS_MAX 64u              /* unknown tags included */
#define KEY_BLOCK_TOKENS_MAX 65536u
#define KEY_EXTRAS_MAX_BYTES (1u << 20) /* extras that begin in one block: their bytes, and 8 more for each */
#define KEY_HASH_MIN 16u                /* bytes of an engine's hash: never below 128 bits */
#define KEY_HASH_MAX 256u
#define KEY_FILE_BLOCK_BYTES (1u << 20) /* of file/1: each block but the last has exactly as many */

enum key_kind {
	KEY_TOKENS = 1, /* tokens/1 */
	KEY_HASH = 2,   /* vllm/..., sglang/1, lmcache/... */
	KEY_FILE = 3,   /* file/1 */
};

/* Checks a description; 0 or CAIRN_E_INVAL with the error text naming the field. */
int key_desc_check(const struct cairn_space_desc *desc);
/* The canonical form into bytes[0..max): returns its length, or CAIRN_E_INVAL (bad description, or longer than max). */
long key_space_encode(const struct cairn_space_desc *desc, uint8_t *bytes, size_t max);
void key_space_id(const uint8_t *canon, size_t length, uint8_t ret_id[32]);

/* A canonical form, decoded from foreign bytes, as a description whose pointers lead into this struct: it must not be
 * copied or moved. Defaults are filled in: desc.tenant, .scheme, .groups and .parts are never NULL, .ngroups and
 * .nparts at least 1 (a group of file/1 may have 0 block_tokens). The costs are 0: they are no part of the identity. */
struct key_space {
	struct cairn_space_desc desc;
	uint8_t id[32];
	uint8_t *canon; /* owned */
	size_t canon_length;
	char *strings; /* owned */
	struct cairn_group groups[16];
	struct cairn_part parts[64];
	struct cairn_field fields[64];
	cairn_digest weights, adapter;
	uint8_t generation[16];
	uint8_t tenant_digest[32]; /* key_tenant_digest of desc.tenant */
	uint64_t required_parts;   /* mask: the parts that are not optional; never 0 */
	uint32_t kind;             /* enum key_kind */
	uint32_t ngroups;          /* desc.ngroups */
	uint8_t roots[16][32];     /* root key of each group */
};
/* Decodes; unknown tags become desc.fields with the name "tag:N". Writing it again gives the same bytes: a form that is
 * not canonical is refused. 0, CAIRN_E_NOMEM, CAIRN_E_INVAL; after a failure *ret_space is zero (key_space_done does
 * nothing with it). */
int key_space_decode(const uint8_t *canon, size_t length, struct key_space *ret_space);
int key_space_from_desc(const struct cairn_space_desc *desc, struct key_space *ret_space);
void key_space_done(struct key_space *space);
/* Text of a description that key_desc_check accepts, one "field = value" a line; in text[0..max) with a final 0 (max 0:
 * nothing). Returns the length it needs without the 0. */
size_t key_space_text(const struct cairn_space_desc *desc, char *text, size_t max);
/* One line "FIELD: A | B" for each field in which two such descriptions differ. Text and return value as of
 * key_space_text; 0: it is the same space. */
size_t key_space_diff(const struct cairn_space_desc *a, const struct cairn_space_desc *b, char *text, size_t max);

/* The root of the chain of a group. */
void key_root(const uint8_t space_id[32], uint32_t group, uint8_t ret_key[32]);
/* H(the tenant's name). */
void key_tenant_digest(const char *tenant, size_t length, uint8_t ret_digest[32]);
/* H(tenant digest, owner, name); owner NULL is "". */
void key_session_id(const uint8_t tenant_digest[32], const char *owner, const char *name, uint8_t ret_id[32]);
/* Key of a session's manifest part: H(session id, epoch). Its space is key_manifest_space of the tenant. */
void key_manifest(const uint8_t session_id[32], uint64_t epoch, uint8_t ret_key[32]);
/* The space id under which a tenant's manifests are stored. */
void key_manifest_space(const uint8_t tenant_digest[32], uint8_t ret_id[32]);

/* H over the files of a model's weights, already read; sorted by name, names distinct. */
struct key_file {
	const char *name; /* the last component of its path */
	uint64_t bytes;
	uint8_t digest[32]; /* SHA-256 of its bytes */
};
void key_weights(const struct key_file *files, size_t nfiles, uint8_t ret_digest[32]);

/* Derivation, incremental; the calls and their errors are those of cairn_derive_... in cairn.h. A failed call takes
 * nothing. `space` is not needed after the start. */
struct key_derive;
int key_derive_start(const struct key_space *space, uint32_t group, struct key_derive **ret_derive);
long key_derive_tokens(struct key_derive *d, const uint32_t *tokens, size_t n, const struct cairn_extra *extras,
                       size_t nextras, cairn_key *keys, size_t max);
int key_derive_hash(struct key_derive *d, const void *hash, size_t length, cairn_key *ret_key);
int key_derive_bytes(struct key_derive *d, const void *bytes, size_t length, cairn_key *ret_key);
int key_derive_tail(const struct key_derive *d, cairn_key *ret_key, uint32_t *ret_tokens);
void key_derive_parent(const struct key_derive *d, cairn_key *ret_key);
void key_derive_free(struct key_derive *d);

#endif
