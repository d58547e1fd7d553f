/* SPDX-License-Identifier: Apache-2.0 */
/* A directory that several processes share, with a cairnd that none of them has to start. */
#ifndef CAIRN_STORE_AUTOSTART_H
#define CAIRN_STORE_AUTOSTART_H

#include "cairn/cairn.h"

/* Starts a private cairnd over the directory, unless another one gets there first; it ends with the last of its
 * clients. Does not wait for it. 0, or NOENT: the program cairnd is not to be found, or an error of fork. */
int autostart(const char *path, const struct cairn_options *options);

#endif
