/* SPDX-License-Identifier: Apache-2.0 */
/* Frames over stream sockets. See link.h. */
#include "net/link.h"

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

#include "base/check.h"
#include "base/mem.h"

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

int link_buffer_fit(struct link_buffer *buffer, size_t bytes)
{
	if (bytes <= buffer->room)
		return 0;
	size_t room = buffer->room ? buffer->room : 4096;
	while (room < bytes)
		room *= 2;
	uint8_t *larger = mem_alloc(room);
	if (!larger)
		return -ENOMEM;
	if (buffer->room)
		memcpy(larger, buffer->bytes, buffer->room);
	mem_free(buffer->bytes);
	*buffer = (struct link_buffer){larger, room};
	return 0;
}

void link_buffer_done(struct link_buffer *buffer)
{
	mem_free(buffer->bytes);
	*buffer = (struct link_buffer){0};
}

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

int link_connect(const char *path, int *ret_fd)
{
	struct sockaddr_un address;
	int dir, error = address_of(path, &address, &dir);
	if (error)
		return error;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		error = -errno;
	if (dir >= 0)
		close(dir);
	if (error && fd >= 0)
		close(fd);
	if (!error)
		*ret_fd = fd;
	return error;
}

int link_listen(const char *path, uint32_t mode, int *ret_fd)
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
		else if (!link_connect(path, &other))
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

int link_tcp_tune(int fd)
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

/* The first address of the host that works. */
static int tcp_open(const char *host, const char *port, int listening, int *ret_fd)
{
	struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = listening ? AI_PASSIVE : 0}, *found;
	int code = getaddrinfo(host, port, &want, &found), error = -EHOSTUNREACH, on = 1;
	if (code)
		return code == EAI_SYSTEM ? -errno : -EHOSTUNREACH;
	for (struct addrinfo *at = found; at && error; at = at->ai_next) {
		int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
		error = fd < 0 ? -errno : 0;
		if (!error && listening && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
		                            bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, 128)))
			error = -errno;
		if (!error && !listening) {
			/* A host that answers nothing: the same patience as for one that stopped answering. */
			struct timeval patience = {.tv_sec = LINK_DEAD_MS / 1000};
			(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
			error = connect(fd, at->ai_addr, at->ai_addrlen) ? -errno : link_tcp_tune(fd);
			error = error == -EINPROGRESS ? -ETIMEDOUT : error;
		}
		if (!error)
			*ret_fd = fd;
		else if (fd >= 0)
			close(fd);
	}
	freeaddrinfo(found);
	return error;
}

int link_connect_tcp(const char *host, const char *port, int *ret_fd)
{
	return tcp_open(host, port, 0, ret_fd);
}

int link_listen_tcp(const char *host, const char *port, int *ret_fd)
{
	return tcp_open(host, port, 1, ret_fd);
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static int64_t now_ms(void)
{
	struct timespec now;
	check(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits until the socket can be read or written. 0 or -errno. */
static int socket_wait(int fd, short what, int64_t deadline_ms)
{
	for (;;) {
		int64_t left = deadline_ms < 0 ? -1 : deadline_ms - now_ms();
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

static int reset(int errnum)
{
	return errnum == EPIPE || errnum == ECONNRESET || errnum == ENOTCONN ? -ECONNRESET : -errnum;
}

/* After a transfer that failed at once: 0 when it may be tried again, or -errno. */
static int socket_retry(int fd, short what, int64_t deadline_ms)
{
	if (errno == EINTR)
		return 0;
	return errno == EAGAIN || errno == EWOULDBLOCK ? socket_wait(fd, what, deadline_ms) : reset(errno);
}

/* Sends all of a message; descriptors, if there are any, with its first byte. */
static int send_all(int fd, struct msghdr *message)
{
	int64_t deadline = now_ms() + LINK_FRAME_MS;
	while (message->msg_iovlen) {
		ssize_t sent = sendmsg(fd, message, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0) {
			int error = socket_retry(fd, POLLOUT, deadline);
			if (error)
				return error;
			continue;
		}
		message->msg_control = NULL;
		message->msg_controllen = 0;
		size_t moved = (size_t)sent;
		while (message->msg_iovlen && moved >= message->msg_iov->iov_len) {
			moved -= message->msg_iov->iov_len;
			message->msg_iov++;
			message->msg_iovlen--;
		}
		if (message->msg_iovlen) {
			message->msg_iov->iov_base = (char *)message->msg_iov->iov_base + moved;
			message->msg_iov->iov_len -= moved;
		}
	}
	return 0;
}

int link_send(int fd, const struct wire_head *head, const void *body, const int *fds, uint32_t nfds)
{
	uint8_t bytes[WIRE_HEAD_BYTES];
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
	} control;
	check(head->nfds == nfds);
	wire_head_encode(head, body, bytes);
	struct iovec parts[2] = {{bytes, WIRE_HEAD_BYTES}, {(void *)(uintptr_t)body, head->body_bytes}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = head->body_bytes ? 2 : 1};
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
	return send_all(fd, &message);
}

int link_send_bytes(int fd, const void *bytes, size_t length)
{
	struct iovec part = {(void *)(uintptr_t)bytes, length};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = length ? 1 : 0};
	return send_all(fd, &message);
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

static int receive_bytes(int fd, uint8_t *to, size_t length, int64_t deadline_ms, int *fds, uint32_t *nfds)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
	} control;
	for (size_t got = 0; got < length;) {
		struct iovec part = {to + got, length - got};
		struct msghdr message = {.msg_iov = &part,
		                         .msg_iovlen = 1,
		                         .msg_control = control.room,
		                         .msg_controllen = sizeof(control.room)};
		ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n < 0) {
			int error = socket_retry(fd, POLLIN, deadline_ms);
			if (error)
				return error;
			continue;
		}
		if (descriptors_take(&message, fds, nfds))
			return -EPROTO;
		if (n == 0)
			return -ECONNRESET;
		got += (size_t)n;
	}
	return 0;
}

int link_receive_bytes(int fd, void *bytes, size_t length)
{
	int64_t deadline = now_ms() + LINK_FRAME_MS;
	for (size_t got = 0; got < length;) {
		ssize_t n = recv(fd, (uint8_t *)bytes + got, length - got, MSG_DONTWAIT);
		int error = n > 0 ? 0 : n == 0 ? -ECONNRESET : socket_retry(fd, POLLIN, deadline);
		if (error)
			return error;
		got += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int link_receive(int fd, int timeout_ms, struct wire_head *ret_head, struct link_buffer *body,
                 int ret_fds[WIRE_FDS_MAX])
{
	uint8_t head[WIRE_HEAD_BYTES];
	uint32_t nfds = 0;
	int error = 0;
	/* A request that is answered at once comes without a wait; else wait for its first byte. */
	if (recv(fd, head, 1, MSG_PEEK | MSG_DONTWAIT) < 0)
		error = socket_wait(fd, POLLIN, timeout_ms < 0 ? -1 : now_ms() + timeout_ms);
	if (error)
		return error;
	int64_t deadline = now_ms() + LINK_FRAME_MS;
	error = receive_bytes(fd, head, sizeof(head), deadline, ret_fds, &nfds);
	if (!error && wire_head_decode(head, ret_head))
		error = -EPROTO;
	if (!error)
		error = link_buffer_fit(body, ret_head->body_bytes + 1); /* never without a buffer */
	if (!error)
		error = receive_bytes(fd, body->bytes, ret_head->body_bytes, deadline, ret_fds, &nfds);
	if (!error && (nfds != ret_head->nfds || !wire_is_whole(head, body->bytes, ret_head->body_bytes)))
		error = -EPROTO;
	for (uint32_t i = 0; i < nfds && error; i++)
		close(ret_fds[i]);
	return error;
}
