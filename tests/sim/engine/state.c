/* SPDX-License-Identifier: MIT */
/*
 * State of the whole engine: start, stop, lock, misuse.
 *
 * One lock guards everything but the bytes of simulated memory. That is slow compared with a real
 * driver and does not matter: what is simulated is meaning, not speed, and one lock is easy to get
 * right.
 */
#include "tests/sim/engine/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct sim_global sim_g = { .lock = PTHREAD_MUTEX_INITIALIZER };

void
sim_lock(void)
{
	pthread_mutex_lock(&sim_g.lock);
}

void
sim_unlock(void)
{
	pthread_mutex_unlock(&sim_g.lock);
}

uint64_t
sim_thread_id(void)
{
	static uint64_t next;
	static __thread uint64_t id;

	if (!id)
		id = __atomic_add_fetch(&next, 1, __ATOMIC_RELAXED);
	return id;
}

int
sim_misuse_locked(int code, const char *format, ...)
{
	char line[256];
	va_list ap;

	if (!sim_g.config.on_misuse)
		return code;
	va_start(ap, format);
	/* The analyzer does not follow va_start here.
	 * NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	sim_g.config.on_misuse(sim_g.config.arg, code, line);
	return code;
}

static void
close_all(void)
{
	for (int i = 0; i < SIM_DEVICES_MAX; i++) {
		sim_space_close(&sim_g.device[i].space);
		sim_space_close(&sim_g.device[i].pages);
		sim_op_unref_locked(sim_g.device[i].last);
		sim_g.device[i] = (struct sim_device){ 0 };
	}
	sim_slab_close(&sim_g.ctxs);
	sim_slab_close(&sim_g.streams);
	sim_slab_close(&sim_g.events);
	sim_slab_close(&sim_g.graphs);
	sim_slab_close(&sim_g.execs);
	sim_slab_close(&sim_g.objects);
	sim_slab_close(&sim_g.pools);
	sim_slab_close(&sim_g.physes);
	sim_space_close(&sim_g.host_space);
}

static int
open_all(const struct sim_config *config)
{
	int rc;

	rc = sim_slab_open(&sim_g.ctxs, sizeof(struct sim_ctx), 1 << 16);
	if (!rc)
		rc = sim_slab_open(&sim_g.streams, sizeof(struct sim_stream), 1 << 18);
	if (!rc)
		rc = sim_slab_open(&sim_g.events, sizeof(struct sim_event), 1 << 22);
	if (!rc)
		rc = sim_slab_open(&sim_g.graphs, sizeof(struct sim_graph), 1 << 18);
	if (!rc)
		rc = sim_slab_open(&sim_g.execs, 256, 1 << 18);
	if (!rc)
		rc = sim_slab_open(&sim_g.objects, sizeof(struct sim_user_object), 1 << 18);
	if (!rc)
		rc = sim_physes_open_locked();
	for (int i = 0; !rc && i < config->n_devices; i++) {
		rc = sim_space_open(&sim_g.device[i].space, config->mem_bytes, sim_ipc_file(i));
		if (!rc) {
			/* The primary context's slot is never given back,
			 * so that its handle stays. */
			sim_g.device[i].primary = sim_slab_get(&sim_g.ctxs);
			sim_g.device[i].primary->handle.life = SIM_DEAD;
		}
	}
	return rc ? rc : sim_pools_open_locked();
}

static void
cond_init_monotonic(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

int
sim_start(const struct sim_config *config)
{
	int rc = -EALREADY;

	sim_lock();
	if (sim_g.on)
		goto out;
	rc = -EINVAL;
	if (config->n_devices < 1 || config->n_devices > SIM_DEVICES_MAX ||
	    config->mem_bytes < SIM_UNIT)
		goto out;
	sim_g.config = *config;
	rc = open_all(config);
	if (rc) {
		close_all();
		goto out;
	}
	cond_init_monotonic(&sim_g.done);
	__atomic_store_n(&sim_g.generation, sim_g.generation + 1, __ATOMIC_RELEASE);
	sim_g.on = true;
out:
	sim_unlock();
	return rc;
}

void
sim_stop(void)
{
	if (!sim_g.on)
		return;
	sim_lock();
	for (size_t i = 0; i < sim_g.ctxs.n_used; i++) {
		struct sim_ctx *ctx = (void *)(sim_g.ctxs.base + i * sim_g.ctxs.size);

		if (ctx->handle.life == SIM_LIVE)
			sim_ctx_kill_locked(ctx);
	}
	sim_unlock();
	sim_workers_stop();
	sim_lock();
	sim_captures_free_locked();
	sim_execs_free_locked();
	sim_unlock();
	sim_host_stop();
	sim_lock();
	sim_pools_close_locked();
	sim_ranges_close_locked();
	sim_physes_close_locked();
	sim_oracle_free_locked();
	sim_order_free_locked();
	sim_components_free_locked();
	sim_vc_free(&sim_g.host);
	free(sim_g.pinned);
	sim_g.pinned = NULL;
	sim_g.n_pinned = sim_g.cap_pinned = 0;
	close_all();
	pthread_cond_destroy(&sim_g.done);
	sim_g.races = sim_g.manual_ns = 0;
	sim_g.n_asked = 0;
	sim_g.on = false;
	sim_unlock();
}

uint64_t
sim_pending(void)
{
	uint64_t n;

	sim_lock();
	n = sim_g.n_pending;
	sim_unlock();
	return n;
}

uint64_t
sim_races_counted(void)
{
	uint64_t n;

	sim_lock();
	n = sim_g.races;
	sim_unlock();
	return n;
}

uint64_t
sim_peak_bytes(int device)
{
	uint64_t n = 0;

	sim_lock();
	if (device >= 0 && device < sim_g.config.n_devices)
		n = sim_g.device[device].space.peak * SIM_UNIT;
	sim_unlock();
	return n;
}

uint64_t
sim_used_bytes(int device)
{
	uint64_t n = 0;

	sim_lock();
	if (device >= 0 && device < sim_g.config.n_devices)
		n = sim_g.device[device].space.used * SIM_UNIT;
	sim_unlock();
	return n;
}

uint64_t
sim_total_bytes(int device)
{
	if (device < 0 || device >= sim_g.config.n_devices)
		return 0;
	return sim_g.device[device].space.cap_units * SIM_UNIT;
}

int
sim_device_count(void)
{
	return sim_g.on ? sim_g.config.n_devices : 0;
}
