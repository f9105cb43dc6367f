/* SPDX-License-Identifier: MIT */
/*
 * The statistics of page-locked memory count for the device of the context in which it was
 * allocated. All under the records' lock.
 */
#include "shim/pinned/internal.h"

#include "shim/track/contexts.h"

enum { DEVICES_MAX = 32 };

static struct {
	uint64_t allocs, hits; /* calls */
	struct ca_gauge live, cached;
} counts[DEVICES_MAX];
static unsigned devices; /* the highest ordinal, plus 1 */

static void
gauge_add(struct ca_gauge *gauge, uint64_t bytes)
{
	gauge->current += bytes;
	gauge->total += bytes;
	if (gauge->current > gauge->peak)
		gauge->peak = gauge->current;
}

/* -1: none that is counted. */
static int
device_of(const struct ca_pinned_kind *kind)
{
	CUdevice device = kind->context->device;

	return device >= 0 && device < DEVICES_MAX ? device : -1;
}

void
ca_pinned_counts_reset(void)
{
	for (unsigned i = 0; i < DEVICES_MAX; i++) {
		counts[i].allocs = counts[i].hits = 0;
		counts[i].live = counts[i].cached = (struct ca_gauge){ 0 };
	}
	devices = 0;
}

void
ca_pinned_count_taken_locked(const struct ca_pinned_kind *kind, bool hit)
{
	int device = device_of(kind);

	if (device < 0)
		return;
	if ((unsigned)device >= devices)
		devices = (unsigned)device + 1;
	counts[device].allocs++;
	counts[device].hits += hit;
	gauge_add(&counts[device].live, kind->bytes);
}

void
ca_pinned_count_released_locked(const struct ca_pinned_kind *kind)
{
	int device = device_of(kind);

	if (device >= 0)
		counts[device].live.current -= kind->bytes;
}

void
ca_pinned_count_restored_locked(const struct ca_pinned_kind *kind)
{
	int device = device_of(kind);

	if (device >= 0)
		counts[device].live.current += kind->bytes;
}

void
ca_pinned_count_cached_locked(const struct ca_pinned_kind *kind)
{
	int device = device_of(kind);

	ca_pinned_count_released_locked(kind);
	if (device >= 0)
		gauge_add(&counts[device].cached, kind->bytes);
}

void
ca_pinned_count_uncached_locked(const struct ca_pinned_kind *kind)
{
	int device = device_of(kind);

	if (device >= 0)
		counts[device].cached.current -= kind->bytes;
}

void
ca_pinned_counts_read_locked(unsigned device, struct ca_stats *stats)
{
	if (device >= DEVICES_MAX)
		return;
	stats->pinned_alloc_calls = counts[device].allocs;
	stats->pinned_cache_hits = counts[device].hits;
	stats->pinned_bytes = counts[device].live;
	stats->pinned_cached_bytes = counts[device].cached;
}

unsigned
ca_pinned_counts_devices_locked(void)
{
	return devices;
}
