/* SPDX-License-Identifier: Apache-2.0 */
/* Alarms. See alarm.h. */
#include "policy/alarm.h"

#include <string.h>

static uint64_t window_ns(const struct alarm *alarm)
{
	return (uint64_t)(alarm->minutes ? alarm->minutes : ALARM_MINUTES) * 60 * 1000000000ull;
}

void alarm_set(struct alarm *alarm, uint32_t minutes)
{
	alarm->minutes = !minutes ? ALARM_MINUTES : minutes < ALARM_MINUTES_MAX ? minutes : ALARM_MINUTES_MAX;
	alarm->active = 0;
}

/* Keeps a sample for each eighth of the time looked back, and the youngest one that is old enough. */
static void sample_keep(struct alarm *alarm, uint64_t now_ns, const struct alarm_totals *totals)
{
	uint32_t n = alarm->nsamples;
	if (n && now_ns - alarm->samples[n - 1].at_ns < window_ns(alarm) / (ALARM_SAMPLES - 1))
		return;
	uint32_t old = 0; /* of those that are old enough all but the youngest have served */
	while (old + 1 < n && now_ns - alarm->samples[old + 1].at_ns >= window_ns(alarm))
		old++;
	old += n - old == ALARM_SAMPLES;
	memmove(alarm->samples, alarm->samples + old, (n - old) * sizeof(alarm->samples[0]));
	n -= old;
	alarm->samples[n] = (struct alarm_sample){now_ns, *totals};
	alarm->nsamples = n + 1;
}

uint32_t alarm_step(struct alarm *alarm, uint64_t now_ns, const struct alarm_totals *totals)
{
	sample_keep(alarm, now_ns, totals);
	const struct alarm_sample *then = &alarm->samples[0];
	/* What stands may end at any time: it is held against the shortest time that is known, the last sample or two. */
	const struct alarm_sample *lately = &alarm->samples[alarm->nsamples > 1 ? alarm->nsamples - 2 : 0];
	int long_enough = now_ns - then->at_ns >= window_ns(alarm);
	uint64_t written = totals->written_bytes - then->totals.written_bytes;
	uint64_t read = totals->read_bytes - then->totals.read_bytes;
	uint64_t lost = totals->lost_bytes - then->totals.lost_bytes;
	uint64_t refused = totals->refused_bytes - then->totals.refused_bytes;
	int failed = totals->errors != then->totals.errors;
	if (long_enough && written >= ALARM_FLOOR_BYTES && read < written / 100 * ALARM_READ_PERCENT)
		alarm->active |= ALARM_WRITE_ONLY;
	if (long_enough && totals->demoted_bytes == then->totals.demoted_bytes &&
	    lost + (failed ? refused : 0) >= ALARM_FLOOR_BYTES)
		alarm->active |= ALARM_NO_DEMOTION;
	uint64_t new_written = totals->written_bytes - lately->totals.written_bytes;
	uint64_t new_read = totals->read_bytes - lately->totals.read_bytes;
	if (new_read && new_read >= new_written / 100 * ALARM_READ_PERCENT)
		alarm->active &= ~(uint32_t)ALARM_WRITE_ONLY;
	if (totals->demoted_bytes != lately->totals.demoted_bytes)
		alarm->active &= ~(uint32_t)ALARM_NO_DEMOTION;
	return alarm->active;
}
