/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptions of spaces for people: as text, and the fields in which two of them differ.
 * Threads: any; nothing is shared. Memory: none but the caller's buffer; past its end nothing is written, but counted.
 * Invariant: two descriptions differ here if and only if their canonical forms do. So fields are compared by the bytes
 * that space_put_scalar writes, and each value is shown so that a different one looks different.
 */
#include "fmt/space.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

#define TEXT_NONE "(none)"
#define TEXT_UNKNOWN "(unknown: everything misses)"

static const char *const text_rules[] = {"all", "trailing", "snapshot"};

struct text {
	char *at;
	size_t used, max;
};

static void text_add(struct text *text, const char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++, text->used++)
		if (text->used < text->max)
			text->at[text->used] = bytes[i];
}

/* Numbers, and names of ours: short. */
__attribute__((format(printf, 2, 3))) static void text_print(struct text *text, const char *format, ...)
{
	char piece[128];
	va_list arguments;

	va_start(arguments, format);
	int length = vsnprintf(piece, sizeof piece, format, arguments);
	va_end(arguments);
	check(length >= 0 && (size_t)length < sizeof piece);
	text_add(text, piece, (size_t)length);
}

static size_t text_end(struct text *text)
{
	if (text->max)
		text->at[text->used < text->max ? text->used : text->max - 1] = '\0';
	return text->used;
}

static void text_hex(struct text *text, const void *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		text_print(text, "%02x", ((const uint8_t *)bytes)[i]);
}

/* Bytes of the next character if it can be shown, 0 if it must be escaped: not UTF-8, or a control character. */
static size_t text_step(const uint8_t *bytes, size_t left)
{
	size_t step = space_utf8_step(bytes, left);
	int control = bytes[0] < ' ' || bytes[0] == 0x7f || (step == 2 && bytes[0] == 0xc2 && bytes[1] < 0xa0);

	return control ? 0 : step;
}

/* Whether it can stand there without quotes, and not be taken for something else. */
static int text_plain(const uint8_t *bytes, size_t length)
{
	if (!length || strchr("\"( ", bytes[0]) || bytes[length - 1] == ' ')
		return 0;
	for (size_t at = 0, step; at < length; at += step)
		if (bytes[at] == '|' || bytes[at] == ',' || !(step = text_step(bytes + at, length - at)))
			return 0;
	return 1;
}

static void text_quoted(struct text *text, const void *value, size_t length)
{
	const uint8_t *bytes = value;

	text_add(text, "\"", 1);
	for (size_t at = 0, step; at < length; at += step) {
		step = text_step(bytes + at, length - at);
		if (!step) {
			text_print(text, "\\x%02x", bytes[at]);
			step = 1;
			continue;
		}
		if (bytes[at] == '"' || bytes[at] == '\\')
			text_add(text, "\\", 1);
		text_add(text, (const char *)bytes + at, step);
	}
	text_add(text, "\"", 1);
}

static void text_string(struct text *text, const void *value, size_t length)
{
	if (text_plain(value, length))
		text_add(text, value, length);
	else
		text_quoted(text, value, length);
}

/* ---- values --------------------------------------------------------------------------------------------------- */

static int text_scalar_shown(const struct cairn_space_desc *desc, const struct space_scalar *scalar)
{
	if (scalar->type == TYPE_NUMBER)
		return space_number(desc, scalar) != 0;
	return scalar->tag == TAG_WEIGHTS || space_pointer(desc, scalar) != NULL;
}

static void text_scalar(struct text *text, const struct cairn_space_desc *desc, const struct space_scalar *scalar)
{
	char scale[SPACE_SCALE_TEXT];
	const void *value;

	if (scalar->type == TYPE_NUMBER) {
		text_print(text, "%" PRIu32, space_number(desc, scalar));
	} else if (!(value = space_pointer(desc, scalar))) {
		text_print(text, "%s", scalar->tag == TAG_WEIGHTS ? TEXT_UNKNOWN : TEXT_NONE);
	} else if (scalar->type == TYPE_RAW) {
		text_hex(text, value, scalar->max);
	} else {
		if (scalar->type == TYPE_SCALE) {
			check(space_scale(value, scale) == 0);
			value = scale;
		}
		text_string(text, value, strlen(value));
	}
}

enum { GROUP_TEXTS = 5, PART_TEXTS = 3 };
static const char *const text_group_fields[GROUP_TEXTS] = {"name", "block_tokens", "rule", "trailing_tokens",
                                                           "block_bytes"};
static const char *const text_part_fields[PART_TEXTS] = {"name", "replicated", "optional"};

static void text_group_field(struct text *text, const struct cairn_group *group, uint32_t field)
{
	switch (field) {
	case 0: text_string(text, space_group_name(group), strlen(space_group_name(group))); break;
	case 1: text_print(text, "%" PRIu32, group->block_tokens); break;
	case 2: text_print(text, "%s", text_rules[group->rule]); break;
	case 3: text_print(text, "%" PRIu32, group->trailing_tokens); break;
	default: text_print(text, "%" PRIu64, group->block_bytes);
	}
}

static int text_group_differs(const struct cairn_group *a, const struct cairn_group *b, uint32_t field)
{
	switch (field) {
	case 0: return strcmp(space_group_name(a), space_group_name(b)) != 0;
	case 1: return a->block_tokens != b->block_tokens;
	case 2: return a->rule != b->rule;
	case 3: return a->trailing_tokens != b->trailing_tokens;
	default: return a->block_bytes != b->block_bytes;
	}
}

static void text_group(struct text *text, const struct cairn_group *group)
{
	text_group_field(text, group, 0);
	for (uint32_t field = 1; field < GROUP_TEXTS; field++) {
		text_print(text, ", %s ", text_group_fields[field]);
		text_group_field(text, group, field);
	}
}

static void text_part_field(struct text *text, const struct cairn_part *part, uint32_t field)
{
	if (field == 0)
		text_string(text, space_part_name(part), strlen(space_part_name(part)));
	else
		text_print(text, "%" PRIu32, field == 1 ? part->replicated : part->optional);
}

static int text_part_differs(const struct cairn_part *a, const struct cairn_part *b, uint32_t field)
{
	switch (field) {
	case 0: return strcmp(space_part_name(a), space_part_name(b)) != 0;
	case 1: return a->replicated != b->replicated;
	default: return a->optional != b->optional;
	}
}

static void text_part(struct text *text, const struct cairn_part *part)
{
	text_part_field(text, part, 0);
	if (part->replicated)
		text_print(text, ", replicated");
	if (part->optional)
		text_print(text, ", optional");
}

static void text_field_name(struct text *text, const struct cairn_field *field)
{
	text_add(text, "field ", 6);
	if (strchr(field->name, '=')) /* where the value begins must stay clear */
		text_quoted(text, field->name, strlen(field->name));
	else
		text_string(text, field->name, strlen(field->name));
}

/* ---- text ----------------------------------------------------------------------------------------------------- */

size_t key_space_text(const struct cairn_space_desc *desc, char *buffer, size_t max)
{
	struct text text = {buffer, 0, max};
	const struct cairn_field *sorted[KEY_FIELDS_MAX];
	struct cairn_group one_group;
	struct cairn_part one_part;
	uint32_t ngroups, nparts;
	const struct cairn_group *groups = space_groups(desc, &one_group, &ngroups);
	const struct cairn_part *parts = space_parts(desc, &one_part, &nparts);

	for (uint32_t i = 0; i < SPACE_SCALARS; i++) {
		if (!text_scalar_shown(desc, &space_scalars[i]))
			continue;
		text_print(&text, "%s = ", space_scalars[i].name);
		text_scalar(&text, desc, &space_scalars[i]);
		text_add(&text, "\n", 1);
	}
	for (uint32_t i = 0; i < ngroups; i++) {
		text_print(&text, "groups[%" PRIu32 "] = ", i);
		text_group(&text, &groups[i]);
		text_add(&text, "\n", 1);
	}
	for (uint32_t i = 0; i < nparts; i++) {
		text_print(&text, "parts[%" PRIu32 "] = ", i);
		text_part(&text, &parts[i]);
		text_add(&text, "\n", 1);
	}
	space_sort_fields(desc, sorted);
	for (uint32_t i = 0; i < desc->nfields; i++) {
		text_field_name(&text, sorted[i]);
		text_add(&text, " = ", 3);
		text_string(&text, sorted[i]->value, sorted[i]->length);
		text_add(&text, "\n", 1);
	}
	return text_end(&text);
}

/* ---- differences ---------------------------------------------------------------------------------------------- */

static void diff_scalars(struct text *text, const struct cairn_space_desc *a, const struct cairn_space_desc *b)
{
	uint8_t bytes_a[KEY_STRING_MAX + 16], bytes_b[KEY_STRING_MAX + 16];

	for (uint32_t i = 0; i < SPACE_SCALARS; i++) {
		struct bytes_writer writer_a = bytes_writer_of(bytes_a, sizeof bytes_a);
		struct bytes_writer writer_b = bytes_writer_of(bytes_b, sizeof bytes_b);

		space_put_scalar(&writer_a, a, &space_scalars[i]);
		space_put_scalar(&writer_b, b, &space_scalars[i]);
		check(!writer_a.failed && !writer_b.failed);
		if (writer_a.used == writer_b.used && !memcmp(bytes_a, bytes_b, writer_a.used))
			continue;
		text_print(text, "%s: ", space_scalars[i].name);
		text_scalar(text, a, &space_scalars[i]);
		text_add(text, " | ", 3);
		text_scalar(text, b, &space_scalars[i]);
		text_add(text, "\n", 1);
	}
}

static void diff_groups(struct text *text, const struct cairn_space_desc *a, const struct cairn_space_desc *b)
{
	struct cairn_group one_a, one_b;
	uint32_t count_a, count_b;
	const struct cairn_group *groups_a = space_groups(a, &one_a, &count_a);
	const struct cairn_group *groups_b = space_groups(b, &one_b, &count_b);

	for (uint32_t i = 0; i < count_a || i < count_b; i++) {
		if (i >= count_a || i >= count_b) {
			text_print(text, "groups[%" PRIu32 "]: %s", i, i >= count_a ? TEXT_NONE " | " : "");
			text_group(text, i >= count_a ? &groups_b[i] : &groups_a[i]);
			text_print(text, "%s\n", i >= count_a ? "" : " | " TEXT_NONE);
			continue;
		}
		for (uint32_t field = 0; field < GROUP_TEXTS; field++) {
			if (!text_group_differs(&groups_a[i], &groups_b[i], field))
				continue;
			text_print(text, "groups[%" PRIu32 "].%s: ", i, text_group_fields[field]);
			text_group_field(text, &groups_a[i], field);
			text_add(text, " | ", 3);
			text_group_field(text, &groups_b[i], field);
			text_add(text, "\n", 1);
		}
	}
}

static void diff_parts(struct text *text, const struct cairn_space_desc *a, const struct cairn_space_desc *b)
{
	struct cairn_part one_a, one_b;
	uint32_t count_a, count_b;
	const struct cairn_part *parts_a = space_parts(a, &one_a, &count_a);
	const struct cairn_part *parts_b = space_parts(b, &one_b, &count_b);

	for (uint32_t i = 0; i < count_a || i < count_b; i++) {
		if (i >= count_a || i >= count_b) {
			text_print(text, "parts[%" PRIu32 "]: %s", i, i >= count_a ? TEXT_NONE " | " : "");
			text_part(text, i >= count_a ? &parts_b[i] : &parts_a[i]);
			text_print(text, "%s\n", i >= count_a ? "" : " | " TEXT_NONE);
			continue;
		}
		for (uint32_t field = 0; field < PART_TEXTS; field++) {
			if (!text_part_differs(&parts_a[i], &parts_b[i], field))
				continue;
			text_print(text, "parts[%" PRIu32 "].%s: ", i, text_part_fields[field]);
			text_part_field(text, &parts_a[i], field);
			text_add(text, " | ", 3);
			text_part_field(text, &parts_b[i], field);
			text_add(text, "\n", 1);
		}
	}
}

static const struct cairn_field *diff_find(const struct cairn_space_desc *desc, const char *name)
{
	for (uint32_t i = 0; i < desc->nfields; i++)
		if (!strcmp(desc->fields[i].name, name))
			return &desc->fields[i];
	return NULL;
}

static void diff_field(struct text *text, const struct cairn_field *a, const struct cairn_field *b)
{
	if (a && b && a->length == b->length && (!a->length || !memcmp(a->value, b->value, a->length)))
		return;
	text_field_name(text, a ? a : b);
	text_add(text, ": ", 2);
	if (a)
		text_string(text, a->value, a->length);
	text_print(text, "%s | %s", a ? "" : TEXT_NONE, b ? "" : TEXT_NONE);
	if (b)
		text_string(text, b->value, b->length);
	text_add(text, "\n", 1);
}

size_t key_space_diff(const struct cairn_space_desc *a, const struct cairn_space_desc *b, char *buffer, size_t max)
{
	struct text text = {buffer, 0, max};
	const struct cairn_field *sorted[KEY_FIELDS_MAX];

	diff_scalars(&text, a, b);
	diff_groups(&text, a, b);
	diff_parts(&text, a, b);
	space_sort_fields(a, sorted);
	for (uint32_t i = 0; i < a->nfields; i++)
		diff_field(&text, sorted[i], diff_find(b, sorted[i]->name));
	space_sort_fields(b, sorted);
	for (uint32_t i = 0; i < b->nfields; i++)
		if (!diff_find(a, sorted[i]->name))
			diff_field(&text, NULL, sorted[i]);
	return text_end(&text);
}
