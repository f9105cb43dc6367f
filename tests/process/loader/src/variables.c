/* SPDX-License-Identifier: MIT */
/*
 * Libraries around variables that are named like the driver's functions.
 *
 *   KIND_HOLDER     defines them, and fills them by dlsym: in holder_load, or with -DEARLY in its
 *                   constructor; -DLATE: after another dlsym
 *   KIND_READER     reads those of the holder that it is linked to
 *   KIND_WRAPPER    of malloc: each call asks dlsym
 *   KIND_CALLER     is linked to the driver, whose functions it reaches by words of the same
 *                   kind as those of variables (-fno-plt)
 */
#include <dlfcn.h>
#include <stddef.h>

typedef int alloc_fn(unsigned long long *, size_t);
typedef int free_fn(unsigned long long);

#ifdef KIND_HOLDER
int (*cuInit)(unsigned);
int (*cuDevicePrimaryCtxRetain)(void **, int);
int (*cuCtxSetCurrent)(void *);
alloc_fn *cuMemAlloc_v2;
free_fn *cuMemFree_v2;

static struct {
	const char *name;
	void **variable; /* a plain address in data */
} table[] = {
	{ "cuMemFree_v2", (void **)&cuMemFree_v2 },
};
static int was_set; /* before anybody wrote */

void
holder_load(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;

	was_set |= cuMemAlloc_v2 || *table[0].variable;
	*(void **)&cuInit = dlsym(driver, "cuInit");
	*(void **)&cuDevicePrimaryCtxRetain = dlsym(driver, "cuDevicePrimaryCtxRetain");
	*(void **)&cuCtxSetCurrent = dlsym(driver, "cuCtxSetCurrent");
	*(void **)&cuMemAlloc_v2 = dlsym(driver, "cuMemAlloc_v2");
	*table[0].variable = dlsym(driver, table[0].name);
	if (cuInit)
		cuInit(0);
	if (cuDevicePrimaryCtxRetain && !cuDevicePrimaryCtxRetain(&context, 0))
		cuCtxSetCurrent(context);
}

int
holder_was_set(void)
{
	return was_set;
}

alloc_fn **
holder_alloc(void)
{
	return &cuMemAlloc_v2;
}

free_fn **
holder_free(void)
{
	return &cuMemFree_v2;
}

#ifdef EARLY
__attribute__((constructor)) static void
start(void)
{
#ifdef LATE
	dlsym(RTLD_DEFAULT, "holder_load");
#endif
	holder_load();
}
#endif
#endif

#ifdef KIND_READER
extern alloc_fn *cuMemAlloc_v2;
extern free_fn *cuMemFree_v2;

alloc_fn **
reader_alloc(void)
{
	return &cuMemAlloc_v2;
}

free_fn **
reader_free(void)
{
	return &cuMemFree_v2;
}
#endif

#ifdef KIND_WRAPPER
extern void *__libc_malloc(size_t bytes);

/* As tools have it that look at every allocation: each asks for the real function. */
void *
malloc(size_t bytes)
{
	static __thread int inside;

	if (!inside) {
		inside = 1;
		dlsym(RTLD_DEFAULT, "free");
		inside = 0;
	}
	return __libc_malloc(bytes);
}
#endif

#ifdef KIND_CALLER
alloc_fn cuMemAlloc_v2;

alloc_fn *
caller_alloc(void)
{
	return cuMemAlloc_v2;
}
#endif
