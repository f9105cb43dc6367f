/* SPDX-License-Identifier: MIT */
/*
 * Pools. Each device has its default pool and a few that come and go, and one of them is current.
 * A device's pools are held shared while memory is taken from one of them, and alone while one is
 * created, destroyed, made current or set: what is read back is then what was set.
 *
 * The program counts what each pool should say is used: whole steps of 512 bytes, from the call
 * that allocates to the call that frees. A destroyed pool is not asked any more.
 */
#include "tests/stress/async/async.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	POOLS_MAX = 4, /* of a device; the first is the default one */
	GRAIN = 512,
};

struct pool {
	CUmemoryPool handle; /* NULL: not there */
	atomic_uint number;  /* never 0, never used again */
	int rules[4];        /* by attribute */
	cuuint64_t threshold;
	atomic_size_t used, used_high; /* bytes */
};

static struct device {
	pthread_rwlock_t lock;
	struct pool pools[POOLS_MAX];
	int current;
} devices[DEVICES_MAX];
static atomic_uint next_number = 1;

static size_t
counted(size_t n_bytes)
{
	return (n_bytes + GRAIN - 1) / GRAIN * GRAIN;
}

/* ------------------------------------------------------------------- life --- */
static void
pool_open_to_all(CUmemoryPool handle, int device)
{
	for (int d = 0; d < n_devices; d++) {
		CUmemAccessDesc desc = {
			.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d },
			.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
		};

		if (d != device)
			CHECK(calls.cuMemPoolSetAccess(handle, &desc, 1));
	}
}

static void
pool_enter(struct pool *pool, CUmemoryPool handle)
{
	pool->handle = handle;
	pool->number = atomic_fetch_add(&next_number, 1);
	pool->rules[1] = pool->rules[2] = pool->rules[3] = 1;
	pool->threshold = 0;
	pool->used = pool->used_high = 0;
}

void
pools_open(struct rng *rng)
{
	CUmemoryPool handle;

	for (int d = 0; d < n_devices; d++) {
		pthread_rwlock_init(&devices[d].lock, NULL);
		CHECK(cuDeviceGetDefaultMemPool(&handle, d));
		pool_enter(&devices[d].pools[0], handle);
		pool_open_to_all(handle, d);
	}
}

static void
pool_create(struct worker *w, int device, struct pool *pool)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device },
		.maxSize = chance(w, 4) ? budget_bytes / 2 : 0,
	};
	CUmemoryPool handle;

	CHECK(calls.cuMemPoolCreate(&handle, &props));
	pool_enter(pool, handle);
	pool_open_to_all(handle, device);
	counts.pools_created++;
}

/* Its memory stays as it is. A current pool is followed by the default one. */
static void
pool_destroy(struct device *device, struct pool *pool)
{
	CUmemoryPool current;

	CHECK(calls.cuMemPoolDestroy(pool->handle));
	counts.pools_destroyed_in_use += pool->used != 0;
	pool->handle = NULL;
	if (pool == &device->pools[device->current])
		device->current = 0;
	CHECK(calls.cuDeviceGetMemPool(&current, (CUdevice)(device - devices)));
	if (current != device->pools[device->current].handle)
		check_code(CUDA_ERROR_UNKNOWN, "another pool is current than was set");
}

/* ------------------------------------------------------------------ memory --- */
void
pools_pick(struct worker *w, int device, int current, CUmemoryPool *ret_handle, unsigned *ret_pool)
{
	struct device *d = &devices[device];
	struct pool *pool;

	pthread_rwlock_rdlock(&d->lock);
	pool = &d->pools[current ? d->current : (int)rng_below(&w->rng, POOLS_MAX)];
	if (!pool->handle)
		pool = &d->pools[0];
	*ret_handle = pool->handle;
	*ret_pool = pool->number;
}

static struct pool *
pool_find(struct device *d, unsigned number)
{
	for (int i = 0; i < POOLS_MAX; i++)
		if (d->pools[i].number == number)
			return &d->pools[i];
	return NULL;
}

void
pools_release(int device, unsigned number, size_t n_bytes)
{
	struct pool *pool = pool_find(&devices[device], number);
	size_t used;

	if (pool && n_bytes) {
		used = atomic_fetch_add(&pool->used, counted(n_bytes)) + counted(n_bytes);
		if (used > pool->used_high)
			pool->used_high = used;
	}
	pthread_rwlock_unlock(&devices[device].lock);
}

void
pools_freed(unsigned number, size_t n_bytes)
{
	for (int d = 0; number && d < n_devices; d++) {
		struct pool *pool;

		pthread_rwlock_rdlock(&devices[d].lock);
		pool = pool_find(&devices[d], number);
		if (pool)
			atomic_fetch_sub(&pool->used, counted(n_bytes));
		pthread_rwlock_unlock(&devices[d].lock);
	}
}

/* -------------------------------------------------------------- attributes --- */
static cuuint64_t
bytes_of(const struct pool *pool, CUmemPool_attribute which)
{
	cuuint64_t value = 0;

	CHECK(cuMemPoolGetAttribute(pool->handle, which, &value));
	return value;
}

static int
figures_are(const char *word)
{
	const char *figures = getenv("ASYNC_FIGURES");

	return figures && strcmp(figures, word) == 0;
}

/* Off: for an allocator that keeps none. */
static int
figures_count(void)
{
	return !figures_are("off");
}

static void
expect_bytes(const struct pool *pool, CUmemPool_attribute which, cuuint64_t wanted)
{
	int near = which == CU_MEMPOOL_ATTR_USED_MEM_HIGH && figures_are("near");
	cuuint64_t value = bytes_of(pool, which);

	if (value == wanted || (near && value == wanted + GRAIN) || !figures_count())
		return;
	fprintf(stderr, "attribute %d of pool %u is %llu, should be %llu\n", (int)which,
		pool->number, (unsigned long long)value, (unsigned long long)wanted);
	exit(1);
}

static void
compare(const struct pool *pool)
{
	expect_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, pool->used);
	if (n_threads == 1)
		expect_bytes(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, pool->used_high);
	if (figures_count() && bytes_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) < pool->used)
		check_code(CUDA_ERROR_UNKNOWN, "less reserved than used");
	counts.used_compared++;
}

void
pools_compare(int device)
{
	for (int i = 0; i < POOLS_MAX; i++)
		if (devices[device].pools[i].handle)
			compare(&devices[device].pools[i]);
}

static void
rule_set(struct worker *w, struct pool *pool)
{
	CUmemPool_attribute rule = (CUmemPool_attribute)(1 + rng_below(&w->rng, 3));
	int got = 7, value = (int)rng_below(&w->rng, 2);

	CHECK(cuMemPoolGetAttribute(pool->handle, rule, &got));
	if (got != pool->rules[rule])
		check_code(CUDA_ERROR_UNKNOWN, "a rule of reuse is not what was set");
	CHECK(cuMemPoolSetAttribute(pool->handle, rule, &value));
	pool->rules[rule] = value;
}

static void
threshold_set(struct worker *w, struct pool *pool)
{
	static const cuuint64_t values[] = { 0, 4 << 20, UINT64_MAX };
	cuuint64_t value = values[rng_below(&w->rng, 3)];

	expect_bytes(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, pool->threshold);
	CHECK(cuMemPoolSetAttribute(pool->handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
	pool->threshold = value;
}

static void
high_reset(struct pool *pool)
{
	cuuint64_t zero = 0;

	CHECK(cuMemPoolSetAttribute(pool->handle, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	CHECK(cuMemPoolSetAttribute(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
	pool->used_high = pool->used;
}

static void
attribute_change(struct worker *w, struct pool *pool)
{
	counts.attributes_set++;
	if (chance(w, 2))
		rule_set(w, pool);
	else if (chance(w, 2))
		threshold_set(w, pool);
	else if (n_threads == 1)
		high_reset(pool);
}

/* ----------------------------------------------------------------- changes --- */
static void
pool_trim(struct worker *w, struct pool *pool)
{
	CHECK(cuMemPoolTrimTo(pool->handle, chance(w, 2) ? 0 : rng_below(&w->rng, budget_bytes)));
	counts.trims++;
}

static void
current_change(struct device *device, struct pool *pool)
{
	CHECK(calls.cuDeviceSetMemPool((CUdevice)(device - devices), pool->handle));
	device->current = (int)(pool - device->pools);
	counts.pools_made_current++;
}

/* With memory of it live, mostly. */
static void
life_change(struct worker *w, struct device *device, struct pool *pool)
{
	if (pool == device->pools || (chance(w, 3) && pool->handle))
		current_change(device, pool);
	else if (pool->handle)
		pool_destroy(device, pool);
	else
		pool_create(w, (int)(device - devices), pool);
}

void
pools_change(struct worker *w)
{
	int at = (int)rng_below(&w->rng, n_devices);
	struct device *device = &devices[at];
	struct pool *pool = &device->pools[rng_below(&w->rng, POOLS_MAX)];

	world_enter(&worlds[at]);
	pthread_rwlock_wrlock(&device->lock);
	if (chance(w, 3) || !pool->handle)
		life_change(w, device, pool);
	else if (chance(w, 2))
		attribute_change(w, pool);
	else
		pool_trim(w, pool);
	if (n_threads == 1)
		pools_compare(at);
	pthread_rwlock_unlock(&device->lock);
}

void
pools_trim_all(struct worker *w)
{
	for (int d = 0; d < n_devices; d++) {
		pthread_rwlock_rdlock(&devices[d].lock);
		for (int i = 0; i < POOLS_MAX; i++)
			if (devices[d].pools[i].handle)
				CHECK(cuMemPoolTrimTo(devices[d].pools[i].handle, 0));
		pthread_rwlock_unlock(&devices[d].lock);
		CHECK(calls.cuDeviceGraphMemTrim(d));
	}
	counts.trims++;
}

void
pools_close(void)
{
	for (int d = 0; d < n_devices; d++) {
		pools_compare(d);
		for (int i = 0; i < POOLS_MAX; i++) {
			struct pool *pool = &devices[d].pools[i];

			if (!pool->handle)
				continue;
			CHECK(cuMemPoolTrimTo(pool->handle, 0));
			expect_bytes(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 0);
			if (i)
				CHECK(calls.cuMemPoolDestroy(pool->handle));
		}
	}
}
