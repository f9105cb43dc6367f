/* SPDX-License-Identifier: MIT */
/* Address ranges that were registered to somebody who is no stream: handed out finished only, until
 * their segment is back at the driver, and nothing else is. */
#include "tests/unit/allocator/deferred/scene.h"

#include <errno.h>

static void
give(struct scene *scene, uint64_t address, uint64_t bytes)
{
	assert_int_equal(ca_register(scene->f.heap, address, bytes), 0);
	fixture_check(&scene->f);
}

/* Unfinished memory of `bytes` is not handed out at `address`, and is once it has finished. */
static void
is_finished_only(struct scene *scene, uint64_t address, uint64_t bytes)
{
	uint64_t other;

	launch(scene, S);
	fixture_free(&scene->f, address);
	fixture_check(&scene->f);
	other = fixture_alloc(&scene->f, bytes);
	assert_int_not_equal(other, address);
	finish(scene, S);
	assert_int_equal(ca_order_poll(scene->f.space), 0);
	assert_int_equal(fixture_alloc(&scene->f, bytes), address);
	fixture_check(&scene->f);
	fixture_free(&scene->f, other);
}

static void
test_a_block_is_handed_out_finished_only(void **state)
{
	static const uint64_t sizes[] = { 4096, 64 * KIB, 3 * MIB, 20 * MIB };
	unsigned i, times;

	for (i = 0; i < 4; i++) {
		struct scene scene;
		uint64_t a;

		scene_new(&scene, 1);
		a = fixture_alloc(&scene.f, sizes[i]);
		give(&scene, a, 1);
		for (times = 0; times < 3; times++)
			is_finished_only(&scene, a, sizes[i]);
		fixture_stop(&scene.f);
	}
}

/* Without slack it is waited for, as natively the free would have. */
static void
test_beyond_the_slack_the_host_waits(void **state)
{
	struct scene scene;
	uint64_t a, work;

	scene_with_slack(&scene, 1, 0);
	a = fixture_alloc(&scene.f, 20 * MIB);
	give(&scene, a, 20 * MIB);
	work = launch(&scene, S);
	fixture_free(&scene.f, a);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	assert_int_equal(ca_model_stream_finished(scene.f.model, (void *)S), work);
	fixture_stop(&scene.f);
}

/* What lies beside the range in the segment is exposed, and does not come to be one with it. */
static void
test_only_the_range(void **state)
{
	struct scene scene;
	uint64_t a, b;

	scene_with_slack(&scene, 1, 0);
	a = fixture_alloc(&scene.f, 4 * MIB);
	b = fixture_alloc(&scene.f, 4 * MIB);
	give(&scene, a, 4 * MIB);
	launch(&scene, S);
	fixture_free(&scene.f, b);
	fixture_free(&scene.f, a);
	fixture_check(&scene.f);
	assert_int_equal(fixture_alloc(&scene.f, 4 * MIB), b);
	assert_int_equal(ca_model_stream_finished(scene.f.model, (void *)S), 0);
	fixture_check(&scene.f);
	fixture_stop(&scene.f);
}

/* Freed already, in a magazine or in a stream's pools. */
static void
test_memory_that_is_free(void **state)
{
	static const uint64_t sizes[] = { 4096, 3 * MIB };
	unsigned i;

	for (i = 0; i < 2; i++) {
		struct scene scene;
		uint64_t a;

		scene_new(&scene, 1);
		a = free_used(&scene, sizes[i]);
		give(&scene, a, sizes[i]);
		assert_int_equal(fixture_stats(&scene.f).settles, 0);
		assert_int_not_equal(fixture_alloc(&scene.f, sizes[i]), a);
		fixture_check(&scene.f);
		fixture_stop(&scene.f);
	}
}

static void
test_until_the_segment_is_back_at_the_driver(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_with_slack(&scene, 1, 0);
	a = fixture_alloc(&scene.f, 20 * MIB);
	give(&scene, a, 20 * MIB);
	fixture_free(&scene.f, a);
	assert_int_equal(ca_trim(scene.f.heap, 0), 20 * MIB);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	launch(&scene, S);
	fixture_free(&scene.f, a);
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	assert_int_equal(ca_model_stream_finished(scene.f.model, (void *)S), 0);
	fixture_stop(&scene.f);
}

/* More ranges than are kept apart: those between come to be part of one, never fewer. */
static void
test_more_ranges_than_are_kept(void **state)
{
	struct scene scene;
	uint64_t blocks[128];
	unsigned i;

	scene_new(&scene, 1);
	for (i = 0; i < 128; i++)
		blocks[i] = fixture_alloc(&scene.f, 16 * KIB);
	for (i = 0; i < 128; i += 2)
		give(&scene, blocks[i * 37 % 128], 100);
	for (i = 0; i < 128; i += 2)
		is_finished_only(&scene, blocks[i * 37 % 128], 16 * KIB);
	fixture_stop(&scene.f);
}

static void
test_nothing_of_ours(void **state)
{
	struct scene scene;
	uint64_t a;

	scene_new(&scene, 1);
	a = fixture_alloc(&scene.f, 20 * MIB);
	assert_int_equal(ca_register(scene.f.heap, a, 0), -ENOENT);
	assert_int_equal(ca_register(scene.f.heap, a - 8192, 8192), -ENOENT);
	assert_int_equal(ca_register(scene.f.heap, a + 20 * MIB, 8192), -ENOENT);
	assert_int_equal(ca_register(scene.f.heap, a, UINT64_MAX), -ENOENT);
	assert_int_equal(ca_register(scene.f.heap, a - 8192, 8193), 0);
	fixture_stop(&scene.f);
}

static bool
flag_of(struct scene *scene, uint64_t address)
{
	struct ca_block_info info;

	fixture_check(&scene->f);
	assert_int_equal(ca_lookup(scene->f.heap, address, &info), 0);
	return info.sync_memops;
}

/* Noted without a registration, too: what has a flag is in no magazine. */
static void
test_a_flag_is_the_live_blocks_own(void **state)
{
	struct scene scene;
	uint64_t a, b;

	scene_new(&scene, 1);
	a = fixture_alloc(&scene.f, 16 * KIB);
	b = fixture_alloc(&scene.f, 16 * KIB);
	assert_int_equal(ca_note_sync_memops(scene.f.heap, a + 100, true), 0);
	assert_true(flag_of(&scene, a) && !flag_of(&scene, b));
	assert_int_equal(ca_note_sync_memops(scene.f.heap, b, false), 0);
	assert_int_equal(ca_note_sync_memops(scene.f.heap, a, false), 0);
	assert_false(flag_of(&scene, a) || flag_of(&scene, b));
	assert_int_equal(ca_note_sync_memops(scene.f.heap, a, true), 0);
	fixture_free(&scene.f, a);
	assert_false(flag_of(&scene, a));
	assert_int_equal(ca_note_sync_memops(scene.f.heap, a, true), -ENOENT);
	assert_int_equal(ca_note_sync_memops(scene.f.heap, a - 8192, true), -ENOENT);
	assert_int_equal(fixture_alloc(&scene.f, 16 * KIB), a);
	assert_false(flag_of(&scene, a));
	fixture_stop(&scene.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_block_is_handed_out_finished_only),
		cmocka_unit_test(test_beyond_the_slack_the_host_waits),
		cmocka_unit_test(test_only_the_range),
		cmocka_unit_test(test_memory_that_is_free),
		cmocka_unit_test(test_until_the_segment_is_back_at_the_driver),
		cmocka_unit_test(test_more_ranges_than_are_kept),
		cmocka_unit_test(test_nothing_of_ours),
		cmocka_unit_test(test_a_flag_is_the_live_blocks_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
