/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens: the list in a directory, which a cairnd reads, and the file with the one that a client has.
 *
 * Threads: any; processes that change a list take turns (a lock on the directory). Memory: one list.
 * Invariant: a list is written aside, flushed and renamed: who reads it sees the old or the new one. It holds no
 * secret.
 */
#include "store/token.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/tls.h"

_Static_assert(CAIRN_TOKEN_TEXT == TOKEN_TEXT_MAX && (int)CAIRN_TOKEN_ADMIN == (int)TOKEN_ADMIN,
               "cairn.h and fmt/token.h");

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* A whole file of at most `max` bytes. NULL with a text; *ret_error its code. */
static char *file_read(int fd, const char *path, size_t max, size_t *ret_length, int *ret_error)
{
	struct stat stat;
	size_t got = 0;
	ssize_t n = 0;
	if (fstat(fd, &stat) || !S_ISREG(stat.st_mode) || (uint64_t)stat.st_size > max) {
		*ret_error = err_set(CAIRN_E_INVAL, "%s is no file of at most %zu bytes", path, max);
		return NULL;
	}
	char *bytes = mem_alloc((size_t)stat.st_size + 1);
	if (!bytes) {
		*ret_error = err_set(CAIRN_E_NOMEM, "no memory for tokens");
		return NULL;
	}
	while (got < (size_t)stat.st_size && (n = read(fd, bytes + got, (size_t)stat.st_size - got)) > 0)
		got += (size_t)n;
	if (n < 0) {
		*ret_error = err_set(err_from_errno(errno), "%s: %s", path, strerror(errno));
		mem_free(bytes);
		return NULL;
	}
	*ret_length = got;
	return bytes;
}

int token_list_read(const char *directory, struct token **ret_tokens, uint32_t *ret_n)
{
	char path[PATH_MAX];
	struct token_list list;
	size_t length = 0;
	uint32_t n = 0;
	int error = 0, more = 0;
	*ret_tokens = NULL;
	*ret_n = 0;
	if (snprintf(path, sizeof(path), "%s/" TOKEN_FILE, directory) >= PATH_MAX)
		return err_set(CAIRN_E_INVAL, "the path of the directory is too long");
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? 0 : err_set(err_from_errno(errno), "%s: %s", path, strerror(errno));
	char *bytes = file_read(fd, path, TOKEN_LIST_BYTES_MAX, &length, &error);
	close(fd);
	if (!bytes)
		return error;
	struct token *tokens = mem_array(TOKEN_LIST_MAX, sizeof(*tokens));
	if (!tokens)
		error = err_set(CAIRN_E_NOMEM, "no memory for tokens");
	else if (token_list_begin(bytes, length, &list))
		error = err_set(CAIRN_E_CORRUPT, "%s is no list of tokens", path);
	while (!error && n < TOKEN_LIST_MAX && (more = token_list_take(&list, &tokens[n])) > 0)
		n++;
	if (!error && more)
		error =
			err_set(CAIRN_E_CORRUPT, "%s: line %u is damaged, or there are more than %u", path, n + 2, TOKEN_LIST_MAX);
	mem_free(bytes);
	if (error) {
		mem_free(tokens);
		return error;
	}
	*ret_tokens = tokens;
	*ret_n = n;
	return 0;
}

static int file_write(int dir, const struct token *tokens, uint32_t n)
{
	char line[TOKEN_LINE_MAX];
	struct stat owner;
	int fd = openat(dir, TOKEN_FILE ".new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	FILE *to = fdopen(fd, "w");
	if (!to) {
		close(fd);
		return -ENOMEM;
	}
	/* Written by root for a daemon that is not: the directory's owner has to read it. */
	int good = (geteuid() || (!fstat(dir, &owner) && !fchown(fd, owner.st_uid, owner.st_gid))) &&
	           fwrite(TOKEN_LIST_HEAD, sizeof(TOKEN_LIST_HEAD) - 1, 1, to) == 1;
	for (uint32_t i = 0; i < n && good; i++) {
		size_t length = token_line_make(&tokens[i], line);
		good = fwrite(line, 1, length, to) == length;
	}
	good = good && !fflush(to) && !fsync(fd);
	int error = good ? 0 : errno ? -errno : -EIO;
	if (fclose(to) && !error)
		error = -errno;
	return error;
}

/* The directory, locked: what is read and written then is one change. -1 with a text and its code. */
static int directory_lock(const char *directory, int *ret_error)
{
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_EX)) {
		*ret_error =
			err_set(err_from_errno(errno), "%s: %s; it is the directory of a store", directory, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

static int list_write(int dir, const char *directory, const struct token *tokens, uint32_t n)
{
	(void)unlinkat(dir, TOKEN_FILE ".new", 0); /* of one who was killed: we have the lock */
	int error = file_write(dir, tokens, n);
	if (!error && (renameat(dir, TOKEN_FILE ".new", dir, TOKEN_FILE) || fsync(dir)))
		error = -errno;
	if (!error)
		return 0;
	(void)unlinkat(dir, TOKEN_FILE ".new", 0);
	return err_set(err_from_errno(-error), "%s/" TOKEN_FILE " can not be written: %s", directory, strerror(-error));
}

/* ---- the calls of cairn.h ---------------------------------------------------------------------------------------- */

static int pin_find(const char *directory, const char *certificate, struct token_text *text)
{
	char path[PATH_MAX];
	text->has_pin = !certificate || certificate[0];
	if (!text->has_pin)
		return 0;
	if (certificate)
		return tls_pin_of(certificate, text->pin);
	int error = tls_key_make(directory);
	if (error)
		return error;
	snprintf(path, sizeof(path), "%s/" TLS_FILE, directory);
	return tls_pin_of(path, text->pin);
}

CAIRN_API int cairn_token_new(const char *directory, const struct cairn_token_desc *desc,
                              char ret_text[CAIRN_TOKEN_TEXT])
{
	struct cairn_token_desc given = {0};
	struct token_text text = {0};
	struct token *tokens = NULL;
	uint32_t n = 0;
	int error = 0;
	if (!directory || !ret_text || (desc && (!desc->size || desc->size > 4096)))
		return err_set(CAIRN_E_INVAL, "token: no directory, or a description without its size");
	if (desc)
		memcpy(&given, desc, desc->size < sizeof(given) ? desc->size : sizeof(given));
	const char *tenant = given.tenant ? given.tenant : "default";
	if (!token_tenant_fits(tenant) || given.flags & ~(uint32_t)CAIRN_TOKEN_ADMIN)
		return err_set(CAIRN_E_INVAL, "token: a tenant has 1 to 255 bytes without control characters");
	int dir = directory_lock(directory, &error);
	if (dir < 0)
		return error;
	error = pin_find(directory, given.certificate, &text);
	if (!error)
		error = token_list_read(directory, &tokens, &n);
	if (!error && n == TOKEN_LIST_MAX)
		error = err_set(CAIRN_E_FULL, "token: there are %u already: revoke some", TOKEN_LIST_MAX);
	struct token *grown = error ? NULL : mem_grow(tokens, (n + 1) * sizeof(*tokens));
	if (!error && !grown)
		error = err_set(CAIRN_E_NOMEM, "no memory for tokens");
	if (grown) {
		struct token *made = &grown[n];
		tokens = grown;
		memset(made, 0, sizeof(*made));
		digest_random(text.id, sizeof(text.id));
		digest_random(text.secret, sizeof(text.secret));
		memcpy(made->id, text.id, sizeof(made->id));
		digest_sha256(text.secret, sizeof(text.secret), made->hash);
		made->rights = given.flags;
		made->made_s = clock_wall_s(&clock_real);
		made->expires_s = given.ttl_s ? made->made_s + given.ttl_s : 0;
		memcpy(made->tenant, tenant, strlen(tenant) + 1);
		error = list_write(dir, directory, tokens, n + 1);
	}
	if (!error)
		token_text_make(&text, ret_text);
	explicit_bzero(&text, sizeof(text));
	mem_free(tokens);
	close(dir);
	return error;
}

CAIRN_API long cairn_token_list(const char *directory, int (*each)(void *arg, const struct cairn_token_info *info),
                                void *arg)
{
	struct token *tokens;
	uint32_t n;
	long calls = 0;
	if (!directory || !each)
		return err_set(CAIRN_E_INVAL, "token: no directory, or nobody to tell");
	int error = access(directory, F_OK) ? err_set(err_from_errno(errno), "%s: %s", directory, strerror(errno))
	                                    : token_list_read(directory, &tokens, &n);
	if (error)
		return error;
	for (uint32_t i = 0, stop = 0; i < n && !stop; i++) {
		struct cairn_token_info info = {.size = sizeof(info),
		                                .tenant = tokens[i].tenant,
		                                .flags = tokens[i].rights,
		                                .made_s = tokens[i].made_s,
		                                .expires_s = tokens[i].expires_s};
		token_hex_make(tokens[i].id, TOKEN_ID_BYTES, info.id);
		stop = each(arg, &info) != 0;
		calls++;
	}
	mem_free(tokens);
	return calls;
}

CAIRN_API int cairn_token_revoke(const char *directory, const char *id)
{
	uint8_t wanted[TOKEN_ID_BYTES];
	struct token *tokens = NULL;
	uint32_t n = 0, kept = 0;
	int error = 0;
	if (!directory || !id || strlen(id) != 2 * TOKEN_ID_BYTES || token_hex_take(id, wanted, TOKEN_ID_BYTES))
		return err_set(CAIRN_E_INVAL, "token: an id has %u digits, as cairn token list shows it", 2 * TOKEN_ID_BYTES);
	int dir = directory_lock(directory, &error);
	if (dir < 0)
		return error;
	error = token_list_read(directory, &tokens, &n);
	for (uint32_t i = 0; i < n && !error; i++)
		if (memcmp(tokens[i].id, wanted, TOKEN_ID_BYTES) != 0)
			tokens[kept++] = tokens[i];
	if (!error && kept == n)
		error = err_set(CAIRN_E_NOENT, "token: there is none with the id %s", id);
	if (!error)
		error = list_write(dir, directory, tokens, kept);
	mem_free(tokens);
	close(dir);
	return error;
}

/* ---- a client's token -------------------------------------------------------------------------------------------- */

/* Where it lies when nobody says where: NULL: nowhere. *ret_named: somebody did name it, so it has to be there. */
static const char *default_path(char room[PATH_MAX], int *ret_named)
{
	const char *named = secure_getenv("CAIRN_TOKEN_FILE"), *config = secure_getenv("XDG_CONFIG_HOME");
	const char *home = secure_getenv("HOME");
	*ret_named = named && named[0];
	if (*ret_named)
		return named;
	int n = PATH_MAX;
	if (config && config[0] == '/')
		n = snprintf(room, PATH_MAX, "%s/cairn/token", config);
	else if (home && home[0] == '/')
		n = snprintf(room, PATH_MAX, "%s/.config/cairn/token", home);
	return n < PATH_MAX ? room : NULL;
}

int token_file_read(const char *file, struct token_text *ret_token)
{
	char room[PATH_MAX];
	struct stat stat;
	size_t length = 0;
	int named = file && file[0], error = 0;
	const char *path = named ? file : default_path(room, &named);
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0 && !named && (!path || errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (fd < 0 || fstat(fd, &stat)) {
		error = err_set(err_from_errno(errno), "the token's file %s: %s", path, strerror(errno));
	} else if (stat.st_mode & (S_IRWXG | S_IRWXO)) {
		error = err_set(CAIRN_E_ACCESS, "the token's file %s can be read by others: it is a secret (chmod 600 %s)",
		                path, path);
	} else if (stat.st_uid != geteuid() && stat.st_uid != 0) {
		error = err_set(CAIRN_E_ACCESS, "the token's file %s belongs to somebody else", path);
	} else {
		char *bytes = file_read(fd, path, 4096, &length, &error);
		if (bytes && token_text_take(bytes, length, ret_token))
			error = err_set(CAIRN_E_INVAL, "%s holds no token: one line, as cairn token new prints it", path);
		if (bytes)
			explicit_bzero(bytes, length);
		mem_free(bytes);
	}
	if (fd >= 0)
		close(fd);
	return error ? error : 1;
}
