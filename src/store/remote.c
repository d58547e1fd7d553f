/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to a cairnd, and calls over them. See remote.h. */
#include "store/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "base/mem.h"
#include "store/autostart.h"
#include "store/token.h"

#define AGAIN_MS 20 /* between attempts to reach the next daemon */
#define REASON_MS 2000

uint32_t remote_grace_ms = 5000, remote_quick_ms = 30000, remote_slow_ms = 120000, remote_later_ms = 60000;
#define LATER_MS_MAX 64 /* between tries where too much is under way */
#define PEER_CONNECT_MS 1000 /* a peer that can not be connected to by then is not there */

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static int link_lost(struct remote *remote, int error)
{
	if (error == -ESHUTDOWN) {
		__atomic_store_n(&remote->ending, 1, __ATOMIC_SEQ_CST);
		return err_set(CAIRN_E_IO, "the cairnd at %s is ending, and did not do this: ask again when it is back",
		               remote->place.text);
	}
	if (error == -EPROTO)
		return err_set(CAIRN_E_IO, "%s: what answers there does not speak as this cairn does: upgrade one of them",
		               remote->place.text);
	return err_set(CAIRN_E_IO, "the cairnd at %s is gone or does not answer: %s", remote->place.text, strerror(-error));
}

static int64_t until_of(uint32_t timeout_ms, uint32_t more_ms)
{
	return link_now_ms() + (timeout_ms < 1000000000 ? timeout_ms : 1000000000) + more_ms;
}

/* The time of a request, where its call has none. A match's is that of the answer. */
static void link_time(struct remote_link *link, uint32_t type, uint32_t timeout_ms)
{
	static const uint8_t timed[] = {WIRE_PUT, WIRE_GET, WIRE_LEASE, WIRE_FETCH, WIRE_SAVE, WIRE_MATCH_AGREE};
	static const uint8_t slow[] = {WIRE_DROP, WIRE_FORGET, WIRE_CLOSE, WIRE_PIN, WIRE_SYNC}; /* they wait for devices */
	if (link->bounded)
		return;
	if (memchr(timed, (int)type, sizeof(timed))) /* 0: its caller wants to wait for ever */
		link->net->until_ms = timeout_ms ? until_of(timeout_ms, remote_grace_ms) : 0;
	else
		link->net->until_ms = until_of(0, memchr(slow, (int)type, sizeof(slow)) ? remote_slow_ms : remote_quick_ms);
}

static int frame_send(struct remote_link *link, const struct wire_request *request, uint32_t timeout_ms,
                      uint64_t bulk_bytes, const int *fds, uint32_t nfds)
{
	struct bytes_writer w = bytes_writer_of(link->send.bytes, link->send.room);
	wire_request_encode(request, &w);
	if (w.failed) {
		if (w.used > WIRE_BODY_MAX)
			return -EMSGSIZE;
		if (link_buffer_fit(&link->send, w.used))
			return -ENOMEM;
		w = bytes_writer_of(link->send.bytes, link->send.room);
		wire_request_encode(request, &w);
	}
	struct wire_head head = {.version = WIRE_VERSION,
	                         .type = (uint16_t)request->type,
	                         .flags = link->here ? WIRE_HERE : 0,
	                         .nfds = (uint16_t)nfds,
	                         .id = ++link->next_id,
	                         .body_bytes = (uint32_t)w.used,
	                         .timeout_ms = timeout_ms,
	                         .bulk_bytes = bulk_bytes};
	link_time(link, request->type, timeout_ms);
	return link_send(link->net, &head, link->send.bytes, fds, nfds);
}

/* The reply to request number `id`. */
static int frame_receive(struct remote_link *link, uint64_t id, struct remote_reply *reply)
{
	int error = link_receive(link->net, LINK_FOREVER, &reply->head, &link->body, reply->fds);
	if (error)
		return error;
	reply->body = bytes_reader_of(link->body.bytes, reply->head.body_bytes);
	wire_take_text(&reply->body, reply->text);
	int ending = reply->head.type == WIRE_ENDING && !reply->body.failed;
	if (ending || reply->body.failed || !(reply->head.flags & WIRE_REPLY) || reply->head.id != id) {
		for (uint32_t i = 0; i < reply->head.nfds; i++)
			close(reply->fds[i]);
		return ending ? -ESHUTDOWN : -EPROTO;
	}
	if (reply->text[0])
		err_set((int)reply->head.result, "%s", reply->text);
	return 0;
}

/* A daemon that ends reads no more, says so, and closes: what it says comes in a moment, or the end does. */
static int end_reason(struct remote_link *link, int error)
{
	struct remote_reply *reply = error == -ECONNRESET || error == -EPIPE ? mem_alloc(sizeof(*reply)) : NULL;
	link->net->until_ms = 0;
	if (reply && link_receive(link->net, REASON_MS, &reply->head, &link->body, reply->fds) == 0) {
		for (uint32_t i = 0; i < reply->head.nfds; i++)
			close(reply->fds[i]);
		error = reply->head.type == WIRE_ENDING ? -ESHUTDOWN : error;
	}
	mem_free(reply);
	return error;
}

int remote_call(struct remote *remote, struct remote_link *link, const struct wire_request *request,
                uint32_t timeout_ms, struct remote_reply *ret_reply)
{
	int error = frame_send(link, request, timeout_ms, 0, NULL, 0);
	if (error == -EMSGSIZE)
		return err_set(CAIRN_E_SIZE, "a request of more than %u MiB: ask for less at once", WIRE_BODY_MAX >> 20);
	error = error ? end_reason(link, error) : frame_receive(link, link->next_id, ret_reply);
	return error == -ENOMEM ? err_set(CAIRN_E_NOMEM, "no memory for a request") : error ? link_lost(remote, error) : 0;
}

int remote_lost(struct remote *remote, struct remote_link *link, int error)
{
	return link_lost(remote, end_reason(link, error));
}

int remote_send(struct remote_link *link, const struct wire_request *request, uint32_t timeout_ms, uint64_t bulk_bytes)
{
	return frame_send(link, request, timeout_ms, bulk_bytes, NULL, 0);
}

int remote_receive(struct remote *remote, struct remote_link *link, struct remote_reply *ret_reply)
{
	return remote_receive_of(remote, link, link->next_id, ret_reply);
}

int remote_receive_of(struct remote *remote, struct remote_link *link, uint64_t id, struct remote_reply *ret_reply)
{
	if (!link->bounded && link->net->until_ms) /* one frame of many */
		link->net->until_ms = until_of(0, remote_quick_ms);
	int error = frame_receive(link, id, ret_reply);
	return error ? link_lost(remote, error) : 0;
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

static void link_free(struct remote_link *link)
{
	if (link->net)
		link_close(link->net);
	if (link->stage)
		munmap(link->stage, link->stage_bytes);
	mem_free(link->work);
	link_buffer_done(&link->send);
	link_buffer_done(&link->body);
	mem_free(link);
}

/* A call has it from here on: it can be cut. Whether it may go on. */
static int link_use(struct remote *remote, struct remote_link *link)
{
	pthread_mutex_lock(&remote->cut_lock);
	list_push_back(&remote->used, &link->used);
	int stopped = remote->stopped;
	pthread_mutex_unlock(&remote->cut_lock);
	return !stopped;
}

static void link_unuse(struct remote *remote, struct remote_link *link)
{
	pthread_mutex_lock(&remote->cut_lock);
	list_remove(&link->used);
	pthread_mutex_unlock(&remote->cut_lock);
}

static void links_cut(struct remote *remote, int for_good)
{
	pthread_mutex_lock(&remote->cut_lock);
	remote->stopped |= for_good;
	for (struct list *node = remote->used.next; node != &remote->used; node = node->next)
		link_stop(LIST_OF(node, struct remote_link, used)->net, LINK_STOP_ALL);
	pthread_mutex_unlock(&remote->cut_lock);
}

void remote_cut(struct remote *remote)
{
	links_cut(remote, 0);
}

void remote_stop(struct remote *remote)
{
	links_cut(remote, 1);
}

/* What the daemon says of us: which client, and whose. It stays what it was: spaces and keys follow from it. */
static int hello_take(struct remote *remote, struct remote_reply *reply)
{
	char tenant[WIRE_TEXT_MAX];
	const uint8_t *client = bytes_take(&reply->body, 16);
	uint32_t all = bytes_take32(&reply->body);
	wire_take_text(&reply->body, tenant);
	if (reply->body.failed)
		return link_lost(remote, -EPROTO);
	if (remote->told && (remote->all != all || strcmp(remote->tenant, tenant) != 0))
		return err_set(CAIRN_E_ACCESS, "%s: the token is another tenant's now: open the store again",
		               remote->place.text);
	if (!remote->told) { /* once: others read them */
		remote->all = all;
		memcpy(remote->tenant, tenant, strlen(tenant) + 1);
		remote->told = 1;
	}
	if (memcmp(client, remote->client, 16) != 0) {
		memcpy(remote->client, client, 16);
		remote->life++;
		__atomic_store_n(&remote->ending, 0, __ATOMIC_SEQ_CST); /* another one: not that which is ending */
		__atomic_store_n(&remote->guessed, 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&remote->missed_ms, 0, __ATOMIC_SEQ_CST);
	}
	return 0;
}

/* Says who we are: a new client, or one more connection of the one we are. A daemon that does not know us is another
 * one. The hello_lock is held. */
static int hello(struct remote *remote, struct remote_link *link, const struct token_text *token)
{
	struct wire_request *request = mem_alloc(sizeof(*request));
	struct remote_reply reply;
	if (!request)
		return err_set(CAIRN_E_NOMEM, "no memory for a connection");
	request->type = WIRE_HELLO;
	memcpy(request->u.hello.program, "libcairn " CAIRN_VERSION, sizeof("libcairn " CAIRN_VERSION));
	if (token) {
		request->u.hello.has_token = 1;
		memcpy(request->u.hello.token, token->id, sizeof(request->u.hello.token));
		memcpy(request->u.hello.secret, token->secret, sizeof(request->u.hello.secret));
	}
	memcpy(request->u.hello.client, remote->client, 16);
	int failed = frame_send(link, request, 0, 0, NULL, 0);
	failed = failed ? failed : frame_receive(link, link->next_id, &reply);
	explicit_bzero(link->send.bytes, link->send.room);
	/* One that ends takes nobody who has just come: nothing was asked yet, the next one may be. */
	if (failed == -ECONNRESET || failed == -EPIPE) {
		if (!__atomic_load_n(&remote->ending, __ATOMIC_SEQ_CST))
			__atomic_store_n(&remote->guessed, 1, __ATOMIC_SEQ_CST); /* it may as well have been killed */
		failed = -ESHUTDOWN;
	}
	int error = failed ? link_lost(remote, failed) : 0;
	pthread_mutex_lock(&remote->lock);
	if (!error && reply.head.result < 0)
		error = err_set((int)reply.head.result, "%s: %s", remote->place.text, reply.text);
	if (!error)
		error = hello_take(remote, &reply);
	link->life = remote->life;
	pthread_mutex_unlock(&remote->lock);
	explicit_bzero(request, sizeof(*request));
	mem_free(request);
	return error;
}

/* The time of the call that takes a connection. */
static void link_bound(struct remote_link *link, uint32_t timeout_ms)
{
	link->bounded = timeout_ms != 0;
	link->net->until_ms = timeout_ms ? until_of(timeout_ms, remote_grace_ms) : 0;
}

/* The token is read anew each time: it may have been exchanged for another. The hello_lock is held. */
static int link_introduce(struct remote *remote, struct remote_link *link, int64_t until_ms)
{
	struct token_text token = {0};
	const struct link_ops *ops = remote->place.ops;
	int64_t left_ms = until_ms - link_now_ms();
	int64_t most_ms = remote->here ? PEER_CONNECT_MS : LINK_DEAD_MS;
	int patience_ms = (int)(left_ms < 0 ? 0 : left_ms < most_ms ? left_ms : most_ms);
	/* To who is not known, or where others may listen, only a token goes that was named for it. */
	int wanted = !ops->shares && (ops->is_private || remote->token_file);
	int has = wanted ? token_file_read(remote->token_file, &token) : 0;
	struct link_trust trust = {.pin = has && token.has_pin ? token.pin : NULL};
	int error = has < 0 ? has : link_connect(&remote->place, &trust, patience_ms, &link->net);
	if (!error) {
		link->bounded = 1;
		link->net->until_ms = until_ms;
		error = link_use(remote, link) ? hello(remote, link, has ? &token : NULL)
		                               : err_set(CAIRN_E_CANCELED, "%s: ending", remote->place.text);
		if (error)
			link_unuse(remote, link);
	}
	explicit_bzero(&token, sizeof(token));
	return error;
}

/* Connects and says hello, within so long. One at a time: all shall be of one client, and a crowd of threads that come
 * at once are not as many strangers to a daemon, which bounds those. Calls that have a connection do not wait. */
static int link_open(struct remote *remote, struct remote_link *link, int64_t until_ms)
{
	int64_t left_ms = until_ms - link_now_ms();
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += left_ms > 0 ? left_ms / 1000 + 1 : 0;
	if (pthread_mutex_timedlock(&remote->hello_lock, &until))
		return link_lost(remote, -ETIMEDOUT);
	int error = link_introduce(remote, link, until_ms);
	pthread_mutex_unlock(&remote->hello_lock);
	return error;
}

/* Whether this thread is the one that starts a cairnd now; all others of the process wait for it. */
static int start_mine(struct remote *remote, int64_t now)
{
	int64_t missed = 0, last = __atomic_load_n(&remote->started_ms, __ATOMIC_SEQ_CST);
	if (__atomic_compare_exchange_n(&remote->missed_ms, &missed, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		missed = now;
	if (__atomic_load_n(&remote->ending, __ATOMIC_SEQ_CST) &&
	    !__atomic_load_n(&remote->guessed, __ATOMIC_SEQ_CST) && now - missed < REMOTE_START_ENDED_MS)
		return 0;
	return (!last || now - last > REMOTE_START_AGAIN_MS) &&
	       __atomic_compare_exchange_n(&remote->started_ms, &last, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Nobody is there, or one that is ending answered; no request was made yet. Of a directory that is shared another one
 * is started, and waited for: for long where the call has no time of its own. */
static int link_start(struct remote *remote, struct remote_link *link, uint32_t timeout_ms, int error)
{
	int64_t until = timeout_ms ? until_of(timeout_ms, remote_grace_ms) : until_of(0, REMOTE_START_MS);
	while (error == CAIRN_E_NOENT || (error == CAIRN_E_IO && __atomic_load_n(&remote->ending, __ATOMIC_SEQ_CST))) {
		int64_t now = link_now_ms();
		if (now >= until)
			return err_set(CAIRN_E_BUSY, "no cairnd has come up again for %s: try cairn serve --dir %s, it says why",
			               autostart_dir(remote->start), autostart_dir(remote->start));
		int failed = start_mine(remote, now) ? autostart_run(remote->start) : 0;
		if (failed)
			return failed;
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
		if (link->net)
			link_close(link->net);
		link->net = NULL;
		error = link_open(remote, link, until);
	}
	return error;
}

static struct remote_link *link_new(struct remote *remote, uint32_t timeout_ms, int *ret_error)
{
	struct remote_link *link = mem_alloc(sizeof(*link));
	if (!link || link_buffer_fit(&link->send, 4096) || link_buffer_fit(&link->body, 4096)) {
		*ret_error = err_set(CAIRN_E_NOMEM, "no memory for a connection");
		mem_free(link);
		return NULL;
	}
	link->here = remote->here;
	int64_t until = timeout_ms ? until_of(timeout_ms, remote_grace_ms) : until_of(0, remote_quick_ms);
	*ret_error = link_open(remote, link, until);
	if (*ret_error && remote->start)
		*ret_error = link_start(remote, link, timeout_ms, *ret_error);
	if (*ret_error == CAIRN_E_NOENT && __atomic_load_n(&remote->ending, __ATOMIC_SEQ_CST))
		*ret_error = err_set(CAIRN_E_NOENT, "the cairnd at %s has ended, and is not back yet", remote->place.text);
	if (!*ret_error) {
		link->bounded = timeout_ms != 0;
		return link;
	}
	link_free(link);
	return NULL;
}

static struct remote_link *link_take(struct remote *remote, struct list *idle, uint32_t timeout_ms, int *ret_error)
{
	*ret_error = 0;
	for (;;) {
		pthread_mutex_lock(&remote->lock);
		struct list *node = list_pop_front(idle);
		pthread_mutex_unlock(&remote->lock);
		if (!node) {
			struct remote_link *made = link_new(remote, timeout_ms, ret_error);
			if (made)
				made->idle = idle;
			return made;
		}
		struct remote_link *link = LIST_OF(node, struct remote_link, link);
		/* Nothing is due on an idle one: what can be read is its end. */
		if (link_is_idle(link->net)) {
			link_bound(link, timeout_ms);
			if (link_use(remote, link))
				return link;
			link_unuse(remote, link);
		}
		if (end_reason(link, -ECONNRESET) == -ESHUTDOWN)
			__atomic_store_n(&remote->ending, 1, __ATOMIC_SEQ_CST);
		link_free(link);
	}
}

struct remote_link *remote_link_take(struct remote *remote, uint32_t timeout_ms, int *ret_error)
{
	return link_take(remote, &remote->idle, timeout_ms, ret_error);
}

struct remote_link *remote_link_take_bulk(struct remote *remote, uint32_t timeout_ms, int *ret_error)
{
	return link_take(remote, remote->tcp ? &remote->idle_bulk : &remote->idle, timeout_ms, ret_error);
}

int remote_again(struct remote *remote, uint64_t begun_ns, uint32_t timeout_ms, uint32_t *ret_left_ms)
{
	uint64_t gone_ms = (clock_mono_ns(&clock_real) - begun_ns) / 1000000;
	if (!__atomic_load_n(&remote->ending, __ATOMIC_SEQ_CST) || gone_ms + AGAIN_MS >= timeout_ms)
		return 0;
	nanosleep(&(struct timespec){.tv_nsec = AGAIN_MS * 1000000}, NULL);
	*ret_left_ms = timeout_ms - (uint32_t)gone_ms - AGAIN_MS;
	return 1;
}

void remote_link_drop(struct remote *remote, struct remote_link *link, int broken)
{
	link_unuse(remote, link);
	if (broken) {
		link_free(link);
		return;
	}
	pthread_mutex_lock(&remote->lock);
	list_push_front(link->idle, &link->link); /* the one whose buffers are warm */
	pthread_mutex_unlock(&remote->lock);
}

int remote_is_later(const struct remote_reply *reply)
{
	return (reply->head.flags & WIRE_LATER) && reply->head.result == CAIRN_E_BUSY;
}

int remote_wait(struct remote_patience *patience)
{
	int64_t now = link_now_ms();
	uint32_t wait_ms = patience->tries < 6 ? 1u << patience->tries : LATER_MS_MAX;
	if (!patience->begun_ms)
		patience->begun_ms = now;
	if (now + wait_ms >= (patience->until_ms ? patience->until_ms : patience->begun_ms + remote_later_ms))
		return 0;
	patience->tries++;
	wait_ms = wait_ms / 2 + (uint32_t)(clock_mono_ns(&clock_real) / 1000 % (wait_ms / 2 + 1)); /* not all at once */
	nanosleep(&(struct timespec){.tv_nsec = (long)wait_ms * 1000000}, NULL);
	return 1;
}

int64_t remote_ask(struct remote *remote, const struct wire_request *request, uint32_t timeout_ms,
                   void (*take)(void *arg, struct remote_reply *reply), void *arg)
{
	struct remote_patience patience = {.until_ms = timeout_ms ? until_of(timeout_ms, 0) : 0};
	struct remote_reply reply;
	int error;
	struct remote_link *link = remote_link_take(remote, timeout_ms, &error);
	if (!link)
		return error;
	do
		error = remote_call(remote, link, request, timeout_ms, &reply);
	while (!error && remote_is_later(&reply) && remote_wait(&patience));
	if (!error && take)
		take(arg, &reply);
	if (!error && reply.body.failed)
		error = link_lost(remote, -EPROTO);
	remote_link_drop(remote, link, error != 0);
	return error ? error : reply.head.result;
}

/* ---- spaces and staging ------------------------------------------------------------------------------------------ */

int remote_space_number(struct remote *remote, struct remote_link *link, struct cairn_space *space,
                        uint32_t *ret_number)
{
	pthread_mutex_lock(&remote->lock);
	int known = space->remote_life == link->life;
	*ret_number = space->remote_number;
	pthread_mutex_unlock(&remote->lock);
	if (known)
		return 0;
	struct wire_request *request = mem_alloc(sizeof(*request));
	struct remote_reply reply;
	if (!request)
		return err_set(CAIRN_E_NOMEM, "no memory for a request");
	request->type = WIRE_DESCRIBE;
	pthread_mutex_lock(&remote->store->lock); /* the rest of a description never changes */
	request->u.describe.cost_a_s = space->space.desc.cost_a_s;
	request->u.describe.cost_b_s = space->space.desc.cost_b_s;
	pthread_mutex_unlock(&remote->store->lock);
	request->u.describe.canon = space->space.canon;
	request->u.describe.length = (uint32_t)space->space.canon_length;
	int error = remote_call(remote, link, request, 0, &reply);
	mem_free(request);
	if (error)
		return error;
	if (reply.head.result < 0)
		return (int)reply.head.result;
	*ret_number = (uint32_t)reply.head.result;
	pthread_mutex_lock(&remote->lock);
	space->remote_number = *ret_number;
	space->remote_life = link->life;
	pthread_mutex_unlock(&remote->lock);
	return 0;
}

int remote_describe(cairn *store, struct cairn_space *space)
{
	int error;
	uint32_t number;
	struct remote_link *link = remote_link_take(store->remote, 0, &error);
	if (!link)
		return error;
	pthread_mutex_lock(&store->remote->lock);
	space->remote_life = 0; /* its costs may be others */
	pthread_mutex_unlock(&store->remote->lock);
	error = remote_space_number(store->remote, link, space, &number);
	remote_link_drop(store->remote, link, error == CAIRN_E_IO);
	return error;
}

int remote_stage_fit(struct remote *remote, struct remote_link *link, uint64_t bytes)
{
	if (bytes <= link->stage_bytes)
		return 0;
	uint64_t room = 256u << 10;
	while (room < bytes)
		room *= 2;
	/* Sealed, or the daemon would not read it: memory that shrinks under a reader kills it. */
	int fd = memfd_create("cairn-stage", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint8_t *stage = MAP_FAILED;
	if (fd >= 0 && !ftruncate(fd, (off_t)room) && !fallocate(fd, 0, 0, (off_t)room) &&
	    !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		stage = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int error = stage == MAP_FAILED
	                ? err_set(CAIRN_E_NOMEM, "no shared memory of %llu MiB", (unsigned long long)room >> 20)
	                : 0;
	struct wire_request *request = error ? NULL : mem_alloc(sizeof(*request));
	struct remote_reply reply;
	if (!error && !request)
		error = err_set(CAIRN_E_NOMEM, "no memory for a request");
	if (!error) {
		request->type = WIRE_STAGE;
		request->u.stage_bytes = room;
		int failed = frame_send(link, request, 0, 0, &fd, 1);
		if (!failed)
			failed = frame_receive(link, link->next_id, &reply);
		error = failed ? link_lost(remote, failed) : (int)reply.head.result;
	}
	mem_free(request);
	if (fd >= 0)
		close(fd);
	if (error) {
		if (stage != MAP_FAILED)
			munmap(stage, room);
		return error;
	}
	if (link->stage)
		munmap(link->stage, link->stage_bytes);
	link->stage = stage;
	link->stage_bytes = room;
	return 0;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int remote_prepare(cairn *store, const char *place, const char *token_file)
{
	struct remote *remote = mem_alloc(sizeof(*remote));
	if (!remote)
		return err_set(CAIRN_E_NOMEM, "no memory to open a store");
	int error = link_place_take(place, &remote->place);
	if (!error && token_file && !(remote->token_file = mem_copy_string(token_file)))
		error = err_set(CAIRN_E_NOMEM, "no memory to open a store");
	if (error) {
		mem_free(remote);
		return error;
	}
	remote->tcp = !remote->place.ops->shares;
	remote->store = store;
	pthread_mutex_init(&remote->hello_lock, NULL);
	pthread_mutex_init(&remote->lock, NULL);
	pthread_mutex_init(&remote->cut_lock, NULL);
	list_init(&remote->idle);
	list_init(&remote->idle_bulk);
	list_init(&remote->used);
	store->remote = remote;
	return 0;
}

int remote_open_peer(cairn *store, const char *place, const char *token_file)
{
	int error = remote_prepare(store, place, token_file);
	if (!error)
		store->remote->here = 1;
	return error;
}

int remote_open(cairn *store, const char *place, const char *token_file)
{
	int error = remote_prepare(store, place, token_file);
	if (error)
		return error;
	struct remote *remote = store->remote;
	struct remote_link *link = remote_link_take(remote, 0, &error);
	if (!link) {
		remote_close(remote);
		store->remote = NULL;
		return error;
	}
	remote_link_drop(remote, link, 0);
	return 0;
}

int remote_tenant(const cairn *store, const char *named, const char **ret_tenant)
{
	struct remote *remote = store->remote;
	*ret_tenant = named;
	pthread_mutex_lock(&remote->lock);
	int bound = remote->told && !remote->all; /* a peer may not have been reached yet */
	pthread_mutex_unlock(&remote->lock);
	if (!bound)
		return 0;
	if (!named)
		*ret_tenant = remote->tenant;
	else if (strcmp(named, remote->tenant) != 0)
		return err_set(CAIRN_E_ACCESS, "%s: the token is of tenant \"%s\", not \"%.100s\"; leave the tenant out",
		               remote->place.text, remote->tenant, named);
	return 0;
}

void remote_close(struct remote *remote)
{
	struct list *node;
	if (!remote)
		return;
	while ((node = list_pop_front(&remote->idle)) || (node = list_pop_front(&remote->idle_bulk)))
		link_free(LIST_OF(node, struct remote_link, link));
	for (uint32_t i = 0; i < remote->nextents; i++) {
		munmap(remote->extents[i].address, remote->extents[i].length);
		close(remote->extents[i].fd);
	}
	mem_free(remote->extents);
	autostart_free(remote->start);
	mem_free(remote->token_file);
	pthread_mutex_destroy(&remote->lock);
	pthread_mutex_destroy(&remote->hello_lock);
	pthread_mutex_destroy(&remote->cut_lock);
	mem_free(remote);
}
