/* SPDX-License-Identifier: Apache-2.0 */
/* The admin endpoint. See admin.h. */
#include "daemon/admin.h"

#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/metrics.h"
#include "daemon/text.h"
#include "store/store.h"

enum {
	ADMIN_CONNS = 32,
	ADMIN_THREADS = 2,
	ADMIN_TIMEOUT_S = 10,
	ADMIN_MEMORY = 16384, /* of a connection: its request */
	ADMIN_PROBE_MS = 1000,
	ADMIN_SLOW_NS = 2000000000, /* flash that has not answered for so long is broken, not busy */
};

struct admin {
	struct daemon *daemon;
	struct MHD_Daemon *http;
	pthread_mutex_t lock;   /* one probe at a time */
	uint64_t flash_good_ns; /* when flash answered last; under the lock */
};

/* ---- health ------------------------------------------------------------------------------------------------------ */

/* What there is much to do for is not broken. */
static const char *state_of(int status)
{
	return !status                                                                       ? "ok"
	       : status == CAIRN_E_BUSY || status == CAIRN_E_FULL || status == CAIRN_E_QUOTA ? "busy"
	                                                                                     : "broken";
}

static void health_device(struct text *text, const struct cairn_device_stat *device)
{
	static const char *const names[] = {"healthy", "writes refused", "gone"};
	text_add(text, "{\"path\":");
	text_quoted(text, device->path);
	text_add(text,
	         ",\"state\":\"%s\",\"failed_flushes\":%" PRIu64 ",\"budget_bytes\":%" PRIu64 ",\"used_bytes\":%" PRIu64
	         "}",
	         device->state < 3 ? names[device->state] : "unknown", device->failed_flushes, device->budget_bytes,
	         device->used_bytes);
}

/* Flash answers a flush, or did so lately: a device under load may take longer than we wait. */
static const char *health_flash(struct admin *admin, uint64_t *ret_ago_ms)
{
	cairn *store = admin->daemon->store;
	int status = store_probe_flash(store, ADMIN_PROBE_MS);
	uint64_t now_ns = clock_mono_ns(store->clock);
	if (!status)
		admin->flash_good_ns = now_ns;
	*ret_ago_ms = (now_ns - admin->flash_good_ns) / 1000000;
	if (status == CAIRN_E_LATE)
		return now_ns - admin->flash_good_ns < ADMIN_SLOW_NS ? "slow" : "broken";
	return state_of(status);
}

/* The HTTP status. */
static unsigned int health_write(struct admin *admin, struct text *text)
{
	cairn *store = admin->daemon->store;
	struct cairn_stat *stat = mem_alloc(sizeof(*stat));
	uint64_t ago_ms;
	if (!stat)
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	stat->size = sizeof(*stat);
	pthread_mutex_lock(&admin->lock);
	uint64_t begun_ns = clock_mono_ns(store->clock);
	const char *memory = state_of(store_probe(store, ADMIN_PROBE_MS));
	uint64_t took_ns = clock_mono_ns(store->clock) - begun_ns;
	const char *flash = health_flash(admin, &ago_ms);
	pthread_mutex_unlock(&admin->lock);
	(void)cairn_stat(store, stat);
	uint32_t hurt = 0;
	for (uint32_t i = 0; i < stat->ndevices; i++)
		hurt += stat->device[i].state != 0;
	if (stat->ndevices && hurt == stat->ndevices)
		flash = "broken";
	int broken = !strcmp(memory, "broken") || (stat->ndevices && !strcmp(flash, "broken"));
	text_add(text,
	         "{\"status\":\"%s\",\"version\":\"%s\",\"tiers\":{\"memory\":{\"state\":\"%s\",\"probe_s\":%.6f,"
	         "\"used_bytes\":%" PRIu64 ",\"capacity_bytes\":%" PRIu64 "}",
	         broken ? "broken"
	         : hurt ? "degraded"
	                : "ok",
	         CAIRN_VERSION, memory, (double)took_ns / 1e9, stat->tier[CAIRN_TIER_MEMORY].used_bytes,
	         stat->tier[CAIRN_TIER_MEMORY].capacity_bytes);
	if (stat->ndevices) {
		text_add(text, ",\"flash\":{\"state\":\"%s\",\"answered_ago_s\":%.3f,\"errors\":%" PRIu64 ",\"devices\":[",
		         flash, (double)ago_ms / 1e3, stat->tier[CAIRN_TIER_FLASH].errors);
		for (uint32_t i = 0; i < stat->ndevices; i++) {
			text_add(text, "%s", i ? "," : "");
			health_device(text, &stat->device[i]);
		}
		text_add(text, "]}");
	}
	text_add(text, "},\"alarms\":[");
	int some = 0;
	for (uint32_t bit = CAIRN_ALARM_WRITE_ONLY; bit <= CAIRN_ALARM_NO_DEMOTION; bit <<= 1)
		if (stat->alarms & bit)
			text_add(text, "%s\"%s\"", some++ ? "," : "", cairn_alarm_name(bit));
	text_add(text, "]}\n");
	mem_free(stat);
	return broken ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned int status, const char *type,
                              struct text *text)
{
	if (text->failed) {
		text_done(text);
		text_add(text, "no memory for the answer\n");
		status = MHD_HTTP_SERVICE_UNAVAILABLE;
		type = "text/plain; charset=utf-8";
	}
	/* Copied: what frees the text must be what allocated it. */
	struct MHD_Response *response = MHD_create_response_from_buffer(text->used, text->at, MHD_RESPMEM_MUST_COPY);
	text_done(text);
	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, "Content-Type", type);
	MHD_add_response_header(response, "Cache-Control", "no-store");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, "Allow", "GET, HEAD");
	enum MHD_Result queued = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return queued;
}

static enum MHD_Result serve_http(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_bytes, void **state)
{
	static int seen;
	struct admin *admin = arg;
	struct text text = {0};
	const char *type = "application/json";
	unsigned int status = MHD_HTTP_OK;
	(void)version;
	(void)upload;
	int reading = !strcmp(method, "GET") || !strcmp(method, "HEAD");
	/* The first call has the headers alone: what is refused is refused before a body comes. */
	if (!*state && reading) {
		*state = &seen;
		return MHD_YES;
	}
	if (*upload_bytes)
		return MHD_NO; /* a body with a GET */
	if (!reading) {
		status = MHD_HTTP_METHOD_NOT_ALLOWED;
		type = "text/plain; charset=utf-8";
		text_add(&text, "this can be read, not changed: GET\n");
	} else if (!strcmp(url, "/metrics")) {
		type = "text/plain; version=0.0.4; charset=utf-8";
		metrics_write(admin->daemon, &text);
	} else if (!strcmp(url, "/healthz")) {
		status = health_write(admin, &text);
	} else if (!strcmp(url, "/readyz")) {
		int ready = atomic_load(&admin->daemon->ready);
		status = ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
		text_add(&text, "{\"ready\":%s}\n", ready ? "true" : "false");
	} else {
		status = MHD_HTTP_NOT_FOUND;
		type = "text/plain; charset=utf-8";
		text_add(&text, "there are /metrics, /healthz and /readyz\n");
	}
	return answer(connection, status, type, &text);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Our own socket: libmicrohttpd's would share the port with another process. */
static int socket_open(const char *place, int *ret_fd)
{
	char host[256];
	const char *colon = strrchr(place, ':');
	size_t length = colon ? (size_t)(colon - place) : 0;
	int bracket = colon && place[0] == '[' && colon[-1] == ']', on = 1, error = -EADDRNOTAVAIL;
	struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
	if (!length || length >= sizeof(host))
		return -EINVAL;
	memcpy(host, place + bracket, length - 2 * (size_t)bracket);
	host[length - 2 * (size_t)bracket] = 0;
	if (getaddrinfo(host, colon + 1, &want, &found))
		return -EADDRNOTAVAIL;
	for (const struct addrinfo *at = found; at && error; at = at->ai_next) {
		int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
		error = fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
		                bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, ADMIN_CONNS)
		            ? -errno
		            : 0;
		if (!error)
			*ret_fd = fd;
		else if (fd >= 0)
			close(fd);
	}
	freeaddrinfo(found);
	return error;
}

int admin_open(struct daemon *daemon, const char *place, struct admin **ret_admin)
{
	int fd = -1;
	struct admin *admin = mem_alloc(sizeof(*admin));
	if (!admin)
		return -ENOMEM;
	int error = socket_open(place, &fd);
	if (error) {
		mem_free(admin);
		return error;
	}
	admin->daemon = daemon;
	admin->flash_good_ns = clock_mono_ns(daemon->store->clock);
	pthread_mutex_init(&admin->lock, NULL);
	admin->http = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0, NULL, NULL, serve_http, admin,
	                               MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned int)ADMIN_CONNS,
	                               MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)ADMIN_TIMEOUT_S,
	                               MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)ADMIN_MEMORY,
	                               MHD_OPTION_THREAD_POOL_SIZE, (unsigned int)ADMIN_THREADS, MHD_OPTION_END);
	if (!admin->http) {
		close(fd);
		pthread_mutex_destroy(&admin->lock);
		mem_free(admin);
		return -ENOMEM;
	}
	*ret_admin = admin;
	return 0;
}

void admin_close(struct admin *admin)
{
	if (!admin)
		return;
	MHD_stop_daemon(admin->http);
	pthread_mutex_destroy(&admin->lock);
	mem_free(admin);
}

unsigned int admin_port(const struct admin *admin)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(admin->http, MHD_DAEMON_INFO_LISTEN_FD);
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	if (!info || getsockname(info->listen_fd, (struct sockaddr *)&address, &length))
		return 0;
	return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
	                                           : ((struct sockaddr_in *)&address)->sin_port);
}
