/* SPDX-License-Identifier: MIT */
/*
 * The manual clock: nothing runs by itself, unless a program does nothing but ask.
 *
 * Whoever must wait collects all unfinished ancestors of what it waits for and runs exactly those,
 * by seq, itself. A wait for a value (sim_wait, cuStreamWaitValue) has one more kind of ancestor:
 * whatever writes the word. What writes is known, since every operation declares what it touches,
 * so only if nothing else of the collection can run, the oldest operation not in it that writes a
 * word waited for is added, with its ancestors; and so on, until the value is there. Thus a program
 * that ends natively ends here, and no more runs than must. While a host function takes
 * its time, other work may run, too: it may be what the function waits for. While nothing at all
 * can run, another thread may still submit or write what is missing, so the wait goes on, watched
 * by deadlock.c.
 *
 * A question about an event runs what takes no device: marks, and waits whose value is there. Of
 * many in vain, with no other work submitted or done in between, the last runs all that can run: a
 * device goes on while a program polls.
 */
#include "tests/sim/engine/internal.h"

#include <stdlib.h>

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

static bool
op_can_run(const struct sim_op *op)
{
	return op->state == SIM_OP_WAITING && !op->n_waits &&
	       (op->work.kind != SIM_WORK_AWAIT || sim_await_met_locked(op));
}

/* Runs all of the list that can run, once through. False: nothing could. */
static bool
list_run(struct sim_ops *list, const struct sim_ops *want)
{
	bool any = false;

	for (unsigned i = 0; i < list->n && !sim_ops_done(want); i++) {
		if (!op_can_run(list->at[i]))
			continue;
		sim_op_run_locked(list->at[i]);
		any = true;
	}
	return any;
}

static bool
list_busy(const struct sim_ops *list)
{
	for (unsigned i = 0; i < list->n; i++)
		if (list->at[i]->state == SIM_OP_RUNNING)
			return true;
	return false;
}

static bool
writes_word_of(const struct sim_op *op, const struct sim_op *await)
{
	for (unsigned i = 0; op->work.kind != SIM_WORK_AWAIT && i < op->work.n_touches; i++) {
		const struct sim_touch *t = &op->work.touch[i];

		if (t->access != SIM_READ && t->addr < await->work.a[0] + await->work.a[3] &&
		    await->work.a[0] < t->addr + t->n_bytes)
			return true;
	}
	return false;
}

/* Adds the oldest operation that can release a wait of the list. False: there is none. */
static bool
list_extend(struct sim_ops *list)
{
	uint64_t visit = ++sim_g.visits;

	for (unsigned i = 0; i < list->n; i++)
		list->at[i]->visit = visit;
	for (struct sim_op *op = sim_g.first; op; op = op->next) {
		for (unsigned i = 0; op->visit != visit && i < list->n; i++) {
			if (list->at[i]->state == SIM_OP_DONE || !sim_op_awaits(list->at[i]) ||
			    !writes_word_of(op, list->at[i]))
				continue;
			sim_ops_add(list, op);
			return true;
		}
	}
	return false;
}

/* A host function may stand still until other work, which nothing here depends on, is done. */
static void
busy_wait_locked(struct sim_ops *list)
{
	uint64_t n_done = sim_g.n_done, visit;

	sim_done_wait_locked(20);
	if (sim_g.n_done != n_done)
		return;
	visit = ++sim_g.visits;
	for (unsigned i = 0; i < list->n; i++)
		list->at[i]->visit = visit;
	for (struct sim_op *op = sim_g.first; op; op = op->next) {
		if (op->visit == visit || !op_can_run(op))
			continue;
		sim_ops_add(list, op);
		return;
	}
}

void
sim_manual_wait_locked(struct sim_ops *list)
{
	struct sim_stall stall = { 0 };
	struct sim_ops all = { 0 };

	for (unsigned i = 0; i < list->n; i++)
		sim_ops_add(&all, list->at[i]);
	ops_close(&all);
	while (!sim_ops_done(list)) {
		if (list_run(&all, list))
			continue;
		if (list_busy(&all))
			busy_wait_locked(&all);
		else if (!list_extend(&all))
			sim_done_wait_locked(1);
		ops_close(&all);
		sim_stall_look_locked(&stall);
	}
	sim_ops_clear_locked(&all);
}

void
sim_manual_look_locked(struct sim_op *op)
{
	struct sim_ops want = { 0 }, all = { 0 };

	if (sim_g.config.clock != SIM_CLOCK_MANUAL)
		return;
	sim_ops_add(&want, op);
	sim_ops_add(&all, op);
	ops_close(&all);
	for (unsigned i = 0; i < all.n; i++) {
		const struct sim_op *each = all.at[i];

		if (each->work.kind != SIM_WORK_MARK &&
		    !(each->work.kind == SIM_WORK_AWAIT && sim_await_met_locked(each)))
			goto out;
	}
	while (!sim_ops_done(&want) && list_run(&all, &want))
		;
out:
	sim_ops_clear_locked(&want);
	sim_ops_clear_locked(&all);
}

enum { ASKED_MAX = 512 };

static unsigned
asked_max(void)
{
	return sim_g.config.asked_max ? sim_g.config.asked_max : ASKED_MAX;
}

static struct sim_op *
first_that_can_run(void)
{
	struct sim_op *op;

	for (op = sim_g.first; op && !op_can_run(op);)
		op = op->next;
	return op;
}

void
sim_manual_asked_locked(void)
{
	struct sim_op *op;

	if (sim_g.config.clock != SIM_CLOCK_MANUAL || ++sim_g.n_asked < asked_max())
		return;
	sim_g.n_asked = 0;
	while ((op = first_that_can_run()))
		sim_op_run_locked(op);
}

uint64_t
sim_step(uint64_t n)
{
	uint64_t n_done = 0;
	struct sim_op *op;

	sim_lock();
	while (sim_g.config.clock == SIM_CLOCK_MANUAL && n_done < n) {
		bool busy = false;

		for (op = sim_g.first; op && !op_can_run(op); op = op->next)
			busy |= op->state == SIM_OP_RUNNING;
		if (!op && !busy)
			break;
		if (!op) {
			sim_done_wait_locked(20);
			continue;
		}
		sim_op_ref(op);
		sim_op_run_locked(op);
		while (op->state != SIM_OP_DONE)
			sim_done_wait_locked(20);
		sim_op_unref_locked(op);
		n_done++;
	}
	sim_unlock();
	return n_done;
}
