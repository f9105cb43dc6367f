/* SPDX-License-Identifier: MIT */
/*
 * Driver calls that are not ours to serve and fail for lack of memory: cached memory is given back,
 * as much as the call may want, and the call is repeated, until it succeeds or nothing of ours is
 * left. cuMemGetInfo counts our cached memory as free, and rightly so only if whoever asks for
 * memory can have it.
 */
#pragma once

#include <stdint.h>

#include "shim/hooks/hook.h"

/* How much some calls take is the driver's secret: give this much back at a time. */
#define CA_ROOM_STEP ((uint64_t)64 << 20)

/* True: memory of the current context's device went back to the driver. errno kept. */
bool ca_make_capacity(const struct ca_real *real, uint64_t bytes);
/* The same for a device, where no context of it need be current. */
bool ca_make_capacity_on(CUdevice device, uint64_t bytes);

/* Evaluates a call of the real driver as often as there is room to be made. */
#define CA_ROOM_RETRIED(call, more_room)                                                           \
	__extension__({                                                                            \
		CUresult ca_room_result_ = CA_INSIDE(call);                                        \
                                                                                                   \
		while (__builtin_expect(ca_room_result_ == CUDA_ERROR_OUT_OF_MEMORY, 0) &&         \
		       (more_room))                                                                \
			ca_room_result_ = CA_INSIDE(call);                                         \
		ca_room_result_;                                                                   \
	})
/* Of unknown size, in the current context. */
#define CA_ROOM(real, call) CA_ROOM_RETRIED(call, ca_make_capacity(real, CA_ROOM_STEP))
