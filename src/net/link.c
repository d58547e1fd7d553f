/* SPDX-License-Identifier: Apache-2.0 */
/* Places, and frames over any transport. See link.h. */
#include "net/link.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"

static const struct link_ops *const transports[] = {&link_unix, &link_tls, &link_tcp, &link_ucx};
enum { TRANSPORTS = sizeof(transports) / sizeof(transports[0]) };

_Atomic int link_frame_ms = 30000;

int64_t link_now_ms(void)
{
	struct timespec now;
	check(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t deadline_of(int timeout_ms)
{
	return timeout_ms < 0 ? LINK_FOREVER : link_now_ms() + timeout_ms;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

static const struct link_ops *ops_of(const char *text)
{
	for (int i = 0; i < TRANSPORTS; i++)
		if (!strncmp(text, transports[i]->scheme, strlen(transports[i]->scheme)))
			return transports[i];
	return NULL;
}

int link_place_is(const char *text)
{
	return ops_of(text) != NULL;
}

/* HOST:PORT, [ADDRESS]:PORT or HOST. 0 or -1. */
static int host_take(const char *text, struct link_place *place)
{
	const char *end = text[0] == '[' ? strchr(text, ']') : strchr(text, ':');
	const char *host = text[0] == '[' ? text + 1 : text;
	size_t length = end ? (size_t)(end - host) : strlen(host);
	const char *port = !end ? "" : *end == ']' ? end + 1 : end;
	if (!length || length >= sizeof(place->host) || (*port && *port != ':') || strlen(port) > sizeof(place->port) ||
	    (text[0] == '[' && !end) || strspn(*port ? port + 1 : port, "0123456789") != strlen(*port ? port + 1 : port))
		return -1;
	memcpy(place->host, host, length);
	port = *port && port[1] ? port + 1 : LINK_PORT;
	memcpy(place->port, port, strlen(port) + 1);
	return 0;
}

int link_place_take(const char *text, struct link_place *ret_place)
{
	const struct link_ops *ops = ops_of(text);
	memset(ret_place, 0, sizeof(*ret_place));
	if (!ops)
		return err_set(CAIRN_E_INVAL,
		               "%s: expected unix:PATH, tcp://HOST:PORT, tcp+plain://HOST:PORT or ucx+plain://HOST:PORT", text);
	if (strlen(text) >= sizeof(ret_place->text))
		return err_set(CAIRN_E_INVAL, "a place has at most %u bytes", LINK_PATH_MAX - 1);
	const char *rest = text + strlen(ops->scheme);
	ret_place->ops = ops;
	memcpy(ret_place->text, text, strlen(text) + 1);
	if (ops->hosts)
		return host_take(rest, ret_place) ? err_set(CAIRN_E_INVAL, "%s: expected %sHOST:PORT", text, ops->scheme) : 0;
	if (!*rest)
		return err_set(CAIRN_E_INVAL, "%s without the path of a socket", text);
	memcpy(ret_place->path, rest, strlen(rest) + 1);
	return 0;
}

/* ---- links ------------------------------------------------------------------------------------------------------- */

int link_connect(const struct link_place *place, const struct link_trust *trust, int timeout_ms,
                 struct link **ret_link)
{
	static const struct link_trust none = {NULL};
	char why[LINK_WHY] = "";
	int error = place->ops->connect(place, trust ? trust : &none, deadline_of(timeout_ms), ret_link, why);
	if (!error)
		return 0;
	int code = error == -EACCES ? CAIRN_E_ACCESS : error == -ENOMEM ? CAIRN_E_NOMEM : CAIRN_E_NOENT;
	if (why[0])
		return err_set(code, "%s: %s", place->text, why);
	return err_set(code, "no cairnd at %s: %s; start it with cairn serve", place->text, strerror(-error));
}

void link_close(struct link *link)
{
	link->ops->close(link);
}

void link_stop(struct link *link, enum link_stop how)
{
	link->ops->stop(link, how);
}

int link_is_idle(struct link *link)
{
	return link->ops->is_idle(link);
}

int link_shares(const struct link *link)
{
	return link->ops->shares;
}

int link_is_private(const struct link *link)
{
	return link->ops->is_private;
}

int link_fd(const struct link *link)
{
	return link->ops->fd(link);
}

int link_wait(struct link *link, int timeout_ms)
{
	return link->ops->wait(link, deadline_of(timeout_ms));
}

int link_listen(const struct link_place *place, const struct link_serving *serving, struct link_listener **ret_listener)
{
	char why[LINK_WHY] = "";
	int error = place->ops->listen(place, serving, ret_listener, why);
	if (!error)
		return 0;
	if (error == -EADDRINUSE)
		return err_set(CAIRN_E_OWNED, "%s: another process listens there: end it first", place->text);
	return err_set(err_from_errno(-error), "%s: %s", place->text, why[0] ? why : strerror(-error));
}

int link_accept(struct link_listener *listener, struct link **ret_link)
{
	return listener->ops->accept(listener, ret_link);
}

int link_greet(struct link *link, int timeout_ms)
{
	char why[LINK_WHY] = "";
	int error = link->ops->greet ? link->ops->greet(link, deadline_of(timeout_ms), why) : 0;
	return error ? err_set(CAIRN_E_IO, "%s", why[0] ? why : strerror(-error)) : 0;
}

int link_listener_renew(struct link_listener *listener, const struct link_serving *serving)
{
	return listener->ops->renew ? listener->ops->renew(listener, serving) : 0;
}

void link_listener_close(struct link_listener *listener)
{
	listener->ops->unlisten(listener);
}

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

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static int64_t deadline_on(const struct link *link, int timeout_ms)
{
	int64_t deadline = deadline_of(timeout_ms);
	return link->until_ms && (deadline < 0 || link->until_ms < deadline) ? link->until_ms : deadline;
}

int link_send(struct link *link, const struct wire_head *head, const void *body, const int *fds, uint32_t nfds)
{
	uint8_t bytes[WIRE_HEAD_BYTES];
	check(head->nfds == nfds && (!nfds || link->ops->shares));
	wire_head_encode(head, body, bytes);
	struct iovec parts[2] = {{bytes, WIRE_HEAD_BYTES}, {(void *)(uintptr_t)body, head->body_bytes}};
	return link->ops->send(link, parts, head->body_bytes ? 2 : 1, fds, nfds, deadline_on(link, LINK_FRAME_MS));
}

int link_send_parts(struct link *link, struct iovec *parts, size_t nparts)
{
	return link->ops->send(link, parts, nparts, NULL, 0, deadline_on(link, LINK_FRAME_MS));
}

int link_send_bytes(struct link *link, const void *bytes, size_t length)
{
	struct iovec part = {(void *)(uintptr_t)bytes, length};
	return length ? link_send_parts(link, &part, 1) : 0;
}

int link_receive_by(struct link *link, void *bytes, size_t length, int64_t deadline_ms)
{
	return link->ops->receive(link, bytes, length, NULL, NULL, deadline_ms);
}

int link_receive_bytes(struct link *link, void *bytes, size_t length)
{
	return link_receive_by(link, bytes, length, deadline_on(link, LINK_FRAME_MS));
}

int link_skip(struct link *link, uint64_t length)
{
	uint8_t rest[16384];
	int64_t deadline = deadline_on(link, LINK_FRAME_MS);
	int error = 0;
	while (length && !error) {
		size_t take = length < sizeof(rest) ? length : sizeof(rest);
		error = link_receive_by(link, rest, take, deadline);
		length -= take;
	}
	return error;
}

int link_receive(struct link *link, int timeout_ms, struct wire_head *ret_head, struct link_buffer *body,
                 int ret_fds[WIRE_FDS_MAX])
{
	return link_receive_if(link, timeout_ms, ret_head, body, ret_fds, NULL, NULL);
}

int link_receive_if(struct link *link, int timeout_ms, struct wire_head *ret_head, struct link_buffer *body,
                    int ret_fds[WIRE_FDS_MAX], int (*may)(void *arg, const struct wire_head *head), void *arg)
{
	uint8_t head[WIRE_HEAD_BYTES];
	uint32_t nfds = 0;
	int *fds = link->ops->shares ? ret_fds : NULL;
	int error = link->ops->wait(link, deadline_on(link, timeout_ms));
	if (error)
		return error;
	int64_t deadline = deadline_on(link, LINK_FRAME_MS);
	error = link->ops->receive(link, head, sizeof(head), fds, &nfds, deadline);
	if (!error && wire_head_decode(head, ret_head))
		error = -EPROTO;
	if (!error && may)
		error = may(arg, ret_head);
	if (!error)
		error = link_buffer_fit(body, ret_head->body_bytes + 1); /* never without a buffer */
	if (!error)
		error = link->ops->receive(link, body->bytes, ret_head->body_bytes, fds, &nfds, deadline);
	if (!error && (nfds != ret_head->nfds || !wire_is_whole(head, body->bytes, ret_head->body_bytes)))
		error = -EPROTO;
	for (uint32_t i = 0; i < nfds && error; i++)
		close(ret_fds[i]);
	return error;
}
