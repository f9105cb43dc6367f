/* SPDX-License-Identifier: MIT */
/*
 * Memory of other processes: `order_ipc CASE`. Cases of two processes need SIMCUDA_IPC=FOLDER; the
 * others, that begin with `self_` or `wrong_`, SIMCUDA_IPC=self: there a process opens its own
 * memory, and what is done through the alias is judged as work on that memory. What begins with
 * `wrong_` races.
 */
#include "tests/process/order/order.h"

#include <sys/wait.h>
#include <unistd.h>

static int to_parent[2], to_child[2];

static void
tell(int fd, const void *what, size_t n)
{
	EXPECT(write(fd, what, n) == (ssize_t)n);
}

static void
hear(int fd, void *what, size_t n)
{
	EXPECT(read(fd, what, n) == (ssize_t)n);
}

static CUdeviceptr
opened(CUipcMemHandle handle)
{
	CUdeviceptr memory;

	OK(cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	return memory;
}

static CUipcMemHandle
exported(CUdeviceptr memory)
{
	CUipcMemHandle handle;

	OK(cuIpcGetMemHandle(&handle, memory));
	return handle;
}

/* Before cuInit: runs `child` in a process of its own, which ends with its status. */
static pid_t
other_process(void (*child)(void))
{
	pid_t pid;

	EXPECT(!pipe(to_parent) && !pipe(to_child));
	pid = fork();
	EXPECT(pid >= 0);
	if (pid)
		return pid;
	child();
	exit(0);
}

static void
other_ends(pid_t pid)
{
	int status;

	EXPECT(waitpid(pid, &status, 0) == pid);
	EXPECT(status == 0);
}

/* --------------------------------------------------------- two processes --- */
/* Opened memory is the driver's: it is asked, and it refuses to free it. */
static void
importer(void)
{
	CUdeviceptr memory, again, base;
	CUipcMemHandle handle;
	CUstream stream;
	size_t n_bytes;

	hear(to_child[0], &handle, sizeof(handle));
	order_start();
	stream = order_stream(NONBLOCKING);
	memory = opened(handle);
	EXPECT(!order_wrong(memory, 7));
	OK(cuMemGetAddressRange_v2(&base, &n_bytes, memory + 4));
	EXPECT(base == memory && n_bytes == BIG);
	OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 4));
	EXPECT(base == memory);
	EXPECT(cuMemFree_v2(memory) == CUDA_ERROR_INVALID_VALUE);
	again = opened(handle);
	EXPECT(again == memory);
	order_use(memory, 9, stream);
	OK(cuStreamSynchronize(stream));
	OK(cuIpcCloseMemHandle(memory));
	EXPECT(!order_wrong(memory, 9));
	OK(cuIpcCloseMemHandle(memory));
	EXPECT(cuIpcCloseMemHandle(memory) == CUDA_ERROR_INVALID_VALUE);
	again = order_again(order_take(BIG), BIG);
	order_use(again, 3, stream);
	order_end();
	tell(to_parent[1], "", 1);
}

static void
two_processes(void)
{
	pid_t pid = other_process(importer);
	CUipcMemHandle handle;
	CUdeviceptr memory;
	char done;

	order_start();
	memory = order_take(BIG);
	order_fill(memory, 7, 0, NULL);
	OK(cuCtxSynchronize());
	handle = exported(memory);
	EXPECT(cuIpcOpenMemHandle_v2(&(CUdeviceptr){ 0 }, handle,
				     CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
	       CUDA_ERROR_INVALID_CONTEXT);
	tell(to_child[1], &handle, sizeof(handle));
	hear(to_parent[0], &done, 1);
	EXPECT(!order_wrong(memory, 9));
	other_ends(pid);
	order_give(memory);
	order_end();
}

/* ---- the block's former user has not finished when another process is given the memory */
static void
writer(void)
{
	CUipcMemHandle handle;
	CUdeviceptr memory;

	hear(to_child[0], &handle, sizeof(handle));
	order_start();
	memory = opened(handle);
	order_use(memory, 9, NULL);
	order_end();
	OK(cuIpcCloseMemHandle(memory));
	tell(to_parent[1], "", 1);
}

static void
settled_before_it_is_given_away(void)
{
	pid_t pid = other_process(writer);
	CUipcMemHandle handle;
	CUdeviceptr memory;
	CUstream old;
	char done;

	order_start();
	old = order_stream(NONBLOCKING);
	memory = order_take(BIG);
	order_fill(memory, 1, 100 * LONG, old);
	memory = order_again(memory, BIG);
	handle = exported(memory);
	tell(to_child[1], &handle, sizeof(handle));
	hear(to_parent[0], &done, 1);
	OK(cuCtxSynchronize());
	EXPECT(!order_wrong(memory, 9));
	other_ends(pid);
	order_end();
}

/* ------------------------------------------------------------ the alias --- */
struct alias {
	CUdeviceptr memory, alias;
	CUstream a, b;
};

static struct alias
alias(void)
{
	struct alias x;

	order_start();
	x.a = order_stream(NONBLOCKING);
	x.b = order_stream(NONBLOCKING);
	x.memory = order_take(BIG);
	x.alias = opened(exported(x.memory));
	EXPECT(x.alias != x.memory);
	return x;
}

static void
self_ordered(void)
{
	struct alias x = alias();
	CUevent event = order_event();

	order_fill(x.alias, 1, LONG, x.a);
	OK(cuEventRecord(event, x.a));
	OK(cuStreamWaitEvent(x.b, event, 0));
	order_check(x.memory, 1, x.b);
	order_fill(x.memory, 2, 0, x.b);
	order_check(x.alias, 2, x.b);
	order_end();
}

static void
self_old_user(void)
{
	struct alias x = alias();

	order_fill(x.alias, 1, LONG, x.a);
	x.memory = order_again(x.memory, BIG);
	order_use(x.memory, 2, x.b);
	order_end();
}

static void
self_closed_meanwhile(void)
{
	struct alias x = alias();

	order_fill(x.alias, 1, LONG, x.a);
	OK(cuIpcCloseMemHandle(x.alias));
	x.memory = order_again(x.memory, BIG);
	order_use(x.memory, 2, x.b);
	order_end();
}

static void
wrong_unordered(void)
{
	struct alias x = alias();

	order_fill(x.alias, 1, LONG, x.a);
	order_fill(x.memory, 2, 0, x.b);
	order_end();
}

static void
wrong_the_other_way_round(void)
{
	struct alias x = alias();

	order_fill(x.memory, 1, LONG, x.a);
	order_check(x.alias, 1, x.b);
	order_end();
}

#define CASES(X)                                                                                   \
	X(two_processes)                                                                           \
	X(settled_before_it_is_given_away)                                                         \
	X(self_ordered)                                                                            \
	X(self_old_user)                                                                           \
	X(self_closed_meanwhile)                                                                   \
	X(wrong_unordered)                                                                         \
	X(wrong_the_other_way_round)

static const struct order_case ipc[] = {
#define X(name) { #name, name },
	CASES(X)
#undef X
		{ NULL, NULL },
};

const struct order_case *const order_cases[] = { ipc, NULL };
