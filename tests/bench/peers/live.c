/* SPDX-License-Identifier: MIT */
/* Pairs among many live blocks, with holes between them. */
#include "tests/bench/peers/workloads.h"

enum { GRAIN = 512, SIZES_32 = 32, LOG_POWERS = 12, BUDGET_EVERY = 256 };

struct block {
	uint64_t address;
	size_t bytes;
};

struct live {
	const struct arm *arm;
	bool log;
	uint64_t seed;
	struct block *blocks; /* options.live of them */
};

void measured_live(struct live *live);

static size_t
size_next(struct live *live)
{
	if (live->log)
		return random_size(&live->seed, LOG_POWERS);
	return (1 + random_next(&live->seed) % SIZES_32) * GRAIN;
}

static void
block_renew(struct live *live)
{
	struct block *block = &live->blocks[random_next(&live->seed) % options.live];

	arm_give(live->arm, block->address, block->bytes);
	block->bytes = size_next(live);
	block->address = arm_take(live->arm, block->bytes);
}

__attribute__((noinline)) void
measured_live(struct live *live)
{
	for (unsigned long i = 0; i < options.pairs; i++)
		block_renew(live);
}

static void
round_live(void *state, struct sample *ret_sample)
{
	struct sample start, end;

	sample_read(&start);
	measured_live(state);
	sample_read(&end);
	sample_add(ret_sample, &start, &end);
	ret_sample->operations = options.pairs;
}

static void
shuffle(struct live *live, unsigned long n)
{
	for (unsigned long i = 1; i < n; i++) {
		unsigned long j = random_next(&live->seed) % (i + 1);
		struct block one = live->blocks[i];

		live->blocks[i] = live->blocks[j];
		live->blocks[j] = one;
	}
}

static void *
prepare(const struct arm *arm, bool log)
{
	unsigned long all = options.live + options.live / 10 * 3;
	struct live *live = new_array(1, sizeof(*live));

	*live = (struct live){ .arm = arm, .log = log, .seed = 88172645463325252u };
	live->blocks = new_array(all, sizeof(*live->blocks));
	for (unsigned long i = 0; i < all; i++) {
		live->blocks[i].bytes = size_next(live);
		live->blocks[i].address = arm_take(arm, live->blocks[i].bytes);
		if (i % BUDGET_EVERY == 0 && budget_spent())
			return NULL;
	}
	shuffle(live, all);
	for (unsigned long i = options.live; i < all; i++) {
		arm_give(arm, live->blocks[i].address, live->blocks[i].bytes);
		if (i % BUDGET_EVERY == 0 && budget_spent())
			return NULL;
	}
	arm_work(arm, live->blocks[0].address);
	return live;
}

static void *
prepare_32(const struct arm *arm)
{
	return prepare(arm, false);
}

static void *
prepare_log(const struct arm *arm)
{
	return prepare(arm, true);
}

const struct workload workload_live_32 = { "live_32", prepare_32, round_live, NULL };
const struct workload workload_live_log = { "live_log", prepare_log, round_live, NULL };
