/* SPDX-License-Identifier: MIT */
/*
 * The five things that a lower folder needs of a higher one. Each of them is seldom needed. Set
 * once, by ca_heap_create.
 */
#pragma once

struct ca_heap;
struct ca_space;
struct ca_touch;
struct ca_users;
struct ca_block;

struct ca_heap_hooks {
	/* ca_magazines_clear_locked (allocator/tcache/tcache.h) */
	void (*flush)(struct ca_space *space);
	/* ca_magazines_pass_locked (allocator/tcache/tcache.h) */
	void (*flush_exposed)(struct ca_heap *heap);
	/* ca_leases_end_locked (allocator/tcache/tcache.h) */
	void (*end_leases)(struct ca_heap *heap);
	/* ca_context_mark_poison_locked (allocator/deferred/deferred.h) */
	void (*poison)(struct ca_space *space);
	/* ca_touch_users (allocator/deferred/deferred.h): takes the heap's lock itself */
	void (*users_of_range)(struct ca_space *space, const struct ca_touch *touch,
			       struct ca_users *ret_users);
	/* ca_held_place_or_mark_locked (allocator/deferred/deferred.h) */
	void (*place)(struct ca_block *block, struct ca_users *users);
};
