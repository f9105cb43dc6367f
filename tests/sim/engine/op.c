/* SPDX-License-Identifier: MIT */
/*
 * Operations: everything submitted, as a graph.
 *
 * CUDA speaks of queues, but every rule of it (stream order, event waits, legacy default stream,
 * marks of a context, captured edges) only says "this after that". So an operation holds the list
 * of unfinished operations it waits for, fixed when it is submitted; the rules live where
 * submissions are made, and running needs to know none of them. An operation only ever waits for
 * older ones: order of `seq` is always a legal order to run in, and no cycle exists. Operations not
 * done stand in one list by seq. Done ones drop their references, so no chain of history builds up.
 */
#include "tests/sim/engine/internal.h"

#include <stdlib.h>

struct sim_op *
sim_op_ref(struct sim_op *op)
{
	if (op)
		op->refs++;
	return op;
}

static void
op_drop_edges(struct sim_op *op)
{
	for (unsigned i = 0; i < op->n_deps; i++)
		sim_op_unref_locked(op->deps[i]);
	free(op->deps);
	free(op->nexts);
	op->deps = op->nexts = NULL;
	op->n_deps = op->n_nexts = op->cap_deps = op->cap_nexts = 0;
	free(op->work.staged);
	op->work.staged = NULL;
}

void
sim_op_unref_locked(struct sim_op *op)
{
	if (!op || --op->refs)
		return;
	op_drop_edges(op);
	sim_vc_free(&op->teaches);
	free(op);
}

struct sim_op *
sim_op_new_locked(struct sim_ctx *ctx, uint64_t stream_id, const struct sim_work *work)
{
	struct sim_op *op = sim_xcalloc(1, sizeof(*op));

	op->refs = 1;
	op->seq = ++sim_g.seq;
	op->work = *work;
	op->ctx = ctx->root;
	op->ctx_id = ctx->id;
	op->device = ctx->device;
	op->stream_id = stream_id;
	return op;
}

static void
op_push(struct sim_op ***list, unsigned *n, unsigned *cap, struct sim_op *op)
{
	if (*n == *cap) {
		*cap = *cap * 2 + 2;
		*list = sim_xrealloc(*list, *cap, sizeof(struct sim_op *));
	}
	(*list)[(*n)++] = op;
}

void
sim_op_depend_locked(struct sim_op *op, struct sim_op *dep)
{
	if (!op || !dep || dep->state == SIM_OP_DONE)
		return;
	op_push(&op->deps, &op->n_deps, &op->cap_deps, sim_op_ref(dep));
	op_push(&dep->nexts, &dep->n_nexts, &dep->cap_nexts, op);
	op->n_waits++;
}

/*
 * All it waited for is done. A mark of a whole context does nothing itself and is on no stream that
 * a synchronisation could name: it is done at once, so that it is whenever all the work before it
 * is.
 */
static void
op_ready_locked(struct sim_op *op)
{
	if (op->overlaps && sim_g.ranges)
		sim_range_snapshot_locked(op);
	if (op->work.kind == SIM_WORK_MARK && !op->stream_id)
		sim_op_complete_locked(op);
	else
		sim_worker_push_locked(op);
}

/* One queue in hardware: an operation runs behind all that its device was given before. What a
 * program may rely on, the clocks, stays as it is. */
static void
op_queue_locked(struct sim_op *op)
{
	struct sim_op **last = &sim_g.device[op->device].last;

	sim_op_depend_locked(op, *last);
	sim_op_unref_locked(*last);
	*last = sim_op_ref(op);
}

void
sim_op_start_locked(struct sim_op *op)
{
	if (sim_g.config.one_queue && op->stream_id)
		op_queue_locked(op);
	sim_op_ref(op);
	op->prev = sim_g.last;
	if (sim_g.last)
		sim_g.last->next = op;
	else
		sim_g.first = op;
	sim_g.last = op;
	sim_g.n_pending++;
	if (op->work.kind != SIM_WORK_MARK)
		sim_g.n_asked = 0;
	if (!op->n_waits)
		op_ready_locked(op);
}

void
sim_op_complete_locked(struct sim_op *op)
{
	if (sim_g.config.clock == SIM_CLOCK_MANUAL)
		sim_g.manual_ns += 1000 + op->work.spin_ns;
	op->state = SIM_OP_DONE;
	op->done_ns = sim_now_ns();
	if (op->prev)
		op->prev->next = op->next;
	else
		sim_g.first = op->next;
	if (op->next)
		op->next->prev = op->prev;
	else
		sim_g.last = op->prev;
	sim_g.n_pending--;
	sim_g.n_done++;
	sim_g.n_asked = 0;
	if (op->work.kind == SIM_WORK_AWAIT)
		sim_order_done_locked(op);
	for (unsigned i = 0; i < op->n_nexts; i++)
		if (!--op->nexts[i]->n_waits)
			op_ready_locked(op->nexts[i]);
	op_drop_edges(op);
	sim_held_drop_locked(&op->held);
	pthread_cond_broadcast(&sim_g.done);
	sim_op_unref_locked(op);
}

void
sim_ops_add(struct sim_ops *list, struct sim_op *op)
{
	if (op && op->state != SIM_OP_DONE)
		op_push(&list->at, &list->n, &list->cap, sim_op_ref(op));
}

void
sim_ops_clear_locked(struct sim_ops *list)
{
	for (unsigned i = 0; i < list->n; i++)
		sim_op_unref_locked(list->at[i]);
	free(list->at);
	*list = (struct sim_ops){ 0 };
}
