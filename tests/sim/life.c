/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the store: its shape, open, close, crash, devices that go and come, damage, full disks, time. */
#include <stdlib.h>
#include <string.h>

#include "fmt/segment.h"
#include "sim/run.h"
#include "store/store.h"
#include "tier/flash_in.h"

#define PLACE "dir:/store"
#define IDENT "/store/cairn.id"

/* ---- the shape of a run ---------------------------------------------------------------------------------------- */

static void draw_faults(struct run *run, struct config *config)
{
	struct sim_faults *errors = &config->errors;
	errors->delay_ns_max = percent(run, 30) ? 20000000 : 0;
	uint32_t kind = pick(run, 100);
	config->crashes = percent(run, 80) ? 60 : 0;
	config->away = config->ndevices > 1 && percent(run, 50);
	if (kind < 35)
		return;
	if (kind < 55) {
		config->faults = 1;
		uint32_t rate = percent(run, 50) ? 2000 : 30000;
		errors->read_error_ppm = percent(run, 50) ? rate : 0;
		errors->write_error_ppm = percent(run, 50) ? rate : 0;
		errors->flush_error_ppm = percent(run, 50) ? rate : 0;
		errors->short_ppm = rate;
		errors->slow_ppm = percent(run, 30) ? rate / 10 : 0;
	} else if (kind < 65) {
		config->faults = 1;
		errors->flush_error_ppm = 100000;
	} else if (kind < 75) {
		config->full = 1;
	} else if (kind < 87) {
		config->damage = 1;
	} else {
		config->chaos = 1;
		errors->rot_read_ppm = percent(run, 50) ? 3000 : 0;
		errors->rot_rest_ppm = percent(run, 50) ? 3000 : 0;
		errors->lost_write_ppm = percent(run, 30) ? 1000 : 0;
		errors->misdirect_ppm = percent(run, 30) ? 1000 : 0;
		errors->short_ppm = 3000;
	}
}

void life_start(struct run *run)
{
	struct config *config = &run->config;
	config->ndevices = percent(run, 60) ? 1 : 2 + pick(run, DEVICES - 1);
	for (uint32_t i = 0; i < config->ndevices; i++) {
		config->budget_bytes[i] = (percent(run, 60) ? 8 + pick(run, 12) : 24 + pick(run, 41)) * (1ull << 20);
		memcpy(run->paths[i], "/dev/flash0", 12);
		run->paths[i][10] = (char)('0' + i);
	}
	config->memory_bytes = (percent(run, 85) ? 8 : 8 + pick(run, 25)) * (1ull << 20);
	config->catalog_bytes = percent(run, 12) ? 62 * (40 + pick(run, 200)) : 1 << 20;
	config->nspaces = 1 + pick(run, SPACES);
	config->ntenants = 1 + pick(run, 3);
	config->part_bytes = percent(run, 15) ? 400000 : percent(run, 30) ? 16384 : 100000;
	config->free_floor_bytes = 1 << 20;
	/* Not drawn, so that seeds stay what they were: one in four has a budget, tight or wide. */
	config->write_bytes_day = run->seed % 4 == 3 ? 1ull << (30 + run->seed / 4 % 16) : 0;
	draw_faults(run, config);
	limits_start(run);
	for (uint32_t s = 0; s < SESSIONS; s++) {
		run->sessions[s].tenant = (uint8_t)(s % config->ntenants);
		run->sessions[s].may_none = 1;
	}
	for (uint32_t i = 0; i < config->nspaces; i++) {
		struct space *space = &run->spaces[i];
		space->tenant = (uint8_t)(i % config->ntenants);
		space->nparts = (uint8_t)(1 + (percent(run, 40) ? pick(run, PARTS) : 0));
		space->optional = space->nparts > 1 && percent(run, 40);
		space->block_bytes = percent(run, 40) ? 1 + pick(run, config->part_bytes) : 0;
	}
	run_note(run,
	         "%u devices (%u MiB ...), memory %u MiB, catalog %u, %u spaces, parts of %u bytes, crashes %u%%%s%s%s%s"
	         "%s%s%s",
	         config->ndevices, (unsigned)(config->budget_bytes[0] >> 20), (unsigned)(config->memory_bytes >> 20),
	         (unsigned)(config->catalog_bytes / 62), config->nspaces, config->part_bytes, config->crashes,
	         config->faults ? ", I/O errors" : "", config->full ? ", full disks" : "", config->damage ? ", damage" : "",
	         config->chaos ? ", chaos" : "", config->away ? ", devices leave" : "",
	         config->write_bytes_day ? ", a write budget" : "", config->limited ? ", limits of tenants" : "");
}

static void space_describe(struct run *run, uint32_t index)
{
	struct space *space = &run->spaces[index];
	static const cairn_digest weights = {{1}};
	struct cairn_part parts[PARTS] = {{.name = "rank0"}, {.name = "rank1"}, {.name = "rank2"}};
	char tenant[3] = {'t', (char)('0' + space->tenant), 0}, model[3] = {'m', (char)('0' + index), 0};
	parts[space->nparts - 1].optional = space->optional;
	struct cairn_space_desc desc = {
	    .size = sizeof(desc), .tenant = tenant, .model = model, .weights = &weights, .kv_dtype = "f16",
	    .block_tokens = BLOCK_TOKENS, .block_bytes = space->block_bytes, .parts = parts, .nparts = space->nparts,
	};
	run_begin(run);
	int error = cairn_describe(run->store, &desc, &space->handle);
	run_end(run, "describe");
	if (error)
		run_fail(run, "describe: %s: %s", cairn_status_name(error), cairn_error_text());
	cairn_space_get_id(space->handle, &space->id);
}

/* ---- open ------------------------------------------------------------------------------------------------------ */

void life_faults(struct run *run, int on)
{
	static const struct sim_faults none;
	sim_set_faults(run->world, NULL, on ? &run->config.errors : &none);
}

static uint64_t troubles(const struct run *run)
{
	const struct sim_stats *s = sim_stats(run->world);
	return s->read_errors + s->write_errors + s->flush_errors + s->failed + s->full + s->rot_read + s->slow;
}

static void opened(struct run *run, int clean)
{
	struct cairn_stat stat = {.size = sizeof(stat)};
	if (cairn_stat(run->store, &stat))
		run_fail(run, "stat: %s", cairn_error_text());
	run->gone = 0;
	for (uint32_t i = 0; i < stat.ndevices; i++) {
		int away = i < DEVICES && run->away[i].bytes;
		if (stat.device[i].state == 2 && !away && clean && !run->config.chaos)
			run_fail(run, "device %u is gone, and it is there", i);
		if (stat.device[i].state == 2)
			run->gone |= 1 << i;
	}
	/* Where all that are there missed decisions, nothing of theirs is believed. */
	uint32_t here = ((1u << run->config.ndevices) - 1) & ~(uint32_t)run->gone;
	int doubt = here && (!(here & ~run->missed) || (stat.doubtful_parts && (here & run->missed)));
	if (stat.doubtful_parts && clean && !run->shaky && !run->config.chaos && !doubt)
		run_fail(run, "%llu parts are doubtful, and nothing was damaged", (unsigned long long)stat.doubtful_parts);
	int was = run->shaky, catalog_full = stat.tier[CAIRN_TIER_FLASH].evicted_parts > 0;
	run->unsettled = !clean || catalog_full;
	run->shaky |= !clean || run->unseen || catalog_full || run->config.chaos;
	if (doubt)
		model_doubt(run);
	run->opening = 1;
	model_opened(run);
	run->opening = 0;
	run->missed &= run->readonly ? ~0u : ~here;
	run->shaky = was;
	run->unseen = 0;
}

void life_open(struct run *run, uint32_t flags)
{
	const struct config *config = &run->config;
	struct cairn_flash flash[DEVICES];
	for (uint32_t i = 0; i < config->ndevices; i++)
		flash[i] = (struct cairn_flash){run->paths[i], config->budget_bytes[i]};
	struct cairn_tenant_limits limits[TENANTS];
	struct cairn_options options = {
	    .size = sizeof(options), .flags = CAIRN_OPEN_CREATE | flags, .memory_bytes = config->memory_bytes,
	    .catalog_bytes = config->catalog_bytes, .flash = flash, .nflash = config->ndevices,
	    .free_floor_bytes = config->free_floor_bytes, .segment_bytes = 1 << 20, .pin_share_percent = 30 + pick(run, 40),
	    .flash_write_bytes_day = config->write_bytes_day,
	    .tenants = limits,
	    .ntenants = limits_of(run, limits),
	};
	int faulty = run->tally && run->step && percent(run, 30);
	int crashing = run->step && config->crashes && !faulty && percent(run, 15);
	for (int tries = 0;; tries++) {
		uint64_t before = troubles(run), deaths = run->deaths;
		life_faults(run, faulty && !tries);
		if (tries)
			sim_fail_at(run->world, 0, 0);
		if (!run->armed || tries || run->deaths)
			sim_crash_at(run->world, crashing && !tries ? 1 + pick(run, 60) : 0,
			             crashing && !tries && percent(run, 50));
		run_note(run, "open%s%s%s", flags & CAIRN_OPEN_READONLY ? " read-only" : "",
		         faulty && !tries ? ", with faults" : "", crashing && !tries ? ", a crash is near" : "");
		run->store = NULL;
		uint64_t writes = sim_stats(run->world)->writes, began = run_now(run);
		run->readonly = (flags & CAIRN_OPEN_READONLY) != 0;
		int error = store_open(PLACE, &options, &run->maker, &run->store);
		if (run_now(run) - began > 300000000000ull)
			run_fail(run, "open took %llu s", (unsigned long long)((run_now(run) - began) / 1000000000));
		const struct sim_stats *stats = sim_stats(run->world);
		run->deaths = stats->crashes + stats->kills;
		run->dead = run->deaths != deaths;
		run->op++;
		run->op_ns = began;
		if (run->readonly && stats->writes != writes)
			run_fail(run, "opening read-only wrote");
		int clean = troubles(run) == before && !run->dead;
		if (run->trouble_ns < run_now(run) + 10000000000ull && !clean)
			run->trouble_ns = run_now(run) + 10000000000ull;
		if (!error) {
			run->tally->opens++;
			opened(run, clean);
			break;
		}
		if (clean || tries > 2)
			run_fail(run, "open: %s: %s", cairn_status_name(error), cairn_error_text());
		run_note(run, "  %s", cairn_error_text());
		run->dead = 0;
	}
	limits_changed(run);
	for (uint32_t i = 0; i < config->nspaces && !run->dead; i++)
		space_describe(run, i);
	limits_changed(run);
	life_faults(run, 1);
}

/* ---- close ----------------------------------------------------------------------------------------------------- */

static int quiet(const struct run *run)
{
	for (uint32_t i = 0; i < run->store->ndevices; i++) {
		const struct flash *flash = run->store->devices[i].flash;
		if (flash && (flash->victim != UINT32_MAX || !list_empty(&flash->inbox) || !commit_idle(flash)))
			return 0;
	}
	return 1;
}

/* Lets evictions end while their events can still be read. */
static void settle(struct run *run)
{
	for (int round = 0; round < 200 && !run->dead && !quiet(run); round++) {
		run_begin(run);
		for (uint32_t i = 0; i < run->store->ndevices; i++)
			if (run->store->devices[i].flash)
				(void)run->store->devices[i].ops->step(run->store->devices[i].flash, 10000000);
		run_end(run, "step");
	}
}

void life_end(struct run *run, int crash)
{
	for (int i = 0; i < MATCHES; i++)
		match_end(run, &run->matches[i]);
	for (int i = 0; i < LEASES; i++)
		lease_end(run, &run->leases[i]);
	if (!crash && !run->dead)
		settle(run);
	if (crash && !run->dead) {
		if (percent(run, 50))
			sim_crash(run->world);
		else
			sim_kill(run->world);
		run->deaths++;
		run->dead = 1;
	}
	if (run->dead) {
		run_note(run, "it is dead");
		store_abandon(run->store);
		run->tally->crashes++;
		sessions_died(run);
	} else {
		run_note(run, "close");
		int settled = quiet(run);
		uint64_t before = troubles(run), began = run_now(run), writes = sim_stats(run->world)->writes;
		int error = cairn_close(run->store);
		int clean =
			troubles(run) == before && sim_stats(run->world)->crashes + sim_stats(run->world)->kills == run->deaths;
		if (error && clean && run_now(run) > run->trouble_ns)
			run_fail(run, "close: %s: %s", cairn_status_name(error), cairn_error_text());
		if (run_now(run) - began > 300000000000ull)
			run_fail(run, "close took %llu s", (unsigned long long)((run_now(run) - began) / 1000000000));
		if (run->readonly && writes != sim_stats(run->world)->writes)
			run_fail(run, "a store that was open read-only wrote");
		if (settled && !error && clean && !run->readonly && !run->gone)
			model_durable_all(run);
		run->unseen |= !settled;
		if (error || !clean || !settled)
			sessions_died(run);
	}
	run->deaths = sim_stats(run->world)->crashes + sim_stats(run->world)->kills;
	run->store = NULL;
	for (uint32_t i = 0; i < run->config.nspaces; i++)
		run->spaces[i].handle = NULL;
	run->dead = 0;
	if (run->armed)
		return;
	sim_crash_at(run->world, 0, 0);
	sim_fail_at(run->world, 0, 0);
}

static void space_set(struct run *run, uint64_t free_bytes)
{
	sim_set_space(run->world, free_bytes);
	run->free_bytes = free_bytes;
}

/* ---- devices that go and come, damage -------------------------------------------------------------------------- */

static void device_leave(struct run *run, uint32_t device)
{
	uint64_t length = 0;
	const uint8_t *bytes = sim_file_bytes(run->world, run->paths[device], &length);
	if (!bytes || run->away[device].bytes)
		return;
	run_note(run, "device %u goes away", device);
	run->away[device].bytes = malloc(length + 1);
	run->away[device].length = length;
	memcpy(run->away[device].bytes, bytes, length);
	(void)sim_remove(run->world, run->paths[device]);
	run->tally->aways++;
}

static void device_return(struct run *run, uint32_t device)
{
	struct io *io;
	if (!run->away[device].bytes)
		return;
	run_note(run, "device %u comes back", device);
	life_faults(run, 0);
	space_set(run, 1ull << 40);
	int error = run->maker.open(run->maker.arg, run->paths[device], IO_OPEN_CREATE, 1, &io);
	uint8_t *pages = aligned_alloc(4096, run->away[device].length);
	memcpy(pages, run->away[device].bytes, run->away[device].length);
	if (!error)
		error = io->ops->pwrite(io, pages, run->away[device].length, 0);
	if (!error)
		error = io->ops->sync(io);
	if (error)
		run_fail(run, "the simulator: a device cannot come back: %d", error);
	io->ops->close(io);
	free(pages);
	free(run->away[device].bytes);
	run->away[device].bytes = NULL;
}

static int device_label(struct run *run, uint32_t device, struct fmt_label *label)
{
	uint64_t length = 0;
	uint8_t *bytes = sim_file_bytes(run->world, run->paths[device], &length);
	return bytes && length > 8192 &&
	       (segment_label_decode(bytes, label) == FMT_OK || segment_label_decode(bytes + 4096, label) == FMT_OK);
}

static void rot(struct run *run, const char *path, uint64_t offset, uint64_t length)
{
	uint64_t size = 0;
	if (!sim_file_bytes(run->world, path, &size) || offset >= size)
		return;
	length = length < size - offset ? length : size - offset;
	sim_rot(run->world, path, offset, length);
}

/* Of one copy of something; nothing may be lost. A run damages always the same copy. */
static void damage_copy(struct run *run, uint32_t device)
{
	struct fmt_label label;
	uint64_t copy = run->seed & 1, size = 0;
	if (!device_label(run, device, &label))
		return;
	(void)sim_file_bytes(run->world, run->paths[device], &size);
	switch (pick(run, 4)) {
	case 0:
		run_note(run, "damage: copy %u of the label of device %u", (unsigned)copy, device);
		rot(run, run->paths[device], copy * 4096 + pick(run, 128), 1 + pick(run, 8));
		break;
	case 1:
		run_note(run, "damage: copy %u of ledger pages of device %u", (unsigned)copy, device);
		for (int i = 0; i < 12; i++) {
			uint64_t page = pick(run, percent(run, 70) ? 12 : label.ledger_bytes / 4096);
			rot(run, run->paths[device],
			    label.ledger_offset + (pick(run, 2) * 2 + copy) * label.ledger_bytes + page * 4096 + pick(run, 200), 1);
		}
		break;
	case 2:
		run_note(run, "damage: copy %u of the identity", (unsigned)copy);
		rot(run, IDENT, copy * 8192 + pick(run, 100), 1);
		break;
	default:
		run_note(run, "damage: trailers of device %u", device);
		for (uint64_t at = label.segments_offset + label.segment_bytes - 4096; at < size; at += label.segment_bytes)
			if (percent(run, 30))
				rot(run, run->paths[device], at + pick(run, 100), 1);
	}
	run->tally->damages++;
}

/* Both copies of a ledger page that is not the last of its area: that one cannot be told from a torn one, which a crash
 * leaves behind and which was not acknowledged. */
static void damage_ledger(struct run *run, uint32_t device)
{
	struct fmt_label label;
	uint64_t size = 0;
	if (!device_label(run, device, &label))
		return;
	const uint8_t *bytes = sim_file_bytes(run->world, run->paths[device], &size);
	uint32_t area = pick(run, 2), pages = 0;
	uint64_t start = label.ledger_offset + area * 2ull * label.ledger_bytes;
	while (pages < label.ledger_bytes / 4096 && !memcmp(bytes + start + pages * 4096ull, "CAIRNLED", 8) &&
	       !memcmp(bytes + start + pages * 4096ull + 48, bytes + start + 48, 8)) /* of one epoch */
		pages++;
	if (pages < 2)
		return;
	uint64_t page = pick(run, pages - 1);
	run_note(run, "damage: page %u of %u of ledger area %u of device %u", (unsigned)page, pages, area, device);
	for (uint64_t copy = 0; copy < 2; copy++)
		rot(run, run->paths[device], start + copy * label.ledger_bytes + page * 4096 + pick(run, 90), 3);
	run->shaky = 1;
	run->tally->damages++;
}

static void damage_any(struct run *run, uint32_t device)
{
	uint64_t size = 0;
	if (!sim_file_bytes(run->world, run->paths[device], &size) || size < 65536)
		return;
	run_note(run, "damage anywhere on device %u", device);
	for (uint32_t i = 0; i < 1 + pick(run, 20); i++) {
		uint64_t at = 8192 + random_below(&run->random, size - 8192);
		rot(run, run->paths[device], at, percent(run, 50) ? 1 : pick(run, 20000));
	}
	run->shaky = 1;
	run->tally->damages++;
}

void op_damage(struct run *run)
{
	uint32_t device = pick(run, run->config.ndevices);
	if (run->config.damage && percent(run, 50))
		damage_copy(run, device);
	if (run->config.chaos && percent(run, 40)) {
		if (percent(run, 50))
			damage_ledger(run, device);
		else
			damage_any(run, device);
	}
}

/* ---- operations ------------------------------------------------------------------------------------------------ */

void op_life(struct run *run)
{
	struct config *config = &run->config;
	life_end(run, percent(run, config->crashes));
	op_damage(run);
	for (uint32_t i = 0; i < config->ndevices; i++)
		if (run->away[i].bytes && percent(run, 50))
			device_return(run, i);
	if (config->away && percent(run, 40)) {
		uint32_t left = 0, device = pick(run, config->ndevices);
		for (uint32_t i = 0; i < config->ndevices; i++)
			left += !run->away[i].bytes && i != device;
		if (left)
			device_leave(run, device);
	}
	if (percent(run, 5)) {
		config->memory_bytes = (8 + pick(run, 12)) * (1ull << 20);
		uint32_t device = pick(run, config->ndevices);
		uint64_t budget = (8 + pick(run, 30)) * (1ull << 20);
		run->shrunk |= budget < config->budget_bytes[device];
		config->budget_bytes[device] = budget;
	}
	if (percent(run, 10)) {
		life_open(run, CAIRN_OPEN_READONLY);
		for (int i = 0; i < 5 && !run->dead; i++) {
			op_get(run);
			if (!run->dead)
				op_put(run);
			if (!run->dead)
				op_resume(run);
			if (!run->dead)
				op_drop(run);
		}
		life_end(run, percent(run, config->crashes));
	}
	life_open(run, 0);
}

void op_space(struct run *run)
{
	if (!run->config.full)
		return;
	uint64_t free_bytes = percent(run, 50) ? 1ull << 40 : pick(run, 8) * (1ull << 20);
	run_note(run, "%llu MiB are free", (unsigned long long)(free_bytes >> 20));
	space_set(run, free_bytes);
}

void op_time(struct run *run)
{
	if (percent(run, 50))
		sim_advance(run->world, random_below(&run->random, percent(run, 80) ? 5000000000ull : 120000000000ull));
	else
		sim_step_wall(run->world, (int64_t)pick(run, 600) - 200);
	run_note(run, "it is %llu", (unsigned long long)run_wall(run));
}

/* Faults stop: within seconds durable puts work again. */
void op_heal(struct run *run)
{
	if (!run->config.faults && !run->config.full)
		return;
	run_note(run, "faults stop");
	life_faults(run, 0);
	space_set(run, 1ull << 40);
	for (int second = 0; second < 12 && !run->dead; second++) {
		sim_advance(run->world, 1000000000);
		op_sync(run);
	}
	run->trouble_ns = 0;
	struct block *block = run->dead ? NULL : block_new(run, pick(run, run->config.nspaces), -1, 0);
	if (block) {
		int32_t number = (int32_t)block_number(run, block);
		op_put_items(run, &number, 1, CAIRN_DURABLE_FLASH, 0);
	}
	if (!run->dead)
		op_sync(run);
	life_faults(run, 1);
}

/* Budgets, and the space that the file system keeps. */
void life_limits(struct run *run)
{
	struct io *io;
	uint64_t size, free_bytes, all, budget = 65536;
	struct cairn_stat stat = {.size = sizeof(stat)};
	if (cairn_stat(run->store, &stat))
		run_fail(run, "stat: %s", cairn_error_text());
	if (stat.tier[CAIRN_TIER_MEMORY].used_bytes > stat.tier[CAIRN_TIER_MEMORY].capacity_bytes ||
	    stat.tier[CAIRN_TIER_MEMORY].capacity_bytes > run->config.memory_bytes)
		run_fail(run, "memory: %llu of %llu are used", (unsigned long long)stat.tier[CAIRN_TIER_MEMORY].used_bytes,
		         (unsigned long long)run->config.memory_bytes);
	if (run->maker.open(run->maker.arg, IDENT, IO_OPEN_READONLY, 1, &io))
		return;
	int error = io->ops->space(io, &size, &free_bytes, &all);
	io->ops->close(io);
	for (uint32_t i = 0; i < run->config.ndevices; i++)
		budget += run->config.budget_bytes[i] + (1 << 20);
	if (!error && all - free_bytes > budget && !run->shrunk && !run->config.chaos)
		run_fail(run, "the devices have %llu bytes, and may have %llu", (unsigned long long)(all - free_bytes),
		         (unsigned long long)budget);
	/* What the store does not take for segments is small. */
	uint64_t least = run->config.free_floor_bytes < run->free_bytes ? run->config.free_floor_bytes : run->free_bytes;
	if (!error && free_bytes + (256 << 10) < least)
		run_fail(run, "%llu bytes are free, and %llu must stay so", (unsigned long long)free_bytes,
		         (unsigned long long)least);
}

void life_done(struct run *run)
{
	for (uint32_t i = 0; i < DEVICES; i++)
		free(run->away[i].bytes);
}
