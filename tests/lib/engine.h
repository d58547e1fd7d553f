/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which engine tests of real files use: CAIRN_TEST_IO is "threads" or "uring", and else it is the best that works.
 * ctest runs the tests that touch real files under both names. For test programs alone; the library reads no variables.
 */
#ifndef CAIRN_TESTS_LIB_ENGINE_H
#define CAIRN_TESTS_LIB_ENGINE_H

#include "cairn/cairn.h"
#include "io/io.h"

uint32_t engine_wanted(void); /* enum cairn_io */
const struct io_maker *engine_maker(void);
/* Whether io_uring is refused here, which is said in a line. */
int engine_uring_refused(void);
/* Ends the program as skipped (77), with a line, where io_uring is wanted and refused. Before the first test. */
void engine_or_skip(void);
/* Makes the kernel refuse io_uring_setup to this process with `errnum` from now on, as containers do. 0 or -errno. */
int engine_forbid_uring(int errnum);

#endif
