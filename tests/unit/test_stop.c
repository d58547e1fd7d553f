/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a real cairnd, and the next one: src/daemon/stop.c, what clients are told, what is there afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "unit/store_lib.h"

enum {
	LENGTH = 20000
};

struct server {
	char dir[128], place[160], conf[160];
	pid_t pid;
};

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Its flash takes next to nothing by itself: what is put without a promise stays in memory. */
static void server_init(struct server *server)
{
	const char *base = getenv("TMPDIR");
	snprintf(server->dir, sizeof server->dir, "%s/cairn-test-XXXXXX", base && base[0] ? base : "/tmp");
	assert_non_null(mkdtemp(server->dir));
	snprintf(server->place, sizeof server->place, "unix:%s/cairn.sock", server->dir);
	snprintf(server->conf, sizeof server->conf, "%s.yaml", server->dir);
	FILE *file = fopen(server->conf, "w");
	assert_non_null(file);
	fprintf(file, "dir: %s\nmemory: 32MiB\nwrite_budget: 1\nstop_seconds: 30\nlog_level: error\n", server->dir);
	fprintf(file, "flash:\n  - path: %s/flash.cairn\n    budget: 128MiB\n", server->dir);
	fclose(file);
}

static void server_start(struct server *server)
{
	char program[512];
	const char *build = getenv("CAIRN_BUILD");
	snprintf(program, sizeof program, "%s/cairnd", build ? build : "build/default");
	if (access(program, X_OK))
		skip();
	server->pid = fork();
	if (!server->pid) {
		execl(program, "cairnd", server->conf, (char *)NULL);
		_exit(127);
	}
}

static void server_end(struct server *server)
{
	int status;
	assert_int_equal(waitpid(server->pid, &status, 0), server->pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void server_done(struct server *server)
{
	char command[300];
	snprintf(command, sizeof command, "rm -rf '%s' '%s'", server->dir, server->conf);
	assert_int_equal(system(command), 0);
}

static cairn *client(struct server *server)
{
	cairn *store;
	for (int tries = 0; cairn_open(server->place, NULL, &store); tries++) {
		if (tries == 1000)
			fail_msg("open: %s", cairn_error_text());
		pause_ms(10);
	}
	return store;
}

static int get_within(cairn *store, cairn_space *space, const cairn_key *key, uint32_t timeout_ms)
{
	static __thread uint8_t bytes[LENGTH];
	struct cairn_buf buf = cairn_buf_of(bytes, LENGTH);
	struct cairn_item item = {.key = *key, .bufs = &buf, .nbufs = 1};
	struct cairn_call call = {.size = sizeof call, .timeout_ms = timeout_ms};
	if (cairn_get(store, space, &item, 1, &call) == 1)
		assert_true(pattern_is(bytes, LENGTH, key, 0, 0));
	return item.status;
}

static void test_stop__memory_is_there_again_after_an_upgrade(void **state)
{
	(void)state;
	struct server server;
	server_init(&server);
	server_start(&server);
	cairn *store = client(&server);
	cairn_space *space = space_named(store, NULL, "m");
	for (uint64_t chain = 0; chain < 10; chain++)
		assert_int_equal(put_chain(store, space, chain, 0, 30, LENGTH, 0), 30);
	assert_int_equal(stat_of(store).tier[CAIRN_TIER_FLASH].written_parts, 0);
	kill(server.pid, SIGTERM);
	server_end(&server);
	/* Nobody is there: it is said, at once where no time was given, and else when that is over. */
	cairn_key key = key_at(3, 7);
	int status = get_within(store, space, &key, 0);
	assert_true(status == CAIRN_E_IO || status == CAIRN_E_NOENT);
	assert_true(strstr(cairn_error_text(), "is ending") || strstr(cairn_error_text(), "not back yet"));
	status = get_within(store, space, &key, 200);
	assert_int_equal(status, CAIRN_E_NOENT);
	assert_non_null(strstr(cairn_error_text(), "not back yet"));
	server_start(&server);
	assert_int_equal(get_within(store, space, &key, 20000), CAIRN_OK);
	for (uint64_t chain = 0; chain < 10; chain++)
		assert_int_equal(match_tokens(store, space, chain, 30), 30 * 16);
	assert_int_equal(cairn_close(store), 0);
	kill(server.pid, SIGTERM);
	server_end(&server);
	server_done(&server);
}

static void test_stop__ends_at_once_when_asked_again(void **state)
{
	(void)state;
	struct server server;
	server_init(&server);
	server_start(&server);
	cairn *store = client(&server);
	cairn_space *space = space_named(store, NULL, "m");
	assert_int_equal(put_chain(store, space, 1, 0, 50, LENGTH, CAIRN_DURABLE_FLASH), 50);
	assert_int_equal(put_chain(store, space, 2, 0, 500, LENGTH, 0), 500);
	kill(server.pid, SIGSTOP); /* it finds both, however late we are with the second one */
	kill(server.pid, SIGTERM);
	kill(server.pid, SIGINT);
	kill(server.pid, SIGCONT);
	server_end(&server);
	server_start(&server);
	cairn_key key = key_at(1, 0);
	assert_int_equal(get_within(store, space, &key, 20000), CAIRN_OK);
	assert_int_equal(match_tokens(store, space, 1, 50), 50 * 16); /* promised */
	assert_int_equal(cairn_close(store), 0);
	kill(server.pid, SIGTERM);
	server_end(&server);
	server_done(&server);
}

struct worker {
	struct server *server;
	cairn *store;
	pthread_t thread;
	uint32_t number, calls, failed;
	const int *over;
};

static void *work(void *arg)
{
	struct worker *worker = arg;
	cairn_space *space = space_named(worker->store, NULL, "m");
	while (!__atomic_load_n(worker->over, __ATOMIC_SEQ_CST)) {
		struct put_one put = {.key = key_at(100 + worker->number, worker->calls),
		                      .length = LENGTH,
		                      .timeout_ms = 60000,
		                      .durability = CAIRN_DURABLE_FLASH};
		int status = put_item(worker->store, space, &put).status;
		if (!status)
			status = get_within(worker->store, space, &put.key, 60000);
		if (status && !worker->failed++)
			print_message("worker: %d %s\n", status, cairn_error_text());
		__atomic_fetch_add(&worker->calls, 1, __ATOMIC_SEQ_CST);
		pause_ms(1);
	}
	return NULL;
}

/* Until each has had some more answers, so that the daemon of now is there and at work. */
static void work_goes_on(struct worker *workers, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t to = __atomic_load_n(&workers[i].calls, __ATOMIC_SEQ_CST) + 5;
		for (int tries = 0; __atomic_load_n(&workers[i].calls, __ATOMIC_SEQ_CST) < to; tries++) {
			assert_true(tries < 60000);
			pause_ms(1);
		}
	}
}

/* Three daemons end under clients that give their calls time: no call fails, and all that was promised is there. */
static void test_stop__no_call_fails_when_daemons_take_turns(void **state)
{
	(void)state;
	enum {
		WORKERS = 4
	};
	struct server server;
	struct worker workers[WORKERS];
	int over = 0;
	server_init(&server);
	server_start(&server);
	cairn *store = client(&server);
	for (uint32_t i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){.server = &server, .store = store, .number = i, .over = &over};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (int turn = 0; turn < 3; turn++) {
		work_goes_on(workers, WORKERS);
		kill(server.pid, SIGTERM);
		server_end(&server);
		pause_ms(50);
		server_start(&server);
	}
	work_goes_on(workers, WORKERS);
	__atomic_store_n(&over, 1, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < WORKERS; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].failed, 0);
		assert_true(workers[i].calls > 15);
	}
	cairn_space *space = space_named(store, NULL, "m");
	for (uint32_t i = 0; i < WORKERS; i++)
		for (uint32_t call = 0; call < workers[i].calls; call++) {
			cairn_key key = key_at(100 + i, call);
			assert_int_equal(get_within(store, space, &key, 20000), CAIRN_OK);
		}
	assert_int_equal(cairn_close(store), 0);
	kill(server.pid, SIGTERM);
	server_end(&server);
	server_done(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stop__memory_is_there_again_after_an_upgrade),
		cmocka_unit_test(test_stop__ends_at_once_when_asked_again),
		cmocka_unit_test(test_stop__no_call_fails_when_daemons_take_turns),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
