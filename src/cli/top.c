/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cairn top`: what a store does now: tiers, tenants, spaces, clients, drawn anew every few seconds.
 * Threads: one. Memory: two samples, and the lines of a frame.
 * Invariant: a frame is made as plain lines first, so that what the terminal shows is what --once prints.
 */
#include <curses.h>
#include <inttypes.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/sample.h"

enum {
	KEY_ONCE = VERB_KEY,
	KEY_EVERY
};
enum {
	TOP_LINES = 256,
	TOP_COLUMNS = 256,
	TOP_ROWS = 40
};

static const char *const top_orders[] = {"bytes", "read", "written", "misses"};
enum {
	TOP_ORDERS = sizeof top_orders / sizeof top_orders[0]
};

static struct {
	int once, help;
	uint64_t every_s;
	uint32_t order;
	const char *place;
	const struct sample *before;
	double seconds;
} top = {.every_s = 2};

struct frame {
	char line[TOP_LINES][TOP_COLUMNS];
	uint8_t style[TOP_LINES]; /* 0 plain, 1 a heading, 2 an alarm */
	int count;
};

__attribute__((format(printf, 3, 4))) static void frame_add(struct frame *frame, int style, const char *format, ...)
{
	va_list arguments;

	if (frame->count == TOP_LINES)
		return;
	va_start(arguments, format);
	vsnprintf(frame->line[frame->count], TOP_COLUMNS, format, arguments);
	va_end(arguments);
	frame->style[frame->count++] = (uint8_t)style;
}

/* ---- a frame ----------------------------------------------------------------------------------------------------- */

static const char *rate_text(uint64_t now, uint64_t before)
{
	return say_rate(now > before ? now - before : 0, top.seconds);
}

static void frame_tiers(struct frame *frame, const struct cairn_stat *now, const struct cairn_stat *before)
{
	frame_add(frame, 1, "%-8s %21s %5s %10s %11s %11s %10s %8s %7s", "TIER", "USED OF CAPACITY", "FULL", "PARTS",
	          "READ", "WRITTEN", "EVICTED/s", "DAMAGED", "ERRORS");
	for (uint32_t i = 1; i < CAIRN_TIERS; i++) {
		const struct cairn_tier_stat *t = &now->tier[i], *b = &before->tier[i];
		char used[48];

		if (!t->capacity_bytes)
			continue;
		snprintf(used, sizeof used, "%s of %s", say_size(t->used_bytes), say_size(t->capacity_bytes));
		frame_add(frame, 0, "%-8s %21s %3.0f %% %10" PRIu64 " %11s %11s %10.0f %8" PRIu64 " %7" PRIu64, say_tier(i),
		          used, 100.0 * (double)t->used_bytes / (double)t->capacity_bytes, t->parts,
		          rate_text(t->hit_bytes, b->hit_bytes), rate_text(t->written_bytes, b->written_bytes),
		          sample_rate(t->evicted_parts, b->evicted_parts, top.seconds), t->damaged_parts, t->errors);
	}
	for (uint32_t i = 0; i < now->ndevices; i++)
		if (now->device[i].state)
			frame_add(frame, 2, "device %s: %s", say_name(now->device[i].path),
			          now->device[i].state == 2 ? "gone" : "writes refused");
}

static double percent(uint64_t part, uint64_t all)
{
	return all ? 100.0 * (double)part / (double)all : 0;
}

static void frame_use(struct frame *frame, const struct cairn_stat *now, const struct cairn_stat *before)
{
	uint64_t hits = sample_hits(now), misses = now->misses, written = now->tier[CAIRN_TIER_MEMORY].written_bytes;
	char why[160] = "";

	for (uint32_t i = 0; i < CAIRN_WHYS; i++)
		if (now->misses_why[i] && strlen(why) < sizeof why - 40)
			snprintf(why + strlen(why), sizeof why - strlen(why), "%s%s %" PRIu64, *why ? ", " : "",
			         i ? cairn_reason_name(i) : "never seen", now->misses_why[i]);
	frame_add(frame, 0, "hits %.1f %% of %" PRIu64 " parts asked for; %.0f/s, misses %.0f/s%s%s",
	          percent(hits, hits + misses), hits + misses, sample_rate(hits, sample_hits(before), top.seconds),
	          sample_rate(misses, before->misses, top.seconds), *why ? ": " : "", why);
	frame_add(frame, 0, "lookups %" PRIu64 ", %.1f/s: %.1f %% of their tokens found; read/written %.2f; leased %s",
	          now->lookups, sample_rate(now->lookups, before->lookups, top.seconds),
	          percent(now->found_tokens, now->lookup_tokens),
	          written ? (double)sample_read(now) / (double)written : 0.0, say_size(now->leased_bytes));
	for (uint32_t bit = 1; bit && bit <= now->alarms; bit <<= 1)
		if (now->alarms & bit)
			frame_add(frame, 2, "ALARM %s", stat_alarm_text(bit));
}

static int order_rows(const void *a, const void *b)
{
	const struct sample_row *x = a, *y = b;
	uint64_t p[TOP_ORDERS] = {x->memory_bytes + x->flash_bytes, x->read_bytes, x->written_bytes, x->misses};
	uint64_t q[TOP_ORDERS] = {y->memory_bytes + y->flash_bytes, y->read_bytes, y->written_bytes, y->misses};

	if (p[top.order] != q[top.order])
		return p[top.order] > q[top.order] ? -1 : 1;
	return memcmp(x->id, y->id, sizeof x->id);
}

static void frame_rows(struct frame *frame, const char *title, const struct sample_list *now,
                       const struct sample_list *before)
{
	if (!now->count)
		return;
	qsort(now->rows, now->count, sizeof now->rows[0], order_rows);
	frame_add(frame, 0, " ");
	frame_add(frame, 1, "%-14s %-24s %10s %10s %10s %11s %11s %8s", title, "", "MEMORY", "FLASH", "QUOTA", "READ",
	          "WRITTEN", "MISSES/s");
	for (size_t i = 0; i < now->count && i < TOP_ROWS; i++) {
		const struct sample_row *row = &now->rows[i], *was = sample_find(before, row->id);
		struct sample_row none = *row;

		was = was ? was : &none;
		frame_add(frame, 0, "%-14.14s %-24.24s %10s %10s %10s %11s %11s %8.0f", row->name, row->more,
		          say_size(row->memory_bytes), say_size(row->flash_bytes),
		          row->quota_bytes ? say_size(row->quota_bytes) : "-", rate_text(row->read_bytes, was->read_bytes),
		          rate_text(row->written_bytes, was->written_bytes),
		          sample_rate(row->misses, was->misses, top.seconds));
	}
	if (now->count > TOP_ROWS)
		frame_add(frame, 0, "... and %zu more", now->count - TOP_ROWS);
}

static void frame_clients(struct frame *frame, const struct sample_list *now, const struct sample_list *before)
{
	if (!now->count)
		return;
	qsort(now->rows, now->count, sizeof now->rows[0], order_rows);
	frame_add(frame, 0, " ");
	frame_add(frame, 1, "%-14s %-24s %10s %10s %10s %11s %11s", "CLIENT", "FROM", "PID", "LEASES", "REQUESTS/s", "READ",
	          "WRITTEN");
	for (size_t i = 0; i < now->count && i < TOP_ROWS; i++) {
		const struct sample_row *row = &now->rows[i], *was = sample_find(before, row->id);
		struct sample_row none = *row;

		was = was ? was : &none;
		frame_add(frame, 0, "%-14.14s %-24.24s %10" PRIu32 " %10" PRIu32 " %10.0f %11s %11s", row->name,
		          *row->more ? row->more : "this server", row->pid, row->leases,
		          sample_rate(row->requests, was->requests, top.seconds), rate_text(row->read_bytes, was->read_bytes),
		          rate_text(row->written_bytes, was->written_bytes));
	}
}

static void frame_make(struct frame *frame, const struct sample *now)
{
	const struct sample *before = top.before ? top.before : now;

	frame->count = 0;
	top.seconds = now->at_s - before->at_s;
	frame_add(frame, 1, "cairn top %s   sorted by %s   q quit, s sort, h help", say_name(top.place),
	          top_orders[top.order]);
	if (top.help) {
		frame_add(frame, 0, "q      quit");
		frame_add(frame, 0, "s      sort by bytes held, bytes read, bytes written, misses: of all since the start");
		frame_add(frame, 0, "h      this text, or away with it");
		frame_add(frame, 0, "READ and WRITTEN are what moved a second since the last frame. QUOTA is that of memory.");
		frame_add(frame, 0, "A tenant's FLASH are its segments, with the dead bytes in them; a space's are its parts.");
		return;
	}
	frame_tiers(frame, &now->stat, &before->stat);
	frame_use(frame, &now->stat, &before->stat);
	frame_rows(frame, "TENANT", &now->tenants, &before->tenants);
	frame_rows(frame, "SPACE", &now->spaces, &before->spaces);
	frame_clients(frame, &now->clients, &before->clients);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *rows_json(const struct sample_list *now, const struct sample_list *before)
{
	json_t *array = json_array();

	for (size_t i = 0; i < now->count; i++) {
		const struct sample_row *row = &now->rows[i], *was = sample_find(before, row->id);
		json_t *object = json_object();

		was = was ? was : row;
		json_object_set_new(object, "name", say_json(row->name));
		json_object_set_new(object, "more", say_json(row->more));
		say_json_number(object, "memory_bytes", row->memory_bytes);
		say_json_number(object, "flash_bytes", row->flash_bytes);
		say_json_number(object, "read_bytes", row->read_bytes);
		say_json_number(object, "written_bytes", row->written_bytes);
		say_json_number(object, "misses", row->misses);
		say_json_number(object, "requests", row->requests);
		say_json_number(object, "leases", row->leases);
		say_json_number(object, "pid", row->pid);
		json_object_set_new(object, "read_bytes_s",
		                    json_real(sample_rate(row->read_bytes, was->read_bytes, top.seconds)));
		json_object_set_new(object, "written_bytes_s",
		                    json_real(sample_rate(row->written_bytes, was->written_bytes, top.seconds)));
		json_array_append_new(array, object);
	}
	return array;
}

static int top_json(const struct sample *now)
{
	json_t *report = json_object();
	const struct sample *before = top.before;

	top.seconds = now->at_s - before->at_s;
	json_object_set_new(report, "seconds", json_real(top.seconds));
	json_object_set_new(report, "stat", stat_report(&now->stat));
	json_object_set_new(report, "tenants", rows_json(&now->tenants, &before->tenants));
	json_object_set_new(report, "spaces", rows_json(&now->spaces, &before->spaces));
	json_object_set_new(report, "clients", rows_json(&now->clients, &before->clients));
	return say_json_end(report, CLI_WHOLE);
}

/* ---- the terminal ------------------------------------------------------------------------------------------------ */

static void screen_draw(const struct frame *frame)
{
	int rows, columns;

	getmaxyx(stdscr, rows, columns);
	erase();
	for (int i = 0; i < frame->count && i < rows; i++) {
		int style = frame->style[i] == 1 ? A_REVERSE : frame->style[i] == 2 ? A_BOLD : A_NORMAL;

		attrset((attr_t)style);
		mvaddnstr(i, 0, frame->line[i], columns);
		for (int x = getcurx(stdscr); frame->style[i] == 1 && x > 0 && x < columns && getcury(stdscr) == i; x++)
			addch(' ');
	}
	attrset(A_NORMAL);
	refresh();
}

/* Until it is time for the next frame; draws anew what a key or another size of the terminal changes. Whether to go
 * on. */
static int screen_wait(struct frame *frame, const struct sample *now)
{
	double until_s = now->at_s + (double)top.every_s;
	struct timespec at;

	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &at);
		double left = until_s - ((double)at.tv_sec + (double)at.tv_nsec * 1e-9);
		if (left <= 0 || say_stopped)
			return !say_stopped;
		timeout(left < 0.2 ? (int)(left * 1e3) + 1 : 200);
		int key = getch();
		if (key == 'q' || key == 'Q')
			return 0;
		if (key == ERR)
			continue;
		if (key == 's' || key == 'S')
			top.order = (top.order + 1) % TOP_ORDERS;
		if (key == 'h' || key == 'H' || key == '?')
			top.help = !top.help;
		frame_make(frame, now);
		screen_draw(frame);
	}
}

static int top_screen(cairn *store, struct frame *frame)
{
	struct sample samples[2] = {0};
	int status = CLI_WHOLE, at = 0;

	setlocale(LC_CTYPE, "");
	SCREEN *screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return say_error("this terminal (TERM) is not known; use --once");
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	for (int more = 1; more; at = !at) {
		sample_done(&samples[at]);
		status = sample_take(store, 1, &samples[at]);
		if (status)
			break;
		frame_make(frame, &samples[at]);
		screen_draw(frame);
		more = screen_wait(frame, &samples[at]);
		top.before = &samples[at];
	}
	endwin();
	delscreen(screen);
	sample_done(&samples[0]);
	sample_done(&samples[1]);
	return status;
}

/* One frame: of what happens in the next second or so. */
static int top_once(cairn *store, struct frame *frame)
{
	struct sample before, now;
	int status = sample_take(store, 1, &before);

	if (status)
		return status;
	sample_wait((double)top.every_s);
	status = sample_take(store, 1, &now);
	if (!status) {
		top.before = &before;
		if (cli.json)
			status = top_json(&now);
		else
			frame_make(frame, &now);
		for (int i = 1; i < frame->count && !cli.json; i++)
			puts(frame->line[i]);
		sample_done(&now);
	}
	sample_done(&before);
	return status;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int top_option(int key, char *value)
{
	if (key == KEY_ONCE)
		top.once = 1;
	else if (args_duration(value, &top.every_s) || !top.every_s || top.every_s > 3600)
		return say_error("--every %s is no time; give seconds, as 2", say_name(value));
	return 0;
}

static int top_run(char **operand, uint32_t count)
{
	cairn *store;
	struct frame *frame = calloc(1, sizeof *frame);
	int status;

	(void)count;
	if (!frame)
		return say_error("out of memory; free some and try again");
	top.place = operand[0];
	if (open_store(operand[0], OPEN_LOOK, &store)) {
		free(frame);
		return CLI_ERROR;
	}
	top.once |= cli.json || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO);
	status = top.once ? top_once(store, frame) : top_screen(store, frame);
	free(frame);
	return open_close(store, status);
}

static const struct argp_option top_options[] = {
	{"once", KEY_ONCE, NULL, 0, "One frame as plain text; so it is where there is no terminal", 0},
	{"every", KEY_EVERY, "SECONDS", 0, "Time between frames (2)", 0},
	{0},
};

const struct verb verb_top = {
	.name = "top",
	.operands = "STORE",
	.summary = "what a store does now: tiers, tenants, spaces, clients",
	.text = "Shows what happens in STORE, which a cairnd serves, and draws it anew every few seconds. Keys: q quits, s "
			"sorts by something else, h helps."
			"\vExamples:\n"
			"  cairn top unix:/var/lib/cairn/cairn.sock\n"
			"  cairn top /var/lib/cairn --once --json\n",
	.options = top_options,
	.option = top_option,
	.run = top_run,
	.shared = VERB_STORE | VERB_JSON,
	.least = 1,
	.most = 1,
};
