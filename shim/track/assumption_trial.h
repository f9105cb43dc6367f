/* SPDX-License-Identifier: MIT */
/*
 * An assumption about the driver, tried on the driver itself.
 *
 * A stream waits for a word in page-locked host memory that is not there yet (cuStreamWaitValue32).
 * A mark that is believed to come after that stream's work must not be done then, while a control,
 * an event on a stream that depends on nothing, is: without the control nothing was shown, since
 * the device may have done nothing at all (it has one queue, or other work). The *host* writes the
 * word: a stream that writes it may stand behind the waiting one in the same queue of the device
 * (CUDA_DEVICE_MAX_CONNECTIONS=1), and never run.
 *
 * A thread of ours makes the stream wait, since one assumption is about another thread's per-thread
 * stream, and writes the word after a while whatever happens: a call of the calling thread that
 * blocks until the word is there comes back. If a call of our thread does not, the calling thread
 * writes the word and gives up, and no other trial begins before ours has ended.
 */
#pragma once

#include "shim/bind/cuda_abi.h"
#include "shim/bind/libcuda.h"
#include "shim/track/contexts.h"

enum ca_assumption {
	/* An event recorded on a blocking stream that is idle comes after all that the legacy
	 * stream was given before. */
	CA_ASSUMPTION_LEGACY_RECORD = 1,
	/* cuCtxRecordEvent comes after all that any stream of the context was given before, other
	 * threads' per-thread streams included. */
	CA_ASSUMPTION_CONTEXT_RECORD = 2,
};

enum ca_trial_result {
	CA_TRIAL_NONE,   /* nothing was shown: try later */
	CA_TRIAL_SILENT, /* the control did not end, either, or no thread could be made */
	CA_TRIAL_LIKELY, /* within one trial: kept, unless the mark waited for other work */
	CA_TRIAL_KEPT,
	CA_TRIAL_BROKEN,
	CA_TRIAL_UNABLE, /* this driver cannot be tried */
};

/* The driver is new enough to record events on contexts. */
bool ca_assumption_trial_has_context_marks(const struct ca_real *real);

struct ca_trial_results {
	enum ca_trial_result legacy, context;
};

/*
 * Tries the `wanted` assumptions on a context that is entered; the capture gate is entered, too,
 * and nothing that we did not see captures. For the legacy stream's: no other blocking stream of
 * the context has unfinished work, or the calling thread is about to submit to the legacy stream.
 * At most 20 calls of the driver, and on a machine that is not busy 1 ms of asking. One call at a
 * time. errno kept.
 */
struct ca_trial_results ca_assumption_trial(const struct ca_real *real, struct ca_context *context,
					    unsigned wanted);
void ca_assumption_trial_after_fork_child(void);
