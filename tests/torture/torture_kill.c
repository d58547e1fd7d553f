/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 of a real process on a real directory, again and again. The child puts, drops, saves and forgets from many
 * threads and tells what it was promised through a pipe; the parent kills it at a random moment, has the store opened
 * and holds it to each word: what was durable is there byte by byte, what was dropped is not, a session is whole.
 *
 *     torture_kill [rounds [seconds [directory]]]      0 seconds: no limit
 *
 * Each block's bytes follow from its key, so any bytes that come back can be judged. What was under way when the
 * process died may be done or not.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "cairn/cairn.h"
#include "lib/engine.h"

enum {
	THREADS = 6,
	KEYS = 48,
	SESSIONS = 2,
	SESSION_BLOCKS = 24,
	LENGTH_MAX = 120000
};
#define BUDGET_BYTES (384ull << 20)
#define FRESH_BYTES  (160ull << 20) /* before anything would be evicted */

enum status {
	ABSENT = 0,  /* never put, or surely gone */
	PRESENT = 1, /* promised */
	UNSURE = 2,  /* under way when it died */
};

/* What is known to all processes. */
struct session_state {
	uint64_t epoch;  /* promised; 0: none */
	uint32_t blocks; /* of it */
	uint8_t unsure;  /* a save or forget was under way */
	uint32_t unsure_blocks;
};
static struct known {
	uint8_t block[THREADS][KEYS];
	uint8_t chain[THREADS][SESSIONS][SESSION_BLOCKS];
	struct session_state session[THREADS][SESSIONS];
	uint64_t used_bytes; /* at the last look */
} * known;

enum event {
	WILL_DROP = 1,
	DROPPED,
	WILL_PUT,
	PUT,
	WILL_SAVE,
	SAVED,
	WILL_FORGET,
	FORGOTTEN,
	CHAIN_PUT
};
struct record {
	uint32_t event, thread, index, value;
};

static int log_fd, round_number;
static cairn *store;
static cairn_space *space;

static void die(const char *what)
{
	fprintf(stderr, "torture_kill: round %d: %s: %s\n", round_number, what, cairn_error_text());
	exit(1);
}

/* ---- keys and bytes ---------------------------------------------------------------------------------------------- */

static cairn_key key_of(uint32_t thread, uint32_t kind, uint32_t index)
{
	cairn_key key;
	struct random random;
	random_init(&random, ((uint64_t)thread << 40 | (uint64_t)kind << 32 | index) + 12345);
	for (int i = 0; i < 4; i++) {
		uint64_t word = random_next(&random);
		memcpy(key.bytes + i * 8, &word, 8);
	}
	return key;
}

static uint32_t length_of(const cairn_key *key)
{
	uint32_t value;
	memcpy(&value, key->bytes + 8, 4);
	return value % 4 ? 1 + value % LENGTH_MAX : 4096;
}

static void fill(uint8_t *bytes, const cairn_key *key)
{
	struct random random;
	uint64_t seed;
	uint32_t length = length_of(key);
	memcpy(&seed, key->bytes, 8);
	random_init(&random, seed);
	for (uint32_t at = 0; at < length; at += 8) {
		uint64_t word = random_next(&random);
		memcpy(bytes + at, &word, length - at < 8 ? length - at : 8);
	}
}

static int put(const cairn_key *key, const cairn_key *parent)
{
	uint8_t bytes[LENGTH_MAX + 8];
	fill(bytes, key);
	struct cairn_buf buf = cairn_buf_of(bytes, length_of(key));
	struct cairn_item item = {.key = *key, .parent = parent, .bufs = &buf, .nbufs = 1};
	struct cairn_call call = {.size = sizeof call, .durability = CAIRN_DURABLE_FLASH};
	return cairn_put(store, space, &item, 1, &call) == 1;
}

/* 1: there, and right; 0: a miss. Anything else ends the test. */
static int get(const cairn_key *key)
{
	static uint8_t bytes[LENGTH_MAX + 8], want[LENGTH_MAX + 8];
	uint32_t length = length_of(key);
	struct cairn_buf buf = cairn_buf_of(bytes, sizeof bytes);
	struct cairn_item item = {.key = *key, .bufs = &buf, .nbufs = 1};
	long n = cairn_get(store, space, &item, 1, NULL);
	if (n == 0 && item.status == CAIRN_MISS)
		return 0;
	fill(want, key);
	if (n != 1 || item.ret_bytes != length || memcmp(bytes, want, length)) {
		fprintf(stderr, "status %d, %" PRIu64 " bytes of %u\n", item.status, item.ret_bytes, length);
		die("a block came back wrong");
	}
	return 1;
}

/* ---- the child --------------------------------------------------------------------------------------------------- */

static void tell(uint32_t event, uint32_t thread, uint32_t index, uint32_t value)
{
	struct record record = {event, thread, index, value};
	if (write(log_fd, &record, sizeof record) != sizeof record) /* whole: shorter than PIPE_BUF */
		_exit(2);
}

static struct cairn_session_name name_of(uint32_t thread, uint32_t index, char text[32])
{
	snprintf(text, 32, "session-%u-%u", thread, index);
	return (struct cairn_session_name){NULL, "torture", text};
}

static void save_one(uint32_t thread, uint32_t index, struct random *random)
{
	cairn_key keys[SESSION_BLOCKS];
	char text[32];
	uint32_t n = 1 + (uint32_t)random_below(random, SESSION_BLOCKS);
	for (uint32_t i = 0; i < n; i++) {
		keys[i] = key_of(thread, 1 + index, i);
		if (!put(&keys[i], i ? &keys[i - 1] : NULL))
			_exit(3);
		tell(CHAIN_PUT, thread, index, i);
	}
	struct cairn_chain chain = {0, keys, n};
	struct cairn_save save = {.size = sizeof save,
	                          .name = name_of(thread, index, text),
	                          .chains = &chain,
	                          .nchains = 1,
	                          .state = keys,
	                          .state_bytes = n * 32,
	                          .tokens = n * 16};
	tell(WILL_SAVE, thread, index, n);
	if (cairn_session_save(store, space, &save))
		_exit(4);
	tell(SAVED, thread, index, n);
}

static void *work(void *arg)
{
	uint32_t thread = (uint32_t)(uintptr_t)arg;
	struct random random;
	random_init(&random, (uint64_t)round_number * 1000 + thread);
	for (;;) {
		uint32_t index = (uint32_t)random_below(&random, KEYS), s = index % SESSIONS;
		cairn_key key = key_of(thread, 0, index);
		char text[32];
		struct cairn_session_name name = name_of(thread, s, text);
		switch (random_below(&random, 10)) {
		case 0:
			save_one(thread, s, &random);
			break;
		case 1:
			tell(WILL_FORGET, thread, s, 0);
			if (cairn_session_forget(store, &name) && cairn_session_forget(store, &name) != CAIRN_E_NOENT)
				_exit(5);
			tell(FORGOTTEN, thread, s, 0);
			break;
		case 2:
		case 3:
			tell(WILL_DROP, thread, index, 0);
			if (cairn_drop(store, space, &key, 1) < 0)
				_exit(6);
			tell(DROPPED, thread, index, 0);
			break;
		default:
			tell(WILL_PUT, thread, index, 0);
			if (!put(&key, NULL))
				_exit(7);
			tell(PUT, thread, index, 0);
		}
	}
	return NULL;
}

static void store_open_at(const char *path)
{
	struct cairn_flash flash = {.budget_bytes = BUDGET_BYTES};
	struct cairn_options options = {.size = sizeof options,
	                                .flags = CAIRN_OPEN_CREATE,
	                                .memory_bytes = 16 << 20,
	                                .catalog_bytes = 1 << 20,
	                                .flash = &flash,
	                                .nflash = 1,
	                                .free_floor_bytes = 1,
	                                .segment_bytes = 4 << 20,
	                                .io_engine = engine_wanted()};
	static const cairn_digest weights = {{1}};
	struct cairn_space_desc desc = {
		.size = sizeof desc, .weights = &weights, .model = "torture", .kv_dtype = "bf16", .block_tokens = 16};
	if (cairn_open(path, &options, &store))
		die("open");
	if (cairn_describe(store, &desc, &space))
		die("describe");
}

static void child_main(const char *path)
{
	pthread_t threads[THREADS];
	store_open_at(path);
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)i))
			die("thread");
	pthread_join(threads[0], NULL);
	_exit(8);
}

/* ---- the parent -------------------------------------------------------------------------------------------------- */

static void learn(const struct record *r)
{
	if (r->thread >= THREADS || r->index >= KEYS)
		die("a broken record");
	struct session_state *s = &known->session[r->thread][r->index % SESSIONS];
	uint8_t *block = &known->block[r->thread][r->index];
	switch (r->event) {
	case WILL_DROP:
	case WILL_PUT:
		*block = r->event == WILL_PUT && *block == PRESENT ? PRESENT : UNSURE;
		break;
	case DROPPED:
		*block = ABSENT;
		break;
	case PUT:
		*block = PRESENT;
		break;
	case CHAIN_PUT:
		known->chain[r->thread][r->index][r->value] = PRESENT;
		break;
	case WILL_SAVE:
		s->unsure = 1;
		s->unsure_blocks = r->value;
		break;
	case SAVED:
		*s = (struct session_state){.epoch = s->epoch + 1, .blocks = r->value};
		break;
	case WILL_FORGET:
		s->unsure = 2;
		break;
	default:
		*s = (struct session_state){.epoch = 0};
	}
}

/* All that the child said before it died. */
static uint64_t listen_until(int fd, pid_t child, uint64_t kill_ns)
{
	struct record records[256];
	uint64_t n = 0, until;
	size_t have = 0;
	struct timespec now;
	int killed = 0;
	clock_gettime(CLOCK_MONOTONIC, &now);
	until = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec + kill_ns;
	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (!killed && (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec >= until) {
			kill(child, SIGKILL);
			killed = 1;
		}
		ssize_t got = read(fd, (uint8_t *)records + have, sizeof records - have);
		if (got < 0 && errno == EAGAIN) {
			usleep(300);
			continue;
		}
		if (got <= 0)
			break;
		have += (size_t)got;
		size_t whole = have / sizeof records[0];
		for (size_t i = 0; i < whole; i++)
			learn(&records[i]);
		n += whole;
		have -= whole * sizeof records[0];
		memmove(records, &records[whole], have);
	}
	int status;
	if (waitpid(child, &status, 0) != child)
		die("wait");
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
		fprintf(stderr, "torture_kill: round %d: the child ended by itself: %s %d\n", round_number,
		        WIFSIGNALED(status) ? "signal" : "status",
		        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		exit(1);
	}
	return n;
}

static void session_check(uint32_t thread, uint32_t index)
{
	struct session_state *s = &known->session[thread][index];
	char text[32];
	struct cairn_session_name name = name_of(thread, index, text);
	cairn_session *session;
	int error = cairn_session_resume(store, &name, &session);
	if (error == CAIRN_E_NOENT) {
		if (s->epoch && s->unsure != 2)
			die("a saved session is gone");
		*s = (struct session_state){.epoch = 0};
		return;
	}
	if (error)
		die("a saved session does not resume");
	struct cairn_session_info info;
	struct cairn_chain chain = {0};
	uint64_t bytes;
	cairn_session_get_info(session, &info);
	(void)cairn_session_chain(session, 0, &chain);
	int old = s->epoch && info.epoch == s->epoch && chain.nkeys == s->blocks;
	int new = s->unsure == 1 && info.epoch == s->epoch + 1 && chain.nkeys == s->unsure_blocks;
	if (!old && !new)
		die("a session is not the one that was saved, or it came back");
	const uint8_t *state = cairn_session_state(session, &bytes);
	if (bytes != chain.nkeys * 32 || memcmp(state, chain.keys, bytes))
		die("a session's state is wrong");
	for (uint32_t i = 0; i < chain.nkeys; i++)
		if (!get(&chain.keys[i]))
			die("a block of a saved session is gone");
	*s = (struct session_state){.epoch = info.epoch, .blocks = (uint32_t)chain.nkeys};
	cairn_session_free(session);
}

static void check_all(void)
{
	for (uint32_t t = 0; t < THREADS; t++) {
		for (uint32_t i = 0; i < KEYS; i++) {
			cairn_key key = key_of(t, 0, i);
			int there = get(&key);
			if (there && known->block[t][i] == ABSENT)
				die("a dropped block came back");
			if (!there && known->block[t][i] == PRESENT)
				die("a durable block is gone");
			known->block[t][i] = there ? PRESENT : ABSENT;
		}
		for (uint32_t s = 0; s < SESSIONS; s++) {
			for (uint32_t i = 0; i < SESSION_BLOCKS; i++) {
				cairn_key key = key_of(t, 1 + s, i);
				if (!get(&key) && known->chain[t][s][i] == PRESENT)
					die("a durable block of a chain is gone");
			}
			session_check(t, s);
		}
	}
}

/* A process of its own opens the store and looks. It closes it, or dies too. */
static void look(const char *path, int clean)
{
	int status;
	pid_t child = fork();
	if (child < 0)
		die("fork");
	if (!child) {
		struct cairn_stat stat = {.size = sizeof stat};
		store_open_at(path);
		check_all();
		if (cairn_stat(store, &stat))
			die("stat");
		known->used_bytes = stat.device[0].used_bytes;
		if (clean && cairn_close(store))
			die("close");
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status)
		exit(1);
}

static void remove_tree(const char *path)
{
	char command[600];
	snprintf(command, sizeof command, "rm -rf '%s'", path);
	if (system(command))
		die("rm");
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 20, seconds = argc > 2 ? atoi(argv[2]) : 0;
	char path[500];
	struct random random;
	uint64_t told = 0, early = 0;
	time_t start = time(NULL);
	snprintf(path, sizeof path, "%s/store", argc > 3 ? argv[3] : ".");
	random_init(&random, (uint64_t)start ^ (uint64_t)getpid());
	remove_tree(path);
	known = mmap(NULL, sizeof *known, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (known == MAP_FAILED)
		die("mmap");
	for (round_number = 1; round_number <= rounds; round_number++) {
		int fds[2];
		if (seconds && time(NULL) - start >= seconds)
			break;
		if (pipe(fds) || fcntl(fds[0], F_SETFL, O_NONBLOCK))
			die("pipe");
		/* One in four is killed while it opens. */
		uint64_t kill_ns = random_below(&random, random_below(&random, 4) ? 300000000 : 30000000);
		pid_t child = fork();
		if (child < 0)
			die("fork");
		if (!child) {
			close(fds[0]);
			log_fd = fds[1];
			child_main(path);
		}
		close(fds[1]);
		uint64_t n = listen_until(fds[0], child, kill_ns);
		close(fds[0]);
		told += n;
		early += !n;
		look(path, (int)random_below(&random, 2));
		if (known->used_bytes > FRESH_BYTES) {
			remove_tree(path);
			memset(known, 0, sizeof *known);
		}
	}
	remove_tree(path);
	printf("torture_kill: %d rounds, %" PRIu64 " promises and intents, %" PRIu64 " killed before the first\n",
	       round_number - 1, told, early);
	return 0;
}
