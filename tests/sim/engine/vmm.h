/* SPDX-License-Identifier: MIT */
/* Shared by the files of virtual memory management: phys.c (memory), range.c and mapped.c
 * (addresses). */
#pragma once

#include "tests/sim/engine/internal.h"
#include "tests/sim/engine_vmm.h"

/* In sim_g.physes. Lives as long as it has references or mappings. */
struct sim_phys {
	struct sim_handle handle;
	struct sim_phys_info info;
	uint64_t id;     /* as of sim_mem_info.id */
	unsigned n_refs; /* given out and not released; 0: the program's handle is dead */
	unsigned n_maps;
	/* Where its bytes are without any mapping of the program's: the oracle knows them by it. */
	uint64_t at;
	int fd;          /* of the file they are in; another process's is this record's own */
	uint64_t offset; /* there, bytes */
	bool foreign;    /* another process's */
};

struct sim_mapping {
	struct sim_phys *phys;
	uint64_t base, n_bytes;
	uint64_t id;            /* as of sim_mem_info.id */
	unsigned reads, writes; /* by which devices, as bits */
};

/* A reservation. Its memory record stands for all that is mapped in it. */
struct sim_range {
	struct sim_mem mem;
	struct sim_range *next; /* in sim_g.ranges */
	uint64_t n_pages;       /* whole granules */
	struct sim_mapping **page;
};

/* The reservation that the address is in; NULL. */
struct sim_range *sim_range_find_locked(uint64_t addr);
/* The mapping at an address of it, and at any; NULL. */
struct sim_mapping *sim_mapping_in(const struct sim_range *range, uint64_t addr);
struct sim_mapping *sim_mapping_find_locked(uint64_t addr);
/* With references; else NULL. */
struct sim_phys *sim_phys_find_locked(sim_phys_handle handle);
/* Gives it back if neither references nor mappings are left. */
void sim_phys_settle_locked(struct sim_phys *phys);
