/* SPDX-License-Identifier: MIT */
/* Pitched memory: the pitch, the range and the codes are the driver's own, also when rows come from
 * the cache. */
#include "tests/process/shim/cases.h"

#include <pthread.h>

enum { ROUNDS = 1000, THREADS = 4 };

static const size_t widths[] = { 1, 511, 512, 513, 1000, 4096, 100000, 1 << 20 };
static const unsigned elements[] = { 4, 8, 16 };

/* Asks twice: the driver answers first, the cache then. */
static void
show(size_t width, size_t height, unsigned element)
{
	for (int i = 0; i < 2; i++) {
		CUdeviceptr rows = 77, base = 0;
		size_t pitch = 78, bytes = 0;
		CUresult rc = cuMemAllocPitch_v2(&rows, &pitch, width, height, element);

		printf("%zu x %zu of %u: %d, pitch %zu\n", width, height, element, (int)rc, pitch);
		if (rc)
			continue;
		OK(cuMemGetAddressRange_v2(&base, &bytes, rows + pitch * height - 1));
		printf("  range %zu, starts there %d, aligned %d\n", bytes, base == rows,
		       rows % 512 == 0);
		SHOW(cuMemFree_v2(rows));
		SHOW(cuMemFree_v2(rows));
	}
}

static void
answers(void)
{
	case_start();
	for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++)
		for (size_t e = 0; e < sizeof(elements) / sizeof(elements[0]); e++)
			show(widths[w], 3 + w, elements[e]);
	show(1000, 0, 4);
	show(0, 30, 4);
	show(1000, 30, 3);
	show(1000, 30, 0);
	show(1000, (size_t)1 << 54, 4);
	show(1000, (size_t)1 << 62, 4);
	show((size_t)1 << 40, 1 << 20, 4);
	show((size_t)1 << 31, 1, 4);
	SHOW(cuMemAllocPitch_v2(NULL, &(size_t){ 0 }, 1000, 30, 4));
	SHOW(cuMemAllocPitch_v2(&(CUdeviceptr){ 0 }, NULL, 1000, 30, 4));
}

/* More shapes than are kept. */
static void
many_shapes(void)
{
	case_start();
	for (int round = 0; round < 2; round++) {
		for (size_t width = 4; width < 4000; width += 4) {
			CUdeviceptr rows;
			size_t pitch;

			OK(cuMemAllocPitch_v2(&rows, &pitch, width, 2, 4));
			EXPECT(pitch >= width && pitch % 512 == 0);
			OK(cuMemFree_v2(rows));
		}
	}
	OK(cuCtxSynchronize());
}

static void
again_and_again(void)
{
	case_start();
	for (int i = 0; i < ROUNDS; i++) {
		CUdeviceptr rows;
		size_t pitch;

		OK(cuMemAllocPitch_v2(&rows, &pitch, 1000, 30, 4));
		case_fill(rows, pitch * 30 / 4, (uint64_t)i, 0, NULL);
		OK(cuMemFree_v2(rows));
		OK(cuCtxSynchronize());
	}
}

/* Contexts of two devices, in turns. */
static void
two_devices(void)
{
	CUcontext context[2];
	CUdeviceptr rows;
	size_t pitch;

	EXPECT(cuInit(0) == 0);
	for (int i = 0; i < 2; i++)
		context[i] = case_context(i);
	for (int i = 0; i < 8; i++) {
		OK(cuCtxSetCurrent(context[i % 2]));
		OK(cuMemAllocPitch_v2(&rows, &pitch, 1000, 30, 4));
		printf("pitch %zu\n", pitch);
		OK(cuMemFree_v2(rows));
	}
	OK(cuCtxDestroy_v2(context[1]));
	context[1] = case_context(1);
	OK(cuMemAllocPitch_v2(&rows, &pitch, 1000, 30, 4));
	OK(cuMemFree_v2(rows));
}

static CUcontext shared;

static void *
work(void *arg)
{
	size_t width = 400 * (1 + (size_t)(uintptr_t)arg), pitch;
	CUdeviceptr rows;
	CUstream stream;

	OK(cuCtxSetCurrent(shared));
	OK(cuStreamCreate(&stream, 1 /* non-blocking */));
	for (unsigned i = 0; i < ROUNDS; i++) {
		OK(cuMemAllocPitch_v2(&rows, &pitch, width + i % 3, 8 + i % 5, 4));
		case_fill(rows, pitch * 8 / 4, i, 0, stream);
		OK(cuMemFree_v2(rows));
	}
	OK(cuStreamSynchronize(stream));
	return NULL;
}

static void
threads(void)
{
	pthread_t thread[THREADS];

	shared = case_start();
	(void)case_kernel("sim_fill");
	for (uintptr_t i = 0; i < THREADS; i++)
		EXPECT(!pthread_create(&thread[i], NULL, work, (void *)i));
	for (int i = 0; i < THREADS; i++)
		EXPECT(!pthread_join(thread[i], NULL));
}

/* A kernel still writes the rows when they are freed. */
static void
unfinished(void)
{
	CUdeviceptr rows, others;
	CUstream one, two;
	size_t pitch;

	case_start();
	OK(cuStreamCreate(&one, 1 /* non-blocking */));
	OK(cuStreamCreate(&two, 1 /* non-blocking */));
	for (unsigned i = 0; i < 20; i++) {
		OK(cuMemAllocPitch_v2(&rows, &pitch, 1000, 30, 4));
		case_fill(rows, pitch * 30 / 4, i, 2000, one);
		OK(cuMemFree_v2(rows));
		OK(cuMemAllocPitch_v2(&others, &pitch, 1000, 30, 4));
		case_fill(others, pitch * 30 / 4, i + 1, 0, two);
		OK(cuStreamSynchronize(two));
		EXPECT(case_wrong_words(others, pitch * 30 / 4, i + 1) == 0);
		OK(cuMemFree_v2(others));
	}
	OK(cuCtxSynchronize());
}

const struct test_case test_cases[] = {
	{ "answers", answers },
	{ "many_shapes", many_shapes },
	{ "again_and_again", again_and_again },
	{ "two_devices", two_devices },
	{ "threads", threads },
	{ "unfinished", unfinished },
	{ NULL, NULL },
};
