/* SPDX-License-Identifier: MIT */
/*
 * Bodies: what can be asked and set of a function, and of a kernel on a device (do_library.c).
 * Nothing is known of the device code of the built-in kernels, since they have none: sizes and
 * registers are 0, and the architecture is the device's. What was set is kept and read back, and
 * changes no launch.
 */
#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/code.h"

/* An attribute that nobody set. */
static int
attribute_own(CUfunction_attribute attribute)
{
	switch ((int)attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		return SIMB_BLOCK_THREADS_MAX;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		return SIMB_ARCHITECTURE;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		return 48 << 10; /* a block's own limit, without opting in */
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		return -1; /* no preference */
	default:
		return 0;
	}
}

int
simb_attribute_get(CUfunction_attribute attribute, const struct simb_set_attributes *first,
		   const struct simb_set_attributes *second, int *ret_value)
{
	if ((unsigned)attribute >= SIMB_FUNC_ATTRIBUTES || !ret_value)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE,
				   "no such attribute, or no place for its value");
	if (first->set & 1U << attribute)
		*ret_value = first->value[attribute];
	else if (second && second->set & 1U << attribute)
		*ret_value = second->value[attribute];
	else
		*ret_value = attribute_own(attribute);
	return 0;
}

/* True for what may be set, and to this value. */
static bool
attribute_settable(CUfunction_attribute attribute, int value, int device)
{
	int most = 0;

	switch ((int)attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		return !simb_do_cuDeviceGetAttribute(
			       &most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
			       device) &&
		       value >= 0 && value <= most;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		return value >= -1 && value <= 100;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_FUNC_ATTRIBUTE_SHARED_MEMORY_MODE:
		return value >= 0;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		return value == 0 || value == 1;
	default:
		return false;
	}
}

int
simb_attribute_set(CUfunction_attribute attribute, int value, int device,
		   struct simb_set_attributes *attributes)
{
	if (!attribute_settable(attribute, value, device))
		return simb_misuse(CUDA_ERROR_INVALID_VALUE,
				   "an attribute that cannot be set, or not to this value");
	attributes->set |= 1U << attribute;
	attributes->value[attribute] = value;
	return 0;
}

int
simb_argument_place(enum sim_kernel kernel, size_t index, size_t *ret_offset, size_t *ret_n_bytes)
{
	if (index >= sim_kernel_arg_count(kernel) || !ret_offset)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE,
				   "no such argument, or no place for the answer");
	*ret_offset = index * sizeof(uint64_t);
	if (ret_n_bytes)
		*ret_n_bytes = sizeof(uint64_t);
	return 0;
}

/* ------------------------------------------------------- functions --- */

/* The values of a library's kernel apply to its functions unless a function has its own. */
int
simb_do_cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
	const struct simb_set_attributes *of_kernel = NULL;
	enum sim_kernel kernel = SIM_KERNEL_COUNT;
	struct simb_module *module;
	int rc = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&simb_code_lock);
	module = simb_function_find_locked(hfunc, &kernel);
	if (module && module->library)
		of_kernel = &module->library->kernels[kernel].on_device[module->device];
	if (module)
		rc = simb_attribute_get(attrib, &module->functions[kernel].attributes, of_kernel,
					pi);
	pthread_mutex_unlock(&simb_code_lock);
	return module ? rc : simb_misuse(rc, "not a function");
}

int
simb_do_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
	enum sim_kernel kernel = SIM_KERNEL_COUNT;
	struct simb_module *module;
	int rc = CUDA_ERROR_INVALID_HANDLE;

	pthread_mutex_lock(&simb_code_lock);
	module = simb_function_find_locked(hfunc, &kernel);
	if (module)
		rc = simb_attribute_set(attrib, value, module->device,
					&module->functions[kernel].attributes);
	pthread_mutex_unlock(&simb_code_lock);
	return module ? rc : simb_misuse(rc, "not a function");
}

/* 0 and the function's kernel and module, or INVALID_HANDLE. */
static int
function_check(CUfunction function, enum sim_kernel *ret_kernel, struct simb_module **ret_module)
{
	pthread_mutex_lock(&simb_code_lock);
	*ret_module = simb_function_find_locked(function, ret_kernel);
	pthread_mutex_unlock(&simb_code_lock);
	return *ret_module ? 0 : simb_misuse(CUDA_ERROR_INVALID_HANDLE, "not a function");
}

int
simb_cache_check(CUfunc_cache config)
{
	return (unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL
		       ? 0
		       : simb_misuse(CUDA_ERROR_INVALID_VALUE, "no such preference");
}

/* A hint, which a driver may ignore, and this one does. */
int
simb_do_cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
	enum sim_kernel kernel;
	struct simb_module *module;
	int rc = function_check(hfunc, &kernel, &module);

	return rc ? rc : simb_cache_check(config);
}

int
simb_do_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
	enum sim_kernel kernel;
	struct simb_module *module;
	int rc = function_check(hfunc, &kernel, &module);

	if (!rc && !hmod)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the module");
	if (!rc)
		*hmod = (CUmodule)(void *)module;
	return rc;
}

int
simb_do_cuFuncGetName(const char **name, CUfunction hfunc)
{
	enum sim_kernel kernel = SIM_KERNEL_COUNT;
	struct simb_module *module;
	int rc = function_check(hfunc, &kernel, &module);

	if (!rc && !name)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the name");
	if (!rc)
		*name = sim_kernel_name(kernel);
	return rc;
}

int
simb_do_cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset,
			   size_t *paramSize)
{
	enum sim_kernel kernel = SIM_KERNEL_COUNT;
	struct simb_module *module;
	int rc = function_check(func, &kernel, &module);

	return rc ? rc : simb_argument_place(kernel, paramIndex, paramOffset, paramSize);
}

int
simb_do_cuFuncGetParamCount(CUfunction func, size_t *paramCount)
{
	enum sim_kernel kernel = SIM_KERNEL_COUNT;
	struct simb_module *module;
	int rc = function_check(func, &kernel, &module);

	if (!rc && !paramCount)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the number");
	if (!rc)
		*paramCount = sim_kernel_arg_count(kernel);
	return rc;
}

/* A module is loaded as a whole. */
int
simb_do_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
	enum sim_kernel kernel;
	struct simb_module *module;
	int rc = function_check(function, &kernel, &module);

	if (!rc && !state)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the state");
	if (!rc)
		*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return rc;
}

int
simb_do_cuFuncLoad(CUfunction function)
{
	enum sim_kernel kernel;
	struct simb_module *module;

	return function_check(function, &kernel, &module);
}
