/* SPDX-License-Identifier: MIT */
/* What the files of the probe share; see probe.c. */
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sim/abi.h"
#include "tests/sim/stats.h"

#define SIM_ENTRY(symbol, body, flavour, when, params, args) CUresult symbol params;
#include "tests/sim/entries.def"
#undef SIM_ENTRY

#define SAY(key, value) (printf("%s %lld\n", key, (long long)(value)), fflush(stdout))

static CUcontext context;

static inline void
begin(void)
{
	SAY("init", cuInit(0));
	SAY("ctx", cuCtxCreate_v2(&context, 0, 0));
}

static inline CUfunction
kernel(const char *name)
{
	static CUmodule module;
	CUfunction function = NULL;

	if (!module)
		SAY("rc", cuModuleLoadData(&module, "simcuda"));
	SAY("rc", cuModuleGetFunction(&function, module, name));
	return function;
}

static inline CUresult
launch(CUfunction function, CUstream stream, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	void *params[] = { &a, &b, &c, &d };

	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

/* Of probe_work.c. */
int probe_kernel(int argc, char **argv);
int probe_race(int argc, char **argv);
int probe_manual(int argc, char **argv);
int probe_misuse(int argc, char **argv);
int probe_capture(int argc, char **argv);
int probe_deadlock(int argc, char **argv);
int probe_value(int argc, char **argv);
int probe_nodes(int argc, char **argv);
/* Of probe_library.c. */
int probe_library(int argc, char **argv);
int probe_kernel_launches(int argc, char **argv);
int probe_attributes(int argc, char **argv);
/* Of probe_vmm.c. */
int probe_vmm(int argc, char **argv);
