/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cairn ls`: sessions, spaces and parts of a store.
 * Threads: one. Memory: sessions and spaces are copied to be sorted; parts, of which there may be millions, are not.
 * Invariant: what --spaces prints of a space is a description file.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

enum { KEY_SPACES = VERB_KEY, KEY_PARTS, KEY_SESSIONS };

static struct ls {
	int what; /* one of the keys; 0: none was given */
	/* of --parts */
	json_t *array;
	uint64_t count, bytes;
} ls;

static int ls_option(int key, char *value)
{
	static const char *const names[] = {"--spaces", "--parts", "--sessions"};

	(void)value;
	if (ls.what && ls.what != key)
		return say_error("%s and %s together; give one of them", names[ls.what - VERB_KEY], names[key - VERB_KEY]);
	ls.what = key;
	return 0;
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

static json_t *ls_session_json(const struct cairn_session_info *info)
{
	json_t *object = json_object();

	json_object_set_new(object, "tenant", say_json(info->tenant));
	json_object_set_new(object, "owner", say_json(info->owner));
	json_object_set_new(object, "name", say_json(info->name));
	say_json_number(object, "bytes", info->bytes);
	say_json_number(object, "tokens", info->tokens);
	say_json_number(object, "chains", info->nchains);
	say_json_number(object, "tails", info->ntails);
	say_json_number(object, "saved_at_s", info->saved_at_s);
	json_object_set_new(object, "expires_at_s",
	                    info->expires_at_s ? json_integer((json_int_t)info->expires_at_s) : json_null());
	json_object_set_new(object, "pinned", json_boolean(info->pinned));
	say_json_number(object, "epoch", info->epoch);
	say_json_hex(object, "space", info->space_id.bytes, 32);
	return object;
}

static int ls_sessions(cairn *store)
{
	struct session_row *rows;
	size_t count;
	struct cairn_stat stat = {.size = sizeof stat};
	uint64_t bytes = 0;
	json_t *array = cli.json ? json_array() : NULL;

	if (cairn_stat(store, &stat))
		return say_error("%s", cairn_error_text());
	if (open_list_sessions(store, cli.tenant, &rows, &count))
		return CLI_ERROR;
	if (!cli.json && count)
		printf("%-10s %-10s %10s %8s  %-16s  %-16s  %-6s  %s\n", "TENANT", "OWNER", "SIZE", "TOKENS", "SAVED",
		       "EXPIRES", "PINNED", "NAME");
	for (size_t i = 0; i < count; i++) {
		const struct cairn_session_info *info = &rows[i].info;

		if (cli.owner && strcmp(info->owner, cli.owner) != 0)
			continue;
		bytes += info->bytes;
		ls.count++;
		if (cli.json)
			json_array_append_new(array, ls_session_json(info));
		else
			printf("%-10s %-10s %10s %8" PRIu64 "  %-16s  %-16s  %-6s  %s\n", say_name(info->tenant),
			       *info->owner ? say_name(info->owner) : "-", say_size(info->bytes), info->tokens,
			       say_time(info->saved_at_s), say_time(info->expires_at_s), info->pinned ? "yes" : "-",
			       say_name(info->name));
	}
	if (cli.json)
		return say_json_end(json_pack("{s:o, s:I}", "sessions", array, "lost_sessions", (json_int_t)stat.lost_sessions),
		                    CLI_WHOLE);
	say_line("%s, %s", say_many(ls.count, "session", "sessions"), say_size(bytes));
	if (stat.lost_sessions)
		say_line("%s can not be read: damaged, or on a device that is gone; see cairn fsck",
		         say_many(stat.lost_sessions, "more session", "more sessions"));
	return CLI_WHOLE;
}

/* ---- spaces ------------------------------------------------------------------------------------------------------ */

static int ls_print_spaces(const struct space_row *rows, size_t count)
{
	json_t *array = cli.json ? json_array() : NULL;

	for (size_t i = 0; i < count; i++) {
		const struct cairn_space_info *info = &rows[i].info;

		if (!cli.json) {
			printf("%s# space %s\n# %s, %s\n%s", i ? "\n" : "", say_hex(info->id.bytes, 32),
			       say_many(info->parts, "part", "parts"), say_size(info->bytes),
			       *info->text ? info->text : "# its description is not known\n");
			continue;
		}
		json_t *object = json_object();

		say_json_hex(object, "id", info->id.bytes, 32);
		say_json_number(object, "parts", info->parts);
		say_json_number(object, "bytes", info->bytes);
		json_object_set_new(object, "text", say_json(info->text));
		json_array_append_new(array, object);
	}
	if (cli.json)
		return say_json_end(json_pack("{s:o}", "spaces", array), CLI_WHOLE);
	if (!count)
		say_line("0 spaces");
	return CLI_WHOLE;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static int ls_part(void *arg, const struct cairn_part_info *info)
{
	(void)arg;
	ls.count++;
	ls.bytes += info->bytes;
	if (!cli.json) {
		printf("%.16s  %s  %4u  %-5s  %-6s  ", say_hex(info->space_id.bytes, 32), say_hex(info->key_prefix, 16),
		       info->part, info->tail ? "tail" : "block", info->in_memory ? "yes" : "-");
		if (info->in_flash)
			printf("%5u", info->device);
		else
			printf("%5s", "-");
		printf("  %10s  %" PRIu64 "\n", say_size(info->bytes), info->birth);
		return say_stopped || ferror(stdout);
	}
	json_t *object = json_object();

	say_json_hex(object, "space", info->space_id.bytes, 32);
	say_json_hex(object, "key_prefix", info->key_prefix, 16);
	say_json_number(object, "part", info->part);
	json_object_set_new(object, "tail", json_boolean(info->tail));
	json_object_set_new(object, "in_memory", json_boolean(info->in_memory));
	json_object_set_new(object, "in_flash", json_boolean(info->in_flash));
	json_object_set_new(object, "device", info->in_flash ? json_integer(info->device) : json_null());
	say_json_number(object, "bytes", info->bytes);
	say_json_number(object, "birth", info->birth);
	json_array_append_new(ls.array, object);
	return say_stopped;
}

static int ls_parts(cairn *store, const cairn_digest *space_id)
{
	ls.array = cli.json ? json_array() : NULL;
	if (!cli.json)
		printf("%-16s  %-32s  %4s  %-5s  %-6s  %5s  %10s  %s\n", "SPACE", "KEY", "PART", "KIND", "MEMORY", "FLASH",
		       "SIZE", "BIRTH");
	if (cairn_list_parts(store, space_id, ls_part, NULL) < 0)
		return say_error("%s", cairn_error_text());
	if (cli.json)
		return say_json_end(json_pack("{s:o}", "parts", ls.array), CLI_WHOLE);
	say_line("%s, %s", say_many(ls.count, "part", "parts"), say_size(ls.bytes));
	return CLI_WHOLE;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int ls_in(cairn *store, const char *which)
{
	struct space_row *rows;
	const struct space_row *row = NULL;
	size_t count;
	int status;

	if (!ls.what || ls.what == KEY_SESSIONS)
		return ls_sessions(store);
	if (ls.what == KEY_PARTS && !which)
		return ls_parts(store, NULL);
	status = open_list_spaces(store, &rows, &count);
	if (!status && which)
		status = open_find_space(rows, count, which, &row);
	if (status)
		return status;
	if (ls.what == KEY_PARTS)
		return ls_parts(store, &row->info.id);
	return which ? ls_print_spaces(row, 1) : ls_print_spaces(rows, count);
}

static int ls_run(char **operand, uint32_t count)
{
	cairn *store;

	if (count > 1 && (!ls.what || ls.what == KEY_SESSIONS))
		return say_error(
			"\"%s\" is one argument too many; with --spaces or --parts it is the space to show, a session is"
			" shown by cairn session STORE show NAME",
			say_name(operand[1]));
	if (open_store(operand[0], OPEN_LOOK, &store))
		return CLI_ERROR;
	return open_close(store, ls_in(store, count > 1 ? operand[1] : NULL));
}

static const struct argp_option ls_options[] = {
	{"sessions", KEY_SESSIONS, NULL, 0, "Saved sessions (what is listed when nothing is said)", 0},
	{"spaces", KEY_SPACES, NULL, 0, "Spaces: their ids and descriptions, as cairn key and cairn explain read them", 0},
	{"parts", KEY_PARTS, NULL, 0, "Parts, of one space or all: one line each", 0},
	{0},
};

const struct verb verb_ls = {
	.name = "ls",
	.operands = "STORE [SPACE]",
	.summary = "list sessions, spaces or parts",
	.text = "Lists what is in STORE: saved sessions, or spaces, or parts. SPACE is the first digits of a space's id."
	        "\vExamples:\n"
	        "  cairn ls /var/cache/cairn\n"
	        "  cairn ls /var/cache/cairn --owner ada --json\n"
	        "  cairn ls store --spaces 1f03 > qwen.space      # one description file\n"
	        "  cairn ls store --parts 1f03\n",
	.options = ls_options,
	.option = ls_option,
	.run = ls_run,
	.shared = VERB_STORE | VERB_JSON | VERB_SESSION,
	.least = 1,
	.most = 2,
};
