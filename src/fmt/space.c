/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical form of a space: writes it from a description and reads it back (docs/KEY.md, part 3).
 * Threads: any; nothing is shared. Memory: a struct key_space owns its copy of the canonical form and its strings.
 * Invariant: a description has one canonical form and key_space_decode accepts nothing else. One place keeps it: after
 * decoding, space_verify writes the form again and compares.
 */
#include "fmt/space.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"

static const uint8_t space_magic[8] = "cairnSP"; /* and a 0 */
#define SPACE_VERSION 1u

/* Tags inside the elements of lists. These sets are closed: what a later version adds gets a tag of its own outside. */
enum { GROUP_NAME = 1, GROUP_TOKENS = 2, GROUP_RULE = 3, GROUP_TRAILING = 4, GROUP_BYTES = 5 };
enum { PART_NAME = 1, PART_REPLICATED = 2, PART_OPTIONAL = 3 };
enum { FIELD_NAME = 1, FIELD_VALUE = 2 };

/* ---- write -------------------------------------------------------------------------------------------------- */

/* Begins a length-prefixed run of bytes; space_end fills in how long it became. */
static size_t space_begin(struct bytes_writer *writer)
{
	bytes_add32(writer, 0);
	return writer->used;
}

static size_t space_begin_tag(struct bytes_writer *writer, uint16_t tag)
{
	bytes_add16(writer, tag);
	return space_begin(writer);
}

static void space_end(struct bytes_writer *writer, size_t start)
{
	if (!writer->failed)
		bytes_set32(writer->start + start - 4, (uint32_t)(writer->used - start));
}

static void space_put(struct bytes_writer *writer, uint16_t tag, const void *bytes, size_t length)
{
	size_t start = space_begin_tag(writer, tag);

	bytes_add(writer, bytes, length);
	space_end(writer, start);
}

/* 0 is the default of every number, and so never written. */
static void space_put_number(struct bytes_writer *writer, uint16_t tag, uint64_t number)
{
	if (number)
		space_put(writer, tag, &number, sizeof number);
}

static void space_put_string(struct bytes_writer *writer, uint16_t tag, const char *text, const char *standard)
{
	if (text && !(standard && !strcmp(text, standard)))
		space_put(writer, tag, text, strlen(text));
}

void space_put_scalar(struct bytes_writer *writer, const struct cairn_space_desc *desc,
                             const struct space_scalar *scalar)
{
	char scale[SPACE_SCALE_TEXT];
	const void *value;

	if (scalar->type == TYPE_NUMBER) {
		space_put_number(writer, scalar->tag, space_number(desc, scalar));
		return;
	}
	if (!(value = space_pointer(desc, scalar)))
		return;
	if (scalar->type == TYPE_SCALE) {
		check(space_scale(value, scale) == 0);
		value = scale;
	}
	if (scalar->type == TYPE_RAW)
		space_put(writer, scalar->tag, value, scalar->max);
	else
		space_put_string(writer, scalar->tag, value, scalar->standard);
}

/* Whether it is what file/1 means by no groups at all; in other schemes none can look like it. */
static int space_group_standard(const struct cairn_group *group)
{
	return !group->block_tokens && !group->block_bytes && !group->rule && !strcmp(space_group_name(group), SPACE_GROUP);
}

static int space_part_standard(const struct cairn_part *part)
{
	return !part->replicated && !part->optional && !strcmp(space_part_name(part), SPACE_PART);
}

static void space_put_groups(struct bytes_writer *writer, const struct cairn_space_desc *desc)
{
	struct cairn_group one;
	uint32_t count;
	const struct cairn_group *groups = space_groups(desc, &one, &count);

	if (count == 1 && space_group_standard(groups))
		return;
	size_t list = space_begin_tag(writer, TAG_GROUPS);
	for (uint32_t i = 0; i < count; i++) {
		size_t start = space_begin(writer);

		space_put_string(writer, GROUP_NAME, groups[i].name, SPACE_GROUP);
		space_put_number(writer, GROUP_TOKENS, groups[i].block_tokens);
		space_put_number(writer, GROUP_RULE, groups[i].rule);
		space_put_number(writer, GROUP_TRAILING, groups[i].trailing_tokens);
		space_put_number(writer, GROUP_BYTES, groups[i].block_bytes);
		space_end(writer, start);
	}
	space_end(writer, list);
}

static void space_put_parts(struct bytes_writer *writer, const struct cairn_space_desc *desc)
{
	struct cairn_part one;
	uint32_t count;
	const struct cairn_part *parts = space_parts(desc, &one, &count);

	if (count == 1 && space_part_standard(parts))
		return;
	size_t list = space_begin_tag(writer, TAG_PARTS);
	for (uint32_t i = 0; i < count; i++) {
		size_t start = space_begin(writer);

		space_put_string(writer, PART_NAME, parts[i].name, SPACE_PART);
		space_put_number(writer, PART_REPLICATED, parts[i].replicated);
		space_put_number(writer, PART_OPTIONAL, parts[i].optional);
		space_end(writer, start);
	}
	space_end(writer, list);
}

static void space_put_fields(struct bytes_writer *writer, const struct cairn_space_desc *desc)
{
	const struct cairn_field *sorted[KEY_FIELDS_MAX];
	uint32_t i = 0;

	space_sort_fields(desc, sorted);
	if (desc->nfields && !space_unknown_tag(sorted[0]->name)) {
		size_t list = space_begin_tag(writer, TAG_FIELDS);

		for (; i < desc->nfields && !space_unknown_tag(sorted[i]->name); i++) {
			size_t start = space_begin(writer);

			space_put(writer, FIELD_NAME, sorted[i]->name, strlen(sorted[i]->name));
			space_put(writer, FIELD_VALUE, sorted[i]->value, sorted[i]->length);
			space_end(writer, start);
		}
		space_end(writer, list);
	}
	for (; i < desc->nfields; i++)
		space_put(writer, (uint16_t)space_unknown_tag(sorted[i]->name), sorted[i]->value, sorted[i]->length);
}

/* Of a checked description. */
static void space_write(struct bytes_writer *writer, const struct cairn_space_desc *desc)
{
	bytes_add(writer, space_magic, sizeof space_magic);
	bytes_add32(writer, SPACE_VERSION);
	for (size_t i = 0; i < SPACE_SCALARS; i++)
		space_put_scalar(writer, desc, &space_scalars[i]);
	space_put_groups(writer, desc);
	space_put_parts(writer, desc);
	space_put_fields(writer, desc);
}

long key_space_encode(const struct cairn_space_desc *desc, uint8_t *bytes, size_t max)
{
	if (key_desc_check(desc))
		return CAIRN_E_INVAL;
	struct bytes_writer writer = bytes_writer_of(bytes, max < KEY_CANON_MAX ? max : KEY_CANON_MAX);
	space_write(&writer, desc);
	if (writer.failed)
		return err_set(CAIRN_E_INVAL, "space: the canonical form takes %zu bytes, and %zu is the limit; shorten fields"
		               " or names", writer.used, writer.max);
	return (long)writer.used;
}

/* ---- read --------------------------------------------------------------------------------------------------- */

static void space_put_pointer(struct cairn_space_desc *desc, const struct space_scalar *scalar, const void *pointer)
{
	memcpy((uint8_t *)desc + scalar->offset, &pointer, sizeof pointer);
}

static int space_bad(const char *what, size_t at)
{
	return err_set(CAIRN_E_INVAL, "space: not a canonical form: %s, near byte %zu; it is damaged or of a newer cairn",
	               what, at);
}

/* One tagged run of bytes. Returns 1; 0: the end; or INVAL. Tags ascend strictly. */
static int space_next(struct bytes_reader *reader, uint16_t *tag, const uint8_t **value, uint32_t *length)
{
	if (reader->at == reader->end)
		return 0;
	uint16_t next = bytes_take16(reader);
	*length = bytes_take32(reader);
	*value = bytes_take(reader, *length);
	if (reader->failed || next <= *tag)
		return CAIRN_E_INVAL;
	*tag = next;
	return 1;
}

/* Copies a string to the end of `strings` with a 0; NULL: a 0 inside. */
static const char *space_take_string(char **strings, const uint8_t *value, uint32_t length)
{
	char *text = *strings;

	if (memchr(value, 0, length))
		return NULL;
	memcpy(text, value, length);
	text[length] = '\0';
	*strings += length + 1;
	return text;
}

/* Numbers are 8 bytes; here those that fit 32 bits. */
static int space_take_number(uint32_t *ret, const uint8_t *value, uint32_t length)
{
	if (length != 8 || bytes_get64(value) > UINT32_MAX)
		return CAIRN_E_INVAL;
	*ret = (uint32_t)bytes_get64(value);
	return 0;
}

static int space_read_scalar(struct key_space *space, char **strings, const struct space_scalar *scalar,
                             const uint8_t *value, uint32_t length)
{
	const void *pointer;
	uint32_t number;

	switch (scalar->type) {
	case TYPE_NUMBER:
		if (space_take_number(&number, value, length))
			return CAIRN_E_INVAL;
		bytes_set32((uint8_t *)&space->desc + scalar->offset, number);
		return 0;
	case TYPE_RAW: {
		void *to = scalar->tag == TAG_WEIGHTS ? (void *)&space->weights
		         : scalar->tag == TAG_ADAPTER ? (void *)&space->adapter : (void *)space->generation;
		if (length != scalar->max)
			return CAIRN_E_INVAL;
		pointer = memcpy(to, value, length);
		break;
	}
	default:
		if (!(pointer = space_take_string(strings, value, length)))
			return CAIRN_E_INVAL;
	}
	space_put_pointer(&space->desc, scalar, pointer);
	return 0;
}

static int space_read_group(struct cairn_group *group, char **strings, struct bytes_reader reader)
{
	const uint8_t *value;
	uint32_t length;
	uint16_t tag = 0;
	int more, bad = 0;

	group->name = SPACE_GROUP;
	while ((more = space_next(&reader, &tag, &value, &length)) > 0 && !bad) {
		switch (tag) {
		case GROUP_NAME: bad = !(group->name = space_take_string(strings, value, length)); break;
		case GROUP_TOKENS: bad = space_take_number(&group->block_tokens, value, length); break;
		case GROUP_RULE: bad = space_take_number(&group->rule, value, length); break;
		case GROUP_TRAILING: bad = space_take_number(&group->trailing_tokens, value, length); break;
		case GROUP_BYTES:
			if (!(bad = length != 8))
				group->block_bytes = bytes_get64(value);
			break;
		default: bad = 1;
		}
	}
	return bad || more < 0 ? CAIRN_E_INVAL : 0;
}

static int space_read_part(struct cairn_part *part, char **strings, struct bytes_reader reader)
{
	const uint8_t *value;
	uint32_t length;
	uint16_t tag = 0;
	int more, bad = 0;

	part->name = SPACE_PART;
	while ((more = space_next(&reader, &tag, &value, &length)) > 0 && !bad) {
		switch (tag) {
		case PART_NAME: bad = !(part->name = space_take_string(strings, value, length)); break;
		case PART_REPLICATED: bad = space_take_number(&part->replicated, value, length); break;
		case PART_OPTIONAL: bad = space_take_number(&part->optional, value, length); break;
		default: bad = 1;
		}
	}
	return bad || more < 0 ? CAIRN_E_INVAL : 0;
}

static int space_read_field(struct cairn_field *field, char **strings, struct bytes_reader reader)
{
	const uint8_t *value;
	uint32_t length;
	uint16_t tag = 0;
	int more, bad = 0;

	while ((more = space_next(&reader, &tag, &value, &length)) > 0 && !bad) {
		if (tag == FIELD_NAME) {
			bad = !(field->name = space_take_string(strings, value, length));
		} else if (tag == FIELD_VALUE) {
			field->value = value;
			field->length = length;
		} else {
			bad = 1;
		}
	}
	return bad || more < 0 || !field->name || !field->value ? CAIRN_E_INVAL : 0;
}

static int space_read_list(struct key_space *space, char **strings, uint16_t tag, const uint8_t *value, uint32_t length)
{
	struct bytes_reader list = bytes_reader_of(value, length);
	uint32_t max = tag == TAG_GROUPS ? KEY_GROUPS_MAX : tag == TAG_PARTS ? KEY_PARTS_MAX : KEY_FIELDS_MAX;
	uint32_t count = 0;
	int bad;

	for (; list.at != list.end; count++) {
		uint32_t bytes = bytes_take32(&list);
		const void *element = bytes_take(&list, bytes);

		if (!element || count == max)
			return CAIRN_E_INVAL;
		struct bytes_reader reader = bytes_reader_of(element, bytes);
		if (tag == TAG_GROUPS)
			bad = space_read_group(&space->groups[count], strings, reader);
		else if (tag == TAG_PARTS)
			bad = space_read_part(&space->parts[count], strings, reader);
		else
			bad = space_read_field(&space->fields[count], strings, reader);
		if (bad)
			return CAIRN_E_INVAL;
	}
	if (tag == TAG_GROUPS)
		space->desc.ngroups = count;
	else if (tag == TAG_PARTS)
		space->desc.nparts = count;
	else
		space->desc.nfields = count;
	return count ? 0 : CAIRN_E_INVAL;
}

static int space_read_unknown(struct key_space *space, char **strings, uint16_t tag, const uint8_t *value,
                              uint32_t length)
{
	if (space->desc.nfields == KEY_FIELDS_MAX)
		return CAIRN_E_INVAL;
	struct cairn_field *field = &space->fields[space->desc.nfields++];
	field->name = *strings;
	*strings += snprintf(*strings, SPACE_TAG_TEXT, SPACE_TAG_PREFIX "%u", tag) + 1;
	field->value = value;
	field->length = length;
	return 0;
}

/* All of space->canon into space->desc, its strings into space->strings. */
static int space_read(struct key_space *space)
{
	struct bytes_reader reader = bytes_reader_of(space->canon, space->canon_length);
	const uint8_t *magic = bytes_take(&reader, sizeof space_magic);
	char *strings = space->strings;
	const uint8_t *value;
	uint32_t length;
	uint16_t tag = 0;
	int more, bad = 0;

	if (!magic || memcmp(magic, space_magic, sizeof space_magic) != 0)
		return space_bad("wrong magic", 0);
	if (bytes_take32(&reader) != SPACE_VERSION)
		return space_bad("another version", sizeof space_magic);
	space->groups[0].name = SPACE_GROUP;
	space->parts[0].name = SPACE_PART;
	space->desc = (struct cairn_space_desc){.size = sizeof space->desc, .tenant = SPACE_TENANT, .scheme = SPACE_SCHEME,
		.groups = space->groups, .ngroups = 1, .parts = space->parts, .nparts = 1, .fields = space->fields};
	while ((more = space_next(&reader, &tag, &value, &length)) > 0) {
		if (tag <= SPACE_SCALARS)
			bad = space_read_scalar(space, &strings, &space_scalars[tag - 1], value, length);
		else if (tag < TAG_FIRST_UNKNOWN)
			bad = space_read_list(space, &strings, tag, value, length);
		else
			bad = space_read_unknown(space, &strings, tag, value, length);
		if (bad)
			break;
	}
	if (bad || more < 0)
		return space_bad("a field out of order, cut short or misshapen", (size_t)(reader.at - space->canon));
	return 0;
}

/* Whether the description, written again, is the form it came from. `scratch`: room for as many bytes. */
static int space_verify(const struct key_space *space, uint8_t *scratch)
{
	struct bytes_writer writer = bytes_writer_of(scratch, space->canon_length);

	if (key_desc_check(&space->desc))
		return CAIRN_E_INVAL;
	space_write(&writer, &space->desc);
	if (writer.failed || writer.used != space->canon_length || memcmp(scratch, space->canon, writer.used) != 0)
		return space_bad("not in its one spelling", space->canon_length);
	return 0;
}

/* Everything of a verified space that follows from its canonical form. */
static void space_finish(struct key_space *space)
{
	struct cairn_space_desc *desc = &space->desc;

	key_space_id(space->canon, space->canon_length, space->id);
	key_tenant_digest(desc->tenant, strlen(desc->tenant), space->tenant_digest);
	space->kind = space_kind(desc->scheme);
	space->ngroups = desc->ngroups;
	for (uint32_t i = 0; i < desc->nparts; i++)
		space->required_parts |= (uint64_t)!space->parts[i].optional << i;
	for (uint32_t i = 0; i < desc->ngroups; i++)
		key_root(space->id, i, space->roots[i]);
	if (!desc->nfields)
		desc->fields = NULL;
}

int key_space_decode(const uint8_t *canon, size_t length, struct key_space *ret_space)
{
	uint8_t *scratch = NULL;
	int rc = CAIRN_E_NOMEM;

	memset(ret_space, 0, sizeof *ret_space);
	if (length > KEY_CANON_MAX)
		return space_bad("too long", KEY_CANON_MAX);
	ret_space->canon_length = length;
	ret_space->canon = mem_copy(canon, length);
	/* A string's 0 fits where its length was; an unknown tag's name needs a little more. */
	ret_space->strings = mem_alloc(length + (size_t)KEY_FIELDS_MAX * SPACE_TAG_TEXT);
	scratch = mem_alloc(length);
	if (!ret_space->canon || !ret_space->strings || !scratch)
		err_set(rc, "space: out of memory for a description of %zu bytes", length);
	else if (!(rc = space_read(ret_space)) && !(rc = space_verify(ret_space, scratch)))
		space_finish(ret_space);
	mem_free(scratch);
	if (rc)
		key_space_done(ret_space);
	return rc;
}

int key_space_from_desc(const struct cairn_space_desc *desc, struct key_space *ret_space)
{
	uint8_t *canon = mem_alloc(KEY_CANON_MAX);
	int rc = CAIRN_E_NOMEM;

	memset(ret_space, 0, sizeof *ret_space);
	if (!canon)
		return err_set(rc, "space: out of memory for a description");
	long length = key_space_encode(desc, canon, KEY_CANON_MAX);
	rc = length < 0 ? (int)length : key_space_decode(canon, (size_t)length, ret_space);
	check(length < 0 || rc == 0 || rc == CAIRN_E_NOMEM);
	mem_free(canon);
	return rc;
}

void key_space_done(struct key_space *space)
{
	mem_free(space->canon);
	mem_free(space->strings);
	memset(space, 0, sizeof *space);
}
