/* SPDX-License-Identifier: MIT */
/*
 * The arms that take turns in turns.c: the driver with the library preloaded, peers, and one that
 * does nothing, whose cost is taken off the others'. All are asked through the same two functions,
 * which call one function pointer each.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/bench/api.h"

enum { ARMS_MAX = 8 };

typedef CUresult launch_fn(void *function, unsigned int gx, unsigned int gy, unsigned int gz,
			   unsigned int bx, unsigned int by, unsigned int bz,
			   unsigned int shared_bytes, CUstream stream, void **arguments,
			   void **extra);

struct arm {
	const char *name;
	/* NULL: the driver, or nothing at all. */
	const char *library;
	const char *take_name, *give_name;
	uint64_t (*take)(const struct arm *arm, size_t bytes);
	/* `bytes` as allocated: some peers ask for it. */
	void (*give)(const struct arm *arm, uint64_t address, size_t bytes);
	/* Work submitted to the thread's stream: one call, or one that does nothing. */
	launch_fn *launch;
	/* filled in by arm_open */
	void *(*library_take)(size_t bytes);
	void (*library_give)(void *block, size_t bytes);
	bool is_driver;
};

/* NULL: there is none of that name, which ends after `length` bytes. */
struct arm *arm_named(const char *name, size_t length);
/* Loads the peer's library, or makes the device's context current and so many streams, of which the
 * first gets the work. Exits with status 2 where that fails. */
void arm_open(struct arm *arm, unsigned long streams);
/* Before a new thread's first call: the context, and a stream of its own. */
void arm_enter(const struct arm *arm);

/* A kernel that writes one word at the address, in this thread's stream. */
void arm_work(const struct arm *arm, uint64_t address);

static inline uint64_t
arm_take(const struct arm *arm, size_t bytes)
{
	return arm->take(arm, bytes);
}

static inline void
arm_give(const struct arm *arm, uint64_t address, size_t bytes)
{
	arm->give(arm, address, bytes);
}
