/* SPDX-License-Identifier: MIT */
/*
 * Records of blocks: what is in them is what their state says, and their memory goes back to the
 * system when a spike is over, also under the eyes of threads that look at them without the lock.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allocator/block/block.h"
#include "tests/unit/allocator/fixture.h"
#include "tests/unit/allocator/util/resident.h"

enum { RECORD = 96, APART = 128, RECORDS = 50000, SPIKE = 150000 };

static void *records[SPIKE]; /* more than the first region has where pages are of 64 KiB */

static void
records_get(struct ca_slabs *slabs, unsigned n)
{
	unsigned i, j;

	for (i = 0; i < n; i++) {
		records[i] = ca_slabs_get(slabs);
		assert_non_null(records[i]);
		for (j = 0; j < RECORD; j++)
			assert_int_equal(((unsigned char *)records[i])[j], 0);
		memset(records[i], 0xff, RECORD - 8);
	}
}

/* In an order that has nothing to do with where they lie. */
static void
records_put(struct ca_slabs *slabs, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++)
		ca_slabs_put(slabs, records[(uint64_t)i * 7919 % n]);
}

/* Of a region, where the next begins so many bytes after each. */
static unsigned
region_records(unsigned step)
{
	return 127 * ((unsigned)sysconf(_SC_PAGESIZE) / step);
}

static void
test_memory_of_records_goes_back_and_comes_again(void **state)
{
	struct ca_arena arena = { 0 };
	struct ca_slabs slabs;
	uint64_t peak, rest;
	unsigned round;

	ca_slabs_init(&slabs, &arena, RECORD, 8, RECORD);
	for (round = 0; round < 3; round++) {
		records_get(&slabs, RECORDS);
		assert_int_equal(slabs.used, RECORDS);
		peak = resident_bytes(&arena);
		assert_in_range(peak, RECORDS * RECORD, RECORDS * (RECORD + 4));
		records_put(&slabs, RECORDS);
		assert_int_equal(slabs.used, 0);
		rest = resident_bytes(&arena);
		printf("# %lu bytes of records, afterwards %lu\n", (unsigned long)peak,
		       (unsigned long)rest);
		assert_true(rest < 500 * KIB);
		/* the addresses stay, and serve again */
		assert_in_range(slabs.capacity, RECORDS, RECORDS + region_records(RECORD));
	}
	ca_arena_destroy(&arena);
}

/* Of those of a program with few blocks no two are in lines that a processor fetches together. */
static void
test_the_first_records_lie_apart(void **state)
{
	unsigned apart = region_records(APART), i;
	struct ca_arena arena = { 0 };
	struct ca_slabs slabs;

	ca_slabs_init(&slabs, &arena, RECORD, 8, APART);
	records_get(&slabs, apart + 100);
	for (i = 0; i < apart; i++)
		assert_int_equal(((uintptr_t)records[i] + RECORD) % APART, 0);
	for (i = apart + 1; i < apart + 20; i++)
		assert_int_equal((char *)records[i] - (char *)records[i - 1], RECORD);
	records_put(&slabs, apart + 100);
	records_get(&slabs, apart + 100);
	records_put(&slabs, apart + 100);
	assert_int_equal(slabs.used, 0);
	ca_arena_destroy(&arena);
}

static void
test_up_and_down_a_little_asks_the_system_for_nothing(void **state)
{
	struct ca_arena arena = { 0 };
	struct ca_slabs slabs;
	uint64_t resident;
	unsigned round;

	ca_slabs_init(&slabs, &arena, RECORD, 8, RECORD);
	records_get(&slabs, 1000);
	resident = resident_bytes(&arena);
	for (round = 0; round < 20; round++) {
		records_put(&slabs, 1000);
		assert_int_equal(resident_bytes(&arena), resident);
		records_get(&slabs, 1000);
	}
	assert_int_equal(resident_bytes(&arena), resident);
	ca_arena_destroy(&arena);
}

static void
test_of_records_no_two_are_the_same(void **state)
{
	struct ca_arena arena = { 0 };
	struct ca_slabs slabs;
	uint64_t seed = 11, n = 0, i, step;

	ca_slabs_init(&slabs, &arena, RECORD, 8, APART);
	for (step = 0; step < 200000; step++) {
		/* long ways up and down, so that slabs come and go */
		bool up = fixture_random(&seed) % 16 < (step / 20000 % 2 ? 5 : 11);

		if (up && n < RECORDS) {
			uint64_t *record = ca_slabs_get(&slabs);

			assert_non_null(record);
			for (i = 0; i < RECORD / 8; i++)
				assert_int_equal(record[i], 0);
			record[1] = (uint64_t)(uintptr_t)record;
			records[n++] = record;
		} else if (!up && n) {
			uint64_t *record, at = fixture_random(&seed) % n;

			record = records[at];
			assert_int_equal(record[1], (uint64_t)(uintptr_t)record);
			record[1] = 0;
			records[at] = records[--n];
			ca_slabs_put(&slabs, record);
		}
		assert_int_equal(slabs.used, n);
	}
	ca_arena_destroy(&arena);
}

/* ---- of a heap */

static uint64_t held[SPIKE];

static void
test_what_a_spike_took_goes_back_when_it_is_over(void **state)
{
	uint64_t peak, rest, before;
	struct fixture f;
	unsigned round, i;

	fixture_defaults(&f);
	fixture_start(&f);
	for (i = 0; i < 1000; i++) {
		struct ca_block *block;

		assert_int_equal(ca_alloc(f.space, 4096, &held[i]), 0);
		block = ca_bases_find_locked(&f.heap->bases, held[i]);
		assert_int_equal((uintptr_t)(block + 1) % APART, 0);
	}
	before = resident_bytes(&f.heap->records);
	/* what stays is a record, and its page, of each segment: those are cached */
	for (round = 0; round < 3; round++) {
		for (i = 1000; i < SPIKE; i++)
			assert_int_equal(ca_alloc(f.space, 4096, &held[i]), 0);
		peak = resident_bytes(&f.heap->records);
		assert_true(peak >= (uint64_t)SPIKE * sizeof(struct ca_block));
		for (i = SPIKE - 1; i >= 1000; i--)
			assert_int_equal(ca_free(f.heap, held[i]), 0);
		rest = resident_bytes(&f.heap->records);
		printf("# %lu bytes of records, with %d blocks %lu, afterwards %lu\n",
		       (unsigned long)before, SPIKE, (unsigned long)peak, (unsigned long)rest);
		assert_true(rest < peak / 7);
		fixture_check(&f);
	}
	for (i = 0; i < 1000; i++)
		assert_int_equal(ca_free(f.heap, held[i]), 0);
	fixture_check(&f);
	fixture_stop(&f);
}

/* Blocks go in any order, and holes with them. Those that magazines keep, and their neighbours,
 * lie anywhere, till somebody looks for memory. */
static void
test_a_spike_that_ends_in_any_order_gives_most_back(void **state)
{
	struct fixture f;
	uint64_t peak, rest, trimmed, seed = 3;
	unsigned i;

	fixture_defaults(&f);
	fixture_start(&f);
	for (i = 0; i < SPIKE; i++)
		assert_int_equal(ca_alloc(f.space, 512 + i % 8 * 512, &held[i]), 0);
	peak = resident_bytes(&f.heap->records);
	for (i = SPIKE; i > 0; i--) {
		uint64_t at = fixture_random(&seed) % i;

		assert_int_equal(ca_free(f.heap, held[at]), 0);
		held[at] = held[i - 1];
	}
	rest = resident_bytes(&f.heap->records);
	ca_trim(f.heap, 0);
	trimmed = resident_bytes(&f.heap->records);
	printf("# %lu bytes of records, afterwards %lu, and without segments %lu\n",
	       (unsigned long)peak, (unsigned long)rest, (unsigned long)trimmed);
	assert_true(rest < peak / 2 && trimmed < peak / 12);
	fixture_check(&f);
	fixture_stop(&f);
}

/* ---- huge pages */

/* The mapping around an address, as the kernel has it. */
struct mapping {
	const char *flag; /* "hg" where huge pages are asked for, "nh" where refused; "": neither */
	uint64_t huge_kib; /* of its memory that lies on huge pages */
};

static struct mapping
mapping_of(const void *address)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	uint64_t at = (uintptr_t)address, from, to;
	struct mapping found = { "", 0 };
	bool here = false;
	char line[512], *end;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		from = strtoull(line, &end, 16);
		if (end > line && *end == '-') {
			to = strtoull(end + 1, NULL, 16);
			here = from <= at && at < to;
		}
		if (here && !strncmp(line, "AnonHugePages:", 14))
			found.huge_kib = strtoull(line + 14, NULL, 10);
		if (here && !strncmp(line, "VmFlags:", 8))
			found.flag = strstr(line, " hg") ? "hg" : strstr(line, " nh") ? "nh" : "";
	}
	fclose(maps);
	return found;
}

/* The kernel has a huge page now for memory that asks for one. */
static bool
huge_pages_are_to_be_had(void)
{
	char *memory =
		mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool has;

	assert_ptr_not_equal(memory, MAP_FAILED);
	(void)madvise(memory, 4 * MIB, MADV_HUGEPAGE);
	memset(memory, 1, 4 * MIB);
	has = mapping_of(memory).huge_kib;
	munmap(memory, 4 * MIB);
	return has;
}

/* Of memory that comes at once no part may be kept that was never had. */
static void
test_very_many_records_lie_on_huge_pages_until_memory_goes_back(void **state)
{
	struct ca_arena arena = { 0 };
	uint64_t few, rest;
	struct ca_slabs slabs;

	if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) ||
	    sysconf(_SC_PAGESIZE) !=
		    4 * KIB) /* with larger ones a region is no part of a huge page */
		skip();
	ca_slabs_init(&slabs, &arena, RECORD, 8, RECORD);
	records_get(&slabs, RECORDS);
	assert_string_equal(mapping_of(records[RECORDS - 1]).flag, "");
	records_put(&slabs, RECORDS);
	few = resident_bytes(&arena);
	records_get(&slabs, SPIKE);
	assert_string_equal(mapping_of(records[SPIKE - 1]).flag, "hg");
	/* not if the region was touched before it was asked for */
	if (huge_pages_are_to_be_had())
		assert_true(mapping_of(records[SPIKE - 1]).huge_kib);
	else
		printf("# no huge page is to be had\n");
	/* where they may not be needed, only addresses are had */
	assert_true(ca_slabs_reserve(&slabs, 10 * SPIKE));
	assert_in_range(resident_bytes(&arena), SPIKE * RECORD, SPIKE * (RECORD + 24));
	records_put(&slabs, SPIKE);
	assert_string_equal(mapping_of(records[SPIKE - 1]).flag, "nh");
	rest = resident_bytes(&arena);
	printf("# at first %lu bytes, after a spike %lu\n", (unsigned long)few,
	       (unsigned long)rest);
	assert_true(rest < few + 2 * MIB);
	ca_arena_destroy(&arena);
}

/* ---- readers without the lock */

enum { RACE = 20000, ROUNDS = 6 };

struct race {
	struct fixture f;
	pthread_barrier_t barrier;
	_Atomic unsigned freed;
};

/* Of two frees of a block one succeeds. */
static void *
race_free(void *argument)
{
	struct race *race = argument;
	unsigned round, i;

	for (round = 0; round < ROUNDS; round++) {
		pthread_barrier_wait(&race->barrier);
		for (i = 0; i < RACE; i++)
			if (!ca_free(race->f.heap, held[i]))
				race->freed++;
		pthread_barrier_wait(&race->barrier);
	}
	return NULL;
}

static void
test_a_free_may_look_at_a_record_whose_memory_goes_back(void **state)
{
	static struct race race;
	pthread_t other;
	unsigned round, i;
	uint64_t rest;

	fixture_defaults(&race.f);
	fixture_start(&race.f);
	assert_int_equal(pthread_barrier_init(&race.barrier, NULL, 2), 0);
	assert_int_equal(pthread_create(&other, NULL, race_free, &race), 0);
	for (round = 0; round < ROUNDS; round++) {
		race.freed = 0;
		for (i = 0; i < RACE; i++)
			assert_int_equal(ca_alloc(race.f.space, 512, &held[i]), 0);
		pthread_barrier_wait(&race.barrier);
		for (i = RACE; i-- > 0;)
			if (!ca_free(race.f.heap, held[i]))
				race.freed++;
		pthread_barrier_wait(&race.barrier);
		assert_int_equal(race.freed, RACE);
		fixture_check(&race.f);
	}
	pthread_join(other, NULL);
	rest = resident_bytes(&race.f.heap->records);
	assert_true(rest < (uint64_t)RACE * sizeof(struct ca_block) / 2);
	pthread_barrier_destroy(&race.barrier);
	fixture_stop(&race.f);
}

/* ---- what shares its room */

static void
expect_broken(struct fixture *f, const char *expected)
{
	char reason[128] = "";

	assert_int_equal(ca_heap_check(f->heap, reason, sizeof(reason)), -EUCLEAN);
	assert_string_equal(reason, expected);
}

static void
test_the_walk_sees_a_record_that_is_not_what_its_state_says(void **state)
{
	uint64_t address[2];
	struct ca_block *block;
	struct ca_list waiting, stray;
	struct fixture f;

	fixture_defaults(&f);
	f.unseen = true; /* what is freed waits for a mark */
	fixture_start(&f);
	address[0] = fixture_alloc(&f, 4096);
	address[1] = fixture_alloc(&f, 4096);
	fixture_free(&f, address[0]);
	block = ca_block_find_locked(f.heap, address[0]);
	assert_int_equal(block->state, CA_BLOCK_MARK_HELD);

	waiting = block->waiting;
	ca_list_init(&stray);
	block->waiting.prev = &stray; /* where an ALLOCATED block has its serial */
	expect_broken(&f, "a block waits and its list is broken");
	block->waiting = waiting;
	block->birth = 1;
	expect_broken(&f, "a block has a link of a state that it is not in");
	block->places = NULL;
	block->space++;
	expect_broken(&f, "a block names another space");
	block->space--;
	fixture_check(&f);

	block = ca_block_find_locked(f.heap, address[1]);
	atomic_store(&block->requested, (uint64_t)(uintptr_t)&block->waiting);
	expect_broken(&f, "more was asked for than the block has");
	atomic_store(&block->requested, 4096);
	fixture_check(&f);
	fixture_stop(&f);
}

static void
fail_synchronize(void *arg, enum ca_model_function function, bool end)
{
	struct fixture *f = arg;

	if (function == CA_MODEL_RECORD && end)
		ca_model_fail(f->model, CA_MODEL_SYNCHRONIZE, 1, true, 719);
}

static void
test_a_block_whose_free_fails_is_what_it_was(void **state)
{
	struct ca_block_info before, after;
	struct fixture f;
	uint64_t address;

	fixture_defaults(&f);
	f.unseen = true;
	fixture_start(&f);
	address = fixture_alloc(&f, 5000);
	assert_int_equal(ca_lookup(f.heap, address, &before), 0);
	ca_model_set_observer(f.model, fail_synchronize, &f);
	ca_model_fail(f.model, CA_MODEL_RECORD, 1, true, 719);
	assert_int_equal(ca_free(f.heap, address), 719); /* it waited in a list meanwhile */
	ca_model_set_observer(f.model, NULL, NULL);
	assert_int_equal(ca_lookup(f.heap, address, &after), 0);
	assert_true(after.live);
	assert_int_equal(after.requested_bytes, 5000);
	assert_int_equal(after.serial, before.serial);
	assert_int_equal(fixture_stats(&f).requested_bytes.current, 5000);
	fixture_check(&f);
	fixture_free(&f, address);
	assert_int_equal(fixture_stats(&f).requested_bytes.current, 0);
	assert_int_equal(ca_lookup(f.heap, address, &after), -ENOENT);
	fixture_stop(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_of_records_goes_back_and_comes_again),
		cmocka_unit_test(test_the_first_records_lie_apart),
		cmocka_unit_test(test_up_and_down_a_little_asks_the_system_for_nothing),
		cmocka_unit_test(test_of_records_no_two_are_the_same),
		cmocka_unit_test(test_what_a_spike_took_goes_back_when_it_is_over),
		cmocka_unit_test(test_a_spike_that_ends_in_any_order_gives_most_back),
		cmocka_unit_test(test_very_many_records_lie_on_huge_pages_until_memory_goes_back),
		cmocka_unit_test(test_a_free_may_look_at_a_record_whose_memory_goes_back),
		cmocka_unit_test(test_the_walk_sees_a_record_that_is_not_what_its_state_says),
		cmocka_unit_test(test_a_block_whose_free_fails_is_what_it_was),
	};

	return cmocka_run_group_tests_name("allocator-slab", tests, NULL, NULL);
}
