/* SPDX-License-Identifier: MIT */
/*
 * The host pauses after memory was handed out unfinished: `order_lull CASE`.
 *
 * In the cases that begin with fed_ a kernel waits for what a stream does that comes into being
 * only after it was launched. Natively the free has waited for the work before it, and all ends.
 */
#include "tests/process/order/order.h"

#include <sched.h>

enum { PAUSE_US = 10000, SMALL = 4096 * 4, PAUSES = 40 };

static CUstream s, r;
static volatile uint32_t *word;

static void
begin(void)
{
	order_start();
	s = order_stream(NONBLOCKING);
	word = order_word();
}

static void
pause_host(void)
{
	order_sleep(PAUSE_US);
}

/* s uses memory, which is freed and handed out again before it is through. */
static CUdeviceptr
handed_out(size_t bytes)
{
	CUdeviceptr x = order_take(bytes);

	order_fill(x, 1, LONG, s);
	return order_again(x, bytes);
}

/* Once more, on whatever stream; then all must be right. */
static void
use_and_end(CUdeviceptr x)
{
	OK(cuStreamSynchronize(s));
	order_use(x, 3, s);
	order_end();
}

/* A stream made only now does what the kernel of s waits for, and uses the memory before that. */
static void
feed_from_a_new_stream(CUdeviceptr x)
{
	r = order_stream(NONBLOCKING);
	order_use(x, 2, r);
	order_signal(word, 1, r);
	OK(cuStreamSynchronize(r));
	use_and_end(x);
}

static void
fed_from_a_new_stream(void)
{
	CUdeviceptr x;

	begin();
	x = handed_out(BIG);
	pause_host();
	order_wait(word, 1, s);
	feed_from_a_new_stream(x);
}

/* Work of the stream lies between the allocation and the pause. */
static void
fed_after_more_work(void)
{
	CUdeviceptr x, y;

	begin();
	y = order_take(BIG);
	x = handed_out(BIG);
	for (uint32_t i = 0; i < 5; i++)
		order_use(y, i, s);
	pause_host();
	order_wait(word, 1, s);
	feed_from_a_new_stream(x);
}

/* The work behind the pause is not at once the kernel that waits. */
static void
fed_after_a_set(void)
{
	CUdeviceptr x, y;

	begin();
	y = order_take(BIG);
	x = handed_out(BIG);
	pause_host();
	OK(cuMemsetD32Async(y, 5, WORDS, s));
	order_wait(word, 1, s);
	feed_from_a_new_stream(x);
}

static void
fed_after_many_small_blocks(void)
{
	CUdeviceptr x = 0;

	begin();
	for (int i = 0; i < 100; i++) {
		x = handed_out(SMALL);
		order_give(x);
	}
	x = handed_out(SMALL);
	pause_host();
	order_wait(word, 1, s);
	feed_from_a_new_stream(x);
}

/* The second hand-out is the one that counts. */
static void
fed_after_two_pauses(void)
{
	CUdeviceptr x;

	begin();
	x = handed_out(BIG);
	pause_host();
	order_fill(x, 1, LONG, s);
	x = order_again(x, BIG);
	pause_host();
	order_wait(word, 1, s);
	feed_from_a_new_stream(x);
}

/* The kernel waits in the default stream, and the new stream feeds it. */
static void
fed_in_the_default_stream(void)
{
	CUdeviceptr x;

	order_start();
	word = order_word();
	x = handed_out(BIG);
	pause_host();
	order_wait(word, 1, s);
	feed_from_a_new_stream(x);
}

static void
fed_in_a_per_thread_stream(void)
{
	CUdeviceptr x;

	order_start();
	word = order_word();
	s = CU_STREAM_PER_THREAD;
	x = handed_out(BIG);
	pause_host();
	order_wait(word, 1, s);
	feed_from_a_new_stream(x);
}

/* The first stream of a second context feeds it, and the first one's memory is used by a third. */
static void
fed_from_another_device(void)
{
	CUcontext first = order_start(), second;
	CUdeviceptr x;

	s = order_stream(NONBLOCKING);
	word = order_word();
	x = handed_out(BIG);
	pause_host();
	order_wait(word, 1, s);
	second = order_context(1);
	r = order_stream(NONBLOCKING);
	order_enter(first);
	order_use(x, 2, order_stream(NONBLOCKING));
	order_enter(second);
	order_signal(word, 1, r);
	OK(cuStreamSynchronize(r));
	order_enter(first);
	order_end();
}

/* It is fed by the default stream's first work. */
static void
fed_from_the_default_stream(void)
{
	CUdeviceptr x;

	begin();
	x = handed_out(BIG);
	pause_host();
	order_wait(word, 1, s);
	order_use(x, 2, NULL);
	order_signal(word, 1, NULL);
	OK(cuStreamSynchronize(NULL));
	use_and_end(x);
}

static CUdeviceptr shared;

static void
feed(int number)
{
	feed_from_a_new_stream(shared);
}

static void
fed_from_another_thread(void)
{
	begin();
	shared = handed_out(BIG);
	pause_host();
	order_wait(word, 1, s);
	order_threads(1, feed);
}

static void
wait_in_thread(int number)
{
	order_wait(word, 1, s);
}

/* The kernel that waits is launched by a thread that has never submitted before. */
static void
fed_in_another_thread(void)
{
	CUdeviceptr x;

	begin();
	x = handed_out(BIG);
	pause_host();
	order_threads(1, wait_in_thread);
	feed_from_a_new_stream(x);
}

static void
launch_captured(CUdeviceptr x)
{
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	order_fill(x, 7, 0, s);
	OK(cuStreamEndCapture(s, &graph));
	OK(cuGraphDestroy(graph));
}

/* Captured work is no submission: no mark may be recorded there. */
static void
fed_after_a_capture(void)
{
	CUdeviceptr x;

	begin();
	x = handed_out(BIG);
	pause_host();
	launch_captured(x);
	order_wait(word, 1, s);
	feed_from_a_new_stream(x);
}

/* What is older than the pause has not ended because of it: the new stream comes after it. */
static void
older_work_goes_on(void)
{
	CUdeviceptr x, y;

	begin();
	y = order_take(BIG);
	x = order_take(BIG);
	order_fill(x, 1, 5 * PAUSE_US, s);
	x = order_again(x, BIG);
	pause_host();
	order_fill(y, 4, 0, s);
	r = order_stream(NONBLOCKING);
	order_use(x, 2, r);
	order_check(y, 4, s);
	order_end();
}

/* The same of memory that is handed out in the stream's last moment alone. */
static void
older_work_goes_on_behind_a_capture(void)
{
	CUdeviceptr x, y;

	begin();
	y = order_take(BIG);
	x = order_take(BIG);
	order_fill(x, 1, 5 * PAUSE_US, s);
	x = order_again(x, BIG);
	pause_host();
	order_fill(y, 4, 0, s);
	launch_captured(y);
	r = order_stream(NONBLOCKING);
	order_use(x, 2, r);
	order_end();
}

/* Many pauses, and the program asks the driver for nothing. It knows that the device is through. */
static void
pauses_without_end(void)
{
	CUdeviceptr x;

	begin();
	x = order_take(BIG);
	for (uint32_t i = 1; i <= PAUSES; i++) {
		order_fill(x, i, 0, s);
		x = order_again(x, BIG);
		pause_host();
		order_signal(word, i, s);
		while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != i)
			sched_yield();
	}
	order_end();
}

static const struct order_case lull_cases[] = {
	{ "fed_from_a_new_stream", fed_from_a_new_stream },
	{ "fed_after_more_work", fed_after_more_work },
	{ "fed_after_a_set", fed_after_a_set },
	{ "fed_after_many_small_blocks", fed_after_many_small_blocks },
	{ "fed_after_two_pauses", fed_after_two_pauses },
	{ "fed_in_the_default_stream", fed_in_the_default_stream },
	{ "fed_in_a_per_thread_stream", fed_in_a_per_thread_stream },
	{ "fed_from_another_device", fed_from_another_device },
	{ "fed_from_the_default_stream", fed_from_the_default_stream },
	{ "fed_from_another_thread", fed_from_another_thread },
	{ "fed_in_another_thread", fed_in_another_thread },
	{ "fed_after_a_capture", fed_after_a_capture },
	{ "older_work_goes_on", older_work_goes_on },
	{ "older_work_goes_on_behind_a_capture", older_work_goes_on_behind_a_capture },
	{ "pauses_without_end", pauses_without_end },
	{ NULL, NULL },
};

const struct order_case *const order_cases[] = { lull_cases, NULL };
