/* SPDX-License-Identifier: MIT */
/*
 * CACHEALLOC_TAKEOVER: before a framework starts, its own variable is set to the road that tells
 * the stream of each allocation (cuMemAllocAsync). Only the start of the process is early enough,
 * since an interpreter copies the environment then, and the children inherit it. So this is done by
 * a constructor, which does nothing where the variable is unset.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "config/config.h"

/* A variable, and its value in two parts: `before` (NULL: nothing) is what it had. */
struct ca_take_over_change {
	const char *variable, *before, *added;
	bool comma; /* between the two */
};

/* The result for one framework. */
struct ca_take_over_result {
	enum {
		CA_TAKE_OVER_SET,     /* changes make it so */
		CA_TAKE_OVER_PRESENT, /* it was so already */
		CA_TAKE_OVER_REFUSED, /* the user has chosen another road: nothing is changed */
	} state;
	const char *variable; /* that decided */
};

enum {
	CA_TAKE_OVERS = 4, /* frameworks: bits of enum ca_take_over */
	CA_TAKE_OVER_CHANGES_MAX = 2,
};

/* The library was opened when the process ran already: it is not in front of the driver. */
bool ca_take_over_is_late(void);

/* Decides what becomes of the framework at `place` of that enum. Returns the number of changes,
 * whose texts are those of `env`. Pure but for `env`. */
unsigned ca_take_over_decide(unsigned place, ca_getenv_fn *env, void *env_arg,
			     struct ca_take_over_change ret_changes[CA_TAKE_OVER_CHANGES_MAX],
			     struct ca_take_over_result *ret_result);

/* Says once what the constructor did: a line for each framework that was asked for. */
void ca_take_over_report(void);
