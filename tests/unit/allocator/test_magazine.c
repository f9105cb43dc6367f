/* SPDX-License-Identifier: MIT */
/* What a thread keeps of what it freed: who finds it, who must not, and what is counted. */
#include "allocator/drain.h"
#include "tests/unit/allocator/fixture.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { MANY = 64, THREADS = 200, AT_ONCE = 4, ROUNDS = 300 };

struct shared {
	struct fixture f;
	uint64_t size;
	uint64_t blocks[MANY];
	_Atomic unsigned started, done;
	_Atomic int results[2];
	pthread_barrier_t together;
};

static void
in_thread(void *(*function)(void *), void *arg)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, function, arg), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *
take_and_free_many(void *arg)
{
	struct shared *shared = arg;
	int i;

	for (i = 0; i < MANY; i++)
		shared->done += ca_alloc(shared->f.space, shared->size, &shared->blocks[i]) != 0;
	for (i = 0; i < MANY; i++)
		shared->done += ca_free(shared->f.heap, shared->blocks[i]) != 0;
	return NULL;
}

static unsigned
magazines(const struct ca_heap *heap)
{
	const struct ca_magazine *magazine;
	unsigned n = 0;

	for (magazine = heap->magazines; magazine; magazine = magazine->next)
		n++;
	return n;
}

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

/* One after the other, and some at once. */
static void
test_magazines_of_ended_threads_go_to_new_ones(void **state)
{
	struct shared shared = { .size = 64 * KIB };
	pthread_t threads[AT_ONCE];
	int i, j;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	for (i = 0; i < THREADS; i++)
		in_thread(take_and_free_many, &shared);
	assert_in_range(magazines(shared.f.heap), 1, 8);
	for (i = 0; i < 8; i++) {
		struct shared each[AT_ONCE];

		for (j = 0; j < AT_ONCE; j++) {
			each[j] = shared;
			pthread_create(&threads[j], NULL, take_and_free_many, &each[j]);
		}
		for (j = 0; j < AT_ONCE; j++)
			pthread_join(threads[j], NULL);
		fixture_check(&shared.f);
	}
	assert_int_equal(fixture_stats(&shared.f).allocated_bytes.current, 0);
	assert_int_equal(ca_trim(shared.f.heap, 0), fixture_sums(&shared.f).peak_bytes);
	fixture_stop(&shared.f);
}

static void *
free_the_same(void *arg)
{
	struct shared *shared = arg;
	unsigned me = atomic_fetch_add(&shared->started, 1), round;

	for (round = 0; round < ROUNDS; round++) {
		pthread_barrier_wait(&shared->together);
		atomic_store(&shared->results[me], ca_free(shared->f.heap, shared->blocks[0]));
		pthread_barrier_wait(&shared->together);
	}
	return NULL;
}

static void
test_of_two_frees_of_a_block_one_succeeds(void **state)
{
	struct shared shared = { .size = 64 * KIB };
	pthread_t threads[2];
	unsigned i, round;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	pthread_barrier_init(&shared.together, NULL, 3);
	for (i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, free_the_same, &shared);
	for (round = 0; round < ROUNDS; round++) {
		assert_int_equal(ca_alloc(shared.f.space, shared.size, &shared.blocks[0]), 0);
		pthread_barrier_wait(&shared.together);
		pthread_barrier_wait(&shared.together);
		assert_int_equal(shared.results[0] + shared.results[1], -EINVAL);
	}
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&shared.together);
	fixture_check(&shared.f);
	assert_int_equal(fixture_stats(&shared.f).free_calls, ROUNDS);
	fixture_stop(&shared.f);
}

static void *
free_all(void *arg)
{
	struct shared *shared = arg;
	int i;

	for (i = 0; i < MANY; i++)
		shared->done += ca_free(shared->f.heap, shared->blocks[i]) != 0;
	return NULL;
}

static void
test_sums_are_exact_whoever_frees(void **state)
{
	struct shared shared = { .size = 0 };
	struct ca_stats stats;
	int i;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	for (i = 0; i < 3; i++) {
		int j;

		for (j = 0; j < MANY; j++)
			shared.blocks[j] = fixture_alloc(&shared.f, 300 * KIB);
		in_thread(free_all, &shared);
		stats = fixture_stats(&shared.f);
		assert_int_equal(stats.requested_bytes.current, 0);
		assert_int_equal(stats.allocated_bytes.current, 0);
		assert_int_equal(stats.active_bytes.current, 0);
		assert_int_equal(stats.cached_bytes.current, stats.reserved_bytes.current);
		assert_int_equal(stats.free_calls, (i + 1) * MANY);
		assert_int_equal(stats.alloc_calls, (i + 1) * MANY);
		assert_int_equal(stats.allocated_bytes.total, (i + 1) * MANY * 300 * KIB);
		assert_in_range(stats.allocated_bytes.peak, MANY * 300 * KIB - 2 * 8 * MIB,
				MANY * 300 * KIB);
	}
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
	assert_int_equal(ca_disown(f.heap, block), -ENOENT);
	assert_int_equal(ca_settle(f.heap, block), 0);
	fixture_stop(&f);
}

static struct ca_stream *
open_stream(struct fixture *f, uintptr_t handle)
{
	struct ca_stream *stream;

	assert_int_equal(
		ca_stream_open(f->space, CA_STREAM_NONBLOCKING, (void *)handle, true, &stream), 0);
	return stream;
}

static void
launch(struct fixture *f, struct ca_stream *stream, uintptr_t handle)
{
	ca_stream_note_thread(stream);
	ca_submit_begin(stream, NULL);
	ca_model_stream_submit(f->model, (void *)handle);
	ca_submit_end(stream);
}

static void
test_what_one_stream_uses_is_kept_until_there_is_another(void **state)
{
	struct fixture f;
	struct ca_stream *s;
	uint64_t block, before;

	fixture_defaults(&f);
	fixture_start(&f);
	s = open_stream(&f, 1);
	block = fixture_alloc(&f, 64 * KIB);
	launch(&f, s, 1);
	fixture_free(&f, block);
	assert_int_equal(fixture_alloc(&f, 64 * KIB), block);
	assert_int_equal(fixture_stats(&f).taken_same_stream, 1);
	fixture_free(&f, block);
	before = fixture_stats(&f).pending_blocks;
	assert_int_equal(before, 1);
	open_stream(&f, 2);
	assert_true(fixture_alloc(&f, 64 * KIB) !=
		    block); /* freed while there was one: no exact mark */
	ca_model_stream_finish(f.model, (void *)1, UINT64_MAX);
	assert_int_equal(fixture_alloc(&f, 32 * MIB) % (2 * MIB), 0); /* looks at what waits */
	assert_int_equal(fixture_stats(&f).pending_blocks, 0);
	fixture_stop(&f);
}

static unsigned
kept(const struct ca_heap *heap)
{
	const struct ca_magazine *magazine;
	unsigned n = 0;

	for (magazine = heap->magazines; magazine; magazine = magazine->next)
		n += magazine->kept;
	return n;
}

/* Whose free it was decides whom its memory may be handed to before it is finished. */
static void
test_a_free_in_stream_order_goes_past_the_magazine(void **state)
{
	struct ca_stream *stream;
	struct fixture f;
	uint64_t a, b;

	fixture_defaults(&f);
	fixture_start(&f);
	assert_int_equal(ca_stream_open(f.space, CA_STREAM_NONBLOCKING, &f, true, &stream), 0);
	a = fixture_alloc(&f, 64 * KIB);
	b = fixture_alloc(&f, 64 * KIB);
	fixture_free(&f, a);
	assert_int_equal(kept(f.heap), 1);
	assert_int_equal(ca_free_async(f.heap, b, stream), 0);
	fixture_check(&f);
	assert_int_equal(kept(f.heap), 1);
	assert_int_equal(fixture_stats(&f).pending_blocks, 1);
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

static bool captured_now;

static bool
is_captured(void *self)
{
	return captured_now;
}

static void
test_what_is_unfinished_is_not_handed_out_once_a_capture_is_near(void **state)
{
	struct ca_stream *stream;
	struct fixture f;
	uint64_t a;

	fixture_defaults(&f);
	fixture_start(&f);
	assert_int_equal(ca_stream_open(f.space, CA_STREAM_NONBLOCKING, &f, true, &stream), 0);
	a = fixture_alloc(&f, 64 * KIB);
	ca_submit_begin(stream, NULL);
	ca_submit_end(stream);
	fixture_free(&f, a);
	assert_int_equal(kept(f.heap), 1);
	captured_now = true;
	f.heap->driver.capturing = is_captured;
	assert_false(ca_magazine_take(f.space, 64 * KIB, 64 * KIB, false, &a));
	captured_now = false;
	assert_true(ca_magazine_take(f.space, 64 * KIB, 64 * KIB, false, &a));
	fixture_stop(&f);
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

struct mixed {
	struct shared *shared;
	uint64_t seed;
};

/* Blocks of a few sizes, handed from thread to thread. */
static void *
exchange(void *arg)
{
	struct mixed *mixed = arg;
	struct shared *shared = mixed->shared;
	int i;

	for (i = 0; i < 4000; i++) {
		uint64_t dice = fixture_random(&mixed->seed), mine = 0, theirs;
		_Atomic uint64_t *place = (_Atomic uint64_t *)&shared->blocks[dice % MANY];

		if (dice >> 8 & 1)
			shared->done += ca_alloc(shared->f.space,
						 (1 + (dice >> 16) % 12) * 40 * KIB, &mine) != 0;
		theirs = atomic_exchange(place, mine);
		if (theirs)
			shared->done += ca_free(shared->f.heap, theirs) != 0;
		if (i % 256 == 255)
			shared->done += ca_heap_check(shared->f.heap, NULL, 0) != 0;
		if (i % 512 == 100)
			ca_trim(shared->f.heap, 8 * MIB);
	}
	return NULL;
}

static void
test_threads_that_free_each_others_blocks_keep_the_invariants(void **state)
{
	struct shared shared = { .size = 0 };
	struct mixed mixed[AT_ONCE];
	pthread_t threads[AT_ONCE];
	uint64_t seed = fixture_seed(8713);
	int i;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	for (i = 0; i < AT_ONCE; i++) {
		mixed[i] = (struct mixed){ &shared, seed + (uint64_t)i };
		pthread_create(&threads[i], NULL, exchange, &mixed[i]);
	}
	for (i = 0; i < AT_ONCE; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(shared.done, 0);
	fixture_check(&shared.f);
	for (i = 0; i < MANY; i++)
		if (shared.blocks[i])
			fixture_free(&shared.f, shared.blocks[i]);
	assert_int_equal(fixture_stats(&shared.f).requested_bytes.current, 0);
	ca_trim(shared.f.heap, 0);
	assert_int_equal(fixture_sums(&shared.f).held_bytes, 0);
	fixture_stop(&shared.f);
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

static void *
free_one_and_go_on(void *arg)
{
	struct shared *shared = arg;
	uint64_t block;
	int i;

	shared->done += ca_alloc(shared->f.space, 4 * KIB, &block) != 0;
	shared->done += ca_free(shared->f.heap, block) != 0;
	pthread_barrier_wait(&shared->together);
	pthread_barrier_wait(&shared->together);
	shared->done += ca_free(shared->f.heap, shared->blocks[0]) != 0;
	for (i = 1; i < 8; i++) /* each of a size of its own: past the magazine */
		shared->done += ca_alloc(shared->f.space, i * KIB, &shared->blocks[i]) != 0;
	return NULL;
}

/* The free is counted before the allocation is. */
static void
test_a_peak_is_no_more_than_was_held_whoever_is_counted_first(void **state)
{
	struct shared shared = { .size = 64 * KIB };
	struct ca_stats stats;
	pthread_t thread;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	pthread_barrier_init(&shared.together, NULL, 2);
	fixture_free(&shared.f, fixture_alloc(&shared.f, 64 * KIB));
	pthread_create(&thread, NULL, free_one_and_go_on, &shared);
	pthread_barrier_wait(&shared.together);
	assert_int_equal(ca_alloc(shared.f.space, 64 * KIB, &shared.blocks[0]), 0);
	pthread_barrier_wait(&shared.together);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&shared.together);
	assert_int_equal(shared.done, 0);
	stats = fixture_stats(&shared.f);
	assert_in_range(stats.requested_bytes.peak, 64 * KIB, 128 * KIB);
	assert_in_range(stats.allocated_bytes.peak, 64 * KIB, 128 * KIB);
	assert_in_range(stats.active_bytes.peak, 64 * KIB, 128 * KIB);
	fixture_stop(&shared.f);
}

static void
test_no_peak_is_more_than_was_ever_reserved(void **state)
{
	struct shared shared = { .size = 64 * KIB };
	struct ca_stats stats;
	int i, round;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	for (round = 0; round < 2; round++) {
		for (i = 0; i < MANY; i++)
			assert_int_equal(ca_alloc(shared.f.space, shared.size, &shared.blocks[i]),
					 0);
		in_thread(free_all, &shared);
		in_thread(take_and_free_many, &shared);
	}
	stats = fixture_stats(&shared.f);
	assert_in_range(stats.requested_bytes.peak, 1, stats.reserved_bytes.peak);
	assert_in_range(stats.allocated_bytes.peak, 1, stats.reserved_bytes.peak);
	assert_in_range(stats.active_bytes.peak, 1, stats.reserved_bytes.peak);
	assert_in_range(stats.cached_bytes.peak, 1, stats.reserved_bytes.peak);
	fixture_stop(&shared.f);
}

enum { STEP_NS = 20 * 1000 * 1000 };

static void
sleep_a_step(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = STEP_NS }, NULL);
}

/* Three threads, whose magazines are made, and counted, in that order. */
struct passing {
	struct shared shared;
	_Atomic unsigned ready;
	_Atomic bool looking;
	_Atomic uint64_t passed;
};

static void
make_magazine(struct passing *passing, unsigned place)
{
	struct shared *shared = &passing->shared;
	uint64_t block;

	while (passing->ready != place)
		sched_yield();
	/* each of another size: none takes what the first keeps */
	shared->done += ca_alloc(shared->f.space, (64 >> place) * KIB, &block) != 0;
	shared->done += ca_free(shared->f.heap, block) != 0;
	passing->ready++;
}

static void *
pass_on(void *arg)
{
	struct passing *passing = arg;
	uint64_t block;

	make_magazine(passing, 0);
	while (!passing->looking)
		sched_yield();
	passing->shared.done += ca_alloc(passing->shared.f.space, 64 * KIB, &block) != 0;
	passing->passed = block;
	return NULL;
}

static void *
hold_the_looker_up(void *arg)
{
	struct passing *passing = arg;

	make_magazine(passing, 1);
	while (passing->ready != 3)
		sched_yield();
	atomic_store(&ca_own.magazine->lock, 1);
	passing->ready++;
	sleep_a_step();
	passing->looking = true; /* it waits for this magazine by now, most likely */
	sleep_a_step();
	atomic_store(&ca_own.magazine->lock, 0);
	return NULL;
}

static void *
free_what_is_passed(void *arg)
{
	struct passing *passing = arg;

	make_magazine(passing, 2);
	while (!passing->passed)
		sched_yield();
	passing->shared.done += ca_free(passing->shared.f.heap, passing->passed) != 0;
	return NULL;
}

static void
test_who_looks_never_sees_less_than_nothing(void **state)
{
	struct passing passing = { .ready = 0 };
	pthread_t threads[3];
	struct ca_stats stats;
	int i;

	fixture_defaults(&passing.shared.f);
	fixture_start(&passing.shared.f);
	pthread_create(&threads[0], NULL, pass_on, &passing);
	pthread_create(&threads[1], NULL, hold_the_looker_up, &passing);
	pthread_create(&threads[2], NULL, free_what_is_passed, &passing);
	while (passing.ready != 4)
		sched_yield();
	stats = fixture_stats(&passing.shared.f);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert_in_range(stats.requested_bytes.current, 0, 64 * KIB);
	assert_in_range(stats.allocated_bytes.current, 0, 64 * KIB);
	assert_in_range(stats.active_bytes.current, 0, 64 * KIB);
	assert_in_range(stats.cached_bytes.current, 0, stats.reserved_bytes.current);
	assert_int_equal(stats.alloc_calls - stats.free_calls, stats.allocated_bytes.current != 0);
	assert_int_equal(passing.shared.done, 0);
	fixture_stop(&passing.shared.f);
}

static void
test_a_trim_asks_for_what_a_magazine_keeps_unfinished(void **state)
{
	struct fixture f;
	struct ca_stream *s;
	uint64_t block;

	fixture_defaults(&f);
	fixture_start(&f);
	s = open_stream(&f, 1);
	block = fixture_alloc(&f, 4 * MIB);
	launch(&f, s, 1);
	fixture_free(&f, block);
	assert_int_equal(kept(f.heap), 1);
	ca_model_stream_finish(f.model, (void *)1, UINT64_MAX); /* nobody has asked yet */
	assert_true(ca_trim(f.heap, 0) > 0);
	assert_int_equal(fixture_sums(&f).held_bytes, 0);
	fixture_stop(&f);
}

static void *
trim(void *arg)
{
	struct shared *shared = arg;

	shared->started++;
	ca_trim(shared->f.heap, UINT64_MAX);
	shared->done++;
	return NULL;
}

/* It would leave the heap locked. */
static void
test_a_thread_is_not_cancelled_while_it_waits_for_a_magazine(void **state)
{
	struct shared shared = { .size = 0 };
	struct ca_magazine *magazine;
	pthread_t thread;
	void *result;

	fixture_defaults(&shared.f);
	fixture_start(&shared.f);
	fixture_free(&shared.f, fixture_alloc(&shared.f, 64 * KIB));
	magazine = shared.f.heap->magazines;
	atomic_store(&magazine->lock, 1);
	assert_int_equal(pthread_create(&thread, NULL, trim, &shared), 0);
	while (!shared.started)
		sched_yield();
	pthread_cancel(thread);
	sleep_a_step(); /* it is asleep by now, most likely */
	atomic_store(&magazine->lock, 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal(shared.done, 1);
	assert_int_equal(pthread_mutex_trylock(&shared.f.heap->lock), 0);
	pthread_mutex_unlock(&shared.f.heap->lock);
	fixture_stop(&shared.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_an_ended_thread_kept_serves_others),
		cmocka_unit_test(test_what_an_ended_thread_kept_is_merged_for_another_size),
		cmocka_unit_test(test_out_of_memory_comes_only_when_no_thread_keeps_any),
		cmocka_unit_test(test_magazines_of_ended_threads_go_to_new_ones),
		cmocka_unit_test(test_of_two_frees_of_a_block_one_succeeds),
		cmocka_unit_test(test_sums_are_exact_whoever_frees),
		cmocka_unit_test(test_a_dead_space_takes_what_is_kept_along),
		cmocka_unit_test(test_a_retired_segment_is_taken_out_of_magazines),
		cmocka_unit_test(test_freed_memory_is_not_live),
		cmocka_unit_test(test_what_one_stream_uses_is_kept_until_there_is_another),
		cmocka_unit_test(test_a_free_in_stream_order_goes_past_the_magazine),
		cmocka_unit_test(test_there_are_no_magazines_where_memory_is_tended_or_filled),
		cmocka_unit_test(test_what_is_unfinished_is_not_handed_out_once_a_capture_is_near),
		cmocka_unit_test(test_a_forked_child_forgets_its_magazine),
		cmocka_unit_test(test_threads_that_free_each_others_blocks_keep_the_invariants),
		cmocka_unit_test(test_a_free_inside_a_block_is_refused_whatever_the_address),
		cmocka_unit_test(test_a_peak_is_no_more_than_was_held_whoever_is_counted_first),
		cmocka_unit_test(test_no_peak_is_more_than_was_ever_reserved),
		cmocka_unit_test(test_who_looks_never_sees_less_than_nothing),
		cmocka_unit_test(test_a_trim_asks_for_what_a_magazine_keeps_unfinished),
		cmocka_unit_test(test_a_thread_is_not_cancelled_while_it_waits_for_a_magazine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
