/* SPDX-License-Identifier: MIT */
/*
 * Users that need not be waited for, since another one stands for them.
 *
 * User (v, b) stands for user (u, a) if v waited on the device for u up to a, and every mark that
 * covers b lies behind that wait. The first is what v's clock knows. For the second it does not
 * matter which submission v was stamped for: covered means a bound that is not smaller than b,
 * taken before the mark's own call, and a bound that is not smaller than the epoch read after the
 * wait had returned was taken after that. A stamp smaller than `known_epoch` may be covered by a
 * mark in front of the wait, which says nothing about u.
 *
 * So it is with everything else that counts (v, b) as finished or waits for it: clocks,
 * synchronising calls and the driver's own order of the legacy stream come behind the wait, too. No
 * user stands for a stream that something outside it must end: later work is not to be exposed.
 *
 * If v waited for u's a, and u for v's b before a bound that covers a, each wait would have
 * returned before the other: of two users at most one stands for the other, nor is there a longer
 * circle. So every user that is dropped is stood for by one that stays, if need be through others
 * dropped.
 */
#include "allocator/order/internal.h"

#include "config/mutant.h"

static bool
stands_for(const struct ca_user *by, const struct ca_user *user)
{
	const struct ca_stream_record *record = ca_record(by->stream);

	if (by->stream == user->stream || by->stamp < record->known_epoch)
		return false;
	return ca_clock_includes_ordered(record, user->stream,
					 CA_MUTANT(OLD_ORDER_COUNTS) ? 1 : user->stamp);
}

static bool
is_covered_ordered(const struct ca_candidates *all, const struct ca_user *user)
{
	struct ca_stream_record *record = ca_record(user->stream);
	unsigned i;

	if (record->submitting || atomic_load(&record->hazard) > atomic_load(&record->done))
		return false;
	for (i = 0; i < all->n; i++)
		if (stands_for(&all->user[i], user))
			return true;
	return false;
}

void
ca_users_choose_ordered(const struct ca_candidates *all, struct ca_users *ret_users)
{
	unsigned i;

	ret_users->n = 0;
	ret_users->context |= all->more;
	for (i = 0; i < all->n; i++) {
		if (all->n > 1 && is_covered_ordered(all, &all->user[i]))
			continue;
		if (ret_users->n == CA_USERS_MAX) {
			ret_users->context = true;
			return;
		}
		ret_users->user[ret_users->n++] = all->user[i];
	}
}
