/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A saved session's manifest: bytes <-> struct. docs/FORMAT.md draws it.
 * Threads: any; pure. Memory: the caller's; what decode returns points into the bytes it was given.
 * Invariant: the tables lie one behind the other without a gap, so that their counts give the length, which must be
 * exactly the one there is; no offset is ever read from the bytes.
 */
#include "fmt/manifest.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "fmt/frame.h"

static const char manifest_magic[8] = {'C', 'A', 'I', 'R', 'N', 'M', 'A', 'N'};

enum {
	HEAD_TOTAL_BYTES = 32,
	HEAD_EPOCH = 40,
	HEAD_TOKENS = 48,
	HEAD_BYTES = 56,
	HEAD_SAVED_AT_S = 64,
	HEAD_SPACE = 72,
	HEAD_NCHAINS = 104,
	HEAD_NTAILS = 108,
	HEAD_STATE_BYTES = 112,
	HEAD_TENANT_LENGTH = 116,
	HEAD_OWNER_LENGTH = 118,
	HEAD_NAME_LENGTH = 120,
	HEAD_END = 128,

	CHAIN_BYTES = 8,
	TAIL_BYTES = 48,
	KEY_BYTES = 32,
};

static uint64_t manifest_total(const struct manifest *manifest, const struct manifest_chain *chains)
{
	uint64_t total = HEAD_END;

	total += (uint64_t)manifest->nchains * CHAIN_BYTES + (uint64_t)manifest->ntails * TAIL_BYTES;
	for (uint32_t i = 0; i < manifest->nchains; i++)
		total += (uint64_t)chains[i].nkeys * KEY_BYTES;
	total += manifest->state_bytes;
	return total + manifest->tenant_length + manifest->owner_length + manifest->name_length;
}

/* Whether the counts are ones that the tables of this version can have. */
static int manifest_counts_fit(const struct manifest *manifest)
{
	return manifest->nchains <= MANIFEST_CHAINS_MAX && manifest->ntails <= MANIFEST_TAILS_MAX &&
	       manifest->state_bytes <= MANIFEST_STATE_MAX && manifest->tenant_length <= MANIFEST_NAME_MAX &&
	       manifest->owner_length <= MANIFEST_NAME_MAX && manifest->name_length <= MANIFEST_NAME_MAX &&
	       manifest->name_length > 0;
}

static int manifest_tail_fits(const struct manifest_tail *tail)
{
	return tail->group < FMT_GROUPS_MAX && tail->part < FMT_PARTS_MAX && tail->bytes > 0 &&
	       tail->bytes <= FMT_PART_BYTES_MAX;
}

/* Names become C strings in the API: a 0 inside would make two of them look like one. */
static int manifest_name_fits(const char *name, uint32_t length)
{
	return !length || !memchr(name, 0, length);
}

size_t manifest_size(const struct manifest *manifest)
{
	check(manifest_counts_fit(manifest));
	return manifest_total(manifest, manifest->chains);
}

void manifest_encode(const struct manifest *manifest, uint8_t *bytes)
{
	size_t total = manifest_size(manifest);
	struct bytes_writer writer = bytes_writer_of(bytes, total);

	check(total <= FMT_PART_BYTES_MAX);
	check(manifest_name_fits(manifest->tenant, manifest->tenant_length) &&
	      manifest_name_fits(manifest->owner, manifest->owner_length) &&
	      manifest_name_fits(manifest->name, manifest->name_length));
	memset(bytes, 0, HEAD_END);
	frame_start(bytes, manifest_magic, FMT_VERSION, NULL);
	bytes_set64(bytes + HEAD_TOTAL_BYTES, total);
	bytes_set64(bytes + HEAD_EPOCH, manifest->epoch);
	bytes_set64(bytes + HEAD_TOKENS, manifest->tokens);
	bytes_set64(bytes + HEAD_BYTES, manifest->bytes);
	bytes_set64(bytes + HEAD_SAVED_AT_S, manifest->saved_at_s);
	memcpy(bytes + HEAD_SPACE, manifest->space, 32);
	bytes_set32(bytes + HEAD_NCHAINS, manifest->nchains);
	bytes_set32(bytes + HEAD_NTAILS, manifest->ntails);
	bytes_set32(bytes + HEAD_STATE_BYTES, manifest->state_bytes);
	bytes_set16(bytes + HEAD_TENANT_LENGTH, (uint16_t)manifest->tenant_length);
	bytes_set16(bytes + HEAD_OWNER_LENGTH, (uint16_t)manifest->owner_length);
	bytes_set16(bytes + HEAD_NAME_LENGTH, (uint16_t)manifest->name_length);

	writer.used = HEAD_END;
	for (uint32_t i = 0; i < manifest->nchains; i++) {
		check(manifest->chains[i].group < FMT_GROUPS_MAX);
		bytes_add32(&writer, manifest->chains[i].group);
		bytes_add32(&writer, manifest->chains[i].nkeys);
	}
	for (uint32_t i = 0; i < manifest->ntails; i++) {
		check(manifest_tail_fits(&manifest->tails[i]));
		bytes_add(&writer, manifest->tails[i].key, 32);
		bytes_add64(&writer, manifest->tails[i].bytes);
		bytes_add32(&writer, manifest->tails[i].group);
		bytes_add32(&writer, manifest->tails[i].part);
	}
	for (uint32_t i = 0; i < manifest->nchains; i++)
		bytes_add(&writer, manifest->chains[i].keys, (size_t)manifest->chains[i].nkeys * KEY_BYTES);
	bytes_add(&writer, manifest->state, manifest->state_bytes);
	bytes_add(&writer, manifest->tenant, manifest->tenant_length);
	bytes_add(&writer, manifest->owner, manifest->owner_length);
	bytes_add(&writer, manifest->name, manifest->name_length);
	check(!writer.failed && writer.used == total);
	frame_seal(bytes, total, frame_seed(manifest_magic));
}

static int manifest_head_decode(const uint8_t *bytes, size_t length, struct manifest *manifest)
{
	uint32_t version;
	int result = frame_open(bytes, length, manifest_magic, frame_seed(manifest_magic), &version, NULL);

	if (result != FMT_OK)
		return result;
	if (length < HEAD_END || bytes_get64(bytes + HEAD_TOTAL_BYTES) != length)
		return FMT_BAD;
	manifest->epoch = bytes_get64(bytes + HEAD_EPOCH);
	manifest->tokens = bytes_get64(bytes + HEAD_TOKENS);
	manifest->bytes = bytes_get64(bytes + HEAD_BYTES);
	manifest->saved_at_s = bytes_get64(bytes + HEAD_SAVED_AT_S);
	memcpy(manifest->space, bytes + HEAD_SPACE, 32);
	manifest->nchains = bytes_get32(bytes + HEAD_NCHAINS);
	manifest->ntails = bytes_get32(bytes + HEAD_NTAILS);
	manifest->state_bytes = bytes_get32(bytes + HEAD_STATE_BYTES);
	manifest->tenant_length = bytes_get16(bytes + HEAD_TENANT_LENGTH);
	manifest->owner_length = bytes_get16(bytes + HEAD_OWNER_LENGTH);
	manifest->name_length = bytes_get16(bytes + HEAD_NAME_LENGTH);
	return manifest_counts_fit(manifest) ? FMT_OK : FMT_BAD;
}

int manifest_decode(const uint8_t *bytes, size_t length, struct manifest *ret_manifest,
                    struct manifest_chain chains[MANIFEST_CHAINS_MAX], struct manifest_tail tails[MANIFEST_TAILS_MAX])
{
	struct manifest manifest = {0};
	int result = manifest_head_decode(bytes, length, &manifest);

	if (result != FMT_OK)
		return result;

	struct bytes_reader reader = bytes_reader_of(bytes + HEAD_END, length - HEAD_END);
	for (uint32_t i = 0; i < manifest.nchains; i++) {
		chains[i].group = bytes_take32(&reader);
		chains[i].nkeys = bytes_take32(&reader);
		if (chains[i].group >= FMT_GROUPS_MAX)
			return FMT_BAD;
	}
	for (uint32_t i = 0; i < manifest.ntails; i++) {
		const void *key = bytes_take(&reader, 32);

		tails[i].bytes = bytes_take64(&reader);
		tails[i].group = bytes_take32(&reader);
		tails[i].part = bytes_take32(&reader);
		if (reader.failed || !manifest_tail_fits(&tails[i]))
			return FMT_BAD;
		memcpy(tails[i].key, key, 32);
	}
	/* From here on nothing can be missing: the counts add up to the bytes there are. */
	if (reader.failed || manifest_total(&manifest, chains) != length)
		return FMT_BAD;
	for (uint32_t i = 0; i < manifest.nchains; i++)
		chains[i].keys = bytes_take(&reader, (size_t)chains[i].nkeys * KEY_BYTES);
	manifest.state = manifest.state_bytes ? bytes_take(&reader, manifest.state_bytes) : NULL;
	manifest.tenant = bytes_take(&reader, manifest.tenant_length);
	manifest.owner = bytes_take(&reader, manifest.owner_length);
	manifest.name = bytes_take(&reader, manifest.name_length);
	check(!reader.failed && reader.at == reader.end);
	if (!manifest_name_fits(manifest.tenant, manifest.tenant_length) ||
	    !manifest_name_fits(manifest.owner, manifest.owner_length) ||
	    !manifest_name_fits(manifest.name, manifest.name_length))
		return FMT_BAD;
	manifest.chains = chains;
	manifest.tails = tails;
	*ret_manifest = manifest;
	return FMT_OK;
}
