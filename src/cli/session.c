/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cairn session`: list, show, pin, unpin, close, forget.
 * Threads: one. Memory: one session.
 * Invariant: what list prints is what `cairn ls` prints.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

enum { KEY_TTL = VERB_KEY };

static uint64_t session_ttl_s;

static int session_option(int key, char *value)
{
	(void)key;
	if (args_duration(value, &session_ttl_s) || !session_ttl_s)
		return say_error("--ttl %s: not a time; write it like 90, 15m, 1h or 2d", value);
	return 0;
}

/* ---- show -------------------------------------------------------------------------------------------------------- */

static int session_show_json(const cairn_session *session, const struct cairn_session_info *info, uint64_t state_bytes)
{
	json_t *report = json_object(), *chains = json_array(), *tails = json_array();
	uint64_t file_bytes;

	json_object_set_new(report, "tenant", say_json(info->tenant));
	json_object_set_new(report, "owner", say_json(info->owner));
	json_object_set_new(report, "name", say_json(info->name));
	say_json_hex(report, "space", info->space_id.bytes, 32);
	say_json_number(report, "epoch", info->epoch);
	say_json_number(report, "bytes", info->bytes);
	say_json_number(report, "tokens", info->tokens);
	say_json_number(report, "saved_at_s", info->saved_at_s);
	json_object_set_new(report, "expires_at_s",
	                    info->expires_at_s ? json_integer((json_int_t)info->expires_at_s) : json_null());
	json_object_set_new(report, "pinned", json_boolean(info->pinned));
	say_json_number(report, "state_bytes", state_bytes);
	if (!file_record_of(session, &file_bytes))
		say_json_number(report, "file_bytes", file_bytes);
	for (uint32_t i = 0; i < info->nchains; i++) {
		struct cairn_chain chain;
		json_t *object = json_object(), *keys = json_array();

		if (cairn_session_chain(session, i, &chain))
			return say_error("%s", cairn_error_text());
		say_json_number(object, "group", chain.group);
		for (size_t j = 0; j < chain.nkeys; j++)
			json_array_append_new(keys, json_string(say_hex(chain.keys[j].bytes, 32)));
		json_object_set_new(object, "keys", keys);
		json_array_append_new(chains, object);
	}
	for (uint32_t i = 0; i < info->ntails; i++) {
		struct cairn_tail_info tail;
		json_t *object = json_object();

		if (cairn_session_tail(session, i, &tail))
			return say_error("%s", cairn_error_text());
		say_json_hex(object, "key", tail.key.bytes, 32);
		say_json_number(object, "group", tail.group);
		say_json_number(object, "part", tail.part);
		say_json_number(object, "bytes", tail.bytes);
		json_array_append_new(tails, object);
	}
	json_object_set_new(report, "chains", chains);
	json_object_set_new(report, "tails", tails);
	return say_json_end(report, CLI_WHOLE);
}

static int session_show_text(const cairn_session *session, const struct cairn_session_info *info, uint64_t state_bytes)
{
	uint64_t file_bytes;
	int kind = file_record_of(session, &file_bytes);

	printf("name     %s\ntenant   %s\nowner    %s\n", say_name(info->name), say_name(info->tenant),
	       *info->owner ? say_name(info->owner) : "-");
	printf("saved    %s, for the %" PRIu64 "%s time\n", say_time(info->saved_at_s), info->epoch,
	       info->epoch % 10 == 1 && info->epoch % 100 != 11   ? "st"
	       : info->epoch % 10 == 2 && info->epoch % 100 != 12 ? "nd"
	       : info->epoch % 10 == 3 && info->epoch % 100 != 13 ? "rd"
	                                                         : "th");
	if (info->pinned)
		printf("kept     until it is unpinned\n");
	else if (info->expires_at_s)
		printf("kept     until %s, then it is forgotten\n", say_time(info->expires_at_s));
	else
		printf("kept     it may be evicted\n");
	printf("size     %s", say_size(info->bytes));
	if (info->tokens)
		printf(", %s", say_many(info->tokens, "token", "tokens"));
	printf("\nspace    %s\n", say_hex(info->space_id.bytes, 32));
	for (uint32_t i = 0; i < info->nchains; i++) {
		struct cairn_chain chain;

		if (cairn_session_chain(session, i, &chain))
			return say_error("%s", cairn_error_text());
		printf("chain    group %u, %s%s%s\n", chain.group, say_many(chain.nkeys, "block", "blocks"),
		       chain.nkeys ? ", last " : "", chain.nkeys ? say_hex(chain.keys[chain.nkeys - 1].bytes, 32) : "");
	}
	for (uint32_t i = 0; i < info->ntails; i++) {
		struct cairn_tail_info tail;

		if (cairn_session_tail(session, i, &tail))
			return say_error("%s", cairn_error_text());
		printf("tail     group %u, part %u, %s, %s\n", tail.group, tail.part, say_size(tail.bytes),
		       say_hex(tail.key.bytes, 32));
	}
	if (!kind)
		printf("state    a file of %s, by cairn put\n", say_size(file_bytes));
	else
		printf("state    %s\n", say_size(state_bytes));
	return CLI_WHOLE;
}

static int session_show(cairn *store, const struct cairn_session_name *name)
{
	struct cairn_session_info info = {.size = sizeof info};
	cairn_session *session;
	uint64_t state_bytes = 0;
	int status = open_session(store, name, &session);

	if (status)
		return status;
	cairn_session_get_info(session, &info);
	cairn_session_state(session, &state_bytes);
	status = (cli.json ? session_show_json : session_show_text)(session, &info, state_bytes);
	cairn_session_free(session);
	return status;
}

/* ---- pin, unpin, close, forget ----------------------------------------------------------------------------------- */

static int session_pin(cairn *store, const struct cairn_session_name *name)
{
	/* Who names a time wants it to end then, which a pin does not. */
	return cairn_session_pin(store, name, !session_ttl_s, session_ttl_s);
}

static int session_unpin(cairn *store, const struct cairn_session_name *name)
{
	return cairn_session_pin(store, name, 0, 0);
}

static const struct session_action {
	const char *name;
	int (*call)(cairn *store, const struct cairn_session_name *name); /* NULL: list or show */
	const char *done;
} session_actions[] = {
	{"list", NULL, NULL},
	{"show", NULL, NULL},
	{"pin", session_pin, "kept until it is unpinned"},
	{"unpin", session_unpin, "may be evicted"},
	{"close", cairn_session_close, "closed: it is evicted before others; it stays saved until then"},
	{"forget", cairn_session_forget, "forgotten; blocks that others share stay"},
};
enum { SESSION_ACTIONS = sizeof session_actions / sizeof session_actions[0] };

static int session_act(cairn *store, const struct session_action *action, const struct cairn_session_name *name)
{
	int status = action->call(store, name);

	if (status == CAIRN_E_NOENT)
		return open_session_missing(store, name);
	if (status)
		return say_error("%s", cairn_error_text());
	if (session_ttl_s)
		say_line("%s: kept for %s, then forgotten", say_name(name->name), say_span((double)session_ttl_s));
	else
		say_line("%s: %s", say_name(name->name), action->done);
	return CLI_WHOLE;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int session_run(char **operand, uint32_t count)
{
	const struct session_action *action = NULL;
	struct cairn_session_name name;
	const char *names[SESSION_ACTIONS];
	cairn *store;

	for (size_t i = 0; i < SESSION_ACTIONS; i++) {
		names[i] = session_actions[i].name;
		if (!strcmp(operand[1], names[i]))
			action = &session_actions[i];
	}
	if (!action) {
		const char *closest = args_closest(operand[1], names, SESSION_ACTIONS);

		return say_error("there is no action \"%s\"; %s%s%s", say_name(operand[1]), closest ? "did you mean \"" : "",
		                 closest ? closest : "known are list, show, pin, unpin, close, forget", closest ? "\"?" : "");
	}
	if (action == &session_actions[0]) {
		if (count > 2)
			return say_error("\"%s\" is one argument too many; show NAME prints one session", say_name(operand[2]));
		return verb_ls.run(operand, 1);
	}
	if (count < 3)
		return say_error("NAME is missing; usage: cairn session STORE %s NAME", action->name);
	if (session_ttl_s && action->call != session_pin)
		return say_error("--ttl with %s; it goes with pin: pin NAME --ttl TIME", action->name);
	if (args_session(operand[2], &name) || open_store(operand[0], action->call ? OPEN_WRITE : OPEN_LOOK, &store))
		return CLI_ERROR;
	return open_close(store, action->call ? session_act(store, action, &name) : session_show(store, &name));
}

static const struct argp_option session_options[] = {
	{"ttl", KEY_TTL, "TIME", 0, "With pin: keep it for that long from now (90, 15m, 1h, 2d), then forget it",
     0},
	{0},
};

const struct verb verb_session = {
	.name = "session",
	.operands = "STORE list|show|pin|unpin|close|forget [NAME]",
	.summary = "show, pin and forget sessions",
	.text = "Looks at the saved sessions of STORE and decides on them.\n"
	        "  list    all of them, as cairn ls does\n"
	        "  show    one: its chains, tails, space\n"
	        "  pin     keep it until it is unpinned, or for --ttl, within the share for pins\n"
	        "  unpin   it may be evicted again, also where it had a time to live\n"
	        "  close   it will not come back: evict it before others\n"
	        "  forget  remove it; blocks that others share stay"
	        "\vExamples:\n"
	        "  cairn session /var/cache/cairn show notes\n"
	        "  cairn session /var/cache/cairn pin notes --owner ada\n"
	        "  cairn session /var/cache/cairn pin notes --ttl 2d      # two days from now\n"
	        "  cairn session /var/cache/cairn forget notes\n",
	.options = session_options,
	.option = session_option,
	.run = session_run,
	.shared = VERB_STORE | VERB_JSON | VERB_QUIET | VERB_SESSION,
	.least = 2,
	.most = 3,
};
