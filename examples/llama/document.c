/* SPDX-License-Identifier: Apache-2.0 */
/* A long text made from a seed: the log of a supply post. The same seed gives the same bytes everywhere. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "demo.h"

static const char *const keepers[] = {"Marta Velt", "Jonas Reek", "Ilse Harrow", "Pavel Tarn", "Odile Crane",
                                      "Samuel Birk", "Nuria Stone", "Anselm Gray"};
static const char *const winds[] = {"north", "north-east", "east", "south", "south-west", "west"};
static const char *const goods[] = {"lamp oil", "dried fish", "rope", "salt", "oak planks", "wool", "barley",
                                    "copper wire"};
static const char *const places[] = {"the east store", "the upper barn", "the stone cellar", "the ferry shed",
                                     "the old chapel", "the mill loft"};
static const char *const towns[] = {"Greyholm", "Tarn Ford", "Upper Wick", "Saltmarsh", "Kettle Bay", "Bridge End"};
static const char *const carriers[] = {"mules", "carts", "sledges", "porters", "boats"};
static const char *const events[] = {
	"The bridge at %s was closed until noon because the river stood high.",
	"A trader from %s asked for shelter and paid with two lanterns.",
	"The warden of %s sent word that the road will be mended before the frost.",
	"Somebody from %s left a letter for the surveyor, which we keep in the red box.",
	"Two children from %s brought back the dog that ran away last week.",
	"The post rider to %s lost a shoe of his horse and stayed the night.",
};
#define COUNT(array) (uint32_t)(sizeof(array) / sizeof((array)[0]))

/* splitmix64: well mixed from any seed. */
static uint64_t mix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static uint32_t pick(uint64_t *state, uint32_t n)
{
	return (uint32_t)(mix(state) % n);
}

size_t document_entry(uint32_t seed, uint32_t index, char *text, size_t max)
{
	uint64_t state = (uint64_t)seed << 32 | index;
	size_t length = 0;

	length += (size_t)snprintf(text, max, "Day %u of year %u. ", index + 1, 1800 + seed % 100);
	length += (size_t)snprintf(text + length, max - length, "Wind from the %s, %u degrees in the morning. ",
	                           winds[pick(&state, COUNT(winds))], pick(&state, 25) + 1);
	length += (size_t)snprintf(text + length, max - length, "%s counted %u crates of %s in %s ",
	                           keepers[pick(&state, COUNT(keepers))], pick(&state, 240) + 3,
	                           goods[pick(&state, COUNT(goods))], places[pick(&state, COUNT(places))]);
	length += (size_t)snprintf(text + length, max - length, "and sent %u %s to %s. ", pick(&state, 9) + 2,
	                           carriers[pick(&state, COUNT(carriers))], towns[pick(&state, COUNT(towns))]);
	length += (size_t)snprintf(text + length, max - length, events[pick(&state, COUNT(events))],
	                           towns[pick(&state, COUNT(towns))]);
	length += (size_t)snprintf(text + length, max - length, "\n");
	return length;
}

char *document_make(struct engine *engine, uint32_t seed, size_t ntokens)
{
	struct talk talk = {0};
	size_t length = 0, room = ntokens * 16 + 1024;
	char *text = must(malloc(room));

	/* Tokens of the entries one by one: about what they are together. */
	for (uint32_t index = 0; talk.ntokens < ntokens; index++) {
		size_t entry;

		if (room - length < 1024)
			text = must(realloc(text, room *= 2));
		entry = document_entry(seed, index, text + length, room - length);
		talk_add_text(engine, &talk, text + length, 0, 0);
		length += entry;
	}
	talk_done(&talk);
	return text;
}
