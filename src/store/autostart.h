/* SPDX-License-Identifier: Apache-2.0 */
/* A directory that several processes share, with a cairnd that none of them has to start. */
#ifndef CAIRN_STORE_AUTOSTART_H
#define CAIRN_STORE_AUTOSTART_H

#include "cairn/cairn.h"

/* How a private cairnd over a directory is started, with these options. INVAL, NOMEM, ... */
struct autostart;
int autostart_prepare(const char *path, const struct cairn_options *options, struct autostart **ret_start);
/* Starts it, unless another one gets there first; it ends with the last of its clients. Does not wait for it. Any
 * thread. 0, or NOENT: the program cairnd is not to be found, or an error of fork. */
int autostart_run(const struct autostart *start);
const char *autostart_dir(const struct autostart *start);
void autostart_free(struct autostart *start); /* NULL: nothing */

#endif
