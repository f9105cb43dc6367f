/* SPDX-License-Identifier: MIT */
/*
 * Random programs on streams against a naive reference that knows which work touched which memory.
 *
 * Two claims. When memory is handed out, at most one stream's work on it may be unfinished (that
 * stream's was exposed). And when work is submitted, everything it touches that other streams have
 * not finished with must come before it, by whatever waits were inserted.
 */
#include "tests/unit/allocator/fixture.h"

#include <errno.h>

enum { LIVE_MAX = 30, FREED_MAX = 3000, STREAMS_MAX = 60, OPEN_MAX = 6 };

struct piece {
	uint64_t address, size;
	uint64_t work[STREAMS_MAX]; /* the last that touched it, of each stream; 0: none */
	uint64_t foreign;           /* work of no stream of the space */
};

struct stream {
	struct ca_stream *stream;
	bool open;
};

struct program {
	struct fixture f;
	struct stream streams[STREAMS_MAX];
	unsigned n_streams, n_open;
	struct piece live[LIVE_MAX], freed[FREED_MAX];
	unsigned live_count, freed_count;
	unsigned open_max;
	bool capturing, failing;
	uint64_t seed;
	uint64_t reused, exposed, several, ooms, launches;
};

static uint64_t
pick(struct program *p, uint64_t below)
{
	return fixture_random(&p->seed) % below;
}

static void *
name(unsigned stream)
{
	return (void *)((uintptr_t)stream + 100);
}

/* A few sizes, so that what is freed is soon asked for again. */
static uint64_t
random_size(struct program *p)
{
	static const uint64_t sizes[] = { 512,     4096,     700 * KIB, 3 * MIB / 2,
					  3 * MIB, 12 * MIB, 20 * MIB };

	if (pick(p, 8))
		return sizes[pick(p, sizeof(sizes) / sizeof(sizes[0]))];
	return 1 + pick(p, 30 * MIB);
}

static bool
overlap(const struct piece *a, const struct piece *b)
{
	return a->address < b->address + b->size && b->address < a->address + a->size;
}

static bool
is_unfinished(struct program *p, const struct piece *piece, unsigned stream)
{
	return piece->work[stream] > ca_model_stream_finished(p->f.model, name(stream));
}

static bool
is_idle(struct program *p, const struct piece *piece)
{
	unsigned i;

	for (i = 0; i < p->n_streams; i++)
		if (is_unfinished(p, piece, i))
			return false;
	return piece->foreign <= ca_model_finished(p->f.model);
}

static void
forget_idle(struct program *p)
{
	unsigned i;

	for (i = 0; i < p->freed_count;)
		if (is_idle(p, &p->freed[i]))
			p->freed[i] = p->freed[--p->freed_count];
		else
			i++;
}

/* Whatever is submitted to another of the users comes after what stream `j` did to the memory. */
static bool
is_stood_for(struct program *p, const uint64_t *unfinished, unsigned j)
{
	unsigned k;

	for (k = 0; k < p->n_streams; k++)
		if (k != j && unfinished[k] &&
		    ca_model_stream_after(p->f.model, name(k), name(j)) >= unfinished[j])
			return true;
	return false;
}

static void
handed_out(struct program *p, const struct piece *piece)
{
	uint64_t unfinished[STREAMS_MAX] = { 0 };
	unsigned i, j, users = 0;

	for (i = 0; i < p->live_count; i++)
		assert_false(overlap(&p->live[i], piece));
	for (i = 0; i < p->freed_count; i++) {
		if (!overlap(&p->freed[i], piece))
			continue;
		p->reused++;
		if (p->freed[i].foreign > ca_model_finished(p->f.model))
			fail_msg("handed out while another context's work uses it");
		for (j = 0; j < p->n_streams; j++)
			if (is_unfinished(p, &p->freed[i], j) &&
			    unfinished[j] < p->freed[i].work[j])
				unfinished[j] = p->freed[i].work[j];
	}
	for (j = 0; j < p->n_streams; j++)
		users += unfinished[j] && !is_stood_for(p, unfinished, j);
	p->exposed += users != 0;
	p->several += users > 1;
	if (users && p->f.config.reuse_finished)
		fail_msg("exposed under reuse:finished");
	if (users && p->capturing)
		fail_msg("exposed in a capture");
	p->live[p->live_count++] = *piece;
}

static void
do_alloc(struct program *p)
{
	struct piece piece = { .size = random_size(p) };
	int r;

	if (p->live_count == LIVE_MAX)
		return;
	r = ca_alloc(p->f.space, piece.size, &piece.address);
	if (!r) {
		handed_out(p, &piece);
		return;
	}
	if (p->failing)
		return;
	assert_int_equal(r, CA_DRIVER_OUT_OF_MEMORY);
	p->ooms++;
	if (!p->capturing)
		assert_int_equal(ca_drainable_bytes(p->f.space), 0);
}

static void
do_free(struct program *p)
{
	unsigned i;

	if (!p->live_count)
		return;
	forget_idle(p);
	i = (unsigned)pick(p, p->live_count);
	if (ca_free(p->f.heap, p->live[i].address)) {
		assert_true(p->failing);
		return;
	}
	assert_true(p->freed_count < FREED_MAX);
	p->freed[p->freed_count++] = p->live[i];
	p->live[i] = p->live[--p->live_count];
}

static void
open_stream(struct program *p)
{
	struct stream *stream = &p->streams[p->n_streams];

	if (p->n_streams == STREAMS_MAX || p->n_open == p->open_max)
		return;
	if (ca_stream_open(p->f.space, CA_STREAM_NONBLOCKING, name(p->n_streams), true,
			   &stream->stream))
		fail_msg("no stream");
	stream->open = true;
	p->n_streams++;
	p->n_open++;
}

static bool
pick_stream(struct program *p, unsigned *ret_stream)
{
	unsigned i, n = p->n_open ? (unsigned)pick(p, p->n_open) : 0;

	for (i = 0; i < p->n_streams; i++)
		if (p->streams[i].open && !n--) {
			*ret_stream = i;
			return true;
		}
	return false;
}

static void
close_stream(struct program *p)
{
	unsigned i;

	if (!pick_stream(p, &i))
		return;
	ca_stream_close(p->streams[i].stream, pick(p, 4) == 0);
	p->streams[i].open = false;
	p->n_open--;
}

/* Everything that other streams did to the memory comes before the next piece of work. */
static void
check_order(struct program *p, const struct piece *piece, unsigned stream)
{
	unsigned i, j;

	for (i = 0; i < p->freed_count; i++) {
		if (!overlap(&p->freed[i], piece))
			continue;
		for (j = 0; j < p->n_streams; j++)
			if (is_unfinished(p, &p->freed[i], j) &&
			    ca_model_stream_after(p->f.model, name(stream), name(j)) <
				    p->freed[i].work[j])
				fail_msg("stream %u is not behind stream %u", stream, j);
	}
}

static void
do_launch(struct program *p)
{
	struct piece *touched[3];
	unsigned stream, i, n = 0;
	uint64_t work;

	if (!pick_stream(p, &stream))
		return;
	ca_stream_note_thread(p->streams[stream].stream);
	for (i = 0; i < 3 && p->live_count; i++)
		touched[n++] = &p->live[pick(p, p->live_count)];
	if (n && pick(p, 3) == 0) {
		struct ca_touch touch = { .n = 1 };

		touch.range[0].address = touched[0]->address;
		touch.range[0].bytes = touched[0]->size;
		n = 1;
		ca_submit_begin(p->streams[stream].stream, &touch);
	} else {
		ca_submit_begin(p->streams[stream].stream, NULL);
	}
	for (i = 0; i < n; i++)
		check_order(p, touched[i], stream);
	work = ca_model_stream_submit(p->f.model, name(stream));
	for (i = 0; i < n; i++)
		touched[i]->work[stream] = work;
	ca_submit_end(p->streams[stream].stream);
	p->launches++;
}

/* Another space's work on a block of this one. */
static void
do_foreign(struct program *p)
{
	if (!p->live_count)
		return;
	p->live[pick(p, p->live_count)].foreign = ca_model_submit(p->f.model);
	ca_submit_foreign(p->f.space, NULL);
}

/* The program's own synchronisation teaches. */
static void
do_sync(struct program *p)
{
	unsigned stream;
	uint64_t bound;

	if (!pick_stream(p, &stream))
		return;
	bound = ca_order_bound(p->streams[stream].stream);
	ca_model_stream_finish(p->f.model, name(stream), UINT64_MAX);
	ca_order_finished(p->streams[stream].stream, bound);
}

static void
do_finish(struct program *p)
{
	unsigned stream = p->n_streams ? (unsigned)pick(p, p->n_streams) : 0;

	if (p->n_streams)
		ca_model_stream_finish(p->f.model, name(stream),
				       ca_model_stream_finished(p->f.model, name(stream)) +
					       pick(p, 20));
	if (pick(p, 2))
		ca_model_finish(p->f.model, UINT64_MAX);
}

/* Exposed memory gets its marks before a capture begins. */
static void
turn_capture(struct program *p, bool on)
{
	if (on)
		ca_order_mark_before_capture(p->f.heap);
	ca_model_set_capturing(p->f.model, p->capturing = on);
}

static void
step(struct program *p)
{
	unsigned dice = (unsigned)pick(p, 1000);

	if (p->capturing && !pick(p, 30))
		ca_model_set_capturing(p->f.model, p->capturing = false);
	if (dice < 390)
		do_alloc(p);
	else if (dice < 740)
		do_free(p);
	else if (dice < 940)
		do_launch(p);
	else if (dice < 955)
		do_finish(p);
	else if (dice < 962)
		do_sync(p);
	else if (dice < 964)
		do_foreign(p);
	else if (dice < 975)
		open_stream(p);
	else if (dice < 979)
		close_stream(p);
	else if (dice < 985)
		turn_capture(p, !p->capturing && pick(p, 2));
	else if (dice < 988)
		ca_trim(p->f.heap, pick(p, 64 * MIB));
	else if (dice < 991 && p->live_count)
		ca_retire(p->f.heap, p->live[pick(p, p->live_count)].address);
	else if (dice < 993)
		ca_reclaim(p->f.space, random_size(p), NULL);
	else if (dice < 995 && p->live_count)
		ca_register(p->f.heap, p->live[pick(p, p->live_count)].address, 1);
}

static void
program_end(struct program *p)
{
	ca_model_fail(p->f.model, 0, 0, false, 0);
	ca_model_set_capturing(p->f.model, p->capturing = false);
	while (p->live_count)
		do_free(p);
	while (ca_reclaim(p->f.space, GIB, NULL))
		;
	fixture_check(&p->f);
	assert_int_equal(fixture_sums(&p->f).held_bytes, 0);
	ca_space_kill(p->f.space);
	fixture_check(&p->f);
	assert_int_equal(fixture_sums(&p->f).marks, 0);
	fixture_stop(&p->f);
}

static void
program_run(struct program *p, unsigned steps)
{
	unsigned i;

	for (i = 0; i < steps; i++) {
		step(p);
		fixture_check(&p->f);
	}
}

static struct program *
program_new(uint64_t seed, unsigned open_max)
{
	static struct program program;
	static bool early;

	memset(&program, 0, sizeof(program));
	fixture_defaults(&program.f);
	early = !early;
	program.f.config.give_back_oom = !early;
	/* nobody sleeps */
	program.f.pretend.work_ns = (uint64_t)1000 * 1000 * (early ? 1 : 5000);
	program.f.pretend.capacity = 500 * MIB;
	program.open_max = open_max;
	program.seed = seed;
	return &program;
}

static void
run_many(uint64_t seed, unsigned programs, unsigned open_max, uint64_t slack, bool finished)
{
	uint64_t reused = 0, exposed = 0, several = 0, ooms = 0;
	unsigned i;

	seed = fixture_seed(seed);
	for (i = 0; i < FIXTURE_PART(programs); i++) {
		struct program *p = program_new(seed + (uint64_t)i * 7919, open_max);

		p->f.config.reuse_slack_bytes = slack;
		p->f.config.reuse_finished = finished;
		fixture_start(&p->f);
		program_run(p, 1500);
		reused += p->reused;
		exposed += p->exposed;
		several += p->several;
		ooms += p->ooms;
		program_end(p);
	}
	printf("# reused %llu, exposed %llu, of several %llu, out of memory %llu\n",
	       (unsigned long long)reused, (unsigned long long)exposed, (unsigned long long)several,
	       (unsigned long long)ooms);
	if (getenv("CACHEALLOC_TEST_SEED"))
		return;
	assert_true(reused > FIXTURE_PART(100));
	assert_true(finished == !exposed);
}

static void
test_one_stream(void **state)
{
	run_many(5001, 10, 1, 64 * MIB, false);
}

static void
test_several_streams(void **state)
{
	run_many(5002, 10, OPEN_MAX, 64 * MIB, false);
}

static void
test_several_streams_without_slack(void **state)
{
	run_many(5003, 10, OPEN_MAX, 0, false);
}

static void
test_several_streams_with_any_slack(void **state)
{
	run_many(5004, 10, OPEN_MAX, UINT64_MAX, false);
}

static void
test_finished_memory_only(void **state)
{
	run_many(5005, 10, 3, 0, true);
}

/* The n-th call of a driver function fails, n = 1, 2, ... until a whole run meets no failure. */
static void
fail_each(enum ca_model_function function, bool for_ever, int code)
{
	unsigned n, reached = 0;
	bool failed = true;

	for (n = 1; failed && n < 400; n += FIXTURE_FAIL_STEP) {
		struct program *p = program_new(fixture_seed(6000 + (uint64_t)function), 3);

		p->failing = true;
		p->f.pretend.capacity = 160 * MIB;
		p->f.pretend.work_ns = (uint64_t)5 * 1000 * 1000 * 1000;
		p->f.config.give_back_oom = true;
		p->f.config.reuse_slack_bytes = 0;
		fixture_start(&p->f);
		ca_model_fail(p->f.model, function, n, for_ever, code);
		program_run(p, 500);
		failed = ca_model_failed(p->f.model);
		reached += failed;
		program_end(p);
	}
	if (!getenv("CACHEALLOC_TEST_SEED"))
		assert_true(reached > 0);
}

static void
test_marks_that_fail(void **state)
{
	fail_each(CA_MODEL_STREAM_MARK, false, 700);
	fail_each(CA_MODEL_STREAM_MARK, true, 700);
	fail_each(CA_MODEL_STREAM_MARK, false, -EBUSY);
	fail_each(CA_MODEL_STREAM_MARK, false, -ENOMEM);
	fail_each(CA_MODEL_RECORD, false, 700);
}

static void
test_waits_that_fail(void **state)
{
	fail_each(CA_MODEL_STREAM_WAIT, false, 700);
	fail_each(CA_MODEL_STREAM_WAIT, true, -ENOTSUP);
	fail_each(CA_MODEL_WAIT, true, 700);
	fail_each(CA_MODEL_QUERY, false, 700);
	fail_each(CA_MODEL_QUERY, true, 700);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_stream),
		cmocka_unit_test(test_several_streams),
		cmocka_unit_test(test_several_streams_without_slack),
		cmocka_unit_test(test_several_streams_with_any_slack),
		cmocka_unit_test(test_finished_memory_only),
		cmocka_unit_test(test_marks_that_fail),
		cmocka_unit_test(test_waits_that_fail),
	};

	return cmocka_run_group_tests_name("allocator-streams-property", tests, NULL, NULL);
}
