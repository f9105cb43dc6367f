/* SPDX-License-Identifier: MIT */
/*
 * Freed blocks that several streams may still use.
 *
 * A block keeps all its users, each with the stamp of its free, until they have finished: a guard
 * waits for the exact mark of each (order/early_reuse.c), so no wait can depend on what was
 * submitted after the free. Only the place where the block lies changes.
 *
 * A block is MULTI_HELD, in the pools of its set: the streams that are its users. It waits there
 * until a user has finished, or is exposed. Sets are few; where there are too many, blocks of any
 * users share one, in which nothing is merged.
 *
 * Most memory is asked for while one stream is in use, the *main* stream (of two that fork and
 * join, each comes after the other's work now and then; so it is not enough to ask which does). A
 * block whose users the main stream comes after, by the program's own waits or those of a guard, is
 * the main stream's own: STREAM_HELD by it, in its pools, merged with what only that stream uses.
 * This is looked at when the block is freed, and again when the main stream has learned something.
 * Its submissions have nothing to wait for; for all others the block's users count as before.
 *
 * Lists are in the order of the frees, or nearly so, for stamps grow: of each list the head is
 * looked at, and a little more.
 */
#include "allocator/deferred/deferred.h"

#include "allocator/block/block.h"
#include "config/branch.h"
#include "config/mutant.h"

enum {
	/* Of a space; 33 KiB each, of which few pages are touched. A bound: the 44 workloads are
	 * the same with 8 and 128. */
	SETS_MAX = 32,
	/* Blocks in vain: those behind them were freed later still. Mean waste of the 44 workloads
	 * with 4 and 64: -0.2 to 0 points. */
	ADOPT_LOOK = 16,
	PAID = 4, /* looks at blocks of a shared set, by a search; a request may search ten times
		   */
};

/* ---- sets */

static struct ca_user_set *
set_new(struct ca_space *space)
{
	struct ca_user_set *set = ca_arena_alloc(&space->heap->fixed, sizeof(*set));

	if (!set)
		return NULL;
	ca_pools_init(set->pools);
	ca_list_init(&set->blocks);
	ca_list_insert(&space->sets, &set->link);
	space->n_sets++;
	return set;
}

static bool
is_of(const struct ca_user_set *set, const struct ca_users *users)
{
	unsigned i;

	if (set->n != users->n)
		return false;
	for (i = 0; i < users->n; i++)
		if (set->stream[i] != users->user[i].stream)
			return false;
	return true;
}

static void
set_name(struct ca_user_set *set, const struct ca_users *users)
{
	unsigned i;

	set->n = users->n;
	for (i = 0; i < users->n; i++)
		set->stream[i] = users->user[i].stream;
}

/* The set of just these users. One that is empty is renamed; the last one is for all that have
 * none. NULL: no memory. */
static struct ca_user_set *
set_for(struct ca_space *space, const struct ca_users *users)
{
	struct ca_user_set *unused = NULL, *last = NULL;

	CA_LIST_EACH(struct ca_user_set, set, &space->sets, link) {
		if (is_of(set, users))
			return set;
		if (!set->n)
			last = set;
		else if (ca_list_empty(&set->blocks))
			unused = set;
	}
	if (!unused && last)
		return last;
	if (!unused)
		unused = set_new(space);
	if (unused && (unused->n || space->n_sets < SETS_MAX))
		set_name(unused, users);
	return unused;
}

/* ---- places */

/* By the numbers of the streams. */
static void
sort(struct ca_users *users)
{
	unsigned i, j;

	for (i = 1; i < users->n; i++) {
		struct ca_user user = users->user[i];

		for (j = i;
		     j && ca_held_record(&users->user[j - 1])->index > ca_held_record(&user)->index;
		     j--)
			users->user[j] = users->user[j - 1];
		users->user[j] = user;
	}
}

/* The block becomes the own of a stream that comes after all its users. Its place in the list is
 * that of the last free. */
static void
own(struct ca_block *block, struct ca_stream_record *record, struct ca_multi_users *multi)
{
	struct ca_user place = { &record->stream, 0 };
	unsigned i;

	if (CA_MUTANT(OLD_STAMP_STANDS) && ca_users_find(&multi->users, &record->stream)) {
		place = *ca_users_find(&multi->users, &record->stream);
		ca_block_drop_users_locked(block);
		ca_block_own_locked(block, place, NULL);
		return;
	}
	for (i = 0; i < multi->users.n; i++)
		if (multi->users.user[i].stamp > place.stamp)
			place.stamp = multi->users.user[i].stamp;
	ca_block_own_locked(block, place, multi);
}

static bool
is_main(struct ca_space *space, struct ca_stream_record *record)
{
	return record == space->main && ca_held_pools_ready(space->heap, record);
}

bool
ca_multi_place_locked(struct ca_block *block, const struct ca_users *users)
{
	struct ca_space *space = block->segment->space;
	struct ca_multi_users *multi = ca_block_multi(block), *fresh = NULL;

	if (!multi)
		multi = fresh = ca_objects_get(&space->heap->users);
	if (!multi)
		return false;
	multi->users = *users;
	sort(&multi->users);
	if (!ca_registered_overlaps(block) && space->main && is_main(space, space->main) &&
	    ca_order_is_after(space->main, &multi->users)) {
		CA_REACHED(SEVERAL_MAIN);
		own(block, space->main, multi);
		return true;
	}
	multi->set = set_for(space, &multi->users);
	if (multi->set) {
		CA_REACHED(SEVERAL_SET);
		ca_block_wait_locked(block, multi);
		return true;
	}
	ca_objects_put(&space->heap->users, fresh);
	return false;
}

/* ---- what users have finished */

static bool
is_any_done(const struct ca_users *users)
{
	unsigned i;

	for (i = 0; i < users->n; i++)
		if (ca_user_is_done(&users->user[i]))
			return true;
	return !ca_held_is_markable(users);
}

/* The number of blocks looked at. */
static unsigned
settle_set(struct ca_user_set *set, unsigned *most)
{
	unsigned looked = 0;

	CA_LIST_EACH_SAFE(struct ca_block, block, &set->blocks, waiting) {
		if (!*most)
			break;
		looked++;
		if (is_any_done(&ca_block_multi(block)->users)) {
			CA_REACHED(SEVERAL_SETTLED);
			ca_held_place_again_locked(block);
			--*most;
		} else if (set->n) {
			break;
		}
	}
	return looked;
}

/*
 * Each block of a shared set has to be asked, not only the first. So a search looks at them only
 * once earlier searches have paid for the last look. (Without that each request that finds some
 * progress takes 0.5 ms where 20,000 such blocks wait.)
 */
static bool
is_due(struct ca_space *space)
{
	space->unpaid_looks -= space->unpaid_looks < PAID ? space->unpaid_looks : PAID;
	return !space->unpaid_looks;
}

bool
ca_multi_settle_locked(struct ca_space *space, unsigned *most, bool all)
{
	bool asked = true;

	CA_LIST_EACH(struct ca_user_set, set, &space->sets, link) {
		if (set->n)
			settle_set(set, most);
		else if (all || is_due(space))
			space->unpaid_looks = settle_set(set, most);
		else
			asked = false;
	}
	return asked;
}

/* ---- what the main stream has learned */

/* The stream has at most so many votes: another one is the main stream after as many. Mean waste
 * of the 44 workloads with 16: -0.4 points (W10f -10), with 256: -0.1 to 0. */
enum { VOTES_MAX = 64 };

/* A stream for which memory is asked for more often than for all others together wins. */
static void
vote(struct ca_space *space, struct ca_stream_record *record)
{
	if (space->main == record) {
		space->main_votes += space->main_votes < VOTES_MAX;
	} else if (space->main_votes) {
		space->main_votes--;
	} else {
		space->main = record;
		space->main_votes = 1;
		record->seen_generation = UINT64_MAX;
	}
}

static bool
take_over(struct ca_block *block, struct ca_stream_record *record)
{
	struct ca_multi_users *multi = ca_block_multi(block);
	struct ca_users users;

	ca_block_users(block, &users);
	if (block->thread != ca_order_thread() || ca_registered_overlaps(block) ||
	    !ca_order_is_after(record, &users))
		return false;
	if (!multi)
		multi = ca_objects_get(&record->space->heap->users);
	if (!multi)
		return false;
	CA_REACHED(SEVERAL_ADOPTED);
	multi->users = users;
	ca_pool_unindex_locked(block);
	ca_list_remove(&block->waiting);
	own(block, record, multi);
	return true;
}

static void
take_over_from(struct ca_list *list, struct ca_stream_record *record)
{
	unsigned failures = 0;

	CA_LIST_EACH_SAFE(struct ca_block, block, list, waiting) {
		if (failures == ADOPT_LOOK)
			break;
		failures += !take_over(block, record);
	}
}

void
ca_multi_take_over_locked(struct ca_space *space, struct ca_stream_record *record)
{
	uint64_t known_generation = atomic_load(&record->known_generation);
	struct ca_stream_record *other;
	unsigned i;

	vote(space, record);
	if (record->seen_generation == known_generation || !is_main(space, record))
		return;
	record->seen_generation = known_generation;
	CA_LIST_EACH(struct ca_user_set, set, &space->sets, link)
		take_over_from(&set->blocks, record);
	for (i = 0; (other = ca_record_at(&space->order, i)); i++)
		if (other != record)
			take_over_from(&other->waiting, record);
}
