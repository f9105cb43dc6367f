/* SPDX-License-Identifier: MIT */
/*
 * Rule 16 (T15): programs for test_failures.py, in which calls fail that the program does not make.
 * Where the program needs one of those itself, it uses another name for it.
 */
#include "tests/process/order/order.h"

static CUstream
make_stream(unsigned flags)
{
	CUstream stream;

	OK(cuStreamCreateWithPriority(&stream, flags, 0));
	return stream;
}

/* The only calls to the driver besides ours are launches. */
static void
streams_of_all_kinds(void)
{
	CUstream streams[5];
	CUdeviceptr x;

	order_start();
	streams[0] = make_stream(NONBLOCKING);
	streams[1] = make_stream(NONBLOCKING);
	streams[2] = make_stream(BLOCKING);
	streams[3] = NULL;
	streams[4] = CU_STREAM_PER_THREAD;
	x = order_take(BIG);
	for (unsigned i = 0; i < 30; i++) {
		order_fill(x, i, 200, streams[i % 5]);
		x = order_again(x, BIG);
		order_use(x, i, streams[i * 3 % 5]);
		x = order_again(x, BIG);
	}
	order_end();
}

/* The marks of a stream that dies, and of one whose handle comes back. */
static void
streams_that_die(void)
{
	CUstream s, r;
	CUdeviceptr x;

	order_start();
	r = make_stream(NONBLOCKING);
	x = order_take(BIG);
	for (unsigned i = 0; i < 8; i++) {
		s = make_stream(NONBLOCKING);
		order_fill(x, i, 300, s);
		x = order_again(x, BIG);
		OK(cuStreamDestroy(s));
		order_use(x, i, r);
		x = order_again(x, BIG);
	}
	order_end();
}

/* Memory whose user is a programmatic launch, a graph, a capturing stream. */
static void
captures_and_graphs(void)
{
	CUstream s, r, q;
	CUdeviceptr x, y;
	CUgraph graph;
	CUgraphExec exec;

	order_start();
	s = make_stream(NONBLOCKING);
	r = make_stream(NONBLOCKING);
	q = make_stream(NONBLOCKING);
	y = order_take(BIG);
	for (unsigned i = 0; i < 6; i++) {
		x = order_take(BIG);
		order_fill(x, 1, 300, s);
		x = order_again(x, BIG);
		OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		order_fill(y, 5, 0, q);
		order_use(x, 2, r);
		OK(cuStreamEndCapture(q, &graph));
		OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
		OK(cuGraphLaunch(exec, q));
		order_check(y, 5, q);
		OK(cuGraphExecDestroy(exec));
		OK(cuGraphDestroy(graph));
		order_give(x);
	}
	order_end();
}

/* Little memory: the ladder waits for marks. */
static void
little_memory(void)
{
	CUdeviceptr x[4];
	CUstream s, r;

	order_start();
	s = make_stream(NONBLOCKING);
	r = make_stream(NONBLOCKING);
	for (unsigned i = 0; i < 8; i++) {
		for (unsigned n = 0; n < 4; n++)
			x[n] = order_take((size_t)(i % 2 ? BIG : BIG + 2 * MIB));
		for (unsigned n = 0; n < 4; n++)
			order_use(x[n], n, n % 2 ? s : r);
		for (unsigned n = 0; n < 4; n++)
			order_give(x[n]);
	}
	order_end();
}

/* Memory that a thread used which has ended is freed while a kernel in another context waits for
 * what this thread does next. */
static CUdeviceptr freed_next;
static CUcontext first_context;

static void *
use_and_end(void *arg)
{
	order_enter(first_context);
	order_fill(freed_next, 7, 200, CU_STREAM_PER_THREAD);
	return NULL;
}

static void
another_context_waits(void)
{
	volatile uint32_t *word;
	CUcontext second;
	CUstream own, others;
	pthread_t thread;
	CUdeviceptr x;

	first_context = order_start();
	own = order_stream(NONBLOCKING);
	x = order_take(4 * WORDS);
	order_use(x, 1, own);
	OK(cuCtxSynchronize());
	second = order_context(0);
	word = order_word();
	others = order_stream(NONBLOCKING);
	x = order_take(4 * WORDS);
	order_use(x, 1, others);
	OK(cuCtxSynchronize());
	order_sleep(20 * 1000);
	for (int i = 0; i < 4; i++) {
		order_enter(first_context);
		OK(cuStreamSynchronize(own));
		freed_next = order_take(BIG);
		EXPECT(!pthread_create(&thread, NULL, use_and_end, NULL));
		EXPECT(!pthread_join(thread, NULL));
		*word = 0;
		order_enter(second);
		order_wait(word, 1, others);
		order_enter(first_context);
		freed_next = order_again(freed_next, BIG);
		order_give(freed_next);
		*word = 1;
		order_enter(second);
		OK(cuStreamSynchronize(others));
	}
	order_end();
}

/* Memory is handed out while there is one stream, which then waits for the host; the second one
 * comes, and no mark can be had for what was handed out. */
static void
its_stream_waits_already(void)
{
	volatile uint32_t *word;
	CUstream one, two;
	CUdeviceptr x, y;

	order_start();
	one = order_stream(NONBLOCKING);
	word = order_word();
	y = order_take(MIB);
	order_fill(y, 1, 0, one);
	OK(cuStreamSynchronize(one));
	x = order_take(BIG);
	order_fill(x, 1, 2 * LONG, one);
	x = order_again(x, BIG);
	order_wait(word, 1, one);
	two = order_stream(NONBLOCKING);
	order_fill(y, 2, 0, one);
	*word = 1;
	OK(cuStreamSynchronize(one));
	order_use(x, 3, two);
	order_end();
}

static const struct order_case cases[] = {
	{ "another_context_waits", another_context_waits },
	{ "its_stream_waits_already", its_stream_waits_already },
	{ "streams_of_all_kinds", streams_of_all_kinds },
	{ "streams_that_die", streams_that_die },
	{ "captures_and_graphs", captures_and_graphs },
	{ "little_memory", little_memory },
	{ NULL, NULL },
};

const struct order_case *const order_cases[] = { cases, NULL };
