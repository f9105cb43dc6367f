/* SPDX-License-Identifier: MIT */
/*
 * The arena, and the heap when the kernel gives no memory: mmap is wrapped at link time and fails
 * from the n-th call on, n = 1, 2, ... until a whole run meets no failure. Nothing may be lost or
 * half entered.
 */
#include "allocator/core/types.h"
#include "tests/unit/allocator/fixture.h"
#include "tests/unit/allocator/util/resident.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

static unsigned fail_from; /* calls until every mmap fails; 0: never */
static unsigned failures;

void *__real_mmap64(void *address, size_t length, int protection, int flags, int fd,
		    off64_t offset);
void *__wrap_mmap64(void *address, size_t length, int protection, int flags, int fd,
		    off64_t offset);
void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);

static bool
fails(void)
{
	if (!fail_from || --fail_from)
		return false;
	fail_from = 1;
	failures++;
	errno = ENOMEM;
	return true;
}

void *
__wrap_mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
{
	return fails() ? MAP_FAILED : __real_mmap64(address, length, protection, flags, fd, offset);
}

void *
__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	return fails() ? MAP_FAILED : __real_mmap(address, length, protection, flags, fd, offset);
}

static void
test_objects(void **state)
{
	struct ca_arena arena = { 0 };
	struct ca_objects objects;
	unsigned char *a, *b;
	int i;

	ca_objects_init(&objects, &arena, 40);
	a = ca_objects_get(&objects);
	b = ca_objects_get(&objects);
	assert_true(a && b && a != b);
	assert_int_equal((uintptr_t)a % 16, 0);
	memset(a, 0xff, 40);
	ca_objects_put(&objects, a);
	ca_objects_put(&objects, NULL);
	assert_int_equal(objects.used, 1);
	assert_ptr_equal(ca_objects_get(&objects), a);
	for (i = 0; i < 40; i++)
		assert_int_equal(a[i], 0);
	assert_non_null(ca_arena_alloc(&arena, 1 << 20)); /* larger than a chunk */
	errno = 77;
	fail_from = 1;
	assert_null(ca_arena_alloc(&arena, 1 << 20));
	assert_int_equal(errno, 77);
	fail_from = 0;
	ca_arena_destroy(&arena);
}

static void
test_reserved_records_come_when_there_is_no_memory(void **state)
{
	struct ca_arena arena = { 0 };
	struct ca_slabs slabs;
	void *record = NULL;
	int i;

	ca_slabs_init(&slabs, &arena, 112, 0, 112);
	assert_true(ca_slabs_reserve(&slabs, 20000));
	fail_from = 1;
	for (i = 0; i < 20000; i++) {
		record = ca_slabs_get(&slabs);
		assert_non_null(record);
		memset(record, 0xff, 112); /* it is nobody else's */
	}
	assert_false(ca_slabs_reserve(&slabs, 50000));
	ca_slabs_put(&slabs, record);
	assert_ptr_equal(ca_slabs_get(&slabs), record);
	for (i = 0; i < 112; i++)
		assert_int_equal(((unsigned char *)record)[i], 0);
	fail_from = 0;
	ca_arena_destroy(&arena);
}

enum { MOST = 1000000 };
static uint64_t live[MOST];

static uint64_t
size_even(uint64_t *seed)
{
	return 4096 + fixture_random(seed) % 8 * 512;
}

static uint64_t
size_mixed(uint64_t *seed) /* 512 bytes to 1 MiB, each power of two as often */
{
	uint64_t power = (uint64_t)512 << fixture_random(seed) % 11;

	return power + fixture_random(seed) % power;
}

static uint64_t
size_large(uint64_t *seed)
{
	return 1 * MIB + fixture_random(seed) % (8 * MIB);
}

/* Bytes of records for each of so many live blocks; then every fourth is freed: for each of those
 * that were. */
static void
cost_of(unsigned n, uint64_t (*size)(uint64_t *seed), uint64_t *ret_live, uint64_t *ret_holes)
{
	uint64_t seed = 1;
	struct fixture f;
	unsigned i;

	fixture_defaults(&f);
	f.pretend.capacity = GIB << 20;
	fixture_start(&f);
	for (i = 0; i < n; i++)
		assert_int_equal(ca_alloc(f.space, size(&seed), &live[i]), 0);
	*ret_live = resident_bytes(&f.heap->records) / n;
	for (i = 0; i < n; i += 4) /* the holes have places in the trees */
		assert_int_equal(ca_free(f.heap, live[i]), 0);
	ca_trim(f.heap, 0);
	*ret_holes = resident_bytes(&f.heap->records) / n;
	fixture_stop(&f);
}

static void
test_what_a_live_block_costs(void **state)
{
	static const struct {
		const char *of;
		uint64_t (*size)(uint64_t *seed);
		unsigned n;
		unsigned live, holes; /* at most */
	} cases[] = {
		{ "4 to 8 KiB", size_even, 1000, 192,
		  220 }, /* a sparse table, records apart, and some pages are hardly used */
		{ "4 to 8 KiB", size_even, 10000, 136, 170 },
		{ "4 to 8 KiB", size_even, 57400, 128, 160 }, /* the table has just grown */
		{ "4 to 8 KiB", size_even, 100000, 128, 150 },
		{ "4 to 8 KiB", size_even, MOST, 128, 150 },
		{ "512 B to 1 MiB", size_mixed, 100000, 150, 180 }, /* 7,000 segments */
		{ "1 to 9 MiB", size_large, 10000, 420, 420 },      /* 3,000 segments */
	};
	uint64_t cost, holes;
	unsigned i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cost_of(cases[i].n, cases[i].size, &cost, &holes);
		printf("# %u blocks of %s: %lu bytes each, %lu with every fourth free\n",
		       cases[i].n, cases[i].of, (unsigned long)cost, (unsigned long)holes);
		assert_in_range(cost, sizeof(struct ca_block), cases[i].live);
		assert_in_range(holes, sizeof(struct ca_block), cases[i].holes);
	}
}

static void
run(struct fixture *f)
{
	static uint64_t held[600];
	uint64_t address;
	unsigned i;
	int r;

	for (i = 0; i < 600; i++) {
		held[i] = 0;
		r = ca_alloc(f->space, i % 3 ? 3000 : 3 * MIB, &address);
		assert_true(r == 0 || r == -ENOMEM);
		if (!r)
			held[i] = address;
		if (i % 64 == 0)
			fixture_check(f);
	}
	for (i = 0; i < 600; i++)
		if (held[i] && i % 2)
			assert_int_equal(ca_free(f->heap, held[i]),
					 0); /* a free never fails for want of records */
	fixture_check(f);
	for (i = 0; i < 600; i++)
		if (held[i] && !(i % 2))
			assert_int_equal(ca_free(f->heap, held[i]), 0);
	fixture_check(f);
	fail_from = 0;
	while (ca_reclaim(f->space, GIB, NULL))
		;
	fixture_check(f);
	assert_int_equal(fixture_sums(f).held_bytes, 0);
	assert_int_equal(fixture_sums(f).marks, 0);
}

static void
test_heap_without_memory(void **state)
{
	unsigned n, reached = 0;

	for (n = 1;; n++) {
		struct fixture f;

		fixture_defaults(&f);
		fixture_start(&f);
		failures = 0;
		fail_from = n;
		run(&f);
		fail_from = 0;
		fixture_stop(&f);
		reached += failures > 0;
		if (!failures)
			break;
	}
	printf("# mmap: %u runs with a failure\n", reached);
	assert_true(reached >= 2);
}

static void
test_create_without_memory(void **state)
{
	struct ca_heap *heap = NULL;
	struct fixture f;

	fixture_defaults(&f);
	assert_int_equal(ca_model_create(&f.pretend, &f.model), 0);
	ca_model_driver(f.model, &f.driver);
	fail_from = 1;
	assert_int_equal(ca_heap_create(&f.config, &f.driver, &heap), -ENOMEM);
	fail_from = 0;
	assert_null(heap);
	ca_model_destroy(f.model);
}

struct heirs {
	struct fixture f;
	uint64_t given[4]; /* in another context */
};

static void *
leave_a_magazine(void *arg)
{
	struct heirs *heirs = arg;
	uint64_t address;

	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(ca_alloc(heirs->f.space, 4096, &address), 0);
		assert_int_equal(ca_free(heirs->f.heap, address), 0);
	}
	return NULL;
}

static void *
inherit_it_without_memory(void *arg)
{
	struct heirs *heirs = arg;

	fail_from = 1;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(ca_free(heirs->f.heap, heirs->given[i]), 0);
	fail_from = 0;
	return NULL;
}

/* The magazine of a thread that has ended has no place for the space, and there is none to be had.
 */
static void
test_a_magazine_that_gets_no_shelf(void **state)
{
	struct ca_space *other;
	char reason[128];
	struct heirs heirs;
	pthread_t thread;

	fixture_defaults(&heirs.f);
	fixture_start(&heirs.f);
	assert_int_equal(ca_space_create(heirs.f.heap, (void *)2, 1, &other), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(ca_alloc(other, 4096, &heirs.given[i]), 0);
	assert_int_equal(pthread_create(&thread, NULL, leave_a_magazine, &heirs), 0);
	pthread_join(thread, NULL);
	while (heirs.f.heap->fixed.free_bytes >= 512)
		ca_arena_alloc(&heirs.f.heap->fixed, 512);
	failures = 0;
	assert_int_equal(pthread_create(&thread, NULL, inherit_it_without_memory, &heirs), 0);
	pthread_join(thread, NULL);
	assert_true(failures > 0);
	assert_int_equal(ca_heap_check(heirs.f.heap, reason, sizeof(reason)), 0);
	fixture_stop(&heirs.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_objects),
		cmocka_unit_test(test_reserved_records_come_when_there_is_no_memory),
		cmocka_unit_test(test_what_a_live_block_costs),
		cmocka_unit_test(test_heap_without_memory),
		cmocka_unit_test(test_create_without_memory),
		cmocka_unit_test(test_a_magazine_that_gets_no_shelf),
	};

	return cmocka_run_group_tests_name("allocator-arena", tests, NULL, NULL);
}
