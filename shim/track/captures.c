/* SPDX-License-Identifier: MIT */
/*
 * Two counters make the gate: captures open or opening, and internal calls inside. Each side raises
 * its own before it reads the other's (sequentially consistent), so that at least one of them sees
 * the other: an internal call that sees a capture turns back, a begin-capture that sees an internal
 * call waits for it.
 *
 * The table remembers which streams capture, so that a destroyed stream or context lowers the
 * count, and the modes, from which cuda.h's rule of prohibited calls follows. Captures beyond the
 * table's size are only counted: they end one by one, as end-captures of unknown streams succeed.
 *
 * The wait has an end: a driver without context marks is synchronised inside the gate, for as long
 * as its work takes, and that work may need the thread that begins the capture. A call that is
 * still inside after a second has long been judged by the driver, and does not harm a capture that
 * begins now; and no other follows it in the gate that could (captures.h).
 */
#include "shim/track/captures.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#include "allocator/util/yield.h"
#include "shim/bind/scope.h"
#include "shim/state/process.h"

enum { TABLE_SIZE = CA_CAPTURE_NO_SLOT, RESTORE_TRIES = 3, GATE_WAIT_S = 1 };

struct capture {
	CUcontext context;
	CUstream stream; /* NULL: free slot, unless `ending` */
	uint64_t thread;
	uint64_t serial; /* of the last allocation before it */
	CUstreamCaptureMode mode;
	bool ending; /* a call that may end it is in the driver */
};

_Atomic uint64_t ca_capture_word = CA_STREAM_GENERATION;
static _Atomic unsigned inside;  /* internal calls in the gate */
static _Atomic unsigned opening; /* begin-captures in the driver, or about to be */
_Atomic unsigned ca_capture_preparing;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture table[TABLE_SIZE]; /* under lock */
static unsigned table_end;               /* slots ever used; under lock */
static unsigned lost;                    /* captures without a slot; under lock */
static uint64_t lost_serial;             /* smallest of theirs; under lock */

static __thread CUstreamCaptureMode thread_mode __attribute__((tls_model("initial-exec")));
static __thread uint64_t thread_number __attribute__((tls_model("initial-exec"))); /* 0: none yet */

/* A number that no other thread of the process has or had. */
static uint64_t
thread_identity(void)
{
	static _Atomic uint64_t last;

	if (!thread_number)
		thread_number = atomic_fetch_add(&last, 1) + 1;
	return thread_number;
}

bool
ca_gate_enter(void)
{
	if (atomic_load_explicit(&ca_capture_word, memory_order_relaxed) & CA_CAPTURES)
		return false;
	atomic_fetch_add(&inside, 1);
	if (!ca_capture_active())
		return true;
	atomic_fetch_sub(&inside, 1);
	return false;
}

bool
ca_gate_enter_in_capture(void)
{
	if (atomic_load(&opening))
		return false;
	atomic_fetch_add(&inside, 1);
	if (!atomic_load(&opening))
		return true;
	atomic_fetch_sub(&inside, 1);
	return false;
}

void
ca_gate_leave(void)
{
	atomic_fetch_sub(&inside, 1);
}

void
ca_capture_prepare(void)
{
	atomic_fetch_add(&ca_capture_preparing, 1);
}

void
ca_capture_prepared(void)
{
	atomic_fetch_sub(&ca_capture_preparing, 1);
}

void
ca_capture_opening(void)
{
	struct timespec now, end;

	atomic_fetch_add(&ca_capture_word, 1);
	atomic_fetch_add(&opening, 1);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += GATE_WAIT_S;
	while (atomic_load(&inside)) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > end.tv_sec ||
		    (now.tv_sec == end.tv_sec && now.tv_nsec >= end.tv_nsec))
			return;
		ca_yield();
	}
}

void
ca_capture_failed(void)
{
	atomic_fetch_sub(&ca_capture_word, 1);
	atomic_fetch_sub(&opening, 1);
}

void
ca_capture_started(CUcontext context, CUstream stream, CUstreamCaptureMode mode, uint64_t serial)
{
	CA_HOLD_LOCK(&lock);
	unsigned slot = 0;

	atomic_fetch_sub(&opening, 1);
	while (slot < table_end && (table[slot].stream || table[slot].ending))
		slot++;
	if (slot < TABLE_SIZE) {
		table[slot] = (struct capture){
			.context = context,
			.stream = stream,
			.thread = thread_identity(),
			.mode = mode,
			.serial = serial,
		};
		table_end = slot < table_end ? table_end : slot + 1;
	} else {
		if (!lost || serial < lost_serial)
			lost_serial = serial;
		lost++;
	}
}

/* The per-thread default stream has one handle for all threads: its thread tells which. */
static bool
is_capture_of(const struct capture *capture, CUcontext context, CUstream stream)
{
	if (capture->stream != stream)
		return false;
	if (stream != CU_STREAM_PER_THREAD)
		return true;
	return capture->thread == thread_identity() && capture->context == context;
}

struct ca_capture_end
ca_capture_ending(CUcontext context, CUstream stream)
{
	static const struct ca_capture_end none = { .slot = TABLE_SIZE };

	if (!ca_capture_active())
		return none;
	CA_HOLD_LOCK(&lock);
	for (unsigned i = 0; i < table_end; i++) {
		if (!table[i].ending && is_capture_of(&table[i], context, stream)) {
			table[i].ending = true;
			return (struct ca_capture_end){ true, i, table[i].serial };
		}
	}
	return lost ? (struct ca_capture_end){ true, TABLE_SIZE, lost_serial } : none;
}

void
ca_capture_ended(struct ca_capture_end end, bool ended)
{
	if (!end.open)
		return;
	CA_HOLD_LOCK(&lock);
	if (end.slot < TABLE_SIZE) {
		/* its context may have died meanwhile, and taken it along */
		ended = ended && table[end.slot].stream;
		table[end.slot].ending = false;
		if (ended)
			table[end.slot].stream = NULL;
	} else if (ended) {
		ended = lost > 0;
		lost -= ended;
	}
	if (ended)
		atomic_fetch_sub(&ca_capture_word, 1);
}

void
ca_capture_context_died(CUcontext context)
{
	unsigned ended = 0;

	if (!ca_capture_active())
		return;
	CA_HOLD_LOCK(&lock);
	for (unsigned i = 0; i < table_end; i++) {
		if (table[i].stream && table[i].context == context) {
			table[i].stream = NULL;
			ended++;
		}
	}
	atomic_fetch_sub(&ca_capture_word, ended);
}

void
ca_capture_set_thread_mode(CUstreamCaptureMode mode)
{
	thread_mode = mode;
}

bool
ca_capture_one_disallows(void)
{
	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	CA_HOLD_LOCK(&lock);
	for (unsigned i = 0; i < table_end; i++) {
		const struct capture *capture = &table[i];

		if (!capture->stream || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
			continue;
		if (capture->thread == thread_identity() ||
		    (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
		     capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL))
			return true;
	}
	return false;
}

bool
ca_capture_exchange_mode(const struct ca_real *real, CUstreamCaptureMode *mode)
{
	return real->cuThreadExchangeStreamCaptureMode &&
	       CA_INSIDE(real->cuThreadExchangeStreamCaptureMode(mode)) == CUDA_SUCCESS;
}

void
ca_capture_restore_mode(const struct ca_real *real, CUstreamCaptureMode mode)
{
	for (int i = 0; i < RESTORE_TRIES; i++) /* it must not stay relaxed for one refusal */
		if (ca_capture_exchange_mode(real, &mode))
			return;
}

bool
ca_capture_is_error(CUresult rc)
{
	return (rc >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
		rc <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) ||
	       rc == CUDA_ERROR_NOT_PERMITTED;
}

void
ca_capture_after_fork_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	atomic_fetch_and(&ca_capture_word, ~CA_CAPTURES);
	atomic_store(&inside, 0);
	atomic_store(&opening, 0);
	atomic_store(&ca_capture_preparing, 0);
	table_end = 0;
	lost = 0;
	thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
}
