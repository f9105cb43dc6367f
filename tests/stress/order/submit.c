/* SPDX-License-Identifier: MIT */
/* The same stream by different names: NULL means one thing to the plain names and another to the
 * _ptsz ones, and both take the special handles. */
#include "tests/stress/order/order.h"

static bool
flavour(struct worker *w, const struct place *p, int slot, CUstream *ret_stream)
{
	unsigned dice = (unsigned)rng_below(&w->rng, 3);

	w->last = slot;
	if (slot == SLOT_LEGACY) {
		*ret_stream = dice ? NULL : CU_STREAM_LEGACY;
		return dice == 0 && chance(w, 2);
	}
	if (slot == SLOT_PER_THREAD) {
		*ret_stream = dice ? CU_STREAM_PER_THREAD : NULL;
		return dice == 0 || chance(w, 2);
	}
	*ret_stream = p->slots[slot].handle;
	return chance(w, 4);
}

static void
params_of(void **params, uint64_t *args, int n)
{
	for (int i = 0; i < n; i++)
		params[i] = &args[i];
}

void
submit_kernel(struct worker *w, struct place *p, int slot, void *kernel, uint64_t *args, int n)
{
	void *params[5];
	CUstream s;
	bool ptsz = flavour(w, p, slot, &s);
	CUlaunchConfig config = {
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = s,
	};

	params_of(params, args, n);
	place_enter(p);
	if (chance(w, 8))
		OP(w, (ptsz ? calls.cuLaunchKernelEx_ptsz : calls.cuLaunchKernelEx)(&config, kernel,
										    params, NULL));
	else if (!ptsz && chance(w, 12))
		OP(w, calls.cuLaunchCooperativeKernel(kernel, 1, 1, 1, 1, 1, 1, 0, s, params));
	else if (ptsz)
		OP(w, cuLaunchKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
	else
		OP(w, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

void
submit_programmatic(struct worker *w, struct place *p, int slot, void *kernel, uint64_t *args,
		    int n, CUevent event)
{
	CUlaunchAttribute attrs[] = {
		{ .id = CU_LAUNCH_ATTRIBUTE_PRIORITY },
		{ .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		  .value.programmaticStreamSerializationAllowed = 1 },
		{ .id = chance(w, 2) ? CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
				     : CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
		  .value.programmaticEvent.event = event },
	};
	void *params[5];
	CUstream s;
	bool ptsz = flavour(w, p, slot, &s);
	CUlaunchConfig config = {
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = s,
		.attrs = attrs + 1,
		.numAttrs = event ? 2 : 1,
	};

	params_of(params, args, n);
	place_enter(p);
	OP(w, (ptsz ? calls.cuLaunchKernelEx_ptsz : calls.cuLaunchKernelEx)(&config, kernel, params,
									    NULL));
}

void
submit_record(struct worker *w, struct place *p, int slot, CUevent event)
{
	CUstream s;
	bool ptsz = flavour(w, p, slot, &s);

	place_enter(p);
	if (ptsz)
		OP(w, cuEventRecord_ptsz(event, s));
	else if (chance(w, 4))
		OP(w, calls.cuEventRecordWithFlags(event, s, 0));
	else
		OP(w, cuEventRecord(event, s));
}

void
submit_wait(struct worker *w, struct place *p, int slot, CUevent event)
{
	int last = w->last;
	CUstream s;
	bool ptsz = flavour(w, p, slot, &s);

	w->last = last;
	place_enter(p);
	OP(w, (ptsz ? cuStreamWaitEvent_ptsz : cuStreamWaitEvent)(s, event, 0));
}

void
submit_sync(struct worker *w, struct place *p, int slot)
{
	CUstream s;
	bool ptsz = flavour(w, p, slot, &s);

	place_enter(p);
	OP(w, (ptsz ? cuStreamSynchronize_ptsz : cuStreamSynchronize)(s));
}

void
submit_query(struct worker *w, struct place *p, int slot)
{
	CUstream s;
	bool ptsz = flavour(w, p, slot, &s);
	CUresult code;

	place_enter(p);
	code = (ptsz ? calls.cuStreamQuery_ptsz : cuStreamQuery)(s);
	OP(w, code == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : code);
}

void
submit_write(struct worker *w, struct place *p, int slot, CUdeviceptr to, const void *from,
	     size_t n)
{
	CUstream s;
	bool ptsz;

	if (chance(w, 3) &&
	    rows_copy(w, p, slot, &(struct comb_ends){ to, (uintptr_t)from, false, true }, n))
		return;
	ptsz = flavour(w, p, slot, &s);
	place_enter(p);
	if (chance(w, 4))
		OP(w, (ptsz ? cuMemcpyAsync_ptsz : cuMemcpyAsync)(to, (CUdeviceptr)(uintptr_t)from,
								  n, s));
	else
		OP(w, (ptsz ? cuMemcpyHtoDAsync_v2_ptsz : cuMemcpyHtoDAsync_v2)(to, from, n, s));
}

void
submit_read(struct worker *w, struct place *p, int slot, void *to, CUdeviceptr from, size_t n)
{
	CUstream s;
	bool ptsz;

	if (chance(w, 3) &&
	    rows_copy(w, p, slot, &(struct comb_ends){ (uintptr_t)to, from, true, false }, n))
		return;
	ptsz = flavour(w, p, slot, &s);
	place_enter(p);
	OP(w, (ptsz ? cuMemcpyDtoHAsync_v2_ptsz : cuMemcpyDtoHAsync_v2)(to, from, n, s));
}

void
submit_copy(struct worker *w, struct place *p, int slot, CUdeviceptr to, CUdeviceptr from, size_t n)
{
	CUstream s;
	bool ptsz;

	if ((chance(w, 3) &&
	     rows_copy(w, p, slot, &(struct comb_ends){ to, from, false, false }, n)) ||
	    (chance(w, 4) && rows_copy_by_array(w, p, slot, to, from, n)))
		return;
	ptsz = flavour(w, p, slot, &s);
	place_enter(p);
	if (chance(w, 4))
		OP(w, (ptsz ? cuMemcpyAsync_ptsz : cuMemcpyAsync)(to, from, n, s));
	else
		OP(w, (ptsz ? cuMemcpyDtoDAsync_v2_ptsz : cuMemcpyDtoDAsync_v2)(to, from, n, s));
}

void
submit_set(struct worker *w, struct place *p, int slot, CUdeviceptr to, unsigned char value,
	   size_t n)
{
	CUstream s;
	bool ptsz;

	if (chance(w, 3) && rows_set(w, p, slot, to, value, n))
		return;
	ptsz = flavour(w, p, slot, &s);
	place_enter(p);
	if (n % 4 == 0 && chance(w, 2))
		OP(w, (ptsz ? calls.cuMemsetD32Async_ptsz
			    : calls.cuMemsetD32Async)(to, value * 0x01010101u, n / 4, s));
	else
		OP(w, (ptsz ? cuMemsetD8Async_ptsz : cuMemsetD8Async)(to, value, n, s));
}
