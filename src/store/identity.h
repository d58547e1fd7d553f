/* SPDX-License-Identifier: Apache-2.0 */
/* What the store needs of identity.c: a public chain of keys over a space that it already has. */
#ifndef CAIRN_STORE_IDENTITY_H
#define CAIRN_STORE_IDENTITY_H

#include <stdint.h>

#include "cairn/cairn.h"
#include "fmt/key.h"

/* cairn_derive_start, once the store has found its struct key_space. 0, INVAL, NOMEM. */
int identity_derive_start(const struct key_space *space, uint32_t group, cairn_derive **ret_derive);

#endif
