/* SPDX-License-Identifier: MIT */
/*
 * CACHEALLOC_SNAPSHOT: all segments and blocks at one moment, into files, when
 * CACHEALLOC_SNAPSHOT_ON says.
 *
 * The state is copied under the heap's lock (allocator/api/heap_snapshot.h) and written without a
 * lock: a file system that is full or slow holds up the one thread that writes. A file that could
 * not be written whole is removed. errno is kept.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "allocator/api/heap.h"
#include "config/config.h"
#include "config/path.h"

/* Once a process, before its record is published; `config` must outlive it. Takes the signals that
 * are wanted; a handler of the program's that was there is called by ours. */
void ca_snapshots_start(const struct ca_config *config);
/* ca_snapshots_tick has something to do. */
bool ca_snapshots_tick_wanted(const struct ca_config *config);
/* After a hooked call: writes if the signal came, and takes the state if most was reserved. */
void ca_snapshots_tick(struct ca_heap *heap);
/* A request for `bytes` was refused. True: the state is in the file ret_path (CA_PATH_MAX bytes).
 */
bool ca_snapshots_oom(struct ca_heap *heap, uint64_t bytes, char *ret_path);
/* At exit. */
void ca_snapshots_final(struct ca_heap *heap);
void ca_snapshots_after_fork_child(void);
