/* SPDX-License-Identifier: MIT */
#include "tests/stress/order/calls.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

struct order_calls calls;

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
	ORDER_CALLS(X)
#undef X
	*(void **)&calls.step = dlsym(RTLD_DEFAULT, "simcuda_step");
}
