/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairnd: one store for all processes of a server. Opens the store, listens, and serves until SIGTERM or SIGINT; SIGHUP
 * has it read its configuration anew.
 * Threads: this one accepts, takes signals and looks after what is due now and then; connections have their own
 * (conn.c).
 */
#include <argp.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "daemon/admin.h"
#include "daemon/conf.h"
#include "daemon/daemon.h"
#include "daemon/limit.h"
#include "daemon/listen.h"
#include "daemon/log.h"
#include "store/store.h"

enum { KEY_CHECK = 300, KEY_PRINT, KEY_PRIVATE, KEY_CONF };

#define PRIVATE_FIRST_MS 30000 /* a private one that nobody asks for so long ends; later, after the last client */
#define PRIVATE_LAST_MS 500
#define PRIVATE_TICK_MS 100
#define PRIVATE_STOP_S 20 /* the end of a private one may take */
#define TICK_MS 1000
#define MEMORY_BYTES (256ull << 20)      /* unless the configuration says otherwise */
#define MEMORY_LEAST_BYTES (8ull << 20)
#define IN_FLIGHT_LEAST_BYTES (4ull << 20)
#define MEMORY_OWN_BYTES (48ull << 20)   /* of the process, beside the memory tier and the catalog */
#define OPTIONS_MAX 64

/* What the command line said; options count over the file, so they are kept until it has been read. */
struct words {
	const char *file;
	struct {
		const char *word, *value;
	} options[OPTIONS_MAX];
	uint32_t noptions;
	int only_check, print, private;
};

struct server {
	const struct words *words;
	struct conf start, now; /* as it was started, and as it is in force */
	struct listeners listeners;
	struct daemon daemon;
	struct admin *admin; /* NULL: none */
	uint32_t alarms;     /* that were said */
	uint64_t alive_ms;   /* when the watchdog was told last */
	int signals, private;
};

/* ---- what is said ------------------------------------------------------------------------------------------------ */

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
	{"listen", KEY_CONF + 1, "PLACE", 0, "unix:PATH, tcp://HOST:PORT or tcp+plain://HOST:PORT; again for more", 1},
	{"memory", KEY_CONF + 2, "SIZE", 0, "Memory tier (256MiB)", 1},
	{"flash", KEY_CONF + 3, "PATH[:SIZE]", 0, "A flash device and the most bytes on it; once for each", 1},
	{"catalog", KEY_CONF + 4, "SIZE", 0, "Memory of the catalog, 64 bytes a part (16MiB to 1GiB)", 1},
	{"segment", KEY_CONF + 5, "SIZE", 0, "Segments of a device that is made (fits the budget)", 1},
	{"admin", KEY_CONF + 8, "HOST:PORT", 0, "Metrics and health over HTTP, or off (127.0.0.1:7411)", 1},
	{"peer", KEY_CONF + 9, "PLACE", 0, "Another cairnd that is asked for what is not here; once for each", 1},
	{"log", KEY_CONF + 6, "FORM", 0, "text or json (text)", 1},
	{"log-level", KEY_CONF + 7, "LEVEL", 0, "error, warning, info or debug (info)", 1},
	{"check", KEY_CHECK, NULL, 0, "Check the configuration and end", 2},
	{"private", KEY_PRIVATE, NULL, 0, "In the background, until the last client has gone", 2},
	{"print-config", KEY_PRINT, NULL, 0, "Print the configuration in force and end", 2},
	{0},
};
static const char *const conf_words[] = {"dir",     "listen", "memory",    "flash", "catalog",
                                         "segment", "log",    "log_level", "admin", "peers"};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct words *words = state->input;
	if (key >= KEY_CONF && key < KEY_CONF + (int)(sizeof(conf_words) / sizeof(conf_words[0]))) {
		if (words->noptions == OPTIONS_MAX)
			argp_failure(state, 2, 0, "more than %d options", OPTIONS_MAX);
		words->options[words->noptions].word = conf_words[key - KEY_CONF];
		words->options[words->noptions++].value = arg;
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
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* The whole configuration: the file, the options over it, the defaults under both. 0, or -1 with ret_fault. */
static int conf_load(const struct words *words, struct conf *ret_conf, char ret_fault[CONF_FAULT_BYTES])
{
	const char *expected;
	memset(ret_conf, 0, sizeof(*ret_conf));
	int error = words->file ? conf_read(words->file, ret_conf, ret_fault) : 0;
	for (uint32_t i = 0; i < words->noptions && !error; i++) {
		error = conf_set(ret_conf, words->options[i].word, words->options[i].value, &expected);
		if (error)
			snprintf(ret_fault, CONF_FAULT_BYTES, "--%s %.255s; expected %s", words->options[i].word,
			         words->options[i].value, expected);
	}
	return error || conf_complete(ret_conf, ret_fault) ? -1 : 0;
}

/* ---- reload ------------------------------------------------------------------------------------------------------ */

/* What takes effect at once. */
static void conf_apply(struct server *server, const struct conf *conf)
{
	log_set(conf->log == 2, (enum log_level)(conf->log_level - 1));
	store_alarm_minutes(server->daemon.store, conf->alarm_minutes);
	traffic_set(&server->daemon, conf_in_flight(conf->in_flight_bytes ? conf : &server->start)); /* the memory's */
}

/* Metrics and health are a help, not a need: without them cairnd goes on. */
static void admin_start(struct server *server, const char *place)
{
	if (server->private || !strcmp(place, "off"))
		return;
	int error = admin_open(&server->daemon, place, &server->admin);
	if (error)
		LOG(LOG_WARNING, "no metrics and no health: their port can not be had", LOG_TEXT("admin", place),
		    LOG_TEXT("why", strerror(-error)));
	else
		LOG(LOG_INFO, "metrics and health", LOG_TEXT("admin", place), LOG_NUMBER("port", admin_port(server->admin)));
}

static void admin_change(struct server *server, const char *place)
{
	if (server->admin && !strcmp(server->now.admin, place))
		return;
	admin_close(server->admin);
	server->admin = NULL;
	admin_start(server, place);
}

static void say_restart(void *arg, const char *key, int live)
{
	(void)arg;
	if (!live)
		LOG(LOG_WARNING, "a change that needs a restart", LOG_TEXT("key", key));
}

static void say_changed(void *arg, const char *key, int live)
{
	(void)arg;
	if (live)
		LOG(LOG_INFO, "changed", LOG_TEXT("key", key));
}

/* Reads the configuration anew. What can change at once does; connections are not touched. */
static void reload(struct server *server)
{
	struct conf conf;
	char fault[CONF_FAULT_BYTES];
	struct cairn_tenant_limits tenants[CONF_TENANTS];
	int error = conf_load(server->words, &conf, fault);
	if (!error && cairn_limits(server->daemon.store, tenants, conf_tenants(&conf, tenants))) {
		snprintf(fault, sizeof(fault), "%.700s", cairn_error_text());
		error = -1;
	}
	if (error) {
		LOG(LOG_ERROR, "the configuration was not taken: nothing has changed", LOG_TEXT("why", fault));
		conf_done(&conf);
		atomic_fetch_add(&server->daemon.metrics.reloads_failed, 1);
		return;
	}
	conf_apply(server, &conf);
	conf_compare(&server->start, &conf, say_restart, NULL);
	conf_compare(&server->now, &conf, say_changed, NULL);
	char local[LINK_PATH_MAX];
	snprintf(local, sizeof(local), "%s", conf_local_place(&server->now));
	listeners_change(&server->listeners, &conf);
	admin_change(server, conf.admin);
	atomic_fetch_add(&server->daemon.metrics.reloads, 1);
	conf_done(&server->now);
	server->now = conf;
	if (strcmp(local, conf_local_place(&conf)) != 0 && place_tell(server->start.dir, conf_local_place(&conf)))
		log_say(LOG_WARNING, "the directory's file `daemon` can not be written");
	log_say(LOG_INFO, "reloaded");
}

/* ---- serving ----------------------------------------------------------------------------------------------------- */

/* Whether it is to end. */
static int signal_take(struct server *server)
{
	struct signalfd_siginfo info;
	if (read(server->signals, &info, sizeof(info)) != sizeof(info))
		return 0;
	if (info.ssi_signo != SIGHUP)
		return 1;
	notify("RELOADING=1");
	reload(server);
	notify("READY=1");
	return 0;
}

static void accept_one(struct server *server, const struct listener *listener)
{
	struct link *net;
	int refused = link_accept(listener->link, &net), error = refused ? 0 : conn_start(&server->daemon, net);
	if (refused == -EMFILE || refused == -ENFILE || refused == -ENOMEM || refused == -ENOBUFS) {
		error = refused;
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* it stays there to be accepted: not in a circle */
	}
	if (error)
		atomic_fetch_add(&server->daemon.metrics.conns_refused, 1);
	if (error)
		LOG(LOG_WARNING, "a connection was refused: too many, or no memory for another",
		    LOG_TEXT("place", listener->place.text), LOG_TEXT("why", strerror(-error)));
}

/* Says an alarm when it is raised and when it is over. */
static void alarms_say(struct server *server)
{
	cairn *store = server->daemon.store;
	pthread_mutex_lock(&store->lock);
	uint32_t alarms = store_alarms(store), minutes = store->alarm.minutes;
	pthread_mutex_unlock(&store->lock);
	for (uint32_t bit = CAIRN_ALARM_WRITE_ONLY; bit <= CAIRN_ALARM_NO_DEMOTION; bit <<= 1) {
		if ((alarms & bit) && !(server->alarms & bit))
			LOG(LOG_WARNING, "alarm", LOG_TEXT("kind", cairn_alarm_name(bit)), LOG_NUMBER("minutes", minutes),
			    LOG_TEXT("what", bit == CAIRN_ALARM_WRITE_ONLY
			                         ? "much is written and less than 1 % of it read: compare keys with cairn explain"
			                         : "memory evicts what is in no other tier, and nothing arrives in flash"));
		if (!(alarms & bit) && (server->alarms & bit))
			LOG(LOG_INFO, "alarm over", LOG_TEXT("kind", cairn_alarm_name(bit)));
	}
	server->alarms = alarms;
}

static uint64_t now_ms(void)
{
	return clock_mono_ns(&clock_real) / 1000000;
}

/* Tells systemd that this thread turns and that the store answers; where either hangs it is started anew. */
static void watchdog(struct server *server)
{
	const char *period = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t period_ms = period ? strtoull(period, NULL, 10) / 1000 : 0;
	struct cairn_stat stat = {.size = sizeof(stat)};
	if (!period_ms || (pid && strtol(pid, NULL, 10) != getpid()) || now_ms() - server->alive_ms < period_ms / 3)
		return;
	server->alive_ms = now_ms();
	if (!cairn_stat(server->daemon.store, &stat))
		notify("WATCHDOG=1");
}

/* Until a signal ends it, or a private one has no clients any more. */
static void serve_all(struct server *server)
{
	uint64_t used_ms = now_ms(), patience_ms = PRIVATE_FIRST_MS;
	for (;;) {
		struct pollfd polls[CONF_LISTEN + 1] = {{.fd = server->signals, .events = POLLIN}};
		uint32_t listening = server->listeners.n;
		for (uint32_t i = 0; i < listening; i++)
			polls[i + 1] = (struct pollfd){.fd = server->listeners.at[i].link->fd, .events = POLLIN};
		int n = poll(polls, listening + 1, server->private ? PRIVATE_TICK_MS : TICK_MS);
		if (n < 0 && errno != EINTR)
			return;
		for (uint32_t i = 0; i < listening && n > 0; i++)
			if (polls[i + 1].revents) {
				accept_one(server, &server->listeners.at[i]);
				used_ms = now_ms();
				patience_ms = PRIVATE_LAST_MS;
			}
		if (n > 0 && polls[0].revents && signal_take(server))
			return;
		log_flush();
		alarms_say(server);
		daemon_check_tokens(&server->daemon);
		daemon_bury(&server->daemon);
		watchdog(server);
		if (daemon_conns(&server->daemon))
			used_ms = now_ms();
		else if (server->private && now_ms() - used_ms >= patience_ms)
			return;
	}
}

/* Before memory is touched: what is over the limit of the control group ends in a kill and no word. 0, or -1 after a
 * line. */
static int memory_fit(struct conf *conf)
{
	char file[LIMIT_FILE];
	uint64_t limit = limit_memory("", file);
	uint64_t own = MEMORY_OWN_BYTES + (conf->catalog_bytes ? conf->catalog_bytes : 16u << 20);
	uint64_t room = limit > own ? limit - own : 0, memory = conf->memory_bytes ? conf->memory_bytes : MEMORY_BYTES;
	if (!conf->memory_bytes && memory + conf_in_flight(conf) > room) {
		/* What is under way has a third, as it has of what there is without a limit. */
		uint64_t beside = conf->in_flight_bytes ? conf->in_flight_bytes : room / 3;
		memory = room > MEMORY_LEAST_BYTES + beside ? room - beside : MEMORY_LEAST_BYTES;
	}
	if (!conf->in_flight_bytes && memory + conf_in_flight(conf) > room)
		conf->in_flight_bytes = room > memory + IN_FLIGHT_LEAST_BYTES ? room - memory : IN_FLIGHT_LEAST_BYTES;
	if (conf->memory_bytes || memory < MEMORY_BYTES)
		conf->memory_bytes = memory;
	if (memory + conf_in_flight(conf) <= room)
		return 0;
	fprintf(stderr,
	        "cairnd: memory of %llu MiB, in_flight of %llu MiB, and %llu MiB beside them, are over the limit of %llu "
	        "MiB in %s: lower memory or in_flight, or raise the limit\n",
	        (unsigned long long)memory >> 20, (unsigned long long)conf_in_flight(conf) >> 20,
	        (unsigned long long)own >> 20, (unsigned long long)limit >> 20, file);
	return -1;
}

static int server_open(struct server *server)
{
	const struct conf *conf = &server->start;
	struct daemon *daemon = &server->daemon;
	struct cairn_tenant_limits tenants[CONF_TENANTS];
	char fault[CONF_FAULT_BYTES];
	struct cairn_options open = {.size = sizeof(open),
	                             .flags = CAIRN_OPEN_CREATE,
	                             .memory_bytes = conf->memory_bytes,
	                             .catalog_bytes = conf->catalog_bytes,
	                             .flash = conf->nflash ? conf->flash : NULL,
	                             .nflash = conf->nflash,
	                             .flash_write_bytes_day = conf->write_bytes_day,
	                             .free_floor_bytes = conf->free_floor_bytes,
	                             .segment_bytes = conf->segment_bytes,
	                             .io_threads = conf->io_threads,
	                             .event_hashes_bytes = conf->event_hashes_bytes,
	                             .pin_share_percent = conf->pin_share_percent,
	                             .tenants = tenants,
	                             .ntenants = conf_tenants(conf, tenants),
	                             .peers = conf->peers,
	                             .npeers = conf->npeers,
	                             .peer_wait_ms = conf->peer_wait_ms};
	if (memory_fit(&server->start))
		return -1;
	open.memory_bytes = conf->memory_bytes;
	if (store_open_own(conf->dir, &open, &daemon->store)) {
		fprintf(stderr, "cairnd: %s\n", cairn_error_text());
		return -1;
	}
	pthread_mutex_init(&daemon->lock, NULL);
	pthread_cond_init(&daemon->ended, NULL);
	list_init(&daemon->clients);
	list_init(&daemon->conns);
	daemon->tokens = tokens_open(conf->dir, &clock_real);
	if (listeners_open(conf, &server->listeners, fault)) {
		fprintf(stderr, "cairnd: %s\n", fault);
		tokens_close(daemon->tokens);
		cairn_close(daemon->store);
		return -1;
	}
	return 0;
}

static void admin_end(void *arg)
{
	struct server *server = arg;
	admin_close(server->admin);
	tokens_close(server->daemon.tokens);
}

static int run(struct server *server)
{
	if (server_open(server))
		return 2;
	conf_apply(server, &server->now);
	if (place_tell(server->start.dir, conf_local_place(&server->now)))
		log_say(LOG_WARNING,
		        "the directory's file `daemon` can not be written: who is given the directory will not find us");
	LOG(LOG_INFO, "ready", LOG_TEXT("version", CAIRN_VERSION), LOG_TEXT("dir", server->start.dir),
	    LOG_NUMBER("places", server->listeners.n));
	admin_start(server, server->now.admin);
	atomic_store(&server->daemon.ready, 1);
	notify("READY=1");
	serve_all(server);
	struct daemon_end end = {.signals = server->signals,
	                         .seconds = server->now.stop_seconds,
	                         .closing = admin_end, /* until there it says that we are not ready any more */
	                         .arg = server};
	if (server->private && end.seconds > PRIVATE_STOP_S)
		end.seconds = PRIVATE_STOP_S;
	atomic_store(&server->daemon.ready, 0);
	notify("STOPPING=1");
	log_say(LOG_INFO, "ending");
	place_forget(server->start.dir);
	listeners_close(&server->listeners);
	int error = daemon_end(&server->daemon, &end);
	log_say(LOG_INFO, "ended");
	return error ? 2 : 0;
}

/* As many descriptors as it may have: the usual bound is that of programs that wait with select. */
static void descriptors_raise(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv)
{
	static struct words words;
	static struct server server;
	static const struct argp argp = {options, parse, "[CONFIG.yaml]",
	                                 "Serves one store to all processes of a server.", NULL, NULL, NULL};
	char fault[CONF_FAULT_BYTES];
	argp_program_version = "cairnd " CAIRN_VERSION;
	if (argp_parse(&argp, argc, argv, 0, NULL, &words))
		return 2;
	if (conf_load(&words, &server.start, fault) || conf_load(&words, &server.now, fault)) {
		fprintf(stderr, "cairnd: %s\n", fault);
		return 2;
	}
	if (words.print)
		conf_print(&server.start, stdout);
	if (words.print || words.only_check)
		return 0;
	/* Whoever started it does not wait for it, nor does a terminal end it. */
	if (words.private && (fork() || setsid() < 0))
		return 0;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	check(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0); /* of all threads: they come by the descriptor alone */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	descriptors_raise();
	server.signals = signalfd(-1, &set, SFD_CLOEXEC);
	check(server.signals >= 0);
	server.words = &words;
	server.private = words.private;
	int status = run(&server);
	conf_done(&server.start);
	conf_done(&server.now);
	return status;
}
