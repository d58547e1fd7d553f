/* SPDX-License-Identifier: Apache-2.0 */
/* Where cairnd listens. See listen.h. */
#include "daemon/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "daemon/log.h"
#include "net/tls.h"

/* Written aside and renamed, so that it is whole or not there. */
int place_tell(const char *dir, const char *path)
{
	char file[4200], aside[4200], socket[LINK_PATH_MAX];
	char directory[PATH_MAX] = "";
	/* From wherever they are: an absolute path. */
	if (path[0] != '/' && !getcwd(directory, sizeof(directory)))
		return -1;
	int n = snprintf(socket, sizeof(socket), "%s%s%s\n", directory, directory[0] ? "/" : "", path);
	snprintf(file, sizeof(file), "%s/daemon", dir);
	snprintf(aside, sizeof(aside), "%s/daemon.new", dir);
	int fd = n < (int)sizeof(socket) ? open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
	int error = fd < 0 || write(fd, socket, (size_t)n) != n || rename(aside, file);
	if (fd >= 0)
		close(fd);
	return error ? -1 : 0;
}

void place_forget(const char *dir)
{
	char file[4200];
	snprintf(file, sizeof(file), "%s/daemon", dir);
	unlink(file);
}

/* What places need to be served; the key is made where there is none and one is needed. 0 or an error with its text. */
static int serving_of(const struct conf *conf, const struct link_place *place, char room[LINK_PATH_MAX],
                      struct link_serving *ret_serving)
{
	*ret_serving = (struct link_serving){conf->socket_mode, conf->tls_cert, conf->tls_key};
	if (conf->tls_cert || !place->ops->hosts || !place->ops->is_private)
		return 0;
	if (snprintf(room, LINK_PATH_MAX, "%s/" TLS_FILE, conf->dir) >= (int)LINK_PATH_MAX)
		return err_set(CAIRN_E_INVAL, "the path of the directory is too long");
	ret_serving->certificate = room;
	return tls_key_make(conf->dir);
}

static int is_loopback(const char *host)
{
	return !strcmp(host, "localhost") || !strncmp(host, "127.", 4) || !strcmp(host, "::1");
}

/* One more. 0, or an error with its text. */
static int listener_add(struct listeners *listeners, const struct conf *conf, const char *text)
{
	struct listener *at = &listeners->at[listeners->n];
	struct link_serving serving;
	char room[LINK_PATH_MAX];
	if (listeners->n == CONF_LISTEN)
		return err_set(CAIRN_E_INVAL, "%s: there are %d places already", text, CONF_LISTEN);
	int error = link_place_take(text, &at->place);
	if (!error)
		error = serving_of(conf, &at->place, room, &serving);
	if (!error)
		error = link_listen(&at->place, &serving, &at->link);
	if (!error && at->place.ops->hosts && !at->place.ops->is_private && !is_loopback(at->place.host))
		LOG(LOG_WARNING, "whoever reaches this place may read and write everything: it has neither TLS nor tokens",
		    LOG_TEXT("place", text));
	listeners->n += !error;
	return error;
}

int listeners_open(const struct conf *conf, struct listeners *ret_listeners, char ret_fault[CONF_FAULT_BYTES])
{
	ret_listeners->n = 0;
	for (uint32_t i = 0; i < conf->nlisten; i++) {
		if (!listener_add(ret_listeners, conf, conf->listen[i]))
			continue;
		snprintf(ret_fault, CONF_FAULT_BYTES, "%s", err_text());
		listeners_close(ret_listeners);
		return -1;
	}
	return 0;
}

static int is_wanted(const struct conf *conf, const char *place)
{
	for (uint32_t i = 0; i < conf->nlisten; i++)
		if (!strcmp(conf->listen[i], place))
			return 1;
	return 0;
}

static int is_open(const struct listeners *listeners, const char *place)
{
	for (uint32_t i = 0; i < listeners->n; i++)
		if (!strcmp(listeners->at[i].place.text, place))
			return 1;
	return 0;
}

void listeners_change(struct listeners *listeners, const struct conf *conf)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < listeners->n; i++) {
		struct listener *at = &listeners->at[i];
		if (!is_wanted(conf, at->place.text)) {
			LOG(LOG_INFO, "listening no more", LOG_TEXT("place", at->place.text));
			link_listener_close(at->link);
			continue;
		}
		if (at->place.path[0] && chmod(at->place.path, conf->socket_mode))
			LOG(LOG_WARNING, "the socket's mode can not be changed", LOG_TEXT("place", at->place.text),
			    LOG_TEXT("why", strerror(errno)));
		struct link_serving serving;
		char room[LINK_PATH_MAX];
		/* Its certificate may be another one, or the file have a new one in it. */
		if (serving_of(conf, &at->place, room, &serving) || link_listener_renew(at->link, &serving))
			LOG(LOG_WARNING, "the certificate was not taken: the one before stays", LOG_TEXT("place", at->place.text),
			    LOG_TEXT("why", err_text()));
		if (kept != i)
			listeners->at[kept] = *at;
		kept++;
	}
	listeners->n = kept;
	for (uint32_t i = 0; i < conf->nlisten; i++) {
		if (is_open(listeners, conf->listen[i]))
			continue;
		if (listener_add(listeners, conf, conf->listen[i]))
			LOG(LOG_WARNING, "a place to listen can not be opened", LOG_TEXT("place", conf->listen[i]),
			    LOG_TEXT("why", err_text()));
		else
			LOG(LOG_INFO, "listening", LOG_TEXT("place", conf->listen[i]));
	}
}

void listeners_close(struct listeners *listeners)
{
	for (uint32_t i = 0; i < listeners->n; i++)
		link_listener_close(listeners->at[i].link);
	listeners->n = 0;
}
