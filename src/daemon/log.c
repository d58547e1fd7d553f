/* SPDX-License-Identifier: Apache-2.0 */
/* cairnd's log. See log.h. */
#include "daemon/log.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/text.h"

struct log_kind {
	const char *message;
	enum log_level level; /* of the last line suppressed */
	double lines;         /* budget left */
	uint64_t filled_ns, suppressed;
};

static struct {
	pthread_mutex_t lock;
	int fd, json;
	enum log_level level;
	const struct clock *clock;
	struct log_kind kinds[LOG_KINDS];
	uint32_t nkinds;
	struct log_stat stat;
	char line[LOG_LINE_BYTES];
} logger = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = STDERR_FILENO, .level = LOG_INFO, .clock = &clock_real};

const char *log_level_name(enum log_level level)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};
	return names[level];
}

/* ---- a line ------------------------------------------------------------------------------------------------------ */

struct log_line {
	size_t used;
	int full;
};

static void line_add(struct log_line *line, const char *text, size_t length)
{
	/* Room for the end of a line that is cut is always left. */
	if (line->full || line->used + length > LOG_LINE_BYTES - 16) {
		line->full = 1;
		return;
	}
	memcpy(logger.line + line->used, text, length);
	line->used += length;
}

static void line_text(struct log_line *line, const char *text)
{
	line_add(line, text, strlen(text));
}

/* Bytes of the UTF-8 sequence that begins here and may be shown; 0: to be escaped. `at` ends with a 0. */
static size_t utf8_shown(const uint8_t *at)
{
	size_t step = text_sequence(at);
	int control = at[0] < ' ' || at[0] == 0x7f || (step == 2 && at[0] == 0xc2 && at[1] < 0xa0);
	return control ? 0 : step;
}

/* In quotes; what is no plain character becomes \n, \t, \", \\ or \u00NN, which both forms read. */
static void line_quoted(struct log_line *line, const char *value)
{
	char escaped[8];
	line_text(line, "\"");
	for (const uint8_t *at = (const uint8_t *)value; *at && at < (const uint8_t *)value + LOG_VALUE_BYTES;) {
		size_t step = utf8_shown(at);
		if (*at == '"' || *at == '\\')
			snprintf(escaped, sizeof(escaped), "\\%c", *at);
		else if (*at == '\n' || *at == '\t' || *at == '\r')
			snprintf(escaped, sizeof(escaped), "\\%c", *at == '\n' ? 'n' : *at == '\t' ? 't' : 'r');
		else
			snprintf(escaped, sizeof(escaped), "\\u00%02x", *at);
		if (!step || *at == '"' || *at == '\\')
			line_text(line, escaped);
		else
			line_add(line, (const char *)at, step);
		at += step ? step : 1;
	}
	if (line->full) /* the value was cut: the quote closes all the same */
		logger.line[line->used++] = '"';
	else
		line_text(line, "\"");
}

static int is_plain(const char *value)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:+@%,[]";
	return value[0] && value[strspn(value, plain)] == 0 && strlen(value) < LOG_VALUE_BYTES;
}

static void line_field(struct log_line *line, const char *key, const char *text, uint64_t number)
{
	char digits[24];
	if (line->full)
		return;
	line_text(line, logger.json ? (line->used > 1 ? ",\"" : "\"") : (line->used ? " " : ""));
	line_text(line, key);
	line_text(line, logger.json ? "\":" : "=");
	snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);
	if (!text)
		line_text(line, digits);
	else if (!logger.json && is_plain(text))
		line_text(line, text);
	else
		line_quoted(line, text);
}

static void line_time(char when[40])
{
	uint64_t now_s = clock_wall_s(logger.clock);
	struct timespec now = {.tv_sec = (time_t)now_s};
	struct tm tm;
	if (logger.clock == &clock_real)
		clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	size_t n = strftime(when, 32, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(when + n, 40 - n, ".%03ldZ", now.tv_nsec / 1000000);
}

/* The lock is held. */
static void line_write(enum log_level level, const char *message, const struct log_field *fields, size_t n,
                       uint64_t suppressed)
{
	struct log_line line = {0};
	char when[40];
	line_time(when);
	if (logger.json)
		line_text(&line, "{");
	line_field(&line, "time", when, 0);
	line_field(&line, "level", log_level_name(level), 0);
	line_field(&line, "msg", message, 0);
	for (size_t i = 0; i < n; i++)
		line_field(&line, fields[i].key, fields[i].text, fields[i].number);
	if (suppressed)
		line_field(&line, "suppressed", NULL, suppressed);
	if (logger.json)
		logger.line[line.used++] = '}';
	logger.line[line.used++] = '\n';
	logger.stat.lines[level]++;
	/* A stderr that takes nothing more must not hold cairnd up, nor end it. */
	ssize_t written = write(logger.fd, logger.line, line.used);
	(void)written;
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static struct log_kind *kind_of(const char *message)
{
	for (uint32_t i = 0; i < logger.nkinds; i++)
		if (logger.kinds[i].message == message || !strcmp(logger.kinds[i].message, message))
			return &logger.kinds[i];
	if (logger.nkinds == LOG_KINDS)
		return &logger.kinds[LOG_KINDS - 1];
	logger.kinds[logger.nkinds] =
		(struct log_kind){.message = message, .lines = LOG_BURST, .filled_ns = clock_mono_ns(logger.clock)};
	return &logger.kinds[logger.nkinds++];
}

static int kind_may(struct log_kind *kind)
{
	uint64_t now_ns = clock_mono_ns(logger.clock);
	kind->lines += (double)(now_ns - kind->filled_ns) / (LOG_EVERY_S * 1e9);
	kind->lines = kind->lines > LOG_BURST ? LOG_BURST : kind->lines;
	kind->filled_ns = now_ns;
	if (kind->lines < 1)
		return 0;
	kind->lines -= 1;
	return 1;
}

void log_fields(enum log_level level, const char *message, const struct log_field *fields, size_t n)
{
	pthread_mutex_lock(&logger.lock);
	if (level <= logger.level) {
		struct log_kind *kind = kind_of(message);
		if (kind_may(kind)) {
			line_write(level, message, fields, n, kind->suppressed);
			kind->suppressed = 0;
		} else {
			kind->suppressed++;
			kind->level = level;
			logger.stat.suppressed++;
		}
	}
	pthread_mutex_unlock(&logger.lock);
}

void log_flush(void)
{
	pthread_mutex_lock(&logger.lock);
	for (uint32_t i = 0; i < logger.nkinds; i++) {
		struct log_kind *kind = &logger.kinds[i];
		if (!kind->suppressed || !kind_may(kind))
			continue;
		line_write(kind->level, kind->message, NULL, 0, kind->suppressed);
		kind->suppressed = 0;
	}
	pthread_mutex_unlock(&logger.lock);
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

void log_open(int fd, const struct clock *clock)
{
	pthread_mutex_lock(&logger.lock);
	logger.fd = fd;
	logger.clock = clock;
	logger.nkinds = 0;
	memset(&logger.stat, 0, sizeof(logger.stat));
	pthread_mutex_unlock(&logger.lock);
}

void log_set(int json, enum log_level level)
{
	pthread_mutex_lock(&logger.lock);
	logger.json = json;
	logger.level = level;
	pthread_mutex_unlock(&logger.lock);
}

void log_stat(struct log_stat *ret_stat)
{
	pthread_mutex_lock(&logger.lock);
	*ret_stat = logger.stat;
	pthread_mutex_unlock(&logger.lock);
}
