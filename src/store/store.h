/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the store, shared by the files of this room.
 *
 * Threads: `lock` guards everything below it in struct cairn but what a comment says otherwise; lock order: `lock`,
 * then a
 * tier's own (inside its submit). Payload bytes are copied, hashed, read and written without the lock, by holders of
 * the
 * slot's refs. Each device has one loop thread (where the I/O is threaded; else a waiting call pumps the loops itself).
 * Memory: taken at open; spaces, sessions and decisions allocate, puts and gets do not.
 */
#ifndef CAIRN_STORE_STORE_H
#define CAIRN_STORE_STORE_H

#include <pthread.h>

#include "base/clock.h"
#include "base/list.h"
#include "cairn/cairn.h"
#include "fmt/ident.h"
#include "fmt/key.h"
#include "fmt/manifest.h"
#include "io/io.h"
#include "policy/admit.h"
#include "policy/alarm.h"
#include "policy/evict.h"
#include "policy/rate.h"
#include "policy/watch.h"
#include "store/catalog.h"
#include "tier/flash.h"
#include "tier/memory.h"

enum {
	STORE_DEVICES = 16,
	STORE_REQS = 640,      /* tier requests in flight; one tenant alone may have 512 of them */
	STORE_EVENTS = 65536,
	STORE_MATCHES = 1024,
	STORE_BATCH = 128,     /* items of a batch that are worked on at once */
	STORE_SWEEP = 1024,    /* entries looked at per chore */
	STORE_SPACES = 65535,
	STORE_DECISIONS = 16,
};

/* What media are taken to give before they were measured. */
#define STORE_FLASH_BYTES_S 0.5e9
#define STORE_COPY_BYTES_S 5e9
#define STORE_AVOID_NS 5000000000ull /* how long chains go around a device whose write failed */

/* What a space has and had; under the store's lock. */
struct space_count {
	uint64_t parts, bytes; /* in whatever tier, counted once */
	uint64_t tier_parts[CAIRN_TIERS], tier_bytes[CAIRN_TIERS];
	uint64_t hits[CAIRN_TIERS], hit_bytes[CAIRN_TIERS], misses;
	uint64_t written_parts, written_bytes, evicted_parts, evicted_bytes;
};

struct cairn_space {
	struct cairn *store;
	struct space_count count;
	struct key_space space;   /* all zero where only the id is known (manifests, foreign spaces) */
	uint8_t id[32];
	uint16_t number;
	uint8_t tenant;           /* number */
	uint8_t described;        /* `space` is set */
	uint8_t misses;           /* weights digest unknown: everything misses */
	uint8_t kept;             /* its description is in the ledgers */
	uint8_t manifest;         /* holds a tenant's manifests */
	uint32_t flash_parts;
	uint64_t flash_bytes;     /* live */
	uint8_t internal;         /* of store_probe: neither counted nor told of */
	uint32_t remote_number;   /* the daemon's, of its life remote_life; under the remote's lock */
	uint64_t remote_life;
};

struct tenant_limits {
	uint64_t memory_quota_bytes, memory_reserved_bytes, flash_quota_bytes, flash_reserved_bytes;
	uint32_t share;
};

/* Limits of a tenant that was named, whether it has come or not. */
struct tenant_named {
	char *name;
	uint8_t digest[32];
	struct tenant_limits limits;
};

struct tenant {
	uint8_t digest[32];
	uint64_t leased_bytes;
	struct tenant_limits limits;
	uint64_t flash_bytes;     /* of its segments, dead bytes included */
	uint32_t reqs;            /* tier requests in flight */
	uint64_t dirty_bytes;     /* on their way to flash */
	uint32_t segments[STORE_DEVICES]; /* that it owns, by device */
	struct cairn_tenant_stat stat; /* counters */
};
enum { TENANT_NONE = 255 }; /* in place of a number: nobody's, or of one that has described nothing yet */

/* The owner of a segment: its tenant as the device knows it, and its number. */
struct owner {
	uint8_t digest[16];
	uint8_t tenant; /* number + 1; 0: TENANT_NONE */
};

/* A tier request with what its completion needs. */
struct store_req {
	struct tier_req req;
	struct cairn *store;
	uint32_t slot;            /* whose bytes are read or written */
	uint32_t device;
	uint32_t tenant;          /* number + 1 of whose it is; 0: the store's own */
	int32_t *result;          /* of a waiting call, written under the lock; NULL: nobody waits (any more) */
	struct list link;         /* free list */
};

/* Live bytes of one segment, for its index. */
struct account {
	uint64_t live_bytes, kept_bytes;
	uint64_t use_sum;         /* bytes / 1024 x tick of last use */
	uint32_t live_parts;
};

struct device {
	struct flash *flash;      /* NULL: gone */
	const struct tier_ops *ops;
	struct cairn *store;
	pthread_t thread;
	int running;              /* the loop thread was started */
	int stop;                 /* under lock */
	char path[256];
	uint8_t id[16];
	uint64_t budget_bytes;
	uint32_t pages_per_segment, nsegments;
	struct account *accounts;
	struct owner *owners;     /* by segment */
	uint64_t live_bytes, kept_bytes, live_parts, use_sum, used_segments;
	uint64_t hits, hit_bytes, errors, damaged;
	struct rate reads;        /* of parts, as the store asked for them */
	uint64_t avoid_until_ns;  /* a write failed: chains go elsewhere where they can */
};

struct cairn {
	struct remote *remote;    /* a cairnd has the store: most of what follows is unused then */
	struct peers *peers;      /* NULL: none */
	const struct io_maker *maker;
	const struct clock *clock;
	uint32_t flags;
	char *path;               /* NULL with NO_FLASH */
	int dir_fd, lock_fd;      /* -1: none (simulation) */
	struct fmt_ident ident;
	uint32_t write_version, io_threads, pin_share_percent;
	struct tier_host host;

	pthread_mutex_t lock;
	pthread_cond_t changed;   /* something that a call may wait for */
	struct catalog *catalog;
	struct memory *memory;
	uint32_t part_max;        /* of all tiers */
	struct cairn_space **spaces; /* by number, 1.. */
	uint32_t nspaces, spaces_room;
	struct tenant tenants[MEMORY_TENANTS_MAX];
	uint32_t ntenants;
	struct tenant_named *named;
	uint32_t nnamed;
	struct tenant_limits unnamed; /* of all others */
	struct device devices[STORE_DEVICES];
	uint32_t ndevices;
	uint32_t next_device;     /* round robin for chains that begin */
	uint32_t shut;            /* a bit a device: its reads are stepped over (a breaker is open) */
	uint32_t hung;            /* of them: nor are those under way waited for */
	struct store_req *reqs;
	struct list reqs_free;
	uint32_t reqs_used;
	uint64_t next_birth;
	uint64_t tick;            /* recency clock; the catalog keeps its low 16 bits */
	uint64_t tick_bytes, tick_step;
	struct watch watch;       /* what the index has learned */
	struct watch_cell *watch_cells;
	struct admit_budget write_budget; /* of flash; rate 0: none */
	struct admit admit;       /* which chains are in flash within it */
	uint32_t down_last;       /* down.c: the part that was judged last, with its birth, and what its chain's root is */
	uint32_t down_returned;
	uint64_t down_birth, down_root;
	uint64_t dirty_bytes, dirty_max;
	uint64_t leased_bytes;
	struct rate copies;       /* of parts to readers, and from writers */
	uint32_t sweep_at;        /* cursor of the orphan sweep */
	uint32_t sweep_wanted, sweep_found;
	uint32_t device_away;     /* since open */
	uint64_t births_skip;     /* set by open: a device is away, whose births are not known */
	int32_t sync_error;       /* of a part that was to go to flash since the last sync, and did not stay there */
	struct list sessions;     /* struct saved (session.c) */
	uint32_t nsessions, saving;
	uint32_t kept_known;      /* session_mark_kept has ended: nothing is evicted from flash before */
	uint32_t workers;         /* of each queue */
	struct list matches;      /* struct match_answer */
	uint32_t nmatches;
	struct cairn_event *events;
	uint64_t event_last, life;
	struct hash_cell *hashes; /* events.c */
	uint64_t hash_buckets;
	uint32_t hash_stamp;
	struct cairn_stat stat;   /* counters */
	struct alarm alarm;
	struct cairn_space *probe; /* of store_probe */
	cairn_key probe_key;
	uint64_t lost_bytes;      /* evicted from memory and in no other tier, but not over the write budget */
	uint32_t calls;           /* in progress, for close's check */
	int closing;
	int leaving;              /* leave.c is at work: nothing else goes down meanwhile */
};

/* ---- open.c: life, loops, waiting -------------------------------------------------------------------------------- */

/* cairn_open with another maker of devices (simulation, fsck). */
int store_open(const char *place, const struct cairn_options *options, const struct io_maker *maker, cairn **ret_store);
/* cairn_open for one who is to own the directory: another owner's cairnd is not asked instead. */
int store_open_own(const char *place, const struct cairn_options *options, cairn **ret_store);
/* One that the cairnd at unix:PATH or tcp+plain://HOST:PORT has. */
int store_open_remote(const char *place, const struct io_maker *maker, const struct cairn_options *options,
                      cairn **ret_store);
/* The client of a peer: it connects when it is first asked, and says with each request that the peer is to answer by
 * itself. */
int store_open_peer(const char *place, const struct io_maker *maker, const struct cairn_options *options,
                    cairn **ret_store);
/* 0, or INVAL. ret_path: NULL: no directory is needed; else the directory's path, or "unix:PATH". */
int store_options_check(const char *place, struct cairn_options *options, const char **ret_path);
/* Frees a store whose process is dead: nothing is written (simulation). */
void store_abandon(cairn *store);
/* Lets others make progress and waits for a change; the lock is held before and after. 0, or CAIRN_E_LATE. */
int store_wait(cairn *store, uint64_t deadline_ns);
uint64_t store_deadline(const cairn *store, uint32_t timeout_ms); /* UINT64_MAX: none */
void store_changed(cairn *store);
/* A free tier request; waits for one. NULL: late. */
struct store_req *store_req_take(cairn *store, uint64_t deadline_ns);
void store_req_drop(struct store_req *req);
/* Applies one decision on all devices and waits until it is durable. The lock is held. 0 or an error. */
int store_decide(cairn *store, const struct ledger_record *record);
/* Waits until all that was put before is flushed on all devices. The lock is held. */
int store_sync(cairn *store, uint64_t deadline_ns);
/* Several decisions at once, at most STORE_DECISIONS. */
int store_decide_all(cairn *store, const struct ledger_record *records, size_t n);
int store_has_flash(const cairn *store);

/* ---- entry.c: the catalog's entries and everything that is counted about them ------------------------------------ */

struct cairn_space *store_space_by_id(cairn *store, const uint8_t id[32], int create);
/* A part came or went (events.c). */
void entry_event(cairn *store, const struct catalog_entry *entry, uint32_t kind, uint32_t tier, uint32_t reason);
void entry_tick(cairn *store, uint64_t bytes);
/* Last use of an entry and its ancestors is now; `used`: by a reader, not only because its chain grew. */
void entry_touch(cairn *store, uint32_t entry, int used);
/* Of one whose descendant, or a part of it, was touched in this tick: its ancestors were as well. */
void entry_use_at(cairn *store, struct catalog_entry *e);
/* Counts a use of an entry, and the index learns from it: once for each request, however many calls serve it. */
void entry_count(cairn *store, uint32_t entry);
/* The same of many at once, at a time of watch_now after which watch_minutes was called. */
void entry_count_at(cairn *store, struct catalog_entry *e, uint32_t now);
/* Of a new entry: its first use, on top of what is remembered of it. */
void entry_count_first(cairn *store, uint32_t entry);
/* In flash, on a device that can be read now. */
static inline int entry_readable(const cairn *store, const struct catalog_entry *e)
{
	return (e->flags & CATALOG_FLASH) && !(store->shut >> e->device & 1);
}
void entry_flash_set(cairn *store, uint32_t entry, uint32_t device, uint32_t page);
void entry_flash_clear(cairn *store, uint32_t entry, uint32_t reason);
void entry_flash_move(cairn *store, uint32_t entry, uint32_t page);
/* Opening: another copy takes its place; it stays in the catalog. */
void entry_flash_forget(cairn *store, uint32_t entry);
void entry_set_kept(cairn *store, uint32_t entry, int kept);
/* Detaches the memory slot: freed when its refs are gone. */
void entry_memory_clear(cairn *store, uint32_t entry, uint32_t reason);
/* In no tier any more: out of the catalog, remembered why; the rest of its block too where the part is required. */
void entry_gone(cairn *store, uint32_t entry, uint32_t tier, uint32_t reason);
/* Removes it from all tiers. */
void entry_remove(cairn *store, uint32_t entry, uint32_t reason);
/* Its bytes did not come: it never was. The slot is the caller's. */
void entry_abandon(cairn *store, uint32_t entry);
/* Lets go of one ref of a slot. */
void slot_release(cairn *store, uint32_t slot);
/* Now, as policy/watch.h counts time; memory is told. */
uint32_t watch_now(cairn *store);
/* Room in memory for a part of this tenant, evicting; 0: none now. older_than: evict only what was last used before
 * that time (watch_now); NULL: anything. */
uint32_t slot_take(cairn *store, uint32_t tenant, uint32_t length, const uint32_t *older_than);
/* Whether a match holds it, or another part of its block that would go with it. */
int entry_held(cairn *store, uint32_t entry);
/* A new catalog entry, evicting where the catalog is full; 0: full. */
uint32_t entry_insert(cairn *store, uint32_t space, const uint8_t prefix[16], uint32_t part);
/* Recency of a slot that became READY: behind its parent's where that is in memory, and in the same list. */
void slot_recent(cairn *store, uint32_t slot);
/* Used now: youngest of its list. The list is that of its entry's class, or of what is closed. */
void slot_touch(cairn *store, uint32_t slot);
/* Whether a slot with refs 0 may not be evicted now: memory_policy. */
int slot_held(void *arg, uint32_t slot);
/* Some entries of the sweep that removes chains without a head. Returns whether there is more to do. */
int entry_sweep(cairn *store);
void entry_verify(cairn *store); /* accounts against the catalog (tests, simulation) */
uint64_t entry_full_key(cairn *store, uint32_t entry, uint8_t ret_key[32]); /* from memory; 0: not known */

/* ---- tenant.c: tenants, their limits and what is counted for them ------------------------------------------------ */

int store_tenant(cairn *store, const uint8_t digest[32]); /* number, or BUSY: too many */
/* The limits of an open. 0, INVAL, NOMEM. */
int tenant_limits(cairn *store, const struct cairn_tenant_limits *tenants, uint32_t n);
void tenant_done(cairn *store);
/* Who owns a segment from now on, as the device knows its tenants; NULL: it is free. */
void tenant_own(cairn *store, uint32_t device, uint32_t segment, const uint8_t *digest);
/* Whether the tenant is at its quota on a device: what it writes there needs room of its own. */
int tenant_flash_full(const cairn *store, uint32_t device, uint32_t tenant);
/* Whether a segment of the tenant may be taken for others. */
int tenant_flash_guarded(const cairn *store, uint32_t device, uint32_t tenant);
uint32_t tenant_find(const cairn *store, const uint8_t digest[16]); /* by the first half; TENANT_NONE: none yet */
/* Whether an entry is of a tenant from which nothing may be taken for `tenant`. */
int tenant_entry_guarded(const cairn *store, const struct catalog_entry *e, uint32_t tenant);
/* The status and the line for a part that found no room in memory, and counts it where the quota is why: QUOTA if so
 * and `error` is BUSY, else `error`. */
int32_t tenant_refuse(cairn *store, uint32_t tenant, uint64_t bytes, int32_t error, const char *what);
/* Queues are shared so that a flood of one tenant leaves room for the others: each may have four times what is left, so
 * four fifths alone, and some stays free however many fill it. Whether a tenant may have another request in flight, and
 * so many bytes more on their way to flash. */
int tenant_may_ask(const cairn *store, uint32_t tenant);
int tenant_may_dirty(const cairn *store, uint32_t tenant, uint64_t bytes);
/* store_req_take for a tenant's request. */
struct store_req *tenant_req_take(cairn *store, uint32_t tenant, uint64_t deadline_ns);
/* Whether a part can not be in memory at all within the quota: there is no use in waiting. */
int tenant_never(const cairn *store, uint32_t tenant, uint64_t bytes);

/* ---- events.c ---------------------------------------------------------------------------------------------------- */

int events_open(cairn *store, const struct cairn_options *options); /* 0 or NOMEM */
void events_done(cairn *store);
void events_gone(cairn *store, const struct catalog_entry *entry); /* in no tier any more */
/* Remembers the hashes that items carry. The lock is not held. 0 or INVAL. */
int events_keep_hashes(cairn *store, const struct cairn_space *space, const struct cairn_item *items, size_t n);

/* ---- count.c: what is counted, per tier and space ---------------------------------------------------------------- */

/* A part came to a tier, or left it; its entry says where else it is. */
void count_presence(cairn *store, const struct catalog_entry *entry, uint32_t kind, uint32_t tier, uint32_t reason);
void count_hit(cairn *store, const struct cairn_space *space, uint32_t tier, uint64_t bytes);
void count_written(cairn *store, const struct cairn_space *space, uint64_t bytes);
void count_miss(cairn *store, const struct cairn_space *space, const cairn_key *key, uint32_t part);
void count_lookup(cairn *store, uint64_t tokens, const struct cairn_match_info *info);
void count_verify(cairn *store);
/* The alarms that stand now; looked at every second or so, they come and go in time. */
uint32_t store_alarms(cairn *store);
/* How long it must have been so; 0: the default. Any thread. */
void store_alarm_minutes(cairn *store, uint32_t minutes);

/* ---- probe.c ----------------------------------------------------------------------------------------------------- */

/* A put and a get of a part that nobody sees. 0, DAMAGED, or an error: BUSY, FULL and QUOTA say that there is much to
 * do. One at a time. */
int store_probe(cairn *store, uint32_t timeout_ms);
/* Whether the devices answer, by a flush of what is there. 0, LATE, IO. */
int store_probe_flash(cairn *store, uint32_t timeout_ms);

/* What waits now. */
struct store_load {
	uint32_t requests, requests_max; /* of the devices */
	uint64_t dirty_bytes, dirty_max_bytes; /* on their way to flash */
	uint64_t events; /* the last one's sequence */
};
void store_load(cairn *store, struct store_load *ret_load);

/* ---- host.c ------------------------------------------------------------------------------------------------------ */
extern const struct tier_host store_host;
extern const struct flash_checkpoint store_checkpoint;

/* ---- get.c, put.c: the blocking forms under the public ones ------------------------------------------------------ */
/* Where the bytes of a put come from, when they do not lie in its items' buffers yet. */
struct store_source {
	void *arg;
	/* Without the lock: writes an item's bytes to `to` (NULL: they are only looked at) and says their checksum. 0, or
	 * the item's status: they did not come, or not as they were sent. */
	int (*take)(void *arg, const struct cairn_item *item, uint8_t *to, uint64_t *ret_check);
};
struct store_call {
	uint64_t deadline_ns;
	uint32_t durability;
	uint32_t background;
	uint32_t manifest; /* the items are manifests */
	uint32_t here;     /* get: no peer is asked, nor fetched from */
	uint32_t asked;    /* peers were asked already */
	uint32_t device_hint; /* device + 1 to write to where it works; 0: as the chain says */
	const struct store_source *source; /* NULL: the items' buffers */
};
/* A copy of a part that is large enough to tell something. */
void store_copied(cairn *store, uint64_t bytes, uint64_t took_ns, uint64_t now_ns);
int store_call_of(cairn *store, const struct cairn_call *call, struct store_call *ret_call);
long store_put(cairn *store, const struct cairn_space *space, struct cairn_item *items, size_t n,
               const struct store_call *call);
/* cairn_put of items whose bytes come from `source`; their buffers say how many. */
long store_put_from(cairn *store, const struct cairn_space *space, struct cairn_item *items, size_t n,
                    const struct cairn_call *call, const struct store_source *source);
/* Starts the read of a part that is in flash alone, in the background, if there is room without evicting what was used
 * since `since` (watch_now). 0: not now. */
int read_ahead(cairn *store, const struct cairn_space *space, uint32_t entry, const cairn_key *key, uint32_t since);
/* Begins to read what is in flash alone, or with peers, of items that are about to be leased one by one, and what an
 * open match says will be asked for next. Waits for peers' answers alone; the call says then that they were asked. */
void store_begin(cairn *store, const struct cairn_space *space, const struct cairn_item *items, size_t n,
                 struct store_call *call);
/* cairn_get in a store of our own. */
long store_get(cairn *store, const struct cairn_space *space, struct cairn_item *items, size_t n,
               const struct store_call *call);
/* cairn_lease_take there, for a reader that has no room for more than so many bytes: SIZE then, and nothing is
 * counted. */
int store_lease_take(cairn *store, const struct cairn_space *space, struct cairn_item *item,
                     const struct store_call *call, uint64_t room, cairn_lease **ret_lease);
/* Brings the parts of a chain into memory without waiting. */
void store_prefetch(cairn *store, const struct cairn_space *space, const cairn_key *keys, size_t nkeys);
/* Makes parts that are in memory or flash durable on flash. The lock is held. Per key: 0, MISS or an error in
 * results. */
int store_make_durable(cairn *store, const struct cairn_space *space, const cairn_key *keys, size_t nkeys,
                       uint64_t deadline_ns, size_t *ret_missing);
/* Runs over the bytes of an item's buffers. */
int buffers_check(const struct cairn_item *item, uint64_t *ret_bytes);
void buffers_use(const struct cairn_item *items, size_t n, int delta); /* counts a call on their regions */
void buffers_fence(const struct cairn_item *item);
void buffers_zero(const struct cairn_item *item);
/* Copies a part into the item's buffers and checks the copy, unless the caller does; sets ret_check. 1: good; 0: it is
 * not what `check` says, and the buffers are zeroed. */
int buffers_deliver(struct cairn_item *item, const uint8_t *from, uint64_t bytes, uint64_t check);
void *buffer_address(const struct cairn_buf *buf);

/* Queues the write of a READY slot that is not dirty. `result` is written when it is done, while the caller waits for
 * it (NULL: nobody does). May wait for a request, without the lock. 0 or an error. */
int write_start(cairn *store, const struct cairn_space *space, uint32_t entry, const uint8_t key[32], uint32_t group,
                const struct store_call *call, int32_t *result);

/* ---- down.c ------------------------------------------------------------------------------------------------------ */
int down_budgeted(const cairn *store); /* parts go to flash when they leave memory, and not when they are put */
enum { DOWN_LIST = 128 };
/* The parts of a chain, its head first and `entry` last, that are in memory alone; no more than the first DOWN_LIST.
 * Returns their number. */
uint32_t down_list(cairn *store, uint32_t entry, uint32_t ret_list[DOWN_LIST]);
/* Writes one of them. 0, or BUSY: too many requests in flight. */
int down_part(cairn *store, uint32_t entry, const struct store_call *call);
/* Writes a part and all before it in its chain that are in memory alone. 0, or BUSY. */
int down_chain(cairn *store, uint32_t entry, const struct store_call *call);
/* Judges what a tenant's memory gives up next, and writes what is in. now: also where memory is not full yet. */
void down_ahead(cairn *store, uint32_t tenant, int now);

/* ---- session.c --------------------------------------------------------------------------------------------------- */
int session_load(cairn *store, const struct ledger_record *record); /* at open, and after each save */
/* Forgets the sessions of a tenant, or of a space (the other is NULL). */
int session_forget_all(cairn *store, const uint8_t *tenant, const uint8_t *space);
void session_done(cairn *store);
void session_expire(cairn *store); /* lets time-to-lives end */
void session_mark_kept(cairn *store); /* after recovery */

/* ---- match.c ----------------------------------------------------------------------------------------------------- */
void match_expire(cairn *store);

/* ---- match_ahead.c ----------------------------------------------------------------------------------------------- */
/* A part was asked for that lies in flash: reads on along the run of an open match that covers it. */
void match_read_on(cairn *store, const struct cairn_space *space, uint32_t entry);
struct peer_name;
/* The same of a part that a peer has. */
void match_fetch_on(cairn *store, const struct peer_name *name);

struct cairn_region {
	uint8_t *address;
	uint64_t length;
	int (*fence)(void *arg);
	void *fence_arg;
	uint32_t uses;
	int mapped;
};

#endif
