/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one table of statuses, and the thread's last error text.
 * Threads: any; the text is per thread. Memory: 512 bytes a thread, static.
 * Invariant: each status of cairn.h is in the table once, and its errors are the -errno that cairn.h says (asserted).
 */
#include "base/err.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cairn/cairn.h"

#define ERR_TEXT_BYTES 512

static const struct {
	int status;
	const char *name;
	const char *text;
} err_table[] = {
	{CAIRN_OK, "ok", "success"},
	{CAIRN_MISS, "miss", "not in any tier"},
	{CAIRN_DAMAGED, "damaged", "was there, failed its check and is quarantined"},
	{CAIRN_EXISTED, "existed", "was there already, as durable as asked for"},
	{CAIRN_E_INVAL, "inval", "an argument is wrong"},
	{CAIRN_E_NOMEM, "nomem", "out of memory; nothing was changed"},
	{CAIRN_E_BUSY, "busy", "a limit is reached for now; try again later"},
	{CAIRN_E_LATE, "late", "the deadline passed"},
	{CAIRN_E_CANCELED, "canceled", "canceled before it began"},
	{CAIRN_E_FULL, "full", "no room, and nothing may be evicted; free space or raise the budget"},
	{CAIRN_E_IO, "io", "the device failed"},
	{CAIRN_E_SIZE, "size", "the bytes do not fit the space, the buffer or the limits of a part"},
	{CAIRN_E_CONFLICT, "conflict", "the key exists with another length; the first is kept"},
	{CAIRN_E_NOENT, "noent", "no such path, session or name"},
	{CAIRN_E_ACCESS, "access", "the operating system forbids it"},
	{CAIRN_E_RDONLY, "rdonly", "the store is open read-only, or its medium is"},
	{CAIRN_E_OWNED, "owned", "another process owns the directory"},
	{CAIRN_E_NOTSTORE, "notstore", "not a cairn directory, and not empty"},
	{CAIRN_E_VERSION, "version", "written by a newer cairn; upgrade"},
	{CAIRN_E_CORRUPT, "corrupt", "the store's identity is damaged; run cairn fsck"},
	{CAIRN_E_QUOTA, "quota", "the tenant's quota is used up"},
	{CAIRN_E_UNKNOWN, "unknown", "the weights digest of the space is unknown: everything misses"},
};

static_assert(CAIRN_E_INVAL == -EINVAL && CAIRN_E_NOMEM == -ENOMEM && CAIRN_E_BUSY == -EBUSY, "errno");
static_assert(CAIRN_E_LATE == -ETIME && CAIRN_E_CANCELED == -ECANCELED && CAIRN_E_FULL == -ENOSPC, "errno");
static_assert(CAIRN_E_IO == -EIO && CAIRN_E_SIZE == -EMSGSIZE && CAIRN_E_CONFLICT == -EEXIST, "errno");
static_assert(CAIRN_E_NOENT == -ENOENT && CAIRN_E_ACCESS == -EACCES && CAIRN_E_RDONLY == -EROFS, "errno");
static_assert(CAIRN_E_OWNED == -EADDRINUSE && CAIRN_E_NOTSTORE == -EMEDIUMTYPE, "errno");
static_assert(CAIRN_E_VERSION == -EPROTONOSUPPORT && CAIRN_E_CORRUPT == -EUCLEAN, "errno");
static_assert(CAIRN_E_QUOTA == -EDQUOT && CAIRN_E_UNKNOWN == -ENODATA, "errno");

static _Thread_local char err_last[ERR_TEXT_BYTES];

int err_set(int code, const char *format, ...)
{
	/* By way of a second buffer: an argument may be err_text() itself. */
	char text[ERR_TEXT_BYTES];
	va_list arguments;

	va_start(arguments, format);
	if (vsnprintf(text, sizeof text, format, arguments) < 0)
		text[0] = '\0';
	va_end(arguments);
	/* Names from disk and from callers end up here; one line it stays, and no terminal is steered by it. */
	for (char *at = text; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = ' ';
	memcpy(err_last, text, sizeof err_last);
	return code;
}

const char *err_text(void)
{
	return err_last;
}

const char *err_name(int status)
{
	for (size_t i = 0; i < sizeof err_table / sizeof err_table[0]; i++)
		if (err_table[i].status == status)
			return err_table[i].name;
	return "unlisted";
}

const char *err_describe(int status)
{
	for (size_t i = 0; i < sizeof err_table / sizeof err_table[0]; i++)
		if (err_table[i].status == status)
			return err_table[i].text;
	return "a status that this version does not know";
}

int err_from_errno(int errnum)
{
	/* Both signs: our own I/O layer returns -errno. */
	switch (errnum < 0 ? -errnum : errnum) {
	case EACCES:
	case EPERM:
		return CAIRN_E_ACCESS;
	case EDQUOT:
	case ENOSPC:
	case EFBIG:
		return CAIRN_E_FULL;
	case ENOENT:
	case ENOTDIR:
		return CAIRN_E_NOENT;
	case ENOMEM:
		return CAIRN_E_NOMEM;
	case EROFS:
		return CAIRN_E_RDONLY;
	case EMFILE:
	case ENFILE:
	case EAGAIN:
	case EBUSY:
		return CAIRN_E_BUSY;
	default:
		return CAIRN_E_IO;
	}
}
