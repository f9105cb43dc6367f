/* SPDX-License-Identifier: MIT */
/* By dlsym(), so that this program reaches the driver by two roads. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/stress/async/async.h"

struct async_calls calls;

static void *
find(const char *name)
{
	void *address = dlsym(RTLD_DEFAULT, name);

	if (address)
		return address;
	fprintf(stderr, "no %s\n", name);
	exit(2);
}

void
calls_load(void)
{
#define X(name, params) *(void **)&calls.name = find(#name);
	ASYNC_CALLS(X)
#undef X
}
