/* SPDX-License-Identifier: MIT */
/*
 * Mapped memory, as the rest of the engine sees it.
 *
 * To everything that asks "is this memory, and may it be touched" a reservation is one piece of
 * memory, of which only what is mapped is there: work may go across mappings that follow each
 * other.
 *
 * For the race oracle a touch of mapped memory is two: of the bytes, under the address by which the
 * oracle knows them, whichever mapping it went through; and of the mapping, as a read of its
 * addresses. Unmapping, and taking access away, are writes of those addresses by the host. So two
 * mappings of the same memory are the same bytes, and each may go when those have finished that
 * used it, whatever goes on through others.
 *
 * A write through one mapping is seen through another by work that starts when the write has ended,
 * and not by a kernel that was on the device before. A programmatic launch, which may be, therefore
 * reads mapped memory as it was when it could have started (sim_range_snapshot_locked).
 */
#include "tests/sim/engine/vmm.h"

#include <stdlib.h>

/* -------------------------------------------------------------- look-up --- */
struct sim_range *
sim_range_find_locked(uint64_t addr)
{
	struct sim_range *range = sim_g.ranges;

	while (range && addr - range->mem.info.base >= range->mem.info.n_bytes)
		range = range->next;
	return range;
}

struct sim_mapping *
sim_mapping_in(const struct sim_range *range, uint64_t addr)
{
	uint64_t page = (addr - range->mem.info.base) / SIM_VMM_GRANULARITY;

	return page < range->n_pages ? range->page[page] : NULL;
}

struct sim_mapping *
sim_mapping_find_locked(uint64_t addr)
{
	const struct sim_range *range = sim_range_find_locked(addr);

	return range ? sim_mapping_in(range, addr) : NULL;
}

struct sim_mem *
sim_range_mem_locked(uint64_t addr)
{
	struct sim_range *range = sim_range_find_locked(addr);

	return range && sim_mapping_in(range, addr) ? &range->mem : NULL;
}

bool
sim_range_holds_addr_locked(uint64_t addr)
{
	return sim_range_find_locked(addr) != NULL;
}

static const struct sim_range *
range_of(const struct sim_mem *mem)
{
	return (const struct sim_range *)(const void *)mem;
}

bool
sim_range_covers_locked(const struct sim_mem *mem, uint64_t addr, uint64_t n_bytes)
{
	for (uint64_t end = addr + n_bytes; addr < end;) {
		const struct sim_mapping *mapping = sim_mapping_in(range_of(mem), addr);

		if (!mapping || !mapping->reads)
			return false;
		addr = mapping->base + mapping->n_bytes;
	}
	return true;
}

bool
sim_range_reaches_locked(const struct sim_mem *mem, const struct sim_touch *touch, int device,
			 bool may_stage)
{
	uint64_t end = touch->addr + touch->n_bytes;

	for (uint64_t addr = touch->addr; addr < end;) {
		const struct sim_mapping *mapping = sim_mapping_in(range_of(mem), addr);
		unsigned devices = 1U << device;

		if (mapping && may_stage)
			devices |= 1U << mapping->phys->info.device;
		if (!mapping ||
		    !((touch->access == SIM_READ ? mapping->reads : mapping->writes) & devices))
			return false;
		addr = mapping->base + mapping->n_bytes;
	}
	return true;
}

bool
sim_range_original_locked(uint64_t addr, uint64_t n_bytes, uint64_t *ret_addr, uint64_t *ret_n)
{
	const struct sim_range *range = sim_g.ranges ? sim_range_find_locked(addr) : NULL;
	const struct sim_mapping *mapping = range ? sim_mapping_in(range, addr) : NULL;
	uint64_t n = n_bytes;

	if (mapping)
		n = mapping->base + mapping->n_bytes - addr;
	else if (range)
		n = SIM_VMM_GRANULARITY - (addr - range->mem.info.base) % SIM_VMM_GRANULARITY;
	*ret_addr = mapping ? mapping->phys->at + (addr - mapping->base) : addr;
	*ret_n = n < n_bytes ? n : n_bytes;
	return mapping != NULL;
}

void
sim_range_describe_locked(const struct sim_mem *mem, uint64_t addr, struct sim_mem_info *info)
{
	const struct sim_mapping *mapping = sim_mapping_in(range_of(mem), addr);

	*info = mem->info;
	info->base = mapping->base;
	info->n_bytes = mapping->n_bytes;
	info->device = mapping->phys->info.device;
	info->id = mapping->id;
}

int
sim_mapping_lookup(CUdeviceptr ptr, struct sim_mapping_info *ret_info)
{
	const struct sim_range *range;
	const struct sim_mapping *mapping;

	sim_lock();
	range = sim_range_find_locked(ptr);
	mapping = range ? sim_mapping_in(range, ptr) : NULL;
	if (mapping)
		*ret_info =
			(struct sim_mapping_info){ range->mem.info.base, range->mem.info.n_bytes,
						   mapping->phys->info.handle_types,
						   mapping->phys->info.rdma, mapping->phys->id };
	sim_unlock();
	return mapping ? 0 : CUDA_ERROR_INVALID_VALUE;
}

int
sim_phys_retain(uint64_t addr, sim_phys_handle *ret_handle)
{
	struct sim_mapping *mapping;
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	mapping = sim_mapping_find_locked(addr);
	if (mapping) {
		mapping->phys->n_refs++;
		*ret_handle = (uintptr_t)mapping->phys;
		rc = 0;
	} else {
		sim_misuse_locked(rc, "nothing is mapped at 0x%llx", (unsigned long long)addr);
	}
	sim_unlock();
	return rc;
}

/* ------------------------------------------------------ programmatic launches --- */
/* The bytes are copied, since others may be writing them. */
__attribute__((no_sanitize("thread"))) static void
bytes_read(volatile unsigned char *to, const volatile unsigned char *from, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = from[i];
}

void
sim_range_snapshot_locked(struct sim_op *op)
{
	struct sim_work *work = &op->work;
	const struct sim_mem *mem;
	uint64_t addr, n;

	if (work->staged || (work->kind != SIM_WORK_COPY && work->kind != SIM_WORK_CHECK))
		return;
	addr = work->kind == SIM_WORK_COPY ? work->from.addr : work->a[0];
	n = work->kind == SIM_WORK_COPY ? work->from.width : work->a[1] * 4;
	mem = n ? sim_mem_hold_locked(addr, n) : NULL;
	if (!mem || mem->info.kind != SIM_MEM_MAPPED)
		return;
	work->staged = malloc(n);
	if (!work->staged)
		sim_die("no memory for what a programmatic launch reads");
	bytes_read(work->staged, (const void *)(uintptr_t)addr, n);
}
