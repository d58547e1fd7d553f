/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the three files behind descriptions share: space_check.c (is it allowed?), space.c (its canonical form) and
 * space_text.c (text and differences). Nobody else includes this.
 * Threads: any. Memory: nothing is allocated here. Invariant: SPACE_SCALARS is in the order of the tags, without a gap.
 */
#ifndef CAIRN_FMT_SPACE_H
#define CAIRN_FMT_SPACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "cairn/cairn.h"
#include "fmt/key.h"

#define SPACE_TENANT "default"
#define SPACE_SCHEME "tokens/1"
#define SPACE_GROUP "kv"
#define SPACE_PART "all"
#define SPACE_TAG_PREFIX "tag:"
#define SPACE_TAG_TEXT 10u /* bytes of "tag:65535" with its 0 */
#define SPACE_SCALE_TEXT (KEY_SCALE_MAX + 2u)

enum space_tag {
	TAG_TENANT = 1,
	TAG_SCHEME = 2,
	TAG_MODEL = 3,
	TAG_WEIGHTS = 4,
	TAG_ADAPTER = 5,
	TAG_ADAPTER_SCALE = 6,
	TAG_KV_DTYPE = 7,
	TAG_QUANT = 8,
	TAG_LAYERS = 9,
	TAG_KV_HEADS = 10,
	TAG_HEAD_SIZE = 11,
	TAG_LAYOUT = 12,
	TAG_ROPE = 13,
	TAG_ISA = 14,
	TAG_GENERATION = 15,
	TAG_GROUPS = 16,
	TAG_PARTS = 17,
	TAG_FIELDS = 18,
	TAG_FIRST_UNKNOWN = 19,
};

enum space_type { TYPE_STRING, TYPE_SCALE, TYPE_RAW, TYPE_NUMBER };

/* A field that is one value. */
struct space_scalar {
	uint16_t tag;
	uint16_t max; /* bytes of a string, exact bytes of raw */
	enum space_type type;
	size_t offset; /* in struct cairn_space_desc */
	const char *name;
	const char *standard; /* the string that is meant by NULL, and never written */
};
#define SPACE_SCALARS 15u /* tag N is space_scalars[N - 1] */
extern const struct space_scalar space_scalars[SPACE_SCALARS];

/* What is behind a member that is a pointer, of whatever type, or its standard; NULL: the field is absent. */
const void *space_pointer(const struct cairn_space_desc *desc, const struct space_scalar *scalar);
uint32_t space_number(const struct cairn_space_desc *desc, const struct space_scalar *scalar);

/* The groups and parts in force: those given, or the one that is meant by none, built in *one. */
const struct cairn_group *space_groups(const struct cairn_space_desc *desc, struct cairn_group *one, uint32_t *count);
const struct cairn_part *space_parts(const struct cairn_space_desc *desc, struct cairn_part *one, uint32_t *count);
static inline const char *space_group_name(const struct cairn_group *group)
{
	return group->name ? group->name : SPACE_GROUP;
}
static inline const char *space_part_name(const struct cairn_part *part)
{
	return part->name ? part->name : SPACE_PART;
}

/* Bytes of the UTF-8 sequence at `text`, `left` > 0, or 0: not UTF-8 (overlong, surrogate, above U+10FFFF). */
size_t space_utf8_step(const uint8_t *text, size_t left);
/* Writes the one spelling of a decimal number, at most SPACE_SCALE_TEXT bytes with a final 0. 0, or -1: not decimal, or
 * too long. */
int space_scale(const char *text, char *ret);
/* enum key_kind of a scheme, or 0: there is none of that name. */
uint32_t space_kind(const char *scheme);
/* The number in a field's name "tag:N"; 0: another name; -1: not how an unknown tag is spelled. */
long space_unknown_tag(const char *name);
/* The fields of a checked description: named ones by the bytes of their names, then unknown tags by number. */
void space_sort_fields(const struct cairn_space_desc *desc, const struct cairn_field *sorted[KEY_FIELDS_MAX]);
/* Writes one scalar of a checked description with its tag and length; nothing where it is absent or standard. */
void space_put_scalar(struct bytes_writer *writer, const struct cairn_space_desc *desc,
                      const struct space_scalar *scalar);

#endif
