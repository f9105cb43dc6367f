/* SPDX-License-Identifier: MIT */
/* Beyond the slack, while other threads submit: their work may wait for what the caller does next,
 * so that an allocation waits no longer than it goes on. */
#include "tests/unit/allocator/deferred/scene.h"

#include <stdatomic.h>

enum { FOR_EVER = 0 };

static uint64_t
free_beside_others(struct scene *scene)
{
	uint64_t a = fixture_alloc(&scene->f, 20 * MIB);

	launch(scene, S);
	elsewhere(scene, (struct job){ .handle = R });
	fixture_free(&scene->f, a);
	return a;
}

static uint64_t
begin_beside_others(struct scene *scene, uint64_t milliseconds, enum ca_stream_kind kind)
{
	scene_that_ends(scene, 1, 10 * MIB, milliseconds ? milliseconds : UINT64_MAX / MILLISECOND);
	assert_int_equal(ca_stream_open(scene->f.space, kind, (void *)R, true, &scene->r), 0);
	return free_beside_others(scene);
}

static uint64_t
milliseconds(struct scene *scene)
{
	return scene->f.driver.clock_ns(scene->f.driver.self) / MILLISECOND;
}

static void
end_beside_others(struct scene *scene)
{
	assert_int_equal(fixture_sums(&scene->f).calls[CA_MODEL_WAIT], 0);
	fixture_stop(&scene->f);
}

static const enum ca_stream_kind kinds[] = { CA_STREAM_NONBLOCKING, CA_STREAM_PER_THREAD };

static void
test_what_ends_is_waited_for(void **state)
{
	struct scene scene;
	uint64_t a;

	for (unsigned i = 0; i < 2; i++) {
		a = begin_beside_others(&scene, 400, kinds[i]);
		assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
		assert_true(fixture_stats(&scene.f).host_syncs > 0);
		end_beside_others(&scene);
	}
}

static void
test_what_does_not_end_is_not(void **state)
{
	struct scene scene;
	uint64_t a, since;

	for (unsigned i = 0; i < 2; i++) {
		a = begin_beside_others(&scene, FOR_EVER, kinds[i]);
		since = milliseconds(&scene);
		assert_int_not_equal(fixture_alloc(&scene.f, 20 * MIB), a);
		assert_in_range(milliseconds(&scene) - since, 1000, 1020);
		fixture_alloc(&scene.f, 20 * MIB);
		assert_in_range(milliseconds(&scene) - since, 1500, 1540);
		end_beside_others(&scene);
	}
}

static void
test_others_of_another_context_are_others(void **state)
{
	const uintptr_t there = 0x53;
	struct ca_space *other;
	struct scene scene;
	uint64_t a;

	scene_that_ends(&scene, 2, 10 * MIB, UINT64_MAX / MILLISECOND);
	free_beside_others(&scene); /* no exposure from now on */
	finish(&scene, R);
	finish(&scene, S);
	ca_trim(scene.f.heap, 0); /* so that this is known */
	assert_int_equal(ca_space_create(scene.f.heap, (void *)2, 0, &other), 0);
	assert_int_equal(
		ca_stream_open(other, CA_STREAM_NONBLOCKING, (void *)there, true, &scene.r), 0);
	a = fixture_alloc(&scene.f, 20 * MIB);
	elsewhere(&scene, (struct job){ .handle = there });
	launch(&scene, S);
	fixture_free(&scene.f, a);
	assert_int_not_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	finish(&scene, there);
	finish(&scene, S);
	end_beside_others(&scene);
}

/* A wait that was nearly in vain tells of work that takes so long; a short one tells nothing. */
static void
test_a_wait_is_long_again_after_a_long_one(void **state)
{
	static const unsigned takes[] = { 100, 300 }, next[] = { 500, 1000 };

	for (unsigned i = 0; i < 2; i++) {
		struct scene scene;
		uint64_t a, since;

		begin_beside_others(&scene, FOR_EVER, CA_STREAM_NONBLOCKING);
		fixture_alloc(&scene.f, 20 * MIB);
		finish(&scene, R);
		finish(&scene, S);
		a = free_beside_others(&scene);
		since = milliseconds(&scene);
		for (uintptr_t stream = S; stream <= R; stream++)
			assert_int_equal(ca_model_stream_end(scene.f.model, (void *)stream,
							     (since + takes[i]) * MILLISECOND),
					 0);
		assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
		fixture_free(&scene.f, a);
		free_beside_others(&scene);
		since = milliseconds(&scene);
		fixture_alloc(&scene.f, 20 * MIB);
		assert_in_range(milliseconds(&scene) - since, next[i], next[i] + 20);
		end_beside_others(&scene);
	}
}

/* The cache would grow to the whole device with kernels of several seconds. */
static void
test_a_wait_is_ten_times_as_long_once_the_cache_is_too_large(void **state)
{
	struct scene scene;
	uint64_t since;

	begin_beside_others(&scene, FOR_EVER, CA_STREAM_NONBLOCKING);
	atomic_store(&scene.f.space->too_large, true);
	since = milliseconds(&scene);
	fixture_alloc(&scene.f, 20 * MIB);
	assert_in_range(milliseconds(&scene) - since, 10 * 1000, 10 * 1020);
	end_beside_others(&scene);
}

/* Eight pieces of others' work, a third of a second each. */
static void
test_the_wait_is_as_long_as_work_goes_on(void **state)
{
	struct scene scene;
	uint64_t a, now, piece;

	scene_that_ends(&scene, 2, 10 * MIB, UINT64_MAX / MILLISECOND);
	launch(&scene, S);
	finish(&scene, S);
	now = scene.f.driver.clock_ns(scene.f.driver.self);
	for (piece = 1; piece <= 8; piece++) {
		a = fixture_alloc(&scene.f, piece < 8 ? 512 : 20 * MIB);
		elsewhere(&scene, (struct job){ .handle = R });
		assert_int_equal(ca_model_stream_end(scene.f.model, (void *)R,
						     now + piece * 333 * MILLISECOND),
				 0);
		fixture_free(&scene.f, a);
	}
	assert_int_equal(fixture_alloc(&scene.f, 20 * MIB), a);
	assert_in_range(milliseconds(&scene) - now / MILLISECOND, 8 * 333, 8 * 333 + 10);
	end_beside_others(&scene);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_ends_is_waited_for),
		cmocka_unit_test(test_what_does_not_end_is_not),
		cmocka_unit_test(test_others_of_another_context_are_others),
		cmocka_unit_test(test_a_wait_is_long_again_after_a_long_one),
		cmocka_unit_test(test_a_wait_is_ten_times_as_long_once_the_cache_is_too_large),
		cmocka_unit_test(test_the_wait_is_as_long_as_work_goes_on),
	};

	return cmocka_run_group_tests_name("allocator-beside_others", tests, NULL, NULL);
}
