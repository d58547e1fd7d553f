/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous batches: a queue has workers that run the blocking forms, and an eventfd that tells of completions.
 * In a simulation, without threads, cairn_queue_wait runs them itself.
 *
 * Threads: submit and cancel from any; one waits. Memory: `depth` operations, allocated at open.
 * Invariant: items and buffers are touched only between submit and completion.
 */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/store.h"

enum { QUEUE_WORKERS_MAX = 16, QUEUE_DEPTH_MAX = 65536 };

struct queue_op {
	struct list link;
	const struct cairn_space *space;
	struct cairn_item *items;
	size_t nitems;
	struct cairn_call call;
	uint64_t tag;
	uint64_t deadline_ns;
	long result;
	int is_put;
	int state; /* 0 free, 1 waiting, 2 running, 3 done */
};

struct cairn_queue {
	cairn *store;
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	struct list waiting, completed, unused;
	struct queue_op *ops;
	uint32_t depth, nworkers, running;
	int stop, fd;
	pthread_t workers[QUEUE_WORKERS_MAX];
};

static void op_run(struct cairn_queue *queue, struct queue_op *op)
{
	/* The deadline counts from submit: time in the queue is part of it. */
	if (op->call.timeout_ms) {
		uint64_t now = clock_mono_ns(queue->store->clock);
		op->call.timeout_ms = now < op->deadline_ns ? (uint32_t)((op->deadline_ns - now) / 1000000) : 0;
		if (!op->call.timeout_ms) {
			for (size_t i = 0; i < op->nitems; i++)
				op->items[i].status = CAIRN_E_LATE;
			op->result = CAIRN_E_LATE;
			return;
		}
	}
	op->result = op->is_put ? cairn_put(queue->store, op->space, op->items, op->nitems, &op->call)
	                        : cairn_get(queue->store, op->space, op->items, op->nitems, &op->call);
}

static void op_complete(struct cairn_queue *queue, struct queue_op *op)
{
	op->state = 3;
	list_push_back(&queue->completed, &op->link);
	uint64_t one = 1;
	ssize_t written = write(queue->fd, &one, sizeof(one));
	check(written == (ssize_t)sizeof(one) || errno == EAGAIN);
	pthread_cond_signal(&queue->done);
}

static void *worker_main(void *arg)
{
	struct cairn_queue *queue = arg;
	pthread_mutex_lock(&queue->lock);
	for (;;) {
		while (list_empty(&queue->waiting) && !queue->stop)
			pthread_cond_wait(&queue->work, &queue->lock);
		struct list *node = list_pop_front(&queue->waiting);
		if (!node)
			break;
		struct queue_op *op = LIST_OF(node, struct queue_op, link);
		op->state = 2;
		queue->running++;
		pthread_mutex_unlock(&queue->lock);
		op_run(queue, op);
		pthread_mutex_lock(&queue->lock);
		queue->running--;
		op_complete(queue, op);
	}
	pthread_mutex_unlock(&queue->lock);
	return NULL;
}

CAIRN_API int cairn_queue_open(cairn *store, uint32_t depth, cairn_queue **ret_queue)
{
	if (!store || !ret_queue || !depth || depth > QUEUE_DEPTH_MAX)
		return err_set(CAIRN_E_INVAL, "queue: a depth from 1 to %d", QUEUE_DEPTH_MAX);
	struct cairn_queue *queue = mem_alloc(sizeof(*queue));
	if (!queue)
		return err_set(CAIRN_E_NOMEM, "no memory for a queue");
	queue->store = store;
	queue->depth = depth;
	queue->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	queue->ops = mem_array(depth, sizeof(*queue->ops));
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_mutex_init(&queue->lock, NULL);
	pthread_cond_init(&queue->work, NULL);
	pthread_cond_init(&queue->done, &attributes);
	pthread_condattr_destroy(&attributes);
	list_init(&queue->waiting);
	list_init(&queue->completed);
	list_init(&queue->unused);
	if (!queue->ops || queue->fd < 0) {
		cairn_queue_close(queue);
		return err_set(CAIRN_E_NOMEM, "no memory, or no file descriptor, for a queue of %u", depth);
	}
	for (uint32_t i = 0; i < depth; i++)
		list_push_back(&queue->unused, &queue->ops[i].link);
	uint32_t workers = !store->maker->threaded ? 0 : store->workers < depth ? store->workers : depth;
	for (; queue->nworkers < workers; queue->nworkers++)
		if (pthread_create(&queue->workers[queue->nworkers], NULL, worker_main, queue)) {
			if (queue->nworkers)
				break; /* fewer will do */
			cairn_queue_close(queue);
			return err_set(CAIRN_E_NOMEM, "cannot start a thread for a queue");
		}
	*ret_queue = queue;
	return 0;
}

CAIRN_API int cairn_queue_fd(const cairn_queue *queue)
{
	return queue->fd;
}

static int op_submit(cairn_queue *queue, int is_put, const cairn_space *space, struct cairn_item *items, size_t nitems,
                     const struct cairn_call *call, uint64_t tag)
{
	if (!queue || (nitems && !items))
		return err_set(CAIRN_E_INVAL, "submit: no queue or no items");
	if (call && (!call->size || call->size > 4096))
		return err_set(CAIRN_E_INVAL, "cairn_call: set size to sizeof(struct cairn_call)");
	pthread_mutex_lock(&queue->lock);
	for (uint32_t i = 0; i < queue->depth; i++)
		if (queue->ops[i].state && queue->ops[i].tag == tag) {
			pthread_mutex_unlock(&queue->lock);
			return err_set(CAIRN_E_INVAL, "submit: tag %llu is in flight already", (unsigned long long)tag);
		}
	struct list *node = list_pop_front(&queue->unused);
	if (!node) {
		pthread_mutex_unlock(&queue->lock);
		return err_set(CAIRN_E_BUSY, "submit: %u batches are in flight: wait for some", queue->depth);
	}
	struct queue_op *op = LIST_OF(node, struct queue_op, link);
	*op = (struct queue_op){.space = space, .items = items, .nitems = nitems, .tag = tag, .is_put = is_put, .state = 1};
	if (call)
		memcpy(&op->call, call, call->size < sizeof(op->call) ? call->size : sizeof(op->call));
	op->call.size = sizeof(op->call);
	op->deadline_ns = store_deadline(queue->store, op->call.timeout_ms);
	list_push_back(&queue->waiting, &op->link);
	pthread_cond_signal(&queue->work);
	pthread_mutex_unlock(&queue->lock);
	return 0;
}

CAIRN_API int cairn_put_submit(cairn_queue *queue, const cairn_space *space, struct cairn_item *items, size_t nitems,
                               const struct cairn_call *call, uint64_t tag)
{
	return op_submit(queue, 1, space, items, nitems, call, tag);
}

CAIRN_API int cairn_get_submit(cairn_queue *queue, const cairn_space *space, struct cairn_item *items, size_t nitems,
                               const struct cairn_call *call, uint64_t tag)
{
	return op_submit(queue, 0, space, items, nitems, call, tag);
}

/* Without workers: runs what waits. The lock is held. */
static void run_inline(cairn_queue *queue)
{
	struct list *node;
	while (!queue->nworkers && (node = list_pop_front(&queue->waiting))) {
		struct queue_op *op = LIST_OF(node, struct queue_op, link);
		op->state = 2;
		pthread_mutex_unlock(&queue->lock);
		op_run(queue, op);
		pthread_mutex_lock(&queue->lock);
		op_complete(queue, op);
	}
}

CAIRN_API long cairn_queue_wait(cairn_queue *queue, struct cairn_completion *done, size_t max, int timeout_ms)
{
	if (!queue || (max && !done))
		return err_set(CAIRN_E_INVAL, "queue: none, or no place for the result");
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	if (timeout_ms > 0) {
		until.tv_sec += timeout_ms / 1000;
		until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
	}
	pthread_mutex_lock(&queue->lock);
	run_inline(queue);
	while (list_empty(&queue->completed) && timeout_ms && queue->nworkers) {
		int late = timeout_ms < 0 ? pthread_cond_wait(&queue->done, &queue->lock)
		                          : pthread_cond_timedwait(&queue->done, &queue->lock, &until);
		if (late)
			break;
	}
	long n = 0;
	while ((size_t)n < max && !list_empty(&queue->completed)) {
		struct queue_op *op = LIST_OF(list_pop_front(&queue->completed), struct queue_op, link);
		done[n++] = (struct cairn_completion){op->tag, op->result};
		op->state = 0;
		list_push_back(&queue->unused, &op->link);
	}
	if (list_empty(&queue->completed)) {
		uint64_t count;
		ssize_t got = read(queue->fd, &count, sizeof(count));
		(void)got;
	}
	pthread_mutex_unlock(&queue->lock);
	return n;
}

/* The lock is held. */
static void op_cancel(cairn_queue *queue, struct queue_op *op)
{
	list_remove(&op->link);
	for (size_t i = 0; i < op->nitems; i++)
		op->items[i].status = CAIRN_E_CANCELED;
	op->result = CAIRN_E_CANCELED;
	op_complete(queue, op);
}

CAIRN_API int cairn_cancel(cairn_queue *queue, uint64_t tag)
{
	if (!queue)
		return err_set(CAIRN_E_INVAL, "cancel: no queue");
	int result = CAIRN_E_NOENT;
	pthread_mutex_lock(&queue->lock);
	for (uint32_t i = 0; i < queue->depth && result; i++)
		if (queue->ops[i].state == 1 && queue->ops[i].tag == tag) {
			op_cancel(queue, &queue->ops[i]);
			result = 0;
		}
	pthread_mutex_unlock(&queue->lock);
	return result ? err_set(result, "cancel: batch %llu has begun or is not there", (unsigned long long)tag) : 0;
}

CAIRN_API void cairn_queue_close(cairn_queue *queue)
{
	if (!queue)
		return;
	pthread_mutex_lock(&queue->lock);
	while (!list_empty(&queue->waiting))
		op_cancel(queue, LIST_OF(queue->waiting.next, struct queue_op, link));
	queue->stop = 1;
	pthread_cond_broadcast(&queue->work);
	pthread_mutex_unlock(&queue->lock);
	for (uint32_t i = 0; i < queue->nworkers; i++)
		pthread_join(queue->workers[i], NULL);
	if (queue->fd >= 0)
		close(queue->fd);
	pthread_cond_destroy(&queue->work);
	pthread_cond_destroy(&queue->done);
	pthread_mutex_destroy(&queue->lock);
	mem_free(queue->ops);
	mem_free(queue);
}
