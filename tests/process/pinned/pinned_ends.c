/* SPDX-License-Identifier: MIT */
/* The program's view of the memory, and the ends of contexts, processes and memory. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/process/pinned/pinned.h"

static void
show_range(void *p, size_t at, const char *which)
{
	CUdeviceptr base = 0, device = 0;
	size_t size = 0, length = 0;
	unsigned flags = 77;
	void *host = NULL;
	CUpointer_attribute names[] = { CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
					CU_POINTER_ATTRIBUTE_RANGE_SIZE };
	void *answers[] = { &base, &size };
	CUdeviceptr inside = on_device(p) + at;

	printf("%s\n", which);
	SHOW(cuPointerGetAttributes(2, names, answers, inside));
	printf("%d %zu\n", base == on_device(p), size);
	size = 0;
	SHOW(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
	SHOW(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside));
	printf("%zu %d\n", size, on_device(host) == inside);
	SHOW(cuMemGetAddressRange_v2(&base, &length, inside));
	printf("%d %zu\n", base == on_device(p), length);
	SHOW(cuMemHostGetFlags(&flags, (char *)p + at));
	SHOW(cuMemHostGetDevicePointer_v2(&device, (char *)p + at, 0));
	printf("%u %d\n", flags, device == inside);
}

/* Twice, so that the second memory is the first's, of another size. */
static void
attributes(void)
{
	order_start();
	for (unsigned flags = 0; flags < 4; flags++)
		for (size_t less = 0; less < 3; less++) {
			char *p = take(BYTES - less, flags);

			show_range(p, 0, "beginning");
			show_range(p, BYTES - less - 1, "last byte");
			give(p);
			OK(cuCtxSynchronize());
		}
	order_end();
}

static void
freed_is_unknown(void)
{
	void *p;

	order_start();
	p = take(BYTES, 0);
	SHOW(cuMemFreeHost((char *)p + 1));
	SHOW(cuMemHostUnregister(p));
	SHOW(cuMemFreeHost(p));
	SHOW(cuMemFreeHost(p));
	SHOW(cuMemHostUnregister(p));
	show_range(p, 0, "freed");
	SHOW(cuMemFreeHost(NULL));
	SHOW(cuMemHostAlloc(&p, 0, 0));
	SHOW(cuMemHostAlloc(&p, 64, 1u << 31));
	SHOW(cuMemHostAlloc(NULL, 64, 0));
	order_end();
}

/* One size class, whatever is asked for; other flags are another kind. */
static void
kinds(void)
{
	void *p, *q;

	order_start();
	p = take(1000003, 0);
	give(p);
	OK(cuCtxSynchronize());
	q = take(1000001, 0);
	EXPECT(p == q);
	give(q);
	OK(cuCtxSynchronize());
	q = take(1000003, PORTABLE);
	EXPECT(p != q);
	give(q);
	q = take(2000003, 0);
	EXPECT(p != q);
	give(q);
	order_end();
}

static void
capture_refuses(void)
{
	CUgraph captured;
	CUstream s;
	void *p;

	order_start();
	s = order_stream(NONBLOCKING);
	give(take(BYTES, 0));
	OK(cuCtxSynchronize());
	p = take(BYTES, 0);
	give(take(BYTES, 0));
	OK(cuCtxSynchronize());
	for (int frees = 0; frees < 2; frees++) {
		void *q;

		OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
		if (frees)
			SHOW(cuMemFreeHost(p));
		else
			SHOW(cuMemHostAlloc(&q, BYTES, 0));
		SHOW(cuStreamEndCapture(s, &captured));
	}
	SHOW(cuMemFreeHost(p));
	order_end();
}

static void
context_destroyed(void)
{
	CUcontext first = order_start(), second = order_context(0);
	void *live = take(BYTES, 0), *shared = take(BYTES, PORTABLE), *freed = take(BYTES, 0);

	give(freed);
	OK(cuCtxDestroy_v2(second));
	order_enter(first);
	SHOW(cuMemFreeHost(live));
	SHOW(cuMemFreeHost(shared));
	SHOW(cuMemFreeHost(freed));
	for (int i = 0; i < ROUNDS; i++) {
		uint32_t *p = take(BYTES, i % 2);

		write_words(p, 1);
		give(p);
	}
	order_end();
}

static void
primary_reset(void)
{
	CUcontext context;
	void *live;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	live = take(BYTES, 0);
	give(take(BYTES, 0));
	OK(cuDevicePrimaryCtxReset_v2(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	SHOW(cuMemFreeHost(live));
	for (int i = 0; i < ROUNDS; i++) {
		uint32_t *p = take(BYTES, 0);

		write_words(p, 1);
		give(p);
		OK(cuCtxSynchronize());
	}
}

/* The child frees nothing of the parent's, and can use nothing. */
static void
fork_child(void)
{
	uint32_t *kept, *p;
	int status;
	pid_t child;

	order_start();
	kept = take(BYTES, 0);
	write_words(kept, 9);
	p = take(BYTES, 0);
	give(p);
	fflush(stdout);
	child = fork();
	if (!child)
		_exit(((volatile uint32_t *)kept)[0] == 9 ? 0 : 1);
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	OK(cuCtxSynchronize());
	p = take(BYTES, 0);
	write_words(p, 4);
	expect_words(kept, 9);
	give(p);
	give(kept);
	order_end();
}

/* The kernel raises SIGSYS where 64 KiB would be mapped: memory for the library's records. */
static bool
trap_records(void)
{
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 64 << 10, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(steps) / sizeof(steps[0]), steps };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void
end_here(int number)
{
	exit(0); /* NOLINT(bugprone-signal-handler): programs do so */
}

/* A signal handler that ends the program in the middle of cuMemHostAlloc; 77: cannot be had. */
static void
exit_inside(void)
{
	order_start();
	give(take(64, 0));
	EXPECT(signal(SIGSYS, end_here) == SIG_DFL);
	if (!trap_records())
		_exit(77);
	alarm(30); /* it hangs */
	for (int i = 0; i < 4096; i++)
		take(64, 0);
	EXPECT(!"records were mapped");
}

/* Freed memory of another size is there when the driver has none: it goes back. */
static void
host_memory_ends(void)
{
	void *p;

	order_start();
	give(take(BYTES, 0));
	give(take(2 * BYTES, 0));
	p = take(3 * BYTES, 0);
	give(p);
	order_end();
}

static void
device_memory_ends(void)
{
	CUdeviceptr memory;

	order_start();
	give(take(BYTES, 0));
	EXPECT(cuMemAlloc_v2(&memory, (size_t)1 << 40) == CUDA_ERROR_OUT_OF_MEMORY);
	order_end();
}

/* Memory whose state was changed is not kept. */
static void
exposed(void)
{
	unsigned one = 1;
	char *p;

	order_start();
	p = take(BYTES, 0);
	OK(cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, on_device(p + MIB)));
	if (getenv("PINNED_FREE_FAILS")) {
		EXPECT(cuMemFreeHost(p) == CUDA_ERROR_UNKNOWN);
		return;
	}
	give(p);
	order_end();
}

/* Frees beyond the cap go back. */
static void
cap(void)
{
	void *p[6];

	order_start();
	for (int i = 0; i < 6; i++)
		p[i] = take(BYTES, 0);
	for (int i = 0; i < 6; i++)
		give(p[i]);
	order_end();
}

static void
barrier(void)
{
	CUdeviceptr x;
	CUstream s;
	void *p;

	order_start();
	s = order_stream(NONBLOCKING);
	x = order_take(BYTES);
	for (int i = 0; i < ROUNDS; i++) {
		p = take(BYTES, 0);
		order_fill(x, 1, LONG, s);
		give(p);
		OK(cuStreamQuery(s));
	}
	order_end();
}

/* As much work as is submitted, nothing waits: the free, and a request that finds nothing. */
static void
nothing_waits(void)
{
	volatile uint32_t *word;
	CUdeviceptr x;
	CUstream s;

	order_start();
	s = order_stream(NONBLOCKING);
	x = order_take(BYTES);
	word = order_word();
	give(take(BYTES, 0));
	order_wait(word, 1, s);
	order_fill(x, 1, 0, s);
	for (int i = 0; i < ROUNDS; i++)
		give(take(BYTES, 0));
	*word = 1;
	order_end();
}

const struct order_case pinned_ends[] = {
	{ "attributes", attributes },
	{ "freed_is_unknown", freed_is_unknown },
	{ "kinds", kinds },
	{ "capture_refuses", capture_refuses },
	{ "context_destroyed", context_destroyed },
	{ "primary_reset", primary_reset },
	{ "fork_child", fork_child },
	{ "exit_inside", exit_inside },
	{ "host_memory_ends", host_memory_ends },
	{ "device_memory_ends", device_memory_ends },
	{ "exposed", exposed },
	{ "cap", cap },
	{ "barrier", barrier },
	{ "nothing_waits", nothing_waits },
	{ NULL, NULL },
};
