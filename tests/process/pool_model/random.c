/* SPDX-License-Identifier: MIT */
/* Memory abounds, so that the only allocations that fail are beyond the fraction that is set. */
#include "tests/process/pool_model/play.h"

enum { MIB = 1 << 20, LIVE_MAX = 600 * MIB };

static uint64_t
live_bytes(const struct play *p)
{
	uint64_t n = 0;

	for (int i = 0; i < p->n_tensors; i++)
		n += p->tensors[i].b.n_bytes;
	return n;
}

static size_t
size_any(struct play *p)
{
	static const size_t usual[] = { 512, 4096, 2 * MIB, 3 * MIB + 512, 20 * MIB };
	size_t n;

	if (rng_below(&p->rng, 2))
		return usual[rng_below(&p->rng, 5)];
	n = (size_t)1 << rng_below(&p->rng, 25);
	return n + rng_below(&p->rng, n);
}

/* 1: no limit that matters; else what is counted now, or a little more. */
static void
fraction_change(struct play *p, int device)
{
	double total = (double)p->worlds[device].total_bytes;
	double fraction = 1.0;

	if (rng_below(&p->rng, 2))
		fraction = ((double)backend_used(device) + (double)rng_below(&p->rng, 30 * MIB)) /
			   total;
	play_say(p, "fraction", 0, backend_set_fraction(fraction, device), device);
}

static void
workspace_guess(struct play *p, int device)
{
	int slot = (int)rng_below(&p->rng, p->worlds[device].n_streams), rc;
	double total = (double)p->worlds[device].total_bytes;
	size_t guess = 0;

	rc = backend_set_fraction(((double)backend_used(device) + 64 * MIB) / total, device);
	play_say(p, "fraction", 0, rc, device);
	rc = backend_cache_info(device, p->worlds[device].streams[slot].handle, &guess);
	play_say(p, "workspace", guess, rc, device);
	CHECK(backend_set_fraction(1.0, device));
}

static void
rare(struct play *p, int device)
{
	switch (rng_below(&p->rng, 8)) {
	case 0:
		play_say(p, "empty_cache", 0, backend_empty_cache(), device);
		break;
	case 1:
		fraction_change(p, device);
		break;
	case 2:
		p->peaks_were_reset = true;
		play_say(p, "reset_peaks", 0, backend_reset_peaks(device), device);
		break;
	case 3:
		play_capture(p, device);
		break;
	case 4:
		workspace_guess(p, device);
		break;
	case 5:
		play_say(p, "free of nothing", 0, backend_free(p->worlds[device].errors), device);
		break;
	default:
		play_sync(p, device);
		break;
	}
}

static void
usual(struct play *p, int device, unsigned dice)
{
	int slot = (int)rng_below(&p->rng, p->worlds[device].n_streams);
	struct tensor *t;

	if (dice < 40 || !p->n_tensors) {
		if (p->n_tensors == TENSORS_MAX || live_bytes(p) > LIVE_MAX)
			play_free(p, (int)rng_below(&p->rng, p->n_tensors));
		t = play_malloc(p, device, slot, size_any(p));
		if (t)
			play_use(p, t, slot);
	} else if (dice < 70) {
		t = &p->tensors[rng_below(&p->rng, p->n_tensors)];
		play_use(p, t, (int)rng_below(&p->rng, t->b.world->n_streams));
	} else {
		play_free(p, (int)rng_below(&p->rng, p->n_tensors));
	}
}

void
play_random(struct play *p, long operations)
{
	for (int d = 0; d < p->n_devices; d++) {
		play_say(p, "before anything", 0, 0, d);
		CHECK(backend_set_fraction(1.0, d));
	}
	while (operations-- > 0) {
		int device = (int)rng_below(&p->rng, p->n_devices);
		unsigned dice = (unsigned)rng_below(&p->rng, 100);

		if (dice < 8)
			rare(p, device);
		else
			usual(p, device, (unsigned)rng_below(&p->rng, 100));
	}
}
