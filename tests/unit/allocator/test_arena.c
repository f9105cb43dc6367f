/* SPDX-License-Identifier: MIT */
/*
 * The arena, and the heap when the kernel gives no memory: mmap is wrapped at link time and fails
 * from the n-th call on, n = 1, 2, ... until a whole run meets no failure. Nothing may be lost or
 * half entered.
 */
#include "allocator/inside.h"
#include "tests/unit/allocator/fixture.h"

#include <errno.h>
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
test_reserved_objects_come_when_there_is_no_memory(void **state)
{
	struct ca_arena arena = { 0 };
	struct ca_objects objects;
	void *object = NULL;
	int i;

	ca_objects_init(&objects, &arena, 104);
	assert_true(ca_objects_reserve(&objects, 5000));
	fail_from = 1;
	for (i = 0; i < 5000; i++) {
		object = ca_objects_get(&objects);
		assert_non_null(object);
		memset(object, 0xff, 104); /* it is nobody else's */
	}
	assert_false(ca_objects_reserve(&objects, 50000));
	ca_objects_put(&objects, object);
	assert_ptr_equal(ca_objects_get(&objects), object);
	fail_from = 0;
	ca_arena_destroy(&arena);
}

/* The chunks begin with the next one's address and their bytes (arena.c). */
static uint64_t
resident_bytes(const struct ca_arena *arena)
{
	struct header {
		const struct header *next;
		size_t bytes;
	};
	static unsigned char page[1 << 16];
	const struct header *chunk = (const struct header *)arena->chunks;
	uint64_t bytes = 0;
	size_t i;

	for (; chunk; chunk = chunk->next) {
		assert_true(chunk->bytes / 4096 <= sizeof(page));
		assert_int_equal(mincore((void *)(uintptr_t)chunk, chunk->bytes, page), 0);
		for (i = 0; i < chunk->bytes / 4096; i++)
			bytes += page[i] & 1 ? 4096 : 0;
	}
	return bytes;
}

enum { MANY = 100000 };

static void
test_what_a_live_block_costs(void **state)
{
	static uint64_t live[MANY];
	struct fixture f;
	unsigned i;

	fixture_defaults(&f);
	fixture_start(&f);
	for (i = 0; i < MANY; i++)
		assert_int_equal(ca_alloc(f.space, 4096 + i % 8 * 512, &live[i]), 0);
	printf("# %lu bytes a live block\n",
	       (unsigned long)(resident_bytes(&f.heap->records) / MANY));
	assert_in_range(resident_bytes(&f.heap->records) / MANY, 128, 160);
	for (i = 0; i < MANY; i += 4) /* the holes have places in the trees */
		assert_int_equal(ca_free(f.heap, live[i]), 0);
	ca_trim(f.heap, 0);
	assert_in_range(resident_bytes(&f.heap->records) / MANY, 128, 200);
	fixture_stop(&f);
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
	while (ca_reclaim(f->space, GIB))
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_objects),
		cmocka_unit_test(test_reserved_objects_come_when_there_is_no_memory),
		cmocka_unit_test(test_what_a_live_block_costs),
		cmocka_unit_test(test_heap_without_memory),
		cmocka_unit_test(test_create_without_memory),
	};

	return cmocka_run_group_tests_name("allocator-arena", tests, NULL, NULL);
}
