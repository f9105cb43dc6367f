/* SPDX-License-Identifier: MIT */
/*
 * One range of addresses, against a record of what is mapped where and who may still use which
 * bytes of which handle.
 */
#include "allocator/range/range.h"
#include "tests/unit/allocator/fixture.h"

#define MIB ((uint64_t)1 << 20)
#define GRAIN CA_RANGE_PAGE

enum {
	PLACES = 4096,
	USES = 4096,
	BLOCKS = 200,
};

/* A handle, at one of the places where it is mapped. */
struct at {
	uint64_t address, bytes;
	unsigned handle; /* number, from 1 */
};

/* Work up to `stamp` may use those bytes of the handle. */
struct use {
	unsigned handle, user;
	uint64_t low, high; /* bytes of the handle */
	uint64_t place;     /* address where the handle was mapped for it */
	uint64_t stamp;
};

static struct ca_arena arena;
static struct ca_range *range;
static struct at places[PLACES];
static struct use uses[USES];
static unsigned n_places, n_uses, n_handles;
static uint64_t done[CA_RANGE_USERS]; /* stamps finished, by user */
/* [user][owner]: work of the user comes after the owner's up to that stamp */
static uint64_t guarded[CA_RANGE_USERS][CA_RANGE_USERS];
static bool guards;
static struct ca_range_step last; /* the last step */

static bool
is_finished(void *arg, unsigned user, uint64_t stamp)
{
	return stamp <= done[user];
}

static struct at *
place_of(uint64_t address)
{
	for (unsigned i = 0; i < n_places; i++)
		if (address - places[i].address < places[i].bytes)
			return &places[i];
	return NULL;
}

static void
map(uint64_t address, uint64_t bytes, unsigned handle)
{
	for (uint64_t at = address; at < address + bytes; at += GRAIN)
		assert_null(place_of(at));
	assert_true(address % GRAIN == 0 && n_places < PLACES);
	places[n_places++] = (struct at){ address, bytes, handle };
}

/* Nothing that is not finished may use it where it is unmapped. */
static void
unmap(const struct ca_range_step *step)
{
	struct at *place = place_of(step->from);

	assert_non_null(place);
	assert_true(place->address == step->from && place->bytes == step->bytes);
	for (unsigned i = 0; i < n_uses; i++)
		assert_true(uses[i].place != step->from || uses[i].stamp <= done[uses[i].user]);
	*place = places[--n_places];
}

/* Whatever the owner's work came after, the user's comes after, too. */
static void
guard_note(unsigned user, unsigned owner, uint64_t stamp)
{
	uint64_t *to = guarded[user];

	to[owner] = stamp > to[owner] ? stamp : to[owner];
	for (unsigned i = 0; i < CA_RANGE_USERS; i++)
		if (guarded[owner][i] > to[i] && i != user)
			to[i] = guarded[owner][i];
}

static void
hear(void *arg, const struct ca_range_step *step)
{
	last = *step;
	switch (step->kind) {
	case CA_RANGE_CREATE:
		map(step->to, step->bytes, ++n_handles);
		break;
	case CA_RANGE_MOVE:
		assert_non_null(place_of(step->from));
		assert_true(place_of(step->from)->bytes == step->bytes);
		map(step->to, step->bytes, place_of(step->from)->handle);
		break;
	case CA_RANGE_GUARD:
		assert_true(guards);
		guard_note(step->user, step->owner, step->stamp);
		break;
	case CA_RANGE_UNMAP:
	case CA_RANGE_RETURN:
		unmap(step);
		break;
	}
}

static void
begin(uint64_t capacity, uint64_t large_from, unsigned slack_percent)
{
	struct ca_range_config config = { .capacity = capacity,
					  .large_from = large_from,
					  .guards = guards,
					  .slack_percent = slack_percent,
					  .is_finished = is_finished,
					  .step = hear };

	n_places = n_uses = n_handles = 0;
	memset(done, 0, sizeof(done));
	memset(guarded, 0, sizeof(guarded));
	range = ca_range_new(&arena, &config);
	assert_non_null(range);
}

static int
end(void **state)
{
	ca_arena_destroy(&arena);
	guards = false;
	return 0;
}

static struct ca_range_sums
sums(void)
{
	struct ca_range_sums now;
	const char *wrong = ca_range_check(range);

	if (wrong)
		print_message("%s\n", wrong);
	assert_null(wrong);
	ca_range_look(range, &now);
	return now;
}

/* All of it is mapped, and nobody else may be using it. */
static void
bytes_check(uint64_t address, uint64_t bytes, unsigned user)
{
	for (uint64_t at = address; at < address + bytes;) {
		const struct at *place = place_of(at);
		uint64_t stop;

		assert_non_null(place);
		stop = place->address + place->bytes;
		stop = stop < address + bytes ? stop : address + bytes;
		for (unsigned i = 0; i < n_uses; i++)
			assert_true(uses[i].handle != place->handle || uses[i].user == user ||
				    uses[i].stamp <= done[uses[i].user] ||
				    uses[i].stamp <= guarded[user][uses[i].user] ||
				    uses[i].low >= stop - place->address ||
				    uses[i].high <= at - place->address);
		at = stop;
	}
}

static uint64_t
must_alloc(uint64_t bytes, unsigned user)
{
	uint64_t address = 0;

	assert_int_equal(ca_range_alloc(range, bytes, user, &address), 0);
	bytes_check(address, bytes, user);
	sums();
	return address;
}

static void
use_note(uint64_t address, uint64_t bytes, unsigned user, uint64_t stamp)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < n_uses; i++)
		if (uses[i].stamp > done[uses[i].user])
			uses[kept++] = uses[i];
	n_uses = kept;
	for (uint64_t at = address; at < address + bytes;) {
		const struct at *place = place_of(at);
		uint64_t stop = place->address + place->bytes;

		stop = stop < address + bytes ? stop : address + bytes;
		assert_true(n_uses < USES);
		uses[n_uses++] =
			(struct use){ place->handle,         user,           at - place->address,
				      stop - place->address, place->address, stamp };
		at = stop;
	}
}

static void
must_free(uint64_t address, uint64_t bytes, unsigned user, uint64_t stamp)
{
	if (user != CA_RANGE_NOBODY)
		use_note(address, bytes, user, stamp);
	assert_int_equal(ca_range_free(range, address, user, stamp), 0);
	sums();
}

/* ------------------------------------------------------------- placement --- */
static void
test_maps_what_is_needed(void **state)
{
	uint64_t a, b;

	begin(1024 * MIB, 512 * MIB, 4);
	a = must_alloc(3 * MIB, 0);
	assert_int_equal(sums().mapped_bytes, 4 * MIB);
	b = must_alloc(MIB + 512, 0); /* less than what is left: partly */
	assert_true(b == a + 3 * MIB);
	assert_int_equal(sums().mapped_bytes, 6 * MIB);
	must_alloc(MIB, 0); /* small ones lie apart */
	assert_int_equal(sums().mapped_bytes, 8 * MIB);
	must_free(a, 3 * MIB, 0, 1);
	assert_true(must_alloc(2 * MIB, 0) == a);
	assert_int_equal(sums().mapped_bytes, 8 * MIB);
	assert_int_equal(ca_range_free(range, a + 512, 0, 1), -ENOENT);
}

static void
test_large_handles(void **state)
{
	begin(4096 * MIB, 64 * MIB, 4);
	must_alloc(40 * MIB, 0);
	assert_int_equal(sums().steps[CA_RANGE_CREATE], 20);
	must_alloc(40 * MIB, 0); /* the grid: 40 to 60, 60 to 80 */
	assert_int_equal(sums().steps[CA_RANGE_CREATE], 22);
	assert_int_equal(last.bytes, 20 * MIB);
}

/* Below the slack the range grows; beyond it what is free moves. */
static void
test_slack(void **state)
{
	uint64_t block[100];

	begin(4096 * MIB, 4096 * MIB, 4);
	for (unsigned i = 0; i < 100; i++)
		block[i] = must_alloc(4 * MIB, 0);
	for (unsigned i = 0; i < 100; i += 2)
		must_free(block[i], 4 * MIB, CA_RANGE_NOBODY, 0);
	must_alloc(12 * MIB, 0); /* 400 MiB and 4 %: no hole is so large */
	assert_int_equal(sums().steps[CA_RANGE_MOVE], 0);
	assert_int_equal(sums().mapped_bytes, 412 * MIB);
	must_alloc(16 * MIB, 0);
	assert_int_equal(sums().mapped_bytes, 416 * MIB);
	assert_int_equal(sums().steps[CA_RANGE_MOVE], sums().steps[CA_RANGE_UNMAP]);
	assert_true(sums().steps[CA_RANGE_MOVE] > 0);
	assert_int_equal(sums().steps[CA_RANGE_RETURN], 0);
	must_alloc(16 * MIB, 0);
	assert_int_equal(sums().mapped_bytes, 416 * MIB);
}

/* ------------------------------------------------------------------ users --- */
static void
test_other_users_wait(void **state)
{
	uint64_t a;

	begin(1024 * MIB, 1024 * MIB, 4);
	must_alloc(2 * MIB, 1);
	a = must_alloc(2 * MIB, 0);
	must_free(a, 2 * MIB, 0, 5);
	assert_true(must_alloc(2 * MIB, 1) != a);
	assert_true(must_alloc(2 * MIB, 0) == a);
	must_free(a, 2 * MIB, 0, 6);
	done[0] = 6;
	assert_true(must_alloc(2 * MIB, 1) == a);
}

/* Its only user takes the memory along; the old place stays until the work is done. */
static void
test_moves_early(void **state)
{
	uint64_t a, b;

	begin(16 * MIB, 1024 * MIB, 0);
	a = must_alloc(4 * MIB, 0);
	must_alloc(4 * MIB, 0);
	b = must_alloc(4 * MIB, 0);
	must_alloc(4 * MIB, 0);
	must_free(a, 4 * MIB, 0, 3);
	must_free(b, 4 * MIB, 0, 4);
	must_alloc(8 * MIB, 0);
	assert_int_equal(sums().mapped_bytes, 16 * MIB);
	assert_int_equal(sums().steps[CA_RANGE_UNMAP], 0);
	assert_true(last.kind == CA_RANGE_MOVE && last.early);
	done[0] = 3;
	ca_range_poll(range);
	assert_true(sums().steps[CA_RANGE_UNMAP] < sums().steps[CA_RANGE_MOVE]);
	done[0] = 4;
	ca_range_poll(range);
	assert_int_equal(sums().steps[CA_RANGE_UNMAP], sums().steps[CA_RANGE_MOVE]);
}

/* The rest of memory that moved is that user's, too. */
static void
test_rest_of_what_moved_early(void **state)
{
	uint64_t a, b, unused;

	begin(8 * MIB, 1024 * MIB, 0);
	a = must_alloc(2 * MIB, 0);
	must_alloc(2 * MIB, 1);
	b = must_alloc(2 * MIB, 0);
	must_alloc(2 * MIB, 1);
	must_free(a, 2 * MIB, 0, 3);
	must_free(b, 2 * MIB, 0, 4);
	must_alloc(5 * MIB / 2, 0);
	assert_true(last.kind == CA_RANGE_MOVE && last.early);
	assert_int_equal(ca_range_alloc(range, 5 * MIB / 4, 1, &unused), CA_RANGE_FULL);
	done[0] = 4;
	must_alloc(5 * MIB / 4, 1);
}

/* Beyond the slack others' memory will do, behind a wait. */
static void
test_guards(void **state)
{
	uint64_t a, b;

	guards = true;
	begin(1024 * MIB, 1024 * MIB, 5);
	a = must_alloc(20 * MIB, 0);
	must_alloc(20 * MIB, 1);
	b = must_alloc(2 * MIB, 0);
	must_free(a, 20 * MIB, 0, 7);
	must_free(b, 2 * MIB, 0, 8);
	must_alloc(2 * MIB, 1); /* 44 of 44.1 MiB */
	assert_int_equal(sums().steps[CA_RANGE_GUARD], 0);
	assert_true(must_alloc(4 * MIB, 1) == a);
	assert_int_equal(sums().steps[CA_RANGE_GUARD], 1);
	assert_true(last.kind == CA_RANGE_GUARD && last.user == 1 && last.owner == 0 &&
		    last.stamp == 7);
	done[0] = 8;
	must_alloc(4 * MIB, 1);
	assert_int_equal(sums().steps[CA_RANGE_GUARD], 1);
}

static void
test_does_not_move_from_another(void **state)
{
	uint64_t a, b, unused;

	begin(16 * MIB, 1024 * MIB, 0);
	a = must_alloc(4 * MIB, 0);
	must_alloc(4 * MIB, 1);
	b = must_alloc(4 * MIB, 0);
	must_alloc(4 * MIB, 1);
	must_free(a, 4 * MIB, 0, 3);
	must_free(b, 4 * MIB, 0, 4);
	assert_int_equal(ca_range_alloc(range, 8 * MIB, 1, &unused), CA_RANGE_FULL);
	done[0] = 4;
	must_alloc(8 * MIB, 1);
	assert_int_equal(sums().mapped_bytes, 16 * MIB);
}

/* --------------------------------------------------------- end of memory --- */
/* A refused request changes nothing. */
static void
test_full(void **state)
{
	struct ca_range_sums before, after;
	uint64_t a, unused;

	begin(16 * MIB, 1024 * MIB, 4);
	a = must_alloc(4 * MIB, 0);
	must_alloc(8 * MIB, 0);
	must_free(a, 4 * MIB, 0, 1);
	before = sums();
	assert_int_equal(ca_range_alloc(range, 10 * MIB, 0, &unused), CA_RANGE_FULL);
	assert_int_equal(ca_range_alloc(range, UINT64_MAX, 0, &unused), CA_RANGE_FULL);
	after = sums();
	assert_memory_equal(&before, &after, sizeof(before));
	must_alloc(8 * MIB, 0);
	assert_int_equal(sums().mapped_bytes, 16 * MIB);
}

/* Large handles go back, and small ones are made. */
static void
test_large_handles_go_back(void **state)
{
	uint64_t a;

	begin(200 * MIB, 0, 0);
	a = must_alloc(60 * MIB, 0);
	assert_int_equal(sums().steps[CA_RANGE_CREATE], 3);
	must_alloc(120 * MIB, 0);
	must_free(a, 60 * MIB, CA_RANGE_NOBODY, 0);
	must_alloc(78 * MIB, 0);
	assert_true(sums().mapped_bytes <= 200 * MIB);
}

/* ----------------------------------------------------------------- random --- */
/* The user's work up to there has ended, and all that it came after. */
static void
finish(unsigned user, uint64_t until)
{
	if (until <= done[user])
		return;
	done[user] = until;
	for (unsigned owner = 0; owner < CA_RANGE_USERS; owner++)
		finish(owner, guarded[user][owner]);
}

static void
test_random(void **state)
{
	uint64_t seed = fixture_seed(88172645463325252u), stamp[CA_RANGE_USERS] = { 0 };
	struct {
		uint64_t address, bytes;
		unsigned user;
	} block[BLOCKS] = { 0 };
	unsigned full = 0;

	guards = *state != NULL;
	begin(256 * MIB, 64 * MIB, 4);
	for (unsigned step = 0; step < 4000; step++) {
		unsigned i = (unsigned)(fixture_random(&seed) % BLOCKS),
			 user = (unsigned)(fixture_random(&seed) % (step < 1000 ? 1 : 3));
		uint64_t bytes = 1 + fixture_random(&seed) %
					     (fixture_random(&seed) % 4 ? 4 * MIB : 40 * MIB);

		if (fixture_random(&seed) % 8 == 0) {
			uint64_t until =
				stamp[user] - fixture_random(&seed) % (stamp[user] / 4 + 1);

			finish(user, until);
			ca_range_poll(range);
		} else if (block[i].bytes) {
			must_free(block[i].address, block[i].bytes, block[i].user,
				  ++stamp[block[i].user]);
			block[i].bytes = 0;
		} else if (ca_range_alloc(range, bytes, user, &block[i].address)) {
			full++;
		} else {
			bytes_check(block[i].address, bytes, user);
			block[i].bytes = bytes;
			block[i].user = user;
		}
		assert_true(sums().mapped_bytes <= 256 * MIB);
	}
	assert_true(full > 0 && sums().steps[CA_RANGE_MOVE] > 0);
	assert_int_equal(guards, sums().steps[CA_RANGE_GUARD] > 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_maps_what_is_needed, end),
		cmocka_unit_test_teardown(test_large_handles, end),
		cmocka_unit_test_teardown(test_slack, end),
		cmocka_unit_test_teardown(test_other_users_wait, end),
		cmocka_unit_test_teardown(test_moves_early, end),
		cmocka_unit_test_teardown(test_rest_of_what_moved_early, end),
		cmocka_unit_test_teardown(test_does_not_move_from_another, end),
		cmocka_unit_test_teardown(test_full, end),
		cmocka_unit_test_teardown(test_large_handles_go_back, end),
		cmocka_unit_test_teardown(test_guards, end),
		cmocka_unit_test_teardown(test_random, end),
		{ "test_random with guards", test_random, NULL, end, &guards },
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
