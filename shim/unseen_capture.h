/* SPDX-License-Identifier: MIT */
/*
 * Captures whose begin was not seen: a driver function that we do not know may have begun one.
 *
 * A mark on a context, or its synchronisation, would invalidate it (cuda.h, cuCtxRecordEvent). So
 * once such a function was called, the driver is asked about each stream that we know before one is
 * made. A per-thread default stream of another thread cannot be asked about.
 */
#pragma once

#include <stdbool.h>

#include "shim/real.h"

/* True if a stream captures; false without a question as long as nothing unseen was called. Nothing
 * is waited for. errno kept. */
bool ca_unseen_capture(const struct ca_real *real);
