/* SPDX-License-Identifier: MIT */
/*
 * The caches of all threads stand in one list that only grows. Nobody says when a thread ends
 * (asking libc for a destructor would call malloc, and take the loader's lock), so each cache is
 * marked with its thread's number, and the kernel is asked whether that thread is still there.
 *
 * That happens in sweeps, when the list has nothing free and half as many caches were taken since
 * the last one as it holds: two questions at most for each new thread, and no more than about twice
 * as many caches as there were threads at once. Behind a sweep, what it freed is taken from the
 * front of the list on.
 *
 * No lock: a cache is taken by exchanging its owner, and a sweep that finds another at work leaves
 * it to that one. A signal handler that interrupts a thread here takes another cache; then that one
 * stays, and the thread gives the first back.
 *
 * A table that has become too small stays where it is, since a handler may have interrupted its
 * reader: that is a third of the memory of the one that replaces it.
 */
#include "shim/track/stream_cache.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/bind/scope.h"
#include "shim/state/record_arena.h"

enum {
	UNOWNED = 0,
	SWEEP_MIN = 32,
	SMALL_MASK = (CA_SUBMISSION_SLOTS_MIN - 1) * sizeof(struct ca_submission_slot),
};

#define TABLE_BYTES(slots)                                                                         \
	(sizeof(struct ca_submission_table) + (slots) * sizeof(struct ca_submission_slot))

struct entry {
	struct ca_submission_cache cache; /* the thread's that owns the entry */
	struct entry *next;               /* set once */
	_Atomic int owner;                /* thread number, or UNOWNED */
	_Alignas(64) char small[CA_SUBMISSION_TABLES][TABLE_BYTES(CA_SUBMISSION_SLOTS_MIN)];
};

/* The cast is for those that own one: nobody writes through these values. */
static const struct {
	struct ca_submission_table table;
	struct ca_submission_slot slot;
} empty;
#define EMPTY ((struct ca_submission_table *)(uintptr_t)&empty.table)
static const struct ca_submission_cache none = { .table = { EMPTY, EMPTY, EMPTY } };

__thread struct ca_submission_cache *ca_submission_cache
	__attribute__((tls_model("initial-exec"))) = (struct ca_submission_cache *)(uintptr_t)&none;
#define EMPTY_VIEW                                                                                 \
	{                                                                                          \
		(uintptr_t) & empty.slot, 0                                                        \
	}
__thread struct ca_submission_view ca_submission_views[CA_FLAVOURS]
	__attribute__((tls_model("initial-exec"))) = { EMPTY_VIEW, EMPTY_VIEW };

static struct entry *_Atomic first;  /* of all; the latest */
static struct entry *_Atomic cursor; /* entries before it were looked at since the last sweep */
static _Atomic unsigned entries;     /* in the list */
static _Atomic unsigned since_sweep; /* entries taken since the last one */
static _Atomic bool sweeping;

/* ---- tables */

static unsigned
slots_of(const struct ca_submission_table *table)
{
	return table->mask / sizeof(struct ca_submission_slot) + 1;
}

static void
clear(struct ca_submission_table *table)
{
	memset(table + 1, 0, slots_of(table) * sizeof(struct ca_submission_slot));
	table->used = 0;
}

static struct ca_submission_table *
table_new(unsigned slots)
{
	size_t bytes = TABLE_BYTES(slots);
	struct ca_submission_table *table;

	if (bytes <= CA_SLAB_MAX) {
		table = ca_slab_take(bytes);
	} else {
		table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
		if (table == MAP_FAILED)
			table = NULL;
	}
	if (table)
		table->mask = (slots - 1) * (uint32_t)sizeof(struct ca_submission_slot);
	return table;
}

static uint32_t
home_of(const struct ca_submission_table *table, CUstream handle, CUcontext context)
{
	return ca_submission_hash((CUstream)((uintptr_t)handle ^ (uintptr_t)(void *)context)) &
	       table->mask;
}

struct ca_submission_slot *
ca_submission_find(const struct ca_submission_table *table, CUstream handle, CUcontext context,
		   uint64_t word)
{
	uint32_t offset = home_of(table, handle, context);

	for (unsigned i = 0; i < CA_SUBMISSION_PROBES; i++) {
		struct ca_submission_slot *slot = ca_submission_at(table, offset);

		if (slot->handle == handle && slot->word == word && slot->context == context)
			return slot;
		if (!slot->word)
			return NULL;
		offset = (offset + (uint32_t)sizeof(*slot)) & table->mask;
	}
	return NULL;
}

/* The place that `kept` has or may take: one that is empty or out of date. NULL: there is none. */
static struct ca_submission_slot *
place_for(const struct ca_submission_table *table, const struct ca_submission_slot *kept)
{
	struct ca_submission_slot *slot =
		ca_submission_find(table, kept->handle, kept->context, kept->word);
	uint32_t offset = home_of(table, kept->handle, kept->context);

	for (unsigned i = 0; !slot && i < CA_SUBMISSION_PROBES; i++) {
		if (ca_submission_at(table, offset)->word != kept->word)
			slot = ca_submission_at(table, offset);
		offset = (offset + (uint32_t)sizeof(*slot)) & table->mask;
	}
	return slot;
}

static void
write_slot(struct ca_submission_table *table, struct ca_submission_slot *slot,
	   const struct ca_submission_slot *kept)
{
	table->used += !slot->word;
	ca_submission_write(slot, kept);
}

/* A table of four times the size with what is up to date by `word`. NULL: no memory. */
static struct ca_submission_table *
grown(const struct ca_submission_table *table, uint64_t word)
{
	struct ca_submission_table *larger = table_new(4 * slots_of(table));
	struct ca_submission_slot *place;

	for (uint32_t offset = 0; larger && offset <= table->mask;
	     offset += (uint32_t)sizeof(*place)) {
		const struct ca_submission_slot *slot = ca_submission_at(table, offset);

		place = slot->word == word ? place_for(larger, slot) : NULL;
		if (place)
			write_slot(larger, place, slot);
	}
	return larger;
}

static unsigned
count_current(const struct ca_submission_table *table, uint64_t word)
{
	unsigned n = 0;

	for (uint32_t offset = 0; offset <= table->mask;
	     offset += (uint32_t)sizeof(struct ca_submission_slot))
		n += ca_submission_at(table, offset)->word == word;
	return n;
}

/* Room for one more: a table that is filled with what is out of date begins anew. */
static struct ca_submission_table *
with_room(struct ca_submission_table *table, uint64_t word)
{
	bool is_largest = slots_of(table) == CA_SUBMISSION_SLOTS_MAX;
	unsigned limit = slots_of(table) / (is_largest ? 2 : 4);
	struct ca_submission_table *larger = NULL;

	if (table->used < limit)
		return table;
	if (!is_largest && count_current(table, word) >= limit / 2)
		larger = grown(table, word);
	if (!larger)
		clear(table);
	return larger ? larger : table;
}

static void
publish(const struct ca_submission_cache *own)
{
	for (unsigned i = 0; i < CA_FLAVOURS; i++) {
		ca_submission_views[i].slots = (uintptr_t)(own->table[i] + 1);
		atomic_signal_fence(memory_order_seq_cst);
		ca_submission_views[i].mask = own->table[i]->mask;
	}
}

void
ca_submission_put(struct ca_submission_cache *own, enum ca_submission_which which,
		  const struct ca_submission_slot *kept)
{
	struct ca_submission_table *table;
	struct ca_submission_slot *slot;

	if (own->busy)
		return;
	own->busy = true;
	atomic_signal_fence(memory_order_seq_cst);
	table = with_room(own->table[which], kept->word);
	slot = place_for(table, kept);
	if (!slot)
		slot = ca_submission_at(table, home_of(table, kept->handle, kept->context));
	write_slot(table, slot, kept);
	own->table[which] = table;
	publish(own);
	atomic_signal_fence(memory_order_seq_cst);
	own->busy = false;
}

/* ---- threads */

static int
own_number(void)
{
	return (int)syscall(SYS_gettid);
}

static bool
has_ended(int owner)
{
	return owner != UNOWNED && syscall(SYS_tgkill, getpid(), owner, 0) < 0 && errno == ESRCH;
}

static void
scan(void)
{
	int owner;

	if (atomic_exchange(&sweeping, true))
		return;
	for (struct entry *entry = atomic_load(&first); entry; entry = entry->next) {
		owner = atomic_load(&entry->owner);
		if (has_ended(owner))
			atomic_compare_exchange_strong(&entry->owner, &owner, UNOWNED);
	}
	atomic_store(&since_sweep, 0);
	atomic_store(&cursor, atomic_load(&first));
	atomic_store(&sweeping, false);
}

static struct entry *
take_free(int self)
{
	struct entry *entry = atomic_load(&cursor);
	int free = UNOWNED;

	while (entry && !atomic_compare_exchange_strong(&entry->owner, &free, self)) {
		free = UNOWNED;
		entry = entry->next;
	}
	atomic_store(&cursor, entry ? entry->next : NULL);
	if (entry) {
		entry->cache.busy = false; /* its thread may have ended in between */
		memset(entry->cache.last_default, 0, sizeof(entry->cache.last_default));
		for (unsigned i = 0; i < CA_SUBMISSION_TABLES; i++)
			clear(entry->cache.table[i]);
	}
	return entry;
}

static struct entry *
take_new(int self)
{
	struct entry *entry = ca_slab_take(sizeof(*entry));

	if (!entry)
		return NULL;
	for (unsigned i = 0; i < CA_SUBMISSION_TABLES; i++) {
		entry->cache.table[i] = (struct ca_submission_table *)(void *)entry->small[i];
		entry->cache.table[i]->mask = SMALL_MASK;
	}
	atomic_store(&entry->owner, self);
	entry->next = atomic_load(&first);
	while (!atomic_compare_exchange_weak(&first, &entry->next, entry))
		;
	atomic_fetch_add(&entries, 1);
	return entry;
}

static __attribute__((noinline, cold)) struct ca_submission_cache *
make_own(void)
{
	struct ca_submission_cache *expected = (struct ca_submission_cache *)(uintptr_t)&none;
	CA_KEEP_ERRNO;
	int self = own_number();
	unsigned taken = atomic_fetch_add(&since_sweep, 1);
	struct entry *entry;

	entry = take_free(self);
	if (!entry && taken >= SWEEP_MIN && taken >= atomic_load(&entries) / 2) {
		scan();
		entry = take_free(self);
	}
	if (!entry)
		entry = take_new(self);
	if (!entry)
		return NULL;
	if (!__atomic_compare_exchange_n(&ca_submission_cache, &expected, &entry->cache, false,
					 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		atomic_store(&entry->owner, UNOWNED); /* a signal handler was first */
	publish(ca_submission_cache);
	return ca_submission_cache;
}

struct ca_submission_cache *
ca_submission_cache_own(void)
{
	return ca_submission_cache == &none ? make_own() : ca_submission_cache;
}

/* The thread that forked goes on under another number. The others' caches will be found to have no
 * thread. */
void
ca_submission_cache_after_fork_child(void)
{
	struct entry *entry = (struct entry *)(void *)ca_submission_cache;

	if (ca_submission_cache != &none)
		atomic_store(&entry->owner, own_number());
	atomic_store(&sweeping, false);
}
