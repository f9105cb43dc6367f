/* SPDX-License-Identifier: MIT */
/*
 * Captures with memory. Each thread captures in a context of its own (its studio), so that waits
 * for whole contexts go on elsewhere; told memory comes there and leaves again, since it belongs to
 * no context.
 *
 * A graph allocates memory, fills it, copies it to a block from outside, and frees it, or leaves
 * it: then the launch's memory is a block as any other, freed by either road when its time comes.
 * While the capture is open, memory that has nothing to do with it comes and goes.
 */
#include "tests/stress/async/async.h"

enum {
	GRAPH_WORDS = 256,
	AUTO_FREE_ON_LAUNCH = 1,
};

struct captured {
	struct world *studio;
	CUstream stream, fork; /* that capture */
	CUdeviceptr inside;    /* that the graph allocates */
	size_t n_bytes;
	uint32_t value;
	int freed;             /* by the graph itself */
	struct block *outside; /* the worker's last one, or NULL */
	unsigned long long flags;
	CUgraphExec exec;
};

static void
kernel(const struct captured *c, CUstream s, void *which, uint64_t *args, int n)
{
	void *params[5];

	for (int i = 0; i < n; i++)
		params[i] = &args[i];
	world_enter(c->studio);
	CHECK(cuLaunchKernel(which, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

static size_t
words_of(size_t n_bytes)
{
	return n_bytes / 4 < GRAPH_WORDS ? n_bytes / 4 : GRAPH_WORDS;
}

/* A free of memory that is no graph's is refused, and the memory stays. */
static void
try_to_free_outside(const struct captured *c)
{
	CUresult code = cuMemFreeAsync(c->outside->ptr, c->stream);

	if (code != CUDA_ERROR_INVALID_VALUE)
		check_code(code ? code : CUDA_ERROR_UNKNOWN,
			   "a free in a capture, of other memory");
	counts.refused_in_capture++;
}

/* What the capture has nothing to do with; the worker's blocks may move in the array. */
static void
window(struct worker *w, int n)
{
	while (n-- > 0) {
		struct world *world = &worlds[rng_below(&w->rng, n_worlds)];

		if (w->n_blocks + 1 < BLOCKS_MAX && w->live_bytes + 4096 < budget_bytes) {
			struct block *b = memory_take(w, world, 4096);

			if (!b)
				return;
			worker_touch(w, b, world_pick(world, w->index, &w->rng));
			memory_free(w, w->n_blocks - 1);
			counts.allocs_beside_capture++;
		}
	}
}

static void
body(struct worker *w, struct captured *c, CUevent event)
{
	uint64_t n = words_of(c->n_bytes);
	uint64_t fill[] = { c->inside, n, c->value, spin_pick(&w->rng) };
	uint64_t check[] = { c->inside, n, c->value, c->studio->errors, spin_pick(&w->rng) };

	kernel(c, c->stream, c->studio->fill, fill, 4);
	CHECK(cuEventRecord(event, c->stream));
	CHECK(cuStreamWaitEvent(c->fork, event, 0));
	if (c->outside) {
		size_t room = words_of(c->outside->n_bytes);
		uint64_t copy[] = { c->outside->ptr, c->inside, room < n ? room : n, 0 };

		kernel(c, c->fork, c->studio->copy, copy, 4);
	}
	kernel(c, c->stream, c->studio->check, check, 5);
	CHECK(cuEventRecord(event, c->fork));
	CHECK(cuStreamWaitEvent(c->stream, event, 0));
}

static void
capture(struct worker *w, struct captured *c)
{
	int relaxed = chance(w, 2);
	CUevent event;
	CUgraph graph;

	world_enter(c->studio);
	CHECK(cuStreamCreate(&c->stream, 1));
	CHECK(cuStreamCreate(&c->fork, 1));
	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CHECK(cuStreamBeginCapture_v2(c->stream, relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED
							 : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CHECK(cuMemAllocAsync(&c->inside, c->n_bytes, c->stream));
	body(w, c, event);
	if (c->outside && chance(w, 3))
		try_to_free_outside(c);
	if (relaxed)
		window(w, (int)rng_below(&w->rng, 4));
	world_enter(c->studio);
	if (c->freed)
		CHECK(cuMemFreeAsync(c->inside, c->stream));
	CHECK(cuStreamEndCapture(c->stream, &graph));
	CHECK(cuGraphInstantiateWithFlags(&c->exec, graph, c->flags));
	CHECK(cuGraphDestroy(graph));
	CHECK(cuEventDestroy_v2(event));
	CHECK(cuStreamDestroy_v2(c->stream));
	CHECK(cuStreamDestroy_v2(c->fork));
	counts.captures++;
	counts.freed_in_capture += c->freed;
}

/* 0: out of memory. */
static int
launch(struct worker *w, struct captured *c, int slot)
{
	CUresult code;

	if (c->outside)
		block_use(c->outside, slot, 1, &w->rng);
	world_enter(c->studio);
	code = cuGraphLaunch(c->exec, c->studio->streams[slot].handle);
	if (code == CUDA_ERROR_OUT_OF_MEMORY) {
		counts.ooms++;
		return 0;
	}
	check_code(code, "cuGraphLaunch");
	counts.graph_launches++;
	if (c->outside) {
		size_t room = words_of(c->outside->n_bytes), n = words_of(c->n_bytes);

		c->outside->value = c->value;
		c->outside->start = 0;
		c->outside->n_words = room < n ? room : n;
	}
	return 1;
}

/* What the last launch left is a block now. */
static void
adopt(struct worker *w, const struct captured *c, int slot)
{
	struct block b = {
		.ptr = c->inside,
		.n_bytes = c->n_bytes,
		.world = c->studio,
		.value = c->value,
		.n_words = words_of(c->n_bytes),
		.users = 1u << slot,
		.ordered = 1u << slot,
		.road = ROAD_GRAPH,
	};

	memory_enter(w, &b);
	counts.graph_allocs++;
}

/* A block for the graph to write to, in the studio; it is the last one. */
static struct block *
outside_take(struct worker *w, struct world *studio)
{
	struct block *b = memory_take_told(w, &worlds[rng_below(&w->rng, n_worlds)], 2048);

	if (b)
		memory_move(w, b, studio);
	return b;
}

void
graph_run(struct worker *w)
{
	struct captured c = {
		.studio = &studios[w->index],
		.n_bytes = 4 + memory_size(w) / 8,
		.value = (uint32_t)rng_next(&w->rng),
		.freed = chance(w, 2),
		.flags = chance(w, 2) ? AUTO_FREE_ON_LAUNCH : 0,
	};
	int slot = world_pick(c.studio, w->index, &w->rng), again, launched = 0;

	while (w->n_blocks + 4 > BLOCKS_MAX)
		memory_free_some(w, 1);
	memory_make_room(w, c.n_bytes + 8192);
	if (chance(w, 2))
		c.outside = outside_take(w, c.studio);
	capture(w, &c);
	again = c.freed || c.flags ? (int)rng_below(&w->rng, 3) : 0;
	for (int n = 0; n <= again && launch(w, &c, slot); n++)
		launched = 1;
	world_enter(c.studio);
	CHECK(cuGraphExecDestroy(c.exec));
	if (launched && !c.freed)
		adopt(w, &c, slot);
}
