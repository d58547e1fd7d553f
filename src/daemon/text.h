/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows, for answers of the admin endpoint. Threads: one. Memory: grows to TEXT_MAX, then it is failed. */
#ifndef CAIRN_DAEMON_TEXT_H
#define CAIRN_DAEMON_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define TEXT_MAX (8u << 20)

struct text {
	char *at;
	size_t used, room;
	int failed;
};
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* In quotes: a label's value, and a JSON string; what neither takes as it is becomes an escape, bytes that are no
 * UTF-8 become '?'. At most 255 bytes of it. */
void text_quoted(struct text *text, const char *value);
/* Bytes of the UTF-8 sequence that begins here; 0: none does. The text ends with a 0. */
size_t text_sequence(const uint8_t *at);
void text_done(struct text *text);

#endif
