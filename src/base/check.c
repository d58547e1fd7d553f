/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a failed check: says which one, then aborts.
 * Threads: any. Memory: the stack alone, since the heap may be what is broken.
 * Invariant: never returns.
 */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void check_failed(const char *what, const char *file, int line)
{
	char text[512];
	int length = snprintf(text, sizeof text, "cairn: %s:%d: check failed: %s\n", file, line, what);

	if (length > (int)sizeof text - 1)
		length = (int)sizeof text - 1;
	/* write, not stdio: a lock of stderr may be held by the thread that crashed. */
	if (length > 0 && write(STDERR_FILENO, text, (size_t)length) < 0)
		abort();
	abort();
}
