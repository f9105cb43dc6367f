/* SPDX-License-Identifier: MIT */
/*
 * struct ca_driver over the real CUDA driver. The `context` of its functions is a struct
 * ca_context; `self` is unused.
 */
#pragma once

#include "allocator/core/driver.h"
#include "shim/bind/libcuda.h"

struct ca_context;

const struct ca_driver *ca_driver_table(void);

/* An operation that no driver is known to treat in another way than work, in a stream by a name of
 * the driver's. The driver's code. */
CUresult ca_stream_operation_unverified(const struct ca_real *real, CUstream stream);

/* The context's events died with it: its spare parts become blank. */
void ca_marks_context_died(struct ca_context *context);
/* In a forked child: locks are remade, parts forgotten. */
void ca_marks_after_fork_child(void);
