/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks descriptions of spaces: what is allowed, what a default means, how a decimal is spelled (docs/KEY.md, part 2).
 * Threads: any; nothing is shared. Memory: none.
 * Invariant: what key_desc_check accepts has a canonical form, whatever its length; so a rule stands here or nowhere.
 */
#include "fmt/space.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

/* Their places in this table are their tags, less one. */
const struct space_scalar space_scalars[SPACE_SCALARS] = {
#define AT(member) offsetof(struct cairn_space_desc, member), #member
	{TAG_TENANT, KEY_NAME_MAX, TYPE_STRING, AT(tenant), SPACE_TENANT},
	{TAG_SCHEME, KEY_NAME_MAX, TYPE_STRING, AT(scheme), SPACE_SCHEME},
	{TAG_MODEL, KEY_STRING_MAX, TYPE_STRING, AT(model), NULL},
	{TAG_WEIGHTS, sizeof(cairn_digest), TYPE_RAW, AT(weights), NULL},
	{TAG_ADAPTER, sizeof(cairn_digest), TYPE_RAW, AT(adapter), NULL},
	{TAG_ADAPTER_SCALE, KEY_SCALE_MAX, TYPE_SCALE, AT(adapter_scale), NULL},
	{TAG_KV_DTYPE, KEY_STRING_MAX, TYPE_STRING, AT(kv_dtype), NULL},
	{TAG_QUANT, KEY_STRING_MAX, TYPE_STRING, AT(quant), NULL},
	{TAG_LAYERS, 0, TYPE_NUMBER, AT(layers), NULL},
	{TAG_KV_HEADS, 0, TYPE_NUMBER, AT(kv_heads), NULL},
	{TAG_HEAD_SIZE, 0, TYPE_NUMBER, AT(head_size), NULL},
	{TAG_LAYOUT, KEY_STRING_MAX, TYPE_STRING, AT(layout), NULL},
	{TAG_ROPE, KEY_STRING_MAX, TYPE_STRING, AT(rope), NULL},
	{TAG_ISA, KEY_STRING_MAX, TYPE_STRING, AT(isa), NULL},
	{TAG_GENERATION, 16, TYPE_RAW, AT(generation), NULL},
#undef AT
};
static_assert(TAG_GENERATION == SPACE_SCALARS, "a scalar's place is its tag");

const void *space_pointer(const struct cairn_space_desc *desc, const struct space_scalar *scalar)
{
	const void *pointer;

	memcpy(&pointer, (const uint8_t *)desc + scalar->offset, sizeof pointer);
	return pointer ? pointer : scalar->standard;
}

uint32_t space_number(const struct cairn_space_desc *desc, const struct space_scalar *scalar)
{
	return bytes_get32((const uint8_t *)desc + scalar->offset);
}

const struct cairn_group *space_groups(const struct cairn_space_desc *desc, struct cairn_group *one, uint32_t *count)
{
	if (desc->groups && desc->ngroups) {
		*count = desc->ngroups;
		return desc->groups;
	}
	*one = (struct cairn_group){.block_tokens = desc->block_tokens, .block_bytes = desc->block_bytes};
	*count = 1;
	return one;
}

const struct cairn_part *space_parts(const struct cairn_space_desc *desc, struct cairn_part *one, uint32_t *count)
{
	if (desc->parts && desc->nparts) {
		*count = desc->nparts;
		return desc->parts;
	}
	*one = (struct cairn_part){0};
	*count = 1;
	return one;
}

size_t space_utf8_step(const uint8_t *text, size_t left)
{
	uint8_t first = text[0];

	if (first < 0x80)
		return 1;
	size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
	uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
	uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;

	if (first < 0xc2 || first > 0xf4 || left < length || text[1] < low || text[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

static int space_utf8(const char *text, size_t length)
{
	for (size_t at = 0, step; at < length; at += step)
		if (!(step = space_utf8_step((const uint8_t *)text + at, length - at)))
			return 0;
	return 1;
}

static int space_check_string(const char *field, const char *text, size_t max)
{
	size_t length = strnlen(text, max + 1);

	if (length > max)
		return err_set(CAIRN_E_INVAL, "space: %s is longer than %zu bytes; shorten it", field, max);
	if (!space_utf8(text, length))
		return err_set(CAIRN_E_INVAL, "space: %s is not UTF-8; convert it", field);
	return 0;
}

/* As that, of one in a list, where a name is needed. */
static int space_check_name(const char *list, uint32_t index, const char *name)
{
	char field[32];

	snprintf(field, sizeof field, "%s[%u].name", list, index);
	if (!*name)
		return err_set(CAIRN_E_INVAL, "space: %s is empty; name it", field);
	return space_check_string(field, name, KEY_NAME_MAX);
}

/* A sign only when below 0, no needless zeros, no point without a digit after it. */
int space_scale(const char *text, char *ret)
{
	int minus = *text == '-';
	const char *digits = text + (*text == '-' || *text == '+');
	size_t whole = strspn(digits, "0123456789");
	const char *point = digits + whole;
	size_t part = *point == '.' ? strspn(point + 1, "0123456789") : 0;

	if (strnlen(text, KEY_SCALE_MAX + 1) > KEY_SCALE_MAX || whole + part == 0 || point[*point == '.' ? part + 1 : 0])
		return -1;
	for (; whole && *digits == '0'; whole--)
		digits++;
	while (part && point[part] == '0')
		part--;
	if (minus && whole + part)
		*ret++ = '-';
	if (!whole)
		*ret++ = '0';
	memcpy(ret, digits, whole);
	ret += whole;
	if (part)
		*ret++ = '.';
	memcpy(ret, point + (part != 0), part);
	ret[part] = '\0';
	return 0;
}

static int space_zero(const void *bytes, size_t length)
{
	const uint8_t *at = bytes;

	while (length && !*at)
		at++, length--;
	return !length;
}

static int space_check_scalar(const struct cairn_space_desc *desc, const struct space_scalar *scalar)
{
	char scale[SPACE_SCALE_TEXT];
	const void *value;

	if (scalar->type == TYPE_NUMBER || !(value = space_pointer(desc, scalar)))
		return 0;
	switch (scalar->type) {
	case TYPE_STRING:
		return space_check_string(scalar->name, value, scalar->max);
	case TYPE_SCALE:
		if (space_scale(value, scale))
			return err_set(CAIRN_E_INVAL, "space: adapter_scale is not decimal text of at most %u characters; write"
			               " it like 0.5, without an exponent", KEY_SCALE_MAX);
		return 0;
	default:
		if (space_zero(value, scalar->max))
			return err_set(CAIRN_E_INVAL, "space: %s is all zeros, which no digest is; leave it NULL when it is not"
			               " known", scalar->name);
		return 0;
	}
}

static int space_component(const char **at, const char *allowed)
{
	size_t length = strspn(*at, allowed);

	*at += length;
	return length != 0;
}

uint32_t space_kind(const char *scheme)
{
	static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
	const char *at;

	if (!strcmp(scheme, SPACE_SCHEME))
		return KEY_TOKENS;
	if (!strcmp(scheme, "file/1"))
		return KEY_FILE;
	if (!strcmp(scheme, "sglang/1"))
		return KEY_HASH;
	if (!strncmp(scheme, "vllm/", 5)) {
		at = scheme + 5;
		if (!space_component(&at, word) || *at++ != '/')
			return 0;
		size_t digits = strspn(at, "0123456789abcdef");
		return digits >= 2 * KEY_HASH_MIN && digits % 2 == 0 && !at[digits] ? KEY_HASH : 0;
	}
	if (!strncmp(scheme, "lmcache/", 8)) {
		at = scheme + 7;
		while (*at == '/') {
			at++;
			if (!space_component(&at, word))
				return 0;
		}
		return *at ? 0 : KEY_HASH;
	}
	return 0;
}

static int space_check_groups(const struct cairn_space_desc *desc, uint32_t kind)
{
	struct cairn_group one;
	uint32_t count;
	const struct cairn_group *groups = space_groups(desc, &one, &count);

	if (desc->ngroups && !desc->groups)
		return err_set(CAIRN_E_INVAL, "space: ngroups is %u and groups is NULL", desc->ngroups);
	if (count > KEY_GROUPS_MAX)
		return err_set(CAIRN_E_INVAL, "space: ngroups is %u; at most %u", count, KEY_GROUPS_MAX);
	if (groups != &one && (desc->block_tokens || desc->block_bytes))
		return err_set(CAIRN_E_INVAL, "space: block_tokens and block_bytes beside groups; set them in each group");
	for (uint32_t i = 0; i < count; i++) {
		const struct cairn_group *group = &groups[i];

		if (space_check_name("groups", i, space_group_name(group)))
			return CAIRN_E_INVAL;
		for (uint32_t j = 0; j < i; j++)
			if (!strcmp(space_group_name(group), space_group_name(&groups[j])))
				return err_set(CAIRN_E_INVAL, "space: groups[%u].name is that of groups[%u]", i, j);
		if ((!group->block_tokens && kind != KEY_FILE) || group->block_tokens > KEY_BLOCK_TOKENS_MAX)
			return err_set(CAIRN_E_INVAL, "space: block_tokens of groups[%u] is %u; give 1 to %u, the tokens of a"
			               " block", i, group->block_tokens, KEY_BLOCK_TOKENS_MAX);
		if (group->rule > CAIRN_RULE_SNAPSHOT)
			return err_set(CAIRN_E_INVAL, "space: groups[%u].rule is %u; see enum cairn_rule", i, group->rule);
		if ((group->rule == CAIRN_RULE_TRAILING) != (group->trailing_tokens != 0))
			return err_set(CAIRN_E_INVAL, "space: groups[%u].trailing_tokens is %u; above 0 with rule trailing, and 0"
			               " with the others", i, group->trailing_tokens);
		if (group->block_bytes > CAIRN_PART_MAX_BYTES)
			return err_set(CAIRN_E_INVAL, "space: block_bytes of groups[%u] is %llu; a part has at most %u bytes: split"
			               " it", i, (unsigned long long)group->block_bytes, CAIRN_PART_MAX_BYTES);
	}
	return 0;
}

static int space_check_parts(const struct cairn_space_desc *desc)
{
	struct cairn_part one;
	uint32_t count, required = 0;
	const struct cairn_part *parts = space_parts(desc, &one, &count);

	if (desc->nparts && !desc->parts)
		return err_set(CAIRN_E_INVAL, "space: nparts is %u and parts is NULL", desc->nparts);
	if (count > KEY_PARTS_MAX)
		return err_set(CAIRN_E_INVAL, "space: nparts is %u; at most %u", count, KEY_PARTS_MAX);
	for (uint32_t i = 0; i < count; i++) {
		if (space_check_name("parts", i, space_part_name(&parts[i])))
			return CAIRN_E_INVAL;
		for (uint32_t j = 0; j < i; j++)
			if (!strcmp(space_part_name(&parts[i]), space_part_name(&parts[j])))
				return err_set(CAIRN_E_INVAL, "space: parts[%u].name is that of parts[%u]", i, j);
		if (parts[i].replicated > 1 || parts[i].optional > 1)
			return err_set(CAIRN_E_INVAL, "space: parts[%u].replicated and .optional are 0 or 1", i);
		required += !parts[i].optional;
	}
	if (!required)
		return err_set(CAIRN_E_INVAL, "space: all parts are optional; at least one must be required");
	return 0;
}

long space_unknown_tag(const char *name)
{
	char text[SPACE_TAG_TEXT];
	unsigned tag = 0;

	if (strncmp(name, SPACE_TAG_PREFIX, strlen(SPACE_TAG_PREFIX)) != 0)
		return 0;
	for (const char *at = name + strlen(SPACE_TAG_PREFIX); *at >= '0' && *at <= '9' && tag <= UINT16_MAX; at++)
		tag = tag * 10 + (unsigned)(*at - '0');
	if (tag < TAG_FIRST_UNKNOWN || tag > UINT16_MAX)
		return -1;
	snprintf(text, sizeof text, SPACE_TAG_PREFIX "%u", tag);
	return strcmp(name, text) == 0 ? (long)tag : -1;
}

static int space_check_fields(const struct cairn_space_desc *desc)
{
	if (desc->nfields && !desc->fields)
		return err_set(CAIRN_E_INVAL, "space: nfields is %u and fields is NULL", desc->nfields);
	if (desc->nfields > KEY_FIELDS_MAX)
		return err_set(CAIRN_E_INVAL, "space: nfields is %u; at most %u", desc->nfields, KEY_FIELDS_MAX);
	for (uint32_t i = 0; i < desc->nfields; i++) {
		const struct cairn_field *field = &desc->fields[i];

		if (!field->name)
			return err_set(CAIRN_E_INVAL, "space: fields[%u].name is NULL; name it", i);
		if (space_check_name("fields", i, field->name))
			return CAIRN_E_INVAL;
		if (space_unknown_tag(field->name) < 0)
			return err_set(CAIRN_E_INVAL, "space: fields[%u].name is \"%s\"; after \"tag:\" stands the number of a tag"
			               " that this version does not know, %u to %u", i, field->name, TAG_FIRST_UNKNOWN, UINT16_MAX);
		for (uint32_t j = 0; j < i; j++)
			if (!strcmp(field->name, desc->fields[j].name))
				return err_set(CAIRN_E_INVAL, "space: fields[%u].name is that of fields[%u]", i, j);
		if (field->length > KEY_CANON_MAX || (field->length && !field->value))
			return err_set(CAIRN_E_INVAL, "space: field %s has %zu bytes%s; at most %u", field->name, field->length,
			               field->value ? "" : " at NULL", KEY_CANON_MAX);
	}
	return 0;
}

static int space_check_size(const struct cairn_space_desc *desc)
{
	if (!desc)
		return err_set(CAIRN_E_INVAL, "space: the description is NULL");
	if (desc->size < sizeof *desc)
		return err_set(CAIRN_E_INVAL, "space: size is %zu; set it to sizeof the struct, %zu", desc->size, sizeof *desc);
	if (desc->size > 4096 || !space_zero(desc + 1, desc->size - sizeof *desc))
		return err_set(CAIRN_E_INVAL, "space: size is %zu, and a field beyond the %zu bytes that this version knows is"
		               " set; use the newer library", desc->size, sizeof *desc);
	return 0;
}

int key_desc_check(const struct cairn_space_desc *desc)
{
	if (space_check_size(desc))
		return CAIRN_E_INVAL;
	for (size_t i = 0; i < SPACE_SCALARS; i++)
		if (space_check_scalar(desc, &space_scalars[i]))
			return CAIRN_E_INVAL;
	if (desc->tenant && !*desc->tenant)
		return err_set(CAIRN_E_INVAL, "space: tenant is empty; name it, or leave it NULL for \"" SPACE_TENANT "\"");
	uint32_t kind = space_kind(desc->scheme ? desc->scheme : SPACE_SCHEME);
	if (!kind)
		return err_set(CAIRN_E_INVAL, "space: scheme is \"%s\"; known are tokens/1, vllm/ALGORITHM/HEX, sglang/1,"
		               " lmcache/NAME, file/1 (docs/KEY.md)", desc->scheme);
	if (kind != KEY_FILE && (!desc->kv_dtype || !*desc->kv_dtype))
		return err_set(CAIRN_E_INVAL, "space: kv_dtype is missing; bytes of one type must never be read as another:"
		               " give the type of the KV elements (\"bf16\")");
	if (desc->adapter_scale && !desc->adapter)
		return err_set(CAIRN_E_INVAL, "space: adapter_scale without adapter; give the adapter's digest");
	if (space_check_groups(desc, kind) || space_check_parts(desc) || space_check_fields(desc))
		return CAIRN_E_INVAL;
	if (!(isfinite(desc->cost_a_s) && isfinite(desc->cost_b_s) && desc->cost_a_s >= 0 && desc->cost_b_s >= 0))
		return err_set(CAIRN_E_INVAL, "space: cost_a_s or cost_b_s is below 0 or no number; 0 when not known");
	return 0;
}

static int space_field_order(const struct cairn_field *a, const struct cairn_field *b)
{
	long tag_a = space_unknown_tag(a->name), tag_b = space_unknown_tag(b->name);

	return tag_a != tag_b ? (tag_a < tag_b ? -1 : 1) : strcmp(a->name, b->name);
}

void space_sort_fields(const struct cairn_space_desc *desc, const struct cairn_field *sorted[KEY_FIELDS_MAX])
{
	for (uint32_t i = 0, at; i < desc->nfields; i++) {
		for (at = i; at && space_field_order(&desc->fields[i], sorted[at - 1]) < 0; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = &desc->fields[i];
	}
}
