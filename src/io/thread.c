/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that take no signals. See thread.h. */
#include "io/thread.h"

#include <signal.h>

#include "base/check.h"

int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
	sigset_t all, before;
	sigfillset(&all);
	check(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
	int error = pthread_create(thread, NULL, run, arg);
	check(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
	return error;
}
