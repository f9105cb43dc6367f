/* SPDX-License-Identifier: MIT */
/*
 * The told heap: pools, groups, and questions about addresses.
 *
 * Records of pools and groups are never given back, and a stale pointer to one is harmless. A
 * destroyed pool's handle may come back; its record keeps what is left, without a handle. Once
 * nothing is, the record serves the next pool of the device: a program may make and destroy any
 * number, and all are walked in each synchronisation. Those who walk may meet the next pool where
 * they had begun with the last one, and give some of its idle memory back too early. A record is
 * not used again where that would matter: a thread that allocates from the current pool of its
 * device has its record in hand without a name for it.
 */
#include "allocator/told/internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/core/counts_file.h"
#include "allocator/core/lock.h"
#include "allocator/util/yield.h"

void
ca_told_lock_wait(struct ca_told *told)
{
	int saved = errno;

	while (atomic_exchange_explicit(&told->lock, 2, memory_order_acquire))
		(void)syscall(SYS_futex, &told->lock, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
	errno = saved;
}

void
ca_told_lock_wake(struct ca_told *told)
{
	int saved = errno;

	(void)syscall(SYS_futex, &told->lock, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	errno = saved;
}

static struct ca_told *
told_of(const struct ca_heap *heap)
{
	return atomic_load_explicit(&heap->told, memory_order_acquire);
}

static struct ca_told *
create(struct ca_heap *heap)
{
	struct ca_told *told = ca_arena_alloc(&heap->fixed, sizeof(*told));

	if (!told)
		return NULL;
	told->heap = heap;
	told->table_shift = 64 - CA_TOLD_TABLE_LOG;
	atomic_init(&told->slow, heap->config.reuse_finished || ca_tracing(heap));
	atomic_init(&told->next_serial, 1);
	told->table =
		ca_arena_alloc(&told->arena, sizeof(struct ca_told_block *) << CA_TOLD_TABLE_LOG);
	if (!told->table)
		return NULL;
	ca_objects_init(&told->blocks, &told->arena, sizeof(struct ca_told_block));
	ca_objects_init(&told->segments, &told->arena, sizeof(struct ca_told_segment));
	ca_objects_init(&told->users, &told->arena, sizeof(struct ca_told_users));
	return told;
}

static struct ca_told *
get_or_create(struct ca_heap *heap)
{
	struct ca_told *told = told_of(heap);

	if (told)
		return told;
	CA_HEAP_LOCKED(heap);
	told = told_of(heap);
	if (!told) {
		told = create(heap);
		atomic_store_explicit(&heap->told, told, memory_order_release);
	}
	return told;
}

/* The device's; NULL: no memory. */
static struct ca_told_counts *
counts_told(struct ca_told *told, unsigned ordinal)
{
	static const char names[] =
		"told async_alloc_calls async_free_calls segments_taken_for" CA_STATS_GAUGE_NAME(
			async_bytes) CA_STATS_GAUGE_NAME(async_reserved_bytes);
	struct ca_told_pool *pool = told->pools;
	struct ca_told_counts *counts;

	while (pool && pool->ordinal != ordinal)
		pool = pool->next;
	if (pool)
		return pool->counts;
	counts = ca_counts_file_alloc(names, ordinal, sizeof(*counts), sizeof(*counts));
	return counts ? counts
		      : ca_arena_alloc_aligned(&told->arena, sizeof(*counts),
					       _Alignof(struct ca_told_counts));
}

/* The record of a pool that nobody can have at hand any more; NULL: there is none. */
static struct ca_told_pool *
find_spare_told(struct ca_told *told, unsigned ordinal)
{
	struct ca_told_pool *pool = told->pools;

	while (pool && (pool->ordinal != ordinal || !pool->retired || pool->was_current ||
			!ca_list_empty(&pool->segments)))
		pool = pool->next;
	return pool;
}

/* A new record, closed and retired. */
static struct ca_told_pool *
add_record_told(struct ca_told *told, unsigned ordinal)
{
	struct ca_told_pool *pool = ca_arena_alloc(&told->arena, sizeof(*pool));
	unsigned i;

	if (!pool)
		return NULL;
	pool->counts = counts_told(told, ordinal);
	if (!pool->counts)
		return NULL;
	pool->told = told;
	pool->ordinal = ordinal;
	pool->retired = true;
	for (i = 0; i < 2; i++)
		ca_index_init(&pool->free[i]);
	ca_list_init(&pool->all_groups);
	ca_list_init(&pool->shared);
	ca_list_init(&pool->segments);
	pool->next = told->pools;
	told->pools = pool;
	return pool;
}

/* Groups without blocks may be left of the record's last pool. */
struct ca_told_pool *
ca_told_pool_retired_told(struct ca_told *told, unsigned ordinal)
{
	struct ca_told_pool *pool = find_spare_told(told, ordinal);
	unsigned i;

	if (!pool)
		pool = add_record_told(told, ordinal);
	if (!pool)
		return NULL;
	pool->number = told->n_pools++;
	atomic_store(&pool->threshold, UINT64_MAX);
	for (i = 0; i < CA_TOLD_RULES; i++)
		atomic_store(&pool->allows[i], true);
	atomic_store(&pool->limited, false);
	pool->used_high = pool->total_bytes = pool->repeated_bytes = 0;
	memset(pool->given, 0, sizeof(pool->given));
	pool->looks = (struct ca_backoff){ 0 };
	pool->cuts = false;
	return pool;
}

/* The handle comes last: threads find the pool by it without the lock. */
static struct ca_told_pool *
make_told(struct ca_told *told, void *handle, unsigned ordinal)
{
	struct ca_told_pool *pool = ca_told_pool_retired_told(told, ordinal);

	if (pool) {
		pool->retired = false;
		pool->handle = handle;
	}
	return pool;
}

struct ca_told_pool *
ca_told_pool_open(struct ca_heap *heap, void *handle, unsigned ordinal)
{
	struct ca_told *told = get_or_create(heap);
	struct ca_told_pool *pool;

	if (!told)
		return NULL;
	ca_told_lock(told);
	pool = ca_told_pool_of(told, handle);
	if (!pool) {
		pool = make_told(told, handle, ordinal);
		if (pool && ca_tracing(heap))
			ca_told_trace_pool(pool);
	}
	ca_told_unlock(told);
	return pool;
}

void
ca_told_pool_close(struct ca_told_pool *pool)
{
	struct ca_told *told = pool->told;

	ca_told_lock(told);
	(void)ca_told_unkeep_told(pool);
	if (pool->handle)
		CA_LIST_EACH(struct ca_told_segment, segment, &pool->segments, link)
			atomic_fetch_add(&told->n_closed, 1);
	pool->handle = NULL;
	if (pool->foreign_bytes) /* nobody asks the driver about it any more */
		atomic_fetch_sub(&told->n_foreign, 1);
	pool->foreign_bytes = 0;
	if (ca_tracing(told->heap))
		ca_told_trace_pool(pool);
	ca_told_unlock(told);
}

void
ca_told_pool_open_again(struct ca_told_pool *pool, void *handle)
{
	struct ca_told *told = pool->told;

	ca_told_lock(told);
	CA_LIST_EACH(struct ca_told_segment, segment, &pool->segments, link)
		atomic_fetch_sub(&told->n_closed, 1);
	pool->handle = handle;
	if (ca_tracing(told->heap))
		ca_told_trace_pool(pool);
	ca_told_unlock(told);
}

void
ca_told_pool_retire(struct ca_told_pool *pool)
{
	ca_told_lock(pool->told);
	pool->retired = true;
	ca_told_unlock(pool->told);
}

void
ca_told_pool_note_current(struct ca_told_pool *pool)
{
	atomic_store(&pool->was_current, true);
}

struct ca_told_pool *
ca_told_pool_find(struct ca_heap *heap, const void *handle)
{
	struct ca_told *told = told_of(heap);

	return told ? ca_told_pool_of(told, handle) : NULL;
}

struct ca_told_pool *
ca_told_pool_next(struct ca_heap *heap, const struct ca_told_pool *pool, unsigned ordinal)
{
	struct ca_told *told = told_of(heap);
	struct ca_told_pool *next;

	if (!told)
		return NULL;
	ca_told_lock(told);
	next = pool ? pool->next : told->pools;
	while (next && next->ordinal != ordinal)
		next = next->next;
	ca_told_unlock(told);
	return next;
}

void *
ca_told_pool_handle(struct ca_told_pool *pool)
{
	return pool->handle;
}

/* The handle is read behind the increment, and the increment behind the end of the handle: one of
 * the two threads sees the other. */
void *
ca_told_pool_enter(struct ca_told_pool *pool)
{
	void *handle;

	atomic_fetch_add(&pool->visitors, 1);
	handle = pool->handle;
	if (!handle)
		ca_told_pool_leave(pool);
	return handle;
}

void
ca_told_pool_leave(struct ca_told_pool *pool)
{
	atomic_fetch_sub(&pool->visitors, 1);
}

void
ca_told_pool_await(struct ca_told_pool *pool)
{
	while (atomic_load(&pool->visitors))
		ca_yield();
}

unsigned
ca_told_pool_device(const struct ca_told_pool *pool)
{
	return pool->ordinal;
}

void
ca_told_pool_set_reuse(struct ca_told_pool *pool, enum ca_told_reuse reuse, bool allows)
{
	if (atomic_exchange(&pool->allows[reuse], allows) != allows && ca_tracing(pool->told->heap))
		ca_told_trace_pool(pool);
}

void
ca_told_pool_set_total(struct ca_told_pool *pool, uint64_t bytes)
{
	ca_told_lock(pool->told);
	pool->total_bytes = bytes;
	ca_told_unlock(pool->told);
}

bool
ca_told_pool_is_limited(const struct ca_told_pool *pool)
{
	return atomic_load(&pool->limited);
}

void
ca_told_pool_set_limited(struct ca_told_pool *pool)
{
	if (!atomic_exchange(&pool->limited, true) && ca_tracing(pool->told->heap))
		ca_told_trace_pool(pool);
}

bool
ca_told_pool_allows(struct ca_told_pool *pool, enum ca_told_reuse reuse)
{
	return atomic_load(&pool->allows[reuse]);
}

void
ca_told_pool_set_threshold(struct ca_told_pool *pool, uint64_t bytes)
{
	atomic_store(&pool->threshold, bytes);
}

uint64_t
ca_told_pool_threshold(const struct ca_told_pool *pool)
{
	return atomic_load(&pool->threshold);
}

static struct ca_told_group *
group_new(struct ca_told_pool *pool, struct ca_stream_record *record)
{
	struct ca_told_group *group = ca_arena_alloc(&pool->told->arena, sizeof(*group));
	unsigned i;

	if (!group)
		return NULL;
	group->record = record;
	for (i = 0; i < 2; i++)
		ca_index_init(&group->index[i]);
	ca_list_init(&group->blocks);
	ca_list_init(&group->kept);
	ca_list_insert(&pool->all_groups, &group->link);
	pool->n_groups++;
	return group;
}

struct ca_told_group *
ca_told_group_told(struct ca_told_pool *pool, struct ca_stream_record *record)
{
	struct ca_told_group **at = &pool->groups[ca_told_group_place(record)];
	struct ca_told_group *group = ca_told_group_find_told(pool, record);

	if (group)
		return group;
	group = group_new(pool, record);
	if (group) {
		group->chain = *at;
		*at = group;
	}
	return group;
}

/* ---- questions */

bool
ca_told_any(const struct ca_heap *heap)
{
	const struct ca_told *told = told_of(heap);

	return told && atomic_load_explicit(&told->n_segments, memory_order_relaxed);
}

bool
ca_told_has_closed(const struct ca_heap *heap)
{
	const struct ca_told *told = told_of(heap);

	return told && atomic_load_explicit(&told->n_closed, memory_order_relaxed);
}

static struct ca_told_block *
block_at(const struct ca_told_segment *segment, uint64_t address)
{
	struct ca_told_block *block = segment->first;

	while (block->next && block->next->address <= address)
		block = block->next;
	return block;
}

int
ca_told_lookup(struct ca_heap *heap, uint64_t address, struct ca_told_info *ret_info)
{
	struct ca_told *told = told_of(heap);
	const struct ca_told_segment *segment;
	const struct ca_told_block *block = NULL;

	if (!told || !ca_told_any(heap))
		return -ENOENT;
	ca_told_lock(told);
	segment = ca_told_segment_find_told(told, address);
	if (segment) {
		block = block_at(segment, address);
		*ret_info =
			(struct ca_told_info){ .address = block->address, .bytes = block->bytes };
		ret_info->live = block->state == CA_TOLD_LIVE && block->serial;
		if (ret_info->live) {
			ret_info->requested = block->requested;
			ret_info->serial = block->serial;
		}
	}
	ca_told_unlock(told);
	return block ? 0 : -ENOENT;
}

void
ca_told_pool_stats(struct ca_told_pool *pool, struct ca_told_stats *ret_stats)
{
	ca_told_lock(pool->told);
	*ret_stats = (struct ca_told_stats){
		.used_bytes = pool->used_bytes,
		.used_high = pool->used_high,
		.segment_bytes = pool->segment_bytes,
	};
	ca_told_unlock(pool->told);
}

void
ca_told_device_stats(struct ca_heap *heap, unsigned ordinal, struct ca_stats *stats)
{
	struct ca_told *told = told_of(heap);
	struct ca_told_pool *pool;

	if (!told)
		return;
	ca_told_lock(told);
	for (pool = told->pools; pool; pool = pool->next)
		if (pool->ordinal == ordinal)
			break;
	if (pool) {
		stats->async_alloc_calls = pool->counts->allocs;
		stats->async_free_calls = pool->counts->frees;
		stats->async_cache_hits = pool->counts->allocs - pool->counts->segments_taken_for;
		stats->async_bytes = pool->counts->used;
		stats->async_reserved_bytes = pool->counts->reserved;
	}
	ca_told_unlock(told);
}

void
ca_told_pool_note_driver(struct ca_told_pool *pool, uint64_t bytes)
{
	struct ca_told *told = pool->told;
	uint64_t others;

	ca_told_lock(told);
	if (!pool->handle) /* it may have been destroyed meanwhile */
		bytes = 0;
	others = bytes > pool->segment_bytes ? bytes - pool->segment_bytes : 0;
	if (!pool->foreign_bytes != !others)
		atomic_fetch_add(&told->n_foreign, others ? 1u : -1u);
	pool->foreign_bytes = others;
	if (pool->used_bytes + others > pool->used_high)
		pool->used_high = pool->used_bytes + others;
	ca_told_unlock(told);
}

bool
ca_told_has_foreign(const struct ca_heap *heap)
{
	const struct ca_told *told = told_of(heap);

	return told && atomic_load_explicit(&told->n_foreign, memory_order_relaxed);
}

void
ca_told_pool_reset_high(struct ca_told_pool *pool)
{
	ca_told_lock(pool->told);
	pool->used_high = pool->used_bytes + pool->foreign_bytes;
	ca_told_unlock(pool->told);
}

void
ca_told_after_fork_child(struct ca_heap *heap)
{
	struct ca_told *told = told_of(heap);

	if (told)
		ca_arena_destroy(&told->arena);
	ca_told_hand_after_fork_child();
	atomic_store(&heap->told, NULL);
}
