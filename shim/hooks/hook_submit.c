/* SPDX-License-Identifier: MIT */
/*
 * One wrapper for each CA_SUBMIT row of submit.def: find the stream and guard, call the driver,
 * stamp.
 *
 * The driver's answer is the answer. A row's acts after the call do not depend on the call's
 * success, but for the hazard: an error may be that of earlier work, and whether this one was
 * submitted is not known.
 *
 * begin() and finish() are functions on purpose: inlined, 170 wrappers would grow fivefold.
 */
#include "shim/hooks/hook.h"
#include "shim/hooks/submission.h"

/* A row's account of its call. */
struct work {
	const struct ca_touch *touch; /* NULL: anything */
	bool far;                     /* memory of other spaces than the stream's, too */
	bool hazard;
};

static __attribute__((noinline)) struct ca_stream *
begin(enum ca_flavour flavour, CUstream handle, const struct work *work)
{
	struct ca_stream *stream = ca_submission_begin(flavour, handle, work->touch);

	if (work->far && !work->touch)
		ca_submission_guard_foreign(stream, NULL);
	if (work->hazard && stream)
		ca_submit_hazard_begin(stream);
	return stream;
}

static __attribute__((noinline)) CUresult
finish(struct ca_stream *stream, const struct work *work, CUresult rc)
{
	ca_submission_end(stream);
	if (work->hazard && stream)
		ca_submit_hazard_end(stream, rc == CUDA_SUCCESS);
	if (work->far)
		ca_submission_foreign(stream, work->touch);
	return rc;
}

/* A batch has less than 256 operations (cuda.h); a longer one is the driver's to read. */
static bool
batch_waits(unsigned count, const CUstreamBatchMemOpParams *ops)
{
	if (count > 256)
		return true;
	for (unsigned i = 0; ops && i < count; i++)
		if (ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
		    ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
			return true;
	return false;
}

/* A row's touch. A stream that captures, or whose context has none of our memory, has no record,
 * but may reach that of other contexts all the same. */
#define TOUCH_NONE                                                                                 \
	static const struct ca_touch nothing;                                                      \
	struct work work = { .touch = &nothing }
#define TOUCH_ANY struct work work = { .touch = NULL }
#define TOUCH_FAR struct work work = { .far = true }
#define TOUCH_RANGE(at, bytes)                                                                     \
	const struct ca_touch touched = { .n = 1, .range = { { at, bytes } } };                    \
	struct work work = { .touch = &touched, .far = true }
#define TOUCH_RANGES(at, from, bytes)                                                              \
	const struct ca_touch touched = { .n = 2, .range = { { at, bytes }, { from, bytes } } };   \
	struct work work = { .touch = &touched, .far = true }

#define WRAPPER(symbol, flavour, params, args, handle, touch, waits)                               \
	CUresult symbol params                                                                     \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		TOUCH_##touch;                                                                     \
		struct ca_stream *submitted;                                                       \
                                                                                                   \
		work.hazard = waits;                                                               \
		submitted = begin(flavour, handle, &work);                                         \
		return finish(submitted, &work, CA_INSIDE(real->symbol args));                     \
	}

#define CA_SUBMIT(symbol, base, version, params, args, stream, touch, hazard)                      \
	WRAPPER(symbol, CA_FLAVOUR_LEGACY, params, args, stream, touch, hazard)
#define CA_SUBMIT_TWINS(symbol, suffix, base, version, twin, params, args, stream, touch, hazard)  \
	WRAPPER(symbol, CA_FLAVOUR_LEGACY, params, args, stream, touch, hazard)                    \
	WRAPPER(symbol##suffix, CA_FLAVOUR_PER_THREAD, params, args, stream, touch, hazard)
#include "shim/bind/hooks.def"
