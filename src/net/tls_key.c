/* SPDX-License-Identifier: Apache-2.0 */
/* A server's key and certificate, from files or made. See tls.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/digest.h"
#include "base/err.h"
#include "cairn/cairn.h"
#include "net/tls.h"

enum {
	PATH_ROOM = 4200
};

const char *tls_reason(void)
{
	unsigned long code = ERR_peek_last_error();
	const char *text = code ? ERR_reason_error_string(code) : NULL;
	return text ? text : "no more is known";
}

/* ---- pins -------------------------------------------------------------------------------------------------------- */

int tls_pin_of_x509(X509 *certificate, uint8_t ret_pin[TLS_PIN_BYTES])
{
	uint8_t *der = NULL;
	int length = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &der);
	if (length <= 0)
		return -1;
	digest_sha256(der, (size_t)length, ret_pin);
	OPENSSL_free(der);
	return 0;
}

int tls_pin_of(const char *certificate_file, uint8_t ret_pin[TLS_PIN_BYTES])
{
	FILE *from = fopen(certificate_file, "re");
	if (!from)
		return err_set(err_from_errno(errno), "%s: %s", certificate_file, strerror(errno));
	ERR_clear_error();
	X509 *certificate = PEM_read_X509(from, NULL, NULL, NULL);
	int error = !certificate || tls_pin_of_x509(certificate, ret_pin)
	                ? err_set(CAIRN_E_INVAL, "%s: no certificate in PEM: %s", certificate_file, tls_reason())
	                : 0;
	X509_free(certificate);
	fclose(from);
	return error;
}

/* ---- a key of our own -------------------------------------------------------------------------------------------- */

/* Signed by itself; without an end: it is the pin that counts, and a date would end service on a day nobody knows. */
static X509 *certificate_make(EVP_PKEY *key)
{
	X509 *made = X509_new();
	uint8_t serial[8];
	digest_random(serial, sizeof(serial));
	serial[0] &= 0x7f;
	if (!made)
		return NULL;
	X509_NAME *name = X509_get_subject_name(made);
	BIGNUM *number = BN_bin2bn(serial, sizeof(serial), NULL);
	int good =
		number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(made)) && X509_set_version(made, X509_VERSION_3) &&
		X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"cairnd", -1, -1, 0) &&
		X509_set_issuer_name(made, name) && ASN1_TIME_set_string_X509(X509_getm_notBefore(made), "20200101000000Z") &&
		ASN1_TIME_set_string_X509(X509_getm_notAfter(made), "99991231235959Z") && X509_set_pubkey(made, key) &&
		X509_sign(made, key, EVP_sha256());
	BN_free(number);
	if (good)
		return made;
	X509_free(made);
	return NULL;
}

static int key_write(int fd)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = key ? certificate_make(key) : NULL;
	BIO *to = certificate ? BIO_new_fd(fd, BIO_NOCLOSE) : NULL;
	int good =
		to && PEM_write_bio_PrivateKey(to, key, NULL, NULL, 0, NULL, NULL) && PEM_write_bio_X509(to, certificate);
	BIO_free(to);
	X509_free(certificate);
	EVP_PKEY_free(key);
	return good && !fsync(fd) ? 0 : -1;
}

int tls_key_make(const char *directory)
{
	char file[PATH_ROOM], aside[PATH_ROOM + 32];
	uint64_t unique;
	digest_random(&unique, sizeof(unique));
	if (snprintf(file, sizeof(file), "%s/" TLS_FILE, directory) >= PATH_ROOM)
		return err_set(CAIRN_E_INVAL, "the path of the directory is too long");
	if (!access(file, F_OK))
		return 0;
	snprintf(aside, sizeof(aside), "%s.%016llx", file, (unsigned long long)unique);
	int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_set(err_from_errno(errno), "%s: %s", aside, strerror(errno));
	ERR_clear_error();
	struct stat owner; /* made by root for a daemon that is not: the directory's owner has to read it */
	if (!geteuid() && !stat(directory, &owner))
		(void)!fchown(fd, owner.st_uid, owner.st_gid);
	int error =
		key_write(fd) ? err_set(CAIRN_E_IO, "%s: the key can not be made or written: %s", aside, tls_reason()) : 0;
	close(fd);
	/* Another process may have made one meanwhile: a name is given once, and the first stays. */
	if (!error && link(aside, file) && errno != EEXIST)
		error = err_set(err_from_errno(errno), "%s: %s", file, strerror(errno));
	unlink(aside);
	int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0) {
		if (fsync(dir) && !error)
			error = err_set(err_from_errno(errno), "%s: %s", directory, strerror(errno));
		close(dir);
	}
	return error;
}

/* ---- a server's context ------------------------------------------------------------------------------------------ */

/* The file, when it is one and `forbidden` permission bits are off. NULL with the text. */
static BIO *file_open(const char *path, mode_t forbidden)
{
	struct stat stat;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &stat)) {
		(void)err_set(err_from_errno(errno), "%s: %s", path, strerror(errno));
	} else if (!S_ISREG(stat.st_mode)) {
		(void)err_set(CAIRN_E_INVAL, "%s is no file", path);
	} else if (stat.st_mode & forbidden) {
		(void)err_set(CAIRN_E_ACCESS, "%s can be read by others: a key is its owner's alone (chmod o= %s)", path, path);
	} else {
		BIO *file = BIO_new_fd(fd, BIO_CLOSE);
		BIO *buffer = file ? BIO_new(BIO_f_buffer()) : NULL; /* PEM is read by lines */
		if (buffer)
			return BIO_push(buffer, file);
		BIO_free(file);
		(void)err_set(CAIRN_E_NOMEM, "no memory for a key");
		return NULL;
	}
	if (fd >= 0)
		close(fd);
	return NULL;
}

static int chain_take(SSL_CTX *context, BIO *from)
{
	X509 *certificate = PEM_read_bio_X509(from, NULL, NULL, NULL);
	int good = certificate && SSL_CTX_use_certificate(context, certificate) == 1;
	X509_free(certificate);
	while (good && (certificate = PEM_read_bio_X509(from, NULL, NULL, NULL)))
		if (!(good = SSL_CTX_add0_chain_cert(context, certificate) == 1))
			X509_free(certificate);
	return good ? 0 : -1;
}

int tls_context_open(const char *certificate_file, const char *key_file, SSL_CTX **ret_context)
{
	key_file = key_file ? key_file : certificate_file;
	BIO *key_from = file_open(key_file, S_IRWXO);
	BIO *chain_from = key_from ? file_open(certificate_file, strcmp(key_file, certificate_file) ? 0 : S_IRWXO) : NULL;
	if (!chain_from) {
		BIO_free_all(key_from);
		return CAIRN_E_ACCESS;
	}
	ERR_clear_error();
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());
	EVP_PKEY *key = PEM_read_bio_PrivateKey(key_from, NULL, NULL, (void *)(uintptr_t) "");
	int error = 0;
	if (!context)
		error = err_set(CAIRN_E_NOMEM, "no memory for TLS");
	else if (!key)
		error = err_set(CAIRN_E_INVAL, "%s: no private key in PEM without a password: %s", key_file, tls_reason());
	else if (chain_take(context, chain_from))
		error = err_set(CAIRN_E_INVAL, "%s: no certificate in PEM: %s", certificate_file, tls_reason());
	else if (SSL_CTX_use_PrivateKey(context, key) != 1)
		error = err_set(CAIRN_E_INVAL, "%s is not the key of %s: %s", key_file, certificate_file, tls_reason());
	EVP_PKEY_free(key);
	BIO_free_all(key_from);
	BIO_free_all(chain_from);
	if (error)
		SSL_CTX_free(context);
	else
		*ret_context = context;
	return error;
}
