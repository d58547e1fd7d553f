/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn bench: the figures of a store on this machine, each beside its limit.
 * Threads: one. Memory: the scratch directory's name.
 * Invariant: only what this run made is removed, and a directory that holds anything is not used.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/cli.h"

enum {
	KEY_QUICK = VERB_KEY,
	KEY_FULL,
	KEY_ROUNDS,
	KEY_SIZE,
	KEY_LIST,
	KEY_HTML,
	KEY_TRACES
};

static const struct bench_family *const bench_families[] = {
	&bench_memory, &bench_keys,    &bench_flash,  &bench_put,    &bench_entries,
	&bench_served, &bench_clients, &bench_remote, &bench_peer,    &bench_policy,
};
enum {
	BENCH_FAMILIES = sizeof bench_families / sizeof bench_families[0]
};

static struct bench bench;
static int bench_list;
static const char *bench_page;
static const char *bench_dir; /* as it was given */

static const struct argp_option bench_options[] = {
	{"list", KEY_LIST, NULL, 0, "List the figures and measure nothing", 1},
	{"quick", KEY_QUICK, NULL, 0, "Less data and three rounds: a first look", 1},
	{"full", KEY_FULL, NULL, 0, "Catalogs of 5 and 16 million blocks where they fit", 1},
	{"rounds", KEY_ROUNDS, "N", 0, "Rounds, 1 to 32 (5)", 1},
	{"size", KEY_SIZE, "SIZE", 0, "Data of the flash figures (1 GiB)", 1},
	{"traces", KEY_TRACES, "DIR", 0, "Recorded requests, for policy.real (CAIRN_TRACES)", 1},
	{"html", KEY_HTML, "FILE", 0, "Write a page with a plot, too", 1},
	{NULL, 0, NULL, 0, NULL, 0},
};

static int bench_option(int key, char *value)
{
	uint64_t number;

	switch (key) {
	case KEY_LIST:
		bench_list = 1;
		return 0;
	case KEY_QUICK:
		bench.quick = 1;
		return 0;
	case KEY_FULL:
		bench.full = 1;
		return 0;
	case KEY_ROUNDS:
		if (args_number(value, BENCH_ROUNDS, &number) || !number)
			return say_error("--rounds %s: give a number from 1 to %d", value, BENCH_ROUNDS);
		bench.rounds = (uint32_t)number;
		return 0;
	case KEY_TRACES:
		bench.traces = value;
		return 0;
	case KEY_HTML:
		bench_page = value;
		return 0;
	default:
		if (args_size(value, &number) || number < (uint64_t)64 << 20)
			return say_error("--size %s: not a size of at least 64M; write it like 512M or 4GiB", value);
		bench.size = number / ((uint64_t)16 << 20) * ((uint64_t)16 << 20);
		return 0;
	}
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void bench_figures(void)
{
	for (size_t i = 0; i < BENCH_FAMILIES; i++)
		for (uint32_t j = 0; j < bench_families[i]->nfigures; j++)
			bench.results[bench.nresults++].figure = &bench_families[i]->figures[j];
}

/* Marks the figure of that name; if there is none, all whose names go on from it after a dot. Returns how many. */
static uint32_t bench_mark(const char *name)
{
	uint32_t count = 0;
	size_t length = strlen(name);
	struct bench_result *exact = bench_find(&bench, name);

	if (exact) {
		exact->wanted = 1;
		return 1;
	}
	for (uint32_t i = 0; i < bench.nresults; i++) {
		const char *own = bench.results[i].figure->name;

		if (!strncmp(own, name, length) && own[length] == '.') {
			bench.results[i].wanted = 1;
			count++;
		}
	}
	return count;
}

static int bench_say_unknown(const char *name)
{
	const char *names[BENCH_RESULTS], *closest;

	for (uint32_t i = 0; i < bench.nresults; i++)
		names[i] = bench.results[i].figure->name;
	closest = args_closest(name, names, bench.nresults);
	if (closest)
		return say_error("there is no figure \"%s\"; did you mean \"%s\"? See cairn bench --list", say_name(name),
		                 closest);
	return say_error("there is no figure \"%s\"; see cairn bench --list", say_name(name));
}

/* The first operand is STORE unless it is a figure's name, or nearly one and nothing that exists. */
static int bench_operands(char **operand, uint32_t count)
{
	const char *names[BENCH_RESULTS];
	uint32_t first = 0;
	struct stat stat_of;

	for (uint32_t i = 0; i < bench.nresults; i++)
		names[i] = bench.results[i].figure->name;
	if (count && !bench_mark(operand[0])) {
		int path = strchr(operand[0], '/') || !stat(operand[0], &stat_of);

		if (!path && args_closest(operand[0], names, bench.nresults))
			return bench_say_unknown(operand[0]);
		bench_dir = operand[0];
		first = 1;
	}
	for (uint32_t i = first; i < count; i++)
		if (!bench_mark(operand[i]))
			return bench_say_unknown(operand[i]);
	/* Without names all that can be measured here: traces are not everybody's. */
	for (uint32_t i = 0; i < bench.nresults && first == count; i++)
		bench.results[i].wanted = bench_has_traces(&bench) || strncmp(bench.results[i].figure->name, "policy.", 7) != 0;
	for (uint32_t i = 0; i < bench.nresults && !bench_has_traces(&bench); i++)
		if (bench.results[i].wanted && !strncmp(bench.results[i].figure->name, "policy.", 7))
			return say_error("%s needs recorded requests; give their directory with --traces",
			                 bench.results[i].figure->name);
	return 0;
}

static int bench_print_list(void)
{
	char goal[16];

	for (uint32_t i = 0; i < bench.nresults; i++) {
		const struct bench_figure *figure = bench.results[i].figure;

		printf("%-22s %s; %s %s of %s\n", figure->name, figure->what, figure->below ? "at most" : "at least",
		       bench_number(figure->goal, goal, sizeof goal), figure->limit_name);
	}
	return CLI_WHOLE;
}

/* ---- the place --------------------------------------------------------------------------------------------------- */

static int bench_is_wanted(const struct bench_family *family)
{
	for (uint32_t i = 0; i < family->nfigures; i++)
		if (bench_wants(&bench, family->figures[i].name))
			return 1;
	return 0;
}

static int bench_check_needs(void)
{
	struct statvfs space;
	uint64_t most = 0;

	for (size_t i = 0; i < BENCH_FAMILIES; i++) {
		const struct bench_family *family = bench_families[i];

		if (!bench_is_wanted(family))
			continue;
		if (family->needs_fio && !bench_fio_present())
			return say_error("fio is missing, which measures the limit of flash; install it, or name other figures");
		uint64_t bytes = family->disk_bytes ? family->disk_bytes(&bench) : 0;
		most = bytes > most ? bytes : most;
	}
	if (statvfs(bench.dir, &space))
		return say_error("%s: %s", say_name(bench.dir), strerror(errno));
	uint64_t free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
	if (most > free_bytes / 10 * 9)
		return say_error("%s has %s free and %s are needed; free some, or give another STORE, --size or --quick",
		                 say_name(bench.dir), say_size(free_bytes), say_size(most));
	return 0;
}

/* 1: made by this run. -1 after a message. */
static int bench_make_dir(void)
{
	if (!bench_dir) {
		const char *parent = getenv("TMPDIR");

		if (asprintf(&bench.dir, "%s/cairn-bench.XXXXXX", parent && *parent ? parent : ".") < 0)
			abort();
		if (mkdtemp(bench.dir))
			return 1;
		say_error("%s: %s; name a STORE", say_name(bench.dir), strerror(errno));
		return -1;
	}
	bench.dir = strdup(bench_dir);
	if (!bench.dir)
		abort();
	if (!mkdir(bench.dir, 0700))
		return 1;
	DIR *dir = errno == EEXIST ? opendir(bench.dir) : NULL;
	if (!dir) {
		say_error("%s: %s", say_name(bench.dir), strerror(errno));
		return -1;
	}
	for (const struct dirent *entry; (entry = readdir(dir));)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
			say_error("%s holds %s; bench needs an empty directory, or one that is not there yet", say_name(bench.dir),
			          say_name(entry->d_name));
			closedir(dir);
			return -1;
		}
	closedir(dir);
	return 0;
}

/* ---- what is printed --------------------------------------------------------------------------------------------- */

static const char *bench_limit_name(const struct bench_result *result)
{
	return *result->limit_name ? result->limit_name : result->figure->limit_name;
}

static int bench_print_json(void)
{
	json_t *all = json_object(), *list = json_array();

	for (uint32_t i = 0; i < bench.nresults; i++) {
		const struct bench_result *result = &bench.results[i];
		struct bench_summary sum;
		json_t *row = json_object();

		if (!result->wanted)
			continue;
		bench_summarize(result, &sum);
		json_object_set_new(row, "name", json_string(result->figure->name));
		json_object_set_new(row, "value", json_real(sum.value));
		json_object_set_new(row, "unit", json_string(result->figure->unit));
		json_object_set_new(row, "limit", json_real(sum.limit));
		json_object_set_new(row, "limit_name", json_string(bench_limit_name(result)));
		json_object_set_new(row, "ratio", json_real(sum.ratio));
		json_object_set_new(row, "spread", json_real(sum.spread));
		json_object_set_new(row, "goal", json_real(result->figure->goal));
		json_object_set_new(row, "goal_is", json_string(result->figure->below ? "at most" : "at least"));
		json_object_set_new(row, "verdict", json_string(bench_verdict_name(sum.verdict)));
		json_object_set_new(row, "rounds", json_integer(result->count));
		json_object_set_new(row, "note", json_string(result->note));
		json_array_append_new(list, row);
	}
	json_object_set_new(all, "results", list);
	json_object_set_new(all, "quick", json_boolean(bench.quick));
	return say_json_end(all, CLI_WHOLE);
}

static int bench_print_table(void)
{
	uint32_t unsure = 0;

	printf("%-22s %14s %14s  %-28s %6s %8s %7s  %s\n", "figure", "value", "limit", "which is", "ratio", "goal",
	       "spread", "verdict");
	for (uint32_t i = 0; i < bench.nresults; i++) {
		const struct bench_result *result = &bench.results[i];
		const struct bench_figure *figure = result->figure;
		struct bench_summary sum;
		char value[24], limit[24], ratio[24], goal[24];

		if (!result->wanted)
			continue;
		bench_summarize(result, &sum);
		printf("%-22s %9s %-4s %9s %-4s  %-28s %6s %2s %5s %5.0f %%  %s\n", figure->name,
		       bench_number(sum.value, value, sizeof value), figure->unit, bench_number(sum.limit, limit, sizeof limit),
		       figure->unit, bench_limit_name(result), bench_number(sum.ratio, ratio, sizeof ratio),
		       figure->below ? "<=" : ">=", bench_number(figure->goal, goal, sizeof goal), sum.spread * 100,
		       bench_verdict_name(sum.verdict));
		if (*result->note)
			printf("%22s %s\n", "", result->note);
		unsure += sum.verdict == BENCH_UNSURE;
	}
	if (unsure)
		printf("\nunsure: the rounds differ by more than %.0f %%, or are fewer than three. For a quiet run, stop what "
		       "else\n"
		       "uses this machine and its disk, fix the processor's clock, and give --rounds 9 and more --size.\n",
		       BENCH_SPREAD_MOST * 100);
	return CLI_WHOLE;
}

static int bench_write_page(void)
{
	struct utsname name;
	char about[256];
	FILE *file = fopen(bench_page, "w");

	if (!file)
		return say_error("--html %s: %s", say_name(bench_page), strerror(errno));
	uname(&name);
	snprintf(about, sizeof about, "cairn %s, %s %.32s, %ld processors, %s of memory%s", cairn_version(), name.sysname,
	         name.release, sysconf(_SC_NPROCESSORS_ONLN),
	         say_size((uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE)),
	         bench.quick ? ", --quick" : "");
	int failed = bench_html(file, bench.results, bench.nresults, about);
	if (fclose(file) || failed)
		return say_error("--html %s: %s", say_name(bench_page), strerror(errno));
	return 0;
}

static int bench_main(char **operand, uint32_t count)
{
	bench_figures();
	if (bench_list)
		return bench_print_list();
	bench.rounds = bench.rounds ? bench.rounds : bench.quick ? 3 : 5;
	bench.size = bench.size ? bench.size : (uint64_t)(bench.quick ? 256 : 1024) << 20;
	bench.random = 1;
	if (bench_operands(operand, count))
		return CLI_ERROR;
	int made = bench_make_dir();
	if (made < 0)
		return CLI_ERROR;
	int status = bench_check_needs();
	if (!status)
		status = bench_run(&bench, bench_families, BENCH_FAMILIES);
	bench_clear(bench.dir);
	if (made)
		rmdir(bench.dir);
	free(bench.dir);
	if (!status && bench_page)
		status = bench_write_page();
	if (status)
		return status;
	return cli.json ? bench_print_json() : bench_print_table();
}

const struct verb verb_bench = {
	.name = "bench",
	.operands = "[STORE] [NAME...]",
	.summary = "measures this machine's store beside its limits",
	.text = "Measures what a store does on this machine, each figure beside its limit in the same run: fio for flash, "
			"memcpy for memory, send and receive for what travels, a time for the rest. STORE is an empty directory on "
			"the disk to measure, or one to be made; without it, a directory is made in $TMPDIR, or here. All is "
			"removed at the end. NAME is a figure, or the first words of several (\"flash\"); without it, all are "
			"measured."
			"\vExamples:\n"
			"  cairn bench --quick\n"
			"  cairn bench /mnt/nvme/bench flash --rounds 9\n"
			"  cairn bench memory lease --json\n"
			"  cairn bench --html bench.html\n",
	.options = bench_options,
	.option = bench_option,
	.run = bench_main,
	.shared = VERB_JSON | VERB_QUIET,
	.least = 0,
	.most = 32,
};
