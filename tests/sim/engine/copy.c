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
#include <string.h>

enum side {
	SIDE_PAGEABLE,
	SIDE_PINNED,
	SIDE_DEVICE,
};

/* Classifies [addr, addr + n) and adds a touch for tracked memory.
 * INVALID_VALUE: partly outside. */
static int
side_of(uint64_t addr, size_t n, enum sim_access access, struct sim_work *work, enum side *ret_side)
{
	struct sim_mem *mem = sim_mem_hold_locked(addr, n);

	if (!mem && !sim_mem_find_locked(addr) && !sim_mem_is_device_range(addr)) {
		*ret_side = SIDE_PAGEABLE;
		return addr ? 0 : CUDA_ERROR_INVALID_VALUE;
	}
	if (!mem) {
		sim_misuse_locked(CUDA_ERROR_INVALID_VALUE,
				  "copy or set outside an allocation: 0x%llx, %zu bytes",
				  (unsigned long long)addr, n);
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_side = mem->info.kind == SIM_MEM_HOST ? SIDE_PINNED : SIDE_DEVICE;
	work->touch[work->n_touches++] = (struct sim_touch){ addr, n, access };
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

static int
copy_locked(struct sim_stream *stream, struct sim_work *work, enum sim_copy_kind kind, bool sync)
{
	enum side dst, src;
	size_t n = work->a[2];
	int rc;

	rc = side_of(work->a[0], n, SIM_WRITE, work, &dst);
	if (!rc)
		rc = side_of(work->a[1], n, SIM_READ, work, &src);
	if (rc)
		return rc;
	if (((kind == SIM_COPY_HTOD || kind == SIM_COPY_DTOD) && dst == SIDE_PAGEABLE) ||
	    ((kind == SIM_COPY_DTOH || kind == SIM_COPY_DTOD) && src == SIDE_PAGEABLE))
		return sim_misuse_locked(CUDA_ERROR_INVALID_VALUE,
					 "copy of %zu bytes: 0x%llx is not device memory", n,
					 (unsigned long long)work->a[dst == SIDE_PAGEABLE ? 0 : 1]);
	if (stream->capture)
		return sim_submit_locked(stream, work, NULL, NULL, NULL);
	if (src == SIDE_PAGEABLE && dst == SIDE_DEVICE) {
		work->staged = malloc(n);
		if (!work->staged)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(work->staged, (const void *)(uintptr_t)work->a[1], n);
	}
	return host_waits(dst, src, sync) ? sim_submit_wait_locked(stream, work)
					  : sim_submit_locked(stream, work, NULL, NULL, NULL);
}

int
sim_copy_work_locked(uint64_t dst, uint64_t src, size_t n_bytes, struct sim_work *work)
{
	enum side side;
	int rc;

	*work = (struct sim_work){
		.kind = SIM_WORK_COPY,
		.name = "copy",
		.a = { dst, src, n_bytes },
	};
	if (!n_bytes)
		return CUDA_ERROR_INVALID_VALUE;
	rc = side_of(dst, n_bytes, SIM_WRITE, work, &side);
	return rc ? rc : side_of(src, n_bytes, SIM_READ, work, &side);
}

int
sim_copy(uint64_t dst, uint64_t src, size_t n_bytes, enum sim_copy_kind kind, CUstream handle,
	 bool sync)
{
	struct sim_work work = {
		.kind = SIM_WORK_COPY,
		.name = "copy",
		.a = { dst, src, n_bytes },
	};
	struct sim_stream *stream;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc && sync)
		rc = sync_allowed(stream);
	if (!rc && n_bytes)
		rc = copy_locked(stream, &work, kind, sync);
	sim_unlock();
	return rc;
}

int
sim_set(CUdeviceptr dst, uint32_t value, unsigned element_bytes, size_t n, CUstream handle,
	bool sync)
{
	struct sim_work work = {
		.kind = SIM_WORK_SET,
		.name = "set",
		.a = { dst, value, element_bytes, n },
	};
	struct sim_stream *stream;
	enum side side = SIDE_PAGEABLE;
	size_t n_bytes;
	int rc;

	if ((element_bytes != 1 && element_bytes != 2 && element_bytes != 4) ||
	    dst % element_bytes || __builtin_mul_overflow(n, (size_t)element_bytes, &n_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc && sync)
		rc = sync_allowed(stream);
	if (rc || !n)
		goto out;
	rc = side_of(dst, n_bytes, SIM_WRITE, &work, &side);
	if (!rc && side == SIDE_PAGEABLE)
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE, "set: 0x%llx is not device memory",
				       (unsigned long long)dst);
	if (rc)
		goto out;
	rc = sync && side == SIDE_PINNED ? sim_submit_wait_locked(stream, &work)
					 : sim_submit_locked(stream, &work, NULL, NULL, NULL);
out:
	sim_unlock();
	return rc;
}
