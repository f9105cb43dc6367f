/* SPDX-License-Identifier: MIT */
/*
 * pool_model random SEED OPERATIONS DEVICES STREAMS [retry]: a random program, memory abounds.
 * pool_model short 0 0 DEVICES STREAMS [retry]: a device of 256 MiB comes to its end (short.c).
 *
 * Exit status: 0; 1 contents or reserved bytes are wrong; 2 usage or an unexpected driver error.
 */
#include "tests/process/pool_model/play.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------- figures --- */
/* One of the simulator's figures of a device, now; 0 where there is no simulator. */
static uint64_t
simulator_bytes(const char *name, int device)
{
	static char text[1 << 16];
	size_t (*stats)(char *, size_t);
	char *at;

	*(void **)&stats = dlsym(RTLD_DEFAULT, "simcuda_stats");
	if (!stats || stats(text, sizeof(text)) >= sizeof(text))
		return 0;
	at = strstr(text, name);
	at = at ? strchr(at, '[') : NULL;
	while (at && device--)
		at = strchr(at + 1, ',');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

static uint64_t
graph_bytes(int device)
{
	cuuint64_t value = 0;

	CHECK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value));
	return value;
}

static void
expect(const char *what, uint64_t value, uint64_t wanted)
{
	if (value == wanted)
		return;
	fprintf(stderr, "%s are %llu, should be %llu\n", what, (unsigned long long)value,
		(unsigned long long)wanted);
	exit(1);
}

/* Reserved is what the driver really gave. */
static void
compare(const struct play *p, const struct backend_stats *stats, int device)
{
	if (stats->reserved < stats->used || stats->reserved_high < stats->reserved)
		expect("reserved bytes below used or above their peak", stats->reserved,
		       stats->used);
	if (!p->compares)
		return;
	expect("reserved bytes", stats->reserved,
	       simulator_bytes("used_bytes", device) - p->baseline[device] - graph_bytes(device));
	if (!p->peaks_were_reset && !p->captured)
		expect("reserved bytes at their peak", stats->reserved_high,
		       simulator_bytes("peak_bytes", device) - p->baseline[device]);
}

static const char *
outcome_name(int outcome)
{
	static char text[32];

	if (outcome == 0)
		return "ok";
	if (outcome == BACKEND_OUT_OF_MEMORY)
		return "OutOfMemoryError";
	if (outcome == BACKEND_ASSERTION)
		return "AssertionError";
	snprintf(text, sizeof(text), "AcceleratorError(%d)", outcome);
	return text;
}

void
play_say(struct play *p, const char *what, size_t n_bytes, int outcome, int device)
{
	struct backend_stats stats;
	int rc = backend_stats(device, &stats);

	printf("%lu %s %zu on %d: %s; counted %llu, used %llu, high %llu; %d\n", p->line++, what,
	       n_bytes, device, outcome_name(outcome), (unsigned long long)backend_used(device),
	       (unsigned long long)stats.used, (unsigned long long)stats.used_high, rc);
	compare(p, &stats, device);
}

/* ------------------------------------------------------------------- calls --- */
struct tensor *
play_malloc(struct play *p, int device, int slot, size_t n_bytes)
{
	struct world *world = &p->worlds[device];
	struct tensor *t = &p->tensors[p->n_tensors];
	int rc;

	*t = (struct tensor){ .slot = slot };
	t->b.world = world;
	t->b.n_bytes = n_bytes;
	t->b.users = t->b.ordered = 1u << slot;
	rc = backend_malloc(&t->b.ptr, device, n_bytes, world->streams[slot].handle);
	play_say(p, "malloc", n_bytes, rc, device);
	if (rc)
		return NULL;
	p->n_tensors++;
	return t;
}

void
play_free(struct play *p, int i)
{
	struct tensor t = p->tensors[i];

	p->tensors[i] = p->tensors[--p->n_tensors];
	play_say(p, "free", t.b.n_bytes, backend_free(t.b.ptr), t.b.world->device);
}

void
play_use(struct play *p, struct tensor *t, int slot)
{
	struct world *world = t->b.world;
	size_t n_words = t->b.n_bytes / 4 < 4096 ? t->b.n_bytes / 4 : 4096;
	unsigned spin_us = (unsigned)rng_below(&p->rng, 100);

	if (!n_words)
		return;
	if (slot != t->slot)
		CHECK(backend_record_stream(t->b.ptr, world->streams[slot].handle, world->device));
	if (t->b.n_words && rng_below(&p->rng, 2))
		block_check(&t->b, slot, spin_us, &p->rng);
	else
		block_fill(&t->b, slot, (uint32_t)rng_next(&p->rng), 0, n_words, spin_us, &p->rng);
}

void
play_sync(struct play *p, int device)
{
	world_enter(&p->worlds[device]);
	CHECK(cuCtxSynchronize());
	play_say(p, "synchronize", 0, 0, device);
}

/* ------------------------------------------------------------------- frame --- */
void
play_open(struct play *p, uint64_t seed, int n_devices, int n_streams, bool retry)
{
	CUcontext contexts[BACKEND_DEVICES_MAX];
	const char *reserved = getenv("POOL_MODEL_RESERVED");

	*p = (struct play){ .rng = { seed }, .n_devices = n_devices, .retries = retry };
	p->compares = !reserved || strcmp(reserved, "off") != 0;
	CHECK(cuInit(0));
	for (int d = 0; d < n_devices; d++) {
		world_open(&p->worlds[d], d, 1, n_streams, 1, &p->rng);
		contexts[d] = p->worlds[d].ctx;
	}
	for (int d = 0; d < n_devices; d++)
		p->baseline[d] = simulator_bytes("used_bytes", d);
	backend_open(contexts, n_devices, retry);
}

static unsigned long
words_wrong(const struct world *world)
{
	uint64_t wrong;

	world_enter(world);
	CHECK(cuMemcpyDtoH_v2(&wrong, world->errors, 8));
	if (wrong)
		fprintf(stderr, "sim_check found %llu wrong words\n", (unsigned long long)wrong);
	return wrong;
}

int
play_close(struct play *p)
{
	unsigned long wrong = 0;

	if (backend_deferred()) /* by the last capture: the next allocation frees */
		play_malloc(p, 0, 0, 512);
	while (p->n_tensors)
		play_free(p, 0);
	CHECK(backend_empty_cache());
	for (int d = 0; d < p->n_devices; d++) {
		struct backend_stats stats;

		play_say(p, "empty_cache", 0, 0, d);
		CHECK(backend_stats(d, &stats));
		expect("bytes reserved in the end", stats.reserved, 0);
		wrong += words_wrong(&p->worlds[d]);
	}
	return wrong != 0;
}

int
main(int argc, char **argv)
{
	static struct play p;
	bool random = argc >= 6 && !strcmp(argv[1], "random");
	long n_devices = argc >= 6 ? strtol(argv[4], NULL, 10) : 0,
	     n_streams = argc >= 6 ? strtol(argv[5], NULL, 10) : 0;

	if ((!random && (argc < 6 || strcmp(argv[1], "short") != 0)) || n_devices < 1 ||
	    n_devices > BACKEND_DEVICES_MAX || n_streams < 2 || n_streams >= WORLD_STREAMS_MAX) {
		fprintf(stderr,
			"usage: %s random|short SEED OPERATIONS DEVICES(1-4) STREAMS(2-9) "
			"[retry]\n",
			argv[0]);
		return 2;
	}
	play_open(&p, strtoull(argv[2], NULL, 10), (int)n_devices, (int)n_streams, argc == 7);
	if (random)
		play_random(&p, strtol(argv[3], NULL, 10));
	else
		play_short_of_memory(&p);
	return play_close(&p);
}
