/* SPDX-License-Identifier: MIT */
/*
 * No call of the heap reaches malloc, free or stdio, nor changes errno. malloc and its family are
 * defined here, in the program, so that calls from the C library itself are seen as well.
 * Sanitizers bring their own malloc: there only the wrapped link-time references would be seen, so
 * the test skips itself.
 */
#include "tests/unit/allocator/fixture.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "allocator/trace/trace.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
	__has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifndef SANITIZED
static volatile int forbidden;
static volatile int seen;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *pointer, size_t size);
void __libc_free(void *pointer);

static void
look(void)
{
	if (forbidden)
		seen++;
}

void *
malloc(size_t size)
{
	look();
	return __libc_malloc(size);
}

void *
calloc(size_t nmemb, size_t size)
{
	look();
	return __libc_calloc(nmemb, size);
}

void *
realloc(void *ptr, size_t size)
{
	look();
	return __libc_realloc(ptr, size);
}

void
free(void *ptr)
{
	look();
	__libc_free(ptr);
}

/* Makes a trace, too, if it has a name. */
static void
check_no_malloc(const char *trace)
{
	static uint64_t held[400];
	void *volatile probe; /* or else the compiler drops the pair of calls */
	struct ca_block_info info;
	struct ca_stats stats;
	struct ca_trace_start start = { .pattern = trace };
	struct ca_tracer *tracer = NULL;
	struct fixture f;
	char reason[64];
	uint64_t seed = 5;
	int i, bad = 0;

	memset(held, 0, sizeof(held));
	fixture_defaults(&f);
	f.pretend.capacity = 700 * MIB;
	fixture_start(&f);
	/* the counter itself works */
	forbidden = 1;
	probe = malloc(1);
	free(probe);
	assert_int_equal(seen, 2);
	seen = 0;
	errno = 77;
	if (trace) {
		ca_model_driver(f.model, &start.clock);
		bad += ca_tracer_open(&start, &tracer) != 0;
		ca_heap_set_tracer(f.heap, tracer);
	}
	for (i = 0; i < 4000; i++) {
		uint64_t *place = &held[fixture_random(&seed) % 400];

		if (*place) {
			bad += ca_free(f.heap, *place) != 0;
			*place = 0;
			ca_model_submit(f.model);
		} else if (ca_alloc(f.space, 1 + fixture_random(&seed) % (20 * MIB), place)) {
			*place = 0;
		}
		ca_lookup(f.heap, *place, &info);
		if (tracer && ca_tracer_is_due(tracer))
			ca_tracer_drain(tracer);
	}
	ca_heap_stats(f.heap, 0, &stats);
	ca_trim(f.heap, 0);
	ca_reclaim(f.space, MIB, NULL);
	bad += ca_heap_check(f.heap, reason, sizeof(reason)) != 0;
	ca_space_kill(f.space);
	if (tracer)
		ca_tracer_close(tracer);
	bad += errno != 77;
	forbidden = 0;
	assert_int_equal(seen, 0);
	assert_int_equal(bad, 0);
	assert_true(stats.ooms > 0);
	fixture_stop(&f);
}

static void
test_no_malloc(void **state)
{
	check_no_malloc(NULL);
}

static void
test_no_malloc_in_a_trace(void **state)
{
	char folder[] = "/tmp/ca-no-malloc-XXXXXX", name[64];

	assert_non_null(mkdtemp(folder));
	snprintf(name, sizeof(name), "%s/t.trace", folder);
	check_no_malloc(name);
	assert_int_equal(unlink(name), 0);
	rmdir(folder);
}
#else
static void
test_no_malloc(void **state)
{
	skip();
}

static void
test_no_malloc_in_a_trace(void **state)
{
	skip();
}
#endif

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_malloc),
		cmocka_unit_test(test_no_malloc_in_a_trace),
	};

	return cmocka_run_group_tests_name("allocator-no-malloc", tests, NULL, NULL);
}
