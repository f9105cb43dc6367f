/* SPDX-License-Identifier: MIT */
#include "tests/process/shim/cases.h"

#include <stdbool.h>

static void *module;

CUcontext
case_start(void)
{
	CUcontext context;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	return context;
}

CUcontext
case_context(int device)
{
	CUcontext context;

	OK(cuInit(0));
	OK(cuCtxCreate_v2(&context, 0, device));
	module = NULL;
	return context;
}

void
case_context_died(void)
{
	module = NULL;
}

void *
case_kernel(const char *name)
{
	void *function;

	if (!module)
		OK(cuModuleLoadData(&module, "simcuda"));
	OK(cuModuleGetFunction(&function, module, name));
	return function;
}

void
case_fill(CUdeviceptr target, uint64_t words, uint64_t value, uint64_t spin_us, CUstream stream)
{
	void *args[] = { &target, &words, &value, &spin_us };

	OK(cuLaunchKernel(case_kernel("sim_fill"), 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

void
case_copy(CUdeviceptr target, CUdeviceptr source, uint64_t words, uint64_t spin_us, CUstream stream)
{
	void *args[] = { &target, &source, &words, &spin_us };

	OK(cuLaunchKernel(case_kernel("sim_copy"), 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

uint64_t
case_wrong_words(CUdeviceptr target, uint64_t words, uint32_t value)
{
	uint32_t *copy = malloc(words * sizeof(*copy));
	uint64_t wrong = 0;

	EXPECT(copy);
	OK(cuMemcpyDtoH_v2(copy, target, words * sizeof(*copy)));
	for (uint64_t i = 0; i < words; i++)
		wrong += copy[i] != value;
	free(copy);
	return wrong;
}

/* True: it was there, and has run; or all were listed. */
static bool
run_or_list(const struct test_case *cases, const char *name)
{
	bool list = strcmp(name, "--list") == 0;

	for (const struct test_case *one = cases; one && one->name; one++) {
		if (list) {
			puts(one->name);
		} else if (strcmp(name, one->name) == 0) {
			one->run();
			return true;
		}
	}
	return list;
}

int
main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "--list";
	bool done = run_or_list(test_cases, name);

	if (!done || strcmp(name, "--list") == 0)
		done = run_or_list(more_test_cases, name);
	return done ? 0 : 2;
}
