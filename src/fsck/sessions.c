/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saved sessions: whether their manifests are there and whole, and whether the blocks and tails they name are.
 *
 * A block counts as there when any part of it is: a part alone is missing where it was damaged, and that is told of the
 * part. Blocks of a session that is not kept may have been evicted, which is no problem.
 *
 * Threads: the caller's. Memory: one pointer for each good part, and one manifest.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "cairn/cairn.h"
#include "fmt/key.h"
#include "fsck/fsck_in.h"

struct place {
	const struct part *part;
	struct disk *disk;
};

struct sessions {
	struct fsck *fsck;
	struct place *places; /* of good parts, by key, then space and part */
	size_t nplaces;
	struct manifest_chain chains[MANIFEST_CHAINS_MAX];
	struct manifest_tail tails[MANIFEST_TAILS_MAX];
};

static int place_order(const void *left, const void *right)
{
	const struct part *a = ((const struct place *)left)->part, *b = ((const struct place *)right)->part;
	int order = memcmp(a->key, b->key, 32);
	if (!order)
		order = a->space < b->space ? -1 : a->space > b->space;
	return order ? order : (int)a->part - (int)b->part;
}

static int places_gather(struct sessions *sessions)
{
	struct fsck *fsck = sessions->fsck;
	size_t n = 0;
	for (uint32_t d = 0; d < fsck->ndisks; d++)
		n += fsck->disks[d].nparts;
	sessions->places = mem_array(n ? n : 1, sizeof(*sessions->places));
	if (!sessions->places)
		return err_set(CAIRN_E_NOMEM, "no memory to check the sessions of %s", fsck->path);
	for (uint32_t d = 0; d < fsck->ndisks; d++)
		for (uint32_t i = 0; i < fsck->disks[d].nparts; i++)
			if (fsck->disks[d].parts[i].state == PART_GOOD)
				sessions->places[sessions->nplaces++] = (struct place){&fsck->disks[d].parts[i], &fsck->disks[d]};
	if (sessions->nplaces)
		qsort(sessions->places, sessions->nplaces, sizeof(*sessions->places), place_order);
	return 0;
}

/* The first good part of this key from `part` on; NULL: there is none. */
static const struct place *place_find(const struct sessions *sessions, const uint8_t space[32], const uint8_t key[32],
                                      uint32_t part)
{
	const struct fsck *fsck = sessions->fsck;
	uint32_t number = UINT32_MAX;
	for (uint32_t i = 0; i < fsck->nspaces && number == UINT32_MAX; i++)
		if (!memcmp(fsck->spaces[i], space, 32))
			number = i;
	if (number == UINT32_MAX)
		return NULL;
	struct part wanted = {.space = number, .part = (uint16_t)part};
	memcpy(wanted.key, key, 32);
	struct place probe = {.part = &wanted};
	size_t low = 0, high = sessions->nplaces;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (place_order(&sessions->places[middle], &probe) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == sessions->nplaces || memcmp(sessions->places[low].part->key, key, 32) ||
	    sessions->places[low].part->space != number)
		return NULL;
	return &sessions->places[low];
}

/* Blocks and tails of a manifest that nobody has. */
static uint64_t blocks_missing(const struct sessions *sessions, const struct manifest *manifest)
{
	uint64_t missing = 0;
	for (uint32_t c = 0; c < manifest->nchains; c++)
		for (uint32_t k = 0; k < sessions->chains[c].nkeys; k++)
			missing += !place_find(sessions, manifest->space, sessions->chains[c].keys + (size_t)k * 32, 0);
	for (uint32_t t = 0; t < manifest->ntails; t++) {
		const struct manifest_tail *tail = &sessions->tails[t];
		const struct place *place = place_find(sessions, manifest->space, tail->key, tail->part);
		missing += !place || place->part->part != tail->part;
	}
	return missing;
}

enum verdict { VERDICT_GOOD, VERDICT_BAD, VERDICT_AWAY };

static int session_check(struct sessions *sessions, const struct ledger_record *record, enum verdict *ret_verdict)
{
	struct fsck *fsck = sessions->fsck;
	struct fsck_report *report = fsck->report;
	struct manifest manifest;
	uint8_t space[32];
	key_manifest_space(record->u.session.tenant, space);
	const struct place *place = place_find(sessions, space, record->u.session.manifest, 0);
	if (!place && report->devices_missing) {
		fsck_tell(fsck, FSCK_NOTE, NULL, FSCK_NO_OFFSET,
		          "the manifest of a session is on no device that is here: it comes back with its device");
		*ret_verdict = VERDICT_AWAY;
		return 0;
	}
	*ret_verdict = VERDICT_BAD;
	uint8_t *bytes = place ? mem_aligned(FMT_PAGE, (size_t)disk_pages_of(place->part->stored_length) * FMT_PAGE) : NULL;
	if (place && !bytes)
		return err_set(CAIRN_E_NOMEM, "no memory for a manifest of %u bytes", place->part->stored_length);
	int result = FMT_BAD;
	if (place && !parts_load(place->disk, place->part, bytes))
		result = manifest_decode(bytes, place->part->stored_length, &manifest, sessions->chains, sessions->tails);
	if (result == FMT_NEWER) {
		mem_free(bytes);
		return err_set(CAIRN_E_VERSION, "a session was saved by a newer cairn: use that one's fsck");
	}
	if (result == FMT_OK && !memcmp(manifest.space, record->u.session.space, 32)) {
		uint64_t missing = blocks_missing(sessions, &manifest);
		*ret_verdict = VERDICT_GOOD;
		report->blocks_missing += missing;
		report->sessions_broken += missing > 0;
		if (missing)
			fsck_tell(fsck, FSCK_NOTE, NULL, FSCK_NO_OFFSET,
			          "session \"%.*s\": %llu of its blocks are not there: they are computed again when it resumes",
			          (int)manifest.name_length, manifest.name, (unsigned long long)missing);
	} else {
		report->manifests_damaged++;
		fsck_tell(fsck, FSCK_LOST, NULL, FSCK_NO_OFFSET, "the manifest of a session is %s: it can not be resumed",
		          place ? "damaged" : "not there");
	}
	mem_free(bytes);
	return 0;
}

/* Takes a session out of every ledger; they are written anew then. */
static void session_forget(struct fsck *fsck, const uint8_t id[32])
{
	for (uint32_t d = 0; d < fsck->ndisks; d++) {
		struct log *log = &fsck->disks[d].log;
		struct ledger_record *session = fsck->disks[d].io ? log_session(log, id) : NULL;
		if (!session)
			continue;
		log_remove(&log->sessions, (uint32_t)(session - log->sessions.records));
		log->anew = 1;
	}
	fsck->report->forgotten_sessions++;
}

int sessions_run(struct fsck *fsck)
{
	struct log *log = log_authority(fsck);
	if (!log || !log->sessions.used)
		return 0;
	struct sessions *sessions = mem_alloc(sizeof(*sessions));
	if (!sessions)
		return err_set(CAIRN_E_NOMEM, "no memory to check the sessions of %s", fsck->path);
	sessions->fsck = fsck;
	int error = fsck_step(fsck, NULL, "sessions", log->sessions.used);
	if (!error)
		error = places_gather(sessions);
	for (uint32_t i = 0; i < log->sessions.used && !error;) {
		enum verdict verdict;
		uint8_t id[32];
		memcpy(id, log->sessions.records[i].u.session.id, 32);
		fsck->report->sessions++;
		error = session_check(sessions, &log->sessions.records[i], &verdict);
		if (!error)
			error = fsck_advance(fsck, 1);
		if (!error && verdict == VERDICT_BAD && fsck->options.repair)
			session_forget(fsck, id);
		else
			i++;
	}
	mem_free(sessions->places);
	mem_free(sessions);
	return error;
}
