/* SPDX-License-Identifier: MIT */
/* Prototypes of the fixture driver, in plain C types. */
#pragma once

#include <stddef.h>

int fixture_calls(void);
int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuMemAlloc(unsigned *dptr, unsigned size);
int cuMemAlloc_v2(unsigned long long *dptr, size_t size);
int cuMemFree(unsigned dptr);
int cuMemFree_v2(unsigned long long dptr);
int cuMemFreeAsync(unsigned long long dptr, void *stream);
int cuMemFreeAsync_ptsz(unsigned long long dptr, void *stream);
int cuStreamBeginCapture(void *stream);
int cuStreamBeginCapture_ptsz(void *stream);
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamBeginCapture_v2_ptsz(void *stream, int mode);
double cuNewThing(int a, double b, const char *c, float d, long e, long f, long g, long h, double i,
		  short j);
int cuGetProcAddress(const char *name, void **pfn, int version, unsigned long long flags);
int cuGetProcAddress_v2(const char *name, void **pfn, int version, unsigned long long flags,
			int *status);
