/* SPDX-License-Identifier: MIT */
/*
 * The code that was loaded: modules, each of one context, and libraries, of none. Their image is
 * always "simcuda", so each has one entry for each kernel of the engine, and a CUfunction or
 * CUkernel is the address of such an entry. All are looked up among those alive before they are
 * believed. The fields of all structs here are protected by simb_code_lock.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "tests/sim/abi.h"
#include "tests/sim/engine.h"

enum {
	SIMB_FUNC_ATTRIBUTES = 18,     /* CU_FUNC_ATTRIBUTE_MAX of CUDA 13.5 */
	SIMB_BLOCK_THREADS_MAX = 1024, /* as of the device */
	SIMB_ARCHITECTURE = 90,        /* the device's compute capability, times 10 */
};

/* The attributes that were set of a function, or of a kernel on one device. */
struct simb_set_attributes {
	unsigned set; /* bit n: attribute n was set */
	int value[SIMB_FUNC_ATTRIBUTES];
};

struct simb_kernel {
	struct simb_set_attributes on_device[SIM_DEVICES_MAX];
};

struct simb_library {
	struct simb_library *next;
	struct simb_kernel kernels[SIM_KERNEL_COUNT];
};

struct simb_function {
	struct simb_set_attributes attributes;
};

struct simb_module {
	struct simb_module *next;
	CUcontext ctx; /* where it was loaded */
	unsigned long long
		ctx_id; /* that context's id: differs when it died and its handle came back */
	int device;     /* that context's device, an ordinal */
	struct simb_library *library; /* whose code it is; NULL: it was loaded by itself */
	struct simb_function functions[SIM_KERNEL_COUNT];
};

extern pthread_mutex_t simb_code_lock; /* around both lists and everything in them */

/* ------------------------------------------------------- do_module.c --- */

/* INVALID_VALUE without an image, `refusal` and a note for an image that is not "simcuda". */
int simb_image_check(const void *image, int refusal);
/* The module of the library in the current context, loaded if it is not yet; takes the lock. */
int simb_module_of_library(struct simb_library *library, struct simb_module **ret_module);
/* Forgets the library's modules. */
void simb_modules_unload_locked(const struct simb_library *library);
/* The live module with this function; NULL: there is none. */
struct simb_module *simb_function_find_locked(CUfunction function, enum sim_kernel *ret_kernel);
/* The kernel that a CUfunction, or a CUkernel in its place, stands for; false: it is neither. */
bool simb_function_find(CUfunction function, enum sim_kernel *ret_kernel);

/* ----------------------------------------------------- do_function.c --- */

/* What of an attribute was set, in `first` or else in `second` (NULL: there is none), or the
 * built-in kernels' own. */
int simb_attribute_get(CUfunction_attribute attribute, const struct simb_set_attributes *first,
		       const struct simb_set_attributes *second, int *ret_value);
int simb_attribute_set(CUfunction_attribute attribute, int value, int device,
		       struct simb_set_attributes *attributes);
/* Where the kernel's argument number `index` lies, and its size (NULL: not wanted), in bytes. */
int simb_argument_place(enum sim_kernel kernel, size_t index, size_t *ret_offset,
			size_t *ret_n_bytes);
int simb_cache_check(CUfunc_cache config);

/* ------------------------------------------------------ do_library.c --- */

/* The live library with this kernel; NULL: it is no kernel. */
struct simb_library *simb_kernel_find_locked(CUkernel kernel, enum sim_kernel *ret_kernel);
