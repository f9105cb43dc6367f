/* SPDX-License-Identifier: MIT */
#include "tests/bench/api.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef CUresult get_proc_fn(const char *symbol, void **pfn, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status);

enum {
	ASKED_VERSION = 12000, /* as a program built with that toolkit asks */
	FLAVOUR_LEGACY = CU_GET_PROC_ADDRESS_LEGACY_STREAM,
	FLAVOUR_PTSZ = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
};

struct wanted {
	const char *symbol, *base;
	cuuint64_t flavour;
	void **place;
};

struct api api;

static void *module;

static const struct wanted all[] = {
#define API(symbol, base, flavour, params)                                                         \
	{ #symbol, #base, FLAVOUR_##flavour, (void **)&api.symbol },
#include "tests/bench/api.def"
#undef API
};

void
api_fail(const char *what, long code)
{
	fprintf(stderr, "%s: %ld\n", what, code);
	exit(2);
}

void
api_check(CUresult code, const char *what)
{
	if (code != CUDA_SUCCESS)
		api_fail(what, code);
}

static void
find(void *library, enum road road)
{
	get_proc_fn *get_proc = (get_proc_fn *)(uintptr_t)dlsym(library, "cuGetProcAddress_v2");
	CUdriverProcAddressQueryResult status;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		const struct wanted *w = &all[i];

		if (road == ROAD_DLSYM)
			*w->place = dlsym(library, w->symbol);
		else if (!get_proc ||
			 get_proc(w->base, w->place, ASKED_VERSION, w->flavour, &status))
			*w->place = NULL;
		if (!*w->place)
			api_fail(w->symbol, CUDA_ERROR_NOT_FOUND);
	}
}

CUcontext
api_open(enum road road)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	CUcontext context;

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(2);
	}
	find(library, road);
	CALL(cuInit, 0);
	CALL(cuDevicePrimaryCtxRetain, &context, 0);
	CALL(cuCtxSetCurrent, context);
	return context;
}

void *
api_kernel(const char *name)
{
	void *function;

	if (!module)
		CALL(cuModuleLoadData, &module, "simcuda");
	CALL(cuModuleGetFunction, &function, module, name);
	return function;
}

uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void
pin_to(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((unsigned)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		api_fail("sched_setaffinity", cpu);
}
