/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <time.h>

/* The thread sleeps, as the kernel has it. */
static inline bool
is_asleep(long tid)
{
	char name[64], state = 0;
	FILE *file;

	snprintf(name, sizeof(name), "/proc/self/task/%ld/stat", tid);
	file = fopen(name, "r");
	if (!file)
		return false;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	fclose(file);
	return state == 'S';
}

/* Looked at every 100 us for two seconds at least. */
static inline bool
comes_to_sleep(const _Atomic long *tid)
{
	const struct timespec step = { .tv_nsec = 100 * 1000 };
	unsigned looks;

	for (looks = 0; looks < 20000; looks++) {
		if (*tid && is_asleep(*tid))
			return true;
		nanosleep(&step, NULL);
	}
	return false;
}
