/* SPDX-License-Identifier: MIT */
/* A heap over pretend memory, and the checks every test of the allocator repeats. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "allocator/api/heap.h"
#include "allocator/fake/fake.h"
#include "allocator/order/order.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

struct fixture {
	struct ca_config config;
	struct ca_model_config pretend;
	struct ca_model *model;
	struct ca_driver driver;
	struct ca_heap *heap;
	struct ca_space *space; /* context (void *)1, device 0 */
	bool unseen; /* the tests' work has no streams: every free waits for a context mark */
};

static inline void
fixture_defaults(struct fixture *f)
{
	memset(f, 0, sizeof(*f));
	f->config.max_split_size_bytes = UINT64_MAX;
	f->config.max_non_split_rounding_bytes = 20 * MIB;
	f->config.large_segment_size_bytes = 20 * MIB;
	f->config.reuse_slack_bytes = 64 * MIB;
	f->config.disable = CA_DISABLE_OFF;
	f->config.max_cached_bytes = UINT64_MAX;
	/* any test, to see what it says of extents */
	f->config.expandable_segments = getenv("CACHEALLOC_TEST_EXPAND") != NULL;
#ifdef FIXTURE_UNSEEN
	f->unseen = true;
#endif
	f->pretend = (struct ca_model_config){ .capacity = 4 * GIB,
					       .granularity = 2 * MIB,
					       .alignment = 2 * MIB };
}

static inline void
fixture_start(struct fixture *f)
{
	assert_int_equal(ca_model_create(&f->pretend, &f->model), 0);
	ca_model_driver(f->model, &f->driver);
	assert_int_equal(ca_heap_create(&f->config, &f->driver, &f->heap), 0);
	if (f->unseen)
		ca_order_finished_only(f->heap, NULL, CA_REASON_UNSEEN_CALL);
	assert_int_equal(ca_space_create(f->heap, (void *)1, 0, &f->space), 0);
}

static inline void
fixture_stop(struct fixture *f)
{
	ca_heap_destroy(f->heap);
	ca_model_destroy(f->model);
}

static inline struct ca_stats
fixture_stats(struct fixture *f)
{
	struct ca_stats stats;

	ca_heap_stats(f->heap, 0, &stats);
	return stats;
}

static inline struct ca_model_sums
fixture_sums(struct fixture *f)
{
	struct ca_model_sums sums;

	ca_model_sums(f->model, &sums);
	return sums;
}

/* The invariant walk, and what was taken less what was returned is what the heap says it holds. */
static inline void
fixture_check(struct fixture *f)
{
	char reason[128] = "";
	struct ca_model_sums sums = fixture_sums(f);

	if (ca_heap_check(f->heap, reason, sizeof(reason)))
		fail_msg("invariant: %s", reason);
	assert_int_equal(fixture_stats(f).reserved_bytes.current, sums.held_bytes);
	assert_int_equal(sums.errors, 0);
}

static inline uint64_t
fixture_alloc(struct fixture *f, uint64_t size)
{
	uint64_t address = 0;

	assert_int_equal(ca_alloc(f->space, size, &address), 0);
	fixture_check(f);
	return address;
}

static inline void
fixture_free(struct fixture *f, uint64_t address)
{
	assert_int_equal(ca_free(f->heap, address), 0);
	fixture_check(f);
}

static inline uint64_t
fixture_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* A property test fails each driver call in turn, and runs as many random programs or steps as it
 * says. Under TSan it takes one call in twelve and a quarter of the rest: its threads, if there is
 * more than one, work in turns. (On an idle machine the four largest take TSan 54 s so; with one
 * call in four, and all of the rest, 153 s.)
 */
#ifdef __SANITIZE_THREAD__
#define FIXTURE_FAIL_STEP 12
#define FIXTURE_PART(n) (((n) + 3) / 4)
#else
#define FIXTURE_FAIL_STEP 1
#define FIXTURE_PART(n) (n)
#endif

/* The seed of a random test: CACHEALLOC_TEST_SEED, or the default; printed in either case. */
static inline uint64_t
fixture_seed(uint64_t seed)
{
	const char *set = getenv("CACHEALLOC_TEST_SEED");

	if (set)
		seed = strtoull(set, NULL, 0);
	printf("# CACHEALLOC_TEST_SEED=%llu\n", (unsigned long long)seed);
	return seed ? seed : 1;
}
