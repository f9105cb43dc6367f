/* SPDX-License-Identifier: MIT */
/*
 * The launch of a kernel, as short as can be: it is what programs call most.
 */
#include "shim/hooks/hook.h"
#include "shim/hooks/launch.h"

/*
 * The parameters that do not fit into registers stay together as they came: on x86-64 (System V) a
 * structure of this size is passed where its members would be passed one by one, so the names below
 * have cuda.h's ABI. That saves the wrapper from carrying five values through its fast path.
 * Elsewhere they are parameters like the others.
 */
#ifdef __x86_64__
struct stacked {
	uint64_t block_z; /* two unsigned int; the upper halves are whatever they are */
	uint64_t shared_bytes;
	CUstream stream;
	void **params;
	void **extra;
};
#define REST_PARAMS struct stacked rest
#define REST_ARGS rest
#define REST_STREAM rest.stream
#else
#define REST_PARAMS                                                                                \
	unsigned block_z, unsigned shared_bytes, CUstream handle, void **params, void **extra
#define REST_ARGS block_z, shared_bytes, handle, params, extra
#define REST_STREAM handle
#endif
#define KERNEL_PARAMS                                                                              \
	CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,         \
		unsigned block_y, REST_PARAMS
#define KERNEL_ARGS f, grid_x, grid_y, grid_z, block_x, block_y, REST_ARGS

typedef CUresult launch_call(KERNEL_PARAMS);

/* The same for a stream that is not in its first place, and for a default stream of one of several
 * contexts: the driver is asked what context is current. */
static inline struct ca_stream *
ready_elsewhere(enum ca_flavour flavour, CUstream handle)
{
	uint64_t word = atomic_load_explicit(&ca_capture_word, memory_order_acquire);
	const struct ca_submission_slot *slot = ca_submission_hit_elsewhere(flavour, handle, word);

	return !slot || ca_submit_needs_guard(slot->stream) ? NULL : slot->stream;
}

/*
 * Three ways: for a stream in the first place of the thread's table, for one elsewhere, and the
 * long one. Each hands over to the next by a jump. The long way is also what the pointer to the
 * real function points to before that is known.
 */
#define LAUNCH_KERNEL(symbol, flavour)                                                             \
	static launch_call symbol##_long;                                                          \
	static launch_call *_Atomic symbol##_real = symbol##_long;                                 \
	static __attribute__((noinline)) CUresult symbol##_long(KERNEL_PARAMS)                     \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		launch_call *call = (launch_call *)(uintptr_t)real->symbol;                        \
		struct ca_stream *stream = ca_submission_begin(flavour, REST_STREAM, NULL);        \
		CUresult rc = CA_INSIDE(call(KERNEL_ARGS));                                        \
                                                                                                   \
		ca_submission_end(stream);                                                         \
		atomic_store_explicit(&symbol##_real, call, memory_order_relaxed);                 \
		return rc;                                                                         \
	}                                                                                          \
	CA_LAUNCH_WAY(static __attribute__((noinline)), symbol##_elsewhere, (KERNEL_PARAMS),       \
		      (KERNEL_ARGS), symbol##_real, ready_elsewhere(flavour, REST_STREAM),         \
		      symbol##_long)                                                               \
	CA_EXPORT CUresult symbol##_first(KERNEL_PARAMS) __asm__(#symbol);                         \
	CA_LAUNCH_WAY(extern, symbol##_first, (KERNEL_PARAMS), (KERNEL_ARGS), symbol##_real,       \
		      ca_launch_ready(flavour, REST_STREAM), symbol##_elsewhere)

LAUNCH_KERNEL(cuLaunchKernel, CA_FLAVOUR_LEGACY)
LAUNCH_KERNEL(cuLaunchKernel_ptsz, CA_FLAVOUR_PER_THREAD)
