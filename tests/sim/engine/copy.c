/* SPDX-License-Identifier: MIT */
/*
 * Copies and sets: what memory they name, and what the host waits for.
 *
 * Each side is device memory (managed included), page-locked host memory, or anything else, which
 * is taken for pageable host memory. Pageable sources are copied aside at the call, so the program
 * may change them at once and the operation still runs in its turn; inside a capture the address is
 * kept instead. Only tracked memory is declared to the race oracle.
 */
#include "tests/sim/engine/internal.h"

#include <stdlib.h>

enum side {
	SIDE_PAGEABLE,
	SIDE_PINNED,
	SIDE_DEVICE,
};

/* Classifies an area that is not empty, and adds a touch for tracked memory.
 * INVALID_VALUE: partly outside, or no area. */
static int
side_of(const struct sim_area *area, enum sim_access access, struct sim_work *work,
	enum side *ret_side)
{
	uint64_t addr = area->addr, n = 0;
	bool is_area = sim_area_span(area, &n);
	struct sim_mem *mem = is_area ? sim_mem_hold_locked(addr, n) : NULL;

	if (is_area && !mem && !sim_mem_find_locked(addr) && !sim_mem_is_device_range(addr)) {
		*ret_side = SIDE_PAGEABLE;
		return addr ? 0 : CUDA_ERROR_INVALID_VALUE;
	}
	if (!mem) {
		sim_misuse_locked(CUDA_ERROR_INVALID_VALUE,
				  "copy or set outside an allocation: 0x%llx, %llu bytes",
				  (unsigned long long)addr,
				  (unsigned long long)(is_area ? n : area->width));
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_side = mem->info.kind == SIM_MEM_HOST ? SIDE_PINNED : SIDE_DEVICE;
	work->touch[work->n_touches++] = (struct sim_touch){ addr, n, access, *area };
	return 0;
}

static bool
host_waits(enum side dst, enum side src, bool sync)
{
	if (dst == SIDE_DEVICE)
		return sync && src == SIDE_PINNED;
	if (src != SIDE_DEVICE)
		return true;
	return sync || dst == SIDE_PAGEABLE;
}

static bool
is_managed(uint64_t addr)
{
	const struct sim_mem *mem = sim_mem_find_locked(addr);

	return mem && mem->info.kind == SIM_MEM_MANAGED;
}

/* The host waits, but nothing says that it does so for more than the copy: a processor may copy
 * what is in its own memory, or can move there. So the oracle learns nothing. */
static int
submit_wait_alone(struct sim_stream *stream, const struct sim_work *work)
{
	struct sim_ctx *ctx = stream->ctx->root;
	struct sim_ops ops = { 0 };
	struct sim_op *op;
	int rc = sim_submit_locked(stream, work, NULL, NULL, &op);

	if (rc || !op)
		return rc;
	sim_ops_add(&ops, op);
	sim_op_unref_locked(op);
	sim_ops_wait_locked(&ops);
	sim_ops_clear_locked(&ops);
	return ctx->sticky;
}

/* What a capture in progress has against a synchronous form. */
static int
sync_allowed(struct sim_stream *stream)
{
	int rc;

	if (stream->capture)
		return sim_capture_spoil_locked(stream->capture,
						CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	rc = stream->is_legacy ? sim_capture_legacy_locked(stream->ctx) : 0;
	return rc ? rc : sim_capture_unsafe_locked();
}

/* The source as it is now, row behind row. */
static int
stage(struct sim_work *work)
{
	struct sim_area to = work->from;

	work->staged = malloc(to.width * to.rows * to.slices);
	if (!work->staged)
		return CUDA_ERROR_OUT_OF_MEMORY;
	to.addr = (uintptr_t)work->staged;
	to.pitch = to.width;
	to.slice = to.width * to.rows;
	sim_area_copy(&to, &work->from);
	return 0;
}

static int
copy_locked(struct sim_stream *stream, struct sim_work *work, enum sim_copy_kind kind, bool sync)
{
	enum side dst, src;
	int rc;

	rc = side_of(&work->to, SIM_WRITE, work, &dst);
	if (!rc)
		rc = side_of(&work->from, SIM_READ, work, &src);
	if (rc)
		return rc;
	if (((kind == SIM_COPY_HTOD || kind == SIM_COPY_DTOD) && dst == SIDE_PAGEABLE) ||
	    ((kind == SIM_COPY_DTOH || kind == SIM_COPY_DTOD) && src == SIDE_PAGEABLE))
		return sim_misuse_locked(CUDA_ERROR_INVALID_VALUE,
					 "copy of rows of %llu bytes: 0x%llx is not device memory",
					 (unsigned long long)work->to.width,
					 (unsigned long long)(dst == SIDE_PAGEABLE
								      ? work->to.addr
								      : work->from.addr));
	if (!stream->capture && src == SIDE_PAGEABLE && dst == SIDE_DEVICE)
		rc = stage(work);
	if (rc)
		return rc;
	if (stream->capture || !host_waits(dst, src, sync))
		return sim_submit_locked(stream, work, NULL, NULL, NULL);
	if (sync && dst != SIDE_DEVICE && (src != SIDE_DEVICE || is_managed(work->from.addr)))
		return submit_wait_alone(stream, work);
	return sim_submit_wait_locked(stream, work);
}

int
sim_copy_work_locked(const struct sim_area *dst, const struct sim_area *src, struct sim_work *work)
{
	enum side side;
	int rc;

	*work = (struct sim_work){
		.kind = SIM_WORK_COPY, .name = "copy", .to = *dst, .from = *src
	};
	if (sim_area_empty(dst))
		return CUDA_ERROR_INVALID_VALUE;
	rc = side_of(dst, SIM_WRITE, work, &side);
	return rc ? rc : side_of(src, SIM_READ, work, &side);
}

int
sim_copy_area(const struct sim_area *dst, const struct sim_area *src, enum sim_copy_kind kind,
	      CUstream handle, bool sync)
{
	struct sim_work work = {
		.kind = SIM_WORK_COPY,
		.name = "copy",
		.to = *dst,
		.from = *src,
	};
	struct sim_stream *stream;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc && sync)
		rc = sync_allowed(stream);
	if (!rc && !sim_area_empty(dst))
		rc = copy_locked(stream, &work, kind, sync);
	sim_unlock();
	return rc;
}

int
sim_copy(uint64_t dst, uint64_t src, size_t n_bytes, enum sim_copy_kind kind, CUstream handle,
	 bool sync)
{
	struct sim_area to = sim_line(dst, n_bytes), from = sim_line(src, n_bytes);

	return sim_copy_area(&to, &from, kind, handle, sync);
}

/* -------------------------------------------------------------- sets --- */
static bool
elements_fit(const struct sim_area *area, unsigned element_bytes)
{
	return (element_bytes == 1 || element_bytes == 2 || element_bytes == 4) &&
	       area->addr % element_bytes == 0 && area->width % element_bytes == 0 &&
	       (area->rows < 2 || area->pitch % element_bytes == 0);
}

/* *ret_side is where the area is. */
static int
set_work_locked(const struct sim_area *dst, uint32_t value, unsigned element_bytes,
		struct sim_work *work, enum side *ret_side)
{
	int rc;

	*work = (struct sim_work){
		.kind = SIM_WORK_SET,
		.name = "set",
		.a = { value, element_bytes },
		.to = *dst,
	};
	rc = side_of(dst, SIM_WRITE, work, ret_side);
	if (!rc && *ret_side == SIDE_PAGEABLE)
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE, "set: 0x%llx is not device memory",
				       (unsigned long long)dst->addr);
	return rc;
}

int
sim_set_work_locked(const struct sim_area *dst, uint32_t value, unsigned element_bytes,
		    struct sim_work *work)
{
	enum side side;

	return sim_area_empty(dst) || !elements_fit(dst, element_bytes)
		       ? CUDA_ERROR_INVALID_VALUE
		       : set_work_locked(dst, value, element_bytes, work, &side);
}

int
sim_set_area(const struct sim_area *dst, uint32_t value, unsigned element_bytes, CUstream handle,
	     bool sync)
{
	enum side side = SIDE_PAGEABLE;
	struct sim_stream *stream;
	struct sim_work work;
	int rc;

	if (!elements_fit(dst, element_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc && sync)
		rc = sync_allowed(stream);
	if (rc || sim_area_empty(dst))
		goto out;
	rc = set_work_locked(dst, value, element_bytes, &work, &side);
	if (rc)
		goto out;
	rc = sync && side == SIDE_PINNED ? sim_submit_wait_locked(stream, &work)
					 : sim_submit_locked(stream, &work, NULL, NULL, NULL);
out:
	sim_unlock();
	return rc;
}

int
sim_set(CUdeviceptr dst, uint32_t value, unsigned element_bytes, size_t n, CUstream handle,
	bool sync)
{
	struct sim_area area;
	size_t n_bytes;

	if (__builtin_mul_overflow(n, (size_t)element_bytes, &n_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	area = sim_line(dst, n_bytes);
	return sim_set_area(&area, value, element_bytes, handle, sync);
}

/* ----------------------------------------------------- managed memory --- */
static const struct {
	const char *name;
	enum sim_work_kind kind;
	enum sim_access access;
} uses[] = {
	[SIM_USE_PREFETCH] = { "prefetch", SIM_WORK_MARK, SIM_READ },
	[SIM_USE_ATTACH] = { "attach", SIM_WORK_MARK, SIM_WRITE },
	[SIM_USE_DISCARD] = { "discard", SIM_WORK_SET, SIM_WRITE },
};

int
sim_mem_use(CUdeviceptr ptr, size_t n_bytes, enum sim_use use, CUstream handle)
{
	const uint32_t discarded = 0xdb;
	struct sim_work work = {
		.kind = uses[use].kind,
		.name = uses[use].name,
		.a = { discarded, 1 },
		.to = sim_line(ptr, n_bytes),
		.touch = { { .addr = ptr, .n_bytes = n_bytes, .access = uses[use].access } },
		.n_touches = 1,
	};
	struct sim_stream *stream;
	struct sim_mem *mem;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	mem = rc ? NULL : sim_mem_hold_locked(ptr, n_bytes);
	if (!rc && (!n_bytes || !mem || mem->info.kind != SIM_MEM_MANAGED))
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE,
				       "%s: 0x%llx, %zu bytes, is no managed memory",
				       uses[use].name, (unsigned long long)ptr, n_bytes);
	if (!rc)
		rc = sim_submit_locked(stream, &work, NULL, NULL, NULL);
	sim_unlock();
	return rc;
}
