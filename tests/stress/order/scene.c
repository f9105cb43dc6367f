/* SPDX-License-Identifier: MIT */
/*
 * Short programs, each the neighbourhood of one mistake. Most begin with a handover: a block is
 * freed with its kernel unfinished and one of the same size is allocated, which is the moment in
 * which an allocator may reuse the memory early, if whatever comes next is ordered after the
 * kernel.
 */
#include "tests/stress/order/order.h"

struct block *
scene_handover(struct worker *w, struct place *place, int slot, size_t n_bytes)
{
	struct block *b = block_alloc(w, place, n_bytes);
	CUdeviceptr ptr;

	if (!b)
		return NULL;
	ptr = b->ptr;
	block_fill(w, b, slot, 40 + spin_pick(w));
	w->last = slot;
	block_free(w, w->n_blocks - 1);
	b = block_alloc(w, place, n_bytes);
	w->reused += b && b->ptr == ptr;
	return b;
}

/* The new block is used on another stream, or by a launch that may overlap. */
static void
scene_other_stream(struct worker *w, struct place *place, int slot, int other)
{
	struct block *b = scene_handover(w, place, slot, size_pick(w));

	if (chance(w, 3))
		noise_any(w, place);
	if (b)
		move_first_use(w, &w->blocks[w->n_blocks - 1], chance(w, 4) ? slot : other);
}

/* The new block is freed untouched: the next life still has the first one's user. */
static void
scene_untouched(struct worker *w, struct place *place, int slot, int other)
{
	size_t n_bytes = size_pick(w);
	struct block *b = scene_handover(w, place, slot, n_bytes);

	if (!b)
		return;
	block_free(w, w->n_blocks - 1);
	b = block_alloc(w, place, n_bytes);
	if (b)
		move_first_use(w, b, other);
}

/* A copy or set that nobody waits for comes between the kernel and the free. */
static void
scene_finish(struct worker *w, struct place *place, int slot, int other)
{
	size_t n_bytes = size_pick(w);
	struct block *b = block_alloc(w, place, n_bytes);
	int i = w->n_blocks - 1;

	if (!b)
		return;
	block_fill(w, b, slot, 40 + spin_pick(w));
	for (int n = 0; n < i; n++)
		if (w->blocks[n].place == place && w->blocks[n].n_words) {
			io_any(w, &w->blocks[n], slot);
			break;
		}
	block_free(w, i);
	b = block_alloc(w, place, n_bytes);
	if (b)
		move_first_use(w, b, other);
}

/* Its stream is destroyed; another takes the handle and is finished at once. */
static void
scene_stale(struct worker *w, struct place *place, int slot, int other)
{
	size_t n_bytes = size_pick(w);
	struct block *b;
	bool early = chance(w, 2);

	if (place->owner != w->index || slot < SLOT_FIRST)
		return;
	b = block_alloc(w, place, n_bytes);
	if (!b)
		return;
	block_fill(w, b, slot, 40 + spin_pick(w));
	if (early)
		block_free(w, w->n_blocks - 1);
	place_renew(w, place, slot);
	if (chance(w, 2))
		submit_sync(w, place, slot);
	else
		noise_any(w, place);
	if (!early)
		block_free(w, w->n_blocks - 1);
	b = block_alloc(w, place, n_bytes);
	if (b)
		move_first_use(w, b, chance(w, 2) ? slot : other);
}

/*
 * A kernel on one stream waits for one on another, which is submitted later. Whatever orders the
 * second stream after the first one's earlier work must not order it after the waiting kernel. No
 * free in between: that would natively wait for both.
 */
static void
scene_rendezvous(struct worker *w, struct place *place, int slot, int other)
{
	size_t n_bytes = size_pick(w);
	struct block *b;
	CUdeviceptr word;
	uint32_t value;

	if (place->owner != w->index || slot < SLOT_FIRST || other < SLOT_FIRST || slot == other)
		return;
	while (w->n_blocks > BLOCKS_MAX - 5)
		free_one(w);
	word_reserve(w, place, 2);
	word = word_take(w, place, &value);
	b = scene_handover(w, place, slot, n_bytes);
	if (!b)
		return;
	await_submit(w, place, slot, word, value);
	if (chance(w, 2))
		block_alloc(w, place, size_pick(w));
	block_fill(w, b, other, spin_pick(w));
	if (chance(w, 3))
		block_alloc(w, place, n_bytes);
	signal_submit(w, place, other, word, value);
	b->ordered |= bit(slot);
	if (chance(w, 2))
		block_check(w, b, slot, spin_pick(w));
}

/* Early memory is used while another stream captures. */
static void
scene_window(struct worker *w, struct place *place, int slot)
{
	for (int n = (int)rng_below(&w->rng, 3); n >= 0; n--)
		scene_handover(w, place, slot, size_pick(w));
	graph_window(w, place);
}

/* A copy in another context still reads the block. */
static void
scene_cross(struct worker *w, struct place *place, int slot)
{
	size_t n_bytes = size_pick(w);
	struct block *b = block_alloc(w, place, n_bytes);
	CUdeviceptr ptr;

	if (!b || !settings.cross || w->n_blocks > BLOCKS_MAX - 2)
		return;
	ptr = b->ptr;
	block_fill(w, b, slot, spin_pick(w));
	for (int i = 0; i < w->n_blocks; i++) {
		if (w->blocks[i].ptr != ptr)
			continue;
		io_cross(w, i);
		block_free(w, i);
		break;
	}
	b = block_alloc(w, place, n_bytes);
	if (b)
		move_first_use(w, b, slot);
}

void
scene_any(struct worker *w)
{
	struct place *place = place_any(w);
	int slot = place_pick(w, place), other = place_pick_other(w, place, slot);

	w->scenes++;
	while (w->n_blocks > BLOCKS_MAX - 4)
		free_one(w);
	switch (rng_below(&w->rng, settings.cross ? 9 : 8)) {
	case 0:
	case 1:
		scene_other_stream(w, place, slot, other);
		break;
	case 2:
		scene_untouched(w, place, slot, other);
		break;
	case 3:
	case 4:
		scene_finish(w, place, slot, other);
		break;
	case 5:
		scene_stale(w, place, slot, other);
		break;
	case 6:
		if (settings.meet)
			scene_rendezvous(w, place, slot, other);
		break;
	case 7:
		if (!settings.cross)
			scene_window(w, place, slot);
		break;
	default:
		scene_cross(w, place, slot);
	}
}
