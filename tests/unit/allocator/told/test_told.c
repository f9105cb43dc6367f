/* SPDX-License-Identifier: MIT */
/*
 * The told heap over pretend streams. The judge is the model: memory may go to a stream when the
 * work that was submitted before its free has finished, or comes before that stream's next piece.
 */
#include "allocator/told/told.h"
#include "tests/unit/allocator/order/fixture.h"

enum { STREAMS = 5, BLOCKS = 48, GRAINS = 1 << 16, STEPS = 4000, SEEDS = 8 };
#define BASE ((uint64_t)1 << 40)
#define GRAIN ((uint64_t)512)

struct scene {
	struct fixture f;
	struct ca_told_pool *pool;
	struct ca_stream *streams[STREAMS];
	uint64_t next_segment, given_bytes;
	uint64_t random;
	/* of each grain of the pretend memory: who last freed it, and behind what */
	struct {
		struct ca_stream *stream;
		uint64_t work;
	} freed[GRAINS];
	struct {
		uint64_t address, bytes;
	} blocks[BLOCKS];
};

static void
start(struct scene *scene, uint64_t seed)
{
	memset(scene, 0, sizeof(*scene));
	order_start(&scene->f);
	scene->random = seed;
	scene->next_segment = BASE;
	for (unsigned i = 0; i < STREAMS; i++)
		scene->streams[i] = order_open(&scene->f, i);
	scene->pool = ca_told_pool_open(scene->f.heap, &scene->pool, 0);
	assert_non_null(scene->pool);
}

static void
check(struct scene *scene)
{
	char reason[200] = "";

	if (ca_heap_check(scene->f.heap, reason, sizeof(reason)))
		fail_msg("%s", reason);
}

static void
finish(struct scene *scene)
{
	order_stop(&scene->f);
}

static unsigned
rnd(struct scene *scene, unsigned n)
{
	scene->random = scene->random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(scene->random >> 33) % n;
}

/* The next piece of the stream may touch the memory. */
static void
judge(struct scene *scene, struct ca_stream *stream, uint64_t address, uint64_t bytes)
{
	for (uint64_t at = address; at < address + bytes; at += GRAIN) {
		struct ca_stream *by = scene->freed[(at - BASE) / GRAIN].stream;
		uint64_t work = scene->freed[(at - BASE) / GRAIN].work;

		if (by && by != stream)
			assert_true(ca_model_stream_after(scene->f.model, order_handle(stream),
							  order_handle(by)) >= work);
	}
}

/* From the cache, or from a new segment, which is pretend memory that nobody has used. */
static uint64_t
take(struct scene *scene, struct ca_stream *stream, uint64_t bytes)
{
	uint64_t address, segment;
	int r = ca_told_alloc(scene->pool, stream, bytes, false, &address);

	if (r == -EAGAIN) {
		segment = scene->next_segment;
		scene->next_segment += ca_told_segment_bytes(scene->pool, bytes, false);
		assert_true(scene->next_segment - BASE <= GRAINS * GRAIN);
		order_launch(&scene->f, stream);
		r = ca_told_grow(scene->pool, stream, segment, scene->next_segment - segment, bytes,
				 &address);
	}
	assert_int_equal(r, 0);
	judge(scene, stream, address, bytes);
	return address;
}

static void
give(struct scene *scene, struct ca_stream *stream, uint64_t address, uint64_t bytes)
{
	uint64_t work = ca_model_stream_submitted(scene->f.model, order_handle(stream));

	for (uint64_t at = address; at < address + bytes; at += GRAIN) {
		scene->freed[(at - BASE) / GRAIN].stream = stream;
		scene->freed[(at - BASE) / GRAIN].work = work;
	}
	assert_int_equal(ca_told_free(scene->f.heap, address, stream), 0);
}

static void
test_one_stream_gets_its_memory_back_without_a_driver_call(void **state)
{
	static struct scene scene;
	uint64_t x, y;

	start(&scene, 1);
	x = take(&scene, scene.streams[0], 3 * MIB);
	order_launch(&scene.f, scene.streams[0]);
	give(&scene, scene.streams[0], x, 3 * MIB);
	y = take(&scene, scene.streams[0], 3 * MIB);
	assert_int_equal(x, y);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_STREAM_MARK), 0);
	assert_int_equal(order_calls(&scene.f, CA_MODEL_QUERY), 0);
	check(&scene);
	finish(&scene);
}

static void
test_wrong_frees_are_refused(void **state)
{
	static struct scene scene;
	uint64_t x;

	start(&scene, 1);
	x = take(&scene, scene.streams[0], 3 * MIB);
	assert_int_equal(ca_told_free(scene.f.heap, x + GRAIN, scene.streams[0]), -EINVAL);
	assert_int_equal(ca_told_free(scene.f.heap, x - GRAIN, scene.streams[0]), -ENOENT);
	give(&scene, scene.streams[0], x, 3 * MIB);
	assert_int_equal(ca_told_free(scene.f.heap, x, scene.streams[0]), -EINVAL);
	check(&scene);
	finish(&scene);
}

static void
test_a_closed_pool_gives_its_segments_back_when_they_are_idle(void **state)
{
	static struct scene scene;
	struct ca_told_idle idle;
	uint64_t x, address;

	start(&scene, 1);
	x = take(&scene, scene.streams[0], 12 * MIB);
	order_launch(&scene.f, scene.streams[0]);
	ca_told_pool_close(scene.pool);
	assert_int_equal(ca_told_alloc(scene.pool, scene.streams[0], MIB, true, &address), -ENODEV);
	assert_false(ca_told_take_closed(scene.f.heap, &idle));
	give(&scene, scene.streams[0], x, 12 * MIB);
	assert_false(ca_told_take_closed(scene.f.heap, &idle));
	ca_model_stream_finish(scene.f.model, HANDLE(0), UINT64_MAX);
	assert_true(ca_told_take_closed(scene.f.heap, &idle));
	assert_int_equal(idle.address, x);
	assert_false(ca_told_any(scene.f.heap));
	check(&scene);
	finish(&scene);
}

/* ---- records of destroyed pools */

static unsigned
count_records(struct scene *scene)
{
	struct ca_told_pool *pool = NULL;
	unsigned n = 0;

	while ((pool = ca_told_pool_next(scene->f.heap, pool, 0)))
		n++;
	return n;
}

/* As the shim does. The segment stays with the caller. */
static struct ca_told_idle
destroy(struct scene *scene, uint64_t address, uint64_t bytes)
{
	struct ca_told_idle idle;

	give(scene, scene->streams[0], address, bytes);
	ca_told_pool_close(scene->pool);
	ca_told_pool_retire(scene->pool);
	ca_model_stream_finish(scene->f.model, HANDLE(0), UINT64_MAX);
	assert_true(ca_told_take_closed(scene->f.heap, &idle));
	scene->next_segment = BASE;
	return idle;
}

static void
test_the_record_of_a_destroyed_pool_serves_the_next_one(void **state)
{
	static struct scene scene;
	struct ca_told_stats stats;

	start(&scene, 1);
	for (uintptr_t i = 1; i <= 100; i++) {
		ca_told_pool_set_threshold(scene.pool, MIB);
		ca_told_pool_set_limited(scene.pool);
		ca_told_pool_set_reuse(scene.pool, CA_TOLD_FOLLOWS, false);
		(void)destroy(&scene, take(&scene, scene.streams[0], 3 * MIB), 3 * MIB);
		scene.pool = ca_told_pool_open(scene.f.heap, (void *)i, 0);
		assert_ptr_equal(ca_told_pool_find(scene.f.heap, (void *)i), scene.pool);
		assert_null(ca_told_pool_find(scene.f.heap, (void *)(i - 1)));
		assert_true(ca_told_pool_threshold(scene.pool) == UINT64_MAX);
		assert_false(ca_told_pool_is_limited(scene.pool));
		assert_true(ca_told_pool_allows(scene.pool, CA_TOLD_FOLLOWS));
		ca_told_pool_stats(scene.pool, &stats);
		assert_int_equal(stats.used_bytes + stats.used_high + stats.segment_bytes, 0);
		check(&scene);
	}
	assert_int_equal(count_records(&scene), 1);
	finish(&scene);
}

static void
test_the_record_of_a_destroyed_pool_waits_for_its_memory(void **state)
{
	static struct scene scene;
	struct ca_told_pool *first, *second;
	uint64_t x;

	start(&scene, 1);
	first = scene.pool;
	x = take(&scene, scene.streams[0], 3 * MIB);
	ca_told_pool_note_driver(first, 100 * MIB);
	assert_true(ca_told_has_foreign(scene.f.heap));
	ca_told_pool_close(first);
	ca_told_pool_note_driver(first, 100 * MIB);
	assert_false(ca_told_has_foreign(scene.f.heap));
	assert_ptr_not_equal(second = ca_told_pool_open(scene.f.heap, (void *)1, 0), first);
	ca_told_pool_retire(first);
	assert_ptr_not_equal(ca_told_pool_open(scene.f.heap, (void *)2, 0), first);
	(void)destroy(&scene, x, 3 * MIB);
	assert_ptr_not_equal(ca_told_pool_open(scene.f.heap, (void *)3, 1), first);
	assert_ptr_equal(ca_told_pool_open(scene.f.heap, (void *)4, 0), first);
	ca_told_pool_close(second); /* the driver may not have destroyed it yet */
	assert_ptr_not_equal(ca_told_pool_open(scene.f.heap, (void *)6, 0), second);
	ca_told_pool_note_current(second);
	ca_told_pool_retire(second);
	assert_ptr_not_equal(ca_told_pool_open(scene.f.heap, (void *)5, 0), second);
	finish(&scene);
}

static void
test_memory_that_the_driver_did_not_take_is_not_the_next_pools(void **state)
{
	static struct scene scene;
	struct ca_told_stats stats;
	struct ca_told_idle idle, again;

	start(&scene, 1);
	idle = destroy(&scene, take(&scene, scene.streams[0], 3 * MIB), 3 * MIB);
	assert_ptr_equal(ca_told_pool_open(scene.f.heap, (void *)1, 0), idle.pool);
	ca_told_put_back(&idle);
	ca_told_pool_stats(idle.pool, &stats);
	assert_int_equal(stats.segment_bytes, 0);
	check(&scene);
	assert_true(ca_told_take_closed(scene.f.heap, &again));
	assert_int_equal(again.address, idle.address);
	assert_false(ca_told_has_closed(scene.f.heap));
	finish(&scene);
}

/* ---- random programs */

static void
block_step(struct scene *scene)
{
	unsigned i = rnd(scene, BLOCKS);
	struct ca_stream *stream = scene->streams[rnd(scene, STREAMS)];

	if (scene->blocks[i].address) {
		order_launch(&scene->f, stream);
		give(scene, stream, scene->blocks[i].address, scene->blocks[i].bytes);
		scene->blocks[i].address = 0;
		return;
	}
	scene->blocks[i].bytes = rnd(scene, 3) ? GRAIN * (1 + rnd(scene, 64)) : 64 * KIB;
	scene->blocks[i].address = take(scene, stream, scene->blocks[i].bytes);
	order_launch(&scene->f, stream);
}

static void
order_step(struct scene *scene)
{
	struct ca_stream *stream = scene->streams[rnd(scene, STREAMS)];
	void *handle = order_handle(stream);

	switch (rnd(scene, 4)) {
	case 0:
		ca_model_stream_finish(scene->f.model, handle,
				       rnd(scene, 1 + (unsigned)ca_model_stream_submitted(
							      scene->f.model, handle)));
		break;
	case 1:
		order_launch(&scene->f, stream);
		break;
	default:
		(void)ca_told_poll_all(scene->f.heap, 0);
	}
}

static void
test_random_programs(void **state)
{
	static struct scene scene;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		print_message("# seed %llu\n", (unsigned long long)seed);
		start(&scene, seed);
		for (unsigned step = 0; step < STEPS; step++) {
			if (rnd(&scene, 4))
				block_step(&scene);
			else
				order_step(&scene);
			if (!(step % 16))
				check(&scene);
		}
		finish(&scene);
	}
}

static void
test_behind_a_wait(void **state)
{
	static struct scene scene;
	uint64_t x, y;

	start(&scene, 1);
	x = take(&scene, scene.streams[0], 3 * MIB);
	order_launch(&scene.f, scene.streams[0]);
	give(&scene, scene.streams[0], x, 3 * MIB);
	order_launch(&scene.f, scene.streams[0]); /* nobody is to wait for this */
	assert_int_equal(ca_told_alloc_guarded(scene.pool, scene.streams[1], 3 * MIB, &y), 0);
	assert_int_equal(x, y);
	judge(&scene, scene.streams[1], y, 3 * MIB);
	assert_true(order_behind(&scene.f, scene.streams[1], 0) <
		    ca_model_stream_submitted(scene.f.model, HANDLE(0)));
	give(&scene, scene.streams[1], y, 3 * MIB);
	ca_told_pool_set_reuse(scene.pool, CA_TOLD_INTERNAL, false);
	assert_int_equal(ca_told_alloc_guarded(scene.pool, scene.streams[2], 3 * MIB, &y), -EAGAIN);
	check(&scene);
	finish(&scene);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_stream_gets_its_memory_back_without_a_driver_call),
		cmocka_unit_test(test_wrong_frees_are_refused),
		cmocka_unit_test(test_a_closed_pool_gives_its_segments_back_when_they_are_idle),
		cmocka_unit_test(test_the_record_of_a_destroyed_pool_serves_the_next_one),
		cmocka_unit_test(test_the_record_of_a_destroyed_pool_waits_for_its_memory),
		cmocka_unit_test(test_memory_that_the_driver_did_not_take_is_not_the_next_pools),
		cmocka_unit_test(test_random_programs),
		cmocka_unit_test(test_behind_a_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
