/* SPDX-License-Identifier: MIT */
/*
 * The guard: a submission to one stream comes after the unfinished work of the others whose memory
 * was handed out.
 *
 * `exposed_count` is read before looking and published as `seen` after the last wait has been
 * inserted: a thread that finds `seen` up to date may submit at once. A thread that looks meanwhile
 * inserts the same waits once more, which is harmless. Where a wait cannot be inserted the host
 * waits: for the exact mark, for the stream, for the context, whichever works first. If none does,
 * because the driver answers with errors, the space is poisoned and the submission goes on, for the
 * driver to refuse. If none does because of a capture (the shim's waits work in any but one on the
 * very stream that is to be waited for), nothing is published: every submission tries again.
 */
#include "allocator/order/internal.h"

#include <errno.h>

#include "config/branch.h"
#include "config/mutant.h"

/* ---- waiting on the host */

static void
count_host_sync(struct ca_space *space)
{
	ca_heap_lock(space->heap);
	CA_COUNT(space, host_syncs);
	ca_heap_unlock(space->heap);
}

static int
wait_for_mark(const struct ca_user *user)
{
	struct ca_stream_record *record = ca_record(user->stream);
	const struct ca_driver *driver = &record->space->heap->driver;
	struct ca_stream_mark *point = ca_stream_mark_get(record, user->stamp);
	int r;

	if (!point)
		return -EAGAIN;
	r = driver->mark_wait(driver->self, point->mark);
	CA_REACHED(GUARD_HOST_MARK);
	if (!r)
		ca_order_finished(user->stream, point->bound);
	ca_stream_mark_put(record, point);
	return r;
}

static int
wait_for_stream(const struct ca_user *user)
{
	struct ca_stream_record *record = ca_record(user->stream);
	const struct ca_driver *driver = &record->space->heap->driver;
	uint64_t bound = ca_order_bound(user->stream);
	void *handle;
	int r;

	if (!ca_record_pin(record, &handle))
		return -ENOTSUP;
	CA_REACHED(GUARD_HOST_STREAM);
	r = driver->stream_synchronize(driver->self, record->space->context, handle);
	ca_record_unpin(record);
	if (!r)
		ca_order_finished(user->stream, bound);
	return r;
}

static int
wait_for_context(const struct ca_user *user)
{
	struct ca_space *space = ca_record(user->stream)->space;
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t bound = ca_order_space_bound(space);
	int r = driver->context_synchronize(driver->self, space->context);

	CA_REACHED(GUARD_HOST_CONTEXT);
	if (!r)
		ca_order_space_finished(space, bound, false);
	return r;
}

int
ca_order_wait_hard(const struct ca_user *user)
{
	struct ca_space *space = ca_record(user->stream)->space;
	int r;

	if (ca_user_is_done(user))
		return 0;
	count_host_sync(space);
	r = wait_for_mark(user);
	if (r)
		r = wait_for_stream(user);
	if (r)
		r = wait_for_context(user);
	if (ca_user_is_done(user))
		return 0; /* the space may have died, too */
	if (r && r != -EBUSY) {
		ca_heap_lock(space->heap);
		space->heap->hooks.poison(space);
		ca_heap_unlock(space->heap);
	}
	return r;
}

/* ---- waiting on the device */

static struct ca_stream_mark *
newest_get(struct ca_stream_record *record)
{
	struct ca_order *order = ca_record_order(record);
	struct ca_stream_mark *point = NULL;

	ca_stream_mark_record(record);
	ca_order_lock(order);
	if (!ca_list_empty(&record->points)) {
		point = CA_CONTAINER_OF(record->points.prev, struct ca_stream_mark, link);
		point->references++;
	}
	ca_order_unlock(order);
	return point;
}

/* The exact point, or one recorded now, which may cover more than it should: only for what was
 * handed out while its stream was alone. */
static struct ca_stream_mark *
point_for(const struct ca_user *user)
{
	struct ca_stream_record *record = ca_record(user->stream);
	struct ca_stream_mark *point;

	if (CA_MUTANT(MARK_AT_GUARD))
		return newest_get(record);
	point = ca_stream_mark_get(record, user->stamp);
	if (!point && !ca_user_is_done(user) && !ca_stream_mark_record(record)) {
		CA_REACHED(GUARD_MARK_MADE_LATE);
		point = ca_stream_mark_get(record, user->stamp);
	}
	return point;
}

static int
wait_on_device(struct ca_stream_record *record, struct ca_stream *before,
	       struct ca_stream_mark *point)
{
	struct ca_space *space = record->space;
	const struct ca_driver *driver = &space->heap->driver;
	int r = driver->stream_wait(driver->self, space->context, record->handle, point->mark);

	if (r)
		return r;
	CA_REACHED(GUARD_WAITED);
	atomic_fetch_add(&space->order.counts->waits, 1);
	ca_order_lock(&space->order);
	ca_clock_update_ordered(record, before, point->bound);
	ca_order_unlock(&space->order);
	return 0;
}

/* 0: whatever is submitted to the stream from now on comes after `user`. */
static int
order_after(struct ca_stream_record *record, const struct ca_user *user)
{
	struct ca_stream_mark *point = point_for(user);
	int r = -EAGAIN;

	if (point) {
		r = wait_on_device(record, user->stream, point);
		ca_stream_mark_put(ca_record(user->stream), point);
	}
	return r ? ca_order_wait_hard(user) : 0;
}

/* The stream is the caller's, which is submitting to it: no handle is pinned. */
int
ca_told_guard(struct ca_stream *stream, const struct ca_user *user)
{
	struct ca_stream_record *record = ca_record(user->stream);
	struct ca_stream_mark *point;
	int r;

	if (ca_user_is_done(user))
		return 0;
	if (ca_stream_mark_is_missing(record, user->stamp, &r) && !r)
		r = ca_stream_mark_record(record);
	point = r ? NULL : ca_stream_mark_get(record, user->stamp);
	if (!point)
		return ca_user_is_done(user) ? 0 : -EAGAIN;
	r = CA_MUTANT(TOLD_WAIT_SKIPPED) ? 0
					 : wait_on_device(ca_record(stream), user->stream, point);
	if (!r) /* the stream is busy as long as it waits */
		ca_submit_end(stream);
	ca_stream_mark_put(record, point);
	return ca_user_is_done(user) ? 0 : r;
}

/* ---- who is waited for */

bool
ca_record_is_ordered_by_driver(const struct ca_stream_record *a, const struct ca_stream_record *b)
{
	if (a->space != b->space || atomic_load(&a->closed) || atomic_load(&b->closed))
		return false;
	if (a->kind == CA_STREAM_NONBLOCKING || b->kind == CA_STREAM_NONBLOCKING)
		return false;
	return a->kind == CA_STREAM_LEGACY || b->kind == CA_STREAM_LEGACY;
}

/* The stream, or what it comes after by the program's events, has work that somebody else ends. */
static bool
is_after_hazard_ordered(const struct ca_stream_record *record, const struct ca_stream_record *other)
{
	return ca_record_has_hazard(other) &&
	       (other == record || ca_record_is_ordered_by_driver(record, other) ||
		ca_clock_includes_ordered(record, &other->stream, atomic_load(&other->done) + 1));
}

bool
ca_record_is_held_up(struct ca_stream_record *record)
{
	struct ca_order *order = ca_record_order(record);
	struct ca_stream_record *other;
	bool held_up = false;
	unsigned i;

	ca_order_lock(order);
	for (i = 0; !held_up && i < CA_CLOCK_PARTS; i++) /* of other spaces */
		held_up = record->clock[i].stream &&
			  is_after_hazard_ordered(record, ca_record(record->clock[i].stream));
	for (i = 0; !held_up && atomic_load(&order->hazards) &&
		    (other = ca_order_next_active_ordered(order, &i));
	     i++)
		held_up = is_after_hazard_ordered(record, other);
	ca_order_unlock(order);
	return held_up;
}

/* The work that the free takes effect behind need not be known to be unfinished: the stream may
 * only wait. */
void
ca_order_free_in(struct ca_stream *stream)
{
	struct ca_stream_record *record = ca_record(stream), *other;
	struct ca_order *order = ca_record_order(record);
	uint64_t epoch = atomic_load(&stream->words->epoch);
	unsigned i;

	ca_submit_stamp(stream, epoch);
	for (i = 0; (other = ca_record_at(order, i)); i++) {
		if (other == record || !ca_record_is_ordered_by_driver(record, other))
			continue;
		ca_submit_stamp(&other->stream, epoch);
		if (atomic_load(&other->closed)) /* meanwhile: it was closed as one without work */
			ca_record_set_lost(other);
	}
}

/* Must the next submission to the stream be ordered behind the user by us? The stream's lock. */
static bool
is_needed_ordered(struct ca_stream_record *record, const struct ca_user *user)
{
	if (user->stream == &record->stream || ca_user_is_done(user)) {
		CA_REACHED(GUARD_OWN);
		return false;
	}
	if (ca_record_is_ordered_by_driver(record, ca_record(user->stream))) {
		CA_REACHED(GUARD_BY_DRIVER);
		return false;
	}
	if (ca_clock_includes_ordered(record, user->stream, user->stamp)) {
		CA_REACHED(GUARD_KNOWN);
		return false;
	}
	return true;
}

static bool
is_needed(struct ca_stream_record *record, const struct ca_user *user)
{
	struct ca_order *order = ca_record_order(record);
	bool needed;

	ca_order_lock(order);
	needed = is_needed_ordered(record, user);
	ca_order_unlock(order);
	return needed;
}

/* Does handing `users` to `record` make the stream wait that it would not come to otherwise? */
static bool
is_held_ordered(struct ca_stream_record *stream, struct ca_stream_record *record,
		const struct ca_users *users)
{
	unsigned i;

	if (stream == record ||
	    ca_clock_includes_ordered(record, &stream->stream, atomic_load(&stream->stream.last)))
		return false;
	for (i = 0; i < users->n; i++)
		if (is_needed_ordered(stream, &users->user[i]))
			return true;
	return false;
}

bool
ca_order_exposes_freely(struct ca_stream_record *record, const struct ca_users *users)
{
	struct ca_order *order = ca_record_order(record);
	struct ca_stream_record *other;
	bool freely = true;
	unsigned i;

	if (CA_EXPOSURE_FORCED)
		return true;
	ca_order_lock(order);
	for (i = 0; freely && (other = ca_record_at(order, i)); i++)
		freely = atomic_load(&other->closed) || !is_held_ordered(other, record, users);
	ca_order_unlock(order);
	return freely;
}

/* The next stream of `order`, from index *at on, with something exposed. */
static bool
next_exposed(struct ca_order *order, unsigned *at, struct ca_user *ret_user)
{
	struct ca_stream_record *record;

	ca_order_lock(order);
	for (; (record = ca_order_next_active_ordered(order, at)); ++*at) {
		uint64_t exposed = atomic_load(&record->exposed);

		if (exposed > atomic_load(&record->done)) {
			*ret_user = (struct ca_user){ &record->stream, exposed };
			break;
		}
	}
	ca_order_unlock(order);
	return record != NULL;
}

/* True if some submission to the stream has to wait for something exposed in `order`. */
static bool
is_any_needed(struct ca_stream_record *record, struct ca_order *order)
{
	struct ca_user user;
	unsigned at;

	for (at = 0; next_exposed(order, &at, &user); at++)
		if (is_needed(record, &user))
			return true;
	return false;
}

/* 0, or the last error. Nobody promises that a programmatic launch waits for the kernel on the
 * other side of the legacy stream's barrier: the next one has to. */
static int
guard_all(struct ca_stream_record *record, struct ca_order *order)
{
	unsigned at, waits = 0;
	struct ca_user user;
	int r = 0;

	for (at = 0; next_exposed(order, &at, &user); at++) {
		if (ca_record_is_ordered_by_driver(record, ca_record(user.stream)) &&
		    !CA_MUTANT(BARRIER_TRUSTED))
			ca_record_note_reuse(record);
		if (is_needed(record, &user)) {
			int behind = order_after(record, &user);

			if (waits++)
				CA_REACHED(GUARD_TWO_USERS);
			if (behind)
				r = behind;
		}
	}
	return r;
}

/* True if the users of what is touched are known, and waited for. */
static bool
guard_touched(struct ca_stream_record *record, const struct ca_touch *touch)
{
	struct ca_users users = { 0 };
	unsigned i;

	if (touch->n)
		record->space->heap->hooks.users_of_range(record->space, touch, &users);
	if (users.context) {
		CA_REACHED(GUARD_NAMED_IN_VAIN);
		return false;
	}
	CA_REACHED(GUARD_NAMED);
	for (i = 0; i < users.n; i++)
		if (is_needed(record, &users.user[i]))
			order_after(record, &users.user[i]);
	return true;
}

static bool
is_guard_off(struct ca_stream_record *record)
{
	return CA_MUTANT(GUARD_OFF) ||
	       (CA_MUTANT(GUARD_OFF_IN_CAPTURE) &&
		record->space->heap->driver.capturing(record->space->heap->driver.self));
}

/* The flags stay as they are. */
static void
publish_seen(struct ca_stream *stream, uint64_t exposures)
{
	uint64_t was = atomic_load(&stream->seen);

	while ((was & ~CA_SEEN_FLAGS) < exposures)
		if (atomic_compare_exchange_weak(&stream->seen, &was,
						 exposures | (was & CA_SEEN_FLAGS)))
			return;
}

/* No mark tells what is handed out from what is submitted next, which may wait for its next user:
 * now the host can wait for it, unless such work stands behind it already. */
static CA_APART void
mark_armed(struct ca_stream_record *record)
{
	uint64_t exact_after = atomic_load(&record->exact_after);
	int r = ca_stream_mark_record_if_due(record);
	struct ca_user user = { &record->stream, atomic_load(&record->exposed) };

	if (r && r != -ENODEV && r != -EBUSY && user.stamp > exact_after &&
	    ca_record_is_unmarked(record))
		ca_order_wait_hard(&user);
}

/* The next armed stream from index *at on that the driver orders with the record's. */
static struct ca_stream_record *
next_armed(struct ca_stream_record *record, unsigned *at)
{
	struct ca_stream_record *other;

	for (; (other = ca_record_at(ca_record_order(record), *at)); ++*at)
		if (other != record && atomic_load(&other->stream.armed) &&
		    ca_record_is_ordered_by_driver(record, other))
			break;
	return other;
}

/* Not before the marks are there: another thread may submit meanwhile. Streams that this one cannot
 * mark do not count. */
static void
clear_ordered_armed(struct ca_stream_record *record)
{
	struct ca_order *order = ca_record_order(record);
	struct ca_stream_record *other;
	unsigned at;

	ca_order_lock(order); /* as whoever arms a stream has */
	for (at = 0; (other = next_armed(record, &at)); at++)
		if (ca_record_is_nameable_ordered(other))
			break;
	if (!other)
		atomic_fetch_and(&record->stream.seen, ~CA_ORDERED_ARMED);
	ca_order_unlock(order);
}

void
ca_record_mark_ordered(struct ca_stream_record *record)
{
	struct ca_stream_record *other;
	unsigned at;

	if (atomic_load(&record->kind) == CA_STREAM_NONBLOCKING)
		return;
	for (at = 0; (other = next_armed(record, &at)); at++)
		mark_armed(other);
	if (atomic_load(&record->stream.seen) & CA_ORDERED_ARMED)
		clear_ordered_armed(record);
}

void
ca_submit_guard(struct ca_stream *stream, const struct ca_touch *touch)
{
	struct ca_stream_record *record = ca_record(stream);
	struct ca_order *order = ca_record_order(record);
	uint64_t exposures;

	if (atomic_load(&stream->seen) & CA_ORDERED_ARMED)
		ca_record_mark_ordered(record);
	if (atomic_load(&stream->armed) && !CA_MUTANT(MARK_AT_GUARD)) {
		CA_REACHED(GUARD_ARMED);
		mark_armed(record);
	}
	if (atomic_load(&stream->seen) & CA_WATCHED)
		ca_host_pause_look(record);
	exposures = atomic_load(&stream->words->exposed_count);
	if (exposures == (atomic_load(&stream->seen) & ~CA_SEEN_FLAGS)) {
		CA_REACHED(GUARD_UP_TO_DATE);
		return;
	}
	CA_REACHED(GUARD_RAN);
	if (CA_MUTANT(SEEN_BEFORE_WAIT))
		publish_seen(stream, exposures);
	if (touch && is_any_needed(record, order) && guard_touched(record, touch))
		return;
	if (is_guard_off(record) || !guard_all(record, order))
		publish_seen(stream, exposures);
}

void
ca_submit_guard_other(struct ca_stream *stream, struct ca_space *other,
		      const struct ca_touch *touch)
{
	struct ca_stream_record *record = ca_record(stream);

	if (other == record->space || is_guard_off(record) || !is_any_needed(record, &other->order))
		return;
	CA_REACHED(GUARD_OTHER_SPACE);
	if (!touch || !guard_touched(record, touch))
		guard_all(record, &other->order);
}
