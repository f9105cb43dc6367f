/* SPDX-License-Identifier: MIT */
/*
 * Every copy, set and work on managed memory that the simulated driver builds, by its exported
 * name: `order_names NAME_CASE`, on the stream that NULL means to that name.
 *
 *   unordered        after a kernel on another stream, in no order: the oracle must accuse the row
 *   ordered          the same with an event between: it must not
 *   after_blocking   after a kernel on a blocking stream: an order for the legacy stream alone
 *   first            the first work of a block's next life
 *   last             the unfinished old user of a freed block
 *
 * The last two are right natively: with the library they show that its hook of that name sees the
 * row as the simulator does. They are for names that take memory of cuMemAlloc.
 */
#include "tests/process/order/order.h"

enum {
	ROW = 256, /* bytes; as many lie between two rows */
	N_ROWS = 16,
	BYTES = 2 * ROW * N_ROWS,
};

struct scene {
	CUdeviceptr memory; /* what the row and somebody else use: the block, or managed memory */
	CUdeviceptr beside;
	void *pinned;
	CUarray array, other; /* BYTES bytes in a line */
	CUcontext context;
	CUstream stream; /* not blocking: for names that refuse the legacy stream */
};

/* ---------------------------------------------------------- descriptions --- */
static CUDA_MEMCPY3D *
deep(const struct scene *x)
{
	static CUDA_MEMCPY3D copy;

	copy = (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = x->beside,
		.srcPitch = 2ul * ROW,
		.srcHeight = N_ROWS / 2,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = x->memory,
		.dstPitch = 2ul * ROW,
		.dstHeight = N_ROWS / 2,
		.WidthInBytes = ROW,
		.Height = N_ROWS / 2,
		.Depth = 2,
	};
	return &copy;
}

static CUDA_MEMCPY3D_PEER *
peer(const struct scene *x)
{
	static CUDA_MEMCPY3D_PEER copy;

	memcpy(&copy, deep(x), sizeof(copy));
	copy.srcContext = copy.dstContext = x->context;
	return &copy;
}

static CUDA_MEMCPY2D *
flat(const struct scene *x)
{
	static CUDA_MEMCPY2D copy;

	copy = (CUDA_MEMCPY2D){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = x->beside,
		.srcPitch = 2ul * ROW,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = x->memory,
		.dstPitch = 2ul * ROW,
		.WidthInBytes = ROW,
		.Height = N_ROWS,
	};
	return &copy;
}

static CUmemcpy3DOperand
operand(CUdeviceptr memory)
{
	return (CUmemcpy3DOperand){
		.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
		.op.ptr = { .ptr = memory, .rowLength = 2ul * ROW },
	};
}

static CUDA_MEMCPY3D_BATCH_OP *
op(const struct scene *x)
{
	static CUDA_MEMCPY3D_BATCH_OP copy;

	copy = (CUDA_MEMCPY3D_BATCH_OP){
		.src = operand(x->beside),
		.dst = operand(x->memory),
		.extent = { ROW, N_ROWS, 1 },
		.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
	};
	return &copy;
}

static CUdeviceptr *
addresses(CUdeviceptr memory)
{
	static CUdeviceptr list[2][1]; /* of a call's two sides */
	static unsigned turn;

	list[++turn % 2][0] = memory;
	return list[turn % 2];
}

static CUmemcpyAttributes in_order = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
static CUmemLocation here = { .type = 1, .id = 0 };
static size_t sizes[1] = { BYTES }, zeros[1];

/* ------------------------------------------------------------------ rows --- */
/*
 * TWO(name, suffix, kind, arguments): the name and its twin; ONE(name, kind, arguments). x is the
 * scene. Kinds: BLOCK, memory of cuMemAlloc; NAMED, the same on x->stream, since the name refuses
 * the legacy one; MANAGED; ARRAY, what is raced for is an array.
 */
#define LINES(TWO, ONE)                                                                            \
	TWO(cuMemcpy, _ptds, BLOCK, x->memory, x->beside, BYTES)                                   \
	TWO(cuMemcpyAsync, _ptsz, BLOCK, x->memory, x->beside, BYTES, NULL)                        \
	TWO(cuMemcpyWithAttributesAsync, _ptsz, BLOCK, x->memory, x->beside, BYTES, &in_order,     \
	    NULL)                                                                                  \
	TWO(cuMemcpyPeer, _ptds, BLOCK, x->memory, x->context, x->beside, x->context, BYTES)       \
	TWO(cuMemcpyPeerAsync, _ptsz, BLOCK, x->memory, x->context, x->beside, x->context, BYTES,  \
	    NULL)                                                                                  \
	TWO(cuMemcpyHtoD_v2, _ptds, BLOCK, x->memory, x->pinned, BYTES)                            \
	TWO(cuMemcpyHtoDAsync_v2, _ptsz, BLOCK, x->memory, x->pinned, BYTES, NULL)                 \
	TWO(cuMemcpyDtoH_v2, _ptds, BLOCK, x->pinned, x->memory, BYTES)                            \
	TWO(cuMemcpyDtoHAsync_v2, _ptsz, BLOCK, x->pinned, x->memory, BYTES, NULL)                 \
	TWO(cuMemcpyDtoD_v2, _ptds, BLOCK, x->memory, x->beside, BYTES)                            \
	TWO(cuMemcpyDtoDAsync_v2, _ptsz, BLOCK, x->memory, x->beside, BYTES, NULL)

#define AREAS(TWO, ONE)                                                                            \
	TWO(cuMemcpy2D_v2, _ptds, BLOCK, flat(x))                                                  \
	TWO(cuMemcpy2DUnaligned_v2, _ptds, BLOCK, flat(x))                                         \
	TWO(cuMemcpy2DAsync_v2, _ptsz, BLOCK, flat(x), NULL)                                       \
	TWO(cuMemcpy3D_v2, _ptds, BLOCK, deep(x))                                                  \
	TWO(cuMemcpy3DAsync_v2, _ptsz, BLOCK, deep(x), NULL)                                       \
	TWO(cuMemcpy3DPeer, _ptds, BLOCK, peer(x))                                                 \
	TWO(cuMemcpy3DPeerAsync, _ptsz, BLOCK, peer(x), NULL)

#define BATCHES(TWO, ONE)                                                                          \
	ONE(cuMemcpyBatchAsync, NAMED, addresses(x->memory), addresses(x->beside), sizes, 1,       \
	    &in_order, zeros, 1, NULL, x->stream)                                                  \
	ONE(cuMemcpyBatchAsync_ptsz, BLOCK, addresses(x->memory), addresses(x->beside), sizes, 1,  \
	    &in_order, zeros, 1, NULL, NULL)                                                       \
	ONE(cuMemcpyBatchAsync_v2, NAMED, addresses(x->beside), addresses(x->memory), sizes, 1,    \
	    &in_order, zeros, 1, x->stream)                                                        \
	ONE(cuMemcpyBatchAsync_v2_ptsz, BLOCK, addresses(x->beside), addresses(x->memory), sizes,  \
	    1, &in_order, zeros, 1, NULL)                                                          \
	ONE(cuMemcpy3DBatchAsync, NAMED, 1, op(x), NULL, 0, x->stream)                             \
	ONE(cuMemcpy3DBatchAsync_ptsz, BLOCK, 1, op(x), NULL, 0, NULL)                             \
	ONE(cuMemcpy3DBatchAsync_v2, NAMED, 1, op(x), 0, x->stream)                                \
	ONE(cuMemcpy3DBatchAsync_v2_ptsz, BLOCK, 1, op(x), 0, NULL)                                \
	ONE(cuMemcpy3DWithAttributesAsync, NAMED, op(x), 0, x->stream)                             \
	ONE(cuMemcpy3DWithAttributesAsync_ptsz, BLOCK, op(x), 0, NULL)

#define ARRAYS(TWO, ONE)                                                                           \
	TWO(cuMemcpyDtoA_v2, _ptds, BLOCK, x->array, 0, x->memory, BYTES)                          \
	TWO(cuMemcpyAtoD_v2, _ptds, BLOCK, x->memory, x->array, 0, BYTES)                          \
	TWO(cuMemcpyHtoA_v2, _ptds, ARRAY, x->array, 0, x->pinned, BYTES)                          \
	TWO(cuMemcpyHtoAAsync_v2, _ptsz, ARRAY, x->array, 0, x->pinned, BYTES, NULL)               \
	TWO(cuMemcpyAtoH_v2, _ptds, ARRAY, x->pinned, x->array, 0, BYTES)                          \
	TWO(cuMemcpyAtoHAsync_v2, _ptsz, ARRAY, x->pinned, x->array, 0, BYTES, NULL)               \
	TWO(cuMemcpyAtoA_v2, _ptds, ARRAY, x->other, 0, x->array, 0, BYTES)

#define SETS(TWO, ONE)                                                                             \
	TWO(cuMemsetD8_v2, _ptds, BLOCK, x->memory, 1, BYTES)                                      \
	TWO(cuMemsetD8Async, _ptsz, BLOCK, x->memory, 1, BYTES, NULL)                              \
	TWO(cuMemsetD16_v2, _ptds, BLOCK, x->memory, 1, BYTES / 2)                                 \
	TWO(cuMemsetD16Async, _ptsz, BLOCK, x->memory, 1, BYTES / 2, NULL)                         \
	TWO(cuMemsetD32_v2, _ptds, BLOCK, x->memory, 1, BYTES / 4)                                 \
	TWO(cuMemsetD32Async, _ptsz, BLOCK, x->memory, 1, BYTES / 4, NULL)                         \
	TWO(cuMemsetD2D8_v2, _ptds, BLOCK, x->memory, 2 * ROW, 1, ROW, N_ROWS)                     \
	TWO(cuMemsetD2D8Async, _ptsz, BLOCK, x->memory, 2 * ROW, 1, ROW, N_ROWS, NULL)             \
	TWO(cuMemsetD2D16_v2, _ptds, BLOCK, x->memory, 2 * ROW, 1, ROW / 2, N_ROWS)                \
	TWO(cuMemsetD2D16Async, _ptsz, BLOCK, x->memory, 2 * ROW, 1, ROW / 2, N_ROWS, NULL)        \
	TWO(cuMemsetD2D32_v2, _ptds, BLOCK, x->memory, 2 * ROW, 1, ROW / 4, N_ROWS)                \
	TWO(cuMemsetD2D32Async, _ptsz, BLOCK, x->memory, 2 * ROW, 1, ROW / 4, N_ROWS, NULL)

#define MANAGED_ONES(TWO, ONE)                                                                     \
	TWO(cuMemPrefetchAsync, _ptsz, MANAGED, x->memory, BYTES, 0, NULL)                         \
	TWO(cuMemPrefetchAsync_v2, _ptsz, MANAGED, x->memory, BYTES, here, 0, NULL)                \
	TWO(cuMemPrefetchBatchAsync, _ptsz, MANAGED, addresses(x->memory), sizes, 1, &here, zeros, \
	    1, 0, NULL)                                                                            \
	TWO(cuMemDiscardBatchAsync, _ptsz, MANAGED, addresses(x->memory), sizes, 1, 0, NULL)       \
	TWO(cuMemDiscardAndPrefetchBatchAsync, _ptsz, MANAGED, addresses(x->memory), sizes, 1,     \
	    &here, zeros, 1, 0, NULL)                                                              \
	TWO(cuStreamAttachMemAsync, _ptsz, MANAGED, NULL, x->memory, 0, CU_MEM_ATTACH_GLOBAL)

#define ALL(TWO, ONE)                                                                              \
	LINES(TWO, ONE)                                                                            \
	AREAS(TWO, ONE)                                                                            \
	BATCHES(TWO, ONE)                                                                          \
	ARRAYS(TWO, ONE)                                                                           \
	SETS(TWO, ONE)                                                                             \
	MANAGED_ONES(TWO, ONE)

/* ---------------------------------------------------------------- scenes --- */
typedef void row_call(const struct scene *x);

enum kind {
	BLOCK,
	NAMED,
	MANAGED,
	ARRAY,
};

static struct scene
begin(enum kind kind)
{
	const CUDA_ARRAY_DESCRIPTOR desc = { BYTES, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1 };
	struct scene x = { .context = order_start() };

	x.stream = order_stream(NONBLOCKING);
	x.beside = order_take(BIG);
	OK(cuMemHostAlloc(&x.pinned, BYTES, 0));
	memset(x.pinned, 0, BYTES);
	OK(cuArrayCreate_v2(&x.array, &desc));
	OK(cuArrayCreate_v2(&x.other, &desc));
	OK(cuMemsetD32_v2(x.beside, 3, WORDS));
	if (kind == MANAGED)
		OK(cuMemAllocManaged(&x.memory, BYTES, CU_MEM_ATTACH_GLOBAL));
	else
		x.memory = order_take(BIG);
	OK(cuCtxSynchronize_v2(NULL));
	/* nothing is handed out unfinished while nobody knows who submits to a stream */
	OK(cuMemsetD32Async(x.beside, 3, WORDS, x.stream));
	OK(cuStreamSynchronize(x.stream));
	return x;
}

/* Earlier work writes the memory that the row will use. */
static void
write_before(const struct scene *x, enum kind kind, CUstream stream)
{
	uint64_t words = BYTES / 4, value = 1, spin_us = LONG;
	CUdeviceptr memory = x->memory;

	if (kind == ARRAY)
		OK(cuMemcpyHtoAAsync_v2(x->array, 0, x->pinned, BYTES, stream));
	else
		OK(cuLaunchKernel(order_kernel("sim_fill"), 1, 1, 1, 1, 1, 1, 0, stream,
				  (void *[]){ &memory, &words, &value, &spin_us }, NULL));
}

/* The row's stream waits, whichever it is. */
static void
all_wait(const struct scene *x, CUstream stream)
{
	CUevent event = order_event();

	OK(cuEventRecord(event, stream));
	OK(cuStreamWaitEvent(CU_STREAM_LEGACY, event, 0));
	OK(cuStreamWaitEvent(CU_STREAM_PER_THREAD, event, 0));
	OK(cuStreamWaitEvent(x->stream, event, 0));
}

static void
unordered(enum kind kind, row_call *row)
{
	struct scene x = begin(kind);

	write_before(&x, kind, order_stream(NONBLOCKING));
	row(&x);
}

static void
ordered(enum kind kind, row_call *row)
{
	CUstream before;
	struct scene x = begin(kind);

	before = order_stream(NONBLOCKING);
	write_before(&x, kind, before);
	all_wait(&x, before);
	row(&x);
	order_end();
}

static void
after_blocking(enum kind kind, row_call *row)
{
	struct scene x = begin(kind);

	write_before(&x, kind, order_stream(BLOCKING));
	row(&x);
	order_end();
}

static void
first(enum kind kind, row_call *row)
{
	struct scene x = begin(kind);
	CUstream old = order_stream(NONBLOCKING);

	order_fill(x.memory, 1, LONG, old);
	x.memory = order_again(x.memory, BIG);
	row(&x);
	order_end();
}

static void
last(enum kind kind, row_call *row)
{
	struct scene x = begin(kind);
	CUstream long_before = order_stream(NONBLOCKING), next = order_stream(NONBLOCKING);

	order_fill(order_take(BIG), 1, LONG, long_before);
	all_wait(&x, long_before);
	row(&x);
	x.memory = order_again(x.memory, BIG);
	order_use(x.memory, 2, next);
	order_end();
}

/* ---------------------------------------------------------------- tables --- */
#define ROW_ONE(name, kind, ...)                                                                   \
	static void name##_row(const struct scene *x)                                              \
	{                                                                                          \
		OK(name(__VA_ARGS__));                                                             \
	}                                                                                          \
	RUN(name, kind, unordered)                                                                 \
	RUN(name, kind, ordered)                                                                   \
	RUNS_##kind(name)
#define RUN(name, kind, scene)                                                                     \
	static void name##_##scene(void)                                                           \
	{                                                                                          \
		scene(kind, name##_row);                                                           \
	}
#define RUNS_BLOCK(name)                                                                           \
	RUN(name, BLOCK, after_blocking)                                                           \
	RUN(name, BLOCK, first)                                                                    \
	RUN(name, BLOCK, last)
#define RUNS_NAMED(name)                                                                           \
	RUN(name, NAMED, first)                                                                    \
	RUN(name, NAMED, last)
#define RUNS_MANAGED(name) RUN(name, MANAGED, after_blocking)
#define RUNS_ARRAY(name) RUN(name, ARRAY, after_blocking)
#define ROW_TWO(name, suffix, kind, ...)                                                           \
	ROW_ONE(name, kind, __VA_ARGS__)                                                           \
	ROW_ONE(name##suffix, kind, __VA_ARGS__)
ALL(ROW_TWO, ROW_ONE)

#define CASE(name, scene) { #name "_" #scene, name##_##scene },
#define CASE_ONE(name, kind, ...) CASE(name, unordered) CASE(name, ordered) CASES_##kind(name)
#define CASES_BLOCK(name) CASE(name, after_blocking) CASE(name, first) CASE(name, last)
#define CASES_NAMED(name) CASE(name, first) CASE(name, last)
#define CASES_MANAGED(name) CASE(name, after_blocking)
#define CASES_ARRAY(name) CASE(name, after_blocking)
#define CASE_TWO(name, suffix, kind, ...) CASE_ONE(name, kind, ) CASE_ONE(name##suffix, kind, )

static const struct order_case names[] = { ALL(CASE_TWO, CASE_ONE){ NULL, NULL } };

const struct order_case *const order_cases[] = { names, NULL };
