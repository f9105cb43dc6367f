/* SPDX-License-Identifier: MIT */
/*
 * Four threads on one heap. The reference is shared: a piece is entered as freed before ca_free is
 * called, so whoever receives its memory must find its work finished. Built with TSan, this is the
 * race test.
 */
#define FIXTURE_UNSEEN
#include "tests/unit/allocator/fixture.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum { THREADS = 4, HELD = 8, FREED = 4096 };

struct piece {
	uint64_t address, size, work;
	unsigned owner; /* thread */
};

struct shared {
	struct fixture f;
	pthread_mutex_t lock;
	struct piece live[THREADS][HELD];
	struct piece freed[FREED];
	unsigned freed_next;
	unsigned steps;
	bool captures;
	bool churn;         /* each thread has a context of its own, and replaces it now and then */
	bool uniform;       /* two sizes that can never fragment: no out of memory allowed */
	const char *broken; /* first broken claim */
	unsigned ooms, reused, kills;
	uint64_t flushes;
	uintptr_t contexts; /* the last one created */
	_Atomic bool stop;  /* the device */
};

struct worker {
	struct shared *shared;
	unsigned index;
	uint64_t seed;
	struct ca_space *space;
	void *context;
};

static void
broken(struct shared *shared, const char *claim)
{
	if (!shared->broken)
		shared->broken = claim;
}

static bool
overlap(const struct piece *a, const struct piece *b)
{
	return a->size && a->address < b->address + b->size && b->address < a->address + a->size;
}

static void
enter(struct shared *shared, struct piece *place, struct piece piece)
{
	uint64_t finished;
	unsigned i, j;

	pthread_mutex_lock(&shared->lock);
	finished = ca_model_finished(shared->f.model);
	for (i = 0; i < THREADS; i++)
		for (j = 0; j < HELD; j++)
			if (overlap(&shared->live[i][j], &piece))
				broken(shared, "two live blocks overlap");
	for (i = 0; i < FREED; i++) {
		if (!overlap(&shared->freed[i], &piece))
			continue;
		if (shared->freed[i].work > finished)
			broken(shared, "handed out while work still uses it");
		shared->freed[i].size = 0;
		shared->reused++;
	}
	*place = piece;
	pthread_mutex_unlock(&shared->lock);
}

static void
leave(struct shared *shared, struct piece *place)
{
	struct piece *freed;

	pthread_mutex_lock(&shared->lock);
	freed = &shared->freed[shared->freed_next++ % FREED];
	*freed = *place;
	freed->work = ca_model_submit(shared->f.model);
	place->size = 0;
	pthread_mutex_unlock(&shared->lock);
}

static uint64_t
size_of(struct worker *w)
{
	uint64_t dice = fixture_random(&w->seed);

	if (w->shared->uniform)
		return dice & 1 ? 20 * MIB : 30 * MIB;
	return dice & 1 ? 1 + (dice >> 8) % (900 * KIB) : 1 + (dice >> 8) % (30 * MIB);
}

/* The thread's context dies; what the thread held and freed there is nobody's any more. */
static void
replace_context(struct worker *w)
{
	struct shared *shared = w->shared;
	unsigned i;

	pthread_mutex_lock(&shared->lock);
	for (i = 0; i < HELD; i++)
		shared->live[w->index][i].size = 0;
	for (i = 0; i < FREED; i++)
		if (shared->freed[i].owner == w->index)
			shared->freed[i].size = 0;
	shared->kills++;
	pthread_mutex_unlock(&shared->lock);
	ca_model_context_destroy(shared->f.model, w->context);
	ca_space_kill(w->space);
	pthread_mutex_lock(&shared->lock);
	w->context = (void *)++shared->contexts;
	if (ca_space_create(shared->f.heap, w->context, 0, &w->space))
		broken(shared, "no space");
	pthread_mutex_unlock(&shared->lock);
}

static void
step(struct worker *w)
{
	struct shared *shared = w->shared;
	struct piece *place = &shared->live[w->index][fixture_random(&w->seed) % HELD];
	uint64_t dice = fixture_random(&w->seed) % 1000, address;
	int r;

	if (dice < 20)
		ca_model_finish(shared->f.model, ca_model_finished(shared->f.model) +
							 fixture_random(&w->seed) % 100);
	else if (dice < 25)
		ca_trim(shared->f.heap, 100 * MIB);
	else if (dice < 27 && shared->captures)
		ca_model_set_capturing(shared->f.model, fixture_random(&w->seed) % 3 == 0);
	else if (dice < 32 && shared->churn)
		replace_context(w);
	if (place->size) {
		address = place->address;
		leave(shared, place);
		if (ca_free(shared->f.heap, address))
			broken(shared, "free failed");
		return;
	}
	struct piece piece = { .size = size_of(w), .owner = w->index };

	r = ca_alloc(w->space, piece.size, &piece.address);
	if (!r) {
		enter(shared, place, piece);
		return;
	}
	pthread_mutex_lock(&shared->lock);
	shared->ooms++;
	if (r != CA_DRIVER_OUT_OF_MEMORY || shared->uniform)
		broken(shared, "alloc failed");
	pthread_mutex_unlock(&shared->lock);
}

/* The device works on its own: what another thread freed is only polled for. */
static void *
device(void *arg)
{
	struct shared *shared = arg;

	while (!atomic_load(&shared->stop)) {
		ca_model_finish(shared->f.model, ca_model_finished(shared->f.model) + 20);
		usleep(200);
	}
	return NULL;
}

static void *
work(void *arg)
{
	struct worker *w = arg;
	unsigned i;

	for (i = 0; i < w->shared->steps; i++)
		step(w);
	return NULL;
}

static void
dawdle(void *arg, enum ca_model_function function, bool end)
{
	if (end || function == CA_MODEL_RECORD)
		sched_yield();
}

static void
run(struct shared *shared, uint64_t seed)
{
	struct worker workers[THREADS];
	pthread_t threads[THREADS], device_thread;
	unsigned i, j;

	pthread_mutex_init(&shared->lock, NULL);
	fixture_start(&shared->f);
	shared->contexts = 1;
	ca_model_set_observer(shared->f.model, dawdle, NULL);
	seed = fixture_seed(seed);
	assert_int_equal(pthread_create(&device_thread, NULL, device, shared), 0);
	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .shared = shared,
					      .index = i,
					      .seed = seed + (uint64_t)i * 7919,
					      .space = shared->f.space };
		if (shared->churn) {
			workers[i].context = (void *)++shared->contexts;
			assert_int_equal(ca_space_create(shared->f.heap, workers[i].context, 0,
							 &workers[i].space),
					 0);
		}
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&shared->stop, true);
	pthread_join(device_thread, NULL);
	ca_model_finish(shared->f.model, UINT64_MAX);
	if (shared->broken)
		fail_msg("%s", shared->broken);
	ca_model_set_capturing(shared->f.model, false);
	shared->flushes = fixture_stats(&shared->f).flushes;
	fixture_check(&shared->f);
	for (i = 0; i < THREADS; i++)
		for (j = 0; j < HELD; j++)
			if (shared->live[i][j].size)
				fixture_free(&shared->f, shared->live[i][j].address);
	while (ca_reclaim(shared->f.space, GIB, NULL))
		;
	fixture_check(&shared->f);
	assert_int_equal(fixture_sums(&shared->f).held_bytes, 0);
	assert_int_equal(fixture_sums(&shared->f).marks, 0);
	fixture_stop(&shared->f);
	pthread_mutex_destroy(&shared->lock);
}

static struct shared *
shared_new(void)
{
	static struct shared shared;

	memset(&shared, 0, sizeof(shared));
	fixture_defaults(&shared.f);
	shared.steps = 4000;
	return &shared;
}

static void
test_plenty(void **state)
{
	struct shared *shared = shared_new();

	run(shared, 31);
	assert_true(shared->reused > 0);
}

static void
test_pressure(void **state)
{
	struct shared *shared = shared_new();

	shared->f.pretend.capacity = 200 * MIB;
	shared->f.pretend.frees_at_once = true;
	shared->f.config.reuse_slack_bytes = UINT64_MAX;
	run(shared, 32);
	assert_true(shared->flushes > 0);
}

static void
test_no_marks(void **state)
{
	struct shared *shared = shared_new();

	shared->f.pretend.no_marks = true;
	shared->f.pretend.capacity = 500 * MIB;
	run(shared, 33);
}

static void
test_captures(void **state)
{
	struct shared *shared = shared_new();

	shared->f.pretend.capacity = 600 * MIB;
	shared->captures = true;
	run(shared, 34);
}

/* Everything the threads may hold at once fits exactly: no call may be told "out of memory". */
static void
test_no_false_oom(void **state)
{
	struct shared *shared = shared_new();

	shared->uniform = true;
	shared->f.pretend.capacity = 30 * MIB * THREADS * HELD;
	shared->f.config.max_split_size_bytes = 10 * MIB;
	shared->f.config.reuse_slack_bytes = UINT64_MAX;
	run(shared, 35);
}

/* Contexts die while other threads query, wait for and return what belongs to them. */
static void
test_dying_contexts(void **state)
{
	struct shared *shared = shared_new();

	shared->churn = true;
	shared->f.pretend.capacity = 200 * MIB;
	shared->f.config.reuse_slack_bytes = UINT64_MAX;
	run(shared, 36);
	assert_true(shared->kills > 10 && shared->flushes > 0);
}

/* A segment of ours is on its way back to the driver while another thread runs out of memory. */
struct way_back {
	struct fixture f;
	unsigned takes; /* calls when the return began */
};

static void
slow_return(void *arg, enum ca_model_function function, bool end)
{
	struct way_back *scene = arg;
	unsigned i;

	if (function != CA_MODEL_RETURN || end)
		return;
	/* until the other thread was refused, and a while longer,
	 * in which a hasty one would give up */
	for (i = 0; i < 10000 && fixture_sums(&scene->f).calls[CA_MODEL_TAKE] == scene->takes; i++)
		usleep(1000);
	usleep(50000);
}

static void *
trim(void *arg)
{
	struct way_back *scene = arg;

	ca_trim(scene->f.heap, 0);
	return NULL;
}

static void
test_memory_on_its_way_back(void **state)
{
	struct way_back scene = { .takes = 1 };
	uint64_t address;
	pthread_t thread;

	fixture_defaults(&scene.f);
	scene.f.pretend.capacity = 40 * MIB;
	fixture_start(&scene.f);
	address = fixture_alloc(&scene.f, 40 * MIB);
	fixture_free(&scene.f, address);
	ca_model_set_observer(scene.f.model, slow_return, &scene);
	assert_int_equal(pthread_create(&thread, NULL, trim, &scene), 0);
	while (!fixture_sums(&scene.f).calls[CA_MODEL_RETURN] &&
	       fixture_stats(&scene.f).cached_bytes.current +
		       fixture_stats(&scene.f).pending_blocks)
		sched_yield();
	assert_int_equal(ca_alloc(scene.f.space, 40 * MIB, &address), 0);
	pthread_join(thread, NULL);
	fixture_check(&scene.f);
	fixture_stop(&scene.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plenty),
		cmocka_unit_test(test_pressure),
		cmocka_unit_test(test_no_marks),
		cmocka_unit_test(test_captures),
		cmocka_unit_test(test_no_false_oom),
		cmocka_unit_test(test_dying_contexts),
		cmocka_unit_test(test_memory_on_its_way_back),
	};

	return cmocka_run_group_tests_name("allocator-threads", tests, NULL, NULL);
}
