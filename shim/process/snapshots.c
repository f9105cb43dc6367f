/* SPDX-License-Identifier: MIT */
/*
 * One thread at a time takes and writes; another that finds it busy goes on without, but at exit.
 *
 * The peak's state is taken each time the reserved memory has grown to a new maximum, and kept
 * until the process ends: it is of the end of the call that grew it.
 *
 * A signal handler may interrupt anything, this file too. So ours only notes that the signal came;
 * what is to be done is done in the next hooked call of any thread.
 */
#include "shim/process/snapshots.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/api/heap_snapshot.h"
#include "config/log.h"
#include "config/text.h"
#include "shim/bind/scope.h"
#include "shim/process/turn.h"

enum { SHOWN_BYTES = 400 };

/* A signal by which a snapshot is asked for. */
static struct signal_request {
	int number;
	unsigned on; /* enum ca_snapshot_on */
	const char *reason;
	_Atomic bool pending;
	bool taken;                /* our handler was set; it is inherited by children */
	struct sigaction previous; /* the program's, set before ours is */
} signals[] = {
	{ .number = SIGUSR1, .on = CA_SNAPSHOT_ON_USR1, .reason = "usr1" },
	{ .number = SIGUSR2, .on = CA_SNAPSHOT_ON_USR2, .reason = "usr2" },
};
enum { SIGNALS = sizeof(signals) / sizeof(signals[0]) };

static const struct ca_config *config; /* NULL: no snapshots */
static struct ca_turn busy;
/* while `busy` is held */
static struct ca_heap_snapshot now, peak;
static bool wrote; /* a file by the pattern: others beside it are ours, and need no word */

/* ---- signals */

/* SA_SIGINFO may be set without a handler, too. */
static bool
has_handler(const struct sigaction *action)
{
	return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

static void
note_signal(int number, siginfo_t *info, void *context)
{
	for (unsigned i = 0; i < SIGNALS; i++) {
		const struct sigaction *previous = &signals[i].previous;

		if (signals[i].number != number)
			continue;
		atomic_store(&signals[i].pending, true);
		if (!has_handler(previous))
			continue;
		if (previous->sa_flags & SA_SIGINFO)
			previous->sa_sigaction(number, info, context);
		else
			previous->sa_handler(number);
	}
}

/* The program's handler, if it has one, runs as it would: with its mask, on its stack. */
static void
take_signal(struct signal_request *one)
{
	struct sigaction ours = { .sa_flags = SA_RESTART | SA_ONSTACK };
	const struct sigaction *before = &one->previous;

	if (one->taken || sigaction(one->number, NULL, &one->previous))
		return;
	if (has_handler(before)) {
		ours.sa_flags = before->sa_flags & ~SA_RESETHAND;
		ours.sa_mask = before->sa_mask;
	}
	ours.sa_flags |= SA_SIGINFO;
	ours.sa_sigaction = note_signal;
	one->taken = !sigaction(one->number, &ours, NULL);
}

/* ---- one file */

static int
write_to(void *arg, const char *text, size_t length)
{
	const int *fd = arg;

	return ca_text_write(*fd, text, length);
}

static uint64_t
unix_ns(void)
{
	struct timespec at = { 0 };

	clock_gettime(CLOCK_REALTIME, &at);
	return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

static int
open_file(char *ret_path)
{
	char shown[SHOWN_BYTES];
	int fd = wrote ? ca_path_open(config->snapshot_file, ret_path)
		       : ca_path_open_told("CACHEALLOC_SNAPSHOT", config->snapshot_file, ret_path);

	if (fd < 0)
		ca_warn("CACHEALLOC_SNAPSHOT: no file by the pattern '%s' can be made: %s (errno "
			"%d)",
			ca_text_escape(shown, sizeof(shown), config->snapshot_file),
			ca_log_error_name(-fd), -fd);
	return fd;
}

static bool
write_file(const struct ca_heap_snapshot *snapshot, const char *reason, uint64_t refused,
	   char *ret_path)
{
	struct ca_snapshot_note note = {
		.reason = reason,
		.program = program_invocation_short_name,
		.pid = getpid(),
		.time_unix_ns = unix_ns(),
		.failed_bytes = refused,
	};
	char shown[SHOWN_BYTES];
	int fd = open_file(ret_path), r;

	if (fd < 0)
		return false;
	wrote = true;
	ca_text_escape(shown, sizeof(shown), ret_path);
	r = ca_heap_snapshot_emit(snapshot, &note, write_to, &fd);
	/* not close(): that is a cancellation point */
	syscall(SYS_close, fd);
	if (!r) {
		ca_info("a snapshot (%s) is in %s", reason, shown);
		return true;
	}
	ca_warn("CACHEALLOC_SNAPSHOT: the file '%s' cannot be written: %s (errno %d)", shown,
		ca_log_error_name(-r), -r);
	unlink(ret_path); /* half of it is of no use to anybody */
	return false;
}

static bool
take(struct ca_heap *heap)
{
	if (!ca_heap_snapshot_take(heap, &now))
		return true;
	ca_warn("CACHEALLOC_SNAPSHOT: no host memory for a snapshot");
	return false;
}

/* ---- when */

static bool
is_wanted(unsigned on)
{
	return config && config->snapshot_on & on;
}

static bool
is_in_environment(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value;
}

void
ca_snapshots_start(const struct ca_config *one)
{
	if (!one->snapshot_file[0]) {
		/* a site may set the one for users who set the other, or switch it off */
		if (is_in_environment("CACHEALLOC_SNAPSHOT_ON") &&
		    !is_in_environment("CACHEALLOC_SNAPSHOT"))
			ca_warn("CACHEALLOC_SNAPSHOT_ON has no effect without CACHEALLOC_SNAPSHOT");
		return;
	}
	config = one;
	for (unsigned i = 0; i < SIGNALS; i++)
		if (is_wanted(signals[i].on))
			take_signal(&signals[i]);
}

bool
ca_snapshots_tick_wanted(const struct ca_config *one)
{
	return one->snapshot_file[0] &&
	       one->snapshot_on & (CA_SNAPSHOT_ON_PEAK | CA_SNAPSHOT_ON_USR1 | CA_SNAPSHOT_ON_USR2);
}

static void
note_peak(struct ca_heap *heap)
{
	struct ca_heap_snapshot before = peak;

	if (!take(heap) || now.reserved_bytes < peak.reserved_bytes)
		return;
	peak = now;
	now = before;
}

void
ca_snapshots_tick(struct ca_heap *heap)
{
	char path[CA_PATH_MAX];
	bool is_due = false;
	CA_KEEP_ERRNO;

	for (unsigned i = 0; i < SIGNALS; i++)
		is_due |= atomic_load_explicit(&signals[i].pending, memory_order_relaxed);
	if (!config || (!is_due && !is_wanted(CA_SNAPSHOT_ON_PEAK)) || !ca_turn_take(&busy))
		return;
	if (is_wanted(CA_SNAPSHOT_ON_PEAK) && ca_heap_is_at_peak(heap))
		note_peak(heap);
	for (unsigned i = 0; i < SIGNALS; i++)
		if (atomic_exchange(&signals[i].pending, false) && is_wanted(signals[i].on) &&
		    take(heap))
			write_file(&now, signals[i].reason, 0, path);
	ca_turn_leave(&busy);
}

bool
ca_snapshots_oom(struct ca_heap *heap, uint64_t bytes, char *ret_path)
{
	bool done;
	CA_KEEP_ERRNO;

	if (!is_wanted(CA_SNAPSHOT_ON_OOM) || !ca_turn_take(&busy))
		return false;
	done = take(heap) && write_file(&now, "oom", bytes, ret_path);
	ca_turn_leave(&busy);
	return done;
}

void
ca_snapshots_final(struct ca_heap *heap)
{
	char path[CA_PATH_MAX];
	CA_KEEP_ERRNO;

	if (!config || !ca_turn_await(&busy))
		return;
	if (is_wanted(CA_SNAPSHOT_ON_PEAK) && peak.rows)
		write_file(&peak, "peak", 0, path);
	if (is_wanted(CA_SNAPSHOT_ON_EXIT) && take(heap))
		write_file(&now, "exit", 0, path);
	ca_turn_leave(&busy);
}

void
ca_snapshots_after_fork_child(void)
{
	config = NULL;
	wrote = false;
	/* not unmapped: the fork may have been a signal handler's, in the middle of a copy */
	now = peak = (struct ca_heap_snapshot){ 0 };
	for (unsigned i = 0; i < SIGNALS; i++)
		atomic_store(&signals[i].pending, false);
	ca_turn_leave(&busy);
}
