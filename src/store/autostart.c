/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a private cairnd. Eight processes that open one directory at the same time may start eight: the directory's
 * lock lets one of them live, and all are its clients. So it is when they find that it was killed.
 *
 * Threads: any. Memory: its arguments, for as long as it may have to be started again. The process
 * is not forked (an engine may hold a GPU): spawned.
 */
#include "store/autostart.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"

enum { ARGUMENTS = 96, SIZE_TEXT = 24 };

struct autostart {
	char *list[ARGUMENTS]; /* each its own */
	uint32_t n;
	int failed; /* no memory for one of them */
	char program[PATH_MAX];
};

static void add_word(struct autostart *to, const char *word)
{
	char *copy = to->n + 1 < ARGUMENTS ? mem_copy_string(word) : NULL;
	if (copy)
		to->list[to->n++] = copy;
	else
		to->failed = 1;
}

static void add(struct autostart *to, const char *option, const char *value)
{
	add_word(to, option);
	if (value)
		add_word(to, value);
}

static void add_size(struct autostart *to, const char *option, uint64_t bytes)
{
	char text[SIZE_TEXT];
	if (!bytes)
		return;
	snprintf(text, SIZE_TEXT, "%llu", (unsigned long long)bytes);
	add(to, option, text);
}

static void arguments_make(struct autostart *to, const char *dir, const struct cairn_options *options)
{
	add(to, "cairnd", NULL);
	add(to, "--private", NULL);
	add(to, "--dir", dir);
	add_size(to, "--memory", options->memory_bytes);
	add_size(to, "--catalog", options->catalog_bytes);
	add_size(to, "--segment", options->segment_bytes);
	for (uint32_t i = 0; i < options->npeers && i < 16; i++)
		add(to, "--peer", options->peers[i]);
	for (uint32_t i = 0; i < options->nflash && i < 16; i++) {
		const struct cairn_flash *flash = &options->flash[i];
		char room[PATH_MAX], text[PATH_MAX + SIZE_TEXT];
		/* Inside of the directory where no path is given. */
		if (flash->path)
			snprintf(room, sizeof(room), "%s", flash->path);
		else
			snprintf(room, sizeof(room), "%.4000s/flash.cairn", dir);
		if (flash->budget_bytes)
			snprintf(text, sizeof(text), "%s:%llu", room, (unsigned long long)flash->budget_bytes);
		else
			snprintf(text, sizeof(text), "%s", room);
		add(to, "--flash", text);
	}
}

/* cairnd lies beside the program that runs or the library, or in bin near their directory; else PATH is searched. */
static void program_find(char ret_program[PATH_MAX])
{
	static const char *const near[] = {"cairnd", "../bin/cairnd", "../../bin/cairnd"};
	char places[3][PATH_MAX] = {"", "", ""};
	Dl_info library;
	ssize_t n = readlink("/proc/self/exe", places[0], PATH_MAX - 1);
	places[0][n > 0 ? n : 0] = 0;
	if (dladdr((void *)(uintptr_t)autostart_run, &library) && library.dli_fname) {
		snprintf(places[1], PATH_MAX, "%s", library.dli_fname);
		/* Of a library that was found by an empty part of LD_LIBRARY_PATH the name is its last part alone. */
		if (!realpath(library.dli_fname, places[2]))
			places[2][0] = 0;
	}
	for (int i = 0; i < 3; i++)
		for (size_t k = 0; k < sizeof(near) / sizeof(near[0]); k++) {
			const char *slash = strrchr(places[i], '/');
			int length = slash ? (int)(slash - places[i]) : -1;
			if (length < 0 || snprintf(ret_program, PATH_MAX, "%.*s/%s", length, places[i], near[k]) >= PATH_MAX)
				continue;
			if (!access(ret_program, X_OK))
				return;
		}
	snprintf(ret_program, PATH_MAX, "cairnd");
}

/* Runs it until it has made itself nobody's child (--private does): an engine that waits for its own does not meet
 * it. */
static int spawn(const char *program, char *const *list)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	sigset_t none;
	pid_t pid;
	int status = 0;
	sigemptyset(&none);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attributes);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_adddup2(&files, 0, 1);
	posix_spawn_file_actions_adddup2(&files, 0, 2);
	posix_spawn_file_actions_addclosefrom_np(&files, 3);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	int error = posix_spawnp(&pid, program, &files, &attributes, list, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&files);
	if (error)
		return err_set(CAIRN_E_NOENT, "cannot start %s: %s%s", program, strerror(error),
		               strchr(program, '/') ? "" : ": it lies neither beside this program or libcairn, nor in PATH");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	return 0;
}

int autostart_prepare(const char *path, const struct cairn_options *options, struct autostart **ret_start)
{
	char real[PATH_MAX] = "", dir[PATH_MAX];
	if (path[0] != '/' && !getcwd(real, sizeof(real)))
		return err_set(CAIRN_E_NOENT, "the current directory has no path: %s", strerror(errno));
	if (snprintf(dir, sizeof(dir), "%s%s%s", real, real[0] ? "/" : "", path) >= PATH_MAX)
		return err_set(CAIRN_E_INVAL, "the path of the directory is too long");
	struct autostart *start = mem_alloc(sizeof(*start));
	if (start)
		arguments_make(start, dir, options);
	if (!start || start->failed) {
		autostart_free(start);
		return err_set(CAIRN_E_NOMEM, "no memory to start cairnd");
	}
	program_find(start->program);
	*ret_start = start;
	return 0;
}

int autostart_run(const struct autostart *start)
{
	return spawn(start->program, start->list);
}

const char *autostart_dir(const struct autostart *start)
{
	return start->list[3]; /* behind --dir */
}

void autostart_free(struct autostart *start)
{
	for (uint32_t i = 0; start && i < start->n; i++)
		mem_free(start->list[i]);
	mem_free(start);
}
