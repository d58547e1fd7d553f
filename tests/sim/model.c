/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model: for each part the versions that may be served, which one is there, and whether it must be. It follows the
 * store's event log, and says what of it must not be.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/run.h"

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

uint64_t pattern_mix(uint64_t a, uint64_t b)
{
	uint64_t z = (a ^ b * 0x9e3779b97f4a7c15ull) + 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static uint64_t pattern_next(uint64_t *x)
{
	*x = *x * 6364136223846793005ull + 1442695040888963407ull;
	return *x ^ *x >> 29;
}

void pattern_fill(uint64_t seed, uint8_t *to, size_t length)
{
	uint64_t x = seed;
	for (; length >= 8; to += 8, length -= 8) {
		uint64_t word = pattern_next(&x);
		memcpy(to, &word, 8);
	}
	uint64_t word = pattern_next(&x);
	memcpy(to, &word, length);
}

int pattern_same(uint64_t seed, const uint8_t *bytes, size_t length)
{
	uint64_t x = seed;
	for (; length >= 8; bytes += 8, length -= 8) {
		uint64_t word = pattern_next(&x);
		if (memcmp(bytes, &word, 8))
			return 0;
	}
	uint64_t word = pattern_next(&x);
	return !memcmp(bytes, &word, length);
}

/* Now and then a version has another length; never where the space declares one. */
uint32_t part_length(const struct run *run, const struct block *block, const struct part *part, int32_t version)
{
	if (run->spaces[block->space].block_bytes && !block->tail)
		return run->spaces[block->space].block_bytes;
	return version % 4 == 3 && part->length < PART_BYTES - 8 ? part->length + 1 + (uint32_t)version % 7 : part->length;
}

void part_fill(const struct part *part, int32_t version, uint8_t *to, size_t length)
{
	pattern_fill(pattern_mix(part->seed, (uint64_t)version), to, length);
}

int32_t part_version(const struct run *run, const struct block *block, const struct part *part, const uint8_t *bytes,
                     uint64_t length)
{
	for (int32_t v = VERSIONS; v-- > 0;) /* of single bytes several versions are the same: the known one then */
		if (v == part->current && part_length(run, block, part, v) == length &&
		    pattern_same(pattern_mix(part->seed, (uint64_t)v), bytes, length))
			return v;
	for (int32_t v = 0; v < VERSIONS; v++)
		if ((part->allowed >> v & 1) && part_length(run, block, part, v) == length &&
		    pattern_same(pattern_mix(part->seed, (uint64_t)v), bytes, length))
			return v;
	return -1;
}

/* ---- blocks ---------------------------------------------------------------------------------------------------- */

static uint32_t draw_length(struct run *run)
{
	uint32_t most = run->config.part_bytes;
	switch (pick(run, 10)) {
	case 0:
		return 1 + pick(run, 64);
	case 1:
		return 4096 * (1 + pick(run, most / 4096 + 1));
	case 2:
		return most / 2 + pick(run, most / 2 + 1);
	default:
		return 1 + pick(run, most / 4);
	}
}

struct block *block_new(struct run *run, uint32_t space, int32_t parent, int tail)
{
	if (run->nblocks == BLOCKS)
		return NULL;
	uint32_t number = run->nblocks++;
	struct block *block = &run->blocks[number];
	memset(block, 0, sizeof(*block));
	pattern_fill(pattern_mix(run->seed, 77777 + number), block->key.bytes, 32);
	memcpy(block->key.bytes, &number, 4);
	block->space = (uint8_t)space;
	block->tail = (uint8_t)tail;
	block->nparts = run->spaces[space].nparts;
	block->parent = parent;
	for (uint32_t i = 0; i < block->nparts; i++) {
		struct part *part = &block->parts[i];
		part->seed = pattern_mix(run->seed, (uint64_t)number * 64 + i);
		part->length = run->spaces[space].block_bytes && !tail ? run->spaces[space].block_bytes : draw_length(run);
		part->current = part->must_version = -1;
	}
	return block;
}

int block_there(const struct run *run, const struct block *block)
{
	int any = 0;
	for (uint32_t i = 0; i < block->nparts; i++) {
		int optional = run->spaces[block->space].optional && i + 1 == block->nparts;
		if (!part_there(&block->parts[i]) && !optional)
			return 0;
		any |= part_there(&block->parts[i]);
	}
	return any;
}

uint32_t block_path(struct run *run, int32_t last, int32_t path[PATH])
{
	uint32_t n = 0;
	for (int32_t at = last; at >= 0 && n < PATH; at = run->blocks[at].parent)
		n++;
	uint32_t i = n;
	for (int32_t at = last; i > 0; at = run->blocks[at].parent)
		path[--i] = at;
	return n;
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

/* Whether an ancestor may be gone, so that the block is an orphan. */
static int orphan_excused(const struct run *run, const struct block *block)
{
	for (int32_t at = block->parent; at >= 0; at = run->blocks[at].parent) {
		const struct block *above = &run->blocks[at];
		if (!block_there(run, above))
			return 1;
		for (uint32_t i = 0; i < above->nparts; i++)
			if (above->parts[i].removed_op == run->op)
				return 1;
	}
	return 0;
}

/* A part whose device is away is there, only not here. */
static int away_ancestor(const struct run *run, const struct block *block)
{
	if (!run->gone || run->shaky)
		return 0;
	int only_away = 0;
	for (int32_t at = block->parent; at >= 0; at = run->blocks[at].parent) {
		const struct block *above = &run->blocks[at];
		for (uint32_t i = 0; i < above->nparts; i++) {
			if (part_there(&above->parts[i]))
				continue;
			if (!above->parts[i].must)
				return 0;
			only_away = 1;
		}
	}
	return only_away;
}

static const char *reason(uint32_t why)
{
	return cairn_reason_name(why);
}

static void flash_removed(struct run *run, struct block *block, uint32_t index, uint32_t why)
{
	struct part *part = &block->parts[index];
	uint32_t number = block_number(run, block);
	int damage = run->config.chaos || run->config.damage || run->config.errors.rot_read_ppm;
	part->removed_reason = (uint8_t)why;
	switch (why) {
	case CAIRN_WHY_EVICTED:
		if (run_roomy(run) && !run->dead)
			run_fail(run, "block %u part %u was evicted from flash, though there is room", number, index);
		run->tally->evicted++;
		break;
	case CAIRN_WHY_DAMAGED:
		if (!damage)
			run_fail(run, "block %u part %u is said to be damaged, and nothing was damaged", number, index);
		break;
	case CAIRN_WHY_DEVICE:
		if (run->opening && run->gone)
			return; /* its device failed while opening: it is away, with what it has */
		if (!run_troubled(run) && !run->config.chaos)
			run_fail(run, "block %u part %u was withdrawn, and no I/O failed", number, index);
		if (run->gone)
			return; /* what was durable may be another copy, which is away */
		if (part->must && !run->config.chaos)
			run_fail(run, "block %u part %u was durable and is withdrawn", number, index);
		break;
	case CAIRN_WHY_ORPHAN:
		if (away_ancestor(run, block))
			run_fail(run, "block %u part %u was removed as an orphan: its head is only away", number, index);
		if (!orphan_excused(run, block) && !run->gone && !run->shaky)
			run_fail(run, "block %u part %u was removed as an orphan: its chain is whole", number, index);
		break;
	case CAIRN_WHY_DROPPED:
		break;
	default:
		run_fail(run, "block %u part %u left flash as \"%s\"", number, index, reason(why));
	}
	int optional = run->spaces[block->space].optional && index + 1u == block->nparts; /* may have come after the save */
	if ((why == CAIRN_WHY_EVICTED || why == CAIRN_WHY_ORPHAN) && !run->dead && !optional && session_keeps(run, block))
		run_fail(run, "block %u part %u of a kept session left flash as \"%s\"", number, index, reason(why));
	part->must = 0;
}

/* Gone from every tier: a match that holds it was broken. */
static void part_lost(struct run *run, struct block *block, uint32_t index, uint32_t why)
{
	int32_t number = (int32_t)block_number(run, block);
	if (why != CAIRN_WHY_EVICTED && why != CAIRN_WHY_ORPHAN) {
		/* Put again it is another part, and held and kept by nobody. */
		session_block_dropped(run, number);
		for (int m = 0; m < MATCHES; m++)
			for (uint32_t i = 0; i < run->matches[m].nblocks; i++)
				run->matches[m].dropped |= (uint32_t)(run->matches[m].blocks[i] == number) << i;
		return;
	}
	for (int m = 0; m < MATCHES && !run->dead; m++)
		for (uint32_t i = 0; run->matches[m].match && i < run->matches[m].nblocks; i++)
			if (run->matches[m].blocks[i] == number && !(run->matches[m].dropped >> i & 1) &&
			    (run->matches[m].parts[i] >> index & 1) &&
			    run_now(run) < run->matches[m].deadline_ns)
				run_fail(run, "block %u part %u is held by a match, and left as \"%s\"", block_number(run, block),
				         index, reason(why));
}

static void event(struct run *run, const struct cairn_event *e)
{
	uint32_t number;
	memcpy(&number, e->key_prefix, 4);
	if (number >= run->nblocks || memcmp(run->blocks[number].key.bytes, e->key_prefix, 16))
		return; /* a manifest */
	struct block *block = &run->blocks[number];
	if (e->part >= block->nparts)
		run_fail(run, "an event names part %u of block %u", e->part, number);
	if (memcmp(run->spaces[block->space].id.bytes, e->space_id.bytes, 32))
		run_fail(run, "an event names block %u in another space", number);
	struct part *part = &block->parts[e->part];
	uint8_t *tier = e->tier == CAIRN_TIER_MEMORY ? &part->memory : &part->flash;
	if (run->verbose > 1)
		run_note(run, "  block %u part %u %s %s %s", number, e->part, e->kind == CAIRN_EVENT_STORED ? "into" : "out of",
		         e->tier == CAIRN_TIER_MEMORY ? "memory" : "flash", e->reason ? reason(e->reason) : "");
	if (e->kind == CAIRN_EVENT_STORED) {
		if (!part->allowed)
			run_fail(run, "block %u part %u was dropped, or never put, and is stored", number, e->part);
		*tier = 1;
		part->stored_op = run->op;
		limits_event(run, block, e);
		return;
	}
	limits_event(run, block, e); /* before the event is in the model */
	if (!*tier)
		run_fail(run, "block %u part %u left tier %u, where it was not", number, e->part, e->tier);
	*tier = 0;
	part->removed_op = run->op;
	if (e->tier == CAIRN_TIER_FLASH)
		flash_removed(run, block, e->part, e->reason);
	if (!part_there(part))
		part_lost(run, block, e->part, e->reason);
}

void model_events(struct run *run)
{
	static struct cairn_event events[1024];
	long n;
	while ((n = cairn_events(run->store, run->event_last, events, 1024)) > 0)
		for (long i = 0; i < n; i++) {
			if (events[i].sequence != run->event_last + 1)
				run_fail(run, "events are missing");
			run->event_last = events[i].sequence;
			event(run, &events[i]);
		}
}

/* ---- judgements ------------------------------------------------------------------------------------------------ */

void model_doubt(struct run *run)
{
	run_note(run, "  all that is there missed decisions");
	for (uint32_t b = 0; b < run->nblocks; b++)
		for (uint32_t i = 0; i < run->blocks[b].nparts; i++)
			run->blocks[b].parts[i].must = 0;
	run->doubted = 1;
	sessions_doubt(run);
}

/* After an open: what must be there is. */
void model_opened(struct run *run)
{
	for (uint32_t b = 0; b < run->nblocks; b++)
		for (uint32_t i = 0; i < run->blocks[b].nparts; i++) {
			struct part *part = &run->blocks[b].parts[i];
			part->memory = part->flash = 0;
			part->current = -1;
		}
	run->event_last = 0;
	model_events(run);
	for (uint32_t b = 0; b < run->nblocks; b++)
		for (uint32_t i = 0; i < run->blocks[b].nparts; i++) {
			struct part *part = &run->blocks[b].parts[i];
			if (run->shaky) /* an older copy serves where the newer one is damaged */
				part->must_version = -1;
			if (!part->must || part->flash)
				continue;
			if (run->gone)
				continue; /* it may lie there */
			if (!run->shaky)
				run_fail(run, "block %u part %u was durable, and is not found again", b, i);
			part->must = 0;
		}
}

void model_served(struct run *run, struct block *block, uint32_t index, const uint8_t *bytes, uint64_t length,
                  const char *what)
{
	struct part *part = &block->parts[index];
	uint32_t number = block_number(run, block);
	if (!part->allowed)
		run_fail(run, "%s: block %u part %u was dropped, and is served", what, number, index);
	int32_t version = part_version(run, block, part, bytes, length);
	if (version < 0) {
		uint64_t allowed = part->allowed;
		part->allowed = UINT64_MAX;
		int32_t other = part_version(run, block, part, bytes, length);
		run_fail(run, "%s: block %u part %u: wrong bytes (%llu of them; those of version %d, and %llx may be)", what,
		         number, index, (unsigned long long)length, other, (unsigned long long)allowed);
	}
	if (length >= 8 && part->current >= 0 && version != part->current)
		run_fail(run, "%s: block %u part %u: version %d, the store has %d", what, number, index, version,
		         part->current);
	if (length >= 8 && part->must && part->must_version >= 0 && version != part->must_version && !run->gone)
		run_fail(run, "%s: block %u part %u: version %d, durable is %d", what, number, index, version,
		         part->must_version);
	if (part->current < 0 && length >= 8)
		part->current = version;
}

void model_drop(struct run *run, struct block *block, int certain)
{
	int32_t number = (int32_t)block_number(run, block);
	session_block_dropped(run, number);
	for (int m = 0; m < MATCHES; m++)
		for (uint32_t i = 0; i < run->matches[m].nblocks; i++)
			run->matches[m].dropped |= (uint32_t)(run->matches[m].blocks[i] == number) << i;
	for (uint32_t i = 0; i < block->nparts; i++) {
		struct part *part = &block->parts[i];
		part->must = 0;
		if (!certain)
			continue;
		if (part_there(part))
			run_fail(run, "block %u part %u was dropped, and no event says that it left", block_number(run, block), i);
		part->allowed = 0;
		part->current = -1;
	}
}

void model_must(struct run *run, struct part *part)
{
	part->must = 1;
	/* A newer one may lie on a device that is away. */
	part->must_version = run->gone ? -1 : part->current;
}

void model_durable_all(struct run *run)
{
	for (uint32_t b = 0; b < run->nblocks; b++)
		for (uint32_t i = 0; i < run->blocks[b].nparts; i++) {
			struct part *part = &run->blocks[b].parts[i];
			if (!part->flash)
				continue;
			model_must(run, part);
			run->tally->musts++;
		}
}
