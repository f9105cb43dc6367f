/* SPDX-License-Identifier: MIT */
/* Placeholder bodies: every hook passes straight through. Goes away with the first real hooks. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/log.h"
#include "shim/hooks.h"
#include "shim/real.h"

/* weak: the hooks that have a real body win */
#define CA_HOOK(symbol, base, version, flags, params, args)                                        \
	__attribute__((weak)) CUresult symbol params                                               \
	{                                                                                          \
		const struct ca_real *real = ca_real();                                            \
                                                                                                   \
		return real && real->symbol ? real->symbol args : CUDA_ERROR_NOT_INITIALIZED;      \
	}
#define CA_NEED(symbol, base, version, flags, params)
#include "shim/hooks.def"
#undef CA_HOOK
#undef CA_NEED

struct ca_process;
struct ca_process *ca_process(void);

__attribute__((weak)) struct ca_process *
ca_process(void)
{
	return NULL;
}

/* weak: until config/ has its own; writes when CACHEALLOC_LOG=debug */
__attribute__((weak)) bool
ca_log_enabled(enum ca_log_level level)
{
	const char *text = getenv("CACHEALLOC_LOG");

	return text && !strcmp(text, "debug");
}

__attribute__((weak)) void
ca_log(enum ca_log_level level, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	dprintf(2, "cachealloc: debug: ");
	vdprintf(2, format, args);
	dprintf(2, "\n");
	va_end(args);
}
