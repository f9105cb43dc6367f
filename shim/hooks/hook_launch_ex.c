/* SPDX-License-Identifier: MIT */
/*
 * Kernel launches whose streams stand in structures, and those that may start before what is in
 * front of them has ended.
 *
 * A kernel launched with PROGRAMMATIC_STREAM_SERIALIZATION overlaps its predecessor in the stream.
 * Memory that this predecessor has not finished with may have been handed out on the promise of
 * stream order, so the first such launch after that goes out with the attribute replaced by IGNORE.
 * So does the first one after memory of a stream was handed out that only the legacy stream's
 * barrier puts before this one: whether the kernel behind a barrier counts as the predecessor,
 * cuda.h leaves open.
 * The program's list is not ours to write to: a copy of it is, on the stack or, if it is longer
 * than any list that makes sense, mapped for the time of the call. If that cannot be had the launch
 * fails: it is never let through as it came.
 *
 * An event recorded by a launch attribute stands for less than the work before it and teaches
 * nothing.
 */
#include <string.h>
#include <sys/mman.h>

#include "config/mutant.h"
#include "shim/hooks/hook.h"
#include "shim/hooks/launch.h"
#include "shim/hooks/submission.h"
#include "shim/track/events.h"

enum {
	ATTRIBUTES_ON_STACK = 32, /* CUDA 13 knows 16 */
	DEVICES_MAX = 64,         /* more than the driver serves; it refuses the call */
	EVENTS_MAX = 4,           /* a launch has one of each kind */
};

typedef CUresult launch_ex_call(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
				void **extra);

struct launch {
	const CUlaunchConfig *config;
	CUfunction function;
	void **params;
	void **extra;
};

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

/* Events that the launch records. */
struct events {
	unsigned n;
	struct ca_events_use use[EVENTS_MAX];
};

static CUevent
event_of(const CUlaunchAttribute *attribute)
{
	if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
		return attribute->value.programmaticEvent.event;
	if (attribute->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
		return attribute->value.launchCompletionEvent.event;
	return NULL;
}

/* More than there is room for: of these nothing is learned any more. */
static void
forget_begin(struct events *events, const CUlaunchConfig *config)
{
	events->n = 0;
	for (unsigned i = 0; i < attribute_count(config); i++) {
		CUevent event = event_of(&config->attrs[i]);

		if (event && events->n < EVENTS_MAX)
			ca_events_forget_begin(&events->use[events->n++], event);
		else if (event)
			ca_events_silence(event);
	}
}

static void
forget_end(struct events *events)
{
	for (unsigned i = 0; i < events->n; i++)
		ca_events_forget_end(&events->use[i]);
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
launch_serial(launch_ex_call *call, const struct launch *launch)
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
	struct events events;
	CUresult rc;

	if (!config || !ca_hook_process())
		return CA_INSIDE(call(config, launch->function, launch->params, launch->extra));
	stream = ca_submission_begin(flavour, config->hStream, NULL);
	forget_begin(&events, config);
	if (stream && has_programmatic(config) && ca_submit_must_be_serial(stream) &&
	    !CA_MUTANT(PDL_KEPT)) {
		rc = launch_serial(call, launch);
		if (rc == CUDA_SUCCESS)
			ca_submit_serial(stream);
	} else {
		rc = CA_INSIDE(call(config, launch->function, launch->params, launch->extra));
	}
	forget_end(&events);
	ca_submission_end(stream);
	return rc;
}

/* True if an attribute is one of those that this file is about. */
static inline bool
is_special(const CUlaunchConfig *config)
{
	const uint32_t special = 1u << CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION |
				 1u << CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT |
				 1u << CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;

	for (unsigned i = 0; i < config->numAttrs; i++)
		if (!config->attrs || ((unsigned)config->attrs[i].id < 32 &&
				       (special >> (unsigned)config->attrs[i].id & 1)))
			return true;
	return false;
}

#define EX_PARAMS const CUlaunchConfig *config, CUfunction f, void **params, void **extra
#define EX_ARGS config, f, params, extra
#define EX_READY(flavour, is_plain)                                                                \
	(config && (is_plain) ? ca_launch_ready(flavour, config->hStream) : NULL)

/* Three ways, as in hook_launch.c: without attributes, with others than those above, and the long
 * one. */
#define LAUNCH_EX(symbol, flavour)                                                                 \
	static launch_ex_call symbol##_long;                                                       \
	static launch_ex_call *_Atomic symbol##_real = symbol##_long;                              \
	static __attribute__((noinline)) CUresult symbol##_long(EX_PARAMS)                         \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		const struct launch launch = { EX_ARGS };                                          \
                                                                                                   \
		atomic_store_explicit(&symbol##_real, real->symbol, memory_order_relaxed);         \
		return launch_ex(real->symbol, flavour, &launch);                                  \
	}                                                                                          \
	CA_LAUNCH_WAY(static __attribute__((noinline)), symbol##_attributed, (EX_PARAMS),          \
		      (EX_ARGS), symbol##_real, EX_READY(flavour, !is_special(config)),            \
		      symbol##_long)                                                               \
	CA_LAUNCH_WAY(extern, symbol, (EX_PARAMS), (EX_ARGS), symbol##_real,                       \
		      EX_READY(flavour, !config->numAttrs), symbol##_attributed)

LAUNCH_EX(cuLaunchKernelEx, CA_FLAVOUR_LEGACY)
LAUNCH_EX(cuLaunchKernelEx_ptsz, CA_FLAVOUR_PER_THREAD)

/* The kernels of such a launch wait for each other: each stream's work ends when all of them run.
 */
CUresult
cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList, unsigned int numDevices,
				     unsigned int flags)
{
	CA_HOOK_REAL(real, cuLaunchCooperativeKernelMultiDevice);
	struct ca_stream *streams[DEVICES_MAX];
	unsigned n = launchParamsList && numDevices <= DEVICES_MAX ? numDevices : 0;
	CUresult rc;

	for (unsigned i = 0; i < n; i++) {
		streams[i] =
			ca_submission_begin(CA_FLAVOUR_LEGACY, launchParamsList[i].hStream, NULL);
		if (streams[i])
			ca_submit_hazard_begin(streams[i]);
	}
	rc = CA_INSIDE(
		real->cuLaunchCooperativeKernelMultiDevice(launchParamsList, numDevices, flags));
	for (unsigned i = 0; i < n; i++) {
		ca_submission_end(streams[i]);
		if (streams[i])
			ca_submit_hazard_end(streams[i], rc == CUDA_SUCCESS);
	}
	return rc;
}
