/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The digest of a model's weights, and the user's cache of digests, because reading 40 GB takes a minute.
 *
 * The cache is a file of lines "HEX KEY", at most 64 of them, the newest last. KEY names each file by its last name
 * component (the digest depends on it), device, inode, size, time of change and time of status change. The second time
 * cannot be set by a user, so a file that was written in place is never taken for what it was; one that changed in the
 * last two seconds is not remembered, because a later write in the same tick would leave no trace.
 * A cache that somebody else could have written is not read. Losing it costs time only.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "llama_in.h"

enum {
	FILES_MAX = 128,
	KEY_MAX = 16384,
	LINE_MAX_BYTES = KEY_MAX + 80,
	LINES_MAX = 64,
	SETTLE_S = 2,
};

struct weights {
	char *paths[FILES_MAX];
	size_t npaths;
	char key[KEY_MAX]; /* empty: not to be remembered */
};

static void weights_done(struct weights *weights)
{
	for (size_t i = 0; i < weights->npaths; i++)
		free(weights->paths[i]);
	weights->npaths = 0;
}

/* One file, or all splits of "NAME-00001-of-00003.gguf". */
static int weights_list(struct weights *weights, const char *path)
{
	char prefix[4096], split[4096];
	const char *of = strstr(path, "-of-");
	int count = 1;

	for (const char *next = of; next; next = strstr(next + 1, "-of-"))
		of = next;
	if (of)
		count = atoi(of + 4);
	if (count < 2 || llama_split_prefix(prefix, sizeof prefix, path, 0, count) <= 0) {
		weights->paths[0] = strdup(path);
		weights->npaths = 1;
		return weights->paths[0] ? 0 : cllama_fail(CAIRN_E_NOMEM, "out of memory for the model's path");
	}
	if (count > FILES_MAX)
		return cllama_fail(CAIRN_E_INVAL, "the model has %d splits; at most %d are supported", count, FILES_MAX);
	for (int i = 0; i < count; i++) {
		llama_split_path(split, sizeof split, prefix, i, count);
		weights->paths[i] = strdup(split);
		if (!weights->paths[i])
			return cllama_fail(CAIRN_E_NOMEM, "out of memory for the model's path");
		weights->npaths++;
	}
	return 0;
}

/* Fills the key. An unusual file leaves it empty. */
static int weights_stat(struct weights *weights)
{
	size_t length = 0;
	time_t now = time(NULL);

	weights->key[0] = 0;
	for (size_t i = 0; i < weights->npaths; i++) {
		const char *slash = strrchr(weights->paths[i], '/');
		const char *name = slash ? slash + 1 : weights->paths[i];
		struct stat st;

		if (stat(weights->paths[i], &st) != 0)
			return cllama_fail(-errno, "the model's file %s: %s", weights->paths[i], strerror(errno));
		if (st.st_ctime > now - SETTLE_S || !S_ISREG(st.st_mode) || strchr(name, '\n'))
			goto odd;
		length += (size_t)snprintf(weights->key + length, sizeof weights->key - length,
		                           "%s%" PRIu64 ":%" PRIu64 ":%" PRIu64 ":%" PRId64 ".%09ld:%" PRId64 ".%09ld:%s",
		                           i ? "/" : "", (uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)st.st_size,
		                           (int64_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (int64_t)st.st_ctim.tv_sec,
		                           st.st_ctim.tv_nsec, name);
		if (length >= sizeof weights->key)
			goto odd;
	}
	return 0;
odd:
	weights->key[0] = 0;
	return 0;
}

/* The cache's path, its directory made; empty: there is none to use. */
static void cache_path(char *path, size_t max)
{
	const char *own = getenv("CAIRN_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int length;

	if (own && own[0] == '/')
		length = snprintf(path, max, "%s", own);
	else if (xdg && xdg[0] == '/')
		length = snprintf(path, max, "%s/cairn", xdg);
	else if (home && home[0] == '/')
		length = snprintf(path, max, "%s/.cache/cairn", home);
	else
		length = (int)max;
	if (length < 0 || (size_t)length + 32 > max) {
		path[0] = 0;
		return;
	}
	for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
		if (slash)
			*slash = 0;
		mkdir(path, 0700);
		if (!slash)
			break;
		*slash = '/';
	}
	snprintf(path + length, max - (size_t)length, "/weights-digests");
}

static FILE *cache_open(const char *path)
{
	struct stat st;
	FILE *file;
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022) != 0) {
		close(fd);
		return NULL;
	}
	file = fdopen(fd, "r");
	if (!file)
		close(fd);
	return file;
}

/* Reads one line without its end. 0: no more. */
static int cache_line(FILE *file, char *line)
{
	size_t length;

	if (!fgets(line, LINE_MAX_BYTES, file))
		return 0;
	length = strlen(line);
	if (length == 0 || line[length - 1] != '\n')
		return 0; /* cut short, or no cache of ours */
	line[length - 1] = 0;
	return 1;
}

static int hex_read(const char *hex, cairn_digest *ret)
{
	for (int i = 0; i < 64; i++) {
		const char *digits = "0123456789abcdef", *at = strchr(digits, hex[i]);

		if (!hex[i] || !at)
			return 0;
		ret->bytes[i / 2] = (uint8_t)(ret->bytes[i / 2] << 4 | (at - digits));
	}
	return hex[64] == ' ';
}

static int cache_find(const char *path, const char *key, cairn_digest *ret_digest)
{
	FILE *file = cache_open(path);
	char *line = malloc(LINE_MAX_BYTES);
	int found = 0;

	while (file && line && !found && cache_line(file, line)) {
		cairn_digest digest = {{0}};

		if (strlen(line) > 65 && strcmp(line + 65, key) == 0 && hex_read(line, &digest)) {
			*ret_digest = digest;
			found = 1;
		}
	}
	free(line);
	if (file)
		fclose(file);
	return found;
}

/* Copies the newest lines of the old cache, leaving room for one. */
static void cache_copy(const char *path, FILE *to)
{
	FILE *old = cache_open(path);
	char *line = malloc(LINE_MAX_BYTES);
	size_t lines = 0, skip;

	while (old && line && cache_line(old, line))
		lines++;
	skip = lines >= LINES_MAX ? lines - LINES_MAX + 1 : 0;
	if (old)
		rewind(old);
	for (size_t i = 0; i < lines && cache_line(old, line); i++) {
		if (i >= skip)
			fprintf(to, "%s\n", line);
	}
	free(line);
	if (old)
		fclose(old);
}

/* Writes a new cache beside the old one and renames it. Of two at once, one loses its line: it costs time only. */
static void cache_add(const char *path, const char *key, const cairn_digest *digest)
{
	char temporary[4096 + 32];
	FILE *file;
	int fd, bad;

	snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	file = fdopen(fd, "w");
	if (!file) {
		close(fd);
		unlink(temporary);
		return;
	}
	cache_copy(path, file);
	for (int i = 0; i < 32; i++)
		fprintf(file, "%02x", digest->bytes[i]);
	fprintf(file, " %s\n", key);
	bad = ferror(file);
	if (fclose(file) != 0 || bad || rename(temporary, path) != 0)
		unlink(temporary);
}

int cllama_digest_weights(const char *path, cairn_digest *ret_digest)
{
	struct weights *weights = calloc(1, sizeof *weights);
	char *before = malloc(KEY_MAX), cache[4096];
	int rc = CAIRN_E_NOMEM;

	if (!weights || !before) {
		cllama_fail(rc, "out of memory for the model's digest");
		goto out;
	}
	rc = weights_list(weights, path);
	if (rc == 0)
		rc = weights_stat(weights);
	if (rc)
		goto out;
	cache_path(cache, sizeof cache);
	if (weights->key[0] && cache[0] && cache_find(cache, weights->key, ret_digest))
		goto out;
	memcpy(before, weights->key, KEY_MAX);
	rc = cairn_weights_digest((const char *const *)weights->paths, weights->npaths, NULL, NULL, ret_digest);
	if (rc) {
		cllama_fail_cairn(rc, "the digest of the model's files");
		goto out;
	}
	/* Only what did not change while it was read. */
	rc = weights_stat(weights);
	if (rc == 0 && before[0] && cache[0] && strcmp(before, weights->key) == 0)
		cache_add(cache, before, ret_digest);
out:
	if (weights)
		weights_done(weights);
	free(weights);
	free(before);
	return rc;
}
