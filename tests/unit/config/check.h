/* SPDX-License-Identifier: MIT */
/* cmocka and what its header expects before it; a pseudo-random source whose seed is printed. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* The seed: CACHEALLOC_TEST_SEED if set (to repeat a failure), else the clock. */
static inline uint64_t
check_seed(const char *what)
{
	const char *text = getenv("CACHEALLOC_TEST_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);

	fprintf(stderr, "# %s: CACHEALLOC_TEST_SEED=%llu\n", what, (unsigned long long)seed);
	return seed;
}

/* strcat() within `size` bytes. */
static inline void
check_append(char *ret, size_t size, const char *text)
{
	size_t length = strlen(ret);

	snprintf(ret + length, size - length, "%s", text);
}

/* The number that begins at *text, which is advanced behind it; -1 if there is none. */
static inline long
check_number(const char **text)
{
	char *end;
	long number = strtol(*text, &end, 10);

	if (end == *text)
		return -1;
	*text = end;
	return number;
}

/* splitmix64 */
static inline uint64_t
check_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}
