/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a place means: a directory, which this process owns or a cairnd does; a cairnd's socket; a directory that
 * processes share.
 * Threads: any. Memory: none.
 */
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "store/autostart.h"
#include "store/directory.h"
#include "store/remote.h"
#include "store/store.h"

int store_options_check(const char *place, struct cairn_options *options, const char **ret_path)
{
	if (options->write_version > FMT_VERSION)
		return err_set(CAIRN_E_INVAL, "write_version %u: this library writes versions up to %u", options->write_version,
		               FMT_VERSION);
	if (options->segment_bytes & (options->segment_bytes - 1) ||
	    (options->segment_bytes && (options->segment_bytes < (1u << 20) || options->segment_bytes > (1u << 30))))
		return err_set(CAIRN_E_INVAL, "segment_bytes %llu is not a power of two from 1 MiB to 1 GiB",
		               (unsigned long long)options->segment_bytes);
	if (options->nflash > STORE_DEVICES || (options->nflash && !options->flash))
		return err_set(CAIRN_E_INVAL, "%u flash devices: at most %d", options->nflash, STORE_DEVICES);
	if (options->io_threads > 64 || options->workers > 16)
		return err_set(CAIRN_E_INVAL, "%u I/O threads and %u workers: at most 64 and 16", options->io_threads,
		               options->workers);
	if (options->pin_share_percent > 100)
		return err_set(CAIRN_E_INVAL, "pin_share_percent %u is over 100", options->pin_share_percent);
	*ret_path = NULL;
	if (options->flags & CAIRN_OPEN_NO_FLASH)
		return 0;
	if (!place || !place[0])
		return err_set(CAIRN_E_INVAL, "no place to open: give a directory");
	*ret_path = strncmp(place, "dir:", 4) ? place : place + 4;
	if (link_place_is(place))
		return 0;
	if (!(*ret_path)[0] || strlen(*ret_path) > 200)
		return err_set(CAIRN_E_INVAL, "a store's path has 1 to 200 bytes");
	return 0;
}

int store_open_own(const char *place, const struct cairn_options *options, cairn **ret_store)
{
	const struct io_maker *makers[] = {&io_maker_real, &io_maker_threads, &io_maker_uring};
	uint32_t engine = CAIRN_IO_BEST;
	if (options && options->size >= offsetof(struct cairn_options, io_engine) + sizeof(options->io_engine))
		engine = options->io_engine;
	if (engine >= sizeof(makers) / sizeof(makers[0]))
		return err_set(CAIRN_E_INVAL, "io_engine %u: there are 0 to 2", engine);
	return store_open(place, options, makers[engine], ret_store);
}

/* Another process owns the directory. If that is a cairnd, it is asked instead. */
static int open_owned(const char *place, const struct cairn_options *given, cairn **ret_store)
{
	struct cairn_options options = {0};
	char socket[LINK_PATH_MAX + 5], text[512];
	const char *path = strncmp(place, "dir:", 4) ? place : place + 4;
	if (given)
		memcpy(&options, given, given->size < sizeof(options) ? given->size : sizeof(options));
	memcpy(text, err_text(), strlen(err_text()) + 1);
	if (!directory_daemon(path, socket, sizeof(socket)) &&
	    !store_open_remote(socket, &io_maker_real, &options, ret_store))
		return 0;
	return err_set(CAIRN_E_OWNED, "%s", text);
}

#define SHARED_PATIENCE_NS (REMOTE_START_MS * 1000000ull)
#define SHARED_START_NS (REMOTE_START_AGAIN_MS * 1000000ull)

/* The cairnd of a directory; started where there is none. Whoever comes first with it, all are its clients. */
static int open_shared(const char *place, const struct cairn_options *given, cairn **ret_store)
{
	struct cairn_options options = {0};
	const char *path = NULL;
	char socket[LINK_PATH_MAX + 5];
	if (given->size > 4096)
		return err_set(CAIRN_E_INVAL, "cairn_options: set size to sizeof(struct cairn_options)");
	memcpy(&options, given, given->size < sizeof(options) ? given->size : sizeof(options));
	int error = store_options_check(place, &options, &path);
	if (!error && (!path || options.flags & (CAIRN_OPEN_READONLY | CAIRN_OPEN_NO_FLASH)))
		error = err_set(CAIRN_E_INVAL, "a store that is shared has a directory, and is written");
	struct autostart *start = NULL;
	error = error ? error : autostart_prepare(path, &options, &start);
	uint64_t begun = clock_mono_ns(&clock_real), started = 0;
	while (!error) {
		if (!directory_daemon(path, socket, sizeof(socket)) &&
		    !store_open_remote(socket, &io_maker_real, &options, ret_store)) {
			(*ret_store)->remote->start = start; /* it may be killed */
			return 0;
		}
		uint64_t now = clock_mono_ns(&clock_real);
		if (now - begun > SHARED_PATIENCE_NS)
			error = err_set(CAIRN_E_BUSY, "no cairnd has come up for %s: try cairn serve --dir %s, it says why", path,
			                path);
		else if (!started || now - started > SHARED_START_NS) {
			error = autostart_run(start);
			started = now;
		}
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	autostart_free(start);
	return error;
}

CAIRN_API int cairn_open(const char *place, const struct cairn_options *options, cairn **ret_store)
{
	if (place && options && options->size && options->flags & CAIRN_OPEN_SHARED && !link_place_is(place))
		return open_shared(place, options, ret_store);
	int error = store_open_own(place, options, ret_store);
	return error == CAIRN_E_OWNED && place ? open_owned(place, options, ret_store) : error;
}
