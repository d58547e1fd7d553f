/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cairn explain`: why two spaces are not the same, and where a key or the blocks of a session are, or why not.
 * Threads: one. Memory: two descriptions, or one session.
 * Invariant: exit status 0 means "the same" or "all there".
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"

enum { KEY_SPACE = VERB_KEY, KEY_PART, KEY_NAME };
enum { EXPLAIN_SHOWN = 20 }; /* blocks that are named when they are not there */

static struct explain {
	const char *space;
	uint64_t part;
	int name; /* the second operand is a session's name, whatever it looks like */
} explain;

static int explain_option(int key, char *value)
{
	switch (key) {
	case KEY_SPACE:
		explain.space = value;
		return 0;
	case KEY_PART:
		if (args_number(value, 63, &explain.part))
			return say_error("--part %s: not a part's number, 0 to 63", value);
		return 0;
	default:
		explain.name = 1;
		return 0;
	}
}

/* ---- two descriptions -------------------------------------------------------------------------------------------- */

static int explain_print_diff(const struct desc *a, const struct desc *b)
{
	long length = cairn_explain_desc(&a->desc, &b->desc, NULL, 0);

	if (length < 0)
		return say_error("%s", cairn_error_text());
	char *text = malloc((size_t)length + 1);

	if (!text)
		return say_error("out of memory; free some and try again");
	cairn_explain_desc(&a->desc, &b->desc, text, (size_t)length + 1);
	if (cli.json) {
		cairn_digest id_a, id_b;
		json_t *report = json_object(), *lines = json_array();

		cairn_space_id(&a->desc, &id_a);
		cairn_space_id(&b->desc, &id_b);
		json_object_set_new(report, "same", json_boolean(!length));
		say_json_hex(report, "a", id_a.bytes, 32);
		say_json_hex(report, "b", id_b.bytes, 32);
		for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
			json_array_append_new(lines, say_json(line));
		json_object_set_new(report, "differences", lines);
		free(text);
		return say_json_end(report, length ? CLI_NOT : CLI_WHOLE);
	}
	if (length)
		fputs(text, stdout);
	else
		say_line("the same space");
	free(text);
	return length ? CLI_NOT : CLI_WHOLE;
}

static int explain_spaces(const char *file_a, const char *file_b)
{
	struct desc a, b;
	int status = desc_read(file_a, &a);

	if (!status) {
		status = desc_read(file_b, &b);
		status = status ? status : explain_print_diff(&a, &b);
		desc_done(&b);
	}
	desc_done(&a);
	return status;
}

/* ---- one key ----------------------------------------------------------------------------------------------------- */

const char *explain_reason(uint32_t reason)
{
	static const char *const texts[] = {
		[CAIRN_WHY_NONE] = "never seen, or forgotten",
		[CAIRN_WHY_PRESENT] = "there",
		[CAIRN_WHY_EVICTED] = "evicted to make room",
		[CAIRN_WHY_DROPPED] = "dropped on request",
		[CAIRN_WHY_DAMAGED] = "damaged: it failed its check",
		[CAIRN_WHY_DEVICE] = "lost with its device, or while it was written",
		[CAIRN_WHY_ORPHAN] = "removed because the head of its chain is gone",
		[CAIRN_WHY_DOUBTFUL] = "discarded: damage made it unsure whether it had been dropped",
		[CAIRN_WHY_EXPIRED] = "removed with its session",
	};

	return reason < sizeof texts / sizeof texts[0] ? texts[reason] : "unlisted";
}

static json_t *explain_json(const cairn_digest *space, const struct cairn_explanation *found)
{
	json_t *object = json_object();

	say_json_hex(object, "space", space->bytes, 32);
	json_object_set_new(object, "reason", json_string(cairn_reason_name(found->reason)));
	json_object_set_new(object, "tier", json_string(say_tier(found->tier)));
	say_json_number(object, "uses", found->uses);
	json_object_set_new(object, "when_s", found->when_s ? json_integer((json_int_t)found->when_s) : json_null());
	json_object_set_new(object, "bytes", found->bytes ? json_integer((json_int_t)found->bytes) : json_null());
	return object;
}

static void explain_print(const cairn_digest *space, const struct cairn_explanation *found)
{
	printf("space %.16s, part %" PRIu64 ": %s", say_hex(space->bytes, 32), explain.part, explain_reason(found->reason));
	if (found->tier)
		printf(", %s %s", found->reason == CAIRN_WHY_PRESENT ? "in" : "was last in", say_tier(found->tier));
	if (found->bytes)
		printf(", %s", say_size(found->bytes));
	if (found->uses)
		printf(", %s", say_many(found->uses, "use", "uses"));
	if (found->when_s)
		printf(", %s", say_time(found->when_s));
	putchar('\n');
}

static int explain_key(cairn *store, const cairn_key *key)
{
	struct space_row *rows;
	const struct space_row *only = NULL;
	size_t count, known = 0, there = 0;
	json_t *array = cli.json ? json_array() : NULL;
	int status = open_list_spaces(store, &rows, &count);

	if (!status && explain.space)
		status = open_find_space(rows, count, explain.space, &only);
	if (status)
		return status;
	for (size_t i = 0; i < count; i++) {
		struct cairn_explanation found = {.size = sizeof found};
		const cairn_digest *space = &rows[i].info.id;

		if (only && &rows[i] != only)
			continue;
		if (cairn_explain(store, space, key, (uint32_t)explain.part, &found))
			return say_error("%s", cairn_error_text());
		if (found.reason == CAIRN_WHY_NONE && !only)
			continue;
		known++;
		there += found.reason == CAIRN_WHY_PRESENT;
		if (cli.json)
			json_array_append_new(array, explain_json(space, &found));
		else
			explain_print(space, &found);
	}
	status = there ? CLI_WHOLE : CLI_NOT;
	if (cli.json)
		return say_json_end(json_pack("{s:s, s:I, s:o}", "key", say_hex(key->bytes, 32), "part",
		                              (json_int_t)explain.part, "found", array), status);
	if (!known)
		say_line("never seen, or forgotten, in any of %s", say_many(count, "space", "spaces"));
	return status;
}

/* ---- a session --------------------------------------------------------------------------------------------------- */

/* What was found of the blocks of a session. */
struct summary {
	uint64_t all, there, tiers[CAIRN_TIERS], reasons[CAIRN_WHY_EXPIRED + 1];
	uint64_t shown;
	json_t *gone;
};

static int summary_add(struct summary *summary, cairn *store, const cairn_digest *space, const cairn_key *key,
                       uint32_t part, const char *what, uint64_t number)
{
	struct cairn_explanation found = {.size = sizeof found};

	if (cairn_explain(store, space, key, part, &found))
		return say_error("%s", cairn_error_text());
	summary->all++;
	if (found.reason == CAIRN_WHY_PRESENT) {
		summary->there++;
		summary->tiers[found.tier < CAIRN_TIERS ? found.tier : 0]++;
		return 0;
	}
	summary->reasons[found.reason <= CAIRN_WHY_EXPIRED ? found.reason : 0]++;
	if (cli.json) {
		json_t *object = explain_json(space, &found);

		json_object_set_new(object, "what", json_string(what));
		say_json_number(object, "number", number);
		say_json_number(object, "part", part);
		say_json_hex(object, "key", key->bytes, 32);
		json_array_append_new(summary->gone, object);
	} else if (summary->shown++ < EXPLAIN_SHOWN) {
		printf("%s %" PRIu64 "  %s  %s\n", what, number, say_hex(key->bytes, 32), explain_reason(found.reason));
	}
	return 0;
}

static int summary_collect(struct summary *summary, cairn *store, const cairn_session *session,
                           const struct cairn_session_info *info)
{
	for (uint32_t i = 0; i < info->nchains; i++) {
		struct cairn_chain chain;

		if (cairn_session_chain(session, i, &chain))
			return say_error("%s", cairn_error_text());
		for (size_t j = 0; j < chain.nkeys; j++)
			if (summary_add(summary, store, &info->space_id, &chain.keys[j], (uint32_t)explain.part, "block", j))
				return CLI_ERROR;
	}
	for (uint32_t i = 0; i < info->ntails; i++) {
		struct cairn_tail_info tail;

		if (cairn_session_tail(session, i, &tail))
			return say_error("%s", cairn_error_text());
		if (summary_add(summary, store, &info->space_id, &tail.key, tail.part, "tail", i))
			return CLI_ERROR;
	}
	return 0;
}

static int summary_print(struct summary *summary, const struct cairn_session_info *info)
{
	int status = summary->there == summary->all ? CLI_WHOLE : CLI_NOT;

	if (cli.json) {
		json_t *report = json_object(), *tiers = json_object();

		json_object_set_new(report, "name", say_json(info->name));
		say_json_hex(report, "space", info->space_id.bytes, 32);
		json_object_set_new(report, "whole", json_boolean(!status));
		say_json_number(report, "blocks_and_tails", summary->all);
		say_json_number(report, "there", summary->there);
		for (uint32_t i = 1; i < CAIRN_TIERS; i++)
			say_json_number(tiers, say_tier(i), summary->tiers[i]);
		json_object_set_new(report, "there_by_tier", tiers);
		json_object_set_new(report, "gone", summary->gone);
		return say_json_end(report, status);
	}
	if (summary->shown > EXPLAIN_SHOWN)
		printf("... and %" PRIu64 " more\n", summary->shown - EXPLAIN_SHOWN);
	printf(
		"\"%s\": %" PRIu64 " of %s there", say_name(info->name), summary->there,
		say_many(summary->all, info->ntails ? "block or tail" : "block", info->ntails ? "blocks and tails" : "blocks"));
	for (uint32_t i = 1; i < CAIRN_TIERS; i++)
		if (summary->tiers[i])
			printf(", %" PRIu64 " in %s", summary->tiers[i], say_tier(i));
	for (uint32_t i = 0; i <= CAIRN_WHY_EXPIRED; i++)
		if (summary->reasons[i])
			printf("; %" PRIu64 " %s", summary->reasons[i], explain_reason(i));
	putchar('\n');
	return status;
}

static int explain_session(cairn *store, const char *text)
{
	struct cairn_session_info info = {.size = sizeof info};
	struct summary summary = {.gone = cli.json ? json_array() : NULL};
	struct cairn_session_name name;
	cairn_session *session;
	int status = args_session(text, &name);

	status = status ? status : open_session(store, &name, &session);
	if (status)
		return status;
	cairn_session_get_info(session, &info);
	status = summary_collect(&summary, store, session, &info);
	status = status ? status : summary_print(&summary, &info);
	cairn_session_free(session);
	return status;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int explain_is_key(const char *text)
{
	return strlen(text) == 64 && strspn(text, "0123456789abcdefABCDEF") == 64;
}

static int explain_run(char **operand, uint32_t count)
{
	struct stat info;
	cairn_key key;
	cairn *store;

	(void)count;
	if (!strcmp(operand[0], "-") || (!stat(operand[0], &info) && !S_ISDIR(info.st_mode)))
		return explain_spaces(operand[0], operand[1]);
	if (open_store(operand[0], OPEN_LOOK, &store))
		return CLI_ERROR;
	if (explain.name || !explain_is_key(operand[1]))
		return open_close(store, explain_session(store, operand[1]));
	args_hex(operand[1], key.bytes, sizeof key.bytes);
	return open_close(store, explain_key(store, &key));
}

static const struct argp_option explain_options[] = {
	{"space", KEY_SPACE, "ID", 0, "Look in this space alone (the first digits of its id)", 0},
	{"part", KEY_PART, "NUMBER", 0, "Look at this part of blocks (0)", 0},
	{"name", KEY_NAME, NULL, 0, "The second word is a session's name, also when it looks like a key", 0},
	{0},
};

const struct verb verb_explain = {
	.name = "explain",
	.operands = "STORE|A.space KEY|NAME|B.space",
	.summary = "why there is a miss",
	.text = "Says why something is not found.\n"
	        "  A.space B.space  in which fields two descriptions differ\n"
	        "  STORE KEY        in which tier a key is, or was last, and why it is gone\n"
	        "  STORE NAME       the same for each block of a session, in short\n"
	        "Status 1: they differ, or it is not all there."
	        "\vExamples:\n"
	        "  cairn explain qwen-a.space qwen-b.space\n"
	        "  cairn explain /var/cache/cairn notes\n"
	        "  cairn explain store 7acd8d1c...5725 --space 1f03   # a key has 64 digits\n",
	.options = explain_options,
	.option = explain_option,
	.run = explain_run,
	.shared = VERB_STORE | VERB_JSON | VERB_SESSION,
	.least = 2,
	.most = 2,
};
