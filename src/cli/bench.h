/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of `cairn bench` share: figures, their samples, families that measure them together, and limits.
 *
 * A figure is one number beside its limit. Both are measured in each round, one right after the other and in turns
 * first, so that a medium that drifts moves both; what is judged is the ratio of the pair.
 * Threads: one, but those that a family starts and ends within a step. Memory: malloc and free.
 * Invariant: a sample is added with the limit that it was measured beside, never with another round's.
 */
#ifndef CAIRN_CLI_BENCH_H
#define CAIRN_CLI_BENCH_H

#include <stdint.h>
#include <stdio.h>

#include "cairn/cairn.h"

enum {
	BENCH_ROUNDS = 32,  /* most rounds */
	BENCH_RESULTS = 64, /* most figures of all families */
};
#define BENCH_PART_BYTES  ((uint64_t)2 << 20)
#define BENCH_SPREAD_MOST 0.20 /* a wider one is called unsure */

struct bench_figure {
	const char *name, *unit;
	const char *limit_name; /* "memcpy"; of an absolute goal: what it says */
	const char *what;       /* for --list: one short line */
	double limit;           /* of an absolute goal; 0: measured beside it */
	double goal;            /* of the ratio value / limit */
	int below;              /* 1: the ratio is to be at most the goal, 0: at least */
	int exact;              /* 1: a count, which one round tells for certain */
};

struct bench_result {
	const struct bench_figure *figure;
	int wanted;
	uint32_t count; /* rounds */
	double value[BENCH_ROUNDS], limit[BENCH_ROUNDS];
	double other[BENCH_ROUNDS]; /* a second candidate for the limit, until one is chosen */
	char limit_name[64];        /* as it was measured: "fio, depth 16" */
	char note[120];             /* what the reader must know; or empty */
};

/* ---- bench_stat.c: pure ------------------------------------------------------------------------------------------ */

enum bench_verdict {
	BENCH_NONE = 0, /* not measured */
	BENCH_GOOD = 1,
	BENCH_MISSED = 2,
	BENCH_UNSURE = 3, /* the rounds are too far apart to say */
};
struct bench_summary {
	double value, limit, ratio; /* medians of the rounds; the ratio's is that of the pairs */
	double spread;              /* interquartile range of the ratios / their median */
	int verdict;                /* enum bench_verdict */
};
/* The p-th part (0..1) of values, between two of them where it falls between; sorts them. 0 of none. */
double bench_quantile(double *values, size_t count, double p);
void bench_summarize(const struct bench_result *result, struct bench_summary *ret_summary);
const char *bench_verdict_name(int verdict);
/* "1.234", "12.3", "0.0121": at least three digits that count. At most `max` bytes with the 0. */
const char *bench_number(double value, char *text, size_t max);

/* ---- bench_html.c ------------------------------------------------------------------------------------------------ */

/* One page that needs nothing else. `about` says what was run on. 0, or -1: it could not be written. */
int bench_html(FILE *file, const struct bench_result *results, size_t count, const char *about);

/* ---- bench.c, bench_run.c ---------------------------------------------------------------------------------------- */

struct bench_family;
struct bench {
	uint32_t rounds;
	int quick, full;
	uint64_t size; /* bytes of data of the flash figures */
	char *dir;     /* where everything lies */
	struct bench_result results[BENCH_RESULTS];
	uint32_t nresults;
	const char *traces; /* directory of recorded requests; NULL: CAIRN_TRACES says, or there are none */
	const char *engine; /* fio's; NULL: not tried yet */
	void *work;         /* of the family that runs */
	uint64_t random;
	uint32_t steps, step; /* for the progress */
	const char *step_name;
	int shown;
};

struct bench_family {
	const char *name;
	const struct bench_figure *figures;
	uint32_t nfigures;
	int needs_fio;
	uint64_t (*disk_bytes)(const struct bench *bench); /* NULL: none */
	/* Each returns 0, or CLI_ERROR after a message. `done` is called after a start that failed, too. */
	int (*start)(struct bench *bench);
	int (*round)(struct bench *bench, uint32_t round); /* round 0 warms up: its samples do not count */
	int (*finish)(struct bench *bench);                /* after the rounds; may be NULL */
	void (*done)(struct bench *bench);
};
extern const struct bench_family bench_memory, bench_keys, bench_flash, bench_put, bench_entries, bench_policy,
	bench_served, bench_clients, bench_remote, bench_peer;
int bench_has_traces(const struct bench *bench); /* bench_policy.c */

/* Runs all families of which a figure is wanted. 0, or CLI_ERROR. */
int bench_run(struct bench *bench, const struct bench_family *const *families, size_t count);
struct bench_result *bench_find(struct bench *bench, const char *name);
int bench_wants(struct bench *bench, const char *name);
/* A sample of a round; the limit of an absolute figure is its own. Round 0 is not kept. */
void bench_add(struct bench *bench, uint32_t round, const char *name, double value, double limit);
/* The same beside two depths of fio; bench_choose at the end keeps the one whose median is higher, in every round: the
 * better of each round would be the luckier. */
void bench_add_either(struct bench *bench, uint32_t round, const char *name, double value, const double limits[2]);
void bench_choose(struct bench *bench, const char *name, const char *const limit_names[2]);
/* Says on the terminal what goes on. */
void bench_step(struct bench *bench, const char *what, uint32_t round);
void bench_step_end(struct bench *bench);

double bench_now(void); /* seconds */
double bench_cpu(void); /* CPU seconds of this process, all threads */
uint64_t bench_random(struct bench *bench);
/* Memory of whole pages, touched; the end of the process frees it unless bench_unmap does. NULL after a message. */
uint8_t *bench_map(uint64_t bytes);
void bench_unmap(uint8_t *memory, uint64_t bytes);
void bench_fill_random(struct bench *bench, uint8_t *memory, uint64_t bytes);
/* The key of part number `number`; all numbers differ. */
void bench_key(uint64_t number, cairn_key *ret_key);
/* `dir`/name. Owned by the caller. */
char *bench_path(const struct bench *bench, const char *name);
struct bench_plan {
	uint64_t flash_bytes;                 /* of a new store; 0: as it lies there */
	uint64_t memory_bytes, catalog_bytes; /* 0: the default */
	int no_flash;
	const char *peer; /* of a cairnd: the place of another one; NULL: none */
};
void bench_desc(struct cairn_space_desc *ret_desc); /* of the space of all figures */
/* A store in `dir`/name with one space of 16 tokens a block. 0, or CLI_ERROR; *ret_store is NULL then. */
int bench_store(struct bench *bench, const char *name, const struct bench_plan *plan, cairn **ret_store,
                cairn_space **ret_space);
/* Writes parts of 2 MiB as fast as they go: batches of 16 MiB, several in flight. One thread at a time. */
enum {
	PUMP_BATCH = 8,
	PUMP_SLOTS = 8,
	PUMP_CHAIN = PUMP_BATCH /* parts of a chain: in one batch, so in order */
};
struct bench_pump {
	cairn *store;
	cairn_space *space;
	cairn_queue *queue;
	uint32_t durability;
	uint64_t next;    /* number of the next part */
	uint64_t *checks; /* by number: what was put; NULL: not kept */
	uint64_t nchecks;
	uint64_t refused; /* parts that were not acknowledged */
	uint8_t *source;
	struct bench_slot {
		struct cairn_item items[PUMP_BATCH];
		struct cairn_buf bufs[PUMP_BATCH];
		cairn_key parents[PUMP_BATCH];
		uint64_t first;
		uint32_t count;
	} slot[PUMP_SLOTS];
};
/* 0, or CLI_ERROR; bench_pump_done in both cases. */
int bench_pump_start(struct bench *bench, struct bench_pump *pump, cairn *store, cairn_space *space);
/* The next `parts`, and waits for them (durable: all is flushed). 0, or CLI_ERROR after a message. */
int bench_pump_write(struct bench_pump *pump, uint64_t parts);
void bench_pump_done(struct bench_pump *pump);

/* ---- bench_daemon.c ---------------------------------------------------------------------------------------------- */

/* A cairnd of our own, a child of this process: it ends with us, however we end. */
struct bench_daemon {
	int pid; /* 0: none */
	char *local, *remote, *secure; /* places: unix:PATH, tcp+plain://127.0.0.1:PORT, tcp://127.0.0.1:PORT */
	char *token;                   /* the file of a token for the last one */
};
unsigned bench_port(void); /* of loopback, that nobody listens on now; 0: none */
/* Over `dir`/name, as planned (no_flash: nothing goes to flash; flash_bytes 0: as it lies there). 0, or CLI_ERROR after
 * a message; bench_daemon_end in both cases. */
int bench_daemon_start(struct bench *bench, const char *name, const struct bench_plan *plan,
                       struct bench_daemon *daemon);
void bench_daemon_end(struct bench_daemon *daemon);
double bench_daemon_cpu(const struct bench_daemon *daemon); /* CPU seconds so far */
/* The store behind a place, with the space of bench_store; token: a file, NULL: none. 0, or CLI_ERROR after a message;
 * *ret_store is NULL then. */
int bench_connect(const char *place, const char *token, cairn **ret_store, cairn_space **ret_space);
/* Bytes of one area that is walked from end to end, so that no cache serves it: four times the last-level one, but at
 * most one of `areas` such parts of half of the free memory; less with --quick. Whole batches. */
uint64_t bench_cold_bytes(const struct bench *bench, uint64_t areas);
enum {
	BENCH_BATCH = 8 /* parts of a get or put where nothing else is said */
};
/* Puts or gets the parts first .. first + parts - 1, which lie one behind the other at `memory`, in batches of `batch`.
 * GB/s; 0 after a message. */
enum {
	BENCH_UNCHECKED = 1 /* get: the bytes are not checked */
};
double bench_put_parts(cairn *store, cairn_space *space, uint8_t *memory, uint64_t first, uint64_t parts,
                       uint32_t batch);
double bench_get_parts(cairn *store, cairn_space *space, uint8_t *memory, uint64_t first, uint64_t parts,
                       uint32_t batch, int flags);

/* A cairnd with parts in its memory, a client of it, and two areas of as many bytes, which no cache holds. */
struct bench_rig {
	struct bench_daemon daemon;
	cairn *store;
	cairn_space *space;
	uint8_t *from, *to; /* the parts that were put; where they go */
	uint64_t bytes, parts;
};
/* Over `dir`/name; far: the client connects over loopback; areas: of `bytes`, that the daemon's memory holds. 0, or
 * CLI_ERROR after a message; bench_rig_done in both cases. */
int bench_rig_start(struct bench *bench, const char *name, int far, uint32_t areas, struct bench_rig *rig);
void bench_rig_done(struct bench_rig *rig);

/* CPU seconds that moving so many GB took, of us and of a daemon. */
struct bench_cpu_sum {
	double client_s, daemon_s, gb;
};
void bench_cpu_begin(struct bench_cpu_sum *sum, const struct bench_daemon *daemon);
void bench_cpu_end(struct bench_cpu_sum *sum, const struct bench_daemon *daemon, uint64_t bytes);
/* Notes it beside a figure. */
void bench_cpu_note(struct bench *bench, const char *name, const struct bench_cpu_sum *sum);

/* bench_served.c: drops those parts, which must be there. 0, or CLI_ERROR after a message. */
int bench_forget_parts(cairn *store, cairn_space *space, uint64_t first, uint64_t parts);

/* ---- bench_loop.c: bytes over loopback TCP, without cairn -------------------------------------------------------- */

struct bench_loop;
/* So many connections within this process; secure: by SSL_write and SSL_read, with a key of its own. NULL after a
 * message. */
struct bench_loop *bench_loop_open(uint32_t streams, int secure);
/* Sends `bytes` from one memory into the other, a share over each connection, by two threads each. GB/s; 0 after a
 * message. */
double bench_loop_run(struct bench_loop *loop, const uint8_t *from, uint8_t *to, uint64_t bytes);
void bench_loop_close(struct bench_loop *loop);

/* Removes what lies below `dir`. */
void bench_clear(const char *dir);

/* ---- bench_limit.c ----------------------------------------------------------------------------------------------- */

struct bench_fio {
	const char *file;
	int write;
	uint32_t depth;
	uint32_t flush_each; /* one fdatasync for so many blocks; 0: none */
	uint64_t bytes;      /* to read or write, of 2 MiB blocks */
};
/* Runs fio. gb_s: 10^9 bytes a second; cpu_s_gb: CPU seconds for each. 0, or CLI_ERROR after a message. */
int bench_fio(struct bench *bench, const struct bench_fio *fio, double *ret_gb_s, double *ret_cpu_s_gb);
extern const char *const bench_depths_flush[2];
/* bench_flash.c: a file for fio, overwritten once, of whole batches. 0, or CLI_ERROR after a message. */
int bench_twin(const char *path, const uint8_t *bytes, uint64_t length);
/* GB/s of iperf3 over loopback, one connection, for a second; 0: there is none, or it did not work. */
double bench_iperf3(struct bench *bench);
/* Whether there is a fio. */
int bench_fio_present(void);
/* GB/s of memcpy by parts of 2 MiB; by so many threads, each for at least `seconds` over a share of its own. */
double bench_memcpy(uint8_t *to, const uint8_t *from, uint64_t bytes);
double bench_memcpy_threads(uint8_t *to, const uint8_t *from, uint64_t bytes, uint32_t threads, double seconds);

#endif
