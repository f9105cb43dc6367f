/* SPDX-License-Identifier: MIT */
/*
 * Peer access: which memory of other devices a kernel may touch.
 *
 * A context keeps the ids of the contexts whose memory its kernels may use. Kernels alone are
 * judged, when they run: copies between devices need no access (unified addressing), host and
 * managed memory is everybody's. Memory of a pool is reached as cuMemPoolSetAccess says, and a
 * graph's as its pool said when the node was made. Mapped memory is reached by the devices that
 * have access, its own included, and by nobody else; a copy needs that of either device. Contexts
 * of one device reach each other's memory here.
 */
#include "tests/sim/engine/pool.h"

#include <stdlib.h>

enum { /* CUresult values */
       SIM_PEER_ACCESS_UNSUPPORTED = 217,
       SIM_PEER_ACCESS_ALREADY_ENABLED = 704,
       SIM_PEER_ACCESS_NOT_ENABLED = 705,
};

static bool
enabled(const struct sim_ctx *ctx, uint64_t id, unsigned *ret_at)
{
	for (unsigned i = 0; i < ctx->n_peers; i++) {
		if (ctx->peers[i] != id)
			continue;
		*ret_at = i;
		return true;
	}
	return false;
}

bool
sim_peer_reaches_locked(const struct sim_op *op, const struct sim_mem *mem,
			const struct sim_touch *touch)
{
	unsigned at;

	if (mem->info.kind == SIM_MEM_MAPPED)
		return sim_range_reaches_locked(mem, touch, op->device, !op->work.is_kernel);

	if (!op->work.is_kernel || mem->info.device == op->device)
		return true;
	switch (mem->info.kind) {
	case SIM_MEM_DEVICE:
	case SIM_MEM_PITCH:
		return enabled(op->ctx, mem->ctx->id, &at);
	case SIM_MEM_POOL:
		return sim_pool_reach_locked(mem) >> op->device & 1;
	case SIM_MEM_MANAGED:
	case SIM_MEM_HOST:
	case SIM_MEM_OPENED:
	case SIM_MEM_MAPPED:
		break;
	}
	return true;
}

/* The current context and the peer; they must be of different devices. */
static int
pair_locked(CUcontext handle, struct sim_ctx **ret_ctx, struct sim_ctx **ret_peer)
{
	int rc = sim_ctx_current_locked(ret_ctx);

	if (!rc && !handle)
		rc = CUDA_ERROR_INVALID_CONTEXT;
	if (!rc)
		rc = sim_ctx_resolve_locked(handle, ret_peer);
	if (rc)
		return rc;
	*ret_ctx = (*ret_ctx)->root;
	*ret_peer = (*ret_peer)->root;
	return 0;
}

int
sim_ctx_enable_peer(CUcontext handle)
{
	struct sim_ctx *ctx, *peer;
	unsigned at;
	int rc;

	sim_lock();
	rc = pair_locked(handle, &ctx, &peer);
	if (!rc && ctx == peer)
		rc = CUDA_ERROR_INVALID_CONTEXT;
	if (!rc && ctx->device == peer->device)
		rc = SIM_PEER_ACCESS_UNSUPPORTED;
	if (!rc && enabled(ctx, peer->id, &at))
		rc = SIM_PEER_ACCESS_ALREADY_ENABLED;
	if (rc)
		goto out;
	ctx->peers = sim_xrealloc(ctx->peers, ctx->n_peers + 1, sizeof(*ctx->peers));
	ctx->peers[ctx->n_peers++] = peer->id;
out:
	sim_unlock();
	return rc;
}

int
sim_ctx_disable_peer(CUcontext handle)
{
	struct sim_ctx *ctx, *peer;
	unsigned at;
	int rc;

	sim_lock();
	rc = pair_locked(handle, &ctx, &peer);
	if (!rc && !enabled(ctx, peer->id, &at))
		rc = SIM_PEER_ACCESS_NOT_ENABLED;
	if (!rc)
		ctx->peers[at] = ctx->peers[--ctx->n_peers];
	sim_unlock();
	return rc;
}
