/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault hooks of work.c, for tests only, for all devices of the process. work_open itself is in io.h.
 * Threads: any; set them while nothing is in flight.
 */
#ifndef CAIRN_IO_WORK_H
#define CAIRN_IO_WORK_H

#include <stdint.h>

/* Makes the n-th I/O from now (1: the next) fail with -errnum, and with `all` every later one too; 0 switches it off.
 * Counted are submits and the blocking pread, pwrite, sync, allocate and punch. A failed one touches nothing. */
void work_fail_at(uint64_t n, int errnum, int all);
/* Whether work_fail_at has made one fail since it was set. */
int work_failed(void);

/* Makes the next fdatasync of any device fail with errnum, as the kernel's would. 0 switches it off. */
void work_fail_fdatasync(int errnum);

/* Moves at most so many bytes per system call (0: the default), to exercise short transfers. */
void work_limit_call(uint64_t bytes);

#endif
