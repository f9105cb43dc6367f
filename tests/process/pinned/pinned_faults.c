/* SPDX-License-Identifier: MIT */
/* Each call that fails is made once more: a driver's call that fails once has done nothing. */
#include "tests/process/pinned/pinned.h"

enum { TURNS = 12, SMALL = WORDS * 4 + 1000 };

#define RETRY(call)                                                                                \
	do {                                                                                       \
		if (call)                                                                          \
			OK(call);                                                                  \
	} while (0)

static CUresult
request(int turn, void **ret_p)
{
	size_t bytes = turn % 4 == 3 ? (size_t)MIB : SMALL;

	return turn % 2 ? cuMemHostAlloc(ret_p, bytes, PORTABLE) : cuMemAllocHost_v2(ret_p, bytes);
}

/* The first is freed while it is copied from; the second is written at once. */
static void
turn(int number, CUdeviceptr x, CUstream s)
{
	static uint32_t seen[WORDS];
	size_t size = 0;
	void *p, *q;

	RETRY(request(number, &p));
	write_words(p, (uint32_t)number);
	RETRY(cuMemcpyHtoDAsync_v2(x, p, sizeof(seen), s));
	RETRY(cuMemFreeHost(p));
	RETRY(request(number, &q));
	write_words(q, 1000);
	RETRY(cuMemGetAddressRange_v2(NULL, &size, on_device(q)));
	EXPECT(size == (number % 4 == 3 ? (size_t)MIB : SMALL));
	if (number % 3)
		RETRY(cuStreamSynchronize(s));
	else
		RETRY(cuCtxSynchronize());
	RETRY(cuMemcpyDtoH_v2(seen, x, sizeof(seen)));
	expect_words(seen, (uint32_t)number);
	expect_words(q, 1000);
	RETRY(cuMemFreeHost(q));
}

static void
faults(void)
{
	CUcontext context;
	CUdeviceptr x, large;
	CUstream s;

	RETRY(cuInit(0));
	RETRY(cuDevicePrimaryCtxRetain(&context, 0));
	RETRY(cuCtxSetCurrent(context));
	RETRY(cuStreamCreate(&s, NONBLOCKING));
	RETRY(cuMemAlloc_v2(&x, WORDS * 4));
	for (int number = 0; number < TURNS; number++)
		turn(number, x, s);
	EXPECT(cuMemAlloc_v2(&large, (size_t)1 << 40) != CUDA_SUCCESS);
	for (int number = 0; number < TURNS; number++)
		turn(number, x, s);
	RETRY(cuMemFree_v2(x));
	RETRY(cuCtxSynchronize());
}

const struct order_case pinned_faults[] = { { "faults", faults }, { NULL, NULL } };
