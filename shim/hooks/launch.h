/* SPDX-License-Identifier: MIT */
/*
 * The parts of a launch that are counted in instructions: nothing here calls a function unless
 * something is to be done.
 */
#pragma once

#include "shim/hooks/submission.h"

/*
 * The stream of a launch that nothing stands in the way of, or NULL: it is one the program created,
 * or the process has one context; this thread knows it, nothing captures, nothing was exposed or
 * armed since it was last looked at. No function is called to find that out. The thread may be
 * inside the driver, too: a launch from there is tracked like any other.
 */
static inline struct ca_stream *
ca_launch_ready(enum ca_flavour flavour, CUstream handle)
{
	const struct ca_submission_slot *slot = ca_submission_home(flavour, handle);
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

/* The end of a launch that has to be stamped: gives `rc` back, so that the caller can jump here. */
static __attribute__((noinline, unused)) CUresult
ca_launch_stamped(struct ca_stream *stream, uint64_t epoch, CUresult rc)
{
	ca_submit_stamp(stream, epoch);
	return rc;
}

/*
 * One way of a launch. `find`: the stream, if this way can take the launch, else NULL; `otherwise`:
 * the next way, to which it hands over by a jump. `call` points to the real function.
 */
#define CA_LAUNCH_WAY(storage, name, params, args, call, find, otherwise)                          \
	storage CUresult name params                                                               \
	{                                                                                          \
		struct ca_stream *stream = find;                                                   \
		uint64_t epoch;                                                                    \
		CUresult rc;                                                                       \
                                                                                                   \
		if (__builtin_expect(!stream, 0))                                                  \
			return otherwise args;                                                     \
		rc = atomic_load_explicit(&call, memory_order_relaxed) args;                       \
		if (__builtin_expect(ca_submit_needs_stamp(stream, &epoch), 0))                    \
			return ca_launch_stamped(stream, epoch, rc);                               \
		return rc;                                                                         \
	}
