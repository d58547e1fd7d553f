/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of all sizes over a transport, and somebody who gives them back. Threads: each link's own. Memory: freed. */
#ifndef CAIRN_TESTS_LIB_FRAMES_H
#define CAIRN_TESTS_LIB_FRAMES_H

#include "net/link.h"

enum {
	FRAMES_MAX = 9 << 20 /* bytes behind one */
};
/* Gives back what comes over a link, frame by frame, until its end, or until nothing has come for so long. */
void frames_give_back(struct link *net, int timeout_ms);
/* Sends frames with bodies of these sizes, and bulk of the same the other way round, in pieces that lie apart; what
 * comes back must be the same. Then waits for a frame that does not come, as long as it should. */
void frames_carry(struct link *net, const size_t *sizes, size_t n);
/* Before UCX is loaded: under a sanitizer it must not write its own hooks over mmap and munmap, as it does; the leak
 * check ends in a fault then. */
void frames_ucx_prepare(void);

#endif
