/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of TLS: a server's key and certificate, and the pin by which a client knows it: SHA-256 of the public key, as it
 * lies in the certificate (SubjectPublicKeyInfo, DER). With a pin no authority is asked, and names and dates of the
 * certificate do not matter: who holds the key is who is meant.
 *
 * Threads: any. Memory: OpenSSL's own. Results are 0 or a CAIRN_E_* with its text.
 */
#ifndef CAIRN_NET_TLS_H
#define CAIRN_NET_TLS_H

#include <openssl/types.h>
#include <stdint.h>

#define TLS_PIN_BYTES 32u
#define TLS_FILE      "tls.pem" /* in a store's directory: key and certificate that were made there */

/* Makes DIRECTORY/tls.pem with a key of its own and a certificate signed by it, for its owner alone, unless it is
 * there. Whoever comes second takes the first one's. */
int tls_key_make(const char *directory);
/* The pin of a certificate's file (its first certificate). */
int tls_pin_of(const char *certificate_file, uint8_t ret_pin[TLS_PIN_BYTES]);
/* A key that others than its owner (and group) can read is not a key: ACCESS. key_file NULL: in the same file. */
int tls_context_open(const char *certificate_file, const char *key_file, SSL_CTX **ret_context);
/* SHA-256 of a certificate's public key. 0 or -1. */
int tls_pin_of_x509(X509 *certificate, uint8_t ret_pin[TLS_PIN_BYTES]);
/* The newest error of OpenSSL in this thread, in words. */
const char *tls_reason(void);

#endif
