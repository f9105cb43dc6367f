/* SPDX-License-Identifier: MIT */
/* Virtual memory management, as the rest of the engine sees it. Included by internal.h. */
#pragma once

#include "tests/sim/engine.h"

struct sim_mem;
struct sim_op;
struct sim_phys;
struct sim_space;
struct sim_touch;

/* ------------------------------------------------------------ phys.c --- */
int sim_physes_open_locked(void);
/* Nothing is mapped any more. */
void sim_physes_close_locked(void);

/* ----------------------------------------------------------- mapped.c --- */
/* The record of mapped memory at the address, or NULL; whether the address is reserved. */
struct sim_mem *sim_range_mem_locked(uint64_t addr);
bool sim_range_holds_addr_locked(uint64_t addr);
/* Whether all of it is mapped, with access for some device. */
bool sim_range_covers_locked(const struct sim_mem *mem, uint64_t addr, uint64_t n_bytes);
/* Whether the device may touch it, or, if the work may stage it, the one that the memory is on. */
bool sim_range_reaches_locked(const struct sim_mem *mem, const struct sim_touch *touch, int device,
			      bool may_stage);
/* The first bytes of it that are in one piece: where the oracle knows them, and how many. False: no
 * mapping is there, they are themselves. */
bool sim_range_original_locked(uint64_t addr, uint64_t n_bytes, uint64_t *ret_addr,
			       uint64_t *ret_n);
/* The memory that the address is part of. */
void sim_range_describe_locked(const struct sim_mem *mem, uint64_t addr, struct sim_mem_info *info);
/* A programmatic launch could start now: sets aside what it reads of mapped memory. */
void sim_range_snapshot_locked(struct sim_op *op);

/* ----------------------------------------------------------- range.c --- */
void sim_ranges_close_locked(void);

/* ---------------------------------------------------------- oracle.c --- */
/* The host takes the mapping, or access to it, away: what may use it still has a race with that. */
void sim_oracle_mapping_locked(const char *name, uint64_t addr, uint64_t n_bytes);

/* ----------------------------------------------------------- space.c --- */
/* Whole units for physical memory; and units that another space holds for it count here. */
int sim_space_take_pages_locked(struct sim_space *space, struct sim_phys *phys, uint64_t n,
				uint64_t *ret_addr);
int sim_space_charge_locked(struct sim_space *space, uint64_t n);
