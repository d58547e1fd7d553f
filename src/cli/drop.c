/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cairn drop`: removes keys, a session, a space or a tenant, for good.
 * Threads: one. Memory: the keys of a session, and of those that share its space.
 * Invariant: nothing is dropped before it was asked for twice: by name, and by the answer or --yes. Blocks of a session
 * go before its name does, so that a drop that was interrupted can be run again.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum { KEY_SESSION = VERB_KEY, KEY_SPACE, KEY_KEY };

static struct drop {
	int what; /* one of the keys above; 0: a tenant */
	const char *value;
} drop;

static int drop_option(int key, char *value)
{
	if (drop.what)
		return say_error("two of --session, --space, --key; drop one at a time");
	drop.what = key;
	drop.value = value;
	return 0;
}

static int drop_report(long parts)
{
	if (parts < 0)
		return say_error("%s", cairn_error_text());
	if (cli.json) {
		json_t *report = json_object();

		say_json_number(report, "dropped_parts", (uint64_t)parts);
		return say_json_end(report, CLI_WHOLE);
	}
	say_line("%s dropped", say_many((uint64_t)parts, "part", "parts"));
	return CLI_WHOLE;
}

/* ---- a session --------------------------------------------------------------------------------------------------- */

struct key_set {
	cairn_key *keys;
	size_t count, room;
};

static int key_order(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(cairn_key));
}

static int key_set_add(struct key_set *set, const cairn_key *keys, size_t count)
{
	if (set->count + count > set->room) {
		size_t room = set->count + count > 2 * set->room ? set->count + count : 2 * set->room;
		cairn_key *grown = reallocarray(set->keys, room, sizeof *grown);

		if (!grown)
			return say_error("out of memory for the keys of the sessions; free some and try again");
		set->keys = grown;
		set->room = room;
	}
	if (count)
		memcpy(set->keys + set->count, keys, count * sizeof *keys);
	set->count += count;
	return 0;
}

static int key_set_add_session(struct key_set *set, const cairn_session *session, const struct cairn_session_info *info)
{
	for (uint32_t i = 0; i < info->nchains; i++) {
		struct cairn_chain chain;

		if (cairn_session_chain(session, i, &chain))
			return say_error("%s", cairn_error_text());
		if (key_set_add(set, chain.keys, chain.nkeys))
			return CLI_ERROR;
	}
	return 0;
}

/* Keys of all other sessions of that space. One that can not be read keeps nothing. */
static int drop_collect_others(cairn *store, const struct cairn_session_info *mine, struct key_set *set)
{
	struct session_row *rows;
	size_t count;

	if (open_list_sessions(store, mine->tenant, &rows, &count))
		return CLI_ERROR;
	for (size_t i = 0; i < count; i++) {
		const struct cairn_session_info *row = &rows[i].info;
		struct cairn_session_info info = {.size = sizeof info};
		struct cairn_session_name name = {row->tenant, row->owner, row->name};
		cairn_session *session;

		if (memcmp(&row->space_id, &mine->space_id, sizeof row->space_id) != 0 ||
		    (!strcmp(row->name, mine->name) && !strcmp(row->owner, mine->owner)) ||
		    cairn_session_resume(store, &name, &session))
			continue;
		cairn_session_get_info(session, &info);
		int status = key_set_add_session(set, session, &info);

		cairn_session_free(session);
		if (status)
			return status;
	}
	if (set->count)
		qsort(set->keys, set->count, sizeof *set->keys, key_order);
	return 0;
}

static int drop_session_blocks(cairn *store, const cairn_session *session, const struct cairn_session_info *info,
                               long *ret_parts)
{
	struct key_set mine = {0}, others = {0};
	cairn_space *space;
	size_t alone = 0;
	int status = key_set_add_session(&mine, session, info);

	status = status ? status : drop_collect_others(store, info, &others);
	for (size_t i = 0; i < mine.count && !status; i++)
		if (!others.count || !bsearch(&mine.keys[i], others.keys, others.count, sizeof *others.keys, key_order))
			mine.keys[alone++] = mine.keys[i];
	/* The end of a chain first: blocks whose head is gone go by themselves, and would not be counted. */
	for (size_t i = 0; i < alone / 2; i++) {
		cairn_key key = mine.keys[i];

		mine.keys[i] = mine.keys[alone - 1 - i];
		mine.keys[alone - 1 - i] = key;
	}
	*ret_parts = 0;
	if (!status && alone) {
		if (cairn_session_space(store, session, &space) ||
		    (*ret_parts = cairn_drop(store, space, mine.keys, alone)) < 0)
			status = say_error("%s", cairn_error_text());
	}
	free(mine.keys);
	free(others.keys);
	return status;
}

static int drop_session(cairn *store)
{
	struct cairn_session_info info = {.size = sizeof info};
	struct cairn_session_name name;
	cairn_session *session;
	long parts = 0;
	int status = args_session(drop.value, &name);

	status = status ? status : open_session(store, &name, &session);
	if (status)
		return status;
	cairn_session_get_info(session, &info);
	status = say_confirm("Drop the session \"%s\" (%s) for good?", say_name(info.name), say_size(info.bytes));
	if (!status)
		status = drop_session_blocks(store, session, &info, &parts);
	if (!status && cairn_session_forget(store, &name))
		status = say_error("%s", cairn_error_text());
	cairn_session_free(session);
	return status ? status : drop_report(parts);
}

/* ---- a space, a tenant, keys ------------------------------------------------------------------------------------- */

static int drop_find_space(cairn *store, const struct space_row **ret_row)
{
	struct space_row *rows;
	size_t count;

	if (open_list_spaces(store, &rows, &count))
		return CLI_ERROR;
	return open_find_space(rows, count, drop.value, ret_row);
}

static int drop_space(cairn *store)
{
	const struct space_row *row;
	int status = drop_find_space(store, &row);

	if (!status)
		status = say_confirm("%sDrop all of space %.16s (%s, %s) for good?", row->info.text,
		                     say_hex(row->info.id.bytes, 32), say_many(row->info.parts, "part", "parts"),
		                     say_size(row->info.bytes));
	return status ? status : drop_report(cairn_drop_space(store, &row->info.id));
}

static int drop_tenant(cairn *store)
{
	struct session_row *rows;
	size_t count;

	int status = open_list_sessions(store, cli.tenant, &rows, &count);

	if (!status)
		status = say_confirm("Drop everything of tenant \"%s\" (%s among it) for good?", say_name(cli.tenant),
		                     say_many(count, "session", "sessions"));
	return status ? status : drop_report(cairn_drop_tenant(store, cli.tenant));
}

static int drop_keys(cairn *store, char **operand, uint32_t count)
{
	const struct space_row *row;
	cairn_space *space;
	cairn_key *keys = calloc(count, sizeof *keys);
	int status = keys ? drop_find_space(store, &row) : say_error("out of memory; free some and try again");

	for (uint32_t i = 0; i < count && !status; i++)
		if (args_hex(operand[i], keys[i].bytes, sizeof keys[i]) != (long)sizeof keys[i])
			status = say_error("\"%s\" is not a key; a key has 64 hexadecimal digits", say_name(operand[i]));
	status = status ? status : open_space(store, row, &space);
	status = status ? status : say_confirm("Drop %s of space %.16s for good?", say_many(count, "key", "keys"),
	                                       say_hex(row->info.id.bytes, 32));
	status = status ? status : drop_report(cairn_drop(store, space, keys, count));
	free(keys);
	return status;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int drop_run(char **operand, uint32_t count)
{
	cairn *store;
	int status;

	if (!drop.what && (!cli.tenant || cli.owner))
		return say_error(
			"what to drop is missing; give --session NAME, --space ID, --tenant TENANT or --key SPACE KEY...");
	if (cli.owner && drop.what != KEY_SESSION)
		return say_error("--owner goes with --session NAME; leave it out");
	if (cli.tenant && drop.what && drop.what != KEY_SESSION)
		return say_error("--tenant beside --space or --key; a space has one tenant: leave it out");
	if (drop.what != KEY_KEY && count > 1)
		return say_error("\"%s\" is one argument too many; it would stand behind --key SPACE", say_name(operand[1]));
	if (drop.what == KEY_KEY && count < 2)
		return say_error("KEY is missing; usage: cairn drop STORE --key SPACE KEY...");
	if (open_store(operand[0], OPEN_WRITE, &store))
		return CLI_ERROR;
	switch (drop.what) {
	case KEY_SESSION:
		status = drop_session(store);
		break;
	case KEY_SPACE:
		status = drop_space(store);
		break;
	case KEY_KEY:
		status = drop_keys(store, operand + 1, count - 1);
		break;
	default:
		status = drop_tenant(store);
	}
	return open_close(store, status);
}

static const struct argp_option drop_options[] = {
	{"session", KEY_SESSION, "NAME", 0, "The session and the blocks that no other session shares (--owner, --tenant)",
     0},
	{"space", KEY_SPACE, "ID", 0, "All parts of a space (the first digits of its id)", 0},
	{"key", KEY_KEY, "SPACE", 0, "The keys that follow, of this space", 0},
	{0},
};

const struct verb verb_drop = {
	.name = "drop",
	.operands = "STORE [KEY...]",
	.summary = "remove for good",
	.text = "Removes from every tier, durably: what was dropped does not come back. Asks first; where there is no "
            "terminal, "
			"it needs --yes. --tenant TENANT alone drops everything of that tenant, its sessions too."
			"\vExamples:\n"
			"  cairn drop /var/cache/cairn --session notes\n"
			"  cairn drop /var/cache/cairn --space 1f03 --yes\n"
			"  cairn drop /var/cache/cairn --tenant acme\n"
			"  cairn drop store --key 1f03 7acd8d1c...5725      # a key has 64 digits\n",
	.options = drop_options,
	.option = drop_option,
	.run = drop_run,
	.shared = VERB_STORE | VERB_JSON | VERB_QUIET | VERB_SESSION | VERB_YES,
	.least = 1,
	.most = UINT32_MAX,
};
