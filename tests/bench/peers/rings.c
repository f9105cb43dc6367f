/* SPDX-License-Identifier: MIT */
/* One size, freed at once; and a ring of blocks of many sizes. */
#include "tests/bench/peers/workloads.h"

enum { PAIR_BYTES = 64 << 10, RING_SIZES = 96, RING_POWERS = 12, SEED = 20261125 };

struct ring {
	const struct arm *arm;
	unsigned long n_done; /* pairs */
	size_t sequence[SEQUENCE];
	uint64_t blocks[RING];
	size_t bytes[RING];
};

void measured_pair(const struct arm *arm);
void measured_ring(struct ring *ring);

__attribute__((noinline)) void
measured_pair(const struct arm *arm)
{
	for (unsigned long i = 0; i < options.pairs; i++)
		arm_give(arm, arm_take(arm, PAIR_BYTES), PAIR_BYTES);
}

__attribute__((noinline)) void
measured_ring(struct ring *ring)
{
	const struct arm *arm = ring->arm;

	for (unsigned long i = 0; i < options.pairs; i++, ring->n_done++) {
		unsigned oldest = ring->n_done % RING;
		size_t bytes = ring->sequence[ring->n_done % SEQUENCE];

		arm_give(arm, ring->blocks[oldest], ring->bytes[oldest]);
		ring->blocks[oldest] = arm_take(arm, bytes);
		ring->bytes[oldest] = bytes;
	}
}

static void
round_pair(void *state, struct sample *ret_sample)
{
	struct sample start, end;

	sample_read(&start);
	measured_pair(((struct ring *)state)->arm);
	sample_read(&end);
	sample_add(ret_sample, &start, &end);
	ret_sample->operations = options.pairs;
}

static void
round_ring(void *state, struct sample *ret_sample)
{
	struct sample start, end;

	sample_read(&start);
	measured_ring(state);
	sample_read(&end);
	sample_add(ret_sample, &start, &end);
	ret_sample->operations = options.pairs;
}

/* The one stream has work, which uses the first block. */
static void *
prepare(const struct arm *arm)
{
	struct ring *ring = new_array(1, sizeof(*ring));

	ring->arm = arm;
	sequence_fill(ring->sequence, RING_SIZES, RING_POWERS, SEED);
	for (unsigned i = 0; i < RING; i++) {
		ring->bytes[i] = ring->sequence[i];
		ring->blocks[i] = arm_take(arm, ring->bytes[i]);
	}
	arm_work(arm, ring->blocks[0]);
	return ring;
}

const struct workload workload_pair = { "pair", prepare, round_pair, NULL };
const struct workload workload_ring = { "ring", prepare, round_ring, NULL };
