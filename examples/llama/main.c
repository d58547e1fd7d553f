/* SPDX-License-Identifier: Apache-2.0 */
/* Options and subcommands of cairn-llama-demo. See demo.h. */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "demo.h"

static const char usage[] =
	"usage: cairn-llama-demo COMMAND --model FILE [--store DIR] [OPTION...]\n"
	"\n"
	"  chat       talk; each line of standard input is a question. --session NAME goes on where it ended\n"
	"  document   print the log that --seed makes\n"
	"  prompt     one prompt of --tokens: restore what the store has, compute and store the rest\n"
	"  sessions   save --count sessions, then wait to be killed; with --resume: resume each\n"
	"  reference  a conversation that is never killed, and its recompute time\n"
	"  keep       the same conversation up to its last question; save it, say \"stored\", wait to be killed\n"
	"  resume     the last question in a new process, from flash and from memory\n"
	"\n"
	"  --model FILE         the model, a GGUF file\n"
	"  --store DIR          the store; made where it is missing\n"
	"  --no-store           none: compute everything\n"
	"  --session NAME       (demo)\n"
	"  --prompt-file FILE   chat: a text that the first question is about\n"
	"  --predict N          most tokens of an answer (32; chat: 200)\n"
	"  --tokens N           length of the document (1024)\n"
	"  --seed N             of the document (1)\n"
	"  --turns N            turns before the session is saved (2)\n"
	"  --count N            sessions (20)\n"
	"  --ctx N              size of the context in tokens (--tokens and 1024 more)\n"
	"  --batch N            tokens of a batch; batches end at its multiples (256)\n"
	"  --block N            tokens of a block (256, or less for a large model)\n"
	"  --threads N          (all processors, at most 8)\n"
	"  --memory-mib N       cairn's memory tier (256)\n"
	"  --budget-mib N       most on flash (half of what is free)\n"
	"  --kv-type TYPE       f16, bf16, q8_0 ... (f16)\n"
	"  --flash-attn on|off  (llama.cpp chooses)\n"
	"  --rope-base X        RoPE frequency base (the model's)\n"
	"  --lora FILE[=SCALE]  a LoRA adapter; may be repeated\n"
	"  --override KEY=N     an integer of the model's metadata; may be repeated\n"
	"  --json               one line of JSON on standard output, the rest on standard error\n"
	"  --verbose            what llama.cpp logs\n";

void die(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fputs("cairn-llama-demo: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	/* Not exit(): llama.cpp's threads and the store may be at work. The store survives this as it survives kill -9. */
	_exit(1);
}

void say(const struct options *options, const char *format, ...)
{
	FILE *to = options->json ? stderr : stdout;
	va_list args;

	va_start(args, format);
	vfprintf(to, format, args);
	va_end(args);
	fputc('\n', to);
	fflush(to);
}

void *must(void *memory)
{
	if (!memory)
		die("out of memory");
	return memory;
}

double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

enum {
	OPT_MODEL = 256, OPT_STORE, OPT_NO_STORE, OPT_SESSION, OPT_PROMPT_FILE, OPT_PREDICT, OPT_TOKENS, OPT_SEED,
	OPT_TURNS, OPT_COUNT, OPT_CTX, OPT_BATCH, OPT_BLOCK, OPT_THREADS, OPT_MEMORY, OPT_BUDGET, OPT_KV_TYPE,
	OPT_FLASH_ATTN, OPT_ROPE_BASE, OPT_LORA, OPT_OVERRIDE, OPT_JSON, OPT_VERBOSE, OPT_RESUME, OPT_HELP,
};
static const struct option long_options[] = {
	{"model", required_argument, NULL, OPT_MODEL},
	{"store", required_argument, NULL, OPT_STORE},
	{"no-store", no_argument, NULL, OPT_NO_STORE},
	{"session", required_argument, NULL, OPT_SESSION},
	{"prompt-file", required_argument, NULL, OPT_PROMPT_FILE},
	{"predict", required_argument, NULL, OPT_PREDICT},
	{"tokens", required_argument, NULL, OPT_TOKENS},
	{"seed", required_argument, NULL, OPT_SEED},
	{"turns", required_argument, NULL, OPT_TURNS},
	{"count", required_argument, NULL, OPT_COUNT},
	{"ctx", required_argument, NULL, OPT_CTX},
	{"batch", required_argument, NULL, OPT_BATCH},
	{"block", required_argument, NULL, OPT_BLOCK},
	{"threads", required_argument, NULL, OPT_THREADS},
	{"memory-mib", required_argument, NULL, OPT_MEMORY},
	{"budget-mib", required_argument, NULL, OPT_BUDGET},
	{"kv-type", required_argument, NULL, OPT_KV_TYPE},
	{"flash-attn", required_argument, NULL, OPT_FLASH_ATTN},
	{"rope-base", required_argument, NULL, OPT_ROPE_BASE},
	{"lora", required_argument, NULL, OPT_LORA},
	{"override", required_argument, NULL, OPT_OVERRIDE},
	{"json", no_argument, NULL, OPT_JSON},
	{"verbose", no_argument, NULL, OPT_VERBOSE},
	{"resume", no_argument, NULL, OPT_RESUME},
	{"help", no_argument, NULL, OPT_HELP},
	{NULL, 0, NULL, 0},
};

static uint32_t number(const char *text, uint32_t least, uint32_t most)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (end == text || *end || value < least || value > most || *text == '-')
		die("%s is not a number from %u to %u", text, least, most);
	return (uint32_t)value;
}

static void add_lora(struct options *options, char *text)
{
	char *equals = strrchr(text, '=');
	struct cairn_llama_adapter *adapter = &options->adapters[options->nadapters];

	if (options->nadapters == ADAPTERS_MAX)
		die("at most %d adapters", ADAPTERS_MAX);
	adapter->scale = 1;
	if (equals) {
		*equals = 0;
		adapter->scale = strtof(equals + 1, NULL);
	}
	adapter->path = text;
	options->nadapters++;
}

static void add_override(struct options *options, const char *text)
{
	struct llama_model_kv_override *override = &options->overrides[options->noverrides];
	const char *equals = strrchr(text, '=');
	size_t length = strlen(options->variant);

	if (options->noverrides == OVERRIDES_MAX)
		die("at most %d overrides", OVERRIDES_MAX);
	if (!equals || (size_t)(equals - text) >= sizeof override->key)
		die("--override takes KEY=N");
	override->tag = LLAMA_KV_OVERRIDE_TYPE_INT;
	memcpy(override->key, text, (size_t)(equals - text));
	override->val_i64 = strtoll(equals + 1, NULL, 10);
	options->noverrides++;
	snprintf(options->variant + length, sizeof options->variant - length, "%s%s", length ? " " : "override ", text);
}

static int flash_attention(const char *text)
{
	if (strcmp(text, "on") == 0)
		return LLAMA_FLASH_ATTN_TYPE_ENABLED;
	if (strcmp(text, "off") == 0)
		return LLAMA_FLASH_ATTN_TYPE_DISABLED;
	die("--flash-attn takes on or off");
}

static void set_number(struct options *options, int opt, const char *text)
{
	const uint32_t most = 1u << 24;

	switch (opt) {
	case OPT_PREDICT:
		options->predict = number(text, 1, most);
		break;
	case OPT_TOKENS:
		options->tokens = number(text, 2, most);
		break;
	case OPT_SEED:
		options->seed = number(text, 0, most);
		break;
	case OPT_TURNS:
		options->turns = number(text, 1, 100);
		break;
	case OPT_COUNT:
		options->count = number(text, 1, most);
		break;
	case OPT_CTX:
		options->ctx = number(text, 16, most);
		break;
	case OPT_BATCH:
		options->batch = number(text, 1, 65536);
		break;
	case OPT_BLOCK:
		options->block = number(text, 1, 65536);
		break;
	case OPT_THREADS:
		options->threads = number(text, 1, 512);
		break;
	case OPT_MEMORY:
		options->memory_bytes = (uint64_t)number(text, 1, most) << 20;
		break;
	default:
		options->budget_bytes = (uint64_t)number(text, 1, most) << 20;
		break;
	}
}

static void set_option(struct options *options, int opt, char *text)
{
	switch (opt) {
	case OPT_MODEL:
		options->model = text;
		break;
	case OPT_STORE:
		options->store = text;
		break;
	case OPT_NO_STORE:
		options->store = NULL;
		break;
	case OPT_SESSION:
		options->session = text;
		break;
	case OPT_PROMPT_FILE:
		options->prompt_file = text;
		break;
	case OPT_KV_TYPE:
		options->kv_type = text;
		break;
	case OPT_FLASH_ATTN:
		options->flash_attention = flash_attention(text);
		break;
	case OPT_ROPE_BASE:
		options->rope_base = strtof(text, NULL);
		break;
	case OPT_LORA:
		add_lora(options, text);
		break;
	case OPT_OVERRIDE:
		add_override(options, text);
		break;
	case OPT_JSON:
		options->json = 1;
		break;
	case OPT_VERBOSE:
		options->verbose = 1;
		break;
	case OPT_RESUME:
		options->resume = 1;
		break;
	case OPT_HELP:
		fputs(usage, stdout);
		exit(0);
	case '?':
		fputs("cairn-llama-demo --help shows the options\n", stderr);
		exit(2);
	default:
		set_number(options, opt, text);
		break;
	}
}

static int run_document(const struct options *options)
{
	char text[1024];

	for (uint32_t i = 0; i < options->count; i++) {
		document_entry(options->seed, i, text, sizeof text);
		fputs(text, stdout);
	}
	return 0;
}

static const struct command {
	const char *name;
	int (*run)(const struct options *options);
	int needs_store;
} commands[] = {
	{"chat", run_chat, 0},
	{"document", run_document, 0},
	{"prompt", run_prompt, 0},
	{"sessions", run_sessions, 1},
	{"reference", run_reference, 0},
	{"keep", run_keep, 1},
	{"resume", run_resume, 1},
};

int main(int argc, char **argv)
{
	struct options options = {
		.predict = 32, .tokens = 1024, .seed = 1, .turns = 2, .count = 20, .batch = 256, .flash_attention = -1,
	};
	const struct command *command = NULL;
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	int opt;

	if (argc > 1 && argv[1][0] != '-') {
		for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
			if (strcmp(argv[1], commands[i].name) == 0)
				command = &commands[i];
		}
	}
	optind = command ? 2 : 1;
	if (command && command->run == run_chat) {
		options.predict = 200;
		options.ctx = 4096;
	}
	while ((opt = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		set_option(&options, opt, optarg);
	if (!command || optind != argc) {
		fputs(usage, stderr);
		return 2;
	}
	if (!options.model && command->run != run_document)
		die("--model is required");
	if (command->needs_store && !options.store)
		die("%s needs --store", command->name);
	if (!options.session && command->run != run_prompt)
		options.session = "demo";
	if (!options.ctx)
		options.ctx = options.tokens + 1024;
	if (!options.threads)
		options.threads = processors < 1 ? 1 : processors > 8 ? 8 : (uint32_t)processors;
	return command->run(&options);
}
