/* SPDX-License-Identifier: Apache-2.0 */
/* See serving.h. */
#include "lib/serving.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/random.h"
#include "lib/frames.h"
#include "store/store.h"

/* ---- a cairnd in this process ------------------------------------------------------------------------------------ */

static void *accept_all(void *arg)
{
	struct serving *serving = arg;
	while (!__atomic_load_n(&serving->stopping, __ATOMIC_RELAXED)) {
		struct link *net;
		struct pollfd wait = {.fd = serving->listener->fd, .events = POLLIN};
		/* A socket that is shut down can be read; what is none is looked at now and then. */
		if (poll(&wait, 1, serving->kind == SERVED_UCX ? 50 : -1) >= 0 && !link_accept(serving->listener, &net))
			(void)conn_start(&serving->daemon, net);
	}
	return NULL;
}

/* A key, and an admin's token in a file. */
static void tls_prepare(struct serving *serving)
{
	char text[CAIRN_TOKEN_TEXT];
	struct cairn_token_desc desc = {.size = sizeof(desc), .flags = CAIRN_TOKEN_ADMIN};
	snprintf(serving->dir, sizeof(serving->dir), "%s.dir", serving->socket);
	snprintf(serving->token, sizeof(serving->token), "%s/token", serving->dir);
	check(!mkdir(serving->dir, 0700) || errno == EEXIST);
	check(!cairn_token_new(serving->dir, &desc, text));
	unlink(serving->token);
	int fd = open(serving->token, O_WRONLY | O_CREAT | O_EXCL, 0600);
	check(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && !close(fd));
	serving->daemon.tokens = tokens_open(serving->dir, &clock_real);
	check(serving->daemon.tokens);
}

/* UCX's listener has no socket to ask for its port: one that is free. */
static int ucx_listener_open(struct serving *serving)
{
	struct link_place place;
	struct random random;
	int error = -1;
	random_init(&random, (uint64_t)getpid() << 20 ^ (uint64_t)link_now_ms());
	for (int tries = 0; tries < 50 && error; tries++) {
		snprintf(serving->place, sizeof(serving->place), "ucx+plain://127.0.0.1:%u",
		         10000 + (unsigned)random_below(&random, 20000));
		error = link_place_take(serving->place, &place);
		if (!error)
			error = link_listen(&place, &(struct link_serving){0}, &serving->listener);
	}
	return error;
}

static int listener_open(struct serving *serving)
{
	if (serving->kind == SERVED_UCX)
		return ucx_listener_open(serving);
	static const char *const places[] = {NULL, NULL, "tcp+plain://127.0.0.1:0", "tcp://127.0.0.1:0", NULL};
	struct link_place place;
	struct sockaddr_in address;
	socklen_t length = sizeof(address);
	char certificate[200];
	snprintf(serving->place, sizeof(serving->place), "unix:%s", serving->socket);
	snprintf(certificate, sizeof(certificate), "%s/tls.pem", serving->dir);
	int error = link_place_take(places[serving->kind] ? places[serving->kind] : serving->place, &place);
	if (!error)
		error = link_listen(&place, &(struct link_serving){.mode = 0600, .certificate = certificate},
		                    &serving->listener);
	if (error || serving->kind == SERVED_UNIX)
		return error;
	check(!getsockname(serving->listener->fd, (struct sockaddr *)&address, &length));
	snprintf(serving->place, sizeof(serving->place), "%s127.0.0.1:%d", place.ops->scheme, ntohs(address.sin_port));
	return 0;
}

int serving_start(struct serving *serving, cairn *own, const char *socket, int tcp)
{
	memset(serving, 0, sizeof(*serving));
	serving->kind = SERVED_UNIX + tcp;
	serving->daemon.store = own;
	snprintf(serving->socket, sizeof(serving->socket), "%s", socket);
	if (serving->kind == SERVED_TLS)
		tls_prepare(serving);
	int error = listener_open(serving);
	if (error)
		return error;
	pthread_mutex_init(&serving->daemon.lock, NULL);
	pthread_cond_init(&serving->daemon.ended, NULL);
	list_init(&serving->daemon.clients);
	list_init(&serving->daemon.conns);
	check(!pthread_create(&serving->thread, NULL, accept_all, serving));
	return 0;
}

void serving_stop(struct serving *serving)
{
	static const char *const files[] = {"tls.pem", "tokens", "token"};
	__atomic_store_n(&serving->stopping, 1, __ATOMIC_RELAXED);
	shutdown(serving->listener->fd, SHUT_RDWR);
	pthread_join(serving->thread, NULL);
	link_listener_close(serving->listener);
	check(!daemon_stop(&serving->daemon, UINT64_MAX, NULL, NULL));
	pthread_mutex_destroy(&serving->daemon.lock);
	pthread_cond_destroy(&serving->daemon.ended);
	tokens_close(serving->daemon.tokens);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && serving->dir[0]; i++) {
		char path[256];
		snprintf(path, sizeof(path), "%s/%s", serving->dir, files[i]);
		unlink(path);
	}
	if (serving->dir[0])
		rmdir(serving->dir);
}

/* ---- tests that run over one ------------------------------------------------------------------------------------- */

/* One for each store that is open. */
static struct behind {
	cairn *client;
	struct serving serving;
	char dir[128];
} behinds[16];

int served_kind(void)
{
	static const char *const names[] = {"", "unix", "tcp", "tls", "ucx"};
	const char *place = getenv("CAIRN_TEST_PLACE");
	if (!place || !place[0])
		return SERVED_NOT;
	for (int kind = SERVED_UNIX; kind <= SERVED_UCX; kind++)
		if (!strcmp(place, names[kind]))
			return kind;
	check(!"CAIRN_TEST_PLACE is unix, tcp, tls or ucx");
}

static struct behind *behind_of(const cairn *client)
{
	for (size_t i = 0; i < sizeof(behinds) / sizeof(behinds[0]); i++)
		if (behinds[i].client == client)
			return &behinds[i];
	return NULL;
}

int served_open(cairn *own, const struct cairn_options *options, cairn **ret_store)
{
	const char *base = getenv("TMPDIR");
	char socket[160];
	*ret_store = own;
	if (!served_kind())
		return 0;
	struct behind *behind = behind_of(NULL);
	check(behind);
	snprintf(behind->dir, sizeof(behind->dir), "%s/cairn-served-XXXXXX", base && base[0] ? base : "/tmp");
	check(mkdtemp(behind->dir));
	snprintf(socket, sizeof(socket), "%s/socket", behind->dir);
	if (served_kind() == SERVED_UCX)
		frames_ucx_prepare();
	if (serving_start(&behind->serving, own, socket, served_kind() - SERVED_UNIX)) {
		fprintf(stderr, "%s\n", cairn_error_text());
		check(served_kind() == SERVED_UCX); /* which may be missing: skipped */
		exit(77);
	}
	struct cairn_options client = {.size = sizeof(client)};
	if (options)
		memcpy(&client, options, options->size < sizeof(client) ? options->size : sizeof(client));
	client.size = sizeof(client);
	client.token_file = behind->serving.token[0] ? behind->serving.token : NULL;
	int error = store_open_own(behind->serving.place, &client, ret_store);
	if (error) {
		serving_stop(&behind->serving);
		rmdir(behind->dir);
		(void)(cairn_close)(own);
		return error;
	}
	behind->client = *ret_store;
	return 0;
}

cairn *served_inside(cairn *store)
{
	const struct behind *behind = behind_of(store);
	struct cairn_stat stat = {.size = sizeof(stat)};
	if (!behind)
		return store;
	/* What is one way (releases) has been done when what was sent behind it is answered. */
	check(!cairn_stat(store, &stat));
	return behind->serving.daemon.store;
}

cairn_space *served_space(cairn *store, const cairn_space *space)
{
	cairn_digest id;
	cairn *own = served_inside(store);
	if (own == store)
		return (cairn_space *)(uintptr_t)space;
	cairn_space_get_id(space, &id);
	pthread_mutex_lock(&own->lock);
	cairn_space *found = store_space_by_id(own, id.bytes, 0);
	pthread_mutex_unlock(&own->lock);
	check(found);
	return found;
}

cairn *served_leave(cairn *store)
{
	struct behind *behind = store ? behind_of(store) : NULL;
	if (!behind)
		return store;
	cairn *own = behind->serving.daemon.store;
	check(!cairn_close(store));
	serving_stop(&behind->serving);
	rmdir(behind->dir);
	behind->client = NULL;
	return own;
}

int served_close(cairn *store)
{
	return cairn_close(served_leave(store));
}
