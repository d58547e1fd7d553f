/* SPDX-License-Identifier: Apache-2.0 */
/* What is counted, as Prometheus reads it. See metrics.h; docs/SERVE.md has the table. */
#include "daemon/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/text.h"
#include "store/store.h"

static const double bounds_s[METRICS_BUCKETS - 1] = {1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2,
                                                     2e-2, 5e-2, 0.1,  0.2,  0.5,  1,    2,    5,    10};

static const char *const tiers[CAIRN_TIERS] = {"none", "memory", "flash", "object", "peer"};

const char *metrics_type(uint32_t type)
{
	static const char *const names[WIRE_TYPES] = {
		[WIRE_HELLO] = "hello",
		[WIRE_DESCRIBE] = "describe",
		[WIRE_PUT] = "put",
		[WIRE_GET] = "get",
		[WIRE_LEASE] = "lease",
		[WIRE_RELEASE] = "release",
		[WIRE_MATCH] = "match",
		[WIRE_MATCH_RELEASE] = "match_release",
		[WIRE_HINT] = "hint",
		[WIRE_SAVE] = "save",
		[WIRE_RESUME] = "resume",
		[WIRE_FORGET] = "forget",
		[WIRE_CLOSE] = "close",
		[WIRE_PIN] = "pin",
		[WIRE_SESSIONS] = "sessions",
		[WIRE_SPACES] = "spaces",
		[WIRE_PARTS] = "parts",
		[WIRE_EXPLAIN] = "explain",
		[WIRE_DROP] = "drop",
		[WIRE_STAT] = "stat",
		[WIRE_EVENTS] = "events",
		[WIRE_SYNC] = "sync",
		[WIRE_STAGE] = "stage",
		[WIRE_SPACE] = "space",
		[WIRE_FETCH] = "fetch",
		[WIRE_MATCH_JOIN] = "match_join",
		[WIRE_MATCH_AGREE] = "match_agree",
		[WIRE_TENANTS] = "tenants",
		[WIRE_PRESENCE] = "presence",
		[WIRE_CLIENTS] = "clients",
		[WIRE_SNAPSHOT] = "snapshot",
	};	return type < WIRE_TYPES && names[type] ? names[type] : "other";
}

void metrics_request(struct metrics *metrics, uint32_t type, uint64_t ns, int failed)
{
	struct metrics_request *request = &metrics->requests[type < METRICS_TYPES ? type : 0];
	uint32_t at = 0;
	while (at < METRICS_BUCKETS - 1 && (double)ns / 1e9 > bounds_s[at])
		at++;
	atomic_fetch_add_explicit(&request->buckets[at], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&request->ns, ns, memory_order_relaxed);
	atomic_fetch_add_explicit(&request->done, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&request->failed, failed != 0, memory_order_relaxed);
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void family(struct text *text, const char *name, const char *type, const char *help)
{
	text_add(text, "# HELP cairn_%s %s\n# TYPE cairn_%s %s\n", name, help, name, type);
}

static void one(struct text *text, const char *name, const char *type, const char *help, uint64_t value)
{
	family(text, name, type, help);
	text_add(text, "cairn_%s %" PRIu64 "\n", name, value);
}

/* A family with a line for each tier that is there. `offset`: of a u64 in struct cairn_tier_stat. */
/* A store has it: of peers' it holds nothing itself. */
static int tier_there(const struct cairn_stat *stat, uint32_t tier)
{
	return stat->tier[tier].capacity_bytes || (tier == CAIRN_TIER_PEER && stat->npeers);
}

static void of_tiers(struct text *text, const struct cairn_stat *stat, const char *name, const char *type,
                     const char *help, size_t offset)
{
	family(text, name, type, help);
	for (uint32_t i = 1; i < CAIRN_TIERS; i++) {
		uint64_t value;
		memcpy(&value, (const char *)&stat->tier[i] + offset, sizeof(value));
		if (tier_there(stat, i))
			text_add(text, "cairn_%s{tier=\"%s\"} %" PRIu64 "\n", name, tiers[i], value);
	}
}
#define OF_TIERS(field, name, type, help)                                                                              \
	of_tiers(text, stat, name, type, help, offsetof(struct cairn_tier_stat, field))

static void tiers_write(struct text *text, const struct cairn_stat *stat)
{
	OF_TIERS(capacity_bytes, "tier_capacity_bytes", "gauge", "Bytes that a tier may hold.");
	OF_TIERS(used_bytes, "tier_used_bytes", "gauge", "Bytes of a tier that are taken.");
	OF_TIERS(parts, "tier_parts", "gauge", "Parts in a tier.");
	OF_TIERS(hits, "tier_hits_total", "counter", "Parts delivered from a tier, checked.");
	OF_TIERS(hit_bytes, "tier_hit_bytes_total", "counter", "Bytes delivered from a tier, checked.");
	OF_TIERS(written_parts, "tier_written_parts_total", "counter", "Parts taken into a tier.");
	OF_TIERS(written_bytes, "tier_written_bytes_total", "counter", "Bytes taken into a tier.");
	OF_TIERS(evicted_parts, "tier_evicted_parts_total", "counter", "Parts evicted from a tier to make room.");
	OF_TIERS(evicted_bytes, "tier_evicted_bytes_total", "counter", "Bytes evicted from a tier to make room.");
	OF_TIERS(damaged_parts, "tier_damaged_parts_total", "counter", "Parts of a tier that failed their check.");
	OF_TIERS(errors, "tier_errors_total", "counter", "Errors of a tier's medium.");
}

static void use_write(struct text *text, const struct cairn_stat *stat)
{
	uint64_t read = 0, written = stat->tier[CAIRN_TIER_MEMORY].written_bytes;
	family(text, "misses_total", "counter", "Parts that were asked for and not there, by why they were not.");
	for (uint32_t i = 0; i < CAIRN_WHYS; i++)
		if (i != CAIRN_WHY_PRESENT)
			text_add(text, "cairn_misses_total{reason=\"%s\"} %" PRIu64 "\n", cairn_reason_name(i),
			         stat->misses_why[i]);
	for (uint32_t i = 1; i < CAIRN_TIERS; i++)
		read += stat->tier[i].hit_bytes;
	family(text, "read_written_ratio", "gauge", "Bytes delivered per byte taken in, since the start.");
	text_add(text, "cairn_read_written_ratio %.6g\n", written ? (double)read / (double)written : 0.0);
	family(text, "lookups_total", "counter", "Matches, by how much of the chain was there.");
	text_add(text,
	         "cairn_lookups_total{found=\"whole\"} %" PRIu64 "\ncairn_lookups_total{found=\"part\"} %" PRIu64
	         "\ncairn_lookups_total{found=\"none\"} %" PRIu64 "\n",
	         stat->lookups_whole, stat->lookups_part, stat->lookups - stat->lookups_whole - stat->lookups_part);
	one(text, "lookup_tokens_total", "counter", "Tokens that matches asked for.", stat->lookup_tokens);
	one(text, "found_tokens_total", "counter", "Tokens that matches found.", stat->found_tokens);
	family(text, "found_bytes_total", "counter", "Bytes that matches found, by the fastest tier that has them.");
	for (uint32_t i = 1; i < CAIRN_TIERS; i++)
		if (tier_there(stat, i))
			text_add(text, "cairn_found_bytes_total{tier=\"%s\"} %" PRIu64 "\n", tiers[i], stat->found_bytes[i]);
	family(text, "memory_eviction_age_seconds", "gauge",
	       "How long ago what memory evicts was used last; 0: nothing was.");
	text_add(text, "cairn_memory_eviction_age_seconds %.3f\n", stat->memory_age_s);
	one(text, "put_exists_total", "counter", "Puts of parts that were there.", stat->put_exists);
	one(text, "put_conflicts_total", "counter", "Puts of other bytes under a key that was there.", stat->put_conflicts);
	one(text, "dropped_parts_total", "counter", "Parts dropped on request.", stat->dropped_parts);
	one(text, "doubtful_parts_total", "counter", "Parts discarded because damage made them doubtful.",
	    stat->doubtful_parts);
	one(text, "orphan_parts_total", "counter", "Parts removed because the head of their chain was gone.",
	    stat->orphan_parts);
	one(text, "lost_sessions_total", "counter", "Sessions lost to damage.", stat->lost_sessions);
	one(text, "flash_refused_parts_total", "counter", "Parts that left memory unwritten, over the write budget.",
	    stat->flash_refused_parts);
	one(text, "flash_refused_bytes_total", "counter", "Bytes that left memory unwritten, over the write budget.",
	    stat->flash_refused_bytes);
	family(text, "alarm", "gauge", "1 while an alarm stands.");
	for (uint32_t bit = CAIRN_ALARM_WRITE_ONLY; bit <= CAIRN_ALARM_NO_DEMOTION; bit <<= 1)
		text_add(text, "cairn_alarm{kind=\"%s\"} %d\n", cairn_alarm_name(bit), (stat->alarms & bit) != 0);
}

static void store_write(struct text *text, const struct cairn_stat *stat, const struct store_load *load)
{
	one(text, "catalog_entries", "gauge", "Entries of the catalog in use.", stat->catalog_entries);
	one(text, "catalog_capacity_entries", "gauge", "Entries that the catalog has room for.", stat->catalog_capacity);
	one(text, "catalog_bytes", "gauge", "Memory of the catalog.", stat->catalog_bytes);
	one(text, "leased_bytes", "gauge", "Bytes leased now.", stat->leased_bytes);
	one(text, "matches", "gauge", "Matches open now.", stat->matches);
	one(text, "sessions", "gauge", "Sessions saved.", stat->sessions);
	one(text, "device_requests", "gauge", "Requests to flash devices in flight.", load->requests);
	one(text, "device_requests_limit", "gauge", "Most requests to flash devices in flight.", load->requests_max);
	one(text, "dirty_bytes", "gauge", "Bytes of memory on their way to flash.", load->dirty_bytes);
	one(text, "dirty_limit_bytes", "gauge", "Most bytes of memory on their way to flash.", load->dirty_max_bytes);
	one(text, "events_total", "counter", "Stored and removed events: the sequence number of the last.", load->events);
	family(text, "reopen_seconds", "gauge", "How long the last open took.");
	text_add(text, "cairn_reopen_seconds %.3f\n", stat->reopen_s);
	one(text, "reopen_read_bytes", "gauge", "Bytes that the last open read.", stat->reopen_read_bytes);
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static void of_devices(struct text *text, const struct cairn_stat *stat, const char *name, const char *type,
                       const char *help, double (*value)(const struct cairn_device_stat *device))
{
	family(text, name, type, help);
	for (uint32_t i = 0; i < stat->ndevices; i++) {
		text_add(text, "cairn_%s{device=", name);
		text_quoted(text, stat->device[i].path);
		text_add(text, "} %.17g\n", value(&stat->device[i]));
	}
}
#define DEVICE_VALUE(field, expression)                                                                                \
	static double device_##field(const struct cairn_device_stat *device)                                               \
	{                                                                                                                  \
		return (double)(expression);                                                                                   \
	}
DEVICE_VALUE(state, device->state)
DEVICE_VALUE(free, device->free_segments)
DEVICE_VALUE(segments, device->segments)
DEVICE_VALUE(budget, device->budget_bytes)
DEVICE_VALUE(used, device->used_bytes)
DEVICE_VALUE(live, device->live_bytes)
DEVICE_VALUE(written, device->written_bytes)
DEVICE_VALUE(moved, device->moved_bytes)
DEVICE_VALUE(flushes, device->flushes)
DEVICE_VALUE(failed, device->failed_flushes)
DEVICE_VALUE(read_rate, device->read_gb_s * 1e9)
DEVICE_VALUE(write_rate, device->write_gb_s * 1e9)
DEVICE_VALUE(read_s, device->read_s)

static void devices_write(struct text *text, const struct cairn_stat *stat)
{
	of_devices(text, stat, "device_state", "gauge", "0 healthy, 1 writes refused, 2 gone.", device_state);
	of_devices(text, stat, "device_segments", "gauge", "Segments of a device.", device_segments);
	of_devices(text, stat, "device_free_segments", "gauge", "Segments that nothing lies in.", device_free);
	of_devices(text, stat, "device_budget_bytes", "gauge", "Most bytes on a device.", device_budget);
	of_devices(text, stat, "device_used_bytes", "gauge", "Bytes of a device that are taken.", device_used);
	of_devices(text, stat, "device_live_bytes", "gauge", "Bytes of a device that are found.", device_live);
	of_devices(text, stat, "device_written_bytes_total", "counter", "Bytes written to the medium.", device_written);
	of_devices(text, stat, "device_moved_bytes_total", "counter", "Bytes of them carried over.", device_moved);
	of_devices(text, stat, "device_flushes_total", "counter", "Flushes.", device_flushes);
	of_devices(text, stat, "device_failed_flushes_total", "counter", "Flushes that failed.", device_failed);
	of_devices(text, stat, "device_read_bytes_per_second", "gauge", "Measured; 0: not yet.", device_read_rate);
	of_devices(text, stat, "device_write_bytes_per_second", "gauge", "Measured; 0: not yet.", device_write_rate);
	of_devices(text, stat, "device_read_seconds", "gauge", "One read, smoothed.", device_read_s);
}

/* ---- peers ------------------------------------------------------------------------------------------------------- */

static void of_peers(struct text *text, const struct cairn_stat *stat, const char *name, const char *type,
                     const char *help, double (*value)(const struct cairn_peer_stat *peer))
{
	if (!stat->npeers)
		return;
	family(text, name, type, help);
	for (uint32_t i = 0; i < stat->npeers; i++) {
		text_add(text, "cairn_%s{peer=", name);
		text_quoted(text, stat->peer[i].place);
		text_add(text, "} %.17g\n", value(&stat->peer[i]));
	}
}
#define PEER_VALUE(field)                                                                                              \
	static double peer_##field(const struct cairn_peer_stat *peer)                                                     \
	{                                                                                                                  \
		return (double)peer->field;                                                                                    \
	}
PEER_VALUE(state)
PEER_VALUE(answers)
PEER_VALUE(late)
PEER_VALUE(failures)
PEER_VALUE(hits)
PEER_VALUE(hit_bytes)
PEER_VALUE(damaged_parts)
PEER_VALUE(answer_s)

static void peers_write(struct text *text, const struct cairn_stat *stat)
{
	of_peers(text, stat, "peer_state", "gauge", "0 well, 1 stepped over, 2 tried again.", peer_state);
	of_peers(text, stat, "peer_answers_total", "counter", "Answers to what it was asked.", peer_answers);
	of_peers(text, stat, "peer_late_total", "counter", "Answers and parts that came too late.", peer_late);
	of_peers(text, stat, "peer_failures_total", "counter", "Times that it failed.", peer_failures);
	of_peers(text, stat, "peer_hits_total", "counter", "Parts that came from it, checked.", peer_hits);
	of_peers(text, stat, "peer_hit_bytes_total", "counter", "Bytes of them.", peer_hit_bytes);
	of_peers(text, stat, "peer_damaged_parts_total", "counter", "Parts that failed their check.", peer_damaged_parts);
	of_peers(text, stat, "peer_answer_seconds", "gauge", "Until an answer, smoothed; 0: not yet.", peer_answer_s);
}

/* ---- spaces ------------------------------------------------------------------------------------------------------ */

struct space_line {
	struct cairn_space_info info;
	char model[64];
};
struct space_lines {
	uint32_t n;
	uint64_t all;
	struct cairn_space_info rest;
	struct space_line at[METRICS_SPACES];
};

/* "model = NAME" of a description's text. */
static void model_of(const char *text, char *ret, size_t max)
{
	const char *at = text;
	while (at && strncmp(at, "model = ", 8) != 0)
		at = (at = strchr(at, '\n')) ? at + 1 : NULL;
	size_t length = at ? strcspn(at + 8, "\n") : 0;
	length = length < max ? length : max - 1;
	if (at)
		memcpy(ret, at + 8, length);
	ret[length] = 0;
}

static void rest_add(struct cairn_space_info *rest, const struct cairn_space_info *info)
{
	rest->misses += info->misses;
	rest->written_bytes += info->written_bytes;
	for (uint32_t i = 0; i < CAIRN_TIERS; i++) {
		rest->tier_bytes[i] += info->tier_bytes[i];
		rest->tier_parts[i] += info->tier_parts[i];
		rest->hit_bytes[i] += info->hit_bytes[i];
	}
}

/* The largest stay; the smallest of them makes room for a larger one. */
static int space_take(void *arg, const struct cairn_space_info *info)
{
	struct space_lines *lines = arg;
	uint32_t at = lines->n;
	lines->all++;
	if (lines->n < METRICS_SPACES) {
		lines->n++;
	} else {
		at = 0;
		for (uint32_t i = 1; i < METRICS_SPACES; i++)
			if (lines->at[i].info.bytes < lines->at[at].info.bytes)
				at = i;
		if (lines->at[at].info.bytes >= info->bytes) {
			rest_add(&lines->rest, info);
			return 0;
		}
		rest_add(&lines->rest, &lines->at[at].info);
	}
	lines->at[at].info = *info;
	model_of(info->text, lines->at[at].model, sizeof(lines->at[at].model));
	return 0;
}

static void space_name(struct text *text, const struct space_lines *lines, uint32_t i)
{
	if (i == lines->n) {
		text_add(text, "{space=\"other\",model=\"\"");
		return;
	}
	text_add(text, "{space=\"");
	for (int k = 0; k < 6; k++)
		text_add(text, "%02x", lines->at[i].info.id.bytes[k]);
	text_add(text, "\",model=");
	text_quoted(text, lines->at[i].model);
}

static void of_spaces(struct text *text, const struct space_lines *lines, const char *name, const char *type,
                      const char *help, size_t offset, int per_tier)
{
	family(text, name, type, help);
	for (uint32_t i = 0; i < lines->n + (lines->all > lines->n); i++)
		for (uint32_t t = per_tier ? CAIRN_TIER_MEMORY : 0; t <= (per_tier ? CAIRN_TIER_FLASH : 0u); t++) {
			const struct cairn_space_info *info = i < lines->n ? &lines->at[i].info : &lines->rest;
			uint64_t value;
			memcpy(&value, (const char *)info + offset + t * sizeof(value), sizeof(value));
			text_add(text, "cairn_%s", name);
			space_name(text, lines, i);
			if (per_tier)
				text_add(text, ",tier=\"%s\"", tiers[t]);
			text_add(text, "} %" PRIu64 "\n", value);
		}
}
#define OF_SPACES(field, name, type, help, per_tier)                                                                   \
	of_spaces(text, lines, name, type, help, offsetof(struct cairn_space_info, field), per_tier)

static void spaces_write(struct text *text, cairn *store)
{
	struct space_lines *lines = mem_alloc(sizeof(*lines));
	if (!lines || cairn_list_spaces(store, space_take, lines) < 0) {
		text->failed = 1;
		mem_free(lines);
		return;
	}
	one(text, "spaces", "gauge", "Spaces that have parts or were described.", lines->all);
	OF_SPACES(tier_bytes, "space_bytes", "gauge", "Bytes of a space in a tier.", 1);
	OF_SPACES(tier_parts, "space_parts", "gauge", "Parts of a space in a tier.", 1);
	OF_SPACES(hit_bytes, "space_hit_bytes_total", "counter", "Bytes of a space delivered from a tier.", 1);
	OF_SPACES(misses, "space_misses_total", "counter", "Parts of a space that were not there.", 0);
	OF_SPACES(written_bytes, "space_written_bytes_total", "counter", "Bytes of a space taken in.", 0);
	mem_free(lines);
}

/* ---- tenants ----------------------------------------------------------------------------------------------------- */

struct tenant_lines {
	uint32_t n;
	struct {
		struct cairn_tenant_stat stat;
		char name[256];
	} at[CAIRN_TENANTS_MAX];
};

static int tenant_take(void *arg, const struct cairn_tenant_stat *stat)
{
	struct tenant_lines *lines = arg;
	if (lines->n == CAIRN_TENANTS_MAX)
		return 1;
	lines->at[lines->n].stat = *stat;
	snprintf(lines->at[lines->n++].name, sizeof(lines->at[0].name), "%s", stat->tenant ? stat->tenant : "");
	return 0;
}

static void of_tenants(struct text *text, const struct tenant_lines *lines, const char *name, const char *type,
                       const char *help, const size_t offsets[2], int per_tier)
{
	family(text, name, type, help);
	for (uint32_t i = 0; i < lines->n; i++)
		for (uint32_t t = 0; t <= (uint32_t)per_tier; t++) {
			uint64_t value;
			memcpy(&value, (const char *)&lines->at[i].stat + offsets[t], sizeof(value));
			text_add(text, "cairn_%s{tenant=", name);
			text_quoted(text, lines->at[i].name);
			if (per_tier)
				text_add(text, ",tier=\"%s\"", tiers[CAIRN_TIER_MEMORY + t]);
			text_add(text, "} %" PRIu64 "\n", value);
		}
}
#define TENANT_AT(field) offsetof(struct cairn_tenant_stat, field)
#define OF_TENANTS(name, type, help, ...)                                                                              \
	of_tenants(text, lines, name, type, help, (const size_t[2]){__VA_ARGS__},                                          \
	           sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t) - 1)

static void tenants_write(struct text *text, cairn *store)
{
	struct tenant_lines *lines = mem_alloc(sizeof(*lines));
	if (!lines || cairn_list_tenants(store, tenant_take, lines) < 0) {
		text->failed = 1;
		mem_free(lines);
		return;
	}
	OF_TENANTS("tenant_bytes", "gauge", "Bytes of a tenant in a tier, as its quota counts them.",
	           TENANT_AT(memory_bytes), TENANT_AT(flash_bytes));
	OF_TENANTS("tenant_quota_bytes", "gauge", "Most bytes of a tenant in a tier; 0: no quota.",
	           TENANT_AT(memory_quota_bytes), TENANT_AT(flash_quota_bytes));
	OF_TENANTS("tenant_reserved_bytes", "gauge", "Bytes of a tier that are kept for a tenant.",
	           TENANT_AT(memory_reserved_bytes), TENANT_AT(flash_reserved_bytes));
	OF_TENANTS("tenant_leased_bytes", "gauge", "Bytes that a tenant has leased.", TENANT_AT(leased_bytes));
	OF_TENANTS("tenant_hit_bytes_total", "counter", "Bytes delivered to a tenant from a tier.",
	           TENANT_AT(hit_bytes[CAIRN_TIER_MEMORY]), TENANT_AT(hit_bytes[CAIRN_TIER_FLASH]));
	OF_TENANTS("tenant_misses_total", "counter", "Parts that a tenant asked for and that were not there.",
	           TENANT_AT(misses));
	OF_TENANTS("tenant_written_bytes_total", "counter", "Bytes that a tenant put.", TENANT_AT(written_bytes));
	OF_TENANTS("tenant_evicted_bytes_total", "counter", "Bytes of a tenant evicted from a tier.",
	           TENANT_AT(evicted_bytes[CAIRN_TIER_MEMORY]), TENANT_AT(evicted_bytes[CAIRN_TIER_FLASH]));
	OF_TENANTS("tenant_quota_refused_total", "counter", "Parts that found no room within a tenant's quota.",
	           TENANT_AT(quota_refused));
	mem_free(lines);
}

/* ---- cairnd ------------------------------------------------------------------------------------------------------ */

static uint64_t count_of(atomic_ullong *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void requests_write(struct text *text, struct metrics *metrics)
{
	family(text, "request_seconds", "histogram", "Time to answer requests, by type.");
	for (uint32_t type = 1; type < METRICS_TYPES && type < WIRE_TYPES; type++) {
		struct metrics_request *request = &metrics->requests[type];
		uint64_t sum = 0;
		for (uint32_t i = 0; i < METRICS_BUCKETS; i++) {
			sum += count_of(&request->buckets[i]);
			text_add(text, "cairn_request_seconds_bucket{type=\"%s\",le=\"", metrics_type(type));
			if (i < METRICS_BUCKETS - 1)
				text_add(text, "%g\"} %" PRIu64 "\n", bounds_s[i], sum);
			else
				text_add(text, "+Inf\"} %" PRIu64 "\n", sum);
		}
		text_add(text,
		         "cairn_request_seconds_sum{type=\"%s\"} %.9f\ncairn_request_seconds_count{type=\"%s\"} %" PRIu64 "\n",
		         metrics_type(type), (double)count_of(&request->ns) / 1e9, metrics_type(type), sum);
	}
	family(text, "requests_failed_total", "counter", "Requests that were answered with an error, by type.");
	for (uint32_t type = 1; type < WIRE_TYPES; type++)
		text_add(text, "cairn_requests_failed_total{type=\"%s\"} %" PRIu64 "\n", metrics_type(type),
		         count_of(&metrics->requests[type].failed));
}

static void daemon_write(struct text *text, struct daemon *daemon)
{
	struct log_stat log;
	uint64_t clients = 0, conns;
	pthread_mutex_lock(&daemon->lock);
	for (const struct list *node = daemon->clients.next; node != &daemon->clients; node = node->next)
		clients++;
	conns = daemon->nconns;
	pthread_mutex_unlock(&daemon->lock);
	log_stat(&log);
	one(text, "clients", "gauge", "Clients connected.", clients);
	one(text, "connections", "gauge", "Connections open.", conns);
	one(text, "connections_limit", "gauge", "Most connections.", DAEMON_CONNS);
	one(text, "connections_total", "counter", "Connections accepted.", count_of(&daemon->metrics.conns));
	one(text, "connections_refused_total", "counter", "Connections refused: too many, or no memory.",
	    count_of(&daemon->metrics.conns_refused));
	one(text, "clients_total", "counter", "Clients that have come.", count_of(&daemon->metrics.clients));
	struct traffic_stat traffic;
	traffic_stat(daemon, &traffic);
	one(text, "in_flight_bytes", "gauge", "Bytes of requests and replies that are under way.", traffic.used);
	one(text, "in_flight_limit_bytes", "gauge", "Most bytes of them.", traffic.max);
	one(text, "in_flight_refused_total", "counter", "Times that a client was told to wait for it.", traffic.refused);
	one(text, "reloads_total", "counter", "Configurations taken.", count_of(&daemon->metrics.reloads));
	one(text, "reloads_failed_total", "counter", "Configurations refused.", count_of(&daemon->metrics.reloads_failed));
	family(text, "log_lines_total", "counter", "Lines of the log, by level.");
	for (int i = 0; i <= LOG_DEBUG; i++)
		text_add(text, "cairn_log_lines_total{level=\"%s\"} %" PRIu64 "\n", log_level_name((enum log_level)i),
		         log.lines[i]);
	one(text, "log_suppressed_total", "counter", "Lines of the log that were over their budget.", log.suppressed);
	requests_write(text, &daemon->metrics);
}

void metrics_write(struct daemon *daemon, struct text *text)
{
	struct cairn_stat *stat = mem_alloc(sizeof(*stat));
	struct store_load load;
	if (!stat) {
		text->failed = 1;
		return;
	}
	stat->size = sizeof(*stat);
	if (cairn_stat(daemon->store, stat))
		text->failed = 1;
	store_load(daemon->store, &load);
	family(text, "build_info", "gauge", "The version that runs.");
	text_add(text, "cairn_build_info{version=\"%s\"} 1\n", CAIRN_VERSION);
	tiers_write(text, stat);
	use_write(text, stat);
	store_write(text, stat, &load);
	devices_write(text, stat);
	peers_write(text, stat);
	tenants_write(text, daemon->store);
	spaces_write(text, daemon->store);
	daemon_write(text, daemon);
	mem_free(stat);
}
