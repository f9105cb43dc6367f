/* SPDX-License-Identifier: MIT */
/* How much may be held: limits and automatic trims. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ca_config;
struct ca_space;

/* ---- memory_limit.c: CACHEALLOC_LIMIT, per_process_memory_fraction */

/* True if a limit, or what is relative to one, is set. */
bool ca_limit_is_set(const struct ca_config *config);
/* Asks the driver how large the device is, where that matters and is not known. Leaves and retakes
 * the lock. */
void ca_limit_learn_locked(struct ca_space *space);
/* `share` billionths of `total`. */
uint64_t ca_limit_share(uint64_t total, uint64_t share);
/* What the segments of a device may hold, or UINT64_MAX. */
uint64_t ca_limit_of_segments(const struct ca_space *space);
/* How much must go back before `bytes` more are allowed, for a segment of ours or another call. */
uint64_t ca_limit_shortage_locked(const struct ca_space *space, uint64_t bytes, bool segment);
/* The space is dead: what was charged there is gone. */
void ca_limit_forget_locked(struct ca_space *space);

/* ---- trim.c: automatic trims */

/* No work of the space's device is unfinished, as far as is known. */
bool ca_device_is_idle_locked(const struct ca_space *space);

/* Before `bytes` more are asked of the driver: garbage_collection_threshold. Leaves and retakes the
 * lock. */
void ca_tend_growth_locked(struct ca_space *space, uint64_t bytes);
