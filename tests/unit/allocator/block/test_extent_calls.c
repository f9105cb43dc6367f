/* SPDX-License-Identifier: MIT */
/*
 * expandable_segments, and what another thread does while one is inside a driver call: the model's
 * observer allocates and frees in another space of the device, at random, so that any two calls of
 * both may interleave, and each run is the same.
 */
#include "tests/unit/allocator/deferred/scene.h"

enum { SLOTS = 24, OTHER_SLOTS = 16, STEPS = 3000 };

static struct other {
	struct fixture *f;
	struct ca_space *space;
	uint64_t at[OTHER_SLOTS];
	uint64_t seed;
	uint64_t ends_at; /* calls from now on until it ends the first space; 0: never */
	bool inside;
} other;

static void
other_acts(void)
{
	uint64_t *at = &other.at[fixture_random(&other.seed) % OTHER_SLOTS];
	uint64_t bytes = (fixture_random(&other.seed) % 40 + 1) * MIB / 2;

	if (*at)
		assert_int_equal(ca_free(other.f->heap, *at), 0);
	if (*at || ca_alloc(other.space, bytes, at))
		*at = 0;
}

static void
end_first_space(void)
{
	ca_model_context_destroy(other.f->model, (void *)1);
	ca_space_kill(other.f->space);
}

/* No more is ever on the device than the limit says, nor counted. */
static void
see(void *arg, enum ca_model_function function, bool end)
{
	const struct fixture *f = other.f;
	struct ca_model_sums sums = fixture_sums(other.f);
	uint64_t limit = f->heap->config.limit.bytes;

	assert_true(sums.used_bytes <= limit);
	assert_true(f->space->device->stats.reserved_bytes.current <= limit);
	if (other.ends_at && !--other.ends_at)
		end_first_space();
	if (other.inside || fixture_random(&other.seed) % 3)
		return;
	other.inside = true;
	other_acts();
	other.inside = false;
}

static void
step(struct scene *scene, uint64_t *seed, uint64_t *at, uint64_t work)
{
	struct fixture *f = &scene->f;
	uint64_t bytes = (fixture_random(seed) % 48 + 1) * MIB;

	if (fixture_random(seed) % 8 == 0)
		ca_model_stream_finish(f->model,
				       (void *)(uintptr_t)(fixture_random(seed) % 2 ? S : R),
				       fixture_random(seed) % work);
	launch(scene, fixture_random(seed) % 2 ? R : S);
	if (*at)
		assert_true(!ca_free(f->heap, *at) || f->space->dead);
	if (*at || ca_alloc(f->space, fixture_random(seed) % 4 ? bytes : bytes / 4, at))
		*at = 0;
	if (fixture_random(seed) % 100 == 0)
		ca_trim(f->heap, fixture_random(seed) % (64 * MIB));
}

static void
begin(struct scene *scene, uint64_t seed, uint64_t large, uint64_t slack_percent)
{
	struct fixture *f = &scene->f;

	fixture_defaults(f);
	f->config.expandable_segments = true;
	f->config.expandable_slack_percent = slack_percent;
	f->config.reuse_slack_bytes = 0;
	f->config.limit.bytes = large + 300 * MIB;
	f->pretend.work_ns = 1000;
	f->pretend.finish_at_once = seed & 1;
	scene_start(scene, 2);
	other = (struct other){ .f = f, .seed = seed * 77 + 1 };
	assert_int_equal(ca_space_create(f->heap, (void *)2, 0, &other.space), 0);
	if (large)
		fixture_alloc(f, large);
	ca_model_set_observer(f->model, see, NULL);
}

static void
random_run(uint64_t seed, uint64_t large, uint64_t slack_percent)
{
	struct scene scene;
	struct fixture *f = &scene.f;
	uint64_t at[SLOTS] = { 0 };
	unsigned i;

	begin(&scene, seed, large, slack_percent);
	for (i = 0; i < STEPS; i++)
		step(&scene, &seed, &at[fixture_random(&seed) % SLOTS], i + 1);
	ca_model_set_observer(f->model, NULL, NULL);
	assert_true(fixture_sums(f).calls[CA_MODEL_RANGE_ALIAS] > 100);
	assert_int_equal(f->space->device->taking_bytes, 0);
	fixture_check(f);
	ca_order_last_stream = NULL;
	fixture_stop(f);
}

/* Memory that has moved is mapped at two addresses for a while: given back at one of them, it is
 * there still. */
static void
test_the_limit_holds_at_each_call(void **state)
{
	uint64_t seed = fixture_seed(20261128);
	unsigned i;

	for (i = 0; i < 4; i++) {
		random_run(seed + i, 0, 4);
		random_run(seed + i, 600 * MIB, i % 2 ? 1000 : 0);
	}
}

/* The context of the first space ends in the middle of any call. */
static void
short_life(uint64_t seed, uint64_t large, uint64_t ends_at)
{
	struct scene scene;
	struct fixture *f = &scene.f;
	uint64_t at[SLOTS] = { 0 };
	unsigned i;

	begin(&scene, seed, large, 0);
	other.ends_at = ends_at;
	for (i = 0; !f->space->dead; i++)
		step(&scene, &seed, &at[fixture_random(&seed) % SLOTS], i + 1);
	ca_model_set_observer(f->model, NULL, NULL);
	for (i = 0; i < OTHER_SLOTS; i++)
		if (other.at[i])
			fixture_free(f, other.at[i]);
	ca_trim(f->heap, 0);
	fixture_check(f);
	assert_int_equal(fixture_sums(f).held_bytes, 0);
	assert_int_equal(f->space->device->taking_bytes, 0);
	ca_order_last_stream = NULL;
	fixture_stop(f);
}

static void
test_the_context_ends_at_any_call(void **state)
{
	uint64_t seed = fixture_seed(20261129);
	unsigned i;

	for (i = 0; i < 300 / FIXTURE_FAIL_STEP; i++)
		short_life(seed + i, i % 2 ? 600 * MIB : 0, 400 + fixture_random(&seed) % 4000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_limit_holds_at_each_call),
		cmocka_unit_test(test_the_context_ends_at_any_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
