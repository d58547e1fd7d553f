/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of the library in somebody else's process: no signal is delivered to them, those are for the program's own.
 * Threads: any. Memory: none.
 */
#ifndef CAIRN_IO_THREAD_H
#define CAIRN_IO_THREAD_H

#include <pthread.h>

/* pthread_create with all signals blocked. 0, or an errno. */
int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
