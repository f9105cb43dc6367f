/* SPDX-License-Identifier: MIT */
/*
 * A peer: another allocator's policy, small enough to check by hand, over the stock driver's model.
 *
 * One thread. Memory is pretend: a block is a handle. Streams are numbers; work on a stream ends at
 * `finish` and not before.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the device has, and what was asked of its driver. */
struct peer_device {
	uint64_t capacity; /* bytes */
	uint64_t reserved_bytes, peak_reserved_bytes;
	uint64_t driver_alloc_calls, driver_free_calls; /* failed ones, too */
	uint64_t bytes_from_driver;                     /* sum of all that was given, as asked */
};

struct peer {
	const char *name;
	/* The state, which knows the device; exits when the host has no memory. */
	void *(*create)(struct peer_device *device);
	void (*destroy)(void *self);
	/* NULL: out of memory. */
	void *(*alloc)(void *self, uint64_t bytes, uint32_t stream);
	/* May be NULL. `stream` uses the block, too. */
	void (*use)(void *self, void *block, uint32_t stream);
	void (*free)(void *self, void *block);
	/* May be NULL. All work submitted so far has finished. */
	void (*finish)(void *self);
};

extern const struct peer peer_torch, peer_cub, peer_cub_g2, peer_stock, peer_stock_reuse,
	peer_limit;
/* The real class of the toolkit's header, if this was built with it (cub_real.cpp). */
extern const struct peer peer_cub_real, peer_cub_g2_real;

/* malloc that exits instead of failing; zeroed. */
void *peer_new(uint64_t bytes);
/* Memory held from the driver changes by so much. */
void peer_device_add(struct peer_device *device, uint64_t bytes);
void peer_device_sub(struct peer_device *device, uint64_t bytes);

#ifdef __cplusplus
}
#endif
