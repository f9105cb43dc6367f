/* SPDX-License-Identifier: MIT */
/*
 * Memory of other processes.
 *
 * With config.ipc each device's address range is a file: a named one in a folder, which other
 * processes map a part of, or one without a name, for this process alone. Opened memory is a
 * mapping beside the ranges. Contents are shared; the race oracle sees this process's work only. An
 * opened alias of this process's own memory counts as that memory, byte for byte. Nobody looks
 * whether the memory still is what was exported: the program has to close it first.
 */
#include "tests/sim/engine/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { /* CUresult value */
       SIM_MAP_FAILED = 205,
       PAGE = 4096,
};

static bool
is_self(void)
{
	return sim_g.config.ipc && !strcmp(sim_g.config.ipc, "self");
}

static int
file_open(int pid, int device, int flags)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/simcuda-%d-%d", sim_g.config.ipc, pid, device);
	return open(path, flags | O_CLOEXEC, 0600);
}

int
sim_ipc_open_file(int pid, int device)
{
	return sim_g.config.ipc && !is_self() ? file_open(pid, device, O_RDWR) : -1;
}

int
sim_ipc_file(int device)
{
	if (!sim_g.config.ipc)
		return -1;
	if (is_self())
		return memfd_create("simcuda", MFD_CLOEXEC);
	return file_open((int)getpid(), device, O_RDWR | O_CREAT | O_TRUNC);
}

void
sim_ipc_describe_locked(const struct sim_mem *mem, struct sim_ipc *ret_ipc)
{
	const struct sim_space *space = &sim_g.device[mem->info.device].space;

	*ret_ipc = (struct sim_ipc){ (int)getpid(), mem->info.device, mem->info.base - space->map,
				     mem->info.n_bytes, mem->info.id };
}

int
sim_ipc_export(CUdeviceptr ptr, struct sim_ipc *ret_ipc)
{
	const struct sim_mem *mem;

	sim_lock();
	mem = sim_mem_find_locked(ptr);
	if (mem)
		sim_ipc_describe_locked(mem, ret_ipc);
	sim_unlock();
	return mem ? 0 : CUDA_ERROR_INVALID_VALUE;
}

static struct sim_mem *
find_opened(const struct sim_ipc *ipc)
{
	struct sim_mem *mem = sim_g.mems;

	while (mem && (mem->info.kind != SIM_MEM_OPENED || mem->pool ||
		       mem->opened.pid != ipc->pid || mem->opened.id != ipc->id))
		mem = mem->next;
	return mem;
}

/* Where the memory is in this process; 0: it is another's. */
static uint64_t
original_of(const struct sim_ipc *ipc)
{
	const struct sim_mem *mem = sim_g.mems;

	if (ipc->pid != (int)getpid())
		return 0;
	while (mem && mem->info.id != ipc->id)
		mem = mem->next;
	return mem ? mem->info.base : 0;
}

int
sim_ipc_map_locked(struct sim_ctx *ctx, const struct sim_ipc *ipc, struct sim_mem **ret_mem)
{
	uint64_t skew = ipc->offset % PAGE,
		 n_map = (skew + ipc->n_bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	int fd = !sim_g.config.ipc ? -1
		 : is_self()       ? sim_g.device[ipc->device].space.fd
				   : file_open(ipc->pid, ipc->device, O_RDWR);
	struct sim_mem *mem;
	void *p;

	if (!sim_g.config.ipc)
		return CUDA_ERROR_NOT_SUPPORTED;
	p = fd < 0 ? MAP_FAILED
		   : mmap(NULL, n_map, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			  (off_t)(ipc->offset - skew));
	if (!is_self() && fd >= 0)
		close(fd);
	if (p == MAP_FAILED)
		return SIM_MAP_FAILED;
	mem = sim_mem_opened_locked(ctx, (uint64_t)(uintptr_t)p + skew, ipc->n_bytes);
	mem->opened = *ipc;
	mem->original = original_of(ipc);
	*ret_mem = mem;
	return 0;
}

int
sim_ipc_open(const struct sim_ipc *ipc, CUdeviceptr *ret_ptr)
{
	struct sim_mem *mem;
	struct sim_ctx *ctx;
	int rc;

	sim_lock();
	rc = sim_ctx_usable_locked(&ctx);
	if (!rc && (ipc->pid == (int)getpid()) != is_self()) /* cuda.h: another process's */
		rc = CUDA_ERROR_INVALID_CONTEXT;
	if (rc)
		goto out;
	mem = find_opened(ipc);
	if (!mem)
		rc = sim_ipc_map_locked(ctx, ipc, &mem);
	if (rc)
		goto out;
	mem->opens++;
	*ret_ptr = mem->info.base;
out:
	sim_unlock();
	return rc;
}

int
sim_ipc_close(CUdeviceptr ptr)
{
	struct sim_mem *mem;
	int rc = 0;

	sim_lock();
	mem = sim_mem_find_locked(ptr);
	if (!mem || mem->info.kind != SIM_MEM_OPENED || mem->pool || mem->info.base != ptr ||
	    mem->freeing) {
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE, "not opened memory");
		goto out;
	}
	if (--mem->opens)
		goto out;
	mem->freeing = mem->waited = true;
	sim_ctx_drain_locked(mem->ctx);
	sim_oracle_forget_locked(mem->info.base, mem->n_taken);
	sim_mem_release_locked(mem);
out:
	sim_unlock();
	return rc;
}

uint64_t
sim_ipc_original_locked(uint64_t addr)
{
	const struct sim_mem *mem = sim_g.n_opened ? sim_mem_find_locked(addr) : NULL;

	return mem && mem->original ? mem->original + (addr - mem->info.base) : addr;
}
