/* SPDX-License-Identifier: MIT */
/*
 * Programmatic dependent launch.
 *
 * A kernel with PROGRAMMATIC_STREAM_SERIALIZATION may start before the kernel in front of it in the
 * stream ends, if that one triggers early, and sees its results only if it asks for them
 * (cudaGridDependencySynchronize). The built-in kernels do not ask, and the one in front is taken
 * to trigger at its start: the worst that the contract allows. So such a kernel waits for what the
 * kernel in front waited for, and not for that kernel; for the oracle the two are unordered. A run
 * of such launches shares the base of its first kernel. Whatever is submitted to the stream next
 * without the attribute waits for all of them, which a mark ("join") stands for. What is in front
 * and no kernel (a copy, an event) is waited for as ever. A kernel of such a run is a component of
 * the vector clocks of its own.
 *
 * cuda.h speaks of "the previous kernel in the stream" and of the kernel's "stream dependency". The
 * legacy stream's barrier makes a kernel of another stream the one in front, and neither text says
 * that the attribute leaves it alone. So that kernel may be overlapped, too: by one in a blocking
 * stream the legacy stream's last, by one in the legacy stream the last of each blocking one. The
 * barrier itself stands: the join comes behind all of them.
 *
 * Programmatic and launch-completion events may fire as soon as the kernel has started: they wait
 * for what the kernel waits for, and teach that much.
 */
#include "tests/sim/engine/internal.h"

void
sim_pdl_clear_locked(struct sim_stream *stream)
{
	sim_ops_clear_locked(&stream->base);
	stream->has_base = false;
}

void
sim_pdl_note_locked(struct sim_stream *stream, const struct sim_op *op)
{
	sim_pdl_clear_locked(stream);
	if (!op->work.is_kernel)
		return;
	stream->has_base = true;
	for (unsigned i = 0; i < op->n_deps; i++)
		sim_ops_add(&stream->base, op->deps[i]);
	sim_vc_copy(&stream->base_vc, &stream->vc);
}

/* Does an operation of `stream` come behind the last one of `front`? */
static bool
is_in_front(const struct sim_stream *stream, const struct sim_stream *front)
{
	if (front == stream)
		return true;
	return (stream->is_legacy && front->blocking) || (front->is_legacy && stream->blocking);
}

static bool
may_overlap(const struct sim_stream *stream)
{
	const struct sim_stream *front = stream->ctx->streams;

	while (front && !(is_in_front(stream, front) && front->has_base))
		front = front->next;
	return front != NULL;
}

/* What the kernel waits for: of a kernel in front, what that waited for. */
static void
inherit_bases(const struct sim_stream *stream, struct sim_op *op, struct sim_vc *vc)
{
	const struct sim_ctx *ctx = stream->ctx;

	sim_vc_join(vc, &sim_g.host);
	sim_ctx_gates_locked(ctx, op, vc);
	for (const struct sim_stream *front = ctx->streams; front; front = front->next) {
		if (!is_in_front(stream, front))
			continue;
		if (!front->has_base)
			sim_op_depend_locked(op, front->last);
		for (unsigned i = 0; i < front->base.n; i++)
			sim_op_depend_locked(op, front->base.at[i]);
		sim_vc_join(vc, front->has_base ? &front->base_vc : &front->vc);
	}
	for (unsigned i = 0; stream->is_legacy && i < ctx->orphans[true].n; i++)
		sim_op_depend_locked(op, ctx->orphans[true].at[i]);
	if (stream->is_legacy)
		sim_vc_join(vc, &ctx->orphan_vc[true]);
}

/* The first of a run: what is in front of it in its stream was no kernel. */
static void
begin_run(struct sim_stream *stream, const struct sim_op *op, const struct sim_vc *vc)
{
	stream->has_base = true;
	for (unsigned i = 0; i < op->n_deps; i++)
		sim_ops_add(&stream->base, op->deps[i]);
	sim_vc_copy(&stream->base_vc, vc);
}

static void
judge(struct sim_op *op, struct sim_vc *vc)
{
	uint32_t component;
	uint64_t count;

	if (!sim_oracle_on())
		return;
	component = sim_component_new_locked();
	count = sim_component_tick_locked(component);
	sim_vc_set(vc, component, count);
	sim_order_submit_locked(op, component, count, vc);
	sim_oracle_touch_locked(op, component, count, vc);
	sim_component_retire_locked(component);
}

/* Records an event that fires when `op` may have started. */
static void
record_start(struct sim_event *event, struct sim_op *op, const struct sim_vc *vc)
{
	static const struct sim_work work = { .kind = SIM_WORK_MARK, .name = "launch event" };
	struct sim_op *mark = sim_op_new_locked(op->ctx, 0, &work);

	for (unsigned i = 0; i < op->n_deps; i++)
		sim_op_depend_locked(mark, op->deps[i]);
	sim_op_start_locked(mark);
	sim_event_clear_locked(event);
	event->op = mark;
	sim_vc_copy(&event->vc, vc);
}

/* The launch that may overlap the kernel in front of it. */
static void
launch_overlapping_locked(struct sim_stream *stream, const struct sim_work *work,
			  struct sim_event *event)
{
	static const struct sim_work join_work = { .kind = SIM_WORK_MARK, .name = "join" };
	struct sim_op *op = sim_op_new_locked(stream->ctx, stream->id, work), *join;
	struct sim_vc vc = { 0 };

	inherit_bases(stream, op, &vc);
	if (!stream->has_base)
		begin_run(stream, op, &vc);
	if (event)
		record_start(event, op, &vc);
	judge(op, &vc);
	op->overlaps = true;
	sim_op_start_locked(op);
	join = sim_op_new_locked(stream->ctx, stream->id, &join_work);
	sim_stream_inherit_locked(stream, join);
	sim_op_depend_locked(join, op);
	sim_op_unref_locked(stream->last);
	stream->last = join;
	sim_vc_join(&stream->vc, &vc);
	sim_op_start_locked(join);
	sim_op_unref_locked(op);
	sim_vc_free(&vc);
}

/* An ordinary launch with an event at its start. */
static void
launch_recorded_locked(struct sim_stream *stream, const struct sim_work *work,
		       struct sim_event *event)
{
	struct sim_op *op = sim_op_new_locked(stream->ctx, stream->id, work);

	sim_stream_inherit_locked(stream, op);
	record_start(event, op, &stream->vc);
	sim_stream_commit_locked(stream, op);
	sim_op_unref_locked(op);
}

int
sim_kernel_launch_programmatic(enum sim_kernel kernel, const uint64_t *args, CUstream handle,
			       bool overlap, CUevent event_handle)
{
	struct sim_event *event = NULL;
	struct sim_stream *stream;
	struct sim_work work;
	int rc;

	if (!sim_kernel_work(kernel, args, &work))
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc && event_handle)
		rc = sim_event_resolve_locked(event_handle, &event);
	if (!rc && event && event->ctx != stream->ctx->root)
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_HANDLE,
				       "event and stream are of different contexts");
	if (!rc && event && !(event->flags & SIM_EVENT_DISABLE_TIMING))
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE, "the event has timing");
	if (!rc && stream->capture)
		rc = CUDA_ERROR_NOT_SUPPORTED;
	if (!rc && stream->is_legacy)
		rc = sim_capture_legacy_locked(stream->ctx);
	if (rc)
		goto out;
	if (overlap && may_overlap(stream))
		launch_overlapping_locked(stream, &work, event);
	else if (event)
		launch_recorded_locked(stream, &work, event);
	else
		rc = sim_submit_locked(stream, &work, NULL, NULL, NULL);
out:
	sim_unlock();
	return rc;
}
