/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I/O by io_uring: one ring for each device, used by the loop's thread alone.
 *
 * A request waits in one of two queues, becomes a `job` when it begins, and is carried out in pieces; each piece is one
 * operation of the ring at a time, again and again until all of it is moved. A job keeps its place until its `done`.
 * `work` runs in a few threads of our own, or right in the loop's where there is no other request that would wait.
 *
 * Threads: all is the loop's thread's, but what `lock` guards (requests on their way through the workers, and waking)
 * and the table of buffers, whose addresses any thread may take away. The lock is never held across a system call or a
 * callback. A ring serves one thread only (SINGLE_ISSUER): it is made at open, enabled by the first thread that polls,
 * ended by `leave`, and made anew by the next one; where that fails, transfers go on without one.
 * Memory: all taken at open; where registered, buffers are pinned by the kernel. The file is not: a ring goes some time
 * after its last descriptor does, and would hold the file's lock until then.
 * Invariant: that of work.c: a flush succeeds only if every write whose `done` ran before its submit is durable; one
 * fdatasync at a time, and its failure also fails every flush that was submitted before that failure was delivered, and
 * every write that was not yet delivered.
 */
#include "io/io.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "io/file.h"

enum {
	URING_JOBS = 256,      /* begun and not delivered */
	URING_PIECES = 192,    /* in the kernel; with the flush and the wake they fit into the ring */
	URING_ENTRIES = 256,
	URING_BACKGROUND = 4,  /* pieces of background requests in the kernel while urgent ones are there */
	URING_THREADS_MAX = 4, /* for `work` */
	URING_POLL_MAX = 256,  /* completions run by one poll */
	URING_BUFFERS = 1024,
};
#define URING_ALONE_BYTES (256u << 10) /* a vector that is worth an operation of its own */
#define URING_PIECE_BYTES (4ull << 20) /* smaller ones are no faster, and longer ones let urgent requests wait */
/* Beside reads: what a device has been given to write is what a read waits for. Measured, p99 of reads of 2 MiB: ten
 * times that of reads alone with 64 MiB of writes under way, three to five times with 1 MiB. */
#define URING_BESIDE_BYTES (1ull << 20)
#define URING_BESIDE_PIECE (1ull << 20)
#define URING_BESIDE_NS 20000000ull    /* since the last read: another one is likely */

struct job {
	struct io_req *req;
	uint64_t total, given; /* bytes of it, and of them given to pieces */
	uint32_t pieces;       /* that are not over */
	uint64_t failures;     /* of flushes, when it began */
	struct list link;      /* of the one list that it is in */
};

struct piece {
	struct job *job;
	uint64_t start, length, moved; /* bytes of the request */
	uint32_t refused;              /* O_DIRECT refused it once */
	struct list link;              /* free, or `again` */
	struct iovec rest[IO_VEC_MAX];
};

struct uring_buffer {
	_Atomic uintptr_t address; /* 0: gone */
	uint64_t length;
	uint32_t registered;
};

enum { LANE_READS, LANE_WRITES, LANE_BACKGROUND, LANES };
struct lane {
	struct list queue; /* struct io_req, not begun */
	struct job *cut;   /* begun, and not all of it given to pieces */
	uint32_t pieces;   /* in the kernel, and their bytes */
	uint64_t bytes;
};

struct uring {
	struct io io; /* first */
	struct file file;
	struct io_uring ring;
	uint32_t ring_made, ring_enabled;
	uint64_t in_flight; /* submitted and not delivered */
	struct lane lane[LANES];
	uint64_t read_ns;      /* when the last read was asked for */
	struct list jobs_free, pieces_free;
	struct list again;     /* pieces to go on with */
	struct list completed; /* jobs */
	struct list batch;     /* flushes that the fdatasync in flight is for; empty: none is in flight */
	struct list waiting;   /* the next batch */
	uint64_t flush_failures;
	int32_t broken;        /* -errno of a failed flush that was not delivered yet; fails new flushes */
	const struct io_req *broken_by;
	uint32_t working;      /* jobs that were handed to the workers and not collected */
	uint32_t wake_armed;
	uint64_t wake_count;   /* what a read of wake_fd gives */
	int wake_fd;
	uint32_t nbuffers;
	_Atomic uint32_t buffers_stale; /* one of them has gone and is registered still */

	pthread_mutex_t lock; /* guards what follows, and the jobs in these two lists */
	pthread_cond_t todo_ready;
	struct list todo, worked;
	uint32_t sleeping;  /* the loop waits in the kernel: who has something for it writes to wake_fd */
	uint32_t signalled; /* and has done so */
	uint32_t woken, stopping;

	uint32_t nthread;
	pthread_t thread[URING_THREADS_MAX];
	struct job jobs[URING_JOBS];
	struct piece pieces[URING_PIECES];
	struct uring_buffer buffer[URING_BUFFERS];
};

static struct uring *uring_of(struct io *io)
{
	return (struct uring *)(void *)io;
}

static struct lane *lane_of(struct uring *uring, const struct io_req *req)
{
	return &uring->lane[req->background ? LANE_BACKGROUND : req->op == IO_WRITE ? LANE_WRITES : LANE_READS];
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

/* Under the lock: whether the caller must write to wake_fd after it. */
static int must_signal(struct uring *uring)
{
	int must = uring->sleeping && !uring->signalled;
	uring->signalled |= (uint32_t)must;
	return must;
}

static void signal_loop(struct uring *uring)
{
	const uint64_t one = 1;
	check(write(uring->wake_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
}

static void *worker(void *arg)
{
	struct uring *uring = arg;
	pthread_mutex_lock(&uring->lock);
	for (;;) {
		struct list *node = list_pop_front(&uring->todo);
		if (!node && uring->stopping)
			break;
		if (!node) {
			pthread_cond_wait(&uring->todo_ready, &uring->lock);
			continue;
		}
		struct io_req *req = LIST_OF(node, struct job, link)->req;
		pthread_mutex_unlock(&uring->lock);
		req->work(req);
		pthread_mutex_lock(&uring->lock);
		list_push_back(&uring->worked, node);
		if (must_signal(uring)) {
			pthread_mutex_unlock(&uring->lock);
			signal_loop(uring);
			pthread_mutex_lock(&uring->lock);
		}
	}
	pthread_mutex_unlock(&uring->lock);
	return NULL;
}

/* ---- the ring ---------------------------------------------------------------------------------------------------- */

/* Newer kernels do the end of an operation in the thread that waits for it, which costs least. 0 or -errno. */
static int ring_make(struct uring *uring)
{
	static const uint32_t kinds[] = {
	    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_R_DISABLED, /* 6.1 */
	    IORING_SETUP_COOP_TASKRUN,                                                         /* 5.19 */
	    0,
	};
	const uint32_t needs = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE;
	struct io_uring_params params;
	int result = -EINVAL;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && result == -EINVAL; i++) {
		memset(&params, 0, sizeof(params));
		params.flags = kinds[i];
		result = io_uring_queue_init_params(URING_ENTRIES, &uring->ring, &params);
	}
	if (result == 0 && (params.features & needs) != needs) { /* before 5.11 */
		io_uring_queue_exit(&uring->ring);
		result = -ENOSYS;
	}
	if (result < 0)
		return result;
	uring->ring_made = 1;
	uring->ring_enabled = !(params.flags & IORING_SETUP_R_DISABLED);
	return 0;
}

static void ring_end(struct uring *uring)
{
	if (!uring->ring_made)
		return;
	io_uring_queue_exit(&uring->ring);
	uring->ring_made = uring->wake_armed = 0;
	for (uint32_t i = 0; i < uring->nbuffers; i++)
		uring->buffer[i].registered = 0;
	pthread_mutex_lock(&uring->lock);
	uring->signalled = 0; /* what it was may have gone with the ring */
	pthread_mutex_unlock(&uring->lock);
}

/* The loop's thread has the ring from here on. Without one (only where another thread went on with the loop) transfers
 * go on all the same, one after the other. */
static int ring_ready(struct uring *uring)
{
	if (!uring->ring_made && ring_make(uring) < 0)
		return 0;
	if (!uring->ring_enabled) {
		/* liburing 2.3 has a function for this, and forgot to export it. */
		check(syscall(__NR_io_uring_register, uring->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) == 0);
		uring->ring_enabled = 1;
	}
	return 1;
}

/* Room is certain: pieces, the flush and the wake are fewer than its entries. */
static struct io_uring_sqe *sqe_take(struct uring *uring)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
	check(sqe != NULL);
	return sqe;
}

/* The registered buffer that all of these bytes lie in, or -1. */
static int buffer_find(const struct uring *uring, const struct iovec *bytes)
{
	uintptr_t from = (uintptr_t)bytes->iov_base;
	for (uint32_t i = 0; i < uring->nbuffers; i++) {
		const struct uring_buffer *buffer = &uring->buffer[i];
		uintptr_t base = buffer->registered ? buffer->address : 0;
		if (base && from >= base && from - base <= buffer->length && bytes->iov_len <= buffer->length - (from - base))
			return (int)i;
	}
	return -1;
}

/* Lets the kernel let go of what is gone. */
static void buffers_forget(struct uring *uring)
{
	if (!uring->buffers_stale)
		return;
	uring->buffers_stale = 0;
	for (uint32_t i = 0; i < uring->nbuffers; i++) {
		struct uring_buffer *buffer = &uring->buffer[i];
		struct iovec none = {NULL, 0};
		__u64 tag = 0;
		if (buffer->registered && !buffer->address) {
			buffer->registered = 0;
			(void)io_uring_register_buffers_update_tag(&uring->ring, i, &none, &tag, 1);
		}
	}
}

/* ---- completion -------------------------------------------------------------------------------------------------- */

static void job_worked(struct uring *uring, struct job *job)
{
	list_push_back(&uring->completed, &job->link);
}

/* The transfer is over. */
static void job_moved(struct uring *uring, struct job *job)
{
	struct io_req *req = job->req;
	if (!req->work) {
		job_worked(uring, job);
	} else if (uring->in_flight == 1) { /* nothing waits: two changes of threads would be the longer way */
		req->work(req);
		job_worked(uring, job);
	} else {
		uring->working++;
		pthread_mutex_lock(&uring->lock);
		list_push_back(&uring->todo, &job->link);
		pthread_cond_signal(&uring->todo_ready);
		pthread_mutex_unlock(&uring->lock);
	}
}

/* Takes what the workers are done with. Returns whether the loop was woken since the last time. */
static int collect(struct uring *uring)
{
	struct list *node;
	pthread_mutex_lock(&uring->lock);
	int woken = uring->woken != 0;
	uring->woken = 0;
	while ((node = list_pop_front(&uring->worked))) {
		uring->working--;
		job_worked(uring, LIST_OF(node, struct job, link));
	}
	pthread_mutex_unlock(&uring->lock);
	return woken;
}

static void list_move(struct list *to, struct list *from)
{
	struct list *node;
	while ((node = list_pop_front(from)))
		list_push_back(to, node);
}

/* Writes that are not delivered find out by `failures`, when they are. */
static void flush_failed(struct uring *uring, int32_t result)
{
	uring->flush_failures++;
	list_move(&uring->batch, &uring->waiting);
	for (int lane = 0; lane < LANES; lane++)
		for (struct list *node = uring->lane[lane].queue.next; node != &uring->lane[lane].queue; node = node->next) {
			struct io_req *req = LIST_OF(node, struct io_req, link);
			if (req->op == IO_FLUSH && req->result == 0)
				req->result = result;
		}
}

static void flush_start(struct uring *uring);

/* The fdatasync for the batch is over. One that was counted on for later comes from `waiting`. */
static void flush_end(struct uring *uring, int32_t result)
{
	if (result < 0) {
		uring->broken = result;
		uring->broken_by = LIST_OF(uring->batch.next, struct job, link)->req;
		flush_failed(uring, result);
	}
	struct list *node;
	while ((node = list_pop_front(&uring->batch))) {
		struct job *job = LIST_OF(node, struct job, link);
		job->req->result = result;
		job_moved(uring, job);
	}
	list_move(&uring->batch, &uring->waiting);
	if (!list_empty(&uring->batch))
		flush_start(uring);
}

static void flush_start(struct uring *uring)
{
	int32_t failure = file_fail_sync();
	if (failure == 0 && ring_ready(uring)) {
		struct io_uring_sqe *sqe = sqe_take(uring);
		io_uring_prep_fsync(sqe, uring->file.fd, IORING_FSYNC_DATASYNC);
		io_uring_sqe_set_data(sqe, &uring->batch);
		return;
	}
	flush_end(uring, failure ? failure : file_sync(&uring->file));
}

static void piece_over(struct uring *uring, struct piece *piece, int32_t error)
{
	struct job *job = piece->job;
	list_push_back(&uring->pieces_free, &piece->link);
	job->pieces--;
	if (error && !job->req->result)
		job->req->result = error;
	if (job->req->result && job->given < job->total) { /* the rest would be for nothing */
		job->given = job->total;
		lane_of(uring, job->req)->cut = NULL;
	}
	if (job->pieces == 0 && job->given == job->total)
		job_moved(uring, job);
}

static void piece_moved(struct uring *uring, struct piece *piece, int32_t result)
{
	lane_of(uring, piece->job->req)->pieces--;
	lane_of(uring, piece->job->req)->bytes -= piece->length - piece->moved;
	int64_t counts = file_moved(&uring->file, result, &piece->refused);
	if (counts > 0)
		piece->moved += (uint64_t)counts;
	if (counts < 0 && counts != -EAGAIN)
		piece_over(uring, piece, (int32_t)counts);
	else if (piece->moved == piece->length)
		piece_over(uring, piece, 0);
	else
		list_push_back(&uring->again, &piece->link);
}

static void reap(struct uring *uring)
{
	struct io_uring_cqe *cqe;
	while (uring->ring_made && io_uring_peek_cqe(&uring->ring, &cqe) == 0) {
		void *tag = io_uring_cqe_get_data(cqe);
		int32_t result = cqe->res;
		io_uring_cqe_seen(&uring->ring, cqe);
		if (tag == &uring->wake_count) {
			uring->wake_armed = 0;
			pthread_mutex_lock(&uring->lock);
			uring->signalled = 0;
			pthread_mutex_unlock(&uring->lock);
		} else if (tag == &uring->batch) {
			flush_end(uring, result == -EINTR || result == -EAGAIN ? file_sync(&uring->file) : result);
		} else {
			piece_moved(uring, tag, result);
		}
	}
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

/* One operation for what is left of a piece. */
static void piece_give(struct uring *uring, struct piece *piece)
{
	const struct io_req *req = piece->job->req;
	uint64_t room = piece->length - piece->moved, most = file_call_max(), at = piece->start + piece->moved;
	int count = file_vec_rest(req->vec, req->nvec, at, room < most ? room : most, piece->rest);
	struct io_uring_sqe *sqe = sqe_take(uring);
	int fixed = count == 1 ? buffer_find(uring, &piece->rest[0]) : -1, reads = req->op == IO_READ;
	int op = fixed >= 0   ? reads ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED
	         : count == 1 ? reads ? IORING_OP_READ : IORING_OP_WRITE
	         : reads      ? IORING_OP_READV
	                      : IORING_OP_WRITEV;
	io_uring_prep_rw(op, sqe, uring->file.fd, count == 1 ? piece->rest[0].iov_base : (void *)piece->rest,
	                 count == 1 ? (unsigned)piece->rest[0].iov_len : (unsigned)count, req->offset + at);
	if (fixed >= 0)
		sqe->buf_index = (uint16_t)fixed;
	io_uring_sqe_set_data(sqe, piece);
	lane_of(uring, req)->pieces++;
	lane_of(uring, req)->bytes += room;
}

/* Takes the next request of a lane. What needs no transfer is over at once. Returns 0: there is none to begin. */
static int job_begin(struct uring *uring, struct lane *lane)
{
	struct list *free = uring->jobs_free.next, *node;
	if (free == &uring->jobs_free || !(node = list_pop_front(&lane->queue)))
		return 0;
	list_remove(free);
	struct job *job = LIST_OF(free, struct job, link);
	struct io_req *req = LIST_OF(node, struct io_req, link);
	*job = (struct job){.req = req, .failures = uring->flush_failures};
	if (req->op == IO_FLUSH && !req->result) {
		int flushing = !list_empty(&uring->batch);
		list_push_back(flushing ? &uring->waiting : &uring->batch, &job->link);
		if (!flushing)
			flush_start(uring);
		return 1;
	}
	job->total = file_vec_total(req->vec, req->nvec);
	if (!req->result)
		req->result = file_may_transfer(&uring->file, req->op, req->offset, job->total);
	if (!req->result && !ring_ready(uring))
		req->result = file_transfer(&uring->file, req->op, req->vec, req->nvec, req->offset);
	else if (!req->result)
		lane->cut = job;
	if (!lane->cut)
		job_moved(uring, job);
	return 1;
}

/* Whether there are reads, or were a moment ago. */
static int beside_reads(const struct uring *uring)
{
	return uring->lane[LANE_READS].pieces || clock_mono_ns(uring->io.clock) - uring->read_ns < URING_BESIDE_NS;
}

/* Bytes of the piece that begins where `job` stands. With registered buffers a long vector is a piece of its own, since
 * only a single one can be used as registered; short ones go together. */
static uint64_t piece_length(const struct uring *uring, const struct job *job)
{
	const struct io_req *req = job->req;
	uint64_t left = job->total - job->given, skip = job->given, length = 0;
	uint64_t most = req->op == IO_WRITE && beside_reads(uring) ? URING_BESIDE_PIECE : URING_PIECE_BYTES;
	left = left < most ? left : most;
	for (uint32_t i = 0; i < req->nvec && uring->nbuffers && length < left; i++) {
		uint64_t here = req->vec[i].length;
		if (skip >= here) {
			skip -= here;
			continue;
		}
		here -= skip;
		skip = 0;
		if (here >= URING_ALONE_BYTES)
			return length ? length : here < left ? here : left;
		length += here;
	}
	return left;
}

/* Gives the next piece of a lane to the ring. Returns 0: there is none, or no place for it. */
static int lane_give(struct uring *uring, struct lane *lane)
{
	struct list *node;
	while (!lane->cut)
		if (!job_begin(uring, lane))
			return 0;
	if (!(node = list_pop_front(&uring->pieces_free)))
		return 0;
	struct piece *piece = LIST_OF(node, struct piece, link);
	struct job *job = lane->cut;
	piece->job = job;
	piece->start = job->given;
	piece->length = piece_length(uring, job);
	piece->moved = 0;
	piece->refused = 0;
	job->given += piece->length;
	job->pieces++;
	if (job->given == job->total)
		lane->cut = NULL;
	piece_give(uring, piece);
	return 1;
}

/* Reads, then writes, then what is in the background; with `begin` 0 only what has begun. */
static void dispatch(struct uring *uring, int begin)
{
	struct lane *reads = &uring->lane[LANE_READS], *writes = &uring->lane[LANE_WRITES];
	struct lane *background = &uring->lane[LANE_BACKGROUND];
	struct list *node;
	while ((node = list_pop_front(&uring->again)))
		piece_give(uring, LIST_OF(node, struct piece, link));
	while ((begin || reads->cut) && lane_give(uring, reads))
		;
	while ((begin || writes->cut) && (!beside_reads(uring) || writes->bytes < URING_BESIDE_BYTES) &&
	       lane_give(uring, writes))
		;
	while ((begin || background->cut) &&
	       background->pieces < (reads->pieces + writes->pieces ? (uint32_t)URING_BACKGROUND : URING_PIECES / 2u) &&
	       lane_give(uring, background))
		;
}

/* ---- the loop's thread ------------------------------------------------------------------------------------------- */

static void wake_arm(struct uring *uring)
{
	if (uring->wake_armed || !uring->ring_made)
		return;
	struct io_uring_sqe *sqe = sqe_take(uring);
	io_uring_prep_read(sqe, uring->wake_fd, &uring->wake_count, sizeof(uring->wake_count), 0);
	io_uring_sqe_set_data(sqe, &uring->wake_count);
	uring->wake_armed = 1;
}

/* Without a ring it is only workers and wakes that are waited for. */
static void enter_without(struct uring *uring, uint64_t timeout_ns)
{
	struct pollfd wake = {.fd = uring->wake_fd, .events = POLLIN};
	struct timespec time = {.tv_sec = (time_t)(timeout_ns / 1000000000u), .tv_nsec = (long)(timeout_ns % 1000000000u)};
	if (timeout_ns && ppoll(&wake, 1, &time, NULL) > 0) {
		check(read(uring->wake_fd, &uring->wake_count, sizeof(uring->wake_count)) > 0);
		pthread_mutex_lock(&uring->lock);
		uring->signalled = 0;
		pthread_mutex_unlock(&uring->lock);
	}
}

/* Tells the kernel of what was given to the ring; waits for a completion of any kind, up to so long (0: not at all). */
static void enter(struct uring *uring, uint64_t timeout_ns)
{
	struct io_uring_cqe *cqe;
	struct __kernel_timespec time = {.tv_sec = (long long)(timeout_ns / 1000000000u),
	                                 .tv_nsec = (long long)(timeout_ns % 1000000000u)};
	if (!uring->ring_made) {
		enter_without(uring, timeout_ns);
		return;
	}
	int result = timeout_ns ? io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1, &time, NULL)
	                        : io_uring_submit_and_get_events(&uring->ring);
	/* Short of something: the rest is given again the next time. All else is a mistake of ours. */
	check(result >= 0 || result == -ETIME || result == -EINTR || result == -EAGAIN || result == -EBUSY ||
	      result == -ENOMEM);
}

/* Lets the kernel work, and waits up to so long for any of: a completion, a worker, a wake. */
static void turn(struct uring *uring, uint64_t timeout_ns)
{
	if (timeout_ns) {
		pthread_mutex_lock(&uring->lock);
		uring->sleeping = list_empty(&uring->worked) && !uring->woken;
		if (!uring->sleeping)
			timeout_ns = 0;
		pthread_mutex_unlock(&uring->lock);
		wake_arm(uring);
	}
	enter(uring, timeout_ns);
	if (timeout_ns) {
		pthread_mutex_lock(&uring->lock);
		uring->sleeping = 0;
		pthread_mutex_unlock(&uring->lock);
	}
	reap(uring);
}

static void uring_submit(struct io *io, struct io_req *req)
{
	struct uring *uring = uring_of(io);
	file_req_check(req);
	check(req->done != NULL);
	req->result = file_fail_count();
	if (req->op == IO_FLUSH && req->result == 0)
		req->result = uring->broken;
	uring->in_flight++;
	if (req->op == IO_READ)
		uring->read_ns = clock_mono_ns(uring->io.clock);
	list_push_back(&lane_of(uring, req)->queue, &req->link);
}

/* One at a time: what was not delivered may still be failed by a flush. */
static int deliver(struct uring *uring)
{
	struct list *node = list_pop_front(&uring->completed);
	if (!node)
		return 0;
	struct job *job = LIST_OF(node, struct job, link);
	struct io_req *req = job->req;
	if (req->op == IO_WRITE && req->result == 0 && job->failures != uring->flush_failures)
		req->result = -EIO; /* the failed flush may have taken the only report that this write was lost */
	if (uring->broken_by == req) {
		uring->broken = 0;
		uring->broken_by = NULL;
	}
	list_push_back(&uring->jobs_free, &job->link);
	uring->in_flight--;
	req->done(req);
	return 1;
}

static uint64_t now_ns(const struct uring *uring)
{
	return clock_mono_ns(uring->io.clock);
}

static int uring_poll(struct io *io, uint64_t timeout_ns)
{
	struct uring *uring = uring_of(io);
	uint64_t now = timeout_ns ? now_ns(uring) : 0;
	uint64_t until = timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX;
	int woken, count = 0;
	(void)ring_ready(uring);
	buffers_forget(uring);
	for (;;) {
		dispatch(uring, 1);
		woken = collect(uring);
		int wait = !woken && list_empty(&uring->completed) && now < until;
		turn(uring, wait ? until - now : 0);
		woken |= collect(uring);
		if (!wait || woken || !list_empty(&uring->completed))
			break;
		now = now_ns(uring);
	}
	dispatch(uring, 1); /* the device goes on while completions run */
	if (uring->ring_made && io_uring_sq_ready(&uring->ring))
		turn(uring, 0);
	io->direct = uring->file.direct;
	while (count < URING_POLL_MAX && deliver(uring))
		count++;
	return count;
}

static void uring_wake(struct io *io)
{
	struct uring *uring = uring_of(io);
	pthread_mutex_lock(&uring->lock);
	uring->woken = 1;
	int must = must_signal(uring);
	pthread_mutex_unlock(&uring->lock);
	if (must)
		signal_loop(uring);
}

#define FOREVER_NS (3600ull * 1000000000u)

/* A flush like any other, which takes its turn with those in flight. */
static int uring_sync(struct io *io)
{
	struct uring *uring = uring_of(io);
	int result = file_fail_count(), woken = 0;
	while (!list_empty(&uring->batch)) {
		turn(uring, FOREVER_NS);
		woken |= collect(uring);
	}
	if (woken)
		uring_wake(io); /* it was meant for the next poll */
	if (result == 0)
		result = uring->broken;
	if (result == 0) {
		result = file_sync(&uring->file);
		if (result < 0)
			flush_failed(uring, result);
	}
	return result;
}

/* Whether anything that has begun is still under way. */
static int busy(const struct uring *uring)
{
	for (int lane = 0; lane < LANES; lane++)
		if (uring->lane[lane].cut || uring->lane[lane].pieces)
			return 1;
	return uring->working || !list_empty(&uring->again) || !list_empty(&uring->batch);
}

static void uring_leave(struct io *io)
{
	struct uring *uring = uring_of(io);
	int woken = 0;
	for (;;) {
		dispatch(uring, 0);
		woken |= collect(uring);
		if (!busy(uring)) /* asked last: what was just collected would wake nobody */
			break;
		turn(uring, FOREVER_NS);
	}
	ring_end(uring);
	if (woken)
		uring_wake(io);
}

static int uring_pread(struct io *io, void *bytes, uint64_t length, uint64_t offset)
{
	int result = file_transfer_range(&uring_of(io)->file, IO_READ, bytes, length, offset);
	io->direct = uring_of(io)->file.direct;
	return result;
}

static int uring_pwrite(struct io *io, const void *bytes, uint64_t length, uint64_t offset)
{
	int result = file_transfer_range(&uring_of(io)->file, IO_WRITE, (void *)(uintptr_t)bytes, length, offset);
	io->direct = uring_of(io)->file.direct;
	return result;
}

static int uring_allocate(struct io *io, uint64_t offset, uint64_t length)
{
	return file_allocate(&uring_of(io)->file, offset, length);
}

static int uring_punch(struct io *io, uint64_t offset, uint64_t length)
{
	return file_punch(&uring_of(io)->file, offset, length);
}

static int uring_space(struct io *io, uint64_t *size, uint64_t *free, uint64_t *all)
{
	return file_space(&uring_of(io)->file, size, free, all);
}

/* Pinned, so that no transfer has to do it. Where the limit on locked memory forbids that (8 MiB for an ordinary
 * user), each transfer does. */
static void uring_buffers(struct io *io, const struct io_vec *vec, uint32_t nvec)
{
	struct uring *uring = uring_of(io);
	struct iovec list[URING_BUFFERS];
	check(uring->nbuffers == 0);
	uint32_t n = nvec < URING_BUFFERS ? nvec : URING_BUFFERS;
	for (uint32_t i = 0; i < n; i++)
		list[i] = (struct iovec){vec[i].address, vec[i].length};
	if (!n || !uring->ring_made || io_uring_register_buffers(&uring->ring, list, n) < 0)
		return;
	for (uint32_t i = 0; i < n; i++) {
		uring->buffer[i].address = (uintptr_t)vec[i].address;
		uring->buffer[i].length = vec[i].length;
		uring->buffer[i].registered = 1;
	}
	uring->nbuffers = n;
}

static void uring_buffer_gone(struct io *io, const void *address)
{
	struct uring *uring = uring_of(io);
	for (uint32_t i = 0; i < uring->nbuffers; i++)
		if (uring->buffer[i].address == (uintptr_t)address) {
			uring->buffer[i].address = 0;
			uring->buffers_stale = 1;
			uring_wake(io);
		}
}

/* Ends and frees; for set-up that failed as well. */
static void uring_end(struct uring *uring)
{
	pthread_mutex_lock(&uring->lock);
	uring->stopping = 1;
	pthread_cond_broadcast(&uring->todo_ready);
	pthread_mutex_unlock(&uring->lock);
	for (uint32_t i = 0; i < uring->nthread; i++)
		check(pthread_join(uring->thread[i], NULL) == 0);
	ring_end(uring);
	if (uring->wake_fd >= 0)
		(void)close(uring->wake_fd);
	pthread_cond_destroy(&uring->todo_ready);
	pthread_mutex_destroy(&uring->lock);
	mem_free(uring);
}

static void uring_close(struct io *io)
{
	struct uring *uring = uring_of(io);
	while (uring->in_flight > 0)
		(void)uring_poll(io, 3600u * 1000000000ull);
	file_close(&uring->file);
	uring_end(uring);
}

static const struct io_ops uring_ops = {
	.name = "io_uring",
	.submit = uring_submit,
	.poll = uring_poll,
	.wake = uring_wake,
	.pread = uring_pread,
	.pwrite = uring_pwrite,
	.sync = uring_sync,
	.allocate = uring_allocate,
	.punch = uring_punch,
	.space = uring_space,
	.close = uring_close,
	.buffers = uring_buffers,
	.buffer_gone = uring_buffer_gone,
	.leave = uring_leave,
};

/* ---- open -------------------------------------------------------------------------------------------------------- */

static void lists_init(struct uring *uring)
{
	struct list *lists[] = {&uring->lane[LANE_READS].queue, &uring->lane[LANE_WRITES].queue,
	                        &uring->lane[LANE_BACKGROUND].queue, &uring->jobs_free, &uring->pieces_free, &uring->again,
	                        &uring->completed, &uring->batch, &uring->waiting, &uring->todo,
	                        &uring->worked};
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		list_init(lists[i]);
	for (int i = 0; i < URING_JOBS; i++)
		list_push_back(&uring->jobs_free, &uring->jobs[i].link);
	for (int i = 0; i < URING_PIECES; i++)
		list_push_back(&uring->pieces_free, &uring->pieces[i].link);
}

int uring_open(const char *path, uint32_t flags, uint32_t threads, int *ret_refused, struct io **ret_io)
{
	check(threads >= 1);
	*ret_refused = 0;
	struct uring *uring = mem_alloc(sizeof(*uring));
	if (!uring)
		return -ENOMEM;
	uring->io.ops = &uring_ops;
	uring->io.clock = &clock_real;
	uring->io.threaded = 1;
	check(pthread_mutex_init(&uring->lock, NULL) == 0 && pthread_cond_init(&uring->todo_ready, NULL) == 0);
	lists_init(uring);
	/* The ring first: where there is none, nothing has happened yet. */
	uring->wake_fd = eventfd(0, EFD_CLOEXEC);
	int result = uring->wake_fd < 0 ? -errno : ring_make(uring);
	*ret_refused = result < 0;
	if (result == 0)
		result = file_threads_start(uring->thread, threads < URING_THREADS_MAX ? threads : URING_THREADS_MAX,
		                            &uring->nthread, worker, uring);
	if (result == 0)
		result = file_open(&uring->file, path, flags);
	if (result < 0) {
		uring_end(uring);
		return result;
	}
	uring->io.direct = uring->file.direct;
	uring->io.raw = uring->file.block;
	*ret_io = &uring->io;
	return 0;
}
