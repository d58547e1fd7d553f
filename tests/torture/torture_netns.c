/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ci_netns.sh has clients do, in namespaces of their own:
 *
 *     torture_netns put PLACE N          puts N parts of 1 MiB, and a small one
 *     torture_netns get PLACE N          gets them in one batch, without a deadline. 0: all right; 3: the peer was lost
 *     torture_netns latency PLACE S      gets the small one for so many seconds: the longest and the mean
 *     torture_netns hold PLACE           holds a match, and says nothing more
 *     torture_netns free PLACE S         waits until nobody holds anything, at most so many seconds
 *
 * Prints what it took.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "cairn/cairn.h"

enum {
	LENGTH = 1 << 20,
	SMALL = 4096,
	PARTS = 128
};

static uint8_t bytes[PARTS][LENGTH];
static cairn *store;
static cairn_space *space;

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int fail(const char *what)
{
	fprintf(stderr, "torture_netns: %s: %s\n", what, cairn_error_text());
	return 1;
}

static void item_make(struct cairn_item *item, struct cairn_buf *buf, int index, uint32_t length)
{
	memset(item, 0, sizeof *item);
	for (int i = 0; i < 32; i++)
		item->key.bytes[i] = (uint8_t)(index * 37 + i * 11 + 1);
	*buf = cairn_buf_of(bytes[index], length);
	item->bufs = buf;
	item->nbufs = 1;
}

static void fill(int index, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		bytes[index][i] = (uint8_t)(index + i % 251);
}

static int is_right(int index, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		if (bytes[index][i] != (uint8_t)(index + i % 251))
			return 0;
	return 1;
}

static int put_all(int n)
{
	struct cairn_item item;
	struct cairn_buf buf;
	struct cairn_call call = {.size = sizeof call, .durability = CAIRN_DURABLE_FLASH};
	double begun = now_s();
	for (int i = 0; i <= n; i++) {
		uint32_t length = i == n ? SMALL : LENGTH;
		item_make(&item, &buf, i == n ? PARTS - 1 : i, length);
		fill(i == n ? PARTS - 1 : i, length);
		if (cairn_put(store, space, &item, 1, &call) != 1)
			return fail("put");
	}
	printf("%.2f s\n", now_s() - begun);
	return 0;
}

static int get_all(int n)
{
	struct cairn_item items[PARTS];
	struct cairn_buf bufs[PARTS];
	double begun = now_s();
	for (int i = 0; i < n; i++)
		item_make(&items[i], &bufs[i], i, LENGTH);
	long got = cairn_get(store, space, items, (size_t)n, NULL);
	printf("%.2f s\n", now_s() - begun);
	for (int i = 0; i < n; i++)
		if (items[i].status == CAIRN_OK && !is_right(i, LENGTH))
			return fail("wrong bytes");
	if (got == n)
		return 0;
	return items[n - 1].status == CAIRN_E_IO ? 3 : fail("get");
}

static int latency(double seconds)
{
	struct cairn_item item;
	struct cairn_buf buf;
	double begun = now_s(), most = 0;
	long n = 0;
	for (; now_s() - begun < seconds; n++) {
		double at = now_s();
		item_make(&item, &buf, PARTS - 1, SMALL);
		if (cairn_get(store, space, &item, 1, NULL) != 1 || !is_right(PARTS - 1, SMALL))
			return fail("get");
		most = now_s() - at > most ? now_s() - at : most;
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	printf("%.1f ms at most, of %ld\n", most * 1e3, n);
	return 0;
}

static int hold(void)
{
	struct cairn_item item;
	struct cairn_buf buf;
	cairn_match *match;
	item_make(&item, &buf, 0, LENGTH);
	struct cairn_chain chain = {0, &item.key, 1};
	if (cairn_match_take(store, space, &chain, 1, 0, 600000, &match))
		return fail("match");
	printf("holds\n");
	fflush(stdout);
	for (;;)
		pause();
}

static int wait_free(double seconds)
{
	struct cairn_stat stat = {.size = sizeof stat};
	double begun = now_s();
	do {
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		if (cairn_stat(store, &stat))
			return fail("stat");
	} while ((stat.matches || stat.leased_bytes) && now_s() - begun < seconds);
	printf("%.2f s\n", now_s() - begun);
	return stat.matches || stat.leased_bytes ? fail("somebody who is dead holds something still") : 0;
}

int main(int argc, char **argv)
{
	static const cairn_digest weights = {{9}};
	struct cairn_space_desc desc = {
		.size = sizeof desc, .model = "netns", .weights = &weights, .kv_dtype = "f16", .block_tokens = 16};
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* the script ends the shell that started it */
	if (argc < 3)
		return 2;
	const char *verb = argv[1];
	double number = argc > 3 ? atof(argv[3]) : 0;
	int n = number < PARTS - 1 ? (int)number : PARTS - 1;
	if (cairn_open(argv[2], NULL, &store) || cairn_describe(store, &desc, &space))
		return fail("open");
	int result = !strcmp(verb, "put")       ? put_all(n)
	             : !strcmp(verb, "get")     ? get_all(n)
	             : !strcmp(verb, "latency") ? latency(number)
	             : !strcmp(verb, "hold")    ? hold()
	             : !strcmp(verb, "free")    ? wait_free(number)
	                                        : 2;
	if (cairn_close(store) && !result)
		result = fail("close");
	return result;
}
