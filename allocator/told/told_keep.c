/* SPDX-License-Identifier: MIT */
/*
 * Freed memory whose one user is the stream that it was freed in, kept as it is for the stream's
 * next request of that size (fast.h): nothing is merged, cut, indexed or hashed for such a pair.
 *
 * It is kept until something else is wanted: a request that no stack serves, a trim, a question
 * about what is idle. Then all of it gets its place, in the order of the frees, so that nobody but
 * the ways here has to know that some is kept. A free that is not kept does the same for its
 * group.
 */
#include "allocator/told/internal.h"

#include "config/mutant.h"

static void
clear_stack(struct ca_told_group *group, uint64_t bytes)
{
	struct ca_told_stack *stack = &group->stacks[ca_told_hash(bytes, CA_TOLD_STACK_SHIFT)];

	stack->top = NULL;
	stack->n = 0;
}

bool
ca_told_unkeep_group_told(struct ca_told_group *group)
{
	struct ca_told_users users;
	bool any = false;

	while (!ca_list_empty(&group->kept)) {
		struct ca_told_block *block =
			CA_CONTAINER_OF(group->kept.next, struct ca_told_block, held);

		clear_stack(group, ca_round_up(block->requested, CA_GRAIN));
		ca_list_remove(&block->held);
		ca_told_table_remove_told(block);
		users.more = false;
		users.poll_serial = 0;
		users.n = !CA_MUTANT(TOLD_KEPT_FREE);
		users.user[0] = block->user;
		ca_told_place_told(block, &users, block->exact);
		any = true;
	}
	return any;
}

bool
ca_told_unkeep_told(struct ca_told_pool *pool)
{
	bool any = false;

	CA_LIST_EACH(struct ca_told_group, group, &pool->all_groups, link)
		any = ca_told_unkeep_group_told(group) || any;
	return any;
}
