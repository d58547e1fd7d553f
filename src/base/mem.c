/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation over malloc, with a switch that makes the N-th one fail.
 * Threads: any; the switch is a few atomics, and costs one relaxed load where it is off.
 * Memory: each block is the caller's, until mem_free.
 * Invariant: every function that allocates asks mem_refused first, exactly once.
 */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

static _Atomic uint64_t mem_left; /* allocations until one fails, that one included; 0: off */
static _Atomic int mem_all;       /* every later one fails too */
static _Atomic int mem_hit;       /* one has failed */

static int mem_refused(void)
{
	uint64_t left = atomic_load_explicit(&mem_left, memory_order_relaxed);
	uint64_t after;

	do {
		if (!left)
			return 0;
		after = left > 1 ? left - 1 : (uint64_t)(atomic_load(&mem_all) != 0);
	} while (!atomic_compare_exchange_weak(&mem_left, &left, after));
	if (left > 1)
		return 0;
	atomic_store(&mem_hit, 1);
	return 1;
}

/* malloc(0) may be NULL, which would read as out of memory. */
static size_t mem_at_least_one(size_t size)
{
	return size ? size : 1;
}

void *mem_alloc(size_t size)
{
	return mem_refused() ? NULL : calloc(1, mem_at_least_one(size));
}

void *mem_array(size_t count, size_t size)
{
	size_t bytes;

	if (mem_refused() || __builtin_mul_overflow(count, size, &bytes))
		return NULL;
	return calloc(1, mem_at_least_one(bytes));
}

void *mem_table(size_t count, size_t size)
{
	const uintptr_t huge = (uintptr_t)2 << 20;
	uint8_t *memory = mem_array(count, size);

	/* A kernel that has none refuses, and that is all right. */
	if (memory && count * size >= 2 * huge) {
		uintptr_t first = ((uintptr_t)memory + huge - 1) & ~(huge - 1),
				  end = ((uintptr_t)memory + count * size) & ~(huge - 1);

		(void)madvise((void *)first, end - first, MADV_HUGEPAGE);
	}
	return memory;
}

void *mem_grow(void *memory, size_t size)
{
	return mem_refused() ? NULL : realloc(memory, mem_at_least_one(size));
}

void *mem_aligned(size_t align, size_t size)
{
	void *memory;

	check(align && !(align & (align - 1)));
	if (align < sizeof(void *))
		align = sizeof(void *);
	if (mem_refused() || posix_memalign(&memory, align, mem_at_least_one(size)))
		return NULL;
	memset(memory, 0, size);
	return memory;
}

char *mem_copy_string(const char *text)
{
	check(text);
	return mem_copy(text, strlen(text) + 1);
}

void *mem_copy(const void *bytes, size_t size)
{
	void *copy;

	check(bytes || !size);
	copy = mem_refused() ? NULL : malloc(mem_at_least_one(size));
	if (copy && size)
		memcpy(copy, bytes, size);
	return copy;
}

void mem_free(void *memory)
{
	free(memory);
}

void mem_fail_at(uint64_t n, int all)
{
	atomic_store(&mem_left, 0);
	atomic_store(&mem_all, all != 0);
	atomic_store(&mem_hit, 0);
	atomic_store(&mem_left, n);
}

int mem_failed(void)
{
	return atomic_load(&mem_hit);
}
