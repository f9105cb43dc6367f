/* SPDX-License-Identifier: MIT */
/*
 * Blocks on their way from one thread to the next. Each thread has a mailbox; any thread may put
 * into it, only its owner takes. The lock is the only order between the two threads' calls.
 */
#pragma once

#include "tests/stress/worker.h"

/* Gives w->blocks[i] to the next of n_threads threads, if its mailbox has room. Use by streams that
 * only this thread may use is ordered before a shared stream first. */
void mailbox_pass(struct worker *w, int i, int n_threads);

/* Appends a block to the worker's. 0: there was none, or no room. */
int mailbox_take(struct worker *w);
