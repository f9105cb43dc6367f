/* SPDX-License-Identifier: MIT */
/*
 * Linear probing, at most half full. A removal closes the gap by moving later entries of the same
 * run back, so there are no tombstones, and a program that makes and destroys handles for ever does
 * not slow down. The upper bits of the hash choose the shard, the lower ones the slot.
 */
#include "shim/state/handle_table.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "allocator/util/yield.h"
#include "shim/bind/scope.h"

enum { FIRST_CAPACITY = 256, SHARD_SHIFT = 58 };

_Static_assert(CA_HANDLE_SHARDS == 1 << (64 - SHARD_SHIFT), "the upper bits choose the shard");

static uint64_t
hash_of(const void *handle)
{
	uint64_t hash = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);

	return hash ^ hash >> 32;
}

/* Apart, so that those who need not wait save no registers. */
static __attribute__((noinline, cold)) void
lock_shard_slowly(_Atomic bool *locked)
{
	while (atomic_exchange_explicit(locked, true, memory_order_acquire))
		ca_yield();
}

static inline unsigned
lock_shard(struct ca_handles *handles, const void *handle)
{
	unsigned shard = (unsigned)(hash_of(handle) >> SHARD_SHIFT);
	_Atomic bool *locked = &handles->shard[shard].locked;

	if (__builtin_expect(atomic_exchange_explicit(locked, true, memory_order_acquire), 0))
		lock_shard_slowly(locked);
	return shard;
}

static void
unlock_shard(struct ca_handles *handles, unsigned shard)
{
	atomic_store_explicit(&handles->shard[shard].locked, false, memory_order_release);
}

/* The entry of `handle`, or the free one where it belongs. NULL: there is no table yet. */
static struct ca_handle_entry *
find_in(struct ca_handle_entry *entries, size_t capacity, uintptr_t handle)
{
	size_t i = (size_t)hash_of((const void *)handle);

	if (!capacity)
		return NULL;
	for (;; i++) {
		struct ca_handle_entry *entry = &entries[i & (capacity - 1)];

		if (!entry->handle || entry->handle == handle)
			return entry;
	}
}

static struct ca_handle_entry *
find_locked(struct ca_handles *handles, unsigned shard, const void *handle)
{
	return find_in(handles->shard[shard].entries, handles->shard[shard].capacity,
		       (uintptr_t)handle);
}

static bool
grow_locked(struct ca_handles *handles, unsigned shard)
{
	struct ca_handle_entry *old = handles->shard[shard].entries;
	size_t capacity = handles->shard[shard].capacity;
	size_t wanted = capacity ? 2 * capacity : FIRST_CAPACITY;
	CA_KEEP_ERRNO;
	struct ca_handle_entry *fresh = mmap(NULL, wanted * sizeof(*fresh), PROT_READ | PROT_WRITE,
					     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (fresh == MAP_FAILED)
		return false;
	for (size_t i = 0; i < capacity; i++)
		if (old[i].handle)
			*find_in(fresh, wanted, old[i].handle) = old[i];
	handles->shard[shard].entries = fresh;
	handles->shard[shard].capacity = wanted;
	if (old)
		munmap(old, capacity * sizeof(*old));
	return true;
}

/* Empties the slot at `i`: entries behind it that may stand no later than there move up. */
static void
close_gap_locked(struct ca_handles *handles, unsigned shard, size_t i)
{
	struct ca_handle_entry *entries = handles->shard[shard].entries;
	size_t mask = handles->shard[shard].capacity - 1;
	size_t gap = i & mask;

	for (size_t next = (gap + 1) & mask; entries[next].handle; next = (next + 1) & mask) {
		size_t home = (size_t)hash_of((const void *)entries[next].handle) & mask;

		if (((next - home) & mask) < ((next - gap) & mask))
			continue; /* its home lies behind the gap */
		entries[gap] = entries[next];
		gap = next;
	}
	entries[gap] = (struct ca_handle_entry){ 0 };
	handles->shard[shard].used--;
}

uint64_t
ca_handles_get(struct ca_handles *handles, const void *handle)
{
	unsigned shard = lock_shard(handles, handle);
	const struct ca_handle_entry *entry = find_locked(handles, shard, handle);
	uint64_t word = entry && handle ? entry->word : 0;

	unlock_shard(handles, shard);
	return word;
}

int
ca_handles_put(struct ca_handles *handles, const void *handle, uint64_t word, uint64_t *ret_old)
{
	struct ca_handle_entry *entry;
	unsigned shard;
	int rc = 0;

	if (!handle)
		return -EINVAL;
	shard = lock_shard(handles, handle);
	if (handles->shard[shard].used >= handles->shard[shard].capacity / 2 &&
	    !grow_locked(handles, shard)) {
		rc = -ENOMEM;
		goto out;
	}
	entry = find_locked(handles, shard, handle);
	*ret_old = entry->word;
	handles->shard[shard].used += !entry->handle;
	*entry = (struct ca_handle_entry){ (uintptr_t)handle, word };
out:
	unlock_shard(handles, shard);
	return rc;
}

void
ca_handles_add_bits(struct ca_handles *handles, const void *handle, uint64_t bits)
{
	unsigned shard = lock_shard(handles, handle);
	struct ca_handle_entry *entry = find_locked(handles, shard, handle);

	if (entry && entry->handle)
		entry->word |= bits;
	unlock_shard(handles, shard);
}

uint64_t
ca_handles_remove(struct ca_handles *handles, const void *handle)
{
	unsigned shard = lock_shard(handles, handle);
	struct ca_handle_entry *entry = find_locked(handles, shard, handle);
	uint64_t word = 0;

	if (entry && entry->handle) {
		word = entry->word;
		close_gap_locked(handles, shard, (size_t)(entry - handles->shard[shard].entries));
	}
	unlock_shard(handles, shard);
	return word;
}

void
ca_handles_scan(struct ca_handles *handles, bool (*leaves)(uint64_t word, void *arg), void *arg)
{
	for (unsigned shard = 0; shard < CA_HANDLE_SHARDS; shard++) {
		while (atomic_exchange_explicit(&handles->shard[shard].locked, true,
						memory_order_acquire))
			ca_yield();
		/* the entry that closes a gap may have come round the end, where it was looked at
		 * already */
		for (size_t i = 0; i < handles->shard[shard].capacity; i++)
			while (handles->shard[shard].entries[i].handle &&
			       leaves(handles->shard[shard].entries[i].word, arg))
				close_gap_locked(handles, shard, i);
		unlock_shard(handles, shard);
	}
}

void
ca_handles_after_fork_child(struct ca_handles *handles)
{
	for (unsigned shard = 0; shard < CA_HANDLE_SHARDS; shard++) {
		/* not unmapped: another thread may have been growing it, and the addresses be
		 * those of other memory by now */
		handles->shard[shard].entries = NULL;
		handles->shard[shard].capacity = 0;
		handles->shard[shard].used = 0;
		atomic_store(&handles->shard[shard].locked, false);
	}
}
