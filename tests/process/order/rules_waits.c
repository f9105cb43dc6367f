/* SPDX-License-Identifier: MIT */
/*
 * Rule 5 (T5): a stream whose work somebody else must end. Where the wait comes after the free,
 * memory may go round at once, but nothing of ours may come to depend on the wait; where it comes
 * before, the free in these cases is one that stock ends too, as the release is on its way.
 */
#include <stdatomic.h>
#include <unistd.h>

#include "tests/process/order/rules.h"

static CUstream s, r;
static volatile uint32_t *word;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int pipe_ends[2];
static _Atomic int step;

static void
begin(void)
{
	order_start();
	s = order_stream(NONBLOCKING);
	r = order_stream(NONBLOCKING);
	word = order_word();
}

static CUdeviceptr
word_address(void)
{
	return (CUdeviceptr)(uintptr_t)word;
}

/* Memory of s is handed out; then `stall` holds s up; then r must be able to use the memory and
 * end, as only then comes `release`. */
static void
stall_after_the_free(void (*stall)(void), void (*release)(void))
{
	CUdeviceptr x = order_take(BIG);

	for (int i = 0; i < 3; i++) {
		order_fill(x, 1, LONG / 4, s);
		x = order_again(x, BIG);
		stall();
		order_use(x, 2, r);
		OK(cuStreamSynchronize(r));
		release();
		OK(cuStreamSynchronize(s));
		*word = 0;
		order_fill(x, 3, LONG / 4, r);
		x = order_again(x, BIG);
		order_use(x, 4, s);
	}
	order_end();
}

static void
stall_value(void)
{
	OK(cuStreamWaitValue32_v2(s, word_address(), 1, WAIT_EQ));
}

static void
stall_batch(void)
{
	CUstreamBatchMemOpParams ops[2] = { { .pad = { 0 } } };

	ops[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	ops[0].waitValue.address = word_address();
	ops[0].waitValue.value = 1;
	ops[0].waitValue.flags = WAIT_EQ;
	ops[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	ops[1].writeValue.address = word_address();
	ops[1].writeValue.value = 2;
	OK(cuStreamBatchMemOp_v2(s, 2, ops, 0));
}

static void
stall_kernel(void)
{
	order_wait(word, 1, s);
}

static void
lock_and_unlock(void *arg)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
}

static void
stall_mutex(void)
{
	pthread_mutex_lock(&mutex);
	OK(cuLaunchHostFunc(s, lock_and_unlock, NULL));
}

static void
read_pipe(void *arg)
{
	char c;

	EXPECT(read(pipe_ends[0], &c, 1) == 1);
}

static void
read_pipe_as_callback(CUstream stream, CUresult status, void *arg)
{
	read_pipe(arg);
}

static void
stall_pipe(void)
{
	OK(cuLaunchHostFunc(s, read_pipe, NULL));
}

static void
stall_callback(void)
{
	OK(cuStreamAddCallback(s, read_pipe_as_callback, NULL, 0));
}

static void
release_host(void)
{
	*word = 1;
}

static void
release_stream(void)
{
	OK(cuStreamWriteValue32_v2(r, word_address(), 1, 0));
}

static void
release_kernel(void)
{
	order_signal(word, 1, r);
}

static void
release_from(int number)
{
	order_sleep(200);
	*word = 1;
}

static void
release_thread(void)
{
	order_threads(1, release_from);
}

static void
release_mutex(void)
{
	pthread_mutex_unlock(&mutex);
}

static void
release_pipe(void)
{
	EXPECT(write(pipe_ends[1], "x", 1) == 1);
}

#define STALL(stall, release)                                                                      \
	static void stall##_##release(void)                                                        \
	{                                                                                          \
		begin();                                                                           \
		EXPECT(!pipe(pipe_ends));                                                          \
		stall_after_the_free(stall, release);                                              \
	}

STALL(stall_value, release_host)
STALL(stall_value, release_stream)
STALL(stall_value, release_thread)
STALL(stall_batch, release_host)
STALL(stall_batch, release_stream)
STALL(stall_kernel, release_kernel)
STALL(stall_kernel, release_host)
STALL(stall_mutex, release_mutex)
STALL(stall_pipe, release_pipe)
STALL(stall_callback, release_pipe)

/* A thread that releases whatever is asked of it, a little later: stock's free waits that long. */
static void *
releaser(void *arg)
{
	for (int done = 0; done >= 0;) {
		int now = atomic_load(&step);

		if (now < 0)
			break;
		if (now > done) {
			order_sleep(300);
			*word = (uint32_t)now;
			done = now;
		}
		order_sleep(50);
	}
	return NULL;
}

/* s waits; a thread releases it; the free in between is one that stock ends too. */
static void
free_while_the_release_is_on_its_way(void)
{
	CUdeviceptr x, y;
	pthread_t thread;

	begin();
	EXPECT(!pthread_create(&thread, NULL, releaser, NULL));
	for (uint32_t i = 1; i <= 6; i++) {
		x = order_take(BIG);
		y = order_take(BIG);
		order_fill(x, 1, 0, r);
		if (i % 2)
			OK(cuStreamWaitValue32_v2(s, word_address(), i, WAIT_EQ));
		else
			order_wait(word, i, s);
		order_fill(y, 1, LONG / 4, s);
		atomic_store(&step, (int)i);
		y = order_again(y, BIG);
		order_use(y, 2, r);
		x = order_again(x, BIG);
		order_use(x, 3, s);
		OK(cuCtxSynchronize());
		order_give(x);
		order_give(y);
	}
	atomic_store(&step, -1);
	EXPECT(!pthread_join(thread, NULL));
	order_end();
}

static void
note_late(void *arg)
{
	order_sleep(300);
}

/* A host function of s may depend on anything; it does not free or take memory itself. */
static void
host_function_before_the_free(void)
{
	CUdeviceptr x;

	begin();
	x = order_take(BIG);
	for (int i = 0; i < 6; i++) {
		order_fill(x, 1, 100, s);
		OK(cuLaunchHostFunc(s, note_late, NULL));
		order_fill(x, 2, 100, s);
		x = order_again(x, BIG);
		order_use(x, 3, r);
		order_fill(x, 4, 100, r);
		x = order_again(x, BIG);
	}
	order_end();
}

/* Natively the frees wait for the host function, which then needs nothing that the caller has. So
 * nothing may wait for it later, when the caller has taken what it needs. */
static void
host_function_before_the_free_behind_a_mutex(void)
{
	enum { N = 22 }; /* more than reuse_slack_mb */
	CUdeviceptr x[N], y;

	begin();
	for (int i = 0; i < N; i++)
		x[i] = order_take(BIG);
	order_fill(x[0], 1, 100 * 1000, s);
	OK(cuLaunchHostFunc(s, lock_and_unlock, NULL));
	for (int i = 0; i < N; i++)
		order_give(x[i]);
	pthread_mutex_lock(&mutex);
	y = order_take(BIG + MIB);
	pthread_mutex_unlock(&mutex);
	order_give(y);
	order_end();
}

/* The same with another stream, which only waits for the host function. */
static void
wait_for_a_host_function_before_the_free_behind_a_mutex(void)
{
	enum { N = 22 };
	CUevent event;
	CUdeviceptr x[N], y;

	begin();
	event = order_event();
	for (int i = 0; i < N; i++)
		x[i] = order_take(BIG);
	order_fill(x[0], 1, 100 * 1000, r);
	OK(cuLaunchHostFunc(r, lock_and_unlock, NULL));
	OK(cuEventRecord(event, r));
	OK(cuStreamWaitEvent(s, event, 0));
	order_fill(x[1], 1, 0, s);
	for (int i = 0; i < N; i++)
		order_give(x[i]);
	pthread_mutex_lock(&mutex);
	y = order_take(BIG + MIB);
	pthread_mutex_unlock(&mutex);
	order_give(y);
	order_end();
}

enum { OTHERS = 24 }; /* more than reuse_slack_mb */
static CUdeviceptr others[OTHERS];

static void
take_others(int number)
{
	for (int i = 0; i < OTHERS; i++)
		others[i] = order_take(BIG);
}

/* The same with frees of what another thread allocates, which are held back beyond the slack. */
static void
host_function_before_others_memory_is_freed_behind_a_mutex(void)
{
	begin();
	order_threads(1, take_others);
	order_fill(others[0], 1, 100 * 1000, s);
	OK(cuLaunchHostFunc(s, lock_and_unlock, NULL));
	order_give(others[0]);
	pthread_mutex_lock(&mutex);
	for (int i = 1; i < OTHERS; i++)
		order_give(others[i]);
	pthread_mutex_unlock(&mutex);
	order_end();
}

/* What r waits for was submitted to s after the free by another thread. */
static CUdeviceptr shared_block;

static void
signal_from_another_thread(int number)
{
	order_signal(word, 1, s);
	order_use(shared_block, 9, s);
}

static void
memory_of_a_stream_that_another_thread_uses_next(void)
{
	CUdeviceptr x;

	begin();
	shared_block = order_take(BIG);
	for (int i = 0; i < 4; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 4, s);
		order_give(x);
		order_wait(word, 1, r);
		x = order_take(BIG);
		order_use(x, 2, r);
		order_threads(1, signal_from_another_thread);
		OK(cuStreamSynchronize(r));
		OK(cuStreamSynchronize(s));
		order_give(x);
		*word = 0;
	}
	order_end();
}

/* With one stream: what was freed before the kernel that waits for us must not be waited for as if
 * it had been freed after it. */
static void
taken_behind_a_waiting_kernel(void)
{
	CUdeviceptr x, y;

	order_start();
	s = order_stream(NONBLOCKING);
	word = order_word();
	for (int i = 0; i < 3; i++) {
		x = order_take(BIG);
		order_fill(x, 1, LONG / 4, s);
		order_give(x);
		order_wait(word, 1, s);
		x = order_take(BIG);
		y = order_take(BIG);
		order_fill(x, 2, 0, s);
		order_fill(y, 2, 0, s);
		*word = 1;
		OK(cuStreamSynchronize(s));
		*word = 0;
		order_give(x);
		order_give(y);
	}
	order_end();
}

/* Both streams have been used, and s waits behind x's last use. */
static CUdeviceptr
used_and_waiting(void)
{
	CUdeviceptr x, y;

	begin();
	x = order_take(BIG);
	y = order_take(BIG);
	order_fill(x, 1, 0, s);
	order_fill(y, 1, 0, r);
	OK(cuCtxSynchronize());
	order_fill(x, 1, 0, s);
	order_wait(word, 1, s);
	return x;
}

/* r ends what s waits for; whatever `y` is, s may use it. */
static void
release_and_use(CUdeviceptr y)
{
	order_signal(word, 1, r);
	order_use(y, 2, s);
	order_end();
}

/* The driver's free in stream order waits for nobody. */
static void
freed_in_stream_order(void)
{
	CUdeviceptr x = used_and_waiting();

	OK(cuMemFreeAsync(x, s));
	release_and_use(order_take(BIG));
}

static void
freed_in_stream_order_and_another_used_last(void)
{
	CUdeviceptr x = used_and_waiting(), z = order_take(BIG);

	order_fill(z, 1, 0, r);
	OK(cuMemFreeAsync(x, s));
	release_and_use(order_take(BIG));
}

/* What is submitted after the call may come before the free, by the order of the device. */
static void
used_before_the_free_in_stream_order(void)
{
	CUdeviceptr x, y;
	CUstream q;

	used_and_waiting(); /* s is busy */
	q = order_stream(NONBLOCKING);
	x = order_take(BIG); /* younger than all work of s */
	OK(cuMemFreeAsync(x, s));
	order_fill(x, 1, LONG, r);
	y = order_take(BIG);
	order_use(y, 2, q);
	order_signal(word, 1, r);
	order_end();
}

static void *
free_async_elsewhere(void *x)
{
	OK(cuMemFreeAsync((CUdeviceptr)(uintptr_t)x, s));
	return NULL;
}

static void *
free_elsewhere(void *x)
{
	order_give((CUdeviceptr)(uintptr_t)x); /* natively this waits until s is released */
	return NULL;
}

static void
freed_in_stream_order_by_another_thread(void)
{
	CUdeviceptr x = used_and_waiting();
	pthread_t thread;

	EXPECT(!pthread_create(&thread, NULL, free_async_elsewhere, (void *)(uintptr_t)x));
	EXPECT(!pthread_join(thread, NULL));
	release_and_use(order_take(BIG));
}

/* Natively the other thread alone waits for s. */
static void
freed_by_another_thread(void)
{
	CUdeviceptr x = used_and_waiting(), y;
	pthread_t thread;

	EXPECT(!pthread_create(&thread, NULL, free_elsewhere, (void *)(uintptr_t)x));
	order_sleep(20000);
	y = order_take(BIG);
	order_signal(word, 1, r);
	EXPECT(!pthread_join(thread, NULL));
	order_use(y, 2, s);
	order_end();
}

const struct order_case rules_waits[] = {
	{ "t5_freed_in_stream_order", freed_in_stream_order },
	{ "t5_freed_in_stream_order_and_another_used_last",
	  freed_in_stream_order_and_another_used_last },
	{ "t5_used_before_the_free_in_stream_order", used_before_the_free_in_stream_order },
	{ "t5_freed_in_stream_order_by_another_thread", freed_in_stream_order_by_another_thread },
	{ "t5_freed_by_another_thread", freed_by_another_thread },
	{ "t5_wait_value_after_the_free_released_by_the_host", stall_value_release_host },
	{ "t5_wait_value_after_the_free_released_by_a_stream", stall_value_release_stream },
	{ "t5_wait_value_after_the_free_released_by_a_thread", stall_value_release_thread },
	{ "t5_batch_after_the_free_released_by_the_host", stall_batch_release_host },
	{ "t5_batch_after_the_free_released_by_a_stream", stall_batch_release_stream },
	{ "t5_waiting_kernel_after_the_free_released_by_a_kernel", stall_kernel_release_kernel },
	{ "t5_waiting_kernel_after_the_free_released_by_the_host", stall_kernel_release_host },
	{ "t5_host_function_behind_a_mutex", stall_mutex_release_mutex },
	{ "t5_host_function_behind_a_pipe", stall_pipe_release_pipe },
	{ "t5_callback_behind_a_pipe", stall_callback_release_pipe },
	{ "t5_taken_behind_a_waiting_kernel", taken_behind_a_waiting_kernel },
	{ "t5_free_while_the_release_is_on_its_way", free_while_the_release_is_on_its_way },
	{ "t5_host_function_before_the_free", host_function_before_the_free },
	{ "t5_host_function_before_the_free_behind_a_mutex",
	  host_function_before_the_free_behind_a_mutex },
	{ "t5_wait_for_a_host_function_before_the_free_behind_a_mutex",
	  wait_for_a_host_function_before_the_free_behind_a_mutex },
	{ "t5_host_function_before_others_memory_is_freed_behind_a_mutex",
	  host_function_before_others_memory_is_freed_behind_a_mutex },
	{ "t5_memory_of_a_stream_that_another_thread_uses_next",
	  memory_of_a_stream_that_another_thread_uses_next },
	{ NULL, NULL },
};
