/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a store: the directory and its owner, the identity file, devices, reopen, loop threads, waiting.
 *
 * Threads: open and close run in the caller's; each device gets a loop thread where its I/O is threaded.
 * Invariant: whatever fails while opening, nothing that was in the directory before is changed or lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/directory.h"
#include "store/peer.h"
#include "store/reconcile.h"
#include "store/remote.h"
#include "store/store.h"

enum { CHORES_NS = 200000000, STORE_BUFFERS = 256 };
#define MEMORY_DEFAULT_BYTES (256ull << 20)
#define CATALOG_MIN_BYTES (16ull << 20)
#define CATALOG_MAX_BYTES (1ull << 30)
#define WATCH_CELLS_MIN 4096u
#define WATCH_CELLS_MAX 65536u
#define ADMIT_CELLS 65536u /* chains: 512 KiB */

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

uint64_t store_deadline(const cairn *store, uint32_t timeout_ms)
{
	return timeout_ms ? clock_mono_ns(store->clock) + (uint64_t)timeout_ms * 1000000 : UINT64_MAX;
}

void store_changed(cairn *store)
{
	pthread_cond_broadcast(&store->changed);
}

/* Under the lock. */
static int chores(cairn *store)
{
	match_expire(store);
	session_expire(store);
	for (uint32_t i = 0; i < store->ntenants; i++)
		down_ahead(store, i, 0);
	return entry_sweep(store);
}

int store_wait(cairn *store, uint64_t deadline_ns)
{
	uint64_t now = clock_mono_ns(store->clock);
	if (now >= deadline_ns)
		return CAIRN_E_LATE;
	if (store->maker->threaded) {
		uint64_t until = deadline_ns - now < 1000000000ull ? deadline_ns : now + 1000000000ull;
		struct timespec at = {.tv_sec = (time_t)(until / 1000000000ull), .tv_nsec = (long)(until % 1000000000ull)};
		pthread_cond_timedwait(&store->changed, &store->lock, &at);
		return 0;
	}
	/* Single-threaded: make what is waited for happen. */
	chores(store);
	pthread_mutex_unlock(&store->lock);
	int did = 0;
	for (uint32_t i = 0; i < store->ndevices; i++)
		if (store->devices[i].flash)
			did |= store->devices[i].ops->step(store->devices[i].flash, 0);
	for (uint32_t i = 0; i < store->ndevices && !did; i++)
		if (store->devices[i].flash)
			did |= store->devices[i].ops->step(store->devices[i].flash, 1000000);
	pthread_mutex_lock(&store->lock);
	return 0;
}

struct store_req *store_req_take(cairn *store, uint64_t deadline_ns)
{
	while (list_empty(&store->reqs_free))
		if (store_wait(store, deadline_ns))
			return NULL;
	struct store_req *req = LIST_OF(list_pop_front(&store->reqs_free), struct store_req, link);
	memset(&req->req, 0, sizeof(req->req));
	req->slot = req->tenant = 0;
	req->result = NULL;
	req->req.owner = req;
	store->reqs_used++;
	return req;
}

void store_req_drop(struct store_req *req)
{
	req->result = NULL;
	req->store->reqs_used--;
	if (req->tenant)
		req->store->tenants[req->tenant - 1].reqs--;
	list_push_front(&req->store->reqs_free, &req->link);
}

static void *loop_main(void *arg)
{
	struct device *device = arg;
	cairn *store = device->store;
	uint64_t chores_at = 0;
	for (;;) {
		pthread_mutex_lock(&store->lock);
		int stop = device->stop, more = 0;
		uint64_t now = clock_mono_ns(store->clock);
		if (now >= chores_at || store->sweep_wanted) {
			more = chores(store);
			chores_at = now + CHORES_NS;
		}
		pthread_mutex_unlock(&store->lock);
		if (stop) {
			device->ops->leave(device->flash);
			return NULL;
		}
		device->ops->step(device->flash, more ? 0 : CHORES_NS);
	}
}

static void loops_stop(cairn *store)
{
	for (uint32_t i = 0; i < store->ndevices; i++) {
		struct device *device = &store->devices[i];
		if (!device->running)
			continue;
		pthread_mutex_lock(&store->lock);
		device->stop = 1;
		pthread_mutex_unlock(&store->lock);
		device->ops->wake(device->flash);
		pthread_join(device->thread, NULL);
		device->running = 0;
	}
}

static int loops_start(cairn *store)
{
	for (uint32_t i = 0; i < store->ndevices && store->maker->threaded; i++) {
		struct device *device = &store->devices[i];
		if (!device->flash)
			continue;
		int error = pthread_create(&device->thread, NULL, loop_main, device);
		if (error)
			return err_set(CAIRN_E_NOMEM, "cannot start a thread for %s: %s", device->path, strerror(error));
		device->running = 1;
	}
	return 0;
}

int store_has_flash(const cairn *store)
{
	for (uint32_t i = 0; i < store->ndevices; i++)
		if (store->devices[i].flash)
			return 1;
	return 0;
}

/* ---- decisions and syncs on all devices -------------------------------------------------------------------------- */

static void fan_done(struct tier_req *tier)
{
	struct store_req *req = tier->owner;
	cairn *store = req->store;
	pthread_mutex_lock(&store->lock);
	if (req->result)
		*req->result = tier->result;
	store_req_drop(req);
	store_changed(store);
	pthread_mutex_unlock(&store->lock);
}

enum { FAN_PENDING = INT32_MAX };

struct fan {
	int32_t results[STORE_DECISIONS * STORE_DEVICES];
	struct store_req *reqs[STORE_DECISIONS * STORE_DEVICES];
	uint32_t n;
};

/* Sends a request (for each record, where there are some) to every device and waits for all. At the deadline they go on
 * without us. */
static int fan_out(cairn *store, uint32_t op, const struct ledger_record *records, size_t nrecords,
                   uint64_t deadline_ns)
{
	struct fan fan = {.n = 0};
	int error = 0, pending = 1;
	for (size_t r = 0; r < (records ? nrecords : 1) && !error; r++)
		for (uint32_t i = 0; i < store->ndevices; i++) {
			if (!store->devices[i].flash)
				continue;
			struct store_req *req = store_req_take(store, deadline_ns);
			if (!req) {
				error = CAIRN_E_LATE;
				break;
			}
			req->req.op = op;
			if (records)
				req->req.record = records[r];
			req->req.done = fan_done;
			req->device = i;
			fan.results[fan.n] = FAN_PENDING;
			req->result = &fan.results[fan.n];
			fan.reqs[fan.n++] = req;
			store->devices[i].ops->submit(store->devices[i].flash, &req->req);
		}
	while (!error && pending) {
		pending = 0;
		for (uint32_t i = 0; i < fan.n; i++)
			pending |= fan.results[i] == FAN_PENDING;
		if (pending)
			error = store_wait(store, deadline_ns);
	}
	for (uint32_t i = 0; i < fan.n && error; i++)
		if (fan.results[i] == FAN_PENDING)
			fan.reqs[i]->result = NULL;
	if (error)
		return error;
	/* What only adds (a session, a description) is safe with one device: the others are reconciled when they come back.
	 * What takes away must be known to all, since any of them may be the one that is left. */
	int adds = records && (records[0].type == LEDGER_SESSION || records[0].type == LEDGER_SPACE);
	uint32_t good = 0;
	for (uint32_t i = 0; i < fan.n; i++) {
		good += fan.results[i] == 0;
		/* A full ledger is an answer; a device that failed is one that will be reconciled. */
		error = error && !(fan.results[i] == CAIRN_E_FULL && error != CAIRN_E_FULL) ? error : fan.results[i];
	}
	return adds && good && error != CAIRN_E_FULL ? 0 : error;
}

/* What takes away is decided without a device that is away: remembered before it is, in the one file that is always
 * there, so that the device is not believed when it comes back alone. */
static int decide_without(cairn *store)
{
	int changed = 0;
	if (!store_has_flash(store) && store->ndevices)
		return err_set(CAIRN_E_IO, "the store has no flash device that works: what is decided now could not be kept");
	for (uint32_t i = 0; i < store->ndevices; i++) {
		uint32_t *flags = &store->ident.device[i].flags;
		changed |= !store->devices[i].flash && !(*flags & IDENT_DEVICE_MISSED);
		*flags |= store->devices[i].flash ? 0u : (uint32_t)IDENT_DEVICE_MISSED;
	}
	int error = changed ? directory_write_ident(store->path, store->maker, store->dir_fd, &store->ident, 0) : 0;
	for (uint32_t i = 0; i < store->ndevices && error; i++) /* again with the next one */
		if (!store->devices[i].flash)
			store->ident.device[i].flags &= ~(uint32_t)IDENT_DEVICE_MISSED;
	return error;
}

int store_decide_all(cairn *store, const struct ledger_record *records, size_t n)
{
	check(n <= STORE_DECISIONS);
	int error = 0;
	if (store->device_away && (records[0].type == LEDGER_DROP || records[0].type == LEDGER_FORGET))
		error = decide_without(store);
	if (error)
		return error;
	error = fan_out(store, TIER_DECIDE, records, n, UINT64_MAX);
	if (error == CAIRN_E_FULL)
		return err_set(error, "a device's ledger is full: forget sessions, or drop a space instead of its keys");
	if (error)
		return err_set(error, "the decision is not durable: a flash device failed");
	return 0;
}

int store_decide(cairn *store, const struct ledger_record *record)
{
	return store_decide_all(store, record, 1);
}

int store_sync(cairn *store, uint64_t deadline_ns)
{
	return fan_out(store, TIER_SYNC, NULL, 0, deadline_ns);
}

/* ---- options and devices ----------------------------------------------------------------------------------------- */

/* All of a raw block device; 0: `path` is none. */
static uint64_t raw_bytes(const cairn *store, const char *path)
{
	struct stat info;
	struct io *io;
	uint64_t size = 0, free, all;
	if (stat(path, &info) || !S_ISBLK(info.st_mode) ||
	    store->maker->open(store->maker->arg, path, IO_OPEN_READONLY | IO_OPEN_BLOCKING, 1, &io))
		return 0;
	if (io->ops->space(io, &size, &free, &all))
		size = 0;
	io->ops->close(io);
	return size;
}

static uint64_t budget_default(const cairn *store, const char *path)
{
	struct statvfs fs;
	char parent[PATH_MAX];
	if (!store->maker->threaded)
		return 64ull << 20;
	uint64_t raw = raw_bytes(store, path);
	if (raw)
		return raw;
	size_t length = strlen(path);
	while (length && path[length - 1] != '/')
		length--;
	memcpy(parent, path, length);
	memcpy(parent + length, ".", 2);
	if (statvfs(parent, &fs))
		return 1ull << 30;
	uint64_t half = (uint64_t)fs.f_bavail * fs.f_frsize / 2;
	return half < (64ull << 20) ? 64ull << 20 : half;
}

static int device_path(const cairn *store, uint32_t index, const char *path, char out[256])
{
	char whole[PATH_MAX + 32];
	struct stat info;
	whole[0] = 0;
	if (path && path[0]) {
		if (strlen(path) >= PATH_MAX)
			return err_set(CAIRN_E_INVAL, "a flash path is longer than %d bytes", PATH_MAX);
		strncat(whole, path, PATH_MAX);
		if (store->maker->threaded && !stat(path, &info) && S_ISDIR(info.st_mode))
			strncat(whole, "/flash.cairn", 16);
	} else {
		strncat(whole, store->path, PATH_MAX);
		strncat(whole, index ? "/flash-" : "/flash.cairn", 16);
		if (index) {
			char number[3] = {(char)('0' + index / 10), (char)('0' + index % 10), 0};
			strncat(whole, number, 3);
			strncat(whole, ".cairn", 8);
		}
	}
	if (strlen(whole) > 255)
		return err_set(CAIRN_E_INVAL, "%s: a flash path may have 255 bytes", whole);
	memcpy(out, whole, strlen(whole) + 1);
	return 0;
}

static int path_absolute(const char *given, char absolute[PATH_MAX])
{
	char here[PATH_MAX];
	if (!getcwd(here, sizeof(here)) || strlen(here) + strlen(given) + 2 > PATH_MAX)
		return err_set(CAIRN_E_INVAL, "%s: the flash path cannot be made absolute", given);
	size_t length = strlen(here);
	memcpy(absolute, here, length);
	absolute[length] = '/';
	memcpy(absolute + length + 1, given, strlen(given) + 1);
	return 0;
}

/* The devices of the identity file, joined with those that the caller names. 1 in create[i]: new. */
static int devices_plan(cairn *store, const struct cairn_options *options, int fresh, uint8_t create[STORE_DEVICES],
                        int *ret_changed)
{
	struct fmt_ident *ident = &store->ident;
	static const struct cairn_flash inside;
	const struct cairn_flash *flash = options->flash;
	uint32_t n = options->nflash;
	if (fresh && !n) {
		flash = &inside;
		n = 1;
	}
	for (uint32_t i = 0; i < n; i++) {
		char path[256], absolute[PATH_MAX];
		const char *given = flash[i].path ? flash[i].path : "";
		uint32_t at = 0;
		if (given[0] && given[0] != '/' &&
		    store->maker->threaded) { /* the next process has another working directory */
			int error = path_absolute(given, absolute);
			if (error)
				return error;
			given = absolute;
		}
		for (; at < ident->ndevices; at++) {
			if (!given[0] ? !ident->device[at].path[0] : !strcmp(ident->device[at].path, given))
				break;
		}
		if (at == STORE_DEVICES)
			return err_set(CAIRN_E_INVAL, "more than %d flash devices", STORE_DEVICES);
		int error = device_path(store, at, given, path);
		if (error)
			return error;
		struct ident_device *device = &ident->device[at];
		if (at == ident->ndevices) {
			if (strlen(given) > IDENT_PATH_MAX)
				return err_set(CAIRN_E_INVAL, "%s: a flash path may have %u bytes", given, IDENT_PATH_MAX);
			memcpy(device->path, given, strlen(given) + 1);
			digest_random(device->device_id, 16);
			device->budget_bytes = flash[i].budget_bytes ? flash[i].budget_bytes : budget_default(store, path);
			create[at] = 1;
			ident->ndevices++;
			*ret_changed = 1;
		} else if (flash[i].budget_bytes && flash[i].budget_bytes != device->budget_bytes) {
			device->budget_bytes = flash[i].budget_bytes;
			*ret_changed = 1;
		}
	}
	if (options->free_floor_bytes && options->free_floor_bytes != ident->free_floor_bytes) {
		ident->free_floor_bytes = options->free_floor_bytes;
		*ret_changed = 1;
	}
	return 0;
}

static int device_open(cairn *store, uint32_t index, const struct cairn_options *options, int create)
{
	struct device *device = &store->devices[index];
	const struct ident_device *ident = &store->ident.device[index];
	int error = device_path(store, index, ident->path, device->path);
	if (error)
		return error;
	struct flash_config config = {
	    .path = device->path,
	    .device = index,
	    .create = (uint32_t)create,
	    .readonly = (store->flags & CAIRN_OPEN_READONLY) != 0,
	    .budget_bytes = ident->budget_bytes,
	    .free_floor_bytes = store->ident.free_floor_bytes,
	    .segment_bytes = (uint32_t)options->segment_bytes,
	    .io_threads = store->io_threads,
	    .write_version = store->write_version,
	    .maker = store->maker,
	    .host = &store->host,
	};
	memcpy(config.store_id, store->ident.store_id, 16);
	memcpy(config.device_id, ident->device_id, 16);
	memcpy(device->id, ident->device_id, 16);
	device->store = store;
	device->ops = &flash_ops;
	device->budget_bytes = ident->budget_bytes;
	error = flash_open(&config, &device->flash);
	if (error) {
		device->flash = NULL;
		/* Damage and loss are survived; what a person must decide is not. */
		int survivable = error == CAIRN_E_NOENT || error == CAIRN_E_CORRUPT || error == CAIRN_E_IO;
		return create || !survivable ? error : 0;
	}
	device->pages_per_segment = flash_pages_per_segment(device->flash);
	device->nsegments = flash_segments(device->flash);
	device->accounts = mem_array(device->nsegments, sizeof(*device->accounts));
	device->owners = mem_array(device->nsegments, sizeof(*device->owners));
	if (!device->accounts || !device->owners)
		return err_set(CAIRN_E_NOMEM, "no memory for %u segments", device->nsegments);
	if (!store->part_max || flash_part_max(device->flash) < store->part_max)
		store->part_max = flash_part_max(device->flash);
	return 0;
}

/* ---- reopen ------------------------------------------------------------------------------------------------------ */

static int spaces_load(cairn *store)
{
	for (uint32_t d = 0; d < store->ndevices; d++) {
		if (!store->devices[d].flash)
			continue;
		const struct ledger *ledger = flash_ledger(store->devices[d].flash);
		for (uint32_t i = 0; i < ledger->nspaces; i++) {
			struct cairn_space *space = store_space_by_id(store, ledger->spaces[i].id, 1);
			if (!space)
				return err_set(CAIRN_E_NOMEM, "no memory for the spaces of the store");
			if (space->described)
				continue;
			uint8_t id[32];
			key_space_id(ledger->spaces[i].canon, ledger->spaces[i].length, id);
			/* A description that is not what its id says is foreign: the id stays, its meaning is unknown. */
			if (memcmp(id, space->id, 32) ||
			    key_space_decode(ledger->spaces[i].canon, ledger->spaces[i].length, &space->space))
				continue;
			int tenant = store_tenant(store, space->space.tenant_digest);
			if (tenant < 0) {
				key_space_done(&space->space);
				memset(&space->space, 0, sizeof(space->space));
				continue;
			}
			space->tenant = (uint8_t)tenant;
			space->described = space->kept = 1;
			space->misses = space->space.kind != KEY_FILE && !space->space.desc.weights;
		}
	}
	return 0;
}

static int sessions_load(cairn *store)
{
	for (uint32_t d = 0; d < store->ndevices; d++) {
		if (!store->devices[d].flash)
			continue;
		const struct ledger *ledger = flash_ledger(store->devices[d].flash);
		for (uint32_t i = 0; i < ledger->sessions.used; i++) {
			int error = session_load(store, &ledger->sessions.records[i]);
			if (error)
				return error;
		}
		return 0; /* after reconciling they all hold the same */
	}
	return 0;
}

/* Remembers which devices are away, from their first open on; the births of then may be above all that is known here.
 * */
static void away_note(cairn *store, const uint8_t create[STORE_DEVICES], int fresh)
{
	for (uint32_t i = 0; i < store->ndevices; i++) {
		struct ident_device *device = &store->ident.device[i];
		if (create[i] && !fresh)
			device->flags |= IDENT_DEVICE_MISSED; /* it knows nothing yet */
		if (store->devices[i].flash)
			continue;
		store->device_away = 1;
		if (!(device->flags & IDENT_DEVICE_AWAY))
			store->births_skip = 1ull << 32;
	}
}

/* After the skipped births are in a ledger: an open that was cut short before that skips again. */
static int away_keep(cairn *store)
{
	int changed = 0;
	for (uint32_t i = 0; i < store->ndevices; i++)
		if (!store->devices[i].flash && !(store->ident.device[i].flags & IDENT_DEVICE_AWAY)) {
			store->ident.device[i].flags |= IDENT_DEVICE_AWAY;
			changed = 1;
		}
	return changed && !(store->flags & CAIRN_OPEN_READONLY)
	           ? directory_write_ident(store->path, store->maker, store->dir_fd, &store->ident, 0)
	           : 0;
}

/* A device that missed decisions is believed as far as one that did not is here to tell, and has no hole in which they
 * may have been. */
static void missed_doubt(cairn *store)
{
	uint64_t doubt = UINT64_MAX;
	int current = 0;
	for (uint32_t i = 0; i < store->ndevices; i++)
		if (store->devices[i].flash && !(store->ident.device[i].flags & IDENT_DEVICE_MISSED)) {
			uint64_t through = flash_ledger(store->devices[i].flash)->doubt_through;
			doubt = through < doubt ? through : doubt;
			current = 1;
		}
	for (uint32_t i = 0; i < store->ndevices; i++)
		if (store->devices[i].flash && (store->ident.device[i].flags & IDENT_DEVICE_MISSED)) {
			struct ledger *ledger = flash_ledger(store->devices[i].flash);
			ledger->doubt_through = doubt > ledger->doubt_through ? doubt : ledger->doubt_through;
			store->stat.lost_sessions += current ? 0 : ledger->sessions.used;
			ledger->sessions.used = current ? ledger->sessions.used : 0; /* any of them may have been forgotten */
		}
}

/* All that are here know the same from now on, what is kept of doubts (flash_start) included: none is behind another.
 * */
static void decisions_even(cairn *store)
{
	uint64_t newest = 0;
	for (uint32_t i = 0; i < store->ndevices; i++) {
		const struct ledger *ledger = store->devices[i].flash ? flash_ledger(store->devices[i].flash) : NULL;
		uint64_t last = !ledger ? 0 : ledger->doubt_through ? store->next_birth : ledger->mark.u.mark.last_decision;
		newest = last > newest ? last : newest;
	}
	for (uint32_t i = 0; i < store->ndevices; i++)
		if (store->devices[i].flash)
			flash_ledger(store->devices[i].flash)->mark.u.mark.last_decision = newest;
}

/* They have taken what they missed from the others, durably. 0 or an error. */
static int away_over(cairn *store)
{
	const uint32_t flags = IDENT_DEVICE_AWAY | IDENT_DEVICE_MISSED;
	int changed = 0;
	for (uint32_t i = 0; i < store->ndevices; i++) {
		struct ident_device *device = &store->ident.device[i];
		changed |= store->devices[i].flash && (device->flags & flags);
		if (store->devices[i].flash)
			device->flags &= ~flags;
	}
	return changed ? directory_write_ident(store->path, store->maker, store->dir_fd, &store->ident, 0) : 0;
}

static void buffer_gone(void *arg, const void *address)
{
	cairn *store = arg;
	for (uint32_t i = 0; i < store->ndevices; i++)
		if (store->devices[i].flash)
			flash_buffer_gone(store->devices[i].flash, address);
}

/* Offers the memory tier to the devices. */
static void buffers_offer(cairn *store)
{
	struct io_vec vec[STORE_BUFFERS];
	uint64_t length;
	void *address;
	uint32_t n = 0;
	while (n < STORE_BUFFERS && (address = memory_extent_at(store->memory, n, &length)))
		vec[n++] = (struct io_vec){address, (uint32_t)length};
	for (uint32_t i = 0; i < store->ndevices; i++)
		if (store->devices[i].flash)
			flash_buffers(store->devices[i].flash, vec, n);
	memory_watch(store->memory, buffer_gone, store);
}

static int devices_recover(cairn *store)
{
	int error = reconcile(store), writes = !(store->flags & CAIRN_OPEN_READONLY);
	if (!error)
		error = spaces_load(store);
	missed_doubt(store);
	for (uint32_t i = 0; i < store->ndevices && !error; i++) {
		struct device *device = &store->devices[i];
		struct flash_recovery recovery;
		if (!device->flash)
			continue;
		error = flash_recover(device->flash, &recovery);
		if (error)
			return error;
		store->stat.reopen_read_bytes += recovery.read_bytes;
		store->stat.reopen_payload_bytes += recovery.payload_bytes;
		store->stat.doubtful_parts += recovery.doubtful_parts;
		if (recovery.next_birth > store->next_birth)
			store->next_birth = recovery.next_birth;
	}
	if (store->ident.births > store->next_birth)
		store->next_birth = store->ident.births;
	if (store->births_skip)
		store->ident.births = store->next_birth += store->births_skip;
	if (!error)
		error = sessions_load(store);
	decisions_even(store);
	for (uint32_t i = 0; i < store->ndevices && !error; i++)
		if (store->devices[i].flash)
			error = flash_start(store->devices[i].flash, store->next_birth + 1);
	if (!error)
		error = away_keep(store);
	if (!error && writes)
		error = away_over(store);
	store->sweep_wanted = (uint32_t)writes;
	return error;
}

/* ---- open -------------------------------------------------------------------------------------------------------- */

static void store_free(cairn *store)
{
	session_done(store);
	tenant_done(store);
	for (uint32_t i = 0; i < store->nspaces; i++) {
		if (store->spaces[i]->described)
			key_space_done(&store->spaces[i]->space);
		mem_free(store->spaces[i]);
	}
	mem_free(store->spaces);
	if (store->catalog)
		catalog_close(store->catalog);
	if (store->memory)
		memory_close(store->memory);
	mem_free(store->watch_cells);
	mem_free(store->admit.cells);
	mem_free(store->reqs);
	events_done(store);
	directory_close(store->dir_fd, store->lock_fd);
	mem_free(store->path);
	pthread_cond_destroy(&store->changed);
	pthread_mutex_destroy(&store->lock);
	mem_free(store);
}

void store_abandon(cairn *store)
{
	for (uint32_t i = 0; i < store->ndevices; i++) {
		flash_abandon(store->devices[i].flash);
		store->devices[i].flash = NULL;
	}
	store_free(store);
}

static cairn *store_new(const struct io_maker *maker, const struct cairn_options *options)
{
	cairn *store = mem_alloc(sizeof(*store));
	if (!store)
		return NULL;
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&store->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_mutex_init(&store->lock, NULL);
	store->maker = maker;
	store->clock = maker->clock;
	store->flags = options->flags;
	store->dir_fd = store->lock_fd = -1;
	store->io_threads = options->io_threads ? options->io_threads : 8;
	store->workers = options->workers ? options->workers < 16 ? options->workers : 16 : 2;
	store->pin_share_percent = options->pin_share_percent ? options->pin_share_percent : 50;
	store->write_version = options->write_version ? options->write_version : FMT_VERSION;
	store->next_birth = 1;
	store->tick_step = 1u << 20;
	store->host = store_host;
	store->host.arg = store;
	list_init(&store->reqs_free);
	list_init(&store->sessions);
	list_init(&store->matches);
	return store;
}

/* The index learns from more parts than are in memory: also from what was evicted. */
static int policy_start(cairn *store, const struct cairn_options *options)
{
	struct memory_stat memory;
	struct memory_policy policy = {.table = &store->watch.table, .held = slot_held, .arg = store};
	memory_stat(store->memory, &memory);
	uint32_t ncells = WATCH_CELLS_MIN;
	while (ncells < WATCH_CELLS_MAX && ncells < 4 * memory.slots_max)
		ncells *= 2;
	store->watch_cells = mem_array(ncells, sizeof(*store->watch_cells));
	if (!store->watch_cells)
		return err_set(CAIRN_E_NOMEM, "no memory to open a store");
	watch_init(&store->watch, store->watch_cells, ncells, watch_time(clock_mono_ns(store->clock)));
	memory_policy(store->memory, &policy);
	alarm_set(&store->alarm, 0);
	admit_budget_init(&store->write_budget, options->flash_write_bytes_day, memory_part_max(store->memory),
	                  clock_mono_ns(store->clock));
	store->admit = (struct admit){.ncells = ADMIT_CELLS, .cells = mem_array(ADMIT_CELLS, sizeof(struct admit_cell))};
	return store->admit.cells ? tenant_limits(store, options->tenants, options->ntenants)
	                          : err_set(CAIRN_E_NOMEM, "no memory to open a store");
}

static int store_allocate(cairn *store, const struct cairn_options *options)
{
	uint64_t flash = 0, memory = options->memory_bytes ? options->memory_bytes : MEMORY_DEFAULT_BYTES;
	for (uint32_t i = 0; i < store->ident.ndevices; i++)
		flash += store->ident.device[i].budget_bytes;
	uint64_t catalog = options->catalog_bytes;
	if (!catalog) {
		catalog = (flash + memory) / 65536 * 64;
		catalog = catalog < CATALOG_MIN_BYTES   ? CATALOG_MIN_BYTES
		          : catalog > CATALOG_MAX_BYTES ? CATALOG_MAX_BYTES
		                                        : catalog;
	}
	store->tick_step = (flash ? flash : memory) / 1024 + 1;
	store->dirty_max = memory / 2;
	store->reqs = mem_array(STORE_REQS, sizeof(*store->reqs));
	int error = !store->reqs || events_open(store, options) ? CAIRN_E_NOMEM : catalog_open(catalog, &store->catalog);
	if (!error)
		error = memory_open(memory, &store->memory);
	else
		err_set(CAIRN_E_NOMEM, "no memory for a catalog of %llu bytes", (unsigned long long)catalog);
	for (int i = 0; i < STORE_REQS && !error; i++) {
		store->reqs[i].store = store;
		list_push_back(&store->reqs_free, &store->reqs[i].link);
	}
	if (!error)
		error = policy_start(store, options);
	if (!error)
		store->part_max = memory_part_max(store->memory) < CAIRN_PART_MAX_BYTES ? memory_part_max(store->memory)
		                                                                       : CAIRN_PART_MAX_BYTES;
	return error;
}

static int store_open_flash(cairn *store, const struct cairn_options *options)
{
	uint8_t create[STORE_DEVICES] = {0};
	int fresh = 0, changed = 0;
	int error = directory_open(store->path, store->maker, store->flags, &store->dir_fd, &store->lock_fd, &store->ident,
	                           &fresh);
	if (error)
		return error;
	if (fresh) {
		store->ident.version = store->write_version;
		store->ident.created_at_s = clock_wall_s(store->clock);
		digest_random(store->ident.store_id, 16);
	}
	error = devices_plan(store, options, fresh, create, &changed);
	for (uint32_t i = 0; i < store->ident.ndevices && !error; i++)
		if ((fresh || create[i]) && (store->flags & CAIRN_OPEN_READONLY))
			error = err_set(CAIRN_E_RDONLY, "%s: a read-only open makes neither a store nor a device", store->path);
	if (!error)
		error = store_allocate(store, options);
	for (uint32_t i = 0; i < store->ident.ndevices && !error; i++) {
		store->ndevices = i + 1;
		error = device_open(store, i, options, create[i]);
	}
	if (!error)
		away_note(store, create, fresh);
	if (!error && (fresh || changed) && !(store->flags & CAIRN_OPEN_READONLY))
		error = directory_write_ident(store->path, store->maker, store->dir_fd, &store->ident, fresh);
	if (!error)
		error = devices_recover(store);
	if (!error)
		directory_load_gone(store->path, store->maker, store->catalog);
	if (!error) {
		buffers_offer(store);
		error = loops_start(store);
	}
	return error;
}

/* ---- a cairnd has it --------------------------------------------------------------------------------------------- */

static int open_remote(const char *place, const struct io_maker *maker, const struct cairn_options *options,
                       int (*open)(cairn *store, const char *place, const char *token_file),
                       cairn **ret_store)
{
	cairn *store = store_new(maker, options);
	if (!store)
		return err_set(CAIRN_E_NOMEM, "no memory to open a store");
	int error = open(store, place, options ? options->token_file : NULL);
	if (error)
		return store_free(store), error;
	*ret_store = store;
	return 0;
}

int store_open_remote(const char *place, const struct io_maker *maker, const struct cairn_options *options,
                      cairn **ret_store)
{
	return open_remote(place, maker, options, remote_open, ret_store);
}

int store_open_peer(const char *place, const struct io_maker *maker, const struct cairn_options *options,
                    cairn **ret_store)
{
	return open_remote(place, maker, options, remote_open_peer, ret_store);
}

int store_open(const char *place, const struct cairn_options *given, const struct io_maker *maker, cairn **ret_store)
{
	struct cairn_options options = {0};
	const char *path = NULL;
	if (!ret_store)
		return err_set(CAIRN_E_INVAL, "cairn_open: no place for the result");
	if (given && (!given->size || given->size > 4096))
		return err_set(CAIRN_E_INVAL, "cairn_options: set size to sizeof(struct cairn_options)");
	if (given)
		memcpy(&options, given, given->size < sizeof(options) ? given->size : sizeof(options));
	int error = store_options_check(place, &options, &path);
	if (error)
		return error;
	uint64_t started = clock_mono_ns(maker->clock);
	if (path && link_place_is(path))
		return store_open_remote(path, maker, &options, ret_store);
	cairn *store = store_new(maker, &options);
	if (!store)
		return err_set(CAIRN_E_NOMEM, "no memory to open a store");
	if (path) {
		store->path = mem_copy_string(path);
		error = store->path ? store_open_flash(store, &options) : err_set(CAIRN_E_NOMEM, "no memory to open a store");
	} else {
		error = store_allocate(store, &options);
	}
	if (error) {
		loops_stop(store);
		store_abandon(store);
		return error;
	}
	session_mark_kept(store);
	error = peers_open(store, &options);
	if (error) {
		(void)cairn_close(store);
		return error;
	}
	store->stat.reopen_s = (double)(clock_mono_ns(store->clock) - started) / 1e9;
	*ret_store = store;
	return 0;
}

CAIRN_API int cairn_close(cairn *store)
{
	if (!store)
		return 0;
	pthread_mutex_lock(&store->lock);
	store->closing = 1;
	pthread_mutex_unlock(&store->lock);
	peers_stop(store);
	loops_stop(store);
	remote_close(store->remote);
	int error = 0;
	struct flash_checkpoint checkpoint = store_checkpoint;
	checkpoint.arg = store;
	for (uint32_t i = 0; i < store->ndevices; i++) {
		if (!store->devices[i].flash)
			continue;
		int closed = flash_close(store->devices[i].flash, store->next_birth + 1, &checkpoint);
		store->devices[i].flash = NULL;
		error = error ? error : closed;
	}
	if (store->path && !(store->flags & CAIRN_OPEN_READONLY))
		directory_save_gone(store->path, store->maker, store->dir_fd, store->write_version, store->catalog);
	store_free(store);
	return error;
}
