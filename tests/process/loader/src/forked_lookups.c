/* SPDX-License-Identifier: MIT */
/*
 * forked_lookups [driver]: two threads look names up all the time, and the program forks: dlsym
 * returns in each child. (Natively it does: the loader sees to its own lock at a fork.) driver: the
 * threads open and close a library, too, the parent has used the driver, and the child calls it
 * first, which refuses. Exit 0: in all; 1: some had to be ended.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 300, STUCK_S = 10, STUCK_MAX = 3 };

static int (*allocate)(unsigned long long *, size_t);

static void *
look_up_for_ever(void *unused)
{
	for (;;) {
		void *library = allocate ? dlopen("libm.so.6", RTLD_NOW) : NULL;

		dlsym(RTLD_DEFAULT, "no_such_name");
		if (library)
			dlclose(library);
	}
	return unused;
}

/* 0: a context is current, and memory was allocated. */
static int
use_driver(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
	int (*init)(unsigned), (*retain)(void **, int), (*set)(void *);
	unsigned long long block;

	if (!driver)
		return 1;
	*(void **)&init = dlsym(driver, "cuInit");
	*(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
	*(void **)&set = dlsym(driver, "cuCtxSetCurrent");
	*(void **)&allocate = dlsym(driver, "cuMemAlloc_v2");
	return init(0) || retain(&context, 0) || set(context) || allocate(&block, 4096);
}

static void
be_child(void)
{
	unsigned long long block;

	alarm(STUCK_S);
	if (allocate)
		allocate(&block, 4096);
	dlsym(RTLD_DEFAULT, "no_such_name");
	_exit(0);
}

int
main(int argc, char **argv)
{
	pthread_t thread;
	int stuck = 0;

	if (argc > 1 && use_driver())
		return 1;
	for (int i = 0; i < 2; i++)
		if (pthread_create(&thread, NULL, look_up_for_ever, NULL))
			return 1;
	for (int i = 0; i < CHILDREN && stuck < STUCK_MAX; i++) {
		int status;
		pid_t child = fork();

		if (!child)
			be_child();
		stuck += waitpid(child, &status, 0) != child || status;
	}
	printf("%d children did not return from dlsym\n", stuck);
	return stuck > 0;
}
