/* SPDX-License-Identifier: MIT */
/*
 * One range of addresses for all streams (allocator/range/range.h), as it would be placed: what is
 * mapped is reserved, each handle that is mapped is an allocation of the driver's, each that is
 * unmapped a free.
 *
 * Without a lag work has ended when anybody asks. With one, each allocation is followed by so much
 * work on its stream, and each stream does its pieces one after the other; the host is early of it,
 * and what passes for time is what mapping takes, and the end of a phase, which waits for all.
 * Beyond 64 streams a new one takes the place of the one that was used longest ago, behind a wait
 * for it.
 */
#include <stdlib.h>

#include "allocator/fake/cost.h"
#include "allocator/range/range.h"
#include "tests/traces/models/model.h"

enum {
	LARGE_FROM_MIB = 512,
	SLACK_PERCENT = 4,
};

struct model {
	struct peer_device *device;
	struct ca_arena arena;
	struct ca_range *range;
	uint64_t now_us, end_us[CA_RANGE_USERS]; /* the host's, and when each user is idle */
	uint32_t stream[CA_RANGE_USERS];         /* of each user */
	uint64_t used[CA_RANGE_USERS];           /* 0: no stream; the last use, counted in `uses` */
	uint64_t uses;
};

struct block {
	uint64_t address;
	uint32_t stream;
};

static bool
is_finished(void *arg, unsigned user, uint64_t stamp)
{
	const struct model *model = arg;

	return !model->device->lag_us || stamp <= model->now_us;
}

static void
step(void *arg, const struct ca_range_step *step)
{
	struct model *model = arg;
	struct peer_device *device = model->device;
	bool maps = step->kind == CA_RANGE_CREATE || step->kind == CA_RANGE_MOVE;
	unsigned cost = maps ? CA_RANGE_MAP_US : CA_RANGE_UNMAP_US;

	if (step->kind == CA_RANGE_GUARD) {
		if (model->end_us[step->user] < step->stamp)
			model->end_us[step->user] = step->stamp;
		return;
	}
	*(maps ? &device->driver_alloc_calls : &device->driver_free_calls) += 1;
	if (step->kind == CA_RANGE_CREATE)
		device->bytes_from_driver += step->bytes;
	device->mapping_us += cost;
	model->now_us += cost;
}

static void *
create(struct peer_device *device)
{
	struct model *model = peer_new(sizeof(*model));
	struct ca_range_config config = { .capacity = device->capacity,
					  .large_from = (uint64_t)LARGE_FROM_MIB << 20,
					  .guards = true,
					  .slack_percent = SLACK_PERCENT,
					  .arg = model,
					  .is_finished = is_finished,
					  .step = step };

	model->device = device;
	model->range = ca_range_new(&model->arena, &config);
	if (!model->range)
		abort();
	return model;
}

static void
destroy(void *self)
{
	struct model *model = self;

	ca_arena_destroy(&model->arena);
	free(model);
}

static void
note(struct model *model)
{
	struct ca_range_sums sums;

	ca_range_look(model->range, &sums);
	model->device->reserved_bytes = sums.mapped_bytes;
	model->device->peak_reserved_bytes = sums.peak_mapped_bytes;
}

static unsigned
user_find(const struct model *model, uint32_t stream)
{
	for (unsigned i = 0; i < CA_RANGE_USERS; i++)
		if (model->used[i] && model->stream[i] == stream)
			return i;
	return CA_RANGE_NOBODY;
}

static unsigned
user_get(struct model *model, uint32_t stream)
{
	unsigned user = user_find(model, stream);

	if (user == CA_RANGE_NOBODY) {
		user = 0;
		for (unsigned i = 1; i < CA_RANGE_USERS; i++)
			if (model->used[i] < model->used[user])
				user = i;
		model->stream[user] = stream;
		if (model->end_us[user] > model->now_us)
			model->now_us = model->end_us[user];
	}
	model->used[user] = ++model->uses;
	return user;
}

static void *
alloc(void *self, uint64_t bytes, uint32_t stream)
{
	struct model *model = self;
	struct block *block = peer_new(sizeof(*block));
	unsigned user = user_get(model, stream);
	int r;

	block->stream = stream;
	r = ca_range_alloc(model->range, bytes, user, &block->address);
	if (r < 0)
		abort();
	note(model);
	if (!r) {
		uint64_t *end = &model->end_us[user];

		*end = (*end > model->now_us ? *end : model->now_us) + model->device->lag_us;
		return block;
	}
	free(block);
	return NULL;
}

static void
release(void *self, void *block)
{
	struct model *model = self;
	const struct block *freed = block;

	unsigned user = user_find(model, freed->stream);

	if (ca_range_free(model->range, freed->address, user,
			  user < CA_RANGE_USERS ? model->end_us[user] : 0))
		abort();
	free(block);
}

static void
finish(void *self)
{
	struct model *model = self;

	for (unsigned i = 0; i < CA_RANGE_USERS; i++)
		if (model->end_us[i] > model->now_us)
			model->now_us = model->end_us[i];
	ca_range_poll(model->range);
}

const struct peer peer_range = {
	.name = "range",
	.create = create,
	.destroy = destroy,
	.alloc = alloc,
	.free = release,
	.finish = finish,
};
