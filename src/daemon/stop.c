/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of cairnd: what was asked is answered, clients are told, memory goes to flash best first while the time
 * lasts, and the store is closed.
 *
 * Threads: the main one. Memory: none. Invariant: whatever cuts it short, nothing that was promised is lost: that is on
 * flash already.
 */
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/check.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "store/leave.h"

/* Shares of the stop time, in tenths: answers that are still owed, and all until the store begins to close. */
enum {
	ANSWER_TENTHS = 3,
	LEAVE_TENTHS = 9,
};

/* Whether somebody has asked a second time. */
static int hurry(void *arg)
{
	struct daemon_end *end = arg;
	struct pollfd poll_signals = {.fd = end->signals, .events = POLLIN};
	struct signalfd_siginfo info;
	while (!end->hurried && poll(&poll_signals, 1, 0) == 1) {
		if (read(end->signals, &info, sizeof(info)) != sizeof(info))
			break;
		end->hurried = info.ssi_signo != SIGHUP;
	}
	return end->hurried;
}

static void leave(struct daemon *daemon, struct daemon_end *end, uint64_t deadline_ns)
{
	struct leave_limit limit = {deadline_ns, hurry, end};
	struct leave_report report;
	int error = store_leave(daemon->store, &limit, &report);
	if (error)
		LOG(LOG_WARNING, "memory could not go to flash", LOG_TEXT("why", cairn_error_text()));
	if (report.parts || report.left)
		LOG(LOG_INFO, "memory went to flash", LOG_NUMBER("parts", report.parts), LOG_NUMBER("bytes", report.bytes),
		    LOG_NUMBER("left", report.left));
}

int daemon_end(struct daemon *daemon, struct daemon_end *end)
{
	const struct clock *clock = daemon->store->clock;
	uint64_t begun = clock_mono_ns(clock), tenth = (uint64_t)end->seconds * 100000000ull;
	if (daemon_stop(daemon, begun + ANSWER_TENTHS * tenth, hurry, end)) {
		/* The store can not be closed under a call. As after kill -9: what was promised is there. */
		log_say(LOG_ERROR, "calls do not end: the store is left as it is");
		_exit(2);
	}
	leave(daemon, end, begun + LEAVE_TENTHS * tenth);
	if (hurry(end)) /* asked by now, or it would be taken for the one more that follows */
		log_say(LOG_WARNING, "asked again: ending at once");
	/* From here on one more ends it as kill -9 does. */
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	check(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
	if (end->closing)
		end->closing(end->arg);
	int error = cairn_close(daemon->store);
	if (error)
		LOG(LOG_ERROR, "the store did not close well", LOG_TEXT("why", cairn_error_text()));
	return error;
}
