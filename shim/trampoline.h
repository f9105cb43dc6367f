/* SPDX-License-Identifier: MIT */
/* What the assembly of dlsym_*.S and thunks_*.S shares with C. */
#pragma once

#include <stdint.h>

#include "shim/thunks.h"

/* The exported dlsym under a name that cannot be preempted. */
void ca_dlsym_trampoline(void);
/* Where it jumps on a miss; 0 until ca_loader_find, and for ever where the process has no dlsym but ours. */
extern uintptr_t ca_dlsym_next;
void ca_loader_find(void);
/*
 * What dlsym(handle, name), called from `caller`, is answered with; 0: jump to ca_dlsym_next with the caller's
 * own arguments. After return ca_dlsym_next is set. Keeps errno.
 */
uintptr_t ca_dlsym_route(void *handle, const char *name, uintptr_t caller);

/* CA_THUNK_COUNT thunks of CA_THUNK_BYTES each, the i-th jumping to ca_thunk_targets[i]. */
extern const char ca_thunks[];
extern uintptr_t ca_thunk_targets[CA_THUNK_COUNT];
extern uint64_t ca_thunk_calls;
