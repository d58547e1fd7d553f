/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cairnd says: one line an event on stderr, as logfmt (time level msg key=value ...) or as JSON. Each message has
 * a budget: what comes too often is counted, not printed, and the count is said with the next line of that message, or
 * by log_flush.
 *
 * Threads: any; one lock, held while a line is written. Memory: one fixed table and one line.
 * Invariant: a line is whole and its own: no byte of a value ends it, nor moves a terminal's cursor.
 */
#ifndef CAIRN_DAEMON_LOG_H
#define CAIRN_DAEMON_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

enum {
	LOG_LINE_BYTES = 4096, /* longer ones are cut, within a value */
	LOG_VALUE_BYTES = 1024,
	LOG_KINDS = 64,        /* messages with a budget of their own; the rest share the last one */
	LOG_BURST = 10,        /* lines of a message at once, and then ... */
	LOG_EVERY_S = 6,       /* ... one in so many seconds */
};

struct log_field {
	const char *key;  /* letters, digits and _ */
	const char *text; /* NULL: the number */
	uint64_t number;
};
#define LOG_TEXT(key, text) {key, text, 0}
#define LOG_NUMBER(key, number) {key, NULL, number}

/* Where lines go from now on. `clock`: of times and budgets. */
void log_open(int fd, const struct clock *clock);
/* JSON instead of logfmt; nothing above `level`. Any time. */
void log_set(int json, enum log_level level);
/* One event. `message` is a constant text, and the kind by which it is limited. */
void log_fields(enum log_level level, const char *message, const struct log_field *fields, size_t n);
#define LOG(level, message, ...)                                                                                       \
	log_fields(level, message, (const struct log_field[]){__VA_ARGS__},                                                \
	           sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field))
static inline void log_say(enum log_level level, const char *message) { log_fields(level, message, NULL, 0); }
/* Says what was suppressed and not said yet, where the budget has come back. For now and then. */
void log_flush(void);

/* Lines written, by level, and lines suppressed, since log_open. */
struct log_stat {
	uint64_t lines[LOG_DEBUG + 1], suppressed;
};
void log_stat(struct log_stat *ret_stat);

const char *log_level_name(enum log_level level);

#endif
