/* SPDX-License-Identifier: MIT */
/*
 * The executor: when operations run.
 *
 * Real clock: one thread per device takes what is ready, first come first served. An operation with
 * a spin time is put aside with a deadline and takes effect when that has passed; meanwhile the
 * thread runs others. So a long kernel holds up only what is ordered after it, and its effect on
 * memory comes as late as possible, which is when a missing order does the most visible harm.
 * A wait for a value is put aside in the same way, and looked at whenever the thread has nothing
 * else to do. Manual clock: manual.c. In both, the lock is released while memory is touched; the
 * allocations concerned are pinned, and giving memory back waits for its pins.
 */
#include "tests/sim/engine/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static uint64_t
mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void
cond_wait_until(pthread_cond_t *cond, uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / 1000000000),
			       .tv_nsec = (long)(ns % 1000000000) };

	pthread_cond_timedwait(cond, &sim_g.lock, &ts);
}

void
sim_done_wait_locked(unsigned ms)
{
	cond_wait_until(&sim_g.done, mono_ns() + (uint64_t)ms * 1000000);
}

uint64_t
sim_now_ns(void)
{
	return sim_g.config.clock == SIM_CLOCK_MANUAL ? sim_g.manual_ns : mono_ns();
}

static void
op_fail(struct sim_op *op, const struct sim_touch *touch)
{
	op->ctx->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
	fprintf(stderr,
		"simcuda: illegal address: %s #%llu (stream %llu, context %llu) touches "
		"0x%llx..0x%llx\n",
		op->work.name, (unsigned long long)op->seq, (unsigned long long)op->stream_id,
		(unsigned long long)op->ctx_id, (unsigned long long)touch->addr,
		(unsigned long long)touch->addr + touch->n_bytes);
	sim_misuse_locked(CUDA_ERROR_ILLEGAL_ADDRESS,
			  "%s touches memory that is not allocated: 0x%llx", op->work.name,
			  (unsigned long long)touch->addr);
}

static bool
is_pool_edge(const struct sim_op *op)
{
	return op->work.kind == SIM_WORK_ALLOC || op->work.kind == SIM_WORK_FREE;
}

/* What is done although the context's work has ended: callbacks get its error (hostfunc.c). */
static bool
outlives_a_fault(const struct sim_op *op)
{
	return is_pool_edge(op) || op->work.kind == SIM_WORK_HOST;
}

void
sim_op_run_locked(struct sim_op *op)
{
	struct sim_mem *pinned[SIM_WORK_TOUCHES];
	unsigned n = 0;
	bool ok = true;

	op->state = SIM_OP_RUNNING;
	if (op->ctx->sticky && !outlives_a_fault(op)) {
		sim_op_complete_locked(op);
		return;
	}
	if (op->work.kind == SIM_WORK_FAULT)
		op->ctx->sticky = (int)op->work.a[0];
	if (op->work.kind == SIM_WORK_HOST) {
		sim_host_begin_locked(op);
		return;
	}
	if (op->work.kind == SIM_WORK_FREE) {
		sim_free_run_locked(op);
	} else if (op->work.kind == SIM_WORK_ALLOC) {
		sim_graph_alloc_run_locked(op);
	} else {
		for (; n < op->work.n_touches; n++) {
			const struct sim_touch *touch = &op->work.touch[n];

			pinned[n] = sim_mem_hold_locked(touch->addr, touch->n_bytes);
			if (!pinned[n] || !sim_graph_mem_present_locked(pinned[n]) ||
			    !sim_peer_reaches_locked(op, pinned[n], touch)) {
				op_fail(op, touch);
				ok = false;
				break;
			}
			pinned[n]->pins++;
		}
		if (ok && op->work.kind != SIM_WORK_MARK) {
			sim_unlock();
			sim_work_run(&op->work);
			sim_lock();
		}
		while (n--)
			pinned[n]->pins--;
	}
	sim_op_complete_locked(op);
}

/* --------------------------------------------------------- real clock --- */
void
sim_worker_push_locked(struct sim_op *op)
{
	struct sim_worker *worker = &sim_g.device[op->device].worker;

	if (sim_g.config.clock == SIM_CLOCK_MANUAL)
		return;
	op->queue_next = NULL;
	*worker->ready_tail = op;
	worker->ready_tail = &op->queue_next;
	pthread_cond_signal(&worker->wake);
}

static struct sim_op *
worker_pop_ready(struct sim_worker *worker)
{
	struct sim_op *op = worker->ready;

	if (op) {
		worker->ready = op->queue_next;
		if (!worker->ready)
			worker->ready_tail = &worker->ready;
	}
	return op;
}

/* Takes the operation with the earliest deadline if that has passed; else tells when it will. */
static struct sim_op *
worker_pop_expired(struct sim_worker *worker, uint64_t *ret_deadline)
{
	struct sim_op **best = NULL, *op;

	for (struct sim_op **p = &worker->running; *p; p = &(*p)->queue_next)
		if (!best || (*p)->deadline_ns < (*best)->deadline_ns)
			best = p;
	*ret_deadline = best ? (*best)->deadline_ns : 0;
	if (!best || mono_ns() < (*best)->deadline_ns)
		return NULL;
	op = *best;
	*best = op->queue_next;
	return op;
}

/* Takes a wait for a value that is there now. */
static struct sim_op *
worker_pop_met(struct sim_worker *worker)
{
	for (struct sim_op **p = &worker->awaiting; *p; p = &(*p)->queue_next) {
		struct sim_op *op = *p;

		if (!sim_await_met_locked(op))
			continue;
		*p = op->queue_next;
		return op;
	}
	return NULL;
}

/* Puts aside what cannot end at once. False: it can. */
static bool
worker_set_aside(struct sim_worker *worker, struct sim_op *op)
{
	if (sim_op_awaits(op) && !sim_await_met_locked(op)) {
		op->queue_next = worker->awaiting;
		worker->awaiting = op;
		return true;
	}
	if (!op->work.spin_ns)
		return false;
	op->state = SIM_OP_RUNNING;
	op->deadline_ns = mono_ns() + op->work.spin_ns;
	op->queue_next = worker->running;
	worker->running = op;
	return true;
}

/* Values that are waited for may be written by the host or by another device, which nobody tells
 * us: they are looked at again soon. */
static void
worker_sleep(struct sim_worker *worker, uint64_t deadline)
{
	const uint64_t look_ns = 100000;
	uint64_t look = worker->awaiting ? mono_ns() + look_ns : 0;

	if (look && (!deadline || look < deadline))
		deadline = look;
	if (deadline)
		cond_wait_until(&worker->wake, deadline);
	else
		pthread_cond_wait(&worker->wake, &sim_g.lock);
}

static void *
worker_main(void *arg)
{
	struct sim_worker *worker = arg;

	/* a kernel of 20 us lasts 70 with the 50 us that the system may be late by default */
	prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
	sim_lock();
	while (!worker->stop) {
		uint64_t deadline;
		struct sim_op *op = worker_pop_ready(worker);

		if (op && worker_set_aside(worker, op))
			continue;
		if (!op)
			op = worker_pop_met(worker);
		if (op) {
			sim_op_run_locked(op);
			continue;
		}
		op = worker_pop_expired(worker, &deadline);
		if (op)
			sim_op_run_locked(op);
		else
			worker_sleep(worker, deadline);
	}
	sim_unlock();
	return NULL;
}

int
sim_worker_start_locked(int device)
{
	struct sim_worker *worker = &sim_g.device[device].worker;
	pthread_condattr_t attr;

	if (worker->started || sim_g.config.clock == SIM_CLOCK_MANUAL)
		return 0;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&worker->wake, &attr);
	pthread_condattr_destroy(&attr);
	worker->ready = worker->running = worker->awaiting = NULL;
	worker->ready_tail = &worker->ready;
	worker->stop = false;
	if (pthread_create(&worker->thread, NULL, worker_main, worker))
		return CUDA_ERROR_OUT_OF_MEMORY;
	worker->started = true;
	return 0;
}

void
sim_workers_stop(void)
{
	for (int i = 0; i < SIM_DEVICES_MAX; i++) {
		struct sim_worker *worker = &sim_g.device[i].worker;

		if (!worker->started)
			continue;
		sim_lock();
		worker->stop = true;
		pthread_cond_signal(&worker->wake);
		sim_unlock();
		pthread_join(worker->thread, NULL);
		pthread_cond_destroy(&worker->wake);
		worker->started = false;
	}
}

/* ------------------------------------------------------------ waiting --- */
bool
sim_ops_done(const struct sim_ops *list)
{
	for (unsigned i = 0; i < list->n; i++)
		if (list->at[i]->state != SIM_OP_DONE)
			return false;
	return true;
}

void
sim_ops_wait_locked(struct sim_ops *list)
{
	struct sim_stall stall = { 0 };

	if (sim_g.config.clock == SIM_CLOCK_MANUAL) {
		sim_manual_wait_locked(list);
		return;
	}
	while (!sim_ops_done(list)) {
		sim_done_wait_locked(50);
		sim_stall_look_locked(&stall);
	}
}
