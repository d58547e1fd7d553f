/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UCX, where it is: one more fabric under the same frames (ucx+plain://HOST:PORT). The library is found at run time;
 * its headers only say what its functions look like. See link.h.
 *
 * Threads: one context for all; each link has a worker of its own, which belongs to whoever uses the link. link_stop
 * only marks it and wakes it up. Memory: UCX's own; what has come and was not taken yet lies in its buffers.
 * Invariant: when a send returns, UCX reads no byte of it any more: who gives up ends the endpoint first.
 */
#include "net/socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#ifdef CAIRN_HAVE_UCX

#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <ucp/api/ucp.h>

#include "base/mem.h"

enum {
	CLOSE_MS = 2000, /* what was sent may still go out for so long */
	PENDING = 64,    /* who has connected and was not taken yet */
};

#define UCX_FUNCTIONS(each)                                                                                            \
	each(ucp_config_read) each(ucp_config_modify) each(ucp_config_release) each(ucp_init_version)                      \
		each(ucp_worker_create) each(ucp_worker_destroy) each(ucp_worker_progress) each(ucp_worker_get_efd)            \
			each(ucp_worker_arm) each(ucp_worker_signal) each(ucp_listener_create) each(ucp_listener_destroy)          \
				each(ucp_listener_query) each(ucp_listener_reject) each(ucp_ep_create) each(ucp_ep_close_nbx)          \
					each(ucp_ep_flush_nbx) each(ucp_stream_send_nbx) each(ucp_stream_recv_data_nb)                     \
						each(ucp_stream_data_release) each(ucp_request_check_status) each(ucp_request_free)            \
							each(ucs_status_string)

/* The functions, by their names. */
static struct {
#define UCX_POINTER(name) __typeof__(name) *name;
	UCX_FUNCTIONS(UCX_POINTER)
} ucx;
static ucp_context_h context;
static char fault[160]; /* why there is no context */
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct ucx_link {
	struct link link;
	ucp_worker_h worker;
	ucp_ep_h ep; /* NULL: it has ended */
	int fd;      /* readable when the worker has something to do */
	int failed;  /* the peer has gone */
	atomic_int stopped[2]; /* nothing more is received, sent */
	uint8_t *data; /* came, and from `at` on was not taken */
	size_t at, length;
};

struct ucx_listener {
	struct link_listener listener;
	ucp_worker_h worker;
	ucp_listener_h ucp;
	ucp_conn_request_h pending[PENDING];
	uint32_t npending;
};

/* ---- the library ------------------------------------------------------------------------------------------------- */

static int context_make(void)
{
	ucp_config_t *config;
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
	                       .features = UCP_FEATURE_STREAM | UCP_FEATURE_WAKEUP,
	                       .mt_workers_shared = 1};
	if (ucx.ucp_config_read(NULL, NULL, &config) != UCS_OK)
		return -1;
	if (!getenv("UCX_KEEPALIVE_INTERVAL")) /* a dead peer is noticed, without traffic too */
		(void)ucx.ucp_config_modify(config, "KEEPALIVE_INTERVAL", "4s");
	ucs_status_t status = ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context);
	ucx.ucp_config_release(config);
	return status == UCS_OK ? 0 : -1;
}

static void ucx_begin(void)
{
	/* It would print, and catch signals, in a process that is not its own. */
	(void)setenv("UCX_LOG_LEVEL", "fatal", 0);
	(void)setenv("UCX_HANDLE_ERRORS", "none", 0);
	void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(fault, sizeof(fault), "UCX is not installed here (libucp.so.0)");
		return;
	}
#define UCX_FIND(name) ucx.name = (__typeof__(name) *)(uintptr_t)dlsym(library, #name);
	UCX_FUNCTIONS(UCX_FIND)
#define UCX_MISSING(name) || !ucx.name
	if (0 UCX_FUNCTIONS(UCX_MISSING))
		snprintf(fault, sizeof(fault), "the UCX that is installed here lacks a function: 1.13 or newer is needed");
	else if (context_make())
		snprintf(fault, sizeof(fault), "UCX finds nothing to work with here (UCX_TLS, UCX_NET_DEVICES)");
}

/* 0, or -ENOSYS with the reason. */
static int ucx_need(char why[LINK_WHY])
{
	pthread_once(&once, ucx_begin);
	if (context)
		return 0;
	snprintf(why, LINK_WHY, "%s", fault);
	return -ENOSYS;
}

static int worker_make(ucp_worker_h *ret_worker, int *ret_fd)
{
	ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
	                              .thread_mode = UCS_THREAD_MODE_SERIALIZED};
	if (ucx.ucp_worker_create(context, &params, ret_worker) != UCS_OK)
		return -ENOMEM;
	if (ucx.ucp_worker_get_efd(*ret_worker, ret_fd) == UCS_OK)
		return 0;
	ucx.ucp_worker_destroy(*ret_worker);
	return -EIO;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static struct ucx_link *ucx_of(struct link *link)
{
	return (struct ucx_link *)link;
}

static void peer_gone(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct ucx_link *link = arg;
	(void)ep, (void)status;
	link->failed = 1;
}

/* Lets the worker do what is due, or waits until something is. 0, or -ETIMEDOUT. */
static int worker_step(ucp_worker_h worker, int fd, int64_t deadline_ms)
{
	if (ucx.ucp_worker_progress(worker))
		return 0;
	return ucx.ucp_worker_arm(worker) == UCS_OK ? socket_wait(fd, POLLIN, deadline_ms) : 0;
}

static int link_step(struct ucx_link *link, int sending, int64_t deadline_ms)
{
	if (link->failed || atomic_load(&link->stopped[sending]))
		return -ECONNRESET;
	return worker_step(link->worker, link->fd, deadline_ms);
}

/* Ends the endpoint. force: at once, and whatever is under way with it. */
static void ep_end(struct ucx_link *link, int force)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
	                             .flags = force || link->failed ? UCP_EP_CLOSE_FLAG_FORCE : 0};
	if (!link->ep)
		return;
	if (link->data)
		ucx.ucp_stream_data_release(link->ep, link->data);
	link->data = NULL;
	void *request = ucx.ucp_ep_close_nbx(link->ep, &param);
	int64_t deadline = link_now_ms() + CLOSE_MS;
	link->ep = NULL;
	if (!UCS_PTR_IS_PTR(request))
		return;
	while (ucx.ucp_request_check_status(request) == UCS_INPROGRESS && link_now_ms() < deadline)
		(void)worker_step(link->worker, link->fd, deadline);
	ucx.ucp_request_free(request);
}

/* Until a request has ended. Given up, its endpoint ends first: nothing of the caller's memory is read any more. */
static int request_wait(struct ucx_link *link, void *request, int64_t deadline_ms)
{
	if (!request)
		return 0;
	if (UCS_PTR_IS_ERR(request))
		return -ECONNRESET;
	ucs_status_t status;
	int error = 0;
	while ((status = ucx.ucp_request_check_status(request)) == UCS_INPROGRESS && !error)
		error = link_step(link, 1, deadline_ms);
	if (status == UCS_INPROGRESS) {
		ep_end(link, 1);
		while (ucx.ucp_request_check_status(request) == UCS_INPROGRESS)
			(void)worker_step(link->worker, link->fd, link_now_ms() + 10);
	}
	ucx.ucp_request_free(request);
	return error ? error : status == UCS_OK ? 0 : -ECONNRESET;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static int ucx_send(struct link *link, struct iovec *parts, size_t nparts, const int *fds, uint32_t nfds,
                    int64_t deadline_ms)
{
	struct ucx_link *ucx_link = ucx_of(link);
	ucp_request_param_t param = {0};
	int error = 0;
	(void)fds, (void)nfds;
	for (size_t i = 0; i < nparts && !error; i++) {
		if (!parts[i].iov_len)
			continue;
		if (!ucx_link->ep || ucx_link->failed || atomic_load(&ucx_link->stopped[1]))
			return -ECONNRESET;
		void *request = ucx.ucp_stream_send_nbx(ucx_link->ep, parts[i].iov_base, parts[i].iov_len, &param);
		error = request_wait(ucx_link, request, deadline_ms);
	}
	return error;
}

/* Whether something is there that was not taken. */
static int data_look(struct ucx_link *link)
{
	if (link->data || !link->ep)
		return link->data != NULL;
	void *data = ucx.ucp_stream_recv_data_nb(link->ep, &link->length);
	if (!data)
		return 0;
	if (UCS_PTR_IS_ERR(data)) {
		link->failed = 1;
		return 0;
	}
	link->data = data;
	link->at = 0;
	return 1;
}

static int ucx_wait(struct link *link, int64_t deadline_ms)
{
	struct ucx_link *ucx_link = ucx_of(link);
	int error = 0;
	while (!error && !data_look(ucx_link))
		error = ucx_link->ep ? link_step(ucx_link, 0, deadline_ms) : -ECONNRESET;
	return atomic_load(&ucx_link->stopped[0]) ? -ECONNRESET : error;
}

static int ucx_receive(struct link *link, uint8_t *to, size_t length, int *fds, uint32_t *nfds, int64_t deadline_ms)
{
	struct ucx_link *ucx_link = ucx_of(link);
	(void)fds, (void)nfds;
	for (size_t got = 0; got < length;) {
		int error = ucx_wait(link, deadline_ms);
		if (error)
			return error;
		size_t take = ucx_link->length - ucx_link->at;
		take = take < length - got ? take : length - got;
		memcpy(to + got, ucx_link->data + ucx_link->at, take);
		got += take;
		ucx_link->at += take;
		if (ucx_link->at == ucx_link->length) {
			ucx.ucp_stream_data_release(ucx_link->ep, ucx_link->data);
			ucx_link->data = NULL;
		}
	}
	return 0;
}

static int ucx_is_idle(struct link *link)
{
	struct ucx_link *ucx_link = ucx_of(link);
	while (ucx.ucp_worker_progress(ucx_link->worker))
		continue;
	return !data_look(ucx_link) && ucx_link->ep && !ucx_link->failed && !atomic_load(&ucx_link->stopped[0]) &&
	       !atomic_load(&ucx_link->stopped[1]);
}

static int ucx_fd(const struct link *link)
{
	(void)link;
	return -1; /* no socket: the fabric has its own */
}

static void ucx_stop(struct link *link, enum link_stop how)
{
	struct ucx_link *ucx_link = ucx_of(link);
	if (how != LINK_STOP_WRITE)
		atomic_store(&ucx_link->stopped[0], 1);
	if (how != LINK_STOP_READ)
		atomic_store(&ucx_link->stopped[1], 1);
	(void)ucx.ucp_worker_signal(ucx_link->worker);
}

static void ucx_close(struct link *link)
{
	struct ucx_link *ucx_link = ucx_of(link);
	ep_end(ucx_link, 0);
	ucx.ucp_worker_destroy(ucx_link->worker);
	mem_free(ucx_link);
}

/* ---- connecting -------------------------------------------------------------------------------------------------- */

/* A worker of its own, and an endpoint as `params` say. 0 or -errno. */
static int link_make(ucp_ep_params_t *params, struct ucx_link **ret_link)
{
	struct ucx_link *link = mem_alloc(sizeof(*link));
	int error = link ? worker_make(&link->worker, &link->fd) : -ENOMEM;
	if (error) {
		mem_free(link);
		return error;
	}
	link->link.ops = &link_ucx;
	params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
	params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
	params->err_handler = (ucp_err_handler_t){peer_gone, link};
	if (ucx.ucp_ep_create(link->worker, params, &link->ep) != UCS_OK) {
		ucx.ucp_worker_destroy(link->worker);
		mem_free(link);
		return -ECONNREFUSED;
	}
	*ret_link = link;
	return 0;
}

static int address_of(const struct link_place *place, int listening, struct sockaddr_storage *ret_address,
                      socklen_t *ret_length)
{
	struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = listening ? AI_PASSIVE : 0}, *found;
	int code = getaddrinfo(place->host, place->port, &want, &found);
	if (code)
		return code == EAI_SYSTEM ? -errno : -EHOSTUNREACH;
	memcpy(ret_address, found->ai_addr, found->ai_addrlen);
	*ret_length = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

static int ucx_connect(const struct link_place *place, const struct link_trust *trust, int64_t deadline_ms,
                       struct link **ret_link, char why[LINK_WHY])
{
	struct sockaddr_storage address;
	struct ucx_link *link = NULL;
	socklen_t length = 0;
	(void)trust;
	int error = ucx_need(why);
	if (!error)
		error = address_of(place, 0, &address, &length);
	ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
	                          .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
	                          .sockaddr = {(struct sockaddr *)&address, length}};
	if (!error)
		error = link_make(&params, &link);
	if (error)
		return error;
	/* A flush ends when the two have found each other, or have not. */
	ucp_request_param_t param = {0};
	error = request_wait(link, ucx.ucp_ep_flush_nbx(link->ep, &param),
	                     deadline_ms < 0 ? link_now_ms() + LINK_DEAD_MS : deadline_ms);
	if (error) {
		ucx_close(&link->link);
		return error == -ECONNRESET ? -ECONNREFUSED : error;
	}
	*ret_link = &link->link;
	return 0;
}

/* ---- listening --------------------------------------------------------------------------------------------------- */

static void connected(ucp_conn_request_h request, void *arg)
{
	struct ucx_listener *listener = arg;
	if (listener->npending < PENDING)
		listener->pending[listener->npending++] = request;
	else
		(void)ucx.ucp_listener_reject(listener->ucp, request);
}

static void listener_progress(struct ucx_listener *listener)
{
	do
		while (ucx.ucp_worker_progress(listener->worker))
			continue;
	while (ucx.ucp_worker_arm(listener->worker) == UCS_ERR_BUSY);
}

static int ucx_listen(const struct link_place *place, const struct link_serving *serving,
                      struct link_listener **ret_listener, char why[LINK_WHY])
{
	struct sockaddr_storage address;
	socklen_t length = 0;
	(void)serving;
	struct ucx_listener *listener = mem_alloc(sizeof(*listener));
	int error = listener ? ucx_need(why) : -ENOMEM;
	if (!error)
		error = address_of(place, 1, &address, &length);
	if (!error)
		error = worker_make(&listener->worker, &listener->listener.fd);
	if (error) {
		mem_free(listener);
		return error;
	}
	ucp_listener_params_t params = {.field_mask =
	                                    UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
	                                .sockaddr = {(struct sockaddr *)&address, length},
	                                .conn_handler = {connected, listener}};
	ucs_status_t status = ucx.ucp_listener_create(listener->worker, &params, &listener->ucp);
	if (status != UCS_OK) {
		snprintf(why, LINK_WHY, "UCX can not listen there: %.120s", ucx.ucs_status_string(status));
		ucx.ucp_worker_destroy(listener->worker);
		mem_free(listener);
		return status == UCS_ERR_BUSY ? -EADDRINUSE : -EIO;
	}
	listener->listener.ops = &link_ucx;
	listener_progress(listener);
	*ret_listener = &listener->listener;
	return 0;
}

static int ucx_accept(struct link_listener *link_listener, struct link **ret_link)
{
	struct ucx_listener *listener = (struct ucx_listener *)link_listener;
	struct ucx_link *link = NULL;
	listener_progress(listener);
	if (!listener->npending)
		return -EAGAIN;
	ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
	                          .conn_request = listener->pending[0]};
	listener->npending--;
	memmove(listener->pending, listener->pending + 1, listener->npending * sizeof(listener->pending[0]));
	if (listener->npending) /* its descriptor says so */
		(void)ucx.ucp_worker_signal(listener->worker);
	int error = link_make(&params, &link);
	if (!error)
		*ret_link = &link->link;
	return error;
}

static void ucx_unlisten(struct link_listener *link_listener)
{
	struct ucx_listener *listener = (struct ucx_listener *)link_listener;
	while (listener->npending)
		(void)ucx.ucp_listener_reject(listener->ucp, listener->pending[--listener->npending]);
	ucx.ucp_listener_destroy(listener->ucp);
	ucx.ucp_worker_destroy(listener->worker);
	mem_free(listener);
}

const struct link_ops link_ucx = {
	.scheme = "ucx+plain://",
	.hosts = 1,
	.connect = ucx_connect,
	.listen = ucx_listen,
	.accept = ucx_accept,
	.send = ucx_send,
	.receive = ucx_receive,
	.wait = ucx_wait,
	.is_idle = ucx_is_idle,
	.fd = ucx_fd,
	.stop = ucx_stop,
	.close = ucx_close,
	.unlisten = ucx_unlisten,
};

#else /* built without its headers */

static int none_connect(const struct link_place *place, const struct link_trust *trust, int64_t deadline_ms,
                        struct link **ret_link, char why[LINK_WHY])
{
	(void)place, (void)trust, (void)deadline_ms, (void)ret_link;
	snprintf(why, LINK_WHY, "this cairn was built without UCX (libucx-dev)");
	return -ENOSYS;
}

static int none_listen(const struct link_place *place, const struct link_serving *serving,
                       struct link_listener **ret_listener, char why[LINK_WHY])
{
	(void)place, (void)serving, (void)ret_listener;
	snprintf(why, LINK_WHY, "this cairn was built without UCX (libucx-dev)");
	return -ENOSYS;
}

const struct link_ops link_ucx = {
	.scheme = "ucx+plain://", .hosts = 1, .connect = none_connect, .listen = none_listen};

#endif
