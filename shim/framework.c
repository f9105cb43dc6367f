/* SPDX-License-Identifier: MIT */
/*
 * The table holds where the libraries of frameworks whose cache is on lie, and the shared runtimes.
 * It is published under a version that is odd meanwhile: who reads and sees the version change, or
 * odd, reads the list of libraries for itself; who publishes and finds another at it leaves it, and
 * the next call tries again. So nobody waits.
 */
#include "shim/framework.h"

#include <errno.h>
#include <string.h>

#include "shim/framework_list.h"
#include "shim/object.h"

#define MIB ((uint64_t)1 << 20)

enum {
	FRAMES_MAX = 16, /* of a runtime, between its cudaMalloc and the driver */
	OWN_FRAMES_MAX = 4,
	KEPT_FRAMES = 6, /* in what a thread keeps of its last call */
};

_Atomic uint64_t ca_framework_quiet_at;
static _Atomic uint64_t version; /* odd: being written */
static struct ca_framework_list published;

/* ---- publishing ---- */

static bool
write_begin(uint64_t *ret_version)
{
	*ret_version = atomic_load(&version);
	return !(*ret_version & 1) &&
	       atomic_compare_exchange_strong(&version, ret_version, *ret_version + 1);
}

static void
write_end(uint64_t begun)
{
	atomic_store_explicit(&version, begun + 2, memory_order_release);
}

static void
publish(const struct ca_framework_list *table)
{
	uint64_t begun;

	if (!write_begin(&begun))
		return;
	/* one that read before us, but comes after us, is not newer */
	if (CA_LIST_GET(table->lookups) >= CA_LIST_GET(published.lookups)) {
		for (unsigned i = 0; i < CA_LIST_GET(table->n_ranges); i++) {
			CA_LIST_SET(published.ranges[i].low, CA_LIST_GET(table->ranges[i].low));
			CA_LIST_SET(published.ranges[i].high, CA_LIST_GET(table->ranges[i].high));
			CA_LIST_SET(published.ranges[i].owner, CA_LIST_GET(table->ranges[i].owner));
		}
		CA_LIST_SET(published.n_ranges, CA_LIST_GET(table->n_ranges));
		CA_LIST_SET(published.on, CA_LIST_GET(table->on));
		CA_LIST_SET(published.generation, CA_LIST_GET(table->generation));
		CA_LIST_SET(published.lookups, CA_LIST_GET(table->lookups));
	}
	write_end(begun);
}

/* Nothing was loaded or unloaded: what is published holds for these look-ups too. */
static void
prolong(uint64_t generation, uint64_t lookups)
{
	uint64_t begun;

	if (!write_begin(&begun))
		return;
	if (CA_LIST_GET(published.generation) == generation &&
	    lookups > CA_LIST_GET(published.lookups))
		CA_LIST_SET(published.lookups, lookups);
	write_end(begun);
}

/* ---- whose call it is ---- */

static enum ca_framework
holder(const struct ca_framework_list *table, uintptr_t pc)
{
	unsigned n = CA_LIST_GET(table->n_ranges);

	for (unsigned i = 0; i < n && i < CA_FRAMEWORK_RANGES_MAX; i++)
		if (pc - 1 - CA_LIST_GET(table->ranges[i].low) <
		    CA_LIST_GET(table->ranges[i].high) - CA_LIST_GET(table->ranges[i].low))
			return CA_LIST_GET(table->ranges[i].owner);
	return CA_FRAMEWORK_NOBODY;
}

/* The walk did not get out of the runtime. A framework without a pattern gets the benefit. */
static bool
could_be_segment(unsigned on, uint64_t bytes)
{
	if (on & ~(1u << CA_FRAMEWORK_PYTORCH))
		return true;
	return bytes == 2 * MIB || (bytes >= 10 * MIB && bytes % (2 * MIB) == 0);
}

/* A call of a hook. */
struct call {
	uintptr_t pc;          /* where its caller goes on */
	uintptr_t sp;          /* the caller's stack pointer then */
	struct ca_frame inner; /* a frame of ours below the hook's caller */
};

/*
 * How the thread called last, found by a walk: the return addresses on the way out of the runtime,
 * and where they were. Frames of one size lie in the same places when the same way is taken again.
 */
static __thread struct {
	uint64_t version; /* of the published list */
	uint64_t lookups;
	uintptr_t pc; /* of the hook's caller; 0: nothing is kept */
	bool passes;
	unsigned n_frames;
	struct {
		uintptr_t offset; /* from the stack pointer of the hook's caller */
		uintptr_t pc;
	} frames[KEPT_FRAMES];
} last __attribute__((tls_model("initial-exec")));

/* Words of other functions' frames are read, which a sanitizer may have fenced off. */
static inline __attribute__((no_sanitize("address"))) bool
is_last(uintptr_t pc, uintptr_t sp)
{
	if (last.pc != pc || last.version != CA_LIST_GET(version) ||
	    last.lookups != CA_LIST_GET(ca_loader_lookups))
		return false;
	for (unsigned i = 0; i < last.n_frames; i++)
		if (*(const uintptr_t *)(sp + last.frames[i].offset) != last.frames[i].pc)
			return false;
	return true;
}

static void
keep_frame(const struct call *call, const struct ca_frame *frame)
{
	if (last.n_frames >= KEPT_FRAMES) {
		last.n_frames = KEPT_FRAMES + 1;
		return;
	}
	last.frames[last.n_frames].offset = (uintptr_t)frame->kept - call->sp;
	last.frames[last.n_frames++].pc = frame->pc;
}

/* The frame that called the hook. */
static bool
first_frame(const struct call *call, uint64_t generation, struct ca_frame *ret_frame)
{
	*ret_frame = call->inner;
	for (unsigned i = 0; i < OWN_FRAMES_MAX && ret_frame->pc != call->pc; i++)
		if (!ca_frame_up(ret_frame, generation))
			return false;
	return ret_frame->pc == call->pc && ret_frame->sp == call->sp;
}

/* A framework's number, CA_FRAMEWORK_RUNTIME for one that cannot be told, or CA_FRAMEWORK_NOBODY.
 */
static enum ca_framework
asker(const struct ca_framework_list *table, uint64_t bytes, const struct call *call)
{
	uint64_t generation = CA_LIST_GET(table->generation);
	enum ca_framework owner = holder(table, call->pc);
	struct ca_frame frame;
	bool found;

	last.pc = 0;
	last.n_frames = 0;
	if (owner != CA_FRAMEWORK_RUNTIME)
		return owner;
	found = first_frame(call, generation, &frame);
	for (unsigned i = 0; found && owner == CA_FRAMEWORK_RUNTIME; i++) {
		found = i < FRAMES_MAX && ca_frame_up(&frame, generation);
		if (!found)
			break;
		owner = holder(table, frame.pc);
		keep_frame(call, &frame);
	}
	if (found)
		return owner;
	last.n_frames = KEPT_FRAMES + 1;
	return could_be_segment(CA_LIST_GET(table->on), bytes) ? owner : CA_FRAMEWORK_NOBODY;
}

/* By what is published, if that is not changed meanwhile. */
static bool
ask_published(uint64_t lookups, uint64_t bytes, const struct call *call,
	      enum ca_framework *ret_owner, unsigned *ret_on)
{
	uint64_t begun = atomic_load_explicit(&version, memory_order_acquire);

	if (begun & 1 || CA_LIST_GET(published.lookups) != lookups)
		return false;
	*ret_on = CA_LIST_GET(published.on);
	*ret_owner = *ret_on ? asker(&published, bytes, call) : CA_FRAMEWORK_NOBODY;
	if (CA_LIST_GET(version) != begun)
		return false;
	last.version = begun;
	last.lookups = lookups;
	return true;
}

static __attribute__((noinline, cold)) void
ask_libraries(struct ca_process *process, uint64_t lookups, uint64_t bytes, const struct call *call,
	      enum ca_framework *ret_owner, unsigned *ret_on)
{
	uint64_t generation = ca_object_generation();
	struct ca_framework_list table;

	if (CA_LIST_GET(published.lookups) && CA_LIST_GET(published.generation) == generation) {
		prolong(generation, lookups);
		if (ask_published(lookups, bytes, call, ret_owner, ret_on))
			return;
	}
	ca_framework_read(&process->config, generation, lookups, &table);
	publish(&table);
	*ret_on = CA_LIST_GET(table.on);
	*ret_owner = *ret_on ? asker(&table, bytes, call) : CA_FRAMEWORK_NOBODY;
	last.n_frames = KEPT_FRAMES + 1; /* by the next call, that sees what is published */
	if (*ret_on)
		ca_heap_share(process->heap);
}

/* Not as the thread's last call. */
static __attribute__((noinline)) bool
passes(struct ca_process *process, uint64_t bytes, uintptr_t pc, uintptr_t sp)
{
	const struct call call = { .pc = pc, .sp = sp, .inner = CA_FRAME_OF_CALLER() };
	const struct ca_config *config = &process->config;
	bool window = config->min_size_bytes || config->max_size_bytes != UINT64_MAX;
	uint64_t lookups = atomic_load_explicit(&ca_loader_lookups, memory_order_acquire);
	enum ca_framework owner = CA_FRAMEWORK_NOBODY;
	unsigned on = 0;

	if (!process->serves)
		return false;
	if (bytes < config->min_size_bytes || bytes > config->max_size_bytes)
		return true;
	if (config->under_framework != CA_UNDER_CACHE &&
	    !ask_published(lookups, bytes, &call, &owner, &on))
		ask_libraries(process, lookups, bytes, &call, &owner, &on);
	if (owner != CA_FRAMEWORK_NOBODY)
		ca_framework_tell_on(owner);
	if (!on && !window)
		CA_LIST_SET(ca_framework_quiet_at, lookups);
	else if (on && !window && last.n_frames <= KEPT_FRAMES)
		last.pc = pc;
	last.passes = owner != CA_FRAMEWORK_NOBODY;
	return last.passes;
}

__attribute__((no_sanitize("address"))) bool
ca_framework_passes(struct ca_process *process, uint64_t bytes, uintptr_t pc, uintptr_t sp)
{
	int saved;
	bool r;

	if (__builtin_expect(is_last(pc, sp), 1))
		return last.passes;
	saved = errno;
	r = passes(process, bytes, pc, sp);
	errno = saved;
	return r;
}

void
ca_framework_look_again(void)
{
	atomic_fetch_add_explicit(&ca_loader_lookups, 1, memory_order_release);
}

/* The environment and the settings are the child's own from here on. */
void
ca_framework_after_fork_child(void)
{
	atomic_store(&version, 0);
	memset(&published, 0, sizeof(published));
	CA_LIST_SET(ca_framework_quiet_at, 0);
	ca_framework_forget_told();
}
