/* SPDX-License-Identifier: MIT */
/*
 * struct ca_driver over the real CUDA driver. The `context` of its functions is a struct
 * ca_context; `self` is unused.
 */
#pragma once

#include "allocator/driver.h"

const struct ca_driver *ca_driver_table(void);
