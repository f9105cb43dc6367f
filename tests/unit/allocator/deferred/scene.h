/* SPDX-License-Identifier: MIT */
/* One or two streams and what they do, for tests of freed memory that streams may still use. */
#pragma once

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/core/types.h"
#include "tests/unit/allocator/fixture.h"

enum { S = 0x51, R = 0x52 }; /* handles of streams */

struct scene {
	struct fixture f;
	struct ca_stream *s, *r;
};

static inline struct ca_stream *
open_stream(struct fixture *f, uintptr_t handle)
{
	struct ca_stream *stream;

	assert_int_equal(
		ca_stream_open(f->space, CA_STREAM_NONBLOCKING, (void *)handle, true, &stream), 0);
	return stream;
}

static inline void
scene_start(struct scene *scene, unsigned streams)
{
	fixture_start(&scene->f);
	scene->s = open_stream(&scene->f, S);
	scene->r = streams > 1 ? open_stream(&scene->f, R) : NULL;
}

static inline void
scene_new(struct scene *scene, unsigned streams)
{
	fixture_defaults(&scene->f);
	scene_start(scene, streams);
}

/* Exposing begins when more than `slack_bytes` are unfinished. */
static inline void
scene_with_slack(struct scene *scene, unsigned streams, uint64_t slack_bytes)
{
	fixture_defaults(&scene->f);
	scene->f.config.reuse_slack_bytes = slack_bytes;
	scene_start(scene, streams);
}

enum { MILLISECOND = 1000 * 1000 };

/* The same. Nobody sleeps: work ends after so many milliseconds of pauses. */
static inline void
scene_that_ends(struct scene *scene, unsigned streams, uint64_t slack_bytes, uint64_t milliseconds)
{
	fixture_defaults(&scene->f);
	scene->f.config.reuse_slack_bytes = slack_bytes;
	scene->f.pretend.work_ns = milliseconds * MILLISECOND;
	scene_start(scene, streams);
}

/* Returns the piece of work. */
static inline uint64_t
launch(struct scene *scene, uintptr_t handle)
{
	struct ca_stream *stream = handle == S ? scene->s : scene->r;
	uint64_t work;

	ca_stream_note_thread(stream);
	ca_submit_begin(stream, NULL);
	work = ca_model_stream_submit(scene->f.model, (void *)handle);
	ca_submit_end(stream);
	return work;
}

/* A new block is freed while work of s may use it. Returns its address. */
static inline uint64_t
free_used(struct scene *scene, uint64_t bytes)
{
	uint64_t address = fixture_alloc(&scene->f, bytes);

	launch(scene, S);
	fixture_free(&scene->f, address);
	return address;
}

static inline void
finish(struct scene *scene, uintptr_t handle)
{
	ca_model_stream_finish(scene->f.model, (void *)handle, UINT64_MAX);
}

static inline uint64_t
calls(struct scene *scene)
{
	struct ca_model_sums sums = fixture_sums(&scene->f);

	return sums.calls[CA_MODEL_RECORD] + sums.calls[CA_MODEL_STREAM_MARK] +
	       sums.calls[CA_MODEL_QUERY] + sums.calls[CA_MODEL_WAIT] +
	       sums.calls[CA_MODEL_SYNCHRONIZE] + sums.calls[CA_MODEL_CONTEXT_SYNCHRONIZE] +
	       sums.calls[CA_MODEL_STREAM_WAIT] + sums.calls[CA_MODEL_STREAM_SYNCHRONIZE];
}

struct job {
	struct scene *scene;
	uint64_t address;
	uintptr_t handle;
	bool alloc;
	long tid; /* as the kernel calls the thread that did it */
};

static inline void *
job_run(void *arg)
{
	struct job *job = arg;

	job->tid = syscall(SYS_gettid);
	if (job->handle)
		launch(job->scene, job->handle);
	if (job->alloc)
		assert_int_equal(ca_alloc(job->scene->f.space, 20 * MIB, &job->address), 0);
	else if (job->address)
		assert_int_equal(ca_free(job->scene->f.heap, job->address), 0);
	return NULL;
}

static inline uint64_t
elsewhere(struct scene *scene, struct job job)
{
	pthread_t thread;

	job.scene = scene;
	assert_int_equal(pthread_create(&thread, NULL, job_run, &job), 0);
	pthread_join(thread, NULL);
	/* a join returns a little before the kernel forgets the thread, whose magazine the next one
	 * gets only then */
	while (!syscall(SYS_tgkill, getpid(), job.tid, 0))
		nanosleep(&(struct timespec){ .tv_nsec = 100 * 1000 }, NULL);
	fixture_check(&scene->f);
	return job.address;
}
