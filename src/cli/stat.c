/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cairn stat`: the figures of a store.
 * Threads: one. Memory: one struct cairn_stat.
 * Invariant: every figure has its unit.
 */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/sample.h"

static uint64_t watch_s; /* 0: once */

static const char *stat_state(uint32_t state)
{
	static const char *const names[] = {"healthy", "writes refused", "gone"};

	return state < 3 ? names[state] : "unlisted";
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *stat_tier_json(uint32_t number, const struct cairn_tier_stat *tier)
{
	json_t *object = json_object();

	json_object_set_new(object, "tier", json_string(say_tier(number)));
	say_json_number(object, "capacity_bytes", tier->capacity_bytes);
	say_json_number(object, "used_bytes", tier->used_bytes);
	say_json_number(object, "parts", tier->parts);
	say_json_number(object, "hits", tier->hits);
	say_json_number(object, "hit_bytes", tier->hit_bytes);
	say_json_number(object, "written_parts", tier->written_parts);
	say_json_number(object, "written_bytes", tier->written_bytes);
	say_json_number(object, "evicted_parts", tier->evicted_parts);
	say_json_number(object, "evicted_bytes", tier->evicted_bytes);
	say_json_number(object, "damaged_parts", tier->damaged_parts);
	say_json_number(object, "errors", tier->errors);
	return object;
}

static json_t *stat_device_json(const struct cairn_device_stat *device)
{
	json_t *object = json_object();

	json_object_set_new(object, "path", say_json(device->path));
	json_object_set_new(object, "state", json_string(stat_state(device->state)));
	say_json_number(object, "segments", device->segments);
	say_json_number(object, "free_segments", device->free_segments);
	say_json_number(object, "open_segments", device->open_segments);
	say_json_number(object, "segment_bytes", device->segment_bytes);
	say_json_number(object, "budget_bytes", device->budget_bytes);
	say_json_number(object, "used_bytes", device->used_bytes);
	say_json_number(object, "live_bytes", device->live_bytes);
	say_json_number(object, "written_bytes", device->written_bytes);
	say_json_number(object, "moved_bytes", device->moved_bytes);
	say_json_number(object, "flushes", device->flushes);
	say_json_number(object, "failed_flushes", device->failed_flushes);
	say_json_number(object, "groups", device->groups);
	json_object_set_new(object, "read_gb_s", json_real(device->read_gb_s));
	json_object_set_new(object, "write_gb_s", json_real(device->write_gb_s));
	json_object_set_new(object, "read_s", json_real(device->read_s));
	json_object_set_new(object, "io_engine", json_string(device->io_engine));
	json_object_set_new(object, "direct", json_boolean(device->direct));
	return object;
}

static const char *stat_peer_state(uint32_t state)
{
	static const char *const names[] = {"well", "stepped over", "tried again"};

	return state < sizeof names / sizeof names[0] ? names[state] : "?";
}

static json_t *stat_peer_json(const struct cairn_peer_stat *peer)
{
	json_t *object = json_object();

	json_object_set_new(object, "place", say_json(peer->place));
	json_object_set_new(object, "state", json_string(stat_peer_state(peer->state)));
	say_json_number(object, "answers", peer->answers);
	say_json_number(object, "late", peer->late);
	say_json_number(object, "failures", peer->failures);
	say_json_number(object, "hits", peer->hits);
	say_json_number(object, "hit_bytes", peer->hit_bytes);
	say_json_number(object, "damaged_parts", peer->damaged_parts);
	json_object_set_new(object, "answer_s", json_real(peer->answer_s));
	json_object_set_new(object, "read_gb_s", json_real(peer->read_gb_s));
	return object;
}

static json_t *stat_why_json(const struct cairn_stat *stat)
{
	json_t *object = json_object();

	for (uint32_t i = 0; i < CAIRN_WHYS; i++)
		if (i != CAIRN_WHY_PRESENT)
			say_json_number(object, cairn_reason_name(i), stat->misses_why[i]);
	return object;
}

static json_t *stat_alarms_json(uint32_t alarms)
{
	json_t *array = json_array();

	for (uint32_t bit = 1; bit && bit <= alarms; bit <<= 1)
		if (alarms & bit)
			json_array_append_new(array, json_string(cairn_alarm_name(bit)));
	return array;
}

json_t *stat_report(const struct cairn_stat *stat)
{
	json_t *report = json_object(), *tiers = json_array(), *devices = json_array(), *catalog = json_object();
	json_t *reopen = json_object(), *peers = json_array();

	for (uint32_t i = 1; i < CAIRN_TIERS; i++)
		if (stat->tier[i].capacity_bytes || stat->tier[i].parts || stat->tier[i].hits)
			json_array_append_new(tiers, stat_tier_json(i, &stat->tier[i]));
	for (uint32_t i = 0; i < stat->ndevices; i++)
		json_array_append_new(devices, stat_device_json(&stat->device[i]));
	for (uint32_t i = 0; i < stat->npeers; i++)
		json_array_append_new(peers, stat_peer_json(&stat->peer[i]));
	say_json_number(catalog, "bytes", stat->catalog_bytes);
	say_json_number(catalog, "entries", stat->catalog_entries);
	say_json_number(catalog, "capacity", stat->catalog_capacity);
	json_object_set_new(reopen, "duration_s", json_real(stat->reopen_s));
	say_json_number(reopen, "read_bytes", stat->reopen_read_bytes);
	say_json_number(reopen, "payload_bytes", stat->reopen_payload_bytes);
	json_object_set_new(report, "tiers", tiers);
	json_object_set_new(report, "devices", devices);
	json_object_set_new(report, "peers", peers);
	json_object_set_new(report, "catalog", catalog);
	json_object_set_new(report, "reopen", reopen);
	say_json_number(report, "sessions", stat->sessions);
	say_json_number(report, "misses", stat->misses);
	json_object_set_new(report, "misses_why", stat_why_json(stat));
	say_json_number(report, "lookups", stat->lookups);
	say_json_number(report, "lookup_tokens", stat->lookup_tokens);
	say_json_number(report, "found_tokens", stat->found_tokens);
	json_object_set_new(report, "memory_age_s", json_real(stat->memory_age_s));
	json_object_set_new(report, "alarms", stat_alarms_json(stat->alarms));
	say_json_number(report, "put_exists", stat->put_exists);
	say_json_number(report, "put_conflicts", stat->put_conflicts);
	say_json_number(report, "dropped_parts", stat->dropped_parts);
	say_json_number(report, "flash_refused_parts", stat->flash_refused_parts);
	say_json_number(report, "flash_refused_bytes", stat->flash_refused_bytes);
	say_json_number(report, "doubtful_parts", stat->doubtful_parts);
	say_json_number(report, "orphan_parts", stat->orphan_parts);
	say_json_number(report, "lost_sessions", stat->lost_sessions);
	say_json_number(report, "copies_extra_bytes", stat->copies_extra_bytes);
	say_json_number(report, "in_flight_bytes", stat->in_flight_bytes);
	say_json_number(report, "in_flight_limit_bytes", stat->in_flight_limit_bytes);
	say_json_number(report, "in_flight_refused", stat->in_flight_refused);
	return report;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static const char *stat_share(uint64_t part, uint64_t all)
{
	static char text[16];

	snprintf(text, sizeof text, "%3.0f %%", all ? 100.0 * (double)part / (double)all : 0.0);
	return text;
}

static void stat_print_tier(uint32_t number, const struct cairn_tier_stat *tier)
{
	printf("%-8s %10s of %10s (%s)  %s\n", say_tier(number), say_size(tier->used_bytes),
	       say_size(tier->capacity_bytes), stat_share(tier->used_bytes, tier->capacity_bytes),
	       say_many(tier->parts, "part", "parts"));
	if (tier->damaged_parts || tier->errors)
		printf("         %s, %s\n", say_many(tier->damaged_parts, "damaged part", "damaged parts"),
		       say_many(tier->errors, "I/O error", "I/O errors"));
}

static void stat_print_device(uint32_t number, const struct cairn_device_stat *device)
{
	printf("device %u %s, %s\n", number, say_name(device->path), stat_state(device->state));
	if (device->io_engine[0])
		printf("         I/O       %s, %s\n", device->io_engine, device->direct ? "O_DIRECT" : "buffered");
	printf("         budget    %s in %s of %s; %" PRIu32 " free\n", say_size(device->budget_bytes),
	       say_many(device->segments, "segment", "segments"), say_size(device->segment_bytes), device->free_segments);
	printf("         live      %s of %s used\n", say_size(device->live_bytes), say_size(device->used_bytes));
	printf("         written   %s since it was opened, of which %s moved; %s, %s failed\n",
	       say_size(device->written_bytes), say_size(device->moved_bytes),
	       say_many(device->flushes, "flush", "flushes"), say_many(device->failed_flushes, "has", "have"));
	if (device->read_gb_s > 0 || device->write_gb_s > 0)
		printf("         measured  read %.2f GB/s, write %.2f GB/s, one read %s\n", device->read_gb_s,
		       device->write_gb_s, say_span(device->read_s));
}

static void stat_print_peer(const struct cairn_peer_stat *peer)
{
	printf("peer     %s, %s\n", say_name(peer->place), stat_peer_state(peer->state));
	printf("         gave      %s, %s\n", say_many(peer->hits, "part", "parts"), say_size(peer->hit_bytes));
	printf("         answered  %s, ", say_many(peer->answers, "time", "times"));
	printf("late %" PRIu64 ", failed %" PRIu64 "\n", peer->late, peer->failures);
	if (peer->damaged_parts)
		printf("         damaged   %s\n", say_many(peer->damaged_parts, "part", "parts"));
	if (peer->answer_s > 0)
		printf("         measured  read %.2f GB/s, answer %s\n", peer->read_gb_s, say_span(peer->answer_s));
}

const char *stat_alarm_text(uint32_t alarm)
{
	return alarm & CAIRN_ALARM_WRITE_ONLY
	           ? "write_only: much is written and less than 1 % of it read; cairn explain compares descriptions"
	           : "no_demotion: memory loses parts that should go to flash, and nothing arrives there";
}

static int stat_text(const struct cairn_stat *stat)
{
	for (uint32_t i = 1; i < CAIRN_TIERS; i++)
		if (stat->tier[i].capacity_bytes || stat->tier[i].parts)
			stat_print_tier(i, &stat->tier[i]);
	for (uint32_t i = 0; i < stat->ndevices; i++)
		stat_print_device(i, &stat->device[i]);
	for (uint32_t i = 0; i < stat->npeers; i++)
		stat_print_peer(&stat->peer[i]);
	printf("catalog  %s of %" PRIu64 " in %s\n", say_many(stat->catalog_entries, "entry", "entries"),
	       stat->catalog_capacity, say_size(stat->catalog_bytes));
	printf("sessions %" PRIu64 "\n", stat->sessions);
	printf("reopen   took %s and read %s, %s of it payload\n", say_span(stat->reopen_s),
	       say_size(stat->reopen_read_bytes), say_size(stat->reopen_payload_bytes));
	if (stat->in_flight_limit_bytes)
		printf("network  %s of %s in flight, %s told to wait\n", say_size(stat->in_flight_bytes),
		       say_size(stat->in_flight_limit_bytes), say_many(stat->in_flight_refused, "request", "requests"));
	if (stat->doubtful_parts || stat->orphan_parts || stat->lost_sessions)
		printf("lost     %s, %s, %s\n", say_many(stat->doubtful_parts, "doubtful part", "doubtful parts"),
		       say_many(stat->orphan_parts, "part without the head of its chain",
		                "parts without the heads of their chains"),
		       say_many(stat->lost_sessions, "session", "sessions"));
	for (uint32_t bit = 1; bit && bit <= stat->alarms; bit <<= 1)
		if (stat->alarms & bit)
			printf("ALARM    %s\n", stat_alarm_text(bit));
	return CLI_WHOLE;
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */

static void watch_line(const struct sample *now, const struct sample *before)
{
	const struct cairn_stat *n = &now->stat, *b = &before->stat;
	const struct cairn_tier_stat *memory = &n->tier[CAIRN_TIER_MEMORY], *flash = &n->tier[CAIRN_TIER_FLASH];
	double seconds = now->at_s - before->at_s, hits = sample_rate(sample_hits(n), sample_hits(b), seconds);
	double misses = sample_rate(n->misses, b->misses, seconds);
	uint64_t read = sample_read(n) - sample_read(b);
	uint64_t written = memory->written_bytes - b->tier[CAIRN_TIER_MEMORY].written_bytes;
	uint64_t down = flash->written_bytes - b->tier[CAIRN_TIER_FLASH].written_bytes;

	if (cli.json) {
		json_t *object = json_object();
		json_object_set_new(object, "seconds", json_real(seconds));
		json_object_set_new(object, "read_bytes_s", json_real((double)read / seconds));
		json_object_set_new(object, "written_bytes_s", json_real((double)written / seconds));
		json_object_set_new(object, "flash_written_bytes_s", json_real((double)down / seconds));
		json_object_set_new(object, "hits_s", json_real(hits));
		json_object_set_new(object, "misses_s", json_real(misses));
		json_object_set_new(object, "lookups_s", json_real(sample_rate(n->lookups, b->lookups, seconds)));
		say_json_number(object, "memory_used_bytes", memory->used_bytes);
		say_json_number(object, "flash_used_bytes", flash->used_bytes);
		json_object_set_new(object, "alarms", stat_alarms_json(n->alarms));
		json_dumpf(object, stdout, JSON_COMPACT);
		putchar('\n');
		json_decref(object);
		return;
	}
	printf("%11s %11s %11s %9.0f %9.0f %6.1f %9.1f %6.0f %6.0f%s%s\n", say_rate(read, seconds),
	       say_rate(written, seconds), say_rate(down, seconds), hits, misses,
	       hits + misses > 0 ? 100 * hits / (hits + misses) : 0.0,
	       sample_rate(n->lookups, b->lookups, seconds),
	       memory->capacity_bytes ? 100.0 * (double)memory->used_bytes / (double)memory->capacity_bytes : 0.0,
	       flash->capacity_bytes ? 100.0 * (double)flash->used_bytes / (double)flash->capacity_bytes : 0.0,
	       n->alarms ? "  ALARM " : "", n->alarms ? cairn_alarm_name(n->alarms) : "");
}

/* A line of rates every so many seconds, until interrupted. */
static int stat_watch(cairn *store)
{
	enum { HEADING = 20 };
	struct sample before, now;
	int status = sample_take(store, 0, &before);

	for (uint32_t line = 0; !status; line++) {
		sample_wait((double)watch_s);
		if (say_stopped)
			break;
		status = sample_take(store, 0, &now);
		if (status)
			break;
		if (!cli.json && line % HEADING == 0)
			printf("%11s %11s %11s %9s %9s %6s %9s %6s %6s\n", "READ", "WRITTEN", "TO FLASH", "HITS/s", "MISSES/s",
			       "HIT %", "LOOKUPS/s", "MEM %", "FLASH%");
		watch_line(&now, &before);
		if (fflush(stdout))
			break;
		before = now;
	}
	return status;
}

static int stat_option(int key, char *value)
{
	(void)key;
	watch_s = 2;
	if (value && (args_duration(value, &watch_s) || !watch_s || watch_s > 86400))
		return say_error("--watch=%s is no time; give seconds, as 5", say_name(value));
	return 0;
}

static int stat_run(char **operand, uint32_t count)
{
	struct cairn_stat stat = {.size = sizeof stat};
	cairn *store;
	int status;

	(void)count;
	if (open_store(operand[0], OPEN_LOOK, &store))
		return CLI_ERROR;
	if (watch_s)
		status = stat_watch(store);
	else if (cairn_stat(store, &stat))
		status = say_error("%s", cairn_error_text());
	else
		status = cli.json ? say_json_end(stat_report(&stat), CLI_WHOLE) : stat_text(&stat);
	return open_close(store, status);
}

static const struct argp_option stat_options[] = {
	{"watch", VERB_KEY, "SECONDS", OPTION_ARG_OPTIONAL, "A line of rates every 2 seconds, or so many", 0},
	{0},
};

const struct verb verb_stat = {
	.name = "stat",
	.operands = "STORE",
	.summary = "figures of tiers and devices",
	.text =
		"Prints how full the tiers and devices of STORE are, what opening it took, and what damage it met. The memory "
		"tier shown is this program's own."
		"\vExamples:\n"
		"  cairn stat /var/cache/cairn\n"
		"  cairn stat /var/cache/cairn --json\n"
		"  cairn stat unix:/var/lib/cairn/cairn.sock --watch=5\n",
	.options = stat_options,
	.option = stat_option,
	.run = stat_run,
	.shared = VERB_STORE | VERB_JSON,
	.least = 1,
	.most = 1,
};
