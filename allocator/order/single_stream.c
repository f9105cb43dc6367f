/* SPDX-License-Identifier: MIT */
/*
 * The candidates of a space, which are the streams that could submit, make and end its being quiet.
 *
 * A space that ever had one is *company* for all others until its death: graphs, batches and copies
 * of it may reach their memory, and be what their streams wait for. So with a second such space
 * there is one candidate more in each, and none is quiet, whatever streams it has. Company changes
 * under the heap's lock, where memory is handed out, too.
 */
#include "allocator/order/internal.h"

void
ca_order_candidates_change_ordered(struct ca_order *order, int change)
{
	unsigned n = atomic_fetch_add(&order->candidates, (unsigned)change) + (unsigned)change;
	struct ca_stream_record *record = NULL;
	unsigned i;

	if (n == 1)
		for (i = 0; (record = ca_record_at(order, i)); i++)
			if (!atomic_load(&record->closed))
				break;
	atomic_store(&order->only_stream, record);
}

void
ca_order_leave_quiet_ordered(struct ca_order *order)
{
	struct ca_stream_record *record;
	unsigned at;

	/* later stamps are larger than what is inexact */
	ca_order_advance(order);
	for (at = 0; (record = ca_order_next_active_ordered(order, &at)); at++) {
		ca_raise(&record->exact_after, atomic_load(&record->stream.last));
		if (!atomic_load(&record->closed))
			ca_record_arm_ordered(record);
	}
}

bool
ca_order_candidate_comes_ordered(struct ca_order *order)
{
	bool ends = atomic_load(&order->candidates) == 1;

	ca_order_candidates_change_ordered(order, 1);
	if (ends) /* now that nobody finds the space quiet any more */
		ca_order_leave_quiet_ordered(order);
	return ends;
}

bool
ca_order_other_active_locked(struct ca_space *space)
{
	struct ca_heap *heap = space->heap;

	if (space->order.had_stream)
		return false;
	space->order.had_stream = true;
	if (++heap->had_stream != 2)
		return false;
	for (space = heap->spaces; space; space = space->next) {
		ca_order_lock(&space->order);
		ca_order_candidate_comes_ordered(&space->order);
		ca_order_unlock(&space->order);
	}
	return true;
}

void
ca_order_other_inactive(struct ca_space *space)
{
	struct ca_heap *heap = space->heap;

	ca_heap_lock(heap);
	if (space->order.had_stream && --heap->had_stream == 1)
		for (struct ca_space *each = heap->spaces; each; each = each->next) {
			ca_order_lock(&each->order);
			ca_order_candidates_change_ordered(&each->order, -1);
			ca_order_unlock(&each->order);
		}
	space->order.had_stream = false;
	ca_heap_unlock(heap);
}

void
ca_order_end_quiet(struct ca_space *space)
{
	struct ca_order *order = &space->order;
	bool ends = false;

	ca_order_lock(order);
	if (!order->dead && !order->needs_exact_marks) {
		order->needs_exact_marks = true;
		ends = ca_order_candidate_comes_ordered(order);
	}
	ca_order_unlock(order);
	if (ends)
		ca_order_mark_exposed(space);
}

void
ca_order_mark_exposed_in(struct ca_space *space, bool everywhere)
{
	struct ca_heap *heap = space->heap;

	if (!everywhere) {
		ca_order_mark_exposed(space);
		return;
	}
	ca_heap_lock(heap);
	space = heap->spaces;
	ca_heap_unlock(heap);
	for (; space; space = space->next) /* spaces are never freed */
		ca_order_mark_exposed(space);
}
