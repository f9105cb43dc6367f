/* SPDX-License-Identifier: MIT */
/*
 * A libcuda.so.1 that is all about names: several ABIs and flavours of one base name, addresses
 * that cuGetProcAddress gives and the symbol table does not, and entry points that no CUDA we know
 * has.
 *
 *   LOADER_ALIAS=1    cuGetProcAddress answers with other addresses than dlsym (same behaviour)
 *   LOADER_REENTER=1  the constructor and cuGetProcAddress_v2 call dlsym on this library, and the
 * resolver calls itself through its exported name
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "names.h"

static atomic_int calls;
int cuNewData = 77;

int
fixture_calls(void)
{
	return calls;
}

#define ANSWER(symbol, code, ...)                                                                  \
	int symbol(__VA_ARGS__)                                                                    \
	{                                                                                          \
		calls++;                                                                           \
		return code;                                                                       \
	}
ANSWER(cuInit, 0, unsigned flags)
ANSWER(cuMemFree, 132, unsigned dptr)
ANSWER(cuMemFree_v2, 164, unsigned long long dptr)
ANSWER(cuMemFreeAsync, 201, unsigned long long dptr, void *stream)
ANSWER(cuMemFreeAsync_ptsz, 202, unsigned long long dptr, void *stream)
ANSWER(cuStreamBeginCapture, 203, void *stream)
ANSWER(cuStreamBeginCapture_ptsz, 204, void *stream)
ANSWER(cuStreamBeginCapture_v2, 205, void *stream, int mode)
ANSWER(cuStreamBeginCapture_v2_ptsz, 206, void *stream, int mode)

int
cuDriverGetVersion(int *version)
{
	*version = 13000;
	return 0;
}

/* the 32-bit ABI of CUDA 2 */
int
cuMemAlloc(unsigned *dptr, unsigned size)
{
	calls++;
	*dptr = 32;
	return 0;
}

int
cuMemAlloc_v2(unsigned long long *dptr, size_t size)
{
	calls++;
	*dptr = 64 + size;
	return 0;
}

/* The same behaviour at addresses that the symbol table does not have. */
static int
alias_alloc(unsigned long long *dptr, size_t size)
{
	calls++;
	*dptr = 64 + size;
	return 0;
}

static int
alias_free_async(unsigned long long dptr, void *stream)
{
	calls++;
	return 201;
}
static int
alias_free_async_ptsz(unsigned long long dptr, void *stream)
{
	calls++;
	return 202;
}
static int
free_v3(unsigned long long dptr, int more)
{
	calls++;
	return 300;
}

double
cuNewThing(int a, double b, const char *c, float d, long e, long f, long g, long h, double i,
	   short j)
{
	calls++;
	return a + b + (double)strlen(c) + d + (double)(e * 10 + f * 100 + g * 1000 + h * 10000) +
	       i * 100000 + j;
}

static int lookup(const char *name, void **pfn, int version, unsigned long long flags, int *status);

int
cuGetProcAddress(const char *name, void **pfn, int version, unsigned long long flags)
{
	return lookup(name, pfn, version, flags, NULL);
}

static void reenter(void);

int
cuGetProcAddress_v2(const char *name, void **pfn, int version, unsigned long long flags,
		    int *status)
{
	reenter();
	return lookup(name, pfn, version, flags, status);
}

struct entry {
	const char *base;
	int version, per_thread;
	void *fn;
};

static int
lookup(const char *name, void **pfn, int version, unsigned long long flags, int *status)
{
	int alias = getenv("LOADER_ALIAS") != NULL;
	const struct entry entries[] = {
		{ "cuInit", 2000, 0, cuInit },
		{ "cuMemAlloc", 2000, 0, cuMemAlloc },
		{ "cuMemAlloc", 3020, 0, alias ? (void *)alias_alloc : (void *)cuMemAlloc_v2 },
		{ "cuMemFree", 2000, 0, cuMemFree },
		{ "cuMemFree", 3020, 0, cuMemFree_v2 },
		{ "cuMemFree", 14000, 0, free_v3 },
		{ "cuMemFreeAsync", 11020, 0,
		  alias ? (void *)alias_free_async : (void *)cuMemFreeAsync },
		{ "cuMemFreeAsync", 11020, 1,
		  alias ? (void *)alias_free_async_ptsz : (void *)cuMemFreeAsync_ptsz },
		{ "cuStreamBeginCapture", 10000, 0, cuStreamBeginCapture },
		{ "cuStreamBeginCapture", 10000, 1, cuStreamBeginCapture_ptsz },
		{ "cuStreamBeginCapture", 10010, 0, cuStreamBeginCapture_v2 },
		{ "cuStreamBeginCapture", 10010, 1, cuStreamBeginCapture_v2_ptsz },
		{ "cuNewThing", 13010, 0, cuNewThing },
		{ "cuGetProcAddress", 11030, 0, cuGetProcAddress },
		{ "cuGetProcAddress", 12000, 0, cuGetProcAddress_v2 },
	};
	const struct entry *best = NULL;
	int named = 0;

	if (!name || !pfn || version > 15000)
		return 1;
	for (unsigned i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
		const struct entry *e = &entries[i];

		if (strcmp(e->base, name))
			continue;
		named = 1;
		if (e->version <= version && (!e->per_thread || flags == 2) &&
		    (!best || e->version >= best->version))
			best = e;
	}
	if (status)
		*status = best ? 0 : named ? 2 : 1;
	if (best)
		*pfn = best->fn;
	else if (strcmp(name, "cuLeavesGarbage"))
		*pfn = NULL;
	return best || strcmp(name, "cuFails") ? 0 : 500;
}

/* What a driver's own start does: ask for its own names and get its own functions. */
static void
reenter(void)
{
	static __thread int depth;
	void *self, *found;

	if (!getenv("LOADER_REENTER") || depth)
		return;
	depth++;
	self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (self && dlsym(self, "cuMemAlloc_v2") != (void *)cuMemAlloc_v2) {
		fprintf(stderr, "driver: not its own cuMemAlloc_v2\n");
		abort();
	}
	int (*exported)(const char *, void **, int, unsigned long long, int *) =
		(int (*)(const char *, void **, int, unsigned long long, int *))dlsym(
			RTLD_DEFAULT, "cuGetProcAddress_v2");
	if (exported)
		exported("cuInit", &found, 12000, 0, NULL);
	depth--;
}

__attribute__((constructor)) static void
start(void)
{
	reenter();
}
