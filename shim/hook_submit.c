/* SPDX-License-Identifier: MIT */
/*
 * One wrapper for each CA_SUBMIT row of submit.def: find the stream and guard, call the driver,
 * stamp.
 *
 * The driver's answer is the answer. What a row does after the call it does whether the call
 * succeeded or not, but for the hazard: an error may be that of earlier work, and whether this one
 * was submitted is not known.
 *
 * begin() and finish() are functions on purpose: inlined, 170 wrappers would grow fivefold.
 */
#include "shim/hook.h"
#include "shim/submit.h"

static __attribute__((noinline)) struct ca_stream *
begin(enum ca_flavour flavour, CUstream handle, const struct ca_touch *touch)
{
	return ca_submission_begin(flavour, handle, touch);
}

static __attribute__((noinline)) void
finish(struct ca_stream *stream, bool hazard)
{
	ca_submission_end(stream);
	if (hazard && stream)
		ca_submit_hazard(stream);
}

static bool
ca_batch_waits(unsigned count, const CUstreamBatchMemOpParams *ops)
{
	for (unsigned i = 0; i < count; i++)
		if (ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
		    ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
			return true;
	return false;
}

/* A row's touch, as what the guard is told and what other spaces are. A stream that captures, or
 * whose context has none of our memory, has no record, but may reach that of others all the same.
 */
#define TOUCH_NONE                                                                                 \
	static const struct ca_touch nothing;                                                      \
	const struct ca_touch *const touched = &nothing;                                           \
	enum { REACHES_FAR = false }
#define TOUCH_ANY                                                                                  \
	const struct ca_touch *const touched = NULL;                                               \
	enum { REACHES_FAR = false }
#define TOUCH_FAR                                                                                  \
	const struct ca_touch *const touched = NULL;                                               \
	enum { REACHES_FAR = true }
#define TOUCH_RANGE(at, count_bytes)                                                               \
	const struct ca_touch named = { .n = 1, .range = { { at, count_bytes } } };                \
	const struct ca_touch *const touched = &named;                                             \
	enum { REACHES_FAR = true }
#define TOUCH_RANGES(at, from, count_bytes)                                                        \
	const struct ca_touch named = { .n = 2,                                                    \
					.range = { { at, count_bytes }, { from, count_bytes } } }; \
	const struct ca_touch *const touched = &named;                                             \
	enum { REACHES_FAR = true }

#define WRAPPER(symbol, flavour, params, args, handle, touch, hazard)                              \
	CUresult symbol params                                                                     \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		TOUCH_##touch;                                                                     \
		struct ca_stream *submitted = begin(flavour, handle, touched);                     \
		CUresult rc = CA_INSIDE(real->symbol args);                                        \
                                                                                                   \
		finish(submitted, rc == CUDA_SUCCESS && (hazard));                                 \
		if (REACHES_FAR)                                                                   \
			ca_submission_foreign(submitted, touched);                                 \
		return rc;                                                                         \
	}

#define CA_SUBMIT(symbol, base, version, params, args, stream, touch, hazard)                      \
	WRAPPER(symbol, CA_FLAVOUR_LEGACY, params, args, stream, touch, hazard)
#define CA_SUBMIT_TWINS(symbol, suffix, base, version, twin, params, args, stream, touch, hazard)  \
	WRAPPER(symbol, CA_FLAVOUR_LEGACY, params, args, stream, touch, hazard)                    \
	WRAPPER(symbol##suffix, CA_FLAVOUR_PER_THREAD, params, args, stream, touch, hazard)
#define CA_ELSEWHERE(symbol, base, version, params, args)
#define CA_ELSEWHERE_TWINS(symbol, suffix, base, version, twin, params, args)
#include "shim/submit.def"
