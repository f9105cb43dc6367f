/* SPDX-License-Identifier: MIT */
/*
 * Random programs against a naive reference: a list of live blocks, and a list of freed ranges with
 * the last piece of work that used them. Whatever is handed out must overlap no live block, and no
 * freed range whose work is unfinished (in a capture: none that was ever handed out and not given
 * back).
 */
#define FIXTURE_UNSEEN
#include "tests/unit/allocator/fixture.h"

#include <errno.h>

enum { LIVE_MAX = 200, FREED_MAX = 4000, CONTEXTS = 2 };

struct piece {
	uint64_t address;
	uint64_t size;
	uint64_t work; /* last that may use it */
	unsigned slot; /* context */
};

struct program {
	struct fixture f;
	struct ca_space *spaces[CONTEXTS];
	void *contexts[CONTEXTS];
	uintptr_t next_context;
	struct piece live[LIVE_MAX];
	unsigned live_count;
	struct piece freed[FREED_MAX];
	unsigned freed_count;
	bool capturing;
	bool failing; /* injected failures: other codes than out of memory are expected */
	uint64_t seed;
	uint64_t allocs, ooms, reused, kills;
};

static uint64_t
pick(struct program *p, uint64_t below)
{
	return fixture_random(&p->seed) % below;
}

static uint64_t
random_size(struct program *p)
{
	switch (pick(p, 6)) {
	case 0:
		return 1 + pick(p, 4096);
	case 1:
		return 1 + pick(p, MIB);
	case 2:
		return MIB + pick(p, MIB);
	case 3:
		return 2 * MIB + pick(p, 9) * 512 * KIB;
	case 4:
		return 1 + pick(p, 12 * MIB);
	default:
		return 1 + pick(p, 60 * MIB);
	}
}

static bool
overlap(const struct piece *a, uint64_t address, uint64_t size)
{
	return a->address < address + size && address < a->address + a->size;
}

static void
handed_out(struct program *p, unsigned slot, uint64_t address, uint64_t size)
{
	uint64_t finished = ca_model_finished(p->f.model);
	unsigned i;

	for (i = 0; i < p->live_count; i++)
		assert_false(overlap(&p->live[i], address, size));
	for (i = 0; i < p->freed_count;) {
		if (!overlap(&p->freed[i], address, size)) {
			i++;
			continue;
		}
		if (p->freed[i].work > finished)
			fail_msg("handed out while piece %llu of work still uses it",
				 (unsigned long long)p->freed[i].work);
		p->reused++;
		p->freed[i] = p->freed[--p->freed_count];
	}
	assert_int_equal(address % 512, 0);
	if (size >= 2 * MIB && p->f.pretend.alignment == 2 * MIB)
		assert_int_equal(address % (64 << 10), 0);
	p->live[p->live_count++] =
		(struct piece){ address, size, ca_model_submit(p->f.model), slot };
}

static void
do_alloc(struct program *p)
{
	unsigned slot = (unsigned)pick(p, CONTEXTS);
	uint64_t size = random_size(p), address = 0,
		 takes = fixture_sums(&p->f).calls[CA_MODEL_TAKE];
	int r;

	if (p->live_count == LIVE_MAX)
		return;
	r = ca_alloc(p->spaces[slot], size, &address);
	p->allocs++;
	if (!r) {
		if (p->capturing)
			assert_int_equal(fixture_sums(&p->f).calls[CA_MODEL_TAKE], takes + 1);
		handed_out(p, slot, address, size);
		return;
	}
	assert_int_equal(address, 0);
	if (p->failing && r != CA_DRIVER_OUT_OF_MEMORY)
		return;
	assert_int_equal(r, CA_DRIVER_OUT_OF_MEMORY);
	p->ooms++;
	if (!p->capturing && !p->failing) {
		/* nothing of ours was left to give, on this device */
		assert_int_equal(ca_drainable_bytes(p->spaces[slot]), 0);
		assert_int_equal(fixture_stats(&p->f).pending_blocks, 0);
	}
}

static void
do_free(struct program *p)
{
	unsigned i;
	int r;

	if (!p->live_count)
		return;
	i = (unsigned)pick(p, p->live_count);
	if (pick(p, 2))
		p->live[i].work = ca_model_submit(p->f.model);
	r = ca_free(p->f.heap, p->live[i].address);
	if (r) {
		assert_true(p->failing && r > 0); /* stays live */
		return;
	}
	if (p->freed_count < FREED_MAX)
		p->freed[p->freed_count++] = p->live[i];
	p->live[i] = p->live[--p->live_count];
}

static void
do_kill(struct program *p)
{
	unsigned slot = (unsigned)pick(p, CONTEXTS), i;

	for (i = 0; i < p->live_count;)
		if (p->live[i].slot == slot)
			p->live[i] = p->live[--p->live_count];
		else
			i++;
	for (i = 0; i < p->freed_count;)
		if (p->freed[i].slot == slot)
			p->freed[i] = p->freed[--p->freed_count];
		else
			i++;
	ca_model_context_destroy(p->f.model, p->contexts[slot]);
	ca_space_kill(p->spaces[slot]);
	p->contexts[slot] = (void *)++p->next_context;
	assert_int_equal(ca_space_create(p->f.heap, p->contexts[slot], 0, &p->spaces[slot]), 0);
	p->kills++;
}

static void
do_adopt(struct program *p)
{
	unsigned slot = (unsigned)pick(p, CONTEXTS);
	uint64_t size = random_size(p), address;

	if (p->live_count == LIVE_MAX || p->failing)
		return;
	if (p->f.driver.segment_take(p->f.model, p->contexts[slot], size, &address))
		return;
	assert_int_equal(ca_track_foreign(p->spaces[slot], address, size, size - 1), 0);
	handed_out(p, slot, address, size);
}

static void
do_bad_free(struct program *p)
{
	const struct piece *piece;
	int r;

	if (!p->freed_count)
		return;
	piece = &p->freed[pick(p, p->freed_count)];
	r = ca_free(p->f.heap, piece->address + 1);
	assert_true(r == -EINVAL || r == -ENOENT);
}

static void
step(struct program *p)
{
	unsigned dice = (unsigned)pick(p, 1000);

	if (dice < 480)
		do_alloc(p);
	else if (dice < 880)
		do_free(p);
	else if (dice < 920)
		ca_model_finish(p->f.model, ca_model_finished(p->f.model) + pick(p, 40));
	else if (dice < 935)
		ca_model_set_capturing(p->f.model, p->capturing = !p->capturing && pick(p, 2));
	else if (dice < 950)
		do_bad_free(p);
	else if (dice < 960)
		do_adopt(p);
	else if (dice < 970 && p->live_count)
		ca_retire(p->f.heap, p->live[pick(p, p->live_count)].address + 1);
	else if (dice < 980)
		ca_trim(p->f.heap, pick(p, 64 * MIB));
	else if (dice < 982)
		do_kill(p);
	else if (dice < 990)
		ca_reclaim(p->spaces[0], random_size(p), NULL);
}

static void
live_check(struct program *p)
{
	struct ca_stats stats = fixture_stats(&p->f);
	uint64_t requested = 0, foreign = 0;
	struct ca_block_info info;
	unsigned i;

	for (i = 0; i < p->live_count; i++) {
		assert_int_equal(
			ca_lookup(p->f.heap, p->live[i].address + p->live[i].size - 1, &info), 0);
		assert_int_equal(info.address, p->live[i].address);
		assert_true(info.live);
		assert_ptr_equal(info.space, p->spaces[p->live[i].slot]);
		requested += p->live[i].size;
		foreign += info.foreign;
	}
	assert_int_equal(stats.requested_bytes.current + foreign, requested);
	assert_true(stats.reserved_bytes.peak <= fixture_sums(&p->f).peak_bytes);
}

static void
program_run(struct program *p, unsigned steps)
{
	unsigned i;

	fixture_start(&p->f);
	p->spaces[0] = p->f.space;
	p->contexts[0] = (void *)1;
	p->contexts[1] = (void *)2;
	p->next_context = 2;
	assert_int_equal(ca_space_create(p->f.heap, p->contexts[1], 0, &p->spaces[1]), 0);
	for (i = 0; i < steps; i++) {
		step(p);
		fixture_check(&p->f);
		if (i % 50 == 0)
			live_check(p);
	}
	/* everything can be given back */
	ca_model_set_capturing(p->f.model, p->capturing = false);
	p->failing = false;
	while (p->live_count)
		do_free(p);
	ca_model_finish(p->f.model, UINT64_MAX);
	ca_trim(p->f.heap, 0);
	while (ca_reclaim(p->spaces[0], GIB, NULL))
		;
	fixture_check(&p->f);
	assert_int_equal(fixture_sums(&p->f).held_bytes, 0);
	assert_int_equal(fixture_sums(&p->f).marks, 0);
	fixture_stop(&p->f);
}

static struct program *
program_new(uint64_t seed)
{
	static struct program program;
	static bool early;

	memset(&program, 0, sizeof(program));
	fixture_defaults(&program.f);
	early = !early;
	program.f.config.give_back_oom = !early;
	/* nobody sleeps */
	program.f.pretend.work_ns = (uint64_t)1000 * 1000 * (early ? 1 : 5000);
	program.f.pretend.capacity = 600 * MIB;
	program.seed = fixture_seed(seed);
	return &program;
}

static void
test_marks(void **state)
{
	struct program *p = program_new(1001);

	program_run(p, 6000);
	/* the program must have been worth running */
	assert_true(p->reused > 100 && p->ooms > 10 && p->kills > 2);
}

static void
test_no_marks(void **state)
{
	struct program *p = program_new(1002);

	p->f.pretend.no_marks = true;
	program_run(p, 6000);
	assert_true(p->reused > 100 && p->ooms > 10);
}

static void
test_unaligned_driver(void **state)
{
	struct program *p = program_new(1003);

	p->f.pretend.alignment = 512;
	p->f.pretend.granularity = 512;
	p->f.config.reuse_slack_bytes = 0;
	program_run(p, 6000);
	assert_true(p->reused > 100);
}

static void
test_oversize_blocks(void **state)
{
	struct program *p = program_new(1004);

	p->f.config.max_split_size_bytes = 24 * MIB;
	p->f.config.reuse_slack_bytes = UINT64_MAX;
	program_run(p, 6000);
	assert_true(p->reused > 100);
}

static bool no_marks;

/* The n-th call of a driver function fails, n = 1, 2, ... until a whole run meets no failure. */
static void
fail_each(enum ca_model_function function, bool for_ever, int code, const char *name)
{
	unsigned n, reached = 0;

	for (n = 1;; n += FIXTURE_FAIL_STEP) {
		struct program *p = program_new(2000 + (uint64_t)function);
		bool failed;
		unsigned i;

		p->failing = true;
		p->f.pretend.capacity = 200 * MIB;
		p->f.pretend.no_marks = no_marks;
		if (no_marks)
			p->f.config.reuse_slack_bytes = 0;
		fixture_start(&p->f);
		p->spaces[0] = p->f.space;
		p->contexts[0] = (void *)1;
		p->contexts[1] = (void *)2;
		p->next_context = 2;
		assert_int_equal(ca_space_create(p->f.heap, p->contexts[1], 0, &p->spaces[1]), 0);
		ca_model_fail(p->f.model, function, n, for_ever, code);
		for (i = 0; i < 400; i++) {
			step(p);
			fixture_check(&p->f);
		}
		failed = ca_model_failed(p->f.model);
		reached += failed;
		ca_model_fail(p->f.model, function, 0, false, 0);
		ca_model_set_capturing(p->f.model, p->capturing = false);
		while (p->live_count)
			do_free(p);
		while (ca_reclaim(p->spaces[0], GIB, NULL))
			;
		ca_trim(p->f.heap, 0);
		fixture_check(&p->f);
		assert_int_equal(fixture_sums(&p->f).held_bytes, 0);
		fixture_stop(&p->f);
		if (!failed)
			break;
	}
	printf("# %s: %u runs with a failure\n", name, reached);
	if (!getenv("CACHEALLOC_TEST_SEED")) /* a seed of somebody's choice may never get there */
		assert_true(reached > 0);
}

static void
test_take_fails(void **state)
{
	fail_each(CA_MODEL_TAKE, false, 700, "take");
	fail_each(CA_MODEL_TAKE, false, CA_DRIVER_OUT_OF_MEMORY, "take, out of memory");
}

static void
test_return_fails(void **state)
{
	fail_each(CA_MODEL_RETURN, false, 700, "return");
	fail_each(CA_MODEL_RETURN, true, 700, "return for ever");
}

static void
test_record_fails(void **state)
{
	fail_each(CA_MODEL_RECORD, false, 700, "record");
	fail_each(CA_MODEL_RECORD, false, -ENOMEM, "record without memory");
	fail_each(CA_MODEL_RECORD, true, 700, "record for ever");
	fail_each(CA_MODEL_RECORD, true, -EIO, "record for ever, another context");
}

static void
test_query_and_wait_fail(void **state)
{
	fail_each(CA_MODEL_QUERY, false, 700, "query");
	fail_each(CA_MODEL_QUERY, true, 700, "query for ever");
	fail_each(CA_MODEL_QUERY, true, -EIO, "query for ever, another context");
	fail_each(CA_MODEL_WAIT, false, 700, "wait");
}

/* Without marks every wait is a synchronisation; when it fails, or another context makes it fail,
 * the space is poisoned, and all its memory still goes back in the end. */
static void
test_synchronize_fails(void **state)
{
	no_marks = true;
	fail_each(CA_MODEL_SYNCHRONIZE, false, 700, "synchronize");
	fail_each(CA_MODEL_SYNCHRONIZE, true, 700, "synchronize for ever");
	fail_each(CA_MODEL_SYNCHRONIZE, true, -EIO, "synchronize for ever, another context");
	no_marks = false;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_marks),
		cmocka_unit_test(test_no_marks),
		cmocka_unit_test(test_unaligned_driver),
		cmocka_unit_test(test_oversize_blocks),
		cmocka_unit_test(test_take_fails),
		cmocka_unit_test(test_return_fails),
		cmocka_unit_test(test_record_fails),
		cmocka_unit_test(test_query_and_wait_fail),
		cmocka_unit_test(test_synchronize_fails),
	};

	return cmocka_run_group_tests_name("allocator-property", tests, NULL, NULL);
}
