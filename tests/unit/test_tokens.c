/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens: their texts, their files, and that over a network a client is the tenant of its token, whatever it says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include "base/digest.h"
#include "fmt/key.h"
#include "store/remote.h"
#include "store/token.h"
#include "unit/served_lib.h"

enum {
	LENGTH = 20000,
	WRONG_MS = 150
};

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static void test_tokens__text_is_taken_whole_or_not_at_all(void **state)
{
	(void)state;
	struct token_text token = {.has_pin = 1}, back;
	char text[TOKEN_TEXT_MAX] = "", changed[TOKEN_TEXT_MAX + 8];
	for (uint8_t i = 0; i < 32; i++) {
		token.id[i % 8] = (uint8_t)(i * 3);
		token.secret[i] = (uint8_t)(250 - i);
		token.pin[i] = (uint8_t)(i * 11);
	}
	for (int pinned = 0; pinned < 2; pinned++) {
		token.has_pin = pinned;
		memset(text, 0, sizeof text);
		token_text_make(&token, text);
		size_t length = strlen(text);
		assert_int_equal(token_text_take(text, length, &back), 0);
		assert_int_equal(back.has_pin, pinned);
		assert_memory_equal(back.id, token.id, 8);
		assert_memory_equal(back.secret, token.secret, 32);
		assert_int_equal(memcmp(back.pin, token.pin, 32) == 0, pinned);
		snprintf(changed, sizeof changed, " \t%s\r\n", text);
		assert_int_equal(token_text_take(changed, strlen(changed), &back), 0);
		for (size_t cut = 0; cut < length; cut++) /* cut short: but for the one without its pin */
			assert_int_equal(token_text_take(text, cut, &back) == 0, pinned && cut == length - 65);
		for (size_t at = 0; at < length; at++) { /* a letter that is none of its own */
			memcpy(changed, text, length + 1);
			changed[at] = 'X';
			assert_int_equal(token_text_take(changed, length, &back), -1);
			changed[at] = 0;
			assert_int_equal(token_text_take(changed, length, &back), -1);
		}
	}
}

static void test_tokens__list_is_refused_when_a_line_is_damaged(void **state)
{
	(void)state;
	struct token token = {.rights = TOKEN_ADMIN, .made_s = 5, .expires_s = 0, .tenant = "a tenant, with blanks"}, back;
	struct token_list list;
	char text[2 * TOKEN_LINE_MAX] = TOKEN_LIST_HEAD;
	size_t head = strlen(text), length = head + token_line_make(&token, text + head);
	assert_int_equal(token_list_begin(text, length, &list), 0);
	assert_int_equal(token_list_take(&list, &back), 1);
	assert_memory_equal(&back, &token, sizeof back);
	assert_int_equal(token_list_take(&list, &back), 0);
	for (size_t at = 0; at < length; at++) {
		char changed[2 * TOKEN_LINE_MAX];
		memcpy(changed, text, length);
		changed[at] = 1;
		int good = !token_list_begin(changed, length, &list) && token_list_take(&list, &back) == 1;
		assert_int_equal(good, 0);
		good = !token_list_begin(text, at, &list) && token_list_take(&list, &back) == 1; /* cut short */
		assert_int_equal(good, 0);
	}
	static const char *const wrong[] = {"", "\n", "01", "\x7f", "a\nb"};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		assert_int_equal(token_tenant_fits(wrong[i]), i == 2);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void token_write(const char *path, const char *text)
{
	unlink(path);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static void test_tokens__file_is_refused_when_others_may_read_it(void **state)
{
	(void)state;
	char dir[] = "/tmp/cairn-token-XXXXXX", path[64], text[CAIRN_TOKEN_TEXT];
	struct token_text token;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/token", dir);
	assert_int_equal(
		cairn_token_new(dir, &(struct cairn_token_desc){.size = sizeof(struct cairn_token_desc), .certificate = ""},
	                    text),
		0);
	token_write(path, text);
	assert_int_equal(token_file_read(path, &token), 1);
	static const mode_t wrong[] = {0640, 0604, 0620, 0602, 0644};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		assert_int_equal(chmod(path, wrong[i]), 0);
		assert_int_equal(token_file_read(path, &token), CAIRN_E_ACCESS);
		assert_non_null(strstr(cairn_error_text(), "chmod 600"));
	}
	assert_int_equal(chmod(path, 0400), 0);
	assert_int_equal(token_file_read(path, &token), 1);
	token_write(path, "hello\n");
	assert_int_equal(token_file_read(path, &token), CAIRN_E_INVAL);
	unlink(path);
	assert_int_equal(token_file_read(path, &token), CAIRN_E_NOENT);
	/* Where nobody names one it may be there or not. */
	assert_int_equal(setenv("XDG_CONFIG_HOME", dir, 1), 0);
	assert_int_equal(token_file_read(NULL, &token), 0);
	snprintf(path, sizeof path, "%s/cairn", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof path, "%s/cairn/token", dir);
	token_write(path, text);
	assert_int_equal(token_file_read(NULL, &token), 1);
	unlink(path);
	assert_int_equal(setenv("CAIRN_TOKEN_FILE", path, 1), 0);
	assert_int_equal(token_file_read(NULL, &token), CAIRN_E_NOENT);
	token_write(path, text);
	assert_int_equal(unsetenv("XDG_CONFIG_HOME"), 0);
	assert_int_equal(token_file_read(NULL, &token), 1);
	assert_int_equal(unsetenv("CAIRN_TOKEN_FILE"), 0);
	unlink(path);
	*strrchr(path, '/') = 0;
	rmdir(path);
	snprintf(path, sizeof path, "%s/tokens", dir);
	unlink(path);
	rmdir(dir);
}

static int count_token(void *arg, const struct cairn_token_info *info)
{
	char *id = arg;
	memcpy(id, info->id, 17);
	return 0;
}

static void test_tokens__secret_is_in_no_file(void **state)
{
	(void)state;
	char dir[] = "/tmp/cairn-token-XXXXXX", path[64], text[CAIRN_TOKEN_TEXT], id[17], bytes[4096];
	struct cairn_token_desc desc = {.size = sizeof desc, .tenant = "a b", .ttl_s = 60, .certificate = ""};
	struct token_text token;
	struct stat stat_of;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/tokens", dir);
	assert_int_equal(cairn_token_list(dir, count_token, id), 0);
	assert_int_equal(cairn_token_new(dir, &desc, text), 0);
	assert_int_equal(token_text_take(text, strlen(text), &token), 0);
	assert_int_equal(token.has_pin, 0);
	assert_int_equal(stat(path, &stat_of), 0);
	assert_int_equal(stat_of.st_mode & 07777, 0600);
	int fd = open(path, O_RDONLY);
	ssize_t n = read(fd, bytes, sizeof bytes - 1);
	close(fd);
	assert_true(n > 0);
	bytes[n] = 0;
	text[7 + 16 + 1 + 64] = 0;
	assert_null(strstr(bytes, text + 7 + 16 + 1)); /* the secret */
	assert_int_equal(cairn_token_list(dir, count_token, id), 1);
	assert_memory_equal(id, text + 7, 16);
	assert_int_equal(cairn_token_revoke(dir, "0000000000000000"), CAIRN_E_NOENT);
	assert_int_equal(cairn_token_revoke(dir, "nothing"), CAIRN_E_INVAL);
	assert_int_equal(cairn_token_revoke(dir, id), 0);
	assert_int_equal(cairn_token_list(dir, count_token, id), 0);
	desc.tenant = "two\nlines";
	assert_int_equal(cairn_token_new(dir, &desc, text), CAIRN_E_INVAL);
	assert_int_equal(cairn_token_new("/nonexistent", NULL, text), CAIRN_E_NOENT);
	token_write(path, TOKEN_LIST_HEAD "what is this\n");
	assert_int_equal(cairn_token_new(dir, NULL, text), CAIRN_E_CORRUPT); /* nothing that is there is lost */
	assert_int_equal(cairn_token_list(dir, count_token, id), CAIRN_E_CORRUPT);
	unlink(path);
	snprintf(path, sizeof path, "%s/tls.pem", dir);
	unlink(path);
	rmdir(dir);
}

/* ---- a cairnd of tenants "a" and "b" ----------------------------------------------------------------------------- */

static uint64_t now_s = 1000000;

static uint64_t fake_wall(void *arg)
{
	(void)arg;
	return __atomic_load_n(&now_s, __ATOMIC_RELAXED);
}
static uint64_t real_mono(void *arg)
{
	(void)arg;
	return clock_mono_ns(&clock_real);
}
static const struct clock test_clock = {real_mono, fake_wall, NULL};

struct tenants {
	struct served served;
	char file[2][240], id[2][17]; /* of the tokens of "a" and "b" */
	cairn *store[2], *admin;
	cairn_space *space[2]; /* of one description, without a tenant */
};

static cairn *open_with(struct tenants *t, const char *file, int *ret_error)
{
	cairn *store = NULL;
	struct cairn_options options = {.size = sizeof options, .token_file = file};
	*ret_error = store_open_own(t->served.place_text, &options, &store);
	return *ret_error ? NULL : store;
}

static void token_for(struct tenants *t, const char *tenant, uint64_t ttl_s, const char *file, char ret_id[17])
{
	char text[CAIRN_TOKEN_TEXT];
	struct cairn_token_desc desc = {.size = sizeof desc, .tenant = tenant, .ttl_s = ttl_s};
	assert_int_equal(cairn_token_new(t->served.serving.dir, &desc, text), 0);
	token_write(file, text);
	memcpy(ret_id, text + 7, 16);
	ret_id[16] = 0;
}

static void tenants_start(struct tenants *t)
{
	static const char *const names[] = {"a", "b"};
	int error;
	memset(t, 0, sizeof *t);
	place_init(&t->served.place, 64 * MIB, 16 * MIB);
	t->served.tcp = 2;
	served_start(&t->served);
	t->served.daemon.wrong_ms = WRONG_MS;
	t->admin = served_client(&t->served);
	for (int i = 0; i < 2; i++) {
		snprintf(t->file[i], sizeof t->file[i], "%s/token.%s", t->served.serving.dir, names[i]);
		token_for(t, names[i], 0, t->file[i], t->id[i]);
		t->store[i] = open_with(t, t->file[i], &error);
		if (!t->store[i])
			fail_msg("%d %s", error, cairn_error_text());
		t->space[i] = space_named(t->store[i], NULL, "m");
	}
}

static void tenants_done(struct tenants *t)
{
	for (int i = 0; i < 2; i++) {
		if (t->store[i])
			assert_int_equal(cairn_close(t->store[i]), 0);
		unlink(t->file[i]);
	}
	assert_int_equal(cairn_close(t->admin), 0);
	served_stop(&t->served);
	place_done(&t->served.place);
}

/* Sends a request as it is over a connection of a client that is what it says; the reply's result. */
static int64_t say(cairn *store, struct wire_request *request, struct remote_reply *ret_reply)
{
	int error;
	struct remote_link *link = remote_link_take(store->remote, 0, &error);
	assert_non_null(link);
	error = remote_call(store->remote, link, request, 10000, ret_reply);
	assert_int_equal(error, 0);
	remote_link_drop(store->remote, link, 0);
	return ret_reply->head.result;
}

/* "a" sends b's description, word for word: it gets its own space, in which b's exact key is one that nobody put. */
static void test_tokens__foreign_key_is_a_miss_by_the_same_path(void **state)
{
	(void)state;
	struct tenants t;
	struct remote_reply reply;
	tenants_start(&t);
	assert_int_equal(put_chain(t.store[1], t.space[1], 1, 0, 4, LENGTH, 0), 4);
	cairn_key key = key_at(1, 0);
	assert_int_equal(get_status(t.store[1], t.space[1], &key, LENGTH), CAIRN_OK);
	assert_int_equal(get_status(t.store[0], t.space[0], &key, LENGTH), CAIRN_MISS);
	struct wire_request *request = calloc(1, sizeof *request);
	request->type = WIRE_DESCRIBE;
	request->u.describe.canon = t.space[1]->space.canon;
	request->u.describe.length = (uint32_t)t.space[1]->space.canon_length;
	int64_t number = say(t.store[0], request, &reply);
	assert_true(number > 0);
	memset(request, 0, sizeof *request);
	request->type = WIRE_FETCH;
	request->u.batch.space = (uint32_t)number;
	request->u.batch.nitems = 1;
	request->u.batch.items[0].key = key;
	request->u.batch.items[0].length = LENGTH;
	struct wire_result result;
	assert_int_equal(say(t.store[0], request, &reply), 0);
	wire_take_result(&reply.body, &result);
	assert_int_equal(result.status, CAIRN_MISS);
	assert_int_equal(reply.head.bulk_bytes, 0);
	/* And what it puts there is its own: b has another. */
	cairn_digest own;
	cairn_space_get_id(t.space[0], &own);
	assert_int_equal(number, t.space[0]->remote_number);
	assert_int_equal(match_tokens(t.store[0], t.space[0], 1, 4), 0);
	assert_int_equal(match_tokens(t.store[1], t.space[1], 1, 4), 64);
	free(request);
	tenants_done(&t);
}

static int count_space(void *arg, const struct cairn_space_info *info)
{
	*(int *)arg += 1;
	assert_null(strstr(info->text, "tenant = b"));
	return 0;
}

static int count_part(void *arg, const struct cairn_part_info *info)
{
	(void)info;
	*(int *)arg += 1;
	return 0;
}

static int count_session(void *arg, const struct cairn_session_info *info)
{
	assert_string_equal(info->tenant, "a");
	*(int *)arg += 1;
	return 0;
}

static int only_a(void *arg, const struct cairn_tenant_stat *tenant_stat)
{
	(void)arg;
	assert_string_equal(tenant_stat->tenant, "a");
	return 0;
}

static int count_tenant(void *arg, const struct cairn_tenant_stat *tenant_stat)
{
	(void)tenant_stat;
	*(int *)arg += 1;
	return 0;
}

static void test_tokens__lists_show_the_tenants_own(void **state)
{
	(void)state;
	struct tenants t;
	int n = 0;
	tenants_start(&t);
	put_chain(t.store[0], t.space[0], 1, 0, 3, LENGTH, 0);
	put_chain(t.store[1], t.space[1], 2, 0, 5, LENGTH, 0);
	cairn_space *public = space_named(t.store[1], "public", "m");
	put_chain(t.store[1], public, 3, 0, 2, LENGTH, 0);
	for (int i = 0; i < 2; i++) {
		struct cairn_save save = {.size = sizeof save, .name = {NULL, "", "talk"}};
		assert_int_equal(cairn_session_save(t.store[i], t.space[i], &save), 0);
	}
	assert_int_equal(cairn_list_spaces(t.store[0], count_space, &n), 2); /* its own, and the public one */
	cairn_digest foreign;
	cairn_space_get_id(t.space[1], &foreign);
	n = 0;
	assert_int_equal(cairn_list_parts(t.store[0], NULL, count_part, &n), 5);
	assert_int_equal(cairn_list_parts(t.store[0], &foreign, count_part, &n), 0);
	assert_int_equal(cairn_list_parts(t.admin, NULL, count_part, &n), 10);
	n = 0;
	assert_int_equal(cairn_session_list(t.store[0], NULL, count_session, &n), 1);
	assert_int_equal(cairn_session_list(t.store[0], "b", count_session, &n), CAIRN_E_ACCESS);
	assert_int_equal(n, 1);
	/* Asked for in so many words: the answer is of "a" all the same. */
	struct wire_request *request = calloc(1, sizeof *request);
	struct remote_reply reply;
	request->type = WIRE_SESSIONS;
	request->u.list.tenant[0] = 'b';
	assert_int_equal(say(t.store[0], request, &reply), 0);
	struct cairn_session_info info;
	char tenant[WIRE_TEXT_MAX];
	wire_take_struct(&reply.body, &info, sizeof info);
	wire_take_text(&reply.body, tenant);
	assert_string_equal(tenant, "a");
	memset(request, 0, sizeof *request);
	request->type = WIRE_SPACE;
	request->u.space = foreign;
	assert_int_equal(say(t.store[0], request, &reply), CAIRN_E_NOENT);
	assert_int_equal(say(t.store[1], request, &reply), 0);
	free(request);
	/* Events: those of others have a number, and nothing else. */
	struct cairn_event events[64];
	long count = cairn_events(t.store[0], 0, events, 64);
	int own = 0, blank = 0;
	assert_true(count >= 10);
	for (long i = 0; i < count; i++) {
		assert_int_equal(events[i].sequence, i + 1);
		assert_true(memcmp(&events[i].space_id, &foreign, 32) != 0);
		own += events[i].kind != 0;
		blank += events[i].kind == 0;
	}
	assert_true(own >= 5 && blank >= 5);
	struct cairn_stat stat = stat_of(t.store[0]);
	assert_int_equal(stat.sessions, 0);
	assert_int_equal(stat.misses, 0);
	assert_true(stat.tier[CAIRN_TIER_MEMORY].capacity_bytes > 0);
	assert_int_equal(stat_of(t.admin).sessions, 2);
	assert_int_equal(cairn_list_tenants(t.store[0], only_a, &n), 1);
	assert_int_equal(cairn_list_tenants(t.admin, count_tenant, &n), 3);
	tenants_done(&t);
}

static void test_tokens__sessions_and_drops_stay_within_the_tenant(void **state)
{
	(void)state;
	struct tenants t;
	struct remote_reply reply;
	struct wire_request *request = calloc(1, sizeof *request);
	cairn_session *session;
	cairn_digest foreign;
	tenants_start(&t);
	put_chain(t.store[1], t.space[1], 2, 0, 5, LENGTH, 0);
	struct cairn_save save = {.size = sizeof save, .name = {NULL, "", "talk"}, .pin = 1};
	assert_int_equal(cairn_session_save(t.store[1], t.space[1], &save), 0);
	/* By the library, which knows better; and by a request that says so. */
	struct cairn_session_name name = {"b", "", "talk"};
	assert_int_equal(cairn_session_resume(t.store[0], &name, &session), CAIRN_E_ACCESS);
	assert_non_null(strstr(cairn_error_text(), "tenant \"a\""));
	static const uint32_t types[] = {WIRE_RESUME, WIRE_FORGET, WIRE_CLOSE};
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		memset(request, 0, sizeof *request);
		request->type = types[i];
		memcpy(request->u.name.tenant, "b", 2);
		memcpy(request->u.name.name, "talk", 5);
		assert_int_equal(say(t.store[0], request, &reply), CAIRN_E_NOENT);
	}
	memset(request, 0, sizeof *request);
	request->type = WIRE_PIN;
	memcpy(request->u.pin.name.tenant, "b", 2);
	memcpy(request->u.pin.name.name, "talk", 5);
	assert_int_equal(say(t.store[0], request, &reply), CAIRN_E_NOENT);
	/* Dropping. */
	cairn_space_get_id(t.space[1], &foreign);
	assert_int_equal(cairn_drop_space(t.store[0], &foreign), 0);
	assert_int_equal(cairn_drop_tenant(t.store[0], "b"), CAIRN_E_ACCESS);
	memset(request, 0, sizeof *request);
	request->type = WIRE_DROP;
	request->u.drop.scope = WIRE_DROP_TENANT;
	request->u.drop.tenant[0] = 'b';
	assert_int_equal(say(t.store[0], request, &reply), 0);
	assert_int_equal(match_tokens(t.store[1], t.space[1], 2, 5), 80);
	assert_int_equal(cairn_session_resume(t.store[1], &save.name, &session), 0);
	cairn_session_free(session);
	cairn_key key = key_at(2, 0);
	struct cairn_explanation explanation = {.size = sizeof explanation};
	assert_int_equal(cairn_explain(t.store[0], &foreign, &key, 0, &explanation), 0);
	assert_int_equal(explanation.reason, CAIRN_WHY_NONE);
	assert_int_equal(cairn_explain(t.store[1], &foreign, &key, 0, &explanation), 0);
	assert_int_equal(explanation.reason, CAIRN_WHY_PRESENT);
	/* What is its own it may. */
	put_chain(t.store[0], t.space[0], 2, 0, 2, LENGTH, 0);
	assert_int_equal(cairn_drop_tenant(t.store[0], NULL), 2);
	assert_int_equal(cairn_drop_tenant(t.admin, "b"), 6); /* and the manifest */
	free(request);
	tenants_done(&t);
}

static void test_tokens__public_is_everybodys_to_read_and_put(void **state)
{
	(void)state;
	struct tenants t;
	tenants_start(&t);
	cairn_space *ours = space_named(t.store[0], "public", "m"), *theirs = space_named(t.store[1], "public", "m");
	assert_int_equal(put_chain(t.store[0], ours, 7, 0, 3, LENGTH, 0), 3);
	assert_int_equal(match_tokens(t.store[1], theirs, 7, 3), 48);
	cairn_key key = key_at(7, 1);
	assert_int_equal(get_status(t.store[1], theirs, &key, LENGTH), CAIRN_OK);
	cairn_digest id;
	cairn_space_get_id(theirs, &id);
	assert_int_equal(cairn_drop(t.store[1], theirs, &key, 1), CAIRN_E_ACCESS);
	assert_int_equal(cairn_drop_space(t.store[1], &id), CAIRN_E_ACCESS);
	struct cairn_chain chain = {0, &key, 1};
	assert_int_equal(cairn_hint(t.store[1], theirs, &chain, CAIRN_HINT_CLOSE), 0);
	assert_int_equal(match_tokens(t.store[0], ours, 7, 3), 48);
	/* A tenant of another's name is refused by the library, with a text that says whose the token is. */
	struct cairn_space_desc desc = lib_desc("b", "m");
	cairn_space *space;
	assert_int_equal(cairn_describe(t.store[0], &desc, &space), CAIRN_E_ACCESS);
	assert_non_null(strstr(cairn_error_text(), "tenant \"a\""));
	desc = lib_desc("a", "m");
	assert_int_equal(cairn_describe(t.store[0], &desc, &space), 0);
	assert_ptr_equal(space, t.space[0]);
	assert_int_equal(cairn_drop_space(t.admin, &id), 3);
	tenants_done(&t);
}

/* Numbers and ids of another client: they are those of nobody. */
static void test_tokens__foreign_numbers_and_ids_are_nobodys(void **state)
{
	(void)state;
	struct tenants t;
	struct remote_reply reply;
	struct wire_request *request = calloc(1, sizeof *request);
	cairn_match *match;
	cairn_key keys[4];
	tenants_start(&t);
	put_chain(t.store[1], t.space[1], 1, 0, 4, LENGTH, 0);
	for (uint32_t i = 0; i < 4; i++)
		keys[i] = key_at(1, i);
	struct cairn_chain chain = {0, keys, 4};
	assert_int_equal(cairn_match_take(t.store[1], t.space[1], &chain, 1, 0, 60000, &match), 0);
	assert_int_equal(stat_of(t.admin).matches, 1);
	uint64_t numbers[4] = {1, 1ull << 32 | 1, 2ull << 32 | 1, 1ull << 32 | 2};
	request->type = WIRE_MATCH_RELEASE;
	request->u.release.n = 4;
	request->u.release.numbers = (const uint8_t *)numbers;
	int error;
	struct remote_link *link = remote_link_take(t.store[0]->remote, 0, &error);
	assert_int_equal(remote_send(link, request, 0, 0), 0);
	memset(request, 0, sizeof *request);
	request->type = WIRE_MATCH_JOIN; /* by b's ticket, in the space of "a" */
	request->u.join.space = t.space[0]->remote_number;
	cairn_match_ticket(match, &request->u.join.ticket);
	assert_int_equal(remote_call(t.store[0]->remote, link, request, 0, &reply), 0);
	assert_true(reply.head.result < 0);
	assert_int_equal(stat_of(t.admin).matches, 1);
	/* A space's number that b has, and "a" has not. */
	memset(request, 0, sizeof *request);
	request->type = WIRE_FETCH;
	request->u.batch.space = t.space[0]->remote_number + 1;
	request->u.batch.nitems = 1;
	assert_int_equal(remote_call(t.store[0]->remote, link, request, 0, &reply), 0);
	assert_int_equal(reply.head.result, CAIRN_E_INVAL);
	remote_link_drop(t.store[0]->remote, link, 0);
	/* b's id in the hello of "a": another client, with nothing of b's. */
	memcpy(t.store[0]->remote->client, t.store[1]->remote->client, 16);
	struct remote_link *first = remote_link_take(t.store[0]->remote, 0, &error); /* the idle one; then a new one */
	struct remote_link *second = remote_link_take(t.store[0]->remote, 0, &error);
	assert_non_null(first);
	assert_non_null(second);
	assert_true(memcmp(t.store[0]->remote->client, t.store[1]->remote->client, 16) != 0);
	request->u.batch.space = 1;
	assert_int_equal(remote_call(t.store[0]->remote, second, request, 0, &reply), 0);
	assert_int_equal(reply.head.result, CAIRN_E_INVAL);
	/* A second hello on a connection that has said it: nobody changes who he is. */
	memset(request, 0, sizeof *request);
	request->type = WIRE_HELLO;
	assert_int_equal(remote_call(t.store[0]->remote, second, request, 0, &reply), CAIRN_E_IO);
	remote_link_drop(t.store[0]->remote, first, 0);
	remote_link_drop(t.store[0]->remote, second, 1);
	cairn_match_release(t.store[1], match);
	free(request);
	tenants_done(&t);
}

static void test_tokens__wrong_ones_are_refused_later_and_hold_back_nobody(void **state)
{
	(void)state;
	struct tenants t;
	int error;
	char text[CAIRN_TOKEN_TEXT], file[256], good[CAIRN_TOKEN_TEXT + 1] = "";
	tenants_start(&t);
	int fd = open(t.file[0], O_RDONLY);
	assert_true(read(fd, good, CAIRN_TOKEN_TEXT) > 0);
	close(fd);
	snprintf(file, sizeof file, "%s/token.x", t.served.serving.dir);
	memcpy(text, good, sizeof text);
	char *digit = &text[7 + 16 + 1 + 63]; /* the last one of the secret */
	*digit = *digit == '0' ? '1' : '0';
	token_write(file, text);
	int64_t begun = link_now_ms();
	assert_null(open_with(&t, file, &error));
	assert_int_equal(error, CAIRN_E_ACCESS);
	assert_non_null(strstr(cairn_error_text(), "not good here"));
	assert_null(strchr(cairn_error_text(), '\n'));
	assert_true(link_now_ms() - begun >= WRONG_MS);
	int64_t best = INT64_MAX; /* others are not held back: on a busy machine not each time */
	for (int tries = 0; tries < 50 && best >= WRONG_MS; tries++) {
		begun = link_now_ms();
		cairn *other = open_with(&t, t.file[0], &error);
		assert_non_null(other);
		int64_t took = link_now_ms() - begun;
		best = took < best ? took : best;
		assert_int_equal(cairn_close(other), 0);
	}
	assert_true(best < WRONG_MS);
	memcpy(text, good, sizeof text); /* an id that there is not */
	memset(text + 7, '0', 16);
	token_write(file, text);
	assert_null(open_with(&t, file, &error));
	assert_int_equal(error, CAIRN_E_ACCESS);
	/* None at all. */
	unlink(file);
	assert_int_equal(setenv("XDG_CONFIG_HOME", t.served.serving.dir, 1), 0);
	struct link_place place;
	struct link_trust trust = {NULL};
	struct token_text token;
	struct link *net;
	struct link_buffer body = {0};
	int fds[WIRE_FDS_MAX];
	assert_int_equal(token_text_take(good, strlen(good), &token), 0);
	trust.pin = token.pin;
	assert_int_equal(link_place_take(t.served.place_text, &place), 0);
	assert_int_equal(link_connect(&place, &trust, 5000, &net), 0);
	uint8_t hello[2 + 16 + 44] = {0};
	struct wire_head head = {.version = WIRE_VERSION, .type = WIRE_HELLO, .id = 1, .body_bytes = sizeof hello};
	assert_int_equal(link_send(net, &head, hello, NULL, 0), 0);
	assert_int_equal(link_receive(net, 5000, &head, &body, fds), 0);
	assert_int_equal(head.result, CAIRN_E_ACCESS);
	assert_int_equal(link_receive(net, 5000, &head, &body, fds), -ECONNRESET); /* and that was that */
	link_close(net);
	link_buffer_done(&body);
	assert_int_equal(unsetenv("XDG_CONFIG_HOME"), 0);
	tenants_done(&t);
}

static void test_tokens__connections_end_when_revoked(void **state)
{
	(void)state;
	struct tenants t;
	int error;
	tenants_start(&t);
	put_chain(t.store[0], t.space[0], 1, 0, 2, LENGTH, 0);
	cairn_key key = key_at(1, 0);
	daemon_check_tokens(&t.served.daemon); /* as the main thread does every second */
	assert_int_equal(get_status(t.store[0], t.space[0], &key, LENGTH), CAIRN_OK);
	assert_int_equal(cairn_token_revoke(t.served.serving.dir, t.id[0]), 0);
	daemon_check_tokens(&t.served.daemon);
	assert_int_not_equal(get_status(t.store[0], t.space[0], &key, LENGTH), CAIRN_OK);
	assert_int_equal(get_status(t.store[0], t.space[0], &key, LENGTH), CAIRN_E_ACCESS);
	assert_null(open_with(&t, t.file[0], &error));
	assert_int_equal(error, CAIRN_E_ACCESS);
	/* The others go on; and a new token in the same file is taken by the store that is open. */
	assert_int_equal(match_tokens(t.store[1], t.space[1], 1, 2), 0);
	token_for(&t, "a", 0, t.file[0], t.id[0]);
	assert_int_equal(get_status(t.store[0], t.space[0], &key, LENGTH), CAIRN_OK);
	/* One of another tenant is not: spaces and keys are those of "a". */
	assert_int_equal(cairn_token_revoke(t.served.serving.dir, t.id[0]), 0);
	daemon_check_tokens(&t.served.daemon);
	token_for(&t, "c", 0, t.file[0], t.id[0]);
	int first = get_status(t.store[0], t.space[0], &key, LENGTH); /* the connection may end only now */
	assert_true(first == CAIRN_E_IO || first == CAIRN_E_ACCESS);
	assert_int_equal(get_status(t.store[0], t.space[0], &key, LENGTH), CAIRN_E_ACCESS);
	tenants_done(&t);
}

static void test_tokens__expired_ones_are_refused(void **state)
{
	(void)state;
	struct tenants t;
	int error;
	char file[256], id[17];
	tenants_start(&t);
	tokens_close(t.served.daemon.tokens);
	now_s = clock_wall_s(&clock_real);
	t.served.daemon.tokens = tokens_open(t.served.serving.dir, &test_clock);
	snprintf(file, sizeof file, "%s/token.x", t.served.serving.dir);
	token_for(&t, "a", 600, file, id);
	cairn *store = open_with(&t, file, &error);
	assert_non_null(store);
	cairn_space *space = space_named(store, NULL, "m");
	put_chain(store, space, 1, 0, 2, LENGTH, 0);
	daemon_check_tokens(&t.served.daemon);
	cairn_key key = key_at(1, 0);
	assert_int_equal(get_status(store, space, &key, LENGTH), CAIRN_OK);
	__atomic_fetch_add(&now_s, 601, __ATOMIC_RELAXED);
	assert_null(open_with(&t, file, &error));
	assert_int_equal(error, CAIRN_E_ACCESS);
	daemon_check_tokens(&t.served.daemon); /* and what is open ends */
	assert_true(get_status(store, space, &key, LENGTH) < 0);
	assert_int_equal(get_status(t.store[0], t.space[0], &key, LENGTH), CAIRN_OK); /* that of another token does not */
	assert_int_equal(cairn_close(store), 0);
	unlink(file);
	tenants_done(&t);
}

static void test_tokens__none_is_taken_when_the_list_is_damaged(void **state)
{
	(void)state;
	struct tenants t;
	int error;
	char list[256], kept[256];
	tenants_start(&t);
	snprintf(list, sizeof list, "%s/tokens", t.served.serving.dir);
	snprintf(kept, sizeof kept, "%s/tokens.kept", t.served.serving.dir);
	assert_int_equal(rename(list, kept), 0);
	token_write(list, "cairn tokens 1\nwhat is this\n");
	assert_null(open_with(&t, t.file[0], &error));
	assert_int_equal(error, CAIRN_E_ACCESS);
	assert_int_equal(rename(kept, list), 0); /* mended: taken without a restart */
	cairn *store = open_with(&t, t.file[0], &error);
	assert_non_null(store);
	assert_int_equal(cairn_close(store), 0);
	tenants_done(&t);
}

/* Whoever does not say hello is sent away, and cannot keep others from it. */
static void test_tokens__strangers_do_not_fill_it(void **state)
{
	(void)state;
	struct tenants t;
	int error, fds[DAEMON_STRANGERS_FROM + 8];
	struct sockaddr_in address;
	socklen_t length = sizeof address;
	tenants_start(&t);
	assert_int_equal(getsockname(t.served.serving.listener->fd, (struct sockaddr *)&address, &length), 0);
	cairn_key key = key_at(1, 0);
	assert_int_equal(get_status(t.store[0], t.space[0], &key, LENGTH), CAIRN_MISS); /* its connections are there */
	for (int i = 0; i < DAEMON_STRANGERS_FROM + 8; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(connect(fds[i], (struct sockaddr *)&address, length), 0);
	}
	/* Those beyond the bound are closed at once. */
	char byte;
	assert_true(recv(fds[DAEMON_STRANGERS_FROM + 7], &byte, 1, 0) <= 0);
	assert_true(daemon_conns(&t.served.daemon) <= DAEMON_STRANGERS_FROM + 8);
	assert_int_equal(get_status(t.store[0], t.space[0], &key, LENGTH), CAIRN_MISS); /* who is known goes on */
	for (int i = 0; i < DAEMON_STRANGERS_FROM + 8; i++)
		close(fds[i]);
	served_wait(&t.served, 6);
	cairn *store = open_with(&t, t.file[0], &error);
	assert_non_null(store);
	assert_int_equal(cairn_close(store), 0);
	tenants_done(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tokens__text_is_taken_whole_or_not_at_all),
		cmocka_unit_test(test_tokens__list_is_refused_when_a_line_is_damaged),
		cmocka_unit_test(test_tokens__file_is_refused_when_others_may_read_it),
		cmocka_unit_test(test_tokens__secret_is_in_no_file),
		cmocka_unit_test(test_tokens__foreign_key_is_a_miss_by_the_same_path),
		cmocka_unit_test(test_tokens__lists_show_the_tenants_own),
		cmocka_unit_test(test_tokens__sessions_and_drops_stay_within_the_tenant),
		cmocka_unit_test(test_tokens__public_is_everybodys_to_read_and_put),
		cmocka_unit_test(test_tokens__foreign_numbers_and_ids_are_nobodys),
		cmocka_unit_test(test_tokens__wrong_ones_are_refused_later_and_hold_back_nobody),
		cmocka_unit_test(test_tokens__connections_end_when_revoked),
		cmocka_unit_test(test_tokens__expired_ones_are_refused),
		cmocka_unit_test(test_tokens__none_is_taken_when_the_list_is_damaged),
		cmocka_unit_test(test_tokens__strangers_do_not_fill_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
