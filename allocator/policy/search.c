/* SPDX-License-Identifier: MIT */
/*
 * The search for a free block: best fit of what nobody uses any more, and, in a quiet space, of
 * what its one stream owns. Unfinished memory of other streams: search_early.c.
 */
#include "allocator/policy/internal.h"

#include "allocator/deferred/deferred.h"
#include "allocator/tcache/tcache.h"

/* A whole segment is at most an eighth larger than a request in a capture. (400,000 operations of
 * tests/stress/order, three threads that capture all the time, 261 MB in use at most: 0.75 GB are
 * reserved; with new memory only 8.3 GB.) */
enum { WHOLE_SHARE = 8 };

/* A block that is not cut, or is of the small pool, is nothing that the budget would keep. */
static inline struct ca_block *
best(struct ca_space *space, const struct ca_pool *pool, uint64_t bytes)
{
	struct ca_block *block = ca_pool_find_locked(space->heap, pool, bytes);

	if (!block || pool->small || block->bytes - bytes <= CA_SMALL_MAX)
		return block;
	return ca_budget_choose_locked(space, block, bytes);
}

struct ca_block *
ca_search_best_locked(struct ca_space *space, const struct ca_pool *pool, uint64_t bytes)
{
	return best(space, pool, bytes);
}

/* A block of the quiet space's stream is as good as FREE: but for what others still use, streams
 * that are gone. */
static struct ca_block *
if_quiet(struct ca_space *space, struct ca_block *block)
{
	const struct ca_multi_users *multi = block ? block->places->multi : NULL;

	return multi && !ca_order_may_expose(&space->order, &multi->users) ? NULL : block;
}

/* `quiet`: ca_search_quiet_locked. */
static inline struct ca_block *
find_settled(struct ca_space *space, const struct ca_stream_record *quiet, uint64_t bytes)
{
	const bool large = bytes > CA_SMALL_MAX;
	struct ca_block *clean = best(space, &space->pools[large], bytes);

	if (!quiet || !quiet->pools || (clean && clean->bytes == bytes))
		return clean;
	return ca_search_better(clean, if_quiet(space, best(space, &quiet->pools[large], bytes)));
}

/* Some of what has finished is settled, then more until a block fits. */
static __attribute__((noinline)) struct ca_block *
find_unsettled(struct ca_space *space, const struct ca_stream_record *quiet, uint64_t bytes)
{
	struct ca_block *block;
	bool settled;

	do {
		settled = ca_held_settle_some_locked(space);
		block = find_settled(space, quiet, bytes);
	} while (!block && settled);
	return block;
}

static struct ca_block *
find(struct ca_space *space, const struct ca_stream_record *quiet, uint64_t bytes)
{
	if (space->dead || space->poisoned)
		return NULL;
	if (ca_held_has_progressed(space))
		return find_unsettled(space, quiet, bytes);
	return find_settled(space, quiet, bytes);
}

struct ca_block *
ca_search_whole_locked(struct ca_space *space, uint64_t segment_bytes)
{
	struct ca_index_node *node;
	struct ca_block *block;

	if (space->dead || space->poisoned)
		return NULL;
	ca_magazines_clear_locked(space);
	if (ca_held_has_progressed(space))
		ca_held_settle_locked(space);
	node = ca_index_at_least(&space->wholes, segment_bytes);
	block = node ? ca_whole_block(node) : NULL;
	if (!block || block->segment->registered ||
	    block->bytes - segment_bytes > segment_bytes / WHOLE_SHARE)
		return NULL;
	return block;
}

/* Best fit of what no request of its pool has much use for: too small for any, or, where requests
 * of several sizes share a segment, without a boundary for those that need one. */
struct ca_block *
ca_search_hole_in_locked(const struct ca_space *space, const struct ca_pool *pool, uint64_t bytes)
{
	const struct ca_config *config = &space->heap->config;
	struct ca_block *block = ca_pool_find_locked(space->heap, pool, bytes);

	if (!block || block->bytes <= CA_SMALL_MAX)
		return block;
	return ca_pool_is_shared(config, block) && !ca_pool_usable(block) ? block : NULL;
}

struct ca_block *
ca_search_hole_locked(struct ca_space *space, uint64_t bytes)
{
	const struct ca_stream_record *quiet;
	struct ca_block *block;

	if (bytes > CA_SMALL_MAX || space->dead || space->poisoned)
		return NULL;
	block = ca_search_hole_in_locked(space, &space->pools[1], bytes);
	if (!space->stream_held_blocks || ca_order_may_capture(space->heap))
		return block;
	quiet = ca_held_quiet_locked(space);
	if (!quiet)
		return ca_search_better(block, ca_search_exposable_hole_locked(space, bytes));
	if (!quiet->pools)
		return block;
	return ca_search_better(
		block, if_quiet(space, ca_search_hole_in_locked(space, &quiet->pools[1], bytes)));
}

struct ca_block *
ca_search_free_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_block *block = find(space, ca_search_quiet_locked(space), bytes);

	return block ? block : ca_search_locked(space, bytes);
}

struct ca_block *
ca_search_locked(struct ca_space *space, uint64_t bytes)
{
	ca_magazines_clear_locked(space);
	return find(space, ca_search_quiet_locked(space), bytes);
}

/*
 * Blocks that the thread keeps, and that are looked at before a free one is cut for a large
 * request: those that would merge do. The others would be cut again as they are, and stay for the
 * next requests of their sizes; so do all for a small request, whose pieces lie in segments of
 * their own. (Instructions of a call of inf1024, med128, med1024 and medvar: 344, 315, 315 and 187,
 * waste over live 9.2, 2.8, 3.9 and 4.0 %, W1b 3.6 %. With 4, med1024 238, W1b 4.8 %; with 8,
 * med1024 291, but W4b of one seed needs a device 14 % larger. Where 32 were merged whether or not
 * that helped, and none if a free block was just as large: 286, 325, 341 and 196 instructions, with
 * a launch after each allocation 4 to 15 % fewer than now, and 10.3, 4.3, 3.9 and 4.2 %, W1b 6.2 %.
 * The mean of the 44 rows is the same to 0.3 %.)
 *
 * A block that goes from the thread to the thread stays where it lay, between others or not. So
 * extents that are about to outgrow their slack (ca_move_is_near_locked) get all large ones back at
 * each miss, whatever fits. (A step of W1b, 20 us behind, maps 42 handles without that and 4 with
 * it, waste over live 4.5 and 4.0 %; med128 4.0 and 2.6, W10c 3.6 and 2.3 %, the mean of all rows
 * at four lags 6.2 and 6.1 %.)
 */
enum {
	LOOKED_AT = 16,
	/* Where nothing fits: until something does. (With 32, rings of 64 blocks of 12 and 96
	 * sizes, 20 seeds each, miss 1.3 and 1.03 times as often, and of two threads the lock is
	 * held twice as often for more than 4,096 ticks; peaks are 0.02 % higher.) */
	MERGED_AT_A_TIME = 8,
	/* Bytes. Near the end of the device's memory a small request from there on has what is kept
	 * merged, too, its thread's and that of threads that allocate no more: else it is cut
	 * beside pieces that keep whole segments from the next ones. (A device of 256 MiB, of which
	 * nothing is live and 128 pieces of 512 and 1,024 bytes are kept, each in a segment of its
	 * own, has 128 blocks of 1 MiB without that.) */
	HOLES_COUNT = 64 << 10,
};

static inline void
clear_for(struct ca_space *space, uint64_t bytes)
{
	if (ca_move_is_near_locked(space)) {
		ca_magazine_clear_some_locked(space, CA_KEPT_LARGE, CA_KEPT_ALL);
	} else if (bytes > CA_SMALL_MAX) {
		ca_magazine_clear_some_locked(space, CA_KEPT_MERGEABLE, LOOKED_AT);
	} else if (bytes >= HOLES_COUNT && ca_budget_is_low_locked(space)) {
		ca_magazine_clear_some_locked(space, CA_KEPT_SMALL_MERGEABLE, LOOKED_AT);
		ca_magazine_clear_idle_locked(space);
	}
}

struct ca_block *
ca_search_own_locked(struct ca_space *space, const struct ca_stream_record *quiet, uint64_t bytes)
{
	struct ca_block *block;

	clear_for(space, bytes);
	block = find(space, quiet, bytes);
	while (!block && ca_magazine_clear_some_locked(space, CA_KEPT_ANY, MERGED_AT_A_TIME))
		block = find(space, quiet, bytes);
	return block;
}

/* Blocks that come out of magazines may lie in leased segments. */
static struct ca_block *
find_or_yield(struct ca_space *space, const struct ca_stream_record *quiet, uint64_t bytes)
{
	struct ca_block *block = find(space, quiet, bytes);

	while (!block && ca_leased_yield_locked(space, bytes))
		block = find(space, quiet, bytes);
	return block;
}

/*
 * One size after the other: what the others go on with is left to them. (Two threads, each with a
 * ring of 64 blocks of 12 sizes, 10 seeds: of the one that misses less, 8,800 of a million requests
 * miss its magazine instead of 13,600.) Of a thread that frees meanwhile not more sizes than a
 * magazine can have.
 */
struct ca_block *
ca_search_others_locked(struct ca_space *space, uint64_t bytes)
{
	enum ca_kept which = bytes > CA_SMALL_MAX ? CA_KEPT_LARGE : CA_KEPT_ANY;
	const struct ca_stream_record *quiet = ca_search_quiet_locked(space);
	struct ca_block *block = find_or_yield(space, quiet, bytes);
	struct ca_magazine *magazine;
	unsigned n;

	for (magazine = space->heap->magazines; magazine; magazine = magazine->next)
		for (n = 0; !block && n < CA_STACKS; n++) {
			if (!ca_magazine_clear_stack_locked(space, magazine, which))
				break;
			block = find_or_yield(space, quiet, bytes);
		}
	if (block)
		return block;
	ca_magazines_clear_locked(space);
	return find_or_yield(space, quiet, bytes);
}

struct ca_block *
ca_budget_find_cut_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_budget *budget = &space->device->budget;
	struct ca_block *block;

	budget->fit = CA_FIT_CUT;
	block = ca_search_locked(space, bytes);
	budget->fit = CA_FIT_POLICY;
	return block;
}

struct ca_block *
ca_oom_search_locked(struct ca_space *space, uint64_t bytes, enum ca_fit fit)
{
	struct ca_budget *budget = &space->device->budget;
	struct ca_block *block;

	ca_oom_tried.searches++;
	ca_held_look_locked(space);
	ca_held_settle_locked(space);
	budget->fit = fit;
	space->heap->searches_all = true;
	block = ca_search_locked(space, bytes);
	if (!block)
		block = ca_search_exposable_any_locked(space, bytes);
	space->heap->searches_all = false;
	budget->fit = CA_FIT_POLICY;
	return ca_alloc_hit_locked(space, block, bytes, true);
}
