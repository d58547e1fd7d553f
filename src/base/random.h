/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A deterministic random generator (xoshiro256**, seeded by splitmix64) for simulation, tests and sampling. The same
 * seed gives the same numbers on every machine; nothing secret may come from it (digest_random is for that).
 * Threads: a state has one owner.
 */
#ifndef CAIRN_BASE_RANDOM_H
#define CAIRN_BASE_RANDOM_H

#include <stdint.h>

struct random {
	uint64_t state[4];
};

static inline void random_init(struct random *random, uint64_t seed)
{
	for (int i = 0; i < 4; i++) {
		uint64_t z = seed += 0x9e3779b97f4a7c15u;
		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
		z = (z ^ z >> 27) * 0x94d049bb133111ebu;
		random->state[i] = z ^ z >> 31;
	}
}

static inline uint64_t random_rotate(uint64_t value, int bits)
{
	return value << bits | value >> (64 - bits);
}

static inline uint64_t random_next(struct random *random)
{
	uint64_t *s = random->state;
	uint64_t result = random_rotate(s[1] * 5, 7) * 9, shifted = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= shifted;
	s[3] = random_rotate(s[3], 45);
	return result;
}

/* Uniform in [0, bound); 0 for a bound of 0. */
static inline uint64_t random_below(struct random *random, uint64_t bound)
{
	if (bound == 0)
		return 0;
	uint64_t skip = (0 - bound) % bound, value; /* 2^64 mod bound: the values that would favour some results */
	do
		value = random_next(random);
	while (value < skip);
	return value % bound;
}

/* 1 with a probability of per_million / 1,000,000. Always takes exactly one number. */
static inline int random_chance(struct random *random, uint32_t per_million)
{
	return random_next(random) % 1000000 < per_million;
}

#endif
