/* SPDX-License-Identifier: MIT */
/*
 * The names of the driver: every row of shim/bind/cuda_names.def with its address in this library,
 * and the search that cuGetProcAddress does over them. No state; thread-safe.
 */
#pragma once

#include <stdint.h>

#include "shim/bind/cuda_abi.h"

enum {
#define CA_NAME(symbol, base, version, flavour) SIMB_NAME_##symbol,
#include "shim/bind/cuda_names.def"
#undef CA_NAME
	SIMB_NAMES,
};

struct simb_name {
	const char *symbol;     /* as exported */
	const char *base;       /* as cuGetProcAddress is asked */
	int version;            /* CUDA version of this ABI, 1000 * major + 10 * minor */
	unsigned char ptsz;     /* 1: per-thread default stream flavour */
	CUresult (*addr)(void); /* our own function, never an interposer's */
};

extern const struct simb_name simb_names[SIMB_NAMES];

/* Index of an exported symbol, or -ENOENT. */
int simb_name_find(const char *symbol);

/*
 * The index that cuGetProcAddress(base, cuda_version, flags) chooses: of all rows with this base,
 * not newer than cuda_version, the newest of the wanted flavour; for
 * CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM without such a twin, the newest legacy one.
 * -ENOENT: no row with this base in a driver of driver_version; -ERANGE: there is one, but newer
 * than cuda_version.
 */
int simb_name_query(const char *base, int cuda_version, uint64_t flags, int driver_version);
