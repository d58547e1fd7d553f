/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: each becomes a call of the public API, made by the connection's own thread. See daemon.h. */
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "daemon/arrive.h"
#include "daemon/daemon.h"
#include "daemon/serve.h"
#include "fmt/key.h"
#include "store/session.h"
#include "store/store.h"

/* A reply that is a result and, for a failure, its text. */
int reply_plain(struct conn *conn, const struct wire_head *head, int64_t result)
{
	int failed = result < 0 || result == CAIRN_DAMAGED;
	return conn_begin(conn, failed ? cairn_error_text() : NULL, 0) || conn_reply(conn, head, result, 0) ? -1 : 0;
}

static int reply_error(struct conn *conn, const struct wire_head *head, int error, const char *text)
{
	return conn_begin(conn, text, 0) || conn_reply(conn, head, error, 0) ? -1 : 0;
}

cairn_space *space_of(struct conn *conn, uint32_t number)
{
	cairn_space *space = client_space(conn->client, number);
	if (!space)
		err_set(CAIRN_E_INVAL, "the space's number %u is not one of this client", number);
	return space;
}

/* ---- beginnings -------------------------------------------------------------------------------------------------- */

static int serve_hello(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	struct who who;
	if (conn->refused) {
		(void)reply_error(conn, head, CAIRN_E_BUSY, "too many connections to this cairnd: try again later");
		return -1;
	}
	const char *refused = may_enter(conn, &request->u.hello, &who);
	if (refused) {
		(void)reply_error(conn, head, CAIRN_E_ACCESS, refused);
		return -1;
	}
	uint32_t conns = 0;
	struct client *client = client_find(conn->daemon, request->u.hello.client, &who, &conns);
	if (!client)
		return reply_error(conn, head, CAIRN_E_NOMEM, "no memory for another client");
	if (conns > DAEMON_CLIENT_CONNS) {
		client_leave(conn->daemon, client);
		return reply_error(conn, head, CAIRN_E_BUSY,
		                   "this client has as many connections as one may: make fewer calls at a time");
	}
	pthread_mutex_lock(&conn->daemon->lock);
	conn->client = client;
	pthread_mutex_unlock(&conn->daemon->lock);
	client_name(conn->daemon, client, request->u.hello.program, conn->net);
	/* Revoked just now: those that are looked through then (daemon_check_tokens) may not have had us among them. */
	if (who.has_token && !tokens_hold(conn->daemon->tokens, &who))
		return -1;
	if (conn_begin(conn, NULL, 16 + 4 + WIRE_TEXT_MAX))
		return -1;
	bytes_add(&conn->reply, client->id, 16);
	bytes_add32(&conn->reply, who.all);
	wire_add_text(&conn->reply, who.tenant);
	return conn_reply(conn, head, 0, 0);
}

static int serve_describe(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	struct key_space *decoded = mem_alloc(sizeof(*decoded));
	cairn_space *space;
	int64_t result = decoded ? key_space_decode(request->u.describe.canon, request->u.describe.length, decoded)
	                         : err_set(CAIRN_E_NOMEM, "no memory for a space");
	if (!result) {
		decoded->desc.size = sizeof(decoded->desc);
		decoded->desc.cost_a_s = request->u.describe.cost_a_s;
		decoded->desc.cost_b_s = request->u.describe.cost_b_s;
		may_describe(conn, &decoded->desc);
		result = cairn_describe(conn->daemon->store, &decoded->desc, &space);
		key_space_done(decoded);
	}
	if (!result) {
		result = client_space_number(conn->client, space);
		if (!result)
			result = err_set(CAIRN_E_BUSY, "a client may use at most %d spaces", DAEMON_SPACES);
	}
	mem_free(decoded);
	return reply_plain(conn, head, result);
}

/* Staging memory is mapped only if it can not shrink: reading past its end would end the daemon. */
static int serve_stage(struct conn *conn, const struct wire_head *head, const struct wire_request *request, int fd)
{
	uint64_t bytes = request->u.stage_bytes;
	struct stat stat;
	struct statfs system;
	int seals = fcntl(fd, F_GET_SEALS);
	/* Of huge pages a hole may find none when it is read: that ends the reader, too. */
	if (fstatfs(fd, &system) || system.f_type != TMPFS_MAGIC)
		return reply_error(conn, head, CAIRN_E_INVAL, "staging memory is a plain memfd");
	if (!bytes || bytes > DAEMON_STAGE_MAX || seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &stat) ||
	    (uint64_t)stat.st_size < bytes)
		return reply_error(conn, head, CAIRN_E_INVAL, "staging memory is a memfd that can not shrink, at most 256 MiB");
	/* A hole that we were the first to touch would be memory of ours, by the count of control groups. */
	if ((uint64_t)stat.st_blocks * 512 < bytes)
		return reply_error(conn, head, CAIRN_E_INVAL, "staging memory has its pages: fallocate it");
	uint8_t *stage = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (stage == MAP_FAILED)
		return reply_error(conn, head, CAIRN_E_NOMEM, "staging memory can not be mapped");
	if (conn->stage)
		munmap(conn->stage, conn->stage_bytes);
	conn->stage = stage;
	conn->stage_bytes = bytes;
	return reply_plain(conn, head, 0);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* Not zeroed: whoever uses it writes it first. NULL: no memory. */
struct batch_work *batch_work(struct conn *conn)
{
	if (!conn->batch)
		conn->batch = mem_alloc(sizeof(*conn->batch));
	return conn->batch;
}

/* The items of a batch, over the connection's staging memory. 0 or INVAL. */
int batch_items(struct conn *conn, const struct wire_batch *batch, int stage, struct batch_work *work)
{
	for (uint32_t i = 0; i < batch->nitems; i++) {
		const struct wire_item *item = &batch->items[i];
		if (stage && (item->offset > conn->stage_bytes || item->length > conn->stage_bytes - item->offset))
			return err_set(CAIRN_E_INVAL, "item %u lies outside of the connection's staging memory", i);
		work->bufs[i] = cairn_buf_of(stage && item->length ? conn->stage + item->offset : NULL, item->length);
		work->items[i] = (struct cairn_item){.key = item->key,
		                                     .parent = item->has_parent ? &item->parent : NULL,
		                                     .bufs = &work->bufs[i],
		                                     .nbufs = stage && item->length ? 1 : 0,
		                                     .group = item->group,
		                                     .part = item->part,
		                                     .flags = item->flags,
		                                     .engine_hash_bytes = item->hash_bytes,
		                                     .engine_hash = item->hash};
	}
	return 0;
}

void result_of(const struct cairn_item *item, struct wire_result *to)
{
	*to = (struct wire_result){
		.status = item->status, .tier = item->ret_tier, .bytes = item->ret_bytes, .check = item->ret_check};
}

/* The number by which clients know the memory behind a lease: it is theirs for as long as they map it. */
static uint64_t extent_of(int fd, uint64_t *ret_length)
{
	struct stat stat;
	*ret_length = 0;
	if (fstat(fd, &stat))
		return 0;
	*ret_length = (uint64_t)stat.st_size;
	return stat.st_ino;
}

/* Whether this connection has the extent; else its descriptor goes with the reply. -1: no room for it in this one. */
static int extent_send(struct conn *conn, uint64_t extent, uint64_t length, int fd, struct bytes_writer *extents)
{
	for (uint32_t i = 0; i < conn->nsent; i++)
		if (conn->sent[i] == extent)
			return 0;
	if (conn->nfds == WIRE_FDS_MAX)
		return -1;
	if (conn->nsent == conn->sent_room) {
		uint32_t room = conn->sent_room ? 2 * conn->sent_room : 64;
		uint64_t *grown = mem_grow(conn->sent, room * sizeof(*grown));
		if (!grown)
			return -1;
		conn->sent = grown;
		conn->sent_room = room;
	}
	conn->sent[conn->nsent++] = extent;
	conn->fds[conn->nfds++] = fd;
	bytes_add64(extents, extent);
	bytes_add64(extents, length);
	return 0;
}

/* Tells a connection which extents there are, when that has changed: what is not among them it may unmap. */
static void extents_tell(struct conn *conn, struct bytes_writer *w)
{
	enum { EXTENTS_MAX = 1024 };
	uint64_t live[EXTENTS_MAX], length;
	uint32_t n = 0;
	cairn *store = conn->daemon->store;
	pthread_mutex_lock(&store->lock);
	uint64_t generation = memory_generation(store->memory) + 1;
	for (int fd; generation != conn->extents_told && n < EXTENTS_MAX; n++) {
		if ((fd = memory_extent_fd(store->memory, n)) < 0)
			break;
		live[n] = extent_of(fd, &length);
	}
	pthread_mutex_unlock(&store->lock);
	bytes_add64(w, generation);
	bytes_add32(w, n);
	bytes_add(w, live, (size_t)n * 8);
	if (!n)
		return;
	conn->extents_told = generation;
	uint32_t kept = 0; /* numbers of files are used again: one that went may come anew, with a descriptor */
	for (uint32_t i = 0; i < conn->nsent; i++)
		for (uint32_t k = 0; k < n; k++)
			if (live[k] == conn->sent[i]) {
				conn->sent[kept++] = conn->sent[i];
				break;
			}
	conn->nsent = kept;
}

/* A request's call: one deadline for all of its items. What a peer asks for is looked for here alone, or two that ask
 * each other would never end. */
struct store_call call_of(const struct conn *conn, const struct wire_head *head, const struct wire_batch *batch)
{
	return (struct store_call){.deadline_ns = store_deadline(conn->daemon->store, head->timeout_ms),
	                           .background = batch->background,
	                           .here = (head->flags & WIRE_HERE) != 0};
}

static void lease_one(struct conn *conn, const cairn_space *space, struct cairn_item *item, uint64_t room,
                      const struct store_call *call, struct wire_result *result, struct bytes_writer *extents)
{
	cairn_lease *lease;
	struct cairn_lease_info info;
	uint64_t length;
	int status = store_lease_take(conn->daemon->store, space, item, call, room ? room : UINT64_MAX, &lease);
	item->status = status;
	result_of(item, result);
	if (status)
		return;
	cairn_lease_get_info(lease, &info);
	result->extent = extent_of(info.fd, &length);
	result->offset = info.fd_offset;
	if (!extent_send(conn, result->extent, length, info.fd, extents))
		result->lease = client_hold_lease(conn->client, lease);
	if (!result->lease) {
		cairn_lease_release(conn->daemon->store, lease);
		result->status = err_set(CAIRN_E_BUSY, "lease: too many leases of this client, or too many extents at once");
	}
}

void count_moved(struct conn *conn, const struct wire_batch *batch, uint32_t type, const struct batch_work *work)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < batch->nitems; i++)
		if (!work->results[i].status)
			bytes += type == WIRE_PUT ? batch->items[i].length : work->results[i].bytes;
	atomic_fetch_add_explicit(type == WIRE_PUT ? &conn->client->written_bytes : &conn->client->read_bytes, bytes,
	                          memory_order_relaxed);
}

/* A put of another server: its parts are received as the store wants them. */
static int serve_arrival(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	const struct wire_batch *batch = &request->u.batch;
	struct batch_work *work = batch_work(conn);
	struct cairn_call call = {.size = sizeof(call),
	                          .timeout_ms = head->timeout_ms,
	                          .durability = batch->durability,
	                          .background = batch->background};
	struct arrival arrival;
	if (!work || arrival_begin(conn, &arrival, batch, work->items, head->bulk_bytes))
		return -1; /* what is behind the frame can not be told from the next one */
	cairn_space *space = space_of(conn, batch->space);
	int64_t result = space ? batch_items(conn, batch, 1, work) : CAIRN_E_INVAL;
	int none = result != 0;
	if (!none)
		result = store_put_from(conn->daemon->store, space, work->items, batch->nitems, &call, &arrival.source);
	int failed = result < 0, error = arrival_end(&arrival);
	if (!error && none) {
		error = reply_plain(conn, head, result);
	} else if (!error) {
		for (uint32_t i = 0; i < batch->nitems; i++) {
			result_of(&work->items[i], &work->results[i]);
			failed |= work->results[i].status < 0;
		}
		error = conn_begin(conn, failed ? cairn_error_text() : NULL,
		                   (size_t)batch->nitems * sizeof(struct wire_result));
		for (uint32_t i = 0; i < batch->nitems && !error; i++)
			wire_add_result(&conn->reply, &work->results[i]);
		error = error ? error : conn_reply(conn, head, result, 0);
		count_moved(conn, batch, WIRE_PUT, work);
	}
	return error;
}

static int serve_batch(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	const struct wire_batch *batch = &request->u.batch;
	struct batch_work *work = batch_work(conn);
	uint8_t extents_room[WIRE_FDS_MAX * 16];
	struct bytes_writer extents = bytes_writer_of(extents_room, sizeof(extents_room));
	cairn_space *space = space_of(conn, batch->space);
	struct store_call here = call_of(conn, head, batch);
	struct cairn_call call = {.size = sizeof(call),
	                          .timeout_ms = head->timeout_ms,
	                          .durability = batch->durability,
	                          .background = batch->background};
	int64_t result = !work ? err_set(CAIRN_E_NOMEM, "no memory for a batch") : !space ? CAIRN_E_INVAL : 0;
	if (!result && conn->tcp)
		result = err_set(CAIRN_E_INVAL, "no memory is shared with another server");
	if (!result)
		result = batch_items(conn, batch, request->type != WIRE_LEASE, work);
	if (result)
		return reply_plain(conn, head, result);
	cairn *store = conn->daemon->store;
	if (request->type == WIRE_PUT)
		result = cairn_put(store, space, work->items, batch->nitems, &call);
	else if (request->type == WIRE_GET)
		result = store_get(store, space, work->items, batch->nitems, &here);
	int failed = result < 0;
	if (request->type == WIRE_LEASE)
		store_begin(store, space, work->items, batch->nitems, &here);
	for (uint32_t i = 0; i < batch->nitems; i++) {
		if (request->type == WIRE_LEASE)
			lease_one(conn, space, &work->items[i], batch->items[i].length, &here, &work->results[i], &extents);
		else
			result_of(&work->items[i], &work->results[i]);
		failed |= work->results[i].status < 0;
	}
	int error = conn_begin(conn, failed ? cairn_error_text() : NULL,
	                       sizeof(extents_room) + 16384 + (size_t)batch->nitems * sizeof(struct wire_result));
	if (!error) {
		bytes_add(&conn->reply, extents_room, extents.used);
		if (request->type == WIRE_LEASE)
			extents_tell(conn, &conn->reply);
		for (uint32_t i = 0; i < batch->nitems; i++)
			wire_add_result(&conn->reply, &work->results[i]);
		error = conn_reply(conn, head, result, 0);
	}
	count_moved(conn, batch, request->type, work);
	return error;
}

/* One way: nobody waits for an answer, and a number that is not there any more is no fault. */
static int serve_release(struct conn *conn, const struct wire_request *request)
{
	for (uint32_t i = 0; i < request->u.release.n; i++) {
		uint64_t number = bytes_get64(request->u.release.numbers + (size_t)i * 8);
		if (request->type == WIRE_RELEASE)
			cairn_lease_release(conn->daemon->store, client_take_lease(conn->client, number));
		else
			cairn_match_release(conn->daemon->store, client_take_match(conn->client, number));
	}
	return 0;
}

/* The reply to a match or a join, which the client holds from here on. */
static int reply_match(struct conn *conn, const struct wire_head *head, cairn_match *match)
{
	struct cairn_match_info info;
	struct cairn_ticket ticket;
	cairn_match_get_info(match, &info);
	cairn_match_ticket(match, &ticket);
	uint64_t number = client_hold_match(conn->client, match);
	if (!number) {
		cairn_match_release(conn->daemon->store, match);
		return reply_plain(conn, head,
		                   err_set(CAIRN_E_BUSY, "a client may have at most %d matches open", DAEMON_MATCHES));
	}
	if (conn_begin(conn, NULL, 64 + sizeof(ticket) + sizeof(info)))
		return -1;
	bytes_add64(&conn->reply, number);
	bytes_add(&conn->reply, ticket.bytes, sizeof(ticket.bytes));
	wire_add_struct(&conn->reply, &info, sizeof(info));
	return conn_reply(conn, head, 0, 0);
}

static int serve_match(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	const struct wire_match *ask = &request->u.match;
	struct cairn_chain chains[WIRE_CHAINS_MAX];
	cairn_match *match;
	cairn_space *space = space_of(conn, ask->space);
	for (uint32_t i = 0; i < ask->nchains; i++)
		chains[i] = (struct cairn_chain){ask->chains[i].group, ask->chains[i].keys, ask->chains[i].nkeys};
	int error = space ? cairn_match_take(conn->daemon->store, space, chains, ask->nchains, ask->parts, head->timeout_ms,
	                                     &match)
	                  : CAIRN_E_INVAL;
	return error ? reply_plain(conn, head, error) : reply_match(conn, head, match);
}

static int serve_join(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	const struct wire_join *ask = &request->u.join;
	cairn_match *match;
	cairn_space *space = space_of(conn, ask->space);
	int error = space ? cairn_match_join(conn->daemon->store, space, &ask->ticket, &match) : CAIRN_E_INVAL;
	return error ? reply_plain(conn, head, error) : reply_match(conn, head, match);
}

/* Lent while it waits: another connection of this client can not release it meanwhile. */
static int serve_agree(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	const struct wire_agree *ask = &request->u.agree;
	cairn *store = conn->daemon->store;
	cairn_match *match = client_lend_match(conn->client, ask->match);
	if (!match)
		return reply_plain(conn, head, err_set(CAIRN_E_INVAL, "match: its number is not one of this client"));
	long result = cairn_match_agree(store, match, ask->ranks, ask->tokens, head->timeout_ms);
	if (client_return_match(conn->client, ask->match))
		cairn_match_release(store, match);
	return reply_plain(conn, head, result);
}

static int serve_hint(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	const struct wire_hint *hint = &request->u.hint;
	struct cairn_chain chain = {hint->chain.group, hint->chain.keys, hint->chain.nkeys};
	cairn_space *space = space_of(conn, hint->space);
	if (space && !may_hint(conn, space, hint->hint))
		return reply_plain(conn, head, 0);
	return reply_plain(conn, head, space ? cairn_hint(conn->daemon->store, space, &chain, (int)hint->hint)
	                                     : CAIRN_E_INVAL);
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

static int save_do(struct conn *conn, const struct wire_head *head, const struct wire_save *ask,
                   struct cairn_item *items, struct cairn_buf *bufs, struct wire_item *tails)
{
	struct cairn_chain chains[WIRE_CHAINS_MAX];
	struct bytes_reader reader = ask->tails;
	cairn_space *space = space_of(conn, ask->space);
	if (!space)
		return CAIRN_E_INVAL;
	for (uint32_t i = 0; i < ask->nchains; i++)
		chains[i] = (struct cairn_chain){ask->chains[i].group, ask->chains[i].keys, ask->chains[i].nkeys};
	for (uint32_t i = 0; i < ask->ntails; i++) {
		struct wire_item *tail = &tails[i];
		wire_take_item(&reader, tail);
		if (tail->offset > conn->stage_bytes || tail->length > conn->stage_bytes - tail->offset)
			return err_set(CAIRN_E_INVAL, "tail %u lies outside of the connection's memory", i);
		bufs[i] = cairn_buf_of(tail->length ? conn->stage + tail->offset : NULL, tail->length);
		items[i] = (struct cairn_item){.key = tail->key,
		                               .parent = tail->has_parent ? &tail->parent : NULL,
		                               .bufs = &bufs[i],
		                               .nbufs = 1,
		                               .group = tail->group,
		                               .part = tail->part,
		                               .flags = tail->flags};
	}
	int changed = conn->tcp && ask->ntails ? arrive_tails_check(conn, tails, ask->ntails, head->bulk_bytes) : 0;
	if (changed)
		return changed;
	struct cairn_save save = {.size = sizeof(save),
	                          .chains = chains,
	                          .nchains = ask->nchains,
	                          .tails = items,
	                          .ntails = ask->ntails,
	                          .state = ask->state,
	                          .state_bytes = ask->state_bytes,
	                          .tokens = ask->tokens,
	                          .ttl_s = ask->ttl_s,
	                          .pin = ask->pin,
	                          .durability = ask->durability,
	                          .timeout_ms = head->timeout_ms};
	wire_name_view(&ask->name, &save.name);
	may_name(conn, &save.name);
	return cairn_session_save(conn->daemon->store, space, &save);
}

static int serve_save(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	const struct wire_save *ask = &request->u.save;
	struct cairn_item *items = mem_array(ask->ntails + 1, sizeof(*items));
	struct cairn_buf *bufs = mem_array(ask->ntails + 1, sizeof(*bufs));
	struct wire_item *tails = mem_array(ask->ntails + 1, sizeof(*tails));
	int result = items && bufs && tails ? save_do(conn, head, ask, items, bufs, tails)
	                                    : err_set(CAIRN_E_NOMEM, "no memory to save a session");
	mem_free(tails);
	mem_free(bufs);
	mem_free(items);
	return reply_plain(conn, head, result);
}

static int serve_resume(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	struct cairn_session_name name;
	struct cairn_session_info info;
	cairn_session *session = NULL;
	uint8_t *bytes = NULL;
	size_t length = 0;
	wire_name_view(&request->u.name, &name);
	may_name(conn, &name);
	int result = session_name_check(&name);
	if (!result)
		result = session_resume(conn->daemon->store, &name, (head->flags & WIRE_HERE) != 0, &session);
	if (!result)
		result = session_to_manifest(session, &bytes, &length);
	if (!result && length > WIRE_BODY_MAX - 2 * WIRE_TEXT_MAX)
		result = err_set(CAIRN_E_SIZE, "the session's manifest has %zu bytes: too long for the wire", length);
	int error;
	if (result) {
		error = reply_plain(conn, head, result);
	} else {
		cairn_session_get_info(session, &info);
		error = conn_begin(conn, NULL, length + 16);
		if (!error) {
			bytes_add32(&conn->reply, info.pinned);
			bytes_add64(&conn->reply, info.expires_at_s);
			bytes_add32(&conn->reply, (uint32_t)length);
			bytes_add(&conn->reply, bytes, length);
			error = conn_reply(conn, head, 0, 0);
		}
	}
	mem_free(bytes);
	cairn_session_free(session);
	return error;
}

static int serve_name(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	struct cairn_session_name name;
	if (request->type == WIRE_PIN) {
		wire_name_view(&request->u.pin.name, &name);
		may_name(conn, &name);
		return reply_plain(conn, head, cairn_session_pin(conn->daemon->store, &name, request->u.pin.pin,
		                                                 request->u.pin.ttl_s));
	}
	wire_name_view(&request->u.name, &name);
	may_name(conn, &name);
	return reply_plain(conn, head, request->type == WIRE_FORGET ? cairn_session_forget(conn->daemon->store, &name)
	                                                            : cairn_session_close(conn->daemon->store, &name));
}

/* ---- single answers ---------------------------------------------------------------------------------------------- */

static int serve_explain(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	const struct wire_explain *ask = &request->u.explain;
	struct cairn_explanation explanation = {.size = sizeof(explanation)};
	static const cairn_digest none;
	const cairn_digest *id = may_see(conn, &ask->space) ? &ask->space : &none;
	int result = cairn_explain(conn->daemon->store, id, &ask->key, ask->part, &explanation);
	if (result)
		return reply_plain(conn, head, result);
	if (conn_begin(conn, NULL, sizeof(explanation) + 4))
		return -1;
	wire_add_struct(&conn->reply, &explanation, sizeof(explanation));
	return conn_reply(conn, head, 0, 0);
}

static int drop_public(void)
{
	return err_set(CAIRN_E_ACCESS, "what is public is dropped with an admin's token alone");
}

static int serve_drop(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	const struct wire_drop *ask = &request->u.drop;
	cairn *store = conn->daemon->store;
	long result;
	if (ask->scope == WIRE_DROP_SPACE) {
		/* One that it does not see is one that there is not: nothing is dropped. */
		result = may_drop(conn, &ask->id)   ? cairn_drop_space(store, &ask->id)
		         : may_see(conn, &ask->id) ? drop_public()
		                                       : 0;
	} else if (ask->scope == WIRE_DROP_TENANT) {
		result = cairn_drop_tenant(store, may_list(conn, ask->tenant[0] ? ask->tenant : NULL));
	} else {
		cairn_digest id;
		cairn_space *space = space_of(conn, ask->space);
		if (space)
			cairn_space_get_id(space, &id);
		result = !space                     ? CAIRN_E_INVAL
		         : !may_drop(conn, &id) ? drop_public()
		                                   : cairn_drop(store, space, ask->keys.keys, ask->keys.nkeys);
	}
	return reply_plain(conn, head, result);
}

static int serve_stat(struct conn *conn, const struct wire_head *head)
{
	struct cairn_stat *stat = mem_alloc(sizeof(*stat));
	if (!stat)
		return reply_error(conn, head, CAIRN_E_NOMEM, "no memory for statistics");
	stat->size = sizeof(*stat);
	int result = cairn_stat(conn->daemon->store, stat);
	may_stat(conn, stat);
	struct traffic_stat traffic;
	traffic_stat(conn->daemon, &traffic);
	stat->in_flight_bytes = traffic.used;
	stat->in_flight_limit_bytes = traffic.max;
	stat->in_flight_refused = traffic.refused;
	int error = conn_begin(conn, NULL, sizeof(*stat) + 4);
	if (!error) {
		wire_add_struct(&conn->reply, stat, sizeof(*stat));
		error = conn_reply(conn, head, result, 0);
	}
	mem_free(stat);
	return error;
}

static int serve_events(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	enum { EVENTS_MAX = 4096 };
	uint32_t max = request->u.events.max < EVENTS_MAX ? request->u.events.max : EVENTS_MAX;
	struct cairn_event *events = mem_array(max + 1, sizeof(*events));
	long n = events ? cairn_events(conn->daemon->store, request->u.events.after, events, max)
	                : err_set(CAIRN_E_NOMEM, "no memory for events");
	int error = conn_begin(conn, n < 0 ? cairn_error_text() : NULL, (size_t)(max + 1) * (sizeof(*events) + 4));
	if (!error) {
		for (long i = 0; i < n; i++) {
			may_event(conn, &events[i]);
			wire_add_struct(&conn->reply, &events[i], sizeof(events[i]));
		}
		error = conn_reply(conn, head, n, 0);
	}
	mem_free(events);
	return error;
}

static int serve_space(struct conn *conn, const struct wire_head *head, const struct wire_request *request)
{
	cairn *store = conn->daemon->store;
	pthread_mutex_lock(&store->lock);
	const struct cairn_space *space = store_space_by_id(store, request->u.space.bytes, 0);
	int known = space && space->described;
	pthread_mutex_unlock(&store->lock);
	if (!known || !may_see(conn, &request->u.space))
		return reply_error(conn, head, CAIRN_E_NOENT, "the store does not know that space's description");
	if (conn_begin(conn, NULL, space->space.canon_length + 4)) /* a description never changes, and stays */
		return -1;
	bytes_add32(&conn->reply, (uint32_t)space->space.canon_length);
	bytes_add(&conn->reply, space->space.canon, space->space.canon_length);
	return conn_reply(conn, head, 0, 0);
}

int serve(struct conn *conn, const struct wire_head *head, struct wire_request *request, const int *fds)
{
	switch (request->type) {
	case WIRE_HELLO:
		return serve_hello(conn, head, request);
	case WIRE_DESCRIBE:
		return serve_describe(conn, head, request);
	case WIRE_STAGE:
		return serve_stage(conn, head, request, fds[0]);
	case WIRE_PUT:
		return conn->tcp ? serve_arrival(conn, head, request) : serve_batch(conn, head, request);
	case WIRE_GET:
	case WIRE_LEASE:
		return serve_batch(conn, head, request);
	case WIRE_FETCH:
		return serve_fetch(conn, head, request);
	case WIRE_RELEASE:
	case WIRE_MATCH_RELEASE:
		return serve_release(conn, request);
	case WIRE_MATCH:
		return serve_match(conn, head, request);
	case WIRE_MATCH_JOIN:
		return serve_join(conn, head, request);
	case WIRE_MATCH_AGREE:
		return serve_agree(conn, head, request);
	case WIRE_HINT:
		return serve_hint(conn, head, request);
	case WIRE_SAVE:
		return serve_save(conn, head, request);
	case WIRE_RESUME:
		return serve_resume(conn, head, request);
	case WIRE_FORGET:
	case WIRE_CLOSE:
	case WIRE_PIN:
		return serve_name(conn, head, request);
	case WIRE_SESSIONS:
	case WIRE_SPACES:
	case WIRE_PARTS:
	case WIRE_TENANTS:
		return serve_list(conn, head, request);
	case WIRE_CLIENTS:
		return serve_clients(conn, head);
	case WIRE_SNAPSHOT:
		return serve_snapshot(conn, head);
	case WIRE_EXPLAIN:
		return serve_explain(conn, head, request);
	case WIRE_DROP:
		return serve_drop(conn, head, request);
	case WIRE_STAT:
		return serve_stat(conn, head);
	case WIRE_EVENTS:
		return serve_events(conn, head, request);
	case WIRE_SYNC:
		return reply_plain(conn, head, cairn_sync(conn->daemon->store));
	case WIRE_SPACE:
		return serve_space(conn, head, request);
	case WIRE_PRESENCE:
		return serve_presence(conn, head, request);
	default:
		return -1;
	}
}
