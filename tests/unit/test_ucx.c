/* SPDX-License-Identifier: Apache-2.0 */
/* src/net/ucx.c, over what UCX has on one machine (tcp, shared memory); skipped where it is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/random.h"
#include "lib/frames.h"
#include "net/link.h"

/* A server that gives back what it receives, frame by frame, to one after the other. */
struct echo {
	char place[80];
	struct link_listener *listener;
	pthread_t thread;
	int stopping, ended; /* ended: links that were */
};

static void *echo_main(void *arg)
{
	struct echo *echo = arg;
	while (!__atomic_load_n(&echo->stopping, __ATOMIC_ACQUIRE)) {
		struct link *net;
		struct pollfd wait = {.fd = echo->listener->fd, .events = POLLIN};
		(void)poll(&wait, 1, 20);
		if (link_accept(echo->listener, &net))
			continue;
		frames_give_back(net, 20000);
		link_close(net);
		__atomic_fetch_add(&echo->ended, 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* Skips the test where there is no UCX. */
static void echo_start(struct echo *echo)
{
	struct link_place place;
	struct random random;
	int error = -1;
	memset(echo, 0, sizeof *echo);
	random_init(&random, (uint64_t)getpid() << 20 ^ (uint64_t)link_now_ms());
	for (int tries = 0; tries < 50 && error; tries++) {
		snprintf(echo->place, sizeof echo->place, "ucx+plain://127.0.0.1:%u",
		         10000 + (unsigned)random_below(&random, 20000));
		assert_int_equal(link_place_take(echo->place, &place), 0);
		error = link_listen(&place, &(struct link_serving){0}, &echo->listener);
		if (error && error != CAIRN_E_OWNED) {
			print_message("%s\n", err_text());
			skip();
		}
	}
	assert_int_equal(error, 0);
	assert_int_equal(pthread_create(&echo->thread, NULL, echo_main, echo), 0);
}

static void echo_stop(struct echo *echo)
{
	__atomic_store_n(&echo->stopping, 1, __ATOMIC_RELEASE);
	pthread_join(echo->thread, NULL);
	link_listener_close(echo->listener);
}

static struct link *echo_connect(const struct echo *echo)
{
	struct link_place place;
	struct link *net;
	assert_int_equal(link_place_take(echo->place, &place), 0);
	int error = link_connect(&place, NULL, 5000, &net);
	if (error)
		fail_msg("%s", err_text());
	return net;
}

static void test_ucx__carries_frames_of_all_sizes(void **state)
{
	(void)state;
	struct echo echo;
	static const size_t sizes[] = {0, 1, 63, 4096, 8191, 65536, 100001, 3 << 20};
	echo_start(&echo);
	struct link *net = echo_connect(&echo);
	assert_false(link_shares(net) || link_is_private(net));
	assert_int_equal(link_fd(net), -1);
	frames_carry(net, sizes, sizeof sizes / sizeof sizes[0]);
	link_close(net);
	echo_stop(&echo);
}

static void test_ucx__says_so_when_nobody_listens(void **state)
{
	(void)state;
	struct echo echo;
	struct link_place place;
	struct link *net;
	echo_start(&echo);
	echo_stop(&echo);
	assert_int_equal(link_place_take(echo.place, &place), 0);
	int64_t begun = link_now_ms();
	assert_int_equal(link_connect(&place, NULL, 3000, &net), CAIRN_E_NOENT);
	assert_true(link_now_ms() - begun < 10000);
	assert_null(strchr(err_text(), '\n'));
}

static void *stop_soon(void *arg)
{
	poll(NULL, 0, 50);
	link_stop(arg, LINK_STOP_ALL);
	return NULL;
}

/* By another thread; and by the other side. */
static void test_ucx__ends_under_who_waits(void **state)
{
	(void)state;
	struct echo echo;
	struct link_buffer body = {0};
	struct wire_head head;
	pthread_t thread;
	int fds[WIRE_FDS_MAX];
	echo_start(&echo);
	struct link *net = echo_connect(&echo);
	assert_int_equal(pthread_create(&thread, NULL, stop_soon, net), 0);
	int64_t begun = link_now_ms();
	assert_int_equal(link_receive(net, 20000, &head, &body, fds), -ECONNRESET);
	assert_true(link_now_ms() - begun < 10000);
	pthread_join(thread, NULL);
	assert_false(link_is_idle(net));
	link_close(net);
	net = echo_connect(&echo); /* no frame: the echo closes */
	uint8_t nonsense[64] = "nonsense";
	assert_int_equal(link_send_bytes(net, nonsense, sizeof nonsense), 0);
	assert_int_equal(link_receive(net, 20000, &head, &body, fds), -ECONNRESET);
	link_close(net);
	link_buffer_done(&body);
	echo_stop(&echo);
	assert_int_equal(echo.ended, 2);
}

/* A client that is killed is noticed, though it says nothing. */
static void test_ucx__notices_a_peer_that_was_killed(void **state)
{
	(void)state;
	struct echo echo;
	int ready[2];
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork(); /* before UCX has threads here */
	if (!pid) {
		char place_text[80] = "";
		struct link_place place;
		struct link *net;
		close(ready[1]);
		if (read(ready[0], place_text, sizeof place_text) <= 0 || !place_text[0] ||
		    link_place_take(place_text, &place) || link_connect(&place, NULL, 5000, &net))
			_exit(1);
		pause();
		_exit(0);
	}
	echo_start(&echo);
	assert_true(write(ready[1], echo.place, sizeof echo.place) > 0);
	struct timespec begun, now;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	poll(NULL, 0, 500); /* it connects */
	assert_int_equal(kill(pid, SIGKILL), 0);
	waitpid(pid, NULL, 0);
	do {
		poll(NULL, 0, 20);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (!__atomic_load_n(&echo.ended, __ATOMIC_ACQUIRE) && now.tv_sec - begun.tv_sec < 15);
	assert_int_equal(__atomic_load_n(&echo.ended, __ATOMIC_ACQUIRE), 1);
	close(ready[0]);
	close(ready[1]);
	echo_stop(&echo);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ucx__notices_a_peer_that_was_killed),
		cmocka_unit_test(test_ucx__carries_frames_of_all_sizes),
		cmocka_unit_test(test_ucx__says_so_when_nobody_listens),
		cmocka_unit_test(test_ucx__ends_under_who_waits),
	};
	frames_ucx_prepare();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
