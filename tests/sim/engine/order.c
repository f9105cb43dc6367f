/* SPDX-License-Identifier: MIT */
/*
 * The order that values in memory teach: what is before a signal is before what comes after a wait
 * that the signal satisfies.
 *
 * The oracle judges at submission, when it is not known which write will end a wait. So it goes by
 * the values: a wait takes over the clock of the last signal submitted to the word before it if
 * that one's value satisfies it, and of every such signal submitted while the wait is unfinished. A
 * signal that comes later than the wait cannot change clocks that were copied on since; it becomes
 * a late edge "(component, count) of the wait -> clock of the signal", and every clock that covers
 * the wait gains the signal's when it is next used. As long as a wait has no signal, nothing is
 * known about what comes after it, and later submissions are not accused of racing with that. All
 * in all this errs on the side of not accusing. A write that is no signal (the host, a copy, a
 * set, a fill, NO_MEMORY_BARRIER) ends waits and teaches nothing; a set, copy or fill of the word
 * on the device takes back the last signal. The word of a timeline semaphore is nobody else's and
 * its values ascend: there a wait learns from the first signal that satisfies it and from no later
 * one, though that may be what ends it.
 */
#include "tests/sim/engine/internal.h"

#include <stdlib.h>

struct signal {
	struct signal *next;
	uint64_t addr, n_bytes, value;
	uint64_t known; /* of a timeline: the host knows of signals up to this value */
	struct sim_vc vc;
};

struct await {
	struct await *next;
	uint64_t number; /* seq of its operation */
	uint64_t count;
	uint32_t component;
	bool met;    /* some signal satisfied it */
	uint64_t by; /* the least value of those */
	struct sim_work work;
};

struct edge {
	struct edge *next;
	uint64_t count;
	uint32_t component;
	struct sim_vc vc;
};

/* The last one of each word, newest first; of a timeline all that the host does not know of. */
static struct signal *signals;
static struct await *awaits; /* unfinished */
static struct edge *edges;

/* ----------------------------------------------------------- late edges --- */
static bool
edges_join(struct sim_vc *vc)
{
	bool any = false;

	for (struct edge *e = edges; e; e = e->next) {
		if (sim_vc_get(vc, e->component) < e->count)
			continue;
		for (uint32_t i = 0; !any && i < e->vc.n; i++)
			any = e->vc.at[i] > sim_vc_get(vc, i);
		sim_vc_join(vc, &e->vc);
	}
	return any;
}

/* The host's clock first: what it covers is in every other. */
static void
saturate(struct sim_vc *vc)
{
	struct edge **p = &edges;

	while (edges_join(&sim_g.host))
		;
	while (*p) {
		struct edge *e = *p;

		if (sim_vc_get(&sim_g.host, e->component) < e->count) {
			p = &e->next;
			continue;
		}
		*p = e->next;
		sim_vc_free(&e->vc);
		free(e);
	}
	sim_vc_join(vc, &sim_g.host);
	while (edges_join(vc))
		;
}

static void
edge_add(const struct await *await, const struct sim_vc *vc)
{
	struct edge *edge = sim_xcalloc(1, sizeof(*edge));

	edge->component = await->component;
	edge->count = await->count;
	sim_vc_copy(&edge->vc, vc);
	edge->next = edges;
	edges = edge;
}

/* -------------------------------------------------------- signals, waits --- */
void
sim_order_forget_locked(uint64_t addr, uint64_t n_bytes)
{
	struct signal **p = &signals;

	while (*p) {
		struct signal *s = *p;

		if (s->addr >= addr + n_bytes || addr >= s->addr + s->n_bytes) {
			p = &s->next;
			continue;
		}
		*p = s->next;
		sim_vc_free(&s->vc);
		free(s);
	}
}

static bool
satisfies(const struct await *await, uint64_t addr, uint64_t n_bytes, uint64_t value)
{
	return await->work.a[0] == addr && await->work.a[3] == n_bytes &&
	       sim_await_holds(&await->work, value);
}

static bool
host_covers(const struct sim_vc *vc)
{
	for (uint32_t i = 0; i < vc->n; i++)
		if (vc->at[i] > sim_vc_get(&sim_g.host, i))
			return false;
	return true;
}

/* Forgets what the host knows of: it is before all that comes. Returns up to which value. */
static uint64_t
timeline_forget(uint64_t addr)
{
	struct signal **p = &signals;
	uint64_t known = 0;

	while (*p) {
		struct signal *s = *p;

		if (s->addr == addr && s->known > known)
			known = s->known;
		if (s->addr != addr || !host_covers(&s->vc)) {
			p = &s->next;
			continue;
		}
		known = s->value > known ? s->value : known;
		*p = s->next;
		sim_vc_free(&s->vc);
		free(s);
	}
	for (struct signal *s = signals; s; s = s->next)
		if (s->addr == addr)
			s->known = known;
	return known;
}

/* The values of a timeline ascend: the wait is over with the least that will do. */
static bool
comes_too_late(const struct await *await, uint64_t value)
{
	return await->met && await->work.a[2] == SIM_COMPARE_TIMELINE && value > await->by;
}

static void
await_meet(struct await *await, uint64_t value)
{
	await->by = await->met && await->by < value ? await->by : value;
	await->met = true;
}

static void
signal_submit(const struct sim_work *work, const struct sim_vc *vc)
{
	struct signal *signal;
	uint64_t known = 0;

	if (work->a[2] == SIM_RELEASE_TIMELINE)
		known = timeline_forget(work->a[0]);
	else
		sim_order_forget_locked(work->a[0], work->a[3]);
	if (work->a[2] == SIM_RELEASE_NOTHING)
		return;
	signal = sim_xcalloc(1, sizeof(*signal));
	signal->addr = work->a[0];
	signal->value = work->a[1];
	signal->known = known;
	signal->n_bytes = work->a[3];
	sim_vc_copy(&signal->vc, vc);
	signal->next = signals;
	signals = signal;
	for (struct await *a = awaits; a; a = a->next) {
		if (!satisfies(a, signal->addr, signal->n_bytes, signal->value) ||
		    comes_too_late(a, signal->value))
			continue;
		await_meet(a, signal->value);
		edge_add(a, vc);
	}
}

/* The least of a timeline's that will do; else the last of the word, if it does. */
static const struct signal *
signal_for(const struct await *await)
{
	const struct signal *found = NULL;

	for (const struct signal *s = signals; s; s = s->next)
		if (satisfies(await, s->addr, s->n_bytes, s->value) &&
		    (!found || s->value < found->value))
			found = s;
	return found;
}

static void
await_submit(const struct sim_op *op, uint32_t component, uint64_t count, struct sim_vc *vc)
{
	struct await *await = sim_xcalloc(1, sizeof(*await));
	const struct signal *signal;

	await->number = op->seq;
	await->component = component;
	await->count = count;
	await->work = op->work;
	signal = signal_for(await);
	if (signal) {
		await_meet(await, signal->value);
		if (!signal->known || signal->known < await->work.a[1])
			sim_vc_join(vc, &signal->vc);
	}
	await->next = awaits;
	awaits = await;
}

void
sim_order_submit_locked(const struct sim_op *op, uint32_t component, uint64_t count,
			struct sim_vc *vc)
{
	if (edges)
		saturate(vc);
	if (op->work.kind == SIM_WORK_AWAIT)
		await_submit(op, component, count, vc);
	else if (op->work.kind == SIM_WORK_SIGNAL)
		signal_submit(&op->work, vc);
	for (unsigned i = 0; signals && i < op->work.n_touches; i++)
		if (op->work.touch[i].access == SIM_WRITE)
			sim_order_forget_locked(op->work.touch[i].addr, op->work.touch[i].n_bytes);
}

void
sim_order_done_locked(const struct sim_op *op)
{
	for (struct await **p = &awaits; *p; p = &(*p)->next) {
		struct await *a = *p;

		if (a->number != op->seq)
			continue;
		*p = a->next;
		free(a);
		return;
	}
}

uint64_t
sim_order_open_locked(const struct sim_op *op, const struct sim_vc *vc)
{
	for (const struct await *a = awaits; a; a = a->next)
		if (!a->met && a->number != op->seq && sim_vc_get(vc, a->component) >= a->count)
			return a->number;
	return 0;
}

bool
sim_order_is_open_locked(uint64_t number)
{
	for (const struct await *a = number ? awaits : NULL; a; a = a->next)
		if (a->number == number)
			return !a->met;
	return false;
}

void
sim_order_free_locked(void)
{
	sim_order_forget_locked(0, UINT64_MAX);
	while (awaits) {
		struct await *next = awaits->next;

		free(awaits);
		awaits = next;
	}
	while (edges) {
		struct edge *next = edges->next;

		sim_vc_free(&edges->vc);
		free(edges);
		edges = next;
	}
}
