/* SPDX-License-Identifier: MIT */
/*
 * Bodies: the launch of built-in kernels, by a CUfunction or by a CUkernel in its place (code.h).
 * The context is the stream's, and the current one's where the stream is NULL.
 */
#include <string.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/code.h"
#include "tests/sim/engine.h"

enum {
	EXTRA_MAX = 8, /* entries of cuLaunchKernel's `extra` before we call it endless */
};

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
	if (!simb_function_find(function, ret_kernel))
		return simb_misuse(CUDA_ERROR_INVALID_HANDLE, "not a function");
	return args_collect(args, sim_kernel_arg_count(*ret_kernel), params, extra);
}

static int
launch(CUfunction function, bool sizes_ok, CUstream stream, void **params, void **extra)
{
	uint64_t args[SIMB_ARGS_MAX];
	enum sim_kernel kernel;
	int rc;

	if (!simb_function_find(function, &kernel))
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

	return grid[0] && grid[1] && grid[2] && threads && block[2] &&
	       threads <= SIMB_BLOCK_THREADS_MAX && threads * block[2] <= SIMB_BLOCK_THREADS_MAX;
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
