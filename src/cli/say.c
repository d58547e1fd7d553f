/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the program talks: lines, figures with their units, JSON, progress, questions, signals.
 * Threads: one; the signal handler writes one flag. Memory: eight buffers of short text, used in turn.
 * Invariant: bytes of names go to a terminal only through say_name.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

enum { SAY_TEXTS = 8, SAY_BYTES = 1100, SAY_NAME_SHOWN = 255 };

struct cli cli;
volatile int say_stopped;
static char say_gone[300]; /* what of the open store is not there, until somebody was told */

static char *say_text(void)
{
	static char texts[SAY_TEXTS][SAY_BYTES];
	static uint32_t next;

	return texts[next++ % SAY_TEXTS];
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void say_failed(const char *format, va_list arguments)
{
	fflush(stdout);
	fprintf(stderr, "cairn%s%s: ", cli.verb ? " " : "", cli.verb ? cli.verb->name : "");
	vfprintf(stderr, format, arguments);
	if (*say_gone) /* what lies there looks like what was never there */
		fprintf(stderr, "; %s", say_gone);
	*say_gone = 0;
	fputc('\n', stderr);
}

void say_gone_device(const char *path)
{
	if (*say_gone)
		snprintf(say_gone, sizeof say_gone, "flash devices are gone (cairn stat tells which)");
	else
		snprintf(say_gone, sizeof say_gone, "the flash device %s is gone", path);
}

void say_gone_end(void)
{
	if (*say_gone)
		fprintf(stderr, "cairn: %s: what lies there is missing until it is back\n", say_gone);
	*say_gone = 0;
}

int say_error(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say_failed(format, arguments);
	va_end(arguments);
	return CLI_ERROR;
}

int say_not(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say_failed(format, arguments);
	va_end(arguments);
	return CLI_NOT;
}

void say_line(const char *format, ...)
{
	va_list arguments;

	if (cli.quiet || cli.json)
		return;
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

const char *say_size(uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	char *text = say_text();
	double value = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(text, SAY_BYTES, "%u B", (unsigned)bytes);
		return text;
	}
	/* 1023.95 would be shown as 1024.0 of the smaller unit. */
	for (; value >= 1023.95 && unit + 1 < sizeof units / sizeof units[0]; unit++)
		value /= 1024;
	snprintf(text, SAY_BYTES, "%.1f %s", value, units[unit]);
	return text;
}

const char *say_time(uint64_t when_s)
{
	char *text = say_text();
	time_t when = (time_t)when_s;
	struct tm local;

	if (!when_s || !localtime_r(&when, &local) || !strftime(text, SAY_BYTES, "%Y-%m-%d %H:%M", &local))
		snprintf(text, SAY_BYTES, "-");
	return text;
}

const char *say_span(double seconds)
{
	char *text = say_text();

	uint64_t minutes = (uint64_t)(seconds / 60);

	/* As people gave it. */
	if (minutes && seconds == 60.0 * (double)minutes)
		return minutes % 1440 == 0 ? say_many(minutes / 1440, "day", "days")
		       : minutes % 60 == 0 ? say_many(minutes / 60, "hour", "hours")
		                           : say_many(minutes, "minute", "minutes");
	if (seconds < 0.1)
		snprintf(text, SAY_BYTES, "%.1f ms", seconds * 1e3);
	else if (seconds < 60)
		snprintf(text, SAY_BYTES, "%.2f s", seconds);
	else if (seconds < 3600)
		snprintf(text, SAY_BYTES, "%u min %u s", (unsigned)seconds / 60, (unsigned)seconds % 60);
	else if (seconds < 86400 * 2)
		snprintf(text, SAY_BYTES, "%u h %u min", (unsigned)(seconds / 3600), (unsigned)(seconds / 60) % 60);
	else
		snprintf(text, SAY_BYTES, "%.1f days", seconds / 86400);
	return text;
}

const char *say_rate(uint64_t bytes, double seconds)
{
	char *text = say_text();
	double mb_s = seconds > 0 ? (double)bytes / seconds / 1e6 : 0;

	if (mb_s >= 1000)
		snprintf(text, SAY_BYTES, "%.1f GB/s", mb_s / 1e3);
	else
		snprintf(text, SAY_BYTES, mb_s >= 10 ? "%.0f MB/s" : mb_s > 0 ? "%.1f MB/s" : "-", mb_s);
	return text;
}

const char *say_hex(const void *bytes, size_t length)
{
	char *text = say_text();

	static const char digits[] = "0123456789abcdef"; /* lists have millions of them */
	size_t n = 0;

	for (size_t i = 0; i < length && i < 32; i++) {
		text[n++] = digits[((const uint8_t *)bytes)[i] >> 4];
		text[n++] = digits[((const uint8_t *)bytes)[i] & 15];
	}
	text[n] = '\0';
	return text;
}

const char *say_tier(uint32_t tier)
{
	static const char *const names[CAIRN_TIERS] = {"none", "memory", "flash", "object", "peer"};

	return tier < CAIRN_TIERS ? names[tier] : "unlisted";
}

const char *say_many(uint64_t count, const char *one, const char *many)
{
	char *text = say_text(), digits[24];
	int length = snprintf(digits, sizeof digits, "%" PRIu64, count), used = 0;

	for (int i = 0; i < length; i++) {
		if (i && (length - i) % 3 == 0)
			text[used++] = ',';
		text[used++] = digits[i];
	}
	snprintf(text + used, SAY_BYTES - (size_t)used, " %s", count == 1 ? one : many);
	return text;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 sequence that begins here, or 0: none does. */
static size_t say_utf8(const uint8_t *at)
{
	if (at[0] < 0x80)
		return 1;
	size_t length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
	uint8_t low = at[0] == 0xe0 ? 0xa0 : at[0] == 0xf0 ? 0x90 : 0x80;
	uint8_t high = at[0] == 0xed ? 0x9f : at[0] == 0xf4 ? 0x8f : 0xbf;

	if (at[0] < 0xc2 || at[0] > 0xf4 || at[1] < low || at[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

/* Copies text; what is not UTF-8, and control characters where they are not kept, become \xNN. */
static size_t say_escape(const char *from, char *to, size_t max, int keep_controls)
{
	size_t used = 0;

	for (const uint8_t *at = (const uint8_t *)from; *at && used + 5 < max;) {
		size_t step = say_utf8(at);
		int control = at[0] < ' ' || at[0] == 0x7f || (step == 2 && at[0] == 0xc2 && at[1] < 0xa0);

		if (!step || (control && !keep_controls)) {
			snprintf(to + used, 5, "\\x%02x", *at++);
			used += 4;
			continue;
		}
		memcpy(to + used, at, step);
		used += step;
		at += step;
	}
	to[used] = '\0';
	return used;
}

const char *say_name(const char *name)
{
	char *text = say_text();

	say_escape(name, text, SAY_BYTES, 0);
	return text;
}

json_t *say_json(const char *text)
{
	json_t *value = json_string(text);

	if (value)
		return value;
	size_t max = 4 * strlen(text) + 8;
	char *escaped = malloc(max);

	if (!escaped)
		return NULL;
	say_escape(text, escaped, max, 1);
	value = json_string(escaped);
	free(escaped);
	return value;
}

void say_json_number(json_t *object, const char *key, uint64_t number)
{
	json_object_set_new(object, key, json_integer((json_int_t)number));
}

void say_json_hex(json_t *object, const char *key, const void *bytes, size_t length)
{
	json_object_set_new(object, key, json_string(say_hex(bytes, length)));
}

int say_json_end(json_t *value, int status)
{
	if (!value || json_dumpf(value, stdout, JSON_INDENT(2)))
		status = ferror(stdout) ? status : say_error("out of memory while writing JSON; free some and try again");
	else
		putchar('\n');
	json_decref(value);
	return status;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

int say_confirm(const char *format, ...)
{
	char answer[16] = "";
	va_list arguments;

	if (cli.yes)
		return 0;
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		return say_error("nothing was dropped: there is no terminal to ask on; add --yes to go on without a question");
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputs(" [y/N] ", stderr);
	/* read, not fgets: the handler restarts it, and an interrupt must end the question. */
	struct sigaction action = {.sa_handler = SIG_DFL}, before;
	sigaction(SIGINT, &action, &before);
	ssize_t length = read(STDIN_FILENO, answer, sizeof answer - 1);
	sigaction(SIGINT, &before, NULL);
	if (length > 0 && (!strcmp(answer, "y\n") || !strcmp(answer, "yes\n")))
		return 0;
	return say_error("nothing was dropped");
}

/* ---- progress ---------------------------------------------------------------------------------------------------- */

static double progress_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void progress_start(struct progress *progress, const char *what, uint64_t all)
{
	*progress = (struct progress){.what = what, .all = all};
	progress->start_s = progress->last_s = progress_now();
	progress->mode = cli.json || cli.quiet ? 0 : isatty(STDERR_FILENO) ? 2 : 1;
}

double progress_seconds(const struct progress *progress)
{
	return progress_now() - progress->start_s;
}

static void progress_bar(const struct progress *progress, uint64_t done, double seconds)
{
	enum { FIXED = 62 }; /* columns of everything but the bar itself */
	struct winsize size;
	int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col ? 80 : size.ws_col;
	int width = columns - FIXED < 4 ? 0 : columns - FIXED > 40 ? 40 : columns - FIXED;
	double share = progress->all ? (double)done / (double)progress->all : 0;

	fprintf(stderr, "\r%s %10s", progress->what, say_size(done));
	if (progress->all) {
		int full = (int)(share * width);

		fprintf(stderr, " of %10s %3.0f %% ", say_size(progress->all), share * 100);
		if (width)
			fprintf(stderr, "[%.*s%*s]", full, "========================================", width - full, "");
	}
	fprintf(stderr, " %s", say_rate(done, seconds));
	if (progress->all && share > 0.01 && share < 1) {
		double left_s = seconds / share - seconds;

		if (left_s < 60)
			fprintf(stderr, ", %.0f s left", left_s + 0.5);
		else
			fprintf(stderr, ", %s left", say_span(left_s));
	}
	fputs("\033[K", stderr);
	fflush(stderr);
}

void progress_at(struct progress *progress, uint64_t done)
{
	static const double every_s[] = {0, 10, 0.2};
	double now_s = progress_now(), seconds = now_s - progress->start_s;

	/* What is over at once shows no bar. */
	if (!progress->mode || now_s - progress->last_s < every_s[progress->mode] || seconds < 0.5)
		return;
	progress->last_s = now_s;
	if (progress->mode == 2) {
		progress_bar(progress, done, seconds);
		progress->shown = 1;
	} else if (progress->all) {
		fprintf(stderr, "%s: %s of %s, %s\n", progress->what, say_size(done), say_size(progress->all),
		        say_rate(done, seconds));
	} else {
		fprintf(stderr, "%s: %s, %s\n", progress->what, say_size(done), say_rate(done, seconds));
	}
}

void progress_end(struct progress *progress)
{
	if (progress->shown)
		fputs("\r\033[K", stderr);
	progress->shown = 0;
}

/* ---- signals ----------------------------------------------------------------------------------------------------- */

static void say_on_signal(int signal_number)
{
	say_stopped = signal_number;
}

void say_catch_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	/* Reset: whoever presses twice wants the end at once, which a store survives as it survives kill -9. */
	struct sigaction action = {.sa_handler = say_on_signal, .sa_flags = SA_RESETHAND}, before;

	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
		/* nohup and the like asked for a signal to be ignored; that holds. */
		if (!sigaction(signals[i], NULL, &before) && before.sa_handler != SIG_IGN)
			sigaction(signals[i], &action, NULL);
	/* A reader that went away is a failed write, so that the store is closed before the end. */
	signal(SIGPIPE, SIG_IGN);
}

void say_end_by_signal(void)
{
	if (!say_stopped)
		return;
	signal(say_stopped, SIG_DFL);
	raise(say_stopped);
}
