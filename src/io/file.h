/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engines of real I/O share (work.c, uring.c): an open file or raw block device, its lock, O_DIRECT, blocking
 * transfers, room on it, and fault hooks for tests.
 *
 * Threads: any, but for open and close. Memory: none.
 */
#ifndef CAIRN_IO_FILE_H
#define CAIRN_IO_FILE_H

#include <pthread.h>
#include <stdint.h>
#include <sys/uio.h>

#include "io/io.h"

#define FILE_CALL_MAX (1u << 30) /* bytes per system call; the kernel moves at most 0x7ffff000 */

struct file {
	int fd;
	uint32_t readonly;
	uint32_t block;          /* a raw block device */
	uint32_t opened_direct;
	_Atomic uint32_t direct; /* cleared for good by the first transfer that O_DIRECT refuses */
};

/* Flags as in io.h. 0 or -errno. */
int file_open(struct file *file, const char *path, uint32_t flags);
void file_close(struct file *file);

/* What is left of `vec` after `moved` bytes, cut at `room` bytes. Returns the number of vectors. */
int file_vec_rest(const struct io_vec *vec, uint32_t nvec, uint64_t moved, uint64_t room,
                  struct iovec rest[IO_VEC_MAX]);
uint64_t file_vec_total(const struct io_vec *vec, uint32_t nvec);
/* Our own mistakes, in a request that was submitted. */
void file_req_check(const struct io_req *req);
/* 0, or -errno of a transfer that must not begin: past all devices, or a write where there are none. */
int file_may_transfer(const struct file *file, uint32_t op, uint64_t offset, uint64_t total);
/* What a system call's result means: bytes that count, or -errno; -EAGAIN: once more. `refused` is the transfer's own,
 * 0 at its start. */
int64_t file_moved(struct file *file, int64_t result, uint32_t *refused);

/* Blocking; short transfers are continued. 0 or -errno. */
int file_transfer(struct file *file, uint32_t op, const struct io_vec *vec, uint32_t nvec, uint64_t offset);
/* The same of one range, counted as one I/O by file_fail_at. */
int file_transfer_range(struct file *file, uint32_t op, void *bytes, uint64_t length, uint64_t offset);
/* fdatasync. A failure must be treated as io.h says of flushes. */
int file_sync(struct file *file);
/* As in io.h; counted by file_fail_at. */
int file_allocate(struct file *file, uint64_t offset, uint64_t length);
int file_punch(struct file *file, uint64_t offset, uint64_t length);
int file_space(struct file *file, uint64_t *size, uint64_t *free, uint64_t *all);

/* An engine's threads, which take no signals: 0 or -errno, with *ret_started of them running. */
int file_threads_start(pthread_t *thread, uint32_t n, uint32_t *ret_started, void *(*run)(void *), void *arg);

/* ---- fault hooks, for tests only, for all devices of the process; set them while nothing is in flight ------------ */

/* Makes the n-th I/O from now (1: the next) fail with -errnum, and with `all` every later one too; 0 switches it off.
 * Counted are submits and the blocking pread, pwrite, sync, allocate and punch. A failed one touches nothing. */
void file_fail_at(uint64_t n, int errnum, int all);
/* Whether file_fail_at has made one fail since it was set. */
int file_failed(void);
/* Makes the next fdatasync of any device fail with errnum, as the kernel's would. 0 switches it off. */
void file_fail_fdatasync(int errnum);
/* Moves at most so many bytes per system call (0: the default), to exercise short transfers. */
void file_limit_call(uint64_t bytes);

/* For the engines. Counts one I/O: 0, or the -errno it must fail with. */
int file_fail_count(void);
/* 0, or the -errno that the fdatasync about to be made must fail with. */
int file_fail_sync(void);
/* Most bytes of one system call. */
uint64_t file_call_max(void);

#endif
