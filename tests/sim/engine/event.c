/* SPDX-License-Identifier: MIT */
/*
 * Events and marks of a context.
 *
 * Recording puts a mark into the stream; the event keeps that operation and the stream's clock of
 * the moment. Recording anew replaces both; whoever waited for the old one goes on waiting for the
 * old one. A mark of a whole context is an operation of no stream that waits for the last one of
 * all. A context that waits for an event gets a gate, which every later submission of all its
 * streams waits for.
 */
#include "tests/sim/engine/internal.h"

#include <errno.h>
#include <stdlib.h>

static const struct sim_work mark_work = { .kind = SIM_WORK_MARK, .name = "mark" };

int
sim_event_resolve_locked(CUevent handle, struct sim_event **ret_event)
{
	struct sim_event *event = sim_slab_find(&sim_g.events, handle);

	if (!event) {
		sim_misuse_locked(CUDA_ERROR_INVALID_HANDLE, "%p is no event", (void *)handle);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (event->handle.life == SIM_ZOMBIE)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret_event = event;
	return event->ctx->sticky;
}

void
sim_event_clear_locked(struct sim_event *event)
{
	sim_op_unref_locked(event->op);
	event->op = NULL;
	event->vc.n = 0;
	event->capture_id = 0;
	event->n_nodes = 0;
}

static void
event_drop(struct sim_event *event)
{
	sim_event_clear_locked(event);
	sim_vc_free(&event->vc);
	free(event->nodes);
	event->nodes = NULL;
	if (event->prev)
		event->prev->next = event->next;
	else
		event->ctx->events = event->next;
	if (event->next)
		event->next->prev = event->prev;
}

void
sim_event_orphan_locked(struct sim_event *event)
{
	event_drop(event);
	event->handle.life = SIM_ZOMBIE;
}

int
sim_event_create(unsigned flags, CUevent *ret_event)
{
	struct sim_event *event;
	struct sim_ctx *ctx;
	int rc;

	if (flags & ~7u ||
	    ((flags & SIM_EVENT_INTERPROCESS) && !(flags & SIM_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	rc = sim_ctx_usable_locked(&ctx);
	if (rc)
		goto out;
	event = sim_slab_get(&sim_g.events);
	if (!event) {
		rc = CUDA_ERROR_OUT_OF_MEMORY;
		goto out;
	}
	ctx = ctx->root;
	event->ctx = ctx;
	event->flags = flags;
	event->next = ctx->events;
	if (event->next)
		event->next->prev = event;
	ctx->events = event;
	*ret_event = (CUevent)(void *)event;
out:
	sim_unlock();
	return rc;
}

int
sim_event_destroy(CUevent handle)
{
	struct sim_event *event;
	int rc;

	sim_lock();
	event = sim_slab_find(&sim_g.events, handle);
	rc = event && event->handle.life == SIM_ZOMBIE ? CUDA_ERROR_CONTEXT_IS_DESTROYED
						       : sim_event_resolve_locked(handle, &event);
	if (event && event->handle.life == SIM_LIVE)
		event_drop(event);
	if (event)
		sim_slab_put(&sim_g.events, event);
	sim_unlock();
	return rc;
}

int
sim_event_record(CUevent handle, CUstream stream_handle)
{
	struct sim_stream *stream;
	struct sim_event *event;
	struct sim_op *op;
	int rc;

	sim_lock();
	rc = sim_event_resolve_locked(handle, &event);
	if (!rc)
		rc = sim_stream_resolve_locked(stream_handle, &stream);
	if (!rc && event->ctx != stream->ctx->root)
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_HANDLE,
				       "event and stream are of different contexts");
	if (rc)
		goto out;
	if (stream->capture) {
		rc = sim_capture_event_record_locked(stream, event);
		goto out;
	}
	stream->early = sim_g.config.breaks & SIM_BREAKS_LEGACY_RECORD &&
			(!stream->last || stream->last->state == SIM_OP_DONE);
	rc = sim_submit_locked(stream, &mark_work, NULL, NULL, &op);
	stream->early = false;
	if (rc)
		goto out;
	sim_event_clear_locked(event);
	event->op = op;
	sim_vc_copy(&event->vc, &stream->vc);
out:
	sim_unlock();
	return rc;
}

int
sim_event_query(CUevent handle)
{
	struct sim_event *event;
	int rc;

	sim_lock();
	rc = sim_event_resolve_locked(handle, &event);
	if (!rc)
		rc = sim_capture_event_use_locked(event);
	if (!rc)
		rc = sim_capture_unsafe_locked();
	if (rc || !event->op)
		goto out;
	sim_manual_look_locked(event->op);
	if (event->op->state != SIM_OP_DONE) {
		rc = CUDA_ERROR_NOT_READY;
		sim_manual_asked_locked();
		goto out;
	}
	sim_vc_join(&sim_g.host, &event->vc);
	rc = event->ctx->sticky;
out:
	sim_unlock();
	return rc;
}

int
sim_event_sync(CUevent handle)
{
	struct sim_ops ops = { 0 };
	struct sim_vc vc = { 0 };
	struct sim_event *event;
	struct sim_ctx *ctx;
	int rc;

	sim_lock();
	rc = sim_event_resolve_locked(handle, &event);
	if (!rc)
		rc = sim_capture_event_use_locked(event);
	if (!rc)
		rc = sim_capture_unsafe_locked();
	if (rc || !event->op)
		goto out;
	ctx = event->ctx;
	sim_ops_add(&ops, event->op);
	sim_vc_copy(&vc, &event->vc);
	sim_host_wait_locked(&ops, &vc);
	sim_pools_synchronised_locked();
	rc = ctx->sticky;
out:
	sim_unlock();
	return rc;
}

int
sim_event_elapsed(CUevent start_handle, CUevent end_handle, float *ret_ms)
{
	struct sim_event *start, *end;
	int rc;

	sim_lock();
	rc = sim_event_resolve_locked(start_handle, &start);
	if (!rc)
		rc = sim_event_resolve_locked(end_handle, &end);
	if (!rc)
		rc = sim_capture_event_use_locked(start);
	if (!rc)
		rc = sim_capture_event_use_locked(end);
	if (rc)
		goto out;
	rc = CUDA_ERROR_INVALID_HANDLE;
	if (!start->op || !end->op || ((start->flags | end->flags) & SIM_EVENT_DISABLE_TIMING))
		goto out;
	rc = CUDA_ERROR_NOT_READY;
	if (start->op->state != SIM_OP_DONE || end->op->state != SIM_OP_DONE)
		goto out;
	*ret_ms = (float)((double)(int64_t)(end->op->done_ns - start->op->done_ns) / 1e6);
	rc = 0;
out:
	sim_unlock();
	return rc;
}

int
sim_stream_wait_event(CUstream stream_handle, CUevent handle, unsigned flags)
{
	struct sim_stream *stream;
	struct sim_event *event;
	int rc;

	if (flags)
		return flags == 1 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	rc = sim_event_resolve_locked(handle, &event);
	if (!rc)
		rc = sim_stream_resolve_locked(stream_handle, &stream);
	if (rc)
		goto out;
	rc = sim_capture_event_wait_locked(stream, event);
	if (rc != -EAGAIN)
		goto out;
	rc = 0;
	if (event->op)
		rc = sim_submit_locked(stream, &mark_work, event->op, &event->vc, NULL);
out:
	sim_unlock();
	return rc;
}

/* -------------------------------------------------------- whole contexts --- */
int
sim_ctx_record_event(CUcontext ctx_handle, CUevent handle)
{
	struct sim_ops ops = { 0 };
	struct sim_event *event;
	struct sim_ctx *ctx;
	int rc;

	sim_lock();
	rc = sim_ctx_resolve_locked(ctx_handle, &ctx);
	if (!rc)
		rc = sim_event_resolve_locked(handle, &event);
	if (!rc && event->ctx != ctx->root)
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_HANDLE,
				       "event is of another context than the one to record");
	if (!rc)
		rc = sim_capture_ctx_locked(ctx);
	if (rc)
		goto out;
	sim_event_clear_locked(event);
	sim_ctx_targets_locked(
		ctx, sim_g.config.breaks & SIM_BREAKS_CONTEXT_RECORD ? sim_thread_id() : 0, &ops,
		&event->vc);
	event->op = sim_op_new_locked(ctx, 0, &mark_work);
	for (unsigned i = 0; i < ops.n; i++)
		sim_op_depend_locked(event->op, ops.at[i]);
	sim_op_start_locked(event->op);
	sim_ops_clear_locked(&ops);
out:
	sim_unlock();
	return rc;
}

int
sim_ctx_wait_event(CUcontext ctx_handle, CUevent handle)
{
	struct sim_event *event = NULL;
	struct sim_ctx *ctx;
	struct sim_op *gate;
	int rc;

	sim_lock();
	rc = sim_ctx_resolve_locked(ctx_handle, &ctx);
	if (!rc)
		rc = sim_event_resolve_locked(handle, &event);
	if (!rc && sim_capture_event_use_locked(event))
		rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!rc)
		rc = sim_capture_ctx_locked(ctx);
	if (rc || !event->op)
		goto out;
	gate = sim_op_new_locked(ctx, 0, &mark_work);
	sim_op_depend_locked(gate, ctx->gate);
	sim_op_depend_locked(gate, event->op);
	sim_op_start_locked(gate);
	sim_op_unref_locked(ctx->gate);
	ctx->gate = gate;
	sim_vc_join(&ctx->gate_vc, &event->vc);
out:
	sim_unlock();
	return rc;
}
