/* SPDX-License-Identifier: MIT */
/*
 * Driver entry points that we do not know.
 *
 * An address handed out for a cu* name that shim/bind/cuda_names.def does not list is replaced by a
 * counting thunk (a fixed table of assembled thunks, no writable code), so that we know that
 * something unseen was called. So is one that an object is linked to (shim/bind/links.h).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Calls made through thunks, plus look-ups of unknown names that could not be given one. */
uint64_t ca_unseen_calls(void);

/*
 * The thunk that counts and jumps to `target` (a function of the driver, not 0); the same target
 * has always the same thunk. 0: the table is full; the look-up has then been counted. Thread-safe,
 * no lock.
 */
uintptr_t ca_unseen_thunk(uintptr_t target);
bool ca_unseen_is_thunk(uintptr_t address);
/*
 * Called before the next call of a thunk goes on to the driver, and before every later one until it
 * is set to NULL; with the program's own arguments kept.
 */
void ca_unseen_set_callback(void (*alarm)(void));
/* Counts a look-up of an unknown name that is handed out as it is. */
void ca_unseen_note_lookup(void);
