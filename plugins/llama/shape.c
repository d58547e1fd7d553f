/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shape of a sequence's state, as llama_state_seq_get_data writes it for one plain KV cache. llama.cpp promises no
 * format, so this reads version 3 only, and anything else is refused. Numbers are in the machine's byte order.
 *
 *     0   u32  magic               4   i32  sequence id
 *     8   u32  n_stream = 1       12   u32  n, the cells; nothing follows where it is 0
 *    16   n times: i32 position, u32 1, i32 sequence id
 *         u32  v_trans, u32 layers
 *         for K of each layer: i32 type, u64 bytes of a row, n rows
 *         for V of each layer: the same; transposed: i32 type, u32 bytes of an element, u32 elements, and for each
 *         element a strip of n
 *
 * A layer without V (latent attention) is left out, so the layers with V are those that are there until the end.
 * The one invariant: a state that passes cllama_shape_check meets no assertion of llama.cpp.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama_in.h"

enum {
	HEAD_BYTES = 16,
	CELL_BYTES = 12,
	MIDDLE_BYTES = 8,
	TENSOR_BYTES = 12,
	ROW_MAX_BYTES = 16 << 20,
};
#define STATE_MAGIC 0xaf143cd8u

static uint32_t get_u32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof value);
	return value;
}

static uint64_t get_u64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof value);
	return value;
}

/* What comes before the tensors. NULL, or what is wrong. */
static const char *check_head(const uint8_t *state, size_t length, uint32_t first, uint32_t ntokens)
{
	const uint8_t *cell = state + HEAD_BYTES;

	if (length < HEAD_BYTES + (size_t)ntokens * CELL_BYTES + MIDDLE_BYTES)
		return "it is too short";
	if (get_u32(state) != STATE_MAGIC)
		return "its magic is another";
	if (get_u32(state + 8) != 1)
		return "it has more than one stream";
	if (get_u32(state + 12) != ntokens)
		return "its number of tokens is another";
	for (uint32_t i = 0; i < ntokens; i++, cell += CELL_BYTES) {
		if (get_u32(cell) != first + i)
			return "its positions are others";
		if (get_u32(cell + 4) != 1)
			return "a cell of it belongs to several sequences";
	}
	return NULL;
}

static void tensor_read(const uint8_t *at, int transposed, struct shape_tensor *ret)
{
	memset(ret, 0, sizeof *ret);
	ret->type = (int32_t)get_u32(at);
	if (transposed) {
		ret->element_bytes = get_u32(at + 4);
		ret->elements = get_u32(at + 8);
		ret->row_bytes = (uint64_t)ret->element_bytes * ret->elements;
	} else {
		ret->row_bytes = get_u64(at + 4);
	}
}

static int tensor_odd(const struct shape_tensor *tensor)
{
	return tensor->row_bytes == 0 || tensor->row_bytes > ROW_MAX_BYTES || tensor->type < 0 ||
	       tensor->type >= GGML_TYPE_COUNT;
}

int cllama_shape_learn(const uint8_t *state, size_t length, uint32_t ntokens, struct shape *ret_shape,
                       const char **ret_why)
{
	struct shape shape = {0};
	size_t at;
	uint32_t n = 0;

	*ret_why = check_head(state, length, 0, ntokens);
	if (*ret_why)
		return CAIRN_E_VERSION;
	at = HEAD_BYTES + (size_t)ntokens * CELL_BYTES;
	shape.v_trans = get_u32(state + at);
	shape.nk = get_u32(state + at + 4);
	at += MIDDLE_BYTES;
	if (shape.v_trans > 1 || shape.nk == 0 || shape.nk > LLAMA_LAYERS_MAX) {
		*ret_why = "its number of layers, or what says how V lies, is odd";
		return CAIRN_E_VERSION;
	}
	shape.tensors = calloc((size_t)shape.nk * 2, sizeof *shape.tensors);
	if (!shape.tensors)
		return CAIRN_E_NOMEM;
	while (at < length) {
		struct shape_tensor *tensor = &shape.tensors[n];

		if (n == shape.nk * 2 || length - at < TENSOR_BYTES)
			break;
		tensor_read(state + at, n >= shape.nk && shape.v_trans, tensor);
		if (tensor_odd(tensor) || length - at - TENSOR_BYTES < tensor->row_bytes * ntokens)
			break;
		at += TENSOR_BYTES + (size_t)tensor->row_bytes * ntokens;
		n++;
		shape.token_bytes += tensor->row_bytes;
	}
	/* Bytes left over: a cell has an extension (M-RoPE), or the model keeps more than one cache. */
	if (at != length || n < shape.nk) {
		*ret_why = "it is not that of one plain KV cache";
		free(shape.tensors);
		return CAIRN_E_VERSION;
	}
	shape.nv = n - shape.nk;
	shape.token_bytes += CELL_BYTES;
	shape.fixed_bytes = HEAD_BYTES + MIDDLE_BYTES + (uint64_t)n * TENSOR_BYTES;
	*ret_shape = shape;
	return 0;
}

void cllama_shape_done(struct shape *shape)
{
	free(shape->tensors);
	memset(shape, 0, sizeof *shape);
}

uint64_t cllama_shape_bytes(const struct shape *shape, uint32_t ntokens)
{
	return shape->fixed_bytes + ntokens * shape->token_bytes;
}

const char *cllama_shape_check(const struct shape *shape, const uint8_t *state, size_t length, uint32_t first,
                               uint32_t ntokens)
{
	const char *why;
	size_t at = HEAD_BYTES + (size_t)ntokens * CELL_BYTES;

	if (length != cllama_shape_bytes(shape, ntokens))
		return "its length is another";
	why = check_head(state, length, first, ntokens);
	if (why)
		return why;
	if (get_u32(state + at) != shape->v_trans || get_u32(state + at + 4) != shape->nk)
		return "its number of layers, or how V lies, is another";
	at += MIDDLE_BYTES;
	for (uint32_t i = 0; i < shape->nk + shape->nv; i++) {
		const struct shape_tensor *want = &shape->tensors[i];
		struct shape_tensor have;

		tensor_read(state + at, i >= shape->nk && shape->v_trans, &have);
		if (have.type != want->type || have.row_bytes != want->row_bytes ||
		    have.element_bytes != want->element_bytes)
			return "the type or size of a layer is another";
		at += TENSOR_BYTES + (size_t)have.row_bytes * ntokens;
	}
	return NULL;
}

void cllama_shape_forget_sequence(uint8_t *state, uint32_t ntokens)
{
	memset(state + 4, 0, 4);
	for (uint32_t i = 0; i < ntokens; i++)
		memset(state + HEAD_BYTES + (size_t)i * CELL_BYTES + 8, 0, 4);
}

/* Row i of `from` becomes row order[i] of `to`; a transposed tensor has a strip of elements instead of rows. */
static void tensor_sort(const struct shape_tensor *tensor, const uint32_t *order, uint32_t n, const uint8_t *from,
                        uint8_t *to)
{
	size_t bytes = tensor->elements ? tensor->element_bytes : (size_t)tensor->row_bytes;
	uint32_t strips = tensor->elements ? tensor->elements : 1;

	for (uint32_t strip = 0; strip < strips; strip++) {
		for (uint32_t i = 0; i < n; i++)
			memcpy(to + order[i] * bytes, from + i * bytes, bytes);
		from += n * bytes;
		to += n * bytes;
	}
}

const char *cllama_shape_sort(const struct shape *shape, const uint8_t *from, size_t length, uint32_t first,
                              uint32_t ntokens, uint32_t *order, uint8_t *to)
{
	const uint8_t *cell = from + HEAD_BYTES;
	size_t at = HEAD_BYTES + (size_t)ntokens * CELL_BYTES;

	if (length != cllama_shape_bytes(shape, ntokens) || get_u32(from + 12) != ntokens)
		return "its length or number of tokens is another";
	memcpy(to, from, HEAD_BYTES);
	memset(to + HEAD_BYTES, 0, (size_t)ntokens * CELL_BYTES);
	for (uint32_t i = 0; i < ntokens; i++, cell += CELL_BYTES) {
		uint32_t place = get_u32(cell) - first;

		/* Each position once: a cell that was written has a 1 behind its position. */
		if (place >= ntokens || get_u32(to + HEAD_BYTES + (size_t)place * CELL_BYTES + 4) != 0)
			return "its positions are others";
		memcpy(to + HEAD_BYTES + (size_t)place * CELL_BYTES, cell, CELL_BYTES);
		order[i] = place;
	}
	memcpy(to + at, from + at, MIDDLE_BYTES);
	at += MIDDLE_BYTES;
	for (uint32_t i = 0; i < shape->nk + shape->nv; i++) {
		memcpy(to + at, from + at, TENSOR_BYTES);
		at += TENSOR_BYTES;
		tensor_sort(&shape->tensors[i], order, ntokens, from + at, to + at);
		at += (size_t)shape->tensors[i].row_bytes * ntokens;
	}
	return NULL;
}

size_t cllama_shape_text(const struct shape *shape, char *text, size_t max)
{
	size_t length = 0;
	uint32_t n = shape->nk + shape->nv, next;

	for (uint32_t i = 0; i < n; i = next) {
		const struct shape_tensor *tensor = &shape->tensors[i];
		int v = i >= shape->nk;
		const char *lead = i == 0 ? "k=" : i == shape->nk ? " v=" : ",";

		for (next = i + 1; next < n && (next >= shape->nk) == v; next++) {
			if (memcmp(&shape->tensors[next], tensor, sizeof *tensor) != 0)
				break;
		}
		length += (size_t)snprintf(length < max ? text + length : NULL, length < max ? max - length : 0,
		                           "%s%s:%" PRIu64 "x%u", lead, ggml_type_name((enum ggml_type)tensor->type),
		                           tensor->row_bytes, next - i);
	}
	return length;
}
