/* SPDX-License-Identifier: MIT */
/*
 * A driver that does not keep what the order of several streams rests on: `order_broken CASE`, with
 * SIMCUDA_BELIEFS or SIMCUDA_QUEUES. Every case is right with any driver whose cuMemFree waits.
 */
#include "tests/process/order/order.h"

enum { ROUNDS = 20, SMALL = 4 * WORDS };

static CUstream blocking, other;

/* All streams have been used, by this thread only, and are idle. */
static void
begin(void)
{
	CUdeviceptr x;

	order_start();
	x = order_take(4 * WORDS);
	order_use(x, 1, NULL);
	OK(cuCtxSynchronize());
	blocking = order_stream(BLOCKING);
	other = order_stream(NONBLOCKING);
	order_use(x, 2, blocking);
	order_use(x, 3, NULL);
	OK(cuCtxSynchronize());
	order_use(x, 4, other);
	OK(cuCtxSynchronize());
	order_give(x);
}

/* The next user is a stream that nothing but a mark of the legacy stream orders behind it. */
static void
legacy_and_then_another(void)
{
	CUdeviceptr x;

	begin();
	x = order_take(BIG);
	for (unsigned i = 0; i < ROUNDS; i++) {
		order_fill(x, i, LONG, NULL);
		x = order_again(x, BIG);
		order_use(x, i + 1, other);
		OK(cuStreamSynchronize(other));
	}
	order_end();
}

/* The memory looks finished as soon as a mark of the legacy stream does. */
static void
legacy_and_then_the_host(void)
{
	CUdeviceptr x;

	begin();
	x = order_take(BIG);
	for (unsigned i = 0; i < ROUNDS; i++) {
		order_fill(x, i, LONG, NULL);
		order_give(x);
		order_sleep(LONG / 4);
		x = order_take(BIG);
		order_use(x, i + 1, other);
		OK(cuStreamSynchronize(other));
	}
	order_end();
}

static CUdeviceptr shared;
static CUcontext context;
static _Atomic bool works, enough;

static void *
use_on_per_thread_stream(void *arg)
{
	order_enter(context);
	order_fill(shared, 7, LONG, CU_STREAM_PER_THREAD);
	return NULL;
}

/* A thread ends while its per-thread stream still works: only a mark of the context covers that. */
static void
hand_over_from_ended_threads(void)
{
	pthread_t thread;

	OK(cuCtxGetCurrent(&context));
	for (unsigned i = 0; i < ROUNDS; i++) {
		shared = order_take(BIG);
		EXPECT(!pthread_create(&thread, NULL, use_on_per_thread_stream, NULL));
		EXPECT(!pthread_join(thread, NULL));
		order_give(shared);
		order_sleep(LONG / 4);
		shared = order_take(BIG);
		order_use(shared, i + 1, other);
		OK(cuStreamSynchronize(other));
		order_give(shared);
	}
}

static void
thread_that_has_ended(void)
{
	begin();
	hand_over_from_ended_threads();
	order_end();
}

static void *
work_on_and_on(void *arg)
{
	CUdeviceptr x;
	CUstream s;

	order_enter(context);
	x = order_take(4 * WORDS);
	s = order_stream(NONBLOCKING);
	for (; !enough; works = true) {
		order_fill(x, 1, LONG / 3, s);
		OK(cuStreamSynchronize(s));
	}
	return NULL;
}

/* There is always a kernel that a mark of the context waits for, and it ends soon. */
static void
another_thread_works(void)
{
	pthread_t thread;

	context = order_start();
	EXPECT(!pthread_create(&thread, NULL, work_on_and_on, NULL));
	while (!works)
		order_sleep(100);
	other = order_stream(NONBLOCKING);
	hand_over_from_ended_threads();
	enough = true;
	EXPECT(!pthread_join(thread, NULL));
	order_end();
}

/* Frees that no mark covers, until the program itself synchronises. */
static void
the_program_synchronizes(void)
{
	pthread_t thread;

	begin();
	OK(cuCtxGetCurrent(&context));
	for (unsigned i = 0; i < ROUNDS; i++) {
		shared = order_take(BIG);
		EXPECT(!pthread_create(&thread, NULL, use_on_per_thread_stream, NULL));
		EXPECT(!pthread_join(thread, NULL));
		order_give(shared);
		OK(cuCtxSynchronize());
	}
	order_end();
}

/* One stream: nothing is tried, whatever stream it is. */
static void
one_stream(void)
{
	CUstream s = getenv("ORDER_LEGACY") ? NULL : order_stream(BLOCKING);
	CUdeviceptr x = order_take(BIG);

	for (unsigned i = 0; i < ROUNDS; i++) {
		order_fill(x, i, LONG, s);
		x = order_again(x, BIG);
		order_use(x, i + 1, s);
	}
	OK(cuStreamSynchronize(s));
	order_end();
}

static void
only_one_stream(void)
{
	order_start();
	one_stream();
}

/* Memory of the legacy stream was marked behind pauses of the host when nothing else was there. */
static void
legacy_before_the_others(void)
{
	CUdeviceptr x;

	order_start();
	x = order_take(BIG);
	order_use(x, 1, NULL);
	for (unsigned i = 0; i < 3; i++) {
		order_fill(x, i, 4 * LONG, NULL);
		x = order_again(x, BIG);
		order_sleep(10000);
		order_fill(x, i, 4 * LONG, NULL);
	}
	order_give(x);
	blocking = order_stream(BLOCKING);
	other = order_stream(NONBLOCKING);
	x = order_take(BIG);
	order_use(x, 2, other);
	OK(cuStreamSynchronize(other));
	order_end();
}

/* Two kernels on blocking streams wait for each other; the legacy stream had work before, and the
 * second stream is made while the first waits. */
static void
streams_that_wait_for_each_other(void)
{
	volatile uint32_t *first, *second;
	CUstream one, two;
	CUdeviceptr x;

	order_start();
	first = order_word();
	second = order_word();
	x = order_take(BIG);
	order_use(x, 1, NULL);
	OK(cuCtxSynchronize());
	one = order_stream(BLOCKING);
	order_use(x, 2, one);
	order_wait(first, 1, one);
	order_signal(second, 1, one);
	two = order_stream(BLOCKING);
	order_signal(first, 1, two);
	order_wait(second, 1, two);
	order_use(x, 3, two);
	OK(cuStreamSynchronize(two));
	x = order_again(x, BIG);
	order_use(x, 4, NULL);
	order_end();
}

/* A second stream comes, and nothing else. */
static void
a_second_stream(void)
{
	CUdeviceptr x;

	order_start();
	x = order_take(4 * WORDS);
	order_use(x, 1, NULL);
	OK(cuCtxSynchronize());
	order_stream(BLOCKING);
	order_end();
}

/* It comes while another stream captures. Later there are quiet moments. */
static void
a_second_stream_in_a_capture(void)
{
	CUdeviceptr x;
	CUgraph graph;

	order_start();
	x = order_take(BIG);
	other = order_stream(NONBLOCKING);
	OK(cuStreamBeginCapture_v2(other, 0));
	blocking = order_stream(BLOCKING);
	OK(cuStreamEndCapture(other, &graph));
	order_use(x, 1, blocking);
	OK(cuStreamSynchronize(blocking));
	for (unsigned i = 0; i < ROUNDS; i++) {
		order_fill(x, i, LONG, blocking);
		x = order_again(x, BIG);
		order_use(x, i + 1, other);
		OK(cuStreamSynchronize(other));
	}
	order_end();
}

static CUstream own[4];

static void
use_own(int number)
{
	CUdeviceptr x = order_take(BIG);

	own[number] = order_stream(number % 2 ? BLOCKING : NONBLOCKING);
	for (unsigned i = 0; i < ROUNDS; i++) {
		order_fill(x, i, LONG / 8, own[number]);
		x = order_again(x, BIG);
		order_use(x, i + 1, i % 4 ? own[number] : NULL);
		OK(cuStreamSynchronize(own[number]));
		OK(cuStreamSynchronize(NULL));
	}
	order_give(x);
}

/* They come in several threads at once. */
static void
streams_of_several_threads(void)
{
	order_start();
	order_threads(4, use_own);
	order_end();
}

/* Two kernels wait for each other soon after the legacy stream was used for the first time. */
static void
legacy_and_then_two_that_wait(void)
{
	volatile uint32_t *word;
	CUdeviceptr x;

	order_start();
	word = order_word();
	x = order_take(BIG);
	blocking = order_stream(BLOCKING);
	other = order_stream(BLOCKING);
	order_use(x, 1, blocking);
	order_sleep(900000); /* no trial of before goes on */
	order_use(x, 2, NULL);
	order_wait(word, 1, blocking);
	order_sleep(900000);
	order_signal(word, 1, other);
	order_end();
}

static void *
wait_for_each_other(void *arg)
{
	volatile uint32_t *word;
	CUstream one, two;

	order_enter(context);
	word = order_word();
	while (!works)
		order_sleep(100);
	order_sleep(5000);
	one = order_stream(BLOCKING);
	two = order_stream(BLOCKING);
	order_wait(word, 1, one);
	order_sleep(40000);
	order_signal(word, 1, two);
	OK(cuStreamSynchronize(one));
	OK(cuStreamSynchronize(two));
	return NULL;
}

/* In a quiet moment of one thread, another one's kernels begin to wait for each other. */
static void
work_begins_in_a_quiet_moment(void)
{
	pthread_t thread;
	CUgraph graph;
	CUdeviceptr x;

	context = order_start();
	EXPECT(!pthread_create(&thread, NULL, wait_for_each_other, NULL));
	x = order_take(BIG);
	order_use(x, 1, NULL);
	OK(cuCtxSynchronize());
	other = order_stream(NONBLOCKING);
	OK(cuStreamBeginCapture_v2(other, 0));
	blocking = order_stream(BLOCKING); /* no trial now */
	OK(cuStreamEndCapture(other, &graph));
	order_use(x, 2, blocking);
	order_use(x, 3, NULL);
	order_use(order_take(4 * WORDS), 4, other);
	order_sleep(10000);
	works = true;
	OK(cuCtxSynchronize());
	EXPECT(!pthread_join(thread, NULL));
	order_end();
}

static CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* Captures while another thread is in the call before which `works` was set, and ends the capture
 * when `enough` says that this call has returned. */
static void *
capture_beside(void *stream)
{
	CUgraph graph = NULL;

	order_enter(context);
	while (!works)
		order_sleep(100);
	order_sleep(100000);
	OK(cuStreamBeginCapture_v2(stream, capture_mode));
	OK(cuMemsetD8Async(shared, 0, WORDS, stream));
	while (!enough)
		order_sleep(100);
	OK(cuStreamEndCapture(stream, &graph));
	EXPECT(graph);
	return NULL;
}

static pthread_t
begin_beside(void)
{
	pthread_t thread;

	context = order_start();
	shared = order_take(BIG);
	other = order_stream(NONBLOCKING);
	EXPECT(!pthread_create(&thread, NULL, capture_beside, other));
	return thread;
}

static void
end_beside(pthread_t thread)
{
	enough = true;
	EXPECT(!pthread_join(thread, NULL));
	order_end();
}

/* The calls of a trial take longer than a begin-capture waits for it. */
static void
a_capture_during_a_slow_trial(void)
{
	pthread_t thread = begin_beside();

	order_use(shared, 1, NULL);
	OK(cuCtxSynchronize());
	for (int i = 0; i < 2; i++)
		order_sleep(900000); /* no trial of before goes on */
	works = true;
	blocking = order_stream(BLOCKING);
	end_beside(thread);
}

/* So do those of a mark, of the context since the thread whose stream works has ended. */
static void
a_capture_during_a_slow_mark(void)
{
	pthread_t thread = begin_beside(), user;
	CUdeviceptr x = order_take(BIG);

	capture_mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* in which memory may be freed */
	order_use(x, 1, other);
	OK(cuCtxSynchronize());
	blocking = order_stream(BLOCKING);
	order_use(x, 1, blocking);
	OK(cuCtxSynchronize());
	shared = x;
	EXPECT(!pthread_create(&user, NULL, use_on_per_thread_stream, NULL));
	EXPECT(!pthread_join(user, NULL));
	shared = order_take(BIG);
	works = true;
	order_give(x);
	order_give(order_take(BIG + MIB));
	end_beside(thread);
}

/* Four sets of 32 MiB each are always under way. */
static void *
hold_the_device(void *arg)
{
	enum { AHEAD = 4 };
	CUevent event[AHEAD];
	CUdeviceptr x;
	CUstream s;

	order_enter(context);
	s = order_stream(NONBLOCKING);
	x = order_take(32 * MIB);
	for (unsigned i = 0; i < AHEAD; i++)
		event[i] = order_event();
	for (unsigned i = 0; !enough; i++, works = true) {
		OK(cuMemsetD32Async(x, 1, 8 * MIB, s));
		OK(cuEventRecord(event[i % AHEAD], s));
		OK(cuEventSynchronize(event[(i + 1) % AHEAD]));
	}
	OK(cuStreamSynchronize(s));
	order_give(x);
	return NULL;
}

/* The device is busy while the program has its first streams, and later it is not. */
static void
busy_at_first(void)
{
	pthread_t thread;
	CUdeviceptr x;

	context = order_start();
	EXPECT(!pthread_create(&thread, NULL, hold_the_device, NULL));
	while (!works)
		order_sleep(100);
	other = order_stream(NONBLOCKING);
	x = order_take(SMALL);
	for (unsigned i = 0; i < 120; i++) {
		OK(cuMemsetD32Async(x, 1, 1, other));
		OK(cuStreamSynchronize(other));
		order_sleep(1000);
	}
	order_give(x);
	enough = true;
	EXPECT(!pthread_join(thread, NULL));
	for (unsigned i = 0; i < 100; i++) {
		OK(cuStreamSynchronize(other));
		order_sleep(1000);
	}
	order_end();
}

/* The device is slow while a context's legacy stream comes to stand beside a blocking one: for less
 * than a trial takes at first, and later for longer. */
static void
a_slow_device(void)
{
	order_start();
	for (unsigned i = 0; i < 7; i++) {
		size_t slow = (size_t)(1 + i) * 6 * MIB;
		CUdeviceptr x, y;

		order_context(0);
		other = order_stream(NONBLOCKING);
		blocking = order_stream(BLOCKING);
		x = order_take(slow);
		y = order_take(BIG);
		order_use(y, 1, blocking);
		OK(cuCtxSynchronize());
		OK(cuMemsetD32Async(x, 1, slow / 4, other));
		order_use(y, 2, NULL);
		OK(cuCtxSynchronize());
		for (unsigned k = 0; k < 2; k++) {
			order_fill(y, 3, LONG, NULL);
			y = order_again(y, BIG);
			order_use(y, 4, other);
			OK(cuStreamSynchronize(other));
		}
		order_give(x);
		order_give(y);
	}
	order_end();
}

/* Quiet moments for longer than it takes to give up. */
static void
many_quiet_moments(void)
{
	begin();
	for (unsigned i = 0; i < 1000; i++) {
		OK(cuStreamSynchronize(blocking));
		order_sleep(1000);
	}
	legacy_and_then_another();
}

/* Each thread would want more stack than there are addresses. */
static void
no_thread_can_be_made(void)
{
	pthread_attr_t attributes;

	order_start();
	EXPECT(!pthread_attr_init(&attributes));
	EXPECT(!pthread_attr_setstacksize(&attributes, (size_t)1 << 50));
	EXPECT(!pthread_setattr_default_np(&attributes));
	many_quiet_moments();
}

static const struct order_case cases[] = {
	{ "a_second_stream", a_second_stream },
	{ "a_second_stream_in_a_capture", a_second_stream_in_a_capture },
	{ "streams_of_several_threads", streams_of_several_threads },
	{ "legacy_and_then_two_that_wait", legacy_and_then_two_that_wait },
	{ "a_capture_during_a_slow_trial", a_capture_during_a_slow_trial },
	{ "a_capture_during_a_slow_mark", a_capture_during_a_slow_mark },
	{ "work_begins_in_a_quiet_moment", work_begins_in_a_quiet_moment },
	{ "many_quiet_moments", many_quiet_moments },
	{ "a_slow_device", a_slow_device },
	{ "busy_at_first", busy_at_first },
	{ "no_thread_can_be_made", no_thread_can_be_made },
	{ "legacy_and_then_another", legacy_and_then_another },
	{ "legacy_and_then_the_host", legacy_and_then_the_host },
	{ "thread_that_has_ended", thread_that_has_ended },
	{ "another_thread_works", another_thread_works },
	{ "the_program_synchronizes", the_program_synchronizes },
	{ "only_one_stream", only_one_stream },
	{ "legacy_before_the_others", legacy_before_the_others },
	{ "streams_that_wait_for_each_other", streams_that_wait_for_each_other },
	{ 0 },
};

const struct order_case *const order_cases[] = { cases, NULL };
