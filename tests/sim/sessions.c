/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: save, resume, forget, pin, list; what a resume may find. */
#include <stdlib.h>
#include <string.h>

#include "sim/run.h"

static struct cairn_session_name name_of(const struct run *run, uint32_t index)
{
	static char tenant[3], name[8];
	tenant[0] = 't';
	tenant[1] = (char)('0' + run->sessions[index].tenant);
	memcpy(name, "session", 7);
	name[6] = (char)('0' + index);
	return (struct cairn_session_name){.tenant = tenant, .owner = index % 2 ? "owner" : NULL, .name = name};
}

static int certain(const struct session *session)
{
	return session->n == 1 && !session->may_none && !session->may_lost;
}

/* Times that are over, as of the call that ended last. */
static void tick(struct run *run, struct session *session)
{
	for (uint32_t i = 0; i < session->n; i++) {
		struct saved *saved = &session->may[i];
		if (saved->expires_low_s && (run_wall(run) >= saved->expires_low_s || run_now(run) >= saved->expires_ns))
			saved->expired = 1;
	}
}

void sessions_tick(struct run *run)
{
	for (uint32_t s = 0; s < SESSIONS; s++)
		tick(run, &run->sessions[s]);
}

static void set(struct session *session, const struct saved *saved)
{
	session->n = saved != NULL;
	session->may_none = !saved;
	session->may_lost = saved && !saved->durable;
	if (saved)
		session->may[0] = *saved;
}

/* It may be this one now, or what it was before. */
static void add(struct session *session, const struct saved *saved)
{
	if (!session->n)
		session->may_none = 1;
	if (session->n == MAYBE)
		memmove(&session->may[1], &session->may[2], sizeof(session->may[0]) * (MAYBE - 2));
	else
		session->n++;
	session->may[session->n - 1] = *saved;
	session->may_lost |= session->n == MAYBE || !saved->durable;
}

int session_keeps(const struct run *run, const struct block *block)
{
	int32_t number = (int32_t)block_number(run, block);
	if (run->unsettled || run->gone || run->shaky)
		return 0;
	for (uint32_t s = 0; s < SESSIONS; s++) {
		const struct session *session = &run->sessions[s];
		const struct saved *saved = &session->may[0];
		if (!certain(session) || (!saved->pinned && !saved->expires_low_s) || saved->expired ||
		    (saved->expires_low_s && run_wall(run) >= saved->expires_low_s))
			continue;
		if (saved->tail == number && !(saved->dropped >> 31))
			return 1;
		for (uint32_t i = 0; i < saved->nchain; i++)
			if (saved->chain[i] == number && !(saved->dropped >> i & 1))
				return 1;
	}
	return 0;
}

int session_kept(const struct run *run, uint32_t tenant)
{
	for (uint32_t s = 0; s < SESSIONS; s++)
		for (uint32_t i = 0; i < MAYBE; i++)
			if (run->sessions[s].tenant == tenant && i < run->sessions[s].n &&
			    (run->sessions[s].may[i].pinned || run->sessions[s].may[i].expires_low_s))
				return 1;
	return 0;
}

void session_block_dropped(struct run *run, int32_t number)
{
	for (uint32_t s = 0; s < SESSIONS; s++)
		for (uint32_t m = 0; m < run->sessions[s].n; m++) {
			struct saved *saved = &run->sessions[s].may[m];
			for (uint32_t i = 0; i < saved->nchain; i++)
				saved->dropped |= (uint32_t)(saved->chain[i] == number) << i;
			if (saved->tail == number)
				saved->dropped |= 1u << 31;
		}
}

void sessions_died(struct run *run)
{
	for (uint32_t s = 0; s < SESSIONS; s++)
		for (uint32_t i = 0; i < run->sessions[s].n; i++)
			run->sessions[s].may_lost |= !run->sessions[s].may[i].durable;
}

void sessions_doubt(struct run *run)
{
	for (uint32_t s = 0; s < SESSIONS; s++)
		run->sessions[s].may_lost |= run->sessions[s].n > 0;
}

void sessions_dropped(struct run *run, int tenant, int space, int sure)
{
	for (uint32_t s = 0; s < SESSIONS; s++) {
		struct session *session = &run->sessions[s];
		if (tenant >= 0 && session->tenant == tenant) {
			if (sure)
				set(session, NULL);
			session->may_none = 1;
			session->may_lost = !sure;
		}
		for (uint32_t i = 0; space >= 0 && i < session->n;) {
			if (session->may[i].space != space) {
				i++;
				continue;
			}
			session->may_none = 1;
			session->may_lost |= !sure;
			if (!sure) {
				i++;
				continue;
			}
			memmove(&session->may[i], &session->may[i + 1], sizeof(session->may[0]) * (session->n - i - 1));
			session->n--;
		}
	}
}

/* ---- save ------------------------------------------------------------------------------------------------------ */

static int save_excused(struct run *run, int error, const struct saved *saved, int keeping)
{
	int missing = 0;
	for (uint32_t i = 0; i < saved->nchain; i++) {
		const struct block *block = &run->blocks[saved->chain[i]];
		missing |= !block_there(run, block);
		for (uint32_t p = 0; p < block->nparts; p++)
			missing |= block->parts[p].removed_op == run->op || !part_there(&block->parts[p]);
	}
	if (error == CAIRN_E_NOENT)
		return missing;
	if (error == CAIRN_E_QUOTA)
		return keeping || limits_excuse(run, saved->space, 0) || limits_excuse(run, saved->space, 1);
	if (error == CAIRN_E_FULL)
		return !run_roomy(run) || run_troubled(run) || run->decisions > 60;
	if (error == CAIRN_E_BUSY)
		for (int l = 0; l < LEASES; l++)
			if (run->leases[l].lease)
				return 1;
	return error == CAIRN_E_IO && run_troubled(run);
}

/* What a save made durable: its blocks and its tail. */
static void save_durable(struct run *run, int32_t number)
{
	struct block *block = &run->blocks[number];
	for (uint32_t p = 0; p < block->nparts; p++) {
		struct part *part = &block->parts[p];
		if (!part->flash) {
			if (part->memory && part->removed_op != run->op)
				run_fail(run, "save: block %d part %u is in memory alone", number, p);
			continue;
		}
		model_must(run, part);
	}
}

static int32_t save_tail(struct run *run, struct saved *saved, struct cairn_item *item, struct cairn_buf *buf)
{
	saved->tail = -1;
	struct block *block = percent(run, 60) ? block_new(run, saved->space, saved->chain[saved->nchain - 1], 1) : NULL;
	if (!block)
		return -1;
	struct part *part = &block->parts[0];
	uint32_t length = part_length(run, block, part, 0);
	part_fill(part, 0, run->arena, length);
	*buf = cairn_buf_of(run->arena, length);
	*item = (struct cairn_item){.key = block->key, .parent = &run->blocks[block->parent].key, .bufs = buf, .nbufs = 1};
	part->allowed = 1;
	block->nparts = 1;
	return saved->tail = (int32_t)block_number(run, block);
}

static void draw_saved(struct run *run, struct session *session, int32_t last, struct saved *saved)
{
	memset(saved, 0, sizeof(*saved));
	saved->nchain = block_path(run, last, saved->chain);
	saved->space = run->blocks[last].space;
	saved->tokens = random_next(&run->random);
	saved->state_seed = random_next(&run->random);
	saved->state_bytes = percent(run, 50) ? 0 : pick(run, percent(run, 10) ? 200000 : 2000);
	saved->pinned = (uint8_t)percent(run, 20);
	saved->durable = !percent(run, 15);
	(void)session;
}

void op_save(struct run *run)
{
	static uint8_t state[200000];
	uint32_t index = pick(run, SESSIONS);
	struct session *session = &run->sessions[index];
	struct saved saved;
	int32_t last = -1;
	for (int tries = 0; tries < 60 && last < 0 && run->nblocks; tries++) {
		uint32_t number = pick(run, run->nblocks);
		if (!run->blocks[number].tail && run->spaces[run->blocks[number].space].tenant == session->tenant &&
		    (block_there(run, &run->blocks[number]) || percent(run, 5)))
			last = (int32_t)number;
	}
	if (last < 0)
		return;
	draw_saved(run, session, last, &saved);
	cairn_key keys[PATH];
	for (uint32_t i = 0; i < saved.nchain; i++)
		keys[i] = run->blocks[saved.chain[i]].key;
	struct cairn_item tail;
	struct cairn_buf buf;
	int32_t tail_block = save_tail(run, &saved, &tail, &buf);
	struct cairn_chain chain = {.keys = keys, .nkeys = saved.nchain};
	uint64_t ttl_s = percent(run, 25) ? 1 + pick(run, 400) : 0;
	pattern_fill(saved.state_seed, state, saved.state_bytes);
	struct cairn_save save = {
	    .size = sizeof(save), .name = name_of(run, index), .chains = &chain, .nchains = 1,
	    .tails = &tail, .ntails = tail_block >= 0, .state = state, .state_bytes = saved.state_bytes,
	    .tokens = saved.tokens, .ttl_s = ttl_s, .pin = saved.pinned,
	    .durability = saved.durable ? CAIRN_DURABLE_DEFAULT : CAIRN_DURABLE_NONE,
	};
	run_note(run, "save session %u: %u blocks up to %d, tail %d, ttl %llu, pin %u, durable %u", index, saved.nchain,
	         last, tail_block, (unsigned long long)ttl_s, saved.pinned, saved.durable);
	run->decisions++;
	run->put_bytes += 3 * 65536;
	run_begin(run);
	int error = cairn_session_save(run->store, run->spaces[saved.space].handle, &save);
	run_end(run, "save");
	run->tally->saves++;
	if (tail_block >= 0) {
		struct part *part = &run->blocks[tail_block].parts[0];
		if (part->stored_op == run->op)
			part->current = 0;
		else
			part->allowed = 0;
		run->put_bytes += (part->length + 3 * 4096u) / 4096 * 4096;
	}
	if (run->readonly) {
		if (error != CAIRN_E_RDONLY)
			run_fail(run, "save into a store that is open read-only: %d", error);
		return;
	}
	saved.expires_low_s = ttl_s ? run->op_wall_s + ttl_s : 0;
	saved.expires_high_s = ttl_s ? run_wall(run) + ttl_s : 0;
	saved.expires_ns = run->op_ns + (ttl_s - (ttl_s > 0)) * 1000000000ull;
	if (error) {
		if (!save_excused(run, error, &saved, saved.pinned || ttl_s))
			run_fail(run, "save: session %u: %s: %s", index, cairn_status_name(error), cairn_error_text());
		run_note(run, "  %s", cairn_status_name(error));
		add(session, &saved);
		return;
	}
	/* Acknowledged by one device while another failed; which may be the one that stays when the first leaves. */
	if (run->config.ndevices > 1 && run->config.away && run_troubled(run))
		add(session, &saved);
	else
		set(session, &saved);
	for (uint32_t i = 0; saved.durable && i < saved.nchain; i++)
		save_durable(run, saved.chain[i]);
	if (saved.durable && tail_block >= 0)
		save_durable(run, tail_block);
}

/* ---- resume ---------------------------------------------------------------------------------------------------- */

static int resumed_is(struct run *run, const struct saved *saved, const cairn_session *session)
{
	struct cairn_session_info info;
	struct cairn_chain chain;
	struct cairn_tail_info tail;
	uint64_t state_bytes;
	cairn_session_get_info(session, &info);
	const void *state = cairn_session_state(session, &state_bytes);
	if (info.tokens != saved->tokens || info.pinned != saved->pinned || info.nchains != 1 ||
	    info.ntails != (saved->tail >= 0) || state_bytes != saved->state_bytes ||
	    !pattern_same(saved->state_seed, state, state_bytes) ||
	    memcmp(&info.space_id, &run->spaces[saved->space].id, 32) || info.expires_at_s < saved->expires_low_s ||
	    info.expires_at_s > saved->expires_high_s)
		return 0;
	if (cairn_session_chain(session, 0, &chain) || chain.nkeys != saved->nchain || chain.group)
		return 0;
	for (uint32_t i = 0; i < saved->nchain; i++)
		if (memcmp(&chain.keys[i], &run->blocks[saved->chain[i]].key, 32))
			return 0;
	if (saved->tail >= 0) {
		const struct block *block = &run->blocks[saved->tail];
		if (cairn_session_tail(session, 0, &tail) || memcmp(&tail.key, &block->key, 32) || tail.part ||
		    tail.bytes != block->parts[0].length)
			return 0;
	}
	return 1;
}

/* Whether there may be none now. */
static int none_excused(const struct run *run, const struct session *session)
{
	int none = session->may_none || session->may_lost || !session->n || run->gone || run->shaky;
	for (uint32_t i = 0; i < session->n; i++)
		none |= session->may[i].expired ||
		        (session->may[i].expires_low_s && run_wall(run) >= session->may[i].expires_low_s);
	return none;
}

void session_resume_check(struct run *run, uint32_t index)
{
	struct session *session = &run->sessions[index];
	struct cairn_session_name name = name_of(run, index);
	cairn_session *resumed = NULL;
	run_begin(run);
	int status = cairn_session_resume(run->store, &name, &resumed);
	run_end(run, "resume");
	run->tally->resumes++;
	int excused = 0, matched = -1;
	switch (status) {
	case 0:
		for (uint32_t i = 0; i < session->n && matched < 0; i++)
			if (resumed_is(run, &session->may[i], resumed))
				matched = (int)i;
		cairn_session_free(resumed);
		if (matched < 0)
			run_fail(run, "resume: session %u is not what was saved%s", index, session->n ? "" : " (there is none)");
		if (session->may[matched].expires_high_s && run->op_wall_s >= session->may[matched].expires_high_s)
			run_fail(run, "resume: session %u had expired", index);
		excused = 1;
		break;
	case CAIRN_E_NOENT:
		excused = none_excused(run, session);
		break;
	case CAIRN_DAMAGED:
		/* One that was forgotten is known to a ledger that missed it, or lost it; its manifest is not believed. */
		excused = session->n ? session->may_lost || run->gone || run->shaky || run->config.chaos || run->config.damage
		                     : run->doubted || run->config.chaos;
		break;
	default:
		excused = run_troubled(run);
	}
	if (!excused)
		run_fail(run, "resume: session %u: %s: %s", index, cairn_status_name(status), cairn_error_text());
	tick(run, session);
}

void op_resume(struct run *run)
{
	uint32_t index = pick(run, SESSIONS);
	run_note(run, "resume session %u", index);
	session_resume_check(run, index);
}

/* ---- forget, pin, list ----------------------------------------------------------------------------------------- */

void op_forget(struct run *run)
{
	uint32_t index = pick(run, SESSIONS);
	struct session *session = &run->sessions[index];
	struct cairn_session_name name = name_of(run, index);
	run_note(run, "forget session %u", index);
	run->decisions++;
	run_begin(run);
	int error = cairn_session_forget(run->store, &name);
	run_end(run, "forget");
	if (run->readonly)
		return error == CAIRN_E_RDONLY ? (void)0 : run_fail(run, "forget in a store that is open read-only: %d", error);
	if (error == CAIRN_E_NOENT) {
		if (!none_excused(run, session))
			run_fail(run, "forget: session %u: there is none", index);
		return; /* not said to be gone: a device may bring it back */
	}
	run->missed |= (uint32_t)run->gone;
	if (error && !run_troubled(run))
		run_fail(run, "forget: session %u: %s", index, cairn_status_name(error));
	if (!error && !session->n)
		run_fail(run, "forget: session %u was there, and none was saved", index);
	if (error)
		session->may_none = 1;
	else
		set(session, NULL);
}

void op_pin(struct run *run)
{
	uint32_t index = pick(run, SESSIONS);
	struct session *session = &run->sessions[index];
	struct cairn_session_name name = name_of(run, index);
	uint32_t pin = pick(run, 2);
	uint64_t ttl_s = percent(run, 40) ? 1 + pick(run, 300) : 0;
	if (!certain(session))
		return;
	run_note(run, "pin %u session %u, ttl %llu", pin, index, (unsigned long long)ttl_s);
	run->decisions++;
	run_begin(run);
	int error = cairn_session_pin(run->store, &name, pin, ttl_s);
	run_end(run, "pin");
	struct saved saved = session->may[0];
	saved.pinned = (uint8_t)pin;
	saved.expires_low_s = ttl_s ? run->op_wall_s + ttl_s : 0;
	saved.expires_high_s = ttl_s ? run_wall(run) + ttl_s : 0;
	saved.expires_ns = run->op_ns + (ttl_s - (ttl_s > 0)) * 1000000000ull;
	saved.expired = 0;
	if (run->readonly)
		return error == CAIRN_E_RDONLY ? (void)0 : run_fail(run, "pin in a store that is open read-only: %d", error);
	if (!error) {
		set(session, &saved);
		return;
	}
	if (error == CAIRN_E_NOENT && none_excused(run, session))
		return;
	if (error == CAIRN_E_QUOTA && (pin || ttl_s))
		return;
	if (!run_troubled(run) &&
	    !(error == CAIRN_DAMAGED && (run->gone || run->shaky || run->config.damage || run->config.chaos)) &&
	    !(error == CAIRN_E_FULL && run->decisions > 60))
		run_fail(run, "pin: session %u: %s: %s", index, cairn_status_name(error), cairn_error_text());
	add(session, &saved);
}

static int count_one(void *arg, const struct cairn_session_info *info)
{
	(void)info;
	(*(long *)arg)++;
	return 0;
}

void op_session_list(struct run *run)
{
	long counted = 0, least = 0, most = 0;
	run_begin(run);
	long listed = cairn_session_list(run->store, NULL, count_one, &counted);
	run_end(run, "session list");
	for (uint32_t s = 0; s < SESSIONS; s++) {
		const struct session *session = &run->sessions[s];
		most += session->n > 0;
		least += certain(session) && !none_excused(run, session);
	}
	if (listed != counted || (counted < least && !run_troubled(run) && !run->config.chaos && !run->config.damage) ||
	    counted > most)
		run_fail(run, "session list: %ld (%ld), and there are %ld to %ld", listed, counted, least, most);
}
