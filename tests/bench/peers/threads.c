/* SPDX-License-Identifier: MIT */
/*
 * Threads that have nothing to do with each other, each with a ring of its own. They wait for their
 * round asleep, and begin it together: none starts before all are awake.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "tests/bench/peers/workloads.h"

enum { THREADS_MAX = 16, FEW = 12, FEW_POWERS = 11, MANY = 96, MANY_POWERS = 12 };

struct member {
	struct team *team;
	unsigned number;
	pthread_t thread;
	struct sample start, end;
	unsigned long n_done; /* pairs */
	size_t sequence[SEQUENCE];
	uint64_t blocks[RING];
	size_t bytes[RING];
};

struct team {
	const struct arm *arm;
	unsigned n_sizes, powers;
	bool work;                   /* a launch after each allocation, in the thread's stream */
	pthread_barrier_t barrier;   /* of the members and of turns.c */
	_Atomic unsigned long awake; /* counts on from round to round */
	struct member members[THREADS_MAX];
};

/* By its name callgrind finds it. */
void measured_threads(struct member *member);

__attribute__((noinline)) void
measured_threads(struct member *member)
{
	const struct arm *arm = member->team->arm;

	for (unsigned long i = 0; i < options.pairs; i++, member->n_done++) {
		unsigned oldest = member->n_done % RING;
		size_t bytes = member->sequence[member->n_done % SEQUENCE];

		arm_give(arm, member->blocks[oldest], member->bytes[oldest]);
		member->blocks[oldest] = arm_take(arm, bytes);
		member->bytes[oldest] = bytes;
		if (member->team->work)
			arm_work(arm, member->blocks[oldest]);
	}
}

static void
ring_fill(struct member *member)
{
	const struct team *team = member->team;

	sequence_fill(member->sequence, team->n_sizes, team->powers, 20261125 + member->number);
	for (unsigned i = 0; i < RING; i++) {
		member->bytes[i] = member->sequence[i];
		member->blocks[i] = arm_take(team->arm, member->bytes[i]);
	}
}

/* Each on a processor of its own, as far as there are: else the scheduler may well put two that
 * have just been woken on one. */
static void
pin_member(const struct member *member)
{
	unsigned skipped = 0;
	cpu_set_t allowed;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		api_fail("sched_getaffinity", errno);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed) &&
		    skipped++ == member->number % (unsigned)CPU_COUNT(&allowed))
			pin_to(cpu);
}

/* A thread that waits for long gives way: the other may not be running. */
static void
start_together(struct team *team, unsigned long round)
{
	unsigned spins = 0;

	atomic_fetch_add(&team->awake, 1);
	while (atomic_load(&team->awake) < round * options.threads)
		if (spins++ > 100000)
			sched_yield();
}

static void *
member_main(void *arg)
{
	struct member *member = arg;
	struct team *team = member->team;

	pin_member(member);
	arm_enter(team->arm);
	counters_open();
	ring_fill(member);
	for (unsigned long round = 1;; round++) {
		pthread_barrier_wait(&team->barrier);
		start_together(team, round);
		sample_read(&member->start);
		measured_threads(member);
		sample_read(&member->end);
		pthread_barrier_wait(&team->barrier);
	}
	return NULL;
}

/* Wall time: from the first start to the last end. */
static void
round_threads(void *state, struct sample *ret_sample)
{
	struct team *team = state;
	uint64_t first = UINT64_MAX, last = 0;

	pthread_barrier_wait(&team->barrier);
	pthread_barrier_wait(&team->barrier);
	for (unsigned t = 0; t < options.threads; t++) {
		const struct member *m = &team->members[t];

		sample_add(ret_sample, &m->start, &m->end);
		first = m->start.wall_ns < first ? m->start.wall_ns : first;
		last = m->end.wall_ns > last ? m->end.wall_ns : last;
	}
	ret_sample->wall_ns = last - first;
	ret_sample->operations = options.pairs * options.threads;
}

/* The threads end with the process. */
static void *
prepare(const struct arm *arm, unsigned n_sizes, unsigned powers, bool work)
{
	struct team *team = new_array(1, sizeof(*team));

	if (options.threads > THREADS_MAX)
		api_fail("--threads", (long)options.threads);
	team->arm = arm;
	team->n_sizes = n_sizes;
	team->powers = powers;
	team->work = work;
	pthread_barrier_init(&team->barrier, NULL, (unsigned)options.threads + 1);
	for (unsigned t = 0; t < options.threads; t++) {
		struct member *m = &team->members[t];

		m->team = team;
		m->number = t;
		if (pthread_create(&m->thread, NULL, member_main, m))
			api_fail("pthread_create", errno);
	}
	return team;
}

static void *
prepare_12(const struct arm *arm)
{
	return prepare(arm, FEW, FEW_POWERS, false);
}

static void *
prepare_96(const struct arm *arm)
{
	return prepare(arm, MANY, MANY_POWERS, false);
}

static void *
prepare_12_work(const struct arm *arm)
{
	return prepare(arm, FEW, FEW_POWERS, true);
}

static void *
prepare_96_work(const struct arm *arm)
{
	return prepare(arm, MANY, MANY_POWERS, true);
}

const struct workload workload_threads_12 = { "threads_12", prepare_12, round_threads, NULL };
const struct workload workload_threads_96 = { "threads_96", prepare_96, round_threads, NULL };
const struct workload workload_threads_12_work = { "threads_12_work", prepare_12_work,
						   round_threads, NULL };
const struct workload workload_threads_96_work = { "threads_96_work", prepare_96_work,
						   round_threads, NULL };
