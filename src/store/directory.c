/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store's directory. One owner: an flock on the file `lock`, which also names the owner's process for the error text.
 * The identity file is written aside and renamed when new, and copy after copy when changed.
 *
 * Threads: the opening one. Memory: buffers while it runs.
 */
#include "store/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "cairn/cairn.h"
#include "fmt/gone.h"
#include "store/catalog.h"

static int ident_path(const char *path, const char *name, char out[PATH_MAX])
{
	size_t length = strlen(path);
	check(length + strlen(name) + 2 < PATH_MAX);
	memcpy(out, path, length);
	out[length] = '/';
	memcpy(out + length + 1, name, strlen(name) + 1);
	return 0;
}

void directory_close(int dir_fd, int lock_fd)
{
	if (lock_fd >= 0)
		close(lock_fd);
	if (dir_fd >= 0)
		close(dir_fd);
}

int directory_daemon(const char *path, char *ret_place, size_t max)
{
	char file[PATH_MAX];
	ident_path(path, "daemon", file);
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	ssize_t n = fd < 0 || max < 8 ? -1 : read(fd, ret_place + 5, max - 6);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return -1;
	memcpy(ret_place, "unix:", 5);
	ret_place[n + 5] = 0;
	ret_place[strcspn(ret_place, "\n")] = 0;
	return 0;
}

static void decimal(unsigned long value, char out[24])
{
	char digits[24];
	int n = 0;
	do
		digits[n++] = (char)('0' + value % 10);
	while (value /= 10);
	for (int i = 0; i < n; i++)
		out[i] = digits[n - 1 - i];
	out[n] = '\n';
	out[n + 1] = 0;
}

enum { LOCK_TRIES = 20 };

static int lock_take(const char *path, int dir_fd, uint32_t flags, int *ret_fd)
{
	int readonly = (flags & CAIRN_OPEN_READONLY) != 0;
	int fd = openat(dir_fd, "lock", (readonly ? O_RDONLY : O_RDWR | O_CREAT) | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 && readonly && errno == ENOENT) {
		*ret_fd = -1; /* nobody could own it, and nobody can */
		return 0;
	}
	if (fd < 0)
		return err_set(err_from_errno(errno), "cannot open %s/lock: %s%s", path, strerror(errno),
		               errno == EROFS ? ": what is there can be read, nothing can be put" : "");
	/* A process that was killed lets go only when its last I/O has ended. */
	int held = flock(fd, (readonly ? LOCK_SH : LOCK_EX) | LOCK_NB);
	for (int tries = 0; held && tries < LOCK_TRIES; tries++) {
		(void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
		held = flock(fd, (readonly ? LOCK_SH : LOCK_EX) | LOCK_NB);
	}
	if (held) {
		char owner[24] = "";
		/* Shared with readers, it is not a writer that holds it; the number in the file is then of the last one. */
		int reading = !readonly && !flock(fd, LOCK_SH | LOCK_NB);
		ssize_t n = reading ? 0 : pread(fd, owner, sizeof(owner) - 1, 0);
		owner[n > 0 ? n : 0] = 0;
		owner[strcspn(owner, "\n")] = 0;
		close(fd);
		if (reading)
			return err_set(CAIRN_E_OWNED, "%s is being read by another process: wait for it, or end it", path);
		return err_set(CAIRN_E_OWNED, "%s is open in %s%s: end it first, or use another directory", path,
		               owner[0] ? "process " : "another process", owner);
	}
	if (!readonly) {
		char text[24];
		decimal((unsigned long)getpid(), text);
		/* For the text above alone: the lock itself is what counts. */
		if (ftruncate(fd, 0) || pwrite(fd, text, strlen(text), 0) < 0)
			errno = 0;
	}
	*ret_fd = fd;
	return 0;
}

static int is_device_name(const char *name)
{
	size_t length = strlen(name);
	return !strncmp(name, "flash", 5) && length > 6 && !strcmp(name + length - 6, ".cairn");
}

/* A directory without an identity: empty (or the rest of a first open that was interrupted), or somebody else's. */
static int unidentified(const char *path, int dir_fd, uint32_t flags)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		int error = errno;
		if (fd >= 0)
			close(fd);
		return err_set(err_from_errno(error), "cannot list %s: %s", path, strerror(error));
	}
	char foreign[64] = "";
	int labelled = 0;
	for (struct dirent *each; (each = readdir(dir));) {
		const char *name = each->d_name;
		if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, "lock") || !strcmp(name, "cairn.id.new") ||
		    !strncmp(name, "cairn.gone", 10) || !strcmp(name, "lost+found") || !strncmp(name, "tokens", 6) ||
		    !strncmp(name, "tls.pem", 7)) /* who is to be served, and with which key, may have been put there before */
			continue;
		if (is_device_name(name)) {
			uint8_t head[8] = {0};
			int device = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
			labelled |= device >= 0 && pread(device, head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
			            memcmp(head, "\0\0\0\0\0\0\0\0", 8);
			if (device >= 0)
				close(device);
			continue;
		}
		size_t length = strnlen(name, sizeof(foreign) - 1);
		if (!foreign[0])
			memcpy(foreign, name, length); /* the last byte stays 0 */
	}
	closedir(dir);
	if (labelled)
		return err_set(CAIRN_E_CORRUPT, "%s has a flash device but no identity file: run cairn fsck --repair", path);
	if (foreign[0])
		return err_set(CAIRN_E_NOTSTORE, "%s is not a cairn store (it holds %s): give an empty directory", path,
		               foreign);
	if (!(flags & CAIRN_OPEN_CREATE))
		return err_set(CAIRN_E_NOENT, "%s is empty: there is no cairn store", path);
	return 0;
}

static int ident_read(const char *path, const struct io_maker *maker, uint32_t flags, struct fmt_ident *ret_ident,
                      int *ret_fresh)
{
	char file[PATH_MAX];
	struct io *io;
	ident_path(path, "cairn.id", file);
	/* Read only also where the store is not: it is written by directory_write_ident. */
	int error = maker->open(maker->arg, file, IO_OPEN_READONLY | IO_OPEN_BLOCKING, 1, &io);
	if (error == -ENOENT) {
		*ret_fresh = 1;
		return 0;
	}
	if (error)
		return err_set(err_from_errno(-error), "cannot open %s: %s", file, strerror(-error));
	uint8_t *bytes = mem_aligned(4096, IDENT_BYTES);
	uint64_t size = 0, free, all;
	if (!bytes)
		error = err_set(CAIRN_E_NOMEM, "no memory to open %s", path);
	else if (io->ops->space(io, &size, &free, &all) || size < IDENT_COPY_BYTES)
		error = err_set(CAIRN_E_CORRUPT, "%s is cut short: run cairn fsck --repair", file);
	else {
		int bad = FMT_BAD;
		for (uint64_t copy = 0; copy < 2 && bad == FMT_BAD; copy++) { /* one unreadable copy leaves the other */
			if (size < (copy + 1) * IDENT_COPY_BYTES ||
			    io->ops->pread(io, bytes + copy * IDENT_COPY_BYTES, IDENT_COPY_BYTES, copy * IDENT_COPY_BYTES))
				memset(bytes + copy * IDENT_COPY_BYTES, 0, IDENT_COPY_BYTES);
			bad = ident_decode(bytes, (copy + 1) * IDENT_COPY_BYTES, ret_ident);
		}
		if (bad == FMT_NEWER)
			error = err_set(CAIRN_E_VERSION, "%s was written by a newer cairn: upgrade this one", path);
		else if (bad != FMT_OK)
			error = err_set(CAIRN_E_CORRUPT, "%s is damaged in both copies: run cairn fsck --repair", file);
		else if ((ret_ident->bits.ro_compat & ~FMT_RO_COMPAT_KNOWN) && !(flags & CAIRN_OPEN_READONLY))
			error = err_set(CAIRN_E_RDONLY,
			                "%s was written by a newer cairn, this one may only read it: open it"
			                " read-only, or upgrade",
			                path);
	}
	mem_free(bytes);
	io->ops->close(io);
	return error;
}

/* A directory that was just made outlasts a power loss from here on, where its file system can do that. */
static void parent_sync(const char *path)
{
	char parent[PATH_MAX];
	size_t length = strlen(path);
	while (length && path[length - 1] == '/')
		length--;
	while (length && path[length - 1] != '/')
		length--;
	memcpy(parent, path, length);
	memcpy(parent + length, ".", 2);
	int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		(void)fsync(fd);
		close(fd);
	}
}

int directory_open(const char *path, const struct io_maker *maker, uint32_t flags, int *ret_dir_fd, int *ret_lock_fd,
                   struct fmt_ident *ret_ident, int *ret_fresh)
{
	int error = 0;
	*ret_fresh = 0;
	if (!maker->threaded) {
		error = ident_read(path, maker, flags, ret_ident, ret_fresh);
		return !error && *ret_fresh && !(flags & CAIRN_OPEN_CREATE)
		           ? err_set(CAIRN_E_NOENT, "%s: there is no cairn store", path)
		           : error;
	}
	if ((flags & CAIRN_OPEN_CREATE) && !(flags & CAIRN_OPEN_READONLY)) {
		int made = !mkdir(path, 0755);
		if (!made && errno != EEXIST)
			return err_set(err_from_errno(errno), "cannot make %s: %s", path, strerror(errno));
		if (made)
			parent_sync(path);
	}
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOTDIR)
		return err_set(CAIRN_E_NOTSTORE, "%s is not a directory: a store is one", path);
	if (fd < 0)
		return err_set(err_from_errno(errno), "cannot open the store %s: %s", path, strerror(errno));
	*ret_dir_fd = fd;
	struct stat info;
	/* The lock first where there is one: its owner may be making the store at this moment. */
	if (!fstatat(fd, "lock", &info, AT_SYMLINK_NOFOLLOW))
		error = lock_take(path, fd, flags, ret_lock_fd);
	if (!error && fstatat(fd, "cairn.id", &info, AT_SYMLINK_NOFOLLOW))
		error = unidentified(path, fd, flags);
	if (!error && *ret_lock_fd < 0)
		error = lock_take(path, fd, flags, ret_lock_fd);
	return error ? error : ident_read(path, maker, flags, ret_ident, ret_fresh);
}

int directory_write_ident(const char *path, const struct io_maker *maker, int dir_fd, const struct fmt_ident *ident,
                          int fresh)
{
	char file[PATH_MAX];
	struct io *io;
	const char *name = fresh && maker->threaded ? "cairn.id.new" : "cairn.id";
	ident_path(path, name, file);
	uint8_t *bytes = mem_aligned(4096, IDENT_BYTES);
	if (!bytes)
		return err_set(CAIRN_E_NOMEM, "no memory to write %s", file);
	ident_encode(ident, bytes);
	int error = maker->open(maker->arg, file, IO_OPEN_BLOCKING | (fresh ? IO_OPEN_CREATE : 0), 1, &io);
	if (!error) {
		/* One copy is whole at every moment. */
		for (uint64_t copy = 0; copy < 2 && !error; copy++) {
			uint64_t offset = copy * IDENT_COPY_BYTES;
			error = io->ops->pwrite(io, bytes + offset, IDENT_COPY_BYTES, offset);
			if (!error)
				error = io->ops->sync(io);
		}
		io->ops->close(io);
	}
	mem_free(bytes);
	if (!error && fresh && maker->threaded && renameat(dir_fd, "cairn.id.new", dir_fd, "cairn.id"))
		error = -errno;
	if (!error && maker->threaded && fsync(dir_fd))
		error = -errno;
	return error ? err_set(err_from_errno(-error), "cannot write %s: %s", file, strerror(-error)) : 0;
}

void directory_load_gone(const char *path, const struct io_maker *maker, struct catalog *catalog)
{
	char file[PATH_MAX];
	struct io *io;
	uint64_t size = 0, free, all;
	ident_path(path, "cairn.gone", file);
	if (maker->open(maker->arg, file, IO_OPEN_READONLY | IO_OPEN_BLOCKING, 1, &io))
		return;
	struct gone_cell *cells = mem_array(GONE_CELLS_MAX, sizeof(*cells));
	uint8_t *bytes = NULL;
	uint32_t n = 0;
	if (!io->ops->space(io, &size, &free, &all) && size >= GONE_HEAD_BYTES && size <= gone_size(GONE_CELLS_MAX))
		bytes = mem_aligned(4096, size);
	if (cells && bytes && size % FMT_PAGE == 0 && !io->ops->pread(io, bytes, size, 0) &&
	    gone_decode(bytes, size, cells, &n) == FMT_OK)
		for (uint32_t i = 0; i < n; i++)
			catalog_remember(catalog, cells[i].print,
			                 &(struct catalog_memory){.reason = cells[i].reason, .tier = cells[i].tier,
			                                          .uses = cells[i].uses, .when_s = cells[i].when_s});
	mem_free(cells);
	mem_free(bytes);
	io->ops->close(io);
}

void directory_save_gone(const char *path, const struct io_maker *maker, int dir_fd, uint32_t version,
                         const struct catalog *catalog)
{
	char file[PATH_MAX];
	struct io *io;
	struct catalog_memory memory;
	uint32_t cursor = 0, n = 0;
	struct gone_cell *cells = mem_array(GONE_CELLS_MAX, sizeof(*cells));
	while (cells && n < GONE_CELLS_MAX && catalog_memories(catalog, &cursor, &cells[n].print, &memory)) {
		cells[n].when_s = (uint32_t)memory.when_s;
		cells[n].uses = (uint16_t)memory.uses;
		cells[n].tier = (uint8_t)memory.tier;
		cells[n++].reason = (uint8_t)memory.reason;
	}
	uint8_t *bytes = n ? mem_aligned(4096, gone_size(n)) : NULL;
	ident_path(path, maker->threaded ? "cairn.gone.new" : "cairn.gone", file);
	if (bytes && !maker->open(maker->arg, file, IO_OPEN_CREATE | IO_OPEN_BLOCKING, 1, &io)) {
		gone_encode(cells, n, version, bytes);
		int error = io->ops->pwrite(io, bytes, gone_size(n), 0);
		io->ops->close(io);
		if (!error && maker->threaded && renameat(dir_fd, "cairn.gone.new", dir_fd, "cairn.gone"))
			(void)unlinkat(dir_fd, "cairn.gone.new", 0);
	}
	mem_free(cells);
	mem_free(bytes);
}
