/* SPDX-License-Identifier: MIT */
/*
 * Memory pools: their life, attributes and access.
 *
 * Each place that memory can be (a device, the host, a NUMA node; pinned or managed) has a default
 * pool, made when it is first asked for, and a current one. A destroyed pool is no handle any more,
 * but its memory and the frees under way need it: it goes when the last of them has.
 */
#include <stdlib.h>

#include "tests/sim/engine/pool.h"

enum { /* places beside pinned memory of devices, by number */
       SLOT_MANAGED = SIM_DEVICES_MAX,
       SLOT_HOST = 2 * SIM_DEVICES_MAX,
       SLOT_NUMA,
       SLOT_MANAGED_NONE,
       SLOT_MANAGED_HOST,
       SLOT_MANAGED_NUMA,
       SLOTS,
};

static struct {
	struct sim_pool *standard, *current;
} slots[SLOTS];

/* ------------------------------------------------------------ life, death --- */
struct sim_pool *
sim_pool_find_locked(CUmemoryPool handle)
{
	struct sim_pool *pool = sim_slab_find(&sim_g.pools, handle);

	if (pool && pool->handle.life == SIM_LIVE)
		return pool;
	sim_misuse_locked(CUDA_ERROR_INVALID_VALUE, "%p is no memory pool", (void *)handle);
	return NULL;
}

static bool
device_ok(int device)
{
	return device >= 0 && device < sim_g.config.n_devices;
}

/* Number of the place, or the negative of a code. There is one NUMA node. */
static int
slot_of(int type, int location, int id)
{
	bool managed = type == SIM_POOL_MANAGED;

	if (type != SIM_POOL_PINNED && !managed)
		return -CUDA_ERROR_INVALID_VALUE;
	switch (location) {
	case SIM_LOCATION_NONE:
		return managed ? SLOT_MANAGED_NONE : -CUDA_ERROR_INVALID_VALUE;
	case SIM_LOCATION_DEVICE:
		if (!device_ok(id))
			return -CUDA_ERROR_INVALID_DEVICE;
		return managed ? SLOT_MANAGED + id : id;
	case SIM_LOCATION_HOST:
		return managed ? SLOT_MANAGED_HOST : SLOT_HOST;
	case SIM_LOCATION_NUMA:
		if (id)
			return -CUDA_ERROR_INVALID_VALUE;
		return managed ? SLOT_MANAGED_NUMA : SLOT_NUMA;
	default:
		return -CUDA_ERROR_INVALID_VALUE;
	}
}

/* Managed memory that is to be on the host is cut from the first device's range all the same. */
static struct sim_space *
space_for(const struct sim_pool_props *props)
{
	bool on_device = props->location == SIM_LOCATION_DEVICE;

	if (on_device || props->type == SIM_POOL_MANAGED)
		return &sim_g.device[on_device ? props->id : 0].space;
	if (!sim_g.host_space.n_units &&
	    sim_space_open(&sim_g.host_space, sim_g.config.mem_bytes, -1))
		return NULL;
	return &sim_g.host_space;
}

int
sim_pool_new_locked(const struct sim_pool_props *props, struct sim_pool **ret_pool)
{
	struct sim_space *space = space_for(props);
	struct sim_pool *pool = space ? sim_slab_get(&sim_g.pools) : NULL;

	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pool->id = ++sim_g.next_pool;
	pool->props = *props;
	pool->props.max_bytes = (props->max_bytes + SIM_UNIT - 1) / SIM_UNIT * SIM_UNIT;
	pool->space = space;
	for (int i = 0; i <= SIM_POOL_INTERNAL; i++)
		pool->rule[i] = true;
	if (props->location == SIM_LOCATION_DEVICE)
		pool->reach = (uint16_t)(1u << props->id);
	*ret_pool = pool;
	return 0;
}

static int
standard_pool(int slot, int type, int location, int id, struct sim_pool **ret_pool)
{
	struct sim_pool_props props = { .type = type, .location = location, .id = id };
	int rc;

	if (!slots[slot].standard) {
		rc = sim_pool_new_locked(&props, &slots[slot].standard);
		if (rc)
			return rc;
		slots[slot].standard->is_default = true;
		slots[slot].current = slots[slot].standard;
	}
	*ret_pool = slots[slot].standard;
	return 0;
}

static bool
props_ok(const struct sim_pool_props *props)
{
	bool managed = props->type == SIM_POOL_MANAGED, host = props->location == SIM_LOCATION_HOST;

	if (props->handle_types & ~(unsigned)SIM_POOL_FD || props->usage)
		return false;
	if ((managed || host) && props->handle_types)
		return false;
	return !managed || !props->max_bytes;
}

int
sim_pool_create(const struct sim_pool_props *props, CUmemoryPool *ret_pool)
{
	struct sim_pool *pool;
	int rc, slot;

	sim_lock();
	slot = slot_of(props->type, props->location, props->id);
	rc = slot < 0 || !props_ok(props) ? CUDA_ERROR_INVALID_VALUE
					  : sim_pool_new_locked(props, &pool);
	if (!rc)
		*ret_pool = (CUmemoryPool)(void *)pool;
	else if (rc == CUDA_ERROR_INVALID_VALUE)
		sim_misuse_locked(rc, "no such kind of memory pool");
	sim_unlock();
	return rc;
}

void
sim_pool_reap_locked(struct sim_pool *pool)
{
	if (pool->handle.life != SIM_ZOMBIE || pool->n_mems)
		return;
	sim_heap_drop_locked(pool);
	sim_slab_put(&sim_g.pools, pool);
}

int
sim_pool_destroy(CUmemoryPool handle)
{
	struct sim_pool *pool;
	int rc = 0;

	sim_lock();
	pool = sim_pool_find_locked(handle);
	if (!pool || pool->is_default) {
		rc = CUDA_ERROR_INVALID_VALUE;
		goto out;
	}
	for (int i = 0; i < SLOTS; i++)
		if (slots[i].current == pool)
			slots[i].current = slots[i].standard;
	pool->handle.life = SIM_ZOMBIE;
	pool->threshold = 0;
	sim_pool_reap_locked(pool);
out:
	sim_unlock();
	return rc;
}

int
sim_pools_open_locked(void)
{
	return sim_slab_open(&sim_g.pools, sizeof(struct sim_pool), 1 << 16);
}

void
sim_pools_close_locked(void)
{
	for (size_t i = 0; i < sim_g.pools.n_used; i++) {
		struct sim_pool *pool = (void *)(sim_g.pools.base + i * sim_g.pools.size);

		if (pool->handle.life != SIM_DEAD)
			sim_heap_close_locked(pool);
	}
	sim_g.leaving = NULL;
	sim_graph_mems_close_locked();
	for (int i = 0; i < SLOTS; i++)
		slots[i].standard = slots[i].current = NULL;
	sim_g.clocks = false;
}

void
sim_pools_synchronised_locked(void)
{
	for (size_t i = 0; i < sim_g.pools.n_used; i++) {
		struct sim_pool *pool = (void *)(sim_g.pools.base + i * sim_g.pools.size);

		if (pool->handle.life != SIM_DEAD)
			sim_heap_shrink_locked(pool, pool->threshold);
	}
}

/* -------------------------------------------------------- default, current --- */
int
sim_pool_default(int type, int location, int id, CUmemoryPool *ret_pool)
{
	struct sim_pool *pool = NULL;
	int rc, slot;

	sim_lock();
	slot = slot_of(type, location, id);
	rc = slot < 0 ? -slot : standard_pool(slot, type, location, id, &pool);
	if (!rc)
		*ret_pool = (CUmemoryPool)(void *)pool;
	sim_unlock();
	return rc;
}

int
sim_pool_current(int type, int location, int id, CUmemoryPool *ret_pool)
{
	CUmemoryPool standard;
	int rc = sim_pool_default(type, location, id, &standard);

	sim_lock();
	if (!rc)
		*ret_pool = (CUmemoryPool)(void *)slots[slot_of(type, location, id)].current;
	sim_unlock();
	return rc;
}

struct sim_pool *
sim_pool_of_device_locked(int device)
{
	struct sim_pool *pool;

	if (slots[device].current)
		return slots[device].current;
	return standard_pool(device, SIM_POOL_PINNED, SIM_LOCATION_DEVICE, device, &pool) ? NULL
											  : pool;
}

int
sim_pool_set_current(int type, int location, int id, CUmemoryPool handle)
{
	CUmemoryPool standard;
	struct sim_pool *pool;
	int rc = sim_pool_default(type, location, id, &standard), slot;

	if (rc)
		return rc;
	sim_lock();
	slot = slot_of(type, location, id);
	pool = sim_pool_find_locked(handle);
	if (!pool || pool->imported ||
	    slot_of(pool->props.type, pool->props.location, pool->props.id) != slot)
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE,
				       "no memory pool that can be current there");
	else
		slots[slot].current = pool;
	sim_unlock();
	return rc;
}

/* ------------------------------------------------------------ attributes --- */
static int
attribute_get(const struct sim_pool *pool, enum sim_pool_attribute attribute, uint64_t *ret_value)
{
	bool on_host = pool->props.location == SIM_LOCATION_NONE ||
		       pool->props.location == SIM_LOCATION_HOST;

	switch (attribute) {
	case SIM_POOL_FOLLOW_EVENT:
	case SIM_POOL_OPPORTUNISTIC:
	case SIM_POOL_INTERNAL:
		*ret_value = pool->rule[attribute];
		return 0;
	case SIM_POOL_THRESHOLD:
		*ret_value = pool->threshold;
		return 0;
	case SIM_POOL_RESERVED:
		*ret_value = pool->reserved;
		return 0;
	case SIM_POOL_RESERVED_HIGH:
		*ret_value = pool->reserved_high;
		return 0;
	case SIM_POOL_USED:
		*ret_value = pool->used;
		return 0;
	case SIM_POOL_USED_HIGH:
		*ret_value = pool->used_high;
		return 0;
	case SIM_POOL_TYPE:
		*ret_value = (uint64_t)pool->props.type;
		return 0;
	case SIM_POOL_HANDLE_TYPES:
		*ret_value = pool->imported ? 0 : pool->props.handle_types;
		return 0;
	case SIM_POOL_LOCATION_ID:
		*ret_value = on_host ? 0 : (uint64_t)pool->props.id;
		return 0;
	case SIM_POOL_LOCATION_TYPE:
		*ret_value = (uint64_t)pool->props.location;
		return 0;
	case SIM_POOL_MAX_SIZE:
		*ret_value = pool->props.max_bytes;
		return 0;
	case SIM_POOL_DECOMPRESS:
		*ret_value = 0;
		return 0;
	case SIM_POOL_DOMAIN:
		*ret_value = UINT64_MAX; /* -1 */
		return 0;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

int
sim_pool_get(CUmemoryPool handle, enum sim_pool_attribute attribute, uint64_t *ret_value)
{
	const struct sim_pool *pool;
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	pool = sim_pool_find_locked(handle);
	if (pool)
		rc = sim_capture_unsafe_locked();
	if (pool && !rc)
		rc = attribute_get(pool, attribute, ret_value);
	sim_unlock();
	return rc;
}

/* A mark starts again from what there is now. */
static int
attribute_set(struct sim_pool *pool, enum sim_pool_attribute attribute, uint64_t value)
{
	switch (attribute) {
	case SIM_POOL_FOLLOW_EVENT:
	case SIM_POOL_OPPORTUNISTIC:
	case SIM_POOL_INTERNAL:
		pool->rule[attribute] = value != 0;
		return 0;
	case SIM_POOL_THRESHOLD:
		pool->threshold = value;
		return 0;
	case SIM_POOL_RESERVED_HIGH:
		if (!value)
			pool->reserved_high = pool->reserved;
		return value ? CUDA_ERROR_INVALID_VALUE : 0;
	case SIM_POOL_USED_HIGH:
		if (!value)
			pool->used_high = pool->used;
		return value ? CUDA_ERROR_INVALID_VALUE : 0;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

int
sim_pool_set(CUmemoryPool handle, enum sim_pool_attribute attribute, uint64_t value)
{
	struct sim_pool *pool;
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	pool = sim_pool_find_locked(handle);
	if (pool && (rc = sim_capture_unsafe_locked()))
		goto out;
	if (pool)
		rc = attribute_set(pool, attribute, value);
	if (pool && rc)
		sim_misuse_locked(rc, "no value that this attribute of a pool can be set to");
out:
	sim_unlock();
	return rc;
}

int
sim_pool_trim(CUmemoryPool handle, uint64_t keep_bytes)
{
	struct sim_pool *pool;
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	pool = sim_pool_find_locked(handle);
	if (pool)
		rc = sim_capture_unsafe_locked();
	if (pool && !rc)
		sim_heap_shrink_locked(pool, keep_bytes);
	sim_unlock();
	return rc;
}

/* ---------------------------------------------------------------- access --- */
uint16_t
sim_pool_reach_locked(const struct sim_mem *mem)
{
	return mem->graph ? sim_graph_mem_reach_locked(mem) : mem->pool->reach;
}

int
sim_pool_set_access(CUmemoryPool handle, int device, unsigned flags)
{
	struct sim_pool *pool;
	int rc = 0;

	sim_lock();
	pool = sim_pool_find_locked(handle);
	if (!pool || !device_ok(device) || (flags != SIM_ACCESS_NONE && flags != SIM_ACCESS_ALL) ||
	    (flags == SIM_ACCESS_NONE && pool->props.location == SIM_LOCATION_DEVICE &&
	     pool->props.id == device))
		rc = sim_misuse_locked(CUDA_ERROR_INVALID_VALUE, "no access that can be set");
	else if (flags)
		pool->reach |= (uint16_t)(1u << device);
	else
		pool->reach &= (uint16_t) ~(1u << device);
	sim_unlock();
	return rc;
}

int
sim_pool_get_access(CUmemoryPool handle, int location, int id, unsigned *ret_flags)
{
	const struct sim_pool *pool;
	bool host = location == SIM_LOCATION_HOST || location == SIM_LOCATION_NUMA;
	int rc = CUDA_ERROR_INVALID_VALUE;

	sim_lock();
	pool = sim_pool_find_locked(handle);
	if (!pool || (!host && (location != SIM_LOCATION_DEVICE || !device_ok(id))))
		goto out;
	rc = 0;
	if (host)
		*ret_flags = pool->props.location == SIM_LOCATION_DEVICE ? SIM_ACCESS_NONE
									 : SIM_ACCESS_ALL;
	else
		*ret_flags = pool->reach >> id & 1 ? SIM_ACCESS_ALL : SIM_ACCESS_NONE;
out:
	sim_unlock();
	return rc;
}
