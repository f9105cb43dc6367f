/* SPDX-License-Identifier: MIT */
/*
 * Driver entry points that we do not know.
 *
 * An address handed out for a cu* name that shim/cuda_names.def does not list is replaced by a counting thunk
 * (a fixed table of assembled thunks, no writable code), so that we know that something unseen was called.
 */
#pragma once

#include <stdint.h>

/* Calls made through thunks, plus look-ups of unknown names that could not be given one. */
uint64_t ca_unseen_calls(void);
