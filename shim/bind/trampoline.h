/* SPDX-License-Identifier: MIT */
/* Shared by C and the assembly of dlsym_*.S and thunks_*.S. */
#pragma once

#include <stdint.h>

#include "shim/bind/thunks.h"

/* The exported dlsym under a name that cannot be preempted. */
void ca_dlsym_trampoline(void);

/* Comes back in two registers, which the assembly relies on. */
struct ca_dlsym_way {
	uintptr_t answer; /* dlsym's result; 0: jump */
	uintptr_t
		jump; /* the dlsym to jump to, with the caller's own arguments; 0: none but ours */
};
/* For dlsym(handle, name), called from `caller`. Keeps errno. */
struct ca_dlsym_way ca_dlsym_route(void *handle, const char *name, uintptr_t caller);
/* The same for dlvsym(handle, name, version). */
struct ca_dlsym_way ca_dlvsym_route(void *handle, const char *name, const char *version,
				    uintptr_t caller);

/* CA_THUNK_COUNT thunks of CA_THUNK_BYTES each, the i-th jumping to ca_thunk_targets[i]. */
extern const char ca_thunks[];
extern uintptr_t ca_thunk_targets[CA_THUNK_COUNT];
extern uint64_t ca_thunk_calls;
/* While not NULL, a thunk calls ca_unseen_raise first. */
extern void (*ca_thunk_alarm)(void);
void ca_unseen_raise(void);
