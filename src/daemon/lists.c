/* SPDX-License-Identifier: Apache-2.0 */
/* Lists: what a client may see of them, frame by frame; nothing is held that is long. See daemon.h. */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/metrics.h"
#include "daemon/serve.h"

#define LIST_FRAME_BYTES (256u << 10)

/* ---- sessions, spaces, parts, tenants --------------------------------------------------------------------------- */

struct list_work {
	struct conn *conn;
	const struct wire_head *head;
	int error;
	cairn_digest seen; /* the space that was looked at last, and whether this client sees it */
	int has_seen, sees;
};

static int list_sees(struct list_work *work, const cairn_digest *space_id)
{
	if (!work->has_seen || memcmp(&work->seen, space_id, sizeof(work->seen)) != 0) {
		work->seen = *space_id;
		work->has_seen = 1;
		work->sees = may_see(work->conn, space_id);
	}
	return work->sees;
}

/* Room for another entry: what is there already goes as a frame of its own where it would be too much. */
static int list_fit(struct list_work *work, size_t bytes)
{
	if (work->conn->reply.used + bytes <= LIST_FRAME_BYTES)
		return 0;
	if (conn_reply(work->conn, work->head, 0, 1) || conn_begin(work->conn, NULL, LIST_FRAME_BYTES + bytes))
		work->error = 1;
	return work->error;
}

static int list_session(void *arg, const struct cairn_session_info *info)
{
	struct list_work *work = arg;
	struct bytes_writer *w = &work->conn->reply;
	struct cairn_session_info plain = *info;
	plain.tenant = plain.owner = plain.name = NULL;
	if (list_fit(work, sizeof(plain) + 4 + 3 * (WIRE_TEXT_MAX + 2)))
		return 1;
	wire_add_struct(w, &plain, sizeof(plain));
	wire_add_text(w, info->tenant);
	wire_add_text(w, info->owner);
	wire_add_text(w, info->name);
	return 0;
}

static int list_space(void *arg, const struct cairn_space_info *info)
{
	struct list_work *work = arg;
	struct bytes_writer *w = &work->conn->reply;
	struct cairn_space_info plain = *info;
	size_t length = strlen(info->text);
	plain.text = NULL;
	if (!list_sees(work, &info->id))
		return 0;
	if (list_fit(work, sizeof(plain) + 8 + length))
		return 1;
	wire_add_struct(w, &plain, sizeof(plain));
	bytes_add32(w, (uint32_t)length);
	bytes_add(w, info->text, length);
	return 0;
}

static int list_part(void *arg, const struct cairn_part_info *info)
{
	struct list_work *work = arg;
	if (!list_sees(work, &info->space_id))
		return 0;
	if (list_fit(work, sizeof(*info) + 4))
		return 1;
	wire_add_struct(&work->conn->reply, info, sizeof(*info));
	return 0;
}

static int list_tenant(void *arg, const struct cairn_tenant_stat *stat)
{
	struct list_work *work = arg;
	struct cairn_tenant_stat plain = *stat;
	plain.tenant = NULL;
	if (!may_see_tenant(work->conn, stat->tenant))
		return 0;
	if (list_fit(work, sizeof(plain) + 4 + WIRE_TEXT_MAX + 2))
		return 1;
	wire_add_struct(&work->conn->reply, &plain, sizeof(plain));
	wire_add_text(&work->conn->reply, stat->tenant);
	return 0;
}

int serve_list(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	struct list_work work = {.conn = conn, .head = head};
	cairn *store = conn->daemon->store;
	const struct wire_list *list = &request->u.list;
	long n;
	if (conn_begin(conn, NULL, 2 * LIST_FRAME_BYTES))
		return -1;
	if (request->type == WIRE_SESSIONS)
		n = cairn_session_list(store, may_list(conn, list->tenant[0] ? list->tenant : NULL), list_session, &work);
	else if (request->type == WIRE_SPACES)
		n = cairn_list_spaces(store, list_space, &work);
	else if (request->type == WIRE_TENANTS)
		n = cairn_list_tenants(store, list_tenant, &work);
	else
		n = cairn_list_parts(store, list->has_space ? &list->space : NULL, list_part, &work);
	if (work.error)
		return -1;
	return n < 0 ? reply_plain(conn, head, n) : conn_reply(conn, head, 0, 0);
}

/* ---- clients ----------------------------------------------------------------------------------------------------- */

static uint32_t held_count(const struct held *held, uint32_t n)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < n; i++)
		count += held[i].what != NULL;
	return count;
}

static void client_info(struct client *client, struct cairn_client_info *ret)
{
	*ret = (struct cairn_client_info){
		.size = sizeof(*ret),
		.number = client->number,
		.since_s = client->since_s,
		.pid = client->pid,
		.uid = client->uid,
		.connections = client->conns,
		.requests = atomic_load(&client->requests),
		.failed = atomic_load(&client->failed),
		.read_bytes = atomic_load(&client->read_bytes),
		.written_bytes = atomic_load(&client->written_bytes),
		.in_flight_bytes = client->under_way,
		.in_flight_refused = client->refused,
	};
	pthread_mutex_lock(&client->lock);
	ret->leases = held_count(client->leases, client->nleases);
	ret->matches = held_count(client->matches, client->nmatches);
	ret->spaces = client->nspaces;
	pthread_mutex_unlock(&client->lock);
}

/* At most as many as there are connections: one frame has room for all. */
int serve_clients(struct conn *conn, const struct wire_head *head)
{
	enum {
		CLIENT_BYTES = sizeof(struct cairn_client_info) + 4 + 2 * 66
	};
	struct daemon *daemon = conn->daemon;
	if (conn_begin(conn, NULL, (size_t)DAEMON_CONNS * CLIENT_BYTES))
		return -1;
	pthread_mutex_lock(&daemon->lock);
	for (struct list *node = daemon->clients.next; node != &daemon->clients; node = node->next) {
		struct client *client = LIST_OF(node, struct client, link);
		struct cairn_client_info info;
		if (!conn->client->who.all && client != conn->client)
			continue; /* a tenant's client sees itself */
		client_info(client, &info);
		wire_add_struct(&conn->reply, &info, sizeof(info));
		wire_add_text(&conn->reply, client->program);
		wire_add_text(&conn->reply, client->address);
	}
	pthread_mutex_unlock(&daemon->lock);
	return conn_reply(conn, head, 0, 0);
}

/* ---- what is there ----------------------------------------------------------------------------------------------- */

struct snapshot_work {
	struct list_work list;
	uint64_t sequence, life;
	int told;
};

/* Before the first entry: what moment it is. */
static void snapshot_tell(struct snapshot_work *work)
{
	if (work->told)
		return;
	bytes_add64(&work->list.conn->reply, work->sequence);
	bytes_add64(&work->list.conn->reply, work->life);
	work->told = 1;
}

static int snapshot_add(void *arg, const struct cairn_present *present)
{
	struct snapshot_work *work = arg;
	snapshot_tell(work);
	if (!list_sees(&work->list, &present->space_id))
		return 0;
	if (list_fit(&work->list, sizeof(*present) + 4))
		return 1;
	wire_add_struct(&work->list.conn->reply, present, sizeof(*present));
	return 0;
}

int serve_snapshot(struct conn *conn, const struct wire_head *head)
{
	struct snapshot_work work = {.list = {.conn = conn, .head = head}};
	if (conn_begin(conn, NULL, LIST_FRAME_BYTES))
		return -1;
	long n = cairn_snapshot(conn->daemon->store, &work.sequence, &work.life, snapshot_add, &work);
	if (work.list.error)
		return -1;
	if (n < 0)
		return reply_plain(conn, head, n);
	snapshot_tell(&work);
	return conn_reply(conn, head, 0, 0);
}
