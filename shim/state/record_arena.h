/* SPDX-License-Identifier: MIT */
/*
 * Records of the shim's own (contexts, marks): bump allocation from mmap'd chunks, never returned.
 *
 * A reader without a lock may still hold a record after it left its list, so records are recycled
 * by their owners, for the same purpose, and their memory is never unmapped. Thread-safe without a
 * lock.
 */
#pragma once

#include <stddef.h>

enum { CA_SLAB_MAX = 4096 };

/* Zeroed, 64-byte aligned memory, or NULL when the kernel gives none. size <= CA_SLAB_MAX. errno
 * kept. */
void *ca_slab_take(size_t size);
