/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the seeds of the formats' fuzz targets: make_corpus [DIRECTORY], "tests/fuzz/corpus" if none is given, with a
 * directory per target there already. The seeds are the golden samples, cut and bent a little; see each target for the
 * form of its input. Files that are there are written over: seeds may change, golden files may not.
 */
#include "golden/samples.h"

#include "base/bytes.h"
#include "fmt/frame.h"
#include "fmt/wire.h"

static const char *directory;
static int failed;

/* The input is `before`, then `bytes` without the zeros at its end. */
static void seed(const char *target, const char *name, const void *before, size_t before_length, const uint8_t *bytes,
                 size_t length)
{
	char path[1024];
	FILE *file;

	while (length && !bytes[length - 1])
		length--;
	snprintf(path, sizeof path, "%s/%s/%s", directory, target, name);
	file = fopen(path, "wb");
	if (!file) {
		perror(path);
		failed = 1;
		return;
	}
	if (fwrite(before, 1, before_length, file) != before_length || fwrite(bytes, 1, length, file) != length)
		failed = 1;
	if (fclose(file))
		failed = 1;
}

static void seed_labels(void)
{
	uint8_t page[FMT_PAGE];
	struct fmt_label label = sample_label();

	segment_label_encode(&label, page);
	seed("label", "sample", "", 0, page, FMT_PAGE);
	bytes_set32(page + 8, 2);
	seed("label", "newer", "", 0, page, FMT_PAGE);
	label.segment_bytes = FMT_SEGMENT_BYTES_MAX;
	label.segments_offset = (uint64_t)1 << 40;
	segment_label_encode(&label, page);
	seed("label", "large", "", 0, page, FMT_PAGE);
}

static void seed_groups(void)
{
	static uint8_t pages[FMT_INDEX_PAGES_MAX * FMT_PAGE];
	uint32_t sizes[2] = {SAMPLE_SEGMENT_PAGES, 1};
	struct fmt_entry entry = sample_entry(3, 1);
	struct fmt_group group = {.version = 1, .index_pages = 1, .total_pages = 3, .nentries = 1};
	size_t length = sample_group_file(pages);

	seed("group", "sample", sizes, sizeof sizes, pages, length);
	bytes_set32(pages + 20, 1);
	seed("group", "newer", sizes, sizeof sizes, pages, length);
	sizes[0] = 3;
	sizes[1] = 0;
	segment_group_encode(&group, &entry, SAMPLE_SALT, pages);
	seed("group", "smallest", sizes, sizeof sizes, pages, FMT_PAGE);
	pages[128 + 160] = 1;
	seed("group", "codec", sizes, sizeof sizes, pages, FMT_PAGE);
}

static void seed_footers(void)
{
	static uint8_t pages[SAMPLE_FILE_MAX];
	struct fmt_footer footer = {.version = 1};
	size_t length = sample_footer_file(pages) - FMT_PAGE;
	uint32_t segment_pages = SAMPLE_SEGMENT_PAGES;
	uint8_t before[4 + FMT_PAGE];

	memcpy(before, &segment_pages, 4);
	memcpy(before + 4, pages + length, 128);
	seed("footer", "sample", before, 4 + 128, pages, length);
	segment_footer_encode(&footer, NULL, SAMPLE_SALT, NULL, before + 4);
	seed("footer", "empty", before, 4 + 128, pages, 0);
}

static void seed_ledgers(void)
{
	uint8_t page[FMT_PAGE];

	sample_ledger_file(page);
	seed("ledger", "sample", "", 0, page, FMT_PAGE);
	for (unsigned i = 0; i < SAMPLE_RECORDS; i++) {
		struct ledger_page head = {.version = 1};
		struct ledger_record record = sample_record(i);
		char name[16];

		head.used = ledger_record_add(&record, page + LEDGER_HEAD_BYTES, 0);
		ledger_page_seal(&head, page);
		snprintf(name, sizeof name, "type%u", record.type);
		seed("ledger", name, "", 0, page, FMT_PAGE);
	}
	bytes_set16(page + LEDGER_HEAD_BYTES, 99);
	seed("ledger", "unknown", "", 0, page, FMT_PAGE);
}

static void seed_manifests(void)
{
	static uint8_t bytes[SAMPLE_FILE_MAX];
	struct manifest manifest = sample_manifest();

	seed("manifest", "sample", "", 0, bytes, sample_manifest_file(bytes));
	manifest.ntails = manifest.nchains = manifest.state_bytes = 0;
	manifest_encode(&manifest, bytes);
	seed("manifest", "bare", "", 0, bytes, manifest_size(&manifest));
}

static void seed_idents(void)
{
	static uint8_t bytes[IDENT_BYTES];
	struct fmt_ident ident = sample_ident();

	ident_encode(&ident, bytes);
	seed("ident", "sample", "", 0, bytes, IDENT_COPY_BYTES);
	ident.ndevices = 0;
	ident_encode(&ident, bytes);
	seed("ident", "bare", "", 0, bytes, IDENT_COPY_BYTES);
}

static void seed_checkpoints(void)
{
	static uint8_t bytes[SAMPLE_FILE_MAX];
	uint8_t input[4 + 128 + 2 * 16 + 2 * 32], *entries;
	uint32_t pages = 1u << 20;

	sample_checkpoint_file(bytes);
	entries = bytes + checkpoint_entries_offset(2, 2);
	memcpy(input, &pages, 4);
	memcpy(input + 4, bytes, 128);
	memcpy(input + 4 + 128, bytes + checkpoint_lives_offset(), 2 * 16);
	memcpy(input + 4 + 128 + 2 * 16, bytes + checkpoint_spaces_offset(2), 2 * 32);
	seed("checkpoint", "sample", input, sizeof input, entries, SAMPLE_CHECKPOINT_ENTRIES * CHECKPOINT_ENTRY_BYTES);
}

static void seed_file(const char *path, const uint8_t *bytes, size_t length)
{
	FILE *file = fopen(path, "wb");
	if (!file || fwrite(bytes, 1, length, file) != length || fclose(file)) {
		perror(path);
		failed = 1;
	}
}

/* One request of each type, a batch, and a peer's answer: a body's length is exact. */
static void seed_wire(void)
{
	static const cairn_key some[2] = {{{1}}, {{2}}};
	static struct wire_request request;
	static uint8_t bytes[4096];
	char path[1024];

	for (uint32_t type = WIRE_HELLO; type <= WIRE_TYPES; type++) {
		memset(&request, 0, sizeof request);
		request.type = type < WIRE_TYPES ? type : WIRE_PUT;
		if (type == WIRE_TYPES)
			request.u.batch.nitems = 2, request.u.batch.items[1].hash_bytes = CAIRN_HASH_MAX;
		if (type == WIRE_PRESENCE)
			request.u.presence = (struct wire_presence){.parts = 3, .keys = {.nkeys = 2, .keys = some}};
		struct bytes_writer w = bytes_writer_of(bytes + 2, sizeof bytes - 2);
		bytes_set16(bytes, (uint16_t)request.type);
		wire_request_encode(&request, &w);
		snprintf(path, sizeof path, "%s/wire/%u", directory, type);
		if (type == WIRE_TYPES)
			snprintf(path, sizeof path, "%s/wire/batch", directory);
		seed_file(path, bytes, w.used + 2);
	}
	struct bytes_writer w = bytes_writer_of(bytes + 2, sizeof bytes - 2);
	bytes_set16(bytes, UINT16_MAX);
	wire_add_present(&w, 0.25, 1e9, 2);
	wire_add_found(&w,
	               &(struct wire_found){.key = 3, .part = 1, .tier = CAIRN_TIER_MEMORY, .length = 4096, .check = 7});
	wire_add_found(&w, &(struct wire_found){.key = 9, .tier = CAIRN_TIER_FLASH, .tail = 1, .length = 1, .check = 8});
	snprintf(path, sizeof path, "%s/wire/present", directory);
	seed_file(path, bytes, w.used + 2);
}

static size_t conn_frame(uint8_t *to, uint32_t type, const struct wire_request *request, uint8_t flags)
{
	struct bytes_writer w = bytes_writer_of(to + 4, 2048);

	wire_request_encode(request, &w);
	to[0] = (uint8_t)type;
	to[1] = flags;
	bytes_set16(to + 2, (uint16_t)w.used);
	return w.used + 4;
}

/* A connection's requests: one of each type that has no descriptor; and a part that is put, found, leased, fetched,
 * dropped. By socket file and by TCP. */
static void seed_conn(void)
{
	static const cairn_key some[1] = {{{1}}}, there[1] = {{{2}}}; /* see the target */
	static const uint32_t order[] = {WIRE_PUT,         WIRE_GET,   WIRE_LEASE, WIRE_MATCH, WIRE_FETCH,
	                                 WIRE_EXPLAIN,     WIRE_PARTS, WIRE_STAT,  WIRE_DROP,  WIRE_RELEASE,
	                                 WIRE_MATCH_RELEASE};
	static struct wire_request request;
	static uint8_t bytes[32768];
	char path[1024];

	for (uint8_t tcp = 0; tcp < 2; tcp++) {
		size_t used = 1;
		bytes[0] = tcp;
		for (uint32_t type = WIRE_DESCRIBE; type < WIRE_TYPES; type++) {
			if (type == WIRE_STAGE || type == WIRE_MATCH_JOIN)
				continue;
			memset(&request, 0, sizeof request);
			request.type = type;
			if (type == WIRE_PRESENCE)
				request.u.presence = (struct wire_presence){.parts = 1, .keys = {.nkeys = 1, .keys = some}};
			used += conn_frame(bytes + used, type, &request, 0);
		}
		snprintf(path, sizeof path, "%s/conn/each_%u", directory, tcp);
		seed_file(path, bytes, used);
		used = 1;
		for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
			memset(&request, 0, sizeof request);
			request.type = order[i];
			if (order[i] == WIRE_PUT || order[i] == WIRE_GET || order[i] == WIRE_LEASE || order[i] == WIRE_FETCH) {
				request.u.batch.space = 1;
				request.u.batch.nitems = 1;
				request.u.batch.items[0] = (struct wire_item){.key = some[0], .length = 64};
			}
			if (order[i] == WIRE_LEASE)
				request.u.batch.items[0].key = there[0];
			if (order[i] == WIRE_MATCH) {
				request.u.match.space = 1;
				request.u.match.nchains = 1;
				request.u.match.chains[0] = (struct wire_chain){.nkeys = 1, .keys = there};
			}
			used += conn_frame(bytes + used, order[i], &request, tcp && order[i] == WIRE_PUT ? 128 : 0);
		}
		snprintf(path, sizeof path, "%s/conn/life_%u", directory, tcp);
		seed_file(path, bytes, used);
	}
}

int main(int argc, char **argv)
{
	directory = argc > 1 ? argv[1] : "tests/fuzz/corpus";
	seed_labels();
	seed_groups();
	seed_footers();
	seed_ledgers();
	seed_manifests();
	seed_idents();
	seed_checkpoints();
	seed_wire();
	seed_conn();
	return failed;
}
