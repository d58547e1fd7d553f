/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few loops over hundreds of items that would be slow in Python. Compiled into the extension; sees cairn.h alone.
 *
 * Threads: any, on memory of the caller. Memory: nothing is kept.
 */
#include <string.h>

#include "cairn/cairn.h"

struct cairnkv_plane {
	uint64_t address, stride, length;
};

/* Block indices[i] lies in each plane at address + stride * indices[i]. `parents` may be NULL, or point to n keys of which
 * those before `first` are none. `bufs` has n * nplanes elements and `items` n, all zeros. */
static void cairnkv_fill(struct cairn_item *items, struct cairn_buf *bufs, const cairn_key *keys, const cairn_key *parents,
                         size_t first, const uint64_t *indices, size_t n, const struct cairnkv_plane *planes,
                         uint32_t nplanes, uint16_t group, uint16_t part, uint32_t flags)
{
	for (size_t i = 0; i < n; i++) {
		struct cairn_buf *own = bufs + i * nplanes;
		for (uint32_t p = 0; p < nplanes; p++)
			own[p] = (struct cairn_buf){NULL, planes[p].address + planes[p].stride * indices[i], planes[p].length};
		items[i] = (struct cairn_item){
		    .key = keys[i],
		    .parent = parents && i >= first ? parents + i : NULL,
		    .bufs = own,
		    .nbufs = nplanes,
		    .group = group,
		    .part = part,
		    .flags = flags,
		};
	}
}

/* Hashes of `length` bytes each, one behind the other. */
static void cairnkv_fill_hashes(struct cairn_item *items, size_t n, const uint8_t *hashes, uint32_t length)
{
	for (size_t i = 0; i < n; i++) {
		items[i].engine_hash_bytes = length;
		items[i].engine_hash = hashes + i * length;
	}
}

/* The keys of hashes of one length. Returns 0, or the error of the first that failed. */
static int cairnkv_derive_hashes(cairn_derive *derive, const uint8_t *hashes, size_t length, size_t n, cairn_key *keys)
{
	for (size_t i = 0; i < n; i++) {
		int error = cairn_derive_hash(derive, hashes + i * length, length, keys + i);
		if (error)
			return error;
	}
	return 0;
}

static void cairnkv_statuses(const struct cairn_item *items, size_t n, int32_t *ret_statuses)
{
	for (size_t i = 0; i < n; i++)
		ret_statuses[i] = items[i].status;
}
