/* SPDX-License-Identifier: MIT */
/*
 * A hash table of buckets, one cache line each. A block may be in any of four buckets, two on each
 * side, in any place there; where all are full one of theirs goes to another bucket. With at most
 * seven eighths of the places taken that leaves hardly any without a place: such a block is found
 * by the tree.
 *
 * An entry is one word: the pointer and, in the bits above it, some of the hash, so that a reader
 * looks at hardly any block but the right one. Records of blocks are never unmapped while the heap
 * is there, nor are tables that have been outgrown or are too large by now, though their memory may
 * go back to the system: then they read as zeros. A table's memory is a table of that size again,
 * or nothing, and a record's is a record (util/slab.c). So a reader without the lock may look at a
 * block that is gone, and then sees that it is. It may miss a block that is moved under its eyes:
 * then the way with the lock finds it.
 */
#include "allocator/block/block.h"

#include "config/mutant.h"

enum {
	BUCKET = CA_BASES_BUCKET,
	LOG_MIN = 10,      /* 8 KiB */
	LOG_SPARSEST = 11, /* 16 KiB: up to 512 blocks */
	LOG_SPARSE = 13,   /* 64 KiB */
	TAG_SHIFT = CA_BASES_TAG_SHIFT,
	/* 64 KiB: in a small one threads write to the same cache lines. (A pair of two threads that
	 * miss took 160 to 210 ns of the processors' time instead of 240 to 280 before they had a
	 * side each, and with that 1.6 times two processes' time instead of 1.7.) */
	LOG_SHARED = 13,
	/* At most half of its places are taken: it does not grow until it is shared no more, and a
	 * block that finds no place ends all leases. (Two threads, each with 6,000 live blocks and
	 * 64 that come and go, and two buckets for a block: of a million requests 2,500 take the
	 * heap's lock, with seven eighths 17,000 to 25,000, and with one bucket 370,000. Of 400,000
	 * entries in a half full table 545 found no place in two buckets, and 4 in four.) */
	LIMIT_SHARED_LOG = 1,
	SHRINK_LOG = 3, /* by so many powers of two, when half of that would be enough */
};

__thread struct ca_bases_side ca_bases_side = { .keep = UINT64_MAX };

/* Where a block may be: in the bucket of that place, and in three others. */
struct key {
	uint64_t tag;
	size_t place;
};
enum { CANDIDATES = 4 };

/* Of the four, by any of them: itself, that of the other side, and two elsewhere. */
static inline size_t
candidate(const struct ca_bases_table *table, struct key key, unsigned i)
{
	size_t elsewhere = (key.tag << 3 | BUCKET) & ~(size_t)CA_BASES_SIDE;
	size_t mask = ((size_t)1 << table->log) - 1;

	return (key.place ^ (i & 1 ? CA_BASES_SIDE : 0) ^ (i & 2 ? elsewhere : 0)) & mask;
}

static inline struct key
key_of(const struct ca_bases_table *table, uint64_t address)
{
	uint64_t hash = ca_bases_hash(address / CA_GRAIN);

	return (struct key){ .tag = ca_bases_tag(hash), .place = ca_bases_place(table, hash) };
}

/* The same, and the calling thread's side comes first. */
static inline struct key
key_here(const struct ca_bases_table *table, uint64_t address)
{
	struct key key = key_of(table, address);

	key.place = ca_bases_here(key.place);
	return key;
}

void
ca_bases_take_side_locked(struct ca_bases *bases)
{
	if (ca_bases_side.keep != UINT64_MAX)
		return;
	ca_bases_side.keep = ~(uint64_t)CA_BASES_SIDE;
	ca_bases_side.side = bases->sides++ % 2 ? CA_BASES_SIDE : 0;
}

/* In place of none, so that a free needs not look whether there is one. Nothing is ever entered. */
enum { LOG_NONE = 5 };
_Static_assert(1 << LOG_NONE >= 2 * CA_BASES_SIDE, "both sides");
__extension__ static struct ca_bases_table no_table = { .log = LOG_NONE,
							.shift = 64 - LOG_NONE,
							.places = { [(1 << LOG_NONE) - 1] = 0 } };

void
ca_bases_init(struct ca_bases *bases, struct ca_arena *arena)
{
	*bases = (struct ca_bases){ .table = &no_table, .arena = arena };
}

/* NULL: none yet. */
static struct ca_bases_table *
table_of(const struct ca_bases *bases)
{
	struct ca_bases_table *table = atomic_load_explicit(&bases->table, memory_order_acquire);

	return table == &no_table ? NULL : table;
}

/* A place without an entry; NULL: the bucket is full. */
static _Atomic uint64_t *
empty_place(struct ca_bases_table *table, size_t place)
{
	unsigned i;

	for (i = 0; i < BUCKET; i++)
		if (!atomic_load_explicit(&table->places[place ^ i], memory_order_relaxed))
			return &table->places[place ^ i];
	return NULL;
}

/* An entry of the bucket goes to another one where it may be. A reader finds it here or there, or
 * misses it. */
static CA_APART _Atomic uint64_t *
empty_by_move(struct ca_bases_table *table, size_t place)
{
	unsigned i, j;

	for (i = 0; i < BUCKET; i++) {
		_Atomic uint64_t *from = &table->places[place ^ i], *to = NULL;
		uint64_t entry = atomic_load_explicit(from, memory_order_relaxed);
		struct key key = { .tag = entry >> TAG_SHIFT, .place = place ^ i };

		for (j = 1; !to && j < CANDIDATES; j++)
			to = empty_place(table, candidate(table, key, j));
		if (!to)
			continue;
		atomic_store_explicit(to, entry, memory_order_release);
		return from;
	}
	return NULL;
}

static bool
enter(struct ca_bases_table *table, struct ca_block *block)
{
	struct key key = key_of(table, block->address);
	_Atomic uint64_t *place = NULL;
	unsigned i;

	for (i = 0; !place && i < CANDIDATES; i++)
		place = empty_place(table, candidate(table, key, i));
	for (i = 0; !place && i < CANDIDATES; i++)
		place = empty_by_move(table, candidate(table, key, i));
	if (place)
		atomic_store_explicit(place, key.tag << TAG_SHIFT | (uint64_t)(uintptr_t)block,
				      memory_order_release);
	return place != NULL;
}

static size_t
bytes_of(unsigned log)
{
	return sizeof(struct ca_bases_table) + (sizeof(_Atomic uint64_t) << log);
}

/* An empty one; NULL: mmap fails. One that was used before may have kept some of its memory. */
static struct ca_bases_table *
table_make(struct ca_bases *bases, unsigned log)
{
	struct ca_bases_table *table = log < CA_BASES_SIZES ? bases->tables[log] : NULL;
	size_t i;

	if (log >= CA_BASES_SIZES)
		return NULL;
	for (i = 0; table && i >> log == 0; i++)
		atomic_store_explicit(&table->places[i], 0, memory_order_relaxed);
	if (table)
		return table;
	table = ca_arena_alloc_aligned(bases->arena, bytes_of(log),
				       _Alignof(struct ca_bases_table));
	if (table) {
		table->log = log;
		table->shift = 64 - log;
	}
	bases->tables[log] = table;
	return table;
}

/* Places that may be taken: fewer in a table that takes little memory, since blocks at their own
 * places are found soonest. (With a quarter instead of a half in the smallest ones a pair among
 * 1,000 blocks takes 3 % fewer instructions, a call of the recorded traces up to 5.) */
static uint64_t
limit_of(unsigned log)
{
	if (log > LOG_SPARSE)
		return (uint64_t)7 << log >> 3;
	return (uint64_t)1 << log >> (log > LOG_SPARSEST ? 1 : 2);
}

/* Its memory goes back, and does not come again with that of its neighbours. */
static void
give(struct ca_bases_table *table)
{
	char *places = (char *)table + sizeof(*table);
	size_t bytes = bytes_of(table->log) - sizeof(*table);

	if (bytes_of(table->log) >= CA_ARENA_HUGE)
		ca_arena_keep_small(places, bytes);
	ca_arena_give_pages(places, bytes);
}

/* Where there is no memory for another, the old one stays. */
static CA_APART void
change(struct ca_bases *bases, unsigned log)
{
	struct ca_bases_table *old = table_of(bases), *table = table_make(bases, log);
	size_t i;

	if (!table)
		return;
	bases->entered = 0;
	bases->many = limit_of(log);
	bases->few = log > LOG_MIN + SHRINK_LOG ? limit_of(log - SHRINK_LOG) / 4 * 3 : 0;
	for (i = 0; old && i >> old->log == 0; i++) {
		uint64_t entry = atomic_load_explicit(&old->places[i], memory_order_relaxed);

		if (entry)
			bases->entered += enter(table, ca_bases_block(entry));
	}
	atomic_store_explicit(&bases->table, table, memory_order_release);
	if (old)
		give(old);
}

static bool
is_shared(const struct ca_bases *bases)
{
	return !bases->many && table_of(bases);
}

void
ca_bases_prepare_locked(struct ca_bases *bases)
{
	const struct ca_bases_table *table = table_of(bases);

	if (!is_shared(bases) && (!table || bases->entered >= bases->many / 8 * 7))
		change(bases, table ? table->log + 1 : LOG_MIN);
}

bool
ca_bases_share_locked(struct ca_bases *bases)
{
	const struct ca_bases_table *table = table_of(bases);

	if (!table || table->log < LOG_SHARED)
		change(bases, LOG_SHARED);
	else if (bases->entered > (uint64_t)1 << table->log >> LIMIT_SHARED_LOG)
		change(bases, table->log + 1);
	if (!table_of(bases))
		return false;
	bases->many = 0;
	return true;
}

void
ca_bases_unshare_locked(struct ca_bases *bases)
{
	const struct ca_bases_table *table = table_of(bases);

	bases->many = table ? limit_of(table->log) : 0;
}

static bool
enter_bucket(struct ca_bases_table *table, size_t place, uint64_t entry)
{
	unsigned i;

	for (i = 0; i < BUCKET; i++) {
		uint64_t none = 0;

		if (atomic_load_explicit(&table->places[place ^ i], memory_order_relaxed))
			continue;
		if (CA_MUTANT_BETWEEN(LEASE_ENTERS_OVER))
			none = atomic_load_explicit(&table->places[place ^ i],
						    memory_order_relaxed);
		if (atomic_compare_exchange_strong_explicit(&table->places[place ^ i], &none, entry,
							    memory_order_release,
							    memory_order_relaxed))
			return true;
	}
	return false;
}

bool
ca_bases_enter_atomic(struct ca_bases *bases, struct ca_block *block, uint64_t address)
{
	struct ca_bases_table *table = table_of(bases);
	uint64_t entry;
	struct key key;
	unsigned i;

	if (!table)
		return false;
	key = key_here(table, address);
	entry = key.tag << TAG_SHIFT | (uint64_t)(uintptr_t)block;
	for (i = 0; i < CANDIDATES; i++)
		if (enter_bucket(table, candidate(table, key, i), entry))
			return true;
	return false;
}

CA_APART void
ca_bases_enter_otherwise_locked(struct ca_bases *bases, struct ca_block *block)
{
	struct ca_bases_table *table = table_of(bases);

	if (is_shared(bases)) {
		struct ca_heap *heap = CA_CONTAINER_OF(bases, struct ca_heap, bases);

		if (ca_bases_enter_atomic(bases, block, block->address)) {
			bases->entered++;
			return;
		}
		heap->hooks.end_leases(heap);
	}
	if (!table || bases->entered >= bases->many) {
		change(bases, table ? table->log + 1 : LOG_MIN);
		table = table_of(bases);
	}
	if (table)
		bases->entered += enter(table, block);
}

/* The block's entry, if it is in that bucket. */
static inline _Atomic uint64_t *
place_in(struct ca_bases_table *table, size_t place, const struct ca_block *block)
{
	unsigned i;

	for (i = 0; i < BUCKET; i++) {
		uint64_t entry =
			atomic_load_explicit(&table->places[place ^ i], memory_order_relaxed);

		if (ca_bases_block(entry) == block)
			return &table->places[place ^ i];
	}
	return NULL;
}

bool
ca_bases_leave_atomic(struct ca_bases *bases, const struct ca_block *block)
{
	struct ca_bases_table *table = table_of(bases);
	_Atomic uint64_t *place = NULL;
	struct key key;
	unsigned i;

	if (!table)
		return false;
	key = key_here(table, block->address);
	for (i = 0; !place && i < CANDIDATES; i++)
		place = place_in(table, candidate(table, key, i), block);
	if (place)
		atomic_store_explicit(place, 0, memory_order_relaxed);
	return place != NULL;
}

CA_APART void
ca_bases_leave_otherwise_locked(struct ca_bases *bases, const struct ca_block *block)
{
	if (ca_bases_leave_atomic(bases, block) && --bases->entered < bases->few &&
	    !is_shared(bases))
		change(bases, table_of(bases)->log - SHRINK_LOG);
}

static bool
is_live_at(struct ca_block *block, uint64_t address)
{
	return block->address == address;
}

/* An entry is usually at its own place in its first bucket. */
static inline __attribute__((always_inline)) struct ca_block *
find_in(const struct ca_bases_table *table, size_t place, uint64_t tag, uint64_t address,
	bool (*is_it)(struct ca_block *block, uint64_t address))
{
	unsigned i;

	for (i = 0; i < BUCKET; i++) {
		uint64_t entry =
			atomic_load_explicit(&table->places[place ^ i], memory_order_acquire);

		if (entry && entry >> TAG_SHIFT == tag && is_it(ca_bases_block(entry), address))
			return ca_bases_block(entry);
	}
	return NULL;
}

static inline __attribute__((always_inline)) struct ca_block *
find(const struct ca_bases *bases, uint64_t address,
     bool (*is_it)(struct ca_block *block, uint64_t address))
{
	struct ca_bases_table *table = table_of(bases);
	struct ca_block *block = NULL;
	struct key key;
	unsigned i;

	if (!table)
		return NULL;
	key = key_here(table, address);
	for (i = 0; !block && i < CANDIDATES; i++)
		block = find_in(table, candidate(table, key, i), key.tag, address, is_it);
	return block;
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
	return address % CA_GRAIN ? NULL : find(bases, address, ca_block_claims_at);
}

uint64_t
ca_bases_count_locked(const struct ca_bases *bases)
{
	struct ca_bases_table *table = table_of(bases);
	uint64_t count = 0;
	size_t i;

	for (i = 0; table && i >> table->log == 0; i++)
		count += atomic_load_explicit(&table->places[i], memory_order_relaxed) != 0;
	return count;
}
