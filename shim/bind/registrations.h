/* SPDX-License-Identifier: MIT */
/*
 * Calls of registration functions (registrations.def) are seen through thunks: a caller that asks
 * for one gets a thunk that tells us first and then jumps to the real one with everything as it
 * was. There is one thunk for each real address, so versions, several copies and other wrappers
 * stay apart.
 *
 * Everything here is early (shim/bind/loader.h), thread-safe without locks, and keeps errno.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shim/bind/thunks.h"

enum ca_registration {
#define CA_REGISTRATION(name, how) CA_REGISTRATION_##name,
#include "shim/bind/registrations.def"
	CA_REGISTRATION_COUNT,
	CA_REGISTRATION_NONE = CA_REGISTRATION_COUNT,
};

extern const char *const ca_registration_names[CA_REGISTRATION_COUNT];
/* By its name. */
enum ca_registration ca_registration_of(const char *name);

/* The thunk for the real function; 0: the table is full, which is a ca_registration_miss. */
uintptr_t ca_registration_thunk(enum ca_registration which, uintptr_t real);
bool ca_registration_is_thunk(uintptr_t address);

/* A caller may have got hold of a registration function without our seeing its calls. May wait for
 * the device: not in a walk of objects. */
void ca_registration_miss(void);

struct ca_registration_listener {
	/* Before each call: its arguments that are passed in registers, at least six. */
	void (*called)(enum ca_registration which, const uint64_t *arguments);
	void (*missed)(void);
	/* Something was loaded or unloaded, and a dlsym follows. */
	void (*loaded)(void);
};
/* NULL: nobody listens. True if something was missed so far. */
bool ca_registration_set_callback(const struct ca_registration_listener *listener);
/* In dlsym: tells the listener of what was loaded. */
void ca_registration_look(void);

/* Shared by C and the assembly of thunks_*.S. */
extern const char ca_registration_thunks[];
extern uintptr_t ca_registration_targets[CA_REGISTRATION_THUNKS];
void ca_registration_enter(uint64_t thunk, const uint64_t *arguments);
