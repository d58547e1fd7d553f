/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairnd's configuration: a YAML file, checked key by key, and options of the command line over it. docs/SERVE.md lists
 * the keys; each has a default.
 * Threads: the main one. Memory: strings belong to the conf; conf_done frees them.
 */
#ifndef CAIRN_DAEMON_CONF_H
#define CAIRN_DAEMON_CONF_H

#include <stdint.h>
#include <stdio.h>

#include "cairn/cairn.h"

enum { CONF_LISTEN = 8, CONF_FLASH = 16, CONF_PEERS = 16, CONF_FAULT_BYTES = 768, CONF_TENANTS = CAIRN_TENANTS_MAX };

struct conf_text;

struct conf {
	const char *dir;                /* the store's directory; no default */
	const char *listen[CONF_LISTEN]; /* places of net/link.h; unix:DIR/cairn.sock unless others */
	uint32_t nlisten;
	uint64_t memory_bytes;          /* 0: 256 MiB */
	uint64_t catalog_bytes;
	struct cairn_flash flash[CONF_FLASH];
	uint32_t nflash;
	uint64_t write_bytes_day;       /* to flash; 0: no limit */
	uint64_t free_floor_bytes;
	uint64_t segment_bytes;
	uint32_t io_threads;
	uint32_t pin_share_percent;
	const char *peers[CONF_PEERS];  /* places of other cairnds */
	uint32_t npeers;
	uint32_t peer_wait_ms;          /* 0: 20 */
	const char *tls_cert, *tls_key; /* files in PEM; NULL: DIR/tls.pem, made where it is missing */
	uint32_t socket_mode;           /* permission bits of the socket file; 0600 */
	struct cairn_tenant_limits tenants[CONF_TENANTS];
	uint32_t ntenants;
	uint32_t stop_seconds;          /* the end may take; 0: 90 */
	uint32_t log;                   /* 1: text, 2: json; 0: text */
	uint32_t log_level;             /* enum log_level + 1; 0: info */
	const char *admin;              /* "HOST:PORT", or "off" */
	uint32_t alarm_minutes;
	uint64_t in_flight_bytes;       /* of requests and replies under way; 0: traffic_default */
	uint64_t event_hashes_bytes;    /* memory for the engine's hashes that events carry; 0: none */
	struct conf_text *texts;        /* all strings above */
};

/* Reads a file over what is in `conf`. 0, or -1: ret_fault is one line: file, line, what was expected. */
int conf_read(const char *file, struct conf *conf, char ret_fault[CONF_FAULT_BYTES]);
/* One key from text, as on the command line. 0, or -1: *ret_expected says what was expected. */
int conf_set(struct conf *conf, const char *key, const char *value, const char **ret_expected);
/* Fills in what was left open. 0, or -1 with ret_fault. */
int conf_complete(struct conf *conf, char ret_fault[CONF_FAULT_BYTES]);
void conf_done(struct conf *conf);
/* The first socket file to listen on; NULL: none. */
const char *conf_local_place(const struct conf *conf);
/* Calls back for each key in which two complete ones differ; `live`: it takes effect without a restart. */
void conf_compare(const struct conf *a, const struct conf *b, void (*differs)(void *arg, const char *key, int live),
                  void *arg);
/* The limits as cairn_options and cairn_limits take them: no name where the file says "*". Returns their number. */
uint32_t conf_tenants(const struct conf *conf, struct cairn_tenant_limits ret_limits[CONF_TENANTS]);
/* Bytes that may be under way, or the default. */
uint64_t conf_in_flight(const struct conf *conf);
/* The configuration in force, as a file that conf_read reads. */
void conf_print(const struct conf *conf, FILE *to);

#endif
