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
 */
#include "shim/track/stream_cache.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/bind/scope.h"
#include "shim/state/record_arena.h"

enum { UNOWNED = 0, SWEEP_MIN = 32 };

struct entry {
	struct ca_submission_cache cache; /* the thread's that owns the entry */
	struct entry *next;               /* set once */
	_Atomic int owner;                /* thread number, or UNOWNED */
};

static const struct ca_submission_cache none;

/* The cast is for those that own one: nobody writes through this value. */
__thread struct ca_submission_cache *ca_submission_cache
	__attribute__((tls_model("initial-exec"))) = (struct ca_submission_cache *)(uintptr_t)&none;

__thread struct ca_submission_slot *ca_submission_per_thread
	__attribute__((tls_model("initial-exec"))) =
		(struct ca_submission_slot *)(uintptr_t)&none.per_thread;

static struct entry *_Atomic first;  /* of all; the latest */
static struct entry *_Atomic cursor; /* entries before it were looked at since the last sweep */
static _Atomic unsigned entries;     /* in the list */
static _Atomic unsigned since_sweep; /* entries taken since the last one */
static _Atomic bool sweeping;

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
	if (entry)
		memset(&entry->cache, 0, sizeof(entry->cache));
	return entry;
}

static struct entry *
take_new(int self)
{
	struct entry *entry = ca_slab_take(sizeof(*entry));

	if (!entry)
		return NULL;
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
	ca_submission_per_thread = ca_submission_cache->per_thread;
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
