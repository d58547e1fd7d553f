/* SPDX-License-Identifier: Apache-2.0 */
/* src/store/remote*.c over src/daemon: the same calls, the same results; clients that die, lie and come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "store/remote.h"
#include "unit/served_lib.h"

enum {
	LENGTH = 50000
};

/* ---- the same results -------------------------------------------------------------------------------------------- */

static int count_calls(void *arg, const struct cairn_session_info *info)
{
	assert_string_equal(info->name, "talk");
	assert_string_equal(info->owner, "me");
	++*(int *)arg;
	return 0;
}

static int count_parts(void *arg, const struct cairn_part_info *info)
{
	*(uint64_t *)arg += info->bytes;
	return 0;
}

static int find_space(void *arg, const struct cairn_space_info *info)
{
	*(int *)arg += strstr(info->text, "kv_dtype = bf16") != NULL;
	return 0;
}

/* A script over a store, wherever it is. All that is looked at is what a user sees. */
static void script(cairn *store)
{
	cairn_space *space = space_named(store, NULL, "m"), *parts = space_of_parts(store, "p", 3, 0);
	assert_int_equal(put_chain(store, space, 1, 0, 300, LENGTH, 0), 300);
	assert_int_equal(put_chain(store, space, 1, 0, 300, LENGTH, CAIRN_DURABLE_FLASH), 300); /* there already */
	for (uint32_t i = 0; i < 300; i++) {
		cairn_key key = key_at(1, i);
		assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	}
	assert_int_equal(match_tokens(store, space, 1, 320), 300 * 16);
	cairn_key key = key_at(2, 0), none = key_at(3, 0);
	assert_int_equal(get_status(store, space, &none, LENGTH), CAIRN_MISS);
	for (uint32_t part = 0; part < 3; part++) {
		struct put_one put = {.key = key, .part = part, .length = 777 + part};
		assert_int_equal(put_item(store, parts, &put).status, CAIRN_OK);
		assert_int_equal(get_item(store, parts, &key, part, 777 + part).status, CAIRN_OK);
	}
	assert_int_equal(match_tokens(store, parts, 2, 1), 16);
	/* Sizes. */
	struct put_one other = {.key = key_at(1, 0), .length = LENGTH + 1};
	struct cairn_item item = put_item(store, space, &other);
	assert_int_equal(item.status, CAIRN_E_CONFLICT);
	assert_int_equal(item.ret_bytes, LENGTH);
	uint8_t small[10];
	struct cairn_buf buf = cairn_buf_of(small, sizeof small);
	item = (struct cairn_item){.key = key_at(1, 0), .bufs = &buf, .nbufs = 1};
	assert_int_equal(cairn_get(store, space, &item, 1, NULL), 0);
	assert_int_equal(item.status, CAIRN_E_SIZE);
	assert_int_equal(item.ret_bytes, LENGTH);
	/* Sessions. */
	cairn_key keys[10];
	for (uint32_t i = 0; i < 10; i++)
		keys[i] = key_at(1, i);
	struct cairn_chain chain = {0, keys, 10};
	uint8_t tail_bytes[333];
	cairn_key tail_key = key_at(9, 9);
	pattern_fill(tail_bytes, sizeof tail_bytes, &tail_key, 0, 0);
	struct cairn_buf tail_buf = cairn_buf_of(tail_bytes, sizeof tail_bytes);
	struct cairn_item tail = {
		.key = tail_key, .parent = &keys[9], .bufs = &tail_buf, .nbufs = 1, .flags = CAIRN_ITEM_TAIL};
	struct cairn_save save = {.size = sizeof save, .name = {NULL, "me", "talk"}, .chains = &chain, .nchains = 1,
	                          .tails = &tail, .ntails = 1, .state = "state", .state_bytes = 5, .tokens = 163,
	                          .pin = 1};
	assert_int_equal(cairn_session_save(store, space, &save), 0);
	cairn_session *session;
	assert_int_equal(cairn_session_resume(store, &save.name, &session), 0);
	struct cairn_session_info info = {.size = sizeof info};
	cairn_session_get_info(session, &info);
	assert_int_equal(info.tokens, 163);
	assert_int_equal(info.pinned, 1);
	assert_int_equal(info.ntails, 1);
	uint64_t state_bytes;
	assert_memory_equal(cairn_session_state(session, &state_bytes), "state", 5);
	struct cairn_chain back;
	assert_int_equal(cairn_session_chain(session, 0, &back), 0);
	assert_int_equal(back.nkeys, 10);
	assert_memory_equal(back.keys, keys, sizeof keys);
	struct cairn_tail_info tail_info;
	assert_int_equal(cairn_session_tail(session, 0, &tail_info), 0);
	assert_memory_equal(&tail_info.key, &tail_key, 32);
	cairn_space *again;
	assert_int_equal(cairn_session_space(store, session, &again), 0);
	assert_ptr_equal(again, space);
	assert_int_equal(get_status(store, space, &tail_key, sizeof tail_bytes), CAIRN_OK);
	cairn_session_free(session);
	int calls = 0, spaces = 0;
	assert_int_equal(cairn_session_list(store, NULL, count_calls, &calls), 1);
	assert_int_equal(cairn_session_list(store, "nobody", count_calls, &calls), 0);
	assert_int_equal(calls, 1);
	save.name.name = "nobody";
	assert_int_equal(cairn_session_resume(store, &save.name, &session), CAIRN_E_NOENT);
	assert_int_equal(cairn_session_pin(store, &save.name, 0, 0), CAIRN_E_NOENT);
	save.name.name = "talk";
	assert_int_equal(cairn_session_pin(store, &save.name, 0, 3600), 0);
	assert_int_equal(cairn_session_close(store, &save.name), 0);
	assert_int_equal(cairn_session_forget(store, &save.name), 0);
	assert_int_equal(cairn_session_list(store, NULL, count_calls, &calls), 0);
	/* Lists, explanations, statistics, events. */
	uint64_t bytes = 0;
	cairn_digest id;
	cairn_space_get_id(parts, &id);
	assert_int_equal(cairn_list_parts(store, &id, count_parts, &bytes), 3);
	assert_int_equal(bytes, 777 + 778 + 779);
	assert_true(cairn_list_parts(store, NULL, count_parts, &bytes) >= 303);
	assert_int_equal(cairn_list_spaces(store, find_space, &spaces), 2);
	assert_int_equal(spaces, 2);
	assert_int_equal(why(store, parts, &key), CAIRN_WHY_PRESENT);
	assert_int_equal(cairn_drop(store, parts, &key, 1), 3);
	assert_int_equal(why(store, parts, &key), CAIRN_WHY_DROPPED);
	assert_int_equal(get_item(store, parts, &key, 0, 777).status, CAIRN_MISS);
	assert_int_equal(cairn_hint(store, space, &chain, CAIRN_HINT_RESUME), 0);
	assert_int_equal(cairn_hint(store, space, &chain, CAIRN_HINT_CLOSE), 0);
	assert_int_equal(cairn_sync(store), 0);
	struct cairn_event events[100];
	assert_int_equal(cairn_events(store, 0, events, 100), 100);
	assert_int_equal(events[99].sequence, 100);
	struct cairn_stat stat = stat_of(store);
	assert_int_equal(stat.ndevices, 1);
	assert_true(stat.put_exists >= 300 && stat.misses >= 2);
	assert_int_equal(stat.leased_bytes, 0);
	assert_int_equal(stat.matches, 0);
	cairn_space_get_id(space, &id);
	assert_int_equal(cairn_drop_space(store, &id), 301); /* the tail, too: it stays until it is evicted */
	assert_int_equal(cairn_drop_tenant(store, "default"), 0);
	struct cairn_space_desc unknown = lib_desc(NULL, "u");
	unknown.weights = NULL;
	cairn_space *misses;
	assert_int_equal(cairn_describe(store, &unknown, &misses), 0);
	assert_int_equal(put_status(store, misses, &key, NULL, 10, 0), CAIRN_E_UNKNOWN);
}

static void test_remote__gives_what_a_directory_gives(void **state)
{
	(void)state;
	struct place place;
	place_init(&place, 128 * MIB, 64 * MIB);
	cairn *store = place_open(&place);
	script(store);
	assert_int_equal(cairn_close(store), 0);
	place_done(&place);
	struct served served;
	served_begin(&served, 64 * MIB, 0);
	store = served_client(&served);
	script(store);
	assert_int_equal(cairn_close(store), 0);
	served_end(&served);
	served_begin(&served, 64 * MIB, 1);
	store = served_client(&served);
	script(store);
	assert_int_equal(cairn_close(store), 0);
	served_end(&served);
}

static void test_remote__is_asked_when_directory_is_owned(void **state)
{
	(void)state;
	struct served served;
	char file[200];
	served_begin(&served, 16 * MIB, 0);
	cairn *store;
	assert_int_equal(cairn_open(served.place.path, &served.place.options, &store), CAIRN_E_OWNED);
	snprintf(file, sizeof file, "%s/daemon", served.place.path);
	FILE *out = fopen(file, "w");
	assert_non_null(out);
	fprintf(out, "%s\n", served.socket);
	fclose(out);
	store = place_open(&served.place);
	assert_non_null(store->remote);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 3, LENGTH, 0);
	assert_int_equal(match_tokens(store, space, 1, 3), 48);
	assert_int_equal(cairn_close(store), 0);
	assert_int_equal(cairn_open("unix:/nonexistent/socket", NULL, &store), CAIRN_E_NOENT);
	served_end(&served);
	/* It is gone, and its file tells of it still: the directory can be opened. */
	place_init(&served.place, 64 * MIB, 16 * MIB);
	store = place_open(&served.place);
	assert_null(store->remote);
	assert_int_equal(cairn_close(store), 0);
	place_done(&served.place);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void test_remote__cannot_write_when_it_reads_in_place(void **state)
{
	(void)state;
	struct served served;
	served_begin(&served, 16 * MIB, 0);
	cairn *store = served_client(&served);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 2, LENGTH, 0);
	cairn_lease *lease = served_lease(store, space, 1, 1);
	struct cairn_lease_info info;
	cairn_lease_get_info(lease, &info);
	cairn_key key = key_at(1, 1);
	assert_int_equal(info.bytes, LENGTH);
	assert_true(pattern_is(info.address, LENGTH, &key, 0, 0));
	assert_true(cairn_check(info.address, LENGTH) == info.check);
	struct stat stat;
	assert_int_equal(fstat(info.fd, &stat), 0);
	size_t length = (size_t)stat.st_size;
	/* As the process that holds it, through whatever way (the suite runs as root, too). */
	assert_ptr_equal(mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, info.fd, 0), MAP_FAILED);
	void *readable = mmap(NULL, length, PROT_READ, MAP_SHARED, info.fd, 0);
	assert_ptr_not_equal(readable, MAP_FAILED);
	assert_int_equal(mprotect(readable, length, PROT_READ | PROT_WRITE), -1);
	munmap(readable, length);
	assert_int_equal(pwrite(info.fd, "x", 1, (off_t)info.fd_offset), -1);
	assert_int_equal(ftruncate(info.fd, 0), -1);
	assert_int_equal(ftruncate(info.fd, 2 * (off_t)length), -1);
	assert_int_equal(fallocate(info.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	(void)fchmod(info.fd, 0777);
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", info.fd);
	int again = open(path, O_RDWR);
	if (again >= 0) {
		assert_int_equal(pwrite(again, "x", 1, (off_t)info.fd_offset), -1);
		assert_ptr_equal(mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
		close(again);
	}
	assert_true(pattern_is(info.address, LENGTH, &key, 0, 0));
	cairn_lease_release(store, lease);
	assert_int_equal(cairn_close(store), 0);
	served_end(&served);
}

/* Turns a bit of a part that the daemon has in memory. */
static void damage_in_memory(struct served *served, const cairn_key *key, size_t at)
{
	cairn *own = served->daemon.store;
	cairn_space *same = space_named(own, NULL, "m");
	pthread_mutex_lock(&own->lock);
	uint32_t entry = catalog_find(own->catalog, same->number, key->bytes, 0);
	uint32_t slot = catalog_at(own->catalog, entry)->slot;
	if (slot)
		((uint8_t *)memory_address(own->memory, slot))[at] ^= 1;
	pthread_mutex_unlock(&own->lock);
	assert_true(slot);
}

static void test_remote__misses_when_memory_is_damaged(void **state)
{
	(void)state;
	struct served served = {0};
	place_init(&served.place, 128 * MIB, 16 * MIB);
	served.place.options.flash_write_bytes_day = 1; /* or flash may have a good one by then */
	served_start(&served);
	cairn *store = served_client(&served);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 1, LENGTH, 0);
	cairn_key key = key_at(1, 0);
	damage_in_memory(&served, &key, LENGTH / 2);
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_DAMAGED); /* zeroed, says get_item */
	assert_int_equal(cairn_close(store), 0);
	served_end(&served);
}

/* More than may be leased at once: what is refused comes in a later round, or as a copy. */
static void test_remote__gets_all_when_leases_are_bounded(void **state)
{
	(void)state;
	enum {
		BLOCKS = 24,
		LARGE = 700000
	};
	struct served served;
	served_begin(&served, 16 * MIB, 0);
	served.place.options.segment_bytes = 4 * MIB;
	cairn *store = served_client(&served);
	cairn_space *space = space_named(store, NULL, "m");
	/* Half of a segment of 1 MiB is the most: parts below. */
	enum {
		PART = LARGE / 2
	};
	assert_int_equal(put_chain(store, space, 1, 0, BLOCKS, PART, CAIRN_DURABLE_FLASH), BLOCKS);
	struct cairn_item items[BLOCKS];
	struct cairn_buf bufs[BLOCKS];
	uint8_t *bytes = malloc((size_t)BLOCKS * PART);
	cairn_lease *leases[BLOCKS];
	uint32_t held = 0;
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < BLOCKS; i++) {
			bufs[i] = cairn_buf_of(bytes + (size_t)i * PART, PART);
			items[i] = (struct cairn_item){.key = key_at(1, i), .bufs = &bufs[i], .nbufs = 1};
		}
		assert_int_equal(cairn_get(store, space, items, BLOCKS, NULL), BLOCKS);
		for (uint32_t i = 0; i < BLOCKS; i++) {
			assert_int_equal(items[i].status, CAIRN_OK);
			assert_true(pattern_is(bytes + (size_t)i * PART, PART, &items[i].key, 0, 0));
		}
		/* And again with all that may be leased in somebody's hands. */
		for (int status = 0; !round && !status && held < BLOCKS; held += !status) {
			struct cairn_item item = {.key = key_at(1, held)};
			status = cairn_lease_take(store, space, &item, NULL, &leases[held]);
			assert_true(!status || status == CAIRN_E_BUSY);
		}
	}
	assert_true(held > 0 && held < BLOCKS);
	for (uint32_t i = 0; i < held; i++)
		cairn_lease_release(store, leases[i]);
	free(bytes);
	assert_int_equal(cairn_close(store), 0);
	served_end(&served);
}

/* ---- clients that come and go ------------------------------------------------------------------------------------ */

/* From another server: a part larger than a reply carries, a damaged one, one that does not fit, a lease as a copy. */
static void test_remote__checks_what_travels(void **state)
{
	(void)state;
	enum {
		LARGE = 450000,
		BLOCKS = 100
	};
	struct served served;
	served_begin(&served, 64 * MIB, 1);
	cairn *store = served_client(&served);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, BLOCKS, LARGE, CAIRN_DURABLE_FLASH), BLOCKS);
	struct cairn_item items[BLOCKS];
	struct cairn_buf bufs[BLOCKS][2];
	uint8_t *bytes = malloc((size_t)BLOCKS * LARGE);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		uint8_t *at = bytes + (size_t)i * LARGE;
		bufs[i][0] = cairn_buf_of(at, 1001);
		bufs[i][1] = cairn_buf_of(at + 1001, i == 7 ? 5 : LARGE - 1001);
		items[i] = (struct cairn_item){.key = key_at(1, i), .bufs = bufs[i], .nbufs = 2};
	}
	cairn *own = served.daemon.store;
	cairn_space *same = space_named(own, NULL, "m");
	cairn_key bad = key_at(1, 3);
	assert_int_equal(get_status(own, same, &bad, LARGE), CAIRN_OK); /* in memory now, if it was not */
	damage_in_memory(&served, &bad, 77);
	assert_int_equal(cairn_get(store, space, items, BLOCKS, NULL), BLOCKS - 1); /* more than one reply's bytes */
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_MEMORY].damaged_parts, 1); /* flash had a good one */
	for (uint32_t i = 0; i < BLOCKS; i++) {
		const uint8_t *at = bytes + (size_t)i * LARGE;
		if (i == 7) {
			assert_int_equal(items[i].status, CAIRN_E_SIZE);
			assert_int_equal(items[i].ret_bytes, LARGE);
		} else {
			assert_true(pattern_is(at, LARGE, &items[i].key, 0, 0));
		}
	}
	cairn_lease *lease = served_lease(store, space, 1, 50);
	struct cairn_lease_info info;
	cairn_lease_get_info(lease, &info);
	assert_int_equal(info.fd, -1);
	assert_true(pattern_is(info.address, LARGE, &items[50].key, 0, 0));
	assert_true(cairn_check(info.address, LARGE) == info.check);
	cairn_lease_release(store, lease);
	/* The daemon lets go of a reply's parts after it was sent. */
	for (int64_t until = link_now_ms() + 10000; stat_of(store).leased_bytes && link_now_ms() < until;)
		continue;
	assert_int_equal(stat_of(store).leased_bytes, 0);
	free(bytes);
	assert_int_equal(cairn_close(store), 0);
	served_end(&served);
}

/* Somebody holds all that may be leased, as receivers do that take their time: others get copies. */
static void test_remote__fetches_all_when_others_hold_the_leases(void **state)
{
	(void)state;
	enum {
		BLOCKS = 60,
		PART = 300000
	};
	struct served served;
	served_begin(&served, 16 * MIB, 1);
	cairn *store = served_client(&served), *own = served.daemon.store;
	cairn_space *space = space_named(store, NULL, "m"), *same = space_named(own, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, BLOCKS, PART, CAIRN_DURABLE_FLASH), BLOCKS);
	cairn_lease *leases[BLOCKS];
	uint32_t held = 0;
	for (int status = 0; !status && held < BLOCKS; held += !status) {
		struct cairn_item item = {.key = key_at(1, held)};
		status = cairn_lease_take(own, same, &item, NULL, &leases[held]);
		assert_true(!status || status == CAIRN_E_BUSY);
	}
	assert_true(held > 0 && held < BLOCKS);
	struct cairn_item items[BLOCKS];
	struct cairn_buf bufs[BLOCKS];
	uint8_t *bytes = malloc((size_t)BLOCKS * PART);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		bufs[i] = cairn_buf_of(bytes + (size_t)i * PART, PART);
		items[i] = (struct cairn_item){.key = key_at(1, i), .bufs = &bufs[i], .nbufs = 1};
	}
	assert_int_equal(cairn_get(store, space, items, BLOCKS, NULL), BLOCKS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_true(pattern_is(bytes + (size_t)i * PART, PART, &items[i].key, 0, 0));
	for (uint32_t i = 0; i < held; i++)
		cairn_lease_release(own, leases[i]);
	free(bytes);
	assert_int_equal(cairn_close(store), 0);
	served_end(&served);
}

/* A put as another server sends it: `n` parts of 1,000 bytes, each with its checksum behind it, of which `bytes` leave.
 * The payload of part i begins at i * 1008. */
static void put_raw(cairn *store, cairn_space *space, struct remote_link *link, const uint8_t *payload, uint32_t n,
                    size_t bytes)
{
	struct wire_request *request = calloc(1, sizeof *request);
	request->type = WIRE_PUT;
	assert_int_equal(remote_space_number(store->remote, link, space, &request->u.batch.space), 0);
	request->u.batch.nitems = n;
	for (uint32_t i = 0; i < n; i++) {
		request->u.batch.items[i].key = key_at(4, i);
		request->u.batch.items[i].offset = i * 1008;
		request->u.batch.items[i].length = 1000;
	}
	assert_int_equal(remote_send(link, request, 0, n * 1008), 0);
	assert_int_equal(link_send_bytes(link->net, payload, bytes), 0);
	free(request);
}

static void payload_fill(uint8_t *payload, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		memset(payload + i * 1008, 3 + (int)i, 1000);
		uint64_t check = cairn_check(payload + i * 1008, 1000);
		memcpy(payload + i * 1008 + 1000, &check, 8);
	}
}

/* A put of which one part changes on its way: nothing is stored under its key, the others are there. */
static void test_remote__stores_nothing_when_bytes_change_on_their_way(void **state)
{
	(void)state;
	enum {
		PARTS = 3
	};
	struct served served;
	served_begin(&served, 16 * MIB, 1);
	cairn *store = served_client(&served);
	cairn_space *space = space_named(store, NULL, "m");
	struct wire_head head;
	struct link_buffer body = {0};
	uint8_t payload[PARTS * 1008];
	int error, fds[WIRE_FDS_MAX];
	struct remote_link *link = remote_link_take(store->remote, 0, &error);
	assert_non_null(link);
	payload_fill(payload, PARTS);
	payload[1500] ^= 1;
	for (int whole = 0; whole < 2; whole++) {
		put_raw(store, space, link, payload, PARTS, sizeof payload);
		assert_int_equal(link_receive(link->net, 10000, &head, &body, fds), 0);
		assert_int_equal(head.result, whole ? PARTS : PARTS - 1);
		for (uint32_t i = 0; i < PARTS; i++) {
			cairn_key key = key_at(4, i);
			assert_int_equal(why(store, space, &key), whole || i != 1 ? CAIRN_WHY_PRESENT : CAIRN_WHY_NONE);
		}
		payload[1500] ^= 1;
	}
	remote_link_drop(store->remote, link, 1);
	link_buffer_done(&body);
	assert_int_equal(cairn_close(store), 0);
	served_end(&served);
}

/* A client that dies in the middle of a part that was being received into memory: it is not there, another client puts
 * it at once, and no memory is lost. */
static void test_remote__forgets_part_when_sender_dies_within_it(void **state)
{
	(void)state;
	enum {
		PARTS = 3
	};
	struct served served;
	served_begin(&served, 16 * MIB, 1);
	cairn *store = served_client(&served);
	cairn_space *space = space_named(store, NULL, "m");
	uint8_t payload[PARTS * 1008];
	payload_fill(payload, PARTS);
	uint64_t used = stat_of(store).tier[CAIRN_TIER_MEMORY].used_bytes;
	for (uint32_t round = 0; round < 40; round++) {
		int error;
		struct remote_link *link = remote_link_take(store->remote, 0, &error);
		assert_non_null(link);
		put_raw(store, space, link, payload, PARTS, 1008 + 17 * round);
		remote_link_drop(store->remote, link, 1);
		for (uint32_t i = 0; i < PARTS; i++) { /* waits for the other writer, if that has not ended */
			struct cairn_buf buf = cairn_buf_of(payload + i * 1008, 1000);
			struct cairn_item item = {.key = key_at(4, i), .bufs = &buf, .nbufs = 1};
			struct cairn_call call = {.size = sizeof call, .timeout_ms = 20000};
			assert_int_equal(cairn_put(store, space, &item, 1, &call), 1);
			uint8_t back[1000];
			struct cairn_buf to = cairn_buf_of(back, sizeof back);
			item.bufs = &to;
			assert_int_equal(cairn_get(store, space, &item, 1, NULL), 1);
			assert_memory_equal(back, payload + i * 1008, 1000);
			assert_int_equal(cairn_drop(store, space, &item.key, 1), 1);
		}
	}
	/* What the last of them sent may be looked at only now, and its first part is whole. */
	int64_t until = link_now_ms() + 20000;
	while (stat_of(store).tier[CAIRN_TIER_MEMORY].used_bytes != used && link_now_ms() < until)
		for (uint32_t i = 0; i < PARTS; i++) {
			cairn_key key = key_at(4, i);
			assert_true(cairn_drop(store, space, &key, 1) >= 0);
		}
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_MEMORY].used_bytes, used);
	assert_int_equal(cairn_close(store), 0);
	served_end(&served);
}

static void test_remote__gives_all_back_when_client_dies(void **state)
{
	(void)state;
	struct served served;
	served_begin(&served, 16 * MIB, 0);
	cairn *store = served_client(&served), *other = served_client(&served);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 20, LENGTH, 0);
	cairn_lease *leases[5];
	cairn_match *match;
	cairn_key keys[20];
	for (uint32_t i = 0; i < 20; i++)
		keys[i] = key_at(1, i);
	for (uint32_t i = 0; i < 5; i++)
		leases[i] = served_lease(store, space, 1, i);
	struct cairn_chain chain = {0, keys, 20};
	assert_int_equal(cairn_match_take(store, space, &chain, 1, 0, 600000, &match), 0);
	assert_int_equal(stat_of(other).leased_bytes, 5 * LENGTH);
	assert_int_equal(stat_of(other).matches, 1);
	/* As kill -9 does: its sockets end. */
	for (struct list *node = store->remote->idle.next; node != &store->remote->idle; node = node->next)
		link_stop(LIST_OF(node, struct remote_link, link)->net, LINK_STOP_ALL);
	served_wait(&served, 1);
	assert_int_equal(stat_of(other).leased_bytes, 0);
	assert_int_equal(stat_of(other).matches, 0);
	/* Old numbers are those of nobody. */
	for (uint32_t i = 0; i < 5; i++)
		cairn_lease_release(store, leases[i]);
	cairn_match_release(store, match);
	assert_int_equal(match_tokens(store, space, 1, 20), 20 * 16); /* another connection */
	assert_int_equal(cairn_close(store), 0);
	assert_int_equal(cairn_close(other), 0);
	served_end(&served);
}

static void test_remote__goes_on_when_daemon_is_another(void **state)
{
	(void)state;
	struct served served;
	served_begin(&served, 16 * MIB, 0);
	cairn *store = served_client(&served);
	cairn_space *first = space_named(store, NULL, "first"), *space = space_named(store, NULL, "m");
	put_chain(store, first, 1, 0, 1, LENGTH, CAIRN_DURABLE_FLASH);
	put_chain(store, space, 1, 0, 20, LENGTH, CAIRN_DURABLE_FLASH);
	cairn_lease *lease = served_lease(store, space, 1, 3);
	served_stop(&served);
	cairn_key key = key_at(1, 3);
	struct cairn_item item = get_item(store, space, &key, 0, LENGTH);
	assert_true(item.status == CAIRN_E_IO || item.status == CAIRN_E_NOENT);
	struct cairn_lease_info info; /* what was leased is there still, for this process */
	cairn_lease_get_info(lease, &info);
	assert_true(pattern_is(info.address, LENGTH, &key, 0, 0));
	served_start(&served);
	/* Its numbers of spaces begin anew: this one was the second. */
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	assert_int_equal(match_tokens(store, space, 1, 20), 20 * 16);
	cairn_lease_release(store, lease);
	assert_int_equal(cairn_close(store), 0);
	served_end(&served);
}

struct crowd {
	struct served *served;
	cairn *store; /* shared; NULL: one each */
	uint32_t next, wrong;
};

static void *crowd_member(void *arg)
{
	struct crowd *crowd = arg;
	uint32_t number = __atomic_fetch_add(&crowd->next, 1, __ATOMIC_RELAXED);
	cairn *store = crowd->store ? crowd->store : served_client(crowd->served);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint32_t round = 0; round < 30; round++) {
		uint64_t chain = 100 + (number + round) % 6;
		int wrong = put_chain(store, space, chain, 0, 8, LENGTH, round % 4 ? 0 : CAIRN_DURABLE_FLASH) != 8;
		for (uint32_t i = 0; i < 8; i++) {
			cairn_key key = key_at(chain, i);
			int status = get_status(store, space, &key, LENGTH); /* checks the bytes */
			wrong |= status != CAIRN_OK && status != CAIRN_MISS;
		}
		__atomic_fetch_add(&crowd->wrong, (uint32_t)wrong, __ATOMIC_RELAXED);
	}
	if (!crowd->store)
		(void)cairn_close(store);
	return NULL;
}

static void test_remote__serves_many_at_once(void **state)
{
	(void)state;
	struct served served;
	served_begin(&served, 16 * MIB, 0);
	for (int shared = 0; shared < 4; shared++) { /* one client, or one a thread; then over a network */
		if (shared == 2) {
			served_end(&served);
			served_begin(&served, 16 * MIB, 1);
		}
		struct crowd crowd = {.served = &served, .store = shared % 2 ? served_client(&served) : NULL};
		pthread_t threads[8];
		for (int i = 0; i < 8; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, crowd_member, &crowd), 0);
		for (int i = 0; i < 8; i++)
			pthread_join(threads[i], NULL);
		assert_int_equal(crowd.wrong, 0);
		if (shared % 2)
			assert_int_equal(cairn_close(crowd.store), 0);
	}
	served_wait(&served, 0);
	assert_true(list_empty(&served.daemon.clients));
	assert_int_equal(stat_of(served.daemon.store).leased_bytes, 0);
	served_end(&served);
}

/* ---- memory that is given up ------------------------------------------------------------------------------------- */

/* Memory that went from one tenant to another is not kept by those who mapped it. */
static void test_remote__lets_go_of_memory_that_the_daemon_gave_up(void **state)
{
	(void)state;
	struct served served;
	served_begin(&served, 8 * MIB, 0); /* four extents */
	cairn *store = served_client(&served);
	for (int round = 0; round < 6; round++) {
		char tenant[8];
		snprintf(tenant, sizeof tenant, "t%d", round % 3);
		cairn_space *space = space_named(store, tenant, "m");
		uint64_t chain = 10 + (uint64_t)round;
		assert_int_equal(put_chain(store, space, chain, 0, 120, LENGTH, CAIRN_DURABLE_FLASH), 120);
		for (uint32_t i = 0; i < 120; i++) {
			cairn_key key = key_at(chain, i);
			assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
		}
		assert_true(store->remote->nextents >= 1 && store->remote->nextents <= 4);
		for (uint32_t i = 0; i < store->remote->nextents; i++) {
			assert_int_equal(store->remote->extents[i].readers, 0);
			assert_int_equal(store->remote->extents[i].gone, 0);
		}
	}
	assert_true(store->remote->generation > 3); /* it did change hands */
	/* The leases of a daemon that is no more keep its memory; the last one lets it go. */
	cairn_space *space = space_named(store, "t2", "m");
	cairn_lease *lease = served_lease(store, space, 15, 119);
	served_stop(&served);
	served_start(&served);
	cairn_key key = key_at(15, 118);
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	struct cairn_lease_info info;
	cairn_lease_get_info(lease, &info);
	key = key_at(15, 119);
	assert_true(pattern_is(info.address, LENGTH, &key, 0, 0));
	uint32_t before = store->remote->nextents;
	cairn_lease_release(store, lease);
	assert_int_equal(store->remote->nextents, before - 1);
	assert_int_equal(cairn_close(store), 0);
	served_end(&served);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_remote__gives_what_a_directory_gives),
		cmocka_unit_test(test_remote__is_asked_when_directory_is_owned),
		cmocka_unit_test(test_remote__cannot_write_when_it_reads_in_place),
		cmocka_unit_test(test_remote__misses_when_memory_is_damaged),
		cmocka_unit_test(test_remote__gets_all_when_leases_are_bounded),
		cmocka_unit_test(test_remote__checks_what_travels),
		cmocka_unit_test(test_remote__fetches_all_when_others_hold_the_leases),
		cmocka_unit_test(test_remote__stores_nothing_when_bytes_change_on_their_way),
		cmocka_unit_test(test_remote__forgets_part_when_sender_dies_within_it),
		cmocka_unit_test(test_remote__gives_all_back_when_client_dies),
		cmocka_unit_test(test_remote__goes_on_when_daemon_is_another),
		cmocka_unit_test(test_remote__serves_many_at_once),
		cmocka_unit_test(test_remote__lets_go_of_memory_that_the_daemon_gave_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
