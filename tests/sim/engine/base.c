/* SPDX-License-Identifier: MIT */
/*
 * Base: memory of the engine's own, and tables of handles.
 *
 * A handle table is one reserved range of address space with elements of one size. A handle is the
 * address of its element, so checking one is arithmetic and a look at `life`, and never reads
 * memory that is not ours. A freed element is the next to be handed out: handle values come back
 * quickly, as with the real driver, and a user who keeps a stale one is found out.
 */
#include "tests/sim/engine/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void
sim_die(const char *what)
{
	fprintf(stderr, "simcuda: %s\n", what);
	abort();
}

void *
sim_xcalloc(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		sim_die("out of host memory");
	return p;
}

void *
sim_xrealloc(void *old, size_t n, size_t size)
{
	void *p;

	if (size && n > SIZE_MAX / size)
		sim_die("out of host memory");
	p = realloc(old, n && size ? n * size : 1);
	if (!p)
		sim_die("out of host memory");
	return p;
}

int
sim_slab_open(struct sim_slab *slab, size_t size, size_t n_max)
{
	void *p = mmap(NULL, size * n_max, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return -ENOMEM;
	*slab = (struct sim_slab){ .base = p, .size = size, .n_max = n_max };
	return 0;
}

void
sim_slab_close(struct sim_slab *slab)
{
	if (slab->base)
		munmap(slab->base, slab->size * slab->n_max);
	*slab = (struct sim_slab){ 0 };
}

void *
sim_slab_get(struct sim_slab *slab)
{
	struct sim_handle *handle = slab->freed;

	if (handle)
		slab->freed = handle->next_free;
	else if (slab->n_used < slab->n_max)
		handle = (void *)(slab->base + slab->size * slab->n_used++);
	else
		return NULL;
	memset(handle, 0, slab->size);
	handle->life = SIM_LIVE;
	return handle;
}

void
sim_slab_put(struct sim_slab *slab, void *element)
{
	struct sim_handle *handle = element;

	handle->life = SIM_DEAD;
	handle->next_free = slab->freed;
	slab->freed = handle;
}

void *
sim_slab_find(const struct sim_slab *slab, const void *handle)
{
	uintptr_t offset = (uintptr_t)handle - (uintptr_t)slab->base;

	if ((uintptr_t)handle < (uintptr_t)slab->base || offset >= slab->size * slab->n_used ||
	    offset % slab->size)
		return NULL;
	return ((const struct sim_handle *)handle)->life == SIM_DEAD ? NULL
								     : (void *)(uintptr_t)handle;
}
