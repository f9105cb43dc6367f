/* SPDX-License-Identifier: MIT */
/*
 * Contents. Every block has one known part, in which all words hold the same value, so that one
 * number says what it must hold and any other number shows that somebody else wrote there.
 */
#include "tests/stress/worker.h"

#include <stdio.h>
#include <stdlib.h>

unsigned
spin_pick(struct rng *rng)
{
	return (unsigned)(rng_below(rng, 6) ? rng_below(rng, 40) : rng_below(rng, 2000));
}

void
worker_drop(struct worker *w, int i)
{
	w->live_bytes -= w->blocks[i].n_bytes;
	w->blocks[i] = w->blocks[--w->n_blocks];
}

void
worker_touch(struct worker *w, struct block *b, int slot)
{
	size_t words = b->n_bytes / 4, n = words < TOUCHED_MAX ? words : TOUCHED_MAX, start = 0;

	switch (rng_below(&w->rng, 8)) {
	case 0:
		start = words - n;
		break;
	case 1:
		n = 1 + rng_below(&w->rng, n);
		break;
	default:
		break;
	}
	block_fill(b, slot, (uint32_t)rng_next(&w->rng), start, n, spin_pick(&w->rng), &w->rng);
	w->tally.launches++;
}

/* Compares the known part with its value on the host. */
static void
block_compare(struct worker *w, const struct block *b, const uint32_t *words)
{
	unsigned long wrong = 0;

	for (size_t i = 0; i < b->n_words; i++)
		wrong += words[i] != b->value;
	if (wrong)
		fprintf(stderr,
			"block %#llx of %zu bytes: %lu of %zu words wrong, first is %#x, should be "
			"%#x\n",
			b->ptr, b->n_bytes, wrong, b->n_words, words[0], b->value);
	w->tally.wrong_words += wrong;
	w->tally.host_checks++;
}

void
worker_read_back(struct worker *w, struct block *b)
{
	uint32_t *words = malloc(sizeof(*words) * TOUCHED_MAX);
	int slot = world_pick(b->world, w->index, &w->rng);
	CUdeviceptr from = b->ptr + 4 * b->start;

	if (!words)
		exit(2);
	if (rng_below(&w->rng, 2))
		slot = STREAM_LEGACY;
	block_use(b, slot, 0, &w->rng);
	world_enter(b->world);
	if (slot == STREAM_LEGACY)
		CHECK(cuMemcpyDtoH_v2(words, from, 4 * b->n_words));
	else
		CHECK(cuMemcpyDtoHAsync_v2(words, from, 4 * b->n_words,
					   b->world->streams[slot].handle));
	CHECK(cuStreamSynchronize(b->world->streams[slot].handle));
	block_compare(w, b, words);
	free(words);
}

void
worker_write(struct worker *w, struct block *b)
{
	size_t words = b->n_bytes / 4, n = words < TOUCHED_MAX ? words : TOUCHED_MAX;
	int sync = (int)rng_below(&w->rng, 2);
	int slot = sync ? STREAM_LEGACY : world_pick(b->world, w->index, &w->rng);
	uint32_t value = (uint32_t)rng_next(&w->rng), *data = malloc(4 * n + 4);

	if (!data)
		exit(2);
	for (size_t i = 0; i < n; i++)
		data[i] = value;
	block_use(b, slot, 1, &w->rng);
	world_enter(b->world);
	if (sync)
		CHECK(cuMemcpyHtoD_v2(b->ptr, data, 4 * n));
	else
		CHECK(cuMemcpyHtoDAsync_v2(b->ptr, data, 4 * n, b->world->streams[slot].handle));
	b->value = value;
	b->start = 0;
	b->n_words = n;
	free(data);
}

void
worker_set(struct worker *w, struct block *b)
{
	size_t n = b->n_bytes < 4ul * TOUCHED_MAX ? b->n_bytes : 4ul * TOUCHED_MAX;
	int slot = world_pick(b->world, w->index, &w->rng);
	unsigned char value = (unsigned char)rng_next(&w->rng);

	block_use(b, slot, 1, &w->rng);
	world_enter(b->world);
	CHECK(cuMemsetD8Async(b->ptr, value, n, b->world->streams[slot].handle));
	b->value = value * 0x01010101u;
	b->start = 0;
	b->n_words = n / 4;
}

void
worker_launch(struct worker *w, struct block *b)
{
	struct block *other = &w->blocks[rng_below(&w->rng, w->n_blocks)];
	int slot = world_pick(b->world, w->index, &w->rng);

	if (b->n_words == 0)
		return;
	w->tally.launches++;
	if (other != b && other->world == b->world && other->n_bytes >= 4 &&
	    rng_below(&w->rng, 3) == 0)
		block_copy(other, b, slot, spin_pick(&w->rng), &w->rng);
	else if (rng_below(&w->rng, 2))
		block_check(b, slot, spin_pick(&w->rng), &w->rng);
	else
		worker_touch(w, b, slot);
}

int
worker_recreate(struct worker *w, struct world *world)
{
	int slot = world_pick(world, w->index, &w->rng);

	if (world->streams[slot].kind != STREAM_PRIVATE)
		return 0;
	world_order(world, slot, world, STREAM_LEGACY, &w->rng);
	for (int i = 0; i < w->n_blocks; i++) {
		struct block *b = &w->blocks[i];

		if (b->world != world || !(b->ordered & (1u << slot)))
			continue;
		if (b->users & (1u << slot))
			b->users |= 1u << STREAM_LEGACY;
		b->ordered |= 1u << STREAM_LEGACY;
		b->users &= ~(1u << slot);
		b->ordered &= ~(1u << slot);
	}
	world_recreate(world, slot, &w->rng);
	return 1;
}
