/* SPDX-License-Identifier: MIT */
/*
 * The statistics are written for the user, at exit and at intervals.
 *
 * Only host-side figures are read, so that a driver that is already torn down does not matter. The
 * output is one write(2) for every 4 KiB; errno is kept.
 */
#pragma once

#include "allocator/api/heap.h"
#include "config/config.h"
#include "shim/bind/cuda_abi.h"

/* Once a process, before any other; `config` must outlive it. */
void ca_dump_start(const struct ca_config *config);
/* Name and UUID of a device that has a context now;
 * asks the driver once a device, if statistics or a trace are wanted. */
void ca_dump_note_device(CUdevice device);
/* Writes if CACHEALLOC_STATS_INTERVAL has passed since the last time. */
void ca_dump_if_due(struct ca_heap *heap);
/* The statistics JSON into `text`, cut at `size` and terminated. *ret_length is that of the whole.
 * 0 or -errno. */
int ca_dump_json(struct ca_heap *heap, char *text, size_t size, size_t *ret_length);
/* At exit. With CACHEALLOC_LOG=debug the records are walked,
 * and a line says whether every invariant holds. */
void ca_dump_final(struct ca_heap *heap);
void ca_dump_after_fork_child(void);
