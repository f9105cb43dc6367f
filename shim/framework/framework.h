/* SPDX-License-Identifier: MIT */
/*
 * Below a framework that caches by itself a second cache would only hoard. So while the cache of
 * PyTorch, JAX, TensorFlow or CuPy (shim/framework/frameworks.def) is on, every request of the
 * process goes straight through. The same road is taken by requests outside min_size .. max_size.
 *
 * A framework is recognised by its library being loaded. The list of libraries is read again when
 * it has changed. A change is looked for when the program has called dlsym since (a program that
 * uses a library opened late does), and every 64 allocations of a thread anyway. Reading takes the
 * loader's lock for the list (dl_iterate_phdr), which the loader never holds while it runs
 * constructors or anything else of the program's; no lock of ours is held meanwhile.
 *
 * A wrong answer is safe: a wrong "passes" is slower, and a wrong "cached" hoards.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/bind/loader.h"
#include "shim/state/process.h"

/*
 * The number of look-ups (ca_loader_lookups) that the answer covers, and in the top byte the
 * reasons why requests pass: a bit a framework, and one for the window of sizes. 0: not asked yet.
 */
extern _Atomic uint64_t ca_framework_answer __attribute__((visibility("hidden")));

/* True: there is no framework and no size window, so the request is cached. */
static inline bool
ca_framework_is_quiet(void)
{
	return __builtin_expect(
		atomic_load_explicit(&ca_framework_answer, memory_order_relaxed) ==
			atomic_load_explicit(&ca_loader_lookups, memory_order_relaxed),
		1);
}

/* True: a request of `bytes` goes straight to the driver. errno kept. */
bool ca_framework_passes(struct ca_process *process, uint64_t bytes);
/* From now on no framework's cache is in use, whatever it looks like: PyTorch was given ours. */
void ca_framework_cache_all(void);
/* Libraries were loaded or unloaded. */
void ca_framework_look_again(void);
/*
 * The frameworks because of which requests went straight through so far, "PyTorch's" or "PyTorch's
 * and others'"; *ret_off gets the variable and value that switch the first one's cache off, ""
 * where there are none. NULL: nobody's that is known.
 */
const char *ca_framework_that_passed(char *ret_off, size_t size);
void ca_framework_after_fork_child(void);
