/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows. See text.h. */
#include "daemon/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "base/mem.h"

static int text_fit(struct text *text, size_t more)
{
	size_t room = text->room ? text->room : 4096;
	if (text->failed || text->used + more > TEXT_MAX) {
		text->failed = 1;
		return -1;
	}
	while (room < text->used + more)
		room *= 2;
	if (room == text->room)
		return 0;
	char *grown = mem_grow(text->at, room);
	if (!grown) {
		text->failed = 1;
		return -1;
	}
	text->at = grown;
	text->room = room;
	return 0;
}

void text_add(struct text *text, const char *format, ...)
{
	va_list arguments;
	for (int again = 0; again < 2; again++) {
		size_t room = text->room - text->used;
		va_start(arguments, format);
		int length = vsnprintf(text->at ? text->at + text->used : NULL, room, format, arguments);
		va_end(arguments);
		if (length >= 0 && (size_t)length < room) {
			text->used += (size_t)length;
			return;
		}
		if (length < 0 || text_fit(text, (size_t)length + 1))
			return;
	}
}

size_t text_sequence(const uint8_t *at)
{
	if (at[0] < 0x80)
		return 1;
	size_t length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
	uint8_t low = at[0] == 0xe0 ? 0xa0 : at[0] == 0xf0 ? 0x90 : 0x80;
	uint8_t high = at[0] == 0xed ? 0x9f : at[0] == 0xf4 ? 0x8f : 0xbf;
	if (at[0] < 0xc2 || at[0] > 0xf4 || at[1] < low || at[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

void text_quoted(struct text *text, const char *value)
{
	text_add(text, "\"");
	for (const uint8_t *at = (const uint8_t *)value; *at && at < (const uint8_t *)value + 255;) {
		size_t step = text_sequence(at);
		/* Prometheus knows \\, \" and \n; JSON these and more. Other control characters have no use in a name. */
		if (*at == '"' || *at == '\\')
			text_add(text, "\\%c", *at);
		else if (*at == '\n')
			text_add(text, "\\n");
		else if (!step || *at < ' ' || *at == 0x7f)
			text_add(text, "?");
		else
			text_add(text, "%.*s", (int)step, (const char *)at);
		at += step ? step : 1;
	}
	text_add(text, "\"");
}

void text_done(struct text *text)
{
	mem_free(text->at);
	*text = (struct text){0};
}
