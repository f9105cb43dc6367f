/* SPDX-License-Identifier: MIT */
/*
 * A program that ends while another of its threads writes for the user: last_words, and with an
 * argument that thread asks for snapshots by a signal. The thread's first write is held up until
 * the end of the process waits for it. The program's last allocation, of LAST bytes, is made
 * meanwhile, and so only what is written at the end has it.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/process/driver_api.h"

enum { LAST = 123456789 };

static CUcontext context;
static _Atomic bool held, ends, goes_on, returned;
static __thread bool is_writer;

static void
await(_Atomic bool *flag)
{
	const struct timespec pause = { .tv_nsec = 100000 };

	while (!atomic_load(flag))
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

typedef long syscall_fn(long number, ...);

/* In front of the C library's, for the library, too. It reads six arguments, as that one does,
 * where fewer were given. */
__attribute__((visibility("default"), no_sanitize("address"))) long
syscall(long number, ...)
{
	syscall_fn *real;
	long argument[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		argument[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_write && is_writer && !atomic_exchange(&held, true))
		await(&goes_on);
	if (number == SYS_clock_nanosleep && atomic_load(&ends) && !is_writer) {
		atomic_store(&goes_on, true);
		await(&returned);
	}
	*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	return real(number, argument[0], argument[1], argument[2], argument[3], argument[4],
		    argument[5]);
}

static void
must(bool done)
{
	if (!done)
		abort();
}

static void *
write_on_the_way(void *by_signal)
{
	CUdeviceptr x;

	must(!cuCtxSetCurrent(context));
	is_writer = true;
	while (!atomic_load(&held)) {
		if (by_signal)
			raise(SIGUSR1);
		must(!cuMemAlloc_v2(&x, 4096) && !cuMemFree_v2(x));
	}
	atomic_store(&returned, true);
	return NULL;
}

int
main(int argc, char **argv)
{
	pthread_t thread;
	CUdeviceptr x;

	must(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context));
	must(!cuMemAlloc_v2(&x, 4096));
	must(!pthread_create(&thread, NULL, write_on_the_way, argc > 1 ? argv[1] : NULL));
	await(&held);
	pthread_detach(thread);
	must(!cuMemAlloc_v2(&x, LAST));
	atomic_store(&ends, true);
	exit(0);
}
