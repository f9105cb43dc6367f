/* SPDX-License-Identifier: MIT */
/*
 * Bodies: libraries and their kernels; see code.h. A library belongs to no context, and its kernels
 * are launched as they are, in the context of the launch. Its code has no variables and no
 * functions that the host can call: to ask for one answers NOT_FOUND, whatever the name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/code.h"

static struct simb_library *libraries; /* all loaded and not unloaded */

static int
options_check(const CUlibraryOption *options, unsigned n)
{
	if (n && !options)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no options, and a number of them");
	for (unsigned i = 0; i < n; i++) {
		if ((int)options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE)
			return simb_unbuilt("a library's universal table");
		if ((int)options[i] != CU_LIBRARY_BINARY_IS_PRESERVED)
			return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no such option");
	}
	return 0;
}

int
simb_do_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
			  void **jitOptionsValues, unsigned int numJitOptions,
			  CUlibraryOption *libraryOptions, void **libraryOptionValues,
			  unsigned int numLibraryOptions)
{
	struct simb_library *new;
	int rc = options_check(libraryOptions, numLibraryOptions);

	if (!rc && !library)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the library");
	if (!rc)
		rc = simb_image_check(code, CUDA_ERROR_NO_BINARY_FOR_GPU);
	if (rc)
		return rc;
	new = calloc(1, sizeof(*new));
	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&simb_code_lock);
	new->next = libraries;
	libraries = new;
	pthread_mutex_unlock(&simb_code_lock);
	*library = (CUlibrary)(void *)new;
	return 0;
}

int
simb_do_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
			      void **jitOptionsValues, unsigned int numJitOptions,
			      CUlibraryOption *libraryOptions, void **libraryOptionValues,
			      unsigned int numLibraryOptions)
{
	char image[sizeof("simcuda") + 1] = "";
	FILE *file;
	size_t n;

	if (!fileName)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no file's name");
	file = fopen(fileName, "re");
	if (!file)
		return CUDA_ERROR_FILE_NOT_FOUND;
	n = fread(image, 1, sizeof(image) - 1, file);
	fclose(file);
	image[n < sizeof(image) ? n : 0] = '\0';
	return simb_do_cuLibraryLoadData(library, image, jitOptions, jitOptionsValues,
					 numJitOptions, libraryOptions, libraryOptionValues,
					 numLibraryOptions);
}

static struct simb_library *
library_find_locked(CUlibrary library)
{
	struct simb_library *one = libraries;

	while (one && one != (struct simb_library *)(void *)library)
		one = one->next;
	return one;
}

static int
no_place(void)
{
	return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no name, or no place for the answer");
}

/* 0, or INVALID_HANDLE for what is no library. */
static int
library_check(CUlibrary library)
{
	bool found;

	pthread_mutex_lock(&simb_code_lock);
	found = library_find_locked(library);
	pthread_mutex_unlock(&simb_code_lock);
	return found ? 0 : simb_misuse(CUDA_ERROR_INVALID_HANDLE, "not a library");
}

int
simb_do_cuLibraryUnload(CUlibrary library)
{
	struct simb_library **link = &libraries, *one;

	pthread_mutex_lock(&simb_code_lock);
	one = library_find_locked(library);
	while (one && *link != one)
		link = &(*link)->next;
	if (one) {
		*link = one->next;
		simb_modules_unload_locked(one);
	}
	pthread_mutex_unlock(&simb_code_lock);
	if (!one)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "not a library");
	free(one);
	return 0;
}

static CUkernel
kernel_handle(CUlibrary library, enum sim_kernel kernel)
{
	return (CUkernel)(void *)&((struct simb_library *)(void *)library)->kernels[kernel];
}

int
simb_do_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
	enum sim_kernel kernel = SIM_KERNEL_COUNT;
	int rc = library_check(library);

	if (!rc && (!pKernel || !name))
		return no_place();
	if (!rc && sim_kernel_find(name, &kernel))
		rc = simb_misuse(CUDA_ERROR_NOT_FOUND, "no such kernel");
	if (!rc)
		*pKernel = kernel_handle(library, kernel);
	return rc;
}

int
simb_do_cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
	int rc = library_check(lib);

	if (!rc && !count)
		return no_place();
	if (!rc)
		*count = SIM_KERNEL_COUNT;
	return rc;
}

int
simb_do_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
	int rc = library_check(lib);

	if (!rc && !kernels && numKernels)
		return no_place();
	for (unsigned i = 0; !rc && i < numKernels && i < SIM_KERNEL_COUNT; i++)
		kernels[i] = kernel_handle(lib, (enum sim_kernel)i);
	return rc;
}

int
simb_do_cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
	struct simb_module *module;
	int rc = library_check(library);

	if (!rc && !pMod)
		return no_place();
	if (!rc)
		rc = simb_module_of_library((struct simb_library *)(void *)library, &module);
	if (!rc)
		*pMod = (CUmodule)(void *)module;
	return rc;
}

/* A variable, in the context that is current, or a managed one. */
int
simb_do_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	int rc = library_check(library);

	if (!rc && ((!dptr && !bytes) || !name))
		return no_place();
	if (!rc)
		rc = sim_ctx_error();
	return rc ? rc : simb_do_cuLibraryGetManaged(dptr, bytes, library, name);
}

int
simb_do_cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	int rc = library_check(library);

	if (!rc && ((!dptr && !bytes) || !name))
		return no_place();
	return rc ? rc : simb_misuse(CUDA_ERROR_NOT_FOUND, "the built-in code has no variables");
}

int
simb_do_cuLibraryGetUnifiedFunction(void **fptr, CUlibrary library, const char *symbol)
{
	int rc = library_check(library);

	if (!rc && (!fptr || !symbol))
		return no_place();
	return rc ? rc
		  : simb_misuse(CUDA_ERROR_NOT_FOUND, "the built-in code has no unified functions");
}

/* --------------------------------------------------------- kernels --- */

struct simb_library *
simb_kernel_find_locked(CUkernel kernel, enum sim_kernel *ret_kernel)
{
	for (struct simb_library *library = libraries; library; library = library->next) {
		for (int i = 0; i < SIM_KERNEL_COUNT; i++) {
			if ((CUkernel)(void *)&library->kernels[i] != kernel)
				continue;
			*ret_kernel = (enum sim_kernel)i;
			return library;
		}
	}
	return NULL;
}

/* 0 and the kernel, or INVALID_HANDLE. */
static int
kernel_check(CUkernel handle, enum sim_kernel *ret_kernel, struct simb_library **ret_library)
{
	pthread_mutex_lock(&simb_code_lock);
	*ret_library = simb_kernel_find_locked(handle, ret_kernel);
	pthread_mutex_unlock(&simb_code_lock);
	return *ret_library ? 0 : simb_misuse(CUDA_ERROR_INVALID_HANDLE, "not a kernel");
}

int
simb_do_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
	enum sim_kernel number = SIM_KERNEL_COUNT;
	struct simb_library *library;
	struct simb_module *module = NULL;
	int rc = kernel_check(kernel, &number, &library);

	if (!rc && !pFunc)
		return no_place();
	if (!rc)
		rc = simb_module_of_library(library, &module);
	if (!rc)
		*pFunc = (CUfunction)(void *)&module->functions[number];
	return rc;
}

int
simb_do_cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
	enum sim_kernel number;
	struct simb_library *library;
	int rc = kernel_check(kernel, &number, &library);

	if (!rc && !pLib)
		return no_place();
	if (!rc)
		*pLib = (CUlibrary)(void *)library;
	return rc;
}

int
simb_do_cuKernelGetName(const char **name, CUkernel hfunc)
{
	enum sim_kernel number = SIM_KERNEL_COUNT;
	struct simb_library *library;
	int rc = kernel_check(hfunc, &number, &library);

	if (!rc && !name)
		return no_place();
	if (!rc)
		*name = sim_kernel_name(number);
	return rc;
}

int
simb_do_cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset,
			     size_t *paramSize)
{
	enum sim_kernel number = SIM_KERNEL_COUNT;
	struct simb_library *library;
	int rc = kernel_check(kernel, &number, &library);

	return rc ? rc : simb_argument_place(number, paramIndex, paramOffset, paramSize);
}

int
simb_do_cuKernelGetParamCount(CUkernel kernel, size_t *paramCount)
{
	enum sim_kernel number = SIM_KERNEL_COUNT;
	struct simb_library *library;
	int rc = kernel_check(kernel, &number, &library);

	if (!rc && !paramCount)
		return no_place();
	if (!rc)
		*paramCount = sim_kernel_arg_count(number);
	return rc;
}

/* 0, or INVALID_DEVICE. */
static int
device_check(CUdevice dev)
{
	return dev >= 0 && dev < sim_device_count()
		       ? 0
		       : simb_misuse(CUDA_ERROR_INVALID_DEVICE, "no such device");
}

int
simb_do_cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
	enum sim_kernel number = SIM_KERNEL_COUNT;
	struct simb_library *library;
	int rc = device_check(dev);

	if (rc)
		return rc;
	pthread_mutex_lock(&simb_code_lock);
	library = simb_kernel_find_locked(kernel, &number);
	if (library)
		rc = simb_attribute_get(attrib, &library->kernels[number].on_device[dev], NULL, pi);
	pthread_mutex_unlock(&simb_code_lock);
	return library ? rc : simb_misuse(CUDA_ERROR_INVALID_HANDLE, "not a kernel");
}

int
simb_do_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
	enum sim_kernel number = SIM_KERNEL_COUNT;
	struct simb_library *library;
	int rc = device_check(dev);

	if (rc)
		return rc;
	pthread_mutex_lock(&simb_code_lock);
	library = simb_kernel_find_locked(kernel, &number);
	if (library)
		rc = simb_attribute_set(attrib, val, dev, &library->kernels[number].on_device[dev]);
	pthread_mutex_unlock(&simb_code_lock);
	return library ? rc : simb_misuse(CUDA_ERROR_INVALID_HANDLE, "not a kernel");
}

/* A hint, as simb_do_cuFuncSetCacheConfig. */
int
simb_do_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
	enum sim_kernel number;
	struct simb_library *library;
	int rc = device_check(dev);

	if (!rc)
		rc = kernel_check(kernel, &number, &library);
	return rc ? rc : simb_cache_check(config);
}
