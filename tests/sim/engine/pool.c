/* SPDX-License-Identifier: MIT */
/*
 * Stream-ordered allocation: the default pool with release threshold 0, and stream-ordered frees of
 * ordinary memory.
 *
 * An allocation takes address range and capacity at once, and puts an operation into the stream
 * that "writes" all of it for the race oracle: a use that is not ordered after it is a race. A free
 * puts one that writes it as well, and gives the memory back when it runs; ordinary memory cannot
 * be used from then on, and goes back when the stream, or its context, is next synchronised. When
 * the device is full, frees still under way are waited for, oldest first, before out-of-memory is
 * the answer; that wait teaches the host clock nothing.
 */
#include "tests/sim/engine/internal.h"

static struct sim_op *
oldest_free(int device)
{
	for (struct sim_op *op = sim_g.first; op; op = op->next)
		if (op->work.kind == SIM_WORK_FREE && op->device == device)
			return op;
	return NULL;
}

static int
pool_take_locked(struct sim_ctx *ctx, size_t n_bytes, struct sim_mem **ret_mem)
{
	for (;;) {
		struct sim_ops ops = { 0 };
		int rc = sim_mem_new_locked(ctx, n_bytes, SIM_MEM_POOL, ret_mem);
		struct sim_op *op =
			rc == CUDA_ERROR_OUT_OF_MEMORY ? oldest_free(ctx->device) : NULL;

		if (!op)
			return rc;
		sim_ops_add(&ops, op);
		sim_ops_wait_locked(&ops);
		sim_ops_clear_locked(&ops);
	}
}

static struct sim_work
edge_work(enum sim_work_kind kind, const char *name, const struct sim_mem *mem)
{
	return (struct sim_work){
		.kind = kind,
		.name = name,
		.a = { mem->info.base, mem->info.id },
		.touch = { { .addr = mem->info.base,
			     .n_bytes = mem->info.n_bytes,
			     .access = SIM_WRITE } },
		.n_touches = 1,
	};
}

int
sim_mem_alloc_async(size_t n_bytes, CUstream handle, CUdeviceptr *ret_ptr)
{
	struct sim_stream *stream;
	struct sim_mem *mem;
	struct sim_work work;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc && stream->capture)
		rc = CUDA_ERROR_NOT_SUPPORTED;
	if (!rc && stream->is_legacy)
		rc = sim_capture_legacy_locked(stream->ctx);
	if (!rc)
		rc = pool_take_locked(stream->ctx, n_bytes, &mem);
	if (rc)
		goto out;
	work = edge_work(SIM_WORK_ALLOC, "alloc_async", mem);
	*ret_ptr = mem->info.base;
	rc = sim_submit_locked(stream, &work, NULL, NULL, NULL);
out:
	sim_unlock();
	return rc;
}

int
sim_mem_free_async(CUdeviceptr ptr, CUstream handle)
{
	struct sim_stream *stream;
	struct sim_mem *mem;
	struct sim_work work;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc && stream->capture)
		rc = CUDA_ERROR_NOT_SUPPORTED;
	if (!rc && stream->is_legacy)
		rc = sim_capture_legacy_locked(stream->ctx);
	if (rc)
		goto out;
	mem = sim_mem_find_locked(ptr);
	if (!mem || mem->info.base != ptr || mem->freeing ||
	    (mem->info.kind != SIM_MEM_DEVICE && mem->info.kind != SIM_MEM_PITCH &&
	     mem->info.kind != SIM_MEM_POOL)) {
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE,
				       "stream-ordered free of 0x%llx: not live memory's start",
				       (unsigned long long)ptr);
		goto out;
	}
	work = edge_work(SIM_WORK_FREE, "free_async", mem);
	rc = sim_submit_locked(stream, &work, NULL, NULL, NULL);
	/* Only once accepted: a refused free leaves the memory usable. */
	if (!rc)
		mem->freeing = true;
out:
	sim_unlock();
	return rc;
}
