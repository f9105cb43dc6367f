/* SPDX-License-Identifier: MIT */
/*
 * The program's threshold is what the driver had before it was raised, until the program sets one.
 * A trim brings what the driver's own count of reserved bytes fell by; a trim in which
 * nothing can come back is not asked for.
 *
 * A trim takes no memory that is in use: not that of allocations, and not what a stream-ordered
 * free has not reached yet (cuda.h, cuMemPoolTrimTo). It is made in relaxed capture mode, and by a
 * thread that may call cuMemFree, as segments go back (driver_table.c).
 */
#include "shim/driver/pools.h"

#include <pthread.h>
#include <stdatomic.h>

#include "shim/bind/scope.h"
#include "shim/driver/pool_calls.h"
#include "shim/driver/told_pools.h"
#include "shim/state/process.h"
#include "shim/track/captures.h"
#include "shim/track/graphs.h"

enum { DEVICES_MAX = 64 };

struct kept {
	_Atomic(CUmemoryPool) pool; /* NULL: its threshold is the driver's */
	cuuint64_t own;             /* the program's threshold; under the lock */
	bool known;                 /* `own` is; under the lock */
};
static struct kept kept[DEVICES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Reserved bytes of the pool. False: the driver does not say. */
static bool
pool_reserved(const struct ca_real *real, CUmemoryPool pool, cuuint64_t *ret_bytes)
{
	*ret_bytes = 0;
	return !ca_pool_get(real, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, ret_bytes);
}

static void
set_own(struct kept *one, cuuint64_t own, bool replace)
{
	CA_HOLD_LOCK(&lock);
	if (replace || !one->known)
		one->own = own;
	one->known = true;
}

static CUresult
raise_threshold(const struct ca_real *real, CUmemoryPool pool)
{
	cuuint64_t most = UINT64_MAX;

	return ca_pool_set(real, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most);
}

void
ca_pools_keep(CUdevice device)
{
	const struct ca_real *real = ca_real();
	cuuint64_t reserved, own;
	CUmemoryPool pool = NULL;
	CA_KEEP_ERRNO;

	if (!real || device < 0 || device >= DEVICES_MAX || !real->cuDeviceGetDefaultMemPool ||
	    !real->cuMemPoolGetAttribute || !real->cuMemPoolSetAttribute || !real->cuMemPoolTrimTo)
		return;
	if (CA_INSIDE(real->cuDeviceGetDefaultMemPool(&pool, device)) ||
	    !pool_reserved(real, pool, &reserved) ||
	    ca_pool_get(real, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &own))
		return;
	set_own(&kept[device], own, false);
	atomic_store(&kept[device].pool, pool);
	if (raise_threshold(real, pool))
		atomic_store(&kept[device].pool, NULL);
}

static struct kept *
kept_find(CUmemoryPool pool)
{
	for (unsigned i = 0; pool && i < DEVICES_MAX; i++)
		if (atomic_load_explicit(&kept[i].pool, memory_order_relaxed) == pool)
			return &kept[i];
	return NULL;
}

bool
ca_pools_own_threshold(CUmemoryPool pool, cuuint64_t *ret_own)
{
	struct kept *one = kept_find(pool);

	if (!one)
		return false;
	CA_HOLD_LOCK(&lock);
	if (ret_own)
		*ret_own = one->own;
	return true;
}

CUresult
ca_pools_set_own(const struct ca_real *real, CUmemoryPool pool, cuuint64_t own)
{
	struct kept *one = kept_find(pool);
	CUresult rc = raise_threshold(real, pool);

	if (!rc && one)
		set_own(one, own, true);
	return rc;
}

/* Bytes that came back. */
static uint64_t
trim_pool(const struct ca_real *real, CUmemoryPool pool, uint64_t keep_bytes)
{
	cuuint64_t before, after;

	if (!pool || !pool_reserved(real, pool, &before) || before <= keep_bytes ||
	    ca_pool_trim(real, pool, keep_bytes) || !pool_reserved(real, pool, &after))
		return 0;
	return before > after ? before - after : 0;
}

static bool
graphs_reserved(const struct ca_real *real, CUdevice device, cuuint64_t *ret_bytes)
{
	*ret_bytes = 0;
	return !CA_INSIDE(real->cuDeviceGetGraphMemAttribute(
		device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, ret_bytes));
}

static uint64_t
trim_graphs(const struct ca_real *real, CUdevice device)
{
	cuuint64_t before, after;

	if (!real->cuDeviceGetGraphMemAttribute || !real->cuDeviceGraphMemTrim ||
	    !graphs_reserved(real, device, &before) || !before ||
	    CA_INSIDE(real->cuDeviceGraphMemTrim(device)) || !graphs_reserved(real, device, &after))
		return 0;
	return before > after ? before - after : 0;
}

uint64_t
ca_pools_trim(void *self, unsigned device, uint64_t keep_bytes, bool graphs)
{
	const struct ca_real *real = ca_real();
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUmemoryPool pool = NULL;
	uint64_t given;
	bool exchanged;

	if (device < DEVICES_MAX)
		pool = atomic_load(&kept[device].pool);
	graphs = graphs && ca_graphs_any();
	if (!real || (!pool && !graphs && !atomic_load(&ca_told_on)) || ca_capture_disallows())
		return 0;
	exchanged = ca_capture_exchange_mode(real, &mode);
	given = trim_pool(real, pool, keep_bytes) + ca_told_pools_trim(real, device, keep_bytes);
	if (graphs)
		given += trim_graphs(real, (CUdevice)device);
	if (exchanged)
		ca_capture_restore_mode(real, mode);
	return given;
}

void
ca_pools_after_fork_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	for (unsigned i = 0; i < DEVICES_MAX; i++) {
		atomic_store(&kept[i].pool, NULL);
		kept[i].known = false;
	}
}
