/* SPDX-License-Identifier: MIT */
/*
 * Below a framework that caches by itself a second cache would only hoard. So what PyTorch, JAX,
 * TensorFlow and CuPy (shim/frameworks.def) ask of the driver goes straight through while their
 * own cache is on, and what other libraries of the same process ask for stays cached. The same road
 * is taken by requests outside min_size .. max_size.
 *
 * Whose call is it? A framework's library calls the driver itself (JAX, TensorFlow), or through a
 * CUDA runtime that is linked into it, and then the hook's return address lies in that library; or
 * it calls cudaMalloc of the shared runtime (PyTorch's wheels), and then the return address lies in
 * libcudart and the caller is a few frames up. Those frames are walked by libcudart's own call
 * frame information (shim/frame.h), until the first one outside libcudart. The ways not taken:
 *  - Sizes alone (PyTorch: 2 MiB, 20 MiB, multiples of 2 MiB) would take a workspace of 32 MiB of
 *    another library for a segment, and CuPy's and TensorFlow's sizes have no pattern. They serve
 *    only where the walk does not get out of libcudart.
 *  - _Unwind_Backtrace is in libgcc, backtrace() opens that with dlopen at its first call, frame
 *    pointers are not kept in libcudart, and looking through the stack for return addresses finds
 *    those of calls that are long over.
 *  - Interposing cudaMalloc as well would tell the caller, but there may be several libcudart in a
 *    process, and each caller wants its own.
 * The walk reads only where libcudart's tables say that a return address is; where they say nothing
 * understandable it stops. It happens only in a process with such a framework; a thread that calls
 * again the same way is recognised by comparing the return addresses in the same places.
 *
 * The list of libraries is read again when it has changed, and that is looked at when somebody
 * called dlsym since (whoever uses a library that was opened late does), and every 64 allocations
 * of a thread anyway. Reading takes the loader's lock for the list (dl_iterate_phdr), which the
 * loader never holds while it runs constructors or anything else of the program's; no lock of ours
 * is held meanwhile. Two threads may read at once; a reader that meets a writer reads for itself.
 *
 * To be wrong is safe: a wrong "passes" is slower, a wrong "cached" hoards until the framework
 * frees.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/frame.h"
#include "shim/loader.h"
#include "shim/process.h"

/* The number of look-ups for which it is known that nothing passes; 0: not known. */
extern _Atomic uint64_t ca_framework_quiet_at __attribute__((visibility("hidden")));

/* True: there is no framework and no size window, cache it. */
static inline bool
ca_framework_is_quiet(void)
{
	return __builtin_expect(
		atomic_load_explicit(&ca_framework_quiet_at, memory_order_relaxed) ==
			atomic_load_explicit(&ca_loader_lookups, memory_order_relaxed),
		1);
}

struct ca_caller {
	uintptr_t pc, sp;
};
/* Of the hook that this stands in: `pc`, where its caller goes on, and `sp`, its stack pointer
 * then.
 */
#define CA_FRAMEWORK_CALLER()                                                                      \
	((struct ca_caller){ (uintptr_t)__builtin_return_address(0),                               \
			     (uintptr_t)__builtin_dwarf_cfa() })
/* True: the request of `bytes` to that hook goes straight to the driver. errno kept. */
bool ca_framework_passes(struct ca_process *process, uint64_t bytes, uintptr_t pc, uintptr_t sp);
/* Libraries were loaded or unloaded. */
void ca_framework_look_again(void);
void ca_framework_after_fork_child(void);
