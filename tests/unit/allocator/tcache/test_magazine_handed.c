/* SPDX-License-Identifier: MIT */
/*
 * The same program with one thread and with many: each call is another thread's, one after the
 * other. What the threads keep is no reason to reserve more.
 */
#include "tests/unit/allocator/tcache/magazine_scene.h"
#include "tests/unit/allocator/deferred/scene.h"

#include <inttypes.h>
#include <semaphore.h>

/* Seen: 6 MiB. Where each thread has segments of its own though nobody waits: 12 in the first test,
 * 16 in the last. */
#define MORE (8 * MIB)

enum { CALLS = 20000, BLOCKS = 200, BLOCKS_MAX = 2000, WORKERS_MAX = 16, SPREAD_LOG = 12 };

/* Calls of several threads, one after the other. */
struct program {
	uint64_t seed;
	unsigned calls, blocks, turn; /* calls of one thread in a row; 0: any thread's */
	bool works, even;             /* sizes up to 1 MiB, each as likely */
};

struct worker {
	pthread_t thread;
	sem_t asked, done;
	struct fixture *f;
	uint64_t *block; /* NULL: the thread ends */
	uint64_t size;   /* 0: a free */
	int result;
};

static void *
work(void *arg)
{
	struct worker *worker = arg;

	for (;;) {
		sem_wait(&worker->asked);
		if (!worker->block)
			return NULL;
		if (worker->size) {
			worker->result = ca_alloc(worker->f->space, worker->size, worker->block);
		} else {
			worker->result = ca_free(worker->f->heap, *worker->block);
			*worker->block = 0;
		}
		sem_post(&worker->done);
	}
}

static void
start(struct worker *worker, struct fixture *f)
{
	*worker = (struct worker){ .f = f };
	sem_init(&worker->asked, 0, 0);
	sem_init(&worker->done, 0, 0);
	pthread_create(&worker->thread, NULL, work, worker);
}

static void
ask(struct worker *worker, uint64_t *block, uint64_t size)
{
	worker->block = block;
	worker->size = size;
	sem_post(&worker->asked);
	if (!block)
		return;
	sem_wait(&worker->done);
	assert_int_equal(worker->result, 0);
}

static void
end(struct worker *worker)
{
	ask(worker, NULL, 0);
	pthread_join(worker->thread, NULL);
}

/* As many sizes as there are, each power of two as likely as any other. */
static uint64_t
choose_size(uint64_t *seed)
{
	uint64_t power = (uint64_t)512 << fixture_random(seed) % SPREAD_LOG;

	return power + fixture_random(seed) % power;
}

/* Bytes that are reserved at most. */
static uint64_t
run(const struct program *program, unsigned n_workers)
{
	static struct worker workers[WORKERS_MAX];
	uint64_t blocks[BLOCKS_MAX] = { 0 }, seed = program->seed, peak;
	struct scene scene;
	unsigned i;

	scene_new(&scene, 1);
	for (i = 0; i < n_workers; i++)
		start(&workers[i], &scene.f);
	for (i = 0; i < program->calls; i++) {
		uint64_t *block = &blocks[fixture_random(&seed) % program->blocks];
		uint64_t size = program->even ? (1 + fixture_random(&seed) % 2048) * 512
					      : choose_size(&seed);
		uint64_t who = program->turn ? i / program->turn : fixture_random(&seed);

		ask(&workers[who % n_workers], block, *block ? 0 : size);
		if (program->works && i % 16 == 0)
			launch(&scene, S);
		if (program->works && i % 512 == 0)
			finish(&scene, S);
	}
	for (i = 0; i < n_workers; i++)
		end(&workers[i]);
	fixture_check(&scene.f);
	peak = fixture_stats(&scene.f).reserved_bytes.peak;
	fixture_stop(&scene.f);
	return peak;
}

static void
compare(const struct program *program)
{
	static const unsigned numbers[] = { 2, 4, 16 };
	uint64_t one = run(program, 1), more;
	unsigned i;

	for (i = 0; i < 3; i++) {
		more = run(program, numbers[i]);
		print_message("%u threads: %" PRIu64 " MiB, one %" PRIu64 " MiB\n", numbers[i],
			      more / MIB, one / MIB);
		assert_in_range(more, 0, one + MORE);
	}
}

static void
test_threads_that_hand_blocks_around_take_little_more_memory(void **state)
{
	struct program program = { .calls = CALLS, .blocks = BLOCKS };
	uint64_t seed = fixture_seed(1);

	program.seed = fixture_random(&seed);
	compare(&program);
	program.seed = fixture_random(&seed);
	program.works = true;
	compare(&program);
}

static void
test_nor_do_those_that_take_long_turns(void **state)
{
	struct program program = {
		.calls = 80000, .blocks = BLOCKS_MAX, .turn = 4000, .even = true
	};
	uint64_t seed = fixture_seed(2);

	program.seed = fixture_random(&seed);
	compare(&program);
}

/* One thread allocates, the other frees. */
static void
test_what_another_thread_freed_is_live_no_more_when_it_is_taken(void **state)
{
	enum { KEPT = 48 }; /* three segments, less than each thread may leave uncounted */
	const uint64_t size = 128 * KIB;
	uint64_t blocks[KEPT] = { 0 };
	struct worker workers[2];
	const struct ca_stats
		*stats; /* as they are kept: no peak is cut to that of reserved memory */
	struct scene scene;

	scene_new(&scene, 1);
	start(&workers[0], &scene.f);
	start(&workers[1], &scene.f);
	for (unsigned i = 0; i < 4; i++) {
		for (unsigned j = 0; j < KEPT; j++)
			ask(&workers[0], &blocks[j], size);
		for (unsigned j = 0; j < KEPT; j++)
			ask(&workers[1], &blocks[j], 0);
	}
	end(&workers[0]);
	end(&workers[1]);
	(void)fixture_stats(&scene.f); /* counts all */
	stats = &scene.f.space->device->stats;
	assert_int_equal(stats->requested_bytes.peak, KEPT * size);
	assert_int_equal(stats->allocated_bytes.peak, KEPT * size);
	fixture_stop(&scene.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_that_hand_blocks_around_take_little_more_memory),
		cmocka_unit_test(test_nor_do_those_that_take_long_turns),
		cmocka_unit_test(test_what_another_thread_freed_is_live_no_more_when_it_is_taken),
	};

	return cmocka_run_group_tests_name("allocator-magazine-handed", tests, NULL, NULL);
}
