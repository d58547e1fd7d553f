/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real cairnd's memory in the hands of a hostile client, of the daemon's own user and of root: whatever it tries with
 * the descriptor that it was given, or with those of the daemon, no byte changes. And a client that dies while a child
 * of it holds its sockets gives everything back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "unit/store_lib.h"

enum {
	LENGTH = 50000,
	NOBODY = 12345
};

static char dir[128], place[160], program[512];
static pid_t server;

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void server_start(uid_t uid)
{
	const char *build = getenv("CAIRN_BUILD");
	snprintf(program, sizeof program, "%s/cairnd", build ? build : "build/default");
	snprintf(dir, sizeof dir, "/tmp/cairn-sealed-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(place, sizeof place, "unix:%s/cairn.sock", dir);
	if (uid)
		assert_int_equal(chown(dir, uid, uid), 0);
	int exe = open(program, O_PATH | O_CLOEXEC); /* by now: that user may not get to where it lies */
	server = fork();
	if (!server) {
		char flash[200];
		char *list[] = {"cairnd",      "--dir", dir,       "--memory", "16MiB", "--flash", flash,
		                "--log-level", "error", "--admin", "off",      NULL};
		snprintf(flash, sizeof flash, "%s/flash.cairn:64MiB", dir);
		if (uid && (setgid(uid) || setuid(uid)))
			_exit(126);
		fexecve(exe, list, environ);
		_exit(127);
	}
	close(exe);
}

static void server_end(void)
{
	char command[200];
	int status;
	kill(server, SIGTERM);
	assert_int_equal(waitpid(server, &status, 0), server);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	assert_int_equal(system(command), 0);
}

static cairn *client(void)
{
	cairn *store;
	for (int tries = 0; cairn_open(place, NULL, &store); tries++) {
		if (tries == 1000)
			fail_msg("open: %s", cairn_error_text());
		pause_ms(10);
	}
	return store;
}

/* How many of the ways to write through a descriptor worked. */
static int ways_through(int fd, off_t at, const char *whose)
{
	struct stat stat;
	int worked = 0;
	if (fstat(fd, &stat))
		return 0;
	size_t length = (size_t)stat.st_size;
#define TRY(what)                                                                                                      \
	do {                                                                                                               \
		if (what) {                                                                                                    \
			print_message("%s: %s worked\n", whose, #what);                                                            \
			worked++;                                                                                                  \
		}                                                                                                              \
	} while (0)
	TRY(mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
	void *view = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
	if (view != MAP_FAILED) {
		TRY(!mprotect(view, length, PROT_READ | PROT_WRITE));
		TRY(!madvise(view, length, MADV_REMOVE));
		struct iovec from = {"xxxx", 4}, to = {(uint8_t *)view + at, 4};
		TRY(process_vm_writev(getpid(), &from, 1, &to, 1, 0) > 0);
		int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
		if (memory >= 0) {
			TRY(pwrite(memory, "xxxx", 4, (off_t)(uintptr_t)view + at) > 0);
			close(memory);
		}
		munmap(view, length);
	}
	TRY(pwrite(fd, "xxxx", 4, at) > 0);
	TRY(write(fd, "xxxx", 4) > 0);
	TRY(!ftruncate(fd, 0));
	TRY(!ftruncate(fd, 2 * (off_t)length));
	TRY(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
	TRY(!fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 4096));
	TRY(!fallocate(fd, 0, 0, 2 * (off_t)length));
	TRY(!fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)); /* it would take nothing from the others, but is not theirs to do */
	(void)fchmod(fd, 0777);                     /* its owner may, and gains nothing: what follows fails all the same */
#undef TRY
	return worked;
}

static int ways_reopened(const char *path, off_t at, const char *whose)
{
	int worked = 0, again = open(path, O_RDWR | O_CLOEXEC);
	if (again >= 0) {
		worked += ways_through(again, at, whose);
		close(again);
	}
	again = open(path, O_RDWR | O_TRUNC | O_CLOEXEC);
	if (again >= 0)
		worked += ways_through(again, at, whose), close(again);
	return worked;
}

static int ways_all(const struct cairn_lease_info *info, const char *whose)
{
	char path[400], name[100];
	int worked = ways_through(info->fd, (off_t)info->fd_offset, whose);
	snprintf(path, sizeof path, "/proc/self/fd/%d", info->fd);
	worked += ways_reopened(path, (off_t)info->fd_offset, whose);
	snprintf(path, sizeof path, "/proc/%d/fd", (int)server);
	DIR *fds = opendir(path);
	for (struct dirent *entry; fds && (entry = readdir(fds));) {
		snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)server, entry->d_name);
		ssize_t n = readlink(path, name, sizeof name - 1);
		name[n > 0 ? n : 0] = 0;
		if (strstr(name, "memfd:cairn-memory"))
			worked += ways_reopened(path, 0, whose);
	}
	if (fds)
		closedir(fds);
	return worked;
}

static void test_sealed__no_byte_changes_when_clients_are_hostile(void **state)
{
	(void)state;
	int root = !geteuid(), status;
	server_start(root ? NOBODY : 0);
	cairn *store = client();
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, 20, LENGTH, 0), 20);
	cairn_key key = key_at(1, 3);
	struct cairn_item item = {.key = key};
	cairn_lease *lease;
	struct cairn_lease_info info;
	assert_int_equal(cairn_lease_take(store, space, &item, NULL, &lease), 0);
	cairn_lease_get_info(lease, &info);
	assert_true(pattern_is(info.address, LENGTH, &key, 0, 0));
	assert_int_equal(ways_all(&info, root ? "root" : "the same user"), 0);
	pid_t other = root ? fork() : 0; /* as the daemon's own user, with the same descriptors */
	if (root && !other) {
		if (setgid(NOBODY) || setuid(NOBODY))
			_exit(200);
		_exit(ways_all(&info, "the same user"));
	}
	if (root) {
		assert_int_equal(waitpid(other, &status, 0), other);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
	assert_true(pattern_is(info.address, LENGTH, &key, 0, 0));
	cairn_lease_release(store, lease);
	for (uint32_t i = 0; i < 20; i++) {
		key = key_at(1, i);
		assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	}
	assert_int_equal(cairn_close(store), 0);
	server_end();
}

static void test_sealed__all_is_given_back_when_a_child_outlives_its_client(void **state)
{
	(void)state;
	int ready[2], status;
	server_start(0);
	cairn *store = client();
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, 20, LENGTH, 0), 20);
	assert_int_equal(pipe(ready), 0);
	pid_t dies = fork();
	if (!dies) {
		cairn *own = client();
		cairn_space *its = space_named(own, NULL, "m");
		cairn_lease *lease;
		for (uint32_t i = 0; i < 5; i++) {
			struct cairn_item item = {.key = key_at(1, i)};
			if (cairn_lease_take(own, its, &item, NULL, &lease))
				_exit(1);
		}
		pid_t child = fork(); /* has its sockets, and knows nothing of them */
		if (!child)
			for (;;)
				pause();
		if (write(ready[1], &child, sizeof child) != sizeof child)
			_exit(1);
		for (;;)
			pause();
	}
	pid_t child;
	assert_int_equal(read(ready[0], &child, sizeof child), sizeof child);
	assert_int_equal(stat_of(store).leased_bytes, 5 * LENGTH);
	kill(dies, SIGKILL);
	waitpid(dies, &status, 0);
	int tries = 0;
	while (stat_of(store).leased_bytes && ++tries < 500)
		pause_ms(10);
	kill(child, SIGKILL);
	assert_int_equal(stat_of(store).leased_bytes, 0);
	assert_true(tries < 500);
	close(ready[0]);
	close(ready[1]);
	assert_int_equal(cairn_close(store), 0);
	server_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sealed__no_byte_changes_when_clients_are_hostile),
		cmocka_unit_test(test_sealed__all_is_given_back_when_a_child_outlives_its_client),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
