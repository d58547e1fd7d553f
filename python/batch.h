/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the extension does in C besides cairn.h: loops over hundreds of items, which would be slow in Python, and what must
 * not be torn apart: a signal's handler may raise an exception between any two steps of Python, and finalizers of Python
 * may run in any order.
 *
 * Threads: any. Memory: on the caller's; a struct cairnkv_life is freed with the last that refers to it.
 * Invariant: a store is closed after all that it handed out was given back.
 */
#include <stdlib.h>
#include <unistd.h>

#include "cairn/cairn.h"

/* ---- the life of a store, and of what it hands out ---------------------------------------------------------------- */

struct cairnkv_life {
	cairn *store; /* NULL: closed */
	long refs;    /* one of the handle, one of each cell */
	long pid;     /* of another process after a fork: it is the parent's, and nothing is given back or closed here */
};

enum { CAIRNKV_LEASE, CAIRNKV_MATCH, CAIRNKV_SESSION, CAIRNKV_QUEUE, CAIRNKV_REGION };

struct cairnkv_cell {
	struct cairnkv_life *life;
	void *pointer; /* what C handed out; NULL: nothing yet */
	int kind;
};

static void cairnkv_life_drop(struct cairnkv_life *life)
{
	if (!life || __atomic_sub_fetch(&life->refs, 1, __ATOMIC_ACQ_REL))
		return;
	if (life->store && life->pid == getpid())
		cairn_close(life->store);
	free(life);
}

/* NULL: no memory. */
static struct cairnkv_life *cairnkv_life_new(void)
{
	struct cairnkv_life *life = calloc(1, sizeof(*life));
	if (life) {
		life->refs = 1;
		life->pid = getpid();
	}
	return life;
}

static int cairnkv_life_open(struct cairnkv_life *life, const char *place, const struct cairn_options *options)
{
	return life ? cairn_open(place, options, &life->store) : CAIRN_E_NOMEM;
}

/* Nobody is in a call, and nobody begins one. BUSY: something is held. */
static int cairnkv_life_close(struct cairnkv_life *life)
{
	if (__atomic_load_n(&life->refs, __ATOMIC_ACQUIRE) > 1)
		return CAIRN_E_BUSY;
	cairn *store = life->store;
	life->store = NULL;
	return store ? cairn_close(store) : 0;
}

static void cairnkv_cell_open(struct cairnkv_cell *cell, struct cairnkv_life *life, int kind)
{
	__atomic_add_fetch(&life->refs, 1, __ATOMIC_RELAXED);
	cell->kind = kind;
	cell->life = life;
}

/* The finalizer of a cell: gives back what it holds. */
static void cairnkv_cell_close(struct cairnkv_cell *cell)
{
	struct cairnkv_life *life = cell->life;
	void *pointer = cell->pointer;
	cell->life = NULL;
	cell->pointer = NULL;
	if (!life)
		return;
	if (pointer && life->store && life->pid == getpid())
		switch (cell->kind) {
		case CAIRNKV_LEASE:
			cairn_lease_release(life->store, pointer);
			break;
		case CAIRNKV_MATCH:
			cairn_match_release(life->store, pointer);
			break;
		case CAIRNKV_SESSION:
			cairn_session_free(pointer);
			break;
		case CAIRNKV_QUEUE:
			cairn_queue_close(pointer);
			break;
		case CAIRNKV_REGION:
			(void)cairn_region_unregister(life->store, pointer);
			break;
		}
	cairnkv_life_drop(life);
}

/* ---- items -------------------------------------------------------------------------------------------------------- */

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

/* A signal's handler may raise an exception after any call, before Python has looked at what it returned. So what C has
 * taken, and what it has given back, is noted where it is found again. */
static void cairnkv_submit(cairn_queue *queue, int put, const cairn_space *space, struct cairn_item *items, size_t n,
                           const struct cairn_call *call, uint64_t tag, int *ret_status)
{
	*ret_status = put ? cairn_put_submit(queue, space, items, n, call, tag)
	                  : cairn_get_submit(queue, space, items, n, call, tag);
}

/* Does nothing where completions of an earlier call are still there. */
static void cairnkv_wait(cairn_queue *queue, struct cairn_completion *done, size_t max, int timeout_ms, long *ret_count)
{
	if (*ret_count <= 0)
		*ret_count = cairn_queue_wait(queue, done, max, timeout_ms);
}

static void cairnkv_statuses(const struct cairn_item *items, size_t n, int32_t *ret_statuses)
{
	for (size_t i = 0; i < n; i++)
		ret_statuses[i] = items[i].status;
}
