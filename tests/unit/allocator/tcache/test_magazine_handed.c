/* SPDX-License-Identifier: MIT */
/*
 * The same program with one thread and with many: each call is another thread's, one after the
 * other. What the threads keep is no reason to reserve more.
 */
#include "tests/unit/allocator/tcache/magazine_scene.h"
#include "tests/unit/allocator/deferred/scene.h"

#include <inttypes.h>
#include <semaphore.h>

/* Seen: 16 MiB, of which 8 are for threads that would take from each other (policy/budget.c). Where
 * the way to new memory leaves what other threads keep alone: 24 to 32. */
#define MORE (16 * MIB)

enum { CALLS = 20000, BLOCKS = 200, WORKERS_MAX = 16, SPREAD_LOG = 12 };

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

/* As many sizes as there are, each power of two as likely as any other. */
static uint64_t
choose_size(uint64_t *seed)
{
	uint64_t power = (uint64_t)512 << fixture_random(seed) % SPREAD_LOG;

	return power + fixture_random(seed) % power;
}

/* Bytes that are reserved at most. */
static uint64_t
run(uint64_t seed, unsigned n_workers, bool works)
{
	static struct worker workers[WORKERS_MAX];
	uint64_t blocks[BLOCKS] = { 0 }, peak;
	struct scene scene;
	unsigned i;

	scene_new(&scene, 1);
	for (i = 0; i < n_workers; i++) {
		workers[i] = (struct worker){ .f = &scene.f };
		sem_init(&workers[i].asked, 0, 0);
		sem_init(&workers[i].done, 0, 0);
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	}
	for (i = 0; i < CALLS; i++) {
		uint64_t *block = &blocks[fixture_random(&seed) % BLOCKS];
		uint64_t size = choose_size(&seed), who = fixture_random(&seed);

		ask(&workers[who % n_workers], block, *block ? 0 : size);
		if (works && i % 16 == 0)
			launch(&scene, S);
		if (works && i % 512 == 0)
			finish(&scene, S);
	}
	for (i = 0; i < n_workers; i++) {
		ask(&workers[i], NULL, 0);
		pthread_join(workers[i].thread, NULL);
	}
	fixture_check(&scene.f);
	peak = fixture_stats(&scene.f).reserved_bytes.peak;
	fixture_stop(&scene.f);
	return peak;
}

static void
compare(uint64_t seed, bool works)
{
	static const unsigned numbers[] = { 4, 16 };
	uint64_t one = run(seed, 1, works), more;
	unsigned i;

	for (i = 0; i < 2; i++) {
		more = run(seed, numbers[i], works);
		print_message("%u threads: %" PRIu64 " MiB, one %" PRIu64 " MiB\n", numbers[i],
			      more / MIB, one / MIB);
		assert_in_range(more, 0, one + MORE);
	}
}

static void
test_threads_that_hand_blocks_around_take_little_more_memory(void **state)
{
	uint64_t seed = fixture_seed(1);

	compare(fixture_random(&seed), false);
	compare(fixture_random(&seed), true);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_that_hand_blocks_around_take_little_more_memory),
	};

	return cmocka_run_group_tests_name("allocator-magazine-handed", tests, NULL, NULL);
}
