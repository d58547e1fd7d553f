/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A router that begins anew: how long a snapshot of a large catalog takes through a cairnd, in the library and as lines
 * of `cairn events`, and how long the gets of others wait meanwhile. Once of a full catalog, once of one that is nearly
 * empty and has been full.
 *
 *     torture_resync DIRECTORY PARTS CAIRN
 *
 * The parts are entries of the catalog alone, made by its own functions: nothing of a snapshot reads payload.
 * Threads: the one that takes the snapshot, and one that gets. Fails where a snapshot takes longer than 10 s for 2
 * million parts, or a get longer than half a second.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "lib/serving.h"
#include "store/store.h"

enum {
	PART = 65536,
	BLOCKS = 32, /* that are got, in turn */
	STALL_MS = 500, /* a machine that is busy with something else has such a moment */
};

static int failures;
static cairn_digest weights = {{1}};

static double now_s(void)
{
	return (double)clock_mono_ns(&clock_real) / 1e9;
}

static cairn_key key_of(uint32_t number)
{
	cairn_key key = {{0}};
	memset(key.bytes, 9, sizeof key.bytes);
	memcpy(key.bytes, &number, sizeof number);
	return key;
}

static cairn_space *space_of(cairn *store)
{
	cairn_space *space;
	struct cairn_space_desc desc = {
		.size = sizeof desc, .model = "m", .weights = &weights, .kv_dtype = "f16", .block_tokens = 16};
	if (cairn_describe(store, &desc, &space)) {
		fprintf(stderr, "torture_resync: %s\n", cairn_error_text());
		exit(1);
	}
	return space;
}

static cairn *client_of(struct serving *serving)
{
	cairn *client;
	struct cairn_options options = {.size = sizeof options};
	if (cairn_open(serving->place, &options, &client)) {
		fprintf(stderr, "torture_resync: %s\n", cairn_error_text());
		exit(1);
	}
	return client;
}

/* ---- the catalog ------------------------------------------------------------------------------------------------- */

/* As if so many parts were in flash. */
static void fill(cairn *own, uint32_t space, uint32_t parts, uint32_t *entries)
{
	struct random random;
	uint8_t prefix[16];
	random_init(&random, 1);
	pthread_mutex_lock(&own->lock);
	for (uint32_t i = 0; i < parts; i++) {
		for (int at = 0; at < 16; at += 8)
			bytes_set64(prefix + at, random_next(&random));
		entries[i] = catalog_insert(own->catalog, space, prefix, 0);
		if (!entries[i]) {
			fprintf(stderr, "torture_resync: the catalog has no room for %u parts\n", parts);
			exit(1);
		}
		struct catalog_entry *e = catalog_at(own->catalog, entries[i]);
		e->flags |= CATALOG_FLASH;
		e->length = PART;
		catalog_set_birth(e, i + 1);
	}
	pthread_mutex_unlock(&own->lock);
}

/* All but each `keep`th; 0: all. */
static void empty(cairn *own, uint32_t parts, uint32_t keep, uint32_t *entries)
{
	pthread_mutex_lock(&own->lock);
	for (uint32_t i = 0; i < parts; i++) {
		if (!entries[i] || (keep && i % keep == 0))
			continue;
		catalog_at(own->catalog, entries[i])->flags &= (uint8_t)~CATALOG_FLASH;
		catalog_remove(own->catalog, entries[i]);
		entries[i] = 0;
	}
	pthread_mutex_unlock(&own->lock);
}

/* ---- gets of others ---------------------------------------------------------------------------------------------- */

struct getter {
	struct serving *serving;
	pthread_t thread;
	atomic_int stop;
	double longest_s, sum_s;
	atomic_long gets;
};

static void *getter_main(void *arg)
{
	struct getter *getter = arg;
	cairn *client = client_of(getter->serving);
	cairn_space *space = space_of(client);
	uint8_t *bytes = malloc(PART);
	while (!atomic_load(&getter->stop)) {
		struct cairn_buf buf = cairn_buf_of(bytes, PART);
		uint32_t number = (uint32_t)atomic_load(&getter->gets) % BLOCKS;
		struct cairn_item item = {.key = key_of(number), .bufs = &buf, .nbufs = 1};
		double begun = now_s();
		if (cairn_get(client, space, &item, 1, NULL) != 1) {
			fprintf(stderr, "torture_resync: a get failed: %s\n", cairn_error_text());
			exit(1);
		}
		double took = now_s() - begun;
		getter->longest_s = took > getter->longest_s ? took : getter->longest_s;
		getter->sum_s += took;
		atomic_fetch_add(&getter->gets, 1);
	}
	free(bytes);
	cairn_close(client);
	return NULL;
}

static void getter_start(struct getter *getter, struct serving *serving)
{
	*getter = (struct getter){.serving = serving};
	if (pthread_create(&getter->thread, NULL, getter_main, getter))
		exit(1);
	while (atomic_load(&getter->gets) < 100)
		usleep(1000);
}

static void getter_end(struct getter *getter, const char *beside)
{
	atomic_store(&getter->stop, 1);
	pthread_join(getter->thread, NULL);
	printf("  gets beside %s: %ld, %.0f us each, the longest %.1f ms\n", beside, atomic_load(&getter->gets),
	       getter->sum_s * 1e6 / (double)atomic_load(&getter->gets), getter->longest_s * 1e3);
	if (getter->longest_s * 1e3 > STALL_MS) {
		failures++;
		fprintf(stderr, "torture_resync: a get waited for %.0f ms beside %s\n", getter->longest_s * 1e3, beside);
	}
}

/* ---- snapshots --------------------------------------------------------------------------------------------------- */

static int count(void *arg, const struct cairn_present *present)
{
	*(uint64_t *)arg += present->tiers != 0;
	return 0;
}

static void judge(const char *what, double took_s, uint64_t found, uint64_t expected, uint32_t parts)
{
	printf("  %s: %.2f s for %llu parts\n", what, took_s, (unsigned long long)found);
	if (found != expected || took_s > 10.0 * parts / 2e6 + 0.5) {
		failures++;
		fprintf(stderr, "torture_resync: %s: %llu of %llu parts in %.2f s\n", what, (unsigned long long)found,
		        (unsigned long long)expected, took_s);
	}
}

static void by_library(struct serving *serving, uint64_t expected, uint32_t parts)
{
	struct getter getter;
	uint64_t sequence, life, found = 0;
	cairn *client = client_of(serving);
	getter_start(&getter, serving);
	double begun = now_s();
	if (cairn_snapshot(client, &sequence, &life, count, &found) < 0) {
		failures++;
		fprintf(stderr, "torture_resync: %s\n", cairn_error_text());
	}
	double took = now_s() - begun;
	getter_end(&getter, "it");
	judge("cairn_snapshot", took, found, expected, parts);
	cairn_close(client);
}

static void by_program(struct serving *serving, const char *program, uint64_t expected, uint32_t parts)
{
	static const char *const forms[] = {"", " --json"};
	for (int form = 0; form < 2; form++) {
		struct getter getter;
		char command[1024], line[1024], what[64];
		uint64_t found = 0;
		snprintf(command, sizeof command, "'%s' events '%s' --snapshot%s", program, serving->place, forms[form]);
		getter_start(&getter, serving);
		double begun = now_s();
		FILE *lines = popen(command, "r");
		while (lines && fgets(line, sizeof line, lines))
			found += line[0] != '#' && !strstr(line, "\"kind\"");
		int status = lines ? pclose(lines) : -1;
		double took = now_s() - begun;
		snprintf(what, sizeof what, "cairn events --snapshot%s", forms[form]);
		getter_end(&getter, "it");
		judge(what, took, status ? 0 : found, expected, parts);
	}
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: torture_resync DIRECTORY PARTS CAIRN\n");
		return 2;
	}
	uint32_t parts = (uint32_t)strtoul(argv[2], NULL, 10);
	uint32_t *entries = calloc(parts, sizeof *entries);
	static struct serving serving;
	static uint8_t bytes[PART];
	char socket[160];
	cairn *own;
	struct cairn_options options = {.size = sizeof options,
	                                .flags = CAIRN_OPEN_NO_FLASH,
	                                .memory_bytes = 32u << 20,
	                                .catalog_bytes = 62ull * parts + (16u << 20),
	                                .event_hashes_bytes = 56ull * parts};
	if (!entries || cairn_open(NULL, &options, &own)) {
		fprintf(stderr, "torture_resync: %s\n", cairn_error_text());
		return 1;
	}
	cairn_space *space = space_of(own);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		struct cairn_buf buf = cairn_buf_of(bytes, PART);
		struct cairn_item item = {.key = key_of(i), .bufs = &buf, .nbufs = 1};
		if (cairn_put(own, space, &item, 1, NULL) != 1)
			return 1;
	}
	snprintf(socket, sizeof socket, "%s/socket", argv[1]);
	if (serving_start(&serving, own, socket, 0))
		return 1;
	struct getter getter;
	getter_start(&getter, &serving);
	usleep(1000000);
	getter_end(&getter, "nothing");
	printf("%u parts:\n", parts);
	fill(own, space->number, parts, entries);
	by_library(&serving, parts + BLOCKS, parts);
	by_program(&serving, argv[3], parts + BLOCKS, parts);
	printf("the same catalog, nearly empty:\n");
	empty(own, parts, 100000, entries);
	by_library(&serving, (parts + 99999) / 100000 + BLOCKS, parts);
	empty(own, parts, 0, entries);
	serving_stop(&serving);
	if (cairn_close(own))
		failures++;
	free(entries);
	return failures != 0;
}
