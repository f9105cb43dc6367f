/* SPDX-License-Identifier: MIT */
/*
 * A graph is captured as torch.cuda.graph() does it: on a stream of its own, in global mode, and
 * instantiated so that launches free what an earlier one left. It allocates, uses memory on a
 * second stream, frees some of it, and while it is captured a tensor from outside dies.
 */
#include "tests/process/pool_model/play.h"

enum { KEPT_MAX = 3, WORDS = 1024, AUTO_FREE_ON_LAUNCH = 1 };

struct captured {
	struct world *world;
	CUstream stream, fork;
	CUdeviceptr kept[KEPT_MAX]; /* that the graph leaves allocated */
	uint32_t value[KEPT_MAX];
	int n_kept;
};

static void
kernel(const struct captured *c, CUstream s, void *which, CUdeviceptr ptr, uint32_t value)
{
	uint64_t args[5] = { ptr, WORDS, value, 0, 0 };
	void *params[] = { &args[0], &args[1], &args[2], &args[3], &args[4] };

	if (which == c->world->check)
		args[3] = c->world->errors;
	CHECK(cuLaunchKernel(which, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

/* The fork comes after the stream. */
static void
fork_now(const struct captured *c, CUstream from, CUstream to)
{
	CUevent event;

	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventRecord(event, from));
	CHECK(cuStreamWaitEvent(to, event, 0));
	CHECK(cuEventDestroy_v2(event));
}

/* One tensor of the graph: freed there, on its stream or on the unifying one, or kept. */
static void
tensor(struct play *p, struct captured *c)
{
	size_t n_bytes = 4 * WORDS << rng_below(&p->rng, 10);
	uint32_t value = (uint32_t)rng_next(&p->rng);
	CUdeviceptr ptr = 0;
	int rc = backend_malloc(&ptr, c->world->device, n_bytes, c->stream);

	play_say(p, "malloc in a capture", n_bytes, rc, c->world->device);
	if (rc)
		return;
	kernel(c, c->stream, c->world->fill, ptr, value);
	fork_now(c, c->stream, c->fork);
	kernel(c, c->fork, c->world->check, ptr, value);
	CHECK(backend_record_stream(ptr, c->fork, c->world->device));
	if (c->n_kept < KEPT_MAX && rng_below(&p->rng, 2)) {
		c->kept[c->n_kept] = ptr;
		c->value[c->n_kept++] = value;
		return;
	}
	rc = backend_free(ptr);
	play_say(p, "free in a capture", n_bytes, rc, c->world->device);
}

static CUgraphExec
capture(struct play *p, struct captured *c)
{
	CUgraphExec exec;
	CUgraph graph;
	int rc;

	world_enter(c->world);
	CHECK(cuStreamCreate(&c->stream, 1));
	CHECK(cuStreamCreate(&c->fork, 1));
	CHECK(backend_capture_begin());
	CHECK(cuStreamBeginCapture_v2(c->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	/* it is joined below, also where no tensor could be had that was used on it */
	fork_now(c, c->stream, c->fork);
	for (int n = (int)rng_below(&p->rng, 3); n >= 0; n--)
		tensor(p, c);
	if (p->n_tensors) {
		play_free(p, (int)rng_below(&p->rng, p->n_tensors));
		play_say(p, "deferred", backend_deferred(), 0, c->world->device);
	}
	rc = backend_capture_begin();
	play_say(p, "a second capture", 0, rc, c->world->device);
	rc = backend_capture_about_to_end(c->stream, c->world->device);
	play_say(p, "capture ends", 0, rc, c->world->device);
	fork_now(c, c->fork, c->stream);
	CHECK(cuStreamEndCapture(c->stream, &graph));
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, AUTO_FREE_ON_LAUNCH));
	CHECK(cuGraphDestroy(graph));
	return exec;
}

/* What the graph left, as its outputs are used and die. */
static void
outputs_end(struct play *p, struct captured *c)
{
	for (int i = 0; i < c->n_kept; i++) {
		kernel(c, c->stream, c->world->check, c->kept[i], c->value[i]);
		CHECK(cuCtxSynchronize());
		play_say(p, "free of a graph's", 0, backend_free(c->kept[i]), c->world->device);
	}
}

void
play_capture(struct play *p, int device)
{
	struct captured c = { .world = &p->worlds[device] };
	CUgraphExec exec = capture(p, &c);

	p->captured = true;
	for (int n = (int)rng_below(&p->rng, 3); n >= 0; n--)
		CHECK(cuGraphLaunch(exec, c.stream));
	outputs_end(p, &c);
	CHECK(cuCtxSynchronize());
	CHECK(cuGraphExecDestroy(exec));
	/* the backend would go on with streams that end here; PyTorch's never do */
	CHECK(cuStreamDestroy_v2(c.fork));
	CHECK(cuStreamDestroy_v2(c.stream));
}
