/* SPDX-License-Identifier: Apache-2.0 */
/* src/fmt/wire.c: frames and requests, whole, cut short, changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "fmt/wire.h"

static struct wire_request request, again;
static cairn_key keys[5];
static uint8_t tails[512];

static void names(struct wire_name *name)
{
	memcpy(name->tenant, "t", 2);
	memcpy(name->owner, "somebody", 9);
	memcpy(name->name, "a name", 7);
}

/* A request of each type with something in every field. */
static void request_make(uint32_t type)
{
	struct wire_item item = {.key = keys[1], .parent = keys[0], .has_parent = 1, .flags = 1, .group = 2, .part = 3,
	                         .offset = 4096, .length = 77};
	struct wire_chain chain = {1, 5, keys};
	memset(&request, 0, sizeof(request));
	request.type = type;
	switch (type) {
	case WIRE_HELLO:
		memcpy(request.u.hello.program, "test", 5);
		memset(request.u.hello.client, 9, 16);
		request.u.hello.has_token = 1;
		memset(request.u.hello.secret, 7, 32);
		break;
	case WIRE_DESCRIBE:
		request.u.describe = (struct wire_describe){0.5, 0.25, sizeof(keys), (const uint8_t *)keys};
		break;
	case WIRE_PUT:
	case WIRE_GET:
	case WIRE_LEASE:
	case WIRE_FETCH:
		request.u.batch.space = 3;
		request.u.batch.durability = 2;
		request.u.batch.nitems = 3;
		for (uint32_t i = 0; i < 3; i++)
			request.u.batch.items[i] = item;
		if (type == WIRE_PUT) { /* the others have none */
			request.u.batch.items[1].hash_bytes = 20;
			memset(request.u.batch.items[1].hash, 6, 20);
		}
		break;
	case WIRE_RELEASE:
	case WIRE_MATCH_RELEASE:
		request.u.release.n = 4;
		request.u.release.numbers = (const uint8_t *)keys;
		break;
	case WIRE_MATCH:
		request.u.match.parts = 7;
		request.u.match.nchains = 2;
		request.u.match.chains[0] = request.u.match.chains[1] = chain;
		break;
	case WIRE_MATCH_JOIN:
		request.u.join.space = 4;
		memset(request.u.join.ticket.bytes, 8, sizeof(request.u.join.ticket.bytes));
		break;
	case WIRE_MATCH_AGREE:
		request.u.agree = (struct wire_agree){1ull << 32 | 1, 4096, 8};
		break;
	case WIRE_PRESENCE:
		request.u.presence = (struct wire_presence){.parts = 5, .tails = 1, .keys = {0, 5, keys}};
		memset(request.u.presence.space.bytes, 6, 32);
		break;
	case WIRE_HINT:
		request.u.hint = (struct wire_hint){1, 2, chain};
		break;
	case WIRE_SAVE: {
		struct bytes_writer w = bytes_writer_of(tails, sizeof(tails));
		wire_add_item(&w, &item);
		wire_add_item(&w, &item);
		request.u.save.nchains = 1;
		request.u.save.chains[0] = chain;
		request.u.save.ntails = 2;
		request.u.save.tails = bytes_reader_of(tails, w.used);
		request.u.save.state = (const uint8_t *)keys;
		request.u.save.state_bytes = 11;
		request.u.save.ttl_s = 5;
		names(&request.u.save.name);
		break;
	}
	case WIRE_RESUME:
	case WIRE_FORGET:
	case WIRE_CLOSE:
		names(&request.u.name);
		break;
	case WIRE_PIN:
		names(&request.u.pin.name);
		request.u.pin.ttl_s = 60;
		break;
	case WIRE_DROP:
		request.u.drop.scope = WIRE_DROP_TENANT;
		request.u.drop.keys = chain;
		break;
	default:
		break;
	}
}

static void test_wire__request_comes_back_when_encoded(void **state)
{
	(void)state;
	uint8_t bytes[4096], second[4096];
	for (uint32_t type = WIRE_HELLO; type < WIRE_TYPES; type++) {
		request_make(type);
		struct bytes_writer w = bytes_writer_of(bytes, sizeof(bytes));
		wire_request_encode(&request, &w);
		assert_false(w.failed);
		assert_int_equal(wire_request_decode(type, bytes, w.used, &again), 0);
		struct bytes_writer v = bytes_writer_of(second, sizeof(second));
		wire_request_encode(&again, &v);
		assert_int_equal(v.used, w.used);
		assert_memory_equal(bytes, second, w.used);
		/* Cut short anywhere, or longer by a byte, it is none. */
		for (size_t cut = 0; cut < w.used; cut++)
			assert_int_equal(wire_request_decode(type, bytes, cut, &again), -1);
		assert_int_equal(wire_request_decode(type, bytes, w.used + 1, &again), -1);
	}
	assert_int_equal(wire_request_decode(0, bytes, 0, &again), -1);
	assert_int_equal(wire_request_decode(WIRE_TYPES, bytes, 0, &again), -1);
}

static void test_wire__request_is_refused_when_counts_are_too_large(void **state)
{
	(void)state;
	uint8_t bytes[256] = {0};
	bytes_set32(bytes + 12, WIRE_ITEMS_MAX + 1); /* items */
	assert_int_equal(wire_request_decode(WIRE_PUT, bytes, sizeof(bytes), &again), -1);
	memset(bytes, 0, sizeof(bytes));
	bytes_set32(bytes + 12, 1);
	bytes_set32(bytes + 16 + 96, 1); /* with an engine's hash, that is too long */
	bytes_set32(bytes + 16 + 96 + 4, CAIRN_HASH_MAX + 1);
	assert_int_equal(wire_request_decode(WIRE_PUT, bytes, 16 + 96 + 4 + 36, &again), -1);
	bytes_set32(bytes + 16 + 96 + 4, CAIRN_HASH_MAX);
	assert_int_equal(wire_request_decode(WIRE_PUT, bytes, 16 + 96 + 4 + 36, &again), 0);
	memset(bytes, 0, sizeof(bytes));
	bytes_set32(bytes + 4, WIRE_CHAINS_MAX + 1);
	assert_int_equal(wire_request_decode(WIRE_MATCH, bytes, sizeof(bytes), &again), -1);
	memset(bytes, 0, sizeof(bytes));
	bytes_set32(bytes + 4, 1);
	bytes_set64(bytes + 20, UINT64_MAX / 32 + 2); /* keys: times 32 it is a small number */
	assert_int_equal(wire_request_decode(WIRE_MATCH, bytes, 28 + 32, &again), -1);
	memset(bytes, 0, sizeof(bytes));
	bytes_set32(bytes, UINT32_MAX / 8 + 2);
	assert_int_equal(wire_request_decode(WIRE_RELEASE, bytes, sizeof(bytes), &again), -1);
	/* A text with a 0 in it would be another one behind the decoder. */
	bytes_set16(bytes, 3);
	memcpy(bytes + 2, "a\0b", 3);
	assert_int_equal(wire_request_decode(WIRE_HELLO, bytes, 2 + 3 + 16 + 44, &again), -1);
}

static void test_wire__frame_is_refused_when_a_bit_is_wrong(void **state)
{
	(void)state;
	uint8_t bytes[WIRE_HEAD_BYTES], body[100];
	struct wire_head head = {.version = WIRE_VERSION, .type = WIRE_PUT, .flags = WIRE_REPLY, .nfds = 2, .id = 77,
	                         .result = -5, .body_bytes = sizeof(body), .timeout_ms = 9, .bulk_bytes = 1u << 20};
	struct wire_head back;
	memset(body, 0x5a, sizeof(body));
	wire_head_encode(&head, body, bytes);
	assert_int_equal(wire_head_decode(bytes, &back), 0);
	assert_true(wire_is_whole(bytes, body, sizeof(body)));
	assert_int_equal(back.result, -5);
	assert_int_equal(back.id, 77);
	assert_true(back.bulk_bytes == 1u << 20);
	for (uint32_t bit = 0; bit < (WIRE_HEAD_BYTES + sizeof(body)) * 8; bit++) {
		uint8_t *at = bit / 8 < WIRE_HEAD_BYTES ? &bytes[bit / 8] : &body[bit / 8 - WIRE_HEAD_BYTES];
		*at ^= (uint8_t)(1 << bit % 8);
		int good = !wire_head_decode(bytes, &back) && back.body_bytes == sizeof(body) &&
		           wire_is_whole(bytes, body, sizeof(body));
		assert_false(good);
		*at ^= (uint8_t)(1 << bit % 8);
	}
}

static void test_wire__struct_is_zero_beyond_what_came(void **state)
{
	(void)state;
	uint8_t bytes[64];
	uint32_t sent[3] = {1, 2, 3}, taken[5] = {9, 9, 9, 9, 9};
	struct bytes_writer w = bytes_writer_of(bytes, sizeof(bytes));
	wire_add_struct(&w, sent, sizeof(sent));
	struct bytes_reader r = bytes_reader_of(bytes, w.used);
	wire_take_struct(&r, taken, sizeof(taken));
	assert_false(r.failed);
	assert_int_equal(taken[2], 3);
	assert_int_equal(taken[3], 0);
	r = bytes_reader_of(bytes, w.used);
	wire_take_struct(&r, taken, 4); /* an older reader */
	assert_false(r.failed);
	assert_int_equal(taken[0], 1);
	assert_int_equal(taken[1], 2);
	assert_ptr_equal(r.at, r.end);
}

static int present_failed(const struct wire_found *found, uint32_t n, double wait_s, uint32_t nkeys)
{
	uint8_t bytes[256];
	struct bytes_writer w = bytes_writer_of(bytes, sizeof(bytes));
	struct wire_present present;
	wire_add_present(&w, wait_s, 1e9, n);
	for (uint32_t i = 0; i < n; i++)
		wire_add_found(&w, &found[i]);
	struct bytes_reader r = bytes_reader_of(bytes, w.used);
	wire_take_present(&r, nkeys, &present);
	return r.failed;
}

static void test_wire__a_peers_answer_is_refused_when_it_can_not_be_one(void **state)
{
	(void)state;
	const struct wire_found good[2] = {
	    {.key = 1, .part = 63, .tier = CAIRN_TIER_MEMORY, .length = 1, .check = 1},
	    {.key = 4, .part = 0, .tier = CAIRN_TIER_FLASH, .tail = 1, .length = CAIRN_PART_MAX_BYTES, .check = 2}};
	struct wire_found found[2];
	assert_false(present_failed(good, 2, 0.5, 5));
	assert_false(present_failed(good, 0, 0, 0));
	assert_true(present_failed(good, 2, 0.5, 4)); /* a key that was not asked for */
	assert_true(present_failed(good, 2, -1, 5));
	assert_true(present_failed(good, 2, 0.0 / 0.0, 5));
	for (int field = 0; field < 5; field++) {
		memcpy(found, good, sizeof(found));
		if (field == 0)
			found[0].length = CAIRN_PART_MAX_BYTES + 1;
		if (field == 1)
			found[0].length = 0;
		if (field == 2)
			found[0].part = 64;
		if (field == 3)
			found[0].tier = CAIRN_TIER_PEER; /* what a peer's peer has is not its own */
		if (field == 4)
			found[1].key = 0; /* out of order */
		assert_true(present_failed(found, 2, 0.5, 5));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wire__request_comes_back_when_encoded),
		cmocka_unit_test(test_wire__request_is_refused_when_counts_are_too_large),
		cmocka_unit_test(test_wire__frame_is_refused_when_a_bit_is_wrong),
		cmocka_unit_test(test_wire__a_peers_answer_is_refused_when_it_can_not_be_one),
		cmocka_unit_test(test_wire__struct_is_zero_beyond_what_came),
	};
	struct random random;
	random_init(&random, 1);
	for (size_t i = 0; i < sizeof(keys); i++)
		((uint8_t *)keys)[i] = (uint8_t)random_next(&random);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
