/* SPDX-License-Identifier: MIT */
/*
 * A model of a library that takes workspaces from the runtime directly, and gives them back at
 * once, like many beside a framework (libfakecudnn.so; the same source, under other names, stands
 * for frameworks whose library calls the driver or a runtime of its own).
 */
#pragma once

#include <stddef.h>

/* Built for the runtime, or with -DTHROUGH_DRIVER for the driver's cuMemAlloc. NULL: no memory. */
void *workspace_take(size_t n_bytes);
/* 0, or an error code. */
int workspace_give(void *pointer);
