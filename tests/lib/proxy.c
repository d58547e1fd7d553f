/* SPDX-License-Identifier: Apache-2.0 */
/* See proxy.h. */
#include "lib/proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/random.h"

enum {
	PIECE = 32768,
	FDS = 16,
	PAIRS = 256
};

/* One direction of a connection: what was read from `from` and goes to `to`. */
struct way {
	int from, to;
	uint64_t passed;      /* bytes read so far */
	uint8_t bytes[PIECE]; /* of them, those that wait: [at, end) */
	uint32_t at, end;
	int fds[FDS]; /* go with the first of them */
	uint32_t nfds;
	int ended; /* nothing more comes */
	int64_t not_before_ms;
	uint32_t slow_bytes; /* so many more, one at a time */
};

struct pair {
	struct way way[2]; /* 0: of the client; 1: of the daemon */
	int used, dead;    /* dead: swallows all */
	struct random random;
	enum proxy_fault fault;
	int fault_way, struck;
	uint64_t fault_at; /* bytes of that way */
};

struct proxy {
	pthread_t thread;
	int listener, wake, stopping, local;
	char socket[120], place[140], to[120];
	struct sockaddr_storage address;
	socklen_t address_bytes;
	uint64_t seed, connections, struck[PROXY_FAULTS];
	uint32_t fault_ppm, mask;
	struct pair pairs[PAIRS];
};

static int64_t now_ms(void)
{
	struct timespec now;
	check(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

const char *proxy_fault_name(enum proxy_fault fault)
{
	static const char *const names[] = {"none",  "delay",   "cut",     "half-open", "deaf",
	                                    "stall", "trickle", "garbage", "flip"};
	return fault < PROXY_FAULTS ? names[fault] : "?";
}

/* ---- one direction ----------------------------------------------------------------------------------------------- */

static void fds_close(struct way *way)
{
	while (way->nfds)
		close(way->fds[--way->nfds]);
}

static void pair_end(struct pair *pair)
{
	for (int w = 0; w < 2; w++) {
		fds_close(&pair->way[w]);
		close(pair->way[w].from);
	}
	pair->used = 0;
}

/* Reads a piece, with its descriptors. 0, or -1: the other end is gone. */
static int way_read(struct way *way)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(FDS * sizeof(int))];
	} control;
	struct iovec part = {way->bytes, sizeof(way->bytes)};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control.room)};
	ssize_t n = recvmsg(way->from, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		way->nfds = (uint32_t)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(way->fds, CMSG_DATA(header), way->nfds * sizeof(int));
	}
	way->at = 0;
	way->end = (uint32_t)n;
	way->passed += (uint64_t)n;
	way->ended = n == 0;
	return 0;
}

/* Writes of what waits. 0, or -1: the other end is gone. */
static int way_write(struct way *way)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(FDS * sizeof(int))];
	} control;
	size_t length = way->slow_bytes ? 1 : way->end - way->at;
	struct iovec part = {way->bytes + way->at, length};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (way->nfds) {
		memset(&control, 0, sizeof(control));
		message.msg_control = control.room;
		message.msg_controllen = CMSG_SPACE(way->nfds * sizeof(int));
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(way->nfds * sizeof(int));
		memcpy(CMSG_DATA(header), way->fds, way->nfds * sizeof(int));
	}
	ssize_t n = sendmsg(way->to, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	fds_close(way);
	way->at += (uint32_t)n;
	if (way->slow_bytes) {
		way->slow_bytes--;
		way->not_before_ms = now_ms() + 1;
	}
	return 0;
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static void fault_draw(struct proxy *proxy, struct pair *pair)
{
	random_init(&pair->random, proxy->seed * 1000003 + proxy->connections);
	pair->fault = PROXY_NONE;
	if (!random_chance(&pair->random, __atomic_load_n(&proxy->fault_ppm, __ATOMIC_RELAXED)) || !proxy->mask)
		return;
	do
		pair->fault = (enum proxy_fault)(1 + random_below(&pair->random, PROXY_FAULTS - 1));
	while (!(proxy->mask >> pair->fault & 1));
	pair->fault_way = (int)random_below(&pair->random, 2);
	/* In the first header as well as after megabytes. */
	pair->fault_at = random_below(&pair->random, 1ull << (5 + random_below(&pair->random, 18)));
}

/* The fault's place lies in the piece that was just read, at `at`. Whether the connection goes on. */
static int fault_strike(struct proxy *proxy, struct pair *pair, struct way *way, uint32_t at)
{
	pair->struck = 1;
	__atomic_fetch_add(&proxy->struck[pair->fault], 1, __ATOMIC_RELAXED);
	switch (pair->fault) {
	case PROXY_CUT:
		way->end = at;
		(void)way_write(way);
		return 0;
	case PROXY_HALF_OPEN:
		pair->dead = 3;
		break;
	case PROXY_DEAF:
		pair->dead = 1 << pair->fault_way;
		break;
	case PROXY_STALL:
		way->not_before_ms = now_ms() + 50 + (int64_t)random_below(&pair->random, 700);
		break;
	case PROXY_TRICKLE:
		way->slow_bytes = 50 + (uint32_t)random_below(&pair->random, 400);
		break;
	case PROXY_GARBAGE: {
		uint32_t room = PIECE - way->end, n = 1 + (uint32_t)random_below(&pair->random, 200);
		n = n < room ? n : room;
		memmove(way->bytes + at + n, way->bytes + at, way->end - at);
		for (uint32_t i = 0; i < n; i++)
			way->bytes[at + i] = (uint8_t)random_next(&pair->random);
		way->end += n;
		break;
	}
	case PROXY_FLIP:
		way->bytes[at] ^= (uint8_t)(1u << random_below(&pair->random, 8));
		break;
	default:
		break;
	}
	return 1;
}

/* One direction is ready for something. Whether the connection goes on. */
static int way_step(struct proxy *proxy, struct pair *pair, int w)
{
	struct way *way = &pair->way[w];
	if (way->at == way->end && !way->ended) {
		uint64_t before = way->passed;
		if (way_read(way))
			return 0;
		if (way->ended && !(pair->dead >> w & 1))
			shutdown(way->to, SHUT_WR); /* the other hears of it, and may still answer */
		if (way->at == way->end)
			return !(pair->way[0].ended && pair->way[1].ended);
		if (pair->fault == PROXY_GARBAGE && way->end == PIECE && !pair->struck && pair->fault_way == w)
			pair->fault_at = way->passed > pair->fault_at ? way->passed : pair->fault_at; /* no room in this piece */
		if (pair->fault && !pair->struck && pair->fault_way == w && pair->fault_at < way->passed &&
		    !fault_strike(proxy, pair, way, (uint32_t)(pair->fault_at - before)))
			return 0;
		if (pair->fault == PROXY_DELAY && pair->struck)
			way->not_before_ms = now_ms() + (int64_t)random_below(&pair->random, 30);
	}
	if (pair->dead >> w & 1) {
		way->at = way->end;
		fds_close(way);
		return 1;
	}
	return way->at == way->end || now_ms() < way->not_before_ms || !way_write(way);
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

static void pair_begin(struct proxy *proxy)
{
	int on = 1, client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
	if (client < 0)
		return;
	int daemon = socket(proxy->local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct pair *pair = NULL;
	for (uint32_t i = 0; i < PAIRS && !pair; i++)
		pair = proxy->pairs[i].used ? NULL : &proxy->pairs[i];
	if (!pair || daemon < 0 || connect(daemon, (struct sockaddr *)&proxy->address, proxy->address_bytes)) {
		close(client);
		if (daemon >= 0)
			close(daemon);
		return;
	}
	if (!proxy->local) {
		(void)setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		(void)setsockopt(daemon, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	}
	pair->used = 1;
	pair->dead = pair->struck = 0;
	for (int w = 0; w < 2; w++) {
		struct way *way = &pair->way[w];
		way->from = w ? daemon : client;
		way->to = w ? client : daemon;
		way->passed = way->at = way->end = way->nfds = 0;
		way->ended = 0;
		way->not_before_ms = 0;
		way->slow_bytes = 0;
	}
	__atomic_fetch_add(&proxy->connections, 1, __ATOMIC_RELAXED);
	fault_draw(proxy, pair);
}

/* What this direction waits for: 1 to read, 2 to write; 0 for its time, or nothing. */
static int way_waits(const struct way *way, int64_t now)
{
	if (way->at == way->end)
		return way->ended ? 0 : 1;
	return now < way->not_before_ms ? 0 : 2;
}

static void *proxy_main(void *arg)
{
	struct proxy *proxy = arg;
	static _Thread_local struct pollfd polls[2 + 4 * PAIRS];
	static _Thread_local struct pair *of[2 + 4 * PAIRS];
	while (!__atomic_load_n(&proxy->stopping, __ATOMIC_RELAXED)) {
		uint32_t n = 2;
		int wait = -1;
		int64_t now = now_ms();
		polls[0] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
		polls[1] = (struct pollfd){.fd = proxy->wake, .events = POLLIN};
		for (uint32_t i = 0; i < PAIRS; i++)
			for (int w = 0; w < 2 && proxy->pairs[i].used; w++) {
				const struct way *way = &proxy->pairs[i].way[w];
				int what = way_waits(way, now);
				if (!what && way->at != way->end)
					wait = 1;
				if (!what)
					continue;
				of[n] = &proxy->pairs[i];
				polls[n++] =
					(struct pollfd){.fd = what == 1 ? way->from : way->to, .events = what == 1 ? POLLIN : POLLOUT};
			}
		if (poll(polls, n, wait) < 0)
			continue;
		if (polls[0].revents)
			pair_begin(proxy);
		for (uint32_t i = 0; i < PAIRS; i++)
			for (int w = 0; w < 2 && proxy->pairs[i].used; w++) {
				struct pair *pair = &proxy->pairs[i];
				int what = way_waits(&pair->way[w], now_ms()), ready = what == 2;
				for (uint32_t k = 2; k < n && !ready; k++)
					ready = of[k] == pair && polls[k].revents && polls[k].fd == pair->way[w].from;
				if (what && ready && !way_step(proxy, pair, w))
					pair_end(pair);
			}
	}
	return NULL;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void local_address(const char *path, struct sockaddr_storage *address, socklen_t *bytes)
{
	struct sockaddr_un *local = (struct sockaddr_un *)address;
	memset(address, 0, sizeof(*address));
	local->sun_family = AF_UNIX;
	check(strlen(path) < sizeof(local->sun_path));
	memcpy(local->sun_path, path, strlen(path) + 1);
	*bytes = sizeof(*local);
}

static void port_address(const char *port, struct sockaddr_storage *address, socklen_t *bytes)
{
	struct sockaddr_in *inet = (struct sockaddr_in *)address;
	memset(address, 0, sizeof(*address));
	inet->sin_family = AF_INET;
	inet->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	inet->sin_port = htons((uint16_t)atoi(port));
	*bytes = sizeof(*inet);
}

struct proxy *proxy_start(const char *socket_path, const char *to, uint64_t seed, uint32_t fault_ppm, uint32_t mask)
{
	struct proxy *proxy = calloc(1, sizeof(*proxy));
	struct sockaddr_storage own;
	socklen_t own_bytes;
	check(proxy);
	proxy->local = socket_path != NULL;
	proxy->seed = seed;
	proxy->fault_ppm = fault_ppm;
	proxy->mask = mask & ~1u;
	if (proxy->local) {
		snprintf(proxy->socket, sizeof(proxy->socket), "%s", socket_path);
		snprintf(proxy->place, sizeof(proxy->place), "unix:%s", socket_path);
		local_address(to, &proxy->address, &proxy->address_bytes);
		local_address(socket_path, &own, &own_bytes);
	} else {
		port_address(to, &proxy->address, &proxy->address_bytes);
		port_address("0", &own, &own_bytes);
	}
	proxy->wake = eventfd(0, EFD_CLOEXEC);
	proxy->listener = socket(proxy->local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(proxy->listener >= 0 && proxy->wake >= 0);
	check(!bind(proxy->listener, (struct sockaddr *)&own, own_bytes) && !listen(proxy->listener, 128));
	if (!proxy->local) {
		check(!getsockname(proxy->listener, (struct sockaddr *)&own, &own_bytes));
		snprintf(proxy->place, sizeof(proxy->place), "tcp+plain://127.0.0.1:%d",
		         ntohs(((struct sockaddr_in *)&own)->sin_port));
	}
	check(!pthread_create(&proxy->thread, NULL, proxy_main, proxy));
	return proxy;
}

const char *proxy_place(const struct proxy *proxy)
{
	return proxy->place;
}

void proxy_calm(struct proxy *proxy, uint32_t fault_ppm)
{
	__atomic_store_n(&proxy->fault_ppm, fault_ppm, __ATOMIC_RELAXED);
}

uint64_t proxy_struck(const struct proxy *proxy, enum proxy_fault fault)
{
	return __atomic_load_n(&proxy->struck[fault], __ATOMIC_RELAXED);
}

uint64_t proxy_connections(const struct proxy *proxy)
{
	return __atomic_load_n(&proxy->connections, __ATOMIC_RELAXED);
}

void proxy_stop(struct proxy *proxy)
{
	uint64_t one = 1;
	__atomic_store_n(&proxy->stopping, 1, __ATOMIC_RELAXED);
	check(write(proxy->wake, &one, sizeof(one)) == sizeof(one));
	pthread_join(proxy->thread, NULL);
	for (uint32_t i = 0; i < PAIRS; i++)
		if (proxy->pairs[i].used)
			pair_end(&proxy->pairs[i]);
	close(proxy->listener);
	close(proxy->wake);
	if (proxy->local)
		unlink(proxy->socket);
	free(proxy);
}
