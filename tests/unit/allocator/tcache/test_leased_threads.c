/* SPDX-License-Identifier: MIT */
/* Other threads, and a thread's leased segments: what they do with them, and reserve. */
#include "tests/unit/allocator/tcache/lease_scene.h"

#include <sched.h>

#include "allocator/core/lock.h"
#include "allocator/policy/internal.h"

/* ---- who takes a segment from its thread */

struct meeting {
	struct fixture f;
	uint64_t blocks[TAKEN];
	_Atomic unsigned stage; /* done so far, by one and the other in turn */
	uint64_t large;
	unsigned failed;
	bool has_cleared;
};

static void
await_stage(struct meeting *meeting, unsigned stage)
{
	while (meeting->stage < stage)
		sched_yield();
}

static void *
take_one_mib(void *arg)
{
	struct meeting *meeting = arg;

	take_and_free_one(&meeting->f);
	meeting->stage = 1;
	await_stage(meeting, 2);
	meeting->failed = ca_alloc(meeting->f.space, MIB, &meeting->large) != 0;
	return NULL;
}

static void
test_another_threads_request_takes_the_segment_before_the_cache_grows(void **state)
{
	struct meeting meeting = { .stage = 0 };
	pthread_t thread;
	uint64_t held;

	fixture_defaults(&meeting.f);
	contended_start(&meeting.f);
	take_and_free_one(&meeting.f);
	assert_int_equal(pthread_create(&thread, NULL, take_one_mib, &meeting), 0);
	await_stage(&meeting, 1);
	take_sizes(&meeting.f, meeting.blocks, TAKEN);
	assert_true(is_leased(&meeting.f));
	held = fixture_sums(&meeting.f).held_bytes;
	grow_last(&meeting.f);
	meeting.stage = 2;
	pthread_join(thread, NULL);
	assert_int_equal(meeting.failed, 0);
	assert_int_equal(fixture_sums(&meeting.f).held_bytes, held);
	fixture_check(&meeting.f);
	fixture_free(&meeting.f, meeting.large);
	free_blocks(&meeting.f, meeting.blocks, TAKEN);
	nothing_is_left(&meeting.f);
	fixture_stop(&meeting.f);
}

struct lessee {
	struct shared shared;
	uint64_t blocks[TAKEN];
	_Atomic bool is_ready, may_go;
	bool sleeps;
};

static void
lessee_start(struct lessee *lessee)
{
	uint64_t other;

	fixture_defaults(&lessee->shared.f);
	lessee->shared.f.pretend.capacity = 4 * MIB;
	contended_start(&lessee->shared.f);
	other = fixture_alloc(&lessee->shared.f, 512); /* so this thread has a magazine */
	fixture_free(&lessee->shared.f, other);
	ca_trim(lessee->shared.f.heap, 0);
}

/* A segment without a live block is leased to the thread, which then ends, or goes on. */
static void *
lessee_run(void *arg)
{
	struct lessee *lessee = arg;
	struct fixture *f = &lessee->shared.f;

	take_sizes(f, lessee->blocks, TAKEN);
	lessee->shared.done += !is_leased(f);
	free_blocks(f, lessee->blocks, TAKEN);
	lessee->shared.done += !is_leased(f);
	lessee->is_ready = true;
	while (lessee->sleeps && !lessee->may_go)
		sched_yield();
	take_sizes(f, lessee->blocks, lessee->sleeps ? 1 : 0);
	return NULL;
}

static void
test_at_out_of_memory_a_sleeping_threads_segment_goes(void **state)
{
	struct lessee lessee = { .sleeps = true };
	struct fixture *f = &lessee.shared.f;
	pthread_t thread;
	uint64_t large;

	lessee_start(&lessee);
	assert_int_equal(pthread_create(&thread, NULL, lessee_run, &lessee), 0);
	while (!lessee.is_ready)
		sched_yield();
	assert_true(is_leased(f));
	assert_int_equal(ca_alloc(f->space, 4 * MIB, &large), 0);
	assert_null(f->heap->leases);
	fixture_check(f);
	assert_int_equal(ca_free(f->heap, large), 0);
	lessee.may_go = true;
	pthread_join(thread, NULL);
	fixture_free(f, lessee.blocks[0]);
	assert_int_equal(lessee.shared.done, 0);
	nothing_is_left(f);
	fixture_stop(f);
}

static void
test_at_out_of_memory_an_ended_threads_segment_goes(void **state)
{
	struct lessee lessee = { .sleeps = false };
	struct fixture *f = &lessee.shared.f;
	uint64_t large;

	lessee_start(&lessee);
	in_thread(lessee_run, &lessee);
	assert_true(is_leased(f));
	large = fixture_alloc(f, 4 * MIB);
	fixture_free(f, large);
	assert_int_equal(lessee.shared.done, 0);
	nothing_is_left(f);
	fixture_stop(f);
}

static void *
take_one(void *arg)
{
	struct lessee *lessee = arg;

	lessee->shared.done += ca_alloc(lessee->shared.f.space, 512, &lessee->blocks[0]) != 0;
	return NULL;
}

struct successor {
	struct fixture *f;
	unsigned with_a_side;
};

static void *
lease_and_end(void *arg)
{
	struct successor *successor = arg;
	uint64_t blocks[TAKEN];

	for (unsigned round = 0; round < 20 && !is_leased(successor->f); round++) {
		take_sizes(successor->f, blocks, TAKEN);
		free_blocks(successor->f, blocks, TAKEN);
	}
	successor->with_a_side += is_leased(successor->f) && ca_bases_side.keep != UINT64_MAX;
	return NULL;
}

/* The second one has the magazine, and the lease, that the first one had. */
static void
test_each_thread_that_leases_has_a_side_of_the_table(void **state)
{
	struct successor successor = { .with_a_side = 0 };
	struct fixture f;

	fixture_defaults(&f);
	contended_start(&f);
	successor.f = &f;
	take_and_free_one(&f);
	for (unsigned i = 1; i <= 3; i++) {
		in_thread(lease_and_end, &successor);
		assert_int_equal(successor.with_a_side, i);
		ca_trim(f.heap, 0);
		assert_false(is_leased(&f));
	}
	fixture_check(&f);
	fixture_stop(&f);
}

/* The next owner of its magazine begins without a lease. */
static void
test_a_lease_does_not_outlive_its_owner_in_the_next(void **state)
{
	struct lessee lessee = { .sleeps = false };
	struct fixture *f = &lessee.shared.f;

	lessee_start(&lessee);
	in_thread(lessee_run, &lessee);
	assert_true(is_leased(f));
	in_thread(take_one, &lessee);
	assert_int_equal(magazines(f->heap), 2);
	assert_null(f->heap->leases);
	assert_int_equal(lessee.shared.done, 0);
	fixture_free(f, lessee.blocks[0]);
	nothing_is_left(f);
	fixture_stop(f);
}

/* ---- who frees and merges in it */

static void *
free_and_take(void *arg)
{
	struct lessee *lessee = arg;
	struct fixture *f = &lessee->shared.f;

	free_blocks(f, lessee->blocks, TAKEN);
	/* nothing fits of what it keeps: that is merged in the other's segment */
	for (unsigned i = 0; i < TAKEN; i++)
		lessee->shared.done +=
			ca_alloc(f->space, 200 * KIB + i * 512, &lessee->blocks[i]) != 0;
	return NULL;
}

static void
test_another_thread_frees_and_merges_in_the_segment(void **state)
{
	struct lessee lessee = { .sleeps = false };
	struct fixture *f = &lessee.shared.f;
	uint64_t own[TAKEN];

	lease_start(f, lessee.blocks);
	in_thread(free_and_take, &lessee);
	take_sizes(f, own, TAKEN);
	fixture_check(f);
	assert_int_equal(lessee.shared.done, 0);
	free_blocks(f, own, TAKEN);
	free_blocks(f, lessee.blocks, TAKEN);
	nothing_is_left(f);
	fixture_stop(f);
}

/* Each thread takes, and both free what both have taken. (Whether a segment is leased then is a
 * matter of which of the two comes first, and differs from round to round.) */
struct twice {
	struct fixture f;
	pthread_barrier_t together;
	uint64_t blocks[TAKEN];
	_Atomic unsigned freed[TAKEN], refused[TAKEN];
	_Atomic unsigned others;
};

enum {
#ifdef __SANITIZE_THREAD__
	TWICE = 30,
#else
	TWICE = 300,
#endif
};

static void
free_twice(struct twice *twice, bool backwards)
{
	for (unsigned n = 0; n < TAKEN; n++) {
		unsigned i = backwards ? TAKEN - 1 - n : n;
		int r = ca_free(twice->f.heap, twice->blocks[i]);

		twice->freed[i] += r == 0;
		twice->refused[i] += r == -EINVAL;
		twice->others += r && r != -EINVAL;
	}
}

static void *
other_frees(void *arg)
{
	struct twice *twice = arg;
	unsigned round;

	for (round = 0; round < TWICE; round++) {
		pthread_barrier_wait(&twice->together);
		free_twice(twice, round & 1);
		pthread_barrier_wait(&twice->together);
	}
	return NULL;
}

static void
test_of_two_frees_one_succeeds(void **state)
{
	struct twice twice = { .others = 0 };
	pthread_t thread;
	unsigned round, i;

	fixture_defaults(&twice.f);
	contended_start(&twice.f);
	pthread_barrier_init(&twice.together, NULL, 2);
	take_and_free_one(&twice.f);
	assert_int_equal(pthread_create(&thread, NULL, other_frees, &twice), 0);
	for (round = 0; round < TWICE; round++) {
		take_sizes(&twice.f, twice.blocks, TAKEN);
		for (i = 0; i < TAKEN; i++)
			twice.freed[i] = twice.refused[i] = 0;
		pthread_barrier_wait(&twice.together);
		free_twice(&twice, false);
		pthread_barrier_wait(&twice.together);
		for (i = 0; i < TAKEN; i++) {
			assert_int_equal(twice.freed[i], 1);
			assert_int_equal(twice.refused[i], 1);
		}
	}
	pthread_join(thread, NULL);
	assert_int_equal(twice.others, 0);
	nothing_is_left(&twice.f);
	pthread_barrier_destroy(&twice.together);
	fixture_stop(&twice.f);
}

static void *
meet(void *arg)
{
	struct meeting *meeting = arg;

	take_and_free_one(&meeting->f); /* with a magazine */
	meeting->stage = 1;
	await_stage(meeting, 2);
	free_blocks(&meeting->f, meeting->blocks, TAKEN);
	meeting->stage = 3;
	await_stage(meeting, 4);
	ca_heap_lock_leased(meeting->f.heap);
	meeting->has_cleared =
		ca_magazine_clear_some_locked(meeting->f.space, CA_KEPT_ANY, CA_KEPT_ALL);
	ca_heap_unlock(meeting->f.heap);
	meeting->stage = 5;
	return NULL;
}

static void
test_who_merges_in_anothers_segment_waits_for_it(void **state)
{
	struct meeting meeting = { .stage = 0 };
	struct ca_magazine *own;
	pthread_t thread;
	bool early;

	fixture_defaults(&meeting.f);
	contended_start(&meeting.f);
	take_and_free_one(&meeting.f);
	assert_int_equal(pthread_create(&thread, NULL, meet, &meeting), 0);
	await_stage(&meeting, 1);
	take_sizes(&meeting.f, meeting.blocks, TAKEN);
	meeting.stage = 2;
	await_stage(&meeting, 3);
	assert_true(is_leased(&meeting.f));
	own = ca_own.magazine;
	ca_magazine_own(own);
	meeting.stage = 4;
	for (unsigned i = 0; i < 5 && meeting.stage < 5; i++)
		sleep_a_step();
	early = meeting.stage == 5;
	ca_magazine_unlock(own);
	pthread_join(thread, NULL);
	assert_false(early);
	assert_true(meeting.has_cleared);
	assert_true(is_leased(&meeting.f));
	nothing_is_left(&meeting.f);
	fixture_stop(&meeting.f);
}

/* ---- the table of live blocks */

enum { LIVE = 20000 };

struct crowd {
	struct shared shared;
	uint64_t blocks[LIVE];
};

static void *
take_crowd(void *arg)
{
	struct crowd *crowd = arg;

	for (unsigned i = 0; i < LIVE; i++)
		crowd->shared.done += ca_alloc(crowd->shared.f.space, 512, &crowd->blocks[i]) != 0;
	return NULL;
}

static void
test_the_table_grows_while_it_is_shared(void **state)
{
	struct crowd *crowd = calloc(1, sizeof(*crowd));
	struct fixture *f = &crowd->shared.f;
	uint64_t blocks[TAKEN];
	unsigned i;

	lease_start(f, blocks);
	in_thread(take_crowd, crowd);
	assert_int_equal(crowd->shared.done, 0);
	for (i = 0; i < LIVE; i++) {
		const struct ca_block *block =
			ca_bases_find_locked(&f->heap->bases, crowd->blocks[i]);

		assert_true(!block || block->address == crowd->blocks[i]);
	}
	fixture_check(f);
	free_blocks(f, blocks, TAKEN);
	free_blocks(f, crowd->blocks, LIVE);
	nothing_is_left(f);
	fixture_stop(f);
	free(crowd);
}

/* ---- what is reserved */

enum { HANDED = 256, STEPS = 40000, MANY_THREADS = 16 };

struct ring {
	struct fixture f;
	_Atomic uint64_t slots[HANDED];
	_Atomic unsigned failed;
	_Atomic uint64_t seeds;
	unsigned steps;
};

static void *
hand_around(void *arg)
{
	struct ring *ring = arg;
	uint64_t seed = atomic_fetch_add(&ring->seeds, 1) * 0x9e3779b97f4a7c15u, address;

	for (unsigned i = 0; i < ring->steps; i++) {
		uint64_t dice = fixture_random(&seed);
		_Atomic uint64_t *slot = &ring->slots[dice % HANDED];

		address = atomic_exchange(slot, 0);
		if (address)
			ring->failed += ca_free(ring->f.heap, address) != 0;
		ring->failed +=
			ca_alloc(ring->f.space, 1 + (dice >> 20) % (64 * KIB), &address) != 0;
		address = atomic_exchange(slot, address);
		if (address)
			ring->failed += ca_free(ring->f.heap, address) != 0;
	}
	return NULL;
}

static uint64_t
reserved_by(unsigned n)
{
	struct ring ring = { .seeds = 1, .steps = STEPS / n };
	pthread_t threads[MANY_THREADS];
	uint64_t peak;
	unsigned i;

	fixture_defaults(&ring.f);
	contended_start(&ring.f);
	for (i = 0; i < n; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, hand_around, &ring), 0);
	for (i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	peak = fixture_stats(&ring.f).reserved_bytes.peak;
	for (i = 0; i < HANDED; i++)
		if (ring.slots[i])
			assert_int_equal(ca_free(ring.f.heap, ring.slots[i]), 0);
	assert_int_equal(ring.failed, 0);
	nothing_is_left(&ring.f);
	fixture_stop(&ring.f);
	return peak;
}

/* Of three runs the middle one: who comes when is a matter of chance. (Of 40 runs with 4 threads
 * one reserved 14 MiB more than with one, the median 4.) */
static uint64_t
usually_reserved_by(unsigned n)
{
	uint64_t a = reserved_by(n), b = reserved_by(n), c = reserved_by(n);

	return ca_most(ca_least(a, b), ca_least(ca_most(a, b), c));
}

static void
test_what_is_reserved_grows_little_with_threads(void **state)
{
	uint64_t one = reserved_by(1), four = usually_reserved_by(4),
		 sixteen = usually_reserved_by(16);

	print_message("# reserved: %llu, %llu, %llu KiB\n", (unsigned long long)one >> 10,
		      (unsigned long long)four >> 10, (unsigned long long)sixteen >> 10);
	assert_in_range(four, 0, one + 4 * 4 * MIB);
	assert_in_range(sixteen, 0, one + 16 * 4 * MIB);
}

/* An argument: that test alone (tests/stress/test_leases.py). */
int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_another_threads_request_takes_the_segment_before_the_cache_grows),
		cmocka_unit_test(test_at_out_of_memory_a_sleeping_threads_segment_goes),
		cmocka_unit_test(test_at_out_of_memory_an_ended_threads_segment_goes),
		cmocka_unit_test(test_each_thread_that_leases_has_a_side_of_the_table),
		cmocka_unit_test(test_a_lease_does_not_outlive_its_owner_in_the_next),
		cmocka_unit_test(test_another_thread_frees_and_merges_in_the_segment),
		cmocka_unit_test(test_of_two_frees_one_succeeds),
		cmocka_unit_test(test_who_merges_in_anothers_segment_waits_for_it),
		cmocka_unit_test(test_the_table_grows_while_it_is_shared),
		cmocka_unit_test(test_what_is_reserved_grows_little_with_threads),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
