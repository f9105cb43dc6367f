/* SPDX-License-Identifier: MIT */
/*
 * Streams: the rules of what comes after what.
 *
 * A new operation of a stream waits for the stream's last one and for the context's gate
 * (sim_ctx_wait_event). On top of that stand the rules of the legacy default stream: an operation
 * there waits for the last one of every blocking stream of the context, and an operation of a
 * blocking stream waits for the legacy stream's last one. Per-thread default streams are blocking
 * streams. The same edges join the vector clocks. A stream's clock is that of its last operation.
 * Synchronising with the legacy stream waits for the blocking streams as well, since every action
 * on it does.
 */
#include "tests/sim/engine/internal.h"

#include <stdlib.h>

/* ---------------------------------------------------------- life, death --- */
struct sim_stream *
sim_stream_new_locked(struct sim_ctx *ctx, unsigned flags, int priority)
{
	struct sim_stream *stream = sim_slab_get(&sim_g.streams);

	if (!stream)
		return NULL;
	stream->id = ++sim_g.next_stream;
	stream->ctx = ctx;
	stream->flags = flags;
	stream->priority = priority;
	stream->blocking = !(flags & SIM_STREAM_NON_BLOCKING);
	stream->component = sim_component_new_locked();
	stream->next = ctx->streams;
	ctx->streams = stream;
	return stream;
}

static void
orphans_add(struct sim_ctx *ctx, const struct sim_stream *stream)
{
	struct sim_ops *list = &ctx->orphans[stream->blocking];
	unsigned kept = 0;

	for (unsigned i = 0; i < list->n; i++) {
		if (list->at[i]->state == SIM_OP_DONE)
			sim_op_unref_locked(list->at[i]);
		else
			list->at[kept++] = list->at[i];
	}
	list->n = kept;
	sim_ops_add(list, stream->last);
	sim_vc_join(&ctx->orphan_vc[stream->blocking], &stream->vc);
}

void
sim_stream_drop_locked(struct sim_stream *stream)
{
	struct sim_ctx *ctx = stream->ctx;
	struct sim_stream **p = &ctx->streams;

	if (stream->capture)
		sim_capture_leave_locked(stream);
	while (*p != stream)
		p = &(*p)->next;
	*p = stream->next;
	orphans_add(ctx, stream);
	sim_op_unref_locked(stream->last);
	stream->last = NULL;
	sim_pdl_clear_locked(stream);
	sim_vc_free(&stream->base_vc);
	sim_vc_free(&stream->vc);
	sim_component_retire_locked(stream->component);
	/* A dead context's created streams stay recognisable until the program destroys them. */
	if (ctx->handle.life == SIM_ZOMBIE && !stream->is_legacy && !stream->thread) {
		stream->detached = sim_ctx_is_green(ctx);
		stream->handle.life = SIM_ZOMBIE;
	} else {
		sim_slab_put(&sim_g.streams, stream);
	}
}

/* -------------------------------------------------------------- resolve --- */
static int
per_thread_stream(struct sim_stream **ret_stream)
{
	uint64_t thread = sim_thread_id();
	struct sim_stream *stream;
	struct sim_ctx *ctx;
	int rc = sim_ctx_usable_locked(&ctx);

	if (!rc && sim_ctx_is_green(ctx))
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_HANDLE,
				       "a green context has no per-thread streams");
	if (rc)
		return rc;
	for (stream = ctx->streams; stream; stream = stream->next)
		if (stream->thread == thread)
			break;
	if (!stream) {
		stream = sim_stream_new_locked(ctx, 0, 0);
		if (!stream)
			return CUDA_ERROR_OUT_OF_MEMORY;
		stream->thread = thread;
	}
	*ret_stream = stream;
	return 0;
}

int
sim_stream_find_locked(CUstream handle, struct sim_stream **ret_stream)
{
	struct sim_stream *stream;
	struct sim_ctx *ctx;
	int rc;

	if (handle == CU_STREAM_PER_THREAD)
		return per_thread_stream(ret_stream);
	if (!handle || handle == CU_STREAM_LEGACY) {
		rc = sim_ctx_current_locked(&ctx);
		if (!rc)
			*ret_stream = ctx->legacy;
		return rc;
	}
	stream = sim_slab_find(&sim_g.streams, handle);
	if (!stream) {
		sim_misuse_locked(CUDA_ERROR_INVALID_HANDLE, "%p is no stream", (void *)handle);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (stream->handle.life == SIM_ZOMBIE)
		return stream->detached ? SIM_ERROR_STREAM_DETACHED
					: CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret_stream = stream;
	return 0;
}

int
sim_stream_resolve_locked(CUstream handle, struct sim_stream **ret_stream)
{
	int rc = sim_stream_find_locked(handle, ret_stream);

	return rc ? rc : (*ret_stream)->ctx->root->sticky;
}

/* ----------------------------------------------------------------- order --- */
void
sim_stream_inherit_locked(struct sim_stream *stream, struct sim_op *op)
{
	struct sim_ctx *ctx = stream->ctx;

	sim_op_depend_locked(op, stream->last);
	sim_vc_join(&stream->vc, &sim_g.host);
	sim_ctx_gates_locked(ctx, op, &stream->vc);
	if (stream->blocking && (!stream->early || stream->is_legacy)) {
		sim_op_depend_locked(op, ctx->legacy->last);
		sim_vc_join(&stream->vc, &ctx->legacy->vc);
	}
	if (!stream->is_legacy)
		return;
	for (struct sim_stream *s = ctx->streams; s; s = s->next) {
		if (!s->blocking)
			continue;
		sim_op_depend_locked(op, s->last);
		sim_vc_join(&stream->vc, &s->vc);
	}
	for (unsigned i = 0; i < ctx->orphans[true].n; i++)
		sim_op_depend_locked(op, ctx->orphans[true].at[i]);
	sim_vc_join(&stream->vc, &ctx->orphan_vc[true]);
}

void
sim_stream_clock_locked(struct sim_stream *stream, struct sim_vc *ret_vc)
{
	struct sim_vc vc = { 0 }; /* a stream's own clock is that of its last operation */

	sim_vc_copy(&vc, &stream->vc);
	sim_stream_inherit_locked(stream, NULL);
	sim_vc_free(ret_vc);
	*ret_vc = stream->vc;
	stream->vc = vc;
}

void
sim_stream_commit_locked(struct sim_stream *stream, struct sim_op *op)
{
	sim_pdl_note_locked(stream, op);
	if (sim_clocks_on()) {
		uint64_t count = sim_component_tick_locked(stream->component);

		sim_vc_set(&stream->vc, stream->component, count);
		sim_order_submit_locked(op, stream->component, count, &stream->vc);
		sim_oracle_touch_locked(op, stream->component, count, &stream->vc);
		if (op->work.kind == SIM_WORK_HOST)
			sim_vc_copy(&op->teaches, &stream->vc);
	}
	sim_op_unref_locked(stream->last);
	stream->last = sim_op_ref(op);
	sim_op_start_locked(op);
}

int
sim_submit_locked(struct sim_stream *stream, const struct sim_work *work, struct sim_op *after,
		  const struct sim_vc *after_vc, struct sim_op **ret_op)
{
	struct sim_op *op;
	int rc = 0;

	if (ret_op)
		*ret_op = NULL;
	if (stream->capture)
		return sim_capture_record_locked(stream, work);
	if (stream->is_legacy)
		rc = sim_capture_legacy_locked(stream->ctx);
	if (rc) {
		free(work->staged);
		return rc;
	}
	op = sim_op_new_locked(stream->ctx, stream->id, work);
	sim_stream_inherit_locked(stream, op);
	sim_op_depend_locked(op, after);
	if (after_vc)
		sim_vc_join(&stream->vc, after_vc);
	sim_stream_commit_locked(stream, op);
	if (ret_op)
		*ret_op = op;
	else
		sim_op_unref_locked(op);
	return 0;
}

void
sim_host_wait_locked(struct sim_ops *ops, struct sim_vc *vc)
{
	sim_ops_wait_locked(ops);
	sim_vc_join(&sim_g.host, vc);
	sim_ops_clear_locked(ops);
	sim_vc_free(vc);
}

int
sim_submit_wait_locked(struct sim_stream *stream, const struct sim_work *work)
{
	struct sim_ctx *ctx = stream->ctx->root;
	struct sim_ops ops = { 0 };
	struct sim_vc vc = { 0 };
	struct sim_op *op;
	int rc = sim_submit_locked(stream, work, NULL, NULL, &op);

	if (rc || !op)
		return rc;
	sim_ops_add(&ops, op);
	sim_op_unref_locked(op);
	sim_vc_copy(&vc, &stream->vc);
	sim_host_wait_locked(&ops, &vc);
	return ctx->sticky;
}

void
sim_stream_targets_locked(struct sim_stream *stream, struct sim_ops *ops, struct sim_vc *vc)
{
	struct sim_ctx *ctx = stream->ctx;

	sim_ops_add(ops, stream->last);
	sim_vc_join(vc, &stream->vc);
	if (!stream->is_legacy)
		return;
	for (struct sim_stream *s = ctx->streams; s; s = s->next) {
		if (!s->blocking)
			continue;
		sim_ops_add(ops, s->last);
		sim_vc_join(vc, &s->vc);
	}
	for (unsigned i = 0; i < ctx->orphans[true].n; i++)
		sim_ops_add(ops, ctx->orphans[true].at[i]);
	sim_vc_join(vc, &ctx->orphan_vc[true]);
}
