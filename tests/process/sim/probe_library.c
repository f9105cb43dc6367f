/* SPDX-License-Identifier: MIT */
/* Scenarios of libraries: code that belongs to no context. */
#include "tests/process/sim/probe.h"

static CUlibrary
load(void)
{
	CUlibrary library = NULL;

	SAY("rc", cuLibraryLoadData(&library, "simcuda", NULL, NULL, 0, NULL, NULL, 0));
	return library;
}

static CUkernel
kernel_of(CUlibrary library, const char *name)
{
	CUkernel kernel = NULL;

	SAY("rc", cuLibraryGetKernel(&kernel, library, name));
	return kernel;
}

static void
refusals(CUlibrary library, const char *folder)
{
	CUlibraryOption option = (CUlibraryOption)CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE;
	char path[4096];
	CUlibrary none;
	CUkernel kernel;
	CUdeviceptr ptr;
	void *unified;

	SAY("ptx", cuLibraryLoadData(&none, ".version 8.0", NULL, NULL, 0, NULL, NULL, 0));
	snprintf(path, sizeof(path), "%s/ptx", folder);
	SAY("ptx_file", cuLibraryLoadFromFile(&none, path, NULL, NULL, 0, NULL, NULL, 0));
	snprintf(path, sizeof(path), "%s/none", folder);
	SAY("no_file", cuLibraryLoadFromFile(&none, path, NULL, NULL, 0, NULL, NULL, 0));
	SAY("no_code", cuLibraryLoadData(&none, NULL, NULL, NULL, 0, NULL, NULL, 0));
	SAY("table", cuLibraryLoadData(&none, "simcuda", NULL, NULL, 0, &option, NULL, 1));
	SAY("unknown", cuLibraryGetKernel(&kernel, library, "sim_none"));
	SAY("global", cuLibraryGetGlobal(&ptr, NULL, library, "sim_fill"));
	SAY("managed", cuLibraryGetManaged(&ptr, NULL, library, "sim_fill"));
	SAY("unified", cuLibraryGetUnifiedFunction(&unified, library, "sim_fill"));
}

static void
without_context(CUlibrary library, CUkernel kernel)
{
	CUmodule module;
	CUfunction function;
	CUdeviceptr ptr;
	CUcontext ctx;

	SAY("rc", cuCtxPopCurrent_v2(&ctx));
	SAY("no_context", cuLibraryGetModule(&module, library));
	SAY("no_context", cuKernelGetFunction(&function, kernel));
	SAY("no_context", cuLibraryGetGlobal(&ptr, NULL, library, "x"));
	SAY("rc", cuCtxPushCurrent_v2(ctx));
}

static void
same(CUlibrary library, CUkernel kernel)
{
	CUmodule module[3];
	CUfunction function[2];
	CUlibrary its_library;
	CUkernel listed[32];
	CUcontext other;
	const char *name = "";
	unsigned count = 0;

	SAY("rc", cuLibraryGetModule(&module[0], library));
	SAY("rc", cuLibraryGetModule(&module[1], library));
	SAY("same", module[0] == module[1]);
	SAY("rc", cuKernelGetFunction(&function[0], kernel));
	SAY("rc", cuModuleGetFunction(&function[1], module[0], "sim_fill"));
	SAY("same", function[0] == function[1]);
	SAY("rc", cuFuncGetModule(&module[2], function[0]));
	SAY("same", module[2] == module[0]);
	SAY("rc", cuKernelGetLibrary(&its_library, kernel));
	SAY("same", its_library == library);
	SAY("rc", cuCtxCreate_v2(&other, 0, 0));
	SAY("rc", cuLibraryGetModule(&module[1], library));
	SAY("same", module[0] != module[1]);
	SAY("rc", cuCtxDestroy_v2(other));
	SAY("unload_module", cuModuleUnload(module[0]));
	SAY("rc", cuKernelGetName(&name, kernel));
	printf("name %s\n", name);
	SAY("rc", cuFuncGetName(&name, function[0]));
	printf("name %s\n", name);
	SAY("rc", cuLibraryGetKernelCount(&count, library));
	SAY("count", count);
	memset(listed, 0, sizeof(listed));
	SAY("rc", cuLibraryEnumerateKernels(listed, 32, library));
	for (count = 0; count < 32 && listed[count];)
		count++;
	SAY("listed", count);
}

int
probe_library(int argc, char **argv)
{
	CUlibrary library, from_file;
	CUkernel kernel;
	CUfunction function;
	CUmodule module;
	char path[4096];
	unsigned count;
	const char *name;

	SAY("init", cuInit(0));
	library = load(); /* no context is needed */
	kernel = kernel_of(library, "sim_fill");
	SAY("ctx", cuCtxCreate_v2(&context, 0, 0));
	snprintf(path, sizeof(path), "%s/image", argv[0]);
	SAY("rc", cuLibraryLoadFromFile(&from_file, path, NULL, NULL, 0, NULL, NULL, 0));
	SAY("rc", cuLibraryUnload(from_file));
	refusals(library, argv[0]);
	without_context(library, kernel);
	same(library, kernel);
	SAY("rc", cuKernelGetFunction(&function, kernel));
	SAY("rc", cuFuncLoad(function));
	SAY("rc", cuLibraryUnload(library));
	SAY("gone", cuKernelGetFunction(&function, kernel));
	SAY("gone", cuFuncLoad(function));
	SAY("gone", cuLibraryGetKernelCount(&count, library));
	SAY("gone", cuLibraryGetModule(&module, library));
	SAY("gone", cuKernelGetName(&name, kernel));
	SAY("gone", cuLibraryUnload(library));
	return 0;
}

enum {
	THREADS = CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
	REGISTERS = CU_FUNC_ATTRIBUTE_NUM_REGS,
	BINARY = CU_FUNC_ATTRIBUTE_BINARY_VERSION,
	SHARED = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
};

static void
say_kernel(const char *key, int attribute, CUkernel kernel, int device)
{
	int value = -100;

	SAY("rc", cuKernelGetAttribute(&value, (CUfunction_attribute)attribute, kernel, device));
	SAY(key, value);
}

static void
say_function(const char *key, int attribute, CUfunction function)
{
	int value = -100;

	SAY("rc", cuFuncGetAttribute(&value, (CUfunction_attribute)attribute, function));
	SAY(key, value);
}

int
probe_attributes(int argc, char **argv)
{
	CUfunction_attribute shared = (CUfunction_attribute)SHARED;
	CUfunction_attribute registers = (CUfunction_attribute)REGISTERS;
	CUkernel kernel;
	CUfunction function;
	CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_UNLOADED;
	size_t offset = 0, n = 0;
	int value;

	begin();
	kernel = kernel_of(load(), "sim_check");
	SAY("rc", cuKernelGetFunction(&function, kernel));
	say_kernel("threads", THREADS, kernel, 1);
	say_function("threads", THREADS, function);
	say_kernel("registers", REGISTERS, kernel, 0);
	say_function("registers", REGISTERS, function);
	say_kernel("binary", BINARY, kernel, 0);
	say_function("binary", BINARY, function);
	say_kernel("shared", SHARED, kernel, 0);
	SAY("rc", cuKernelSetAttribute(shared, 100000, kernel, 0));
	say_kernel("shared", SHARED, kernel, 0);
	say_kernel("shared", SHARED, kernel, 1);
	say_function("shared", SHARED, function);
	SAY("rc", cuFuncSetAttribute(function, shared, 70000));
	say_function("shared", SHARED, function);
	say_kernel("shared", SHARED, kernel, 0);
	SAY("rc", cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_EQUAL, 1));
	SAY("rc", cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_NONE));
	SAY("rc", cuFuncIsLoaded(&state, function));
	SAY("refused", state == CU_FUNCTION_LOADING_STATE_LOADED);
	SAY("refused", cuKernelSetAttribute(registers, 1, kernel, 0));
	SAY("refused", cuFuncSetAttribute(function, shared, 1 << 20));
	SAY("refused", cuKernelGetAttribute(&value, (CUfunction_attribute)99, kernel, 0));
	SAY("refused", cuKernelGetParamInfo(kernel, 5, &offset, &n));
	SAY("refused", cuKernelGetAttribute(&value, shared, kernel, 2));
	SAY("refused", cuKernelSetAttribute(shared, 1, kernel, -1));
	SAY("refused", cuFuncGetAttribute(&value, shared, (CUfunction)(void *)kernel));
	SAY("refused", cuKernelGetAttribute(&value, shared, (CUkernel)(void *)function, 0));
	SAY("refused",
	    cuKernelSetCacheConfig((CUkernel)(void *)function, CU_FUNC_CACHE_PREFER_NONE, 0));
	SAY("rc", cuKernelGetParamInfo(kernel, 3, &offset, &n));
	SAY("place", offset);
	SAY("place", n);
	SAY("rc", cuFuncGetParamInfo(function, 3, &offset, &n));
	SAY("place", offset);
	SAY("place", n);
	SAY("rc", cuKernelGetParamCount(kernel, &n));
	SAY("arguments", n);
	SAY("rc", cuFuncGetParamCount(function, &n));
	SAY("arguments", n);
	return 0;
}

enum { WORDS = 1024 };

/* Fills by a launch with attributes and checks by a plain one, in the context that the stream says.
 */
static void
fill_and_check(CUlibrary library, CUstream stream, CUdeviceptr ptr, CUdeviceptr errors)
{
	uint64_t words = WORDS, value = 42, spin = 0;
	void *fill[] = { &ptr, &words, &value, &spin };
	void *check[] = { &ptr, &words, &value, &errors, &spin };
	CUlaunchConfig config = { 1, 1, 1, 1, 1, 1, 0, stream, NULL, 0 };
	CUfunction by_kernel = (CUfunction)(void *)kernel_of(library, "sim_check");

	SAY("rc", cuLaunchKernelEx(&config, (CUfunction)(void *)kernel_of(library, "sim_fill"),
				   fill, NULL));
	SAY("rc", cuLaunchKernel(by_kernel, 1, 1, 1, 1, 1, 1, 0, stream, check, NULL));
}

static void
in_graph(CUlibrary library, CUdeviceptr ptr, CUdeviceptr errors)
{
	uint64_t words = WORDS, value = 43, spin = 0;
	void *fill[] = { &ptr, &words, &value, &spin };
	CUDA_KERNEL_NODE_PARAMS params = { NULL, 1, 1, 1, 1, 1, 1, 0, fill, NULL, NULL, NULL };
	CUgraph graph;
	CUgraphNode node;
	CUgraphExec exec;
	unsigned seen = 0;

	params.kern = kernel_of(library, "sim_fill");
	SAY("rc", cuGraphCreate(&graph, 0));
	SAY("rc", cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
	params.ctx = context;
	SAY("own_context", cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
	SAY("rc", cuGraphInstantiateWithFlags(&exec, graph, 0));
	SAY("rc", cuGraphLaunch(exec, NULL));
	SAY("rc", cuMemcpyDtoH_v2(&seen, ptr + 4 * (WORDS - 1), 4));
	SAY("graph", seen != 43);
	SAY("rc", cuGraphExecDestroy(exec));
	SAY("rc", cuGraphDestroy(graph));
}

int
probe_kernel_launches(int argc, char **argv)
{
	CUlibrary library;
	CUkernel kernel;
	CUfunction function;
	CUstream stream;
	CUcontext ctx, second;
	CUdeviceptr ptr, errors;
	uint64_t found = 1;

	begin();
	library = load();
	kernel = kernel_of(library, "sim_fill");
	SAY("rc", cuMemAlloc_v2(&ptr, WORDS * 4));
	SAY("rc", cuMemAlloc_v2(&errors, 8));
	SAY("rc", cuMemsetD8_v2(errors, 0, 8));
	fill_and_check(library, NULL, ptr, errors);
	SAY("rc", cuStreamCreate(&stream, 0));
	SAY("rc", cuCtxCreate_v2(&second, 0, 1)); /* current now; the stream is of the first */
	fill_and_check(library, stream, ptr, errors);
	SAY("rc", cuCtxDestroy_v2(second));
	SAY("rc", cuStreamSynchronize(stream));
	in_graph(library, ptr, errors);
	SAY("rc", cuMemcpyDtoH_v2(&found, errors, 8));
	SAY("errors", found);
	SAY("rc", cuKernelGetFunction(&function, kernel));
	SAY("rc", cuCtxPopCurrent_v2(&ctx));
	SAY("no_context", launch((CUfunction)(void *)kernel, NULL, ptr, 1, 1, 0));
	SAY("rc", cuCtxPushCurrent_v2(ctx));
	SAY("rc", cuLibraryUnload(library));
	SAY("unloaded", launch((CUfunction)(void *)kernel, NULL, ptr, 1, 1, 0));
	SAY("unloaded", launch(function, NULL, ptr, 1, 1, 0));
	return 0;
}
