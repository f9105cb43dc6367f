/* SPDX-License-Identifier: MIT */
/*
 * The driver table that returns at once, in two halves: driver.c has the entry points with a body
 * of their own, driver_names.c every other name of the driver, and the look-up by name.
 */
#pragma once

#include "shim/bind/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

enum { DRIVER_VERSION = 13000 };

/* The entry point that answers for a base name: the newest not above `version`; the legacy one
 * where there is no other. NULL: none. */
void *driver_find(const char *base, int version, cuuint64_t flags);
