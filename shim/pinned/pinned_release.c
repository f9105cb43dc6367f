/* SPDX-License-Identifier: MIT */
/*
 * Freed memory goes back to the driver by its own free, which may wait for all that the context was
 * given. In the program's own free that is as natively. Elsewhere a kernel might wait for what the
 * calling thread does next: so a mark of all contexts is asked first, again and again, and while
 * something captures nothing goes back. What goes back is in a thread's hand meanwhile, and not in
 * the records: another thread that needs memory waits for it.
 */
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/util/yield.h"
#include "shim/bind/scope.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/pools.h"
#include "shim/pinned/internal.h"
#include "shim/state/process.h"
#include "shim/track/captures.h"
#include "shim/track/contexts.h"

enum { PAUSE_NS = 50 * 1000 };
#define TRIM_PATIENCE_NS ((uint64_t)1000000)

static bool
free_in_context(const struct ca_real *real, const struct ca_pinned_record *record)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool pushed, exchanged;
	CUresult rc;

	if (ca_context_push(real, record->kind.context, &pushed))
		return false;
	exchanged = ca_capture_exchange_mode(real, &mode);
	rc = CA_INSIDE(real->cuMemFreeHost((void *)(uintptr_t)record->by_address.key)); // NOLINT
	if (exchanged)
		ca_capture_restore_mode(real, mode);
	ca_context_pop(real, pushed);
	return rc == CUDA_SUCCESS;
}

/* Memory of a context that is dead went with it. */
static bool
free_one(const struct ca_real *real, const struct ca_pinned_record *record)
{
	struct ca_context *context = record->kind.context;
	bool freed;

	while (!ca_context_enter(context)) {
		if (atomic_load(&context->dead))
			return false;
		ca_yield();
	}
	freed = free_in_context(real, record);
	ca_context_leave(context);
	return freed;
}

static uint64_t
free_down_to(uint64_t keep_bytes)
{
	const struct ca_real *real = ca_real();
	struct ca_list hand;
	uint64_t bytes = 0;

	if (!real || !real->cuMemFreeHost)
		return 0;
	ca_list_init(&hand);
	ca_pinned_take_out(keep_bytes, &hand);
	while (!ca_list_empty(&hand)) {
		struct ca_pinned_record *record =
			CA_CONTAINER_OF(hand.next, struct ca_pinned_record, by_age);

		ca_list_remove(&record->by_age);
		if (free_one(real, record))
			bytes += record->kind.bytes;
		ca_pinned_recycle(record);
	}
	return bytes;
}

void
ca_pinned_shrink(void)
{
	CA_KEEP_ERRNO;

	if (ca_pinned_cached() > ca_pinned_cap())
		(void)free_down_to(ca_pinned_cap());
}

/* 0: all that was submitted before has finished, or cannot be asked about; -EAGAIN. */
static int
query_all(struct ca_context *context, ca_mark *mark)
{
	const struct ca_driver *driver = ca_driver_table();
	int rc = 0;

	if (*mark == CA_MARK_NONE)
		rc = driver->mark_record(driver->self, context, mark);
	if (rc == -ENOTSUP)
		return 0;
	if (!rc)
		rc = driver->mark_query(driver->self, *mark);
	return rc ? -EAGAIN : 0;
}

uint64_t
ca_pinned_clock(void)
{
	const struct ca_driver *driver = ca_driver_table();

	return driver->clock_ns(driver->self);
}

static void
pause_for(long ns)
{
	const struct timespec pause = { .tv_nsec = ns };

	/* not nanosleep(): that is a cancellation point */
	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
}

static bool
await_all(struct ca_context *context, uint64_t patience_ns)
{
	const struct ca_driver *driver = ca_driver_table();
	uint64_t begin = ca_pinned_clock();
	ca_mark mark = CA_MARK_NONE;
	int rc;

	while ((rc = query_all(context, &mark)) && !ca_capture_is_near() &&
	       ca_pinned_clock() - begin < patience_ns)
		pause_for(PAUSE_NS);
	if (mark != CA_MARK_NONE)
		driver->mark_drop(driver->self, mark);
	return !rc;
}

uint64_t
ca_pinned_release(uint64_t patience_ns)
{
	const struct ca_real *real = ca_real();
	struct ca_context *context;
	CA_KEEP_ERRNO;

	if (!real || !atomic_load(&ca_pinned_on) || !ca_pinned_cached() || ca_capture_is_near())
		return 0;
	context = ca_context_find(ca_context_current(real));
	return context && await_all(context, patience_ns) ? free_down_to(0) : 0;
}

bool
ca_pinned_await_others(uint64_t given, uint64_t until_ns)
{
	CA_KEEP_ERRNO;

	while (ca_pinned_given() == given && ca_pinned_others_give() && !ca_capture_is_near() &&
	       ca_pinned_clock() < until_ns)
		pause_for(PAUSE_NS);
	return ca_pinned_given() != given && ca_pinned_clock() < until_ns;
}

uint64_t
ca_pinned_trim(void *self, unsigned device, uint64_t keep_bytes, bool graphs)
{
	uint64_t given = ca_pools_trim(self, device, keep_bytes, graphs), bytes = 0;

	if (!keep_bytes)
		bytes = ca_pinned_release(graphs ? TRIM_PATIENCE_NS : 0);
	/* host memory counts only where any memory may help */
	return given + (graphs ? bytes : 0);
}
