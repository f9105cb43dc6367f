/* SPDX-License-Identifier: MIT */
/* Segments that one thread cuts and merges in by itself: when they are leased, what ends that, and
 * that nobody finds another heap because of it. */
#include "tests/unit/allocator/tcache/lease_scene.h"

#include <sched.h>

#include "allocator/core/lock.h"

/* ---- when */

static void
test_one_thread_leases_nothing(void **state)
{
	struct fixture f;
	uint64_t blocks[TAKEN];

	fixture_defaults(&f);
	contended_start(&f);
	take_sizes(&f, blocks, TAKEN);
	assert_null(f.heap->leases);
	free_blocks(&f, blocks, TAKEN);
	take_sizes(&f, blocks, TAKEN);
	assert_null(f.heap->leases);
	free_blocks(&f, blocks, TAKEN);
	nothing_is_left(&f);
	fixture_stop(&f);
}

/* The segments are all threads', whose requests fill each other's holes. */
static void
test_threads_that_take_turns_lease_nothing(void **state)
{
	struct fixture f;
	uint64_t blocks[TAKEN];

	fixture_defaults(&f);
	fixture_start(&f);
	take_and_free_one(&f);
	in_thread(take_and_free_one, &f);
	take_sizes(&f, blocks, TAKEN);
	assert_null(f.heap->leases);
	free_blocks(&f, blocks, TAKEN);
	nothing_is_left(&f);
	fixture_stop(&f);
}

static void *
wait_for_the_lock(void *arg)
{
	struct fixture *f = arg;

	ca_heap_lock_leased(f->heap);
	ca_heap_unlock(f->heap);
	return NULL;
}

/* For a thousand requests or so: then leases end. */
static void
test_a_thread_that_waits_begins_leases(void **state)
{
	struct fixture f;
	uint64_t blocks[TAKEN], requests;
	pthread_t thread;
	unsigned n;

	fixture_defaults(&f);
	fixture_start(&f);
	ca_heap_lock_leased(f.heap);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_the_lock, &f), 0);
	while (atomic_load(&f.heap->lock.word) != CA_LOCK_AWAITED)
		sched_yield();
	ca_heap_unlock(f.heap);
	pthread_join(thread, NULL);
	lease(&f, blocks);
	requests = f.heap->requests;
	for (n = 0; is_leased(&f); n++) {
		uint64_t address;

		assert_in_range(f.heap->requests, requests, requests + 2000);
		assert_int_equal(ca_alloc(f.space, 3 * MIB + n % 500 * 2 * KIB, &address), 0);
		assert_int_equal(ca_free(f.heap, address), 0);
	}
	free_blocks(&f, blocks, TAKEN);
	nothing_is_left(&f);
	fixture_stop(&f);
}

enum { MORE = 5 }; /* records for so many are there at any time */

static void
test_a_leased_segment_serves_without_the_lock(void **state)
{
	struct fixture f;
	uint64_t blocks[TAKEN], more[MORE], requests;

	lease_start(&f, blocks);
	requests = f.heap->requests;
	for (unsigned i = 0; i < MORE; i++)
		assert_int_equal(ca_alloc(f.space, 20 * KIB + (i + 1) * 512, &more[i]), 0);
	assert_int_equal(f.heap->requests, requests);
	/* nor do frees, for whose sizes there is no room yet, end a lease */
	free_blocks(&f, blocks, TAKEN);
	free_blocks(&f, more, MORE);
	assert_true(is_leased(&f));
	nothing_is_left(&f);
	fixture_stop(&f);
}

/* They are merged again without the lock, and nothing new is reserved for what they were. */
static void
test_what_a_thread_frees_in_its_segment_is_merged(void **state)
{
	struct fixture f;
	uint64_t blocks[TAKEN], requests, held;
	unsigned round, i;

	lease_start(&f, blocks);
	held = fixture_sums(&f).held_bytes;
	for (round = 0; round < 100; round++) {
		free_blocks(&f, blocks, TAKEN);
		requests = f.heap->requests;
		for (i = 0; i < TAKEN; i++)
			assert_int_equal(ca_alloc(f.space, 10 * KIB + (round * 7 + i) % 64 * 512,
						  &blocks[i]),
					 0);
		/* once for each time that records are supplied, and no more */
		assert_in_range(f.heap->requests - requests, 0, 4);
	}
	assert_int_equal(fixture_sums(&f).held_bytes, held);
	free_blocks(&f, blocks, TAKEN);
	nothing_is_left(&f);
	fixture_stop(&f);
}

/* One that is large enough, and not what else is kept. */
static void
test_a_kept_block_that_is_large_enough_is_cut_first(void **state)
{
	enum { SMALL = 8, PIECES = 128, PIECE = 16 << 10 };
	struct fixture f;
	uint64_t blocks[TAKEN], small[SMALL], pieces[PIECES], large;
	unsigned i, n = 0;

	lease_start(&f, blocks);
	assert_int_equal(ca_alloc(f.space, 256 * KIB, &large), 0);
	for (i = 0; i < SMALL; i++)
		assert_int_equal(ca_alloc(f.space, 8 * KIB + i * 512, &small[i]), 0);
	while (n < PIECES && ca_index_at_least(&f.heap->leases->by_size[0], PIECE))
		assert_int_equal(ca_alloc(f.space, PIECE, &pieces[n++]), 0);
	free_blocks(&f, small, SMALL);
	assert_int_equal(ca_free(f.heap, large), 0);
	assert_int_equal(kept(f.heap), SMALL + 2); /* the large one, and the 4 MiB of lease() */
	assert_int_equal(ca_alloc(f.space, PIECE, &large), 0);
	assert_int_equal(kept(f.heap), SMALL + 1);
	assert_true(is_leased(&f));
	free_blocks(&f, pieces, n);
	free_blocks(&f, blocks, TAKEN);
	fixture_free(&f, large);
	nothing_is_left(&f);
	fixture_stop(&f);
}

/* More cuts, and then more pieces between live blocks, than there are records at a time. */
static void
test_records_run_out_and_are_supplied(void **state)
{
	enum { PIECES = 900 };
	struct fixture f;
	uint64_t blocks[TAKEN], pieces[PIECES], requests;
	unsigned i;

	lease_start(&f, blocks);
	requests = f.heap->requests;
	for (i = 0; i < PIECES; i++) {
		assert_int_equal(ca_alloc(f.space, 512 * (1 + i % 3), &pieces[i]), 0);
		assert_true(f.heap->leases->n_places <= f.heap->leases->n_blocks);
	}
	assert_in_range(f.heap->requests - requests, PIECES / 65, PIECES / 8);
	for (i = 0; i < PIECES; i += 2) {
		assert_int_equal(ca_free(f.heap, pieces[i]), 0);
		/* merges what it keeps, bit by bit */
		assert_int_equal(ca_alloc(f.space, 512 * (4 + i % 5), &pieces[i]), 0);
	}
	fixture_check(&f);
	free_blocks(&f, pieces, PIECES);
	free_blocks(&f, blocks, TAKEN);
	nothing_is_left(&f);
	fixture_stop(&f);
}

/* Leases that end before they were worth it begin more and more seldom. */
static void
test_leases_in_vain_become_seldom(void **state)
{
	struct fixture f;
	uint64_t blocks[TAKEN], others[TAKEN];
	unsigned began = 0;

	lease_start(&f, blocks);
	for (unsigned round = 0; round < 200; round++) {
		fixture_check(&f);
		assert_false(is_leased(&f));
		free_blocks(&f, blocks, TAKEN);
		take_sizes(&f, blocks, 2);
		began += is_leased(&f);
		take_sizes(&f, others, TAKEN);
		free_blocks(&f, blocks, 2);
		memcpy(blocks, others, sizeof(blocks));
	}
	assert_in_range(began, 0, 100);
	free_blocks(&f, blocks, TAKEN);
	nothing_is_left(&f);
	fixture_stop(&f);
}

/* ---- who ends them, and what is found then */

struct ending {
	const char *name;
	void (*act)(struct fixture *f, uint64_t blocks[TAKEN]);
};

static void
look_up(struct fixture *f, uint64_t blocks[TAKEN])
{
	struct ca_block_info info;

	for (unsigned i = 0; i < TAKEN; i++) {
		uint64_t size = (i + 1) * 512;

		assert_int_equal(ca_lookup(f->heap, blocks[i] + size - 1, &info), 0);
		assert_int_equal(info.address, blocks[i]);
		assert_int_equal(info.requested_bytes, size);
		assert_true(info.live);
		assert_ptr_equal(info.space, f->space);
	}
}

static void
count(struct fixture *f, uint64_t blocks[TAKEN])
{
	uint64_t sum = 512 * TAKEN * (TAKEN + 1) / 2;
	struct ca_stats stats = fixture_stats(f);

	assert_int_equal(stats.allocated_bytes.current, sum);
	assert_int_equal(stats.requested_bytes.current, sum);
	assert_int_equal(stats.active_bytes.current, sum);
	assert_int_equal(stats.cached_bytes.current, stats.reserved_bytes.current - sum);
	assert_int_equal(stats.alloc_calls, TAKEN + 2);
}

static void
trim(struct fixture *f, uint64_t blocks[TAKEN])
{
	ca_trim(f->heap, 0);
	/* the other thread's segment is gone, the leased one is not */
	assert_int_equal(fixture_sums(f).held_bytes, 2 * MIB);
}

static void
check(struct fixture *f, uint64_t blocks[TAKEN])
{
	assert_int_equal(ca_heap_check(f->heap, NULL, 0), 0);
}

static void
note_sync_memops(struct fixture *f, uint64_t blocks[TAKEN])
{
	struct ca_block_info info;

	assert_int_equal(ca_note_sync_memops(f->heap, blocks[7] + 1, true), 0);
	assert_null(f->heap->leases);
	assert_int_equal(ca_lookup(f->heap, blocks[7], &info), 0);
	assert_true(info.sync_memops);
}

static void
retire(struct fixture *f, uint64_t blocks[TAKEN])
{
	assert_int_equal(ca_retire(f->heap, blocks[TAKEN - 1]), 0);
}

static void
register_range(struct fixture *f, uint64_t blocks[TAKEN])
{
	assert_int_equal(ca_register(f->heap, blocks[TAKEN - 1], 512), 0);
}

static void
know_drainable(struct fixture *f, uint64_t blocks[TAKEN])
{
	/* the other thread's */
	assert_int_equal(ca_drainable_bytes(f->space),
			 fixture_stats(f).reserved_bytes.current - 2 * MIB);
}

static void
free_in_stream_order(struct fixture *f, uint64_t blocks[TAKEN])
{
	assert_int_equal(ca_free_async(f->heap, blocks[3], NULL), 0);
	blocks[3] = fixture_alloc(f, 2048);
}

static void
free_inside(struct fixture *f, uint64_t blocks[TAKEN])
{
	assert_int_equal(ca_free(f->heap, blocks[TAKEN - 1] + 512), -EINVAL);
	assert_int_equal(ca_free(f->heap, blocks[TAKEN - 1] + 1), -EINVAL);
}

static void
free_a_stranger(struct fixture *f, uint64_t blocks[TAKEN])
{
	assert_int_equal(ca_free(f->heap, 512), -ENOENT);
}

static void
take_in_a_capture(struct fixture *f, uint64_t blocks[TAKEN])
{
	uint64_t captured;

	ca_model_set_capturing(f->model, true);
	assert_int_equal(ca_alloc(f->space, 2048, &captured), 0);
	ca_model_set_capturing(f->model, false);
	assert_null(f->heap->leases);
	/* a segment of its own */
	for (unsigned i = 0; i < TAKEN; i++)
		assert_int_not_equal(captured / (2 * MIB), blocks[i] / (2 * MIB));
	assert_int_equal(ca_free(f->heap, captured), 0);
}

static void
pass_through(struct fixture *f, uint64_t blocks[TAKEN])
{
	uint64_t passed;

	assert_int_equal(ca_alloc_passthrough(f->space, 4096, &passed), 0);
	assert_int_equal(ca_free(f->heap, passed), 0);
}

static void
another_context(struct fixture *f, uint64_t blocks[TAKEN])
{
	struct ca_space *other;

	assert_int_equal(ca_space_create(f->heap, (void *)2, 0, &other), 0);
}

static const struct ending endings[] = {
	{ "look_up", look_up },
	{ "count", count },
	{ "trim", trim },
	{ "check", check },
	{ "note_sync_memops", note_sync_memops },
	{ "retire", retire },
	{ "register_range", register_range },
	{ "know_drainable", know_drainable },
	{ "free_in_stream_order", free_in_stream_order },
	{ "free_inside", free_inside },
	{ "free_a_stranger", free_a_stranger },
	{ "take_in_a_capture", take_in_a_capture },
	{ "pass_through", pass_through },
	{ "another_context", another_context },
};

static void
test_who_looks_at_blocks_ends_leases(void **state)
{
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		struct fixture f;
		uint64_t blocks[TAKEN];

		print_message("# %s\n", endings[i].name);
		lease_start(&f, blocks);
		endings[i].act(&f, blocks);
		assert_null(f.heap->leases);
		fixture_check(&f);
		for (unsigned j = 0; j < TAKEN; j++)
			fixture_free(&f, blocks[j]);
		nothing_is_left(&f);
		fixture_stop(&f);
	}
}

static void
test_the_context_ends(void **state)
{
	struct fixture f;
	struct ca_space *fresh;
	uint64_t blocks[TAKEN], out;

	lease_start(&f, blocks);
	ca_space_kill(f.space);
	assert_null(f.heap->leases);
	assert_int_equal(ca_heap_check(f.heap, NULL, 0), 0);
	assert_int_equal(ca_free(f.heap, blocks[0]), -ENOENT);
	assert_int_equal(ca_alloc(f.space, 512, &out), -ENODEV);
	/* the thread may lease in the next one */
	assert_int_equal(ca_space_create(f.heap, (void *)2, 0, &fresh), 0);
	f.space = fresh;
	in_thread(take_and_free_one, &f);
	for (unsigned i = 0; i < 10 && !is_leased(&f); i++)
		take_sizes(&f, blocks, TAKEN);
	assert_true(is_leased(&f));
	assert_int_equal(ca_heap_check(f.heap, NULL, 0), 0);
	fixture_stop(&f);
}

static void
test_the_child_of_a_fork_has_no_leases(void **state)
{
	struct fixture f;
	uint64_t blocks[TAKEN];

	lease_start(&f, blocks);
	ca_heap_after_fork_child(f.heap); /* same process: what matters is what it forgets */
	assert_false(is_leased(&f));
	assert_int_equal(ca_free(f.heap, blocks[0]), -ENOENT);
	assert_int_equal(ca_heap_check(f.heap, NULL, 0), 0);
	assert_int_equal(ca_space_create(f.heap, (void *)3, 1, &f.space), 0);
	f.heap->contention_until = UINT64_MAX;
	lease(&f, blocks);
	assert_int_equal(ca_heap_check(f.heap, NULL, 0), 0);
	fixture_stop(&f);
}

/* ---- work on streams */

/* A block that a stream may still use is no part of a leased segment, and while there is one
 * nothing is served from any. */
static void
test_nothing_is_served_while_something_waits(void **state)
{
	struct scene scene;
	uint64_t blocks[TAKEN], used, next, requests;

	scene_new(&scene, 2);
	scene.f.heap->contention_until = UINT64_MAX;
	lease(&scene.f, blocks);
	used = blocks[0];
	launch(&scene, S);
	launch(&scene, R);
	assert_int_equal(ca_free(scene.f.heap, used), 0);
	assert_int_equal(fixture_stats(&scene.f).pending_blocks, 1);
	requests = scene.f.heap->requests;
	for (unsigned i = 0; i < TAKEN; i++) {
		assert_int_equal(ca_alloc(scene.f.space, 40 * KIB + i * 512, &blocks[0]), 0);
		assert_false(is_leased(&scene.f));
		assert_int_not_equal(blocks[0], used);
		assert_int_equal(ca_free(scene.f.heap, blocks[0]), 0);
	}
	assert_int_equal(scene.f.heap->requests - requests, TAKEN);
	finish(&scene, S);
	finish(&scene, R);
	assert_int_equal(ca_order_poll(scene.f.space), 0);
	for (unsigned i = 0; i < 200 && !is_leased(&scene.f); i++) {
		assert_int_equal(ca_alloc(scene.f.space, 30 * KIB + i * 512, &next), 0);
		assert_int_equal(ca_free(scene.f.heap, next), 0);
	}
	fixture_check(&scene.f);
	free_blocks(&scene.f, blocks + 1, TAKEN - 1);
	finish(&scene, S);
	finish(&scene, R);
	assert_int_equal(ca_order_poll(scene.f.space), 0);
	nothing_is_left(&scene.f);
	fixture_stop(&scene.f);
}

/* A block that one stream may still use is kept: it is not merged into what is free in the segment,
 * by its thread or by another one. */
static void
test_what_a_stream_uses_is_not_merged(void **state)
{
	enum { LARGER = 12 };
	struct scene scene;
	uint64_t blocks[TAKEN], larger[LARGER], size = 160 * KIB;

	scene_new(&scene, 2);
	scene.f.heap->contention_until = UINT64_MAX;
	lease(&scene.f, blocks);
	launch(&scene, S);
	free_blocks(&scene.f, blocks, TAKEN);
	assert_true(is_leased(&scene.f));
	assert_in_range(kept(scene.f.heap), TAKEN, TAKEN + 1);
	/* the segment has less than that without them */
	for (unsigned i = 0; i < LARGER; i++)
		assert_int_equal(ca_alloc(scene.f.space, size, &larger[i]), 0);
	for (unsigned i = 0; i < LARGER; i++)
		for (unsigned j = 0; j < TAKEN; j++)
			assert_true(blocks[j] + (j + 1) * 512 <= larger[i] ||
				    larger[i] + size <= blocks[j]);
	fixture_check(&scene.f);
	free_blocks(&scene.f, larger, LARGER);
	finish(&scene, S);
	assert_int_equal(ca_order_poll(scene.f.space), 0);
	nothing_is_left(&scene.f);
	fixture_stop(&scene.f);
}

/* An argument: that test alone (tests/stress/test_leases.py). */
int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_thread_leases_nothing),
		cmocka_unit_test(test_threads_that_take_turns_lease_nothing),
		cmocka_unit_test(test_a_thread_that_waits_begins_leases),
		cmocka_unit_test(test_a_leased_segment_serves_without_the_lock),
		cmocka_unit_test(test_what_a_thread_frees_in_its_segment_is_merged),
		cmocka_unit_test(test_a_kept_block_that_is_large_enough_is_cut_first),
		cmocka_unit_test(test_records_run_out_and_are_supplied),
		cmocka_unit_test(test_leases_in_vain_become_seldom),
		cmocka_unit_test(test_who_looks_at_blocks_ends_leases),
		cmocka_unit_test(test_the_context_ends),
		cmocka_unit_test(test_the_child_of_a_fork_has_no_leases),
		cmocka_unit_test(test_nothing_is_served_while_something_waits),
		cmocka_unit_test(test_what_a_stream_uses_is_not_merged),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
