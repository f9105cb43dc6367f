/* SPDX-License-Identifier: MIT */
/* shim/bind/unseen_calls.c and the assembled thunks:
 * every argument arrives, every call is counted, the table ends. */
#include "shim/bind/unseen_calls.h"

#include <pthread.h>
#include <string.h>

#include "shim/bind/thunks.h"
#include "tests/unit/shim/check.h"

struct large {
	uint64_t words[5];
};

/* Integer and vector registers, both kinds of stack arguments, and a result by hidden pointer. */
static struct large
gather(uint64_t a, double p, uint64_t b, uint64_t c, float q, uint64_t d, uint64_t e, uint64_t f,
       uint64_t g, uint64_t h, double r, double s, double t, double u, double v, double w, double x,
       uint64_t i, uint64_t j)
{
	return (struct large){ { a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h, i, j,
				 (uint64_t)(p + q * 10),
				 (uint64_t)(r + s + t + u + v + w * 100 + x * 1000) } };
}
typedef struct large gather_fn(uint64_t, double, uint64_t, uint64_t, float, uint64_t, uint64_t,
			       uint64_t, uint64_t, uint64_t, double, double, double, double, double,
			       double, double, uint64_t, uint64_t);

static struct large
call(gather_fn *function)
{
	return function(1, 2.0, 3, 4, 5.0f, 6, 7, 8, 9, 10, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0,
			17.0, 18, 19);
}

static void
test_arguments_and_count(void **state)
{
	uintptr_t thunk = ca_unseen_thunk((uintptr_t)gather);
	uint64_t before = ca_unseen_calls();
	struct large direct = call(gather), through;

	assert_int_not_equal(thunk, 0);
	assert_int_not_equal(thunk, (uintptr_t)gather);
	for (int i = 0; i < 3; i++) {
		through = call((gather_fn *)thunk);
		assert_memory_equal(&direct, &through, sizeof(direct));
	}
	assert_int_equal(ca_unseen_calls(), before + 3);
}

static void
test_same_target_same_thunk(void **state)
{
	uintptr_t first = ca_unseen_thunk((uintptr_t)gather);

	assert_int_not_equal(ca_unseen_thunk((uintptr_t)call), first);
	assert_int_equal(ca_unseen_thunk((uintptr_t)gather), first);
}

static unsigned alarms;
static uint64_t counted_at_alarm;

/* Spoils every register that an argument could be in, as any C function may. */
static void
alarm_once(void)
{
	volatile double spoil[16];
	char text[256];

	for (int i = 0; i < 16; i++)
		spoil[i] = i * 3.5 + alarms;
	memset(text, (int)spoil[3], sizeof(text));
	assert_int_equal(text[17], (char)(int)spoil[3]);
	alarms++;
	counted_at_alarm = ca_unseen_calls();
	ca_unseen_set_callback(NULL);
}

/* The alarm goes before the call is made, once, and the call is none the worse for it. */
static void
test_alarm_before_the_first_call(void **state)
{
	uintptr_t thunk = ca_unseen_thunk((uintptr_t)gather);
	struct large direct = call(gather), through;
	uint64_t before = ca_unseen_calls();

	ca_unseen_set_callback(alarm_once);
	for (int i = 0; i < 3; i++) {
		through = call((gather_fn *)thunk);
		assert_memory_equal(&direct, &through, sizeof(direct));
	}
	assert_int_equal(alarms, 1);
	assert_int_equal(counted_at_alarm, before + 1);
	assert_int_equal(ca_unseen_calls(), before + 3);
}

enum { THREADS = 8, CALLS = 10000 };
static pthread_barrier_t together;

static int
answer(void)
{
	return 41;
}

static void *
hammer(void *arg)
{
	uintptr_t thunk;
	int sum = 0;

	pthread_barrier_wait(&together);
	thunk = ca_unseen_thunk((uintptr_t)answer);
	for (int i = 0; i < CALLS; i++)
		sum += ((int (*)(void))thunk)();
	return (void *)(sum == 41 * CALLS ? thunk : 0);
}

static void
test_threads(void **state)
{
	uint64_t before = ca_unseen_calls();
	pthread_t ids[THREADS];
	void *thunk, *first = NULL;

	pthread_barrier_init(&together, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&ids[i], NULL, hammer, NULL), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(ids[i], &thunk);
		first = first ? first : thunk;
		assert_non_null(thunk);
		assert_ptr_equal(thunk, first);
	}
	assert_int_equal(ca_unseen_calls(), before + THREADS * CALLS);
}

/* Last: fills the table. */
static void
test_full_table(void **state)
{
	uint64_t before = ca_unseen_calls();
	uintptr_t thunks[CA_THUNK_COUNT + 1] = { 0 };
	unsigned given = 0;

	while (given <= CA_THUNK_COUNT && (thunks[given] = ca_unseen_thunk(0x1000 + given)))
		given++;
	assert_true(given > CA_THUNK_COUNT - 8 && given < CA_THUNK_COUNT);
	for (unsigned i = 1; i < given; i++)
		assert_int_equal(thunks[i], thunks[i - 1] + CA_THUNK_BYTES);
	assert_int_equal(ca_unseen_calls(), before + 1); /* the one look-up that went without */
	assert_int_equal(ca_unseen_thunk(0x1000), thunks[0]);
	assert_int_equal(ca_unseen_thunk(1), 0);
	ca_unseen_note_lookup();
	assert_int_equal(ca_unseen_calls(), before + 3);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arguments_and_count),
		cmocka_unit_test(test_alarm_before_the_first_call),
		cmocka_unit_test(test_same_target_same_thunk),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_full_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
