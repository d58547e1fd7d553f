/* SPDX-License-Identifier: Apache-2.0 */
/* src/net/tls.c and tls_key.c: who is on the other side, and what becomes of those who do not speak so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "lib/frames.h"
#include "net/link.h"
#include "net/tls.h"

/* A server that greets one, and gives back what it receives, frame by frame. */
struct echo {
	char dir[64], file[80], place[80];
	struct link_listener *listener;
	pthread_t thread;
	_Atomic int greeted; /* the result of the last greeting */
	char why[512];
	_Atomic uint64_t greet_ms; /* what it took */
};

static void *echo_main(void *arg)
{
	struct echo *echo = arg;
	struct link *net;
	while (!link_accept(echo->listener, &net)) {
		int64_t begun = link_now_ms();
		echo->greeted = link_greet(net, 300);
		echo->greet_ms = (uint64_t)(link_now_ms() - begun);
		snprintf(echo->why, sizeof echo->why, "%s", echo->greeted ? err_text() : "");
		if (!echo->greeted)
			frames_give_back(net, 5000);
		link_close(net);
	}
	return NULL;
}

static void echo_start_with(struct echo *echo, const char *certificate, const char *key)
{
	struct link_place place;
	struct sockaddr_in address;
	socklen_t length = sizeof address;
	assert_int_equal(link_place_take("tcp://127.0.0.1:0", &place), 0);
	int error = link_listen(&place, &(struct link_serving){.certificate = certificate, .key = key}, &echo->listener);
	if (error)
		fail_msg("%s", err_text());
	assert_int_equal(getsockname(echo->listener->fd, (struct sockaddr *)&address, &length), 0);
	snprintf(echo->place, sizeof echo->place, "tcp://127.0.0.1:%d", ntohs(address.sin_port));
	assert_int_equal(pthread_create(&echo->thread, NULL, echo_main, echo), 0);
}

static void echo_dir(struct echo *echo)
{
	memset(echo, 0, sizeof *echo);
	snprintf(echo->dir, sizeof echo->dir, "/tmp/cairn-tls-XXXXXX");
	assert_non_null(mkdtemp(echo->dir));
	assert_int_equal(tls_key_make(echo->dir), 0);
	snprintf(echo->file, sizeof echo->file, "%s/" TLS_FILE, echo->dir);
}

static void echo_start(struct echo *echo)
{
	echo_dir(echo);
	echo_start_with(echo, echo->file, NULL);
}

static void echo_stop(struct echo *echo)
{
	shutdown(echo->listener->fd, SHUT_RDWR);
	pthread_join(echo->thread, NULL);
	link_listener_close(echo->listener);
	unlink(echo->file);
	rmdir(echo->dir);
}

static int echo_connect(const struct echo *echo, const uint8_t *pin, struct link **ret_net)
{
	struct link_place place;
	struct link_trust trust = {pin};
	assert_int_equal(link_place_take(echo->place, &place), 0);
	return link_connect(&place, &trust, 3000, ret_net);
}

/* A bare socket to it. */
static int bare(const struct echo *echo)
{
	struct sockaddr_in address;
	socklen_t length = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(getsockname(echo->listener->fd, (struct sockaddr *)&address, &length), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, length), 0);
	return fd;
}

/* Until the server has closed it. */
static void bare_end(int fd)
{
	char bytes[512];
	while (recv(fd, bytes, sizeof bytes, 0) > 0)
		continue;
	close(fd);
}

static void test_tls__carries_frames_of_all_sizes(void **state)
{
	(void)state;
	struct echo echo;
	struct link *net;
	uint8_t pin[TLS_PIN_BYTES];
	static const size_t sizes[] = {0, 1, 63, 4096, 16384 - 64, 16384 - 63, 16384, 100000, 5 << 20};
	echo_start(&echo);
	assert_int_equal(tls_pin_of(echo.file, pin), 0);
	assert_int_equal(echo_connect(&echo, pin, &net), 0);
	assert_true(link_is_private(net) && !link_shares(net));
	frames_carry(net, sizes, sizeof sizes / sizeof sizes[0]);
	link_close(net);
	echo_stop(&echo);
}

static void test_tls__refuses_another_key_than_the_pinned_one(void **state)
{
	(void)state;
	struct echo echo, other;
	struct link *net;
	uint8_t pin[TLS_PIN_BYTES];
	echo_start(&echo);
	echo_dir(&other);
	assert_int_equal(tls_pin_of(other.file, pin), 0);
	assert_int_equal(echo_connect(&echo, pin, &net), CAIRN_E_ACCESS);
	assert_non_null(strstr(err_text(), "another key than the token names"));
	assert_null(strchr(err_text(), '\n'));
	assert_int_equal(tls_pin_of(echo.file, pin), 0);
	pin[31] ^= 1; /* all but a bit of it */
	assert_int_equal(echo_connect(&echo, pin, &net), CAIRN_E_ACCESS);
	pin[31] ^= 1;
	assert_int_equal(echo_connect(&echo, pin, &net), 0);
	link_close(net);
	/* Without a pin a certificate that nobody vouches for is not to be trusted. */
	assert_int_equal(echo_connect(&echo, NULL, &net), CAIRN_E_ACCESS);
	assert_non_null(strstr(err_text(), "not to be trusted"));
	echo_stop(&echo);
	unlink(other.file);
	rmdir(other.dir);
}

static void test_tls__ends_a_handshake_that_stalls(void **state)
{
	(void)state;
	struct echo echo;
	struct link *net;
	uint8_t pin[TLS_PIN_BYTES];
	static const uint8_t half[] = {22, 3, 1, 2, 0, 1, 0, 1};
	echo_start(&echo);
	assert_int_equal(tls_pin_of(echo.file, pin), 0);
	for (int begins = 0; begins < 2; begins++) {
		int fd = bare(&echo);
		if (begins)
			assert_int_equal(send(fd, half, sizeof half, 0), sizeof half);
		bare_end(fd);
		assert_true(echo.greet_ms >= 290 && echo.greet_ms < 3000);
	}
	assert_int_equal(echo_connect(&echo, pin, &net), 0); /* the next one is served */
	link_close(net);
	echo_stop(&echo);
}

static void test_tls__ends_what_is_garbage(void **state)
{
	(void)state;
	struct echo echo;
	struct link *net;
	uint8_t pin[TLS_PIN_BYTES];
	static const char *const says[] = {
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\x16\x03\x01\x00\x05hello",
		"CAIRN but no more of it, and then a good deal of something else, all in all more than a frame's head"};
	echo_start(&echo);
	assert_int_equal(tls_pin_of(echo.file, pin), 0);
	for (size_t i = 0; i < sizeof says / sizeof says[0]; i++) {
		int fd = bare(&echo);
		assert_int_equal(send(fd, says[i], strlen(says[i]), 0), strlen(says[i]));
		bare_end(fd);
		assert_int_not_equal(echo.greeted, 0);
	}
	assert_int_equal(echo_connect(&echo, pin, &net), 0);
	link_close(net);
	echo_stop(&echo);
}

/* A client of cairn without TLS is told what is wanted, in a frame that it understands. */
static void test_tls__tells_a_client_without_it(void **state)
{
	(void)state;
	struct echo echo;
	struct link *net;
	struct link_place place;
	struct link_buffer body = {0};
	struct wire_head head = {.version = WIRE_VERSION, .type = WIRE_HELLO, .id = 41, .body_bytes = 5}, reply;
	char text[WIRE_TEXT_MAX], plain[700];
	int fds[WIRE_FDS_MAX];
	echo_start(&echo);
	snprintf(plain, sizeof plain, "tcp+plain%s", echo.place + 3);
	assert_int_equal(link_place_take(plain, &place), 0);
	assert_int_equal(link_connect(&place, NULL, 3000, &net), 0);
	assert_int_equal(link_send(net, &head, "12345", NULL, 0), 0);
	assert_int_equal(link_receive(net, 5000, &reply, &body, fds), 0);
	assert_int_equal(reply.id, 41);
	assert_int_equal(reply.result, CAIRN_E_ACCESS);
	struct bytes_reader reader = bytes_reader_of(body.bytes, reply.body_bytes);
	wire_take_text(&reader, text);
	assert_non_null(strstr(text, "tcp://"));
	link_close(net);
	link_buffer_done(&body);
	echo_stop(&echo);
}

static void *plain_main(void *arg)
{
	struct link *net;
	struct wire_head head;
	struct link_buffer body = {0};
	int fds[WIRE_FDS_MAX];
	while (!link_accept(arg, &net)) {
		assert_int_equal(link_receive(net, 5000, &head, &body, fds), -EPROTO);
		link_close(net);
	}
	link_buffer_done(&body);
	return NULL;
}

static void test_tls__says_so_when_the_other_side_has_none(void **state)
{
	(void)state;
	struct link_place place;
	struct link_listener *listener;
	struct sockaddr_in address;
	socklen_t length = sizeof address;
	struct link *net;
	pthread_t thread;
	char text[80];
	assert_int_equal(link_place_take("tcp+plain://127.0.0.1:0", &place), 0);
	assert_int_equal(link_listen(&place, &(struct link_serving){0}, &listener), 0);
	assert_int_equal(getsockname(listener->fd, (struct sockaddr *)&address, &length), 0);
	assert_int_equal(pthread_create(&thread, NULL, plain_main, listener), 0);
	snprintf(text, sizeof text, "tcp://127.0.0.1:%d", ntohs(address.sin_port));
	assert_int_equal(link_place_take(text, &place), 0);
	assert_int_equal(link_connect(&place, NULL, 3000, &net), CAIRN_E_NOENT);
	assert_non_null(strstr(err_text(), "does not speak TLS 1.3"));
	assert_null(strchr(err_text(), '\n'));
	shutdown(listener->fd, SHUT_RDWR);
	pthread_join(thread, NULL);
	/* One that takes connections and says nothing, ever. */
	int silent = socket(AF_INET, SOCK_STREAM, 0);
	address.sin_port = 0;
	assert_int_equal(bind(silent, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(silent, 4), 0);
	length = sizeof address;
	assert_int_equal(getsockname(silent, (struct sockaddr *)&address, &length), 0);
	snprintf(text, sizeof text, "tcp://127.0.0.1:%d", ntohs(address.sin_port));
	assert_int_equal(link_place_take(text, &place), 0);
	int64_t begun = link_now_ms();
	assert_int_equal(link_connect(&place, NULL, 200, &net), CAIRN_E_NOENT);
	assert_true(link_now_ms() - begun < 10000);
	assert_non_null(strstr(err_text(), "nobody answers"));
	close(silent);
	link_listener_close(listener);
}

/* A peer that goes, whether it says so or not. */
static void test_tls__notices_when_the_peer_has_gone(void **state)
{
	(void)state;
	struct echo echo;
	struct link *net;
	struct link_buffer body = {0};
	struct wire_head head;
	uint8_t pin[TLS_PIN_BYTES];
	int fds[WIRE_FDS_MAX];
	echo_start(&echo);
	assert_int_equal(tls_pin_of(echo.file, pin), 0);
	for (int how = 0; how < 2; how++) {
		assert_int_equal(echo_connect(&echo, pin, &net), 0);
		/* Half a frame, which the echo waits for the rest of; or a whole one that is none, at which it closes. */
		assert_int_equal(link_send_bytes(net, "nonsense, and of it as much as a frame's head has: 64 bytes......", 64),
		                 0);
		if (how)
			link_stop(net, LINK_STOP_ALL);
		assert_int_equal(link_receive(net, 5000, &head, &body, fds), -ECONNRESET);
		assert_false(link_is_idle(net));
		link_close(net);
	}
	link_buffer_done(&body);
	echo_stop(&echo);
}

static void test_tls__key_is_made_once_and_is_its_owners(void **state)
{
	(void)state;
	struct echo echo;
	struct stat stat_of;
	uint8_t first[TLS_PIN_BYTES], again[TLS_PIN_BYTES];
	SSL_CTX *context;
	echo_dir(&echo);
	assert_int_equal(tls_pin_of(echo.file, first), 0);
	assert_int_equal(stat(echo.file, &stat_of), 0);
	assert_int_equal(stat_of.st_mode & 07777, 0600);
	assert_int_equal(tls_key_make(echo.dir), 0);
	assert_int_equal(tls_pin_of(echo.file, again), 0);
	assert_memory_equal(first, again, TLS_PIN_BYTES);
	assert_int_equal(chmod(echo.file, 0604), 0);
	assert_int_equal(tls_context_open(echo.file, NULL, &context), CAIRN_E_ACCESS);
	assert_non_null(strstr(err_text(), "read by others"));
	assert_int_equal(chmod(echo.file, 0600), 0);
	FILE *file = fopen(echo.file, "w"); /* damaged */
	fputs("-----BEGIN NOTHING-----\n", file);
	fclose(file);
	assert_true(tls_context_open(echo.file, NULL, &context) < 0);
	assert_true(tls_pin_of(echo.file, again) < 0);
	unlink(echo.file);
	assert_true(tls_context_open(echo.file, NULL, &context) < 0);
	assert_int_equal(symlink("/nonexistent/elsewhere", echo.file), 0); /* nothing is written where a link leads */
	assert_true(tls_key_make(echo.dir) == 0 && access("/nonexistent/elsewhere", F_OK));
	unlink(echo.file);
	rmdir(echo.dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tls__carries_frames_of_all_sizes),
		cmocka_unit_test(test_tls__refuses_another_key_than_the_pinned_one),
		cmocka_unit_test(test_tls__ends_a_handshake_that_stalls),
		cmocka_unit_test(test_tls__ends_what_is_garbage),
		cmocka_unit_test(test_tls__tells_a_client_without_it),
		cmocka_unit_test(test_tls__says_so_when_the_other_side_has_none),
		cmocka_unit_test(test_tls__notices_when_the_peer_has_gone),
		cmocka_unit_test(test_tls__key_is_made_once_and_is_its_owners),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
