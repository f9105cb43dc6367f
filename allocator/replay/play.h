/* SPDX-License-Identifier: MIT */
/*
 * Playing a trace: its allocations and frees go to the allocator (allocator/api/heap.h) over
 * pretend memory (allocator/fake/fake.h), in the order of the trace, from one thread.
 *
 * A block's one user is the stream it was recorded with: a piece of work is submitted to it behind
 * the allocation and another before the free. Work ends CA_REPLAY_WORK_NS of trace time after it
 * was submitted, or at the next phase, whichever comes first; the allocator finds out as it would
 * from the driver. Blocks that were live at the start are allocated first, and their work is then
 * finished.
 *
 * Where the device lags behind (`lag_ns`), the work behind each allocation lasts so long, each
 * stream does its pieces one after the other, and nothing ends but by the time for which the host
 * waits or pauses, and by the trace's own times: as under a program that keeps the device busy.
 *
 * A trace may tell what was submitted and when the recording allocator saw it finished (`told` of
 * the input): then that is all the work there is, it ends when it was seen finished or waited for,
 * and a call in which the allocator asked the device begins when it asked first.
 *
 * Nothing depends on the time of day or on the machine: the same trace, configuration and memory
 * give the same result. Only `times` of the result, if asked for, are measured.
 */
#pragma once

#include "allocator/api/heap.h"
#include "allocator/fake/fake.h"
#include "allocator/replay/input.h"
#include "allocator/replay/times.h"

#define CA_REPLAY_WORK_NS ((uint64_t)1000000)

/* A lag: as the input tells; where it does not, the device keeps up. */
#define CA_REPLAY_AS_TOLD UINT64_MAX

/* Memory is taken from the device in pieces of this size. */
#define CA_REPLAY_GRANULE ((uint64_t)2 << 20)
/* More than any device has. */
#define CA_REPLAY_UNLIMITED ((uint64_t)1 << 50)

/* Told of what a replay does, as it happens. */
struct ca_replay_observer {
	void *arg;
	/* before the event `number` of the input is played */
	void (*begin)(void *arg, size_t number);
	/* in the middle of it */
	ca_model_segment_observer *segment;
	/* after it. ALLOC, LIVE: where the block lies, and how large it is; 0: out of memory.
	 * `waiting_bytes` were freed, and are not known to be finished. */
	void (*end)(void *arg, size_t number, uint64_t address, uint64_t bytes,
		    uint64_t waiting_bytes);
};

struct ca_replay_setting {
	const struct ca_config *config;
	uint64_t memory_bytes; /* of each device */
	bool time;
	bool to_rejected; /* end with the device's rejected one, played as an allocation */
	uint64_t lag_ns;  /* of work behind each allocation; 0: the device keeps up; or AS_TOLD */
	/* NULL, or told where each allocation went: its number in the input, from 0 */
	void (*placed)(void *arg, size_t event, uint64_t address);
	void *placed_arg;
	const struct ca_replay_observer *observer; /* or NULL */
};

/* Of memory that came by one road. */
struct ca_replay_road_result {
	uint64_t hits, misses, frees;
	uint64_t driver_allocs, driver_frees; /* segments asked for, and given back */
	uint64_t live_bytes, peak_live_bytes; /* requested */
};

/* Where the memory ran out; the replay ended there. */
struct ca_replay_oom {
	uint64_t event; /* number in the trace, from 1; blocks live at the start come first */
	uint64_t where; /* as of struct ca_replay_event */
	uint64_t request_bytes;
	uint64_t live_bytes; /* requested, at that moment */
	uint64_t reserved_bytes;
};

struct ca_replay_result {
	unsigned device;
	bool out_of_memory;
	struct ca_replay_oom oom;                      /* if out_of_memory */
	struct ca_stats stats;                         /* of the allocator, at the end */
	uint64_t at_start, allocations, frees, phases; /* events played */
	uint64_t streams;                              /* different ones */
	uint64_t live_bytes, peak_live_bytes;          /* requested */
	struct ca_replay_road_result road[CA_REPLAY_ROADS];
	uint64_t peak_reserved_bytes; /* in granules, as the device counts */
	uint64_t bytes_from_driver;   /* the sizes of all segments ever taken, as asked for */
	uint64_t hits, misses; /* allocations without and with asking the driver for memory */
	/* once the first phase is over: the cost of every step of a program but the first */
	uint64_t later_driver_allocs, later_driver_frees;
	struct ca_replay_times times;
};

/*
 * Plays the events of one device. 0, out of memory included; -EINVAL, -ENOMEM with *error.
 */
int ca_replay_run(const struct ca_replay_input *input, unsigned device,
		  const struct ca_replay_setting *setting, struct ca_replay_result *ret_result,
		  struct ca_replay_error *error);
/*
 * The smallest memory, in granules, with which the trace completes: between `result` (of a replay
 * that did) and what is live at the same time. By bisection, which takes for granted that more
 * memory is never worse; that is nearly so.
 */
int ca_replay_find_capacity(const struct ca_replay_input *input,
			    const struct ca_replay_setting *setting,
			    const struct ca_replay_result *result, uint64_t *ret_bytes,
			    struct ca_replay_error *error);
