/* SPDX-License-Identifier: MIT */
/* A stream that has freed memory, under the order tracker: what the tests of exposure and of the
 * guard start from. */
#pragma once

#include "tests/unit/allocator/order/fixture.h"

/* A scene: s has freed memory at `user`, after `work`. */
struct scene {
	struct fixture f;
	struct ca_order *order;
	struct ca_stream *s, *r;
	struct ca_user user;
	uint64_t birth, work;
};

static inline void
scene_free_memory(struct scene *scene)
{
	struct ca_users users;

	scene->birth = ca_order_birth(scene->order);
	scene->work = order_launch(&scene->f, scene->s);
	users = order_free(&scene->f, scene->birth);
	assert_int_equal(users.n, 1);
	assert_false(users.context);
	scene->user = users.user[0];
}

static inline void
scene_expose(struct scene *scene)
{
	assert_true(order_may_expose(scene->order, &scene->user));
	ca_order_expose(scene->order, &scene->user);
}

/* One stream. */
static inline void
scene_of_one(struct scene *scene)
{
	scene->order = order_start(&scene->f);
	scene->s = order_open(&scene->f, 0);
	scene->r = NULL;
	scene_free_memory(scene);
}

/* Two streams, and s freed memory afterwards. */
static inline void
scene_of_two(struct scene *scene)
{
	scene->order = order_start(&scene->f);
	scene->s = order_open(&scene->f, 0);
	scene->r = order_open(&scene->f, 1);
	scene_free_memory(scene);
}

static inline uint64_t
scene_driver_calls(struct fixture *f)
{
	return order_calls(f, CA_MODEL_STREAM_MARK) + order_calls(f, CA_MODEL_STREAM_WAIT) +
	       order_calls(f, CA_MODEL_STREAM_SYNCHRONIZE) + order_calls(f, CA_MODEL_QUERY) +
	       order_calls(f, CA_MODEL_WAIT) + order_calls(f, CA_MODEL_SYNCHRONIZE) +
	       order_calls(f, CA_MODEL_CONTEXT_SYNCHRONIZE) + order_calls(f, CA_MODEL_RECORD);
}
