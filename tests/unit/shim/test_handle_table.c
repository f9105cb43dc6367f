/* SPDX-License-Identifier: MIT */
#include "tests/unit/shim/check.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/state/handle_table.h"
#include "tests/unit/shim/asleep.h"

static struct ca_handles handles;

static int
empty(void **state)
{
	ca_handles_after_fork_child(&handles);
	return 0;
}

static const void *
handle(uint64_t i)
{
	return (const void *)(uintptr_t)(i * 64 + 64);
}

static uint64_t
put(uint64_t i, uint64_t word)
{
	uint64_t old = 12345;

	assert_int_equal(ca_handles_put(&handles, handle(i), word, &old), 0);
	return old;
}

static void
test_a_handle_is_found_until_it_is_removed(void **state)
{
	assert_int_equal(ca_handles_get(&handles, handle(1)), 0);
	assert_int_equal(ca_handles_remove(&handles, handle(1)), 0);
	assert_int_equal(put(1, 7), 0);
	assert_int_equal(put(1, 8), 7);
	assert_int_equal(ca_handles_get(&handles, handle(1)), 8);
	ca_handles_add_bits(&handles, handle(1), 3);
	ca_handles_add_bits(&handles, handle(2), 3);
	assert_int_equal(ca_handles_get(&handles, handle(1)), 11);
	assert_int_equal(ca_handles_get(&handles, handle(2)), 0);
	assert_int_equal(ca_handles_remove(&handles, handle(1)), 11);
	assert_int_equal(ca_handles_get(&handles, handle(1)), 0);
}

/* A thread that was growing the table as the process forked may have given its memory back, and
 * another may have taken the addresses. */
static void
test_a_forked_child_unmaps_nothing(void **state)
{
	struct ca_handle_entry *entries[CA_HANDLE_SHARDS];

	for (uint64_t i = 1; i <= 10000; i++)
		put(i, i);
	for (unsigned shard = 0; shard < CA_HANDLE_SHARDS; shard++)
		entries[shard] = handles.shard[shard].entries;
	ca_handles_after_fork_child(&handles);
	for (unsigned shard = 0; shard < CA_HANDLE_SHARDS; shard++) /* -1: not mapped */
		assert_int_equal(entries[shard] ? msync(entries[shard], 1, MS_ASYNC) : 0, 0);
	assert_int_equal(ca_handles_get(&handles, handle(1)), 0);
}

static void
test_null_is_never_there(void **state)
{
	uint64_t old;

	assert_int_equal(ca_handles_put(&handles, NULL, 1, &old), -EINVAL);
	assert_int_equal(ca_handles_get(&handles, NULL), 0);
	assert_int_equal(ca_handles_remove(&handles, NULL), 0);
	put(1, 7);
	assert_int_equal(ca_handles_get(&handles, NULL), 0);
}

enum { KEYS = 20000, STEPS = 400000 };

/* Against an array that says what is right. */
static void
test_random_use(void **state)
{
	uint64_t *model = calloc(KEYS, sizeof(*model));
	unsigned random = 1;

	print_message("# seed %u\n", random);
	for (int i = 0; i < STEPS; i++) {
		unsigned key = (unsigned)rand_r(&random) % (i < STEPS / 2 ? KEYS : KEYS / 100);

		if (rand_r(&random) % 2) {
			uint64_t word = (uint64_t)i + 1;

			assert_int_equal(put(key, word), model[key]);
			model[key] = word;
		} else {
			assert_int_equal(ca_handles_remove(&handles, handle(key)), model[key]);
			model[key] = 0;
		}
	}
	for (unsigned key = 0; key < KEYS; key++)
		assert_int_equal(ca_handles_get(&handles, handle(key)), model[key]);
	free(model);
}

static bool
is_odd(uint64_t word, void *arg)
{
	*(unsigned *)arg += word & 1;
	return word & 1;
}

static void
test_a_sweep_takes_each_leaver_once(void **state)
{
	unsigned left = 0;

	for (unsigned i = 0; i < KEYS; i++)
		put(i, i + 1);
	ca_handles_scan(&handles, is_odd, &left);
	assert_int_equal(left, KEYS / 2);
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(ca_handles_get(&handles, handle(i)), i & 1 ? i + 1 : 0);
}

static void *
use_own_keys(void *argument)
{
	uint64_t first = (uintptr_t)argument * KEYS, old;

	for (uint64_t round = 0; round < 5; round++) {
		for (uint64_t i = first; i < first + 1000; i++)
			if (ca_handles_put(&handles, handle(i), i + 1, &old) || old)
				return (void *)1;
		for (uint64_t i = first; i < first + 1000; i++)
			if (ca_handles_remove(&handles, handle(i)) != i + 1)
				return (void *)1;
	}
	return NULL;
}

static void
test_threads_do_not_disturb_each_other(void **state)
{
	pthread_t threads[4];
	void *failed;

	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use_own_keys, (void *)i), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
}

static _Atomic long waiter;
static _Atomic bool is_swept;

/* Once the sweep has the part of the table that the handle is in. */
static void *
look_up(void *arg)
{
	while (!atomic_load(&is_swept))
		sched_yield();
	atomic_store(&waiter, syscall(SYS_gettid));
	assert_int_equal(ca_handles_get(&handles, handle(1)), 7);
	return NULL;
}

static bool
keep_waiting(uint64_t word, void *ret_slept)
{
	atomic_store(&is_swept, true);
	*(bool *)ret_slept = comes_to_sleep(&waiter);
	return false;
}

static void
test_who_waits_for_another_thread_sleeps(void **state)
{
	bool slept = false;
	pthread_t thread;

	put(1, 7);
	assert_int_equal(pthread_create(&thread, NULL, look_up, NULL), 0);
	ca_handles_scan(&handles, keep_waiting, &slept);
	pthread_join(thread, NULL);
	assert_true(slept);
}

int
main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, empty, empty)
	const struct CMUnitTest tests[] = {
		T(test_a_handle_is_found_until_it_is_removed),
		T(test_a_forked_child_unmaps_nothing),
		T(test_null_is_never_there),
		T(test_random_use),
		T(test_a_sweep_takes_each_leaver_once),
		T(test_threads_do_not_disturb_each_other),
		T(test_who_waits_for_another_thread_sleeps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
