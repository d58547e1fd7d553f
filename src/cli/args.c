/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments: the options that verbs share, sizes, times and keys as text, and what is said about a wrong one.
 * Threads: one. Memory: none.
 * Invariant: argp stays silent (ARGP_NO_ERRS); a wrong argument is said here, in one line with what to do.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* Returned by parsers after a message; no errno that argp makes. */
#define ARGS_SAID ECANCELED
#define ARGS_OPTIONS_MAX 64

enum {
	KEY_MEMORY = 300,
	KEY_FLASH,
	KEY_BUDGET,
	KEY_WRITE_BUDGET,
	KEY_READ_ONLY,
	KEY_IO,
	KEY_TOKEN,
	KEY_JSON,
	KEY_OWNER,
	KEY_TENANT,
};

static const struct args_shared {
	uint32_t needs;
	struct argp_option option;
} args_shared[] = {
	{VERB_SESSION, {"owner", KEY_OWNER, "OWNER", 0, "Owner of the session (none)", 10}},
	{VERB_SESSION, {"tenant", KEY_TENANT, "TENANT", 0, "Tenant of the session (\"default\")", 10}},
	{VERB_STORE, {"memory", KEY_MEMORY, "SIZE", 0, "Memory tier while this runs (64 MiB)", 20}},
	{VERB_STORE, {"flash", KEY_FLASH, "PATH[:SIZE]", 0, "A flash device and the most bytes on it; once for each", 20}},
	{VERB_STORE, {"budget", KEY_BUDGET, "SIZE", 0, "Most bytes of flash inside STORE (half of what is free)", 20}},
	{VERB_STORE, {"write-budget", KEY_WRITE_BUDGET, "SIZE", 0, "Most bytes a day to flash, for now (no limit)", 20}},
	{VERB_STORE, {"read-only", KEY_READ_ONLY, NULL, 0, "Write nothing to STORE, as verbs that only look", 20}},
	{VERB_STORE, {"io", KEY_IO, "ENGINE", 0, "auto, threads or uring: how flash is read and written (auto)", 20}},
	{VERB_STORE, {"token", KEY_TOKEN, "FILE", 0, "The token for a cairnd at tcp:// (~/.config/cairn/token)", 20}},
	{VERB_JSON, {"json", KEY_JSON, NULL, 0, "Print JSON: bytes and seconds as numbers", 30}},
	{VERB_YES, {"yes", 'y', NULL, 0, "Do not ask", 30}},
	{VERB_QUIET, {"quiet", 'q', NULL, 0, "Print errors only", 30}},
	{0, {"help", 'h', NULL, 0, "Print this text", 40}},
};

/* What the parser of one verb knows. */
struct args {
	const struct verb *verb;
	char **operand;
	uint32_t count, most;
	const char *wrong; /* the argument that getopt refused */
};

/* ---- values ------------------------------------------------------------------------------------------------------ */

int args_number(const char *text, uint64_t most, uint64_t *ret_number)
{
	char *end;

	/* strtoull takes signs and blanks. */
	if (*text < '0' || *text > '9')
		return -1;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	if (errno || *end || number > most)
		return -1;
	*ret_number = number;
	return 0;
}

int args_size(const char *text, uint64_t *ret_bytes)
{
	static const char units[] = "KMGTPE";
	char digits[24];
	size_t length = strspn(text, "0123456789");
	uint64_t number, unit = 1;

	if (length >= sizeof digits)
		return -1;
	memcpy(digits, text, length);
	digits[length] = '\0';
	if (args_number(digits, UINT64_MAX, &number))
		return -1;
	text += length;
	text += *text == ' ';
	if (*text && strcmp(text, "B") != 0) {
		char letter = *text == 'k' ? 'K' : *text;
		const char *found = strchr(units, letter);
		int thousand = text[1] == 'B' && !text[2];

		if (!found || !(!text[1] || thousand || !strcmp(text + 1, "i") || !strcmp(text + 1, "iB")))
			return -1;
		for (const char *at = units; at <= found; at++)
			unit *= thousand ? 1000 : 1024;
	}
	if (number > UINT64_MAX / unit)
		return -1;
	*ret_bytes = number * unit;
	return 0;
}

int args_duration(const char *text, uint64_t *ret_s)
{
	static const struct {
		const char *name;
		uint64_t s;
	} units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}, {"w", 7 * 86400}};
	char digits[16];
	size_t length = strspn(text, "0123456789");
	uint64_t number;

	if (length >= sizeof digits)
		return -1;
	memcpy(digits, text, length);
	digits[length] = '\0';
	if (args_number(digits, UINT32_MAX, &number))
		return -1;
	text += length;
	text += *text == ' ';
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
		if (!strcmp(text, units[i].name)) {
			*ret_s = number * units[i].s;
			return 0;
		}
	return -1;
}

long args_hex(const char *text, uint8_t *bytes, size_t max)
{
	static const char digits[] = "0123456789abcdef";
	size_t length = strlen(text);

	if (length % 2 || length / 2 > max)
		return -1;
	for (size_t i = 0; i < length; i++) {
		char letter = text[i] >= 'A' && text[i] <= 'F' ? (char)(text[i] - 'A' + 'a') : text[i];
		const char *found = strchr(digits, letter);

		if (!found)
			return -1;
		uint8_t value = (uint8_t)(found - digits);
		bytes[i / 2] = (uint8_t)(i % 2 ? bytes[i / 2] | value : value << 4);
	}
	return (long)(length / 2);
}

/* How many letters must be changed, added or left out to make one word of the other; long words are far from all. */
static size_t args_distance(const char *a, const char *b)
{
	enum { LONGEST = 32 };
	size_t row[LONGEST + 1], length_a = strlen(a), length_b = strlen(b);

	if (length_a > LONGEST || length_b > LONGEST)
		return LONGEST;
	for (size_t j = 0; j <= length_b; j++)
		row[j] = j;
	for (size_t i = 1; i <= length_a; i++) {
		size_t corner = row[0];

		row[0] = i;
		for (size_t j = 1; j <= length_b; j++) {
			size_t changed = corner + (a[i - 1] != b[j - 1]), other = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

			corner = row[j];
			row[j] = changed < other ? changed : other;
		}
	}
	return row[length_b];
}

const char *args_closest(const char *text, const char *const *words, size_t count)
{
	const char *best = NULL;
	size_t least = strlen(text) / 3 + 2; /* farther is another word */

	for (size_t i = 0; i < count; i++) {
		size_t distance = args_distance(text, words[i]);

		if (distance < least) {
			least = distance;
			best = words[i];
		}
	}
	return best;
}

int args_session(const char *name, struct cairn_session_name *ret_name)
{
	size_t length = strlen(name);

	if (!length || length > 255)
		return say_error("NAME has %zu bytes; a session's name has 1 to 255", length);
	*ret_name = (struct cairn_session_name){.tenant = cli.tenant, .owner = cli.owner, .name = name};
	return 0;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* PATH:SIZE. A colon that no size follows is part of the path. */
static int args_flash(char *value)
{
	char *colon = strrchr(value, ':');
	struct cairn_flash *flash = &cli.flash[cli.nflash];

	if (cli.nflash == sizeof cli.flash / sizeof cli.flash[0])
		return say_error("--flash is given more than %u times; a store has at most as many devices", cli.nflash);
	*flash = (struct cairn_flash){.path = value};
	if (colon && !args_size(colon + 1, &flash->budget_bytes))
		*colon = '\0';
	else if (colon && colon[1] >= '0' && colon[1] <= '9' && !strchr(colon, '/'))
		return say_error("--flash %s: \"%s\" is not a size; write it like 10G or 512MiB", value, colon + 1);
	if (!*value)
		return say_error(
			"--flash: the path is missing; write --flash PATH:SIZE, or --budget SIZE for flash inside STORE");
	cli.nflash++;
	return 0;
}

static int args_set_size(const char *option, const char *value, uint64_t *ret_bytes)
{
	if (args_size(value, ret_bytes) || !*ret_bytes)
		return say_error("--%s %s: not a size; write it like 64M or 10GiB", option, value);
	return 0;
}

static int args_io(const char *value)
{
	static const char *const names[] = {"auto", "threads", "uring"};

	for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (!strcmp(value, names[i])) {
			cli.io_engine = i;
			return 0;
		}
	return say_error("--io %s: there are auto, threads and uring", say_name(value));
}

static int args_set_shared(int key, char *value)
{
	switch (key) {
	case KEY_OWNER: cli.owner = value; return 0;
	case KEY_TENANT:
		if (!*value)
			return say_error("--tenant is empty; name it, or leave it out for \"default\"");
		cli.tenant = value;
		return 0;
	case KEY_MEMORY: return args_set_size("memory", value, &cli.memory_bytes);
	case KEY_BUDGET: return args_set_size("budget", value, &cli.budget_bytes);
	case KEY_WRITE_BUDGET: return args_set_size("write-budget", value, &cli.write_bytes_day);
	case KEY_FLASH: return args_flash(value);
	case KEY_READ_ONLY: cli.read_only = 1; return 0;
	case KEY_IO: return args_io(value);
	case KEY_TOKEN: cli.token_file = value; return 0;
	case KEY_JSON: cli.json = 1; return 0;
	case 'q': cli.quiet = 1; return 0;
	default: cli.yes = 1; return 0;
	}
}

static error_t args_parse(int key, char *value, struct argp_state *state)
{
	struct args *args = state->input;

	if (key == 'h') {
		args_help(args->verb);
		exit(fflush(stdout) ? CLI_ERROR : CLI_WHOLE);
	}
	if (key == ARGP_KEY_ARG) {
		if (args->count == args->most) {
			say_error("\"%s\" is one argument too many; usage: cairn %s %s", say_name(value), args->verb->name,
			          args->verb->operands);
			return ARGS_SAID;
		}
		args->operand[args->count++] = value;
		return 0;
	}
	if (key == ARGP_KEY_ERROR) {
		/* getopt has passed a long option by now, but stands on a cluster of short ones. */
		const char *next = state->argv[state->next];

		args->wrong = next && next[0] == '-' && next[1] && next[1] != '-' ? next : state->argv[state->next - 1];
		return 0;
	}
	if (key <= 0 || key >= ARGP_KEY_END)
		return ARGP_ERR_UNKNOWN;
	int status = key >= VERB_KEY ? args->verb->option(key, value) : args_set_shared(key, value);
	return status ? ARGS_SAID : 0;
}

/* All options of a verb in one table; ends with an empty one. */
static void args_options(const struct verb *verb, struct argp_option options[ARGS_OPTIONS_MAX])
{
	size_t used = 0;

	memset(options, 0, ARGS_OPTIONS_MAX * sizeof *options);
	for (const struct argp_option *own = verb->options; own && own->name && used < ARGS_OPTIONS_MAX / 2; own++)
		options[used++] = *own;
	for (size_t i = 0; i < sizeof args_shared / sizeof args_shared[0]; i++)
		if ((args_shared[i].needs & verb->shared) == args_shared[i].needs)
			options[used++] = args_shared[i].option;
}

void args_help(const struct verb *verb)
{
	struct argp_option options[ARGS_OPTIONS_MAX];
	struct argp argp = {.options = options, .args_doc = verb->operands, .doc = verb->text};
	char name[64];

	args_options(verb, options);
	snprintf(name, sizeof name, "cairn %s", verb->name);
	argp_help(&argp, stdout, ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC, name);
}

/* getopt says only that something is wrong with this argument. */
static int args_say_wrong(const struct verb *verb, const struct argp_option *options, const char *wrong)
{
	const char *words[ARGS_OPTIONS_MAX], *found = NULL;
	char name[64];
	size_t count = 0, matching = 0;
	const struct argp_option *option = NULL;

	for (const struct argp_option *at = options; at->name; at++)
		words[count++] = at->name;
	if (strncmp(wrong, "--", 2) != 0)
		return say_error("unknown option %s; see cairn %s --help", say_name(wrong), verb->name);
	size_t length = strcspn(wrong + 2, "=");
	snprintf(name, sizeof name, "%.*s", length < sizeof name ? (int)length : (int)sizeof name - 1, wrong + 2);
	for (const struct argp_option *at = options; at->name; at++)
		if (!strncmp(at->name, name, strlen(name))) {
			matching++;
			option = at;
			if (!at->name[strlen(name)])
				break;
		}
	if (matching > 1 && strcmp(option->name, name) != 0)
		return say_error("option --%s could be one of several; write it in full, see cairn %s --help", name,
		                 verb->name);
	if (matching && option->arg)
		return say_error("option --%s needs a value: --%s %s", option->name, option->name, option->arg);
	if (matching)
		return say_error("option --%s takes no value; leave out \"%s\"", option->name, say_name(wrong + 2 + length));
	found = args_closest(name, words, count);
	if (found)
		return say_error("unknown option --%s; did you mean --%s? See cairn %s --help", say_name(name), found,
		                 verb->name);
	return say_error("unknown option --%s; see cairn %s --help", say_name(name), verb->name);
}

static int args_say_missing(const struct verb *verb, uint32_t count)
{
	const char *at = verb->operands;

	/* The names of the operands are the words of the usage. */
	while (count--)
		at += strcspn(at, " ") + (at[strcspn(at, " ")] == ' ');
	return say_error("%.*s is missing; usage: cairn %s %s", (int)strcspn(at, " "), at, verb->name, verb->operands);
}

int args_run(const struct verb *verb, int argc, char **argv)
{
	struct argp_option options[ARGS_OPTIONS_MAX];
	struct argp argp = {.options = options, .parser = args_parse, .args_doc = verb->operands, .doc = verb->text};
	struct args args = {.verb = verb, .most = verb->most < (uint32_t)argc ? verb->most : (uint32_t)argc};

	cli.verb = verb;
	args.operand = calloc((size_t)argc + 1, sizeof *args.operand);
	if (!args.operand)
		return say_error("out of memory; free some and try again");
	args_options(verb, options);
	error_t error = argp_parse(&argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, NULL, &args);
	int status;

	if (error == ARGS_SAID)
		status = CLI_ERROR;
	else if (error)
		status = args_say_wrong(verb, options, args.wrong ? args.wrong : argv[argc - 1]);
	else if (args.count < verb->least)
		status = args_say_missing(verb, args.count);
	else
		status = verb->run(args.operand, args.count);
	free(args.operand);
	return status;
}
