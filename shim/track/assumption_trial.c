/* SPDX-License-Identifier: MIT */
/*
 * The two threads meet by counters, which each looks at again after a short nap: there are a few
 * steps of some microseconds, and on a busy machine a nap gives the processor to who needs it. So
 * every limit is a number of naps.
 *
 * The word only grows: each wait is for a value of its own, larger than all before, and at the end
 * it is beyond what a late wait can ask for.
 */
#include "shim/track/assumption_trial.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/order/order.h"
#include "shim/bind/loader.h"
#include "shim/state/process.h"
#include "shim/track/captures.h"

enum {
	NAP_NS = 10000, /* the system makes it 60 us */
	/* about 1 ms: a record on an idle device is done within 10 us */
	ASK_NAPS = 16,
	/* A record need not be done as soon as the control is, and the context's may wait for other
	 * work. The second hold is longer than the first one and what follows it, so that no other
	 * work is in time for both. */
	HOLD_NAPS = 3,
	HOLD_AGAIN_NAPS = 9,
	/* for a mark after the word: short, as what else it waited for may end as well */
	RELEASE_NAPS = 5,
	/* about 10 ms: longer than an undisturbed trial, so that the trial is over before */
	WATCH_NAPS = 160,
	/* about 100 ms: to make a thread, and a per-thread default stream */
	MEET_NAPS = 1600,
	/* about 1 s: for a call that names the legacy stream. It must not come after the trial,
	 * between two submissions of the program. */
	LEGACY_NAPS = 16000,
	/* waits of one thread of ours; all are for values that follow each other */
	WAITS_MAX = 3,
	/* that cuda.h names; a driver may export what it does not support */
	CONTEXT_MARK_VERSION = 12050,
	WAIT_VALUE_VERSION = 11070,
};

/* The one thread of ours, and what it is told. A step is done when its number is reached. */
static struct {
	const struct ca_real *real;
	struct ca_context *context;
	CUstream stream;      /* that shall wait next */
	uint32_t value;       /* for this */
	_Atomic bool lives;   /* from before it is made until it touches nothing any more */
	_Atomic bool dropped; /* no more steps */
	_Atomic bool crosses; /* it is in a call that names the legacy stream */
	_Atomic unsigned alive, requested, posted, checked;
	_Atomic CUresult result; /* of the last wait that was posted */
} helper;

/* The C library's. Before glibc 2.34 they are in a library of their own, which a driver needs, and
 * this one must not. */
static struct {
	int (*create)(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *arg),
		      void *arg);
	int (*detach)(pthread_t thread);
	int (*setcancelstate)(int state, int *ret_before);
} threads;

static bool
find_threads(void)
{
	*(uintptr_t *)&threads.create = ca_loader_find("pthread_create");
	*(uintptr_t *)&threads.detach = ca_loader_find("pthread_detach");
	*(uintptr_t *)&threads.setcancelstate = ca_loader_find("pthread_setcancelstate");
	return threads.create && threads.detach && threads.setcancelstate;
}

static void
sleep_once(void)
{
	const struct timespec time = { .tv_nsec = NAP_NS };

	/* not nanosleep(): that is a cancellation point */
	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL);
}

/* False: not within so many naps. */
static bool
reaches(_Atomic unsigned *step, unsigned number, unsigned naps)
{
	while (atomic_load(step) < number && !atomic_load(&helper.dropped) && naps--)
		sleep_once();
	return atomic_load(step) >= number;
}

/* A late thread may come with a value that has been passed. */
static void
raise_word(struct ca_context *context, uint32_t value)
{
	uint32_t now = atomic_load(context->word);

	while (now < value && !atomic_compare_exchange_weak(context->word, &now, value))
		;
}

/* ---- the thread that makes a stream wait */

static CUresult
wait_for_word(uint32_t value)
{
	CUdeviceptr word = (CUdeviceptr)(uintptr_t)helper.context->word;

	if (atomic_load(&helper.dropped) || ca_capture_active())
		return CUDA_ERROR_NOT_READY;
	return CA_INSIDE(
		helper.real->cuStreamWaitValue32_v2(helper.stream, word, value, 0 /* >= */));
}

static CUresult
wait_on_legacy(uint32_t value)
{
	struct ca_space *space = atomic_load(&helper.context->space);
	CUresult rc = CUDA_ERROR_NOT_READY;

	if (space && ca_order_legacy_call_begin(space)) {
		atomic_store(&helper.crosses, true);
		rc = wait_for_word(value);
		atomic_store(&helper.crosses, false);
		ca_order_legacy_call_end(space);
	}
	return rc;
}

static void
post(unsigned number)
{
	uint32_t value = helper.value;

	atomic_store(&helper.result, helper.stream == CU_STREAM_LEGACY ? wait_on_legacy(value)
								       : wait_for_word(value));
	atomic_store(&helper.posted, number);
	reaches(&helper.checked, number, WATCH_NAPS);
	raise_word(helper.context, value);
}

/*
 * A program that makes streams while a library is loaded holds the loader's lock, which a driver
 * may want at its first call in a thread. So that call names no context: nobody waits for it.
 */
static void *
helper_main(void *arg)
{
	struct ca_context *context = helper.context;
	CUcontext ignored;

	threads.detach(pthread_self());
	(void)CA_INSIDE(helper.real->cuCtxGetCurrent(&ignored));
	if (!atomic_load(&helper.dropped) && ca_context_enter(context)) {
		if (!CA_INSIDE(helper.real->cuCtxPushCurrent_v2(context->handle))) {
			atomic_store(&helper.alive, 1);
			for (unsigned i = 1; reaches(&helper.requested, i, MEET_NAPS); i++)
				post(i);
		}
		ca_context_leave(context);
	}
	atomic_store(&helper.lives, false);
	return NULL;
}

/* False: no thread can be made. The calling thread ends it with helper_stop. */
static bool
helper_start(const struct ca_real *real, struct ca_context *context)
{
	pthread_t thread;
	bool made;

	helper.real = real;
	helper.context = context;
	atomic_store(&helper.dropped, false);
	atomic_store(&helper.alive, 0);
	atomic_store(&helper.requested, 0);
	atomic_store(&helper.posted, 0);
	atomic_store(&helper.checked, 0);
	atomic_store(&helper.lives, true);
	made = !threads.create(&thread, NULL, helper_main, NULL);
	if (!made)
		atomic_store(&helper.lives, false);
	return made;
}

/* Every stream that waits goes on, also one that a late thread lets wait. */
static void
helper_stop(struct ca_context *context)
{
	unsigned naps = MEET_NAPS;

	atomic_store(&helper.dropped, true);
	context->word_value += WAITS_MAX;
	raise_word(context, context->word_value);
	while (atomic_load(&helper.lives) && naps--)
		sleep_once();
	for (naps = LEGACY_NAPS; atomic_load(&helper.crosses) && naps--;)
		sleep_once();
}

/* A stream waits for helper.value. */
static CUresult
helper_request(struct ca_context *context, CUstream stream)
{
	unsigned number = atomic_load(&helper.requested) + 1;

	helper.stream = stream;
	helper.value = ++context->word_value;
	atomic_store(&helper.requested, number);
	if (!reaches(&helper.posted, number, MEET_NAPS))
		return CUDA_ERROR_NOT_READY;
	return atomic_load(&helper.result);
}

/* The word is written. */
static void
helper_answer(struct ca_context *context)
{
	raise_word(context, helper.value);
	atomic_store(&helper.checked, atomic_load(&helper.requested));
}

/* ---- the thread that judges */

static int
version_of(const struct ca_real *real)
{
	int version = 0;

	if (!real->cuDriverGetVersion || CA_INSIDE(real->cuDriverGetVersion(&version)))
		return 0;
	return version;
}

/* A driver that does not say is asked. */
static bool
is_new_enough(int version, int needed)
{
	return !version || version >= needed;
}

bool
ca_assumption_trial_has_context_marks(const struct ca_real *real)
{
	static _Atomic int known;

	if (!atomic_load(&known))
		atomic_store(&known, version_of(real));
	return real->cuCtxRecordEvent && is_new_enough(atomic_load(&known), CONTEXT_MARK_VERSION);
}

static bool
is_supported(const struct ca_real *real)
{
	return is_new_enough(version_of(real), WAIT_VALUE_VERSION) &&
	       real->cuStreamWaitValue32_v2 && real->cuMemHostAlloc && real->cuStreamCreate &&
	       real->cuStreamDestroy_v2 && real->cuStreamQuery && real->cuEventCreate &&
	       real->cuEventRecord && real->cuEventQuery && real->cuCtxGetCurrent &&
	       real->cuCtxPushCurrent_v2 && real->cuCtxPopCurrent_v2;
}

/* The context is current. Made once; a part that could not be made is tried for again. */
static CUresult
make_trial_objects(const struct ca_real *real, struct ca_context *context)
{
	const unsigned blocking = 0, non_blocking = 1;
	CUresult rc = CUDA_SUCCESS;
	void *word;

	if (!context->word) {
		rc = CA_INSIDE(real->cuMemHostAlloc(&word, sizeof(uint32_t), 0));
		if (rc)
			return rc;
		context->word = word;
		atomic_init(context->word, 0);
	}
	if (!context->tried)
		rc = CA_INSIDE(real->cuEventCreate(&context->tried, CU_EVENT_DISABLE_TIMING));
	if (!rc && !context->before)
		rc = CA_INSIDE(real->cuEventCreate(&context->before, CU_EVENT_DISABLE_TIMING));
	if (!rc && !context->control)
		rc = CA_INSIDE(real->cuEventCreate(&context->control, CU_EVENT_DISABLE_TIMING));
	if (!rc)
		rc = ca_context_own_stream(real, &context->filler, non_blocking);
	return rc ? rc : ca_context_own_stream(real, &context->marker, blocking);
}

/* In this and the next: a call before may have been slow. Neither is asked of the driver once a
 * begin-capture waits for the trial, or has waited in vain. */
static CUresult
query(const struct ca_real *real, CUevent event)
{
	return ca_capture_active() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
				   : CA_INSIDE(real->cuEventQuery(event));
}

static CUresult
record_context(const struct ca_real *real, struct ca_context *context, CUevent event)
{
	return ca_capture_active() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
				   : CA_INSIDE(real->cuCtxRecordEvent(context->handle, event));
}

static bool
ends(const struct ca_real *real, CUevent event, unsigned naps)
{
	for (; naps--; sleep_once())
		switch (query(real, event)) {
		case CUDA_SUCCESS:
			return true;
		case CUDA_ERROR_NOT_READY:
			continue;
		default:
			return false;
		}
	return false;
}

/* A record on the marker tells something only while that is idle: one of a trial before, which a
 * slow device has not come to yet, may wait for the word by itself. */
static bool
marker_is_idle(const struct ca_real *real, struct ca_context *context)
{
	CUstream marker = atomic_load(&context->marker);

	for (unsigned naps = ASK_NAPS; naps && !ca_capture_active(); naps--) {
		if (!CA_INSIDE(real->cuStreamQuery(marker)))
			return true;
		sleep_once();
	}
	return false;
}

static CUresult
record(const struct ca_real *real, struct ca_context *context, enum ca_assumption assumption)
{
	CUresult rc;

	if (assumption == CA_ASSUMPTION_LEGACY_RECORD)
		rc = CA_INSIDE(real->cuEventRecord(context->tried, atomic_load(&context->marker)));
	else
		rc = record_context(real, context, context->tried);
	if (!rc)
		rc = CA_INSIDE(
			real->cuEventRecord(context->control, atomic_load(&context->filler)));
	return rc;
}

static void
hold(unsigned naps)
{
	while (naps--)
		sleep_once();
}

/* Since `birth`, and all that is submitted is seen: a submission that goes on now has had the hold
 * to be noted. */
static bool
nothing_was_submitted(struct ca_context *context, uint64_t birth)
{
	struct ca_space *space = atomic_load(&context->space);

	return space && ca_order_is_untouched(&space->order, birth);
}

/*
 * The word is not written yet, unless the other thread has lost its patience: that is looked at
 * after each question. A mark of the context may have waited for other work. Not for what the mark
 * before it waited for, if that one is done; not for anything later, if nothing was submitted since
 * `birth`; and else it has to end soon once the word is written.
 */
static enum ca_trial_result
evaluate(const struct ca_real *real, struct ca_context *context, enum ca_assumption assumption,
	 uint64_t birth, unsigned naps)
{
	bool legacy = assumption == CA_ASSUMPTION_LEGACY_RECORD;
	CUresult rc = record(real, context, assumption);
	bool controlled, alone;

	if (rc)
		return CA_TRIAL_NONE;
	controlled = ends(real, context->control, ASK_NAPS);
	alone = legacy || ends(real, context->before, ASK_NAPS);
	hold(naps);
	rc = query(real, context->tried);
	if (atomic_load(context->word) == helper.value)
		return CA_TRIAL_NONE;
	if (rc == CUDA_SUCCESS)
		return CA_TRIAL_BROKEN;
	if (rc != CUDA_ERROR_NOT_READY)
		return CA_TRIAL_NONE;
	if (!controlled) { /* by the word itself, or because the device is busy? */
		helper_answer(context);
		return ends(real, context->control, RELEASE_NAPS) ? CA_TRIAL_SILENT : CA_TRIAL_NONE;
	}
	if (legacy || (alone && nothing_was_submitted(context, birth)))
		return CA_TRIAL_KEPT;
	helper_answer(context);
	return alone && ends(real, context->tried, RELEASE_NAPS) ? CA_TRIAL_LIKELY : CA_TRIAL_NONE;
}

static enum ca_trial_result
try_once(const struct ca_real *real, struct ca_context *context, enum ca_assumption assumption,
	 unsigned naps)
{
	struct ca_space *space = atomic_load(&context->space);
	uint64_t birth = space ? ca_order_birth(&space->order) : 0;
	bool legacy = assumption == CA_ASSUMPTION_LEGACY_RECORD;
	enum ca_trial_result result = CA_TRIAL_NONE;
	CUresult rc;

	if (legacy ? !marker_is_idle(real, context)
		   : record_context(real, context, context->before))
		return CA_TRIAL_NONE;
	rc = helper_request(context, legacy ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD);
	if (!rc)
		result = evaluate(real, context, assumption, birth, naps);
	else if (rc == CUDA_ERROR_NOT_SUPPORTED)
		result = CA_TRIAL_UNABLE;
	helper_answer(context);
	return result;
}

/* Work that other threads submit at the same moment can pass for what a context mark waits for.
 * Then the mark has to wait twice. */
static void
try_wanted(const struct ca_real *real, struct ca_context *context, unsigned wanted,
	   struct ca_trial_results *results)
{
	if (wanted & CA_ASSUMPTION_LEGACY_RECORD)
		results->legacy = try_once(real, context, CA_ASSUMPTION_LEGACY_RECORD, HOLD_NAPS);
	if (wanted & CA_ASSUMPTION_CONTEXT_RECORD)
		results->context = try_once(real, context, CA_ASSUMPTION_CONTEXT_RECORD, HOLD_NAPS);
	if (results->context == CA_TRIAL_LIKELY)
		results->context =
			try_once(real, context, CA_ASSUMPTION_CONTEXT_RECORD, HOLD_AGAIN_NAPS);
	if (results->context == CA_TRIAL_LIKELY)
		results->context = CA_TRIAL_KEPT;
}

static void
try_in_context(const struct ca_real *real, struct ca_context *context, unsigned wanted,
	       struct ca_trial_results *results)
{
	bool pushed;

	if (ca_context_push(real, context, &pushed))
		return;
	if (!make_trial_objects(real, context)) {
		if (!helper_start(real, context))
			*results = (struct ca_trial_results){ CA_TRIAL_SILENT, CA_TRIAL_SILENT };
		else if (reaches(&helper.alive, 1, MEET_NAPS))
			try_wanted(real, context, wanted, results);
		helper_stop(context);
	}
	ca_context_pop(real, pushed);
}

struct ca_trial_results
ca_assumption_trial(const struct ca_real *real, struct ca_context *context, unsigned wanted)
{
	struct ca_trial_results results = { CA_TRIAL_NONE, CA_TRIAL_NONE };
	int saved = errno, cancel;
	sigset_t all, before;

	if (!is_supported(real) || !find_threads())
		return (struct ca_trial_results){ CA_TRIAL_UNABLE, CA_TRIAL_UNABLE };
	if (atomic_load(&helper.lives))
		return results; /* of a trial that was given up */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before); /* of the calling thread, on Linux */
	threads.setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	try_in_context(real, context, wanted, &results);
	threads.setcancelstate(cancel, &cancel);
	sigprocmask(SIG_SETMASK, &before, NULL);
	errno = saved;
	return results;
}

void
ca_assumption_trial_after_fork_child(void)
{
	atomic_store(&helper.lives, false);
}
