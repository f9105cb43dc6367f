/* SPDX-License-Identifier: MIT */
/*
 * Why a request could not be served: the figures of an out-of-memory report, taken when the answer
 * is known.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "allocator/core/order_types.h"
#include "allocator/policy/policy.h"

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
	bool known;                    /* the driver told the next two */
	uint64_t total;                /* capacity */
	uint64_t free;                 /* left to the driver */
	uint64_t allowed;              /* by the smallest limit that is set; 0: none */
	enum ca_limit_kind limit_kind; /* that limit's */
	uint64_t requested;            /* by the call */
	uint64_t live;                 /* allocated by the program, after rounding */
	uint64_t reserved;             /* held from the driver */
	uint64_t async_live;           /* of stream-ordered memory (async:pool), not in `live` */
	uint64_t async_reserved;       /* nor in `reserved` */
	uint64_t largest;              /* free block */
	uint64_t clean;                /* free, and finished by all streams */
	uint64_t waiting;              /* freed, and not known to be finished */
	/* those that most of it waits for, largest first; in the request's context */
	struct ca_report_stream streams[CA_REPORT_STREAMS];
	unsigned n_streams;
	struct ca_tried tried;
};

/* The ordinal of its device. */
unsigned ca_report_device(const struct ca_space *space);
/* After ca_alloc answered out of memory in the calling thread. Asks the driver. */
void ca_report_fill(struct ca_space *space, uint64_t requested, struct ca_report *ret_report);
