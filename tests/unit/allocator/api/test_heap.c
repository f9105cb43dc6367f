/* SPDX-License-Identifier: MIT */
/* What a program sees of the heap: pools, reuse, statistics, errors, dying contexts. */
#define FIXTURE_UNSEEN
#include "tests/unit/allocator/fixture.h"

#include <errno.h>

static void
test_small_segment(void **state)
{
	struct fixture f;
	uint64_t a, b;

	fixture_defaults(&f);
	fixture_start(&f);
	a = fixture_alloc(&f, 1);
	b = fixture_alloc(&f, 513);
	assert_int_equal(b, a + 512);
	assert_int_equal(fixture_sums(&f).held_bytes, 2 * MIB);
	assert_int_equal(fixture_stats(&f).cache_hits, 1);
	assert_int_equal(fixture_stats(&f).allocated_bytes.current, 512 + 1024);
	assert_int_equal(fixture_stats(&f).requested_bytes.current, 514);
	assert_int_equal(fixture_stats(&f).cached_bytes.peak, 2 * MIB - 512);
	fixture_free(&f, a);
	fixture_free(&f, b);
	assert_int_equal(fixture_stats(&f).pending_blocks, 2);
	assert_int_equal(ca_trim(f.heap, 0), 2 * MIB);
	assert_int_equal(fixture_sums(&f).held_bytes, 0);
	assert_int_equal(fixture_sums(&f).marks, 0);
	fixture_stop(&f);
}

static void
test_large_segments(void **state)
{
	struct fixture f;
	uint64_t a, b, c;

	fixture_defaults(&f);
	fixture_start(&f);
	a = fixture_alloc(&f, 3 * MIB + 5);
	assert_int_equal(fixture_sums(&f).held_bytes, 20 * MIB);
	b = fixture_alloc(&f, 3 * MIB); /* starts on the next boundary, not right behind */
	assert_int_equal(b, a + 3 * MIB + 64 * KIB);
	c = fixture_alloc(&f, 1 * MIB + 512 * KIB);
	assert_true(c == b + 3 * MIB); /* the hole before b is too small for it */
	assert_int_equal(fixture_sums(&f).held_bytes, 20 * MIB);
	fixture_alloc(&f, 13 * MIB + 1);
	assert_int_equal(fixture_sums(&f).held_bytes, 34 * MIB);
	fixture_stop(&f);
}

/* A freed block must not come back before the work
 * that used it is finished, and does so right after. */
static void
test_reuse_waits(void **state)
{
	struct fixture f;
	uint64_t a, b, c, work;

	fixture_defaults(&f);
	fixture_start(&f);
	a = fixture_alloc(&f, 20 * MIB);
	work = ca_model_submit(f.model);
	fixture_free(&f, a);
	b = fixture_alloc(&f, 20 * MIB);
	assert_int_not_equal(a, b);
	ca_model_finish(f.model, work);
	c = fixture_alloc(&f, 20 * MIB);
	assert_int_equal(a, c);
	assert_int_equal(fixture_stats(&f).taken_pending_done, 1);
	assert_int_equal(fixture_stats(&f).order_marks, 1);
	assert_int_equal(fixture_stats(&f).host_syncs, 0);
	fixture_stop(&f);
}

/* Beyond reuse_slack the host waits rather than taking more. */
static void
test_slack(void **state)
{
	struct fixture f;
	uint64_t a;
	int i;

	fixture_defaults(&f);
	fixture_start(&f);
	for (i = 0; i < 20; i++) {
		a = fixture_alloc(&f, 20 * MIB);
		ca_model_submit(f.model);
		fixture_free(&f, a);
	}
	assert_int_equal(fixture_sums(&f).held_bytes, 80 * MIB);
	assert_true(fixture_stats(&f).host_syncs > 0);
	fixture_stop(&f);
}

static void
test_no_marks(void **state)
{
	struct fixture f;
	uint64_t a;
	int i;

	fixture_defaults(&f);
	f.pretend.no_marks = true;
	f.config.reuse_slack_bytes = 0;
	fixture_start(&f);
	for (i = 0; i < 5; i++) {
		a = fixture_alloc(&f, 20 * MIB);
		ca_model_submit(f.model);
		fixture_free(&f, a);
	}
	assert_int_equal(fixture_sums(&f).held_bytes, 20 * MIB);
	assert_int_equal(fixture_sums(&f).calls[CA_MODEL_RECORD], 1);
	assert_int_equal(fixture_sums(&f).calls[CA_MODEL_SYNCHRONIZE], 4);
	fixture_stop(&f);
}

/* Another thread captures, and prohibits nothing: no mark can be recorded, but FREE memory is
 * finished, and the reserve does not grow with each capture. */
static void
test_a_capture_that_allows_allocations_gets_free_segments(void **state)
{
	uint64_t a, b, c, reserved;
	struct fixture f;

	fixture_defaults(&f);
	fixture_start(&f);
	a = fixture_alloc(&f, 20 * MIB);
	fixture_free(&f, a);
	fixture_alloc(&f, 40 * MIB); /* which looks at what has finished */
	reserved = fixture_sums(&f).held_bytes;
	ca_model_set_capturing_relaxed(f.model);
	c = fixture_alloc(&f, 12 * MIB); /* too small for all of it, and a part is not to be had */
	assert_true(c < a || c >= a + 20 * MIB);
	b = fixture_alloc(&f, 19 * MIB);
	assert_int_equal(a, b);
	assert_int_equal(fixture_sums(&f).held_bytes, reserved + 12 * MIB);
	ca_model_submit(f.model);
	fixture_free(&f, b);
	assert_int_not_equal(fixture_alloc(&f, 19 * MIB), b); /* the work goes on */
	ca_model_set_capturing(f.model, false);
	fixture_stop(&f);
}

static void
test_capture(void **state)
{
	struct fixture f;
	uint64_t a, b, c;

	fixture_defaults(&f);
	fixture_start(&f);
	a = fixture_alloc(&f, 20 * MIB);
	fixture_free(&f,
		     a); /* nothing submitted: finished at once, but freed memory all the same */
	ca_model_set_capturing(f.model, true);
	b = fixture_alloc(&f, 20 * MIB);
	assert_int_not_equal(a, b);
	c = fixture_alloc(&f, 600);
	assert_int_equal(fixture_sums(&f).held_bytes, 40 * MIB + 1024);
	fixture_free(&f, b);
	fixture_free(&f, c);
	assert_int_equal(fixture_stats(&f).order_marks, 1);
	assert_int_equal(fixture_sums(&f).calls[CA_MODEL_QUERY], 0);
	ca_model_set_capturing(f.model, false);
	ca_model_submit(f.model);
	assert_int_equal(fixture_alloc(&f, 20 * MIB), a);
	assert_int_equal(fixture_stats(&f).order_marks,
			 2); /* one for b and c, and behind the work */
	assert_int_not_equal(fixture_alloc(&f, 20 * MIB), b);
	ca_model_finish(f.model, 1);
	assert_int_equal(fixture_alloc(&f, 20 * MIB), b);
	fixture_stop(&f);
}

static void
test_errors(void **state)
{
	struct fixture f;
	uint64_t a, out = 77;

	fixture_defaults(&f);
	fixture_start(&f);
	a = fixture_alloc(&f, 4096);
	assert_int_equal(ca_alloc(f.space, 0, &out), -EINVAL);
	assert_int_equal(ca_alloc(f.space, ((uint64_t)1 << 60) + 1, &out), -E2BIG);
	assert_int_equal(ca_alloc(f.space, UINT64_MAX, &out), -E2BIG);
	assert_int_equal(ca_alloc(f.space, (uint64_t)1 << 60, &out), CA_DRIVER_OUT_OF_MEMORY);
	assert_int_equal(out, 77);
	assert_int_equal(ca_free(f.heap, 0), -ENOENT);
	assert_int_equal(ca_free(f.heap, 4096), -ENOENT);
	assert_int_equal(ca_free(f.heap, a + 512), -EINVAL);
	assert_int_equal(ca_free(f.heap, a + 1), -EINVAL);
	fixture_free(&f, a);
	assert_int_equal(ca_free(f.heap, a), -EINVAL);
	assert_int_equal(fixture_stats(&f).ooms, 1);
	assert_int_equal(fixture_stats(&f).free_calls, 1);
	fixture_stop(&f);
}

static void
test_lookup(void **state)
{
	struct fixture f;
	struct ca_block_info info;
	uint64_t a, b, serial;

	fixture_defaults(&f);
	fixture_start(&f);
	a = fixture_alloc(&f, 700);
	b = fixture_alloc(&f, 64 * MIB);
	assert_int_equal(ca_lookup(f.heap, a + 650, &info), 0);
	assert_int_equal(info.address, a);
	assert_int_equal(info.requested_bytes, 700);
	assert_int_equal(info.block_bytes, 1024);
	assert_true(info.live && !info.whole_segment && !info.foreign);
	assert_ptr_equal(info.context, (void *)1);
	serial = info.serial;
	assert_int_equal(ca_lookup(f.heap, b + 64 * MIB - 1, &info), 0);
	assert_true(info.whole_segment);
	assert_true(info.serial > serial);
	assert_int_equal(ca_lookup(f.heap, b + 64 * MIB, &info), -ENOENT);
	fixture_free(&f, b);
	assert_int_equal(ca_lookup(f.heap, b, &info), 0);
	assert_false(info.live);
	assert_int_equal(ca_drainable_bytes(f.space), 64 * MIB);
	fixture_stop(&f);
}

static void
test_adopt_and_retire(void **state)
{
	struct fixture f;
	struct ca_block_info info;
	uint64_t a, b, c, pitch;

	fixture_defaults(&f);
	fixture_start(&f);
	assert_int_equal(f.driver.segment_take(f.driver.self, (void *)1, 3000, &pitch), 0);
	assert_int_equal(ca_track_foreign(f.space, pitch, 3000, 2900), 0);
	assert_int_equal(ca_lookup(f.heap, pitch + 2999, &info), 0);
	assert_true(info.foreign && info.live);
	fixture_check(&f);
	fixture_free(&f, pitch);
	assert_int_equal(fixture_sums(&f).held_bytes, 0);

	a = fixture_alloc(&f, 4096);
	b = fixture_alloc(&f, 4096);
	assert_int_equal(ca_retire(f.heap, a), 0);
	c = fixture_alloc(&f, 4096);
	assert_int_equal(fixture_sums(&f).held_bytes, 4 * MIB); /* not from a's segment */
	fixture_free(&f, a);
	assert_int_equal(fixture_sums(&f).held_bytes, 4 * MIB);
	ca_model_fail(f.model, CA_MODEL_RETURN, 1, false, 700);
	assert_int_equal(ca_free(f.heap, b), 700); /* the driver's error; the block stays live */
	fixture_check(&f);
	ca_model_set_capturing(f.model, true);
	fixture_free(&f, b); /* cannot go now */
	assert_int_equal(fixture_sums(&f).held_bytes, 4 * MIB);
	ca_model_set_capturing(f.model, false);
	fixture_alloc(&f, 512);
	assert_int_equal(fixture_sums(&f).held_bytes, 2 * MIB);
	fixture_free(&f, c);
	assert_int_equal(ca_retire(f.heap, 12345), -ENOENT);
	fixture_stop(&f);
}

static void
test_oversize(void **state)
{
	struct fixture f;
	uint64_t a, b;

	fixture_defaults(&f);
	f.config.max_split_size_bytes = 64 * MIB;
	f.config.max_non_split_rounding_bytes = 20 * MIB;
	fixture_start(&f);
	a = fixture_alloc(&f, 100 * MIB);
	fixture_free(&f, a);
	b = fixture_alloc(&f,
			  30 * MIB); /* below max_split: must not take from the oversize block */
	assert_true(b < a || b >= a + 100 * MIB);
	b = fixture_alloc(&f, 70 * MIB); /* oversize, but more than the slack smaller */
	assert_true(b < a || b >= a + 100 * MIB);
	b = fixture_alloc(&f, 90 * MIB);
	assert_int_equal(a, b);
	assert_int_equal(fixture_stats(&f).allocated_bytes.current, 200 * MIB);
	fixture_stop(&f);
}

static void
test_kill(void **state)
{
	struct fixture f;
	struct ca_space *other;
	uint64_t a, b, out;

	fixture_defaults(&f);
	fixture_start(&f);
	assert_int_equal(ca_space_create(f.heap, (void *)2, 0, &other), 0);
	assert_int_equal(ca_alloc(other, 5000, &b), 0);
	a = fixture_alloc(&f, 40 * MIB);
	ca_model_submit(f.model);
	fixture_free(&f, a);
	a = fixture_alloc(&f, 40 * MIB);
	ca_model_context_destroy(f.model, (void *)1);
	ca_space_kill(f.space);
	fixture_check(&f);
	assert_int_equal(fixture_sums(&f).marks, 0);
	assert_int_equal(ca_free(f.heap, a), -ENOENT);
	assert_int_equal(ca_alloc(f.space, 512, &out), -ENODEV);
	fixture_free(&f, b);
	fixture_stop(&f);
}

/* The driver hands out memory of which we hold records: they go, and are counted. */
static void
test_stale(void **state)
{
	struct fixture f;
	uint64_t a, b;

	fixture_defaults(&f);
	fixture_start(&f);
	a = fixture_alloc(&f, 40 * MIB);
	assert_int_equal(ca_model_steal(f.model, a), 0);
	b = 0;
	assert_int_equal(ca_alloc(f.space, 40 * MIB, &b), 0);
	assert_int_equal(a, b);
	fixture_check(&f);
	assert_int_equal(fixture_stats(&f).stale_records, 1);
	fixture_free(&f, b);
	fixture_stop(&f);
}

static void
test_counting(void **state)
{
	struct fixture f;
	uint64_t a;

	fixture_defaults(&f);
	f.config.disable = CA_DISABLE_COUNT;
	fixture_start(&f);
	a = fixture_alloc(&f, 1000);
	assert_int_equal(fixture_sums(&f).held_bytes, 1000);
	assert_int_equal(fixture_stats(&f).driver_alloc_calls, 1);
	assert_true(fixture_stats(&f).driver_ns > 0);
	ca_model_fail(f.model, CA_MODEL_RETURN, 1, false, 700);
	assert_int_equal(ca_free(f.heap, a), 700);
	fixture_free(&f, a);
	assert_int_equal(fixture_sums(&f).held_bytes, 0);
	assert_int_equal(fixture_stats(&f).driver_free_calls, 1);
	assert_int_equal(fixture_sums(&f).calls[CA_MODEL_RECORD], 0);
	fixture_stop(&f);
}

/* A mark that cannot be recorded: the host waits instead;
 * when that fails too, nothing is reused any more. */
static void
test_poison(void **state)
{
	struct fixture f;
	uint64_t a, b, c;

	fixture_defaults(&f);
	fixture_start(&f);
	a = fixture_alloc(&f, 20 * MIB);
	ca_model_submit(f.model);
	ca_model_fail(f.model, CA_MODEL_RECORD, 1, false, 700);
	fixture_free(&f, a);
	assert_int_equal(fixture_stats(&f).host_syncs, 1);
	assert_int_equal(fixture_alloc(&f, 20 * MIB), a);

	b = fixture_alloc(&f, 4096);
	ca_model_fail(f.model, CA_MODEL_QUERY, 1, true, 700); /* never taken for done */
	fixture_free(&f, a);
	c = fixture_alloc(&f, 20 * MIB); /* the error led to a host wait, which worked */
	assert_int_equal(a, c);
	assert_int_equal(fixture_stats(&f).host_syncs, 2);
	fixture_free(&f, b);
	fixture_stop(&f);
}

static void
fail_synchronize(void *arg, enum ca_model_function function, bool end)
{
	struct fixture *f = arg;

	if (function == CA_MODEL_RECORD && end)
		ca_model_fail(f->model, CA_MODEL_SYNCHRONIZE, 1, true, 719);
}

static void
test_poison_whole(void **state)
{
	struct fixture f;
	uint64_t a, b, c, clean;

	fixture_defaults(&f);
	fixture_start(&f);
	clean = fixture_alloc(&f, 64 * MIB);
	fixture_free(&f, clean);
	a = fixture_alloc(&f, 20 * MIB);
	b = fixture_alloc(&f, 4096);
	ca_model_set_observer(f.model, fail_synchronize, &f);
	ca_model_fail(f.model, CA_MODEL_RECORD, 1, true, 719);
	assert_int_equal(ca_free(f.heap, a), 719);
	fixture_check(&f);
	ca_model_set_observer(f.model, NULL, NULL);
	ca_model_fail(f.model, CA_MODEL_TAKE, 1, false, 719);
	assert_int_equal(ca_alloc(f.space, 20 * MIB, &c), 719); /* the driver's own answer */
	c = fixture_alloc(&f, 20 * MIB);
	assert_int_not_equal(c, clean);
	fixture_free(&f, a); /* still ours, and gone for good now */
	fixture_free(&f, b);
	fixture_free(&f, c);
	ca_trim(f.heap, 0);
	assert_int_equal(fixture_sums(&f).held_bytes, 0);
	fixture_stop(&f);
}

static void
fail_synchronize_of_another(void *arg, enum ca_model_function function, bool end)
{
	struct fixture *f = arg;

	if (function == CA_MODEL_RECORD && end)
		ca_model_fail(f->model, CA_MODEL_SYNCHRONIZE, 1, true, -EIO);
}

/* Another context's error: no more reuse, but the program's free succeeds, by the driver's own. */
static void
test_error_of_another_context(void **state)
{
	struct fixture f;
	uint64_t a, b;

	fixture_defaults(&f);
	fixture_start(&f);
	a = fixture_alloc(&f, 20 * MIB);
	b = fixture_alloc(&f, 4096);
	ca_model_set_observer(f.model, fail_synchronize_of_another, &f);
	ca_model_fail(f.model, CA_MODEL_RECORD, 1, true, -EIO);
	fixture_free(&f, a);
	assert_int_equal(fixture_sums(&f).held_bytes, 2 * MIB);
	fixture_free(&f, b);
	assert_int_equal(fixture_sums(&f).held_bytes, 0);
	assert_int_equal(fixture_stats(&f).free_calls, 2);
	fixture_alloc(&f, 3000);
	assert_int_equal(fixture_sums(&f).held_bytes, 3072); /* nothing is cut for later */
	fixture_stop(&f);
}

static void
test_disown(void **state)
{
	struct fixture f;
	uint64_t a, b;

	fixture_defaults(&f);
	fixture_start(&f);
	a = fixture_alloc(&f, 20 * MIB);
	b = fixture_alloc(&f, 4096);
	assert_int_equal(ca_forget_block(f.heap, a + 512), -ENOENT);
	assert_int_equal(ca_forget_block(f.heap, b), -ENOENT); /* not a segment of its own */
	assert_int_equal(ca_forget_block(f.heap, a), 0);
	assert_int_equal(ca_model_steal(f.model, a), 0);
	fixture_check(&f);
	assert_int_equal(ca_free(f.heap, a), -ENOENT);
	assert_int_equal(ca_forget_block(f.heap, a), -ENOENT);
	assert_int_equal(fixture_stats(&f).free_calls, 1);
	fixture_stop(&f);
}

static void
test_fork_child(void **state)
{
	struct fixture f;
	struct ca_space *fresh;
	uint64_t a, out;

	fixture_defaults(&f);
	fixture_start(&f);
	a = fixture_alloc(&f, 4096);
	ca_heap_after_fork_child(f.heap); /* same process: what matters is what it forgets */
	assert_int_equal(ca_free(f.heap, a), -ENOENT);
	assert_int_equal(ca_alloc(f.space, 512, &out), -ENODEV);
	assert_int_equal(fixture_stats(&f).alloc_calls, 0);
	assert_int_equal(ca_heap_check(f.heap, NULL, 0), 0);
	assert_int_equal(ca_space_create(f.heap, (void *)3, 1, &fresh), 0);
	assert_int_equal(ca_alloc(fresh, 512, &out), 0);
	assert_int_equal(ca_heap_device_count(f.heap), 2);
	fixture_stop(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small_segment),
		cmocka_unit_test(test_large_segments),
		cmocka_unit_test(test_reuse_waits),
		cmocka_unit_test(test_slack),
		cmocka_unit_test(test_no_marks),
		cmocka_unit_test(test_capture),
		cmocka_unit_test(test_a_capture_that_allows_allocations_gets_free_segments),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_lookup),
		cmocka_unit_test(test_adopt_and_retire),
		cmocka_unit_test(test_oversize),
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_stale),
		cmocka_unit_test(test_counting),
		cmocka_unit_test(test_poison),
		cmocka_unit_test(test_poison_whole),
		cmocka_unit_test(test_error_of_another_context),
		cmocka_unit_test(test_disown),
		cmocka_unit_test(test_fork_child),
	};

	return cmocka_run_group_tests_name("allocator-heap", tests, NULL, NULL);
}
