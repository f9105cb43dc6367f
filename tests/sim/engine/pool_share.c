/* SPDX-License-Identifier: MIT */
/*
 * Memory pools of other processes.
 *
 * A pool's descriptor is a file without a name that says whose pool it is; an imported pool holds
 * nothing but that, and its pointers are mappings of parts of the exporter's device, as those of
 * ipc.c are (config.ipc says whether there can be any). The free of one unmaps it and touches
 * nothing for the oracle: the memory is the exporter's.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/sim/engine/pool.h"

static const uint64_t magic = 0x6c6f6f706d6973; /* "simpool" */

int
sim_pool_export(CUmemoryPool handle, unsigned handle_type, int *ret_fd)
{
	struct sim_pool_share share = { .magic = magic };
	const struct sim_pool *pool;
	int fd = -1, rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	pool = sim_pool_find_locked(handle);
	if (!pool || handle_type != SIM_POOL_FD || pool->imported || !pool->props.handle_types) {
		sim_misuse_locked(rc, "not a pool that can be exported in that way");
		goto out;
	}
	share.pool = pool->id;
	share.ipc.pid = (int)getpid();
	share.ipc.device = pool->props.id;
	fd = memfd_create("simcuda pool", MFD_CLOEXEC);
	rc = fd >= 0 && write(fd, &share, sizeof(share)) == (ssize_t)sizeof(share)
		     ? 0
		     : CUDA_ERROR_OUT_OF_MEMORY;
	if (!rc)
		*ret_fd = fd;
	else if (fd >= 0)
		close(fd);
out:
	sim_unlock();
	return rc;
}

int
sim_pool_import(int fd, unsigned handle_type, CUmemoryPool *ret_pool)
{
	struct sim_pool_props props = { .type = SIM_POOL_PINNED, .location = SIM_LOCATION_DEVICE };
	struct sim_pool_share share = { 0 };
	struct sim_pool *pool;
	int rc;

	sim_lock();
	if (handle_type != SIM_POOL_FD ||
	    pread(fd, &share, sizeof(share), 0) != (ssize_t)sizeof(share) || share.magic != magic ||
	    share.ipc.device < 0 || share.ipc.device >= sim_g.config.n_devices) {
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE, "not the descriptor of a pool");
		goto out;
	}
	props.id = share.ipc.device;
	rc = sim_pool_new_locked(&props, &pool);
	if (rc)
		goto out;
	pool->imported = true;
	pool->exporter = share.ipc.pid;
	pool->exported = share.pool;
	*ret_pool = (CUmemoryPool)(void *)pool;
out:
	sim_unlock();
	return rc;
}

int
sim_pool_export_pointer(CUdeviceptr ptr, struct sim_pool_share *ret_share)
{
	struct sim_ipc ipc;
	const struct sim_mem *mem;
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	mem = sim_mem_find_locked(ptr);
	if (mem && mem->info.base == ptr && mem->pool && !mem->freeing &&
	    mem->pool->props.handle_types) {
		sim_ipc_describe_locked(mem, &ipc);
		*ret_share = (struct sim_pool_share){ magic, mem->pool->id, ipc };
		rc = 0;
	}
	if (rc)
		sim_misuse_locked(rc, "not the start of memory of a pool that can be exported");
	sim_unlock();
	return rc;
}

static int
pointer_map(struct sim_pool *pool, const struct sim_ipc *ipc, CUdeviceptr *ret_ptr)
{
	struct sim_ctx *ctx;
	struct sim_mem *mem;
	int rc = sim_ctx_usable_locked(&ctx);

	if (!rc)
		rc = sim_ipc_map_locked(ctx, ipc, &mem);
	if (rc)
		return rc;
	mem->ctx = NULL;
	mem->info.ctx = NULL;
	mem->info.pool = (CUmemoryPool)(void *)pool;
	mem->pool = pool;
	sim_pool_gains_locked(pool, mem);
	*ret_ptr = mem->info.base;
	return 0;
}

int
sim_pool_import_pointer(CUmemoryPool handle, const struct sim_pool_share *share,
			CUdeviceptr *ret_ptr)
{
	struct sim_pool *pool;
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	pool = sim_pool_find_locked(handle);
	if (pool && pool->imported && share->magic == magic && share->pool == pool->exported &&
	    share->ipc.pid == pool->exporter)
		rc = pointer_map(pool, &share->ipc, ret_ptr);
	else
		sim_misuse_locked(rc, "not memory of the pool that was imported");
	sim_unlock();
	return rc;
}
