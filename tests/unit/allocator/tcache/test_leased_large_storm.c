/* SPDX-License-Identifier: MIT */
/*
 * Threads whose blocks of about 1 to 2 MiB come from leased segments (allocator/block/lease.h), go
 * from thread to thread, and are freed by any; meanwhile others trim, ask, and want what is left:
 * holes of less than 1 MiB, and memory on a boundary. Each grain has one owner at a time, and the
 * next user of a block comes after all that was submitted for it.
 *
 * After each round the threads stop as they are, with what they have leased and kept. Then the sums
 * are those of the blocks, and what is refused to another thread is not to be had by a trim.
 */
#include "tests/unit/allocator/order/fixture.h"
#include "tests/unit/allocator/tcache/lease_scene.h"

#ifdef __SANITIZE_THREAD__
enum { STEPS = 400 };
#elif defined(__SANITIZE_ADDRESS__)
enum { STEPS = 2000 };
#else
enum { STEPS = 20000 };
#endif
enum {
	THREADS = 4,
	SLOTS = 12,
	PASSED = 8,
	ROUNDS = 4,
	GRAINS = 1 << 23, /* of 4 GiB: no two blocks of so little memory have one in common */
	EACH = 16,        /* of so many grains one tells who used it */
	SHORT_MIB = 64,   /* all that there is, where memory is short */
};

struct piece {
	uint64_t address, size;
};

struct storm {
	struct fixture f;
	_Atomic uint64_t *taken;   /* bits: grains */
	uint64_t (*work)[THREADS]; /* the last that was submitted for it, of each stream */
	pthread_mutex_t lock;      /* guards `passed` */
	struct piece passed[PASSED];
	pthread_barrier_t together; /* the threads and the test */
	_Atomic(const char *) broken;
	_Atomic uint64_t ooms, checked;
	unsigned rare; /* one step in so many is something else than an allocation or a free */
	bool submits, is_short;
	_Atomic bool stop; /* the device */
};

struct worker {
	struct storm *storm;
	unsigned index;
	struct ca_stream *stream;
	uint64_t seed;
	struct piece slots[SLOTS];
};

static uint64_t
pick(uint64_t *seed, uint64_t below)
{
	return fixture_random(seed) % below;
}

/* ---- who has what */

/* All its grains come to be somebody's, or nobody's. False: some are so already. */
static bool
mark(struct storm *storm, const struct piece *piece, bool is_taken)
{
	uint64_t at = piece->address / 512, left = (piece->size + 511) / 512;
	bool right = true;

	while (left) {
		uint64_t bit = at % 64, n = 64 - bit < left ? 64 - bit : left;
		uint64_t mask = (n == 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1) << bit;
		_Atomic uint64_t *word = &storm->taken[at % GRAINS / 64];

		if (is_taken)
			right = !(atomic_fetch_or(word, mask) & mask) && right;
		else
			right = (atomic_fetch_and(word, ~mask) & mask) == mask && right;
		at += n;
		left -= n;
	}
	return right;
}

static void
drop(struct storm *storm, struct piece *piece)
{
	if (!piece->size)
		return;
	if (!mark(storm, piece, false))
		storm->broken = "memory is nobody's";
	if (ca_free(storm->f.heap, piece->address))
		storm->broken = "a free failed";
	piece->size = 0;
}

static void
get(struct storm *storm, struct piece *piece, uint64_t size)
{
	int r = ca_alloc(storm->f.space, size, &piece->address);

	piece->size = r ? 0 : size;
	if (r) {
		storm->ooms++;
		return;
	}
	if (!mark(storm, piece, true))
		storm->broken = "memory that somebody has was handed out";
	if (piece->address % (size < 2 * MIB ? 512 : 64 * KIB))
		storm->broken = "a block has not its boundary";
}

/* Most of them are cut from segments of the large pool; some at the ends of what is. */
static uint64_t
size_any(uint64_t *seed)
{
	static const uint64_t ends[] = { MIB, 2 * MIB - 512, 2 * MIB, MIB + 256 * KIB };

	switch (pick(seed, 10)) {
	case 0:
		return 1 + pick(seed, MIB);
	case 1:
		return 2 * MIB + pick(seed, MIB);
	case 2:
		return ends[pick(seed, sizeof(ends) / sizeof(ends[0]))] - 512 + pick(seed, 1025);
	default:
		return MIB + 1 + pick(seed, MIB - 512);
	}
}

/* ---- what the threads do */

static uint64_t *
work_of(struct storm *storm, const struct piece *piece, uint64_t i)
{
	return storm->work[(piece->address / 512 / EACH + i) % (GRAINS / EACH)];
}

/* Work for the block: it has to come after all that others submitted for these bytes. */
static void
use(struct worker *w, const struct piece *piece)
{
	struct storm *storm = w->storm;
	/* the first may begin before the block, and the last end behind it */
	uint64_t first = 1, n = piece->size / 512 / EACH, i, work;
	unsigned t;

	if (!storm->submits || piece->size < MIB)
		return;
	ca_submit_begin(w->stream, NULL);
	for (t = 0; t < THREADS; t++) {
		uint64_t behind = order_behind(&storm->f, w->stream, t);

		for (i = first; t != w->index && i < n; i++)
			if (work_of(storm, piece, i)[t] > behind)
				storm->broken = "a submission does not come after the last user";
	}
	work = ca_model_stream_submit(storm->f.model, HANDLE(w->index));
	ca_submit_end(w->stream);
	for (i = first; i < n; i++)
		work_of(storm, piece, i)[w->index] = work;
	storm->checked++;
}

/* A piece that another thread got. */
static void
swap(struct worker *w, struct piece *piece)
{
	struct piece *other = &w->storm->passed[pick(&w->seed, PASSED)], mine = *piece;

	pthread_mutex_lock(&w->storm->lock);
	*piece = *other;
	*other = mine;
	pthread_mutex_unlock(&w->storm->lock);
}

static void
do_else(struct worker *w, struct piece *piece)
{
	struct storm *storm = w->storm;
	struct ca_heap *heap = storm->f.heap;
	struct ca_block_info info;
	char reason[128] = "";

	switch (pick(&w->seed, 10)) {
	case 0:
		if (ca_heap_check(heap, reason, sizeof(reason))) {
			printf("# %s\n", reason);
			storm->broken = "an invariant";
		}
		break;
	case 1:
		(void)ca_trim(heap, pick(&w->seed, 2) * 20 * MIB);
		break;
	case 2:
		if (piece->size && (ca_lookup(heap, piece->address + piece->size / 2, &info) ||
				    !info.live || info.address != piece->address))
			storm->broken = "a live block is not found";
		break;
	case 3:
		if (piece->size > MIB && ca_free(heap, piece->address + MIB) != -EINVAL)
			storm->broken = "a free inside a block";
		break;
	case 4:
		if (piece->size && !pick(&w->seed, 8))
			(void)ca_retire(heap, piece->address);
		break;
	case 5:
		drop(storm, piece);
		get(storm, piece, 10 * MIB + pick(&w->seed, 20 * MIB));
		drop(storm, piece);
		break;
	case 6:
		(void)ca_reclaim(storm->f.space, 4 * MIB, NULL);
		break;
	case 7:
	case 8:
		use(w, piece);
		break;
	default:
		ca_order_poll(storm->f.space);
	}
}

static void
step(struct worker *w)
{
	struct piece *piece = &w->slots[pick(&w->seed, SLOTS)];

	if (!pick(&w->seed, w->storm->rare)) {
		do_else(w, piece);
		return;
	}
	if (!pick(&w->seed, 12))
		swap(w, piece);
	drop(w->storm, piece);
	get(w->storm, piece, size_any(&w->seed));
}

static void *
work(void *arg)
{
	struct worker *w = arg;

	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < STEPS && !w->storm->broken; i++)
			step(w);
		pthread_barrier_wait(&w->storm->together);
		pthread_barrier_wait(&w->storm->together); /* looked at meanwhile */
	}
	return NULL;
}

/* The work that was submitted ends a little later. */
static void *
device(void *arg)
{
	struct storm *storm = arg;
	uint64_t last[THREADS] = { 0 };

	while (!storm->stop) {
		for (unsigned i = 0; i < THREADS; i++) {
			ca_model_stream_finish(storm->f.model, HANDLE(i), last[i]);
			last[i] = ca_model_stream_submitted(storm->f.model, HANDLE(i));
		}
		nanosleep(&(struct timespec){ .tv_nsec = 300 * 1000 }, NULL);
	}
	return NULL;
}

/* ---- at rest */

static void
finish_all(struct storm *storm)
{
	for (unsigned i = 0; i < THREADS; i++)
		ca_model_stream_finish(storm->f.model, HANDLE(i), UINT64_MAX);
	assert_int_equal(ca_order_poll(storm->f.space), 0);
}

/* Nothing of ours is in the way of what is refused. */
static void
ask_for_much(struct storm *storm, uint64_t *seed)
{
	uint64_t size = (1 + pick(seed, SHORT_MIB)) * MIB, address;

	if (!storm->is_short)
		return;
	finish_all(storm);
	if (ca_alloc(storm->f.space, size, &address)) {
		(void)ca_trim(storm->f.heap, 0);
		assert_int_equal(ca_alloc(storm->f.space, size, &address), CA_DRIVER_OUT_OF_MEMORY);
		return;
	}
	assert_int_equal(ca_free(storm->f.heap, address), 0);
}

static void
add(struct storm *storm, const struct piece *piece, uint64_t *requested, uint64_t *allocated)
{
	struct ca_block_info info;

	if (!piece->size)
		return;
	assert_int_equal(ca_lookup(storm->f.heap, piece->address, &info), 0);
	assert_int_equal(info.requested_bytes, piece->size);
	*requested += piece->size;
	*allocated += info.block_bytes;
}

static void
look(struct storm *storm, const struct worker workers[THREADS], uint64_t *seed)
{
	struct ca_stats stats = fixture_stats(&storm->f); /* what was leased is leased no more */
	uint64_t requested = 0, allocated = 0;
	unsigned i, j;

	for (i = 0; i < THREADS; i++)
		for (j = 0; j < SLOTS; j++)
			add(storm, &workers[i].slots[j], &requested, &allocated);
	for (i = 0; i < PASSED; i++)
		add(storm, &storm->passed[i], &requested, &allocated);
	assert_int_equal(stats.requested_bytes.current, requested);
	assert_int_equal(stats.allocated_bytes.current, allocated);
	fixture_check(&storm->f);
}

static void
run(unsigned rare, bool submits, uint64_t capacity)
{
	static struct storm storm;
	static struct worker workers[THREADS];
	pthread_t threads[THREADS], device_thread;
	uint64_t seed = fixture_seed((uint64_t)time(NULL));
	unsigned round, i, j;

	memset(&storm, 0, sizeof(storm));
	fixture_defaults(&storm.f);
	storm.f.config.expandable_segments = false; /* only segments are leased */
	storm.f.pretend.capacity = capacity;
	contended_start(&storm.f);
	storm.taken = calloc(GRAINS / 64, sizeof(*storm.taken));
	storm.work = calloc(GRAINS / EACH, sizeof(*storm.work));
	storm.rare = rare;
	storm.submits = submits;
	storm.is_short = capacity == SHORT_MIB * MIB;
	pthread_mutex_init(&storm.lock, NULL);
	pthread_barrier_init(&storm.together, NULL, THREADS + 1);
	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .storm = &storm, .index = i, .seed = seed + 77 * i };
		if (submits)
			workers[i].stream = order_open(&storm.f, i);
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	assert_int_equal(pthread_create(&device_thread, NULL, device, &storm), 0);
	for (round = 0; round < ROUNDS; round++) {
		pthread_barrier_wait(&storm.together);
		ask_for_much(&storm, &seed);
		look(&storm, workers, &seed);
		pthread_barrier_wait(&storm.together);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	storm.stop = true;
	pthread_join(device_thread, NULL);
	if (storm.broken)
		fail_msg("%s", storm.broken);
	for (i = 0; i < THREADS; i++)
		for (j = 0; j < SLOTS; j++)
			drop(&storm, &workers[i].slots[j]);
	for (i = 0; i < PASSED; i++)
		drop(&storm, &storm.passed[i]);
	finish_all(&storm);
	printf("# rare %u, submits %d: %llu allocations, %llu with the lock, %llu ooms, %llu "
	       "checked\n",
	       rare, submits, (unsigned long long)fixture_stats(&storm.f).alloc_calls,
	       (unsigned long long)storm.f.heap->requests, (unsigned long long)storm.ooms,
	       (unsigned long long)storm.checked);
	nothing_is_left(&storm.f);
	free(storm.taken);
	free(storm.work);
	fixture_stop(&storm.f);
}

static void
test_most_is_leased(void **state)
{
	run(20000, false, 512 * MIB);
	run(1000, false, 512 * MIB);
}

static void
test_leases_end_often(void **state)
{
	run(30, false, 512 * MIB);
}

static void
test_streams_use_some(void **state)
{
	run(100, true, 512 * MIB);
	run(100, true, SHORT_MIB * MIB);
}

static void
test_memory_is_short(void **state)
{
	run(1000, false, SHORT_MIB * MIB);
	run(100, false, SHORT_MIB * MIB);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_most_is_leased),
		cmocka_unit_test(test_leases_end_often),
		cmocka_unit_test(test_streams_use_some),
		cmocka_unit_test(test_memory_is_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
