/* SPDX-License-Identifier: MIT */
/* Memory that goes straight through, and how the cache behaves next to another one. */
#include "tests/unit/allocator/fixture.h"

#include <errno.h>

#include "allocator/api/oom_report.h"

enum { SLOTS = 48, STEPS = 6000 };

static uint64_t
through(struct fixture *f, uint64_t size)
{
	uint64_t address = 0;

	assert_int_equal(ca_alloc_passthrough(f->space, size, &address), 0);
	fixture_check(f);
	return address;
}

static uint64_t
reserved(struct fixture *f)
{
	return fixture_stats(f).reserved_bytes.current;
}

static void
test_it_is_the_drivers_own_and_leaves_with_its_free(void **state)
{
	static const uint64_t sizes[] = { 1, 511, 512, 70000, 2 * MIB, 20 * MIB, 3 * GIB };
	struct fixture f;
	size_t i;

	fixture_defaults(&f);
	fixture_start(&f);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t address = through(&f, sizes[i]), same = through(&f, 4096);
		struct ca_block_info info;

		assert_int_equal(ca_lookup(f.heap, address, &info), 0);
		assert_true(info.foreign && info.live && info.requested_bytes == sizes[i]);
		assert_int_equal(ca_free(f.heap, address + 1), sizes[i] == 1 ? -ENOENT : -EINVAL);
		fixture_free(&f, address);
		assert_int_equal(ca_free(f.heap, address), -ENOENT);
		fixture_free(&f, same);
		assert_int_equal(reserved(&f), 0);
	}
	assert_int_equal(fixture_stats(&f).passed_alloc_calls, 2 * i);
	assert_int_equal(fixture_stats(&f).alloc_calls, 2 * i);
	assert_int_equal(fixture_stats(&f).free_calls, 2 * i);
	assert_int_equal(fixture_stats(&f).driver_alloc_calls, 2 * i);
	assert_int_equal(fixture_stats(&f).driver_free_calls, 2 * i);
	assert_int_equal(fixture_stats(&f).cache_hits, 0);
	fixture_stop(&f);
}

static void
test_bad_requests_are_left_to_the_driver(void **state)
{
	struct fixture f;
	uint64_t address = 7;

	fixture_defaults(&f);
	fixture_start(&f);
	assert_int_equal(ca_alloc_passthrough(f.space, 0, &address), -EINVAL);
	assert_int_equal(ca_alloc_passthrough(f.space, ((uint64_t)1 << 60) + 1, &address), -E2BIG);
	ca_space_kill(f.space);
	assert_int_equal(ca_alloc_passthrough(f.space, 512, &address), -ENODEV);
	assert_int_equal(address, 7);
	fixture_stop(&f);
}

static void
test_it_is_refused_only_when_the_cache_has_given_everything_back(void **state)
{
	uint64_t blocks[30], address = 7;
	struct fixture f;
	int i;

	fixture_defaults(&f);
	fixture_start(&f);
	for (i = 0; i < 30; i++)
		blocks[i] = fixture_alloc(&f, 100 * MIB);
	for (i = 0; i < 30; i++)
		fixture_free(&f, blocks[i]);
	assert_int_equal(reserved(&f), 3000 * MIB);
	address = through(&f, 4 * GIB);
	assert_int_equal(reserved(&f), 4 * GIB);
	assert_true(fixture_stats(&f).alloc_retries > 0);
	assert_int_equal(fixture_stats(&f).ooms, 0);
	assert_int_equal(ca_alloc_passthrough(f.space, 512, &address), CA_DRIVER_OUT_OF_MEMORY);
	assert_int_equal(fixture_stats(&f).ooms, 1);
	assert_int_equal(fixture_stats(&f).passed_alloc_calls, 1);
	fixture_check(&f);
	fixture_stop(&f);
}

static void
test_a_limit_counts_it_and_what_is_cached_goes_first(void **state)
{
	uint64_t address = 7, live;
	struct ca_report report;
	struct fixture f;

	fixture_defaults(&f);
	f.config.limit.bytes = 100 * MIB;
	fixture_start(&f);
	live = through(&f, 30 * MIB);
	fixture_free(&f, fixture_alloc(&f, 40 * MIB));
	fixture_free(&f, fixture_alloc(&f, 20 * MIB));
	assert_int_equal(ca_alloc_passthrough(f.space, 71 * MIB, &address),
			 CA_DRIVER_OUT_OF_MEMORY);
	ca_report_fill(f.space, 71 * MIB, &report);
	assert_true(report.tried.rejected_by_us && report.tried.given_bytes &&
		    report.limit_kind == CA_LIMIT_OWN);
	assert_int_equal(address, 7);
	through(&f, 70 * MIB);
	fixture_free(&f, live);
	assert_int_equal(reserved(&f), 70 * MIB);
	fixture_check(&f);
	fixture_stop(&f);
}

/* As for memory that is cached: oom_retry_ms, then oom_fallback:managed. */
static void
test_the_last_resorts_are_for_it_too(void **state)
{
	uint64_t address;
	struct fixture f;

	fixture_defaults(&f);
	f.config.oom_retry_ms = 100;
	f.config.oom_managed = true;
	f.pretend.work_ns = UINT64_MAX; /* nobody sleeps */
	fixture_start(&f);
	ca_model_fail(f.model, CA_MODEL_TAKE, 1, false, CA_DRIVER_OUT_OF_MEMORY);
	fixture_free(&f, through(&f, 40 * MIB));
	assert_int_equal(fixture_stats(&f).managed_fallbacks, 0);
	ca_model_fail(f.model, CA_MODEL_TAKE, 1, true, CA_DRIVER_OUT_OF_MEMORY);
	address = through(&f, 40 * MIB);
	assert_int_equal(fixture_stats(&f).managed_fallbacks, 1);
	assert_int_equal(reserved(&f), 40 * MIB);
	fixture_free(&f, address);
	assert_int_equal(reserved(&f), 0);
	assert_int_equal(fixture_stats(&f).ooms, 0);
	fixture_stop(&f);
}

/* Another's segment of 100 MiB, after a workspace of as much: what is held then. */
static uint64_t
held_after_a_workspace(bool shared)
{
	struct fixture f;
	uint64_t held;

	fixture_defaults(&f);
	fixture_start(&f);
	if (shared)
		ca_heap_share(f.heap);
	fixture_free(&f, fixture_alloc(&f, 100 * MIB));
	through(&f, 100 * MIB);
	held = reserved(&f);
	assert_int_equal(fixture_stats(&f).reserved_bytes.peak, held);
	fixture_stop(&f);
	return held;
}

static void
test_next_to_another_cache_what_is_cached_goes_back(void **state)
{
	assert_int_equal(held_after_a_workspace(true), 100 * MIB);
	assert_int_equal(held_after_a_workspace(false), 200 * MIB);
}

/* The driver's free may wait for a kernel that waits for the caller. */
static void
test_next_to_another_cache_nothing_goes_back_while_the_device_works(void **state)
{
	static char handle;
	struct ca_stream *stream;
	struct fixture f;

	fixture_defaults(&f);
	fixture_start(&f);
	ca_heap_share(f.heap);
	fixture_free(&f, fixture_alloc(&f, 100 * MIB));
	assert_int_equal(ca_stream_open(f.space, CA_STREAM_BLOCKING, &handle, true, &stream), 0);
	ca_stream_note_thread(stream);
	ca_submit_begin(stream, NULL);
	ca_model_stream_submit(f.model, &handle);
	ca_submit_end(stream);
	through(&f, 40 * MIB);
	assert_int_equal(reserved(&f), 140 * MIB);
	assert_int_equal(fixture_stats(&f).driver_free_calls, 0);
	fixture_stop(&f);
}

/* Workspaces of the time before; another cache's segments; the same model's memory at each step. */
static void
test_next_to_another_cache_no_more_is_held_than_without_us(void **state)
{
	uint64_t seed = fixture_seed(61) | 1, slots[SLOTS] = { 0 }, sizes[SLOTS] = { 0 }, live = 0;
	struct fixture f;
	int step;

	fixture_defaults(&f);
	f.pretend.capacity = 64 * GIB;
	fixture_start(&f);
	ca_heap_share(f.heap);
	for (step = 0; step < STEPS; step++) {
		unsigned i = (unsigned)(fixture_random(&seed) % SLOTS);

		if (slots[i]) {
			assert_int_equal(ca_free(f.heap, slots[i]), 0);
			slots[i] = 0;
			live -= sizes[i];
			continue;
		}
		/* a workspace that fills its segment */
		sizes[i] = (i ? 2 + fixture_random(&seed) % 30 : 128) * 2 * MIB;
		live += sizes[i];
		assert_int_equal(i ? ca_alloc_passthrough(f.space, sizes[i], &slots[i])
				   : ca_alloc(f.space, sizes[i], &slots[i]),
				 0);
		if (i)
			assert_int_equal(reserved(&f), live);
		if (step % 64 == 0)
			fixture_check(&f);
	}
	fixture_stop(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_it_is_the_drivers_own_and_leaves_with_its_free),
		cmocka_unit_test(test_bad_requests_are_left_to_the_driver),
		cmocka_unit_test(test_it_is_refused_only_when_the_cache_has_given_everything_back),
		cmocka_unit_test(test_a_limit_counts_it_and_what_is_cached_goes_first),
		cmocka_unit_test(test_the_last_resorts_are_for_it_too),
		cmocka_unit_test(test_next_to_another_cache_what_is_cached_goes_back),
		cmocka_unit_test(
			test_next_to_another_cache_nothing_goes_back_while_the_device_works),
		cmocka_unit_test(test_next_to_another_cache_no_more_is_held_than_without_us),
	};

	return cmocka_run_group_tests_name("through", tests, NULL, NULL);
}
