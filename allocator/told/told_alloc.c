/* SPDX-License-Identifier: MIT */
/*
 * The way of an allocation: the smallest block that fits of what has finished and of what the
 * stream itself freed; else what has finished meanwhile; else what other streams freed that this
 * one comes after; else the marks are asked, and the search begins anew; else neighbours are put
 * together, and a small request takes a hole of a large segment. A new segment is the
 * caller's affair. It is born in the stream that asked for it, which holds the rest of it like
 * memory that it freed.
 */
#include "allocator/told/fast.h"

#include <errno.h>

#include "allocator/block/block.h"
#include "config/mutant.h"

/* Blocks of a group, and shared ones, that are looked at: of larger size or later freed, they are
 * less and less likely to do. */
enum { GROUP_LOOK = 8, SHARED_LOOK = 64 };

struct request {
	struct ca_told_pool *pool;
	struct ca_stream *stream;
	uint64_t size;  /* bytes, as asked for */
	uint64_t bytes; /* rounded */
	bool large;
};

static struct request
request_of(struct ca_told_pool *pool, struct ca_stream *stream, uint64_t size)
{
	struct request request = { .pool = pool, .stream = stream, .size = size };

	request.bytes = ca_round_up(size, CA_GRAIN);
	request.large = request.bytes > CA_SMALL_MAX;
	return request;
}

static bool
is_finished_only(const struct request *request)
{
	return request->pool->told->heap->config.reuse_finished;
}

static struct ca_told_block *
better(struct ca_told_block *a, struct ca_told_block *b)
{
	return !a || (b && b->bytes < a->bytes) ? b : a;
}

/* `all`: as nothing else is left, also what a search would not come by. */
static struct ca_told_block *
best_fit(const struct ca_index *index, const struct request *request, bool all)
{
	return ca_told_by_size(all ? ca_index_any_at_least(index, request->bytes)
				   : ca_index_at_least(index, request->bytes));
}

static struct ca_told_block *
find_own(const struct request *request, bool cuts_any)
{
	struct ca_told_group *group = NULL;
	struct ca_told_block *own = NULL, *free;

	if (!is_finished_only(request))
		group = ca_told_group_told(request->pool, ca_told_record(request->stream));
	if (group) {
		(void)ca_told_unkeep_group_told(group);
		(void)ca_told_settle_group_told(group);
	}
	if (group)
		own = best_fit(&group->index[request->large], request, cuts_any);
	free = best_fit(&request->pool->free[request->large], request, cuts_any);
	if (free && !cuts_any && !ca_told_may_cut_told(free, request->bytes))
		free = NULL;
	return better(own, free);
}

/* As in policy/search.c: too small for requests of the large kind, or, where those of several sizes
 * share a segment, for most of them. */
static bool
is_hole(const struct ca_told_block *block)
{
	return block->bytes <= CA_SMALL_MAX ||
	       (block->bytes < CA_ALIGNED_MIN && ca_told_is_shared(block->segment));
}

static struct ca_told_block *
hole_in(const struct ca_index *index, uint64_t bytes, bool any)
{
	struct ca_index_node *node =
		any ? ca_index_any_at_least(index, bytes) : ca_index_at_least(index, bytes);

	while (!any && node && !is_hole(ca_told_by_size(node)))
		node = ca_told_by_size(node)->bytes < CA_ALIGNED_MIN ? ca_index_next(index, node)
								     : NULL;
	return ca_told_by_size(node);
}

/* For a small request: one that has finished, or is the stream's own. `any`: at the end of the
 * memory every block is one, since a capture may keep its segment from going back. */
static struct ca_told_block *
find_hole(const struct request *request, bool any)
{
	const struct ca_told_group *group =
		ca_told_group_find_told(request->pool, ca_told_record(request->stream));
	struct ca_told_block *own = NULL;

	if (request->large)
		return NULL;
	if (group && !is_finished_only(request))
		own = hole_in(&group->index[1], request->bytes, any);
	return better(own, hole_in(&request->pool->free[1], request->bytes, any));
}

static bool
is_after_all(const struct request *request, const struct ca_told_block *block)
{
	bool follows = ca_told_pool_allows(request->pool, CA_TOLD_FOLLOWS);
	struct ca_told_users users;
	unsigned i;

	ca_told_block_users(block, &users);
	if (CA_MUTANT(TOLD_ANY_STREAM))
		return true;
	for (i = 0; i < users.n; i++)
		if (!ca_told_is_after(request->stream, &users.user[i], follows))
			return false;
	return !users.more;
}

/* Of one group: the smallest that the stream comes after. */
static struct ca_told_block *
find_in_group(const struct request *request, const struct ca_told_group *group)
{
	const struct ca_index *index = &group->index[request->large];
	struct ca_index_node *node = ca_index_at_least(index, request->bytes);
	unsigned looks;

	for (looks = 0; node && looks < GROUP_LOOK; looks++) {
		if (node->key >= request->bytes && is_after_all(request, ca_told_by_size(node)))
			return ca_told_by_size(node);
		node = ca_index_next(index, node);
	}
	return NULL;
}

static struct ca_told_block *
find_after(const struct request *request)
{
	struct ca_told_block *best = NULL;
	unsigned looks = 0;

	if (is_finished_only(request))
		return NULL;
	CA_LIST_EACH(struct ca_told_group, group, &request->pool->all_groups, link)
		best = better(best, find_in_group(request, group));
	CA_LIST_EACH(struct ca_told_block, block, &request->pool->shared, held) {
		if (looks++ == SHARED_LOOK)
			break;
		if (block->segment->large == request->large && block->bytes >= request->bytes &&
		    is_after_all(request, block))
			best = better(best, block);
	}
	return best;
}

static void
trace(const struct request *request, const struct ca_told_block *block)
{
	if (ca_tracing(request->pool->told->heap))
		ca_told_trace_alloc_told(block, request->stream);
}

static void
hand_out(const struct request *request, struct ca_told_block *block)
{
	ca_told_hand_out_told(block, request->size);
	trace(request, block);
}

/* The rest keeps the users. */
static void
take(const struct request *request, struct ca_told_block *block)
{
	struct ca_told_users users;

	ca_told_block_users(block, &users);
	ca_told_detach_told(block);
	ca_told_cut_told(block, request->bytes, &users, block->exact);
	hand_out(request, block);
	if (!ca_told_remove_finished_told(request->pool->told, &users))
		ca_told_reused(request->stream, block->serial);
}

static struct ca_told_block *
find(const struct request *request, bool cuts_any)
{
	struct ca_told_block *block = find_own(request, cuts_any);

	if (!block && ca_told_settle_told(request->pool))
		block = find_own(request, cuts_any);
	if (!block)
		block = find_after(request);
	if (!block && ca_told_pool_allows(request->pool, CA_TOLD_OPPORTUNISTIC) &&
	    ca_told_poll_told(request->pool))
		block = find_own(request, cuts_any);
	if (!block && !is_finished_only(request))
		block = ca_told_gather_told(request->pool, request->stream, request->bytes);
	if (!block)
		block = find_hole(request, cuts_any);
	return block;
}

/* The same as ca_told_alloc_quick, which another thread or a trace may have been in the way of. */
static struct ca_told_block *
take_kept(const struct request *request)
{
	unsigned mark = ca_tracing(request->pool->told->heap) ? CA_TOLD_TRACED : CA_TOLD_QUICK;
	struct ca_told_block *block = ca_told_take_kept_told(request->pool->told, request->pool,
							     request->stream, request->size, mark);

	if (block)
		trace(request, block);
	return block;
}

/* NULL, too, if the pool was closed meanwhile. */
static struct ca_told_block *
find_and_take(const struct request *request, bool cuts_any)
{
	struct ca_told_block *block = find(request, cuts_any);

	if (!block || !request->pool->handle)
		return NULL;
	take(request, block);
	return block;
}

int
ca_told_alloc(struct ca_told_pool *pool, struct ca_stream *stream, uint64_t size, bool cuts_any,
	      uint64_t *ret_address)
{
	struct request request = request_of(pool, stream, size);
	struct ca_told_block *block;
	int r = 0;

	if (!size || size > CA_SIZE_MAX)
		return -EINVAL;
	r = ca_told_put_operation(stream);
	if (r)
		return r;
	ca_told_lock(pool->told);
	block = take_kept(&request);
	if (!block)
		block = find_and_take(&request, cuts_any);
	if (block)
		*ret_address = block->address;
	else
		r = pool->handle ? -EAGAIN : -ENODEV;
	ca_told_unlock(pool->told);
	return r;
}

/* ---- a new segment */

uint64_t
ca_told_segment_bytes(struct ca_told_pool *pool, uint64_t size, bool exact)
{
	const struct ca_config *config = &pool->told->heap->config;

	return exact || atomic_load(&pool->limited) ? ca_round_up(size, CA_PAGE)
						    : ca_pool_segment_bytes(config, size);
}

int
ca_told_grow(struct ca_told_pool *pool, struct ca_stream *stream, uint64_t address, uint64_t bytes,
	     uint64_t size, uint64_t *ret_address)
{
	struct request request = request_of(pool, stream, size);
	struct ca_told_block *block = NULL;
	struct ca_told_users users;
	int r = -ENODEV;

	ca_told_users_of(stream, &users);
	if (CA_MUTANT(TOLD_BIRTH_UNORDERED))
		users.n = 0;
	ca_told_lock(pool->told);
	if (pool->handle) {
		block = ca_told_segment_enter_told(pool, address, bytes, request.large);
		r = block ? 0 : -ENOMEM;
		ca_told_budget_taken_told(pool, bytes);
	}
	if (block) {
		ca_told_cut_told(block, request.bytes, &users, false);
		hand_out(&request, block);
		pool->counts->segments_taken_for++;
		*ret_address = block->address;
	}
	ca_told_unlock(pool->told);
	if (!r)
		ca_told_mark_for_others(stream);
	return r;
}

/* ---- behind a wait */

static struct ca_told_block *
exact_in(const struct ca_index *index, uint64_t bytes)
{
	struct ca_index_node *node = ca_index_at_least(index, bytes);
	unsigned looks;

	for (looks = 0; node && looks < GROUP_LOOK; looks++) {
		if (node->key >= bytes && ca_told_by_size(node)->exact)
			return ca_told_by_size(node);
		node = ca_index_next(index, node);
	}
	return NULL;
}

/* The smallest whose user has an exact mark, or can have one. For a small request every block is a
 * hole now. */
static struct ca_told_block *
find_exact(const struct request *request)
{
	struct ca_told_block *best = NULL;

	CA_LIST_EACH(struct ca_told_group, group, &request->pool->all_groups, link)
		for (unsigned large = request->large; large < 2; large++)
			best = better(best, exact_in(&group->index[large], request->bytes));
	return best;
}

/* While the wait is inserted the block is in the caller's hand: LIVE, and in no table. */
static int
take_guarded(const struct request *request, struct ca_told_block *block, uint64_t *ret_address)
{
	struct ca_told *told = request->pool->told;
	struct ca_told_users users;
	bool exact = block->exact;
	int r;

	ca_told_block_users(block, &users);
	ca_told_detach_told(block);
	ca_told_unlock(told);
	r = ca_told_guard(request->stream, &users.user[0]);
	ca_told_lock(told);
	if (r) {
		ca_told_place_told(block, &users, false);
		return -EAGAIN;
	}
	ca_told_cut_told(block, request->bytes, &users, exact);
	hand_out(request, block);
	ca_told_reused(request->stream, block->serial);
	*ret_address = block->address;
	return 0;
}

int
ca_told_alloc_guarded(struct ca_told_pool *pool, struct ca_stream *stream, uint64_t size,
		      uint64_t *ret_address)
{
	struct request request = request_of(pool, stream, size);
	struct ca_told_block *block;
	int r = -EAGAIN;

	if (is_finished_only(&request) || !ca_told_pool_allows(pool, CA_TOLD_INTERNAL))
		return -EAGAIN;
	ca_told_lock(pool->told);
	(void)ca_told_unkeep_told(pool);
	block = pool->handle ? find_exact(&request) : NULL;
	if (block)
		r = take_guarded(&request, block, ret_address);
	ca_told_unlock(pool->told);
	return r;
}
