/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of a fuzz target in builds without libFuzzer: runs every file given, or found in the directories given;
 * without arguments, the empty input and the target's own corpus. Each file runs as it is, then cut short and with bits
 * flipped.
 *
 *     fuzz_NAME [--mutants N] [FILE or DIRECTORY]...
 *
 * Mutants depend on the file's bytes alone, so every run is the same. When the target crashes, the last line on stderr
 * names the file and the mutant; `fuzz_NAME FILE` repeats it. One thread; a copy of exact size is given to the target,
 * so that a sanitizer sees a read past its end.
 */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX_BYTES (16l << 20)

static char current[4300]; /* what runs now, for the crash handler */
static unsigned mutants = 32;
static unsigned long inputs, failures;

static void on_crash(int signal)
{
	static const char text[] = "\nreplay: crashed on ";
	ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
	n += write(STDERR_FILENO, current, strlen(current));
	n += write(STDERR_FILENO, "\n", 1);
	(void)n;
	raise(signal); /* SA_RESETHAND: the default action now */
}

static void catch_crashes(void)
{
	struct sigaction action = {.sa_handler = on_crash, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
	sigaction(SIGABRT, &action, NULL);
#ifndef __SANITIZE_ADDRESS__ /* the sanitizer reports these itself, then aborts */
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGFPE, &action, NULL);
#endif
}

static void run_one(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	if (!copy) {
		fprintf(stderr, "replay: out of memory\n");
		exit(1);
	}
	if (size)
		memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	inputs++;
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void run_mutants(const char *path, uint8_t *data, size_t size)
{
	uint64_t state = 0x9e3779b97f4a7c15u;
	for (size_t i = 0; i < size; i++)
		state = (state ^ data[i]) * 0x100000001b3u;
	state |= 1;
	for (unsigned m = 0; m < mutants && size; m++) {
		snprintf(current, sizeof current, "%s, mutant %u", path, m);
		if (m % 4 == 0) {
			run_one(data, next_random(&state) % size);
			continue;
		}
		/* Early bytes hold the lengths and versions: every other flip lands there. */
		size_t at = next_random(&state) % (m % 2 && size > 256 ? 256 : size);
		uint8_t old = data[at];
		data[at] ^= (uint8_t)(1u << (next_random(&state) % 8));
		run_one(data, size);
		data[at] = old;
	}
}

static void run_file(const char *path, long size)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
	if (!file || !data || size > INPUT_MAX_BYTES || fread(data, 1, (size_t)size, file) != (size_t)size) {
		fprintf(stderr, "replay: cannot read %s\n", path);
		failures++;
	} else {
		snprintf(current, sizeof current, "%s", path);
		run_one(data, (size_t)size);
		run_mutants(path, data, (size_t)size);
	}
	free(data);
	if (file)
		fclose(file);
}

static void run_path(const char *path, int must_exist)
{
	struct stat stat_of;
	if (stat(path, &stat_of) != 0) {
		if (must_exist) {
			fprintf(stderr, "replay: no such file: %s\n", path);
			failures++;
		}
		return;
	}
	if (!S_ISDIR(stat_of.st_mode)) {
		run_file(path, (long)stat_of.st_size);
		return;
	}
	struct dirent **entries;
	int count = scandir(path, &entries, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		char below[4200];
		if (entries[i]->d_name[0] != '.') {
			snprintf(below, sizeof below, "%s/%s", path, entries[i]->d_name);
			run_path(below, 1);
		}
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}

int main(int argc, char **argv)
{
	int at = 1;
	if (at + 1 < argc && strcmp(argv[at], "--mutants") == 0) {
		mutants = (unsigned)strtoul(argv[at + 1], NULL, 10);
		at += 2;
	}
	catch_crashes();
	if (at == argc) {
		snprintf(current, sizeof current, "the empty input");
		run_one(NULL, 0);
		run_path(FUZZ_CORPUS, 0);
	}
	for (; at < argc; at++)
		run_path(argv[at], 1);
	printf("replay: %lu inputs, %lu files unread\n", inputs, failures);
	return failures ? 1 : 0;
}
