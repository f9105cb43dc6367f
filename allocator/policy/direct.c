/* SPDX-License-Identifier: MIT */
/*
 * The usual way of an allocation that a magazine does not serve, in a space where nothing waits but
 * for the one stream. It comes to the same as alloc.c, but for what other threads' magazines keep,
 * which is left to them as long as anything else fits. It counts in the thread's magazine, as a hit
 * there would: so nothing is added to the device's sums.
 */
#include "allocator/policy/internal.h"

#include "allocator/core/lock.h"
#include "allocator/deferred/deferred.h"
#include "allocator/tcache/fast.h"
#include "config/branch.h"
#include "config/mutant.h"

/* Nothing is to be done before the search. */
static inline bool
is_direct(const struct ca_space *space)
{
	const struct ca_magazine *magazine = ca_own.magazine;

	return magazine->serial != magazine->serials_end &&
	       !(atomic_load_explicit(&space->attention, memory_order_relaxed) &
		 CA_ATTENTION_ALWAYS) &&
	       !ca_alloc_in_debt && !CA_EXPOSURE_FORCED && !ca_budget_may_tidy(space->device);
}

/* The block is clean, or the one stream of a quiet space may use it, and nobody else. */
static bool
is_simple(const struct ca_block *block)
{
	return !block->segment->captured &&
	       (block->state == CA_BLOCK_FREE ||
		(block->state == CA_BLOCK_STREAM_HELD &&
		 (CA_MUTANT(MISS_OF_SEVERAL) || !ca_block_multi(block))));
}

/* The block leaves its place for the program. */
static inline void
hand_out(struct ca_space *space, struct ca_block *block, uint64_t size)
{
	struct ca_magazine *magazine = ca_own.magazine;
	bool used = block->state == CA_BLOCK_STREAM_HELD;

	ca_alloc_note_backpressure_locked(space, block);
	if (used && !ca_user_is_done(&block->user) && !CA_MUTANT(MISS_UNEXPOSED))
		ca_order_expose(&space->order, &block->user);
	else
		block->user.stream = NULL;
	ca_counts_take(&magazine->counts, block->bytes, used, block->user.stream, size);
	if (ca_magazine_is_over(magazine, 0))
		ca_magazine_count_held(magazine);
	block->birth = ca_order_birth(&space->order);
	ca_alloc_hand_out_locked(block, size, magazine->serial++, magazine->thread,
				 ca_block_go_out_locked, ca_alloc_is_kept(block));
	if (magazine->shared)
		ca_leased_want_locked(block);
}

/* Something waits for others than that stream. */
static inline bool
is_waiting(struct ca_space *space, const struct ca_stream_record *quiet)
{
	if (quiet && atomic_load(&space->order.n_streams) == 1 && ca_list_empty(&space->sets))
		return space->mark_held_blocks;
	return ca_held_is_waiting_locked(space);
}

/* False: nothing was done but a search, and the magazine's counts are not merged. */
static inline bool
take_directly(struct ca_space *space, uint64_t size, uint64_t bytes, uint64_t *ret_address)
{
	const struct ca_stream_record *quiet;
	struct ca_block *block;

	if (!is_direct(space))
		return false;
	quiet = ca_held_quiet_locked(space);
	block = ca_search_own_locked(space, quiet, bytes);
	if (!block || !is_simple(block) ||
	    (is_waiting(space, quiet) && !ca_pool_is_whole(block, bytes)))
		return false;
	block = ca_pool_cut_locked(block, bytes);
	if (!block)
		return false;
	hand_out(space, block, size);
	*ret_address = block->address;
	return true;
}

int
ca_alloc_rest(struct ca_space *space, uint64_t size, uint64_t *ret_address)
{
	struct ca_heap *heap = space->heap;
	uint64_t bytes = ca_round_up(size, CA_GRAIN);
	bool leased;

	/* the calling thread's magazine is for another space, or sizes have rules of their own */
	if (__builtin_expect(ca_own.quick_space != space->id || size - 1 >= CA_QUICK_MAX, 0))
		return ca_alloc_otherwise(space, size, ret_address);
	leased = ca_own.shelf->lease && bytes < CA_ALIGNED_MIN && !ca_alloc_in_debt &&
		 !CA_EXPOSURE_FORCED &&
		 (CA_MUTANT(LEASED_IN_CAPTURE) || !heap->driver.capturing(heap->driver.self));
	if (leased && ca_leased_take(space, size, bytes, ret_address))
		return 0;
	CA_HEAP_LOCKED_LEASED(heap);
	heap->requests++;
	if (__builtin_expect(heap->driver.capturing(heap->driver.self), 0) &&
	    !CA_MUTANT(CAPTURE_UNASKED))
		return ca_alloc_otherwise_locked(space, size, bytes, true, ret_address);
	/* a signal handler, or a callback of the driver's, may have left another space's turn */
	if (__builtin_expect(ca_own.quick_space != space->id, 0))
		return ca_alloc_otherwise_locked(space, size, bytes, false, ret_address);
	if (heap->leases && !ca_heap_has_contention_locked(heap))
		ca_leases_end_locked(heap);
	else if (leased && ca_leased_take_locked(space, size, bytes, ret_address))
		return 0;
	if (take_directly(space, size, bytes, ret_address))
		return 0;
	return ca_alloc_otherwise_locked(space, size, bytes, false, ret_address);
}
