/* SPDX-License-Identifier: MIT */
/*
 * The answer is one word, so no reader ever sees half of one, and no thread waits for another. A
 * second word keeps the answer together with the generation of the list of libraries that it was
 * read from: look-ups that loaded nothing renew the answer without reading the list.
 */
#include "shim/framework/framework.h"

#include "shim/bind/object.h"
#include "shim/bind/scope.h"
#include "shim/framework/framework_list.h"

enum { REASONS_SHIFT = 56 };
#define WINDOW ((uint64_t)1 << CA_FRAMEWORKS)
#define COUNTED (((uint64_t)1 << REASONS_SHIFT) - 1)

_Static_assert(CA_FRAMEWORKS < 8, "a byte of reasons holds the frameworks and the window");

_Atomic uint64_t ca_framework_answer;
/* reasons << REASONS_SHIFT | generation of the list of libraries; 0: nothing was read yet */
static _Atomic uint64_t read_at;

/*
 * An answer that covers fewer look-ups never replaces one that covers more. Of two that cover as
 * many the later call's stays, though it may have read the list earlier: a library loaded between
 * the two readings has not been noticed yet, and is counted as a look-up when it is, within 64
 * allocations (ca_fallback_look_around). Then all ask again.
 */
static void
publish(uint64_t lookups, uint64_t reasons)
{
	uint64_t answer = reasons << REASONS_SHIFT | (lookups & COUNTED);
	uint64_t old = atomic_load(&ca_framework_answer);

	while ((old & COUNTED) <= (lookups & COUNTED) &&
	       !atomic_compare_exchange_weak(&ca_framework_answer, &old, answer))
		;
}

static _Atomic bool serves_all;

static uint64_t
query_libraries(struct ca_process *process, uint64_t lookups)
{
	const struct ca_config *config = &process->config;
	uint64_t generation = ca_object_generation() & COUNTED;
	uint64_t known = atomic_load(&read_at), reasons = known >> REASONS_SHIFT;

	if (!known || (known & COUNTED) != generation) {
		reasons = 0;
		if (config->under_framework != CA_UNDER_CACHE && !atomic_load(&serves_all))
			reasons = ca_framework_read(config);
		if (reasons)
			ca_heap_share(process->heap);
		if (config->min_size_bytes || config->max_size_bytes != UINT64_MAX)
			reasons |= WINDOW;
		atomic_store(&read_at, reasons << REASONS_SHIFT | generation);
	}
	publish(lookups, reasons);
	return reasons;
}

static bool
passes(struct ca_process *process, uint64_t bytes)
{
	const struct ca_config *config = &process->config;
	uint64_t lookups = atomic_load_explicit(&ca_loader_lookups, memory_order_acquire);
	uint64_t answer = atomic_load(&ca_framework_answer);
	uint64_t reasons = answer >> REASONS_SHIFT;

	if ((answer & COUNTED) != (lookups & COUNTED))
		reasons = query_libraries(process, lookups);
	if (reasons & ~WINDOW) {
		ca_framework_report_on((unsigned)(reasons & ~WINDOW));
		return true;
	}
	return bytes < config->min_size_bytes || bytes > config->max_size_bytes;
}

bool
ca_framework_passes(struct ca_process *process, uint64_t bytes)
{
	CA_KEEP_ERRNO;

	return process->caches && passes(process, bytes);
}

void
ca_framework_cache_all(void)
{
	if (atomic_load_explicit(&serves_all, memory_order_relaxed) ||
	    atomic_exchange(&serves_all, true))
		return;
	atomic_store(&read_at, 0);
	ca_framework_look_again();
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
	atomic_store(&read_at, 0);
	atomic_store(&ca_framework_answer, 0);
	ca_framework_forget_told();
}
