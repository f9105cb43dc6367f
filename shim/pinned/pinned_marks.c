/* SPDX-License-Identifier: MIT */
/*
 * Frees are counted, and one number says up to which free all earlier work has finished. Two things
 * raise it, and both are certain whatever touches the memory, kernels, graphs, host functions, or
 * work that no hook sees:
 *
 *   - a mark of every context of the process (context_event.h), recorded after that many frees, is
 *     done. It is recorded when a request would want the memory, so any number of frees shares one,
 *     and a free costs nothing. None is recorded while something captures.
 *   - the program itself synchronised every context by calls that began after that many frees. This
 *     serves drivers without such marks, too.
 *
 * Marks are asked, never waited for, each by one thread at a time.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "config/mutant.h"
#include "shim/bind/scope.h"
#include "shim/driver/driver_table.h"
#include "shim/pinned/internal.h"
#include "shim/track/contexts.h"

enum {
	MARKS = 4,
	/* A mark of an idle device is done a moment after it was recorded. */
	QUERIES = 4,
};

static struct {
	ca_mark mark;
	uint64_t frees; /* it covers that many; 0: no mark */
	bool is_busy;   /* a thread has it */
} marks[MARKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around marks[] */
static _Atomic uint64_t counted, finished;

uint64_t
ca_pinned_frees(void)
{
	return atomic_load(&counted);
}

uint64_t
ca_pinned_count_free(void)
{
	return atomic_fetch_add(&counted, 1) + 1;
}

bool
ca_pinned_has_finished(uint64_t freed_at)
{
	return atomic_load(&finished) >= freed_at || CA_MUTANT(PINNED_AT_ONCE);
}

static void
raise_to(_Atomic uint64_t *number, uint64_t least)
{
	uint64_t seen = atomic_load(number);

	while (seen < least && !atomic_compare_exchange_weak(number, &seen, least))
		continue;
}

/* A context that was never synchronised since the free, however new, holds the number down. */
void
ca_pinned_synchronized(struct ca_context *context, uint64_t frees)
{
	uint64_t least = frees;

	raise_to(&context->pinned_frees, frees);
	for (context = ca_context_first(); context; context = ca_context_next(context)) {
		uint64_t covered = atomic_load(&context->pinned_frees);

		if (atomic_load(&context->kind) != CA_CONTEXT_GREEN && covered < least &&
		    !CA_MUTANT(PINNED_ONE_CONTEXT))
			least = covered;
	}
	raise_to(&finished, least);
}

/* A mark that no thread asks, which may cover the free: its place, or -1. */
static int
reserve(uint64_t freed_at, unsigned first)
{
	CA_HOLD_LOCK(&lock);
	for (unsigned i = first; i < MARKS; i++)
		if (marks[i].frees && !marks[i].is_busy && !ca_pinned_has_finished(freed_at)) {
			marks[i].is_busy = true;
			return (int)i;
		}
	return -1;
}

static void
release(unsigned i, bool keep)
{
	CA_HOLD_LOCK(&lock);
	marks[i].is_busy = false;
	if (!keep)
		marks[i].frees = 0;
}

/* The calling thread has the mark's place. */
static void
query_mark(unsigned i, unsigned queries)
{
	const struct ca_driver *driver = ca_driver_table();
	int rc = -EAGAIN;

	while (rc == -EAGAIN && queries--)
		rc = driver->mark_query(driver->self, marks[i].mark);
	if (!rc)
		raise_to(&finished, marks[i].frees);
	if (rc != -EAGAIN && rc != -EBUSY)
		driver->mark_drop(driver->self, marks[i].mark);
	release(i, rc == -EAGAIN || rc == -EBUSY);
}

/* A place for a mark that will cover that free, unless there is such a mark, or no place. */
static int
reserve_new(uint64_t freed_at)
{
	CA_HOLD_LOCK(&lock);
	int place = -1;

	for (unsigned i = 0; i < MARKS; i++) {
		if (marks[i].frees >= freed_at)
			return -1;
		if (!marks[i].frees)
			place = (int)i;
	}
	if (place >= 0) {
		marks[place].frees = ca_pinned_frees();
		marks[place].is_busy = true;
	}
	return place;
}

bool
ca_pinned_query(struct ca_context *context, uint64_t freed_at)
{
	const struct ca_driver *driver = ca_driver_table();
	CA_KEEP_ERRNO;
	int i = -1;

	while ((i = reserve(freed_at, (unsigned)(i + 1))) >= 0)
		query_mark((unsigned)i, 1);
	if (ca_pinned_has_finished(freed_at))
		return true;
	i = reserve_new(freed_at);
	if (i < 0)
		return false;
	if (driver->mark_record(driver->self, context, &marks[i].mark))
		release((unsigned)i, false);
	else
		query_mark((unsigned)i, QUERIES);
	return ca_pinned_has_finished(freed_at);
}

void
ca_pinned_marks_after_fork_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	for (unsigned i = 0; i < MARKS; i++) {
		marks[i].frees = 0;
		marks[i].is_busy = false;
	}
}
