/* SPDX-License-Identifier: MIT */
/* Pretend streams under the order tracker, without blocks: the tests free and expose by hand. */
#pragma once

#include "allocator/core/types.h"
#include "tests/unit/allocator/fixture.h"

#include <errno.h>

/* The handle of pretend stream `n`. */
#define HANDLE(n) ((void *)(uintptr_t)(0x100 + (n)))

static inline struct ca_order *
order_start(struct fixture *f)
{
	fixture_defaults(f);
	fixture_start(f);
	return &f->space->order;
}

/* Memory of that one user. */
static inline bool
order_may_expose(struct ca_order *order, const struct ca_user *user)
{
	struct ca_users users = { .n = 1, .user = { *user } };

	return ca_order_may_expose(order, &users);
}

static inline struct ca_stream_record *
order_record(struct ca_stream *stream)
{
	return (struct ca_stream_record *)stream;
}

static inline void *
order_handle(struct ca_stream *stream)
{
	return order_record(stream)->handle;
}

/* A stream to which this thread has submitted, long ago. */
static inline struct ca_stream *
order_open_kind(struct fixture *f, unsigned n, enum ca_stream_kind kind)
{
	struct ca_stream *stream = NULL;

	assert_int_equal(ca_stream_open(f->space, kind, HANDLE(n), true, &stream), 0);
	ca_stream_note_thread(stream);
	return stream;
}

static inline struct ca_stream *
order_open(struct fixture *f, unsigned n)
{
	return order_open_kind(f, n, CA_STREAM_NONBLOCKING);
}

/* A submission; returns its number on the pretend stream. */
static inline uint64_t
order_launch_touching(struct fixture *f, struct ca_stream *stream, const struct ca_touch *touch)
{
	uint64_t work;

	ca_submit_begin(stream, touch);
	work = ca_model_stream_submit(f->model, order_handle(stream));
	ca_submit_end(stream);
	return work;
}

static inline uint64_t
order_launch(struct fixture *f, struct ca_stream *stream)
{
	return order_launch_touching(f, stream, NULL);
}

static const struct ca_users order_nobody;

static inline struct ca_users
order_free(struct fixture *f, uint64_t birth)
{
	struct ca_users users;

	ca_order_users(&f->space->order, birth, &order_nobody, &users);
	return users;
}

static inline uint64_t
order_behind(struct fixture *f, struct ca_stream *stream, unsigned before)
{
	return ca_model_stream_after(f->model, order_handle(stream), HANDLE(before));
}

/* The program records the event, and waits for it. */
static inline void
order_event_record(struct ca_event *event, struct ca_stream *stream)
{
	uint64_t begun;

	begun = ca_event_record_begin(event, stream);
	ca_event_record_end(event, begun, true);
}

static inline void
order_event_wait(struct ca_event *event, struct ca_stream *stream)
{
	uint64_t seen;

	seen = ca_event_look(event);
	ca_event_waited(event, seen, stream);
}

static inline uint64_t
order_calls(struct fixture *f, enum ca_model_function function)
{
	return fixture_sums(f).calls[function];
}

/* Nothing was recorded and not dropped, and the model has no complaint. */
static inline void
order_stop(struct fixture *f)
{
	ca_model_context_destroy(f->model, (void *)1);
	ca_space_kill(f->space);
	assert_int_equal(fixture_sums(f).marks, 0);
	assert_int_equal(fixture_sums(f).errors, 0);
	fixture_stop(f);
}
