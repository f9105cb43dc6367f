/* SPDX-License-Identifier: MIT */
/*
 * Memory runs short while a kernel waits for what its own thread submits next: `order_short CASE`.
 *
 * Natively each allocation finds memory at once, since the free before it gave it back. With the
 * library it may find none, as the driver takes nothing back before the kernel has ended: then it
 * says so, and never waits for the kernel for ever.
 */
#include "tests/process/order/order.h"

enum { WANTED = 4 * BIG, ROOM = WANTED - MIB, OUT_OF_MEMORY = 2, BUSY_US = 500 };

static CUstream s, r, q;
static CUdeviceptr rest;
static volatile uint32_t *word;

/* All but ROOM bytes of the device are taken. */
static void
begin(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	size_t left, total;

	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	q = order_stream(NONBLOCKING);
	word = order_word();
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	order_kernel("sim_fill");
	OK(cuMemGetInfo_v2(&left, &total));
	rest = order_take((left - ROOM) / (2 * MIB) * (2 * MIB));
}

/* Memory that is not there before that of `x` is back. 0: none. */
static CUdeviceptr
take_wanted(void)
{
	CUdeviceptr y = 0;
	CUresult rc = cuMemAlloc_v2(&y, WANTED);

	EXPECT(!rc || (int)rc == OUT_OF_MEMORY);
	return rc ? 0 : y;
}

/* The kernel may go on, and then there is memory in any case. */
static void
end(CUdeviceptr y)
{
	order_signal(word, 1, s);
	OK(cuStreamSynchronize(r));
	if (!y)
		y = order_take(WANTED);
	order_use(y, 3, s);
	order_give(y);
	order_give(rest);
	order_end();
}

/* What is kept has finished long ago; only the driver's free would wait. */
static void
what_is_kept_has_finished(void)
{
	CUdeviceptr x;

	begin();
	x = order_take(BIG);
	order_use(x, 1, s);
	order_give(x);
	OK(cuCtxSynchronize());
	order_wait(word, 1, r);
	end(take_wanted());
}

/* The kernel's stream had used it, before. */
static void
its_stream_used_what_was_freed(void)
{
	CUdeviceptr x;

	begin();
	x = order_take(BIG);
	order_fill(x, 1, LONG, r);
	order_give(x);
	order_wait(word, 1, r);
	end(take_wanted());
}

static void
end_capture(CUstream stream)
{
	CUgraph graph;

	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphDestroy(graph));
}

static void
in_a_capture(void)
{
	CUdeviceptr x, y;

	begin();
	x = order_take(BIG);
	order_fill(x, 1, LONG, r);
	order_give(x);
	order_wait(word, 1, r);
	OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
	y = take_wanted();
	end_capture(q);
	end(y);
}

/* Nothing can go back while the kernel waits, and no more is withheld than was asked for. */
static void
refused_in_a_capture(void)
{
	CUdeviceptr x[3], y = 0, z, filler;

	begin();
	filler = order_take(BIG - 2 * MIB);
	for (unsigned i = 0; i < 3; i++)
		x[i] = order_take(BIG);
	for (unsigned i = 0; i < 3; i++)
		order_give(x[i]);
	order_wait(word, 1, r);
	OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT(!cuMemAlloc_v2(&y, 2 * BIG) || !y);
	end_capture(q);
	z = order_take(BIG);
	order_signal(word, 1, s);
	OK(cuStreamSynchronize(r));
	order_give(z);
	order_give(filler);
	if (y)
		order_give(y);
	end(0);
}

/* The kernel is launched while something captures, and the memory freed. */
static void
launched_in_a_capture(void)
{
	CUdeviceptr x, y;

	begin();
	x = order_take(BIG);
	OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
	order_fill(x, 1, LONG, r);
	order_give(x);
	order_wait(word, 1, r);
	y = take_wanted();
	end_capture(q);
	end(y);
}

/* Some stream always captures, and whichever it is has used what was freed before. */
static void
while_captures_follow_each_other(void)
{
	begin();
	OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
	for (unsigned i = 0; i < 12; i++) {
		CUstream captured = i % 2 ? s : q, other = i % 2 ? q : s;
		CUdeviceptr x = order_take(BIG);

		order_fill(x, i, LONG, other);
		order_give(x);
		OK(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
		end_capture(captured);
	}
	end_capture(q);
	end(0);
}

/* Work of another thread without end keeps nobody from memory that is free. */
static _Atomic bool stop;

static void *
keep_busy(void *arg)
{
	CUcontext context = arg;
	CUdeviceptr mine = rest;

	order_enter(context);
	while (!stop)
		for (unsigned i = 0; i < 4; i++) {
			order_fill(mine, i, BUSY_US, q);
			order_sleep(BUSY_US);
		}
	return NULL;
}

static void
while_another_thread_keeps_the_device_busy(void)
{
	pthread_t thread;
	CUcontext context;
	CUdeviceptr x, y;

	begin();
	OK(cuCtxGetCurrent(&context));
	x = order_take(BIG);
	order_use(x, 1, s);
	EXPECT(!pthread_create(&thread, NULL, keep_busy, context));
	order_sleep(20 * BUSY_US);
	order_give(x);
	y = order_take(WANTED);
	stop = true;
	EXPECT(!pthread_join(thread, NULL));
	order_wait(word, 1, r);
	end(y);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void
lock_and_unlock(void *ignored)
{
	order_sleep(20 * 1000); /* the program's thread has it by then */
	EXPECT(!pthread_mutex_lock(&mutex));
	EXPECT(!pthread_mutex_unlock(&mutex));
}

/* Natively the free has waited for the callback. */
static void
a_callback_needs_what_the_thread_holds(void)
{
	CUdeviceptr x, y;

	begin();
	x = order_take(BIG);
	order_use(x, 1, r);
	OK(cuLaunchHostFunc(r, lock_and_unlock, NULL));
	order_give(x);
	EXPECT(!pthread_mutex_lock(&mutex));
	y = take_wanted();
	EXPECT(!pthread_mutex_unlock(&mutex));
	end(y);
}

static struct {
	CUcontext context;
	CUdeviceptr memory;
} other;

static void *
give_in_thread(void *ignored)
{
	order_enter(other.context);
	order_give(other.memory);
	return NULL;
}

/* Memory of a capture, freed while its graph may still be launched. */
static void
another_thread_freed_what_a_graph_uses(void)
{
	CUgraphExec exec;
	CUgraph graph;
	pthread_t thread;
	CUdeviceptr y;

	begin();
	OK(cuCtxGetCurrent(&other.context));
	OK(cuStreamBeginCapture_v2(q, CU_STREAM_CAPTURE_MODE_RELAXED));
	other.memory = order_take(BIG);
	order_fill(other.memory, 1, 0, q);
	OK(cuStreamEndCapture(q, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	EXPECT(!pthread_create(&thread, NULL, give_in_thread, NULL));
	EXPECT(!pthread_join(thread, NULL));
	y = take_wanted();
	EXPECT(y);
	OK(cuGraphExecDestroy(exec));
	end(y);
}

/* Two blocks of one segment were copied to by another context, which has work by then that ends
 * soon, and if it is `lasting` such as ends with the program. */
static void
other_context(bool lasting)
{
	CUdeviceptr soon, late, next, from, filler;
	CUcontext first, second;
	size_t left, total;
	pthread_t thread;
	CUstream t, u;

	begin();
	next = order_take(PART);
	soon = order_take(PART);
	late = order_take(PART);
	OK(cuCtxGetCurrent(&first));
	second = order_context(0);
	t = order_stream(NONBLOCKING);
	u = order_stream(NONBLOCKING);
	from = order_take(MIB);
	order_kernel("sim_fill");
	order_enter(first);
	OK(cuMemGetInfo_v2(&left, &total));
	filler = order_take((left - 4 * MIB) / (2 * MIB) * (2 * MIB));
	order_enter(second);
	order_fill(from, 1, 0, t);
	OK(cuMemcpyDtoDAsync_v2(soon, from, WORDS, t));
	OK(cuMemcpyDtoDAsync_v2(late, from, WORDS, t));
	OK(cuStreamSynchronize(t));
	order_fill(from, 2, 300 * 1000, t);
	order_enter(first);
	other.context = first;
	other.memory = soon;
	if (lasting) {
		EXPECT(!pthread_create(&thread, NULL, give_in_thread, NULL));
		EXPECT(!pthread_join(thread, NULL));
	} else {
		order_give(soon);
	}
	order_enter(second);
	if (lasting)
		order_wait(word, 1, u);
	order_enter(first);
	order_give(late);
	soon = order_take(PART);
	order_signal(word, 1, s);
	OK(cuStreamSynchronize(s));
	OK(cuCtxDestroy_v2(second));
	order_give(filler);
	order_give(soon);
	order_give(next);
	end(0);
}

static void
another_context_is_soon_done(void)
{
	other_context(false);
}

static void
another_context_is_soon_done_with_one_of_two(void)
{
	other_context(true);
}

static void
take_long(void *ignored)
{
	for (unsigned i = 0; i < 50; i++)
		order_sleep(500 * 1000);
}

/* More memory is cached, and goes back first. */
static void
a_callback_takes_long(void)
{
	CUdeviceptr x, y, cached;

	begin();
	cached = order_take(BIG);
	x = order_take(BIG);
	order_use(cached, 1, s);
	order_use(x, 2, r);
	OK(cuStreamSynchronize(s));
	OK(cuStreamSynchronize(r));
	order_give(cached);
	OK(cuLaunchHostFunc(r, take_long, NULL));
	order_give(x);
	y = take_wanted();
	EXPECT(y);
	end(y);
}

/* Another context copied to a whole segment, and works on: that goes back, and nobody waits. */
static void
another_context_works_on(void)
{
	CUcontext first, second;
	CUdeviceptr x, y, from;
	CUstream t;

	begin();
	x = order_take(2 * BIG);
	OK(cuCtxGetCurrent(&first));
	second = order_context(0);
	t = order_stream(NONBLOCKING);
	from = order_take(MIB);
	OK(cuMemcpyDtoDAsync_v2(x, from, WORDS, t));
	OK(cuStreamSynchronize(t));
	order_wait(word, 1, t);
	order_enter(first);
	order_give(x);
	y = order_take(3 * BIG);
	order_signal(word, 1, s);
	OK(cuStreamSynchronize(s));
	OK(cuCtxDestroy_v2(second));
	order_give(y);
	end(0);
}

static const struct order_case short_cases[] = {
	{ "what_is_kept_has_finished", what_is_kept_has_finished },
	{ "its_stream_used_what_was_freed", its_stream_used_what_was_freed },
	{ "in_a_capture", in_a_capture },
	{ "refused_in_a_capture", refused_in_a_capture },
	{ "launched_in_a_capture", launched_in_a_capture },
	{ "while_captures_follow_each_other", while_captures_follow_each_other },
	{ "a_callback_needs_what_the_thread_holds", a_callback_needs_what_the_thread_holds },
	{ "another_thread_freed_what_a_graph_uses", another_thread_freed_what_a_graph_uses },
	{ "another_context_is_soon_done", another_context_is_soon_done },
	{ "another_context_is_soon_done_with_one_of_two",
	  another_context_is_soon_done_with_one_of_two },
	{ "a_callback_takes_long", a_callback_takes_long },
	{ "another_context_works_on", another_context_works_on },
	{ "while_another_thread_keeps_the_device_busy",
	  while_another_thread_keeps_the_device_busy },
	{ NULL, NULL },
};

const struct order_case *const order_cases[] = { short_cases, NULL };
