/* SPDX-License-Identifier: MIT */
/*
 * The way of an allocation: the smallest block that fits of what has finished and of what the
 * stream itself freed; else what has finished meanwhile; else what other streams freed that this
 * one comes after; else the marks are asked, and the search begins anew. A new segment is the
 * caller's affair. It is born in the stream that asked for it, which holds the rest of it like
 * memory that it freed.
 */
#include "allocator/told/internal.h"

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
		own = ca_told_by_size(
			ca_index_at_least(&group->index[request->large], request->bytes, 0));
	free = ca_told_by_size(
		ca_index_at_least(&request->pool->free[request->large], request->bytes, 0));
	if (free && !cuts_any && !ca_told_may_cut_told(free, request->bytes))
		free = NULL;
	return better(own, free);
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
	struct ca_tree_node *node = ca_index_at_least(index, request->bytes, 0);
	unsigned looks;

	for (looks = 0; node && looks < GROUP_LOOK; looks++) {
		if (is_after_all(request, ca_told_by_size(node)))
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

/* The rest keeps the users. */
static uint64_t
take(const struct request *request, struct ca_told_block *block)
{
	struct ca_told_users users;

	ca_told_block_users(block, &users);
	ca_told_detach_told(block);
	ca_told_cut_told(block, request->bytes, &users, block->exact);
	ca_told_hand_out_told(block, request->size);
	if (!ca_told_remove_finished_told(request->pool->told, &users))
		ca_told_reused(request->stream);
	return block->address;
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
	return block;
}

int
ca_told_alloc(struct ca_told_pool *pool, struct ca_stream *stream, uint64_t size, bool cuts_any,
	      uint64_t *ret_address)
{
	struct request request = request_of(pool, stream, size);
	struct ca_told_block *block;
	int r = -EAGAIN;

	if (!size || size > CA_SIZE_MAX)
		return -EINVAL;
	ca_told_lock(pool->told);
	block = find(&request, cuts_any);
	if (!pool->handle)
		r = -ENODEV;
	else if (block) {
		*ret_address = take(&request, block);
		r = 0;
	}
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
		ca_told_hand_out_told(block, size);
		pool->counts->segments_taken_for++;
		*ret_address = block->address;
	}
	ca_told_unlock(pool->told);
	return r;
}

/* ---- behind a wait */

/* The smallest whose user has an exact mark, or can have one. */
static struct ca_told_block *
find_exact(const struct request *request)
{
	struct ca_told_block *best = NULL;

	CA_LIST_EACH(struct ca_told_group, group, &request->pool->all_groups, link) {
		const struct ca_index *index = &group->index[request->large];
		struct ca_tree_node *node = ca_index_at_least(index, request->bytes, 0);
		unsigned looks;

		for (looks = 0; node && looks < GROUP_LOOK; looks++) {
			if (ca_told_by_size(node)->exact) {
				best = better(best, ca_told_by_size(node));
				break;
			}
			node = ca_index_next(index, node);
		}
	}
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
	block->segment->live++;
	ca_told_unlock(told);
	r = ca_told_guard(request->stream, &users.user[0]);
	ca_told_lock(told);
	block->segment->live--;
	if (r) {
		ca_told_place_told(block, &users, false);
		return -EAGAIN;
	}
	ca_told_cut_told(block, request->bytes, &users, exact);
	ca_told_hand_out_told(block, request->size);
	ca_told_reused(request->stream);
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
