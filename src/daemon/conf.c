/* SPDX-License-Identifier: Apache-2.0 */
/* cairnd's configuration. See conf.h. */
#include "daemon/conf.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/check.h"
#include "base/mem.h"
#include "daemon/admin.h"
#include "daemon/traffic.h"
#include "net/link.h"
#include "store/peer.h"
#include "policy/alarm.h"

enum conf_type {
	CONF_TEXT,
	CONF_SIZE,
	CONF_COUNT,
	CONF_SECONDS,
	CONF_PERCENT,
	CONF_MODE,
	CONF_WORD,
	CONF_ADMIN,
	CONF_MINUTES,
	CONF_WAIT,
	CONF_PLACES,
	CONF_DEVICES,
	CONF_LIMITS,
};

struct conf_text {
	struct conf_text *next;
	char text[];
};

static const struct conf_key {
	const char *name;
	enum conf_type type;
	size_t offset; /* in struct conf */
	const char *expected;
	int live;      /* takes effect without a restart */
} conf_keys[] = {
	{"dir", CONF_TEXT, offsetof(struct conf, dir), "the path of a directory", 0},
	{"listen", CONF_PLACES, offsetof(struct conf, listen),
	 "places as unix:PATH, tcp://HOST:PORT or tcp+plain://HOST:PORT", 1},
	{"memory", CONF_SIZE, offsetof(struct conf, memory_bytes), "a size as 512MiB or 64GiB", 0},
	{"catalog", CONF_SIZE, offsetof(struct conf, catalog_bytes), "a size as 512MiB", 0},
	{"flash", CONF_DEVICES, 0, "devices, each with path and, perhaps, budget", 0},
	{"write_budget", CONF_SIZE, offsetof(struct conf, write_bytes_day), "a size as 2TiB, of a day", 0},
	{"free_floor", CONF_SIZE, offsetof(struct conf, free_floor_bytes), "a size as 10GiB", 0},
	{"segment", CONF_SIZE, offsetof(struct conf, segment_bytes), "a power of two from 1MiB to 1GiB", 0},
	{"in_flight", CONF_SIZE, offsetof(struct conf, in_flight_bytes), "a size as 128MiB", 1},
	{"io_threads", CONF_COUNT, offsetof(struct conf, io_threads), "a number from 1 to 64", 0},
	{"pin_share", CONF_PERCENT, offsetof(struct conf, pin_share_percent), "a percentage from 1 to 100", 0},
	{"peers", CONF_PLACES, offsetof(struct conf, peers), "places of other cairnds, as tcp://HOST:PORT", 0},
	{"peer_wait_ms", CONF_WAIT, offsetof(struct conf, peer_wait_ms), "milliseconds from 1 to 10000", 0},
	{"socket_mode", CONF_MODE, offsetof(struct conf, socket_mode), "permission bits in octal, as 0600", 1},
	{"admin", CONF_ADMIN, offsetof(struct conf, admin), "HOST:PORT, or off", 1},
	{"alarm_minutes", CONF_MINUTES, offsetof(struct conf, alarm_minutes), "a number from 1 to 10080", 1},
	{"tls_cert", CONF_TEXT, offsetof(struct conf, tls_cert), "the file of a certificate in PEM", 1},
	{"tls_key", CONF_TEXT, offsetof(struct conf, tls_key), "the file of that certificate's private key in PEM", 1},
	{"stop_seconds", CONF_SECONDS, offsetof(struct conf, stop_seconds), "a number of seconds from 1 to 3600", 1},
	{"event_hashes", CONF_SIZE, offsetof(struct conf, event_hashes_bytes), "a size as 64MiB", 0},
	{"log", CONF_WORD, offsetof(struct conf, log), "text or json", 1},
	{"log_level", CONF_WORD, offsetof(struct conf, log_level), "error, warning, info or debug", 1},
	{"tenants", CONF_LIMITS, 0, "names of tenants (\"*\": all others), each with its limits", 1},
};
/* The words of keys of type CONF_WORD, by their numbers from 1 on. */
static const char *const conf_words_log[] = {"text", "json", NULL};
static const char *const conf_words_level[] = {"error", "warning", "info", "debug", NULL};
enum { CONF_KEYS = sizeof(conf_keys) / sizeof(conf_keys[0]) };

static const char *const *words_of(const struct conf_key *key)
{
	return key->offset == offsetof(struct conf, log) ? conf_words_log : conf_words_level;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A copy that conf_done frees; NULL: no memory. */
static char *text_keep(struct conf *conf, const char *value)
{
	size_t length = strlen(value) + 1;
	struct conf_text *kept = mem_alloc(sizeof(*kept) + length);
	if (!kept)
		return NULL;
	memcpy(kept->text, value, length);
	kept->next = conf->texts;
	conf->texts = kept;
	return kept->text;
}

void conf_done(struct conf *conf)
{
	for (struct conf_text *text = conf->texts, *next; text; text = next) {
		next = text->next;
		mem_free(text);
	}
	memset(conf, 0, sizeof(*conf));
}

static int word_of(const char *const *words, const char *text, uint32_t *ret)
{
	for (uint32_t i = 0; words[i]; i++)
		if (!strcmp(words[i], text)) {
			*ret = i + 1;
			return 0;
		}
	return -1;
}

static int size_of(const char *text, uint64_t *ret)
{
	static const char units[] = "KMGTP";
	char *end;
	if (*text < '0' || *text > '9')
		return -1;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10), unit = 1;
	end += *end == ' ';
	const char *found = *end && *end != 'B' ? strchr(units, *end) : NULL;
	if (found) {
		for (const char *at = units; at <= found; at++)
			unit *= 1024;
		end += 1 + (end[1] == 'i');
	}
	end += *end == 'B';
	if (errno || *end || number > UINT64_MAX / unit)
		return -1;
	*ret = number * unit;
	return 0;
}

static int number_of(const char *text, int base, uint64_t least, uint64_t most, uint32_t *ret)
{
	char *end;
	if (*text < '0' || *text > '9')
		return -1;
	unsigned long long number = strtoull(text, &end, base);
	if (*end || number < least || number > most)
		return -1;
	*ret = (uint32_t)number;
	return 0;
}

struct places {
	const char **place;
	uint32_t *n, max;
};

/* Those of a key of type CONF_PLACES. */
static struct places places_of(struct conf *conf, const struct conf_key *key)
{
	if (key->offset == offsetof(struct conf, peers))
		return (struct places){conf->peers, &conf->npeers, CONF_PEERS};
	return (struct places){conf->listen, &conf->nlisten, CONF_LISTEN};
}

static int place_add(struct conf *conf, struct places to, const char *text)
{
	struct link_place place;
	const char *token;
	if (*to.n == to.max || (to.place == conf->peers ? peer_place_take(text, &place, &token)
	                                                : link_place_take(text, &place)))
		return -1;
	const char *kept = text_keep(conf, text);
	if (kept)
		to.place[(*to.n)++] = kept;
	return kept ? 0 : -1;
}

/* PATH or PATH:SIZE */
static int device_add(struct conf *conf, const char *text)
{
	char *path = text_keep(conf, text);
	char *colon = path ? strrchr(path, ':') : NULL;
	uint64_t budget = 0;
	if (!path || conf->nflash == CONF_FLASH)
		return -1;
	if (colon && !size_of(colon + 1, &budget))
		*colon = 0;
	if (!path[0])
		return -1;
	conf->flash[conf->nflash++] = (struct cairn_flash){.path = path, .budget_bytes = budget};
	return 0;
}

static int is_host_port(const char *text)
{
	const char *colon = strrchr(text, ':');
	uint32_t port;
	return colon && colon > text && !number_of(colon + 1, 10, 0, 65535, &port);
}

static const struct conf_key *key_find(const char *name)
{
	for (int i = 0; i < CONF_KEYS; i++)
		if (!strcmp(conf_keys[i].name, name))
			return &conf_keys[i];
	return NULL;
}

static int value_set(struct conf *conf, const struct conf_key *key, const char *value)
{
	void *to = (char *)conf + key->offset;
	switch (key->type) {
	case CONF_TEXT:
		*(const char **)to = text_keep(conf, value);
		return value[0] && *(const char **)to ? 0 : -1;
	case CONF_SIZE:
		return size_of(value, to);
	case CONF_COUNT:
		return number_of(value, 10, 1, 64, to);
	case CONF_SECONDS:
		return number_of(value, 10, 1, 3600, to);
	case CONF_PERCENT:
		return number_of(value, 10, 1, 100, to);
	case CONF_MODE:
		return number_of(value, 8, 0600, 0777, to);
	case CONF_ADMIN:
		*(const char **)to = text_keep(conf, value);
		return *(const char **)to && (!strcmp(value, "off") || is_host_port(value)) ? 0 : -1;
	case CONF_MINUTES:
		return number_of(value, 10, 1, ALARM_MINUTES_MAX, to);
	case CONF_WAIT:
		return number_of(value, 10, 1, 10000, to);
	case CONF_WORD:
		return word_of(words_of(key), value, to);
	case CONF_PLACES:
		return place_add(conf, places_of(conf, key), value);
	case CONF_DEVICES:
		return device_add(conf, value);
	case CONF_LIMITS:
		break; /* in a file alone */
	}
	return -1;
}

int conf_set(struct conf *conf, const char *key, const char *value, const char **ret_expected)
{
	const struct conf_key *found = key_find(key);
	check(found);
	*ret_expected = found->expected;
	return value_set(conf, found, value);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

struct conf_reader {
	const char *file;
	yaml_document_t document;
	struct conf *conf;
	char *fault; /* CONF_FAULT_BYTES */
};

static int fault(const struct conf_reader *reader, const yaml_node_t *node, const char *what, const char *expected)
{
	snprintf(reader->fault, CONF_FAULT_BYTES, "%.255s:%zu: %s; expected %s", reader->file, node->start_mark.line + 1,
	         what, expected);
	return -1;
}

static const char *text_of(const yaml_node_t *node)
{
	const char *text = node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
	return text && strlen(text) == node->data.scalar.length ? text : NULL;
}

static int read_scalar(struct conf_reader *reader, const struct conf_key *key, const yaml_node_t *node)
{
	char what[160];
	const char *text = text_of(node);
	if (text && !value_set(reader->conf, key, text))
		return 0;
	if (text)
		snprintf(what, sizeof(what), "%s is \"%.80s\"", key->name, text);
	else
		snprintf(what, sizeof(what), "%s is not a single value", key->name);
	return fault(reader, node, what, key->expected);
}

static int read_device(struct conf_reader *reader, const struct conf_key *key, const yaml_node_t *node)
{
	struct conf *conf = reader->conf;
	if (node->type == YAML_SCALAR_NODE)
		return read_scalar(reader, key, node);
	if (node->type != YAML_MAPPING_NODE || conf->nflash == CONF_FLASH)
		return fault(reader, node, "a device of flash", key->expected);
	struct cairn_flash *flash = &conf->flash[conf->nflash];
	*flash = (struct cairn_flash){0};
	for (yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++) {
		const yaml_node_t *name = yaml_document_get_node(&reader->document, pair->key);
		const yaml_node_t *value = yaml_document_get_node(&reader->document, pair->value);
		const char *text = text_of(value), *word = text_of(name);
		if (word && text && !strcmp(word, "path"))
			flash->path = text_keep(conf, text);
		else if (!word || !text || strcmp(word, "budget") != 0 || size_of(text, &flash->budget_bytes))
			return fault(reader, name, "a device of flash", "path: PATH, and perhaps budget: SIZE");
	}
	if (!flash->path)
		return fault(reader, node, "a device of flash without a path", "path: PATH");
	conf->nflash++;
	return 0;
}

static const struct limit_key {
	const char *name, *expected;
	size_t offset; /* in struct cairn_tenant_limits */
} limit_keys[] = {
	{"memory", "a size as 16GiB", offsetof(struct cairn_tenant_limits, memory_quota_bytes)},
	{"memory_reserved", "a size as 4GiB", offsetof(struct cairn_tenant_limits, memory_reserved_bytes)},
	{"flash", "a size as 1TiB", offsetof(struct cairn_tenant_limits, flash_quota_bytes)},
	{"flash_reserved", "a size as 200GiB", offsetof(struct cairn_tenant_limits, flash_reserved_bytes)},
	{"share", "a weight from 1 to 10000", offsetof(struct cairn_tenant_limits, share)},
};
enum { LIMIT_KEYS = sizeof(limit_keys) / sizeof(limit_keys[0]), LIMIT_SHARE = LIMIT_KEYS - 1 };

/* One limit of a tenant. */
static int read_limit(const struct conf_reader *reader, struct cairn_tenant_limits *limits, const yaml_node_t *name,
                      const yaml_node_t *value, uint32_t *seen)
{
	const char *word = text_of(name), *text = text_of(value);
	char what[200];
	int i = 0;
	while (i < LIMIT_KEYS && (!word || strcmp(word, limit_keys[i].name)))
		i++;
	snprintf(what, sizeof(what), "%.60s of tenant %.80s", word ? word : "a limit", limits->tenant);
	if (i == LIMIT_KEYS)
		return fault(reader, name, what, "one of memory, memory_reserved, flash, flash_reserved, share");
	if (*seen >> i & 1)
		return fault(reader, name, what, "each limit once");
	*seen |= 1u << i;
	void *to = (char *)limits + limit_keys[i].offset;
	if (!text || (i == LIMIT_SHARE ? number_of(text, 10, 1, 10000, to) : size_of(text, to)))
		return fault(reader, value, what, limit_keys[i].expected);
	return 0;
}

static int read_tenant(struct conf_reader *reader, const struct conf_key *key, const yaml_node_t *name,
                       const yaml_node_t *node)
{
	struct conf *conf = reader->conf;
	const char *word = text_of(name);
	char what[160];
	uint32_t seen = 0;
	if (!word || !word[0] || strlen(word) > 255 || conf->ntenants == CONF_TENANTS)
		return fault(reader, name, "a tenant", "a name of 1 to 255 bytes, of at most 64 tenants");
	snprintf(what, sizeof(what), "tenant %.80s", word);
	for (uint32_t i = 0; i < conf->ntenants; i++)
		if (!strcmp(conf->tenants[i].tenant, word))
			return fault(reader, name, what, "each tenant once");
	struct cairn_tenant_limits *limits = &conf->tenants[conf->ntenants];
	*limits = (struct cairn_tenant_limits){.tenant = text_keep(conf, word)};
	if (!limits->tenant || node->type != YAML_MAPPING_NODE)
		return fault(reader, node, what, key->expected);
	for (yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++)
		if (read_limit(reader, limits, yaml_document_get_node(&reader->document, pair->key),
		               yaml_document_get_node(&reader->document, pair->value), &seen))
			return -1;
	if ((limits->memory_quota_bytes && limits->memory_reserved_bytes > limits->memory_quota_bytes) ||
	    (limits->flash_quota_bytes && limits->flash_reserved_bytes > limits->flash_quota_bytes))
		return fault(reader, name, what, "at most so much reserved as its quota allows");
	if (!strcmp(word, "*") && (limits->memory_reserved_bytes || limits->flash_reserved_bytes))
		return fault(reader, name, what, "a name, where something is reserved");
	conf->ntenants++;
	return 0;
}

static int read_tenants(struct conf_reader *reader, const struct conf_key *key, const yaml_node_t *node)
{
	int error = 0;
	if (node->type != YAML_MAPPING_NODE)
		return fault(reader, node, key->name, key->expected);
	for (yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top && !error; pair++)
		error = read_tenant(reader, key, yaml_document_get_node(&reader->document, pair->key),
		                    yaml_document_get_node(&reader->document, pair->value));
	return error;
}

static int read_value(struct conf_reader *reader, const struct conf_key *key, const yaml_node_t *node)
{
	if (key->type == CONF_LIMITS)
		return read_tenants(reader, key, node);
	if (key->type != CONF_PLACES && key->type != CONF_DEVICES)
		return read_scalar(reader, key, node);
	if (node->type == YAML_SCALAR_NODE)
		return read_scalar(reader, key, node);
	if (node->type != YAML_SEQUENCE_NODE)
		return fault(reader, node, key->name, key->expected);
	int error = 0;
	for (yaml_node_item_t *item = node->data.sequence.items.start; item < node->data.sequence.items.top && !error;
	     item++) {
		const yaml_node_t *value = yaml_document_get_node(&reader->document, *item);
		error = key->type == CONF_DEVICES ? read_device(reader, key, value) : read_scalar(reader, key, value);
	}
	return error;
}

static int read_keys(struct conf_reader *reader, const yaml_node_t *root)
{
	uint64_t seen = 0;
	if (root->type != YAML_MAPPING_NODE)
		return fault(reader, root, "this is no list of keys", "lines as dir: PATH");
	for (yaml_node_pair_t *pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top; pair++) {
		const yaml_node_t *name = yaml_document_get_node(&reader->document, pair->key);
		const char *word = text_of(name);
		const struct conf_key *key = word ? key_find(word) : NULL;
		char what[160], all[400] = "";
		if (!key) {
			for (int i = 0; i < CONF_KEYS; i++)
				snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "one of ", conf_keys[i].name);
			snprintf(what, sizeof(what), "there is no key \"%.80s\"", word ? word : "");
			return fault(reader, name, what, all);
		}
		if (seen >> (key - conf_keys) & 1) {
			snprintf(what, sizeof(what), "%s is there twice", key->name);
			return fault(reader, name, what, "each key once");
		}
		seen |= 1ull << (key - conf_keys);
		if (read_value(reader, key, yaml_document_get_node(&reader->document, pair->value)))
			return -1;
	}
	return 0;
}

int conf_read(const char *file, struct conf *conf, char ret_fault[CONF_FAULT_BYTES])
{
	struct conf_reader reader = {.file = file, .conf = conf, .fault = ret_fault};
	yaml_parser_t parser;
	FILE *from = fopen(file, "re");
	if (!from) {
		snprintf(ret_fault, CONF_FAULT_BYTES, "%.255s: %s", file, strerror(errno));
		return -1;
	}
	check(yaml_parser_initialize(&parser));
	yaml_parser_set_input_file(&parser, from);
	int error = 0;
	if (!yaml_parser_load(&parser, &reader.document)) {
		snprintf(ret_fault, CONF_FAULT_BYTES, "%.255s:%zu: not YAML: %s", file, parser.problem_mark.line + 1,
		         parser.problem ? parser.problem : "no memory");
		error = -1;
	} else {
		const yaml_node_t *root = yaml_document_get_root_node(&reader.document);
		error = root ? read_keys(&reader, root) : 0; /* an empty file is all defaults */
		yaml_document_delete(&reader.document);
	}
	yaml_parser_delete(&parser);
	fclose(from);
	return error;
}

uint32_t conf_tenants(const struct conf *conf, struct cairn_tenant_limits ret_limits[CONF_TENANTS])
{
	memcpy(ret_limits, conf->tenants, conf->ntenants * sizeof(*ret_limits));
	for (uint32_t i = 0; i < conf->ntenants; i++)
		if (!strcmp(ret_limits[i].tenant, "*"))
			ret_limits[i].tenant = NULL;
	return conf->ntenants;
}

static void print_tenants(const struct conf *conf, FILE *to)
{
	if (conf->ntenants)
		fprintf(to, "tenants:\n");
	for (uint32_t i = 0; i < conf->ntenants; i++) {
		const struct cairn_tenant_limits *limits = &conf->tenants[i];
		fprintf(to, "  \"%s\": {share: %u", limits->tenant, limits->share ? limits->share : 100);
		for (int k = 0; k < LIMIT_SHARE; k++) {
			uint64_t bytes;
			memcpy(&bytes, (const char *)limits + limit_keys[k].offset, sizeof(bytes));
			if (bytes)
				fprintf(to, ", %s: %llu", limit_keys[k].name, (unsigned long long)bytes);
		}
		fprintf(to, "}\n");
	}
}

uint64_t conf_in_flight(const struct conf *conf)
{
	return conf->in_flight_bytes ? conf->in_flight_bytes
	                             : traffic_default(conf->memory_bytes ? conf->memory_bytes : 256u << 20);
}

void conf_print(const struct conf *conf, FILE *to)
{
	fprintf(to, "dir: \"%s\"\nlisten:\n", conf->dir);
	for (uint32_t i = 0; i < conf->nlisten; i++)
		fprintf(to, "  - \"%s\"\n", conf->listen[i]);
	if (conf->npeers)
		fprintf(to, "peers:\n");
	for (uint32_t i = 0; i < conf->npeers; i++)
		fprintf(to, "  - \"%s\"\n", conf->peers[i]);
	if (conf->peer_wait_ms)
		fprintf(to, "peer_wait_ms: %u\n", conf->peer_wait_ms);
	fprintf(to, "memory: %llu\n", (unsigned long long)(conf->memory_bytes ? conf->memory_bytes : 256u << 20));
	if (conf->catalog_bytes)
		fprintf(to, "catalog: %llu\n", (unsigned long long)conf->catalog_bytes);
	if (conf->nflash)
		fprintf(to, "flash:\n");
	for (uint32_t i = 0; i < conf->nflash; i++) {
		fprintf(to, "  - path: \"%s\"\n", conf->flash[i].path);
		if (conf->flash[i].budget_bytes)
			fprintf(to, "    budget: %llu\n", (unsigned long long)conf->flash[i].budget_bytes);
	}
	fprintf(to, "in_flight: %llu\n", (unsigned long long)conf_in_flight(conf));
	if (conf->write_bytes_day)
		fprintf(to, "write_budget: %llu\n", (unsigned long long)conf->write_bytes_day);
	if (conf->free_floor_bytes)
		fprintf(to, "free_floor: %llu\n", (unsigned long long)conf->free_floor_bytes);
	if (conf->segment_bytes)
		fprintf(to, "segment: %llu\n", (unsigned long long)conf->segment_bytes);
	fprintf(to, "io_threads: %u\npin_share: %u\nsocket_mode: 0%o\n", conf->io_threads ? conf->io_threads : 8,
	        conf->pin_share_percent ? conf->pin_share_percent : 50, conf->socket_mode);
	if (conf->event_hashes_bytes)
		fprintf(to, "event_hashes: %llu\n", (unsigned long long)conf->event_hashes_bytes);
	fprintf(to, "admin: \"%s\"\nalarm_minutes: %u\n", conf->admin, conf->alarm_minutes);
	if (conf->tls_cert)
		fprintf(to, "tls_cert: \"%s\"\n", conf->tls_cert);
	if (conf->tls_key)
		fprintf(to, "tls_key: \"%s\"\n", conf->tls_key);
	fprintf(to, "stop_seconds: %u\n", conf->stop_seconds);
	fprintf(to, "log: %s\nlog_level: %s\n", conf_words_log[conf->log - 1], conf_words_level[conf->log_level - 1]);
	print_tenants(conf, to);
}

/* ---- whole ones -------------------------------------------------------------------------------------------------- */

const char *conf_local_place(const struct conf *conf)
{
	for (uint32_t i = 0; i < conf->nlisten; i++)
		if (!strncmp(conf->listen[i], "unix:", 5))
			return conf->listen[i] + 5;
	return NULL;
}

int conf_complete(struct conf *conf, char ret_fault[CONF_FAULT_BYTES])
{
	char place[4200];
	if (!conf->dir) {
		snprintf(ret_fault, CONF_FAULT_BYTES,
		         "no directory; give --dir PATH, or a configuration with a line dir: PATH");
		return -1;
	}
	if (!conf_local_place(conf)) { /* also beside a network's: the directory leads to it */
		snprintf(place, sizeof(place), "unix:%s/cairn.sock", conf->dir);
		if (place_add(conf, places_of(conf, key_find("listen")), place)) {
			snprintf(ret_fault, CONF_FAULT_BYTES, "at most %d places to listen, one of them a socket file",
			         CONF_LISTEN);
			return -1;
		}
	}
	if (conf->tls_key && !conf->tls_cert) {
		snprintf(ret_fault, CONF_FAULT_BYTES, "tls_key without tls_cert: name the certificate that it belongs to");
		return -1;
	}
	if (!conf->socket_mode)
		conf->socket_mode = 0600;
	if (!conf->admin)
		conf->admin = ADMIN_PLACE;
	if (!conf->alarm_minutes)
		conf->alarm_minutes = ALARM_MINUTES;
	if (!conf->stop_seconds)
		conf->stop_seconds = 90;
	if (!conf->log)
		conf->log = 1;
	if (!conf->log_level)
		conf->log_level = 3;
	return 0;
}

static int places_differ(struct places a, struct places b)
{
	if (*a.n != *b.n)
		return 1;
	for (uint32_t i = 0; i < *a.n; i++)
		if (strcmp(a.place[i], b.place[i]) != 0)
			return 1;
	return 0;
}

static int devices_differ(const struct conf *a, const struct conf *b)
{
	if (a->nflash != b->nflash)
		return 1;
	for (uint32_t i = 0; i < a->nflash; i++)
		if (strcmp(a->flash[i].path, b->flash[i].path) != 0 || a->flash[i].budget_bytes != b->flash[i].budget_bytes)
			return 1;
	return 0;
}

static int limits_differ(const struct conf *a, const struct conf *b)
{
	if (a->ntenants != b->ntenants)
		return 1;
	for (uint32_t i = 0; i < a->ntenants; i++) {
		struct cairn_tenant_limits x = a->tenants[i], y = b->tenants[i];
		int names = strcmp(x.tenant, y.tenant) != 0;
		x.tenant = y.tenant = NULL;
		if (names || memcmp(&x, &y, sizeof(x)) != 0)
			return 1;
	}
	return 0;
}

static int key_differs(const struct conf_key *key, const struct conf *a, const struct conf *b)
{
	const void *x = (const char *)a + key->offset, *y = (const char *)b + key->offset;
	const char *const *p = x, *const *q = y;
	switch (key->type) {
	case CONF_TEXT:
	case CONF_ADMIN:
		return !*p || !*q ? *p != *q : strcmp(*p, *q) != 0;
	case CONF_SIZE:
		return memcmp(x, y, sizeof(uint64_t)) != 0;
	case CONF_PLACES:
		return places_differ(places_of((struct conf *)(uintptr_t)a, key), places_of((struct conf *)(uintptr_t)b, key));
	case CONF_DEVICES:
		return devices_differ(a, b);
	case CONF_LIMITS:
		return limits_differ(a, b);
	default:
		return memcmp(x, y, sizeof(uint32_t)) != 0;
	}
}

void conf_compare(const struct conf *a, const struct conf *b, void (*differs)(void *arg, const char *key, int live),
                  void *arg)
{
	for (int i = 0; i < CONF_KEYS; i++)
		if (key_differs(&conf_keys[i], a, b))
			differs(arg, conf_keys[i].name, conf_keys[i].live);
}
