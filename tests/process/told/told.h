/* SPDX-License-Identifier: MIT */
/* Programs with stream-ordered memory, right natively; `told_cases CASE`
 * (tests/process/order/order.h). TOLD_WARM=1: memory of the sizes that the cases use was taken and
 * given back before they begin. */
#pragma once

#include "tests/process/order/order.h"

enum {
	SMALL = 4 * WORDS, /* bytes: just what the kernels write */
	PAIRS = 1000,
	ROUNDS = 6,
};

extern const struct order_case told_order[];
extern const struct order_case told_roads[];
extern const struct order_case told_pools[];
extern const struct order_case told_random[];
extern const struct order_case told_driver_order[];
extern const struct order_case told_misuse[];
extern const struct order_case told_legacy[];
extern const struct order_case told_attack[];
extern const struct order_case told_edges[];
extern const struct order_case told_hands[];
extern const struct order_case told_scarce[];

/* Prints the code that a call gave: the line to compare with the native run. */
#define SHOW(call) printf("%s = %d\n", #call, (int)(call))

/* order_start, and warm. */
CUcontext told_start(void);
CUdeviceptr told_take(size_t bytes, CUstream stream);
void told_give(CUdeviceptr memory, CUstream stream);
/* `after` comes after what `before` was given so far. */
void told_join(CUstream before, CUstream after);
CUmemoryPool told_default(void);
cuuint64_t told_attribute(CUmemoryPool pool, CUmemPool_attribute which);
void told_set(CUmemoryPool pool, CUmemPool_attribute which, cuuint64_t value);
