/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of the simulated world: what of them is durable, what a power loss leaves, and the faults of a transfer.
 *
 * A file is one image (`bytes`, what a read sees), and for each page that unflushed changes touch, its durable content
 * (`saved`), with the list of those changes. A flush copies changes into `saved` and forgets them; a power loss puts
 * `saved` back into the image and then does a drawn part of the changes again.
 *
 * Threads: one. Memory: malloc and mmap, so that mem_fail_at and the library's budgets do not see it.
 * Invariant: a page that is not allocated reads as zeros, and so does everything past `size`.
 */
#include "io/sim_disk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE ((uint64_t)IO_ALIGN)

struct sim_page {
	uint8_t *saved;   /* durable content, where it may differ from the image; NULL: it is the same */
	uint32_t records; /* unflushed changes that touch it */
	uint8_t allocated;
	uint8_t doomed; /* a failed flush dropped a write: the image may differ from `saved` without a record */
};

enum record_kind {
	RECORD_WRITE = 1,
	RECORD_ZERO, /* a punch */
	RECORD_GROW, /* an allocate: only the size counts */
};

/* A change that is in the image and not yet durable. */
struct record {
	struct list link; /* file->records, oldest first */
	uint64_t seq;
	uint64_t offset, length;
	enum record_kind kind;
	uint8_t bytes[];
};

void *sim_take(size_t size)
{
	void *memory = calloc(1, size);
	check(memory != NULL);
	return memory;
}

void sim_give(void *memory)
{
	free(memory);
}

void sim_say(struct sim_world *world, const char *format, ...)
{
	char line[512];
	if (!world->trace)
		return;
	va_list args;
	va_start(args, format);
	int head = snprintf(line, sizeof(line), "%" PRIu64 " ", world->now_ns);
	int tail = vsnprintf(line + head, sizeof(line) - 1 - (size_t)head, format, args);
	va_end(args);
	size_t length = sim_min((uint64_t)(head + tail), sizeof(line) - 2);
	line[length++] = '\n';
	check(fwrite(line, 1, length, world->trace) == length);
}

/* --- the pages of a file --- */

static void file_reserve(struct sim_file *file, uint64_t end)
{
	uint64_t capacity = file->capacity ? file->capacity : 1u << 20;
	while (capacity < end)
		capacity *= 2;
	if (capacity == file->capacity)
		return;
	void *bytes = file->bytes ? mremap(file->bytes, file->capacity, capacity, MREMAP_MAYMOVE)
	                          : mmap(NULL, capacity, PROT_READ | PROT_WRITE,
	                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	check(bytes != MAP_FAILED);
	struct sim_page *pages = sim_take(capacity / PAGE * sizeof(*pages));
	if (file->pages)
		memcpy(pages, file->pages, file->capacity / PAGE * sizeof(*pages));
	sim_give(file->pages);
	file->bytes = bytes;
	file->pages = pages;
	file->capacity = capacity;
}

static void page_allocate(struct sim_file *file, uint64_t page, int on)
{
	if (file->pages[page].allocated == on)
		return;
	file->pages[page].allocated = (uint8_t)on;
	file->world->used = on ? file->world->used + PAGE : file->world->used - PAGE;
}

uint64_t sim_disk_free_bytes(const struct sim_world *world)
{
	return world->capacity > world->used ? world->capacity - world->used : 0;
}

/* How many bytes from `offset` on have, or can have, blocks: `length`, or up to the first page without. */
static uint64_t range_fits(const struct sim_file *file, uint64_t offset, uint64_t length)
{
	uint64_t room = sim_disk_free_bytes(file->world) / PAGE, end = offset + length;
	for (uint64_t page = offset / PAGE; page * PAGE < end; page++) {
		if (page < file->capacity / PAGE && file->pages[page].allocated)
			continue;
		if (room-- == 0)
			return page * PAGE > offset ? page * PAGE - offset : 0;
	}
	return length;
}

/* The piece of a record that lies in one page. */
struct piece {
	uint64_t page, in_page, in_record, length;
};

static int piece_next(const struct record *record, struct piece *piece)
{
	piece->in_record += piece->length;
	if (piece->in_record >= record->length || record->kind == RECORD_GROW)
		return 0;
	uint64_t offset = record->offset + piece->in_record;
	piece->page = offset / PAGE;
	piece->in_page = offset % PAGE;
	piece->length = sim_min(PAGE - piece->in_page, record->length - piece->in_record);
	return 1;
}

static void piece_put(const struct record *record, const struct piece *piece, uint8_t *page_bytes)
{
	if (record->kind == RECORD_WRITE)
		memcpy(page_bytes + piece->in_page, record->bytes + piece->in_record, piece->length);
	else
		memset(page_bytes + piece->in_page, 0, piece->length);
}

/* Does a change: in the image now, durable with a flush. */
static void record_add(struct sim_file *file, enum record_kind kind, uint64_t offset, const uint8_t *bytes,
                       uint64_t length)
{
	if (length == 0)
		return;
	uint64_t end = kind == RECORD_ZERO ? sim_min(offset + length, BYTES_ROUND_UP(file->size, PAGE)) : offset + length;
	if (end <= offset)
		return;
	file_reserve(file, end);
	struct record *record = sim_take(sizeof(*record) + (kind == RECORD_WRITE ? length : 0));
	*record = (struct record){.seq = ++file->world->seq, .offset = offset, .length = end - offset, .kind = kind};
	if (kind == RECORD_WRITE)
		memcpy(record->bytes, bytes, length);
	list_push_back(&file->records, &record->link);
	for (struct piece piece = {0}; piece_next(record, &piece);) {
		struct sim_page *page = &file->pages[piece.page];
		uint8_t *image = file->bytes + piece.page * PAGE;
		if (!page->saved)
			page->saved = memcpy(sim_take(PAGE), image, PAGE);
		page->records++;
		piece_put(record, &piece, image);
		if (kind == RECORD_WRITE)
			page_allocate(file, piece.page, 1);
		else if (piece.length == PAGE)
			page_allocate(file, piece.page, 0);
	}
	if (kind != RECORD_ZERO)
		file->size = sim_max(file->size, end);
}

/* Forgets a change: `saved` goes where nothing else needs it. */
static void record_free(struct sim_file *file, struct record *record)
{
	for (struct piece piece = {0}; piece_next(record, &piece);) {
		struct sim_page *page = &file->pages[piece.page];
		if (--page->records > 0)
			continue;
		if (page->doomed && memcmp(page->saved, file->bytes + piece.page * PAGE, PAGE) != 0)
			continue;
		sim_give(page->saved);
		page->saved = NULL;
		page->doomed = 0;
	}
	list_remove(&record->link);
	sim_give(record);
}

static void record_settle(struct sim_file *file, struct record *record)
{
	for (struct piece piece = {0}; piece_next(record, &piece);)
		piece_put(record, &piece, file->pages[piece.page].saved);
	if (record->kind != RECORD_ZERO)
		file->durable_size = sim_max(file->durable_size, record->offset + record->length);
	record_free(file, record);
}

static struct record *record_first(const struct sim_file *file)
{
	return list_empty(&file->records) ? NULL : LIST_OF(file->records.next, struct record, link);
}

/* Makes some sectors of a write happen: a prefix, or any. `length` is a multiple of SIM_SECTOR. */
static void write_torn(struct sim_file *file, uint64_t offset, const uint8_t *bytes, uint64_t length)
{
	struct sim_world *world = file->world;
	length = range_fits(file, offset, length);
	if (sim_below(world, 2) == 0) {
		record_add(file, RECORD_WRITE, offset, bytes, sim_below(world, length / SIM_SECTOR + 1) * SIM_SECTOR);
		return;
	}
	uint64_t from = 0, at;
	for (at = 0; at < length; at += SIM_SECTOR) {
		if (sim_below(world, 2))
			continue;
		record_add(file, RECORD_WRITE, offset + from, bytes + from, at - from);
		from = at + SIM_SECTOR;
	}
	record_add(file, RECORD_WRITE, offset + from, bytes + from, at - from);
}

static int file_write(struct sim_file *file, uint64_t offset, const uint8_t *bytes, uint64_t length)
{
	uint64_t fits = range_fits(file, offset, length);
	record_add(file, RECORD_WRITE, offset, bytes, fits);
	if (fits == length)
		return 0;
	file->world->stats.full++;
	return -ENOSPC;
}

void sim_disk_rot(struct sim_file *file, uint64_t at, uint8_t flip)
{
	file->bytes[at] ^= flip;
	if (file->pages[at / PAGE].saved)
		file->pages[at / PAGE].saved[at % PAGE] ^= flip;
	for (struct list *node = file->records.next; node != &file->records; node = node->next) {
		struct record *record = LIST_OF(node, struct record, link);
		if (record->kind == RECORD_WRITE && at >= record->offset && at - record->offset < record->length)
			record->bytes[at - record->offset] ^= flip;
	}
	page_allocate(file, at / PAGE, 1);
}

/* --- flush --- */

/* A failed flush drops some writes at once: what is left is built anew. */
static void flush_drop_now(struct sim_file *file)
{
	struct list *node, *next;
	for (node = file->records.next; node != &file->records; node = node->next) {
		struct record *record = LIST_OF(node, struct record, link);
		for (struct piece piece = {0}; piece_next(record, &piece);)
			memcpy(file->bytes + piece.page * PAGE, file->pages[piece.page].saved, PAGE);
	}
	for (node = file->records.next; node != &file->records; node = next) {
		struct record *record = LIST_OF(node, struct record, link);
		next = node->next;
		if (record->kind == RECORD_WRITE && sim_below(file->world, 4) != 0) {
			record_free(file, record);
			file->world->stats.flush_drops++;
			continue;
		}
		for (struct piece piece = {0}; piece_next(record, &piece);)
			piece_put(record, &piece, file->bytes + piece.page * PAGE);
	}
}

/* Or it marks pages clean that never reached the disk: readable until they leave the cache, and never durable. */
static void flush_drop_later(struct sim_file *file)
{
	struct list *node, *next;
	for (node = file->records.next; node != &file->records; node = next) {
		struct record *record = LIST_OF(node, struct record, link);
		next = node->next;
		if (record->kind != RECORD_WRITE)
			continue;
		for (struct piece piece = {0}; piece_next(record, &piece);)
			file->pages[piece.page].doomed = 1;
		record_free(file, record);
		file->world->stats.flush_drops++;
	}
}

int sim_disk_flush(struct sim_file *file, uint64_t seq)
{
	struct sim_world *world = file->world;
	if (sim_fault(world, sim_faults_of(file)->flush_error_ppm, &world->stats.flush_errors)) {
		uint64_t way = sim_below(world, 3);
		if (way == 1)
			flush_drop_now(file);
		else if (way == 2)
			flush_drop_later(file);
		return -EIO;
	}
	struct record *record;
	while ((record = record_first(file)) && (record->seq <= seq || sim_below(world, 2)))
		record_settle(file, record);
	return 0;
}

int sim_disk_allocate(struct sim_file *file, uint64_t offset, uint64_t length)
{
	if (length == 0)
		return -EINVAL;
	if (offset > SIM_SIZE_MAX || length > SIM_SIZE_MAX - offset)
		return -EFBIG;
	if (range_fits(file, offset, length) < length) {
		file->world->stats.full++;
		return -ENOSPC;
	}
	file_reserve(file, offset + length);
	for (uint64_t page = offset / PAGE; page * PAGE < offset + length; page++)
		page_allocate(file, page, 1);
	if (offset + length > file->size)
		record_add(file, RECORD_GROW, offset, NULL, length);
	return 0;
}

int sim_disk_punch(struct sim_file *file, uint64_t offset, uint64_t length)
{
	if (length == 0 || offset > INT64_MAX || length > INT64_MAX - offset)
		return -EINVAL;
	record_add(file, RECORD_ZERO, offset, NULL, length);
	return 0;
}

/* --- transfers --- */

/* Copies between a buffer and the vector's bytes from `skip` on. */
static void vec_copy(const struct sim_transfer *t, uint64_t skip, uint8_t *bytes, uint64_t length, int into_vec)
{
	for (uint32_t i = 0; i < t->nvec && length > 0; i++) {
		uint64_t now = t->vec[i].length;
		if (skip >= now) {
			skip -= now;
			continue;
		}
		now = sim_min(now - skip, length);
		uint8_t *in_vec = (uint8_t *)t->vec[i].address + skip;
		if (into_vec)
			memcpy(in_vec, bytes, now);
		else
			memcpy(bytes, in_vec, now);
		bytes += now;
		length -= now;
		skip = 0;
	}
}

struct sim_transfer sim_disk_transfer(const struct io_req *req, uint64_t moved)
{
	struct sim_transfer t = {req->op, req->vec, req->nvec, req->offset, 0, moved};
	for (uint32_t i = 0; i < req->nvec; i++)
		t.total += req->vec[i].length;
	return t;
}

/* Pages whose write a failed flush lost leave the cache sooner or later. */
static void file_evict(struct sim_file *file, uint64_t offset, uint64_t length)
{
	for (uint64_t at = offset / PAGE; at * PAGE < offset + length; at++) {
		struct sim_page *page = &file->pages[at];
		if (!page->doomed || page->records || sim_below(file->world, 4) != 0)
			continue;
		memcpy(file->bytes + at * PAGE, page->saved, PAGE);
		sim_give(page->saved);
		page->saved = NULL;
		page->doomed = 0;
	}
}

static int read_part(struct sim_file *file, const struct sim_transfer *t, uint64_t part)
{
	struct sim_world *world = file->world;
	const struct sim_faults *faults = sim_faults_of(file);
	uint64_t offset = t->offset + t->moved;
	uint64_t there = offset < file->size ? sim_min(part, file->size - offset) : 0;
	if (there) {
		file_evict(file, offset, there);
		if (sim_fault(world, faults->rot_rest_ppm, &world->stats.rot_rest))
			sim_disk_rot(file, offset + sim_below(world, there), (uint8_t)(1u << sim_below(world, 8)));
		vec_copy(t, t->moved, file->bytes + offset, there, 1);
	}
	if (sim_fault(world, faults->read_error_ppm, &world->stats.read_errors)) {
		uint8_t garbage[SIM_SECTOR];
		memset(garbage, (int)sim_below(world, 256), sizeof(garbage));
		vec_copy(t, t->moved + sim_below(world, part / SIM_SECTOR) * SIM_SECTOR, garbage, sizeof(garbage), 1);
		return -EIO;
	}
	if (there < part)
		return -EIO;
	if (sim_fault(world, faults->rot_read_ppm, &world->stats.rot_read)) {
		uint64_t at = sim_below(world, part);
		uint8_t byte;
		vec_copy(t, t->moved + at, &byte, 1, 0);
		byte ^= (uint8_t)(1u << sim_below(world, 8));
		vec_copy(t, t->moved + at, &byte, 1, 1);
	}
	return 0;
}

/* Where a misdirected write lands: another page of the file, or `offset` where there is none. */
static uint64_t misdirect(struct sim_file *file, uint64_t offset, uint64_t length)
{
	uint64_t span = BYTES_ROUND_UP(length, PAGE);
	if (file->size < span + PAGE)
		return offset;
	uint64_t places = (file->size - span) / PAGE + 1;
	uint64_t to = sim_below(file->world, places) * PAGE;
	return to == offset / PAGE * PAGE ? (to / PAGE + 1) % places * PAGE : to;
}

static int write_part(struct sim_file *file, const struct sim_transfer *t, uint64_t part)
{
	struct sim_world *world = file->world;
	const struct sim_faults *faults = sim_faults_of(file);
	uint64_t offset = t->offset + t->moved;
	int result = 0;
	uint8_t *bytes = sim_take(part);
	vec_copy(t, t->moved, bytes, part, 0);
	if (sim_fault(world, faults->write_error_ppm, &world->stats.write_errors)) {
		write_torn(file, offset, bytes, part);
		result = -EIO;
	} else if (!sim_fault(world, faults->lost_write_ppm, &world->stats.lost_writes)) {
		uint64_t to = random_chance(&world->random, faults->misdirect_ppm) ? misdirect(file, offset, part) : offset;
		if (to != offset) {
			world->stats.misdirected++;
			sim_say(world, "misdirect %s %" PRIu64 " -> %" PRIu64, file->path, offset, to);
		}
		result = file_write(file, to, bytes, part);
	} else {
		sim_say(world, "lost %s %" PRIu64 "+%" PRIu64, file->path, offset, part);
	}
	sim_give(bytes);
	return result;
}

static int transfer_too_far(const struct sim_transfer *t)
{
	return t->offset > SIM_SIZE_MAX || t->total > SIM_SIZE_MAX - t->offset;
}

int sim_disk_step(struct sim_file *file, struct sim_transfer *t)
{
	struct sim_world *world = file->world;
	uint64_t part = t->total - t->moved;
	if (transfer_too_far(t))
		return t->op == IO_READ ? -EIO : -EFBIG;
	if (part > SIM_SECTOR && sim_fault(world, sim_faults_of(file)->short_ppm, &world->stats.shorts))
		part = SIM_SECTOR * (1 + sim_below(world, part / SIM_SECTOR - 1));
	int result = t->op == IO_READ ? read_part(file, t, part) : write_part(file, t, part);
	t->moved += part;
	return result;
}

/* Of what was moved; a transfer that failed leaves bytes that nobody may look at. */
static uint64_t transfer_hash(const struct sim_transfer *t, int result)
{
	uint64_t hash = 0xcbf29ce484222325u;
	for (uint32_t i = 0; i < t->nvec && result == 0; i++)
		for (uint32_t j = 0; j < t->vec[i].length; j++)
			hash = (hash ^ ((const uint8_t *)t->vec[i].address)[j]) * 0x100000001b3u;
	return hash;
}

void sim_disk_trace(const char *how, const struct sim_file *file, const struct sim_transfer *t, int result)
{
	if (file->world->trace)
		sim_say(file->world, "%s%s %s %" PRIu64 "+%" PRIu64 " = %d #%016" PRIx64, how,
		        t->op == IO_READ ? "read" : "write", file->path, t->offset, t->total, result, transfer_hash(t, result));
}

void sim_disk_abandon(struct sim_file *file, struct sim_transfer *t)
{
	uint64_t outcome = sim_below(file->world, 3), part = t->total - t->moved;
	if (t->op != IO_WRITE || outcome == 0 || transfer_too_far(t))
		return;
	if (outcome == 1) {
		(void)write_part(file, t, part);
		return;
	}
	uint8_t *bytes = sim_take(part);
	vec_copy(t, t->moved, bytes, part, 0);
	write_torn(file, t->offset + t->moved, bytes, part);
	sim_give(bytes);
}

/* --- power loss --- */

/* Does a change again, or (torn) any of its sectors: whether anything was done. */
static int crash_apply(struct sim_file *file, const struct record *record, int torn)
{
	int any = !torn;
	for (struct piece piece = {0}; piece_next(record, &piece);) {
		uint8_t *image = file->bytes + piece.page * PAGE;
		if (!torn)
			piece_put(record, &piece, image);
		for (uint64_t at = 0; torn && at < piece.length; at += SIM_SECTOR) {
			if (sim_below(file->world, 2))
				continue;
			memcpy(image + piece.in_page + at, record->bytes + piece.in_record + at, SIM_SECTOR);
			any = 1;
		}
	}
	return any;
}

/* The unflushed changes in a drawn order. */
static struct record **crash_order(struct sim_file *file, uint64_t *ret_count)
{
	uint64_t count = 0;
	struct list *node;
	for (node = file->records.next; node != &file->records; node = node->next)
		count++;
	struct record **order = sim_take((count + 1) * sizeof(struct record *));
	count = 0;
	for (node = file->records.next; node != &file->records; node = node->next) {
		uint64_t at = sim_below(file->world, ++count);
		order[count - 1] = order[at];
		order[at] = LIST_OF(node, struct record, link);
	}
	*ret_count = count;
	return order;
}

/* A punch that was undone, or written over, has its blocks again. */
static void crash_unpunch(struct sim_file *file, const struct record *record)
{
	static const uint8_t zeros[PAGE];
	for (struct piece piece = {0}; record->kind == RECORD_ZERO && piece_next(record, &piece);)
		if (memcmp(file->bytes + piece.page * PAGE, zeros, PAGE) != 0)
			page_allocate(file, piece.page, 1);
}

/* Ends all difference between the image and what is durable: it is `size` bytes of the image. */
static void file_clean(struct sim_file *file, uint64_t size)
{
	while (!list_empty(&file->records))
		sim_give(LIST_OF(list_pop_front(&file->records), struct record, link));
	for (uint64_t i = 0; i < file->capacity / PAGE; i++) {
		struct sim_page *page = &file->pages[i];
		sim_give(page->saved);
		page->saved = NULL;
		page->records = page->doomed = 0;
		if (i * PAGE >= size)
			page_allocate(file, i, 0);
	}
	if (file->size > size)
		memset(file->bytes + size, 0, file->size - size);
	file->size = file->durable_size = size;
}

/* Puts the durable content back, and then does a part of the unflushed changes, in any order. */
void sim_disk_crash(struct sim_file *file)
{
	struct sim_world *world = file->world;
	struct sim_stats *stats = &world->stats;
	uint64_t size = file->durable_size, mood = sim_below(world, 4), count;
	uint32_t lost_ppm = (uint32_t)sim_below(world, 1000000), torn_ppm = (uint32_t)sim_below(world, 1000000);
	if (mood < 2) { /* all is lost, or nothing */
		lost_ppm = mood ? 0 : 1000000;
		torn_ppm = 0;
	}
	struct record **order = crash_order(file, &count);
	for (uint64_t i = 0; i < file->capacity / PAGE; i++)
		if (file->pages[i].saved)
			memcpy(file->bytes + i * PAGE, file->pages[i].saved, PAGE);
	for (uint64_t i = 0; i < count; i++) {
		const struct record *record = order[i];
		int lost = random_chance(&world->random, lost_ppm);
		int torn = random_chance(&world->random, torn_ppm) && record->kind == RECORD_WRITE;
		*(lost ? &stats->crash_lost : torn ? &stats->crash_torn : &stats->crash_whole) += 1;
		if (!lost && crash_apply(file, record, torn) && record->kind != RECORD_ZERO)
			size = sim_max(size, record->offset + record->length);
		sim_say(world, "crash %s %" PRIu64 "+%" PRIu64 " %s", file->path, record->offset, record->length,
		        lost ? "lost" : torn ? "torn" : "whole");
	}
	for (uint64_t i = 0; i < count; i++)
		crash_unpunch(file, order[i]);
	sim_give(order);
	file_clean(file, size);
}

/* --- files --- */

struct sim_file *sim_disk_find(const struct sim_world *world, const char *path)
{
	for (const struct list *node = world->files.next; node != &world->files; node = node->next) {
		struct sim_file *file = LIST_OF(node, struct sim_file, link);
		if (strcmp(file->path, path) == 0)
			return file;
	}
	return NULL;
}

struct sim_file *sim_disk_new(struct sim_world *world, const char *path)
{
	struct sim_file *file = sim_take(sizeof(*file));
	file->world = world;
	file->path = memcpy(sim_take(strlen(path) + 1), path, strlen(path) + 1);
	list_init(&file->records);
	list_push_back(&world->files, &file->link);
	file_reserve(file, 1);
	return file;
}

void sim_disk_free(struct sim_file *file)
{
	check(file->open == 0);
	file_clean(file, 0);
	check(munmap(file->bytes, file->capacity) == 0);
	list_remove(&file->link);
	sim_give(file->pages);
	sim_give(file->path);
	sim_give(file);
}

void sim_disk_resize(struct sim_file *file, uint64_t length)
{
	check(length <= SIM_SIZE_MAX);
	file_reserve(file, length);
	file_clean(file, length);
}
