/* SPDX-License-Identifier: MIT */
/*
 * Limits that the user set, per device.
 *
 * CACHEALLOC_LIMIT counts what segments hold, live or cached, and what the program asked for by
 * calls that the driver serves itself; per_process_memory_fraction counts segments only. A request
 * that would exceed one is out of memory before the driver is asked, so the ladder gives cached
 * segments back first, as if the device were that small.
 */
#include "allocator/policy/internal.h"

#include "allocator/core/lock.h"
#include "allocator/tcache/tcache.h"
#include "config/mutant.h"

static bool
has_fraction(const struct ca_config *config)
{
	return config->memory_fraction && config->memory_fraction < CA_WHOLE;
}

bool
ca_limit_is_set(const struct ca_config *config)
{
	return config->disable == CA_DISABLE_OFF &&
	       (ca_config_is_limited(config) || has_fraction(config) || config->gc_threshold);
}

int
ca_limit_query_locked(struct ca_space *space, uint64_t *ret_free, uint64_t *ret_total)
{
	const struct ca_driver *driver = &space->heap->driver;
	int r;

	ca_outside_enter_locked(space);
	r = driver->memory_info(driver->self, space->context, ret_free, ret_total);
	ca_outside_leave(space);
	return r;
}

void
ca_limit_update_locked(struct ca_space *space)
{
	uint64_t free_bytes, total;

	if (!space->device->total_bytes && !ca_limit_query_locked(space, &free_bytes, &total))
		space->device->total_bytes = total;
}

uint64_t
ca_limit_share(uint64_t total, uint64_t share)
{
	return (uint64_t)(__extension__(unsigned __int128) total * share / CA_WHOLE);
}

/* UINT64_MAX: none, or not known yet. */
static uint64_t
limit_bytes(const struct ca_limit *limit, uint64_t total)
{
	if (limit->bytes)
		return limit->bytes;
	return limit->share && total ? ca_limit_share(total, limit->share) : UINT64_MAX;
}

/* The user's or the site's. */
static uint64_t
limit_of_all(const struct ca_space *space)
{
	const struct ca_config *config = &space->heap->config;
	uint64_t total = space->device->total_bytes;

	return ca_least(limit_bytes(&config->limit, total),
			limit_bytes(&config->forced_limit, total));
}

static uint64_t
limit_of_fraction(const struct ca_space *space)
{
	const struct ca_config *config = &space->heap->config;
	uint64_t total = space->device->total_bytes;

	return has_fraction(config) && total ? ca_limit_share(total, config->memory_fraction)
					     : UINT64_MAX;
}

bool
ca_limit_excludes_locked(struct ca_space *space, uint64_t bytes, bool segment)
{
	const struct ca_device *device = space->device;
	uint64_t live, capacity;

	ca_limit_update_locked(space);
	ca_magazines_count_locked(space->heap);
	live = device->stats.requested_bytes.current;
	live -= ca_least(live, device->managed_bytes);
	capacity = ca_least(device->total_bytes ? device->total_bytes : UINT64_MAX,
			    limit_of_all(space));
	if (segment) {
		/* that of another call may include its own bytes already */
		capacity = ca_least(capacity, ca_excess(limit_of_all(space), device->other_bytes));
		capacity = ca_least(capacity, limit_of_fraction(space));
	}
	return ca_excess(capacity, live) < bytes;
}

uint64_t
ca_limit_of_segments(struct ca_space *space)
{
	struct ca_device *device = space->device;
	uint64_t limit;

	if (__builtin_expect(device->segments_max != 0, 1))
		return device->segments_max;
	limit = ca_least(limit_of_all(space), limit_of_fraction(space));
	if (!device->total_bytes)
		return limit;
	return device->segments_max = ca_least(limit, device->total_bytes);
}

uint64_t
ca_limit_needed_locked(const struct ca_space *space, uint64_t bytes, bool segment)
{
	const struct ca_device *device = space->device;
	uint64_t taking = CA_MUTANT(TAKING_UNCOUNTED) ? 0 : device->taking_bytes;
	uint64_t held = device->stats.reserved_bytes.current + taking + bytes;
	uint64_t all = ca_excess(held + device->other_bytes, limit_of_all(space));
	uint64_t own = segment ? ca_excess(held, limit_of_fraction(space)) : 0;

	return ca_most(all, own);
}

void
ca_limit_info(struct ca_space *space, uint64_t *free_bytes, uint64_t *total_bytes)
{
	struct ca_heap *heap = space->heap;
	const struct ca_device *device = space->device;
	uint64_t limit, used;

	if (!ca_config_is_limited(&heap->config))
		return;
	CA_HEAP_LOCKED(heap);
	ca_limit_update_locked(space);
	limit = limit_of_all(space);
	used = device->stats.reserved_bytes.current - ca_release_drainable_locked(device) +
	       device->other_bytes;
	*total_bytes = ca_least(*total_bytes, limit);
	*free_bytes = ca_least(*free_bytes, ca_excess(limit, used));
}

uint64_t
ca_limit_allowed(struct ca_space *space, enum ca_limit_kind *ret_kind)
{
	const struct ca_config *config = &space->heap->config;
	uint64_t all, fraction;

	CA_HEAP_LOCKED(space->heap);
	all = limit_of_all(space);
	fraction = limit_of_fraction(space);
	if (all > fraction)
		*ret_kind = CA_LIMIT_FRACTION;
	else if (all < limit_bytes(&config->limit, space->device->total_bytes))
		*ret_kind = CA_LIMIT_FORCED;
	else
		*ret_kind = CA_LIMIT_OWN;
	return ca_least(all, fraction) == UINT64_MAX ? 0 : ca_least(all, fraction);
}
