/* SPDX-License-Identifier: MIT */
/* Handles of events that come back while their first bearer is still in use. */
#include "tests/unit/shim/check.h"

#include "shim/track/events.h"

/* Of the order tracker only the count is of interest: a record teaches while it is 0. */
uint64_t
ca_event_record_begin(struct ca_event *event, struct ca_stream *stream)
{
	atomic_fetch_add(&event->recording, 1);
	return 2;
}

void
ca_event_record_end(struct ca_event *event, uint64_t sequence, bool done)
{
	atomic_fetch_sub(&event->recording, 1);
}

void
ca_event_forget(struct ca_event *event)
{
}

void
ca_event_waited(struct ca_event *event, uint64_t sequence, struct ca_stream *stream)
{
}

void
ca_event_finished(struct ca_event *event, uint64_t sequence)
{
}

static CUevent
handle(uintptr_t i)
{
	return (CUevent)(i * 64);
}

/* Others that record the event now. */
static unsigned
recording(CUevent event)
{
	struct ca_events_use use;
	unsigned n;

	ca_events_record_begin(&use, event, NULL);
	assert_non_null(use.event);
	n = atomic_load(&use.event->recording) - 1;
	ca_events_record_end(&use, true);
	return n;
}

static void
test_a_record_is_held_to_the_end(void **state)
{
	struct ca_events_use use;

	ca_events_created(handle(1), NULL, 0);
	ca_events_forget_begin(&use, handle(1));
	assert_int_equal(recording(handle(1)), 1);
	ca_events_forget_end(&use);
	assert_int_equal(recording(handle(1)), 0);
}

/* By another thread, during the driver's call; another event gets the record meanwhile. */
static void
test_the_handle_comes_back_meanwhile(void **state)
{
	struct ca_events_use use;

	ca_events_created(handle(2), NULL, 0);
	ca_events_forget_begin(&use, handle(2));
	ca_events_destroyed(handle(2));
	ca_events_created(handle(3), NULL, 0);
	ca_events_created(handle(2), NULL, 0);
	assert_int_equal(recording(handle(3)), 1);
	assert_int_equal(recording(handle(2)), 0);
	ca_events_forget_end(&use);
	assert_int_equal(recording(handle(3)), 0);
	assert_int_equal(recording(handle(2)), 0);
}

static void
test_an_event_that_nobody_knows(void **state)
{
	struct ca_events_use use;

	ca_events_forget_begin(&use, handle(4));
	ca_events_created(handle(4), NULL, 0);
	ca_events_forget_end(&use);
	assert_int_equal(recording(handle(4)), 0);
	ca_events_forget_begin(&use, NULL);
	ca_events_forget_end(&use);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_record_is_held_to_the_end),
		cmocka_unit_test(test_the_handle_comes_back_meanwhile),
		cmocka_unit_test(test_an_event_that_nobody_knows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
