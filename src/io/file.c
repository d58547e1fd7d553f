/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open file or raw block device, for the engines: opening it, O_DIRECT or not, blocking transfers, its room.
 *
 * Threads: as file.h says; `direct` is the only field that changes after open. Memory: none.
 * Invariant: a device that is a raw disk is opened for writing only if nobody else has it: no mount, no other store.
 */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "io/thread.h"

enum { LOCK_TRIES = 20 }; /* 10 ms apart */

/* ---- fault hooks ------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t fail_left; /* 0: off; 1: the next one */
static _Atomic int fail_errno, fail_all, fail_seen, fail_fdatasync;
static _Atomic uint64_t call_limit;

void file_fail_at(uint64_t n, int errnum, int all)
{
	fail_errno = errnum;
	fail_all = all;
	fail_seen = 0;
	fail_left = n;
}

int file_failed(void)
{
	return fail_seen;
}

void file_fail_fdatasync(int errnum)
{
	fail_fdatasync = errnum;
}

void file_limit_call(uint64_t bytes)
{
	call_limit = bytes;
}

int file_fail_count(void)
{
	uint64_t left = fail_left, next;
	do {
		if (left == 0)
			return 0;
		next = left > 1 ? left - 1 : fail_all ? 1 : 0;
	} while (!atomic_compare_exchange_weak(&fail_left, &left, next));
	if (left > 1)
		return 0;
	fail_seen = 1;
	return -fail_errno;
}

int file_fail_sync(void)
{
	return -atomic_exchange(&fail_fdatasync, 0);
}

uint64_t file_call_max(void)
{
	return call_limit ? call_limit : FILE_CALL_MAX;
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

int file_vec_rest(const struct io_vec *vec, uint32_t nvec, uint64_t moved, uint64_t room,
                  struct iovec rest[IO_VEC_MAX])
{
	int count = 0;
	for (uint32_t i = 0; i < nvec && room > 0; i++) {
		uint64_t length = vec[i].length;
		if (moved >= length) {
			moved -= length;
			continue;
		}
		length -= moved;
		if (length > room)
			length = room;
		rest[count++] = (struct iovec){(char *)vec[i].address + moved, length};
		room -= length;
		moved = 0;
	}
	return count;
}

uint64_t file_vec_total(const struct io_vec *vec, uint32_t nvec)
{
	uint64_t total = 0;
	for (uint32_t i = 0; i < nvec; i++)
		total += vec[i].length;
	return total;
}

void file_req_check(const struct io_req *req)
{
	check(req->op == IO_READ || req->op == IO_WRITE || req->op == IO_FLUSH);
	if (req->op == IO_FLUSH)
		return;
	check(req->nvec >= 1 && req->nvec <= IO_VEC_MAX && req->offset % IO_ALIGN == 0);
	for (uint32_t i = 0; i < req->nvec; i++)
		check(req->vec[i].length > 0 && req->vec[i].length % IO_ALIGN == 0 &&
		      (uintptr_t)req->vec[i].address % IO_ALIGN == 0);
}

int file_may_transfer(const struct file *file, uint32_t op, uint64_t offset, uint64_t total)
{
	if (offset > INT64_MAX || total > INT64_MAX - offset)
		return -EINVAL;
	return op == IO_WRITE && file->readonly ? -EROFS : 0;
}

/* The flag is cleared before O_DIRECT is: whoever was served without O_DIRECT sees the flag cleared. */
static void direct_drop(struct file *file)
{
	file->direct = 0;
	int flags = fcntl(file->fd, F_GETFL);
	if (flags >= 0)
		(void)fcntl(file->fd, F_SETFL, flags & ~O_DIRECT);
}

int64_t file_moved(struct file *file, int64_t result, uint32_t *refused)
{
	if (result == -EINTR || result == -EAGAIN)
		return -EAGAIN;
	if (result == -EINVAL && file->opened_direct && !*refused) {
		direct_drop(file);
		*refused = 1;
		return -EAGAIN;
	}
	if (result < 0)
		return result;
	if (file->direct)
		result -= result % IO_ALIGN; /* O_DIRECT goes on from an aligned place only */
	return result ? result : -EIO;
}

int file_transfer(struct file *file, uint32_t op, const struct io_vec *vec, uint32_t nvec, uint64_t offset)
{
	uint64_t total = file_vec_total(vec, nvec), moved = 0;
	uint32_t refused = 0;
	int error = file_may_transfer(file, op, offset, total);
	while (!error && moved < total) {
		struct iovec rest[IO_VEC_MAX];
		int count = file_vec_rest(vec, nvec, moved, file_call_max(), rest);
		ssize_t now = op == IO_READ ? preadv(file->fd, rest, count, (off_t)(offset + moved))
		                            : pwritev(file->fd, rest, count, (off_t)(offset + moved));
		int64_t counts = file_moved(file, now < 0 ? -errno : now, &refused);
		if (counts > 0)
			moved += (uint64_t)counts;
		else if (counts != -EAGAIN)
			error = (int)counts;
	}
	return error;
}

int file_transfer_range(struct file *file, uint32_t op, void *bytes, uint64_t length, uint64_t offset)
{
	check(offset % IO_ALIGN == 0 && length % IO_ALIGN == 0 && (uintptr_t)bytes % IO_ALIGN == 0);
	int result = file_fail_count();
	while (result == 0 && length > 0) {
		uint32_t now = length < FILE_CALL_MAX ? (uint32_t)length : FILE_CALL_MAX;
		struct io_vec vec = {bytes, now};
		result = file_transfer(file, op, &vec, 1, offset);
		bytes = (char *)bytes + now;
		offset += now;
		length -= now;
	}
	return result;
}

int file_sync(struct file *file)
{
	int result = file_fail_sync();
	while (result == 0 && fdatasync(file->fd) != 0)
		if (errno != EINTR)
			result = -errno;
	return result;
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

static int block_size(int fd, uint64_t *ret_bytes)
{
	return ioctl(fd, BLKGETSIZE64, ret_bytes) == 0 ? 0 : -errno;
}

/* fallocate that may leave the file longer when it fails (ext4 does, on a full disk). */
static int allocate_blocks(int fd, uint64_t offset, uint64_t length)
{
	while (fallocate(fd, 0, (off_t)offset, (off_t)length) != 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

/* 0, or -errno of a change that must not begin. */
static int change_begin(const struct file *file, uint64_t offset, uint64_t length)
{
	int result = file_fail_count();
	if (result < 0)
		return result;
	if (file->readonly)
		return -EROFS;
	return length == 0 || offset > INT64_MAX || length > INT64_MAX - offset ? -EINVAL : 0;
}

int file_allocate(struct file *file, uint64_t offset, uint64_t length)
{
	struct stat before, after;
	uint64_t size = 0;
	int result = change_begin(file, offset, length);
	if (result < 0)
		return result;
	if (file->block) { /* all of its blocks are there, and no others ever */
		result = block_size(file->fd, &size);
		return result < 0 ? result : offset + length <= size ? 0 : -ENOSPC;
	}
	if (fstat(file->fd, &before) != 0)
		return -errno;
	result = allocate_blocks(file->fd, offset, length);
	if (result == -EOPNOTSUPP || result == -ENOSYS) {
		if (offset + length <= (uint64_t)before.st_size)
			return 0;
		return ftruncate(file->fd, (off_t)(offset + length)) == 0 ? 0 : -errno;
	}
	if (result < 0 && fstat(file->fd, &after) == 0 && after.st_size > before.st_size)
		(void)!ftruncate(file->fd, before.st_size);
	return result;
}

int file_punch(struct file *file, uint64_t offset, uint64_t length)
{
	int result = change_begin(file, offset, length);
	if (result < 0)
		return result;
	while (fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)length) != 0)
		if (errno != EINTR)
			return errno == EOPNOTSUPP && file->block ? 0 : -errno;
	return 0;
}

int file_space(struct file *file, uint64_t *size, uint64_t *free, uint64_t *all)
{
	struct stat info;
	struct statvfs system;
	if (file->block) {
		*free = UINT64_MAX;
		int result = block_size(file->fd, size);
		*all = *size;
		return result;
	}
	if (fstat(file->fd, &info) != 0 || fstatvfs(file->fd, &system) != 0)
		return -errno;
	*size = (uint64_t)info.st_size;
	*free = system.f_blocks ? (uint64_t)system.f_bavail * system.f_frsize : UINT64_MAX; /* ramfs tells none */
	*all = (uint64_t)system.f_blocks * system.f_frsize;
	return 0;
}

/* ---- open -------------------------------------------------------------------------------------------------------- */

/* Without this a file that was just made may be gone after a power loss, with all that was flushed into it. */
static int sync_parent(const char *path)
{
	char parent[PATH_MAX];
	const char *slash = strrchr(path, '/');
	size_t length = slash ? (size_t)(slash - path) : 0;
	if (length >= sizeof(parent))
		return -ENAMETOOLONG;
	memcpy(parent, path, length);
	parent[length] = 0;
	const char *name = length ? parent : slash ? "/" : ".";
	int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES ? 0 : -errno; /* may be entered but not read: leave it to the file system */
	int result = fsync(fd) == 0 || errno == EINVAL ? 0 : -errno;
	(void)close(fd);
	return result;
}

/* A process that was killed lets go only when its last I/O has ended; and udev looks at a device, under a lock of its
 * own, whenever a writer has let go of it. */
static int lock_take(int fd, uint32_t flags)
{
	int how = (flags & IO_OPEN_READONLY ? LOCK_SH : LOCK_EX) | LOCK_NB;
	int held = flock(fd, how);
	for (int tries = 0; held && errno == EWOULDBLOCK && tries < LOCK_TRIES; tries++) {
		(void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
		held = flock(fd, how);
	}
	return held ? -errno : 0;
}

/* What is at `path`, for the flags of open: 0, or -errno of what can be no device. */
static int kind_look(const char *path, uint32_t flags, int *how)
{
	struct stat info;
	*how = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (flags & IO_OPEN_READONLY ? O_RDONLY : O_RDWR);
	if (stat(path, &info) == 0 && S_ISBLK(info.st_mode)) {
		*how &= ~O_NOFOLLOW; /* names of disks are links, as /dev/disk/by-id has them */
		if (!(flags & IO_OPEN_READONLY))
			*how |= O_EXCL; /* and no O_CREAT: nobody else, the kernel's mounts among them */
		return flags & IO_OPEN_EXCLUSIVE ? -EEXIST : 1;
	}
	if (flags & IO_OPEN_CREATE)
		*how |= O_CREAT;
	if (flags & IO_OPEN_EXCLUSIVE)
		*how |= O_EXCL;
	return 0;
}

/* O_DIRECT is set afterwards: an open that is refused because of it may leave the new file behind. */
static int open_kind(struct file *file, const char *path, uint32_t flags)
{
	struct stat info;
	int how, result = 0, block = kind_look(path, flags, &how);
	if (block < 0)
		return block;
	while ((file->fd = open(path, how, 0600)) < 0)
		if (errno != EINTR)
			return -errno;
	if (fstat(file->fd, &info) != 0)
		result = -errno;
	else if (block ? !S_ISBLK(info.st_mode) : !S_ISREG(info.st_mode))
		result = -EINVAL;
	else if (flags & IO_OPEN_LOCK)
		result = lock_take(file->fd, flags);
	if (result == 0 && (flags & IO_OPEN_CREATE) && !block)
		result = sync_parent(path);
	file->block = (uint32_t)block;
	if (result < 0)
		(void)close(file->fd);
	return result;
}

/* Whether O_DIRECT is on. An empty file cannot be tried without writing to it: there the first transfer finds out. */
static uint32_t direct_try(int fd)
{
	_Alignas(IO_ALIGN) char page[IO_ALIGN];
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return 0;
	flags &= ~O_NONBLOCK; /* io_uring would say -EAGAIN instead of waiting for the device */
	if (fcntl(fd, F_SETFL, flags) != 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) != 0)
		return 0;
	if (pread(fd, page, sizeof(page), 0) >= 0 || errno != EINVAL)
		return 1;
	(void)fcntl(fd, F_SETFL, flags & ~O_DIRECT);
	return 0;
}

int file_open(struct file *file, const char *path, uint32_t flags)
{
	memset(file, 0, sizeof(*file));
	int result = open_kind(file, path, flags);
	if (result < 0)
		return result;
	file->readonly = (flags & IO_OPEN_READONLY) != 0;
	file->direct = file->opened_direct = direct_try(file->fd);
	return 0;
}

void file_close(struct file *file)
{
	(void)close(file->fd);
}

int file_threads_start(pthread_t *thread, uint32_t n, uint32_t *ret_started, void *(*run)(void *), void *arg)
{
	int result = 0;
	while (result == 0 && *ret_started < n) {
		result = thread_start(&thread[*ret_started], run, arg);
		if (result == 0) {
			(void)pthread_setname_np(thread[*ret_started], "cairn-io");
			++*ret_started;
		}
	}
	return result == EAGAIN ? -ENOMEM : -result; /* no room for another thread, and not a passing state */
}
