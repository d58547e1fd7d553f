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
#include "io/work.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"

#define WORK_THREADS_MAX 256u
#define WORK_POLL_MAX 256 /* completions run by one poll */
#define WORK_CALL_MAX (1u << 30) /* bytes per system call; the kernel moves at most 0x7ffff000 */

struct work {
	struct io io; /* first */
	int fd;
	uint32_t readonly;
	uint32_t opened_direct;
	_Atomic uint32_t direct; /* cleared for good by the first transfer that O_DIRECT refuses; poll copies it to io */
	uint64_t in_flight;      /* submitted and not delivered; the loop's thread only */

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

static _Atomic uint64_t fail_left; /* 0: off; 1: the next one */
static _Atomic int fail_errno, fail_all, fail_seen, fail_fdatasync;
static _Atomic uint64_t call_limit;

void work_fail_at(uint64_t n, int errnum, int all)
{
	fail_errno = errnum;
	fail_all = all;
	fail_seen = 0;
	fail_left = n;
}

int work_failed(void)
{
	return fail_seen;
}

void work_fail_fdatasync(int errnum)
{
	fail_fdatasync = errnum;
}

void work_limit_call(uint64_t bytes)
{
	call_limit = bytes;
}

/* Counts one I/O: 0, or the -errno it must fail with. */
static int fail_count(void)
{
	uint64_t left = fail_left, next;
	do {
		if (left == 0)
			return 0;
		next = left > 1 ? left - 1 : fail_all ? 1 : 0;
	} while (!atomic_compare_exchange_weak(&fail_left, &left, next));
	if (left > 1)
		return 0;
	fail_seen = 1;
	return -fail_errno;
}

/* --- transfers: any thread --- */

/* What is left of `vec` after `moved` bytes, cut at the limit of one call. */
static int vec_rest(const struct io_vec *vec, uint32_t nvec, uint64_t moved, struct iovec rest[IO_VEC_MAX])
{
	uint64_t room = call_limit ? call_limit : WORK_CALL_MAX;
	int count = 0;
	for (uint32_t i = 0; i < nvec && room > 0; i++) {
		uint64_t length = vec[i].length;
		if (moved >= length) {
			moved -= length;
			continue;
		}
		length -= moved;
		if (length > room)
			length = room;
		rest[count++] = (struct iovec){(char *)vec[i].address + moved, length};
		room -= length;
		moved = 0;
	}
	return count;
}

/* The flag is cleared before O_DIRECT is: whoever was served without O_DIRECT sees the flag cleared. */
static void direct_drop(struct work *work)
{
	work->direct = 0;
	int flags = fcntl(work->fd, F_GETFL);
	if (flags >= 0)
		(void)fcntl(work->fd, F_SETFL, flags & ~O_DIRECT);
}

static int transfer(struct work *work, uint32_t op, const struct io_vec *vec, uint32_t nvec, uint64_t offset)
{
	uint64_t total = 0, moved = 0;
	int refused = 0;
	for (uint32_t i = 0; i < nvec; i++)
		total += vec[i].length;
	if (offset > INT64_MAX || total > INT64_MAX - offset)
		return -EINVAL;
	if (op == IO_WRITE && work->readonly)
		return -EROFS;
	while (moved < total) {
		struct iovec rest[IO_VEC_MAX];
		int count = vec_rest(vec, nvec, moved, rest);
		ssize_t now = op == IO_READ ? preadv(work->fd, rest, count, (off_t)(offset + moved))
		                            : pwritev(work->fd, rest, count, (off_t)(offset + moved));
		if (now < 0 && errno == EINTR)
			continue;
		if (now < 0 && errno == EINVAL && work->opened_direct && !refused) {
			direct_drop(work);
			refused = 1;
			continue;
		}
		if (now < 0)
			return -errno;
		if (work->direct)
			now -= now % IO_ALIGN; /* O_DIRECT goes on from an aligned place only */
		if (now == 0)
			return -EIO;
		moved += (uint64_t)now;
	}
	return 0;
}

static int sync_data(struct work *work)
{
	int errnum = atomic_exchange(&fail_fdatasync, 0);
	if (errnum)
		return -errnum;
	while (fdatasync(work->fd) != 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

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
		req->result = transfer(work, req->op, req->vec, req->nvec, req->offset);
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
		int result = sync_data(work);
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

static void request_check(const struct io_req *req)
{
	check(req->op == IO_READ || req->op == IO_WRITE || req->op == IO_FLUSH);
	if (req->op == IO_FLUSH)
		return;
	check(req->nvec >= 1 && req->nvec <= IO_VEC_MAX && req->offset % IO_ALIGN == 0);
	for (uint32_t i = 0; i < req->nvec; i++)
		check(req->vec[i].length > 0 && req->vec[i].length % IO_ALIGN == 0 &&
		      (uintptr_t)req->vec[i].address % IO_ALIGN == 0);
}

static void enqueue(struct work *work, struct io_req *req)
{
	req->result = fail_count();
	pthread_mutex_lock(&work->lock);
	if (req->op == IO_FLUSH && req->result == 0)
		req->result = work->broken;
	list_push_back(req->background ? &work->background : &work->urgent, &req->link);
	pthread_cond_signal(&work->todo);
	pthread_mutex_unlock(&work->lock);
}

static void work_submit(struct io *io, struct io_req *req)
{
	request_check(req);
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
	io->direct = work->direct;

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

static int transfer_blocking(struct io *io, uint32_t op, void *bytes, uint64_t length, uint64_t offset)
{
	check(offset % IO_ALIGN == 0 && length % IO_ALIGN == 0 && (uintptr_t)bytes % IO_ALIGN == 0);
	int result = fail_count();
	while (result == 0 && length > 0) {
		uint32_t now = length < WORK_CALL_MAX ? (uint32_t)length : WORK_CALL_MAX;
		struct io_vec vec = {bytes, now};
		result = transfer(work_of(io), op, &vec, 1, offset);
		bytes = (char *)bytes + now;
		offset += now;
		length -= now;
	}
	io->direct = work_of(io)->direct;
	return result;
}

static int work_pread(struct io *io, void *bytes, uint64_t length, uint64_t offset)
{
	return transfer_blocking(io, IO_READ, bytes, length, offset);
}

static int work_pwrite(struct io *io, const void *bytes, uint64_t length, uint64_t offset)
{
	return transfer_blocking(io, IO_WRITE, (void *)(uintptr_t)bytes, length, offset);
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

/* fallocate that may leave the file longer when it fails (ext4 does, on a full disk). */
static int allocate_blocks(int fd, uint64_t offset, uint64_t length)
{
	while (fallocate(fd, 0, (off_t)offset, (off_t)length) != 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static int work_allocate(struct io *io, uint64_t offset, uint64_t length)
{
	struct work *work = work_of(io);
	struct stat before, after;
	int result = fail_count();
	if (result < 0)
		return result;
	if (work->readonly)
		return -EROFS;
	if (length == 0 || offset > INT64_MAX || length > INT64_MAX - offset)
		return -EINVAL;
	if (fstat(work->fd, &before) != 0)
		return -errno;
	result = allocate_blocks(work->fd, offset, length);
	if (result == -EOPNOTSUPP || result == -ENOSYS) {
		if (offset + length <= (uint64_t)before.st_size)
			return 0;
		return ftruncate(work->fd, (off_t)(offset + length)) == 0 ? 0 : -errno;
	}
	if (result < 0 && fstat(work->fd, &after) == 0 && after.st_size > before.st_size)
		(void)!ftruncate(work->fd, before.st_size);
	return result;
}

static int work_punch(struct io *io, uint64_t offset, uint64_t length)
{
	struct work *work = work_of(io);
	int result = fail_count();
	if (result < 0)
		return result;
	if (work->readonly)
		return -EROFS;
	if (length == 0 || offset > INT64_MAX || length > INT64_MAX - offset)
		return -EINVAL;
	while (fallocate(work->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)length) != 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

static int work_space(struct io *io, uint64_t *size, uint64_t *free, uint64_t *all)
{
	struct stat file;
	struct statvfs system;
	if (fstat(work_of(io)->fd, &file) != 0 || fstatvfs(work_of(io)->fd, &system) != 0)
		return -errno;
	*size = (uint64_t)file.st_size;
	*free = system.f_blocks ? (uint64_t)system.f_bavail * system.f_frsize : UINT64_MAX; /* ramfs tells none */
	*all = (uint64_t)system.f_blocks * system.f_frsize;
	return 0;
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
	(void)close(work->fd);
	mem_free(work);
}

static void work_close(struct io *io)
{
	while (work_of(io)->in_flight > 0)
		(void)work_poll(io, 3600u * 1000000000ull);
	work_end(work_of(io));
}

static const struct io_ops work_ops = {
	.name = "work",
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

/* Without this a file that was just made may be gone after a power loss, with all that was flushed into it. */
static int sync_parent(const char *path)
{
	char parent[PATH_MAX];
	const char *slash = strrchr(path, '/');
	size_t length = slash ? (size_t)(slash - path) : 0;
	if (length >= sizeof(parent))
		return -ENAMETOOLONG;
	memcpy(parent, path, length);
	parent[length] = 0;
	const char *name = length ? parent : slash ? "/" : ".";
	int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES ? 0 : -errno; /* may be entered but not read: leave it to the file system */
	int result = fsync(fd) == 0 || errno == EINVAL ? 0 : -errno;
	(void)close(fd);
	return result;
}

/* O_DIRECT is set afterwards: an open that is refused because of it may leave the new file behind. */
static int open_file(const char *path, uint32_t flags)
{
	int how = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (flags & IO_OPEN_READONLY ? O_RDONLY : O_RDWR);
	if (flags & IO_OPEN_CREATE)
		how |= O_CREAT;
	if (flags & IO_OPEN_EXCLUSIVE)
		how |= O_EXCL;
	struct stat file;
	int fd, result = 0;
	while ((fd = open(path, how, 0600)) < 0)
		if (errno != EINTR)
			return -errno;
	if (fstat(fd, &file) != 0)
		result = -errno;
	else if (!S_ISREG(file.st_mode))
		result = -EINVAL;
	else if ((flags & IO_OPEN_LOCK) && flock(fd, (flags & IO_OPEN_READONLY ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0)
		result = -errno;
	else if (flags & IO_OPEN_CREATE)
		result = sync_parent(path);
	if (result == 0)
		return fd;
	(void)close(fd);
	return result;
}

/* Whether O_DIRECT is on. An empty file cannot be tried without writing to it: there the first transfer finds out. */
static uint32_t direct_try(int fd)
{
	_Alignas(IO_ALIGN) char page[IO_ALIGN];
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, (flags & ~O_NONBLOCK) | O_DIRECT) != 0)
		return 0;
	if (pread(fd, page, sizeof(page), 0) >= 0 || errno != EINVAL)
		return 1;
	(void)fcntl(fd, F_SETFL, flags & ~O_DIRECT);
	return 0;
}

static int start_threads(struct work *work, uint32_t threads)
{
	sigset_t all, before;
	int result = 0;
	sigfillset(&all);
	check(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
	while (result == 0 && work->nthread < threads) {
		result = pthread_create(&work->thread[work->nthread], NULL, worker, work);
		if (result == 0) {
			(void)pthread_setname_np(work->thread[work->nthread], "cairn-io");
			work->nthread++;
		}
	}
	check(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
	return result == EAGAIN ? -ENOMEM : -result; /* no room for another thread, and not a passing state */
}

int work_open(const char *path, uint32_t flags, uint32_t threads, struct io **ret_io)
{
	check(threads >= 1 && threads <= WORK_THREADS_MAX);
	struct work *work = mem_alloc(sizeof(*work) + threads * sizeof(work->thread[0]));
	if (!work)
		return -ENOMEM;
	work->fd = open_file(path, flags);
	if (work->fd < 0) {
		int result = work->fd;
		mem_free(work);
		return result;
	}
	work->io.ops = &work_ops;
	work->io.clock = &clock_real;
	work->io.threaded = 1;
	work->readonly = (flags & IO_OPEN_READONLY) != 0;
	work->io.direct = work->opened_direct = direct_try(work->fd);
	work->direct = work->io.direct;
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

	int result = start_threads(work, threads);
	if (result < 0) {
		work_end(work);
		return result;
	}
	*ret_io = &work->io;
	return 0;
}

static int maker_open(void *arg, const char *path, uint32_t flags, uint32_t threads, struct io **ret_io)
{
	(void)arg;
	return work_open(path, flags, threads, ret_io);
}

const struct io_maker io_maker_real = {
	.open = maker_open,
	.arg = NULL,
	.clock = &clock_real,
	.threaded = 1,
};
