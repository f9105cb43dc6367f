/* SPDX-License-Identifier: MIT */
/*
 * Kernel launches: the common one, those whose stream stands in a structure, and those that may
 * start before what is in front of them has ended.
 *
 * A kernel launched with PROGRAMMATIC_STREAM_SERIALIZATION overlaps its predecessor in the stream.
 * Memory that this predecessor has not finished with may have been handed out on the promise of
 * stream order, so the first such launch after that goes out with the attribute replaced by IGNORE.
 * The program's list is not ours to write to: a copy of it is, on the stack or, if it is longer
 * than any list that makes sense, mapped for the time of the call. If that cannot be had the launch
 * fails: it is never let through as it came.
 *
 * An event recorded by a launch attribute stands for less than the work before it and teaches
 * nothing. It is forgotten before the call and again after, since a wait may come in between.
 */
#include <string.h>
#include <sys/mman.h>

#include "config/mutant.h"
#include "shim/events.h"
#include "shim/hook.h"
#include "shim/submit.h"

enum {
	ATTRIBUTES_ON_STACK = 32, /* CUDA 13 knows 16 */
	DEVICES_MAX = 64,         /* more than the driver serves; it refuses the call */
};

typedef CUresult launch_ex_call(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
				void **extra);

struct launch {
	const CUlaunchConfig *config;
	CUfunction function;
	void **params;
	void **extra;
};

/*
 * What does not fit into registers stays together as it came: on x86-64 (System V) a structure of
 * this size is passed where its members would be passed one by one, so the names below have
 * cuda.h's ABI. That saves the wrapper from carrying five values through its fast path. Elsewhere
 * they are parameters like the others.
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
	unsigned block_z, unsigned shared_bytes, CUstream stream, void **params, void **extra
#define REST_ARGS block_z, shared_bytes, stream, params, extra
#define REST_STREAM stream
#endif
#define KERNEL_PARAMS                                                                              \
	CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,         \
		unsigned block_y, REST_PARAMS
#define KERNEL_ARGS f, grid_x, grid_y, grid_z, block_x, block_y, REST_ARGS

typedef CUresult launch_call(KERNEL_PARAMS);

/*
 * The stream of a launch that nothing stands in the way of, or NULL: it is one the program created,
 * this thread knows it, nothing captures, nothing was exposed or armed since it was last looked at.
 * No function is called to find that out. The thread may be inside the driver, too: a launch from
 * there is tracked like any other.
 */
static inline struct ca_stream *
ready(CUstream handle)
{
	const struct ca_submission_slot *slot =
		&ca_submission_cache.created[ca_submission_hash(handle)];
	struct ca_stream *stream = slot->stream;

	if (__builtin_expect(slot->handle != handle, 0) ||
	    __builtin_expect(
		    slot->word != atomic_load_explicit(&ca_capture_word, memory_order_acquire), 0))
		return NULL;
	if (!stream)
		__builtin_unreachable(); /* an empty slot's word is 0, which the real one never is
					  */
	return __builtin_expect(ca_submit_needs_guard(stream), 0) ? NULL : stream;
}

/* The long way is also what the pointer to the real function points to before that is known. */
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
	CA_EXPORT CUresult symbol##_fast(KERNEL_PARAMS) __asm__(#symbol);                          \
	CUresult symbol##_fast(KERNEL_PARAMS)                                                      \
	{                                                                                          \
		struct ca_stream *stream = ready(REST_STREAM);                                     \
		CUresult rc;                                                                       \
                                                                                                   \
		if (__builtin_expect(!stream, 0))                                                  \
			return symbol##_long(KERNEL_ARGS);                                         \
		rc = atomic_load_explicit(&symbol##_real, memory_order_relaxed)(KERNEL_ARGS);      \
		ca_submit_end(stream);                                                             \
		return rc;                                                                         \
	}

LAUNCH_KERNEL(cuLaunchKernel, CA_FLAVOUR_LEGACY)
LAUNCH_KERNEL(cuLaunchKernel_ptsz, CA_FLAVOUR_PER_THREAD)

static unsigned
attribute_count(const CUlaunchConfig *config)
{
	return config->attrs ? config->numAttrs : 0;
}

static bool
is_programmatic(const CUlaunchAttribute *attribute)
{
	return attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
	       attribute->value.programmaticStreamSerializationAllowed;
}

static bool
has_programmatic(const CUlaunchConfig *config)
{
	for (unsigned i = 0; i < attribute_count(config); i++)
		if (is_programmatic(&config->attrs[i]))
			return true;
	return false;
}

static void
forget_events(const CUlaunchConfig *config)
{
	for (unsigned i = 0; i < attribute_count(config); i++) {
		const CUlaunchAttribute *attribute = &config->attrs[i];

		if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
			ca_events_forget(attribute->value.programmaticEvent.event);
		else if (attribute->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
			ca_events_forget(attribute->value.launchCompletionEvent.event);
	}
}

static CUresult
launch_with_list(launch_ex_call *call, const struct launch *launch, CUlaunchAttribute *list)
{
	CUlaunchConfig config = *launch->config;

	memcpy(list, config.attrs, config.numAttrs * sizeof(*list));
	for (unsigned i = 0; i < config.numAttrs; i++)
		if (is_programmatic(&list[i]))
			list[i].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
	config.attrs = list;
	return CA_INSIDE(call(&config, launch->function, launch->params, launch->extra));
}

/* Out of the way of the common launch, whose frame stays small. */
static __attribute__((noinline)) CUresult
launch_on_stack(launch_ex_call *call, const struct launch *launch)
{
	CUlaunchAttribute list[ATTRIBUTES_ON_STACK];

	return launch_with_list(call, launch, list);
}

static CUresult
launch_serialized(launch_ex_call *call, const struct launch *launch)
{
	size_t bytes = launch->config->numAttrs * sizeof(CUlaunchAttribute);
	int saved = errno;
	CUresult rc;
	void *list;

	if (launch->config->numAttrs <= ATTRIBUTES_ON_STACK)
		return launch_on_stack(call, launch);
	list = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	errno = saved;
	if (list == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	rc = launch_with_list(call, launch, list);
	saved = errno;
	munmap(list, bytes);
	errno = saved;
	return rc;
}

static CUresult
launch_ex(launch_ex_call *call, enum ca_flavour flavour, const struct launch *launch)
{
	const CUlaunchConfig *config = launch->config;
	struct ca_stream *stream;
	CUresult rc;

	if (!config || !ca_hook_process())
		return CA_INSIDE(call(config, launch->function, launch->params, launch->extra));
	stream = ca_submission_begin(flavour, config->hStream, NULL);
	forget_events(config);
	if (stream && has_programmatic(config) && ca_submit_must_serialize(stream) &&
	    !CA_MUTANT(PDL_KEPT)) {
		rc = launch_serialized(call, launch);
		if (rc == CUDA_SUCCESS)
			ca_submit_serialized(stream);
	} else {
		rc = CA_INSIDE(call(config, launch->function, launch->params, launch->extra));
	}
	forget_events(config);
	ca_submission_end(stream);
	return rc;
}

CUresult
cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	CA_HOOK_REAL(real, cuLaunchKernelEx);
	return launch_ex(real->cuLaunchKernelEx, CA_FLAVOUR_LEGACY,
			 &(struct launch){ config, f, kernelParams, extra });
}

CUresult
cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	CA_HOOK_REAL(real, cuLaunchKernelEx_ptsz);
	return launch_ex(real->cuLaunchKernelEx_ptsz, CA_FLAVOUR_PER_THREAD,
			 &(struct launch){ config, f, kernelParams, extra });
}

/* Its kernels wait for each other: each stream's work ends when all of them run. */
CUresult
cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList, unsigned int numDevices,
				     unsigned int flags)
{
	CA_HOOK_REAL(real, cuLaunchCooperativeKernelMultiDevice);
	struct ca_stream *streams[DEVICES_MAX];
	unsigned n = launchParamsList && numDevices <= DEVICES_MAX ? numDevices : 0;
	CUresult rc;

	for (unsigned i = 0; i < n; i++)
		streams[i] =
			ca_submission_begin(CA_FLAVOUR_LEGACY, launchParamsList[i].hStream, NULL);
	rc = CA_INSIDE(
		real->cuLaunchCooperativeKernelMultiDevice(launchParamsList, numDevices, flags));
	for (unsigned i = 0; i < n; i++) {
		ca_submission_end(streams[i]);
		if (rc == CUDA_SUCCESS && streams[i])
			ca_submit_hazard(streams[i]);
	}
	return rc;
}
