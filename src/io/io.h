/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The I/O interface: the only way to a device's data. One `struct io` is one open device (a file, later a raw device),
 * used by one loop. Implementations: work.c (threads with pread and pwrite), sim.c (seeded faults in memory).
 *
 * Threads: io_submit, io_poll and all of struct io belong to the loop's thread; io_wake may be called from any.
 * Completions run inside io_poll, in the loop's thread, in any order. A request belongs to the implementation from
 * submit to its `done`.
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
	/* Gives the blocks of a range back to the file system; it reads as zeros then. */
	int (*punch)(struct io *io, uint64_t offset, uint64_t length);
	/* Bytes the device has now, and bytes its file system has free for us (UINT64_MAX: a raw device) and in all. */
	int (*space)(struct io *io, uint64_t *size, uint64_t *free, uint64_t *all);
	/* Waits for what is in flight (completions are run), then closes and frees. */
	void (*close)(struct io *io);
};

struct io {
	const struct io_ops *ops;
	const struct clock *clock;
	uint32_t direct;   /* 1: O_DIRECT is in use */
	uint32_t threaded; /* 1: poll waits for real; 0: single-threaded simulation */
};

enum {
	IO_OPEN_CREATE = 1u << 0,
	IO_OPEN_READONLY = 1u << 1,
	IO_OPEN_LOCK = 1u << 3,      /* of one process while it is open (readers share): else -EWOULDBLOCK */
	IO_OPEN_EXCLUSIVE = 1u << 2, /* with CREATE: fail with -EEXIST where the file is there */
};

/* Threads with pread and pwrite; O_DIRECT where the file system takes it, else buffered. 0 or -errno. */
int work_open(const char *path, uint32_t flags, uint32_t threads, struct io **ret_io);

/* How a store opens its devices; the simulator passes its own. */
struct io_maker {
	int (*open)(void *arg, const char *path, uint32_t flags, uint32_t threads, struct io **ret_io);
	void *arg;
	const struct clock *clock;
	uint32_t threaded; /* 0: the store starts no threads and pumps its loops while a call waits */
};
extern const struct io_maker io_maker_real;

#endif
