/* SPDX-License-Identifier: Apache-2.0 */
/* fmt/gone.c: what is remembered comes back; what is damaged, short or newer does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "fmt/frame.h"
#include "fmt/gone.h"

static void test_gone__comes_back_when_it_is_whole(void **state)
{
	(void)state;
	struct gone_cell cells[300], *back = calloc(GONE_CELLS_MAX, sizeof(*back));
	for (uint32_t i = 0; i < 300; i++)
		cells[i] = (struct gone_cell){
			.print = i + 1, .when_s = 1700000000u + i, .uses = (uint16_t)(i % 7), .tier = 2, .reason = 2};
	uint8_t *bytes = malloc(gone_size(300));
	gone_encode(cells, 300, 1, bytes);
	uint32_t n = 0;
	assert_int_equal(gone_decode(bytes, gone_size(300), back, &n), FMT_OK);
	assert_int_equal(n, 300);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(back[i].print, cells[i].print);
		assert_int_equal(back[i].when_s, cells[i].when_s);
		assert_int_equal(back[i].uses, cells[i].uses);
	}
	assert_int_equal(gone_decode(bytes, gone_size(300) - 1, back, &n), FMT_BAD);
	for (size_t at = 0; at < gone_size(300); at += 97) { /* every byte counts, the padding too */
		bytes[at] ^= 4;
		assert_int_equal(gone_decode(bytes, gone_size(300), back, &n), FMT_BAD);
		bytes[at] ^= 4;
	}
	bytes_set32(bytes + 8, 2);
	frame_seal(bytes, gone_size(300), frame_seed("CAIRNGON"));
	assert_int_equal(gone_decode(bytes, gone_size(300), back, &n), FMT_NEWER);
	free(bytes);
	free(back);
}

static void test_gone__tells_parts_apart_when_anything_differs(void **state)
{
	(void)state;
	uint8_t space[32] = {1}, prefix[16] = {2};
	uint64_t print = gone_print(space, prefix, 0);
	assert_int_not_equal(print, 0);
	assert_int_not_equal(print, gone_print(space, prefix, 1));
	prefix[15] ^= 1;
	assert_int_not_equal(print, gone_print(space, prefix, 0));
	prefix[15] ^= 1;
	space[31] ^= 1;
	assert_int_not_equal(print, gone_print(space, prefix, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gone__comes_back_when_it_is_whole),
		cmocka_unit_test(test_gone__tells_parts_apart_when_anything_differs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
