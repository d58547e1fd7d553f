/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAIRN_STORE_RECONCILE_H
#define CAIRN_STORE_RECONCILE_H

struct cairn;

/* Opening: brings the ledgers of all devices to the same decisions before any part is visible. 0 or an error. */
int reconcile(struct cairn *store);

#endif
