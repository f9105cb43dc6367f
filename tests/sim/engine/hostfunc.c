/* SPDX-License-Identifier: MIT */
/*
 * Host functions and callbacks: work of a stream that is a function of the program.
 *
 * One thread of the engine's own calls them, one after the other, with no lock held, as soon as
 * what is before them is done; with a manual clock, as soon as somebody needs them. Until the
 * function returns, what comes after it in its stream waits. Its start is to the host what
 * synchronising with an event just before it would be (cuda.h, cuLaunchHostFunc), so it teaches the
 * host clock. After an error of the context a host function is not called; a callback is, with the
 * code.
 */
#include "tests/sim/engine/internal.h"

#include <stdlib.h>

static struct {
	pthread_t thread;
	bool started, stop;
	pthread_cond_t wake;
	struct sim_op *first, **last; /* FIFO by queue_next */
} host;

/* A destructor to call. */
struct later {
	struct later *next;
	sim_host_function function;
	void *data;
};

static struct later *laters;
static __thread bool inside;

bool
sim_in_host_function(void)
{
	return inside;
}

static void
call(const struct sim_work *work, int status)
{
	void *data = (void *)(uintptr_t)work->a[1];

	inside = true;
	if (work->a[2])
		((sim_callback)(uintptr_t)work->a[0])((CUstream)(uintptr_t)work->a[3],
						      (CUresult)status, data);
	else if (!status)
		((sim_host_function)(uintptr_t)work->a[0])(data);
	inside = false;
}

/* Releases the lock on the way. */
static void
later_run_locked(void)
{
	struct later *later = laters;

	laters = later->next;
	sim_unlock();
	inside = true;
	later->function(later->data);
	inside = false;
	free(later);
	sim_lock();
}

void
sim_host_later_locked(sim_host_function function, void *data)
{
	struct later *later = sim_xcalloc(1, sizeof(*later)), **p = &laters;

	later->function = function;
	later->data = data;
	while (*p)
		p = &(*p)->next;
	*p = later;
	pthread_cond_signal(&host.wake);
}

static void *
host_main(void *arg)
{
	sim_lock();
	while (!host.stop || laters) {
		struct sim_op *op = host.first;
		int status;

		if (laters) {
			later_run_locked();
			continue;
		}
		if (!op) {
			pthread_cond_wait(&host.wake, &sim_g.lock);
			continue;
		}
		host.first = op->queue_next;
		if (!host.first)
			host.last = &host.first;
		sim_vc_join(&sim_g.host, &op->teaches);
		status = op->ctx->sticky;
		sim_unlock();
		call(&op->work, status);
		sim_lock();
		sim_op_complete_locked(op);
	}
	sim_unlock();
	return NULL;
}

int
sim_host_start_locked(void)
{
	if (host.started)
		return 0;
	pthread_cond_init(&host.wake, NULL);
	host.first = NULL;
	host.last = &host.first;
	host.stop = false;
	if (pthread_create(&host.thread, NULL, host_main, NULL))
		return CUDA_ERROR_OUT_OF_MEMORY;
	host.started = true;
	return 0;
}

void
sim_host_begin_locked(struct sim_op *op)
{
	op->queue_next = NULL;
	*host.last = op;
	host.last = &op->queue_next;
	pthread_cond_signal(&host.wake);
}

void
sim_host_stop(void)
{
	if (!host.started)
		return;
	sim_lock();
	host.stop = true;
	pthread_cond_signal(&host.wake);
	sim_unlock();
	pthread_join(host.thread, NULL);
	pthread_cond_destroy(&host.wake);
	host.started = false;
}

unsigned
sim_host_threads_locked(void)
{
	return host.started;
}

static int
host_submit(CUstream handle, const struct sim_work *work, bool in_capture)
{
	struct sim_stream *stream;
	int rc;

	if (!work->a[0])
		return CUDA_ERROR_INVALID_VALUE;
	sim_lock();
	rc = sim_stream_resolve_locked(handle, &stream);
	if (!rc && stream->capture && !in_capture)
		rc = sim_capture_spoil_locked(stream->capture,
					      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (!rc)
		rc = sim_host_start_locked();
	if (!rc)
		rc = sim_submit_locked(stream, work, NULL, NULL, NULL);
	sim_unlock();
	return rc;
}

int
sim_stream_host_function(CUstream handle, sim_host_function function, void *data)
{
	struct sim_work work = {
		.kind = SIM_WORK_HOST,
		.name = "host function",
		.a = { (uintptr_t)function, (uintptr_t)data },
	};

	return host_submit(handle, &work, true);
}

int
sim_stream_callback(CUstream handle, sim_callback callback, void *data, CUstream shown)
{
	struct sim_work work = {
		.kind = SIM_WORK_HOST,
		.name = "callback",
		.a = { (uintptr_t)callback, (uintptr_t)data, 1, (uintptr_t)shown },
	};

	return host_submit(handle, &work, false);
}
