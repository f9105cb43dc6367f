/* SPDX-License-Identifier: MIT */
/*
 * The heap of a memory pool: which of its memory an allocation gets.
 *
 * A pool's reserve is whole units of its device, cut into pieces: live memory, and free memory with
 * the place in a stream where it was freed. A free piece is for everybody once the host knows that
 * the place was passed (a synchronisation or a query said so); before that it is for the stream of
 * the free at once, and for another as the pool's rules allow: FOLLOW_EVENT when the stream's clock
 * says that it comes after the place, OPPORTUNISTIC when the free has run, INTERNAL with a wait put
 * in front of the allocation. In that order, as the programming guide has it: what can be had
 * without a wait (the smallest run of pieces that is large enough, at its lowest address), more
 * units, units exchanged for free ones of the pool that stand elsewhere, and INTERNAL last.
 *
 * Each free of a stream stays a piece of its own until the host knows of it; then neighbours become
 * one. The search is linear in the number of pieces.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/engine/pool.h"

/* ---------------------------------------------------------------- places --- */
struct sim_place *
sim_place_of_locked(struct sim_op *op, const struct sim_stream *stream)
{
	struct sim_place *place = sim_xcalloc(1, sizeof(*place));

	place->refs = 1;
	place->op = sim_op_ref(op);
	place->stream_id = stream->id;
	place->component = stream->component;
	place->count = sim_vc_get(&stream->vc, stream->component);
	if (sim_oracle_on())
		sim_vc_copy(&place->vc, &stream->vc);
	return place;
}

void
sim_place_unref_locked(struct sim_place *place)
{
	if (!place || --place->refs)
		return;
	sim_op_unref_locked(place->op);
	sim_vc_free(&place->vc);
	free(place);
}

bool
sim_place_known_locked(const struct sim_place *place)
{
	return sim_vc_get(&sim_g.host, place->component) >= place->count;
}

static bool
is_done(const struct sim_place *place)
{
	return place->op->state == SIM_OP_DONE;
}

/* Whether an allocation may have the piece without a wait. */
static bool
is_ready(const struct sim_pool *pool, const struct sim_piece *piece,
	 const struct sim_taking *taking)
{
	const struct sim_place *freed = piece->freed;

	if (!freed || freed->stream_id == taking->stream->id || sim_place_known_locked(freed))
		return true;
	if (pool->rule[SIM_POOL_OPPORTUNISTIC] && is_done(freed))
		return true;
	return pool->rule[SIM_POOL_FOLLOW_EVENT] &&
	       sim_vc_get(&taking->clock, freed->component) >= freed->count;
}

/* ---------------------------------------------------------------- pieces --- */
/* The piece that holds addr; n_pieces: none. */
static size_t
piece_at(const struct sim_pool *pool, uint64_t addr)
{
	size_t lo = 0, hi = pool->n_pieces;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (pool->piece[mid].hi <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < pool->n_pieces && pool->piece[lo].lo <= addr ? lo : pool->n_pieces;
}

struct sim_mem *
sim_pool_mem_at(const struct sim_pool *pool, uint64_t addr)
{
	size_t i = piece_at(pool, addr);

	return i < pool->n_pieces ? pool->piece[i].mem : NULL;
}

static void
piece_insert(struct sim_pool *pool, size_t at, struct sim_piece piece)
{
	if (pool->n_pieces == pool->cap_pieces) {
		pool->cap_pieces = pool->cap_pieces * 2 + 16;
		pool->piece = sim_xrealloc(pool->piece, pool->cap_pieces, sizeof(pool->piece[0]));
	}
	memmove(&pool->piece[at + 1], &pool->piece[at],
		(pool->n_pieces - at) * sizeof(pool->piece[0]));
	pool->piece[at] = piece;
	pool->n_pieces++;
}

static void
pieces_remove(struct sim_pool *pool, size_t first, size_t n)
{
	for (size_t i = first; i < first + n; i++)
		sim_place_unref_locked(pool->piece[i].freed);
	memmove(&pool->piece[first], &pool->piece[first + n],
		(pool->n_pieces - first - n) * sizeof(pool->piece[0]));
	pool->n_pieces -= n;
}

/* Makes addr a border, if it is inside of a free piece. Returns the first piece not below it. */
static size_t
piece_split(struct sim_pool *pool, uint64_t addr)
{
	size_t i = piece_at(pool, addr);
	struct sim_piece upper;

	if (i == pool->n_pieces) { /* a gap, or the end */
		while (i && pool->piece[i - 1].lo >= addr)
			i--;
		return i;
	}
	if (pool->piece[i].lo == addr)
		return i;
	upper = pool->piece[i];
	upper.lo = addr;
	if (upper.freed)
		upper.freed->refs++;
	pool->piece[i].hi = addr;
	piece_insert(pool, i + 1, upper);
	return i + 1;
}

/* Free pieces of which the host knows become everybody's, and one with their neighbours. */
static void
settle(struct sim_pool *pool)
{
	size_t n = 0;

	for (size_t i = 0; i < pool->n_pieces; i++) {
		struct sim_piece piece = pool->piece[i], *last = n ? &pool->piece[n - 1] : NULL;

		if (piece.freed && sim_place_known_locked(piece.freed)) {
			sim_place_unref_locked(piece.freed);
			piece.freed = NULL;
		}
		if (last && !piece.mem && !piece.freed && !last->mem && !last->freed &&
		    last->hi == piece.lo)
			last->hi = piece.hi;
		else
			pool->piece[n++] = piece;
	}
	pool->n_pieces = n;
}

/* -------------------------------------------------------------- the fit --- */
struct run {
	uint64_t lo, hi; /* hi 0: none */
};

/* The smallest run of free pieces that holds n_bytes. any: also those that need a wait. */
static struct run
run_find(const struct sim_pool *pool, uint64_t n_bytes, const struct sim_taking *taking, bool any)
{
	struct run best = { 0 }, run = { 0 };

	for (size_t i = 0; i < pool->n_pieces; i++) {
		const struct sim_piece *piece = &pool->piece[i];

		if (piece->mem || (!any && !is_ready(pool, piece, taking))) {
			run.hi = 0;
			continue;
		}
		if (piece->lo != run.hi)
			run.lo = piece->lo;
		run.hi = piece->hi;
		if (i + 1 < pool->n_pieces && piece[1].lo == run.hi && !piece[1].mem &&
		    (any || is_ready(pool, &piece[1], taking)))
			continue; /* it goes on */
		if (run.hi - run.lo >= n_bytes && (!best.hi || run.hi - run.lo < best.hi - best.lo))
			best = run;
	}
	return best;
}

/* ---------------------------------------------------------------- units --- */
/* Units that it may still take: of the space, and below its limit. */
static uint64_t
room(const struct sim_pool *pool)
{
	uint64_t n = (pool->space->cap_units - pool->space->used) * SIM_UNIT,
		 max = pool->props.max_bytes;

	if (max && pool->reserved >= max)
		return 0;
	return max && max - pool->reserved < n ? max - pool->reserved : n;
}

static int
grow(struct sim_pool *pool, uint64_t n_bytes)
{
	uint64_t n = (n_bytes + SIM_UNIT - 1) / SIM_UNIT, lo;
	int rc = n * SIM_UNIT > room(pool) ? CUDA_ERROR_OUT_OF_MEMORY
					   : sim_space_take_units_locked(pool->space, pool, n, &lo);

	if (rc)
		return rc;
	sim_oracle_forget_locked(lo, n * SIM_UNIT);
	piece_insert(pool, piece_split(pool, lo),
		     (struct sim_piece){ lo, lo + n * SIM_UNIT, NULL, NULL });
	pool->reserved += n * SIM_UNIT;
	if (pool->reserved > pool->reserved_high)
		pool->reserved_high = pool->reserved;
	return 0;
}

/* Free, and no work can be on it: the host knows that, or the driver does. */
static bool
is_idle(const struct sim_piece *piece, bool driver_knows)
{
	return !piece->mem && (!piece->freed || sim_place_known_locked(piece->freed) ||
			       (driver_knows && is_done(piece->freed)));
}

static void
units_release(struct sim_pool *pool, uint64_t lo, uint64_t hi)
{
	size_t first = piece_split(pool, lo), end = piece_split(pool, hi);

	pieces_remove(pool, first, end - first);
	sim_oracle_forget_locked(lo, hi - lo);
	sim_space_give_units_locked(pool->space, lo, (hi - lo) / SIM_UNIT);
	pool->reserved -= hi - lo;
}

/* The highest whole units below `below` that are idle, at most n_bytes of them. */
static struct run
idle_below(const struct sim_pool *pool, uint64_t below, uint64_t n_bytes, bool driver_knows)
{
	struct run run = { 0 };

	for (size_t i = pool->n_pieces; i-- > 0 && n_bytes;) {
		const struct sim_piece *piece = &pool->piece[i];
		uint64_t lo, hi;

		if (piece->lo >= below || !is_idle(piece, driver_knows))
			continue;
		if (!run.hi || run.lo != piece->hi)
			run.hi = piece->hi < below ? piece->hi : below;
		run.lo = piece->lo;
		if (i && piece[-1].hi == run.lo && is_idle(&piece[-1], driver_knows))
			continue;
		lo = (run.lo + SIM_UNIT - 1) / SIM_UNIT * SIM_UNIT;
		hi = run.hi / SIM_UNIT * SIM_UNIT;
		if (lo < hi)
			return (struct run){ hi - lo > n_bytes ? hi - n_bytes : lo, hi };
	}
	return (struct run){ 0 };
}

static uint64_t
idle_bytes(const struct sim_pool *pool, bool driver_knows)
{
	uint64_t n = 0, below = UINT64_MAX / SIM_UNIT * SIM_UNIT;

	for (;;) {
		struct run run =
			idle_below(pool, below, UINT64_MAX / SIM_UNIT * SIM_UNIT, driver_knows);

		if (!run.hi)
			return n;
		n += run.hi - run.lo;
		below = run.lo;
	}
}

/* What other processes may have open stays, whatever the threshold is, as natively. */
static bool
gives_back(const struct sim_pool *pool)
{
	return !pool->props.handle_types;
}

/* At most n_bytes, whole units. */
static void
release(struct sim_pool *pool, uint64_t n_bytes, bool driver_knows)
{
	n_bytes = n_bytes / SIM_UNIT * SIM_UNIT;
	while (n_bytes) {
		struct run run = idle_below(pool, UINT64_MAX, n_bytes, driver_knows);

		if (!run.hi)
			return;
		units_release(pool, run.lo, run.hi);
		n_bytes -= run.hi - run.lo;
	}
}

/* Units for a request that fits nowhere: new ones, or in place of idle ones elsewhere. */
static int
grow_or_exchange(struct sim_pool *pool, uint64_t n_bytes)
{
	uint64_t need = (n_bytes + SIM_UNIT - 1) / SIM_UNIT * SIM_UNIT,
		 have = room(pool) / SIM_UNIT * SIM_UNIT;
	bool driver_knows = pool->rule[SIM_POOL_OPPORTUNISTIC];

	if (need > have) {
		if (!gives_back(pool) || idle_bytes(pool, driver_knows) < need - have)
			return CUDA_ERROR_OUT_OF_MEMORY;
		release(pool, need - have, driver_knows);
	}
	return grow(pool, n_bytes);
}

void
sim_heap_shrink_locked(struct sim_pool *pool, uint64_t keep)
{
	settle(pool);
	if (pool->reserved > keep && gives_back(pool))
		release(pool, pool->reserved - keep, false);
}

void
sim_heap_drop_locked(struct sim_pool *pool)
{
	while (pool->n_pieces) {
		uint64_t hi = pool->piece[pool->n_pieces - 1].hi;
		size_t i = pool->n_pieces;

		while (--i && pool->piece[i - 1].hi == pool->piece[i].lo)
			;
		units_release(pool, pool->piece[i].lo, hi);
	}
	free(pool->piece);
	pool->piece = NULL;
	pool->cap_pieces = 0;
}

void
sim_heap_close_locked(struct sim_pool *pool)
{
	struct sim_mem *mem = sim_g.mems, *next;

	for (; mem; mem = next) {
		next = mem->next;
		if (mem->pool != pool)
			continue;
		sim_place_unref_locked(mem->born);
		sim_mem_forget_locked(mem);
	}
	sim_heap_drop_locked(pool);
}

/* ----------------------------------------------------------- take, give --- */
static enum sim_mem_kind
kind_of(const struct sim_pool *pool)
{
	if (pool->props.type == SIM_POOL_MANAGED)
		return SIM_MEM_MANAGED;
	return pool->props.location == SIM_LOCATION_DEVICE ? SIM_MEM_POOL : SIM_MEM_HOST;
}

static struct sim_mem *
mem_new(struct sim_pool *pool, uint64_t addr, uint64_t n_bytes, uint64_t n_taken)
{
	struct sim_mem *mem = sim_xcalloc(1, sizeof(*mem));

	mem->info = (struct sim_mem_info){
		.base = addr,
		.n_bytes = n_bytes,
		.kind = kind_of(pool),
		.device = pool->props.location == SIM_LOCATION_DEVICE ? pool->props.id : -1,
		.pool = (CUmemoryPool)(void *)pool,
	};
	mem->n_taken = n_taken;
	mem->pool = pool;
	sim_mem_enter_locked(mem);
	pool->n_mems++;
	pool->used += n_taken;
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
	return mem;
}

/* Makes [lo, hi), which is free, the memory's. */
static void
run_take(struct sim_pool *pool, struct sim_mem *mem, struct sim_taking *taking, bool wait)
{
	uint64_t lo = mem->info.base, hi = lo + mem->n_taken;
	size_t first = piece_split(pool, lo), end = piece_split(pool, hi);

	for (size_t i = first; i < end; i++) {
		struct sim_place *freed = pool->piece[i].freed;

		if (freed)
			sim_vc_join(&taking->before, &freed->vc);
		if (freed && wait && !is_ready(pool, &pool->piece[i], taking))
			sim_ops_add(&taking->waits, freed->op);
	}
	pieces_remove(pool, first, end - first);
	piece_insert(pool, first, (struct sim_piece){ lo, hi, mem, NULL });
}

int
sim_heap_take_locked(struct sim_pool *pool, uint64_t n_bytes, struct sim_taking *taking,
		     struct sim_mem **ret_mem)
{
	uint64_t n_taken = (n_bytes + SIM_GRAIN - 1) & ~(SIM_GRAIN - 1);
	bool wait = false;
	struct run run;

	if (n_taken < n_bytes || n_taken > pool->space->cap_units * SIM_UNIT)
		return CUDA_ERROR_OUT_OF_MEMORY;
	settle(pool);
	run = run_find(pool, n_taken, taking, false);
	if (!run.hi && !grow_or_exchange(pool, n_taken))
		run = run_find(pool, n_taken, taking, false);
	if (!run.hi && pool->rule[SIM_POOL_INTERNAL]) {
		run = run_find(pool, n_taken, taking, true);
		wait = true;
	}
	if (!run.hi)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_mem = mem_new(pool, run.lo, n_bytes, n_taken);
	run_take(pool, *ret_mem, taking, wait);
	return 0;
}

void
sim_heap_give_locked(struct sim_pool *pool, struct sim_mem *mem, struct sim_place *freed)
{
	struct sim_piece *piece = &pool->piece[piece_at(pool, mem->info.base)];

	piece->mem = NULL;
	piece->freed = freed;
	pool->used -= mem->n_taken;
}
