/* SPDX-License-Identifier: Apache-2.0 */
/* The wire: frames and the bodies of requests. See wire.h and docs/WIRE.md. */
#include "fmt/wire.h"

#include "base/check.h"
#include "base/digest.h"

enum {
	HEAD_MAGIC = 0,
	HEAD_VERSION = 8,
	HEAD_TYPE = 10,
	HEAD_FLAGS = 12,
	HEAD_NFDS = 14,
	HEAD_ID = 16,
	HEAD_RESULT = 24,
	HEAD_BODY = 32,
	HEAD_TIMEOUT = 36,
	HEAD_BULK = 40,
	HEAD_RESERVED = 48,
	HEAD_CHECK = 56,
};

static const char wire_magic[8] = {'C', 'A', 'I', 'R', 'N', 'W', 'I', 'R'};

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static uint64_t head_check(const uint8_t head[WIRE_HEAD_BYTES], const void *body, size_t length)
{
	return digest_xxh3(body, length, digest_xxh3(head, HEAD_CHECK, 0));
}

void wire_head_encode(const struct wire_head *head, const void *body, uint8_t ret[WIRE_HEAD_BYTES])
{
	check(head->body_bytes <= WIRE_BODY_MAX && head->nfds <= WIRE_FDS_MAX);
	memset(ret, 0, WIRE_HEAD_BYTES);
	memcpy(ret + HEAD_MAGIC, wire_magic, 8);
	bytes_set16(ret + HEAD_VERSION, head->version);
	bytes_set16(ret + HEAD_TYPE, head->type);
	bytes_set16(ret + HEAD_FLAGS, head->flags);
	bytes_set16(ret + HEAD_NFDS, head->nfds);
	bytes_set64(ret + HEAD_ID, head->id);
	bytes_set64(ret + HEAD_RESULT, (uint64_t)head->result);
	bytes_set32(ret + HEAD_BODY, head->body_bytes);
	bytes_set32(ret + HEAD_TIMEOUT, head->timeout_ms);
	bytes_set64(ret + HEAD_BULK, head->bulk_bytes);
	bytes_set64(ret + HEAD_CHECK, head_check(ret, body, head->body_bytes));
}

int wire_head_decode(const uint8_t bytes[WIRE_HEAD_BYTES], struct wire_head *ret_head)
{
	memset(ret_head, 0, sizeof(*ret_head));
	if (memcmp(bytes + HEAD_MAGIC, wire_magic, 8) != 0)
		return -1;
	ret_head->version = bytes_get16(bytes + HEAD_VERSION);
	ret_head->type = bytes_get16(bytes + HEAD_TYPE);
	ret_head->flags = bytes_get16(bytes + HEAD_FLAGS);
	ret_head->nfds = bytes_get16(bytes + HEAD_NFDS);
	ret_head->id = bytes_get64(bytes + HEAD_ID);
	ret_head->result = (int64_t)bytes_get64(bytes + HEAD_RESULT);
	ret_head->body_bytes = bytes_get32(bytes + HEAD_BODY);
	ret_head->timeout_ms = bytes_get32(bytes + HEAD_TIMEOUT);
	ret_head->bulk_bytes = bytes_get64(bytes + HEAD_BULK);
	return ret_head->version == WIRE_VERSION && ret_head->body_bytes <= WIRE_BODY_MAX &&
	               ret_head->nfds <= WIRE_FDS_MAX && ret_head->bulk_bytes <= WIRE_BULK_MAX &&
	               !bytes_get64(bytes + HEAD_RESERVED)
	           ? 0
	           : -1;
}

int wire_is_whole(const uint8_t head[WIRE_HEAD_BYTES], const void *body, size_t length)
{
	return bytes_get64(head + HEAD_CHECK) == head_check(head, body, length);
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

void wire_add_text(struct bytes_writer *w, const char *text)
{
	size_t length = text ? strlen(text) : 0;
	length = length < WIRE_TEXT_MAX ? length : WIRE_TEXT_MAX - 1;
	bytes_add16(w, (uint16_t)length);
	bytes_add(w, text, length);
}

void wire_take_text(struct bytes_reader *r, char ret_text[WIRE_TEXT_MAX])
{
	uint16_t length = bytes_take16(r);
	const void *bytes = length < WIRE_TEXT_MAX ? bytes_take(r, length) : NULL;
	ret_text[0] = 0;
	if (!bytes || memchr(bytes, 0, length)) {
		r->failed = 1;
		return;
	}
	memcpy(ret_text, bytes, length);
	ret_text[length] = 0;
}

static void take_bytes(struct bytes_reader *r, void *to, size_t length)
{
	const void *bytes = bytes_take(r, length);
	if (bytes)
		memcpy(to, bytes, length);
	else
		memset(to, 0, length);
}

void wire_add_item(struct bytes_writer *w, const struct wire_item *item)
{
	bytes_add(w, item->key.bytes, 32);
	bytes_add(w, item->parent.bytes, 32);
	bytes_add32(w, item->has_parent != 0);
	bytes_add32(w, item->flags);
	bytes_add16(w, item->group);
	bytes_add16(w, item->part);
	bytes_add32(w, 0);
	bytes_add64(w, item->offset);
	bytes_add64(w, item->length);
}

void wire_take_item(struct bytes_reader *r, struct wire_item *ret_item)
{
	take_bytes(r, ret_item->key.bytes, 32);
	take_bytes(r, ret_item->parent.bytes, 32);
	ret_item->has_parent = bytes_take32(r);
	ret_item->flags = bytes_take32(r);
	ret_item->group = bytes_take16(r);
	ret_item->part = bytes_take16(r);
	uint32_t reserved = bytes_take32(r);
	ret_item->offset = bytes_take64(r);
	ret_item->length = bytes_take64(r);
	ret_item->hash_bytes = 0;
	r->failed |= ret_item->has_parent > 1 || reserved;
}

void wire_add_result(struct bytes_writer *w, const struct wire_result *result)
{
	bytes_add32(w, (uint32_t)result->status);
	bytes_add32(w, result->tier);
	bytes_add64(w, result->bytes);
	bytes_add64(w, result->check);
	bytes_add64(w, result->lease);
	bytes_add64(w, result->extent);
	bytes_add64(w, result->offset);
}

void wire_take_result(struct bytes_reader *r, struct wire_result *ret_result)
{
	ret_result->status = (int32_t)bytes_take32(r);
	ret_result->tier = bytes_take32(r);
	ret_result->bytes = bytes_take64(r);
	ret_result->check = bytes_take64(r);
	ret_result->lease = bytes_take64(r);
	ret_result->extent = bytes_take64(r);
	ret_result->offset = bytes_take64(r);
}

void wire_add_chain(struct bytes_writer *w, const struct cairn_chain *chain)
{
	bytes_add32(w, chain->group);
	bytes_add64(w, chain->nkeys);
	bytes_add(w, chain->keys, chain->nkeys * sizeof(cairn_key));
}

void wire_take_chain(struct bytes_reader *r, struct wire_chain *ret_chain)
{
	ret_chain->group = bytes_take32(r);
	ret_chain->nkeys = bytes_take64(r);
	if (ret_chain->nkeys > WIRE_BODY_MAX / sizeof(cairn_key))
		r->failed = 1;
	ret_chain->keys = r->failed ? NULL : bytes_take(r, ret_chain->nkeys * sizeof(cairn_key));
	if (r->failed)
		ret_chain->nkeys = 0;
}

void wire_add_name(struct bytes_writer *w, const struct wire_name *name)
{
	wire_add_text(w, name->tenant);
	wire_add_text(w, name->owner);
	wire_add_text(w, name->name);
}

void wire_take_name(struct bytes_reader *r, struct wire_name *ret_name)
{
	wire_take_text(r, ret_name->tenant);
	wire_take_text(r, ret_name->owner);
	wire_take_text(r, ret_name->name);
}

void wire_name_view(const struct wire_name *name, struct cairn_session_name *ret_view)
{
	*ret_view = (struct cairn_session_name){
		.tenant = name->tenant[0] ? name->tenant : NULL, .owner = name->owner, .name = name->name};
}

void wire_add_struct(struct bytes_writer *w, const void *bytes, size_t size)
{
	bytes_add32(w, (uint32_t)size);
	bytes_add(w, bytes, size);
}

void wire_take_struct(struct bytes_reader *r, void *ret_bytes, size_t size)
{
	uint32_t have = bytes_take32(r);
	const void *bytes = bytes_take(r, have);
	memset(ret_bytes, 0, size);
	if (bytes)
		memcpy(ret_bytes, bytes, have < size ? have : size);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static void add_f64(struct bytes_writer *w, double value)
{
	uint64_t bits;
	memcpy(&bits, &value, 8);
	bytes_add64(w, bits);
}

static double take_f64(struct bytes_reader *r)
{
	uint64_t bits = bytes_take64(r);
	double value;
	memcpy(&value, &bits, 8);
	return value;
}

static void add_wire_chain(struct bytes_writer *w, const struct wire_chain *chain)
{
	wire_add_chain(w, &(struct cairn_chain){chain->group, chain->keys, chain->nkeys});
}

static void save_encode(const struct wire_save *save, struct bytes_writer *w)
{
	bytes_add32(w, save->space);
	bytes_add32(w, save->nchains);
	bytes_add32(w, save->ntails);
	bytes_add32(w, save->pin);
	bytes_add32(w, save->durability);
	bytes_add64(w, save->tokens);
	bytes_add64(w, save->ttl_s);
	wire_add_name(w, &save->name);
	for (uint32_t i = 0; i < save->nchains; i++)
		add_wire_chain(w, &save->chains[i]);
	bytes_add32(w, save->state_bytes);
	bytes_add(w, save->state, save->state_bytes);
	struct bytes_reader tails = save->tails;
	for (uint32_t i = 0; i < save->ntails; i++) {
		struct wire_item item;
		wire_take_item(&tails, &item);
		wire_add_item(w, &item);
	}
}

static void save_decode(struct bytes_reader *r, struct wire_save *save)
{
	save->space = bytes_take32(r);
	save->nchains = bytes_take32(r);
	save->ntails = bytes_take32(r);
	save->pin = bytes_take32(r);
	save->durability = bytes_take32(r);
	save->tokens = bytes_take64(r);
	save->ttl_s = bytes_take64(r);
	wire_take_name(r, &save->name);
	r->failed |= save->nchains > WIRE_CHAINS_MAX || save->ntails > WIRE_TAILS_MAX;
	for (uint32_t i = 0; i < save->nchains && !r->failed; i++)
		wire_take_chain(r, &save->chains[i]);
	save->state_bytes = bytes_take32(r);
	r->failed |= save->state_bytes > WIRE_STATE_MAX;
	save->state = r->failed ? NULL : bytes_take(r, save->state_bytes);
	save->tails = *r;
	for (uint32_t i = 0; i < save->ntails && !r->failed; i++) {
		struct wire_item item;
		wire_take_item(r, &item);
	}
}

static void batch_encode(const struct wire_batch *batch, struct bytes_writer *w)
{
	bytes_add32(w, batch->space);
	bytes_add32(w, batch->durability);
	bytes_add32(w, batch->background);
	bytes_add32(w, batch->nitems);
	uint32_t hashed = 0;
	for (uint32_t i = 0; i < batch->nitems; i++) {
		wire_add_item(w, &batch->items[i]);
		hashed |= batch->items[i].hash_bytes != 0;
	}
	bytes_add32(w, hashed);
	for (uint32_t i = 0; i < batch->nitems && hashed; i++) {
		bytes_add32(w, batch->items[i].hash_bytes);
		bytes_add(w, batch->items[i].hash, CAIRN_HASH_MAX);
	}
}

static void batch_decode(struct bytes_reader *r, struct wire_batch *batch)
{
	batch->space = bytes_take32(r);
	batch->durability = bytes_take32(r);
	batch->background = bytes_take32(r);
	batch->nitems = bytes_take32(r);
	r->failed |= batch->nitems > WIRE_ITEMS_MAX;
	for (uint32_t i = 0; i < batch->nitems && !r->failed; i++)
		wire_take_item(r, &batch->items[i]);
	uint32_t hashed = bytes_take32(r), some = 0;
	r->failed |= hashed > 1;
	for (uint32_t i = 0; i < batch->nitems && hashed && !r->failed; i++) {
		batch->items[i].hash_bytes = bytes_take32(r);
		take_bytes(r, batch->items[i].hash, CAIRN_HASH_MAX);
		r->failed |= batch->items[i].hash_bytes > CAIRN_HASH_MAX;
		some |= batch->items[i].hash_bytes;
	}
	r->failed |= hashed && !some;
}

static void match_encode(const struct wire_match *match, struct bytes_writer *w)
{
	bytes_add32(w, match->space);
	bytes_add32(w, match->nchains);
	bytes_add64(w, match->parts);
	for (uint32_t i = 0; i < match->nchains; i++)
		add_wire_chain(w, &match->chains[i]);
}

static void match_decode(struct bytes_reader *r, struct wire_match *match)
{
	match->space = bytes_take32(r);
	match->nchains = bytes_take32(r);
	match->parts = bytes_take64(r);
	r->failed |= match->nchains > WIRE_CHAINS_MAX;
	for (uint32_t i = 0; i < match->nchains && !r->failed; i++)
		wire_take_chain(r, &match->chains[i]);
}

static void drop_encode(const struct wire_drop *drop, struct bytes_writer *w)
{
	bytes_add32(w, drop->scope);
	bytes_add32(w, drop->space);
	bytes_add(w, drop->id.bytes, 32);
	wire_add_text(w, drop->tenant);
	add_wire_chain(w, &drop->keys);
}

static void drop_decode(struct bytes_reader *r, struct wire_drop *drop)
{
	drop->scope = bytes_take32(r);
	drop->space = bytes_take32(r);
	take_bytes(r, drop->id.bytes, 32);
	wire_take_text(r, drop->tenant);
	wire_take_chain(r, &drop->keys);
	r->failed |= drop->scope > WIRE_DROP_TENANT;
}

static void presence_encode(const struct wire_presence *presence, struct bytes_writer *w)
{
	bytes_add(w, presence->space.bytes, 32);
	bytes_add64(w, presence->parts);
	bytes_add32(w, presence->tails != 0);
	add_wire_chain(w, &presence->keys);
}

static void presence_decode(struct bytes_reader *r, struct wire_presence *presence)
{
	take_bytes(r, presence->space.bytes, 32);
	presence->parts = bytes_take64(r);
	presence->tails = bytes_take32(r);
	wire_take_chain(r, &presence->keys);
	r->failed |= !presence->parts || presence->tails > 1 || presence->keys.group ||
	             presence->keys.nkeys > WIRE_PRESENCE_KEYS;
}

void wire_add_found(struct bytes_writer *w, const struct wire_found *found)
{
	bytes_add32(w, found->key);
	bytes_add16(w, found->part);
	bytes_add16(w, (uint16_t)(found->tier | (found->tail ? 256 : 0)));
	bytes_add32(w, found->length);
	bytes_add64(w, found->check);
}

void wire_take_found(struct bytes_reader *r, struct wire_found *ret_found)
{
	ret_found->key = bytes_take32(r);
	ret_found->part = bytes_take16(r);
	uint16_t tier = bytes_take16(r);
	r->failed |= tier >= 512;
	ret_found->tier = (uint8_t)tier;
	ret_found->tail = (uint8_t)(tier >> 8);
	ret_found->length = bytes_take32(r);
	ret_found->check = bytes_take64(r);
}

void wire_add_present(struct bytes_writer *w, double wait_s, double flash_bytes_s, uint32_t nfound)
{
	add_f64(w, wait_s);
	add_f64(w, flash_bytes_s);
	bytes_add32(w, nfound);
}

void wire_take_present(struct bytes_reader *r, uint32_t nkeys, struct wire_present *ret_present)
{
	struct wire_found found;
	uint32_t least = 0;
	ret_present->wait_s = take_f64(r);
	ret_present->flash_bytes_s = take_f64(r);
	ret_present->nfound = bytes_take32(r);
	ret_present->found = *r;
	/* Written so that what is no number fails as well. */
	if (!(ret_present->wait_s >= 0 && ret_present->wait_s <= 1e6 && ret_present->flash_bytes_s >= 0 &&
	      ret_present->flash_bytes_s <= 1e15))
		r->failed = 1;
	for (uint32_t i = 0; i < ret_present->nfound && !r->failed; i++) {
		wire_take_found(r, &found);
		r->failed |= found.key >= nkeys || found.key < least || found.part >= 64 || !found.length ||
		             found.length > CAIRN_PART_MAX_BYTES ||
		             (found.tier != CAIRN_TIER_MEMORY && found.tier != CAIRN_TIER_FLASH);
		least = found.key;
	}
	r->failed |= r->at != r->end;
}

void wire_request_encode(const struct wire_request *request, struct bytes_writer *w)
{
	switch (request->type) {
	case WIRE_HELLO:
		wire_add_text(w, request->u.hello.program);
		bytes_add(w, request->u.hello.client, 16);
		bytes_add32(w, request->u.hello.has_token);
		bytes_add(w, request->u.hello.token, sizeof(request->u.hello.token));
		bytes_add(w, request->u.hello.secret, sizeof(request->u.hello.secret));
		break;
	case WIRE_DESCRIBE:
		add_f64(w, request->u.describe.cost_a_s);
		add_f64(w, request->u.describe.cost_b_s);
		bytes_add32(w, request->u.describe.length);
		bytes_add(w, request->u.describe.canon, request->u.describe.length);
		break;
	case WIRE_PUT:
	case WIRE_GET:
	case WIRE_LEASE:
	case WIRE_FETCH:
		batch_encode(&request->u.batch, w);
		break;
	case WIRE_RELEASE:
	case WIRE_MATCH_RELEASE:
		bytes_add32(w, request->u.release.n);
		bytes_add(w, request->u.release.numbers, (size_t)request->u.release.n * 8);
		break;
	case WIRE_MATCH:
		match_encode(&request->u.match, w);
		break;
	case WIRE_MATCH_JOIN:
		bytes_add32(w, request->u.join.space);
		bytes_add(w, request->u.join.ticket.bytes, sizeof(request->u.join.ticket.bytes));
		break;
	case WIRE_MATCH_AGREE:
		bytes_add64(w, request->u.agree.match);
		bytes_add64(w, request->u.agree.tokens);
		bytes_add32(w, request->u.agree.ranks);
		break;
	case WIRE_HINT:
		bytes_add32(w, request->u.hint.space);
		bytes_add32(w, request->u.hint.hint);
		add_wire_chain(w, &request->u.hint.chain);
		break;
	case WIRE_SAVE:
		save_encode(&request->u.save, w);
		break;
	case WIRE_RESUME:
	case WIRE_FORGET:
	case WIRE_CLOSE:
		wire_add_name(w, &request->u.name);
		break;
	case WIRE_PIN:
		wire_add_name(w, &request->u.pin.name);
		bytes_add32(w, request->u.pin.pin);
		bytes_add64(w, request->u.pin.ttl_s);
		break;
	case WIRE_SESSIONS:
	case WIRE_PARTS:
		wire_add_text(w, request->u.list.tenant);
		bytes_add32(w, request->u.list.has_space);
		bytes_add(w, request->u.list.space.bytes, 32);
		break;
	case WIRE_EXPLAIN:
		bytes_add(w, request->u.explain.space.bytes, 32);
		bytes_add(w, request->u.explain.key.bytes, 32);
		bytes_add32(w, request->u.explain.part);
		break;
	case WIRE_DROP:
		drop_encode(&request->u.drop, w);
		break;
	case WIRE_EVENTS:
		bytes_add64(w, request->u.events.after);
		bytes_add32(w, request->u.events.max);
		break;
	case WIRE_STAGE:
		bytes_add64(w, request->u.stage_bytes);
		break;
	case WIRE_SPACE:
		bytes_add(w, request->u.space.bytes, 32);
		break;
	case WIRE_PRESENCE:
		presence_encode(&request->u.presence, w);
		break;
	case WIRE_SPACES:
	case WIRE_TENANTS:
	case WIRE_CLIENTS:
	case WIRE_SNAPSHOT:
	case WIRE_STAT:
	case WIRE_SYNC:
		break;
	default:
		check(0);
	}
}

/* The rest of the body, by type; what is left over is looked at by the caller. */
static void request_take(struct bytes_reader *r, struct wire_request *request)
{
	switch (request->type) {
	case WIRE_HELLO:
		wire_take_text(r, request->u.hello.program);
		take_bytes(r, request->u.hello.client, 16);
		request->u.hello.has_token = bytes_take32(r);
		take_bytes(r, request->u.hello.token, sizeof(request->u.hello.token));
		take_bytes(r, request->u.hello.secret, sizeof(request->u.hello.secret));
		r->failed |= request->u.hello.has_token > 1;
		break;
	case WIRE_DESCRIBE:
		request->u.describe.cost_a_s = take_f64(r);
		request->u.describe.cost_b_s = take_f64(r);
		request->u.describe.length = bytes_take32(r);
		request->u.describe.canon = bytes_take(r, request->u.describe.length);
		break;
	case WIRE_PUT:
	case WIRE_GET:
	case WIRE_LEASE:
	case WIRE_FETCH:
		batch_decode(r, &request->u.batch);
		break;
	case WIRE_RELEASE:
	case WIRE_MATCH_RELEASE:
		request->u.release.n = bytes_take32(r);
		r->failed |= request->u.release.n > WIRE_BODY_MAX / 8;
		request->u.release.numbers = r->failed ? NULL : bytes_take(r, (size_t)request->u.release.n * 8);
		break;
	case WIRE_MATCH:
		match_decode(r, &request->u.match);
		break;
	case WIRE_MATCH_JOIN:
		request->u.join.space = bytes_take32(r);
		take_bytes(r, request->u.join.ticket.bytes, sizeof(request->u.join.ticket.bytes));
		break;
	case WIRE_MATCH_AGREE:
		request->u.agree.match = bytes_take64(r);
		request->u.agree.tokens = bytes_take64(r);
		request->u.agree.ranks = bytes_take32(r);
		break;
	case WIRE_HINT:
		request->u.hint.space = bytes_take32(r);
		request->u.hint.hint = bytes_take32(r);
		wire_take_chain(r, &request->u.hint.chain);
		break;
	case WIRE_SAVE:
		save_decode(r, &request->u.save);
		break;
	case WIRE_RESUME:
	case WIRE_FORGET:
	case WIRE_CLOSE:
		wire_take_name(r, &request->u.name);
		break;
	case WIRE_PIN:
		wire_take_name(r, &request->u.pin.name);
		request->u.pin.pin = bytes_take32(r);
		request->u.pin.ttl_s = bytes_take64(r);
		break;
	case WIRE_SESSIONS:
	case WIRE_PARTS:
		wire_take_text(r, request->u.list.tenant);
		request->u.list.has_space = bytes_take32(r);
		take_bytes(r, request->u.list.space.bytes, 32);
		break;
	case WIRE_EXPLAIN:
		take_bytes(r, request->u.explain.space.bytes, 32);
		take_bytes(r, request->u.explain.key.bytes, 32);
		request->u.explain.part = bytes_take32(r);
		break;
	case WIRE_DROP:
		drop_decode(r, &request->u.drop);
		break;
	case WIRE_EVENTS:
		request->u.events.after = bytes_take64(r);
		request->u.events.max = bytes_take32(r);
		break;
	case WIRE_STAGE:
		request->u.stage_bytes = bytes_take64(r);
		break;
	case WIRE_SPACE:
		take_bytes(r, request->u.space.bytes, 32);
		break;
	case WIRE_PRESENCE:
		presence_decode(r, &request->u.presence);
		break;
	case WIRE_SPACES:
	case WIRE_TENANTS:
	case WIRE_CLIENTS:
	case WIRE_SNAPSHOT:
	case WIRE_STAT:
	case WIRE_SYNC:
		break;
	default:
		r->failed = 1;
	}
}

int wire_request_decode(uint32_t type, const void *body, size_t length, struct wire_request *ret_request)
{
	struct bytes_reader r = bytes_reader_of(body, length);
	/* A batch's items are written as they are taken: the room for them is larger than most requests. */
	if (type != WIRE_PUT && type != WIRE_GET && type != WIRE_LEASE && type != WIRE_FETCH && type != WIRE_RELEASE)
		memset(ret_request, 0, sizeof(*ret_request));
	ret_request->type = type;
	request_take(&r, ret_request);
	return r.failed || r.at != r.end ? -1 : 0;
}
