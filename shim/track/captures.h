/* SPDX-License-Identifier: MIT */
/*
 * Stream captures in progress, and the gate that keeps our own driver calls away from them.
 *
 * A context mark invalidates captures of its context, and a query or a synchronisation is refused
 * while another thread captures in global mode (cuda.h, cuCtxRecordEvent,
 * cuThreadExchangeStreamCaptureMode). So an internal call enters the gate, which is shut while
 * anything captures; begin-capture shuts the gate, waits until it is empty, and only then calls the
 * driver. Nothing that enters the gate blocks on the device, but for the
 * synchronisation of drivers without context marks, for which a begin-capture waits a second at
 * most.
 *
 * So a capture may begin while a slow call is inside. Where several calls are made in the gate, one
 * that a capture forbids (of a whole context, or a query) is made only if ca_capture_active() is
 * false right before it; else the work is given up, as if the gate had been shut.
 *
 * A capture ends when the driver says so: end-capture, or the death of its stream or context.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/bind/cuda_abi.h"
#include "shim/bind/libcuda.h"

/* Before and after an internal driver call. False: something captures, make no call. */
bool ca_gate_enter(void);
void ca_gate_leave(void);
/* The same while something captures, for a call on one stream that the caller has found not to
 * capture: no capture begins meanwhile. False: one is about to. */
bool ca_gate_enter_in_capture(void);
/*
 * The low bits (CA_CAPTURES) count the captures open or opening; the bits above are the generation
 * of what is known about streams (shim/track/streams.h). One word, so that a submission learns with
 * one comparison that neither concerns it.
 */
extern _Atomic uint64_t ca_capture_word __attribute__((visibility("hidden")));
#define CA_STREAM_GENERATION ((uint64_t)1 << 24)
#define CA_CAPTURES (CA_STREAM_GENERATION - 1)
/* True while any stream of the process captures, or is about to. */
static inline bool
ca_capture_active(void)
{
	return (atomic_load(&ca_capture_word) & CA_CAPTURES) != 0;
}

/*
 * A capture is going to be opened: nothing unfinished is handed out from now on (the driver table's
 * `capturing` is true), while the gate is still open for the marks of what was. Ends once the gate
 * is shut.
 */
void ca_capture_prepare(void);
void ca_capture_prepared(void);
/* Captures that are prepared. */
extern _Atomic unsigned ca_capture_preparing __attribute__((visibility("hidden")));
/* True while a capture is open, opening or prepared. */
static inline bool
ca_capture_is_near(void)
{
	/* in this order: a capture is counted before it is no longer prepared */
	return atomic_load(&ca_capture_preparing) || ca_capture_active();
}
/* Shuts the gate and waits until it is empty. Balanced by ca_capture_started or ca_capture_failed.
 */
void ca_capture_opening(void);
/* The driver began a capture on `stream` of the current context `context`. `serial` is of the last
 * allocation before (allocator/api/heap.h, ca_graph_serial). */
void ca_capture_started(CUcontext context, CUstream stream, CUstreamCaptureMode mode,
			uint64_t serial);
void ca_capture_failed(void);
/*
 * Around a call that may end the capture on `stream`: begin before it, and afterwards say whether
 * it did. The handle may name a new stream, or the stream a new capture, before the call is back in
 * our hands. The result of the first (false: nothing of ours captures there) is given to the
 * second.
 */
struct ca_capture_end {
	bool open;       /* a capture was open */
	unsigned slot;   /* its place, or CA_CAPTURE_NO_SLOT: one of those beyond the table */
	uint64_t serial; /* as given when it began, or smaller */
};
enum { CA_CAPTURE_NO_SLOT = 256 };
struct ca_capture_end ca_capture_ending(CUcontext context, CUstream stream);
void ca_capture_ended(struct ca_capture_end end, bool ended);
/* All captures of a context that died. */
void ca_capture_context_died(CUcontext context);

/* The calling thread's capture interaction mode, as last exchanged. */
void ca_capture_set_thread_mode(CUstreamCaptureMode mode);
bool ca_capture_one_disallows(void);
/* True if the driver prohibits potentially unsafe calls (cudaMalloc, cudaFree) to the calling
 * thread now. */
static inline bool
ca_capture_disallows(void)
{
	return ca_capture_active() && ca_capture_one_disallows();
}

/*
 * Around a call of ours: *mode becomes the driver's interaction mode of this thread, and what that
 * was. False: the driver refused, there is nothing to undo.
 */
bool ca_capture_exchange_mode(const struct ca_real *real, CUstreamCaptureMode *mode);
void ca_capture_restore_mode(const struct ca_real *real, CUstreamCaptureMode mode);
/* True for the driver's capture codes (900 to 908): the call conflicted with a capture. And for the
 * code that every call answers inside a host function: there, too, it is worth a try later. */
bool ca_capture_is_error(CUresult rc);

/*
 * Captures whose begin was not seen: a driver function that we do not know may have begun one.
 *
 * A mark on a context, or its synchronisation, would invalidate it (cuda.h, cuCtxRecordEvent). So
 * once such a function was called, the driver is asked about each stream that we know before one is
 * made. A per-thread default stream of another thread cannot be asked about.
 *
 * True if a stream captures; false without a question as long as nothing unseen was called. Nothing
 * is waited for. errno kept.
 */
bool ca_unseen_capture(const struct ca_real *real);

void ca_capture_after_fork_child(void);
