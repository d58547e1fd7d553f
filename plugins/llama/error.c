/* SPDX-License-Identifier: Apache-2.0 */
/* The text of this thread's last failure. Held in thread-local memory; nothing is allocated. */
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "llama_in.h"

static _Thread_local char text[1024] = "no error";

int cllama_fail(int code, const char *format, ...)
{
	char line[sizeof text]; /* an argument may be the text itself */
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	snprintf(text, sizeof text, "%s", line);
	return code;
}

int cllama_fail_cairn(int code, const char *what)
{
	return cllama_fail(code, "%s: %s", what, cairn_error_text());
}

const char *cairn_llama_error_text(void)
{
	return text;
}

double cllama_now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
