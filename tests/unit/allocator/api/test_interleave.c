/* SPDX-License-Identifier: MIT */
/*
 * What another thread can do while the lock is free, made deterministic: an observer runs inside
 * the driver call and enters the heap, which the contract of allocator/api/heap.h allows.
 */
#define FIXTURE_UNSEEN
#include "tests/unit/allocator/fixture.h"

#include <errno.h>

struct scene {
	struct fixture f;
	enum ca_model_function at;
	bool end;
	void (*act)(struct scene *scene);
	bool acted;
	uint64_t a, b, c;
	int r;
	struct ca_space *other;
};

static void
observer(void *arg, enum ca_model_function function, bool end)
{
	struct scene *scene = arg;

	if (scene->acted || function != scene->at || end != scene->end)
		return;
	scene->acted = true;
	scene->act(scene);
}

static void
scene_start(struct scene *scene)
{
	memset(scene, 0, sizeof(*scene));
	fixture_defaults(&scene->f);
	fixture_start(&scene->f);
	assert_int_equal(ca_space_create(scene->f.heap, (void *)2, 0, &scene->other), 0);
}

/* All the device has is in two freed segments, which work may still touch. */
static void
scene_full(struct scene *scene)
{
	memset(scene, 0, sizeof(*scene));
	fixture_defaults(&scene->f);
	scene->f.pretend.capacity = 40 * MIB;
	scene->f.pretend.work_ns = 1000 * 1000 * 1000; /* nobody sleeps */
	fixture_start(&scene->f);
	scene->a = fixture_alloc(&scene->f, 20 * MIB);
	scene->b = fixture_alloc(&scene->f, 20 * MIB);
	ca_model_submit(scene->f.model);
	fixture_free(&scene->f, scene->a);
	fixture_free(&scene->f, scene->b);
}

static void
scene_set(struct scene *scene, enum ca_model_function at, bool end,
	  void (*act)(struct scene *scene))
{
	scene->at = at;
	scene->end = end;
	scene->act = act;
	scene->acted = false;
	ca_model_set_observer(scene->f.model, observer, scene);
}

static void
scene_stop(struct scene *scene)
{
	assert_true(scene->acted);
	ca_model_set_observer(scene->f.model, NULL, NULL);
	fixture_check(&scene->f);
	fixture_stop(&scene->f);
}

static void
act_alloc(struct scene *scene)
{
	ca_model_finish(scene->f.model,
			UINT64_MAX); /* everything so far: an older mark would be done */
	scene->r = ca_alloc(scene->f.space, 20 * MIB, &scene->b);
}

/* Whoever publishes a block before its mark is recorded hands it out here. */
static void
free_invisible(bool end)
{
	struct scene scene;

	scene_start(&scene);
	scene.a = fixture_alloc(&scene.f, 20 * MIB);
	ca_model_submit(scene.f.model);
	scene_set(&scene, CA_MODEL_RECORD, end, act_alloc);
	assert_int_equal(ca_free(scene.f.heap, scene.a), 0);
	assert_int_equal(scene.r, 0);
	assert_int_not_equal(scene.a, scene.b);
	scene_stop(&scene);
}

static void
test_free_invisible(void **state)
{
	free_invisible(false);
	free_invisible(true);
}

static void
act_free(struct scene *scene)
{
	ca_model_submit(scene->f.model); /* piece 2, uses b; the mark of a is recorded already */
	scene->r = ca_free(scene->f.heap, scene->b);
}

/* A mark that was recorded before b's free must not set b free. */
static void
test_mark_not_shared_backwards(void **state)
{
	struct scene scene;

	scene_start(&scene);
	scene.a = fixture_alloc(&scene.f, 20 * MIB);
	scene.b = fixture_alloc(&scene.f, 20 * MIB);
	ca_model_submit(scene.f.model);
	scene_set(&scene, CA_MODEL_RECORD, true, act_free);
	assert_int_equal(ca_free(scene.f.heap, scene.a), 0);
	assert_int_equal(scene.r, 0);
	ca_model_finish(scene.f.model, 1);
	scene.c = fixture_alloc(&scene.f, 20 * MIB);
	assert_int_not_equal(scene.c, scene.b);
	scene.c = fixture_alloc(&scene.f, 20 * MIB);
	assert_int_not_equal(scene.c, scene.b);
	ca_model_finish(scene.f.model, 2);
	scene_stop(&scene);
}

static void
act_kill(struct scene *scene)
{
	ca_model_context_destroy(scene->f.model, (void *)1);
	ca_space_kill(scene->f.space);
}

static void
test_kill_in_take(void **state)
{
	struct scene scene;
	uint64_t out = 0;

	scene_start(&scene);
	scene_set(&scene, CA_MODEL_TAKE, true, act_kill);
	assert_int_equal(ca_alloc(scene.f.space, 20 * MIB, &out), -ENODEV);
	assert_int_equal(out, 0);
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_RETURN], 0);
	scene_stop(&scene);
}

static void
kill_in_free(enum ca_model_function function, bool end)
{
	struct scene scene;

	scene_start(&scene);
	scene.a = fixture_alloc(&scene.f, 20 * MIB);
	scene_set(&scene, function, end, act_kill);
	assert_int_equal(ca_free(scene.f.heap, scene.a), 0);
	assert_int_equal(fixture_sums(&scene.f).marks, 0);
	scene_stop(&scene);
}

static void
test_kill_in_free(void **state)
{
	kill_in_free(CA_MODEL_RECORD, false);
	kill_in_free(CA_MODEL_RECORD, true);
}

/* In a query, a wait, a return of the ladder: the alloc that walks it must survive. */
static void
kill_in_alloc(enum ca_model_function function, bool end)
{
	struct scene scene;
	uint64_t out;
	int r;

	scene_full(&scene);
	scene_set(&scene, function, end, act_kill);
	r = ca_alloc(scene.f.space, 30 * MIB, &out);
	assert_int_equal(r, -ENODEV);
	assert_int_equal(fixture_sums(&scene.f).marks, 0);
	scene_stop(&scene);
}

static void
test_kill_in_alloc(void **state)
{
	kill_in_alloc(CA_MODEL_QUERY, false);
	kill_in_alloc(CA_MODEL_QUERY, true);
	kill_in_alloc(CA_MODEL_WAIT, false);
	kill_in_alloc(CA_MODEL_WAIT, true);
	kill_in_alloc(CA_MODEL_RETURN, true);
}

static void
act_take_same(struct scene *scene)
{
	scene->r = ca_alloc(scene->other, 20 * MIB, &scene->b);
}

/* A segment just returned comes back to another thread before the returning one looks again. */
static void
test_address_comes_back(void **state)
{
	struct scene scene;

	scene_start(&scene);
	scene.a = fixture_alloc(&scene.f, 20 * MIB);
	fixture_free(&scene.f, scene.a);
	scene_set(&scene, CA_MODEL_RETURN, true, act_take_same);
	assert_int_equal(ca_trim(scene.f.heap, 0), 20 * MIB);
	assert_int_equal(scene.r, 0);
	assert_int_equal(scene.b, scene.a);
	assert_int_equal(fixture_stats(&scene.f).stale_records, 0);
	assert_int_equal(fixture_stats(&scene.f).driver_free_calls, 1);
	fixture_free(&scene.f, scene.b);
	scene_stop(&scene);
}

static void
act_double_free(struct scene *scene)
{
	scene->r = ca_free(scene->f.heap, scene->a);
}

static void
test_double_free_meanwhile(void **state)
{
	struct scene scene;

	scene_start(&scene);
	scene.a = fixture_alloc(&scene.f, 20 * MIB);
	scene_set(&scene, CA_MODEL_RECORD, false, act_double_free);
	assert_int_equal(ca_free(scene.f.heap, scene.a), 0);
	assert_int_equal(scene.r, -EINVAL);
	scene_set(&scene, CA_MODEL_RETURN, false, act_double_free);
	ca_trim(scene.f.heap, 0);
	assert_int_equal(scene.r, -EINVAL);
	scene_stop(&scene);
}

static void
act_retire(struct scene *scene)
{
	scene->r = ca_retire(scene->f.heap, scene->a);
}

/* Exported while its free is on the way: never cached, goes back. */
static void
test_retire_meanwhile(void **state)
{
	struct scene scene;

	scene_start(&scene);
	scene.a = fixture_alloc(&scene.f, 20 * MIB);
	scene_set(&scene, CA_MODEL_RECORD, true, act_retire);
	assert_int_equal(ca_free(scene.f.heap, scene.a), 0);
	assert_int_equal(scene.r, 0);
	scene.b = fixture_alloc(&scene.f, 20 * MIB);
	assert_int_equal(fixture_sums(&scene.f).calls[CA_MODEL_RETURN], 1);
	fixture_free(&scene.f, scene.b);
	scene_stop(&scene);
}

static void
act_capture(struct scene *scene)
{
	ca_model_set_capturing(scene->f.model, true);
}

/* A capture that begins in the middle ends the search for memory; nothing is lost. */
static void
capture_begins(enum ca_model_function function)
{
	struct scene scene;
	uint64_t out;

	scene_full(&scene);
	scene_set(&scene, function, false, act_capture);
	assert_int_equal(ca_alloc(scene.f.space, 30 * MIB, &out), CA_DRIVER_OUT_OF_MEMORY);
	ca_model_set_capturing(scene.f.model, false);
	assert_int_equal(ca_alloc(scene.f.space, 30 * MIB, &out), 0);
	scene_stop(&scene);
}

static void
test_capture_begins(void **state)
{
	capture_begins(CA_MODEL_QUERY);
	capture_begins(CA_MODEL_WAIT);
	capture_begins(CA_MODEL_RETURN);
}

static void
act_capture_relaxed(struct scene *scene)
{
	ca_model_set_capturing_relaxed(scene->f.model);
}

/* One in which the driver's free is allowed: what was freed is there, as without the cache. */
static void
relaxed_begins(enum ca_model_function function)
{
	struct scene scene;
	uint64_t out = 0;

	scene_full(&scene);
	scene_set(&scene, function, false, act_capture_relaxed);
	assert_int_equal(ca_alloc(scene.f.space, 30 * MIB, &out), 0);
	ca_model_set_capturing(scene.f.model, false);
	scene_stop(&scene);
}

static void
test_relaxed_capture_begins(void **state)
{
	relaxed_begins(CA_MODEL_QUERY);
	relaxed_begins(CA_MODEL_WAIT);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_free_invisible),
		cmocka_unit_test(test_mark_not_shared_backwards),
		cmocka_unit_test(test_kill_in_take),
		cmocka_unit_test(test_kill_in_free),
		cmocka_unit_test(test_kill_in_alloc),
		cmocka_unit_test(test_address_comes_back),
		cmocka_unit_test(test_double_free_meanwhile),
		cmocka_unit_test(test_retire_meanwhile),
		cmocka_unit_test(test_capture_begins),
		cmocka_unit_test(test_relaxed_capture_begins),
	};

	return cmocka_run_group_tests_name("allocator-interleave", tests, NULL, NULL);
}
