/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of an extent of the memory tier. Threads: any. */
#ifndef CAIRN_TIER_EXTENT_H
#define CAIRN_TIER_EXTENT_H

#include <stdint.h>

/* Maps a new sealed memfd, zeros. Its pages are not there yet: see extent_touch. 0, or NOMEM with the reason. */
int extent_make(uint64_t bytes, int *ret_fd, uint8_t **ret_base);
/* Makes all pages of new memory present. 0, or NOMEM: better known now than by a SIGBUS later. */
int extent_touch(uint8_t *base, uint64_t bytes);

#endif
