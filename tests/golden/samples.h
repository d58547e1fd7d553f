/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The structs whose bytes the golden files are: made here for make_golden.c, which writes the files, for the unit
 * tests, which read them back, and for make_corpus.c. A released file never changes; new versions get new files.
 * Memory: samples point at each other and at static strings. Threads: one.
 */
#ifndef CAIRN_TESTS_GOLDEN_SAMPLES_H
#define CAIRN_TESTS_GOLDEN_SAMPLES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "fmt/checkpoint.h"
#include "fmt/ident.h"
#include "fmt/ledger.h"
#include "fmt/manifest.h"
#include "fmt/segment.h"

#ifndef CAIRN_GOLDEN_DIR
#ifdef CAIRN_SOURCE_DIR
#define CAIRN_GOLDEN_DIR CAIRN_SOURCE_DIR "/tests/golden"
#else
#define CAIRN_GOLDEN_DIR "tests/golden"
#endif
#endif

#define SAMPLE_SALT UINT64_C(0x5a17c0ffee15600d)
#define SAMPLE_SEGMENT_PAGES 256u
#define SAMPLE_ENTRIES 25u /* more than one page of index */
#define SAMPLE_FILE_MAX (64u << 10)

/* Bytes that differ from one place and one `what` to the next, and are never 0. */
static inline void sample_fill(void *bytes, size_t length, unsigned what)
{
	for (size_t i = 0; i < length; i++)
		((uint8_t *)bytes)[i] = (uint8_t)(1 + (what * 37 + i * 11) % 255);
}

static inline struct fmt_label sample_label(void)
{
	struct fmt_label label = {.version = 1};

	label.bits.compat = 0x80000001u; /* unknown to everybody, and to be ignored */
	sample_fill(label.store_id, 16, 1);
	sample_fill(label.device_id, 16, 2);
	label.device_index = 3;
	label.segment_bytes = 1u << 20;
	label.ledger_bytes = 16 * FMT_PAGE;
	label.ledger_offset = 2 * FMT_PAGE;
	label.segments_offset = 1u << 20;
	return label;
}

/* Entry `i`, its payload in a page of its own or two, from `page` on. */
static inline struct fmt_entry sample_entry(unsigned i, uint32_t page)
{
	struct fmt_entry entry = {0};

	sample_fill(entry.key, 32, 10 + i);
	sample_fill(entry.space, 32, 3);
	if (i)
		sample_fill(entry.parent, 32, 9 + i);
	entry.part = (uint16_t)(i * 5 % FMT_PARTS_MAX);
	entry.group = (uint16_t)(i % FMT_GROUPS_MAX);
	entry.flags = (uint8_t)(i % 8);
	entry.raw_length = i % 2 ? FMT_PAGE + 1 : 1 + i;
	entry.stored_length = entry.raw_length;
	entry.page = page;
	entry.raw_check = UINT64_C(0x0102030405060700) + i;
	sample_fill(entry.stored_check, 16, 60 + i);
	entry.key_id = i == 4 ? 0xdeadbeefu : 0;
	if (i == 4)
		sample_fill(entry.nonce, 12, 5);
	entry.birth = UINT64_C(0x1000000000) + i;
	return entry;
}

/* Fills entries[SAMPLE_ENTRIES] with payloads from `page` on; returns the page behind them. */
static inline uint32_t sample_entries(struct fmt_entry *entries, uint32_t page)
{
	for (unsigned i = 0; i < SAMPLE_ENTRIES; i++) {
		entries[i] = sample_entry(i, page);
		page += 1 + i % 2;
	}
	return page;
}

static inline struct fmt_group sample_group(struct fmt_entry *entries)
{
	struct fmt_group group = {.version = 1};

	group.segment = 7;
	group.life = 41;
	group.sequence = UINT64_C(0x200000003);
	group.flushed_through = UINT64_C(0x200000001);
	group.ledger_sequence = 99;
	group.first_page = 12;
	group.nentries = SAMPLE_ENTRIES;
	group.index_pages = segment_index_pages(SAMPLE_ENTRIES);
	group.total_pages = sample_entries(entries, group.first_page + group.index_pages) - group.first_page;
	sample_fill(group.tenant, 16, 4);
	return group;
}

static inline struct fmt_footer sample_footer(struct fmt_entry *entries)
{
	struct fmt_footer footer = {.version = 1};

	footer.segment = 7;
	footer.life = 41;
	footer.first_sequence = UINT64_C(0x200000002);
	footer.last_sequence = UINT64_C(0x200000003);
	footer.flushed_through = UINT64_C(0x200000002);
	footer.nentries = SAMPLE_ENTRIES;
	footer.used_pages = sample_entries(entries, 14);
	footer.entries_pages = segment_footer_entry_pages(SAMPLE_ENTRIES);
	footer.entries_page = SAMPLE_SEGMENT_PAGES - 1 - footer.entries_pages;
	sample_fill(footer.tenant, 16, 4);
	return footer;
}

#define SAMPLE_RECORDS 7u

/* Record `i` of SAMPLE_RECORDS: one of each type, in the order of the types. */
static inline struct ledger_record sample_record(unsigned i)
{
	static uint8_t canon[100];
	struct ledger_record record;

	memset(&record, 0, sizeof record);
	record.type = (uint16_t)(LEDGER_SEGMENT + i);
	switch (record.type) {
	case LEDGER_SEGMENT:
		record.u.segment.segment = 7;
		record.u.segment.state = LEDGER_SEALED;
		record.u.segment.life = 41;
		record.u.segment.salt = SAMPLE_SALT;
		record.u.segment.start_sequence = UINT64_C(0x200000002);
		sample_fill(record.u.segment.tenant, 16, 4);
		break;
	case LEDGER_DROP:
		record.u.drop.scope = LEDGER_DROP_SPACE;
		record.u.drop.decision = 500;
		record.u.drop.sequence = UINT64_C(0x200000003);
		sample_fill(record.u.drop.space, 32, 3);
		sample_fill(record.u.drop.what, 32, 20);
		break;
	case LEDGER_SESSION:
		record.u.session.decision = 501;
		sample_fill(record.u.session.id, 32, 21);
		sample_fill(record.u.session.tenant, 32, 22);
		sample_fill(record.u.session.space, 32, 3);
		sample_fill(record.u.session.manifest, 32, 23);
		record.u.session.epoch = 2;
		record.u.session.saved_at_s = 1800000000;
		record.u.session.expires_at_s = 1800003600;
		record.u.session.bytes = UINT64_C(0x123456789a);
		record.u.session.pinned = 1;
		break;
	case LEDGER_FORGET:
		record.u.forget.decision = 502;
		sample_fill(record.u.forget.id, 32, 24);
		break;
	case LEDGER_SPACE:
		sample_fill(canon, sizeof canon, 25);
		sample_fill(record.u.space.id, 32, 3);
		record.u.space.offset = 50;
		record.u.space.total = 150;
		record.u.space.bytes = canon;
		record.u.space.length = sizeof canon;
		break;
	case LEDGER_QUARANTINE:
		sample_fill(record.u.quarantine.key, 32, 26);
		sample_fill(record.u.quarantine.space, 32, 3);
		record.u.quarantine.part = 63;
		record.u.quarantine.birth = 77;
		record.u.quarantine.sequence = UINT64_C(0x200000003);
		break;
	case LEDGER_MARK:
		record.u.mark.next_birth = 1000;
		record.u.mark.last_decision = 502;
		record.u.mark.dropped_through = 400;
		record.u.mark.group_epoch = 3;
		record.u.mark.clean = 1;
		record.u.mark.flushed_through = UINT64_C(0x200000003);
		record.u.mark.checkpoint_segment = 9;
		record.u.mark.checkpoint_bytes = 5 * FMT_PAGE;
		record.u.mark.checkpoint_sequence = UINT64_C(0x200000001);
		break;
	}
	return record;
}

/* Writes the sample's records into the page's body. */
static inline struct ledger_page sample_ledger(uint8_t page[FMT_PAGE])
{
	struct ledger_page head = {.version = 1};

	head.flags = LEDGER_PAGE_SNAPSHOT | LEDGER_PAGE_SNAPSHOT_END | 2 << 8 | 3 << 16;
	for (unsigned i = 0; i < SAMPLE_RECORDS; i++) {
		struct ledger_record record = sample_record(i);

		head.used = ledger_record_add(&record, page + LEDGER_HEAD_BYTES, head.used);
	}
	head.epoch = 6;
	head.sequence = 99;
	head.index = 2;
	sample_fill(head.device_id, 16, 2);
	return head;
}

static inline struct manifest sample_manifest(void)
{
	static uint8_t keys[5 * 32];
	static struct manifest_chain chains[2];
	static struct manifest_tail tails[2];
	struct manifest manifest = {0};

	sample_fill(keys, sizeof keys, 30);
	chains[0] = (struct manifest_chain){.group = 0, .nkeys = 3, .keys = keys};
	chains[1] = (struct manifest_chain){.group = 1, .nkeys = 2, .keys = keys + 3 * 32};
	for (unsigned i = 0; i < 2; i++) {
		sample_fill(tails[i].key, 32, 40 + i);
		tails[i].group = i;
		tails[i].part = 63 * i;
		tails[i].bytes = 1 + i * (FMT_PART_BYTES_MAX - 1);
	}
	manifest.tenant = "default";
	manifest.tenant_length = 7;
	manifest.owner = "";
	manifest.name = "Sitzung \xc3\xbc";
	manifest.name_length = 10;
	sample_fill(manifest.space, 32, 3);
	manifest.epoch = 2;
	manifest.tokens = 4097;
	manifest.bytes = UINT64_C(0x123456789a);
	manifest.saved_at_s = 1800000000;
	manifest.chains = chains;
	manifest.nchains = 2;
	manifest.tails = tails;
	manifest.ntails = 2;
	manifest.state = "engine state";
	manifest.state_bytes = 12;
	return manifest;
}

static inline struct fmt_ident sample_ident(void)
{
	struct fmt_ident ident;

	memset(&ident, 0, sizeof ident);
	ident.version = 1;
	sample_fill(ident.store_id, 16, 1);
	ident.created_at_s = 1800000000;
	ident.memory_bytes = (uint64_t)8 << 30;
	ident.free_floor_bytes = (uint64_t)10 << 30;
	ident.ndevices = 2;
	sample_fill(ident.device[0].device_id, 16, 50);
	ident.device[0].budget_bytes = (uint64_t)1 << 40;
	sample_fill(ident.device[1].device_id, 16, 2);
	ident.device[1].budget_bytes = (uint64_t)2 << 40;
	snprintf(ident.device[1].path, sizeof ident.device[1].path, "/mnt/nvme1/flash.cairn");
	return ident;
}

#define SAMPLE_CHECKPOINT_ENTRIES 3u

static inline struct checkpoint_entry sample_checkpoint_entry(unsigned i)
{
	struct checkpoint_entry entry = {0};

	sample_fill(entry.key_prefix, 16, 70 + i);
	sample_fill(entry.parent_prefix, 16, 69 + i);
	entry.check = UINT64_C(0x0102030405060700) + i;
	entry.birth = 900 + i;
	entry.page = 1000 + i;
	entry.stored_length = FMT_PAGE - 1 + i;
	entry.raw_length = FMT_PAGE - 1 + i;
	entry.space_index = (uint16_t)(i % 2);
	entry.part = (uint8_t)(63 - i);
	entry.group = (uint8_t)(15 - i);
	entry.flags = (uint8_t)(7 - i);
	return entry;
}

/* ---- the files: each returns its length in bytes[SAMPLE_FILE_MAX] ----------------------------------------------- */

static inline size_t sample_label_file(uint8_t *bytes)
{
	struct fmt_label label = sample_label();

	segment_label_encode(&label, bytes);
	return FMT_PAGE;
}

static inline size_t sample_group_file(uint8_t *bytes)
{
	struct fmt_entry entries[SAMPLE_ENTRIES];
	struct fmt_group group = sample_group(entries);

	segment_group_encode(&group, entries, SAMPLE_SALT, bytes);
	return (size_t)group.index_pages * FMT_PAGE;
}

/* The pages of the entries, then the trailer. */
static inline size_t sample_footer_file(uint8_t *bytes)
{
	struct fmt_entry entries[SAMPLE_ENTRIES];
	struct fmt_footer footer = sample_footer(entries);
	size_t length = (size_t)footer.entries_pages * FMT_PAGE;

	segment_footer_encode(&footer, entries, SAMPLE_SALT, bytes, bytes + length);
	return length + FMT_PAGE;
}

static inline size_t sample_ledger_file(uint8_t *bytes)
{
	struct ledger_page head = sample_ledger(bytes);

	ledger_page_seal(&head, bytes);
	return FMT_PAGE;
}

static inline size_t sample_manifest_file(uint8_t *bytes)
{
	struct manifest manifest = sample_manifest();

	manifest_encode(&manifest, bytes);
	return manifest_size(&manifest);
}

static inline size_t sample_ident_file(uint8_t *bytes)
{
	struct fmt_ident ident = sample_ident();

	ident_encode(&ident, bytes);
	return IDENT_BYTES;
}

/* Two lives, two spaces, three entries. */
static inline size_t sample_checkpoint_file(uint8_t *bytes)
{
	struct checkpoint_head head = {.version = 1, .sequence = UINT64_C(0x200000001), .nlives = 2, .nspaces = 2,
	                               .nentries = SAMPLE_CHECKPOINT_ENTRIES};
	size_t length = checkpoint_size(head.nlives, head.nspaces, head.nentries);

	memset(bytes, 0, length);
	for (unsigned i = 0; i < 2; i++) {
		struct checkpoint_life life = {.segment = 7 + i, .life = 41 + i};

		checkpoint_life_encode(&life, bytes + checkpoint_lives_offset() + i * CHECKPOINT_LIFE_BYTES);
		sample_fill(bytes + checkpoint_spaces_offset(2) + i * CHECKPOINT_SPACE_BYTES, CHECKPOINT_SPACE_BYTES, 3 + i);
	}
	for (unsigned i = 0; i < SAMPLE_CHECKPOINT_ENTRIES; i++) {
		struct checkpoint_entry entry = sample_checkpoint_entry(i);

		checkpoint_entry_encode(&entry, bytes + checkpoint_entries_offset(2, 2) + i * CHECKPOINT_ENTRY_BYTES);
	}
	sample_fill(head.device_id, 16, 2);
	head.body_check = digest_xxh3(bytes + FMT_PAGE, length - FMT_PAGE, CHECKPOINT_SEED);
	checkpoint_head_encode(&head, bytes);
	return length;
}

#define SAMPLE_BLANK_BYTES (480ull << 30)

static inline size_t sample_blank_file(uint8_t *bytes)
{
	segment_blank_encode(SAMPLE_BLANK_BYTES, bytes);
	return FMT_PAGE;
}

struct sample_file {
	const char *name;
	size_t (*make)(uint8_t *bytes);
};
static const struct sample_file sample_files[] = {
	{"label.v1.bin", sample_label_file},       {"group.v1.bin", sample_group_file},
	{"footer.v1.bin", sample_footer_file},     {"ledger.v1.bin", sample_ledger_file},
	{"manifest.v1.bin", sample_manifest_file}, {"ident.v1.bin", sample_ident_file},
	{"checkpoint.v1.bin", sample_checkpoint_file}, {"blank.v1.bin", sample_blank_file},
};

/* Reads the golden file `name` into bytes[SAMPLE_FILE_MAX]; returns its length, 0: not there. */
static inline size_t sample_read(const char *name, uint8_t *bytes)
{
	char path[1024];
	size_t length;
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", CAIRN_GOLDEN_DIR, name);
	file = fopen(path, "rb");
	if (!file)
		return 0;
	length = fread(bytes, 1, SAMPLE_FILE_MAX, file);
	fclose(file);
	return length;
}

#endif
