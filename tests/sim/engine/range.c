/* SPDX-License-Identifier: MIT */
/*
 * Address ranges that memory is mapped into: what the calls do.
 *
 * A reservation is a range of the host's addresses without access, with a table that says for each
 * granule which mapping stands there. A mapping is one of the file that the memory is in, over a
 * part of the range. Nothing waits for work here but for what copies or fills at that very moment;
 * what is submitted and has not run is the program's business, and the oracle's (mapped.c).
 */
#include "tests/sim/engine/vmm.h"

#include <stdlib.h>
#include <sys/mman.h>

enum {
	HOST_PAGE = 4096,
};

static void *
at(uint64_t addr)
{
	return (void *)(uintptr_t)addr;
}

/* --------------------------------------------------------- reservations --- */
/* At an address of its own that nothing else is at; 0: none. */
static uint64_t
place_find(uint64_t n_bytes, uint64_t alignment, uint64_t hint)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	uint64_t n_map = n_bytes + alignment, first, base;
	void *p;

	if (hint && hint % alignment == 0) {
		p = mmap(at(hint), n_bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
		if (p == at(hint))
			return hint;
		if (p != MAP_FAILED) /* a kernel that takes it for a hint */
			munmap(p, n_bytes);
	}
	p = n_map < n_bytes ? MAP_FAILED : mmap(NULL, n_map, PROT_NONE, flags, -1, 0);
	if (p == MAP_FAILED)
		return 0;
	first = (uint64_t)(uintptr_t)p;
	base = (first + alignment - 1) & ~(alignment - 1);
	if (base > first)
		munmap(at(first), base - first);
	munmap(at(base + n_bytes), first + n_map - (base + n_bytes));
	return base;
}

int
sim_range_reserve(uint64_t n_bytes, uint64_t alignment, uint64_t hint, CUdeviceptr *ret_ptr)
{
	struct sim_range *range;
	uint64_t base;

	if (!n_bytes || n_bytes % HOST_PAGE || hint % HOST_PAGE || (alignment & (alignment - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	if (alignment < SIM_VMM_GRANULARITY)
		alignment = SIM_VMM_GRANULARITY;
	sim_lock();
	base = place_find(n_bytes, alignment, hint);
	if (base) {
		range = sim_xcalloc(1, sizeof(*range));
		range->mem.info = (struct sim_mem_info){ .base = base,
							 .n_bytes = n_bytes,
							 .kind = SIM_MEM_MAPPED };
		range->n_pages = n_bytes / SIM_VMM_GRANULARITY;
		range->page = sim_xcalloc(range->n_pages + 1, sizeof(struct sim_mapping *));
		range->next = sim_g.ranges;
		sim_g.ranges = range;
		*ret_ptr = base;
	}
	sim_unlock();
	return base ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
}

static void
range_close(struct sim_range **link)
{
	struct sim_range *range = *link;

	*link = range->next;
	munmap(at(range->mem.info.base), range->mem.info.n_bytes);
	free(range->page);
	free(range);
}

int
sim_range_free(CUdeviceptr ptr, uint64_t n_bytes)
{
	struct sim_range **link = &sim_g.ranges;
	bool empty = true;
	int rc = 0;

	sim_lock();
	while (*link && ((*link)->mem.info.base != ptr || (*link)->mem.info.n_bytes != n_bytes))
		link = &(*link)->next;
	for (uint64_t i = 0; *link && i < (*link)->n_pages; i++)
		empty &= !(*link)->page[i];
	if (!*link || !empty)
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE, "0x%llx, %llu bytes: %s",
				       (unsigned long long)ptr, (unsigned long long)n_bytes,
				       *link ? "something is mapped there" : "not reserved");
	else
		range_close(link);
	sim_unlock();
	return rc;
}

/* ------------------------------------------------------------- mappings --- */
static int
refuse(CUdeviceptr ptr, uint64_t n_bytes, const char *why)
{
	return sim_misuse_locked(CUDA_ERROR_INVALID_VALUE, "0x%llx, %llu bytes: %s",
				 (unsigned long long)ptr, (unsigned long long)n_bytes, why);
}

/* The reservation that holds all of it, in whole granules. */
static struct sim_range *
range_around(CUdeviceptr ptr, uint64_t n_bytes)
{
	struct sim_range *range = sim_range_find_locked(ptr);
	uint64_t from = range ? ptr - range->mem.info.base : 0;

	if (!range || !n_bytes || ptr % SIM_VMM_GRANULARITY || n_bytes % SIM_VMM_GRANULARITY ||
	    n_bytes > range->mem.info.n_bytes - from)
		return NULL;
	return range;
}

/* The same if it is made of whole mappings. */
static struct sim_range *
whole_mappings(CUdeviceptr ptr, uint64_t n_bytes)
{
	struct sim_range *range = range_around(ptr, n_bytes);
	uint64_t addr = ptr;

	while (range && addr < ptr + n_bytes) {
		const struct sim_mapping *mapping = sim_mapping_in(range, addr);

		if (!mapping || mapping->base != addr)
			return NULL;
		addr += mapping->n_bytes;
	}
	return range && addr == ptr + n_bytes ? range : NULL;
}

/* The same once nothing copies or fills at that moment; NULL: says why. */
static struct sim_range *
quiet_mappings(CUdeviceptr ptr, uint64_t n_bytes)
{
	struct sim_range *range = whole_mappings(ptr, n_bytes);

	while (range && range->mem.pins) {
		pthread_cond_wait(&sim_g.done, &sim_g.lock);
		range = whole_mappings(ptr, n_bytes); /* it may have gone meanwhile */
	}
	if (!range)
		refuse(ptr, n_bytes, "not whole mappings");
	return range;
}

static bool
is_vacant(const struct sim_range *range, CUdeviceptr ptr, uint64_t n_bytes)
{
	for (uint64_t addr = ptr; addr < ptr + n_bytes; addr += SIM_VMM_GRANULARITY)
		if (sim_mapping_in(range, addr))
			return false;
	return true;
}

static void
pages_set(struct sim_range *range, const struct sim_mapping *of, struct sim_mapping *mapping)
{
	uint64_t first = (of->base - range->mem.info.base) / SIM_VMM_GRANULARITY;

	for (uint64_t i = 0; i < of->n_bytes / SIM_VMM_GRANULARITY; i++)
		range->page[first + i] = mapping;
}

int
sim_range_map(CUdeviceptr ptr, uint64_t n_bytes, uint64_t offset, sim_phys_handle handle)
{
	struct sim_mapping *mapping;
	struct sim_range *range;
	struct sim_phys *phys;
	int rc;

	sim_lock();
	rc = sim_capture_unsafe_locked();
	if (rc)
		goto out;
	range = range_around(ptr, n_bytes);
	phys = sim_phys_find_locked(handle);
	if (!range || !phys || offset || n_bytes > phys->info.n_bytes ||
	    !is_vacant(range, ptr, n_bytes)) {
		rc = refuse(ptr, n_bytes,
			    !range                         ? "not reserved, or not whole granules"
			    : !phys                        ? "no such handle"
			    : offset                       ? "the offset must be 0"
			    : n_bytes > phys->info.n_bytes ? "more than the memory has"
							   : "something is mapped there");
		goto out;
	}
	/* no access to begin with; granting it must not fail */
	if (mmap(at(ptr), n_bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, phys->fd,
		 (off_t)phys->offset) == MAP_FAILED) {
		rc = CUDA_ERROR_OUT_OF_MEMORY;
		goto out;
	}
	mapping = sim_xcalloc(1, sizeof(*mapping));
	*mapping = (struct sim_mapping){
		.phys = phys, .base = ptr, .n_bytes = n_bytes, .id = ++sim_g.next_mem
	};
	phys->n_maps++;
	pages_set(range, mapping, mapping);
	sim_oracle_forget_locked(ptr, n_bytes); /* what was mapped there before */
out:
	sim_unlock();
	return rc;
}

/* The addresses are reserved still. */
static void
mapping_end(struct sim_range *range, struct sim_mapping *mapping)
{
	if (mmap(at(mapping->base), mapping->n_bytes, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		sim_die("cannot unmap memory (mmap)");
	pages_set(range, mapping, NULL);
	mapping->phys->n_maps--;
	sim_phys_settle_locked(mapping->phys);
	free(mapping);
}

int
sim_range_unmap(CUdeviceptr ptr, uint64_t n_bytes)
{
	struct sim_range *range;
	int rc;

	sim_lock();
	rc = sim_capture_unsafe_locked();
	if (rc)
		goto out;
	range = quiet_mappings(ptr, n_bytes);
	if (!range) {
		rc = CUDA_ERROR_INVALID_VALUE;
		goto out;
	}
	sim_oracle_mapping_locked("cuMemUnmap", ptr, n_bytes);
	for (uint64_t addr = ptr; addr < ptr + n_bytes;) {
		struct sim_mapping *mapping = sim_mapping_in(range, addr);

		addr += mapping->n_bytes;
		mapping_end(range, mapping);
	}
out:
	sim_unlock();
	return rc;
}

/* --------------------------------------------------------------- access --- */
/* The bits of one access with the device's set or cleared. */
static unsigned
bits(unsigned old, int device, bool set)
{
	return set ? old | 1U << device : old & ~(1U << device);
}

static int
mapping_grant(struct sim_mapping *mapping, int device, unsigned flags)
{
	unsigned reads = bits(mapping->reads, device, flags & 1),
		 writes = bits(mapping->writes, device, flags & 2);

	if ((mapping->reads & ~reads) | (mapping->writes & ~writes))
		sim_oracle_mapping_locked("cuMemSetAccess", mapping->base, mapping->n_bytes);
	/* writable for the host where anybody reads: whether a device may write is asked before */
	if (mprotect(at(mapping->base), mapping->n_bytes,
		     reads ? PROT_READ | PROT_WRITE : PROT_NONE))
		return CUDA_ERROR_OUT_OF_MEMORY;
	mapping->reads = reads;
	mapping->writes = writes;
	return 0;
}

int
sim_range_set_access(CUdeviceptr ptr, uint64_t n_bytes, int device, unsigned flags)
{
	struct sim_range *range;
	int rc;

	if (device < 0 || device >= sim_device_count())
		return CUDA_ERROR_INVALID_DEVICE;
	if ((flags & ~3U) || flags == 2)
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	rc = sim_capture_unsafe_locked();
	if (rc)
		goto out;
	range = quiet_mappings(ptr, n_bytes);
	if (!range) {
		rc = CUDA_ERROR_INVALID_VALUE;
		goto out;
	}
	for (uint64_t addr = ptr; !rc && addr < ptr + n_bytes;) {
		struct sim_mapping *mapping = sim_mapping_in(range, addr);

		addr += mapping->n_bytes;
		rc = mapping_grant(mapping, device, flags);
	}
out:
	sim_unlock();
	return rc;
}

int
sim_range_get_access(CUdeviceptr ptr, int device, unsigned *ret_flags)
{
	const struct sim_mapping *mapping;

	if (device < 0 || device >= sim_device_count())
		return CUDA_ERROR_INVALID_DEVICE;
	sim_lock();
	mapping = sim_mapping_find_locked(ptr);
	if (mapping)
		*ret_flags = (mapping->reads >> device & 1) | (mapping->writes >> device & 1) << 1;
	sim_unlock();
	return mapping ? 0 : CUDA_ERROR_INVALID_VALUE;
}

void
sim_ranges_close_locked(void)
{
	while (sim_g.ranges) {
		struct sim_range *range = sim_g.ranges;

		for (uint64_t i = 0; i < range->n_pages; i++)
			if (range->page[i])
				mapping_end(range, range->page[i]);
		range_close(&sim_g.ranges);
	}
}
