/* SPDX-License-Identifier: MIT */
/*
 * Code, and limits of a context: the driver keeps both in the device's memory. Code may be loaded
 * as late as when a function is first asked for.
 */
#include "shim/hooks/hook.h"
#include "shim/hooks/oom_retry.h"

#define WITH_ROOM(symbol, params, args)                                                            \
	CUresult symbol params                                                                     \
	{                                                                                          \
		CA_HOOK_REAL(real, symbol);                                                        \
		return CA_ROOM(real, real->symbol args);                                           \
	}

WITH_ROOM(cuModuleLoad, (CUmodule * module, const char *fname), (module, fname))
WITH_ROOM(cuModuleLoadData, (CUmodule * module, const void *image), (module, image))
WITH_ROOM(cuModuleLoadDataEx,
	  (CUmodule * module, const void *image, unsigned int numOptions, CUjit_option *options,
	   void **optionValues),
	  (module, image, numOptions, options, optionValues))
WITH_ROOM(cuModuleLoadFatBinary, (CUmodule * module, const void *fatCubin), (module, fatCubin))
WITH_ROOM(cuModuleGetFunction, (CUfunction * hfunc, CUmodule hmod, const char *name),
	  (hfunc, hmod, name))
WITH_ROOM(cuLibraryLoadData,
	  (CUlibrary * library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
	   unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
	   unsigned int numLibraryOptions),
	  (library, code, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
	   libraryOptionValues, numLibraryOptions))
WITH_ROOM(cuLibraryLoadFromFile,
	  (CUlibrary * library, const char *fileName, CUjit_option *jitOptions,
	   void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
	   void **libraryOptionValues, unsigned int numLibraryOptions),
	  (library, fileName, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
	   libraryOptionValues, numLibraryOptions))
WITH_ROOM(cuKernelGetFunction, (CUfunction * pFunc, CUkernel kernel), (pFunc, kernel))
WITH_ROOM(cuFuncLoad, (CUfunction function), (function))
WITH_ROOM(cuCtxSetLimit, (CUlimit limit, size_t value), (limit, value))
