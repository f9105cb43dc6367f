/* SPDX-License-Identifier: MIT */
/*
 * Green contexts: parts of a device's primary context with streams of their own.
 *
 * One is a context whose root is the primary one. Streams, the default stream with its rules, and
 * the gate of sim_ctx_wait_event() are its own, so its default stream is no barrier for streams of
 * others, and the primary context's none for its streams. Everything else is the primary context's:
 * memory, events, errors, peers. A call that waits for the primary context as a whole, or makes it
 * wait, means its green contexts, too (cuda.h, cuCtxSynchronize, cuCtxRecordEvent, cuCtxWaitEvent).
 */
#include "tests/sim/engine/internal.h"

#include <stdlib.h>

void
sim_ctx_gates_locked(const struct sim_ctx *ctx, struct sim_op *op, struct sim_vc *vc)
{
	sim_op_depend_locked(op, ctx->gate);
	sim_vc_join(vc, &ctx->gate_vc);
	if (sim_ctx_is_green(ctx))
		sim_ctx_gates_locked(ctx->root, op, vc);
}

static int
green_resolve(CUcontext handle, struct sim_ctx **ret_ctx)
{
	int rc = handle ? sim_ctx_resolve_locked(handle, ret_ctx) : CUDA_ERROR_INVALID_CONTEXT;

	return rc || sim_ctx_is_green(*ret_ctx) ? rc : CUDA_ERROR_INVALID_CONTEXT;
}

int
sim_green_create(int device, CUcontext *ret_ctx)
{
	struct sim_ctx *root, *ctx;
	int rc;

	sim_lock();
	rc = sim_primary_retain_locked(device, &root);
	if (rc)
		goto out;
	ctx = sim_slab_get(&sim_g.ctxs);
	rc = ctx ? sim_ctx_init_locked(ctx, device, root->flags) : CUDA_ERROR_OUT_OF_MEMORY;
	if (rc) {
		if (ctx)
			sim_slab_put(&sim_g.ctxs, ctx);
		sim_primary_release_locked(device);
		goto out;
	}
	ctx->root = root;
	ctx->next_green = root->greens;
	root->greens = ctx;
	*ret_ctx = (CUcontext)(void *)ctx;
out:
	sim_unlock();
	return rc;
}

/* What is unfinished belongs to nobody's stream from now on, but still to the primary context. */
static void
leave_to_root(struct sim_ctx *ctx)
{
	for (int blocking = 0; blocking < 2; blocking++) {
		for (unsigned i = 0; i < ctx->orphans[blocking].n; i++)
			sim_ops_add(&ctx->root->orphans[0], ctx->orphans[blocking].at[i]);
		sim_vc_join(&ctx->root->orphan_vc[0], &ctx->orphan_vc[blocking]);
		sim_ops_clear_locked(&ctx->orphans[blocking]);
		sim_vc_free(&ctx->orphan_vc[blocking]);
	}
}

void
sim_green_kill_locked(struct sim_ctx *ctx)
{
	struct sim_ctx **link = &ctx->root->greens;

	ctx->handle.life = SIM_ZOMBIE;
	while (*link != ctx)
		link = &(*link)->next_green;
	*link = ctx->next_green;
	while (ctx->streams)
		sim_stream_drop_locked(ctx->streams);
	leave_to_root(ctx);
	sim_op_unref_locked(ctx->gate);
	sim_vc_free(&ctx->gate_vc);
	sim_slab_put(&sim_g.ctxs, ctx);
}

int
sim_green_destroy(CUcontext handle)
{
	struct sim_ctx *ctx;
	int rc, device;

	sim_lock();
	rc = green_resolve(handle, &ctx);
	if (!rc) {
		device = ctx->device;
		sim_green_kill_locked(ctx);
		rc = sim_primary_release_locked(device);
	}
	sim_unlock();
	return rc;
}

int
sim_green_stream_create(CUcontext handle, int priority, CUstream *ret_stream)
{
	struct sim_stream *stream;
	struct sim_ctx *ctx;
	int rc;

	sim_lock();
	rc = green_resolve(handle, &ctx);
	if (!rc)
		rc = ctx->root->sticky;
	if (rc)
		goto out;
	stream = sim_stream_new_locked(ctx, SIM_STREAM_NON_BLOCKING, priority);
	rc = stream ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
	if (!rc)
		*ret_stream = (CUstream)(void *)stream;
out:
	sim_unlock();
	return rc;
}

int
sim_stream_get_ctxs(CUstream handle, CUcontext *ret_root, CUcontext *ret_green)
{
	struct sim_stream *stream;
	int rc;

	sim_lock();
	rc = sim_stream_find_locked(handle, &stream);
	if (!rc) {
		struct sim_ctx *ctx = stream->ctx;

		*ret_root = (CUcontext)(void *)ctx->root;
		*ret_green = sim_ctx_is_green(ctx) ? (CUcontext)(void *)ctx : NULL;
	}
	sim_unlock();
	return rc;
}
