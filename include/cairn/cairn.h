/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn: keeps the KV cache of LLM inference after it has left GPU memory, and brings it back.
 *
 * This header is the whole public API and its manual. Read these caveats first.
 *
 *  - One process owns a directory. A second open of the same directory fails with CAIRN_E_OWNED.
 *  - A miss is a result, not an error: each item of a batch carries its own status, and one bad item does not hide
 *    the others. Statuses above 0 are results (CAIRN_MISS ...), 0 is success, below 0 are errors (CAIRN_E_...).
 *  - Bytes that do not pass their checksum are never delivered: the item is a miss (CAIRN_DAMAGED), the destination is
 *    filled with zeros, and the part is quarantined.
 *  - Blocks are immutable. A second put of a key keeps the first bytes.
 *  - Outputs named ret_x are written on success only, unless said otherwise.
 *  - Every struct that may grow starts with `size`: set it to sizeof the struct, zero the rest ("= {0}").
 *
 * Threads: all functions on one `cairn *` may be called from any thread at once, except cairn_close, which must be the
 * last. Objects that a call returns (derive, match, lease, session, queue) belong to one thread at a time.
 * Fork: an open store must not be used in a child process.
 * Units: bytes, tokens, milliseconds (_ms), seconds (_s); wall-clock times are seconds since 1970 (UTC).
 * Errors: the functions return 0, a count or a pointer; failure is one of CAIRN_E_..., each equal to -errno of the name
 * in its comment. cairn_error_text() says in one line what failed and what to do about it.
 */
#ifndef CAIRN_CAIRN_H
#define CAIRN_CAIRN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CAIRN_VERSION "0.1.0"
#define CAIRN_API __attribute__((visibility("default")))

/* ---- results and errors ----------------------------------------------------------------------------------------- */

enum {
	CAIRN_OK = 0,
	CAIRN_MISS = 1,    /* not in any tier */
	CAIRN_DAMAGED = 2, /* was there, failed its check, is quarantined: a miss */
	CAIRN_EXISTED = 3, /* put: the key was there already with the durability asked for; a success */

	CAIRN_E_INVAL = -22,     /* EINVAL: an argument is wrong: a defect of the caller */
	CAIRN_E_NOMEM = -12,     /* ENOMEM: out of memory; nothing was changed */
	CAIRN_E_BUSY = -16,      /* EBUSY: a limit (queue, leases, memory in use) is reached; try again later */
	CAIRN_E_LATE = -62,      /* ETIME: the deadline passed; the destination was not touched */
	CAIRN_E_CANCELED = -125, /* ECANCELED: cairn_cancel came before the work */
	CAIRN_E_FULL = -28,      /* ENOSPC: no room, and nothing may be evicted; free space or raise the budget */
	CAIRN_E_IO = -5,    /* EIO: the device failed; what was acknowledged before is still served where it can be read */
	CAIRN_E_SIZE = -90, /* EMSGSIZE: bytes do not fit what the space declares, the buffer, or the limits of a part */
	CAIRN_E_CONFLICT = -17,  /* EEXIST: the key exists with another length; the first is kept */
	CAIRN_E_NOENT = -2,      /* ENOENT: no such path, session or name */
	CAIRN_E_ACCESS = -13,    /* EACCES: the operating system forbids it, or the cairnd does: a token, a tenant */
	CAIRN_E_RDONLY = -30,    /* EROFS: the store is open read-only or its medium is */
	CAIRN_E_OWNED = -98,     /* EADDRINUSE: another process owns the directory; the text names it */
	CAIRN_E_NOTSTORE = -124, /* EMEDIUMTYPE: not a cairn directory, and not empty */
	CAIRN_E_VERSION = -93,   /* EPROTONOSUPPORT: written by a newer cairn; upgrade */
	CAIRN_E_CORRUPT = -117,  /* EUCLEAN: the store's identity is damaged; run `cairn fsck` */
	CAIRN_E_QUOTA = -122,    /* EDQUOT: the tenant's quota (memory, flash, pins) is used up */
	CAIRN_E_UNKNOWN = -61,   /* ENODATA: the weights digest of the space is unknown: everything misses */
};

/* The name of a status: "miss", "busy", ... Never NULL; static. Any thread. */
CAIRN_API const char *cairn_status_name(int status);
/* What a status means, in a few words. Never NULL; static. Any thread. */
CAIRN_API const char *cairn_status_text(int status);
/* One line on the last call that failed in this thread: what was wrong, where, what to do. Owned by the library, valid
 * until the next failing call of this thread. */
CAIRN_API const char *cairn_error_text(void);
/* The library's version, "0.1.0". */
CAIRN_API const char *cairn_version(void);

/* ---- open and close --------------------------------------------------------------------------------------------- */

typedef struct cairn cairn; /* an open store */

enum {
	CAIRN_TIER_NONE = 0,
	CAIRN_TIER_MEMORY = 1,
	CAIRN_TIER_FLASH = 2,
	CAIRN_TIER_OBJECT = 3,
	CAIRN_TIER_PEER = 4,
	CAIRN_TIERS = 5,
};

enum cairn_durability {
	CAIRN_DURABLE_DEFAULT = 0, /* put: none; session save: flash */
	CAIRN_DURABLE_NONE = 1,    /* visible now, on flash soon (see flash_write_bytes_day), promised nothing */
	CAIRN_DURABLE_FLASH = 2,   /* flushed to flash: survives kill -9 and power loss */
	CAIRN_DURABLE_OBJECT = 3,  /* in the object tier (CAIRN_E_INVAL where the store has none) */
};

struct cairn_flash {
	const char *path; /* a file, or a directory in which "flash.cairn" is made; NULL: inside the store's directory */
	uint64_t budget_bytes; /* most bytes on that path; 0: half of what the file system has free when it is made */
};

/* What one tenant may have of the store, and what others may not take from it. Sizes of 0: no quota, nothing reserved.
 * A quota holds always: over it the tenant's own parts go, never another's; in flash what has to be carried over while
 * a segment is freed may take one segment more of a device. What is reserved is not evicted for others:
 * memory in whole extents (a quarter of memory_bytes, at most 1 GiB), flash in whole segments, the dead bytes in a
 * tenant's segments being its own. What nobody has reserved goes by worth, as without limits. */
struct cairn_tenant_limits {
	const char *tenant; /* NULL: each one that has no entry of its own */
	uint64_t memory_quota_bytes, memory_reserved_bytes;
	uint64_t flash_quota_bytes, flash_reserved_bytes; /* a quota of flash is at least two segments a device */
	uint32_t share; /* weight in each device's bandwidth while others want it too; 0: 100, at most 10,000 */
};
#define CAIRN_TENANTS_MAX 64 /* of one store, at a time */

enum {
	CAIRN_OPEN_CREATE = 1u << 0,   /* make the store when the directory is missing or empty */
	CAIRN_OPEN_READONLY = 1u << 1, /* write nothing, not even recovery's repairs */
	CAIRN_OPEN_NO_FLASH = 1u << 2, /* memory tier only; nothing survives; no directory is needed */
	CAIRN_OPEN_SHARED = 1u << 3,   /* other processes shall have it as well: a cairnd serves it. Where none does, one is
	                                * started with these options, and ends with the last of its clients; where it is
	                                * killed, the next call starts another */
};

enum cairn_io {
	CAIRN_IO_BEST = 0,    /* io_uring, or threads where it is refused, as in a default container; cairn_stat tells */
	CAIRN_IO_THREADS = 1,
	CAIRN_IO_URING = 2,   /* where it is refused the open fails with ACCESS */
};

struct cairn_options {
	size_t size;
	uint32_t flags;               /* CAIRN_OPEN_... */
	uint32_t write_version;       /* newest format to write; 0: this library's. Older ones are read for ever */
	uint64_t memory_bytes;        /* memory tier; 0: 256 MiB. Never exceeded, touched at open; half can be leased */
	uint64_t catalog_bytes;       /* the flash catalog, 64 bytes a part; 0: enough for 64 KiB parts, 16 MiB..1 GiB */
	const struct cairn_flash *flash; /* devices; NULL: those of the last open, or one in the directory */
	uint32_t nflash;              /* at most 16 */
	uint64_t free_floor_bytes;    /* bytes the file system keeps free; 0: 5 % of it, at most 10 GiB */
	uint64_t segment_bytes;       /* a power of two, 1 MiB..1 GiB, fixed when a device is made; 0: fits the budget */
	uint32_t io_threads;          /* per device; 0: 8. With io_uring they only check what was read: at most 4 */
	uint32_t workers;             /* for asynchronous batches; 0: 2 */
	uint32_t pin_share_percent;   /* most of flash that pins and saved-with-time-to-live may hold; 0: 50 */
	uint32_t io_engine;           /* enum cairn_io */
	/* Write budget of all flash devices, bytes a day; 0: no limit. With one, parts put with durability none go to flash
	 * when they leave memory, by whole chains and as far as the budget lasts (docs/POLICY.md); durable puts and saved
	 * sessions always go. */
	uint64_t flash_write_bytes_day;
	const struct cairn_tenant_limits *tenants; /* NULL: no limits; cairn_limits changes them */
	uint32_t ntenants;            /* at most 64 */
	/* Other cairnds whose memory and flash are asked for what is not here: places as cairn_open takes them, each
	 * perhaps with a space and the file of its token (an admin's) behind it; at most 16.
	 * An accelerator only: one that is slow or gone is stepped over. A peer is trusted (docs/SERVE.md). */
	const char *const *peers;
	uint32_t npeers;
	uint32_t peer_wait_ms;        /* most that a call waits for all of their answers; 0: 20 */
	/* The token for a cairnd on another server (tcp://): a file that nobody else can read, of one line. NULL: that of
	 * the variable CAIRN_TOKEN_FILE, else $XDG_CONFIG_HOME/cairn/token (~/.config/cairn/token) if it is there. */
	const char *token_file;
	/* Memory for the engine's hashes that events carry: 56 bytes a block, taken at open; 0: none is remembered. When it
	 * is full the oldest are forgotten; after an open they are unknown until a block is put again. */
	uint64_t event_hashes_bytes;
};

/* Opens the store at `place`: "dir:PATH" or a plain path; or that of a cairnd (docs/SERVE.md): "unix:PATH", its socket
 * on this server, or "tcp://HOST:PORT", over a network, with TLS and a token ("tcp+plain://HOST:PORT": without both).
 * Where a cairnd owns the directory it is asked instead; options are its own then. `options` may be NULL.
 * With a token all that is done is done for its tenant: tenants that are left NULL mean that one.
 * Device paths, their budgets and the free floor are remembered by the store; left 0 they stay what they were. The rest
 * (memory, catalog, threads) is of this open alone.
 * Takes milliseconds, and the time to touch memory_bytes: payloads are not read, except in groups that were never
 * known to
 * be flushed. For a directory without a store (CREATE) the devices are made.
 * ret_store: owned by the caller; cairn_close ends it.
 * Errors: NOENT (missing, and no CREATE), NOTSTORE, OWNED, VERSION, CORRUPT (identity file), ACCESS, RDONLY, FULL, IO,
 * NOMEM, INVAL. Damage anywhere else does not fail the open: what is lost is counted in cairn_stat. */
CAIRN_API int cairn_open(const char *place, const struct cairn_options *options, cairn **ret_store);
/* Flushes, writes a checkpoint and releases everything. All leases, matches, queues and sessions must be gone before.
 * Returns 0, or the first error met (the store is closed all the same; what was acknowledged as durable is). */
CAIRN_API int cairn_close(cairn *store);
/* Limits from now on, in place of all that were given before. What a tenant has in memory over a new quota is evicted
 * before the call returns; in flash, as it writes. Errors: INVAL (twice the same tenant, a reserve over its quota,
 * reserves that together are more than the tier has); over a cairnd: ACCESS (they are its configuration). */
CAIRN_API int cairn_limits(cairn *store, const struct cairn_tenant_limits *tenants, size_t ntenants);
/* Flushes what was put with durability none; with a write budget, what of it has gone down to flash so far. Errors: IO,
 * FULL, RDONLY. */
CAIRN_API int cairn_sync(cairn *store);

/* ---- spaces: everything that decides what the bytes of a block mean and who may read them ------------------------ */

typedef struct cairn_space cairn_space;

typedef struct cairn_key {
	uint8_t bytes[32];
} cairn_key;

typedef struct cairn_digest {
	uint8_t bytes[32]; /* SHA-256 */
} cairn_digest;

enum cairn_rule {
	CAIRN_RULE_ALL = 0,      /* every block of the prefix is needed */
	CAIRN_RULE_TRAILING = 1, /* only blocks that hold the last `trailing_tokens` tokens (sliding window) */
	CAIRN_RULE_SNAPSHOT = 2, /* only the block that ends exactly at the prefix (recurrent state) */
};

struct cairn_group {
	const char *name;         /* NULL: "kv" */
	uint32_t block_tokens;    /* tokens a block of this group; > 0 */
	uint32_t rule;            /* enum cairn_rule */
	uint32_t trailing_tokens; /* rule TRAILING only */
	uint64_t block_bytes;     /* exact bytes of each part of a full block; 0: not fixed. Part of the identity */
};

struct cairn_part {
	const char *name;    /* "rank0", "indexer", "draft" ... */
	uint32_t replicated; /* 1: all ranks hold the same bytes, stored once */
	uint32_t optional;   /* 1: its loss does not evict the rest of the block */
};

struct cairn_field {
	const char *name; /* a field this version does not know; hashed as it is, sorted by name */
	const void *value;
	size_t length;
};

struct cairn_space_desc {
	size_t size;
	const char *tenant;           /* NULL: "default"; "public": shared prompts */
	const char *scheme;           /* NULL: "tokens/1"; see docs/KEY.md */
	const char *model;            /* a label people know; part of the identity */
	const cairn_digest *weights;  /* NULL: unknown, and then everything misses and puts fail with UNKNOWN */
	const cairn_digest *adapter;  /* NULL: none */
	const char *adapter_scale;    /* decimal text ("0.5"); NULL: none. With `adapter` only */
	const char *kv_dtype;         /* "f16", "bf16", "fp8_e4m3", "q8_0" ... */
	const char *quant;            /* quantisation of the KV beyond its dtype; NULL: none */
	uint32_t layers;              /* 0: not said */
	uint32_t kv_heads;
	uint32_t head_size;
	const char *layout;           /* order of the axes and whatever else shapes the bytes; NULL: not said */
	const char *rope;             /* rope settings; NULL: not said */
	const char *isa;              /* CPU instruction set where it shapes the bytes; NULL: it does not */
	const uint8_t *generation;    /* 16 random bytes per in-place reload of weights; NULL: none */
	const struct cairn_group *groups; /* NULL: one group "kv" with `block_tokens` */
	uint32_t ngroups;             /* at most 16 */
	uint32_t block_tokens;        /* with groups NULL */
	uint64_t block_bytes;         /* with groups NULL */
	const struct cairn_part *parts; /* NULL: one part */
	uint32_t nparts;              /* at most 64 */
	const struct cairn_field *fields; /* more fields of the identity */
	uint32_t nfields;             /* at most 64 */
	/* Not part of the identity: recompute cost of n tokens = cost_a_s * n + cost_b_s * n * n seconds; 0, 0: not
	 * said. */
	double cost_a_s;
	double cost_b_s;
};

/* Computes the identity of a description without a store. Errors: INVAL (the text names the field). Any thread. */
CAIRN_API int cairn_space_id(const struct cairn_space_desc *desc, cairn_digest *ret_id);
/* Describes a space to the store. The description is copied. Errors: INVAL (the text names the field), NOMEM, FULL.
 * ret_space lives until cairn_close; describing the same again returns the same pointer. */
CAIRN_API int cairn_describe(cairn *store, const struct cairn_space_desc *desc, cairn_space **ret_space);
CAIRN_API void cairn_space_get_id(const cairn_space *space, cairn_digest *ret_id);
/* Writes the description of a space as text, one "field = value" a line, at most `max` bytes with the final 0.
 * Returns the length it needs without the 0. Any thread. */
CAIRN_API size_t cairn_space_text(const cairn_space *space, char *text, size_t max);
/* The same for a description without a store. Errors: INVAL. */
CAIRN_API int cairn_space_desc_text(const struct cairn_space_desc *desc, char *text, size_t max, size_t *ret_length);

/* SHA-256 over the sorted list of (file name, size, SHA-256 of the whole file): the weights digest of docs/KEY.md.
 * Reads the files once; progress, if given, is called with bytes done and in all, and stops the work by returning
 * non-zero (CANCELED). Errors: NOENT, ACCESS, IO, INVAL. Any thread. */
CAIRN_API int cairn_weights_digest(const char *const *files, size_t nfiles,
                                   int (*progress)(void *arg, uint64_t done, uint64_t all), void *arg,
                                   cairn_digest *ret_digest);

/* ---- keys: derived incrementally, block after block -------------------------------------------------------------- */

typedef struct cairn_derive cairn_derive;

struct cairn_extra {
	uint64_t token;    /* index, in the whole prompt, of the token at which it begins */
	const void *bytes; /* cache salt, digest of an image or prompt embedding, ...: hashed whole, never squeezed */
	uint32_t length;   /* 0 is an empty one, which is not the same as none */
};

/* Starts the chain of `group` of `space`. ret_derive is the caller's; cairn_derive_free ends it. Errors: NOMEM,
 * INVAL. */
CAIRN_API int cairn_derive_start(const cairn_space *space, uint32_t group, cairn_derive **ret_derive);
/* The same without a store. */
CAIRN_API int cairn_derive_start_desc(const struct cairn_space_desc *desc, uint32_t group, cairn_derive **ret_derive);
/* Scheme tokens/1: takes the next `ntokens` tokens and writes the key of every block that is now full to keys[0..max).
 * Extras may be given with the call whose tokens they begin in, in order of `token`. Tokens short of a full block are
 * kept for the next call. Returns the number of keys; INVAL: another scheme, extras out of order, SIZE: max too small
 * (nothing was taken). */
CAIRN_API long cairn_derive_tokens(cairn_derive *derive, const uint32_t *tokens, size_t ntokens,
                                   const struct cairn_extra *extras, size_t nextras, cairn_key *keys, size_t max);
/* Schemes of engines ("vllm/...", "sglang/1", "lmcache/..."): the key of one engine hash. Errors: INVAL. */
CAIRN_API int cairn_derive_hash(cairn_derive *derive, const void *hash, size_t length, cairn_key *ret_key);
/* Scheme file/1: the key of the next block of a file, at most 1 MiB. Errors: INVAL, SIZE. */
CAIRN_API int cairn_derive_bytes(cairn_derive *derive, const void *bytes, size_t length, cairn_key *ret_key);
/* The key of the tail: the tokens taken since the last full block (tokens/1). Errors: INVAL (there are none). */
CAIRN_API int cairn_derive_tail(const cairn_derive *derive, cairn_key *ret_key, uint32_t *ret_tokens);
/* The key of the last full block, or of the chain's root before the first: the parent of what comes next. */
CAIRN_API void cairn_derive_parent(const cairn_derive *derive, cairn_key *ret_key);
CAIRN_API void cairn_derive_free(cairn_derive *derive); /* NULL is allowed */

/* ---- buffers and regions ----------------------------------------------------------------------------------------- */

typedef struct cairn_region cairn_region; /* memory that a client registered; NULL: plain pointers */

enum cairn_region_kind {
	CAIRN_REGION_HOST = 0,
	CAIRN_REGION_CUDA = 1, /* CAIRN_E_INVAL in this version */
};

struct cairn_region_desc {
	size_t size;
	uint32_t kind;       /* enum cairn_region_kind */
	int fd;              /* memory behind an fd, mapped by cairn; -1: `address` */
	void *address;       /* stays the caller's, valid until unregister */
	uint64_t length;     /* bytes, > 0 */
	uint64_t fd_offset;  /* bytes; a multiple of the page size */
	/* Called before a region's bytes are read (put) or after they were written (get), so that a device's own work is
	 * ordered with ours; NULL: none. Called from any thread of the library; must not call into cairn. */
	int (*fence)(void *arg);
	void *fence_arg;
};
CAIRN_API int cairn_region_register(cairn *store, const struct cairn_region_desc *desc, cairn_region **ret_region);
/* No call that uses the region may be running: BUSY then, and the region stays. */
CAIRN_API int cairn_region_unregister(cairn *store, cairn_region *region);

struct cairn_buf {
	cairn_region *region; /* NULL: `offset` is an address in this process */
	uint64_t offset;      /* bytes into the region, or the address */
	uint64_t length;      /* bytes */
};
static inline struct cairn_buf cairn_buf_of(const void *address, size_t length)
{
	struct cairn_buf buf = {NULL, (uint64_t)(uintptr_t)address, (uint64_t)length};
	return buf;
}

/* ---- put, get, lease --------------------------------------------------------------------------------------------- */

#define CAIRN_PART_MIN_BYTES 1u
#define CAIRN_PART_MAX_BYTES (64u << 20) /* and less than half a segment; CAIRN_E_SIZE tells the limit */

enum {
	CAIRN_ITEM_TAIL = 1u << 0, /* the last, partial block of a session: never part of a match; goes with its session */
	/* A get whose caller checks the bytes against ret_check itself, in a pass of its own, as those of a lease: until
	 * then they may be anything. */
	CAIRN_ITEM_UNCHECKED = 1u << 1,
};

/* One part of one block. */
struct cairn_item {
	cairn_key key;
	const cairn_key *parent;     /* put: the block before it in its chain; NULL: it is the first, or none is known */
	const struct cairn_buf *bufs; /* put: source; get: destination. Unaligned and odd lengths are fine */
	uint32_t nbufs;
	uint16_t group;
	uint16_t part;
	uint32_t flags;              /* CAIRN_ITEM_... */
	uint32_t engine_hash_bytes;  /* put: the engine's own hash of the block, for events; 0: none, at most 32 */
	const void *engine_hash;
	/* results, written for every item when the call (or its completion) returns */
	int32_t status;              /* CAIRN_OK, CAIRN_MISS, CAIRN_DAMAGED, CAIRN_EXISTED or CAIRN_E_... */
	uint32_t ret_tier;           /* CAIRN_TIER_...: where it came from (get), or the lowest it reached (put) */
	uint64_t ret_bytes;          /* bytes of the part; known also with CAIRN_E_SIZE of a get */
	uint64_t ret_check;          /* XXH3-64 of the part's bytes */
};

struct cairn_call {
	size_t size;
	uint32_t timeout_ms;  /* 0: none. LATE then; what still arrives stays in the memory tier */
	uint32_t durability;  /* enum cairn_durability; put only */
	uint32_t background;  /* 1: after urgent reads */
};

/* Puts a batch. The bytes are copied and checked before the call returns; the caller's buffers are free again then.
 * `call` may be NULL. Returns the number of items with status OK or EXISTED, or an error that concerns all of them
 * (INVAL, RDONLY, UNKNOWN, NOMEM); the items' statuses are set in both cases.
 * Per item: SIZE (not the size the space declares, or over the limits), CONFLICT, FULL, IO, BUSY, LATE. */
CAIRN_API long cairn_put(cairn *store, const cairn_space *space, struct cairn_item *items, size_t nitems,
                         const struct cairn_call *call);
/* Gets a batch: each item's bytes, checked, into its buffers. Returns the number of items with status OK, or an error.
 * Per item: MISS, DAMAGED, SIZE (the buffers are smaller than the part), IO (passing; the part is kept), BUSY, LATE. */
CAIRN_API long cairn_get(cairn *store, const cairn_space *space, struct cairn_item *items, size_t nitems,
                         const struct cairn_call *call);

typedef struct cairn_lease cairn_lease; /* a right to read one part in place */

struct cairn_lease_info {
	const void *address; /* read only, valid until release; 64-byte aligned */
	uint64_t bytes;
	uint64_t check;      /* XXH3-64 of the bytes; check it in the pass in which you copy */
	uint32_t tier;       /* where it came from */
	int fd;              /* the memory behind it, sealed against shrinking, and ... */
	uint64_t fd_offset;  /* ... where in it: for other processes and for registration with a device */
};
/* Leases one part in the memory tier, bringing it there first. item->bufs is not used; item's results are set.
 * Leases are bounded in bytes, all together at most half of the tenant's memory: BUSY over that (use cairn_get).
 * Returns 0, CAIRN_MISS, CAIRN_DAMAGED or an error. */
CAIRN_API int cairn_lease_take(cairn *store, const cairn_space *space, struct cairn_item *item,
                               const struct cairn_call *call, cairn_lease **ret_lease);
CAIRN_API void cairn_lease_get_info(const cairn_lease *lease, struct cairn_lease_info *ret_info);
CAIRN_API void cairn_lease_release(cairn *store, cairn_lease *lease); /* NULL is allowed */
/* The checksum of every API field named check: XXH3-64, seed 0. */
CAIRN_API uint64_t cairn_check(const void *bytes, size_t length);

/* ---- asynchronous batches: submitted, completed later ------------------------------------------------------------ */

typedef struct cairn_queue cairn_queue;

struct cairn_completion {
	uint64_t tag; /* the submitter's */
	long result;  /* what the blocking form returns */
};
/* A completion queue of at most `depth` batches in flight. One thread at a time waits on it. Errors: NOMEM, INVAL. */
CAIRN_API int cairn_queue_open(cairn *store, uint32_t depth, cairn_queue **ret_queue);
/* An eventfd that is readable while completions wait. Owned by the queue. */
CAIRN_API int cairn_queue_fd(const cairn_queue *queue);
/* As cairn_put and cairn_get, but return at once: 0, or BUSY when `depth` batches are in flight. Items, buffers and
 * what they point to stay the caller's and untouched by it until the completion; `call` is copied. Tags of batches in
 * flight are distinct (INVAL). */
CAIRN_API int cairn_put_submit(cairn_queue *queue, const cairn_space *space, struct cairn_item *items, size_t nitems,
                               const struct cairn_call *call, uint64_t tag);
CAIRN_API int cairn_get_submit(cairn_queue *queue, const cairn_space *space, struct cairn_item *items, size_t nitems,
                               const struct cairn_call *call, uint64_t tag);
/* Waits up to timeout_ms (0: not at all, -1: for ever) for up to `max` completions. Returns their number. */
CAIRN_API long cairn_queue_wait(cairn_queue *queue, struct cairn_completion *done, size_t max, int timeout_ms);
/* Cancels a batch that has not begun; it completes with CANCELED. Returns 0, or NOENT: it has begun or is not there. */
CAIRN_API int cairn_cancel(cairn_queue *queue, uint64_t tag);
/* Cancels what has not begun, waits for what has, frees the queue. */
CAIRN_API void cairn_queue_close(cairn_queue *queue);

/* ---- match: how much of a chain can be had ----------------------------------------------------------------------- */

typedef struct cairn_match cairn_match;

struct cairn_chain {
	uint32_t group;
	const cairn_key *keys; /* in token order */
	size_t nkeys;
};

struct cairn_match_info {
	uint64_t tokens;               /* longest prefix at which every group's rule holds, in tokens */
	uint64_t worth_tokens;         /* the prefix of them that saves most against the declared recompute cost; 0: none
	                                * saves any. All, if no cost is declared */
	uint64_t bytes;                /* of all wanted parts of the prefix */
	uint64_t tier_bytes[CAIRN_TIERS]; /* the same by the fastest tier that has it */
	double load_s;                 /* expected seconds to load worth_tokens, from the tiers' own measurements */
	double recompute_s;            /* declared cost of computing worth_tokens; 0: not said */
	double tier_s[CAIRN_TIERS];    /* of load_s: each tier's share, what it has to do first included. Flash and peers
	                                * work side by side; what they bring is then copied, as what is in memory is */
};
/* Matches the chains of a prompt, one per group of the space, against all tiers. `parts` is a mask of wanted parts
 * (0: all). The answer stays the same, and its blocks are not evicted, until release or `timeout_ms` (0: 30 s).
 * One probe a key; no I/O. For what is evicted, a match is a use of its blocks; gets of them while it is open are the
 * same use, and a put of a block that is there already is one of its own.
 * Errors: INVAL, NOMEM, BUSY (too many matches open). */
CAIRN_API int cairn_match_take(cairn *store, const cairn_space *space, const struct cairn_chain *chains, size_t nchains,
                               uint64_t parts, uint32_t timeout_ms, cairn_match **ret_match);
CAIRN_API void cairn_match_get_info(const cairn_match *match, struct cairn_match_info *ret_info);
CAIRN_API void cairn_match_release(cairn *store, cairn_match *match); /* NULL is allowed */

/* Parallel ranks. One of the engine's processes (its scheduler) matches and sends the others a ticket, by whatever way
 * they talk; each of them joins with its own connection to the same store (or another thread with the same open one),
 * sees the same cairn_match_info to the bit, and fetches its own parts. Whoever joined holds the blocks as well: they
 * stay until the last one released them (or died), at most until the deadline of the match. */
struct cairn_ticket {
	uint8_t bytes[32]; /* random: whoever has it, and may use the space, may join */
};
CAIRN_API void cairn_match_ticket(const cairn_match *match, struct cairn_ticket *ret_ticket);
/* Errors: NOENT (released by all, over its deadline, left by the ranks, of another space or tenant, never given out:
 * one answer to all of these), INVAL, NOMEM, BUSY (1,024 hold it). */
CAIRN_API int cairn_match_join(cairn *store, const cairn_space *space, const struct cairn_ticket *ticket,
                               cairn_match **ret_match);
/* A rank's get may fail where the others' did not (dropped, damaged, a deadline), and one may come too late to join: so
 * that they never act on different answers, each of `ranks` (the same number from all, at most 1,024; a handle is one
 * rank) says how many tokens of the answer it has fetched, and waits for the others. Returns how many all of them have:
 * the least that one said; 0 where one has none, released its match without a word, died, or waited timeout_ms (0: the
 * match's deadline) in vain. That is settled once, in the store: everybody gets the same, also who asks again. After
 * a 0 nobody joins any more. In a space with groups that are not of rule ALL a rank says all of the answer, or 0.
 * Errors: INVAL (another number of ranks), NOMEM, IO (the cairnd is gone: what the others were told is not known, so a
 * rank that gets it must not go on alone). */
CAIRN_API long cairn_match_agree(cairn *store, cairn_match *match, uint32_t ranks, uint64_t tokens,
                                 uint32_t timeout_ms);

/* ---- hints: what an engine knows of the future ------------------------------------------------------------------- */

enum cairn_hint {
	CAIRN_HINT_CLOSE = 1,  /* this chain will not return: evict it first. Not its blocks that other chains go on from */
	CAIRN_HINT_PAUSE = 2,  /* it pauses: take it down to durable tiers soon, whatever the write budget */
	CAIRN_HINT_RESUME = 3, /* it comes back: promote it to memory */
};
/* Returns 0; a hint is never an obligation. Errors: INVAL. Does not block on I/O. */
CAIRN_API int cairn_hint(cairn *store, const cairn_space *space, const struct cairn_chain *chain, int hint);

/* ---- sessions: a named chain with its tail, owner, time to live -------------------------------------------------- */

typedef struct cairn_session cairn_session; /* a session that was resumed: a copy, independent of the store's */

struct cairn_session_name {
	const char *tenant; /* NULL: "default" */
	const char *owner;  /* NULL: "" */
	const char *name;   /* 1..255 bytes, any but 0; never a path: names are hashed */
};

struct cairn_save {
	size_t size;
	struct cairn_session_name name;    /* tenant must be the space's */
	const struct cairn_chain *chains;  /* blocks, put before (SIZE..: see errors) */
	uint32_t nchains;
	struct cairn_item *tails;          /* tails to write with it, as in cairn_put with CAIRN_ITEM_TAIL; may be none */
	uint32_t ntails;
	const void *state;                 /* engine's own bytes, at most 1 MiB; may be none */
	uint64_t state_bytes;
	uint64_t tokens;                   /* tokens in all, for people */
	uint64_t ttl_s;                    /* kept until then within the pin quota; 0: may still be evicted */
	uint32_t pin;                      /* 1: kept until unpinned, within the pin quota */
	uint32_t durability;               /* enum cairn_durability; default: flash */
	uint32_t timeout_ms;
};
/* Saves a session: its blocks become as durable as asked, then its tails and manifest are published at once; an earlier
 * session of that name is replaced atomically. Errors: NOENT (a block is in no tier any more: the text says which; put
 * it
 * again), QUOTA (ttl or pin over the share; nothing saved), SIZE, FULL, IO, LATE, INVAL, RDONLY, UNKNOWN.
 * Returns 0: saved, and kept as asked. */
CAIRN_API int cairn_session_save(cairn *store, const cairn_space *space, const struct cairn_save *save);

struct cairn_session_info {
	size_t size;
	const char *tenant, *owner, *name; /* owned by the session (resume) or valid during the callback (list) */
	uint64_t epoch;          /* 1 for the first save of that name, then one more each time */
	uint64_t tokens;
	uint64_t bytes;          /* blocks and tails, raw */
	uint64_t saved_at_s;     /* wall clock */
	uint64_t expires_at_s;   /* 0: no time to live */
	uint32_t pinned;
	uint32_t nchains;
	uint32_t ntails;
	cairn_digest space_id;
};
struct cairn_tail_info {
	cairn_key key;
	uint32_t group;
	uint32_t part;
	uint64_t bytes;
};
/* Loads a saved session's manifest and promotes its blocks to memory in the background.
 * Returns 0, CAIRN_DAMAGED, or NOENT, IO, NOMEM. ret_session is the caller's; cairn_session_free ends it. */
CAIRN_API int cairn_session_resume(cairn *store, const struct cairn_session_name *name, cairn_session **ret_session);
CAIRN_API void cairn_session_get_info(const cairn_session *session, struct cairn_session_info *ret_info);
CAIRN_API int cairn_session_chain(const cairn_session *session, uint32_t index, struct cairn_chain *ret_chain);
CAIRN_API int cairn_session_tail(const cairn_session *session, uint32_t index, struct cairn_tail_info *ret_tail);
CAIRN_API const void *cairn_session_state(const cairn_session *session, uint64_t *ret_bytes);
/* The space that the session was saved in, described to the store again from what it keeps. */
CAIRN_API int cairn_session_space(cairn *store, const cairn_session *session, cairn_space **ret_space);
CAIRN_API void cairn_session_free(cairn_session *session); /* NULL is allowed */
/* A hint that it will not return; it stays saved until evicted or forgotten. Errors: NOENT. */
CAIRN_API int cairn_session_close(cairn *store, const struct cairn_session_name *name);
/* Removes it durably; blocks that others share stay. Errors: NOENT, IO, RDONLY. */
CAIRN_API int cairn_session_forget(cairn *store, const struct cairn_session_name *name);
/* pin 1 or 0; ttl_s: new time to live from now, 0: none. Errors: NOENT, QUOTA, IO, RDONLY. */
CAIRN_API int cairn_session_pin(cairn *store, const struct cairn_session_name *name, uint32_t pin, uint64_t ttl_s);
/* Calls back for each session (tenant NULL: all), in no order, until it returns non-zero. Returns the number of calls.
 * The callback must not call into the store. */
CAIRN_API long cairn_session_list(cairn *store, const char *tenant,
                                  int (*each)(void *arg, const struct cairn_session_info *info), void *arg);

/* ---- list, explain, drop ----------------------------------------------------------------------------------------- */

struct cairn_space_info {
	size_t size;
	cairn_digest id;
	const char *text; /* as of cairn_space_text; valid during the callback */
	uint64_t parts;
	uint64_t bytes;   /* raw bytes, memory and flash counted once */
	uint64_t tier_parts[CAIRN_TIERS], tier_bytes[CAIRN_TIERS];
	/* Since the store was opened. */
	uint64_t hits[CAIRN_TIERS], hit_bytes[CAIRN_TIERS], misses;
	uint64_t written_parts, written_bytes; /* taken in */
	uint64_t evicted_parts, evicted_bytes; /* left the last tier to make room */
};
/* Calls back for each space that has parts or was described, until it returns non-zero. Returns the number of calls. */
CAIRN_API long cairn_list_spaces(cairn *store, int (*each)(void *arg, const struct cairn_space_info *info), void *arg);

struct cairn_part_info {
	size_t size;
	cairn_digest space_id;
	uint8_t key_prefix[16];
	uint32_t part;
	uint32_t tail;        /* 1: a session's tail */
	uint32_t in_memory;
	uint32_t in_flash;
	uint32_t device;      /* of flash */
	uint64_t bytes;
	uint64_t birth;       /* order in which parts were put */
};
/* Calls back for each part (space_id NULL: of all spaces), in no order. Returns the number of calls. */
CAIRN_API long cairn_list_parts(cairn *store, const cairn_digest *space_id,
                                int (*each)(void *arg, const struct cairn_part_info *info), void *arg);

enum cairn_reason {
	CAIRN_WHY_NONE = 0,       /* never seen, or forgotten */
	CAIRN_WHY_PRESENT = 1,
	CAIRN_WHY_EVICTED = 2,    /* to make room */
	CAIRN_WHY_DROPPED = 3,    /* on request */
	CAIRN_WHY_DAMAGED = 4,    /* failed its check */
	CAIRN_WHY_DEVICE = 5,     /* its device is gone, or failed while writing */
	CAIRN_WHY_ORPHAN = 6,     /* the head of its chain is gone */
	CAIRN_WHY_DOUBTFUL = 7,   /* damage made it unsure whether it had been dropped */
	CAIRN_WHY_EXPIRED = 8,    /* its session is gone (tails) */
	CAIRN_WHYS = 9,
};
struct cairn_explanation {
	size_t size;
	uint32_t reason;    /* enum cairn_reason */
	uint32_t tier;      /* where it is, or was last */
	uint32_t uses;      /* requests that put, matched, got or computed it, as far as is remembered; 31: or more */
	uint64_t when_s;    /* wall clock of that; 0: unknown */
	uint64_t bytes;     /* 0: unknown */
};
/* In which tier a part is or was last, and why it is gone. Returns 0. Errors: INVAL. */
CAIRN_API int cairn_explain(cairn *store, const cairn_digest *space_id, const cairn_key *key, uint32_t part,
                            struct cairn_explanation *ret_explanation);
CAIRN_API const char *cairn_reason_name(uint32_t reason);
/* Writes one line "FIELD: A | B" for each field in which two descriptions differ. Returns the length needed (0: same).
 * Errors: INVAL. */
CAIRN_API long cairn_explain_desc(const struct cairn_space_desc *a, const struct cairn_space_desc *b, char *text,
                                  size_t max);

/* Drops stay dropped: durable, in every tier, when the call returns. A put after it is a new part.
 * cairn_drop: these keys. cairn_drop_space: all of a space. cairn_drop_tenant: all of a tenant, its sessions too.
 * Return the number of parts removed. Errors: IO, RDONLY, FULL, INVAL. */
CAIRN_API long cairn_drop(cairn *store, const cairn_space *space, const cairn_key *keys, size_t nkeys);
CAIRN_API long cairn_drop_space(cairn *store, const cairn_digest *space_id);
CAIRN_API long cairn_drop_tenant(cairn *store, const char *tenant);

/* ---- stat and events --------------------------------------------------------------------------------------------- */

struct cairn_tier_stat {
	uint64_t capacity_bytes, used_bytes, parts;
	uint64_t hits, hit_bytes;             /* verified and delivered from here */
	uint64_t written_parts, written_bytes; /* raw bytes taken in */
	uint64_t evicted_parts, evicted_bytes;
	uint64_t damaged_parts;               /* failed checks */
	uint64_t errors;                      /* I/O errors */
};
struct cairn_device_stat {
	char path[256];
	uint32_t state;        /* 0 healthy, 1 writes refused, 2 gone */
	uint32_t segments, free_segments, open_segments;
	uint64_t segment_bytes, budget_bytes, used_bytes, live_bytes;
	uint64_t written_bytes;  /* to the medium, everything counted */
	uint64_t moved_bytes;    /* of them, carried over */
	uint64_t flushes, failed_flushes, groups;
	double read_gb_s, write_gb_s; /* measured by the tier itself; 0: not yet */
	double read_s;                /* one read, smoothed */
	char io_engine[16];           /* "io_uring" or "threads"; empty: the device is away */
	uint32_t direct;              /* 1: O_DIRECT; 0: its file system has none, and the page cache is in between */
	/* Reads that fail, or take more than some 5 s, three times in a row open a breaker: what is there alone is IO at
	 * once, and no match offers it, until one read that is tried now and then does well. */
	uint32_t reads_shut;          /* 0 no; 1 yes; 2 one is being tried */
	uint64_t reads_shut_times, reads_refused; /* times that it opened; reads that were stepped over */
};
struct cairn_peer_stat {
	char place[256];
	uint32_t state;        /* 0 well, 1 stepped over, 2 tried again */
	uint64_t answers;      /* to what it was asked */
	uint64_t late;         /* answers after the wait for them had ended, and parts that took too long */
	uint64_t failures;
	uint64_t hits, hit_bytes; /* parts that came from there, verified */
	uint64_t damaged_parts;
	double answer_s;       /* until an answer, smoothed; 0: not yet */
	double read_gb_s;      /* measured; 0: not yet */
};
struct cairn_stat {
	size_t size;
	struct cairn_tier_stat tier[CAIRN_TIERS];
	uint64_t misses;
	uint64_t put_exists, put_conflicts; /* same key, other bytes: the first was kept */
	uint64_t dropped_parts, doubtful_parts, lost_sessions, orphan_parts;
	uint64_t copies_extra_bytes;  /* bytes copied once more because a buffer was unaligned or odd */
	uint64_t leased_bytes, sessions, matches;
	uint64_t catalog_bytes, catalog_entries, catalog_capacity;
	uint64_t reopen_read_bytes;   /* read by the last open, and of it ... */
	uint64_t reopen_payload_bytes; /* ... payload */
	double reopen_s;
	uint32_t ndevices;
	struct cairn_device_stat device[16];
	uint64_t flash_refused_parts, flash_refused_bytes; /* left memory without a write: over the write budget */
	uint64_t misses_why[CAIRN_WHYS]; /* the misses by why the part is not there (CAIRN_WHY_NONE: never seen) */
	/* Matches, each one counted once, in tokens of the longest chain given: what was asked for and what was there. */
	uint64_t lookups, lookups_whole, lookups_part; /* the rest found nothing */
	uint64_t lookup_tokens, found_tokens;
	uint64_t found_bytes[CAIRN_TIERS]; /* by the fastest tier */
	double memory_age_s;          /* how long ago what memory evicts was used last, smoothed; 0: nothing was */
	uint32_t alarms;              /* CAIRN_ALARM_... that stand now */
	uint32_t alarm_minutes;       /* how long it must have been so */
	uint32_t npeers;
	struct cairn_peer_stat peer[16];
	/* Of a cairnd: payload of other servers' puts and gets that is under way, the most there may be, and what was
	 * answered "busy" for it since the start. */
	uint64_t in_flight_bytes, in_flight_limit_bytes, in_flight_refused;
};
enum {
	CAIRN_ALARM_WRITE_ONLY = 1u << 0, /* much is written, and less than 1 % of it read: is it ever found? */
	CAIRN_ALARM_NO_DEMOTION = 1u << 1, /* memory loses parts that should go to flash, and nothing arrives there */
};
/* "write_only", "no_demotion"; of the lowest bit that is set. Never NULL; static. Any thread. */
CAIRN_API const char *cairn_alarm_name(uint32_t alarms);
CAIRN_API int cairn_stat(cairn *store, struct cairn_stat *ret_stat);

struct cairn_tenant_stat {
	size_t size;
	const char *tenant;          /* valid during the callback; "" where it is not known (nothing described yet) */
	uint64_t memory_bytes;       /* of its parts, as its quota counts them */
	uint64_t flash_bytes;        /* of its segments, dead bytes included: what its quota counts */
	uint64_t flash_live_bytes, flash_parts;
	uint64_t leased_bytes;
	uint64_t memory_quota_bytes, memory_reserved_bytes, flash_quota_bytes, flash_reserved_bytes; /* 0: none */
	uint32_t share;
	uint32_t reserved;
	uint64_t hits[CAIRN_TIERS], hit_bytes[CAIRN_TIERS], misses;
	uint64_t written_parts, written_bytes;     /* taken in */
	uint64_t evicted_parts[CAIRN_TIERS], evicted_bytes[CAIRN_TIERS];
	uint64_t quota_refused;      /* parts that found no room within the quota */
};
/* Calls back for each tenant that has described a space, until it returns non-zero. Returns the number of calls. */
CAIRN_API long cairn_list_tenants(cairn *store, int (*each)(void *arg, const struct cairn_tenant_stat *stat),
                                  void *arg);

struct cairn_client_info {
	size_t size;
	const char *program, *address; /* valid during the callback; address: "" on this server, else where it is */
	uint64_t number;               /* in the order in which they came */
	uint64_t since_s;              /* wall clock */
	uint32_t pid, uid;             /* on this server; else 0 */
	uint32_t connections, leases, matches, spaces;
	uint64_t requests, failed;     /* answered; and of them with an error */
	uint64_t read_bytes, written_bytes;
	uint64_t in_flight_bytes, in_flight_refused; /* see struct cairn_stat */
};
/* Calls back for each client of the cairnd behind `store`, until it returns non-zero; a store of this process has none.
 * Returns the number of calls. */
CAIRN_API long cairn_list_clients(cairn *store, int (*each)(void *arg, const struct cairn_client_info *info),
                                  void *arg);

#define CAIRN_HASH_MAX 32

enum cairn_event_kind {
	CAIRN_EVENT_STORED = 1,  /* visible in `tier` */
	CAIRN_EVENT_REMOVED = 2, /* no longer in `tier`, for `reason` */
};
struct cairn_event {
	uint64_t sequence; /* 1, 2, 3 ...: a gap means events were missed; take a snapshot then */
	uint64_t life;     /* of the store since it was opened: in another one numbers begin anew, which is like a gap */
	uint32_t kind;     /* 0: of another tenant, by a cairnd: the rest is 0 */
	uint32_t tier, reason, part;
	cairn_digest space_id;
	uint8_t key_prefix[16];
	uint64_t birth;
	uint32_t hash_bytes; /* of engine_hash; 0: it is not known */
	uint8_t engine_hash[CAIRN_HASH_MAX];
	uint32_t reserved;
};
/* Copies up to `max` events after sequence `after` (0: the oldest kept; a number that is still to come is one of
 * another life, and means the same). The store keeps the last 65,536. Returns their number. Any thread; does not
 * block. */
CAIRN_API long cairn_events(cairn *store, uint64_t after, struct cairn_event *events, size_t max);

struct cairn_present {
	size_t size;
	cairn_digest space_id;
	uint8_t key_prefix[16];
	uint32_t part;
	uint32_t tiers; /* mask: 1 << CAIRN_TIER_... */
	uint64_t bytes, birth;
	uint32_t hash_bytes;
	uint8_t engine_hash[CAIRN_HASH_MAX];
	uint32_t reserved;
};
/* Calls back for each part that is there, in no order, until it returns non-zero. *ret_sequence and *ret_life are set
 * before the first call. With the events after that number, applied in order over what was listed (a part stored or
 * removed again is no fault), one knows what is there. Returns the number of calls; the callback must not call into
 * the store. Does not hold others up. */
CAIRN_API long cairn_snapshot(cairn *store, uint64_t *ret_sequence, uint64_t *ret_life,
                              int (*each)(void *arg, const struct cairn_present *present), void *arg);

/* ---- tokens: who may ask a cairnd over a network (docs/SERVE.md) ------------------------------------------------- */

#define CAIRN_TOKEN_TEXT 160 /* bytes of a token's text, with its final 0 */

enum {
	CAIRN_TOKEN_ADMIN = 1u << 0, /* sees and does everything, of all tenants: for operators, and other cairnds */
};
struct cairn_token_desc {
	size_t size;
	const char *tenant; /* NULL: "default" */
	uint32_t flags;     /* CAIRN_TOKEN_... */
	uint64_t ttl_s;     /* 0: it does not expire */
	/* Whose key the token names, so that its holder knows the server: NULL: the key in the directory (made there if
	 * there is none); a certificate's file, where the cairnd is configured with one; "": none, and then the certificate
	 * has to be one that the clients' systems trust. */
	const char *certificate;
};
struct cairn_token_info {
	size_t size;
	char id[17];
	const char *tenant; /* valid during the callback */
	uint32_t flags;
	uint64_t made_s, expires_s; /* 0: never */
};
/* Makes a token for the cairnd of a directory, whether that runs or not: it takes it at once. ret_text is the only copy
 * of the secret: the directory keeps its SHA-256. desc may be NULL. Errors: INVAL, NOENT, ACCESS, FULL (4,096 are the
 * most), CORRUPT (the list is damaged), IO, NOMEM. */
CAIRN_API int cairn_token_new(const char *directory, const struct cairn_token_desc *desc,
                              char ret_text[CAIRN_TOKEN_TEXT]);
/* Calls back for each, until it returns non-zero. Returns the number of calls, or an error as above. */
CAIRN_API long cairn_token_list(const char *directory, int (*each)(void *arg, const struct cairn_token_info *info),
                                void *arg);
/* From now on it is not taken, and connections that were made with it end within seconds. NOENT: there is none such. */
CAIRN_API int cairn_token_revoke(const char *directory, const char *id);

#ifdef __cplusplus
}
#endif
#endif
