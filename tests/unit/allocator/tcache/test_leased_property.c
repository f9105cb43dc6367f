/* SPDX-License-Identifier: MIT */
/*
 * Random threads on one heap, most of whose blocks are small: what two of them have at once never
 * overlaps, and at the end all is counted, and all goes back. Each thread has blocks of its own,
 * hands some to others, and looks at the heap now and then; it ends early, and another comes.
 *
 * Grains are marked as somebody's by an atomic exchange right after an allocation, and as nobody's
 * right before the free. So no lock orders what the threads do, but the heap's own.
 */
#include "tests/unit/allocator/tcache/lease_scene.h"

enum {
	OWN = 48,
	SHARED = 64, /* slots through which blocks go to others */
	MOST = 8,
	GRAINS = 1 << 22, /* of the pretend device: addresses are modulo 2 GiB */
#ifdef __SANITIZE_THREAD__
	STEPS = 1500,
	RUNS = 6,
#elif defined(__SANITIZE_ADDRESS__)
	STEPS = 4000,
	RUNS = 10,
#else
	STEPS = 8000,
	RUNS = 16,
#endif
};

struct piece {
	uint64_t address, size;
};

struct world {
	struct fixture f;
	_Atomic uint32_t *owners; /* of each grain: a number of a thread; 0: nobody's */
	struct piece *_Atomic shared[SHARED];
	_Atomic(const char *) broken; /* the last broken claim */
	_Atomic unsigned leased, lives, pauses;
	unsigned threads, large_percent, looks_per_mille;
	uint64_t seed;
	struct ca_stream *streams[2]; /* NULL: none */
};

struct walker {
	struct world *world;
	struct piece *own[OWN];
	uint64_t seed;
	uint32_t number;
};

static void
claim(struct world *world, bool holds, const char *what)
{
	if (!holds)
		world->broken = what;
}

static uint64_t
random_size(struct walker *w)
{
	uint64_t dice = fixture_random(&w->seed);

	if (dice % 100 < w->world->large_percent)
		return 1 + (dice >> 8) % (6 * MIB);
	if (dice & 1 << 20)
		return 1 + (dice >> 24) % (4 * KIB);
	if (dice & 3 << 21)
		return 1 + (dice >> 24) % (64 * KIB);
	return 1 + (dice >> 24) % MIB;
}

/* Its grains were `from`, each of them, and are `to`. */
static void
mark(struct world *world, const struct piece *piece, uint32_t from, uint32_t to)
{
	uint64_t first = piece->address / 512, end = first + (piece->size + 511) / 512, grain;

	for (grain = first; grain < end; grain++)
		claim(world,
		      atomic_exchange_explicit(&world->owners[grain % GRAINS], to,
					       memory_order_relaxed) == from,
		      "two live blocks overlap");
}

static void
drop(struct walker *w, struct piece *piece)
{
	if (!piece)
		return;
	mark(w->world, piece, w->number, 0);
	claim(w->world, ca_free(w->world->f.heap, piece->address) == 0, "a free fails");
	free(piece);
}

static struct piece *
get(struct walker *w)
{
	struct piece *piece = malloc(sizeof(*piece));

	piece->size = random_size(w);
	if (ca_alloc(w->world->f.space, piece->size, &piece->address)) {
		claim(w->world, false, "an allocation fails");
		free(piece);
		return NULL;
	}
	mark(w->world, piece, 0, w->number);
	return piece;
}

/* The thread's block for that of a slot, which is nobody's there. */
static struct piece *
swap(struct walker *w, struct piece *piece)
{
	struct world *world = w->world;

	if (piece)
		mark(world, piece, w->number, UINT32_MAX);
	piece = atomic_exchange(&world->shared[fixture_random(&w->seed) % SHARED], piece);
	if (piece)
		mark(world, piece, UINT32_MAX, w->number);
	return piece;
}

/* The thread's blocks may be in use from now on, and after a while no more. */
static void
work(struct walker *w)
{
	struct ca_model *model = w->world->f.model;
	uint64_t dice = fixture_random(&w->seed);
	struct ca_stream *stream = w->world->streams[dice & 1];
	void *handle = (void *)(uintptr_t)(dice & 1 ? R : S);

	if (!stream)
		return;
	ca_submit_begin(stream, NULL);
	ca_model_stream_submit(model, handle);
	ca_submit_end(stream);
	if (dice & 2)
		ca_model_stream_finish(model, handle, UINT64_MAX);
}

static void
look(struct walker *w, const struct piece *piece)
{
	struct fixture *f = &w->world->f;
	struct ca_block_info info;
	struct ca_stats stats;
	char reason[128];

	switch (fixture_random(&w->seed) % 7) {
	case 0:
		if (!piece)
			return;
		claim(w->world, ca_lookup(f->heap, piece->address + piece->size / 2, &info) == 0,
		      "a look-up fails");
		claim(w->world, info.live && info.address == piece->address, "another block");
		claim(w->world, info.requested_bytes == piece->size, "another size");
		return;
	case 1:
		ca_heap_stats(f->heap, 0, &stats);
		claim(w->world, stats.allocated_bytes.current <= stats.reserved_bytes.current,
		      "more than is reserved");
		return;
	case 2:
		if (w->world->streams[0]) /* it would wait for the work */
			return;
		ca_trim(f->heap, (fixture_random(&w->seed) % 16) * MIB);
		return;
	case 3:
		claim(w->world, ca_heap_check(f->heap, reason, sizeof(reason)) == 0, "a check");
		return;
	case 4:
		if (piece && piece->size > 512)
			claim(w->world, ca_free(f->heap, piece->address + 512) < 0,
			      "a free of what is inside");
		return;
	case 5:
		ca_drainable_bytes(f->space);
		return;
	default:
		work(w);
	}
}

static void
step(struct walker *w)
{
	struct piece **own = &w->own[fixture_random(&w->seed) % OWN];
	uint64_t dice = fixture_random(&w->seed);

	if (dice % 8 == 0) {
		*own = swap(w, *own);
	} else {
		drop(w, *own);
		*own = dice % 8 == 1 ? NULL : get(w);
	}
	/* a hint */
	if ((dice >> 8) % 1000 < w->world->looks_per_mille)
		look(w, *own);
}

/* A life of the thread; what it has is the next one's, or is freed. */
static void *
live(void *arg)
{
	struct walker *w = arg;
	uint64_t steps = 1 + fixture_random(&w->seed) % STEPS;

	while (steps--)
		step(w);
	w->world->leased += ca_own.magazine && ca_own.shelf->lease;
	fixture_stats(&w->world->f); /* the lock, before another thread has that magazine */
	w->world->lives++;
	return NULL;
}

static void *
walk(void *arg)
{
	struct walker *w = arg;
	pthread_t thread;
	unsigned lives, i;

	for (lives = 0; lives < 3; lives++) {
		if (pthread_create(&thread, NULL, live, w))
			abort();
		pthread_join(thread, NULL);
	}
	for (i = 0; i < OWN; i++)
		drop(w, w->own[i]);
	return NULL;
}

static void
run_world(struct world *world, unsigned streams)
{
	struct walker walkers[MOST];
	pthread_t threads[MOST];
	unsigned i;

	fixture_defaults(&world->f);
	contended_start(&world->f);
	for (i = 0; i < streams; i++)
		world->streams[i] = open_stream(&world->f, i ? R : S);
	for (i = 0; i < world->threads; i++) {
		walkers[i] = (struct walker){
			.world = world,
			.number = i + 1,
			.seed = world->seed + (i + 1) * 0x9e3779b97f4a7c15u,
		};
		assert_int_equal(pthread_create(&threads[i], NULL, walk, &walkers[i]), 0);
	}
	for (i = 0; i < world->threads; i++)
		pthread_join(threads[i], NULL);
	if (world->broken)
		fail_msg("%s", world->broken);
	fixture_check(&world->f);
	assert_int_equal(world->f.heap->bases.entered,
			 ca_bases_count_locked(&world->f.heap->bases));
	for (i = 0; i < SHARED; i++) {
		if (!world->shared[i])
			continue;
		assert_int_equal(ca_free(world->f.heap, world->shared[i]->address), 0);
		mark(world, world->shared[i], UINT32_MAX, 0);
		free(world->shared[i]);
	}
	fixture_check(&world->f);
	for (i = 0; i < streams; i++)
		ca_model_stream_finish(world->f.model, (void *)(uintptr_t)(i ? R : S), UINT64_MAX);
	nothing_is_left(&world->f);
	fixture_stop(&world->f);
}

static void
test_threads_at_random(void **state)
{
	uint64_t seed = fixture_seed(1);
	_Atomic uint32_t *owners = calloc(GRAINS, sizeof(*owners));
	unsigned leased = 0, lives = 0;

	for (unsigned run = 0; run < RUNS; run++) {
		struct world world = { .owners = owners, .seed = fixture_random(&seed) };
		uint64_t dice = fixture_random(&seed);

		world.threads = 2 + dice % (MOST - 1);
		world.large_percent = dice >> 8 & 1 ? 0 : 3;
		/* none at all, now and then, or all the time */
		world.looks_per_mille = (unsigned[]){ 0, 0, 2, 50 }[dice >> 9 & 3];
		run_world(&world, (dice >> 11) % 3);
		leased += world.leased;
		lives += world.lives;
	}
	print_message("# %u of %u threads had a lease\n", leased, lives);
	assert_in_range(leased, 1, lives);
	free(owners);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_at_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
