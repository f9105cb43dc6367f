/* SPDX-License-Identifier: MIT */
/*
 * Vector clocks.
 *
 * A clock maps a component (a stream, or a captured stream of an executable graph) to the number of
 * its operations that are known to be before. Joining is the maximum, component by component.
 * Components are small integers so that a clock is an array; a component of a dead stream may only
 * be used again once the host clock covers all of it, for then every later submission is ordered
 * after everything the old stream did, and the mix-up of the two changes no verdict.
 */
#include "tests/sim/engine/internal.h"

#include <stdlib.h>
#include <string.h>

static struct {
	uint64_t *count;
	uint32_t n, cap;
	uint32_t *retired;
	uint32_t n_retired, cap_retired;
} comp;

static void
vc_grow(struct sim_vc *vc, uint32_t n)
{
	if (n <= vc->n)
		return;
	if (n > vc->cap) {
		vc->cap = n + n / 2 + 4;
		vc->at = sim_xrealloc(vc->at, vc->cap, sizeof(*vc->at));
	}
	memset(vc->at + vc->n, 0, (n - vc->n) * sizeof(*vc->at));
	vc->n = n;
}

void
sim_vc_join(struct sim_vc *to, const struct sim_vc *from)
{
	vc_grow(to, from->n);
	for (uint32_t i = 0; i < from->n; i++)
		if (from->at[i] > to->at[i])
			to->at[i] = from->at[i];
}

void
sim_vc_set(struct sim_vc *vc, uint32_t component, uint64_t count)
{
	vc_grow(vc, component + 1);
	vc->at[component] = count;
}

uint64_t
sim_vc_get(const struct sim_vc *vc, uint32_t component)
{
	return component < vc->n ? vc->at[component] : 0;
}

void
sim_vc_copy(struct sim_vc *to, const struct sim_vc *from)
{
	to->n = 0;
	sim_vc_join(to, from);
}

void
sim_vc_free(struct sim_vc *vc)
{
	free(vc->at);
	*vc = (struct sim_vc){ 0 };
}

uint32_t
sim_component_new_locked(void)
{
	for (uint32_t i = 0; i < comp.n_retired; i++) {
		uint32_t c = comp.retired[i];

		if (sim_vc_get(&sim_g.host, c) < comp.count[c])
			continue;
		comp.retired[i] = comp.retired[--comp.n_retired];
		return c;
	}
	if (comp.n == comp.cap) {
		comp.cap = comp.cap * 2 + 16;
		comp.count = sim_xrealloc(comp.count, comp.cap, sizeof(*comp.count));
	}
	comp.count[comp.n] = 0;
	return comp.n++;
}

void
sim_component_retire_locked(uint32_t component)
{
	if (comp.n_retired == comp.cap_retired) {
		comp.cap_retired = comp.cap_retired * 2 + 16;
		comp.retired = sim_xrealloc(comp.retired, comp.cap_retired, sizeof(*comp.retired));
	}
	comp.retired[comp.n_retired++] = component;
}

uint64_t
sim_component_tick_locked(uint32_t component)
{
	return ++comp.count[component];
}

void
sim_components_free_locked(void)
{
	free(comp.count);
	free(comp.retired);
	memset(&comp, 0, sizeof(comp));
}
