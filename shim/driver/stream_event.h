/* SPDX-License-Identifier: MIT */
/*
 * Marks on single streams (contract: allocator/core/driver.h). `stream` is as ca_stream_encode made
 * it, `context` a struct ca_context.
 *
 * A mark is one of the context's pooled events. An event that was dropped may be recorded anew at
 * once: a wait that was inserted before keeps waiting for the old record (cuda.h, cuEventRecord).
 */
#pragma once

#include "allocator/core/driver.h"

int ca_stream_mark(void *self, void *context, void *stream, ca_mark *ret_mark);
int ca_stream_wait(void *self, void *context, void *stream, ca_mark mark);
int ca_stream_operation(void *self, void *context, void *stream);
int ca_stream_query(void *self, void *context, void *stream);
int ca_stream_synchronize(void *self, void *context, void *stream);
