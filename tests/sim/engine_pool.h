/* SPDX-License-Identifier: MIT */
/*
 * The engine's memory pools; conventions as in engine.h. The model is described in README.md.
 *
 * A CUmemoryPool is a handle of the engine; numbers of attributes, locations and types are those of
 * cuda.h. INVALID_VALUE: no pool, or a destroyed one.
 */
#pragma once

#include "tests/sim/engine.h"

enum sim_pool_attribute {
	SIM_POOL_FOLLOW_EVENT = 1,
	SIM_POOL_OPPORTUNISTIC,
	SIM_POOL_INTERNAL,
	SIM_POOL_THRESHOLD,
	SIM_POOL_RESERVED,
	SIM_POOL_RESERVED_HIGH,
	SIM_POOL_USED,
	SIM_POOL_USED_HIGH,
	SIM_POOL_TYPE,
	SIM_POOL_HANDLE_TYPES,
	SIM_POOL_LOCATION_ID,
	SIM_POOL_LOCATION_TYPE,
	SIM_POOL_MAX_SIZE,
	SIM_POOL_DECOMPRESS,
	SIM_POOL_DOMAIN,
};

enum sim_location {
	SIM_LOCATION_NONE,
	SIM_LOCATION_DEVICE,
	SIM_LOCATION_HOST,
	SIM_LOCATION_NUMA,
};

enum {
	SIM_POOL_PINNED = 1, /* types */
	SIM_POOL_MANAGED = 2,
	SIM_POOL_FD = 1,               /* the one handle type there is */
	SIM_POOL_USAGE_DECOMPRESS = 2, /* the one usage bit there is; not to be had */
	SIM_ACCESS_NONE = 0,
	SIM_ACCESS_ALL = 3,
};

struct sim_pool_props {
	int type, location, id;
	unsigned handle_types;
	uint64_t max_bytes; /* 0: no limit */
	unsigned usage;
};

int sim_pool_create(const struct sim_pool_props *props, CUmemoryPool *ret_pool);
/* Returns at once. Its memory stays until it is freed, and the reserve until that has run.
 * INVALID_VALUE: a default pool. */
int sim_pool_destroy(CUmemoryPool handle);
/* The pool that has been there from the start for a location and type, and the one set there. */
int sim_pool_default(int type, int location, int id, CUmemoryPool *ret_pool);
int sim_pool_current(int type, int location, int id, CUmemoryPool *ret_pool);
int sim_pool_set_current(int type, int location, int id, CUmemoryPool handle);

/* Counters in bytes: reserved in whole units of 2 MiB, used in steps of 512. Set: the three rules,
 * the threshold, and 0 to the two marks; INVALID_VALUE: anything else. */
int sim_pool_get(CUmemoryPool handle, enum sim_pool_attribute attribute, uint64_t *ret_value);
int sim_pool_set(CUmemoryPool handle, enum sim_pool_attribute attribute, uint64_t value);
/* Gives back whole units whose frees the host knows of, as long as at least that much stays. */
int sim_pool_trim(CUmemoryPool handle, uint64_t keep_bytes);
/* Of a device. NONE for the device that the memory is on: INVALID_VALUE. */
int sim_pool_set_access(CUmemoryPool handle, int device, unsigned flags);
int sim_pool_get_access(CUmemoryPool handle, int location, int id, unsigned *ret_flags);

/* NULL: the pool set for the stream's device. OUT_OF_MEMORY: neither free memory of the pool that
 * the rules allow, nor room on the device or below the pool's limit. In a capture: a node. */
int sim_pool_alloc(CUmemoryPool handle, size_t n_bytes, CUstream stream, CUdeviceptr *ret_ptr);

/* ---------------------------------------------------------------- shares --- */
/* What a file descriptor of a pool, or exported data of a pointer, says. */
struct sim_pool_share {
	uint64_t magic;
	uint64_t pool; /* its number in that process */
	struct sim_ipc ipc;
};

/* NULL handle type, other types than POSIX file descriptors: INVALID_VALUE. The descriptor is the
 * caller's. */
int sim_pool_export(CUmemoryPool handle, unsigned handle_type, int *ret_fd);
int sim_pool_import(int fd, unsigned handle_type, CUmemoryPool *ret_pool);
/* Memory of a pool that can be exported; its start. */
int sim_pool_export_pointer(CUdeviceptr ptr, struct sim_pool_share *ret_share);
/* As sim_ipc_open(); freed like memory of a pool. */
int sim_pool_import_pointer(CUmemoryPool handle, const struct sim_pool_share *share,
			    CUdeviceptr *ret_ptr);

/* ---------------------------------------------------------- graph memory --- */
enum sim_graph_memory_attribute {
	SIM_GRAPH_USED,
	SIM_GRAPH_USED_HIGH,
	SIM_GRAPH_RESERVED,
	SIM_GRAPH_RESERVED_HIGH,
};

int sim_graph_add_alloc(CUgraph handle, const CUgraphNode *deps, size_t n, int device,
			size_t n_bytes, CUgraphNode *ret_node, CUdeviceptr *ret_ptr);
int sim_graph_add_free(CUgraph handle, const CUgraphNode *deps, size_t n, CUdeviceptr ptr,
		       CUgraphNode *ret_node);
/* INVALID_DEVICE: none; INVALID_VALUE: no such attribute, or not one that is set to 0. */
int sim_graph_memory_get(int device, enum sim_graph_memory_attribute attribute,
			 uint64_t *ret_value);
int sim_graph_memory_reset(int device, enum sim_graph_memory_attribute attribute);
/* What no graph that runs, or is to run, may use goes back to the device. */
int sim_graph_memory_trim(int device);
