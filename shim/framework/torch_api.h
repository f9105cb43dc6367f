/* SPDX-License-Identifier: MIT */
/*
 * The functions for PyTorch's CUDAPluggableAllocator (shim/process/cachealloc.h), and what the
 * library does for them.
 */
#pragma once

void ca_torch_after_fork_child(void);
