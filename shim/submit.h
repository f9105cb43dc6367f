/* SPDX-License-Identifier: MIT */
/*
 * Around every real call that submits work to a stream: find the stream's record, guard, and stamp.
 *
 *   struct ca_stream *stream = ca_submission_begin(CA_FLAVOUR_LEGACY, hStream, NULL);
 *   CUresult rc = CA_INSIDE(real->cuLaunchKernel(...));
 *   ca_submission_end(stream);
 *
 * NULL: nothing to track (disabled, inside the driver, a capturing stream, no context, no memory of
 * ours and none to come). The common path is inline: a per-thread cache of handles, one comparison
 * of the guard's generation, one of the epoch.
 */
#pragma once

#include "allocator/order.h"
#include "shim/cuda_abi.h"
#include "shim/process.h"

/* What the NULL stream means to an entry point: _ptsz and _ptds names are per-thread. */
enum ca_flavour {
	CA_FLAVOUR_LEGACY,
	CA_FLAVOUR_PER_THREAD,
};

struct ca_stream *ca_submission_begin(enum ca_flavour flavour, CUstream handle,
				      const struct ca_touch *touch);
void ca_submission_end(struct ca_stream *stream);

/* The record of a stream as the program named it, without guarding (events, synchronisation,
 * graphs). NULL as above, but for capturing streams: those are found. */
struct ca_stream *ca_submission_stream(enum ca_flavour flavour, CUstream handle);
/* True if the driver says that the stream captures now (asked only while anything captures). */
bool ca_submission_captures(enum ca_flavour flavour, CUstream handle);

/* After the end of a submission that names memory: marks the spaces of other contexts that it
 * touched as having foreign work. `touch` NULL: it may have touched any. */
void ca_submission_foreign(struct ca_stream *stream, const struct ca_touch *touch);
