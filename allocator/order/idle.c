/* SPDX-License-Identifier: MIT */
/* Is work of a device unfinished, or of a space up to a bound, and whose work was it? */
#include "allocator/order/internal.h"

bool
ca_order_is_idle(struct ca_space *space)
{
	struct ca_order *order = &space->order;
	unsigned i, n = atomic_load(&order->n_streams);

	if (atomic_load(&order->finished_only) & ~CA_REASONS_SEEN ||
	    atomic_load(&order->foreign) > atomic_load(&order->foreign_done))
		return false;
	for (i = 0; i < n; i++)
		if (order->streams[i] && ca_record_is_busy(order->streams[i]))
			return false;
	return true;
}

bool
ca_device_is_idle_locked(const struct ca_space *own)
{
	struct ca_space *space;

	for (space = own->heap->spaces; space; space = space->next)
		if (space->device == own->device && !space->dead && !ca_order_is_idle(space))
			return false;
	return true;
}

bool
ca_device_is_only_ours_locked(const struct ca_space *own)
{
	uint64_t thread = ca_order_thread();
	struct ca_space *space;
	bool ours = true;

	for (space = own->heap->spaces; ours && space; space = space->next) {
		struct ca_stream_record *record;
		unsigned i;

		if (space->device != own->device || space->dead)
			continue;
		ca_order_lock(&space->order);
		for (i = 0; ours && (record = ca_record_at(&space->order, i)); i++)
			ours = atomic_load(&record->closed) || !record->submitted ||
			       record->thread == thread;
		ca_order_unlock(&space->order);
	}
	return ours;
}

bool
ca_order_has_nothing_unseen(const struct ca_space *space, uint64_t bound)
{
	const struct ca_order *order = &space->order;

	return space->awaited >= bound || atomic_load(&order->foreign_done) >= bound ||
	       !(atomic_load(&order->finished_only) & ~CA_REASONS_SEEN);
}

bool
ca_order_has_finished(struct ca_space *space, uint64_t bound)
{
	struct ca_order *order = &space->order;
	struct ca_stream_record *record;
	unsigned i;

	if (space->dead || space->poisoned)
		return true; /* nothing runs, or nothing can be known: the driver answers */
	if (!ca_order_has_nothing_unseen(space, bound))
		return false;
	for (i = 0; (record = ca_record_at(order, i)); i++)
		if (!ca_record_has_finished(record, bound))
			return false;
	return true;
}

/* Of its work up to `bound`; or one can be recorded. */
static bool
has_mark_ordered(struct ca_stream_record *record, uint64_t bound)
{
	uint64_t last = atomic_load(&record->stream.last);

	return !atomic_load(&record->lost) &&
	       (ca_record_is_nameable_ordered(record) ||
		ca_stream_mark_find_ordered(record, last < bound ? last : bound));
}

bool
ca_order_needs_context_mark(struct ca_space *space, uint64_t bound)
{
	struct ca_order *order = &space->order;
	struct ca_stream_record *record;
	bool needs = false;
	unsigned i;

	ca_order_lock(order);
	for (i = 0; !needs && (record = ca_record_at(order, i)); i++)
		needs = !ca_record_has_finished(record, bound) && !has_mark_ordered(record, bound);
	ca_order_unlock(order);
	return needs;
}

bool
ca_order_has_mark_to_poll(struct ca_space *space, uint64_t bound)
{
	struct ca_order *order = &space->order;
	struct ca_stream_record *record;
	bool asked = false;
	unsigned i;

	ca_order_lock(order);
	for (i = 0; !asked && (record = ca_record_at(order, i)); i++)
		asked = !ca_record_has_finished(record, bound) && !atomic_load(&record->lost) &&
			ca_stream_mark_find_ordered(record, atomic_load(&record->done) + 1);
	ca_order_unlock(order);
	return asked;
}

uint64_t
ca_order_progress_to(struct ca_space *space, uint64_t bound)
{
	struct ca_stream_record *record;
	uint64_t done, sum = 0;
	unsigned i;

	for (i = 0; (record = ca_record_at(&space->order, i)); i++) {
		done = atomic_load(&record->done);
		sum += done < bound ? done : bound;
	}
	return sum;
}
