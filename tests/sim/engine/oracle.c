/* SPDX-License-Identifier: MIT */
/*
 * The race oracle's memory: who touched which bytes last.
 *
 * A treap of disjoint address ranges. Each range holds what was last done to all its bytes: the
 * last write, and the reads and atomic adds since then, at most one of a kind per stream (a later
 * one of the same stream covers the earlier, whose order it includes). An entry is (component,
 * count); it is before a new operation exactly if that operation's clock has reached count in that
 * component, so judging is one comparison an entry. A touch of [lo, hi) splits the ranges at lo and
 * hi, cuts out what lies between, judges it, and puts it back: a write as one new range, a read or
 * add as the old ranges with an entry more and new ranges in the gaps. Entries that the host clock
 * covers are before anything that can still be submitted and are dropped in passing. So a write
 * makes many ranges into one, and the number of ranges stays near the number of pieces the program
 * really uses. Cost: O(log ranges) for the cuts, then the ranges between.
 */
#include "tests/sim/engine/internal.h"

#include <stdio.h>
#include <stdlib.h>

enum {
	ENTRIES_INLINE = 3,
};

struct entry {
	struct sim_race_side side;
	uint64_t count;
	uint64_t open; /* 0, or the wait without a signal that it comes after (order.c) */
	uint32_t component;
};

struct range {
	uint64_t lo, hi;
	uint64_t prio;
	struct range *l, *r;
	struct entry *entry; /* `own` or from the heap */
	unsigned n, cap;
	struct entry own[ENTRIES_INLINE];
};

/* One touch being judged. */
struct touch {
	uint64_t lo, hi, filled; /* filled: up to where ranges stand */
	struct entry now;
	const struct sim_vc *vc;
	struct range *out; /* the ranges of [lo, hi) anew */
	bool told;         /* one report a touch is enough */
};

static struct range *root;

/* --------------------------------------------------------------- treap --- */
static uint64_t
next_prio(void)
{
	static uint64_t x = 0x9e3779b97f4a7c15;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x;
}

static struct range *
range_new(uint64_t lo, uint64_t hi)
{
	struct range *range = sim_xcalloc(1, sizeof(*range));

	range->lo = lo;
	range->hi = hi;
	range->prio = next_prio();
	range->entry = range->own;
	range->cap = ENTRIES_INLINE;
	return range;
}

static void
range_free(struct range *range)
{
	if (range->entry != range->own)
		free(range->entry);
	free(range);
}

static void
tree_free(struct range *tree)
{
	if (!tree)
		return;
	tree_free(tree->l);
	tree_free(tree->r);
	range_free(tree);
}

static struct range *
merge(struct range *a, struct range *b)
{
	if (!a || !b)
		return a ? a : b;
	if (a->prio > b->prio) {
		a->r = merge(a->r, b);
		return a;
	}
	b->l = merge(a, b->l);
	return b;
}

/* Ranges with lo < at to the left, the others to the right. */
static void
split(struct range *tree, uint64_t at, struct range **ret_l, struct range **ret_r)
{
	if (!tree) {
		*ret_l = *ret_r = NULL;
	} else if (tree->lo < at) {
		split(tree->r, at, &tree->r, ret_r);
		*ret_l = tree;
	} else {
		split(tree->l, at, ret_l, &tree->l);
		*ret_r = tree;
	}
}

static void
entry_add(struct range *range, const struct entry *entry)
{
	if (range->n == range->cap) {
		struct entry *bigger = sim_xcalloc((size_t)range->cap * 2, sizeof(*bigger));

		for (unsigned i = 0; i < range->n; i++)
			bigger[i] = range->entry[i];
		if (range->entry != range->own)
			free(range->entry);
		range->entry = bigger;
		range->cap *= 2;
	}
	range->entry[range->n++] = *entry;
}

/* Cuts the range that holds `at` inside in two. */
static void
cut(uint64_t at)
{
	struct range *range = root, *upper, *l, *r;

	while (range && !(range->lo < at && at < range->hi))
		range = at <= range->lo ? range->l : range->r;
	if (!range)
		return;
	upper = range_new(at, range->hi);
	for (unsigned i = 0; i < range->n; i++)
		entry_add(upper, &range->entry[i]);
	range->hi = at;
	split(root, at, &l, &r);
	root = merge(merge(l, upper), r);
}

/* -------------------------------------------------------------- judging --- */
static const char *
access_name(enum sim_access access)
{
	return access == SIM_READ ? "reads" : access == SIM_WRITE ? "writes" : "adds to";
}

static void
print_side(const char *label, const struct sim_race_side *side)
{
	fprintf(stderr, "  %s: %s #%llu on stream %llu (context %llu) %s it\n", label, side->name,
		(unsigned long long)side->seq, (unsigned long long)side->stream_id,
		(unsigned long long)side->ctx_id, access_name(side->access));
}

static void
report(const struct touch *touch, const struct range *range, const struct entry *before)
{
	struct sim_race race = {
		.before = before->side,
		.now = touch->now.side,
		.addr = range->lo,
		.n_bytes = range->hi - range->lo,
	};

	sim_g.races++;
	if (sim_g.config.on_race) {
		sim_g.config.on_race(sim_g.config.arg, &race);
	} else {
		fprintf(stderr, "simcuda: race on 0x%llx..0x%llx (%llu bytes)\n",
			(unsigned long long)race.addr, (unsigned long long)range->hi,
			(unsigned long long)race.n_bytes);
		print_side("before", &race.before);
		print_side("now", &race.now);
	}
	if (sim_g.config.races == SIM_RACES_ABORT)
		abort();
}

static bool
conflict(enum sim_access a, enum sim_access b)
{
	return a == SIM_WRITE || b == SIM_WRITE || a != b;
}

/* Judges the range's entries; drops what the host covers and what the touch itself replaces. */
static void
judge(struct touch *touch, struct range *range)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < range->n; i++) {
		struct entry *e = &range->entry[i];

		if (!touch->told && sim_vc_get(touch->vc, e->component) < e->count &&
		    conflict(e->side.access, touch->now.side.access) &&
		    !sim_order_is_open_locked(e->open)) {
			touch->told = true;
			report(touch, range, e);
		}
		if (sim_vc_get(&sim_g.host, e->component) >= e->count)
			continue;
		if (e->component == touch->now.component &&
		    e->side.access == touch->now.side.access && e->side.access != SIM_WRITE)
			continue;
		range->entry[kept++] = *e;
	}
	range->n = kept;
}

static void
append(struct touch *touch, uint64_t lo, uint64_t hi)
{
	struct range *range;

	if (lo >= hi)
		return;
	range = range_new(lo, hi);
	entry_add(range, &touch->now);
	touch->out = merge(touch->out, range);
}

/* In order of address. */
static void
visit(struct touch *touch, struct range *range)
{
	struct range *right;

	if (!range)
		return;
	visit(touch, range->l);
	right = range->r;
	range->l = range->r = NULL;
	judge(touch, range);
	if (touch->now.side.access == SIM_WRITE) {
		range_free(range);
	} else {
		append(touch, touch->filled, range->lo);
		touch->filled = range->hi;
		entry_add(range, &touch->now);
		touch->out = merge(touch->out, range);
	}
	visit(touch, right);
}

static void
touch_range(struct touch *touch)
{
	struct range *l, *m, *r;

	cut(touch->lo);
	cut(touch->hi);
	split(root, touch->lo, &l, &m);
	split(m, touch->hi, &m, &r);
	touch->filled = touch->lo;
	visit(touch, m);
	append(touch, touch->filled, touch->hi);
	root = merge(merge(l, touch->out), r);
}

/* Mapped memory: the bytes, wherever they are mapped; and the mapping, which is used. */
static void
touch_row(struct touch *touch, uint64_t lo, uint64_t hi)
{
	enum sim_access access = touch->now.side.access;
	uint64_t at, n;

	for (; lo < hi; lo += n) {
		bool mapped = sim_range_original_locked(lo, hi - lo, &at, &n);

		touch->lo = at;
		touch->hi = at + n;
		touch->out = NULL;
		touch_range(touch);
		if (!mapped)
			continue;
		touch->now.side.access = SIM_READ;
		touch->lo = lo;
		touch->hi = lo + n;
		touch->out = NULL;
		touch_range(touch);
		touch->now.side.access = access;
	}
}

/* Each row by itself: what lies between is nobody's, or somebody else's. */
static void
touch_rows(struct touch *touch, const struct sim_touch *t)
{
	struct sim_area area =
		t->area.slices ? sim_area_joined(&t->area) : sim_line(t->addr, t->n_bytes);

	for (uint64_t slice = 0; slice < area.slices; slice++)
		for (uint64_t row = 0; row < area.rows; row++) {
			uint64_t lo = area.addr + slice * area.slice + row * area.pitch;

			touch_row(touch, lo, lo + area.width);
		}
}

void
sim_oracle_touch_locked(const struct sim_op *op, uint32_t component, uint64_t count,
			const struct sim_vc *vc)
{
	for (unsigned i = 0; sim_oracle_on() && i < op->work.n_touches; i++) {
		struct sim_touch at = op->work.touch[i], *t = &at;
		struct touch touch = { .vc = vc };
		uint64_t shift = sim_ipc_original_locked(at.addr) - at.addr;

		if (!t->n_bytes)
			continue;
		at.addr += shift;
		at.area.addr += shift;
		touch.now.side = (struct sim_race_side){ op->work.name, op->seq, op->stream_id,
							 op->ctx_id, t->access };
		touch.now.component = component;
		touch.now.count = count;
		touch.now.open = sim_order_open_locked(op, vc);
		touch_rows(&touch, t);
	}
}

void
sim_oracle_accessor_locked(const char *name, uint64_t addr, uint64_t n_bytes, bool writes)
{
	struct sim_op op = { .work = {
				     .name = name,
				     .touch = { { .addr = addr,
						  .n_bytes = n_bytes,
						  .access = writes ? SIM_WRITE : SIM_READ } },
				     .n_touches = 1,
			     } };

	/* of no stream; count 0: before all that is submitted from now on */
	sim_oracle_touch_locked(&op, UINT32_MAX, 0, &sim_g.host);
}

void
sim_oracle_mapping_locked(const char *name, uint64_t addr, uint64_t n_bytes)
{
	struct touch touch = { .lo = addr, .hi = addr + n_bytes, .vc = &sim_g.host };

	if (!sim_oracle_on())
		return;
	touch.now.side.name = name;
	touch.now.side.access = SIM_WRITE;
	touch.now.component = UINT32_MAX;
	touch_range(&touch);
}

void
sim_accessor_touch(uint64_t addr, uint64_t n_bytes, bool writes)
{
	sim_lock();
	sim_oracle_accessor_locked("accessor", addr, n_bytes, writes);
	sim_unlock();
}

void
sim_oracle_forget_locked(uint64_t addr, uint64_t n_bytes)
{
	struct range *l, *m, *r;

	if (!sim_oracle_on())
		return;
	sim_order_forget_locked(addr, n_bytes);
	cut(addr);
	cut(addr + n_bytes);
	split(root, addr, &l, &m);
	split(m, addr + n_bytes, &m, &r);
	tree_free(m);
	root = merge(l, r);
}

void
sim_oracle_free_locked(void)
{
	tree_free(root);
	root = NULL;
}
