/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The run: the store's lock and identity, the devices one after the other, the sessions, and then the mending. And what
 * all steps share: findings, progress, small tables.
 *
 * Threads: the caller's. Memory: struct fsck, freed at the end.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "cairn/cairn.h"
#include "fsck/fsck_in.h"

#define PROGRESS_NS 50000000ull
enum { PATH_BYTES_MAX = 200, NEWS_MAX = 64 };

/* ---- shared ------------------------------------------------------------------------------------------------------ */

const char *fsck_severity_name(uint32_t severity)
{
	static const char *const names[] = {"note", "lost", "mendable", "stuck", "done"};
	return severity < sizeof(names) / sizeof(names[0]) ? names[severity] : "unlisted";
}

void fsck_tell(struct fsck *fsck, uint32_t severity, const struct disk *disk, uint64_t offset, const char *format, ...)
{
	char text[256];
	va_list arguments;
	int problem = severity == FSCK_LOST || severity == FSCK_MENDABLE || severity == FSCK_STUCK;
	fsck->report->problems += problem;
	fsck->report->stuck += severity == FSCK_STUCK;
	if (!fsck->options.finding)
		return;
	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	for (char *c = text; *c; c++) /* names are foreign */
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
	struct fsck_finding finding = {
		.severity = severity,
		.device = disk ? disk->index : FSCK_NO_DEVICE,
		.offset = offset,
		.path = disk ? disk->path : fsck->path,
		.text = text,
	};
	fsck->options.finding(fsck->options.arg, &finding);
}

static int progress(struct fsck *fsck)
{
	fsck->told_ns = clock_mono_ns(fsck->maker->clock);
	if (!fsck->options.progress || !fsck->options.progress(fsck->options.arg, fsck->what, fsck->done, fsck->all))
		return 0;
	return err_set(CAIRN_E_CANCELED, "fsck of %s: stopped by the caller", fsck->path);
}

int fsck_step(struct fsck *fsck, const struct disk *disk, const char *what, uint64_t all)
{
	int n = snprintf(fsck->what, sizeof(fsck->what), "%s%s%s", disk ? disk->name : "", disk ? ": " : "", what);
	check(n > 0);
	fsck->done = 0;
	fsck->all = all;
	return progress(fsck);
}

int fsck_advance(struct fsck *fsck, uint64_t bytes)
{
	fsck->done += bytes;
	if (fsck->done > fsck->all)
		fsck->done = fsck->all;
	if (fsck->done != fsck->all && clock_mono_ns(fsck->maker->clock) - fsck->told_ns < PROGRESS_NS)
		return 0;
	return progress(fsck);
}

int fsck_grow(void **array, uint32_t used, uint32_t *room, size_t size)
{
	if (used < *room)
		return 0;
	uint64_t more = *room ? (uint64_t)*room * 2 : 64;
	void *grown = more < UINT32_MAX ? mem_grow(*array, (size_t)more * size) : NULL;
	if (!grown)
		return err_set(CAIRN_E_NOMEM, "no memory for a table of %llu rows", (unsigned long long)more);
	*array = grown;
	*room = (uint32_t)more;
	return 0;
}

uint32_t fsck_space(struct fsck *fsck, const uint8_t id[32])
{
	/* Parts of a space lie together: the last one first. */
	for (uint32_t i = fsck->nspaces; i-- > 0;)
		if (!memcmp(fsck->spaces[i], id, 32))
			return i;
	void *spaces = fsck->spaces;
	int error = fsck_grow(&spaces, fsck->nspaces, &fsck->spaces_room, 32);
	fsck->spaces = spaces;
	if (error)
		return UINT32_MAX;
	memcpy(fsck->spaces[fsck->nspaces], id, 32);
	return fsck->nspaces++;
}

int fsck_blank(const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i])
			return 0;
	return 1;
}

/* ---- lock -------------------------------------------------------------------------------------------------------- */

/* The lock that an open takes; shared with readers where nothing is written. */
static int lock_take(struct fsck *fsck)
{
	int write = fsck->options.repair;
	fsck->dir_fd = open(fsck->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fsck->dir_fd < 0)
		return err_set(errno == ENOTDIR ? CAIRN_E_NOTSTORE : err_from_errno(errno), "cannot open the store %s: %s",
		               fsck->path, strerror(errno));
	fsck->lock_fd = openat(fsck->dir_fd, "lock", (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
	if (fsck->lock_fd < 0 && errno != ENOENT)
		return err_set(err_from_errno(errno), "cannot open %s/lock: %s", fsck->path, strerror(errno));
	if (fsck->lock_fd < 0)
		return 0; /* made when the identity is known: nothing is written into a directory that is no store */
	if (flock(fsck->lock_fd, (write ? LOCK_EX : LOCK_SH) | LOCK_NB)) {
		char owner[24] = "";
		ssize_t n = pread(fsck->lock_fd, owner, sizeof(owner) - 1, 0);
		owner[n > 0 ? n : 0] = 0;
		owner[strcspn(owner, "\n")] = 0;
		return err_set(CAIRN_E_OWNED, "%s is open in %s %s: end it first", fsck->path,
		               owner[0] ? "process" : "another process", owner);
	}
	return 0;
}

/* Before the first write, where there was no lock file. */
static int lock_make(struct fsck *fsck)
{
	if (fsck->lock_fd < 0) {
		fsck->lock_fd = openat(fsck->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
		if (fsck->lock_fd < 0)
			return err_set(err_from_errno(errno), "cannot make %s/lock: %s", fsck->path, strerror(errno));
		if (flock(fsck->lock_fd, LOCK_EX | LOCK_NB))
			return err_set(CAIRN_E_OWNED, "%s is open in another process: end it first", fsck->path);
	}
	char text[24];
	int n = snprintf(text, sizeof(text), "%lu\n", (unsigned long)getpid());
	/* For the error text of others alone: the lock itself is what counts. */
	if (ftruncate(fsck->lock_fd, 0) || pwrite(fsck->lock_fd, text, (size_t)n, 0) < 0)
		errno = 0;
	return 0;
}

/* ---- identity ---------------------------------------------------------------------------------------------------- */

static void inside_path(const struct fsck *fsck, uint32_t index, char out[256])
{
	if (index)
		(void)snprintf(out, 256, "%.*s/flash-%u.cairn", PATH_BYTES_MAX, fsck->path, index);
	else
		(void)snprintf(out, 256, "%.*s/flash.cairn", PATH_BYTES_MAX, fsck->path);
}

/* As an open finds a device. */
static void device_path(const struct fsck *fsck, uint32_t index, const char *path, char out[256])
{
	struct stat info;
	size_t length = strnlen(path, 255);
	if (!length) {
		inside_path(fsck, index, out);
		return;
	}
	memcpy(out, path, length);
	out[length] = 0;
	if (length < 240 && !stat(out, &info) && S_ISDIR(info.st_mode))
		memcpy(out + length, "/flash.cairn", 13);
}

static int identity_copies(struct fsck *fsck, const uint8_t *bytes)
{
	struct fmt_ident ident[2];
	int result[2], found = 0;
	const uint8_t *second = bytes + IDENT_COPY_BYTES;
	for (uint64_t copy = 0; copy < 2; copy++) {
		result[copy] = ident_decode(bytes + copy * IDENT_COPY_BYTES, IDENT_COPY_BYTES, &ident[copy]);
		if (result[copy] == FMT_NEWER || (result[copy] == FMT_OK && fsck->options.repair &&
		                                  ident[copy].bits.ro_compat & ~FMT_RO_COMPAT_KNOWN))
			return err_set(CAIRN_E_VERSION, "%s was written by a newer cairn: use that one's fsck", fsck->path);
	}
	for (int copy = 0; copy < 2; copy++) {
		fsck->ident_good[copy] = result[copy] == FMT_OK && !(found && memcmp(bytes, second, IDENT_COPY_BYTES));
		if (result[copy] == FMT_OK && !found)
			fsck->ident = ident[copy];
		found |= result[copy] == FMT_OK;
	}
	for (int copy = 0; copy < 2; copy++) {
		if (fsck->ident_good[copy])
			continue;
		fsck->report->identity_copies_damaged++;
		if (found)
			fsck_tell(fsck, FSCK_MENDABLE, NULL, (uint64_t)copy * IDENT_COPY_BYTES,
			          result[copy] == FMT_OK ? "cairn.id: its second copy is an older one"
			                                 : "cairn.id: one copy is damaged; the other is good");
	}
	return found;
}

/* 1: fsck->ident is what cairn.id says; 0: it is lost. */
static int identity_read(struct fsck *fsck)
{
	char path[sizeof(fsck->path) + 16];
	struct io *io;
	uint64_t size = 0, free, all;
	(void)snprintf(path, sizeof(path), "%s/cairn.id", fsck->path);
	int error = fsck->maker->open(fsck->maker->arg, path, IO_OPEN_READONLY | IO_OPEN_BLOCKING, 1, &io);
	if (error == -ENOENT)
		return 0;
	if (error)
		return err_set(err_from_errno(-error), "cannot open %s: %s", path, strerror(-error));
	uint8_t *bytes = mem_aligned(FMT_PAGE, IDENT_BYTES);
	error = bytes ? 0 : err_set(CAIRN_E_NOMEM, "no memory to check %s", fsck->path);
	if (!error && !io->ops->space(io, &size, &free, &all)) {
		fsck->report->bytes_all += size;
		for (uint64_t at = 0; at + FMT_PAGE <= IDENT_BYTES && at + FMT_PAGE <= size; at += FMT_PAGE) {
			fsck->report->bytes_read += FMT_PAGE;
			if (io->ops->pread(io, bytes + at, FMT_PAGE, at)) {
				memset(bytes + at, DISK_UNREADABLE, FMT_PAGE);
				fsck->report->io_errors++;
			}
		}
	}
	io->ops->close(io);
	int found = error ? error : identity_copies(fsck, bytes);
	mem_free(bytes);
	return found;
}

static int is_device_name(const char *name)
{
	size_t length = strlen(name);
	return !strncmp(name, "flash", 5) && length > 6 && !strcmp(name + length - 6, ".cairn");
}

struct found { /* a device that may be this store's */
	char path[256];  /* 0-terminated */
	char given[256]; /* as the caller names it, and will at the next open; "": it is inside the directory */
	struct fmt_label label;
	uint64_t size;
	int labelled;
};

/* What a file says of itself. 1: it is a device; 0: it shows no sign of being one. */
static int found_look(struct fsck *fsck, struct found *found)
{
	struct disk disk = {.fsck = fsck, .index = 0};
	memcpy(disk.path, found->path, sizeof(disk.path));
	const char *slash = strrchr(disk.path, '/');
	disk.name = slash ? slash + 1 : disk.path;
	if (fsck->maker->open(fsck->maker->arg, disk.path, IO_OPEN_READONLY | IO_OPEN_BLOCKING, 1, &disk.io))
		return 0;
	uint64_t free, all;
	if (disk.io->ops->space(disk.io, &disk.size, &free, &all))
		disk.size = 0;
	found->size = disk.size;
	int result = disk_label_peek(&disk, &found->label);
	found->labelled = result == 1;
	if (!result)
		result = disk_find_id(&disk, found->label.device_id);
	disk_close(&disk);
	return result;
}

/* The number in flash-N.cairn; 0 for flash.cairn. */
static uint32_t name_index(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	uint32_t index = 0;
	if (strncmp(name, "flash-", 6))
		return 0;
	for (name += 6; *name >= '0' && *name <= '9' && index < FMT_DEVICES_MAX; name++)
		index = index * 10 + (uint32_t)(*name - '0');
	return index;
}

static int found_list(struct fsck *fsck, struct found *found, uint32_t *ret_n, int *ret_foreign)
{
	uint32_t n = 0;
	int fd = openat(fsck->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		if (fd >= 0)
			close(fd);
		return err_set(err_from_errno(errno), "cannot list %s: %s", fsck->path, strerror(errno));
	}
	for (struct dirent *each; (each = readdir(dir)) && !error && n < NEWS_MAX;) {
		const char *name = each->d_name;
		if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, "lock") || !strcmp(name, "lost+found") ||
		    !strncmp(name, "cairn.id", 8) || !strncmp(name, "cairn.gone", 10))
			continue;
		*ret_foreign |= !is_device_name(name);
		if (!is_device_name(name) || strlen(name) > 32)
			continue;
		(void)snprintf(found[n].path, sizeof(found[n].path), "%.*s/%.*s", PATH_BYTES_MAX, fsck->path, 32, name);
		int result = found_look(fsck, &found[n]);
		error = result < 0 ? result : 0;
		n += result > 0;
	}
	closedir(dir);
	for (uint32_t i = 0; i < fsck->options.ndevices && !error && n < NEWS_MAX; i++) {
		const char *given = fsck->options.devices[i];
		if (!given || !given[0] || strlen(given) > IDENT_PATH_MAX)
			continue;
		memcpy(found[n].given, given, strlen(given) + 1);
		device_path(fsck, 0, given, found[n].path);
		int result = found_look(fsck, &found[n]);
		error = result < 0 ? result : 0;
		n += result > 0;
	}
	*ret_n = n;
	return error;
}

/* The identity that the devices found have in common: the store of the first label, its devices by their indexes. */
static void identity_build(struct fsck *fsck, const struct found *found, uint32_t n)
{
	struct fmt_ident *ident = &fsck->ident;
	uint8_t taken[FMT_DEVICES_MAX] = {0};
	const struct found *first = &found[0];
	memset(ident, 0, sizeof(*ident));
	for (uint32_t i = 0; i < n; i++)
		if (found[i].labelled && (!first->labelled || found[i].label.device_index < first->label.device_index))
			first = &found[i];
	ident->version = FMT_VERSION;
	ident->created_at_s = clock_wall_s(fsck->maker->clock);
	if (first->labelled)
		memcpy(ident->store_id, first->label.store_id, 16);
	else
		digest_random(ident->store_id, 16);
	for (uint32_t i = 0; i < n; i++) {
		const struct fmt_label *label = &found[i].label;
		uint32_t index = found[i].labelled ? label->device_index : name_index(found[i].path);
		char inside[256];
		if (index >= FMT_DEVICES_MAX || taken[index] ||
		    (found[i].labelled && memcmp(label->store_id, ident->store_id, 16)))
			continue;
		struct ident_device *device = &ident->device[index];
		taken[index] = 1;
		memcpy(device->device_id, label->device_id, 16);
		uint64_t least = found[i].labelled ? label->segments_offset + 4ull * label->segment_bytes : 64ull << 20;
		device->budget_bytes = found[i].size > least ? found[i].size : least;
		inside_path(fsck, index, inside);
		if (found[i].given[0])
			memcpy(device->path, found[i].given, sizeof(device->path));
		else if (strcmp(inside, found[i].path))
			memcpy(device->path, found[i].path, sizeof(device->path));
		if (index >= ident->ndevices)
			ident->ndevices = index + 1;
	}
	for (uint32_t i = 0; i < ident->ndevices; i++) /* never to be found: a device that is added gets another place */
		if (!taken[i]) {
			digest_random(ident->device[i].device_id, 16);
			ident->device[i].budget_bytes = 64ull << 20;
		}
}

static int identity_search(struct fsck *fsck)
{
	struct found *found = mem_array(NEWS_MAX, sizeof(*found));
	uint32_t n = 0;
	struct stat info;
	int foreign = 0, there = !fstatat(fsck->dir_fd, "cairn.id", &info, AT_SYMLINK_NOFOLLOW);
	int error = found ? 0 : err_set(CAIRN_E_NOMEM, "no memory to check %s", fsck->path);
	if (!error)
		error = found_list(fsck, found, &n, &foreign);
	if (!error && !n && !there)
		error = foreign ? err_set(CAIRN_E_NOTSTORE, "%s is not a cairn store", fsck->path)
		                : err_set(CAIRN_E_NOENT, "%s is empty: there is no cairn store", fsck->path);
	if (!error && !n) {
		fsck->report->identity_copies_damaged = 2;
		fsck_tell(fsck, FSCK_STUCK, NULL, 0, "cairn.id is damaged in both copies, and no device tells what it said");
	} else if (!error) {
		identity_build(fsck, found, n);
		fsck->ident_lost = 1;
		fsck->report->identity_copies_damaged = 2;
		fsck_tell(fsck, FSCK_MENDABLE, NULL, 0,
		          "cairn.id is lost in both copies; the labels of %u devices tell what it said, but for the budgets: "
		          "give them at the next open", n);
	}
	mem_free(found);
	return error;
}

static int identity_write(struct fsck *fsck, const char *name, uint32_t flags, const uint8_t *bytes, uint64_t from,
                          uint64_t length)
{
	char path[256];
	struct io *io;
	(void)snprintf(path, sizeof(path), "%.*s/%s", PATH_BYTES_MAX, fsck->path, name);
	int error = fsck->maker->open(fsck->maker->arg, path, flags | IO_OPEN_BLOCKING, 1, &io);
	if (!error) {
		error = io->ops->pwrite(io, bytes + from, length, from);
		if (!error)
			error = io->ops->sync(io);
		io->ops->close(io);
	}
	return error ? err_set(err_from_errno(-error), "cannot write %s: %s", path, strerror(-error)) : 0;
}

static int identity_mend(struct fsck *fsck)
{
	uint8_t *bytes = mem_aligned(FMT_PAGE, IDENT_BYTES);
	int error = bytes ? 0 : err_set(CAIRN_E_NOMEM, "no memory to mend %s", fsck->path);
	if (!error)
		ident_encode(&fsck->ident, bytes);
	if (!error && fsck->ident_lost) {
		error = identity_write(fsck, "cairn.id.new", IO_OPEN_CREATE, bytes, 0, IDENT_BYTES);
		if (!error && (renameat(fsck->dir_fd, "cairn.id.new", fsck->dir_fd, "cairn.id") || fsync(fsck->dir_fd)))
			error = err_set(err_from_errno(errno), "cannot write %s/cairn.id: %s", fsck->path, strerror(errno));
		fsck->report->rebuilt += !error;
		if (!error)
			fsck_tell(fsck, FSCK_DONE, NULL, 0, "cairn.id is made anew");
	}
	for (uint64_t copy = 0; copy < 2 && !error && !fsck->ident_lost; copy++) {
		if (fsck->ident_good[copy])
			continue;
		error = identity_write(fsck, "cairn.id", 0, bytes, copy * IDENT_COPY_BYTES, IDENT_COPY_BYTES);
		fsck->report->repaired_copies += !error;
		if (!error)
			fsck_tell(fsck, FSCK_DONE, NULL, copy * IDENT_COPY_BYTES, "cairn.id: a copy is restored from the other");
	}
	mem_free(bytes);
	return error;
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static int disk_start(struct fsck *fsck, uint32_t index)
{
	struct disk *disk = &fsck->disks[index];
	disk->fsck = fsck;
	disk->index = index;
	device_path(fsck, index, fsck->ident.device[index].path, disk->path);
	fsck->report->devices++;
	int error = disk_open(disk);
	if (!error && disk->io)
		error = disk_label(disk);
	if (!error && disk->io)
		error = log_read(disk, 1);
	if (!error && disk->io)
		error = walk_run(disk);
	fsck->report->devices_missing += !error && !disk->io && !disk->unfinished;
	return error;
}

static int store_check(struct fsck *fsck)
{
	int error = 0;
	for (uint32_t i = 0; i < fsck->ident.ndevices && !error; i++) {
		fsck->ndisks = i + 1;
		error = disk_start(fsck, i);
	}
	if (!error)
		error = log_reconcile(fsck);
	for (uint32_t i = 0; i < fsck->ndisks && !error; i++)
		if (fsck->disks[i].io)
			error = parts_run(&fsck->disks[i]);
	return error ? error : sessions_run(fsck);
}

static int store_mend(struct fsck *fsck)
{
	int error = lock_make(fsck);
	for (uint32_t i = 0; i < fsck->ndisks && !error; i++) {
		if (!fsck->disks[i].io)
			continue;
		error = fsck_step(fsck, &fsck->disks[i], "repair", 0);
		if (!error)
			error = mend_run(&fsck->disks[i]);
	}
	/* Last: a store whose identity is lost does not open, so nobody meets its devices half mended. */
	return error ? error : identity_mend(fsck);
}

static int notes_only(const struct fsck *fsck)
{
	if (fsck->report->problems)
		return 0;
	for (uint32_t i = 0; i < fsck->ndisks; i++) /* a page that a crash left in one copy is completed all the same */
		if (fsck->disks[i].io && fsck->disks[i].log.halves)
			return 0;
	return 1;
}

static void store_end(struct fsck *fsck)
{
	for (uint32_t i = 0; i < fsck->ndisks; i++) {
		struct disk *disk = &fsck->disks[i];
		disk_close(disk);
		log_free(&disk->log);
		mem_free(disk->segs);
		mem_free(disk->parts);
		mem_free(disk->gaps);
	}
	mem_free(fsck->spaces);
	mem_free(fsck->chunk);
	if (fsck->lock_fd >= 0)
		close(fsck->lock_fd);
	if (fsck->dir_fd >= 0)
		close(fsck->dir_fd);
}

static int store_run(struct fsck *fsck)
{
	const struct fsck_report *report = fsck->report;
	fsck->chunk = mem_aligned(FMT_PAGE, DISK_CHUNK);
	if (!fsck->chunk)
		return err_set(CAIRN_E_NOMEM, "no memory to check %s", fsck->path);
	int error = lock_take(fsck);
	int found = error ? error : identity_read(fsck);
	if (!found)
		found = identity_search(fsck);
	error = found < 0 ? found : store_check(fsck);
	if (error)
		return error;
	int problems = report->problems > 0;
	if (fsck->options.repair && !notes_only(fsck))
		error = store_mend(fsck);
	if (error)
		return error;
	if (!problems)
		return FSCK_CLEAN;
	return fsck->options.repair && !report->stuck ? FSCK_REPAIRED : FSCK_DAMAGED;
}

int fsck_run_with(const struct fsck_options *options, const struct io_maker *maker, struct fsck_report *ret_report)
{
	if (!options || !ret_report || !options->size || options->size > 4096)
		return err_set(CAIRN_E_INVAL, "fsck: no options or report, or options.size is not set");
	memset(ret_report, 0, sizeof(*ret_report));
	struct fsck *fsck = mem_alloc(sizeof(*fsck));
	if (!fsck)
		return err_set(CAIRN_E_NOMEM, "no memory for fsck");
	memcpy(&fsck->options, options, options->size < sizeof(*options) ? options->size : sizeof(*options));
	fsck->report = ret_report;
	fsck->maker = maker;
	fsck->dir_fd = fsck->lock_fd = -1;
	const char *path = fsck->options.path ? fsck->options.path : "";
	path = strncmp(path, "dir:", 4) ? path : path + 4;
	int result;
	if (!path[0] || strlen(path) > PATH_BYTES_MAX) {
		result = err_set(CAIRN_E_INVAL, "a store's path has 1 to %d bytes", PATH_BYTES_MAX);
	} else {
		memcpy(fsck->path, path, strlen(path) + 1);
		result = store_run(fsck);
	}
	store_end(fsck);
	mem_free(fsck);
	return result;
}

int fsck_run(const struct fsck_options *options, struct fsck_report *ret_report)
{
	return fsck_run_with(options, &io_maker_real, ret_report);
}
