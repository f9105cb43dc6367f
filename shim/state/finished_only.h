/* SPDX-License-Identifier: MIT */
/*
 * Work that we cannot see or order: from then on, reuse is restricted to finished memory
 * (allocator/order/order.h, CA_FINISHED_ONLY_REASONS).
 *
 * ca_fallback returns only when nothing that the device has not finished with is in the
 * program's hands any more, so it is called before the unseen work can begin.
 */
#pragma once

#include "shim/state/process.h"

/* `space` NULL: every space of the process, future ones too.
 * The first time for a reason it is logged (CACHEALLOC_LOG=info). */
void ca_fallback(struct ca_process *process, struct ca_space *space, unsigned reason);
