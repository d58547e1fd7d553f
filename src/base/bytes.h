/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian loads and stores at any alignment, and a bounded reader and writer for the formats. */
#ifndef CAIRN_BASE_BYTES_H
#define CAIRN_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t bytes_get16(const void *p) { uint16_t v; memcpy(&v, p, 2); return v; }
static inline uint32_t bytes_get32(const void *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static inline uint64_t bytes_get64(const void *p) { uint64_t v; memcpy(&v, p, 8); return v; }
static inline void bytes_set16(void *p, uint16_t v) { memcpy(p, &v, 2); }
static inline void bytes_set32(void *p, uint32_t v) { memcpy(p, &v, 4); }
static inline void bytes_set64(void *p, uint64_t v) { memcpy(p, &v, 8); }
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "cairn's formats are little endian; a big-endian port swaps here"
#endif

#define BYTES_ROUND_UP(value, unit) (((value) + (unit) - 1) / (unit) * (unit))

/* Reads foreign bytes: past the end it yields zeros and stays failed. */
struct bytes_reader {
	const uint8_t *at, *end;
	int failed;
};
static inline struct bytes_reader bytes_reader_of(const void *bytes, size_t length)
{
	struct bytes_reader reader = {(const uint8_t *)bytes, (const uint8_t *)bytes + length, 0};
	return reader;
}
/* A pointer to the next `length` bytes, or NULL: there are not as many. */
static inline const void *bytes_take(struct bytes_reader *reader, size_t length)
{
	if (reader->failed || (size_t)(reader->end - reader->at) < length) {
		reader->failed = 1;
		return NULL;
	}
	const void *taken = reader->at;
	reader->at += length;
	return taken;
}
static inline uint8_t bytes_take8(struct bytes_reader *reader)
{
	const uint8_t *taken = bytes_take(reader, 1);
	return taken ? *taken : 0;
}
static inline uint16_t bytes_take16(struct bytes_reader *reader)
{
	const void *taken = bytes_take(reader, 2);
	return taken ? bytes_get16(taken) : 0;
}
static inline uint32_t bytes_take32(struct bytes_reader *reader)
{
	const void *taken = bytes_take(reader, 4);
	return taken ? bytes_get32(taken) : 0;
}
static inline uint64_t bytes_take64(struct bytes_reader *reader)
{
	const void *taken = bytes_take(reader, 8);
	return taken ? bytes_get64(taken) : 0;
}

/* Writes within a bound: past the end it writes nothing, goes on counting, and stays failed. */
struct bytes_writer {
	uint8_t *start;
	size_t used, max;
	int failed;
};
static inline struct bytes_writer bytes_writer_of(void *bytes, size_t max)
{
	struct bytes_writer writer = {(uint8_t *)bytes, 0, max, 0};
	return writer;
}
static inline void bytes_add(struct bytes_writer *writer, const void *bytes, size_t length)
{
	if (writer->failed || writer->max - writer->used < length)
		writer->failed = 1;
	else if (length)
		memcpy(writer->start + writer->used, bytes, length);
	writer->used += length;
}
static inline void bytes_add8(struct bytes_writer *w, uint8_t v) { bytes_add(w, &v, 1); }
static inline void bytes_add16(struct bytes_writer *w, uint16_t v) { bytes_add(w, &v, 2); }
static inline void bytes_add32(struct bytes_writer *w, uint32_t v) { bytes_add(w, &v, 4); }
static inline void bytes_add64(struct bytes_writer *w, uint64_t v) { bytes_add(w, &v, 8); }

#endif
