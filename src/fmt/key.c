/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys: the hash of every kind of thing, and the chains (docs/KEY.md, parts 4 to 6).
 * Threads: any; a struct key_derive has one owner. Memory: one allocation at the start, which has room for one block of
 * tokens, and one for the extras of an unfinished block, which grows to at most KEY_EXTRAS_MAX_BYTES.
 * Invariant: what is hashed starts with a label of 8 bytes that no other kind has, and each length that the label and
 * what stands before it do not fix is written before the bytes. So two different things never give the same input.
 */
#include "fmt/key.h"

#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"

#define LABEL_SPACE "cairnSPC"
#define LABEL_ROOT "cairnROT"
#define LABEL_BLOCK "cairnBLK"
#define LABEL_TAIL "cairnTAL"
#define LABEL_HASH "cairnENG"
#define LABEL_FILE "cairnFIL"
#define LABEL_TENANT "cairnTEN"
#define LABEL_SESSION "cairnSES"
#define LABEL_MANIFEST "cairnMAN"
#define LABEL_MANIFEST_SPACE "cairnMSP"
#define LABEL_WEIGHTS "cairnWTS"
#define LABEL_BYTES 8u

/* ---- hash inputs ---------------------------------------------------------------------------------------------- */

/* Gathers an input on the stack, so that a small one is hashed in one go; past the buffer it is hashed as it comes. */
struct key_input {
	size_t used;
	int streaming;
	struct digest_sha sha;
	uint8_t bytes[512]; /* a block of 64 tokens with a salt still fits */
};

static void key_flush(struct key_input *input)
{
	if (!input->streaming)
		digest_sha_init(&input->sha);
	input->streaming = 1;
	digest_sha_add(&input->sha, input->bytes, input->used);
	input->used = 0;
}

static inline void key_add(struct key_input *input, const void *bytes, size_t length)
{
	if (__builtin_expect(length > sizeof input->bytes - input->used, 0)) {
		key_flush(input);
		if (length > sizeof input->bytes) {
			digest_sha_add(&input->sha, bytes, length);
			return;
		}
	}
	if (length)
		memcpy(input->bytes + input->used, bytes, length);
	input->used += length;
}

static inline void key_add32(struct key_input *input, uint32_t value) { key_add(input, &value, sizeof value); }
static inline void key_add64(struct key_input *input, uint64_t value) { key_add(input, &value, sizeof value); }

static inline void key_begin(struct key_input *input, const char *label)
{
	input->used = 0;
	input->streaming = 0;
	key_add(input, label, LABEL_BYTES);
}

static inline void key_end(struct key_input *input, uint8_t out[32])
{
	if (!input->streaming) {
		digest_sha256(input->bytes, input->used, out);
		return;
	}
	key_flush(input);
	digest_sha_done(&input->sha, out);
}

/* ---- ids ------------------------------------------------------------------------------------------------------ */

void key_space_id(const uint8_t *canon, size_t length, uint8_t ret_id[32])
{
	struct key_input input;

	key_begin(&input, LABEL_SPACE);
	key_add(&input, canon, length);
	key_end(&input, ret_id);
}

void key_root(const uint8_t space_id[32], uint32_t group, uint8_t ret_key[32])
{
	struct key_input input;

	key_begin(&input, LABEL_ROOT);
	key_add(&input, space_id, 32);
	key_add32(&input, group);
	key_end(&input, ret_key);
}

void key_tenant_digest(const char *tenant, size_t length, uint8_t ret_digest[32])
{
	struct key_input input;

	key_begin(&input, LABEL_TENANT);
	key_add(&input, tenant, length);
	key_end(&input, ret_digest);
}

void key_session_id(const uint8_t tenant_digest[32], const char *owner, const char *name, uint8_t ret_id[32])
{
	struct key_input input;
	size_t owner_length = owner ? strlen(owner) : 0;
	size_t name_length = strlen(name);

	check(owner_length <= UINT32_MAX && name_length <= UINT32_MAX);
	key_begin(&input, LABEL_SESSION);
	key_add(&input, tenant_digest, 32);
	key_add32(&input, (uint32_t)owner_length);
	key_add(&input, owner, owner_length);
	key_add32(&input, (uint32_t)name_length);
	key_add(&input, name, name_length);
	key_end(&input, ret_id);
}

void key_manifest(const uint8_t session_id[32], uint64_t epoch, uint8_t ret_key[32])
{
	struct key_input input;

	key_begin(&input, LABEL_MANIFEST);
	key_add(&input, session_id, 32);
	key_add64(&input, epoch);
	key_end(&input, ret_key);
}

void key_manifest_space(const uint8_t tenant_digest[32], uint8_t ret_id[32])
{
	struct key_input input;

	key_begin(&input, LABEL_MANIFEST_SPACE);
	key_add(&input, tenant_digest, 32);
	key_end(&input, ret_id);
}

void key_weights(const struct key_file *files, size_t nfiles, uint8_t ret_digest[32])
{
	struct key_input input;

	key_begin(&input, LABEL_WEIGHTS);
	key_add64(&input, nfiles);
	for (size_t i = 0; i < nfiles; i++) {
		size_t length = strlen(files[i].name);

		check(length <= UINT32_MAX && (!i || strcmp(files[i - 1].name, files[i].name) < 0));
		key_add32(&input, (uint32_t)length);
		key_add(&input, files[i].name, length);
		key_add64(&input, files[i].bytes);
		key_add(&input, files[i].digest, 32);
	}
	key_end(&input, ret_digest);
}

/* ---- chains --------------------------------------------------------------------------------------------------- */

#define EXTRA_HEAD_BYTES 8u /* u32 token within its block, u32 length */

struct key_derive {
	uint8_t space_id[32];
	uint8_t parent[32]; /* the last full block, or the root */
	uint32_t kind;      /* enum key_kind */
	uint32_t group;
	uint32_t block_tokens;
	uint32_t npending;  /* tokens of the unfinished block, < block_tokens */
	uint64_t taken;     /* tokens in all */
	uint32_t nextras;   /* extras of the unfinished block ... */
	uint32_t extras_used, extras_room;
	uint8_t *extras;    /* ... as they are hashed: head, bytes, head, bytes */
	uint32_t ended;     /* file/1: a short block was the last one */
	struct digest_sha engine; /* engine schemes: after the first 64 bytes, which all keys of a space have in common */
	uint32_t pending[];
};

int key_derive_start(const struct key_space *space, uint32_t group, struct key_derive **ret_derive)
{
	static const uint8_t zeros[24];

	if (group >= space->ngroups)
		return err_set(CAIRN_E_INVAL, "derive: group is %u; the space has %u", group, space->ngroups);
	uint32_t block_tokens = space->groups[group].block_tokens;
	size_t pending = space->kind == KEY_TOKENS ? block_tokens : 0;
	struct key_derive *d = mem_alloc(sizeof *d + pending * sizeof d->pending[0]);
	if (!d)
		return err_set(CAIRN_E_NOMEM, "derive: out of memory for a block of %u tokens", block_tokens);
	memcpy(d->space_id, space->id, 32);
	memcpy(d->parent, space->roots[group], 32);
	d->kind = space->kind;
	d->group = group;
	d->block_tokens = block_tokens;
	digest_sha_init(&d->engine);
	digest_sha_add(&d->engine, LABEL_HASH, LABEL_BYTES);
	digest_sha_add(&d->engine, d->space_id, 32);
	digest_sha_add(&d->engine, zeros, sizeof zeros);
	*ret_derive = d;
	return 0;
}

void key_derive_free(struct key_derive *d)
{
	if (!d)
		return;
	mem_free(d->extras);
	mem_free(d);
}

/* Whether the extras are in order, within the tokens they came with, and within the limit of each block. ret_left: the
 * bytes of those that begin at or after token `open`, where the block begins that stays unfinished. */
static int key_check_extras(const struct key_derive *d, size_t ntokens, const struct cairn_extra *extras,
                            size_t nextras, uint64_t open, uint64_t *ret_left)
{
	uint64_t token = d->taken, block = d->taken / d->block_tokens;
	uint64_t bytes = d->extras_used;

	*ret_left = open <= d->taken ? d->extras_used : 0;
	for (size_t i = 0; i < nextras; i++) {
		const struct cairn_extra *extra = &extras[i];

		if (extra->token < token || extra->token - d->taken >= ntokens)
			return err_set(CAIRN_E_INVAL, "derive: extras[%zu] begins at token %llu; give extras in order, each with"
			               " the call that takes its token (this one takes %zu from %llu on)", i,
			               (unsigned long long)extra->token, ntokens, (unsigned long long)d->taken);
		if (extra->length && !extra->bytes)
			return err_set(CAIRN_E_INVAL, "derive: extras[%zu] has %u bytes at NULL", i, extra->length);
		if (extra->token / d->block_tokens != block)
			bytes = 0;
		token = extra->token;
		block = token / d->block_tokens;
		bytes += (uint64_t)EXTRA_HEAD_BYTES + extra->length;
		if (bytes > KEY_EXTRAS_MAX_BYTES)
			return err_set(CAIRN_E_INVAL, "derive: extras[%zu]: the extras of one block take more than %u bytes, each"
			               " with %u more; give a digest of what is so long", i, KEY_EXTRAS_MAX_BYTES,
			               EXTRA_HEAD_BYTES);
		if (token >= open)
			*ret_left += (uint64_t)EXTRA_HEAD_BYTES + extra->length;
	}
	return 0;
}

static int key_reserve_extras(struct key_derive *d, uint64_t bytes)
{
	if (bytes <= d->extras_room)
		return 0;
	uint64_t room = BYTES_ROUND_UP(bytes, 256u);
	uint8_t *extras = mem_grow(d->extras, room);
	if (!extras)
		return err_set(CAIRN_E_NOMEM, "derive: out of memory for %llu bytes of extras", (unsigned long long)bytes);
	d->extras = extras;
	d->extras_room = (uint32_t)room;
	return 0;
}

/* The head of a block or tail, up to the counts: all that its kind and place in the chain decide. */
static inline void key_begin_block(const struct key_derive *d, struct key_input *input, int tail)
{
	key_begin(input, tail ? LABEL_TAIL : LABEL_BLOCK);
	if (tail) {
		key_add(input, d->space_id, 32);
		key_add32(input, d->group);
	}
	key_add(input, d->parent, 32);
}

static void key_add_extra(struct key_input *input, const struct cairn_extra *extra, uint32_t offset)
{
	key_add32(input, offset);
	key_add32(input, extra->length);
	key_add(input, extra->bytes, extra->length);
}

/* Finishes the block that begins with what is pending, with the next tokens and extras; the chain moves on. */
static void key_finish_block(struct key_derive *d, const uint32_t *tokens, const struct cairn_extra *extras,
                             uint32_t nextras)
{
	struct key_input input;
	uint32_t ntokens = d->block_tokens - d->npending;
	uint64_t start = d->taken - d->npending;

	key_begin_block(d, &input, 0);
	key_add32(&input, d->block_tokens);
	key_add32(&input, d->nextras + nextras);
	key_add(&input, d->pending, (size_t)d->npending * sizeof *tokens);
	key_add(&input, tokens, (size_t)ntokens * sizeof *tokens);
	key_add(&input, d->extras, d->extras_used);
	for (uint32_t i = 0; i < nextras; i++)
		key_add_extra(&input, &extras[i], (uint32_t)(extras[i].token - start));
	key_end(&input, d->parent);
	d->taken += ntokens;
	d->npending = 0;
	d->nextras = 0;
	d->extras_used = 0;
}

/* Keeps tokens and extras that do not fill a block. Room for them is there. */
static void key_keep(struct key_derive *d, const uint32_t *tokens, uint32_t ntokens, const struct cairn_extra *extras,
                     size_t nextras)
{
	uint64_t start = d->taken - d->npending;

	if (ntokens)
		memcpy(d->pending + d->npending, tokens, (size_t)ntokens * sizeof *tokens);
	for (size_t i = 0; i < nextras; i++) {
		uint8_t *at = d->extras + d->extras_used;

		check(d->extras_room - d->extras_used >= EXTRA_HEAD_BYTES + extras[i].length);
		bytes_set32(at, (uint32_t)(extras[i].token - start));
		bytes_set32(at + 4, extras[i].length);
		if (extras[i].length)
			memcpy(at + EXTRA_HEAD_BYTES, extras[i].bytes, extras[i].length);
		d->extras_used += EXTRA_HEAD_BYTES + extras[i].length;
	}
	d->nextras += (uint32_t)nextras;
	d->npending += ntokens;
	d->taken += ntokens;
}

long key_derive_tokens(struct key_derive *d, const uint32_t *tokens, size_t n, const struct cairn_extra *extras,
                       size_t nextras, cairn_key *keys, size_t max)
{
	uint64_t left_bytes;

	if (d->kind != KEY_TOKENS)
		return err_set(CAIRN_E_INVAL, "derive: the space's scheme takes no tokens; use tokens/1, or the call of the"
		               " scheme");
	if (n > SIZE_MAX / 8 || d->taken > UINT64_MAX / 2)
		return err_set(CAIRN_E_INVAL, "derive: %zu tokens are more than a prompt can have", n);
	size_t blocks = (d->npending + n) / d->block_tokens;
	uint64_t open = d->taken - d->npending + (uint64_t)blocks * d->block_tokens;
	if (key_check_extras(d, n, extras, nextras, open, &left_bytes))
		return CAIRN_E_INVAL;
	if (blocks > max)
		return err_set(CAIRN_E_SIZE, "derive: room for %zu keys and %zu blocks are full; give more room", max, blocks);
	if (key_reserve_extras(d, left_bytes))
		return CAIRN_E_NOMEM;

	for (size_t block = 0; block < blocks; block++) {
		uint32_t ntokens = d->block_tokens - d->npending;
		uint64_t end = d->taken + ntokens;
		uint32_t begins = 0;

		while (begins < nextras && extras[begins].token < end)
			begins++;
		key_finish_block(d, tokens, extras, begins);
		memcpy(keys[block].bytes, d->parent, 32);
		tokens += ntokens;
		n -= ntokens;
		if (begins) {
			extras += begins;
			nextras -= begins;
		}
	}
	key_keep(d, tokens, (uint32_t)n, extras, nextras);
	return (long)blocks;
}

int key_derive_tail(const struct key_derive *d, cairn_key *ret_key, uint32_t *ret_tokens)
{
	struct key_input input;

	if (!d->npending)
		return err_set(CAIRN_E_INVAL, "derive: no tokens since the last full block, so there is no tail");
	key_begin_block(d, &input, 1);
	key_add32(&input, d->npending);
	key_add32(&input, d->nextras);
	key_add(&input, d->pending, (size_t)d->npending * sizeof d->pending[0]);
	key_add(&input, d->extras, d->extras_used);
	key_end(&input, ret_key->bytes);
	*ret_tokens = d->npending;
	return 0;
}

int key_derive_hash(struct key_derive *d, const void *hash, size_t length, cairn_key *ret_key)
{
	uint32_t head[2] = {d->group, (uint32_t)length};
	struct digest_sha sha;

	if (d->kind != KEY_HASH)
		return err_set(CAIRN_E_INVAL, "derive: the space's scheme takes no engine hashes; use that of the engine");
	if (length < KEY_HASH_MIN || length > KEY_HASH_MAX)
		return err_set(CAIRN_E_INVAL, "derive: the hash has %zu bytes; %u to %u are allowed: set the engine to a longer"
		               " hash, and pass its bytes, not a part of them", length, KEY_HASH_MIN, KEY_HASH_MAX);
	sha = d->engine;
	digest_sha_add(&sha, head, sizeof head);
	digest_sha_add(&sha, hash, length);
	digest_sha_done(&sha, d->parent);
	memcpy(ret_key->bytes, d->parent, 32);
	return 0;
}

int key_derive_bytes(struct key_derive *d, const void *bytes, size_t length, cairn_key *ret_key)
{
	struct key_input input;
	uint8_t digest[32];

	if (d->kind != KEY_FILE)
		return err_set(CAIRN_E_INVAL, "derive: the space's scheme takes no bytes; use file/1");
	if (length > KEY_FILE_BLOCK_BYTES)
		return err_set(CAIRN_E_SIZE, "derive: %zu bytes; a block of a file has %u", length, KEY_FILE_BLOCK_BYTES);
	if (!length || d->ended)
		return err_set(CAIRN_E_INVAL, "derive: %s; each block of a file but the last has %u bytes",
		               d->ended ? "a block after a short one" : "no bytes", KEY_FILE_BLOCK_BYTES);
	digest_sha256(bytes, length, digest);
	key_begin(&input, LABEL_FILE);
	key_add(&input, d->parent, 32);
	key_add32(&input, (uint32_t)length);
	key_add(&input, digest, sizeof digest);
	key_end(&input, d->parent);
	d->ended = length < KEY_FILE_BLOCK_BYTES;
	memcpy(ret_key->bytes, d->parent, 32);
	return 0;
}

void key_derive_parent(const struct key_derive *d, cairn_key *ret_key)
{
	memcpy(ret_key->bytes, d->parent, 32);
}
