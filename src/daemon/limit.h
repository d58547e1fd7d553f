/* SPDX-License-Identifier: Apache-2.0 */
/* What the control groups of this process let it have. Threads: any. Memory: none. */
#ifndef CAIRN_DAEMON_LIMIT_H
#define CAIRN_DAEMON_LIMIT_H

#include <stdint.h>

enum { LIMIT_FILE = 600 };

/* The least memory limit of the own control group and those above it, v2 or v1; UINT64_MAX: none, or none that can be
 * seen. ret_file: where it stands. `root` is "" but in tests. */
uint64_t limit_memory(const char *root, char ret_file[LIMIT_FILE]);

#endif
