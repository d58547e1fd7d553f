/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The I/O interface: the only way to a device's data. One `struct io` is one open device (a file or a raw block
 * device), used by one loop. Implementations: uring.c (io_uring), work.c (threads with pread and pwrite), sim.c (seeded
 * faults in memory).
 *
 * Threads: io_submit, io_poll and all of struct io belong to the loop's thread; io_wake may be called from any.
 * Completions run inside io_poll, in the loop's thread, in any order. A request belongs to the implementation from
 * submit to its `done`, and may begin as late as the next io_poll. The loop may move to another thread after io_leave.
 * Alignment: offset, length and address of reads and writes are multiples of IO_ALIGN, so that O_DIRECT works.
 */
#ifndef CAIRN_IO_IO_H
#define CAIRN_IO_IO_H

#include <stdint.h>

#include "base/clock.h"
#include "base/list.h"

#define IO_ALIGN 4096u
#define IO_VEC_MAX 64u

enum io_op {
	IO_READ = 1,
	IO_WRITE = 2,
	/* Makes all writes that completed before its submit durable. If it fails, so do the flushes in flight with it. */
	IO_FLUSH = 3,
};

struct io_vec {
	void *address;
	uint32_t length; /* bytes, > 0 */
};

struct io_req {
	uint32_t op;
	uint32_t background; /* 1: after urgent requests */
	uint64_t offset;     /* bytes on the device */
	struct io_vec vec[IO_VEC_MAX];
	uint32_t nvec;
	/* Runs after the transfer, still outside the loop's thread where there are several (checksums); may be NULL.
	 * Sees `result`; may change it. */
	void (*work)(struct io_req *req);
	void (*done)(struct io_req *req); /* in io_poll */
	void *owner;
	/* 0: all bytes transferred; else -errno. Short transfers are continued by the implementation, and are -EIO at the
	 * end of the device. */
	int32_t result;
	struct list link; /* the implementation's */
};

struct io;

struct io_ops {
	const char *name;
	void (*submit)(struct io *io, struct io_req *req);
	/* Runs completions. Waits until there is one, or io_wake, or timeout_ns has passed (0: does not wait).
	 * Returns the number of completions run. */
	int (*poll)(struct io *io, uint64_t timeout_ns);
	void (*wake)(struct io *io);
	/* Blocking, for open and set-up and growth: 0 or -errno. */
	int (*pread)(struct io *io, void *bytes, uint64_t length, uint64_t offset);
	int (*pwrite)(struct io *io, const void *bytes, uint64_t length, uint64_t offset);
	int (*sync)(struct io *io);
	/* Makes [offset, offset + length) exist with blocks of its own (fallocate); -ENOSPC leaves the size as it was. */
	int (*allocate)(struct io *io, uint64_t offset, uint64_t length);
	/* Gives the blocks of a range back to the file system; it reads as zeros then, on a raw device perhaps as
	 * before. */
	int (*punch)(struct io *io, uint64_t offset, uint64_t length);
	/* Bytes the device has now, and bytes its file system has free for us (UINT64_MAX: a raw device) and in all. */
	int (*space)(struct io *io, uint64_t *size, uint64_t *free, uint64_t *all);
	/* Waits for what is in flight (completions are run), then closes and frees. */
	void (*close)(struct io *io);

	/* Each may be NULL: nothing to do. */

	/* Memory that most transfers will lie in, so that it can be made ready for the device; once, after open and before
	 * the first submit. A hint: nothing is said where it is not possible. */
	void (*buffers)(struct io *io, const struct io_vec *vec, uint32_t nvec);
	/* Any thread, before the one of them that begins at `address` is unmapped. Nothing is in flight in it. */
	void (*buffer_gone)(struct io *io, const void *address);
	/* The last call of the loop's thread, where another thread goes on with the loop. Waits for transfers under way;
	 * their completions run in the next io_poll. */
	void (*leave)(struct io *io);
};

struct io {
	const struct io_ops *ops;
	const struct clock *clock;
	uint32_t direct;   /* 1: O_DIRECT is in use */
	uint32_t threaded; /* 1: poll waits for real; 0: single-threaded simulation */
	uint32_t raw;      /* 1: a raw block device: its size is fixed, and all of it is there */
};

enum {
	IO_OPEN_CREATE = 1u << 0,
	IO_OPEN_READONLY = 1u << 1,
	IO_OPEN_LOCK = 1u << 3,      /* of one process while it is open (readers share): else -EWOULDBLOCK */
	IO_OPEN_EXCLUSIVE = 1u << 2, /* with CREATE: fail with -EEXIST where the file is there */
	IO_OPEN_BLOCKING = 1u << 4,  /* for the blocking calls alone: nothing is made ready for submits */
};

/* Threads with pread and pwrite; O_DIRECT where the file system takes it, else buffered. 0 or -errno; -EBUSY: a block
 * device that is mounted or used by somebody else. */
int work_open(const char *path, uint32_t flags, uint32_t threads, struct io **ret_io);
/* The same by io_uring; at most `threads` threads run `work`. ret_refused: 1 with an error when it is io_uring that can
 * not be had (by kernel, container or limit); the file was not touched then. */
int uring_open(const char *path, uint32_t flags, uint32_t threads, int *ret_refused, struct io **ret_io);

/* How a store opens its devices; the simulator passes its own. */
struct io_maker {
	int (*open)(void *arg, const char *path, uint32_t flags, uint32_t threads, struct io **ret_io);
	void *arg;
	const struct clock *clock;
	uint32_t threaded; /* 0: the store starts no threads and pumps its loops while a call waits */
};
extern const struct io_maker io_maker_real;    /* io_uring, or threads where it is refused */
extern const struct io_maker io_maker_threads;
extern const struct io_maker io_maker_uring;   /* -ENOSYS where it is refused */

#endif
