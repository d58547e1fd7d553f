/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages and records of a device's ledger: bytes <-> structs. docs/FORMAT.md draws them.
 * Threads: any; pure. Memory: the caller's; decoded space descriptions point into the page.
 * Invariant: a record of a known type is read whole or not at all: a body shorter than this version's fields is damage,
 * a longer one is a newer writer's, and its rest is passed over.
 */
#include "fmt/ledger.h"

#include <assert.h>

#include "base/bytes.h"
#include "base/check.h"
#include "fmt/frame.h"
#include "fmt/key.h"

static const char ledger_magic[8] = {'C', 'A', 'I', 'R', 'N', 'L', 'E', 'D'};

enum {
	PAGE_DEVICE_ID = 32,
	PAGE_EPOCH = 48,
	PAGE_SEQUENCE = 56,
	PAGE_INDEX = 64,
	PAGE_USED = 68,
	PAGE_FLAGS = 72,
	PAGE_RESERVED = 76,

	PAGE_FLAGS_KNOWN = LEDGER_PAGE_SNAPSHOT | LEDGER_PAGE_SNAPSHOT_END | LEDGER_PAGE_POSITION | LEDGER_PAGE_COUNT,
};
static_assert(PAGE_RESERVED <= LEDGER_HEAD_BYTES, "ledger head");

void ledger_page_seal(const struct ledger_page *head, uint8_t page[FMT_PAGE])
{
	check(head->used <= LEDGER_BODY_BYTES && !(head->flags & ~(uint32_t)PAGE_FLAGS_KNOWN));
	memset(page, 0, LEDGER_HEAD_BYTES);
	memset(page + LEDGER_HEAD_BYTES + head->used, 0, LEDGER_BODY_BYTES - head->used);
	frame_start(page, ledger_magic, head->version, NULL);
	memcpy(page + PAGE_DEVICE_ID, head->device_id, 16);
	bytes_set64(page + PAGE_EPOCH, head->epoch);
	bytes_set64(page + PAGE_SEQUENCE, head->sequence);
	bytes_set32(page + PAGE_INDEX, head->index);
	bytes_set32(page + PAGE_USED, head->used);
	bytes_set32(page + PAGE_FLAGS, head->flags);
	frame_seal(page, FMT_PAGE, frame_seed(ledger_magic));
}

int ledger_page_open(const uint8_t page[FMT_PAGE], struct ledger_page *ret_head)
{
	struct ledger_page head = {0};
	int result = frame_open(page, FMT_PAGE, ledger_magic, frame_seed(ledger_magic), &head.version, NULL);

	if (result != FMT_OK)
		return result;
	memcpy(head.device_id, page + PAGE_DEVICE_ID, 16);
	head.epoch = bytes_get64(page + PAGE_EPOCH);
	head.sequence = bytes_get64(page + PAGE_SEQUENCE);
	head.index = bytes_get32(page + PAGE_INDEX);
	head.used = bytes_get32(page + PAGE_USED);
	head.flags = bytes_get32(page + PAGE_FLAGS) & PAGE_FLAGS_KNOWN;
	if (head.used > LEDGER_BODY_BYTES)
		return FMT_BAD;
	*ret_head = head;
	return FMT_OK;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

/* Fixed bytes of each body in version 1; every body is read and written in the order that FORMAT.md draws. */
enum {
	RECORD_HEAD_BYTES = 4,
	SEGMENT_BYTES = 48,
	DROP_BYTES = 88,
	SESSION_BYTES = 176,
	FORGET_BYTES = 40,
	SPACE_BYTES = 40,
	QUARANTINE_BYTES = 88,
	MARK_BYTES = 64,
};
static_assert(LEDGER_SPACE_PIECE_MAX == LEDGER_BODY_BYTES - RECORD_HEAD_BYTES - SPACE_BYTES, "piece of a space");

static uint32_t ledger_body_bytes(uint32_t type)
{
	switch (type) {
	case LEDGER_SEGMENT:
		return SEGMENT_BYTES;
	case LEDGER_DROP:
		return DROP_BYTES;
	case LEDGER_SESSION:
		return SESSION_BYTES;
	case LEDGER_FORGET:
		return FORGET_BYTES;
	case LEDGER_SPACE:
		return SPACE_BYTES;
	case LEDGER_QUARANTINE:
		return QUARANTINE_BYTES;
	case LEDGER_MARK:
		return MARK_BYTES;
	default:
		return 0;
	}
}

/* Whether the numbers of a record are ones that this version knows. */
static int ledger_record_fits(const struct ledger_record *record)
{
	switch (record->type) {
	case LEDGER_SEGMENT:
		return record->u.segment.state <= LEDGER_CHECKPOINT;
	case LEDGER_DROP:
		return record->u.drop.scope >= LEDGER_DROP_KEY && record->u.drop.scope <= LEDGER_DROP_TENANT;
	case LEDGER_SPACE:
		return record->u.space.length > 0 && record->u.space.length <= LEDGER_SPACE_PIECE_MAX &&
		       record->u.space.total <= KEY_CANON_MAX && record->u.space.offset < record->u.space.total &&
		       record->u.space.length <= record->u.space.total - record->u.space.offset;
	case LEDGER_QUARANTINE:
		return record->u.quarantine.part < FMT_PARTS_MAX;
	default:
		return 1;
	}
}

static void ledger_zeros_add(struct bytes_writer *writer, size_t length)
{
	static const uint8_t zeros[8];

	bytes_add(writer, zeros, length);
}

static void ledger_body_add(const struct ledger_record *record, struct bytes_writer *w)
{
	switch (record->type) {
	case LEDGER_SEGMENT:
		bytes_add32(w, record->u.segment.segment);
		bytes_add8(w, record->u.segment.state);
		ledger_zeros_add(w, 3);
		bytes_add64(w, record->u.segment.life);
		bytes_add64(w, record->u.segment.salt);
		bytes_add64(w, record->u.segment.start_sequence);
		bytes_add(w, record->u.segment.tenant, 16);
		break;
	case LEDGER_DROP:
		bytes_add64(w, record->u.drop.decision);
		bytes_add64(w, record->u.drop.sequence);
		bytes_add8(w, record->u.drop.scope);
		ledger_zeros_add(w, 7);
		bytes_add(w, record->u.drop.space, 32);
		bytes_add(w, record->u.drop.what, 32);
		break;
	case LEDGER_SESSION:
		bytes_add64(w, record->u.session.decision);
		bytes_add64(w, record->u.session.epoch);
		bytes_add64(w, record->u.session.saved_at_s);
		bytes_add64(w, record->u.session.expires_at_s);
		bytes_add64(w, record->u.session.bytes);
		bytes_add(w, record->u.session.id, 32);
		bytes_add(w, record->u.session.tenant, 32);
		bytes_add(w, record->u.session.space, 32);
		bytes_add(w, record->u.session.manifest, 32);
		bytes_add8(w, record->u.session.pinned != 0);
		bytes_add8(w, record->u.session.closed != 0);
		bytes_add16(w, (uint16_t)(record->u.session.manifest_birth >> 32));
		bytes_add32(w, (uint32_t)record->u.session.manifest_birth);
		break;
	case LEDGER_FORGET:
		bytes_add64(w, record->u.forget.decision);
		bytes_add(w, record->u.forget.id, 32);
		break;
	case LEDGER_SPACE:
		bytes_add(w, record->u.space.id, 32);
		bytes_add32(w, record->u.space.offset);
		bytes_add32(w, record->u.space.total);
		bytes_add(w, record->u.space.bytes, record->u.space.length);
		break;
	case LEDGER_QUARANTINE:
		bytes_add(w, record->u.quarantine.key, 32);
		bytes_add(w, record->u.quarantine.space, 32);
		bytes_add64(w, record->u.quarantine.birth);
		bytes_add64(w, record->u.quarantine.sequence);
		bytes_add16(w, record->u.quarantine.part);
		ledger_zeros_add(w, 6);
		break;
	case LEDGER_MARK:
		bytes_add64(w, record->u.mark.next_birth);
		bytes_add64(w, record->u.mark.last_decision);
		bytes_add64(w, record->u.mark.dropped_through);
		bytes_add64(w, record->u.mark.group_epoch);
		bytes_add64(w, record->u.mark.flushed_through);
		bytes_add64(w, record->u.mark.checkpoint_sequence);
		bytes_add32(w, record->u.mark.checkpoint_segment);
		bytes_add32(w, record->u.mark.checkpoint_bytes);
		bytes_add8(w, record->u.mark.clean != 0);
		ledger_zeros_add(w, 7);
		break;
	}
}

uint32_t ledger_record_add(const struct ledger_record *record, uint8_t *records, uint32_t used)
{
	uint32_t length = ledger_body_bytes(record->type);

	check(used <= LEDGER_BODY_BYTES && length && ledger_record_fits(record));
	if (record->type == LEDGER_SPACE)
		length += record->u.space.length;
	if (LEDGER_BODY_BYTES - used < RECORD_HEAD_BYTES + length)
		return 0;

	struct bytes_writer writer = bytes_writer_of(records + used, RECORD_HEAD_BYTES + length);
	bytes_add16(&writer, record->type);
	bytes_add16(&writer, (uint16_t)length);
	ledger_body_add(record, &writer);
	check(!writer.failed && writer.used == RECORD_HEAD_BYTES + length);
	return used + (uint32_t)writer.used;
}

/* For a body whose length has been checked, so that every take succeeds. */
static void ledger_bytes_take(struct bytes_reader *reader, void *to, size_t length)
{
	const void *from = bytes_take(reader, length);

	check(from);
	memcpy(to, from, length);
}

static void ledger_body_take(struct bytes_reader *r, uint32_t length, struct ledger_record *record)
{
	switch (record->type) {
	case LEDGER_SEGMENT:
		record->u.segment.segment = bytes_take32(r);
		record->u.segment.state = bytes_take8(r);
		bytes_take(r, 3);
		record->u.segment.life = bytes_take64(r);
		record->u.segment.salt = bytes_take64(r);
		record->u.segment.start_sequence = bytes_take64(r);
		ledger_bytes_take(r, record->u.segment.tenant, 16);
		break;
	case LEDGER_DROP:
		record->u.drop.decision = bytes_take64(r);
		record->u.drop.sequence = bytes_take64(r);
		record->u.drop.scope = bytes_take8(r);
		bytes_take(r, 7);
		ledger_bytes_take(r, record->u.drop.space, 32);
		ledger_bytes_take(r, record->u.drop.what, 32);
		break;
	case LEDGER_SESSION:
		record->u.session.decision = bytes_take64(r);
		record->u.session.epoch = bytes_take64(r);
		record->u.session.saved_at_s = bytes_take64(r);
		record->u.session.expires_at_s = bytes_take64(r);
		record->u.session.bytes = bytes_take64(r);
		ledger_bytes_take(r, record->u.session.id, 32);
		ledger_bytes_take(r, record->u.session.tenant, 32);
		ledger_bytes_take(r, record->u.session.space, 32);
		ledger_bytes_take(r, record->u.session.manifest, 32);
		record->u.session.pinned = bytes_take8(r) != 0;
		record->u.session.closed = bytes_take8(r) != 0;
		record->u.session.manifest_birth = (uint64_t)bytes_take16(r) << 32;
		record->u.session.manifest_birth |= bytes_take32(r);
		break;
	case LEDGER_FORGET:
		record->u.forget.decision = bytes_take64(r);
		ledger_bytes_take(r, record->u.forget.id, 32);
		break;
	case LEDGER_SPACE:
		ledger_bytes_take(r, record->u.space.id, 32);
		record->u.space.offset = bytes_take32(r);
		record->u.space.total = bytes_take32(r);
		record->u.space.length = (uint16_t)(length - SPACE_BYTES);
		record->u.space.bytes = bytes_take(r, record->u.space.length);
		break;
	case LEDGER_QUARANTINE:
		ledger_bytes_take(r, record->u.quarantine.key, 32);
		ledger_bytes_take(r, record->u.quarantine.space, 32);
		record->u.quarantine.birth = bytes_take64(r);
		record->u.quarantine.sequence = bytes_take64(r);
		record->u.quarantine.part = bytes_take16(r);
		break;
	case LEDGER_MARK:
		record->u.mark.next_birth = bytes_take64(r);
		record->u.mark.last_decision = bytes_take64(r);
		record->u.mark.dropped_through = bytes_take64(r);
		record->u.mark.group_epoch = bytes_take64(r);
		record->u.mark.flushed_through = bytes_take64(r);
		record->u.mark.checkpoint_sequence = bytes_take64(r);
		record->u.mark.checkpoint_segment = bytes_take32(r);
		record->u.mark.checkpoint_bytes = bytes_take32(r);
		record->u.mark.clean = bytes_take8(r) != 0;
		break;
	}
}

int ledger_record_next(const uint8_t *records, uint32_t used, uint32_t *at, struct ledger_record *ret_record)
{
	struct ledger_record record;

	check(*at <= used && used <= LEDGER_BODY_BYTES);
	if (*at == used)
		return 0;

	struct bytes_reader head = bytes_reader_of(records + *at, used - *at);
	memset(&record, 0, sizeof record);
	record.type = bytes_take16(&head);
	uint32_t length = bytes_take16(&head);
	const void *body = bytes_take(&head, length);
	if (!body || !record.type || length < ledger_body_bytes(record.type))
		return FMT_BAD;

	struct bytes_reader reader = bytes_reader_of(body, length);
	ledger_body_take(&reader, length, &record);
	if (!ledger_record_fits(&record))
		return FMT_BAD;
	*at += RECORD_HEAD_BYTES + length;
	*ret_record = record;
	return 1;
}
