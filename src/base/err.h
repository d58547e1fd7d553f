/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of statuses (cairn.h) and the thread's last error text. */
#ifndef CAIRN_BASE_ERR_H
#define CAIRN_BASE_ERR_H

/* Sets the thread's error text from a printf format (cut at 511 bytes; one line) and returns `code`. */
int err_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The thread's error text; never NULL; "" before the first error. */
const char *err_text(void);
/* Name ("busy") and meaning of a status of cairn.h; never NULL. A code that is not in the table is "unlisted". */
const char *err_name(int status);
const char *err_describe(int status);
/* Maps an errno to the table: EACCES and EPERM to ACCESS, EDQUOT and ENOSPC and EFBIG to FULL, ENOENT and ENOTDIR to
 * NOENT, ENOMEM, EROFS; EMFILE, ENFILE, EAGAIN and EBUSY to BUSY (passing); everything else to IO. */
int err_from_errno(int errnum);

#endif
