/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn-sim: one run of the store in a simulated world, beside a model of what it must, may and must not serve.
 *
 * A seed decides everything: shape of the store, faults, operations. Each operation is one call of the public API
 * between run_begin and run_end; run_end reads the store's events into the model, and then the operation's results are
 * judged by it.
 * Threads: one. Memory: malloc; a failure ends the program.
 * Invariant: the model follows the event log, so it knows at any moment which parts the store has.
 */
#ifndef CAIRN_TESTS_SIM_RUN_H
#define CAIRN_TESTS_SIM_RUN_H

#include <stdint.h>

#include "base/random.h"
#include "cairn/cairn.h"
#include "io/sim.h"

enum {
	BLOCKS = 800,
	PARTS = 3,
	SPACES = 5,
	SESSIONS = 10,
	LEASES = 6,
	MATCHES = 3,
	DEVICES = 3,
	TENANTS = 3,         /* that a run may have; the last has the limits of all that are not named */
	PATH = 20,           /* blocks of a chain */
	BATCH = 24,          /* items of a batch */
	PART_BYTES = 512 << 10,
	VERSIONS = 60,       /* of one part */
	BLOCK_TOKENS = 16,
};

/* ---- model.c: what the store must, may and must not serve ------------------------------------------------------- */

struct part {
	uint64_t seed;
	uint32_t length;
	uint64_t allowed;      /* versions that may be served: put since the last acknowledged drop */
	int32_t next;          /* version of the next put */
	int32_t current;       /* version in the store; -1: not known which of `allowed` */
	uint8_t memory, flash; /* in that tier, by the events */
	uint8_t must;          /* acknowledged as durable, and nothing has happened since that may lose it */
	int32_t must_version;  /* -1: any of `allowed` */
	uint32_t stored_op, removed_op;
	uint8_t removed_reason;
};

struct block {
	cairn_key key;         /* its first four bytes are its number */
	uint8_t space, tail, nparts;
	uint8_t closed;        /* put with an unknown parent, or closed by a hint: may stay out of flash */
	int32_t parent;        /* -1: a chain begins */
	struct part parts[PARTS];
};

struct space {
	cairn_space *handle;   /* of the open store */
	cairn_digest id;
	uint8_t tenant, nparts, optional; /* optional: its last part */
	uint32_t block_bytes;  /* 0: not fixed */
};

/* A saved session, as it is or may be. */
struct saved {
	uint64_t tokens, state_seed;
	uint64_t expires_low_s, expires_high_s; /* 0: never; the store took the time within the call */
	uint64_t expires_ns;   /* the same on the clock that is never set back, at the earliest */
	uint32_t state_bytes, nchain;
	int32_t chain[PATH], tail; /* blocks; tail -1: none */
	uint8_t space, pinned, durable;
	uint8_t expired;       /* its time was over once; the clock may have been set back since */
	uint32_t dropped;      /* mask of the chain's blocks that were dropped since: they are kept no more */
};

enum { MAYBE = 4 };
struct session {
	uint8_t tenant;
	uint8_t may_none;      /* there may be none */
	uint8_t may_lost;      /* its manifest may be gone */
	uint32_t n;            /* it is one of these; 0: there is none */
	struct saved may[MAYBE];
};

struct lease {
	cairn_lease *lease;
	uint32_t block, part;
	int32_t version;
};

struct match {
	cairn_match *match;
	uint64_t deadline_ns;
	uint32_t nblocks, dropped; /* dropped: mask of them */
	int32_t blocks[PATH];
	uint8_t parts[PATH];      /* mask: were there when it was taken */
};

/* Limits of a tenant, in percent of what there is; 0: none. */
struct limits {
	uint32_t memory_quota, memory_reserved, flash_quota, flash_reserved, share;
};

/* What a tenant had before a call, and what the call's events say. */
struct had {
	uint64_t memory_bytes, extents, flash_bytes;
	uint32_t lost[2];   /* a block that was evicted from memory, from flash, + 1 */
	uint8_t stored[2];  /* something of it came into memory, into flash */
	uint8_t dirty;      /* something is in memory alone: it is on its way to flash, perhaps */
};

/* ---- the run ----------------------------------------------------------------------------------------------------- */

struct config {
	uint32_t ndevices;
	uint64_t budget_bytes[DEVICES];
	uint64_t memory_bytes, catalog_bytes, free_floor_bytes;
	uint64_t write_bytes_day; /* to flash; 0: no limit */
	uint32_t nspaces, ntenants, commit_ms;
	uint32_t part_bytes;    /* ordinary parts have at most so many */
	uint32_t crashes;       /* percent of the life operations that are crashes */
	int faults;             /* I/O errors that pass */
	int full;               /* the file system gets full */
	int damage;             /* of one copy of something, which must lose nothing */
	int chaos;              /* damage anywhere: only wrong bytes and drops are judged */
	int away;               /* devices go and come back */
	int limited;            /* tenants have limits */
	struct sim_faults errors;
};

struct tally {
	uint64_t steps, puts, durable, gets, hits, matches, leases, drops, saves, resumes, opens, crashes, evicted, carried,
	    musts, damages, aways;
};

struct run {
	uint64_t seed;
	uint32_t step, op;      /* op counts calls */
	int verbose, trace;
	struct random random;
	struct sim_world *world;
	struct io_maker maker;
	struct config config;
	char paths[DEVICES][64];
	cairn *store;
	uint64_t event_last;
	uint64_t op_ns, op_wall_s; /* when the call began */
	int shut;                 /* during the call a device was stepped over, as the store says */
	struct sim_stats before;
	uint64_t deaths;        /* crashes and kills so far */
	int dead;               /* the store's process is */
	int readonly, gone;     /* the store is open so; devices that are missing */
	int armed;              /* a fault or a death to come is not disarmed by a close */
	int opening;
	int unsynced;           /* something failed since the last sync, which may say so */
	int doubted;            /* once all devices that were there had missed decisions */
	int shaky;              /* damage was done, or reads failed while opening: what is missing may be */
	int unsettled;          /* opening met failures: what is kept may not be marked */
	uint64_t free_bytes;    /* of the file system when it was set last */
	int unseen;             /* evictions of a close that nobody could see */
	uint64_t trouble_ns;    /* until then failures are excused */
	uint64_t put_bytes;     /* all that was ever put, rounded up: is there enough room? */
	uint64_t shrunk;        /* a budget was made smaller */
	uint32_t decisions;     /* drops, sessions: the ledger is small */
	uint32_t missed;        /* devices that were away while something was dropped or forgotten */
	struct space spaces[SPACES];
	struct block *blocks;
	uint32_t nblocks;
	struct session sessions[SESSIONS];
	struct lease leases[LEASES];
	struct match matches[MATCHES];
	struct {
		uint8_t *bytes;     /* of a device that is away; NULL: it is there */
		uint64_t length;
	} away[DEVICES];
	struct limits limits[TENANTS];
	struct had had[TENANTS];
	struct {
		uint64_t memory_bytes; /* it had when its limits were looked at last */
		uint32_t segments[DEVICES];
	} over[TENANTS];
	int acting;             /* the tenant that the call is of; -1: of none, or of several */
	int unfair;             /* a put has to succeed, or somebody is starved */
	uint8_t *arena;         /* BATCH parts */
	struct tally *tally;
};

#define ARENA_PART (PART_BYTES + 4096u)

_Noreturn void run_fail(struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
void run_note(struct run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline uint32_t pick(struct run *run, uint32_t bound) { return (uint32_t)random_below(&run->random, bound); }
static inline int percent(struct run *run, uint32_t chance) { return random_below(&run->random, 100) < chance; }
static inline uint64_t run_now(const struct run *run) { return clock_mono_ns(sim_clock(run->world)); }
static inline uint64_t run_wall(const struct run *run) { return clock_wall_s(sim_clock(run->world)); }
struct run *run_start(uint64_t seed, int verbose, int trace, struct tally *tally); /* one at a time */
void run_finish(struct run *run);                 /* looks at everything once more, then closes */
void run_begin(struct run *run);                  /* before a call */
void run_end(struct run *run, const char *what);  /* after it */
int run_troubled(const struct run *run);          /* failures are excused */
int run_roomy(const struct run *run);             /* there is far more room than was ever put */

/* model.c */
uint32_t part_length(const struct run *run, const struct block *block, const struct part *part, int32_t version);
void part_fill(const struct part *part, int32_t version, uint8_t *to, size_t length);
/* The version whose bytes these are, of those that may be served; -1: of none. */
int32_t part_version(const struct run *run, const struct block *block, const struct part *part, const uint8_t *bytes,
                     uint64_t length);
static inline int part_there(const struct part *part) { return part->memory || part->flash; }
struct block *block_new(struct run *run, uint32_t space, int32_t parent, int tail);
int block_there(const struct run *run, const struct block *block); /* as a match for all parts sees it */
uint32_t block_path(struct run *run, int32_t last, int32_t path[PATH]); /* its chain, head first */
void model_events(struct run *run);
void model_opened(struct run *run);
void model_doubt(struct run *run); /* what is in flash need not be there any more; sessions neither */
void sessions_doubt(struct run *run);
/* A served part: the bytes must be right. */
void model_served(struct run *run, struct block *block, uint32_t part, const uint8_t *bytes, uint64_t length,
                  const char *what);
void model_drop(struct run *run, struct block *block, int certain);
void model_must(struct run *run, struct part *part); /* it was acknowledged as durable */
void model_durable_all(struct run *run); /* whatever is in flash is durable now */
uint64_t pattern_mix(uint64_t a, uint64_t b);
void pattern_fill(uint64_t seed, uint8_t *to, size_t length);
int pattern_same(uint64_t seed, const uint8_t *bytes, size_t length);
static inline uint32_t block_number(const struct run *run, const struct block *block)
{
	return (uint32_t)(block - run->blocks);
}

/* ops.c */
void op_put(struct run *run);
void op_put_items(struct run *run, const int32_t *blocks, uint32_t nblocks, uint32_t durability, uint32_t timeout_ms);
void op_get(struct run *run);
void op_get_block(struct run *run, uint32_t number); /* which was put just now */
void op_get_all(struct run *run); /* everything there is, once */
void op_lease(struct run *run);
void op_match(struct run *run);
void op_hint(struct run *run);
void op_drop(struct run *run);
void op_drop_wide(struct run *run);
void op_sync(struct run *run);
void op_explain(struct run *run);
void lease_end(struct run *run, struct lease *lease);
void match_end(struct run *run, struct match *match);

/* limits.c */
void limits_start(struct run *run);
uint32_t limits_of(const struct run *run, struct cairn_tenant_limits ret[TENANTS]);
void limits_begin(struct run *run);
void limits_event(struct run *run, const struct block *block, const struct cairn_event *e);
void limits_end(struct run *run);
void limits_changed(struct run *run);
int limits_excuse(const struct run *run, uint32_t space, int memory);
void op_limits(struct run *run);

/* sessions.c */
int session_kept(const struct run *run, uint32_t tenant); /* a session of the tenant is kept, or may be */
void op_save(struct run *run);
void op_resume(struct run *run);
void op_forget(struct run *run);
void op_pin(struct run *run);
void op_session_list(struct run *run);
void session_resume_check(struct run *run, uint32_t index);
void sessions_tick(struct run *run);             /* time has passed */
void sessions_died(struct run *run);             /* the process ended without a close */
void sessions_dropped(struct run *run, int tenant, int space, int certain);
int session_keeps(const struct run *run, const struct block *block); /* a kept session has it */
void session_block_dropped(struct run *run, int32_t number);

/* life.c */
void life_start(struct run *run);
void life_open(struct run *run, uint32_t flags);
void life_end(struct run *run, int crash);       /* closes, or abandons what died */
void op_life(struct run *run);
void op_space(struct run *run);
void op_time(struct run *run);
void op_damage(struct run *run);
void op_heal(struct run *run);
void life_faults(struct run *run, int on);
void life_limits(struct run *run);
void life_done(struct run *run);

/* every.c */
int every_io(int verbose);
int every_crash(int verbose);

#endif
