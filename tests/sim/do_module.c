/* SPDX-License-Identifier: MIT */
/*
 * Bodies: modules and their functions; see code.h. Modules die with their context, which shows in
 * the context's id. The module that a library has in a context is loaded when it is first asked
 * for, as with the driver's lazy loading, and goes with the library.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/bodies.h"
#include "tests/sim/call.h"
#include "tests/sim/code.h"

pthread_mutex_t simb_code_lock = PTHREAD_MUTEX_INITIALIZER;
static struct simb_module *modules; /* all loaded and not unloaded */

static bool
module_alive(const struct simb_module *module)
{
	unsigned long long id;

	return !sim_ctx_get_id(module->ctx, &id) && id == module->ctx_id;
}

int
simb_image_check(const void *image, int refusal)
{
	if (!image)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no image");
	if (!strncmp(image, "simcuda", sizeof("simcuda")))
		return 0;
	simb_note("this image is not \"simcuda\", and device code cannot be run");
	return refusal;
}

/* An empty module of the current context, in no list yet. */
static int
module_new(struct simb_module **ret_module)
{
	struct simb_module *module;
	int rc = sim_ctx_error();

	if (rc)
		return rc;
	module = calloc(1, sizeof(*module));
	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	rc = sim_ctx_get_id(NULL, &module->ctx_id);
	if (!rc)
		rc = sim_ctx_get_current(&module->ctx);
	if (!rc)
		rc = sim_ctx_get_device(&module->device);
	if (rc)
		free(module);
	else
		*ret_module = module;
	return rc;
}

int
simb_do_cuModuleLoadData(CUmodule *module, const void *image)
{
	struct simb_module *new = NULL;
	int rc = sim_ctx_error();

	if (!rc && !module)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE, "no place for the module");
	if (!rc)
		rc = simb_image_check(image, CUDA_ERROR_INVALID_IMAGE);
	if (!rc)
		rc = module_new(&new);
	if (rc)
		return rc;
	pthread_mutex_lock(&simb_code_lock);
	new->next = modules;
	modules = new;
	pthread_mutex_unlock(&simb_code_lock);
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
simb_module_of_library(struct simb_library *library, struct simb_module **ret_module)
{
	struct simb_module *new = NULL, *module;
	int rc = module_new(&new);

	if (rc)
		return rc;
	pthread_mutex_lock(&simb_code_lock);
	for (module = modules; module; module = module->next)
		if (module->library == library && module->ctx_id == new->ctx_id)
			break;
	if (module) {
		free(new);
	} else {
		module = new;
		module->library = library;
		module->next = modules;
		modules = module;
	}
	pthread_mutex_unlock(&simb_code_lock);
	*ret_module = module;
	return 0;
}

void
simb_modules_unload_locked(const struct simb_library *library)
{
	struct simb_module **link = &modules, *module;

	while ((module = *link)) {
		if (module->library != library) {
			link = &module->next;
			continue;
		}
		*link = module->next;
		free(module);
	}
}

int
simb_do_cuModuleUnload(CUmodule hmod)
{
	struct simb_module **link = &modules, *module = (struct simb_module *)(void *)hmod;
	int rc = 0;

	pthread_mutex_lock(&simb_code_lock);
	while (*link && *link != module)
		link = &(*link)->next;
	if (!*link)
		rc = CUDA_ERROR_INVALID_HANDLE;
	else if (module->library)
		rc = CUDA_ERROR_NOT_PERMITTED;
	else
		*link = module->next;
	pthread_mutex_unlock(&simb_code_lock);
	if (rc)
		return simb_misuse(rc, "not a module, or a library's");
	free(module);
	return 0;
}

struct simb_module *
simb_function_find_locked(CUfunction function, enum sim_kernel *ret_kernel)
{
	for (struct simb_module *module = modules; module; module = module->next) {
		for (int i = 0; i < SIM_KERNEL_COUNT; i++) {
			if ((CUfunction)(void *)&module->functions[i] != function)
				continue;
			*ret_kernel = (enum sim_kernel)i;
			return module_alive(module) ? module : NULL;
		}
	}
	return NULL;
}

bool
simb_function_find(CUfunction function, enum sim_kernel *ret_kernel)
{
	bool found;

	pthread_mutex_lock(&simb_code_lock);
	found = simb_function_find_locked(function, ret_kernel) ||
		simb_kernel_find_locked((CUkernel)(void *)function, ret_kernel);
	pthread_mutex_unlock(&simb_code_lock);
	return found;
}

int
simb_do_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	struct simb_module *module;
	enum sim_kernel kernel;
	int rc = CUDA_ERROR_INVALID_HANDLE;

	if (!hfunc || !name)
		return simb_misuse(CUDA_ERROR_INVALID_VALUE,
				   "no name, or no place for the function");
	pthread_mutex_lock(&simb_code_lock);
	for (module = modules; module; module = module->next)
		if (module == (struct simb_module *)(void *)hmod && module_alive(module))
			break;
	if (module)
		rc = sim_kernel_find(name, &kernel) ? CUDA_ERROR_NOT_FOUND : 0;
	if (!rc)
		*hfunc = (CUfunction)(void *)&module->functions[kernel];
	pthread_mutex_unlock(&simb_code_lock);
	return rc ? simb_misuse(rc, "no such module or kernel") : 0;
}
