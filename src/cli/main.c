/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program `cairn`: finds the verb and runs it.
 * Threads: one. Memory: none.
 * Invariant: the exit status is that of the verb, unless the output could not be written or a signal ended the work.
 */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const struct verb *const main_verbs[] = {
	&verb_put, &verb_get, &verb_ls, &verb_stat, &verb_session, &verb_explain, &verb_key, &verb_drop, &verb_fsck,
	&verb_init, &verb_bench, &verb_token, &verb_top, &verb_events,
};
enum { MAIN_VERBS = sizeof main_verbs / sizeof main_verbs[0] };

static const struct verb *main_find(const char *name)
{
	for (size_t i = 0; i < MAIN_VERBS; i++)
		if (!strcmp(main_verbs[i]->name, name))
			return main_verbs[i];
	return NULL;
}

static int main_unknown(const char *name)
{
	const char *names[MAIN_VERBS + 2];

	for (size_t i = 0; i < MAIN_VERBS; i++)
		names[i] = main_verbs[i]->name;
	names[MAIN_VERBS] = "help";
	names[MAIN_VERBS + 1] = "serve";
	const char *closest = args_closest(name, names, MAIN_VERBS + 2);
	if (name[0] == '-' && name[1])
		return say_error("unknown option %s before the verb; options stand behind it, see cairn help", say_name(name));
	if (closest)
		return say_error("there is no verb \"%s\"; did you mean \"%s\"? See cairn help", say_name(name), closest);
	return say_error("there is no verb \"%s\"; see cairn help", say_name(name));
}

static int main_help(int argc, char **argv)
{
	if (argc > 1) {
		const struct verb *verb = main_find(argv[1]);

		if (!verb)
			return main_unknown(argv[1]);
		args_help(verb);
		return CLI_WHOLE;
	}
	puts("cairn keeps the KV cache of LLM inference after it has left GPU memory, and brings it back.\n"
	     "\n"
	     "Usage: cairn VERB [OPTION...] ...\n");
	for (size_t i = 0; i < MAIN_VERBS; i++)
		printf("  %-8s %s\n", main_verbs[i]->name, main_verbs[i]->summary);
	puts("  serve    serve a store to all processes of this server (cairnd; cairn serve --help)\n"
	     "\n"
	     "STORE is a directory; or a cairnd: unix:PATH on this server, tcp://HOST:PORT on another. One process owns a\n"
	     "directory at a time; where that is a cairnd, it is asked. put makes a store where there is none.\n"
	     "\n"
	     "  cairn help VERB      options and examples of a verb; also cairn VERB --help\n"
	     "  cairn --version      the version\n"
	     "\n"
	     "Exit status: 0 done, whole, found; 1 not there, damaged or different; 2 an error.\n"
	     "\n"
	     "Try it:\n"
	     "  cairn put /tmp/store notes /etc/services     # moves a file into a store\n"
	     "  cairn ls /tmp/store                          # what sessions are in it\n"
	     "  cairn get /tmp/store notes /tmp/notes        # and back, checked");
	return CLI_WHOLE;
}

static int main_run(int argc, char **argv)
{
	if (argc < 2)
		return say_error("the verb is missing; see cairn help");
	if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return main_help(argc - 1, argv + 1);
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("cairn %s\n", cairn_version());
		return CLI_WHOLE;
	}
	if (!strcmp(argv[1], "serve"))
		return serve_exec(argc - 1, argv + 1);
	const struct verb *verb = main_find(argv[1]);
	return verb ? args_run(verb, argc - 1, argv + 1) : main_unknown(argv[1]);
}

/* A closed standard stream's number would be a store's next file, and words meant for people would go into it. What is
 * opened in its place refuses what the stream is for, as a closed one does; but words of errors go nowhere. */
static void main_streams(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			(void)!open("/dev/null", fd == 1 ? O_RDONLY : O_WRONLY);
}

int main(int argc, char **argv)
{
	main_streams();
	signal(SIGXFSZ, SIG_IGN); /* a limit on files (ulimit -f) is an error with a text, not an end without one */
	setlocale(LC_TIME, "");
	say_catch_signals();
	int status = main_run(argc, argv);

	say_end_by_signal();
	if (fflush(stdout) || ferror(stdout)) {
		if (errno == EPIPE) {
			/* As any program that writes into a pipe that nobody reads. */
			signal(SIGPIPE, SIG_DFL);
			raise(SIGPIPE);
		}
		status = say_error("cannot write the output: %s", strerror(errno));
	}
	return status;
}
