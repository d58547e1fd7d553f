/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cairn stat`: the figures of a store.
 * Threads: one. Memory: one struct cairn_stat.
 * Invariant: every figure has its unit.
 */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"

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

static int stat_json(const struct cairn_stat *stat)
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
	say_json_number(report, "put_exists", stat->put_exists);
	say_json_number(report, "put_conflicts", stat->put_conflicts);
	say_json_number(report, "dropped_parts", stat->dropped_parts);
	say_json_number(report, "flash_refused_parts", stat->flash_refused_parts);
	say_json_number(report, "flash_refused_bytes", stat->flash_refused_bytes);
	say_json_number(report, "doubtful_parts", stat->doubtful_parts);
	say_json_number(report, "orphan_parts", stat->orphan_parts);
	say_json_number(report, "lost_sessions", stat->lost_sessions);
	say_json_number(report, "copies_extra_bytes", stat->copies_extra_bytes);
	return say_json_end(report, CLI_WHOLE);
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
	if (stat->doubtful_parts || stat->orphan_parts || stat->lost_sessions)
		printf("lost     %s, %s, %s\n", say_many(stat->doubtful_parts, "doubtful part", "doubtful parts"),
		       say_many(stat->orphan_parts, "part without the head of its chain",
		                "parts without the heads of their chains"),
		       say_many(stat->lost_sessions, "session", "sessions"));
	return CLI_WHOLE;
}

static int stat_run(char **operand, uint32_t count)
{
	struct cairn_stat stat = {.size = sizeof stat};
	cairn *store;
	int status;

	(void)count;
	if (open_store(operand[0], OPEN_LOOK, &store))
		return CLI_ERROR;
	if (cairn_stat(store, &stat))
		status = say_error("%s", cairn_error_text());
	else
		status = cli.json ? stat_json(&stat) : stat_text(&stat);
	return open_close(store, status);
}

const struct verb verb_stat = {
	.name = "stat",
	.operands = "STORE",
	.summary = "figures of tiers and devices",
	.text =
		"Prints how full the tiers and devices of STORE are, what opening it took, and what damage it met. The memory "
		"tier shown is this program's own."
		"\vExamples:\n"
		"  cairn stat /var/cache/cairn\n"
		"  cairn stat /var/cache/cairn --json\n",
	.run = stat_run,
	.shared = VERB_STORE | VERB_JSON,
	.least = 1,
	.most = 1,
};
