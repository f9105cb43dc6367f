/* SPDX-License-Identifier: MIT */
/*
 * Codes and their texts. Since CUDA 10.1 the runtime's codes have the driver's numbers, so mapping
 * means asking whether the runtime knows the number.
 */
#include "tests/sim/cudart/state.h"

static const struct {
	int code;
	const char *name, *text;
} errors[] = {
#define SIM_RT_ERROR(name, code, text) { code, #name, text },
#include "tests/sim/cudart/errors.def"
#undef SIM_RT_ERROR
};

/* Row of errors[]; -1: unknown code. */
static int
error_find(int code)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].code == code)
			return (int)i;
	return -1;
}

cudaError_t
sim_rt_error_from_driver(CUresult code)
{
	return error_find((int)code) < 0 ? cudaErrorUnknown : (cudaError_t)code;
}

SIM_RT_EXPORT const char *
cudaGetErrorName(cudaError_t error)
{
	int i = error_find((int)error);

	return i < 0 ? "unrecognized error code" : errors[i].name;
}

SIM_RT_EXPORT const char *
cudaGetErrorString(cudaError_t error)
{
	int i = error_find((int)error);

	return i < 0 ? "unrecognized error code" : errors[i].text;
}
