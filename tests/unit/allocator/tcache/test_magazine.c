/* SPDX-License-Identifier: MIT */
/* The blocks that a thread keeps in its magazine: which threads find them, and which must not. */
#include "tests/unit/allocator/tcache/magazine_scene.h"

#include <errno.h>

static void
test_what_an_ended_thread_kept_serves_others(void **state)
{
	struct shared shared = { .size = 64 * KIB };
	uint64_t held;
	int i;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	in_thread(take_and_free_many, &shared);
	held = fixture_stats(&shared.f).reserved_bytes.current;
	for (i = 0; i < MANY; i++) /* of the same size ... */
		fixture_alloc(&shared.f, 64 * KIB);
	assert_int_equal(fixture_stats(&shared.f).reserved_bytes.current, held);
	fixture_stop(&shared.f);
}

static void
test_what_an_ended_thread_kept_is_merged_for_another_size(void **state)
{
	struct shared shared = { .size = 64 * KIB };
	uint64_t held;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	in_thread(take_and_free_many, &shared);
	held = fixture_stats(&shared.f).reserved_bytes.current;
	fixture_alloc(&shared.f, MIB);
	fixture_alloc(&shared.f, MIB);
	assert_int_equal(fixture_stats(&shared.f).reserved_bytes.current, held);
	fixture_stop(&shared.f);
}

static void
test_out_of_memory_comes_only_when_no_thread_keeps_any(void **state)
{
	struct shared shared = { .size = MIB };
	uint64_t block;

	fixture_defaults(&shared.f);
	shared.f.pretend.capacity = MANY * MIB;
	fixture_start(&shared.f);
	in_thread(take_and_free_many, &shared);
	assert_int_equal(shared.done, 0);
	assert_int_equal(ca_alloc(shared.f.space, MANY * MIB, &block), 0);
	fixture_check(&shared.f);
	fixture_free(&shared.f, block);
	fixture_stop(&shared.f);
}

static void
test_a_dead_space_takes_what_is_kept_along(void **state)
{
	struct shared shared = { .size = 64 * KIB };
	uint64_t block;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	fixture_free(&shared.f, fixture_alloc(&shared.f, 64 * KIB));
	in_thread(take_and_free_many, &shared);
	ca_model_context_destroy(shared.f.model, (void *)1);
	ca_space_kill(shared.f.space);
	fixture_check(&shared.f);
	assert_int_equal(ca_free(shared.f.heap, shared.blocks[0]), -ENOENT);
	assert_int_equal(ca_alloc(shared.f.space, 64 * KIB, &block), -ENODEV);
	/* the same threads' magazines serve another space */
	assert_int_equal(ca_space_create(shared.f.heap, (void *)2, 0, &shared.f.space), 0);
	block = fixture_alloc(&shared.f, 64 * KIB);
	fixture_free(&shared.f, block);
	assert_int_equal(fixture_alloc(&shared.f, 64 * KIB), block);
	fixture_stop(&shared.f);
}

static void
test_a_retired_segment_is_taken_out_of_magazines(void **state)
{
	struct shared shared = { .size = MIB / 2 };
	uint64_t block;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	block = fixture_alloc(&shared.f, MIB / 2);
	in_thread(take_and_free_many, &shared);
	assert_int_equal(ca_retire(shared.f.heap, block), 0);
	fixture_check(&shared.f);
	assert_int_equal(ca_retire(shared.f.heap, shared.blocks[MANY - 1]), 0);
	fixture_check(&shared.f);
	assert_int_equal(ca_free(shared.f.heap, block), 0); /* the segment goes back */
	fixture_check(&shared.f);
	assert_int_equal(ca_free(shared.f.heap, block), -ENOENT);
	fixture_stop(&shared.f);
}

static void
test_freed_memory_is_not_live(void **state)
{
	struct ca_block_info info;
	struct fixture f;
	uint64_t block;

	fixture_defaults(&f);
	fixture_start(&f);
	block = fixture_alloc(&f, 64 * KIB);
	assert_int_equal(ca_lookup(f.heap, block + 5, &info), 0);
	assert_true(info.live);
	fixture_free(&f, block);
	assert_int_equal(ca_lookup(f.heap, block + 5, &info), 0);
	assert_false(info.live);
	assert_int_equal(ca_forget_block(f.heap, block), -ENOENT);
	assert_int_equal(ca_register(f.heap, block, 1), 0);
	fixture_stop(&f);
}

/* What is to be trimmed or filled must be where it is looked for. */
static void
test_there_are_no_magazines_where_memory_is_tended_or_filled(void **state)
{
	unsigned setting;
	uint64_t block;

	for (setting = 0; setting < 5; setting++) {
		struct fixture f;

		fixture_defaults(&f);
		f.config.trim_every = setting == 0;
		f.config.trim_idle_ms = setting == 1;
		f.config.max_cached_bytes = setting == 2 ? 0 : UINT64_MAX;
		f.config.zero = setting == 3;
		f.config.poison = setting == 4;
		fixture_start(&f);
		block = fixture_alloc(&f, 64 * KIB);
		fixture_free(&f, block);
		fixture_alloc(&f, 64 * KIB);
		assert_int_equal(magazines(f.heap), 0);
		fixture_stop(&f);
	}
}

static void
test_a_forked_child_forgets_its_magazine(void **state)
{
	struct fixture f;
	uint64_t block;

	fixture_defaults(&f);
	fixture_start(&f);
	block = fixture_alloc(&f, 64 * KIB);
	fixture_free(&f, block);
	ca_heap_after_fork_child(f.heap); /* same process: what matters is what it forgets */
	assert_int_equal(ca_free(f.heap, block), -ENOENT);
	assert_int_equal(ca_alloc(f.space, 64 * KIB, &block), -ENODEV);
	fixture_stop(&f);
}

/* Of the word that says whose a block is, the lowest bits say what it is. */
static void
test_a_free_inside_a_block_is_refused_whatever_the_address(void **state)
{
	struct fixture f;
	uint64_t block, other;
	unsigned offset;

	fixture_defaults(&f);
	fixture_start(&f);
	block = fixture_alloc(&f, 64 * KIB);
	other = fixture_alloc(&f, 64 * KIB);
	fixture_free(&f, other); /* there is a magazine */
	for (offset = 1; offset < 2 * 512; offset++)
		assert_int_equal(ca_free(f.heap, block + offset), -EINVAL);
	fixture_check(&f);
	assert_int_equal(fixture_stats(&f).free_calls, 1);
	fixture_free(&f, block);
	fixture_stop(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_an_ended_thread_kept_serves_others),
		cmocka_unit_test(test_what_an_ended_thread_kept_is_merged_for_another_size),
		cmocka_unit_test(test_out_of_memory_comes_only_when_no_thread_keeps_any),
		cmocka_unit_test(test_a_dead_space_takes_what_is_kept_along),
		cmocka_unit_test(test_a_retired_segment_is_taken_out_of_magazines),
		cmocka_unit_test(test_freed_memory_is_not_live),
		cmocka_unit_test(test_there_are_no_magazines_where_memory_is_tended_or_filled),
		cmocka_unit_test(test_a_forked_child_forgets_its_magazine),
		cmocka_unit_test(test_a_free_inside_a_block_is_refused_whatever_the_address),
	};

	return cmocka_run_group_tests_name("allocator-magazine", tests, NULL, NULL);
}
