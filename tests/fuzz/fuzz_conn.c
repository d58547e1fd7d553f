/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames, in any order, to a cairnd in this process: each input is a connection, which the daemon ends, or answers
 * until the input does; then it holds nothing for it. Input: a byte of CONN_* and then either frames (type, flags, two
 * bytes of length; the body; with FRAME_BULK a bulk), made whole with their checksum, or bytes as they are.
 *
 * The store and the daemon are kept from input to input, in a directory that is removed at the end.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "fmt/key.h"
#include "fuzz/fuzz.h"
#include "lib/serving.h"
#include "store/store.h"

enum {
	CONN_TCP = 1,
	CONN_STRANGER = 2, /* neither hello nor a space go before */
	CONN_RAW = 4,
	FRAME_BULK = 128, /* the other bits are those of the header */
	WAIT_MS = 10,     /* of each request */
	ENDS_MS = 10000,
	OUT_MAX = 1 << 20,
	BULK_MAX = 1 << 16,
};

static struct serving servings[2]; /* by socket file, and TCP, of one store */
static struct cairn_flash flash = {.budget_bytes = 32 << 20};
static char directory[64];
static uint8_t out[OUT_MAX];
static size_t filled;
static const cairn_digest weights = {{5}};
static const struct cairn_space_desc desc = {
	.size = sizeof desc, .model = "fuzz", .weights = &weights, .kv_dtype = "f16", .block_tokens = 16};

/* ---- the daemon -------------------------------------------------------------------------------------------------- */

static void daemon_end_all(void)
{
	char command[100];
	cairn *store = servings[0].daemon.store;
	for (int i = 0; i < 2; i++)
		serving_stop(&servings[i]);
	check(!cairn_close(store));
	snprintf(command, sizeof command, "rm -rf '%s'", directory);
	check(!system(command));
}

static void daemon_begin(void)
{
	char socket[80];
	cairn *store;
	struct cairn_options options = {.size = sizeof options,
	                                .flags = CAIRN_OPEN_CREATE,
	                                .memory_bytes = 8 << 20,
	                                .catalog_bytes = 1 << 20,
	                                .flash = &flash,
	                                .nflash = 1,
	                                .free_floor_bytes = 1,
	                                .segment_bytes = 1 << 20,
	                                .io_engine = CAIRN_IO_THREADS};
	signal(SIGPIPE, SIG_IGN);
	snprintf(directory, sizeof directory, "/tmp/cairn-fuzz-XXXXXX");
	check(mkdtemp(directory));
	if (store_open_own(directory, &options, &store)) {
		fprintf(stderr, "%s: %s\n", directory, cairn_error_text());
		exit(1);
	}
	snprintf(socket, sizeof socket, "%s/socket", directory);
	for (int i = 0; i < 2; i++)
		check(!serving_start(&servings[i], store, socket, i));
	cairn_space *space;
	uint8_t bytes[64] = {1};
	struct cairn_buf buf = cairn_buf_of(bytes, sizeof bytes);
	struct cairn_item item = {.key = {{2}}, .bufs = &buf, .nbufs = 1};
	check(!cairn_describe(store, &desc, &space) && cairn_put(store, space, &item, 1, NULL) == 1);
	atexit(daemon_end_all);
}

/* ---- what is sent ------------------------------------------------------------------------------------------------ */

static void add_frame(uint16_t type, uint16_t flags, const uint8_t *body, size_t length, const uint8_t *bulk,
                      size_t bulk_bytes)
{
	struct wire_head head = {.version = WIRE_VERSION,
	                         .type = type,
	                         .flags = flags,
	                         .id = filled,
	                         .timeout_ms = WAIT_MS,
	                         .body_bytes = (uint32_t)length,
	                         .bulk_bytes = bulk_bytes};
	if (filled + WIRE_HEAD_BYTES + length + bulk_bytes > OUT_MAX)
		return;
	wire_head_encode(&head, body, out + filled);
	filled += WIRE_HEAD_BYTES;
	if (length)
		memcpy(out + filled, body, length);
	filled += length;
	if (bulk_bytes)
		memcpy(out + filled, bulk, bulk_bytes);
	filled += bulk_bytes;
}

static void add_request(const struct wire_request *request)
{
	static uint8_t body[8192];
	struct bytes_writer w = bytes_writer_of(body, sizeof body);
	wire_request_encode(request, &w);
	check(!w.failed);
	add_frame((uint16_t)request->type, 0, body, w.used, NULL, 0);
}

static void add_beginning(void)
{
	static struct wire_request request;
	static uint8_t canon[4096];
	memset(&request, 0, sizeof request);
	request.type = WIRE_HELLO;
	add_request(&request);
	long length = key_space_encode(&desc, canon, sizeof canon);
	check(length > 0);
	memset(&request, 0, sizeof request);
	request.type = WIRE_DESCRIBE;
	request.u.describe.canon = canon;
	request.u.describe.length = (uint32_t)length;
	add_request(&request);
}

/* What a put's parts are, each with its checksum behind it; else *ret_bulk stays the body. */
static size_t bulk_of(uint8_t type, const uint8_t *body, size_t length, const uint8_t **ret_bulk)
{
	static struct wire_request request;
	static uint8_t bulk[BULK_MAX];
	size_t bytes = 0;
	if (type != WIRE_PUT || wire_request_decode(type, body, length, &request))
		return length;
	for (uint32_t i = 0; i < request.u.batch.nitems; i++) {
		const struct wire_item *item = &request.u.batch.items[i];
		if (item->offset > BULK_MAX - 8 || item->length > BULK_MAX - 8 - item->offset)
			continue;
		uint64_t check = cairn_check(bulk + item->offset, item->length);
		memcpy(bulk + item->offset + item->length, &check, sizeof check);
		if (item->offset + item->length + sizeof check > bytes)
			bytes = item->offset + item->length + sizeof check;
	}
	*ret_bulk = bulk;
	return bytes;
}

static void add_input(const uint8_t *data, size_t size)
{
	while (size >= 4) {
		size_t length = bytes_get16(data + 2);
		uint8_t type = data[0], flags = data[1];
		data += 4, size -= 4;
		length = length < size ? length : size;
		const uint8_t *bulk = data;
		size_t bulk_bytes = flags & FRAME_BULK ? bulk_of(type, data, length, &bulk) : 0;
		add_frame(type, flags & (FRAME_BULK - 1), data, length, bulk, bulk_bytes);
		data += length, size -= length;
	}
}

/* ---- a connection ------------------------------------------------------------------------------------------------ */

/* Sends all and takes whatever comes, until the daemon has ended the connection: descriptors are closed unseen. */
static void talk(int fd)
{
	static uint8_t in[65536];
	size_t sent = 0;
	int64_t until = link_now_ms() + ENDS_MS;
	int open = 1; /* to be written */
	for (;;) {
		if (open && sent == filled) {
			shutdown(fd, SHUT_WR);
			open = 0;
		}
		struct pollfd wait = {.fd = fd, .events = (short)(POLLIN | (open ? POLLOUT : 0))};
		check(link_now_ms() < until);
		if (poll(&wait, 1, 1000) <= 0)
			continue;
		if (wait.revents & POLLOUT) {
			ssize_t n = send(fd, out + sent, filled - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
			if (n > 0)
				sent += (size_t)n;
			else if (errno != EAGAIN && errno != EINTR)
				sent = filled; /* it has ended it; what it said before is to be read */
		}
		if (wait.revents & ~POLLOUT) {
			ssize_t n = recv(fd, in, sizeof in, MSG_DONTWAIT);
			if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
				return;
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct link_place place;
	struct link *net;
	if (!directory[0])
		daemon_begin();
	if (!size)
		return 0;
	struct serving *serving = &servings[data[0] & CONN_TCP];
	filled = 0;
	if (!(data[0] & CONN_STRANGER))
		add_beginning();
	if (!(data[0] & CONN_RAW)) {
		add_input(data + 1, size - 1);
	} else if (size - 1 <= OUT_MAX - filled) {
		memcpy(out + filled, data + 1, size - 1);
		filled += size - 1;
	}
	check(!link_place_take(serving->place, &place));
	if (link_connect(&place, NULL, ENDS_MS, &net))
		return 0; /* this machine has no more ports */
	talk(link_fd(net));
	/* It ended first and all was read: no port has to rest. */
	setsockopt(link_fd(net), SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
	link_close(net);
	int64_t until = link_now_ms() + ENDS_MS;
	while (daemon_conns(&serving->daemon)) {
		check(link_now_ms() < until);
		(void)poll(NULL, 0, 1); /* libFuzzer has a timer, whose signal ends it early */
	}
	struct cairn_stat stat = {.size = sizeof stat};
	int error = cairn_stat(serving->daemon.store, &stat);
	if (error || stat.leased_bytes || stat.matches)
		fprintf(stderr, "fuzz_conn: stat %d, %llu bytes leased, %u matches\n", error,
		        (unsigned long long)stat.leased_bytes, (unsigned)stat.matches);
	check(!error && !stat.leased_bytes && !stat.matches);
	return 0;
}
