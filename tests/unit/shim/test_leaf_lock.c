/* SPDX-License-Identifier: MIT */
/* A thread that waits for a lock of a few loads comes to sleep: one of a higher real-time priority
 * that did not would never let the holder go on. */
#include "tests/unit/shim/check.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/state/leaf_lock.h"
#include "tests/unit/shim/asleep.h"

static struct ca_leaf_lock lock;
static _Atomic long waiter;
static unsigned entered;

static void *
enter_and_leave(void *arg)
{
	atomic_store(&waiter, syscall(SYS_gettid));
	ca_leaf_lock_enter(&lock);
	entered++;
	ca_leaf_lock_leave(&lock);
	return NULL;
}

static void
test_a_waiter_sleeps(void **state)
{
	pthread_t thread;
	bool slept;

	ca_leaf_lock_enter(&lock);
	assert_int_equal(pthread_create(&thread, NULL, enter_and_leave, NULL), 0);
	slept = comes_to_sleep(&waiter);
	ca_leaf_lock_leave(&lock);
	pthread_join(thread, NULL);
	assert_int_equal(entered, 1);
	assert_true(slept);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_waiter_sleeps),
	};

	return cmocka_run_group_tests_name("shim-leaf_lock", tests, NULL, NULL);
}
