/* SPDX-License-Identifier: MIT */
#include "allocator/track.h"
#include <stdlib.h>

static double K(const char *n, double d){ const char *s=getenv(n); return s?atof(s):d; }
#define KNOB(n,d) __extension__ ({ static double v=-1; if (v<0) v=K(#n,d); v; })

static uint64_t
limit(const struct ca_space *space, uint64_t bytes)
{
	const struct ca_gauge *a = &space->device->stats.allocated_bytes;
	const struct ca_budget *b = &space->device->budget;
	uint64_t peak = a->current + bytes > a->peak ? a->current + bytes : a->peak;
	uint64_t cap = (uint64_t)((double)peak * KNOB(REGRET, 0.10));
	return (uint64_t)((double)peak * KNOB(LIM, 1.03)) + (uint64_t)(KNOB(ABS,0) * (1<<20)) +
		(b->regret_bytes < cap ? b->regret_bytes : cap);
}

static uint64_t
over(const struct ca_space *space, uint64_t segment_bytes, uint64_t bytes)
{
	uint64_t l = limit(space, bytes), want = space->device->stats.reserved_bytes.current + segment_bytes;
	return want > l ? want - l : 0;
}

static bool
whole(const struct ca_block *block)
{
	return !block->prev && !block->next;
}

static uint64_t
room(const struct ca_space *space)
{
	const struct ca_device *d = space->device;
	uint64_t cap = d->budget.total;
	if (KNOB(REFAT,0) && d->budget.refused_at && d->budget.refused_at < cap) cap = d->budget.refused_at;
	return cap > d->stats.reserved_bytes.current ? cap - d->stats.reserved_bytes.current : 0;
}

static bool
tight(const struct ca_space *space)
{
	return space->device->budget.refused || (double)room(space) < KNOB(SCARCE,0.2) * (double)space->device->budget.total;
}

static bool
spares(const struct ca_space *space, const struct ca_block *block, uint64_t bytes)
{
	if (block->segment->bytes <= (uint64_t)(KNOB(PACK,20)*1048576) && bytes < CA_LARGE_MIN) return false;
	if (!whole(block) || block->segment->pool->small || !ca_pool_splits(&space->heap->config, block, bytes))
		return false;
	if (tight(space))
		return true;
	if (KNOB(BLIM,1) && over(space, 0, 0) > 0)
		return true;
	return (double)(block->bytes - ca_round_up(bytes, CA_BOUNDARY)) > KNOB(BROOM,0.05) * (double)room(space);
}

static bool
pins(const struct ca_space *space, const struct ca_block *block, uint64_t bytes)
{
	uint64_t seg = block->segment->bytes;
	if (!KNOB(STRICT,1) || !tight(space) || block->segment->pool->small || (double)seg <= KNOB(PINMIN,20) * 1048576)
		return false;
	if (whole(block)) return false;
	if ((double)seg <= KNOB(PRATIO,0) * (double)bytes) return false;
	return ca_pool_splits(&space->heap->config, block, bytes);
}

static bool
refuses(const struct ca_space *space, const struct ca_block *block, uint64_t bytes)
{
	return spares(space, block, bytes) || pins(space, block, bytes);
}

struct ca_block *
ca_budget_choose_locked(struct ca_space *space, struct ca_block *block, uint64_t bytes)
{
	struct ca_tree_node *node;
	unsigned n;
	if (space->heap->config.give_back_oom || space->device->budget.last || !block || !refuses(space, block, bytes))
		return block;
	if (bytes >= CA_BOUNDARY_FROM) {
		for (node = &block->by_usable, n = 0; node && n < 16; node = ca_tree_next(node), n++) {
			struct ca_block *at = CA_CONTAINER_OF(node, struct ca_block, by_usable);
			if (!refuses(space, at, bytes) && ca_pool_fits(at, bytes)) return at;
		}
	} else {
		for (node = &block->by_size, n = 0; node && n < 16; node = ca_tree_next(node), n++) {
			struct ca_block *at = CA_CONTAINER_OF(node, struct ca_block, by_size);
			if (!refuses(space, at, bytes) && ca_pool_fits(at, bytes)) return at;
		}
	}
	return NULL;
}

uint64_t
ca_budget_segment_bytes(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes)
{
	uint64_t exact = ca_round_up(bytes, CA_BOUNDARY);
	if (space->heap->config.give_back_oom || exact >= segment_bytes) return segment_bytes;
	if (KNOB(EXTIGHT,0) && tight(space)) return exact;
	if (KNOB(EXLIM,0) && over(space, segment_bytes, bytes)) return exact;
	if ((double)(segment_bytes - exact) > KNOB(EXROOM,9) * (double)room(space)) return exact;
	return segment_bytes;
}

static bool
idle_soon(struct ca_space *space)
{
	struct ca_budget *b = &space->device->budget;
	unsigned looks;
	if (ca_device_is_idle_locked(space)) {
		struct ca_space *each;
		for (each = space->heap->spaces; each; each = each->next)
			if (each->device == space->device && !each->dead)
				ca_owned_settle_locked(each);
		return true;
	}
	if (b->not_now) { b->not_now--; return false; }
	for (looks = 0; looks < 100 && !space->dead; looks++) {
		struct ca_space *each;
		for (each = space->heap->spaces; each; each = each->next)
			if (each->device == space->device && !each->dead) {
				ca_outside_enter_locked(each);
				ca_order_mark_busy(each);
				ca_order_poll(each);
				ca_outside_leave(each);
				ca_owned_settle_locked(each);
				ca_owned_look_locked(each);
			}
		if (ca_device_is_idle_locked(space)) { b->in_vain = 0; return true; }
		ca_outside_pause(space->heap, 50000);
	}
	if (getenv("DBG")) for (unsigned i=0;i<atomic_load(&space->order.n_streams);i++) { struct ca_stream_record *r=space->order.streams[i]; __builtin_printf("stream %u last %lu done %lu lost %d armed %lu fin %u\n", i, atomic_load(&r->hot.last), atomic_load(&r->done), atomic_load(&r->lost), (unsigned long)atomic_load(&r->hot.armed), atomic_load(&space->order.finished_only)); }
	if (b->in_vain < 8) b->in_vain++;
	b->not_now = (1u << b->in_vain) - 1;
	if (getenv("DBG")) __builtin_printf("vain looks %u drainable %lu\n", looks, space->device->drainable_bytes);
	return false;
}

void
ca_budget_make_locked(struct ca_space *space, uint64_t segment_bytes, uint64_t bytes)
{
	struct ca_budget *b = &space->device->budget;
	unsigned n = 0;
	uint64_t o;
	if (space->heap->config.give_back_oom) return;
	if (!b->total) {
		uint64_t f, t; 
		const struct ca_driver *driver = &space->heap->driver;
		int r;
		ca_outside_enter_locked(space);
		r = driver->memory_info(driver->self, space->context, &f, &t);
		ca_outside_leave(space);
		b->total = r ? UINT64_MAX : t;
	}
	while (n++ < 64 && !space->dead && (o = over(space, segment_bytes, bytes)) && space->device->drainable_bytes) {
		struct ca_block *block;
		uint64_t block_bytes;
		double earned = (double)(space->device->stats.alloc_calls - b->tokens_at) / KNOB(EARN, 8);
		if (earned >= 1) {
			b->tokens += (uint64_t)earned;
			b->tokens_at = space->device->stats.alloc_calls;
			if (b->tokens > KNOB(TOKMAX,1024)) b->tokens = (uint64_t)KNOB(TOKMAX,1024);
		}
		if (!b->tokens && KNOB(TOK,0)) return;
		if (!idle_soon(space)) return;
		block = ca_ladder_candidate_locked(space, o);
		if (!block) { if (getenv("DBG")) __builtin_printf("no cand drain %lu over %lu n %u owned %lu\n", space->device->drainable_bytes,o,n,space->owned_blocks); return; }
		block_bytes = block->bytes;
		if (ca_segment_release_locked(block)) return;
		b->tokens--;
		b->given[b->given_next++ % CA_GIVEN_MAX] = block_bytes;
	}
}

void
ca_budget_refused_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_budget *b = &space->device->budget;
	uint64_t at = space->device->stats.reserved_bytes.current + bytes;
	b->refused = true;
	if (!b->refused_at || at < b->refused_at) b->refused_at = at;
}

void
ca_budget_taken_locked(struct ca_space *space, uint64_t bytes)
{
	struct ca_budget *b = &space->device->budget;
	unsigned i;
	for (i = 0; i < CA_GIVEN_MAX; i++)
		if (b->given[i] == bytes) {
			b->given[i] = 0;
			b->regret_bytes += bytes;
			return;
		}
}
