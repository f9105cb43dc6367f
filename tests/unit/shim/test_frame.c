/* SPDX-License-Identifier: MIT */
/* shim/frame.c finds the callers that really called, through frames of every make. */
#include "shim/frame.h"

#include <alloca.h>
#include <stdlib.h>
#include <string.h>

#include "shim/object.h"
#include "tests/unit/shim/check.h"

#define APART __attribute__((noinline, noclone, optimize("no-optimize-sibling-calls")))
#ifdef __clang__
#undef APART
#define APART __attribute__((noinline, disable_tail_calls))
#endif

enum { DEPTH = 6 };

static uintptr_t expected[DEPTH]; /* return addresses, innermost first */
static uintptr_t found[DEPTH];
static uint64_t generation;

#define NOTE(i) (expected[i] = (uintptr_t)__builtin_return_address(0))

/* Where a hook stands. */
static APART void
hook(void)
{
	struct ca_frame frame = CA_FRAME_OF_CALLER();

	NOTE(0);
	found[0] = frame.pc;
	for (int i = 1; i < DEPTH; i++)
		found[i] = ca_frame_up(&frame, generation) ? frame.pc : 0;
}

static APART int
compare(const void *a, const void *b)
{
	NOTE(1);
	hook();
	return *(const int *)a - *(const int *)b;
}

/* Through libc's own code, which has no frame pointers. */
static APART void
through_libc(void)
{
	int two[2] = { 2, 1 };

	qsort(two, 2, sizeof(two[0]), compare);
	__asm__ volatile("" ::: "memory");
}

static void
test_every_caller_is_found_through_libc(void **state)
{
	for (generation = 0; generation < 3; generation++) {
		memset(found, 0, sizeof(found));
		through_libc();
		assert_int_equal(found[0], expected[0]);
		assert_int_equal(found[1], expected[1]);
	}
}

static volatile size_t variable = 300;

static APART void
with_alloca(int depth)
{
	/* cppcheck-suppress allocaCalled ; a frame whose size the compiler does not know */
	char *bytes = alloca(variable * (unsigned)depth + 16);

	NOTE(depth);
	memset(bytes, 1, 16);
	if (depth > 1)
		with_alloca(depth - 1);
	else
		hook();
	__asm__ volatile("" : : "r"(bytes) : "memory");
}

static APART void
with_array(void)
{
	volatile char bytes[5000];

	NOTE(4);
	bytes[4999] = 1;
	with_alloca(3);
	bytes[0] = bytes[4999];
}

static void
test_every_caller_is_found_in_frames_of_any_size(void **state)
{
	for (generation = 7; generation < 9; generation++) {
		memset(found, 0, sizeof(found));
		with_array();
		assert_memory_equal(found, expected, 5 * sizeof(found[0]));
	}
}

/* No object holds it. */
static void
test_an_unknown_place_is_no_caller(void **state)
{
	struct ca_frame frame = { .pc = 8, .sp = (uintptr_t)&frame }, before = frame;

	assert_false(ca_frame_up(&frame, 1));
	assert_false(ca_frame_up(&frame, 1));
	assert_memory_equal(&frame, &before, sizeof(frame));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_caller_is_found_through_libc),
		cmocka_unit_test(test_every_caller_is_found_in_frames_of_any_size),
		cmocka_unit_test(test_an_unknown_place_is_no_caller),
	};

	return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}
