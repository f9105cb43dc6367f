/* SPDX-License-Identifier: MIT */
/* Small libraries around the probe, one for each -DKIND_... */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(KIND_CHAIN)
/* LEVEL 2, 1, 0 in load order: each asks for the next one's `chain_next`, twice (a lost caller
 * finds itself: endless). */
int chain_next(int depth);

int
chain_next(int depth)
{
#if LEVEL > 0
	int (*next)(int) = NULL;

	if (depth > 10)
		abort();
	for (int i = 0; i < 2; i++) {
		next = (int (*)(int))dlsym(RTLD_NEXT, "chain_next");
		if (!next || next == chain_next)
			return -1000;
	}
	return LEVEL * 10 + next(depth + 1);
#else
	return 1;
#endif
}
#if LEVEL == 1
/* As OpenMP runtimes and tools do: a weak default, and a tool's one behind it. */
__attribute__((weak)) void *
ompt_start_tool(unsigned version, const char *name)
{
	void *(*next)(unsigned, const char *) =
		(void *(*)(unsigned, const char *))dlsym(RTLD_NEXT, "ompt_start_tool");

	return next ? next(version, name) : NULL;
}
#elif LEVEL == 0
void *
ompt_start_tool(unsigned version, const char *name)
{
	return (void *)0x0417;
}
#endif

#elif defined(KIND_PLUGIN)
/* Loaded RTLD_LOCAL: its own names are in its scope only. */
int
plugin_own(void)
{
	return 42;
}
int
plugin_default(void)
{
	return dlsym(RTLD_DEFAULT, "plugin_own") == (void *)plugin_own;
}
/* Its own cu* name too, which no scope but its own has. */
int
cuPluginOwn(void)
{
	return 43;
}
int
plugin_default_cu(void)
{
	return dlsym(RTLD_DEFAULT, "cuPluginOwn") == (void *)cuPluginOwn;
}
/* By RUNPATH $ORIGIN, which is the plugin's. */
int
plugin_sibling(void)
{
	void *handle = dlopen("libsibling.so", RTLD_NOW | RTLD_LOCAL);

	return handle && dlsym(handle, "cudnnCreate");
}

#elif defined(KIND_SIBLING)
/* Names that begin like the driver's and are not;
 * and one that is the driver's, in a library that is not. */
int
cudnnCreate(void)
{
	return 1;
}
int
cublasCreate_v2(void)
{
	return 2;
}
int
curl_x(void)
{
	return 3;
}
int
cuMemAlloc_v2(void)
{
	return 4;
}
int
cuUnheardOf(void)
{
	return 5;
}
/* cuDNN 9 asks for its own names by dlsym(NULL, ...) */
int
sibling_self(void)
{
	return dlsym(RTLD_DEFAULT, "cudnnCreate") == (void *)cudnnCreate;
}

#elif defined(KIND_OTHER)
/* Another preloaded wrapper, of the common kind: dlsym in C, found by dlvsym; one entry point,
 * chained by RTLD_NEXT. */
static int allocs, lookups;

#if defined(__x86_64__)
#define BASE_VERSION "GLIBC_2.2.5"
#else
#define BASE_VERSION "GLIBC_2.17"
#endif
void *
dlsym(void *restrict handle, const char *restrict name)
{
	static void *(*real)(void *, const char *);

	lookups++;
	if (lookups > 100000)
		abort();
	if (!real)
		real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", BASE_VERSION);
	return real(handle, name);
}

int
cuMemAlloc_v2(unsigned long long *dptr, size_t size)
{
	int (*next)(unsigned long long *, size_t) =
		(int (*)(unsigned long long *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");

	if (++allocs > 1000)
		abort();
	return next ? next(dptr, size) : 3;
}

/* What it gets where it asks libc for dlsym by name, as some fall back to. */
void *
other_libc_dlsym(void)
{
	void *(*visible)(void *, const char *) = (void *(*)(void *, const char *))dlsym(
		dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), "dlsym");

	return (void *)visible;
}
int
other_allocs(void)
{
	return allocs;
}
int
other_lookups(void)
{
	return lookups;
}
#endif
