/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS 1.3 over TCP (tcp://). See link.h; keys and pins are in tls.h.
 *
 * OpenSSL sees the socket through functions of our own, which never wait and never raise SIGPIPE in somebody else's
 * process; waiting is the same as for plain sockets, with the same deadlines.
 * Memory: a context for all clients of the process, one for each listener; per link OpenSSL's buffers, and one in which
 * a frame's small pieces become one record.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/socket.h"
#include "net/tls.h"

enum {
	TLS_RECORD = 16384,
	TLS_READ_AHEAD = 256 << 10, /* several records a system call */
};

struct tls_link {
	struct link link;
	SSL *ssl;
	int fd;
	const uint8_t *pin; /* while it connects */
	int other_key;      /* the handshake ended because the key is not the pinned one */
	uint8_t record[TLS_RECORD];
};

struct tls_listener {
	struct link_listener listener;
	SSL_CTX *context;
};

static struct tls_link *tls_of(struct link *link)
{
	return (struct tls_link *)link;
}

/* ---- the socket, as OpenSSL sees it ------------------------------------------------------------------------------ */

static int bio_write(BIO *bio, const char *bytes, size_t length, size_t *ret_n)
{
	struct tls_link *link = BIO_get_data(bio);
	ssize_t n = send(link->fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
	BIO_clear_retry_flags(bio);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		BIO_set_retry_write(bio);
	*ret_n = n > 0 ? (size_t)n : 0;
	return n > 0;
}

static int bio_read(BIO *bio, char *bytes, size_t length, size_t *ret_n)
{
	struct tls_link *link = BIO_get_data(bio);
	ssize_t n = recv(link->fd, bytes, length, MSG_DONTWAIT);
	BIO_clear_retry_flags(bio);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		BIO_set_retry_read(bio);
	if (n == 0)
		BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
	*ret_n = n > 0 ? (size_t)n : 0;
	return n > 0;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
	(void)number, (void)pointer;
	if (command == BIO_CTRL_EOF)
		return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
	return command == BIO_CTRL_FLUSH;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static BIO_METHOD *socket_method;
static SSL_CTX *client_context;

static int certificate_check(X509_STORE_CTX *store, void *arg);

static void context_tune(SSL_CTX *context)
{
	SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
	SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION);
	/* The shortest key is the fastest, and long enough. */
	SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
	SSL_CTX_set_mode(context, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_num_tickets(context, 0); /* connections are kept: none is taken up again */
	SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_read_ahead(context, 1);
	SSL_CTX_set_default_read_buffer_len(context, TLS_READ_AHEAD);
}

static void tls_begin(void)
{
	BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "cairn socket");
	if (!method || !BIO_meth_set_write_ex(method, bio_write) || !BIO_meth_set_read_ex(method, bio_read) ||
	    !BIO_meth_set_ctrl(method, bio_ctrl))
		return;
	client_context = SSL_CTX_new(TLS_client_method());
	if (!client_context)
		return;
	context_tune(client_context);
	SSL_CTX_set_default_verify_paths(client_context);
	SSL_CTX_set_verify(client_context, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_cert_verify_callback(client_context, certificate_check, NULL);
	socket_method = method;
}

/* ---- steps that wait --------------------------------------------------------------------------------------------- */

/* After a step that did not end: 0 when it may be tried again, or -errno. */
static int step_retry(struct tls_link *link, int result, int64_t deadline_ms)
{
	int saved = errno;
	switch (SSL_get_error(link->ssl, result)) {
	case SSL_ERROR_WANT_READ:
		return socket_wait(link->fd, POLLIN, deadline_ms);
	case SSL_ERROR_WANT_WRITE:
		return socket_wait(link->fd, POLLOUT, deadline_ms);
	case SSL_ERROR_ZERO_RETURN:
		return -ECONNRESET;
	case SSL_ERROR_SYSCALL:
		return saved == EPIPE || saved == ENOTCONN || !saved ? -ECONNRESET : -saved;
	default:
		/* The other side has gone without a word; anything else is no TLS. */
		return ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING ? -ECONNRESET : -EPROTO;
	}
}

static int handshake(struct tls_link *link, int64_t deadline_ms)
{
	for (;;) {
		errno = 0;
		ERR_clear_error();
		int result = SSL_do_handshake(link->ssl);
		int error = result == 1 ? 0 : step_retry(link, result, deadline_ms);
		if (result == 1 || error)
			return error;
	}
}

static int record_send(struct tls_link *link, const void *bytes, size_t length, int64_t deadline_ms)
{
	while (length) {
		size_t n = 0;
		errno = 0;
		ERR_clear_error();
		int result = SSL_write_ex(link->ssl, bytes, length, &n);
		int error = result == 1 ? 0 : step_retry(link, result, deadline_ms);
		if (error)
			return error;
		bytes = (const uint8_t *)bytes + n;
		length -= n;
	}
	return 0;
}

static int tls_send(struct link *link, struct iovec *parts, size_t nparts, const int *fds, uint32_t nfds,
                    int64_t deadline_ms)
{
	struct tls_link *tls = tls_of(link);
	int error = 0;
	(void)fds, (void)nfds;
	for (size_t i = 0; i < nparts && !error; i++) {
		size_t used = 0;
		/* Small pieces that follow each other are one record, and one packet. */
		while (i + 1 < nparts && used + parts[i].iov_len + parts[i + 1].iov_len <= TLS_RECORD) {
			memcpy(tls->record + used, parts[i].iov_base, parts[i].iov_len);
			used += parts[i++].iov_len;
		}
		if (used) {
			memcpy(tls->record + used, parts[i].iov_base, parts[i].iov_len);
			error = record_send(tls, tls->record, used + parts[i].iov_len, deadline_ms);
		} else {
			error = record_send(tls, parts[i].iov_base, parts[i].iov_len, deadline_ms);
		}
	}
	return error;
}

static int tls_receive(struct link *link, uint8_t *to, size_t length, int *fds, uint32_t *nfds, int64_t deadline_ms)
{
	struct tls_link *tls = tls_of(link);
	(void)fds, (void)nfds;
	for (size_t got = 0; got < length;) {
		size_t n = 0;
		errno = 0;
		ERR_clear_error();
		int result = SSL_read_ex(tls->ssl, to + got, length - got, &n);
		size_t left = length - got; /* of it a record, begun, may have been taken from the socket already */
		int error = 0;
		if (result != 1 && left > 2 * TLS_RECORD && SSL_get_error(tls->ssl, result) == SSL_ERROR_WANT_READ)
			error = socket_wait_payload(tls->fd, left - 2 * TLS_RECORD, deadline_ms);
		else if (result != 1)
			error = step_retry(tls, result, deadline_ms);
		if (error)
			return error;
		got += n;
	}
	return 0;
}

static int tls_wait(struct link *link, int64_t deadline_ms)
{
	struct tls_link *tls = tls_of(link);
	uint8_t byte;
	for (size_t n;;) {
		errno = 0;
		ERR_clear_error();
		int result = SSL_peek_ex(tls->ssl, &byte, 1, &n);
		int error = result == 1 ? 0 : step_retry(tls, result, deadline_ms);
		if (result == 1 || error)
			return error;
	}
}

static int tls_is_idle(struct link *link)
{
	struct tls_link *tls = tls_of(link);
	uint8_t byte;
	size_t n;
	ERR_clear_error();
	int result = SSL_peek_ex(tls->ssl, &byte, 1, &n);
	return result != 1 && SSL_get_error(tls->ssl, result) == SSL_ERROR_WANT_READ;
}

static int tls_fd(const struct link *link)
{
	return ((const struct tls_link *)link)->fd;
}

static void tls_stop(struct link *link, enum link_stop how)
{
	socket_stop(tls_of(link)->fd, how);
}

static void tls_close(struct link *link)
{
	struct tls_link *tls = tls_of(link);
	ERR_clear_error();
	if (SSL_is_init_finished(tls->ssl))
		(void)SSL_shutdown(tls->ssl); /* says that this is the end, and waits for no answer */
	ERR_clear_error();
	SSL_free(tls->ssl);
	close(tls->fd);
	mem_free(tls);
}

/* Takes over the descriptor. 0 or -ENOMEM. */
static int tls_new(SSL_CTX *context, int fd, struct tls_link **ret_link)
{
	struct tls_link *link = context && socket_method ? mem_alloc(sizeof(*link)) : NULL;
	BIO *bio = link ? BIO_new(socket_method) : NULL;
	SSL *ssl = bio ? SSL_new(context) : NULL;
	if (!ssl) {
		BIO_free(bio);
		mem_free(link);
		close(fd);
		return -ENOMEM;
	}
	link->link.ops = &link_tls;
	link->fd = fd;
	link->ssl = ssl;
	BIO_set_data(bio, link);
	BIO_set_init(bio, 1);
	SSL_set_bio(ssl, bio, bio);
	SSL_set_app_data(ssl, link);
	*ret_link = link;
	return 0;
}

/* ---- clients ----------------------------------------------------------------------------------------------------- */

/* Whether who answers is who is meant: the key that the token names; else what the authorities say. */
static int certificate_check(X509_STORE_CTX *store, void *arg)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct tls_link *link = SSL_get_app_data(ssl);
	uint8_t pin[TLS_PIN_BYTES];
	(void)arg;
	if (!link->pin)
		return X509_verify_cert(store);
	X509 *certificate = X509_STORE_CTX_get0_cert(store);
	if (certificate && !tls_pin_of_x509(certificate, pin) && digest_same(pin, link->pin, TLS_PIN_BYTES))
		return 1;
	link->other_key = 1;
	X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_UNTRUSTED);
	return 0;
}

static int name_set(SSL *ssl, const char *host)
{
	struct in6_addr address;
	int is_address = inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
	X509_VERIFY_PARAM *parameters = SSL_get0_param(ssl);
	X509_VERIFY_PARAM_set_hostflags(parameters, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	if (is_address)
		return X509_VERIFY_PARAM_set1_ip_asc(parameters, host);
	return SSL_set_tlsext_host_name(ssl, host) && X509_VERIFY_PARAM_set1_host(parameters, host, 0);
}

/* In one line, what to do about a handshake that failed. Its code: nobody there, or not to be trusted. */
static int handshake_fault(const struct tls_link *link, int error, char why[LINK_WHY])
{
	long verified = SSL_get_verify_result(link->ssl);
	if (link->other_key) {
		snprintf(why, LINK_WHY,
		         "who answers there has another key than the token names: it may be somebody else; "
		         "a token of the cairnd that is meant names its key (cairn token new)");
		return -EACCES;
	}
	if (error == -ENOMEM)
		return error;
	if (error == -EPROTO && verified != X509_V_OK) {
		snprintf(why, LINK_WHY, "its certificate is not to be trusted: %.120s; a token of that cairnd names its key",
		         X509_verify_cert_error_string(verified));
		return -EACCES;
	}
	if (error == -ETIMEDOUT)
		snprintf(why, LINK_WHY, "connected, but nobody answers there in TLS: it hangs, or is something else");
	else
		snprintf(why, LINK_WHY,
		         "who listens there does not speak TLS 1.3 (a cairnd that listens with tcp+plain does "
		         "not), or ended the connection: %.80s",
		         error == -EPROTO ? tls_reason() : strerror(-error));
	return -ECONNRESET;
}

static int tls_connect(const struct link_place *place, const struct link_trust *trust, int64_t deadline_ms,
                       struct link **ret_link, char why[LINK_WHY])
{
	struct tls_link *link;
	int fd, error = socket_connect_tcp(place, deadline_ms, &fd);
	if (error)
		return error;
	pthread_once(&once, tls_begin);
	error = tls_new(client_context, fd, &link);
	if (error)
		return error;
	link->pin = trust->pin;
	SSL_set_connect_state(link->ssl);
	error = name_set(link->ssl, place->host) ? handshake(link, deadline_ms) : -ENOMEM;
	link->pin = NULL; /* the caller's */
	if (error) {
		error = handshake_fault(link, error, why);
		tls_close(&link->link);
		return error;
	}
	*ret_link = &link->link;
	return 0;
}

/* ---- servers ----------------------------------------------------------------------------------------------------- */

static int tls_listen(const struct link_place *place, const struct link_serving *serving,
                      struct link_listener **ret_listener, char why[LINK_WHY])
{
	struct tls_listener *listener = mem_alloc(sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	pthread_once(&once, tls_begin);
	int error = serving->certificate ? tls_context_open(serving->certificate, serving->key, &listener->context)
	                                 : err_set(CAIRN_E_INVAL, "no certificate to serve with");
	if (error)
		snprintf(why, LINK_WHY, "%s", err_text());
	if (!error) {
		context_tune(listener->context);
		error = socket_listen_tcp(place, &listener->listener.fd);
	}
	if (error) {
		SSL_CTX_free(listener->context);
		mem_free(listener);
		return error;
	}
	listener->listener.ops = &link_tls;
	*ret_listener = &listener->listener;
	return 0;
}

static int tls_accept(struct link_listener *listener, struct link **ret_link)
{
	struct tls_link *link;
	int fd = socket_accept_tcp(listener->fd);
	int error = fd < 0 ? fd : tls_new(((struct tls_listener *)listener)->context, fd, &link);
	if (error)
		return error;
	SSL_set_accept_state(link->ssl);
	*ret_link = &link->link;
	return 0;
}

/* Somebody speaks without TLS: if it is a client of cairn it is told so, in its own words. */
static int answer_plain(struct tls_link *link, int64_t deadline_ms)
{
	static const char text[] = "this port wants TLS and a token: tcp://HOST:PORT, without plain";
	uint8_t head[WIRE_HEAD_BYTES], rest[WIRE_TEXT_MAX + 64], body[sizeof(text) + 2];
	struct wire_head ask;
	struct bytes_writer w = bytes_writer_of(body, sizeof(body));
	for (size_t got = 0; got < sizeof(head);) {
		ssize_t n = recv(link->fd, head + got, sizeof(head) - got, MSG_DONTWAIT);
		int error = n > 0 ? 0 : n ? socket_retry(link->fd, POLLIN, deadline_ms) : -ECONNRESET;
		if (error)
			return error;
		got += n > 0 ? (size_t)n : 0;
	}
	if (wire_head_decode(head, &ask) || ask.body_bytes > sizeof(rest))
		return -EPROTO;
	(void)recv(link->fd, rest, ask.body_bytes, MSG_DONTWAIT); /* what is not read would cut our answer off */
	wire_add_text(&w, text);
	struct wire_head reply = {.version = WIRE_VERSION,
	                          .type = ask.type,
	                          .flags = WIRE_REPLY,
	                          .id = ask.id,
	                          .result = CAIRN_E_ACCESS,
	                          .body_bytes = (uint32_t)w.used};
	uint8_t frame[WIRE_HEAD_BYTES + sizeof(body)];
	wire_head_encode(&reply, body, frame);
	memcpy(frame + WIRE_HEAD_BYTES, body, w.used);
	(void)send(link->fd, frame, WIRE_HEAD_BYTES + w.used, MSG_NOSIGNAL | MSG_DONTWAIT);
	return -EPROTO;
}

static int tls_greet(struct link *link, int64_t deadline_ms, char why[LINK_WHY])
{
	struct tls_link *tls = tls_of(link);
	uint8_t first = 0;
	int error = 0;
	while (!error) {
		ssize_t n = recv(tls->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
		if (n > 0)
			break;
		error = n ? socket_retry(tls->fd, POLLIN, deadline_ms) : -ECONNRESET;
	}
	if (!error && first == 'C') { /* as our frames begin; TLS begins with 22 */
		snprintf(why, LINK_WHY, "a client without TLS at a port with it");
		return answer_plain(tls, deadline_ms);
	}
	if (!error)
		error = handshake(tls, deadline_ms);
	if (error == -EPROTO)
		snprintf(why, LINK_WHY, "a handshake of TLS that failed: %.120s", tls_reason());
	return error;
}

static int tls_renew(struct link_listener *listener, const struct link_serving *serving)
{
	struct tls_listener *tls = (struct tls_listener *)listener;
	SSL_CTX *context;
	int error = tls_context_open(serving->certificate, serving->key, &context);
	if (error)
		return error;
	context_tune(context);
	SSL_CTX_free(tls->context); /* links that were made with it hold it still */
	tls->context = context;
	return 0;
}

static void tls_unlisten(struct link_listener *listener)
{
	struct tls_listener *tls = (struct tls_listener *)listener;
	close(listener->fd);
	SSL_CTX_free(tls->context);
	mem_free(tls);
}

const struct link_ops link_tls = {
	.scheme = "tcp://",
	.hosts = 1,
	.is_private = 1,
	.connect = tls_connect,
	.listen = tls_listen,
	.accept = tls_accept,
	.greet = tls_greet,
	.send = tls_send,
	.receive = tls_receive,
	.wait = tls_wait,
	.is_idle = tls_is_idle,
	.fd = tls_fd,
	.stop = tls_stop,
	.close = tls_close,
	.renew = tls_renew,
	.unlisten = tls_unlisten,
};
