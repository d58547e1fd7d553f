/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cairn get`: brings a file that `cairn put` moved into a store back, checked.
 * Threads: one. Memory: two batches.
 * Invariant: FILE is replaced when all of its bytes were checked and written, and not before. What is written until
 * then has no name where the file system allows it (O_TMPFILE), so that not even kill -9 leaves half a file.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

static struct get {
	const char *store, *name, *file; /* as people call them */
	char *path;       /* where FILE is, links followed; NULL: straight into `fd` */
	char *folder;     /* of path */
	char *temporary;  /* NULL: it has no name */
	int fd;
	mode_t mode;
	uint64_t bytes, blocks; /* as the record says */
	uint64_t written;
	const cairn_key *keys;
	struct progress progress;
} get = {.fd = -1};

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int get_cannot(const char *what)
{
	return say_error("%s: %s: %s", get.file, what, strerror(errno));
}

/* Where FILE leads: to a file that is there, or to where one will be. */
static int get_find_path(void)
{
	struct stat old;
	mode_t mask = umask(0);

	umask(mask);
	get.mode = 0666 & ~mask;
	if (stat(get.file, &old)) {
		if (errno != ENOENT || (!lstat(get.file, &old) && S_ISLNK(old.st_mode)))
			return get_cannot("cannot be written");
		get.path = strdup(get.file);
	} else if (S_ISREG(old.st_mode)) {
		get.mode = old.st_mode & 07777;
		get.path = realpath(get.file, NULL);
	} else if (S_ISDIR(old.st_mode)) {
		return say_error("%s is a directory; give the name of a file in it", get.file);
	} else {
		/* A device or a pipe is not replaced: it takes the bytes as they come. */
		get.fd = open(get.file, O_WRONLY | O_CLOEXEC);
		return get.fd < 0 ? get_cannot("cannot be written") : 0;
	}
	if (!get.path || !(get.folder = strdup(get.path)))
		return say_error("out of memory; free some and try again");
	char *slash = strrchr(get.folder, '/');

	if (!slash)
		memcpy(get.folder, ".", get.folder[0] ? 2 : 1);
	else
		slash[slash == get.folder] = '\0';
	return 0;
}

/* A name beside FILE that nobody has. `make` is called until it does not say EEXIST. */
static int get_name_temporary(int (*make)(const char *path))
{
	size_t room = strlen(get.folder) + 64;

	if (!(get.temporary = malloc(room)))
		return say_error("out of memory; free some and try again");
	for (uint32_t try = 0; try < 1000; try++) {
		snprintf(get.temporary, room, "%s/.cairn-get-%ld-%u", get.folder, (long)getpid(), (unsigned)try);
		if (!make(get.temporary))
			return 0;
		if (errno != EEXIST)
			break;
	}
	get_cannot("cannot be written");
	free(get.temporary);
	get.temporary = NULL;
	return CLI_ERROR;
}

static int get_make(const char *path)
{
	get.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return get.fd < 0 ? -1 : 0;
}

static int get_link(const char *path)
{
	char from[64];

	snprintf(from, sizeof from, "/proc/self/fd/%d", get.fd);
	return linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}

static int get_open_file(void)
{
	if (!strcmp(get.file, "-")) {
		get.file = "(stdout)";
		get.fd = STDOUT_FILENO;
		return 0;
	}
	if (get_find_path())
		return CLI_ERROR;
	if (!get.path)
		return 0;
	get.fd = open(get.folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (get.fd < 0 && get_name_temporary(get_make))
		return CLI_ERROR;
	/* Better to know now that there is no room than after an hour; where it can not be asked, writing will tell. */
	if (get.bytes && fallocate(get.fd, 0, 0, (off_t)get.bytes) && (errno == ENOSPC || errno == EFBIG))
		return get_cannot("no room for it");
	return 0;
}

static int get_write(const uint8_t *bytes, size_t length)
{
	while (length && !say_stopped) {
		ssize_t count = write(get.fd, bytes, length);

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0 && errno == EPIPE) {
			say_stopped = SIGPIPE; /* as any program whose reader went away */
			return CLI_ERROR;
		}
		if (count < 0)
			return get_cannot("cannot be written");
		bytes += count;
		length -= (size_t)count;
		get.written += (uint64_t)count;
	}
	return say_stopped ? CLI_ERROR : 0;
}

/* All is written: it takes FILE's place. */
static int get_publish(void)
{
	if (!get.path)
		return 0;
	if (ftruncate(get.fd, (off_t)get.written) || fchmod(get.fd, get.mode) || fsync(get.fd))
		return get_cannot("cannot be written");
	if (!get.temporary && access(get.path, F_OK)) {
		if (!get_link(get.path))
			return 0;
		if (errno != EEXIST)
			return get_cannot("cannot be written");
	}
	if (!get.temporary && get_name_temporary(get_link))
		return CLI_ERROR;
	if (rename(get.temporary, get.path))
		return get_cannot("cannot be replaced");
	free(get.temporary);
	get.temporary = NULL;
	return 0;
}

static void get_close_file(void)
{
	if (get.temporary)
		unlink(get.temporary);
	if (get.fd >= 0 && get.fd != STDOUT_FILENO)
		close(get.fd);
	free(get.temporary);
	free(get.path);
	free(get.folder);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static size_t get_block_bytes(uint64_t number)
{
	uint64_t left = get.bytes - number * FILE_BLOCK_BYTES;

	return left < FILE_BLOCK_BYTES ? (size_t)left : FILE_BLOCK_BYTES;
}

static int get_ask(struct file_mover *mover, uint32_t index, uint64_t first)
{
	struct file_slot *slot = &mover->slot[index];

	slot->first = first;
	slot->count = (uint32_t)(get.blocks - first < FILE_BATCH ? get.blocks - first : FILE_BATCH);
	for (uint32_t i = 0; i < slot->count; i++) {
		struct cairn_item *item = &slot->items[i];

		memset(item, 0, sizeof *item);
		item->key = get.keys[first + i];
		slot->bufs[i] = cairn_buf_of(slot->bytes + i * FILE_BLOCK_BYTES, get_block_bytes(first + i));
		item->bufs = &slot->bufs[i];
		item->nbufs = 1;
	}
	return file_submit(mover, index);
}

/* What went out of a pipe can not be taken back; its reader must learn that it is not whole. */
static int get_bad_block(uint64_t number, const char *what)
{
	return say_not("\"%s\": block %" PRIu64 " of %" PRIu64 " (bytes from %" PRIu64 ") %s; see cairn explain %s%s",
	               say_name(get.name), number, get.blocks, number * FILE_BLOCK_BYTES, what, get.store,
	               get.path ? "; nothing was written" : get.written ? "; what was written before it is not whole" : "");
}

/* A block that is not there. Another reader, or the store itself as it made room, may have found the damage first. */
static int get_gone(const struct file_mover *mover, const struct cairn_item *item, uint64_t number)
{
	struct cairn_explanation found = {.size = sizeof found};
	cairn_digest space;
	char what[160];

	cairn_space_get_id(mover->space, &space);
	if (cairn_explain(mover->store, &space, &item->key, item->part, &found) || found.reason == CAIRN_WHY_PRESENT)
		return get_bad_block(number, "was not there when it was asked for; try again");
	snprintf(what, sizeof what, "is %s%s", found.reason == CAIRN_WHY_DAMAGED ? "" : "gone: ",
	         explain_reason(found.reason));
	return get_bad_block(number, what);
}

/* Waits for a slot, checks each block against its key, and writes it. */
static int get_settle(struct file_mover *mover, uint32_t index)
{
	struct file_slot *slot = &mover->slot[index];

	file_wait(mover, index);
	for (uint32_t i = 0; i < slot->count; i++) {
		const struct cairn_item *item = &slot->items[i];
		uint64_t number = slot->first + i;
		size_t length = get_block_bytes(number);
		const uint8_t *bytes = slot->bytes + i * FILE_BLOCK_BYTES;
		cairn_key key;

		if (say_stopped)
			return CLI_ERROR;
		if (item->status == CAIRN_MISS)
			return get_gone(mover, item, number);
		if (item->status == CAIRN_DAMAGED)
			return get_bad_block(number, "is damaged: its bytes fail their check");
		if (item->status == CAIRN_E_SIZE || (item->status == CAIRN_OK && item->ret_bytes != length))
			return get_bad_block(number, "has another length than the file's record says");
		if (item->status < 0)
			return say_error("block %" PRIu64 " of \"%s\": %s", number, say_name(get.name),
			                 mover->why[0] ? mover->why : cairn_status_text(item->status));
		/* The key is a SHA-256 over the block and all before it: a proof that needs no trust in the store. */
		if (cairn_derive_bytes(mover->derive, bytes, length, &key))
			return say_error("%s", cairn_error_text());
		if (memcmp(&key, &item->key, sizeof key) != 0)
			return get_bad_block(number, "is damaged: its bytes are not those of its key");
		if (get_write(bytes, length))
			return CLI_ERROR;
		progress_at(&get.progress, get.written);
	}
	slot->count = 0;
	return 0;
}

static int get_blocks(struct file_mover *mover)
{
	uint64_t asked = 0;
	uint32_t next = 0;

	for (uint64_t settled = 0; settled < get.blocks;) {
		for (; asked < get.blocks && asked - settled < FILE_SLOTS * FILE_BATCH; next = (next + 1) % FILE_SLOTS) {
			if (get_ask(mover, next, asked))
				return CLI_ERROR;
			asked += mover->slot[next].count;
		}
		uint32_t oldest = (uint32_t)(settled / FILE_BATCH % FILE_SLOTS), count = mover->slot[oldest].count;
		int status = get_settle(mover, oldest);

		if (status)
			return status;
		settled += count;
	}
	return 0;
}

/* ---- the session ------------------------------------------------------------------------------------------------- */

static int get_look(const cairn_session *session)
{
	struct cairn_session_info info = {.size = sizeof info};
	struct cairn_chain chain = {0};
	int status = file_record_of(session, &get.bytes);

	cairn_session_get_info(session, &info);
	if (status == -1)
		return say_error(
			"the session \"%s\" was not saved by cairn put, so it is no file; see cairn session STORE show",
			say_name(get.name));
	if (status)
		return say_error("the session \"%s\" was put by a newer cairn; upgrade", say_name(get.name));
	get.blocks = file_blocks(get.bytes);
	if (info.nchains && cairn_session_chain(session, 0, &chain))
		return say_error("%s", cairn_error_text());
	if (info.nchains > 1 || chain.nkeys != get.blocks)
		return say_not("the session \"%s\" is damaged: its record says %" PRIu64 " blocks, its chain has %zu",
		               say_name(get.name), get.blocks, chain.nkeys);
	get.keys = chain.keys;
	return 0;
}

static int get_move(cairn *store, const cairn_session *session)
{
	struct file_mover mover = {0};
	cairn_space *space;

	if (cairn_session_space(store, session, &space))
		return say_error("%s", cairn_error_text());
	progress_start(&get.progress, "get", get.bytes);
	int status = file_start(&mover, store, space, 0, 0);

	status = status ? status : get_blocks(&mover);
	file_done(&mover);
	progress_end(&get.progress);
	return status;
}

static int get_from(cairn *store, const struct cairn_session_name *name)
{
	cairn_session *session;
	int status = open_session(store, name, &session);

	if (status)
		return status;
	status = get_look(session);
	status = status ? status : get_open_file();
	status = status ? status : get_move(store, session);
	status = status ? status : get_publish();
	cairn_session_free(session);
	return status;
}

static int get_report(void)
{
	double seconds = progress_seconds(&get.progress);

	if (cli.json) {
		json_t *report = json_object();

		json_object_set_new(report, "name", say_json(get.name));
		json_object_set_new(report, "file", say_json(get.file));
		say_json_number(report, "bytes", get.written);
		say_json_number(report, "blocks", get.blocks);
		json_object_set_new(report, "duration_s", json_real(seconds));
		return say_json_end(report, CLI_WHOLE);
	}
	if (get.fd != STDOUT_FILENO)
		say_line("%s: %s in %s, whole; %s, %s", get.file, say_size(get.written),
		         say_many(get.blocks, "block", "blocks"), say_span(seconds), say_rate(get.written, seconds));
	return CLI_WHOLE;
}

static int get_run(char **operand, uint32_t count)
{
	struct cairn_session_name name;
	cairn *store;

	(void)count;
	get.store = operand[0];
	get.name = operand[1];
	get.file = operand[2];
	if (cli.json && !strcmp(get.file, "-"))
		return say_error("--json with the file on stdout; give a file name, or leave out --json");
	if (args_session(operand[1], &name) || open_store(operand[0], OPEN_READ, &store))
		return CLI_ERROR;
	int status = open_close(store, get_from(store, &name));

	if (!status) {
		say_stopped = 0; /* too late: it is there */
		status = get_report();
	} else if (say_stopped && say_stopped != SIGPIPE) {
		say_error("interrupted; %s", get.path ? "nothing was written" : "what was written is not whole");
	}
	get_close_file();
	return status;
}

const struct verb verb_get = {
	.name = "get",
	.operands = "STORE NAME FILE",
	.summary = "bring a file back, checked",
	.text =
		"Brings the file that was put as session NAME back into FILE (- for stdout). Every block is checked against "
		"its key. FILE is replaced when all of it is there and whole, and is not touched before. Exit status 1: it is "
		"not there, or a block of it is damaged or gone."
		"\vExamples:\n"
		"  cairn get /var/cache/cairn notes notes.tar\n"
		"  cairn get /var/cache/cairn notes notes.tar --owner ada\n"
		"  cairn get store src - | tar t\n",
	.run = get_run,
	.shared = VERB_STORE | VERB_JSON | VERB_QUIET | VERB_SESSION,
	.least = 3,
	.most = 3,
};
