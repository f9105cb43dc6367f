/* SPDX-License-Identifier: MIT */
/* Which freed memory of a pool an allocation gets, and what the oracle makes of it. */
#include "tests/unit/sim/pool_fixture.h"

static void
test_same_stream_at_once(void **state)
{
	CUmemoryPool pool = must_pool_with(0);
	CUdeviceptr p = must_take(pool, 4096, s), q;

	fill(p, 4096, 1, s);
	must_free(p, s);
	q = must_take(pool, 4096, s);
	assert_int_equal(q, p);
	fill(q, 4096, 2, s);
	assert_int_equal(sim_pending(), 5);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(q), 2);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(get(pool, SIM_POOL_RESERVED), 2 * MIB);
}

static void
test_no_rule_keeps_other_streams_away(void **state)
{
	CUmemoryPool pool = must_pool_with(0);
	CUdeviceptr p = must_take(pool, 4096, s);

	must_free(p, s);
	follow(t, s);
	run_all();
	assert_true(must_take(pool, 4096, t) != p);
}

/* Whatever the rules: the host has synchronised. */
static void
test_no_rule_until_the_host_knows(void **state)
{
	CUmemoryPool pool = must_pool_with(0);
	CUdeviceptr p = must_take(pool, 4096, s);

	assert_int_equal(sim_pool_set(pool, SIM_POOL_THRESHOLD, 64 * MIB), 0);
	must_free(p, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(must_take(pool, 4096, t), p);
	fill(p, 4096, 1, t);
	assert_int_equal(fx.n_races, 0);
}

static void
test_follow_event(void **state)
{
	CUmemoryPool pool = must_pool_with(SIM_POOL_FOLLOW_EVENT);
	CUdeviceptr p = must_take(pool, 4096, s), q;

	fill(p, 4096, 1, s);
	must_free(p, s);
	q = must_take(pool, 4096, t);
	assert_true(q != p);
	must_free(q, s); /* a race: t's allocation is not before it */
	assert_int_equal(fx.n_races, 1);
	follow(t, s);
	q = must_take(pool, 4096, t);
	assert_int_equal(q, p);
	fill(q, 4096, 2, t);
	assert_int_equal(fx.n_races, 1);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(word_at(q), 2);
}

/* An event recorded before the free says nothing about it. */
static void
test_follow_event_recorded_too_early(void **state)
{
	CUmemoryPool pool = must_pool_with(SIM_POOL_FOLLOW_EVENT);
	CUdeviceptr p = must_take(pool, 4096, s);

	follow(t, s);
	must_free(p, s);
	assert_true(must_take(pool, 4096, t) != p);
}

/* Interaction with the legacy stream makes a dependency, too. */
static void
test_follow_legacy_stream(void **state)
{
	CUstream blocking = must_stream(0);
	CUmemoryPool pool = must_pool_with(SIM_POOL_FOLLOW_EVENT);
	CUdeviceptr p = must_take(pool, 4096, blocking);

	must_free(p, blocking);
	assert_int_equal(must_take(pool, 4096, NULL), p);
	must_free(p, NULL);
	assert_int_equal(must_take(pool, 4096, blocking), p);
	assert_int_equal(fx.n_races, 0);
}

static void
test_opportunistic(void **state)
{
	CUmemoryPool pool = must_pool_with(SIM_POOL_OPPORTUNISTIC);
	CUdeviceptr p = must_take(pool, 4096, s), q;

	fill(p, 4096, 1, s);
	must_free(p, s);
	q = must_take(pool, 4096, t);
	assert_true(q != p);
	run_all();
	assert_int_equal(must_take(pool, 4096, t), p);
	fill(p, 4096, 2, t);
	assert_int_equal(fx.n_races, 0);
}

/* A smaller life in between vouches for all that it was given, not only for the bytes it asked for.
 */
static void
test_opportunistic_twice(void **state)
{
	CUmemoryPool pool = must_pool_with(SIM_POOL_OPPORTUNISTIC);
	CUdeviceptr p = must_take(pool, 512, s);

	must_free(p, s);
	run_all();
	assert_int_equal(must_take(pool, 8, t), p);
	must_free(p, t);
	run_all();
	assert_int_equal(must_take(pool, 512, t), p);
	assert_int_equal(fx.n_races, 0);
}

/* A wait is put in only where there is no other memory, and runs. */
static void
test_internal(void **state)
{
	CUmemoryPool pool = must_pool_with(SIM_POOL_INTERNAL);
	CUdeviceptr p = must_take(pool, 40 * MIB, s), q;

	fill(p, 4096, 1, s);
	must_free(p, s);
	q = must_take(pool, 4096, t);
	assert_true(q < p || q >= p + 40 * MIB);
	q = must_take(pool, 40 * MIB, t);
	assert_int_equal(q, p);
	fill(q, 4096, 2, t);
	assert_int_equal(sim_stream_sync(t), 0);
	assert_int_equal(word_at(q), 2);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(sim_stream_query(s), 0); /* it has run on the way */
}

/* The program may not rely on a wait that the pool put in. */
static void
test_internal_teaches_nothing(void **state)
{
	CUmemoryPool pool = must_pool_with(SIM_POOL_INTERNAL);
	CUdeviceptr p = must_take(pool, 40 * MIB, s), x = must_alloc(4096);

	fill(x, 4096, 1, s);
	must_free(p, s);
	assert_int_equal(must_take(pool, 40 * MIB, t), p);
	fill(x, 4096, 2, t);
	assert_int_equal(fx.n_races, 1);
}

static void
test_no_rule_is_out_of_memory(void **state)
{
	CUmemoryPool pool = must_pool_with(SIM_POOL_FOLLOW_EVENT);
	CUdeviceptr p = must_take(pool, 40 * MIB, s), q;

	must_free(p, s);
	assert_int_equal(sim_pool_alloc(pool, 40 * MIB, t, &q), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(sim_pool_alloc(pool, 40 * MIB, s, &q), 0);
	assert_int_equal(q, p);
}

/* A third stream must come after the allocation, not only after the free. */
static void
test_use_by_a_third_stream(void **state)
{
	CUstream u = must_stream(SIM_STREAM_NON_BLOCKING);
	CUmemoryPool pool = must_pool(0);
	CUdeviceptr p = must_take(pool, 4096, s);

	must_free(p, s);
	follow(u, s);
	follow(t, s);
	assert_int_equal(must_take(pool, 4096, t), p);
	fill(p, 4096, 1, u);
	assert_int_equal(fx.n_races, 1);
	assert_string_equal(fx.race.before.name, "alloc_async");
	follow(u, t);
	fill(p, 4096, 1, u);
	assert_int_equal(fx.n_races, 1);
}

static void
test_use_after_free_is_a_race(void **state)
{
	CUmemoryPool pool = must_pool(0);
	CUdeviceptr p = must_take(pool, 4096, s);

	follow(t, s);
	must_free(p, s);
	fill(p, 4096, 1, t);
	assert_int_equal(fx.n_races, 1);
	assert_string_equal(fx.race.before.name, "free_async");
	assert_string_equal(fx.race.now.name, "sim_fill");
}

/* A use after the free, ordered after it but not before the next owner, is found when that comes.
 */
static void
test_late_use_races_with_the_next_owner(void **state)
{
	CUmemoryPool pool = must_pool(0);
	CUdeviceptr p = must_take(pool, 4096, s);

	must_free(p, s);
	follow(t, s);
	fill(p, 4096, 1, t);
	assert_int_equal(fx.n_races, 0);
	assert_int_equal(must_take(pool, 4096, s), p);
	assert_int_equal(fx.n_races, 1);
	assert_string_equal(fx.race.now.name, "alloc_async");
}

static void
test_ordered_use_after_free_faults(void **state)
{
	CUmemoryPool pool = must_pool(0);
	CUdeviceptr p = must_take(pool, 4096, s);

	must_free(p, s);
	fill(p, 4096, 1, s);
	assert_int_equal(sim_stream_sync(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* Work of before the free may be larger than what the address is given to next. */
static void
test_old_work_keeps_its_memory(void **state)
{
	CUmemoryPool pool = must_pool(0);
	CUdeviceptr p = must_take(pool, 64 * KIB, s), q;

	fill(p, 64 * KIB, 1, s);
	must_free(p, s);
	q = must_take(pool, 512, s);
	assert_int_equal(q, p);
	fill(q, 512, 2, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(word_at(q), 2);
	assert_int_equal(fx.n_races, 0);
}

/* Neighbours of several streams make one block once each of them may be had. */
static void
test_neighbours_of_two_streams(void **state)
{
	CUmemoryPool pool = must_pool_with(SIM_POOL_FOLLOW_EVENT);
	CUdeviceptr a = must_take(pool, MIB, s), b = must_take(pool, MIB, s);

	assert_int_equal(b, a + MIB);
	must_alloc(2 * MIB); /* what the pool takes next is no neighbour */
	follow(t, s);
	must_free(a, s);
	must_free(b, t);
	assert_true(must_take(pool, 2 * MIB, t) != a);
	follow(t, s);
	assert_int_equal(must_take(pool, 2 * MIB, t), a);
	assert_int_equal(fx.n_races, 0);
}

/* The best fit, at its lowest address. */
static void
test_best_fit(void **state)
{
	CUmemoryPool pool = must_pool(0);
	CUdeviceptr big = must_take(pool, 256 * KIB, s), small, p[3];

	p[0] = must_take(pool, 512, s);
	small = must_take(pool, 64 * KIB, s);
	p[1] = must_take(pool, 512, s);
	must_free(big, s);
	must_free(small, s);
	p[2] = must_take(pool, 32 * KIB, s);
	assert_int_equal(p[2], small);
	assert_int_equal(must_take(pool, 32 * KIB, s), small + 32 * KIB);
	assert_int_equal(must_take(pool, 64 * KIB, s), big);
}

/* cuMemFree waits for nothing: what may still run is a race with it. */
static void
test_host_free_does_not_wait(void **state)
{
	CUmemoryPool pool = must_pool(0);
	CUdeviceptr p = must_take(pool, 4096, s);

	fill(p, 4096, 1, s);
	assert_int_equal(sim_mem_free(p), 0);
	assert_int_equal(sim_pending(), 2);
	assert_int_equal(fx.n_races, 1);
	assert_string_equal(fx.race.now.name, "cuMemFree");
	assert_int_equal(get(pool, SIM_POOL_USED), 0);
	assert_int_equal(sim_mem_free(p), CUDA_ERROR_INVALID_VALUE);
}

static void
test_host_free_after_a_synchronisation(void **state)
{
	CUmemoryPool pool = must_pool(0);
	CUdeviceptr p = must_take(pool, 4096, s);

	fill(p, 4096, 1, s);
	assert_int_equal(sim_stream_sync(s), 0);
	assert_int_equal(sim_mem_free(p), 0);
	assert_int_equal(must_take(pool, 4096, t), p);
	fill(p, 4096, 2, t);
	assert_int_equal(fx.n_races, 0);
}

/* It was never used, but its own allocation has not been reached: that of before may still be. */
static void
test_host_free_keeps_the_order_of_the_allocation(void **state)
{
	CUmemoryPool pool = must_pool_with(SIM_POOL_FOLLOW_EVENT);
	CUdeviceptr p = must_take(pool, 4096, s);

	fill(p, 4096, 1, s);
	must_free(p, s);
	assert_int_equal(must_take(pool, 4096, s), p);
	assert_int_equal(sim_mem_free(p), 0);
	assert_true(must_take(pool, 4096, t) != p);
	assert_int_equal(must_take(pool, 4096, s), p);
	assert_int_equal(fx.n_races, 0);
}

/* The same rules without the oracle. */
static int
begin_quiet(void **state)
{
	struct sim_config config = { .n_devices = 1,
				     .mem_bytes = 64 * MIB,
				     .clock = SIM_CLOCK_MANUAL };

	assert_int_equal(sim_start(&config), 0);
	assert_int_equal(sim_primary_retain(0, &fx.ctx), 0);
	assert_int_equal(sim_ctx_set_current(fx.ctx), 0);
	s = must_stream(SIM_STREAM_NON_BLOCKING);
	t = must_stream(SIM_STREAM_NON_BLOCKING);
	return 0;
}

#define T(f) cmocka_unit_test_setup_teardown(f, begin, fixture_end)
#define QUIET(f)                                                                                   \
	{                                                                                          \
		"quiet_" #f, f, begin_quiet, fixture_end, NULL                                     \
	}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_same_stream_at_once),
		T(test_no_rule_keeps_other_streams_away),
		T(test_no_rule_until_the_host_knows),
		T(test_follow_event),
		T(test_follow_event_recorded_too_early),
		T(test_follow_legacy_stream),
		T(test_opportunistic),
		T(test_opportunistic_twice),
		T(test_internal),
		T(test_internal_teaches_nothing),
		T(test_no_rule_is_out_of_memory),
		T(test_use_by_a_third_stream),
		T(test_use_after_free_is_a_race),
		T(test_late_use_races_with_the_next_owner),
		T(test_ordered_use_after_free_faults),
		T(test_old_work_keeps_its_memory),
		T(test_neighbours_of_two_streams),
		T(test_best_fit),
		T(test_host_free_does_not_wait),
		T(test_host_free_after_a_synchronisation),
		T(test_host_free_keeps_the_order_of_the_allocation),
		QUIET(test_no_rule_keeps_other_streams_away),
		QUIET(test_no_rule_until_the_host_knows),
		QUIET(test_follow_event_recorded_too_early),
		QUIET(test_follow_legacy_stream),
		QUIET(test_opportunistic),
		QUIET(test_neighbours_of_two_streams),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
