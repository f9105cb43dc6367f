/* SPDX-License-Identifier: MIT */
/*
 * Bodies: the one module there is, "simcuda", and the launch of its kernels. A module is a small
 * block with one entry for each kernel of the engine, and a CUfunction is the address of such an
 * entry; both are looked up in the list of live modules before they are believed. Modules die with
 * their context, which shows in the context's id.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/engine.h"

enum {
	EXTRA_MAX = 8, /* entries of cuLaunchKernel's `extra` before we call it endless */
};

struct module {
	struct module *next;
	CUcontext ctx; /* where it was loaded */
	unsigned long long
		ctx_id; /* that context's id: differs when it died and its handle came back */
	char functions[SIM_KERNEL_COUNT]; /* only their addresses matter */
};

static struct module *modules;                                   /* all loaded and not unloaded */
static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER; /* around the list */

static bool
module_alive(const struct module *module)
{
	unsigned long long id;

	return !sim_ctx_get_id(module->ctx, &id) && id == module->ctx_id;
}

int
simb_do_cuModuleLoadData(CUmodule *module, const void *image)
{
	struct module *new;
	CUcontext ctx;
	unsigned long long id;
	int rc = sim_ctx_error();

	if (!rc)
		rc = sim_ctx_get_id(NULL, &id);
	if (!rc)
		rc = sim_ctx_get_current(&ctx);
	if (rc)
		return rc;
	if (!module || !image)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE,
				   "no image, or no place for the module");
	if (strncmp(image, "simcuda", sizeof("simcuda")) != 0) {
		simb_note("this image is not \"simcuda\", and device code cannot be run");
		return CUDA_ERROR_INVALID_IMAGE;
	}
	new = calloc(1, sizeof(*new));
	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	new->ctx = ctx;
	new->ctx_id = id;
	pthread_mutex_lock(&modules_lock);
	new->next = modules;
	modules = new;
	pthread_mutex_unlock(&modules_lock);
	*module = (CUmodule)(void *)new;
	return 0;
}

int
simb_do_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
			   CUjit_option *options, void **optionValues)
{
	return simb_do_cuModuleLoadData(module, image); /* there is nothing to compile */
}

int
simb_do_cuModuleUnload(CUmodule hmod)
{
	struct module **link = &modules, *module = (struct module *)(void *)hmod;
	bool found = false;

	pthread_mutex_lock(&modules_lock);
	while (*link && *link != module)
		link = &(*link)->next;
	if (*link) {
		*link = module->next;
		found = true;
	}
	pthread_mutex_unlock(&modules_lock);
	if (!found)
		return simb_misuse(CUDA_ERROR_INVALID_HANDLE, "not a module");
	free(module);
	return 0;
}

/* The entry of a live module, and its kernel; false when there is none such. */
static bool
function_find(CUfunction function, enum sim_kernel *ret_kernel)
{
	const char *at = (const char *)(void *)function;
	bool found = false;

	pthread_mutex_lock(&modules_lock);
	for (const struct module *module = modules; module && !found; module = module->next) {
		if (at < module->functions || at >= module->functions + SIM_KERNEL_COUNT)
			continue;
		found = module_alive(module);
		*ret_kernel = (enum sim_kernel)(at - module->functions);
	}
	pthread_mutex_unlock(&modules_lock);
	return found;
}

int
simb_do_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	struct module *module;
	enum sim_kernel kernel;
	int rc = CUDA_ERROR_INVALID_HANDLE;

	if (!hfunc || !name)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE,
				   "no name, or no place for the function");
	pthread_mutex_lock(&modules_lock);
	for (module = modules; module; module = module->next)
		if (module == (struct module *)(void *)hmod && module_alive(module))
			break;
	if (module)
		rc = sim_kernel_find(name, &kernel) ? CUDA_ERROR_NOT_FOUND : 0;
	if (!rc)
		*hfunc = (CUfunction)(void *)&module->functions[kernel];
	pthread_mutex_unlock(&modules_lock);
	return rc ? simb_misuse(rc, "no such module or kernel") : 0;
}

/* The argument block of `extra`, NULL when there is none; sets *ret_n to its size in bytes. */
static const void *
extra_find(void **extra, size_t *ret_n)
{
	const void *block = NULL;

	*ret_n = 0;
	for (int i = 0; i < EXTRA_MAX && extra[0] != CU_LAUNCH_PARAM_END; i++, extra += 2) {
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			block = extra[1];
		else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			*ret_n = *(const size_t *)extra[1];
	}
	return block;
}

/* Collects the n arguments, 8 bytes each, from whichever of the two forms was given. */
static int
args_collect(uint64_t *args, unsigned n, void **params, void **extra)
{
	const void *block;
	size_t n_block;

	if (!params == !extra)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "kernelParams or extra, one of them");
	if (extra) {
		block = extra_find(extra, &n_block);
		if (!block || n_block != n * sizeof(*args))
			return simb_misuse(CUDA_ERROR_INVALID_VALUE,
					   "argument block of another size");
		memcpy(args, block, n_block);
		return 0;
	}
	for (unsigned i = 0; i < n; i++) {
		if (!params[i])
			return simb_misuse(CUDA_ERROR_INVALID_VALUE, "an argument is missing");
		memcpy(&args[i], params[i], sizeof(*args));
	}
	return 0;
}

int
simb_kernel_args(CUfunction function, void **params, void **extra, enum sim_kernel *ret_kernel,
		 uint64_t *args)
{
	if (!function_find(function, ret_kernel))
		return simb_misuse(CUDA_ERROR_INVALID_HANDLE, "not a function");
	return args_collect(args, sim_kernel_arg_count(*ret_kernel), params, extra);
}

static int
launch(CUfunction function, bool sizes_ok, CUstream stream, void **params, void **extra)
{
	uint64_t args[SIMB_ARGS_MAX];
	enum sim_kernel kernel;
	int rc;

	if (!function_find(function, &kernel))
		return simb_misuse(CUDA_ERROR_INVALID_HANDLE, "not a function");
	if (!sizes_ok)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "grid or block without threads");
	rc = args_collect(args, sim_kernel_arg_count(kernel), params, extra);
	return rc ? rc : sim_kernel_launch(kernel, args, simb_stream(stream));
}

/* Each block may have 1024 threads; how they are laid out means nothing to the built-in kernels. */
static bool
sizes_check(const unsigned *grid, const unsigned *block)
{
	uint64_t threads = (uint64_t)block[0] * block[1];

	return grid[0] && grid[1] && grid[2] && threads && block[2] && threads <= 1024 &&
	       threads * block[2] <= 1024;
}

int
simb_do_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
		       unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
		       unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
		       void **kernelParams, void **extra)
{
	const unsigned grid[] = { gridDimX, gridDimY, gridDimZ };
	const unsigned block[] = { blockDimX, blockDimY, blockDimZ };

	return launch(f, sizes_check(grid, block), hStream, kernelParams, extra);
}

/* Each launch goes to its own stream. By default they also wait for each other's streams, before
 * and after, which is not built. */
int
simb_do_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList,
					     unsigned int numDevices, unsigned int flags)
{
	const unsigned no_sync =
		3; /* CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_ and POST_LAUNCH_SYNC */
	int rc = 0;

	if (!launchParamsList || !numDevices || flags & ~no_sync)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no launches, or unknown flags");
	if (flags != no_sync)
		return simb_unbuilt("launches that wait for each other's streams");
	for (unsigned i = 0; !rc && i < numDevices; i++) {
		const CUDA_LAUNCH_PARAMS *one = &launchParamsList[i];

		rc = simb_do_cuLaunchKernel(one->function, one->gridDimX, one->gridDimY,
					    one->gridDimZ, one->blockDimX, one->blockDimY,
					    one->blockDimZ, one->sharedMemBytes, one->hStream,
					    one->kernelParams, NULL);
	}
	return rc;
}

/* True for attributes that change nothing about order or memory. */
static bool
attribute_harmless(CUlaunchAttributeID id)
{
	switch ((int)id) {
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		return true;
	default:
		return false;
	}
}

/* What the attributes ask for; *ret_event: NULL, or to be recorded. */
static int
attributes_read(const CUlaunchConfig *config, bool *ret_overlap, CUevent *ret_event)
{
	for (unsigned i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *attr = &config->attrs[i];

		switch ((int)attr->id) {
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
			*ret_overlap = attr->value.programmaticStreamSerializationAllowed;
			break;
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
		case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
			if (*ret_event)
				return simb_unbuilt("more than one launch event");
			if (!attr->value.launchCompletionEvent.event ||
			    attr->value.launchCompletionEvent.flags)
				return simb_misuse(CUDA_ERROR_INVALID_VALUE,
						   "no event, or flags for it");
			*ret_event = attr->value.launchCompletionEvent.event;
			break;
		default:
			if (!attribute_harmless(attr->id))
				return simb_unbuilt("a launch attribute");
		}
	}
	return 0;
}

int
simb_do_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
			 void **extra)
{
	uint64_t args[SIMB_ARGS_MAX];
	enum sim_kernel kernel =
		SIM_KERNEL_FILL; /* the analyzer cannot see that a misuse has a code */
	bool overlap = false;
	CUevent event = NULL;
	int rc;

	if (!config || (config->numAttrs && !config->attrs))
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no configuration");
	rc = attributes_read(config, &overlap, &event);
	if (rc)
		return rc;
	if (!overlap && !event)
		return simb_do_cuLaunchKernel(
			f, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
			config->blockDimY, config->blockDimZ, config->sharedMemBytes,
			config->hStream, kernelParams, extra);
	if (!sizes_check(&config->gridDimX, &config->blockDimX))
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "grid or block without threads");
	rc = simb_kernel_args(f, kernelParams, extra, &kernel, args);
	if (!rc)
		rc = sim_kernel_launch_programmatic(kernel, args, simb_stream(config->hStream),
						    overlap, event);
	return rc == CUDA_ERROR_NOT_SUPPORTED ? simb_unbuilt("capturing a programmatic launch")
					      : rc;
}
