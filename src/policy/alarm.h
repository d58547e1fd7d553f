/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Alarms: what has gone on for long and should not. Looked at now and then, with the totals at that moment; they
 * are compared with what they were `minutes` ago.
 *
 * Threads: one owner. Memory: none. Pure: the time is an argument.
 * Invariant: no alarm is raised before it has been so for `minutes`; one that stands ends when what it says is over,
 * and does not end because nothing happens at all.
 */
#ifndef CAIRN_POLICY_ALARM_H
#define CAIRN_POLICY_ALARM_H

#include <stdint.h>

enum {
	ALARM_MINUTES = 30, /* the default */
	ALARM_MINUTES_MAX = 10080,
	ALARM_SAMPLES = 9,      /* of the time that is looked back */
	ALARM_READ_PERCENT = 1, /* of what was written */
};
#define ALARM_FLOOR_BYTES (64ull << 20) /* less than so much tells nothing */

/* The same bits as CAIRN_ALARM_... */
enum {
	ALARM_WRITE_ONLY = 1u << 0,
	ALARM_NO_DEMOTION = 1u << 1
};

struct alarm_totals {
	uint64_t written_bytes; /* taken in */
	uint64_t read_bytes;    /* delivered, from whatever tier */
	uint64_t demoted_bytes; /* arrived in flash */
	uint64_t lost_bytes;    /* left memory for good though they should have been in flash */
	uint64_t refused_bytes; /* the same, over the write budget */
	uint64_t errors;        /* of flash */
};

struct alarm {
	uint32_t minutes, active;
	uint32_t nsamples;
	struct alarm_sample {
		uint64_t at_ns;
		struct alarm_totals totals;
	} samples[ALARM_SAMPLES]; /* oldest first */
};

/* minutes 0: the default. What stands is forgotten, the samples are not. */
void alarm_set(struct alarm *alarm, uint32_t minutes);
/* The alarms that stand now. */
uint32_t alarm_step(struct alarm *alarm, uint64_t now_ns, const struct alarm_totals *totals);

#endif
