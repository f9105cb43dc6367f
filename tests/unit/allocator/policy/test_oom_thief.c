/* SPDX-License-Identifier: MIT */
/* Out of memory beside another thread that takes what is given back: no call goes on for ever, and
 * none that has room is refused. */
#include "tests/unit/allocator/order/fixture.h"

#include <limits.h>
#include <pthread.h>

/* Another thread takes at once what is given back, and gives it to the cache. */
static struct {
	struct ca_driver driver;
	struct fixture f;
	unsigned left, asked; /* times that it does so yet; requests to the driver meanwhile */
	unsigned refused;     /* requests that the driver refuses yet, whatever it has */
	unsigned returned;    /* segments that went back to the driver */
	bool comes_after;     /* each of those */
} thief;
static __thread bool is_thief;

static void *
steal(void *arg)
{
	uint64_t address;

	(void)arg;
	is_thief = true;
	if (!ca_alloc(thief.f.space, 20 * MIB, &address))
		fixture_free(&thief.f, address);
	return NULL;
}

static void
run_thief(void)
{
	pthread_t thread;

	if (!thief.left)
		return;
	thief.left--;
	assert_int_equal(pthread_create(&thread, NULL, steal, NULL), 0);
	pthread_join(thread, NULL);
}

static int
take_behind_thief(void *self, void *context, uint64_t size, uint64_t *ret_address)
{
	if (!is_thief) {
		assert_true(thief.asked++ < 1000);
		run_thief();
	}
	if (!is_thief && thief.refused && thief.refused--)
		return CA_DRIVER_OUT_OF_MEMORY;
	return thief.driver.segment_take(self, context, size, ret_address);
}

static int
return_before_thief(void *self, void *context, uint64_t address)
{
	int r = thief.driver.segment_return(self, context, address);

	thief.returned++;
	if (!is_thief && thief.comes_after)
		run_thief();
	return r;
}

static void
thief_start_on(uint64_t live, unsigned times)
{
	struct fixture *f = &thief.f;

	f->pretend.capacity = 256 * MIB;
	assert_int_equal(ca_model_create(&f->pretend, &f->model), 0);
	ca_model_driver(f->model, &f->driver);
	thief.driver = f->driver;
	f->driver.segment_take = take_behind_thief;
	f->driver.segment_return = return_before_thief;
	assert_int_equal(ca_heap_create(&f->config, &f->driver, &f->heap), 0);
	assert_int_equal(ca_space_create(f->heap, (void *)1, 0, &f->space), 0);
	thief.left = thief.returned = thief.refused = 0;
	thief.comes_after = false;
	fixture_alloc(f, live);
	thief.asked = 0;
	thief.left = times;
}

static void
thief_start(uint64_t live, unsigned times)
{
	fixture_defaults(&thief.f);
	thief_start_on(live, times);
}

static void
test_what_never_fits_is_refused_however_much_others_give_back(void **state)
{
	uint64_t address;

	thief_start(150 * MIB, UINT_MAX);
	assert_int_equal(ca_alloc(thief.f.space, 300 * MIB, &address), CA_DRIVER_OUT_OF_MEMORY);
	assert_int_equal(ca_alloc(thief.f.space, 120 * MIB, &address), CA_DRIVER_OUT_OF_MEMORY);
	assert_int_equal(ca_alloc_passthrough(thief.f.space, 300 * MIB, &address),
			 CA_DRIVER_OUT_OF_MEMORY);
	assert_in_range(thief.asked, 3, 60);
	fixture_stop(&thief.f);
}

static void
test_what_fits_is_not_refused_though_others_are_quicker(void **state)
{
	uint64_t address;

	thief_start(150 * MIB, 100);
	fixture_alloc(&thief.f, 100 * MIB);
	assert_in_range(thief.asked, 100, 110);
	fixture_stop(&thief.f);
	thief_start(150 * MIB, 100);
	assert_int_equal(ca_alloc_passthrough(thief.f.space, 100 * MIB, &address), 0);
	assert_in_range(thief.asked, 100, 110);
	fixture_stop(&thief.f);
}

static void
test_a_round_gives_back_what_there_was_at_its_beginning(void **state)
{
	uint64_t address;

	thief_start(150 * MIB, 10000);
	thief.comes_after = true;
	assert_int_equal(ca_alloc(thief.f.space, 1024 * GIB, &address), CA_DRIVER_OUT_OF_MEMORY);
	assert_in_range(thief.returned, 1, 500);
	fixture_stop(&thief.f);
}

static void
test_what_a_fraction_never_allows_is_refused(void **state)
{
	uint64_t address;

	fixture_defaults(&thief.f);
	thief.f.config.memory_fraction = CA_WHOLE / 10 * 6;
	thief_start_on(60 * MIB, 10000);
	run_thief();
	thief.comes_after = true;
	assert_int_equal(ca_alloc(thief.f.space, 120 * MIB, &address), CA_DRIVER_OUT_OF_MEMORY);
	assert_in_range(thief.returned, 1, 100);
	fixture_stop(&thief.f);
}

/* Another thread may have made room since it was. */
static void
test_the_driver_is_asked_once_more(void **state)
{
	uint64_t address;

	thief_start(150 * MIB, 0);
	thief.refused = 1;
	assert_int_equal(ca_alloc_passthrough(thief.f.space, 80 * MIB, &address), 0);
	fixture_stop(&thief.f);
}

static unsigned
reclaim_behind_thief(uint64_t size)
{
	struct ca_rounds rounds = { 0 };
	unsigned n = 0;

	thief_start(150 * MIB, UINT_MAX);
	run_thief();
	while (n < 1000 && ca_reclaim(thief.f.space, size, &rounds)) {
		run_thief();
		n++;
	}
	fixture_stop(&thief.f);
	return n;
}

static void
test_room_for_other_calls_is_not_made_for_ever(void **state)
{
	assert_in_range(reclaim_behind_thief(300 * MIB), 1, 20);
	assert_in_range(reclaim_behind_thief(0), 100, 600); /* how much is not known */
	assert_int_equal(reclaim_behind_thief(100 * MIB), 1000);
}

/* A call of unknown size, for which the device was waited for until now. */
static void
test_a_late_call_gets_all_that_is_cached(void **state)
{
	enum { SEGMENTS_OF_LARGE = 2000 }; /* 40 GiB */
	static uint64_t address[SEGMENTS_OF_LARGE];
	struct fixture f;
	struct ca_rounds rounds = { .n = 1 };
	unsigned i;

	fixture_defaults(&f);
	f.pretend.capacity = 64 * GIB;
	fixture_start(&f);
	for (i = 0; i < SEGMENTS_OF_LARGE; i++)
		address[i] = fixture_alloc(&f, 20 * MIB);
	for (i = 0; i < SEGMENTS_OF_LARGE; i++)
		fixture_free(&f, address[i]);
	rounds.since_ns = f.driver.clock_ns(f.driver.self) - (uint64_t)11e9;
	for (i = 0; i < 100 && ca_reclaim(f.space, 0, &rounds); i++)
		;
	assert_int_equal(fixture_stats(&f).reserved_bytes.current, 0);
	assert_in_range(i, 1, 10);
	fixture_stop(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_never_fits_is_refused_however_much_others_give_back),
		cmocka_unit_test(test_what_fits_is_not_refused_though_others_are_quicker),
		cmocka_unit_test(test_a_round_gives_back_what_there_was_at_its_beginning),
		cmocka_unit_test(test_what_a_fraction_never_allows_is_refused),
		cmocka_unit_test(test_the_driver_is_asked_once_more),
		cmocka_unit_test(test_room_for_other_calls_is_not_made_for_ever),
		cmocka_unit_test(test_a_late_call_gets_all_that_is_cached),
	};

	return cmocka_run_group_tests_name("allocator-oom-thief", tests, NULL, NULL);
}
