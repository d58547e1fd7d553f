/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drops, sessions and spaces go to every device's ledger; a device that was away, or whose ledger has a hole, missed
 * some.
 * They are taken from the others here. What no ledger knows any more makes the parts doubtful that it could have
 * covered.
 *
 * Threads: the opening one. Invariant: a part that any ledger knows to be dropped is reported by no device.
 */
#include "store/reconcile.h"

#include <string.h>

#include "base/err.h"
#include "store/store.h"

static struct ledger *ledger_of(cairn *store, uint32_t device)
{
	return store->devices[device].flash ? flash_ledger(store->devices[device].flash) : NULL;
}

static int add(cairn *store, struct ledger *ledger, const struct ledger_record *record)
{
	if (!ledger_fits(ledger, record) && record->type != LEDGER_FORGET) {
		/* No room for it here. What a drop may cover is discarded; a session or a description is known elsewhere. */
		if (record->type == LEDGER_DROP && record->u.drop.decision > ledger->doubt_through)
			ledger->doubt_through = record->u.drop.decision;
		return 0;
	}
	int error = ledger_add(ledger, record);
	if (error != CAIRN_E_FULL)
		return error;
	if (store->flags & CAIRN_OPEN_READONLY) { /* only the state in memory counts */
		ledger->gather_pages = ledger->gather_used = 0;
	} else {
		error = ledger_commit(ledger);
		if (error)
			return err_set(err_from_errno(-error), "cannot write a ledger: %s", strerror(-error));
	}
	return ledger_add(ledger, record);
}

static const struct ledger_record *session_of(const struct ledger *ledger, const uint8_t id[32])
{
	for (uint32_t i = 0; i < ledger->sessions.used; i++)
		if (!memcmp(ledger->sessions.records[i].u.session.id, id, 32))
			return &ledger->sessions.records[i];
	return NULL;
}

/* The device that knows most: newest decision, of equals one without a hole. */
static struct ledger *authority_of(cairn *store)
{
	struct ledger *best = NULL;
	for (uint32_t i = 0; i < store->ndevices; i++) {
		struct ledger *ledger = ledger_of(store, i);
		if (!ledger)
			continue;
		uint64_t last = ledger->mark.u.mark.last_decision;
		if (!best || last > best->mark.u.mark.last_decision ||
		    (last == best->mark.u.mark.last_decision && best->doubt_through && !ledger->doubt_through))
			best = ledger;
	}
	return best;
}

static int take_drops(cairn *store, struct ledger *to, const struct ledger *from, uint64_t after)
{
	for (uint32_t i = 0; i < from->drops.used; i++) {
		struct ledger_record drop = from->drops.records[i];
		if (drop.u.drop.decision <= after || ledger_drop_is_doubt(&drop))
			continue;
		/* Here it was decided only now: it stays until every segment of this device began later. */
		drop.u.drop.sequence = to->mark.u.mark.group_epoch << 32 | UINT32_MAX;
		int error = add(store, to, &drop);
		if (error)
			return error;
		to->mark.u.mark.checkpoint_segment = UINT32_MAX; /* made before it knew: the footers tell, key by key */
	}
	return 0;
}

/* Sessions of all devices together: one that is missing somewhere was saved while that one was away. Only a device
 * that is known to have missed what was forgotten (IDENT_DEVICE_MISSED), or whose ledger has a hole in which that may
 * have been, is not believed against one that has not. */
static int take_sessions(cairn *store, struct ledger *to, int to_missed, const struct ledger *from, int from_missed,
                         int believed)
{
	for (uint32_t i = 0; to_missed && !from_missed && i < to->sessions.used;) {
		struct ledger_record session = to->sessions.records[i];
		if (session_of(from, session.u.session.id)) {
			i++;
			continue;
		}
		struct ledger_record forget = {.type = LEDGER_FORGET};
		memcpy(forget.u.forget.id, session.u.session.id, 32);
		forget.u.forget.decision = session.u.session.decision;
		int error = add(store, to, &forget);
		if (error)
			return error;
	}
	for (uint32_t i = 0; i < from->sessions.used && !(from_missed && believed); i++) {
		const struct ledger_record *session = &from->sessions.records[i];
		const struct ledger_record *have = session_of(to, session->u.session.id);
		if (have && have->u.session.decision >= session->u.session.decision)
			continue;
		int error = add(store, to, session);
		if (error)
			return error;
	}
	return 0;
}

static int take_spaces(cairn *store, struct ledger *to, const struct ledger *from)
{
	enum { CHUNK = 3072 };
	for (uint32_t i = 0; i < from->nspaces; i++) {
		const struct ledger_space *space = &from->spaces[i];
		int have = 0;
		for (uint32_t j = 0; j < to->nspaces; j++)
			have |= !memcmp(to->spaces[j].id, space->id, 32);
		for (uint32_t offset = 0; offset < space->length && !have; offset += CHUNK) {
			struct ledger_record record = {.type = LEDGER_SPACE};
			memcpy(record.u.space.id, space->id, 32);
			record.u.space.offset = offset;
			record.u.space.total = space->length;
			record.u.space.bytes = space->canon + offset;
			record.u.space.length = (uint16_t)(space->length - offset < CHUNK ? space->length - offset : CHUNK);
			int error = add(store, to, &record);
			if (error)
				return error;
		}
	}
	return 0;
}

/* Whether something was dropped or forgotten while the device was away. */
static int missed_some(const cairn *store, uint32_t device)
{
	return (store->ident.device[device].flags & IDENT_DEVICE_MISSED) != 0;
}

int reconcile(cairn *store)
{
	struct ledger *best = authority_of(store);
	int believed = 0; /* one that missed nothing is here */
	for (uint32_t i = 0; i < store->ndevices; i++)
		believed |= ledger_of(store, i) && !missed_some(store, i) && !ledger_of(store, i)->doubt_through;
	for (uint32_t i = 0; i < store->ndevices; i++) {
		struct ledger *ledger = ledger_of(store, i);
		if (!ledger)
			continue;
		uint64_t last = ledger->mark.u.mark.last_decision, doubt = ledger->doubt_through, forgotten = 0;
		int missed = missed_some(store, i);
		int others = 0, behind = missed || best->mark.u.mark.last_decision > last;
		for (uint32_t j = 0; j < store->ndevices; j++) {
			const struct ledger *other = ledger_of(store, j);
			if (!other || other == ledger)
				continue;
			int whole = !other->doubt_through;
			others += whole && other->mark.u.mark.last_decision == best->mark.u.mark.last_decision;
			int error = take_drops(store, ledger, other, doubt || missed ? 0 : last);
			if (!error)
				error = take_spaces(store, ledger, other);
			if (!error)
				error = take_sessions(store, ledger, missed || doubt, other, missed_some(store, j) || !whole, believed);
			if (error)
				return error;
			/* Drops that the other has forgotten since: its segments no longer needed them; ours may. */
			if ((behind || doubt) && other->mark.u.mark.dropped_through > forgotten)
				forgotten = other->mark.u.mark.dropped_through;
		}
		if (doubt && others) /* another ledger has no hole: only what it forgot is doubtful here */
			ledger->doubt_through = forgotten;
		else if (behind && (missed || forgotten > last) && forgotten > ledger->doubt_through)
			ledger->doubt_through = forgotten;
	}
	return 0;
}
