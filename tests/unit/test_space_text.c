/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions of spaces as text, and the lines that say in what two of them differ. One thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/space_lib.h"

static void test_space_text__says_all_fields_when_shown(void **state)
{
	struct full full;
	char text[2000];
	size_t length;

	(void)state;
	full_fill(&full);
	full.desc.model = "a|\"b\\\n";
	assert_int_equal(cairn_space_desc_text(&full.desc, text, sizeof text, &length), 0);
	assert_int_equal(length, strlen(text));
	assert_string_equal(text,
		"tenant = acme\nscheme = tokens/1\nmodel = \"a|\\\"b\\\\\\x0a\"\n"
		"weights = 1100000000000000000000000000000000000000000000000000000000000000\n"
		"adapter = a100000000000000000000000000000000000000000000000000000000000000\n"
		"adapter_scale = 0.5\nkv_dtype = bf16\nquant = q\nlayers = 36\nkv_heads = 8\nhead_size = 128\nlayout = lktd\n"
		"rope = theta=1e6\nisa = amx\ngeneration = 01000000000000000000000000000000\n"
		"groups[0] = full, block_tokens 16, rule all, trailing_tokens 0, block_bytes 4096\n"
		"groups[1] = window, block_tokens 32, rule trailing, trailing_tokens 512, block_bytes 8192\n"
		"parts[0] = rank0\nparts[1] = draft, replicated, optional\n"
		"field lookahead = \"\\x00\\x01\"\nfield tag:77 = later\n");
	struct cairn_space_desc desc = small_desc();
	desc.weights = NULL;
	assert_int_equal(cairn_space_desc_text(&desc, text, sizeof text, NULL), 0);
	assert_string_equal(text, "tenant = default\nscheme = tokens/1\nweights = (unknown: everything misses)\n"
		"kv_dtype = bf16\ngroups[0] = kv, block_tokens 16, rule all, trailing_tokens 0, block_bytes 0\n"
		"parts[0] = all\n");
}

static void test_space_text__writes_no_further_when_the_buffer_is_short(void **state)
{
	struct full full, other;
	char text[2000], cut[2000];
	size_t need, length;

	(void)state;
	full_fill(&full);
	full_fill(&other);
	other.desc.model = "n";
	other.desc.rope = NULL;
	assert_int_equal(cairn_space_desc_text(&full.desc, text, sizeof text, &need), 0);
	for (size_t max = 0; max <= need + 1; max++) {
		memset(cut, '#', sizeof cut);
		assert_int_equal(cairn_space_desc_text(&full.desc, max ? cut : NULL, max, &length), 0);
		assert_int_equal(length, need);
		if (max) {
			assert_memory_equal(cut, text, max - 1);
			assert_int_equal(cut[max - 1], 0);
		}
		assert_int_equal(cut[max], '#');
	}
	long all = cairn_explain_desc(&full.desc, &other.desc, text, sizeof text);
	assert_string_equal(text, "model: m | n\nrope: theta=1e6 | (none)\n");
	assert_int_equal(all, strlen(text));
	assert_int_equal(cairn_explain_desc(&full.desc, &other.desc, NULL, 0), all);
	assert_int_equal(cairn_explain_desc(&full.desc, &other.desc, cut, 6), all);
	assert_string_equal(cut, "model");
	assert_int_equal(cairn_explain_desc(&full.desc, NULL, text, sizeof text), CAIRN_E_INVAL);
	assert_int_equal(cairn_explain_desc(&full.desc, &other.desc, NULL, 6), CAIRN_E_INVAL);
	assert_int_equal(cairn_space_desc_text(NULL, text, sizeof text, NULL), CAIRN_E_INVAL);
	assert_int_equal(cairn_space_id(&full.desc, NULL), CAIRN_E_INVAL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_space_text__says_all_fields_when_shown),
		cmocka_unit_test(test_space_text__writes_no_further_when_the_buffer_is_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
