/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptions of spaces: which are allowed, and which of them mean different things (the field cases about identity).
 * One thread; descriptions live on the stack.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/space_lib.h"

/* ---- field cases ---------------------------------------------------------------------------------------------- */

static void test_space_check__differs_when_the_adapter_does(void **state)
{
	struct cairn_space_desc none = small_desc(), a = small_desc(), b = small_desc();

	(void)state;
	a.adapter = &adapter_1;
	b.adapter = &adapter_2;
	assert_differs(&none, &a, "adapter");
	assert_differs(&none, &b, "adapter");
	assert_differs(&a, &b, "adapter");
}

static void test_space_check__differs_when_an_adapter_keeps_its_name_but_not_its_digest(void **state)
{
	struct cairn_field name = {"adapter_name", "support-bot", 11};
	struct cairn_space_desc a = small_desc(), b;

	(void)state;
	a.fields = &name;
	a.nfields = 1;
	b = a;
	a.adapter = &adapter_1;
	b.adapter = &adapter_2;
	assert_differs(&a, &b, "adapter");
}

static void test_space_check__differs_when_the_scale_does_and_not_when_only_its_spelling_does(void **state)
{
	static const char *const same[][6] = {
		{"0.5", "0.50", ".5", "+0.5", "00.500", "000.5"}, {"1", "1.", "1.0", "01", "+1", "1.000"},
		{"0", "-0", "0.0", ".0", "-0.00", "+0."},         {"-2.25", "-02.25", "-2.250", "-2.2500", "-002.25", "-2.25"},
		{"10", "10.0", "010", "+10", "10.", "0010.00"},   {"0.05", ".05", "00.050", "+.05", "0.0500", "0.05"},
	};

	(void)state;
	for (size_t i = 0; i < 6; i++) {
		for (size_t j = 0; j < 36; j++) {
			struct cairn_space_desc a = small_desc(), b = small_desc();

			a.adapter = b.adapter = &adapter_1;
			a.adapter_scale = same[i][0];
			b.adapter_scale = same[j / 6][j % 6];
			if (j / 6 == i)
				assert_same(&a, &b);
			else
				assert_differs(&a, &b, "adapter_scale");
		}
	}
}

static void test_space_check__is_refused_when_the_scale_is_not_decimal(void **state)
{
	static const char *const bad[] = {"", ".", "-", "+", "-.", "1e-1", "0x1", "nan", "inf", " 1", "1 ", "1,5", "1.2.3",
		"--1", "+-1", "1-", "0.5f", "\xd9\xa1", "0.00000000000000000000000000000000000000000000000000000000000000001"};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct cairn_space_desc desc = small_desc();

		desc.adapter = &adapter_1;
		desc.adapter_scale = bad[i];
		assert_refused(&desc, "adapter_scale");
	}
	struct cairn_space_desc desc = small_desc();
	desc.adapter_scale = "1";
	assert_refused(&desc, "adapter_scale");
}

static void test_space_check__differs_when_types_of_equal_size_do(void **state)
{
	static const char *const types[] = {"bf16", "f16", "fp8_e4m3", "fp8_e5m2", "int8"};

	(void)state;
	for (size_t i = 0; i < 5; i++) {
		for (size_t j = 0; j < i; j++) {
			struct cairn_space_desc a = small_desc(), b = small_desc();

			a.block_bytes = b.block_bytes = 1 << 20;
			a.kv_dtype = types[i];
			b.kv_dtype = types[j];
			assert_differs(&a, &b, "kv_dtype");
		}
	}
}

static void test_space_check__is_refused_when_the_dtype_is_missing(void **state)
{
	static const char *const schemes[] = {NULL, "tokens/1", "sglang/1", "lmcache/blake3",
		"vllm/sha256_cbor/0123456789abcdef0123456789abcdef"};

	(void)state;
	for (size_t i = 0; i < 5; i++) {
		struct cairn_space_desc desc = small_desc();

		desc.scheme = schemes[i];
		id_of(&desc);
		desc.kv_dtype = NULL;
		assert_refused(&desc, "kv_dtype");
		desc.kv_dtype = "";
		assert_refused(&desc, "kv_dtype");
	}
}

static void test_space_check__differs_when_the_weights_do_under_one_model_name(void **state)
{
	static const cairn_digest zero = {{0}};
	struct cairn_space_desc a = small_desc(), b, unknown;

	(void)state;
	a.model = "the-same-name";
	b = unknown = a;
	b.weights = &weights_2;
	unknown.weights = NULL;
	assert_differs(&a, &b, "weights");
	assert_differs(&a, &unknown, "weights");
	assert_round_trip(&unknown);
	a.weights = &zero;
	assert_refused(&a, "weights");
}

static void test_space_check__differs_when_the_generation_does(void **state)
{
	static const uint8_t zero[16] = {0};
	struct cairn_space_desc none = small_desc(), first = small_desc(), second = small_desc();

	(void)state;
	first.generation = generation_1;
	second.generation = generation_2;
	assert_differs(&none, &first, "generation");
	assert_differs(&first, &second, "generation");
	none.generation = zero;
	assert_refused(&none, "generation");
}

static void test_space_check__differs_when_a_parallel_axis_does(void **state)
{
	struct cairn_part tensor[] = {{"tp0", 0, 0}, {"tp1", 0, 0}, {"tp2", 0, 0}, {"tp3", 0, 0}};
	struct cairn_part context[] = {{"tp0cp0", 0, 0}, {"tp0cp1", 0, 0}, {"tp1cp0", 0, 0}, {"tp1cp1", 0, 0}};
	struct cairn_space_desc four = small_desc(), two, mixed;

	(void)state;
	four.parts = tensor;
	four.nparts = 4;
	two = mixed = four;
	two.nparts = 2;
	mixed.parts = context;
	cairn_digest id_four = id_of(&four), id_two = id_of(&two), id_mixed = id_of(&mixed);
	assert_memory_not_equal(&id_four, &id_two, sizeof id_four);
	assert_memory_not_equal(&id_four, &id_mixed, sizeof id_four);
}

/* ---- refusals ------------------------------------------------------------------------------------------------- */

static void test_space_check__is_refused_when_its_size_is_wrong(void **state)
{
	struct {
		struct cairn_space_desc desc;
		uint64_t later;
	} newer = {.desc = small_desc()};
	struct cairn_space_desc desc = small_desc();

	(void)state;
	newer.desc.size = sizeof newer;
	assert_same(&desc, &newer.desc); /* nothing that we do not know is set */
	newer.later = 1;
	assert_refused(&newer.desc, "size");
	desc.size = 0;
	assert_refused(&desc, "size");
	desc.size = sizeof desc - 1;
	assert_refused(&desc, "size");
	desc.size = SIZE_MAX;
	assert_refused(&desc, "size");
	assert_refused(NULL, "NULL");
}

static void test_space_check__is_refused_when_the_scheme_is_unknown(void **state)
{
	static const char *const bad[] = {"", "tokens", "tokens/2", "tokens/1/", "TOKENS/1", "vllm", "vllm/", "vllm/sha256",
		"vllm/sha256/", "vllm/sha256/abc", "vllm//0123456789abcdef0123456789abcdef", "file/2",
		"vllm/sha256/0123456789ABCDEF0123456789ABCDEF", "vllm/sha256/0123456789abcdef0123456789abcdef0",
		"vllm/a/b/0123456789abcdef0123456789abcdef", "vllm/sha256/0123456789abcdef0123456789abcdef/", "sglang/2",
		"lmcache", "lmcache/", "lmcache//x", "lmcache/x/", "lmcache/a b", " tokens/1"};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct cairn_space_desc desc = small_desc();

		desc.scheme = bad[i];
		assert_refused(&desc, "scheme");
	}
}

static void test_space_check__is_refused_when_a_string_is_too_long_or_not_utf8(void **state)
{
	static const char *const bad[] = {"\x80", "a\xc3", "\xc0\xaf", "\xe0\x9f\x80", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
		"\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xe2\x82", "\xe2\x28\xa1"};
	static const char *const good[] = {"\x7f", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
		"\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
	char text[KEY_STRING_MAX + 2];
	struct cairn_space_desc desc = small_desc();

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		desc.model = bad[i];
		assert_refused(&desc, "model");
	}
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		desc.model = good[i];
		assert_round_trip(&desc);
	}
	memset(text, 'x', sizeof text);
	text[KEY_STRING_MAX + 1] = '\0';
	desc.model = text;
	assert_refused(&desc, "model");
	text[KEY_STRING_MAX] = '\0';
	assert_round_trip(&desc);
	desc.tenant = text;
	assert_refused(&desc, "tenant");
	text[KEY_NAME_MAX] = '\0';
	assert_round_trip(&desc);
	desc.tenant = "";
	assert_refused(&desc, "tenant");
}

static void test_space_check__is_refused_when_a_group_is_wrong(void **state)
{
	struct cairn_group groups[17];
	struct cairn_space_desc desc = small_desc();
	char names[17][8];

	(void)state;
	desc.block_tokens = 0;
	assert_refused(&desc, "block_tokens");
	desc.block_tokens = KEY_BLOCK_TOKENS_MAX + 1;
	assert_refused(&desc, "block_tokens");
	desc.block_tokens = KEY_BLOCK_TOKENS_MAX;
	assert_round_trip(&desc);
	desc.block_bytes = CAIRN_PART_MAX_BYTES + 1ull;
	assert_refused(&desc, "block_bytes");
	desc = small_desc();
	desc.ngroups = 1;
	assert_refused(&desc, "groups");
	for (uint32_t i = 0; i < 17; i++) {
		snprintf(names[i], sizeof names[i], "g%u", i);
		groups[i] = (struct cairn_group){.name = names[i], .block_tokens = i + 1};
	}
	desc.groups = groups;
	assert_refused(&desc, "block_tokens"); /* both ways at once */
	desc.block_tokens = 0;
	desc.ngroups = 17;
	assert_refused(&desc, "ngroups");
	desc.ngroups = 16;
	assert_round_trip(&desc);
	groups[3].trailing_tokens = 5;
	assert_refused(&desc, "groups[3]");
	groups[3].rule = CAIRN_RULE_TRAILING;
	assert_round_trip(&desc);
	groups[3].trailing_tokens = 0;
	assert_refused(&desc, "groups[3]");
	groups[3].rule = 3;
	assert_refused(&desc, "rule");
	groups[3].rule = 0;
	groups[7].name = "g2";
	assert_refused(&desc, "groups[7].name");
	groups[7].name = "";
	assert_refused(&desc, "groups[7].name");
	groups[7].name = NULL;
	groups[9].block_tokens = 0;
	assert_refused(&desc, "groups[9]");
}

static void test_space_check__is_refused_when_a_part_is_wrong(void **state)
{
	struct cairn_part parts[65];
	struct cairn_space_desc desc = small_desc();
	char names[65][8];

	(void)state;
	desc.nparts = 1;
	assert_refused(&desc, "parts");
	for (uint32_t i = 0; i < 65; i++) {
		snprintf(names[i], sizeof names[i], "p%u", i);
		parts[i] = (struct cairn_part){.name = names[i]};
	}
	desc.parts = parts;
	desc.nparts = 65;
	assert_refused(&desc, "nparts");
	desc.nparts = 64;
	assert_round_trip(&desc);
	parts[63].replicated = 2;
	assert_refused(&desc, "parts[63]");
	parts[63].replicated = 0;
	parts[63].name = "p0";
	assert_refused(&desc, "parts[63].name");
	desc.nparts = 2;
	parts[0].optional = 1;
	parts[1].optional = 1;
	assert_refused(&desc, "optional");
}

static void test_space_check__is_refused_when_a_field_is_wrong(void **state)
{
	static const char *const bad[] = {"", "tag:", "tag:0", "tag:1", "tag:18", "tag:65536", "tag:019", "tag:19 ",
		"tag:x", "tag:99999999999999999999", "tag:-20", "\xff"};
	static uint8_t large[KEY_CANON_MAX];
	struct cairn_field fields[65];
	struct cairn_space_desc desc = small_desc();
	char names[65][8];

	(void)state;
	desc.nfields = 1;
	assert_refused(&desc, "fields");
	for (uint32_t i = 0; i < 65; i++) {
		snprintf(names[i], sizeof names[i], "f%u", i);
		fields[i] = (struct cairn_field){names[i], "v", 1};
	}
	desc.fields = fields;
	desc.nfields = 65;
	assert_refused(&desc, "nfields");
	desc.nfields = 64;
	assert_round_trip(&desc);
	fields[5].name = NULL;
	assert_refused(&desc, "fields[5].name");
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		fields[5].name = bad[i];
		assert_refused(&desc, "fields[5].name");
	}
	fields[5].name = "f9";
	assert_refused(&desc, "fields[9].name");
	fields[5].name = "tag:19";
	fields[6].name = "tag:65535";
	fields[7].name = "tagged";
	assert_round_trip(&desc);
	fields[5].value = NULL;
	assert_refused(&desc, "tag:19");
	fields[5].value = large;
	fields[5].length = KEY_CANON_MAX + 1;
	assert_refused(&desc, "tag:19");
	fields[5].length = KEY_CANON_MAX - 2000;
	assert_round_trip(&desc);
	fields[5].length = KEY_CANON_MAX;
	assert_refused(&desc, "canonical form");
}

static void test_space_check__is_refused_when_a_cost_is_no_number(void **state)
{
	static const double bad[] = {-1e-9, -1, -INFINITY};
	struct cairn_space_desc desc = small_desc();

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		desc.cost_a_s = bad[i];
		assert_refused(&desc, "cost");
	}
	desc.cost_a_s = 0;
	desc.cost_b_s = strtod("nan", NULL);
	assert_refused(&desc, "cost");
}

static void test_space_check__needs_nothing_when_it_holds_files(void **state)
{
	struct cairn_space_desc desc = {.size = sizeof desc, .scheme = "file/1"};
	struct cairn_group group = {.name = "kv"};
	struct key_space space;
	struct full full;

	(void)state;
	assert_round_trip(&desc);
	assert_int_equal(key_space_from_desc(&desc, &space), 0);
	assert_int_equal(space.kind, KEY_FILE);
	assert_int_equal(space.ngroups, 1);
	assert_int_equal(space.canon_length, CANON_HEAD + 6 + 6);
	key_space_done(&space);
	struct cairn_space_desc other = desc;
	other.groups = &group;
	other.ngroups = 1;
	assert_same(&desc, &other);
	group.block_bytes = 4096;
	assert_differs(&desc, &other, "groups[0].block_bytes");
	assert_round_trip(&other);
	full_fill(&full);
	full.desc.scheme = "file/1";
	assert_round_trip(&full.desc);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_space_check__differs_when_the_adapter_does),
		cmocka_unit_test(test_space_check__differs_when_an_adapter_keeps_its_name_but_not_its_digest),
		cmocka_unit_test(test_space_check__differs_when_the_scale_does_and_not_when_only_its_spelling_does),
		cmocka_unit_test(test_space_check__is_refused_when_the_scale_is_not_decimal),
		cmocka_unit_test(test_space_check__differs_when_types_of_equal_size_do),
		cmocka_unit_test(test_space_check__is_refused_when_the_dtype_is_missing),
		cmocka_unit_test(test_space_check__differs_when_the_weights_do_under_one_model_name),
		cmocka_unit_test(test_space_check__differs_when_the_generation_does),
		cmocka_unit_test(test_space_check__differs_when_a_parallel_axis_does),
		cmocka_unit_test(test_space_check__is_refused_when_its_size_is_wrong),
		cmocka_unit_test(test_space_check__is_refused_when_the_scheme_is_unknown),
		cmocka_unit_test(test_space_check__is_refused_when_a_string_is_too_long_or_not_utf8),
		cmocka_unit_test(test_space_check__is_refused_when_a_group_is_wrong),
		cmocka_unit_test(test_space_check__is_refused_when_a_part_is_wrong),
		cmocka_unit_test(test_space_check__is_refused_when_a_field_is_wrong),
		cmocka_unit_test(test_space_check__is_refused_when_a_cost_is_no_number),
		cmocka_unit_test(test_space_check__needs_nothing_when_it_holds_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
