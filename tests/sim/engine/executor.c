/* SPDX-License-Identifier: MIT */
/*
 * The executor: when operations run.
 *
 * Real clock: one thread per device takes what is ready, first come first served. An operation with
 * a spin time is put aside with a deadline and takes effect when that has passed; meanwhile the
 * thread runs others. So a long kernel holds up only what is ordered after it, and its effect on
 * memory comes as late as possible, which is when a missing order does the most visible harm.
 * Manual clock: there are no threads. Whoever must wait collects all unfinished ancestors of what
 * it waits for and runs exactly those, by seq, itself. In both, the lock is released while memory
 * is touched; the allocations concerned are pinned, and giving memory back waits for its pins.
 */
#include "tests/sim/engine/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t
mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
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

/* Runs one operation whose deps are done. Releases the lock on the way. */
static void
op_run_locked(struct sim_op *op)
{
	struct sim_mem *pinned[SIM_WORK_TOUCHES];
	unsigned n = 0;
	bool ok = true;

	op->state = SIM_OP_RUNNING;
	if (op->work.kind == SIM_WORK_FREE) {
		struct sim_mem *mem = sim_mem_find_locked(op->work.a[0]);

		/* Its context may have died and taken it along. */
		if (mem && mem->info.id == op->work.a[1]) {
			mem->waited = true;
			sim_mem_release_locked(mem);
		}
	} else if (!is_pool_edge(op)) {
		for (; n < op->work.n_touches; n++) {
			const struct sim_touch *touch = &op->work.touch[n];

			pinned[n] = sim_mem_hold_locked(touch->addr, touch->n_bytes);
			if (!pinned[n]) {
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

static void
worker_sleep(struct sim_worker *worker, uint64_t deadline)
{
	struct timespec ts = { .tv_sec = (time_t)(deadline / 1000000000),
			       .tv_nsec = (long)(deadline % 1000000000) };

	if (deadline)
		pthread_cond_timedwait(&worker->wake, &sim_g.lock, &ts);
	else
		pthread_cond_wait(&worker->wake, &sim_g.lock);
}

static void *
worker_main(void *arg)
{
	struct sim_worker *worker = arg;

	sim_lock();
	while (!worker->stop) {
		uint64_t deadline;
		struct sim_op *op = worker_pop_ready(worker);

		if (op && op->work.spin_ns) {
			op->state = SIM_OP_RUNNING;
			op->deadline_ns = mono_ns() + op->work.spin_ns;
			op->queue_next = worker->running;
			worker->running = op;
			continue;
		}
		if (op) {
			op_run_locked(op);
			continue;
		}
		op = worker_pop_expired(worker, &deadline);
		if (op)
			op_run_locked(op);
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
	worker->ready = worker->running = NULL;
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

/* ------------------------------------------------------- manual clock --- */
static int
by_seq(const void *a, const void *b)
{
	uint64_t x = (*(struct sim_op *const *)a)->seq, y = (*(struct sim_op *const *)b)->seq;

	return x < y ? -1 : x > y;
}

/* Turns the list into all its unfinished ancestors and itself, by seq. */
static void
ops_close(struct sim_ops *list)
{
	uint64_t visit = ++sim_g.visits;
	struct sim_ops all = { 0 };

	for (unsigned i = 0; i < list->n; i++) {
		if (list->at[i]->visit != visit)
			sim_ops_add(&all, list->at[i]);
		list->at[i]->visit = visit;
	}
	for (unsigned i = 0; i < all.n; i++) {
		for (unsigned d = 0; d < all.at[i]->n_deps; d++) {
			struct sim_op *dep = all.at[i]->deps[d];

			if (dep->visit != visit)
				sim_ops_add(&all, dep);
			dep->visit = visit;
		}
	}
	sim_ops_clear_locked(list);
	*list = all;
	if (list->n)
		qsort(list->at, list->n, sizeof(struct sim_op *), by_seq);
}

/* By this thread, or by the other one that has it. */
static void
op_finish_locked(struct sim_op *op)
{
	if (op->state == SIM_OP_WAITING)
		op_run_locked(op);
	while (op->state != SIM_OP_DONE)
		pthread_cond_wait(&sim_g.done, &sim_g.lock);
}

uint64_t
sim_step(uint64_t n)
{
	uint64_t n_done = 0;

	sim_lock();
	while (sim_g.config.clock == SIM_CLOCK_MANUAL && n_done < n && sim_g.first) {
		struct sim_op *op = sim_op_ref(sim_g.first);

		op_finish_locked(op);
		sim_op_unref_locked(op);
		n_done++;
	}
	sim_unlock();
	return n_done;
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
	if (sim_g.config.clock == SIM_CLOCK_MANUAL) {
		ops_close(list);
		for (unsigned i = 0; i < list->n; i++)
			op_finish_locked(list->at[i]);
		return;
	}
	while (!sim_ops_done(list))
		pthread_cond_wait(&sim_g.done, &sim_g.lock);
}
