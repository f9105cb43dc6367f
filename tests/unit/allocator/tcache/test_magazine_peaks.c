/* SPDX-License-Identifier: MIT */
/*
 * What hits are counted as, until somebody looks: the same program runs twice, and in one of the
 * runs somebody looks after every call. And what a signal handler learns that interrupts a hit.
 */
#include "tests/unit/allocator/tcache/magazine_scene.h"
#include "tests/unit/allocator/deferred/scene.h"

enum { PROGRAMS = 1000, CALLS = 60, BLOCKS = 3, BLOCKS_MANY = 12, SIZES = 6, GAUGES = 4 };

struct program {
	struct scene scene;
	uint64_t seed;
	uint64_t calm; /* one call in so many is work of the stream */
	bool wide; /* more blocks, and sizes that fill segments: calls that no magazine serves */
	uint64_t live[BLOCKS_MANY];
	uint64_t peaks[GAUGES]; /* that were seen */
};

static uint64_t
choose(struct program *program, uint64_t below)
{
	return fixture_random(&program->seed) % below;
}

static void
currents(const struct ca_stats *stats, struct ca_gauge gauges[GAUGES])
{
	gauges[0] = stats->requested_bytes;
	gauges[1] = stats->allocated_bytes;
	gauges[2] = stats->active_bytes;
	gauges[3] = stats->cached_bytes;
}

static void
look(struct program *program)
{
	struct ca_stats stats = fixture_stats(&program->scene.f);
	struct ca_gauge gauges[GAUGES];
	int i;

	currents(&stats, gauges);
	for (i = 0; i < GAUGES; i++)
		if (program->peaks[i] < gauges[i].current)
			program->peaks[i] = gauges[i].current;
}

/*
 * A few sizes, of which requests and blocks reach their peaks at different moments: most often
 * allocated and freed, now and then used by the stream. (fixture_alloc and fixture_free look.)
 */
static void
step(struct program *program)
{
	struct fixture *f = &program->scene.f;
	uint64_t *block = &program->live[choose(program, program->wide ? BLOCKS_MANY : BLOCKS)];
	uint64_t what = choose(program, program->calm), size;

	if (what == 0) {
		launch(&program->scene, S);
	} else if (what == 1) {
		finish(&program->scene, S);
	} else if (*block) {
		assert_int_equal(ca_free(f->heap, *block), 0);
		*block = 0;
	} else {
		size = (1 + choose(program, SIZES)) * 512 - choose(program, 512);
		if (program->wide)
			size = size << choose(program, 12);
		assert_int_equal(ca_alloc(f->space, size, block), 0);
	}
}

static struct ca_stats
run(struct program *program, uint64_t seed, bool looks)
{
	struct ca_stats stats;
	int i;

	*program = (struct program){ .seed = seed,
				     .calm = seed % 2 ? 10 : 1000,
				     .wide = seed / 2 % 2 };
	scene_new(&program->scene, 1);
	for (i = 0; i < (program->wide ? 5 * CALLS : CALLS); i++) {
		step(program);
		if (looks)
			look(program);
	}
	fixture_check(&program->scene.f);
	stats = fixture_stats(&program->scene.f);
	fixture_stop(&program->scene.f);
	return stats;
}

/* A short program, since peaks that only hits reach are soon those of all its blocks. */
static void
compare(uint64_t seed, uint64_t hits[2])
{
	struct program looked, alone;
	struct ca_stats one = run(&looked, seed, true), other = run(&alone, seed, false);
	struct ca_gauge ones[GAUGES], others[GAUGES];
	int i;

	assert_int_equal(one.alloc_calls, other.alloc_calls);
	assert_int_equal(one.free_calls, other.free_calls);
	assert_int_equal(one.taken_clean, other.taken_clean);
	assert_int_equal(one.taken_same_stream, other.taken_same_stream);
	currents(&one, ones);
	currents(&other, others);
	for (i = 0; i < GAUGES; i++) {
		assert_int_equal(ones[i].current, others[i].current);
		assert_int_equal(ones[i].total, others[i].total);
		assert_int_equal(ones[i].peak, others[i].peak);
		assert_in_range(ones[i].peak, looked.peaks[i], UINT64_MAX);
	}
	hits[0] += one.taken_clean;
	hits[1] += one.taken_same_stream;
}

static void
test_sums_and_peaks_are_the_same_whether_or_not_somebody_looks(void **state)
{
	uint64_t seed = fixture_seed(1), hits[2] = { 0, 0 };
	int i;

	for (i = 0; i < PROGRAMS; i++)
		compare(fixture_random(&seed), hits);
	assert_true(hits[0] > PROGRAMS && hits[1] > PROGRAMS);
}

/* A free comes off the sums behind the calls that the thread has not counted yet. */
static void
test_a_free_that_names_a_stream_hides_no_peak(void **state)
{
	uint64_t large, small;
	struct ca_stats stats;
	struct fixture f;

	fixture_defaults(&f);
	fixture_start(&f);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ca_alloc(f.space, 64 * KIB, &small), 0);
		assert_int_equal(ca_free(f.heap, small), 0);
	}
	assert_int_equal(ca_alloc(f.space, MIB, &large), 0);
	assert_int_equal(ca_alloc(f.space, 64 * KIB, &small), 0);
	assert_int_equal(ca_free_async(f.heap, large, NULL), 0);
	stats = fixture_stats(&f);
	assert_int_equal(stats.requested_bytes.peak, MIB + 64 * KIB);
	assert_int_equal(stats.allocated_bytes.peak, MIB + 64 * KIB);
	assert_int_equal(stats.active_bytes.peak, MIB + 64 * KIB);
	fixture_stop(&f);
}

static void
test_a_handler_learns_that_it_interrupted_a_hit(void **state)
{
	struct scene scene;

	scene_new(&scene, 1);
	fixture_free(&scene.f, fixture_alloc(&scene.f, 64 * KIB));
	assert_false(ca_heap_locked_here());
	atomic_store(&ca_own.magazine->lock, CA_OWNER);
	assert_true(ca_heap_locked_here());
	atomic_store(&ca_own.magazine->lock, CA_OTHER);
	assert_false(ca_heap_locked_here());
	atomic_store(&ca_own.magazine->lock, 0);
	fixture_stop(&scene.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sums_and_peaks_are_the_same_whether_or_not_somebody_looks),
		cmocka_unit_test(test_a_free_that_names_a_stream_hides_no_peak),
		cmocka_unit_test(test_a_handler_learns_that_it_interrupted_a_hit),
	};

	return cmocka_run_group_tests_name("allocator-magazine-peaks", tests, NULL, NULL);
}
