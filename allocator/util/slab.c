/* SPDX-License-Identifier: MIT */
/*
 * Two stacks of records are at hand, as in Bonwick's magazines: the record given back last is had
 * next, and only when both are full does the colder one go to its slabs, record by record. A slab
 * of which all is free then is one of the whole ones, and of those so many keep their memory that a
 * program which goes up and down does not ask the system for the same pages again and again. The
 * others' memory goes back, a few slabs' at a time, since the heap's lock is held: each is a system
 * call.
 *
 * The slabs of a region lie behind its head, which describes them. Regions are multiples of their
 * size in the address space, so that a record finds its slab.
 *
 * A reader without the lock (allocator/block/live_table.c) may look at a record that has been given
 * back: the region stays mapped until the heap goes, and what lies at a record's place is that
 * record's, or zero. Nothing else is ever put there, so the reader cannot take something else for
 * it.
 */
#include "allocator/util/slab.h"

#include <stdint.h>
#include <unistd.h>

enum {
	SLAB_LOG =
		12,  /* at least a page: of a cached segment one record stays, and keeps its slab */
	SLABS = 128, /* of a region, of which the first is its head */
	WHOLE_KEPT = 32, /* slabs that keep their memory, and a quarter of those in use */
	/* slabs whose memory goes back at a time: no more come to be too many at a time */
	GIVEN_MAX = 2 * CA_SLABS_AT_HAND,
	/* Bytes of addresses from which on regions are had by the huge page, whose memory comes at
	 * once. (With 1,000,000 live blocks a pair takes 565 ns instead of 676, medians of three
	 * runs; with 100,000 0 to 3 % less. From 4 MiB on 57,400 blocks cost 139 bytes each.) */
	HUGE_FROM = 6 << 20,
};

struct slab {
	struct ca_list link; /* one of the lists of struct ca_slabs, or none */
	void *free;          /* records given back, linked by their first words */
	uint16_t n_free;     /* of these, and of those that follow */
	uint16_t n_fresh;    /* the last ones: not had since the memory came */
	uint16_t each;       /* records */
	uint16_t step;       /* bytes from one to the next */
};

struct region {
	struct ca_arena_chunk chunk; /* of those that came with it, too */
	bool huge;                   /* they lie on a huge page */
	struct slab slabs[SLABS - 1];
};
_Static_assert(sizeof(struct region) <= (size_t)1 << SLAB_LOG, "it is as large as a slab");

static size_t
region_bytes(const struct ca_slabs *slabs)
{
	return (size_t)SLABS << slabs->log;
}

static struct region *
region_of(const struct ca_slabs *slabs, void *inside)
{
	return (struct region *)(void *)((char *)inside -
					 ((uintptr_t)inside & (region_bytes(slabs) - 1)));
}

static struct slab *
slab_of(const struct ca_slabs *slabs, void *record)
{
	struct region *region = region_of(slabs, record);

	return &region->slabs[(((char *)record - (char *)region) >> slabs->log) - 1];
}

static char *
memory_of(const struct ca_slabs *slabs, struct slab *slab)
{
	struct region *region = region_of(slabs, slab);

	return (char *)region + ((size_t)(slab - region->slabs + 1) << slabs->log);
}

void
ca_slabs_init(struct ca_slabs *slabs, struct ca_arena *arena, size_t bytes, size_t kept,
	      size_t first_step)
{
	long page = sysconf(_SC_PAGESIZE);

	*slabs = (struct ca_slabs){
		.log = SLAB_LOG, .bytes = bytes, .kept = kept, .step = first_step, .arena = arena
	};
	while (page > 0 && (size_t)page > (size_t)1 << slabs->log)
		slabs->log++;
	ca_list_init(&slabs->partial);
	ca_list_init(&slabs->whole);
	ca_list_init(&slabs->released);
}

static void
region_enter(struct ca_slabs *slabs, struct region *region)
{
	size_t each = ((size_t)1 << slabs->log) / slabs->step;
	unsigned i;

	for (i = 0; i < SLABS - 1; i++) {
		struct slab *slab = &region->slabs[i];

		slab->step = (uint16_t)slabs->step;
		slab->n_free = slab->n_fresh = slab->each = (uint16_t)each;
		ca_list_insert(&slabs->released, &slab->link);
	}
	slabs->capacity += each * (SLABS - 1);
	slabs->step = slabs->bytes;
}

/* `is_wanted`: not only its addresses. */
static bool
region_add(struct ca_slabs *slabs, bool is_wanted)
{
	size_t bytes = region_bytes(slabs), all = bytes, at;
	char *regions;

	if (is_wanted && all < CA_ARENA_HUGE && slabs->capacity * slabs->bytes >= HUGE_FROM)
		all = CA_ARENA_HUGE;
	regions = ca_arena_region(slabs->arena, all);
	if (!regions)
		return false;
	for (at = 0; at < all; at += bytes) {
		struct region *region = (struct region *)(void *)(regions + at);

		region->huge = all > bytes;
		region_enter(slabs, region);
	}
	return true;
}

bool
ca_slabs_reserve(struct ca_slabs *slabs, size_t n)
{
	while (slabs->capacity < n)
		if (!region_add(slabs, false))
			return false;
	return true;
}

/* ---- to hand */

/* One with a free record; NULL: mmap fails. */
static struct slab *
slab_with_free(struct ca_slabs *slabs)
{
	struct slab *slab;

	if (!ca_list_empty(&slabs->partial))
		return CA_CONTAINER_OF(slabs->partial.next, struct slab, link);
	if (!ca_list_empty(&slabs->whole)) {
		slab = CA_CONTAINER_OF(slabs->whole.next, struct slab, link);
		slabs->n_whole--;
	} else {
		if (ca_list_empty(&slabs->released) && !region_add(slabs, true))
			return NULL;
		slab = CA_CONTAINER_OF(slabs->released.next, struct slab, link);
		slabs->touched++;
	}
	ca_list_remove(&slab->link);
	ca_list_insert(&slabs->partial, &slab->link);
	return slab;
}

/* Some of the slab's come to hand, where nothing is. */
static void
refill(struct ca_slabs *slabs, struct slab *slab)
{
	void *last = slab->free;
	unsigned n = 1;

	slabs->free = slab->free;
	for (; n < CA_SLABS_AT_HAND; n++) {
		void *next;

		memcpy(&next, last, sizeof(next));
		if (!next)
			break;
		last = next;
	}
	memcpy(&slab->free, last, sizeof(slab->free));
	memset(last, 0, sizeof(slab->free));
	slabs->listed = n;
	slab->n_free = (uint16_t)(slab->n_free - n);
}

/* One that was not had since the memory came. */
static void *
fresh(const struct ca_slabs *slabs, struct slab *slab)
{
	size_t end = (size_t)(slab->each - slab->n_fresh + 1) * slab->step;

	slab->n_fresh--;
	slab->n_free--;
	return memory_of(slabs, slab) + end - slabs->bytes;
}

static void *
get_from_slab(struct ca_slabs *slabs)
{
	struct slab *slab = slab_with_free(slabs);
	void *record = NULL;

	if (!slab)
		return NULL;
	if (slab->free)
		refill(slabs, slab);
	else
		record = fresh(slabs, slab);
	if (!slab->n_free)
		ca_list_remove(&slab->link);
	if (!record)
		return ca_slabs_again(slabs);
	slabs->used++;
	return record;
}

void *
ca_slabs_fetch(struct ca_slabs *slabs)
{
	if (!slabs->older)
		return get_from_slab(slabs);
	slabs->free = slabs->older;
	slabs->listed = CA_SLABS_AT_HAND;
	slabs->older = NULL;
	return ca_slabs_again(slabs);
}

void *
ca_slabs_get(struct ca_slabs *slabs)
{
	void *record = ca_slabs_again(slabs);

	if (record) /* also a fresh one: the system may have kept the memory that it was to take */
		memset(record, 0, slabs->bytes - slabs->kept);
	return record;
}

/* ---- and back */

static void
put_in_slab(struct ca_slabs *slabs, void *record)
{
	struct slab *slab = slab_of(slabs, record);

	memcpy(record, &slab->free, sizeof(slab->free));
	slab->free = record;
	slab->n_free++;
	if (slab->n_free == slab->each) {
		ca_list_remove(&slab->link);
		ca_list_insert(slabs->whole.next, &slab->link);
		slabs->n_whole++;
	} else if (slab->n_free == 1) {
		ca_list_insert(&slabs->partial, &slab->link);
	}
}

/* Whole, and it has memory. */
static bool
is_whole(const struct slab *slab)
{
	return slab->n_free == slab->each && slab->n_fresh < slab->each;
}

static void
release_memory(struct ca_slabs *slabs, struct slab *slab)
{
	ca_list_remove(&slab->link);
	ca_list_insert(slabs->released.next, &slab->link);
	slabs->n_whole--;
	slabs->touched--;
	slab->free = NULL;
	slab->n_fresh = slab->each;
}

/* Before the first memory of a region goes back: that of slabs which were never had came with the
 * huge page. */
static void
end_huge(struct ca_slabs *slabs, struct region *region)
{
	struct slab *slab;

	region->huge = false;
	ca_arena_keep_small(region, region_bytes(slabs));
	for (slab = region->slabs; slab < region->slabs + (SLABS - 1); slab++)
		if (slab->n_fresh == slab->each)
			ca_arena_give_pages(memory_of(slabs, slab), (size_t)1 << slabs->log);
}

/* A whole slab's memory, and that of others behind it, at most so many in all. */
static void
give_run(struct ca_slabs *slabs, struct slab *slab, size_t most)
{
	struct region *region = region_of(slabs, slab);
	struct slab *end = slab;

	if (region->huge)
		end_huge(slabs, region);
	while (most-- && end < region->slabs + (SLABS - 1) && is_whole(end))
		release_memory(slabs, end++);
	ca_arena_give_pages(memory_of(slabs, slab), (size_t)(end - slab) << slabs->log);
}

/* More whole slabs have memory than are kept so: the coldest lose it. */
static void
give_back(struct ca_slabs *slabs)
{
	unsigned i;

	for (i = 0; i < GIVEN_MAX; i++) {
		size_t kept = WHOLE_KEPT + (slabs->touched - slabs->n_whole) / 4;

		if (slabs->n_whole <= kept)
			return;
		give_run(slabs, CA_CONTAINER_OF(slabs->whole.prev, struct slab, link),
			 slabs->n_whole - kept);
	}
}

void
ca_slabs_flush(struct ca_slabs *slabs)
{
	void *record = slabs->older;

	slabs->older = slabs->free;
	slabs->free = NULL;
	slabs->listed = 0;
	if (!record)
		return;
	while (record) {
		void *next;

		memcpy(&next, record, sizeof(next));
		put_in_slab(slabs, record);
		record = next;
	}
	give_back(slabs);
}
