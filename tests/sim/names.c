/* SPDX-License-Identifier: MIT */
/*
 * The table takes the address of every exported function without knowing its prototype: all are
 * declared here as functions without parameters, and this file includes no header with the real
 * ones. With -Bsymbolic-functions the addresses are those of this library even if a preloaded
 * library exports the same names, which is what the real driver does and what interposers have to
 * cope with.
 *
 * Several rows share a base name; the search is a plain scan, a few microseconds long.
 */
#include "tests/sim/names.h"

#include <errno.h>
#include <string.h>

#define CA_NAME(symbol, base, version, flavour) CUresult symbol(void);
#include "shim/bind/cuda_names.def"
#undef CA_NAME

enum { LEGACY = 0, PTSZ = 1 };

const struct simb_name simb_names[SIMB_NAMES] = {
#define CA_NAME(symbol, base, version, flavour) { #symbol, #base, version, flavour, symbol },
#include "shim/bind/cuda_names.def"
#undef CA_NAME
};

int
simb_name_find(const char *symbol)
{
	int low = 0, high = SIMB_NAMES - 1;

	while (low <= high) {
		int middle = (low + high) / 2;
		int order = strcmp(symbol, simb_names[middle].symbol);

		if (!order)
			return middle;
		if (order < 0)
			high = middle - 1;
		else
			low = middle + 1;
	}
	return -ENOENT;
}

/* Newest row of the flavour, not newer than cuda_version; -1 if there is none. */
static int
newest(const char *base, int cuda_version, int ptsz)
{
	int best = -1;

	for (int i = 0; i < SIMB_NAMES; i++) {
		const struct simb_name *name = &simb_names[i];

		if (name->ptsz != ptsz || name->version > cuda_version ||
		    strcmp(name->base, base) != 0)
			continue;
		if (best < 0 || name->version > simb_names[best].version)
			best = i;
	}
	return best;
}

int
simb_name_query(const char *base, int cuda_version, uint64_t flags, int driver_version)
{
	int index = -1;

	if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		index = newest(base, cuda_version, PTSZ);
	if (index < 0)
		index = newest(base, cuda_version, LEGACY);
	if (index >= 0)
		return index;
	return newest(base, driver_version, LEGACY) >= 0 ? -ERANGE : -ENOENT;
}
