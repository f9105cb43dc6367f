/* SPDX-License-Identifier: MIT */
/* allocator/ladder.c: what is given back, in which order, before "out of memory" is answered. */
#define FIXTURE_UNSEEN
#include "tests/unit/allocator/fixture.h"

#include <errno.h>

/* Out of memory gives back what is cached, waits for what is pending, and only then fails. */
static void
test_ladder(void **state)
{
	struct fixture f;
	uint64_t a, b, c, out;
	struct ca_stats stats;

	fixture_defaults(&f);
	f.pretend.capacity = 100 * MIB;
	f.config.reuse_slack_bytes = UINT64_MAX;
	fixture_start(&f);
	a = fixture_alloc(&f, 40 * MIB);
	b = fixture_alloc(&f, 40 * MIB);
	fixture_free(&f, a);
	assert_int_equal(ca_trim(f.heap, UINT64_MAX), 0); /* polls only */
	fixture_alloc(&f, 50 * MIB);                      /* releases a */
	stats = fixture_stats(&f);
	assert_int_equal(stats.flushes, 1);
	assert_int_equal(stats.alloc_retries, 1);
	ca_model_submit(f.model);
	fixture_free(&f, b);
	c = fixture_alloc(&f, 40 * MIB); /* waits for b */
	assert_int_equal(c, b);
	assert_int_equal(fixture_stats(&f).host_syncs, 2); /* the return above, the wait */
	assert_int_equal(ca_alloc(f.space, 20 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	fixture_check(&f);
	assert_int_equal(fixture_stats(&f).ooms, 1);
	/* 10 MiB are left: the pool's rule asks for 20, the exact size fits */
	fixture_alloc(&f, 9 * MIB);
	fixture_stop(&f);
}

/* Another context's cache on the same device goes, too; pending as well as clean. */
static void
test_ladder_other_space(void **state)
{
	struct fixture f;
	struct ca_space *other;
	uint64_t a, b;

	fixture_defaults(&f);
	f.pretend.capacity = 100 * MIB;
	fixture_start(&f);
	assert_int_equal(ca_space_create(f.heap, (void *)2, 0, &other), 0);
	assert_int_equal(ca_alloc(other, 60 * MIB, &a), 0);
	ca_model_submit(f.model);
	fixture_free(&f, a);
	b = fixture_alloc(&f, 60 * MIB);
	assert_true(b != 0);
	assert_int_equal(fixture_sums(&f).held_bytes, 60 * MIB);
	fixture_stop(&f);
}

/* What the driver refused to take back is offered again before "out of memory" is answered. */
static void
test_ladder_refused(void **state)
{
	struct fixture f;
	uint64_t a, out;

	fixture_defaults(&f);
	f.pretend.capacity = 40 * MIB;
	fixture_start(&f);
	a = fixture_alloc(&f, 20 * MIB);
	fixture_free(&f, a);
	ca_model_fail(f.model, CA_MODEL_RETURN, 1, true, 700);
	assert_int_equal(ca_alloc(f.space, 40 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	fixture_check(&f);
	ca_model_fail(f.model, CA_MODEL_RETURN, 0, false, 0);
	fixture_alloc(&f, 40 * MIB);
	fixture_stop(&f);
}

/* Busy without a capture (a context on its way out): a moment later it works. */
static void
test_ladder_busy(void **state)
{
	struct fixture f;
	uint64_t a, out;

	fixture_defaults(&f);
	f.pretend.capacity = 40 * MIB;
	fixture_start(&f);
	a = fixture_alloc(&f, 20 * MIB);
	fixture_free(&f, a);
	ca_model_fail(f.model, CA_MODEL_RETURN, 1, false, -EBUSY);
	fixture_alloc(&f, 40 * MIB);
	ca_model_fail(f.model, CA_MODEL_RETURN, 1, true, -EBUSY);
	assert_int_equal(ca_alloc(f.space, 40 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	fixture_check(&f);
	fixture_stop(&f);
}

static void
test_reclaim(void **state)
{
	struct fixture f;
	uint64_t a, b;

	fixture_defaults(&f);
	fixture_start(&f);
	a = fixture_alloc(&f, 40 * MIB);
	b = fixture_alloc(&f, 30 * MIB);
	ca_model_submit(f.model);
	fixture_free(&f, a);
	fixture_free(&f, b);
	assert_true(ca_reclaim(f.space, 10 * MIB));
	fixture_check(&f);
	assert_true(ca_reclaim(f.space, 10 * MIB));
	assert_false(ca_reclaim(f.space, 10 * MIB));
	assert_int_equal(fixture_sums(&f).held_bytes, 0);
	fixture_stop(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ladder),         cmocka_unit_test(test_ladder_other_space),
		cmocka_unit_test(test_ladder_refused), cmocka_unit_test(test_ladder_busy),
		cmocka_unit_test(test_reclaim),
	};

	return cmocka_run_group_tests_name("allocator-ladder", tests, NULL, NULL);
}
