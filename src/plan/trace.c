/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading recorded requests. See trace.h.
 *
 * The text is foreign: a small reader of JSON goes over it, takes what it needs by name and skips the rest; whatever is
 * not as described ends the reading with INVAL and the number of the record.
 */
#include "plan/trace.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/mem.h"
#include "cairn/cairn.h"

enum { IDS_PER_BLOCK = 8, DEPTH_MAX = 16, NAME_MAX_BYTES = 32 };
#define TEXT_MAX (1u << 30)

struct reader {
	const char *at;        /* in the text, which ends with a 0 */
	struct trace *trace;
	size_t requests_room;
	uint64_t refs_room;
	uint64_t *keys;        /* hash table of block identities; 0: free */
	uint32_t *numbers;
	uint32_t slots;        /* a power of two */
	double *starts;        /* by session, seconds */
	size_t nstarts, session;
	int error;
};

/* ---- text -------------------------------------------------------------------------------------------------------- */

static int text_read(const char *path, char **ret_text)
{
	gzFile file = gzopen(path, "rb");
	if (!file)
		return err_set(err_from_errno(errno ? errno : ENOMEM), "trace %s: %s", path, strerror(errno ? errno : ENOMEM));
	size_t used = 0, room = 1 << 20;
	char *text = mem_grow(NULL, room);
	int got = 0;
	while (text && (got = gzread(file, text + used, (unsigned)(room - used - 1))) > 0) {
		used += (size_t)got;
		if (used + 1 < room)
			continue;
		char *grown = room < TEXT_MAX ? mem_grow(text, room * 2) : NULL;
		if (!grown)
			break;
		text = grown;
		room *= 2;
	}
	gzclose_r(file);
	if (text && !got) {
		text[used] = 0;
		*ret_text = text;
		return 0;
	}
	mem_free(text);
	if (got < 0)
		return err_set(CAIRN_E_IO, "trace %s: it cannot be read or unpacked", path);
	return err_set(text ? CAIRN_E_SIZE : CAIRN_E_NOMEM, "trace %s: no memory, or over %u bytes", path, TEXT_MAX);
}

static int wrong(struct reader *reader, const char *what)
{
	if (!reader->error)
		reader->error = err_set(CAIRN_E_INVAL, "%s", what);
	return 0;
}

static char next_char(struct reader *reader)
{
	while (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\r' || *reader->at == '\n')
		reader->at++;
	return *reader->at;
}

static int take(struct reader *reader, char c)
{
	if (next_char(reader) != c)
		return 0;
	reader->at++;
	return 1;
}

/* A string; what does not fit `name` is cut. */
static int read_string(struct reader *reader, char name[NAME_MAX_BYTES])
{
	size_t used = 0;
	if (!take(reader, '"'))
		return wrong(reader, "a string was expected");
	for (; *reader->at && *reader->at != '"'; reader->at++) {
		if (*reader->at == '\\' && !*++reader->at)
			break;
		if (used + 1 < NAME_MAX_BYTES)
			name[used++] = *reader->at;
	}
	name[used] = 0;
	return *reader->at++ ? 1 : (reader->at--, wrong(reader, "a string without its end"));
}

static int read_number(struct reader *reader, double max, double *ret_value)
{
	char *end;
	next_char(reader);
	double value = strtod(reader->at, &end);
	if (end == reader->at || !(value >= 0 && value <= max))
		return wrong(reader, "a number is missing, or out of its bounds");
	reader->at = end;
	*ret_value = value;
	return 1;
}

static int skip_value(struct reader *reader, int depth)
{
	char name[NAME_MAX_BYTES], c = next_char(reader), close = c == '{' ? '}' : ']';
	if (c == '"')
		return read_string(reader, name);
	if (c != '{' && c != '[') {
		const char *from = reader->at;
		while (isalnum((unsigned char)*reader->at) || (*reader->at && strchr("+-.", *reader->at)))
			reader->at++;
		return reader->at > from || wrong(reader, "a value was expected");
	}
	if (depth == DEPTH_MAX)
		return wrong(reader, "nested too deep");
	reader->at++;
	for (int first = 1; !take(reader, close); first = 0) {
		if (!first && !take(reader, ','))
			return wrong(reader, "a comma was expected");
		if (c == '{' && !(read_string(reader, name) && take(reader, ':')))
			return wrong(reader, "a member was expected");
		if (!skip_value(reader, depth + 1))
			return 0;
	}
	return 1;
}

/* Steps to the next member of an object (*first is 1 before its '{'), and reads its name; 0: none left, or wrong. */
static int next_member(struct reader *reader, int *first, char name[NAME_MAX_BYTES])
{
	if (!take(reader, *first ? '{' : ','))
		return *first || !take(reader, '}') ? wrong(reader, "an object was expected") : 0;
	if (*first && take(reader, '}'))
		return 0;
	*first = 0;
	return read_string(reader, name) && (take(reader, ':') || wrong(reader, "a colon was expected"));
}

static int next_element(struct reader *reader, int *first)
{
	if (!take(reader, *first ? '[' : ','))
		return *first || !take(reader, ']') ? wrong(reader, "an array was expected") : 0;
	if (*first && take(reader, ']'))
		return 0;
	*first = 0;
	return 1;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static int no_memory(struct reader *reader)
{
	if (!reader->error)
		reader->error = err_set(CAIRN_E_NOMEM, "no memory for the trace");
	return 0;
}

static uint32_t slot_of(const struct reader *reader, uint64_t key)
{
	uint32_t at = (uint32_t)(key >> 32) & (reader->slots - 1);
	while (reader->keys[at] && reader->keys[at] != key)
		at = (at + 1) & (reader->slots - 1);
	return at;
}

static int table_grow(struct reader *reader)
{
	struct reader old = *reader;
	reader->slots = old.slots ? old.slots * 2 : 1 << 16;
	reader->keys = mem_array(reader->slots, sizeof(*reader->keys));
	reader->numbers = mem_array(reader->slots, sizeof(*reader->numbers));
	if (!reader->keys || !reader->numbers) {
		mem_free(reader->keys);
		mem_free(reader->numbers);
		*reader = old;
		return no_memory(reader);
	}
	for (uint32_t i = 0; i < old.slots; i++) {
		uint32_t at = old.keys[i] ? slot_of(reader, old.keys[i]) : 0;
		if (!old.keys[i])
			continue;
		reader->keys[at] = old.keys[i];
		reader->numbers[at] = old.numbers[i];
	}
	mem_free(old.keys);
	mem_free(old.numbers);
	return 1;
}

/* Appends a block to the request that is being read. `key`: its identity, hashed. */
static int add_block(struct reader *reader, struct trace_request *request, uint64_t key)
{
	struct trace *trace = reader->trace;
	if (trace->nrefs >= TRACE_REFS_MAX) {
		reader->error = reader->error ? reader->error : err_set(CAIRN_E_SIZE, "over %u blocks", TRACE_REFS_MAX);
		return 0;
	}
	if (trace->nblocks >= reader->slots / 2 && !table_grow(reader))
		return 0;
	if (trace->nrefs == reader->refs_room) {
		uint64_t room = reader->refs_room ? reader->refs_room * 2 : 1 << 16;
		uint32_t *grown = mem_grow(trace->refs, room * sizeof(*grown));
		if (!grown)
			return no_memory(reader);
		trace->refs = grown;
		reader->refs_room = room;
	}
	key += !key; /* 0 is a free place */
	uint32_t at = slot_of(reader, key);
	if (!reader->keys[at]) {
		reader->keys[at] = key;
		reader->numbers[at] = trace->nblocks++;
	}
	trace->refs[trace->nrefs++] = reader->numbers[at];
	request->nblocks++;
	return 1;
}

static int add_request(struct reader *reader, const struct trace_request *request)
{
	struct trace *trace = reader->trace;
	if (trace->nrequests == reader->requests_room) {
		size_t room = reader->requests_room ? reader->requests_room * 2 : 4096;
		struct trace_request *grown = mem_grow(trace->requests, room * sizeof(*grown));
		if (!grown)
			return no_memory(reader);
		trace->requests = grown;
		reader->requests_room = room;
	}
	trace->requests[trace->nrequests++] = *request;
	trace->tokens += request->tokens;
	return 1;
}

/* ---- one request a line ------------------------------------------------------------------------------------------ */

static int read_ids(struct reader *reader, struct trace_request *request)
{
	for (int first = 1; next_element(reader, &first);) {
		double id;
		if (!read_number(reader, 9e15, &id))
			return 0;
		uint64_t number = (uint64_t)id;
		if (!add_block(reader, request, digest_xxh3(&number, sizeof(number), 1)))
			return 0;
	}
	return !reader->error;
}

static int line_request(struct reader *reader)
{
	struct trace_request request = {.first = reader->trace->nrefs};
	char name[NAME_MAX_BYTES];
	double ms = -1, tokens = -1;
	for (int first = 1, good = 1; next_member(reader, &first, name);) {
		if (!strcmp(name, "timestamp"))
			good = read_number(reader, 1e12, &ms);
		else if (!strcmp(name, "input_length"))
			good = read_number(reader, 1e9, &tokens);
		else if (!strcmp(name, "hash_ids"))
			good = read_ids(reader, &request);
		else
			good = skip_value(reader, 0);
		if (!good)
			return 0;
	}
	if (reader->error || ms < 0 || tokens < 0)
		return wrong(reader, "a request without timestamp or input_length");
	request.time_us = (uint64_t)llround(ms * 1000);
	request.tokens = (uint32_t)tokens;
	request.partial = request.nblocks && (uint64_t)request.nblocks * TRACE_BLOCK_TOKENS > request.tokens;
	return add_request(reader, &request);
}

/* ---- one session a line ------------------------------------------------------------------------------------------ */

static int read_runs(struct reader *reader, struct trace_request *request)
{
	uint64_t ids[1 + IDS_PER_BLOCK] = {reader->session + 1}; /* what came before, then the group */
	int n = 0;
	for (int first = 1; next_element(reader, &first);) {
		double from, count;
		if (!take(reader, '[') || !read_number(reader, 4e15, &from) || !take(reader, ',') ||
		    !read_number(reader, TRACE_REFS_MAX, &count) || !take(reader, ']'))
			return wrong(reader, "a run [first, count] was expected");
		for (uint64_t i = 0; i < (uint64_t)count; i++) {
			ids[++n] = (uint64_t)from + i;
			if (n < IDS_PER_BLOCK)
				continue;
			n = 0;
			ids[0] = digest_xxh3(ids, sizeof(ids), 2);
			if (!add_block(reader, request, ids[0]))
				return 0;
		}
	}
	return !reader->error;
}

/* The requests of a session or of a sub-agent that began at `start_s`. */
static int read_requests(struct reader *reader, double start_s, int depth)
{
	for (int more = 1; next_element(reader, &more);) {
		struct trace_request request = {.first = reader->trace->nrefs};
		char name[NAME_MAX_BYTES];
		const char *nested = NULL;
		double t = 0, tokens = 0;
		for (int first = 1, good = 1; next_member(reader, &first, name);) {
			if (!strcmp(name, "t")) {
				good = read_number(reader, 1e9, &t);
			} else if (!strcmp(name, "in")) {
				good = read_number(reader, 1e9, &tokens);
			} else if (!strcmp(name, "hash_runs")) {
				good = read_runs(reader, &request);
			} else if (!strcmp(name, "requests")) {
				next_char(reader);
				nested = reader->at; /* its times count from a `t` that may come after it */
				good = skip_value(reader, 0);
			} else {
				good = skip_value(reader, 0);
			}
			if (!good)
				return 0;
		}
		if (reader->error)
			return 0;
		if (nested) {
			const char *after = reader->at;
			reader->at = nested;
			if (depth == DEPTH_MAX || !read_requests(reader, start_s + t, depth + 1))
				return wrong(reader, "sub-agents nest too deep");
			reader->at = after;
			continue;
		}
		request.time_us = (uint64_t)llround((start_s + t) * 1e6);
		request.tokens = (uint32_t)tokens;
		if (!add_request(reader, &request))
			return 0;
	}
	return !reader->error;
}

static int line_session(struct reader *reader)
{
	char name[NAME_MAX_BYTES];
	double start_s = 0;
	if (reader->starts && reader->session >= reader->nstarts)
		return wrong(reader, "no start is given for this session");
	if (reader->starts)
		start_s = reader->starts[reader->session];
	for (int first = 1; next_member(reader, &first, name);)
		if (!(strcmp(name, "requests") ? skip_value(reader, 0) : read_requests(reader, start_s, 0)))
			return 0;
	reader->session++;
	return !reader->error;
}

/* CSV "session,id,start_s", one line for each session in order. */
static int starts_read(struct reader *reader, const char *path)
{
	char *text = NULL;
	int error = text_read(path, &text);
	size_t room = 0;
	if (error)
		return error;
	for (const char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
		char *end;
		const char *comma = strchr(line + 1, ',');
		comma = comma ? strchr(comma + 1, ',') : NULL;
		double start = comma ? strtod(comma + 1, &end) : -1;
		unsigned long long number = strtoull(line + 1, NULL, 10);
		if (!comma || end == comma + 1 || !(start >= 0 && start < 1e9) || number != reader->nstarts) {
			error = err_set(CAIRN_E_INVAL, "%s: line %zu is not \"session,id,start_s\"", path, reader->nstarts + 2);
			break;
		}
		if (reader->nstarts == room) {
			room = room ? room * 2 : 1024;
			double *grown = mem_grow(reader->starts, room * sizeof(*grown));
			if (!grown) {
				error = err_set(CAIRN_E_NOMEM, "no memory for the trace");
				break;
			}
			reader->starts = grown;
		}
		reader->starts[reader->nstarts++] = start;
	}
	mem_free(text);
	return error;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int in_time(const void *a, const void *b)
{
	const struct trace_request *x = a, *y = b;
	if (x->time_us != y->time_us)
		return x->time_us < y->time_us ? -1 : 1;
	return x->first != y->first ? (x->first < y->first ? -1 : 1) : 0; /* blocks are in the order of the file */
}

int trace_read(const char *path, const char *starts, struct trace **ret_trace)
{
	char *text = NULL;
	struct reader reader = {.trace = mem_alloc(sizeof(struct trace))};
	int error = reader.trace ? 0 : err_set(CAIRN_E_NOMEM, "no memory for the trace");
	if (!error && starts)
		error = starts_read(&reader, starts);
	if (!error)
		error = text_read(path, &text);
	reader.at = text;
	const char *line_end = text ? strchr(text, '\n') : NULL, *runs = text ? strstr(text, "\"requests\"") : NULL;
	int sessions = runs && (!line_end || runs < line_end);
	for (size_t line = 1; !error && next_char(&reader); line++)
		if (!(sessions ? line_session(&reader) : line_request(&reader)))
			error = err_set(reader.error ? reader.error : CAIRN_E_INVAL, "trace %s, record %zu: %s", path, line,
			                err_text());
	if (!error && !reader.trace->nrequests)
		error = err_set(CAIRN_E_INVAL, "trace %s holds no request", path);
	mem_free(text);
	mem_free(reader.keys);
	mem_free(reader.numbers);
	mem_free(reader.starts);
	if (error) {
		trace_free(reader.trace);
		return error;
	}
	qsort(reader.trace->requests, reader.trace->nrequests, sizeof(*reader.trace->requests), in_time);
	*ret_trace = reader.trace;
	return 0;
}

void trace_free(struct trace *trace)
{
	if (!trace)
		return;
	mem_free(trace->requests);
	mem_free(trace->refs);
	mem_free(trace);
}

uint32_t trace_tokens(const struct trace_request *request, uint32_t run)
{
	uint64_t tokens = (uint64_t)run * TRACE_BLOCK_TOKENS;
	return tokens < request->tokens ? (uint32_t)tokens : request->tokens;
}
