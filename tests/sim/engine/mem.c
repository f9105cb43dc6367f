/* SPDX-License-Identifier: MIT */
/*
 * Memory: allocations, their records, and looking them up.
 *
 * Device-side kinds live in the device's space (space.c); page-locked host memory is mapped on its
 * own and kept in an array sorted by address. A record is `freeing` from the moment a free is
 * accepted, so a second free is refused even while the first one waits. Waiting happens before
 * anything is unmapped, and operations that run pin what they touch.
 */
#include "tests/sim/engine/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ------------------------------------------------------------ look-up --- */
/* First pinned record whose base is above addr. */
static size_t
pinned_above(uint64_t addr)
{
	size_t lo = 0, hi = sim_g.n_pinned;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (sim_g.pinned[mid]->info.base > addr)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* Beyond the requested size is outside, though the space holds more. */
static bool
holds(const struct sim_mem *mem, uint64_t addr, uint64_t n_bytes)
{
	uint64_t at = addr - mem->info.base;

	return at < mem->info.n_bytes && n_bytes <= mem->info.n_bytes - at;
}

/* Memory of a pool that work submitted before its free may still use. */
static struct sim_mem *
leaving_find(uint64_t addr, uint64_t n_bytes)
{
	struct sim_mem *mem = sim_g.leaving;

	while (mem && !holds(mem, addr, n_bytes))
		mem = mem->next_leaving;
	return mem;
}

struct sim_mem *
sim_mem_find_locked(uint64_t addr)
{
	struct sim_mem *mem = NULL;
	size_t i;

	for (int d = 0; !mem && d < sim_g.config.n_devices; d++)
		mem = sim_space_find(&sim_g.device[d].space, addr);
	if (!mem && sim_g.host_space.n_units)
		mem = sim_space_find(&sim_g.host_space, addr);
	if (!mem && sim_g.ranges)
		mem = sim_range_mem_locked(addr);
	i = mem ? 0 : pinned_above(addr);
	if (i)
		mem = sim_g.pinned[i - 1];
	return mem && !mem->gone && holds(mem, addr, 1) ? mem : leaving_find(addr, 1);
}

bool
sim_mem_is_device_range(uint64_t addr)
{
	for (int d = 0; d < sim_g.config.n_devices; d++) {
		const struct sim_space *space = &sim_g.device[d].space;

		if (addr >= space->base && addr < space->base + space->n_units * SIM_UNIT)
			return true;
	}
	return sim_range_holds_addr_locked(addr);
}

struct sim_mem *
sim_mem_hold_locked(uint64_t addr, uint64_t n_bytes)
{
	struct sim_mem *mem = sim_mem_find_locked(addr);

	if (mem && mem->info.kind == SIM_MEM_MAPPED)
		return holds(mem, addr, n_bytes) && sim_range_covers_locked(mem, addr, n_bytes)
			       ? mem
			       : NULL;
	return mem && holds(mem, addr, n_bytes) ? mem : leaving_find(addr, n_bytes);
}

int
sim_mem_lookup(CUdeviceptr ptr, struct sim_mem_info *ret_info)
{
	struct sim_mem *mem;

	sim_lock();
	mem = sim_mem_find_locked(ptr);
	if (mem && mem->info.kind == SIM_MEM_MAPPED)
		sim_range_describe_locked(mem, ptr, ret_info);
	else if (mem)
		*ret_info = mem->info;
	sim_unlock();
	return mem ? 0 : CUDA_ERROR_INVALID_VALUE;
}

int
sim_mem_set_sync_memops(CUdeviceptr ptr, unsigned value)
{
	struct sim_mem *mem;

	sim_lock();
	mem = sim_mem_find_locked(ptr);
	if (mem)
		mem->info.sync_memops = value;
	sim_unlock();
	return mem ? 0 : CUDA_ERROR_INVALID_VALUE;
}

int
sim_mem_set_host_flags(void *ptr, unsigned flags)
{
	struct sim_mem *mem;

	sim_lock();
	mem = sim_mem_find_locked((uint64_t)(uintptr_t)ptr);
	if (mem)
		mem->info.host_flags = flags;
	sim_unlock();
	return mem ? 0 : CUDA_ERROR_INVALID_VALUE;
}

/* ---------------------------------------------------------- take, give --- */
static void
pinned_insert(struct sim_mem *mem)
{
	size_t i;

	if (sim_g.n_pinned == sim_g.cap_pinned) {
		sim_g.cap_pinned = sim_g.cap_pinned * 2 + 16;
		sim_g.pinned =
			sim_xrealloc(sim_g.pinned, sim_g.cap_pinned, sizeof(struct sim_mem *));
	}
	i = pinned_above(mem->info.base);
	memmove(&sim_g.pinned[i + 1], &sim_g.pinned[i],
		(sim_g.n_pinned - i) * sizeof(struct sim_mem *));
	sim_g.pinned[i] = mem;
	sim_g.n_pinned++;
}

static int
pinned_take(struct sim_mem *mem)
{
	void *p;

	mem->n_taken = (mem->info.n_bytes + 4095) & ~(uint64_t)4095;
	if (mem->n_taken < mem->info.n_bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p = mmap(NULL, mem->n_taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mem->info.base = (uint64_t)(uintptr_t)p;
	pinned_insert(mem);
	return 0;
}

static void
pinned_give(struct sim_mem *mem)
{
	size_t i = pinned_above(mem->info.base), skew;

	sim_g.n_pinned--;
	memmove(&sim_g.pinned[i - 1], &sim_g.pinned[i],
		(sim_g.n_pinned + 1 - i) * sizeof(struct sim_mem *));
	skew = mem->info.base % 4096; /* opened memory may begin inside a page */
	munmap((void *)(uintptr_t)(mem->info.base - skew), mem->n_taken + skew);
}

void
sim_mem_enter_locked(struct sim_mem *mem)
{
	mem->info.id = ++sim_g.next_mem;
	mem->next = sim_g.mems;
	if (mem->next)
		mem->next->prev = mem;
	sim_g.mems = mem;
}

void
sim_mem_forget_locked(struct sim_mem *mem)
{
	if (mem->prev)
		mem->prev->next = mem->next;
	else
		sim_g.mems = mem->next;
	if (mem->next)
		mem->next->prev = mem->prev;
	free(mem);
}

static void
mem_enter(struct sim_mem *mem)
{
	sim_mem_enter_locked(mem);
	sim_oracle_forget_locked(mem->info.base, mem->n_taken);
}

int
sim_mem_new_locked(struct sim_ctx *ctx, size_t n_bytes, enum sim_mem_kind kind,
		   struct sim_mem **ret_mem)
{
	struct sim_mem *mem;
	int rc;

	if (!n_bytes)
		return CUDA_ERROR_INVALID_VALUE;
	ctx = ctx->root;
	mem = sim_xcalloc(1, sizeof(*mem));
	mem->info.n_bytes = n_bytes;
	mem->info.kind = kind;
	mem->info.ctx = (CUcontext)(void *)ctx;
	mem->info.device = ctx->device;
	mem->ctx = ctx;
	if (kind == SIM_MEM_HOST)
		rc = pinned_take(mem);
	else
		rc = sim_space_take_locked(&sim_g.device[ctx->device].space, mem);
	if (rc) {
		free(mem);
		return rc;
	}
	mem_enter(mem);
	*ret_mem = mem;
	return 0;
}

struct sim_mem *
sim_mem_opened_locked(struct sim_ctx *ctx, uint64_t addr, uint64_t n_bytes)
{
	struct sim_mem *mem = sim_xcalloc(1, sizeof(*mem));

	mem->ctx = ctx->root;
	mem->info = (struct sim_mem_info){ .base = addr,
					   .n_bytes = n_bytes,
					   .kind = SIM_MEM_OPENED,
					   .ctx = (CUcontext)(void *)ctx->root,
					   .device = ctx->device };
	mem->n_taken = n_bytes;
	pinned_insert(mem);
	mem_enter(mem);
	sim_g.n_opened++;
	return mem;
}

void
sim_mem_release_locked(struct sim_mem *mem)
{
	while (mem->pins)
		pthread_cond_wait(&sim_g.done, &sim_g.lock);
	if (mem->info.kind == SIM_MEM_OPENED)
		sim_g.n_opened--;
	if (mem->info.kind == SIM_MEM_HOST || mem->info.kind == SIM_MEM_OPENED)
		pinned_give(mem);
	else
		sim_space_give_locked(&sim_g.device[mem->info.device].space, mem);
	sim_mem_forget_locked(mem);
	pthread_cond_broadcast(&sim_g.done);
}

void
sim_mem_leave_locked(struct sim_mem *mem, uint64_t stream_id)
{
	mem->gone = true;
	mem->left_in = stream_id;
}

void
sim_mem_arrive_locked(const struct sim_ctx *ctx, uint64_t stream_id)
{
	struct sim_mem *mem = sim_g.mems, *next;

	for (; mem; mem = next) {
		next = mem->next;
		if (!mem->gone || mem->waited || mem->pins ||
		    (stream_id ? mem->left_in != stream_id : mem->ctx != ctx))
			continue;
		mem->waited = true;
		sim_mem_release_locked(mem); /* at once: nothing runs on it */
	}
}

void
sim_mem_kill_ctx_locked(struct sim_ctx *ctx)
{
	struct sim_mem *mem = sim_g.mems;

	while (mem) {
		struct sim_mem *next = mem->next;

		if (mem->ctx != ctx) {
			mem = next;
			continue;
		}
		if (mem->pins || mem->waited) {
			/* The list may change while we wait: begin again. */
			pthread_cond_wait(&sim_g.done, &sim_g.lock);
			mem = sim_g.mems;
			continue;
		}
		sim_oracle_forget_locked(mem->info.base, mem->n_taken);
		sim_mem_release_locked(mem);
		mem = next;
	}
}

/* -------------------------------------------------------- entry points --- */
static int
mem_alloc(size_t n_bytes, enum sim_mem_kind kind, CUdeviceptr *ret_ptr)
{
	struct sim_ctx *ctx;
	struct sim_mem *mem;
	int rc;

	sim_lock();
	rc = sim_ctx_usable_locked(&ctx);
	if (!rc)
		rc = sim_capture_unsafe_locked();
	if (!rc)
		rc = sim_mem_new_locked(ctx, n_bytes, kind, &mem);
	if (!rc)
		*ret_ptr = mem->info.base;
	sim_unlock();
	return rc;
}

int
sim_mem_alloc(size_t n_bytes, CUdeviceptr *ret_ptr)
{
	return mem_alloc(n_bytes, SIM_MEM_DEVICE, ret_ptr);
}

int
sim_mem_alloc_pitch(size_t width_bytes, size_t height, unsigned element_bytes, CUdeviceptr *ret_ptr,
		    size_t *ret_pitch)
{
	size_t pitch = (width_bytes + SIM_GRAIN - 1) & ~(size_t)(SIM_GRAIN - 1), n;
	int rc;

	if (!width_bytes || !height ||
	    (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
		return CUDA_ERROR_INVALID_VALUE;
	if (pitch < width_bytes || __builtin_mul_overflow(pitch, height, &n))
		return CUDA_ERROR_OUT_OF_MEMORY;
	rc = mem_alloc(n, SIM_MEM_PITCH, ret_ptr);
	if (!rc)
		*ret_pitch = pitch;
	return rc;
}

int
sim_mem_alloc_managed(size_t n_bytes, unsigned flags, CUdeviceptr *ret_ptr)
{
	if (flags != 1 && flags != 2)
		return CUDA_ERROR_INVALID_VALUE;
	return mem_alloc(n_bytes, SIM_MEM_MANAGED, ret_ptr);
}

int
sim_mem_host_alloc(size_t n_bytes, void **ret_ptr)
{
	CUdeviceptr ptr;
	int rc = mem_alloc(n_bytes, SIM_MEM_HOST, &ptr);

	if (!rc)
		*ret_ptr = (void *)(uintptr_t)ptr;
	return rc;
}

static bool
frees_at_once(const struct sim_mem *mem)
{
	return sim_g.config.free_at_once && mem->info.kind != SIM_MEM_HOST;
}

/* Without a wait, whatever may still use the memory has a race with the host. */
static void
await_users(const struct sim_mem *mem)
{
	if (frees_at_once(mem))
		sim_oracle_accessor_locked("cuMemFree", mem->info.base, mem->info.n_bytes, true);
	else
		sim_ctx_drain_locked(mem->ctx);
}

/* cuMemFreeHost takes it; what a pool has in host memory is freed like any memory of a pool. */
static bool
is_host(const struct sim_mem *mem)
{
	return mem->info.kind == SIM_MEM_HOST && !mem->pool;
}

static int
mem_free(uint64_t addr, bool host)
{
	struct sim_mem *mem;
	int rc;

	if (!addr)
		return host ? CUDA_ERROR_INVALID_VALUE : 0;
	sim_lock();
	mem = sim_mem_find_locked(addr);
	if (!mem || mem->info.base != addr || mem->freeing ||
	    (mem->info.kind == SIM_MEM_OPENED && !mem->pool) || mem->info.kind == SIM_MEM_MAPPED ||
	    is_host(mem) != host) {
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE, "free of 0x%llx: %s",
				       (unsigned long long)addr,
				       !mem                     ? "not allocated"
				       : mem->info.base != addr ? "not the start of an allocation"
				       : mem->freeing           ? "freed already"
								: "memory of another kind");
		goto out;
	}
	rc = mem->ctx ? mem->ctx->sticky : 0;
	if (!rc)
		rc = sim_capture_unsafe_locked();
	if (!rc && !mem->ctx) {
		rc = sim_pool_host_free_locked(mem);
		goto out;
	}
	if (rc)
		goto out;
	mem->freeing = mem->waited = true;
	await_users(mem);
	rc = mem->ctx->sticky;
	if (rc) { /* of work that it has waited for: nothing is freed */
		mem->freeing = mem->waited = false;
		pthread_cond_broadcast(&sim_g.done);
		goto out;
	}
	if (!frees_at_once(mem))
		sim_mem_arrive_locked(mem->ctx, 0);
	sim_oracle_forget_locked(mem->info.base, mem->n_taken);
	sim_mem_release_locked(mem);
out:
	sim_unlock();
	return rc;
}

int
sim_mem_free(CUdeviceptr ptr)
{
	return mem_free(ptr, false);
}

int
sim_mem_host_free(void *ptr)
{
	return mem_free((uint64_t)(uintptr_t)ptr, true);
}

int
sim_mem_get_info(size_t *ret_free, size_t *ret_total)
{
	struct sim_ctx *ctx;
	int rc;

	sim_lock();
	rc = sim_ctx_usable_locked(&ctx);
	if (!rc) {
		const struct sim_space *space = &sim_g.device[ctx->device].space;

		*ret_free = (space->cap_units - space->used) * SIM_UNIT;
		*ret_total = space->cap_units * SIM_UNIT;
	}
	sim_unlock();
	return rc;
}
