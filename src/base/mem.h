/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation. Every allocation of the library goes through here, so that tests can fail the N-th one.
 * Threads: any. mem_fail_at is for tests, before threads start.
 */
#ifndef CAIRN_BASE_MEM_H
#define CAIRN_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t size);                /* zeroed; NULL: out of memory */
void *mem_array(size_t count, size_t size);  /* zeroed; overflow is out of memory */
void *mem_grow(void *memory, size_t size);   /* as realloc; the new part is not zeroed */
void *mem_aligned(size_t align, size_t size); /* zeroed; align a power of two; freed by mem_free */
char *mem_copy_string(const char *text);     /* NULL for NULL is a check failure */
void *mem_copy(const void *bytes, size_t size);
/* The same as mem_array, and asks for large pages where it is large: for tables that are looked into at random. */
void *mem_table(size_t count, size_t size);
void mem_free(void *memory);                 /* NULL is allowed */

/* Makes the n-th allocation from now fail (1: the next), and with `all` every later one too; 0 switches it off. */
void mem_fail_at(uint64_t n, int all);
/* Whether mem_fail_at has made one fail since it was set. */
int mem_failed(void);

#endif
