/* SPDX-License-Identifier: MIT */
/*
 * Why a request could not be served: the figures of an out-of-memory report, taken when the answer
 * is known.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "allocator/api/heap.h"
#include "allocator/order/order.h"

/* What the ladder did for the calling thread's last request (allocator/policy/oom.c). */
struct ca_tried {
	unsigned searches;       /* of what is free */
	unsigned asked;          /* times the driver was asked again */
	unsigned given_segments; /* that went back to the driver */
	uint64_t given_bytes;
	unsigned waits; /* of the host, for freed memory */
	bool others;    /* memory that other threads had freed was looked at until patience ended */
	bool capture;   /* a stream captures: new memory only */
	bool anything_goes; /* every hole will do: nothing else is left */
	bool refused_by_us; /* by a limit that the user set: the driver was not asked */
};

/* Freed memory that a stream still uses. */
struct ca_report_stream {
	void *handle; /* as given to ca_stream_open */
	enum ca_stream_kind kind;
	uint64_t bytes;
};

enum { CA_REPORT_STREAMS = 4 };

/* Sizes in bytes; of the device, unless said otherwise. */
struct ca_report {
	unsigned device;
	bool known;         /* the driver told the next two */
	uint64_t total;     /* capacity */
	uint64_t free;      /* what the driver has left */
	uint64_t allowed;   /* by the smaller limit that the user set; 0: none */
	bool by_limit;      /* that is CACHEALLOC_LIMIT */
	uint64_t requested; /* by the call */
	uint64_t live;      /* allocated by the program, after rounding */
	uint64_t reserved;  /* held from the driver */
	uint64_t largest;   /* free block */
	uint64_t clean;     /* free, and finished by all streams */
	uint64_t waiting;   /* freed, and not known to be finished */
	/* those that most of it waits for, largest first; in the request's context */
	struct ca_report_stream streams[CA_REPORT_STREAMS];
	unsigned n_streams;
	struct ca_tried tried;
};

extern __thread struct ca_tried ca_ladder_tried __attribute__((tls_model("initial-exec")));

/* The ordinal of its device. */
unsigned ca_report_device(const struct ca_space *space);
/* After ca_alloc answered out of memory in the calling thread. Asks the driver. */
void ca_report_fill(struct ca_space *space, uint64_t requested, struct ca_report *ret_report);
