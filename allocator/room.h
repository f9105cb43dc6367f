/* SPDX-License-Identifier: MIT */
/* How much may be held: what a limit, automatic trims and another cache leave room for. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ca_config;
struct ca_space;

/* ---- limit.c: CACHEALLOC_LIMIT, per_process_memory_fraction */

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

/* ---- tend.c: automatic trims */

/* No work of the space's device is unfinished, as far as is known. */
bool ca_device_is_idle_locked(const struct ca_space *space);

/* Before `bytes` more are asked of the driver: garbage_collection_threshold. Leaves and retakes the
 * lock. */
void ca_tend_growth_locked(struct ca_space *space, uint64_t bytes);

/* ---- room.c: next to another cache (ca_heap_share); without one these do nothing */

/*
 * Before `bytes` more are taken: gives finished cached memory of the device back, as much as they
 * would be more than was ever held. The driver's own free would have waited for what is not
 * finished: so does this, but not for ever. Not while anything captures.
 */
void ca_room_make_locked(struct ca_space *space, uint64_t bytes);
/* ca_pool_segment_bytes, or only what the request needs if that would be more than was ever held.
 */
uint64_t ca_room_segment_bytes(const struct ca_space *space, uint64_t bytes);
