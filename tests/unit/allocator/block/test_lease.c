/* SPDX-License-Identifier: MIT */
/* Steps of a lease by themselves. */
#include "allocator/block/lease.h"

#include <sched.h>

#include "allocator/block/block.h"
#include "allocator/core/lock.h"
#include "tests/unit/allocator/deferred/scene.h"

static void
test_a_segment_where_something_waits_is_not_leased(void **state)
{
	struct ca_lease lease = { .magazine = NULL };
	struct ca_segment *segment;
	struct scene scene;
	uint64_t a, b;

	scene_new(&scene, 2);
	a = fixture_alloc(&scene.f, 4096);
	b = fixture_alloc(&scene.f, 4096);
	segment = ca_bases_find_locked(&scene.f.heap->bases, a)->segment;
	launch(&scene, S);
	launch(&scene, R);
	fixture_free(&scene.f, b);
	ca_heap_lock(scene.f.heap);
	assert_true(ca_lease_may_begin(segment));
	assert_false(ca_lease_begin_locked(&lease, segment));
	assert_null(scene.f.heap->leases);
	ca_heap_unlock(scene.f.heap);
	finish(&scene, S);
	finish(&scene, R);
	assert_int_equal(ca_order_poll(scene.f.space), 0);
	fixture_check(&scene.f);
	fixture_free(&scene.f, a);
	fixture_stop(&scene.f);
}

/* ---- the table of live blocks, while it is shared */

enum {
#ifdef __SANITIZE_THREAD__
	ROUNDS = 2000,
#else
	ROUNDS = 20000,
#endif
	SPINS = 1000,
};

struct pair {
	struct fixture f;
	struct ca_block blocks[2];
	_Atomic unsigned round, arrived;
	bool entered[2];
	const struct ca_block *found[2];
};

static void
enter(struct pair *pair, unsigned which, unsigned round)
{
	struct ca_block *block = &pair->blocks[which];
	volatile unsigned delay = which ? round % 61 : round % 67;
	unsigned spins = 0;

	atomic_fetch_add(&pair->arrived, 1);
	while (atomic_load(&pair->arrived) < 2 * round)
		if (++spins > SPINS) /* one processor is enough */
			sched_yield();
	while (delay) /* so that now one is first, now the other, and at times none */
		delay--;
	pair->entered[which] = ca_bases_enter_atomic(&pair->f.heap->bases, block, block->address);
}

static void *
enter_second(void *arg)
{
	struct pair *pair = arg;

	for (unsigned round = 1; round <= ROUNDS; round++) {
		enter(pair, 1, round);
		atomic_store(&pair->round, round);
	}
	return NULL;
}

/* Another block for the same place of the table. */
static uint64_t
rival_of(const struct ca_bases *bases, uint64_t address)
{
	struct ca_bases_table *table = atomic_load(&bases->table);
	struct ca_block block = { .address = address };
	_Atomic uint64_t *place;
	uint64_t entry;

	place = ca_bases_own_place(table, &block, &entry);
	do
		block.address += CA_GRAIN;
	while (ca_bases_own_place(table, &block, &entry) != place);
	return block.address;
}

static void
test_two_threads_enter_blocks_at_one_place(void **state)
{
	struct pair pair = { .round = 0 };
	struct ca_bases *bases;
	pthread_t thread;
	unsigned lost = 0;

	fixture_defaults(&pair.f);
	fixture_start(&pair.f);
	bases = &pair.f.heap->bases;
	ca_heap_lock(pair.f.heap);
	ca_bases_share_locked(bases);
	pair.blocks[0].address = GIB;
	pair.blocks[1].address = rival_of(bases, GIB);
	assert_int_equal(pthread_create(&thread, NULL, enter_second, &pair), 0);
	for (unsigned round = 1; round <= ROUNDS; round++) {
		enter(&pair, 0, round);
		while (atomic_load(&pair.round) < round)
			sched_yield();
		for (unsigned i = 0; i < 2; i++) {
			lost += !pair.entered[i];
			lost += !ca_bases_leave_atomic(bases, &pair.blocks[i]);
		}
	}
	pthread_join(thread, NULL);
	assert_int_equal(lost, 0);
	ca_bases_unshare_locked(bases);
	ca_heap_unlock(pair.f.heap);
	fixture_stop(&pair.f);
}

/* The next address behind it of a block that is looked for in the same bucket first. */
static uint64_t
next_of_bucket(const struct ca_bases *bases, uint64_t address)
{
	const struct ca_bases_table *table = atomic_load(&bases->table);
	uint64_t grain = address / CA_GRAIN;
	size_t bucket = ca_bases_place(table, ca_bases_hash(grain)) / CA_BASES_BUCKET;

	do
		grain++;
	while (ca_bases_place(table, ca_bases_hash(grain)) / CA_BASES_BUCKET != bucket);
	return grain * CA_GRAIN;
}

/* There they are found as any other block is. */
static void
test_behind_a_full_bucket_there_is_another(void **state)
{
	struct ca_block blocks[2 * CA_BASES_BUCKET + 1]; /* of both sides, and one more */
	uint64_t address = GIB;
	struct ca_bases *bases;
	struct fixture f;
	unsigned i;

	fixture_defaults(&f);
	fixture_start(&f);
	bases = &f.heap->bases;
	memset(blocks, 0, sizeof(blocks));
	ca_heap_lock(f.heap);
	assert_true(ca_bases_share_locked(bases));
	for (i = 0; i < 2 * CA_BASES_BUCKET + 1; i++) {
		blocks[i].address = address;
		atomic_store(&blocks[i].quick, address + CA_QUICK_LIVE);
		assert_true(ca_bases_enter_atomic(bases, &blocks[i], address));
		address = next_of_bucket(bases, address);
	}
	for (i = 0; i < 2 * CA_BASES_BUCKET + 1; i++) {
		assert_ptr_equal(ca_bases_claim(bases, blocks[i].address), &blocks[i]);
		assert_true(ca_bases_leave_atomic(bases, &blocks[i]));
	}
	assert_int_equal(ca_bases_count_locked(bases), 0);
	ca_bases_unshare_locked(bases);
	ca_heap_unlock(f.heap);
	fixture_stop(&f);
}

/* The place at which a block was entered. */
static size_t
place_of(const struct ca_bases *bases, const struct ca_block *block)
{
	const struct ca_bases_table *table = atomic_load(&bases->table);
	size_t i;

	for (i = 0; i >> table->log == 0; i++)
		if (ca_bases_block(atomic_load(&table->places[i])) == block)
			return i;
	fail();
	return 0;
}

static void *
enter_on_a_side(void *arg)
{
	struct pair *pair = arg;
	struct ca_bases *bases = &pair->f.heap->bases;
	uint64_t address = pair->blocks[1].address;

	ca_bases_take_side_locked(bases);
	pair->entered[1] = ca_bases_enter_atomic(bases, &pair->blocks[1], address);
	pair->found[1] = ca_bases_guess(bases, address / CA_GRAIN);
	pair->found[0] = ca_bases_claim(bases, pair->blocks[0].address);
	return NULL;
}

/* So they do not write to the same cache lines, and find each other's nonetheless. */
static void
test_threads_that_enter_blocks_have_a_side_each(void **state)
{
	struct pair pair = { .round = 0 };
	struct ca_bases *bases;
	pthread_t thread;
	unsigned i;

	fixture_defaults(&pair.f);
	fixture_start(&pair.f);
	bases = &pair.f.heap->bases;
	ca_heap_lock(pair.f.heap);
	assert_true(ca_bases_share_locked(bases));
	pair.blocks[0].address = GIB;
	pair.blocks[1].address = rival_of(bases, GIB);
	for (i = 0; i < 2; i++)
		atomic_store(&pair.blocks[i].quick, pair.blocks[i].address + CA_QUICK_LIVE);
	assert_int_equal((uintptr_t)bases->table->places % sizeof(uint64_t[CA_BASES_SIDE]), 0);
	for (i = 0; i < 2; i++) /* that is no second side */
		ca_bases_take_side_locked(bases);
	assert_true(ca_bases_enter_atomic(bases, &pair.blocks[0], GIB));
	assert_ptr_equal(ca_bases_guess(bases, GIB / CA_GRAIN), &pair.blocks[0]);
	assert_int_equal(pthread_create(&thread, NULL, enter_on_a_side, &pair), 0);
	pthread_join(thread, NULL);
	assert_true(pair.entered[1]);
	for (i = 0; i < 2; i++)
		assert_ptr_equal(pair.found[i], &pair.blocks[i]);
	assert_int_equal(place_of(bases, &pair.blocks[0]) ^ place_of(bases, &pair.blocks[1]),
			 CA_BASES_SIDE);
	assert_ptr_equal(ca_bases_claim(bases, pair.blocks[1].address), &pair.blocks[1]);
	for (i = 0; i < 2; i++)
		assert_true(ca_bases_leave_atomic(bases, &pair.blocks[i]));
	ca_bases_unshare_locked(bases);
	/* one that was entered where it would be otherwise is found on either side */
	ca_bases_enter_locked(bases, &pair.blocks[0]);
	assert_ptr_equal(ca_bases_find_locked(bases, GIB), &pair.blocks[0]);
	ca_bases_leave_locked(bases, &pair.blocks[0]);
	assert_int_equal(ca_bases_count_locked(bases), 0);
	ca_bases_side = (struct ca_bases_side){ .keep = UINT64_MAX };
	ca_heap_unlock(pair.f.heap);
	fixture_stop(&pair.f);
}

/* So that hardly any block finds all of its buckets full: the table does not grow while it is
 * shared. */
static void
test_a_table_is_at_most_half_full_when_it_comes_to_be_shared(void **state)
{
	struct ca_bases *bases;
	struct fixture f;
	uint64_t address, entered;

	fixture_defaults(&f);
	fixture_start(&f);
	bases = &f.heap->bases;
	do
		assert_int_equal(ca_alloc(f.space, 512, &address), 0);
	while (bases->entered * 3 <= (uint64_t)2 << bases->table->log);
	ca_heap_lock(f.heap);
	entered = bases->entered;
	assert_true(ca_bases_share_locked(bases));
	assert_int_equal(bases->entered, entered);
	assert_true(bases->entered * 2 <= (uint64_t)1 << bases->table->log);
	assert_int_equal(bases->entered, ca_bases_count_locked(bases));
	ca_bases_unshare_locked(bases);
	ca_heap_unlock(f.heap);
	fixture_check(&f);
	fixture_stop(&f);
}

/* Blocks from GIB on, one a grain, until there is no place for one. Returns how many have one. */
static unsigned
fill(struct ca_bases *bases, struct ca_block *blocks, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++) {
		blocks[i].address = GIB + i * (uint64_t)CA_GRAIN;
		atomic_store(&blocks[i].quick, blocks[i].address + CA_QUICK_LIVE);
		if (!ca_bases_enter_atomic(bases, &blocks[i], blocks[i].address))
			break;
	}
	return i;
}

/* Of those in each of their buckets, not only in the first. */
static void
test_in_a_full_table_every_block_is_found(void **state)
{
	static struct ca_block blocks[1 << 16];
	struct ca_bases *bases;
	struct fixture f;
	unsigned n, i;

	fixture_defaults(&f);
	fixture_start(&f);
	bases = &f.heap->bases;
	ca_heap_lock(f.heap);
	assert_true(ca_bases_share_locked(bases));
	n = fill(bases, blocks, sizeof(blocks) / sizeof(blocks[0]));
	assert_in_range(n, 1, (1u << bases->table->log) - 1);
	for (i = 0; i < n; i++) {
		assert_ptr_equal(ca_bases_find_locked(bases, blocks[i].address), &blocks[i]);
		assert_ptr_equal(ca_bases_claim(bases, blocks[i].address), &blocks[i]);
		assert_true(ca_bases_leave_atomic(bases, &blocks[i]));
	}
	assert_int_equal(ca_bases_count_locked(bases), 0);
	ca_bases_unshare_locked(bases);
	ca_heap_unlock(f.heap);
	fixture_stop(&f);
}

/* Others enter blocks in it that are not in this count. */
static void
test_a_shared_table_does_not_shrink(void **state)
{
	static struct ca_block blocks[10000];
	const unsigned n = sizeof(blocks) / sizeof(blocks[0]);
	const struct ca_bases_table *table;
	struct ca_bases *bases;
	struct fixture f;
	unsigned i;

	fixture_defaults(&f);
	fixture_start(&f);
	bases = &f.heap->bases;
	ca_heap_lock(f.heap);
	for (i = 0; i < n; i++) {
		blocks[i].address = GIB + i * (uint64_t)CA_GRAIN;
		ca_bases_enter_locked(bases, &blocks[i]);
	}
	assert_true(ca_bases_share_locked(bases));
	table = bases->table;
	for (i = 0; i < n; i++)
		ca_bases_leave_locked(bases, &blocks[i]);
	assert_ptr_equal(bases->table, table);
	ca_bases_unshare_locked(bases);
	ca_heap_unlock(f.heap);
	fixture_stop(&f);
}

/* An argument: that test alone (tests/stress/test_leases.py). */
int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_segment_where_something_waits_is_not_leased),
		cmocka_unit_test(test_two_threads_enter_blocks_at_one_place),
		cmocka_unit_test(test_behind_a_full_bucket_there_is_another),
		cmocka_unit_test(test_threads_that_enter_blocks_have_a_side_each),
		cmocka_unit_test(test_a_table_is_at_most_half_full_when_it_comes_to_be_shared),
		cmocka_unit_test(test_in_a_full_table_every_block_is_found),
		cmocka_unit_test(test_a_shared_table_does_not_shrink),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
