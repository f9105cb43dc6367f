/* SPDX-License-Identifier: MIT */
/*
 * What order costs: programs whose driver calls test_charge.py compares with the native run, and
 * whose memory it looks at. Some print what they saw. Those in the second table would hang
 * natively, where a free waits for everybody; they end with the library.
 */
#include <stdatomic.h>

#include "tests/process/order/order.h"

enum { AHEAD = 1000, ROUNDS = 100, FORKED_MAX = 30 };

/* Exported by the simulated driver. */
unsigned long long simcuda_step(unsigned long long n);

static CUstream s, r;
static volatile uint32_t *word;

static void
two_streams(void)
{
	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	word = order_word();
}

/* ------------------------------------------------------------ one stream --- */
static void
run_ahead(CUstream stream)
{
	CUdeviceptr x = order_take(BIG), y;

	for (uint32_t i = 0; i < AHEAD; i++) {
		y = order_take(BIG);
		order_fill(y, i, 0, stream);
		order_check(y, i, stream);
		order_give(x);
		x = y;
	}
	order_give(x);
	order_end();
}

static void
one_legacy_stream(void)
{
	order_start();
	run_ahead(NULL);
}

static void
one_created_stream(void)
{
	order_start();
	run_ahead(order_stream(NONBLOCKING));
}

static void
one_blocking_stream(void)
{
	order_start();
	run_ahead(order_stream(BLOCKING));
}

static void
one_per_thread_stream(void)
{
	CUdeviceptr x;

	order_start();
	for (uint32_t i = 0; i < AHEAD; i++) {
		x = order_take(BIG);
		order_fill_ptsz(x, i, 0, NULL);
		order_check_ptsz(x, i, NULL);
		order_give(x);
	}
	order_end();
}

/* Kernels, sets and copies, of blocks of all sizes that live for a while. */
static void
one_stream_all_sizes(void)
{
	CUdeviceptr blocks[8] = { 0 };
	CUstream stream;
	void *pinned;

	order_start();
	stream = order_stream(NONBLOCKING);
	OK(cuMemHostAlloc(&pinned, WORDS * 4, 0));
	memset(pinned, 0, WORDS * 4);
	for (uint32_t i = 0; i < AHEAD; i++) {
		CUdeviceptr *block = &blocks[i * 5 % 8];

		if (*block)
			order_give(*block);
		*block = order_take((size_t)(1 + i * 7 % 97) * 64 * 1024);
		if (i % 4 == 0)
			OK(cuMemcpyHtoDAsync_v2(*block, pinned, WORDS * 4, stream));
		else if (i % 4 == 1)
			OK(cuMemsetD32Async(*block, i, WORDS, stream));
		else
			order_use(*block, i, stream);
		if (i % 16 == 2)
			OK(cuMemcpyDtoHAsync_v2(pinned, *block, WORDS * 4, stream));
	}
	order_end();
}

static void
on_the_shared_stream(int number)
{
	CUdeviceptr x;

	for (uint32_t i = 0; i < AHEAD / 2; i++) {
		x = order_take(BIG);
		order_use(x, i, s);
		order_give(x);
	}
}

static void
one_stream_and_two_threads(void)
{
	order_start();
	s = order_stream(NONBLOCKING);
	order_threads(2, on_the_shared_stream);
	order_end();
}

/* ------------------------------------------------- well-ordered programs --- */
static void
fork_and_join(void)
{
	CUevent forked, joined;
	CUdeviceptr x, y;

	two_streams();
	forked = order_event();
	joined = order_event();
	for (uint32_t i = 0; i < ROUNDS; i++) {
		x = order_take(BIG);
		y = order_take(BIG);
		order_use(x, i, s);
		OK(cuEventRecord(forked, s));
		OK(cuStreamWaitEvent(r, forked, 0));
		order_copy(y, x, 0, r);
		order_check(y, i, r);
		OK(cuEventRecord(joined, r));
		order_check(x, i, s);
		OK(cuStreamWaitEvent(s, joined, 0));
		order_check(y, i, s);
		order_give(x);
		order_give(y);
	}
	order_end();
}

/* One stream forks `n` others, each with a buffer of its own, and joins them. */
static void
fork_and_join_many(int n)
{
	CUevent forked, joined[FORKED_MAX];
	CUstream forks[FORKED_MAX];
	CUdeviceptr x, y[FORKED_MAX];
	int i;

	order_start();
	s = order_stream(NONBLOCKING);
	forked = order_event();
	for (i = 0; i < n; i++) {
		forks[i] = order_stream(NONBLOCKING);
		joined[i] = order_event();
	}
	for (uint32_t round = 0; round < ROUNDS / 2; round++) {
		x = order_take(PART);
		order_fill(x, round, 0, s);
		OK(cuEventRecord(forked, s));
		for (i = 0; i < n; i++) {
			OK(cuStreamWaitEvent(forks[i], forked, 0));
			y[i] = order_take(PART);
			order_copy(y[i], x, 0, forks[i]);
			OK(cuEventRecord(joined[i], forks[i]));
		}
		for (i = 0; i < n; i++)
			OK(cuStreamWaitEvent(s, joined[i], 0));
		for (i = 0; round % 2 && i < n; i++) /* else its waits are all that s does */
			order_check(y[i], round, s);
		for (i = 0; i < n; i++)
			order_give(y[i]);
		order_give(x);
	}
	order_end();
}

static void
fork_and_join_3(void)
{
	fork_and_join_many(3);
}

static void
fork_and_join_12(void)
{
	fork_and_join_many(12);
}

static void
fork_and_join_30(void)
{
	fork_and_join_many(30);
}

/* A copy stream fills one of two sets of buffers while the compute stream works on the other. */
static void
copy_and_compute(void)
{
	CUevent copied[2], computed[2];
	void *pinned;

	two_streams();
	OK(cuMemHostAlloc(&pinned, WORDS * 4, 0));
	memset(pinned, 0, WORDS * 4);
	for (int i = 0; i < 2; i++) {
		copied[i] = order_event();
		computed[i] = order_event();
	}
	for (uint32_t i = 0; i < ROUNDS; i++) {
		CUdeviceptr x;

		OK(cuStreamWaitEvent(r, computed[i % 2], 0));
		x = order_take(BIG);
		OK(cuMemcpyHtoDAsync_v2(x, pinned, WORDS * 4, r));
		OK(cuEventRecord(copied[i % 2], r));
		OK(cuStreamWaitEvent(s, copied[i % 2], 0));
		order_check(x, 0, s);
		OK(cuEventRecord(computed[i % 2], s));
		order_give(x);
	}
	order_end();
}

/* --------------------------------------------------------------- overlap --- */
static void
say_whether_busy(CUstream stream)
{
	printf("%s\n", cuStreamQuery(stream) == CUDA_ERROR_NOT_READY ? "busy" : "idle");
}

/* Compute is never finished (manual clock); the prefetch into fresh buffers is. */
static void
prefetch_overlaps(void)
{
	CUdeviceptr x, y;
	void *pinned;

	two_streams();
	OK(cuMemHostAlloc(&pinned, WORDS * 4, 0));
	memset(pinned, 0, WORDS * 4);
	x = order_take(BIG);
	order_fill(x, 1, 0, r);
	OK(cuStreamSynchronize(r));
	for (int i = 0; i < 8; i++) {
		order_fill(x, 1, 0, s);
		order_give(x);
		y = order_take(BIG);
		OK(cuMemcpyHtoDAsync_v2(y, pinned, WORDS * 4, r));
		OK(cuStreamSynchronize(r));
		x = y;
	}
	say_whether_busy(s);
	order_end();
}

/* A stream that is always busy, and has used what was freed, beside one that computes (manual
 * clock). */
static void
communication_is_not_waited_for(void)
{
	CUdeviceptr x;

	two_streams();
	for (int i = 0; i < 3; i++) {
		x = order_take(BIG);
		order_fill(x, 1, 0, r);
		order_give(x);
	}
	for (uint32_t i = 0; i < ROUNDS; i++) {
		x = order_take(BIG);
		order_use(x, i, s);
		order_give(x);
		if (i % 10 == 0)
			OK(cuStreamSynchronize(s));
	}
	OK(cuStreamSynchronize(s));
	say_whether_busy(r);
	order_end();
}

/* ------------------------------------------------------------ who finds it --- */
static void
say_whether_found(CUdeviceptr x)
{
	CUdeviceptr y = order_take(BIG);

	printf("%s\n", x == y ? "found" : "new");
	order_use(y, 2, r);
	OK(cuStreamSynchronize(r));
	order_give(y);
	OK(cuCtxSynchronize());
}

static CUdeviceptr
used_by(CUstream stream)
{
	CUdeviceptr x = order_take(BIG);

	order_fill(x, 1, 0, stream);
	return x;
}

/* Memory of s is found from r as soon as s is known to have finished. */
static void
found_after_synchronisation(void)
{
	CUdeviceptr x;
	CUevent event;

	two_streams();
	event = order_event();
	order_give(used_by(r));
	OK(cuCtxSynchronize());
	for (int way = 0; way < 4; way++) {
		x = used_by(s);
		OK(cuEventRecord(event, s));
		order_give(x);
		if (way == 0)
			OK(cuStreamSynchronize(s));
		else if (way == 1)
			OK(cuEventSynchronize(event));
		else if (way == 2)
			OK(cuCtxSynchronize());
		while (way == 3 && cuStreamQuery(s) != CUDA_SUCCESS)
			simcuda_step(1);
		say_whether_found(x);
	}
	order_end();
}

/* Takes until it is `x`: the library has to notice by itself that it has finished. */
static bool
turns_up(CUdeviceptr x)
{
	CUdeviceptr kept[60];
	bool found = false;
	int n = 0;

	while (!found && n < 60) {
		simcuda_step(100);
		order_sleep(200 * (unsigned)n);
		kept[n] = order_take(BIG);
		found = kept[n++] == x;
	}
	while (n)
		order_give(kept[--n]);
	return found;
}

static void
found_without_the_programs_help(void)
{
	CUdeviceptr x;

	two_streams();
	order_fill(order_take(BIG), 1, 0, r);
	x = used_by(s);
	order_give(x);
	printf("%s\n", turns_up(x) ? "found" : "lost");
	order_end();
}

/* The stream is destroyed before or after the free. */
static void
found_although_its_stream_is_gone(void)
{
	CUdeviceptr x;

	two_streams();
	order_fill(order_take(BIG), 1, 0, r);
	for (int i = 0; i < 4; i++) {
		x = used_by(s);
		if (i % 2)
			OK(cuStreamDestroy_v2(s));
		order_give(x);
		if (i % 2 == 0)
			OK(cuStreamDestroy_v2(s));
		s = order_stream(NONBLOCKING);
		printf("%s\n", turns_up(x) ? "found" : "lost");
		OK(cuCtxSynchronize());
	}
	order_end();
}

/* A hundred streams one after the other, each with memory of its own. */
static void
nothing_is_stranded_on_dead_streams(void)
{
	two_streams();
	for (int i = 0; i < ROUNDS; i++) {
		CUstream one = order_stream(i % 2);

		order_give(used_by(one));
		OK(cuStreamDestroy_v2(one));
		if (i % 2)
			OK(cuCtxSynchronize());
	}
	order_end();
}

/* r never finishes what it has of the first block (manual clock); s goes on and on. */
static void
a_busy_second_stream(void)
{
	CUdeviceptr x;

	two_streams();
	order_give(used_by(r));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		x = order_take(BIG);
		order_use(x, i, s);
		order_give(x);
	}
	order_end();
}

/* The same with two threads, each on its stream (real clock). */
static void
own_stream_for_each(int number)
{
	CUdeviceptr x;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		x = order_take(BIG);
		order_fill(x, i, 20, number ? s : r);
		order_check(x, i, number ? s : r);
		order_give(x);
	}
}

static void
two_independent_threads(void)
{
	two_streams();
	order_threads(2, own_stream_for_each);
	order_end();
}

/* Kernels, then nothing but frees and allocations: no hidden waits. */
static void
steady_state(void)
{
	CUdeviceptr x[4];

	two_streams();
	for (int i = 0; i < 4; i++)
		x[i] = order_take(BIG);
	for (uint32_t i = 0; i < 2 * ROUNDS; i++) {
		order_use(x[i % 4], i, i % 3 ? s : r);
		x[i % 4] = order_again(x[i % 4], BIG);
		if (i % 20 == 19)
			OK(cuCtxSynchronize());
	}
	order_end();
}

/* SIMCUDA_MEM=96M: sizes that do not fit beside what is cached. */
static void
memory_runs_short(void)
{
	CUdeviceptr x;

	two_streams();
	for (uint32_t i = 0; i < 24; i++) {
		x = order_take((size_t)(i % 3 ? 70 : 12 + i) * MIB);
		order_use(x, i, i % 2 ? s : r);
		order_give(x);
	}
	order_end();
}

/* Memory taken and freed in captures whose graphs are gone comes back. */
static void
memory_of_dead_graphs_comes_back(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr scratch;
	CUgraph graph;

	two_streams();
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	for (uint32_t i = 0; i < 3; i++) {
		OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
		scratch = order_take(BIG);
		order_use(scratch, i, s);
		order_give(scratch);
		OK(cuStreamEndCapture(s, &graph));
		OK(cuGraphDestroy(graph));
		printf("%s\n", turns_up(scratch) ? "found" : "lost");
	}
	order_end();
}

/* A library that looks up whatever it gets, as those for networks do. */
static void
address_ranges(void)
{
	CUdeviceptr x, base;
	size_t bytes;

	order_start();
	s = order_stream(NONBLOCKING);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		x = order_take(BIG);
		OK(cuMemGetAddressRange_v2(&base, &bytes, x));
		OK(cuMemGetAddressRange_v2(&base, &bytes, x));
		order_use(x, i, s);
		order_give(x);
	}
	order_end();
}

static const struct order_case cases[] = {
	{ "one_legacy_stream", one_legacy_stream },
	{ "one_created_stream", one_created_stream },
	{ "one_blocking_stream", one_blocking_stream },
	{ "one_per_thread_stream", one_per_thread_stream },
	{ "one_stream_all_sizes", one_stream_all_sizes },
	{ "one_stream_and_two_threads", one_stream_and_two_threads },
	{ "fork_and_join", fork_and_join },
	{ "fork_and_join_3", fork_and_join_3 },
	{ "fork_and_join_12", fork_and_join_12 },
	{ "fork_and_join_30", fork_and_join_30 },
	{ "copy_and_compute", copy_and_compute },
	{ "prefetch_overlaps", prefetch_overlaps },
	{ "communication_is_not_waited_for", communication_is_not_waited_for },
	{ "found_after_synchronisation", found_after_synchronisation },
	{ "found_without_the_programs_help", found_without_the_programs_help },
	{ "found_although_its_stream_is_gone", found_although_its_stream_is_gone },
	{ "nothing_is_stranded_on_dead_streams", nothing_is_stranded_on_dead_streams },
	{ "a_busy_second_stream", a_busy_second_stream },
	{ "two_independent_threads", two_independent_threads },
	{ "address_ranges", address_ranges },
	{ "steady_state", steady_state },
	{ "memory_runs_short", memory_runs_short },
	{ "memory_of_dead_graphs_comes_back", memory_of_dead_graphs_comes_back },
	{ NULL, NULL },
};

/* ------------------------------------------------- what stock would not end --- */
/* r is held up until all of s is done; nothing that s does may wait for it. */
static void
held_up(CUstream held, CUstream free_one, unsigned n)
{
	CUdeviceptr x = used_by(held);

	order_give(x);
	order_wait(word, 1, held);
	for (uint32_t i = 0; i < n; i++) {
		x = order_take(BIG);
		order_use(x, i, free_one);
		order_give(x);
	}
	OK(cuStreamSynchronize(free_one));
	*word = 1;
	order_end();
}

static void
compute_ends_beside_held_up_communication(void)
{
	two_streams();
	held_up(r, s, ROUNDS);
}

static void
high_priority_beside_low(void)
{
	two_streams();
	OK(cuStreamCreateWithPriority(&s, NONBLOCKING, -5));
	OK(cuStreamCreateWithPriority(&r, NONBLOCKING, 0));
	held_up(r, s, ROUNDS);
}

/* Both streams take and free in turn while the low one stands still. */
static void
high_priority_and_low_in_turn(void)
{
	CUdeviceptr x, y;

	two_streams();
	OK(cuStreamCreateWithPriority(&s, NONBLOCKING, -5));
	order_give(used_by(r));
	order_wait(word, 1, r);
	for (uint32_t i = 0; i < 8; i++) {
		x = order_take(BIG);
		order_use(x, i, r);
		order_give(x);
		y = order_take(BIG);
		order_use(y, i, s);
		order_give(y);
	}
	OK(cuStreamSynchronize(s));
	*word = 1;
	order_end();
}

static _Atomic int done, standing;

/* Thread 1 stands still until thread 0 is through with everything. */
static void
go_on_or_stand_still(int number)
{
	CUdeviceptr x;

	if (number) {
		x = used_by(r);
		order_give(x);
		order_wait(word, 1, r);
		atomic_store(&standing, 1);
		while (!atomic_load(&done))
			order_sleep(100);
		*word = 1;
		OK(cuStreamSynchronize(r));
		return;
	}
	while (!atomic_load(&standing)) /* what is taken from now on has nothing to do with r */
		order_sleep(100);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		x = order_take(BIG);
		order_use(x, i, s);
		order_give(x);
	}
	OK(cuStreamSynchronize(s));
	atomic_store(&done, 1);
}

static void
a_thread_beside_one_that_stands_still(void)
{
	two_streams();
	order_threads(2, go_on_or_stand_still);
	order_end();
}

static const struct order_case beyond_stock[] = {
	{ "beyond_compute_ends_beside_held_up_communication",
	  compute_ends_beside_held_up_communication },
	{ "beyond_high_priority_beside_low", high_priority_beside_low },
	{ "beyond_high_priority_and_low_in_turn", high_priority_and_low_in_turn },
	{ "beyond_a_thread_beside_one_that_stands_still", a_thread_beside_one_that_stands_still },
	{ NULL, NULL },
};

const struct order_case *const order_cases[] = { cases, beyond_stock, NULL };
