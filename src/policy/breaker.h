/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A breaker: what fails, or is too slow, several times in a row is stepped over for a while, then tried by one request
 * (a probe) before all may use it again. One for each thing that can be ill: a device, a peer.
 *
 *     closed --failures in a row--> open --pause over, one tries--> probing --good--> closed
 *                                    ^---------------------bad------'   (the pause is twice as long)
 *
 * Whoever asks is given a turn and brings it back with what came of it. The answer to a turn from before the last
 * change of state says nothing of the present one: it is not counted. So the hundred requests that were under way when
 * it opened neither close it nor make the pause longer.
 *
 * Threads: one owner, or under a lock of the caller's. Memory: the caller's. Time: given; no clock is read.
 * Invariant: at most one probe is out; one that is not back after a pause counts as bad.
 */
#ifndef CAIRN_POLICY_BREAKER_H
#define CAIRN_POLICY_BREAKER_H

#include <stdint.h>

enum breaker_state {
	BREAKER_CLOSED = 0,  /* all may use it */
	BREAKER_OPEN = 1,    /* nobody */
	BREAKER_PROBING = 2, /* one does, to see */
};

struct breaker_rule {
	uint32_t failures;     /* so many in a row open it; at least 1 */
	uint64_t pause_ns;     /* first pause; each probe that fails makes the next one twice as long ... */
	uint64_t pause_max_ns; /* ... up to this */
};

struct breaker {
	struct breaker_rule rule;
	uint32_t state;           /* enum breaker_state */
	uint32_t turn;            /* of the present state; never 0 */
	uint32_t failures;        /* in a row */
	uint64_t pause_ns;        /* of the next time it opens */
	uint64_t until_ns;        /* OPEN: no probe before; PROBING: the probe must be back */
	uint64_t opened, refused; /* counts: times, requests */
};

void breaker_init(struct breaker *breaker, const struct breaker_rule *rule);
/* Whether a request may go: its turn, or 0: it is to be stepped over. */
uint32_t breaker_ask(struct breaker *breaker, uint64_t now_ns);
/* The same without asking for oneself: would it be stepped over? Changes nothing. */
int breaker_shut(const struct breaker *breaker, uint64_t now_ns);
/* What came of a turn. */
void breaker_good(struct breaker *breaker, uint32_t turn);
void breaker_bad(struct breaker *breaker, uint32_t turn, uint64_t now_ns);
/* A turn that was never used, or whose request was taken back: if it was the probe, another may be it. */
void breaker_give_back(struct breaker *breaker, uint32_t turn, uint64_t now_ns);
/* "closed", "open", "probing". */
const char *breaker_state_name(uint32_t state);

#endif
