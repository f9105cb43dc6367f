/* SPDX-License-Identifier: MIT */
/*
 * The ring. `head` counts places taken, `tail` records written to the file; a place is filled when
 * the first word of its record, stored last, is not 0. So a drain writes from `tail` on what is
 * filled without a gap, zeroes the first words, and moves `tail`: the file is a prefix of the
 * places at any time.
 *
 * A thread that finds its place not yet drained from the round before drains itself, or waits for
 * who does; after STALL_NS it gives up for the whole process, because a program must not hang on
 * the file of its trace.
 */
#include "allocator/trace/trace_clock.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocator/trace/trace_file.h"
#include "config/log.h"

#define STALL_NS ((uint64_t)2 * 1000 * 1000 * 1000)
/* Less than 2^31: the next record is that much later at most. */
#define GAP_NS ((uint64_t)1 << 30)

enum { WORDS = sizeof(struct ca_trace_record) / 8, PAUSE_NS = 20 * 1000, CLOSE_PAUSES = 500 };

struct cell {
	_Atomic uint64_t word[WORDS];
};

/* Each writer has a line of the cache for itself.
 * NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding) */
struct ca_tracer {
	struct ca_tracer_words words; /* first */
	_Alignas(64) _Atomic uint64_t head;
	_Atomic uint64_t time_ns; /* of a record whose place is taken already */
	/* written by who drains */
	_Alignas(64) _Atomic uint64_t tail;
	_Atomic uint64_t drained_ns;
	struct ca_trace_clock clock; /* the one who drains learns */
	struct ca_trace_file file;   /* while `draining` is held */
	atomic_flag draining;
	_Alignas(64) struct cell ring[CA_TRACE_RING];
};

int
ca_tracer_open(const struct ca_trace_start *start, struct ca_tracer **ret_tracer)
{
	int saved = errno;
	struct ca_tracer *tracer = mmap(NULL, sizeof(*tracer), PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

	errno = saved;
	if (tracer == MAP_FAILED)
		return -ENOMEM;
	atomic_flag_clear(&tracer->draining);
	ca_trace_clock_init(&tracer->clock, &start->clock, start->counter);
	r = ca_trace_file_create(start, &tracer->file);
	if (r) {
		munmap(tracer, sizeof(*tracer));
		return r;
	}
	atomic_init(&tracer->drained_ns, ca_trace_clock_now(&tracer->clock));
	atomic_init(&tracer->time_ns, ca_trace_clock_now(&tracer->clock)); /* about the header's */
	*ret_tracer = tracer;
	return 0;
}

void
ca_tracer_after_fork_child(struct ca_tracer *tracer)
{
	atomic_store(&tracer->words.stopped, true);
	ca_trace_file_close(&tracer->file);
	/* not unmapped: the fork may have been a signal handler's, on top of an event */
}

const char *
ca_tracer_path(const struct ca_tracer *tracer)
{
	return tracer->file.path;
}

static void
stop(struct ca_tracer *tracer, int r)
{
	if (atomic_exchange(&tracer->words.stopped, true))
		return;
	if (r == -EBADF)
		ca_warn("CACHEALLOC_TRACE: the program closed the file '%s', and it is no longer "
			"there: the trace ends",
			tracer->file.path);
	else if (r && r != -ECHILD)
		ca_warn("CACHEALLOC_TRACE: the file '%s' is incomplete: %s (errno %d): the trace "
			"ends",
			tracer->file.path, ca_log_error_name(-r), -r);
}

/* ---- from the ring to the file */

/* Filled places from `tail` on that lie behind each other in memory. */
static unsigned
filled(struct ca_tracer *tracer, uint64_t tail)
{
	unsigned first = (unsigned)(tail % CA_TRACE_RING), n = 0;

	while (first + n < CA_TRACE_RING &&
	       atomic_load_explicit(&tracer->ring[first + n].word[0], memory_order_acquire))
		n++;
	return n;
}

static int
drain_part(struct ca_tracer *tracer, unsigned *ret_n)
{
	uint64_t tail = atomic_load_explicit(&tracer->tail, memory_order_relaxed);
	struct cell *first = &tracer->ring[tail % CA_TRACE_RING];
	unsigned n = filled(tracer, tail), i;
	int r;

	*ret_n = n;
	if (!n)
		return 0;
	r = ca_trace_file_write(&tracer->file, first, n * sizeof(*first));
	for (i = 0; i < n; i++)
		atomic_store_explicit(&first[i].word[0], 0, memory_order_relaxed);
	atomic_store_explicit(&tracer->tail, tail + n, memory_order_release);
	return r;
}

void
ca_tracer_drain(struct ca_tracer *tracer)
{
	unsigned n = 1, pieces = 0;
	int r = 0;

	if (ca_tracer_is_stopped(tracer) || atomic_flag_test_and_set(&tracer->draining))
		return;
	atomic_store_explicit(&tracer->words.due, false, memory_order_relaxed);
	ca_trace_clock_update(&tracer->clock);
	atomic_store_explicit(&tracer->drained_ns, ca_trace_clock_now(&tracer->clock),
			      memory_order_relaxed);
	/* around the ring's end; not for as long as others add something */
	while (n && !r && pieces++ < 2)
		r = drain_part(tracer, &n);
	if (r)
		stop(tracer, r);
	atomic_flag_clear(&tracer->draining);
}

static void
pause_short(void)
{
	static const struct timespec pause = { .tv_nsec = PAUSE_NS };
	int saved = errno;

	/* not nanosleep(): that is a cancellation point */
	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
	errno = saved;
}

void
ca_tracer_close(struct ca_tracer *tracer)
{
	static const struct ca_trace_record end = { .kind = CA_TRACE_END,
						    .device = CA_TRACE_NO_DEVICE,
						    .stream = CA_TRACE_NO_STREAM };
	unsigned pauses = 0;

	ca_tracer_add(tracer, &end, true);
	/* a thread may be in the middle of a record, or of a drain */
	for (;;) {
		ca_tracer_drain(tracer);
		if (ca_tracer_is_stopped(tracer) ||
		    atomic_load(&tracer->tail) == atomic_load(&tracer->head) ||
		    pauses++ == CLOSE_PAUSES)
			break;
		pause_short();
	}
	atomic_store(&tracer->words.stopped, true);
	if (!atomic_flag_test_and_set(&tracer->draining))
		ca_trace_file_close(&tracer->file); /* the flag stays: nobody writes any more */
}

/* ---- into the ring */

static __attribute__((noinline, cold)) bool
wait_for_space(struct ca_tracer *tracer, uint64_t place)
{
	uint64_t since = ca_trace_clock_now(&tracer->clock);

	for (;;) {
		ca_tracer_drain(tracer);
		if (ca_tracer_is_stopped(tracer))
			return false;
		if (place - atomic_load_explicit(&tracer->tail, memory_order_acquire) <
		    CA_TRACE_RING)
			return true;
		if (ca_trace_clock_now(&tracer->clock) - since > STALL_NS) {
			stop(tracer, -ETIMEDOUT);
			return false;
		}
		pause_short();
	}
}

/* Fills the next place. Returns its number. */
static inline uint64_t
put(struct ca_tracer *tracer, const struct ca_trace_record *record, uint64_t now)
{
	uint64_t place = atomic_fetch_add_explicit(&tracer->head, 1, memory_order_relaxed);
	struct cell *cell = &tracer->ring[place % CA_TRACE_RING];
	uint64_t word = record->kind | (uint64_t)record->device << 8 |
			(uint64_t)record->stream << 16 | now << 32;

	if (__builtin_expect(place - atomic_load_explicit(&tracer->tail, memory_order_acquire) >=
				     CA_TRACE_RING,
			     0) &&
	    !wait_for_space(tracer, place))
		return place;
	atomic_store_explicit(&cell->word[1], record->a, memory_order_relaxed);
	atomic_store_explicit(&cell->word[2], record->b, memory_order_relaxed);
	atomic_store_explicit(&cell->word[0], word, memory_order_release);
	return place;
}

static __attribute__((noinline, cold)) void
put_time(struct ca_tracer *tracer, uint64_t now)
{
	struct ca_trace_record record = { .kind = CA_TRACE_TIME,
					  .device = CA_TRACE_NO_DEVICE,
					  .stream = CA_TRACE_NO_STREAM,
					  .a = now };

	put(tracer, &record, now);
}

void
ca_tracer_add(struct ca_tracer *tracer, const struct ca_trace_record *record, bool urgent)
{
	uint64_t now, place;

	if (ca_tracer_is_stopped(tracer))
		return;
	now = ca_trace_clock_now(&tracer->clock);
	/* the word is written behind a place taken: a reader of it takes a later one */
	if (__builtin_expect(now - atomic_load_explicit(&tracer->time_ns, memory_order_acquire) >
				     GAP_NS,
			     0) &&
	    now > atomic_load_explicit(&tracer->time_ns, memory_order_relaxed))
		put_time(tracer, now);
	place = put(tracer, record, now);
	atomic_store_explicit(&tracer->time_ns, now, memory_order_release);
	if (urgent ||
	    place - atomic_load_explicit(&tracer->tail, memory_order_relaxed) >= CA_TRACE_DRAIN ||
	    now - atomic_load_explicit(&tracer->drained_ns, memory_order_relaxed) >=
		    CA_TRACE_DRAIN_NS)
		atomic_store_explicit(&tracer->words.due, true, memory_order_relaxed);
}
