/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at a raw block device, and prepares it for a store.
 * Threads: the caller's. Memory: one buffer of 1 MiB in each function.
 * Invariant: what is not blank and not ours is never written.
 */
#include "fsck/raw.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "cairn/cairn.h"
#include "fmt/segment.h"
#include "io/io.h"

#define RAW_HEAD_BYTES (1u << 20)
#define RAW_TAIL_BYTES (64u << 10)
/* The longest ledger, and its segments' offset rounded up: an older store's must not be taken for the next one's. */
#define RAW_LEDGER_BYTES (257ull << 20)

/* 1: all zeros; 0: not, and *ret_at is where; or -errno. */
static int zeros(struct raw *raw, uint8_t *bytes, uint32_t length, uint64_t offset, uint64_t *ret_at)
{
	int error = raw->io->ops->pread(raw->io, bytes, length, offset);
	if (error)
		return error;
	for (uint32_t i = 0; i < length; i++)
		if (bytes[i]) {
			*ret_at = offset + i;
			return 0;
		}
	return 1;
}

/* 0 or -errno. */
static int look(struct raw *raw, uint8_t *bytes)
{
	struct fmt_label label;
	uint64_t size;
	int clean = zeros(raw, bytes, RAW_HEAD_BYTES, 0, &raw->foreign_at);
	if (clean < 0)
		return clean;
	for (int copy = 0; copy < 2 && !clean; copy++) {
		const uint8_t *page = bytes + copy * FMT_PAGE;
		int found = segment_label_decode(page, &label);
		if (found == FMT_OK)
			memcpy(raw->store_id, label.store_id, sizeof(raw->store_id));
		raw->state = found != FMT_BAD                                  ? RAW_STORE
		             : segment_blank_decode(page, &size) != FMT_BAD ? RAW_PREPARED
		                                                               : RAW_FOREIGN;
		if (raw->state != RAW_FOREIGN)
			return 0;
	}
	if (clean)
		clean = zeros(raw, bytes, RAW_TAIL_BYTES, (raw->bytes - RAW_TAIL_BYTES) / FMT_PAGE * FMT_PAGE,
		              &raw->foreign_at);
	if (clean < 0)
		return clean;
	raw->state = clean ? RAW_EMPTY : RAW_FOREIGN;
	return 0;
}

int raw_open(const char *path, struct raw *ret_raw)
{
	struct raw raw = {.path = path};
	uint64_t free, all;
	uint8_t *bytes = NULL;
	int error = io_maker_real.open(NULL, path, IO_OPEN_LOCK | IO_OPEN_BLOCKING, 1, &raw.io);
	if (error == -EBUSY || error == -EWOULDBLOCK)
		return err_set(CAIRN_E_OWNED, "%s is mounted or used by another program: nothing was written", path);
	if (error == -EINVAL || error == -EISDIR)
		return err_set(CAIRN_E_INVAL, "%s is not a block device; a file or directory needs no cairn init", path);
	if (error)
		return err_set(err_from_errno(-error), "cannot open %s: %s", path, strerror(-error));
	if (!raw.io->raw)
		error = err_set(CAIRN_E_INVAL, "%s is not a block device; a file or directory needs no cairn init", path);
	else if (raw.io->ops->space(raw.io, &raw.bytes, &free, &all))
		error = err_set(CAIRN_E_IO, "%s does not tell its size", path);
	else if (raw.bytes < RAW_LEAST_BYTES)
		error = err_set(CAIRN_E_INVAL, "%s has %llu bytes; a device needs at least %llu", path,
		                (unsigned long long)raw.bytes, (unsigned long long)RAW_LEAST_BYTES);
	else if (!(bytes = mem_aligned(FMT_PAGE, RAW_HEAD_BYTES)))
		error = err_set(CAIRN_E_NOMEM, "no memory to look at %s", path);
	else if ((error = look(&raw, bytes)))
		error = err_set(err_from_errno(-error), "cannot read %s: %s", path, strerror(-error));
	mem_free(bytes);
	if (error) {
		raw_close(&raw);
		return error;
	}
	*ret_raw = raw;
	return 0;
}

int raw_prepare(struct raw *raw)
{
	check(raw->state != RAW_FOREIGN);
	uint8_t *bytes = mem_aligned(FMT_PAGE, RAW_HEAD_BYTES);
	if (!bytes)
		return err_set(CAIRN_E_NOMEM, "no memory to prepare %s", raw->path);
	int error = 0;
	uint64_t end = raw->bytes < RAW_LEDGER_BYTES ? raw->bytes / FMT_PAGE * FMT_PAGE : RAW_LEDGER_BYTES;
	memset(bytes, 0, RAW_HEAD_BYTES);
	for (uint64_t at = 0; at < end && !error; at += RAW_HEAD_BYTES)
		error = raw->io->ops->pwrite(raw->io, bytes, end - at < RAW_HEAD_BYTES ? end - at : RAW_HEAD_BYTES, at);
	if (!error)
		error = raw->io->ops->sync(raw->io);
	segment_blank_encode(raw->bytes, bytes);
	memcpy(bytes + FMT_PAGE, bytes, FMT_PAGE);
	if (!error)
		error = raw->io->ops->pwrite(raw->io, bytes, 2 * FMT_PAGE, 0);
	if (!error)
		error = raw->io->ops->sync(raw->io);
	mem_free(bytes);
	return error ? err_set(err_from_errno(-error), "cannot write %s: %s", raw->path, strerror(-error)) : 0;
}

void raw_close(struct raw *raw)
{
	raw->io->ops->close(raw->io);
	raw->io = NULL;
}
