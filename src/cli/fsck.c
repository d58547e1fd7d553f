/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cairn fsck`: checks a store that nobody has open, and mends it on request.
 * Threads: one. Memory: with --json, all findings.
 * Invariant: without --repair nothing is written. Status 0 means that a check now would find nothing.
 */
#include "fsck/fsck.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

enum { KEY_REPAIR = VERB_KEY, KEY_DEVICE, KEY_NOTES };

static struct fsck_run {
	int repair, notes;
	const char *devices[16];
	uint32_t ndevices;
	json_t *findings;
	struct progress progress;
	char what[128]; /* the step of progress */
	uint64_t notes_hidden;
} fsck;

static int fsck_option(int key, char *value)
{
	switch (key) {
	case KEY_REPAIR:
		fsck.repair = 1;
		return 0;
	case KEY_NOTES:
		fsck.notes = 1;
		return 0;
	default:
		if (fsck.ndevices == sizeof fsck.devices / sizeof fsck.devices[0])
			return say_error("--device is given more than %u times; a store has at most as many", fsck.ndevices);
		fsck.devices[fsck.ndevices++] = value;
		return 0;
	}
}

static int fsck_progress(void *arg, const char *what, uint64_t done, uint64_t all)
{
	(void)arg;
	if (strncmp(what, fsck.what, sizeof fsck.what - 1) != 0) {
		progress_end(&fsck.progress);
		snprintf(fsck.what, sizeof fsck.what, "%s", what);
		progress_start(&fsck.progress, fsck.what, all);
	}
	progress_at(&fsck.progress, done);
	return say_stopped;
}

static void fsck_finding(void *arg, const struct fsck_finding *finding)
{
	(void)arg;
	if (cli.json) {
		json_t *object = json_object();

		json_object_set_new(object, "severity", json_string(fsck_severity_name(finding->severity)));
		json_object_set_new(object, "path", say_json(finding->path ? finding->path : ""));
		json_object_set_new(object, "offset_bytes",
		                    finding->offset != FSCK_NO_OFFSET ? json_integer((json_int_t)finding->offset)
		                                                      : json_null());
		json_object_set_new(object, "text", say_json(finding->text));
		json_array_append_new(fsck.findings, object);
		return;
	}
	if (cli.quiet)
		return;
	if (finding->severity == FSCK_NOTE && !fsck.notes) {
		fsck.notes_hidden++;
		return;
	}
	progress_end(&fsck.progress);
	printf("%-8s  %s", fsck_severity_name(finding->severity), say_name(finding->path ? finding->path : ""));
	if (finding->offset != FSCK_NO_OFFSET)
		printf(" at byte %" PRIu64, finding->offset);
	printf(": %s\n", say_name(finding->text));
}

/* ---- report ------------------------------------------------------------------------------------------------------ */

static int fsck_report_json(const struct fsck_report *report, int result)
{
	static const char *const results[] = {"clean", "repaired", "damaged"};
	json_t *object = json_object(), *counts = json_object();

	json_object_set_new(object, "result", json_string(results[result]));
#define COUNT(name) say_json_number(counts, #name, report->name)
	COUNT(devices);
	COUNT(devices_missing);
	COUNT(segments_free);
	COUNT(segments_open);
	COUNT(segments_sealed);
	COUNT(segments_checkpoint);
	COUNT(groups);
	COUNT(parts);
	COUNT(parts_good);
	COUNT(parts_damaged);
	COUNT(parts_dropped);
	COUNT(parts_unflushed);
	COUNT(parts_doubtful);
	COUNT(sessions);
	COUNT(sessions_broken);
	COUNT(blocks_missing);
	COUNT(identity_copies_damaged);
	COUNT(label_copies_damaged);
	COUNT(ledger_pages_damaged_one);
	COUNT(ledger_pages_damaged_both);
	COUNT(groups_damaged);
	COUNT(footers_damaged);
	COUNT(checkpoints_damaged);
	COUNT(manifests_damaged);
	COUNT(io_errors);
	COUNT(problems);
	COUNT(repaired_copies);
	COUNT(rebuilt);
	COUNT(rebuilt_groups);
	COUNT(rewritten_footers);
	COUNT(rewritten_ledgers);
	COUNT(freed_segments);
	COUNT(removed_parts);
	COUNT(forgotten_sessions);
	COUNT(stuck);
#undef COUNT
	say_json_number(object, "read_bytes", report->bytes_read);
	say_json_number(object, "all_bytes", report->bytes_all);
	json_object_set_new(object, "counts", counts);
	json_object_set_new(object, "findings", fsck.findings);
	return say_json_end(object, result == FSCK_DAMAGED ? CLI_NOT : CLI_WHOLE);
}

static void fsck_line(uint64_t count, const char *one, const char *many)
{
	if (count)
		say_line("  %s", say_many(count, one, many));
}

static void fsck_report_content(const struct fsck_report *report)
{
	say_line("%s on %s, %s of %s read: %s, %s", say_many(report->parts, "part", "parts"),
	         say_many(report->devices, "device", "devices"), say_size(report->bytes_read), say_size(report->bytes_all),
	         say_many(report->sessions, "session", "sessions"), say_many(report->problems, "problem", "problems"));
	fsck_line(report->parts_damaged, "damaged part", "damaged parts");
	fsck_line(report->parts_doubtful, "part that a lost drop could have covered",
	          "parts that lost drops could have covered");
	fsck_line(report->manifests_damaged, "session whose manifest is damaged", "sessions whose manifests are damaged");
	if (report->sessions_broken)
		say_line("  %s of which %s evicted or lost", say_many(report->sessions_broken, "session", "sessions"),
		         say_many(report->blocks_missing, "block was", "blocks were"));
	fsck_line(report->devices_missing, "device is missing", "devices are missing");
	fsck_line(report->io_errors, "read failed", "reads failed");
	if (fsck.notes_hidden)
		say_line("  %s; see --notes", say_many(fsck.notes_hidden, "note", "notes"));
}

static void fsck_report_repair(const struct fsck_report *report)
{
	fsck_line(report->repaired_copies, "copy mended from the good one", "copies mended from the good ones");
	fsck_line(report->rebuilt, "identity or label rebuilt", "identities and labels rebuilt");
	fsck_line(report->rebuilt_groups, "group index rebuilt", "group indexes rebuilt");
	fsck_line(report->rewritten_footers, "footer rewritten", "footers rewritten");
	fsck_line(report->rewritten_ledgers, "ledger rewritten", "ledgers rewritten");
	fsck_line(report->removed_parts, "part removed", "parts removed");
	fsck_line(report->forgotten_sessions, "session forgotten", "sessions forgotten");
	fsck_line(report->freed_segments, "segment freed", "segments freed");
}

static int fsck_report_text(const struct fsck_report *report, int result)
{
	fsck_report_content(report);
	if (fsck.repair)
		fsck_report_repair(report);
	if (result == FSCK_CLEAN)
		say_line("whole");
	else if (result == FSCK_REPAIRED)
		say_line("repaired: all that was damaged is mended or taken out");
	else if (fsck.repair)
		return say_not("%s that repair can do nothing about: see the lines above",
		               say_many(report->stuck, "problem is left", "problems are left"));
	else
		return say_not("the store is damaged; cairn fsck --repair mends what can be mended, and takes the rest out");
	return CLI_WHOLE;
}

static int fsck_run_verb(char **operand, uint32_t count)
{
	struct fsck_report report;
	const struct fsck_options options = {
		.size = sizeof options,
		.path = operand[0],
		.repair = fsck.repair,
		.progress = fsck_progress,
		.finding = fsck_finding,
		.devices = fsck.devices,
		.ndevices = fsck.ndevices,
	};

	(void)count;
	fsck.findings = cli.json ? json_array() : NULL;
	int result = fsck_run(&options, &report);

	progress_end(&fsck.progress);
	if (result == CAIRN_E_CANCELED)
		return say_error("interrupted; %s", fsck.repair ? "run it again: the store opens, mended in part"
		                                                : "nothing was written");
	if (result < 0)
		return say_error("%s", cairn_error_text());
	return cli.json ? fsck_report_json(&report, result) : fsck_report_text(&report, result);
}

static const struct argp_option fsck_options[] = {
	{"repair", KEY_REPAIR, NULL, 0, "Mend what can be mended, and take what can not out of the store", 0},
	{"notes", KEY_NOTES, NULL, 0, "Show notes too: what is worth knowing but no problem", 0},
	{"device", KEY_DEVICE, "PATH", 0,
     "A flash device outside of STORE; needed only when cairn.id is lost; once for each", 0},
	{0},
};

const struct verb verb_fsck = {
	.name = "fsck",
	.operands = "STORE",
	.summary = "check a store, and mend it",
	.text =
		"Reads and checks every part of STORE, which no process may have open. Without --repair nothing is written. "
		"Exit status: 0 whole, or repaired; 1 damaged; 2 it could not be checked."
		"\vExamples:\n"
		"  cairn fsck /var/cache/cairn\n"
		"  cairn fsck /var/cache/cairn --repair\n"
		"  cairn fsck /var/cache/cairn --json\n",
	.options = fsck_options,
	.option = fsck_option,
	.run = fsck_run_verb,
	.shared = VERB_JSON | VERB_QUIET,
	.least = 1,
	.most = 1,
};
