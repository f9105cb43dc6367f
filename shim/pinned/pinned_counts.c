/* SPDX-License-Identifier: MIT */
/*
 * The statistics of page-locked memory count for the device of the context in which it was
 * allocated. All under the records' lock.
 */
#include "shim/pinned/internal.h"

#include "allocator/core/counts_file.h"
#include "shim/track/contexts.h"

enum { DEVICES_MAX = 32 };

struct counts {
	_Alignas(64) uint64_t allocs; /* calls */
	uint64_t hits;
	struct ca_gauge live, cached; /* bytes */
};
static struct counts own[DEVICES_MAX], *counts[DEVICES_MAX]; /* own, or in the file of counts */
static unsigned devices;                                     /* the highest ordinal, plus 1 */

static void
gauge_add(struct ca_gauge *gauge, uint64_t bytes)
{
	gauge->current += bytes;
	gauge->total += bytes;
	if (gauge->current > gauge->peak)
		gauge->peak = gauge->current;
}

/* NULL: it is not counted. */
static struct counts *
counts_of(const struct ca_pinned_kind *kind)
{
	static const char names[] =
		"pinned pinned_alloc_calls pinned_cache_hits" CA_STATS_GAUGE_NAME(pinned_bytes)
			CA_STATS_GAUGE_NAME(pinned_cached_bytes);
	CUdevice device = kind->context->device;
	struct counts *found;

	if (device < 0 || device >= DEVICES_MAX)
		return NULL;
	if ((unsigned)device >= devices)
		devices = (unsigned)device + 1;
	if (counts[device])
		return counts[device];
	found = ca_counts_file_alloc(names, (unsigned)device, sizeof(*found), sizeof(*found));
	counts[device] = found ? found : &own[device];
	return counts[device];
}

void
ca_pinned_counts_reset(void)
{
	for (unsigned i = 0; i < DEVICES_MAX; i++) {
		own[i] = (struct counts){ 0 };
		counts[i] = NULL;
	}
	devices = 0;
}

void
ca_pinned_count_taken_locked(const struct ca_pinned_kind *kind, bool hit)
{
	struct counts *to = counts_of(kind);

	if (!to)
		return;
	to->allocs++;
	to->hits += hit;
	gauge_add(&to->live, kind->bytes);
}

void
ca_pinned_count_released_locked(const struct ca_pinned_kind *kind)
{
	struct counts *to = counts_of(kind);

	if (to)
		to->live.current -= kind->bytes;
}

void
ca_pinned_count_restored_locked(const struct ca_pinned_kind *kind)
{
	struct counts *to = counts_of(kind);

	if (to)
		to->live.current += kind->bytes;
}

void
ca_pinned_count_cached_locked(const struct ca_pinned_kind *kind)
{
	struct counts *to = counts_of(kind);

	ca_pinned_count_released_locked(kind);
	if (to)
		gauge_add(&to->cached, kind->bytes);
}

void
ca_pinned_count_uncached_locked(const struct ca_pinned_kind *kind)
{
	struct counts *to = counts_of(kind);

	if (to)
		to->cached.current -= kind->bytes;
}

void
ca_pinned_counts_read_locked(unsigned device, struct ca_stats *stats)
{
	const struct counts *from = device < DEVICES_MAX ? counts[device] : NULL;

	if (!from)
		return;
	stats->pinned_alloc_calls = from->allocs;
	stats->pinned_cache_hits = from->hits;
	stats->pinned_bytes = from->live;
	stats->pinned_cached_bytes = from->cached;
}

unsigned
ca_pinned_counts_devices_locked(void)
{
	return devices;
}
