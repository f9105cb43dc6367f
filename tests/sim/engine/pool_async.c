/* SPDX-License-Identifier: MIT */
/*
 * Stream-ordered allocation and free.
 *
 * An allocation takes its memory at once (pool_heap.c) and puts an operation into the stream that
 * "writes" all of it for the race oracle: a use that is not ordered after it is a race. The oracle
 * takes the operation as ordered after the frees of the memory, which the pool has seen to, and the
 * stream as no more ordered than the program has made it: a wait that the pool inserts is nothing
 * the program may rely on.
 *
 * A free puts an operation into the stream that writes the memory as well. A pool's memory is free
 * for its heap from the call on, and the record stays for work of before until the operation has
 * run; then who still uses it touches memory that is not there. Ordinary memory cannot be used from
 * then on either, and goes back when the stream, or its context, is next synchronised.
 *
 * cuMemFree of a pool's memory waits for nothing, so for the oracle the host writes it. What it
 * frees is to be had where the allocation was to be had.
 */
#include "tests/sim/engine/pool.h"

/* All that the memory takes of its pool: the bytes behind a request have a last writer, too, which
 * is the one that its next owner is known to come after. */
static struct sim_work
edge_work(enum sim_work_kind kind, const char *name, const struct sim_mem *mem)
{
	return (struct sim_work){
		.kind = kind,
		.name = name,
		.a = { mem->info.base, mem->info.id },
		.touch = { { .addr = mem->info.base,
			     .n_bytes = mem->pool ? mem->n_taken : mem->info.n_bytes,
			     .access = SIM_WRITE } },
		.n_touches = 1,
	};
}

/* ---------------------------------------------------------------- alloc --- */
/* The operation of an allocation: after what the pool has it wait for, judged with the clocks of
 * the frees. */
static void
alloc_submit(struct sim_stream *stream, struct sim_mem *mem, struct sim_taking *taking)
{
	struct sim_work work = edge_work(SIM_WORK_ALLOC, "alloc_async", mem);
	struct sim_op *op, judged;

	work.n_touches = 0;
	op = sim_op_new_locked(stream->ctx, stream->id, &work);
	sim_stream_inherit_locked(stream, op);
	for (unsigned i = 0; i < taking->waits.n; i++)
		sim_op_depend_locked(op, taking->waits.at[i]);
	sim_stream_commit_locked(stream, op);
	mem->born = sim_place_of_locked(op, stream);
	if (sim_oracle_on()) {
		sim_vc_join(&mem->born->vc, &taking->before);
		judged = *op;
		judged.work.n_touches = 1;
		sim_oracle_touch_locked(&judged, stream->component, mem->born->count,
					&mem->born->vc);
	}
	sim_op_unref_locked(op);
}

static int
alloc_locked(struct sim_stream *stream, struct sim_pool *pool, size_t n_bytes, CUdeviceptr *ret_ptr)
{
	struct sim_taking taking = { .stream = stream };
	struct sim_mem *mem;
	int rc;

	sim_g.clocks = true;
	sim_stream_clock_locked(stream, &taking.clock);
	rc = sim_heap_take_locked(pool, n_bytes, &taking, &mem);
	if (!rc) {
		alloc_submit(stream, mem, &taking);
		*ret_ptr = mem->info.base;
	}
	sim_ops_clear_locked(&taking.waits);
	sim_vc_free(&taking.before);
	sim_vc_free(&taking.clock);
	return rc;
}

int
sim_pool_alloc(CUmemoryPool handle, size_t n_bytes, CUstream stream_handle, CUdeviceptr *ret_ptr)
{
	struct sim_stream *stream;
	struct sim_pool *pool = NULL;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(stream_handle, &stream);
	if (!rc && stream->is_legacy)
		rc = sim_capture_legacy_locked(stream->ctx);
	if (rc)
		goto out;
	pool = handle ? sim_pool_find_locked(handle)
		      : sim_pool_of_device_locked(stream->ctx->device);
	if (!n_bytes || !pool || pool->imported)
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE,
				       "an allocation of nothing, or from no pool that allocates");
	else if (stream->capture)
		rc = sim_capture_alloc_locked(stream, pool, n_bytes, ret_ptr);
	else
		rc = alloc_locked(stream, pool, n_bytes, ret_ptr);
out:
	sim_unlock();
	return rc;
}

int
sim_mem_alloc_async(size_t n_bytes, CUstream handle, CUdeviceptr *ret_ptr)
{
	return sim_pool_alloc(NULL, n_bytes, handle, ret_ptr);
}

/* ----------------------------------------------------------------- free --- */
static bool
is_import(const struct sim_mem *mem)
{
	return mem->info.kind == SIM_MEM_OPENED;
}

/* A pool's memory belongs to its heap again; the record stays until the operation has run. */
static void
pool_mem_leave(struct sim_mem *mem, struct sim_op *op, const struct sim_stream *stream)
{
	if (is_import(mem)) { /* found where it is mapped */
		mem->pool->used -= mem->n_taken;
		return;
	}
	sim_heap_give_locked(mem->pool, mem, sim_place_of_locked(op, stream));
	mem->next_leaving = sim_g.leaving;
	sim_g.leaving = mem;
}

static void
pool_mem_end(struct sim_mem *mem)
{
	struct sim_pool *pool = mem->pool;

	while (mem->pins)
		pthread_cond_wait(&sim_g.done, &sim_g.lock);
	sim_place_unref_locked(mem->born);
	if (is_import(mem))
		sim_mem_release_locked(mem);
	else
		sim_mem_forget_locked(mem);
	pool->n_mems--;
	sim_pool_reap_locked(pool);
}

static bool
is_plain(const struct sim_mem *mem)
{
	return mem->info.kind == SIM_MEM_DEVICE || mem->info.kind == SIM_MEM_PITCH;
}

/* The memory that a free names, or NULL. */
static struct sim_mem *
free_target(CUdeviceptr ptr)
{
	struct sim_mem *mem = sim_mem_find_locked(ptr);

	if (!mem || mem->info.base != ptr || mem->freeing ||
	    (!is_plain(mem) && !mem->pool && !mem->graph) ||
	    (mem->graph && !sim_graph_mem_may_free_locked(mem)))
		return NULL;
	return mem;
}

int
sim_free_submit_locked(struct sim_stream *stream, struct sim_mem *mem)
{
	struct sim_work work = edge_work(SIM_WORK_FREE, "free_async", mem);
	struct sim_op *op;
	int rc;

	work.n_touches = !is_import(mem);
	rc = sim_submit_locked(stream, &work, NULL, NULL, &op);
	/* Only once accepted: a refused free leaves the memory usable. */
	if (rc)
		return rc;
	if (mem->graph) {
		sim_graph_mem_freed_locked(mem, op);
	} else {
		mem->freeing = true;
		if (mem->pool)
			pool_mem_leave(mem, op, stream);
	}
	sim_op_unref_locked(op);
	return 0;
}

int
sim_mem_free_async(CUdeviceptr ptr, CUstream handle)
{
	struct sim_stream *stream;
	struct sim_mem *mem;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc && stream->is_legacy)
		rc = sim_capture_legacy_locked(stream->ctx);
	if (rc)
		goto out;
	if (stream->capture) {
		rc = sim_capture_free_locked(stream, ptr);
		goto out;
	}
	mem = free_target(ptr);
	rc = mem ? sim_free_submit_locked(stream, mem)
		 : sim_misuse_locked(CUDA_ERROR_INVALID_VALUE,
				     "stream-ordered free of 0x%llx: not live memory's start",
				     (unsigned long long)ptr);
out:
	sim_unlock();
	return rc;
}

static struct sim_mem *
leaving_take(uint64_t id)
{
	struct sim_mem **p = &sim_g.leaving, *mem;

	while (*p && (*p)->info.id != id)
		p = &(*p)->next_leaving;
	mem = *p;
	if (mem)
		*p = mem->next_leaving;
	return mem;
}

void
sim_free_run_locked(const struct sim_op *op)
{
	struct sim_mem *mem = leaving_take(op->work.a[1]);

	if (mem) {
		pool_mem_end(mem);
		return;
	}
	/* Ordinary memory's context may have died and taken it along. */
	mem = sim_mem_find_locked(op->work.a[0]);
	if (!mem || mem->info.id != op->work.a[1])
		return;
	if (mem->graph)
		sim_graph_free_run_locked(mem, op);
	else if (mem->pool)
		pool_mem_end(mem);
	else
		sim_mem_leave_locked(mem, op->stream_id);
}

/* For the oracle the host writes the memory, after the allocation itself. */
static void
host_writes(const struct sim_mem *mem)
{
	struct sim_op op = { .work = edge_work(SIM_WORK_FREE, "cuMemFree", mem) };
	struct sim_vc vc = { 0 };

	if (!sim_oracle_on())
		return;
	sim_vc_copy(&vc, &sim_g.host);
	if (mem->born)
		sim_vc_join(&vc, &mem->born->vc);
	sim_oracle_touch_locked(&op, UINT32_MAX, 0, &vc);
	sim_vc_free(&vc);
}

int
sim_pool_host_free_locked(struct sim_mem *mem)
{
	struct sim_place *born = mem->born;
	struct sim_ctx *ctx;
	int rc = sim_ctx_current_locked(&ctx) ? 0 : ctx->root->sticky;

	if (!rc && mem->graph && !sim_graph_mem_may_free_locked(mem))
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE, "not allocated by its graph");
	if (rc)
		return rc;
	if (is_import(mem)) {
		mem->pool->used -= mem->n_taken;
		pool_mem_end(mem);
		return 0;
	}
	host_writes(mem);
	if (mem->graph) {
		sim_graph_mem_freed_locked(mem, NULL);
		sim_graph_free_run_locked(mem, NULL);
		return 0;
	}
	mem->born = NULL; /* the heap's now */
	sim_heap_give_locked(mem->pool, mem, born);
	pool_mem_end(mem);
	return 0;
}
