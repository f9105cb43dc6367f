/* SPDX-License-Identifier: MIT */
/*
 * Work that names.c does not do by name: copies of rows in other directions, batches of more than
 * one copy, cooperative launches; each on a block that was freed while somebody used it:
 * `order_rows ROW_first` has the row be the first work of the block's next life, on another stream
 * than its unfinished old user; `order_rows ROW_last` has it be that old user. So a library that
 * hands memory out too early makes the row race, and the oracle must say so.
 */
#include "tests/process/order/order.h"

enum {
	ROW_WORDS = 64, /* of the areas: rows of so many, two such apart */
	N_ROWS = 16,
};

/* What a row works with: the block, memory beside it that lives on, and the stream. */
struct scene {
	CUdeviceptr block, beside;
	uint32_t *pinned;
	CUarray array; /* of one dimension, WORDS words */
	CUstream stream;
};

/* ------------------------------------------------------- copies of rows --- */
static CUDA_MEMCPY2D
flat(CUdeviceptr to, CUdeviceptr from)
{
	return (CUDA_MEMCPY2D){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = from,
		.srcPitch = 8ul * ROW_WORDS,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = to,
		.dstPitch = 8ul * ROW_WORDS,
		.WidthInBytes = 4ul * ROW_WORDS,
		.Height = N_ROWS,
	};
}

static CUDA_MEMCPY3D
deep(CUdeviceptr to, CUdeviceptr from)
{
	return (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = from,
		.srcPitch = 8ul * ROW_WORDS,
		.srcHeight = N_ROWS,
		.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
		.dstDevice = to,
		.dstPitch = 8ul * ROW_WORDS,
		.dstHeight = N_ROWS,
		.WidthInBytes = 4ul * ROW_WORDS,
		.Height = N_ROWS / 2,
		.Depth = 2,
	};
}

static void
copy_2d_from(const struct scene *scene)
{
	CUDA_MEMCPY2D copy = flat(scene->beside, scene->block);

	OK(cuMemcpy2DAsync_v2_ptsz(&copy, scene->stream));
}

static void
copy_2d_up(const struct scene *scene)
{
	CUDA_MEMCPY2D copy = flat(scene->block, 0);

	copy.srcMemoryType = CU_MEMORYTYPE_HOST;
	copy.srcHost = scene->pinned;
	OK(cuMemcpy2DAsync_v2(&copy, scene->stream));
}

static void
copy_2d_down(const struct scene *scene)
{
	CUDA_MEMCPY2D copy = flat(0, scene->block);

	copy.dstMemoryType = CU_MEMORYTYPE_HOST;
	copy.dstHost = scene->pinned;
	OK(cuMemcpy2DAsync_v2(&copy, scene->stream));
}

static void
copy_3d_from(const struct scene *scene)
{
	CUDA_MEMCPY3D copy = deep(scene->beside, scene->block);

	OK(cuMemcpy3DAsync_v2(&copy, scene->stream));
}

/* --------------------------------------------------------------- batches --- */
static void
batch_from(const struct scene *scene)
{
	CUmemcpyAttributes attributes = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
	CUdeviceptr ours[] = { scene->block, scene->block + 4096 };
	CUdeviceptr others[] = { scene->beside, scene->beside + 4096 };
	size_t sizes[] = { 1024, 1024 }, index = 0;

	OK(cuMemcpyBatchAsync_v2(others, ours, sizes, 2, &attributes, &index, 1, scene->stream));
}

/* ---------------------------------------------------------------- arrays --- */
static void
copy_2d_of_an_array(const struct scene *scene)
{
	CUDA_MEMCPY2D copy = flat(scene->block, 0);

	copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	copy.srcArray = scene->array;
	copy.Height = 1;
	OK(cuMemcpy2DAsync_v2(&copy, scene->stream));
}

/* --------------------------------------------------------------- kernels --- */
static void
cooperative(const struct scene *scene)
{
	CUdeviceptr memory = scene->block;
	uint64_t words = WORDS, value = 5, spin_us = 0;
	void *args[] = { &memory, &words, &value, &spin_us };

	OK(cuLaunchCooperativeKernel(order_kernel("sim_fill"), 1, 1, 1, 1, 1, 1, 0, scene->stream,
				     args));
}

static void
cooperative_on_devices(const struct scene *scene)
{
	CUdeviceptr memory = scene->block;
	uint64_t words = WORDS, value = 5, spin_us = 0;
	void *args[] = { &memory, &words, &value, &spin_us };
	CUDA_LAUNCH_PARAMS launch = {
		order_kernel("sim_fill"), 1, 1, 1, 1, 1, 1, 0, scene->stream, args
	};

	OK(cuLaunchCooperativeKernelMultiDevice(&launch, 1, 3));
}

/* ---------------------------------------------------------------- scenes --- */
static struct scene
begin(void)
{
	const CUDA_ARRAY_DESCRIPTOR desc = { WORDS, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1 };
	struct scene scene = { .block = 0 };

	order_start();
	scene.stream = order_stream(NONBLOCKING);
	scene.beside = order_take(BIG);
	OK(cuMemHostAlloc((void **)&scene.pinned, 4ul * WORDS, 0));
	memset(scene.pinned, 0, 4ul * WORDS);
	OK(cuArrayCreate_v2(&scene.array, &desc));
	OK(cuMemsetD32_v2(scene.beside, 3, WORDS));
	OK(cuCtxSynchronize_v2(NULL));
	return scene;
}

/* The row finds the memory as its old user, a long kernel on another stream, has left it. */
static void
row_first(void (*row)(const struct scene *))
{
	struct scene scene = begin();
	CUstream old = order_stream(NONBLOCKING);

	scene.block = order_take(BIG);
	order_fill(scene.block, 1, LONG, old);
	scene.block = order_again(scene.block, BIG);
	row(&scene);
	order_end();
}

/* The row stands behind a long kernel; the memory's next life begins on another stream. */
static void
row_last(void (*row)(const struct scene *))
{
	struct scene scene = begin();
	CUstream next = order_stream(NONBLOCKING);

	scene.block = order_take(BIG);
	order_fill(order_take(BIG), 1, LONG,
		   scene.stream); /* of other memory, so that it races with nobody */
	row(&scene);
	scene.block = order_again(scene.block, BIG);
	order_use(scene.block, 2, next);
	order_end();
}

#define ROWS(X)                                                                                    \
	X(copy_2d_from)                                                                            \
	X(copy_2d_up)                                                                              \
	X(copy_2d_down)                                                                            \
	X(copy_2d_of_an_array)                                                                     \
	X(copy_3d_from)                                                                            \
	X(batch_from)                                                                              \
	X(cooperative)                                                                             \
	X(cooperative_on_devices)

#define X(row)                                                                                     \
	static void row##_first(void)                                                              \
	{                                                                                          \
		row_first(row);                                                                    \
	}                                                                                          \
	static void row##_last(void)                                                               \
	{                                                                                          \
		row_last(row);                                                                     \
	}
ROWS(X)
#undef X

static const struct order_case rows[] = {
#define X(row) { #row "_first", row##_first }, { #row "_last", row##_last },
	ROWS(X)
#undef X
		{ NULL, NULL },
};

const struct order_case *const order_cases[] = { rows, NULL };
