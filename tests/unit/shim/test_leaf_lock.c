/* SPDX-License-Identifier: MIT */
/* A thread that waits for a lock of a few loads comes to sleep: one of a higher real-time priority
 * that did not would never let the holder go on. */
#include "tests/unit/shim/check.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/state/leaf_lock.h"

enum { LOOKS = 20000, STEP_NS = 100 * 1000 };

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

/* As the kernel has it. */
static bool
is_asleep(long tid)
{
	char name[64], state = 0;
	FILE *file;

	snprintf(name, sizeof(name), "/proc/self/task/%ld/stat", tid);
	file = fopen(name, "r");
	if (!file)
		return false;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	fclose(file);
	return state == 'S';
}

static void
test_a_waiter_sleeps(void **state)
{
	struct timespec step = { .tv_nsec = STEP_NS };
	pthread_t thread;
	unsigned looks;

	ca_leaf_lock_enter(&lock);
	assert_int_equal(pthread_create(&thread, NULL, enter_and_leave, NULL), 0);
	while (!atomic_load(&waiter))
		sched_yield();
	for (looks = 0; looks < LOOKS && !is_asleep(atomic_load(&waiter)); looks++)
		nanosleep(&step, NULL);
	ca_leaf_lock_leave(&lock);
	pthread_join(thread, NULL);
	assert_int_equal(entered, 1);
	assert_in_range(looks, 0, LOOKS - 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_waiter_sleeps),
	};

	return cmocka_run_group_tests_name("shim-leaf_lock", tests, NULL, NULL);
}
