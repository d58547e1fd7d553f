/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes under way, and whose. See traffic.h.
 *
 * A client may have four times what is left free, as tenants in the queues of flash: four fifths alone, less beside
 * others, and there is always something left for one that comes. Whoever was refused has its room kept for a moment: it
 * comes again, and else small requests would for ever be there before a large one.
 */
#include "daemon/traffic.h"

#include "base/err.h"
#include "daemon/daemon.h"
#include "store/store.h"

#define TRAFFIC_KEPT_SHARE 4 /* buffers may keep one byte in so many */

uint64_t traffic_default(uint64_t memory_bytes)
{
	uint64_t half = memory_bytes / 2, most = 128ull << 20;
	if (half < most)
		return half > 4 * (uint64_t)TRAFFIC_SMALL ? half : 4 * (uint64_t)TRAFFIC_SMALL;
	return memory_bytes / 16 > most ? memory_bytes / 16 : most;
}

/* The daemon's lock is held. */
static uint64_t max_of(struct daemon *daemon)
{
	struct memory_stat memory;
	if (!daemon->traffic.max) {
		pthread_mutex_lock(&daemon->store->lock);
		memory_stat(daemon->store->memory, &memory);
		pthread_mutex_unlock(&daemon->store->lock);
		daemon->traffic.max = traffic_default(memory.capacity_bytes);
	}
	return daemon->traffic.max;
}

void traffic_set(struct daemon *daemon, uint64_t max)
{
	pthread_mutex_lock(&daemon->lock);
	daemon->traffic.max = max;
	pthread_mutex_unlock(&daemon->lock);
}

/* One request may have: what buffers keep is never in its way for ever. */
static uint64_t most_of(uint64_t max)
{
	return max - max / TRAFFIC_KEPT_SHARE;
}

/* Whether so many bytes more of a client fit. The lock is held. */
static int fits(struct daemon *daemon, const struct client *client, uint64_t bytes)
{
	struct traffic *traffic = &daemon->traffic;
	uint64_t max = max_of(daemon), used = traffic->used, kept = 0;
	int others = traffic->waiting.client && traffic->waiting.client != client;
	if (others && link_now_ms() < traffic->waiting.until_ms)
		kept = traffic->waiting.bytes;
	if (bytes > most_of(max) || used > max - bytes || kept > max - bytes - used)
		return 0;
	return used == traffic->kept || client->under_way + bytes <= 4 * (max - used - bytes);
}

int traffic_enter(struct conn *conn, uint64_t bytes)
{
	struct daemon *daemon = conn->daemon;
	struct traffic *traffic = &daemon->traffic;
	struct client *client = conn->client;
	if (conn->small + bytes <= TRAFFIC_SMALL) {
		conn->small += (uint32_t)bytes;
		return 0;
	}
	pthread_mutex_lock(&daemon->lock);
	uint64_t max = max_of(daemon);
	int fit = fits(daemon, client, bytes), waits = traffic->waiting.client == client;
	if (fit) {
		traffic->used += bytes;
		traffic->most = traffic->used > traffic->most ? traffic->used : traffic->most;
		client->under_way += bytes;
		conn->under_way += bytes;
		if (waits)
			traffic->waiting.client = NULL;
	} else {
		traffic->refused++;
		client->refused++;
		if (bytes <= most_of(max) &&
		    (!traffic->waiting.client || waits || link_now_ms() >= traffic->waiting.until_ms)) {
			traffic->waiting.client = client;
			traffic->waiting.bytes = bytes;
			traffic->waiting.until_ms = link_now_ms() + TRAFFIC_WAITING_MS;
		}
	}
	pthread_mutex_unlock(&daemon->lock);
	if (fit)
		return 0;
	if (bytes > most_of(max))
		return err_set(CAIRN_E_SIZE, "%llu KiB at once are more than this cairnd takes: send less, or raise in_flight",
		               (unsigned long long)bytes >> 10);
	return err_set(CAIRN_E_BUSY, "busy: all of the %llu KiB that may be under way at this cairnd are: ask again",
	               (unsigned long long)max >> 10);
}

void traffic_add(struct conn *conn, uint64_t bytes)
{
	struct daemon *daemon = conn->daemon;
	pthread_mutex_lock(&daemon->lock);
	daemon->traffic.used += bytes;
	conn->under_way += bytes;
	if (conn->client)
		conn->client->under_way += bytes;
	pthread_mutex_unlock(&daemon->lock);
}

static uint64_t excess(const struct link_buffer *buffer)
{
	return buffer->room > TRAFFIC_SMALL ? buffer->room - TRAFFIC_SMALL : 0;
}

void traffic_end(struct conn *conn)
{
	struct daemon *daemon = conn->daemon;
	uint64_t extra = excess(&conn->in) + excess(&conn->out);
	conn->small = 0;
	if (!conn->under_way && extra == conn->kept)
		return;
	pthread_mutex_lock(&daemon->lock);
	struct traffic *traffic = &daemon->traffic;
	uint64_t room = max_of(daemon) / TRAFFIC_KEPT_SHARE;
	traffic->used -= conn->under_way + conn->kept;
	traffic->kept -= conn->kept;
	if (conn->client)
		conn->client->under_way -= conn->under_way;
	conn->under_way = 0;
	conn->kept = extra <= room && traffic->kept <= room - extra ? extra : 0;
	traffic->used += conn->kept;
	traffic->kept += conn->kept;
	pthread_mutex_unlock(&daemon->lock);
	if (conn->kept == extra)
		return;
	link_buffer_done(&conn->in);
	link_buffer_done(&conn->out);
}

void traffic_leave(struct conn *conn)
{
	link_buffer_done(&conn->in);
	link_buffer_done(&conn->out);
	traffic_end(conn);
}

void traffic_forget(struct daemon *daemon, const struct client *client)
{
	if (daemon->traffic.waiting.client == client)
		daemon->traffic.waiting.client = NULL;
}

void traffic_stat(struct daemon *daemon, struct traffic_stat *ret_stat)
{
	pthread_mutex_lock(&daemon->lock);
	*ret_stat = (struct traffic_stat){max_of(daemon), daemon->traffic.used, daemon->traffic.refused};
	pthread_mutex_unlock(&daemon->lock);
}
