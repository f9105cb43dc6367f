/* SPDX-License-Identifier: MIT */
/* shim/track/stream_table.c: handles come back, default streams are told apart, one thread opens.
 */
#include "shim/track/stream_table.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "tests/unit/shim/check.h"

static int things[64];

static struct ca_stream *
record(int i)
{
	return (struct ca_stream *)(void *)&things[i];
}

static struct ca_context *
context(int i)
{
	return (struct ca_context *)(void *)&things[32 + i];
}

static struct ca_stream_name
created(uintptr_t handle)
{
	return (struct ca_stream_name){ .handle = (CUstream)handle }; // NOLINT: made up
}

static void
enter(const struct ca_stream_name *name, struct ca_context *owner, struct ca_stream *stream)
{
	struct ca_stream *found;
	uint64_t claim;

	assert_int_equal(ca_stream_table_claim(name, &found, &claim), CA_STREAM_CLAIMED);
	assert_true(ca_stream_table_enter(name, claim, owner, stream));
}

static int
empty_table(void **state)
{
	ca_stream_table_after_fork_child();
	return 0;
}

static void
test_an_entered_stream_is_found(void **state)
{
	struct ca_stream_name name = created(0x1000), other = created(0x2000);
	struct ca_stream *found;
	uint64_t claim;

	enter(&name, context(0), record(0));
	assert_int_equal(ca_stream_table_claim(&name, &found, &claim), CA_STREAM_FOUND);
	assert_ptr_equal(found, record(0));
	assert_ptr_equal(ca_stream_table_find(&name), record(0));
	assert_null(ca_stream_table_find(&other));
}

static void
test_one_that_is_not_tracked_is_found_as_such(void **state)
{
	struct ca_stream_name name = created(0x1000);
	struct ca_stream *found = record(1);
	uint64_t claim;

	enter(&name, NULL, NULL);
	assert_int_equal(ca_stream_table_claim(&name, &found, &claim), CA_STREAM_FOUND);
	assert_null(found);
}

static void
test_a_handle_that_comes_back_is_another_stream(void **state)
{
	struct ca_stream_name name = created(0x1000);
	struct ca_stream *found;

	for (int i = 0; i < 1000; i++) {
		enter(&name, context(0), record(i % 8));
		assert_true(ca_stream_table_take(name.handle, &found));
		assert_ptr_equal(found, record(i % 8));
		assert_false(ca_stream_table_take(name.handle, &found));
		assert_null(ca_stream_table_find(&name));
	}
}

static void
test_default_streams_are_of_their_context_and_thread(void **state)
{
	struct ca_stream_name names[] = {
		{ CU_STREAM_LEGACY, context(0), 0 },     { CU_STREAM_LEGACY, context(1), 0 },
		{ CU_STREAM_PER_THREAD, context(0), 7 }, { CU_STREAM_PER_THREAD, context(1), 7 },
		{ CU_STREAM_PER_THREAD, context(0), 8 },
	};
	struct ca_stream *found;
	unsigned taken = 0;

	for (int i = 0; i < 5; i++)
		enter(&names[i], names[i].context, record(i));
	for (int i = 0; i < 5; i++)
		assert_ptr_equal(ca_stream_table_find(&names[i]), record(i));
	while (ca_stream_table_take_of_thread(7, &found)) {
		assert_true(found == record(2) || found == record(3));
		taken++;
	}
	assert_int_equal(taken, 2);
	assert_ptr_equal(ca_stream_table_find(&names[4]), record(4));
	assert_ptr_equal(ca_stream_table_find(&names[0]), record(0));
}

static void
test_a_context_takes_its_streams_along(void **state)
{
	struct ca_stream_name legacy = { CU_STREAM_LEGACY, context(0), 0 }, name;
	struct ca_stream *found;
	unsigned taken = 0;

	enter(&legacy, context(0), record(0));
	for (uintptr_t i = 1; i < 32; i++) {
		name = created(i << 8);
		enter(&name, context((int)(i % 2)), record((int)i));
	}
	while (ca_stream_table_take_of_context(context(0), &found))
		taken++;
	assert_int_equal(taken, 16);
	for (uintptr_t i = 1; i < 32; i++) {
		name = created(i << 8);
		assert_ptr_equal(ca_stream_table_find(&name), i % 2 ? record((int)i) : NULL);
	}
}

static void
test_a_claim_keeps_others_out_until_it_is_decided(void **state)
{
	struct ca_stream_name name = created(0x1000);
	struct ca_stream *found;
	uint64_t first, second;

	assert_int_equal(ca_stream_table_claim(&name, &found, &first), CA_STREAM_CLAIMED);
	assert_int_equal(ca_stream_table_claim(&name, &found, &second), CA_STREAM_BUSY);
	assert_null(ca_stream_table_find(&name));
	ca_stream_table_abandon(&name, first);
	assert_int_equal(ca_stream_table_claim(&name, &found, &second), CA_STREAM_CLAIMED);
	/* the first claim is not the second */
	assert_false(ca_stream_table_enter(&name, first, context(0), record(0)));
	ca_stream_table_abandon(&name, first);
	assert_true(ca_stream_table_enter(&name, second, context(0), record(1)));
	assert_ptr_equal(ca_stream_table_find(&name), record(1));
}

static void
test_a_claim_ends_with_its_thread(void **state)
{
	struct ca_stream_name name = { CU_STREAM_PER_THREAD, context(0), 7 };
	struct ca_stream *found = record(0);
	uint64_t claim;

	assert_int_equal(ca_stream_table_claim(&name, &found, &claim), CA_STREAM_CLAIMED);
	assert_true(ca_stream_table_take_of_thread(7, &found));
	assert_null(found);
	assert_false(ca_stream_table_enter(&name, claim, context(0), record(0)));
}

/* ---- threads */

static _Atomic unsigned opened;

static void *
open_all(void *arg)
{
	for (uintptr_t i = 1; i <= 500; i++) {
		struct ca_stream_name name = created(i << 4);
		enum ca_stream_claim result;
		struct ca_stream *found;
		uint64_t claim;

		while ((result = ca_stream_table_claim(&name, &found, &claim)) == CA_STREAM_BUSY)
			sched_yield();
		if (result == CA_STREAM_CLAIMED) {
			atomic_fetch_add(&opened, 1);
			sched_yield();
			ca_stream_table_enter(&name, claim, context(0), record((int)(i % 32)));
		} else if (result != CA_STREAM_FOUND || found != record((int)(i % 32))) {
			return arg;
		}
	}
	return NULL;
}

static void
test_of_many_threads_one_opens_a_stream(void **state)
{
	pthread_t threads[8];
	void *failed;

	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, open_all, &opened), 0);
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	assert_int_equal(opened, 500);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_an_entered_stream_is_found, empty_table),
		cmocka_unit_test_setup(test_one_that_is_not_tracked_is_found_as_such, empty_table),
		cmocka_unit_test_setup(test_a_handle_that_comes_back_is_another_stream,
				       empty_table),
		cmocka_unit_test_setup(test_default_streams_are_of_their_context_and_thread,
				       empty_table),
		cmocka_unit_test_setup(test_a_context_takes_its_streams_along, empty_table),
		cmocka_unit_test_setup(test_a_claim_keeps_others_out_until_it_is_decided,
				       empty_table),
		cmocka_unit_test_setup(test_a_claim_ends_with_its_thread, empty_table),
		cmocka_unit_test_setup(test_of_many_threads_one_opens_a_stream, empty_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
