/* SPDX-License-Identifier: MIT */
#include "shim/track/stream_table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#include "allocator/util/yield.h"
#include "shim/bind/scope.h"
#include "shim/state/record_arena.h"

enum { BUCKETS = 256, PLACES_PER_BUCKET = 64, AWAIT_S = 1 };

struct entry {
	struct entry *next; /* in its bucket, or free */
	struct ca_stream_name name;
	struct ca_context *owner; /* the stream's context; NULL: not known yet */
	struct ca_stream *stream;
	uint64_t claim; /* 0: entered */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *buckets[BUCKETS]; /* under lock, like all below */
static struct entry *spare;
static uint64_t last_claim;
static _Atomic unsigned holders; /* not under lock */

/* Several entries of one default stream's handle (threads, contexts) share a bucket, and are few.
 */
static struct entry **
bucket_of(CUstream handle)
{
	return &buckets[(uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u >> 56];
}

static struct entry *
find_locked(const struct ca_stream_name *name)
{
	struct entry *entry = *bucket_of(name->handle);

	while (entry &&
	       (entry->name.handle != name->handle || entry->name.context != name->context ||
		entry->name.thread != name->thread))
		entry = entry->next;
	return entry;
}

static struct entry *
add_locked(const struct ca_stream_name *name)
{
	struct entry **bucket = bucket_of(name->handle);
	struct entry *entry = spare;

	if (entry)
		spare = entry->next;
	else
		entry = ca_slab_take(sizeof(*entry));
	if (!entry)
		return NULL;
	*entry = (struct entry){
		.next = *bucket, .name = *name, .owner = name->context, .claim = ++last_claim
	};
	*bucket = entry;
	return entry;
}

static void
remove_locked(struct entry *gone)
{
	struct entry **link = bucket_of(gone->name.handle);

	while (*link != gone)
		link = &(*link)->next;
	*link = gone->next;
	gone->next = spare;
	spare = gone;
}

enum ca_stream_claim
ca_stream_table_claim(const struct ca_stream_name *name, struct ca_stream **ret_stream,
		      uint64_t *ret_claim)
{
	CA_HOLD_LOCK(&lock);
	struct entry *entry = find_locked(name);

	if (entry && entry->claim)
		return CA_STREAM_BUSY;
	if (entry) {
		*ret_stream = entry->stream;
		return CA_STREAM_FOUND;
	}
	entry = add_locked(name);
	if (!entry)
		return CA_STREAM_NO_MEMORY;
	*ret_claim = entry->claim;
	return CA_STREAM_CLAIMED;
}

struct ca_stream *
ca_stream_table_find(const struct ca_stream_name *name)
{
	CA_HOLD_LOCK(&lock);
	const struct entry *entry = find_locked(name);

	return entry ? entry->stream : NULL;
}

bool
ca_stream_table_enter(const struct ca_stream_name *name, uint64_t claim, struct ca_context *context,
		      struct ca_stream *stream)
{
	CA_HOLD_LOCK(&lock);
	struct entry *entry = find_locked(name);

	if (!entry || entry->claim != claim)
		return false;
	entry->owner = context;
	entry->stream = stream;
	entry->claim = 0;
	return true;
}

void
ca_stream_table_abandon(const struct ca_stream_name *name, uint64_t claim)
{
	CA_HOLD_LOCK(&lock);
	struct entry *entry = find_locked(name);

	if (entry && entry->claim == claim)
		remove_locked(entry);
}

static bool
take_locked(struct entry *entry, struct ca_stream **ret_stream)
{
	if (!entry)
		return false;
	*ret_stream = entry->stream;
	remove_locked(entry);
	return true;
}

bool
ca_stream_table_take(CUstream handle, struct ca_stream **ret_stream)
{
	struct ca_stream_name name = { .handle = handle };
	CA_HOLD_LOCK(&lock);

	return take_locked(find_locked(&name), ret_stream);
}

bool
ca_stream_table_take_of_context(const struct ca_context *context, struct ca_stream **ret_stream)
{
	CA_HOLD_LOCK(&lock);
	struct entry *entry = NULL;

	for (unsigned i = 0; i < BUCKETS && !entry; i++)
		for (entry = buckets[i]; entry && entry->owner != context;)
			entry = entry->next;
	return take_locked(entry, ret_stream);
}

bool
ca_stream_table_take_of_thread(uint64_t thread, struct ca_stream **ret_stream)
{
	CA_HOLD_LOCK(&lock);
	struct entry *entry = *bucket_of(CU_STREAM_PER_THREAD);

	while (entry && entry->name.thread != thread)
		entry = entry->next;
	return take_locked(entry, ret_stream);
}

/* Those of one bucket from the first `skip` on. A place stands for a bucket and a number in it. */
static unsigned
list_bucket(unsigned bucket, unsigned skip, struct ca_stream_known *ret_known, unsigned *ret_passed)
{
	CA_HOLD_LOCK(&lock);
	const struct entry *entry = buckets[bucket];
	unsigned n = 0;

	for (*ret_passed = 0; entry && n < CA_STREAM_KNOWN_MAX; entry = entry->next) {
		if ((*ret_passed)++ < skip || entry->claim || !entry->owner ||
		    entry->name.handle == CU_STREAM_LEGACY)
			continue;
		ret_known[n++] = (struct ca_stream_known){ entry->name.handle, entry->owner,
							   entry->name.thread };
	}
	return n;
}

unsigned
ca_stream_table_list(unsigned *place, struct ca_stream_known ret_known[CA_STREAM_KNOWN_MAX])
{
	unsigned n = 0, passed;

	for (; !n && *place < BUCKETS * PLACES_PER_BUCKET;) {
		unsigned bucket = *place / PLACES_PER_BUCKET, skip = *place % PLACES_PER_BUCKET;

		n = list_bucket(bucket, skip, ret_known, &passed);
		if (n < CA_STREAM_KNOWN_MAX || passed >= PLACES_PER_BUCKET)
			*place = (bucket + 1) * PLACES_PER_BUCKET;
		else
			*place = bucket * PLACES_PER_BUCKET + passed;
	}
	return n;
}

void
ca_stream_table_hold(void)
{
	atomic_fetch_add(&holders, 1);
}

void
ca_stream_table_release(void)
{
	atomic_fetch_sub(&holders, 1);
}

void
ca_stream_table_await(void)
{
	struct timespec now, end;

	if (!atomic_load(&holders))
		return;
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += AWAIT_S;
	do {
		ca_yield();
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (atomic_load(&holders) && (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec &&
								       now.tv_nsec < end.tv_nsec)));
}

void
ca_stream_table_after_fork_child(void)
{
	atomic_store(&holders, 0);
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	for (unsigned i = 0; i < BUCKETS; i++)
		buckets[i] = NULL;
	spare = NULL;
}
