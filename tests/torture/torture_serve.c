/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairnd and its clients are killed, again and again, while they put and get, by socket file, by TCP, and by TLS with a
 * token. What was acknowledged as durable is read back; what comes back is right; the daemon goes on when a client
 * dies, holding leases or in the middle of a put; and clients go on when the daemon was killed and is another one.
 *
 *     torture_serve CAIRND DIRECTORY ROUNDS
 *
 * Each client is a process; it tells in shared memory which of its keys it was promised.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "cairn/cairn.h"

enum {
	CLIENTS = 6,
	KEYS = 400,
	LENGTH = 70000,
	PLACES = 3,
};

static struct known {
	uint8_t promised[CLIENTS][KEYS];
	uint64_t gets, puts, lived; /* lived: calls that were good in a daemon's second life */
	uint32_t life;
} *known;
static char places[PLACES][600]; /* a socket file, TCP, and TLS */
static char token_file[600];

static cairn_key key_of(uint32_t client, uint32_t number)
{
	cairn_key key;
	struct random random;
	random_init(&random, client * 100003u + number + 1);
	for (int i = 0; i < 4; i++) {
		uint64_t word = random_next(&random);
		memcpy(key.bytes + 8 * i, &word, 8);
	}
	return key;
}

static void fill(uint8_t *bytes, const cairn_key *key)
{
	for (uint32_t i = 0; i < LENGTH; i++)
		bytes[i] = (uint8_t)(key->bytes[i % 32] + i / 32);
}

static int open_it(const char *place, cairn **ret_store, cairn_space **ret_space)
{
	static const cairn_digest weights = {{3}};
	struct cairn_space_desc desc = {
		.size = sizeof desc, .model = "torture", .weights = &weights, .kv_dtype = "f16", .block_tokens = 16};
	struct cairn_options options = {.size = sizeof options, .token_file = place == places[2] ? token_file : NULL};
	int error = cairn_open(place, &options, ret_store);
	return error ? error : cairn_describe(*ret_store, &desc, ret_space);
}

/* Puts, gets and leases until it is killed. Exit status 1: something was wrong. */
static void client(uint32_t number, uint64_t seed)
{
	static uint8_t bytes[LENGTH], want[LENGTH];
	struct random random;
	cairn *store;
	cairn_space *space;
	random_init(&random, seed);
	while (open_it(places[number % PLACES], &store, &space)) /* the daemon is not there yet */
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	for (;;) {
		uint32_t mine = (uint32_t)random_below(&random, KEYS), from = (uint32_t)random_below(&random, CLIENTS);
		cairn_key key = key_of(number, mine), other = key_of(from, (uint32_t)random_below(&random, KEYS));
		struct cairn_buf buf = cairn_buf_of(bytes, LENGTH);
		struct cairn_item item = {.key = key, .bufs = &buf, .nbufs = 1};
		struct cairn_call call = {.size = sizeof call, .durability = CAIRN_DURABLE_FLASH};
		fill(bytes, &key);
		uint32_t life = __atomic_load_n(&known->life, __ATOMIC_SEQ_CST);
		if (cairn_put(store, space, &item, 1, &call) == 1) {
			__atomic_store_n(&known->promised[number][mine], 1, __ATOMIC_SEQ_CST);
			__atomic_fetch_add(&known->puts, 1, __ATOMIC_RELAXED);
			__atomic_fetch_add(&known->lived, life & 1, __ATOMIC_RELAXED);
		}
		item = (struct cairn_item){.key = other, .bufs = &buf, .nbufs = 1};
		cairn_lease *lease = NULL;
		(void)cairn_lease_take(store, space, &item, NULL, &lease); /* held: it may die with it */
		item.bufs = &buf;
		item.nbufs = 1;
		if (cairn_get(store, space, &item, 1, NULL) == 1) {
			fill(want, &other);
			if (memcmp(bytes, want, LENGTH) != 0)
				_exit(1);
			__atomic_fetch_add(&known->gets, 1, __ATOMIC_RELAXED);
		}
		cairn_lease_release(store, lease);
	}
}

static pid_t daemon_start(const char *program, const char *directory)
{
	pid_t pid = fork();
	if (!pid) {
		execl(program, "cairnd", "--dir", directory, "--listen", places[0], "--listen", places[1], "--listen",
		      places[2], "--memory", "24MiB", "--flash", getenv("CAIRN_TORTURE_FLASH"), (char *)NULL);
		_exit(127);
	}
	return pid;
}

static void pause_ms(uint64_t ms)
{
	nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

/* A port that is free now, and stays so: nobody else is given it for a while. */
static int port_take(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) ||
	    getsockname(fd, (struct sockaddr *)&address, &length))
		return -1;
	close(fd);
	return ntohs(address.sin_port);
}

/* The server's key, and a client's token in a file. */
static int token_make(const char *directory)
{
	char text[CAIRN_TOKEN_TEXT];
	if ((mkdir(directory, 0700) && errno != EEXIST) || cairn_token_new(directory, NULL, text))
		return -1;
	int fd = open(token_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	ssize_t wrote = write(fd, text, strlen(text));
	return close(fd) || wrote != (ssize_t)strlen(text) ? -1 : 0;
}

static int check_all(const char *place)
{
	static uint8_t bytes[LENGTH], want[LENGTH];
	cairn *store;
	cairn_space *space;
	int missing = 0;
	for (int tries = 0; open_it(place, &store, &space); tries++) {
		if (tries == 2000)
			return fprintf(stderr, "torture_serve: the daemon does not come up: %s\n", cairn_error_text()), -1;
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	for (uint32_t c = 0; c < CLIENTS; c++)
		for (uint32_t i = 0; i < KEYS; i++) {
			cairn_key key = key_of(c, i);
			struct cairn_buf buf = cairn_buf_of(bytes, LENGTH);
			struct cairn_item item = {.key = key, .bufs = &buf, .nbufs = 1};
			fill(want, &key);
			long got = cairn_get(store, space, &item, 1, NULL);
			if (got == 1 && memcmp(bytes, want, LENGTH) != 0)
				return fprintf(stderr, "torture_serve: wrong bytes\n"), -1;
			missing += known->promised[c][i] && got != 1;
		}
	struct cairn_stat stat = {.size = sizeof stat};
	for (int tries = 0; tries < 200 && !cairn_stat(store, &stat) && stat.leased_bytes; tries++)
		pause_ms(10); /* those who held them were killed a moment ago */
	if (stat.leased_bytes)
		return fprintf(stderr, "torture_serve: %" PRIu64 " bytes are leased by nobody\n", stat.leased_bytes), -1;
	if (cairn_close(store) || missing)
		return fprintf(stderr, "torture_serve: %d parts were acknowledged and are not there\n", missing), -1;
	return 0;
}

static pid_t daemon_kill(pid_t server, const char *program, const char *directory)
{
	int status;
	kill(server, SIGKILL);
	waitpid(server, &status, 0);
	return daemon_start(program, directory);
}

int main(int argc, char **argv)
{
	pid_t clients[CLIENTS];
	struct random random;
	int status, failed = 0;
	if (argc != 4)
		return fprintf(stderr, "torture_serve CAIRND DIRECTORY ROUNDS\n"), 2;
	known = mmap(NULL, sizeof *known, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snprintf(places[0], sizeof places[0], "unix:%s.sock", argv[2]);
	int plain = port_take(), tls = plain;
	while (tls == plain)
		tls = port_take();
	snprintf(places[1], sizeof places[1], "tcp+plain://127.0.0.1:%d", plain);
	snprintf(places[2], sizeof places[2], "tcp://127.0.0.1:%d", tls);
	snprintf(token_file, sizeof token_file, "%s.token", argv[2]);
	if (token_make(argv[2]))
		return fprintf(stderr, "torture_serve: no token in %s: %s\n", argv[2], cairn_error_text()), 2;
	random_init(&random, (uint64_t)time(NULL));
	for (int round = 0; round < atoi(argv[3]) && !failed; round++) {
		pid_t server = daemon_start(argv[1], argv[2]);
		for (uint32_t c = 0; c < CLIENTS; c++)
			if (!(clients[c] = fork()))
				client(c, random_next(&random) + c);
		if (round % 3 == 2) { /* the daemon dies under all of them, and they go on with the next one */
			pause_ms(200 + random_below(&random, 200));
			server = daemon_kill(server, argv[1], argv[2]);
			uint64_t before = known->lived;
			__atomic_store_n(&known->life, 1, __ATOMIC_SEQ_CST);
			for (int tries = 0; tries < 1000 && __atomic_load_n(&known->lived, __ATOMIC_RELAXED) - before < CLIENTS;
			     tries++)
				pause_ms(10);
			__atomic_store_n(&known->life, 0, __ATOMIC_SEQ_CST);
			if (known->lived - before < CLIENTS)
				failed = fprintf(stderr, "torture_serve: clients do not go on with a daemon that is another one\n");
		}
		/* Clients die one after the other; what they held is given back to the others. */
		for (uint32_t c = 0; c < CLIENTS; c++) {
			pause_ms(20 + random_below(&random, 100));
			if (c == CLIENTS - 1 && round % 3 == 1)
				kill(server, SIGKILL);
			kill(clients[c], SIGKILL);
			waitpid(clients[c], &status, 0);
			if (!WIFSIGNALED(status)) {
				fprintf(stderr, "torture_serve: a client got wrong bytes\n");
				failed = 1;
			}
		}
		if (round % 3 == 1)
			server = daemon_kill(server, argv[1], argv[2]);
		for (int p = 0; p < PLACES && !failed; p++)
			failed = check_all(places[p]) != 0;
		kill(server, SIGTERM);
		waitpid(server, &status, 0);
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			fprintf(stderr, "torture_serve: the daemon ended with status %d\n", status);
			failed = 1;
		}
	}
	printf("%s rounds, %" PRIu64 " parts got, %" PRIu64 " put and read back, %" PRIu64 " in a daemon's second life\n",
	       argv[3], known->gets, known->puts, known->lived);
	return failed != 0;
}
