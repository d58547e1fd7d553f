/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cairn put`: moves a file into a store, as a session of a space of scheme file/1.
 * Threads: one. Memory: two batches, and 32 bytes of key for each MiB of the file.
 * Invariant: the session is saved last, when all blocks are as durable as asked; until then an earlier one of that name
 * stands, and an interrupted put leaves only blocks that nobody names, which a later put of the file finds again.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

enum { KEY_DURABILITY = VERB_KEY, KEY_TTL, KEY_PIN };
#define PUT_PIN_SHARE_PERCENT 50u /* cairn_options.pin_share_percent 0 */

static struct put {
	uint32_t durability, pin;
	uint64_t ttl_s;
	/* of the run */
	const char *file; /* as people call it */
	int fd;
	struct stat before;
	int ended;        /* a read came to the end; what grows behind it is noticed as a change */
	uint64_t bytes, blocks, existed; /* so far */
	cairn_key *keys; /* of all blocks */
	uint64_t room;   /* keys that fit */
	struct progress progress;
} put = {.durability = CAIRN_DURABLE_FLASH, .fd = -1};

static int put_option(int key, char *value)
{
	switch (key) {
	case KEY_DURABILITY:
		if (strcmp(value, "none") != 0 && strcmp(value, "flash") != 0)
			return say_error("--durability %s: unknown; give flash (survives power loss) or none", value);
		put.durability = value[0] == 'n' ? CAIRN_DURABLE_NONE : CAIRN_DURABLE_FLASH;
		return 0;
	case KEY_TTL:
		if (args_duration(value, &put.ttl_s) || !put.ttl_s)
			return say_error("--ttl %s: not a time; write it like 90, 15m, 1h or 2d", value);
		return 0;
	default:
		put.pin = 1;
		return 0;
	}
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int put_open_file(const char *file)
{
	put.file = !strcmp(file, "-") ? "(stdin)" : file;
	put.fd = !strcmp(file, "-") ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC);
	if (put.fd < 0)
		return say_error("%s: %s; give a file that can be read, or - for stdin", file, strerror(errno));
	if (fstat(put.fd, &put.before))
		return say_error("%s: %s", put.file, strerror(errno));
	if (S_ISDIR(put.before.st_mode))
		return say_error(
			"%s is a directory; put its files one by one, or a tar of it: tar c %s | cairn put STORE NAME -", file,
			file);
	if (S_ISREG(put.before.st_mode))
		posix_fadvise(put.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return 0;
}

/* Reads until the buffer is full or the file ends. The length, or -1 after a message. */
static long put_read(uint8_t *bytes, size_t max)
{
	size_t used = 0;

	while (used < max && !say_stopped) {
		ssize_t count = read(put.fd, bytes + used, max - used);

		if (!count)
			break;
		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0) {
			say_error("%s: cannot be read at byte %" PRIu64 ": %s; nothing was saved", put.file, put.bytes + used,
			          strerror(errno));
			return -1;
		}
		used += (size_t)count;
	}
	return (long)used;
}

/* A file that was written to meanwhile is neither its old self nor its new one. */
static int put_check_unchanged(void)
{
	struct stat after;

	if (!S_ISREG(put.before.st_mode))
		return 0;
	if (fstat(put.fd, &after))
		return say_error("%s: %s", put.file, strerror(errno));
	if ((uint64_t)put.before.st_size != put.bytes || after.st_size != put.before.st_size ||
	    after.st_mtim.tv_sec != put.before.st_mtim.tv_sec || after.st_mtim.tv_nsec != put.before.st_mtim.tv_nsec)
		return say_error("%s changed while it was read; nothing was saved: put it again when nobody writes to it",
		                 put.file);
	return 0;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static int put_grow(uint64_t blocks)
{
	if (blocks <= put.room)
		return 0;
	uint64_t room = put.room ? 2 * put.room : 1024;
	cairn_key *keys = reallocarray(put.keys, room, sizeof *keys);

	if (!keys)
		return say_error("out of memory for the keys of %s; nothing was saved", put.file);
	put.keys = keys;
	put.room = room;
	return 0;
}

/* Fills a slot from the file. 1: there is something in it; 0: the file ended; -1 after a message. */
static int put_fill(struct file_mover *mover, struct file_slot *slot)
{
	long length = put.ended ? 0 : put_read(slot->bytes, FILE_BATCH * FILE_BLOCK_BYTES);

	if (length < 0)
		return -1;
	put.ended = (size_t)length < FILE_BATCH * FILE_BLOCK_BYTES;
	slot->count = (uint32_t)file_blocks((uint64_t)length);
	slot->first = put.blocks;
	if (put_grow(put.blocks + slot->count))
		return -1;
	for (uint32_t i = 0; i < slot->count; i++) {
		size_t left = (size_t)length - i * FILE_BLOCK_BYTES, bytes = left < FILE_BLOCK_BYTES ? left : FILE_BLOCK_BYTES;
		uint8_t *at = slot->bytes + i * FILE_BLOCK_BYTES;
		struct cairn_item *item = &slot->items[i];

		memset(item, 0, sizeof *item);
		cairn_derive_parent(mover->derive, &slot->parents[i]);
		if (cairn_derive_bytes(mover->derive, at, bytes, &item->key)) {
			say_error("%s", cairn_error_text());
			return -1;
		}
		item->parent = slot->first + i ? &slot->parents[i] : NULL;
		slot->bufs[i] = cairn_buf_of(at, bytes);
		item->bufs = &slot->bufs[i];
		item->nbufs = 1;
		put.keys[slot->first + i] = item->key;
	}
	put.blocks += slot->count;
	put.bytes += (uint64_t)length;
	return length > 0;
}

/* Writing past a limit on the size of files looks like a device that fails. */
static const char *put_limit_hint(void)
{
	static char hint[64];
	struct rlimit limit;

	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY)
		snprintf(hint, sizeof hint, " (ulimit -f lets no file grow past %s)", say_size(limit.rlim_cur));
	return hint;
}

/* Waits for a slot's blocks and looks at each. */
static int put_settle(struct file_mover *mover, uint32_t index)
{
	struct file_slot *slot = &mover->slot[index];

	file_wait(mover, index);
	for (uint32_t i = 0; i < slot->count; i++) {
		const struct cairn_item *item = &slot->items[i];
		if (item->status != CAIRN_OK && item->status != CAIRN_EXISTED)
			return say_stopped ? CLI_ERROR
			                   : say_error("block %" PRIu64 " of %s: %s%s; nothing was saved", slot->first + i,
			                               put.file, mover->why[0] ? mover->why : cairn_status_text(item->status),
			                               put_limit_hint());
		put.existed += item->status == CAIRN_EXISTED;
	}
	slot->count = 0;
	return 0;
}

static int put_blocks(struct file_mover *mover)
{
	for (uint32_t index = 0;; index = (index + 1) % FILE_SLOTS) {
		struct file_slot *slot = &mover->slot[index];

		if (put_settle(mover, index) || say_stopped)
			return CLI_ERROR;
		int filled = put_fill(mover, slot);

		if (filled < 0 || say_stopped || (filled && file_submit(mover, index)))
			return CLI_ERROR;
		progress_at(&put.progress, put.bytes);
		if (!filled)
			break;
	}
	for (uint32_t index = 0; index < FILE_SLOTS; index++)
		if (put_settle(mover, index))
			return CLI_ERROR;
	return say_stopped ? CLI_ERROR : 0;
}

/* ---- the session ------------------------------------------------------------------------------------------------- */

static int put_save(cairn *store, const cairn_space *space, const struct cairn_session_name *name)
{
	struct cairn_chain chain = {.group = 0, .keys = put.keys, .nkeys = put.blocks};
	uint8_t state[FILE_RECORD_BYTES];
	struct cairn_save save = {
		.size = sizeof save,
		.name = *name,
		.chains = &chain,
		.nchains = put.blocks ? 1 : 0,
		.state = state,
		.state_bytes = sizeof state,
		.ttl_s = put.ttl_s,
		.pin = put.pin,
		.durability = put.durability,
	};

	file_record_encode(put.bytes, state);
	int status = cairn_session_save(store, space, &save);

	if (!status)
		return 0;
	if (status == CAIRN_E_NOENT)
		return say_error(
			"%s has %s, and its first blocks had to be evicted for the last: the store's flash is too small;"
			" raise it with --budget or --flash. Nothing was saved",
			put.file, say_size(put.bytes));
	return say_error("%s: %s; nothing was saved", put.file, cairn_error_text());
}

/* A file that can not fit would evict all others before it fails. */
static int put_check_room(cairn *store)
{
	struct cairn_stat stat = {.size = sizeof stat};

	if (!S_ISREG(put.before.st_mode) || cairn_stat(store, &stat))
		return 0;
	uint64_t capacity = stat.tier[CAIRN_TIER_FLASH].capacity_bytes, bytes = (uint64_t)put.before.st_size;

	if (capacity && bytes > capacity)
		return say_error("%s has %s, the store's flash %s; raise it with --budget or --flash", put.file,
		                 say_size(bytes), say_size(capacity));
	/* The share is this program's own: it opens the store with the default. */
	if (capacity && (put.pin || put.ttl_s) && bytes > capacity / 100 * PUT_PIN_SHARE_PERCENT)
		return say_error(
			"%s has %s; pins and times to live may hold %u %% of the store's flash, %s: raise it with --budget,"
			" or put without",
			put.file, say_size(bytes), PUT_PIN_SHARE_PERCENT, say_size(capacity / 100 * PUT_PIN_SHARE_PERCENT));
	return 0;
}

static int put_report(const char *name)
{
	double seconds = progress_seconds(&put.progress);

	if (cli.json) {
		json_t *report = json_object();

		json_object_set_new(report, "name", say_json(name));
		say_json_number(report, "bytes", put.bytes);
		say_json_number(report, "blocks", put.blocks);
		say_json_number(report, "existed_blocks", put.existed);
		json_object_set_new(report, "durability",
		                    json_string(put.durability == CAIRN_DURABLE_NONE ? "none" : "flash"));
		json_object_set_new(report, "duration_s", json_real(seconds));
		return say_json_end(report, CLI_WHOLE);
	}
	say_line("%s: %s in %s, %s; %s, %s", say_name(name), say_size(put.bytes), say_many(put.blocks, "block", "blocks"),
	         put.durability == CAIRN_DURABLE_NONE ? "not yet durable" : "durable on flash", say_span(seconds),
	         say_rate(put.bytes, seconds));
	if (put.existed)
		say_line("%s there already", say_many(put.existed, "block was", "blocks were"));
	return CLI_WHOLE;
}

static int put_into(cairn *store, const struct cairn_session_name *name)
{
	struct cairn_space_desc desc = {.size = sizeof desc, .tenant = cli.tenant, .scheme = "file/1", .model = "file"};
	struct file_mover mover = {0};
	cairn_space *space;
	int status;

	if (put_check_room(store))
		return CLI_ERROR;
	if (cairn_describe(store, &desc, &space))
		return say_error("%s", cairn_error_text());
	progress_start(&put.progress, "put", S_ISREG(put.before.st_mode) ? (uint64_t)put.before.st_size : 0);
	status = file_start(&mover, store, space, 1, put.durability);
	status = status ? status : put_blocks(&mover);
	file_done(&mover);
	progress_end(&put.progress);
	status = status ? status : put_check_unchanged();
	return status ? status : put_save(store, space, name);
}

static int put_run(char **operand, uint32_t count)
{
	struct cairn_session_name name;
	cairn *store;

	(void)count;
	if (args_session(operand[1], &name) || put_open_file(operand[2]) || open_store(operand[0], OPEN_CREATE, &store))
		return CLI_ERROR;
	int status = open_close(store, put_into(store, &name));

	free(put.keys);
	if (!status) {
		say_stopped = 0; /* too late: it is saved */
		return put_report(operand[1]);
	}
	if (say_stopped)
		say_error("interrupted; nothing was saved, an earlier \"%s\" stays as it was", say_name(operand[1]));
	return status;
}

static const struct argp_option put_options[] = {
	{"durability", KEY_DURABILITY, "none|flash", 0,
     "When put returns: at once, or when the file survives power loss "
     "(flash)",
     0},
	{"ttl", KEY_TTL, "TIME", 0, "Keep it for that long (90, 15m, 1h, 2d), within the share for pins, then forget it. "
	 "Without, it may be evicted", 0},
	{"pin", KEY_PIN, NULL, 0, "Keep it until it is unpinned, within the share for pins", 0},
	{0},
};

const struct verb verb_put = {
	.name = "put",
	.operands = "STORE NAME FILE",
	.summary = "move a file into a store, as session NAME",
	.text = "Moves FILE (- for stdin) into STORE as session NAME. The store is made where there is none. A session of "
	        "that name is replaced at once, when all of the new one is durable; an interrupted put leaves the old one."
	        "\vExamples:\n"
	        "  cairn put /var/cache/cairn notes notes.tar\n"
	        "  cairn put /var/cache/cairn notes notes.tar --ttl 2d --owner ada\n"
	        "  tar c src | cairn put store src -\n"
	        "  cairn put store big big.bin --budget 20G\n",
	.options = put_options,
	.option = put_option,
	.run = put_run,
	.shared = VERB_STORE | VERB_JSON | VERB_QUIET | VERB_SESSION,
	.least = 3,
	.most = 3,
};
