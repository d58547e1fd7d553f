/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the program `cairn` share: verbs, their options, opening a store, and how it talks to people.
 * The program sees the library through cairn.h alone (and fsck through fsck/fsck.h), as any other program does.
 *
 * Threads: one. Memory: malloc and free; what a run of one verb takes may be left to the end of the process.
 * Invariant: whatever goes wrong is said in one line on stderr, "cairn VERB: what was wrong, what to do", by the one
 * who notices it, who then returns CLI_ERROR or CLI_NOT; nobody above says it again.
 */
#ifndef CAIRN_CLI_CLI_H
#define CAIRN_CLI_CLI_H

#include <argp.h>
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "cairn/cairn.h"

/* Exit statuses. A run that was interrupted ends by the signal, as the shell expects. */
enum {
	CLI_WHOLE = 0, /* done, whole, found, the same */
	CLI_NOT = 1,   /* not there, damaged, different */
	CLI_ERROR = 2, /* an error, of usage too */
};

/* Which of the shared options a verb takes. */
enum {
	VERB_STORE = 1u << 0,   /* --memory --flash --budget --write-budget --read-only --io --token */
	VERB_JSON = 1u << 1,    /* --json */
	VERB_QUIET = 1u << 2,   /* --quiet */
	VERB_SESSION = 1u << 3, /* --owner --tenant */
	VERB_YES = 1u << 4,     /* --yes */
};

/* Keys of a verb's own options begin here; those below are shared. */
#define VERB_KEY 1000

struct verb {
	const char *name;
	const char *operands; /* "STORE NAME FILE": how the usage names them */
	const char *summary;  /* for `cairn help`: one short line */
	const char *text;     /* for --help: what it does; after a \v the examples */
	const struct argp_option *options; /* NULL: none of its own */
	int (*option)(int key, char *value); /* 0, or CLI_ERROR after a message */
	int (*run)(char **operand, uint32_t count); /* returns the exit status */
	uint32_t shared;      /* VERB_... */
	uint32_t least, most; /* operands */
};

/* What the shared options said; set before run. One verb runs in a process, so there is one of it. */
struct cli {
	const struct verb *verb; /* NULL: `cairn` itself */
	int json, quiet, yes;
	const char *owner, *tenant; /* NULL: not given */
	uint64_t memory_bytes;
	struct cairn_flash flash[16];
	uint32_t nflash;
	uint64_t budget_bytes;
	uint64_t write_bytes_day;
	int read_only;
	uint32_t io_engine; /* enum cairn_io */
	const char *token_file; /* NULL: where it is looked for */
};
extern struct cli cli;

extern const struct verb verb_put, verb_get, verb_ls, verb_stat, verb_session, verb_explain, verb_key, verb_drop,
	verb_fsck, verb_init, verb_bench, verb_token, verb_top, verb_events;

/* ---- args.c ------------------------------------------------------------------------------------------------------ */

/* Parses the arguments of a verb, runs it, and returns the exit status. argv[0] is the verb. */
int args_run(const struct verb *verb, int argc, char **argv);
void args_help(const struct verb *verb);
/* "64M", "10GiB", "1000": 0, or -1. Units are powers of 1024, but kB, MB, GB and TB of 1000. */
int args_size(const char *text, uint64_t *ret_bytes);
/* "90", "15m", "1h", "2d", "1w" to seconds: 0, or -1. */
int args_duration(const char *text, uint64_t *ret_s);
/* Decimal digits alone: 0, or -1 (also above `most`). */
int args_number(const char *text, uint64_t most, uint64_t *ret_number);
/* Hexadecimal to bytes, at most `max`: their number, or -1. */
long args_hex(const char *text, uint8_t *bytes, size_t max);
/* The one of `count` words that is closest to `text`, or NULL where none is close. For "did you mean". */
const char *args_closest(const char *text, const char *const *words, size_t count);
/* The session that the options and NAME mean. 0, or CLI_ERROR: not a name. */
int args_session(const char *name, struct cairn_session_name *ret_name);

/* ---- serve.c ----------------------------------------------------------------------------------------------------- */

/* Becomes cairnd with these arguments, argv[0] being the verb. Returns only with CLI_ERROR. */
int serve_exec(int argc, char **argv);

/* ---- stat.c ------------------------------------------------------------------------------------------------------ */

json_t *stat_report(const struct cairn_stat *stat);
const char *stat_alarm_text(uint32_t alarm); /* what it means, and what to do */

/* ---- say.c ------------------------------------------------------------------------------------------------------- */

/* One line on stderr, "cairn VERB: ..."; returns CLI_ERROR. */
int say_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same; returns CLI_NOT. */
int say_not(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A device of the open store that is not there: the next line of an error says so, or else say_gone_end does. */
void say_gone_device(const char *path);
void say_gone_end(void);
/* One line on stdout, but not with --quiet or --json. */
void say_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Short texts, each valid until the eighth next call of any of them. */
const char *say_size(uint64_t bytes);   /* "37.0 MiB", "512 B" */
const char *say_time(uint64_t when_s);  /* local, "2026-01-31 09:30"; 0: "-" */
const char *say_span(double seconds);   /* "0.21 s", "3 min 5 s" */
const char *say_rate(uint64_t bytes, double seconds); /* "812 MB/s", "-" */
const char *say_hex(const void *bytes, size_t length); /* at most 32 bytes */
const char *say_tier(uint32_t tier);
const char *say_many(uint64_t count, const char *one, const char *many); /* "1 part", "1,234 parts" */
/* A name of whatever bytes, so that it can not move the cursor or break a line; long ones are cut. */
const char *say_name(const char *name);

/* A JSON string of whatever bytes: those that are not UTF-8 become \xNN. */
json_t *say_json(const char *text);
/* Adds a number to an object. */
void say_json_number(json_t *object, const char *key, uint64_t number);
void say_json_hex(json_t *object, const char *key, const void *bytes, size_t length);
/* Prints the value on stdout, frees it, and returns `status`. */
int say_json_end(json_t *value, int status);

/* Asks on the terminal; with --yes it is yes. 0: yes; CLI_ERROR: no, or nobody to ask, and it was said. */
int say_confirm(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Progress of long work on stderr: a bar on a terminal, a line now and then elsewhere, nothing with --json, --quiet. */
struct progress {
	const char *what; /* "put" */
	uint64_t all;     /* bytes; 0: not known */
	double start_s, last_s;
	int mode;         /* 0 silent, 1 lines, 2 bar */
	int shown;        /* a bar stands on the line */
};
void progress_start(struct progress *progress, const char *what, uint64_t all);
void progress_at(struct progress *progress, uint64_t done);
void progress_end(struct progress *progress); /* takes the bar away */
double progress_seconds(const struct progress *progress);

/* Set by SIGINT, SIGTERM, SIGHUP: long work stops soon. The second such signal ends the process at once. */
extern volatile int say_stopped;
void say_catch_signals(void);
/* At the end of main: ends by the signal that was caught, if any. */
void say_end_by_signal(void);

/* ---- open.c ------------------------------------------------------------------------------------------------------ */

enum {
	OPEN_LOOK,   /* writes nothing: looks disturb neither the store nor each other */
	OPEN_READ,   /* what is read counts as used, and damage found is noted; read-only where writing is forbidden */
	OPEN_WRITE,
	OPEN_CREATE, /* for files: small budgets get segments that hold blocks of 1 MiB */
};
/* Opens the store with the options given. 0, or CLI_ERROR after a message. */
int open_store(const char *place, int need, cairn **ret_store);
/* Closes it; returns `status`, or CLI_ERROR after a message where the close fails. */
int open_close(cairn *store, int status);
/* Finds and loads a session. 0; CLI_NOT: not there, or damaged; CLI_ERROR. All said, with what is there instead. */
int open_session(cairn *store, const struct cairn_session_name *name, cairn_session **ret_session);
/* After NOENT of a session call: says what is not there, and what is; returns CLI_NOT. */
int open_session_missing(cairn *store, const struct cairn_session_name *name);

/* All that a list call showed, copied: callbacks must not call into the store. */
struct session_row {
	struct cairn_session_info info; /* its strings belong to this row */
};
struct space_row {
	struct cairn_space_info info; /* its text belongs to this row */
};
/* Sorted by tenant, owner, name. 0, or CLI_ERROR. */
int open_list_sessions(cairn *store, const char *tenant, struct session_row **ret_rows, size_t *ret_count);
int open_list_spaces(cairn *store, struct space_row **ret_rows, size_t *ret_count);
/* The one space whose id begins with the hexadecimal digits of `text`. 0, CLI_NOT or CLI_ERROR, said. */
int open_find_space(const struct space_row *rows, size_t count, const char *text, const struct space_row **ret_row);
/* That space as the store's own, from its text. 0, or CLI_ERROR. */
int open_space(cairn *store, const struct space_row *row, cairn_space **ret_space);

/* ---- desc.c: description files, as cairn_space_text writes them -------------------------------------------------- */

struct desc {
	struct cairn_space_desc desc; /* its pointers lead into this struct and into `text`: never copied nor moved */
	struct cairn_group groups[16];
	struct cairn_part parts[64];
	struct cairn_field fields[64];
	cairn_digest weights, adapter;
	uint8_t generation[16];
	uint64_t seen; /* fields that were given, by their places in the table */
	char *text;    /* owned */
};
/* Reads a file ("-": stdin). 0, or CLI_ERROR after "FILE:LINE: ...". desc_done in both cases. */
int desc_read(const char *file, struct desc *ret_desc);
/* The same of text in memory; `name` stands for the file in messages. */
int desc_parse(const char *name, const char *text, size_t length, struct desc *ret_desc);
void desc_done(struct desc *desc);

/* ---- file.c: what put and get agree on --------------------------------------------------------------------------- */

#define FILE_BLOCK_BYTES ((size_t)1 << 20) /* of file/1 */
#define FILE_BATCH 16u                     /* blocks that move at once */
#define FILE_SLOTS 2u                      /* batches in flight: one moves while the other is read or written */
#define FILE_TRIES_S 60.0                  /* seconds that an item may answer "busy" */

/* What the session's state says of the file (little endian). Its blocks need no checksum here: their keys are one.
 *    0  8  "cairnPUT"
 *    8  4  version, 1
 *   12  4  bytes of a full block
 *   16  8  bytes of the file
 */
#define FILE_RECORD_BYTES 24u
void file_record_encode(uint64_t bytes, uint8_t record[FILE_RECORD_BYTES]);
/* 0, or -1: not a session of `cairn put`; -2: one of a newer version. */
int file_record_decode(const void *record, uint64_t length, uint64_t *ret_bytes);
/* The same of a session that was resumed. */
int file_record_of(const cairn_session *session, uint64_t *ret_bytes);
static inline uint64_t file_blocks(uint64_t bytes)
{
	return bytes / FILE_BLOCK_BYTES + (bytes % FILE_BLOCK_BYTES != 0);
}

/* One batch on its way. */
struct file_slot {
	uint8_t *bytes; /* FILE_BATCH blocks */
	struct cairn_item items[FILE_BATCH];
	struct cairn_buf bufs[FILE_BATCH];
	cairn_key parents[FILE_BATCH];
	uint32_t count;   /* items */
	uint64_t first;   /* number of the first block in the file */
	int in_flight;
};
struct file_mover {
	cairn *store;
	cairn_space *space;
	cairn_queue *queue;
	cairn_derive *derive;
	struct cairn_call call;
	int putting; /* else getting */
	struct file_slot slot[FILE_SLOTS];
	char why[512]; /* the library's text on the first item that failed */
};
/* 0, or CLI_ERROR after a message; file_done in both cases. */
int file_start(struct file_mover *mover, cairn *store, cairn_space *space, int putting, uint32_t durability);
/* Sends a slot on its way. 0, or CLI_ERROR. */
int file_submit(struct file_mover *mover, uint32_t slot);
/* Waits for a slot; items that answered "busy" or failed are tried again, alone. Each status is final then. */
void file_wait(struct file_mover *mover, uint32_t slot);
void file_done(struct file_mover *mover); /* waits for what is in flight */

/* ---- explain.c --------------------------------------------------------------------------------------------------- */

/* Why a part is not there (enum cairn_reason), in words. */
const char *explain_reason(uint32_t reason);

#endif
