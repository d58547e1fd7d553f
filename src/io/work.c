/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I/O by threads that call preadv and pwritev: the engine that works everywhere, where io_uring is forbidden too.
 *
 * Threads: submit, poll, sync and close belong to the loop's thread; the workers take requests from two queues (urgent
 * before background, each in order), carry them out, run `work`, and put them into `completed`, where poll fetches
 * them. `lock` guards the queues and the flush state; it is never held across a system call or a callback.
 * Memory: one allocation at open; none later.
 * Invariant: a flush succeeds only if every write whose `done` ran before its submit is durable. The kernel reports a
 * write-back error to one fdatasync only, so only one runs at a time, and its failure also fails every flush that was
 * submitted before that failure was delivered, and every write that was not yet delivered.
 */
#include "io/io.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/check.h"
#include "base/mem.h"
#include "io/file.h"

#define WORK_THREADS_MAX 256u
#define WORK_POLL_MAX 256 /* completions run by one poll */

struct work {
	struct io io; /* first */
	struct file file;
	uint64_t in_flight; /* submitted and not delivered; the loop's thread only */

	pthread_mutex_t lock; /* guards everything below, and link and result of requests that are in a list */
	pthread_cond_t todo;  /* workers wait: a request or stopping */
	pthread_cond_t ready; /* the loop's thread waits: a completion or a wake; CLOCK_MONOTONIC */
	struct list urgent, background;
	struct list waiting; /* flushes taken from their queue while another one runs: the next batch */
	struct list completed;
	uint32_t flushing;       /* a worker is in run_flushes */
	uint64_t flush_failures; /* since open */
	int32_t broken;          /* -errno of a failed flush that was not delivered yet; fails new flushes */
	const struct io_req *broken_by;
	uint32_t synced; /* the loop's own flush (work_sync) is complete */
	uint32_t woken, stopping;

	uint32_t nthread;
	pthread_t thread[];
};

/* --- workers --- */

static void complete(struct work *work, struct io_req *req)
{
	if (req->done)
		list_push_back(&work->completed, &req->link);
	else
		work->synced = 1; /* work_sync's own */
	pthread_cond_signal(&work->ready);
}

static void run_transfer(struct work *work, struct io_req *req)
{
	uint64_t failures = work->flush_failures;
	pthread_mutex_unlock(&work->lock);
	if (req->result == 0)
		req->result = file_transfer(&work->file, req->op, req->vec, req->nvec, req->offset);
	if (req->work)
		req->work(req);
	pthread_mutex_lock(&work->lock);
	if (req->op == IO_WRITE && req->result == 0 && work->flush_failures != failures)
		req->result = -EIO; /* the failed flush may have taken the only report that this write was lost */
	complete(work, req);
}

static void list_move(struct list *to, struct list *from)
{
	struct list *node;
	while ((node = list_pop_front(from)))
		list_push_back(to, node);
}

static void fail_op(struct list *queue, uint32_t op, int32_t result)
{
	for (struct list *node = queue->next; node != queue; node = node->next) {
		struct io_req *req = LIST_OF(node, struct io_req, link);
		if (req->op == op && req->result == 0)
			req->result = result;
	}
}

static void flush_failed(struct work *work, struct list *batch, int32_t result)
{
	work->flush_failures++;
	work->broken = result;
	work->broken_by = LIST_OF(batch->next, struct io_req, link);
	list_move(batch, &work->waiting);
	fail_op(&work->urgent, IO_FLUSH, result);
	fail_op(&work->background, IO_FLUSH, result);
	fail_op(&work->completed, IO_WRITE, -EIO);
}

/* One fdatasync serves all flushes that were taken before it began. */
static void run_flushes(struct work *work, struct io_req *first)
{
	struct list batch;
	list_init(&batch);
	list_push_back(&batch, &first->link);
	work->flushing = 1;
	while (!list_empty(&batch)) {
		pthread_mutex_unlock(&work->lock);
		int result = file_sync(&work->file);
		pthread_mutex_lock(&work->lock);
		if (result < 0)
			flush_failed(work, &batch, result);
		struct list *node;
		while ((node = list_pop_front(&batch))) {
			struct io_req *req = LIST_OF(node, struct io_req, link);
			req->result = result;
			if (req->work) {
				pthread_mutex_unlock(&work->lock);
				req->work(req);
				pthread_mutex_lock(&work->lock);
			}
			complete(work, req);
		}
		list_move(&batch, &work->waiting);
	}
	work->flushing = 0;
}

static void *worker(void *arg)
{
	struct work *work = arg;
	pthread_mutex_lock(&work->lock);
	for (;;) {
		struct list *node = list_pop_front(&work->urgent);
		if (!node)
			node = list_pop_front(&work->background);
		if (!node) {
			if (work->stopping)
				break;
			pthread_cond_wait(&work->todo, &work->lock);
			continue;
		}
		struct io_req *req = LIST_OF(node, struct io_req, link);
		if (req->op != IO_FLUSH || req->result != 0)
			run_transfer(work, req);
		else if (work->flushing)
			list_push_back(&work->waiting, &req->link);
		else
			run_flushes(work, req);
	}
	pthread_mutex_unlock(&work->lock);
	return NULL;
}

/* --- the loop's thread --- */

static struct work *work_of(struct io *io)
{
	return (struct work *)(void *)io;
}

static void enqueue(struct work *work, struct io_req *req)
{
	req->result = file_fail_count();
	pthread_mutex_lock(&work->lock);
	if (req->op == IO_FLUSH && req->result == 0)
		req->result = work->broken;
	list_push_back(req->background ? &work->background : &work->urgent, &req->link);
	pthread_cond_signal(&work->todo);
	pthread_mutex_unlock(&work->lock);
}

static void work_submit(struct io *io, struct io_req *req)
{
	file_req_check(req);
	check(req->done != NULL);
	work_of(io)->in_flight++;
	enqueue(work_of(io), req);
}

static struct timespec deadline_after(uint64_t timeout_ns)
{
	struct timespec now;
	check(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	now.tv_sec += (time_t)(timeout_ns / 1000000000u);
	now.tv_nsec += (long)(timeout_ns % 1000000000u);
	if (now.tv_nsec >= 1000000000) {
		now.tv_sec++;
		now.tv_nsec -= 1000000000;
	}
	return now;
}

/* The next completion, or NULL. One at a time: what was not delivered may still be failed by a flush. */
static struct io_req *take_completed(struct work *work)
{
	pthread_mutex_lock(&work->lock);
	struct list *node = list_pop_front(&work->completed);
	struct io_req *req = node ? LIST_OF(node, struct io_req, link) : NULL;
	if (req && work->broken_by == req) {
		work->broken = 0;
		work->broken_by = NULL;
	}
	pthread_mutex_unlock(&work->lock);
	return req;
}

static int work_poll(struct io *io, uint64_t timeout_ns)
{
	struct work *work = work_of(io);
	pthread_mutex_lock(&work->lock);
	if (timeout_ns > 0 && list_empty(&work->completed) && !work->woken) {
		struct timespec deadline = deadline_after(timeout_ns);
		while (list_empty(&work->completed) && !work->woken)
			if (pthread_cond_timedwait(&work->ready, &work->lock, &deadline) == ETIMEDOUT)
				break;
	}
	work->woken = 0;
	pthread_mutex_unlock(&work->lock);
	io->direct = work->file.direct;

	struct io_req *req;
	int count = 0;
	while (count < WORK_POLL_MAX && (req = take_completed(work))) {
		work->in_flight--;
		count++;
		req->done(req);
	}
	return count;
}

static void work_wake(struct io *io)
{
	struct work *work = work_of(io);
	pthread_mutex_lock(&work->lock);
	work->woken = 1;
	pthread_cond_signal(&work->ready);
	pthread_mutex_unlock(&work->lock);
}

static int work_pread(struct io *io, void *bytes, uint64_t length, uint64_t offset)
{
	int result = file_transfer_range(&work_of(io)->file, IO_READ, bytes, length, offset);
	io->direct = work_of(io)->file.direct;
	return result;
}

static int work_pwrite(struct io *io, const void *bytes, uint64_t length, uint64_t offset)
{
	int result = file_transfer_range(&work_of(io)->file, IO_WRITE, (void *)(uintptr_t)bytes, length, offset);
	io->direct = work_of(io)->file.direct;
	return result;
}

/* A flush like any other, so that it takes its turn with those in flight. */
static int work_sync(struct io *io)
{
	struct work *work = work_of(io);
	struct io_req req = {.op = IO_FLUSH};
	enqueue(work, &req);
	pthread_mutex_lock(&work->lock);
	while (!work->synced)
		pthread_cond_wait(&work->ready, &work->lock);
	work->synced = 0;
	if (work->broken_by == &req) {
		work->broken = 0;
		work->broken_by = NULL;
	}
	pthread_mutex_unlock(&work->lock);
	return req.result;
}

static int work_allocate(struct io *io, uint64_t offset, uint64_t length)
{
	return file_allocate(&work_of(io)->file, offset, length);
}

static int work_punch(struct io *io, uint64_t offset, uint64_t length)
{
	return file_punch(&work_of(io)->file, offset, length);
}

static int work_space(struct io *io, uint64_t *size, uint64_t *free, uint64_t *all)
{
	return file_space(&work_of(io)->file, size, free, all);
}

/* Ends the threads and frees; for set-up that failed as well. */
static void work_end(struct work *work)
{
	pthread_mutex_lock(&work->lock);
	work->stopping = 1;
	pthread_cond_broadcast(&work->todo);
	pthread_mutex_unlock(&work->lock);
	for (uint32_t i = 0; i < work->nthread; i++)
		check(pthread_join(work->thread[i], NULL) == 0);
	pthread_cond_destroy(&work->ready);
	pthread_cond_destroy(&work->todo);
	pthread_mutex_destroy(&work->lock);
	file_close(&work->file);
	mem_free(work);
}

static void work_close(struct io *io)
{
	while (work_of(io)->in_flight > 0)
		(void)work_poll(io, 3600u * 1000000000ull);
	work_end(work_of(io));
}

static const struct io_ops work_ops = {
	.name = "threads",
	.submit = work_submit,
	.poll = work_poll,
	.wake = work_wake,
	.pread = work_pread,
	.pwrite = work_pwrite,
	.sync = work_sync,
	.allocate = work_allocate,
	.punch = work_punch,
	.space = work_space,
	.close = work_close,
};

/* --- open --- */

int work_open(const char *path, uint32_t flags, uint32_t threads, struct io **ret_io)
{
	check(threads >= 1 && threads <= WORK_THREADS_MAX);
	struct work *work = mem_alloc(sizeof(*work) + threads * sizeof(work->thread[0]));
	if (!work)
		return -ENOMEM;
	int result = file_open(&work->file, path, flags);
	if (result < 0) {
		mem_free(work);
		return result;
	}
	work->io.ops = &work_ops;
	work->io.clock = &clock_real;
	work->io.threaded = 1;
	work->io.direct = work->file.direct;
	work->io.raw = work->file.block;
	list_init(&work->urgent);
	list_init(&work->background);
	list_init(&work->waiting);
	list_init(&work->completed);

	pthread_condattr_t monotonic;
	check(pthread_mutex_init(&work->lock, NULL) == 0 && pthread_cond_init(&work->todo, NULL) == 0);
	check(pthread_condattr_init(&monotonic) == 0);
	check(pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0);
	check(pthread_cond_init(&work->ready, &monotonic) == 0);
	pthread_condattr_destroy(&monotonic);

	result = file_threads_start(work->thread, threads, &work->nthread, worker, work);
	if (result < 0) {
		work_end(work);
		return result;
	}
	*ret_io = &work->io;
	return 0;
}
