/* SPDX-License-Identifier: MIT */
/* allocator/policy: what the driver keeps for nobody goes back where it has no memory, and by
 * trims. */
#include "tests/unit/allocator/fixture.h"

#include "allocator/api/oom_report.h"

/* A pool of the driver's: one segment of the device that nobody uses. */
static struct pool {
	struct fixture *f;
	uint64_t address, bytes; /* 0: it holds nothing */
	unsigned trims, graphs;
	uint64_t keep;
} pool;

static uint64_t
pools_trim(void *self, unsigned device, uint64_t keep_bytes, bool graphs)
{
	uint64_t given = pool.bytes > keep_bytes ? pool.bytes : 0;

	assert_int_equal(device, 0);
	pool.trims++;
	pool.graphs += graphs;
	pool.keep = keep_bytes;
	if (given) {
		bool capturing = pool.f->driver.capturing(self);

		ca_model_set_capturing(pool.f->model, false); /* a trim is none of its business */
		assert_int_equal(pool.f->driver.segment_return(self, (void *)1, pool.address), 0);
		ca_model_set_capturing(pool.f->model, capturing);
		pool.bytes = 0;
	}
	return given;
}

static void
fill(uint64_t bytes)
{
	const struct ca_driver *driver = &pool.f->driver;

	assert_int_equal(driver->segment_take(driver->self, (void *)1, bytes, &pool.address), 0);
	pool.bytes = bytes;
}

/* A device of 100 MiB, `bytes` of them in the pool. */
static void
start(struct fixture *f, uint64_t bytes)
{
	f->pretend.capacity = 100 * MIB;
	assert_int_equal(ca_model_create(&f->pretend, &f->model), 0);
	ca_model_driver(f->model, &f->driver);
	f->driver.pools_trim = pools_trim;
	assert_int_equal(ca_heap_create(&f->config, &f->driver, &f->heap), 0);
	assert_int_equal(ca_space_create(f->heap, (void *)1, 0, &f->space), 0);
	pool = (struct pool){ .f = f };
	fill(bytes);
}

/* Without the fixture's check: the model's sums count what the pool holds, too. */
static uint64_t
alloc(struct fixture *f, uint64_t bytes)
{
	uint64_t address;

	assert_int_equal(ca_alloc(f->space, bytes, &address), 0);
	return address;
}

static void
test_an_allocation_gets_it(void **state)
{
	struct ca_report report;
	struct fixture f;
	uint64_t out;

	fixture_defaults(&f);
	start(&f, 60 * MIB);
	alloc(&f, 80 * MIB);
	assert_int_equal(pool.trims, 1);
	assert_int_equal(pool.graphs, 1);
	assert_int_equal(pool.keep, 0);
	ca_report_fill(f.space, MIB, &report);
	assert_int_equal(report.tried.pool_bytes, 60 * MIB);
	assert_int_equal(fixture_stats(&f).flushes, 1);
	assert_int_equal(ca_alloc(f.space, 30 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	assert_int_equal(fixture_stats(&f).ooms, 1);
	fixture_check(&f);
	fixture_stop(&f);
}

/* As long as cached segments suffice it is left alone. */
static void
test_the_cache_goes_first(void **state)
{
	struct fixture f;
	uint64_t a;

	fixture_defaults(&f);
	f.config.give_back_oom = true;
	start(&f, 40 * MIB);
	a = alloc(&f, 40 * MIB);
	assert_int_equal(ca_free(f.heap, a), 0);
	alloc(&f, 50 * MIB);
	assert_int_equal(pool.trims, 0);
	assert_int_equal(ca_trim(f.heap, 0), 40 * MIB);
	fixture_stop(&f);
}

static void
test_the_twins_get_it(void **state)
{
	struct fixture f;
	uint64_t out;

	fixture_defaults(&f);
	start(&f, 60 * MIB);
	assert_int_equal(ca_alloc_passthrough(f.space, 80 * MIB, &out), 0);
	assert_int_equal(pool.trims, 1);
	assert_int_equal(ca_free(f.heap, out), 0);

	fill(60 * MIB);
	assert_true(ca_reclaim(f.space, 80 * MIB, NULL));
	assert_false(ca_reclaim(f.space, 80 * MIB, NULL));
	assert_int_equal(pool.bytes, 0);

	fill(60 * MIB);
	ca_model_set_capturing(f.model, true);
	alloc(&f, 80 * MIB);
	assert_int_equal(pool.bytes, 0);
	fixture_stop(&f);
}

static void
test_trims_empty_it_too(void **state)
{
	struct fixture f;

	fixture_defaults(&f);
	f.config.trim_every = 3;
	start(&f, 40 * MIB);
	assert_int_equal(ca_trim(f.heap, 50 * MIB), 0);
	assert_int_equal(pool.keep, 50 * MIB);
	alloc(&f, MIB);
	assert_int_equal(ca_trim(f.heap, 0), 40 * MIB);
	assert_int_equal(pool.trims, 2);
	fill(40 * MIB);
	alloc(&f, MIB);
	ca_auto_trim(f.space, true);
	assert_int_equal(pool.trims, 2);
	alloc(&f, MIB);
	ca_auto_trim(f.space, true);
	assert_int_equal(pool.trims, 3);
	assert_int_equal(pool.bytes, 0);
	assert_int_equal(pool.graphs, 0); /* graphs' memory goes only where there is no other */
	fixture_stop(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_allocation_gets_it),
		cmocka_unit_test(test_the_cache_goes_first),
		cmocka_unit_test(test_the_twins_get_it),
		cmocka_unit_test(test_trims_empty_it_too),
	};

	return cmocka_run_group_tests_name("allocator-oom-pools", tests, NULL, NULL);
}
