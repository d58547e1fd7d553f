/* SPDX-License-Identifier: Apache-2.0 */
/* A store's figures at one moment. See sample.h. */
#include "cli/sample.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct sample_row *row_add(struct sample_list *list)
{
	if (list->count == SAMPLE_ROWS)
		return NULL;
	if (list->count % 64 == 0) {
		struct sample_row *grown = reallocarray(list->rows, list->count + 64, sizeof *grown);

		if (!grown)
			return NULL;
		list->rows = grown;
	}
	return memset(&list->rows[list->count++], 0, sizeof list->rows[0]);
}

static void name_set(char to[64], const char *name)
{
	snprintf(to, 64, "%.63s", say_name(name ? name : ""));
}

static int tenant_take(void *arg, const struct cairn_tenant_stat *stat)
{
	struct sample_list *list = arg;
	struct sample_row *row = row_add(list);

	if (!row)
		return 1;
	name_set(row->name, stat->tenant && *stat->tenant ? stat->tenant : "-");
	memcpy(row->id, row->name, sizeof row->id);
	row->memory_bytes = stat->memory_bytes;
	row->flash_bytes = stat->flash_bytes;
	row->quota_bytes = stat->memory_quota_bytes;
	for (int i = 0; i < CAIRN_TIERS; i++)
		row->read_bytes += stat->hit_bytes[i];
	row->written_bytes = stat->written_bytes;
	row->misses = stat->misses;
	return 0;
}

/* The value of a line "FIELD = VALUE" of a description. */
static void field_copy(const char *text, const char *field, char to[64])
{
	size_t length = strlen(field);
	char value[64];

	for (const char *at = text; at; at = (at = strchr(at, '\n')) ? at + 1 : NULL)
		if (!strncmp(at, field, length) && !strncmp(at + length, " = ", 3)) {
			snprintf(value, sizeof value, "%.*s", (int)strcspn(at + length + 3, "\n"), at + length + 3);
			name_set(to, value);
			return;
		}
}

static int space_take(void *arg, const struct cairn_space_info *info)
{
	struct sample_list *list = arg;
	struct sample_row *row = row_add(list);

	if (!row)
		return 1;
	memcpy(row->id, info->id.bytes, sizeof row->id);
	snprintf(row->name, sizeof row->name, "%s", say_hex(info->id.bytes, 6));
	field_copy(info->text, "model", row->more);
	row->memory_bytes = info->tier_bytes[CAIRN_TIER_MEMORY];
	row->flash_bytes = info->tier_bytes[CAIRN_TIER_FLASH];
	for (int i = 0; i < CAIRN_TIERS; i++)
		row->read_bytes += info->hit_bytes[i];
	row->written_bytes = info->written_bytes;
	row->misses = info->misses;
	return 0;
}

static int client_take(void *arg, const struct cairn_client_info *info)
{
	struct sample_list *list = arg;
	struct sample_row *row = row_add(list);

	if (!row)
		return 1;
	memcpy(row->id, &info->number, sizeof info->number);
	name_set(row->name, info->program);
	if (*info->address)
		name_set(row->more, info->address);
	row->pid = info->pid;
	row->leases = info->leases;
	row->requests = info->requests;
	row->read_bytes = info->read_bytes;
	row->written_bytes = info->written_bytes;
	return 0;
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int sample_take(cairn *store, int all, struct sample *ret_sample)
{
	memset(ret_sample, 0, sizeof *ret_sample);
	ret_sample->stat.size = sizeof ret_sample->stat;
	if (cairn_stat(store, &ret_sample->stat) ||
	    (all && (cairn_list_tenants(store, tenant_take, &ret_sample->tenants) < 0 ||
	             cairn_list_spaces(store, space_take, &ret_sample->spaces) < 0 ||
	             cairn_list_clients(store, client_take, &ret_sample->clients) < 0))) {
		sample_done(ret_sample);
		return say_error("%s", cairn_error_text());
	}
	ret_sample->at_s = now_s();
	return 0;
}

void sample_done(struct sample *sample)
{
	free(sample->tenants.rows);
	free(sample->spaces.rows);
	free(sample->clients.rows);
	sample->tenants = sample->spaces = sample->clients = (struct sample_list){0};
}

double sample_rate(uint64_t now, uint64_t before, double seconds)
{
	return now > before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

uint64_t sample_read(const struct cairn_stat *stat)
{
	uint64_t bytes = 0;

	for (int i = 0; i < CAIRN_TIERS; i++)
		bytes += stat->tier[i].hit_bytes;
	return bytes;
}

uint64_t sample_hits(const struct cairn_stat *stat)
{
	uint64_t hits = 0;

	for (int i = 0; i < CAIRN_TIERS; i++)
		hits += stat->tier[i].hits;
	return hits;
}

const struct sample_row *sample_find(const struct sample_list *list, const uint8_t id[32])
{
	for (size_t i = 0; i < list->count; i++)
		if (!memcmp(list->rows[i].id, id, 32))
			return &list->rows[i];
	return NULL;
}

void sample_wait(double seconds)
{
	double until = now_s() + seconds;

	for (double left; !say_stopped && (left = until - now_s()) > 0;) {
		double step = left < 0.2 ? left : 0.2;
		struct timespec wait = {.tv_nsec = (long)(step * 1e9)};
		nanosleep(&wait, NULL);
	}
}
