/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that turns slow under an open store: nothing hangs, deadlines hold, bytes are right, and what can be
 * computed faster is not offered for loading.
 *
 *     torture_slow DIRECTORY SLOW NORMAL
 *
 * Writing this process's number into the file SLOW makes its I/O slow (a control group of blkio), into NORMAL ends
 * that. tests/torture/ci_slow.sh prepares both.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cairn/cairn.h"

enum {
	LENGTH = 1 << 20,
	DURABLE = 48, /* put while the device is fast; twice the memory tier */
	MORE = 40,    /* put while it is slow */
	TIMEOUT_MS = 200,
	/* How much longer than its deadline a call may take on a busy machine; and a put, which waits a second for a device
	 * that is stuck. The device takes longer than that for what is asked. */
	GRACE_MS = 1500,
};

static uint8_t bytes[LENGTH];
static int failures;

static void fail(const char *what, const char *why)
{
	failures++;
	fprintf(stderr, "torture_slow: %s: %s\n", what, why);
}

static double now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static cairn_key key_of(uint32_t number)
{
	cairn_key key = {{0}};
	memset(key.bytes, 7, sizeof key.bytes);
	memcpy(key.bytes, &number, sizeof number);
	return key;
}

static void fill(uint32_t number)
{
	for (uint32_t i = 0; i < LENGTH; i += 4) {
		uint32_t word = number * 2654435761u + i * 40503u;
		memcpy(bytes + i, &word, 4);
	}
}

static int is_right(uint32_t number)
{
	for (uint32_t i = 0; i < LENGTH; i += 4) {
		uint32_t word = number * 2654435761u + i * 40503u;
		if (memcmp(bytes + i, &word, 4))
			return 0;
	}
	return 1;
}

static int put(cairn *store, const cairn_space *space, uint32_t number, uint32_t durability)
{
	cairn_key key = key_of(number), parent = key_of(number - 1);
	struct cairn_buf buf = cairn_buf_of(bytes, LENGTH);
	struct cairn_item item = {.key = key, .parent = number % DURABLE ? &parent : NULL, .bufs = &buf, .nbufs = 1};
	struct cairn_call call = {.size = sizeof call, .durability = durability};
	fill(number);
	(void)cairn_put(store, space, &item, 1, &call);
	return item.status;
}

static int get(cairn *store, const cairn_space *space, uint32_t number, uint32_t timeout_ms)
{
	struct cairn_buf buf = cairn_buf_of(bytes, LENGTH);
	struct cairn_item item = {.key = key_of(number), .bufs = &buf, .nbufs = 1};
	struct cairn_call call = {.size = sizeof call, .timeout_ms = timeout_ms};
	memset(bytes, 0xee, LENGTH);
	double start = now_ms();
	(void)cairn_get(store, space, &item, 1, &call);
	double took = now_ms() - start;
	if (timeout_ms && took > timeout_ms + GRACE_MS)
		fail("get", "it came long after its deadline");
	if (item.status == CAIRN_OK && !is_right(number))
		fail("get", "wrong bytes");
	for (uint32_t i = 0; item.status == CAIRN_E_LATE && i < LENGTH; i++)
		if (bytes[i] != 0xee)
			return fail("get", "it is late, and has touched its destination"), item.status;
	return item.status;
}

static uint64_t worth(cairn *store, const cairn_space *space, uint64_t *ret_tokens)
{
	cairn_key keys[DURABLE];
	struct cairn_chain chain = {.keys = keys, .nkeys = DURABLE};
	struct cairn_match_info info = {0};
	cairn_match *match;
	for (uint32_t i = 0; i < DURABLE; i++)
		keys[i] = key_of(i);
	if (cairn_match_take(store, space, &chain, 1, 0, 0, &match))
		return fail("match", cairn_error_text()), 0;
	cairn_match_get_info(match, &info);
	cairn_match_release(store, match);
	*ret_tokens = info.tokens;
	return info.worth_tokens;
}

static int move_to(const char *group)
{
	FILE *file = fopen(group, "w");
	if (!file || fprintf(file, "%d\n", (int)getpid()) < 0 || fclose(file)) {
		perror(group);
		return -1;
	}
	return 0;
}

static void while_slow(cairn *store, const cairn_space *space)
{
	uint32_t late = 0;
	for (uint32_t i = 0; i < DURABLE && late < 10; i++) {
		int status = get(store, space, i, TIMEOUT_MS);
		if (status != CAIRN_OK && status != CAIRN_E_LATE)
			fail("get while the device is slow", cairn_status_name(status));
		late += status == CAIRN_E_LATE;
	}
	if (!late)
		fail("get", "nothing was late: the device is not slow");
	for (uint32_t i = 0; i < MORE; i++) {
		double start = now_ms();
		int status = put(store, space, DURABLE + i, CAIRN_DURABLE_NONE);
		if (status != CAIRN_OK && status != CAIRN_E_BUSY)
			fail("put while the device is slow", cairn_status_name(status));
		if (now_ms() - start > 1000 + GRACE_MS)
			fail("put", "a put that promises nothing waited for the device");
	}
	/* One read that may take as long as it takes: now the tier knows. */
	for (uint32_t i = 0; i < 3; i++)
		(void)get(store, space, DURABLE - 1 - i, 0);
	uint64_t tokens = 0, worth_tokens = worth(store, space, &tokens);
	if (tokens != DURABLE * 16)
		fail("match", "the chain is no longer there");
	if (worth_tokens == tokens)
		fail("match", "all is worth loading from a device that is slower than computing");
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return fprintf(stderr, "torture_slow DIRECTORY SLOW NORMAL\n"), 2;
	struct cairn_flash flash = {.budget_bytes = 512ull << 20};
	struct cairn_options options = {
		.size = sizeof options, .flags = CAIRN_OPEN_CREATE, .memory_bytes = 24ull << 20, .flash = &flash, .nflash = 1};
	static const cairn_digest weights = {{1}};
	/* Computing a block takes 20 ms here; loading it should take 1 or 2, and from the slow device 250. */
	struct cairn_space_desc desc = {.size = sizeof desc,
	                                .model = "slow",
	                                .weights = &weights,
	                                .kv_dtype = "f16",
	                                .block_tokens = 16,
	                                .cost_a_s = 0.02 / 16};
	cairn *store;
	cairn_space *space;
	if (cairn_open(argv[1], &options, &store) || cairn_describe(store, &desc, &space))
		return fprintf(stderr, "torture_slow: %s\n", cairn_error_text()), 2;
	for (uint32_t i = 0; i < DURABLE; i++)
		if (put(store, space, i, CAIRN_DURABLE_FLASH) != CAIRN_OK)
			return fprintf(stderr, "torture_slow: %s\n", cairn_error_text()), 2;
	if (move_to(argv[2]))
		return 2;
	while_slow(store, space);
	if (move_to(argv[3]))
		return 2;
	for (uint32_t i = 0; i < DURABLE; i++)
		if (get(store, space, i, 0) != CAIRN_OK)
			fail("get of what was durable", cairn_error_text());
	if (cairn_close(store))
		fail("close", cairn_error_text());
	printf("%d failures\n", failures);
	return failures != 0;
}
