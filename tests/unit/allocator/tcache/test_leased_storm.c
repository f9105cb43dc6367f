/* SPDX-License-Identifier: MIT */
/*
 * Threads whose blocks come from leased segments, while others need those segments for all else:
 * questions, trims, memory that a stream uses, requests that do not fit, the end of the memory.
 * Each grain has one owner at a time, and its next user comes after all that was submitted for it.
 */
#include "tests/unit/allocator/order/fixture.h"
#include "tests/unit/allocator/tcache/magazine_scene.h"

#ifdef __SANITIZE_THREAD__
enum { STEPS = 2500 };
#else
enum { STEPS = 30000 };
#endif
enum { THREADS = 4, SLOTS = 48, SIZES = 96, PASSED = 16, GRAINS = 1 << 22, ROUNDS_OF_THREADS = 4 };

struct cell {
	_Atomic uint32_t owner; /* thread + 1; 0: nobody's */
	uint64_t work[THREADS];
};

struct piece {
	uint64_t address, size;
};

struct storm {
	struct fixture f;
	struct cell *cells;
	pthread_mutex_t lock;
	struct piece passed[PASSED]; /* from thread to thread */
	_Atomic(const char *) broken;
	_Atomic uint64_t ooms, checked;
	unsigned rare; /* one call in so many is something else than an allocation or a free */
	bool submits;
	bool churns; /* each thread has a context of its own, too, and replaces it */
	_Atomic uintptr_t contexts;
	_Atomic bool stop; /* the device */
};

struct stormy {
	struct storm *storm;
	unsigned index;
	struct ca_stream *stream;
	uint64_t seed;
	struct piece slots[SLOTS];
	struct ca_space *space; /* of the context of its own */
	void *context;
	struct piece own[SLOTS];
};

static uint64_t
pick(struct stormy *w, uint64_t below)
{
	return fixture_random(&w->seed) % below;
}

static struct cell *
cell_at(struct storm *storm, const struct piece *piece, uint64_t i)
{
	/* of 2 GiB: no two blocks of so little memory have a cell in common */
	return &storm->cells[(piece->address / 512 + i) % GRAINS];
}

static void
enter(struct stormy *w, const struct piece *piece)
{
	uint64_t i;

	for (i = 0; i * 512 < piece->size; i++)
		if (atomic_exchange(&cell_at(w->storm, piece, i)->owner, w->index + 1))
			w->storm->broken = "memory that somebody has was handed out";
}

static void
leave(struct stormy *w, const struct piece *piece)
{
	uint64_t i;

	for (i = 0; i * 512 < piece->size; i++)
		if (!atomic_exchange(&cell_at(w->storm, piece, i)->owner, 0))
			w->storm->broken = "memory is nobody's";
}

static void
drop(struct stormy *w, struct piece *piece)
{
	if (!piece->size)
		return;
	leave(w, piece);
	if (ca_free(w->storm->f.heap, piece->address))
		w->storm->broken = "a free failed";
	piece->size = 0;
}

static void
get_in(struct stormy *w, struct ca_space *space, struct piece *piece, uint64_t size)
{
	int r = ca_alloc(space, size, &piece->address);

	piece->size = r ? 0 : size;
	if (r)
		w->storm->ooms++;
	else
		enter(w, piece);
}

static void
get(struct stormy *w, struct piece *piece, uint64_t size)
{
	get_in(w, w->storm->f.space, piece, size);
}

static void
open_context(struct stormy *w)
{
	w->context = (void *)++w->storm->contexts;
	if (ca_space_create(w->storm->f.heap, w->context, 0, &w->space))
		w->storm->broken = "no space";
}

static void
close_context(struct stormy *w)
{
	for (unsigned i = 0; i < SLOTS; i++)
		if (w->own[i].size) {
			leave(w, &w->own[i]);
			w->own[i].size = 0;
		}
	ca_model_context_destroy(w->storm->f.model, w->context);
	ca_space_kill(w->space);
}

static void
use(struct stormy *w, const struct piece *piece)
{
	struct storm *storm = w->storm;
	uint64_t i, work;
	unsigned n;

	if (!piece->size || !storm->submits)
		return;
	ca_submit_begin(w->stream, NULL);
	for (n = 0; n < THREADS; n++) {
		uint64_t behind = order_behind(&storm->f, w->stream, n);

		for (i = 0; n != w->index && i * 512 < piece->size; i++)
			if (cell_at(storm, piece, i)->work[n] > behind)
				storm->broken = "a submission does not come after the last user";
	}
	work = ca_model_stream_submit(storm->f.model, HANDLE(w->index));
	ca_submit_end(w->stream);
	for (i = 0; i * 512 < piece->size; i++)
		cell_at(storm, piece, i)->work[w->index] = work;
	storm->checked++;
}

/* A piece that another thread got. */
static void
swap(struct stormy *w, struct piece *piece)
{
	struct piece *other = &w->storm->passed[pick(w, PASSED)], mine = *piece;

	pthread_mutex_lock(&w->storm->lock);
	*piece = *other;
	*other = mine;
	pthread_mutex_unlock(&w->storm->lock);
}

static void
do_else(struct stormy *w, struct piece *piece)
{
	struct storm *storm = w->storm;
	struct ca_heap *heap = storm->f.heap;
	struct ca_block_info info;
	char reason[128] = "";

	switch (pick(w, 16)) {
	case 0:
		if (ca_heap_check(heap, reason, sizeof(reason))) {
			printf("# %s\n", reason);
			storm->broken = "an invariant";
		}
		break;
	case 1:
		(void)ca_trim(heap, pick(w, 2) * 4 * MIB);
		break;
	case 2:
		if (piece->size && (ca_lookup(heap, piece->address, &info) || !info.live))
			storm->broken = "a live block is not found";
		break;
	case 3:
		if (piece->size)
			(void)ca_note_sync_memops(heap, piece->address, true);
		break;
	case 4:
		if (piece->size && !pick(w, 8))
			(void)ca_retire(heap, piece->address);
		break;
	case 5:
		(void)ca_drainable_bytes(storm->f.space);
		break;
	case 6:
	case 7:
		drop(w, piece);
		get(w, piece, MIB + pick(w, 3 * MIB));
		drop(w, piece);
		break;
	case 8:
	case 9:
		drop(w, piece);
		get(w, piece, 64 * KIB + pick(w, MIB - 64 * KIB));
		break;
	case 10:
		use(w, piece);
		drop(w, piece);
		break;
	case 11:
		use(w, piece);
		break;
	default:
		ca_order_poll(storm->f.space);
		if (piece->size && pick(w, 2))
			(void)ca_free_async(heap, piece->address, (leave(w, piece), w->stream)),
				piece->size = 0;
	}
}

static void *
storm(void *arg)
{
	struct stormy *w = arg;
	unsigned i;

	for (i = 0; i < STEPS && !w->storm->broken; i++) {
		struct piece *piece = &w->slots[pick(w, SLOTS)];

		if (!pick(w, w->storm->rare)) {
			do_else(w, piece);
			continue;
		}
		if (w->storm->churns && !pick(w, 4000)) {
			close_context(w);
			open_context(w);
		}
		if (w->storm->churns && pick(w, 2)) {
			piece = &w->own[pick(w, SLOTS)];
			drop(w, piece);
			get_in(w, w->space, piece, 512 * (1 + pick(w, SIZES)));
			continue;
		}
		if (!pick(w, 20))
			swap(w, piece);
		drop(w, piece);
		get(w, piece, 512 * (1 + pick(w, SIZES)) - pick(w, 511));
	}
	return NULL;
}

/* The work that was submitted ends a little later. */
static void *
device(void *arg)
{
	struct storm *storm = arg;
	uint64_t last[THREADS] = { 0 };
	unsigned i;

	while (!storm->stop) {
		for (i = 0; i < THREADS; i++) {
			ca_model_stream_finish(storm->f.model, HANDLE(i), last[i]);
			last[i] = ca_model_stream_submitted(storm->f.model, HANDLE(i));
		}
		nanosleep(&(struct timespec){ .tv_nsec = 300 * 1000 }, NULL);
	}
	return NULL;
}

static void
run(unsigned rare, bool submits, bool churns, uint64_t capacity)
{
	static struct storm shared;
	static struct stormy workers[THREADS];
	pthread_t threads[THREADS], device_thread;
	uint64_t seed = fixture_seed((uint64_t)time(NULL));
	struct ca_stats stats;
	unsigned round, i, j;

	memset(&shared, 0, sizeof(shared));
	fixture_defaults(&shared.f);
	shared.f.pretend.capacity = capacity;
	contended_start(&shared.f);
	shared.cells = calloc(GRAINS, sizeof(*shared.cells));
	pthread_mutex_init(&shared.lock, NULL);
	shared.rare = rare;
	shared.submits = submits;
	shared.churns = churns;
	shared.contexts = 1;
	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct stormy){ .storm = &shared, .index = i, .seed = seed + 77 * i };
		workers[i].stream = order_open(&shared.f, i);
		open_context(&workers[i]);
	}
	assert_int_equal(pthread_create(&device_thread, NULL, device, &shared), 0);
	for (round = 0; round < ROUNDS_OF_THREADS; round++) {
		for (i = 0; i < THREADS; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, storm, &workers[i]), 0);
		for (i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
	}
	shared.stop = true;
	pthread_join(device_thread, NULL);
	if (shared.broken)
		fail_msg("%s", shared.broken);
	for (i = 0; i < THREADS; i++)
		for (j = 0; j < SLOTS; j++)
			drop(&workers[i], &workers[i].slots[j]);
	for (i = 0; i < THREADS; i++)
		close_context(&workers[i]);
	for (i = 0; i < PASSED; i++)
		drop(&workers[0], &shared.passed[i]);
	for (i = 0; i < THREADS; i++)
		ca_model_stream_finish(shared.f.model, HANDLE(i), UINT64_MAX);
	fixture_check(&shared.f);
	stats = fixture_stats(&shared.f);
	printf("# rare %u, submits %d: %llu allocations, %llu with the lock, %llu ooms, %llu "
	       "checked, "
	       "peak %llu of %llu\n",
	       rare, submits, (unsigned long long)stats.alloc_calls,
	       (unsigned long long)shared.f.heap->requests, (unsigned long long)shared.ooms,
	       (unsigned long long)shared.checked, (unsigned long long)stats.reserved_bytes.peak,
	       (unsigned long long)stats.allocated_bytes.peak);
	assert_int_equal(stats.allocated_bytes.current, 0);
	ca_trim(shared.f.heap, 0);
	assert_int_equal(fixture_stats(&shared.f).reserved_bytes.current, 0);
	assert_int_equal(shared.f.heap->bases.entered, 0);
	free(shared.cells);
	fixture_stop(&shared.f);
}

static void
test_all_is_leased(void **state)
{
	run(20000, false, false, 512 * MIB);
}

static void
test_leases_end_often(void **state)
{
	run(300, false, false, 512 * MIB);
}

static void
test_streams_use_some(void **state)
{
	run(300, true, false, 512 * MIB);
	run(20, true, false, 512 * MIB);
}

static void
test_contexts_come_and_go(void **state)
{
	run(2000, false, true, 512 * MIB);
	run(2000, true, true, 16 * MIB);
}

static void
test_memory_is_short(void **state)
{
	run(1000, false, false, 12 * MIB);
	run(1000, true, false, 12 * MIB);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_is_leased),
		cmocka_unit_test(test_leases_end_often),
		cmocka_unit_test(test_streams_use_some),
		cmocka_unit_test(test_contexts_come_and_go),
		cmocka_unit_test(test_memory_is_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
