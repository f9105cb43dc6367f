/* SPDX-License-Identifier: MIT */
/*
 * Streams: the entry points. The rules behind them stand in stream.c.
 */
#include "tests/sim/engine/internal.h"

int
sim_stream_create(unsigned flags, int priority, CUstream *ret_stream)
{
	struct sim_stream *stream;
	struct sim_ctx *ctx;
	int rc;

	if (flags & ~(unsigned)SIM_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	rc = sim_ctx_usable_locked(&ctx);
	if (rc)
		goto out;
	stream = sim_stream_new_locked(ctx, flags, priority);
	rc = stream ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
	if (!rc)
		*ret_stream = (CUstream)(void *)stream;
out:
	sim_unlock();
	return rc;
}

int
sim_stream_destroy(CUstream handle)
{
	struct sim_stream *stream;
	int rc = CUDA_ERROR_INVALID_HANDLE;

	sim_lock();
	if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
		goto out;
	stream = sim_slab_find(&sim_g.streams, handle);
	if (stream && stream->handle.life == SIM_ZOMBIE) {
		rc = stream->detached ? 0 : CUDA_ERROR_CONTEXT_IS_DESTROYED;
		sim_slab_put(&sim_g.streams, stream);
		goto out;
	}
	rc = sim_stream_find_locked(handle, &stream);
	if (rc)
		goto out;
	rc = stream->ctx->root->sticky; /* it is gone all the same */
	sim_stream_drop_locked(stream);
out:
	sim_unlock();
	return rc;
}

/* Finds the stream for a question about its progress; a capture forbids that. */
static int
stream_for_status(CUstream handle, struct sim_stream **ret_stream)
{
	int rc = sim_stream_resolve_locked(handle, ret_stream);

	if (rc)
		return rc;
	if ((*ret_stream)->capture)
		return sim_capture_spoil_locked((*ret_stream)->capture,
						CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	return (*ret_stream)->is_legacy ? sim_capture_legacy_locked((*ret_stream)->ctx) : 0;
}

int
sim_stream_sync(CUstream handle)
{
	struct sim_ops ops = { 0 };
	struct sim_vc vc = { 0 };
	struct sim_stream *stream;
	struct sim_ctx *ctx;
	uint64_t id;
	int rc;

	sim_lock();
	rc = stream_for_status(handle, &stream);
	if (rc)
		goto out;
	ctx = stream->ctx->root;
	id = stream->id;
	sim_stream_targets_locked(stream, &ops, &vc);
	sim_host_wait_locked(&ops, &vc);
	sim_mem_arrive_locked(ctx, id);
	sim_pools_synchronised_locked();
	rc = ctx->sticky;
out:
	sim_unlock();
	return rc;
}

int
sim_stream_query(CUstream handle)
{
	struct sim_ops ops = { 0 };
	struct sim_vc vc = { 0 };
	struct sim_stream *stream;
	int rc;

	sim_lock();
	rc = stream_for_status(handle, &stream);
	if (rc)
		goto out;
	sim_stream_targets_locked(stream, &ops, &vc);
	rc = sim_ops_done(&ops) ? stream->ctx->root->sticky : CUDA_ERROR_NOT_READY;
	if (rc != CUDA_ERROR_NOT_READY)
		sim_vc_join(&sim_g.host, &vc);
	else
		sim_manual_asked_locked();
	sim_ops_clear_locked(&ops);
	sim_vc_free(&vc);
out:
	sim_unlock();
	return rc;
}

int
sim_stream_get_flags(CUstream handle, unsigned *ret_flags)
{
	struct sim_stream *stream;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc)
		*ret_flags = stream->flags;
	sim_unlock();
	return rc;
}

int
sim_stream_get_priority(CUstream handle, int *ret_priority)
{
	struct sim_stream *stream;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc)
		*ret_priority = stream->priority;
	sim_unlock();
	return rc;
}

int
sim_stream_get_ctx(CUstream handle, CUcontext *ret_ctx)
{
	struct sim_stream *stream;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc)
		*ret_ctx = (CUcontext)(void *)stream->ctx;
	sim_unlock();
	return rc;
}

int
sim_stream_get_id(CUstream handle, unsigned long long *ret_id)
{
	struct sim_stream *stream;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc)
		*ret_id = stream->id;
	sim_unlock();
	return rc;
}

int
sim_stream_get_device(CUstream handle, int *ret_device)
{
	struct sim_stream *stream;
	int rc;

	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc)
		*ret_device = stream->ctx->device;
	sim_unlock();
	return rc;
}
