/* SPDX-License-Identifier: MIT */
/*
 * An application on a framework with a cache of its own: app FOLDER STEP...
 *
 *   open, close      libc10_cuda.so of the folder; in the variant that is linked to it, nothing
 *   fork             what follows happens in a child that never called CUDA before; before any
 * other train:N          N steps on tensors of mixed sizes, each with workspaces of the other
 * library; at their end every tensor is freed threads:N        train:12 in N threads at once
 *   workspaces:N     N times the three workspaces of a step
 *   largest          prints the largest number of tensors of 24 MiB that fit together, freed again
 *   hold:N, drop     N MiB as one tensor, until dropped
 *   empty            the framework's empty_cache
 *   other:FILE       from now on the other library is that file; the one before is closed
 *   raw:BYTES:N      N workspaces of that size in turn
 *   keep:BYTES       one more, not given back; give: now it is
 *   wrong:BYTES      prints the codes of frees of an interior pointer, of the workspace itself, and
 *                    of it once more
 *   look             prints what model, other library and driver have counted, one line of JSON
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/process/framework/model.h"
#include "tests/process/framework/workspace.h"
#include "tests/sim/cudart/cudart_abi.h"

size_t simcuda_stats(char *buffer, size_t n_buffer);

#define MIB ((size_t)1 << 20)

enum { TENSORS = 40, LARGEST_MAX = 4096 };

static const char *folder;
static void *handle;
static const struct model *model;
static unsigned long n_workspaces; /* taken */
static void *(*other_take)(size_t n_bytes);
static int (*other_give)(void *pointer);
static void *held, *kept;

static void
need(int condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "app: %s failed\n", what);
	exit(3);
}

static void
open_library(void)
{
#ifdef LINKED
	model = model_get();
#else
	const struct model *(*get)(void);
	char path[4096];

	snprintf(path, sizeof(path), "%s/libc10_cuda.so", folder);
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	need(handle != NULL, path);
	*(void **)&get = dlsym(handle, "model_get");
	model = get();
#endif
}

static void
close_library(void)
{
	need(handle && !dlclose(handle), "dlclose");
	handle = NULL;
	model = NULL;
}

static void
open_other(const char *path)
{
	static void *other;

	if (other)
		need(!dlclose(other), "dlclose");
	other = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	need(other != NULL, path);
	*(void **)&other_take = dlsym(other, "workspace_take");
	*(void **)&other_give = dlsym(other, "workspace_give");
}

static void
workspace(size_t n_bytes)
{
	void *pointer = other_take(n_bytes);

	need(pointer != NULL, "a workspace");
	need(!cudaMemsetAsync(pointer, 1, n_bytes < 512 ? n_bytes : 512, NULL), "memset");
	need(!other_give(pointer), "a workspace's free");
	__atomic_add_fetch(&n_workspaces, 1, __ATOMIC_RELAXED);
}

/* Sizes that a framework could have asked for, and others. */
static void
workspaces(void)
{
	workspace(2 * MIB);
	workspace(12 * MIB);
	workspace(3 * MIB + 512);
}

static void
train(unsigned long steps)
{
	static const size_t sizes[] = { 512,     70000,    900 << 10, 3 * MIB,
					7 * MIB, 11 * MIB, 25 * MIB,  40000 };
	void *tensors[TENSORS];

	for (unsigned long step = 0; step < steps; step++) {
		for (size_t i = 0; i < TENSORS; i++) {
			size_t n_bytes = sizes[(i + step) % 8] + 1024 * (i % 5);

			tensors[i] = model->take(n_bytes);
			need(tensors[i] != NULL, "a tensor");
			need(!cudaMemsetAsync(tensors[i], 2, 512, NULL), "memset");
			if (i % 10 == 0)
				workspaces();
		}
		for (size_t i = 0; i < TENSORS; i++)
			model->give(tensors[i]);
	}
}

static void *
train_thread(void *arg)
{
	(void)arg;
	train(12);
	return NULL;
}

static void
threads(unsigned long n)
{
	pthread_t thread[16];

	need(n <= 16, "threads");
	for (unsigned long i = 0; i < n; i++)
		need(!pthread_create(&thread[i], NULL, train_thread, NULL), "pthread_create");
	for (unsigned long i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
}

static void
largest(void)
{
	static void *tensors[LARGEST_MAX];
	size_t n = 0;

	while (n < LARGEST_MAX && (tensors[n] = model->take(24 * MIB))) {
		/* a cache of ours must not stand in the way of the next */
		if (n % 4 == 0) {
			void *pointer = other_take(8 * MIB);

			if (pointer)
				need(!other_give(pointer), "a workspace's free");
		}
		n++;
	}
	printf("{\"largest\": %zu}\n", n);
	while (n)
		model->give(tensors[--n]);
}

static void
look(void)
{
	struct model_figures figures = { 0 };
	char driver[8192];

	need(!cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	need(simcuda_stats(driver, sizeof(driver)) < sizeof(driver), "simcuda_stats");
	if (model)
		model->figures(&figures);
	printf("{\"segments\": %zu, \"given_back\": %zu, \"failed\": %zu, \"reserved\": %zu, "
	       "\"peak_reserved\": %zu, \"workspaces\": %lu, \"driver\": %s}\n",
	       figures.segments, figures.given_back, figures.failed, figures.reserved_bytes,
	       figures.peak_reserved_bytes, n_workspaces, driver);
	fflush(stdout);
}

/* The child goes on; the parent waits and ends as it did. */
static void
go_on_in_child(void)
{
	pid_t child = fork();
	int status;

	need(child >= 0, "fork");
	if (!child)
		return;
	need(waitpid(child, &status, 0) == child && WIFEXITED(status), "the child");
	_exit(WEXITSTATUS(status));
}

static void
raw(const char *text)
{
	char *end;
	size_t n_bytes = strtoul(text, &end, 10);
	unsigned long n = *end == ':' ? strtoul(end + 1, NULL, 10) : 1;

	while (n--)
		workspace(n_bytes);
}

static void
wrong(size_t n_bytes)
{
	char *pointer = other_take(n_bytes);
	int codes[3];

	need(pointer != NULL, "a workspace");
	codes[0] = other_give(pointer + 512);
	codes[1] = other_give(pointer);
	codes[2] = other_give(pointer);
	printf("{\"codes\": [%d, %d, %d]}\n", codes[0], codes[1], codes[2]);
}

static void
step(const char *text)
{
	const char *argument = strchr(text, ':') ? strchr(text, ':') + 1 : "";
	unsigned long n = strtoul(argument, NULL, 10);

	if (!strcmp(text, "open"))
		open_library();
	else if (!strcmp(text, "close"))
		close_library();
	else if (!strcmp(text, "fork"))
		go_on_in_child();
	else if (!strcmp(text, "largest"))
		largest();
	else if (!strcmp(text, "empty"))
		model->empty_cache();
	else if (!strcmp(text, "look"))
		look();
	else if (!strncmp(text, "train:", 6))
		train(n);
	else if (!strncmp(text, "threads:", 8))
		threads(n);
	else if (!strncmp(text, "workspaces:", 11))
		for (; n; n--)
			workspaces();
	else if (!strncmp(text, "hold:", 5))
		need((held = model->take(n * MIB)) != NULL, "a large tensor");
	else if (!strcmp(text, "drop"))
		model->give(held);
	else if (!strncmp(text, "other:", 6))
		open_other(argument);
	else if (!strncmp(text, "raw:", 4))
		raw(argument);
	else if (!strncmp(text, "wrong:", 6))
		wrong(n);
	else if (!strncmp(text, "keep:", 5))
		need((kept = other_take(n)) != NULL, "a workspace");
	else if (!strcmp(text, "give"))
		need(!other_give(kept), "a workspace's free");
	else
		need(0, text);
}

int
main(int argc, char **argv)
{
	if (argc < 2) {
		fputs("usage: app FOLDER STEP...\n", stderr);
		return 2;
	}
	folder = argv[1];
	other_take = workspace_take;
	other_give = workspace_give;
	for (int i = 2; i < argc; i++)
		step(argv[i]);
	return 0;
}
