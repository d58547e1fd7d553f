/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cairn token`: new, list, revoke: who may ask a cairnd over a network.
 * Threads: one. Memory: none.
 * Invariant: the secret is printed once, by new, on stdout, and by nobody else.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

enum {
	KEY_TOKEN_TENANT = VERB_KEY,
	KEY_ADMIN,
	KEY_TTL,
	KEY_CERT
};

static struct cairn_token_desc token;

static int token_option(int key, char *value)
{
	switch (key) {
	case KEY_TOKEN_TENANT:
		if (!*value)
			return say_error("--tenant is empty; name it, or leave it out for \"default\"");
		token.tenant = value;
		return 0;
	case KEY_ADMIN:
		token.flags |= CAIRN_TOKEN_ADMIN;
		return 0;
	case KEY_CERT:
		token.certificate = strcmp(value, "none") ? value : "";
		return 0;
	default:
		if (args_duration(value, &token.ttl_s) || !token.ttl_s)
			return say_error("--ttl %s: not a time; write it like 12h, 30d or 4w", value);
		return 0;
	}
}

static int token_new(const char *directory)
{
	char text[CAIRN_TOKEN_TEXT];

	token.size = sizeof token;
	if (cairn_token_new(directory, &token, text))
		return say_error("%s", cairn_error_text());
	if (cli.json) {
		json_t *report = json_object();

		json_object_set_new(report, "token", json_string(text));
		json_object_set_new(report, "tenant", say_json(token.tenant ? token.tenant : "default"));
		json_object_set_new(report, "admin", json_boolean(token.flags & CAIRN_TOKEN_ADMIN));
		return say_json_end(report, CLI_WHOLE);
	}
	puts(text);
	return CLI_WHOLE;
}

struct token_rows {
	json_t *array; /* NULL: text */
	uint32_t count;
};

static int token_row(void *arg, const struct cairn_token_info *info)
{
	struct token_rows *rows = arg;
	int expired = info->expires_s && (uint64_t)time(NULL) >= info->expires_s;

	if (rows->array) {
		json_t *object = json_object();

		json_object_set_new(object, "id", json_string(info->id));
		json_object_set_new(object, "tenant", say_json(info->tenant));
		json_object_set_new(object, "admin", json_boolean(info->flags & CAIRN_TOKEN_ADMIN));
		say_json_number(object, "made_at_s", info->made_s);
		json_object_set_new(object, "expires_at_s",
		                    info->expires_s ? json_integer((json_int_t)info->expires_s) : json_null());
		json_object_set_new(object, "expired", json_boolean(expired));
		json_array_append_new(rows->array, object);
		return 0;
	}
	if (!rows->count++)
		printf("%-16s  %-5s  %-16s  %-16s  %s\n", "ID", "MAY", "MADE", "EXPIRES", "TENANT");
	printf("%-16s  %-5s  %-16s  %-16s  %s\n", info->id, info->flags & CAIRN_TOKEN_ADMIN ? "admin" : "use",
	       say_time(info->made_s), expired ? "expired" : say_time(info->expires_s), say_name(info->tenant));
	return 0;
}

static int token_list(const char *directory)
{
	struct token_rows rows = {.array = cli.json ? json_array() : NULL};

	if (cairn_token_list(directory, token_row, &rows) < 0) {
		json_decref(rows.array);
		return say_error("%s", cairn_error_text());
	}
	return rows.array ? say_json_end(rows.array, CLI_WHOLE) : CLI_WHOLE;
}

static int token_revoke(const char *directory, const char *id)
{
	int status = cairn_token_revoke(directory, id);

	if (status == CAIRN_E_NOENT)
		return say_not("%s", cairn_error_text());
	if (status)
		return say_error("%s", cairn_error_text());
	say_line("%s: revoked", id);
	return CLI_WHOLE;
}

static int token_run(char **operand, uint32_t count)
{
	static const char *const actions[] = {"new", "list", "revoke"};
	int is_new = !strcmp(operand[0], "new"), is_revoke = !strcmp(operand[0], "revoke");

	if (!is_new && !is_revoke && strcmp(operand[0], "list") != 0) {
		const char *closest = args_closest(operand[0], actions, sizeof actions / sizeof actions[0]);

		return say_error("there is no action \"%s\"; %s%s%s", say_name(operand[0]), closest ? "did you mean \"" : "",
		                 closest ? closest : "known are new, list, revoke", closest ? "\"?" : "");
	}
	if (!is_new && (token.tenant || token.flags || token.ttl_s || token.certificate))
		return say_error("%s takes no --tenant, --admin, --ttl, --cert; they go with new", operand[0]);
	if (is_revoke && count < 3)
		return say_error("ID is missing; usage: cairn token revoke DIRECTORY ID, as cairn token list shows it");
	if (!is_revoke && count > 2)
		return say_error("\"%s\" is one argument too many", say_name(operand[2]));
	return is_new ? token_new(operand[1]) : is_revoke ? token_revoke(operand[1], operand[2]) : token_list(operand[1]);
}

static const struct argp_option token_options[] = {
	{"tenant", KEY_TOKEN_TENANT, "TENANT", 0, "With new: whose it is (\"default\")", 0},
	{"admin", KEY_ADMIN, NULL, 0, "With new: it sees and does everything, of all tenants", 0},
	{"ttl", KEY_TTL, "TIME", 0, "With new: it expires after that long (12h, 30d, 4w); else never", 0},
	{"cert", KEY_CERT, "FILE", 0,
     "With new: name the key of this certificate (tls_cert of the configuration); \"none\": of none", 0},
	{0},
};

const struct verb verb_token = {
	.name = "token",
	.operands = "new|list|revoke DIRECTORY [ID]",
	.summary = "make and revoke tokens for clients on other servers",
	.text =
		"Decides who may ask the cairnd of DIRECTORY over a network (tcp://), while it runs or not.\n"
		"  new     make a token and print it: the only copy of its secret. One line, for a file that only the\n"
		"          client's user can read: ~/.config/cairn/token, or --token FILE\n"
		"  list    those that there are; no secrets\n"
		"  revoke  one is no longer taken, and its connections end within seconds"
		"\vExamples:\n"
		"  cairn token new /var/lib/cairn --tenant chat --ttl 90d | ssh gpu1 'umask 077; cat > ~/.config/cairn/token'\n"
		"  cairn token list /var/lib/cairn\n"
		"  cairn token revoke /var/lib/cairn 1f2e3d4c5b6a7988\n",
	.options = token_options,
	.option = token_option,
	.run = token_run,
	.shared = VERB_JSON | VERB_QUIET,
	.least = 2,
	.most = 3,
};
