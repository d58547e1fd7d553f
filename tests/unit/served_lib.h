/* SPDX-License-Identifier: Apache-2.0 */
/* A cairnd in this process, over a store in a directory of its own. For test_*.c; after cmocka.h. */
#ifndef CAIRN_TESTS_UNIT_SERVED_LIB_H
#define CAIRN_TESTS_UNIT_SERVED_LIB_H

#include <pthread.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "daemon/daemon.h"
#include "unit/store_lib.h"

struct served {
	struct place place;
	struct daemon daemon;
	char socket[160], place_text[170];
	struct link_listener *listener;
	int tcp;
	pthread_t thread;
};

static void *served_accept(void *arg)
{
	struct served *served = arg;
	for (;;) {
		struct link *net;
		if (link_accept(served->listener, &net))
			return NULL; /* shut down */
		(void)conn_start(&served->daemon, net);
	}
}

/* Over place, which is made: also a second time, over what is there. */
static inline void served_start(struct served *served)
{
	memset(&served->daemon, 0, sizeof served->daemon);
	snprintf(served->socket, sizeof served->socket, "%s/cairn.sock", served->place.path);
	snprintf(served->place_text, sizeof served->place_text, "unix:%s", served->socket);
	int error = store_open_own(served->place.path, &served->place.options, &served->daemon.store);
	if (error)
		fail_msg("open: %d %s", error, cairn_error_text());
	pthread_mutex_init(&served->daemon.lock, NULL);
	pthread_cond_init(&served->daemon.ended, NULL);
	list_init(&served->daemon.clients);
	list_init(&served->daemon.conns);
	struct link_place place;
	assert_int_equal(link_place_take(served->tcp ? "tcp+plain://127.0.0.1:0" : served->place_text, &place), 0);
	assert_int_equal(link_listen(&place, 0600, &served->listener), 0);
	if (served->tcp) {
		struct sockaddr_in address;
		socklen_t length = sizeof address;
		assert_int_equal(getsockname(served->listener->fd, (struct sockaddr *)&address, &length), 0);
		snprintf(served->place_text, sizeof served->place_text, "tcp+plain://127.0.0.1:%d", ntohs(address.sin_port));
	}
	assert_int_equal(pthread_create(&served->thread, NULL, served_accept, served), 0);
}

static inline void served_stop(struct served *served)
{
	shutdown(served->listener->fd, SHUT_RDWR);
	pthread_join(served->thread, NULL);
	link_listener_close(served->listener);
	daemon_stop(&served->daemon);
	verify(served->daemon.store);
	assert_int_equal(cairn_close(served->daemon.store), 0);
	pthread_mutex_destroy(&served->daemon.lock);
	pthread_cond_destroy(&served->daemon.ended);
}

static inline cairn *served_client(struct served *served)
{
	cairn *store = NULL;
	int error = cairn_open(served->place_text, NULL, &store);
	if (error)
		fail_msg("open %s: %d %s", served->place_text, error, cairn_error_text());
	return store;
}

/* Waits until the daemon has no more than `n` connections. */
static inline void served_wait(struct served *served, uint32_t n)
{
	pthread_mutex_lock(&served->daemon.lock);
	while (served->daemon.nconns > n)
		pthread_cond_wait(&served->daemon.ended, &served->daemon.lock);
	pthread_mutex_unlock(&served->daemon.lock);
}

#endif
