/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The golden vectors of docs/KEY.md, and that fresh processes make the same keys.
 * `test_key_golden --keys` prints a digest of all keys that this file makes; the test of fresh processes runs it.
 * The vectors are read by a small interpreter (struct vector), line by line; its memory is static. One thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/digest.h"
#include "cairn/cairn.h"
#include "fmt/key.h"

#define LINE_BYTES 16384
#define TOKENS_MAX 8192
#define KEYS_MAX 1024

static cairn_derive *start(const struct cairn_space_desc *desc, uint32_t group)
{
	cairn_derive *derive;

	if (cairn_derive_start_desc(desc, group, &derive))
		fail_msg("%s", cairn_error_text());
	return derive;
}

struct vector {
	struct digest_sha *transcript; /* results go here, unchecked; NULL: they are checked */
	int line;
	unsigned results;
	/* the case */
	struct cairn_space_desc desc;
	struct cairn_group groups[16];
	struct cairn_part parts[64];
	struct cairn_field fields[64];
	cairn_derive *derive;
	struct cairn_extra extras[16];
	size_t nextras;
	cairn_key keys[KEYS_MAX]; /* not yet compared: [next, nkeys) */
	size_t nkeys, next;
	uint8_t tenant_digest[32], session_id[32];
	uint64_t epoch;
	struct {
		char name[64];
		size_t length;
		unsigned seed;
	} files[8];
	size_t nfiles;
	uint8_t memory[LINE_BYTES * 4]; /* strings and bytes of the case */
	size_t used;
};

static void *vector_room(struct vector *v, size_t length)
{
	void *at = v->memory + v->used;

	assert_true(length <= sizeof v->memory - v->used);
	v->used += length;
	return at;
}

static unsigned digit(char c)
{
	assert_true((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'));
	return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* The next word of a line; texts may hold spaces. */
static char *next_word(char **line)
{
	char *word = *line + strspn(*line, " ");
	char *end = *word == '"' ? strchr(word + 1, '"') + 1 : word + strcspn(word, " ");

	*line = *end ? end + 1 : end;
	*end = '\0';
	return word;
}

static const char *next_text(struct vector *v, char **line)
{
	char *word = next_word(line);

	if (!strcmp(word, "-"))
		return NULL;
	assert_int_equal(*word, '"');
	char *text = vector_room(v, strlen(word)), *to = text;
	for (word++; *word != '"'; word++) {
		if (*word == '\\') {
			*to++ = (char)(digit(word[2]) << 4 | digit(word[3]));
			word += 3;
		} else {
			*to++ = *word;
		}
	}
	*to = '\0';
	return text;
}

static const uint8_t *next_bytes(struct vector *v, char **line, size_t *ret_length)
{
	const char *word = next_word(line);
	size_t length = strcmp(word, "-") ? strlen(word) / 2 : 0;
	uint8_t *bytes = vector_room(v, length);

	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(digit(word[2 * i]) << 4 | digit(word[2 * i + 1]));
	*ret_length = length;
	return bytes;
}

static const uint8_t *next_exact(struct vector *v, char **line, size_t length)
{
	size_t got;
	const uint8_t *bytes = next_bytes(v, line, &got);

	assert_int_equal(got, length);
	return bytes;
}

static uint64_t next_number(char **line)
{
	char *end;
	uint64_t number = strtoull(next_word(line), &end, 10);

	assert_int_equal(*end, 0);
	return number;
}

/* Compares a result with the rest of the line. */
static void vector_result(struct vector *v, char **line, const void *bytes, size_t length)
{
	size_t expected_length;
	const uint8_t *expected = next_bytes(v, line, &expected_length);

	v->results++;
	if (v->transcript)
		digest_sha_add(v->transcript, bytes, length);
	else if (length != expected_length || memcmp(bytes, expected, length) != 0)
		fail_msg("keys.txt:%d: another result", v->line);
}

static void pattern_fill(uint8_t *bytes, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(seed + i + (i >> 8));
}

static void vector_finish_case(struct vector *v)
{
	assert_int_equal(v->next, v->nkeys);
	assert_int_equal(v->nextras, 0);
	cairn_derive_free(v->derive);
	struct digest_sha *transcript = v->transcript;
	int at = v->line;
	unsigned results = v->results;
	memset(v, 0, sizeof *v);
	v->transcript = transcript;
	v->line = at;
	v->results = results;
	v->desc.size = sizeof v->desc;
}

static int vector_describe(struct vector *v, const char *word, char **line)
{
	const struct {
		const char *word;
		const char **member;
	} texts[] = {
		{"tenant", &v->desc.tenant}, {"scheme", &v->desc.scheme}, {"model", &v->desc.model},
		{"adapter_scale", &v->desc.adapter_scale}, {"kv_dtype", &v->desc.kv_dtype}, {"quant", &v->desc.quant},
		{"layout", &v->desc.layout}, {"rope", &v->desc.rope}, {"isa", &v->desc.isa},
	};
	const struct {
		const char *word;
		uint32_t *member;
	} numbers[] = {
		{"layers", &v->desc.layers}, {"kv_heads", &v->desc.kv_heads}, {"head_size", &v->desc.head_size},
		{"block_tokens", &v->desc.block_tokens},
	};

	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (!strcmp(word, texts[i].word))
			return *texts[i].member = next_text(v, line), 1;
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		if (!strcmp(word, numbers[i].word))
			return *numbers[i].member = (uint32_t)next_number(line), 1;
	if (!strcmp(word, "block_bytes"))
		return v->desc.block_bytes = next_number(line), 1;
	if (!strcmp(word, "weights"))
		return v->desc.weights = (const cairn_digest *)next_exact(v, line, 32), 1;
	if (!strcmp(word, "adapter"))
		return v->desc.adapter = (const cairn_digest *)next_exact(v, line, 32), 1;
	if (!strcmp(word, "generation"))
		return v->desc.generation = next_exact(v, line, 16), 1;
	return 0;
}

static int vector_describe_list(struct vector *v, const char *word, char **line)
{
	if (!strcmp(word, "group")) {
		struct cairn_group *group = &v->groups[v->desc.ngroups++];

		v->desc.groups = v->groups;
		group->name = next_text(v, line);
		group->block_tokens = (uint32_t)next_number(line);
		const char *rule = next_word(line);
		group->rule = !strcmp(rule, "all") ? CAIRN_RULE_ALL : !strcmp(rule, "trailing") ? CAIRN_RULE_TRAILING
		            : CAIRN_RULE_SNAPSHOT;
		group->trailing_tokens = (uint32_t)next_number(line);
		group->block_bytes = next_number(line);
	} else if (!strcmp(word, "part")) {
		struct cairn_part *part = &v->parts[v->desc.nparts++];

		v->desc.parts = v->parts;
		part->name = next_text(v, line);
		part->replicated = (uint32_t)next_number(line);
		part->optional = (uint32_t)next_number(line);
	} else if (!strcmp(word, "field")) {
		struct cairn_field *field = &v->fields[v->desc.nfields++];

		v->desc.fields = v->fields;
		field->name = next_text(v, line);
		field->value = next_bytes(v, line, &field->length);
	} else {
		return 0;
	}
	return 1;
}

static int vector_space(struct vector *v, const char *word, char **line)
{
	static uint8_t canon[KEY_CANON_MAX];
	struct key_space space;
	cairn_digest id;

	if (!strcmp(word, "canon")) {
		long length = key_space_encode(&v->desc, canon, sizeof canon);

		assert_true(length > 0);
		vector_result(v, line, canon, (size_t)length);
		assert_int_equal(key_space_decode(canon, (size_t)length, &space), 0);
		assert_int_equal(cairn_space_id(&v->desc, &id), 0);
		assert_memory_equal(space.id, &id, 32);
		key_space_done(&space);
	} else if (!strcmp(word, "space")) {
		assert_int_equal(cairn_space_id(&v->desc, &id), 0);
		vector_result(v, line, &id, sizeof id);
	} else {
		return 0;
	}
	return 1;
}

static void vector_take(struct vector *v, const uint32_t *tokens, size_t ntokens)
{
	long count = cairn_derive_tokens(v->derive, tokens, ntokens, v->extras, v->nextras, v->keys + v->nkeys,
	                                 KEYS_MAX - v->nkeys);

	if (count < 0)
		fail_msg("keys.txt:%d: %s", v->line, cairn_error_text());
	v->nkeys += (size_t)count;
	v->nextras = 0;
}

static int vector_derive(struct vector *v, const char *word, char **line)
{
	static uint32_t tokens[TOKENS_MAX];
	static uint8_t bytes[KEY_FILE_BLOCK_BYTES];
	cairn_key key;
	size_t count = 0;

	if (!strcmp(word, "start")) {
		cairn_derive_free(v->derive);
		v->derive = start(&v->desc, (uint32_t)next_number(line));
	} else if (!strcmp(word, "root")) {
		cairn_derive_parent(v->derive, &key);
		vector_result(v, line, &key, sizeof key);
	} else if (!strcmp(word, "extra")) {
		struct cairn_extra *extra = &v->extras[v->nextras++];
		size_t length;

		extra->token = next_number(line);
		extra->bytes = next_bytes(v, line, &length);
		extra->length = (uint32_t)length;
	} else if (!strcmp(word, "tokens")) {
		while (**line)
			tokens[count++] = (uint32_t)next_number(line);
		vector_take(v, tokens, count);
	} else if (!strcmp(word, "ramp")) {
		uint32_t first = (uint32_t)next_number(line), length = (uint32_t)next_number(line);
		uint32_t step = (uint32_t)next_number(line);

		for (; count < length; count++)
			tokens[count] = first + (uint32_t)count * step;
		vector_take(v, tokens, count);
	} else if (!strcmp(word, "hash")) {
		const uint8_t *hash = next_bytes(v, line, &count);

		assert_int_equal(cairn_derive_hash(v->derive, hash, count, &v->keys[v->nkeys++]), 0);
	} else if (!strcmp(word, "bytes")) {
		count = next_number(line);
		pattern_fill(bytes, count, (unsigned)next_number(line));
		assert_int_equal(cairn_derive_bytes(v->derive, bytes, count, &v->keys[v->nkeys++]), 0);
	} else if (!strcmp(word, "key")) {
		assert_true(v->next < v->nkeys);
		vector_result(v, line, &v->keys[v->next++], sizeof key);
	} else if (!strcmp(word, "tail")) {
		uint32_t left;

		assert_int_equal(cairn_derive_tail(v->derive, &key, &left), 0);
		assert_int_equal(left, next_number(line));
		vector_result(v, line, &key, sizeof key);
	} else {
		return 0;
	}
	return 1;
}

/* The weights digest, over files that are made for it. */
static void vector_weights(struct vector *v, char **line)
{
	char folder[] = "/tmp/cairn-test-key-XXXXXX", paths[8][128];
	const char *files[8];
	uint8_t *bytes = malloc(1 << 20);
	cairn_digest digest;

	assert_non_null(bytes);
	assert_non_null(mkdtemp(folder));
	for (size_t i = 0; i < v->nfiles; i++) {
		snprintf(paths[i], sizeof paths[i], "%s/%s", folder, v->files[i].name);
		files[i] = paths[i];
		FILE *file = fopen(paths[i], "wb");
		assert_non_null(file);
		pattern_fill(bytes, v->files[i].length, v->files[i].seed);
		assert_int_equal(fwrite(bytes, 1, v->files[i].length, file), v->files[i].length);
		fclose(file);
	}
	int rc = cairn_weights_digest(files, v->nfiles, NULL, NULL, &digest);
	for (size_t i = 0; i < v->nfiles; i++)
		unlink(paths[i]);
	rmdir(folder);
	free(bytes);
	if (rc)
		fail_msg("%s", cairn_error_text());
	vector_result(v, line, &digest, sizeof digest);
}

static int vector_session(struct vector *v, const char *word, char **line)
{
	uint8_t result[32];

	if (!strcmp(word, "session")) {
		const char *tenant = v->desc.tenant ? v->desc.tenant : "default";
		const char *owner = next_text(v, line), *name = next_text(v, line);

		v->epoch = next_number(line);
		key_tenant_digest(tenant, strlen(tenant), v->tenant_digest);
		key_session_id(v->tenant_digest, owner, name, v->session_id);
	} else if (!strcmp(word, "tenant_digest")) {
		vector_result(v, line, v->tenant_digest, 32);
	} else if (!strcmp(word, "session_id")) {
		vector_result(v, line, v->session_id, 32);
	} else if (!strcmp(word, "manifest_key")) {
		key_manifest(v->session_id, v->epoch, result);
		vector_result(v, line, result, 32);
	} else if (!strcmp(word, "manifest_space")) {
		key_manifest_space(v->tenant_digest, result);
		vector_result(v, line, result, 32);
	} else if (!strcmp(word, "file")) {
		snprintf(v->files[v->nfiles].name, sizeof v->files[0].name, "%s", next_text(v, line));
		v->files[v->nfiles].length = next_number(line);
		v->files[v->nfiles++].seed = (unsigned)next_number(line);
	} else if (!strcmp(word, "weights_digest")) {
		vector_weights(v, line);
	} else {
		return 0;
	}
	return 1;
}

/* Runs all of keys.txt. Returns the number of results. */
static unsigned vectors_run(struct digest_sha *transcript)
{
	static struct vector v;
	static char line[LINE_BYTES];
	FILE *file = fopen(CAIRN_SOURCE_DIR "/tests/golden/keys.txt", "r");

	assert_non_null(file);
	memset(&v, 0, sizeof v);
	v.transcript = transcript;
	while (fgets(line, sizeof line, file)) {
		char *at = line;

		v.line++;
		assert_non_null(strchr(line, '\n'));
		*strchr(line, '\n') = '\0';
		if (*line == '#' || !*line)
			continue;
		const char *word = next_word(&at);
		if (!strcmp(word, "case")) {
			vector_finish_case(&v);
			continue;
		}
		if (!vector_describe(&v, word, &at) && !vector_describe_list(&v, word, &at) && !vector_space(&v, word, &at) &&
		    !vector_derive(&v, word, &at) && !vector_session(&v, word, &at))
			fail_msg("keys.txt:%d: %s", v.line, word);
		assert_int_equal(*at, 0);
	}
	vector_finish_case(&v);
	fclose(file);
	return v.results;
}

static void test_key_golden__gives_the_golden_vectors_in_every_scheme(void **state)
{
	(void)state;
	assert_true(vectors_run(NULL) > 100);
}

static void test_key_golden__agrees_with_the_second_implementation_where_python_is(void **state)
{
	(void)state;
	if (system("command -v python3 >/dev/null"))
		skip();
	assert_int_equal(system("exec python3 -B '" CAIRN_SOURCE_DIR "/tests/golden/make_keys.py' --check"), 0);
}

/* ---- fresh processes ------------------------------------------------------------------------------------------ */

/* A digest over the golden inputs' keys, and over extras that are none, empty and one. */
static void keys_digest(char hex[65])
{
	static const struct cairn_extra kinds[3] = {{0, NULL, 0}, {0, "", 0}, {0, "x", 1}};
	static uint32_t tokens[64];
	struct cairn_space_desc desc = {.size = sizeof desc, .kv_dtype = "bf16", .block_tokens = 16};
	struct digest_sha sha;
	uint8_t digest[32];
	cairn_key keys[4];

	digest_sha_init(&sha);
	vectors_run(&sha);
	for (size_t i = 0; i < 4; i++) {
		cairn_derive *derive = start(&desc, 0);

		assert_int_equal(cairn_derive_tokens(derive, tokens, 64, i ? &kinds[i - 1] : NULL, i ? 1 : 0, keys, 4), 4);
		cairn_derive_free(derive);
		digest_sha_add(&sha, keys, sizeof keys);
	}
	digest_sha_done(&sha, digest);
	for (int i = 0; i < 32; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

/* Runs this program anew with an environment of its own, and reads what it prints. */
static void run_fresh(unsigned number, char hex[65])
{
	char seed[64], home[64];
	char *arguments[] = {"test_key_golden", "--keys", NULL};
	char *environment[] = {seed, home, number % 2 ? "LC_ALL=tr_TR.UTF-8" : "LC_ALL=C", NULL};
	int ends[2], status;
	size_t got = 0;

	snprintf(seed, sizeof seed, "PYTHONHASHSEED=%u", number * 7919);
	snprintf(home, sizeof home, "HOME=/nonexistent/%u", number);
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		execve("/proc/self/exe", arguments, environment);
		_exit(127);
	}
	close(ends[1]);
	for (ssize_t n; got < 64 && (n = read(ends[0], hex + got, 64 - got)) > 0;)
		got += (size_t)n;
	hex[got] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(got, 64);
}

static void test_key_golden__is_the_same_in_20_fresh_processes_with_other_environments(void **state)
{
	char ours[65], theirs[65];

	(void)state;
	keys_digest(ours);
	for (unsigned i = 0; i < 20; i++) {
		run_fresh(i, theirs);
		assert_string_equal(ours, theirs);
	}
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_key_golden__gives_the_golden_vectors_in_every_scheme),
		cmocka_unit_test(test_key_golden__agrees_with_the_second_implementation_where_python_is),
		cmocka_unit_test(test_key_golden__is_the_same_in_20_fresh_processes_with_other_environments),
	};

	if (argc == 2 && !strcmp(argv[1], "--keys")) {
		char hex[65];

		keys_digest(hex);
		puts(hex);
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
