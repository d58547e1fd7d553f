/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated world of sim.h: its clock, its devices with their requests, and how they die. Files are in sim_disk.c.
 *
 * Threads: one. Memory: malloc, so that mem_fail_at and the library's budgets do not see it.
 * Invariant: every choice comes from world->random, in an order that depends on the calls alone (never on addresses or
 * real time).
 */
#include "io/sim.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "io/sim_disk.h"

#define SECOND_NS 1000000000ull
#define MONO_START_NS SECOND_NS
#define WALL_START_S 1700000000ull
#define BLOCKING_PIECE (1ull << 26)

struct request {
	struct list link; /* sim_io.pending, by due_ns */
	struct io_req *req;
	uint64_t due_ns;
	uint64_t seq;   /* world->seq at submit: a flush covers writes up to it */
	uint64_t moved; /* bytes, of a transfer in two steps */
	int32_t preset; /* the result it is bound to have, or 0 */
};

struct sim_io {
	struct io io; /* first */
	struct list link;
	struct sim_world *world;
	struct sim_file *file;
	struct list pending;
	uint32_t readonly, dead, woken;
};

static struct sim_io *sim_of(struct io *io)
{
	return (struct sim_io *)(void *)io;
}

/* A flush that fails also fails those of the device that are in flight. */
static int device_flush(struct sim_io *sim, uint64_t seq)
{
	int result = sim_disk_flush(sim->file, seq);
	for (struct list *node = sim->pending.next; result < 0 && node != &sim->pending; node = node->next) {
		struct request *other = LIST_OF(node, struct request, link);
		if (other->req->op == IO_FLUSH && other->preset == 0)
			other->preset = result;
	}
	return result;
}

/* --- death --- */

/* What a request in flight has done when its process or the power goes. */
static void request_abandon(struct sim_io *sim, struct request *request, int power)
{
	if (request->preset)
		return;
	if (request->req->op == IO_FLUSH) {
		if (!power && sim_below(sim->world, 2))
			(void)sim_disk_flush(sim->file, request->seq);
		return;
	}
	struct sim_transfer t = sim_disk_transfer(request->req, request->moved);
	sim_disk_abandon(sim->file, &t);
}

static void world_die(struct sim_world *world, int power)
{
	struct list *node, *other;
	sim_say(world, power ? "power loss" : "process death");
	for (node = world->ios.next; node != &world->ios; node = node->next) {
		struct sim_io *sim = LIST_OF(node, struct sim_io, link);
		if (sim->dead)
			continue;
		sim->dead = 1;
		for (other = sim->pending.next; other != &sim->pending; other = other->next)
			request_abandon(sim, LIST_OF(other, struct request, link), power);
	}
	for (node = world->files.next; power && node != &world->files; node = node->next)
		sim_disk_crash(LIST_OF(node, struct sim_file, link));
}

void sim_crash(struct sim_world *world)
{
	world->stats.crashes++;
	world_die(world, 1);
}

void sim_kill(struct sim_world *world)
{
	world->stats.kills++;
	world_die(world, 0);
}

/* --- the interface --- */

/* Counts one I/O: 0, or -EIO where sim_fail_at strikes. */
static int count_io(struct sim_world *world)
{
	world->count++;
	if (world->fail_left == 0 || (world->fail_left > 1 && --world->fail_left > 0))
		return 0;
	world->fail_left = world->fail_all ? 1 : 0;
	world->stats.failed++;
	return -EIO;
}

static void crash_count(struct sim_world *world)
{
	if (world->crash_left == 0 || --world->crash_left > 0)
		return;
	if (world->crash_kills)
		sim_kill(world);
	else
		sim_crash(world);
	world->over = 1;
}

static void request_check(const struct io_req *req)
{
	check(req->op == IO_READ || req->op == IO_WRITE || req->op == IO_FLUSH);
	check(req->done != NULL);
	if (req->op == IO_FLUSH)
		return;
	check(req->nvec >= 1 && req->nvec <= IO_VEC_MAX && req->offset % IO_ALIGN == 0);
	for (uint32_t i = 0; i < req->nvec; i++)
		check(req->vec[i].length > 0 && req->vec[i].length % IO_ALIGN == 0 &&
		      (uintptr_t)req->vec[i].address % IO_ALIGN == 0);
}

static uint64_t draw_delay_ns(struct sim_io *sim, int background)
{
	const struct sim_faults *faults = sim_faults_of(sim->file);
	uint64_t range = faults->delay_ns_max ? faults->delay_ns_max : 200000;
	uint64_t delay = 1 + sim_below(sim->world, background ? 3 * range : range);
	if (sim_fault(sim->world, faults->slow_ppm, &sim->world->stats.slow))
		delay += sim_below(sim->world, faults->slow_ns_max ? faults->slow_ns_max : 5 * SECOND_NS);
	return delay;
}

static void request_queue(struct sim_io *sim, struct request *request)
{
	struct list *before = sim->pending.prev;
	request->due_ns = sim->world->now_ns + draw_delay_ns(sim, request->req->background != 0);
	while (before != &sim->pending && LIST_OF(before, struct request, link)->due_ns > request->due_ns)
		before = before->prev;
	list_insert(before, &request->link, before->next);
}

static void sim_submit(struct io *io, struct io_req *req)
{
	struct sim_io *sim = sim_of(io);
	struct sim_world *world = sim->world;
	request_check(req);
	struct request *request = sim_take(sizeof(*request));
	request->req = req;
	request->seq = world->seq;
	world->stats.reads += req->op == IO_READ;
	world->stats.writes += req->op == IO_WRITE;
	world->stats.flushes += req->op == IO_FLUSH;
	request->preset = count_io(world);
	if (req->op == IO_WRITE && sim->readonly)
		request->preset = -EROFS;
	request_queue(sim, request);
	crash_count(world);
}

/* 1: over, `result` is set. 0: a transfer has a second step to do. */
static int request_perform(struct sim_io *sim, struct request *request)
{
	struct sim_world *world = sim->world;
	struct io_req *req = request->req;
	struct sim_transfer t = sim_disk_transfer(req, request->moved);
	if (request->preset) {
		req->result = request->preset;
	} else if (req->op == IO_FLUSH) {
		req->result = device_flush(sim, request->seq);
	} else {
		req->result = sim_disk_step(sim->file, &t);
		request->moved = t.moved;
		if (req->result == 0 && t.moved < t.total)
			return 0;
	}
	if (req->op == IO_FLUSH)
		sim_say(world, "flush %s = %d", sim->file->path, req->result);
	else
		sim_disk_trace("", sim->file, &t, req->result);
	return 1;
}

static void request_finish(struct request *request)
{
	struct io_req *req = request->req;
	sim_give(request);
	if (req->work)
		req->work(req);
	req->done(req);
}

/* Fails what was in flight when the device died. */
static int run_dead(struct sim_io *sim)
{
	int count = 0;
	struct list *node;
	while ((node = list_pop_front(&sim->pending))) {
		struct request *request = LIST_OF(node, struct request, link);
		request->req->result = -EIO;
		request_finish(request);
		count++;
	}
	return count;
}

static int run_due(struct sim_io *sim)
{
	int count = 0;
	while (!sim->dead && !list_empty(&sim->pending)) {
		struct request *request = LIST_OF(sim->pending.next, struct request, link);
		if (request->due_ns > sim->world->now_ns)
			break;
		list_remove(&request->link);
		if (!request_perform(sim, request)) {
			request_queue(sim, request);
			continue;
		}
		request_finish(request);
		count++;
	}
	return count;
}

/* The next moment something can complete: here, or, if it is not overdue, at another device. */
static uint64_t next_event_ns(const struct sim_io *sim)
{
	const struct sim_world *world = sim->world;
	uint64_t next = UINT64_MAX;
	for (const struct list *node = world->ios.next; node != &world->ios; node = node->next) {
		const struct sim_io *other = LIST_OF(node, struct sim_io, link);
		if (other->dead || list_empty(&other->pending))
			continue;
		uint64_t due = LIST_OF(other->pending.next, struct request, link)->due_ns;
		if (other == sim || due > world->now_ns)
			next = sim_min(next, due);
	}
	return next;
}

static int sim_poll(struct io *io, uint64_t timeout_ns)
{
	struct sim_io *sim = sim_of(io);
	struct sim_world *world = sim->world;
	world->now_ns += 1000; /* a loop that never waits gets on too */
	int count = sim->dead && world->dead_fails ? run_dead(sim) : run_due(sim);
	if (count == 0 && !sim->woken) {
		uint64_t until = world->now_ns + (timeout_ns == UINT64_MAX ? SECOND_NS : sim_min(timeout_ns, 1ull << 60));
		until = sim_min(until, next_event_ns(sim));
		world->now_ns = sim_max(world->now_ns, until);
		count = run_due(sim);
	}
	sim->woken = 0;
	return count;
}

static void sim_wake(struct io *io)
{
	sim_of(io)->woken = 1;
}

static int blocking_transfer(struct sim_io *sim, uint32_t op, void *bytes, uint64_t length, uint64_t offset)
{
	struct sim_world *world = sim->world;
	check(offset % IO_ALIGN == 0 && length % IO_ALIGN == 0 && (uintptr_t)bytes % IO_ALIGN == 0);
	int result = count_io(world);
	if (!sim->dead && world->crash_left == 1 && op == IO_WRITE && length > 0 && result == 0 && !sim->readonly) {
		struct io_vec vec = {bytes, (uint32_t)sim_min(length, BLOCKING_PIECE)};
		struct sim_transfer t = {op, &vec, 1, offset, vec.length, 0};
		sim_disk_abandon(sim->file, &t);
	}
	crash_count(world);
	world->now_ns += draw_delay_ns(sim, 0);
	if (sim->dead)
		return -EIO;
	if (op == IO_WRITE && sim->readonly)
		return -EROFS;
	while (result == 0 && length > 0) {
		struct io_vec vec = {bytes, (uint32_t)sim_min(length, BLOCKING_PIECE)};
		struct sim_transfer t = {op, &vec, 1, offset, vec.length, 0};
		while (result == 0 && t.moved < t.total)
			result = sim_disk_step(sim->file, &t);
		sim_disk_trace("p", sim->file, &t, result);
		bytes = (uint8_t *)bytes + vec.length;
		offset += vec.length;
		length -= vec.length;
	}
	return result;
}

static int sim_pread(struct io *io, void *bytes, uint64_t length, uint64_t offset)
{
	sim_of(io)->world->stats.reads++;
	return blocking_transfer(sim_of(io), IO_READ, bytes, length, offset);
}

static int sim_pwrite(struct io *io, const void *bytes, uint64_t length, uint64_t offset)
{
	sim_of(io)->world->stats.writes++;
	return blocking_transfer(sim_of(io), IO_WRITE, (void *)(uintptr_t)bytes, length, offset);
}

/* What sync, allocate and punch have in common: 0 to go on. */
static int blocking_begin(struct sim_io *sim, int changes)
{
	int result = count_io(sim->world);
	crash_count(sim->world);
	sim->world->now_ns += draw_delay_ns(sim, 0);
	if (sim->dead)
		return -EIO;
	return result ? result : changes && sim->readonly ? -EROFS : 0;
}

static int sim_sync(struct io *io)
{
	struct sim_io *sim = sim_of(io);
	sim->world->stats.flushes++;
	int result = blocking_begin(sim, 0);
	if (result == 0)
		result = device_flush(sim, sim->world->seq);
	sim_say(sim->world, "sync %s = %d", sim->file->path, result);
	return result;
}

static int sim_allocate(struct io *io, uint64_t offset, uint64_t length)
{
	struct sim_io *sim = sim_of(io);
	sim->world->stats.allocates++;
	int result = blocking_begin(sim, 1);
	if (result == 0)
		result = sim_disk_allocate(sim->file, offset, length);
	sim_say(sim->world, "allocate %s %" PRIu64 "+%" PRIu64 " = %d", sim->file->path, offset, length, result);
	return result;
}

static int sim_punch(struct io *io, uint64_t offset, uint64_t length)
{
	struct sim_io *sim = sim_of(io);
	sim->world->stats.punches++;
	int result = blocking_begin(sim, 1);
	if (result == 0)
		result = sim_disk_punch(sim->file, offset, length);
	sim_say(sim->world, "punch %s %" PRIu64 "+%" PRIu64 " = %d", sim->file->path, offset, length, result);
	return result;
}

static int sim_space(struct io *io, uint64_t *size, uint64_t *free_bytes, uint64_t *all)
{
	struct sim_io *sim = sim_of(io);
	if (sim->dead)
		return -EIO;
	*size = sim->file->size;
	*free_bytes = sim_disk_free_bytes(sim->world);
	*all = sim->world->capacity;
	return 0;
}

static void device_free(struct sim_io *sim)
{
	struct list *node;
	while ((node = list_pop_front(&sim->pending)))
		sim_give(LIST_OF(node, struct request, link));
	list_remove(&sim->link);
	sim->file->open--;
	sim_give(sim);
}

static void sim_close(struct io *io)
{
	struct sim_io *sim = sim_of(io);
	while (!list_empty(&sim->pending)) {
		struct request *first = LIST_OF(sim->pending.next, struct request, link);
		if (sim->dead) {
			(void)run_dead(sim);
			continue;
		}
		sim->world->now_ns = sim_max(sim->world->now_ns, first->due_ns);
		(void)run_due(sim);
	}
	sim_say(sim->world, "close %s", sim->file->path);
	device_free(sim);
}

static const struct io_ops sim_ops = {
	.name = "sim",
	.submit = sim_submit,
	.poll = sim_poll,
	.wake = sim_wake,
	.pread = sim_pread,
	.pwrite = sim_pwrite,
	.sync = sim_sync,
	.allocate = sim_allocate,
	.punch = sim_punch,
	.space = sim_space,
	.close = sim_close,
};

/* --- the world --- */

static struct sim_file *file_must_find(const struct sim_world *world, const char *path)
{
	struct sim_file *file = sim_disk_find(world, path);
	check(file != NULL);
	return file;
}

static int sim_open(void *arg, const char *path, uint32_t flags, uint32_t threads, struct io **ret_io)
{
	struct sim_world *world = arg;
	struct sim_file *file = sim_disk_find(world, path);
	(void)threads;
	if (world->over)
		return -EIO;
	if (!file && !(flags & IO_OPEN_CREATE))
		return -ENOENT;
	if (file && (flags & IO_OPEN_CREATE) && (flags & IO_OPEN_EXCLUSIVE))
		return -EEXIST;
	if (!file)
		file = sim_disk_new(world, path);
	struct sim_io *sim = sim_take(sizeof(*sim));
	sim->io = (struct io){.ops = &sim_ops, .clock = &world->clock, .direct = 1, .threaded = 0};
	sim->world = world;
	sim->file = file;
	sim->readonly = (flags & IO_OPEN_READONLY) != 0;
	list_init(&sim->pending);
	list_push_back(&world->ios, &sim->link);
	file->open++;
	world->stats.opens++;
	sim_say(world, "open %s", path);
	*ret_io = &sim->io;
	return 0;
}

static uint64_t world_mono_ns(void *arg)
{
	return ((struct sim_world *)arg)->now_ns;
}

static uint64_t world_wall_s(void *arg)
{
	const struct sim_world *world = arg;
	return WALL_START_S + (world->now_ns - MONO_START_NS) / SECOND_NS + (uint64_t)world->wall_step_s;
}

struct sim_world *sim_new(uint64_t seed)
{
	struct sim_world *world = sim_take(sizeof(*world));
	random_init(&world->random, seed);
	world->clock = (struct clock){world_mono_ns, world_wall_s, world};
	world->now_ns = MONO_START_NS;
	world->capacity = 1ull << 40;
	list_init(&world->files);
	list_init(&world->ios);
	return world;
}

void sim_free(struct sim_world *world)
{
	while (!list_empty(&world->ios))
		device_free(LIST_OF(world->ios.next, struct sim_io, link));
	while (!list_empty(&world->files))
		sim_disk_free(LIST_OF(world->files.next, struct sim_file, link));
	check(world->used == 0);
	sim_give(world);
}

struct io_maker sim_maker(struct sim_world *world)
{
	return (struct io_maker){.open = sim_open, .arg = world, .clock = &world->clock, .threaded = 0};
}

void sim_set_faults(struct sim_world *world, const char *path, const struct sim_faults *faults)
{
	if (!path) {
		world->faults = *faults;
		return;
	}
	struct sim_file *file = file_must_find(world, path);
	file->faults = *faults;
	file->own_faults = 1;
}

void sim_set_space(struct sim_world *world, uint64_t free_bytes)
{
	world->capacity = world->used + free_bytes;
}

void sim_fail_at(struct sim_world *world, uint64_t n, int all)
{
	world->fail_left = n;
	world->fail_all = all;
}

void sim_crash_at(struct sim_world *world, uint64_t n, int kill)
{
	world->crash_left = n;
	world->crash_kills = kill;
	world->over = 0;
}

uint64_t sim_count(const struct sim_world *world) { return world->count; }
void sim_dead_fails(struct sim_world *world, int on) { world->dead_fails = on; }
const struct clock *sim_clock(struct sim_world *world) { return &world->clock; }
void sim_advance(struct sim_world *world, uint64_t ns) { world->now_ns += ns; }
void sim_step_wall(struct sim_world *world, int64_t seconds) { world->wall_step_s += seconds; }
const struct sim_stats *sim_stats(const struct sim_world *world) { return &world->stats; }
void sim_trace(struct sim_world *world, FILE *to) { world->trace = to; }

uint8_t *sim_file_bytes(struct sim_world *world, const char *path, uint64_t *ret_length)
{
	struct sim_file *file = sim_disk_find(world, path);
	if (!file)
		return NULL;
	*ret_length = file->size;
	return file->bytes;
}

void sim_rot(struct sim_world *world, const char *path, uint64_t offset, uint64_t length)
{
	struct sim_file *file = file_must_find(world, path);
	check(offset <= file->size && length <= file->size - offset);
	for (uint64_t at = offset; at < offset + length; at++)
		sim_disk_rot(file, at, (uint8_t)(1 + sim_below(world, 255)));
}

void sim_truncate(struct sim_world *world, const char *path, uint64_t length)
{
	sim_disk_resize(file_must_find(world, path), length);
}

int sim_remove(struct sim_world *world, const char *path)
{
	struct sim_file *file = sim_disk_find(world, path);
	if (!file)
		return -ENOENT;
	sim_disk_free(file);
	return 0;
}
