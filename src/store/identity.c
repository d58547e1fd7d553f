/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public functions that need no store: identities, keys, the weights digest, names and texts.
 * Threads: any; a cairn_derive has one owner. Memory: a cairn_derive owns its struct key_derive; cairn_weights_digest
 * frees all it took before it returns.
 * Invariant: whatever a caller can get wrong is answered here or in fmt with INVAL and a text; nothing of a caller's
 * reaches a check().
 */
#include "store/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"

#define READ_BYTES ((size_t)1 << 20)
#define FILES_MAX 65536u

struct cairn_derive {
	struct key_derive *chain;
};

/* ---- names and texts ------------------------------------------------------------------------------------------ */

const char *cairn_status_name(int status)
{
	return err_name(status);
}

const char *cairn_status_text(int status)
{
	return err_describe(status);
}

const char *cairn_error_text(void)
{
	return err_text();
}

const char *cairn_version(void)
{
	return CAIRN_VERSION;
}

uint64_t cairn_check(const void *bytes, size_t length)
{
	return digest_xxh3(bytes, length, 0);
}

const char *cairn_reason_name(uint32_t reason)
{
	static const char *const names[] = {
		[CAIRN_WHY_NONE] = "none",         [CAIRN_WHY_PRESENT] = "present", [CAIRN_WHY_EVICTED] = "evicted",
		[CAIRN_WHY_DROPPED] = "dropped",   [CAIRN_WHY_DAMAGED] = "damaged", [CAIRN_WHY_DEVICE] = "device",
		[CAIRN_WHY_ORPHAN] = "orphan",     [CAIRN_WHY_DOUBTFUL] = "doubtful", [CAIRN_WHY_EXPIRED] = "expired",
	};

	return reason < sizeof names / sizeof names[0] ? names[reason] : "unlisted";
}

/* ---- spaces --------------------------------------------------------------------------------------------------- */

int cairn_space_id(const struct cairn_space_desc *desc, cairn_digest *ret_id)
{
	uint8_t canon[KEY_CANON_MAX];

	if (!ret_id)
		return err_set(CAIRN_E_INVAL, "space id: ret_id is NULL");
	long length = key_space_encode(desc, canon, sizeof canon);
	if (length < 0)
		return (int)length;
	key_space_id(canon, (size_t)length, ret_id->bytes);
	return 0;
}

int cairn_space_desc_text(const struct cairn_space_desc *desc, char *text, size_t max, size_t *ret_length)
{
	if (max && !text)
		return err_set(CAIRN_E_INVAL, "space text: text is NULL and max is %zu", max);
	if (key_desc_check(desc))
		return CAIRN_E_INVAL;
	size_t length = key_space_text(desc, text, max);
	if (ret_length)
		*ret_length = length;
	return 0;
}

long cairn_explain_desc(const struct cairn_space_desc *a, const struct cairn_space_desc *b, char *text, size_t max)
{
	if (max && !text)
		return err_set(CAIRN_E_INVAL, "explain: text is NULL and max is %zu", max);
	if (key_desc_check(a) || key_desc_check(b))
		return CAIRN_E_INVAL;
	return (long)key_space_diff(a, b, text, max);
}

/* ---- keys ----------------------------------------------------------------------------------------------------- */

int identity_derive_start(const struct key_space *space, uint32_t group, cairn_derive **ret_derive)
{
	struct cairn_derive *derive = mem_alloc(sizeof *derive);

	if (!derive)
		return err_set(CAIRN_E_NOMEM, "derive: out of memory");
	int rc = key_derive_start(space, group, &derive->chain);
	if (rc)
		mem_free(derive);
	else
		*ret_derive = derive;
	return rc;
}

int cairn_derive_start_desc(const struct cairn_space_desc *desc, uint32_t group, cairn_derive **ret_derive)
{
	if (!ret_derive)
		return err_set(CAIRN_E_INVAL, "derive: ret_derive is NULL");
	/* Too large for the stacks of some threads. */
	struct key_space *space = mem_alloc(sizeof *space);
	if (!space)
		return err_set(CAIRN_E_NOMEM, "derive: out of memory");
	int rc = key_space_from_desc(desc, space);
	if (!rc) {
		rc = identity_derive_start(space, group, ret_derive);
		key_space_done(space);
	}
	mem_free(space);
	return rc;
}

long cairn_derive_tokens(cairn_derive *derive, const uint32_t *tokens, size_t ntokens, const struct cairn_extra *extras,
                         size_t nextras, cairn_key *keys, size_t max)
{
	if (!derive || (ntokens && !tokens) || (nextras && !extras) || (max && !keys))
		return err_set(CAIRN_E_INVAL, "derive: %s is NULL", !derive ? "derive" : ntokens && !tokens ? "tokens"
		               : nextras && !extras ? "extras" : "keys");
	return key_derive_tokens(derive->chain, tokens, ntokens, extras, nextras, keys, max);
}

int cairn_derive_hash(cairn_derive *derive, const void *hash, size_t length, cairn_key *ret_key)
{
	if (!derive || !hash || !ret_key)
		return err_set(CAIRN_E_INVAL, "derive: %s is NULL", !derive ? "derive" : !hash ? "hash" : "ret_key");
	return key_derive_hash(derive->chain, hash, length, ret_key);
}

int cairn_derive_bytes(cairn_derive *derive, const void *bytes, size_t length, cairn_key *ret_key)
{
	if (!derive || (length && !bytes) || !ret_key)
		return err_set(CAIRN_E_INVAL, "derive: %s is NULL", !derive ? "derive" : !ret_key ? "ret_key" : "bytes");
	return key_derive_bytes(derive->chain, bytes, length, ret_key);
}

int cairn_derive_tail(const cairn_derive *derive, cairn_key *ret_key, uint32_t *ret_tokens)
{
	uint32_t tokens;

	if (!derive || !ret_key)
		return err_set(CAIRN_E_INVAL, "derive: %s is NULL", !derive ? "derive" : "ret_key");
	return key_derive_tail(derive->chain, ret_key, ret_tokens ? ret_tokens : &tokens);
}

void cairn_derive_parent(const cairn_derive *derive, cairn_key *ret_key)
{
	key_derive_parent(derive->chain, ret_key);
}

void cairn_derive_free(cairn_derive *derive)
{
	if (!derive)
		return;
	key_derive_free(derive->chain);
	mem_free(derive);
}

/* ---- weights -------------------------------------------------------------------------------------------------- */

struct weights {
	struct key_file *files; /* sorted by name */
	const char **paths;     /* in the caller's order, then as files */
	size_t nfiles;
	uint8_t *buffer;
	int (*progress)(void *arg, uint64_t done, uint64_t all);
	void *arg;
	uint64_t done, all; /* bytes */
};

struct weights_order {
	const char *name;
	const char *path;
};

static int weights_compare(const void *a, const void *b)
{
	return strcmp(((const struct weights_order *)a)->name, ((const struct weights_order *)b)->name);
}

static int weights_sort(struct weights *weights, const char *const *paths)
{
	struct weights_order *order = mem_array(weights->nfiles, sizeof *order);

	if (!order)
		return err_set(CAIRN_E_NOMEM, "weights: out of memory");
	for (size_t i = 0; i < weights->nfiles; i++) {
		const char *slash = paths[i] ? strrchr(paths[i], '/') : NULL;

		order[i].path = paths[i];
		order[i].name = slash ? slash + 1 : paths[i];
		if (!order[i].name || !*order[i].name) {
			mem_free(order);
			return err_set(CAIRN_E_INVAL, "weights: files[%zu] is %s; give the path of a file", i,
			               paths[i] ? "no name of a file" : "NULL");
		}
	}
	qsort(order, weights->nfiles, sizeof *order, weights_compare);
	int rc = 0;
	for (size_t i = 0; i < weights->nfiles && !rc; i++) {
		weights->files[i].name = order[i].name;
		weights->paths[i] = order[i].path;
		if (i && !strcmp(order[i - 1].name, order[i].name))
			rc = err_set(CAIRN_E_INVAL, "weights: two files are called %s; the digest is over distinct names",
			             order[i].name);
	}
	mem_free(order);
	return rc;
}

/* Opens a file and finds its size; not blocked by what is no file. */
static int weights_open(const char *path, int *ret_fd, uint64_t *ret_bytes)
{
	struct stat stat;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &stat)) {
		int rc = err_set(err_from_errno(errno), "weights: cannot open %s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return rc;
	}
	if (!S_ISREG(stat.st_mode)) {
		close(fd);
		return err_set(CAIRN_E_INVAL, "weights: %s is not a file", path);
	}
	*ret_fd = fd;
	*ret_bytes = (uint64_t)stat.st_size;
	return 0;
}

static int weights_hash_fd(struct weights *weights, int fd, const char *path, struct key_file *file)
{
	struct digest_sha sha;
	uint64_t bytes = 0;

	digest_sha_init(&sha);
	for (;;) {
		ssize_t got = read(fd, weights->buffer, READ_BYTES);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_set(err_from_errno(errno), "weights: cannot read %s: %s", path, strerror(errno));
		if (got == 0)
			break;
		digest_sha_add(&sha, weights->buffer, (size_t)got);
		bytes += (uint64_t)got;
		weights->done += (uint64_t)got;
		if (bytes > file->bytes)
			break;
		if (weights->progress && weights->progress(weights->arg, weights->done, weights->all))
			return err_set(CAIRN_E_CANCELED, "weights: stopped by the caller at %s", path);
	}
	if (bytes != file->bytes)
		return err_set(CAIRN_E_IO, "weights: %s changed its size while it was read; try again when nobody writes it",
		               path);
	digest_sha_done(&sha, file->digest);
	return 0;
}

static int weights_hash(struct weights *weights)
{
	uint64_t bytes;
	int fd, rc;

	for (size_t i = 0; i < weights->nfiles; i++) {
		if ((rc = weights_open(weights->paths[i], &fd, &weights->files[i].bytes)))
			return rc;
		close(fd);
		weights->all += weights->files[i].bytes;
	}
	for (size_t i = 0; i < weights->nfiles; i++) {
		if ((rc = weights_open(weights->paths[i], &fd, &bytes)))
			return rc;
		posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
		rc = weights_hash_fd(weights, fd, weights->paths[i], &weights->files[i]);
		close(fd);
		if (rc)
			return rc;
	}
	return 0;
}

int cairn_weights_digest(const char *const *files, size_t nfiles,
                         int (*progress)(void *arg, uint64_t done, uint64_t all), void *arg, cairn_digest *ret_digest)
{
	if (!files || !nfiles || nfiles > FILES_MAX || !ret_digest)
		return err_set(CAIRN_E_INVAL, "weights: %zu files; give 1 to %u, and ret_digest", files ? nfiles : 0,
		               FILES_MAX);
	struct weights weights = {.nfiles = nfiles, .progress = progress, .arg = arg};
	int rc = CAIRN_E_NOMEM;

	weights.files = mem_array(nfiles, sizeof *weights.files);
	weights.paths = mem_array(nfiles, sizeof *weights.paths);
	weights.buffer = mem_alloc(READ_BYTES);
	if (!weights.files || !weights.paths || !weights.buffer)
		err_set(rc, "weights: out of memory");
	else if (!(rc = weights_sort(&weights, files)) && !(rc = weights_hash(&weights)))
		key_weights(weights.files, nfiles, ret_digest->bytes);
	mem_free(weights.files);
	mem_free(weights.paths);
	mem_free(weights.buffer);
	return rc;
}
