/* SPDX-License-Identifier: MIT */
/*
 * Driver calls that are not ours to serve and fail for lack of memory: cached memory is given back,
 * as much as the call may want, and the call is repeated, until it succeeds, nothing of ours is
 * left, or other threads take all that goes back. cuMemGetInfo counts our cached memory as free,
 * and rightly so only if whoever asks for memory can have it.
 */
#pragma once

#include <stdint.h>

#include "allocator/policy/policy.h"
#include "shim/hooks/hook.h"

/* True: memory of the current context's device went back to the driver, for a call that takes so
 * many bytes; 0: how many is the driver's secret. `rounds`: of the call so far. errno kept. */
bool ca_make_capacity(const struct ca_real *real, uint64_t bytes, struct ca_rounds *rounds);
/* The same for a device, where no context of it need be current. */
bool ca_make_capacity_on(CUdevice device, uint64_t bytes, struct ca_rounds *rounds);

/* Evaluates a call of the real driver as often as make(where, bytes, .) finds room for it. */
#define CA_ROOM_RETRIED(call, make, where, bytes)                                                  \
	__extension__({                                                                            \
		CUresult ca_room_result_ = CA_INSIDE(call);                                        \
		struct ca_rounds ca_rounds_ = { 0 };                                               \
                                                                                                   \
		while (__builtin_expect(ca_room_result_ == CUDA_ERROR_OUT_OF_MEMORY, 0) &&         \
		       make(where, bytes, &ca_rounds_))                                            \
			ca_room_result_ = CA_INSIDE(call);                                         \
		ca_room_result_;                                                                   \
	})
/* Of unknown size, in the current context. */
#define CA_ROOM(real, call) CA_ROOM_RETRIED(call, ca_make_capacity, real, 0)
