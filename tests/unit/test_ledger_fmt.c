/* SPDX-License-Identifier: Apache-2.0 */
/* Pages and records of the ledger (src/fmt/ledger.c): golden file, damage, newer versions, every bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "golden/same.h"

static uint8_t bytes[SAMPLE_FILE_MAX];

static void page_reseal(void)
{
	frame_seal(bytes, FMT_PAGE, frame_seed("CAIRNLED"));
}

static void same_record(const struct ledger_record *a, const struct ledger_record *b)
{
	assert_int_equal(a->type, b->type);
	switch (a->type) {
	case LEDGER_SEGMENT:
		assert_int_equal(a->u.segment.segment, b->u.segment.segment);
		assert_int_equal(a->u.segment.state, b->u.segment.state);
		assert_int_equal(a->u.segment.life, b->u.segment.life);
		assert_int_equal(a->u.segment.salt, b->u.segment.salt);
		assert_int_equal(a->u.segment.start_sequence, b->u.segment.start_sequence);
		assert_memory_equal(a->u.segment.tenant, b->u.segment.tenant, 16);
		break;
	case LEDGER_DROP:
		assert_int_equal(a->u.drop.scope, b->u.drop.scope);
		assert_int_equal(a->u.drop.decision, b->u.drop.decision);
		assert_int_equal(a->u.drop.sequence, b->u.drop.sequence);
		assert_memory_equal(a->u.drop.space, b->u.drop.space, 32);
		assert_memory_equal(a->u.drop.what, b->u.drop.what, 32);
		break;
	case LEDGER_SESSION:
		assert_int_equal(a->u.session.decision, b->u.session.decision);
		assert_memory_equal(a->u.session.id, b->u.session.id, 32);
		assert_memory_equal(a->u.session.tenant, b->u.session.tenant, 32);
		assert_memory_equal(a->u.session.space, b->u.session.space, 32);
		assert_memory_equal(a->u.session.manifest, b->u.session.manifest, 32);
		assert_int_equal(a->u.session.epoch, b->u.session.epoch);
		assert_int_equal(a->u.session.saved_at_s, b->u.session.saved_at_s);
		assert_int_equal(a->u.session.expires_at_s, b->u.session.expires_at_s);
		assert_int_equal(a->u.session.bytes, b->u.session.bytes);
		assert_int_equal(a->u.session.pinned, b->u.session.pinned);
		assert_int_equal(a->u.session.closed, b->u.session.closed);
		break;
	case LEDGER_FORGET:
		assert_int_equal(a->u.forget.decision, b->u.forget.decision);
		assert_memory_equal(a->u.forget.id, b->u.forget.id, 32);
		break;
	case LEDGER_SPACE:
		assert_memory_equal(a->u.space.id, b->u.space.id, 32);
		assert_int_equal(a->u.space.offset, b->u.space.offset);
		assert_int_equal(a->u.space.total, b->u.space.total);
		assert_int_equal(a->u.space.length, b->u.space.length);
		assert_memory_equal(a->u.space.bytes, b->u.space.bytes, a->u.space.length);
		break;
	case LEDGER_QUARANTINE:
		assert_memory_equal(a->u.quarantine.key, b->u.quarantine.key, 32);
		assert_memory_equal(a->u.quarantine.space, b->u.quarantine.space, 32);
		assert_int_equal(a->u.quarantine.part, b->u.quarantine.part);
		assert_int_equal(a->u.quarantine.birth, b->u.quarantine.birth);
		assert_int_equal(a->u.quarantine.sequence, b->u.quarantine.sequence);
		break;
	case LEDGER_MARK:
		assert_int_equal(a->u.mark.next_birth, b->u.mark.next_birth);
		assert_int_equal(a->u.mark.last_decision, b->u.mark.last_decision);
		assert_int_equal(a->u.mark.dropped_through, b->u.mark.dropped_through);
		assert_int_equal(a->u.mark.group_epoch, b->u.mark.group_epoch);
		assert_int_equal(a->u.mark.clean, b->u.mark.clean);
		assert_int_equal(a->u.mark.flushed_through, b->u.mark.flushed_through);
		assert_int_equal(a->u.mark.checkpoint_segment, b->u.mark.checkpoint_segment);
		assert_int_equal(a->u.mark.checkpoint_bytes, b->u.mark.checkpoint_bytes);
		assert_int_equal(a->u.mark.checkpoint_sequence, b->u.mark.checkpoint_sequence);
		break;
	default:
		fail_msg("a record of type %u", a->type);
	}
}

static void test_ledger_fmt__page_decodes_golden(void **state)
{
	static uint8_t records[FMT_PAGE];
	struct ledger_page want = sample_ledger(records), got;
	struct ledger_record record;
	uint32_t at = 0;

	(void)state;
	same_golden("ledger.v1.bin", sample_ledger_file, bytes);
	assert_memory_equal(bytes, "CAIRNLED", 8);
	assert_int_equal(bytes_get32(bytes + 8), 1);
	assert_memory_equal(bytes + 32, want.device_id, 16);
	assert_int_equal(bytes_get64(bytes + 48), 6);
	assert_int_equal(bytes_get64(bytes + 56), 99);
	assert_int_equal(bytes_get32(bytes + 64), 2);
	assert_int_equal(bytes_get32(bytes + 68), want.used);
	assert_int_equal(bytes_get32(bytes + 72), 0x030203);
	/* The first record, a segment's. */
	assert_int_equal(bytes_get16(bytes + 96), 1);
	assert_int_equal(bytes_get16(bytes + 98), 48);
	assert_int_equal(bytes_get32(bytes + 100), 7);
	assert_int_equal(bytes[104], LEDGER_SEALED);
	assert_int_equal(bytes_get64(bytes + 108), 41);
	assert_int_equal(bytes_get64(bytes + 116), SAMPLE_SALT);
	assert_int_equal(bytes_get64(bytes + 124), UINT64_C(0x200000002));
	/* The second, a drop's. */
	assert_int_equal(bytes_get16(bytes + 148), 2);
	assert_int_equal(bytes_get16(bytes + 150), 88);
	assert_int_equal(bytes_get64(bytes + 152), 500);
	assert_int_equal(bytes[168], LEDGER_DROP_SPACE);

	assert_int_equal(ledger_page_open(bytes, &got), FMT_OK);
	assert_int_equal(got.version, 1);
	assert_int_equal(got.flags, want.flags);
	assert_int_equal(got.epoch, want.epoch);
	assert_int_equal(got.sequence, want.sequence);
	assert_int_equal(got.index, want.index);
	assert_int_equal(got.used, want.used);
	assert_memory_equal(got.device_id, want.device_id, 16);
	for (unsigned i = 0; i < SAMPLE_RECORDS; i++) {
		struct ledger_record sample = sample_record(i);

		assert_int_equal(ledger_record_next(bytes + LEDGER_HEAD_BYTES, got.used, &at, &record), 1);
		same_record(&record, &sample);
	}
	assert_int_equal(at, got.used);
	assert_int_equal(ledger_record_next(bytes + LEDGER_HEAD_BYTES, got.used, &at, &record), 0);
	assert_int_equal(at, got.used);
}

static void test_ledger_fmt__page_is_bad_when_any_byte_differs(void **state)
{
	struct ledger_page got;

	(void)state;
	sample_ledger_file(bytes);
	for (unsigned i = 0; i < FMT_PAGE; i++) {
		bytes[i] ^= (uint8_t)(1u << i % 8);
		assert_int_equal(ledger_page_open(bytes, &got), FMT_BAD);
		bytes[i] ^= (uint8_t)(1u << i % 8);
	}
	assert_int_equal(ledger_page_open(bytes, &got), FMT_OK);
}

static void test_ledger_fmt__page_is_newer_when_its_version_is(void **state)
{
	struct ledger_page got;

	(void)state;
	sample_ledger_file(bytes);
	bytes_set32(bytes + 8, FMT_VERSION + 1);
	page_reseal();
	assert_int_equal(ledger_page_open(bytes, &got), FMT_NEWER);
	bytes_set32(bytes + 8, 0);
	page_reseal();
	assert_int_equal(ledger_page_open(bytes, &got), FMT_BAD);
	bytes_set32(bytes + 8, 1);
	bytes_set32(bytes + 20, 4);
	page_reseal();
	assert_int_equal(ledger_page_open(bytes, &got), FMT_NEWER);
	bytes_set32(bytes + 20, 0);
	bytes_set32(bytes + 12, 4);
	bytes_set32(bytes + 72, UINT32_MAX);
	bytes_set32(bytes + 76, 1);
	page_reseal();
	assert_int_equal(ledger_page_open(bytes, &got), FMT_OK);
	assert_int_equal(got.flags, 0xffff03);
}

static void test_ledger_fmt__page_is_bad_when_used_is_too_large(void **state)
{
	struct ledger_page got;

	(void)state;
	sample_ledger_file(bytes);
	bytes_set32(bytes + 68, LEDGER_BODY_BYTES);
	page_reseal();
	assert_int_equal(ledger_page_open(bytes, &got), FMT_OK);
	bytes_set32(bytes + 68, LEDGER_BODY_BYTES + 1);
	page_reseal();
	assert_int_equal(ledger_page_open(bytes, &got), FMT_BAD);
	bytes_set32(bytes + 68, UINT32_MAX);
	page_reseal();
	assert_int_equal(ledger_page_open(bytes, &got), FMT_BAD);
}

static void test_ledger_fmt__page_has_zeros_when_sealed(void **state)
{
	struct ledger_page head = {.version = 1, .used = 10};

	(void)state;
	memset(bytes, 0xee, FMT_PAGE);
	ledger_page_seal(&head, bytes);
	for (unsigned i = LEDGER_HEAD_BYTES; i < FMT_PAGE; i++)
		assert_int_equal(bytes[i], i < LEDGER_HEAD_BYTES + 10 ? 0xee : 0);
}

static void test_ledger_fmt__record_has_no_room_when_page_is_full(void **state)
{
	static uint8_t records[LEDGER_BODY_BYTES + 16];
	struct ledger_record record;
	uint32_t used, next, n;

	(void)state;
	for (unsigned i = 0; i < SAMPLE_RECORDS; i++) {
		record = sample_record(i);
		memset(records, 0, sizeof records);
		for (n = 0, used = 0; (next = ledger_record_add(&record, records, used)); n++)
			used = next;
		assert_true(n > 10 && used <= LEDGER_BODY_BYTES);
		for (unsigned j = LEDGER_BODY_BYTES; j < sizeof records; j++)
			assert_int_equal(records[j], 0);
		uint32_t at = 0;
		while (ledger_record_next(records, used, &at, &record) == 1)
			n--;
		assert_int_equal(n, 0);
	}
	/* The longest piece of a space fills a page. */
	record = sample_record(4);
	record.u.space.bytes = bytes;
	record.u.space.total = 65536;
	record.u.space.length = LEDGER_SPACE_PIECE_MAX;
	record.u.space.offset = 65536 - LEDGER_SPACE_PIECE_MAX;
	assert_int_equal(ledger_record_add(&record, records, 0), LEDGER_BODY_BYTES);
	assert_int_equal(ledger_record_add(&record, records, 1), 0);
}

static void test_ledger_fmt__record_is_bad_when_cut(void **state)
{
	static uint8_t exact[LEDGER_BODY_BYTES];
	struct ledger_record record, untouched;

	(void)state;
	memset(&untouched, 0x5a, sizeof untouched);
	for (unsigned i = 0; i < SAMPLE_RECORDS; i++) {
		struct ledger_record sample = sample_record(i);
		uint32_t used = ledger_record_add(&sample, bytes, 0);

		for (uint32_t cut = 1; cut < used; cut++) {
			uint32_t at = 0;

			/* At the end of the buffer, where a sanitizer sees a read too far. */
			memcpy(exact + sizeof exact - cut, bytes, cut);
			memset(&record, 0x5a, sizeof record);
			assert_int_equal(ledger_record_next(exact + sizeof exact - cut, cut, &at, &record), FMT_BAD);
			assert_int_equal(at, 0);
			assert_memory_equal(&record, &untouched, sizeof record);
		}
		/* A body that says it is shorter than its fields. */
		uint32_t at = 0;
		bytes_set16(bytes + 2, (uint16_t)(i == 4 ? 39 : used - 4 - 1));
		assert_int_equal(ledger_record_next(bytes, used, &at, &record), FMT_BAD);
	}
}

static void test_ledger_fmt__record_is_passed_over_when_unknown_or_longer(void **state)
{
	struct ledger_record record, mark = sample_record(6);
	uint32_t at = 0, used;

	(void)state;
	bytes_set16(bytes, 999);
	bytes_set16(bytes + 2, 5);
	memset(bytes + 4, 0xff, 5);
	used = ledger_record_add(&mark, bytes, 9);
	/* The mark of a newer writer, with a field more. */
	bytes_set16(bytes + 11, (uint16_t)(used - 9 - 4 + 3));
	memset(bytes + used, 0xff, 3);
	used = ledger_record_add(&mark, bytes, used + 3);

	assert_int_equal(ledger_record_next(bytes, used, &at, &record), 1);
	assert_int_equal(record.type, 999);
	assert_int_equal(at, 9);
	assert_int_equal(ledger_record_next(bytes, used, &at, &record), 1);
	same_record(&record, &mark);
	assert_int_equal(ledger_record_next(bytes, used, &at, &record), 1);
	same_record(&record, &mark);
	assert_int_equal(ledger_record_next(bytes, used, &at, &record), 0);
}

static void test_ledger_fmt__record_is_bad_when_out_of_bounds(void **state)
{
	static const struct {
		const char *what;
		unsigned record; /* sample */
		uint32_t offset, width;
		uint64_t value;
		int result;
	} changes[] = {
		{"type 0", 0, 0, 2, 0, FMT_BAD},
		{"the last state", 0, 8, 1, LEDGER_CHECKPOINT, 1},
		{"an unknown state", 0, 8, 1, LEDGER_CHECKPOINT + 1, FMT_BAD},
		{"reserved bytes", 0, 9, 1, 1, 1},
		{"no scope", 1, 20, 1, 0, FMT_BAD},
		{"the last scope", 1, 20, 1, LEDGER_DROP_TENANT, 1},
		{"an unknown scope", 1, 20, 1, LEDGER_DROP_TENANT + 1, FMT_BAD},
		{"a piece behind its space", 4, 36, 4, 51, FMT_BAD},
		{"a piece at the end of numbers", 4, 36, 4, UINT32_MAX, FMT_BAD},
		{"a space longer than any", 4, 40, 4, 65537, FMT_BAD},
		{"the longest space", 4, 40, 4, 65536, 1},
		{"a space of no bytes", 4, 40, 4, 0, FMT_BAD},
		{"a piece of no bytes", 4, 2, 2, 40, FMT_BAD},
		{"part 64", 5, 84, 2, 64, FMT_BAD},
	};
	struct ledger_record record;

	(void)state;
	for (unsigned i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		struct ledger_record sample = sample_record(changes[i].record);
		uint32_t used = ledger_record_add(&sample, bytes, 0), at = 0;

		memcpy(bytes + changes[i].offset, &changes[i].value, changes[i].width);
		if (ledger_record_next(bytes, used, &at, &record) != changes[i].result)
			fail_msg("%s", changes[i].what);
	}
}

static void test_ledger_fmt__flags_are_0_or_1_when_decoded(void **state)
{
	struct ledger_record session = sample_record(2), mark = sample_record(6), record;
	uint32_t used, at = 0;

	(void)state;
	session.u.session.pinned = 0;
	session.u.session.closed = 200;
	mark.u.mark.clean = 3;
	used = ledger_record_add(&session, bytes, 0);
	assert_int_equal(bytes[used - 7], 1);
	bytes[used - 7] = 0x80;
	used = ledger_record_add(&mark, bytes, used);
	assert_int_equal(ledger_record_next(bytes, used, &at, &record), 1);
	assert_int_equal(record.u.session.pinned, 0);
	assert_int_equal(record.u.session.closed, 1);
	assert_int_equal(ledger_record_next(bytes, used, &at, &record), 1);
	assert_int_equal(record.u.mark.clean, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ledger_fmt__page_decodes_golden),
		cmocka_unit_test(test_ledger_fmt__page_is_bad_when_any_byte_differs),
		cmocka_unit_test(test_ledger_fmt__page_is_newer_when_its_version_is),
		cmocka_unit_test(test_ledger_fmt__page_is_bad_when_used_is_too_large),
		cmocka_unit_test(test_ledger_fmt__page_has_zeros_when_sealed),
		cmocka_unit_test(test_ledger_fmt__record_has_no_room_when_page_is_full),
		cmocka_unit_test(test_ledger_fmt__record_is_bad_when_cut),
		cmocka_unit_test(test_ledger_fmt__record_is_passed_over_when_unknown_or_longer),
		cmocka_unit_test(test_ledger_fmt__record_is_bad_when_out_of_bounds),
		cmocka_unit_test(test_ledger_fmt__flags_are_0_or_1_when_decoded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
