/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spaces: each field is in the identity, and the canonical form is read back as it was and in no other spelling. One
 * thread; descriptions live on the stack.
 */
#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "unit/space_lib.h"

/* ---- every field ---------------------------------------------------------------------------------------------- */

enum value { POINTER, U32, U64 };
#define DESC(member) offsetof(struct full, desc.member)
#define ELEMENT(list, n, type, member) (offsetof(struct full, list) + (n) * sizeof(type) + offsetof(type, member))
#define GROUP(n, member) ELEMENT(groups, n, struct cairn_group, member)
#define PART(n, member) ELEMENT(parts, n, struct cairn_part, member)
#define FIELD(n, member) ELEMENT(fields, n, struct cairn_field, member)

static const struct change {
	const char *field; /* as cairn_explain_desc names it */
	size_t offset;     /* in struct full */
	enum value type;
	const void *pointer;
	uint64_t number;
} changes[] = {
	{"tenant", DESC(tenant), POINTER, "acmf", 0},
	{"tenant", DESC(tenant), POINTER, "public", 0},
	{"tenant", DESC(tenant), POINTER, NULL, 0},
	{"scheme", DESC(scheme), POINTER, "sglang/1", 0},
	{"scheme", DESC(scheme), POINTER, "vllm/sha256/00112233445566778899aabbccddeeff", 0},
	{"model", DESC(model), POINTER, "M", 0},
	{"model", DESC(model), POINTER, "", 0},
	{"model", DESC(model), POINTER, NULL, 0},
	{"weights", DESC(weights), POINTER, &weights_2, 0},
	{"weights", DESC(weights), POINTER, NULL, 0},
	{"adapter", DESC(adapter), POINTER, &adapter_2, 0},
	{"adapter_scale", DESC(adapter_scale), POINTER, "1.0", 0},
	{"adapter_scale", DESC(adapter_scale), POINTER, "-0.5", 0},
	{"adapter_scale", DESC(adapter_scale), POINTER, NULL, 0},
	{"kv_dtype", DESC(kv_dtype), POINTER, "f16", 0},
	{"quant", DESC(quant), POINTER, "r", 0},
	{"quant", DESC(quant), POINTER, "", 0},
	{"quant", DESC(quant), POINTER, NULL, 0},
	{"layers", DESC(layers), U32, NULL, 37},
	{"layers", DESC(layers), U32, NULL, 0},
	{"kv_heads", DESC(kv_heads), U32, NULL, UINT32_MAX},
	{"head_size", DESC(head_size), U32, NULL, 64},
	{"layout", DESC(layout), POINTER, "lkdt", 0},
	{"layout", DESC(layout), POINTER, NULL, 0},
	{"rope", DESC(rope), POINTER, "theta=1e5", 0},
	{"rope", DESC(rope), POINTER, "theta=1e6 ", 0},
	{"isa", DESC(isa), POINTER, "avx512", 0},
	{"isa", DESC(isa), POINTER, NULL, 0},
	{"generation", DESC(generation), POINTER, generation_2, 0},
	{"generation", DESC(generation), POINTER, NULL, 0},
	{"groups[0].name", GROUP(0, name), POINTER, "fulL", 0},
	{"groups[0].name", GROUP(0, name), POINTER, NULL, 0},
	{"groups[0].block_tokens", GROUP(0, block_tokens), U32, NULL, 32},
	{"groups[0].rule", GROUP(0, rule), U32, NULL, CAIRN_RULE_SNAPSHOT},
	{"groups[0].block_bytes", GROUP(0, block_bytes), U64, NULL, 0},
	{"groups[1].trailing_tokens", GROUP(1, trailing_tokens), U32, NULL, 511},
	{"groups[1].block_bytes", GROUP(1, block_bytes), U64, NULL, 8193},
	{"groups[1]", DESC(ngroups), U32, NULL, 1},
	{"parts[0].name", PART(0, name), POINTER, "rank1", 0},
	{"parts[0].replicated", PART(0, replicated), U32, NULL, 1},
	{"parts[1].optional", PART(1, optional), U32, NULL, 0},
	{"parts[1]", DESC(nparts), U32, NULL, 1},
	{"field lookahead", FIELD(0, value), POINTER, "\0\2", 0},
	{"field lookahead", FIELD(0, length), U64, NULL, 1},
	{"field lookahead", FIELD(0, length), U64, NULL, 0},
	{"field tag:77", FIELD(1, value), POINTER, "lates", 0},
	{"field tag:77", DESC(nfields), U32, NULL, 1},
};
#define CHANGES (sizeof changes / sizeof changes[0])

static void full_change(struct full *full, const struct change *change)
{
	uint8_t *at = (uint8_t *)full + change->offset;
	uint32_t number = (uint32_t)change->number;

	if (change->type == POINTER)
		memcpy(at, &change->pointer, sizeof change->pointer);
	else if (change->type == U32)
		memcpy(at, &number, sizeof number);
	else
		memcpy(at, &change->number, sizeof change->number);
}

static void test_space__changes_its_id_and_is_named_when_any_field_changes(void **state)
{
	(void)state;
	for (size_t i = 0; i < CHANGES; i++) {
		struct full a, b;

		full_fill(&a);
		full_fill(&b);
		assert_same(&a.desc, &b.desc);
		full_change(&b, &changes[i]);
		assert_differs(&a.desc, &b.desc, changes[i].field);
		assert_round_trip(&b.desc);
	}
}

static void test_space__differs_pairwise_when_one_field_each_changes(void **state)
{
	cairn_digest ids[CHANGES];

	(void)state;
	for (size_t i = 0; i < CHANGES; i++) {
		struct full full;

		full_fill(&full);
		full_change(&full, &changes[i]);
		ids[i] = id_of(&full.desc);
		for (size_t j = 0; j < i; j++)
			assert_memory_not_equal(&ids[i], &ids[j], sizeof ids[i]);
	}
}

/* A field that is added to the structs must be added to the table above, or be listed here. */
static void test_space__has_every_field_in_the_table_when_the_structs_grow(void **state)
{
	uint8_t covered[sizeof(struct cairn_space_desc)] = {0};
	static const size_t elsewhere[] = {
		DESC(size), DESC(groups), DESC(parts), DESC(fields), DESC(block_tokens), DESC(block_bytes), /* other tests */
		DESC(cost_a_s), DESC(cost_b_s), /* not part of the identity */
	};

	(void)state;
	static_assert(sizeof(struct cairn_group) == 32 && sizeof(struct cairn_part) == 16, "the table covers them");
	static_assert(sizeof(struct cairn_field) == 24 && offsetof(struct full, desc) == 0, "the table covers it");
	for (size_t i = 0; i < CHANGES; i++)
		if (changes[i].offset < sizeof covered)
			memset(covered + changes[i].offset, 1, changes[i].type == U32 ? 4 : 8);
	for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++)
		memset(covered + elsewhere[i], 1, elsewhere[i] == DESC(block_tokens) ? 4 : 8);
	for (size_t word = 0; word < sizeof covered; word += 8)
		if (!memchr(covered + word, 1, 8))
			fail_msg("the field at offset %zu is not tested", word);
}

/* ---- defaults, absent and empty ------------------------------------------------------------------------------- */

static void test_space__is_the_same_when_defaults_are_written_out(void **state)
{
	struct cairn_group group = {.name = "kv", .block_tokens = 16};
	struct cairn_part part = {.name = "all"};
	struct cairn_field none = {0};
	struct cairn_space_desc desc = small_desc(), other;

	(void)state;
	other = desc;
	other.tenant = "default";
	assert_same(&desc, &other);
	other.scheme = "tokens/1";
	assert_same(&desc, &other);
	other.parts = &part;
	other.nparts = 1;
	assert_same(&desc, &other);
	part.name = NULL;
	assert_same(&desc, &other);
	other.groups = &group;
	other.ngroups = 1;
	other.block_tokens = 0;
	assert_same(&desc, &other);
	group.name = NULL;
	assert_same(&desc, &other);
	other.fields = &none; /* a list of none */
	assert_same(&desc, &other);
	other.cost_a_s = 1e-3;
	other.cost_b_s = 1e-9;
	assert_same(&desc, &other);

	desc.block_bytes = 65536;
	group.block_bytes = 65536;
	assert_same(&desc, &other);
	part.optional = 0;
	part.replicated = 1;
	assert_differs(&desc, &other, "parts[0].replicated");
}

static void test_space__differs_when_a_value_is_empty_instead_of_absent(void **state)
{
	static const size_t strings[] = {
		offsetof(struct cairn_space_desc, model), offsetof(struct cairn_space_desc, quant),
		offsetof(struct cairn_space_desc, layout), offsetof(struct cairn_space_desc, rope),
		offsetof(struct cairn_space_desc, isa),
	};
	static const char *const names[] = {"model", "quant", "layout", "rope", "isa"};
	static const char *const empty = "";
	struct cairn_field field = {"x", NULL, 0};

	(void)state;
	for (size_t i = 0; i < 5; i++) {
		struct cairn_space_desc absent = small_desc(), present = small_desc();

		memcpy((uint8_t *)&present + strings[i], &empty, sizeof empty);
		assert_differs(&absent, &present, names[i]);
		assert_round_trip(&present);
	}
	struct cairn_space_desc absent = small_desc(), present = small_desc();
	present.fields = &field;
	present.nfields = 1;
	assert_differs(&absent, &present, "field x");
	assert_round_trip(&present);
}

static void test_space__hashes_fields_by_name_when_given_in_any_order(void **state)
{
	struct cairn_field fields[4] = {{"b", "1", 1}, {"tag:500", "2", 1}, {"a", "3", 1}, {"tag:60", "4", 1}};
	struct cairn_space_desc desc = small_desc(), other;
	struct cairn_field sorted[4] = {fields[2], fields[0], fields[3], fields[1]};

	(void)state;
	desc.fields = fields;
	desc.nfields = 4;
	other = desc;
	other.fields = sorted;
	assert_same(&desc, &other);
	sorted[0].value = "1"; /* the values change places */
	sorted[1].value = "3";
	cairn_digest id = id_of(&desc), id_other = id_of(&other);
	assert_memory_not_equal(&id, &id_other, sizeof id);
	assert_round_trip(&desc);
}

static void test_space__ignores_where_its_strings_lie_when_hashed(void **state)
{
	struct full full;
	char *copies[6];

	(void)state;
	full_fill(&full);
	cairn_digest id = id_of(&full.desc);
	const char **members[6] = {&full.desc.tenant, &full.desc.model, &full.desc.kv_dtype, &full.desc.layout,
	                           &full.groups[0].name, &full.parts[0].name};
	for (int i = 0; i < 6; i++)
		*members[i] = copies[i] = strdup(*members[i]);
	cairn_digest again = id_of(&full.desc);
	assert_memory_equal(&id, &again, sizeof id);
	for (int i = 0; i < 6; i++)
		free(copies[i]);
}

/* ---- decode --------------------------------------------------------------------------------------------------- */

static void test_space__fills_in_defaults_when_decoded(void **state)
{
	struct cairn_space_desc desc = small_desc();
	struct key_space space;
	struct full full;
	uint8_t tenant[32];

	(void)state;
	assert_int_equal(key_space_from_desc(&desc, &space), 0);
	assert_string_equal(space.desc.tenant, "default");
	assert_string_equal(space.desc.scheme, "tokens/1");
	assert_int_equal(space.desc.ngroups, 1);
	assert_string_equal(space.desc.groups[0].name, "kv");
	assert_int_equal(space.desc.groups[0].block_tokens, 16);
	assert_int_equal(space.desc.nparts, 1);
	assert_string_equal(space.desc.parts[0].name, "all");
	assert_null(space.desc.fields);
	assert_null(space.desc.model);
	assert_int_equal(space.required_parts, 1);
	assert_int_equal(space.kind, KEY_TOKENS);
	key_tenant_digest("default", 7, tenant);
	assert_memory_equal(tenant, space.tenant_digest, 32);
	key_space_done(&space);
	key_space_done(&space); /* harmless */

	full_fill(&full);
	assert_int_equal(key_space_from_desc(&full.desc, &space), 0);
	assert_int_equal(space.required_parts, 1);
	assert_int_equal(space.ngroups, 2);
	assert_memory_not_equal(space.roots[0], space.roots[1], 32);
	assert_string_equal(space.desc.fields[1].name, "tag:77");
	key_space_done(&space);
}

static void assert_undecodable(const uint8_t *canon, size_t length)
{
	struct key_space space;

	assert_int_equal(key_space_decode(canon, length, &space), CAIRN_E_INVAL);
	assert_null(space.canon);
	assert_null(space.strings);
	key_space_done(&space);
}

static void test_space__is_refused_when_its_form_is_cut_or_has_more(void **state)
{
	static uint8_t canon[KEY_CANON_MAX + 1];
	struct full full;

	(void)state;
	full_fill(&full);
	full.desc.nfields = 1;
	long length = key_space_encode(&full.desc, canon, KEY_CANON_MAX);
	assert_true(length > 0);
	for (long cut = 0; cut < length; cut++) {
		struct key_space space;

		/* Cut between two fields it may still be a description, but never the same one. */
		if (key_space_decode(canon, (size_t)cut, &space) == 0) {
			assert_int_equal(space.canon_length, cut);
			key_space_done(&space);
		}
	}
	assert_undecodable(canon, (size_t)length + 1);
	assert_undecodable(canon, KEY_CANON_MAX + 1);
	assert_undecodable(canon, 0);
	assert_undecodable(NULL, 0);
}

/* A flipped bit is refused, or is another space that is written as it was read. */
static void test_space__is_another_or_none_when_a_bit_of_its_form_flips(void **state)
{
	uint8_t canon[2000], again[2000];
	struct full full;
	unsigned refused = 0, other = 0;

	(void)state;
	full_fill(&full);
	long length = key_space_encode(&full.desc, canon, sizeof canon);
	assert_true(length > 0);
	cairn_digest id = id_of(&full.desc);
	for (long bit = 0; bit < length * 8; bit++) {
		struct key_space space;

		canon[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (key_space_decode(canon, (size_t)length, &space) == 0) {
			assert_memory_not_equal(space.id, &id, 32);
			assert_int_equal(key_space_encode(&space.desc, again, sizeof again), length);
			assert_memory_equal(canon, again, length);
			key_space_done(&space);
			other++;
		} else {
			refused++;
		}
		canon[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_true(other > 100 && refused > 100);
}

static size_t put_field(uint8_t *at, uint16_t tag, const void *value, uint32_t length)
{
	memcpy(at, &tag, 2);
	memcpy(at + 2, &length, 4);
	if (length)
		memcpy(at + 6, value, length);
	return 6 + length;
}

static void test_space__is_refused_when_spelled_another_way(void **state)
{
	static const uint64_t zero = 0, one = 1;
	static const uint8_t group[] = {14, 0, 0, 0, 2, 0, 8, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0};
	static const uint8_t group_extra[] = {20, 0, 0, 0, 2, 0, 8, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0};
	static const struct {
		uint16_t tag;
		uint16_t length;
		const void *value;
	} bad[] = {
		{1, 7, "default"}, {2, 8, "tokens/1"}, {1, 0, ""}, {1, 3, "a\0b"}, {4, 31, "123456789012345678901234567890"},
		{9, 8, &zero}, {9, 4, &one}, {9, 8, "\0\0\0\0\1\0\0"}, {15, 8, &one}, {16, 0, ""}, {17, 0, ""},
		{18, 0, ""}, {16, 18, "\16\0\0\0\2\0\11\0\0\0\20\0\0\0\0\0\0\0"}, {16, 24, group_extra}, {17, 4, "\0\0\0\0"},
		{18, 11, "\7\0\0\0\1\0\1\0\0\0x"}, {18, 6, "\2\0\0\0xx"}, {0, 1, "x"},
	};
	uint8_t canon[500];
	struct cairn_space_desc desc = small_desc();

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		size_t length = CANON_HEAD;
		struct key_space space;

		assert_true(key_space_encode(&desc, canon, sizeof canon) > CANON_HEAD);
		if (bad[i].tag < 7)
			length += put_field(canon + length, bad[i].tag, bad[i].value, bad[i].length);
		length += put_field(canon + length, 7, "bf16", 4);
		if (bad[i].tag > 7 && bad[i].tag < 16)
			length += put_field(canon + length, bad[i].tag, bad[i].value, bad[i].length);
		if (bad[i].tag != 16)
			length += put_field(canon + length, 16, group, sizeof group);
		if (bad[i].tag >= 16)
			length += put_field(canon + length, bad[i].tag, bad[i].value, bad[i].length);
		if (key_space_decode(canon, length, &space) != CAIRN_E_INVAL)
			fail_msg("spelling %zu was taken", i);
	}
}

/* Spellings that are as long as the right one. */
static void test_space__is_refused_when_a_scale_or_the_order_of_fields_is_another(void **state)
{
	struct cairn_field fields[2] = {{"a", "1", 1}, {"b", "2", 1}};
	struct cairn_space_desc desc = small_desc();
	uint8_t canon[500];
	struct key_space space;

	(void)state;
	desc.adapter = &adapter_1;
	desc.adapter_scale = "0.5";
	desc.fields = fields;
	desc.nfields = 2;
	size_t length = (size_t)key_space_encode(&desc, canon, sizeof canon);
	assert_int_equal(key_space_decode(canon, length, &space), 0);
	key_space_done(&space);

	uint8_t *scale = memmem(canon, length, "0.5", 3);
	assert_non_null(scale);
	memcpy(scale, ".50", 3);
	assert_undecodable(canon, length);
	memcpy(scale, "+.5", 3);
	assert_undecodable(canon, length);
	memcpy(scale, "1.5", 3);
	assert_int_equal(key_space_decode(canon, length, &space), 0);
	key_space_done(&space);

	uint8_t *first = canon + length - 2 * (4 + 7 + 7) + 4, *second = first + 4 + 7 + 7;
	first[6] = 'b';
	second[6] = 'a';
	assert_undecodable(canon, length);
	second[6] = 'b'; /* twice */
	assert_undecodable(canon, length);
	first[6] = 'A';
	assert_int_equal(key_space_decode(canon, length, &space), 0);
	assert_string_equal(space.desc.fields[0].name, "A");
	key_space_done(&space);
}

static void test_space__is_refused_when_a_tag_comes_twice_or_late(void **state)
{
	static const char part[] = "\12\0\0\0\1\0\4\0\0\0rank";
	uint8_t canon[500];
	struct cairn_space_desc desc = small_desc();
	struct key_space space;

	(void)state;
	size_t length = (size_t)key_space_encode(&desc, canon, sizeof canon);
	length += put_field(canon + length, 17, part, sizeof part - 1);
	assert_int_equal(key_space_decode(canon, length, &space), 0);
	assert_string_equal(space.desc.parts[0].name, "rank");
	key_space_done(&space);
	assert_undecodable(canon, length + put_field(canon + length, 17, part, sizeof part - 1));
	assert_undecodable(canon, length + put_field(canon + length, 3, "model", 5));
}

static void test_space__keeps_and_hashes_tags_when_it_does_not_know_them(void **state)
{
	uint8_t canon[500], again[500];
	struct cairn_space_desc desc = small_desc(), known = small_desc();
	struct key_space space;

	(void)state;
	size_t length = (size_t)key_space_encode(&desc, canon, sizeof canon);
	length += put_field(canon + length, 19, "", 0);
	length += put_field(canon + length, 40000, "xyz", 3);
	assert_int_equal(key_space_decode(canon, length, &space), 0);
	assert_int_equal(space.desc.nfields, 2);
	assert_string_equal(space.desc.fields[0].name, "tag:19");
	assert_string_equal(space.desc.fields[1].name, "tag:40000");
	assert_int_equal(space.desc.fields[1].length, 3);
	assert_int_equal(key_space_encode(&space.desc, again, sizeof again), length);
	assert_memory_equal(canon, again, length);
	cairn_digest id = id_of(&known);
	assert_memory_not_equal(space.id, &id, 32);
	struct cairn_field fields[2] = {space.desc.fields[1], space.desc.fields[0]};
	known.fields = fields;
	known.nfields = 2;
	id = id_of(&known);
	assert_memory_equal(space.id, &id, 32);
	key_space_done(&space);
}

static void test_space__fails_and_leaks_nothing_when_memory_is_short(void **state)
{
	struct key_space space;
	struct full full;
	int rc, failures = 0;

	(void)state;
	full_fill(&full);
	for (uint64_t n = 1;; n++) {
		mem_fail_at(n, 0);
		rc = key_space_from_desc(&full.desc, &space);
		int failed = mem_failed();
		mem_fail_at(0, 0);
		if (!failed)
			break;
		assert_int_equal(rc, CAIRN_E_NOMEM);
		assert_null(space.canon);
		failures++;
	}
	assert_int_equal(rc, 0);
	assert_true(failures >= 3);
	key_space_done(&space);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_space__changes_its_id_and_is_named_when_any_field_changes),
		cmocka_unit_test(test_space__differs_pairwise_when_one_field_each_changes),
		cmocka_unit_test(test_space__has_every_field_in_the_table_when_the_structs_grow),
		cmocka_unit_test(test_space__is_the_same_when_defaults_are_written_out),
		cmocka_unit_test(test_space__differs_when_a_value_is_empty_instead_of_absent),
		cmocka_unit_test(test_space__hashes_fields_by_name_when_given_in_any_order),
		cmocka_unit_test(test_space__ignores_where_its_strings_lie_when_hashed),
		cmocka_unit_test(test_space__fills_in_defaults_when_decoded),
		cmocka_unit_test(test_space__is_refused_when_its_form_is_cut_or_has_more),
		cmocka_unit_test(test_space__is_another_or_none_when_a_bit_of_its_form_flips),
		cmocka_unit_test(test_space__is_refused_when_spelled_another_way),
		cmocka_unit_test(test_space__is_refused_when_a_scale_or_the_order_of_fields_is_another),
		cmocka_unit_test(test_space__is_refused_when_a_tag_comes_twice_or_late),
		cmocka_unit_test(test_space__keeps_and_hashes_tags_when_it_does_not_know_them),
		cmocka_unit_test(test_space__fails_and_leaks_nothing_when_memory_is_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
