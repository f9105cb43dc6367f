/* SPDX-License-Identifier: MIT */
/*
 * Exposure: memory handed out before its users have finished with it.
 *
 * Later submissions to other streams must come after each of those users (guard.c): each is exposed
 * for itself, so that it does not matter who else waits for whom. A wait that one user's stream
 * made makes another user cheap to guard, never needless to expose. In a quiet space there is no
 * other stream, so nobody needs to look: `exposed_count` moves only where somebody must, and the
 * stream is watched for a pause of the host (host_pause.c). A stream that is opened meanwhile, here
 * or as the first of another space, raises `candidates` first and looks for what is exposed
 * afterwards; here `exposed` is raised first and `candidates` read afterwards: one of the two sees
 * the other.
 *
 * A guard waits for a mark of the user that covers nothing submitted after the free; otherwise
 * work that the program meant to run at the same time could wait for itself. So memory without such
 * an exact mark is exposed only where no guard can follow. A mark behind a wait that the program
 * made after the free would cover several users at once, but also what was submitted in between;
 * therefore users keep the stamps of the free.
 */
#include "allocator/order/internal.h"

#include "config/branch.h"

static bool
is_exact_ordered(struct ca_stream_record *record, uint64_t stamp)
{
	if (stamp <= atomic_load(&record->exact_after))
		return false;
	if (ca_stream_mark_find_ordered(record, stamp)) {
		CA_REACHED(EXPOSED_MARKED);
		return true;
	}
	/* armed and not yet marked: nothing was submitted since the free. A per-thread stream can
	 * be marked by its thread only, which may never submit again. */
	if (!atomic_load(&record->stream.armed) || atomic_load(&record->closed) ||
	    record->kind == CA_STREAM_PER_THREAD) {
		CA_REACHED(EXPOSED_PASSED_OVER);
		return false;
	}
	CA_REACHED(EXPOSED_ARMED);
	return true;
}

/* Every stream but `record` is submitted to by this thread only: no submission that goes on at the
 * same time as a free can be what `record` waits for. A stream that nobody has submitted to yet may
 * be meant for another thread. */
static bool
others_are_ours_ordered(struct ca_order *order, struct ca_stream_record *record)
{
	uint64_t thread = ca_order_thread();
	struct ca_stream_record *other;
	unsigned i;

	for (i = 0; !CA_EXPOSURE_FORCED && (other = ca_record_at(order, i)); i++)
		if (other != record && !atomic_load(&other->closed) &&
		    (other->thread != thread || !other->submitted))
			return false;
	return true;
}

static bool
may_expose_ordered(struct ca_order *order, struct ca_stream_record *record, uint64_t stamp)
{
	if (ca_order_is_quiet_ordered(order) && !atomic_load(&record->closed))
		return true;
	if (record->submitting || atomic_load(&record->hazard) > atomic_load(&record->done)) {
		CA_REACHED(EXPOSED_HAZARD);
		return false;
	}
	if (record->kind == CA_STREAM_PER_THREAD && record->thread != ca_order_thread())
		return false;
	return is_exact_ordered(record, stamp) && others_are_ours_ordered(order, record);
}

bool
ca_order_is_ours(struct ca_order *order)
{
	bool ours;

	ca_order_lock(order);
	ours = others_are_ours_ordered(order, NULL);
	ca_order_unlock(order);
	return ours;
}

bool
ca_order_others_submit(struct ca_order *order)
{
	uint64_t thread = ca_order_thread();
	struct ca_stream_record *record;
	bool others = false;
	unsigned at;

	ca_order_lock(order);
	for (at = 0; !others && (record = ca_order_next_active_ordered(order, &at)); at++)
		others = record->submitted && record->thread != thread;
	ca_order_unlock(order);
	return others;
}

bool
ca_order_may_capture(const struct ca_heap *heap)
{
	return heap->driver.capturing(heap->driver.self);
}

static bool
may_expose_one(struct ca_order *order, const struct ca_user *user)
{
	struct ca_stream_record *record = ca_record(user->stream);
	bool result;

	if (atomic_load(&record->lost))
		return false;
	if (atomic_load(&order->only_stream) == record && !atomic_load(&order->hazards))
		return true; /* quiet */
	ca_order_lock(order);
	result = may_expose_ordered(order, record, user->stamp);
	ca_order_unlock(order);
	return result;
}

bool
ca_order_may_expose(struct ca_order *order, const struct ca_users *users)
{
	const struct ca_heap *heap = ca_order_space(order)->heap;
	unsigned i;

	if (users->context || atomic_load(&order->finished_only) ||
	    __atomic_load_n(&heap->config.reuse_finished, __ATOMIC_RELAXED))
		return false;
	if (ca_order_may_capture(heap)) {
		CA_REACHED(EXPOSED_IN_CAPTURE);
		return false;
	}
	if (atomic_load(&order->candidates) > 1 && heap->driver.orders &&
	    !heap->driver.orders(heap->driver.self, ca_order_space(order)->context))
		return false;
	for (i = 0; i < users->n; i++)
		if (!ca_user_is_done(&users->user[i]) && !may_expose_one(order, &users->user[i]))
			return false;
	return true;
}

/* Where the space is not quiet, or was when it was asked for, and is not any more. */
static __attribute__((noinline)) void
expose_to_all(struct ca_order *order, struct ca_stream_record *record, uint64_t stamp)
{
	ca_order_lock(order);
	if (!ca_stream_mark_find_ordered(record, stamp) && !atomic_load(&record->closed) &&
	    !atomic_load(&record->lost))
		ca_record_arm_ordered(record);
	ca_order_unlock(order);
	atomic_fetch_add(&order->words.exposed_count, 1);
}

/* Never 0, and never the same again. */
static uint64_t
reuse_number(void)
{
	static __thread uint64_t exposures __attribute__((tls_model("initial-exec")));

	return ca_order_thread() << 40 | ++exposures;
}

void
ca_record_note_reuse(struct ca_stream_record *record)
{
	uint64_t was = atomic_load(&record->reused_unordered), number = reuse_number();

	while (!atomic_compare_exchange_weak(&record->reused_unordered, &was,
					     number | (was & CA_REUSED_TOLD)))
		;
}

void
ca_order_expose(struct ca_order *order, const struct ca_user *user)
{
	struct ca_stream_record *record = ca_record(user->stream);

	ca_record_note_reuse(record);
	ca_raise(&record->exposed, user->stamp);
	if (atomic_load(&order->candidates) > 1 || atomic_load(&record->closed))
		expose_to_all(order, record, user->stamp);
	else if (__builtin_expect(!(atomic_load(&record->stream.seen) & CA_WATCHED), 0))
		ca_host_pause_track(&record->stream);
}

/* ---- programmatic launches */

static __thread struct ca_stream *reused_stream __attribute__((tls_model("initial-exec")));
static __thread uint64_t reused_seen __attribute__((tls_model("initial-exec")));

/* A stream that the driver orders with this one was handed stream-ordered memory, and still works:
 * natively the allocation stands in front of the launch. */
static bool
follows_allocation(struct ca_stream_record *record)
{
	struct ca_stream_record *other;
	unsigned i;

	if (!atomic_load(&record->space->heap->told))
		return false;
	for (i = 0; (other = ca_record_at(ca_record_order(record), i)); i++)
		if (ca_record_is_ordered_by_driver(record, other) &&
		    atomic_load(&other->reused_unordered) & CA_REUSED_TOLD &&
		    ca_record_is_busy(other))
			return true;
	return false;
}

bool
ca_submit_must_be_serial(struct ca_stream *stream)
{
	struct ca_stream_record *record = ca_record(stream);

	reused_stream = stream;
	reused_seen = atomic_load(&record->reused_unordered);
	return reused_seen || follows_allocation(record);
}

void
ca_submit_serial(struct ca_stream *stream)
{
	if (reused_stream == stream && reused_seen)
		atomic_compare_exchange_strong(&ca_record(stream)->reused_unordered, &reused_seen,
					       0);
}
