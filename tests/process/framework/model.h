/* SPDX-License-Identifier: MIT */
/*
 * A model of a framework that caches device memory itself, as PyTorch's native allocator does for
 * one stream (c10/cuda/CUDACachingAllocator.cpp): requests up to 1 MiB from segments of 2 MiB,
 * those below 10 MiB from segments of 20 MiB, larger ones rounded up to 2 MiB; best fit, split,
 * merge; free segments go back by model_empty_cache, and before an allocation fails.
 * PYTORCH_NO_CUDA_MEMORY_CACHING=1: every call is the runtime's own. Thread-safe.
 */
#pragma once

#include <stddef.h>

struct model_figures {
	size_t reserved_bytes; /* of segments, at the moment */
	size_t peak_reserved_bytes;
	size_t segments;   /* taken from the runtime, so far; failures left out */
	size_t failed;     /* refused by the runtime, so far */
	size_t given_back; /* segments, so far */
};

struct model {
	void *(*take)(size_t n_bytes); /* NULL: out of memory */
	void (*give)(void *pointer);   /* of take, or NULL */
	void (*empty_cache)(void);
	void (*figures)(struct model_figures *ret_figures);
};

/* The one function that the library exports. */
const struct model *model_get(void);
