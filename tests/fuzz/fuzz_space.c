/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the canonical form of a space: refused, or a description that is written as it was read, is allowed, can
 * be shown, and has keys. Nothing is kept between inputs. Seeds: tests/golden/make_keys.py --corpus.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cairn/cairn.h"
#include "fmt/key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t canon[KEY_CANON_MAX];
static struct key_space space, again;

static void try_keys(void)
{
	static const uint32_t tokens[3] = {1, 2, 3};
	static const uint8_t hash[32];
	const struct cairn_extra extra = {1, hash, sizeof hash};
	struct key_derive *derive;
	cairn_key keys[3], key;
	uint32_t left;

	for (uint32_t group = 0; group < space.ngroups; group++) {
		check(key_derive_start(&space, group, &derive) == 0);
		long count = key_derive_tokens(derive, tokens, 3, &extra, 1, keys, 3);
		check(space.kind == KEY_TOKENS ? count == 3 / (long)space.groups[group].block_tokens : count == CAIRN_E_INVAL);
		check((key_derive_hash(derive, hash, sizeof hash, &key) == 0) == (space.kind == KEY_HASH));
		check((key_derive_bytes(derive, hash, sizeof hash, &key) == 0) == (space.kind == KEY_FILE));
		(void)key_derive_tail(derive, &key, &left);
		key_derive_parent(derive, &key);
		key_derive_free(derive);
	}
	check(key_derive_start(&space, space.ngroups, &derive) == CAIRN_E_INVAL);
}

static void try_text(void)
{
	size_t length = key_space_text(&space.desc, NULL, 0);
	char *text = malloc(length + 1);

	check(text);
	check(key_space_text(&space.desc, text, length + 1) == length && strlen(text) == length);
	if (length > 10) {
		check(key_space_text(&space.desc, text, 10) == length && strlen(text) == 9);
	}
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (key_space_decode(data, size, &space)) {
		check(!space.canon && !space.strings);
		return 0;
	}
	check(key_desc_check(&space.desc) == 0);
	check(key_space_encode(&space.desc, canon, sizeof canon) == (long)size && memcmp(canon, data, size) == 0);
	check(key_space_from_desc(&space.desc, &again) == 0);
	check(memcmp(space.id, again.id, 32) == 0 && key_space_diff(&space.desc, &again.desc, NULL, 0) == 0);
	check(space.required_parts && space.ngroups >= 1 && space.desc.nparts >= 1);
	try_text();
	try_keys();
	key_space_done(&again);
	key_space_done(&space);
	return 0;
}
