/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For test_fsck*.c: stores made by the real library in directories of their own, a map of where their structures lie
 * (by fsck's own reading of them), damage, and what is served afterwards. After cmocka.h.
 */
#ifndef CAIRN_TESTS_UNIT_FSCK_LIB_H
#define CAIRN_TESTS_UNIT_FSCK_LIB_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "cairn/cairn.h"
#include "fsck/fsck_in.h"
#include "lib/engine.h"
#include "store/store.h"

enum { BLOCKS_MAX = 256, MIB_BYTES = 1 << 20 };

struct block {
	cairn_key key;
	uint32_t length;
	int dropped;
	int status; /* of the last look */
};

struct box {
	char path[96];
	struct cairn_options options;
	struct cairn_flash flash[2];
	struct block blocks[BLOCKS_MAX];
	uint32_t nblocks;
};

/* ---- stores ------------------------------------------------------------------------------------------------------ */

static inline void box_init(struct box *box, uint32_t ndevices)
{
	/* In memory where that is to be had: thousands of flushes are for other tests. */
	engine_or_skip();
	const char *base = !access("/dev/shm", W_OK) ? "/dev/shm" : "/tmp";
	memset(box, 0, sizeof *box);
	snprintf(box->path, sizeof box->path, "%s/cairn-fsck-XXXXXX", base);
	assert_non_null(mkdtemp(box->path));
	for (uint32_t i = 0; i < 2; i++)
		box->flash[i].budget_bytes = 16ull * MIB_BYTES;
	box->options = (struct cairn_options){
		.size = sizeof box->options, .flags = CAIRN_OPEN_CREATE, .memory_bytes = 16ull * MIB_BYTES,
		.catalog_bytes = MIB_BYTES, .flash = box->flash, .nflash = ndevices, .free_floor_bytes = 1,
		.segment_bytes = MIB_BYTES, .io_threads = 1, .workers = 1};
}

static inline void box_shell(const struct box *box, const char *format, const char *other)
{
	char command[400];
	snprintf(command, sizeof command, format, box->path, other);
	assert_int_equal(system(command), 0);
}

static inline void box_done(struct box *box)
{
	box_shell(box, "rm -rf '%s'%s", "");
}

/* Another directory with the same files. */
static inline void box_copy(const struct box *from, struct box *to)
{
	memcpy(to->blocks, from->blocks, sizeof to->blocks);
	to->nblocks = from->nblocks;
	box_shell(from, "cp --sparse=always '%s'/* '%s'/", to->path);
}

static inline cairn *box_open(struct box *box)
{
	cairn *store = NULL;
	struct cairn_options options = box->options;
	options.io_engine = engine_wanted();
	int error = cairn_open(box->path, &options, &store);
	if (error)
		fail_msg("open: %d %s", error, cairn_error_text());
	return store;
}

static inline void box_close(cairn *store)
{
	int error = cairn_close(store);
	if (error)
		fail_msg("close: %d %s", error, cairn_error_text());
}

static inline cairn_space *box_space(cairn *store)
{
	static const cairn_digest weights = {{0x77}};
	struct cairn_space_desc desc = {.size = sizeof desc, .model = "fsck", .weights = &weights, .kv_dtype = "bf16",
	                                .block_tokens = 16};
	cairn_space *space = NULL;
	assert_int_equal(cairn_describe(store, &desc, &space), 0);
	return space;
}

static inline cairn_key block_key(uint64_t number)
{
	cairn_key key;
	struct random random;
	random_init(&random, number * 7919 + 5);
	for (int i = 0; i < 4; i++) {
		uint64_t word = random_next(&random);
		memcpy(key.bytes + i * 8, &word, 8);
	}
	return key;
}

static inline void block_fill(const cairn_key *key, uint8_t *bytes, uint32_t length)
{
	struct random random;
	uint64_t seed;
	memcpy(&seed, key->bytes, 8);
	random_init(&random, seed);
	for (uint32_t at = 0; at < length; at += 8) {
		uint64_t word = random_next(&random);
		memcpy(bytes + at, &word, length - at < 8 ? length - at : 8);
	}
}

/* Puts `n` more blocks, several to a batch and so to a group, durably. */
static inline void box_put(struct box *box, cairn *store, uint32_t n, uint32_t length_max)
{
	cairn_space *space = box_space(store);
	struct random random;
	random_init(&random, box->nblocks + 1);
	while (n) {
		uint32_t batch = 1 + (uint32_t)random_below(&random, 4);
		struct cairn_item items[4];
		struct cairn_buf bufs[4];
		batch = batch < n ? batch : n;
		for (uint32_t i = 0; i < batch; i++) {
			struct block *block = &box->blocks[box->nblocks];
			assert_true(box->nblocks < BLOCKS_MAX);
			block->key = block_key(box->nblocks++);
			block->length = 1 + (uint32_t)random_below(&random, length_max);
			uint8_t *bytes = malloc(block->length);
			block_fill(&block->key, bytes, block->length);
			bufs[i] = cairn_buf_of(bytes, block->length);
			items[i] = (struct cairn_item){.key = block->key, .bufs = &bufs[i], .nbufs = 1};
		}
		struct cairn_call call = {.size = sizeof call, .durability = CAIRN_DURABLE_FLASH};
		long good = cairn_put(store, space, items, batch, &call);
		if (good != (long)batch)
			fail_msg("put: %ld %d %s", good, items[0].status, cairn_error_text());
		for (uint32_t i = 0; i < batch; i++)
			free((void *)(uintptr_t)bufs[i].offset);
		n -= batch;
	}
}

static inline void box_drop(struct box *box, cairn *store, uint32_t block)
{
	assert_int_equal(cairn_drop(store, box_space(store), &box->blocks[block].key, 1), 1);
	box->blocks[block].dropped = 1;
}

/* A session over blocks [from, to), with one tail. */
static inline void box_save(struct box *box, cairn *store, const char *name, uint32_t from, uint32_t to)
{
	cairn_key keys[BLOCKS_MAX];
	uint8_t tail_bytes[5000];
	cairn_key tail_key = block_key(1000000 + from);
	for (uint32_t i = from; i < to; i++)
		keys[i - from] = box->blocks[i].key;
	block_fill(&tail_key, tail_bytes, sizeof tail_bytes);
	struct cairn_buf buf = cairn_buf_of(tail_bytes, sizeof tail_bytes);
	struct cairn_item tail = {.key = tail_key, .bufs = &buf, .nbufs = 1, .flags = CAIRN_ITEM_TAIL};
	struct cairn_chain chain = {0, keys, to - from};
	struct cairn_save save = {.size = sizeof save, .name = {.name = name}, .chains = &chain, .nchains = 1,
	                          .tails = &tail, .ntails = 1, .state = "state", .state_bytes = 5, .tokens = 100};
	int error = cairn_session_save(store, box_space(store), &save);
	if (error)
		fail_msg("save: %d %s", error, cairn_error_text());
}

static inline int box_resume(cairn *store, const char *name)
{
	struct cairn_session_name of = {.name = name};
	cairn_session *session = NULL;
	int status = cairn_session_resume(store, &of, &session);
	cairn_session_free(status ? NULL : session);
	return status;
}

/* Gets every block: wrong bytes and dropped ones fail the test; the statuses are left in the blocks. Returns how many
 * were served. */
static inline uint32_t box_look(struct box *box, cairn *store)
{
	cairn_space *space = box_space(store);
	uint32_t served = 0;
	for (uint32_t i = 0; i < box->nblocks; i++) {
		struct block *block = &box->blocks[i];
		uint8_t *bytes = malloc(block->length), *want = malloc(block->length);
		struct cairn_buf buf = cairn_buf_of(bytes, block->length);
		struct cairn_item item = {.key = block->key, .bufs = &buf, .nbufs = 1};
		(void)cairn_get(store, space, &item, 1, NULL);
		block->status = item.status;
		if (item.status == CAIRN_OK) {
			block_fill(&block->key, want, block->length);
			assert_memory_equal(bytes, want, block->length);
			if (block->dropped)
				fail_msg("block %u came back after it had been dropped", i);
			served++;
		}
		free(bytes);
		free(want);
	}
	return served;
}

/* Opens it, looks, closes it. */
static inline uint32_t box_serves(struct box *box)
{
	cairn *store = box_open(box);
	uint32_t served = box_look(box, store);
	box_close(store);
	return served;
}

/* Some 60 blocks over several segments, five of them dropped, one session; closed. */
static inline void box_fill(struct box *box)
{
	cairn *store = box_open(box);
	box_put(box, store, 60, 200000);
	box_save(box, store, "talk", 0, 20);
	for (uint32_t i = 30; i < 35; i++)
		box_drop(box, store, i);
	box_put(box, store, 4, 9000);
	box_close(store);
}

/* ---- fsck -------------------------------------------------------------------------------------------------------- */

static inline void box_finding(void *arg, const struct fsck_finding *finding)
{
	(void)arg;
	if (getenv("FSCK_VERBOSE"))
		print_message("  %s: device %d offset %lld: %s\n", fsck_severity_name(finding->severity), (int)finding->device,
		              (long long)finding->offset, finding->text);
	assert_null(strchr(finding->text, '\n'));
}

static inline struct fsck_options box_fsck_options(const struct box *box, int repair)
{
	return (struct fsck_options){.size = sizeof(struct fsck_options), .path = box->path, .repair = repair,
	                             .finding = box_finding};
}

static inline int box_fsck(const struct box *box, int repair, struct fsck_report *report)
{
	struct fsck_options options = box_fsck_options(box, repair);
	struct fsck_report unwanted;
	if (getenv("FSCK_VERBOSE"))
		print_message("fsck %s\n", repair ? "--repair" : "");
	int result = fsck_run(&options, report ? report : &unwanted);
	if (result < 0)
		fail_msg("fsck: %d %s", result, err_text());
	return result;
}

/* ---- the map ----------------------------------------------------------------------------------------------------- */

/* Where things lie on a device. */
struct map {
	struct fsck fsck;
	struct fsck_report report;
	struct disk *disk;
};

static inline void map_open(struct map *map, const struct box *box)
{
	struct io *io;
	char path[128];
	uint8_t *bytes = mem_aligned(FMT_PAGE, IDENT_BYTES);
	memset(map, 0, sizeof *map);
	map->fsck.report = &map->report;
	map->fsck.maker = &io_maker_real;
	map->fsck.chunk = mem_aligned(FMT_PAGE, DISK_CHUNK);
	snprintf(map->fsck.path, sizeof map->fsck.path, "%s", box->path);
	snprintf(path, sizeof path, "%s/cairn.id", box->path);
	assert_int_equal(io_maker_real.open(NULL, path, IO_OPEN_READONLY, 1, &io), 0);
	assert_int_equal(io->ops->pread(io, bytes, IDENT_BYTES, 0), 0);
	io->ops->close(io);
	assert_int_equal(ident_decode(bytes, IDENT_BYTES, &map->fsck.ident), FMT_OK);
	mem_free(bytes);
	map->disk = &map->fsck.disks[0];
	map->disk->fsck = &map->fsck;
	snprintf(map->disk->path, sizeof map->disk->path, "%s/flash.cairn", box->path);
	assert_int_equal(disk_open(map->disk), 0);
	assert_int_equal(disk_label(map->disk), 0);
	assert_int_equal(log_read(map->disk, 1), 0);
	assert_int_equal(walk_run(map->disk), 0);
	disk_close(map->disk); /* and with it its lock */
}

static inline void map_close(struct map *map)
{
	disk_close(map->disk);
	log_free(&map->disk->log);
	mem_free(map->disk->segs);
	mem_free(map->disk->parts);
	mem_free(map->disk->gaps);
	mem_free(map->fsck.spaces);
	mem_free(map->fsck.chunk);
}

/* The first segment in this state; fails where there is none. */
static inline uint32_t map_segment(const struct map *map, uint8_t state, uint32_t skip)
{
	for (uint32_t i = 0; i < map->disk->log.nsegments; i++)
		if (map->disk->log.segments[i].state == state && map->disk->log.segments[i].life && !skip--)
			return i;
	fail_msg("no segment is in state %u", state);
	return 0;
}

static inline const struct part *map_part(const struct map *map, const cairn_key *key)
{
	for (uint32_t i = 0; i < map->disk->nparts; i++)
		if (!memcmp(map->disk->parts[i].key, key->bytes, 32))
			return &map->disk->parts[i];
	fail_msg("no such part");
	return NULL;
}

/* Whether a block lies in this segment. */
static inline int map_lies_in(const struct map *map, const struct block *block, uint32_t segment)
{
	return map_part(map, &block->key)->segment == segment;
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

static inline int damage_open(const struct box *box, const char *file)
{
	char path[160];
	snprintf(path, sizeof path, "%s/%s", box->path, file);
	int fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	return fd;
}

/* Flips bits of `length` bytes. */
static inline void damage(const struct box *box, const char *file, uint64_t offset, uint32_t length)
{
	int fd = damage_open(box, file);
	uint8_t *bytes = malloc(length);
	assert_int_equal(pread(fd, bytes, length, (off_t)offset), length);
	for (uint32_t i = 0; i < length; i++)
		bytes[i] ^= (uint8_t)(0x5a + i);
	assert_int_equal(pwrite(fd, bytes, length, (off_t)offset), length);
	free(bytes);
	close(fd);
}

static inline void blank(const struct box *box, const char *file, uint64_t offset, uint32_t length)
{
	int fd = damage_open(box, file);
	uint8_t *bytes = calloc(1, length);
	assert_int_equal(pwrite(fd, bytes, length, (off_t)offset), length);
	free(bytes);
	close(fd);
}

static inline uint64_t file_hash(const struct box *box, const char *file)
{
	int fd = damage_open(box, file);
	struct stat info;
	assert_int_equal(fstat(fd, &info), 0);
	uint8_t *bytes = malloc((size_t)info.st_size + 1);
	assert_int_equal(pread(fd, bytes, (size_t)info.st_size, 0), info.st_size);
	uint64_t hash = digest_xxh3(bytes, (size_t)info.st_size, (uint64_t)info.st_mtim.tv_nsec);
	free(bytes);
	close(fd);
	return hash;
}

#endif
