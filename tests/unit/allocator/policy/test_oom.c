/* SPDX-License-Identifier: MIT */
/* allocator/policy/oom.c: what is given back, in which order, before "out of memory" is answered.
 */
#define FIXTURE_UNSEEN
#include "tests/unit/allocator/fixture.h"

#include <errno.h>

#include "allocator/api/oom_report.h"

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

/* On a full device a block is freed that work of another context may use, which ends `work_ns`
 * later; then `size` is needed. Its segment cannot go back. */
static int
need_behind_foreign_work(struct fixture *f, uint64_t work_ns, uint64_t size)
{
	uint64_t address;

	fixture_defaults(f);
	f->config.large_segment_size_bytes = f->pretend.capacity = 64 * MIB;
	f->pretend.work_ns = work_ns;
	assert_int_equal(ca_model_create(&f->pretend, &f->model), 0);
	ca_model_driver(f->model, &f->driver);
	f->driver.mark_wait = f->driver.mark_query; /* the shim's waits for the own context only */
	assert_int_equal(ca_heap_create(&f->config, &f->driver, &f->heap), 0);
	ca_order_finished_only(f->heap, NULL, CA_REASON_UNSEEN_CALL);
	assert_int_equal(ca_space_create(f->heap, (void *)1, 0, &f->space), 0);
	fixture_alloc(f, 8 * MIB);
	address = fixture_alloc(f, 18 * MIB);
	fixture_alloc(f, 18 * MIB);
	fixture_alloc(f, 18 * MIB);
	ca_model_submit(f->model);
	fixture_free(f, address);
	return ca_alloc(f->space, size, &address);
}

/* Natively the memory was there at once: so it is asked for as long as work ends every ten seconds.
 */
static void
test_the_mark_of_another_context_arrives(void **state)
{
	struct fixture f;

	assert_int_equal(need_behind_foreign_work(&f, 2 * 1000 * 1000, 18 * MIB), 0);
	fixture_stop(&f);
	assert_int_equal(need_behind_foreign_work(&f, (uint64_t)9e9, 18 * MIB), 0);
	fixture_stop(&f);
	assert_int_equal(need_behind_foreign_work(&f, (uint64_t)1e12, 18 * MIB),
			 CA_DRIVER_OUT_OF_MEMORY);
	assert_in_range(f.driver.clock_ns(f.model), (uint64_t)9e9, (uint64_t)130e9);
	fixture_stop(&f);
	/* what never fits waits for nothing */
	assert_int_equal(need_behind_foreign_work(&f, (uint64_t)1e12, 40 * MIB),
			 CA_DRIVER_OUT_OF_MEMORY);
	assert_in_range(f.driver.clock_ns(f.model), 0, (uint64_t)1e9);
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
	assert_true(ca_reclaim(f.space, 10 * MIB, NULL));
	fixture_check(&f);
	assert_true(ca_reclaim(f.space, 10 * MIB, NULL));
	assert_false(ca_reclaim(f.space, 10 * MIB, NULL));
	assert_int_equal(fixture_sums(&f).held_bytes, 0);
	fixture_stop(&f);
}

enum { HELD_MAX = 64, LADDER_STEPS = 20000 };

/* What the program holds, and what one request may have cost. */
struct promises {
	struct fixture f;
	struct ca_space *other;
	uint64_t held[HELD_MAX];
	unsigned n, ooms, released;
	uint64_t seed;
};

static uint64_t
largest_segment(uint64_t request)
{
	return request > 20 * MIB ? request : 20 * MIB;
}

/*
 * Nothing that is ours is left where "out of memory" is answered, and what went back to the driver
 * for a request is at most what was missing and one segment.
 */
static void
promise_request(struct promises *p, struct ca_space *space, uint64_t request, uint64_t *largest)
{
	struct ca_model_sums before = fixture_sums(&p->f), after;
	uint64_t taken = fixture_stats(&p->f).reserved_bytes.total, address, returned, missing;
	uint64_t free_bytes = p->f.pretend.capacity - before.used_bytes;
	int r = ca_alloc(space, request, &address);

	after = fixture_sums(&p->f);
	taken = fixture_stats(&p->f).reserved_bytes.total - taken;
	returned = before.held_bytes + taken - after.held_bytes;
	missing = request > free_bytes ? request - free_bytes : 0;
	if (r) {
		assert_int_equal(r, CA_DRIVER_OUT_OF_MEMORY);
		assert_int_equal(ca_drainable_bytes(space), 0);
		if (!p->other) /* nor does any hole fit (a boundary may be in the way) */
			assert_true(fixture_stats(&p->f).largest_free_block_bytes <
				    request + 2 * MIB);
		p->ooms++;
	} else {
		if (p->f.config.give_back_oom)
			assert_true(returned <= missing + *largest);
		p->released += returned > 0;
		p->held[p->n++] = address;
		if (largest_segment(request) > *largest)
			*largest = largest_segment(request);
	}
}

static void
promise_run(struct promises *p, bool pending)
{
	uint64_t largest = 20 * MIB;

	for (unsigned i = 0; i < FIXTURE_PART(LADDER_STEPS); i++) {
		uint64_t random = fixture_random(&p->seed), size = 1 + random % (40 * MIB);

		if (random >> 40 & 1)
			size >>= random >> 41 & 15;
		if (p->n < HELD_MAX && random >> 60) {
			promise_request(p, p->other && random >> 50 & 1 ? p->other : p->f.space,
					size ? size : 1, &largest);
		} else if (p->n) {
			unsigned at = (unsigned)(random >> 32) % p->n;

			if (pending)
				ca_model_submit(p->f.model);
			fixture_free(&p->f, p->held[at]);
			p->held[at] = p->held[--p->n];
		}
		while (i % 32 == 31 && p->n > (random & 7))
			fixture_free(&p->f, p->held[--p->n]);
	}
}

static void
promises(bool pending, bool two_contexts, bool early, uint64_t seed)
{
	struct promises p = { .seed = fixture_seed(seed) };

	fixture_defaults(&p.f);
	p.f.pretend.capacity = 300 * MIB;
	p.f.pretend.granularity = 512;
	p.f.pretend.work_ns = 1000 * 1000; /* nobody sleeps */
	p.f.config.give_back_oom = !early;
	fixture_start(&p.f);
	if (two_contexts)
		assert_int_equal(ca_space_create(p.f.heap, (void *)2, 0, &p.other), 0);
	promise_run(&p, pending);
	fixture_check(&p.f);
	assert_true(p.ooms > 10 && p.released > 10);
	fixture_stop(&p.f);
}

static void
test_out_of_memory_means_that_nothing_is_left_and_no_rung_gives_back_too_much(void **state)
{
	promises(false, false, false, 7);
	promises(false, true, false, 8);
}

/* What goes back before the cache grows is not a rung's: it has its own bound (test_budget.c). */
static void
test_nothing_is_left_either_where_segments_went_back_early(void **state)
{
	promises(false, false, true, 9);
	promises(true, true, true, 10);
}

static void
test_the_same_while_freed_memory_is_still_used(void **state)
{
	promises(true, false, false, 11);
	promises(true, true, false, 12);
}

/* What is missing decides, not what was asked for. */
static void
test_only_what_is_missing_goes_back(void **state)
{
	struct fixture f;
	uint64_t pieces[8];

	fixture_defaults(&f);
	f.pretend.capacity = 200 * MIB;
	fixture_start(&f);
	for (unsigned i = 0; i < 8; i++)
		pieces[i] = fixture_alloc(&f, 20 * MIB);
	for (unsigned i = 0; i < 8; i++)
		fixture_free(&f, pieces[i]);
	ca_trim(f.heap, UINT64_MAX);
	fixture_alloc(&f, 70 * MIB); /* 40 are free: two segments */
	assert_int_equal(fixture_stats(&f).driver_free_calls, 2);
	assert_true(ca_reclaim(f.space, 30 * MIB, NULL)); /* 10 are free: one */
	assert_int_equal(fixture_stats(&f).driver_free_calls, 3);
	/* the driver does not say: as much as was asked for */
	ca_model_fail(f.model, CA_MODEL_INFO, 1, true, 999);
	assert_true(ca_reclaim(f.space, 30 * MIB, NULL));
	assert_int_equal(fixture_stats(&f).driver_free_calls, 5);
	fixture_stop(&f);
}

/* The figures of a report, and what was tried. */
static void
test_a_report_tells_what_is_free_and_what_was_tried(void **state)
{
	struct fixture f;
	struct ca_report report;
	uint64_t a, b, out;

	fixture_defaults(&f);
	f.pretend.capacity = 100 * MIB;
	fixture_start(&f);
	a = fixture_alloc(&f, 30 * MIB);
	b = fixture_alloc(&f, 4 * MIB);
	fixture_free(&f, a);
	ca_trim(f.heap, UINT64_MAX);
	assert_int_equal(ca_alloc(f.space, 90 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	ca_report_fill(f.space, 90 * MIB, &report);
	assert_true(report.known);
	assert_int_equal(report.total, 100 * MIB);
	assert_int_equal(report.free, 80 * MIB);
	assert_int_equal(report.requested, 90 * MIB);
	assert_int_equal(report.live, 4 * MIB);
	assert_int_equal(report.reserved, 20 * MIB);
	assert_int_equal(report.largest, 16 * MIB);
	assert_int_equal(report.clean, 16 * MIB);
	assert_int_equal(report.waiting, 0);
	assert_int_equal(report.tried.given_bytes, 30 * MIB);
	assert_int_equal(report.tried.given_segments, 1);
	assert_false(report.tried.capture);
	fixture_free(&f, b);
	ca_model_set_capturing(f.model, true);
	assert_int_equal(ca_alloc(f.space, 90 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	ca_report_fill(f.space, 90 * MIB, &report);
	assert_true(report.tried.capture);
	fixture_stop(&f);
}

/* One class of sizes has more free blocks than a search looks at; the one that fits lies behind.
 * Not looked for before the cache grows, it is found before "out of memory" is answered. */
static void
test_a_block_behind_many_of_its_class(void **state)
{
	enum { EACH = 16, SEGMENTS = 60 };
	static uint64_t blocks[SEGMENTS * EACH];
	const uint64_t bytes = 2 * MIB / EACH;
	struct fixture f;
	uint64_t fitting, out;
	int i;

	fixture_defaults(&f);
	f.unseen = false;
	f.pretend.capacity = 2 * (SEGMENTS + 1) * MIB;
	fixture_start(&f);
	fitting = fixture_alloc(&f, bytes + 512);
	for (i = 0; i < EACH - 2; i++) /* what is left is too small for any of these */
		assert_int_equal(ca_alloc(f.space, bytes, &out), 0);
	for (i = 0; i < SEGMENTS * EACH; i++)
		assert_int_equal(ca_alloc(f.space, bytes, &blocks[i]), 0);
	assert_int_equal(fixture_stats(&f).reserved_bytes.current, f.pretend.capacity);
	fixture_free(&f, fitting);
	/* out of the magazine, first in its list */
	assert_int_equal(ca_alloc(f.space, 2 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	for (i = 0; i < SEGMENTS * EACH; i += 2)
		assert_int_equal(ca_free(f.heap, blocks[i]), 0);
	assert_int_equal(fixture_alloc(&f, bytes + 512), fitting);
	assert_int_equal(fixture_stats(&f).ooms, 1);
	assert_int_equal(ca_alloc(f.space, bytes + 512, &out), CA_DRIVER_OUT_OF_MEMORY);
	fixture_stop(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_block_behind_many_of_its_class),
		cmocka_unit_test(test_ladder),
		cmocka_unit_test(test_ladder_other_space),
		cmocka_unit_test(test_the_mark_of_another_context_arrives),
		cmocka_unit_test(test_ladder_refused),
		cmocka_unit_test(test_ladder_busy),
		cmocka_unit_test(test_reclaim),
		cmocka_unit_test(test_only_what_is_missing_goes_back),
		cmocka_unit_test(test_a_report_tells_what_is_free_and_what_was_tried),
		cmocka_unit_test(
			test_out_of_memory_means_that_nothing_is_left_and_no_rung_gives_back_too_much),
		cmocka_unit_test(test_nothing_is_left_either_where_segments_went_back_early),
		cmocka_unit_test(test_the_same_while_freed_memory_is_still_used),
	};

	return cmocka_run_group_tests_name("allocator-ladder", tests, NULL, NULL);
}
