/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated world of disks for tests: named files in memory behind io.h, a clock of its own, power loss, process
 * death and disk faults, all decided by one generator. The same seed and the same calls give the same world, byte for
 * byte and nanosecond for nanosecond; sim_trace proves it.
 *
 * Use: open devices through sim_maker; when the process is to die, call sim_crash or sim_kill, close the dead devices
 * (or never), and open again in the same world. Files live until sim_free.
 *
 * What is durable: a write is readable once its `done` has run, and durable once a flush that was submitted after that
 * has succeeded (a flush may also take later writes with it, oldest first). Growth by write or allocate is durable with
 * the flush too, and so is a punch: what it removed may be back after a power loss. Creating a file is durable at once.
 * A failed flush also fails all flushes of that device in flight.
 * Time: only poll, blocking calls and sim_advance move it. poll never blocks: it goes to this device's next completion,
 * or to its timeout, or returns 0 early where another device of the world has a completion first. An endless timeout
 * is one second. Requests complete in the order of their drawn delays, so they overtake each other.
 *
 * Threads: one. Memory: its own, not through mem.h, so that mem_fail_at strikes only the code under test.
 */
#ifndef CAIRN_IO_SIM_H
#define CAIRN_IO_SIM_H

#include <stdint.h>
#include <stdio.h>

#include "io/io.h"

#define SIM_SECTOR 512u /* what a power loss leaves whole */

struct sim_world;

/* Chances are per million, per transfer. All 0 at the start: a disk without faults. */
struct sim_faults {
	uint32_t read_error_ppm;  /* -EIO; the buffer holds garbage in part */
	uint32_t write_error_ppm; /* -EIO; some sectors are written */
	uint32_t flush_error_ppm; /* -EIO; the file's unflushed writes then: stay, or vanish at once, or stay readable but
	                           * can never become durable (as Linux does) */
	uint32_t short_ppm;       /* takes two steps, with time between them */
	uint32_t misdirect_ppm;   /* a write lands on another page of the file, and says 0 */
	uint32_t lost_write_ppm;  /* a write says 0 and is never done, whatever is flushed: only checksums find it */
	uint32_t rot_read_ppm;    /* one bit is wrong in what was read, not on the disk */
	uint32_t rot_rest_ppm;    /* one bit of what is being read turns on the disk, for good */
	uint32_t slow_ppm;        /* up to slow_ns_max */
	uint64_t slow_ns_max;     /* 0: 5 s */
	uint64_t delay_ns_max;    /* an ordinary delay; 0: 200 us. Background requests take up to three times that */
};

struct sim_stats {
	uint64_t reads, writes, flushes, allocates, punches; /* begun, blocking ones included */
	uint64_t opens, crashes, kills;
	uint64_t read_errors, write_errors, flush_errors, shorts, misdirected, lost_writes, rot_read, rot_rest, slow;
	uint64_t flush_drops;   /* unflushed writes dropped by flushes that failed */
	uint64_t full;          /* -ENOSPC given */
	uint64_t failed;        /* by sim_fail_at */
	uint64_t crash_lost, crash_torn, crash_whole; /* unflushed changes at a power loss */
};

struct sim_world *sim_new(uint64_t seed);
void sim_free(struct sim_world *world); /* frees devices that are still open too; their requests never complete */

/* How a store opens its devices in this world; not threaded. Flags as in io.h; the thread count is ignored. */
struct io_maker sim_maker(struct sim_world *world);

/* For all files (path NULL), or for one that exists; from then on that file has its own. */
void sim_set_faults(struct sim_world *world, const char *path, const struct sim_faults *faults);
/* Bytes that all files of the world may still take, from now on. At the start 1 TiB. */
void sim_set_space(struct sim_world *world, uint64_t free_bytes);

/* The n-th I/O from now (1: the next) fails with -EIO and touches nothing, and with `all` every later one too; 0: off.
 * Counted are submits and the blocking pread, pwrite, sync, allocate and punch. */
void sim_fail_at(struct sim_world *world, uint64_t n, int all);
/* sim_crash (or with `kill` sim_kill) in the middle of the n-th I/O from now; 0: off. After it every open fails, since
 * the process that asks is dead, until this is called again: the next process begins then. */
void sim_crash_at(struct sim_world *world, uint64_t n, int kill);
uint64_t sim_count(const struct sim_world *world); /* I/Os so far */

/*
 * Power loss: of each unflushed write any sectors survive, or all, or none; of requests in flight too. Process death:
 * completed writes stay (unflushed); those in flight are done wholly, in part, or not at all.
 * Both: every open device is dead. Its blocking calls give -EIO; its requests never complete in poll, and close runs
 * their `done` with -EIO. With sim_dead_fails(world, 1) the next poll does (for code that drains before it closes).
 */
void sim_crash(struct sim_world *world);
void sim_kill(struct sim_world *world);
void sim_dead_fails(struct sim_world *world, int on);

const struct clock *sim_clock(struct sim_world *world);
void sim_advance(struct sim_world *world, uint64_t ns);
void sim_step_wall(struct sim_world *world, int64_t seconds); /* the wall clock only; it starts at 1,700,000,000 */

/* The content as a read would see it, to look at or to damage; NULL: no such file. Valid until the next call into the
 * world. Damage next to unflushed writes (same page) may vanish with them at a crash; sim_rot damages for good. */
uint8_t *sim_file_bytes(struct sim_world *world, const char *path, uint64_t *ret_length);
/* Changes every one of these bytes, on the disk and in every cache. */
void sim_rot(struct sim_world *world, const char *path, uint64_t offset, uint64_t length);
/* Sets a file's length, durably; what is new reads as zeros. */
void sim_truncate(struct sim_world *world, const char *path, uint64_t length);
/* Takes a file away (it may not be open, not even dead): 0 or -ENOENT. */
int sim_remove(struct sim_world *world, const char *path);

const struct sim_stats *sim_stats(const struct sim_world *world);
/* One line per event from now on; NULL: off. */
void sim_trace(struct sim_world *world, FILE *to);

#endif
