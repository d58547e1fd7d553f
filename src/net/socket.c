/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets as they are: files of this server, with descriptors, and TCP in plain. See link.h and socket.h. */
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

struct socket_link {
	struct link link;
	int fd;
	uint32_t vain, without; /* spins that were in vain, one after the other; waits to go without one */
};

struct socket_listener {
	struct link_listener listener;
	char path[LINK_PATH_MAX]; /* of the file to remove; "": none */
};

#define LINK_SPIN_NS 40000
#define LINK_SPIN_VAIN 6
#define LINK_LEAST (256 << 10)     /* of a payload, before its receiver is woken */
#define LINK_UNIX_BUFFER (1 << 20) /* a prompt's keys leave at once */

/* ---- addresses --------------------------------------------------------------------------------------------------- */

/* An address holds 107 bytes; a longer path is reached through its directory's descriptor. *ret_dir: to close. */
static int address_of(const char *path, struct sockaddr_un *ret_address, int *ret_dir)
{
	size_t length = strlen(path);
	const char *slash = strrchr(path, '/');
	*ret_dir = -1;
	memset(ret_address, 0, sizeof(*ret_address));
	ret_address->sun_family = AF_UNIX;
	if (length < sizeof(ret_address->sun_path)) {
		memcpy(ret_address->sun_path, path, length + 1);
		return 0;
	}
	char parent[LINK_PATH_MAX];
	if (!slash || length >= LINK_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(parent, path, (size_t)(slash - path));
	parent[slash - path] = 0;
	*ret_dir = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (*ret_dir < 0)
		return -errno;
	int n = snprintf(ret_address->sun_path, sizeof(ret_address->sun_path), "/proc/self/fd/%d/%s", *ret_dir, slash + 1);
	if (n < (int)sizeof(ret_address->sun_path))
		return 0;
	close(*ret_dir);
	*ret_dir = -1;
	return -ENAMETOOLONG;
}

static int file_connect(const char *path, int *ret_fd)
{
	struct sockaddr_un address;
	int dir, error = address_of(path, &address, &dir);
	if (error)
		return error;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* A thread that has a ring of io_uring is interrupted without a signal. */
	do
		error = fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
	while (error == -EINTR);
	if (dir >= 0)
		close(dir);
	if (error && fd >= 0)
		close(fd);
	if (!error)
		*ret_fd = fd;
	return error;
}

static int file_listen(const char *path, uint32_t mode, int *ret_fd)
{
	struct sockaddr_un address;
	struct stat there;
	int dir, other, error = address_of(path, &address, &dir);
	if (error)
		return error;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		error = -errno;
	} else if (!lstat(path, &there)) { /* what a process that was killed left behind */
		if (!S_ISSOCK(there.st_mode))
			error = -EEXIST;
		else if (!file_connect(path, &other))
			error = (close(other), -EADDRINUSE);
		else if (unlink(path))
			error = -errno;
	}
	/* fchmod before bind: nobody else may connect meanwhile. */
	if (!error && (fchmod(fd, mode) || bind(fd, (struct sockaddr *)&address, sizeof(address)) || chmod(path, mode) ||
	               listen(fd, 128)))
		error = -errno;
	if (dir >= 0)
		close(dir);
	if (error && fd >= 0)
		close(fd);
	if (!error)
		*ret_fd = fd;
	return error;
}

static int tcp_tune(int fd)
{
	int on = 1, idle_s = LINK_DEAD_MS / 2000, step_s = 1, tries = LINK_DEAD_MS / 2000;
	unsigned int dead_ms = LINK_DEAD_MS;
	return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
	               setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) ||
	               setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s)) ||
	               setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &step_s, sizeof(step_s)) ||
	               setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof(tries)) ||
	               setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_ms, sizeof(dead_ms))
	           ? -errno
	           : 0;
}

static int tcp_listen_at(int fd, const struct addrinfo *at)
{
	int on = 1;
	return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) || bind(fd, at->ai_addr, at->ai_addrlen) ||
	               listen(fd, 128)
	           ? -errno
	           : 0;
}

static int tcp_connect_at(int fd, const struct addrinfo *at, int64_t deadline_ms)
{
	int64_t left = deadline_ms - link_now_ms();
	if (left <= 0)
		return -ETIMEDOUT;
	struct timeval patience = {.tv_sec = left / 1000, .tv_usec = left % 1000 * 1000};
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	int error = connect(fd, at->ai_addr, at->ai_addrlen) ? -errno : 0;
	if (error == -EINTR) { /* it goes on all the same */
		socklen_t length = sizeof(error);
		int waited = socket_wait(fd, POLLOUT, deadline_ms);
		error = waited ? waited : getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) ? -errno : -error;
	}
	return error == -EINPROGRESS ? -ETIMEDOUT : error ? error : tcp_tune(fd);
}

static int tcp_open(const struct link_place *place, int listening, int64_t deadline_ms, int *ret_fd)
{
	struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = listening ? AI_PASSIVE : 0}, *found;
	int code = getaddrinfo(place->host, place->port, &want, &found), error = -EHOSTUNREACH;
	if (code)
		return code == EAI_SYSTEM ? -errno : -EHOSTUNREACH;
	for (struct addrinfo *at = found; at && error; at = at->ai_next) {
		int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
		error = fd < 0 ? -errno : 0;
		if (!error)
			error = listening ? tcp_listen_at(fd, at) : tcp_connect_at(fd, at, deadline_ms);
		if (!error)
			*ret_fd = fd;
		else if (fd >= 0)
			close(fd);
	}
	freeaddrinfo(found);
	return error;
}

int socket_connect_tcp(const struct link_place *place, int64_t deadline_ms, int *ret_fd)
{
	/* A host that answers nothing: the same patience as for one that stopped answering. */
	return tcp_open(place, 0, deadline_ms < 0 ? link_now_ms() + LINK_DEAD_MS : deadline_ms, ret_fd);
}

int socket_listen_tcp(const struct link_place *place, int *ret_fd)
{
	return tcp_open(place, 1, LINK_FOREVER, ret_fd);
}

static int socket_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int socket_accept_tcp(int listener)
{
	int fd = socket_accept(listener), error = fd < 0 ? 0 : tcp_tune(fd);
	if (!error)
		return fd;
	close(fd);
	return error;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

int socket_wait(int fd, short what, int64_t deadline_ms)
{
	for (;;) {
		int64_t left = deadline_ms < 0 ? -1 : deadline_ms - link_now_ms();
		if (deadline_ms >= 0 && left < 0)
			return -ETIMEDOUT;
		struct pollfd wait = {.fd = fd, .events = what};
		int n = poll(&wait, 1, left > INT_MAX ? INT_MAX : (int)left);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

int socket_retry(int fd, short what, int64_t deadline_ms)
{
	if (errno == EINTR)
		return 0;
	if (errno == EAGAIN || errno == EWOULDBLOCK)
		return socket_wait(fd, what, deadline_ms);
	return errno == EPIPE || errno == ENOTCONN ? -ECONNRESET : -errno;
}

void socket_stop(int fd, enum link_stop how)
{
	shutdown(fd, how == LINK_STOP_READ ? SHUT_RD : how == LINK_STOP_WRITE ? SHUT_WR : SHUT_RDWR);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static int fd_of(const struct link *link)
{
	return ((const struct socket_link *)link)->fd;
}

/* What was sent is no longer in the message; its descriptors went with the first byte. */
static void message_move(struct msghdr *message, size_t sent)
{
	message->msg_control = NULL;
	message->msg_controllen = 0;
	while (message->msg_iovlen && sent >= message->msg_iov->iov_len) {
		sent -= message->msg_iov->iov_len;
		message->msg_iov++;
		message->msg_iovlen--;
	}
	if (message->msg_iovlen) {
		message->msg_iov->iov_base = (char *)message->msg_iov->iov_base + sent;
		message->msg_iov->iov_len -= sent;
	}
}

static int plain_send(struct link *link, struct iovec *parts, size_t nparts, const int *fds, uint32_t nfds,
                      int64_t deadline_ms)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
	} control;
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = nparts};
	int fd = fd_of(link);
	if (nfds) {
		memset(&control, 0, sizeof(control));
		message.msg_control = control.room;
		message.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(header), fds, nfds * sizeof(int));
	}
	while (message.msg_iovlen) {
		ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
		int error = sent < 0 ? socket_retry(fd, POLLOUT, deadline_ms) : 0;
		if (error)
			return error;
		if (sent >= 0)
			message_move(&message, (size_t)sent);
	}
	return 0;
}

/* Takes the descriptors of a message; those beyond `room` are closed and counted as a fault (-1). */
static int descriptors_take(struct msghdr *message, int *fds, uint32_t *nfds)
{
	int fault = (message->msg_flags & MSG_CTRUNC) != 0;
	for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
			if (*nfds < WIRE_FDS_MAX)
				fds[(*nfds)++] = fd;
			else
				fault = (close(fd), 1);
		}
	}
	return fault ? -1 : 0;
}

/* As recv, with the descriptors that come. -EPROTO: more of them than a frame may have. */
static int receive_some(int fd, uint8_t *to, size_t length, int *fds, uint32_t *nfds, ssize_t *ret_n)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
	} control;
	struct iovec part = {to, length};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control.room)};
	*ret_n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	return *ret_n >= 0 && descriptors_take(&message, fds, nfds) ? -EPROTO : 0;
}

int socket_wait_payload(int fd, size_t left, int64_t deadline_ms)
{
	int least = left < LINK_LEAST ? (int)left : LINK_LEAST, one = 1;
	if (left < LINK_LEAST / 4 || setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof(least)))
		return socket_wait(fd, POLLIN, deadline_ms);
	int error = socket_wait(fd, POLLIN, deadline_ms);
	return setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one)) && !error ? -errno : error;
}

static int plain_receive(struct link *link, uint8_t *to, size_t length, int *fds, uint32_t *nfds, int64_t deadline_ms)
{
	int fd = fd_of(link);
	for (size_t got = 0; got < length;) {
		ssize_t n;
		int error = 0;
		if (fds)
			error = receive_some(fd, to + got, length - got, fds, nfds, &n);
		else
			n = recv(fd, to + got, length - got, MSG_DONTWAIT);
		if (!error && n < 0 && !fds && (errno == EAGAIN || errno == EWOULDBLOCK))
			error = socket_wait_payload(fd, length - got, deadline_ms);
		else if (!error && n <= 0)
			error = n ? socket_retry(fd, POLLIN, deadline_ms) : -ECONNRESET;
		if (error)
			return error;
		got += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* Waits a moment without giving the processor back: to be woken takes longer than many an answer. Where that was in
 * vain the next waits do without it, twice as many each time. 1: there is something, or the end. */
static int link_spin(struct socket_link *own)
{
	static int processors;
	int known = __atomic_load_n(&processors, __ATOMIC_RELAXED);
	uint8_t byte;
	struct timespec now, begun;
	if (!known)
		__atomic_store_n(&processors, known = (int)sysconf(_SC_NPROCESSORS_ONLN), __ATOMIC_RELAXED);
	if (known < 2 || own->without) {
		own->without -= own->without > 0;
		return 0;
	}
	clock_gettime(CLOCK_MONOTONIC, &begun);
	do {
		if (recv(own->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0) {
			own->vain = 0;
			return 1;
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begun.tv_sec) * 1000000000 + now.tv_nsec - begun.tv_nsec < LINK_SPIN_NS);
	own->vain += own->vain < LINK_SPIN_VAIN;
	own->without = (1u << own->vain) - 1;
	return 0;
}

static int unix_wait(struct link *link, int64_t deadline_ms)
{
	return link_spin((struct socket_link *)link) ? 0 : socket_wait(fd_of(link), POLLIN, deadline_ms);
}

static int plain_wait(struct link *link, int64_t deadline_ms)
{
	uint8_t byte;
	/* A request that is answered at once comes without a wait. */
	return recv(fd_of(link), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 ? socket_wait(fd_of(link), POLLIN, deadline_ms) : 0;
}

static int plain_is_idle(struct link *link)
{
	uint8_t byte;
	return recv(fd_of(link), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

static void plain_stop(struct link *link, enum link_stop how)
{
	socket_stop(fd_of(link), how);
}

static void plain_close(struct link *link)
{
	close(fd_of(link));
	mem_free(link);
}

/* ---- the two ----------------------------------------------------------------------------------------------------- */

/* Takes over the descriptor. 0 or -ENOMEM. */
static int link_new(const struct link_ops *ops, int fd, struct link **ret_link)
{
	struct socket_link *link = mem_alloc(sizeof(*link));
	if (!link) {
		close(fd);
		return -ENOMEM;
	}
	link->link.ops = ops;
	link->fd = fd;
	*ret_link = &link->link;
	return 0;
}

static int listener_new(const struct link_ops *ops, int fd, const char *path, struct link_listener **ret_listener)
{
	struct socket_listener *listener = mem_alloc(sizeof(*listener));
	if (!listener) {
		close(fd);
		return -ENOMEM;
	}
	listener->listener = (struct link_listener){.ops = ops, .fd = fd};
	memcpy(listener->path, path, strlen(path) + 1);
	*ret_listener = &listener->listener;
	return 0;
}

static int unix_connect(const struct link_place *place, const struct link_trust *trust, int64_t deadline_ms,
                        struct link **ret_link, char why[LINK_WHY])
{
	int fd, error = file_connect(place->path, &fd), bytes = LINK_UNIX_BUFFER;
	(void)trust, (void)deadline_ms, (void)why; /* it is there or not */
	if (!error)
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)); /* what the system allows of it */
	return error ? error : link_new(&link_unix, fd, ret_link);
}

static int unix_listen(const struct link_place *place, const struct link_serving *serving,
                       struct link_listener **ret_listener, char why[LINK_WHY])
{
	int fd, error = file_listen(place->path, serving->mode, &fd);
	(void)why;
	return error ? error : listener_new(&link_unix, fd, place->path, ret_listener);
}

static int unix_accept(struct link_listener *listener, struct link **ret_link)
{
	int fd = socket_accept(listener->fd);
	return fd < 0 ? fd : link_new(&link_unix, fd, ret_link);
}

static int tcp_connect(const struct link_place *place, const struct link_trust *trust, int64_t deadline_ms,
                       struct link **ret_link, char why[LINK_WHY])
{
	(void)trust, (void)why;
	int fd, error = socket_connect_tcp(place, deadline_ms, &fd);
	return error ? error : link_new(&link_tcp, fd, ret_link);
}

static int tcp_listen(const struct link_place *place, const struct link_serving *serving,
                      struct link_listener **ret_listener, char why[LINK_WHY])
{
	int fd, error = socket_listen_tcp(place, &fd);
	(void)serving, (void)why;
	return error ? error : listener_new(&link_tcp, fd, "", ret_listener);
}

static int tcp_accept(struct link_listener *listener, struct link **ret_link)
{
	int fd = socket_accept_tcp(listener->fd);
	return fd < 0 ? fd : link_new(&link_tcp, fd, ret_link);
}

static void plain_unlisten(struct link_listener *listener)
{
	struct socket_listener *plain = (struct socket_listener *)listener;
	close(listener->fd);
	if (plain->path[0])
		unlink(plain->path);
	mem_free(plain);
}

const struct link_ops link_unix = {
	.scheme = "unix:",
	.shares = 1,
	.is_private = 1,
	.connect = unix_connect,
	.listen = unix_listen,
	.accept = unix_accept,
	.send = plain_send,
	.receive = plain_receive,
	.wait = unix_wait,
	.is_idle = plain_is_idle,
	.fd = fd_of,
	.stop = plain_stop,
	.close = plain_close,
	.unlisten = plain_unlisten,
};

const struct link_ops link_tcp = {
	.scheme = "tcp+plain://",
	.hosts = 1,
	.connect = tcp_connect,
	.listen = tcp_listen,
	.accept = tcp_accept,
	.send = plain_send,
	.receive = plain_receive,
	.wait = plain_wait,
	.is_idle = plain_is_idle,
	.fd = fd_of,
	.stop = plain_stop,
	.close = plain_close,
	.unlisten = plain_unlisten,
};
