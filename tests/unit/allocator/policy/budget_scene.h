/* SPDX-License-Identifier: MIT */
/* One stream, work that is finished when the test says so, and what was asked of the driver. */
#pragma once

#include "tests/unit/allocator/fixture.h"

#include <pthread.h>

static char a_stream;
#define S ((void *)&a_stream)

/* Work goes to one stream, and is finished when the test says so. */
struct scene {
	struct fixture f;
	struct ca_stream *stream;
};

static inline void
scene_new(struct scene *scene, uint64_t capacity)
{
	memset(scene, 0, sizeof(*scene));
	fixture_defaults(&scene->f);
	scene->f.pretend.capacity = capacity;
}

static inline void
scene_start(struct scene *scene)
{
	fixture_start(&scene->f);
	assert_int_equal(
		ca_stream_open(scene->f.space, CA_STREAM_BLOCKING, S, true, &scene->stream), 0);
	ca_stream_note_thread(scene->stream);
}

/* Under the defaults. */
static inline void
scene_of(struct scene *scene, uint64_t capacity)
{
	scene_new(scene, capacity);
	scene_start(scene);
}

static inline void
launch(struct scene *scene)
{
	ca_submit_begin(scene->stream, NULL);
	ca_model_stream_submit(scene->f.model, S);
	ca_submit_end(scene->stream);
}

static inline void
scene_stop(struct scene *scene)
{
	fixture_check(&scene->f);
	ca_order_last_stream = NULL;
	fixture_stop(&scene->f);
}

static inline uint64_t
held(struct scene *scene)
{
	return fixture_sums(&scene->f).held_bytes;
}

static inline uint64_t
takes(struct scene *scene)
{
	return fixture_sums(&scene->f).calls[CA_MODEL_TAKE];
}

static inline uint64_t
returns(struct scene *scene)
{
	return fixture_sums(&scene->f).calls[CA_MODEL_RETURN];
}

static inline void
once(struct scene *scene, uint64_t bytes)
{
	fixture_free(&scene->f, fixture_alloc(&scene->f, bytes));
}

/* A cache of 100 MiB has to grow. */
static inline void
outgrow(struct scene *scene)
{
	once(scene, 100 * MIB);
	once(scene, 200 * MIB);
}

/* Work that lasts so long. */
static inline void
work(struct scene *scene, uint64_t ns)
{
	ca_submit_begin(scene->stream, NULL);
	assert_int_equal(ca_model_stream_run(scene->f.model, S, ns), 0);
	ca_submit_end(scene->stream);
}

/* The device is looked at, and keeps up. 700 MiB are unused afterwards. */
static inline void
scene_that_keeps_up(struct scene *scene)
{
	unsigned i;

	scene_new(scene, 64 * GIB);
	scene->f.pretend.work_ns = UINT64_MAX; /* nobody sleeps: time passes by the model's clock */
	scene_start(scene);
	once(scene, 500 * MIB);
	for (i = 0; i < 16; i++)
		once(scene, MIB);
	work(scene, 1000 * 1000);
	once(scene, 700 * MIB);
	assert_int_equal(held(scene), 702 * MIB);
}

/* 1000 MiB are unused, 1800 are not, and the budget is 2601. The unused one's address. */
static inline uint64_t
beyond_budget(struct scene *scene)
{
	uint64_t large = fixture_alloc(&scene->f, 1000 * MIB), i;

	for (i = 0; i < 150; i++) /* of 12 MiB each */
		fixture_alloc(&scene->f, 10 * MIB + 1);
	fixture_free(&scene->f, large);
	assert_int_equal(held(scene), 2800 * MIB);
	return large;
}
