/* SPDX-License-Identifier: MIT */
/*
 * The stock driver (cuMemAlloc), the one model of it: what every peer takes its memory from, and a
 * peer of its own.
 *
 * Capacity is used in pages of 2 MiB. More than 1 MiB: whole pages. Up to 1 MiB: cut in steps of
 * 512 bytes from pages ("chunks") that only such requests share; a chunk goes back when nothing in
 * it is live. Address space never fragments. Whether the driver hands out freed bytes of a live
 * chunk again is not documented: the model does not, unless `reuse` is set. So without reuse it is
 * pessimistic for small blocks, and always optimistic for large ones.
 */
#pragma once

#include <stdbool.h>

#include "tests/traces/models/model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct stock;

/* One allocation; the driver's until stock_free. */
struct stock_memory {
	uint64_t address; /* never given twice; larger than all before it, but in a reused hole */
	uint64_t bytes;   /* as asked */
	struct stock_chunk *chunk; /* NULL: whole pages */
};

struct stock *stock_create(struct peer_device *device, bool reuse);
void stock_destroy(struct stock *stock);
/* NULL: out of memory. */
struct stock_memory *stock_alloc(struct stock *stock, uint64_t bytes);
void stock_free(struct stock *stock, struct stock_memory *memory);

#ifdef __cplusplus
}
#endif
