/* SPDX-License-Identifier: Apache-2.0 */
/* The admin endpoint, over HTTP: what it answers, and what it does not let itself be told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>

#include "daemon/admin.h"
#include "unit/store_lib.h"
#include <netinet/in.h>
#include <sys/socket.h>

static struct world world;
static struct daemon daemon_;
static struct admin *admin;
static char answer[1 << 20];

static int setup(void **state)
{
	(void)state;
	world_init(&world, 1, 128 * MIB, 16 * MIB);
	memset(&daemon_, 0, sizeof daemon_);
	if (store_open("s", &world.options, &world.maker, &daemon_.store))
		return -1;
	pthread_mutex_init(&daemon_.lock, NULL);
	list_init(&daemon_.clients);
	list_init(&daemon_.conns);
	return admin_open(&daemon_, "127.0.0.1:0", &admin);
}

static int teardown(void **state)
{
	(void)state;
	admin_close(admin);
	store_abandon(daemon_.store);
	pthread_mutex_destroy(&daemon_.lock);
	world_done(&world);
	return 0;
}

/* Sends bytes, reads all that comes until the end. The HTTP status; 0: no answer. */
static int ask_raw(const char *bytes, size_t length)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)admin_port(admin))};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), status = 0;
	size_t got = 0;
	assert_int_equal(inet_pton(AF_INET, "127.0.0.1", &address.sin_addr), 1);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	(void)!send(fd, bytes, length, MSG_NOSIGNAL);
	for (ssize_t n; got < sizeof answer - 1 && (n = recv(fd, answer + got, sizeof answer - 1 - got, 0)) > 0;)
		got += (size_t)n;
	close(fd);
	answer[got] = 0;
	(void)sscanf(answer, "HTTP/1.%*d %d", &status);
	return status;
}

static int ask(const char *method, const char *path)
{
	char request[256];
	int n = snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method, path);
	return ask_raw(request, (size_t)n);
}

static const char *body(void)
{
	const char *at = strstr(answer, "\r\n\r\n");
	assert_non_null(at);
	return at + 4;
}

static void test_admin__is_ready_when_it_serves_alone(void **state)
{
	(void)state;
	assert_int_equal(ask("GET", "/readyz"), 503);
	atomic_store(&daemon_.ready, 1);
	assert_int_equal(ask("GET", "/readyz"), 200);
	atomic_store(&daemon_.ready, 0);
	assert_int_equal(ask("GET", "/readyz"), 503);
}

static void test_admin__tells_health_per_tier_when_flash_hangs(void **state)
{
	(void)state;
	assert_int_equal(ask("GET", "/healthz"), 200);
	json_t *health = json_loads(body(), 0, NULL);
	assert_string_equal(json_string_value(json_object_get(health, "status")), "ok");
	json_decref(health);
	cairn_space *space = space_named(daemon_.store, NULL, "m");
	struct sim_faults stuck = {.slow_ppm = 1000000, .slow_ns_max = 1000000000000ull};
	sim_set_faults(world.sim, NULL, &stuck);
	assert_int_equal(put_chain(daemon_.store, space, 1, 0, 1, 1000, CAIRN_DURABLE_NONE), 1);
	for (int i = 0; i < 3 && ask("GET", "/healthz") == 200; i++) /* slow at first, broken after two seconds of it */
		assert_non_null(strstr(body(), "\"flash\":{\"state\":\"slow\""));
	assert_int_equal(ask("GET", "/healthz"), 503);
	health = json_loads(body(), 0, NULL);
	assert_string_equal(json_string_value(json_object_get(health, "status")), "broken");
	json_t *tiers = json_object_get(health, "tiers");
	assert_string_equal(json_string_value(json_object_get(json_object_get(tiers, "memory"), "state")), "ok");
	assert_string_equal(json_string_value(json_object_get(json_object_get(tiers, "flash"), "state")), "broken");
	json_decref(health);
}

static void test_admin__shows_each_figure_when_asked_for_metrics(void **state)
{
	(void)state;
	cairn_space *space = space_named(daemon_.store, NULL, "a \"model\"\\ of \x01 mine");
	assert_int_equal(put_chain(daemon_.store, space, 1, 0, 5, 1000, CAIRN_DURABLE_NONE), 5);
	cairn_key key = key_at(1, 0), never = key_at(9, 9);
	assert_int_equal(get_status(daemon_.store, space, &key, 1000), CAIRN_OK);
	assert_int_equal(get_status(daemon_.store, space, &never, 1000), CAIRN_MISS);
	metrics_request(&daemon_.metrics, WIRE_PUT, 15000, 0);
	metrics_request(&daemon_.metrics, WIRE_PUT, 20000000000, 1);
	assert_int_equal(ask("GET", "/metrics"), 200);
	static const char *const lines[] = {
		"\ncairn_tier_hits_total{tier=\"memory\"} 1\n",
		"\ncairn_tier_written_bytes_total{tier=\"memory\"} 5000\n",
		"\ncairn_misses_total{reason=\"none\"} 1\n",
		"\ncairn_read_written_ratio 0.2\n",
		"\ncairn_alarm{kind=\"write_only\"} 0\n",
		"\ncairn_device_state{device=\"s/flash.cairn\"} 0\n",
		"\ncairn_request_seconds_bucket{type=\"put\",le=\"1e-05\"} 0\n",
		"\ncairn_request_seconds_bucket{type=\"put\",le=\"2e-05\"} 1\n",
		"\ncairn_request_seconds_bucket{type=\"put\",le=\"10\"} 1\n",
		"\ncairn_request_seconds_bucket{type=\"put\",le=\"+Inf\"} 2\n",
		"\ncairn_request_seconds_count{type=\"put\"} 2\n",
		"\ncairn_requests_failed_total{type=\"put\"} 1\n",
		"tier=\"memory\"} 5000\n",
	};
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
		if (!strstr(body(), lines[i]))
			fail_msg("no line %s", lines[i]);
	for (const char *at = body(); *at; at++)
		assert_true(*at == '\n' || (uint8_t)*at >= ' ');
}

static void test_admin__is_bounded_when_there_are_many_spaces(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 300; i++) {
		char model[32];
		snprintf(model, sizeof model, "m%u", i);
		cairn_space *space = space_named(daemon_.store, NULL, model);
		assert_int_equal(put_chain(daemon_.store, space, i, 0, 1, 100 + i, CAIRN_DURABLE_NONE), 1);
	}
	assert_int_equal(ask("GET", "/metrics"), 200);
	uint32_t n = 0;
	for (const char *at = body(); (at = strstr(at, "\ncairn_space_misses_total{")); at++)
		n++;
	assert_int_equal(n, METRICS_SPACES + 1);
	assert_non_null(strstr(body(), "\ncairn_spaces 300\n"));
	assert_non_null(strstr(body(), "model=\"m299\"")); /* the largest */
	assert_null(strstr(body(), "model=\"m7\""));
	uint64_t rest = 0;
	for (uint32_t i = 0; i < 200; i++)
		rest += 100 + i;
	char line[128];
	snprintf(line, sizeof line, "\ncairn_space_written_bytes_total{space=\"other\",model=\"\"} %llu\n",
	         (unsigned long long)rest);
	assert_non_null(strstr(body(), line));
}

static void test_admin__changes_nothing_when_told_to(void **state)
{
	(void)state;
	static const char *const methods[] = {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "NONSENSE"};
	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
		assert_int_equal(ask(methods[i], "/metrics"), 405);
	assert_int_equal(ask("GET", "/"), 404);
	assert_int_equal(ask("GET", "/../../etc/passwd"), 404);
	assert_int_equal(ask("HEAD", "/readyz"), 503);
	/* Half requests, garbage, headers without end: an error or the end of the connection; and then it serves on. */
	static char large[100000];
	memset(large, 'a', sizeof large);
	memcpy(large, "GET /metrics HTTP/1.1\r\nX: ", 26);
	assert_true(ask_raw(large, sizeof large) != 200);
	assert_true(ask_raw("\x16\x03\x01\r\n\r\n\r\n", 9) != 200);
	static const char short_body[] = "GET /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\nHost: x\r\n\r\nxxxx";
	assert_true(ask_raw(short_body, sizeof short_body - 1) != 200);
	assert_int_equal(ask("GET", "/metrics"), 200);
}

static void test_admin__is_refused_when_the_port_is_taken(void **state)
{
	(void)state;
	struct admin *other;
	char place[32];
	snprintf(place, sizeof place, "127.0.0.1:%u", admin_port(admin));
	assert_int_equal(admin_open(&daemon_, place, &other), -EADDRINUSE);
	assert_int_equal(admin_open(&daemon_, "no.such.host.invalid:1", &other), -EADDRNOTAVAIL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_admin__is_ready_when_it_serves_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_admin__tells_health_per_tier_when_flash_hangs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_admin__shows_each_figure_when_asked_for_metrics, setup, teardown),
		cmocka_unit_test_setup_teardown(test_admin__is_bounded_when_there_are_many_spaces, setup, teardown),
		cmocka_unit_test_setup_teardown(test_admin__changes_nothing_when_told_to, setup, teardown),
		cmocka_unit_test_setup_teardown(test_admin__is_refused_when_the_port_is_taken, setup, teardown),
	};
	return cmocka_run_group_tests_name("admin", tests, NULL, NULL);
}
