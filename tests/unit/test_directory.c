/* SPDX-License-Identifier: Apache-2.0 */
/* src/store/directory.c and open.c on real directories: owners, foreign files, what is refused and what is made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "unit/store_lib.h"

static int open_at(const char *path, uint32_t flags, cairn **ret_store)
{
	struct cairn_flash flash = {.budget_bytes = 16 * MIB};
	struct cairn_options options = {.size = sizeof options,
	                                .flags = flags,
	                                .memory_bytes = 8 * MIB,
	                                .catalog_bytes = MIB,
	                                .flash = &flash,
	                                .nflash = flags & CAIRN_OPEN_CREATE ? 1 : 0,
	                                .free_floor_bytes = 1,
	                                .io_engine = engine_wanted()};
	return cairn_open(path, &options, ret_store);
}

static void file_make(const char *directory, const char *name, const void *bytes, size_t length)
{
	char path[200];
	snprintf(path, sizeof path, "%s/%s", directory, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, length), length);
	close(fd);
}

static void test_directory__has_one_owner(void **state)
{
	(void)state;
	struct place place;
	place_init(&place, 16 * MIB, 8 * MIB);
	int ready[2], go[2];
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(go), 0);
	pid_t child = fork();
	if (!child) {
		cairn *store;
		char byte = (char)(open_at(place.path, CAIRN_OPEN_CREATE, &store) != 0);
		(void)!write(ready[1], &byte, 1);
		(void)!read(go[0], &byte, 1);
		_exit(0); /* as if it had been killed */
	}
	char byte = 1;
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(byte, 0);
	cairn *store;
	char pid[24];
	snprintf(pid, sizeof pid, "%d", (int)child);
	for (int flags = 0; flags < 8; flags += CAIRN_OPEN_READONLY) { /* to read it is not to own it: refused too */
		assert_int_equal(
			open_at(place.path, flags & CAIRN_OPEN_READONLY ? CAIRN_OPEN_READONLY : CAIRN_OPEN_CREATE, &store),
			CAIRN_E_OWNED);
		assert_non_null(strstr(cairn_error_text(), pid));
	}
	assert_int_equal(write(go[1], &byte, 1), 1);
	waitpid(child, NULL, 0);
	assert_int_equal(open_at(place.path, 0, &store), 0);
	cairn *second;
	assert_int_equal(open_at(place.path, 0, &second), CAIRN_E_OWNED); /* in this process too */
	assert_int_equal(cairn_close(store), 0);
	for (int i = 0; i < 2; i++) {
		close(ready[i]);
		close(go[i]);
	}
	place_done(&place);
}

static void test_directory__is_left_alone_when_it_is_somebody_elses(void **state)
{
	(void)state;
	struct place place;
	place_init(&place, 16 * MIB, 8 * MIB);
	cairn *store;
	char path[200], missing[200];
	snprintf(missing, sizeof missing, "%s/missing", place.path);
	assert_int_equal(open_at(missing, 0, &store), CAIRN_E_NOENT);
	assert_int_equal(open_at(place.path, 0, &store), CAIRN_E_NOENT); /* empty, and no CREATE */
	file_make(place.path, "thesis.txt", "words", 5);
	assert_int_equal(open_at(place.path, CAIRN_OPEN_CREATE, &store), CAIRN_E_NOTSTORE);
	assert_non_null(strstr(cairn_error_text(), "thesis.txt"));
	snprintf(path, sizeof path, "%s/thesis.txt", place.path);
	assert_int_equal(open_at(path, CAIRN_OPEN_CREATE, &store), CAIRN_E_NOTSTORE);
	snprintf(path, sizeof path, "%s/flash.cairn", place.path);
	assert_int_equal(access(path, F_OK), -1);
	/* A flash path that holds something else is not overwritten. */
	file_make(place.path, "other", "ABCDEFGHIJKLMNOP", 16);
	char device[200], inside[200];
	snprintf(device, sizeof device, "%s/other", place.path);
	snprintf(inside, sizeof inside, "%s/new", place.path);
	struct cairn_flash flash = {.path = device, .budget_bytes = 16 * MIB};
	struct cairn_options options = {
		.size = sizeof options, .flags = CAIRN_OPEN_CREATE, .memory_bytes = 8 * MIB, .flash = &flash, .nflash = 1};
	int error = cairn_open(inside, &options, &store);
	assert_int_equal(error, CAIRN_E_NOTSTORE);
	struct stat info;
	assert_int_equal(stat(device, &info), 0);
	assert_int_equal(info.st_size, 16);
	place_done(&place);
}

static void test_directory__refuses_nonsense_with_reason(void **state)
{
	(void)state;
	cairn *store;
	static const char *const places[] = {"",           "unix:",           "tcp://:1",     "tcp+plain://",
	                                     "tcp+plain://:1", "tcp+plain://h:x", "tcp+plain://[::1"};
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
		assert_int_equal(open_at(places[i], CAIRN_OPEN_CREATE, &store), CAIRN_E_INVAL);
	assert_int_equal(cairn_open(NULL, NULL, &store), CAIRN_E_INVAL);
	struct cairn_options options = {.size = sizeof options, .segment_bytes = 3 * MIB};
	assert_int_equal(cairn_open("x", &options, &store), CAIRN_E_INVAL);
	options = (struct cairn_options){.size = sizeof options, .pin_share_percent = 101};
	assert_int_equal(cairn_open("x", &options, &store), CAIRN_E_INVAL);
	options = (struct cairn_options){.size = 0};
	assert_int_equal(cairn_open("x", &options, &store), CAIRN_E_INVAL);
	options = (struct cairn_options){.size = sizeof options, .nflash = 17};
	assert_int_equal(cairn_open("x", &options, &store), CAIRN_E_INVAL);
	/* A budget that holds nothing says how much it takes, and leaves nothing behind. */
	struct place place;
	place_init(&place, MIB, 8 * MIB);
	assert_int_equal(cairn_open(place.path, &place.options, &store), CAIRN_E_INVAL);
	assert_non_null(strstr(cairn_error_text(), "at least"));
	place.flash[0].budget_bytes = 16 * MIB;
	store = place_open(&place);
	assert_int_equal(cairn_close(store), 0);
	place_done(&place);
}

static void test_directory__opens_read_only_without_a_write(void **state)
{
	(void)state;
	struct place place;
	place_init(&place, 16 * MIB, 8 * MIB);
	char path[200];
	snprintf(path, sizeof path, "%s/flash.cairn", place.path);
	cairn *store = place_open(&place);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, 5, 10000, CAIRN_DURABLE_FLASH), 5);
	assert_int_equal(cairn_close(store), 0);
	struct stat before, after;
	assert_int_equal(stat(path, &before), 0);
	assert_int_equal(open_at(place.path, CAIRN_OPEN_READONLY, &store), 0);
	cairn *second;
	assert_int_equal(open_at(place.path, CAIRN_OPEN_READONLY, &second), 0); /* readers do not exclude each other */
	assert_int_equal(open_at(place.path, 0, &(cairn *){NULL}), CAIRN_E_OWNED);
	space = space_named(store, NULL, "m");
	assert_int_equal(match_tokens(store, space, 1, 5), 80);
	cairn_key key = key_at(1, 2);
	assert_int_equal(get_status(store, space, &key, 10000), CAIRN_OK);
	assert_int_equal(get_status(second, space_named(second, NULL, "m"), &key, 10000), CAIRN_OK);
	assert_int_equal(put_status(store, space, &key, NULL, 10000, 0), CAIRN_E_RDONLY);
	assert_int_equal(cairn_drop(store, space, &key, 1), CAIRN_E_RDONLY);
	assert_int_equal(cairn_drop_tenant(store, NULL), CAIRN_E_RDONLY);
	struct cairn_session_name name = {NULL, NULL, "x"};
	assert_int_equal(cairn_session_forget(store, &name), CAIRN_E_RDONLY);
	struct cairn_save save = {.size = sizeof save, .name = name};
	assert_int_equal(cairn_session_save(store, space, &save), CAIRN_E_RDONLY);
	assert_int_equal(cairn_close(second), 0);
	assert_int_equal(cairn_close(store), 0);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
	assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
	store = place_open(&place);
	assert_int_equal(cairn_close(store), 0);
	place_done(&place);
}

/* The first open is killed at each of its steps, as far as a file system shows them: the next one makes the store. */
static void test_directory__is_made_anew_when_first_open_was_killed(void **state)
{
	(void)state;
	for (int round = 0; round < 12; round++) {
		struct place place;
		place_init(&place, 16 * MIB, 8 * MIB);
		pid_t child = fork();
		if (!child) {
			cairn *store;
			(void)open_at(place.path, CAIRN_OPEN_CREATE, &store);
			_exit(0);
		}
		usleep((useconds_t)(round * 1500));
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		cairn *store = place_open(&place);
		cairn_space *space = space_named(store, NULL, "m");
		assert_int_equal(put_chain(store, space, 1, 0, 3, 1000, CAIRN_DURABLE_FLASH), 3);
		assert_int_equal(cairn_close(store), 0);
		store = place_open(&place);
		assert_int_equal(match_tokens(store, space_named(store, NULL, "m"), 1, 3), 48);
		assert_int_equal(cairn_close(store), 0);
		place_done(&place);
	}
}

/* What a killed first open leaves: a device that has no label yet. */
static void test_directory__uses_device_that_was_never_finished(void **state)
{
	(void)state;
	struct place place;
	place_init(&place, 16 * MIB, 8 * MIB);
	static uint8_t zeros[65536];
	file_make(place.path, "flash.cairn", zeros, sizeof zeros);
	file_make(place.path, "cairn.id.new", zeros, 100);
	cairn *store = place_open(&place);
	assert_int_equal(stat_of(store).device[0].state, 0);
	assert_int_equal(cairn_close(store), 0);
	/* With an identity that names it too. */
	file_make(place.path, "flash.cairn", zeros, sizeof zeros);
	store = place_open(&place);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, 3, 1000, CAIRN_DURABLE_FLASH), 3);
	assert_int_equal(cairn_close(store), 0);
	store = place_open(&place);
	assert_int_equal(match_tokens(store, space_named(store, NULL, "m"), 1, 3), 48);
	assert_int_equal(cairn_close(store), 0);
	place_done(&place);
}

/* Field bug 153: the device's file is taken away, cut short, damaged or a directory: misses, and a store that lives. */
static void test_directory__opens_when_device_is_not_what_it_was(void **state)
{
	(void)state;
	for (int how = 0; how < 5; how++) {
		struct place place;
		char path[200], command[600];
		place_init(&place, 16 * MIB, 8 * MIB);
		snprintf(path, sizeof path, "%s/flash.cairn", place.path);
		cairn *store = place_open(&place);
		cairn_space *space = space_named(store, NULL, "m");
		assert_int_equal(put_chain(store, space, 1, 0, 20, 50000, CAIRN_DURABLE_FLASH), 20);
		assert_int_equal(cairn_close(store), 0);
		if (how == 0)
			assert_int_equal(unlink(path), 0);
		else if (how == 1)
			assert_int_equal(truncate(path, 2 * MIB + 3), 0);
		else if (how == 2)
			assert_int_equal(truncate(path, 100), 0);
		else if (how == 3)
			snprintf(command, sizeof command, "rm '%s' && mkdir '%s'", path, path);
		else
			snprintf(command, sizeof command,
			         "printf damage | dd of='%s' conv=notrunc status=none && "
			         "printf damage | dd of='%s' bs=4096 seek=1 conv=notrunc status=none",
			         path, path);
		if (how >= 3)
			assert_int_equal(system(command), 0);
		int error = cairn_open(place.path, &place.options, &store);
		if (how == 3 && error) { /* a person must look at that */
			assert_true(error == CAIRN_E_INVAL || error == CAIRN_E_ACCESS || error == CAIRN_E_NOTSTORE);
			place_done(&place);
			continue;
		}
		assert_int_equal(error, 0);
		space = space_named(store, NULL, "m");
		uint32_t found = 0;
		for (uint32_t i = 0; i < 20; i++) {
			cairn_key key = key_at(1, i);
			int status = get_status(store, space, &key, 50000);
			assert_true(status == CAIRN_OK || status == CAIRN_MISS || status == CAIRN_DAMAGED || status == CAIRN_E_IO);
			found += status == CAIRN_OK;
		}
		assert_true(found < 20);
		cairn_key key = key_at(2, 0);
		assert_int_equal(put_status(store, space, &key, NULL, 1000, CAIRN_DURABLE_NONE), CAIRN_OK);
		(void)cairn_close(store);
		place_done(&place);
	}
}

/* A lone durable put on the disk of the test. Its time is printed; the bound is for a disk that others use too. */
static void test_directory__commits_lone_put_soon(void **state)
{
	(void)state;
	struct place place;
	place_init(&place, 64 * MIB, 16 * MIB);
	cairn *store = place_open(&place);
	cairn_space *space = space_named(store, NULL, "m");
	double took[20];
	for (uint32_t i = 0; i < 20; i++) {
		cairn_key key = key_at(1 + i, 0);
		struct timespec a, b;
		clock_gettime(CLOCK_MONOTONIC, &a);
		put_good(store, space, &key, NULL, 65536, CAIRN_DURABLE_FLASH);
		clock_gettime(CLOCK_MONOTONIC, &b);
		double ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
		uint32_t at = i;
		for (; at > 0 && took[at - 1] > ms; at--)
			took[at] = took[at - 1];
		took[at] = ms;
	}
	print_message("a lone durable put of 64 KiB: median %.2f ms, slowest %.2f ms\n", took[10], took[19]);
	assert_true(took[10] < 250);
	assert_int_equal(cairn_close(store), 0);
	place_done(&place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_directory__has_one_owner),
		cmocka_unit_test(test_directory__is_left_alone_when_it_is_somebody_elses),
		cmocka_unit_test(test_directory__refuses_nonsense_with_reason),
		cmocka_unit_test(test_directory__opens_read_only_without_a_write),
		cmocka_unit_test(test_directory__is_made_anew_when_first_open_was_killed),
		cmocka_unit_test(test_directory__uses_device_that_was_never_finished),
		cmocka_unit_test(test_directory__opens_when_device_is_not_what_it_was),
		cmocka_unit_test(test_directory__commits_lone_put_soon),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
