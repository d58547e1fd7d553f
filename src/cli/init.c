/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cairn init`: prepares raw block devices, so that a store can have them as flash devices.
 * Threads: one. Memory: a struct for each device, held open until the end.
 * Invariant: all devices are looked at before the first byte is written to any, and nothing is written to one that
 * holds anything but cairn's own.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "fsck/raw.h"

enum { INIT_DEVICES = 16 };
extern char **environ;

/* What blkid finds on the device, as "ext4" or "gpt"; empty: nothing, or there is no blkid. */
static void init_blkid(const char *path, char text[64])
{
	char *const arguments[] = {"blkid", "-p",     "-o", "value", "-s",
	                           "TYPE",  "-s", "PTTYPE", (char *)(uintptr_t)path, NULL};
	posix_spawn_file_actions_t actions;
	int ends[2];
	pid_t child;

	text[0] = '\0';
	if (pipe(ends))
		return;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	posix_spawn_file_actions_addclose(&actions, ends[0]);
	posix_spawn_file_actions_addclose(&actions, ends[1]);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	int failed = posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	if (!failed) {
		ssize_t length = read(ends[0], text, 63);
		text[length > 0 ? length : 0] = '\0';
		text[strcspn(text, "\n")] = '\0';
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
	}
	close(ends[0]);
}

/* 0, or CLI_ERROR: it holds what must not be lost. */
static int init_look(const struct raw *raw)
{
	char found[64];

	init_blkid(raw->path, found);
	if (found[0])
		return say_error("%s holds %s: nothing was written; if it may be lost, wipefs -a %s and blkdiscard or zero it",
		                 say_name(raw->path), say_name(found), say_name(raw->path));
	if (raw->state == RAW_FOREIGN)
		return say_error("%s is not empty (there is something at byte %llu): nothing was written; if it may be lost,"
		                 " zero its first MiB and its last 64 KiB",
		                 say_name(raw->path), (unsigned long long)raw->foreign_at);
	return 0;
}

/* Whoever answers must have read what is lost. 0, or CLI_ERROR. */
static int init_ask(const struct raw *raws, uint32_t count)
{
	char answer[16] = "";

	if (cli.yes)
		return 0;
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		return say_error("nothing was written: there is no terminal to ask on; add --yes to go on without a question");
	for (uint32_t i = 0; i < count; i++)
		fprintf(stderr, "%s (%s) %s\n", say_name(raws[i].path), say_size(raws[i].bytes),
		        raws[i].state == RAW_STORE ? "is a device of a cairn store: ALL THAT IS ON IT WILL BE LOST"
		                                   : "will be given to cairn, whole");
	fputs("Type yes to go on: ", stderr);
	ssize_t length = read(STDIN_FILENO, answer, sizeof answer - 1);
	if (length > 0 && !strcmp(answer, "yes\n"))
		return 0;
	return say_error("nothing was written");
}

static int init_end(const struct raw *raws, uint32_t count)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < count; i++) {
		json_t *object = json_object();

		json_object_set_new(object, "path", say_json(raws[i].path));
		say_json_number(object, "bytes", raws[i].bytes);
		json_array_append_new(list, object);
		say_line("%s: %s, ready; give it to a store with --flash %s", say_name(raws[i].path), say_size(raws[i].bytes),
		         say_name(raws[i].path));
	}
	if (cli.json)
		return say_json_end(list, CLI_WHOLE);
	json_decref(list);
	return CLI_WHOLE;
}

static int init_run(char **operand, uint32_t count)
{
	struct raw raws[INIT_DEVICES];
	uint32_t opened = 0;
	int status = 0;

	for (; opened < count && !status; opened++) {
		if (raw_open(operand[opened], &raws[opened])) {
			status = say_error("%s", cairn_error_text());
			break;
		}
		status = init_look(&raws[opened]);
	}
	if (!status)
		status = init_ask(raws, count);
	for (uint32_t i = 0; i < count && !status; i++)
		if (raw_prepare(&raws[i]))
			status = say_error("%s", cairn_error_text());
	if (!status)
		status = init_end(raws, count);
	for (uint32_t i = 0; i < opened; i++)
		raw_close(&raws[i]);
	return status;
}

const struct verb verb_init = {
	.name = "init",
	.operands = "DEVICE...",
	.summary = "prepare raw block devices for a store",
	.text =
		"Prepares raw block devices, so that a store can have them with --flash DEVICE. Refuses what is mounted, in "
		"use, smaller than 64 MiB, or holds anything but a device of cairn, and asks before it writes."
		"\vExamples:\n"
		"  cairn init /dev/nvme1n1\n"
		"  cairn put /var/cache/cairn notes notes.tar --flash /dev/nvme1n1\n",
	.run = init_run,
	.shared = VERB_JSON | VERB_QUIET | VERB_YES,
	.least = 1,
	.most = INIT_DEVICES,
};
