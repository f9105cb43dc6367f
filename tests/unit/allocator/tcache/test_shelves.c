/* SPDX-License-Identifier: MIT */
/* A thread that works in several contexts, of one device and of several, keeps blocks of each. */
#include "tests/unit/allocator/tcache/magazine_scene.h"

enum { SPACES = 4, ROUNDS = 20, SIZES = 3 };

/* The first two of device 0, the others of device 1. */
struct scene {
	struct fixture f;
	struct ca_space *space[SPACES];
};

static struct ca_space *
add_space(struct fixture *f, uintptr_t context, unsigned device)
{
	struct ca_space *space;

	assert_int_equal(ca_space_create(f->heap, (void *)context, device, &space), 0);
	return space;
}

static void
scene_start(struct scene *scene)
{
	fixture_defaults(&scene->f);
	fixture_start(&scene->f);
	scene->space[0] = scene->f.space;
	for (uintptr_t i = 1; i < SPACES; i++)
		scene->space[i] = add_space(&scene->f, 1 + i, i >= SPACES / 2);
}

static void
check(struct ca_heap *heap)
{
	char reason[128] = "";

	if (ca_heap_check(heap, reason, sizeof(reason)))
		fail_msg("invariant: %s", reason);
}

static uint64_t
take(struct ca_space *space, uint64_t size)
{
	struct ca_block_info info;
	uint64_t address;

	assert_int_equal(ca_alloc(space, size, &address), 0);
	assert_int_equal(ca_lookup(space->heap, address, &info), 0);
	assert_ptr_equal(info.space, space);
	return address;
}

/* Each of the sizes, in each of the spaces. */
static void
round_of_pairs(struct scene *scene)
{
	for (unsigned i = 0; i < SPACES; i++)
		for (uint64_t size = 1; size <= SIZES; size++)
			assert_int_equal(
				ca_free(scene->f.heap, take(scene->space[i], size * 64 * KIB)), 0);
}

static void
test_contexts_in_turn_are_served_from_what_was_kept(void **state)
{
	struct scene scene;
	uint64_t requests;

	scene_start(&scene);
	for (unsigned i = 0; i < 2; i++)
		round_of_pairs(&scene);
	requests = scene.f.heap->requests;
	for (unsigned i = 0; i < ROUNDS; i++)
		round_of_pairs(&scene);
	assert_int_equal(scene.f.heap->requests, requests);
	assert_int_equal(kept(scene.f.heap), SPACES * SIZES);
	assert_int_equal(magazines(scene.f.heap), 2);
	for (const struct ca_magazine *m = scene.f.heap->magazines; m; m = m->next)
		assert_false(m->shared); /* each device has one */
	check(scene.f.heap);
	assert_int_equal(ca_trim(scene.f.heap, 0), SPACES * 2 * MIB);
	assert_int_equal(kept(scene.f.heap), 0);
	check(scene.f.heap);
	fixture_stop(&scene.f);
}

/* The driver's free takes memory of any context, whichever is current. */
static void
test_a_freed_block_goes_to_the_shelf_of_its_own_context(void **state)
{
	struct scene scene;
	uint64_t blocks[SPACES], requests;

	scene_start(&scene);
	for (unsigned round = 0; round < ROUNDS; round++) {
		requests = scene.f.heap->requests;
		for (unsigned i = 0; i < SPACES; i++)
			blocks[i] = take(scene.space[i], 64 * KIB);
		if (round > 2)
			assert_int_equal(scene.f.heap->requests, requests);
		for (unsigned i = 0; i < SPACES; i++)
			assert_int_equal(ca_free(scene.f.heap, blocks[(i + round) % SPACES]), 0);
		assert_int_equal(kept(scene.f.heap), SPACES);
		check(scene.f.heap);
	}
	fixture_stop(&scene.f);
}

/* ---- bounds */

static unsigned
shelves(const struct ca_heap *heap)
{
	const struct ca_magazine *magazine;
	unsigned n = 0;

	for (magazine = heap->magazines; magazine; magazine = magazine->next)
		n += magazine->shelf_count;
	return n;
}

static void
test_contexts_beyond_the_shelves_take_turns(void **state)
{
	enum { MANY_SPACES = 2 * CA_SHELVES + 3 };
	struct ca_space *spaces[MANY_SPACES];
	uint64_t seed = fixture_seed(7), requests;
	struct fixture f;

	fixture_defaults(&f);
	fixture_start(&f);
	spaces[0] = f.space;
	for (uintptr_t i = 1; i < MANY_SPACES; i++)
		spaces[i] = add_space(&f, 1 + i, 0);
	for (unsigned i = 0; i < 4000; i++) {
		struct ca_space *space = spaces[fixture_random(&seed) % MANY_SPACES];

		assert_int_equal(ca_free(f.heap, take(space, 64 * KIB)), 0);
		if (i % 64 == 0)
			check(f.heap);
	}
	assert_int_equal(shelves(f.heap), CA_SHELVES);
	assert_int_equal(magazines(f.heap), 1);
	/* who stays gets one in the end */
	for (unsigned i = 0; i < 200; i++)
		assert_int_equal(ca_free(f.heap, take(spaces[MANY_SPACES - 1], 64 * KIB)), 0);
	requests = f.heap->requests;
	assert_int_equal(ca_free(f.heap, take(spaces[MANY_SPACES - 1], 64 * KIB)), 0);
	assert_int_equal(f.heap->requests, requests);
	check(f.heap);
	fixture_stop(&f);
}

static void
test_the_shelf_of_a_dead_context_is_the_next_ones_at_once(void **state)
{
	struct ca_space *later;
	struct fixture f;

	fixture_defaults(&f);
	fixture_start(&f);
	fixture_free(&f, fixture_alloc(&f, 64 * KIB));
	assert_int_equal(kept(f.heap), 1);
	ca_model_context_destroy(f.model, (void *)1);
	ca_space_kill(f.space);
	assert_int_equal(kept(f.heap), 0);
	for (uintptr_t i = 1; i < CA_SHELVES; i++)
		add_space(&f, 1 + i, 0);
	later = add_space(&f, 1 + CA_SHELVES, 0);
	assert_int_equal(later->number % CA_SHELVES, f.space->number % CA_SHELVES);
	assert_int_equal(ca_free(f.heap, take(later, 64 * KIB)), 0);
	assert_int_equal(kept(f.heap), 1);
	assert_int_equal(shelves(f.heap), 1);
	fixture_stop(&f);
}

/* One magazine goes from device to device then. */
static void
test_there_are_so_many_further_magazines(void **state)
{
	enum { DEVICES = CA_FURTHER_MAGAZINES + 4, PAIRS = 200 };
	struct ca_space *spaces[DEVICES];
	struct ca_stats stats;
	struct fixture f;

	fixture_defaults(&f);
	f.pretend.capacity = 4 * DEVICES * GIB;
	fixture_start(&f);
	spaces[0] = f.space;
	for (unsigned i = 1; i < DEVICES; i++)
		spaces[i] = add_space(&f, 1 + i, i);
	for (unsigned i = 0; i < DEVICES; i++)
		for (unsigned j = 0; j < PAIRS; j++)
			assert_int_equal(ca_free(f.heap, take(spaces[i], 64 * KIB)), 0);
	assert_int_equal(magazines(f.heap), 1 + CA_FURTHER_MAGAZINES);
	assert_int_equal(ca_heap_check(f.heap, NULL, 0), 0);
	for (unsigned i = 0; i < DEVICES; i++) {
		ca_heap_stats(f.heap, i, &stats);
		assert_int_equal(stats.alloc_calls, PAIRS);
		assert_int_equal(stats.free_calls, PAIRS);
		assert_int_equal(stats.allocated_bytes.current, 0);
		assert_int_equal(stats.allocated_bytes.peak, 64 * KIB);
	}
	fixture_stop(&f);
}

/* ---- threads */

struct keeper {
	struct scene scene;
	unsigned done;
};

static void *
keep_in_each(void *arg)
{
	struct keeper *keeper = arg;
	uint64_t address;

	for (unsigned i = 0; i < SPACES; i++) {
		if (ca_alloc(keeper->scene.space[i], 64 * KIB, &address) ||
		    ca_free(keeper->scene.f.heap, address))
			return NULL;
		keeper->done++;
	}
	return NULL;
}

static void
test_what_ended_threads_kept_in_every_context_is_found(void **state)
{
	struct keeper keeper = { .done = 0 };
	struct fixture *f = &keeper.scene.f;
	uint64_t reserved;

	scene_start(&keeper.scene);
	in_thread(keep_in_each, &keeper);
	assert_int_equal(kept(f->heap), SPACES);
	reserved = fixture_sums(f).held_bytes;
	for (unsigned i = 0; i < SPACES; i++) { /* a segment: with what was kept, there is room */
		(void)take(keeper.scene.space[i], MIB);
		(void)take(keeper.scene.space[i], MIB);
	}
	assert_int_equal(fixture_sums(f).held_bytes, reserved);
	for (unsigned i = 0; i < 3; i++)
		in_thread(keep_in_each, &keeper);
	assert_int_equal(keeper.done, 4 * SPACES);
	/* two of this thread, and two of the others, one after another */
	assert_int_equal(magazines(f->heap), 4);
	check(f->heap);
	fixture_stop(f);
}

/* ---- sums */

enum { BLOCKS = 6, CALLS = 80, PROGRAMS = 300 };

static uint64_t
random_below(uint64_t *seed, uint64_t below)
{
	return fixture_random(seed) % below;
}

/* Allocations and frees in all contexts, with or without somebody who looks at each. */
static void
play(uint64_t seed, bool looks, struct ca_stats ret_stats[2])
{
	uint64_t live[BLOCKS] = { 0 };
	struct scene scene;

	scene_start(&scene);
	for (unsigned i = 0; i < CALLS; i++) {
		uint64_t *block = &live[random_below(&seed, BLOCKS)];
		struct ca_space *space = scene.space[random_below(&seed, SPACES)];
		uint64_t size = (1 + random_below(&seed, SIZES)) * 512;

		if (*block) {
			assert_int_equal(ca_free(scene.f.heap, *block), 0);
			*block = 0;
		} else {
			assert_int_equal(ca_alloc(space, size, block), 0);
		}
		if (looks)
			(void)fixture_stats(&scene.f);
	}
	check(scene.f.heap);
	for (unsigned device = 0; device < 2; device++)
		ca_heap_stats(scene.f.heap, device, &ret_stats[device]);
	fixture_stop(&scene.f);
}

static void
test_a_thread_has_exact_peaks_in_several_contexts(void **state)
{
	uint64_t seed = fixture_seed(3), hits = 0;

	for (unsigned i = 0; i < PROGRAMS; i++) {
		uint64_t program = fixture_random(&seed);
		struct ca_stats looked[2], alone[2];

		play(program, true, looked);
		play(program, false, alone);
		assert_memory_equal(&looked[0].requested_bytes, &alone[0].requested_bytes,
				    sizeof(looked[0].requested_bytes));
		for (unsigned device = 0; device < 2; device++) {
			assert_int_equal(looked[device].alloc_calls, alone[device].alloc_calls);
			assert_int_equal(looked[device].free_calls, alone[device].free_calls);
			assert_int_equal(looked[device].allocated_bytes.peak,
					 alone[device].allocated_bytes.peak);
			assert_int_equal(looked[device].active_bytes.peak,
					 alone[device].active_bytes.peak);
			assert_int_equal(looked[device].cached_bytes.peak,
					 alone[device].cached_bytes.peak);
			assert_int_equal(looked[device].requested_bytes.peak,
					 alone[device].requested_bytes.peak);
			hits += alone[device].cache_hits;
		}
	}
	assert_true(hits > PROGRAMS);
}

/* Memory that the program took from the driver itself is counted at once. */
static void
test_a_peak_is_exact_when_the_driver_gave_memory_elsewhere(void **state)
{
	struct scene scene;
	struct ca_stats stats;
	uint64_t here, there;

	scene_start(&scene);
	for (unsigned i = 0; i < 2; i++) { /* each device has a magazine */
		assert_int_equal(ca_free(scene.f.heap, take(scene.space[0], 64 * KIB)), 0);
		assert_int_equal(ca_free(scene.f.heap, take(scene.space[2], MIB)), 0);
	}
	here = take(scene.space[0], 64 * KIB);
	there = take(scene.space[2], MIB);
	assert_int_equal(ca_free(scene.f.heap, there), 0);
	assert_int_equal(ca_free(scene.f.heap, here), 0);
	assert_int_equal(ca_track_foreign(scene.space[2], (uint64_t)1 << 50, MIB, MIB), 0);
	ca_heap_stats(scene.f.heap, 1, &stats);
	assert_int_equal(stats.requested_bytes.current, MIB);
	assert_int_equal(stats.allocated_bytes.current, MIB);
	assert_int_equal(stats.requested_bytes.peak, MIB);
	assert_int_equal(stats.allocated_bytes.peak, MIB);
	assert_int_equal(stats.active_bytes.peak, MIB);
	fixture_stop(&scene.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_contexts_in_turn_are_served_from_what_was_kept),
		cmocka_unit_test(test_a_freed_block_goes_to_the_shelf_of_its_own_context),
		cmocka_unit_test(test_contexts_beyond_the_shelves_take_turns),
		cmocka_unit_test(test_the_shelf_of_a_dead_context_is_the_next_ones_at_once),
		cmocka_unit_test(test_there_are_so_many_further_magazines),
		cmocka_unit_test(test_what_ended_threads_kept_in_every_context_is_found),
		cmocka_unit_test(test_a_thread_has_exact_peaks_in_several_contexts),
		cmocka_unit_test(test_a_peak_is_exact_when_the_driver_gave_memory_elsewhere),
	};

	return cmocka_run_group_tests_name("allocator-shelves", tests, NULL, NULL);
}
