/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions as llama.cpp's programs need them: the tokens of the conversation travel in the session's own bytes,
 *
 *     0   "cairnLLS"
 *     8   u32 version = 1       12  u32 tokens a block
 *    16   u64 tokens in all     24  u64 of them, with their KV saved
 *    32   the tokens, u32 each
 *
 * in little endian. The tokens are checked against the keys of the blocks and tail that the session names, so text
 * and KV cannot disagree. To the store, the owner of a session is "llama-SPACE/OWNER": names belong to a space.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama_in.h"

enum {
	STATE_HEAD_BYTES = 32,
	STATE_VERSION = 1,
	SPACE_TEXT_MAX = 65536,
};
static const char state_magic[8] = {'c', 'a', 'i', 'r', 'n', 'L', 'L', 'S'};

static void put_le(uint8_t *at, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get_le(const uint8_t *at, int bytes)
{
	uint64_t value = 0;

	for (int i = bytes - 1; i >= 0; i--)
		value = value << 8 | at[i];
	return value;
}

char *cllama_session_owner(const struct cairn_llama *llama, const char *owner)
{
	size_t length = strlen(llama->owner_prefix) + (owner ? strlen(owner) : 0) + 2;
	char *text = malloc(length);

	if (text)
		snprintf(text, length, "%s/%s", llama->owner_prefix, owner ? owner : "");
	return text;
}

int cllama_session_encode(const struct cairn_llama *llama, const llama_token *tokens, size_t ntokens, size_t kept,
                          uint8_t **ret_state, size_t *ret_length)
{
	size_t length = STATE_HEAD_BYTES + ntokens * 4;
	uint8_t *state = malloc(length);

	if (!state)
		return cllama_fail(CAIRN_E_NOMEM, "out of memory for %zu tokens", ntokens);
	memcpy(state, state_magic, 8);
	put_le(state + 8, STATE_VERSION, 4);
	put_le(state + 12, llama->block_tokens, 4);
	put_le(state + 16, ntokens, 8);
	put_le(state + 24, kept, 8);
	for (size_t i = 0; i < ntokens; i++)
		put_le(state + STATE_HEAD_BYTES + i * 4, (uint32_t)tokens[i], 4);
	*ret_state = state;
	*ret_length = length;
	return 0;
}

static int decode_state(const struct cairn_llama *llama, const uint8_t *state, uint64_t length,
                        struct cairn_llama_session *ret)
{
	uint64_t ntokens, kept;

	if (!state || length < STATE_HEAD_BYTES || memcmp(state, state_magic, 8) != 0)
		return cllama_fail(CAIRN_DAMAGED, "the session was not saved by cairn-llama");
	if (get_le(state + 8, 4) != STATE_VERSION)
		return cllama_fail(CAIRN_E_VERSION, "the session was saved by a newer cairn-llama");
	ntokens = get_le(state + 16, 8);
	kept = get_le(state + 24, 8);
	if (get_le(state + 12, 4) != llama->block_tokens || ntokens != (length - STATE_HEAD_BYTES) / 4 ||
	    (length - STATE_HEAD_BYTES) % 4 != 0 || kept == 0 || kept > ntokens)
		return cllama_fail(CAIRN_DAMAGED, "the session's tokens are damaged");
	ret->tokens = malloc(ntokens * sizeof *ret->tokens);
	if (!ret->tokens)
		return cllama_fail(CAIRN_E_NOMEM, "out of memory for %llu tokens", (unsigned long long)ntokens);
	for (uint64_t i = 0; i < ntokens; i++)
		ret->tokens[i] = (llama_token)(uint32_t)get_le(state + STATE_HEAD_BYTES + i * 4, 4);
	ret->ntokens = (size_t)ntokens;
	ret->kept = (size_t)kept;
	return 0;
}

/* Whether the session's chain and tail are those of its tokens. */
static int compare_keys(const struct cairn_llama *llama, const cairn_session *saved,
                        struct cairn_llama_session *session)
{
	struct cairn_session_info info = {.size = sizeof info};
	struct cairn_chain chain = {0};
	struct cairn_tail_info tail;
	struct keys keys;
	int rc = cllama_keys_derive(llama, session->tokens, session->kept, &keys), same;

	if (rc)
		return rc;
	cairn_session_get_info(saved, &info);
	same = info.nchains == (keys.nblocks ? 1 : 0) && info.ntails == (keys.tail_tokens ? 1 : 0);
	if (same && keys.nblocks)
		same = cairn_session_chain(saved, 0, &chain) == 0 && chain.group == 0 && chain.nkeys == keys.nblocks &&
		       memcmp(chain.keys, keys.blocks, keys.nblocks * sizeof keys.blocks[0]) == 0;
	if (same && keys.tail_tokens)
		same = cairn_session_tail(saved, 0, &tail) == 0 &&
		       memcmp(&tail.key, &keys.tail, sizeof tail.key) == 0;
	session->tail_key = keys.tail;
	session->tail_tokens = keys.tail_tokens;
	cllama_keys_done(&keys);
	return same ? 0 : cllama_fail(CAIRN_DAMAGED, "the session's blocks are not those of its tokens");
}

/* ---- why a name is not there ------------------------------------------------------------------------------------- */

struct stranger {
	const char *owner, *name;
	cairn_digest own, space_id;
	char *text;
	int found;
};

static int find_stranger(void *arg, const struct cairn_session_info *info)
{
	struct stranger *stranger = arg;
	const char *slash = strchr(info->owner, '/');

	if (strncmp(info->owner, "llama-", 6) != 0 || !slash || strcmp(slash + 1, stranger->owner) != 0 ||
	    strcmp(info->name, stranger->name) != 0 || memcmp(&info->space_id, &stranger->own, sizeof stranger->own) == 0)
		return 0;
	stranger->space_id = info->space_id;
	stranger->found = 1;
	return 1;
}

static int copy_text(void *arg, const struct cairn_space_info *info)
{
	struct stranger *stranger = arg;

	if (memcmp(&info->id, &stranger->space_id, sizeof info->id) != 0)
		return 0;
	stranger->text = strdup(info->text ? info->text : "");
	return 1;
}

/* The line of `text` that begins like `line` up to its '='; NULL: there is none. */
static const char *line_like(const char *text, const char *line, size_t field)
{
	while (*text) {
		if (strncmp(text, line, field) == 0)
			return text;
		text += strcspn(text, "\n");
		text += *text == '\n';
	}
	return NULL;
}

/* Appends "field = value" of each line of `a` that `b` has otherwise, or not at all. */
static size_t differences(const char *a, const char *b, char *out, size_t max)
{
	size_t length = 0;

	for (const char *line = a; *line && length < max; line += line[strcspn(line, "\n")] ? 1 : 0) {
		size_t n = strcspn(line, "\n"), field = strcspn(line, "=");
		const char *other = field < n ? line_like(b, line, field + 1) : NULL;

		if (field < n && (!other || strncmp(other, line, n) != 0 || (other[n] && other[n] != '\n')))
			length += (size_t)snprintf(out + length, max - length, "%s%.*s", length ? ", " : "",
			                           (int)(n > 120 ? 120 : n), line);
		line += n;
	}
	return length;
}

static int explain_missing(struct cairn_llama *llama, const char *owner, const char *name)
{
	struct stranger stranger = {.owner = owner ? owner : "", .name = name};
	char *own = malloc(SPACE_TEXT_MAX), theirs[400] = "", ours[400] = "";

	cairn_space_get_id(llama->space, &stranger.own);
	cairn_session_list(llama->store, llama->tenant, find_stranger, &stranger);
	if (stranger.found)
		cairn_list_spaces(llama->store, copy_text, &stranger);
	if (stranger.text && own) {
		cairn_space_text(llama->space, own, SPACE_TEXT_MAX);
		differences(stranger.text, own, theirs, sizeof theirs);
		differences(own, stranger.text, ours, sizeof ours);
		cllama_fail(CAIRN_E_NOENT, "no session '%s' for this model and these settings; one of that name was saved "
		            "with: %s; here: %s", name, theirs, ours);
	} else {
		cllama_fail(CAIRN_E_NOENT, "no session '%s'", name);
	}
	free(stranger.text);
	free(own);
	return CAIRN_E_NOENT;
}

/* ---- the public side ------------------------------------------------------------------------------------------- */

static int load(struct cairn_llama *llama, const struct cairn_session_name *name, const char *owner,
                struct cairn_llama_session *session)
{
	struct cairn_session_info info = {.size = sizeof info};
	cairn_session *saved = NULL;
	cairn_digest id;
	uint64_t length = 0;
	const uint8_t *state;
	int rc = cairn_session_resume(llama->store, name, &saved);

	if (rc == CAIRN_E_NOENT)
		return explain_missing(llama, owner, name->name);
	if (rc)
		return cllama_fail(rc, "loading session '%s': %s", name->name,
		                   rc > 0 ? cairn_status_text(rc) : cairn_error_text());
	cairn_session_get_info(saved, &info);
	cairn_space_get_id(llama->space, &id);
	state = cairn_session_state(saved, &length);
	if (memcmp(&info.space_id, &id, sizeof id) != 0)
		rc = cllama_fail(CAIRN_DAMAGED, "session '%s' names another space than its owner's", name->name);
	if (rc == 0)
		rc = decode_state(llama, state, length, session);
	if (rc == 0)
		rc = compare_keys(llama, saved, session);
	cairn_session_free(saved);
	return rc;
}

int cairn_llama_session_open(cairn_llama *llama, const char *owner, const char *name, cairn_llama_session **ret_session)
{
	struct cairn_session_name full = {.tenant = llama->tenant, .name = name};
	struct cairn_llama_session *session = calloc(1, sizeof *session);
	char *text = cllama_session_owner(llama, owner);
	int rc;

	full.owner = text;
	if (!session || !text)
		rc = cllama_fail(CAIRN_E_NOMEM, "out of memory");
	else if (!name)
		rc = cllama_fail(CAIRN_E_INVAL, "a session needs a name");
	else
		rc = load(llama, &full, owner, session);
	free(text);
	if (rc) {
		cairn_llama_session_free(session);
		return rc;
	}
	*ret_session = session;
	return 0;
}

const llama_token *cairn_llama_session_tokens(const cairn_llama_session *session, size_t *ret_ntokens, size_t *ret_kept)
{
	if (ret_ntokens)
		*ret_ntokens = session->ntokens;
	if (ret_kept)
		*ret_kept = session->kept;
	return session->tokens;
}

void cairn_llama_session_free(cairn_llama_session *session)
{
	if (!session)
		return;
	free(session->tokens);
	free(session);
}

int cairn_llama_session_forget(cairn_llama *llama, const char *owner, const char *name)
{
	struct cairn_session_name full = {.tenant = llama->tenant, .name = name};
	char *text = cllama_session_owner(llama, owner);
	int rc;

	if (!text)
		return cllama_fail(CAIRN_E_NOMEM, "out of memory");
	full.owner = text;
	rc = cairn_session_forget(llama->store, &full);
	free(text);
	return rc ? cllama_fail_cairn(rc, "forgetting a session") : 0;
}
