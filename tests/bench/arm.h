/* SPDX-License-Identifier: MIT */
/*
 * Who allocates in hits.c: the driver (preloaded or not), or a peer, which is a library with two
 * functions of its own. Peers have no streams: launches and streams are nothing there.
 */
#pragma once

#include <stdbool.h>

#include "tests/bench/api.h"

/* "cuda" is the driver. False: there is none of that name. */
bool arm_choose(const char *name);
const char *arm_name(void);
/* Loads the peer's library, or makes the device's context current. */
void arm_open(void);
/* Before a new thread's first call. */
void arm_enter(void);

/* A context of its own, current from now on. A peer has none. */
CUcontext arm_context_new(void);

CUstream arm_stream_new(void);
/* A kernel that writes one word at `target`. */
void arm_launch(uint64_t target, CUstream stream);
void arm_synchronize(CUstream stream);

/* NULL: the driver's calls. */
extern void *(*arm_peer_take)(size_t bytes);
extern void (*arm_peer_give)(void *block);

static inline uint64_t
take(size_t bytes)
{
	CUdeviceptr address;

	if (arm_peer_take)
		return (uint64_t)(uintptr_t)arm_peer_take(bytes);
	CALL(cuMemAlloc_v2, &address, bytes);
	return address;
}

static inline void
give(uint64_t address)
{
	if (arm_peer_give)
		arm_peer_give((void *)(uintptr_t)address);
	else
		CALL(cuMemFree_v2, address);
}
