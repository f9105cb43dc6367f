/* SPDX-License-Identifier: MIT */
/* A plain array: a hundred ranges are live at most. */
#include "tests/stress/ranges.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	RANGES_MAX = 256,
};

static struct {
	unsigned long long ptr;
	size_t n_bytes;
} ranges[RANGES_MAX];
static int n_ranges;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards both */

void
range_add(unsigned long long ptr, size_t n_bytes)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < n_ranges; i++) {
		if (ptr >= ranges[i].ptr + ranges[i].n_bytes || ranges[i].ptr >= ptr + n_bytes)
			continue;
		fprintf(stderr,
			"new block %#llx of %zu bytes overlaps live block %#llx of %zu bytes\n",
			ptr, n_bytes, ranges[i].ptr, ranges[i].n_bytes);
		exit(1);
	}
	if (n_ranges == RANGES_MAX)
		abort();
	ranges[n_ranges].ptr = ptr;
	ranges[n_ranges++].n_bytes = n_bytes;
	pthread_mutex_unlock(&lock);
}

void
range_remove(unsigned long long ptr)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < n_ranges; i++)
		if (ranges[i].ptr == ptr)
			ranges[i--] = ranges[--n_ranges];
	pthread_mutex_unlock(&lock);
}
