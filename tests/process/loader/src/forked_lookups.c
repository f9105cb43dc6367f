/* SPDX-License-Identifier: MIT */
/*
 * Two threads look names up all the time, and the program forks: dlsym returns in each child.
 * (Natively it does: the loader sees to its own lock at a fork.) Exit 0: in all; 1: some had to be
 * ended.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 300, STUCK_S = 10, STUCK_MAX = 3 };

static void *
look_up_for_ever(void *unused)
{
	for (;;)
		dlsym(RTLD_DEFAULT, "no_such_name");
	return unused;
}

int
main(void)
{
	pthread_t thread;
	int stuck = 0;

	for (int i = 0; i < 2; i++)
		if (pthread_create(&thread, NULL, look_up_for_ever, NULL))
			return 1;
	for (int i = 0; i < CHILDREN && stuck < STUCK_MAX; i++) {
		int status;
		pid_t child = fork();

		if (!child) {
			alarm(STUCK_S);
			dlsym(RTLD_DEFAULT, "no_such_name");
			_exit(0);
		}
		stuck += waitpid(child, &status, 0) != child || status;
	}
	printf("%d children did not return from dlsym\n", stuck);
	return stuck > 0;
}
