/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between sim.c (devices, requests, time) and sim_disk.c (files, what of them is durable, the faults of a transfer).
 * Nobody else includes it. Threads and memory: as sim.h says.
 */
#ifndef CAIRN_IO_SIM_DISK_H
#define CAIRN_IO_SIM_DISK_H

#include "base/bytes.h"
#include "base/check.h"
#include "base/random.h"
#include "io/sim.h"

#define SIM_SIZE_MAX (1ull << 40) /* bytes of a file */

struct sim_page;

struct sim_file {
	struct list link;
	struct sim_world *world;
	char *path;
	uint8_t *bytes;         /* mmap, `capacity` bytes */
	struct sim_page *pages; /* capacity / IO_ALIGN */
	uint64_t capacity, size, durable_size;
	struct list records;
	uint32_t open; /* devices, dead ones too */
	uint32_t own_faults;
	struct sim_faults faults;
};

struct sim_world {
	struct random random;
	struct clock clock;
	uint64_t now_ns;
	int64_t wall_step_s;
	struct list files, ios; /* oldest first */
	struct sim_faults faults;
	struct sim_stats stats;
	uint64_t seq;            /* of completed changes */
	uint64_t capacity, used; /* bytes of all files */
	uint64_t count, fail_left, crash_left;
	int fail_all, crash_kills, dead_fails;
	int over; /* the process died inside of an I/O: what its code still does reaches nothing */
	FILE *trace;
};

/* A read or write under way. */
struct sim_transfer {
	uint32_t op;
	const struct io_vec *vec;
	uint32_t nvec;
	uint64_t offset, total, moved; /* bytes */
};

/* Memory that mem_fail_at does not see; zeroed, never NULL. */
void *sim_take(size_t size);
void sim_give(void *memory);

static inline uint64_t sim_min(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t sim_max(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline uint64_t sim_below(struct sim_world *world, uint64_t bound)
{
	return random_below(&world->random, bound);
}

/* Draws a fault, and counts it. */
static inline int sim_fault(struct sim_world *world, uint32_t ppm, uint64_t *stat)
{
	int hit = random_chance(&world->random, ppm);
	*stat += (uint64_t)hit;
	return hit;
}

static inline const struct sim_faults *sim_faults_of(const struct sim_file *file)
{
	return file->own_faults ? &file->faults : &file->world->faults;
}

/* One line of the trace. */
void sim_say(struct sim_world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct sim_file *sim_disk_find(const struct sim_world *world, const char *path); /* NULL: none */
struct sim_file *sim_disk_new(struct sim_world *world, const char *path);
void sim_disk_free(struct sim_file *file);
uint64_t sim_disk_free_bytes(const struct sim_world *world);

struct sim_transfer sim_disk_transfer(const struct io_req *req, uint64_t moved);
/* Moves the rest, or a part of it: moved < total with a result of 0 means that it is not over. */
int sim_disk_step(struct sim_file *file, struct sim_transfer *t);
/* What a write in flight does when its process dies: nothing, all, or a part. */
void sim_disk_abandon(struct sim_file *file, struct sim_transfer *t);
void sim_disk_trace(const char *how, const struct sim_file *file, const struct sim_transfer *t, int result);

/* Makes durable all changes up to `seq` and a drawn number of the later ones: 0 or -EIO. */
int sim_disk_flush(struct sim_file *file, uint64_t seq);
int sim_disk_allocate(struct sim_file *file, uint64_t offset, uint64_t length);
int sim_disk_punch(struct sim_file *file, uint64_t offset, uint64_t length);
/* Power loss, for what is not durable. */
void sim_disk_crash(struct sim_file *file);
void sim_disk_rot(struct sim_file *file, uint64_t at, uint8_t flip);
/* Makes the image durable, as so many bytes. */
void sim_disk_resize(struct sim_file *file, uint64_t length);

#endif
