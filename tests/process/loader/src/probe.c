/* SPDX-License-Identifier: MIT */
/*
 * probe CASE: one question about the loader in a process of its own. 0: right; 1: wrong, with a
 * line for each wrong answer. Built twice: -DDIRECT is linked against the driver, the other opens
 * it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "names.h"

static int wrong;

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			printf("%s:%d: %s\n", __func__, __LINE__, #condition);                     \
			wrong = 1;                                                                 \
		}                                                                                  \
	} while (0)

/* The file that holds an address begins with this name. */
static int
in_library(void *address, const char *name)
{
	Dl_info info;
	const char *file;

	if (!address || !dladdr(address, &info))
		return 0;
	file = strrchr(info.dli_fname, '/');
	return !strncmp(file ? file + 1 : info.dli_fname, name, strlen(name));
}

static int
ours(void *address)
{
	return in_library(address, "libcachealloc.so");
}
static int
drivers(void *address)
{
	return in_library(address, "libcuda.so");
}

static void *
open_driver(void)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!handle) {
		printf("no driver: %s\n", dlerror());
		exit(2);
	}
	return handle;
}

typedef int alloc_fn(unsigned long long *, size_t);
typedef int getproc_fn(const char *, void **, int, unsigned long long);
typedef int getproc2_fn(const char *, void **, int, unsigned long long, int *);
typedef double new_fn(int, double, const char *, float, long, long, long, long, double, short);
typedef int count_fn(void);

static void
explicit_handle(void)
{
	void *driver = open_driver();
	unsigned long long address = 0;
	unsigned short_address = 0;
	const char *error;
	alloc_fn *alloc;

	errno = 1234;
	alloc = (alloc_fn *)dlsym(driver, "cuMemAlloc_v2");
	CHECK(errno == 1234);
	CHECK(ours((void *)alloc));
	CHECK(alloc && alloc(&address, 100) == 0 && address == 164);
	CHECK(dlerror() == NULL);
	/* the 32-bit ABI of CUDA 2 is not ours */
	CHECK(drivers(dlsym(driver, "cuMemAlloc")));
	((int (*)(unsigned *, unsigned))dlsym(driver, "cuMemAlloc"))(&short_address, 1);
	CHECK(short_address == 32);
	CHECK(drivers(dlsym(driver, "cuMemFree")));
	CHECK(drivers(dlsym(driver, "cuInit")));
	CHECK(ours(dlsym(driver, "cuMemFreeAsync")) && ours(dlsym(driver, "cuMemFreeAsync_ptsz")));
	CHECK(dlsym(driver, "cuMemFreeAsync") != dlsym(driver, "cuMemFreeAsync_ptsz"));
	CHECK(ours(dlsym(driver, "cuGetProcAddress")) &&
	      ours(dlsym(driver, "cuGetProcAddress_v2")));
	/* misses: this driver lacks the first, every driver the second */
	CHECK(dlsym(driver, "cuIpcGetMemHandle") == NULL);
	error = dlerror();
	CHECK(error && strstr(error, "undefined symbol: cuIpcGetMemHandle"));
	CHECK(dlerror() == NULL);
	CHECK(dlsym(driver, "cuNoSuchName") == NULL && dlerror() != NULL);
}

static void
other_names(void)
{
	void *sibling = dlopen("libsibling.so", RTLD_NOW | RTLD_GLOBAL);

	CHECK(sibling != NULL);
	if (!sibling)
		return;
	CHECK(in_library(dlsym(sibling, "cudnnCreate"), "libsibling"));
	CHECK(in_library(dlsym(sibling, "cublasCreate_v2"), "libsibling"));
	CHECK(in_library(dlsym(sibling, "curl_x"), "libsibling"));
	CHECK(in_library(dlsym(RTLD_DEFAULT, "curl_x"), "libsibling"));
	/* a driver's name in a library that is no driver */
	CHECK(in_library(dlsym(sibling, "cuMemAlloc_v2"), "libsibling"));
	CHECK(in_library(dlsym(sibling, "cuUnheardOf"), "libsibling"));
	CHECK(((count_fn *)dlsym(sibling, "sibling_self"))());
	CHECK(dlsym(sibling, "") == NULL);
	CHECK(dlsym(sibling, "c") == NULL && dlsym(sibling, "cu") == NULL &&
	      dlsym(sibling, "cuM") == NULL);
}

static void
scopes(void)
{
	void *plugin = dlopen("libplugin.so", RTLD_NOW | RTLD_LOCAL);

	CHECK(plugin != NULL);
	if (!plugin)
		return;
	CHECK(((count_fn *)dlsym(plugin, "plugin_default"))());
	CHECK(((count_fn *)dlsym(plugin, "plugin_default_cu"))());
	CHECK(((count_fn *)dlsym(plugin, "plugin_sibling"))());
	CHECK(dlsym(RTLD_DEFAULT, "plugin_own") == NULL);
	CHECK(in_library(dlsym(RTLD_DEFAULT, "getppid"), "libc"));
}

static void
chains(void)
{
	int (*chain)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "chain_next");
	void *(*tool)(unsigned, const char *) =
		(void *(*)(unsigned, const char *))dlsym(RTLD_DEFAULT, "ompt_start_tool");

	CHECK(chain && chain(0) == 31);
	CHECK(chain && chain(0) == 31);
	CHECK(tool && tool(1, "x") == (void *)0x0417);
}

static void
own_dlsym(void)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	void *mine = dlopen(NULL, RTLD_LAZY);

	CHECK(ours((void *)(uintptr_t)dlsym));
	CHECK(ours(dlsym(libc, "dlsym")));
	CHECK(ours(dlsym(mine, "dlsym")));
	CHECK(ours(dlsym(RTLD_DEFAULT, "dlsym")));
	CHECK(in_library(dlsym(libc, "dlerror"), "libc"));
	/* the program's own handle reaches our exports */
	CHECK(ours(dlsym(mine, "cuMemAlloc_v2")) && ours(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")));
	/* not covered, and untouched: dlvsym goes to libc */
	CHECK(dlvsym(open_driver(), "cuMemAlloc_v2", "NO_SUCH_VERSION") == NULL);
}

static void
getproc(void)
{
	void *driver = open_driver();
	getproc_fn *v1 = (getproc_fn *)dlsym(driver, "cuGetProcAddress");
	getproc2_fn *v2 = (getproc2_fn *)dlsym(driver, "cuGetProcAddress_v2");
	unsigned long long address = 0;
	void *found = NULL, *twin = NULL;
	int status = -1;

	CHECK(v2("cuMemAlloc", &found, 12000, 0, &status) == 0 && status == 0 && ours(found));
	CHECK(found == dlsym(driver, "cuMemAlloc_v2"));
	CHECK(((alloc_fn *)found)(&address, 100) == 0 && address == 164);
	CHECK(v1("cuMemAlloc", &found, 11030, 0) == 0 && ours(found));
	/* version and flavour */
	CHECK(v2("cuMemAlloc", &found, 3000, 0, &status) == 0 && drivers(found));
	CHECK(v2("cuMemFreeAsync", &found, 12000, 0, &status) == 0 &&
	      found == dlsym(driver, "cuMemFreeAsync"));
	CHECK(v2("cuMemFreeAsync", &found, 12000, 1, &status) == 0 &&
	      found == dlsym(driver, "cuMemFreeAsync"));
	CHECK(v2("cuMemFreeAsync", &found, 12000, 2, &status) == 0 &&
	      found == dlsym(driver, "cuMemFreeAsync_ptsz"));
	CHECK(v2("cuMemAlloc", &found, 12000, 2, &status) == 0 && ours(found));
	CHECK(v2("cuStreamBeginCapture", &found, 10000, 0, &status) == 0 &&
	      found == dlsym(driver, "cuStreamBeginCapture"));
	CHECK(v2("cuStreamBeginCapture", &found, 10010, 2, &status) == 0 &&
	      found == dlsym(driver, "cuStreamBeginCapture_v2_ptsz"));
	/* asked for itself */
	CHECK(v2("cuGetProcAddress", &found, 12000, 0, &status) == 0 && found == (void *)v2);
	CHECK(v2("cuGetProcAddress", &found, 11030, 0, &status) == 0 && found == (void *)v1);
	CHECK(v1("cuGetProcAddress", &found, 12000, 0) == 0 && found == (void *)v2);
	/* misses and errors are the driver's */
	CHECK(v2("cuNoSuch", &twin, 12000, 0, &status) == 0 && twin == NULL && status == 1);
	CHECK(v2("cuMemFreeAsync", &twin, 11000, 0, &status) == 0 && twin == NULL && status == 2);
	CHECK(v2("cuFails", &twin, 12000, 0, NULL) == 500 && twin == NULL);
	CHECK(v2("cuMemAlloc", NULL, 12000, 0, &status) == 1);
	CHECK(v2(NULL, &twin, 12000, 0, &status) == 1 && v1(NULL, &twin, 12000, 0) == 1);
	CHECK(v2("cuMemAlloc", &twin, 99999, 0, &status) == 1 && twin == NULL);
	twin = (void *)0x1234;
	CHECK(v2("cuLeavesGarbage", &twin, 12000, 0, &status) == 0 && twin == (void *)0x1234);
}

static void
unknown(void)
{
	void *driver = open_driver();
	getproc2_fn *v2 = (getproc2_fn *)dlsym(driver, "cuGetProcAddress_v2");
	new_fn *thing = (new_fn *)dlsym(driver, "cuNewThing");
	void *found = NULL;
	double sum;

	CHECK(ours((void *)thing));
	sum = thing(1, 0.5, "abc", 0.25f, 5, 6, 7, 8, 9.0, 10);
	CHECK(sum == 1 + 0.5 + 3 + 0.25 + 50 + 600 + 7000 + 80000 + 900000 + 10);
	CHECK(dlsym(driver, "cuNewThing") == (void *)thing);
	CHECK(v2("cuNewThing", &found, 13010, 0, NULL) == 0 && found == (void *)thing);
	/* data is not called: as the driver has it */
	CHECK(*(int *)dlsym(driver, "cuNewData") == 77);
	/* a known name in a version after our time,
	 * and the same name in one that changed nothing */
	CHECK(v2("cuMemFree", &found, 14000, 0, NULL) == 0 && ours(found));
	CHECK(found != dlsym(driver, "cuMemFree_v2"));
	CHECK(((int (*)(unsigned long long, int))found)(1, 2) == 300);
	CHECK(v2("cuInit", &found, 14000, 0, NULL) == 0 && drivers(found));
	CHECK(v2("cuMemAlloc", &found, 14000, 0, NULL) == 0 &&
	      found == dlsym(driver, "cuMemAlloc_v2"));
}

static pthread_barrier_t together;

static void *
first_call(void *arg)
{
	unsigned long long address = 0;
	void *found = NULL;
	uintptr_t bad = 0;
	int status = -1;

	pthread_barrier_wait(&together);
	if ((uintptr_t)arg % 2)
		bad |= ((alloc_fn *)dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"))(&address, 8) != 0 ||
		       address != 72;
	bad |= ((getproc2_fn *)dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2"))("cuMemAlloc", &found,
									   12000, 0, &status) != 0;
	bad |= status != 0 || !ours(found);
	bad |= ((alloc_fn *)found)(&address, 16) != 0 || address != 80;
	return (void *)bad;
}

static void
threads(void)
{
	enum { COUNT = 16 };
	pthread_t ids[COUNT];
	void *driver = open_driver(), *result;

	pthread_barrier_init(&together, NULL, COUNT);
	for (uintptr_t i = 0; i < COUNT; i++)
		pthread_create(&ids[i], NULL, first_call, (void *)i);
	for (int i = 0; i < COUNT; i++) {
		pthread_join(ids[i], &result);
		CHECK(result == NULL);
	}
	CHECK(((count_fn *)dlsym(driver, "fixture_calls"))() == COUNT + COUNT / 2);
}

static void
reopen(void)
{
	unsigned long long address = 0;
	alloc_fn *alloc = NULL;

	for (int i = 0; i < 3; i++) {
		void *driver = open_driver();

		alloc = (alloc_fn *)dlsym(driver, "cuMemAlloc_v2");
		CHECK(ours((void *)alloc));
		CHECK(alloc(&address, i) == 0 && address == 64u + i);
		CHECK(dlclose(driver) == 0);
	}
	/* the binding holds the driver: a pointer kept over dlclose stays good */
	CHECK(alloc(&address, 9) == 0 && address == 73);
}

/* Without a driver nothing is answered but "not initialised", and dlerror says nothing new. */
static void
no_driver(void)
{
	alloc_fn *alloc = (alloc_fn *)dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
	getproc2_fn *v2 = (getproc2_fn *)dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
	unsigned long long address = 5;
	void *found = NULL;

	CHECK(dlsym(RTLD_DEFAULT, "noSuchNameAnywhere") == NULL);
	errno = 1234;
	CHECK(alloc && alloc(&address, 1) == 3 && address == 5);
	CHECK(v2 && v2("cuInit", &found, 12000, 0, NULL) == 3 && found == NULL);
	CHECK(errno == 1234);
	CHECK(strstr(dlerror(), "noSuchNameAnywhere") != NULL);
	CHECK(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) == NULL);
}

/* dlerror after a first call that bound the driver is the program's own. */
static void
dlerror_kept(void)
{
	alloc_fn *alloc = (alloc_fn *)dlsym(open_driver(), "cuMemAlloc_v2");
	unsigned long long address;

	CHECK(alloc(&address, 1) == 0);
	CHECK(dlerror() == NULL);
}

static void
other_preload(void)
{
	count_fn *other_allocs = (count_fn *)dlsym(RTLD_DEFAULT, "other_allocs");
	void *(*other_libc)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "other_libc_dlsym");
	void *driver = open_driver();
	alloc_fn *outer = (alloc_fn *)dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
	count_fn *calls = (count_fn *)dlsym(driver, "fixture_calls");
	int other_first = in_library((void *)outer, "libother");
	unsigned long long address = 0;
	void *theirs;

	CHECK(other_allocs != NULL && outer != NULL);
	CHECK(outer(&address, 1) == 0 && address == 65 && calls() == 1);
	CHECK(other_allocs() == other_first);
	/*
	 * A wrapper before us that takes the next dlsym by dlvsym gets libc's: dlvsym passes over
	 * symbols without a version, as ours is. What the program then looks up through it is not
	 * ours; all works as without us.
	 */
	CHECK((other_first ? drivers : ours)(dlsym(driver, "cuMemAlloc_v2")));
	/* and a wrapper behind us gets libc's own too, or it would call itself in a circle */
	theirs = other_libc();
	CHECK(in_library(theirs, "libc."));
	CHECK(((void *(*)(void *, const char *))theirs)(driver, "cuInit") != NULL);
}

#ifdef DIRECT
static void
direct(void)
{
	unsigned long long address = 0;
	void *found = NULL;

	CHECK(ours((void *)(uintptr_t)cuMemAlloc_v2) && drivers((void *)(uintptr_t)cuInit));
	CHECK(cuMemAlloc_v2(&address, 1) == 0 && address == 65);
	CHECK(cuMemFree_v2(1) == 164 && fixture_calls() == 2);
	CHECK(cuMemFreeAsync(1, NULL) == 201 && cuMemFreeAsync_ptsz(1, NULL) == 202);
	CHECK(cuGetProcAddress_v2("cuMemAlloc", &found, 12000, 0, NULL) == 0 &&
	      found == (void *)(uintptr_t)cuMemAlloc_v2);
	CHECK(cuGetProcAddress("cuMemAlloc", &found, 12000, 0) == 0 &&
	      found == (void *)(uintptr_t)cuMemAlloc_v2);
}
#endif

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "explicit_handle", explicit_handle },
	{ "other_names", other_names },
	{ "scopes", scopes },
	{ "chains", chains },
	{ "own_dlsym", own_dlsym },
	{ "getproc", getproc },
	{ "unknown", unknown },
	{ "threads", threads },
	{ "reopen", reopen },
	{ "no_driver", no_driver },
	{ "dlerror_kept", dlerror_kept },
	{ "other_preload", other_preload },
#ifdef DIRECT
	{ "direct", direct },
#endif
};

int
main(int argc, char **argv)
{
	for (unsigned i = 0; argc == 2 && i < sizeof(cases) / sizeof(*cases); i++) {
		if (!strcmp(cases[i].name, argv[1])) {
			cases[i].run();
			return wrong;
		}
	}
	fprintf(stderr, "no such case\n");
	return 2;
}
