/* SPDX-License-Identifier: MIT */
/*
 * The same copies and sets by calls that name rows. Bytes in a line are copied as two combs: every
 * second row by one call, the rows between by another, so that an interposer or a driver that took
 * what lies between for a part would be wrong on both sides.
 *
 * An array, a semaphore and managed memory belong to a slot that one worker has for itself; they
 * are used in it alone, and need no order of their own.
 */
#include "tests/stress/order/order.h"

#include <string.h>
#include <sys/mman.h>

enum way {
	WAY_2D,
	WAY_3D,
	WAY_PEER,
	WAY_BATCH,
	WAY_BATCH_3D,
	WAY_SYNC,
	WAYS,
};

static const int memory_types[] = { CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED };

/* One comb of a copy. */
struct comb {
	uint64_t to, from;
	bool to_host, from_host;
	size_t width, rows; /* bytes of a row; every second one */
};

static CUstream
stream_of(const struct place *p, int slot)
{
	return slot == SLOT_PER_THREAD ? CU_STREAM_PER_THREAD : p->slots[slot].handle;
}

static CUDA_MEMCPY3D
description(struct worker *w, const struct comb *comb)
{
	return (CUDA_MEMCPY3D){
		.srcMemoryType =
			comb->from_host ? CU_MEMORYTYPE_HOST : memory_types[rng_below(&w->rng, 2)],
		.srcHost = (const void *)(uintptr_t)comb->from,
		.srcDevice = comb->from,
		.srcPitch = 2 * comb->width,
		.srcHeight = comb->rows,
		.dstMemoryType =
			comb->to_host ? CU_MEMORYTYPE_HOST : memory_types[rng_below(&w->rng, 2)],
		.dstHost = (void *)(uintptr_t)comb->to,
		.dstDevice = comb->to,
		.dstPitch = 2 * comb->width,
		.dstHeight = comb->rows,
		.WidthInBytes = comb->width,
		.Height = comb->rows,
		.Depth = 1,
	};
}

static CUDA_MEMCPY2D
flat(const CUDA_MEMCPY3D *copy)
{
	return (CUDA_MEMCPY2D){
		.srcMemoryType = (CUmemorytype)copy->srcMemoryType,
		.srcHost = copy->srcHost,
		.srcDevice = copy->srcDevice,
		.srcArray = copy->srcArray,
		.srcPitch = copy->srcPitch,
		.dstMemoryType = (CUmemorytype)copy->dstMemoryType,
		.dstHost = copy->dstHost,
		.dstDevice = copy->dstDevice,
		.dstArray = copy->dstArray,
		.dstPitch = copy->dstPitch,
		.WidthInBytes = copy->WidthInBytes,
		.Height = copy->Height,
	};
}

static void
by_batch(struct worker *w, const struct comb *comb, CUstream s)
{
	CUmemcpyAttributes attributes = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
	CUdeviceptr to[TOUCHED_MAX], from[TOUCHED_MAX];
	size_t sizes[TOUCHED_MAX], index = 0;

	for (size_t i = 0; i < comb->rows; i++) {
		to[i] = comb->to + 2 * i * comb->width;
		from[i] = comb->from + 2 * i * comb->width;
		sizes[i] = comb->width;
	}
	OP(w, calls.cuMemcpyBatchAsync_v2(to, from, sizes, comb->rows, &attributes, &index, 1, s));
}

static void
by_batch_3d(struct worker *w, const struct comb *comb, CUstream s)
{
	CUDA_MEMCPY3D_BATCH_OP op = {
		.src = { .type = CU_MEMCPY_OPERAND_TYPE_POINTER,
			 .op.ptr = { .ptr = comb->from, .rowLength = 2 * comb->width } },
		.dst = { .type = CU_MEMCPY_OPERAND_TYPE_POINTER,
			 .op.ptr = { .ptr = comb->to, .rowLength = 2 * comb->width } },
		.extent = { comb->width, comb->rows, 1 },
		.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
	};

	OP(w, calls.cuMemcpy3DBatchAsync_v2(1, &op, 0, s));
}

/* The forms without a stream, on the default stream that the slot is. */
static void
by_sync(struct worker *w, int slot, const CUDA_MEMCPY3D *deep)
{
	bool legacy = slot == SLOT_LEGACY;
	CUDA_MEMCPY2D two = flat(deep);

	switch (rng_below(&w->rng, 3)) {
	case 0:
		OP(w, (legacy ? calls.cuMemcpy2D_v2 : calls.cuMemcpy2D_v2_ptds)(&two));
		break;
	case 1:
		OP(w, (legacy ? calls.cuMemcpy2DUnaligned_v2
			      : calls.cuMemcpy2DUnaligned_v2_ptds)(&two));
		break;
	default:
		OP(w, (legacy ? calls.cuMemcpy3D_v2 : calls.cuMemcpy3D_v2_ptds)(deep));
	}
}

static enum way
way_pick(struct worker *w, int slot)
{
	enum way way = (enum way)rng_below(&w->rng, WAYS);

	if ((way == WAY_BATCH || way == WAY_BATCH_3D) && slot == SLOT_LEGACY)
		return WAY_2D;
	if (way == WAY_SYNC && (w->window || slot >= SLOT_FIRST || settings.meet))
		return WAY_3D;
	return way;
}

static void
comb_submit(struct worker *w, struct place *p, int slot, const struct comb *comb)
{
	CUDA_MEMCPY3D deep = description(w, comb);
	CUDA_MEMCPY2D two = flat(&deep);
	CUstream s = stream_of(p, slot);
	CUDA_MEMCPY3D_PEER peer;

	switch (way_pick(w, slot)) {
	case WAY_2D:
		OP(w, (chance(w, 2) ? calls.cuMemcpy2DAsync_v2 : calls.cuMemcpy2DAsync_v2_ptsz)(
			      &two, s ? s : CU_STREAM_LEGACY));
		break;
	case WAY_3D:
		OP(w, calls.cuMemcpy3DAsync_v2(&deep, s));
		break;
	case WAY_PEER:
		memcpy(&peer, &deep, sizeof(peer));
		peer.srcContext = peer.dstContext = p->ctx;
		OP(w, calls.cuMemcpy3DPeerAsync(&peer, s));
		break;
	case WAY_BATCH:
		by_batch(w, comb, s);
		break;
	case WAY_BATCH_3D:
		by_batch_3d(w, comb, s);
		break;
	case WAY_SYNC:
	case WAYS:
		by_sync(w, slot, &deep);
	}
}

/* A copy of n bytes by rows; false: they cannot be halved. */
bool
rows_copy(struct worker *w, struct place *p, int slot, const struct comb_ends *ends, size_t n)
{
	size_t width = 4ul << rng_below(&w->rng, 6);

	while (width > 4 && n % (2 * width))
		width /= 2;
	if (!n || n % (2 * width))
		return false;
	w->last = slot;
	place_enter(p);
	for (int odd = 0; odd < 2; odd++) {
		struct comb comb = { ends->to + (odd ? width : 0),
				     ends->from + (odd ? width : 0),
				     ends->to_host,
				     ends->from_host,
				     width,
				     n / width / 2 };

		comb_submit(w, p, slot, &comb);
	}
	return true;
}

bool
rows_set(struct worker *w, struct place *p, int slot, CUdeviceptr to, unsigned char value, size_t n)
{
	unsigned short two = (unsigned short)(value * 0x101);
	CUstream s = stream_of(p, slot);
	size_t half = n / 8 * 4;

	if (n % 8 || !n)
		return false;
	w->last = slot;
	place_enter(p);
	for (int odd = 0; odd < 2; odd++, to += 4) {
		if (chance(w, 3))
			OP(w, calls.cuMemsetD2D8Async(to, 8, value, 4, half / 4, s));
		else if (chance(w, 2))
			OP(w, calls.cuMemsetD2D16Async(to, 8, two, 2, half / 4, s));
		else
			OP(w, calls.cuMemsetD2D32Async(to, 8, value * 0x01010101u, 1, half / 4, s));
	}
	return true;
}

/* ------------------------------------------------ what belongs to a slot --- */
/* NULL: others may use the slot too, or nothing may be made now. */
static struct slot *
slot_alone(const struct worker *w, struct place *p, int slot)
{
	struct slot *own = &p->slots[slot];

	if (w->window || slot < SLOT_FIRST)
		return NULL;
	return p->owner == w->index || own->owner == w->index ? own : NULL;
}

bool
rows_copy_by_array(struct worker *w, struct place *p, int slot, CUdeviceptr to, CUdeviceptr from,
		   size_t n)
{
	const CUDA_ARRAY_DESCRIPTOR desc = { TOUCHED_MAX, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1 };
	CUDA_MEMCPY2D in = { .WidthInBytes = n, .Height = 1 }, out = in;
	struct slot *own = slot_alone(w, p, slot);

	if (!own || n % 4)
		return false;
	w->last = slot;
	place_enter(p);
	if (!own->array)
		DO(calls.cuArrayCreate_v2(&own->array, &desc));
	in.srcMemoryType = out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	in.dstMemoryType = out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	in.dstArray = out.srcArray = own->array;
	in.srcDevice = from;
	out.dstDevice = to;
	OP(w, calls.cuMemcpy2DAsync_v2(&in, own->handle));
	OP(w, calls.cuMemcpy2DAsync_v2(&out, own->handle));
	return true;
}

/* The place must be that of both slots: a semaphore dies with it. */
bool
rows_order(struct worker *w, struct place *p, int from, int to)
{
	CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = {
		.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
	};
	CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = { .flags = 0 };
	CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = { .flags = 0 };
	struct slot *own = slot_alone(w, p, from);

	if (!own)
		return false;
	place_enter(p);
	if (!own->semaphore) {
		desc.handle.fd = memfd_create("semaphore", MFD_CLOEXEC);
		DO(calls.cuImportExternalSemaphore(&own->semaphore, &desc));
	}
	signal.params.fence.value = wait.params.fence.value = ++own->signals;
	OP(w, calls.cuSignalExternalSemaphoresAsync(&own->semaphore, &signal, 1, own->handle));
	OP(w, calls.cuWaitExternalSemaphoresAsync(&own->semaphore, &wait, 1, stream_of(p, to)));
	w->last = to;
	return true;
}

void
rows_managed(struct worker *w, struct place *p, int slot)
{
	size_t n = 4ul * TOUCHED_MAX;
	struct slot *own = slot_alone(w, p, slot);
	unsigned value = (unsigned)rng_next(&w->rng);
	uint64_t args[] = { 0, TOUCHED_MAX, value, p->errors, 0 };

	if (!own)
		return;
	place_enter(p);
	if (!own->managed)
		DO(cuMemAllocManaged(&own->managed, n, CU_MEM_ATTACH_GLOBAL));
	args[0] = own->managed;
	OP(w, calls.cuMemPrefetchAsync(own->managed, n, p->device, own->handle));
	if (chance(w, 3))
		OP(w, calls.cuMemDiscardBatchAsync(&own->managed, &n, 1, 0, own->handle));
	OP(w, calls.cuMemsetD32Async(own->managed, value, TOUCHED_MAX, own->handle));
	if (chance(w, 2))
		OP(w, calls.cuStreamAttachMemAsync(own->handle, own->managed, 0,
						   CU_MEM_ATTACH_GLOBAL));
	submit_kernel(w, p, slot, p->check, args, 5);
}
