/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of sessions: shared by session.c (the table, reading, ending) and save.c (saving). Under the store's lock. */
#ifndef CAIRN_STORE_SESSION_H
#define CAIRN_STORE_SESSION_H

#include "store/store.h"

struct kept_key {
	uint8_t prefix[16];
};

struct saved {
	struct list link;
	struct ledger_record record; /* LEDGER_SESSION */
	uint64_t expires_ns;         /* monotonic; UINT64_MAX: never */
	uint32_t space;              /* number; of the kept keys */
	struct kept_key *kept;       /* NULL: not kept (or not read yet) */
	size_t nkept;
};

/* A session from its manifest, and back: how it travels. The bytes are the caller's, to be freed. 0, NOMEM, IO. */
int session_of_manifest(const uint8_t *bytes, size_t length, cairn_session **ret_session);
int session_to_manifest(const cairn_session *session, uint8_t **ret_bytes, size_t *ret_length);
void session_set_kept(cairn_session *session, uint32_t pinned, uint64_t expires_at_s);
/* cairn_session_resume in a store of our own; here: peers are not asked. */
int session_resume(cairn *store, const struct cairn_session_name *name, int here, cairn_session **ret_session);
/* The session of that id in the table; NULL: none. */
struct saved *session_find(cairn *store, const uint8_t id[32]);
/* 0 or INVAL; then the digest of its tenant and the session's id. */
int session_name_check(const struct cairn_session_name *name);
void session_name_id(const struct cairn_session_name *name, uint8_t tenant[32], uint8_t id[32]);
/* First halves of all keys of chains and tails; the caller's. NULL: no memory. */
struct kept_key *session_keys(const struct cairn_chain *chains, uint32_t nchains, const struct cairn_tail_info *tails,
                              uint32_t ntails, size_t *ret_n);
/* Marks the session's kept keys as kept, or not; unkeep also forgets them, and marks again what others keep. */
void session_mark(cairn *store, const struct saved *saved, int kept);
void session_unkeep(cairn *store, struct saved *saved);
/* 0 or QUOTA: whether so many bytes more may be kept. */
int session_quota(cairn *store, uint64_t more);
/* Bytes of keys that are not kept yet. */
uint64_t session_unkept_bytes(cairn *store, uint32_t space, const struct kept_key *keys, size_t n);
/* Catalog entry of its manifest; 0: it is not there. */
uint32_t session_manifest(cairn *store, const struct saved *saved);
/* Pinned, or with a time to live. */
int session_wants_keeping(const struct saved *saved);

#endif
