/* SPDX-License-Identifier: MIT */
/*
 * struct ca_driver over the real CUDA driver. The `context` of its functions is a struct
 * ca_context; `self` is unused.
 */
#pragma once

#include "allocator/core/driver.h"

struct ca_context;

const struct ca_driver *ca_driver_table(void);

/* The context's events died with it: its spare parts become blank. */
void ca_marks_context_died(struct ca_context *context);
/* In a forked child: locks are remade, parts forgotten. */
void ca_marks_after_fork_child(void);
