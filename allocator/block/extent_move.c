/* SPDX-License-Identifier: MIT */
/*
 * Memory of extents that is free where it is of no use moves to where it is needed: without new
 * memory, and without a wait.
 *
 * A handle is cut out of the free block that it lies in, and mapped at its new place, too. There it
 * is free as it was before: FREE, or of the one stream that may still use it, up to the same stamp.
 * So whoever gets it comes after that work, by the same rules as if it lay where it was
 * (docs/ORDER.md, rule 22). Its old addresses are nobody's from then on, and are unmapped when
 * that stream has finished up to the stamp: at once, if it had. Until then they are *leaving*: a
 * segment of one RETIRED block, among the heap's addresses, in no list of its space and no sum,
 * since the memory is counted where it has come to.
 *
 * While pages are on their way they are in a thread's hand, and in no sum either; the device's
 * taking_bytes stand for them. Where anything fails, what has not moved is free again where it was.
 *
 * Each handle is a segment of its own meanwhile: it moves or it does not.
 */
#include "allocator/block/extent_inside.h"

#include "allocator/core/lock.h"
#include "allocator/order/order.h"
#include "config/mutant.h"

enum {
	SHARE = 20, /* mapping may take 1/20 of the time */
	/* ns more than that: so no second has more than twice its share. */
	SPARE_NS = 50 * 1000 * 1000,
};

/* ---- the gate */

static uint64_t
spent_until(const struct ca_space *space, uint64_t now)
{
	uint64_t passed = (now - space->mapping_at_ns) / SHARE;

	return space->mapping_ns > passed ? space->mapping_ns - passed : 0;
}

void
ca_extent_note_locked(struct ca_space *space, uint64_t begin_ns, uint64_t end_ns)
{
	space->device->stats.driver_ns += end_ns - begin_ns;
	if (end_ns < space->mapping_at_ns)
		return; /* another thread was there later */
	space->mapping_ns = spent_until(space, end_ns) + (end_ns - begin_ns);
	space->mapping_at_ns = end_ns;
}

bool
ca_extent_is_late(const struct ca_space *space)
{
	const struct ca_driver *driver = &space->heap->driver;
	uint64_t now = driver->clock_ns(driver->self);

	return !driver->no_time && now >= space->mapping_at_ns &&
	       spent_until(space, now) > SPARE_NS;
}

/* ---- what can move */

struct search {
	const struct ca_growth *growth;
	bool (*may_take)(const struct ca_block *block);
	uint64_t below; /* the blocks from there on have been looked at */
	struct ca_block *best;
};

static void
unfinished(const struct ca_block *block, struct ca_users *ret_users)
{
	ret_users->n = 0;
	ret_users->context = false;
	if (!ca_block_is_held(block))
		return;
	ca_block_users(block, ret_users);
	ca_users_remove_finished(ret_users);
}

/* False: they are too many together. */
static bool
users_add(struct ca_users *users, const struct ca_users *more)
{
	struct ca_users all = *users;
	unsigned i;

	for (i = 0; i < more->n; i++)
		if (!ca_users_raise(&all, &more->user[i]))
			return false;
	if (!CA_MUTANT(EXTENT_USER_LOST))
		*users = all;
	return true;
}

/* No larger handle of the block may move. Blocks that the request counts on stay, but for the end
 * of the upper one. */
static uint64_t
most_of(const struct ca_growth *growth, const struct ca_block *block)
{
	uint64_t most = growth->most - growth->moved;

	if (!ca_extent_is_spared(block))
		return most;
	if (block->address != ca_area_of(block->segment)->spared_2)
		return 0;
	return most < growth->surplus ? most : growth->surplus;
}

static bool
is_movable(const struct search *search, const struct ca_block *block)
{
	struct ca_users users = search->growth->users, more;
	uint64_t address;

	if (!block->segment->mapped || block->segment->registered ||
	    !ca_extent_handles(block, 1, most_of(search->growth, block), &address) ||
	    (search->may_take && !search->may_take(block)))
		return false;
	unfinished(block, &more);
	return users_add(&users, &more);
}

/* The highest one of the pool. */
static void
look_in(struct search *search, const struct ca_pool *pool)
{
	struct ca_index_node *node;

	search->best = NULL;
	for (node = ca_index_any_at_least(&pool->by_size, CA_PAGE); node;
	     node = ca_index_next(&pool->by_size, node)) {
		struct ca_block *block = ca_pool_block(node);

		if (block->address < search->below &&
		    (!search->best || block->address > search->best->address) &&
		    is_movable(search, block))
			search->best = block;
	}
}

/* The uppermost handle of the block is a segment of its own, of those users. *ret_rest: the block
 * in front of it, or NULL. NULL: no records. */
static struct ca_segment *
cut(struct ca_block *block, uint64_t most, struct ca_users *ret_users, struct ca_block **ret_rest)
{
	struct ca_heap *heap = block->segment->space->heap;
	uint64_t address, bytes = ca_extent_handles(block, 1, most, &address);
	struct ca_segment *segment;
	struct ca_multi_users *several = NULL;

	unfinished(block, ret_users);
	if (ret_users->n > 1) {
		several = ca_objects_get(&heap->users);
		if (!several)
			return NULL;
		several->users = *ret_users;
	}
	segment = ca_extent_cut_locked(block, address, bytes, ret_rest);
	if (!segment)
		ca_objects_put(&heap->users, several);
	else if (ret_users->n == 1)
		segment->first->user = ret_users->user[0];
	else
		segment->left = several;
	return segment;
}

static bool
take_one(struct ca_growth *growth, struct ca_block *block, struct ca_block **ret_rest)
{
	struct ca_users users;
	struct ca_device *device = block->segment->space->device;
	uint64_t generation = device->generation;
	bool spared = ca_extent_is_spared(block);
	struct ca_segment *segment = cut(block, most_of(growth, block), &users, ret_rest);

	if (!segment)
		return false;
	growth->surplus -= spared ? segment->bytes : 0;
	ca_segment_unlist_locked(segment);
	growth->changes += device->generation - generation;
	segment->returning = true;
	device->taking_bytes += segment->bytes;
	ca_list_insert(&growth->sources, &segment->hand);
	growth->moved += segment->bytes;
	users_add(&growth->users, &users);
	return true;
}

static void
take_from(struct ca_growth *growth, const struct ca_pool *pool, uint64_t bytes,
	  struct search *search)
{
	struct ca_block *block;

	search->below = UINT64_MAX;
	while (growth->moved < bytes) {
		look_in(search, pool);
		block = search->best;
		if (!block)
			return;
		search->below = block->address;
		while (block && growth->moved < bytes && is_movable(search, block))
			if (!take_one(growth, block, &block))
				return;
	}
}

void
ca_extent_take_locked(struct ca_space *space, struct ca_growth *growth, uint64_t bytes,
		      const struct ca_pool pools[2], bool (*may_take)(const struct ca_block *block))
{
	bool large = growth->area == &space->areas[1];
	struct search search = { .growth = growth, .may_take = may_take };

	take_from(growth, &pools[large], bytes, &search);
	take_from(growth, &pools[!large], bytes, &search);
}

void
ca_extent_retire_locked(uint64_t bytes, const struct ca_pool pools[2],
			bool (*may_take)(const struct ca_block *block))
{
	struct ca_growth any = { .most = UINT64_MAX };
	struct search search = { .growth = &any, .may_take = may_take, .below = UINT64_MAX };
	struct ca_segment *segment;
	struct ca_users users;

	while (bytes) {
		look_in(&search, &pools[1]);
		segment = search.best ? cut(search.best, UINT64_MAX, &users, NULL) : NULL;
		if (!segment)
			return;
		segment->retired = true;
		segment->space->leaving_bytes += segment->bytes;
		ca_list_insert(&segment->space->leaving, &segment->hand);
		bytes -= segment->bytes < bytes ? segment->bytes : bytes;
	}
}

void
ca_extent_put_back_locked(struct ca_space *space, struct ca_growth *growth)
{
	static const struct ca_users nobody = { 0 };
	uint64_t generation = space->device->generation;

	CA_LIST_EACH_SAFE(struct ca_segment, segment, &growth->sources, hand) {
		bool used = segment->first->user.stream || segment->left;

		ca_objects_put(&space->heap->users, segment->left);
		segment->left = NULL;
		space->device->taking_bytes -= segment->bytes;
		space->device->stats.reserved_bytes.total -= segment->bytes;
		ca_extent_enter_locked(segment, used ? &growth->users : &nobody);
	}
	growth->changes += space->device->generation - generation;
	growth->moved = 0;
	growth->users.n = 0;
}

/* ---- the move */

int
ca_extent_alias_all(struct ca_space *space, struct ca_growth *growth, struct ca_list *ret_aliased,
		    uint64_t *ret_end, uint64_t *ret_calls)
{
	const struct ca_driver *driver = &space->heap->driver;
	int r;

	CA_LIST_EACH_SAFE(struct ca_segment, segment, &growth->sources, hand) {
		++*ret_calls;
		r = driver->range_alias(driver->self, space->context, segment->address, *ret_end,
					segment->bytes);
		if (r)
			return r;
		*ca_area_begins_at(growth->area, *ret_end) = 1;
		*ret_end += segment->bytes;
		ca_list_remove(&segment->hand);
		ca_list_insert(ret_aliased, &segment->hand);
	}
	return 0;
}

/* ---- the old addresses */

void
ca_extent_leaves_locked(struct ca_space *space, struct ca_list *aliased)
{
	if (ca_list_empty(aliased))
		return;
	CA_LIST_EACH(struct ca_segment, segment, aliased, hand) {
		space->device->taking_bytes -= segment->bytes;
		space->device->stats.reserved_bytes.total -= segment->bytes;
		segment->returning = false;
		segment->retired = true;
	}
	ca_list_splice(&space->leaving, aliased);
	ca_extent_leave_locked(space);
}

/* The memory goes, too. */
static bool
is_counted(const struct ca_segment *segment)
{
	return !ca_list_empty(&segment->link);
}

static bool
is_left(const struct ca_segment *segment)
{
	const struct ca_user *user = &segment->first->user;

	if (CA_MUTANT(EXTENT_LEFT_EARLY))
		return true;
	if (segment->left)
		return ca_users_remove_finished(&segment->left->users);
	return !user->stream || ca_user_is_done(user);
}

static void
take_left(struct ca_space *space, struct ca_list *ret_left)
{
	ca_list_init(ret_left);
	CA_LIST_EACH_SAFE(struct ca_segment, segment, &space->leaving, hand) {
		if (!space->dead && !is_left(segment))
			continue;
		ca_list_remove(&segment->hand);
		ca_list_insert(ret_left, &segment->hand);
	}
}

/* Nothing is mapped there any more. */
static void
drop(struct ca_segment *segment)
{
	if (is_counted(segment)) {
		segment->space->leaving_bytes -= segment->bytes;
		ca_segment_forget_locked(segment);
	} else {
		ca_segment_drop_locked(segment);
	}
}

/* The handle is unmapped without the lock. A segment that is in its space's list is forgotten where
 * the space ends meanwhile. */
static int
unmap(struct ca_space *space, struct ca_segment *segment)
{
	struct ca_area *area = ca_area_of(segment);
	uint64_t address = segment->address, bytes = segment->bytes, end = address + bytes;
	struct ca_list hand;
	int r;

	ca_list_init(&hand);
	ca_list_remove(&segment->hand);
	ca_list_insert(&hand, &segment->hand);
	segment->returning = true;
	ca_outside_enter_locked(space);
	r = ca_extent_unmap(space, area, address, end, &end);
	ca_outside_leave(space);
	if (!r)
		CA_COUNT(space, driver_free_calls);
	if (ca_list_empty(&hand)) { /* died */
		ca_extent_unmap_dead_locked(space, area, address, end);
		space->device->taking_bytes -= bytes;
		return r;
	}
	segment->returning = false;
	ca_list_remove(&segment->hand);
	segment->bytes = segment->first->bytes = r ? end - address : segment->bytes;
	if (r)
		ca_list_insert(&space->leaving, &segment->hand);
	else
		drop(segment);
	return r;
}

/* The end of the space may take out of the list what waits there: the thread has one handle in its
 * hand at a time. */
static int
unmap_all(struct ca_space *space, struct ca_list *left)
{
	int r = 0;

	while (!r && !ca_list_empty(left)) {
		r = unmap(space, CA_CONTAINER_OF(left->next, struct ca_segment, hand));
		/* where nothing goes, who waits for a change need not look again */
		space->device->generation += !r;
	}
	ca_list_splice(&space->leaving, left);
	return r;
}

static void
poll_streams(struct ca_space *space)
{
	if (space->dead || space->poisoned)
		return;
	ca_outside_enter_locked(space);
	(void)ca_order_poll(space);
	ca_outside_leave(space);
}

void
ca_extent_leave_dead_locked(struct ca_space *space)
{
	while (!ca_list_empty(&space->leaving)) {
		struct ca_segment *segment =
			CA_CONTAINER_OF(space->leaving.next, struct ca_segment, hand);
		const struct ca_area *area = ca_area_of(segment);
		uint64_t address = segment->address, end = ca_segment_end(segment);

		drop(segment);
		ca_extent_unmap_dead_locked(space, area, address, end);
	}
}

static int
leave(struct ca_space *space, bool asks)
{
	const struct ca_driver *driver = &space->heap->driver;
	struct ca_list left;
	uint64_t begin_ns;
	int r;

	if (space->is_leaving || ca_list_empty(&space->leaving) ||
	    (space->poisoned && !space->dead))
		return 0;
	if (asks)
		poll_streams(space);
	take_left(space, &left);
	if (ca_list_empty(&left))
		return 0;
	space->is_leaving = true;
	space->in_hand++;
	begin_ns = driver->clock_ns(driver->self);
	r = unmap_all(space, &left);
	if (space->dead)
		ca_extent_leave_dead_locked(space);
	ca_extent_note_locked(space, begin_ns, driver->clock_ns(driver->self));
	space->in_hand--;
	space->is_leaving = false;
	return r;
}

void
ca_extent_leave_locked(struct ca_space *space)
{
	/* where blocks wait for streams, these are asked because of them */
	(void)leave(space, !space->stream_held_blocks);
}

/* Where it has come to, memory may be free by what a stream that waited for another has finished;
 * then the other one, which alone may use the old addresses, has not been asked. */
int
ca_extent_leave_finished_locked(struct ca_space *space)
{
	return leave(space, true);
}
