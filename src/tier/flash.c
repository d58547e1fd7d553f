/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flash device's life: making and opening it, its loop, reads, closing. Writes are in commit.c, eviction in clean.c,
 * reopen in recover.c.
 *
 * Threads: submit, wake and stat from any; all else in the loop's thread. Memory: allocated at open.
 * Invariant: bytes reach a reader only after the stored check, which proves bytes and identity together.
 */
#include "tier/flash.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "tier/flash_in.h"

/* ---- small helpers ----------------------------------------------------------------------------------------------- */

void flash_finish(struct tier_req *req, int32_t result)
{
	req->result = result;
	req->done(req);
}

void flash_device_error(struct flash *flash, int errnum)
{
	flash->last_error = errnum;
	if (++flash->failures >= 3)
		flash->refuse_until_ns = flash_now(flash) + FLASH_REFUSE_NS;
	pthread_mutex_lock(&flash->lock);
	flash->stat.state = flash->failures >= 3;
	pthread_mutex_unlock(&flash->lock);
}

int flash_refused(struct flash *flash)
{
	if (!flash->refuse_until_ns)
		return 0;
	if (flash_now(flash) < flash->refuse_until_ns)
		return 1;
	flash->refuse_until_ns = 0; /* let one through; the next failure refuses again */
	flash->failures = 2;
	return 0;
}

void flash_segment_set(struct flash *flash, uint32_t segment, uint8_t state)
{
	struct segment *s = &flash->segments[segment];
	if (flash->announce && (s->state == SEGMENT_FREE) != (state == SEGMENT_FREE))
		flash->host->owned(flash->host->arg, flash->device, segment,
		                   state == SEGMENT_FREE ? NULL : flash->ledger.segments[segment].tenant);
	flash->free_backed -= s->state == SEGMENT_FREE && s->backed;
	flash->sealed -= s->state == SEGMENT_SEALED;
	s->state = state;
	flash->free_backed += s->state == SEGMENT_FREE && s->backed;
	flash->sealed += s->state == SEGMENT_SEALED;
}

void flash_segment_back(struct flash *flash, uint32_t segment, uint8_t backed)
{
	struct segment *s = &flash->segments[segment];
	if (s->backed == backed)
		return;
	flash->free_backed -= s->state == SEGMENT_FREE && s->backed;
	s->backed = backed;
	flash->free_backed += s->state == SEGMENT_FREE && s->backed;
	flash->backed += backed ? 1 : -1;
	if (backed && flash->grow_room)
		flash->grow_room--;
}

int flash_writes_wait(const struct flash *flash)
{
	return !list_empty(&flash->carried) || !lane_empty(&flash->writes) || !lane_empty(&flash->writes_background);
}

void flash_share(struct flash *flash, uint32_t flow, uint32_t weight)
{
	check(flow < SHARE_FLOWS);
	__atomic_store_n(&flash->weights[flow], weight, __ATOMIC_RELAXED);
}

uint32_t flash_part_max(const struct flash *flash)
{
	return flash->part_max;
}

uint32_t flash_pages_per_segment(const struct flash *flash)
{
	return flash->segment_pages;
}

uint32_t flash_segments(const struct flash *flash)
{
	return flash->nsegments;
}

struct ledger *flash_ledger(struct flash *flash)
{
	return &flash->ledger;
}

/* ---- open -------------------------------------------------------------------------------------------------------- */

static uint32_t pow2_down(uint64_t value)
{
	uint32_t power = 1;
	while ((uint64_t)power * 2 <= value && power < (1u << 31))
		power *= 2;
	return power;
}

static void label_plan(const struct flash_config *config, struct fmt_label *label)
{
	uint32_t segment = config->segment_bytes;
	if (!segment) { /* some 16 to 31 of them: small steps, and yet room for several large parts in each */
		segment = pow2_down(config->budget_bytes / 16);
		uint32_t least = config->budget_bytes < (32u << 20) ? 1u << 20 : 4u << 20;
		segment = segment < least ? least : segment > (128u << 20) ? 128u << 20 : segment;
	}
	uint64_t nsegments = config->budget_bytes / segment + 1;
	/* Room for decisions: some 2,400 drops of single keys per half MiB, before segments that forget them are freed. */
	uint64_t ledger = config->budget_bytes < (64ull << 20)    ? 128u << 10
	                  : config->budget_bytes < (256ull << 20) ? 512u << 10
	                  : config->budget_bytes < (1ull << 30)   ? 2u << 20
	                  : config->budget_bytes < (16ull << 30)  ? 4u << 20
	                                                          : 16u << 20;
	while (ledger < nsegments * 64 * 8 && ledger < (64u << 20)) /* the segment table: an eighth of an area */
		ledger *= 2;
	memset(label, 0, sizeof(*label));
	label->version = config->write_version;
	memcpy(label->store_id, config->store_id, 16);
	memcpy(label->device_id, config->device_id, 16);
	label->device_index = config->device;
	label->segment_bytes = segment;
	label->ledger_bytes = (uint32_t)ledger;
	label->ledger_offset = 2 * FMT_PAGE;
	label->segments_offset = BYTES_ROUND_UP(label->ledger_offset + 4 * ledger, 1u << 20);
}

static int label_write(struct flash *flash)
{
	uint8_t *pages = mem_aligned(FMT_PAGE, 2 * FMT_PAGE);
	if (!pages)
		return err_set(CAIRN_E_NOMEM, "no memory to make %s", flash->path);
	segment_label_encode(&flash->label, pages);
	memcpy(pages + FMT_PAGE, pages, FMT_PAGE);
	int error = flash->io->ops->pwrite(flash->io, pages, 2 * FMT_PAGE, 0);
	if (!error)
		error = flash->io->ops->sync(flash->io);
	mem_free(pages);
	return error ? err_set(err_from_errno(-error), "cannot write %s: %s", flash->path, strerror(-error)) : 0;
}

/* A raw device that cairn init prepared, and that no store has put its label on. */
static int label_blank(struct flash *flash)
{
	uint8_t *pages = mem_aligned(FMT_PAGE, 2 * FMT_PAGE);
	struct fmt_label label;
	uint64_t bytes;
	int blank = pages && !flash->io->ops->pread(flash->io, pages, 2 * FMT_PAGE, 0) &&
	            segment_label_decode(pages, &label) == FMT_BAD &&
	            segment_label_decode(pages + FMT_PAGE, &label) == FMT_BAD &&
	            (segment_blank_decode(pages, &bytes) == FMT_OK ||
	             segment_blank_decode(pages + FMT_PAGE, &bytes) == FMT_OK);
	mem_free(pages);
	return blank;
}

/* Whether the making of the device never came to its label: nothing can be in it. */
static int label_missing(struct flash *flash, const struct flash_config *config)
{
	struct fmt_label plan;
	uint64_t size, free, all;
	if (flash->io->raw)
		return label_blank(flash);
	label_plan(config, &plan);
	if (flash->io->ops->space(flash->io, &size, &free, &all) || size > plan.segments_offset || size % FMT_PAGE)
		return 0;
	uint8_t *page = mem_aligned(FMT_PAGE, FMT_PAGE);
	int ours = page != NULL;
	/* Nothing but what a creation that was cut short leaves: zeros, and pages of a ledger behind the labels' place. */
	for (uint64_t at = 0; at < size && ours; at += FMT_PAGE) {
		ours = !flash->io->ops->pread(flash->io, page, FMT_PAGE, at);
		int ledger = at >= 2 * FMT_PAGE && !memcmp(page, "CAIRNLED", 8);
		for (uint32_t i = 0; i < FMT_PAGE && ours && !ledger; i++)
			ours = !page[i];
	}
	mem_free(page);
	return ours;
}

static int device_file_open(struct flash *flash, const struct flash_config *config)
{
	uint32_t flags = config->create ? IO_OPEN_CREATE | IO_OPEN_EXCLUSIVE : config->readonly ? IO_OPEN_READONLY : 0;
	flags |= IO_OPEN_LOCK; /* a copied directory names the same device, and has a lock of its own */
	int error = config->maker->open(config->maker->arg, config->path, flags, config->io_threads, &flash->io);
	if (error == -EEXIST) {
		error = config->maker->open(config->maker->arg, config->path, IO_OPEN_LOCK, config->io_threads, &flash->io);
		if (!error && !label_missing(flash, config)) {
			error = flash->io->raw ? -ENODEV : -EEXIST;
			flash->io->ops->close(flash->io);
		}
	}
	if (error)
		flash->io = NULL;
	flash->unlabelled = !error && (config->create || (!config->readonly && label_missing(flash, config)));
	return error;
}

static int label_read(struct flash *flash, const struct flash_config *config)
{
	uint8_t *pages = mem_aligned(FMT_PAGE, 2 * FMT_PAGE);
	if (!pages)
		return err_set(CAIRN_E_NOMEM, "no memory to open %s", flash->path);
	int result = FMT_BAD, error = 0;
	for (int copy = 0; copy < 2 && result != FMT_OK; copy++) {
		error = flash->io->ops->pread(flash->io, pages, FMT_PAGE, (uint64_t)copy * FMT_PAGE);
		if (error)
			continue;
		int decoded = segment_label_decode(pages, &flash->label);
		result = decoded == FMT_OK || result == FMT_BAD ? decoded : result;
	}
	mem_free(pages);
	if (result == FMT_NEWER)
		return err_set(CAIRN_E_VERSION, "%s was written by a newer cairn: upgrade this one", flash->path);
	if (result != FMT_OK && error)
		return err_set(err_from_errno(-error), "cannot read %s: %s", flash->path, strerror(-error));
	if (result != FMT_OK)
		return err_set(CAIRN_E_CORRUPT, "the label of %s is damaged in both copies: run cairn fsck --repair",
		               flash->path);
	if ((flash->label.bits.ro_compat & ~FMT_RO_COMPAT_KNOWN) && !config->readonly)
		return err_set(CAIRN_E_RDONLY,
		               "%s was written by a newer cairn, this one may only read it: open it read-only, or upgrade",
		               flash->path);
	if (memcmp(flash->label.store_id, config->store_id, 16) || memcmp(flash->label.device_id, config->device_id, 16))
		return err_set(CAIRN_E_CORRUPT, "%s belongs to another store: give each store its own file", flash->path);
	return 0;
}

static int flash_allocate(struct flash *flash)
{
	uint32_t entries = flash->label.segment_bytes / 8192;
	flash->entries_max = entries < 128 ? 128 : entries > 32768 ? 32768 : entries;
	flash->footer_pages_max = segment_footer_entry_pages(flash->entries_max);
	flash->segments = mem_array(flash->nsegments, sizeof(*flash->segments));
	flash->footer = mem_aligned(FMT_PAGE, (size_t)(flash->footer_pages_max + 1) * FMT_PAGE);
	flash->reads = mem_array(FLASH_READS, sizeof(*flash->reads));
	if (!flash->segments || !flash->footer || !flash->reads || clean_open(flash))
		return CAIRN_E_NOMEM;
	for (int i = 0; i < FLASH_READS; i++)
		list_push_back(&flash->reads_free, &flash->reads[i].link);
	for (int i = 0; i < FLASH_GROUPS; i++) {
		flash->groups[i].flash = flash;
		flash->groups[i].index = mem_aligned(FMT_PAGE, FLASH_GROUP_PAGES * FMT_PAGE);
		if (!flash->groups[i].index)
			return CAIRN_E_NOMEM;
	}
	for (int i = 0; i < FLASH_OPEN; i++) {
		flash->open[i].entries = mem_array(flash->entries_max, sizeof(struct fmt_entry));
		if (!flash->open[i].entries)
			return CAIRN_E_NOMEM;
	}
	return 0;
}

static int flash_shape(struct flash *flash, const struct flash_config *config)
{
	uint64_t size, free, all;
	flash->segment_pages = flash->label.segment_bytes / FMT_PAGE;
	flash->part_max = flash->label.segment_bytes / 2 < CAIRN_PART_MAX_BYTES ? flash->label.segment_bytes / 2
	                                                                       : CAIRN_PART_MAX_BYTES;
	int error = flash->io->ops->space(flash->io, &size, &free, &all);
	if (error)
		return err_set(CAIRN_E_IO, "cannot ask %s for its size: %s", flash->path, strerror(-error));
	uint64_t room =
		config->budget_bytes > flash->label.segments_offset ? config->budget_bytes - flash->label.segments_offset : 0;
	uint64_t budget = room / flash->label.segment_bytes;
	uint64_t there =
		size > flash->label.segments_offset
			? (size - flash->label.segments_offset + flash->label.segment_bytes - 1) / flash->label.segment_bytes
			: 0;
	uint64_t most = flash->label.ledger_bytes / 64 / 4; /* what the segment table may take of the ledger */
	if (flash->io->raw) {
		if (config->budget_bytes > size)
			return err_set(CAIRN_E_INVAL, "%s has %llu bytes, and its budget is %llu: give at most what it has",
			               flash->path, (unsigned long long)size, (unsigned long long)config->budget_bytes);
		there = size > flash->label.segments_offset ? (size - flash->label.segments_offset) / flash->label.segment_bytes
		                                            : 0;
	}
	budget = budget < most ? budget : most;
	if (budget < 4)
		return err_set(CAIRN_E_INVAL, "a budget of %llu bytes for %s is too small: at least %llu",
		               (unsigned long long)config->budget_bytes, flash->path,
		               (unsigned long long)(flash->label.segments_offset + 4ull * flash->label.segment_bytes));
	flash->budget_segments = (uint32_t)budget;
	flash->nsegments = (uint32_t)(there > budget ? (there < most ? there : most) : budget);
	return 0;
}

static const struct breaker_rule breaker_rule = {
	.failures = 3, .pause_ns = 1000000000ull, .pause_max_ns = 30000000000ull};

int flash_open(const struct flash_config *config, struct flash **ret_flash)
{
	struct flash *flash = mem_alloc(sizeof(*flash));
	if (!flash)
		return err_set(CAIRN_E_NOMEM, "no memory to open %s", config->path);
	pthread_mutex_init(&flash->lock, NULL);
	struct list *lists[] = {&flash->reads_free, &flash->carried,  &flash->syncs, &flash->decides,
	                        &flash->gathered,   &flash->deciding, &flash->inbox};
	struct lane *lanes[] = {&flash->reads_waiting, &flash->reads_background, &flash->writes,
	                        &flash->writes_background};
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		list_init(lists[i]);
	for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++)
		lane_init(lanes[i], flash->weights);
	breaker_init(&flash->breaker, &breaker_rule);
	for (int i = 0; i < FLASH_OPEN; i++)
		flash->open[i].segment = UINT32_MAX;
	flash->victim = UINT32_MAX;
	flash->clock = config->maker->clock;
	flash->host = config->host;
	flash->device = config->device;
	flash->readonly = config->readonly;
	flash->budget_bytes = config->budget_bytes;
	flash->free_floor_bytes = config->free_floor_bytes;
	flash->write_version = config->write_version;
	size_t length = strlen(config->path);
	check(length < sizeof(flash->path));
	memcpy(flash->path, config->path, length + 1);
	int error = device_file_open(flash, config);
	if (error == -EWOULDBLOCK) {
		error = err_set(CAIRN_E_OWNED, "the flash device %s is open in another store: give each store its own",
		                config->path);
		goto fail;
	}
	if (error == -ENODEV) {
		error = err_set(CAIRN_E_NOTSTORE,
		                "the block device %s is not prepared, or is another store's: see cairn init %s", config->path,
		                config->path);
		goto fail;
	}
	if (error == -EBUSY) {
		error = err_set(CAIRN_E_OWNED, "the block device %s is mounted or used by another program: end that first",
		                config->path);
		goto fail;
	}
	if (error == -ENOSYS) {
		error = err_set(CAIRN_E_ACCESS, "%s: io_uring is refused by this kernel or container: leave out that engine",
		                config->path);
		goto fail;
	}
	if (error) {
		error = err_set(error == -EEXIST ? CAIRN_E_NOTSTORE : err_from_errno(-error),
		                "cannot open the flash device %s: %s", config->path, strerror(-error));
		goto fail;
	}
	strncpy(flash->stat.io_engine, flash->io->ops->name, sizeof(flash->stat.io_engine) - 1);
	if (flash->unlabelled)
		label_plan(config, &flash->label);
	else
		error = label_read(flash, config);
	if (!error)
		error = flash_shape(flash, config);
	if (!error && flash_allocate(flash))
		error = err_set(CAIRN_E_NOMEM, "no memory to open %s", config->path);
	if (!error)
		error = ledger_open(&flash->ledger, flash->io, &flash->label, flash->nsegments, config->write_version);
	if (error)
		goto fail;
	if (flash->unlabelled) {
		error = flash->io->ops->allocate(flash->io, 0, flash->label.segments_offset);
		if (!error)
			error = ledger_format(&flash->ledger);
		if (error)
			error = err_set(err_from_errno(-error), "cannot make %s: %s", flash->path, strerror(-error));
	} else {
		error = ledger_replay(&flash->ledger, &flash->recovery.read_bytes);
		if (!error)
			error = recover_gather(flash);
	}
	if (error)
		goto fail;
	*ret_flash = flash;
	return 0;
fail:
	flash_abandon(flash);
	return error;
}

void flash_abandon(struct flash *flash)
{
	if (!flash)
		return;
	if (flash->io)
		flash->io->ops->close(flash->io);
	ledger_done(&flash->ledger);
	clean_done(flash);
	for (int i = 0; i < FLASH_GROUPS; i++)
		mem_free(flash->groups[i].index);
	for (int i = 0; i < FLASH_OPEN; i++)
		mem_free(flash->open[i].entries);
	mem_free(flash->segments);
	mem_free(flash->footer);
	mem_free(flash->reads);
	mem_free(flash->loose);
	pthread_mutex_destroy(&flash->lock);
	mem_free(flash);
}

static void publish(struct flash *flash);

static struct ledger_record *mark_now(struct flash *flash, uint64_t next_birth)
{
	struct ledger_record *mark = &flash->ledger.mark;
	if (next_birth > mark->u.mark.next_birth)
		mark->u.mark.next_birth = next_birth;
	mark->u.mark.flushed_through = flash->flushed_through;
	return mark;
}

/* 0 or -errno. */
static int start_add(struct ledger *ledger, const struct ledger_record *record)
{
	int error = ledger_add(ledger, record);
	if (error == CAIRN_E_FULL) { /* what was gathered so far goes first */
		error = ledger_commit(ledger);
		if (error)
			return error;
		error = ledger_add(ledger, record);
	}
	return error ? -ENOMEM : 0;
}

/* What was discarded as doubtful stays so when the hole is no longer there to see: drops of the tenants concerned. */
static int doubt_keep(struct flash *flash, uint64_t next_birth)
{
	struct ledger *ledger = &flash->ledger;
	uint64_t through = ledger->doubt_through < next_birth - 2 ? ledger->doubt_through : next_birth - 2;
	int error = 0;
	for (uint32_t i = 0; i < ledger->nsegments && ledger->doubt_through && !error; i++) {
		const struct ledger_segment *segment = &ledger->segments[i];
		struct ledger_record drop = {.type = LEDGER_DROP};
		uint32_t d = 0;
		if (segment->state != LEDGER_OPEN && segment->state != LEDGER_SEALED)
			continue;
		drop.u.drop.scope = LEDGER_DROP_TENANT;
		drop.u.drop.decision = through;
		drop.u.drop.sequence = ledger->mark.u.mark.group_epoch << 32 | UINT32_MAX; /* all that lies here began before */
		memcpy(drop.u.drop.what, segment->tenant, 16);
		while (d < ledger->drops.used && (memcmp(ledger->drops.records[d].u.drop.what, drop.u.drop.what, 32) ||
		                                  ledger->drops.records[d].u.drop.decision < through))
			d++;
		if (d == ledger->drops.used) /* one for each tenant */
			error = start_add(ledger, &drop);
	}
	return error;
}

int flash_start(struct flash *flash, uint64_t next_birth)
{
	publish(flash);
	for (uint32_t i = 0; i < flash->nsegments; i++)
		if (flash->segments[i].state != SEGMENT_FREE && flash->segments[i].state != SEGMENT_CHECKPOINT)
			flash->host->owned(flash->host->arg, flash->device, i, flash->ledger.segments[i].tenant);
	flash->announce = 1;
	if (flash->readonly)
		return 0;
	/* Label last: a device without one was never finished, and is made anew. */
	int error = flash->unlabelled ? label_write(flash) : 0;
	if (error)
		return error;
	flash->unlabelled = 0;
	/* Where a hole took the counters with it the groups know better: sequences rise across all opens. */
	if (flash->sequence >> 32 > flash->ledger.mark.u.mark.group_epoch)
		flash->ledger.mark.u.mark.group_epoch = flash->sequence >> 32;
	error = doubt_keep(flash, next_birth);
	struct ledger_record *mark = mark_now(flash, next_birth);
	mark->u.mark.group_epoch++;
	mark->u.mark.clean = 0;
	mark->u.mark.checkpoint_segment = UINT32_MAX;
	for (uint32_t i = 0; i < flash->nsegments; i++) /* a checkpoint is good for one reopen */
		if (flash->segments[i].state == SEGMENT_CHECKPOINT) {
			flash_segment_set(flash, i, SEGMENT_FREE);
			(void)commit_segment_record(flash, i, LEDGER_FREE);
		}
	flash->sequence = mark->u.mark.group_epoch << 32;
	if (!error)
		error = recover_wipe_tails(flash);
	struct ledger_record record = *mark;
	if (!error)
		error = start_add(&flash->ledger, &record);
	if (!error)
		error = ledger_commit(&flash->ledger);
	if (!error)
		error = flash->io->ops->sync(flash->io);
	flash->ledger_batch = 1;
	/* A smaller budget than before, or a full disk: what free segments may still hold goes before live ones do. */
	int give = flash->nsegments > flash->budget_segments || clean_below_floor(flash);
	for (uint32_t i = 0; i < flash->nsegments && give && !error; i++)
		if (flash->segments[i].state == SEGMENT_FREE && flash->ledger.segments[i].life)
			(void)flash->io->ops->punch(flash->io, flash_offset(flash, i, 0), flash->label.segment_bytes);
	if (error)
		return err_set(err_from_errno(-error),
		               "cannot write %s: %s (a full disk or a read-only one opens with --read-only)", flash->path,
		               strerror(-error));
	/* Everything that was found is flushed now. */
	flash->flushed_through = flash->sequence;
	for (int i = 0; i < FLASH_OPEN; i++) /* no new groups before these are sealed (see report_loose) */
		flash->healing |= flash->open[i].segment != UINT32_MAX &&
		                  flash->segments[flash->open[i].segment].state == SEGMENT_CLOSING;
	return 0;
}

/* ---- reads ------------------------------------------------------------------------------------------------------- */

/* Outside of the loop: the check of a part that came from the device. */
static void read_work(struct io_req *io)
{
	if (io->result)
		return;
	const struct read *read = io->owner;
	const struct tier_req *req = read->req;
	uint64_t hash = digest_xxh3(req->bytes, req->entry.stored_length, 0);
	uint64_t stored = segment_stored_check(req->entry.key, req->entry.space, req->entry.part, req->entry.raw_length,
	                                       req->entry.stored_length, req->entry.codec, hash);
	if (stored != req->check)
		io->result = -EBADMSG;
	else
		((struct tier_req *)(uintptr_t)req)->entry.raw_check = hash;
}

/* A failed check: is it damage, or does another part lie there (two keys of one prefix)? The group's index tells. */
static int32_t read_verdict(struct flash *flash, const struct tier_req *req, uint32_t segment)
{
	struct fmt_entry *entries = mem_array(flash->entries_max, sizeof(*entries));
	if (!entries)
		return CAIRN_DAMAGED;
	int32_t verdict = CAIRN_DAMAGED;
	long n = recover_entries(flash, segment, entries);
	for (long i = 0; i < n; i++)
		if (flash_page(flash, segment, entries[i].page) == req->page &&
		    (memcmp(entries[i].key, req->entry.key, 32) || memcmp(entries[i].space, req->entry.space, 32) ||
		     entries[i].part != req->entry.part))
			verdict = CAIRN_MISS;
	mem_free(entries);
	return verdict;
}

static void read_submit(struct read *read);

static void read_done(struct io_req *io)
{
	struct read *read = io->owner;
	struct flash *flash = read->flash;
	struct tier_req *req = read->req;
	if (io->result == -EBADMSG && !read->again) {
		read->again = 1; /* the wire and not the medium? */
		read_submit(read);
		return;
	}
	int32_t status = 0;
	if (io->result == -EBADMSG)
		status = read_verdict(flash, req, read->segment);
	else if (io->result)
		status = CAIRN_E_IO;
	uint64_t now = flash_now(flash), took = now - read->started_ns;
	if (status == CAIRN_E_IO || read->bad || now > read->ill_ns)
		breaker_bad(&flash->breaker, read->bad ? 0 : read->turn, now); /* told once */
	else
		breaker_good(&flash->breaker, read->turn);
	flash->reading--;
	flash->reading_background -= req->background;
	flash->reading_bytes -= req->entry.stored_length;
	read->req = NULL;
	pthread_mutex_lock(&flash->lock);
	if (!status && took) {
		double rate = (double)req->entry.stored_length / (double)took, seconds = (double)took / 1e9;
		flash->stat.read_gb_s = flash->stat.read_gb_s > 0 ? flash->stat.read_gb_s * 0.95 + rate * 0.05 : rate;
		flash->stat.read_s = flash->stat.read_s > 0 ? flash->stat.read_s * 0.95 + seconds * 0.05 : seconds;
	}
	pthread_mutex_unlock(&flash->lock);
	flash->segments[read->segment].readers--;
	list_push_back(&flash->reads_free, &read->link);
	flash_finish(req, status);
}

static void read_submit(struct read *read)
{
	struct flash *flash = read->flash;
	struct io_req *io = &read->io;
	io->op = IO_READ;
	io->background = read->req->background;
	io->offset = flash_offset(flash, 0, read->req->page);
	io->vec[0] = (struct io_vec){read->req->bytes, flash_pages_of(read->req->entry.stored_length) * FMT_PAGE};
	io->nvec = 1;
	io->work = read_work;
	io->done = read_done;
	io->owner = read;
	flash->io->ops->submit(flash->io, io);
}

/* Reads in flight that take too long, as far as is known before they end; what waits behind an open breaker. */
static int reads_ill(struct flash *flash)
{
	uint64_t now = flash_now(flash);
	int did = 0;
	for (uint32_t i = 0; i < FLASH_READS && flash->reading && now >= flash->ill_next_ns; i++) {
		struct read *read = &flash->reads[i];
		int late = flash->breaker.state == BREAKER_PROBING && read->turn == flash->breaker.turn &&
		           now >= flash->breaker.until_ns;
		if (!read->req || read->bad || (now <= read->ill_ns && !late))
			continue;
		read->bad = 1;
		breaker_bad(&flash->breaker, read->turn, now);
	}
	if (now >= flash->ill_next_ns)
		flash->ill_next_ns = now + FLASH_ILL_NS / 50;
	int shut = breaker_shut(&flash->breaker, now);
	struct lane *lanes[] = {&flash->reads_waiting, &flash->reads_background};
	for (int i = 0; i < 2 && shut; i++)
		for (struct tier_req *req; (req = lane_drain(lanes[i])); did = 1) {
			flash->breaker.refused++;
			flash_finish(req, CAIRN_E_IO);
		}
	return did;
}

static void shut_tell(struct flash *flash)
{
	int shut = breaker_shut(&flash->breaker, flash_now(flash)), hung = shut && flash->breaker.state == BREAKER_OPEN;
	if (shut == flash->shut && hung == flash->hung)
		return;
	flash->shut = shut;
	flash->hung = hung;
	flash->host->shut(flash->host->arg, flash->device, shut, hung);
}

/* The read that goes next; NULL: none can. */
static struct tier_req *read_next(struct flash *flash)
{
	struct lane *lane = &flash->reads_waiting;
	if (lane_empty(lane) && flash->reading_background < FLASH_READS_BACKGROUND)
		lane = &flash->reads_background;
	struct tier_req *req = list_empty(&flash->reads_free) ? NULL : lane_first(lane, 0);
	if (!req || (flash->reading && flash->reading_bytes + req->entry.stored_length > FLASH_READS_BYTES))
		return NULL;
	lane_take(lane, req);
	return req;
}

static int reads_start(struct flash *flash)
{
	int did = reads_ill(flash);
	for (struct tier_req *req; (req = read_next(flash));) {
		uint64_t now = flash_now(flash);
		/* Asked now, in the thread that moves parts and frees segments: it stays true while `readers` counts us. */
		if (!flash->host->place(flash->host->arg, flash->device, &req->entry, &req->page)) {
			flash_finish(req, CAIRN_MISS);
			did = 1;
			continue;
		}
		uint32_t segment = req->page / flash->segment_pages;
		uint64_t end = (uint64_t)req->page % flash->segment_pages + flash_pages_of(req->entry.stored_length);
		did = 1;
		if (segment >= flash->nsegments || end > flash->segment_pages) {
			flash_finish(req, CAIRN_DAMAGED); /* a place that no segment has: from a damaged index */
			continue;
		}
		uint32_t turn = breaker_ask(&flash->breaker, now);
		if (!turn) {
			flash_finish(req, CAIRN_E_IO);
			continue;
		}
		struct read *read = LIST_OF(list_pop_front(&flash->reads_free), struct read, link);
		read->req = req;
		read->flash = flash;
		read->segment = segment;
		read->again = read->bad = 0;
		read->turn = turn;
		read->started_ns = now;
		flash->reading++;
		flash->reading_background += req->background;
		flash->reading_bytes += req->entry.stored_length;
		read->ill_ns = now + FLASH_ILL_NS + flash->reading_bytes * FLASH_ILL_BYTES_NS;
		flash->segments[segment].readers++;
		read_submit(read);
	}
	return did;
}

/* ---- loop -------------------------------------------------------------------------------------------------------- */

static void flash_submit(void *tier, struct tier_req *req)
{
	struct flash *flash = tier;
	pthread_mutex_lock(&flash->lock);
	req->ticket = ++flash->next_ticket;
	list_push_back(&flash->inbox, &req->link);
	pthread_mutex_unlock(&flash->lock);
	flash->io->ops->wake(flash->io);
}

static void flash_wake(void *tier)
{
	struct flash *flash = tier;
	flash->io->ops->wake(flash->io);
}

static int inbox_sort(struct flash *flash)
{
	int did = 0;
	for (;;) {
		pthread_mutex_lock(&flash->lock);
		struct list *node = list_pop_front(&flash->inbox);
		pthread_mutex_unlock(&flash->lock);
		if (!node)
			return did;
		did = 1;
		struct tier_req *req = LIST_OF(node, struct tier_req, link);
		if (flash->readonly && req->op != TIER_READ) {
			flash_finish(req, CAIRN_E_RDONLY);
			continue;
		}
		switch (req->op) {
		case TIER_READ:
			lane_push(req->background ? &flash->reads_background : &flash->reads_waiting, req);
			break;
		case TIER_WRITE:
			lane_push(req->background ? &flash->writes_background : &flash->writes, req);
			break;
		case TIER_SYNC:
			list_push_back(&flash->syncs, node);
			break;
		default:
			check(req->op == TIER_DECIDE);
			list_push_back(&flash->decides, node);
		}
	}
}

/* What cairn_stat shows of the loop's own counts. */
static void publish(struct flash *flash)
{
	uint32_t open = 0;
	for (int i = 0; i < FLASH_OPEN; i++)
		open += flash->open[i].segment != UINT32_MAX;
	pthread_mutex_lock(&flash->lock);
	flash->stat.segments = flash->budget_segments;
	flash->stat.free_segments = flash->free_backed + (flash->budget_segments > flash->backed
	                                                      ? flash->budget_segments - flash->backed
	                                                      : 0);
	flash->stat.open_segments = open;
	flash->stat.segment_bytes = flash->label.segment_bytes;
	flash->stat.direct = flash->io->direct;
	flash->stat.reads_shut = flash->breaker.state;
	flash->stat.reads_shut_times = flash->breaker.opened;
	flash->stat.reads_refused = flash->breaker.refused;
	flash->stat.used_bytes = flash->label.segments_offset + (uint64_t)flash->backed * flash->label.segment_bytes;
	pthread_mutex_unlock(&flash->lock);
}

static int flash_step(void *tier, uint64_t timeout_ns)
{
	struct flash *flash = tier;
	int did = inbox_sort(flash);
	did |= reads_start(flash);
	if (!flash->readonly) {
		did |= clean_step(flash);
		did |= commit_decisions(flash);
		did |= commit_groups(flash);
		did |= commit_seal(flash);
		did |= commit_ledger(flash);
		did |= commit_flush(flash);
		did |= commit_syncs(flash);
	}
	uint64_t wait = did ? 0 : timeout_ns;
	/* What waits for time and not for a completion: the flush of `none` parts, a search for a victim, growth. */
	if (wait > FLASH_UNFLUSHED_NS / 4 && flash->unflushed_bytes)
		wait = FLASH_UNFLUSHED_NS / 4;
	if (wait > 50000000ull && flash_writes_wait(flash))
		wait = 50000000ull;
	if (wait > FLASH_ILL_NS / 50 && (flash->reading || flash->shut))
		wait = FLASH_ILL_NS / 50;
	shut_tell(flash);
	did |= flash->io->ops->poll(flash->io, wait) > 0;
	shut_tell(flash);
	if (did)
		publish(flash);
	return did;
}

static void flash_leave(void *tier)
{
	struct flash *flash = tier;
	if (flash->io->ops->leave)
		flash->io->ops->leave(flash->io);
}

void flash_buffers(struct flash *flash, const struct io_vec *vec, uint32_t nvec)
{
	if (flash->io->ops->buffers)
		flash->io->ops->buffers(flash->io, vec, nvec);
}

void flash_buffer_gone(struct flash *flash, const void *address)
{
	if (flash->io->ops->buffer_gone)
		flash->io->ops->buffer_gone(flash->io, address);
}

static void flash_stat(void *tier, struct cairn_device_stat *ret_stat)
{
	struct flash *flash = tier;
	pthread_mutex_lock(&flash->lock);
	*ret_stat = flash->stat;
	pthread_mutex_unlock(&flash->lock);
}

/* ---- close ------------------------------------------------------------------------------------------------------- */

#define CLOSE_STUCK_NS 30000000000ull

static int flash_quiet(struct flash *flash)
{
	pthread_mutex_lock(&flash->lock);
	int queued = !list_empty(&flash->inbox);
	pthread_mutex_unlock(&flash->lock);
	return !queued && lane_empty(&flash->reads_waiting) && lane_empty(&flash->reads_background) &&
	       (flash->readonly || (commit_idle(flash) && !ledger_gathered(&flash->ledger)));
}

int flash_close(struct flash *flash, uint64_t next_birth, const struct flash_checkpoint *checkpoint)
{
	int error = 0;
	flash->closing = 1;
	uint64_t stuck_ns = flash_now(flash) + CLOSE_STUCK_NS;
	while (!flash_quiet(flash)) {
		uint64_t before = flash->sequence + flash->ledger.durable_sequence;
		flash_step(flash, 10000000);
		if (flash->sequence + flash->ledger.durable_sequence != before)
			stuck_ns = flash_now(flash) + CLOSE_STUCK_NS;
		if (flash_now(flash) > stuck_ns) { /* a device that neither works nor fails: it is as if the power went */
			error = err_set(CAIRN_E_IO, "%s did not end its work: it is closed as if the power had gone", flash->path);
			break;
		}
	}
	if (!flash->readonly && commit_idle(flash)) {
		error = recover_checkpoint_write(flash, checkpoint);
		struct ledger_record record = *mark_now(flash, next_birth);
		record.u.mark.clean = 1;
		record.u.mark.flushed_through = flash->sequence;
		if (!error)
			error = recover_wipe_tails(flash);
		if (!error)
			error = ledger_add(&flash->ledger, &record) ? -ENOMEM : 0;
		if (!error)
			error = ledger_commit(&flash->ledger);
		if (error)
			error = err_set(err_from_errno(-error), "cannot close %s cleanly: %s", flash->path, strerror(-error));
	}
	flash_abandon(flash);
	return error;
}

const struct tier_ops flash_ops = {
	.name = "flash",
	.submit = flash_submit,
	.step = flash_step,
	.wake = flash_wake,
	.stat = flash_stat,
	.leave = flash_leave,
};
