/* SPDX-License-Identifier: MIT */
/* Leased segments (allocator/block/lease.h), where something else than their owner needs them. */
#include "tests/unit/allocator/tcache/magazine_scene.h"

static void
start(struct shared *shared)
{
	fixture_defaults(&shared->f);
	shared->f.config.expandable_segments = false; /* only segments are leased */
	contended_start(&shared->f);
}

/* So the calling thread has a magazine. */
static uint64_t
alloc_first(struct shared *shared)
{
	uint64_t address = fixture_alloc(&shared->f, 64 * KIB);

	fixture_free(&shared->f, address);
	return fixture_alloc(&shared->f, 64 * KIB);
}

enum { PIECES = 3 };

/* They end up in the thread's magazine, and in a segment that is leased to it. */
static void *
take_and_free_pieces(void *arg)
{
	struct shared *shared = arg;

	for (int i = 0; i < PIECES; i++)
		shared->done += ca_alloc(shared->f.space, shared->size, &shared->blocks[i]) != 0;
	for (int i = 0; i < PIECES; i++)
		shared->done += ca_free(shared->f.heap, shared->blocks[i]) != 0;
	return NULL;
}

static void
test_pieces_in_a_leased_segment_merge_for_others(void **state)
{
	struct shared shared = { .size = 512 * KIB };
	uint64_t own, address;

	start(&shared);
	own = alloc_first(&shared);
	in_thread(take_and_free_pieces, &shared);
	assert_non_null(shared.f.heap->leases);
	assert_int_equal(kept(shared.f.heap), PIECES);
	grow_last(&shared.f);
	assert_int_equal(ca_alloc(shared.f.space, MIB, &address), 0);
	assert_int_equal(fixture_stats(&shared.f).reserved_bytes.current, 2 * MIB);
	fixture_check(&shared.f);
	assert_int_equal(ca_free(shared.f.heap, own), 0);
	assert_int_equal(ca_free(shared.f.heap, address), 0);
	assert_int_equal(shared.done, 0);
	fixture_stop(&shared.f);
}

static void
test_a_forked_child_forgets_leases(void **state)
{
	struct shared shared = { .size = 512 * KIB };
	uint64_t address;

	start(&shared);
	address = alloc_first(&shared);
	in_thread(take_and_free_pieces, &shared);
	assert_non_null(shared.f.heap->leases);
	ca_heap_after_fork_child(shared.f.heap); /* same process, but the records are gone */
	assert_int_equal(ca_free(shared.f.heap, address), -ENOENT);
	assert_int_equal(ca_alloc(shared.f.space, 64 * KIB, &address), -ENODEV);
	fixture_stop(&shared.f);
}

enum { EACH = 4 };

/* Each of a size that no magazine has. */
static void
alloc_each(struct ca_space *space, uint64_t sizes, int n, uint64_t *ret_addresses)
{
	for (int i = 0; i < n; i++)
		assert_int_equal(ca_alloc(space, (sizes + (uint64_t)i) * KIB, &ret_addresses[i]),
				 0);
}

/* A signal handler, which allocates in another space. */
static struct {
	struct ca_space *space;
	bool (*capturing)(void *self);
	uint64_t addresses[EACH];
	unsigned calls, runs_at;
	int allocates;
} handler;

static bool
capturing_interrupted(void *self)
{
	if (++handler.calls == handler.runs_at)
		alloc_each(handler.space, 3, handler.allocates, handler.addresses);
	return handler.capturing(self);
}

static void
check_space(struct ca_heap *heap, const struct ca_space *space, uint64_t address)
{
	struct ca_block_info info;

	assert_int_equal(ca_lookup(heap, address, &info), 0);
	assert_ptr_equal(info.space, space);
	assert_int_equal(ca_free(heap, address), 0);
}

/* The handler of a signal comes between the look at whose turn it is and the heap's lock: from then
 * on it is the turn of the other space. `leased`: segments of that were leased before. */
static void
allocate_interrupted(bool leased)
{
	struct shared shared = { .size = 512 * KIB };
	struct ca_heap *heap;
	struct ca_space *other;
	uint64_t first[EACH], second[EACH], address, last, elsewhere;

	start(&shared);
	heap = shared.f.heap;
	assert_int_equal(ca_space_create(heap, (void *)2, 0, &other), 0);
	address = alloc_first(&shared);
	in_thread(take_and_free_pieces, &shared);
	assert_int_equal(ca_free(heap, address), 0);
	alloc_each(other, 16, leased ? EACH : 1, second);
	alloc_each(shared.f.space, 16, EACH, first);
	assert_non_null(ca_own.shelf->lease);
	(void)fixture_stats(&shared.f); /* no segment is leased any more */
	assert_int_equal(ca_alloc(shared.f.space, 30 * KIB, &last), 0);
	handler.space = other;
	handler.capturing = heap->driver.capturing;
	handler.calls = 0;
	handler.allocates = leased ? 2 : 1;
	handler.runs_at = 2; /* the first time its magazine is yet to be looked at */
	heap->driver.capturing = capturing_interrupted;
	assert_int_equal(ca_alloc(shared.f.space, 40 * KIB, &address), 0);
	assert_int_not_equal(handler.addresses[0], 0);
	heap->driver.capturing = handler.capturing;
	assert_int_equal(ca_alloc(other, 50 * KIB, &elsewhere), 0);
	check_space(heap, other, elsewhere);
	check_space(heap, shared.f.space, last);
	check_space(heap, shared.f.space, address);
	for (int i = 0; i < handler.allocates; i++)
		check_space(heap, other, handler.addresses[i]);
	for (int i = 0; i < EACH; i++)
		check_space(heap, shared.f.space, first[i]);
	for (int i = 0; i < (leased ? EACH : 1); i++)
		check_space(heap, other, second[i]);
	fixture_check(&shared.f);
	fixture_stop(&shared.f);
}

static void
test_a_handler_that_allocates_in_another_space(void **state)
{
	allocate_interrupted(false);
}

static void
test_a_handler_that_allocates_where_there_were_leases(void **state)
{
	allocate_interrupted(true);
}

/* A miss of a thread that has no leased segment any more takes nothing from its magazine. */
static void
test_stacks_keep_their_capacity_without_a_lease(void **state)
{
	struct shared shared = { .size = 512 * KIB };
	uint64_t addresses[EACH], address;
	unsigned capacity;

	start(&shared);
	address = alloc_first(&shared);
	in_thread(take_and_free_pieces, &shared);
	assert_int_equal(ca_free(shared.f.heap, address), 0);
	alloc_each(shared.f.space, 16, EACH, addresses);
	assert_non_null(ca_own.shelf->lease);
	(void)fixture_stats(&shared.f); /* no segment is leased any more */
	for (int i = 0; i < EACH; i++)
		assert_int_equal(ca_free(shared.f.heap, addresses[i]), 0);
	alloc_each(shared.f.space, 16, EACH, addresses);
	capacity = ca_shelf_capacity(ca_own.shelf);
	assert_true(capacity >= EACH * CA_KEPT_STEP);
	assert_int_equal(ca_alloc(shared.f.space, 40 * KIB, &address), 0);
	assert_int_equal(ca_shelf_capacity(ca_own.shelf), capacity);
	assert_int_equal(ca_free(shared.f.heap, address), 0);
	for (int i = 0; i < EACH; i++)
		assert_int_equal(ca_free(shared.f.heap, addresses[i]), 0);
	fixture_check(&shared.f);
	fixture_stop(&shared.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces_in_a_leased_segment_merge_for_others),
		cmocka_unit_test(test_a_forked_child_forgets_leases),
		cmocka_unit_test(test_a_handler_that_allocates_in_another_space),
		cmocka_unit_test(test_a_handler_that_allocates_where_there_were_leases),
		cmocka_unit_test(test_stacks_keep_their_capacity_without_a_lease),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
