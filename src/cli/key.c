/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cairn key`: the id of a space, the keys of its blocks, the digest of weights. Needs no store.
 * Threads: one. Memory: all tokens and keys of one prompt.
 * Invariant: the keys are the library's; nothing is hashed here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

enum { KEY_TOKENS = VERB_KEY, KEY_GROUP, KEY_EXTRA, KEY_HASH, KEY_FILE, KEY_WEIGHTS, KEY_TEXT };
enum { KEY_MANY = 256, KEY_HASH_BYTES = 1024 };

static struct key_run {
	const char *tokens, *file;
	uint64_t group;
	int weights, text;
	struct cairn_extra extras[KEY_MANY];
	size_t nextras;
	const char *hashes[KEY_MANY];
	size_t nhashes;
	/* results */
	cairn_key *keys;
	size_t nkeys, room;
	struct progress progress;
} key;

/* TOKEN:HEX; nothing behind the colon is an empty extra, which is not the same as none. */
static int key_option_extra(char *value)
{
	struct cairn_extra *extra = &key.extras[key.nextras];
	char *colon = strchr(value, ':');
	size_t max = strlen(value) / 2 + 1;
	uint8_t *bytes = malloc(max);

	if (!bytes)
		return say_error("out of memory; free some and try again");
	if (key.nextras == KEY_MANY)
		return say_error("--extra is given more than %u times", (unsigned)KEY_MANY);
	if (colon)
		*colon++ = '\0';
	long length = colon ? args_hex(colon, bytes, max) : -1;

	if (length < 0 || args_number(value, UINT64_MAX, &extra->token))
		return say_error("--extra %s%s%s: write TOKEN:HEX, as 0:73616c74 for a salt", value, colon ? ":" : "",
		                 colon ? colon : "");
	extra->bytes = bytes;
	extra->length = (uint32_t)length;
	key.nextras++;
	return 0;
}

static int key_option(int option, char *value)
{
	switch (option) {
	case KEY_TOKENS:
		key.tokens = value;
		return 0;
	case KEY_FILE:
		key.file = value;
		return 0;
	case KEY_GROUP:
		if (args_number(value, 15, &key.group))
			return say_error("--group %s: not a group's number, 0 to 15", value);
		return 0;
	case KEY_EXTRA:
		return key_option_extra(value);
	case KEY_HASH:
		if (key.nhashes == KEY_MANY)
			return say_error("--hash is given more than %u times", (unsigned)KEY_MANY);
		key.hashes[key.nhashes++] = value;
		return 0;
	case KEY_TEXT:
		key.text = 1;
		return 0;
	default:
		key.weights = 1;
		return 0;
	}
}

static int key_grow(size_t count)
{
	if (count <= key.room)
		return 0;
	size_t room = count > 2 * key.room ? count : 2 * key.room;
	cairn_key *keys = reallocarray(key.keys, room, sizeof *keys);

	if (!keys)
		return say_error("out of memory; free some and try again");
	key.keys = keys;
	key.room = room;
	return 0;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static int key_progress(void *arg, uint64_t done, uint64_t all)
{
	struct progress *progress = arg;

	progress->all = all;
	progress_at(progress, done);
	return say_stopped;
}

static int key_weights(char **files, uint32_t count)
{
	struct progress progress;
	cairn_digest digest;

	progress_start(&progress, "read", 0);
	int status = cairn_weights_digest((const char *const *)files, count, key_progress, &progress, &digest);

	progress_end(&progress);
	if (status == CAIRN_E_CANCELED)
		return say_error("interrupted");
	if (status)
		return say_error("%s", cairn_error_text());
	if (cli.json) {
		json_t *report = json_object();

		say_json_hex(report, "weights", digest.bytes, 32);
		say_json_number(report, "files", count);
		say_json_number(report, "bytes", progress.all);
		json_object_set_new(report, "duration_s", json_real(progress_seconds(&progress)));
		return say_json_end(report, CLI_WHOLE);
	}
	/* As a line of a description file. */
	printf("weights = %s\n", say_hex(digest.bytes, 32));
	return CLI_WHOLE;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

struct tokens {
	uint32_t *tokens;
	size_t count, room;
};

/* Numbers between blanks, commas and brackets: a line of numbers, a column, or a JSON array. */
static int tokens_read(const char *name, FILE *file, struct tokens *tokens)
{
	unsigned line = 1;
	int letter = getc(file);

	for (; letter != EOF; letter = getc(file)) {
		uint64_t number = 0;
		int digits = 0;

		for (; letter >= '0' && letter <= '9' && number <= UINT32_MAX; letter = getc(file), digits++)
			number = number * 10 + (uint64_t)(letter - '0');
		if (number > UINT32_MAX)
			return say_error("%s:%u: a token above %u; tokens are 32 bits", name, line, UINT32_MAX);
		if (digits) {
			if (tokens->count == tokens->room) {
				size_t room = tokens->room ? 2 * tokens->room : 4096;
				uint32_t *grown = reallocarray(tokens->tokens, room, sizeof *grown);

				if (!grown)
					return say_error("out of memory for the tokens; free some and try again");
				tokens->tokens = grown;
				tokens->room = room;
			}
			tokens->tokens[tokens->count++] = (uint32_t)number;
		}
		if (letter == '\n')
			line++;
		else if (letter != EOF && !strchr(" \t\r,[]", letter))
			return say_error("%s:%u: \"%c\" is not part of a token; give numbers between blanks or commas", name, line,
			                 letter >= ' ' && letter < 0x7f ? letter : '?');
	}
	return ferror(file) ? say_error("%s: cannot be read: %s", name, strerror(errno)) : 0;
}

static int key_derive_tokens(cairn_derive *derive)
{
	struct tokens tokens = {0};
	int in = !strcmp(key.tokens, "-");
	FILE *file = in ? stdin : fopen(key.tokens, "re");

	if (!file)
		return say_error("%s: %s; give a file of token numbers, or - for stdin", key.tokens, strerror(errno));
	int status = tokens_read(in ? "(stdin)" : key.tokens, file, &tokens);

	if (!in)
		fclose(file);
	/* A block has a token at least, so there are no more keys than tokens. */
	if (!status && !key_grow(tokens.count + 1)) {
		long count = cairn_derive_tokens(derive, tokens.tokens, tokens.count, key.extras, key.nextras, key.keys,
		                                 key.room);

		if (count < 0)
			status = say_error("%s", cairn_error_text());
		else
			key.nkeys = (size_t)count;
	}
	free(tokens.tokens);
	return status;
}

/* ---- hashes and files -------------------------------------------------------------------------------------------- */

static int key_derive_hashes(cairn_derive *derive)
{
	uint8_t hash[KEY_HASH_BYTES];

	if (key_grow(key.nhashes))
		return CLI_ERROR;
	for (; key.nkeys < key.nhashes; key.nkeys++) {
		long length = args_hex(key.hashes[key.nkeys], hash, sizeof hash);

		if (length < 0)
			return say_error("--hash %s: not hexadecimal", say_name(key.hashes[key.nkeys]));
		if (cairn_derive_hash(derive, hash, (size_t)length, &key.keys[key.nkeys]))
			return say_error("%s", cairn_error_text());
	}
	return 0;
}

static int key_derive_blocks(cairn_derive *derive, const char *name, int fd, uint8_t *block)
{
	ssize_t count = 0;
	size_t used;
	uint64_t bytes = 0;

	do {
		for (used = 0; used < FILE_BLOCK_BYTES; used += (size_t)count) {
			count = read(fd, block + used, FILE_BLOCK_BYTES - used);
			if (count < 0)
				return say_error("%s: cannot be read: %s", name, strerror(errno));
			if (!count)
				break;
		}
		if (!used)
			break;
		if (say_stopped)
			return say_error("interrupted");
		if (key_grow(key.nkeys + 1))
			return CLI_ERROR;
		if (cairn_derive_bytes(derive, block, used, &key.keys[key.nkeys]))
			return say_error("%s", cairn_error_text());
		key.nkeys++;
		progress_at(&key.progress, bytes += used);
	} while (used == FILE_BLOCK_BYTES);
	return 0;
}

static int key_derive_file(cairn_derive *derive)
{
	int in = !strcmp(key.file, "-"), fd = in ? STDIN_FILENO : open(key.file, O_RDONLY | O_CLOEXEC);
	uint8_t *block = malloc(FILE_BLOCK_BYTES);
	int status;

	if (fd < 0) {
		status = say_error("%s: %s; give a file that can be read, or - for stdin", key.file, strerror(errno));
	} else if (!block) {
		status = say_error("out of memory; free some and try again");
	} else {
		progress_start(&key.progress, "read", 0);
		status = key_derive_blocks(derive, in ? "(stdin)" : key.file, fd, block);
		progress_end(&key.progress);
	}
	free(block);
	if (!in && fd >= 0)
		close(fd);
	return status;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int key_print(const cairn_derive *derive, const cairn_digest *id, const cairn_key *root)
{
	cairn_key tail;
	uint32_t ntail = 0;
	int tailed = key.tokens && !cairn_derive_tail(derive, &tail, &ntail);

	if (cli.json) {
		json_t *report = json_object(), *keys = json_array();

		say_json_hex(report, "space", id->bytes, 32);
		say_json_number(report, "group", key.group);
		say_json_hex(report, "root", root->bytes, 32);
		for (size_t i = 0; i < key.nkeys; i++)
			json_array_append_new(keys, json_string(say_hex(key.keys[i].bytes, 32)));
		json_object_set_new(report, "keys", keys);
		json_object_set_new(report, "tail", tailed ? json_string(say_hex(tail.bytes, 32)) : json_null());
		say_json_number(report, "tail_tokens", ntail);
		return say_json_end(report, CLI_WHOLE);
	}
	printf("space %s\nroot  %s\n", say_hex(id->bytes, 32), say_hex(root->bytes, 32));
	for (size_t i = 0; i < key.nkeys; i++)
		printf("key   %s  %zu\n", say_hex(key.keys[i].bytes, 32), i);
	if (tailed)
		printf("tail  %s  %s\n", say_hex(tail.bytes, 32), say_many(ntail, "token", "tokens"));
	return CLI_WHOLE;
}

/* The description as the library writes it: what was meant, with defaults filled in. */
static int key_print_text(const struct desc *desc)
{
	size_t length;
	cairn_digest id;

	if (cairn_space_id(&desc->desc, &id) || cairn_space_desc_text(&desc->desc, NULL, 0, &length))
		return say_error("%s", cairn_error_text());
	char *text = malloc(length + 1);

	if (!text)
		return say_error("out of memory; free some and try again");
	cairn_space_desc_text(&desc->desc, text, length + 1, &length);
	if (!cli.json) {
		printf("# space %s\n%s", say_hex(id.bytes, 32), text);
		free(text);
		return CLI_WHOLE;
	}
	json_t *report = json_object();

	say_json_hex(report, "space", id.bytes, 32);
	json_object_set_new(report, "text", say_json(text));
	free(text);
	return say_json_end(report, CLI_WHOLE);
}

static int key_of(const struct desc *desc)
{
	cairn_derive *derive = NULL;
	cairn_digest id;
	cairn_key root;
	int status = 0;

	if (cairn_space_id(&desc->desc, &id) ||
	    cairn_derive_start_desc(&desc->desc, (uint32_t)key.group, &derive))
		return say_error("%s", cairn_error_text());
	cairn_derive_parent(derive, &root);
	if (key.tokens)
		status = key_derive_tokens(derive);
	else if (key.nhashes)
		status = key_derive_hashes(derive);
	else if (key.file)
		status = key_derive_file(derive);
	status = status ? status : key_print(derive, &id, &root);
	cairn_derive_free(derive);
	return status;
}

static int key_run(char **operand, uint32_t count)
{
	struct desc desc;

	if (key.weights) {
		if (key.tokens || key.file || key.nhashes || key.nextras || key.text)
			return say_error(
				"--weights with an option of keys; give files alone, and its result as \"weights = ...\" in"
				" the description");
		return key_weights(operand, count);
	}
	if (count > 1)
		return say_error(
			"\"%s\" is one argument too many; usage: cairn key DESC.space [OPTION...], or --weights FILE...",
			say_name(operand[1]));
	if (!!key.tokens + !!key.nhashes + !!key.file > 1)
		return say_error("two of --tokens, --hash, --file; give the one that the scheme takes");
	if (key.nextras && !key.tokens)
		return say_error("--extra without --tokens; an extra begins at one of the tokens");
	if (key.tokens && !strcmp(key.tokens, "-") && !strcmp(operand[0], "-"))
		return say_error("both the description and the tokens are on stdin; give a file for one of them");
	int status = desc_read(operand[0], &desc);

	status = status ? status : (key.text ? key_print_text : key_of)(&desc);
	desc_done(&desc);
	free(key.keys);
	return status;
}

static const struct argp_option key_options[] = {
	{"tokens", KEY_TOKENS, "FILE", 0, "Keys of these tokens: numbers between blanks or commas (- for stdin)", 0},
	{"group", KEY_GROUP, "NUMBER", 0, "Of this group of the space (0)", 0},
	{"extra", KEY_EXTRA, "TOKEN:HEX", 0, "Besides tokens, from that token of the prompt on: a salt, the digest of an "
	 "image; once for each, in order", 0},
	{"hash", KEY_HASH, "HEX", 0, "Keys of these engine hashes (schemes vllm, sglang, lmcache); once for each", 0},
	{"file", KEY_FILE, "FILE", 0, "Keys of the blocks of a file (scheme file/1; - for stdin)", 0},
	{"text", KEY_TEXT, NULL, 0, "Print the description instead, as the library understands it", 0},
	{"weights", KEY_WEIGHTS, NULL, 0, "Print the digest of these files of weights instead", 0},
	{0},
};

const struct verb verb_key = {
	.name = "key",
	.operands = "DESC.space|FILE...",
	.summary = "ids and keys, without a store",
	.text = "Prints the id of the space that the file DESC.space describes (- for stdin), the root of the group's "
            "chain, and "
			"the keys of what is given. Or, with --weights, the digest of a model's files. docs/KEY.md says how they "
            "are made."
			"\vExamples:\n"
			"  cairn key qwen.space\n"
			"  echo 1 2 3 4 5 | cairn key qwen.space --tokens -\n"
			"  cairn key qwen.space --tokens prompt.json --extra 0:73616c74\n"
			"  cairn key --weights model-*.safetensors >> qwen.space\n"
			"\n"
			"A description is lines \"field = value\"; # begins a comment line:\n"
			"  model = Qwen3-8B\n"
			"  kv_dtype = bf16\n"
			"  block_tokens = 16\n",
	.options = key_options,
	.option = key_option,
	.run = key_run,
	.shared = VERB_JSON | VERB_QUIET,
	.least = 1,
	.most = UINT32_MAX,
};
