/* SPDX-License-Identifier: MIT */
/*
 * A hash table of buckets, one cache line each. A block may be in either of two buckets, in any
 * place there; where both are full one of theirs goes to its other bucket. With at most seven
 * eighths of the places taken that leaves hardly any without a place: such a block is found by the
 * tree.
 *
 * An entry is one word: the pointer and, in the bits above it, some of the hash, so that a reader
 * looks at hardly any block but the right one. Records of blocks are never unmapped while the heap
 * is there, nor are tables that have been outgrown (their pages go back to the system and read as
 * empty), so a reader without the lock may look at what is gone, and then sees that it is. It may
 * miss what was moved under its eyes: then the way with the lock finds it.
 */
#include "allocator/inside.h"

enum { BUCKET = 8, LOG_MIN = 7, TAG_SHIFT = 48, TAG_BITS = 16, TAG_AT = 20 };

struct ca_bases_table {
	unsigned log; /* of the number of buckets */
	_Alignas(64) _Atomic uint64_t places[][BUCKET];
};

/* Where a block may be. */
struct key {
	uint64_t tag;
	size_t first, second; /* buckets */
};

/* Of the two, by one of them. */
static inline size_t
other_bucket(const struct ca_bases_table *table, size_t bucket, uint64_t tag)
{
	return (bucket ^ (tag | 1)) & (((size_t)1 << table->log) - 1);
}

static inline struct key
key_of(const struct ca_bases_table *table, uint64_t address)
{
	uint64_t hash = (address / CA_GRAIN) * UINT64_C(0x9e3779b97f4a7c15);
	struct key key = { .tag = hash >> TAG_AT & ((1 << TAG_BITS) - 1),
			   .first = hash >> (64 - table->log) };

	key.second = other_bucket(table, key.first, key.tag);
	return key;
}

static inline struct ca_block *
block_of(uint64_t entry)
{
	return (struct ca_block *)(uintptr_t)(entry & (((uint64_t)1 << TAG_SHIFT) - 1));
}

/* One of them is usually at its own place in its bucket. */
static inline unsigned
place_from(const struct key *key, unsigned i)
{
	return (key->tag + i) % BUCKET;
}

void
ca_bases_init(struct ca_bases *bases, struct ca_arena *arena)
{
	atomic_store_explicit(&bases->table, NULL, memory_order_relaxed);
	bases->arena = arena;
	bases->entered = 0;
}

static struct ca_bases_table *
table_of(const struct ca_bases *bases)
{
	return atomic_load_explicit(&bases->table, memory_order_acquire);
}

/* Where nothing is; NULL: the bucket is full. */
static _Atomic uint64_t *
room_in(struct ca_bases_table *table, size_t bucket, uint64_t tag)
{
	unsigned i;

	for (i = 0; i < BUCKET; i++) {
		_Atomic uint64_t *place = &table->places[bucket][(tag + i) % BUCKET];

		if (!atomic_load_explicit(place, memory_order_relaxed))
			return place;
	}
	return NULL;
}

/* An entry of the bucket goes to the other one where it may be. A reader finds it here or there, or
 * misses it. */
static CA_APART _Atomic uint64_t *
make_room_in(struct ca_bases_table *table, size_t bucket)
{
	unsigned i;

	for (i = 0; i < BUCKET; i++) {
		_Atomic uint64_t *place = &table->places[bucket][i], *other;
		uint64_t entry = atomic_load_explicit(place, memory_order_relaxed);
		uint64_t tag = entry >> TAG_SHIFT;

		other = room_in(table, other_bucket(table, bucket, tag), tag);
		if (!other)
			continue;
		atomic_store_explicit(other, entry, memory_order_release);
		return place;
	}
	return NULL;
}

static bool
enter(struct ca_bases_table *table, struct ca_block *block)
{
	struct key key = key_of(table, block->address);
	_Atomic uint64_t *place = room_in(table, key.first, key.tag);

	if (!place)
		place = room_in(table, key.second, key.tag);
	if (!place)
		place = make_room_in(table, key.first);
	if (!place)
		place = make_room_in(table, key.second);
	if (place)
		atomic_store_explicit(place, key.tag << TAG_SHIFT | (uint64_t)(uintptr_t)block,
				      memory_order_release);
	return place != NULL;
}

static size_t
bytes_of(unsigned log)
{
	return sizeof(struct ca_bases_table) + (sizeof(_Atomic uint64_t[BUCKET]) << log);
}

/* Twice as large. Where there is no memory for that, the old one stays. */
static CA_APART void
grow(struct ca_bases *bases)
{
	struct ca_bases_table *old = table_of(bases), *table;
	unsigned log = old ? old->log + 1 : LOG_MIN;
	size_t bucket, i;

	table = ca_arena_alloc_aligned(bases->arena, bytes_of(log),
				       _Alignof(struct ca_bases_table));
	if (!table)
		return;
	table->log = log;
	bases->entered = 0;
	for (bucket = 0; old && bucket >> old->log == 0; bucket++)
		for (i = 0; i < BUCKET; i++) {
			uint64_t entry =
				atomic_load_explicit(&old->places[bucket][i], memory_order_relaxed);

			if (entry)
				bases->entered += enter(table, block_of(entry));
		}
	atomic_store_explicit(&bases->table, table, memory_order_release);
	if (old)
		ca_arena_give_pages((char *)old + sizeof(*old), bytes_of(old->log) - sizeof(*old));
}

/* Places that may be taken. */
static uint64_t
limit_of(const struct ca_bases_table *table)
{
	return (uint64_t)BUCKET * 7 / 8 << table->log;
}

void
ca_bases_prepare_locked(struct ca_bases *bases)
{
	const struct ca_bases_table *table = table_of(bases);

	if (!table || bases->entered >= limit_of(table) / 8 * 7)
		grow(bases);
}

void
ca_bases_enter_locked(struct ca_bases *bases, struct ca_block *block)
{
	struct ca_bases_table *table = table_of(bases);

	if (!table || bases->entered >= limit_of(table)) {
		grow(bases);
		table = table_of(bases);
	}
	if (table)
		bases->entered += enter(table, block);
}

void
ca_bases_leave_locked(struct ca_bases *bases, const struct ca_block *block)
{
	struct ca_bases_table *table = table_of(bases);
	struct key key;
	unsigned i;

	if (!table)
		return;
	key = key_of(table, block->address);
	for (i = 0; i < 2 * BUCKET; i++) {
		size_t bucket = i < BUCKET ? key.first : key.second;
		_Atomic uint64_t *place = &table->places[bucket][place_from(&key, i)];

		if (block_of(atomic_load_explicit(place, memory_order_relaxed)) != block)
			continue;
		atomic_store_explicit(place, 0, memory_order_relaxed);
		bases->entered--;
		return;
	}
}

static bool
is_live_at(struct ca_block *block, uint64_t address)
{
	return block->address == address;
}

static bool
claims_at(struct ca_block *block, uint64_t address)
{
	uint64_t live = address | CA_QUICK_LIVE;

	return atomic_compare_exchange_strong_explicit(&block->quick, &live,
						       address | CA_QUICK_KEPT,
						       memory_order_acq_rel, memory_order_relaxed);
}

static inline __attribute__((always_inline)) struct ca_block *
find(const struct ca_bases *bases, uint64_t address,
     bool (*is_it)(struct ca_block *block, uint64_t address))
{
	struct ca_bases_table *table = table_of(bases);
	struct key key;
	unsigned i;

	if (!table)
		return NULL;
	key = key_of(table, address);
	for (i = 0; i < 2 * BUCKET; i++) {
		size_t bucket = i < BUCKET ? key.first : key.second;
		uint64_t entry = atomic_load_explicit(&table->places[bucket][place_from(&key, i)],
						      memory_order_acquire);

		if (entry && entry >> TAG_SHIFT == key.tag && is_it(block_of(entry), address))
			return block_of(entry);
	}
	return NULL;
}

struct ca_block *
ca_bases_find_locked(const struct ca_bases *bases, uint64_t address)
{
	return find(bases, address, is_live_at);
}

struct ca_block *
ca_bases_claim(const struct ca_bases *bases, uint64_t address)
{
	/* one byte behind its base the word would look like the block's own */
	return address % CA_GRAIN ? NULL : find(bases, address, claims_at);
}

uint64_t
ca_bases_count_locked(const struct ca_bases *bases)
{
	struct ca_bases_table *table = table_of(bases);
	uint64_t count = 0;
	size_t bucket, i;

	for (bucket = 0; table && bucket >> table->log == 0; bucket++)
		for (i = 0; i < BUCKET; i++)
			count += atomic_load_explicit(&table->places[bucket][i],
						      memory_order_relaxed) != 0;
	return count;
}
