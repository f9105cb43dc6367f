/* SPDX-License-Identifier: MIT */
/*
 * The process-wide state of the bridge is small: the knobs (read once), the phase (new, up, down,
 * forked), and a counter for each name. Everything is atomic; the only lock is the once of the
 * knobs and the one around the start of the engine.
 *
 * A call walks: count -> delay -> injected failure -> phase -> body. So a call that is refused
 * still counts, as SIMCUDA_STATS promises "what reached the driver", and an injected failure hits
 * before the body did anything.
 *
 * Phases. The real driver registers an exit handler in cuInit and answers DEINITIALIZED after that;
 * so do we. A child forked after cuInit gets NOT_INITIALIZED from everything, cuInit included; its
 * counters start at zero. A child forked before cuInit is a process like any other.
 */
#include "tests/sim/call.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/delay.h"
#include "tests/sim/engine.h"
#include "tests/sim/names.h"
#include "tests/sim/stats.h"

extern char **environ;

static struct simb_knobs knobs;
static pthread_once_t knobs_once = PTHREAD_ONCE_INIT;
static _Atomic bool knobs_are_read;
static bool delays; /* some call is delayed; with the knobs */
static pthread_mutex_t start_lock =
	PTHREAD_MUTEX_INITIALIZER;         /* around the change to SIMB_PHASE_UP */
static _Atomic int phase = SIMB_PHASE_NEW; /* enum simb_phase */

static _Atomic uint64_t calls[SIMB_NAMES];   /* each name's, refused ones included */
static _Atomic uint64_t calls_all;           /* sum of calls[], where SIMCUDA_FAIL is set */
static _Atomic uint64_t missing[SIMB_NAMES]; /* those of calls[] that met a name not built */
static _Atomic uint64_t injected;            /* failures made by SIMCUDA_FAIL */

static _Thread_local enum simb_flavour flavour_now; /* of the call under way in this thread */
static _Thread_local int name_now = -1;             /* likewise, index into simb_names */

/* One line to fd in one write, so that lines of several threads and processes stay whole. */
__attribute__((format(printf, 2, 3))) static void
line_write(int fd, const char *format, ...)
{
	char line[512];
	va_list args;
	int n = snprintf(line, sizeof(line), "simcuda[%d]: ", (int)getpid());

	va_start(args, format);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
	va_end(args);
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	if (write(fd, line, (size_t)n) < 0)
		return; /* nowhere left to say so */
}

/* Said where the log goes, so that a run can be repeated. */
static void
jitter_seed(void)
{
	struct timespec now;

	if (!knobs.jitter_us)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	if (!knobs.jitter_seeded)
		knobs.jitter_seed = (uint64_t)now.tv_nsec << 20 ^ (uint64_t)getpid();
	line_write(knobs.log_fd >= 0 ? knobs.log_fd : STDERR_FILENO, "SIMCUDA_JITTER=%u:%llu",
		   knobs.jitter_us, (unsigned long long)knobs.jitter_seed);
}

static void
knobs_read(void)
{
	char error[SIMB_PATH_MAX + 512];
	const char *unknown = simb_knobs_unknown(environ);

	if (unknown)
		snprintf(error, sizeof(error), "simcuda: %.256s: no such knob", unknown);
	else if (!simb_knobs_parse(&knobs, getenv, error, sizeof(error))) {
		jitter_seed();
		delays = knobs.jitter_us != 0;
		for (int name = 0; name < SIMB_NAMES; name++)
			delays |= knobs.latency[name].fixed_ns != 0 ||
				  knobs.latency[name].ns_per_mib != 0;
		atomic_store_explicit(&knobs_are_read, true, memory_order_release);
		return;
	}
	fprintf(stderr, "%s\n", error);
	abort();
}

const struct simb_knobs *
simb_knobs(void)
{
	if (!atomic_load_explicit(&knobs_are_read, memory_order_acquire))
		pthread_once(&knobs_once, knobs_read);
	return &knobs;
}

enum simb_phase
simb_phase(void)
{
	return (enum simb_phase)atomic_load(&phase);
}

int
simb_call_name(void)
{
	return name_now;
}

uint64_t
simb_calls(int name)
{
	return atomic_load_explicit(&calls[name], memory_order_relaxed);
}

uint64_t
simb_calls_all(void)
{
	uint64_t sum = 0;

	for (int name = 0; name < SIMB_NAMES; name++)
		sum += simb_calls(name);
	return sum;
}

uint64_t
simb_calls_missing(int name)
{
	return atomic_load_explicit(&missing[name], memory_order_relaxed);
}

uint64_t
simb_injected(void)
{
	return atomic_load_explicit(&injected, memory_order_relaxed);
}

/* ------------------------------------------------------ around a call --- */
/* The code that SIMCUDA_FAIL wants for this call, or 0. nth and nth_all count this call. */
static int
fail_find(int name, uint64_t nth, uint64_t nth_all)
{
	for (int i = 0; i < knobs.n_fails; i++) {
		const struct simb_fail *fail = &knobs.fails[i];
		uint64_t n = fail->name < 0 ? nth_all : nth;

		if (fail->name >= 0 && fail->name != name)
			continue;
		if (n == fail->nth || (fail->onwards && n > fail->nth))
			return fail->code;
	}
	return 0;
}

/* What the phase says to a call: 0, or the code. */
static int
phase_check(enum simb_when when)
{
	switch (simb_phase()) {
	case SIMB_PHASE_UP:
		return 0;
	case SIMB_PHASE_DOWN:
		return when == SIMB_INIT ? CUDA_ERROR_DEINITIALIZED : 0;
	case SIMB_PHASE_NEW:
	case SIMB_PHASE_FORKED:
		break;
	}
	return when == SIMB_INIT ? CUDA_ERROR_NOT_INITIALIZED : 0;
}

int
simb_call_enter(struct simb_call *call, int name, enum simb_flavour flavour, enum simb_when when)
{
	uint64_t nth, nth_all = 0;
	int rc;

	call->name = name;
	call->saved_errno = errno;
	call->outer = flavour_now;
	call->outer_name = name_now;
	flavour_now = flavour;
	name_now = name;
	simb_knobs();
	nth = atomic_fetch_add_explicit(&calls[name], 1, memory_order_relaxed) + 1;
	if (knobs.n_fails)
		nth_all = atomic_fetch_add_explicit(&calls_all, 1, memory_order_relaxed) + 1;
	call->start_ns = 0;
	if (delays)
		simb_delay_enter(call);
	rc = fail_find(name, nth, nth_all);
	if (rc) {
		atomic_fetch_add_explicit(&injected, 1, memory_order_relaxed);
		if (knobs.log_fd >= 0)
			line_write(knobs.log_fd, "%s: call %llu fails as asked, code %d",
				   simb_names[name].symbol, (unsigned long long)nth, rc);
		return rc;
	}
	if (simb_names[name].version > knobs.driver_version) {
		line_write(STDERR_FILENO,
			   "%s is newer than this driver (SIMCUDA_DRIVER_VERSION=%d)",
			   simb_names[name].symbol, knobs.driver_version);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (when == SIMB_INIT && sim_in_host_function())
		return CUDA_ERROR_NOT_PERMITTED;
	return phase_check(when);
}

CUresult
simb_call_leave(struct simb_call *call, int rc)
{
	if (knobs.log_fd >= 0)
		line_write(knobs.log_fd, "%s = %d", simb_names[call->name].symbol, rc);
	if (delays)
		simb_delay_leave(call);
	flavour_now = call->outer;
	name_now = call->outer_name;
	errno = call->saved_errno;
	return (CUresult)rc;
}

CUresult
simb_call_missing(int name)
{
	struct simb_call call;
	int rc = simb_call_enter(&call, name, SIMB_LEGACY, SIMB_ANY);

	if (!rc) {
		atomic_fetch_add_explicit(&missing[name], 1, memory_order_relaxed);
		line_write(STDERR_FILENO, "%s is not built", simb_names[name].symbol);
		rc = CUDA_ERROR_NOT_SUPPORTED;
	}
	return simb_call_leave(&call, rc);
}

int
simb_unbuilt(const char *what)
{
	line_write(STDERR_FILENO, "%s: %s is not built",
		   name_now >= 0 ? simb_names[name_now].symbol : "?", what);
	return CUDA_ERROR_NOT_SUPPORTED;
}

void
simb_note(const char *what)
{
	line_write(STDERR_FILENO, "%s: %s", name_now >= 0 ? simb_names[name_now].symbol : "?",
		   what);
}

int
simb_misuse(int code, const char *what)
{
	const char *name = name_now >= 0 ? simb_names[name_now].symbol : "work";

	if (knobs.strict) {
		line_write(STDERR_FILENO, "misuse in %s: %s (code %d)", name, what, code);
		abort();
	}
	if (knobs.log_fd >= 0)
		line_write(knobs.log_fd, "misuse in %s: %s (code %d)", name, what, code);
	return code;
}

CUstream
simb_stream(CUstream stream)
{
	return !stream && flavour_now == SIMB_PTSZ ? CU_STREAM_PER_THREAD : stream;
}

/* -------------------------------------------------------------- phases --- */
static void
misuse_hear(void *arg, int code, const char *what)
{
	simb_misuse(code, what);
}

static void
exit_hear(void)
{
	int up = SIMB_PHASE_UP;

	atomic_compare_exchange_strong(&phase, &up, SIMB_PHASE_DOWN);
}

static void
fork_child_hear(void)
{
	if (atomic_load(&phase) == SIMB_PHASE_UP)
		atomic_store(&phase, SIMB_PHASE_FORKED);
	for (int i = 0; i < SIMB_NAMES; i++) {
		atomic_store(&calls[i], 0);
		atomic_store(&missing[i], 0);
	}
	atomic_store(&calls_all, 0);
	atomic_store(&injected, 0);
	flavour_now = SIMB_LEGACY;
	name_now = -1;
}

static int
start_locked(void)
{
	struct sim_config config = {
		.n_devices = knobs.n_devices,
		.mem_bytes = knobs.mem_bytes,
		.clock = knobs.clock,
		.asked_max = knobs.asked_max,
		.free_at_once = knobs.free_at_once,
		.ends_tell = knobs.ends_tell,
		.breaks = knobs.breaks,
		.one_queue = knobs.one_queue,
		.races = knobs.races,
		.on_misuse = misuse_hear,
		.deadlock_ms = knobs.deadlock_ms,
		.deadlock_abort = knobs.strict || knobs.deadlock_ms,
		.ipc = knobs.ipc[0] ? knobs.ipc : NULL,
	};
	int rc;

	if (!knobs.n_devices)
		return CUDA_ERROR_NO_DEVICE;
	rc = sim_start(&config);
	if (rc) {
		line_write(STDERR_FILENO, "cannot start: %s", strerror(-rc));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	atexit(exit_hear);
	atomic_store(&phase, SIMB_PHASE_UP);
	return 0;
}

int
simb_start(void)
{
	int rc = 0;

	switch (simb_phase()) {
	case SIMB_PHASE_UP:
		return 0;
	case SIMB_PHASE_DOWN:
		return CUDA_ERROR_DEINITIALIZED;
	case SIMB_PHASE_FORKED:
		return CUDA_ERROR_NOT_INITIALIZED;
	case SIMB_PHASE_NEW:
		break;
	}
	pthread_mutex_lock(&start_lock);
	if (simb_phase() == SIMB_PHASE_NEW)
		rc = start_locked();
	pthread_mutex_unlock(&start_lock);
	return rc;
}

/* At load: only so that a fork is noticed whoever calls us first. */
__attribute__((constructor)) static void
load_hear(void)
{
	pthread_atfork(NULL, NULL, fork_child_hear);
}

__attribute__((destructor)) static void
unload_hear(void)
{
	if (simb_calls_all() && *simb_knobs()->stats_path)
		simb_stats_write(simb_knobs()->stats_path);
}
