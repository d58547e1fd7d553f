/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a prompt. They are derived anew for each call: 4 bytes of SHA-256 a token is nothing beside one decode. */
#include <stdlib.h>
#include <string.h>

#include "llama_in.h"

void cllama_keys_done(struct keys *keys)
{
	free(keys->blocks);
	memset(keys, 0, sizeof *keys);
}

int cllama_keys_derive(const struct cairn_llama *llama, const llama_token *tokens, size_t ntokens,
                       struct keys *ret_keys)
{
	struct keys keys = {0};
	cairn_derive *derive = NULL;
	size_t nblocks = ntokens / llama->block_tokens;
	long got;
	int rc;

	/* The key scheme takes u32. A llama_token is an i32 >= 0: the same bits. */
	_Static_assert(sizeof(llama_token) == sizeof(uint32_t), "a token has 32 bits");
	keys.blocks = calloc(nblocks + 1, sizeof *keys.blocks);
	if (!keys.blocks)
		return cllama_fail(CAIRN_E_NOMEM, "out of memory for %zu keys", nblocks);
	rc = cairn_derive_start(llama->space, 0, &derive);
	if (rc) {
		cllama_keys_done(&keys);
		return cllama_fail_cairn(rc, "deriving keys");
	}
	got = cairn_derive_tokens(derive, (const uint32_t *)tokens, ntokens, NULL, 0, keys.blocks, nblocks + 1);
	if (got >= 0) {
		keys.nblocks = (size_t)got;
		if (ntokens % llama->block_tokens)
			rc = cairn_derive_tail(derive, &keys.tail, &keys.tail_tokens);
	} else {
		rc = (int)got;
	}
	cairn_derive_free(derive);
	if (rc) {
		cllama_keys_done(&keys);
		return cllama_fail_cairn(rc, "deriving keys");
	}
	*ret_keys = keys;
	return 0;
}
