/* SPDX-License-Identifier: MIT */
/*
 * Contexts, and the calling thread's stack of them.
 *
 * A stack entry keeps the handle and the id of the context it meant. Handle values come back, ids
 * do not, so an entry whose id no longer fits its handle is known to be dead. A dying context first
 * refuses new work (it is a zombie), then drains, then takes its memory, streams and events along;
 * the program's stale stream and event handles stay recognisable until it destroys them.
 */
#include "tests/sim/engine/internal.h"

#include <stdlib.h>
#include <string.h>

enum {
	STACK_MAX = 64,
};

struct entry {
	CUcontext handle;
	uint64_t id;
};

static __thread struct {
	struct entry at[STACK_MAX];
	unsigned n;
	uint64_t generation;
} stack;

/* ------------------------------------------------------------- resolve --- */
static void
stack_refresh(void)
{
	if (stack.generation == sim_g.generation)
		return;
	stack.n = 0;
	stack.generation = sim_g.generation;
}

static struct sim_ctx *
ctx_find(CUcontext handle)
{
	struct sim_ctx *ctx = sim_slab_find(&sim_g.ctxs, handle);

	return ctx && ctx->handle.life == SIM_LIVE ? ctx : NULL;
}

int
sim_ctx_current_locked(struct sim_ctx **ret_ctx)
{
	struct sim_ctx *ctx;

	stack_refresh();
	if (!sim_g.on)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!stack.n || !stack.at[stack.n - 1].handle)
		return CUDA_ERROR_INVALID_CONTEXT;
	ctx = ctx_find(stack.at[stack.n - 1].handle);
	if (!ctx || ctx->id != stack.at[stack.n - 1].id)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret_ctx = ctx;
	return 0;
}

int
sim_ctx_usable_locked(struct sim_ctx **ret_ctx)
{
	int rc = sim_ctx_current_locked(ret_ctx);

	return rc ? rc : (*ret_ctx)->root->sticky;
}

int
sim_ctx_error(void)
{
	struct sim_ctx *ctx;
	int rc;

	sim_lock();
	rc = sim_ctx_usable_locked(&ctx);
	sim_unlock();
	return rc;
}

int
sim_ctx_resolve_locked(CUcontext handle, struct sim_ctx **ret_ctx)
{
	if (!handle)
		return sim_ctx_current_locked(ret_ctx);
	if (!ctx_find(handle)) {
		sim_misuse_locked(CUDA_ERROR_INVALID_CONTEXT, "%p is no context", (void *)handle);
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	*ret_ctx = ctx_find(handle);
	return 0;
}

/* --------------------------------------------------------- life, death --- */
int
sim_ctx_init_locked(struct sim_ctx *ctx, int device, unsigned flags)
{
	int rc = sim_worker_start_locked(device);

	if (rc)
		return rc;
	ctx->id = ++sim_g.next_ctx;
	ctx->root = ctx;
	ctx->device = device;
	ctx->flags = flags;
	ctx->legacy = sim_stream_new_locked(ctx, 0, 0);
	if (!ctx->legacy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ctx->legacy->is_legacy = true;
	ctx->legacy->blocking = false;
	return 0;
}

void
sim_ctx_targets_locked(struct sim_ctx *ctx, uint64_t but_thread, struct sim_ops *ops,
		       struct sim_vc *vc)
{
	for (struct sim_stream *s = ctx->streams; s; s = s->next) {
		if (but_thread && s->thread && s->thread != but_thread)
			continue;
		sim_ops_add(ops, s->last);
		sim_vc_join(vc, &s->vc);
	}
	for (int blocking = 0; blocking < 2; blocking++) {
		for (unsigned i = 0; i < ctx->orphans[blocking].n; i++)
			sim_ops_add(ops, ctx->orphans[blocking].at[i]);
		sim_vc_join(vc, &ctx->orphan_vc[blocking]);
	}
	for (struct sim_ctx *green = ctx->greens; green; green = green->next_green)
		sim_ctx_targets_locked(green, but_thread, ops, vc);
}

void
sim_ctx_drain_locked(struct sim_ctx *ctx)
{
	struct sim_ops ops = { 0 };
	struct sim_vc vc = { 0 };

	sim_ctx_targets_locked(ctx, 0, &ops, &vc);
	sim_host_wait_locked(&ops, &vc);
}

/* Its marks, gates, and nodes of graphs launched elsewhere:
 * operations that are in none of its streams. */
static void
wait_strays(struct sim_ctx *ctx)
{
	struct sim_ops ops = { 0 };

	for (struct sim_op *op = sim_g.first; op; op = op->next)
		if (op->ctx == ctx)
			sim_ops_add(&ops, op);
	sim_ops_wait_locked(&ops);
	sim_ops_clear_locked(&ops);
}

void
sim_ctx_kill_locked(struct sim_ctx *ctx)
{
	bool primary = ctx->primary;

	/* From here on no thread finds it, so nothing is submitted while we drain. */
	ctx->handle.life = SIM_ZOMBIE;
	while (ctx->greens)
		sim_green_kill_locked(ctx->greens);
	for (struct sim_stream *s = ctx->streams; s; s = s->next)
		if (s->capture)
			sim_capture_leave_locked(s);
	sim_ctx_drain_locked(ctx);
	wait_strays(ctx);
	while (ctx->events)
		sim_event_orphan_locked(ctx->events);
	while (ctx->streams)
		sim_stream_drop_locked(ctx->streams);
	sim_mem_kill_ctx_locked(ctx);
	sim_op_unref_locked(ctx->gate);
	sim_vc_free(&ctx->gate_vc);
	free(ctx->peers);
	ctx->peers = NULL;
	ctx->n_peers = 0;
	for (int i = 0; i < 2; i++) {
		sim_ops_clear_locked(&ctx->orphans[i]);
		sim_vc_free(&ctx->orphan_vc[i]);
	}
	if (primary) {
		memset(ctx, 0, sizeof(*ctx));
		pthread_cond_broadcast(&sim_g.done);
		return;
	}
	sim_slab_put(&sim_g.ctxs, ctx);
}

/* ------------------------------------------------------------- primary --- */
static bool
device_ok(int device)
{
	return sim_g.on && device >= 0 && device < sim_g.config.n_devices;
}

int
sim_primary_retain_locked(int device, struct sim_ctx **ret_ctx)
{
	struct sim_ctx *ctx;
	int rc = 0;

	if (!device_ok(device))
		return CUDA_ERROR_INVALID_DEVICE;
	ctx = sim_g.device[device].primary;
	/* Another thread is taking the last life down: wait for the end of it. */
	while (ctx->handle.life == SIM_ZOMBIE)
		pthread_cond_wait(&sim_g.done, &sim_g.lock);
	if (ctx->handle.life == SIM_DEAD) {
		rc = sim_ctx_init_locked(ctx, device, sim_g.device[device].primary_flags);
		ctx->primary = true;
		if (!rc)
			ctx->handle.life = SIM_LIVE;
	}
	if (rc)
		return rc;
	ctx->retains++;
	*ret_ctx = ctx;
	return 0;
}

int
sim_primary_retain(int device, CUcontext *ret_ctx)
{
	struct sim_ctx *ctx;
	int rc;

	sim_lock();
	rc = sim_primary_retain_locked(device, &ctx);
	if (!rc)
		*ret_ctx = (CUcontext)(void *)ctx;
	sim_unlock();
	return rc;
}

/* Of a call that ends the context, which is done whatever it answers. */
static int
end_answer_locked(const struct sim_ctx *ctx)
{
	return sim_g.config.ends_tell ? ctx->sticky : 0;
}

static int
primary_down_locked(int device, bool all)
{
	struct sim_ctx *ctx;
	int rc;

	if (!device_ok(device))
		return CUDA_ERROR_INVALID_DEVICE;
	ctx = sim_g.device[device].primary;
	if (ctx->handle.life != SIM_LIVE)
		return all ? 0 : CUDA_ERROR_INVALID_CONTEXT;
	rc = end_answer_locked(ctx);
	if (all || !--ctx->retains)
		sim_ctx_kill_locked(ctx);
	return rc;
}

int
sim_primary_release_locked(int device)
{
	return primary_down_locked(device, false);
}

int
sim_primary_release(int device)
{
	int rc;

	sim_lock();
	rc = primary_down_locked(device, false);
	sim_unlock();
	return rc;
}

int
sim_primary_reset(int device)
{
	int rc;

	sim_lock();
	rc = primary_down_locked(device, true);
	sim_unlock();
	return rc;
}

int
sim_primary_set_flags(int device, unsigned flags)
{
	int rc = CUDA_ERROR_INVALID_DEVICE;

	sim_lock();
	if (device_ok(device)) {
		sim_g.device[device].primary_flags = flags;
		sim_g.device[device].primary->flags = flags;
		rc = 0;
	}
	sim_unlock();
	return rc;
}

int
sim_primary_get_state(int device, unsigned *ret_flags, int *ret_active)
{
	int rc = CUDA_ERROR_INVALID_DEVICE;

	sim_lock();
	if (device_ok(device)) {
		*ret_flags = sim_g.device[device].primary_flags;
		*ret_active = sim_g.device[device].primary->handle.life == SIM_LIVE;
		rc = 0;
	}
	sim_unlock();
	return rc;
}

/* ------------------------------------------------------------- created --- */
static int
stack_push(struct sim_ctx *ctx)
{
	stack_refresh();
	if (stack.n == STACK_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack.at[stack.n++] = (struct entry){ (CUcontext)(void *)ctx, ctx->id };
	return 0;
}

int
sim_ctx_create(int device, unsigned flags, CUcontext *ret_ctx)
{
	struct sim_ctx *ctx;
	int rc = CUDA_ERROR_INVALID_DEVICE;

	sim_lock();
	if (!device_ok(device))
		goto out;
	ctx = sim_slab_get(&sim_g.ctxs);
	rc = ctx ? sim_ctx_init_locked(ctx, device, flags) : CUDA_ERROR_OUT_OF_MEMORY;
	if (!rc)
		rc = stack_push(ctx);
	if (!rc)
		*ret_ctx = (CUcontext)(void *)ctx;
	else if (ctx)
		sim_ctx_kill_locked(ctx);
out:
	sim_unlock();
	return rc;
}

int
sim_ctx_destroy(CUcontext handle)
{
	struct sim_ctx *ctx;
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	if (!handle)
		goto out;
	rc = sim_ctx_resolve_locked(handle, &ctx);
	if (!rc && (ctx->primary || sim_ctx_is_green(ctx)))
		rc = CUDA_ERROR_INVALID_CONTEXT;
	if (rc)
		goto out;
	stack_refresh();
	if (stack.n && stack.at[stack.n - 1].id == ctx->id)
		stack.n--;
	rc = end_answer_locked(ctx);
	sim_ctx_kill_locked(ctx);
out:
	sim_unlock();
	return rc;
}

/* --------------------------------------------------------------- stack --- */
int
sim_ctx_set_current(CUcontext handle)
{
	struct sim_ctx *ctx;
	int rc = 0;

	sim_lock();
	stack_refresh();
	if (handle)
		rc = sim_ctx_resolve_locked(handle, &ctx);
	if (rc)
		goto out;
	if (stack.n)
		stack.n--;
	if (handle)
		rc = stack_push(ctx);
out:
	sim_unlock();
	return rc;
}

int
sim_ctx_get_current(CUcontext *ret_ctx)
{
	/* without the lock, as cheap as the real one: only this thread changes its stack */
	uint64_t generation = __atomic_load_n(&sim_g.generation, __ATOMIC_ACQUIRE);

	*ret_ctx = stack.generation == generation && stack.n ? stack.at[stack.n - 1].handle : NULL;
	return 0;
}

int
sim_ctx_push(CUcontext handle)
{
	struct sim_ctx *ctx;
	int rc = CUDA_ERROR_INVALID_CONTEXT;

	sim_lock();
	if (handle)
		rc = sim_ctx_resolve_locked(handle, &ctx);
	if (!rc)
		rc = stack_push(ctx);
	sim_unlock();
	return rc;
}

int
sim_ctx_pop(CUcontext *ret_ctx)
{
	int rc = CUDA_ERROR_INVALID_CONTEXT;

	sim_lock();
	stack_refresh();
	if (stack.n) {
		stack.n--;
		if (ret_ctx)
			*ret_ctx = stack.at[stack.n].handle;
		rc = 0;
	}
	sim_unlock();
	return rc;
}

/* ------------------------------------------------------------- queries --- */
int
sim_ctx_get_device(int *ret_device)
{
	struct sim_ctx *ctx;
	int rc;

	sim_lock();
	rc = sim_ctx_current_locked(&ctx);
	if (!rc)
		*ret_device = ctx->device;
	sim_unlock();
	return rc;
}

int
sim_ctx_get_flags(unsigned *ret_flags)
{
	struct sim_ctx *ctx;
	int rc;

	sim_lock();
	rc = sim_ctx_current_locked(&ctx);
	if (!rc)
		*ret_flags = ctx->flags;
	sim_unlock();
	return rc;
}

int
sim_ctx_get_id(CUcontext handle, unsigned long long *ret_id)
{
	struct sim_ctx *ctx;
	int rc;

	sim_lock();
	rc = sim_ctx_resolve_locked(handle, &ctx);
	if (!rc)
		*ret_id = ctx->id;
	sim_unlock();
	return rc;
}

int
sim_ctx_sync(void)
{
	struct sim_ctx *ctx;
	uint64_t id;
	int rc;

	sim_lock();
	rc = sim_ctx_current_locked(&ctx);
	if (!rc)
		rc = sim_capture_ctx_locked(ctx);
	if (rc)
		goto out;
	id = ctx->id;
	sim_ctx_drain_locked(ctx);
	if (ctx->id == id)
		sim_mem_arrive_locked(ctx, 0);
	sim_pools_synchronised_locked();
	/* It may have died while we waited; its slot is still readable. */
	rc = ctx->id == id ? ctx->root->sticky : CUDA_ERROR_CONTEXT_IS_DESTROYED;
out:
	sim_unlock();
	return rc;
}
