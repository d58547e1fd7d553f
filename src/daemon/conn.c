/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: receives a request, has it answered, sends the reply, until either side ends it. See daemon.h. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <netdb.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "daemon/arrive.h"
#include "daemon/daemon.h"
#include "daemon/log.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#define HURRY_NS 500000000ull
#define CUT_NS 2000000000ull /* for what connections are at after they were cut */

int conn_begin(struct conn *conn, const char *text, size_t bytes)
{
	if (bytes > conn->out.room && bytes > TRAFFIC_SMALL)
		traffic_add(conn, bytes);
	if (link_buffer_fit(&conn->out, bytes + WIRE_TEXT_MAX + 2))
		return -1;
	conn->reply = bytes_writer_of(conn->out.bytes, conn->out.room);
	wire_add_text(&conn->reply, text);
	return 0;
}

int conn_reply(struct conn *conn, const struct wire_head *head, int64_t result, int more)
{
	return conn_reply_bulk(conn, head, result, more, 0);
}

int conn_reply_bulk(struct conn *conn, const struct wire_head *head, int64_t result, int more, uint64_t bulk_bytes)
{
	check(!conn->reply.failed);
	struct wire_head reply = {.version = WIRE_VERSION,
	                          .type = head->type,
	                          .flags = (uint16_t)(WIRE_REPLY | (more ? WIRE_MORE : 0) | (conn->later ? WIRE_LATER : 0)),
	                          .nfds = (uint16_t)conn->nfds,
	                          .id = head->id,
	                          .result = result,
	                          .body_bytes = (uint32_t)conn->reply.used,
	                          .bulk_bytes = bulk_bytes};
	int error = link_send(conn->net, &reply, conn->out.bytes, conn->fds, conn->nfds);
	conn->nfds = 0;
	conn->later = 0;
	conn->failed = result < 0;
	return error ? -1 : 0;
}

/* Whether a frame may come: before there is memory for it. 0, -EPROTO, or -EBUSY: it is to be skipped, and answered. */
static int conn_may(void *arg, const struct wire_head *head)
{
	struct conn *conn = arg;
	/* Payload comes with puts of other servers alone; memory from this one. */
	int bulk = conn->tcp && (head->type == WIRE_PUT || head->type == WIRE_SAVE) && conn->client;
	int one_way = head->type == WIRE_RELEASE || head->type == WIRE_MATCH_RELEASE;
	uint64_t bytes = head->body_bytes < conn->in.room ? 0 : head->body_bytes;
	if ((head->bulk_bytes && !bulk) || (!conn->client && bytes > TRAFFIC_STRANGER) ||
	    (one_way && bytes > TRAFFIC_SMALL))
		return -EPROTO;
	if (!conn->client)
		return 0;
	conn->refusal = traffic_enter(conn, bytes + head->bulk_bytes);
	return conn->refusal ? -EBUSY : 0;
}

/* Too much is under way: nothing of the request is kept. Whether there may be another. */
static int conn_refuse(struct conn *conn, const struct wire_head *head)
{
	/* Its text is of this thread; to skip sets none. */
	if (link_skip(conn->net, head->body_bytes + head->bulk_bytes) || conn_begin(conn, cairn_error_text(), 0))
		return 0;
	conn->later = 1;
	metrics_request(&conn->daemon->metrics, head->type, 0, 1);
	atomic_fetch_add_explicit(&conn->client->requests, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&conn->client->failed, 1, memory_order_relaxed);
	int good = !conn_reply(conn, head, conn->refusal, 0);
	traffic_end(conn);
	return good;
}

/* One request. Whether there may be another. */
static int conn_step(struct conn *conn)
{
	struct wire_head head;
	int fds[WIRE_FDS_MAX];
	int patience_ms = conn->client || (link_shares(conn->net) && !conn->refused) ? LINK_FOREVER : DAEMON_HELLO_MS;
	int error = link_receive_if(conn->net, patience_ms, &head, &conn->in, fds, conn_may, conn);
	if (error == -EBUSY)
		return conn_refuse(conn, &head);
	if (error)
		return 0;
	struct wire_request *request = &conn->request;
	int good = !(head.flags & WIRE_REPLY) &&
	           !wire_request_decode(head.type, conn->in.bytes, head.body_bytes, request) &&
	           (head.type == WIRE_HELLO) == !conn->client &&
	           head.nfds == (head.type == WIRE_STAGE && !conn->tcp) &&
	           (head.type != WIRE_SAVE || !head.bulk_bytes || !arrive_whole(conn, head.bulk_bytes));
	if (good) {
		uint64_t begun_ns = clock_mono_ns(&clock_real);
		conn->failed = 0;
		good = !serve(conn, &head, request, fds);
		metrics_request(&conn->daemon->metrics, head.type, clock_mono_ns(&clock_real) - begun_ns, conn->failed);
		if (conn->client) {
			atomic_fetch_add_explicit(&conn->client->requests, 1, memory_order_relaxed);
			atomic_fetch_add_explicit(&conn->client->failed, conn->failed != 0, memory_order_relaxed);
		}
	}
	for (uint32_t i = 0; i < head.nfds; i++)
		close(fds[i]);
	arrive_end(conn);
	traffic_end(conn);
	return good;
}

/* The process at the other end of a socket file. By its number it may be another one by now, where the kernel does not
 * say it better: then this one's end is noticed by the connection's alone. */
static int pidfd_of(struct link *net)
{
	struct ucred who;
	socklen_t length = sizeof(int);
	int pidfd = -1, fd = link_shares(net) ? link_fd(net) : -1;
	if (fd < 0)
		return -1;
	if (!getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length)) /* Linux 6.5 */
		return pidfd;
	length = sizeof(who);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) || who.pid <= 0)
		return -1;
	return (int)syscall(SYS_pidfd_open, who.pid, 0);
}

void daemon_bury(struct daemon *daemon)
{
	pthread_mutex_lock(&daemon->lock);
	for (struct list *node = daemon->conns.next; node != &daemon->conns; node = node->next) {
		struct conn *conn = LIST_OF(node, struct conn, link);
		struct pollfd dead = {.fd = conn->pidfd, .events = POLLIN};
		if (conn->pidfd >= 0 && poll(&dead, 1, 0) == 1)
			link_stop(conn->net, LINK_STOP_ALL);
	}
	pthread_mutex_unlock(&daemon->lock);
}

static void conn_free(struct conn *conn)
{
	link_close(conn->net);
	if (conn->pidfd >= 0)
		close(conn->pidfd);
	traffic_leave(conn);
	if (conn->client)
		client_leave(conn->daemon, conn->client);
	if (conn->stage)
		munmap(conn->stage, conn->stage_bytes);
	mem_free(conn->sent);
	mem_free(conn->batch);
	mem_free(conn);
}

static int stopping(const struct conn *conn)
{
	return __atomic_load_n(&conn->daemon->stopping, __ATOMIC_SEQ_CST);
}

/* In place of an answer: what was sent and not answered by now was not looked at, and may be asked of the next one. */
static void conn_say_ending(struct conn *conn)
{
	static const struct wire_head head = {.type = WIRE_ENDING};
	if (!conn_begin(conn, "the cairnd is ending", 0))
		(void)conn_reply(conn, &head, CAIRN_E_IO, 0);
}

static void *conn_main(void *arg)
{
	struct conn *conn = arg;
	struct daemon *daemon = conn->daemon;
	if (link_greet(conn->net, DAEMON_HELLO_MS)) {
		LOG(LOG_INFO, "a connection ended before its hello", LOG_TEXT("peer", conn->peer),
		    LOG_TEXT("why", err_text()));
	} else {
		while (!stopping(conn) && conn_step(conn))
			continue;
		if (stopping(conn))
			conn_say_ending(conn);
	}
	pthread_mutex_lock(&daemon->lock);
	list_remove(&conn->link);
	pthread_mutex_unlock(&daemon->lock);
	conn_free(conn);
	pthread_mutex_lock(&daemon->lock);
	daemon->nconns--;
	pthread_cond_broadcast(&daemon->ended);
	pthread_mutex_unlock(&daemon->lock);
	return NULL;
}

/* The other server's address; "" where there is none. */
static void peer_name(const struct link *net, char ret_peer[DAEMON_PEER_BYTES])
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	int fd = link_fd(net);
	ret_peer[0] = 0;
	if (link_shares(net) || fd < 0 || getpeername(fd, (struct sockaddr *)&address, &length))
		return;
	if (getnameinfo((struct sockaddr *)&address, length, ret_peer, DAEMON_PEER_BYTES, NULL, 0, NI_NUMERICHOST))
		ret_peer[0] = 0;
}

/* Whether there is room for one more who has not said who he is. Whoever fills it has others from elsewhere get in. The
 * lock is held. */
static int stranger_fits(const struct daemon *daemon, const struct conn *conn)
{
	uint32_t all = 0, same = 0;
	if (link_shares(conn->net))
		return 1;
	for (const struct list *node = daemon->conns.next; node != &daemon->conns; node = node->next) {
		const struct conn *each = LIST_OF(node, struct conn, link);
		if (each->client || link_shares(each->net))
			continue;
		all++;
		same += !strcmp(each->peer, conn->peer);
	}
	return all < DAEMON_STRANGERS && same < DAEMON_STRANGERS_FROM;
}

int conn_start(struct daemon *daemon, struct link *net)
{
	struct conn *conn = mem_alloc(sizeof(*conn));
	pthread_t thread;
	int error = conn ? 0 : ENOMEM;
	if (!error) {
		conn->daemon = daemon;
		conn->net = net;
		conn->pidfd = pidfd_of(net);
		conn->tcp = !link_shares(net);
		peer_name(net, conn->peer);
		pthread_mutex_lock(&daemon->lock);
		conn->refused = daemon->nconns >= DAEMON_CONNS;
		error = daemon->nconns >= DAEMON_CONNS + DAEMON_REFUSED || daemon->stopping || !stranger_fits(daemon, conn)
		            ? EAGAIN
		            : pthread_create(&thread, NULL, conn_main, conn);
		if (!error) {
			pthread_detach(thread);
			list_push_back(&daemon->conns, &conn->link);
			daemon->nconns++;
			atomic_fetch_add_explicit(&daemon->metrics.conns, 1, memory_order_relaxed);
		}
		pthread_mutex_unlock(&daemon->lock);
	}
	if (error) {
		link_close(net);
		mem_free(conn);
	}
	return -error;
}

uint32_t daemon_conns(struct daemon *daemon)
{
	pthread_mutex_lock(&daemon->lock);
	uint32_t n = daemon->nconns;
	pthread_mutex_unlock(&daemon->lock);
	return n;
}

void daemon_check_tokens(struct daemon *daemon)
{
	uint64_t changes = daemon->tokens ? tokens_refresh(daemon->tokens) : 0;
	if (changes == daemon->tokens_changes)
		return;
	daemon->tokens_changes = changes;
	pthread_mutex_lock(&daemon->lock);
	for (struct list *node = daemon->conns.next; node != &daemon->conns; node = node->next) {
		struct conn *conn = LIST_OF(node, struct conn, link);
		if (!conn->client || !conn->client->who.has_token || tokens_hold(daemon->tokens, &conn->client->who))
			continue;
		LOG(LOG_INFO, "a connection ends: its token is no longer good", LOG_TEXT("peer", conn->peer),
		    LOG_TEXT("tenant", conn->client->who.tenant));
		link_stop(conn->net, LINK_STOP_ALL);
	}
	pthread_mutex_unlock(&daemon->lock);
}

uint32_t daemon_stop(struct daemon *daemon, uint64_t deadline_ns, int (*enough)(void *arg), void *arg)
{
	int cut = 0, hurried = 0;
	pthread_mutex_lock(&daemon->lock);
	__atomic_store_n(&daemon->stopping, 1, __ATOMIC_SEQ_CST);
	/* What has been asked is answered; what would be asked next is not read any more. */
	for (struct list *node = daemon->conns.next; node != &daemon->conns; node = node->next)
		link_stop(LIST_OF(node, struct conn, link)->net, LINK_STOP_READ);
	while (daemon->nconns) {
		struct timespec until;
		uint64_t now = clock_mono_ns(&clock_real);
		if (!hurried && enough && enough(arg)) { /* those that only have to be told end by themselves */
			hurried = 1;
			deadline_ns = now + HURRY_NS < deadline_ns ? now + HURRY_NS : deadline_ns;
		}
		if (!cut && now >= deadline_ns) {
			/* Those that wait for their clients end at once; calls of the store have a while. */
			for (struct list *node = daemon->conns.next; node != &daemon->conns; node = node->next)
				link_stop(LIST_OF(node, struct conn, link)->net, LINK_STOP_ALL);
			cut = 1;
			deadline_ns = now + CUT_NS;
		}
		if (cut && now >= deadline_ns)
			break;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 50000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&daemon->ended, &daemon->lock, &until);
	}
	uint32_t left = daemon->nconns;
	pthread_mutex_unlock(&daemon->lock);
	return left;
}
