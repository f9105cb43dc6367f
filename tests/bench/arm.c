/* SPDX-License-Identifier: MIT */
#include "tests/bench/arm.h"

#include <dlfcn.h>
#include <string.h>

static const struct peer {
	const char *name, *library, *take, *give;
} peers[] = {
	{ "mimalloc", "libmimalloc.so.2", "mi_malloc", "mi_free" },
	{ "cub", "libbench_cub.so", "peer_take", "peer_give" }, /* cub.cpp */
	{ NULL, NULL, NULL, NULL },
};

void *(*arm_peer_take)(size_t bytes);
void (*arm_peer_give)(void *block);
static const struct peer *peer; /* NULL: the driver */
static CUcontext context;
static void *fill;

bool
arm_choose(const char *name)
{
	peer = NULL;
	if (!strcmp(name, "cuda"))
		return true;
	for (peer = peers; peer->name; peer++)
		if (!strcmp(peer->name, name))
			return true;
	return false;
}

const char *
arm_name(void)
{
	return peer ? peer->name : "cuda";
}

static void
take_library(void)
{
	void *library = dlopen(peer->library, RTLD_NOW);

	if (!library)
		api_fail("the peer's library cannot be loaded", 0);
	arm_peer_take = (void *(*)(size_t))(uintptr_t)dlsym(library, peer->take);
	arm_peer_give = (void (*)(void *))(uintptr_t)dlsym(library, peer->give);
	if (!arm_peer_take || !arm_peer_give)
		api_fail("the peer's functions", 0);
}

void
arm_open(void)
{
	if (peer) {
		take_library();
		return;
	}
	context = api_open(ROAD_PROC);
	fill = api_kernel("sim_fill");
}

void
arm_enter(void)
{
	if (!peer)
		CALL(cuCtxSetCurrent, context);
}

CUcontext
arm_context_new(void)
{
	CUcontext made = NULL;

	if (!peer)
		CALL(cuCtxCreate_v3, &made, NULL, 0, 0, 0);
	return made;
}

CUstream
arm_stream_new(void)
{
	CUstream stream = NULL;

	if (!peer)
		CALL(cuStreamCreate, &stream, 1);
	return stream;
}

void
arm_launch(uint64_t target, CUstream stream)
{
	uint64_t words = 1, value = 1, spin_us = 0;
	void *arguments[] = { &target, &words, &value, &spin_us };

	if (!peer)
		CALL(cuLaunchKernel, fill, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

void
arm_synchronize(CUstream stream)
{
	if (!peer)
		CALL(cuStreamSynchronize, stream);
}
