/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a store with the options given, and finding sessions and spaces in it.
 * Threads: one. Memory: lists are copied for the caller and left to the end of the process.
 * Invariant: a verb that only looks (all but get) opens the store read-only: nothing is made, repaired or remembered.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"

#define OPEN_MEMORY_BYTES ((uint64_t)64 << 20) /* so that it starts at once; what is in flight fits several times */
#define OPEN_SEGMENT_BYTES ((uint64_t)2 << 20)  /* the smallest that takes a block of a file */

/* Of a small device that may be made: the default would leave no room for two blocks of a file in a segment. 0: the
 * default. */
static uint64_t open_segment_bytes(void)
{
	uint64_t least = UINT64_MAX, segment = OPEN_SEGMENT_BYTES;

	for (uint32_t i = 0; i < cli.nflash; i++)
		if (cli.flash[i].budget_bytes && cli.flash[i].budget_bytes < least)
			least = cli.flash[i].budget_bytes;
	if (least > 256 * OPEN_SEGMENT_BYTES)
		return 0;
	while (segment * 2 <= least / 16)
		segment *= 2;
	return segment;
}

static void open_say_gone(cairn *store)
{
	struct cairn_stat *stat = calloc(1, sizeof *stat);

	if (!stat)
		return;
	stat->size = sizeof *stat;
	if (!cairn_stat(store, stat))
		for (uint32_t i = 0; i < stat->ndevices; i++)
			if (stat->device[i].state == 2)
				say_gone_device(stat->device[i].path);
	free(stat);
}

int open_store(const char *place, int need, cairn **ret_store)
{
	struct cairn_options options = {.size = sizeof options};

	if (need >= OPEN_WRITE && cli.read_only)
		return say_error("--read-only with a verb that writes; leave it out");
	if (cli.budget_bytes) {
		if (cli.nflash)
			return say_error("--budget and --flash together; give the size with the path, --flash PATH:SIZE");
		cli.flash[0] = (struct cairn_flash){.budget_bytes = cli.budget_bytes};
		cli.nflash = 1;
	}
	for (uint32_t i = 0; i < cli.nflash && need == OPEN_CREATE; i++)
		if (cli.flash[i].budget_bytes && cli.flash[i].budget_bytes < 16 * OPEN_SEGMENT_BYTES)
			return say_error("%s of flash is too little for files; give at least %s",
			                 say_size(cli.flash[i].budget_bytes), say_size(16 * OPEN_SEGMENT_BYTES));
	options.flash = cli.nflash ? cli.flash : NULL;
	options.nflash = cli.nflash;
	options.memory_bytes = cli.memory_bytes ? cli.memory_bytes : OPEN_MEMORY_BYTES;
	options.io_engine = cli.io_engine;
	options.token_file = cli.token_file;
	options.flash_write_bytes_day = cli.write_bytes_day;
	options.segment_bytes = need == OPEN_CREATE ? open_segment_bytes() : 0;
	options.flags = need == OPEN_CREATE                  ? CAIRN_OPEN_CREATE
	                : need == OPEN_LOOK || cli.read_only ? CAIRN_OPEN_READONLY
	                                                     : 0;
	int status = cairn_open(place, &options, ret_store);
	if (need == OPEN_READ && !cli.read_only && (status == CAIRN_E_RDONLY || status == CAIRN_E_ACCESS)) {
		options.flags |= CAIRN_OPEN_READONLY;
		status = cairn_open(place, &options, ret_store);
	}
	if (status)
		return say_error("%s", cairn_error_text());
	open_say_gone(*ret_store);
	return 0;
}

int open_close(cairn *store, int status)
{
	int closed = cairn_close(store);

	say_gone_end();
	if (closed && status != CLI_ERROR)
		return say_error("%s", cairn_error_text());
	return status;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

struct open_rows {
	struct open_rows *next;
	void *rows;
	size_t count, room, size;
	int failed;
};
/* Every list, so that what is kept to the end of the process is not taken for lost. */
static struct open_rows *open_lists;

static struct open_rows *open_new_list(size_t size)
{
	struct open_rows *rows = calloc(1, sizeof *rows);

	if (!rows) {
		say_error("out of memory; free some and try again");
		return NULL;
	}
	rows->size = size;
	rows->next = open_lists;
	return open_lists = rows;
}

/* A new, zeroed row; NULL: out of memory, said once at the end. */
static void *open_row(struct open_rows *rows)
{
	if (rows->count == rows->room) {
		size_t room = rows->room ? 2 * rows->room : 64;
		void *grown = reallocarray(rows->rows, room, rows->size);

		if (!grown) {
			rows->failed = 1;
			return NULL;
		}
		rows->rows = grown;
		rows->room = room;
	}
	return memset((char *)rows->rows + rows->size * rows->count++, 0, rows->size);
}

/* Copies a text of a row; where memory ran out, an empty one, and the list fails. */
static const char *open_copy(struct open_rows *rows, const char *text)
{
	char *copy = strdup(text ? text : "");

	rows->failed |= !copy;
	return copy ? copy : "";
}

static int open_listed(struct open_rows *rows, long listed)
{
	if (listed < 0)
		return say_error("%s", cairn_error_text());
	return rows->failed ? say_error("out of memory; free some and try again") : 0;
}

static int open_add_session(void *arg, const struct cairn_session_info *info)
{
	struct open_rows *rows = arg;
	struct session_row *row = open_row(rows);

	if (!row)
		return 1;
	row->info = *info;
	row->info.tenant = open_copy(rows, info->tenant);
	row->info.owner = open_copy(rows, info->owner);
	row->info.name = open_copy(rows, info->name);
	return rows->failed;
}

static int open_order_sessions(const void *a, const void *b)
{
	const struct cairn_session_info *x = a, *y = b;
	int order = strcmp(x->tenant, y->tenant);

	order = order ? order : strcmp(x->owner, y->owner);
	return order ? order : strcmp(x->name, y->name);
}

int open_list_sessions(cairn *store, const char *tenant, struct session_row **ret_rows, size_t *ret_count)
{
	struct open_rows *rows = open_new_list(sizeof **ret_rows);

	if (!rows || open_listed(rows, cairn_session_list(store, tenant, open_add_session, rows)))
		return CLI_ERROR;
	if (rows->count)
		qsort(rows->rows, rows->count, rows->size, open_order_sessions);
	*ret_rows = rows->rows;
	*ret_count = rows->count;
	return 0;
}

static int open_add_space(void *arg, const struct cairn_space_info *info)
{
	struct open_rows *rows = arg;
	struct space_row *row = open_row(rows);

	if (!row)
		return 1;
	row->info = *info;
	row->info.text = open_copy(rows, info->text);
	return rows->failed;
}

static int open_order_spaces(const void *a, const void *b)
{
	const struct cairn_space_info *x = a, *y = b;

	return memcmp(x->id.bytes, y->id.bytes, sizeof x->id.bytes);
}

int open_list_spaces(cairn *store, struct space_row **ret_rows, size_t *ret_count)
{
	struct open_rows *rows = open_new_list(sizeof **ret_rows);

	if (!rows || open_listed(rows, cairn_list_spaces(store, open_add_space, rows)))
		return CLI_ERROR;
	if (rows->count)
		qsort(rows->rows, rows->count, rows->size, open_order_spaces);
	*ret_rows = rows->rows;
	*ret_count = rows->count;
	return 0;
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

int open_find_space(const struct space_row *rows, size_t count, const char *text, const struct space_row **ret_row)
{
	const struct space_row *found = NULL;
	size_t length = strlen(text), matching = 0;

	if (length < 4 || length > 64 || strspn(text, "0123456789abcdefABCDEF") != length)
		return say_error("\"%s\" is not a space id; give 4 to 64 hexadecimal digits of one that cairn ls STORE --spaces"
		                 " shows", say_name(text));
	for (size_t i = 0; i < count; i++)
		if (!strncasecmp(say_hex(rows[i].info.id.bytes, 32), text, length)) {
			found = &rows[i];
			matching++;
		}
	if (matching > 1)
		return say_error("space id %s could be one of %zu spaces; give more digits", text, matching);
	if (!found)
		return say_not("there is no space %s in the store; see cairn ls STORE --spaces", text);
	*ret_row = found;
	return 0;
}

int open_space(cairn *store, const struct space_row *row, cairn_space **ret_space)
{
	struct desc desc;
	cairn_digest id;
	const char *name = say_hex(row->info.id.bytes, 32);
	int status = desc_parse(name, row->info.text, strlen(row->info.text), &desc);

	if (!status && (cairn_space_id(&desc.desc, &id) || memcmp(&id, &row->info.id, sizeof id) != 0))
		status =
			say_error("the store does not know the description of space %s; drop it as a whole with cairn drop STORE"
		              " --space",
		              name);
	if (!status && cairn_describe(store, &desc.desc, ret_space))
		status = say_error("%s", cairn_error_text());
	desc_done(&desc);
	return status;
}

/* Where a session of that name is kept under another owner or tenant, how to reach it. */
static int open_say_elsewhere(const struct session_row *rows, size_t count, const struct cairn_session_name *name)
{
	const char *tenant = name->tenant ? name->tenant : "default";

	for (size_t i = 0; i < count; i++) {
		const struct cairn_session_info *info = &rows[i].info;

		if (strcmp(info->name, name->name) != 0)
			continue;
		const char *owner = *info->owner ? say_name(info->owner) : "";
		if (strcmp(info->tenant, tenant) != 0)
			say_not("there is no session \"%s\" of %s \"%s\", but one of tenant \"%s\": add --tenant %s%s%s",
			        say_name(name->name), "tenant", say_name(tenant), say_name(info->tenant), say_name(info->tenant),
			        *owner ? " --owner " : "", owner);
		else if (*owner)
			say_not("there is no session \"%s\" %s, but one of owner \"%s\": add --owner %s", say_name(name->name),
			        name->owner && *name->owner ? "of that owner" : "without an owner", owner, owner);
		else
			say_not("there is no session \"%s\" of owner \"%s\", but one without an owner: leave out --owner",
			        say_name(name->name), say_name(name->owner ? name->owner : ""));
		return 1;
	}
	return 0;
}

int open_session_missing(cairn *store, const struct cairn_session_name *name)
{
	struct session_row *rows;
	const char *names[256], *closest;
	size_t count, kept = 0;

	if (open_list_sessions(store, NULL, &rows, &count))
		return CLI_ERROR;
	if (open_say_elsewhere(rows, count, name))
		return CLI_NOT;
	for (size_t i = 0; i < count && kept < sizeof names / sizeof names[0]; i++)
		names[kept++] = rows[i].info.name;
	closest = args_closest(name->name, names, kept);
	if (closest)
		return say_not("there is no session \"%s\" in the store; did you mean \"%s\"?", say_name(name->name),
		               say_name(closest));
	return say_not("there is no session \"%s\" in the store; see cairn ls STORE", say_name(name->name));
}

int open_session(cairn *store, const struct cairn_session_name *name, cairn_session **ret_session)
{
	int status = cairn_session_resume(store, name, ret_session);

	if (status == CAIRN_E_NOENT)
		return open_session_missing(store, name);
	if (status == CAIRN_DAMAGED || status == CAIRN_MISS)
		return say_not("the session \"%s\" can not be read: %s; put or save it again, and see cairn fsck",
		               say_name(name->name), cairn_error_text());
	return status ? say_error("%s", cairn_error_text()) : 0;
}
