/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of src/io/sim.c and sim_disk.c: that the simulated disks really do what they threaten to do.
 * That a life replays exactly is in test_sim_replay.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/random.h"
#include "io/sim.h"

#define PAGE 4096u
#define SECOND 1000000000ull
#define ALWAYS 1000000u
#define SEEDS 200u
#define DEVICE "device"

static _Alignas(4096) uint8_t pool[64 * PAGE], other[64 * PAGE];

struct call {
	struct io_req req;
	int done;
	int order;
};

static int completed;

static void call_done(struct io_req *req)
{
	struct call *call = req->owner;
	call->done++;
	call->order = ++completed;
}

static struct io_req *call_init(struct call *call, uint32_t op, void *bytes, uint32_t length, uint64_t offset)
{
	memset(call, 0, sizeof(*call));
	call->req = (struct io_req){.op = op, .offset = offset, .nvec = op != IO_FLUSH, .done = call_done, .owner = call};
	call->req.vec[0] = (struct io_vec){bytes, length};
	call->req.result = 12345;
	return &call->req;
}

static struct io *open_file(struct sim_world *world, const char *path, uint32_t flags)
{
	struct io_maker maker = sim_maker(world);
	struct io *io = NULL;
	assert_int_equal(maker.open(maker.arg, path, flags, 1, &io), 0);
	return io;
}

static struct io *open_device(struct sim_world *world)
{
	return open_file(world, DEVICE, IO_OPEN_CREATE);
}

static int run_call(struct io *io, uint32_t op, void *bytes, uint32_t length, uint64_t offset)
{
	struct call call;
	io->ops->submit(io, call_init(&call, op, bytes, length, offset));
	for (int i = 0; i < 1000 && !call.done; i++)
		(void)io->ops->poll(io, 10 * SECOND);
	assert_int_equal(call.done, 1);
	return call.req.result;
}

static int write_value(struct io *io, int value, uint32_t length, uint64_t offset)
{
	memset(pool, value, length);
	return run_call(io, IO_WRITE, pool, length, offset);
}

static int flush(struct io *io)
{
	return run_call(io, IO_FLUSH, NULL, 0, 0);
}

/* How many of the file's sectors from `offset` on have this value in every byte. */
static uint32_t sectors_of(struct sim_world *world, int value, uint64_t offset, uint32_t sectors)
{
	uint64_t length;
	uint32_t count = 0;
	const uint8_t *bytes = sim_file_bytes(world, DEVICE, &length);
	assert_non_null(bytes);
	memset(other, value, SIM_SECTOR);
	for (uint32_t i = 0; i < sectors; i++, offset += SIM_SECTOR)
		count += offset + SIM_SECTOR <= length && memcmp(bytes + offset, other, SIM_SECTOR) == 0;
	return count;
}

static uint64_t size_of(struct io *io)
{
	uint64_t size, room, all;
	assert_int_equal(io->ops->space(io, &size, &room, &all), 0);
	return size;
}

static uint64_t room_of(struct io *io)
{
	uint64_t size, room, all;
	assert_int_equal(io->ops->space(io, &size, &room, &all), 0);
	return room;
}

/* --- no faults --- */

static void test_sim__bytes_come_back_when_nothing_is_wrong(void **state)
{
	(void)state;
	struct sim_world *world = sim_new(1);
	struct io *io = open_device(world), *again;
	struct random random;
	struct io_maker maker = sim_maker(world);
	assert_int_equal(io->threaded + maker.threaded, 0);
	assert_ptr_equal(maker.clock, sim_clock(world));
	random_init(&random, 5);
	for (uint32_t i = 0; i < sizeof(pool); i++)
		pool[i] = (uint8_t)random_next(&random);
	struct call call;
	call_init(&call, IO_WRITE, NULL, 0, PAGE);
	call.req.nvec = 3;
	call.req.vec[0] = (struct io_vec){pool + 8 * PAGE, 8 * PAGE};
	call.req.vec[1] = (struct io_vec){pool, PAGE};
	call.req.vec[2] = (struct io_vec){pool + 3 * PAGE, 2 * PAGE};
	io->ops->submit(io, &call.req);
	io->ops->close(io); /* runs it */
	assert_int_equal(call.done, 1);
	assert_int_equal(call.req.result, 0);

	assert_int_equal(maker.open(maker.arg, "none", 0, 1, &again), -ENOENT);
	assert_int_equal(maker.open(maker.arg, DEVICE, IO_OPEN_CREATE | IO_OPEN_EXCLUSIVE, 1, &again), -EEXIST);
	io = open_file(world, DEVICE, IO_OPEN_READONLY);
	assert_int_equal(run_call(io, IO_READ, other, 12 * PAGE, 0), 0);
	for (uint32_t i = 0; i < PAGE; i++)
		assert_int_equal(other[i], 0);
	assert_memory_equal(other + PAGE, pool + 8 * PAGE, 8 * PAGE);
	assert_memory_equal(other + 9 * PAGE, pool, PAGE);
	assert_memory_equal(other + 10 * PAGE, pool + 3 * PAGE, 2 * PAGE);
	assert_int_equal(run_call(io, IO_READ, other, 2 * PAGE, 11 * PAGE), -EIO); /* past the end */
	assert_int_equal(io->ops->pread(io, other, PAGE, 1ull << 62), -EIO);
	assert_int_equal(run_call(io, IO_WRITE, pool, PAGE, 0), -EROFS);
	assert_int_equal(io->ops->pwrite(io, pool, PAGE, 0), -EROFS);
	assert_int_equal(io->ops->allocate(io, 0, PAGE), -EROFS);
	assert_int_equal(io->ops->punch(io, 0, PAGE), -EROFS);
	io->ops->close(io);
	io = open_device(world);
	assert_int_equal(io->ops->pwrite(io, pool, sizeof(pool), 2 * PAGE), 0);
	assert_int_equal(io->ops->sync(io), 0);
	assert_int_equal(io->ops->pread(io, other, sizeof(other), 2 * PAGE), 0);
	assert_memory_equal(pool, other, sizeof(pool));
	assert_int_equal(run_call(io, IO_WRITE, pool, PAGE, 1ull << 50), -EFBIG);
	assert_int_equal(size_of(io), sizeof(pool) + 2 * PAGE);
	io->ops->close(io);
	sim_free(world);
}

static void test_sim__requests_overtake_each_other_when_many_are_in_flight(void **state)
{
	(void)state;
	int reordered = 0, orders_differ = 0, first_orders[16];
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct sim_world *world = sim_new(seed);
		struct io *io = open_device(world);
		struct call calls[16];
		completed = 0;
		for (int i = 0; i < 16; i++)
			io->ops->submit(io, call_init(&calls[i], IO_WRITE, pool, PAGE, 0));
		uint64_t start = clock_mono_ns(io->clock);
		while (completed < 16)
			assert_true(io->ops->poll(io, SECOND) > 0);
		assert_true(clock_mono_ns(io->clock) > start && clock_mono_ns(io->clock) < start + SECOND);
		for (int i = 0; i < 16; i++) {
			reordered += calls[i].order != i + 1;
			orders_differ += seed > 0 && calls[i].order != first_orders[i];
			if (seed == 0)
				first_orders[i] = calls[i].order;
		}
		io->ops->close(io);
		sim_free(world);
	}
	assert_true(reordered > 100 && orders_differ > 100);
}

static void test_sim__clock_moves_only_when_the_world_does(void **state)
{
	(void)state;
	struct sim_world *world = sim_new(3);
	struct io *io = open_device(world), *second = open_file(world, "second", IO_OPEN_CREATE);
	const struct clock *clock = sim_clock(world);
	uint64_t mono = clock_mono_ns(clock), wall = clock_wall_s(clock);
	assert_ptr_equal(io->clock, clock);
	assert_int_equal(mono, clock_mono_ns(clock));
	assert_int_equal(io->ops->poll(io, 5 * SECOND), 0);
	assert_in_range(clock_mono_ns(clock) - mono, 5 * SECOND, 5 * SECOND + 2000);
	assert_int_equal(clock_wall_s(clock) - wall, 5);
	assert_int_equal(io->ops->poll(io, UINT64_MAX), 0); /* endless is one second */
	assert_in_range(clock_mono_ns(clock) - mono, 6 * SECOND, 6 * SECOND + 4000);
	io->ops->wake(io); /* not lost, and used up */
	assert_int_equal(io->ops->poll(io, 5 * SECOND), 0);
	assert_true(clock_mono_ns(clock) - mono < 7 * SECOND);
	assert_int_equal(io->ops->poll(io, 5 * SECOND), 0);
	assert_true(clock_mono_ns(clock) - mono >= 11 * SECOND);
	mono = clock_mono_ns(clock);
	wall = clock_wall_s(clock);
	sim_step_wall(world, -3600);
	assert_int_equal(wall - clock_wall_s(clock), 3600);
	assert_int_equal(clock_mono_ns(clock), mono);
	sim_advance(world, 7200 * SECOND);
	assert_int_equal(clock_wall_s(clock) - wall, 3600);
	assert_int_equal(clock_mono_ns(clock) - mono, 7200 * SECOND);

	struct call call; /* waiting at one device does not pass by what completes at another */
	mono = clock_mono_ns(clock);
	second->ops->submit(second, call_init(&call, IO_WRITE, pool, PAGE, 0));
	assert_int_equal(io->ops->poll(io, 5 * SECOND), 0);
	assert_true(clock_mono_ns(clock) - mono < SECOND / 100);
	assert_int_equal(second->ops->poll(second, 0), 1);
	for (int i = 0; i < 1000; i++) /* a loop that never waits gets there too */
		assert_int_equal(io->ops->poll(io, 0), 0);
	assert_true(clock_mono_ns(clock) - mono >= 1000000);
	io->ops->close(io);
	second->ops->close(second);
	sim_free(world);
}

/* --- power loss and process death --- */

static void test_sim__unflushed_writes_are_lost_torn_or_kept_when_the_power_goes(void **state)
{
	(void)state;
	uint32_t none = 0, all = 0, torn = 0, size_kept = 0;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct sim_world *world = sim_new(seed);
		struct io *io = open_device(world);
		assert_int_equal(write_value(io, 1, 8 * PAGE, 0), 0);
		assert_int_equal(flush(io), 0);
		assert_int_equal(write_value(io, 2, 4 * PAGE, 2 * PAGE), 0); /* unflushed, over flushed */
		assert_int_equal(write_value(io, 3, PAGE, 8 * PAGE), 0);     /* unflushed, beyond the end */
		assert_int_equal(run_call(io, IO_READ, other, 4 * PAGE, 2 * PAGE), 0);
		assert_int_equal(other[0] + other[4 * PAGE - 1], 4);
		sim_crash(world);
		io->ops->close(io);
		/* never touched: what was flushed and not written over */
		assert_int_equal(sectors_of(world, 1, 0, 16), 16);
		assert_int_equal(sectors_of(world, 1, 6 * PAGE, 16), 16);
		uint32_t new = sectors_of(world, 2, 2 * PAGE, 32);
		assert_int_equal(new + sectors_of(world, 1, 2 * PAGE, 32), 32); /* a sector is old or new, whole */
		none += new == 0;
		all += new == 32;
		torn += new > 0 && new < 32;
		io = open_device(world);
		uint64_t size = size_of(io);
		assert_true(size == 8 * PAGE || size == 9 * PAGE);
		if (size == 8 * PAGE)
			assert_int_equal(sectors_of(world, 3, 8 * PAGE, 8), 0);
		else
			assert_int_equal(sectors_of(world, 3, 8 * PAGE, 8) + sectors_of(world, 0, 8 * PAGE, 8), 8);
		size_kept += size == 9 * PAGE;
		io->ops->close(io);
		sim_free(world);
	}
	assert_true(none > SEEDS / 10 && all > SEEDS / 10 && torn > SEEDS / 10);
	assert_true(size_kept > SEEDS / 10 && size_kept < SEEDS * 9 / 10);
}

static void test_sim__flushed_writes_stay_when_the_power_goes(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct sim_world *world = sim_new(seed);
		struct io *io = open_device(world);
		for (int value = 1; value <= 3; value++) {
			assert_int_equal(write_value(io, value, 4 * PAGE, 0), 0);
			if (value != 2)
				assert_int_equal(value == 1 ? flush(io) : io->ops->sync(io), 0);
		}
		sim_crash(world);
		io->ops->close(io);
		assert_int_equal(sectors_of(world, 3, 0, 32), 32);
		io = open_device(world);
		assert_int_equal(size_of(io), 4 * PAGE);
		io->ops->close(io);
		sim_crash(world); /* and again, with nothing open */
		assert_int_equal(sectors_of(world, 3, 0, 32), 32);
		sim_free(world);
	}
}

/* A flush must cover what completed before its submit; what completes while it runs is luck. */
static void test_sim__flush_covers_no_later_write_when_it_promised_none(void **state)
{
	(void)state;
	uint32_t lost = 0;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct sim_world *world = sim_new(seed);
		struct io *io = open_device(world);
		struct call late, flushing;
		assert_int_equal(write_value(io, 1, PAGE, 0), 0);
		memset(pool, 2, PAGE);
		io->ops->submit(io, call_init(&flushing, IO_FLUSH, NULL, 0, 0));
		io->ops->submit(io, call_init(&late, IO_WRITE, pool, PAGE, PAGE));
		while (!late.done || !flushing.done)
			(void)io->ops->poll(io, SECOND);
		assert_int_equal(flushing.req.result, 0);
		sim_crash(world);
		io->ops->close(io);
		assert_int_equal(sectors_of(world, 1, 0, 8), 8);
		lost += late.order < flushing.order && sectors_of(world, 2, PAGE, 8) < 8;
		sim_free(world);
	}
	assert_true(lost > SEEDS / 20);
}

static void test_sim__overlapping_writes_mix_when_the_power_goes(void **state)
{
	(void)state;
	uint32_t older_wins = 0, newer_wins = 0, mixed = 0, order_turned = 0;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct sim_world *world = sim_new(seed);
		struct io *io = open_device(world);
		assert_int_equal(write_value(io, 1, PAGE, 0), 0);
		assert_int_equal(write_value(io, 2, PAGE, 0), 0);
		sim_crash(world);
		io->ops->close(io);
		uint32_t older = sectors_of(world, 1, 0, 8), newer = sectors_of(world, 2, 0, 8);
		older_wins += older == 8;
		newer_wins += newer == 8;
		mixed += older > 0 && newer > 0;
		order_turned += older == 8 && sim_stats(world)->crash_whole == 2;
		sim_free(world);
	}
	assert_true(older_wins > 5 && newer_wins > 20 && mixed > 5 && order_turned > 5);
}

static void test_sim__completed_writes_stay_when_the_process_dies(void **state)
{
	(void)state;
	uint32_t none = 0, all = 0, part = 0, lost_later = 0;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct sim_world *world = sim_new(seed);
		struct io *io = open_device(world);
		struct call call;
		assert_int_equal(write_value(io, 1, 4 * PAGE, 0), 0);
		memset(pool, 2, 2 * PAGE);
		io->ops->submit(io, call_init(&call, IO_WRITE, pool, 2 * PAGE, 2 * PAGE));
		sim_kill(world);
		for (int i = 0; i < 5; i++)
			assert_int_equal(io->ops->poll(io, 100 * SECOND), 0);
		assert_int_equal(call.done, 0);
		assert_int_equal(io->ops->pread(io, other, PAGE, 0), -EIO);
		assert_int_equal(io->ops->sync(io), -EIO);
		io->ops->close(io);
		assert_int_equal(call.done, 1);
		assert_int_equal(call.req.result, -EIO);
		assert_int_equal(sectors_of(world, 1, 0, 16), 16);
		uint32_t new = sectors_of(world, 2, 2 * PAGE, 16);
		assert_int_equal(new + sectors_of(world, 1, 2 * PAGE, 16), 16);
		none += new == 0;
		all += new == 16;
		part += new > 0 && new < 16;
		sim_crash(world); /* never flushed: the page cache dies now */
		lost_later += sectors_of(world, 1, 0, 16) < 16;
		sim_free(world);
	}
	assert_true(none > SEEDS / 10 && all > SEEDS / 10 && part > SEEDS / 10 && lost_later > SEEDS / 10);
}

static void test_sim__requests_in_flight_are_done_in_part_when_the_power_goes(void **state)
{
	(void)state;
	uint32_t none = 0, all = 0, part = 0;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct sim_world *world = sim_new(seed);
		struct io *io = open_device(world);
		struct call calls[2];
		memset(pool, 7, PAGE);
		assert_int_equal(io->ops->allocate(io, 0, PAGE), 0);
		assert_int_equal(io->ops->sync(io), 0);
		io->ops->submit(io, call_init(&calls[0], IO_WRITE, pool, PAGE, 0));
		sim_dead_fails(world, 1);
		sim_crash(world);
		io->ops->submit(io, call_init(&calls[1], IO_WRITE, pool, PAGE, 0)); /* to a dead device */
		assert_int_equal(io->ops->poll(io, SECOND), 2);
		assert_int_equal(calls[0].req.result, -EIO);
		assert_int_equal(calls[1].req.result, -EIO);
		uint32_t new = sectors_of(world, 7, 0, 8);
		none += new == 0;
		all += new == 8;
		part += new > 0 && new < 8;
		if (seed % 2)
			io->ops->close(io);
		sim_free(world);
	}
	assert_true(none > SEEDS / 10 && all > SEEDS / 50 && part > SEEDS / 50);
}

static void test_sim__world_dies_at_the_nth_io_when_told(void **state)
{
	(void)state;
	for (uint64_t n = 1; n <= 6; n++) {
		struct sim_world *world = sim_new(n);
		struct io *io = open_device(world);
		sim_crash_at(world, n, n % 2);
		int results[6];
		for (int i = 0; i < 3; i++) {
			results[2 * i] = io->ops->pwrite(io, pool, PAGE, (uint64_t)i * PAGE);
			results[2 * i + 1] = io->ops->sync(io);
		}
		for (uint64_t i = 0; i < 6; i++)
			assert_int_equal(results[i], i + 1 < n ? 0 : -EIO);
		assert_int_equal(sim_count(world), 6);
		assert_int_equal(sim_stats(world)->crashes + sim_stats(world)->kills, 1);
		io->ops->close(io);
		sim_free(world);
	}
}

/* --- faults --- */

static void test_sim__reads_and_writes_fail_in_part_when_the_disk_errs(void **state)
{
	(void)state;
	struct sim_world *world = sim_new(11);
	struct io *io = open_device(world);
	struct sim_faults faults = {.write_error_ppm = ALWAYS}, none = {0};
	uint32_t parts = 0;
	assert_int_equal(write_value(io, 1, 4 * PAGE, 0), 0);
	for (int i = 0; i < 50; i++) {
		sim_set_faults(world, NULL, &none);
		assert_int_equal(write_value(io, 1, 4 * PAGE, 0), 0);
		sim_set_faults(world, NULL, &faults);
		assert_int_equal(write_value(io, 2, 4 * PAGE, 0), -EIO);
		uint32_t new = sectors_of(world, 2, 0, 32);
		assert_int_equal(new + sectors_of(world, 1, 0, 32), 32);
		parts += new > 0 && new < 32;
	}
	assert_true(parts > 10);
	assert_int_equal(sim_stats(world)->write_errors, 50);
	faults = (struct sim_faults){.read_error_ppm = 300000};
	sim_set_faults(world, NULL, &none);
	sim_set_faults(world, DEVICE, &faults);
	struct io *healthy = open_file(world, "healthy", IO_OPEN_CREATE);
	assert_int_equal(write_value(healthy, 3, PAGE, 0), 0);
	int errors = 0;
	for (int i = 0; i < 200; i++) {
		int result = run_call(io, IO_READ, other, PAGE, 0);
		assert_true(result == 0 || result == -EIO);
		errors += result != 0;
		assert_int_equal(run_call(healthy, IO_READ, other, PAGE, 0), 0);
	}
	assert_in_range(errors, 40, 80);
	assert_int_equal(sim_stats(world)->read_errors, errors);
	io->ops->close(io);
	healthy->ops->close(healthy);
	sim_free(world);
}

static void test_sim__failed_flush_drops_writes_for_good_when_it_says_so_once(void **state)
{
	(void)state;
	uint32_t vanished = 0, readable_then_lost = 0, kept = 0;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct sim_world *world = sim_new(seed);
		struct io *io = open_device(world);
		struct sim_faults faults = {.flush_error_ppm = ALWAYS}, none = {0};
		assert_int_equal(write_value(io, 1, PAGE, 0), 0);
		assert_int_equal(flush(io), 0);
		assert_int_equal(write_value(io, 2, PAGE, 0), 0);
		sim_set_faults(world, NULL, &faults);
		assert_int_equal(flush(io), -EIO);
		sim_set_faults(world, NULL, &none);
		int readable = sectors_of(world, 2, 0, 8) == 8;
		if (!readable)
			assert_int_equal(sectors_of(world, 1, 0, 8), 8);
		assert_int_equal(flush(io), 0); /* succeeds, as Linux's does, and means nothing for what was dropped */
		sim_crash(world);
		io->ops->close(io);
		int durable = sectors_of(world, 2, 0, 8) == 8;
		assert_int_equal(durable ? 8 : sectors_of(world, 1, 0, 8), 8);
		vanished += !readable && !durable;
		readable_then_lost += readable && !durable;
		kept += readable && durable;
		assert_false(!readable && durable);
		sim_free(world);
	}
	assert_true(vanished > SEEDS / 10 && readable_then_lost > SEEDS / 10 && kept > SEEDS / 10);
}

static void test_sim__doomed_pages_leave_the_cache_when_read_often(void **state)
{
	(void)state;
	uint32_t evicted = 0, rescued = 0;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct sim_world *world = sim_new(seed);
		struct io *io = open_device(world);
		struct sim_faults faults = {.flush_error_ppm = ALWAYS}, none = {0};
		assert_int_equal(write_value(io, 1, PAGE, 0), 0);
		sim_set_faults(world, NULL, &faults);
		assert_int_equal(flush(io), -EIO);
		sim_set_faults(world, NULL, &none);
		int readable = sectors_of(world, 1, 0, 8) == 8;
		for (int i = 0; i < 30; i++)
			assert_int_equal(run_call(io, IO_READ, other, PAGE, 0), 0);
		evicted += readable && sectors_of(world, 0, 0, 8) == 8;
		assert_int_equal(write_value(io, 1, PAGE, 0), 0); /* writing it again does help */
		assert_int_equal(flush(io), 0);
		sim_crash(world);
		rescued += sectors_of(world, 1, 0, 8) == 8;
		sim_free(world);
	}
	assert_true(evicted > SEEDS / 10);
	assert_int_equal(rescued, SEEDS);
}

static void test_sim__flushes_in_flight_fail_when_one_fails(void **state)
{
	(void)state;
	struct sim_world *world = sim_new(4);
	struct io *io = open_device(world);
	struct call calls[3];
	struct sim_faults faults = {.flush_error_ppm = ALWAYS}, none = {0};
	for (int i = 0; i < 3; i++)
		io->ops->submit(io, call_init(&calls[i], IO_FLUSH, NULL, 0, 0));
	sim_set_faults(world, NULL, &faults);
	completed = 0;
	while (completed == 0)
		(void)io->ops->poll(io, 0);
	sim_set_faults(world, NULL, &none);
	while (completed < 3)
		(void)io->ops->poll(io, SECOND);
	for (int i = 0; i < 3; i++)
		assert_int_equal(calls[i].req.result, -EIO);
	assert_int_equal(sim_stats(world)->flush_errors, 1);
	assert_int_equal(flush(io), 0);
	io->ops->close(io);
	sim_free(world);
}

static void test_sim__transfer_can_be_cut_in_the_middle_when_short(void **state)
{
	(void)state;
	struct sim_world *world = sim_new(6);
	struct io *io = open_device(world);
	struct sim_faults faults = {.short_ppm = 900000};
	uint32_t halves = 0;
	sim_set_faults(world, NULL, &faults);
	for (int value = 1; value <= 50; value++) {
		struct call call;
		memset(pool, value, 8 * PAGE);
		io->ops->submit(io, call_init(&call, IO_WRITE, pool, 8 * PAGE, 0));
		for (int seen = 0; !call.done; (void)io->ops->poll(io, 1000)) {
			uint32_t new = sim_file_bytes(world, DEVICE, &(uint64_t){0}) ? sectors_of(world, value, 0, 64) : 0;
			halves += !seen && new > 0 && new < 64;
			seen = new > 0;
		}
		assert_int_equal(call.req.result, 0);
		assert_int_equal(sectors_of(world, value, 0, 64), 64);
		assert_int_equal(run_call(io, IO_READ, other, 8 * PAGE, 0), 0);
		assert_memory_equal(pool, other, 8 * PAGE);
		assert_int_equal(io->ops->pwrite(io, pool, 4 * PAGE, 0), 0);
		assert_int_equal(io->ops->pread(io, other, 8 * PAGE, 0), 0);
		assert_memory_equal(pool, other, 8 * PAGE);
	}
	assert_true(halves > 20);
	assert_true(sim_stats(world)->shorts > 100);
	io->ops->close(io);
	sim_free(world);
}

static void test_sim__write_lands_elsewhere_when_misdirected(void **state)
{
	(void)state;
	struct sim_faults faults = {.misdirect_ppm = ALWAYS};
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct sim_world *world = sim_new(seed);
		struct io *io = open_device(world);
		assert_int_equal(write_value(io, 1, 8 * PAGE, 0), 0);
		sim_set_faults(world, NULL, &faults);
		assert_int_equal(write_value(io, 2, 2 * PAGE, 3 * PAGE), 0);
		uint32_t at_home = sectors_of(world, 2, 3 * PAGE, 16);
		assert_true(at_home == 0 || at_home == 8); /* one page off, it overlaps */
		assert_int_equal(sectors_of(world, 2, 0, 64), 16);
		assert_int_equal(sectors_of(world, 1, 0, 64), 48);
		assert_int_equal(size_of(io), 8 * PAGE);
		assert_int_equal(sim_stats(world)->misdirected, 1);
		io->ops->close(io);
		sim_free(world);
	}
}

static void test_sim__write_is_never_done_when_lost(void **state)
{
	(void)state;
	struct sim_world *world = sim_new(8);
	struct io *io = open_device(world);
	struct sim_faults faults = {.lost_write_ppm = ALWAYS};
	assert_int_equal(write_value(io, 1, PAGE, 0), 0);
	sim_set_faults(world, NULL, &faults);
	assert_int_equal(write_value(io, 2, PAGE, 0), 0);
	assert_int_equal(flush(io), 0);
	assert_int_equal(sectors_of(world, 1, 0, 8), 8);
	assert_int_equal(sim_stats(world)->lost_writes, 1);
	io->ops->close(io);
	sim_free(world);
}

static uint32_t bits_off(const uint8_t *bytes, int value, uint32_t length)
{
	uint32_t bits = 0;
	for (uint32_t i = 0; i < length; i++)
		bits += (uint32_t)__builtin_popcount((unsigned)(bytes[i] ^ value));
	return bits;
}

static void test_sim__bits_turn_when_reads_or_the_medium_rot(void **state)
{
	(void)state;
	struct sim_world *world = sim_new(12);
	struct io *io = open_device(world);
	struct sim_faults faults = {.rot_read_ppm = ALWAYS}, none = {0};
	uint64_t length;
	assert_int_equal(write_value(io, 0x5a, 4 * PAGE, 0), 0);
	sim_set_faults(world, NULL, &faults);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(run_call(io, IO_READ, other, 4 * PAGE, 0), 0);
		assert_int_equal(bits_off(other, 0x5a, 4 * PAGE), 1);
	}
	assert_int_equal(bits_off(sim_file_bytes(world, DEVICE, &length), 0x5a, 4 * PAGE), 0); /* it was passing */
	assert_int_equal(length, 4 * PAGE);
	faults = (struct sim_faults){.rot_rest_ppm = ALWAYS};
	sim_set_faults(world, NULL, &faults);
	assert_int_equal(io->ops->pread(io, other, PAGE, PAGE), 0);
	sim_set_faults(world, NULL, &none);
	assert_int_equal(bits_off(other, 0x5a, PAGE), 1);
	assert_int_equal(io->ops->pread(io, other, PAGE, PAGE), 0); /* this one stays */
	assert_int_equal(bits_off(other, 0x5a, PAGE), 1);
	io->ops->close(io);
	sim_free(world);
}

static void test_sim__damage_stays_when_the_power_goes(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct sim_world *world = sim_new(seed);
		struct io *io = open_device(world);
		uint64_t length;
		assert_int_equal(write_value(io, 0x5a, 4 * PAGE, 0), 0);
		assert_int_equal(flush(io), 0);
		assert_int_equal(write_value(io, 0x5a, PAGE, 2 * PAGE), 0); /* unflushed */
		sim_rot(world, DEVICE, 100, 50);
		sim_rot(world, DEVICE, 2 * PAGE, 10);
		for (int crashed = 0; crashed < 2; crashed++) {
			const uint8_t *bytes = sim_file_bytes(world, DEVICE, &length);
			assert_int_equal(length, 4 * PAGE);
			for (uint32_t i = 0; i < length; i++)
				assert_int_equal(bytes[i] != 0x5a, (i >= 100 && i < 150) || (i >= 2 * PAGE && i < 2 * PAGE + 10));
			sim_crash(world);
		}
		io->ops->close(io);
		sim_free(world);
	}
}

static void test_sim__request_takes_seconds_when_slow(void **state)
{
	(void)state;
	struct sim_world *world = sim_new(13);
	struct io *io = open_device(world);
	struct sim_faults faults = {.slow_ppm = 500000, .slow_ns_max = 100 * SECOND};
	struct call calls[40];
	uint32_t late = 0;
	sim_set_faults(world, NULL, &faults);
	for (int i = 0; i < 40; i++)
		io->ops->submit(io, call_init(&calls[i], IO_WRITE, pool, PAGE, 0));
	sim_advance(world, SECOND);
	(void)io->ops->poll(io, 0);
	for (int i = 0; i < 40; i++)
		late += !calls[i].done;
	assert_in_range(late, 10, 30);
	uint64_t start = clock_mono_ns(sim_clock(world));
	io->ops->close(io); /* waits for them */
	assert_in_range(clock_mono_ns(sim_clock(world)) - start, 10 * SECOND, 101 * SECOND);
	for (int i = 0; i < 40; i++)
		assert_int_equal(calls[i].req.result, 0);
	sim_free(world);
}

static void test_sim__growth_fails_when_the_disk_is_full(void **state)
{
	(void)state;
	struct sim_world *world = sim_new(14);
	struct io *io = open_device(world), *second = open_file(world, "second", IO_OPEN_CREATE);
	sim_set_space(world, 10 * PAGE);
	assert_int_equal(io->ops->allocate(io, 0, 11 * PAGE), -ENOSPC);
	assert_int_equal(size_of(io), 0);
	assert_int_equal(io->ops->allocate(io, 0, 6 * PAGE), 0);
	assert_int_equal(io->ops->allocate(io, 0, 6 * PAGE), 0); /* costs nothing twice */
	assert_int_equal(room_of(second), 4 * PAGE);
	assert_int_equal(write_value(second, 1, 4 * PAGE, 0), 0);
	assert_int_equal(write_value(second, 2, PAGE, 4 * PAGE), -ENOSPC);
	assert_int_equal(size_of(second), 4 * PAGE);
	assert_int_equal(write_value(io, 2, 6 * PAGE, 0), 0); /* allocated: never full */
	assert_int_equal(write_value(io, 3, 2 * PAGE, 5 * PAGE), -ENOSPC);
	assert_int_equal(size_of(io), 6 * PAGE);
	assert_int_equal(io->ops->punch(io, PAGE, 2 * PAGE), 0);
	assert_int_equal(room_of(second), 2 * PAGE);
	assert_int_equal(sectors_of(world, 0, PAGE, 16), 16);
	assert_int_equal(write_value(second, 2, 2 * PAGE, 4 * PAGE), 0);
	assert_int_equal(write_value(io, 2, PAGE, PAGE), -ENOSPC); /* the hole needs blocks again */
	assert_int_equal(sim_stats(world)->full, 4);
	sim_set_space(world, 1 * PAGE);
	assert_int_equal(write_value(io, 2, PAGE, PAGE), 0);
	io->ops->close(io);
	second->ops->close(second);
	assert_int_equal(sim_remove(world, "second"), 0);
	assert_int_equal(sim_remove(world, "second"), -ENOENT);
	io = open_device(world);
	assert_int_equal(room_of(io), 6 * PAGE);
	io->ops->close(io);
	sim_free(world);
}

static void test_sim__punch_and_growth_can_be_undone_when_not_flushed(void **state)
{
	(void)state;
	uint32_t back = 0, shrunk = 0;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct sim_world *world = sim_new(seed);
		struct io *io = open_device(world);
		sim_set_space(world, 100 * PAGE);
		assert_int_equal(write_value(io, 1, 4 * PAGE, 0), 0);
		assert_int_equal(flush(io), 0);
		assert_int_equal(io->ops->punch(io, PAGE, PAGE), 0);
		assert_int_equal(io->ops->allocate(io, 4 * PAGE, 4 * PAGE), 0);
		assert_int_equal(room_of(io), 93 * PAGE);
		if (seed % 2)
			assert_int_equal(io->ops->sync(io), 0);
		sim_crash(world);
		io->ops->close(io);
		io = open_device(world);
		int undone = sectors_of(world, 1, PAGE, 8) == 8, small = size_of(io) == 4 * PAGE;
		if (!undone)
			assert_int_equal(sectors_of(world, 0, PAGE, 8), 8);
		if (!small)
			assert_int_equal(size_of(io), 8 * PAGE);
		if (seed % 2)
			assert_int_equal(undone + small, 0);
		assert_int_equal(room_of(io), (93u - (undone ? 1 : 0) + (small ? 4 : 0)) * PAGE);
		back += (uint32_t)undone;
		shrunk += (uint32_t)small;
		io->ops->close(io);
		sim_free(world);
	}
	assert_true(back > SEEDS / 10 && shrunk > SEEDS / 10);
}

static int every_io(struct io *io)
{
	int results[8] = {
		run_call(io, IO_WRITE, pool, PAGE, 0),
		run_call(io, IO_READ, other, PAGE, 0),
		run_call(io, IO_FLUSH, NULL, 0, 0),
		io->ops->pwrite(io, pool, PAGE, 0),
		io->ops->pread(io, other, PAGE, 0),
		io->ops->sync(io),
		io->ops->allocate(io, 0, PAGE),
		io->ops->punch(io, PAGE, PAGE),
	};
	int failed = 0;
	for (int i = 0; i < 8; i++) {
		assert_true(results[i] == 0 || results[i] == -EIO);
		failed += results[i] != 0;
	}
	return failed;
}

static void test_sim__exactly_the_nth_fails_when_told(void **state)
{
	(void)state;
	struct sim_world *world = sim_new(15);
	struct io *io = open_device(world);
	assert_int_equal(every_io(io), 0);
	assert_int_equal(sim_count(world), 8);
	for (uint64_t n = 1; n <= 8; n++) {
		sim_fail_at(world, n, 0);
		assert_int_equal(every_io(io), 1);
		sim_fail_at(world, n, 1);
		assert_int_equal(every_io(io), 9 - n);
	}
	uint64_t failed = sim_stats(world)->failed;
	sim_fail_at(world, 9, 0);
	assert_int_equal(every_io(io), 0);
	assert_int_equal(sim_stats(world)->failed, failed);
	io->ops->close(io);
	sim_free(world);
}

static void test_sim__length_changes_when_a_test_cuts_or_stretches_a_file(void **state)
{
	(void)state;
	struct sim_world *world = sim_new(16);
	struct io *io = open_device(world);
	uint64_t length;
	assert_null(sim_file_bytes(world, "none", &length));
	assert_int_equal(write_value(io, 1, 4 * PAGE, 0), 0);
	sim_truncate(world, DEVICE, PAGE + 100);
	assert_int_equal(size_of(io), PAGE + 100);
	assert_int_equal(run_call(io, IO_READ, other, 2 * PAGE, 0), -EIO);
	sim_truncate(world, DEVICE, 3000 * PAGE);
	assert_int_equal(sectors_of(world, 0, 2 * PAGE, 16), 16);
	sim_crash(world);
	const uint8_t *bytes = sim_file_bytes(world, DEVICE, &length);
	assert_int_equal(length, 3000 * PAGE);
	assert_int_equal(bytes[PAGE + 99], 1);
	assert_int_equal(bytes[PAGE + 100], 0);
	io->ops->close(io);
	sim_free(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sim__bytes_come_back_when_nothing_is_wrong),
		cmocka_unit_test(test_sim__requests_overtake_each_other_when_many_are_in_flight),
		cmocka_unit_test(test_sim__clock_moves_only_when_the_world_does),
		cmocka_unit_test(test_sim__unflushed_writes_are_lost_torn_or_kept_when_the_power_goes),
		cmocka_unit_test(test_sim__flushed_writes_stay_when_the_power_goes),
		cmocka_unit_test(test_sim__flush_covers_no_later_write_when_it_promised_none),
		cmocka_unit_test(test_sim__overlapping_writes_mix_when_the_power_goes),
		cmocka_unit_test(test_sim__completed_writes_stay_when_the_process_dies),
		cmocka_unit_test(test_sim__requests_in_flight_are_done_in_part_when_the_power_goes),
		cmocka_unit_test(test_sim__world_dies_at_the_nth_io_when_told),
		cmocka_unit_test(test_sim__reads_and_writes_fail_in_part_when_the_disk_errs),
		cmocka_unit_test(test_sim__failed_flush_drops_writes_for_good_when_it_says_so_once),
		cmocka_unit_test(test_sim__doomed_pages_leave_the_cache_when_read_often),
		cmocka_unit_test(test_sim__flushes_in_flight_fail_when_one_fails),
		cmocka_unit_test(test_sim__transfer_can_be_cut_in_the_middle_when_short),
		cmocka_unit_test(test_sim__write_lands_elsewhere_when_misdirected),
		cmocka_unit_test(test_sim__write_is_never_done_when_lost),
		cmocka_unit_test(test_sim__bits_turn_when_reads_or_the_medium_rot),
		cmocka_unit_test(test_sim__damage_stays_when_the_power_goes),
		cmocka_unit_test(test_sim__request_takes_seconds_when_slow),
		cmocka_unit_test(test_sim__growth_fails_when_the_disk_is_full),
		cmocka_unit_test(test_sim__punch_and_growth_can_be_undone_when_not_flushed),
		cmocka_unit_test(test_sim__exactly_the_nth_fails_when_told),
		cmocka_unit_test(test_sim__length_changes_when_a_test_cuts_or_stretches_a_file),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
