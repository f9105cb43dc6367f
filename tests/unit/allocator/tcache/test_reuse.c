/* SPDX-License-Identifier: MIT */
/* Freed memory that is asked for again at once, and how a free finds its block. */
#include "tests/unit/allocator/fixture.h"

#include <errno.h>

enum { MANY = 40, LIVE_MAX = 64, STEPS = 4000 };

static void
test_the_latest_freed_serves_first(void **state)
{
	uint64_t blocks[4];
	struct fixture f;
	int i;

	fixture_defaults(&f);
	fixture_start(&f);
	for (i = 0; i < 4; i++)
		blocks[i] = fixture_alloc(&f, 64 * KIB);
	for (i = 0; i < 4; i++)
		fixture_free(&f, blocks[i]);
	assert_int_equal(fixture_stats(&f).cached_bytes.current, 2 * MIB);
	for (i = 3; i >= 0; i--)
		assert_int_equal(fixture_alloc(&f, 64 * KIB), blocks[i]);
	assert_int_equal(fixture_stats(&f).taken_clean, 7);
	assert_int_equal(fixture_stats(&f).driver_alloc_calls, 1);
	fixture_stop(&f);
}

static void
test_another_size_finds_all_merged(void **state)
{
	uint64_t blocks[MANY], sum = 0;
	struct fixture f;
	int i;

	fixture_defaults(&f);
	fixture_start(&f);
	for (i = 0; i < 32; i++)
		blocks[i] = fixture_alloc(&f, 64 * KIB);
	for (i = 0; i < 32; i++)
		fixture_free(&f, blocks[i ^ 5]);
	for (i = 0; i < 2; i++) {
		fixture_alloc(&f, MIB);
		sum += MIB;
	}
	assert_int_equal(fixture_stats(&f).reserved_bytes.current, sum);
	fixture_stop(&f);
}

/* Sizes that share a place, and more blocks of one than it holds. */
static void
test_many_sizes_are_all_found_again(void **state)
{
	uint64_t blocks[MANY * 5];
	struct fixture f;
	int i, sizes;

	fixture_defaults(&f);
	fixture_start(&f);
	for (sizes = 1; sizes <= 5; sizes += 4) {
		uint64_t held;

		for (i = 0; i < MANY * sizes; i++)
			blocks[i] = fixture_alloc(&f, (uint64_t)(1 + i % (MANY * 5 / 2)) * 512);
		held = fixture_stats(&f).reserved_bytes.current;
		for (i = 0; i < MANY * sizes; i++)
			fixture_free(&f, blocks[i]);
		for (i = MANY * sizes; i-- > 0;)
			blocks[i] = fixture_alloc(&f, 512);
		assert_int_equal(fixture_stats(&f).reserved_bytes.current, held);
		for (i = 0; i < MANY * sizes; i++)
			fixture_free(&f, blocks[i]);
		assert_int_equal(ca_trim(f.heap, 0), held);
		fixture_check(&f);
	}
	fixture_stop(&f);
}

/* Blocks of two segments lie in one place; those of one leave it from between the others. */
static void
test_a_retired_segment_serves_nothing(void **state)
{
	uint64_t blocks[8];
	struct fixture f;
	int i;

	fixture_defaults(&f);
	fixture_start(&f);
	for (i = 0; i < 8; i++)
		blocks[i] = fixture_alloc(&f, MIB / 2);
	for (i = 0; i < 3; i++) {
		fixture_free(&f, blocks[i]);
		fixture_free(&f, blocks[4 + i]);
	}
	assert_int_equal(ca_retire(f.heap, blocks[3]), 0);
	fixture_check(&f);
	for (i = 0; i < 3; i++) /* in whatever order */
		assert_true(fixture_alloc(&f, MIB / 2) - blocks[4] <= blocks[6] - blocks[4]);
	assert_true(fixture_alloc(&f, MIB / 2) - (blocks[0] & ~(2 * MIB - 1)) >= 2 * MIB);
	fixture_stop(&f);
}

/* 2.125 MiB less 32 KiB, of which a request for less got all, do not begin on a boundary. */
static void
test_two_mib_begin_on_a_boundary(void **state)
{
	struct fixture f;
	uint64_t block;
	int i;

	fixture_defaults(&f);
	fixture_start(&f);
	for (i = 0; i < 13; i++)
		fixture_alloc(&f, MIB + MIB / 4);
	fixture_alloc(&f, MIB + 5 * MIB / 8 + 32 * KIB);
	block = fixture_alloc(&f, 2 * MIB - MIB / 16);
	assert_int_equal(fixture_stats(&f).cached_bytes.current, 0);
	fixture_free(&f, block);
	assert_int_not_equal(block % (64 * KIB), 0);
	assert_int_equal(fixture_alloc(&f, 2 * MIB + MIB / 8 - 32 * KIB) % (64 * KIB), 0);
	assert_int_equal(fixture_alloc(&f, 2 * MIB - MIB / 16), block);
	fixture_stop(&f);
}

/* What was ALLOCATED at an address is not what is there now. */
static void
test_an_address_is_freed_once(void **state)
{
	struct fixture f;
	uint64_t block;

	fixture_defaults(&f);
	fixture_start(&f);
	block = fixture_alloc(&f, 4 * MIB);
	assert_int_equal(ca_free(f.heap, block + 512), -EINVAL);
	fixture_free(&f, block);
	assert_int_equal(ca_free(f.heap, block), -EINVAL);
	assert_int_equal(ca_trim(f.heap, 0), 20 * MIB);
	assert_int_equal(ca_free(f.heap, block), -ENOENT);
	block = fixture_alloc(&f, 4 * MIB);
	ca_model_context_destroy(f.model, (void *)1);
	ca_space_kill(f.space);
	assert_int_equal(ca_free(f.heap, block), -ENOENT);
	fixture_check(&f);
	fixture_stop(&f);
}

struct program {
	struct fixture f;
	uint64_t seed;
	uintptr_t context;
	struct {
		uint64_t address, size;
	} live[LIVE_MAX];
	unsigned count;
};

static uint64_t
pick(struct program *p, uint64_t below)
{
	return fixture_random(&p->seed) % below;
}

static void
take(struct program *p)
{
	static const uint64_t sizes[] = { 512,       1536,    64 * KIB,        MIB,
					  5 * KIB,   2 * MIB, MIB + 512 * KIB, 3 * MIB + 512,
					  300 * KIB, 12 * MIB };
	uint64_t size = sizes[pick(p, 10)], address;
	unsigned i;

	assert_int_equal(ca_alloc(p->f.space, size, &address), 0);
	for (i = 0; i < p->count; i++)
		assert_true(address + size <= p->live[i].address ||
			    p->live[i].address + p->live[i].size <= address);
	p->live[p->count].address = address;
	p->live[p->count++].size = size;
}

static void
give(struct program *p)
{
	unsigned i = (unsigned)pick(p, p->count);
	uint64_t address = p->live[i].address;

	if (!pick(p, 200))
		assert_int_equal(ca_retire(p->f.heap, address), 0);
	assert_int_equal(ca_free(p->f.heap, address), 0);
	p->live[i] = p->live[--p->count];
	assert_true(ca_free(p->f.heap, address) < 0);
}

static void
step(struct program *p)
{
	struct ca_block_info info;

	if (!pick(p, 300)) {
		ca_model_context_destroy(p->f.model, (void *)p->context++);
		ca_space_kill(p->f.space);
		p->count = 0;
		assert_int_equal(ca_space_create(p->f.heap, (void *)p->context, 0, &p->f.space), 0);
	} else if (!pick(p, 100)) {
		ca_trim(p->f.heap, pick(p, 2) ? 0 : 16 * MIB);
	} else if (p->count < LIVE_MAX && (!p->count || pick(p, 2))) {
		take(p);
	} else {
		give(p);
	}
	if (p->count) {
		unsigned i = (unsigned)pick(p, p->count);

		assert_int_equal(ca_lookup(p->f.heap, p->live[i].address + 511, &info), 0);
		assert_true(info.live && info.address == p->live[i].address);
	}
	fixture_check(&p->f);
}

static void
test_random_programs_keep_the_invariants(void **state)
{
	struct program p = { .seed = fixture_seed(0x9a4c), .context = 1 };
	int i;

	fixture_defaults(&p.f);
	fixture_start(&p.f);
	for (i = 0; i < STEPS; i++)
		step(&p);
	assert_true(fixture_stats(&p.f).taken_clean > STEPS / 10);
	fixture_stop(&p.f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_latest_freed_serves_first),
		cmocka_unit_test(test_another_size_finds_all_merged),
		cmocka_unit_test(test_many_sizes_are_all_found_again),
		cmocka_unit_test(test_a_retired_segment_serves_nothing),
		cmocka_unit_test(test_two_mib_begin_on_a_boundary),
		cmocka_unit_test(test_an_address_is_freed_once),
		cmocka_unit_test(test_random_programs_keep_the_invariants),
	};

	return cmocka_run_group_tests_name("allocator-park", tests, NULL, NULL);
}
