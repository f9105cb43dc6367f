/* SPDX-License-Identifier: MIT */
/*
 * Address space and capacity of one device.
 *
 * A range several times the capacity is reserved without access. It is divided into units of 2 MiB,
 * and a table says for each unit what stands there: a large allocation (all its units), a chunk of
 * small ones, or nothing. Only units in use count against the capacity and are accessible; the
 * kernel commits their pages when they are first touched. Giving units back drops the pages and the
 * access, so a stale pointer faults. The search for free units goes round the range from where the
 * last one ended, and a chunk hands out its slots round and round as well, so that an address comes
 * back as late as possible: a program that uses freed memory is then found out instead of reading
 * what looks right.
 */
#include "tests/sim/engine/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	VA_FACTOR = 16, /* address range over capacity, if the system grants it */
	POISON = 0xdb,  /* what a freed small block is filled with */
};

int
sim_space_open(struct sim_space *space, uint64_t cap_bytes, int fd)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	uint64_t cap = cap_bytes / SIM_UNIT;

	for (uint64_t factor = VA_FACTOR; factor; factor /= 2) {
		uint64_t n_map = (cap * factor + 1) * SIM_UNIT;
		void *p = mmap(NULL, n_map, PROT_NONE, flags | MAP_NORESERVE, fd, 0);

		if (p == MAP_FAILED || (fd >= 0 && ftruncate(fd, (off_t)n_map)))
			continue;
		space->fd = fd;
		space->map = (uint64_t)(uintptr_t)p;
		space->n_map = n_map;
		space->base = (space->map + SIM_UNIT - 1) & ~(SIM_UNIT - 1);
		space->n_units = cap * factor;
		space->cap_units = cap;
		space->unit = sim_xcalloc(space->n_units, sizeof(*space->unit));
		return 0;
	}
	return -ENOMEM;
}

void
sim_space_close(struct sim_space *space)
{
	while (space->chunks) {
		struct sim_chunk *next = space->chunks->next;

		free(space->chunks);
		space->chunks = next;
	}
	if (space->n_map && space->fd >= 0)
		close(space->fd);
	if (space->n_map)
		munmap((void *)(uintptr_t)space->map, space->n_map);
	free(space->unit);
	*space = (struct sim_space){ 0 };
}

static uint64_t
unit_addr(const struct sim_space *space, uint64_t unit)
{
	return space->base + unit * SIM_UNIT;
}

static bool
unit_used(const struct sim_unit *unit)
{
	return unit->mem || unit->chunk || unit->pool || unit->phys;
}

/* First of n free units in [from, to), or -1. */
static int64_t
units_find(const struct sim_space *space, uint64_t from, uint64_t to, uint64_t n)
{
	uint64_t run = 0;

	for (uint64_t i = from; i < to; i++) {
		run = unit_used(&space->unit[i]) ? 0 : run + 1;
		if (run == n)
			return (int64_t)(i + 1 - n);
	}
	return -1;
}

static void
charge(struct sim_space *space, uint64_t n)
{
	space->used += n;
	if (space->used > space->peak)
		space->peak = space->used;
}

static int
units_take(struct sim_space *space, uint64_t n, uint64_t *ret_first)
{
	int64_t first;

	if (n > space->cap_units - space->used)
		return CUDA_ERROR_OUT_OF_MEMORY;
	first = units_find(space, space->cursor, space->n_units, n);
	if (first < 0)
		first = units_find(space, 0, space->n_units, n);
	if (first < 0 || mprotect((void *)(uintptr_t)unit_addr(space, (uint64_t)first),
				  n * SIM_UNIT, PROT_READ | PROT_WRITE))
		return CUDA_ERROR_OUT_OF_MEMORY;
	space->cursor = (uint64_t)first + n;
	charge(space, n);
	*ret_first = (uint64_t)first;
	return 0;
}

static void
units_give(struct sim_space *space, uint64_t first, uint64_t n)
{
	void *p = (void *)(uintptr_t)unit_addr(space, first);

	if (space->fd < 0)
		madvise(p, n * SIM_UNIT, MADV_DONTNEED);
	else if (madvise(p, n * SIM_UNIT, MADV_REMOVE))
		memset(p, 0, n * SIM_UNIT);
	if (mprotect(p, n * SIM_UNIT, PROT_NONE))
		sim_die("cannot take back memory (mprotect)");
	memset(&space->unit[first], 0, n * sizeof(space->unit[0]));
	space->used -= n;
}

/* First of n free slots from `from` on, or SIM_SLOTS. */
static unsigned
slots_find(const struct sim_chunk *chunk, unsigned from, unsigned n)
{
	unsigned run = 0;

	for (unsigned i = from; i < SIM_SLOTS; i++) {
		run = chunk->at[i] ? 0 : run + 1;
		if (run == n)
			return i + 1 - n;
	}
	return SIM_SLOTS;
}

static struct sim_chunk *
chunk_find(struct sim_space *space, unsigned n, unsigned *ret_slot)
{
	for (int round = 0; round < 2; round++) {
		for (struct sim_chunk *chunk = space->chunks; chunk; chunk = chunk->next) {
			unsigned slot;

			if (chunk->n_free < n)
				continue;
			slot = slots_find(chunk, round ? 0 : chunk->cursor, n);
			if (slot < SIM_SLOTS) {
				*ret_slot = slot;
				return chunk;
			}
		}
	}
	return NULL;
}

static struct sim_chunk *
chunk_new(struct sim_space *space)
{
	struct sim_chunk *chunk;
	uint64_t unit;

	if (units_take(space, 1, &unit))
		return NULL;
	chunk = sim_xcalloc(1, sizeof(*chunk));
	chunk->base = unit_addr(space, unit);
	chunk->n_free = SIM_SLOTS;
	chunk->next = space->chunks;
	space->chunks = chunk;
	space->unit[unit].chunk = chunk;
	return chunk;
}

static int
take_small(struct sim_space *space, struct sim_mem *mem)
{
	unsigned n = (unsigned)((mem->info.n_bytes + SIM_GRAIN - 1) / SIM_GRAIN), slot = 0;
	struct sim_chunk *chunk = chunk_find(space, n, &slot);

	if (!chunk)
		chunk = chunk_new(space);
	if (!chunk)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = 0; i < n; i++)
		chunk->at[slot + i] = mem;
	chunk->n_free -= n;
	chunk->cursor = slot + n;
	mem->info.base = chunk->base + slot * SIM_GRAIN;
	mem->n_taken = n * SIM_GRAIN;
	return 0;
}

int
sim_space_take_locked(struct sim_space *space, struct sim_mem *mem)
{
	uint64_t first, n;
	int rc;

	if (mem->info.n_bytes > space->cap_units * SIM_UNIT)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mem->large = mem->info.n_bytes > SIM_SMALL_MAX;
	if (!mem->large)
		return take_small(space, mem);
	n = (mem->info.n_bytes + SIM_UNIT - 1) / SIM_UNIT;
	rc = units_take(space, n, &first);
	if (rc)
		return rc;
	for (uint64_t i = 0; i < n; i++)
		space->unit[first + i].mem = mem;
	mem->info.base = unit_addr(space, first);
	mem->n_taken = n * SIM_UNIT;
	return 0;
}

static void
give_small(struct sim_space *space, struct sim_mem *mem)
{
	uint64_t unit = (mem->info.base - space->base) / SIM_UNIT;
	struct sim_chunk *chunk = space->unit[unit].chunk, **p = &space->chunks;
	unsigned n = (unsigned)(mem->n_taken / SIM_GRAIN);

	memset((void *)(uintptr_t)mem->info.base, POISON, mem->n_taken);
	memset(&chunk->at[(mem->info.base - chunk->base) / SIM_GRAIN], 0,
	       n * sizeof(struct sim_mem *));
	chunk->n_free += n;
	if (chunk->n_free < SIM_SLOTS)
		return;
	while (*p != chunk)
		p = &(*p)->next;
	*p = chunk->next;
	free(chunk);
	units_give(space, unit, 1);
}

void
sim_space_give_locked(struct sim_space *space, struct sim_mem *mem)
{
	if (mem->large)
		units_give(space, (mem->info.base - space->base) / SIM_UNIT,
			   mem->n_taken / SIM_UNIT);
	else
		give_small(space, mem);
}

/* ------------------------------------------------- units of pools and graphs --- */
static uint64_t
unit_of(const struct sim_space *space, uint64_t addr)
{
	return (addr - space->base) / SIM_UNIT;
}

int
sim_space_take_units_locked(struct sim_space *space, struct sim_pool *pool, uint64_t n,
			    uint64_t *ret_addr)
{
	uint64_t first;
	int rc = units_take(space, n, &first);

	if (rc)
		return rc;
	for (uint64_t i = 0; i < n; i++)
		space->unit[first + i].pool = pool;
	*ret_addr = unit_addr(space, first);
	return 0;
}

int
sim_space_take_pages_locked(struct sim_space *space, struct sim_phys *phys, uint64_t n,
			    uint64_t *ret_addr)
{
	uint64_t first;
	int rc = units_take(space, n, &first);

	if (rc)
		return rc;
	for (uint64_t i = 0; i < n; i++)
		space->unit[first + i].phys = phys;
	*ret_addr = unit_addr(space, first);
	return 0;
}

int
sim_space_charge_locked(struct sim_space *space, uint64_t n)
{
	if (n > space->cap_units - space->used)
		return CUDA_ERROR_OUT_OF_MEMORY;
	charge(space, n);
	return 0;
}

void
sim_space_give_units_locked(struct sim_space *space, uint64_t addr, uint64_t n)
{
	units_give(space, unit_of(space, addr), n);
}

int
sim_space_reserve_locked(struct sim_space *space, struct sim_mem *mem)
{
	uint64_t n = (mem->info.n_bytes + SIM_UNIT - 1) / SIM_UNIT;
	int64_t first;

	if (mem->info.n_bytes > space->cap_units * SIM_UNIT)
		return CUDA_ERROR_OUT_OF_MEMORY;
	first = units_find(space, space->cursor, space->n_units, n);
	if (first < 0)
		first = units_find(space, 0, space->n_units, n);
	if (first < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	space->cursor = (uint64_t)first + n;
	for (uint64_t i = 0; i < n; i++)
		space->unit[(uint64_t)first + i].mem = mem;
	mem->info.base = unit_addr(space, (uint64_t)first);
	mem->n_taken = n * SIM_UNIT;
	mem->large = true;
	return 0;
}

void
sim_space_unreserve_locked(struct sim_space *space, const struct sim_mem *mem)
{
	memset(&space->unit[unit_of(space, mem->info.base)], 0,
	       mem->n_taken / SIM_UNIT * sizeof(space->unit[0]));
}

int
sim_space_map_locked(struct sim_space *space, const struct sim_mem *mem)
{
	uint64_t n = mem->n_taken / SIM_UNIT;

	if (n > space->cap_units - space->used ||
	    mprotect((void *)(uintptr_t)mem->info.base, mem->n_taken, PROT_READ | PROT_WRITE))
		return CUDA_ERROR_OUT_OF_MEMORY;
	charge(space, n);
	return 0;
}

void
sim_space_unmap_locked(struct sim_space *space, struct sim_mem *mem)
{
	uint64_t first = unit_of(space, mem->info.base), n = mem->n_taken / SIM_UNIT;

	units_give(space, first, n);
	for (uint64_t i = 0; i < n; i++)
		space->unit[first + i].mem = mem;
}

struct sim_mem *
sim_space_find(const struct sim_space *space, uint64_t addr)
{
	const struct sim_unit *unit;

	if (addr < space->base || addr >= unit_addr(space, space->n_units))
		return NULL;
	unit = &space->unit[(addr - space->base) / SIM_UNIT];
	if (unit->chunk)
		return unit->chunk->at[(addr - unit->chunk->base) / SIM_GRAIN];
	return unit->pool ? sim_pool_mem_at(unit->pool, addr) : unit->mem;
}
