/* SPDX-License-Identifier: MIT */
/*
 * The users of a block that a magazine keeps: none, one stream, or a few.
 *
 * Where threads submit to streams of their own, each of them is given work between a block's
 * allocation and its free, and so may use it. Such a block has no room for a stamp of each. It has
 * one that covers them all, and each of the streams is armed for that: before its next submission
 * it records a mark that covers the stamp, also if its own work was over by then. So what is
 * stamped more is no user's, and the first mark with that bound is exact, as it is of one user.
 */
#include "allocator/order/internal.h"

#include "config/branch.h"
#include "config/mutant.h"

/* Some other stream waited for one of them, so perhaps one stands for another. */
static bool
is_any_followed(const struct ca_candidates *all)
{
	unsigned i;

	for (i = 0; i < all->n; i++)
		if (atomic_load(&ca_record(all->user[i].stream)->followed))
			return true;
	return false;
}

static bool
has_anothers(const struct ca_candidates *all)
{
	unsigned i;

	for (i = 0; i < all->n; i++)
		if (ca_record(all->user[i].stream)->thread != ca_order_thread())
			return true;
	return false;
}

/* An exact mark is to be had of it, and a bit. */
static bool
is_simple_ordered(const struct ca_order *order, struct ca_stream_record *record)
{
	return &record->space->order == order && record->index < CA_MULTI_STREAMS &&
	       !record->submitting && !ca_record_has_hazard(record) &&
	       !ca_record_needs_context(record);
}

/* One stamp for all of them. */
static void
arm_multi_ordered(struct ca_users *users, struct ca_user *ret_user)
{
	uint64_t last = 0, bits = 1;
	unsigned i;

	for (i = 0; i < users->n; i++) {
		bits |= (uint64_t)2 << ca_record(users->user[i].stream)->index;
		if (users->user[i].stamp > last)
			last = users->user[i].stamp;
	}
	CA_REACHED(QUICK_GIVEN_SEVERAL);
	*ret_user = (struct ca_user){ (struct ca_stream *)(uintptr_t)bits, last };
	for (i = 0; i < users->n; i++) {
		users->user[i].stamp = ret_user->stamp;
		ca_user_arm_ordered(&users->user[i]);
	}
}

/* Unless the space is quiet. */
static bool
is_one_ordered(struct ca_order *order, const struct ca_user *one, struct ca_user *ret_user)
{
	*ret_user = *one;
	if (ca_record_needs_context(ca_record(one->stream)))
		return false;
	if (ca_order_waits_when_quiet(order) || !ca_order_is_quiet_ordered(order))
		ca_user_arm_ordered(one);
	return true;
}

/*
 * Where all are streams of the calling thread, what is not finished may be handed out, and which of
 * them the memory waits for decides where (deferred/multi_user.c): that is better than to keep it.
 */
static bool
is_multi_ordered(struct ca_order *order, const struct ca_candidates *all, struct ca_user *ret_user)
{
	struct ca_users users = { .context = false };
	unsigned i;

	if (!has_anothers(all))
		return false;
	if (is_any_followed(all) || all->n > CA_USERS_MAX)
		ca_users_choose_ordered(all, &users);
	else
		for (; users.n < all->n; users.n++)
			users.user[users.n] = all->user[users.n];
	for (i = 0; i < users.n && !users.context; i++)
		users.context = !is_simple_ordered(order, ca_record(users.user[i].stream));
	if (users.context)
		return false;
	if (users.n == 1)
		return is_one_ordered(order, &users.user[0], ret_user);
	arm_multi_ordered(&users, ret_user);
	return true;
}

bool
ca_order_kept_users(struct ca_order *order, uint64_t birth, const struct ca_user *inherited,
		    struct ca_user *ret_user)
{
	struct ca_candidates all;
	bool may_be_kept = true;

	*ret_user = (struct ca_user){ NULL, 0 };
	if (atomic_load(&order->finished_only) & ~CA_REASONS_SEEN ||
	    ca_order_has_foreign_user(order, birth))
		return false;
	all.n = inherited->stream && !ca_user_is_done(inherited);
	all.more = false;
	all.user[0] = *inherited;
	ca_order_lock(order);
	ca_users_collect_ordered(order, birth, &all);
	if (all.n == 1 || (all.n && CA_MUTANT(KEPT_OF_SEVERAL)))
		may_be_kept = is_one_ordered(order, &all.user[all.n - 1], ret_user);
	else if (all.n)
		may_be_kept = is_multi_ordered(order, &all, ret_user);
	ca_order_unlock(order);
	return may_be_kept;
}

void
ca_order_kept_unfinished(const struct ca_order *order, const struct ca_user *user,
			 struct ca_users *ret_users)
{
	uint64_t bits = (uintptr_t)user->stream >> 1;

	ret_users->n = 0;
	ret_users->context = false;
	if (!ca_user_is_multi(user)) {
		if (!ca_user_is_done(user))
			ret_users->user[ret_users->n++] = *user;
		return;
	}
	for (; bits; bits &= bits - 1) {
		struct ca_stream_record *record = order->streams[__builtin_ctzll(bits)];
		uint64_t last = atomic_load(&record->stream.last);

		if (!ca_record_has_finished(record, user->stamp))
			ret_users->user[ret_users->n++] =
				(struct ca_user){ &record->stream,
						  last < user->stamp ? last : user->stamp };
	}
}

bool
ca_order_kept_is_done(const struct ca_order *order, const struct ca_user *user)
{
	uint64_t bits = (uintptr_t)user->stream >> 1;

	if (!ca_user_is_multi(user))
		return ca_user_is_done(user);
	for (; bits; bits &= bits - 1)
		if (!ca_record_has_finished(order->streams[__builtin_ctzll(bits)], user->stamp))
			return CA_MUTANT(KEPT_LEFT_OUT) && !(bits & (bits - 1));
	return true;
}
