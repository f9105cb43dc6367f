/* SPDX-License-Identifier: MIT */
/*
 * A program whose malloc, stdio and exit look who calls them. What comes from libcachealloc.so,
 * directly or by way of the C library, ends the process with status 99, once the program has
 * started (its first calls of the driver may load and read). What the driver itself does is its own
 * affair.
 *
 *     no_malloc          every kind of hooked call, several times; statistics at exit count, too
 *     no_malloc --self   calls malloc as if from the library: must end with 99
 */
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <unwind.h>

#include "tests/process/driver_api.h"

enum { MIB = 1 << 20, EXIT_CAUGHT = 99, EXIT_WRONG = 1 };

/* ---- who calls */

struct range {
	uintptr_t begin, end;
};
enum { C_LIBRARIES = 8 };
static struct range ours, program, c_library[C_LIBRARIES];
static unsigned n_c_libraries;
static volatile bool armed;
static __thread bool looking; /* the unwinder may call what is watched */

static bool
is_in(const struct range *range, uintptr_t address)
{
	return address >= range->begin && address < range->end;
}

static int
learn(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *name = strrchr(info->dlpi_name, '/');
	struct range range = { UINTPTR_MAX, 0 };

	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;

		if (info->dlpi_phdr[i].p_type != PT_LOAD)
			continue;
		range.begin = begin < range.begin ? begin : range.begin;
		range.end = begin + info->dlpi_phdr[i].p_memsz;
	}
	name = name ? name + 1 : info->dlpi_name;
	if (!strcmp(name, "libcachealloc.so"))
		ours = range;
	else if (!*info->dlpi_name && !program.end)
		program = range;
	else if ((!strncmp(name, "libc.so", 7) || !strncmp(name, "ld-", 3) ||
		  !strncmp(name, "libpthread", 10) || !strncmp(name, "libdl", 5) ||
		  !strncmp(name, "libgcc_s", 8)) &&
		 n_c_libraries < C_LIBRARIES)
		c_library[n_c_libraries++] = range;
	return 0;
}

struct walk {
	bool left_program; /* the watched function itself is the program's */
	bool of_thread;    /* glibc's own records of one */
	bool from_ours;
};
/* Where glibc notes what a thread does at its end, and makes one (shim/track/assumption_trial.c).
 */
static uintptr_t thread_atexit, thread_create;

static _Unwind_Reason_Code
frame(struct _Unwind_Context *context, void *arg)
{
	struct walk *walk = arg;
	uintptr_t address = (uintptr_t)_Unwind_GetIP(context);

	if (is_in(&program, address) && !walk->left_program)
		return _URC_NO_REASON;
	walk->left_program = true;
	walk->of_thread = walk->of_thread || _Unwind_GetRegionStart(context) == thread_atexit ||
			  _Unwind_GetRegionStart(context) == thread_create;
	for (unsigned i = 0; i < n_c_libraries; i++)
		if (is_in(&c_library[i], address))
			return _URC_NO_REASON;
	walk->from_ours = is_in(&ours, address);
	return _URC_END_OF_STACK;
}

static void
caught(const char *name)
{
	static const char text[] = " was called from libcachealloc.so\n";
	struct iovec line[] = { { (void *)name, strlen(name) },
				{ (void *)text, sizeof(text) - 1 } };

	/* at once: two threads may be here */
	if (writev(2, line, 2) < 0)
		_exit(EXIT_WRONG);
	_exit(EXIT_CAUGHT);
}

/* Not static: some of what is watched is inline in the system's headers. */
void watch(const char *name);

void
watch(const char *name)
{
	struct walk walk = { .left_program = false };

	if (!armed || looking)
		return;
	looking = true;
	_Unwind_Backtrace(frame, &walk);
	looking = false;
	if (walk.from_ours && !walk.of_thread)
		caught(name);
}

/* ---- what is watched */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *pointer, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *pointer);

void *
malloc(size_t size)
{
	watch("malloc");
	return __libc_malloc(size);
}

void *
calloc(size_t count, size_t size)
{
	watch("calloc");
	return __libc_calloc(count, size);
}

void *
realloc(void *pointer, size_t size)
{
	watch("realloc");
	return __libc_realloc(pointer, size);
}

void *
memalign(size_t alignment, size_t size)
{
	watch("memalign");
	return __libc_memalign(alignment, size);
}

void *
aligned_alloc(size_t alignment, size_t size)
{
	watch("aligned_alloc");
	return __libc_memalign(alignment, size);
}

int
posix_memalign(void **ret, size_t alignment, size_t size)
{
	watch("posix_memalign");
	*ret = __libc_memalign(alignment, size);
	return *ret ? 0 : 12;
}

void
free(void *pointer)
{
	if (pointer)
		watch("free");
	__libc_free(pointer);
}

/* X(result, name, parameters, arguments): the real one is the next. */
#define WATCHED(X)                                                                                 \
	X(int, vprintf, (const char *format, va_list args), (format, args))                        \
	X(int, vfprintf, (FILE * file, const char *format, va_list args), (file, format, args))    \
	X(int, vdprintf, (int fd, const char *format, va_list args), (fd, format, args))           \
	X(int, vsnprintf, (char *to, size_t n, const char *format, va_list args),                  \
	  (to, n, format, args))                                                                   \
	X(int, vsprintf, (char *to, const char *format, va_list args), (to, format, args))         \
	X(int, puts, (const char *text), (text))                                                   \
	X(int, fputs, (const char *text, FILE *file), (text, file))                                \
	X(int, fputc, (int c, FILE *file), (c, file))                                              \
	X(int, putchar, (int c), (c))                                                              \
	X(size_t, fwrite, (const void *data, size_t size, size_t n, FILE *file),                   \
	  (data, size, n, file))                                                                   \
	X(size_t, fread, (void *data, size_t size, size_t n, FILE *file), (data, size, n, file))   \
	X(char *, fgets, (char *to, int n, FILE *file), (to, n, file))                             \
	X(FILE *, fopen, (const char *path, const char *mode), (path, mode))                       \
	X(FILE *, fdopen, (int fd, const char *mode), (fd, mode))                                  \
	X(int, fclose, (FILE * file), (file))                                                      \
	X(int, fflush, (FILE * file), (file))

#define X(result, name, parameters, arguments)                                                     \
	result name parameters                                                                     \
	{                                                                                          \
		static result(*next) parameters;                                                   \
                                                                                                   \
		watch(#name);                                                                      \
		if (!next)                                                                         \
			*(void **)&next = dlsym(RTLD_NEXT, #name);                                 \
		return next arguments;                                                             \
	}
WATCHED(X)
#undef X

/* Those with any number of arguments, by the one that takes a list.
 * NOLINTBEGIN(clang-analyzer-valist.Uninitialized): va_start is called. */
#define VARIADIC(name, parameters, last, call)                                                     \
	int name parameters                                                                        \
	{                                                                                          \
		va_list args;                                                                      \
		int r;                                                                             \
                                                                                                   \
		watch(#name);                                                                      \
		va_start(args, last);                                                              \
		r = call;                                                                          \
		va_end(args);                                                                      \
		return r;                                                                          \
	}
VARIADIC(printf, (const char *format, ...), format, vprintf(format, args))
VARIADIC(fprintf, (FILE * file, const char *format, ...), format, vfprintf(file, format, args))
VARIADIC(dprintf, (int fd, const char *format, ...), format, vdprintf(fd, format, args))
VARIADIC(sprintf, (char *to, const char *format, ...), format, vsprintf(to, format, args))
VARIADIC(snprintf, (char *to, size_t n, const char *format, ...), format,
	 vsnprintf(to, n, format, args))
// NOLINTEND(clang-analyzer-valist.Uninitialized)

void
exit(int status)
{
	void (*next)(int);

	watch("exit");
	*(void **)&next = dlsym(RTLD_NEXT, "exit");
	next(status);
	_exit(status);
}

void
abort(void)
{
	watch("abort");
	_exit(134);
}

/* ---- the program */

#define MUST(call)                                                                                 \
	do {                                                                                       \
		CUresult must_rc = (call);                                                         \
		if (must_rc) {                                                                     \
			dprintf(2, "%s = %d\n", #call, (int)must_rc);                              \
			_exit(EXIT_WRONG);                                                         \
		}                                                                                  \
	} while (0)

enum { STREAMS = 3, HELD = 16 };
static CUcontext context;
static CUstream streams[STREAMS];
static void *fill;

static void
launch(CUdeviceptr pointer, CUstream stream)
{
	uint64_t words = 100, value = 7, spin_us = 20;
	void *args[] = { &pointer, &words, &value, &spin_us };

	MUST(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static void
allocate_and_free(unsigned rounds)
{
	CUdeviceptr held[HELD] = { 0 };

	for (unsigned i = 0; i < rounds; i++) {
		CUdeviceptr *one = &held[i * 7 % HELD];

		if (*one)
			MUST(cuMemFree_v2(*one));
		*one = 0;
		if (!cuMemAlloc_v2(one, (size_t)4000 << (i % 12)))
			launch(*one, streams[i % STREAMS]);
	}
	for (unsigned i = 0; i < HELD; i++)
		if (held[i])
			MUST(cuMemFree_v2(held[i]));
	MUST(cuMemFree_v2(0));
}

/* The ladder, its report, and what the driver refuses. */
static void
run_out_of_memory(void)
{
	CUdeviceptr held[64], one;
	size_t pitch;
	unsigned n = 0;

	while (n < 64 && !cuMemAlloc_v2(&held[n], 5 * MIB))
		n++;
	(void)cuMemAlloc_v2(&one, (size_t)1 << 50);
	if (!cuMemAllocPitch_v2(&one, &pitch, 5000, 5000, 4))
		MUST(cuMemFree_v2(one));
	if (!cuMemAllocManaged(&one, 40 * MIB, 1))
		MUST(cuMemFree_v2(one));
	while (n)
		MUST(cuMemFree_v2(held[--n]));
}

static void
stream_ordered(void)
{
	CUdeviceptr one, other;

	MUST(cuMemAlloc_v2(&one, 3 * MIB));
	launch(one, streams[0]);
	if (!cuMemAllocAsync(&other, 1000, streams[0]))
		MUST(cuMemFreeAsync(other, streams[0]));
	MUST(cuMemFreeAsync(one, streams[0]));
	MUST(cuStreamSynchronize(streams[0]));
}

static void
events(void)
{
	CUdeviceptr one;
	CUevent event;

	MUST(cuEventCreate(&event, 0));
	MUST(cuMemAlloc_v2(&one, MIB));
	launch(one, streams[0]);
	MUST(cuEventRecord(event, streams[0]));
	MUST(cuStreamWaitEvent(streams[1], event, 0));
	launch(one, streams[1]);
	(void)cuEventQuery(event);
	MUST(cuEventSynchronize(event));
	MUST(cuMemsetD8Async(one, 1, 1000, streams[2]));
	MUST(cuMemcpyDtoDAsync_v2(one + 4096, one, 1000, streams[2]));
	(void)cuStreamQuery(streams[2]);
	MUST(cuMemFree_v2(one));
	MUST(cuEventDestroy_v2(event));
}

static void
capture(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUgraphExec exec;
	CUdeviceptr one;
	CUgraph graph;

	MUST(cuThreadExchangeStreamCaptureMode(&mode));
	MUST(cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuMemAlloc_v2(&one, MIB));
	launch(one, streams[0]);
	MUST(cuStreamEndCapture(streams[0], &graph));
	MUST(cuThreadExchangeStreamCaptureMode(&mode));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cuGraphLaunch(exec, streams[0]));
	MUST(cuMemFree_v2(one));
	MUST(cuStreamSynchronize(streams[0]));
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
}

/* Exports and questions; what is refused is told by a warning. */
static void
attributes(void)
{
	CUdeviceptr one, base;
	CUipcMemHandle handle;
	size_t size, left, total;

	MUST(cuMemAlloc_v2(&one, 5000));
	MUST(cuMemGetAddressRange_v2(&base, &size, one + 100));
	MUST(cuMemGetInfo_v2(&left, &total));
	(void)cuIpcGetMemHandle(&handle, one);
	(void)cuMemFree_v2(one + 8); /* an interior pointer */
	MUST(cuMemFree_v2(one));
	(void)cuMemFree_v2(one); /* twice */
}

static void
other_context(void)
{
	CUdeviceptr one;
	CUcontext other;

	MUST(cuCtxCreate_v2(&other, 0, 0));
	MUST(cuMemAlloc_v2(&one, MIB));
	MUST(cuMemsetD8_v2(one, 0, 1000));
	MUST(cuCtxDestroy_v2(other));
	MUST(cuCtxSetCurrent(context));
}

static void
ask_ourselves(void)
{
	static char json[65536];
	uint64_t (*trim)(uint64_t);
	size_t (*stats)(char *, size_t);

	*(void **)&trim = dlsym(RTLD_DEFAULT, "cachealloc_trim");
	*(void **)&stats = dlsym(RTLD_DEFAULT, "cachealloc_stats_json");
	if (!trim || !stats)
		_exit(EXIT_WRONG);
	stats(json, sizeof(json));
	trim(0);
}

static void
once(void)
{
	allocate_and_free(200);
	run_out_of_memory();
	stream_ordered();
	events();
	capture();
	attributes();
	other_context();
	ask_ourselves();
	MUST(cuCtxSynchronize());
}

static void *
other_thread(void *arg)
{
	CUdeviceptr one;

	MUST(cuCtxSetCurrent(context));
	allocate_and_free(100);
	/* its own default stream, of which the library learns when the thread ends */
	MUST(cuMemAlloc_v2(&one, MIB));
	MUST(cuMemsetD8Async_ptsz(one, 1, 1000, NULL));
	MUST(cuStreamSynchronize_ptsz(NULL));
	MUST(cuMemFree_v2(one));
	return NULL;
}

static void
start(void)
{
	void *module;
	CUdeviceptr one;

	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
	MUST(cuModuleLoadData(&module, "simcuda"));
	MUST(cuModuleGetFunction(&fill, module, "sim_fill"));
	for (unsigned i = 0; i < STREAMS; i++)
		MUST(cuStreamCreate(&streams[i], i != 2));
	MUST(cuMemAlloc_v2(&one, 1000));
	MUST(cuMemFree_v2(one));
}

/* As if the library had called: shows that a call would be seen. */
static void
call_from_library(void)
{
	void *volatile pointer;

	ours = program;
	program.end = 0;
	pointer = malloc(10);
	free(pointer);
}

int
main(int argc, char **argv)
{
	pthread_t thread;
	struct walk warm = { .left_program = false };

	start();
	dl_iterate_phdr(learn, NULL);
	thread_atexit = (uintptr_t)dlsym(RTLD_DEFAULT, "__cxa_thread_atexit_impl");
	thread_create = (uintptr_t)dlsym(RTLD_DEFAULT, "pthread_create");
	_Unwind_Backtrace(frame, &warm);
	if (!ours.end)
		return EXIT_WRONG; /* not preloaded: nothing would be shown */
	armed = true;
	if (argc > 1 && !strcmp(argv[1], "--self"))
		call_from_library();
	for (int i = 0; i < 3; i++) {
		once();
		usleep(12000); /* what is due by time */
		if (pthread_create(&thread, NULL, other_thread, NULL) || pthread_join(thread, NULL))
			return EXIT_WRONG;
	}
	return 0;
}
