/* SPDX-License-Identifier: MIT */
/*
 * The heap and its spaces: birth, death, fork, and questions about addresses.
 *
 * Heap, devices and spaces live in an arena of their own. A forked child may find the records in
 * the middle of another thread's change, so it walks none of them: it unmaps them all and starts
 * its lists anew.
 */
#include "allocator/api/heap.h"

#include <errno.h>
#include <string.h>

#include "allocator/block/block.h"
#include "allocator/core/counts_file.h"
#include "allocator/core/lock.h"
#include "allocator/tcache/tcache.h"
#include "allocator/told/told.h"
#include "config/mutant.h"

/* Two cache lines, which a processor may fetch together. (Where all records lay side by side, each
 * of two threads with blocks of its own fetched what the other was about to write: hits took 1.34
 * times one thread's time, and take 1.2 times.) */
enum { RECORDS_APART = 128 };

static uint64_t
unique_id(void)
{
	static _Atomic uint64_t ids;

	return atomic_fetch_add(&ids, 1) + 1;
}

static const struct ca_heap_hooks hooks = {
	.flush = ca_magazines_clear_locked,
	.flush_exposed = ca_magazines_pass_locked,
	.end_leases = ca_leases_end_locked,
	.poison = ca_context_mark_poison_locked,
	.users_of_range = ca_touch_users,
	.place = ca_held_place_or_mark_locked,
};

static void
records_init(struct ca_heap *heap)
{
	heap->by_address.root = NULL;
	heap->charged.root = NULL;
	ca_bases_init(&heap->bases, &heap->records);
	heap->magazines = NULL;
	heap->magazines_end = &heap->magazines;
	heap->further_magazines = 0;
	heap->next_idle = NULL;
	heap->leases = NULL;
	heap->contention_until = 0;
	heap->id = unique_id();
	ca_slabs_init(&heap->blocks, &heap->records, sizeof(struct ca_block),
		      sizeof(((struct ca_block *)NULL)->quick), RECORDS_APART);
	ca_slabs_init(&heap->places, &heap->records, sizeof(struct ca_places), 0, RECORDS_APART);
	ca_objects_init(&heap->segment_maps, &heap->records, sizeof(struct ca_segment_map));
	ca_objects_init(&heap->ranges, &heap->records, sizeof(struct ca_registered));
	ca_objects_init(&heap->segments, &heap->records, sizeof(struct ca_segment));
	ca_objects_init(&heap->groups, &heap->records, sizeof(struct ca_group));
	ca_objects_init(&heap->users, &heap->records, sizeof(struct ca_multi_users));
	ca_objects_init(&heap->holds, &heap->records, sizeof(struct ca_hold));
	ca_objects_init(&heap->charges, &heap->records, sizeof(struct ca_charge));
	ca_list_init(&heap->graphs);
	heap->undecided = false;
}

int
ca_heap_create(const struct ca_config *config, const struct ca_driver *driver,
	       struct ca_heap **ret_heap)
{
	struct ca_arena fixed = { 0 };
	struct ca_heap *heap =
		ca_arena_alloc_aligned(&fixed, sizeof(*heap), _Alignof(struct ca_heap));

	if (!heap)
		return -ENOMEM;
	heap->fixed = fixed;
	heap->config = *config;
	heap->driver = *driver;
	heap->hooks = hooks;
	/* an earlier user must not write to memory that was filled */
	heap->config.reuse_finished = config->reuse_finished || config->zero || config->poison;
	heap->plain = config->disable == CA_DISABLE_OFF && !config->roundup.count;
	/* a trim must find each block in its place */
	heap->quick = config->disable == CA_DISABLE_OFF && !ca_auto_trim_is_wanted(config) &&
		      !config->zero && !config->poison;
	heap->limited = ca_limit_is_set(config);
	records_init(heap);
	*ret_heap = heap;
	return 0;
}

void
ca_heap_set_tracer(struct ca_heap *heap, struct ca_tracer *tracer)
{
	heap->tracer = tracer;
}

void
ca_heap_destroy(struct ca_heap *heap)
{
	struct ca_space *space;
	struct ca_arena fixed;

	if (!heap)
		return;
	for (space = heap->spaces; space; space = space->next)
		ca_order_destroy(&space->order);
	if (ca_own.heap == heap->id)
		ca_own = (struct ca_own){ 0 };
	ca_told_after_fork_child(heap);
	ca_arena_destroy(&heap->records);
	fixed = heap->fixed; /* the heap lies in it */
	ca_arena_destroy(&fixed);
}

void
ca_heap_share(struct ca_heap *heap)
{
	atomic_store_explicit(&heap->shared, true, memory_order_relaxed);
}

static void
space_init(struct ca_space *space)
{
	ca_pools_init(space->pools);
	ca_index_init(&space->wholes);
	ca_list_init(&space->segments);
	ca_list_init(&space->due);
	ca_list_init(&space->leaving);
	ca_list_init(&space->pending);
	ca_list_init(&space->unmarked);
	ca_list_init(&space->graph_held);
	ca_list_init(&space->sets);
	space->n_sets = 0;
	space->main = NULL;
	space->main_votes = 0;
	space->id = unique_id();
	atomic_store(&space->mark_held_blocks, 0);
	atomic_store(&space->stream_held_blocks, 0);
	memset(space->areas, 0, sizeof(space->areas));
	space->leaving_bytes = 0;
}

void
ca_heap_after_fork_child(struct ca_heap *heap)
{
	struct ca_device *device;
	struct ca_space *space;

	atomic_store(&heap->lock.word, CA_LOCK_FREE);
	ca_outside_after_fork_child();
	ca_own = (struct ca_own){ 0 };
	heap->tracer = NULL;
	ca_told_after_fork_child(heap);
	ca_arena_destroy(&heap->records);
	records_init(heap);
	heap->had_stream = 0;
	for (space = heap->spaces; space; space = space->next) {
		space_init(space);
		ca_held_forget(space);
		ca_order_after_fork_child(&space->order);
		space->dead = true;
	}
	for (device = heap->devices; device; device = device->next) {
		memset(&device->stats, 0, sizeof(device->stats));
		device->in_flight = 0;
		device->drainable_bytes = 0;
		device->mapped_bytes = 0;
		device->taking_bytes = device->other_bytes = device->managed_bytes = 0;
		device->next_trim = device->gc_wanted = 0;
	}
}

bool
ca_heap_locked_here(void)
{
	return ca_locks_held || ca_magazine_is_locked_here();
}

static struct ca_device *
device_make(struct ca_heap *heap, unsigned ordinal)
{
#define X(name, text, why) ":" text
	static const char names[] =
		"device" CA_STATS_NAMES " order_marks order_waits pdl_stripped order_fallbacks"
		" finished_only_reasons" CA_FINISHED_ONLY_REASONS(X);
#undef X
	size_t counted = offsetof(struct ca_device, next);
	struct ca_device *device =
		ca_counts_file_alloc(names, ordinal, counted, sizeof(struct ca_device));

	_Static_assert(sizeof(struct ca_stats) <= CA_COUNTS_SAVED, "");
	if (!device)
		return ca_arena_alloc_aligned(&heap->fixed, sizeof(*device),
					      _Alignof(struct ca_device));
	device->counts_page = ca_counts_file_page(device);
	return device;
}

static struct ca_device *
device_get(struct ca_heap *heap, unsigned ordinal)
{
	struct ca_device *device;

	for (device = heap->devices; device; device = device->next)
		if (device->ordinal == ordinal)
			return device;
	device = device_make(heap, ordinal);
	if (!device)
		return NULL;
	device->ordinal = ordinal;
	device->next = heap->devices;
	heap->devices = device;
	return device;
}

int
ca_space_create(struct ca_heap *heap, void *context, unsigned device, struct ca_space **ret_space)
{
	struct ca_space *space;
	struct ca_device *found;

	CA_HEAP_LOCKED(heap);
	found = device_get(heap, device);
	if (!found || heap->n_spaces == CA_SPACES_MAX)
		return -ENOMEM;
	space = ca_arena_alloc_aligned(&heap->fixed, sizeof(*space), _Alignof(struct ca_space));
	if (!space)
		return -ENOMEM;
	space->heap = heap;
	space->device = found;
	space->context = context;
	space->number = heap->n_spaces++;
	space_init(space);
	ca_order_init(space);
	space->next = heap->spaces;
	heap->spaces = space;
	space->next_on_device = found->spaces;
	found->spaces = space;
	*ret_space = space;
	return 0;
}

void
ca_space_kill(struct ca_space *space)
{
	struct ca_heap *heap = space->heap;
	bool has_extents;

	ca_heap_lock(heap);
	space->dead = true;
	atomic_fetch_or(&space->attention, CA_ATTENTION_ALWAYS);
	has_extents = space->areas[0].bytes || space->areas[1].bytes;
	/* a thread that sees that it is dead finds none of its blocks */
	ca_extents_forget_locked(space);
	CA_LIST_EACH_SAFE(struct ca_segment, segment, &space->segments, link)
		if (!CA_MUTANT(DEAD_WITH_BLOCKS) || segment->mapped)
			ca_segment_forget_locked(segment);
	ca_context_mark_drop_all_locked(space);
	ca_limit_forget_locked(space);
	ca_heap_unlock(heap);
	if (has_extents)
		ca_extents_end(space);
	ca_order_kill(space);
}

int
ca_lookup(struct ca_heap *heap, uint64_t address, struct ca_block_info *ret_info)
{
	struct ca_block *block;
	bool live;

	CA_HEAP_LOCKED(heap);
	block = ca_block_find_settled_locked(heap, address);
	if (!block)
		return -ENOENT;
	live = ca_block_is_live(block);
	*ret_info = (struct ca_block_info){
		.address = block->address,
		.requested_bytes = live ? ca_block_requested(block) : 0,
		.block_bytes = block->bytes,
		.serial = live ? block->serial : 0,
		.space = block->segment->space,
		.context = block->segment->space->context,
		.live = live,
		.whole_segment = block->bytes == block->segment->bytes && !block->segment->mapped,
		.mapped = block->segment->mapped,
		.foreign = block->segment->foreign,
		.sync_memops = live && block->sync_memops,
	};
	return 0;
}

int
ca_note_sync_memops(struct ca_heap *heap, uint64_t address, bool is_set)
{
	struct ca_block *block;

	CA_HEAP_LOCKED(heap);
	block = ca_block_find_settled_locked(heap, address);
	if (!block || !ca_block_is_live(block) || !ca_block_claim_locked(block))
		return -ENOENT;
	block->sync_memops = is_set;
	return 0;
}

int
ca_retire(struct ca_heap *heap, uint64_t address)
{
	struct ca_block *block;

	CA_HEAP_LOCKED(heap);
	block = ca_block_find_settled_locked(heap, address);
	if (!block)
		return -ENOENT;
	ca_segment_retire_locked(block->segment);
	return 0;
}
