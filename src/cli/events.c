/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cairn events`: what came and went, and all that is there, as routers see it.
 * Threads: one. Memory: a batch of events.
 * Invariant: a gap in the numbers, and another life of the store, are said; nothing is left out without a word.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/sample.h"

enum {
	KEY_FOLLOW = VERB_KEY,
	KEY_AFTER,
	KEY_SNAPSHOT
};
enum {
	EVENTS_BATCH = 1024
};

static struct {
	int follow, snapshot;
	uint64_t after;
} events;

static void print_json(json_t *object)
{
	json_dumpf(object, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(object);
}

static void print_event(const struct cairn_event *event)
{
	const char *kind = event->kind == CAIRN_EVENT_STORED ? "stored" : event->kind ? "removed" : "hidden";

	if (!cli.json) {
		printf("%" PRIu64 " %-7s %-6s %s %s part %" PRIu32 "%s%s%s%s\n", event->sequence, kind, say_tier(event->tier),
		       say_hex(event->space_id.bytes, 6), say_hex(event->key_prefix, 16), event->part,
		       event->kind == CAIRN_EVENT_REMOVED ? " " : "",
		       event->kind == CAIRN_EVENT_REMOVED ? cairn_reason_name(event->reason) : "",
		       event->hash_bytes ? " hash " : "", say_hex(event->engine_hash, event->hash_bytes));
		return;
	}
	json_t *object = json_object();
	say_json_number(object, "sequence", event->sequence);
	say_json_number(object, "life", event->life);
	json_object_set_new(object, "kind", json_string(kind));
	json_object_set_new(object, "tier", json_string(say_tier(event->tier)));
	json_object_set_new(object, "reason", json_string(cairn_reason_name(event->reason)));
	say_json_hex(object, "space", event->space_id.bytes, 32);
	say_json_hex(object, "key_prefix", event->key_prefix, 16);
	say_json_number(object, "part", event->part);
	say_json_number(object, "birth", event->birth);
	say_json_hex(object, "engine_hash", event->engine_hash, event->hash_bytes);
	print_json(object);
}

/* What a reader of these lines must know: that it has missed some. */
static void print_break(const char *what, uint64_t from, uint64_t to)
{
	if (cli.json)
		print_json(json_pack("{s:s,s:I,s:I}", "kind", what, "after", (json_int_t)from, "sequence", (json_int_t)to));
	else
		printf("# %s: what is there must be asked for anew (--snapshot); from %" PRIu64 " to %" PRIu64 "\n", what, from,
		       to);
}

static int events_list(cairn *store)
{
	struct cairn_event *some = calloc(EVENTS_BATCH, sizeof *some);
	uint64_t life = 0, after = events.after;
	int status = CLI_WHOLE;

	if (!some)
		return say_error("out of memory; free some and try again");
	while (!say_stopped) {
		long n = cairn_events(store, after, some, EVENTS_BATCH);
		if (n < 0) {
			status = say_error("%s", cairn_error_text());
			break;
		}
		for (long i = 0; i < n; i++) {
			if (life && some[i].life != life)
				print_break("another life", after, some[i].sequence);
			else if (after && some[i].sequence != after + 1)
				print_break("gap", after, some[i].sequence);
			life = some[i].life;
			after = some[i].sequence;
			print_event(&some[i]);
		}
		if (n == EVENTS_BATCH)
			continue;
		if (!events.follow || fflush(stdout))
			break;
		sample_wait(0.2);
	}
	free(some);
	return status;
}

/* ---- a snapshot: millions of lines, so they are put together by hand --------------------------------------------- */

static struct lines {
	char bytes[65536];
	size_t used;
} lines;

static void lines_flush(void)
{
	fwrite(lines.bytes, 1, lines.used, stdout);
	lines.used = 0;
}

static void lines_text(const char *text)
{
	size_t length = strlen(text);

	memcpy(lines.bytes + lines.used, text, length);
	lines.used += length;
}

static void lines_hex(const uint8_t *bytes, size_t length)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < length; i++) {
		lines.bytes[lines.used++] = digits[bytes[i] >> 4];
		lines.bytes[lines.used++] = digits[bytes[i] & 15];
	}
}

static void lines_number(uint64_t number)
{
	char digits[24];
	size_t at = sizeof digits;

	do
		digits[--at] = (char)('0' + number % 10);
	while (number /= 10);
	memcpy(lines.bytes + lines.used, digits + at, sizeof digits - at);
	lines.used += sizeof digits - at;
}

/* In the words that `json_object` would have; nothing in them needs a backslash. */
static void present_json(const struct cairn_present *present)
{
	lines_text("{\"space\":\"");
	lines_hex(present->space_id.bytes, 32);
	lines_text("\",\"key_prefix\":\"");
	lines_hex(present->key_prefix, 16);
	lines_text("\",\"part\":");
	lines_number(present->part);
	lines_text(present->tiers >> CAIRN_TIER_MEMORY & 1 ? ",\"memory\":true" : ",\"memory\":false");
	lines_text(present->tiers >> CAIRN_TIER_FLASH & 1 ? ",\"flash\":true,\"bytes\":" : ",\"flash\":false,\"bytes\":");
	lines_number(present->bytes);
	lines_text(",\"birth\":");
	lines_number(present->birth);
	lines_text(",\"engine_hash\":\"");
	lines_hex(present->engine_hash, present->hash_bytes);
	lines_text("\"}\n");
}

static void present_text(const struct cairn_present *present)
{
	static const char *const tiers[] = {"", "", " memory ", "", " flash ", "", " memory flash "};
	static uint64_t bytes;
	static char size[32]; /* of blocks one is as large as the last one, mostly */

	if (present->bytes != bytes || !size[0])
		snprintf(size, sizeof size, "%s", say_size(present->bytes));
	bytes = present->bytes;
	lines_hex(present->space_id.bytes, 6);
	lines_text(" ");
	lines_hex(present->key_prefix, 16);
	lines_text(" part ");
	lines_number(present->part);
	lines_text(present->tiers < 7 ? tiers[present->tiers] : " other ");
	lines_text(size);
	if (present->hash_bytes)
		lines_text(" hash ");
	lines_hex(present->engine_hash, present->hash_bytes);
	lines_text("\n");
}

static int print_present(void *arg, const struct cairn_present *present)
{
	(void)arg;
	if (lines.used > sizeof lines.bytes - 1024)
		lines_flush();
	if (cli.json)
		present_json(present);
	else
		present_text(present);
	return say_stopped;
}

static int events_snapshot(cairn *store)
{
	uint64_t sequence, life;
	long n = cairn_snapshot(store, &sequence, &life, print_present, NULL);

	lines_flush();
	if (n < 0)
		return say_error("%s", cairn_error_text());
	if (cli.json)
		print_json(json_pack("{s:s,s:I,s:I,s:I}", "kind", "snapshot", "parts", (json_int_t)n, "sequence",
		                     (json_int_t)sequence, "life", (json_int_t)life));
	else
		printf("# %s, as of event %" PRIu64 "\n", say_many((uint64_t)n, "part", "parts"), sequence);
	events.after = sequence;
	return CLI_WHOLE;
}

static int events_option(int key, char *value)
{
	if (key == KEY_FOLLOW)
		events.follow = 1;
	else if (key == KEY_SNAPSHOT)
		events.snapshot = 1;
	else if (args_number(value, INT64_MAX, &events.after))
		return say_error("--after %s is no number of an event", say_name(value));
	return 0;
}

static int events_run(char **operand, uint32_t count)
{
	cairn *store;
	int status = CLI_WHOLE;

	(void)count;
	if (open_store(operand[0], OPEN_LOOK, &store))
		return CLI_ERROR;
	if (events.snapshot)
		status = events_snapshot(store);
	if (!status && (!events.snapshot || events.follow))
		status = events_list(store);
	return open_close(store, status);
}

static const struct argp_option events_options[] = {
	{"after", KEY_AFTER, "NUMBER", 0, "Those behind this one (all that are kept)", 0},
	{"snapshot", KEY_SNAPSHOT, NULL, 0, "First all parts that are there, and the number as of which", 0},
	{"follow", KEY_FOLLOW, NULL, 0, "Go on with those that come, until interrupted", 0},
	{0},
};

const struct verb verb_events = {
	.name = "events",
	.operands = "STORE",
	.summary = "what is stored and removed, for routers",
	.text = "Prints what was stored and removed in STORE, in order: one line each, with its number, or as JSON. Of a "
			"store that is opened by this program alone these are the parts that it found."
			"\vExamples:\n"
			"  cairn events /var/lib/cairn --follow --json\n"
			"  cairn events unix:/var/lib/cairn/cairn.sock --snapshot --follow\n",
	.options = events_options,
	.option = events_option,
	.run = events_run,
	.shared = VERB_STORE | VERB_JSON,
	.least = 1,
	.most = 1,
};
