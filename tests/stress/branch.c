/* SPDX-License-Identifier: MIT */
/*
 * Who has been where (config/branch.h): CACHEALLOC_TEST_BRANCHES names a file; at the end of the
 * process a line for each branch is appended: its name, how often it was taken while three threads
 * or more had been anywhere at all, and by how many threads it was taken (at most 64). With
 * CACHEALLOC_TEST_EXPOSE=1 exposure is forced. Both are taken out of the environment, where the
 * library would report them.
 */
#include "config/branch.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 3, THREADS_MAX = 64 };

bool ca_exposure_is_forced;

static const char *const names[CA_BRANCHES] = {
#define X(name) #name,
	CA_BRANCH_NAMES(X)
#undef X
};

static _Atomic unsigned n_threads;
static _Atomic uint64_t taken[CA_BRANCHES], threads[CA_BRANCHES];
static char path[4096];

void
ca_branch_reached(enum ca_branch branch)
{
	static __thread unsigned thread
		__attribute__((tls_model("initial-exec"))); /* 0: none yet */

	if (!thread)
		thread = atomic_fetch_add(&n_threads, 1) + 1;
	atomic_fetch_or(&threads[branch], UINT64_C(1) << (thread - 1) % THREADS_MAX);
	if (atomic_load_explicit(&n_threads, memory_order_relaxed) >= MANY)
		atomic_fetch_add(&taken[branch], 1);
}

__attribute__((constructor)) static void
read_environment(void)
{
	const char *file = getenv("CACHEALLOC_TEST_BRANCHES");
	const char *expose = getenv("CACHEALLOC_TEST_EXPOSE");

	if (file && strlen(file) < sizeof(path))
		memcpy(path, file, strlen(file) + 1);
	ca_exposure_is_forced = expose && *expose == '1';
	unsetenv("CACHEALLOC_TEST_BRANCHES");
	unsetenv("CACHEALLOC_TEST_EXPOSE");
}

__attribute__((destructor)) static void
tell(void)
{
	int fd = *path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;

	for (int i = 0; fd >= 0 && i < CA_BRANCHES; i++)
		dprintf(fd, "%s %llu %d\n", names[i], (unsigned long long)taken[i],
			__builtin_popcountll(threads[i]));
	if (fd >= 0)
		close(fd);
}
