/* SPDX-License-Identifier: MIT */
/*
 * All memory of ours, live and freed, is in one tree by address; freed memory also in a list by age
 * and in one of 256 lists by the hash of its kind. These lists, too, are in the order of the frees:
 * the first of a kind is the one most likely to be finished, and if it is not, none of that kind
 * is. So a request looks at one record.
 *
 * A size class is an eighth of a power of two wide, so memory is at most 12.5 % larger than what
 * was asked for. Write-combined memory is taken exactly: its address on the device is another one,
 * by which its size can be asked for as well.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/bind/scope.h"
#include "shim/pinned/internal.h"
#include "shim/state/record_arena.h"
#include "shim/track/contexts.h"

enum {
	BUCKETS = 256,
	CLASS_BITS = 3, /* of a power of two, eight classes */
	KNOWN_FLAGS = 7,
	WRITE_COMBINED = 4,
};

_Atomic bool ca_pinned_on;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around all of these */
static struct ca_tree tree;
static struct ca_list buckets[BUCKETS], ages, spare;
static uint64_t cached, serials;
static uint64_t in_hands, given; /* bytes */
static uint64_t cap;             /* constant once the process is served */

/* The calling thread holds the lock, or is about to; read by its signal handlers. */
static __thread volatile sig_atomic_t held __attribute__((tls_model("initial-exec")));
static __thread uint64_t own_hand __attribute__((tls_model("initial-exec"))); /* bytes */

#define HOLD_RECORDS                                                                               \
	pthread_mutex_t *const records_held __attribute__((unused, cleanup(records_release))) =    \
		records_acquire()

static pthread_mutex_t *
records_acquire(void)
{
	held = 1;
	return ca_lock_acquire(&lock);
}

static void
records_release(pthread_mutex_t *const *mutex)
{
	ca_lock_release(mutex);
	held = 0;
}

bool
ca_pinned_locked_here(void)
{
	return held;
}

static void
reset(void)
{
	held = 0;
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	tree.root = NULL;
	cached = in_hands = own_hand = 0;
	ca_pinned_counts_reset();
	ca_list_init(&ages);
	ca_list_init(&spare);
	for (unsigned i = 0; i < BUCKETS; i++)
		ca_list_init(&buckets[i]);
}

void
ca_pinned_start(const struct ca_config *config)
{
	if (config->disable != CA_DISABLE_OFF || config->pinned != CA_PINNED_CACHE)
		return;
	reset();
	cap = config->pinned_max_bytes ? config->pinned_max_bytes : ca_pinned_default_cap();
	atomic_store(&ca_pinned_on, true);
}

/* The parent's memory is the parent's: a child frees none of it. */
void
ca_pinned_after_fork_child(void)
{
	atomic_store(&ca_pinned_on, false);
	reset();
	ca_pinned_marks_after_fork_child();
}

uint64_t
ca_pinned_cap(void)
{
	return cap;
}

uint64_t
ca_pinned_cached(void)
{
	HOLD_RECORDS;
	return cached;
}

/* ---- kinds */

static uint64_t
class_of(size_t bytes, unsigned flags)
{
	unsigned bits = 63 - (unsigned)__builtin_clzll(bytes);
	uint64_t step = bits > CLASS_BITS ? (uint64_t)1 << (bits - CLASS_BITS) : 1;

	return flags & WRITE_COMBINED ? bytes : (bytes + step - 1) & ~(step - 1);
}

/* Pages come from the node of the processor that asks for them. */
static unsigned
own_node(void)
{
	unsigned node = 0;

	return syscall(SYS_getcpu, NULL, &node, NULL) ? 0 : node;
}

bool
ca_pinned_kind_of(const struct ca_real *real, size_t bytes, unsigned flags,
		  struct ca_pinned_kind *ret_kind)
{
	CUcontext current = ca_context_current(real);
	struct ca_context *context;
	CA_KEEP_ERRNO;

	if (!current || !bytes || bytes > cap || flags & ~(KNOWN_FLAGS | CA_PINNED_PLAIN))
		return false;
	context = ca_context_find(current);
	if (!context)
		context = ca_context_register(real, current, -1, CA_CONTEXT_CREATED);
	if (!context || atomic_load(&context->kind) == CA_CONTEXT_GREEN ||
	    atomic_load(&context->closing))
		return false;
	*ret_kind = (struct ca_pinned_kind){
		.context = context,
		.bytes = class_of(bytes, flags),
		.flags = flags,
		.node = own_node(),
	};
	return true;
}

static bool
is_same_kind(const struct ca_pinned_kind *a, const struct ca_pinned_kind *b)
{
	return a->bytes == b->bytes && a->context == b->context && a->flags == b->flags &&
	       a->node == b->node;
}

static struct ca_list *
bucket_of(const struct ca_pinned_kind *kind)
{
	uint64_t hash = kind->bytes ^ (uintptr_t)kind->context ^ (uint64_t)kind->flags << 48 ^
			(uint64_t)kind->node << 56;

	return &buckets[hash * 0x9e3779b97f4a7c15u >> 56];
}

/* ---- records */

static struct ca_pinned_record *
find_locked(uint64_t address)
{
	struct ca_tree_node *node = ca_tree_find(&tree, address, 0);

	return node ? CA_CONTAINER_OF(node, struct ca_pinned_record, by_address) : NULL;
}

/* Freed memory becomes nobody's. */
static void
unlink_freed_locked(struct ca_pinned_record *record)
{
	ca_list_remove(&record->in_bucket);
	ca_list_remove(&record->by_age);
	cached -= record->kind.bytes;
	ca_pinned_count_uncached_locked(&record->kind);
	record->freed_at = 0;
}

static void
remove_locked(struct ca_pinned_record *record)
{
	if (record->freed_at)
		unlink_freed_locked(record);
	else
		ca_pinned_count_released_locked(&record->kind);
	ca_pinned_trace_locked(record, CA_TRACE_PINNED_RETURNED);
	ca_tree_remove(&tree, &record->by_address);
}

static void
recycle_locked(struct ca_pinned_record *record)
{
	ca_list_insert(&spare, &record->in_bucket);
}

void
ca_pinned_recycle(struct ca_pinned_record *record)
{
	HOLD_RECORDS;
	in_hands -= record->kind.bytes;
	own_hand -= record->kind.bytes;
	given += record->kind.bytes;
	recycle_locked(record);
}

bool
ca_pinned_others_give(void)
{
	HOLD_RECORDS;
	return in_hands > own_hand;
}

uint64_t
ca_pinned_given(void)
{
	HOLD_RECORDS;
	return given;
}

static struct ca_pinned_record *
make_locked(void)
{
	struct ca_pinned_record *record;

	if (ca_list_empty(&spare)) {
		record = ca_slab_take(sizeof(*record));
		if (!record)
			return NULL;
		ca_list_init(&record->in_bucket);
		ca_list_init(&record->by_age);
		return record;
	}
	record = CA_CONTAINER_OF(spare.next, struct ca_pinned_record, in_bucket);
	ca_list_remove(&record->in_bucket);
	return record;
}

/* An older record of that address is of a context that has just died. */
static void
insert_locked(struct ca_pinned_record *record, uint64_t address)
{
	struct ca_pinned_record *old = find_locked(address);

	if (old) {
		remove_locked(old);
		recycle_locked(old);
	}
	ca_tree_insert(&tree, &record->by_address, address, 0);
	ca_pinned_trace_locked(record, CA_TRACE_PINNED_TAKEN);
	ca_pinned_trace_locked(record, CA_TRACE_PINNED_ALLOC);
}

void
ca_pinned_enter(const struct ca_pinned_kind *kind, size_t requested, void *memory)
{
	HOLD_RECORDS;
	struct ca_pinned_record *record = make_locked();

	if (!record)
		return;
	record->kind = *kind;
	record->requested = requested;
	record->serial = ++serials;
	record->freed_at = 0;
	record->exposed = false;
	insert_locked(record, (uintptr_t)memory);
	ca_pinned_count_taken_locked(kind, false);
}

/* ---- hand out, free */

static struct ca_pinned_record *
oldest_locked(const struct ca_pinned_kind *kind)
{
	CA_LIST_EACH(struct ca_pinned_record, record, bucket_of(kind), in_bucket) {
		if (is_same_kind(&record->kind, kind))
			return record;
	}
	return NULL;
}

/* NULL: there is none, or not yet: then *ret_freed_at is the number of its free, else 0. */
static void *
take(const struct ca_pinned_kind *kind, size_t requested, uint64_t *ret_freed_at)
{
	HOLD_RECORDS;
	struct ca_pinned_record *record = oldest_locked(kind);

	*ret_freed_at = record ? record->freed_at : 0;
	if (!record || !ca_pinned_has_finished(record->freed_at))
		return NULL;
	unlink_freed_locked(record);
	ca_pinned_count_taken_locked(kind, true);
	record->requested = requested;
	record->serial = ++serials;
	ca_pinned_trace_locked(record, CA_TRACE_PINNED_ALLOC);
	return (void *)(uintptr_t)record->by_address.key; // NOLINT: the driver's own value
}

void *
ca_pinned_take(const struct ca_pinned_kind *kind, size_t requested)
{
	uint64_t freed_at;
	void *memory = take(kind, requested, &freed_at);

	if (memory || !freed_at || !ca_pinned_query(kind->context, freed_at))
		return memory;
	return take(kind, requested, &freed_at);
}

int
ca_pinned_give(void *memory)
{
	HOLD_RECORDS;
	struct ca_pinned_record *record = find_locked((uintptr_t)memory);

	if (!record || record->freed_at)
		return -ENOENT;
	if (record->exposed || record->kind.bytes > cap)
		return -E2BIG;
	record->freed_at = ca_pinned_count_free();
	ca_list_insert(bucket_of(&record->kind), &record->in_bucket);
	ca_list_insert(&ages, &record->by_age);
	cached += record->kind.bytes;
	ca_pinned_count_cached_locked(&record->kind);
	ca_pinned_trace_locked(record, CA_TRACE_PINNED_FREE);
	return 0;
}

struct ca_context *
ca_pinned_context(void *memory)
{
	HOLD_RECORDS;
	struct ca_pinned_record *record = find_locked((uintptr_t)memory);

	return record && !record->freed_at ? record->kind.context : NULL;
}

struct ca_pinned_record *
ca_pinned_free_begin(void *memory, bool *ret_cached)
{
	HOLD_RECORDS;
	struct ca_pinned_record *record = find_locked((uintptr_t)memory);

	*ret_cached = record && record->freed_at;
	if (!record || record->freed_at)
		return NULL;
	remove_locked(record);
	return record;
}

void
ca_pinned_free_end(struct ca_pinned_record *record, bool freed)
{
	HOLD_RECORDS;
	if (freed) {
		recycle_locked(record);
	} else {
		insert_locked(record, record->by_address.key);
		ca_pinned_count_restored_locked(&record->kind);
	}
}

void
ca_pinned_take_out(uint64_t keep_bytes, struct ca_list *hand)
{
	HOLD_RECORDS;
	while (cached > keep_bytes && !ca_list_empty(&ages)) {
		struct ca_pinned_record *record =
			CA_CONTAINER_OF(ages.next, struct ca_pinned_record, by_age);

		remove_locked(record);
		in_hands += record->kind.bytes;
		own_hand += record->kind.bytes;
		ca_list_insert(hand, &record->by_age);
	}
}

void
ca_pinned_stats(unsigned device, struct ca_stats *stats)
{
	HOLD_RECORDS;
	ca_pinned_counts_read_locked(device, stats);
}

unsigned
ca_pinned_device_count(void)
{
	HOLD_RECORDS;
	return ca_pinned_counts_devices_locked();
}

/* ---- the program's view */

static struct ca_pinned_record *
around_locked(uint64_t address)
{
	struct ca_tree_node *node = ca_tree_at_most(&tree, address);
	struct ca_pinned_record *record =
		node ? CA_CONTAINER_OF(node, struct ca_pinned_record, by_address) : NULL;

	return record && address - node->key < record->kind.bytes ? record : NULL;
}

int
ca_pinned_look_up(uint64_t address, struct ca_pinned_view *ret_view)
{
	HOLD_RECORDS;
	struct ca_pinned_record *record = around_locked(address);

	if (!record)
		return -ENOENT;
	if (record->freed_at || address - record->by_address.key >= record->requested)
		return -ESTALE;
	ret_view->address = record->by_address.key;
	ret_view->requested = record->requested;
	ret_view->serial = record->serial;
	return 0;
}

void
ca_pinned_expose(uint64_t address, uint64_t bytes)
{
	uint64_t end = address + bytes < address ? UINT64_MAX : address + bytes;
	struct ca_tree_node *node;

	if (!atomic_load(&ca_pinned_on))
		return;
	HOLD_RECORDS;
	node = ca_tree_at_most(&tree, address);
	if (!node)
		node = ca_tree_first(&tree);
	for (; node && node->key < end; node = ca_tree_next(node)) {
		struct ca_pinned_record *record =
			CA_CONTAINER_OF(node, struct ca_pinned_record, by_address);

		if (address < node->key + record->kind.bytes)
			record->exposed = true;
	}
}

void
ca_pinned_context_died(const struct ca_context *context)
{
	struct ca_tree_node *node, *next;

	if (!atomic_load(&ca_pinned_on))
		return;
	HOLD_RECORDS;
	for (node = ca_tree_first(&tree); node; node = next) {
		struct ca_pinned_record *record =
			CA_CONTAINER_OF(node, struct ca_pinned_record, by_address);

		next = ca_tree_next(node);
		if (record->kind.context != context)
			continue;
		remove_locked(record);
		recycle_locked(record);
	}
}
