/* SPDX-License-Identifier: Apache-2.0 */
/* Clients and what they hold. See daemon.h. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/mem.h"
#include "daemon/daemon.h"

/* Whoever knows another's id, but has not its token, is somebody else. */
static int is_who(const struct who *a, const struct who *b)
{
	return a->all == b->all && a->has_token == b->has_token && !memcmp(a->token, b->token, TOKEN_ID_BYTES) &&
	       !strcmp(a->tenant, b->tenant);
}

struct client *client_find(struct daemon *daemon, const uint8_t id[16], const struct who *who, uint32_t *ret_conns)
{
	struct client *client = NULL;
	pthread_mutex_lock(&daemon->lock);
	for (struct list *node = daemon->clients.next; node != &daemon->clients && !client; node = node->next) {
		struct client *each = LIST_OF(node, struct client, link);
		if (!memcmp(each->id, id, 16) && is_who(&each->who, who))
			client = each;
	}
	if (!client && (client = mem_alloc(sizeof(*client)))) {
		client->who = *who;
		digest_random(client->id, 16);
		pthread_mutex_init(&client->lock, NULL);
		list_push_back(&daemon->clients, &client->link);
		atomic_fetch_add_explicit(&daemon->metrics.clients, 1, memory_order_relaxed);
	}
	if (client)
		*ret_conns = ++client->conns;
	pthread_mutex_unlock(&daemon->lock);
	return client;
}

void client_name(struct daemon *daemon, struct client *client, const char *program, const struct link *net)
{
	char host[48] = "", port[8];
	struct sockaddr_storage peer;
	socklen_t length = sizeof(peer);
	struct ucred who = {0};
	int fd = link_fd(net);
	if (link_shares(net)) {
		length = sizeof(who);
		if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length))
			who = (struct ucred){0};
	} else if (fd >= 0 && !getpeername(fd, (struct sockaddr *)&peer, &length) &&
	           getnameinfo((struct sockaddr *)&peer, length, host, sizeof(host), port, sizeof(port),
	                       NI_NUMERICHOST | NI_NUMERICSERV)) {
		host[0] = 0;
	}
	pthread_mutex_lock(&daemon->lock);
	if (!client->number) {
		client->number = ++daemon->client_last;
		client->since_s = clock_wall_s(&clock_real);
		client->pid = (uint32_t)who.pid;
		client->uid = (uint32_t)who.uid;
		snprintf(client->program, sizeof(client->program), "%s", program);
		if (host[0])
			snprintf(client->address, sizeof(client->address), strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
		else
			snprintf(client->address, sizeof(client->address), "%s", link_shares(net) ? "" : "elsewhere");
	}
	pthread_mutex_unlock(&daemon->lock);
}

void client_leave(struct daemon *daemon, struct client *client)
{
	pthread_mutex_lock(&daemon->lock);
	int last = --client->conns == 0;
	if (last) {
		list_remove(&client->link);
		traffic_forget(daemon, client);
	}
	pthread_mutex_unlock(&daemon->lock);
	if (!last)
		return;
	for (uint32_t i = 0; i < client->nleases; i++)
		cairn_lease_release(daemon->store, client->leases[i].what);
	for (uint32_t i = 0; i < client->nmatches; i++)
		cairn_match_release(daemon->store, client->matches[i].what);
	mem_free(client->leases);
	mem_free(client->matches);
	mem_free(client->spaces);
	pthread_mutex_destroy(&client->lock);
	mem_free(client);
}

static uint64_t hold(struct client *client, struct held **table, uint32_t *n, uint32_t max, void *what)
{
	uint64_t number = 0;
	pthread_mutex_lock(&client->lock);
	uint32_t at = 0;
	while (at < *n && (*table)[at].what)
		at++;
	if (at == *n && *n < max) {
		uint32_t room = *n ? 2 * *n : 64;
		struct held *grown = mem_grow(*table, room * sizeof(**table));
		if (grown) {
			memset(grown + *n, 0, (room - *n) * sizeof(*grown));
			*table = grown;
			*n = room;
		}
	}
	if (at < *n) {
		(*table)[at].what = what;
		number = (uint64_t)++(*table)[at].count << 32 | (at + 1);
	}
	pthread_mutex_unlock(&client->lock);
	return number;
}

static void *take(struct client *client, struct held **table, const uint32_t *n, uint64_t number)
{
	void *what = NULL;
	uint32_t at = (uint32_t)number - 1;
	pthread_mutex_lock(&client->lock);
	if (at < *n && (*table)[at].count == number >> 32) {
		if ((*table)[at].lent) {
			(*table)[at].lent = 2;
		} else {
			what = (*table)[at].what;
			(*table)[at].what = NULL;
		}
	}
	pthread_mutex_unlock(&client->lock);
	return what;
}

uint64_t client_hold_lease(struct client *client, cairn_lease *lease)
{
	return hold(client, &client->leases, &client->nleases, DAEMON_LEASES, lease);
}

uint64_t client_hold_match(struct client *client, cairn_match *match)
{
	return hold(client, &client->matches, &client->nmatches, DAEMON_MATCHES, match);
}

cairn_lease *client_take_lease(struct client *client, uint64_t number)
{
	return take(client, &client->leases, &client->nleases, number);
}

cairn_match *client_take_match(struct client *client, uint64_t number)
{
	return take(client, &client->matches, &client->nmatches, number);
}

cairn_match *client_lend_match(struct client *client, uint64_t number)
{
	cairn_match *match = NULL;
	uint32_t at = (uint32_t)number - 1;
	pthread_mutex_lock(&client->lock);
	if (at < client->nmatches && client->matches[at].count == number >> 32 && !client->matches[at].lent) {
		match = client->matches[at].what;
		client->matches[at].lent = match != NULL;
	}
	pthread_mutex_unlock(&client->lock);
	return match;
}

int client_return_match(struct client *client, uint64_t number)
{
	pthread_mutex_lock(&client->lock);
	struct held *held = &client->matches[(uint32_t)number - 1];
	int taken = held->lent == 2;
	held->lent = 0;
	if (taken)
		held->what = NULL;
	pthread_mutex_unlock(&client->lock);
	return taken;
}

uint32_t client_space_number(struct client *client, cairn_space *space)
{
	uint32_t number = 0;
	pthread_mutex_lock(&client->lock);
	for (uint32_t i = 0; i < client->nspaces && !number; i++)
		if (client->spaces[i] == space)
			number = i + 1;
	if (!number && client->nspaces < DAEMON_SPACES) {
		cairn_space **grown = mem_grow(client->spaces, (client->nspaces + 1) * sizeof(*grown));
		if (grown) {
			client->spaces = grown;
			client->spaces[client->nspaces++] = space;
			number = client->nspaces;
		}
	}
	pthread_mutex_unlock(&client->lock);
	return number;
}

cairn_space *client_space(struct client *client, uint32_t number)
{
	pthread_mutex_lock(&client->lock);
	cairn_space *space = number && number <= client->nspaces ? client->spaces[number - 1] : NULL;
	pthread_mutex_unlock(&client->lock);
	return space;
}
