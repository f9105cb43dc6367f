/* SPDX-License-Identifier: MIT */
/*
 * The limit that no allocator can pass: what is live, each block rounded up to 512 bytes, and not a
 * byte more. It has no driver.
 */
#include <stdlib.h>

#include "tests/traces/models/model.h"

enum { GRAIN = 512 };

static void *
create(struct peer_device *device)
{
	return device;
}

static void
destroy(void *self)
{
}

static void *
alloc(void *self, uint64_t bytes, uint32_t stream)
{
	uint64_t rounded = (bytes + GRAIN - 1) / GRAIN * GRAIN, *block;
	struct peer_device *device = self;

	if (rounded > device->capacity - device->reserved_bytes)
		return NULL;
	peer_device_add(device, rounded);
	block = peer_new(sizeof(*block));
	*block = rounded;
	return block;
}

static void
release(void *self, void *block)
{
	peer_device_sub(self, *(uint64_t *)block);
	free(block);
}

const struct peer peer_limit = {
	.name = "limit",
	.create = create,
	.destroy = destroy,
	.alloc = alloc,
	.free = release,
};
