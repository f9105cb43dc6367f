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

enum { FRAMES_MAX = 16 }; /* of a runtime, between its cudaMalloc and the driver */

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

/* A framework's number, or CA_FRAMEWORK_NOBODY. */
static enum ca_framework
asker(const struct ca_framework_list *table, uint64_t bytes, const struct ca_frame *caller)
{
	struct ca_frame frame = *caller;
	enum ca_framework owner = holder(table, frame.pc);

	for (unsigned i = 0; owner == CA_FRAMEWORK_RUNTIME; i++) {
		if (i == FRAMES_MAX || !ca_frame_up(&frame, CA_LIST_GET(table->generation)))
			return could_be_segment(CA_LIST_GET(table->on), bytes)
				       ? CA_FRAMEWORK_RUNTIME
				       : CA_FRAMEWORK_NOBODY;
		owner = holder(table, frame.pc);
	}
	return owner;
}

/* By what is published, if that is not changed meanwhile. */
static bool
ask_published(uint64_t lookups, uint64_t bytes, const struct ca_frame *caller,
	      enum ca_framework *ret_owner, unsigned *ret_on)
{
	uint64_t begun = atomic_load_explicit(&version, memory_order_acquire);

	if (begun & 1 || CA_LIST_GET(published.lookups) != lookups)
		return false;
	*ret_on = CA_LIST_GET(published.on);
	*ret_owner = *ret_on ? asker(&published, bytes, caller) : CA_FRAMEWORK_NOBODY;
	return CA_LIST_GET(version) == begun;
}

static __attribute__((noinline, cold)) void
ask_libraries(struct ca_process *process, uint64_t lookups, uint64_t bytes,
	      const struct ca_frame *caller, enum ca_framework *ret_owner, unsigned *ret_on)
{
	uint64_t generation = ca_object_generation();
	struct ca_framework_list table;

	if (CA_LIST_GET(published.lookups) && CA_LIST_GET(published.generation) == generation) {
		prolong(generation, lookups);
		if (ask_published(lookups, bytes, caller, ret_owner, ret_on))
			return;
	}
	ca_framework_read(&process->config, generation, lookups, &table);
	publish(&table);
	*ret_on = CA_LIST_GET(table.on);
	*ret_owner = *ret_on ? asker(&table, bytes, caller) : CA_FRAMEWORK_NOBODY;
	if (*ret_on)
		ca_heap_share(process->heap);
}

bool
ca_framework_passes(struct ca_process *process, uint64_t bytes, const struct ca_frame *caller)
{
	const struct ca_config *config = &process->config;
	bool window = config->min_size_bytes || config->max_size_bytes != UINT64_MAX;
	uint64_t lookups = atomic_load_explicit(&ca_loader_lookups, memory_order_acquire);
	enum ca_framework owner = CA_FRAMEWORK_NOBODY;
	unsigned on = 0;
	int saved = errno;

	if (!process->serves)
		return false;
	if (bytes < config->min_size_bytes || bytes > config->max_size_bytes)
		return true;
	if (config->under_framework != CA_UNDER_CACHE &&
	    !ask_published(lookups, bytes, caller, &owner, &on))
		ask_libraries(process, lookups, bytes, caller, &owner, &on);
	if (!on && !window)
		CA_LIST_SET(ca_framework_quiet_at, lookups);
	if (owner != CA_FRAMEWORK_NOBODY)
		ca_framework_tell_on(owner);
	errno = saved;
	return owner != CA_FRAMEWORK_NOBODY;
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
