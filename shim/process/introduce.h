/* SPDX-License-Identifier: MIT */
/*
 * CACHEALLOC_LOG=info describes the surroundings: which library this is, which driver is behind it,
 * how its functions were found, which devices are used, and where the first memory came from. A
 * user who wonders whether the right library stands before the right driver reads it there;
 * `cachealloc doctor --run` does, too.
 *
 * Nothing is allocated; errno kept.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "shim/bind/cuda_abi.h"

/* Version, pid and the library's own path. Once a process. */
void ca_introduce_library(void);
/* A device is used for the first time; `name` and `uuid` may be empty. */
void ca_introduce_device(CUdevice device, const char *name, const char *uuid);
/* Memory was allocated, by the cache or as the driver's own; the first of a process is told. */
void ca_introduce_allocation(size_t bytes, bool cached);
void ca_introduce_after_fork_child(void);
