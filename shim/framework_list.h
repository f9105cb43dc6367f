/* SPDX-License-Identifier: MIT */
/*
 * Which of the loaded libraries are a framework's that caches by itself, or a shared CUDA runtime
 * (shim/frameworks.def), and the lines that say so. Nothing is kept here but what was said.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"

enum ca_framework {
#define CA_FRAMEWORK(id, name, take_over) CA_FRAMEWORK_##id,
#define CA_FRAMEWORK_FILE(id, pattern)
#define CA_FRAMEWORK_OFF(id, variable, value)
#include "shim/frameworks.def"
#undef CA_FRAMEWORK
#undef CA_FRAMEWORK_FILE
#undef CA_FRAMEWORK_OFF
	CA_FRAMEWORKS,
	CA_FRAMEWORK_RUNTIME = CA_FRAMEWORKS,
	CA_FRAMEWORK_NOBODY,
};

enum { CA_FRAMEWORK_RANGES_MAX = 32 };

struct ca_framework_range {
	_Atomic uintptr_t low, high; /* [low, high) */
	_Atomic unsigned owner;      /* enum ca_framework */
};

struct ca_framework_list {
	_Atomic uint64_t generation; /* of the loaded objects */
	_Atomic uint64_t lookups;    /* covered; 0: nothing was read yet */
	_Atomic unsigned on;         /* a bit a framework that is there and caches */
	_Atomic unsigned n_ranges;
	struct ca_framework_range ranges[CA_FRAMEWORK_RANGES_MAX];
};

/* A reader's loads stay before its last look at the version, a writer's stores behind the odd one.
 */
#define CA_LIST_GET(field) atomic_load_explicit(&(field), memory_order_acquire)
#define CA_LIST_SET(field, value) atomic_store_explicit(&(field), value, memory_order_release)

struct ca_object;
/* Whose library it is. */
enum ca_framework ca_framework_of_object(const struct ca_object *object);
/*
 * Reads the list of loaded libraries into *ret_list, which is the caller's own. Says once of each
 * framework that is there if its cache is off. `generation` and `lookups` are kept with it.
 */
void ca_framework_read(const struct ca_config *config, uint64_t generation, uint64_t lookups,
		       struct ca_framework_list *ret_list);
/* Something of that framework's went straight through: said once. */
void ca_framework_tell_on(enum ca_framework owner);
/*
 * Whose requests went straight through so far, "PyTorch's" or "PyTorch's and others'"; *ret_off
 * gets the variable and value that switch the first one's cache off, "" where there are none. NULL:
 * nobody's that is known.
 */
const char *ca_framework_that_passed(char *ret_off, size_t size);
/* All may be said again. */
void ca_framework_forget_told(void);
