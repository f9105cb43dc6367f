/* SPDX-License-Identifier: MIT */
/* Who finds finished memory again, and when; a part of charge.c. */
#include "tests/process/order/charge.h"

/* Exported by the simulated driver. */
unsigned long long simcuda_step(unsigned long long n);

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

const struct order_case charge_found[] = {
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
