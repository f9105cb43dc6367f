/* SPDX-License-Identifier: MIT */
/* The settings that shape and shrink the cache: limit.c, round.c, trim.c, the ladder's last
 * resorts. (All of them together, at random: test_sequence.c.) */
#include "tests/unit/allocator/order/fixture.h"

#include <errno.h>

#include "allocator/api/oom_report.h"

static uint64_t
block_bytes(struct fixture *f, uint64_t size)
{
	uint64_t address = fixture_alloc(f, size);
	struct ca_block_info info;

	assert_int_equal(ca_lookup(f->heap, address, &info), 0);
	return info.block_bytes;
}

static void
start(struct fixture *f, uint64_t capacity)
{
	f->pretend.capacity = capacity;
	f->pretend.granularity = 512;
	fixture_start(f);
}

static void
test_sizes_are_rounded_to_divisions_of_a_power_of_two(void **state)
{
	struct fixture f;

	fixture_defaults(&f);
	f.config.roundup = (struct ca_roundup){
		.count = 3,
		.interval = { { 1 * MIB, 4 }, { 4 * MIB, 0 }, { UINT64_MAX, 8 } },
	};
	start(&f, 4 * GIB);
	assert_int_equal(block_bytes(&f, 1), 512);
	assert_int_equal(block_bytes(&f, 1200), 1536); /* a step below the grain rounds nothing */
	assert_int_equal(block_bytes(&f, 5 * KIB), 5 * KIB);
	assert_int_equal(block_bytes(&f, 5 * KIB + 1), 6 * KIB);
	assert_int_equal(block_bytes(&f, 8 * KIB), 8 * KIB);
	assert_int_equal(block_bytes(&f, 8 * KIB + 1), 10 * KIB);
	assert_int_equal(block_bytes(&f, 1 * MIB - 1), 1 * MIB);
	assert_int_equal(block_bytes(&f, 3 * MIB + 1), 3 * MIB + 512); /* off in there */
	assert_int_equal(block_bytes(&f, 33 * MIB), 36 * MIB);
	assert_int_equal(block_bytes(&f, 64 * MIB), 64 * MIB);
	fixture_stop(&f);
}

static void
test_a_limit_is_out_of_memory_and_cached_memory_goes_first(void **state)
{
	struct fixture f;
	struct ca_report report;
	uint64_t a, b, out, free_bytes = 4 * GIB, total = 4 * GIB;

	fixture_defaults(&f);
	f.config.limit.bytes = 100 * MIB;
	start(&f, 4 * GIB);
	a = fixture_alloc(&f, 60 * MIB);
	assert_int_equal(ca_alloc(f.space, 60 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	ca_report_fill(f.space, 60 * MIB, &report);
	assert_true(report.tried.rejected_by_us && report.limit_kind == CA_LIMIT_OWN);
	assert_int_equal(report.allowed, 100 * MIB);
	assert_int_equal(fixture_sums(&f).calls[CA_MODEL_TAKE], 1); /* the driver was not asked */
	fixture_free(&f, a);
	b = fixture_alloc(&f, 90 * MIB);
	assert_int_equal(fixture_sums(&f).held_bytes, 90 * MIB);
	ca_limit_info(f.space, &free_bytes, &total);
	assert_int_equal(total, 100 * MIB);
	assert_int_equal(free_bytes, 10 * MIB);
	fixture_free(&f, b);
	/* other calls count, too, and get the cached memory's room */
	assert_true(ca_charge(f.space, 50 * MIB));
	assert_int_equal(fixture_sums(&f).held_bytes, 0);
	ca_charge_keep(f.space, CA_CHARGE_ARRAY, 77, 50 * MIB);
	assert_int_equal(ca_alloc(f.space, 60 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	assert_false(ca_charge(f.space, 51 * MIB));
	assert_false(ca_charge(f.space, UINT64_MAX));
	fixture_alloc(&f, 50 * MIB);
	fixture_stop(&f);
}

static void
test_what_was_charged_goes_by_its_handle(void **state)
{
	struct fixture f;
	struct ca_space *space = NULL;

	fixture_defaults(&f);
	f.config.limit.share = CA_WHOLE / 2;
	start(&f, 200 * MIB);
	assert_true(ca_charge(f.space, 100 * MIB));
	assert_false(ca_charge(f.space, 1));
	ca_charge_keep(f.space, CA_CHARGE_ADDRESS, 5, 100 * MIB);
	assert_int_equal(ca_charge_drop(f.heap, CA_CHARGE_ARRAY, 5, &space), 0);
	assert_int_equal(ca_charge_drop(f.heap, CA_CHARGE_ADDRESS, 6, &space), 0);
	assert_int_equal(ca_charge_drop(f.heap, CA_CHARGE_ADDRESS, 5, &space), 100 * MIB);
	assert_ptr_equal(space, f.space);
	ca_charge_restore(space, CA_CHARGE_ADDRESS, 5, 100 * MIB); /* the free failed */
	assert_false(ca_charge(f.space, 1));
	assert_int_equal(ca_charge_drop(f.heap, CA_CHARGE_ADDRESS, 5, &space), 100 * MIB);
	assert_int_equal(ca_charge_drop(f.heap, CA_CHARGE_ADDRESS, 5, &space), 0);
	assert_true(ca_charge(f.space, 100 * MIB));
	ca_charge_abort(f.space, 100 * MIB);
	/* a context takes what it has with it, but for physical memory */
	assert_true(ca_charge(f.space, 30 * MIB));
	ca_charge_keep(f.space, CA_CHARGE_ADDRESS, 8, 30 * MIB);
	assert_true(ca_charge(f.space, 20 * MIB));
	ca_charge_keep(f.space, CA_CHARGE_PHYSICAL, 8, 20 * MIB);
	ca_space_kill(f.space);
	assert_int_equal(ca_charge_drop(f.heap, CA_CHARGE_ADDRESS, 8, &space), 0);
	assert_int_equal(ca_charge_drop(f.heap, CA_CHARGE_PHYSICAL, 8, &space), 20 * MIB);
	fixture_stop(&f);
}

static void
test_a_fraction_caps_segments_only(void **state)
{
	struct fixture f;
	uint64_t out;

	fixture_defaults(&f);
	f.config.memory_fraction = CA_WHOLE / 2;
	start(&f, 200 * MIB);
	fixture_alloc(&f, 90 * MIB);
	assert_int_equal(ca_alloc(f.space, 12 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	assert_true(ca_charge(f.space, 500 * MIB));
	ca_charge_abort(f.space, 500 * MIB);
	fixture_alloc(&f, 10 * MIB);
	fixture_stop(&f);
}

static void
test_beyond_the_threshold_what_was_unused_longest_goes(void **state)
{
	struct fixture f;
	struct ca_block_info info;
	uint64_t old, recent, other;

	fixture_defaults(&f);
	f.config.gc_threshold = CA_WHOLE / 2;
	f.config.give_back_oom = true; /* this alone */
	start(&f, 200 * MIB);
	old = fixture_alloc(&f, 30 * MIB);
	recent = fixture_alloc(&f, 32 * MIB);
	fixture_free(&f, old);
	other = fixture_alloc(&f, 20 * MIB + 1); /* from the cache; not above the threshold */
	fixture_free(&f, other);
	assert_int_equal(fixture_stats(&f).driver_free_calls, 0);
	fixture_alloc(&f, 35 * MIB); /* 62 + 36 MiB: a miss, which sees that `old` rests */
	fixture_free(&f, recent);
	assert_int_equal(fixture_stats(&f).driver_free_calls, 0);
	fixture_alloc(&f, 40 * MIB); /* 137 MiB would be held: 37 too many */
	assert_int_equal(fixture_stats(&f).trims, 2);
	assert_int_equal(ca_lookup(f.heap, old, &info), -ENOENT);
	fixture_stop(&f);
}

/* While the device works nothing is given back in an allocation: the next free does. */
static void
test_no_trim_waits_where_the_driver_would_not(void **state)
{
	struct fixture f;
	struct ca_stream *s;
	uint64_t a, b;

	fixture_defaults(&f);
	f.config.gc_threshold = CA_WHOLE / 2;
	f.config.max_cached_bytes = 40 * MIB;
	f.pretend.work_ns = 1000 * 1000; /* nobody sleeps */
	start(&f, 200 * MIB);
	s = order_open(&f, 1);
	a = fixture_alloc(&f, 90 * MIB);
	b = fixture_alloc(&f, 2 * MIB);
	fixture_free(&f, a);
	order_launch(&f, s);
	ca_auto_trim(f.space, false);
	fixture_alloc(&f, 100 * MIB);
	assert_int_equal(fixture_stats(&f).driver_free_calls, 1); /* the ladder's */
	fixture_free(&f, b);
	assert_int_equal(fixture_stats(&f).trims, 0);
	fixture_stop(&f);
}

static void
test_no_more_is_cached_than_max_cached_mb(void **state)
{
	struct fixture f;
	uint64_t blocks[8];

	fixture_defaults(&f);
	f.config.max_cached_bytes = 70 * MIB;
	start(&f, 4 * GIB);
	for (unsigned i = 0; i < 8; i++)
		blocks[i] = fixture_alloc(&f, 30 * MIB);
	for (unsigned i = 0; i < 8; i++) {
		fixture_free(&f, blocks[i]);
		ca_auto_trim(f.space, true);
		assert_true(fixture_stats(&f).reserved_bytes.current -
				    fixture_stats(&f).allocated_bytes.current <=
			    70 * MIB);
		fixture_check(&f);
	}
	assert_int_equal(fixture_stats(&f).trims, 6);
	/* what is left was freed last */
	assert_true(fixture_alloc(&f, 30 * MIB) >= blocks[6]);
	fixture_stop(&f);
}

/* What a stream still uses counts, and a free waits for it, as the driver's own would. */
static void
test_unfinished_memory_counts_as_cached(void **state)
{
	struct fixture f;
	struct ca_stream *s;
	uint64_t a, b;

	fixture_defaults(&f);
	f.config.max_cached_bytes = 50 * MIB;
	start(&f, 4 * GIB);
	s = order_open(&f, 1);
	a = fixture_alloc(&f, 40 * MIB);
	b = fixture_alloc(&f, 40 * MIB);
	order_launch(&f, s);
	fixture_free(&f, a);
	ca_auto_trim(f.space, true);
	assert_int_equal(fixture_sums(&f).held_bytes, 80 * MIB);
	fixture_free(&f, b);
	ca_auto_trim(f.space, true);
	assert_int_equal(fixture_sums(&f).held_bytes, 40 * MIB);
	fixture_stop(&f);
}

/* The driver refused to take it back while something captured. */
static void
test_what_a_capture_held_up_counts_as_cached_and_goes_first(void **state)
{
	struct fixture f;
	uint64_t address;

	fixture_defaults(&f);
	f.config.max_cached_bytes = 10 * MIB;
	start(&f, 4 * GIB);
	assert_int_equal(ca_alloc_passthrough(f.space, 40 * MIB, &address), 0);
	ca_model_set_capturing(f.model, true);
	fixture_free(&f, address);
	ca_model_set_capturing(f.model, false);
	assert_int_equal(fixture_sums(&f).held_bytes, 40 * MIB);
	ca_auto_trim(f.space, true);
	assert_int_equal(fixture_sums(&f).held_bytes, 0);
	fixture_stop(&f);
}

static void
test_trim_every_and_the_floor(void **state)
{
	struct fixture f;
	uint64_t a, b, c;

	fixture_defaults(&f);
	f.config.trim_every = 3;
	f.config.min_reserve_bytes = 30 * MIB;
	start(&f, 100 * MIB);
	a = fixture_alloc(&f, 30 * MIB);
	b = fixture_alloc(&f, 32 * MIB);
	fixture_free(&f, a);
	fixture_free(&f, b);
	ca_auto_trim(f.space, true);
	assert_int_equal(fixture_stats(&f).trims, 0);
	c = fixture_alloc(&f, 1000);
	ca_auto_trim(f.space, false);
	assert_int_equal(fixture_stats(&f).trims, 1); /* the other is kept */
	assert_int_equal(fixture_sums(&f).held_bytes, 34 * MIB);
	fixture_free(&f, c);
	fixture_alloc(&f, 90 * MIB); /* the floor yields */
	fixture_stop(&f);
}

static uint64_t now_ns;

static uint64_t
fake_clock(void *self)
{
	return now_ns;
}

static void
test_segments_unused_for_long_enough_go(void **state)
{
	struct fixture f;
	uint64_t a, b;

	fixture_defaults(&f);
	f.config.trim_idle_ms = 100;
	f.pretend.capacity = 4 * GIB;
	assert_int_equal(ca_model_create(&f.pretend, &f.model), 0);
	ca_model_driver(f.model, &f.driver);
	f.driver.clock_ns = fake_clock;
	assert_int_equal(ca_heap_create(&f.config, &f.driver, &f.heap), 0);
	assert_int_equal(ca_space_create(f.heap, (void *)1, 0, &f.space), 0);
	now_ns = 1000 * MIB;
	a = fixture_alloc(&f, 30 * MIB);
	b = fixture_alloc(&f, 40 * MIB);
	fixture_free(&f, a);
	fixture_free(&f, b);
	for (unsigned i = 0; i < 20; i++) {
		now_ns += 10 * 1000 * 1000;
		b = fixture_alloc(&f, 40 * MIB); /* stays in use */
		fixture_free(&f, b);
		ca_auto_trim(f.space, false);
		if (i < 9)
			assert_int_equal(fixture_sums(&f).held_bytes, 70 * MIB);
	}
	assert_int_equal(fixture_sums(&f).held_bytes, 40 * MIB);
	now_ns += 60 * 1000 * 1000;
	ca_auto_trim(f.space, false);
	now_ns += 160 * 1000 * 1000;
	ca_auto_trim(f.space, false);
	assert_int_equal(fixture_sums(&f).held_bytes, 0);
	fixture_stop(&f);
}

static unsigned refused;

static void
give_after_three(void *arg, enum ca_model_function function, bool end)
{
	struct fixture *f = arg;

	if (function == CA_MODEL_TAKE && !end && ++refused == 4)
		ca_model_fail(f->model, CA_MODEL_TAKE, 0, false, 0);
}

static void
test_the_driver_is_asked_again_for_a_time(void **state)
{
	struct fixture f;
	uint64_t out;

	fixture_defaults(&f);
	f.config.oom_retry_ms = 40;
	start(&f, 100 * MIB);
	ca_model_fail(f.model, CA_MODEL_TAKE, 1, true, CA_DRIVER_OUT_OF_MEMORY);
	ca_model_set_observer(f.model, give_after_three, &f);
	fixture_alloc(&f, 50 * MIB);
	assert_true(refused >= 4);
	ca_model_set_observer(f.model, NULL, NULL);
	ca_model_fail(f.model, CA_MODEL_TAKE, 1, true, CA_DRIVER_OUT_OF_MEMORY);
	assert_int_equal(ca_alloc(f.space, 60 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	fixture_stop(&f);
}

/* The driver has 60 MiB, in pieces: managed memory, but never more than that. */
static void
test_managed_memory_is_the_last_resort(void **state)
{
	struct fixture f;
	struct ca_block_info info;
	uint64_t live, managed, out;

	fixture_defaults(&f);
	f.config.oom_managed = true;
	start(&f, 100 * MIB);
	live = fixture_alloc(&f, 40 * MIB);
	assert_int_equal(ca_alloc(f.space, 61 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	ca_model_fail(f.model, CA_MODEL_TAKE, 1, true, CA_DRIVER_OUT_OF_MEMORY);
	managed = fixture_alloc(&f, 40 * MIB);
	assert_int_equal(ca_lookup(f.heap, managed, &info), 0);
	assert_true(info.foreign);
	assert_int_equal(ca_alloc(f.space, 40 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	fixture_alloc(&f, 20 * MIB);
	fixture_free(&f, managed); /* goes back, and makes room for other managed memory */
	fixture_alloc(&f, 40 * MIB);
	assert_int_equal(fixture_stats(&f).managed_fallbacks, 3);
	assert_true(live);
	fixture_stop(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes_are_rounded_to_divisions_of_a_power_of_two),
		cmocka_unit_test(test_a_limit_is_out_of_memory_and_cached_memory_goes_first),
		cmocka_unit_test(test_what_was_charged_goes_by_its_handle),
		cmocka_unit_test(test_a_fraction_caps_segments_only),
		cmocka_unit_test(test_beyond_the_threshold_what_was_unused_longest_goes),
		cmocka_unit_test(test_no_trim_waits_where_the_driver_would_not),
		cmocka_unit_test(test_no_more_is_cached_than_max_cached_mb),
		cmocka_unit_test(test_unfinished_memory_counts_as_cached),
		cmocka_unit_test(test_what_a_capture_held_up_counts_as_cached_and_goes_first),
		cmocka_unit_test(test_trim_every_and_the_floor),
		cmocka_unit_test(test_segments_unused_for_long_enough_go),
		cmocka_unit_test(test_the_driver_is_asked_again_for_a_time),
		cmocka_unit_test(test_managed_memory_is_the_last_resort),
	};

	return cmocka_run_group_tests_name("allocator-keys", tests, NULL, NULL);
}
