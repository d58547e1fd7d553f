/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn serve: becomes cairnd, which lies beside this program, or else is found in PATH.
 * Threads: one. Memory: the arguments.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

int serve_exec(int argc, char **argv)
{
	char own[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", own, sizeof own - sizeof "cairnd");
	char *slash = n > 0 ? (own[n] = '\0', strrchr(own, '/')) : NULL;

	(void)argc;
	argv[0] = "cairnd";
	fflush(stdout);
	if (slash) {
		memcpy(slash + 1, "cairnd", sizeof "cairnd");
		execv(own, argv);
	}
	execvp("cairnd", argv);
	return say_error("cairnd can not be run: %s; it is installed beside this program", strerror(errno));
}
