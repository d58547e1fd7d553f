/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts to another server: the batch, its parts, and a checksum behind each. Of a large batch the checksums are taken
 * by a thread beside the one that sends, which would else wait for memory for a third of its time.
 *
 * Threads: the caller's; for a large batch one more, which ends with the call and only reads. Memory: none.
 * Invariant: a checksum is of the bytes as the caller gave them, whoever takes it; a part that left as something else
 * is refused by the receiver.
 */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/err.h"
#include "io/thread.h"
#include "store/remote_data.h"

#define TRAVEL_BESIDE_BYTES (8u << 20)
enum {
	TRAVEL_PIECES = 64
};

/* ---- checksums beside -------------------------------------------------------------------------------------------- */

struct beside {
	const struct data_work *work;
	const struct cairn_item *items;
	int runs; /* there is a thread */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	uint32_t done; /* items whose checksum is there */
	int stop;
	uint64_t check[WIRE_ITEMS_MAX];
};

static uint64_t item_hash(const struct cairn_item *item)
{
	struct digest_xxh xxh;
	digest_xxh_init(&xxh, 0);
	for (uint32_t b = 0; b < item->nbufs; b++)
		if (item->bufs[b].length)
			digest_xxh_add(&xxh, buffer_address(&item->bufs[b]), item->bufs[b].length);
	return digest_xxh_done(&xxh);
}

static void *beside_main(void *arg)
{
	struct beside *beside = arg;
	const struct data_work *work = beside->work;
	for (uint32_t i = 0; i < work->request.u.batch.nitems; i++) {
		beside->check[i] = work->refused[i] ? digest_xxh3(NULL, 0, 0) : item_hash(&beside->items[work->index[i]]);
		pthread_mutex_lock(&beside->lock);
		beside->done = i + 1;
		int stop = beside->stop;
		pthread_cond_signal(&beside->more);
		pthread_mutex_unlock(&beside->lock);
		if (stop)
			break;
	}
	return NULL;
}

/* Begins where it is worth it. */
static void beside_start(struct beside *beside, const struct data_work *work, const struct cairn_item *items,
                         uint64_t bytes)
{
	beside->work = work;
	beside->items = items;
	beside->runs = beside->stop = 0;
	beside->done = 0;
	if (bytes < TRAVEL_BESIDE_BYTES || sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return;
	pthread_mutex_init(&beside->lock, NULL);
	pthread_cond_init(&beside->more, NULL);
	beside->runs = !thread_start(&beside->thread, beside_main, beside);
	if (beside->runs)
		return;
	pthread_mutex_destroy(&beside->lock);
	pthread_cond_destroy(&beside->more);
}

static uint64_t beside_check(struct beside *beside, uint32_t index)
{
	pthread_mutex_lock(&beside->lock);
	while (beside->done <= index)
		pthread_cond_wait(&beside->more, &beside->lock);
	pthread_mutex_unlock(&beside->lock);
	return beside->check[index];
}

static void beside_end(struct beside *beside)
{
	if (!beside->runs)
		return;
	pthread_mutex_lock(&beside->lock);
	beside->stop = 1;
	pthread_mutex_unlock(&beside->lock);
	pthread_join(beside->thread, NULL);
	pthread_mutex_destroy(&beside->lock);
	pthread_cond_destroy(&beside->more);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* Sends an item's bytes behind the frame, as much at once as there is; its checksum is somebody else's. */
static int item_send_whole(struct link *net, const struct cairn_item *item)
{
	int error = 0;
	for (uint32_t b = 0; b < item->nbufs && !error;) {
		struct iovec parts[TRAVEL_PIECES];
		size_t n = 0;
		for (; b < item->nbufs && n < TRAVEL_PIECES; b++)
			if (item->bufs[b].length)
				parts[n++] = (struct iovec){buffer_address(&item->bufs[b]), item->bufs[b].length};
		error = n ? link_send_parts(net, parts, n) : 0;
	}
	return error;
}

/* Sends an item's bytes behind the frame; their checksum. 0 or -errno. */
static int item_send(struct link *net, const struct cairn_item *item, uint64_t *ret_check)
{
	struct digest_xxh xxh;
	digest_xxh_init(&xxh, 0);
	for (uint32_t b = 0; b < item->nbufs; b++) {
		const uint8_t *at = buffer_address(&item->bufs[b]);
		for (uint64_t left = item->bufs[b].length; left;) {
			size_t take = left < TRAVEL_CHUNK ? left : TRAVEL_CHUNK;
			digest_xxh_add(&xxh, at, take);
			int error = link_send_bytes(net, at, take);
			if (error)
				return error;
			at += take;
			left -= take;
		}
	}
	*ret_check = digest_xxh_done(&xxh);
	return 0;
}

/* The batch, and its parts, each with its checksum behind it: one that changed on its way is not put. */
int remote_travel(struct data_work *work, struct cairn_item *items, uint32_t timeout_ms)
{
	struct wire_batch *batch = &work->request.u.batch;
	struct beside beside;
	uint64_t sum, bytes = 0;
	for (uint32_t i = 0; i < batch->nitems; i++) {
		batch->items[i].offset = bytes;
		bytes += batch->items[i].length + sizeof(sum);
	}
	for (uint32_t i = 0; i < batch->nitems; i++)
		if (!work->refused[i])
			buffers_fence(&items[work->index[i]]);
	beside_start(&beside, work, items, bytes);
	int error = remote_send(work->link, &work->request, data_time_left(work, timeout_ms), bytes);
	for (uint32_t i = 0; i < batch->nitems && !error; i++) {
		const struct cairn_item *item = &items[work->index[i]];
		sum = digest_xxh3(NULL, 0, 0);
		if (beside.runs) {
			error = work->refused[i] ? 0 : item_send_whole(work->link->net, item);
			sum = beside_check(&beside, i);
		} else if (!work->refused[i]) {
			error = item_send(work->link->net, item, &sum);
		}
		if (!error)
			error = link_send_bytes(work->link->net, &sum, sizeof(sum));
	}
	beside_end(&beside);
	if (error) {
		work->broken = 1;
		return remote_lost(work->remote, work->link, error);
	}
	error = remote_receive(work->remote, work->link, &work->reply);
	return error ? (work->broken = 1, error) : data_results(work, work->request.u.batch.nitems);
}
