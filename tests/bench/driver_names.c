/* SPDX-License-Identifier: MIT */
/*
 * Every name that CUDA 13.0 knows, each as a weak function that says its name and aborts: a figure
 * must not rest on an answer that nobody thought about. driver.c replaces those that the programs
 * of this folder, and the library under test, need.
 */
#include "tests/bench/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLAVOUR_LEGACY = 1, FLAVOUR_PTSZ = 2 };

struct name {
	const char *base;
	int version, flavour;
	CUresult (*function)(void);
};

static _Noreturn void
not_here(const char *symbol)
{
	fprintf(stderr, "bench driver: %s is not here\n", symbol);
	abort();
}

#define CA_NAME(symbol, base, version, flavour)                                                    \
	CUresult symbol(void);                                                                     \
	EXPORT __attribute__((weak)) CUresult symbol(void)                                         \
	{                                                                                          \
		not_here(#symbol);                                                                 \
	}
#include "shim/bind/cuda_names.def"
#undef CA_NAME

static const struct name names[] = {
#define CA_NAME(symbol, base, version, flavour) { #base, version, FLAVOUR_##flavour, symbol },
#include "shim/bind/cuda_names.def"
#undef CA_NAME
};

void *
driver_find(const char *base, int version, cuuint64_t flags)
{
	const struct name *best = NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const struct name *n = &names[i];

		if (n->version > version || strcmp(n->base, base) ||
		    (n->flavour == FLAVOUR_PTSZ && flags != FLAVOUR_PTSZ))
			continue;
		if (!best || n->version > best->version ||
		    (n->version == best->version && n->flavour == FLAVOUR_PTSZ))
			best = n;
	}
	return best ? (void *)(uintptr_t)best->function : NULL;
}
