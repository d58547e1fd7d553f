/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions, lists, decisions and statistics over a cairnd. See remote.h. */
#include <string.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/remote.h"
#include "store/session.h"

static int no_memory(void)
{
	return err_set(CAIRN_E_NOMEM, "no memory for a request");
}

static struct wire_request *request_new(uint32_t type)
{
	struct wire_request *request = mem_alloc(sizeof(*request));
	if (request)
		request->type = type;
	else
		(void)no_memory();
	return request;
}

/* Asks without looking at more than the result. */
static int64_t ask(cairn *store, struct wire_request *request)
{
	int64_t result = request ? remote_ask(store->remote, request, 0, NULL, NULL) : CAIRN_E_NOMEM;
	mem_free(request);
	return result;
}

static int copy_text(char to[WIRE_TEXT_MAX], const char *text)
{
	size_t length = text ? strlen(text) : 0;
	if (length >= WIRE_TEXT_MAX)
		return err_set(CAIRN_E_INVAL, "a name of %zu bytes: at most 255", length);
	memcpy(to, text ? text : "", length + 1);
	return 0;
}

static int copy_name(const cairn *store, struct wire_name *to, const struct cairn_session_name *name)
{
	const char *tenant;
	int error = session_name_check(name);
	if (!error)
		error = remote_tenant(store, name->tenant, &tenant);
	if (!error)
		error = copy_text(to->tenant, tenant);
	if (!error)
		error = copy_text(to->owner, name->owner);
	return error ? error : copy_text(to->name, name->name);
}

/* ---- one that needs a space's number ----------------------------------------------------------------------------- */

/* Fills the number in, asks, and returns the result. */
static int64_t ask_in_space(cairn *store, struct cairn_space *space, struct wire_request *request, uint32_t *number)
{
	struct remote_reply reply;
	int error;
	struct remote_link *link = remote_link_take(store->remote, 0, &error);
	if (!link)
		return error;
	error = remote_space_number(store->remote, link, space, number);
	if (!error)
		error = remote_call(store->remote, link, request, 0, &reply);
	remote_link_drop(store->remote, link, error == CAIRN_E_IO);
	return error ? error : reply.head.result;
}

int remote_hint(cairn *store, struct cairn_space *space, const struct cairn_chain *chain, int hint)
{
	struct wire_request *request = request_new(WIRE_HINT);
	if (!request)
		return CAIRN_E_NOMEM;
	request->u.hint.hint = (uint32_t)hint;
	request->u.hint.chain = (struct wire_chain){chain->group, chain->nkeys, chain->keys};
	int64_t result = ask_in_space(store, space, request, &request->u.hint.space);
	mem_free(request);
	return (int)result;
}

long remote_drop_keys(cairn *store, struct cairn_space *space, const cairn_key *keys, size_t nkeys)
{
	struct wire_request *request = request_new(WIRE_DROP);
	if (!request)
		return CAIRN_E_NOMEM;
	request->u.drop.scope = WIRE_DROP_KEYS;
	request->u.drop.keys = (struct wire_chain){0, nkeys, keys};
	int64_t result = ask_in_space(store, space, request, &request->u.drop.space);
	mem_free(request);
	return (long)result;
}

long remote_drop_space(cairn *store, const cairn_digest *space_id)
{
	struct wire_request *request = request_new(WIRE_DROP);
	if (request) {
		request->u.drop.scope = WIRE_DROP_SPACE;
		request->u.drop.id = *space_id;
	}
	return (long)ask(store, request);
}

long remote_drop_tenant(cairn *store, const char *tenant)
{
	struct wire_request *request = request_new(WIRE_DROP);
	int error = request ? remote_tenant(store, tenant, &tenant) : CAIRN_E_NOMEM;
	if (!error)
		error = copy_text(request->u.drop.tenant, tenant);
	if (error) {
		mem_free(request);
		return error;
	}
	request->u.drop.scope = WIRE_DROP_TENANT;
	return (long)ask(store, request);
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

/* The items of the tails, one behind the other; their bytes are put together in memory that `at` is the start of. */
static void tails_encode(const struct cairn_save *save, uint8_t *at, struct bytes_writer *w, uint64_t *checks)
{
	uint64_t used = 0, bytes;
	for (uint32_t i = 0; i < save->ntails; i++) {
		const struct cairn_item *tail = &save->tails[i];
		struct wire_item item;
		(void)buffers_check(tail, &bytes);
		remote_item_name(tail, &item);
		item.offset = used;
		item.length = bytes;
		remote_item_copy(at + used, tail);
		checks[i] = digest_xxh3(at + used, bytes, 0);
		used += bytes;
		wire_add_item(w, &item);
	}
}

/* Tails go through staging memory, or behind the request. `bulk` holds what is to be sent there. */
static int save_tails(struct remote *remote, struct remote_link *link, const struct cairn_save *save,
                      struct wire_save *to, struct link_buffer *items, struct link_buffer *bulk, uint64_t *ret_bulk)
{
	uint64_t used = 0, bytes;
	*ret_bulk = 0;
	for (uint32_t i = 0; i < save->ntails; i++) {
		if (buffers_check(&save->tails[i], &bytes) || bytes < CAIRN_PART_MIN_BYTES || bytes > CAIRN_PART_MAX_BYTES)
			return err_set(CAIRN_E_SIZE, "save: tail %u is too long, or its buffers are not those of their region", i);
		used += bytes;
	}
	if (!save->ntails)
		return 0;
	int error = remote->tcp ? link_buffer_fit(bulk, used) : remote_stage_fit(remote, link, used);
	uint64_t *checks = mem_array(save->ntails, sizeof(*checks));
	if (!error && (!checks || link_buffer_fit(items, (size_t)save->ntails * sizeof(struct wire_item)) ||
	               (remote->tcp && link_buffer_fit(bulk, used + 8ull * save->ntails))))
		error = no_memory();
	if (!error) {
		uint8_t *at = remote->tcp ? bulk->bytes : link->stage;
		struct bytes_writer w = bytes_writer_of(items->bytes, items->room);
		tails_encode(save, at, &w, checks);
		to->ntails = save->ntails;
		to->tails = bytes_reader_of(items->bytes, w.used);
		if (remote->tcp) {
			memcpy(at + used, checks, 8ull * save->ntails);
			*ret_bulk = used + 8ull * save->ntails;
		}
	}
	mem_free(checks);
	return error;
}

/* A save whose tails follow it. */
static int save_travel(struct remote *remote, struct remote_link *link, struct wire_request *request,
                       uint32_t timeout_ms, const struct link_buffer *bulk, uint64_t bulk_bytes,
                       struct remote_reply *reply)
{
	int error = remote_send(link, request, timeout_ms, bulk_bytes);
	if (!error)
		error = link_send_bytes(link->net, bulk->bytes, bulk_bytes);
	return error ? err_set(CAIRN_E_IO, "the cairnd at %s is gone: %s", remote->place.text, strerror(-error))
	             : remote_receive(remote, link, reply);
}

int remote_save(cairn *store, struct cairn_space *space, const struct cairn_save *save)
{
	struct wire_request *request = request_new(WIRE_SAVE);
	struct link_buffer items = {0}, bulk = {0};
	struct remote_reply reply;
	uint64_t bulk_bytes = 0;
	struct remote_patience patience = {.until_ms = save->timeout_ms ? link_now_ms() + save->timeout_ms : 0};
	if (!request)
		return CAIRN_E_NOMEM;
	struct wire_save *to = &request->u.save;
	struct cairn_session_name name = save->name;
	name.tenant = name.tenant ? name.tenant : space->space.desc.tenant;
	int error = copy_name(store, &to->name, &name);
	if (!error && (save->nchains > WIRE_CHAINS_MAX || save->ntails > WIRE_TAILS_MAX ||
	               save->state_bytes > WIRE_STATE_MAX || (save->nchains && !save->chains)))
		error = err_set(CAIRN_E_SIZE, "save: at most %u chains, %u tails and %u bytes of state", WIRE_CHAINS_MAX,
		                WIRE_TAILS_MAX, WIRE_STATE_MAX);
	struct remote_link *link = error ? NULL : remote_link_take(store->remote, save->timeout_ms, &error);
	if (link) {
		to->nchains = save->nchains;
		for (uint32_t i = 0; i < save->nchains; i++)
			to->chains[i] = (struct wire_chain){save->chains[i].group, save->chains[i].nkeys, save->chains[i].keys};
		to->state = save->state;
		to->state_bytes = (uint32_t)save->state_bytes;
		to->tokens = save->tokens;
		to->ttl_s = save->ttl_s;
		to->pin = save->pin;
		to->durability = save->durability;
		error = remote_space_number(store->remote, link, space, &to->space);
		if (!error)
			error = save_tails(store->remote, link, save, to, &items, &bulk, &bulk_bytes);
		for (int again = !error; again; again = !error && remote_is_later(&reply) && remote_wait(&patience))
			error = bulk_bytes ? save_travel(store->remote, link, request, save->timeout_ms, &bulk, bulk_bytes, &reply)
			                   : remote_call(store->remote, link, request, save->timeout_ms, &reply);
		remote_link_drop(store->remote, link, error == CAIRN_E_IO);
		if (!error)
			error = (int)reply.head.result;
	}
	link_buffer_done(&bulk);
	link_buffer_done(&items);
	mem_free(request);
	return error;
}

struct resumed {
	cairn_session *session;
	int error;
};

static void resumed_take(void *arg, struct remote_reply *reply)
{
	struct resumed *resumed = arg;
	if (reply->head.result)
		return;
	uint32_t pinned = bytes_take32(&reply->body);
	uint64_t expires_at_s = bytes_take64(&reply->body);
	uint32_t length = bytes_take32(&reply->body);
	const uint8_t *bytes = bytes_take(&reply->body, length);
	if (!bytes)
		return;
	resumed->error = session_of_manifest(bytes, length, &resumed->session);
	if (!resumed->error)
		session_set_kept(resumed->session, pinned, expires_at_s);
}

int remote_resume(cairn *store, const struct cairn_session_name *name, cairn_session **ret_session)
{
	struct wire_request *request = request_new(WIRE_RESUME);
	struct resumed resumed = {0};
	if (!request)
		return CAIRN_E_NOMEM;
	int64_t result = copy_name(store, &request->u.name, name);
	if (!result)
		result = remote_ask(store->remote, request, 0, resumed_take, &resumed);
	mem_free(request);
	if (!result && resumed.error)
		result = resumed.error;
	if (!result)
		*ret_session = resumed.session;
	else
		cairn_session_free(resumed.session);
	return (int)result;
}

int remote_session_end(cairn *store, uint32_t type, const struct cairn_session_name *name)
{
	struct wire_request *request = request_new(type);
	int error = request ? copy_name(store, &request->u.name, name) : CAIRN_E_NOMEM;
	if (error) {
		mem_free(request);
		return error;
	}
	return (int)ask(store, request);
}

int remote_session_pin(cairn *store, const struct cairn_session_name *name, uint32_t pin, uint64_t ttl_s)
{
	struct wire_request *request = request_new(WIRE_PIN);
	int error = request ? copy_name(store, &request->u.pin.name, name) : CAIRN_E_NOMEM;
	if (error) {
		mem_free(request);
		return error;
	}
	request->u.pin.pin = pin;
	request->u.pin.ttl_s = ttl_s;
	return (int)ask(store, request);
}

/* ---- lists: replies of many frames ------------------------------------------------------------------------------- */

/* Calls `each` for every entry of every frame. All frames are read, also after `each` has said to stop. */
static long ask_list(cairn *store, struct wire_request *request, int (*each)(void *arg, struct bytes_reader *body),
                     void *arg)
{
	struct remote_reply reply;
	int error, stop = 0;
	long calls = 0;
	struct remote_link *link = request ? remote_link_take(store->remote, 0, &error) : NULL;
	if (!link) {
		mem_free(request);
		return request ? error : CAIRN_E_NOMEM;
	}
	error = remote_call(store->remote, link, request, 0, &reply);
	while (!error && reply.head.result >= 0) {
		while (!stop && reply.body.at != reply.body.end && !reply.body.failed) {
			stop = each(arg, &reply.body);
			calls++;
		}
		if (!(reply.head.flags & WIRE_MORE))
			break;
		error = remote_receive(store->remote, link, &reply);
	}
	remote_link_drop(store->remote, link, error != 0);
	mem_free(request);
	return error ? error : reply.head.result < 0 ? (long)reply.head.result : calls;
}

struct session_list {
	int (*each)(void *arg, const struct cairn_session_info *info);
	void *arg;
	char tenant[WIRE_TEXT_MAX], owner[WIRE_TEXT_MAX], name[WIRE_TEXT_MAX];
};

static int session_listed(void *arg, struct bytes_reader *body)
{
	struct session_list *list = arg;
	struct cairn_session_info info;
	wire_take_struct(body, &info, sizeof(info));
	wire_take_text(body, list->tenant);
	wire_take_text(body, list->owner);
	wire_take_text(body, list->name);
	info.size = sizeof(info);
	info.tenant = list->tenant;
	info.owner = list->owner;
	info.name = list->name;
	return body->failed ? 1 : list->each(list->arg, &info);
}

long remote_session_list(cairn *store, const char *tenant,
                         int (*each)(void *arg, const struct cairn_session_info *info), void *arg)
{
	struct wire_request *request = request_new(WIRE_SESSIONS);
	struct session_list *list = mem_alloc(sizeof(*list));
	int error = !request || !list ? no_memory() : remote_tenant(store, tenant, &tenant);
	if (!error)
		error = copy_text(request->u.list.tenant, tenant);
	long calls = error;
	if (error) {
		mem_free(request);
	} else {
		list->each = each;
		list->arg = arg;
		calls = ask_list(store, request, session_listed, list);
	}
	mem_free(list);
	return calls;
}

struct space_list {
	int (*each)(void *arg, const struct cairn_space_info *info);
	void *arg;
	struct link_buffer text;
};

static int space_listed(void *arg, struct bytes_reader *body)
{
	struct space_list *list = arg;
	struct cairn_space_info info;
	wire_take_struct(body, &info, sizeof(info));
	uint32_t length = bytes_take32(body);
	const char *text = bytes_take(body, length);
	if (!text || link_buffer_fit(&list->text, (size_t)length + 1)) {
		body->failed = 1;
		return 1;
	}
	memcpy(list->text.bytes, text, length);
	list->text.bytes[length] = 0;
	info.size = sizeof(info);
	info.text = (const char *)list->text.bytes;
	return list->each(list->arg, &info);
}

long remote_list_spaces(cairn *store, int (*each)(void *arg, const struct cairn_space_info *info), void *arg)
{
	struct space_list list = {.each = each, .arg = arg};
	long calls = ask_list(store, request_new(WIRE_SPACES), space_listed, &list);
	link_buffer_done(&list.text);
	return calls;
}

struct part_list {
	int (*each)(void *arg, const struct cairn_part_info *info);
	void *arg;
};

static int part_listed(void *arg, struct bytes_reader *body)
{
	struct part_list *list = arg;
	struct cairn_part_info info;
	wire_take_struct(body, &info, sizeof(info));
	info.size = sizeof(info);
	return body->failed ? 1 : list->each(list->arg, &info);
}

long remote_list_parts(cairn *store, const cairn_digest *space_id,
                       int (*each)(void *arg, const struct cairn_part_info *info), void *arg)
{
	struct wire_request *request = request_new(WIRE_PARTS);
	struct part_list list = {.each = each, .arg = arg};
	if (request && space_id) {
		request->u.list.has_space = 1;
		request->u.list.space = *space_id;
	}
	return ask_list(store, request, part_listed, &list);
}

struct tenant_list {
	int (*each)(void *arg, const struct cairn_tenant_stat *stat);
	void *arg;
};

static int tenant_listed(void *arg, struct bytes_reader *body)
{
	struct tenant_list *list = arg;
	struct cairn_tenant_stat stat;
	char name[WIRE_TEXT_MAX];
	wire_take_struct(body, &stat, sizeof(stat));
	wire_take_text(body, name);
	stat.size = sizeof(stat);
	stat.tenant = name;
	return body->failed ? 1 : list->each(list->arg, &stat);
}

long remote_list_tenants(cairn *store, int (*each)(void *arg, const struct cairn_tenant_stat *stat), void *arg)
{
	struct tenant_list list = {.each = each, .arg = arg};
	return ask_list(store, request_new(WIRE_TENANTS), tenant_listed, &list);
}

struct client_list {
	int (*each)(void *arg, const struct cairn_client_info *info);
	void *arg;
	char program[WIRE_TEXT_MAX], address[WIRE_TEXT_MAX];
};

static int client_listed(void *arg, struct bytes_reader *body)
{
	struct client_list *list = arg;
	struct cairn_client_info info;
	wire_take_struct(body, &info, sizeof(info));
	wire_take_text(body, list->program);
	wire_take_text(body, list->address);
	info.size = sizeof(info);
	info.program = list->program;
	info.address = list->address;
	return body->failed ? 1 : list->each(list->arg, &info);
}

long remote_list_clients(cairn *store, int (*each)(void *arg, const struct cairn_client_info *info), void *arg)
{
	struct client_list list = {.each = each, .arg = arg};
	return ask_list(store, request_new(WIRE_CLIENTS), client_listed, &list);
}

struct present_list {
	int (*each)(void *arg, const struct cairn_present *present);
	void *arg;
	uint64_t *sequence, *life;
	long calls;
	int begun;
};

/* The first bytes of the list are its moment. */
static int present_listed(void *arg, struct bytes_reader *body)
{
	struct present_list *list = arg;
	struct cairn_present present;
	if (!list->begun) {
		*list->sequence = bytes_take64(body);
		*list->life = bytes_take64(body);
		list->begun = 1;
		return body->failed;
	}
	wire_take_struct(body, &present, sizeof(present));
	present.size = sizeof(present);
	present.hash_bytes = present.hash_bytes > CAIRN_HASH_MAX ? 0 : present.hash_bytes;
	list->calls += !body->failed;
	return body->failed ? 1 : list->each(list->arg, &present);
}

long remote_snapshot(cairn *store, uint64_t *ret_sequence, uint64_t *ret_life,
                     int (*each)(void *arg, const struct cairn_present *present), void *arg)
{
	struct present_list list = {each, arg, ret_sequence, ret_life, 0, 0};
	long result = ask_list(store, request_new(WIRE_SNAPSHOT), present_listed, &list);
	return result < 0 ? result : list.calls;
}

/* ---- single answers ---------------------------------------------------------------------------------------------- */

struct answer {
	void *to;
	size_t size;
};

static void answer_take(void *arg, struct remote_reply *reply)
{
	struct answer *answer = arg;
	if (!reply->head.result)
		wire_take_struct(&reply->body, answer->to, answer->size);
}

int remote_explain(cairn *store, const cairn_digest *space_id, const cairn_key *key, uint32_t part,
                   struct cairn_explanation *ret_explanation)
{
	struct wire_request *request = request_new(WIRE_EXPLAIN);
	struct cairn_explanation explanation;
	struct answer answer = {&explanation, sizeof(explanation)};
	if (!request)
		return CAIRN_E_NOMEM;
	request->u.explain.space = *space_id;
	request->u.explain.key = *key;
	request->u.explain.part = part;
	int64_t result = remote_ask(store->remote, request, 0, answer_take, &answer);
	mem_free(request);
	if (!result)
		*ret_explanation = explanation;
	return (int)result;
}

int remote_stat(cairn *store, struct cairn_stat *ret_stat)
{
	struct wire_request *request = request_new(WIRE_STAT);
	struct cairn_stat *stat = mem_alloc(sizeof(*stat));
	struct answer answer = {stat, sizeof(*stat)};
	int64_t result = request && stat ? remote_ask(store->remote, request, 0, answer_take, &answer) : no_memory();
	if (!result) {
		size_t size = ret_stat->size;
		memcpy(ret_stat, stat, size);
		ret_stat->size = size;
	}
	mem_free(stat);
	mem_free(request);
	return (int)result;
}

struct event_answer {
	struct cairn_event *events;
	size_t max;
};

static void events_take(void *arg, struct remote_reply *reply)
{
	struct event_answer *answer = arg;
	for (int64_t i = 0; i < reply->head.result && (size_t)i < answer->max; i++) {
		wire_take_struct(&reply->body, &answer->events[i], sizeof(answer->events[i]));
		if (answer->events[i].hash_bytes > CAIRN_HASH_MAX)
			answer->events[i].hash_bytes = 0;
	}
}

long remote_events(cairn *store, uint64_t after, struct cairn_event *events, size_t max)
{
	struct wire_request *request = request_new(WIRE_EVENTS);
	struct event_answer answer = {events, max};
	if (!request)
		return CAIRN_E_NOMEM;
	request->u.events.after = after;
	request->u.events.max = max < UINT32_MAX ? (uint32_t)max : UINT32_MAX;
	int64_t result = remote_ask(store->remote, request, 0, events_take, &answer);
	mem_free(request);
	return result > (int64_t)max ? (long)max : (long)result;
}

int remote_sync(cairn *store)
{
	return (int)ask(store, request_new(WIRE_SYNC));
}

/* The space a session was saved in: its description comes from the daemon's list. */
struct space_wanted {
	const cairn_digest *id;
	struct link_buffer canon;
};

static void canon_take(void *arg, struct remote_reply *reply)
{
	struct space_wanted *wanted = arg;
	if (reply->head.result < 0)
		return;
	uint32_t length = bytes_take32(&reply->body);
	const uint8_t *bytes = bytes_take(&reply->body, length);
	if (!bytes || link_buffer_fit(&wanted->canon, length)) {
		reply->body.failed = 1;
		return;
	}
	memcpy(wanted->canon.bytes, bytes, length);
	wanted->canon.room = length;
}

int remote_session_space(cairn *store, const cairn_digest *id, struct cairn_space **ret_space)
{
	struct wire_request *request = request_new(WIRE_SPACE);
	struct space_wanted wanted = {.id = id};
	struct key_space decoded;
	if (!request)
		return CAIRN_E_NOMEM;
	request->u.space = *id;
	int64_t result = remote_ask(store->remote, request, 0, canon_take, &wanted);
	mem_free(request);
	if (!result) {
		result = key_space_decode(wanted.canon.bytes, wanted.canon.room, &decoded);
		if (!result) {
			decoded.desc.size = sizeof(decoded.desc);
			result = cairn_describe(store, &decoded.desc, ret_space);
			key_space_done(&decoded);
		}
	}
	link_buffer_done(&wanted.canon);
	return (int)result;
}
