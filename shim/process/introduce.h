/* SPDX-License-Identifier: MIT */
/*
 * CACHEALLOC_LOG=info describes the surroundings: which library this is, which driver is behind it,
 * how its functions were found, and which devices are used. A user who wonders whether the right
 * library stands before the right driver reads it there.
 *
 * Nothing is allocated; errno kept.
 */
#pragma once

#include "shim/bind/cuda_abi.h"

/* Version, pid and the library's own path. Once a process. */
void ca_introduce_library(void);
/* A device is used for the first time; `name` and `uuid` may be empty. */
void ca_introduce_device(CUdevice device, const char *name, const char *uuid);
