/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit of what travels: bytes over loopback TCP within this process, without cairn, a sender and a receiver thread
 * for each connection. Both use the system's congestion control and buffers, as cairn does, and give the kernel as much
 * as it takes at once; or OpenSSL, with the cipher and the reading ahead that cairn uses.
 * Threads: two for each connection while it runs. Memory: the sockets.
 * Invariant: what is said to have been sent has been received whole.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/cli.h"

enum {
	LOOP_STREAMS = 8
};

struct loop_side {
	int fd;
	uint8_t *memory;
	uint64_t bytes;
	int failed;
	SSL *ssl; /* NULL: in plain */
};

struct bench_loop {
	uint32_t streams;
	SSL_CTX *client, *server;
	struct loop_side sender[LOOP_STREAMS], receiver[LOOP_STREAMS];
};

/* After a transfer that moved nothing: waits where there was nothing to move. 0, or -1. */
static int loop_wait(int fd, short what)
{
	struct pollfd wait = {.fd = fd, .events = what};

	if (errno == EINTR)
		return 0;
	if (errno != EAGAIN && errno != EWOULDBLOCK)
		return -1;
	return poll(&wait, 1, 10000) == 1 ? 0 : -1;
}

static void *loop_send(void *arg)
{
	struct loop_side *side = arg;

	for (uint64_t at = 0; at < side->bytes && !side->failed && side->ssl;) {
		uint64_t left = side->bytes - at;
		int sent = SSL_write(side->ssl, side->memory + at, (int)(left < BENCH_PART_BYTES ? left : BENCH_PART_BYTES));

		side->failed = sent <= 0;
		at += sent > 0 ? (uint64_t)sent : 0;
	}
	for (uint64_t at = 0; at < side->bytes && !side->failed && !side->ssl;) {
		ssize_t sent = send(side->fd, side->memory + at, side->bytes - at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent > 0)
			at += (uint64_t)sent;
		else
			side->failed = loop_wait(side->fd, POLLOUT);
	}
	return NULL;
}

static void *loop_receive(void *arg)
{
	struct loop_side *side = arg;

	for (uint64_t at = 0; at < side->bytes && !side->failed && side->ssl;) {
		uint64_t left = side->bytes - at;
		int got = SSL_read(side->ssl, side->memory + at, (int)(left < BENCH_PART_BYTES ? left : BENCH_PART_BYTES));

		side->failed = got <= 0;
		at += got > 0 ? (uint64_t)got : 0;
	}
	for (uint64_t at = 0; at < side->bytes && !side->failed && !side->ssl;) {
		ssize_t got = recv(side->fd, side->memory + at, side->bytes - at, MSG_DONTWAIT);

		if (got > 0)
			at += (uint64_t)got;
		else
			side->failed = got == 0 ? -1 : loop_wait(side->fd, POLLIN);
	}
	return NULL;
}

static int loop_connect(int listener, const struct sockaddr_in *address, int *ret_from, int *ret_to)
{
	int on = 1;

	*ret_from = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*ret_from < 0 || connect(*ret_from, (const struct sockaddr *)address, sizeof *address))
		return -1;
	*ret_to = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	return *ret_to < 0 || setsockopt(*ret_from, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) ? -1 : 0;
}

/* ---- TLS --------------------------------------------------------------------------------------------------------- */

/* A key, and a certificate that it has signed itself, good for an hour. 0, or -1. */
static int loop_certify(SSL_CTX *context)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = X509_new();
	int good = key && certificate && ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1) &&
	           X509_gmtime_adj(X509_getm_notBefore(certificate), 0) &&
	           X509_gmtime_adj(X509_getm_notAfter(certificate), 3600) && X509_set_pubkey(certificate, key) &&
	           X509_sign(certificate, key, EVP_sha256()) && SSL_CTX_use_certificate(context, certificate) == 1 &&
	           SSL_CTX_use_PrivateKey(context, key) == 1;

	X509_free(certificate);
	EVP_PKEY_free(key);
	return good ? 0 : -1;
}

static SSL_CTX *loop_context(const SSL_METHOD *method)
{
	SSL_CTX *context = SSL_CTX_new(method);

	if (context && SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) &&
	    SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") && SSL_CTX_set_num_tickets(context, 0)) {
		SSL_CTX_set_read_ahead(context, 1);
		SSL_CTX_set_default_read_buffer_len(context, 256 << 10);
		return context;
	}
	SSL_CTX_free(context);
	return NULL;
}

static void *loop_accept(void *arg)
{
	struct loop_side *side = arg;

	side->failed = SSL_accept(side->ssl) != 1;
	return NULL;
}

static int loop_secure(struct bench_loop *loop, uint32_t stream)
{
	struct loop_side *sender = &loop->sender[stream], *receiver = &loop->receiver[stream];
	pthread_t thread;

	sender->ssl = SSL_new(loop->server);
	receiver->ssl = SSL_new(loop->client);
	if (!sender->ssl || !receiver->ssl || !SSL_set_fd(sender->ssl, sender->fd) ||
	    !SSL_set_fd(receiver->ssl, receiver->fd) || pthread_create(&thread, NULL, loop_accept, sender))
		return -1;
	int failed = SSL_connect(receiver->ssl) != 1;
	if (failed)
		shutdown(receiver->fd, SHUT_RDWR);
	pthread_join(thread, NULL);
	return failed || sender->failed ? -1 : 0;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

struct bench_loop *bench_loop_open(uint32_t streams, int secure)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	struct bench_loop *loop = calloc(1, sizeof *loop);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int error = !loop || streams > LOOP_STREAMS || listener < 0 ||
	            bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, LOOP_STREAMS) ||
	            getsockname(listener, (struct sockaddr *)&address, &length);

	for (uint32_t i = 0; i < LOOP_STREAMS && loop; i++)
		loop->sender[i].fd = loop->receiver[i].fd = -1;
	if (!error && secure) {
		loop->client = loop_context(TLS_client_method());
		loop->server = loop_context(TLS_server_method());
		error = !loop->client || !loop->server || loop_certify(loop->server);
	}
	for (uint32_t i = 0; i < streams && !error; i++, loop->streams++)
		error = loop_connect(listener, &address, &loop->sender[i].fd, &loop->receiver[i].fd) ||
		        (secure && loop_secure(loop, i));
	if (error)
		say_error("no connection over loopback: %s", strerror(errno));
	if (listener >= 0)
		close(listener);
	if (error && loop)
		bench_loop_close(loop);
	return error ? NULL : loop;
}

double bench_loop_run(struct bench_loop *loop, const uint8_t *from, uint8_t *to, uint64_t bytes)
{
	pthread_t threads[2 * LOOP_STREAMS];
	uint64_t share = bytes / loop->streams;
	uint32_t started = 0;
	int failed = 0;
	double start = bench_now();

	for (uint32_t i = 0; i < loop->streams; i++) {
		struct loop_side *sender = &loop->sender[i], *receiver = &loop->receiver[i];

		*sender = (struct loop_side){sender->fd, (uint8_t *)(uintptr_t)from + i * share, share, 0, sender->ssl};
		*receiver = (struct loop_side){receiver->fd, to + i * share, share, 0, receiver->ssl};
		if (pthread_create(&threads[started], NULL, loop_receive, receiver))
			break;
		started++;
		if (pthread_create(&threads[started], NULL, loop_send, sender))
			break;
		started++;
	}
	failed = started != 2 * loop->streams;
	for (uint32_t i = 0; i < loop->streams && failed; i++) { /* one side alone would wait for ever */
		shutdown(loop->sender[i].fd, SHUT_RDWR);
		shutdown(loop->receiver[i].fd, SHUT_RDWR);
	}
	for (uint32_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	double seconds = bench_now() - start;
	for (uint32_t i = 0; i < loop->streams; i++)
		failed |= loop->sender[i].failed || loop->receiver[i].failed;
	if (!failed)
		return (double)(share * loop->streams) / 1e9 / seconds;
	say_error("bytes over loopback did not arrive");
	return 0;
}

void bench_loop_close(struct bench_loop *loop)
{
	if (!loop)
		return;
	for (uint32_t i = 0; i < LOOP_STREAMS; i++) {
		SSL_free(loop->sender[i].ssl);
		SSL_free(loop->receiver[i].ssl);
		if (loop->sender[i].fd >= 0)
			close(loop->sender[i].fd);
		if (loop->receiver[i].fd >= 0)
			close(loop->receiver[i].fd);
	}
	SSL_CTX_free(loop->client);
	SSL_CTX_free(loop->server);
	free(loop);
}
