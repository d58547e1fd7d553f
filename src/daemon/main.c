/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairnd: one store for all processes of a server. Opens the store, listens, and serves until SIGTERM or SIGINT.
 * Threads: this one accepts and takes signals; connections have their own (conn.c).
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "daemon/conf.h"
#include "daemon/daemon.h"
#include "store/store.h"

enum { KEY_CHECK = 300, KEY_PRINT, KEY_PRIVATE, KEY_CONF };

#define PRIVATE_FIRST_MS 30000 /* a private one that nobody asks for so long ends; later, after the last client */
#define PRIVATE_LAST_MS 500

struct words {
	struct conf conf;
	const char *file;
	int only_check, print, private;
};

/* ---- what is said ------------------------------------------------------------------------------------------------ */

static void say(const char *level, const char *text)
{
	struct timespec now;
	struct tm tm;
	char when[32];
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	fprintf(stderr, "%s.%03ldZ %s %s\n", when, now.tv_nsec / 1000000, level, text);
}

/* systemd's protocol: one datagram to the socket that it named. */
static void notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (!path || !path[0] || strlen(path) >= sizeof(address.sun_path))
		return;
	memcpy(address.sun_path, path, strlen(path));
	if (address.sun_path[0] == '@')
		address.sun_path[0] = 0;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	(void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
	             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
	close(fd);
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static const struct argp_option options[] = {
	{"dir", KEY_CONF, "PATH", 0, "The store's directory; made where it is missing or empty", 1},
	{"listen", KEY_CONF + 1, "PLACE", 0, "unix:PATH or tcp+plain://HOST:PORT; again for more (unix:DIR/cairn.sock)", 1},
	{"memory", KEY_CONF + 2, "SIZE", 0, "Memory tier (256MiB)", 1},
	{"flash", KEY_CONF + 3, "PATH[:SIZE]", 0, "A flash device and the most bytes on it; once for each", 1},
	{"catalog", KEY_CONF + 4, "SIZE", 0, "Memory of the catalog, 64 bytes a part (16MiB to 1GiB)", 1},
	{"segment", KEY_CONF + 5, "SIZE", 0, "Segments of a device that is made (fits the budget)", 1},
	{"check", KEY_CHECK, NULL, 0, "Check the configuration and end", 2},
	{"private", KEY_PRIVATE, NULL, 0, "In the background, until the last client has gone", 2},
	{"print-config", KEY_PRINT, NULL, 0, "Print the configuration in force and end", 2},
	{0},
};
static const char *const conf_words[] = {"dir", "listen", "memory", "flash", "catalog", "segment"};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct words *words = state->input;
	const char *expected;
	if (key >= KEY_CONF && key < KEY_CONF + (int)(sizeof(conf_words) / sizeof(conf_words[0]))) {
		const char *word = conf_words[key - KEY_CONF];
		if (conf_set(&words->conf, word, arg, &expected)) {
			fprintf(stderr, "cairnd: --%s %s; expected %s\n", word, arg, expected);
			exit(2);
		}
		return 0;
	}
	switch (key) {
	case KEY_CHECK:
		words->only_check = 1;
		return 0;
	case KEY_PRIVATE:
		words->private = 1;
		return 0;
	case KEY_PRINT:
		words->print = 1;
		return 0;
	case ARGP_KEY_ARG:
		if (words->file)
			return ARGP_ERR_UNKNOWN;
		words->file = arg;
		return conf_read(arg, &words->conf) ? (exit(2), 0) : 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* The first socket file to listen on; NULL: none. */
static const char *local_place(const struct conf *conf)
{
	for (uint32_t i = 0; i < conf->nlisten; i++)
		if (!strncmp(conf->listen[i], "unix:", 5))
			return conf->listen[i] + 5;
	return NULL;
}

/* What the file and the options leave open. 0 or -1. */
static int conf_complete(struct conf *conf)
{
	if (!conf->dir) {
		fprintf(stderr, "cairnd: no directory; give --dir PATH, or a configuration with a line dir: PATH\n");
		return -1;
	}
	if (!local_place(conf)) { /* also beside a network's: the directory leads to it */
		size_t room = strlen(conf->dir) + 32;
		char *place = mem_alloc(room);
		if (!place || conf->nlisten == CONF_LISTEN) {
			fprintf(stderr, "cairnd: at most %d places to listen, one of them a socket file\n", CONF_LISTEN);
			return -1;
		}
		snprintf(place, room, "unix:%s/cairn.sock", conf->dir);
		conf->listen[conf->nlisten++] = place;
	}
	if (!conf->socket_mode)
		conf->socket_mode = 0600;
	return 0;
}

/* ---- serving ----------------------------------------------------------------------------------------------------- */

/* The file by which those who are given the directory find the socket. Written aside and renamed, so that it is whole
 * or not there. */
static int place_tell(const struct conf *conf)
{
	char file[4200], aside[4200], socket[LINK_PATH_MAX];
	const char *path = local_place(conf);
	char directory[PATH_MAX] = "";
	/* From wherever they are: an absolute path. */
	if (path[0] != '/' && !getcwd(directory, sizeof(directory)))
		return -1;
	int n = snprintf(socket, sizeof(socket), "%s%s%s\n", directory, directory[0] ? "/" : "", path);
	snprintf(file, sizeof(file), "%s/daemon", conf->dir);
	snprintf(aside, sizeof(aside), "%s/daemon.new", conf->dir);
	int fd = n < (int)sizeof(socket) ? open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
	int error = fd < 0 || write(fd, socket, (size_t)n) != n || rename(aside, file);
	if (fd >= 0)
		close(fd);
	return error ? -1 : 0;
}

static void place_forget(const struct conf *conf)
{
	char file[4200];
	snprintf(file, sizeof(file), "%s/daemon", conf->dir);
	unlink(file);
}

static void listeners_close(struct link_listener *listeners[CONF_LISTEN], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		link_listener_close(listeners[i]);
}

static int listeners_open(const struct conf *conf, struct link_listener *listeners[CONF_LISTEN])
{
	for (uint32_t i = 0; i < conf->nlisten; i++) {
		struct link_place place;
		if (link_place_take(conf->listen[i], &place)) {
			fprintf(stderr, "cairnd: %s\n", cairn_error_text());
			listeners_close(listeners, i);
			return -1;
		}
		int error = link_listen(&place, conf->socket_mode, &listeners[i]);
		if (!error)
			continue;
		fprintf(stderr, "cairnd: %s: %s\n", conf->listen[i],
		        error == -EADDRINUSE ? "another process listens there: end it first" : strerror(-error));
		listeners_close(listeners, i);
		return -1;
	}
	return 0;
}

/* Until a signal ends it. */
static void serve_all(struct daemon *daemon, const struct conf *conf, struct link_listener *listeners[CONF_LISTEN],
                      int signals, int private)
{
	int wait = private ? PRIVATE_FIRST_MS : -1;
	struct pollfd polls[CONF_LISTEN + 1] = {{.fd = signals, .events = POLLIN}};
	for (uint32_t i = 0; i < conf->nlisten; i++)
		polls[i + 1] = (struct pollfd){.fd = listeners[i]->fd, .events = POLLIN};
	for (;;) {
		int n = poll(polls, conf->nlisten + 1, wait);
		if (n < 0 && errno != EINTR)
			return;
		if (n == 0 && !daemon_conns(daemon))
			return;
		if (n <= 0)
			continue;
		wait = private ? PRIVATE_LAST_MS : -1;
		if (polls[0].revents)
			return;
		for (uint32_t i = 0; i < conf->nlisten; i++) {
			if (!polls[i + 1].revents)
				continue;
			struct link *net;
			if (!link_accept(listeners[i], &net) && conn_start(daemon, net))
				say("warning", "a connection was refused: too many, or no memory for another");
		}
	}
}

static int run(const struct conf *conf, int signals, int private)
{
	struct daemon daemon = {0};
	struct link_listener *listeners[CONF_LISTEN];
	struct cairn_options open = {.size = sizeof(open),
	                             .flags = CAIRN_OPEN_CREATE,
	                             .memory_bytes = conf->memory_bytes,
	                             .catalog_bytes = conf->catalog_bytes,
	                             .flash = conf->nflash ? conf->flash : NULL,
	                             .nflash = conf->nflash,
	                             .free_floor_bytes = conf->free_floor_bytes,
	                             .segment_bytes = conf->segment_bytes,
	                             .io_threads = conf->io_threads,
	                             .pin_share_percent = conf->pin_share_percent};
	if (store_open_own(conf->dir, &open, &daemon.store)) {
		fprintf(stderr, "cairnd: %s\n", cairn_error_text());
		return 2;
	}
	pthread_mutex_init(&daemon.lock, NULL);
	pthread_cond_init(&daemon.ended, NULL);
	list_init(&daemon.clients);
	list_init(&daemon.conns);
	if (listeners_open(conf, listeners)) {
		cairn_close(daemon.store);
		return 2;
	}
	if (place_tell(conf))
		say("warning", "the directory's file `daemon` can not be written: who is given the directory will not find us");
	say("info", "ready");
	notify("READY=1");
	serve_all(&daemon, conf, listeners, signals, private);
	notify("STOPPING=1");
	say("info", "ending");
	place_forget(conf);
	listeners_close(listeners, conf->nlisten);
	daemon_stop(&daemon);
	int error = cairn_close(daemon.store);
	if (error)
		say("error", cairn_error_text());
	say("info", "ended");
	return error ? 2 : 0;
}

int main(int argc, char **argv)
{
	static struct words words;
	static const struct argp argp = {options, parse, "[CONFIG.yaml]",
	                                 "Serves one store to all processes of a server.", NULL, NULL, NULL};
	argp_program_version = "cairnd " CAIRN_VERSION;
	if (argp_parse(&argp, argc, argv, 0, NULL, &words) || conf_complete(&words.conf))
		return 2;
	if (words.print)
		conf_print(&words.conf, stdout);
	if (words.print || words.only_check)
		return 0;
	/* Whoever started it does not wait for it, nor does a terminal end it. */
	if (words.private && (fork() || setsid() < 0))
		return 0;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	check(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0); /* of all threads: they come by the descriptor alone */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	int signals = signalfd(-1, &set, SFD_CLOEXEC);
	check(signals >= 0);
	return run(&words.conf, signals, words.private);
}
