/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions, and what the tests of spaces say of them. For test_space*.c; after cmocka.h. */
#ifndef CAIRN_TESTS_UNIT_SPACE_LIB_H
#define CAIRN_TESTS_UNIT_SPACE_LIB_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cairn/cairn.h"
#include "fmt/key.h"

#define CANON_HEAD 12 /* magic and version */

/* A description with everything said, so that each of its values can be changed. */
struct full {
	struct cairn_space_desc desc;
	struct cairn_group groups[2];
	struct cairn_part parts[2];
	struct cairn_field fields[2];
};

static const cairn_digest weights_1 = {{0x11}}, weights_2 = {{0x12}}, adapter_1 = {{0xa1}}, adapter_2 = {{0xa2}};
static const uint8_t generation_1[16] = {1}, generation_2[16] = {2};

static inline void full_fill(struct full *full)
{
	memset(full, 0, sizeof *full);
	full->groups[0] = (struct cairn_group){.name = "full", .block_tokens = 16, .block_bytes = 4096};
	full->groups[1] = (struct cairn_group){.name = "window", .block_tokens = 32, .rule = CAIRN_RULE_TRAILING,
	                                       .trailing_tokens = 512, .block_bytes = 8192};
	full->parts[0] = (struct cairn_part){.name = "rank0"};
	full->parts[1] = (struct cairn_part){.name = "draft", .replicated = 1, .optional = 1};
	full->fields[0] = (struct cairn_field){"lookahead", "\0\1", 2};
	full->fields[1] = (struct cairn_field){"tag:77", "later", 5};
	full->desc = (struct cairn_space_desc){
		.size = sizeof full->desc, .tenant = "acme", .scheme = "tokens/1", .model = "m", .weights = &weights_1,
		.adapter = &adapter_1, .adapter_scale = "0.5", .kv_dtype = "bf16", .quant = "q", .layers = 36, .kv_heads = 8,
		.head_size = 128, .layout = "lktd", .rope = "theta=1e6", .isa = "amx", .generation = generation_1,
		.groups = full->groups, .ngroups = 2, .parts = full->parts, .nparts = 2, .fields = full->fields, .nfields = 2,
	};
}

static inline struct cairn_space_desc small_desc(void)
{
	return (struct cairn_space_desc){.size = sizeof(struct cairn_space_desc), .weights = &weights_1, .kv_dtype = "bf16",
	                                 .block_tokens = 16};
}

static inline cairn_digest id_of(const struct cairn_space_desc *desc)
{
	cairn_digest id;

	if (cairn_space_id(desc, &id))
		fail_msg("%s", cairn_error_text());
	return id;
}

static inline void assert_same(const struct cairn_space_desc *a, const struct cairn_space_desc *b)
{
	cairn_digest id_a = id_of(a), id_b = id_of(b);
	char text[2000];

	if (cairn_explain_desc(a, b, text, sizeof text))
		fail_msg("%s", text);
	assert_memory_equal(&id_a, &id_b, sizeof id_a);
}

/* Different ids, and one line that says so, in both directions. */
static inline void assert_differs(const struct cairn_space_desc *a, const struct cairn_space_desc *b, const char *field)
{
	cairn_digest id_a = id_of(a), id_b = id_of(b);
	char text[2000], prefix[300];
	size_t length = strlen(field) + 2;

	assert_memory_not_equal(&id_a, &id_b, sizeof id_a);
	snprintf(prefix, sizeof prefix, "%s: ", field);
	for (int turn = 0; turn < 2; turn++) {
		assert_true(cairn_explain_desc(turn ? b : a, turn ? a : b, text, sizeof text) > 0);
		if (strncmp(text, prefix, length) != 0 || strchr(text, '\n') != text + strlen(text) - 1)
			fail_msg("of %s alone: %s", field, text);
		assert_non_null(strstr(text, " | "));
	}
}

/* Refused, with a text that names the field. */
static inline void assert_refused(const struct cairn_space_desc *desc, const char *names)
{
	cairn_digest id;

	assert_int_equal(cairn_space_id(desc, &id), CAIRN_E_INVAL);
	if (!strstr(cairn_error_text(), names))
		fail_msg("\"%s\" does not name %s", cairn_error_text(), names);
	assert_null(strchr(cairn_error_text(), '\n'));
}

/* Decoding what is encoded gives the same bytes, id and text again. */
static inline void assert_round_trip(const struct cairn_space_desc *desc)
{
	static uint8_t canon[KEY_CANON_MAX], again[KEY_CANON_MAX];
	static char text[300000], text_again[300000];
	struct key_space space;
	cairn_digest id = id_of(desc);
	long length = key_space_encode(desc, canon, sizeof canon);

	assert_true(length > CANON_HEAD);
	assert_int_equal(key_space_decode(canon, (size_t)length, &space), 0);
	assert_int_equal(key_space_encode(&space.desc, again, sizeof again), length);
	assert_memory_equal(canon, again, length);
	assert_memory_equal(space.canon, canon, length);
	assert_memory_equal(space.id, &id, 32);
	assert_true(key_space_text(desc, text, sizeof text) < sizeof text);
	key_space_text(&space.desc, text_again, sizeof text_again);
	assert_string_equal(text, text_again);
	assert_int_equal(key_space_diff(desc, &space.desc, text, sizeof text), 0);
	key_space_done(&space);
}

#endif
