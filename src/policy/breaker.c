/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Breakers. See breaker.h.
 * Threads: one owner. Memory: the caller's.
 */
#include "policy/breaker.h"

#include "base/check.h"

static void change(struct breaker *breaker, uint32_t state)
{
	breaker->state = state;
	breaker->turn = breaker->turn == UINT32_MAX ? 1 : breaker->turn + 1;
	breaker->failures = 0;
}

static void open_now(struct breaker *breaker, uint64_t now_ns)
{
	change(breaker, BREAKER_OPEN);
	breaker->opened++;
	breaker->until_ns = now_ns + breaker->pause_ns;
	breaker->pause_ns =
		breaker->pause_ns > breaker->rule.pause_max_ns / 2 ? breaker->rule.pause_max_ns : breaker->pause_ns * 2;
}

void breaker_init(struct breaker *breaker, const struct breaker_rule *rule)
{
	check(rule->failures && rule->pause_ns && rule->pause_max_ns >= rule->pause_ns);
	*breaker = (struct breaker){.rule = *rule, .state = BREAKER_CLOSED, .turn = 1, .pause_ns = rule->pause_ns};
}

int breaker_shut(const struct breaker *breaker, uint64_t now_ns)
{
	return breaker->state != BREAKER_CLOSED && now_ns < breaker->until_ns;
}

uint32_t breaker_ask(struct breaker *breaker, uint64_t now_ns)
{
	if (breaker->state == BREAKER_PROBING && now_ns >= breaker->until_ns)
		open_now(breaker, now_ns); /* its probe hangs */
	if (breaker->state == BREAKER_OPEN && now_ns >= breaker->until_ns) {
		change(breaker, BREAKER_PROBING);
		breaker->until_ns = now_ns + breaker->pause_ns;
		return breaker->turn;
	}
	if (breaker->state == BREAKER_CLOSED)
		return breaker->turn;
	breaker->refused++;
	return 0;
}

void breaker_good(struct breaker *breaker, uint32_t turn)
{
	if (turn != breaker->turn)
		return;
	if (breaker->state == BREAKER_PROBING) {
		change(breaker, BREAKER_CLOSED);
		breaker->pause_ns = breaker->rule.pause_ns;
	}
	breaker->failures = 0;
}

void breaker_bad(struct breaker *breaker, uint32_t turn, uint64_t now_ns)
{
	if (turn != breaker->turn)
		return;
	if (breaker->state == BREAKER_PROBING || ++breaker->failures >= breaker->rule.failures)
		open_now(breaker, now_ns);
}

void breaker_give_back(struct breaker *breaker, uint32_t turn, uint64_t now_ns)
{
	if (turn != breaker->turn || breaker->state != BREAKER_PROBING)
		return;
	change(breaker, BREAKER_OPEN);
	breaker->until_ns = now_ns;
}

const char *breaker_state_name(uint32_t state)
{
	static const char *const names[] = {"closed", "open", "probing"};
	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}
