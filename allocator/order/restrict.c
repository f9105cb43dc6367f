/* SPDX-License-Identifier: MIT */
/*
 * Falling back to finished memory only: work that is not seen may touch anything, so every freed
 * block waits for a mark over everything, and what is exposed already must end before such work
 * begins.
 */
#include "allocator/order/internal.h"

#include "config/log.h"

static void
report(unsigned reason)
{
	static const struct {
		unsigned reason;
		const char *why;
	} texts[] = {
#define X(name, text, why) { CA_REASON_##name, why },
		CA_FINISHED_ONLY_REASONS(X)
#undef X
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].reason == reason)
			ca_info("only finished memory is reused from now on: %s", texts[i].why);
}

static bool
restrict_space(struct ca_space *space, unsigned reason)
{
	struct ca_order *order = &space->order;

	if (!(reason & CA_REASONS_SEEN))
		atomic_fetch_or(&space->attention, CA_ATTENTION_ORDER);
	if (atomic_fetch_or(&order->finished_only, reason) & reason)
		return false;
	atomic_fetch_or(&order->counts->finished_only, reason);
	atomic_fetch_add(&order->counts->fallbacks, 1);
	ca_order_note_progress(order);
	return true;
}

static bool
restrict_all_locked(struct ca_heap *heap, unsigned reason)
{
	struct ca_space *space;

	if (heap->finished_only & reason)
		return false;
	heap->finished_only |= reason;
	if (reason == CA_REASON_NETWORK)
		__atomic_store_n(&heap->config.reuse_finished, true, __ATOMIC_RELAXED);
	for (space = heap->spaces; space; space = space->next)
		restrict_space(space, reason);
	return true;
}

bool
ca_order_finished_only(struct ca_heap *heap, struct ca_space *space, unsigned reason)
{
	bool first;

	ca_heap_lock(heap);
	first = space ? restrict_space(space, reason) : restrict_all_locked(heap, reason);
	if (first)
		heap->hooks.flush_exposed(heap); /* nothing unfinished is exposed from now on */
	ca_heap_unlock(heap);
	if (first)
		report(reason);
	return first;
}

static void
settle_space(struct ca_space *space)
{
	struct ca_stream_record *record;
	bool waited = false;
	unsigned i;

	for (i = 0; (record = ca_record_at(&space->order, i)); i++) {
		struct ca_user user = { &record->stream, atomic_load(&record->exposed) };

		if (ca_user_is_done(&user))
			continue;
		ca_order_wait_hard(&user);
		waited = true;
	}
	ca_heap_lock(space->heap);
	if (waited)
		CA_COUNT(space, settles);
	ca_heap_unlock(space->heap);
}

void
ca_order_settle_exposed(struct ca_heap *heap, struct ca_space *space)
{
	struct ca_space *each;

	if (space) {
		settle_space(space);
		return;
	}
	ca_heap_lock(heap);
	each = heap->spaces;
	ca_heap_unlock(heap);
	for (; each; each = each->next) /* spaces are never freed */
		settle_space(each);
}
