/* SPDX-License-Identifier: MIT */
/*
 * The engine's virtual memory management; conventions as in engine.h. The model is described in
 * README.md.
 *
 * Physical memory has handles and no address; an address range is reserved without memory; a
 * mapping puts the one in the other, and access is granted to each device. None of it belongs to a
 * context, so none of it ends with one, and no context needs to be current. Numbers of locations,
 * types and access flags are those of cuda.h. A call that a capture prohibits answers 900, as
 * cuMemFree does.
 */
#pragma once

#include "tests/sim/engine.h"

enum {
	SIM_VMM_GRANULARITY = 2 << 20, /* bytes: of sizes, addresses and offsets */
};

/* A handle of physical memory: never 0, and valid until it has been released as often as it was
 * given out. Handles come back, as those of streams. */
typedef unsigned long long sim_phys_handle;

struct sim_phys_info {
	int device;
	uint64_t n_bytes;
	unsigned handle_types; /* 0, or 1: it can be exported as a file descriptor */
	bool compressible;     /* asked for; there is no compression here */
	bool rdma;             /* for other cards, too */
};

/* n_bytes: whole granules, else INVALID_VALUE. INVALID_DEVICE; OUT_OF_MEMORY: counted against the
 * device's capacity like all its memory. Contents are undefined. */
int sim_phys_create(const struct sim_phys_info *info, sim_phys_handle *ret_handle);
/* The memory goes when it is mapped nowhere, either. INVALID_VALUE: no such handle. */
int sim_phys_release(sim_phys_handle handle);
int sim_phys_look(sim_phys_handle handle, struct sim_phys_info *ret_info);
/* The handle of what is mapped at the address, given out once more, though it may have been
 * released. INVALID_VALUE: nothing is. */
int sim_phys_retain(uint64_t addr, sim_phys_handle *ret_handle);
/* A file descriptor that says what it is; the caller's. It keeps the memory for nobody.
 * INVALID_VALUE: the memory cannot be exported. */
int sim_phys_export(sim_phys_handle handle, int *ret_fd);
/* This process's memory gets a handle given out once more, another process's a mapping of its
 * file. INVALID_VALUE: not such a descriptor, or the memory has gone; NOT_SUPPORTED: another
 * process's without config.ipc. */
int sim_phys_import(int fd, sim_phys_handle *ret_handle);

/* n_bytes: whole pages of the host; alignment: 0 or a power of two; hint: 0, or where it is wanted.
 */
int sim_range_reserve(uint64_t n_bytes, uint64_t alignment, uint64_t hint, CUdeviceptr *ret_ptr);
/* INVALID_VALUE: not what was reserved, or something is mapped there. */
int sim_range_free(CUdeviceptr ptr, uint64_t n_bytes);

/* INVALID_VALUE: not in one reservation, mapped in part already, more than the memory has, or an
 * offset that is not 0. */
int sim_range_map(CUdeviceptr ptr, uint64_t n_bytes, uint64_t offset, sim_phys_handle handle);
/*
 * Of one or several mappings without a gap, each as a whole, else INVALID_VALUE. Waits for nothing:
 * for the oracle the host writes the addresses, so that work which may still use them has a race
 * with it, and what runs later fails (700). Work on the same memory at other addresses is none of
 * its business.
 */
int sim_range_unmap(CUdeviceptr ptr, uint64_t n_bytes);
/* Of whole mappings without a gap. flags: SIM_ACCESS_NONE, 1 (read) or SIM_ACCESS_ALL. Taking
 * access away is for the oracle what unmapping is. */
int sim_range_set_access(CUdeviceptr ptr, uint64_t n_bytes, int device, unsigned flags);
/* INVALID_VALUE: nothing is mapped there. */
int sim_range_get_access(CUdeviceptr ptr, int device, unsigned *ret_flags);

struct sim_mapping_info {
	uint64_t range, n_range; /* the reservation: address, bytes */
	unsigned handle_types;
	bool rdma;
	unsigned long long phys_id; /* unique over the process; the same for every mapping of it */
};

/* Of an address for which sim_mem_lookup() says SIM_MEM_MAPPED. */
int sim_mapping_lookup(CUdeviceptr ptr, struct sim_mapping_info *ret_info);
