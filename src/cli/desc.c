/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description files of spaces: "field = value" lines as cairn_space_text writes them, and comments that begin with #.
 * So what `cairn ls --spaces` shows can be given back. The fields are those of struct cairn_space_desc (docs/KEY.md).
 * Threads: any; nothing is shared. Memory: a struct desc owns a copy of the text, into which its strings lead: a value
 * is unescaped where it stands, which never makes it longer.
 * Invariant: whatever is not understood is an error with its line. A field that was skipped would be another space.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define DESC_MAX ((size_t)1 << 20) /* bytes of a file: the longest description with all of it escaped is shorter */

enum desc_type { DESC_STRING, DESC_DIGEST, DESC_GENERATION, DESC_U32, DESC_U64, DESC_SECONDS };

static const struct desc_field {
	const char *name;
	enum desc_type type;
	size_t offset; /* in struct cairn_space_desc */
} desc_fields[] = {
#define FIELD(name, type) {#name, type, offsetof(struct cairn_space_desc, name)}
	FIELD(tenant, DESC_STRING),        FIELD(scheme, DESC_STRING),  FIELD(model, DESC_STRING),
	FIELD(weights, DESC_DIGEST),       FIELD(adapter, DESC_DIGEST), FIELD(adapter_scale, DESC_STRING),
	FIELD(kv_dtype, DESC_STRING),      FIELD(quant, DESC_STRING),   FIELD(layers, DESC_U32),
	FIELD(kv_heads, DESC_U32),         FIELD(head_size, DESC_U32),  FIELD(layout, DESC_STRING),
	FIELD(rope, DESC_STRING),          FIELD(isa, DESC_STRING),     FIELD(generation, DESC_GENERATION),
	FIELD(block_tokens, DESC_U32),     FIELD(block_bytes, DESC_U64),
	FIELD(cost_a_s, DESC_SECONDS),     FIELD(cost_b_s, DESC_SECONDS),
#undef FIELD
};
enum { DESC_FIELDS = sizeof desc_fields / sizeof desc_fields[0] };

/* One line being read. */
struct desc_line {
	const char *file;
	unsigned number;
	char *at, *end; /* what is left of it; *end is 0 */
};

#define desc_error(line, format, ...) \
	say_error("%s:%u: " format, (line)->file, (line)->number, ##__VA_ARGS__)

/* ---- words and values -------------------------------------------------------------------------------------------- */

static void desc_blanks(struct desc_line *line)
{
	while (*line->at == ' ' || *line->at == '\t')
		line->at++;
}

static int desc_digit(char letter)
{
	const char *digits = "0123456789abcdef", *found = letter ? strchr(digits, letter) : NULL;

	return found ? (int)(found - digits) : -1;
}

/* Unescapes a quoted value where it stands: \" \\ \xNN. */
static int desc_quoted(struct desc_line *line, char **ret_value, size_t *ret_length)
{
	char *to = ++line->at;

	*ret_value = to;
	while (line->at < line->end && *line->at != '"') {
		if (*line->at != '\\') {
			*to++ = *line->at++;
			continue;
		}
		if (line->at[1] == '"' || line->at[1] == '\\') {
			*to++ = line->at[1];
			line->at += 2;
			continue;
		}
		int high = line->at[1] == 'x' ? desc_digit(line->at[2]) : -1, low = high < 0 ? -1 : desc_digit(line->at[3]);

		if (low < 0)
			return desc_error(line, "after a \\ stands \", \\ or xNN with two hexadecimal digits");
		*to++ = (char)(high << 4 | low);
		line->at += 4;
	}
	if (line->at >= line->end)
		return desc_error(line, "the closing \" is missing");
	line->at++;
	*ret_length = (size_t)(to - *ret_value);
	*to = '\0';
	desc_blanks(line);
	return 0;
}

/* Takes a value up to `stop` (0: the end of the line) or the quote's end, and goes behind `stop`. Ends it with a 0. */
static int desc_value(struct desc_line *line, char stop, char **ret_value, size_t *ret_length)
{
	desc_blanks(line);
	if (*line->at == '"') {
		if (desc_quoted(line, ret_value, ret_length))
			return CLI_ERROR;
		if (line->at < line->end && (!stop || *line->at != stop))
			return desc_error(line, "\"%s\" is left over behind the closing \"", say_name(line->at));
		line->at += line->at < line->end;
		return 0;
	}
	char *end = stop ? strchr(line->at, stop) : NULL;
	char *next = end ? end + 1 : line->end;

	if (!end)
		end = line->end;
	*ret_value = line->at;
	while (end > line->at && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	*ret_length = (size_t)(end - line->at);
	*end = '\0';
	line->at = next;
	return 0;
}

static int desc_string(struct desc_line *line, const char *what, char stop, const char **ret_text)
{
	char *value;
	size_t length;

	if (desc_value(line, stop, &value, &length))
		return CLI_ERROR;
	if (memchr(value, 0, length))
		return desc_error(line, "%s has a 0 byte; a string has none", what);
	*ret_text = value;
	return 0;
}

static int desc_number(struct desc_line *line, const char *what, const char *text, uint64_t most, uint64_t *ret)
{
	if (args_number(text, most, ret))
		return desc_error(line, "%s: \"%s\" is not a number from 0 to %" PRIu64 "%s", what, say_name(text), most,
		                  strchr(text, '#') ? "; comments stand on lines of their own" : "");
	return 0;
}

static int desc_bytes(struct desc_line *line, const char *what, const char *text, uint8_t *bytes, size_t length)
{
	if (args_hex(text, bytes, length) != (long)length)
		return desc_error(line, "%s: \"%s\" is not %zu hexadecimal digits", what, say_name(text), 2 * length);
	return 0;
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static int desc_set_digest(struct desc_line *line, const struct desc_field *field, const char *text, struct desc *desc)
{
	uint8_t *bytes = field->offset == offsetof(struct cairn_space_desc, weights) ? desc->weights.bytes
	                                                                              : desc->adapter.bytes;

	if (desc_bytes(line, field->name, text, bytes, 32))
		return CLI_ERROR;
	if (bytes == desc->weights.bytes)
		desc->desc.weights = &desc->weights;
	else
		desc->desc.adapter = &desc->adapter;
	return 0;
}

static int desc_set(struct desc_line *line, const struct desc_field *field, struct desc *desc)
{
	char *member = (char *)&desc->desc + field->offset, *end;
	const char *text;
	uint64_t number;
	int plain;

	desc_blanks(line);
	plain = *line->at != '"';
	if (desc_string(line, field->name, '\0', &text))
		return CLI_ERROR;
	/* How the text shows what is absent; as a value it would stand in quotes. */
	if (plain && (!strcmp(text, "(none)") || !strncmp(text, "(unknown", 8)))
		return 0;
	switch (field->type) {
	case DESC_STRING:
		memcpy(member, &text, sizeof text);
		return 0;
	case DESC_DIGEST:
		return desc_set_digest(line, field, text, desc);
	case DESC_GENERATION:
		desc->desc.generation = desc->generation;
		return desc_bytes(line, field->name, text, desc->generation, sizeof desc->generation);
	case DESC_U32:
		if (desc_number(line, field->name, text, UINT32_MAX, &number))
			return CLI_ERROR;
		memcpy(member, &(uint32_t){(uint32_t)number}, sizeof(uint32_t));
		return 0;
	case DESC_U64:
		if (desc_number(line, field->name, text, UINT64_MAX, &number))
			return CLI_ERROR;
		memcpy(member, &number, sizeof number);
		return 0;
	default:
		errno = 0;
		double seconds = strtod(text, &end);
		if (!*text || *end || errno || !(seconds >= 0 && seconds < 1e9))
			return desc_error(line, "%s: \"%s\" is not a number of seconds", field->name, say_name(text));
		memcpy(member, &seconds, sizeof seconds);
		return 0;
	}
}

static int desc_group_option(struct desc_line *line, char *option, struct cairn_group *group)
{
	static const char *const rules[] = {"all", "trailing", "snapshot"};
	char *value = strchr(option, ' ');
	uint64_t number;

	if (!value)
		return desc_error(line, "\"%s\" of a group has no value; as in: kv, block_tokens 16, rule all",
		                  say_name(option));
	*value++ = '\0';
	value += strspn(value, " ");
	if (!strcmp(option, "rule")) {
		for (uint32_t rule = 0; rule < 3; rule++)
			if (!strcmp(value, rules[rule])) {
				group->rule = rule;
				return 0;
			}
		return desc_error(line, "rule %s; known are all, trailing, snapshot", say_name(value));
	}
	if (desc_number(line, option, value, !strcmp(option, "block_bytes") ? UINT64_MAX : UINT32_MAX, &number))
		return CLI_ERROR;
	if (!strcmp(option, "block_tokens"))
		group->block_tokens = (uint32_t)number;
	else if (!strcmp(option, "trailing_tokens"))
		group->trailing_tokens = (uint32_t)number;
	else if (!strcmp(option, "block_bytes"))
		group->block_bytes = number;
	else
		return desc_error(line, "a group has no \"%s\"; known are block_tokens, rule, trailing_tokens, block_bytes",
		                  say_name(option));
	return 0;
}

static int desc_part_option(struct desc_line *line, const char *option, struct cairn_part *part)
{
	if (!strcmp(option, "replicated"))
		part->replicated = 1;
	else if (!strcmp(option, "optional"))
		part->optional = 1;
	else
		return desc_error(line, "a part has no \"%s\"; known are replicated, optional", say_name(option));
	return 0;
}

/* "groups[0] = NAME, option, option ..." and parts[0]: in order, so that a lost line is noticed. */
static int desc_element(struct desc_line *line, const char *index, int groups, struct desc *desc)
{
	uint32_t *count = groups ? &desc->desc.ngroups : &desc->desc.nparts;
	uint32_t most = groups ? sizeof desc->groups / sizeof desc->groups[0] : sizeof desc->parts / sizeof desc->parts[0];
	const char *what = groups ? "groups" : "parts", *name;
	char expected[16], *option;
	size_t length;

	snprintf(expected, sizeof expected, "%u]", (unsigned)*count);
	if (strcmp(index, expected) != 0)
		return desc_error(line, "%s[%s stands where %s[%s is expected; they stand in order", what, say_name(index),
		                  what, expected);
	if (*count == most)
		return desc_error(line, "more than %u %s", (unsigned)most, what);
	if (desc_string(line, what, ',', &name))
		return CLI_ERROR;
	if (groups)
		desc->groups[*count].name = name;
	else
		desc->parts[*count].name = name;
	while (line->at < line->end) {
		if (desc_value(line, ',', &option, &length))
			return CLI_ERROR;
		if (groups ? desc_group_option(line, option, &desc->groups[*count])
		           : desc_part_option(line, option, &desc->parts[*count]))
			return CLI_ERROR;
	}
	*count += 1;
	return 0;
}

/* "field NAME = VALUE": whatever bytes, for what this version does not know. */
static int desc_own_field(struct desc_line *line, const char *name, struct desc *desc)
{
	struct cairn_field *field = &desc->fields[desc->desc.nfields];
	char *value;

	if (desc->desc.nfields == sizeof desc->fields / sizeof desc->fields[0])
		return desc_error(line, "more than %u fields of your own", desc->desc.nfields);
	for (uint32_t i = 0; i < desc->desc.nfields; i++)
		if (!strcmp(desc->fields[i].name, name))
			return desc_error(line, "field %s is given twice", say_name(name));
	field->name = name;
	if (desc_value(line, '\0', &value, &field->length))
		return CLI_ERROR;
	field->value = value;
	desc->desc.nfields++;
	return 0;
}

static int desc_unknown(struct desc_line *line, const char *name)
{
	const char *names[DESC_FIELDS];

	for (size_t i = 0; i < DESC_FIELDS; i++)
		names[i] = desc_fields[i].name;
	const char *closest = args_closest(name, names, DESC_FIELDS);
	if (closest)
		return desc_error(line, "there is no field \"%s\"; did you mean \"%s\"?", say_name(name), closest);
	return desc_error(line, "there is no field \"%s\"; write \"field %s = VALUE\" if it is one of your own, and see"
	                  " docs/KEY.md", say_name(name), say_name(name));
}

/* The name before the " = ", which may be quoted behind the word "field". */
static int desc_name(struct desc_line *line, int *ret_own, char **ret_name)
{
	size_t length;

	*ret_own = !strncmp(line->at, "field ", 6);
	line->at += *ret_own ? 6 : 0;
	desc_blanks(line);
	if (*ret_own && *line->at == '"') {
		if (desc_quoted(line, ret_name, &length))
			return CLI_ERROR;
		if (memchr(*ret_name, 0, length))
			return desc_error(line, "the name of a field has a 0 byte");
		if (*line->at != '=')
			return desc_error(line, "\"=\" is missing behind the field's name");
		line->at++;
		return 0;
	}
	if (!strchr(line->at, '='))
		return desc_error(line, "\"=\" is missing; a line is \"field = value\", a comment begins with #");
	return desc_value(line, '=', ret_name, &length);
}

static int desc_take_line(struct desc_line *line, struct desc *desc)
{
	char *name;
	int own;

	desc_blanks(line);
	if (line->at == line->end || *line->at == '#')
		return 0;
	if (strlen(line->at) != (size_t)(line->end - line->at))
		return desc_error(line, "a 0 byte; a description is text");
	if (desc_name(line, &own, &name))
		return CLI_ERROR;
	if (own)
		return desc_own_field(line, name, desc);
	if (!strncmp(name, "groups[", 7))
		return desc_element(line, name + 7, 1, desc);
	if (!strncmp(name, "parts[", 6))
		return desc_element(line, name + 6, 0, desc);
	for (uint32_t i = 0; i < DESC_FIELDS; i++) {
		if (strcmp(desc_fields[i].name, name) != 0)
			continue;
		if (desc->seen & (uint64_t)1 << i)
			return desc_error(line, "%s is given twice; one file describes one space", name);
		desc->seen |= (uint64_t)1 << i;
		return desc_set(line, &desc_fields[i], desc);
	}
	return desc_unknown(line, name);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Takes the text, which desc->text owns and which ends with a 0 behind its length. */
static int desc_take(const char *name, size_t length, struct desc *desc)
{
	struct desc_line line = {.file = name};
	char *end = desc->text + length;
	cairn_digest id;

	for (char *at = desc->text; at < end;) {
		char *stop = memchr(at, '\n', (size_t)(end - at));

		line.number++;
		line.at = at;
		line.end = stop ? stop : end;
		at = line.end + 1;
		if (line.end > line.at && line.end[-1] == '\r')
			line.end--;
		*line.end = '\0';
		if (desc_take_line(&line, desc))
			return CLI_ERROR;
	}
	desc->desc.size = sizeof desc->desc;
	desc->desc.groups = desc->desc.ngroups ? desc->groups : NULL;
	desc->desc.parts = desc->desc.nparts ? desc->parts : NULL;
	desc->desc.fields = desc->desc.nfields ? desc->fields : NULL;
	if (cairn_space_id(&desc->desc, &id))
		return say_error("%s: %s", name, cairn_error_text());
	return 0;
}

int desc_parse(const char *name, const char *text, size_t length, struct desc *ret_desc)
{
	memset(ret_desc, 0, sizeof *ret_desc);
	ret_desc->text = malloc(length + 1);
	if (!ret_desc->text)
		return say_error("out of memory; free some and try again");
	memcpy(ret_desc->text, text, length);
	ret_desc->text[length] = '\0';
	return desc_take(name, length, ret_desc);
}

int desc_read(const char *file, struct desc *ret_desc)
{
	const char *name = !strcmp(file, "-") ? "(stdin)" : file;
	size_t length = 0;
	ssize_t count;

	memset(ret_desc, 0, sizeof *ret_desc);
	ret_desc->text = malloc(DESC_MAX + 1);
	if (!ret_desc->text)
		return say_error("out of memory; free some and try again");
	int fd = !strcmp(file, "-") ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return say_error("%s: %s; give a description file, as cairn ls STORE --spaces ID prints it", file,
		                 strerror(errno));
	while ((count = read(fd, ret_desc->text + length, DESC_MAX + 1 - length)) > 0)
		length += (size_t)count;
	int failed = count < 0 ? errno : 0;
	if (fd != STDIN_FILENO)
		close(fd);
	if (failed)
		return say_error("%s: cannot be read: %s", name, strerror(failed));
	if (length > DESC_MAX)
		return say_error("%s: longer than %s; this is not a description of a space", name, say_size(DESC_MAX));
	ret_desc->text[length] = '\0';
	return desc_take(name, length, ret_desc);
}

void desc_done(struct desc *desc)
{
	free(desc->text);
	desc->text = NULL;
}
