/* SPDX-License-Identifier: MIT */
/* A thread with leased segments, and others beside it. */
#pragma once

#include "allocator/block/lease.h"
#include "tests/unit/allocator/deferred/scene.h"
#include "tests/unit/allocator/tcache/magazine_scene.h"

enum { TAKEN = 40 };

static inline void *
take_and_free_one(void *arg)
{
	struct fixture *f = arg;
	uint64_t address;

	assert_int_equal(ca_alloc(f->space, 4 * MIB, &address), 0);
	assert_int_equal(ca_free(f->heap, address), 0);
	return NULL;
}

static inline bool
is_leased(const struct fixture *f)
{
	return f->heap->leases && (f->heap->leases->segments[0] || f->heap->leases->segments[1]);
}

/* The calling thread takes so many blocks, each of another size and so of no stack. */
static inline void
take_sizes(struct fixture *f, uint64_t *blocks, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(ca_alloc(f->space, (i + 1) * 512, &blocks[i]), 0);
}

static inline void
free_blocks(struct fixture *f, const uint64_t *blocks, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(ca_free(f->heap, blocks[i]), 0);
}

/* Another thread has a magazine, and the calling one has taken TAKEN blocks, most of them of its
 * leased segment. */
static inline void
lease(struct fixture *f, uint64_t blocks[TAKEN])
{
	take_and_free_one(f); /* or it would have the magazine of the thread that ends */
	in_thread(take_and_free_one, f);
	take_sizes(f, blocks, TAKEN);
	assert_true(is_leased(f));
}

static inline void
lease_start(struct fixture *f, uint64_t blocks[TAKEN])
{
	fixture_defaults(f);
	contended_start(f);
	lease(f, blocks);
}

/* Nothing is live: all goes back to the driver. */
static inline void
nothing_is_left(struct fixture *f)
{
	fixture_check(f);
	assert_int_equal(fixture_stats(f).allocated_bytes.current, 0);
	assert_int_equal(fixture_stats(f).requested_bytes.current, 0);
	assert_int_equal(fixture_stats(f).alloc_calls, fixture_stats(f).free_calls);
	assert_int_equal(f->heap->bases.entered, ca_bases_count_locked(&f->heap->bases));
	ca_trim(f->heap, 0);
	assert_int_equal(ca_bases_count_locked(&f->heap->bases), 0);
	assert_int_equal(f->heap->bases.entered, 0);
	assert_int_equal(fixture_sums(f).held_bytes, 0);
	fixture_check(f);
}
