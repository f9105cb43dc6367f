/* SPDX-License-Identifier: MIT */
/*
 * Order marks of the real driver (contract: allocator/core/driver.h), made of events recorded on
 * contexts.
 *
 * A mark is a chain of parts, one event for each context alive when it was recorded, because work
 * submitted in any of them may touch the memory (copies between contexts, peer access). It is done
 * when all its parts are; a part whose context died is done, since a destroyed context runs
 * nothing.
 */
#pragma once

#include <stdbool.h>

#include "allocator/core/driver.h"
#include "shim/bind/cuda_abi.h"
#include "shim/bind/libcuda.h"

struct ca_context;

/* The driver's part of a mark. Zeroed when taken, but for event and has_event. */
struct ca_mark_part {
	CUevent event;
	struct ca_context *context;
	struct ca_context *owner;  /* whose memory the mark is for */
	struct ca_mark_part *next; /* in its mark, or in the spare list */
	bool has_event;            /* `event` is one of `context` */
	bool recorded;             /* false: the context was closed when the mark was recorded */
	_Atomic bool done;         /* the event was seen completed since it was recorded */
};

/* The first part of a mark; NULL: it has none. */
struct ca_mark_part *ca_mark_part_of(ca_mark mark);
/* A part of `context`, with an event or, where there is no spare one, without. NULL: no memory. */
struct ca_mark_part *ca_mark_part_take(struct ca_context *context, struct ca_context *owner);
void ca_mark_part_retire(struct ca_mark_part *part);
/* The part has an event afterwards. 0 or the driver's code. The context is entered. */
CUresult ca_mark_part_create_event(const struct ca_real *real, struct ca_mark_part *part);

/* A mark on one stream (shim/driver/stream_event.h) is a chain of one part, told by this bit. */
enum { CA_MARK_STREAM_BIT = 2 };

int ca_mark_record(void *self, void *space_context, ca_mark *ret_mark);
bool ca_has_marks(void *self);
int ca_mark_query(void *self, ca_mark mark);
int ca_mark_query_own(void *self, ca_mark mark);
int ca_mark_wait(void *self, ca_mark mark);
void ca_mark_drop(void *self, ca_mark mark);
